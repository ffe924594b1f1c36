"""Postings by (attribute, level, block) on the device: Scan, PSTBloom, and where Match-Ladder's clauses wait."""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint32

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.cuda.work import MARKS, NOTHING, UNDECIDED, add_run, keep, own_run
from gpumatch.kernels.postings import (
    ABSENT,
    BELOW,
    CLAUSE,
    LINE,
    LOW16,
    U1,
    U16,
    U32,
    block_node,
    find_group,
    in_filter,
)


@device
def list_runs(attribute, code, directory, node_ptr, at, run_start, run_length):
    """Runs of postings that a value reaches, without empty ones: their number. Written from ``at`` on unless negative.

    A negative attribute reaches none: it stands for a group that an event does not have.
    """
    if attribute < 0:
        return int64(0)
    d = 2 * int64(attribute)
    base, facts = int64(directory[d]), directory[d + 1]
    mask = facts >> U32
    levels = int64((facts >> U16) & LOW16)
    leaf = int64(code) >> int64(facts & LOW16)
    n = int64(0)
    while mask != 0:
        level = int64(trailing_zeros(mask))
        mask &= mask - U1
        node = block_node(base, levels, level, leaf)
        n += add_run(node_ptr[node], node_ptr[node + 1], at + n if at >= 0 else at, run_start, run_length)
    return n


@kernel("void(i4[::1], i4[::1], i4[::1], u8[::1], i8[::1], i8[::1])")
def count_runs(entry_event, entry_attribute, entry_code, directory, node_ptr, counts):
    """How many runs of postings each entry of the events reaches. (Both kernels of a pair take the same arguments.)"""
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        counts[i] = list_runs(entry_attribute[i], entry_code[i], directory, node_ptr, int64(-1), counts, counts)


@kernel("void(i4[::1], i4[::1], i4[::1], u8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i4[::1])")
def fill_runs(entry_event, entry_attribute, entry_code, directory, node_ptr, ends, run_start, run_length, run_event):
    """Those runs; ``ends`` are the sums of their counts."""
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        at = int64(0)
        if i > 0:
            at = ends[i - 1]
        n = list_runs(entry_attribute[i], entry_code[i], directory, node_ptr, at, run_start, run_length)
        for k in range(at, at + n):
            run_event[k] = entry_event[i]


@device
def passes(filter, start, rows, cell_shift):
    """Does the event whose codes start at ``start`` pass the filter of a posting?"""
    a = int64(filter & np.uint32(0xFFFF))
    cell = np.uint8(ABSENT)
    code = rows[start + a]
    if code >= 0:
        cell = np.uint8(code >> cell_shift[a])
    return in_filter(filter, cell)


@kernel("void(i4[::1], i8, i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], u1[::1])")
def find_groups(rows, width, lines, group_ptr, cuts, item_event, item_attribute, item_code, cells):
    """For each event and line one more entry, whose attribute is a group, numbered after attributes, and its cell."""
    count = lines.size // LINE
    for i in range(cuda.grid(1), item_code.size, cuda.gridsize(1)):
        e = int64(uint32(i) // uint32(count))  # in 64 bits this would take much longer
        group, code, cell = find_group(i - e * count, e * width, rows, lines, group_ptr, cuts)
        item_event[i] = int32(e)
        item_attribute[i] = int32(width + group) if group >= 0 else int32(-1)
        item_code[i] = int32(code)
        cells[i] = cell


@device
def passes_in_line(filter, e, rows, width, cell_shift, lines, cells):
    """As ``passes``, but attributes of filters may also be lines, of which there are ``lines``."""
    line = int64(filter & np.uint32(0xFFFF)) - width
    if lines > 0 and line >= 0:
        return in_filter(filter, cells[e * lines + line])
    return passes(filter, e * width, rows, cell_shift)


@device
def test_slots(
    slots, tile_run, slot_ptr, run_start, run_event, rows, width, cell_shift, lines, cells, lists, found, counts, marks
):
    """Keys of the postings in ``slots`` whose filters the event passes; the rest follows all of them."""
    first, last = slots
    filters, heads, rest = lists
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            q = run_start[run] + slot - slot_ptr[run]
            e = int64(run_event[run])
            if q >= filters.size:
                key = (e << 32) | UNDECIDED | rest[q - filters.size]
            elif passes_in_line(filters[q], e, rows, width, cell_shift, lines, cells):
                head = heads[q]
                if passes_in_line(np.uint32(head >> U32), e, rows, width, cell_shift, lines, cells):
                    decided = int64(head & BELOW) & UNDECIDED
                    key = (e << 32) | (decided ^ UNDECIDED) | (int64(head & BELOW) & CLAUSE)
        keep(key, tile, found, counts, marks)


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8, u1[::1], u4[::1], u8[::1], i4[::1], i8[::1],"
    " i8[::1])"
)
def test_postings(
    first, last, tile_run, slot_ptr, run_start, run_event, rows, width, cell_shift, filters, heads, rest, found, counts
):
    """Keys of the postings in slots ``first:last`` that pass, and of the rest, if there are no lines."""
    marks = cuda.shared.array(MARKS, uint32)
    runs = (tile_run, slot_ptr, run_start, run_event)
    lists = (filters, heads, rest)
    test_slots((first, last), *runs, rows, width, cell_shift, 0, cell_shift, lists, found, counts, marks)


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8, u1[::1], u4[::1], u8[::1], i4[::1], i8, u1[::1],"
    " i8[::1], i8[::1])"
)
def test_grouped(
    first, last, tile_run, slot_ptr, run_start, run_event, rows, width, cell_shift, filters, heads, rest, lines, cells,
    found, counts,
):  # fmt: skip
    """The same if there are lines, with the cells of events in them."""
    marks = cuda.shared.array(MARKS, uint32)
    runs = (tile_run, slot_ptr, run_start, run_event)
    lists = (filters, heads, rest)
    test_slots((first, last), *runs, rows, width, cell_shift, lines, cells, lists, found, counts, marks)
