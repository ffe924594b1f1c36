"""TAMA: tables of cells for every predicate, and a count of hits per clause ("Towards Approximate Event Processing in a
Large-Scale Content-Based Network").

The line that is cut is that of codes. A range of codes is posted on the largest cells that it contains, at most two of
each level, and at its ends rounded outward to cells of the last level; an event's code lies in one cell of each level.
A clause is found when all its predicates are hit. Hits on whole cells are certain; those on rounded ones are verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from gpumatch.coded import CodedEvents, EventEncoder, Table
from gpumatch.codes import pointers, spans
from gpumatch.discretise import median_cuts
from gpumatch.errors import GpumatchError, SchemaError
from gpumatch.index.flat import ArraySpec, FlatIndex, IndexParams, Input, Kind, bits_of, by_access, by_likelihood, count
from gpumatch.kernels import tama as kernels
from gpumatch.predicates import ANY, RANGE, Array, Attributes

_MOST_LEVELS = 31  # codes are int32
_ENOUGH = 16  # levels at most, if none are asked for: more save hardly a check, and cost two postings a range each
_SAMPLE = 1 << 16  # clauses from which the levels for a false positive rate are estimated


@dataclass(frozen=True, slots=True)
class Tama(IndexParams):
    """Count the satisfied predicates of every subscription that an event meets.

    ``levels``: how often the codes of an attribute are halved; by default as often as it takes to tell them all apart,
    but 16 times at most. ``max_fpr``: take the fewest levels for which so many of the found subscriptions are expected
    to be false (``stats()`` tells how many that are). Either way false ones are sorted out, unless ``approximate`` asks
    for them: then results hold every match and some more. ``stats()`` tells the share of these among all that is found,
    the paper's false positive rate, from a check of every 16th event.

    ``separation="events"`` cuts cells not in the middle but at the medians of the events that ``observe`` was given
    before the index was built; where there were none it does not, and ``stats()`` says so.
    """

    kind: ClassVar[str] = "tama"
    levels: int | None = None
    max_fpr: float | None = None
    approximate: bool = False
    separation: Literal["codes", "events"] = "codes"

    def __post_init__(self) -> None:
        whole = isinstance(self.levels, int) and not isinstance(self.levels, bool)
        if self.levels is not None and not (whole and 0 <= self.levels <= _MOST_LEVELS):
            raise SchemaError(f"Tama's levels are a whole number from 0 to {_MOST_LEVELS}, found {self.levels!r}")
        number = isinstance(self.max_fpr, (int, float)) and not isinstance(self.max_fpr, bool)
        if self.max_fpr is not None and not (number and 0 < self.max_fpr < 1):
            raise SchemaError(f"Tama's max_fpr is a number between 0 and 1, found {self.max_fpr!r}")
        if self.levels is not None and self.max_fpr is not None:
            raise SchemaError("Tama takes levels or max_fpr, found both; leave one out, each decides the other")
        if not isinstance(self.approximate, bool):
            raise SchemaError(f"Tama's approximate is True or False, found {self.approximate!r}")
        if self.separation not in ("codes", "events"):
            raise SchemaError(
                f"Tama's separation is 'codes', or 'events' for those given to observe(), found {self.separation!r}"
            )


ARRAYS = {
    "directory": ArraySpec(
        "int64", "four words per attribute: first node; levels with postings, shift; last finest cell; table of codes"
    ),
    "cell_ptr": ArraySpec("int64", "per attribute: where its finest cells by code start, none if codes are shifted"),
    "cells": ArraySpec("int32", "finest cell of each code, where cells are cut by events"),
    "node_ptr": ArraySpec("uint32", "per node: where its postings start"),
    "postings": ArraySpec("uint32", "clause (on list attributes: number of a predicate) and whether to verify it"),
    "needed": ArraySpec("uint8", "per clause: hits that make it a match"),
    "owner": ArraySpec("int32", "per predicate on a list attribute: its clause"),
    "rest": ArraySpec("int32", "clauses that no posting can hold: tested on every event"),
    "observed": ArraySpec("int64", "how many observed events cells were cut by"),
}


def build(params: Tama, given: Input) -> dict[str, Array]:
    """Arrays for clauses whose predicates are sorted by how likely they hold."""
    attributes, table = given.attributes, given.table
    counts = given.book.counts()
    depth = bits_of(counts).astype(np.int64)
    levels = np.minimum(depth, _levels(params, given, counts, depth))
    shift = depth - levels
    observed = sum(map(len, given.sample)) if params.separation == "events" else 0
    if observed:
        cell_ptr, cells = _cells_of_events(given, counts, levels, shift > 0)
    else:
        cell_ptr, cells = np.zeros(len(counts) + 1, np.int64), np.zeros(0, np.int32)
    directory, nodes = _directory(given, counts, shift, (cell_ptr, cells))
    needed = np.zeros(given.last - given.first, np.uint8)

    def hang(node_next: Array, postings: Array, owner: Array) -> int:
        return int(
            kernels.hang_clauses(
                given.first,
                given.last,
                not params.approximate,
                (table.clause_ptr, table.clause_program),
                table.predicates(),
                attributes.multi,
                counts,
                directory,
                (cell_ptr, cells),
                node_next,
                postings,
                (needed, owner),
            )
        )

    held = np.zeros(nodes, np.int64)
    lists = hang(held, np.zeros(0, np.uint32), np.zeros(0, np.int32))
    node_ptr = pointers(held)
    if node_ptr[-1] >= 1 << 32:
        raise GpumatchError(f"Tama holds up to {1 << 32} postings, found {node_ptr[-1]}; ask for fewer levels")
    postings, owner = np.zeros(node_ptr[-1] + kernels.PADDING, np.uint32), np.empty(lists, np.int32)
    hang(node_ptr[:-1].copy(), postings, owner)
    rest = (given.first + np.flatnonzero(needed == 0)).astype(np.int32)
    tables = (node_ptr.astype(np.uint32), postings, needed, owner, rest)
    arrays = (directory, cell_ptr, cells, *tables, np.array([observed], np.int64))
    return dict(zip(ARRAYS, arrays, strict=True))


def _cells_of_events(given: Input, counts: Array, levels: Array, coarse: Array) -> tuple[Array, Array]:
    """Finest cells of the codes of coarse attributes, cut at the medians of observed events; and where each starts."""
    everything = np.ones(len(counts), np.bool_)
    parts = [
        EventEncoder(given.book, given.attributes, everything, batch).encode(0, len(batch)) for batch in given.sample
    ]
    attribute, code = (np.concatenate([getattr(part, name) for part in parts]) for name in ("attribute", "code"))
    order = np.argsort(attribute, kind="stable")
    code, starts = code[order], np.searchsorted(attribute[order], np.arange(len(counts) + 1))
    cells = [np.zeros(0, np.int32)]
    for a in np.flatnonzero(coarse):
        cuts = median_cuts(code[starts[a] : starts[a + 1]], 0, counts[a], levels[a])
        cells.append(np.searchsorted(cuts, np.arange(counts[a]), side="right").astype(np.int32))
    return pointers(np.where(coarse, counts, 0)), np.concatenate(cells)


def _directory(given: Input, counts: Array, shift: Array, line: tuple[Array, Array]) -> tuple[Array, int]:
    """What matching needs of each attribute, and the number of nodes of all."""
    single = np.zeros(len(counts), np.bool_)
    kernels.find_singles(given.first, given.last, given.table.clause_ptr, given.table.predicates(), single)
    single &= shift > 0  # else the finest cells are single codes themselves
    top = (counts - 1) >> shift
    cell_ptr, cells = line
    tabled = np.diff(cell_ptr) > 0
    top[tabled] = cells[cell_ptr[1:][tabled] - 1]
    tree, above = kernels.BRICK * ((top >> 3) + 1), top
    while above.max(initial=0) >= 8:
        tree += np.where(above >= 8, kernels.BRICK * ((above >> 7) + 1), 0)
        above = above >> 4
    base = pointers(tree + np.where(single, counts, 0))
    directory = np.empty((len(counts), kernels.WORDS), np.int64)
    directory[:, kernels.BASE] = base[:-1]
    directory[:, kernels.FACTS] = shift << 32
    directory[:, kernels.TOP] = top
    directory[:, kernels.CODES] = np.where(single, base[:-1] + tree, -1)
    return directory.ravel(), int(base[-1])


def _levels(params: Tama, given: Input, counts: Array, depth: Array) -> int:
    """How many levels the parameters ask for."""
    if params.levels is not None:
        return params.levels
    if params.max_fpr is None:
        return _ENOUGH
    shares = _Shares(given, counts, depth)
    return next(levels for levels in range(_MOST_LEVELS + 1) if shares.false(levels) <= params.max_fpr)


class _Shares:
    """What share of the found is expected to be false, from a sample of clauses."""

    def __init__(self, given: Input, counts: Array, depth: Array) -> None:
        table = given.table
        step = max(1, (given.last - given.first) // _SAMPLE)
        clauses = np.arange(given.first, given.last, step)
        sizes = np.diff(table.clause_ptr)[clauses]
        attribute, kind, lo, hi = (column[spans(table.clause_ptr[clauses], sizes)] for column in table.columns())
        self._clause, self._clauses = np.repeat(np.arange(len(clauses)), sizes), len(clauses)
        several = (kind != RANGE) & (kind <= ANY)
        ranges = np.where(several, hi - lo, kind == RANGE)
        self._predicate = np.repeat(np.arange(len(kind)), ranges)
        inside = several[self._predicate]
        at = spans(np.where(several, lo, 0), ranges)
        at[~inside] = 0
        self._lo, self._hi = lo[self._predicate], hi[self._predicate]
        self._lo[inside], self._hi[inside] = table.range_lo[at[inside]], table.range_hi[at[inside]]
        self._depth, self._top = (values[attribute[self._predicate]] for values in (depth, counts - 1))

    def false(self, levels: int) -> float:
        """The mean over clauses of the sum over predicates of what rounding adds to them (Theorems 1 to 3).

        That is a share where events are spread evenly over the codes; predicates of single codes are not rounded.
        """
        shift = np.maximum(self._depth - levels, 0)
        lo, hi = (self._lo >> shift) << shift, np.minimum(((self._hi >> shift) + 1) << shift, self._top + 1)
        held = np.bincount(self._predicate, self._hi - self._lo + 1, len(self._clause))
        covered = np.bincount(self._predicate, hi - lo, len(self._clause))
        ranges = np.bincount(self._predicate, minlength=len(self._clause))
        rounded = (held != ranges) & (covered > 0)
        share = np.where(rounded, 1 - held / np.maximum(covered, 1), 0)
        by_clause = np.bincount(self._clause, share, self._clauses)
        return float(np.minimum(by_clause, 1).mean()) if self._clauses else 0.0


def match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool
) -> tuple[Array, Array]:
    arrays = index.arrays
    approximate = isinstance(index.params, Tama) and index.params.approximate
    sampling = approximate and not once  # shared rows are another rate, the paper's of interfaces
    phase = count(index, "events", len(events.ptr) - 1) % 16 if sampling else -1
    offsets, rows, checked, false = kernels.match_tables(
        events.arrays(),
        index.first,
        table.length,
        once,
        phase,
        (attributes.multi, attributes.presence),
        arrays["directory"],
        (arrays["cell_ptr"], arrays["cells"]),
        tuple(arrays[name] for name in ("node_ptr", "postings", "needed", "owner", "rest")),
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    if sampling:
        count(index, "checked", checked)
        count(index, "false", false)
    return offsets, rows


def _facts(index: FlatIndex) -> dict[str, Any]:
    """Postings and levels; of an approximate index also how many of its results were checked and which share failed."""
    params, arrays = index.params, index.arrays
    assert isinstance(params, Tama)
    top = arrays["directory"].reshape(-1, kernels.WORDS)[:, kernels.TOP]
    facts: dict[str, Any] = {"postings": int(arrays["node_ptr"][-1]), "levels": int(top.max(initial=0)).bit_length()}
    facts["separation"] = params.separation
    if params.separation == "events" and not arrays["observed"][0]:
        facts["separation"] = "codes: no events were observed before it was built; observe() some, then compact()"
    if params.approximate:
        checked, false = (index.counters.get(name, 0) for name in ("checked", "false"))
        facts |= {"checked": checked, "fpr": false / checked if checked else None}
    return facts


TAMA = Kind(Tama, ARRAYS, build, match, by_access, by_likelihood, _facts)
