"""GEM on a device: bitsets of the cells of events, or triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpumatch.device.candidates import OnDevice, found_in, kept, one_each, runs_of
from gpumatch.device.card import Card, Job
from gpumatch.device.encode import Coded
from gpumatch.device.resident import DeviceIndex, Resident
from gpumatch.index.gem import Gem
from gpumatch.kernels.cuda import gem, triangle
from gpumatch.kernels.gem import LANES, STRICTER, WORDS

_SHARE = 1024  # events that one block of gem.sift takes
_LOG_WORDS = 2  # as a power of two: 4 words, the smallest read of memory


def _candidates(card: Card, resident: Resident, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    params = index.flat.params
    if isinstance(params, Gem) and not params.has_all:
        return _triangle(card, index, coded)
    return _bitsets(card, index, coded)


def _bitsets(card: Card, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    """Clauses touching an event's cells and within its bounds; ascending by event and clause in a group of tiles."""
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
        size = min(step, tiles - tile)
        touching = _sifted(card, tile, size, cells, places, a["bits"])
        covered = _sifted(card, tile, size, cells, places, a["cover"]) if covers else xp.empty(0, dtype=np.uint64)
        counts = xp.empty(card.tiles(len(touching)), dtype=np.int64)
        card.launch(gem.count_bits, len(touching), touching, counts)
        ends = xp.cumsum(counts)
        listed = xp.empty((yield ends[-1:]), dtype=np.int64)
        words = (size * WORDS, tile * WORDS)
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


def _triangle(card: Card, index: DeviceIndex, coded: Coded) -> Job[list[Any]]:
    a, flat = index.arrays, index.flat
    dims = len(a["triangle_dims"])
    if dims:
        cells = len(a["triangle_starts"]) // dims
        counts = (a["triangle_dims"], a["count_ptr"], a["pass_count"])
        args = (coded.rows, coded.width, *counts, cells, a["triangle_starts"], a["triangle_ptr"])
        runs = yield from runs_of(card, coded.length, (triangle.count_rows, triangle.fill_rows), *args)
    else:  # nothing tells clauses apart
        runs = one_each(card, coded.length, flat.last - flat.first)
    lists = (a["triangle_dims"], a["triangle_sub"], a["triangle_bounds"], a["decided"])
    keys = yield from found_in(card, runs, triangle.test_bounds, flat.first, coded.rows, coded.width, *lists)
    return keys


ON_DEVICE = OnDevice(_candidates, words=lambda index: len(index.arrays["loose"]))
