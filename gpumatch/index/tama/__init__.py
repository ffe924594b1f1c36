"""TAMA: tables of cells for every predicate, and a count of hits per clause ("Towards Approximate Event Processing in a
Large-Scale Content-Based Network").

Codes form the line that is cut into cells. A range of codes is posted on the largest cells that it contains, up to two
per level, and at its ends on cells of the last level, rounded outward; an event's code lies in one cell of each level.
A clause is found when all its predicates are hit. Hits on whole cells are certain; those on rounded ones are verified.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.arrayspec import CLAUSES, HOOKED, ArraySpec, Numbers, Pointers, Problem, between, refused, whole
from gpumatch.codes.encode import EventEncoder
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import GpumatchError, SchemaError
from gpumatch.events.batch import EventBatch
from gpumatch.index.costs import Costs
from gpumatch.index.flat import Around, FlatIndex, IndexParams, Kind, Workspace, bits_of
from gpumatch.index.input import Input
from gpumatch.index.tama.discretise import median_cuts
from gpumatch.kernels import tama as kernels
from gpumatch.subscriptions.block import Attributes

_MOST_LEVELS = 31  # codes are int32
_ENOUGH = 16  # most levels by default: more save hardly any checks, and cost two postings per range each
_AT_ONCE = 16  # observed events matched together: each may find everything
_PLENTY = 1 << 23  # most answers checked before levels are accepted or rejected
_SLACK = 3  # standard deviations by which a measured rate must clear the bound
_ALL_CHECKED = 4096  # this many events at the start are all checked
_STEP = 16  # and then one event in this many
_COUNT = 2.5  # nanoseconds per counted hit
_UNSEEN = "no events were observed before it was built; observe() some, then compact()"


@dataclass(frozen=True, slots=True)
class Tama(IndexParams):
    """Count the predicates of every subscription that an event satisfies.

    ``levels``: how often the codes of an attribute are halved; by default often enough to tell them all apart, but at
    most 16 times. Results are verified, unless ``approximate``: then they have every match and some more. ``stats()``
    reports the share that is false, the paper's false positive rate, as ``fpr``: counted over the first 4,096 events
    and one in 16 after that.

    ``max_fpr``: the largest share of results that may be false, instead of ``levels``. It is measured on the events
    given to ``observe`` before the index was built: the fewest levels are taken that keep the bound there, with a
    margin for other events of their kind. If none do, or no events were observed, nothing is rounded, so nothing is
    false; ``stats()`` and ``plan()`` say so.

    ``separation="events"`` cuts cells at the medians of the events given to ``observe`` before the index was built, not
    in the middle; without such events it does not, and ``stats()`` says so.
    """

    kind: ClassVar[str] = "tama"
    levels: int | None = None
    max_fpr: float | None = None
    approximate: bool = False
    separation: Literal["codes", "events"] = "codes"

    def __post_init__(self) -> None:
        whole = isinstance(self.levels, int) and not isinstance(self.levels, bool)
        if self.levels is not None and not (whole and 0 <= self.levels <= _MOST_LEVELS):
            raise SchemaError(f"Tama's levels must be a whole number from 0 to {_MOST_LEVELS}, found {self.levels!r}")
        number = isinstance(self.max_fpr, (int, float)) and not isinstance(self.max_fpr, bool)
        if self.max_fpr is not None and not (number and 0 < self.max_fpr < 1):
            raise SchemaError(f"Tama's max_fpr must be a number between 0 and 1, found {self.max_fpr!r}")
        if self.levels is not None and self.max_fpr is not None:
            raise SchemaError("Tama takes levels or max_fpr, found both; leave one out")
        if not isinstance(self.approximate, bool):
            raise SchemaError(f"Tama's approximate must be True or False, found {self.approximate!r}")
        if self.separation not in ("codes", "events"):
            raise SchemaError(
                f"Tama's separation must be 'codes' or 'events' for those given to observe(), found {self.separation!r}"
            )


ARRAYS = {
    "directory": ArraySpec(
        "int64",
        "4 * attributes",
        "four words per attribute: first node; levels with postings, shift; last finest cell; table of codes",
        HOOKED,
    ),
    "cell_ptr": ArraySpec(
        "int64",
        "attributes + 1",
        "per attribute: where its finest cells by code start, none if codes are shifted",
        Pointers("cells"),
    ),
    "cells": ArraySpec("int32", "cells", "finest cell of each code, where cells are cut by events", HOOKED),
    "node_ptr": ArraySpec("uint32", "nodes + 1", "per node: where its postings start", Pointers("postings")),
    "postings": ArraySpec(
        "uint32",
        f"postings + {kernels.PADDING}",
        "clause (on list attributes: number of a predicate) and whether to verify it",
        HOOKED,
    ),
    "needed": ArraySpec("uint8", "clauses", "per clause: hits that make it a match", Numbers(kernels.MOST + 1)),
    "owner": ArraySpec("int32", "predicates", "per predicate on a list attribute: its clause", Numbers("clauses")),
    "rest": ArraySpec("int32", "rest", "clauses that no posting can hold: tested on every event", CLAUSES),
}
META = {"observed": "number of observed events that its build used"}


def _build(params: Tama, given: Input) -> dict[str, Any]:
    """Arrays for clauses whose predicates are sorted by how likely they are to hold."""
    observes = params.max_fpr is not None or params.separation == "events"
    cutting = _coded(given, given.sample if observes else ())
    events = len(cutting.ptr) - 1
    if params.max_fpr is None:
        levels = _ENOUGH if params.levels is None else params.levels
    else:  # cells fit the events that cut them better than other events, which must therefore measure them
        half = events // 2 if params.separation == "events" else 0
        cutting, measuring = _slice(cutting, 0, half), _slice(cutting, half, events)
        levels = _levels(params, params.max_fpr, given, cutting, measuring)
    return {**_tables(params, given, cutting, levels), "observed": events}


def _tables(params: Tama, given: Input, cutting: CodedEvents, levels: int) -> dict[str, Array]:
    """The arrays of an index with ``levels`` levels; events cut its cells if ``params`` asks for that."""
    attributes, table = given.attributes, given.table
    counts = given.book.counts()
    depth = bits_of(counts).astype(np.int64)
    shift = np.maximum(depth - levels, 0)
    if params.separation == "events" and len(cutting.ptr) > 1:
        cell_ptr, cells = _cells_of_events(cutting, counts, depth - shift, shift > 0)
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

    sizes = np.zeros(nodes, np.int64)
    lists = hang(sizes, np.zeros(0, np.uint32), np.zeros(0, np.int32))
    node_ptr = pointers(sizes)
    if node_ptr[-1] >= 1 << 32:
        raise GpumatchError(f"Tama holds up to {1 << 32} postings, found {node_ptr[-1]}; ask for fewer levels")
    postings, owner = np.zeros(node_ptr[-1] + kernels.PADDING, np.uint32), np.empty(lists, np.int32)
    hang(node_ptr[:-1].copy(), postings, owner)
    rest = (given.first + np.flatnonzero(needed == 0)).astype(np.int32)
    tables = (node_ptr.astype(np.uint32), postings, needed, owner, rest)
    return dict(zip(ARRAYS, (directory, cell_ptr, cells, *tables), strict=True))


def _coded(given: Input, batches: Sequence[EventBatch]) -> CodedEvents:
    """All events of some batches in random order, so that the first ones are like the others."""
    everything = np.ones(len(given.attributes), np.bool_)
    coded = [CodedEvents(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))]
    coded += [EventEncoder(given.book, given.attributes, everything, batch).encode(0, len(batch)) for batch in batches]
    sizes = np.concatenate([np.diff(some.ptr) for some in coded])
    attribute, code = (np.concatenate([getattr(some, name) for some in coded]) for name in ("attribute", "code"))
    order = np.random.default_rng(0).permutation(len(sizes))
    entries = spans(pointers(sizes)[order], sizes[order])
    return CodedEvents(pointers(sizes[order]), attribute[entries], code[entries])


def _slice(events: CodedEvents, first: int, last: int) -> CodedEvents:
    """The events ``first:last``."""
    ptr = events.ptr[first : last + 1]
    entries = slice(ptr[0], ptr[-1])
    return CodedEvents(ptr - ptr[0], events.attribute[entries], events.code[entries])


def _cells_of_events(observed: CodedEvents, counts: Array, levels: Array, coarse: Array) -> tuple[Array, Array]:
    """Finest cells of the codes of coarse attributes, cut at the medians of observed events; and where each starts."""
    order = np.argsort(observed.attribute, kind="stable")
    code, attribute = observed.code[order], observed.attribute[order]
    starts = np.searchsorted(attribute, np.arange(len(counts) + 1))
    cells = [np.zeros(0, np.int32)]
    for a in np.flatnonzero(coarse):
        cuts = median_cuts(code[starts[a] : starts[a + 1]], 0, counts[a], levels[a])
        cells.append(np.searchsorted(cuts, np.arange(counts[a]), side="right").astype(np.int32))
    return pointers(np.where(coarse, counts, 0)), np.concatenate(cells)


def _directory(given: Input, counts: Array, shift: Array, line: tuple[Array, Array]) -> tuple[Array, int]:
    """The directory of attributes that matching needs, and the number of nodes of all."""
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


def _levels(params: Tama, share: float, given: Input, cutting: CodedEvents, measuring: CodedEvents) -> int:
    """The fewest levels at which no more than this share of the results is false."""
    deepest = int(bits_of(given.book.counts()).max(initial=0))  # nothing is rounded there
    if len(measuring.ptr) == 1:
        return deepest

    def keeps(levels: int) -> bool:
        tables = _tables(replace(params, approximate=True), given, cutting, levels)
        return _is_below(share, FlatIndex(params, given.first, given.last, tables), given, measuring)

    # More levels may at times do worse, but the levels taken were measured, or round nothing.
    return bisect_left(range(deepest), True, key=keeps)


def _is_below(share: float, index: FlatIndex, given: Input, events: CodedEvents) -> bool:
    """Is the false share of results so far below this that it will stay below for other events of their kind?

    Rare events may be missing: one more is assumed, with the most results and all of them false.
    """
    found, false = np.zeros(0), np.zeros(0)
    for first in range(0, len(events.ptr) - 1, _AT_ONCE):
        some = _slice(events, first, first + _AT_ONCE)
        check = np.ones(len(some.ptr) - 1, np.bool_)
        offsets, _, wrong = _run(index, given.attributes, given.table, some, False, check)
        found, false = np.append(found, np.diff(offsets)), np.append(false, wrong)
        excess = false - share * found
        if found.sum() > _PLENTY or excess.sum() > _SLACK * np.linalg.norm(excess):  # surely above, at coarse levels
            break
    excess = np.append(excess, (1 - share) * found.max())
    return bool(excess.sum() + _SLACK * np.linalg.norm(excess) < 0)


def _validate(index: FlatIndex, around: Around) -> Iterator[Problem]:
    """Codes must lead to nodes of their attribute, and postings there to clauses, or to predicates on lists."""
    yield from whole("observed", index.meta["observed"], 0, 1 << 62)
    a, counts, nodes = index.arrays, around.counts, around.sizes["nodes"]
    base, facts, top, table = a["directory"].reshape(-1, kernels.WORDS).T
    shift, heights = facts >> 32, facts & kernels.HEIGHTS
    yield from between("directory", shift, 0, 31)
    cells = np.diff(a["cell_ptr"])
    yield from refused("cell_ptr", a["cell_ptr"][1:], (cells > 0) & (cells != counts), "a cell for each code, or none")
    yield from between("directory", top, np.where(cells > 0, 0, (counts - 1) >> shift), np.iinfo(np.int32).max)
    yield from between("cells", a["cells"], 0, np.repeat(top, cells))
    ends = np.append(base[1:], nodes)
    yield from between("directory", base, 0, ends)
    out = (table != -1) & ((table < base) | (table > ends - counts))
    yield from refused("directory", table, out, "a table of codes among its attribute's nodes, or -1")
    for _ in range(8):  # bricks, of four heights each
        base = base + np.where(heights > 0, kernels.BRICK * ((top >> 3) + 1), 0)
        yield from between("directory", base, 0, ends)
        top, heights = top >> 4, heights >> 4
    limit = np.where(around.attributes.multi, len(a["owner"]), around.sizes["clauses"])
    starts = a["node_ptr"][a["directory"][kernels.BASE :: kernels.WORDS]].astype(np.int64)
    yield from _numbers(a["postings"], starts, limit)


def _numbers(postings: Array, starts: Array, limit: Array) -> Iterator[Problem]:
    """Numbers in the postings of each attribute, which begin at ``starts``, must be below its ``limit``."""
    some = np.flatnonzero(np.diff(starts, append=len(postings) - kernels.PADDING))
    if len(some):
        most = np.maximum.reduceat(postings[: -kernels.PADDING], starts[some]) >> 1
        yield from between("postings", most, 0, limit[some] - 1)


def _match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    length = len(events.ptr) - 1
    approximate = isinstance(index.params, Tama) and index.params.approximate
    if once or not approximate:  # shared rows have a different rate, the paper's for interfaces
        return _run(index, attributes, table, events, once, np.zeros(length, np.bool_))[:2]
    weight = weights(work, length)
    offsets, rows, false = _run(index, attributes, table, events, once, weight > 0)
    found = np.diff(offsets)
    count_false(work, int(found[weight > 0].sum()), int(weight @ found), int(weight @ false))
    return offsets, rows


def _run(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, check: Array
) -> tuple[Array, Array, Array]:
    """Offsets and rows of events, and how many rows of the events to check are false."""
    arrays = index.arrays
    found: tuple[Array, Array, Array] = kernels.match_tables(
        events.arrays(),
        index.first,
        table.length,
        once,
        check,
        (attributes.multi, attributes.presence),
        arrays["directory"],
        (arrays["cell_ptr"], arrays["cells"]),
        tuple(arrays[name] for name in ("node_ptr", "postings", "needed", "owner", "rest")),
        (table.clause_row, table.clause_ptr, table.clause_program),
        table.predicates(),
        table.programs,
    )
    return found


def weights(work: Workspace, events: int) -> Array:
    """How many events each of the next ones stands for when false answers are counted; 0: it is not checked.

    Events to check are chosen at random, since events may arrive in a regular pattern.
    """
    first = work.count("events", events)
    later = _STEP * (np.random.default_rng(first).random(events) < 1 / _STEP)
    return np.where(first + np.arange(events) < _ALL_CHECKED, 1, later)


def count_false(work: Workspace, checked: int, found: int, false: int) -> None:
    """Add to the counters: answers checked and, by weight, all answers found and the false ones among them."""
    for name, more in (("checked", checked), ("found", found), ("false", false)):
        work.count(name, more)


def _note(index: FlatIndex) -> str:
    """Why nothing is rounded, although a share of the results may be false."""
    params, arrays = index.params, index.arrays
    assert isinstance(params, Tama)
    rounded = (arrays["directory"].reshape(-1, kernels.WORDS)[:, kernels.FACTS] >> 32).any()
    if params.max_fpr is None or rounded:
        return ""
    observed = int(index.meta["observed"])
    shown = f"{observed:,} observed events do not show that fewer levels keep max_fpr; observe() more, then compact()"
    return f"nothing is rounded: {shown if observed else _UNSEEN}"


def _facts(index: FlatIndex, counters: Mapping[str, int]) -> dict[str, Any]:
    """Postings and levels; for an approximate index also how many results were checked and which share was false."""
    params, arrays = index.params, index.arrays
    assert isinstance(params, Tama)
    top = arrays["directory"].reshape(-1, kernels.WORDS)[:, kernels.TOP]
    facts: dict[str, Any] = {"postings": int(arrays["node_ptr"][-1]), "levels": int(top.max(initial=0)).bit_length()}
    facts["separation"] = params.separation
    if params.separation == "events" and not index.meta["observed"]:
        facts["separation"] = f"codes: {_UNSEEN}"
    if _note(index):
        facts["note"] = _note(index)
    if params.approximate:
        checked, found, false = (counters.get(name, 0) for name in ("checked", "found", "false"))
        facts |= {"checked": checked, "fpr": false / found if found else None}
    return facts


def _cost(params: Tama, costs: Costs, clauses: Array) -> Array:
    each: Array = _COUNT * costs.chance[3, clauses] + costs.evaluated(clauses)
    return each


TAMA = Kind(
    params=Tama,
    arrays=ARRAYS,
    meta=META,
    build=_build,
    match=_match,
    validate=_validate,
    facts=_facts,
    note=_note,
    cost=_cost,
    drivers=(kernels.match_tables,),
    forms=(Tama(), Tama(levels=3, approximate=True), Tama(max_fpr=0.5), Tama(separation="events")),
)
