"""The final test of a candidate: its predicates, and its program if it has one."""

from __future__ import annotations

from numba import int64, uint32

from gpumatch.kernels.cuda.target import cuda, kernel
from gpumatch.kernels.cuda.work import CLAUSE, MARKS, NOTHING, UNDECIDED, keep
from gpumatch.kernels.predicates import clause_holds, program_holds


@kernel(
    "void(i8[::1], i8[::1], i4[::1], i4[::1], i4[::1], i8, i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i8[::1],"
    " i8[::1])"
)
def test_predicates(
    keys,
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
    found,
    counts,
):
    """Keep keys that are decided or satisfy their predicates; only those with a program stay undecided."""
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size:
            key = keys[i]
            if key & UNDECIDED:
                e, clause = key >> 32, key & CLAUSE
                row = rows[e * width : (e + 1) * width]
                event = (entry_ptr[e + 1], entry_attribute, entry_code)
                if not clause_holds(clause, row, event, clause_ptr, (predicate, range_lo, range_hi)):
                    key = int64(NOTHING)
                elif clause_program[clause] < 0:
                    key ^= UNDECIDED
        keep(key, tile, found, counts, marks)


@kernel(
    "void(i8[::1], i8[::1], i4[::1], i4[::1], i4[::1], i8, i4[::1], i4[::1], i4[::1], i4[::1], i8[::1], i4[::1],"
    " i4[::1], u1[::1], i8, i8[::1], i8[::1])"
)
def run_programs(
    keys,
    entry_ptr,
    entry_attribute,
    entry_code,
    rows,
    width,
    clause_program,
    predicate,
    range_lo,
    range_hi,
    program_ptr,
    program_item,
    presence,
    stacks,
    depth,
    found,
    counts,
):
    """Keep keys that are decided or satisfy their program. Each thread of the grid has ``depth`` stack entries."""
    marks = cuda.shared.array(MARKS, uint32)
    mine = int64(cuda.grid(1)) * depth
    stack = stacks[mine : mine + depth]
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size:
            key = keys[i]
            if key & UNDECIDED:
                e, program = key >> 32, clause_program[key & CLAUSE]
                row = rows[e * width : (e + 1) * width]
                event = (entry_ptr[e + 1], entry_attribute, entry_code)
                predicates = (predicate, range_lo, range_hi)
                holds = program_holds(program, row, event, predicates, program_ptr, program_item, presence, stack)
                key = key ^ UNDECIDED if holds else int64(NOTHING)
        keep(key, tile, found, counts, marks)
