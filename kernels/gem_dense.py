"""GEM's bitsets where most words have matches: event by event, made exact, straight into the result.

The AND of an event's cells has the clauses that touch all of them. Sorted lists have the bounds in each cell; clauses
with a bound on the wrong side of the event's value are cleared. What remains holds, except for clauses with predicates
that cells do not express.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones, trailing_zeros
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.frames import framed
from gpumatch.kernels.gem import (
    STRICTER,
    TOP,
    U0,
    U1,
    U6,
    U63,
    WORDS,
    finish,
    forget,
    framed_index,
    framed_tests,
    holds,
    new_state,
)
from gpumatch.kernels.rows import append_row, grow, is_had
from gpumatch.opcodes import HI, KIND, LO, RANGE, WIDTH

CODE, NUMBER = np.uint64(32), np.uint64(0xFFFF_FFFF)  # a bound is its code, shifted by this, and its clause
AT_ONCE = 7  # bits of a word that are listed without a branch


@driver
def match_dense(events, frame, table, deepest, first, targets, shift, out):
    """Rows of each event. ``shift``: if not negative, rows are the clauses of the index, numbered from it.

    They are written to ``out``, while it has room.
    """
    index = framed_dense(frame)
    clauses, verify = framed_tests(frame, table, deepest)
    state = new_state(verify, targets)
    n_events, room = events[0].size - 1, (index[3].size << 6) + AT_ONCE
    both, places = buffers(index)
    offsets = np.zeros(n_events + 1, np.int64)
    n = np.int64(0)
    for e in range(n_events):
        while out.size - n < room:
            out = grow(out)
        sift(events, e, first, index, clauses, verify, state, places, both)
        if shift >= 0:
            stop = np.int64(list_all(np.int32(shift), both, out, np.uint64(n)))
        else:
            stop = list_rows(e, both, out, n, first, clauses[0], targets, state[3])
        n = finish(events, e, out, n, stop, targets[2], state)
        offsets[e + 1] = n
    return offsets, out[:n]


@driver
def count_dense(events, frame, table, deepest, first, dead, totals):
    """How many clauses hold for each event; ``totals``, unless empty, add up how many events each clause holds for.

    ``dead``: a bit for each clause that does not count, or nothing.
    """
    index = framed_dense(frame)
    clauses, verify = framed_tests(frame, table, deepest)
    state = new_state(verify, (0, False, True))
    both, places = buffers(index)
    counts = np.zeros(events[0].size - 1, np.int64)
    levels = 0
    while totals.size > 0 and counts.size >> levels:
        levels += 1
    sums, waiting = np.zeros((levels, both.size), np.uint64), np.empty((levels, both.size), np.uint64)
    for e in range(counts.size):
        sift(events, e, first, index, clauses, verify, state, places, both)
        for w in range(dead.size):
            both[w] &= ~dead[w]
        n = U0
        for w in range(both.size):
            n += ones(both[w])
        counts[e] = np.int64(n)
        if levels > 0:
            add_bits(both, e, sums, waiting)
        forget(events, e, state)
    read_sums(sums, waiting, counts.size, totals)
    return counts


@scalar
def add_bits(both, e, sums, waiting):
    """Add a bit for each clause to binary counters; ``sums[k]`` has their digit ``k``.

    Carries wait until there are two of a digit. So each event takes one addition of three bits on average, and as many
    digits wait as there are ones in ``e``, the number of events before this one.
    """
    k = 0
    while (e >> k) & 1:
        for w in range(both.size):
            one, two, three = sums[k, w], waiting[k, w], both[w]
            some = one ^ two
            sums[k, w] = some ^ three
            both[w] = (one & two) | (some & three)
        k += 1
    for w in range(both.size):
        waiting[k, w] = both[w]


@scalar
def read_sums(sums, waiting, n_events, totals):
    """Add the values of the binary counters after some events to ``totals``."""
    for k in range(sums.shape[0]):
        is_waiting = np.uint64((n_events >> k) & 1)
        for w in range(sums.shape[1]):
            one, two = sums[k, w], waiting[k, w] * is_waiting
            if (one | two) != 0:
                for b in range(min(64, totals.size - (w << 6))):
                    at = np.uint64(b)
                    totals[(w << 6) + b] += np.int64(((one >> at) & U1) + ((two >> at) & U1)) << k


@maker
def framed_dense(frame):
    """Dimensions, cells, bitsets, marks of loose clauses, and bounds from the frame of an index."""
    dims, cells, _, (bits, _, _, _, loose) = framed_index(frame)
    lows = (framed(frame, 14, np.uint64), framed(frame, 15, np.int64))
    highs = (framed(frame, 16, np.uint64), framed(frame, 17, np.int64))
    return dims, cells, bits.reshape(-1, WORDS), loose, lows, highs


@maker
def buffers(index):
    """Memory for the clauses of an event, and for the event's cells and codes."""
    return np.empty(index[3].size, np.uint64), np.empty((2, max(index[0][1].size - 1, STRICTER)), np.int64)


@scalar
def sift(events, e, first, index, clauses, verify, state, places, both):
    """Put the clauses that hold for an event into ``both``."""
    dims, cells, bits, loose, lows, highs = index
    locate(events, e, dims, cells, places)
    combine(bits, dims[1][-1], places[0], both)
    for d in range(dims[1].size - 1):
        if places[1, d] >= 0:
            clear_beyond(places[0, d], np.uint64(places[1, d]), lows, highs, both)
    some = U0
    for w in range(both.size):
        some |= both[w] & loose[w]
    if some != 0:
        for w in range(both.size):
            test_loose(events, e, w, first, loose, clauses, verify, state, both)


@scalar
def test_loose(events, e, w, first, loose, clauses, verify, state, both):
    """Clear those of a word's loose clauses that do not hold."""
    left = both[w] & loose[w]
    while left != 0:
        bit = left & (U0 - left)
        left ^= bit
        clause = first + (w << 6) + np.int64(trailing_zeros(bit))
        if not holds(events, e, clause, clauses[1], clauses[2], verify, state):
            both[w] ^= bit


@scalar
def locate(events, e, dims, cells, places):
    """The event's cell in every dimension, and its code there, -1 if it lacks the attribute."""
    entry_ptr, entry_attribute, entry_code = events
    dim_of, cell_ptr = dims
    table, table_ptr, table_shift = cells
    n = cell_ptr.size - 1
    for d in range(n):
        places[0, d], places[1, d] = cell_ptr[d + 1] - 1, -1
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        d = dim_of[entry_attribute[i]]
        if d >= 0:
            code = np.int64(entry_code[i])
            places[0, d] = cell_ptr[d] + np.int64(table[table_ptr[d] + (code >> table_shift[d])])
            places[1, d] = code
    for d in range(n, places.shape[1]):
        places[0, d] = places[0, 0]


@scalar
def combine(bits, stride, places, both):
    """AND the bitsets of an event's cells, tile by tile: whole rows, which the compiler vectorises."""
    for t in range(both.size // WORDS):
        base, at = np.uint64(t * stride), np.uint64(t * WORDS)
        one, two = base + np.uint64(places[0]), base + np.uint64(places[1])
        three, four = base + np.uint64(places[2]), base + np.uint64(places[3])
        for w in range(WORDS):
            both[at + np.uint64(w)] = bits[one, w] & bits[two, w] & bits[three, w] & bits[four, w]
        for d in range(STRICTER, places.size):
            k = base + np.uint64(places[d])
            for w in range(WORDS):
                both[at + np.uint64(w)] &= bits[k, w]


@scalar
def clear_beyond(cell, code, lows, highs, both):
    """Clear the clauses whose low bound in the cell is above the code, or whose high one is below."""
    for i in range(lows[1][cell + 1] - 1, lows[1][cell] - 1, -1):
        bound = lows[0][np.uint64(i)]
        if bound >> CODE <= code:
            break
        clause = bound & NUMBER
        both[clause >> U6] &= ~(U1 << (clause & U63))
    for i in range(highs[1][cell], highs[1][cell + 1]):
        bound = highs[0][np.uint64(i)]
        if bound >> CODE >= code:
            break
        clause = bound & NUMBER
        both[clause >> U6] &= ~(U1 << (clause & U63))


@scalar
def list_rows(e, words, out, start, first, clause_row, targets, had):
    """Append the rows of all bits to ``out[:start]``; with rows to find once, stop when all are found."""
    n_rows, once = targets[0], targets[1]
    n = start
    for t in range(0, words.size, WORDS):
        stop = np.int64(list_all(np.int32(t << 6), words[t : t + WORDS], out, np.uint64(n)))
        for i in range(n, stop):
            row = clause_row[first + np.int64(out[i])]
            if not is_had(row, e, once, had):
                n = append_row(row, e, once, had, out, n)
        if once and n - start == n_rows:
            break
    return n


@scalar
def list_all(first, words, out, n):
    """Append the numbers of all bits. Seven of a word are written without checking that it has that many."""
    for w in range(words.size):
        word = words[w]
        clause = first + np.int32(w << 6)
        end = n + ones(word)
        for i in range(AT_ONCE):
            out[n + np.uint64(i)] = clause + np.int32(trailing_zeros(word | TOP))
            word &= word - U1
        n += np.uint64(AT_ONCE)
        while n < end:
            out[n] = clause + np.int32(trailing_zeros(word))
            word &= word - U1
            n += U1
        n = end
    return n


@driver
def sort_bounds(first, last, frame, table, side, ptr):
    """Bounds on one side (``LO`` or ``HI``) of ranges in each dimension, by cell and code; ``ptr``: by cell.

    A clause has at most one in a dimension: that of the predicate that the bitsets use.
    """
    dims, cells = framed_index(frame)[:2]
    clause_ptr, predicate = framed(table, 1, np.int64), framed(table, 3, np.int32)
    n_dims = dims[1].size - 1
    tops = np.zeros(n_dims + 1, np.int64)  # codes of each dimension, then where they start
    taken = np.zeros(n_dims, np.int64)
    for p in range(WIDTH * clause_ptr[first], WIDTH * clause_ptr[last], WIDTH):
        d = dims[0][predicate[p]]
        if d >= 0 and predicate[p + KIND] == RANGE:
            tops[d + 1] = max(tops[d + 1], np.int64(predicate[p + side]) + 1)
    for d in range(n_dims):
        tops[d + 1] += tops[d]
    place = np.zeros(tops[-1] + 1, np.int64)
    found = np.empty(0, np.uint64)
    for step in range(2):  # counted first, then written
        taken[:] = 0
        for c in range(first, last):
            for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
                d, code = dims[0][predicate[p]], np.int64(predicate[p + side])
                if d < 0 or predicate[p + KIND] != RANGE or taken[d] == c + 1:
                    continue
                taken[d] = c + 1
                if predicate[p + LO] > predicate[p + HI]:
                    continue
                at = tops[d] + code
                if step == 0:
                    place[at + 1] += 1
                    ptr[dims[1][d] + np.int64(cells[0][cells[1][d] + (code >> cells[2][d])]) + 1] += 1
                else:
                    found[place[at]] = (np.uint64(code) << CODE) | np.uint64(c - first)
                    place[at] += 1
        if step == 0:
            place = np.cumsum(place)
            for k in range(1, ptr.size):
                ptr[k] += ptr[k - 1]
            found = np.empty(ptr[-1], np.uint64)
    return found
