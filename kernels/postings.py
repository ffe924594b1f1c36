"""Postings by (attribute, level, block), and matching of events through them.

The codes of an attribute, cut to cells, are the leaves of a binary tree in heap order. A clause hangs on the blocks
that its access predicate covers; an event visits one block per level. A posting is 12 bytes: four for one more of the
clause's predicates, rounded outward to 8-bit cells, which are read for all postings of a block and rule out most of
them; and eight for the clause and a second such predicate, read if the first one held.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch, trailing_zeros
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.frames import framed, framed_table
from gpumatch.kernels.predicates import clause_holds, program_holds
from gpumatch.kernels.rows import START, grow, sort_unique
from gpumatch.opcodes import ANY, HI, KIND, LO, RANGE, SET, WIDTH

ABSENT = 0xFF  # the cell of an attribute that the event lacks: outside every filter
ANYTHING = np.uint32(0xFF00_0000)  # a filter that everything passes, even ABSENT
FILTERED = 0xFFFF  # attributes from here on do not fit in a filter
COMPLETE = np.uint64(0x8000_0000)  # mark of a posting's clause: nothing is left to verify
CLAUSE = 0x7FFF_FFFF
BELOW = np.uint64(0xFFFF_FFFF)
U0, U1, U16, U32, LOW16 = np.uint64(0), np.uint64(1), np.uint64(16), np.uint64(32), np.uint64(0xFFFF)
AHEAD = 16  # memory is prefetched this many candidates ahead
LEVELS = 32  # more levels than a tree of int32 codes has
SPREAD = 3  # a range is cut into blocks no finer than 1/2**SPREAD of its width, and rounded outward to them
MANY = 64  # a set of more ranges than this hangs on the blocks of its hull
LINE = 3  # numbers per line of compounds: owner, partner, first group
CELLS = 0xFE  # a filter's cells are 0 .. CELLS - 1: the two above mean never and absent
BLOCKS = 2048  # more blocks than one access predicate can have: MANY ranges of 2 * (SPREAD + 2) blocks


@scalar
def cut_blocks(first, last, levels, base, nodes, n):
    """Nodes of the dyadic blocks that cover cells ``first..last``: their number, and whether they cover no more."""
    shift = 0
    while ((last - first + 1) >> (shift + 1 + SPREAD)) > 0:
        shift += 1
    lo = first >> shift
    hi = last >> shift
    exact = (lo << shift) == first and ((hi + 1) << shift) == last + 1
    level = levels - shift
    while lo <= hi:
        if lo & 1:
            nodes[n] = base + (1 << level) - 1 + lo
            n += 1
            lo += 1
        if lo <= hi and not hi & 1:
            nodes[n] = base + (1 << level) - 1 + hi
            n += 1
            hi -= 1
        lo >>= 1
        hi >>= 1
        level -= 1
    return n, exact


@scalar
def access_blocks(p, predicates, directory, nodes):
    """Nodes that the predicate at ``p`` hangs on; returns their number and whether they cover exactly its codes."""
    predicate, range_lo, range_hi = predicates
    node_base, node_levels, node_shift = directory
    a, lo, hi = predicate[p], predicate[p + LO], predicate[p + HI]
    shift = node_shift[a]
    if predicate[p + KIND] == RANGE:
        n, exact = cut_blocks(lo >> shift, hi >> shift, node_levels[a], node_base[a], nodes, 0)
        return n, exact and shift == 0
    if hi - lo > MANY:
        first = range_lo[lo] >> shift
        last = range_hi[hi - 1] >> shift
        n, exact = cut_blocks(first, last, node_levels[a], node_base[a], nodes, 0)
        return n, False
    n = 0
    all_exact = shift == 0
    for i in range(lo, hi):
        n, exact = cut_blocks(range_lo[i] >> shift, range_hi[i] >> shift, node_levels[a], node_base[a], nodes, n)
        all_exact = all_exact and exact
    return n, all_exact


@driver
def find_access(clause_ptr, predicate, start, access):
    """Position of the first predicate of each clause from ``start`` on that a posting can hang on; others are kept."""
    for c in range(start, access.size):
        for p in range(WIDTH * clause_ptr[c], WIDTH * clause_ptr[c + 1], WIDTH):
            if predicate[p + KIND] <= ANY:
                access[c] = p
                break


@driver
def count_postings(access, predicates, directory, node_count):
    """Adds to ``node_count[node + 1]`` the number of postings of each node."""
    nodes = np.empty(BLOCKS, np.int64)
    for c in range(access.size):
        if access[c] >= 0:
            n, _ = access_blocks(access[c], predicates, directory, nodes)
            for i in range(n):
                node_count[nodes[i] + 1] += 1


@scalar
def make_filter(p, predicates, cell_shift):
    """The predicate as 32 bits: attribute, first cell, width of its cells; and whether these decide it."""
    predicate, range_lo, range_hi = predicates
    a, first, last = predicate[p], predicate[p + LO], predicate[p + HI]
    is_range = predicate[p + KIND] == RANGE
    if not is_range:
        first, last = range_lo[first], range_hi[last - 1]
    shift = cell_shift[a]
    if last < first:  # nothing satisfies it: no cell is that high
        return np.uint32(a | ((ABSENT - 1) << 16)), True
    first >>= shift
    return np.uint32(a | (first << 16) | (((last >> shift) - first) << 24)), is_range and shift == 0


@scalar
def make_posting(clause, access, exact, bare, clause_ptr, has_program, predicates, multi, cells):
    """Filter and head of a clause's posting, which hangs on one predicate, or on two in a group: ``access``.

    The filters are its most selective predicates; one that it hangs on is among them only if there is just a ``bare``
    root, not a tree. ``exact``: do the blocks that it hangs on decide each of these two?
    """
    predicate = predicates[0]
    cell_shift, local, local_exact = cells
    one = two = ANYTHING
    filters = 0
    undecided = 0
    for p in range(WIDTH * clause_ptr[clause], WIDTH * clause_ptr[clause + 1], WIDTH):
        a = predicate[p]
        hung = p == access[0] or p == access[1]
        decided = (p == access[0] and exact[0]) or (p == access[1] and exact[1])
        fits = predicate[p + KIND] <= SET and not multi[a] and a < FILTERED and (bare or not hung)
        if fits and not decided and filters < 2:
            made, decided = local[p // WIDTH], local_exact[p // WIDTH]
            if made == 0:
                made, decided = make_filter(p, predicates, cell_shift)
            if filters == 0:
                one = made
            else:
                two = made
            filters += 1
        undecided += not decided
    head = np.uint64(clause) | (np.uint64(two) << U32)
    if undecided == 0 and not has_program:
        head |= COMPLETE
    return one, head


@driver
def fill_postings(access, parts, clauses, predicates, directory, multi, cells, node_next, postings):
    """Write the postings; ``node_next`` is where each node's next one goes.

    Ranges in groups follow all other predicates; ``parts`` are the two that each stands for. ``cells``: how codes
    are shifted to those of filters; and filters of predicates in groups, 0 for others, and whether they are exact.
    """
    clause_ptr, clause_program = clauses
    filters, heads = postings
    own = predicates[0].size - 2 * parts.size  # a range has WIDTH numbers, and two parts
    nodes = np.empty(BLOCKS, np.int64)
    for c in range(access.size):
        p = access[c]
        if p < 0:
            continue
        n, exact = access_blocks(p, predicates, directory, nodes)
        grouped = p >= own
        at = (p - own) >> 1 if grouped else 0
        hung = (parts[at], parts[at + 1]) if grouped else (p, p)
        one, head = make_posting(
            c,
            hung,
            (exact or grouped, exact),
            directory[1][predicates[0][p]] == 0,
            clause_ptr,
            clause_program[c] >= 0,
            predicates,
            multi,
            cells,
        )
        for i in range(n):
            at = node_next[nodes[i]]
            filters[at] = one
            heads[at] = head
            node_next[nodes[i]] = at + 1


@scalar
def spread(events, e, multi, cell_shift, row, cell):
    """Spread event ``e`` over the dense row of codes (for a list: the index of its first entry) and of cells."""
    entry_ptr, entry_attribute, entry_code = events
    for i in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
        a = entry_attribute[i]
        row[a] = i if multi[a] else entry_code[i]
        cell[a] = entry_code[i] >> cell_shift[a]


@scalar
def clear(events, e, row, cell):
    """Take back what ``spread`` has set."""
    entry_ptr, entry_attribute, _ = events
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        row[entry_attribute[i]] = -1
        cell[entry_attribute[i]] = ABSENT


@scalar
def in_filter(filter, cell):
    """Is a cell among the filter's? Cells wrap around, so that ABSENT is too far for all but ANYTHING."""
    return np.uint8(cell - np.uint8(filter >> 16)) <= np.uint8(filter >> 24)


@scalar
def passes(filter, cell):
    """Does the event, given its cells by attribute, pass the filter?"""
    return in_filter(filter, cell[np.uint64(filter) & LOW16])


@scalar
def block_node(base, levels, level, leaf):
    """The node of a leaf's block at a level, in a tree of ``levels`` levels below the root ``base``."""
    return base + (1 << level) - 1 + (leaf >> (levels - level))


@scalar
def filter_postings(filters, first, last, cell, found, k):
    """Append the postings in ``first:last`` whose first filter the event passes to ``found[:k]``."""
    n = np.uint64(k)
    for q in range(np.uint64(first), np.uint64(last)):  # unsigned, so that numba does not check for negative indexes
        found[n] = np.int64(q)
        n += U1 if passes(filters[q], cell) else U0
    return np.int64(n)


@scalar
def reach_entry(attribute, code, directory, node_ptr, firsts, lasts, n):
    """Append the runs of postings that a value reaches, one per level, to ``firsts[:n]`` and ``lasts[:n]``."""
    d = 2 * np.int64(attribute)
    base = np.int64(directory[d])
    facts = directory[d + 1]
    mask = facts >> U32
    levels = np.int64((facts >> U16) & LOW16)
    leaf = np.int64(code) >> np.int64(facts & LOW16)
    while mask != 0:
        level = np.int64(trailing_zeros(mask))
        mask &= mask - U1
        node = block_node(base, levels, level, leaf)
        firsts[n] = node_ptr[node]
        lasts[n] = node_ptr[node + 1]
        n += lasts[n] > firsts[n]
    return n


@scalar
def group_code(code, first, last, cuts):
    """The code in a group for a code of its partner: the last of the cuts ``first:last`` that is not above it."""
    low, high = first, last  # the first cut is 0
    while high - low > 1:
        middle = (low + high) >> 1
        if cuts[middle] <= code:
            low = middle
        else:
            high = middle
    return low - first


@scalar
def group_shift(size):
    """How far codes of a group of ``size`` codes are shifted to 8-bit cells."""
    shift = 0
    while size > (CELLS << shift):
        shift += 1
    return shift


@scalar
def reach(events, e, directory, node_ptr, firsts, lasts):
    """Runs of postings that event ``e`` reaches, one per level and entry; returns how many are not empty.

    Finding them all before reading any lets the memory system fetch them in parallel.
    """
    entry_ptr, entry_attribute, entry_code = events
    n = 0
    for i in range(entry_ptr[e], entry_ptr[e + 1]):
        n = reach_entry(entry_attribute[i], entry_code[i], directory, node_ptr, firsts, lasts, n)
    return n


@scalar
def find_group(line, start, rows, lines, group_ptr, cuts):
    """The group of an event in a line, its code there, and its cell; -1 for no group.

    The event's codes by attribute are in ``rows`` from ``start`` on.
    """
    owner, partner = rows[start + lines[LINE * line]], rows[start + lines[LINE * line + 1]]
    if owner < 0 or partner < 0:
        return np.int64(-1), np.int64(0), np.uint8(ABSENT)
    group = np.int64(lines[LINE * line + 2]) + np.int64(owner)
    first, last = np.int64(group_ptr[group]), np.int64(group_ptr[group + 1])
    if first == last:
        return np.int64(-1), np.int64(0), np.uint8(ABSENT)
    code = group_code(partner, first, last, cuts)
    return group, code, np.uint8(code >> group_shift(last - first))


@scalar
def reach_groups(row, compounds, directory, node_ptr, cell, firsts, lasts, n):
    """The same for an event's groups, appended; its codes there become cells, like those of attributes."""
    lines, group_ptr, cuts = compounds
    for line in range(lines.size // LINE):
        group, code, cell[row.size + line] = find_group(line, 0, row, lines, group_ptr, cuts)
        if group >= 0:
            n = reach_entry(row.size + group, code, directory, node_ptr, firsts, lasts, n)
    return n


@scalar
def ask_for_runs(runs, firsts, lasts, filters):
    """Prefetch the first postings of these runs; returns how many postings they have."""
    count = 0
    for r in range(runs):
        prefetch(filters, firsts[r])
        count += lasts[r] - firsts[r]
    return count


@scalar
def filter_runs(runs, firsts, lasts, filters, heads, cell, found):
    """Heads of the postings in these runs whose filters the event passes, into a buffer with room; their number."""
    k = 0
    for r in range(runs):
        k = filter_postings(filters, firsts[r], lasts[r], cell, found, k)
    kept = 0
    for i in range(k):
        if i + AHEAD < k:
            prefetch(heads, found[i + AHEAD])
        head = heads[found[i]]
        found[kept] = np.int64(head & BELOW)
        kept += passes(np.uint32(head >> U32), cell)
    return kept


@scalar
def ask_for_row(first, predicate):
    """Prefetch the predicates of a clause: the cache line of the first one and the next."""
    prefetch(predicate, WIDTH * first)
    prefetch(predicate, WIDTH * first + 16)


@scalar
def verify(events, e, once, had, found, k, rest, row, clauses, predicates, programs, presence, stack, out, n):
    """Append to ``out[:n]`` the rows of the heads ``found[:k]`` and of ``rest`` that event ``e`` satisfies.

    Programs are evaluated at the end, in a loop of their own: in the first one they would slow down all clauses.
    Clauses that wait for it are kept in ``found``, which has room for the rest, too.
    """
    event = (events[0][e + 1], events[1], events[2])
    clause_row, clause_ptr, clause_program = clauses
    program_ptr, program_item, predicate = programs[0], programs[1], predicates[0]
    for i in range(min(2 * AHEAD, k)):
        prefetch(clause_ptr, found[i] & CLAUSE)
    for i in range(min(AHEAD, k)):
        ask_for_row(clause_ptr[found[i] & CLAUSE], predicate)
    waiting = 0
    for i in range(k + rest.size):
        if i + 2 * AHEAD < k:
            prefetch(clause_ptr, found[i + 2 * AHEAD] & CLAUSE)
        if i + AHEAD < k:
            ask_for_row(clause_ptr[found[i + AHEAD] & CLAUSE], predicate)
        head = found[i] if i < k else np.int64(rest[i - k])
        c = head & CLAUSE
        if once and (clause_row[c] < 0 or had[clause_row[c]] == e):
            continue
        if head == c:
            if not clause_holds(c, row, event, clause_ptr, predicates):
                continue
            if clause_program[c] >= 0:
                found[waiting] = c
                waiting += 1
                continue
        out[n] = clause_row[c]
        n += 1
        if once:
            had[clause_row[c]] = e
    for i in range(waiting):
        c = found[i]
        if once and had[clause_row[c]] == e:
            continue
        if program_holds(clause_program[c], row, event, predicates, program_ptr, program_item, presence, stack):
            out[n] = clause_row[c]
            n += 1
            if once:
                had[clause_row[c]] = e
    return n


@maker
def framed_index(frame):
    """Attributes, compounds, the directory, postings and clauses without any of the frame of an index."""
    attributes = (framed(frame, 0, np.bool_), framed(frame, 1, np.int32), framed(frame, 2, np.uint8))
    compounds = (framed(frame, 3, np.int32), framed(frame, 4, np.int32), framed(frame, 5, np.int32))
    postings = (framed(frame, 7, np.int64), framed(frame, 8, np.uint32), framed(frame, 9, np.uint64))
    return attributes, compounds, framed(frame, 6, np.uint64), postings, framed(frame, 10, np.int32)


@driver
def match_postings(events, n_rows, once, frame, table, deepest):
    """Rows that events satisfy, as offsets and rows, ascending and without repeats in an event.

    Clauses with a negative row are skipped, and with ``once`` those whose row the event has already.
    """
    entry_ptr = events[0]
    (multi, presence, cell_shift), compounds, directory, (node_ptr, filters, heads), rest = framed_index(frame)
    clauses, predicates, programs = framed_table(table, deepest)
    row = np.full(multi.size, -1, np.int32)
    cell = np.full(multi.size + compounds[0].size // LINE, ABSENT, np.uint8)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    stack = np.empty(deepest + 1, np.uint8)
    found = np.empty(START, np.int64)
    firsts = np.empty(START, np.int64)
    lasts = np.empty(START, np.int64)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets = np.zeros(entry_ptr.size, np.int64)
    out = np.empty(max(START, 4 * entry_ptr.size), np.int32)
    n = 0
    for e in range(entry_ptr.size - 1):
        while firsts.size < LEVELS * (entry_ptr[e + 1] - entry_ptr[e] + compounds[0].size // LINE):
            firsts = grow(firsts)
            lasts = grow(lasts)
        spread(events, e, multi, cell_shift, row, cell)
        runs = reach(events, e, directory, node_ptr, firsts, lasts)
        runs = reach_groups(row, compounds, directory, node_ptr, cell, firsts, lasts, runs)
        room = ask_for_runs(runs, firsts, lasts, filters) + rest.size
        while found.size < room:
            found = grow(found)
        k = filter_runs(runs, firsts, lasts, filters, heads, cell, found)
        while out.size - n < k + rest.size:
            out = grow(out)
        last = verify(events, e, once, had, found, k, rest, row, clauses, predicates, programs, presence, stack, out, n)
        clear(events, e, row, cell)
        n = sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n]


@driver
def match_rest(events, n_rows, once, attributes, rest, clauses, predicates, programs):
    """The same without postings: all clauses are tested. It compiles quickly, for users with few clauses."""
    entry_ptr = events[0]
    multi, presence, cell_shift = attributes
    row, cell = np.full(multi.size, -1, np.int32), np.full(multi.size, ABSENT, np.uint8)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    stack = np.empty(programs[2] + 1, np.uint8)
    found = np.empty(rest.size, np.int64)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets = np.zeros(entry_ptr.size, np.int64)
    out = np.empty(rest.size + 4 * entry_ptr.size, np.int32)
    n = 0
    for e in range(entry_ptr.size - 1):
        spread(events, e, multi, cell_shift, row, cell)
        while out.size - n < rest.size:
            out = grow(out)
        last = verify(events, e, once, had, found, 0, rest, row, clauses, predicates, programs, presence, stack, out, n)
        clear(events, e, row, cell)
        n = sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n]


@driver
def pack_directory(directory, node_ptr, packed):
    """Two words per attribute, side by side for matching: root node; levels with postings, levels in all, shift."""
    node_base, node_levels, node_shift = directory
    for a in range(node_base.size):
        mask = np.uint64(0)
        for level in range(node_levels[a] + 1):
            first = node_base[a] + (1 << level) - 1
            if node_ptr[first + (1 << level)] > node_ptr[first]:
                mask |= U1 << np.uint64(level)
        packed[2 * a] = np.uint64(node_base[a])
        packed[2 * a + 1] = (mask << U32) | (np.uint64(node_levels[a]) << U16) | np.uint64(node_shift[a])
