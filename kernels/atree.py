"""A-Tree: programs over predicates, for 512 events at a time (thesis, 9.3).

A predicate that some event satisfies gets a *slot*: eight words, a bit per event. Units are then evaluated in the order
of their numbers, nodes before those that use them: all units (the dense sweep), or those with an access child that got
a slot (propagation on demand). A node that no event satisfies gets no slot, and no work is done for it.

``values`` holds the slots in sequence; the first ones are the stack on which groups are evaluated.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.atree_build import NEGATED, NEST
from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.dag import AND
from gpumatch.kernels.frames import framed
from gpumatch.kernels.postings import LEVELS, reach_entry
from gpumatch.kernels.rows import grow, sort_unique
from gpumatch.kernels.words import WORDS, and_words, cut_words, or_words

STACK = 1  # the first slot of the stack; slot 0 means none
SLOTS = STACK + NEST + 1  # the first slot of a node
ROOM = 64  # rows of an event that are kept together, as a chunk, until all are known
CHUNK = np.uint64(ROOM)
U0, U1, U6, U12, U63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(12), np.uint64(63)


@maker
def take_slot(node, state, values):
    """Give a node the next slot, whose words are not set yet; returns the values, which may have moved."""
    slot, live, live_count = state
    n = live_count[0]
    if (SLOTS + n + 1) * WORDS > values.size:
        values = grow(values)
    live[n] = node
    live_count[0] = n + 1
    slot[node] = SLOTS + n
    return values


@maker
def set_leaves(events, directory, postings, pieces, state, values):
    """Mark the predicates that events satisfy; returns the values, which may have moved."""
    entry_ptr, entry_attribute, entry_code = events
    node_ptr, waiting = postings
    piece_node, piece_lo, piece_hi = pieces
    slot = state[0]
    runs = (np.empty(LEVELS, np.int64), np.empty(LEVELS, np.int64))
    for e in range(entry_ptr.size - 1):
        word, bit = e >> 6, U1 << np.uint64(e & 63)
        for i in range(entry_ptr[e], entry_ptr[e + 1]):
            code = entry_code[i]
            for r in range(reach_entry(entry_attribute[i], code, directory, node_ptr, runs[0], runs[1], 0)):
                for q in range(np.uint64(runs[0][r]), np.uint64(runs[1][r])):
                    piece = np.uint64(waiting[q])
                    if code < piece_lo[piece] or code > piece_hi[piece]:
                        continue
                    node = piece_node[piece]
                    if place_of(node, slot) == 0:
                        values = take_slot(node, state, values)
                        at = place_of(node, slot)
                        for w in range(at, at + WORDS):
                            values[w] = U0
                    values[place_of(node, slot) + word] |= bit
    return values


@scalar
def place_of(node, slot):
    """Offset of the words of a node, or 0 if no event satisfies it."""
    return np.int64(slot[np.uint64(node)]) * WORDS  # unsigned, so that numba does not check for negative indexes


@scalar
def member_place(item, base, slot, values, at):
    """Offset of the words of a node, or of a predicate that must not hold, or 0 if there are none; ``at`` is free."""
    if item >= 0:
        return place_of(item, slot)
    number = np.uint64(NEGATED - np.int64(item))
    known, holds = place_of(base[number], slot), place_of(number, slot)
    if known == 0 or holds == 0:
        return known
    return at if cut_words(values, at, known, holds) else np.int64(0)


@scalar
def unit_place(first, items, base, slot, values, stack):
    """Evaluate the program at ``first`` on the stack: the offset of its words, or 0 if no event satisfies it."""
    is_and, begun, ends = stack
    i, top = np.uint64(first), U0  # groups are numbered from 1
    while True:
        item = items[i]
        if item < 0 and item > NEGATED:
            top += U1
            is_and[top], begun[top], ends[top] = item == -1 - AND, False, i + np.uint64(2 + items[i + U1])
            i += np.uint64(2)
            continue
        i += U1
        source = member_place(item, base, slot, values, (STACK + np.int64(top)) * WORDS)
        while top > U0:  # the current member goes into its group, which goes into its own once it is complete
            at = (STACK + np.int64(top) - 1) * WORDS
            if source > 0:
                if not begun[top]:
                    or_words(values, at, source, source)
                    begun[top] = True
                elif not is_and[top]:
                    or_words(values, at, at, source)
                elif not and_words(values, at, at, source):
                    source = np.int64(0)
            if is_and[top]:
                if source == 0:
                    i = ends[top]
                else:
                    source = at
            else:
                source = at if begun[top] else np.int64(0)
            if i < ends[top]:
                break
            top -= U1
        if top == U0:
            return source


@scalar
def wake(node, parents, todo, summary):
    """Mark the units that wait for a node."""
    parent_ptr, parent = parents
    for i in range(parent_ptr[node], parent_ptr[node + 1]):
        u = np.uint64(parent[i])
        todo[u >> U6] |= U1 << (u & U63)
        summary[u >> U12] |= U1 << ((u >> U6) & U63)


@scalar
def next_unit(u, units, dense, todo, summary):
    """The next unit after ``u``: any, or the next one that is marked; ``units`` if there is none."""
    if dense:
        return u + 1
    u += 1
    w = u >> 6
    if u < units and todo[w] >> np.uint64(u & 63) != 0:
        return u + np.int64(trailing_zeros(todo[w] >> np.uint64(u & 63)))
    w += 1
    s = w >> 6
    if s < summary.size and summary[s] >> np.uint64(w & 63) != 0:
        w += np.int64(trailing_zeros(summary[s] >> np.uint64(w & 63)))
        return (w << 6) + np.int64(trailing_zeros(todo[w]))
    s += 1
    while s < summary.size and summary[s] == 0:
        s += 1
    if s >= summary.size:
        return units
    w = (s << 6) + np.int64(trailing_zeros(summary[s]))
    return (w << 6) + np.int64(trailing_zeros(todo[w]))


@scalar
def is_dense(live, live_count, parent_ptr, units):
    """Do so many units wait for true nodes that marking them costs more than evaluating all?"""
    waiting = 0
    for i in range(live_count):
        waiting += parent_ptr[live[i] + 1] - parent_ptr[live[i]]
    return waiting > units


@scalar
def emit(row, at, once, values, had, found, links):
    """Add a row to each event that has a bit at ``at``. ``had``: bits of events that already have a shared row.

    The rows of an event lie in chunks: the first is its own, ``following`` leads from one to the next.
    """
    following, cursor, chunks = links
    for w in range(WORDS):
        bits = values[np.uint64(at + w)]
        if once:
            new = bits & ~had[row * WORDS + w]
            had[row * WORDS + w] |= bits
            bits = new
        while bits != 0:
            e = (np.uint64(w) << U6) + trailing_zeros(bits)
            bits &= bits - U1
            here = cursor[e]
            found[here] = row
            here += U1
            if here & (CHUNK - U1) == U0:
                following[(here - U1) // CHUNK] = chunks[0]
                here = chunks[0] * CHUNK
                chunks[0] += U1
            cursor[e] = here


@maker
def gather(events, found, links):
    """Offsets, and the rows of all events in sequence."""
    following, cursor = links[:2]
    offsets = np.zeros(events + 1, np.int64)
    for e in range(events):
        chunk, count = np.uint64(e), 0
        while chunk != cursor[e] // CHUNK:
            chunk = following[chunk]
            count += CHUNK
        offsets[e + 1] = offsets[e] + count + np.int64(cursor[e] & (CHUNK - U1))
    out = np.empty(offsets[-1], np.int32)
    for e in range(events):
        chunk = np.uint64(e)
        for n in range(np.uint64(offsets[e]), np.uint64(offsets[e + 1]), CHUNK):
            for i in range(min(CHUNK, np.uint64(offsets[e + 1]) - n)):
                out[n + i] = found[chunk * CHUNK + i]
            chunk = following[chunk]
    return offsets, out


@maker
def set_always(always, count, state, values):
    """Set the node that is true of all ``count`` events, if there is one; returns the values, which may have moved."""
    if always < 0:
        return values
    values = take_slot(always, state, values)
    for w in range(WORDS):
        left = min(max(count - 64 * w, 0), 64)
        values[np.int64(state[0][always]) * WORDS + w] = ~U0 if left == 64 else (U1 << np.uint64(left)) - U1
    return values


@maker
def sweep(dense, rows, programs, base, sizes, marks, state, values, had, found, links):
    """Evaluate units, and emit the rows of clauses; returns values, found and links, and how many were evaluated."""
    clause_row, once = rows
    unit_ptr, items, parent_ptr, parent = programs
    n_leaves, n_inner, n_events = sizes
    todo, summary = marks
    slot = state[0]
    following, cursor, chunks = links
    stack = (np.empty(NEST + 1, np.bool_), np.empty(NEST + 1, np.bool_), np.empty(NEST + 1, np.uint64))
    evaluated = 0
    units = unit_ptr.size - 1
    u = next_unit(-1, units, dense, todo, summary)
    while u < units:
        row = 0 if u < n_inner else clause_row[u - n_inner]
        at = np.int64(0)
        if row >= 0:
            at = unit_place(unit_ptr[u], items, base, slot, values, stack)
            evaluated += 1
        if at > 0 and u < n_inner:
            values = take_slot(n_leaves + u, state, values)
            or_words(values, place_of(n_leaves + u, slot), at, at)
            if not dense:
                wake(n_leaves + u, (parent_ptr, parent), todo, summary)
        elif at > 0:
            if (np.int64(chunks[0]) + n_events) * ROOM > found.size:
                found, following = grow(found), grow(following)
            emit(row, at, once, values, had, found, (following, cursor, chunks))
        if not dense:
            todo[u >> 6] &= ~(U1 << np.uint64(u & 63))
            if todo[u >> 6] == 0:
                summary[u >> 12] &= ~(U1 << np.uint64((u >> 6) & 63))
        u = next_unit(u, units, dense, todo, summary)
    return values, found, (following, cursor, chunks), evaluated


@maker
def sort_rows(offsets, out, n_rows):
    """Sort the rows of each event."""
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    for e in range(offsets.size - 1):
        sort_unique(out, offsets[e], offsets[e + 1], words, summary)


@maker
def framed_programs(frame):
    """Programs of units, and the units that wait for nodes, of the frame of an index."""
    programs = (framed(frame, 7, np.int64), framed(frame, 8, np.int32))
    return (*programs, framed(frame, 9, np.int64), framed(frame, 10, np.int32))


@driver
def match_atree(events, rows, frame, sizes, scratch):
    """Rows that at most 512 events satisfy, as offsets and rows, ascending and without repeats in an event.

    Clauses with a negative row are skipped. ``scratch`` are slots of nodes and marks of units, all zero before
    and after, and buffers, which are returned, since they may have grown; the one for shared rows is all zero, too.
    """
    clause_row, n_rows, once = rows
    directory, node_ptr, waiting = framed(frame, 0, np.uint64), framed(frame, 1, np.int64), framed(frame, 2, np.int32)
    pieces = (framed(frame, 3, np.int32), framed(frame, 4, np.int32), framed(frame, 5, np.int32))
    base, programs = framed(frame, 6, np.int32), framed_programs(frame)
    n_leaves, n_inner, always = sizes
    slot, live, todo, summary, values, found, had = scratch
    n_events = events[0].size - 1
    state = (slot, live, np.zeros(1, np.int64))
    live_count = state[2]
    while found.size < 2 * n_events * ROOM:
        found = grow(found)
    following, chunks = np.empty(found.size // ROOM, np.uint64), np.full(1, n_events, np.uint64)
    cursor = np.arange(n_events).astype(np.uint64) * CHUNK
    links = (following, cursor, chunks)
    values = set_always(always, n_events, state, values)
    values = set_leaves(events, directory, (node_ptr, waiting), pieces, state, values)
    dense = is_dense(live, live_count[0], programs[2], programs[0].size - 1)
    if not dense:
        for i in range(live_count[0]):
            wake(live[i], programs[2:], todo, summary)
    if once and had.size < n_rows * WORDS:
        had = np.zeros(n_rows * WORDS, np.uint64)
    counts = (n_leaves, n_inner, n_events)
    values, found, links, evaluated = sweep(
        dense, (clause_row, once), programs, base, counts, (todo, summary), state, values, had, found, links
    )
    for i in range(live_count[0]):
        slot[live[i]] = 0
    offsets, out = gather(n_events, found, links)
    if once:
        sort_rows(offsets, out, n_rows)
        for row in out:
            for w in range(row * WORDS, (row + 1) * WORDS):
                had[w] = U0
    return offsets, out, (values, found, had), evaluated
