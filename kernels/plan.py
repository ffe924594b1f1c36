"""What clauses would cost under each index, from how likely their predicates hold."""

from __future__ import annotations

from gpumatch.kernels.compile import driver
from gpumatch.kernels.predicates import KIND, RANGE, SET, WIDTH


@driver
def chances(clause_ptr, likelihood, out):
    """Per clause how likely its one, two and three rarest predicates hold together; and the sum over all of them.

    ``out`` is four rows of one number per clause.
    """
    for c in range(clause_ptr.size - 1):
        one = two = three = 1.0
        total = 0.0
        for i in range(clause_ptr[c], clause_ptr[c + 1]):
            chance = likelihood[i]
            total += chance
            if chance < one:
                one, two, three = chance, one, two
            elif chance < two:
                two, three = chance, two
            elif chance < three:
                three = chance
        out[0, c] = one
        out[1, c] = one * two
        out[2, c] = one * two * three
        out[3, c] = total


@driver
def survival(clauses, clause_ptr, clause_program, predicate, likelihood, dim_of, left, loose):
    """How likely each of these clauses survives the bitsets of dimensions, and whether bounds do not tell all of it."""
    for i in range(clauses.size):
        c = clauses[i]
        left[i] = 1.0
        loose[i] = clause_program[c] >= 0
        for p in range(clause_ptr[c], clause_ptr[c + 1]):
            kind, d = predicate[WIDTH * p + KIND], dim_of[predicate[WIDTH * p]]
            loose[i] |= kind != RANGE or d < 0
            if kind <= SET and d >= 0:
                left[i] *= likelihood[p]
