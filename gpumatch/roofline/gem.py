"""What the kernels of GEM's bitsets touch."""

from __future__ import annotations

import numpy as np

from gpumatch.index import FlatIndex
from gpumatch.kernels import count_gem
from gpumatch.kernels.count import BLOCK, SECTOR, WARP
from gpumatch.kernels.gem import LANES, WORDS
from gpumatch.predicates import Array
from gpumatch.roofline.cost import Cost
from gpumatch.roofline.lists import Found
from gpumatch.roofline.sample import BUDGET, KEY, SCAN_BYTES, Sample, compact_cost, kept_cost, marks_of

SHARE = 1024  # events that one block of gem.sift takes
STAGED, MOST_LOG = 4096, 2  # words of shared memory, and the most words of a cell that a block takes, as a power of two
_WORD, _CELL, _STAGE = 62, 27, 35  # instructions of a word that is sifted, of each cell, of a word brought near
_COUNT, _ROUNDS = 50, 168  # of a word that is counted, and more where a block has any
_LIST, _BIT = 150, 36
_CHECK, _LANE = 110, 44


def bitsets(sample: Sample, index: FlatIndex) -> Found:
    """All kernels from codes to candidates."""
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
    _, blocks, steps = count_gem.list_bits(words, covered, a["loose"], listed)
    costs += _listing(sample, words.size, blocks, steps, len(listed), len(covered) > 0)
    marks, kept = (marks_of(a["bounds"]), marks_of(a["loose"])), np.empty(len(listed), np.int64)
    n, _, warps, some, sectors = count_gem.check_bounds(
        listed, index.first, lanes, a["bounds"], a["loose"], marks, kept
    )
    keep = kept_cost("", len(listed), n, some, per)
    lane_words = -(-dims // LANES)
    costs.append(
        Cost(
            "gem.check_bounds",
            read=KEY * len(listed) * per + 8 * lane_words,
            written=keep.written,
            touched=tuple(sample.touched(*it) for it in zip(("bounds", "loose"), sectors, marks, strict=True)),
            shared=keep.shared,
            instructions=keep.instructions + (40 * len(listed) + WARP * warps * (_CHECK + _LANE * lane_words)) * per,
        )
    )
    costs.append(compact_cost(len(listed), n, per))
    step = max(BUDGET // (8 * WORDS * sample.batch), 1)
    return Found(sample, costs, kept[:n], -(-tiles // step))


def _locating(sample: Sample, dims: int) -> Cost:
    """Cells and lanes of events: tables of a few kilobytes, which stay near."""
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
    """Words of an event's cells, ANDed; places are read by every block that takes other words of the event."""
    per, tiles = 1 / sample.events, len(bits) // (cells * WORDS)
    log = max((log for log in range(MOST_LOG + 1) if cells << log <= STAGED), default=MOST_LOG)
    out = np.empty((sample.events, tiles * WORDS), np.uint64)
    steps, answers, reads = count_gem.sift(places, dims, cells, log, bits.reshape(-1, WORDS), out)
    words, blocks = tiles * WORDS, (tiles * WORDS) >> log
    instructions = _WORD * words + _CELL * WARP * steps * per
    if cells << log > STAGED:
        marks = np.ones(bits.nbytes // SECTOR, np.bool_)
        touched = (sample.touched("bits", reads / (1 << log), marks),)
        return out, Cost("gem.sift", 0.0, 8.0 * words, 4.0 * dims * blocks, touched, instructions=instructions)
    staged = bits.nbytes / min(SHARE, sample.batch)  # an event's part of what blocks bring near
    return out, Cost(
        "gem.sift",
        read=bits.nbytes / sample.batch,  # blocks that take the same words follow each other
        written=8.0 * words,
        pieces=staged - bits.nbytes / sample.batch + 4.0 * dims * blocks,
        shared=staged + 128 * answers * per,
        instructions=instructions + _STAGE * staged / 8,
    )


def _listing(sample: Sample, words: int, blocks: int, steps: int, bits: int, covers: bool) -> list[Cost]:
    per = 1 / sample.events
    scans = SCAN_BYTES * BLOCK * blocks * per
    return [
        Cost(
            "gem.count_bits, sums",
            read=8 * (words + 2 * words / BLOCK) * per,
            written=16 * words / BLOCK * per,
            shared=scans,
            instructions=(_COUNT * words + _ROUNDS * BLOCK * blocks) * per,
        ),
        Cost(
            "gem.list_bits",
            read=8 * BLOCK * blocks * (2 if covers else 1) * per,
            written=KEY * bits * per,
            shared=scans,
            instructions=((_LIST + _ROUNDS) * BLOCK * blocks + _BIT * WARP * steps) * per,
        ),
    ]
