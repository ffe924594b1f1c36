"""TAMA's counting on the device: every hit adds to a counter of the event and the clause, and the last one finds it.

Counters are found by hashing, in a table per event that is as large as its number of hits requires: no work
depends on the number of clauses. The lowest byte counts hits, the others how many of them are in doubt. A predicate on
a list attribute is in the table, too, once it was hit: further hits of it do not count.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint32, uint64

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.cuda.work import MARKS, NOTHING, UNDECIDED, add_run, keep, own_run
from gpumatch.kernels.tama import BASE, BRICK, CODES, FACTS, HEIGHTS, TOP, WORDS, finest

LIST = 1 << 62  # mark of a run's start: its postings are predicates on lists, not clauses
PREDICATE = 1 << 31  # mark of a number in the table: a predicate, not a clause
SPREAD = 2654435761  # odd, near 2**32 / 1.618: neighbours get slots far from each other


@device
def add_node(node, mark, node_ptr, at, run_start, run_length):
    """Write the run of a node's postings, with a mark, to ``at``, unless that is negative; 1, or 0 if it is empty."""
    first, last = int64(node_ptr[node]), int64(node_ptr[node + 1])
    return add_run(first | mark, last | mark, at, run_start, run_length)


@device
def list_nodes(attribute, code, directory, line, node_ptr, mark, at, run_start, run_length):
    """Runs of postings that a value hits: their number. Written from ``at`` on unless that is negative."""
    d = WORDS * int64(attribute)
    base, facts, top, table = directory[d + BASE], directory[d + FACTS], directory[d + TOP], directory[d + CODES]
    cell = finest(code, int64(attribute), facts >> 32, line)
    heights = facts & HEIGHTS
    n = int64(0)
    if table >= 0:
        n += add_node(table + code, mark, node_ptr, at, run_start, run_length)
    while heights != 0:
        some = heights & 15
        while some != 0:
            height = int64(trailing_zeros(np.uint64(some)))
            some &= some - 1
            node = base + BRICK * (cell >> 3) + (8 >> height) - 1 + ((cell & 7) >> height)
            n += add_node(node, mark, node_ptr, at + n if at >= 0 else at, run_start, run_length)
        base += BRICK * ((top >> 3) + 1)
        top >>= 4
        cell >>= 4
        heights >>= 4
    return n


@kernel("void(i4[::1], i4[::1], i4[::1], b1[::1], i8[::1], i8[::1], i4[::1], u4[::1], i8[::1])")
def count_nodes(entry_event, entry_attribute, entry_code, multi, directory, cell_ptr, cells, node_ptr, counts):
    """How many runs of postings each entry of the events hits."""
    line = (cell_ptr, cells)
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        a, code = entry_attribute[i], int64(entry_code[i])
        counts[i] = list_nodes(a, code, directory, line, node_ptr, int64(0), int64(-1), counts, counts)


@kernel(
    "void(i4[::1], i4[::1], i4[::1], b1[::1], i8[::1], i8[::1], i4[::1], u4[::1], i8[::1], i8[::1], i8[::1], i4[::1])"
)
def fill_nodes(
    entry_event,
    entry_attribute,
    entry_code,
    multi,
    directory,
    cell_ptr,
    cells,
    node_ptr,
    ends,
    run_start,
    run_length,
    run_event,
):
    """Those runs; ``ends`` are the sums of their counts."""
    line = (cell_ptr, cells)
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        a, code = entry_attribute[i], int64(entry_code[i])
        at = int64(0)
        if i > 0:
            at = ends[i - 1]
        mark = int64(LIST) if multi[a] else int64(0)
        n = list_nodes(a, code, directory, line, node_ptr, mark, at, run_start, run_length)
        for k in range(at, at + n):
            run_event[k] = entry_event[i]


@device
def claim(number, base, size, table):
    """The slot of a positive number in an event's table, and whether it is new there."""
    place = int64((((uint64(number) * uint64(SPREAD)) & uint64(0xFFFF_FFFF)) * uint64(size)) >> uint64(32))
    while True:
        before = cuda.atomic.cas(table, base + place, uint32(0), uint32(number))
        if before == 0:
            return place, True
        if before == number:
            return place, False
        place = place + 1 if place + 1 < size else int64(0)


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i8, u4[::1], u1[::1], i4[::1], i8[::1], i8, u4[::1], u4[::1],"
    " i8[::1], i8[::1])"
)
def count_hits(
    first,
    last,
    tile_run,
    slot_ptr,
    run_start,
    run_event,
    first_clause,
    postings,
    needed,
    owner,
    event_slot,
    room,
    table,
    hits,
    found,
    counts,
):
    """Count the hits in slots ``first:last``; keys of the clauses with all hits that they need.

    Event ``e`` has ``room`` entries in the table for each of its slots, which start at ``event_slot[e]``.
    """
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            e = int64(run_event[run])
            base, size = room * event_slot[e], room * (event_slot[e + 1] - event_slot[e])
            start = run_start[run]
            posting = int64(postings[(start & ~LIST) + slot - slot_ptr[run]])
            clause = posting >> 1
            new = True
            if start & LIST:
                _, new = claim((clause + 1) | PREDICATE, base, size, table)
                clause = int64(owner[clause])
            if new:
                place, _ = claim(clause + 1, base, size, table)
                hit = uint32(1 | ((posting & 1) << 8))
                count = cuda.atomic.add(hits, base + place, hit) + hit
                if (count & uint32(0xFF)) == needed[clause]:
                    key = (e << 32) | (UNDECIDED if count >> uint32(8) else 0) | (first_clause + clause)
        keep(key, tile, found, counts, marks)
