"""GEM's bitsets on the device.

A block loads a few words of one tile, for all cells, into shared memory, and passes many events over them: each
thread ANDs a word of its event's cells, the rarest first, and stops at zero. The remaining clauses are listed, and
compared by their bounds as on the CPU.
"""

from __future__ import annotations

from numba import int32, int64, uint32, uint64

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.cuda.target import THREADS, cuda, device, kernel
from gpumatch.kernels.cuda.work import CLAUSE, MARKS, NOTHING, UNDECIDED, before_me, keep
from gpumatch.kernels.gem import TOPS, U1, U6, U63, WORDS, check, locate

LOG_WORDS = 6  # WORDS is 1 << LOG_WORDS
STAGED = 4096  # words of shared memory: 32 KB, so that two blocks fit on the smallest devices


@kernel(
    "void(i8[::1], i4[::1], i4[::1], i4[::1], i8[::1], u1[::1], i8[::1], u1[::1], b1[::1], u1[::1], i8[::1],"
    " u4[:, ::1], u8[:, ::1])"
)
def locate_events(
    entry_ptr,
    entry_attribute,
    entry_code,
    dim_of,
    cell_ptr,
    cell_table,
    table_ptr,
    table_shift,
    lane_exact,
    lane_shift,
    count,
    places,
    lanes,
):
    """The cells of every event, the rarest first, and its lanes."""
    events = (entry_ptr, entry_attribute, entry_code)
    for e in range(cuda.grid(1), entry_ptr.size - 1, cuda.gridsize(1)):
        dims, cells, lanes_of = (dim_of, cell_ptr), (cell_table, table_ptr, table_shift), (lane_exact, lane_shift)
        locate(events, e, dims, cells, lanes_of, count, places[e], lanes[e])


@device
def stage(bits, row, cells, log, first, staged, at):
    """Load ``1 << log`` words of all cells from ``row`` on, starting at word ``first`` of each, to ``at``."""
    for i in range(cuda.threadIdx.x, cells << log, cuda.blockDim.x):
        staged[at + i] = bits[(row + (i >> log)) * WORDS + first + (i & ((1 << log) - 1))]


@device
def and_cells(first, last, places, at, log, staged):
    """AND the word ``at`` of the cells ``places[first:last]`` until nothing is left. Each has ``1 << log`` words.

    Places are unsigned: for others numba checks whether they count from the end.
    """
    word = ~uint64(0)
    while first < last and word != 0:
        word &= staged[at + (uint64(places[first]) << log)]
        first += uint64(1)
    return word


@kernel("void(i8, i8, i4, i4, i4, i4, i4, u4[::1], u8[::1], u8[::1])")
def sift(first_tile, tiles, cells, log, share, events, dims, places, bits, out):
    """Clauses that touch all cells of each event, in the tiles from ``first_tile`` on: words by event, tile and word.

    A block takes ``1 << log`` words of a tile and ``share`` events. If these words of all cells do not fit in shared
    memory, they are read in place.
    """
    staged = cuda.shared.array(STAGED, uint64)
    fits = (cells << log) <= STAGED
    groups, shares = WORDS >> log, (events + share - 1) // share
    for block in range(cuda.blockIdx.x, tiles * groups * shares, cuda.gridDim.x):
        part = block // shares  # which words of the tiles
        tile, group = part // groups, int32(part % groups) << log
        row = (first_tile + tile) * cells
        cuda.syncthreads()  # the words of the previous round may still be read
        if fits:
            stage(bits, row, cells, log, group, staged, 0)
        cuda.syncthreads()
        start = int32(block % shares) * share
        for i in range(cuda.threadIdx.x, min(share, events - start) << log, cuda.blockDim.x):
            e, w = start + (i >> log), i & ((1 << log) - 1)
            own, end = uint64(e) * uint64(dims), (uint64(e) + uint64(1)) * uint64(dims)
            if fits:
                word = and_cells(own, end, places, uint64(w), uint64(log), staged)
            else:
                word = and_cells(own, end, places, uint64(row * WORDS + group + w), uint64(LOG_WORDS), bits)
            out[uint64((e * tiles + tile) * WORDS + group + w)] = word


@kernel("void(u8[::1], i8[::1])")
def count_bits(words, counts):
    """How many bits are set in each tile of one word per thread of the block."""
    total = cuda.shared.array(1, int32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        word = words[i] if i < words.size else uint64(0)
        if cuda.threadIdx.x == 0:
            total[0] = 0
        if cuda.syncthreads_or(int32(word != 0)):  # the same for all threads
            if word != 0:
                cuda.atomic.add(total, 0, int32(cuda.popc(word)))
            cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            counts[tile] = total[0]


@kernel("void(u8[::1], u8[::1], u8[::1], i8, i8, i8[::1], i8[::1])")
def list_bits(words, covered, loose, event_words, first_word, ends, keys):
    """Keys of all bits; each event has ``event_words`` words, which start at ``first_word`` of the index.

    Clauses that cover the event's cells (none if ``covered`` is empty) and are not loose are decided.
    """
    scan = cuda.shared.array(THREADS, int32)
    for tile in range(cuda.blockIdx.x, ends.size, cuda.gridDim.x):
        start = int64(0)
        if tile > 0:
            start = ends[tile - 1]
        if ends[tile] == start:  # the same for all threads
            continue
        i = int64(tile) * cuda.blockDim.x + cuda.threadIdx.x
        word = words[i] if i < words.size else uint64(0)
        at = start + before_me(int32(cuda.popc(word)), scan)
        own = first_word + i % event_words
        key = ((i // event_words) << 32) | (64 * own)
        sure = covered[i] & ~loose[own] if covered.size > 0 and word != 0 else uint64(0)
        while word != 0:
            bit = trailing_zeros(word)
            mark = 0 if (sure >> bit) & U1 else UNDECIDED
            keys[at] = (key + int64(bit)) | mark
            at += 1
            word &= word - U1


@kernel("void(i8[::1], i8, u8[:, ::1], u8[::1], u8[::1], i8[::1], i8[::1])")
def check_bounds(keys, first_clause, lanes, bounds, loose, found, counts):
    """Keep keys that are decided or within their bounds, undecided if bounds do not decide the clause.

    Keys count clauses from the index's first; kept ones count them from ``first_clause`` on.
    """
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size:
            key = keys[i] + first_clause
            if keys[i] & UNDECIDED:
                clause = uint64(keys[i] & CLAUSE)
                within, inside = check(clause, lanes, keys[i] >> 32, bounds)
                if within != TOPS:
                    key = int64(NOTHING)
                elif inside == TOPS and not (loose[clause >> U6] >> (clause & U63)) & U1:
                    key ^= UNDECIDED
        keep(key, tile, found, counts, marks)
