"""Memory and work of the A-Tree's kernels on a device, counted on the CPU over the same arrays; as in ``count``.

Threads are numbered by unit and word: neighbours take the words of one unit, if it has enough.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.atree_build import NEGATED, NEST
from gpumatch.kernels.bits import ones, trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.count import BLOCK, WARP, touch, touch_next
from gpumatch.kernels.dag import OR

U0, U1, U6, U63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
ITEM, MINUS, GROUP = 0, 1, 2  # what threads do: read a word, subtract one from it, go through a group


@driver
def set_leaves(runs, entry_event, entry_code, waiting, pieces, words, marks, value):
    """Set the bits of the events whose entries, the owners of ``runs``, lie in the pieces that they reach.

    Returns how many these are, in how many warps, and sectors of the list, of first and last codes, and of nodes.
    """
    starts, lengths, owners = runs
    piece_node, piece_lo, piece_hi = pieces
    sectors = np.zeros(4, np.int64)
    before = np.full(4, -1, np.int64)
    slot = hits = warps = any_hit = 0
    for r in range(starts.size):
        entry = owners[r]
        code, e = entry_code[entry], np.uint64(entry_event[entry])
        for q in range(starts[r], starts[r] + lengths[r]):
            if slot % WARP == 0:
                before[:] = -1
                warps += any_hit
                any_hit = 0
            slot += 1
            piece = np.int64(waiting[q])
            more, before[0] = touch_next(marks[0], 4 * q, before[0])
            sectors[0] += more
            more, before[1] = touch_next(marks[1], 4 * piece, before[1])
            sectors[1] += more
            if code < piece_lo[piece]:
                continue
            more, before[2] = touch_next(marks[2], 4 * piece, before[2])
            sectors[2] += more
            if code > piece_hi[piece]:
                continue
            more, before[3] = touch_next(marks[3], 4 * piece, before[3])
            sectors[3] += more
            value[np.int64(piece_node[piece]) * words + np.int64(e >> U6)] |= U1 << (e & U63)
            hits += 1
            any_hit = 1
    return hits, warps + any_hit, sectors


@scalar
def read_word(at, place, marks, read_by, unit, seen):
    """Count the sector of the word at ``place``, unless a word of the same unit has just read it for the same item."""
    sector = place >> 2
    marks[sector] = True
    new = read_by[at] != unit or seen[at] != sector
    read_by[at], seen[at] = unit, sector
    return np.int64(new)


@driver
def evaluate(first, last, words, unit_ptr, items, base, value, weights, marks, out):
    """Words of the units ``first:last`` into ``out``, as the device evaluates them.

    ``weights`` are instructions per action of a thread. Returns those of all warps, groups that warps go through, and
    sectors of items, of bases and of words of nodes.
    """
    item_marks, base_marks, word_marks = marks
    longest = 1
    for u in range(first, last):
        longest = max(longest, unit_ptr[u + 1] - unit_ptr[u])
    read_by, minus_by = np.full(longest, -1, np.int64), np.full(longest, -1, np.int64)
    seen, minus_seen = np.empty(longest, np.int64), np.empty(longest, np.int64)
    opened_by = np.full(longest, -1, np.int64)
    held, ends, ors = np.empty(NEST + 1, np.uint64), np.empty(NEST + 1, np.int64), np.empty(NEST + 1, np.bool_)
    done, sectors = np.zeros(3, np.int64), np.zeros(3, np.int64)
    thread = instructions = groups = most = most_groups = 0
    before = np.int64(-1)
    for u in range(first, last):
        start, size = unit_ptr[u], unit_ptr[u + 1] - unit_ptr[u]
        for w in range(words):
            if thread % WARP == 0:
                instructions += most
                groups += most_groups
                most = most_groups = 0
            thread += 1
            done[:] = 0
            word, either, i, end, top = U0, True, np.int64(0), np.int64(size), 0
            while i < end or top > 0:
                if i < end:
                    item = np.int64(items[start + i])
                    if opened_by[i] != u:
                        opened_by[i] = u
                        more, before = touch_next(item_marks, 4 * (start + i), before)
                        sectors[0] += more
                    if item < 0 and item > NEGATED:
                        held[top], ends[top], ors[top] = word, end, either
                        top += 1
                        either = item == -1 - OR
                        word = U0 if either else ~U0
                        end = i + 2 + items[start + i + 1]
                        i += 2
                        done[GROUP] += 1
                        continue
                    node = item
                    if item < 0:
                        node = np.int64(base[NEGATED - item])
                        if read_by[i] != u:
                            sectors[1] += touch(base_marks, 4 * (NEGATED - item), 4 * (NEGATED - item) + 4)
                    sectors[2] += read_word(i, node * words + w, word_marks, read_by, u, seen)
                    found = value[node * words + w]
                    done[ITEM] += 1
                    if item < 0:
                        done[MINUS] += 1
                        if found != U0:
                            minus = (NEGATED - item) * words + w
                            sectors[2] += read_word(i, minus, word_marks, minus_by, u, minus_seen)
                            found &= ~value[minus]
                    i += 1
                else:
                    found = word
                    top -= 1
                    word, end, either = held[top], ends[top], ors[top]
                if either:
                    word |= found
                else:
                    word &= found
                    if word == U0:
                        i = end
            out[(u - first) * words + w] = word
            spent = weights[ITEM] * done[ITEM] + weights[MINUS] * done[MINUS] + weights[GROUP] * done[GROUP]
            most = max(most, spent)
            most_groups = max(most_groups, done[GROUP])
    return WARP * (instructions + most), groups + most_groups, sectors


@driver
def list_clauses(out, first_clause, words, keys):
    """Keys of all bits; returns their number, tiles and warps that have any, and steps of warps that list them."""
    n = tiles = warps = steps = most = any_bit = 0
    for i in range(out.size):
        if i % WARP == 0:
            warps += most > 0
            steps += most
            most = 0
        if i % BLOCK == 0:
            tiles += any_bit
            any_bit = 0
        word = out[i]
        if word == U0:
            continue
        any_bit = 1
        most = max(most, np.int64(ones(word)))
        while word != U0:
            event = 64 * (i % words) + np.int64(trailing_zeros(word))
            keys[n] = (event << 32) | (first_clause + i // words)
            n += 1
            word &= word - U1
    return n, tiles + any_bit, warps + (most > 0), steps + most
