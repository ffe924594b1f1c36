"""Indexes that live in a folder: writers, readers that follow, versions, and what is refused."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.store import store
from gpumatch.store.folder import directory, disk, durable, log, manifests

SCHEMA = {"x": "int64", "s": "string", "tags": "list<string>"}
EVENTS: list[dict[str, Any]] = [{"x": at, "s": "abc"[at % 3], "tags": ["t"] * (at % 2)} for at in range(12)]


def made(folder: Path, **options: Any) -> gm.Matcher:
    return gm.open(folder, "a", schema=SCHEMA, **options)


def contents(matcher: gm.Matcher) -> dict[Any, str]:
    return {name: str(matcher[name]) for name in matcher}


def answers(matcher: gm.Matcher) -> list[list[Any]]:
    return matcher.match(EVENTS).to_lists().to_pylist()


@pytest.fixture
def folded_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_ROWS", 3)
    monkeypatch.setattr(durable, "_SHARE", 1000)


def changed(matcher: gm.Matcher) -> None:
    """All kinds of changes."""
    matcher.add({"a": "x > 3", "b": "s = 'a' OR tags = 't'"}, destination="d", weight=2)
    matcher.add_ranges(["r0", "r1", "r2"], {"x": ([1, 2, 3], [4, 5, 6])})
    matcher.remove(["a", "r1"])
    matcher.upsert({"b": "x < 2", "c": "s LIKE '%b%' AND x > 0"})
    matcher.replace({"c": "s LIKE '%c'"})
    assert matcher.add({"b": "x = 1", "d": "x = 9"}, on_error="collect")[0].id == "b"
    matcher.add_predicates({"id": ["p", "p"], "attribute": ["x", "s"], "op": [">", "="], "value": ["1", "a"]})


@pytest.mark.parametrize("fsync", ["always", "batch", "never"])
@pytest.mark.parametrize("background", [True, False])
def test_a_folder_holds_what_was_acknowledged(tmp_path: Path, fsync: str, background: bool) -> None:
    matcher, plain = made(tmp_path / "idx", fsync=fsync, background=background), gm.Matcher(SCHEMA)
    changed(matcher)
    changed(plain)
    for opened in (matcher, gm.load(tmp_path / "idx"), gm.open(tmp_path / "idx")):
        assert contents(opened) == contents(plain)
        assert answers(opened) == answers(plain)
        assert list(opened.destinations(EVENTS)) == list(plain.destinations(EVENTS))
        assert list(opened.top(EVENTS, 2)) == list(plain.top(EVENTS, 2))
    matcher.close()
    again = gm.open(tmp_path / "idx", "a")
    assert (contents(again), again.version) == (contents(plain), matcher.version)
    again.add({"e": "x = 5"})
    again.close()
    assert list(gm.load(tmp_path / "idx"))[-1] == "e"


@pytest.mark.parametrize("lowered", [("_ROWS", 2), ("_RECORDS", 2), ("_BYTES", 2)])
def test_the_log_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowered: tuple[str, int]) -> None:
    monkeypatch.setattr(durable, "_SHARE", 1000)
    monkeypatch.setattr(durable, *lowered)
    matcher, plain = made(tmp_path, background=False, keep=0), gm.Matcher(SCHEMA)
    changed(matcher)
    changed(plain)
    [name] = [name for name in os.listdir(tmp_path) if name.startswith("changes-")]
    assert name != "changes-1.log"
    assert manifests.read_manifest(tmp_path)["version"]["number"] > 0
    for opened in (matcher, gm.load(tmp_path)):
        assert contents(opened) == contents(plain)
        assert answers(opened) == answers(plain)


def test_a_reader_follows(tmp_path: Path, folded_often: None) -> None:
    matcher, plain = made(tmp_path, background=False), gm.Matcher(SCHEMA)
    reader = gm.open(tmp_path)
    assert not reader.refresh()
    for step in range(20):
        for one in (matcher, plain):
            one.add({f"n{step}": f"x >= {step}", f"m{step}": f"x < {step} AND s = 'a'"})
            if step % 3 == 2:
                one.remove([f"n{step - 1}", f"m{step - 2}"])
            if step % 5 == 4:
                one.compact()
        if step % 2:
            held = reader.match(EVENTS)
            before = held.to_lists().to_pylist()
            assert reader.refresh()
            assert (contents(reader), answers(reader)) == (contents(plain), answers(plain))
            assert reader.version == matcher.version
            assert held.to_lists().to_pylist() == before
    matcher.compact()  # changes nothing but files
    assert not reader.refresh()
    assert answers(reader) == answers(plain)
    assert not matcher.refresh()


def test_a_reader_joins_what_it_takes_up(tmp_path: Path) -> None:
    matcher = made(tmp_path, background=False)
    matcher.add_ranges(np.arange(100), {"x": (np.arange(100), None)})
    matcher.compact()
    reader = gm.open(tmp_path, background=False)
    for step in range(40):
        matcher.add({1000 + step: "x > 3"})
        assert reader.refresh()
        assert answers(reader) == answers(matcher)
    assert len(reader._seal().segments) < 8


def test_a_reader_keeps_the_segments_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, background=False)
    matcher.add_ranges(np.arange(500), {"x": (np.arange(500), None)})
    matcher.compact()
    reader = gm.open(tmp_path)
    [segment] = reader._seal().segments
    read: list[str] = []
    original = directory._read_array
    monkeypatch.setattr(directory, "_read_array", lambda *given: (read.append(given[1]["file"]), original(*given))[1])
    monkeypatch.setattr(durable, "_RECORDS", 1)
    matcher.remove([3])
    assert reader.refresh()
    assert reader._seal().segments == (segment,)
    assert [name.partition("-")[0] for name in read] == ["s0.dead"]
    assert reader.match_one({"x": 4}) == [0, 1, 2, 4]


def test_large_calls_lie_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SCANNED", 10)
    monkeypatch.setattr(durable, "_ROWS", 10**9)
    monkeypatch.setattr(durable, "_SHARE", 1)
    matcher = made(tmp_path, background=False)
    reader = gm.open(tmp_path)
    matcher.add_ranges(np.arange(50), {"x": (np.arange(50), None)})
    assert manifests.read_manifest(tmp_path)["segments"] == []
    assert list(tmp_path.glob("s0.table.*.npy"))
    matcher.upsert({at: f"x = {at}" for at in range(40, 60)})
    matcher.remove([0])
    assert reader.refresh()
    for opened in (matcher, reader, gm.load(tmp_path, verify="full")):
        assert opened.match_one({"x": 45}) == [*range(1, 40), 45]
        assert len(opened) == 59
    with pytest.raises(gm.IdError):
        matcher.add_ranges(np.arange(100, 0, -1), {"x": (np.arange(100), None)})
    matcher.compact()
    assert gm.load(tmp_path).match_one({"x": 45}) == [*range(1, 40), 45]


def test_versions(tmp_path: Path) -> None:
    matcher = made(tmp_path, background=False)
    versions: dict[str | None, dict[Any, str]] = {}
    for step in range(8):
        matcher.add({f"n{step}": f"x >= {step}"})
        if step % 3 == 2:
            matcher.compact()
        versions[matcher.version] = contents(matcher)
    assert len(versions) == 8
    for version, held in versions.items():
        assert contents(gm.load(tmp_path, version=version)) == held
    for unknown in ("9-00000000", "x", "", "8-00000000"):
        with pytest.raises(gm.StorageError, match="has no version"):
            gm.load(tmp_path, version=unknown)


def test_earlier_versions_go_after_a_while(tmp_path: Path) -> None:
    matcher = made(tmp_path, background=False, keep=100)
    matcher.add({"a": "x > 1"})
    first = matcher.version
    matcher.compact()
    matcher.add({"b": "x > 2"})
    matcher.compact()
    second = matcher.version
    [empty, older] = sorted(manifests.kept_manifests(tmp_path), key=lambda path: path.stat().st_mtime)
    assert contents(gm.load(tmp_path, version=first)) == {"a": "x > 1"}
    for path in (empty, older):
        os.utime(path, (time.time() - 101, time.time() - 101))
    matcher.add({"c": "x > 3"})
    matcher.compact()
    assert contents(gm.load(tmp_path, version=second)) == {"a": "x > 1", "b": "x > 2"}
    with pytest.raises(gm.StorageError, match="has no version"):
        gm.load(tmp_path, version=first)
    named = {
        file for it in manifests.written(tmp_path) for file in (entry["file"] for entry in manifests.files_of(it, ""))
    }
    assert {path.name for path in tmp_path.glob("*.npy")} == named
    assert len(list(tmp_path.glob("changes-*.log"))) == 2


def test_a_saved_index_goes_on(tmp_path: Path) -> None:
    matcher = gm.Matcher(SCHEMA, index="gem")
    matcher.add({"a": "x > 1", "b": "x < 1"})
    matcher.save(tmp_path)
    with gm.open(tmp_path, "a") as opened:
        assert opened.version is not None
        opened.remove(["a"])
        opened.add({"c": "x = 7"})
    assert list(gm.load(tmp_path)) == ["b", "c"]
    matcher.save(tmp_path)  # nobody has it open
    assert list(gm.load(tmp_path)) == ["a", "b"]
    assert not list(tmp_path.glob("changes-*"))


def test_the_format_before_is_read(tmp_path: Path) -> None:
    """The archive was saved by the release with format 5."""
    zipfile.ZipFile(Path(__file__).with_name("format-5.zip")).extractall(tmp_path)
    right = [["s1", "s7"], ["or", "é", "new"], ["tag"]]
    events = [{"px": 9.0, "sym": "A1"}, {"qty": 1}, {"tags": ["x"], "sym": "a"}]
    assert gm.load(tmp_path, verify="full").match(events).to_lists().to_pylist() == right
    for wrong in ({"schema": {"x": "int64"}}, {"index": "gem"}, {"memory_limit": 1 << 40}):
        with pytest.raises(gm.GpumatchError, match=r"leave it out|leave schema= out"):
            gm.open(tmp_path, "a", **wrong)  # type: ignore[arg-type]
    assert manifests.read_manifest(tmp_path)["format"] == 5
    with gm.open(tmp_path, "a") as opened:
        opened.add({"last": "px = 9"})
    right[0].append("last")
    loaded = gm.load(tmp_path, verify="full")
    assert loaded.match(events).to_lists().to_pylist() == right
    assert loaded.destinations(events).ids(0) == ["d"]


def test_a_change_of_several_kinds_is_one_version(tmp_path: Path) -> None:
    matcher, reader = made(tmp_path), gm.open(tmp_path)
    matcher.add({"a": "x > 1", "b": "x > 2", "c": "x > 3"})
    before = matcher.version
    change = {"b": "x < 5", "d": "x = 7"}, ["a", "none"]
    matcher.change(*change)
    assert (before, matcher.version) != (None, before)
    assert str(matcher.version).startswith("2-")
    assert reader.refresh()
    for opened in (matcher, reader, gm.load(tmp_path)):
        assert contents(opened) == {"c": "x > 3", "b": "x < 5", "d": "x = 7"}
    version = matcher.version
    matcher.change(*change)
    with pytest.raises(gm.ParseError):
        matcher.change({"c": "x >"}, ["d"])
    assert matcher.version == version
    assert not reader.refresh()
    matcher.close()
    with gm.open(tmp_path, "a") as again:
        again.change(*change)
        assert again.version == version
        assert contents(gm.load(tmp_path, version=before)) == {"a": "x > 1", "b": "x > 2", "c": "x > 3"}


# Refused


def test_one_writer(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    for act in (
        lambda: gm.open(tmp_path, "a"),
        lambda: matcher.save(tmp_path),
        lambda: gm.Matcher(SCHEMA).save(tmp_path),
    ):
        with pytest.raises(gm.StorageError, match=f"is open for writing in process {os.getpid()} on .*; close it"):
            act()
    matcher.close()
    matcher.close()
    assert matcher.match_one({"x": 2}) == ["a"]
    with pytest.raises(gm.StorageError, match="is closed; open it again to change it"):
        matcher.add({"b": "x > 1"})
    assert list(matcher) == ["a"]
    made(tmp_path).close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    opened = f"m = gm.open({str(tmp_path)!r}, 'a', schema={SCHEMA})"
    code = f"import gpumatch as gm, os; {opened}; m.add({{'a': 'x > 1'}}); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert list(gm.open(tmp_path, "a")) == ["a"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            matcher.add({"b": "x > 1"})
        except gm.StorageError as error:
            status = (
                0 if "close it there and open it here" in str(error) and matcher.match_one({"x": 2}) == ["a"] else 2
            )
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    matcher.add({"c": "x > 1"})  # the lock and the log are still the parent's
    with pytest.raises(gm.StorageError, match="is open for writing"):
        gm.open(tmp_path, "a")
    matcher.close()
    assert list(gm.load(tmp_path)) == ["a", "c"]


def test_readers_change_nothing(tmp_path: Path) -> None:
    made(tmp_path).add({"a": "x > 1"})
    reader = gm.open(tmp_path)
    for act in (
        lambda: reader.add({"b": "x > 1"}),
        lambda: reader.remove(["a"]),
        lambda: reader.replace({"a": "x > 2"}),
    ):
        with pytest.raises(gm.StorageError, match="is open for reading: to change it, open it with mode='a'"):
            act()
    assert contents(reader) == {"a": "x > 1"}


def test_what_open_refuses(tmp_path: Path) -> None:
    with pytest.raises(gm.StorageError, match="give a schema= to make one"):
        gm.open(tmp_path / "none", "a")
    assert not (tmp_path / "none").exists()
    with pytest.raises(gm.StorageError, match="does not exist"):
        gm.open(tmp_path / "none")
    made(tmp_path / "idx").close()
    with pytest.raises(gm.SchemaError, match=r"has the schema .*, expected {'y': 'int64'}"):
        gm.open(tmp_path / "idx", "a", schema={"y": "int64"})
    with pytest.raises(gm.SchemaError, match=r"expected {'y': 'int64'}"):
        gm.open(tmp_path / "idx", "r", schema={"y": "int64"})
    with pytest.raises(gm.StorageError, match="was made with index=auto, expected 'gem'"):
        gm.open(tmp_path / "idx", "a", index="gem")
    with pytest.raises(gm.StorageError, match="was made with memory_limit=None, expected 5"):
        gm.open(tmp_path / "idx", "a", memory_limit=5)
    with pytest.raises(gm.StorageError, match="mode 'a' needs a folder"):
        gm.open("s3://bucket/idx", "a")
    with pytest.raises(ValueError, match="mode is 'a'"):
        gm.open(tmp_path / "idx", "w")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fsync is"):
        gm.open(tmp_path / "idx", "a", fsync="now")  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(gm.StorageError, match="holds other files"):
        made(tmp_path / "other")
    with pytest.raises(gm.StorageError, match="follows no folder"):
        gm.Matcher(SCHEMA).refresh()
    made(tmp_path / "idx").close()  # none of them has kept the lock


def test_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST", 3)
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1", "b": "x > 2"})
    with pytest.raises(gm.LimitError, match="has room for 3 subscriptions, found 4"):
        matcher.add({"c": "x > 1", "d": "x > 2"})
    matcher.upsert({"a": "x > 3", "c": "x > 4"})
    assert list(gm.load(tmp_path)) == ["b", "a", "c"]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    def fail(*given: Any) -> None:
        if name == "write":
            os.write(given[0], given[1][: len(given[1]) // 2])  # torn
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, name, fail)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, background=False)
    matcher.add({"a": "x > 1"})
    with monkeypatch.context() as patch:
        failing(patch, "write", errno.ENOSPC)
        for act in (
            lambda: matcher.add({"b": "x > 1"}),
            lambda: matcher.remove(["a"]),
            lambda: matcher.upsert({"a": "x = 1"}),
        ):
            with pytest.raises(gm.StorageError, match="No space left on device; nothing of it was made: make room"):
                act()
        assert contents(matcher) == {"a": "x > 1"} == contents(gm.load(tmp_path))
        with pytest.raises(gm.StorageError, match=r"cannot write a version .* nothing is lost"):
            matcher.compact()
    matcher.add({"c": "x > 1"})
    assert list(gm.load(tmp_path)) == ["a", "c"] == list(matcher)
    matcher.compact()
    matcher.close()
    assert list(gm.open(tmp_path, "a")) == ["a", "c"]


def test_what_cannot_be_taken_back_ends_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, background=False)
    matcher.add({"a": "x > 1"})
    with monkeypatch.context() as patch:
        failing(patch, "write", errno.EIO)
        failing(patch, "truncate", errno.EIO)
        with pytest.raises(gm.StorageError, match="Input/output error"):
            matcher.add({"b": "x > 1"})
    with pytest.raises(gm.StorageError, match="could not be taken back; open the folder again"):
        matcher.add({"b": "x > 1"})
    matcher.close()
    with gm.open(tmp_path, "a") as again:
        assert list(again) == ["a"]
        again.add({"c": "x > 1"})
    assert list(gm.load(tmp_path)) == ["a", "c"]


# Damage


def closed(folder: Path) -> Path:
    matcher = made(folder, background=False)
    changed(matcher)
    matcher.close()
    return folder / "changes-1.log"


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    matcher = made(tmp_path, background=False)
    for at in range(5):
        matcher.add({at: f"x > {at}"})
    path = tmp_path / "changes-1.log"
    whole = path.read_bytes()
    for size in range(log.START, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        found = list(gm.load(tmp_path))
        assert found == list(range(len(found)))
    path.write_bytes(whole)
    assert list(gm.load(tmp_path)) == list(range(5))


def test_damage_to_what_was_stored_is_an_error(tmp_path: Path) -> None:
    path = closed(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for at in [*range(log.START), *rng.integers(log.START, len(whole), 200).tolist()]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(gm.StorageError, match=r"changes-1\.log' is damaged"):
            gm.load(tmp_path)
        path.write_bytes(whole[:at])
        with pytest.raises(gm.StorageError, match=r"changes-1\.log' is damaged"):
            gm.open(tmp_path, "a")
    path.unlink()
    with pytest.raises(gm.StorageError, match=r"changes-1\.log' is damaged"):
        gm.load(tmp_path)


def test_damage_before_the_end_of_an_open_log_is_an_error(tmp_path: Path) -> None:
    matcher = made(tmp_path, background=False)
    ends = []
    for at in range(5):
        matcher.add({at: f"x > {at}"})
        ends.append((tmp_path / "changes-1.log").stat().st_size)
    whole = (tmp_path / "changes-1.log").read_bytes()
    for at in range(log.START, ends[-2], 11):
        (tmp_path / "changes-1.log").write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(gm.StorageError, match="is damaged after change") as caught:
            gm.load(tmp_path)
        [version] = re.findall(r"version='(.*?)'", str(caught.value))  # what was there before is not lost
        assert list(gm.load(tmp_path, version=version)) == list(range(int(version.partition("-")[0])))


def test_wrong_arguments_leave_no_folder(tmp_path: Path) -> None:
    for wrong in ({"verify": "maybe"}, {"index": "maybe"}, {"device": "maybe"}, {"memory_limit": -1}):
        with pytest.raises((ValueError, gm.GpumatchError)):
            gm.open(tmp_path / "new", "a", schema=SCHEMA, **wrong)  # type: ignore[arg-type]
        assert not (tmp_path / "new").exists()


def test_attributes_in_another_order_are_named_so(tmp_path: Path) -> None:
    made(tmp_path, background=False).close()
    turned = dict(reversed(SCHEMA.items()))
    with pytest.raises(gm.SchemaError, match="with its attributes in that order, expected"):
        gm.open(tmp_path, "a", schema=turned)
