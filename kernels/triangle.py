"""GEM's triangles: which clauses an event can satisfy, by cells of (low, high) in every dimension (paper 003).

A clause lies in one cell per dimension: the row of its high bound, the column of its low one. Cells are stored row by
row, with ``i + 1`` of them in row ``i``; the last cell of a dimension holds the clauses that leave it unconstrained. An
event in cell ``v`` passes the rows above ``v`` left of column ``v`` outright; row and column ``v`` are compared; the
rest is excluded. Each dimension in turn reduces the candidates, the most selective first.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch, trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.predicates import satisfies
from gpumatch.kernels.rows import START, append_row, grow, is_had, sort_unique
from gpumatch.opcodes import HI, KIND, LO, RANGE, SET, WIDTH

MISSING = np.int32(-1)  # the code of an attribute that the event lacks, and the low bound of unconstrained clauses
OPEN = np.int32(0x7FFF_FFFF)  # their high bound
U1, ALL = np.uint64(1), ~np.uint64(0)
ANDED, KEPT = 10, 2  # shifts: how many clauses a bitset ANDs, or gets bit by bit, in the time of testing one
AHEAD = 16  # memory is prefetched this many candidates ahead


@driver
def fill_bounds(first, counts, dim_of, clauses, predicates, bounds, decided):
    """Low and high code of each dimension and clause, and whether these decide the clause."""
    clause_ptr, clause_program = clauses
    predicate, range_lo, range_hi = predicates
    n = decided.size
    bounds[0::2] = MISSING
    bounds[1::2] = OPEN
    for c in range(n):
        decided[c] = clause_program[first + c] < 0
        for p in range(WIDTH * clause_ptr[first + c], WIDTH * clause_ptr[first + c + 1], WIDTH):
            kind = predicate[p + KIND]
            d = dim_of[predicate[p]]
            decided[c] &= d >= 0 and kind == RANGE
            if d < 0 or kind > SET:
                continue
            low, high = predicate[p + LO], predicate[p + HI]
            if kind == SET:
                low, high = hull(low, high, range_lo, range_hi)
            b = 2 * (d * n + c)
            low, high = max(low, bounds[b]), min(high, bounds[b + 1])
            if low > high:  # nothing satisfies it: its point is beyond all codes
                low = high = counts[d]
            bounds[b], bounds[b + 1] = low, high


@scalar
def hull(first, last, range_lo, range_hi):
    """Lowest and highest code of the ranges ``first:last``, some of which may be empty."""
    low, high = OPEN, MISSING
    for r in range(first, last):
        if range_lo[r] <= range_hi[r]:
            low, high = min(low, range_lo[r]), max(high, range_hi[r])
    return low, high


@driver
def count_passing(bounds, clauses, count_ptr, count):
    """Per dimension and code, the missing one first: how many clauses contain it in their bounds."""
    for d in range(count_ptr.size - 1):
        base, end = count_ptr[d], count_ptr[d + 1]
        for b in range(2 * d * clauses, 2 * (d + 1) * clauses, 2):
            start, stop = base + bounds[b] + 1, base + np.int64(bounds[b + 1]) + 2
            if start < end:
                count[start] += 1
            if stop < end:
                count[stop] -= 1
        for i in range(base + 1, end):
            count[i] += count[i - 1]


@scalar
def passing(d, code, counts):
    """How many clauses dimension ``d`` lets pass: all, minus #(high < code), minus #(low > code)."""
    count_ptr, count = counts
    return np.int64(count[count_ptr[d] + code + 1])


@scalar
def decide(clauses, pass_count, cost, order):
    """The paper's decision algorithm: dimensions that exclude anything into ``order``, the most selective first.

    Returns their number, and how many of them use cells; the others test the remaining candidates, once these are
    fewer than the ``cost`` of cells, in tests of clauses.
    """
    used = 0
    for d in range(pass_count.size):
        if pass_count[d] == clauses:
            continue
        j = used
        while j > 0 and pass_count[order[j - 1]] > pass_count[d]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = d
        used += 1
    left = float(clauses)
    by_cells = 0
    while by_cells < used and (by_cells == 0 or left > cost[order[by_cells]]):
        left *= pass_count[order[by_cells]] / clauses
        by_cells += 1
    return used, by_cells


@scalar
def cell_at(d, code, cells, starts):
    """The cell of dimension ``d`` that contains a code; for a missing one, the number after all cells."""
    if code < 0:
        return cells
    first, last = 0, cells - 1
    while first < last:
        mid = (first + last + 1) >> 1
        if starts[d * cells + mid] <= code:
            first = mid
        else:
            last = mid - 1
    return first


@scalar
def row_start(d, i, cells):
    """The first cell in row ``i`` of dimension ``d``; row ``cells`` is the cell of unconstrained clauses."""
    return d * (cells * (cells + 1) // 2 + 1) + i * (i + 1) // 2


@scalar
def within(at, code, bounds):
    """Neither of Theorems 1 and 2: the code is not below the low bound of clause ``at``, nor above the high one."""
    b = np.uint64(2 * at)
    return (bounds[b] <= code) & (bounds[b + U1] >= code)  # without a branch, which would often be mispredicted


@scalar
def include(d, code, clauses, grid, found):
    """List the clauses that dimension ``d`` lets pass; returns their number."""
    cells, starts, cell_ptr, cell_sub, bounds = grid
    v = cell_at(d, code, cells, starts)
    base = d * clauses
    k = 0
    for i in range(v, cells + 1):
        row = row_start(d, i, cells)
        free = i == cells
        first, last = cell_ptr[row], cell_ptr[row + 1 if free else row + v + 1]
        edge = last if free else first if i == v else cell_ptr[row + v]
        for q in range(first, edge):
            found[k] = cell_sub[q]
            k += 1
        for q in range(edge, last):
            found[k] = cell_sub[q]
            k += within(base + cell_sub[q], code, bounds)
    return k


@scalar
def exclude(d, code, clauses, grid, words):
    """Remove the clauses that dimension ``d`` does not let pass from a bitset."""
    cells, starts, cell_ptr, cell_sub, bounds = grid
    v = cell_at(d, code, cells, starts)
    base = d * clauses
    for q in range(cell_ptr[row_start(d, 0, cells)], cell_ptr[row_start(d, v, cells)]):
        words[cell_sub[q] >> 6] &= ~(U1 << np.uint64(cell_sub[q] & 63))
    for i in range(v, cells):
        row = row_start(d, i, cells)
        edge, outright = cell_ptr[row if i == v else row + v], cell_ptr[row + v + 1]
        for q in range(edge, outright):
            c = cell_sub[q]
            out = not within(base + c, code, bounds)
            words[c >> 6] &= ~(np.uint64(out) << np.uint64(c & 63))
        for q in range(outright, cell_ptr[row + i + 1]):
            words[cell_sub[q] >> 6] &= ~(U1 << np.uint64(cell_sub[q] & 63))


@scalar
def keep(first, last, cell_sub, words, kept):
    """Add the clauses in ``cell_sub[first:last]`` that are in the bitset ``words`` to ``kept``."""
    for q in range(first, last):
        w = cell_sub[q] >> 6
        kept[w] |= words[w] & (U1 << np.uint64(cell_sub[q] & 63))


@scalar
def intersect(d, code, grid, caches, words, kept):
    """Into ``kept``, the members of a bitset that touch the event's cell in dimension ``d``, and some that do not.

    The nearest cached bitset lacks clauses of the cells in between: rows that it lies above, or columns that it lies
    left of. Excess members are left to comparisons.
    """
    cells, starts, cell_ptr, cell_sub, _ = grid
    nearest, cache_cell, cache_bits, _ = caches
    v = cell_at(d, code, cells, starts)
    if v == cells:
        kept[:] = 0
        row = row_start(d, cells, cells)
        keep(cell_ptr[row], cell_ptr[row + 1], cell_sub, words, kept)
        return
    t = cache_cell[nearest[v]]
    base = (d * cache_cell.size + nearest[v]) * words.size
    for w in range(words.size):
        kept[w] = words[w] & cache_bits[base + w]
    left = 0 if v < t else t + 1
    for i in range(v, t if v < t else cells):
        row = row_start(d, i, cells)
        keep(cell_ptr[row + left], cell_ptr[row + v + 1], cell_sub, words, kept)


@scalar
def unpack(words, found):
    """List the members of a bitset; returns their number."""
    k = 0
    for w in range(words.size):
        bits = words[w]
        while bits != 0:
            found[k] = (w << 6) + np.int64(trailing_zeros(bits))
            bits &= bits - U1
            k += 1
    return k


@scalar
def select(d, code, clauses, bounds, found, k):
    """The selection method: keep the clauses in ``found[:k]`` that dimension ``d`` lets pass."""
    base = d * clauses
    kept = 0
    for i in range(k):
        prefetch(bounds, 2 * (base + found[min(i + AHEAD, k - 1)]))
        c = found[i]
        found[kept] = c
        kept += within(base + c, code, bounds)
    return kept


@scalar
def all_of(clauses, words):
    """Fill a bitset with ``clauses`` clauses."""
    words[:] = ALL
    if clauses & 63:
        words[clauses >> 6] = (U1 << np.uint64(clauses & 63)) - U1


@scalar
def candidates(clauses, codes, grid, counts, caches, scratch, found):
    """List the clauses that every dimension lets pass; returns their number."""
    pass_count, cost, order, words, kept = scratch
    cells, starts, bounds = grid[0], grid[1], grid[4]
    cached = caches[1].size > 0
    for d in range(codes.size):
        pass_count[d] = passing(d, codes[d], counts)
        if cached:
            v = cell_at(d, codes[d], cells, starts)
            cost[d] = (clauses >> ANDED) + (caches[3][d * (cells + 1) + v] >> KEPT)
        else:
            cost[d] = clauses - pass_count[d]
    used, by_cells = decide(clauses, pass_count, cost, order)
    if by_cells == 1 and not cached:
        k = include(order[0], codes[order[0]], clauses, grid, found)
    else:
        all_of(clauses, words)
        for i in range(by_cells):
            d = order[i]
            if cached:
                intersect(d, codes[d], grid, caches, words, kept)
                words, kept = kept, words
            else:
                exclude(d, codes[d], clauses, grid, words)
        k = unpack(words, found)
    for i in range(used if cached else used - by_cells):
        if k == 0:
            break
        d = order[(by_cells + i) % used]  # dimensions of caches last: most of what they exclude is gone
        k = select(d, codes[d], clauses, bounds, found, k)
    return k


@driver
def match_triangles(events, n_rows, once, span, attributes, dims, index, clauses, predicates, programs):
    """Rows that events satisfy, as offsets and rows, ascending and without repeats in an event.

    Clauses with a negative row are skipped, and with ``once`` those whose row the event has already.
    """
    entry_ptr, entry_attribute, entry_code = events
    multi, presence = attributes
    grid, counts, caches, decided = index
    clause_row, clause_ptr, clause_program = clauses
    program_ptr, program_item = programs[0], programs[1]
    first, count = span[0], span[1] - span[0]
    row, codes = np.full(multi.size, MISSING, np.int32), np.empty(dims.size, np.int32)
    numbers, sets = np.empty((3, dims.size), np.int64), np.empty((2, (count + 63) >> 6), np.uint64)
    scratch = (numbers[0], numbers[1], numbers[2], sets[0], sets[1])
    found = np.empty(count + 1, np.int32)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    stack = np.empty(programs[2] + 1, np.uint8)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets, out = np.zeros(entry_ptr.size, np.int64), np.empty(START, np.int32)
    n = 0
    for e in range(entry_ptr.size - 1):
        event = (entry_ptr[e + 1], entry_attribute, entry_code)
        for i in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
            row[entry_attribute[i]] = i if multi[entry_attribute[i]] else entry_code[i]
        for d in range(dims.size):
            codes[d] = row[dims[d]]
        k = candidates(count, codes, grid, counts, caches, scratch, found)
        while out.size - n < k:
            out = grow(out)
        last = n
        for i in range(k):
            c = first + np.int64(found[i])
            if is_had(clause_row[c], e, once, had):
                continue
            if decided[found[i]] or satisfies(
                c, row, event, clause_ptr, clause_program, predicates, program_ptr, program_item, presence, stack
            ):
                last = append_row(clause_row[c], e, once, had, out, last)
        for i in range(entry_ptr[e], entry_ptr[e + 1]):
            row[entry_attribute[i]] = MISSING
        n = sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n]
