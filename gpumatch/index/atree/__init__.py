"""A-Tree (thesis, chapter 9): arbitrary Boolean expressions in one graph, shared sub-expressions evaluated once.

Every distinct predicate, sub-expression and expression is one node, whatever the order of insertion. AND and OR are
composed of smaller ones that exist anyway (reorganisation and self-adjustment). Predicates are found by the
postings that the other indexes use, once per distinct predicate; see ``kernels.atree`` for how events are matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpumatch.arrays import Array, pointers, read_only, spans
from gpumatch.arrayspec import ANYTHING, HOOKED, ArraySpec, Numbers, Pointers, Problem, between, refused, sized, whole
from gpumatch.codes.encode import likelihoods
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.expr.normal import Splitting
from gpumatch.index.blocks import by_block, tree_problems
from gpumatch.index.costs import Costs
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Planning, Workspace, bits_of
from gpumatch.index.input import Input
from gpumatch.kernels import atree as kernels
from gpumatch.kernels import atree_build, dag
from gpumatch.kernels.frames import Frame
from gpumatch.kernels.plan import leaf_costs, wakings
from gpumatch.kernels.words import EVENTS
from gpumatch.opcodes import RANGE
from gpumatch.subscriptions.block import Attributes

_KEPT = 1 << 27  # largest buffer in bytes that is kept for the next call
_VALUES, _ROWS = 1 << 13, 1 << 16  # initial room for words of values, and for rows
_UNIT, _WAKE, _EMIT = 180.0, 3.0, 12.0  # nanoseconds per expression evaluated for a tile, woken, true of an event
_LEAF = 20.0  # and per predicate that holds; equal ones are one leaf
_EXPRESSION, _ITEM = 24, 44  # bytes of an expression, and of each predicate and operator if none are shared
_PER_LEAF = 4  # predicates per finest block; the depth of an attribute's tree is chosen for this


@dataclass(frozen=True, slots=True)
class ATree(IndexParams):
    """Expressions of any form; sub-expressions that they share are evaluated once for all of them."""

    kind: ClassVar[str] = "atree"


ARRAYS = {
    "directory": ArraySpec(
        "uint64",
        "2 * attributes",
        "two words per attribute: root block; levels with postings, levels in all, shift",
        HOOKED,
    ),
    "node_ptr": ArraySpec("int64", "blocks + 1", "per block: where its pieces start", Pointers("waiting")),
    "waiting": ArraySpec("int32", "waiting", "the pieces of predicates that lie in each block", Numbers("pieces")),
    "piece_node": ArraySpec(
        "int32", "pieces", "per piece, a range of codes: the node of its predicate", Numbers("leaves")
    ),
    "piece_lo": ArraySpec("int32", "pieces", "per piece: its first code", ANYTHING),
    "piece_hi": ArraySpec("int32", "pieces", "per piece: its last code", ANYTHING),
    "base": ArraySpec(
        "int32",
        "leaves",
        "per predicate that is negated somewhere: the node that is true where it is known, else -1",
        Numbers("leaves", -1),
    ),
    "unit_ptr": ArraySpec(
        "int64",
        "units + 1",
        "per unit (a node that several others use, or a clause): where its program starts",
        Pointers("items"),
    ),
    "items": ArraySpec(
        "int32", "items", "programs: nodes, negated predicates, and groups as an operator and a length", HOOKED
    ),
    "level_ptr": ArraySpec(
        "int64",
        "levels + 1",
        "where each level of units starts, and clauses; units of one level do not use each other",
        Pointers("units", whole=False),
        on_device=False,
    ),
    "parent_ptr": ArraySpec(
        "int64", "nodes + 1", "per node: where the units that wait for it start", Pointers("parents"), on_device=False
    ),
    "parent": ArraySpec("int32", "parents", "units that wait for a node", Numbers("units"), on_device=False),
}
META = {
    "nodes": "of the graph",
    "edges": "of the graph",
    "always": "the node that is always true, -1 if there is none",
}


_FRAMED = tuple(name for name in ARRAYS if name != "level_ptr")


class _Graph(NamedTuple):
    """Nodes with their children ``child[ptr[n]:last[n]]``; ``order`` lists them after their children."""

    ops: Array
    ptr: Array
    last: Array
    child: Array
    order: Array
    uses: Array
    edges: int

    def lists(self) -> tuple[Array, ...]:
        return self.ops, self.ptr, self.last, self.child


def _graph(given: Input, roots: Array) -> _Graph:
    """The graph of the clauses; ``roots`` gets the node of each, for a row with several only at its first clause."""
    attributes, book, table, first, last = given[:5]
    ops, ptr, child = dag.intern_clauses(
        first,
        last,
        table.clause_row,
        (table.clause_ptr, table.clause_program),
        table.predicates(),
        (table.program_ptr, table.program_item),
        (attributes.multi, attributes.presence, book.counts()),
        _room(table),
        roots,
    )
    level, size = np.empty(len(ops), np.int64), np.empty(len(ops), np.int64)
    dag.measure(ops, ptr, child, level, size)
    order = np.argsort(level * (int(size.max()) + 1) + size, kind="stable").astype(np.int32)
    uses, written = np.zeros(len(ops), np.int64), np.zeros(len(ops), np.int64)
    dag.count_uses(order, ops, ptr, ptr[1:], child, roots, written)
    child, ends = dag.reorganise(order, ops, ptr, child, written)
    edges = dag.count_uses(order, ops, ptr, ends, child, roots, uses)
    return _Graph(ops, ptr, ends, child, order, uses, edges)


def _room(table: Table) -> tuple[int, int]:
    """The most nodes and children that predicates can make, true and false ones, in ranges and in gaps."""
    kind, lo, hi = table.columns()[1:]
    ranges = int((hi - lo)[(kind != RANGE) & (hi > lo)].sum())
    return 4 * len(kind) + 8, 16 * len(kind) + 4 * ranges + 64


class _Leaves(NamedTuple):
    """Nodes of predicates in the order of their numbers, and the ranges of codes of those that have postings."""

    node: Array
    piece_node: Array  # by number
    predicate: Array  # a row per piece: attribute, RANGE, first and last code


def _leaves(graph: _Graph) -> tuple[_Leaves, Array]:
    """The leaves, and for each negated predicate the nodes of its base and minus."""
    ops, ptr, child = graph.ops, graph.ptr, graph.child
    late = np.flatnonzero((ops == dag.LATE) & (graph.uses > 0))
    negated = np.stack([child[ptr[late]], child[ptr[late] + 1]], axis=1)
    needed = graph.uses > 0
    needed[negated] = True
    used = np.flatnonzero((ops < dag.AND) & (ops != dag.LATE) & needed)
    posted = used[ops[used] == dag.POSTED]
    posted = posted[np.lexsort((child[ptr[posted] + 1], child[ptr[posted]]))]
    counts = (ptr[posted + 1] - ptr[posted] - 1) // 2
    at = spans(np.zeros(len(posted)), counts) * 2 + np.repeat(ptr[posted] + 1, counts)
    predicate = np.zeros((len(at), 4), np.int32)
    predicate[:, 0] = np.repeat(child[ptr[posted]], counts)
    predicate[:, 1] = RANGE
    predicate[:, 2], predicate[:, 3] = child[at], child[at + 1]
    node = np.concatenate([posted, used[ops[used] != dag.POSTED]])
    return _Leaves(node, np.repeat(np.arange(len(posted), dtype=np.int32), counts), read_only(predicate)), negated


def _chances(given: Input, graph: _Graph, leaves: _Leaves) -> tuple[Array, Array]:
    """How likely each leaf is to be true, and how likely the node that it waits for is, by node.

    A missing value counts as likely where no events were observed.
    """
    nothing, no_rows = np.zeros(1, np.int64), read_only(np.zeros(0, np.int32))
    pieces = Table(0, no_rows, nothing, no_rows, leaves.predicate.ravel(), no_rows, no_rows, no_rows, nothing, no_rows)
    each = likelihoods(given.attributes, given.book, pieces, given.sample)
    chance = np.zeros(len(graph.ops))
    chance[leaves.node] = np.bincount(leaves.piece_node, weights=each, minlength=len(leaves.node))
    chance = np.minimum(chance, 1.0)
    chance[graph.ops == dag.ALWAYS] = 1.0
    late = np.flatnonzero(graph.ops == dag.LATE)
    base, minus = graph.child[graph.ptr[late]], graph.child[graph.ptr[late] + 1]
    unobserved = (base == dag.TRUE_NODE) & (not given.sample)
    chance[late] = np.where(unobserved, 1.0, chance[base] * (1.0 - chance[minus]))
    waking = chance.copy()
    waking[late] = chance[base]
    return chance, waking


def _units(
    graph: _Graph, roots: Array, leaves: int, chances: tuple[Array, Array], number: Array, base: Array
) -> dict[str, Array]:
    """Programs of the nodes that are kept and of clauses, by level, and the nodes that they wait for."""
    stored, level = np.zeros(len(graph.ops), np.bool_), np.zeros(len(graph.ops), np.int32)
    atree_build.choose_units(graph.order, *graph.lists(), graph.uses, stored, level)
    atree_build.choose_access(graph.order, *graph.lists(), graph.uses, stored, *chances)
    inner = np.flatnonzero(stored & (graph.ops >= dag.AND))
    inner = inner[np.argsort(level[inner], kind="stable")]
    number[inner] = leaves + np.arange(len(inner))
    level_ptr = np.searchsorted(level[inner], np.arange(int(level[inner].max(initial=-1)) + 2))
    unit_ptr = np.empty(len(inner) + len(roots) + 1, np.int64)
    items = np.empty(graph.edges + 2 * len(graph.ops) + len(roots), np.int32)
    length = atree_build.write_programs(inner, roots, *graph.lists(), stored, number, unit_ptr, items)
    items = items[:length].copy()
    parent_ptr = np.zeros(leaves + len(inner) + 1, np.int64)
    atree_build.link_parents(unit_ptr, items, base, True, parent_ptr, np.empty(0, np.int32))
    np.cumsum(parent_ptr, out=parent_ptr)
    parent = np.empty(parent_ptr[-1], np.int32)
    atree_build.link_parents(unit_ptr, items, base, False, parent_ptr[:-1].copy(), parent)
    return {
        "unit_ptr": unit_ptr,
        "items": items,
        "level_ptr": level_ptr.astype(np.int64),
        "parent_ptr": parent_ptr,
        "parent": parent,
    }


def _postings(given: Input, leaves: _Leaves) -> dict[str, Array]:
    """Pieces by block of codes."""
    depth = bits_of(given.book.counts())
    load = np.bincount(leaves.predicate[:, 0], minlength=len(depth))
    levels = np.minimum(bits_of(load // _PER_LEAF), depth)
    none = read_only(np.zeros(0, np.int32))
    access = 4 * np.arange(len(leaves.predicate))
    packed, node_ptr, waiting = by_block(access, (leaves.predicate.ravel(), none, none), depth, levels)
    return {"directory": packed, "node_ptr": node_ptr, "waiting": waiting}


def _build(params: ATree, given: Input) -> dict[str, Any]:
    """Arrays for clauses in row order."""
    roots = np.empty(given.last - given.first, np.int32)
    graph = _graph(given, roots)
    leaves, negated = _leaves(graph)
    number = np.full(len(graph.ops), -1, np.int32)
    number[leaves.node] = np.arange(len(leaves.node))
    base = np.full(len(leaves.node), -1, np.int32)
    base[number[negated[:, 1]]] = number[negated[:, 0]]
    arrays: dict[str, Any] = {
        **_postings(given, leaves),
        "piece_node": leaves.piece_node,
        "piece_lo": leaves.predicate[:, 2].copy(),
        "piece_hi": leaves.predicate[:, 3].copy(),
        "base": base,
        **_units(graph, roots, len(leaves.node), _chances(given, graph, leaves), number, base),
    }
    meta = {"nodes": int(np.count_nonzero(graph.uses)), "edges": int(graph.edges), "always": int(number[dag.TRUE_NODE])}
    return arrays | meta


def _validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    """Units may use only nodes of lower levels, so that none is read before it is known."""
    a, sizes = index.arrays, around.sizes
    inner, leaves = int(a["level_ptr"][-1]), sizes["leaves"]
    yield from tree_problems(a["directory"], around.counts, sizes["blocks"])
    yield from sized("unit_ptr", a["unit_ptr"], inner + sizes["clauses"] + 1)
    yield from sized("parent_ptr", a["parent_ptr"], leaves + inner + 1)
    for name in ("nodes", "edges"):
        yield from whole(name, index.meta[name], 0, 1 << 62)
    yield from whole("always", index.meta["always"], -1, leaves - 1)
    heads = (a["items"] < 0) & (a["items"] > atree_build.NEGATED)
    yield from _group_problems(a["unit_ptr"], a["items"], np.flatnonzero(heads))
    heads[1:] |= heads[:-1]  # the lengths of groups
    unit = np.repeat(np.arange(sizes["units"]), np.diff(a["unit_ptr"]))[~heads]
    level = np.searchsorted(a["level_ptr"], np.minimum(unit, inner - 1), side="right") - 1
    below = np.where(unit < inner, a["level_ptr"][level], inner)
    number = a["items"][~heads]
    yield from between("items", number, atree_build.NEGATED - leaves + 1, leaves + below - 1)
    negated = number[number < 0]
    known = a["base"][atree_build.NEGATED - negated] >= 0
    yield from refused("items", negated, ~known, "negated predicates that have a base")
    waited = np.repeat(np.arange(inner), np.diff(a["parent_ptr"][leaves:]))
    later = a["parent"][int(a["parent_ptr"][leaves]) :]
    yield from refused("parent", later, later <= waited, "units after those that they wait for")


def _group_problems(unit_ptr: Array, items: Array, heads: Array) -> Iterator[Problem]:
    """Each unit's program must be one item, and groups must be nested, no deeper than the stack for matching.

    ``heads``: where groups begin.
    """
    lengths = np.append(items, np.int32(0))[heads + 1].astype(np.int64)
    yield from refused("items", items[heads], ~np.isin(items[heads], (-1 - dag.AND, -1 - dag.OR)), "operators AND, OR")
    yield from between("items", lengths, 1, len(items))
    starts, ends, ends_of = unit_ptr[:-1], unit_ptr[1:], heads + 2 + lengths
    own = np.ones(len(starts), np.int64)
    first = np.searchsorted(heads, starts)
    headed = np.append(heads, -1)[first] == starts
    own[headed] = 2 + lengths[first[headed]]
    yield from refused("unit_ptr", ends, ends - starts != own, "the end of one item")
    for _ in range(atree_build.NEST):
        around = np.searchsorted(starts, heads, side="right") - 1
        yield from between("items", ends_of, 0, ends[around])
        outer = heads >= np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(ends_of)])[:-1]
        starts, ends = heads[outer], ends_of[outer]
        heads, ends_of = heads[~outer], ends_of[~outer]
    yield from refused("items", heads, heads >= 0, f"groups nested at most {atree_build.NEST} deep")


def _scratch(index: FlatIndex, work: Workspace) -> tuple[Array, ...]:
    """Memory of one call at a time: slots of nodes, marks of units, values, found rows, and shared rows."""
    try:
        return work.scratch.pop()
    except IndexError:
        nodes, units = len(index.arrays["parent_ptr"]) - 1, len(index.arrays["unit_ptr"]) - 1
        words = (units >> 6) + 1
        return (
            np.zeros(nodes, np.int32),
            np.empty(nodes, np.int32),
            np.zeros(words, np.uint64),
            np.zeros((words >> 6) + 1, np.uint64),
            np.empty(_VALUES, np.uint64),
            np.empty(_ROWS, np.int32),
            np.zeros(0, np.uint64),
        )


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    tiles = range(0, max(len(events.ptr) - 1, 1), EVENTS)
    found = [_match_tile(index, table, _tile(events, at), once, work) for at in tiles]
    if len(found) == 1:
        return found[0]
    counts = np.concatenate([np.diff(offsets) for offsets, _ in found])
    return pointers(counts), np.concatenate([rows for _, rows in found])


def _tile(events: CodedEvents, first: int) -> CodedEvents:
    """The events from ``first`` on that are matched together."""
    ptr = events.ptr[first : first + EVENTS + 1]
    return CodedEvents(ptr, events.attribute, events.code)


def _match_tile(
    index: FlatIndex, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    arrays = index.arrays
    scratch = _scratch(index, work)
    frame: Frame | None = index.kept.get("frame")
    if frame is None:
        frame = index.keep("frame", Frame([arrays[name] for name in _FRAMED]))
    inner = int(arrays["level_ptr"][-1])
    offsets, rows, buffers, evaluated = kernels.match_atree(
        events.arrays(),
        (table.clause_row[index.first : index.last], table.length, once),
        frame.numbers,
        (len(arrays["parent_ptr"]) - 1 - inner, inner, int(index.meta["always"])),
        scratch,
    )
    if all(buffer.nbytes <= _KEPT for buffer in buffers):
        work.scratch.append((*scratch[:4], *buffers))
    work.count("evaluated", evaluated)
    return offsets, rows


def _place(params: ATree, given: Input, clauses: Array) -> Array:
    """Clauses in row order: those of one row are joined, and matches are found in that order."""
    rows: Array = given.table.clause_row[clauses]
    return rows


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    nodes, edges = index.meta["nodes"], index.meta["edges"]
    return {
        "postings": len(index.arrays["waiting"]),
        "nodes": nodes,
        "edges": edges,
        "cost": nodes + edges,
        "evaluated": counters.get("evaluated", 0),
    }


def _cost(params: ATree, costs: Costs, clauses: Array) -> Array:
    """Nanoseconds per clause; a clause is evaluated once for a tile of events."""
    table, chance = costs.given.table, np.empty((2, len(clauses)))
    heads = (table.clause_ptr, table.clause_program, table.predicate, table.programs)
    wakings(clauses, *heads, costs.likelihood, costs.there, chance)
    evaluated = -np.expm1(-EVENTS * chance[1])
    each: Array = evaluated * _UNIT / EVENTS + chance[1] * _WAKE + chance[0] * _EMIT
    return each + _cost_of_leaves(costs)[clauses]


def _cost_of_leaves(costs: Costs) -> Array:
    """Nanoseconds for the leaves of each clause of the table: its share of the cost of predicates that hold."""
    table = costs.given.table
    each = np.empty(len(table.clause_row))
    leaf_costs(table.clause_ptr, table.clause_program, table.programs, costs.likelihood, *costs.distinct, each)
    return _LEAF * each


def _bytes(params: ATree, costs: Costs, clauses: Array) -> int:
    table = costs.given.table
    own, programs = np.diff(table.clause_ptr)[clauses], table.clause_program[clauses]
    items = int(own.sum() + np.diff(table.program_ptr)[programs[programs >= 0]].sum())
    return len(clauses) * _EXPRESSION + items * _ITEM


def _takes(costs: Costs, clauses: Array) -> Array:
    """The clauses that a graph finds cheaper than postings do; all or none of a row."""
    saved = costs.postings(clauses) + costs.evaluated(clauses) - _cost(ATree(), costs, clauses)
    rows = costs.given.table.clause_row[clauses]
    kept: Array = clauses[np.bincount(rows, saved)[rows] > 0]
    return kept


def _reason(costs: Costs, clauses: Array) -> str:
    return f"common sub-expressions of {len(clauses)} clauses are evaluated once"


ATREE = Kind(
    params=ATree,
    arrays=ARRAYS,
    meta=META,
    build=_build,
    match=_match,
    validate=_validate,
    splitting=Splitting.NEVER,
    place=_place,
    facts=_facts,
    events=lambda index: EVENTS,
    cost=_cost,
    bytes=_bytes,
    planning=Planning((ATree(),), _reason, doubt=1.25, takes=_takes),
    drivers=(kernels.match_atree,),
)
