"""Memory and work of the GEM kernels, of bitsets or of triangles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.flat import FlatIndex
from gpumatch.index.gem import Gem
from gpumatch.kernels import count, count_gem, count_lists
from gpumatch.kernels.count import BLOCK, SECTOR, WARP
from gpumatch.kernels.gem import LANES, WORDS
from gpumatch.proof.roofline.cost import Cost
from gpumatch.proof.roofline.lists import Found, OnRoofline, cut, found_in
from gpumatch.proof.roofline.sample import (
    ANSWER,
    BUDGET,
    KEY,
    NOT_LISTED,
    SCAN_BYTES,
    SCAN_ROUNDS,
    Runs,
    RunWork,
    Sample,
    SlotWork,
    compact_cost,
    kept_cost,
    listing,
    marks_of,
    testing,
    warp_steps,
)

SHARE = 1024  # events that one block of gem.sift takes
STAGED, MOST_LOG = 4096, 2  # words of shared memory, and the most words of a cell that a block takes, as a power of two
_PART, _WORD, _STAGE = 325, 54, 35  # instructions of a block's thread, of a word sifted, of a word staged
_CELL, _FAR_CELL = 16, 21  # of each cell of a word, staged or not
_COUNT, _COUNT_SOME, _COUNT_BITS = 44, 5, 13  # of a word, more where its block has any bits, and where its warp has
_LIST, _COVERED, _BIT = 137, 24, 36
_KEY, _CHECK, _LANE = 50, 65, 44
_BOUND, _WITHIN = 41, 16


def _count(sample: Sample, index: FlatIndex) -> Found:
    whole = isinstance(index.params, Gem) and index.params.has_all
    return _bitsets(sample, index) if whole else _triangle(sample, index)


def _bitsets(sample: Sample, index: FlatIndex) -> Found:
    a, per = index.arrays, 1 / sample.events
    tiles, cells, dims = len(a["loose"]) // WORDS, len(a["count"]), len(a["cell_ptr"]) - 1
    lines, tables = (a["dim_of"], a["cell_ptr"]), (a["cell_table"], a["table_ptr"], a["table_shift"])
    places, lanes = count_gem.locate(
        sample.coded.arrays(), lines, tables, (a["lane_exact"], a["lane_shift"]), a["count"]
    )
    costs = [_locating(sample, dims)]
    words, cost = _sifting(sample, places, dims, cells, a["bits"])
    costs.append(cost)
    covered = np.zeros((0, 0), np.uint64)
    if len(a["cover"]):
        covered, cost = _sifting(sample, places, dims, cells, a["cover"])
        costs.append(cost)
    listed = np.empty(int(np.bitwise_count(words).sum()), np.int64)
    _, *bits = count_gem.list_bits(words, covered, a["loose"], listed)
    costs += _listing(sample, words.size, Bits(len(listed), *bits), len(covered) > 0)
    marks, kept = (marks_of(a["bounds"]), marks_of(a["loose"])), np.empty(len(listed), np.int64)
    n, _, warps, some, keeping, sectors = count_gem.check_bounds(
        listed, index.first, lanes, a["bounds"], a["loose"], marks, kept
    )
    keep = kept_cost("", len(listed), n, some, keeping, per)
    lane_words = -(-dims // LANES)
    costs.append(
        Cost(
            "gem.check_bounds",
            read=KEY * len(listed) * per + 8 * lane_words,
            written=keep.written,
            touched=tuple(sample.touched(*it) for it in zip(("bounds", "loose"), sectors, marks, strict=True)),
            shared=keep.shared,
            instructions=keep.instructions + (_KEY * len(listed) + WARP * warps * (_CHECK + _LANE * lane_words)) * per,
        )
    )
    costs.append(compact_cost(len(listed), n, some, per))
    step = max(BUDGET // (8 * WORDS * sample.batch), 1)
    return Found(sample, costs, kept[:n], -(-tiles // step))


def _locating(sample: Sample, dims: int) -> Cost:
    """Locating cells and lanes of events: tables of a few kilobytes, which stay in cache."""
    entries = len(sample.coded.code) / sample.events
    lane_bytes = 8 * -(-dims // LANES)
    return Cost(
        "gem.locate_events",
        read=8 * entries + 8 + 4 * dims,
        written=8.0 * dims + lane_bytes,
        pieces=SECTOR * 2 * entries,
        instructions=125 * entries + dims * (90 + 48 * dims / 4),
    )


def _sifting(sample: Sample, places: Array, dims: int, cells: int, bits: Array) -> tuple[Array, Cost]:
    """ANDed words of an event's cells; every block with other words of the event reads its places again."""
    per, tiles = 1 / sample.events, len(bits) // (cells * WORDS)
    log = max((log for log in range(MOST_LOG + 1) if cells << log <= STAGED), default=MOST_LOG)
    out = np.empty((sample.events, tiles * WORDS), np.uint64)
    steps, answers, reads = count_gem.sift(places, dims, cells, log, bits.reshape(-1, WORDS), out)
    words, blocks = tiles * WORDS, (tiles * WORDS) >> log
    share = min(SHARE, sample.batch)
    instructions = _WORD * words + _PART * BLOCK * blocks / share
    if cells << log > STAGED:
        marks = np.ones(bits.nbytes // SECTOR, np.bool_)
        touched = (sample.touched("bits", reads / (1 << log), marks),)
        instructions += _FAR_CELL * WARP * steps * per
        return out, Cost("gem.sift", 0.0, 8.0 * words, 4.0 * dims * blocks, touched, instructions=instructions)
    staged = bits.nbytes / share  # an event's share of what blocks stage
    return out, Cost(
        "gem.sift",
        read=bits.nbytes / sample.batch,  # blocks that take the same words are consecutive
        written=8.0 * words,
        pieces=staged - bits.nbytes / sample.batch + 4.0 * dims * blocks,
        shared=staged + ANSWER * answers * per,
        instructions=instructions + _CELL * WARP * steps * per + _STAGE * staged / 8,
    )


class Bits(NamedTuple):
    """Numbers of bits, of blocks and warps that have any, and of steps in which warps list them."""

    number: int
    blocks: int
    warps: int
    steps: int


def _listing(sample: Sample, words: int, bits: Bits, covers: bool) -> list[Cost]:
    per, tiles = 1 / sample.events, words / BLOCK
    some = BLOCK * bits.blocks
    return [
        Cost(
            "gem.count_bits, sums",
            read=8 * (words + 2 * tiles) * per,
            written=16 * tiles * per,
            shared=ANSWER * (2 * tiles + bits.warps) * per,
            instructions=(_COUNT * words + _COUNT_SOME * some + _COUNT_BITS * WARP * bits.warps) * per,
        ),
        Cost(
            "gem.list_bits",
            read=(8 * tiles + 8 * some * (2 if covers else 1)) * per,
            written=KEY * bits.number * per,
            shared=SCAN_BYTES * some * per,
            instructions=(NOT_LISTED * words + (_LIST + SCAN_ROUNDS) * some) * per
            + WARP * (_BIT * bits.steps + (_COVERED * bits.warps if covers else 0)) * per,
        ),
    ]


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


def _triangle(sample: Sample, index: FlatIndex) -> Found:
    """GEM without a bitset for every cell."""
    a = index.arrays
    dims = a["triangle_dims"]
    costs: list[Cost] = []
    if len(dims):
        sample, runs, work = cut(sample, lambda it: _rows_of_cells(it, a))
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


ON_ROOFLINE = OnRoofline(_count, words=lambda index: len(index.arrays["loose"]))
