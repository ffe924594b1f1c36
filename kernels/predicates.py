"""Does an event satisfy a clause? Predicates over codes, and programs over predicates in three-valued logic.

A predicate is four numbers side by side: attribute, kind, lo, hi. An event is spread over a dense row: ``row[a]`` is
the code of attribute ``a``, or for a multi-valued one the index of its first entry, and -1 if the event lacks it.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import scalar
from gpumatch.opcodes import (
    ANY,
    HI,
    KIND,
    LO,
    NULL,
    OP_AND,
    OP_BASE,
    OP_NOT,
    OP_OR,
    OP_TRUE,
    OP_XNOR,
    RANGE,
    SET,
    WIDTH,
)

FALSE, TRUE, UNKNOWN = 0, 1, 2


@scalar
def in_ranges(code, first, last, range_lo, range_hi):
    """Is ``code`` in one of the ascending, disjoint ranges ``first:last``?"""
    end = last
    while first < last:
        mid = (first + last) >> 1
        if range_hi[mid] < code:
            first = mid + 1
        else:
            last = mid
    return first < end and range_lo[first] <= code


@scalar
def any_in_ranges(attribute, entry, entry_last, entry_attribute, entry_code, first, last, range_lo, range_hi):
    """Does one of the entries of ``attribute`` that start at ``entry`` lie in the ranges ``first:last``?"""
    if entry < 0:
        return False
    while entry < entry_last and entry_attribute[entry] == attribute:
        if in_ranges(entry_code[entry], first, last, range_lo, range_hi):
            return True
        entry += 1
    return False


@scalar
def predicate_holds(p, row, event, predicates):
    """Does the predicate at position ``p`` hold?"""
    entry_last, entry_attribute, entry_code = event
    predicate, range_lo, range_hi = predicates
    a, kind, lo, hi = predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
    if kind == RANGE:
        return lo <= row[a] <= hi
    if kind == NULL:
        return row[a] < 0
    if kind == SET:
        return in_ranges(row[a], lo, hi, range_lo, range_hi)
    found = any_in_ranges(a, row[a], entry_last, entry_attribute, entry_code, lo, hi, range_lo, range_hi)
    return found == (kind == ANY)


@scalar
def clause_holds(clause, row, event, clause_ptr, predicates):
    """Do all predicates of a clause hold? The most selective come first."""
    predicate = predicates[0]
    for p in range(WIDTH * clause_ptr[clause], WIDTH * clause_ptr[clause + 1], WIDTH):
        if predicate[p + KIND] == RANGE:  # nearly all are: tested here, without a call
            code = row[predicate[p]]
            if code < predicate[p + LO] or code > predicate[p + HI]:
                return False
        elif not predicate_holds(p, row, event, predicates):
            return False
    return True


@scalar
def program_holds(program, row, event, predicates, program_ptr, program_item, presence, stack):
    """Is a postfix program true of the event? Predicates on missing attributes are unknown."""
    top = 0
    predicate = predicates[0]
    for i in range(program_ptr[program], program_ptr[program + 1]):
        item = program_item[i]
        if item >= 0:
            p = WIDTH * np.int64(item)
            if predicate[p + KIND] != NULL and row[presence[predicate[p]]] < 0:
                stack[top] = UNKNOWN
            else:
                stack[top] = TRUE if predicate_holds(p, row, event, predicates) else FALSE
            top += 1
        else:
            op = (-item - 1) % OP_BASE
            arity = (-item - 1) // OP_BASE
            top -= arity
            stack[top] = combine(op, stack, top, arity)
            top += 1
    return stack[0] == TRUE


@scalar
def satisfies(c, row, event, clause_ptr, clause_program, predicates, program_ptr, program_item, presence, stack):
    """Does a clause hold: its predicates, and its program if it has one?"""
    if not clause_holds(c, row, event, clause_ptr, predicates):
        return False
    g = clause_program[c]
    return g < 0 or program_holds(g, row, event, predicates, program_ptr, program_item, presence, stack)


@scalar
def combine(op, stack, first, arity):
    """The value of an operator over ``stack[first:first+arity]``."""
    if op >= OP_TRUE:
        return TRUE if op == OP_TRUE else FALSE
    unknown = False
    trues = 0
    falses = 0
    for k in range(first, first + arity):
        value = stack[k]
        unknown |= value == UNKNOWN
        trues += value == TRUE
        falses += value == FALSE
    if op == OP_AND and falses > 0:
        return FALSE
    if op == OP_OR and trues > 0:
        return TRUE
    if unknown:
        return UNKNOWN
    if op == OP_AND:
        return TRUE
    if op == OP_OR:
        return FALSE
    odd = (trues & 1) == 1
    if op == OP_NOT or op == OP_XNOR:
        odd = not odd
    return TRUE if odd else FALSE
