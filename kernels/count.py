"""Memory and work of the CUDA kernels, counted on the CPU over the same arrays: lists that events reach, and tests.

The device moves memory in sectors of 32 bytes. Counters hold the number of sectors read from an array; a warp that
asks for the same one twice in a row gets it once. Marks say which sectors these are. Threads of a warp wait for each
other, so work of one of them costs them all the same: steps are counted for the slowest.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.encode import DIRECT, FLOAT, GUIDE, bucket_place, float_key
from gpumatch.kernels.postings import LOW16, U1, U16, U32, block_node
from gpumatch.kernels.predicates import predicate_holds, program_holds
from gpumatch.kernels.psthash import unpack
from gpumatch.kernels.rows import START, grow
from gpumatch.kernels.tama import BASE, BRICK, CODES, FACTS, HEIGHTS, TOP, WORDS, finest
from gpumatch.kernels.triangle import cell_at, passing, row_start
from gpumatch.opcodes import HI, KIND, LO, RANGE, WIDTH

SECTOR = 32  # bytes
WARP, BLOCK = 32, 256  # threads
UNDECIDED = np.int64(1 << 31)
CLAUSE = np.int64(UNDECIDED - 1)


@scalar
def touch(marks, first, last):
    """Mark the sectors of the bytes ``first:last`` of an array; returns their number."""
    start, stop = first >> 5, ((last - 1) >> 5) + 1
    for sector in range(start, stop):
        marks[sector] = True
    return stop - start


@scalar
def touch_next(marks, first, before):
    """As ``touch``, for a value within one sector: 0 if the one before was in it. Also returns the sector."""
    sector = first >> 5
    marks[sector] = True
    return np.int64(sector != before), sector


@driver
def encode(attribute, values, single, guide, cuts, buckets, marks, steps):
    """Steps of the search for each value's code, into ``steps``; returns sectors of the guide, of cuts, of buckets."""
    guide_marks, cut_marks, bucket_marks = marks
    sectors = np.zeros(3, np.int64)
    for i in range(values.size):
        a = np.int64(attribute[i])
        g = GUIDE * a
        value = np.float32(values[i]) if single[a] else values[i]
        key = float_key(value) if guide[g + 6] & FLOAT else np.int64(values[i])
        sectors[0] += touch(guide_marks, 8 * g, 8 * (g + GUIDE))
        if guide[g + 1] == 0:
            continue
        bucket = np.int64(bucket_place(key, a, guide))
        sectors[2] += touch(bucket_marks, 4 * bucket, 4 * bucket + 8)
        if guide[g + 6] & DIRECT:
            continue
        lo, hi, before = np.int64(buckets[bucket]), np.int64(buckets[bucket + 1]), np.int64(-1)
        while lo < hi:
            mid = (lo + hi) >> 1
            more, before = touch_next(cut_marks, 8 * (guide[g] + mid), before)
            sectors[1] += more
            steps[i] += 1
            if cuts[guide[g] + mid] <= key:
                lo = mid + 1
            else:
                hi = mid
    return sectors


@driver
def reach_blocks(entries, directory, node_ptr, marks, steps):
    """Runs of postings that entries reach: starts, lengths, events; and sectors of the directory and of nodes.

    ``steps`` gets the number of levels that each entry visits. Entries with a negative attribute are skipped.
    """
    entry_event, entry_attribute, entry_code = entries
    directory_marks, node_marks = marks
    starts, lengths, owners = np.empty(START, np.int64), np.empty(START, np.int64), np.empty(START, np.int32)
    sectors = np.zeros(2, np.int64)
    n = 0
    for i in range(entry_code.size):
        if entry_attribute[i] < 0:
            continue
        d = 2 * np.int64(entry_attribute[i])
        sectors[0] += touch(directory_marks, 8 * d, 8 * d + 16)
        base, facts = np.int64(directory[d]), directory[d + 1]
        mask, levels = facts >> U32, np.int64((facts >> U16) & LOW16)
        leaf = np.int64(entry_code[i]) >> np.int64(facts & LOW16)
        while mask != 0:
            node = block_node(base, levels, np.int64(trailing_zeros(mask)), leaf)
            mask &= mask - U1
            steps[i] += 1
            sectors[1] += touch(node_marks, 8 * node, 8 * node + 16)
            if node_ptr[node + 1] > node_ptr[node]:
                if n == starts.size:
                    starts, lengths, owners = grow(starts), grow(lengths), grow(owners)
                starts[n], lengths[n], owners[n] = node_ptr[node], node_ptr[node + 1] - node_ptr[node], entry_event[i]
                n += 1
    return starts[:n], lengths[:n], owners[:n], sectors


@driver
def reach_cells(entry_ptr, entries, rows, width, multi, grids, marks, probes, steps):
    """Runs of postings in cells of grids, as ``reach_blocks``; sectors of pointers, partners, rows, facts and cells.

    ``probes`` gets the number of grids that each entry asks for, ``steps`` the number of cells that it visits.
    """
    entry_event, entry_attribute, entry_code = entries
    grid_ptr, grid_partner, grid_facts, cell_ptr = grids
    starts, lengths, owners = np.empty(START, np.int64), np.empty(START, np.int64), np.empty(START, np.int32)
    sectors = np.zeros(5, np.int64)
    n = 0
    for i in range(entry_code.size):
        e, a = np.int64(entry_event[i]), np.int64(entry_attribute[i])
        first, last = grid_ptr[a], grid_ptr[a + 1]
        sectors[0] += touch(marks[0], 8 * a, 8 * a + 16)
        if last > first:
            sectors[1] += touch(marks[1], 4 * first, 4 * last)
        before = np.int64(-1)
        for g in range(first, last):
            partner = np.int64(grid_partner[g])
            more, before = touch_next(marks[2], 4 * (e * width + partner), before)
            sectors[2] += more
            probes[i] += 1
            held = np.int64(rows[e * width + partner])
            if held < 0:
                continue
            sectors[3] += touch(marks[3], 8 * g, 8 * g + 8)
            base, shift, other, bits = unpack(grid_facts[g])
            j = held if multi[partner] else np.int64(-1)
            code = np.int64(entry_code[j]) if multi[partner] else held
            while True:
                cell = base + ((np.int64(entry_code[i]) >> shift) << bits) + (code >> other)
                steps[i] += 1
                sectors[4] += touch(marks[4], 4 * cell, 4 * cell + 8)
                start, stop = np.int64(cell_ptr[cell]), np.int64(cell_ptr[cell + 1])
                if stop > start:
                    if n == starts.size:
                        starts, lengths, owners = grow(starts), grow(lengths), grow(owners)
                    starts[n], lengths[n], owners[n] = start, stop - start, e
                    n += 1
                j += 1
                if j == 0 or j == entry_ptr[e + 1] or entry_attribute[j] != partner:
                    break
                code = np.int64(entry_code[j])
    return starts[:n], lengths[:n], owners[:n], sectors


@driver
def reach_nodes(entries, multi, directory, line, node_ptr, list_mark, marks, steps):
    """Runs of TAMA's postings, as ``reach_blocks``; runs of lists have their start marked."""
    entry_event, entry_attribute, entry_code = entries
    directory_marks, cell_marks, node_marks = marks
    starts, lengths, owners = np.empty(START, np.int64), np.empty(START, np.int64), np.empty(START, np.int32)
    sectors = np.zeros(3, np.int64)
    n = 0
    for i in range(entry_code.size):
        a, code = np.int64(entry_attribute[i]), np.int64(entry_code[i])
        d = WORDS * a
        sectors[0] += touch(directory_marks, 8 * d, 8 * (d + WORDS))
        base, facts, top, table = directory[d + BASE], directory[d + FACTS], directory[d + TOP], directory[d + CODES]
        if line[1].size > 0 and line[0][a + 1] > line[0][a]:
            sectors[1] += touch(cell_marks, 4 * (line[0][a] + code), 4 * (line[0][a] + code) + 4)
        cell, heights, before = finest(code, a, facts >> 32, line), facts & HEIGHTS, np.int64(-1)
        brick, height = base, 0
        more = np.int64(table >= 0)
        while more or heights != 0:
            if more:
                node, more = table + code, np.int64(0)
            else:
                if not heights & 1:
                    node = np.int64(-1)
                else:
                    node = brick + BRICK * (cell >> 3) + (8 >> height) - 1 + ((cell & 7) >> height)
                heights >>= 1
                height += 1
                if height == 4:
                    brick += BRICK * ((top >> 3) + 1)
                    top >>= 4
                    cell >>= 4
                    height = 0
                if node < 0:
                    continue
            steps[i] += 1
            another, before = touch_next(node_marks, 4 * node, before)
            sectors[2] += another
            another, before = touch_next(node_marks, 4 * node + 4, before)
            sectors[2] += another
            start, stop = np.int64(node_ptr[node]), np.int64(node_ptr[node + 1])
            if stop > start:
                if n == starts.size:
                    starts, lengths, owners = grow(starts), grow(lengths), grow(owners)
                starts[n], lengths[n], owners[n] = start | (list_mark if multi[a] else 0), stop - start, entry_event[i]
                n += 1
    return starts[:n], lengths[:n], owners[:n], sectors


@driver
def reach_triangle(rows, width, dims, counts, cells, starts, cell_ptr, marks, steps):
    """Runs of clauses in the cells of the best dimension, as ``reach_blocks``: sectors of counts, starts and cells."""
    count_marks, start_marks, cell_marks = marks
    firsts, lengths, owners = np.empty(START, np.int64), np.empty(START, np.int64), np.empty(START, np.int32)
    sectors = np.zeros(3, np.int64)
    n = 0
    for e in range(steps.size):
        best, fewest = 0, np.int64(-1)
        for d in range(dims.size):
            code = np.int64(rows[e * width + dims[d]])
            place = 4 * (counts[0][d] + code + 1)
            sectors[0] += touch(count_marks, place, place + 4)
            found = passing(d, code, counts)
            if fewest < 0 or found < fewest:
                best, fewest = d, found
        v = cell_at(best, rows[e * width + dims[best]], cells, starts)
        sectors[1] += touch(start_marks, 4 * best * cells, 4 * (best + 1) * cells)
        for i in range(v, cells + 1):
            row = np.int64(row_start(best, i, cells))
            end = row + 1 if i == cells else row + v + 1
            sectors[2] += touch(cell_marks, 8 * row, 8 * row + 8) + touch(cell_marks, 8 * end, 8 * end + 8)
            steps[e] += 1
            if cell_ptr[end] > cell_ptr[row]:
                if n == firsts.size:
                    firsts, lengths, owners = grow(firsts), grow(lengths), grow(owners)
                firsts[n], lengths[n], owners[n] = cell_ptr[row], cell_ptr[end] - cell_ptr[row], e
                n += 1
    return firsts[:n], lengths[:n], owners[:n], sectors


@scalar
def read_row(place, stamp, stamps, marks):
    """Sectors read for the code at a position in all rows: none if the block has already read it for the event."""
    sector = place >> 3
    marks[sector] = True
    new = np.int64(stamps[sector] != stamp)
    stamps[sector] = stamp
    return new


@scalar
def test_clause(clause, e, rows, width, entries, clause_ptr, predicates, marks, stamp, stamps, sectors):
    """Test a clause's predicates up to the first that fails: how many were tested, and whether all hold.

    Adds to ``sectors`` of pointers, predicates, ranges and rows.
    """
    ptr_marks, predicate_marks, range_marks, row_marks = marks
    entry_ptr, entry_attribute, entry_code = entries
    predicate = predicates[0]
    row, event = rows[e * width : (e + 1) * width], (entry_ptr[e + 1], entry_attribute, entry_code)
    sectors[0] += touch(ptr_marks, 8 * clause, 8 * clause + 16)
    first, last = WIDTH * clause_ptr[clause], WIDTH * clause_ptr[clause + 1]
    tested, holds = 0, True
    for p in range(first, last, WIDTH):
        tested += 1
        sectors[3] += read_row(e * width + predicate[p], stamp, stamps, row_marks)
        if predicate[p + KIND] != RANGE and predicate[p + HI] > predicate[p + LO]:
            sectors[2] += 2 * touch(range_marks, 4 * predicate[p + LO], 4 * predicate[p + HI])
        if not predicate_holds(p, row, event, predicates):
            holds = False
            break
    if tested > 0:
        sectors[1] += touch(predicate_marks, 4 * first, 4 * (first + WIDTH * tested))
    return tested, holds


@driver
def verify(keys, entries, rows, width, clause_ptr, clause_program, predicates, marks, program_marks, stamps, kept):
    """Keys that are decided or whose predicates all hold, into ``kept``; those with a program stay undecided.

    Returns their number, how many were tested, steps of all warps, tiles and warps that kept any, and sectors of
    pointers, predicates, ranges, rows and programs.
    """
    sectors = np.zeros(5, np.int64)
    n = undecided = steps = tiles = warps = most = any_kept = any_key = 0
    for i in range(keys.size):
        if i % WARP == 0:
            steps += most
            warps += any_key
            most = any_key = 0
        if i % BLOCK == 0:
            tiles += any_kept
            any_kept = 0
        key = keys[i]
        if key & UNDECIDED:
            undecided += 1
            e, clause = key >> 32, key & CLAUSE
            stamp = (np.int64(i // BLOCK) << 20) + (e & 0xF_FFFF)
            tested, holds = test_clause(
                clause, e, rows, width, entries, clause_ptr, predicates, marks, stamp, stamps, sectors
            )
            most = max(most, tested)
            if not holds:
                continue
            sectors[4] += touch(program_marks, 4 * clause, 4 * clause + 4)
            if clause_program[clause] < 0:
                key ^= UNDECIDED
        kept[n] = key
        n += 1
        any_kept = any_key = 1
    return n, undecided, steps + most, tiles + any_kept, warps + any_key, sectors


@driver
def run_programs(keys, entries, rows, width, clause_program, predicates, programs, presence, kept):
    """Keys that are decided or whose programs hold, into ``kept``: their number, and how many items were run."""
    entry_ptr, entry_attribute, entry_code = entries
    program_ptr, program_item, depth = programs
    stack = np.empty(depth + 1, np.uint8)
    n = 0
    items = np.int64(0)
    for i in range(keys.size):
        key = keys[i]
        if key & UNDECIDED:
            e, program = key >> 32, clause_program[key & CLAUSE]
            row, event = rows[e * width : (e + 1) * width], (entry_ptr[e + 1], entry_attribute, entry_code)
            items += program_ptr[program + 1] - program_ptr[program]
            if not program_holds(program, row, event, predicates, program_ptr, program_item, presence, stack):
                continue
            key ^= UNDECIDED
        kept[n] = key
        n += 1
    return n, items


@driver
def name_rows(keys, clause_row, marks, kept):
    """Keys with rows instead of clauses, into ``kept``, without negative rows; their number, and sectors read."""
    n = 0
    sectors = np.int64(0)
    before = np.int64(-1)
    for i in range(keys.size):
        if i % WARP == 0:
            before = np.int64(-1)
        clause = keys[i] & CLAUSE
        more, before = touch_next(marks, 4 * clause, before)
        sectors += more
        if clause_row[clause] >= 0:
            kept[n] = ((keys[i] >> 32) << 32) | clause_row[clause]
            n += 1
    return n, sectors
