"""What the kernels touch that go through lists: Scan, PstBloom, PstHash, Ladder, Tama and GEM's triangles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gpumatch.codes import pointers
from gpumatch.index import FlatIndex
from gpumatch.kernels import count, count_lists
from gpumatch.kernels.count import SECTOR, WARP
from gpumatch.kernels.postings import LINE
from gpumatch.predicates import Array
from gpumatch.roofline.cost import Cost
from gpumatch.roofline.sample import (
    BUDGET,
    ELEMENT,
    KEY,
    Runs,
    RunWork,
    Sample,
    SlotWork,
    listing,
    marks_of,
    testing,
    warp_steps,
)

MOST_SLOTS = 100_000_000  # that are counted; longer lists are counted for fewer events
_FILTER, _SECOND = 50, 44  # instructions of a thread, as in sample
_GROUP, _CUT = 200, 24  # an event in a line, and each cut that it looks at: estimated from PTX
_PAIR, _SECOND_PAIR, _HEAD = 31, 41, 13
_TEST, _PREDICATE = 112, 50
_HIT, _PROBE = 28, 29
_BOUND, _WITHIN = 41, 16


@dataclass(frozen=True, slots=True)
class Found:
    """What finding candidates costs, their keys in the events that were counted, and the pieces they come in."""

    sample: Sample
    costs: list[Cost]
    keys: Array
    pieces: int  # of a batch


def found_in(sample: Sample, costs: list[Cost], *lists: tuple[Runs, Array]) -> Found:
    """Candidates in the runs of one list or several."""
    most = BUDGET // KEY
    slots = [runs.slots * sample.batch / sample.events for runs, _ in lists]
    pieces = sum(-(-int(it) // most) for it in slots)
    return Found(sample, costs, np.concatenate([keys for _, keys in lists]), pieces)


def _cut(sample: Sample, reach: Callable[[Sample], tuple[Runs, RunWork]]) -> tuple[Sample, Runs, RunWork]:
    """Runs of the events, or of as many as can be counted in a short time."""
    runs, work = reach(sample)
    events = runs.events_within(MOST_SLOTS, sample.events)
    if events == sample.events:
        return sample, runs, work
    sample = sample.first(events)
    return sample, *reach(sample)


class _Grouped(NamedTuple):
    """Entries of events with one more for each of their groups, cells in lines, and what finding them costs."""

    entries: tuple[Array, ...]
    lines: int
    cells: Array
    costs: list[Cost]


def _grouped(sample: Sample, arrays: dict[str, Array]) -> _Grouped:
    lines = len(arrays["lines"]) // LINE
    items, per = lines * sample.events, 1 / sample.events
    cells = np.empty(items, np.uint8)
    if items == 0:
        return _Grouped(sample.entries, 0, cells, [])
    made, steps = tuple(np.empty(items, np.int32) for _ in range(3)), np.zeros(items, np.int32)
    compounds = (arrays["lines"], arrays["group_ptr"], arrays["cuts"])
    marks = (marks_of(sample.rows), marks_of(compounds[1]), marks_of(compounds[2]))
    sectors = count_lists.find_groups(sample.rows, sample.width, compounds, marks, steps, made, cells)
    touched = (
        sample.touched("rows", sectors[0], marks[0], own=True),
        sample.touched("group_ptr", sectors[1], marks[1]),
        sample.touched("cuts", sectors[2], marks[2]),
    )
    instructions = _GROUP * items + _CUT * warp_steps(steps)
    entries = tuple(np.concatenate(pair) for pair in zip(sample.entries, made, strict=True))
    moved = 12.0 * len(entries[2])
    costs = [
        Cost("postings.find_groups", 0.0, 13.0 * lines, touched=touched, instructions=instructions * per),
        Cost("joining of entries", moved * per, moved * per, instructions=3 * ELEMENT * len(entries[2]) * per),
    ]
    return _Grouped(entries, lines, cells, costs)


def reach(sample: Sample, arrays: dict[str, Array], entries: tuple[Array, ...]) -> tuple[Runs, RunWork]:
    """Runs of postings by block that entries reach, which are owners, attributes and codes."""
    names = ("directory", "node_ptr")
    marks, steps = tuple(marks_of(arrays[name]) for name in names), np.zeros(len(entries[2]), np.int32)
    *runs, sectors = count.reach_blocks(entries, *(arrays[name] for name in names), marks, steps)
    found = Runs(*runs)
    touched = tuple(sample.touched(*it) for it in zip(names, sectors, marks, strict=True))
    levels, items = warp_steps(steps), len(steps)
    work = RunWork(8, touched, 66 * items + 52 * levels, 100 * items + 78 * levels + 20 * len(found.length))
    return found, work


def _blocks(sample: Sample, arrays: dict[str, Array], entries: tuple[Array, ...], held: int) -> tuple[Runs, RunWork]:
    """Runs of postings by block; and of the rest, for every event."""
    found, work = reach(sample, arrays, entries)
    return found.with_rest(sample.events, held, len(arrays["rest"])), work


def postings(sample: Sample, index: FlatIndex) -> Found:
    """Scan and PstBloom, and what PstHash has outside grids."""
    a = index.arrays
    sample, runs, work = _cut(sample, lambda it: _blocks(it, a, _grouped(it, a).entries, len(a["heads"])))
    grouped = _grouped(sample, a)
    names = ("filters", "heads", "rest")
    lists, marks = tuple(a[name] for name in names), tuple(marks_of(a[name]) for name in names)
    marks = (*marks, marks_of(sample.rows), marks_of(grouped.cells))
    stamps = (sample.row_stamps(), np.full(len(marks[4]), -1, np.int64))
    in_lines = (grouped.lines, grouped.cells)
    keys, second, tiles, warps, sectors = count_lists.test_postings(
        tuple(runs), sample.rows, sample.width, a["cell_shift"], in_lines, lists, marks, stamps
    )
    touched = [sample.touched(*it) for it in zip(names, sectors, marks, strict=False)]
    touched.append(sample.touched("rows", sectors[3], marks[3], own=True))
    touched.append(sample.touched("cells", sectors[4], marks[4], own=True))
    slots = SlotWork(tiles, warps, tuple(touched), _FILTER * runs.slots + _SECOND * WARP * second)
    kernel = "postings.test_grouped" if grouped.lines else "postings.test_postings"
    items = len(grouped.entries[2])
    costs = grouped.costs + listing(sample, ("postings.count_runs", "postings.fill_runs"), items, runs, work)
    costs += testing(sample, kernel, runs, len(keys), slots)
    return found_in(sample, costs, (runs, keys))


def _cells(sample: Sample, arrays: dict[str, Array]) -> tuple[Runs, RunWork]:
    names = ("grid_ptr", "grid_partner", "grid_facts", "cell_ptr")
    grids = tuple(arrays[name] for name in names)
    marks = (marks_of(grids[0]), marks_of(grids[1]), marks_of(sample.rows), marks_of(grids[2]), marks_of(grids[3]))
    items = len(sample.coded.code)
    probes, steps = np.zeros(items, np.int32), np.zeros(items, np.int32)
    *runs, sectors = count.reach_cells(
        sample.coded.ptr,
        sample.entries,
        sample.rows,
        sample.width,
        sample.attributes.multi,
        grids,
        marks,
        probes,
        steps,
    )
    named = zip(("grid_ptr", "grid_partner", "rows", "grid_facts", "cell_ptr"), sectors, marks, strict=True)
    touched = tuple(sample.touched(*it, own=it[0] == "rows") for it in named)
    found = Runs(*runs)
    asked, visited = warp_steps(probes), warp_steps(steps)
    work = 95 * items + 35 * asked + 100 * visited
    return found, RunWork(12, touched, work, work + 40 * items + 25 * visited + 20 * len(found.length))


def psthash(sample: Sample, index: FlatIndex) -> Found:
    a = index.arrays
    outside = postings(sample, index)
    if len(a["pairs"]) == 0:
        return outside
    sample, runs, work = _cut(outside.sample, lambda it: _cells(it, a))
    if sample.events < outside.sample.events:
        outside = postings(sample, index)
    marks = (marks_of(a["pairs"]), marks_of(sample.rows))
    keys, second, tiles, warps, sectors = count_lists.test_pairs(
        tuple(runs), sample.rows, sample.width, a["filter_shift"], a["pairs"], marks, sample.row_stamps()
    )
    touched = (sample.touched("pairs", sectors[0], marks[0]), sample.touched("rows", sectors[1], marks[1], own=True))
    instructions = _PAIR * runs.slots + WARP * (_SECOND_PAIR * second + _HEAD * warps)
    slots = SlotWork(tiles, warps, touched, instructions)
    costs = listing(sample, ("psthash.count_cells", "psthash.fill_cells"), len(sample.coded.code), runs, work)
    costs += testing(sample, "psthash.test_pairs", runs, len(keys), slots)
    inside = found_in(sample, costs, (runs, keys))
    both = np.concatenate([outside.keys, keys])
    return Found(sample, outside.costs + costs, both, outside.pieces + inside.pieces)


def clause_marks(sample: Sample) -> tuple[Array, ...]:
    """Marks of clause pointers, predicates, ranges and rows."""
    table = sample.table
    return tuple(map(marks_of, (table.clause_ptr, table.predicate, table.range_hi, sample.rows)))


def clause_touched(sample: Sample, sectors: Any, marks: tuple[Array, ...]) -> tuple[Any, ...]:
    """What testing clauses touched: the sectors of ``clause_marks``, in order."""
    names = ("clause_ptr", "predicate", "ranges", "rows")
    return tuple(sample.touched(*it, own=it[0] == "rows") for it in zip(names, sectors, marks, strict=True))


def ladder(sample: Sample, index: FlatIndex) -> Found:
    a, table = index.arrays, sample.table
    sample, runs, work = _cut(sample, lambda it: _blocks(it, a, it.entries, len(a["waiting"])))
    lists = (a["waiting"], a["rest"])
    list_marks, marks = tuple(map(marks_of, (*lists, table.clause_program))), clause_marks(sample)
    keys, _, steps, tiles, warps, sectors = count_lists.test_waiting(
        tuple(runs),
        sample.coded.arrays(),
        sample.rows,
        sample.width,
        table.clause_ptr,
        table.clause_program,
        table.predicates(),
        lists,
        list_marks,
        marks,
        sample.row_stamps(),
    )
    named = zip(("waiting", "rest", "clause_program"), sectors, list_marks, strict=False)
    touched = (*(sample.touched(*it) for it in named), *clause_touched(sample, sectors[3:], marks))
    slots = SlotWork(tiles, warps, touched, _TEST * runs.slots + _PREDICATE * WARP * steps)
    costs = listing(sample, ("postings.count_runs", "postings.fill_runs"), len(sample.coded.code), runs, work)
    costs += testing(sample, "ladder.test_waiting", runs, len(keys), slots)
    return found_in(sample, costs, (runs, keys))


def _nodes(sample: Sample, arrays: dict[str, Array]) -> tuple[Runs, RunWork]:
    line = (arrays["cell_ptr"], arrays["cells"])
    names = ("directory", "cells", "node_ptr")
    marks, steps = tuple(marks_of(arrays[name]) for name in names), np.zeros(len(sample.coded.code), np.int32)
    *runs, sectors = count.reach_nodes(
        sample.entries,
        sample.attributes.multi,
        arrays["directory"],
        line,
        arrays["node_ptr"],
        count_lists.LIST,
        marks,
        steps,
    )
    touched = tuple(sample.touched(*it) for it in zip(names, sectors, marks, strict=True))
    found, levels, items = Runs(*runs), warp_steps(steps), len(steps)
    work = RunWork(8, touched, 90 * items + 48 * levels, 130 * items + 74 * levels + 20 * len(found.length))
    return found, work


def tama(sample: Sample, index: FlatIndex) -> Found:
    a = index.arrays
    sample, runs, work = _cut(sample, lambda it: _nodes(it, a))
    room = 4 if len(a["owner"]) else 2
    batch = sample.batch
    while 8 * room * runs.slots * batch > BUDGET * sample.events and batch > 1:
        batch //= 2  # as the device does where tables are too large
    sample = replace(sample, batch=batch)
    event_slot = pointers(np.bincount(runs.event, runs.length, sample.events).astype(np.int64))
    names = ("postings", "needed", "owner")
    marks = tuple(marks_of(a[name]) for name in names)
    places = np.zeros(room * runs.slots, np.uint32)
    tables = (marks_of(places), marks_of(places))
    keys, atomics, steps, tiles, warps, sectors = count_lists.count_hits(
        tuple(runs), event_slot, index.first, room, a["postings"], a["needed"], a["owner"], (*marks, *tables)
    )
    touched = [sample.touched(*it) for it in zip(names, sectors, marks, strict=False)]
    touched.append(sample.touched("tables", sectors[3], np.concatenate(tables), own=True))
    work_of_hits = _HIT * runs.slots + _PROBE * WARP * steps
    filled = SECTOR * touched[-1].distinct
    slots = SlotWork(tiles, warps, tuple(touched), work_of_hits, written=filled, atomics=atomics)
    costs = listing(sample, ("tama.count_nodes", "tama.fill_nodes"), len(sample.coded.code), runs, work)
    zeros = 2 * places.nbytes / sample.events
    costs.append(Cost("zeroing of tables", written=zeros, instructions=ELEMENT * zeros / 16))
    costs += testing(sample, "tama.count_hits", runs, len(keys), slots)
    rest = Runs(*(np.zeros(0, np.int64),) * 3).with_rest(sample.events, 0, len(a["rest"]))
    every = np.repeat(np.arange(sample.events), len(a["rest"])) << 32
    rest_keys = every | np.tile(a["rest"].astype(np.int64), sample.events) | count.UNDECIDED
    every_slot = SlotWork(-(-rest.slots // count.BLOCK), -(-rest.slots // WARP), (), 0.0)
    costs += testing(sample, "postings.test_postings", rest, rest.slots, every_slot)
    return found_in(sample, costs, (runs, keys), (rest, rest_keys))


def _rows_of_cells(sample: Sample, arrays: dict[str, Array]) -> tuple[Runs, RunWork]:
    dims, starts = arrays["triangle_dims"], arrays["triangle_starts"]
    cells = len(starts) // len(dims)
    steps = np.zeros(sample.events, np.int32)
    names = ("pass_count", "triangle_starts", "triangle_ptr")
    marks = tuple(marks_of(arrays[name]) for name in names)
    *runs, sectors = count.reach_triangle(
        sample.rows,
        sample.width,
        dims,
        (arrays["count_ptr"], arrays["pass_count"]),
        cells,
        starts,
        arrays["triangle_ptr"],
        marks,
        steps,
    )
    touched = tuple(sample.touched(*it) for it in zip(names, sectors, marks, strict=True))
    found, rows = Runs(*runs), warp_steps(steps)
    base = sample.events * (100 + 60 * len(dims) + 27 * int(cells).bit_length())
    read = 4 * sample.width
    return found, RunWork(read, touched, base + 55 * rows, base + 88 * rows + 20 * len(found.length))


def triangle(sample: Sample, index: FlatIndex) -> Found:
    """GEM without a bitset for every cell."""
    a = index.arrays
    dims = a["triangle_dims"]
    costs: list[Cost] = []
    if len(dims):
        sample, runs, work = _cut(sample, lambda it: _rows_of_cells(it, a))
        costs = listing(sample, ("triangle.count_rows", "triangle.fill_rows"), sample.events, runs, work)
    else:
        runs = Runs(*(np.zeros(0, np.int64),) * 3).with_rest(sample.events, 0, index.last - index.first)
    names = ("triangle_sub", "triangle_bounds", "decided")
    marks = (*(marks_of(a[name]) for name in names), marks_of(sample.rows))
    lists = tuple(a[name] for name in names)
    keys, steps, tiles, warps, sectors = count_lists.test_bounds(
        tuple(runs), index.first, sample.rows, sample.width, dims, *lists, marks, sample.row_stamps()
    )
    touched = [sample.touched(*it) for it in zip(names, sectors, marks, strict=False)]
    touched.append(sample.touched("rows", sectors[3], marks[3], own=True))
    slots = SlotWork(tiles, warps, tuple(touched), WARP * (_BOUND * steps + _WITHIN * warps))
    costs += testing(sample, "triangle.test_bounds", runs, len(keys), slots)
    return found_in(sample, costs, (runs, keys))
