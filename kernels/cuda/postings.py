"""Postings by (attribute, level, block) on the device: Scan, PSTBloom, and where Match-Ladder's clauses wait."""

from __future__ import annotations

import numpy as np
from numba import int64, uint32

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.cuda.work import MARKS, NOTHING, UNDECIDED, add_run, keep, own_run
from gpumatch.kernels.postings import ABSENT, BELOW, CLAUSE, LOW16, U1, U16, U32, block_node, in_filter


@device
def list_runs(attribute, code, directory, node_ptr, at, run_start, run_length):
    """Runs of postings that a value reaches, not the empty ones: their number. Written from ``at`` on if not below."""
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
    """How many runs of postings each entry of the events reaches. (All such kernels take what their pair takes.)"""
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


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8, u1[::1], u4[::1], u8[::1], i4[::1], i8[::1],"
    " i8[::1])"
)
def test_postings(
    first, last, tile_run, slot_ptr, run_start, run_event, rows, width, cell_shift, filters, heads, rest, found, counts
):
    """Keys of the postings in slots ``first:last`` whose filters the event passes; behind all of them lies the rest."""
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            q = run_start[run] + slot - slot_ptr[run]
            e = int64(run_event[run])
            if q >= filters.size:
                key = (e << 32) | UNDECIDED | rest[q - filters.size]
            elif passes(filters[q], e * width, rows, cell_shift):
                head = heads[q]
                if passes(np.uint32(head >> U32), e * width, rows, cell_shift):
                    decided = int64(head & BELOW) & UNDECIDED
                    key = (e << 32) | (decided ^ UNDECIDED) | (int64(head & BELOW) & CLAUSE)
        keep(key, tile, found, counts, marks)
