"""GEM's caches as bitsets: a bit per clause, a bitset per dimension and cell, ANDed over the cells of an event.

Clauses are dealt into tiles of 64 words. A tile holds, for every cell of every dimension, the bitset of the clauses
that touch the cell or leave the dimension unconstrained, and a summary that tells which of its 64 words are not zero.
A batch passes over one tile after another, so that a tile stays in cache. What survives is compared with the clause's
bounds, packed into 15-bit lanes four to a word; only where an event lies in the same lane as a bound, or a clause has
predicates that bounds do not tell, the predicates themselves decide.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch, trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.predicates import HI, KIND, LO, RANGE, SET, WIDTH, clause_holds, program_holds
from gpumatch.kernels.rows import grow, sort_unique

WORDS = 64  # words per tile and cell
TILE = 64 * WORDS  # clauses per tile
STRICTER = 4  # dimensions, the most selective ones, that are ANDed before looking whether anything is left
LANES = 4  # lanes of 15 bits and a guard per word
TOPS = np.uint64(0x8000_8000_8000_8000)
ONES = np.uint64(0x0001_0001_0001_0001)
ABSENT, OPEN = 0x7FFE, 0x7FFF  # lanes of an attribute that the event lacks, and the end of unconstrained bounds
LOOSE = np.int32(-0x8000_0000)  # mark beside a candidate: its predicates must be tested
CLAUSE = np.int32(0x7FFF_FFFF)
U0, U1, U6, U63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
AHEAD = 8  # candidates by which memory is asked for ahead of its use


@scalar
def lane_of(code, exact, shift):
    """The lane of a value's code: between those of bounds where codes fit, else shared by neighbours."""
    return 2 * code + 2 if exact else (code >> shift) + 1


@driver
def tally(clauses, clause_ptr, predicates, counts, multi, used, excluded):
    """Per attribute how many clauses constrain it and what share they exclude together; returns the mean match rate."""
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
    """Sort keys of clauses: halves of all bounds first, then quarters, so that a word's clauses are alike."""
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
    """Lanes of low and high bounds, ``words`` words each per clause; marks clauses of which they do not tell all."""
    predicate = predicates[0]
    for c in range(first, last):
        base = 2 * words * (c - first)
        for w in range(words):
            bounds[base + w] = U0
            bounds[base + words + w] = ~TOPS
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            kind = predicate[p + KIND]
            d = dim_of[predicate[p]]
            if kind != RANGE:
                loose[(c - first) >> 6] |= U1 << np.uint64((c - first) & 63)
            if d < 0 or kind > SET:
                loose[(c - first) >> 6] |= U1 << np.uint64((c - first) & 63)
                continue
            lo, hi = predicate[p + LO], predicate[p + HI]
            if kind == SET or lo > hi:
                continue
            low, high = lane_of(lo, exact[d], shift[d]), lane_of(hi, exact[d], shift[d])
            if exact[d]:
                low, high = low - 1, high + 1
            w = base + d // LANES
            place = np.uint64(16 * (d % LANES))
            bounds[w] |= np.uint64(low) << place
            bounds[w + words] = (bounds[w + words] & ~(np.uint64(OPEN) << place)) | (np.uint64(high) << place)


@scalar
def toggle(bits, base, first, last, word, bit):
    """Flip a clause's bit where it begins to touch cells, and behind the last one."""
    bits[WORDS * (base + first) + word] ^= bit
    bits[WORDS * (base + last + 1) + word] ^= bit


@driver
def set_bits(first, last, clause_ptr, predicates, dims, cells, bits, summary, count):
    """Bitsets of all tiles, their summaries, and how many clauses each cell holds.

    Toggles first, then a running XOR over the cells of a dimension: the last cell, of events that lack the attribute,
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
            if d < 0 or kind > SET:
                continue
            constrained[d] = c + 1
            lo, hi = predicate[p + LO], predicate[p + HI]
            base, cell_of, shift = tile + cell_ptr[d], table_ptr[d], table_shift[d]
            if kind == RANGE:
                if lo <= hi:
                    toggle(bits, base, table[cell_of + (lo >> shift)], table[cell_of + (hi >> shift)], word, bit)
                continue
            start = -1
            end = -1
            for r in range(lo, hi):  # ranges ascend; those that meet in a cell are one run of cells
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
    for tile in range(0, summary.size, stride):
        for d in range(cell_ptr.size - 1):
            for k in range(tile + cell_ptr[d], tile + cell_ptr[d + 1]):
                accumulate(k, k > tile + cell_ptr[d], bits, summary)
                for w in range(WORDS * k, WORDS * (k + 1)):
                    count[k - tile] += ones(bits[w])


@scalar
def accumulate(k, follows, bits, summary):
    """XOR the cell before into cell ``k``, and note which words are not zero."""
    marks = U0
    for w in range(WORDS):
        if follows:
            bits[WORDS * k + w] ^= bits[WORDS * (k - 1) + w]
        if bits[WORDS * k + w] != 0:
            marks |= U1 << np.uint64(w)
    summary[k] = marks


@scalar
def ones(word):
    """How many bits are set."""
    word = word - ((word >> U1) & np.uint64(0x5555_5555_5555_5555))
    word = (word & np.uint64(0x3333_3333_3333_3333)) + ((word >> np.uint64(2)) & np.uint64(0x3333_3333_3333_3333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F_0F0F_0F0F_0F0F)
    return np.int64((word * np.uint64(0x0101_0101_0101_0101)) >> np.uint64(56))


@scalar
def locate(events, e, dims, cells, lanes_of, count, place, lanes):
    """The event's cell in every dimension, the rarest first, into ``place``; and its lanes."""
    entry_ptr, entry_attribute, entry_code = events
    dim_of, cell_ptr = dims
    table, table_ptr, table_shift = cells
    exact, shift = lanes_of
    n = cell_ptr.size - 1
    for d in range(n):
        place[d] = np.uint64(cell_ptr[d + 1] - 1)
    for w in range(lanes.size):
        lanes[w] = np.uint64(ABSENT) * ONES | TOPS
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        d = dim_of[entry_attribute[i]]
        if d >= 0:
            code = entry_code[i]
            place[d] = np.uint64(cell_ptr[d] + table[table_ptr[d] + (code >> table_shift[d])])
            at = np.uint64(16 * (d % LANES))
            lane = np.uint64(lane_of(code, exact[d], shift[d]))
            lanes[d // LANES] = (lanes[d // LANES] & ~(np.uint64(OPEN) << at)) | (lane << at)
    for i in range(1, n):
        k = place[i]
        j = i
        while j > 0 and count[place[j - 1]] > count[k]:
            place[j] = place[j - 1]
            j -= 1
        place[j] = k


@scalar
def sift(base, place, dims, bits, summary, words, at):
    """Words of a tile in which clauses touch all cells of the event, into ``words``; their places ``at``; how many."""
    marks = summary[base + place[0]]
    for d in range(1, dims):
        marks &= summary[base + place[d]]
    few = min(dims, STRICTER)
    n = U0
    while marks != 0:
        w = trailing_zeros(marks)
        marks &= marks - U1
        word = bits[((base + place[0]) << U6) + w]
        for d in range(1, few):
            word &= bits[((base + place[d]) << U6) + w]
        words[n] = word
        at[n] = w
        n += U1 if word != 0 else U0
    if dims == few:
        return n
    kept = U0
    for i in range(n):
        word, w = words[i], at[i]
        for d in range(few, dims):
            word &= bits[((base + place[d]) << U6) + w]
        words[kept] = word
        at[kept] = w
        kept += U1 if word != 0 else U0
    return kept


@scalar
def check(clause, lanes, bounds):
    """Guard bits that stay set where the event's lanes lie within the clause's bounds, and strictly within them."""
    words = np.uint64(lanes.size)
    base = np.uint64(2) * words * np.uint64(clause)
    within = TOPS
    inside = TOPS
    for i in range(lanes.size):
        w = np.uint64(i)
        lane, low, high = lanes[w], bounds[base + w], bounds[base + words + w] | TOPS
        above, below = lane - low, high - (lane ^ TOPS)
        within &= above & below
        inside &= (above - ONES) & (below - ONES)
    return within, inside


@driver
def match_bits(events, dims, cells, lanes_of, index):
    """Candidates of all events, tile by tile: their clauses, and where those of each tile and event end."""
    bits, summary, count, bounds, loose = index
    cell_ptr = dims[1]
    n_dims = cell_ptr.size - 1
    n_events = events[0].size - 1
    stride = cell_ptr[-1]
    tiles = summary.size // stride
    width = (n_dims + LANES - 1) // LANES
    places = np.empty((n_events, n_dims), np.uint64)
    lanes = np.empty((n_events, width), np.uint64)
    for e in range(n_events):
        locate(events, e, dims, cells, lanes_of, count, places[e], lanes[e])
    words = np.empty(WORDS + 1, np.uint64)
    at = np.empty(WORDS + 1, np.uint64)
    found = np.empty(max(1024, 16 * n_events), np.int32)
    ends = np.zeros(tiles * n_events + 1, np.int64)
    n = 0
    for t in range(tiles):
        for e in range(n_events):
            k = sift(np.uint64(t * stride), places[e], n_dims, bits, summary, words, at)
            while found.size - n < TILE:
                found = grow(found)
            n = survivors(t, words, at, k, lanes[e], bounds, loose, found, n)
            ends[t * n_events + e + 1] = n
    return found, ends


@scalar
def survivors(t, words, at, k, lanes, bounds, loose, found, n):
    """Append the clauses of these words that pass their bounds to ``found[:n]``."""
    last = n
    for i in range(k):
        word = words[i]
        base = np.int32(t * TILE) + np.int32(at[i] << U6)
        while word != 0:
            found[np.uint64(last)] = base + np.int32(trailing_zeros(word))
            word &= word - U1
            last += 1
    for i in range(n, last):
        if i + AHEAD < last:
            prefetch(bounds, 2 * lanes.size * np.int64(found[i + AHEAD]))
        c = np.uint64(found[i])
        within, inside = check(c, lanes, bounds)
        undecided = (inside != TOPS) | ((loose[c >> U6] >> (c & U63)) & U1 != 0)
        found[n] = found[i] | (LOOSE if undecided else np.int32(0))
        n += within == TOPS
    return n


@driver
def gather(events, found, ends, first, n_rows, once, ascending, attributes, clauses, predicates, programs):
    """Rows of each event from its candidates in all tiles, the undecided ones tested; ascending and each once."""
    entry_ptr, entry_attribute, entry_code = events
    multi, presence = attributes
    clause_row, clause_ptr, clause_program = clauses
    program_ptr, program_item, depth = programs
    n_events = entry_ptr.size - 1
    tiles = (ends.size - 1) // max(n_events, 1)
    row = np.full(multi.size, -1, np.int32)
    stack = np.empty(depth + 1, np.uint8)
    words = np.zeros(0 if ascending else (n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets = np.zeros(n_events + 1, np.int64)
    out = np.empty(ends[-1], np.int32)
    n = 0
    for e in range(n_events):
        event = (entry_ptr[e + 1], entry_attribute, entry_code)
        last = n
        is_spread = False
        for t in range(tiles):
            for i in range(ends[t * n_events + e], ends[t * n_events + e + 1]):
                c = first + np.int64(found[i] & CLAUSE)
                if once and (clause_row[c] < 0 or had[clause_row[c]] == e):
                    continue
                if found[i] < 0:
                    if not is_spread:
                        is_spread = True
                        for j in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
                            a = entry_attribute[j]
                            row[a] = j if multi[a] else entry_code[j]
                    if not clause_holds(c, row, event, clause_ptr, predicates):
                        continue
                    g = clause_program[c]
                    if g >= 0 and not program_holds(
                        g, row, event, predicates, program_ptr, program_item, presence, stack
                    ):
                        continue
                out[last] = clause_row[c]
                last += 1
                if once:
                    had[clause_row[c]] = e
        if is_spread:
            for j in range(entry_ptr[e], entry_ptr[e + 1]):
                row[entry_attribute[j]] = -1
        n = last if ascending else sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n]
