"""Memory and work of GEM's bitset kernels on a device, counted on the CPU over the same arrays; as in ``count``."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones, trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.count import BLOCK, UNDECIDED, WARP, touch
from gpumatch.kernels.gem import TOPS, U1, U6, U63, WORDS, check, locate_all

HALF = 16  # threads of a warp whose 8-byte words shared memory delivers together, if they lie in different banks


@driver
def locate(events, dims, cells, lanes_of, count):
    """Places and lanes of all events."""
    return locate_all(events, dims, cells, lanes_of, count)


@scalar
def load_words(lane, log, step, places, first, words, banks):
    """The accesses of shared memory that one half of a warp needs in a step, given words of the same bank.

    Lanes from ``lane`` on take ``1 << log`` words of one event after another, from event ``first`` on.
    """
    banks[:] = 0
    most = 0
    for i in range(lane, lane + HALF):
        e = first + (i >> log)
        if e >= places.shape[0] or words[i] == 0:
            continue
        address = (np.int64(places[e, step]) << log) + (i & ((1 << log) - 1))
        new = True
        for j in range(lane, i):
            other = first + (j >> log)
            if words[j] != 0 and (np.int64(places[other, step]) << log) + (j & ((1 << log) - 1)) == address:
                new = False
        if new:
            banks[address % HALF] += 1
            most = max(most, banks[address % HALF])
    return most


@driver
def sift(places, dims, cells, log, bits, out):
    """Words of the clauses that touch all cells of each event, into ``out``, by event, tile and word.

    Returns steps of all warps, accesses of shared memory, and words that steps read.
    """
    tiles = out.shape[1] // WORDS
    words, banks = np.zeros(WARP, np.uint64), np.zeros(HALF, np.int64)
    steps = answers = reads = np.int64(0)
    for group in range(0, tiles * WORDS, 1 << log):
        row = (group // WORDS) * cells
        for first in range(0, places.shape[0], WARP >> log):
            for i in range(WARP):
                words[i] = ~np.uint64(0) if first + (i >> log) < places.shape[0] else np.uint64(0)
            step, active = 0, True
            while active and step < dims:
                answers += load_words(0, log, step, places, first, words, banks)
                answers += load_words(HALF, log, step, places, first, words, banks)
                steps += 1
                active = False
                for i in range(WARP):
                    if words[i] != 0:
                        e = first + (i >> log)
                        w = group % WORDS + (i & ((1 << log) - 1))
                        words[i] &= bits[row + places[e, step], w]
                        reads += 1
                        active |= words[i] != 0
                step += 1
            for i in range(WARP):
                e = first + (i >> log)
                if e < places.shape[0]:
                    out[e, group + (i & ((1 << log) - 1))] = words[i]
    return steps, answers, reads


@driver
def list_bits(words, covered, loose, keys):
    """Keys of all bits, into ``keys``; decided are those of clauses that cover the event's cells and are not loose.

    Returns their number, blocks and warps of words that have any, and the most bits of a word, summed over warps.
    """
    n = 0
    steps = blocks = warps = np.int64(0)
    size = words.shape[1]
    for first in range(0, words.size, BLOCK):
        some = False
        for start in range(first, min(first + BLOCK, words.size), WARP):
            most = np.uint64(0)
            for i in range(start, min(start + WARP, words.size)):
                e, w = i // size, i % size
                word = words[e, w]
                most = max(most, ones(word))
                sure = covered[e, w] & ~loose[w] if covered.size > 0 else np.uint64(0)
                while word != 0:
                    bit = trailing_zeros(word)
                    mark = 0 if (sure >> bit) & U1 else UNDECIDED
                    keys[n] = (np.int64(e) << 32) | (64 * w + np.int64(bit)) | mark
                    n += 1
                    word &= word - U1
            steps += np.int64(most)
            warps += most > 0
            some |= most > 0
        blocks += some
    return n, blocks, warps, steps


@driver
def check_bounds(keys, first_clause, lanes, bounds, loose, marks, kept):
    """Keys that are decided or lie within their bounds, into ``kept``; decided if bounds decide the clause.

    Returns their number, how many were compared, warps that compare any, tiles and warps that keep any, and sectors of
    bounds and of ``loose``.
    """
    width = 2 * lanes.shape[1]
    sectors = np.zeros(2, np.int64)
    n = compared = warps = tiles = keeping = any_compared = any_kept = any_key = 0
    for i in range(keys.size):
        if i % WARP == 0:
            warps += any_compared
            keeping += any_key
            any_compared = any_key = 0
        if i % BLOCK == 0:
            tiles += any_kept
            any_kept = 0
        key = keys[i] + first_clause
        if keys[i] & UNDECIDED:
            compared += 1
            any_compared = 1
            clause = np.uint64(keys[i] & (UNDECIDED - 1))
            at = 8 * width * np.int64(clause)
            sectors[0] += touch(marks[0], at, at + 8 * width)
            within, inside = check(clause, lanes, keys[i] >> 32, bounds)
            if within != TOPS:
                continue
            if inside == TOPS:
                sectors[1] += touch(marks[1], 8 * np.int64(clause >> U6), 8 * np.int64(clause >> U6) + 8)
                if not (loose[clause >> U6] >> (clause & U63)) & U1:
                    key ^= UNDECIDED
        kept[n] = key
        n += 1
        any_kept = any_key = 1
    return n, compared, warps + any_compared, tiles + any_kept, keeping + any_key, sectors
