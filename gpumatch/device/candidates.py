"""Candidates of each kind of index on the device: keys of events and clauses, decided or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gpumatch.device.card import Card, Job, OverBudget
from gpumatch.device.encode import Coded, pointers
from gpumatch.device.resident import HeldIndex, Resident
from gpumatch.index import Gem
from gpumatch.index.flat import count as add_to_counter
from gpumatch.kernels.cuda import atree, gem, ladder, postings, psthash, tama, target, triangle, work
from gpumatch.kernels.gem import LANES, STRICTER, WORDS
from gpumatch.kernels.postings import LINE
from gpumatch.kernels.words import EVENTS

_KEY = 8  # bytes
WORD = 64  # events that a word of a node has bits for
_ALL = (1 << WORD) - 1
_SHARE = 1024  # events that one block of gem.sift takes
_LOG_WORDS = 2  # as a power of two: 4 words, the least that memory gives at once


class Runs(NamedTuple):
    """Pieces of lists that events have to look at, none of them empty; see ``kernels.cuda.work``."""

    slot_ptr: Any
    start: Any
    event: Any
    slots: int
    ends: Any  # by item: how many runs it and those before it have

    def arrays(self) -> tuple[Any, Any, Any]:
        return self.slot_ptr, self.start, self.event


def kept(card: Card, items: int, launch: Callable[[Any, Any], None]) -> Job[Any]:
    """Keys that a kernel keeps: it writes them tile by tile, and how many each has, into the arrays it is given."""
    xp = card.xp
    tiles = card.tiles(items)
    found, counts = xp.empty(tiles * card.threads, dtype=np.int64), xp.empty(tiles, dtype=np.int64)
    if items == 0:
        return found
    launch(found, counts)
    ends = xp.cumsum(counts)
    total = yield ends[-1:]
    keys = xp.empty(total, dtype=np.int64)
    card.launch(work.compact, items if total else 0, found, ends, keys)
    return keys


def found_in(card: Card, runs: Runs, kernel: target.Kernel, *args: Any) -> Job[list[Any]]:
    """Keys that a kernel finds in the slots of all runs, so many slots at a time that the buffer stays small."""
    step = max(card.budget // _KEY, card.threads)
    keys = []
    for first in range(0, runs.slots, step):
        last = min(first + step, runs.slots)
        tile_run = tile_runs(card, runs.slot_ptr, first, last)

        def launch(found: Any, counts: Any, first: int = first, last: int = last, tile_run: Any = tile_run) -> None:
            card.launch(kernel, last - first, first, last, tile_run, *runs.arrays(), *args, found, counts)

        keys.append((yield from kept(card, last - first, launch)))
    return keys


def tile_runs(card: Card, slot_ptr: Any, first: int, last: int) -> Any:
    """The run of the first slot of every tile of ``first:last``, and of the very last slot."""
    starts = card.xp.arange(card.tiles(last - first) + 1, dtype=np.int64) * card.threads + first
    starts[-1:] = last - 1
    return card.xp.searchsorted(slot_ptr, starts, side="right") - 1


def _runs(
    card: Card,
    items: int,
    kernels: tuple[target.Kernel, target.Kernel],
    *args: Any,
    rest: tuple[int, int, int] = (0, 0, 0),
) -> Job[Runs]:
    """Runs that a pair of kernels counts and lists for so many items.

    ``rest``: for so many events one more run each, of so many slots, from a place on that is behind all lists.
    """
    xp = card.xp
    count, fill = kernels
    counts = xp.empty(items, dtype=np.int64)
    card.launch(count, items, *args, counts)
    ends = xp.cumsum(counts)
    total = (yield ends[-1:]) if items else 0
    events, slots, behind = rest
    more = events if slots else 0
    start, length = xp.empty(total + more, dtype=np.int64), xp.empty(total + more, dtype=np.int64)
    event = xp.empty(total + more, dtype=np.int32)
    card.launch(fill, items if total else 0, *args, ends, start, length, event)
    if more:
        start[total:], length[total:] = behind, slots
        event[total:] = xp.arange(events, dtype=np.int32)
    slot_ptr = pointers(card, length)
    slots = yield slot_ptr[-1:]
    return Runs(slot_ptr, start, event, slots, ends)


def _waiting_runs(card: Card, index: HeldIndex, entries: tuple[Any, ...], events: int, postings_held: int) -> Job[Runs]:
    """Runs of postings by block that events, attributes and codes reach; and what so many events have to look at."""
    a = index.arrays
    rest = (events, len(a["rest"]), postings_held)
    args = (*entries, a["directory"], a["node_ptr"])
    runs = yield from _runs(card, len(entries[2]), (postings.count_runs, postings.fill_runs), *args, rest=rest)
    return runs


def _postings(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    a, xp = index.arrays, card.xp
    entries = (coded.event, coded.attribute, coded.code)
    lists: tuple[Any, ...] = (a["cell_shift"], a["filters"], a["heads"], a["rest"])
    kernel = postings.test_postings
    lines = len(a["lines"]) // LINE
    if lines:
        items = [xp.empty(lines * coded.length, dtype=np.int32) for _ in entries]
        cells = xp.empty(lines * coded.length, dtype=np.uint8)
        compounds = (a["lines"], a["group_ptr"], a["cuts"])
        card.launch(postings.find_groups, len(cells), coded.rows, coded.width, *compounds, *items, cells)
        entries = tuple(xp.concatenate(pair) for pair in zip(entries, items, strict=True))
        lists, kernel = (*lists, lines, cells), postings.test_grouped
    runs = yield from _waiting_runs(card, index, entries, coded.length, len(a["heads"]))
    keys = yield from found_in(card, runs, kernel, coded.rows, coded.width, *lists)
    return keys


def _psthash(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    a = index.arrays
    keys = yield from _postings(card, resident, index, coded)
    if len(a["pairs"]) == 0:
        return keys
    entries = (coded.ptr, coded.event, coded.attribute, coded.code, coded.rows, coded.width, resident.multi)
    grids = (a["grid_ptr"], a["grid_partner"], a["grid_facts"], a["cell_ptr"])
    runs = yield from _runs(card, len(coded.code), (psthash.count_cells, psthash.fill_cells), *entries, *grids)
    lists = (a["filter_shift"], a["pairs"])
    keys += yield from found_in(card, runs, psthash.test_pairs, coded.rows, coded.width, *lists)
    return keys


def _ladder(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    a = index.arrays
    entries = (coded.event, coded.attribute, coded.code)
    runs = yield from _waiting_runs(card, index, entries, coded.length, len(a["waiting"]))
    tests = card.xp.zeros(1, dtype=np.int64)
    events = (*coded.entries(), coded.rows, coded.width)
    clauses = (resident.clause_ptr, resident.clause_program, *resident.predicates)
    lists = (a["waiting"], a["rest"], tests)
    keys = yield from found_in(card, runs, ladder.test_waiting, *events, *clauses, *lists)
    add_to_counter(index.flat, "tests", (yield tests))
    return keys


def _tama(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    a, xp = index.arrays, card.xp
    entries = (coded.event, coded.attribute, coded.code, resident.multi)
    lines = (a["directory"], a["cell_ptr"], a["cells"], a["node_ptr"])
    runs = yield from _runs(card, len(coded.code), (tama.count_nodes, tama.fill_nodes), *entries, *lines)
    room = 4 if len(a["owner"]) else 2
    places = room * runs.slots
    if 8 * places > card.budget and coded.length > 1:
        raise OverBudget(f"counters of {coded.length} events need {8 * places} bytes")
    table, hits = xp.zeros(places, dtype=np.uint32), xp.zeros(places, dtype=np.uint32)
    event_slot = runs.slot_ptr[xp.concatenate([xp.zeros(1, dtype=np.int64), runs.ends])[coded.ptr]]
    lists = (index.flat.first, a["postings"], a["needed"], a["owner"])
    keys = yield from found_in(card, runs, tama.count_hits, *lists, event_slot, room, table, hits)
    rest = _one_each(card, coded.length, len(a["rest"]))
    nothing = (xp.empty(0, dtype=np.uint8), xp.empty(0, dtype=np.uint32), xp.empty(0, dtype=np.uint64))
    keys += yield from found_in(card, rest, postings.test_postings, coded.rows, coded.width, *nothing, a["rest"])
    return keys


def _one_each(card: Card, events: int, slots: int) -> Runs:
    """A run of all of a list for every event."""
    xp = card.xp
    ptr = xp.arange(events + 1, dtype=np.int64) * slots
    every = xp.arange(events, dtype=np.int32)
    return Runs(ptr, xp.zeros(events, dtype=np.int64), every, events * slots, every + 1)


def _gem(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    params = index.flat.params
    if isinstance(params, Gem) and not params.has_all:
        return _triangle(card, index, coded)
    return _bitsets(card, index, coded)


def _bitsets(card: Card, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    """What touches an event's cells and lies within its bounds; ascending by event and clause in a group of tiles."""
    a, xp, flat = index.arrays, card.xp, index.flat
    dims, tiles = len(a["cell_ptr"]) - 1, len(a["loose"]) // WORDS
    cells = len(a["count"])
    places = xp.empty((coded.length, max(dims, STRICTER)), dtype=np.uint32)
    lanes = xp.empty((coded.length, -(-dims // LANES)), dtype=np.uint64)
    lines = (a["dim_of"], a["cell_ptr"], a["cell_table"], a["table_ptr"], a["table_shift"])
    bounds = (a["lane_exact"], a["lane_shift"], a["count"], places, lanes)
    card.launch(gem.locate_events, coded.length, *coded.entries(), *lines, *bounds)
    places = places[:, :dims].copy()
    covers = len(a["cover"]) > 0
    step = max(card.budget // (8 * WORDS * coded.length), 1)
    keys = []
    for tile in range(0, tiles, step):
        part = min(step, tiles - tile)
        touching = _sifted(card, tile, part, cells, places, a["bits"])
        covered = _sifted(card, tile, part, cells, places, a["cover"]) if covers else xp.empty(0, dtype=np.uint64)
        counts = xp.empty(card.tiles(len(touching)), dtype=np.int64)
        card.launch(gem.count_bits, len(touching), touching, counts)
        ends = xp.cumsum(counts)
        listed = xp.empty((yield ends[-1:]), dtype=np.int64)
        words = (part * WORDS, tile * WORDS)
        card.launch(
            gem.list_bits, len(touching) if len(listed) else 0, touching, covered, a["loose"], *words, ends, listed
        )

        def launch(found: Any, counts: Any, listed: Any = listed) -> None:
            checks = (flat.first, lanes, a["bounds"], a["loose"])
            card.launch(gem.check_bounds, len(listed), listed, *checks, found, counts)

        keys.append((yield from kept(card, len(listed), launch)))
    return keys


def _sifted(card: Card, tile: int, tiles: int, cells: int, places: Any, bits: Any) -> Any:
    """Words of the clauses that have a bit in all cells of each event."""
    events, dims = places.shape
    out = card.xp.empty(events * tiles * WORDS, dtype=np.uint64)
    log = max((log for log in range(_LOG_WORDS + 1) if cells << log <= gem.STAGED), default=_LOG_WORDS)
    blocks = tiles * (WORDS >> log) * -(-events // _SHARE)
    card.launch(
        gem.sift, blocks * card.threads, tile, tiles, cells, log, _SHARE, events, dims, places.reshape(-1), bits, out
    )
    return out


def _triangle(card: Card, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    a, flat = index.arrays, index.flat
    dims = len(a["triangle_dims"])
    if dims:
        cells = len(a["triangle_starts"]) // dims
        counts = (a["triangle_dims"], a["count_ptr"], a["pass_count"])
        args = (coded.rows, coded.width, *counts, cells, a["triangle_starts"], a["triangle_ptr"])
        runs = yield from _runs(card, coded.length, (triangle.count_rows, triangle.fill_rows), *args)
    else:  # nothing tells clauses apart
        runs = _one_each(card, coded.length, flat.last - flat.first)
    lists = (a["triangle_dims"], a["triangle_sub"], a["triangle_bounds"], a["decided"])
    keys = yield from found_in(card, runs, triangle.test_bounds, flat.first, coded.rows, coded.width, *lists)
    return keys


def node_count(index: HeldIndex) -> int:
    """How many nodes a graph of expressions has words for."""
    return len(index.flat.arrays["parent_ptr"]) - 1


def _atree(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    """What events satisfy; nothing is left to decide."""
    a, host, xp = index.arrays, index.flat.arrays, card.xp
    value = yield from _leaves(card, index, coded)
    nodes, words = node_count(index), -(-coded.length // WORD)
    levels = host["level_ptr"].tolist()
    inner, programs = levels[-1], (a["unit_ptr"], a["items"], a["base"], value)
    for first, last in pairwise(levels):
        card.launch(atree.evaluate_nodes, (last - first) * words, first, last, nodes - inner, words, *programs)
    clauses = index.flat.last - index.flat.first
    step = max(card.budget // (8 * words), 1)
    keys = []
    for clause in range(0, clauses, step):
        part = min(step, clauses - clause)
        out = xp.empty(part * words, dtype=np.uint64)
        counts = xp.empty(card.tiles(len(out)), dtype=np.int64)
        units = (inner + clause, inner + clause + part)
        card.launch(atree.evaluate_clauses, len(out), *units, words, *programs, out, counts)
        ends = xp.cumsum(counts)
        listed = xp.empty((yield ends[-1:]), dtype=np.int64)
        card.launch(
            atree.list_clauses, len(out) if len(listed) else 0, out, index.flat.first + clause, words, ends, listed
        )
        keys.append(listed)
    add_to_counter(index.flat, "evaluated", (inner + clauses) * -(-coded.length // EVENTS))
    return keys


def _leaves(card: Card, index: HeldIndex, coded: Coded) -> Job[Any]:
    """Words of all nodes, of which those of predicates are set."""
    a, host, xp = index.arrays, index.flat.arrays, card.xp
    nodes, words = node_count(index), -(-coded.length // WORD)
    value = xp.empty(nodes * words, dtype=np.uint64)
    value[: (nodes - int(host["level_ptr"][-1])) * words] = 0
    always = int(host["graph"][2])
    if always >= 0:
        value[always * words : (always + 1) * words] = np.uint64(_ALL)
        value[(always + 1) * words - 1 : (always + 1) * words] = np.uint64(_ALL >> (-coded.length % WORD))
    entries = xp.arange(len(coded.code), dtype=np.int32)
    args = (entries, coded.attribute, coded.code, a["directory"], a["node_ptr"])
    runs = yield from _runs(card, len(entries), (postings.count_runs, postings.fill_runs), *args)
    if runs.slots:
        tile_run = tile_runs(card, runs.slot_ptr, 0, runs.slots)
        pieces = (a["waiting"], a["piece_node"], a["piece_lo"], a["piece_hi"])
        card.launch(
            atree.set_leaves, runs.slots, tile_run, *runs.arrays(), coded.event, coded.code, *pieces, words, value
        )
    return value


_OF: dict[str, Callable[[Card, Resident, HeldIndex, Coded], Job[list[Any]]]] = {
    "scan": _postings,
    "pstbloom": _postings,
    "psthash": _psthash,
    "ladder": _ladder,
    "tama": _tama,
    "gem": _gem,
    "atree": _atree,
}


def candidates(card: Card, resident: Resident, index: HeldIndex, coded: Coded) -> Job[list[Any]]:
    """Keys of all that may match: what is decided does, predicates must tell of the others."""
    return _OF[index.flat.params.kind](card, resident, index, coded)
