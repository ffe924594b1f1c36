"""Folders of somebody who means harm, whose logs have right hashes; and logs, locks and versions that are no files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.store.folder import manifests
from tests.conformance.test_oracle import INDEXES
from tests.examples import rounds
from tests.store import histories
from tests.store.forging import bounded, forged, payloads, put_together, taken_apart, with_array
from tests.store.test_hostile import changed, corrupted, manifest, write_manifest

eager = histories.eager


@pytest.fixture
def folder(tmp_path: Path, eager: None) -> Path:
    """The second log has changes of all kinds, with arrays in the log and in files; a manifest before is kept."""
    return made(tmp_path / "idx", "auto")


def made(folder: Path, index: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        histories.lower(patch)
        matcher = gm.open(folder, "a", schema=histories.SCHEMA, index=index, background=False, device="cpu")
        matcher.add({at: f"x > {at}" for at in range(5)}, weight=1)
        matcher.compact()
        patch.setattr("gpumatch.store.folder.durable._ROWS", 1 << 30)
        patch.setattr("gpumatch.store.folder.durable._RECORDS", 1 << 30)
        matcher.add({9: "x = 4 AND s LIKE '%a' OR NOT (tags = 't' XOR x > 3)"}, destination="d")
        matcher.add_ranges(range(20, 50), {"x": (range(30), None)})  # in files
        matcher.upsert({9: "x IN (1, 2, 5)", 10: "s = 'b'"})
        matcher.remove([0, 21, 22])
        histories.crash(matcher)
    return folder


def last_log(folder: Path) -> Path:
    return sorted(folder.glob("changes-*.log"))[-1]


def tried(folder: Path) -> bool:
    """Whether it is refused; otherwise everything is looked at."""
    with bounded():
        try:
            for verify in ("once", "full"):
                matcher = gm.load(folder, device="cpu", verify=verify)  # type: ignore[arg-type]
            matcher = gm.open(folder, device="cpu", verify="full")
            use(matcher)
        except gm.GpumatchError:
            return True
        return False


def use(matcher: gm.Matcher) -> None:
    list(matcher.match(histories.EVENTS))
    list(matcher.top(histories.EVENTS, 2))
    matcher.any(histories.EVENTS)
    if matcher._store.routes:
        list(matcher.destinations(histories.EVENTS))
    for name in list(matcher)[:5]:
        try:
            str(matcher[name])
        except gm.ParseError:  # of a text that was altered
            continue
    matcher.compact()
    list(matcher.match(histories.EVENTS))


def test_an_untouched_folder_passes(folder: Path) -> None:
    content = last_log(folder).read_bytes()
    assert forged(content, payloads(content))[: len(content) // 2] != content[: len(content) // 2]  # what was synced
    last_log(folder).write_bytes(forged(content, payloads(content)))
    assert not tried(folder)
    assert [taken_apart(it)[0]["files"] is not None for it in payloads(content)] == [False, True, False, False]


NESTED = b'{"what": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
FACTS: dict[str, Any] = {"what": "add", "at": 1.0, "segment": None, "files": None, "arrays": {}}
WRONG: Any = (None, True, -1, 1e9, 1 << 70, "5", [], [[]], [1], {"a": 1}, {"a": {}})
FILE = {"file": "s0.ids-0123456789abcdef.npy", "size": 8, "sha256": "0" * 64}
RECORDS: list[bytes] = [
    b"", b"\0", b"\xff" * 20, (1 << 31).to_bytes(4, "little") + b"{}",
    put_together(NESTED, b""), put_together(b"{", b""),
    *(put_together(it, b"") for it in (*WRONG, {})),
    put_together(FACTS, b"more"),
    put_together(json.dumps(FACTS).replace("1.0", "1" + "0" * 400).encode(), b""),
    *(put_together({**FACTS, "arrays": it}, b"") for it in WRONG if it),
    *(put_together({**FACTS, "segment": it}, b"") for it in WRONG if it is not None),
    *(put_together({**FACTS, "files": it}, b"") for it in WRONG if it),
    *(put_together({**FACTS, "segment": {"length": 1, "ids": "int64", "parts": []}, "files": it}, b"") for it in WRONG),
    *(
        put_together({**FACTS, "segment": {"length": 1}, "files": {"ids": {**FILE, key: to}}}, b"")
        for key, values in {"file": ("../x", "/etc/passwd", "", None, "writer.lock"), "size": (-1, 1 << 70, None, "8"),
                            "sha256": (None, 5)}.items()
        for to in (*values, FILE[key])
    ),
    *(
        put_together({**FACTS, "arrays": {"removed.ids": it}}, bytes(8))
        for it in (
            ["<i8"], ["<i8", 0], ["<i8", 1 << 40], ["<i8", 1 << 62], ["<i8", 0, 1 << 70], ["<i8", -1], ["<i8", -1, -1],
            ["<i8", "1"], ["<i8", 1.0], ["<i8", True], ["<i8", *[1] * 100], ["|O", 1], ["<U2", 1], ["<m8", 1],
            ["<i9", 1], ["<f8", 1], ["<u8", 1], ["|i8", 1], [["<i8"], 1], [8, 1], [], [None], "<i8", 1, None,
        )
    ),
    put_together({**FACTS, "arrays": {"removed.ids": ["<i8", 1]}}, (77).to_bytes(8, "little")),  # not there
    put_together({**FACTS, "arrays": {"removed.more": ["<i8", 1]}}, bytes(8)),
    put_together({**FACTS, "arrays": {"removed.ids.data": ["|u1", 1], "removed.ids.offsets": ["<i8", 2]}}, bytes(17)),
    put_together({**FACTS, "arrays": {"removed.ids.data": ["|u1", 0], "removed.ids.offsets": ["<i8", 0]}}, b""),
    put_together({**FACTS, "arrays": {"removed.ids.data": ["|u1", 8], "removed.ids.offsets": ["<i8", 2]}},
                 bytes(8) + bytes(8) + (1 << 60).to_bytes(8, "little")),
]  # fmt: skip


def test_records_that_are_wrong(folder: Path) -> None:
    path = last_log(folder)
    content = path.read_bytes()
    held = payloads(content)
    harmless = put_together({**FACTS, "arrays": {"removed.ids": ["|i8", 1]}}, bytes(8))  # the order of this machine
    for number, record in enumerate(RECORDS):
        path.write_bytes(forged(content, [*held, record] if number % 2 else [record, *held]))
        assert tried(folder) or record == harmless, (number, record[:200])


def test_what_is_added_is_of_the_index(folder: Path, tmp_path: Path) -> None:
    """Changes of another index: with ids of another type, or that are there; of attributes that are not."""
    content = last_log(folder).read_bytes()
    held = payloads(content)
    others = {
        "ids": (histories.SCHEMA, {"a": "x > 1"}),
        "schema": ({"y": "int64"}, {80: "y > 1"}),
        "there": (histories.SCHEMA, {20: "x > 1"}),
    }
    for name, (schema, subscriptions) in others.items():
        matcher = gm.open(tmp_path / name, "a", schema=schema, background=False)  # type: ignore[arg-type]
        matcher.add(subscriptions)
        histories.crash(matcher)
        [other] = payloads(last_log(tmp_path / name).read_bytes())
        last_log(folder).write_bytes(forged(content, [*held, other]))
        assert tried(folder), name


def test_heads_of_records(folder: Path) -> None:
    """A head with a right check may ask for any number of bytes."""
    from gpumatch.store.folder import log

    path = last_log(folder)
    content = path.read_bytes()
    right = histories.state(gm.load(folder, device="cpu"))
    end = len(payloads(content)) + log._FILE.unpack_from(content)[1]
    for size in (0, 100, 1 << 40, (1 << 64) - 1):
        for number in (end, end + 1, (1 << 64) - 1):
            for synced in (0, (1 << 64) - 1):
                head = log._HEAD.pack(log._MAGIC, number, size, synced)
                path.write_bytes(content + head + log._check(head) + bytes(100))
                with bounded():
                    assert histories.state(gm.load(folder, device="cpu", verify="full")) == right


WRONG_NUMBERS: Any = (None, True, -1, 1.0, 1 << 62, 1 << 64, 1 << 70, "1", [], 5)
VERSIONS = [
    *(changed(*path, to=to) for path in (("log", "number"), ("version", "number")) for to in WRONG_NUMBERS),
    *(changed("log", "bytes", to=to) for to in WRONG_NUMBERS if to != 5),
    *(changed("version", "chain", to=to) for to in (None, 5, "", "zz", "00", "00" * 16, "00" * 17)),
    *(changed(name, to=to) for name in ("log", "version") for to in (None, True, 5, "x", [], {}, {"number": 1})),
]


def test_versions_that_are_wrong(folder: Path) -> None:
    right = json.dumps(manifest(folder))
    for change in VERSIONS:
        change(held := json.loads(right))
        write_manifest(folder, held)
        assert tried(folder), held
        with pytest.raises(gm.StorageError):
            gm.open(folder, "a")
    write_manifest(folder, json.loads(right))
    assert not tried(folder)


# What is no file


def put(path: Path, how: str, victim: Path) -> None:
    """Something else in the place of a file."""
    if path.exists():
        path.rename(victim)
    else:
        victim.write_text("dear")
    if how == "link":
        path.symlink_to(victim)
    elif how == "broken link":
        path.symlink_to(victim.with_name("nothing"))
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


each_way = pytest.mark.parametrize("how", ["link", "broken link", "pipe", "folder"])


@each_way
def test_a_log_that_is_no_file(how: str, folder: Path, tmp_path: Path) -> None:
    path = last_log(folder)
    put(path, how, tmp_path / "victim")
    before = (tmp_path / "victim").read_bytes()
    for mode in ("r", "a"):
        with bounded(), pytest.raises(gm.StorageError, match=r"plain file|is damaged"):
            gm.open(folder, mode, device="cpu")  # type: ignore[arg-type]
    assert (tmp_path / "victim").read_bytes() == before


@each_way
def test_a_next_log_that_is_no_file(how: str, folder: Path, tmp_path: Path) -> None:
    right = histories.state(gm.load(folder, device="cpu"))
    put(folder / f"changes-{int(last_log(folder).stem[8:]) + 1}.log", how, tmp_path / "victim")
    for mode in ("r", "a"):
        with bounded():
            try:
                assert histories.state(gm.open(folder, mode, device="cpu")) == right  # type: ignore[arg-type]
            except gm.StorageError:
                continue
    assert (tmp_path / "victim").read_text() == "dear"


@each_way
def test_a_lock_that_is_no_file(how: str, folder: Path, tmp_path: Path) -> None:
    (folder / "writer.lock").unlink()
    put(folder / "writer.lock", how, tmp_path / "victim")
    with bounded(), pytest.raises(gm.StorageError, match="no plain file"):
        gm.open(folder, "a", device="cpu")
    with bounded(), pytest.raises(gm.StorageError, match="no plain file"):
        gm.load(folder, device="cpu").save(folder)
    assert (tmp_path / "victim").read_text() == "dear"


@each_way
def test_a_pin_that_is_no_file(how: str, folder: Path, tmp_path: Path) -> None:
    """A writer looks for what streams need; what it was given is stored by then."""
    query = folder / "pins" / "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
    query.mkdir(parents=True)
    put(query / "7", how, tmp_path / "victim")
    with bounded(), gm.open(folder, "a", device="cpu", background=False) as writer:
        writer.add({1000: "x > 1"})
        with pytest.raises(gm.StorageError, match=r"cannot read .*7': it is no plain file"):
            writer.compact()
        right = histories.state(writer)
    assert histories.state(gm.load(folder, device="cpu")) == right
    assert (tmp_path / "victim").read_text() == "dear"


@each_way
def test_an_earlier_version_that_is_no_file(how: str, folder: Path, tmp_path: Path) -> None:
    """It harms nobody but who asks for it."""
    right = histories.state(gm.load(folder, device="cpu"))
    for path in manifests.kept_manifests(folder):
        put(path, how, tmp_path / path.name)
    with bounded():
        matcher = gm.open(folder, "a", device="cpu", background=False)
        assert histories.state(matcher) == right
        with pytest.raises(gm.StorageError, match="has no version"):
            gm.load(folder, version="0-00000000")
        if how != "folder":  # which is not ours to remove
            matcher.add({99: "x = 99"})
            matcher.compact()
        matcher.close()


# Values


def attack(folder: Path, count: int, rng: np.random.Generator) -> dict[str, int]:
    """Use copies of a folder with another value in an array of its log."""
    path, outcome = last_log(folder), {"refused": 0, "used": 0}
    content = path.read_bytes()
    held = payloads(content)
    places = [(at, name) for at, it in enumerate(held) for name in taken_apart(it)[0]["arrays"]]
    for _ in range(count):
        at, name = places[rng.integers(len(places))]
        facts, data = taken_apart(held[at])
        start = 0
        for key, (dtype, *shape) in facts["arrays"].items():
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            if key == name:
                array = np.frombuffer(data[start : start + size], dtype)
            start += size
        changed = with_array(held[at], name, corrupted(array, rng))
        path.write_bytes(forged(content, [*held[:at], changed, *held[at + 1 :]]))
        try:
            with bounded():
                matcher = gm.load(folder, device="cpu", verify="full")
                use(matcher)
            outcome["used"] += 1
        except gm.StorageError:
            outcome["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{name} of change {at}") from error
    path.write_bytes(content)
    return outcome


@pytest.mark.parametrize("index", [INDEXES[0], *(pytest.param(it, marks=pytest.mark.long) for it in INDEXES[1:])])
def test_corrupted_values_of_a_log(index: str, tmp_path: Path, eager: None) -> None:
    outcome = attack(made(tmp_path / "idx", index), COUNT, np.random.default_rng(INDEXES.index(index)))
    print(index, outcome)
    assert outcome["refused"] > 0


COUNT = int(os.environ.get("GPUMATCH_CORRUPTED", rounds(300)))
