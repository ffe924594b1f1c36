"""Building GEM's bitsets: the choice of dimensions, the order of clauses, and the bits themselves."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.gem import LANES, OPEN, TILE, TOPS, U0, U1, WORDS, lane_of, words_left
from gpumatch.opcodes import HI, KIND, LO, RANGE, SET, WIDTH


@driver
def tally(clauses, clause_ptr, predicates, counts, multi, used, excluded):
    """Per attribute, how many clauses constrain it and the share they exclude together; returns the mean match rate."""
    predicate, range_lo, range_hi = predicates
    total = 0.0
    for c in clauses:
        rate = 1.0
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            a, kind, lo, hi = predicate[p], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
            if kind > SET or multi[a]:
                continue
            codes = max(hi - lo + 1, 0)
            if kind == SET:
                codes = 0
                for r in range(lo, hi):
                    codes += max(range_hi[r] - range_lo[r] + 1, 0)
            used[a] += 1
            excluded[a] += 1.0 - codes / counts[a]
            rate *= codes / counts[a]
        total += rate
    return total / max(clauses.size, 1)


@driver
def weigh(clauses, clause_ptr, predicates, dim_of, table_ptr, table_shift, lows, highs):
    """How many low and how many high bounds of ranges lie in each granule of each dimension."""
    predicate, range_lo, range_hi = predicates
    for c in clauses:
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            d, kind, lo, hi = dim_of[predicate[p]], predicate[p + KIND], predicate[p + LO], predicate[p + HI]
            if d < 0 or kind > SET:
                continue
            first, last = (0, 1) if kind == RANGE else (lo, hi)
            for r in range(first, last):
                low, high = (lo, hi) if kind == RANGE else (range_lo[r], range_hi[r])
                if low <= high:
                    lows[table_ptr[d] + (low >> table_shift[d])] += 1
                    highs[table_ptr[d] + (high >> table_shift[d])] += 1


@driver
def interleave(clauses, clause_ptr, predicates, dim_of, table_ptr, table_shift, low_rank, high_rank, keys):
    """Sort keys of clauses: halves of all bounds first, then quarters, so that the clauses of a word are similar."""
    predicate = predicates[0]
    dims = table_ptr.size - 1
    ranks = np.empty(2 * dims, np.uint8)
    for i in range(clauses.size):
        c = clauses[i]
        ranks[:] = 0
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            d = dim_of[predicate[p]]
            if d >= 0 and predicate[p + KIND] == RANGE and predicate[p + LO] <= predicate[p + HI]:
                ranks[2 * d] = low_rank[table_ptr[d] + (predicate[p + LO] >> table_shift[d])]
                ranks[2 * d + 1] = high_rank[table_ptr[d] + (predicate[p + HI] >> table_shift[d])]
        key = np.int64(0)
        used = 0
        for level in range(7, -1, -1):
            for r in range(2 * dims):
                if used < 62:
                    key = (key << 1) | ((ranks[r] >> level) & 1)
                    used += 1
        keys[i] = key


@driver
def pack_bounds(first, last, clause_ptr, predicates, dim_of, exact, shift, words, bounds, loose):
    """Lanes of low and high bounds, ``words`` words each per clause; marks clauses that these do not decide."""
    predicate = predicates[0]
    bound = np.zeros(exact.size, np.int64)
    for c in range(first, last):
        base = 2 * words * (c - first)
        for w in range(words):
            bounds[base + w] = U0
            bounds[base + words + w] = ~TOPS
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            d, lo, hi = dim_of[predicate[p]], predicate[p + LO], predicate[p + HI]
            if predicate[p + KIND] != RANGE or d < 0 or bound[d] == c + 1 or lo > hi:
                loose[(c - first) >> 6] |= U1 << np.uint64((c - first) & 63)
                continue
            bound[d] = c + 1
            low, high = lane_of(lo, exact[d], shift[d]), lane_of(hi, exact[d], shift[d])
            if exact[d]:
                low, high = low - 1, high + 1
            w = base + d // LANES
            place = np.uint64(16 * (d % LANES))
            bounds[w] |= np.uint64(low) << place
            bounds[w + words] = (bounds[w + words] & ~(np.uint64(OPEN) << place)) | (np.uint64(high) << place)


@scalar
def toggle(bits, base, first, last, word, bit):
    """Flip a clause's bit where it begins to touch cells, and after the last one."""
    bits[WORDS * (base + first) + word] ^= bit
    bits[WORDS * (base + last + 1) + word] ^= bit


@driver
def set_bits(first, last, clause_ptr, predicates, dims, cells, bits, cover, summary, count):
    """Bitsets of all tiles, their summaries, and how many clauses each cell holds.

    ``cover``, if not empty, gets the clauses that hold for all codes of a cell.

    Toggles first, then a running XOR over the cells of a dimension: the last cell, for events that lack the attribute,
    is left with the clauses that do not constrain it.
    """
    predicate, range_lo, range_hi = predicates
    dim_of, cell_ptr = dims
    table, table_ptr, table_shift = cells
    stride = cell_ptr[-1]
    constrained = np.zeros(cell_ptr.size - 1, np.int64)
    for c in range(first, last):
        tile = (c - first) // TILE * stride
        word = ((c - first) >> 6) % WORDS
        bit = U1 << np.uint64((c - first) & 63)
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            kind = predicate[p + KIND]
            d = dim_of[predicate[p]]
            if d < 0 or kind > SET or constrained[d] == c + 1:  # a second predicate on an attribute is tested later
                continue
            constrained[d] = c + 1
            lo, hi = predicate[p + LO], predicate[p + HI]
            base, cell_of, shift = tile + cell_ptr[d], table_ptr[d], table_shift[d]
            if kind == RANGE:
                if lo <= hi:
                    one, two = table[cell_of + (lo >> shift)], table[cell_of + (hi >> shift)]
                    toggle(bits, base, one, two, word, bit)
                    if cover.size > 0 and one + 1 < two:
                        toggle(cover, base, one + 1, two - 1, word, bit)
                continue
            start = -1
            end = -1
            for r in range(lo, hi):  # ranges ascend; those that meet in a cell form one run of cells
                if range_lo[r] > range_hi[r]:
                    continue
                one, two = table[cell_of + (range_lo[r] >> shift)], table[cell_of + (range_hi[r] >> shift)]
                if start >= 0 and one > end + 1:
                    toggle(bits, base, start, end, word, bit)
                    start = one
                if start < 0:
                    start = one
                end = max(two, end)
            if start >= 0:
                toggle(bits, base, start, end, word, bit)
        for d in range(constrained.size):
            if constrained[d] != c + 1:
                bits[WORDS * (tile + cell_ptr[d]) + word] ^= bit
                if cover.size > 0:
                    cover[WORDS * (tile + cell_ptr[d]) + word] ^= bit
    for tile in range(0, summary.size, stride):
        for d in range(cell_ptr.size - 1):
            for k in range(tile + cell_ptr[d], tile + cell_ptr[d + 1]):
                if k > tile + cell_ptr[d]:
                    for w in range(WORDS * k, WORDS * (k + 1)):
                        bits[w] ^= bits[w - WORDS]
                        if cover.size > 0:
                            cover[w] ^= cover[w - WORDS]
                summary[k] = words_left(bits[WORDS * k : WORDS * (k + 1)])
                for w in range(WORDS * k, WORDS * (k + 1)):
                    count[k - tile] += np.int64(ones(bits[w]))
