"""Memory and work of the CUDA kernels that test the slots of runs, counted on the CPU over the same arrays.

Each driver goes through the slots in their order, 32 to a warp and 256 to a block, finds the keys that the kernel
finds, and counts as ``count`` says. ``runs`` are starts, lengths and events.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.count import BLOCK, UNDECIDED, WARP, read_row, test_clause, touch, touch_next
from gpumatch.kernels.postings import ABSENT, BELOW, CLAUSE, LINE, U32, find_group, in_filter
from gpumatch.kernels.psthash import RECORD
from gpumatch.kernels.rows import START, grow
from gpumatch.kernels.triangle import within

LIST = np.int64(1 << 62)  # mark of a run's start: its postings are predicates on lists
PREDICATE = np.int64(1 << 31)  # mark of a number in an event's table: that of a predicate, not of a clause
SPREAD = np.uint64(0x9E37_79B1)
LOW32 = np.uint64(0xFFFF_FFFF)


@scalar
def cell_of(filter, e, rows, width, cell_shift):
    """The event's cell in the attribute of a filter, and the attribute."""
    a = np.int64(filter & np.uint32(0xFFFF))
    code = rows[e * width + a]
    return (np.uint8(code >> cell_shift[a]) if code >= 0 else np.uint8(ABSENT)), a


@scalar
def read_cell(filter, e, rows, width, cell_shift, lines, stamp, stamps, marks, sectors):
    """The event's cell in the attribute or line of a filter; adds to the sectors of rows and of cells in lines."""
    count, cells = lines
    line = np.int64(filter & np.uint32(0xFFFF)) - width
    if line >= 0:
        place = e * count + line
        sectors[4] += read_row(place >> 2, stamp, stamps[1], marks[4])  # these are bytes
        return cells[place]
    cell, a = cell_of(filter, e, rows, width, cell_shift)
    sectors[3] += read_row(e * width + a, stamp, stamps[0], marks[3])
    return cell


@scalar
def stamp_of(slot, e):
    """A number for a block and an event, to tell their reads from others."""
    return (np.int64(slot // BLOCK) << 20) + (e & 0xF_FFFF)


@driver
def find_groups(rows, width, compounds, marks, steps, items, cells):
    """Entries and cells of events in lines, into ``items`` and ``cells``; returns sectors of rows, pointers and cuts.

    ``steps`` gets the cuts that each item looks at.
    """
    lines, group_ptr, cuts = compounds
    item_event, item_attribute, item_code = items
    sectors, before = np.zeros(3, np.int64), np.full(2, -1, np.int64)
    count = lines.size // LINE
    for i in range(cells.size):
        if i % WARP == 0:
            before[:] = -1
        e, line = i // count, i % count
        group, code, cells[i] = find_group(line, e * width, rows, lines, group_ptr, cuts)
        item_event[i], item_attribute[i], item_code[i] = e, width + group if group >= 0 else -1, code
        for k in range(2):
            more, before[k] = touch_next(marks[0], 4 * (e * width + lines[LINE * line + k]), before[k])
            sectors[0] += more
        owner = rows[e * width + lines[LINE * line]]
        partner = rows[e * width + lines[LINE * line + 1]]
        if owner >= 0 and partner >= 0:
            at = lines[LINE * line + 2] + np.int64(owner)
            sectors[1] += touch(marks[1], 4 * at, 4 * at + 8)
            low, high = np.int64(group_ptr[at]), np.int64(group_ptr[at + 1])
            while high - low > 1:
                middle = (low + high) >> 1
                sectors[2] += touch(marks[2], 4 * middle, 4 * middle + 4)
                steps[i] += 1
                low, high = (middle, high) if cuts[middle] <= partner else (low, middle)
    return sectors


@driver
def test_postings(runs, rows, width, cell_shift, lines, postings, marks, stamps):
    """Keys of postings that pass both filters, and of the rest. ``lines``: their number, and cells of events in them.

    Returns them, warps that read a head, tiles and warps that keep any, and sectors of filters, heads, rest, rows and
    cells in lines.
    """
    starts, lengths, owners = runs
    filters, heads, rest = postings
    keys = np.empty(START, np.int64)
    sectors = np.zeros(5, np.int64)
    n = slot = second = tiles = warps = any_second = any_kept = any_key = 0
    before, before_head, before_rest = np.int64(-1), np.int64(-1), np.int64(-1)
    for r in range(starts.size):
        e = np.int64(owners[r])
        for q in range(starts[r], starts[r] + lengths[r]):
            if slot % WARP == 0:
                warps += any_key
                any_key = 0
                second += any_second
                any_second = 0
                before, before_head, before_rest = np.int64(-1), np.int64(-1), np.int64(-1)
            if slot % BLOCK == 0:
                tiles += any_kept
                any_kept = 0
            stamp = stamp_of(slot, e)
            slot += 1
            if q >= filters.size:
                more, before_rest = touch_next(marks[2], 4 * (q - filters.size), before_rest)
                sectors[2] += more
                key = (e << 32) | UNDECIDED | rest[q - filters.size]
            else:
                more, before = touch_next(marks[0], 4 * q, before)
                sectors[0] += more
                cell = read_cell(filters[q], e, rows, width, cell_shift, lines, stamp, stamps, marks, sectors)
                if not in_filter(filters[q], cell):
                    continue
                any_second = 1
                more, before_head = touch_next(marks[1], 8 * q, before_head)
                sectors[1] += more
                head = heads[q]
                other = np.uint32(head >> U32)
                cell = read_cell(other, e, rows, width, cell_shift, lines, stamp, stamps, marks, sectors)
                if not in_filter(other, cell):
                    continue
                low = np.int64(head & BELOW)
                key = (e << 32) | ((low & UNDECIDED) ^ UNDECIDED) | (low & CLAUSE)
            if n == keys.size:
                keys = grow(keys)
            keys[n] = key
            n += 1
            any_kept = any_key = 1
    return keys[:n], second + any_second, tiles + any_kept, warps + any_key, sectors


@driver
def test_pairs(runs, rows, width, filter_shift, pairs, marks, stamps):
    """Keys of postings in grids that pass both filters.

    Returns them, warps that test a second filter, tiles and warps that keep any, and sectors of postings and rows.
    """
    starts, lengths, owners = runs
    keys = np.empty(START, np.int64)
    sectors = np.zeros(2, np.int64)
    n = slot = second = tiles = warps = any_second = any_kept = any_key = 0
    before = np.int64(-1)
    for r in range(starts.size):
        e = np.int64(owners[r])
        for q in range(RECORD * starts[r], RECORD * (starts[r] + lengths[r]), RECORD):
            if slot % WARP == 0:
                warps += any_key
                any_key = 0
                second += any_second
                any_second = 0
                before = np.int64(-1)
            if slot % BLOCK == 0:
                tiles += any_kept
                any_kept = 0
            stamp = stamp_of(slot, e)
            slot += 1
            for k in range(2):
                if k == 1:
                    any_second = 1
                more, before = touch_next(marks[0], 4 * (q + k), before)
                sectors[0] += more
                cell, a = cell_of(pairs[q + k], e, rows, width, filter_shift)
                sectors[1] += read_row(e * width + a, stamp, stamps, marks[1])
                passed = in_filter(pairs[q + k], cell)
                if not passed:
                    break
            if not passed:
                continue
            more, before = touch_next(marks[0], 4 * (q + 2), before)
            sectors[0] += more
            if n == keys.size:
                keys = grow(keys)
            head = np.int64(pairs[q + 2])
            keys[n] = (e << 32) | ((head & UNDECIDED) ^ UNDECIDED) | (head & CLAUSE)
            n += 1
            any_kept = any_key = 1
    return keys[:n], second + any_second, tiles + any_kept, warps + any_key, sectors


@driver
def test_waiting(runs, entries, rows, width, clause_ptr, clause_program, predicates, lists, list_marks, marks, stamps):
    """Keys of waiting clauses whose predicates all hold.

    Returns them, predicates tested, steps of all warps, tiles and warps that keep any, and sectors of the list, the
    rest and programs, then of pointers, predicates, ranges and rows.
    """
    starts, lengths, owners = runs
    waiting, rest = lists
    keys = np.empty(START, np.int64)
    sectors, more_sectors = np.zeros(3, np.int64), np.zeros(4, np.int64)
    n = slot = tests = steps = tiles = warps = most = any_kept = any_key = 0
    before, before_rest = np.int64(-1), np.int64(-1)
    for r in range(starts.size):
        e = np.int64(owners[r])
        for q in range(starts[r], starts[r] + lengths[r]):
            if slot % WARP == 0:
                warps += any_key
                any_key = 0
                steps += most
                most = 0
                before, before_rest = np.int64(-1), np.int64(-1)
            if slot % BLOCK == 0:
                tiles += any_kept
                any_kept = 0
            stamp = stamp_of(slot, e)
            slot += 1
            if q < waiting.size:
                clause = np.int64(waiting[q])
                more, before = touch_next(list_marks[0], 4 * q, before)
                sectors[0] += more
            else:
                clause = np.int64(rest[q - waiting.size])
                more, before_rest = touch_next(list_marks[1], 4 * (q - waiting.size), before_rest)
                sectors[1] += more
            tested, holds = test_clause(
                clause, e, rows, width, entries, clause_ptr, predicates, marks, stamp, stamps, more_sectors
            )
            tests += tested
            most = max(most, tested)
            if holds:
                sectors[2] += touch(list_marks[2], 4 * clause, 4 * clause + 4)
                if n == keys.size:
                    keys = grow(keys)
                keys[n] = (e << 32) | clause | (UNDECIDED if clause_program[clause] >= 0 else 0)
                n += 1
                any_kept = any_key = 1
    return keys[:n], tests, steps + most, tiles + any_kept, warps + any_key, np.concatenate((sectors, more_sectors))


@scalar
def claim(number, base, size, table, marks):
    """The slot of a number in an event's table, whether it is new there, and how many slots were probed."""
    place = np.int64((((np.uint64(number) * SPREAD) & LOW32) * np.uint64(size)) >> np.uint64(32))
    asked = 1
    while True:
        marks[(base + place) >> 3] = True
        before = table[base + place]
        if before == 0:
            table[base + place] = number
            return place, True, asked
        if before == number:
            return place, False, asked
        place = place + 1 if place + 1 < size else np.int64(0)
        asked += 1


@driver
def count_hits(runs, event_slot, first_clause, room, postings, needed, owner, marks):
    """Keys of clauses with all hits that they need, from a table of hits for each event, as the device keeps it.

    Returns them, atomic operations, steps of all warps, tiles and warps that keep any, and sectors of postings, of
    needed hits, of owners, and of tables.
    """
    starts, lengths, owners = runs
    keys = np.empty(START, np.int64)
    sectors = np.zeros(4, np.int64)
    places = room * event_slot[-1]
    table, hits = np.zeros(places, np.uint32), np.zeros(places, np.uint32)
    n = slot = atomics = steps = tiles = warps = most = any_kept = any_key = 0
    before = np.int64(-1)
    for r in range(starts.size):
        e = np.int64(owners[r])
        base, size = room * event_slot[e], room * (event_slot[e + 1] - event_slot[e])
        first, lists = starts[r] & ~LIST, starts[r] & LIST
        for q in range(first, first + lengths[r]):
            if slot % WARP == 0:
                warps += any_key
                any_key = 0
                steps += most
                most = 0
                before = np.int64(-1)
            if slot % BLOCK == 0:
                tiles += any_kept
                any_kept = 0
            slot += 1
            more, before = touch_next(marks[0], 4 * q, before)
            sectors[0] += more
            posting = np.int64(postings[q])
            clause, asked, new = posting >> 1, 0, True
            if lists:
                _, new, asked = claim((clause + 1) | PREDICATE, base, size, table, marks[3])
                sectors[2] += touch(marks[2], 4 * clause, 4 * clause + 4)
                clause = np.int64(owner[clause])
            if new:
                place, _, probes = claim(clause + 1, base, size, table, marks[3])
                asked += probes + 1
                marks[4][(base + place) >> 3] = True
                hits[base + place] += np.uint32(1 | ((posting & 1) << 8))
                sectors[1] += touch(marks[1], clause, clause + 1)
                count = hits[base + place]
                if count & np.uint32(0xFF) == needed[clause]:
                    if n == keys.size:
                        keys = grow(keys)
                    keys[n] = (e << 32) | (UNDECIDED if count >> np.uint32(8) else 0) | (first_clause + clause)
                    n += 1
                    any_kept = any_key = 1
            atomics += asked
            sectors[3] += asked
            most = max(most, asked)
    return keys[:n], atomics, steps + most, tiles + any_kept, warps + any_key, sectors


@driver
def test_bounds(runs, first_clause, rows, width, dims, cell_sub, bounds, decided, marks, stamps):
    """Keys of clauses whose bounds contain the event in every dimension.

    Returns them, steps of all warps, tiles and warps that keep any, and sectors of clauses, bounds, ``decided`` and
    rows.
    """
    starts, lengths, owners = runs
    keys = np.empty(START, np.int64)
    sectors = np.zeros(4, np.int64)
    n = slot = steps = tiles = warps = most = any_kept = any_key = 0
    before = np.int64(-1)
    for r in range(starts.size):
        e = np.int64(owners[r])
        for q in range(starts[r], starts[r] + lengths[r]):
            if slot % WARP == 0:
                warps += any_key
                any_key = 0
                steps += most
                most = 0
                before = np.int64(-1)
            if slot % BLOCK == 0:
                tiles += any_kept
                any_kept = 0
            stamp = stamp_of(slot, e)
            slot += 1
            clause = np.int64(q)
            if dims.size > 0:
                more, before = touch_next(marks[0], 4 * q, before)
                sectors[0] += more
                clause = np.int64(cell_sub[q])
            d = 0
            while d < dims.size:
                at = d * decided.size + clause
                sectors[3] += read_row(e * width + dims[d], stamp, stamps, marks[3])
                sectors[1] += touch(marks[1], 8 * at, 8 * at + 8)
                if not within(at, rows[e * width + dims[d]], bounds):
                    break
                d += 1
            most = max(most, min(d + 1, dims.size))
            if d == dims.size:
                sectors[2] += touch(marks[2], clause, clause + 1)
                if n == keys.size:
                    keys = grow(keys)
                keys[n] = (e << 32) | (first_clause + clause) | (0 if decided[clause] else UNDECIDED)
                n += 1
                any_kept = any_key = 1
    return keys[:n], steps + most, tiles + any_kept, warps + any_key, sectors
