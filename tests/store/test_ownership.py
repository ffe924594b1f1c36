"""Whose folder it is: children have no locks, and a folder that was replaced belongs to somebody else."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.store.folder import directory, durable, locks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

SCHEMA = {"x": "int64"}


def made(folder: Path, **options: Any) -> gm.Matcher:
    return gm.open(folder, "a", schema=SCHEMA, background=False, device="cpu", **options)


@contextmanager
def children() -> Iterator[Callable[[], None]]:
    """A function that makes a child, which lives until the end."""
    here, there = os.pipe()
    pids: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os.close(there)
            os.read(here, 1)
            os._exit(0)
        pids.append(child)

    try:
        yield fork
    finally:
        os.close(there)
        for pid in pids:
            os.waitpid(pid, 0)
        os.close(here)


def test_a_child_that_is_made_while_a_folder_is_locked(tmp_path: Path) -> None:
    """As by another thread, while a manifest is written in the background."""
    with children() as fork:
        with locks.locked(tmp_path):
            fork()
        descriptor = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the child still has it
        os.close(descriptor)


def test_a_child_that_is_made_while_a_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = directory.read
    with children() as fork:

        def read(*given: Any, **options: Any) -> Any:
            fork()
            return original(*given, **options)

        with monkeypatch.context() as patch:
            patch.setattr(directory, "read", read)
            writer = made(tmp_path)
        with pytest.raises(gm.StorageError, match="is open for writing in process"):
            made(tmp_path)
        writer.close()
        made(tmp_path).close()


def test_a_child_keeps_no_lock_of_a_parent_that_is_gone(tmp_path: Path) -> None:
    with children() as fork:
        parent = os.fork()
        if parent == 0:
            made(tmp_path)
            with locks.locked(tmp_path):
                fork()
                os._exit(0)
        os.waitpid(parent, 0)
        made(tmp_path).close()  # neither refused nor kept waiting


@pytest.mark.parametrize("call", ["add", "compact", "close"])
def test_a_folder_that_was_made_anew(call: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its old writer must leave it alone."""
    old = made(tmp_path / "idx", keep=0)
    for number in range(5):
        old.add({number: "x > 1"})
    shutil.rmtree(tmp_path / "idx")
    new = made(tmp_path / "idx")
    new.add({"theirs": "x > 2"})
    if call == "close":
        old.close()
        assert "was removed, or its writer.lock, while it was open" in caplog.text
    else:
        with pytest.raises(gm.StorageError, match="open it again"):
            old.add({9: "x > 9"}) if call == "add" else old.compact()
        assert sorted(old) == [0, 1, 2, 3, 4]
    assert list(gm.load(tmp_path / "idx", device="cpu")) == ["theirs"]
    new.add({"more": "x > 3"})
    new.close()
    assert list(gm.load(tmp_path / "idx", device="cpu")) == ["theirs", "more"]


def test_a_lock_that_was_removed(tmp_path: Path) -> None:
    """Somebody took it for a leftover, and opened the folder: there are two writers, of which the first must stop."""
    first = made(tmp_path)
    first.add({1: "x > 1"})
    (tmp_path / "writer.lock").unlink()
    second = made(tmp_path)
    second.add({2: "x > 2"})
    with pytest.raises(gm.StorageError, match=r"its writer\.lock was removed, or the folder; open it again"):
        first.add({3: "x > 3"})
    second.add({4: "x > 4"})
    first.close()
    second.close()
    assert list(gm.load(tmp_path, device="cpu")) == [1, 2, 4]


def test_a_matcher_that_is_closed_while_a_change_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of its log is that of another file by then."""
    writer = made(tmp_path / "idx")
    writer.add({1: "x > 1"})
    others: list[int] = []
    original = durable.Durable._change

    def change(self: durable.Durable, *given: Any) -> Any:
        found = original(self, *given)
        writer.close()
        others.extend(os.open(tmp_path / str(at), os.O_RDWR | os.O_CREAT) for at in range(4))
        return found

    monkeypatch.setattr(durable.Durable, "_change", change)
    with pytest.raises(gm.StorageError, match="is closed; open it again to change it"):
        writer.add({2: "x > 2"})
    assert [os.fstat(other).st_size for other in others] == [0] * 4
    for other in others:
        os.close(other)
    assert list(writer) == [1] == list(gm.load(tmp_path / "idx", device="cpu"))


def test_a_child_that_is_made_while_a_thread_compiles() -> None:
    from numba.core.compiler_lock import global_compiler_lock

    compiling = threading.Event()

    def compile() -> None:
        with global_compiler_lock:
            compiling.set()
            time.sleep(0.2)

    thread = threading.Thread(target=compile)
    thread.start()
    compiling.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if global_compiler_lock._lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert not global_compiler_lock.is_locked()
