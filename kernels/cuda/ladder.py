"""Match-Ladder on the device: clauses climb as long as predicates hold. They wait as in ``postings``."""

from __future__ import annotations

from numba import int32, int64, uint32

from gpumatch.kernels.cuda.target import cuda, kernel
from gpumatch.kernels.cuda.work import MARKS, NOTHING, UNDECIDED, keep, own_run
from gpumatch.kernels.ladder import climb


@kernel(
    "void(i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i8[::1], i4[::1], i4[::1], i4[::1], i8, i8[::1], i4[::1],"
    " i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i8[::1], i8[::1], i8[::1])"
)
def test_waiting(
    first,
    last,
    tile_run,
    slot_ptr,
    run_start,
    run_event,
    entry_ptr,
    entry_attribute,
    entry_code,
    rows,
    width,
    clause_ptr,
    clause_program,
    predicate,
    range_lo,
    range_hi,
    waiting,
    rest,
    tests,
    found,
    counts,
):
    """Keys of the clauses in slots ``first:last`` whose predicates all hold; adds to ``tests`` how many were tested."""
    marks = cuda.shared.array(MARKS, uint32)
    total = cuda.shared.array(1, int32)
    tested = int32(0)
    if cuda.threadIdx.x == 0:
        total[0] = 0
    cuda.syncthreads()
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        key = int64(NOTHING)
        if slot < last:
            q = run_start[run] + slot - slot_ptr[run]
            e = int64(run_event[run])
            clause = int64(waiting[q] if q < waiting.size else rest[q - waiting.size])
            row = rows[e * width : (e + 1) * width]
            event = (entry_ptr[e + 1], entry_attribute, entry_code)
            steps = climb(clause, row, event, clause_ptr, (predicate, range_lo, range_hi))
            length = clause_ptr[clause + 1] - clause_ptr[clause]
            tested = int32(tested + min(steps + 1, length))
            if steps == length:
                key = (e << 32) | clause | (UNDECIDED if clause_program[clause] >= 0 else 0)
        keep(key, tile, found, counts, marks)
    cuda.atomic.add(total, 0, tested)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(tests, 0, int64(total[0]))
