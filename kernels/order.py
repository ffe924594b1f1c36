"""Order of predicates within clauses: the one that holds least often first, so that checks end early."""

from __future__ import annotations

from gpumatch.kernels.bits import prefetch
from gpumatch.kernels.compile import driver
from gpumatch.opcodes import ANY, HI, KIND, LO, NONE, NULL, RANGE, WIDTH

AHEAD = 8  # memory is prefetched this many clauses ahead
LINE = 16  # numbers per cache line


@driver
def likelihoods(start, stop, predicates, counts, seen, seen_ptr, seen_total, out):
    """How likely the predicates ``start:stop`` are to hold: by codes of observed events, and one more that may have
    any code.

    ``seen[seen_ptr[a] + c]`` is how many observed values of attribute ``a`` have a code below ``c``; with no events,
    it is not read.
    """
    predicate, range_lo, range_hi = predicates
    for i in range(start, stop):
        p = WIDTH * i
        a, kind, lo, hi = predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
        if kind == NULL or kind == NONE:
            out[i] = 1.0
            continue
        first, last = (0, 1) if kind == RANGE else (lo, hi)
        covered, codes = 0, 0
        for r in range(first, last):
            low, high = (lo, hi) if kind == RANGE else (range_lo[r], range_hi[r])
            if seen_total > 0:
                covered += seen[seen_ptr[a] + high + 1] - seen[seen_ptr[a] + low]
            codes += high - low + 1
        share = codes / counts[a]
        if kind == ANY:
            share = min(1.0, 4 * share)  # a list has several values, any of which is enough
        out[i] = (covered + share) / (seen_total + 1)


@driver
def copy_clauses(start, stop, order, clause_ptr, predicate, out_ptr, out):
    """The predicates of the clauses ``order[start:stop]``, to where ``out_ptr`` says that those of each start."""
    for i in range(start, stop):
        ahead = order[min(i + AHEAD, stop - 1)]
        for p in range(WIDTH * clause_ptr[ahead], WIDTH * clause_ptr[ahead + 1], LINE):
            prefetch(predicate, p)
        at = WIDTH * out_ptr[i]
        for p in range(WIDTH * clause_ptr[order[i]], WIDTH * clause_ptr[order[i] + 1]):
            out[at] = predicate[p]
            at += 1


@driver
def sort_clauses(start, stop, clause_ptr, likelihood, predicate):
    """Sort the predicates of the clauses ``start:stop`` by likelihood, in place; equal ones keep their order."""
    for c in range(start, stop):
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
