"""Memory and work of the A-Tree kernels.

A warp takes 32 words of 64 events of one unit, or fewer words of several: 2,048 events show everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.flat import FlatIndex
from gpumatch.kernels import count_atree
from gpumatch.kernels.count import BLOCK, SECTOR, WARP
from gpumatch.proof.roofline.cost import Cost, Touched
from gpumatch.proof.roofline.lists import Found, OnRoofline, reach
from gpumatch.proof.roofline.sample import (
    ANSWER,
    BUDGET,
    ELEMENT,
    KEY,
    NOT_LISTED,
    SCAN_BYTES,
    SCAN_ROUNDS,
    WORD_EVENTS,
    Runs,
    Sample,
    listing,
    marks_of,
    runs_of_tiles,
    slot_finding,
)

_STEPS = np.array([35, 16, 70])  # instructions to read a word, to negate it as well, and of a group
_NODE, _CLAUSE, _SOME, _BITS = 62, 112, 25, 13  # of a unit's thread; more where its block has bits; of its warp
_PIECE, _HIT = 46, 43
_LIST, _BIT = 131, 28
_GROUP_BYTES = 2 * WARP * 12  # of shared memory, there and back


def _node_count(index: FlatIndex) -> int:
    return len(index.arrays["parent_ptr"]) - 1


class Graph(NamedTuple):
    """State of all kernels: sizes of the graph, and the words of its nodes."""

    sample: Sample
    arrays: dict[str, Array]
    leaves: int
    inner: int
    words: int
    value: Array

    @classmethod
    def of(cls, sample: Sample, index: FlatIndex) -> Graph:
        a, words = index.arrays, -(-sample.events // WORD_EVENTS)
        nodes, inner, always = _node_count(index), int(a["level_ptr"][-1]), int(index.meta["always"])
        value = np.zeros(nodes * words, np.uint64)
        if always >= 0:
            bits = np.arange(words * WORD_EVENTS) < sample.events
            value[always * words : (always + 1) * words] = np.packbits(bits, bitorder="little").view(np.uint64)
        return cls(sample, a, nodes - inner, inner, words, value)

    def columns(self) -> Array:
        """How many predicates have a bit in each column, which is as many words as a sector holds."""
        words = self.value[: self.leaves * self.words].reshape(self.leaves, self.words)
        filled = [words[:, at : at + SECTOR // 8].any(axis=1) for at in range(0, self.words, SECTOR // 8)]
        return np.array([np.count_nonzero(column) for column in filled])

    def touched(self, sectors: float, marks: Array) -> Touched:
        """Sectors of the nodes' words, which grow with the events but are read by many units: those of a full batch."""
        more = self.sample.batch / self.sample.events
        return Touched("words", sectors * more, float(marks.sum()) * more, self.sample.batch, len(marks) * more)


def _count(sample: Sample, index: FlatIndex) -> Found:
    """All kernels from codes to matches."""
    sample = sample.first(min(sample.events, sample.batch))
    made = Graph.of(sample, index)
    costs = _leaves(made)
    costs.append(_nodes(made))
    clauses = index.last - index.first
    out = np.empty(clauses * made.words, np.uint64)
    ranges = [(made.inner, made.inner + clauses, out)]
    cost = _evaluation(made, "atree.evaluate_clauses, sums", ranges, _CLAUSE)
    keys = np.empty(int(np.bitwise_count(out).sum()), np.int64)
    n, *some = count_atree.list_clauses(out, index.first, made.words, keys)
    costs += _listing(made, cost, len(out), n, *some)
    step = max(BUDGET // (8 * -(-sample.batch // WORD_EVENTS)), 1)
    return Found(sample, costs, keys, -(-clauses // step))


def _leaves(graph: Graph) -> list[Cost]:
    """Words of predicates: zero, and then the bits of the events that satisfy them."""
    sample, a, per = graph.sample, graph.arrays, 1 / graph.sample.events
    events, *coded = sample.entries
    runs, work = reach(sample, a, (np.arange(len(events), dtype=np.int32), *coded))
    zeros = 8 * graph.leaves * graph.words * per
    costs = listing(sample, ("postings.count_runs", "postings.fill_runs"), len(events), runs, work)
    costs.append(Cost("zeroing of predicates", written=zeros, instructions=ELEMENT * zeros / 16))
    if runs.slots == 0:
        return costs
    return [*costs, *_hits(graph, runs)]


def _hits(graph: Graph, runs: Runs) -> list[Cost]:
    sample, a, per = graph.sample, graph.arrays, 1 / graph.sample.events
    events, _, codes = sample.entries
    names = ("waiting", "piece_lo", "piece_hi", "piece_node")
    marks = tuple(marks_of(a[name]) for name in names)
    pieces = (a["piece_node"], a["piece_lo"], a["piece_hi"])
    hits, warps, sectors = count_atree.set_leaves(
        tuple(runs), events, codes, a["waiting"], pieces, graph.words, marks, graph.value
    )
    tiles, finding = slot_finding(runs)
    columns = graph.columns()
    moved = SECTOR * int(columns.sum()) * per  # each column of sectors is filled by consecutive events
    words = Touched("words", float(hits), float(columns.mean()), sample.events, float(graph.leaves))
    cost = Cost(
        "atree.set_leaves",
        read=28 * len(runs.length) * per + KEY * tiles * per + moved,
        written=moved,
        pieces=3 * SECTOR * tiles * per,  # a run that continues is read by every tile
        touched=(*(sample.touched(*it) for it in zip(names, sectors, marks, strict=True)), words),
        atomics=hits * per,
        instructions=(finding + _PIECE * runs.slots + _HIT * WARP * warps) * per,
    )
    return [runs_of_tiles(sample, len(runs.length), tiles), cost]


def _nodes(graph: Graph) -> Cost:
    """Units that others use, level by level."""
    levels = []
    for first, last in pairwise(graph.arrays["level_ptr"].tolist()):
        start = (graph.leaves + first) * graph.words
        levels.append((first, last, graph.value[start : start + (last - first) * graph.words]))
    cost = _evaluation(graph, "atree.evaluate_nodes", levels, _NODE)
    return replace(cost, written=8 * graph.inner * graph.words / graph.sample.events)


def _evaluation(graph: Graph, kernel: str, ranges: Sequence[tuple[int, int, Array]], each: int) -> Cost:
    """Evaluation of the programs of ranges of units, whose words go to an array each."""
    sample, a, per = graph.sample, graph.arrays, 1 / graph.sample.events
    marks = (marks_of(a["items"]), marks_of(a["base"]), marks_of(graph.value))
    instructions, groups, units, sectors = 0, 0, 0, np.zeros(3, np.int64)
    for first, last, out in ranges:
        programs = (a["unit_ptr"], a["items"], a["base"])
        found = count_atree.evaluate(first, last, graph.words, *programs, graph.value, _STEPS, marks, out)
        instructions += int(found[0]) + each * -(-len(out) // WARP) * WARP
        groups += int(found[1])
        sectors += found[2]
        units += last - first
    pointers = np.ones(units * 8 // SECTOR + 1, np.bool_)
    return Cost(
        kernel,
        touched=(
            sample.touched("unit_ptr", len(pointers), pointers),
            sample.touched("items", sectors[0], marks[0]),
            sample.touched("base", sectors[1], marks[1]),
            graph.touched(sectors[2], marks[2]),
        ),
        shared=_GROUP_BYTES * groups * per,
        instructions=instructions * per,
    )


def _listing(graph: Graph, cost: Cost, words: int, keys: int, tiles: int, warps: int, steps: int) -> list[Cost]:
    """Evaluation and listing of clauses: blocks without any bit write nothing."""
    per, blocks, some = 1 / graph.sample.events, words / BLOCK, BLOCK * tiles
    evaluation = replace(
        cost,
        read=KEY * blocks * per,
        written=(8 * some + 2 * KEY * blocks) * per,
        shared=cost.shared + ANSWER * (2 * blocks + warps) * per,
        instructions=cost.instructions + (_SOME * some + _BITS * WARP * warps + ELEMENT * blocks) * per,
    )
    listed = Cost(
        "atree.list_clauses",
        read=(KEY * blocks + 8 * some) * per,
        written=KEY * keys * per,
        shared=SCAN_BYTES * some * per,
        instructions=(NOT_LISTED * words + (_LIST + SCAN_ROUNDS) * some + _BIT * WARP * steps) * per,
    )
    return [evaluation, listed]


ON_ROOFLINE = OnRoofline(_count, decides=True, nodes=_node_count)
