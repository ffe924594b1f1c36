"""A-Tree on the device: programs over predicates, a thread for each unit and word of 64 events.

``value`` has ``words`` words for each node: predicates set their events' bits, then units are evaluated level by
level, and clauses last. The words of a unit lie side by side, so that neighbouring threads run the same program.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint32, uint64

from gpumatch.kernels.atree_build import NEGATED, NEST
from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.cuda.target import THREADS, cuda, device, kernel
from gpumatch.kernels.cuda.work import before_me, own_run
from gpumatch.kernels.dag import OR

U0, U1, U6, U63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
ONE, TWO, ALL = np.uint32(1), np.uint32(2), np.uint32(THREADS)
STACK = NEST * THREADS  # groups around the current one, for the threads of a block
GROUP_OR = -1 - OR  # the item that begins a group of alternatives


@kernel(
    "void(i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i8, u8[::1])",
)
def set_leaves(
    tile_run,
    slot_ptr,
    run_start,
    run_entry,
    entry_event,
    entry_code,
    waiting,
    piece_node,
    piece_lo,
    piece_hi,
    words,
    value,
):
    """Set the bits of the events whose entries lie in the pieces that they reach. All words are zero before."""
    last = slot_ptr[slot_ptr.size - 1]
    for tile in range(cuda.blockIdx.x, tile_run.size - 1, cuda.gridDim.x):
        slot = int64(tile) * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        if slot < last:
            entry = run_entry[run]
            piece = waiting[run_start[run] + slot - slot_ptr[run]]
            if piece_lo[piece] <= entry_code[entry] <= piece_hi[piece]:
                e = uint64(entry_event[entry])
                place = int64(piece_node[piece]) * words + int64(e >> U6)
                cuda.atomic.or_(value, place, U1 << (e & U63))


@device
def member(item, w, words, base, value):
    """Word ``w`` of a node, or of a predicate that must not hold: that of its base, without the predicate's own."""
    if item >= 0:
        return value[uint64(uint32(item)) * words + w]
    number = uint64(uint32(NEGATED - item))
    known = value[uint64(uint32(base[number])) * words + w]
    if known != U0:
        known &= ~value[number * words + w]
    return known


@device
def evaluate(first, last, w, words, items, base, value):
    """Word ``w`` of the program ``items[first:last]``.

    The current group is kept in registers, those around it in shared memory: their value so far, and where they
    end, with a bit for alternatives. The whole program counts as a group of one alternative.
    """
    held = cuda.shared.array(STACK, uint64)
    ends = cuda.shared.array(STACK, uint32)
    top = uint32(cuda.threadIdx.x)
    word, either, i, end = U0, True, uint32(0), uint32(last - first)
    while True:
        if i < end:
            item = items[first + i]
            if NEGATED < item < 0:
                held[top], ends[top] = word, uint32((end << ONE) | (1 if either else 0))
                top = uint32(top + ALL)
                either = item == GROUP_OR
                word = U0 if either else ~U0
                end = uint32(i + TWO + uint32(items[first + uint32(i + ONE)]))
                i = uint32(i + TWO)
                continue
            i = uint32(i + ONE)
            found = member(item, w, words, base, value)
        elif top < ALL:
            return word
        else:  # a group is complete
            found = word
            top = uint32(top - ALL)
            word, either, end = held[top], (ends[top] & ONE) != 0, uint32(ends[top] >> ONE)
        if either:
            word |= found
        else:
            word &= found
            if word == U0:  # the rest cannot make it true again
                i = end


@kernel("void(i8, i8, i8, i8, i8[::1], i4[::1], i4[::1], u8[::1])")
def evaluate_nodes(first, last, leaves, words, unit_ptr, items, base, value):
    """Words of the units ``first:last``, none of which uses another; as nodes they are numbered after all leaves."""
    n = uint32(words)
    for i in range(cuda.grid(1), (last - first) * words, cuda.gridsize(1)):
        unit, w = uint64(first) + uint64(i) // n, uint32(uint64(i) % n)
        word = evaluate(uint64(unit_ptr[unit]), uint64(unit_ptr[unit + U1]), w, n, items, base, value)
        value[(uint64(leaves) + unit) * n + w] = word


@kernel("void(i8, i8, i8, i8[::1], i4[::1], i4[::1], u8[::1], u8[::1], i8[::1])")
def evaluate_clauses(first, last, words, unit_ptr, items, base, value, out, counts):
    """Words of the units ``first:last``, and the number of bits in each tile of one word per thread of the block.

    Tiles without any are not written.
    """
    total = cuda.shared.array(1, int32)
    n = uint32(words)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = int64(tile) * cuda.blockDim.x + cuda.threadIdx.x
        word = U0
        if i < (last - first) * words:
            unit = uint64(first) + uint64(i) // n
            begin, end = uint64(unit_ptr[unit]), uint64(unit_ptr[unit + U1])
            word = evaluate(begin, end, uint32(uint64(i) % n), n, items, base, value)
        if cuda.threadIdx.x == 0:
            total[0] = 0
        if cuda.syncthreads_or(int32(word != U0)):  # the same for all threads
            if i < out.size:
                out[i] = word
            if word != U0:
                cuda.atomic.add(total, 0, int32(cuda.popc(word)))
            cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            counts[tile] = total[0]


@kernel("void(u8[::1], i8, i8, i8[::1], i8[::1])")
def list_clauses(out, first_clause, words, ends, keys):
    """Keys of all bits, clause by clause from ``first_clause`` on; nothing is left to decide."""
    scan = cuda.shared.array(THREADS, int32)
    for tile in range(cuda.blockIdx.x, ends.size, cuda.gridDim.x):
        start = int64(0)
        if tile > 0:
            start = ends[tile - 1]
        if ends[tile] == start:  # the same for all threads
            continue
        i = int64(tile) * cuda.blockDim.x + cuda.threadIdx.x
        word = out[i] if i < out.size else U0
        at = start + before_me(int32(cuda.popc(word)), scan)
        clause, event = first_clause + i // words, 64 * (i % words)
        while word != U0:
            keys[at] = ((event + int64(trailing_zeros(word))) << 32) | clause
            at += 1
            word &= word - U1
