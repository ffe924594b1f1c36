"""TAMA's tables: every predicate of a clause hangs on the cells of its codes, and matching counts the hits.

The codes of an attribute, cut to finest cells, are the leaves of a binary tree. Four of its levels are side by side in
*bricks* of 15 nodes and an unused one: 64 bytes of pointers, whose postings are neighbours, too. An event reads one
brick for four levels. Predicates of single codes hang on a table of codes if cells are coarser.

A posting is a clause and a mark of doubt: the cell reaches beyond the predicate. In lists of multi-valued attributes it
is the number of a predicate instead: several values may hit that, but it counts once.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch, trailing_zeros
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.predicates import satisfies
from gpumatch.kernels.rows import START, append_row, grow, is_had, sort_unique
from gpumatch.opcodes import ANY, HI, KIND, LO, RANGE, WIDTH

# Words per attribute in the directory: first node, heights with postings and shift of codes to finest cells, last
# finest cell, first node of the table of codes (or -1).
BASE, FACTS, TOP, CODES = 0, 1, 2, 3
WORDS = 4
BRICK = 16
MOST = 127  # most predicates of a clause that are counted; further ones are verified
LEFT = 0x7F  # bits of a counter for the hits still missing; the bit above is set if a hit is in doubt
HEIGHTS = 0xFFFF_FFFF
CELLS = 80  # more than a range can have: two per level, and two in doubt
LOOKUPS = 34  # at least the nodes that one value reads
PADDING = 4  # postings are copied this many at a time, so the array has as many more after the last one
AHEAD = 16  # memory is prefetched this many reads ahead


@scalar
def finest(code, a, shift, line):
    """The finest cell of a code: from the attribute's table of cells if it has one, else its leading bits."""
    cell_ptr, cells = line
    if cells.size > 0 and cell_ptr[a + 1] > cell_ptr[a]:
        return np.int64(cells[cell_ptr[a] + code])
    return np.int64(code) >> shift


@scalar
def node_at(base, top, height, cell):
    """The node of a cell ``height`` levels above the finest."""
    while height >= 4:
        base += BRICK * ((top >> 3) + 1)
        top >>= 4
        height -= 4
    width = 8 >> height
    return base + BRICK * (cell >> (3 - height)) + width - 1 + (cell & (width - 1))


@scalar
def whole_cells(first, last, a, directory, nodes, n):
    """Append to ``nodes[:n]`` the nodes of the largest cells that make up the finest ones ``first..last``."""
    base, top = directory[WORDS * a + BASE], directory[WORDS * a + TOP]
    heights = 0
    height = 0
    if last == top:  # nothing follows: round up to a power of two of cells, which makes larger ones
        while last & (last + 1):
            last |= last + 1
    while first <= last:
        if first & 1:
            if first << height <= top:
                nodes[n] = node_at(base, top, height, first)
                n += 1
                heights |= 1 << height
            first += 1
        if first <= last and not last & 1:
            nodes[n] = node_at(base, top, height, last)
            n += 1
            heights |= 1 << height
            last -= 1
        first >>= 1
        last >>= 1
        height += 1
    directory[WORDS * a + FACTS] |= heights
    return n


@scalar
def cut_range(lo, hi, count, before, a, directory, line, nodes):
    """Nodes of the cells that cover codes ``lo..hi`` of ``count``: the number in doubt, which come first, and of all.

    Also returns the finest cell that the range ends within, or -1. The predicate's next range may share it and gets it
    as ``before``: it must not hang there twice.
    """
    base, top = directory[WORDS * a + BASE], directory[WORDS * a + TOP]
    shift = directory[WORDS * a + FACTS] >> 32
    first, last = finest(lo, a, shift, line), finest(hi, a, shift, line)
    opens = lo == 0 or finest(lo - 1, a, shift, line) != first
    closes = hi == count - 1 or finest(hi + 1, a, shift, line) != last
    doubtful = 0
    if not opens and first != before:
        nodes[doubtful] = node_at(base, top, 0, first)
        doubtful += 1
    if not closes and last != before and (opens or last != first):
        nodes[doubtful] = node_at(base, top, 0, last)
        doubtful += 1
    if doubtful > 0:
        directory[WORDS * a + FACTS] |= 1
    n = whole_cells(first + (not opens), last - (not closes), a, directory, nodes, doubtful)
    return doubtful, n, -1 if closes else last


@scalar
def ranges_of(p, predicate):
    """Where the ranges of the predicate at ``p`` are, from first to last; a RANGE is its own only range."""
    if predicate[p + KIND] == RANGE:
        return 0, 1
    return predicate[p + LO], predicate[p + HI]


@scalar
def range_at(p, r, predicates):
    predicate, range_lo, range_hi = predicates
    if predicate[p + KIND] == RANGE:
        return predicate[p + LO], predicate[p + HI]
    return range_lo[r], range_hi[r]


@scalar
def is_single(p, predicates):
    """Does each range of the predicate at ``p`` have at most one code?"""
    first, last = ranges_of(p, predicates[0])
    for r in range(first, last):
        lo, hi = range_at(p, r, predicates)
        if lo < hi:
            return False
    return True


@driver
def find_singles(first, last, clause_ptr, predicates, found):
    """Marks attributes with a predicate of single codes in one of the clauses."""
    predicate = predicates[0]
    for p in range(WIDTH * clause_ptr[first], WIDTH * clause_ptr[last], WIDTH):
        if predicate[p + KIND] <= ANY and not found[predicate[p]]:
            found[predicate[p]] = is_single(p, predicates)


@scalar
def counted(clause, clause_ptr, predicate):
    """How many predicates of a clause are counted, and whether these are all."""
    n = 0
    for p in range(WIDTH * clause_ptr[clause], WIDTH * clause_ptr[clause + 1], WIDTH):
        n += predicate[p + KIND] <= ANY
    n = min(n, MOST)
    return n, n == clause_ptr[clause + 1] - clause_ptr[clause]


@scalar
def hang(p, posting, verify, predicates, counts, directory, line, nodes, node_next, postings):
    """Write the postings of the predicate at ``p``, or only count them if there is no room for any."""
    a = predicates[0][p]
    table = directory[WORDS * a + CODES]
    single = table >= 0 and is_single(p, predicates)
    before = np.int64(-1)
    first, last = ranges_of(p, predicates[0])
    for r in range(first, last):
        lo, hi = range_at(p, r, predicates)
        if lo > hi:
            continue
        doubtful, n = 0, 1
        if single:
            nodes[0] = table + lo
        else:
            doubtful, n, before = cut_range(lo, hi, counts[a], before, a, directory, line, nodes)
        for i in range(n):
            if postings.size > 0:
                postings[node_next[nodes[i]]] = posting | (verify and i < doubtful)
            node_next[nodes[i]] += 1


@driver
def hang_clauses(first, last, verify, clauses, predicates, multi, counts, directory, line, node_next, postings, sums):
    """Hang all predicates of the clauses ``first:last``. Without room for postings this counts them by node.

    ``sums`` are also filled: how many hits each clause needs, and the clause of each predicate on a list attribute.
    Postings are in doubt if ``verify`` is on and their cell reaches too far, or if more of the clause must be checked.
    """
    clause_ptr, clause_program = clauses
    needed, owner = sums
    nodes = np.empty(CELLS, np.int64)
    lists = 0
    for c in range(first, last):
        left, complete = counted(c, clause_ptr, predicates[0])
        needed[c - first] = left
        doubt = not complete or clause_program[c] >= 0
        p = WIDTH * clause_ptr[c]
        while left > 0:
            if predicates[0][p + KIND] <= ANY:
                number = c - first
                if multi[predicates[0][p]]:
                    number = lists
                    if lists < owner.size:
                        owner[lists] = c - first
                    lists += 1
                posting = (np.int64(number) << 1) | doubt
                hang(p, posting, verify, predicates, counts, directory, line, nodes, node_next, postings)
                left -= 1
            p += WIDTH
    return lists


@scalar
def widest(entry_ptr):
    """The most entries that an event has."""
    most = 0
    for e in range(entry_ptr.size - 1):
        most = max(most, entry_ptr[e + 1] - entry_ptr[e])
    return most


@scalar
def look_up(events, e, multi, directory, line, node_ptr, nodes):
    """Nodes that event ``e`` reads: those of lists from the end of ``nodes``, all others from its start."""
    entry_ptr, entry_attribute, entry_code = events
    n = 0
    back = nodes.size
    if e + 1 == entry_ptr.size:  # there is no such event
        return n, back
    end = entry_ptr[e + 1]
    for i in range(entry_ptr[e], end):
        if i + AHEAD < end:
            prefetch(directory, WORDS * np.int64(entry_attribute[i + AHEAD]))
        a = np.int64(entry_attribute[i])
        base, facts = directory[WORDS * a + BASE], directory[WORDS * a + FACTS]
        top, table = directory[WORDS * a + TOP], directory[WORDS * a + CODES]
        cell = finest(entry_code[i], a, facts >> 32, line)
        heights = np.uint64(facts & HEIGHTS)
        start = n
        if table >= 0:
            nodes[n] = table + entry_code[i]
            prefetch(node_ptr, nodes[n])
            n += 1
        while heights != 0:
            brick = base + BRICK * (cell >> 3)
            some = heights & np.uint64(15)
            if some != 0:
                prefetch(node_ptr, brick)
            while some != 0:
                height = np.int64(trailing_zeros(some))
                some &= some - np.uint64(1)
                nodes[n] = brick + (8 >> height) - 1 + ((cell & 7) >> height)
                n += 1
            base += BRICK * ((top >> 3) + 1)
            top >>= 4
            cell >>= 4
            heights >>= np.uint64(4)
        if multi[a]:
            while n > start:
                n -= 1
                back -= 1
                nodes[back] = nodes[n]
    return n, back


@scalar
def fetch(nodes, first, last, node_ptr, postings, lasts):
    """Turn ``nodes[first:last]`` into starts of runs of postings and ``lasts`` into their ends, leaving out empty ones.

    Returns where the runs now end, and how many postings they have.
    """
    n = first
    total = 0
    for i in range(first, last):
        start, end = np.int64(node_ptr[nodes[i]]), np.int64(node_ptr[nodes[i] + 1])
        prefetch(postings, start)
        nodes[n] = start
        lasts[n] = end
        n += end > start
        total += end - start
    return n, total


@scalar
def gather(first, last, firsts, lasts, postings, hits, n):
    """Append runs of postings to ``hits[:n]``, four at a time: most are shorter, and the next one hides the excess."""
    for r in range(first, last):
        end = n + lasts[r] - firsts[r]
        for q in range(firsts[r], lasts[r], PADDING):
            for i in range(PADDING):
                hits[n + i] = postings[q + i]
            n += PADDING
        n = end


@scalar
def count_hits(hits, n, counter, found):
    """Count down the clauses of ``hits[:n]``. Those with all hits that they need are ``found``, with any doubt."""
    k = 0
    for i in range(n):
        hit = np.int64(hits[i])
        left = (np.int64(counter[hit >> 1]) - 1) | ((hit & 1) << 7)
        counter[hit >> 1] = left
        found[k] = (hit & -2) | (left >> 7)
        k += (left & LEFT) == 0
    return k


@scalar
def count_lists(hits, first, last, owner, had, counter, found, k):
    """As ``count_hits``, for predicates on list attributes that no value hit before: appends to ``found[:k]``."""
    for i in range(first, last):
        hit = np.int64(hits[i])
        if had[hit >> 1]:
            continue
        had[hit >> 1] = True
        c = np.int64(owner[hit >> 1])
        left = (np.int64(counter[c]) - 1) | ((hit & 1) << 7)
        counter[c] = left
        found[k] = 2 * c + (left >> 7)
        k += (left & LEFT) == 0
    return k


@scalar
def restore(hits, singles, n, owner, had, counter):
    """Count up again what was counted down, so that no trace of the event is left."""
    for i in range(singles):
        c = hits[i] >> 1
        counter[c] = (counter[c] + 1) & LEFT
    for i in range(singles, n):
        number = hits[i] >> 1
        if had[number]:
            had[number] = False
            c = owner[number]
            counter[c] = (counter[c] + 1) & LEFT


@scalar
def holds(c, row, event, clauses, predicates, programs):
    """Does the event satisfy the clause and its program?"""
    program_ptr, program_item, presence, stack = programs
    return satisfies(c, row, event, clauses[1], clauses[2], predicates, program_ptr, program_item, presence, stack)


@scalar
def settle(e, once, start, found, k, rest, had, row, event, clauses, predicates, programs, out, last):
    """Append to ``out[:last]`` the rows of ``found[:k]`` and ``rest`` that event ``e`` satisfies.

    Certain ones come first: with ``once`` they may save the others a check.
    """
    clause_row = clauses[0]
    doubtful = 0
    for i in range(k):
        c = start + (found[i] >> 1)
        if found[i] & 1:
            found[doubtful] = c
            doubtful += 1
        elif not is_had(clause_row[c], e, once, had):
            last = append_row(clause_row[c], e, once, had, out, last)
    for i in range(doubtful + rest.size):
        if i + AHEAD < doubtful:
            prefetch(clauses[1], found[i + AHEAD])
            prefetch(predicates[0], WIDTH * clauses[1][found[i + AHEAD // 2]])
        c = found[i] if i < doubtful else np.int64(rest[i - doubtful])
        if is_had(clause_row[c], e, once, had):
            continue
        if holds(c, row, event, clauses, predicates, programs):
            last = append_row(clause_row[c], e, once, had, out, last)
    return last


@driver
def match_tables(events, start, n_rows, once, check, attributes, directory, line, tables, clauses, predicates, program):
    """Rows that events satisfy, as offsets and rows, ascending and without repeats in an event; and how many are false.

    Clauses with a negative row are skipped, and with ``once`` those whose row the event has already. False
    rows are counted only for the events to ``check``.
    """
    entry_ptr, entry_attribute, entry_code = events
    multi, presence = attributes
    node_ptr, postings, needed, owner, rest = tables
    programs = (program[0], program[1], presence, np.empty(program[2] + 1, np.uint8))
    row = np.full(multi.size, -1, np.int32)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    counter = needed.copy()
    had_list = np.zeros(owner.size, np.bool_)
    had = np.full(n_rows if once else 0, -1, np.int32)
    hits = np.empty(START, np.uint32)
    found = np.empty(START, np.int64)
    room = LOOKUPS * widest(entry_ptr)
    firsts = np.empty(room, np.int64)
    nexts = np.empty(room, np.int64)
    lasts = np.empty(room, np.int64)
    offsets = np.zeros(entry_ptr.size, np.int64)
    out = np.empty(max(START, 4 * entry_ptr.size), np.int32)
    false = np.zeros(entry_ptr.size - 1, np.int64)
    n = 0
    runs, back = look_up(events, 0, multi, directory, line, node_ptr, firsts)
    for e in range(entry_ptr.size - 1):
        event = (entry_ptr[e + 1], entry_attribute, entry_code)
        for i in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
            row[entry_attribute[i]] = i if multi[entry_attribute[i]] else entry_code[i]
        runs, total = fetch(firsts, 0, runs, node_ptr, postings, lasts)
        end, more = fetch(firsts, back, room, node_ptr, postings, lasts)
        later = look_up(events, e + 1, multi, directory, line, node_ptr, nexts)  # while postings are on their way
        while hits.size < total + more + PADDING:
            hits = grow(hits)
            found = grow(found)
        gather(0, runs, firsts, lasts, postings, hits, 0)
        gather(back, end, firsts, lasts, postings, hits, total)
        firsts, nexts = nexts, firsts
        runs, back = later
        k = count_hits(hits, total, counter, found)
        k = count_lists(hits, total, total + more, owner, had_list, counter, found, k)
        restore(hits, total, total + more, owner, had_list, counter)
        while out.size - n < k + rest.size:
            out = grow(out)
        if check[e]:  # first with everything found in doubt
            doubted = found[:k] | 1
            last = settle(e, once, start, doubted, k, rest, had, row, event, clauses, predicates, programs, out, n)
            false[e] = n - sort_unique(out, n, last, words, summary)
        last = settle(e, once, start, found, k, rest, had, row, event, clauses, predicates, programs, out, n)
        for i in range(entry_ptr[e], entry_ptr[e + 1]):
            row[entry_attribute[i]] = -1
        last = sort_unique(out, n, last, words, summary)
        if check[e]:
            false[e] += last - n
        n = last
        offsets[e + 1] = n
    return offsets, out[:n], false
