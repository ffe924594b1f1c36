"""Indexes: small frozen parameters, and builders that turn a table of predicates into flat arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import CodedEvents, Table, reorder, sort_predicates
from gpumatch.errors import StorageError
from gpumatch.index.atree import ATREE, ATree
from gpumatch.index.flat import FlatIndex, IndexParams, Kind, Workspace, by_likelihood
from gpumatch.index.gem import GEM, Gem
from gpumatch.index.input import Input
from gpumatch.index.ladder import LADDER, Ladder
from gpumatch.index.postings import PSTBLOOM, SCAN, PstBloom, Scan
from gpumatch.index.psthash import PSTHASH, PstHash
from gpumatch.index.tama import TAMA, Tama
from gpumatch.kernels.rows import merge_rows
from gpumatch.subscriptions.block import Attributes

__all__ = [
    "KINDS",
    "ATree",
    "FlatIndex",
    "Gem",
    "IndexParams",
    "Input",
    "Kind",
    "Ladder",
    "PstBloom",
    "PstHash",
    "Scan",
    "Tama",
    "Workspace",
    "arrange",
    "build",
    "kind_of",
    "match",
    "merge",
    "params_from",
    "rank",
    "register",
]

KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Register a kind of index: ``index=`` then accepts its name and its parameters."""
    if KINDS.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"an index named {kind.name!r} already exists; give this one another name")


for _kind in (SCAN, PSTBLOOM, GEM, TAMA, PSTHASH, LADDER, ATREE):
    register(_kind)


def kind_of(params: IndexParams) -> Kind:
    return KINDS[params.kind]


def rank(parts: Sequence[tuple[IndexParams, Array]], given: Input, likelihood: Array) -> None:
    """Sort the predicates of the given table, and the likelihoods with them, as each part's index needs them."""
    keys = again = _ranked(parts, given.table, likelihood)
    sort_predicates(given.table, keys)
    for params, clauses in parts:
        if rerank := kind_of(params).rerank:
            again = rerank(params, given, clauses, again)
    if again is not keys:
        sort_predicates(given.table, again)


def arrange(parts: Sequence[tuple[IndexParams, Array]], given: Input) -> tuple[Table, list[int]]:
    """The ranked table with its clauses in the order that each part's index needs, and where each part starts."""
    orders = []
    for params, clauses in parts:
        order = kind_of(params).place(params, given, clauses)
        orders.append(clauses[np.argsort(order, kind="stable")])
    bounds = np.cumsum([0, *map(len, orders)]).tolist()
    return reorder(given.table, orders[0] if len(orders) == 1 else np.concatenate(orders)), bounds


def _ranked(parts: Sequence[tuple[IndexParams, Array]], table: Table, likelihood: Array) -> Array:
    """Sort keys of all predicates: each part's kind ranks those of its clauses."""
    if all(kind_of(params).rank is by_likelihood for params, _ in parts):
        return likelihood
    keys = likelihood.copy()
    for params, clauses in parts:
        mine = np.zeros(len(table.clause_row), np.bool_)
        mine[clauses] = True
        own = np.flatnonzero(np.repeat(mine, np.diff(table.clause_ptr)))
        keys[own] = kind_of(params).rank(params, table, likelihood)[own]
    return keys


def build(params: IndexParams, given: Input) -> FlatIndex:
    """The index of some clauses of a table, which are already in the order that the kind needs."""
    kind = kind_of(params)
    built = kind.build(params, given)
    arrays, meta = {name: built[name] for name in kind.arrays}, {name: built[name] for name in kind.meta}
    for array in arrays.values():
        array.flags.writeable = False
    return kind.checked(FlatIndex(params, given.first, given.last, arrays, meta), len(given.attributes))


def match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    """Offsets and rows of the events, ascending; ``once``: rows are shared, so one clause found for a row is enough."""
    return kind_of(index.params).match(index, attributes, table, events, once, work)


def merge(found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Merge the results of several indexes over the same events; a row that several found counts once."""
    offsets, rows = found[0]
    for other in found[1:]:
        offsets, rows = merge_rows(offsets, rows, *other)
    return offsets, rows


def params_from(facts: Mapping[str, Any]) -> IndexParams:
    """Parameters from the output of ``IndexParams.to_dict``."""
    kind = KINDS.get(str(facts.get("kind")))
    if kind is None:
        hint = "upgrade gpumatch, or import the module that registers it"
        raise StorageError(f"the saved index is of kind {facts.get('kind')!r}, which is not known here; {hint}")
    return kind.params(**{name: value for name, value in facts.items() if name != "kind"})
