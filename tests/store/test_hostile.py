"""Indexes from somebody who means harm: checksums are right, and what the files hold is not.

With ``verify="full"`` such an index is refused, or it can be used without reading or writing beyond an array.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.arrayspec import HOOKED
from gpumatch.codes.book import BOOK_TYPES
from gpumatch.codes.table import TABLE_TYPES
from gpumatch.index import KINDS
from gpumatch.index.flat import Kind
from gpumatch.store.checks import COLUMNS
from gpumatch.store.folder import directory, manifests
from tests.conformance.test_oracle import VARIANTS
from tests.examples import rounds

ALL = (*VARIANTS, gm.Tama(levels=1, approximate=True), gm.Tama(separation="events"), "auto")
COUNT = int(os.environ.get("GPUMATCH_CORRUPTED", "12"))  # copies of each index
CHECKED = "NUMBA_BOUNDSCHECK" in os.environ
each_index = pytest.mark.parametrize("index", ALL, ids=str)

SCHEMA = {
    "sym": "string",
    "px": "float64",
    "qty": "int64",
    "day": "date",
    "flag": "bool",
    "f": "float32",
    "tags": "list<string>",
    "nums": "list<int64>",
}
EVENTS: list[dict[str, Any]] = [
    {},
    {"sym": "b", "px": 7.0, "qty": 3, "day": dt.date(2024, 1, 5), "flag": True, "tags": ["u", "v"], "nums": [1, 9]},
    {"sym": "abc", "px": 31.5, "qty": 400, "f": 0.5, "tags": [], "nums": [5, 5, 7, -3]},
    {"sym": "", "px": float("inf"), "qty": -(2**63), "flag": False, "nums": []},
    {"sym": "c", "px": -1e300, "qty": 2**63 - 1, "day": dt.date(9999, 12, 31), "tags": ["abc", "zz", ""]},
    {"sym": "zz", "px": 12.25, "qty": 11, "f": 3.0, "nums": [3]},
]
UNLIKE = {
    "or": "px > 30 OR f < 1 OR flag = FALSE",
    "set": "sym IN ('abc', '', 'é', 'c') AND qty NOT IN (1, 2, 3)",
    "like": "sym LIKE 'a%' OR sym NOT LIKE 'z%'",
    "search": "sym LIKE '%b_' OR tags NOT ILIKE '%Z%'",
    "null": "day IS NULL AND flag IS NULL",
    "lists": "tags = 'u' AND nums <> 3 OR NOT (nums > 5)",
    "xor": "qty > 0 XOR px > 0 XOR f > 0 XOR flag = TRUE XOR sym > 'a' XOR nums = 1",
    "program": " AND ".join(f"(qty = {k} OR px > {k} OR sym > '{k}' OR f < {k})" for k in range(-3, 4)),
    "shared": " AND ".join(f"(qty = {k} OR px > {k} OR sym > '{k}' OR f < {k})" for k in range(-3, 3)),
    "never": "qty < 0 AND qty > 0",
    "always": "TRUE",
}


def filled(index: Any, alike: int = 160) -> gm.Matcher:
    """Two segments, one of them with holes, of all that a matcher can hold; ``alike``: alerts on three symbols."""
    matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
    matcher.observe(EVENTS)
    matcher.add(UNLIKE, destination=["d", "e", None] + ["d"] * (len(UNLIKE) - 3))
    low = np.arange(alike) % 40 * 1.0
    bounds = {"sym": (names := np.array(["b", "c", "zz"])[np.arange(alike) % 3].tolist(), names)}
    ranges = {**bounds, "px": (low, low + 5), "qty": (np.arange(alike) % 11, None)}
    weights = np.arange(alike) % 7 * 1.0
    matcher.add_ranges([f"r{at}" for at in range(alike)], ranges, destination="f", weight=weights)
    days = np.full(alike, np.datetime64("2024-01-01"))
    matcher.add_ranges([f"w{at}" for at in range(alike)], {"px": (low - 20, low + 20), "day": (days, None)})
    matcher.match_one({})
    matcher.remove(["r3", "set"])
    few = np.arange(100)
    matcher.add({"late": "sym = 'abc' XNOR flag = TRUE", "list": "nums = 5 AND qty > 3"})
    matcher.add_ranges([f"n{at}" for at in few], {"px": (few * 0.5, few * 0.5), "qty": (few, few + 1)})
    matcher._store.indexed()  # as it is saved
    return matcher


def use(matcher: gm.Matcher, rebuild: bool) -> None:
    """Everything that looks at values."""
    for events in (EVENTS, EVENTS[1:2], EVENTS[2:3]):
        list(matcher.match(events))
        list(matcher.destinations(events))
        list(matcher.top(events, 2))
        matcher.any(events)
    matcher.plan()
    matcher.stats()
    try:
        for name in matcher.ids[:4].tolist():
            str(matcher[name])
    except gm.ParseError:  # of a text that was altered
        pass
    if rebuild:
        matcher.compact()
        list(matcher.match(EVENTS))


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """The folder of each index, saved once."""
    base = tmp_path_factory.mktemp("saved")

    def saved(index: Any) -> Path:
        folder = base / hashlib.sha256(str(index).encode()).hexdigest()[:8]
        if not folder.exists():
            filled(index).save(folder)
        return folder

    return saved


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return found


def write_manifest(folder: Path, held: dict[str, Any]) -> None:
    """With the right checksum."""
    held = {key: value for key, value in held.items() if key != "checksum"}
    (folder / "manifest.json").write_text(json.dumps({**held, "checksum": manifests.digest_of(held)}))


def forge(folder: Path, number: int, name: str, content: bytes) -> Path:
    """Put other content in the place of an array: its name and all checksums are right."""
    held = manifest(folder)
    digest = hashlib.sha256(content).hexdigest()
    file = f"s{number}.{name}-{digest[:16]}.npy"
    (folder / file).write_bytes(content)
    held["segments"][number]["arrays"][name] = {"file": file, "size": len(content), "sha256": digest}
    write_manifest(folder, held)
    return folder / file


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def read(folder: Path, number: int, name: str) -> Any:
    """An array of a segment, to be changed."""
    return np.load(folder / manifest(folder)["segments"][number]["arrays"][name]["file"])


# What is right


def test_every_array_says_what_its_values_are() -> None:
    for kind in KINDS.values():
        hooked = [name for name, spec in kind.arrays.items() if spec.values is HOOKED]
        assert all(spec.values is not None for spec in kind.arrays.values())
        assert not hooked or kind.validate is not Kind.__dataclass_fields__["validate"].default
    assert all(spec.values is not None for specs in (BOOK_TYPES, TABLE_TYPES, COLUMNS) for spec in specs.values())


@each_index
@pytest.mark.parametrize("mmap", [True, False])
def test_an_untouched_index_passes(index: Any, mmap: bool, masters: Callable[[Any], Path]) -> None:
    matcher = gm.load(masters(index), device="cpu", mmap=mmap, verify="full")
    assert list(matcher.match(EVENTS)) == list(filled(index).match(EVENTS))


@pytest.mark.long
@each_index
def test_a_large_index_passes(index: Any, tmp_path: Path) -> None:
    matcher = filled(index, 10_000)
    assert len(matcher) > 20_000
    matcher.save(tmp_path / "large")
    assert gm.load(tmp_path / "large", device="cpu", verify="full").match(EVENTS) == matcher.match(EVENTS)


# Values


def corrupted(array: Any, rng: np.random.Generator) -> Any:
    """The array with another value somewhere, or now and then one more or one less."""
    way = rng.random()
    if len(array) == 0 or way < 0.04:
        return np.append(array, np.zeros(1, array.dtype))
    if way < 0.08:
        return array[:-1]
    array, at = array.copy(), rng.integers(len(array))
    if array.dtype == bool:
        array.view(np.uint8)[at] = rng.choice([0, 1, 2, 255])
        return array
    if array.dtype == float:
        array[at] = rng.choice([np.nan, np.inf, -np.inf, 0, -1e300])
        return array
    bounds, old = np.iinfo(array.dtype), int(array[at])
    others = [0, 1, -1, 2, old + 1, old - 1, old + 2, -old, 2 * old, old ^ 1 << int(rng.integers(bounds.bits - 1))]
    others += [int(array[rng.integers(len(array))]), len(array), bounds.max, bounds.min, int(array.max()) + 1]
    others += [int(rng.integers(bounds.min, bounds.max, endpoint=True, dtype=array.dtype)), 1000, -16, -17]
    value = others[rng.integers(len(others))]
    array[at] = min(max(value, bounds.min), bounds.max)
    return array


def attack(folder: Path, count: int, rng: np.random.Generator) -> dict[str, int]:
    """Load and use copies of an index in which one value differs; how many were refused, and how many used."""
    right, outcome = manifest(folder), {"refused": 0, "used": 0, "same": 0}
    places = [(number, name) for number, segment in enumerate(right["segments"]) for name in segment["arrays"]]
    for at in range(count):
        number, name = places[rng.integers(len(places))]
        array = read(folder, number, name)
        other = corrupted(array, rng)
        if array.tobytes() == other.tobytes():
            outcome["same"] += 1
            continue
        file = forge(folder, number, name, npy(other))
        try:
            matcher = gm.load(folder, device="cpu", mmap=at % 2 == 0, verify="full")
        except gm.StorageError:
            outcome["refused"] += 1
        else:
            try:
                use(matcher, rebuild=at % 8 == 0)
            except Exception as error:
                where = np.flatnonzero(array != other) if len(array) == len(other) else [len(other)]
                raise AssertionError(
                    f"{name} of {number}: {array[where[:1]]} is {other[where[:1]]} at {where}"
                ) from error
            outcome["used"] += 1
        file.unlink()
        write_manifest(folder, right)
    return outcome


@each_index
def test_corrupted_values_are_refused_or_harmless(index: Any, masters: Callable[[Any], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(masters(index), tmp_path / "copy"))
    outcome = attack(folder, COUNT, np.random.default_rng(ALL.index(index)))
    assert outcome["refused"] > 0
    print(index, outcome)


@pytest.mark.long
def test_no_corrupted_value_leads_out_of_bounds(tmp_path: Path) -> None:
    """The same with numba's checks of bounds, which need kernels of their own."""
    environment = {
        "NUMBA_BOUNDSCHECK": "1",
        "GPUMATCH_CACHE_DIR": str(tmp_path),
        "GPUMATCH_CORRUPTED": str(rounds(480)),
    }
    files = [__file__, str(Path(__file__).with_name("test_hostile_logs.py"))]
    chosen = [*files, "-k", "corrupted_values or checks_notice", "-q", "-s", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *chosen], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout)


@pytest.mark.skipif(not CHECKED, reason="without checks of bounds it would do harm")
def test_the_checks_notice(masters: Callable[[Any], Path], tmp_path: Path) -> None:
    """What "size" lets pass leads kernels out of bounds: so the other test would fail if "full" let it pass."""
    heads = 0xFF00_0000_7FFF_FFFF  # a clause that is not there, for all that pass the first filter
    wrong = ((gm.Scan(), "rest", 1 << 30), (gm.PstBloom(), "heads", heads), (gm.ATree(), "waiting", 1 << 30))
    for index, name, value in wrong:
        folder = Path(shutil.copytree(masters(index), tmp_path / name))
        array = read(folder, 0, f"index0.{name}")
        array[:] = value
        forge(folder, 0, f"index0.{name}", npy(array))
        with pytest.raises(IndexError, match="index is out of bounds"):
            gm.load(folder, device="cpu", verify="size").match(EVENTS)
        with pytest.raises(gm.StorageError, match=f"{name!r} of a"):
            gm.load(folder, device="cpu", verify="full")


def put(at: int, value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[at] = value
        return array

    return change


CRAFTED: list[tuple[Any, str, Callable[[Any], Any], str]] = [
    (
        gm.Scan(),
        "table.program_item",
        lambda items: np.where((items < 0) & (items % 8 == 6), items - 800, items),
        "operands before operators",
    ),
    (gm.Scan(), "table.program_item", put(0, 0), "should have numbers from"),  # a predicate of a clause
    (gm.Scan(), "table.program_item", put(-1, -8), "operators with operands"),
    (gm.Scan(), "table.program_ptr", lambda ptr: np.insert(ptr, 1, 0), "should have programs|items for each program"),
    (gm.Scan(), "table.clause_row", put(5, -1), "should have numbers from 0 to 330, has -1"),
    (gm.Scan(), "table.predicate", put(1, 2), "kinds that fit their attributes"),
    (gm.Scan(), "table.predicate", put(3, 1000), "ranges that exist"),
    (gm.Scan(), "table.range_attribute", lambda held: held[::-1].copy(), "its own attribute|numbers from"),
    (gm.Scan(), "book.guide", put(3, 1 << 40), "'guide' of a saved index should have numbers"),
    (gm.Scan(), "book.buckets", put(-1, -1), "'buckets' of a saved index should have numbers from 0"),
    (gm.Scan(), "book.cuts", put(0, 1 << 60), "'cuts' of a saved index"),
    (gm.Scan(), "book.pool_offsets", put(1, -5), "should ascend, has -5 after 0 at 1"),
    (gm.Scan(), "ids.offsets", put(1, 1 << 60), "'ids.offsets' of a saved index should ascend"),
    (gm.Scan(), "texts.data", put(0, 0xFF), "UTF8"),
    (gm.Scan(), "texts.valid", lambda valid: np.full(len(valid), 7, np.uint8).view(bool), "numbers from 0 to 1, has 7"),
    (gm.Scan(), "dead", lambda dead: dead[1:], "'dead' of a saved index should have rows numbers"),
    (gm.Scan(), "destinations.number", put(0, 3), "should have numbers from -1 to 2, has 3"),
    (gm.Scan(), "weights", lambda weights: weights[1:], "'weights' of a saved index should have rows numbers"),
    (gm.PstBloom(), "index0.lines", put(0, 6), "single-valued owners"),
    (gm.PstBloom(), "index0.lines", put(2, 1000), "'lines' of a pstbloom index should have numbers"),
    (gm.PstBloom(), "index0.filters", lambda held: held | np.uint32(0xFFFF), "'filters' of a pstbloom index"),
    (gm.PstBloom(), "index0.heads", put(0, 0x7FFF_FFFF), "'heads' of a pstbloom index should have numbers"),
    (gm.PstBloom(), "index0.directory", put(0, 1 << 63), "'directory' of a pstbloom index"),
    (gm.PstHash(), "index0.grid_facts", put(0, 1 << 50), "'grid_facts' of a psthash index"),
    (gm.PstHash(), "index0.pairs", put(2, 0x7FFF_FFFF), "'pairs' of a psthash index"),
    (gm.Ladder(), "index0.waiting", put(0, -1), "'waiting' of a ladder index should have numbers from 0 to"),
    (gm.Tama(), "index0.postings", put(0, 0xFFFF_FFFE), "'postings' of a tama index should have numbers from"),
    (gm.Tama(), "index0.needed", put(0, 255), "should have numbers from 0 to 127, has 255"),
    (gm.Tama(), "index0.directory", put(2, 1 << 40), "'directory' of a tama index"),
    (gm.Gem(), "index0.bits", put(-1, 1 << 63), "bits for 401 clauses"),
    (gm.Gem(), "index0.cell_table", put(0, 255), "'cell_table' of a gem index"),
    (gm.Gem(), "index0.dim_of", lambda dims: np.where(dims == 0, 1, dims), "'dim_of' of a gem index should have"),
    (
        gm.Gem(caches=0),
        "index0.triangle_ptr",
        lambda ptr: np.minimum(ptr, ptr[-1] - 1),
        "'triangle_ptr' of a gem index",
    ),
    (gm.Gem(caches=0), "index0.pass_count", put(0, 10**6), "'pass_count' of a gem index"),
    (gm.ATree(), "index0.items", put(1, 0), "should have numbers from 1 to"),  # the length of a group
    (gm.ATree(), "index0.items", put(2, 10**6), "'items' of a atree index should have numbers"),
    (gm.ATree(), "index0.items", lambda items: np.where((items < 0) & (items > -16), -9, items), "operators AND, OR"),
    (gm.ATree(), "index0.parent", lambda parent: parent[::-1] * 0, "units after those that they wait for"),
]


@pytest.mark.parametrize(("index", "name", "change", "message"), CRAFTED, ids=lambda it: it if type(it) is str else "")
def test_what_no_corruption_may_do(
    index: Any, name: str, change: Any, message: str, masters: Callable[[Any], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(masters(index), tmp_path / "copy"))
    forge(folder, 0, name, npy(change(read(folder, 0, name))))
    with pytest.raises(gm.StorageError, match=message):
        gm.load(folder, device="cpu", verify="full")


def test_a_unit_that_uses_itself(masters: Callable[[Any], Path], tmp_path: Path) -> None:
    """A-Tree's graph has no cycles: units use those of levels below."""
    folder = Path(shutil.copytree(masters(gm.ATree()), tmp_path / "copy"))
    items, leaves = read(folder, 0, "index0.items"), len(read(folder, 0, "index0.base"))
    assert read(folder, 0, "index0.level_ptr")[-1] > 0
    heads = (items < 0) & (items > -16)
    items[np.flatnonzero(~(heads | np.roll(heads, 1)))[0]] = leaves  # the first member of the first unit
    forge(folder, 0, "index0.items", npy(items))
    with pytest.raises(gm.StorageError, match=f"should have numbers from .* to {leaves - 1}, has {leaves}"):
        gm.load(folder, device="cpu", verify="full")


# Manifests


def tiny(folder: Path) -> Path:
    matcher = gm.Matcher({"i": "int64"}, index="scan", device="cpu")
    matcher.add({"a": "i = 1", "b": "i > 5"}, weight=1.5)
    matcher.save(folder)
    return folder


def changed(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the manifest: what a path leads to."""

    def change(held: dict[str, Any]) -> None:
        for step in path[:-1]:
            held = held[step]
        held[path[-1]] = to

    return change


SEGMENT = ("segments", 0)
PART = (*SEGMENT, "parts", 0)
ROWS = (*SEGMENT, "arrays", "table.clause_row")
WRONG: Any = (None, True, -1, 1e9, 1 << 70, "5", [], {}, [[]])
FILE = "s0.x-0123456789abcdef.npy"
MANIFESTS = [
    *(changed(*path, to=to) for path in (SEGMENT, PART, ROWS) for to in WRONG),
    *(changed(*SEGMENT, name, to=to) for name in ("arrays", "parts") for to in WRONG),
    *(changed(*SEGMENT, "length", to=to) for to in (*WRONG, 0, 1, 3)),
    *(changed(*PART, name, to=to) for name in ("first", "last") for to in (*WRONG, 1, 3)),
    *(changed(*PART, "meta", to=to) for to in ([1], "x", {"more": 1}, 5)),
    *(changed(*PART, "index", to=to) for to in (*WRONG, {"kind": []}, {"kind": "scan", "more": 1}, {"kind": "gem"})),
    changed(*PART, "index", to={"kind": "gem", "cells": 10**9, "caches": None}),
    *(changed(*PART, name, to=to) for name in ("estimate", "others") for to in (None, "x", [5], {"a": 1})),
    *(changed(*ROWS, "size", to=to) for to in (None, True, -1, 1e9, 1 << 70, "5", 0)),
    *(changed(*ROWS, "sha256", to=to) for to in (None, 5, [])),
    *(changed(*ROWS, "file", to=to) for to in (None, 5, "", [], FILE, f"../{FILE}", f"{FILE}/{FILE}")),
    changed(*ROWS, "file", to=f"s0.{'x' * 5000}-0123456789abcdef.npy"),
    lambda held: held["segments"][0]["arrays"].update(more=held["segments"][0]["arrays"]["weights"]),
    lambda held: held["segments"][0]["arrays"].update({"index1.more": held["segments"][0]["arrays"].pop("weights")}),
    *(changed("segments", to=to) for to in (None, True, 5, "x", {"a": 1}, [[]])),
    *(changed("schema", to=to) for to in (None, 5, "x", [], {"i": "no"}, {"": "int64"}, {"i": 5}, {"i": [1]}, {})),
    changed("schema", to={"i": "timestamp[us, tz=../../etc/passwd]"}),
    *(changed("index", to=to) for to in (None, 5, "none", [], {}, {"kind": "scan", "x": 1})),
    *(changed("memory_limit", to=to) for to in (-1, "x", 1.5, True, [])),
    *(changed("shards", to=to) for to in (5, "x", [1], [{"folder": "../x", "checksum": ""}], [{"folder": 1}])),
    changed("plan", to={"folder": "/tmp"}),
    *(changed("features", to=to) for to in (None, 5, ["more"], [[]], [{}])),
    *(changed("format", to=to) for to in (None, True, -1, 1 << 70, 5.0, "5")),
]  # fmt: skip


@pytest.mark.parametrize("verify", ["full", "size"])
def test_manifests_that_are_wrong(verify: Any, tmp_path: Path) -> None:
    right = json.dumps(manifest(tiny(tmp_path / "idx")))
    for change in MANIFESTS:
        change(held := json.loads(right))
        write_manifest(tmp_path / "idx", held)
        with pytest.raises(gm.StorageError):
            gm.load(tmp_path / "idx", device="cpu", verify=verify)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"memory_limit": null', '"memory_limit": NaN'),
        ('"memory_limit": null', '"memory_limit": 1e999'),
        ('"memory_limit": null', '"memory_limit": -Infinity'),
        ('"memory_limit": null', '"memory_limit": ' + "1" * 5000),
        ('"memory_limit": null', '"memory_limit": ' + "[" * 100_000 + "]" * 100_000),
        ('"memory_limit": null', '"memory_limit": ' + '{"a":' * 900 + "1" + "}" * 900),
        ('"memory_limit": null', '"memory_limit": null, "memory_limit": null'),
        ('"memory_limit": null', '"memory_limit": "\\ud800"'),
        ('"length": 2', '"length": 2, "length": 2'),
        ("{", "\x00{"),
        ("{", "[{"),
    ],
)
def test_manifests_that_are_hardly_json(old: str, new: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "idx") / "manifest.json"
    write_manifest(path.parent, manifest(path.parent))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(gm.StorageError):
        gm.load(path.parent, device="cpu", verify="full")


def test_numbers_beside_arrays_are_checked(masters: Callable[[Any], Path], tmp_path: Path) -> None:
    wrong = {
        "expected": ("gem", [-1.0, 1e300, "x", None, True]),
        "ascending": ("gem", [3, -1, 1.5, True]),
        "always": ("atree", [-2, 1 << 40, 0.5]),
        "observed": ("tama", [-1, 0.5]),
    }
    for name, (kind, numbers) in wrong.items():
        folder = Path(shutil.copytree(masters(KINDS[kind].params()), tmp_path / name))
        for number in numbers:
            held = manifest(folder)
            changed(*PART, "meta", name, to=number)(held)
            write_manifest(folder, held)
            with pytest.raises(gm.StorageError, match=f"{name!r}"):
                gm.load(folder, device="cpu", verify="full")


def test_ids_of_segments_are_of_one_type(masters: Callable[[Any], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(masters(gm.Scan()), tmp_path / "copy"))
    held = manifest(folder)
    arrays = held["segments"][1]["arrays"]
    del arrays["ids.data"], arrays["ids.offsets"]
    arrays["ids"] = None
    write_manifest(folder, held)
    forge(folder, 1, "ids", npy(np.arange(held["segments"][1]["length"])))
    with pytest.raises(gm.StorageError, match="a saved index has ids"):
        gm.load(folder, device="cpu")


# Files


def replaced(folder: Path, how: str, name: str) -> None:
    """Something else in the place of a file."""
    path = folder / name
    path.rename(folder.parent / name)
    if how == "link":
        path.symlink_to(folder.parent / name)
    elif how == "broken link":
        path.symlink_to(folder.parent / "nothing")
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.skipif(os.name == "nt", reason="no pipes in folders")
@pytest.mark.parametrize("verify", ["full", "once", "size"])
@pytest.mark.parametrize("how", ["link", "broken link", "pipe", "folder"])
def test_what_is_no_file(how: str, verify: Any, tmp_path: Path) -> None:
    for what in ("table.clause_row", "manifest"):
        folder = tiny(tmp_path / what / "idx")
        name = "manifest.json" if what == "manifest" else manifest(folder)["segments"][0]["arrays"][what]["file"]
        replaced(folder, how, name)
        with pytest.raises(
            gm.StorageError, match="no plain file|is missing" if how == "broken link" else "no plain file"
        ):
            gm.load(folder, device="cpu", verify=verify)


def test_a_shard_that_is_a_link_or_has_shards(tmp_path: Path) -> None:
    names = [manifests.shard_name(number, f"{number}" * 16) for number in (0, 1)]
    for name in names:
        tiny(tmp_path / "idx" / name)
    directory.write_shards(tmp_path / "idx", names)
    assert len(gm.load(tmp_path / "idx", device="cpu")) == 4
    shutil.move(tmp_path / "idx" / names[0], tmp_path / "elsewhere")
    (tmp_path / "idx" / names[0]).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(gm.StorageError, match="is no folder"):
        gm.load(tmp_path / "idx", device="cpu")
    (tmp_path / "idx" / names[0]).unlink()
    shutil.copytree(tmp_path / "idx", tmp_path / "again")
    shutil.move(tmp_path / "again", tmp_path / "idx" / names[0])
    with pytest.raises(gm.StorageError):
        gm.load(tmp_path / "idx", device="cpu")


def header(text: str, version: int = 1) -> bytes:
    """An array of two int32 after a header of any text."""
    sizes = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + sizes + text.encode() + np.arange(2, dtype=np.int32).tobytes()


PLAIN = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n"


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        header(PLAIN.replace("(2,)", "(3,)")),
        header(PLAIN.replace("(2,)", "(1,)")),
        header(PLAIN.replace("(2,)", "(-2,)")),
        header(PLAIN.replace("(2,)", f"({'9' * 5000},)")),
        header(PLAIN.replace("(2,)", "(2, 4611686018427387905)")),
        header(PLAIN.replace("(2,)", "(2,), 'more': 1")),
        header(PLAIN.replace("<i4", ">i4")),
        header(PLAIN.replace("<i4", "|O")),
        header(PLAIN.replace("<i4", "<i3")),
        header(PLAIN.replace("<i4", "<U1")),
        header(PLAIN.replace("'<i4'", "[('a', '<i4')]")),
        header(PLAIN.replace("False", "True")),
        header(PLAIN, version=2),
        header("(" * 60_000),
        header("-" * 60_000),
        npy(np.asfortranarray(np.zeros((2, 3), np.int32))),
        npy(np.zeros(2, ">i4")),
        header(PLAIN)[:9],
        b"",
    ],
    ids=range(19),
)
def test_headers_of_arrays(content: bytes, mmap: bool, tmp_path: Path) -> None:
    folder = tiny(tmp_path / "idx")
    forge(folder, 0, "table.clause_row", content)
    with pytest.raises(gm.StorageError, match="is not an array"):
        gm.load(folder, device="cpu", mmap=mmap)


def test_arrays_of_two_dimensions(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "idx")
    forge(folder, 0, "table.clause_row", npy(np.zeros((1, 2), np.int32)))
    with pytest.raises(gm.StorageError, match="should be one of int32, has 2 dimensions of int32"):
        gm.load(folder, device="cpu")
