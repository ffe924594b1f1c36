"""All expressions of an index as one graph: equal predicates, sub-expressions and expressions are one node each.

Negation is pushed down to predicates (zero suppression, thesis 9.3.3): every node stands for "this operand is true", or
for "this operand is false", so a missing attribute simply leaves both at zero. XOR of several operands is computed by
halves: each of the two planes of a half is a node of its own that is used twice, so nothing multiplies.

A node is an operator and numbers in ``child[ptr[node]:ptr[node + 1]]``, whose meaning depends on the operator. Children
come before their parents.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, maker, routine, scalar
from gpumatch.kernels.rows import grow
from gpumatch.opcodes import (
    HI,
    KIND,
    LO,
    NONE,
    NULL,
    OP_AND,
    OP_BASE,
    OP_FALSE,
    OP_NOT,
    OP_TRUE,
    OP_XNOR,
    OP_XOR,
    RANGE,
    WIDTH,
)

NEVER = 0  # no event: node 0, which no other node uses
POSTED = 1  # a predicate: attribute, then first and last code of each of its ranges
LATE = 2  # true where ``base`` is and ``minus`` is not: base, minus
ALWAYS = 3  # all events: node 1
AND = 4  # a set of nodes
OR = 5  # a set of nodes
FALSE_NODE, TRUE_NODE = 0, 1

T, F = 1, 2  # which of true and false is asked of an operand
PAIRS = 128  # following children with which a child is looked up as a pair, so that very long lists stay cheap
STEPS = 512  # most nodes examined as components of one
NODES = 1 << 10  # initial room
MOST = 64  # most components weighed against each other when one node is composed of others
U1 = np.uint32(0x9E3779B1)
U2 = np.uint32(0x85EBCA77)


@scalar
def mix(h, x):
    """Mix one more number into a hash."""
    h = np.uint32((h ^ np.uint32(x)) * U1)
    return np.uint32((h ^ (h >> np.uint32(15))) * U2)


@scalar
def start(dag):
    """Where to write the children of the next node."""
    return dag[1][dag[5][0]]


@scalar
def intern(op, size, dag):
    """The node of an operator over the ``size`` numbers written at ``start``: the existing one, or a new one."""
    ops, ptr, child, hashes, table, count = dag
    node = count[0]
    first = ptr[node]
    h = mix(np.uint32(op), size)
    for i in range(first, first + size):
        h = mix(h, child[i])
    mask = table.size - 1
    at = np.int64(h) & mask
    while table[at] >= 0:
        other = table[at]
        if hashes[other] == h and ops[other] == op and ptr[other + 1] - ptr[other] == size:
            same = True
            for i in range(size):
                if child[ptr[other] + i] != child[first + i]:
                    same = False
                    break
            if same:
                return np.int64(other)
        at = (at + 1) & mask
    table[at] = node
    ops[node] = op
    hashes[node] = h
    ptr[node + 1] = first + size
    count[0] = node + 1
    return node


@driver
def larger_table(hashes, nodes, size):
    """A hash table of ``size`` slots that holds all nodes."""
    table = np.full(size, -1, np.int32)
    for node in range(nodes):
        at = np.int64(hashes[node]) & (size - 1)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = node
    return table


@scalar
def sort_numbers(child, first, last):
    """Sort ``child[first:last]``, which is mostly short: Shell's sort with Knuth's gaps, small and quick to compile."""
    gap = 1
    while 3 * gap + 1 < last - first:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, last):
            x = child[i]
            j = i
            while j - gap >= first and child[j - gap] > x:
                child[j] = child[j - gap]
                j -= gap
            child[j] = x
        gap //= 3


@routine
def join(op, size, dag):
    """The node of AND or OR over the ``size`` nodes at ``start``: as a set, without constants; one node is itself."""
    child = dag[2]
    first = start(dag)
    neutral, decisive = (TRUE_NODE, FALSE_NODE) if op == AND else (FALSE_NODE, TRUE_NODE)
    last = first
    for i in range(first, first + size):
        if child[i] == decisive:
            return np.int64(decisive)
        if child[i] != neutral:
            child[last] = child[i]
            last += 1
    sort_numbers(child, first, last)
    kept = first
    for i in range(first, last):
        if kept == first or child[i] != child[kept - 1]:
            child[kept] = child[i]
            kept += 1
    if kept == first:
        return np.int64(neutral)
    if kept == first + 1:
        return np.int64(child[first])
    return intern(op, kept - first, dag)


@scalar
def present(attribute, counts, dag):
    """The node of "the attribute is present"."""
    child, first = dag[2], start(dag)
    child[first], child[first + 1], child[first + 2] = attribute, 0, counts[attribute] - 1
    return intern(POSTED, 3, dag)


@scalar
def late(base, minus, dag):
    """The node of "``base`` but not ``minus``"."""
    child, first = dag[2], start(dag)
    child[first], child[first + 1] = base, minus
    return intern(LATE, 2, dag)


@routine
def posted(p, inside, predicates, counts, dag):
    """The node of "the value lies in the predicate's ranges", or in the gaps between them.

    Gaps that make up most of the codes are not written: then the result is -1.
    """
    predicate, range_lo, range_hi = predicates
    child, first = dag[2], start(dag)
    a, lo, hi = predicate[p], predicate[p + LO], predicate[p + HI]
    one = predicate[p + KIND] == RANGE
    at = first + 1
    gap, codes = 0, 0  # the first code after the ranges so far
    for r in range(0 if one else lo, 1 if one else hi):
        low, high = (lo, hi) if one else (range_lo[r], range_hi[r])
        if low > high:
            continue
        if inside and at > first + 1 and low <= child[at - 1] + 1:  # ranges that touch are merged
            child[at - 1] = max(child[at - 1], high)
        elif inside:
            child[at], child[at + 1] = low, high
            at += 2
        elif low > gap:
            child[at], child[at + 1] = gap, low - 1
            codes += low - gap
            at += 2
        gap = max(gap, high + 1)
    if not inside and gap < counts[a]:
        child[at], child[at + 1] = gap, counts[a] - 1
        codes += counts[a] - gap
        at += 2
    if at == first + 1:
        return np.int64(FALSE_NODE)
    if not inside and 2 * codes > counts[a]:
        return np.int64(-1)
    child[first] = a
    return intern(POSTED, at - first, dag)


@routine
def predicate_node(p, plane, predicates, attributes, dag):
    """The node of "the predicate at ``p`` is true" or "is false"."""
    multi, presence, counts = attributes
    predicate = predicates[0]
    kind, a = predicate[p + KIND], predicate[p]
    if kind == NULL:
        here = present(presence[a], counts, dag)
        return here if plane == F else late(TRUE_NODE, here, dag)
    if (plane == T) == (kind != NONE):
        return posted(p, True, predicates, counts, dag)
    if not multi[a]:
        outside = posted(p, False, predicates, counts, dag)
        if outside >= 0:
            return outside
    base = present(presence[a], counts, dag)
    inside = posted(p, True, predicates, counts, dag)
    return base if inside == FALSE_NODE else late(base, inside, dag)


@routine
def leaf_node(item, plane, memo, predicates, attributes, dag):
    """As ``predicate_node`` for predicate number ``item``, remembered in ``memo``."""
    at = 2 * np.int64(item) + (plane >> 1)
    if memo[at] < 0:
        memo[at] = predicate_node(WIDTH * np.int64(item), plane, predicates, attributes, dag)
    return np.int64(memo[at])


@scalar
def operands(first, last, program_item, kids, kid_ptr, stack):
    """For each item of a program, the items that it joins: ``kids[kid_ptr[i]:kid_ptr[i + 1]]``."""
    top = 0
    n = 0
    kid_ptr[0] = 0
    for i in range(last - first):
        item = program_item[first + i]
        if item < 0:
            arity = (-item - 1) // OP_BASE
            top -= arity
            for k in range(arity):
                kids[n] = stack[top + k]
                n += 1
        kid_ptr[i + 1] = n
        stack[top] = i
        top += 1


@scalar
def ask(first, last, program_item, kids, kid_ptr, wanted):
    """Which planes of each item are needed to know whether the last one is true."""
    size = last - first
    for i in range(size):
        wanted[i] = 0
    wanted[size - 1] = T
    for i in range(size - 1, -1, -1):
        item = program_item[first + i]
        if item >= 0:
            continue
        op = (-item - 1) % OP_BASE
        asked = wanted[i]
        if op == OP_NOT:
            asked = ((asked & T) << 1) | ((asked & F) >> 1)
        elif op == OP_XOR or op == OP_XNOR:
            asked = T | F
        for k in range(kid_ptr[i], kid_ptr[i + 1]):
            wanted[kids[k]] |= asked


@scalar
def pair(op, a, b, dag):
    """The node of AND or OR over two nodes."""
    child, first = dag[2], start(dag)
    child[first], child[first + 1] = a, b
    return join(op, 2, dag)


@scalar
def differ(true_a, false_a, true_b, false_b, dag):
    """The node of "one of two is true and the other is false"; of equality if the planes of one are swapped."""
    return pair(OR, pair(AND, true_a, false_b, dag), pair(AND, false_a, true_b, dag), dag)


@routine
def exclusive(i, wanted, kids, kid_ptr, planes, halves, dag):
    """The planes of XOR over an item's operands, at the front of ``halves``; in pairs, so that depth stays low."""
    size = kid_ptr[i + 1] - kid_ptr[i]
    for k in range(size):
        kid = kids[kid_ptr[i] + k]
        halves[k] = (np.int64(planes[2 * kid]) << 32) | planes[2 * kid + 1]
    sort_numbers(halves, 0, size)  # operands are paired in the same way, whatever their order
    while size > 1:
        for k in range(size >> 1):
            a, b = halves[2 * k], halves[2 * k + 1]
            true_a, false_a, true_b, false_b = a >> 32, a & 0xFFFF_FFFF, b >> 32, b & 0xFFFF_FFFF
            odd, even = np.int64(FALSE_NODE), np.int64(FALSE_NODE)
            if size > 2 or wanted & T:
                odd = differ(true_a, false_a, true_b, false_b, dag)
            if size > 2 or wanted & F:
                even = differ(true_a, false_a, false_b, true_b, dag)
            halves[k] = (odd << 32) | even
        if size & 1:
            halves[size >> 1] = halves[size - 1]
        size = (size + 1) >> 1


@routine
def join_planes(i, op, wanted, kids, kid_ptr, planes, halves, dag):
    """The nodes of the wanted planes of an item that joins others."""
    child = dag[2]
    if op == OP_TRUE or op == OP_FALSE:
        planes[2 * i], planes[2 * i + 1] = op == OP_TRUE, op == OP_FALSE  # nodes 0 and 1 are the constants
        return
    if op == OP_NOT:
        kid = kids[kid_ptr[i]]
        planes[2 * i], planes[2 * i + 1] = planes[2 * kid + 1], planes[2 * kid]
        return
    if op == OP_XOR or op == OP_XNOR:
        other = ((wanted & T) << 1) | ((wanted & F) >> 1)
        exclusive(i, wanted if op == OP_XOR else other, kids, kid_ptr, planes, halves, dag)
        odd, even = halves[0] >> 32, halves[0] & 0xFFFF_FFFF
        planes[2 * i], planes[2 * i + 1] = (odd, even) if op == OP_XOR else (even, odd)
        return
    for plane in (T, F):
        if wanted & plane:
            first, size = start(dag), kid_ptr[i + 1] - kid_ptr[i]
            for k in range(size):
                child[first + k] = planes[2 * kids[kid_ptr[i] + k] + (plane >> 1)]
            planes[2 * i + (plane >> 1)] = join(AND if (op == OP_AND) == (plane == T) else OR, size, dag)


@routine
def program_node(program, programs, buffers, memo, predicates, attributes, dag):
    """The node of "the program is true"."""
    program_ptr, program_item = programs
    kids, kid_ptr, wanted, planes, stack = buffers
    first, last = program_ptr[program], program_ptr[program + 1]
    operands(first, last, program_item, kids, kid_ptr, stack)
    ask(first, last, program_item, kids, kid_ptr, wanted)
    for i in range(last - first):
        item = program_item[first + i]
        if item < 0:
            join_planes(i, (-item - 1) % OP_BASE, wanted[i], kids, kid_ptr, planes, stack, dag)
            continue
        for plane in (T, F):
            if wanted[i] & plane:
                planes[2 * i + (plane >> 1)] = leaf_node(item, plane, memo, predicates, attributes, dag)
    return np.int64(planes[2 * (last - first - 1)])


@maker
def more_room(size, dag, room):
    """The graph with room for an expression of ``size`` items, and for all predicates, which take ``room``."""
    ops, ptr, child, hashes, table, count = dag
    nodes = count[0] + 8 * size + room[0]
    while ops.size < nodes:
        ops, ptr, hashes = grow(ops), grow(ptr), grow(hashes)
    while child.size < ptr[count[0]] + 16 * size + room[1]:
        child = grow(child)
    places = table.size
    while places < 2 * nodes:
        places *= 4
    if places > table.size:
        table = larger_table(hashes, count[0], places)
    return ops, ptr, child, hashes, table, count


@routine
def clause_node(literals, alone, node, memo, predicates, attributes, members, dag):
    """The node of an AND over predicates and a program's node, or, if not ``alone``, the nodes that this joins."""
    ops, ptr, child = dag[:3]
    alone = alone or ops[node] != AND
    own = 1 if alone else ptr[node + 1] - ptr[node]
    for i in range(own):
        members[i] = node if alone else child[ptr[node] + i]
    for i in range(literals[0], literals[1]):
        members[own + i - literals[0]] = leaf_node(i, T, memo, predicates, attributes, dag)
    size = own + literals[1] - literals[0]
    top = start(dag)
    for i in range(size):
        child[top + i] = members[i]
    return join(AND, size, dag)


@maker
def find_shared(first, last, clauses, memo, predicates, attributes, shared, dag):
    """Mark programs that clauses with different predicates have in common; repeated clauses do not count."""
    clause_ptr, clause_program = clauses
    seen, hashes = np.zeros(shared.size, np.bool_), np.empty(shared.size, np.uint32)
    for c in range(first, last):
        g = clause_program[c]
        if g < 0:
            continue
        h = mix(np.uint32(T), clause_ptr[c + 1] - clause_ptr[c])
        for i in range(clause_ptr[c], clause_ptr[c + 1]):
            h = mix(h, leaf_node(i, T, memo, predicates, attributes, dag))
        shared[g] |= seen[g] and hashes[g] != h
        seen[g], hashes[g] = True, h


@routine
def join_row(first, last, roots, dag):
    """Give the first of a row's clauses the node of "one of them is true", and the others that of no event."""
    child, top = dag[2], start(dag)
    for c in range(first, last):
        child[top + c - first] = roots[c]
        roots[c] = FALSE_NODE
    roots[first] = join(OR, last - first, dag)


@driver
def intern_clauses(first, last, rows, clauses, predicates, programs, attributes, room, roots):
    """The graph of clauses ``first:last``, and the node of each in ``roots``; clauses of one row are adjacent.

    ``room``: the most nodes and children that predicates can make.
    """
    clause_ptr, clause_program = clauses
    program_ptr = programs[0]
    count = np.zeros(1, np.int64)
    ptr = np.zeros(NODES, np.int64)
    table, hashes = np.full(4 * NODES, -1, np.int32), np.empty(NODES, np.uint32)
    dag = (np.empty(NODES, np.uint8), ptr, np.empty(NODES, np.int32), hashes, table, count)
    dag = more_room(2, dag, room)
    intern(NEVER, 0, dag)
    intern(ALWAYS, 0, dag)
    memo = np.full(2 * (predicates[0].size // WIDTH), -1, np.int32)
    program_nodes, shared = np.full(program_ptr.size - 1, -1, np.int32), np.zeros(program_ptr.size - 1, np.bool_)
    find_shared(first, last, clauses, memo, predicates, attributes, shared, dag)
    longest = 1
    for c in range(first, last):
        longest = max(longest, clause_ptr[c + 1] - clause_ptr[c])
    for g in range(program_ptr.size - 1):
        longest = max(longest, program_ptr[g + 1] - program_ptr[g])
    buffers = (
        np.empty(longest, np.int64),
        np.empty(longest + 1, np.int64),
        np.empty(longest, np.uint8),
        np.empty(2 * longest, np.int64),
        np.empty(longest, np.int64),
    )
    members = np.empty(2 * longest, np.int64)
    begun = first  # the first clause of the current row
    for c in range(first, last):
        g = clause_program[c]
        length = program_ptr[g + 1] - program_ptr[g] if g >= 0 else 0
        dag = more_room(length + clause_ptr[c + 1] - clause_ptr[c] + 1, dag, room)
        node = np.int64(TRUE_NODE)
        if g >= 0:
            if program_nodes[g] < 0:
                program_nodes[g] = program_node(g, programs, buffers, memo, predicates, attributes, dag)
            node = np.int64(program_nodes[g])
        literals = (clause_ptr[c], clause_ptr[c + 1])
        roots[c - first] = clause_node(literals, g >= 0 and shared[g], node, memo, predicates, attributes, members, dag)
        if rows[c] != rows[begun]:
            begun = c
        if c > begun and (c + 1 == last or rows[c + 1] != rows[c]):
            dag = more_room(c + 1 - begun, dag, room)
            join_row(begun - first, c + 1 - first, roots, dag)
    n = count[0]
    ops, ptr, child = dag[:3]
    return ops[:n].copy(), ptr[: n + 1].copy(), child[: ptr[n]].copy()


@driver
def measure(ops, ptr, child, level, size):
    """The distance of each node from its farthest predicate, and its number of children."""
    for node in range(ops.size):
        level[node] = 0
        size[node] = 0
        if ops[node] >= AND:
            for i in range(ptr[node], ptr[node + 1]):
                level[node] = max(level[node], level[child[i]] + 1)
            size[node] = ptr[node + 1] - ptr[node]


@scalar
def holds_all(child, first, last, other_first, other_last, places):
    """Is the second of two ascending lists contained in the first? If so, ``places`` are the positions."""
    n = 0
    i = first
    for j in range(other_first, other_last):
        while i < last and child[i] < child[j]:
            i += 1
        if i == last or child[i] != child[j]:
            return False
        places[n] = i - first
        n += 1
    return True


@scalar
def bucket_of(op, a, b, mask):
    """The bucket of nodes whose two rarest children are these."""
    return np.int64(mix(mix(np.uint32(op), a & 0xFFFF_FFFF), b & 0xFFFF_FFFF)) & mask


@scalar
def by_rarity(child, first, size, uses, ranked):
    """The children by number of uses, the fewest first: uses and child in one number."""
    for i in range(size):
        ranked[i] = (uses[child[first + i]] << 32) | child[first + i]
    sort_numbers(ranked, 0, size)


@scalar
def find_parts(op, ptr, child, first, size, ranked, heads, following, ops, part, places):
    """Nodes of the same operator whose children are some of these; returns their number."""
    n = 0
    steps = STEPS
    for i in range(size):
        for j in range(i + 1, min(size, i + 1 + PAIRS)):
            if n == MOST or steps == 0:
                return n
            other = heads[bucket_of(op, ranked[i], ranked[j], heads.size - 1)]
            while other >= 0 and n < MOST and steps > 0:
                steps -= 1
                if ops[other] == op and ptr[other + 1] - ptr[other] < size:
                    fresh = True
                    for k in range(n):
                        fresh = fresh and part[k] != other
                    if fresh and holds_all(child, first, first + size, ptr[other], ptr[other + 1], places):
                        part[n] = other
                        n += 1
                other = following[other]
    return n


@scalar
def cover(ptr, child, first, size, part, parts, covered, places, chosen):
    """Greedy set cover: choose the node that covers the most children, and repeat. Returns how many are chosen."""
    for i in range(size):
        covered[i] = False
    n = 0
    while True:
        best, most = -1, 1
        for k in range(parts):
            holds_all(child, first, first + size, ptr[part[k]], ptr[part[k] + 1], places)
            new = 0
            for i in range(ptr[part[k] + 1] - ptr[part[k]]):
                new += not covered[places[i]]
            if new > most:
                best, most = k, new
        if best < 0:
            return n
        chosen[n] = part[best]
        n += 1
        holds_all(child, first, first + size, ptr[part[best]], ptr[part[best] + 1], places)
        for i in range(ptr[part[best] + 1] - ptr[part[best]]):
            covered[places[i]] = True


@driver
def reorganise(order, ops, ptr, child, uses):
    """AND and OR composed of smaller ones (thesis 9.2.2 and 9.2.3): the children of all nodes, and their ends.

    Unused nodes are left alone. ``order`` has every node after those that it can be composed of, so that the order of
    insertion does not matter.
    """
    heads = np.full(NODES, -1, np.int32)
    while heads.size < ops.size:
        heads = np.full(2 * heads.size, -1, np.int32)
    following = np.full(ops.size, -1, np.int32)
    longest = 2
    for node in range(ops.size):
        if ops[node] >= AND:
            longest = max(longest, ptr[node + 1] - ptr[node])
    ranked, places = np.empty(longest, np.int64), np.empty(longest, np.int64)
    covered, chosen, part = np.empty(longest, np.bool_), np.empty(longest, np.int64), np.empty(MOST, np.int64)
    made, last = child.copy(), ptr[1:].copy()
    for node in order:
        op = ops[node]
        if op < AND or uses[node] == 0:
            continue
        first, size = ptr[node], ptr[node + 1] - ptr[node]
        by_rarity(child, first, size, uses, ranked)
        if size > 2:
            parts = find_parts(op, ptr, child, first, size, ranked, heads, following, ops, part, places)
            if parts > 0:
                n = cover(ptr, child, first, size, part, parts, covered, places, chosen)
                at = first
                for i in range(size):
                    if not covered[i]:
                        made[at] = child[first + i]
                        at += 1
                for k in range(n):
                    made[at] = chosen[k]
                    at += 1
                last[node] = at
        bucket = bucket_of(op, ranked[0], ranked[1], heads.size - 1)
        following[node] = heads[bucket]
        heads[bucket] = node
    return made, last


@driver
def count_uses(order, ops, ptr, last, child, roots, uses):
    """How often each node is used, by used nodes and by expressions; returns the number of edges."""
    for node in roots:
        uses[node] += 1
    edges = 0
    for i in range(order.size - 1, -1, -1):
        node = order[i]
        if uses[node] == 0:
            continue
        if ops[node] >= AND:
            edges += last[node] - ptr[node]
            for j in range(ptr[node], last[node]):
                uses[child[j]] += 1
    return edges
