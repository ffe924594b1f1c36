"""Grids of two attributes on the device."""

from __future__ import annotations

from numba import int64, uint32

from gpumatch.kernels.cuda.postings import passes
from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.cuda.work import CLAUSE, MARKS, NOTHING, UNDECIDED, add_run, keep, own_run
from gpumatch.kernels.psthash import RECORD, unpack


@device
def list_cells(i, e, event_last, entries, rows, width, multi, grids, at, run_start, run_length):
    """Cells with postings that entry ``i`` of event ``e`` reaches, of all grids that its attribute owns: their number.

    Their runs are written from ``at`` on unless that is negative.
    """
    entry_attribute, entry_code = entries
    grid_ptr, grid_partner, grid_facts, cell_ptr = grids
    a = entry_attribute[i]
    n = int64(0)
    for g in range(grid_ptr[a], grid_ptr[a + 1]):
        partner = grid_partner[g]
        held = rows[e * width + partner]
        if held < 0:
            continue
        base, shift, other, bits = unpack(grid_facts[g])
        line = base + ((int64(entry_code[i]) >> shift) << bits)
        j = int64(held) if multi[partner] else int64(-1)
        code = int64(entry_code[j]) if multi[partner] else int64(held)
        while True:
            cell = line + (code >> other)
            first, last = int64(cell_ptr[cell]), int64(cell_ptr[cell + 1])
            n += add_run(first, last, at + n if at >= 0 else at, run_start, run_length)
            j += 1
            if j == 0 or j == event_last or entry_attribute[j] != partner:
                break
            code = int64(entry_code[j])
    return n


@kernel("void(i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i8, b1[::1], i8[::1], i4[::1], u8[::1], u4[::1], i8[::1])")
def count_cells(
    entry_ptr,
    entry_event,
    entry_attribute,
    entry_code,
    rows,
    width,
    multi,
    grid_ptr,
    grid_partner,
    grid_facts,
    cell_ptr,
    counts,
):
    """How many cells with postings each entry of the events reaches."""
    grids = (grid_ptr, grid_partner, grid_facts, cell_ptr)
    entries = (entry_attribute, entry_code)
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        e = int64(entry_event[i])
        last = entry_ptr[e + 1]
        counts[i] = list_cells(i, e, last, entries, rows, width, multi, grids, int64(-1), counts, counts)


@kernel(
    "void(i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i8, b1[::1], i8[::1], i4[::1], u8[::1], u4[::1], i8[::1],"
    " i8[::1], i8[::1], i4[::1])"
)
def fill_cells(
    entry_ptr,
    entry_event,
    entry_attribute,
    entry_code,
    rows,
    width,
    multi,
    grid_ptr,
    grid_partner,
    grid_facts,
    cell_ptr,
    ends,
    run_start,
    run_length,
    run_event,
):
    """Runs of postings of those cells; ``ends`` are the sums of their counts."""
    grids = (grid_ptr, grid_partner, grid_facts, cell_ptr)
    entries = (entry_attribute, entry_code)
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        e = int64(entry_event[i])
        at = int64(0)
        if i > 0:
            at = ends[i - 1]
        last = entry_ptr[e + 1]
        n = list_cells(i, e, last, entries, rows, width, multi, grids, at, run_start, run_length)
        for k in range(at, at + n):
            run_event[k] = e


@kernel("void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i8, u1[::1], u4[::1], i8[::1], i8[::1])")
def test_pairs(first, last, tile_run, slot_ptr, run_start, run_event, rows, width, filter_shift, pairs, found, counts):
    """Keys of the postings in slots ``first:last`` both of whose filters the event passes."""
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            q = RECORD * (run_start[run] + slot - slot_ptr[run])
            e = int64(run_event[run])
            start = e * width
            if passes(pairs[q], start, rows, filter_shift) and passes(pairs[q + 1], start, rows, filter_shift):
                head = int64(pairs[q + 2])
                key = (e << 32) | ((head & UNDECIDED) ^ UNDECIDED) | (head & CLAUSE)
        keep(key, tile, found, counts, marks)
