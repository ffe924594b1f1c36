"""Where blocks, grids, buffers and pieces of work end: exactly there, one before, and one behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numba import int32

import gpumatch as gm
from gpumatch.device import candidates, card, matching
from gpumatch.device.candidates import tile_runs
from gpumatch.device.card import Card
from gpumatch.index import KINDS, IndexParams
from gpumatch.index.gem import device as gem_device
from gpumatch.kernels.cuda import gem, target, work
from gpumatch.kernels.cuda.target import THREADS, Kernel, cuda
from gpumatch.kernels.cuda.work import before_me, own_run
from tests.conformance.device_suite import EVENTS, filled, there
from tests.conformance.test_oracle import each_variant
from tests.sim.rebinding import bound_anew

pytestmark = pytest.mark.long

SHAPES = [(2, 1), (4, 3), (8, 2), (32, 1)]  # threads per block, blocks per grid
each_shape = pytest.mark.parametrize(("threads", "blocks"), SHAPES)


def edges(threads: int, blocks: int) -> list[int]:
    """Numbers of things at the ends of a block, a grid, and two grids."""
    whole = threads * blocks
    near = {end + more for end in (threads, whole, 2 * whole) for more in (-1, 0, 1)}
    return sorted(count for count in near | {1} if count > 0)


def shaped(threads: int, blocks: int) -> Card:
    made = Card(0)
    made.threads, made.blocks = threads, blocks
    return made


def finished(made: Card, job: Any) -> Any:
    """What a job gives that wants to know numbers."""
    number = None
    while True:
        try:
            number = int(made.download(job.send(number))[0])
        except StopIteration as end:
            return end.value


# How blocks share work


def find_all(tile_run: Any, slot_ptr: Any, first: Any, last: Any, out: Any) -> None:
    for tile in range(cuda.blockIdx.x, tile_run.size - 1, cuda.gridDim.x):
        slot = first + tile * cuda.blockDim.x + cuda.threadIdx.x
        run = own_run(slot, last, tile, tile_run, slot_ptr)
        if slot < last:
            out[slot] = run


@each_shape
def test_slots_find_their_runs(threads: int, blocks: int) -> None:
    made = shaped(threads, blocks)
    kernel = Kernel("find_all", find_all, "void(i8[::1], i8[::1], i8, i8, i8[::1])", THREADS)
    rng = np.random.default_rng(threads)
    for slots in edges(threads, blocks):
        for cuts in (0, slots // 2, slots - 1):  # one run, some, and each slot its own
            inner = np.sort(rng.permutation(np.arange(1, slots))[:cuts])
            ptr = np.array([0, *inner, slots], np.int64)
            for first in {0, slots // 3}:
                out = made.xp.full(slots, -1, dtype=np.int64)
                held = made.xp.asarray(ptr)
                made.launch(kernel, slots - first, tile_runs(made, held, first, slots), held, first, slots, out)
                right = np.searchsorted(ptr, np.arange(slots), side="right") - 1
                right[:first] = -1
                assert made.download(out).tolist() == right.tolist()


def sum_all(values: Any, out: Any) -> None:
    scan = cuda.shared.array(THREADS, int32)
    i = cuda.grid(1)
    out[i] = before_me(values[i], scan)


@each_shape
def test_sums_of_those_before(threads: int, blocks: int) -> None:
    made = shaped(threads, blocks)
    kernel = Kernel("sum_all", sum_all, "void(i8[::1], i8[::1])", THREADS)
    values = np.random.default_rng(0).integers(0, 100, threads * blocks)
    out = made.xp.empty(len(values), dtype=np.int64)
    made.launch(kernel, len(values), made.xp.asarray(values), out)
    right = [values[i - i % threads : i].sum() for i in range(len(values))]
    assert made.download(out).tolist() == right


@each_shape
@pytest.mark.parametrize("lost", ["none", "all", "some", "but the last"])
def test_keys_are_kept_in_order(threads: int, blocks: int, lost: str) -> None:
    """Keys that are kept of all, for numbers of them around the ends of blocks and grids."""
    made = shaped(threads, blocks)
    for count in edges(threads, blocks):
        rows = np.arange(count, dtype=np.int32) + 5
        keep = {
            "none": np.ones(count, np.bool_),
            "all": np.zeros(count, np.bool_),
            "some": np.random.default_rng(count).random(count) < 0.5,
            "but the last": np.arange(count) == count - 1,
        }[lost]
        keys = made.xp.asarray((np.arange(count) % 3 << 32) | np.arange(count))
        held = made.xp.asarray(np.where(keep, rows, -1).astype(np.int32))

        def launch(found: Any, counts: Any, keys: Any = keys, held: Any = held) -> None:
            made.launch(work.to_rows, len(keys), keys, held, found, counts)

        found = made.download(finished(made, candidates.kept(made, count, launch)))
        right = (np.arange(count) % 3 << 32) | rows
        assert found.tolist() == right[keep].tolist()


def test_nothing_to_do_launches_nothing() -> None:
    made = shaped(4, 2)
    made.launch(target.KERNELS["work.compact"], 0)
    found = finished(made, candidates.kept(made, 0, lambda found, counts: pytest.fail("launched")))
    assert len(found) == 0


# The same through a matcher


@pytest.fixture
def on_shape(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def shape(threads: int, blocks: int) -> None:
        monkeypatch.setattr(card, "_SIMULATED_THREADS", threads)
        monkeypatch.setattr(card, "_SIMULATED_BLOCKS", blocks)

    return shape


@each_variant
def test_every_shape(index: IndexParams, on_shape: Any) -> None:
    """As many events as the grid has threads, and one more."""
    right = filled(index)
    for threads, blocks in SHAPES[:-1]:
        on_shape(threads, blocks)
        mine = there(right)
        for more in (0, 1):
            events = (EVENTS * 3)[: threads * blocks + more]
            assert mine.match(events) == right.match(events)


@pytest.mark.parametrize("index", KINDS)
def test_wide_blocks(index: str, on_shape: Any) -> None:
    on_shape(32, 1)
    right = filled(index)
    events = (EVENTS * 5)[:33]
    assert there(right).match(events) == right.match(events)


@each_variant
@pytest.mark.parametrize("count", [7, 8, 9, 23, 24, 25])
def test_subscriptions_around_the_ends(index: IndexParams, count: int) -> None:
    """8 threads and 3 blocks: as many slots, keys and results as fill a block or the grid."""
    right = gm.Matcher({"x": "int64"}, index=index, device="cpu")
    right.add({at: f"x < {100 + at}" for at in range(count)}, destination="d")
    mine = there(right)
    assert mine.match([{"x": 5}]).rows.tolist() == list(range(count))
    assert mine.match([{"x": 100 + count - 2}, {}, {"x": 5}]) == right.match([{"x": 100 + count - 2}, {}, {"x": 5}])
    assert mine.any([{"x": 5}, {"x": 100 + count}]).tolist() == [True, False]


@each_variant
@pytest.mark.parametrize("budget", [1, 300])
def test_buffers_too_small_for_all(index: IndexParams, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots, tiles, events and stacks in many pieces."""
    monkeypatch.setattr(card, "_SIMULATED_MEMORY", budget * card._SHARE_OF_MEMORY)
    right = filled(index)
    mine = there(right)
    assert mine.match(EVENTS) == right.match(EVENTS)
    assert mine.destinations(EVENTS) == right.destinations(EVENTS)


def test_slots_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces end within runs, at their ends, and not at those of blocks."""
    right = gm.Matcher({"x": "int64", "y": "int64"}, index="scan", device="cpu")
    right.add({at: f"x < {at}" if at % 3 else f"y < {at}" for at in range(40)})
    expected = right.match([{"x": 3, "y": 9}, {"y": 20}, {"x": 30}])
    mine = there(right)
    for step in (8, 9, 13, 14, 27, 80):
        monkeypatch.setattr(mine._engine._card, "budget", 8 * step)
        monkeypatch.setattr(matching, "_EVENTS", 3)
        assert mine.match([{"x": 3, "y": 9}, {"y": 20}, {"x": 30}]) == expected


@each_variant
@pytest.mark.parametrize("most", [1, 3])
def test_events_in_pieces(index: IndexParams, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several in flight at a time."""
    monkeypatch.setattr(matching, "_EVENTS", most)
    right = filled(index)
    mine = there(right)
    assert mine.match(EVENTS) == right.match(EVENTS)
    assert mine.destinations(EVENTS) == right.destinations(EVENTS)


def test_pieces_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_FEW", 2)
    right = filled("scan")
    for count in (1, 2, 7, 8):
        assert there(right).match(EVENTS[:count]) == right.match(EVENTS[:count])


# Gem


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets how many words a block of gem.sift has in shared memory."""
    with bound_anew():
        yield lambda words: monkeypatch.setattr(gem, "STAGED", words)


@pytest.mark.parametrize("words", [4, 40, 41, 83, 84, 200])
def test_cells_that_do_not_fit_shared_memory(words: int, staged: Any) -> None:
    """Four, two or one words of all cells, or none."""
    staged(words)
    right = gm.Matcher({"x": "int64", "y": "int64"}, index=gm.Gem(cells=20), device="cpu")
    right.add({at: f"x BETWEEN {at} AND {at + 9} AND y > {at % 7}" for at in range(70)}, destination="d")
    cells = len(right._seal().segments[0].parts[0].index.arrays["count"])
    assert 20 < cells <= 42
    events = [{"x": x, "y": x % 9} for x in (0, 5, 40, 69, 78, 79)] + [{"x": 30}, {}]
    mine = there(right)
    assert mine.match(events) == right.match(events)
    assert mine.destinations(events) == right.destinations(events)


@pytest.mark.parametrize("count", [4095, 4096, 4097, 8200])
@pytest.mark.parametrize("many", [False, True])
def test_several_tiles(count: int, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,096 clauses, in one group and in groups of one; where few match, and where so many do that cells decide."""
    rng = np.random.default_rng(count)
    low = {name: rng.random(count) * 0.8 for name in "xy"}
    right = gm.Matcher(dict.fromkeys("xy", "float64"), index="gem", device="cpu")
    width = 0.15 if many else 0.01
    right.add_ranges(np.arange(count), {name: (side, side + width) for name, side in low.items()}, destination="d")
    assert (len(right._seal().segments[0].parts[0].index.arrays["cover"]) > 0) == many
    events = {name: np.array([0.42, 0.001]) for name in "xy"}
    events["x"][0] = low["x"][-1]  # that of the last clause
    events["y"][0] = low["y"][-1]
    mine = there(right)
    assert count - 1 in mine.match(events).ids(0)
    assert mine.match(events) == right.match(events)
    monkeypatch.setattr(mine._engine._card, "budget", 1)
    monkeypatch.setattr(gem_device, "_SHARE", 1)  # events of a block
    assert mine.match(events) == right.match(events)


@pytest.mark.parametrize("share", [1, 2, 7, 8])
def test_events_that_blocks_share(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gem_device, "_SHARE", share)
    right = filled("gem", copies=6)
    assert there(right).match(EVENTS) == right.match(EVENTS)


def test_many_dimensions() -> None:
    """More lanes than a word has, and dimensions that an event lacks."""
    names = [f"a{at}" for at in range(9)]
    right = gm.Matcher(dict.fromkeys(names, "int64"), index="gem", device="cpu")
    right.add({at: " AND ".join(f"{n} >= {(at + k) % 5}" for k, n in enumerate(names)) for at in range(60)})
    events = [dict.fromkeys(names, 4), dict.fromkeys(names, 3), dict.fromkeys(names[:8], 4), {"a3": 1}]
    assert there(right).match(events) == right.match(events)


def test_more_codes_than_lanes_hold() -> None:
    """Neighbours share a lane: what lies in that of a bound is not decided by it."""
    count = 20_000
    right = gm.Matcher({"x": "float64", "y": "float64"}, index="gem", device="cpu")
    low = np.arange(count, dtype=np.float64)
    right.add_ranges(np.arange(count), {"x": (low, low + 0.5), "y": (low, low + 0.5)})
    events = {"x": np.array([0.0, 0.5, 0.75, count - 0.5, 777.25]), "y": np.array([0.0, 0.5, 0.5, count - 1, 777.5])}
    found = there(right).match(events)
    assert found == right.match(events)
    assert list(found) == [[0], [0], [], [count - 1], [777]]


# Programs and Tama


@pytest.mark.parametrize("index", KINDS)
def test_deep_programs(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has a stack of its own, and uses it for one key after another."""
    monkeypatch.setattr("gpumatch.expr.normal._LITERALS", 0)
    names = [f"a{at}" for at in range(6)]
    deep = "".join(f"a{at % 6} > {at % 4} {'AND' if at % 2 else 'XOR'} (" for at in range(40)) + "a3 > 2" + ")" * 40
    texts = [deep, f"NOT ({deep})", "a0 > 1 XOR a1 > 1 XOR a2 > 2", "a5 = 1 AND (a0 > 2 OR a1 > 2) XOR a2 IS NULL"]
    right = gm.Matcher(dict.fromkeys(names, "int64"), index=index, device="cpu")
    right.add({at: texts[at % len(texts)] for at in range(40)}, destination="d")
    assert right.stats()["programs"] >= 2
    rng = np.random.default_rng(3)
    events = [{name: int(rng.integers(0, 5)) for name in names if rng.random() < 0.9} for _ in range(5)]
    mine = there(right)
    assert mine.match(events) == right.match(events)
    monkeypatch.setattr(mine._engine._card, "budget", 8 * 90)  # room for the stacks of one block
    assert mine.match(events) == right.match(events)


def test_tama_counts_up_to_255() -> None:
    """A clause with more predicates is tested whole; one with 255 fills its counter."""
    names = [f"a{at}" for at in range(257)]
    right = gm.Matcher(dict.fromkeys(names, "int64"), index="tama", device="cpu")
    right.add({at: " AND ".join(f"{name} > 0" for name in names[:at]) for at in (1, 2, 254, 255, 256, 257)})
    events = [dict.fromkeys(names, 1), dict.fromkeys(names[:255], 1), dict.fromkeys(names[:254], 1), {"a0": 1}]
    found = there(right).match(events)
    assert found == right.match(events)
    assert found.ids(0) == [1, 2, 254, 255, 256, 257]


@pytest.mark.parametrize("levels", [None, 0, 2])
def test_tama_counts_a_predicate_of_a_list_once(levels: int | None) -> None:
    """However many of the list's values hit it."""
    right = gm.Matcher({"t": "list<int64>", "x": "int64", "u": "list<int64>"}, gm.Tama(levels=levels), device="cpu")
    right.add(
        {
            0: "t > 5 AND x > 0",
            1: "t > 5 AND t < 3",
            2: "t IN (1, 2, 3, 50, 60) AND u > 1 AND x = 2",
            3: "t > 5",
            4: "t > 5 AND u = 7 AND t > 6",
            5: "u <> 7 AND t BETWEEN 8 AND 90",
        }
    )
    events: list[dict[str, Any]] = [
        {"t": list(range(100))},
        {"t": [7] * 60, "x": 1},
        {"t": [1, 2, 3, 50, 60] * 5, "x": 2, "u": [0, 2, 2]},
        {"t": [9, 9, 8], "u": [7, 7]},
        {"t": [2, 6], "u": [8]},
        {"t": [], "u": [], "x": 2},
    ]
    assert there(right).match(events) == right.match(events)


def test_tama_cells_of_events() -> None:
    right = gm.Matcher({"x": "int64"}, index=gm.Tama(levels=2, separation="events"), device="cpu")
    right.observe({"x": np.array([1, 1, 2, 3, 5, 8, 13, 21])})
    right.add({at: f"x BETWEEN {at} AND {at + 4}" for at in range(25)})
    events = {"x": np.arange(-1, 30)}
    assert there(right).match(events) == right.match(events)
