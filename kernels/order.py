"""Order of predicates within clauses: the one that holds least often first, so that checks end early."""

from __future__ import annotations

from gpumatch.kernels.compile import driver
from gpumatch.kernels.predicates import ANY, NONE, NULL, RANGE


@driver
def likelihoods(predicates, counts, seen, seen_ptr, seen_total, out):
    """How likely each predicate holds: by codes of events that were seen, else by the share of codes that it covers.

    ``seen[seen_ptr[a] + c]`` is how many observed values of attribute ``a`` have a code below ``c``.
    """
    attribute, kind, lo, hi, range_lo, range_hi = predicates
    for p in range(out.size):
        a = attribute[p]
        if kind[p] == NULL or kind[p] == NONE:
            out[p] = 1.0
            continue
        first, last = (p, p + 1) if kind[p] == RANGE else (lo[p], hi[p])
        covered = 0.0
        for i in range(first, last):
            low, high = (lo[p], hi[p]) if kind[p] == RANGE else (range_lo[i], range_hi[i])
            if seen_total > 0:
                covered += seen[seen_ptr[a] + high + 1] - seen[seen_ptr[a] + low]
            else:
                covered += high - low + 1
        out[p] = covered / (seen_total if seen_total > 0 else counts[a])
        if kind[p] == ANY and seen_total == 0:
            out[p] = min(1.0, 4 * out[p])  # a list has several values, any of which will do


@driver
def sort_clauses(clause_ptr, likelihood, attribute, kind, lo, hi):
    """Sort the predicates of every clause by likelihood, in place; equal ones keep their order."""
    for c in range(clause_ptr.size - 1):
        for i in range(clause_ptr[c] + 1, clause_ptr[c + 1]):
            x, a, k, low, high = likelihood[i], attribute[i], kind[i], lo[i], hi[i]
            j = i
            while j > clause_ptr[c] and likelihood[j - 1] > x:
                likelihood[j] = likelihood[j - 1]
                attribute[j] = attribute[j - 1]
                kind[j] = kind[j - 1]
                lo[j] = lo[j - 1]
                hi[j] = hi[j - 1]
                j -= 1
            likelihood[j] = x
            attribute[j] = a
            kind[j] = k
            lo[j] = low
            hi[j] = high
