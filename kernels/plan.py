"""The cost of clauses in each index, from how likely their predicates are to hold."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar
from gpumatch.opcodes import KIND, NULL, OP_AND, OP_BASE, OP_NOT, OP_OR, OP_TRUE, OP_XNOR, OP_XOR, RANGE, SET, WIDTH


@driver
def chances(clause_ptr, likelihood, out):
    """Per clause, how likely its one, two and three rarest predicates are to hold together; and the sum over all.

    ``out`` has four rows of one number per clause.
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
    """How likely each of these clauses is to survive the bitsets of dimensions, and whether bounds do not decide it."""
    for i in range(clauses.size):
        c = clauses[i]
        left[i] = 1.0
        loose[i] = clause_program[c] >= 0
        for p in range(clause_ptr[c], clause_ptr[c + 1]):
            kind, d = predicate[WIDTH * p + KIND], dim_of[predicate[WIDTH * p]]
            loose[i] |= kind != RANGE or d < 0
            if kind <= SET and d >= 0:
                left[i] *= likelihood[p]


@driver
def leaf_costs(clause_ptr, clause_program, programs, likelihood, share, others, out):
    """Per clause, the sum over its predicates and those of its program: how likely each is, divided by how many are
    equal to it. The first predicates have this factor in ``share``, all ``others`` have the same.
    """
    program_ptr, program_item, _ = programs
    of_program = np.zeros(program_ptr.size - 1)
    for g in range(of_program.size):
        for i in range(program_ptr[g], program_ptr[g + 1]):
            p = program_item[i]
            if p >= 0:
                of_program[g] += likelihood[p] * (share[p] if p < share.size else others)
    for c in range(out.size):
        out[c] = 0.0 if clause_program[c] < 0 else of_program[clause_program[c]]
        for p in range(clause_ptr[c], clause_ptr[c + 1]):
            out[c] += likelihood[p] * (share[p] if p < share.size else others)


@scalar
def guess_leaf(item, predicate, likelihood, present, at):
    """How likely a predicate is to be true and false, and how likely the node that it waits for is."""
    there = present[predicate[WIDTH * item]]
    true, false = likelihood[item], max(there - likelihood[item], 0.0)
    if predicate[WIDTH * item + KIND] == NULL:
        true, false = 1.0 - there, there
    at[0], at[1] = true, false
    at[2], at[3] = true, false if 2 * false <= there else there


@scalar
def guess_both(first, second):
    """Into the first: the chances of XOR of the two."""
    odd = first[0] * second[1] + first[1] * second[0]
    even = first[0] * second[0] + first[1] * second[1]
    wakes_odd = min(first[2], second[3]) + min(first[3], second[2])
    wakes_even = min(first[2], second[2]) + min(first[3], second[3])
    first[0], first[1], first[2], first[3] = odd, even, wakes_odd, wakes_even


@scalar
def guess_all(stack, top, arity, true, false):
    """Into ``stack[top]``: AND over ``arity`` operands; or OR, if the columns ``true`` and ``false`` are swapped."""
    for k in range(top + 1, top + arity):
        stack[top, true] *= stack[k, true]
        stack[top, true + 2] = min(stack[top, true + 2], stack[k, true + 2])
        stack[top, false] = min(1.0, stack[top, false] + stack[k, false])
        stack[top, false + 2] += stack[k, false + 2]


@driver
def wakings(clauses, clause_ptr, clause_program, predicate, programs, likelihood, present, out):
    """How likely each of these clauses is to be true, and how likely one of its access children is: two rows."""
    program_ptr, program_item, longest = programs
    stack = np.empty((longest + 1, 4))
    for n in range(clauses.size):
        c = clauses[n]
        out[0, n] = out[1, n] = 1.0
        for p in range(clause_ptr[c], clause_ptr[c + 1]):
            out[0, n] *= likelihood[p]
            out[1, n] = min(out[1, n], likelihood[p])
        if clause_program[c] < 0:
            continue
        top = 0
        for i in range(program_ptr[clause_program[c]], program_ptr[clause_program[c] + 1]):
            item = program_item[i]
            if item >= 0:
                guess_leaf(item, predicate, likelihood, present, stack[top])
                top += 1
                continue
            op, arity = (-item - 1) % OP_BASE, (-item - 1) // OP_BASE
            top -= arity
            at = stack[top]
            if op == OP_NOT:
                at[0], at[1], at[2], at[3] = at[1], at[0], at[3], at[2]
            elif op == OP_AND or op == OP_OR:
                guess_all(stack, top, arity, 0 if op == OP_AND else 1, 1 if op == OP_AND else 0)
            elif op == OP_XOR or op == OP_XNOR:
                for k in range(top + 1, top + arity):
                    guess_both(at, stack[k])
                if op == OP_XNOR:
                    at[0], at[1], at[2], at[3] = at[1], at[0], at[3], at[2]
            else:
                at[0] = at[2] = op == OP_TRUE
                at[1] = at[3] = op != OP_TRUE
            top += 1
        out[0, n] *= stack[0, 0]
        out[1, n] = min(out[1, n], stack[0, 2])
