"""GEM's triangles on the device: the most selective dimension's cells list clauses, and other bounds thin them.

Caches are of no use here: they save a CPU the reading of cells, which a device reads in parallel.
"""

from __future__ import annotations

from numba import int64, uint32

from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.cuda.work import MARKS, NOTHING, UNDECIDED, add_run, keep, own_run
from gpumatch.kernels.triangle import cell_at, passing, row_start, within


@device
def best_dimension(start, rows, dims, counts):
    """The dimension that lets the fewest clauses pass, for the event whose codes start at ``start``."""
    best = int64(0)
    fewest = passing(0, rows[start + dims[0]], counts)
    for d in range(1, dims.size):
        pass_count = passing(d, rows[start + dims[d]], counts)
        if pass_count < fewest:
            best, fewest = int64(d), pass_count
    return best


@device
def list_cells(start, rows, dims, counts, cells, starts, cell_ptr, at, run_start, run_length):
    """Runs of clauses in the cells that the event touches: their number. Written from ``at`` on unless negative."""
    d = best_dimension(start, rows, dims, counts)
    v = cell_at(d, rows[start + dims[d]], cells, starts)
    n = int64(0)
    for i in range(v, cells + 1):
        row = row_start(d, i, cells)
        end = row + 1 if i == cells else row + v + 1
        n += add_run(cell_ptr[row], cell_ptr[end], at + n if at >= 0 else at, run_start, run_length)
    return n


@kernel("void(i4[::1], i8, i4[::1], i8[::1], i4[::1], i8, i4[::1], i8[::1], i8[::1])")
def count_rows(rows, width, dims, count_ptr, pass_count, cells, starts, cell_ptr, counts):
    """How many rows of cells each event has clauses in."""
    for e in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        passing_counts = (count_ptr, pass_count)
        start = int64(e) * width
        counts[e] = list_cells(start, rows, dims, passing_counts, cells, starts, cell_ptr, int64(-1), counts, counts)


@kernel("void(i4[::1], i8, i4[::1], i8[::1], i4[::1], i8, i4[::1], i8[::1], i8[::1], i8[::1], i8[::1], i4[::1])")
def fill_rows(
    rows, width, dims, count_ptr, pass_count, cells, starts, cell_ptr, ends, run_start, run_length, run_event
):
    """Runs of their clauses; ``ends`` are the sums of their counts."""
    for e in range(cuda.grid(1), ends.size, cuda.gridsize(1)):
        passing_counts = (count_ptr, pass_count)
        start = int64(e) * width
        at = int64(0)
        if e > 0:
            at = ends[e - 1]
        n = list_cells(start, rows, dims, passing_counts, cells, starts, cell_ptr, at, run_start, run_length)
        for k in range(at, at + n):
            run_event[k] = e


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i8, i4[::1], i8, i4[::1], i4[::1], i4[::1], b1[::1], i8[::1],"
    " i8[::1])"
)
def test_bounds(
    first,
    last,
    tile_run,
    slot_ptr,
    run_start,
    run_event,
    first_clause,
    rows,
    width,
    dims,
    cell_sub,
    bounds,
    decided,
    found,
    counts,
):
    """Keys of the clauses in slots ``first:last`` whose bounds contain the event in every dimension."""
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            clause = run_start[run] + slot - slot_ptr[run]
            if dims.size > 0:
                clause = int64(cell_sub[clause])
            e = int64(run_event[run])
            d = 0
            while d < dims.size and within(d * decided.size + clause, rows[e * width + dims[d]], bounds):
                d += 1
            if d == dims.size:
                key = (e << 32) | (first_clause + clause) | (0 if decided[clause] else UNDECIDED)
        keep(key, tile, found, counts, marks)
