"""GEM's caches as bitsets: a bit per clause, a bitset per dimension and cell, ANDed over the cells of an event.

Clauses are dealt into tiles of 64 words. A tile holds, for every cell of every dimension, the bitset of the clauses
that touch the cell or leave the dimension unconstrained, and a summary of which of its 64 words are not zero.
A batch passes over one tile after another, so that a tile stays in cache. Surviving clauses are compared by their
bounds, packed into 15-bit lanes four to a word; only if an event lies in the same lane as a bound, or a clause has
predicates that its bounds do not express, the predicates themselves decide.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones, prefetch, trailing_zeros
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.frames import framed, framed_table
from gpumatch.kernels.predicates import satisfies
from gpumatch.kernels.rows import grow, sort_unique

WORDS = 64  # words per tile and cell
TILE = 64 * WORDS  # clauses per tile
STRICTER = 4  # dimensions, the most selective ones, that are ANDed in one pass; places have room for at least this many
AT_ONCE = 3  # bits of a word that are listed without a branch
LANES = 4  # lanes of 15 bits and a guard per word
TOPS = np.uint64(0x8000_8000_8000_8000)
ONES = np.uint64(0x0001_0001_0001_0001)
ABSENT, OPEN = 0x7FFE, 0x7FFF  # lanes of an attribute that the event lacks, and the upper end of unconstrained bounds
CLAUSE = np.int32(0x7FFF_FFFF)
U0, U1, U6, U31, U63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(31), np.uint64(63)
TOP = np.uint64(0x8000_0000_0000_0000)


@scalar
def lane_of(code, exact, shift):
    """The lane of a value's code: between those of bounds if codes fit, else shared by neighbours."""
    return 2 * code + 2 if exact else (code >> shift) + 1


@scalar
def locate(events, e, dims, cells, lanes_of, count, place, lanes):
    """The event's cell in every dimension, the rarest first, into ``place``; and its lanes."""
    entry_ptr, entry_attribute, entry_code = events
    dim_of, cell_ptr = dims
    table, table_ptr, table_shift = cells
    exact, shift = lanes_of
    n = cell_ptr.size - 1
    for d in range(n):
        place[d] = np.uint64(cell_ptr[d + 1] - 1)
    for w in range(lanes.size):
        lanes[w] = np.uint64(ABSENT) * ONES | TOPS
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        d = dim_of[entry_attribute[i]]
        if d >= 0:
            code = entry_code[i]
            place[d] = np.uint64(cell_ptr[d] + table[table_ptr[d] + (code >> table_shift[d])])
            at = np.uint64(16 * (d % LANES))
            lane = np.uint64(lane_of(code, exact[d], shift[d]))
            lanes[d // LANES] = (lanes[d // LANES] & ~(np.uint64(OPEN) << at)) | (lane << at)
    for d in range(n, place.size):
        place[d] = place[0]
    for i in range(1, n):
        k = place[i]
        j = i
        while j > 0 and count[place[j - 1]] > count[k]:
            place[j] = place[j - 1]
            j -= 1
        place[j] = k


@scalar
def combine(bits, base, places, e, both):
    """AND the bitsets of an event's four rarest cells: whole rows, which the compiler vectorises."""
    one, two, three, four = base + places[e, 0], base + places[e, 1], base + places[e, 2], base + places[e, 3]
    for w in range(WORDS):
        both[w] = bits[one, w] & bits[two, w] & bits[three, w] & bits[four, w]


@scalar
def combine_more(bits, base, places, e, both):
    """AND those of the other cells, two at a time."""
    for d in range(STRICTER, places.shape[1] - 1, 2):
        one, two = base + places[e, d], base + places[e, d + 1]
        for w in range(WORDS):
            both[w] &= bits[one, w] & bits[two, w]
    if (places.shape[1] - STRICTER) & 1:
        last = base + places[e, places.shape[1] - 1]
        for w in range(WORDS):
            both[w] &= bits[last, w]


@scalar
def words_left(words):
    """A bit per word that is not zero."""
    marks = U0
    for w in range(WORDS):
        marks |= np.uint64(words[w] != 0) << np.uint64(w)
    return marks


@scalar
def ask_for_bounds(clause, bounds, width):
    """Prefetch a clause's bounds, which may lie in two lines of cache."""
    prefetch(bounds, np.uint64(clause) * width)
    prefetch(bounds, np.uint64(clause) * width + width - U1)


@scalar
def list_candidates(first, both, bounds, width, found, n):
    """Append the clauses whose bits are set to ``found[:n]``, and prefetch their bounds, which are read next.

    The first few of a word are written without checking that it has that many.
    """
    marks = words_left(both)
    while marks != 0:
        w = trailing_zeros(marks)
        marks &= marks - U1
        word = both[w]
        clause = first + np.int32(w << U6)
        end = n + ones(word)
        for k in range(AT_ONCE):
            c = clause + np.int32(trailing_zeros(word | TOP))
            word &= word - U1
            ask_for_bounds(c, bounds, width)
            found[n + np.uint64(k)] = c
        n += np.uint64(AT_ONCE)
        while n < end:
            c = clause + np.int32(trailing_zeros(word))
            word &= word - U1
            ask_for_bounds(c, bounds, width)
            found[n] = c
            n += U1
        n = end
    return n


@scalar
def check(clause, lanes, e, bounds):
    """Guard bits that stay set if an event's lanes lie within the clause's bounds, and strictly within them."""
    words = np.uint64(lanes.shape[1])
    base = np.uint64(2) * words * np.uint64(clause)
    within = TOPS
    inside = TOPS
    for i in range(lanes.shape[1]):
        w = np.uint64(i)
        lane, low, high = lanes[e, w], bounds[base + w], bounds[base + words + w] | TOPS
        above, below = lane - low, high - (lane ^ TOPS)
        within &= above & below
        inside &= (above - ONES) & (below - ONES)
    return within, inside


@scalar
def check_listed(found, n, last, lanes, e, bounds, loose):
    """Keep the clauses in ``found[n:last]`` that pass their bounds, marked if undecided; returns the new end."""
    for i in range(n, last):
        c = np.uint64(found[i])
        within, inside = check(c, lanes, e, bounds)
        undecided = np.uint64(inside != TOPS) | ((loose[c >> U6] >> (c & U63)) & U1)
        found[n] = found[i] | np.int32(undecided << U31)
        n += np.uint64(within == TOPS)
    return n


@maker
def framed_index(frame):
    """Dimensions, cells, lanes, and bitsets of the frame of an index."""
    dims = (framed(frame, 0, np.int32), framed(frame, 1, np.int64))
    cells = (framed(frame, 2, np.uint8), framed(frame, 3, np.int64), framed(frame, 4, np.uint8))
    lanes_of = (framed(frame, 5, np.bool_), framed(frame, 6, np.uint8))
    sets = (framed(frame, 7, np.uint64), framed(frame, 8, np.uint64), framed(frame, 9, np.int64))
    return dims, cells, lanes_of, (*sets, framed(frame, 10, np.uint64), framed(frame, 11, np.uint64))


@maker
def framed_tests(frame, table, deepest):
    """Clauses, and what ``holds`` takes."""
    clauses, predicates, programs = framed_table(table, deepest)
    return clauses, (framed(frame, 12, np.bool_), framed(frame, 13, np.int32), predicates, programs)


@driver
def match_sparse(events, frame, table, deepest, first, expected, targets):
    """Rows of each event if few clauses of a word match: all events pass over a tile while it is in cache."""
    dims, cells, lanes_of, (bits, summary, count, bounds, loose) = framed_index(frame)
    clauses, verify = framed_tests(frame, table, deepest)
    n_events = events[0].size - 1
    places, lanes = locate_all(events, dims, cells, lanes_of, count)
    found, ends = list_tiles(places, lanes, dims[1][-1], bits.reshape(-1, WORDS), summary, bounds, loose, expected)
    state = new_state(verify, targets)
    offsets = np.zeros(n_events + 1, np.int64)
    out = np.empty(ends[-1], np.int32)
    n = np.int64(0)
    for e in range(n_events):
        last = settle(events, e, found, ends, first, clauses, verify, targets, state, out, n)
        n = finish(events, e, out, n, last, targets[2], state)
        offsets[e + 1] = n
    return offsets, out[:n]


@driver
def count_sparse(events, frame, table, deepest, first, dead, totals):
    """How many clauses hold for each event; ``totals``, unless empty, get how many events each clause holds for.

    ``dead``: a bit for each clause that does not count, or nothing.
    """
    dims, cells, lanes_of, (bits, summary, count, bounds, loose) = framed_index(frame)
    clauses, verify = framed_tests(frame, table, deepest)
    bits, stride, n_events = bits.reshape(-1, WORDS), dims[1][-1], events[0].size - 1
    places, lanes = locate_all(events, dims, cells, lanes_of, count)
    width = np.uint64(2 * lanes.shape[1])
    both, found = np.empty(WORDS, np.uint64), np.empty(TILE + AT_ONCE, np.int32)
    counts, last_link = np.zeros(n_events, np.int64), np.zeros(n_events, np.int64)
    links, n_links = np.empty(TILE, np.int64), 0  # undecided clauses, each linked to the one before it of its event
    for t in range(summary.size // max(stride, 1)):
        base = np.uint64(t * stride)
        for e in range(n_events):
            if marks_of(summary, base, places, e) == 0:
                continue
            combine(bits, base, places, e, both)
            combine_more(bits, base, places, e, both)
            last = list_candidates(np.int32(t * TILE), both, bounds, width, found, U0)
            n = count_listed(found, last, lanes, e, bounds, (loose, dead), counts, totals)
            while links.size - n_links < np.int64(n):
                links = grow(links)
            for i in range(n):
                links[n_links] = (last_link[e] << 32) | np.int64(found[i])
                n_links += 1
                last_link[e] = n_links
    state = new_state(verify, (0, False, True))
    for e in range(n_events):
        if last_link[e] > 0:
            count_linked(events, e, last_link[e], links, first, clauses, verify, state, counts, totals)
            forget(events, e, state)
    return counts


@scalar
def count_listed(found, last, lanes, e, bounds, marks, counts, totals):
    """Count the clauses in ``found[:last]`` that pass their bounds; keep undecided ones there, and return their number.

    ``marks``: bits of the clauses that bounds do not decide, and of those that do not count, or nothing.
    """
    loose, dead = marks
    n, passed = U0, U0
    for i in range(last):
        c = np.uint64(found[i])
        within, inside = check(c, lanes, e, bounds)
        holds = np.uint64(within == TOPS)
        if dead.size > 0:
            holds &= ~(dead[c >> U6] >> (c & U63))
        undecided = holds & (np.uint64(inside != TOPS) | (loose[c >> U6] >> (c & U63)))
        passed += holds & ~undecided
        if totals.size > 0:
            totals[c] += np.int64(holds & ~undecided)
        found[n] = found[i]
        n += undecided
    counts[e] += np.int64(passed)
    return n


@scalar
def count_linked(events, e, link, links, first, clauses, verify, state, counts, totals):
    """Count those of an event's linked clauses that hold."""
    while link > 0:
        c = links[link - 1] & 0xFFFF_FFFF
        link = links[link - 1] >> 32
        if holds(events, e, first + c, clauses[1], clauses[2], verify, state):
            counts[e] += 1
            if totals.size > 0:
                totals[c] += 1


@driver
def any_bits(events, frame, table, deepest, first, dead, found):
    """Mark the events for which any clause holds; those that have a mark already are passed over.

    ``dead``: a bit for each clause that does not count, or nothing.
    """
    dims, cells, lanes_of, (bits, summary, count, bounds, loose) = framed_index(frame)
    clauses, verify = framed_tests(frame, table, deepest)
    n_dims, state = dims[1].size - 1, new_state(verify, (0, False, True))
    sets = (bits.reshape(-1, WORDS), summary, dims[1][-1], bounds, loose, dead, np.empty(WORDS, np.uint64))
    places = np.empty((1, max(n_dims, STRICTER)), np.uint64)
    lanes = np.empty((1, (n_dims + LANES - 1) // LANES), np.uint64)
    for e in range(found.size):
        if not found[e]:
            locate(events, e, dims, cells, lanes_of, count, places[0], lanes[0])
            found[e] = has_any(events, e, places, lanes, sets, first, clauses, verify, state)
            forget(events, e, state)


@scalar
def has_any(events, e, places, lanes, sets, first, clauses, verify, state):
    """Does any clause hold for an event? Goes from tile to tile, and no further than to the first such clause."""
    bits, summary, stride, bounds, loose, dead, both = sets
    for t in range(summary.size // max(stride, 1)):
        base = np.uint64(t * stride)
        if marks_of(summary, base, places, 0) == 0:
            continue
        combine(bits, base, places, 0, both)
        combine_more(bits, base, places, 0, both)
        for w in range(max(min(dead.size - t * WORDS, WORDS), 0)):
            both[w] &= ~dead[t * WORDS + w]
        marks = words_left(both)
        while marks != 0:
            w = trailing_zeros(marks)
            marks &= marks - U1
            word, at = both[w], np.uint64(t * WORDS) + w
            while word != 0:
                bit = word & (U0 - word)
                word ^= bit
                c = (at << U6) + trailing_zeros(bit)
                within, inside = check(c, lanes, 0, bounds)
                if within != TOPS:
                    continue
                if inside == TOPS and not loose[at] & bit:
                    return True
                if holds(events, e, first + np.int64(c), clauses[1], clauses[2], verify, state):
                    return True
    return False


@scalar
def marks_of(summary, base, places, e):
    """A bit per word of a tile that may have clauses left for an event."""
    marks = summary[base + places[e, 0]]
    for d in range(1, places.shape[1]):
        marks &= summary[base + places[e, d]]
    return marks


@maker
def list_tiles(places, lanes, stride, bits, summary, bounds, loose, expected):
    """Candidates of all events, tile by tile: their clauses, and where those of each tile and event end."""
    n_events = places.shape[0]
    tiles = summary.size // max(stride, 1)
    width = np.uint64(2 * lanes.shape[1])
    both = np.empty(WORDS, np.uint64)
    ends = np.zeros(tiles * n_events + 1, np.int64)
    room = TILE + AT_ONCE
    found = np.empty(4 * room + np.int64(1.5 * n_events * expected), np.int32)
    n = U0
    for t in range(tiles):
        base = np.uint64(t * stride)
        for e in range(n_events):
            if marks_of(summary, base, places, e) != 0:
                while found.size - np.int64(n) < room:
                    found = grow(found)
                combine(bits, base, places, e, both)
                combine_more(bits, base, places, e, both)
                last = list_candidates(np.int32(t * TILE), both, bounds, width, found, n)
                n = check_listed(found, n, last, lanes, e, bounds, loose)
            ends[t * n_events + e + 1] = n
    return found, ends


@scalar
def settle(events, e, found, ends, first, clauses, verify, targets, state, out, n):
    """Append the rows of an event's candidates to ``out[:n]``, after testing the predicates of marked ones.

    They are ``found[ends[t]:ends[t + 1]]`` for every ``t`` from ``e`` on, in steps of the number of events.
    """
    clause_row, clause_ptr, clause_program = clauses
    once, had = targets[1], state[3]
    for t in range(e, ends.size - 1, events[0].size - 1):
        for i in range(ends[t], ends[t + 1]):
            c = first + np.int64(found[i] & CLAUSE)
            if once and (clause_row[c] < 0 or had[clause_row[c]] == e):
                continue
            if found[i] < 0 and not holds(events, e, c, clause_ptr, clause_program, verify, state):
                continue
            out[n] = clause_row[c]
            n += 1
            if once:
                had[clause_row[c]] = e
    return n


@maker
def locate_all(events, dims, cells, lanes_of, count):
    """Places and lanes of all events."""
    n_events, n_dims = events[0].size - 1, dims[1].size - 1
    places = np.empty((n_events, max(n_dims, STRICTER)), np.uint64)
    lanes = np.empty((n_events, (n_dims + LANES - 1) // LANES), np.uint64)
    for e in range(n_events):
        locate(events, e, dims, cells, lanes_of, count, places[e], lanes[e])
    return places, lanes


@maker
def new_state(verify, targets):
    """Buffers for finishing an event: its codes, whose they are, a stack, rows it has, and bitmaps for sorting."""
    multi, programs = verify[0], verify[3]
    n_rows, once = targets[0], targets[1]
    row = np.full(multi.size, -1, np.int32)
    spread = np.full(1, -1, np.int64)
    stack = np.empty(programs[2] + 1, np.uint8)
    had = np.full(n_rows if once else 0, -1, np.int32)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    return row, spread, stack, had, words, summary


@scalar
def holds(events, e, clause, clause_ptr, clause_program, verify, state):
    """Do all predicates of the clause and its program hold? Spreads the event's codes on the first such call."""
    entry_ptr, entry_attribute, entry_code = events
    multi, presence, predicates, programs = verify
    program_ptr, program_item = programs[0], programs[1]
    row, spread, stack = state[0], state[1], state[2]
    if spread[0] != e:
        spread[0] = e
        for i in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
            a = entry_attribute[i]
            row[a] = i if multi[a] else entry_code[i]
    event = (entry_ptr[e + 1], entry_attribute, entry_code)
    return satisfies(
        clause, row, event, clause_ptr, clause_program, predicates, program_ptr, program_item, presence, stack
    )


@scalar
def finish(events, e, out, first, last, is_sorted, state):
    """Clean up after an event, and sort its rows ``out[first:last]``; returns where they end."""
    forget(events, e, state)
    return last if is_sorted else sort_unique(out, first, last, state[4], state[5])


@scalar
def forget(events, e, state):
    """Clean up after an event."""
    entry_ptr, entry_attribute = events[0], events[1]
    row, spread = state[0], state[1]
    if spread[0] == e:
        for i in range(entry_ptr[e], entry_ptr[e + 1]):
            row[entry_attribute[i]] = -1
