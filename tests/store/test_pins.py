"""Versions that streaming queries have pinned: who is first decides, and they stay."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.opening import follow
from gpumatch.store import store
from gpumatch.store.folder import directory, disk, durable, manifests, pins
from gpumatch.store.folder.history import history
from gpumatch.store.folder.pins import Pin

SCHEMA = {"x": "int64"}
QUERY, OTHER = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "00000000-0000-4000-8000-000000000000"
AGES = 365 * 86400


def made(folder: Path, keep: float = 0) -> gm.Matcher:
    return gm.open(folder, "a", schema=SCHEMA, background=False, keep=keep)


def newest(folder: Path) -> Pin:
    _, follower = follow(folder, "cpu")
    return Pin(follower.version, follower.checksum, follower.position.log)


def pin(folder: Path, batch: int, query: str = QUERY) -> Pin:
    """Pins the newest version."""
    found = pins.make(folder, query, batch, newest(folder))
    assert found is not None
    return found[0]


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def texts(folder: Path, version: str) -> dict[Any, str]:
    matcher = gm.load(folder, version=version)
    return {name: str(matcher[name]) for name in matcher}


def test_the_first_one_decides(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    first = newest(tmp_path)
    assert pins.read(tmp_path, QUERY, 7) is None
    assert pins.make(tmp_path, QUERY, 7, first) == (first, True)
    matcher.add({"b": "x > 2"})
    second = newest(tmp_path)
    assert second != first
    assert pins.make(tmp_path, QUERY, 7, second) == (first, False)
    assert pins.read(tmp_path, QUERY, 7) == first
    assert pins.make(tmp_path, OTHER, 7, second) == (second, True)
    assert pins.make(tmp_path, QUERY, 8, second) == (second, True)
    assert pins.batches(tmp_path, QUERY) == [7, 8]
    assert pins.last_before(tmp_path, QUERY, 8) == first
    assert pins.last_before(tmp_path, QUERY, 7) is None
    assert not [name for name in os.listdir(tmp_path / "pins" / QUERY) if name.endswith(".tmp")]


def test_a_log_that_has_gone_before_its_version_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is there, for an earlier pin, but not all that has changed since."""
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    first = pin(tmp_path, 0)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(durable.Durable, "_write_version", fail)
        with pytest.raises(gm.StorageError, match="cannot write a version"):
            matcher._folder.fold()  # type: ignore[union-attr]
    matcher.add({"b": "x > 2"})
    late = newest(tmp_path)
    assert (late.manifest, late.log) == (first.manifest, first.log + 1)
    matcher._folder.fold()  # type: ignore[union-attr]
    assert pins.make(tmp_path, QUERY, 1, late) is None
    assert pins.batches(tmp_path, QUERY) == [0]
    assert texts(tmp_path, pin(tmp_path, 1).version) == {"a": "x > 1", "b": "x > 2"}


def test_of_many_at_once_one_decides(tmp_path: Path) -> None:
    matcher, versions = made(tmp_path), []
    for at in range(8):
        matcher.add({f"n{at}": "x > 1"})
        versions.append(newest(tmp_path))
    found: list[Any] = []
    start = threading.Barrier(8)

    def run(mine: Pin) -> None:
        start.wait()
        found.append(pins.make(tmp_path, QUERY, 0, mine))

    threads = [threading.Thread(target=run, args=(mine,)) for mine in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pin for pin, _ in found}) == 1
    assert sum(is_new for _, is_new in found) == 1


def test_the_history_is_that_of_the_newest_version(tmp_path: Path) -> None:
    """What streams have pinned may be of an index that was saved over, and has another one."""
    for number in range(3):
        saved = gm.Matcher(SCHEMA)
        saved.add({f"saved{number}": "x > 1"})
        saved.save(tmp_path)
        assert [entry.version for entry in history(tmp_path)] == [pin(tmp_path, number).version]
    for again in range(2):
        matcher = made(tmp_path, keep=3600 * again)
        versions = [matcher.version]
        for number in range(4):
            matcher.add({f"a{number}": "x > 1"})
            versions.append(matcher.version)
            pin(tmp_path, 10 * (again + 1) + number)
            if number < 3:
                matcher.compact()
        found = [entry.version for entry in history(tmp_path)]
        assert found == versions
        matcher.close()
        saved.save(tmp_path)
    assert len(pins.batches(tmp_path, QUERY)) > 8


@pytest.mark.long
def test_pinned_versions_stay_when_the_log_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SCANNED", 10)  # large calls lie in files of their own
    monkeypatch.setattr(durable, "_ROWS", 10**9)
    matcher, held = made(tmp_path), {}
    for step in range(12):
        matcher.add_ranges(np.arange(step * 100, step * 100 + 30), {"x": (np.arange(30) + step, None)})
        matcher.add({step * 100 + 90: f"x = {step}"})
        if step % 4 == 1:
            held[pin(tmp_path, step).version] = sorted(matcher)
        matcher.remove([step * 100])
        if step % 3 == 2:
            matcher.compact()
    assert len(held) == 3
    for opened in (matcher, None):  # also after the folder was opened again, which has to find out what is needed
        for version, ids in held.items():
            assert sorted(gm.load(tmp_path, version=version, verify="full")) == ids
        if opened is not None:
            opened.close()
            with made(tmp_path) as again:
                again.add({5000: "x > 7"})
                again.compact()
                again.add({5001: "x > 7"})
                again.compact()
    assert 5001 in gm.load(tmp_path)
    for name in os.listdir(tmp_path / "pins" / QUERY):
        aged(tmp_path / "pins" / QUERY / name, AGES)
    with made(tmp_path) as again:
        again.add({6000: "x > 7"})
        again.compact()
        for version in held:
            with pytest.raises(gm.StorageError, match=f"has no version '{version}'"):
                gm.load(tmp_path, version=version)
    manifest = manifests.read_manifest(tmp_path)
    named = {entry["file"] for entry in manifests.files_of(manifest, "")} | {f"changes-{manifest['log']['number']}.log"}
    assert set(os.listdir(tmp_path)) == named | {"manifest.json", "pins", "writer.lock"}


def test_what_was_not_pinned_goes(tmp_path: Path) -> None:
    matcher, versions = made(tmp_path), []
    for step in range(6):
        matcher.add({step: "x > 1"})
        versions.append(pin(tmp_path, step).version if step == 2 else matcher.version)
        matcher.compact()
    assert list(gm.load(tmp_path, version=versions[2])) == [0, 1, 2]
    for step in (0, 3, 4):  # the manifest that leads to 2 is that of 1
        with pytest.raises(gm.StorageError, match="has no version"):
            gm.load(tmp_path, version=versions[step])


def test_pinned_versions_stay_when_another_index_is_saved(tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        first = pin(tmp_path, 0).version
        matcher.compact()
        matcher.add({"b": "x > 2"})
        second = pin(tmp_path, 1).version
    other = gm.Matcher({"y": "string"})
    other.add({1: "y = 'q'"})
    other.save(tmp_path)
    with gm.open(tmp_path, "a", background=False, keep=0) as matcher:  # whose log must not take the place of an older
        matcher.add({2: "y = 'r'"})
        assert list(gm.load(tmp_path)) == [1, 2]
        matcher.compact()
        matcher.add({3: "y = 'r'"})
    assert list(gm.load(tmp_path)) == [1, 2, 3]
    assert texts(tmp_path, first) == {"a": "x > 1"}
    assert texts(tmp_path, second) == {"a": "x > 1", "b": "x > 2"}
    other.save(tmp_path)
    assert texts(tmp_path, second) == {"a": "x > 1", "b": "x > 2"}
    assert list(gm.load(tmp_path)) == [1]


def test_a_lost_log_is_damage_after_a_save_too(tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        pin(tmp_path, 0)
    gm.load(tmp_path).save(tmp_path)
    with gm.open(tmp_path, "a") as matcher:
        matcher.add({"b": "x > 1"})
        [newer] = [name for name in os.listdir(tmp_path) if name.startswith("changes-") and name != "changes-1.log"]
    (tmp_path / newer).unlink()
    with pytest.raises(gm.StorageError, match=r"changes-\d+\.log' is damaged"):
        gm.load(tmp_path)


def test_a_pinned_version_is_read_whatever_the_newest_is(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    version = pin(tmp_path, 0).version
    (tmp_path / "manifest.json").write_text("{}")
    assert texts(tmp_path, version) == {"a": "x > 1"}
    with pytest.raises(gm.StorageError, match="is not one of gpumatch"):
        gm.load(tmp_path)
    with pytest.raises(gm.StorageError, match="does not exist"):
        gm.load(tmp_path / "none", version=version)
    (tmp_path / "empty").mkdir()
    with pytest.raises(gm.StorageError, match="is not a saved index"):
        gm.load(tmp_path / "empty", version=version)


def test_a_version_that_goes_meanwhile_is_not_pinned(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    old = newest(tmp_path)
    matcher.compact()
    matcher.add({"b": "x > 1"})
    matcher.compact()
    assert pins.make(tmp_path, QUERY, 0, old) is None
    assert pins.read(tmp_path, QUERY, 0) is None
    assert len(manifests.kept_manifests(tmp_path)) == 0
    (tmp_path / "manifest.json").unlink()
    assert pins.make(tmp_path, QUERY, 0, old) is None


def test_pins_are_released(tmp_path: Path) -> None:
    made(tmp_path).add({"a": "x > 1"})
    places = [pins.path_of(tmp_path, QUERY, batch) for batch in range(30)]
    for batch in range(pins.KEPT + 5):
        pin(tmp_path, batch)
    assert pins.batches(tmp_path, QUERY) == list(range(15))  # all are young
    for path in places[:8]:
        aged(path, pins.SECONDS + 1)
    pin(tmp_path, 15)
    assert pins.batches(tmp_path, QUERY) == list(range(6, 16))  # KEPT stay, however old
    pin(tmp_path, 3, OTHER)
    assert pins.batches(tmp_path, QUERY) == list(range(6, 16))


def test_a_query_that_does_not_come_back(tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        old, young = pin(tmp_path, 0), pin(tmp_path, 0, OTHER)
        assert old == young
        kept = manifests.kept_name({"checksum": old.manifest})
        assert pins.held(tmp_path) == {kept: old.log}
        aged(pins.path_of(tmp_path, QUERY, 0), pins.IDLE + 1)
        assert pins.held(tmp_path) == {kept: old.log}
        aged(pins.path_of(tmp_path, OTHER, 0), pins.IDLE + 1)
        assert pins.held(tmp_path) == {}
        matcher.compact()
        matcher.add({"b": "x > 1"})
        matcher.compact()
    assert pins.read(tmp_path, QUERY, 0) == old  # so that it does not take another version if it does
    with pytest.raises(gm.StorageError, match=f"has no version '{old.version}'"):
        gm.load(tmp_path, version=old.version)


def test_names_and_contents_are_checked(tmp_path: Path) -> None:
    made(tmp_path).add({"a": "x > 1"})
    for query in ("../../etc", "", "q", QUERY.upper(), QUERY + "\n", f"{QUERY}/x"):
        with pytest.raises(gm.StorageError, match="the id of a streaming query is a UUID"):
            pins.read(tmp_path, query, 0)
    wrong: Any
    for wrong in (-1, "1", "../1", 1.0, True, None):
        with pytest.raises(gm.StorageError, match="the id of a batch is a whole number"):
            pins.read(tmp_path, QUERY, wrong)
    right = pin(tmp_path, 0)
    path = pins.path_of(tmp_path, QUERY, 0)
    content = path.read_text()
    for damaged in (
        "",
        "{",
        "[]",
        "{}",
        content.replace(right.version, "../x"),
        content.replace('"log": ', '"log": -'),
    ):
        path.write_text(damaged)
        with pytest.raises(gm.StorageError, match=rf"the pin '.*{QUERY}/0' is damaged: .*; restore it"):
            pins.read(tmp_path, QUERY, 0)
    (tmp_path / "pins" / "letter.txt").write_text("dear")
    (tmp_path / "pins" / QUERY / "letter.txt").write_text("dear")
    path.write_text(content)
    assert pins.batches(tmp_path, QUERY) == [0]
    assert list(pins.held(tmp_path).values()) == [1]


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.EROFS, "let the executors write there"), (errno.ENOSPC, "make room")]
)
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    made(tmp_path).add({"a": "x > 1"})

    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "create", fail)
    match = rf"cannot write '.*pins/{QUERY}/3': {os.strerror(code)}; .*: {advice}, or pass follow=False"
    with pytest.raises(gm.StorageError, match=match):
        pin(tmp_path, 3)
    assert pins.read(tmp_path, QUERY, 3) is None


def test_an_index_with_pins_is_a_target_to_save_in(tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        pin(tmp_path, 0)
    gm.Matcher(SCHEMA).save(tmp_path)
    assert pins.read(tmp_path, QUERY, 0) is not None
    (tmp_path / "more.txt").write_text("")
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(gm.StorageError, match=r"holds other files \('more.txt'\)"):
        gm.Matcher(SCHEMA).save(tmp_path)


def test_a_crash_while_pinning_leaves_a_pin_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path).add({"a": "x > 1"})
    right, step, done = newest(tmp_path), 0, False
    while not done:
        calls, step = [0], step + 1

        def crash(original: Any, calls: list[int] = calls, step: int = step) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                calls[0] += 1
                if calls[0] == step:
                    raise KeyboardInterrupt
                return original(*args, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("link", "fsync", "open", "write", "unlink", "mkdir"):
                patch.setattr(os, name, crash(getattr(os, name)))
            with suppress(KeyboardInterrupt):
                done = pins.make(tmp_path, QUERY, step, right) is not None
        assert pins.read(tmp_path, QUERY, step) in (None, right)
        assert texts(tmp_path, right.version) == {"a": "x > 1"}
    assert step > 6


def test_a_reader_moves_between_versions(tmp_path: Path) -> None:
    matcher, held = made(tmp_path), {}
    for step in range(9):
        matcher.add({step: f"x > {step}"})
        held[pin(tmp_path, step).version] = list(range(step + 1))
        if step % 3 == 2:
            matcher.compact()
    reader, follower = follow(tmp_path, "cpu", next(iter(held)))
    read: list[str] = []
    original = directory._read_all
    names = [*held, *reversed(held), *list(held)[::4]]
    for version in names:
        follower.move(version)
        assert reader.version == version
        assert sorted(reader) == held[version]
    with pytest.raises(gm.StorageError, match="has no version '77-00000000'"):
        follower.move("77-00000000")
    follower.refresh()
    assert sorted(reader) == list(range(9))
    matcher.add({50: "x > 3"})
    last = matcher.version
    matcher.add({51: "x > 3"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "_read_all", lambda *given, **more: (read.append("all"), original(*given, **more))[1])
        follower.move(str(last))
    assert read == []  # the log leads there
    assert sorted(reader) == [*range(9), 50]
    assert reader.match_one({"x": 5}) == [0, 1, 2, 3, 4, 50]


def test_refusals(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    pin(tmp_path, 0)
    state = pins.state_of(tmp_path)
    assert not pins.is_refused(tmp_path, QUERY, state)
    assert pins.refuse(tmp_path, QUERY, state, "why\nnot")
    assert pins.is_refused(tmp_path, QUERY, state)
    assert not pins.is_refused(tmp_path, OTHER, state)
    assert not pins.refuse(tmp_path, QUERY, state, "why\nnot")
    assert not pins.refuse(tmp_path, QUERY, state, "what another worker says of it")
    matcher.add({"b": "x > 1"})
    newer = pins.state_of(tmp_path)
    assert not pins.is_refused(tmp_path, QUERY, newer)
    assert pins.refuse(tmp_path, QUERY, newer, "another")
    assert not pins.refuse(tmp_path, QUERY, state, "another")
    aged(tmp_path / "pins" / QUERY / "refused", pins.AGAIN + 1)
    assert not pins.is_refused(tmp_path, QUERY, state)  # it may have been mended in place
    pins.accept(tmp_path, QUERY)
    assert pins.refuse(tmp_path, QUERY, state, "another")
    assert pins.batches(tmp_path, QUERY) == [0]
    (tmp_path / "manifest.json").unlink()
    assert pins.state_of(tmp_path) == ""
