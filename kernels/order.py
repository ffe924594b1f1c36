"""Order of predicates within clauses: the one that holds least often first, so that checks end early."""

from __future__ import annotations

from gpumatch.kernels.compile import driver
from gpumatch.opcodes import ANY, HI, KIND, LO, NONE, NULL, RANGE, WIDTH


@driver
def likelihoods(predicates, counts, seen, seen_ptr, seen_total, out):
    """How likely each predicate is to hold: by codes of observed events, else by the share of codes that it covers.

    ``seen[seen_ptr[a] + c]`` is how many observed values of attribute ``a`` have a code below ``c``.
    """
    predicate, range_lo, range_hi = predicates
    for i in range(out.size):
        p = WIDTH * i
        a, kind, lo, hi = predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
        if kind == NULL or kind == NONE:
            out[i] = 1.0
            continue
        first, last = (0, 1) if kind == RANGE else (lo, hi)
        covered = 0.0
        for r in range(first, last):
            low, high = (lo, hi) if kind == RANGE else (range_lo[r], range_hi[r])
            if seen_total > 0:
                covered += seen[seen_ptr[a] + high + 1] - seen[seen_ptr[a] + low]
            else:
                covered += high - low + 1
        out[i] = covered / (seen_total if seen_total > 0 else counts[a])
        if kind == ANY and seen_total == 0:
            out[i] = min(1.0, 4 * out[i])  # a list has several values, any of which is enough


@driver
def sort_clauses(clause_ptr, likelihood, predicate):
    """Sort the predicates of every clause by likelihood, in place; equal ones keep their order."""
    for c in range(clause_ptr.size - 1):
        for i in range(clause_ptr[c] + 1, clause_ptr[c + 1]):
            x = likelihood[i]
            p = WIDTH * i
            a, kind, lo, hi = predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
            j = i
            while j > clause_ptr[c] and likelihood[j - 1] > x:
                likelihood[j] = likelihood[j - 1]
                for k in range(WIDTH * j, WIDTH * (j + 1)):
                    predicate[k] = predicate[k - WIDTH]
                j -= 1
            likelihood[j] = x
            p = WIDTH * j
            predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI] = a, kind, lo, hi
