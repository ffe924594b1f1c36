"""Match-Ladder: clauses wait at their first predicate, and climb as long as predicates hold."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch
from gpumatch.kernels.compile import driver, maker, scalar
from gpumatch.kernels.postings import AHEAD, BLOCKS, LEVELS, access_blocks, reach
from gpumatch.kernels.predicates import predicate_holds, program_holds
from gpumatch.kernels.rows import START, append_row, grow, is_had, sort_unique
from gpumatch.opcodes import WIDTH


@driver
def fill_firsts(access, predicates, directory, node_next, waiting):
    """Write each clause to the nodes of its access predicate; ``node_next`` is where a node's next one goes."""
    nodes = np.empty(BLOCKS, np.int64)
    for c in range(access.size):
        if access[c] >= 0:
            n, _ = access_blocks(access[c], predicates, directory, nodes)
            for i in range(n):
                waiting[node_next[nodes[i]]] = c
                node_next[nodes[i]] += 1


@scalar
def climb(clause, row, event, clause_ptr, predicates):
    """How many predicates of the clause hold before one fails, or before the end."""
    first, last = clause_ptr[clause], clause_ptr[clause + 1]
    for i in range(first, last):
        if not predicate_holds(WIDTH * i, row, event, predicates):
            return i - first
    return last - first


@scalar
def spread_codes(events, e, multi, row):
    """Spread event ``e`` over the dense row of codes, or of indexes of lists' first entries."""
    entry_ptr, entry_attribute, entry_code = events
    for i in range(entry_ptr[e + 1] - 1, entry_ptr[e] - 1, -1):
        a = entry_attribute[i]
        row[a] = i if multi[a] else entry_code[i]


@maker
def gather(runs, firsts, lasts, waiting, found):
    """All clauses of the runs: the buffer, and their number."""
    k = 0
    for r in range(runs):
        prefetch(waiting, firsts[r])
    for r in range(runs):
        while found.size - k < lasts[r] - firsts[r]:
            found = grow(found)
        for q in range(firsts[r], lasts[r]):
            found[k] = waiting[q]
            k += 1
    return found, k


@driver
def match_ladder(events, n_rows, once, attributes, directory, postings, rest, clauses, predicates, programs):
    """Rows that events satisfy, as ``match_postings``, and how many predicates were tested."""
    entry_ptr, entry_attribute, entry_code = events
    multi, presence = attributes
    clause_row, clause_ptr, clause_program = clauses
    program_ptr, program_item, depth = programs
    node_ptr, waiting = postings
    row = np.full(multi.size, -1, np.int32)
    words = np.zeros((n_rows >> 6) + 1, np.uint64)
    summary = np.zeros((words.size >> 6) + 1, np.uint64)
    stack = np.empty(depth + 1, np.uint8)
    found = np.empty(START, np.int64)
    firsts, lasts = np.empty(START, np.int64), np.empty(START, np.int64)
    had = np.full(n_rows if once else 0, -1, np.int32)
    offsets = np.zeros(entry_ptr.size, np.int64)
    out = np.empty(max(START, 4 * entry_ptr.size), np.int32)
    n = 0
    tests = 0
    for e in range(entry_ptr.size - 1):
        event = (entry_ptr[e + 1], entry_attribute, entry_code)
        spread_codes(events, e, multi, row)
        while firsts.size < LEVELS * (entry_ptr[e + 1] - entry_ptr[e]):
            firsts = grow(firsts)
            lasts = grow(lasts)
        runs = reach(events, e, directory, node_ptr, firsts, lasts)
        found, k = gather(runs, firsts, lasts, waiting, found)
        while out.size - n < k + rest.size:
            out = grow(out)
        last = n
        for i in range(k + rest.size):
            if i + AHEAD < k:
                prefetch(clause_ptr, found[i + AHEAD])
                prefetch(predicates[0], WIDTH * clause_ptr[found[i + AHEAD // 2]])
            c = found[i] if i < k else np.int64(rest[i - k])
            if is_had(clause_row[c], e, once, had):
                continue
            steps = climb(c, row, event, clause_ptr, predicates)
            length = clause_ptr[c + 1] - clause_ptr[c]
            tests += min(steps + 1, length)
            g = clause_program[c]
            if steps < length or (
                g >= 0 and not program_holds(g, row, event, predicates, program_ptr, program_item, presence, stack)
            ):
                continue
            last = append_row(clause_row[c], e, once, had, out, last)
        for i in range(entry_ptr[e], entry_ptr[e + 1]):
            row[entry_attribute[i]] = -1
        n = sort_unique(out, n, last, words, summary)
        offsets[e + 1] = n
    return offsets, out[:n], tests
