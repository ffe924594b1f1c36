"""What happens around an index in a folder: the program moves, files vanish, disks are full when it is closed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.store import store
from gpumatch.store.folder import disk

SCHEMA = {"x": "int64"}
EVENT = {"x": 5}


def test_the_program_goes_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with gm.open("idx", "a", schema=SCHEMA) as made:
            made.add({name: "x > 1"})
    monkeypatch.chdir(tmp_path / "a")
    writer, reader = gm.open("idx", "a", background=False, keep=0), gm.open("idx")
    monkeypatch.chdir(tmp_path / "b")
    writer.add({"new": "x > 1"})
    writer.compact()
    assert reader.refresh()
    assert list(reader) == ["a", "new"]
    writer.close()
    assert list(gm.load(tmp_path / "a" / "idx")) == ["a", "new"]
    assert list(gm.load("idx")) == ["b"]


@pytest.mark.parametrize("closed", [False, True])
def test_a_folder_with_a_log_is_no_store(tmp_path: Path, closed: bool) -> None:
    """What is saved or read there as in a store knows nothing of locks and logs."""
    writer = gm.open(tmp_path / "idx", "a", schema=SCHEMA, background=False)
    writer.add({"a": "x > 1"})
    if closed:
        writer.close()
    other = gm.Matcher(SCHEMA)
    other.add({"b": "x > 1"})
    with pytest.raises(gm.StorageError, match=r"it has 'changes-1\.log', so it is a folder .*: give its path instead"):
        other.save((tmp_path / "idx").as_uri())
    with pytest.raises(gm.StorageError, match=r"opened for writing, or a copy of one.*: give its path instead"):
        gm.load((tmp_path / "idx").as_uri())
    if not closed:
        writer.add({"c": "x > 1"})
    assert list(gm.load(tmp_path / "idx")) == list(writer)


@pytest.mark.parametrize("folds", [0, 2])
def test_a_lost_manifest_is_no_new_index(tmp_path: Path, folds: int) -> None:
    with gm.open(tmp_path, "a", schema=SCHEMA, background=False, keep=0) as made:
        made.add({"a": "x > 1"})
        for _ in range(folds):
            made.compact()
    (tmp_path / "manifest.json").unlink()
    names = sorted(os.listdir(tmp_path))
    for schema in (SCHEMA, None):
        with pytest.raises(gm.StorageError, match=r"has files of an index, such as .* but no manifest\.json: restore"):
            gm.open(tmp_path, "a", schema=schema)
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.parametrize("name", [f"changes-{10**18}.log", "changes-01.log", "changes-\u0663.log"])
def test_a_file_that_is_named_nearly_like_a_log(tmp_path: Path, name: str) -> None:
    with gm.open(tmp_path, "a", schema=SCHEMA) as made:
        made.add({"a": "x > 1"})
    (tmp_path / name).write_text("dear")
    gm.load(tmp_path).save(tmp_path)
    with gm.open(tmp_path, "a", background=False, keep=0) as again:
        again.add({"b": "x > 1"})
        again.compact()
    assert list(gm.load(tmp_path)) == ["a", "b"]
    assert (tmp_path / name).read_text() == "dear"


def test_what_a_crash_leaves_before_the_first_manifest_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "writer.lock").write_text("process 1 on x")
    (tmp_path / ".manifest.json.1.tmp").write_text("{")
    with gm.open(tmp_path, "a", schema=SCHEMA) as made:
        made.add({"a": "x > 1"})
    assert list(gm.load(tmp_path)) == ["a"]


def test_wrong_arguments_leave_no_folder(tmp_path: Path) -> None:
    for wrong in ({"schema": {"x": "int65"}}, {"schema": SCHEMA, "index": "nope"}):
        with pytest.raises(gm.SchemaError):
            gm.open(tmp_path / "idx", "a", **wrong)  # type: ignore[arg-type]
    for keep in ("1h", None, float("nan"), -1, True):
        with pytest.raises(ValueError, match="keep is a number of seconds"):
            gm.open(tmp_path / "idx", "a", schema=SCHEMA, keep=keep)  # type: ignore[arg-type]
    for ignored in ({"fsync": "never"}, {"keep": 5}):
        with pytest.raises(ValueError, match="are for mode 'a'"):
            gm.open(tmp_path / "idx", "r", **ignored)  # type: ignore[arg-type]
    assert not (tmp_path / "idx").exists()
    gm.Matcher(SCHEMA).save(tmp_path / "idx")
    with pytest.raises(ValueError, match="version is the name of one, such as '12-9f86d081', found 1"):
        gm.load(tmp_path / "idx", version=1)  # type: ignore[arg-type]


def test_destinations_that_are_gone(tmp_path: Path) -> None:
    writer = gm.open(tmp_path / "idx", "a", schema=SCHEMA, background=False)
    writer.add({"a": "x > 1"}, destination="d")
    writer.add({"plain": "x > 1"})
    writer.remove(["a"])
    for _ in range(2):
        for matcher in (writer, gm.load(tmp_path / "idx"), gm.open(tmp_path / "idx")):
            assert list(matcher.destinations([EVENT])) == [[]]
        writer.compact()  # now it is the manifest that knows
    gm.load(tmp_path / "idx").save(tmp_path / "saved")
    assert list(gm.load(tmp_path / "saved").destinations([EVENT])) == [[]]


@pytest.mark.parametrize("whole", [True, False])
def test_a_log_that_was_removed(tmp_path: Path, whole: bool) -> None:
    writer = gm.open(tmp_path / "idx", "a", schema=SCHEMA, background=False)
    writer.add({"a": "x > 1"})
    if whole:
        shutil.rmtree(tmp_path / "idx")
    else:
        (tmp_path / "idx" / "changes-1.log").unlink()
    with pytest.raises(gm.StorageError, match=r"its (log|writer\.lock) was removed, or the folder; open it again"):
        writer.add({"b": "x > 1"})
    assert list(writer) == ["a"]


def test_closing_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    writer = gm.open(tmp_path, "a", schema=SCHEMA, background=False)
    writer.add({"a": "x > 1"})

    def fail(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", fail)
        writer.close()
    assert "is closed, but its manifest could not be written" in caplog.text
    with gm.open(tmp_path, "a") as again:
        assert list(again) == ["a"]


def test_a_disk_that_is_full_after_some_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be in the way of what makes room."""
    monkeypatch.setattr(store, "SCANNED", 10)  # what is larger lies in files
    writer = gm.open(tmp_path, "a", schema=SCHEMA, background=False)
    writer.add_ranges(range(20), {"x": (range(20), None)})
    names, original, room = sorted(os.listdir(tmp_path)), disk.write, [10]

    def write(descriptor: int, content: Any) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", write)
        with pytest.raises(gm.StorageError, match="No space left on device; nothing of it was made"):
            writer.add_ranges(range(20, 50), {"x": (range(30), None)})
    assert sorted(os.listdir(tmp_path)) == names
    writer.add_ranges(range(20, 50), {"x": (range(30), None)})
    assert list(gm.load(tmp_path, verify="full")) == list(range(50))


def test_no_thread_to_sync_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = gm.open(tmp_path, "a", schema=SCHEMA, background=False, fsync="batch")
    synced = []
    original = disk.sync
    monkeypatch.setattr(disk, "sync", lambda descriptor: (synced.append(len(writer)), original(descriptor)))

    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", fail)
    for number in range(3):
        writer.add({number: "x > 1"})
    assert synced == [1, 2, 3]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", fail)
    with gm.open(tmp_path, "a", schema=SCHEMA, background=False) as writer:
        writer.add({"a": "x > 1"})
        first = writer.version
        writer.compact()
        writer.add({"b": "x > 1"})
        writer.compact()
    assert list(gm.load(tmp_path)) == ["a", "b"]
    assert list(gm.load(tmp_path, version=first)) == ["a"]


def test_attributes_in_another_order(tmp_path: Path) -> None:
    """Equal arrays mean another attribute then."""

    def save(*names: str) -> None:
        saved = gm.Matcher(dict.fromkeys(names, "int64"))
        saved.add_ranges([1], {names[0]: ([5], [9])})
        saved.save(tmp_path)

    save("x", "y")
    reader = gm.open(tmp_path)
    save("y", "x")
    assert gm.load(tmp_path).match_one({"x": 0, "y": 6}) == [1]
    with pytest.raises(gm.StorageError, match="has another schema now; open it again"):
        reader.refresh()
    manifest = tmp_path / "manifest.json"
    held = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**held, "schema": dict(reversed(held["schema"].items()))}))
    with pytest.raises(gm.StorageError, match="attributes are in another order"):
        gm.load(tmp_path)
