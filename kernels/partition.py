"""Subscriptions go to nodes in turn, each to the one whose group ranges grow least (Sieve, III-A)."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones
from gpumatch.kernels.compile import driver, maker, scalar

WORD = 64
FULL = np.int64(-1)  # no node has room, and no other could hold the subscription


@scalar
def edges_below(node, cut, bits, ranks):
    """How many edges the node has below a cut."""
    w = cut // WORD
    mask = (np.uint64(1) << np.uint64(cut % WORD)) - np.uint64(1)
    return ranks[node, w] + np.int64(ones(bits[node, w] & mask))


@scalar
def is_edge(node, cut, bits):
    return (bits[node, cut // WORD] >> np.uint64(cut % WORD)) & np.uint64(1) != np.uint64(0)


@scalar
def add_edge(node, cut, bits, ranks):
    if not is_edge(node, cut, bits):
        w = cut // WORD
        bits[node, w] |= np.uint64(1) << np.uint64(cut % WORD)
        for i in range(w + 1, ranks.shape[1]):
            ranks[node, i] += 1


@scalar
def spanned(node, low, high, bits, ranks):
    """How many of the node's group ranges a range meets."""
    edges = ranks[node, ranks.shape[1] - 1]
    up_to_low = edges_below(node, low, bits, ranks) + is_edge(node, low, bits)
    below_high = edges_below(node, high, bits, ranks)
    return max(min(below_high, edges - 1) - max(up_to_low - 1, 0), 0)


@scalar
def growth(node, low, high, bits, ranks, covers):
    """How many more group ranges, or members of them if ``covers`` counts these, the node would have."""
    edges = ranks[node, ranks.shape[1] - 1]
    new_low, new_high = not is_edge(node, low, bits), not is_edge(node, high, bits)
    if covers.shape[1] == 0:
        return np.int64(1) if edges == 0 else np.int64(new_low) + np.int64(new_high)
    own = edges_below(node, high, bits, ranks) - edges_below(node, low, bits, ranks) + new_low
    split = (covers[node, low] if new_low else 0) + (covers[node, high] if new_high else 0)
    return np.int64(own + split)


@maker
def taller(array, nodes):
    """The array with room for more nodes."""
    more = np.zeros((nodes, array.shape[1]), array.dtype)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            more[i, j] = array[i, j]
    return more


@scalar
def open_node(load, room, capacity, used):
    """The first unused node that can hold the subscription by itself, or FULL."""
    for j in range(used.size):
        if not used[j] and room[j % room.size] >= 1 and load <= capacity[j % capacity.size]:
            return np.int64(j)
    return FULL


@driver
def assign(order, low, high, cuts, load, room, capacity, limit, by_members, exact):
    """The node of each subscription, and the resulting space and load of nodes; stops at one that fits nowhere.

    Bounds are numbers of cuts. ``room`` and ``capacity`` are by node, or one value for all. Among the nodes with
    room and capacity the one with the least growth wins, the highest of equals: the paper's ``g' + 2``, or exactly.
    Edges of a node are bits, with the number of edges before each word: one look-up counts those below a cut.
    """
    words = cuts // WORD + 1
    tall = min(limit, 16)
    bits = np.zeros((tall, words), np.uint64)
    ranks = np.zeros((tall, words + 1), np.int32)
    covers = np.zeros((tall, cuts if by_members else 0), np.int32)
    space, carried, used = np.zeros(limit, np.int64), np.zeros(limit), np.zeros(limit, np.bool_)
    node = np.full(low.size, -1, np.int32)
    top = 0
    for s in order:
        chosen, least, grown = FULL, np.int64(0), np.int64(0)
        for j in range(top):
            if not used[j] or carried[j] + load[s] > capacity[j % capacity.size]:
                continue
            more = growth(j, low[s], high[s], bits, ranks, covers)
            if space[j] + more > room[j % room.size]:
                continue
            rank = more if exact else np.int64(spanned(j, low[s], high[s], bits, ranks) + 2)
            if chosen == FULL or rank <= least:
                chosen, least, grown = np.int64(j), rank, more
        if chosen == FULL:
            chosen, grown = open_node(load[s], room, capacity, used), np.int64(1)
            if chosen == FULL:
                return node, space[:top], carried[:top], s
            used[chosen] = True
            top = max(top, chosen + 1)
            if top > tall:
                tall = min(limit, max(2 * tall, top))
                bits, ranks, covers = taller(bits, tall), taller(ranks, tall), taller(covers, tall)
        node[s] = chosen
        space[chosen] += grown
        carried[chosen] += load[s]
        add_edge(chosen, low[s], bits, ranks)
        add_edge(chosen, high[s], bits, ranks)
        if by_members:
            for i in range(low[s], high[s]):
                covers[chosen, i] += 1
    return node, space[:top], carried[:top], FULL
