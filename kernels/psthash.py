"""Grids of two attributes: clauses found by a pair of their predicates, and matching of events through them.

A grid cuts the code lines of its two attributes, the owner and the partner, into blocks of equal size; a cell is a pair
of blocks, numbered row by row. A clause hangs in the cells that its two access predicates touch; an event has one cell
in each grid of two attributes that it has. A posting is three numbers: two more predicates of the clause, rounded
outward to 8-bit cells as in ``postings``, and the clause.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.postings import ABSENT, ANYTHING, COMPLETE, FILTERED, clear, make_filter, passes, spread, verify
from gpumatch.kernels.rows import START, grow, sort_unique
from gpumatch.opcodes import ANY, HI, KIND, LO, RANGE, SET, WIDTH

RECORD = 3  # numbers per posting
STEP = 2  # levels by which blocks get coarser: few sizes of blocks mean few grids


@driver
def find_pairs(clause_ptr, predicate, multi, clauses, one, two):
    """Positions of the first two predicates of each clause that can hang in a grid; -1 if there are fewer.

    They are on different attributes, at most one of them a list: an event with two long lists would have a cell for
    each pair of their values.
    """
    for i in range(clauses.size):
        c = clauses[i]
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            a = predicate[p]
            if predicate[p + KIND] > ANY:
                continue
            if one[i] < 0:
                one[i] = p
            elif a != predicate[one[i]] and not (multi[a] and multi[predicate[one[i]]]):
                two[i] = p
                break


@scalar
def touched(p, predicates, shift, blocks):
    """Blocks of ``2**shift`` codes that the predicate touches, ascending; as many as there is room for, and one more.

    Returns their number, which exceeds ``blocks.size`` if there was no room for all.
    """
    predicate, range_lo, range_hi = predicates
    is_range = predicate[p + KIND] == RANGE
    first, last = (0, 1) if is_range else (predicate[p + LO], predicate[p + HI])
    n = 0
    latest = -1
    for r in range(first, last):
        lo, hi = (predicate[p + LO], predicate[p + HI]) if is_range else (range_lo[r], range_hi[r])
        if hi < lo:
            continue
        for block in range(max(lo >> shift, latest + 1), (hi >> shift) + 1):
            if n == blocks.size:
                return n + 1
            blocks[n] = block
            n += 1
            latest = block
    return n


@driver
def choose_blocks(one, two, predicates, depth, bits, limit, shape, count):
    """How finely each clause's two predicates are cut, so that they touch at most ``limit`` cells; and how many.

    ``bits`` are those of the finest block numbers, side by side for both; the coarser ones that fit go to ``shape``.
    """
    predicate = predicates[0]
    blocks = np.empty(limit, np.int64)
    for i in range(one.size):
        p, q = one[i], two[i]
        fine, other = np.int64(bits[2 * i]), np.int64(bits[2 * i + 1])
        while True:
            n = touched(p, predicates, np.int64(depth[predicate[p]]) - fine, blocks)
            m = touched(q, predicates, np.int64(depth[predicate[q]]) - other, blocks)
            if n * m <= limit:
                break
            if n >= m:
                fine = max(fine - STEP, 0)
            else:
                other = max(other - STEP, 0)
        shape[2 * i] = fine
        shape[2 * i + 1] = other
        count[i] = n * m


@scalar
def unpack(facts):
    """First cell of a grid, shift of the owner's codes, shift of the partner's, bits of the partner's blocks."""
    facts = np.int64(facts)
    return facts >> 24, (facts >> 16) & 0xFF, (facts >> 8) & 0xFF, facts & 0xFF


@driver
def count_cells(places, predicates, grid_facts, limit, first, cell_count):
    """Adds to ``cell_count[cell + 1]`` the number of postings of each cell; a clause's first cell goes to ``first``."""
    grid, one, two = places
    rows, columns = np.empty(limit, np.int64), np.empty(limit, np.int64)
    for i in range(grid.size):
        base, shift, other, bits = unpack(grid_facts[grid[i]])
        n = touched(one[i], predicates, shift, rows)
        m = touched(two[i], predicates, other, columns)
        first[i] = base
        for j in range(n * m):
            cell = base + (rows[j // m] << bits) + columns[j % m]
            first[i] = cell if j == 0 else first[i]
            cell_count[cell + 1] += 1


@scalar
def make_posting(clause, one, two, exact, clause_ptr, has_program, predicates, multi, filter_shift):
    """Filters and head of a clause's posting; ``exact``: which of its two access predicates the cells decide.

    Other predicates are filters first, since the cells have tested the access predicates roughly.
    """
    predicate = predicates[0]
    filters = (ANYTHING, ANYTHING)
    used = 0
    undecided = 0
    for turn in range(2):
        for p in range(WIDTH * clause_ptr[clause], WIDTH * clause_ptr[clause + 1], WIDTH):
            a = predicate[p]
            access = p == one or p == two
            if access != (turn == 1) or (p == one and exact[0]) or (p == two and exact[1]):
                continue
            decided = False
            if predicate[p + KIND] <= SET and not multi[a] and a < FILTERED and used < 2:
                made, decided = make_filter(p, predicates, filter_shift)
                filters = (made, filters[1]) if used == 0 else (filters[0], made)
                used += 1
            undecided += not decided
    head = np.uint32(clause)
    if undecided == 0 and not has_program:
        head |= np.uint32(COMPLETE)
    return filters[0], filters[1], head


@driver
def fill_cells(start, places, clauses, predicates, multi, filter_shift, grid_facts, limit, cell_next, out):
    """Write the postings of clauses from ``start`` on; ``cell_next`` is where each cell's next one goes."""
    grid, one, two = places
    clause_ptr, clause_program = clauses
    rows, columns = np.empty(limit, np.int64), np.empty(limit, np.int64)
    for i in range(grid.size):
        c = start + i
        base, shift, other, bits = unpack(grid_facts[grid[i]])
        n = touched(one[i], predicates, shift, rows)
        m = touched(two[i], predicates, other, columns)
        exact = (shift == 0, other == 0)
        filter, second, head = make_posting(
            c, one[i], two[i], exact, clause_ptr, clause_program[c] >= 0, predicates, multi, filter_shift
        )
        for j in range(n * m):
            cell = base + (rows[j // m] << bits) + columns[j % m]
            at = RECORD * np.int64(cell_next[cell])
            out[at] = filter
            out[at + 1] = second
            out[at + 2] = head
            cell_next[cell] += 1


@maker
def reach_cells(events, e, row, multi, grids, hits, cells):
    """Cells of event ``e`` in all grids of two attributes that it has: the buffer, and their number."""
    entry_ptr, entry_attribute, entry_code = events
    grid_ptr, grid_partner, grid_facts, cell_ptr = grids
    n = 0
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        a = entry_attribute[i]
        k = 0
        for g in range(grid_ptr[a], grid_ptr[a + 1]):  # without a branch, which would be unpredictable
            hits[k] = g
            k += row[grid_partner[g]] >= 0
        for h in range(k):
            base, shift, other, bits = unpack(grid_facts[hits[h]])
            line = base + ((np.int64(entry_code[i]) >> shift) << bits)
            b = grid_partner[hits[h]]
            j = row[b] if multi[b] else -1
            code = entry_code[j] if multi[b] else row[b]
            while True:
                if n == cells.size:
                    cells = grow(cells)
                cells[n] = line + (np.int64(code) >> other)
                prefetch(cell_ptr, cells[n])
                n += 1
                j += 1
                if j == 0 or j == entry_ptr[e + 1] or entry_attribute[j] != b:
                    break
                code = entry_code[j]
    return cells, n


@maker
def collect(cells, n, cell_ptr, postings, cell, found):
    """Heads of the postings in these cells whose filters the event passes: the buffer, and their number."""
    total = 0
    for i in range(n):
        first, last = np.int64(cell_ptr[cells[i]]), np.int64(cell_ptr[cells[i] + 1])
        prefetch(postings, RECORD * first)
        prefetch(postings, max(RECORD * last - 1, 0))
        total += last - first
    while found.size < total:
        found = grow(found)
    k = 0
    for i in range(n):
        first, last = np.int64(cell_ptr[cells[i]]), np.int64(cell_ptr[cells[i] + 1])
        for q in range(RECORD * first, RECORD * last, RECORD):
            found[k] = postings[q + 2]
            k += passes(postings[q], cell) & passes(postings[q + 1], cell)
    return found, k


@driver
def match_pairs(events, n_rows, once, attributes, grids, postings, clauses, predicates, programs):
    """Rows that events satisfy by clauses in grids; as ``match_postings``."""
    entry_ptr = events[0]
    multi, presence, filter_shift = attributes
    row = np.full(multi.size, -1, np.int32)
    cell = np.full(multi.size, ABSENT, np.uint8)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    stack = np.empty(programs[2] + 1, np.uint8)
    rest = np.zeros(0, np.int32)  # clauses outside grids are not handled here
    found = np.empty(START, np.int64)
    cells = np.empty(START, np.int64)
    hits = np.empty(grids[1].size + 1, np.int64)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets = np.zeros(entry_ptr.size, np.int64)
    out = np.empty(max(START, 4 * entry_ptr.size), np.int32)
    n = 0
    for e in range(entry_ptr.size - 1):
        spread(events, e, multi, filter_shift, row, cell)
        cells, k = reach_cells(events, e, row, multi, grids, hits, cells)
        found, k = collect(cells, k, grids[3], postings, cell, found)
        while out.size - n < k:
            out = grow(out)
        last = verify(events, e, once, had, found, k, rest, row, clauses, predicates, programs, presence, stack, out, n)
        clear(events, e, row, cell)
        n = sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n]
