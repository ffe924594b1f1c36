"""Ends of ranges, grouped by attribute to become cuts, and put back into their predicates as codes.

Grouping puts all searches of an attribute's cuts together, so that the cuts stay in the cache. An end is stored as the
cut that it makes: the first key, or one past the last; open ends make none.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.encode import BLOCK, DIRECT, MISSING, U1, U6, U8, bucket_place, rank_from
from gpumatch.opcodes import HI, KIND, LO, NULL, RANGE, WIDTH

NEAR = 8  # cuts that are compared at once; a bucket has four or fewer on average
LEAST, MOST = np.int64(-0x8000_0000_0000_0000), np.int64(0x7FFF_FFFF_FFFF_FFFF)  # keys that stand for open ends
INFINITY = np.int64(0x7FF0_0000_0000_0000)  # the key of that float


@scalar
def keys_of(lo, hi, is_float):
    """First and last key of a range; of floats, keys beyond the infinities are not numbers."""
    if is_float:
        if lo > INFINITY:
            return np.int64(0), np.int64(-1)
        if lo <= ~INFINITY:
            lo = LEAST
        if hi >= INFINITY:
            hi = MOST
    return lo, hi


@driver
def count_ends(predicates, start, stop, floats, empty, counts):
    """Adds to ``counts`` how many ends the ranges ``start:stop`` have in each attribute.

    ``predicates``: attribute, kind, lo and hi. ``empty``: whether ranges whose first key is above the last count too.
    """
    attribute, kind, lo, hi = predicates
    for i in range(start, stop):
        if kind[i] == RANGE:
            first, last = keys_of(lo[i], hi[i], floats[attribute[i]])
            if empty or first <= last:
                counts[attribute[i]] += np.int64(first != LEAST) + np.int64(last != MOST)


@driver
def group_ends(predicates, start, stop, floats, empty, place, keys):
    """Ends as cuts, grouped by attribute; ``place`` says where the next one goes."""
    attribute, kind, lo, hi = predicates
    for i in range(start, stop):
        if kind[i] == RANGE:
            a = attribute[i]
            first, last = keys_of(lo[i], hi[i], floats[a])
            if empty or first <= last:
                at = place[a]
                if first != LEAST:
                    keys[at] = first
                    at += 1
                if last != MOST:
                    keys[at] = last + 1
                    at += 1
                place[a] = at


@scalar
def rank_near(bucket, key, g, guide, cuts, buckets):
    """``rank_from``, for a key that may be anywhere: few cuts are all compared, as branches would be mispredicted."""
    lo, hi = np.int64(buckets[bucket]), np.int64(buckets[bucket + 1])
    first, count = guide[g], guide[g + U1]
    if hi - lo > NEAR or lo + NEAR > count:
        while lo < hi:
            mid = (lo + hi) >> 1
            if cuts[first + mid] <= key:
                lo = mid + 1
            else:
                hi = mid
        return lo
    at = np.uint64(first + lo)
    for j in range(NEAR):  # cuts of higher buckets are above
        lo += np.int64(cuts[at + np.uint64(j)] <= key)
    return lo


@driver
def rank_ends(keys, ptr, start, stop, guide, cuts, buckets, codes):
    """Codes of the grouped keys ``start:stop``; those of an attribute begin where ``ptr`` says."""
    places = np.empty(BLOCK, np.int64)
    a = 0
    first = start
    while first < stop:
        while ptr[a + 1] <= first:
            a += 1
        last = min(first + BLOCK, min(stop, ptr[a + 1]))
        g = U8 * np.uint64(a)
        for i in range(last - first):
            places[i] = bucket_place(keys[first + i], a, guide)
            prefetch(buckets, places[i])
        if guide[g + U6] & DIRECT:
            for i in range(last - first):
                codes[first + i] = rank_from(places[i], keys[first + i], a, guide, cuts, buckets)
        else:
            for i in range(last - first):
                at = guide[g] + buckets[places[i]]
                prefetch(cuts, at)
                prefetch(cuts, at + NEAR - 1)
            for i in range(last - first):
                codes[first + i] = rank_near(places[i], keys[first + i], g, guide, cuts, buckets)
        first = last


@driver
def code_ends(predicates, start, stop, floats, empty, cut_ptr, codes, place, out):
    """Rows of a table of the predicates ``start:stop``, with codes from where ``group_ends`` put the keys."""
    attribute, kind, lo, hi = predicates
    for i in range(start, stop):
        a = attribute[i]
        low, high = lo[i], hi[i]
        if kind[i] == NULL:
            low = high = np.int64(MISSING)
        elif kind[i] == RANGE:
            first, last = keys_of(low, high, floats[a])
            low, high = np.int64(0), np.int64(-1)
            if empty or first <= last:
                at, high = place[a], cut_ptr[a + 1] - cut_ptr[a]
                if first != LEAST:
                    low = np.int64(codes[at])
                    at += 1
                if last != MOST:
                    high = np.int64(codes[at]) - 1
                    at += 1
                place[a] = at
        p = WIDTH * i
        out[p], out[p + KIND], out[p + LO], out[p + HI] = a, kind[i], low, high
