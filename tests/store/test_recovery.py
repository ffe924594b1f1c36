"""Moments at which a process ends, fails or is overtaken, one by one."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import opening
from gpumatch.store import merging, store
from gpumatch.store.folder import directory, disk, durable, log
from tests.store import histories

FEW = {1: "x > 1", 2: "x > 2"}


def made(folder: Path, **options: Any) -> gm.Matcher:
    return gm.open(folder, "a", schema=histories.SCHEMA, background=False, **options)


def folder_of(matcher: gm.Matcher) -> durable.Durable:
    assert isinstance(matcher._folder, durable.Durable)
    return matcher._folder


def test_the_end_between_a_new_log_and_its_manifest(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    reader = gm.open(tmp_path)
    matcher.add(FEW)
    folder_of(matcher)._rotate()
    histories.crash(matcher)
    assert reader.refresh()
    for number in range(3, 6):
        matcher = made(tmp_path)
        matcher.add({number: "x > 3"})
        histories.crash(matcher)
        assert list(gm.load(tmp_path)) == list(range(1, number + 1))
        assert reader.refresh()
        assert list(reader) == list(range(1, number + 1))
    made(tmp_path).close()
    assert list(gm.load(tmp_path, verify="full")) == [1, 2, 3, 4, 5]


def test_the_end_of_a_save_over_an_index_with_logs(tmp_path: Path) -> None:
    """Logs that no longer belong to the index stay behind; they may have the numbers of its own."""
    matcher = made(tmp_path / "idx")
    for number in (1, 2, 3):
        matcher.add({number: "x > 1"})
        matcher.compact()
    matcher.add({4: "x > 4"})
    matcher.close()
    shutil.copytree(tmp_path / "idx", tmp_path / "before")
    other = gm.Matcher(histories.SCHEMA)
    other.add({9: "x > 9"})
    other.save(tmp_path / "idx")
    for path in (tmp_path / "before").glob("changes-*.log"):
        shutil.copy(path, tmp_path / "idx")
    assert list(gm.load(tmp_path / "idx")) == [9]
    with made(tmp_path / "idx") as again:
        again.add({10: "x > 10"})
        again.compact()
        assert {path.name for path in (tmp_path / "idx").glob("changes-*.log")} == {"changes-5.log", "changes-6.log"}
        again.add({11: "x > 11"})
    assert list(gm.load(tmp_path / "idx")) == [9, 10, 11]


def test_logs_that_are_back_after_the_same_index_was_saved_again(tmp_path: Path) -> None:
    """That they were removed may not have been on disk when the power failed."""
    saved = gm.Matcher(histories.SCHEMA)
    saved.add(FEW)
    saved.save(tmp_path / "idx")
    with made(tmp_path / "idx") as matcher:
        matcher.add({3: "x > 3"})
    shutil.copytree(tmp_path / "idx", tmp_path / "before")
    saved.save(tmp_path / "idx")
    for path in (tmp_path / "before").glob("changes-*.log"):
        shutil.copy(path, tmp_path / "idx")
    assert list(gm.load(tmp_path / "idx")) == [1, 2]
    with made(tmp_path / "idx") as matcher:
        matcher.add({4: "x > 4"})
    assert list(gm.load(tmp_path / "idx")) == [1, 2, 4]


def test_a_change_that_a_reader_saw_and_that_was_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another of the same size takes its place."""
    matcher = made(tmp_path)
    matcher.add(FEW)
    reader, original = gm.open(tmp_path), disk.sync

    def sync(descriptor: int) -> None:
        monkeypatch.setattr(disk, "sync", original)
        assert reader.refresh()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "sync", sync)
    with pytest.raises(gm.StorageError, match="nothing of it was made"):
        matcher.add({3: "x > 3"})
    assert list(reader) == [1, 2, 3]
    matcher.add({4: "x > 4"})
    assert reader.refresh()
    assert list(reader) == [1, 2, 4]
    assert reader.version == matcher.version
    assert not reader.refresh()


def test_folding_a_log_that_could_not_be_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a change that was refused: what follows it would belong to nothing."""
    matcher = made(tmp_path)
    matcher.add(FEW)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", fail)
        patch.setattr(disk, "truncate", fail)
        with pytest.raises(gm.StorageError, match="whether it was made shows when the folder is opened again"):
            matcher.add({3: "x > 3"})
    assert not folder_of(matcher).is_due()
    with pytest.raises(gm.StorageError, match="an earlier change could not be taken back; open the folder again"):
        matcher.compact()
    matcher.close()
    assert list(gm.load(tmp_path)) == [1, 2, 3]
    with made(tmp_path) as again:
        again.add({4: "x > 4"})
    assert list(gm.load(tmp_path)) == [1, 2, 3, 4]


def test_an_index_with_shards_takes_the_place_of_one_that_is_read(tmp_path: Path) -> None:
    matcher = gm.Matcher(histories.SCHEMA)
    matcher.add(FEW)
    matcher.save(tmp_path)
    reader = gm.open(tmp_path)
    matcher.add({3: "x > 3"})
    matcher.save(tmp_path / "shard-0-0123456789abcdef")
    directory.write_shards(tmp_path, ["shard-0-0123456789abcdef"])
    assert reader.refresh()
    assert list(reader) == [1, 2, 3]


def test_a_log_that_is_closed_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path)
    matcher.add(FEW)
    reader = gm.open(tmp_path)
    original, once = log._records, [True]

    def records(*given: Any) -> Any:
        yield from original(*given)
        if once:
            once.clear()
            matcher.add({3: "x > 3"})
            folder_of(matcher)._rotate()
            matcher.add({4: "x > 4"})

    monkeypatch.setattr(log, "_records", records)
    reader.refresh()  # for which there was nothing new
    assert list(reader) in ([1, 2], [1, 2, 3, 4])
    reader.refresh()
    assert list(reader) == [1, 2, 3, 4] == list(gm.load(tmp_path))


def test_a_log_that_is_folded_and_removed_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, keep=0)
    matcher.add(FEW)
    reader = gm.open(tmp_path)
    original, times = directory.read_manifest, [3, 4]

    def read_manifest(folder: Path) -> Any:
        found = original(folder)
        if times:
            matcher.add({times.pop(0): "x > 3"})
            matcher.compact()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(directory, "read_manifest", read_manifest)
        assert list(gm.load(tmp_path)) == [1, 2, 3, 4]
    assert reader.refresh()
    assert list(reader) == [1, 2, 3, 4]


def test_a_version_that_is_removed_while_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no damage, and nothing to restore from a copy."""
    matcher = made(tmp_path, keep=0)
    matcher.add(FEW)
    version, original, times = matcher.version, directory._read_changes, [3]

    def read_changes(*given: Any) -> Any:
        if times:
            matcher.add({times.pop(): "x > 3"})
            matcher.compact()
        return original(*given)

    monkeypatch.setattr(directory, "_read_changes", read_changes)
    with pytest.raises(gm.StorageError, match=f"has no version '{version}', or no longer"):
        gm.load(tmp_path, version=version)


def test_a_version_that_is_removed_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no moment is it found damaged, in whatever order the system lists the folder."""
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(listed(folder))))  # logs before manifests
    matcher = made(tmp_path, keep=0)
    matcher.add(FEW)
    version, found = matcher.version, list[Any]()
    matcher.add({3: "x > 3"})

    def remove(path: Path) -> None:
        disk.remove(path)
        try:
            found.append(list(gm.load(tmp_path, version=version)))
        except gm.StorageError as error:
            found.append(str(error))

    with monkeypatch.context() as patch:
        patch.setattr(directory, "remove", remove)
        matcher.compact()
    assert len(found) >= 2
    assert all(it == [1, 2] or f"has no version '{version}', or no longer" in it for it in found), found
    assert list(gm.load(tmp_path)) == [1, 2, 3]


def test_a_refresh_while_the_reader_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer has rebuilt the middle one of the segments that the reader makes one of."""
    for module in (merging, store):
        monkeypatch.setattr(module, "SCANNED", 6)
    matcher = made(tmp_path)
    for first in (0, 100, 200):
        matcher.add_ranges(np.arange(first, first + 20), {"x": (np.arange(20), None)})
    matcher._store.restore(matcher._store._state)
    folder_of(matcher).fold()
    reader = gm.open(tmp_path, background=False)
    assert len(reader._store._state.pieces) == 3
    build = reader._store.build

    def slow(source: Any, patient: bool) -> Any:
        matcher.remove(np.arange(100, 115))
        folder_of(matcher).fold()
        assert reader.refresh()
        return build(source, patient)

    monkeypatch.setattr(reader._store, "build", slow)
    reader.compact()
    assert histories.state(reader) == histories.state(matcher)
    assert not reader.refresh()


def test_an_earlier_version_while_the_reader_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was removed when the merge began lives in it."""
    for module in (merging, store):
        monkeypatch.setattr(module, "SCANNED", 6)
    matcher = made(tmp_path)
    for first in (0, 100):
        matcher.add_ranges(np.arange(first, first + 20), {"x": (np.arange(20), None)})
    matcher._store.restore(matcher._store._state)
    folder_of(matcher).fold()
    before = matcher.version
    assert before is not None
    right = histories.state(matcher)
    matcher.remove([3, 7, 105])
    reader, follower = opening.follow(tmp_path, "cpu")
    assert len(reader._store._state.pieces) == 2
    build = reader._store.build

    def slow(source: Any, patient: bool) -> Any:
        monkeypatch.setattr(reader._store, "build", build)
        follower.move(before)
        return build(source, patient)

    monkeypatch.setattr(reader._store, "build", slow)
    reader.compact()
    assert histories.state(reader) == right
    assert reader.refresh()
    assert histories.state(reader) == histories.state(matcher)


def test_a_matcher_that_nobody_has_keeps_no_lock(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for number in range(3):
        matcher = made(tmp_path)
        matcher.add({number: "x > 1"})
        del matcher
        gc.collect()
    assert list(made(tmp_path)) == [0, 1, 2]
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


def test_the_name_of_a_new_folder_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    original = directory.sync_folder
    monkeypatch.setattr(directory, "sync_folder", lambda folder: (synced.append(folder), original(folder)))
    made(tmp_path / "a" / "b" / "idx").add(FEW)
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write", fail)


def test_a_full_disk_at_the_beginning_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher(histories.SCHEMA)
    matcher.add(FEW)
    matcher.save(tmp_path / "saved")
    matcher.remove([1])
    writer = made(tmp_path / "idx")
    writer.add(FEW)
    with monkeypatch.context() as patch:
        full(patch)
        with pytest.raises(gm.StorageError, match=r"cannot open .*new.* to change it: No space left on device; make"):
            made(tmp_path / "new")
        with pytest.raises(gm.StorageError, match=r"cannot save in .*No space left on device; the index that was ther"):
            matcher.save(tmp_path / "saved")
        with pytest.raises(gm.StorageError, match="nothing of it was made"):
            writer.add({3: "x > 3"}, destination="d")
        with pytest.raises(gm.SchemaError, match="no subscription has a destination"):
            writer.destinations(histories.EVENTS)
    writer.add({4: "x > 4"})
    writer.close()
    assert list(gm.load(tmp_path / "idx")) == [1, 2, 4]
    assert list(gm.load(tmp_path / "saved")) == [1, 2]
    matcher.save(tmp_path / "saved")
    assert list(gm.load(tmp_path / "saved")) == [2]
    made(tmp_path / "new").close()


def test_what_may_not_be_on_disk_ends_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, fsync="never")
    matcher.add(FEW)
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(disk, "sync", fail)
        with pytest.raises(gm.StorageError, match="earlier changes could not be put on disk; open the folder again"):
            matcher.flush()
    for act in (lambda: matcher.add({3: "x > 3"}), matcher.flush):
        with pytest.raises(gm.StorageError, match="earlier changes could not be put on disk; open the folder again"):
            act()
    assert list(matcher) == [1, 2]
    matcher.close()
    with made(tmp_path) as again:
        assert list(again) == [1, 2]
        again.add({3: "x > 3"})
    assert list(gm.load(tmp_path)) == [1, 2, 3]
