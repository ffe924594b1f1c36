"""Coded events whose matching is counted, and code that the counts of all kernels share.

Instructions per step were read off the machine code of the kernels for sm_90; other devices differ little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.kernels.count import BLOCK, SECTOR, WARP
from gpumatch.proof.roofline.cost import Cost, Touched
from gpumatch.subscriptions.block import Attributes

BUDGET = 1 << 29  # bytes of a buffer, as on the device
MOST_EVENTS = 1 << 16  # most that the device matches together
ENOUGH = 1024  # with fewer, bitsets of all clauses together do not pay
KEY = 8  # bytes
_SLOT = 103  # instructions of a thread that finds its slot's run and its position in it
_SEARCH, _SEARCHES = 27, 9  # a step of the search for a run, and the work before it
_KEEP, _SOME, _RANK = 20, 13, 104  # of every thread, to keep a key; more if one of its block does, and one of its warp
ANSWER = 128  # bytes of shared memory delivered in one access
_RANK_ANSWERS = 4.5  # words of bits that a warp reads to rank its keys, on average
_COMPACT, _COMPACT_KEY = 33, 24
ELEMENT = 20  # an array function of CuPy, by element
NOT_LISTED = 36  # a word of bits in a block that has none to list
SCAN_ROUNDS, SCAN_BYTES = 168, 104  # of a sum over the block: instructions and bytes of shared memory, by thread
WORD_EVENTS = 64  # that a node of a graph has a word for


@dataclass(frozen=True, slots=True)
class Sample:
    """Events of a segment, and how many the device would match together."""

    attributes: Attributes
    table: Table
    coded: CodedEvents
    rows: Array  # int32: codes, spread over all attributes
    batch: int

    @classmethod
    def of(cls, attributes: Attributes, table: Table, coded: CodedEvents, batch: int) -> Sample:
        width, multi = len(attributes), attributes.multi
        events = len(coded.ptr) - 1
        rows = np.full(events * width, -1, np.int32)
        owner = np.repeat(np.arange(events), np.diff(coded.ptr))
        position, at = owner * width + coded.attribute, np.arange(len(coded.code))
        rows[position[::-1]] = np.where(multi[coded.attribute], at, coded.code)[::-1]  # for a list, its first
        return cls(attributes, table, coded, rows, batch)

    @property
    def events(self) -> int:
        return len(self.coded.ptr) - 1

    @property
    def width(self) -> int:
        return len(self.attributes)

    @property
    def entries(self) -> tuple[Array, Array, Array]:
        """Event, attribute and code of every entry."""
        owner = np.repeat(np.arange(self.events, dtype=np.int32), np.diff(self.coded.ptr))
        return owner, self.coded.attribute, self.coded.code

    def first(self, events: int) -> Sample:
        """Only the first events."""
        last = int(self.coded.ptr[events])
        attribute, code = self.coded.attribute[:last], self.coded.code[:last]
        coded = CodedEvents(self.coded.ptr[: events + 1], attribute, code)
        return Sample(self.attributes, self.table, coded, self.rows[: events * self.width], self.batch)

    def touched(self, array: str, sectors: float, marks: Array, own: bool = False) -> Touched:
        """``own``: the array grows with the events."""
        return Touched(array, float(sectors), float(marks.sum()), self.events, math.inf if own else float(len(marks)))

    def row_stamps(self) -> Array:
        return np.full(len(self.rows) * 4 // SECTOR + 1, -1, np.int64)


def events_at_once(width: int, words: int = 0, nodes: int = 0) -> int:
    """How many events of ``width`` attributes the device matches together.

    ``words``: of an event's bitset, if having all of them together saves sorting matches. ``nodes``: of a graph.
    """
    most = min(BUDGET // max(4 * width, 1), MOST_EVENTS)
    if nodes:
        most = min(most, WORD_EVENTS * max(BUDGET // (8 * nodes), 1))
    fits = BUDGET // (8 * words) if words else most
    return max(min(most, fits) if fits >= ENOUGH else most, 1)


def marks_of(array: Array) -> Array:
    """A mark for every sector of an array."""
    return np.zeros(array.nbytes // SECTOR + 2, np.bool_)


def warp_steps(steps: Array) -> int:
    """Steps of threads, where a warp's threads wait for the slowest."""
    padded = np.zeros(-(-len(steps) // WARP) * WARP, np.int64)
    padded[: len(steps)] = steps
    return WARP * int(padded.reshape(-1, WARP).max(axis=1).sum())


class Runs(NamedTuple):
    """Slices of lists that events look at."""

    start: Array
    length: Array
    event: Array

    @property
    def slots(self) -> int:
        return int(self.length.sum())

    def events_within(self, most: int, events: int) -> int:
        """How many of the events have at most ``most`` slots together; at least one."""
        ends = np.cumsum(np.bincount(self.event, self.length, events))
        return max(int(np.searchsorted(ends, most, side="right")), 1)

    def with_rest(self, events: int, after: int, count: int) -> Runs:
        """With one more run for each event, after all lists."""
        if count == 0:
            return self
        more = (np.full(events, after), np.full(events, count), np.arange(events, dtype=np.int32))
        return Runs(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


def listing(sample: Sample, kernels: tuple[str, str], items: int, runs: Runs, work: RunWork) -> list[Cost]:
    """A pair of kernels that counts and then lists the runs of ``items`` items, and the sums in between."""
    n, per = sample.events, 1 / sample.events
    count = Cost(
        kernels[0],
        read=work.read * items * per,
        written=KEY * items * per,
        touched=work.touched,
        instructions=work.counting * per,
    )
    sums = 2 * KEY * items + 4 * KEY * len(runs.length)
    fill = Cost(
        f"{kernels[1]}, sums",
        read=((work.read + 4 + KEY) * items + sums / 2) * per,
        written=(20 * len(runs.length) + sums / 2) * per,
        touched=work.touched,
        instructions=(work.filling + ELEMENT * (items + len(runs.length))) / n,
    )
    return [count, fill]


class RunWork(NamedTuple):
    """Work of finding runs: bytes in order per item, sectors, and instructions of either kernel for all items."""

    read: int
    touched: tuple[Touched, ...]
    counting: float
    filling: float


class SlotWork(NamedTuple):
    """Work of a kernel on slots: tiles and warps that keep any, sectors, and instructions except for finding slots."""

    tiles: int
    warps: int
    touched: tuple[Touched, ...]
    instructions: float
    written: float = 0.0  # bytes in addition to keys
    atomics: float = 0.0


def testing(sample: Sample, kernel: str, runs: Runs, keys: int, work: SlotWork) -> list[Cost]:
    """A kernel that tests all slots of runs, the look-up of tiles' runs before it, and the packing of kept keys."""
    slots, per = runs.slots, 1 / sample.events
    if slots == 0:
        return []
    tiles, finding = slot_finding(runs)
    kept = kept_cost(kernel, slots, keys, work.tiles, work.warps, per)
    cost = Cost(
        kernel,
        read=(20 * len(runs.length) + KEY * tiles) * per,
        written=kept.written + work.written * per,
        pieces=3 * SECTOR * tiles * per,  # a run that continues is read by every tile
        touched=work.touched,
        shared=kept.shared,
        atomics=work.atomics * per,
        instructions=kept.instructions + (finding + work.instructions) * per,
    )
    return [runs_of_tiles(sample, len(runs.length), tiles), cost, compact_cost(slots, keys, work.tiles, per)]


def slot_finding(runs: Runs) -> tuple[int, float]:
    """Tiles of the slots of runs, and the instructions that threads take to find their own slot."""
    slots = runs.slots
    tiles = -(-slots // BLOCK)
    edges = np.minimum(np.arange(tiles + 1) * BLOCK, slots - 1)
    apart = np.diff(np.searchsorted(np.cumsum(runs.length), edges, side="right"))
    steps = float(np.ceil(np.log2(apart + 1)).sum())
    return tiles, (_SLOT * tiles + _SEARCH * steps + _SEARCHES * np.count_nonzero(apart)) * BLOCK


def runs_of_tiles(sample: Sample, runs: int, tiles: int) -> Cost:
    """The search for the runs of tiles' first slots, with array functions; neighbours share all steps but the last."""
    per = 1 / sample.events
    steps = math.log2(max(runs * sample.batch * per, 2))
    return Cost(
        "runs of tiles",
        read=4 * KEY * tiles * per,
        written=5 * KEY * tiles * per,
        pieces=SECTOR * tiles * (1 + steps / WARP) * per,
        instructions=ELEMENT * tiles * (4 + steps) * per,
    )


def kept_cost(kernel: str, items: int, keys: int, tiles: int, warps: int, per: float, output: bool = False) -> Cost:
    """Cost of keeping ``keys`` of the items; ``tiles`` and ``warps`` are those that keep any."""
    blocks = -(-items // BLOCK)
    return Cost(
        kernel,
        written=(KEY * keys + KEY * items / BLOCK) * per,
        shared=ANSWER * (blocks + keys + _RANK_ANSWERS * warps) * per,  # bits of a warp are set one by one
        instructions=((_KEEP * blocks + _SOME * tiles) * BLOCK + _RANK * WARP * warps) * per,
        output=output,
    )


def compact_cost(items: int, keys: int, tiles: int, per: float, output: bool = False) -> Cost:
    """Cost of packing the keys of all tiles, of which ``tiles`` have any, with sums of their counts."""
    blocks = items / BLOCK
    return Cost(
        "work.compact, sums",
        read=KEY * (3 * blocks + keys) * per,
        written=KEY * (blocks + keys) * per,
        instructions=(_COMPACT * BLOCK * blocks + _COMPACT_KEY * max(keys, WARP * tiles)) * per,
        output=output,
    )
