"""Turns a graph of expressions into programs: a node that is used once is written out where it is used.

A *unit* is a node that several others use, or an expression. Its program is an item: the number of a node; NEGATED
minus the number of a predicate, which is true where its base, mostly the presence of its attribute, is true but the
predicate is not; or a group, which is an operator below zero, the length of what follows, and its items. The first
item of an AND is its access child (thesis 9.3.3): if that is zero, the rest is not evaluated.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.dag import AND, LATE

SIZE = 64  # most items of a node that is used once and written out
NEST = 4  # most groups nested in a program
NEGATED = -16  # items from here down are predicates that must not hold


@driver
def choose_units(order, ops, ptr, last, child, uses, stored, level):
    """Which nodes are kept by number, and the largest number of units stacked below each."""
    size, nest = np.ones(ops.size, np.int64), np.zeros(ops.size, np.int64)
    for node in order:
        if ops[node] < AND:
            stored[node] = ops[node] != LATE
        elif uses[node] > 0:
            size[node], nest[node] = 2, 1
            for i in range(ptr[node], last[node]):
                kid = child[i]
                stored[kid] |= size[kid] > SIZE or nest[kid] == NEST
                size[node] += 1 if stored[kid] else size[kid]
                if not stored[kid]:
                    nest[node] = max(nest[node], nest[kid] + 1)
                level[node] = max(level[node], level[kid] + (stored[kid] and ops[kid] >= AND))
            stored[node] = uses[node] > 1


@scalar
def sort_by(child, first, last, key):
    """Sort children by a key; long lists stay as they are."""
    if last - first > SIZE:
        return
    for i in range(first + 1, last):
        x = child[i]
        j = i
        while j > first and key[child[j - 1]] > key[x]:
            child[j] = child[j - 1]
            j -= 1
        child[j] = x


@driver
def choose_access(order, ops, ptr, last, child, uses, stored, chance, waking):
    """Order the children of every AND in place, from how likely predicates are to hold: the access child first.

    ``waking`` is how often a node's access children together are true: the cost of waiting for it.
    """
    for node in order:
        first, end = ptr[node], last[node]
        if ops[node] < AND or uses[node] == 0:
            continue
        if ops[node] == AND:
            best = first
            for i in range(first, end):
                if waking[child[i]] < waking[child[best]]:
                    best = i
            child[first], child[best] = child[best], child[first]
            sort_by(child, first + 1, end, chance)
            chance[node] = 1.0
            for i in range(first, end):
                chance[node] *= chance[child[i]]
            waking[node] = waking[child[first]]
        else:
            for i in range(first, end):
                chance[node] += chance[child[i]]
                waking[node] += waking[child[i]]
            chance[node] = min(chance[node], 1.0)
        if stored[node]:
            waking[node] = chance[node]


@scalar
def item_of(node, ops, ptr, child, number):
    """The item of a kept node, or of a predicate that must not hold."""
    return NEGATED - number[child[ptr[node] + 1]] if ops[node] == LATE else number[node]


@scalar
def write(root, ops, ptr, last, child, stored, number, stack, items, at):
    """Write out the program of a group, even a kept one; returns where it ends. ``stack``: three columns."""
    top = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = root, ptr[root], at
    items[at] = -1 - np.int32(ops[root])
    at += 2
    while top >= 0:
        node, i = stack[top, 0], stack[top, 1]
        if i == last[node]:
            items[stack[top, 2] + 1] = at - stack[top, 2] - 2
            top -= 1
            continue
        stack[top, 1] = i + 1
        kid = child[i]
        if stored[kid] or ops[kid] == LATE:
            items[at] = item_of(kid, ops, ptr, child, number)
            at += 1
        else:
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = kid, ptr[kid], at
            items[at] = -1 - np.int32(ops[kid])
            at += 2
    return at


@driver
def write_programs(nodes, roots, ops, ptr, last, child, stored, number, unit_ptr, items):
    """Programs of the kept ``nodes``, then of expressions, whose root may be a kept node; returns the length."""
    stack = np.empty((NEST + 1, 3), np.int64)
    at = 0
    unit_ptr[0] = 0
    for u in range(nodes.size):
        at = write(nodes[u], ops, ptr, last, child, stored, number, stack, items, at)
        unit_ptr[u + 1] = at
    for c in range(roots.size):
        root = roots[c]
        if stored[root] or ops[root] == LATE:
            items[at] = item_of(root, ops, ptr, child, number)
            at += 1
        else:
            at = write(root, ops, ptr, last, child, stored, number, stack, items, at)
        unit_ptr[nodes.size + c + 1] = at
    return at


@driver
def link_parents(unit_ptr, items, base, count, parent_ptr, parent):
    """Adds to ``parent_ptr[node + 1]`` the number of units that wait for a node, or, if not ``count``, writes them."""
    ends, is_and = np.empty(NEST + 2, np.int64), np.empty(NEST + 2, np.bool_)
    for u in range(unit_ptr.size - 1):
        i, top = unit_ptr[u], 0
        while i < unit_ptr[u + 1]:
            item = items[i]
            found = np.int64(item)
            i += 1
            if item <= NEGATED:
                found = np.int64(base[NEGATED - item])
            elif item < 0:
                top += 1
                ends[top], is_and[top] = i + 1 + items[i], item == -1 - AND
                i += 1
                continue
            if count:
                parent_ptr[found + 1] += 1
            else:
                parent[parent_ptr[found]] = u
                parent_ptr[found] += 1
            while top > 0 and (is_and[top] or i == ends[top]):  # an AND waits only for its first member
                i = ends[top]
                top -= 1
