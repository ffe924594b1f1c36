"""How blocks share work: slots of many runs are dealt out evenly, and kept keys are packed without gaps.

A *run* is a slice of a list that an event must look at; the *slots* of all runs are numbered in sequence, and a block
takes as many consecutive ones as it has threads, whichever runs they are in. What a thread finds is a *key*: the event,
a mark, and a clause. A block writes its keys to the front of its own tile of a buffer and counts them; a scan of the
counts says where they go.
"""

from __future__ import annotations

from numba import int32, int64, uint32

from gpumatch.kernels.cuda.target import THREADS, cuda, device, kernel

UNDECIDED = 1 << 31  # mark of a key: the clause's predicates must still be tested
CLAUSE = UNDECIDED - 1
NOTHING = -1
MARKS = THREADS // 32  # words with a bit for each thread


@device
def add_run(first, last, at, run_start, run_length):
    """Write the run ``first:last`` at index ``at``, unless that is negative; returns 1, or 0 if it is empty."""
    if last == first:
        return int64(0)
    if at >= 0:
        run_start[at] = first
        run_length[at] = last - first
    return int64(1)


@device
def find_run(slot, low, high, slot_ptr):
    """Which of the runs ``low..high``, none of them empty, contains the slot."""
    while low < high:
        mid = (low + high + 1) >> 1
        if slot_ptr[mid] <= slot:
            low = mid
        else:
            high = mid - 1
    return low


@device
def own_run(slot, last, tile, tile_run, slot_ptr):
    """The run of a thread's slot, below ``last``; ``tile_run`` has the runs of the first slots of all tiles."""
    return find_run(min(slot, last - 1), tile_run[tile], tile_run[tile + 1], slot_ptr)


@device
def before_me(value, scan):
    """The sum of the values of all threads before this one; all threads of the block must call it."""
    x = cuda.threadIdx.x
    scan[x] = value
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        more = scan[x - step] if x >= step else 0
        cuda.syncthreads()
        scan[x] += more
        cuda.syncthreads()
        step *= 2
    return scan[x] - value


@device
def keep(key, tile, found, counts, marks):
    """Write the keys of a block's threads, except NOTHING, to the front of its tile of ``found``, and count them.

    Each thread that has one sets its bit of ``marks``; the bits before it say how many come first.
    """
    x = cuda.threadIdx.x
    if x < MARKS:
        marks[x] = 0
    total = cuda.syncthreads_count(int32(key >= 0))
    if x == 0:
        counts[tile] = total
    if total == 0:  # the usual case, and the same for all threads
        return
    word, bit = x >> 5, uint32(1) << uint32(x & 31)
    if key >= 0:
        cuda.atomic.or_(marks, word, bit)
    cuda.syncthreads()
    if key >= 0:
        place = cuda.popc(marks[word] & (bit - uint32(1)))
        for w in range(word):
            place += cuda.popc(marks[w])
        found[tile * cuda.blockDim.x + place] = key
    cuda.syncthreads()  # before the marks are cleared


@kernel("void(i8[::1], i8[::1], i8[::1])")
def compact(found, ends, out):
    """Pack the keys of all tiles together, in blocks as large as those that found them.

    ``ends`` are the sums of their counts.
    """
    for tile in range(cuda.blockIdx.x, ends.size, cuda.gridDim.x):
        first = int64(0)
        if tile > 0:
            first = ends[tile - 1]
        if first + cuda.threadIdx.x < ends[tile]:
            out[first + cuda.threadIdx.x] = found[tile * cuda.blockDim.x + cuda.threadIdx.x]


@kernel("void(i8[::1], i8[::1], i8[::1])")
def distinct(keys, found, counts):
    """Sorted keys without repeats."""
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size and (i == 0 or keys[i - 1] != keys[i]):
            key = keys[i]
        keep(key, tile, found, counts, marks)


@kernel("void(i8[::1], i4[::1], i8[::1], i8[::1])")
def to_rows(keys, clause_row, found, counts):
    """Keys with rows instead of clauses, without negative rows."""
    marks = cuda.shared.array(MARKS, uint32)
    width = cuda.blockDim.x
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * width + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size:
            row = clause_row[keys[i] & CLAUSE]
            if row >= 0:
                key = ((keys[i] >> 32) << 32) | row
        keep(key, tile, found, counts, marks)


@kernel("void(i8[::1], u4[::1], i4[::1], i8, i8[::1], i8[::1])")
def to_numbers(keys, removed, before, base, found, counts):
    """Keys with the numbers of live rows, from ``base`` on, instead of rows; ``removed`` has a bit for each row.

    ``before`` counts the removed rows before each word of them.
    """
    marks = cuda.shared.array(MARKS, uint32)
    for tile in range(cuda.blockIdx.x, counts.size, cuda.gridDim.x):
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        key = int64(NOTHING)
        if i < keys.size:
            row = keys[i] & CLAUSE
            word, bit = removed[row >> 5], uint32(1) << uint32(row & 31)
            if (word & bit) == 0:
                key = keys[i] + base - before[row >> 5] - cuda.popc(word & (bit - uint32(1)))
        keep(key, tile, found, counts, marks)
