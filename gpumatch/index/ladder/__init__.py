"""Match-Ladder: attributes are put in an order, and every clause waits at its first predicate.

The order is Theorem 1's, by ``pa * pp / (1 - pp)``: ``pa`` is the share of clauses that test the attribute, ``pp`` how
likely its predicates are to hold. The paper moves predicates from layer to layer while it matches; here a clause's
predicates lie in ladder order and are tested up to the first that fails: the index never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpumatch.arrays import Array
from gpumatch.arrayspec import CLAUSES, HOOKED, ArraySpec, Pointers, Problem
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import SchemaError
from gpumatch.index.blocks import by_block, tree_problems
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Workspace, bits_of
from gpumatch.index.input import Input
from gpumatch.kernels import ladder as kernels
from gpumatch.kernels.postings import find_access
from gpumatch.subscriptions.block import Attributes

ORDERS = ("best", "worst", "given")


@dataclass(frozen=True, slots=True)
class Ladder(IndexParams):
    """Test the predicates of every subscription in one order of attributes.

    ``order``: ``"best"`` ends tests soonest, ``"worst"`` is its reverse, ``"given"`` is as subscriptions were written.
    """

    kind: ClassVar[str] = "ladder"
    order: str = "best"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise SchemaError(f"the order of a Ladder must be one of {', '.join(ORDERS)}, found {self.order!r}")


ARRAYS = {
    "directory": ArraySpec(
        "uint64",
        "2 * attributes",
        "two words per attribute: root node; levels with postings, levels in all, shift",
        HOOKED,
    ),
    "node_ptr": ArraySpec("int64", "nodes + 1", "per node: where its clauses start", Pointers("waiting")),
    "waiting": ArraySpec("int32", "waiting", "the clauses that wait at each node", CLAUSES),
    "rest": ArraySpec("int32", "rest", "clauses without a predicate that can wait: tested on every event", CLAUSES),
}


def _rank(params: Ladder, table: Table, likelihood: Array) -> Array:
    """The layer of each predicate's attribute, or zeros to keep the given order."""
    attribute = table.columns()[0]
    if params.order == "given":
        return np.zeros(len(attribute))
    layer = layers(table, likelihood)[attribute].astype(np.float64)
    return layer if params.order == "best" else -layer


def layers(table: Table, likelihood: Array) -> Array:
    """The layer of each attribute on the ladder; attributes whose predicates always hold come last."""
    own = int(table.clause_ptr[-1])
    attribute = table.columns()[0][:own]
    width = int(table.columns()[0].max(initial=-1)) + 1
    tested = np.bincount(attribute, minlength=width)
    holds = np.bincount(attribute, weights=likelihood[:own], minlength=width) / np.maximum(tested, 1)
    fails = np.maximum(1 - holds, 0)
    cost = np.full(width, np.inf)
    np.divide(tested / max(len(table.clause_row), 1) * holds, fails, out=cost, where=fails > 0)
    layer = np.empty(width, np.int64)
    layer[np.argsort(cost, kind="stable")] = np.arange(width)
    return layer


def _build(params: Ladder, given: Input) -> dict[str, Array]:
    """Arrays for clauses whose predicates lie in ladder order."""
    table, first, last = given.table, given.first, given.last
    access = np.full(last, -1, np.int64)
    find_access(table.clause_ptr, table.predicate, first, access)
    waits = access >= 0
    depth = bits_of(given.book.counts())
    load = np.bincount(table.predicate[access[waits]], minlength=len(depth))
    levels = np.minimum(bits_of(load), depth)
    packed, node_ptr, waiting = by_block(access, table.predicates(), depth, levels)
    rest = (first + np.flatnonzero(~waits[first:])).astype(np.int32)
    return dict(zip(ARRAYS, (packed, node_ptr, waiting, rest), strict=True))


def _validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    return tree_problems(index.arrays["directory"], around.counts, around.sizes["nodes"])


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    arrays = index.arrays
    offsets, rows, tests = kernels.match_ladder(
        events.arrays(),
        table.length,
        once,
        (attributes.multi, attributes.presence),
        arrays["directory"],
        (arrays["node_ptr"], arrays["waiting"]),
        arrays["rest"],
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    work.count("tests", tests)
    return offsets, rows


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    return {"postings": len(index.arrays["waiting"]), "tests": counters.get("tests", 0)}


LADDER = Kind(
    params=Ladder,
    arrays=ARRAYS,
    build=_build,
    match=_match,
    validate=_validate,
    rank=_rank,
    facts=_facts,
    drivers=(kernels.match_ladder,),
)
