"""Copies of indexes from stores: one for each version on a machine, in a folder that only this user can access.

A version's manifest is its last file: without it the copy is unfinished. Making or removing a copy takes its lock
exclusively; readers share it until they have mapped the files, which stay readable if they are removed afterwards.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpumatch.errors import StorageError
from gpumatch.store.folder.manifests import MANIFEST
from gpumatch.store.folder.verified import private

FOLDER, BYTES = "GPUMATCH_STORE_CACHE_DIR", "GPUMATCH_STORE_CACHE_BYTES"
SHARE = 0.5  # of the disk's room, for all copies, unless the environment gives a number of bytes


def disk() -> Path:
    """This machine's folder for large files."""
    given = os.environ.get(FOLDER)
    if given:
        os.makedirs(given, exist_ok=True)
    return Path(given or tempfile.gettempdir())


def _copies() -> Path:
    return disk() / f"gpumatch-store-{os.geteuid()}"


@contextmanager
def version(digest: str, fill: Callable[[Path], None]) -> Iterator[Path]:
    """The folder of a version, which ``fill`` fills once for all processes; it stays while the context is open."""
    copies = private(_copies())
    if copies is None:
        raise StorageError(
            f"cannot keep copies of indexes in {str(_copies())!r}: expected a folder of this user that is closed to "
            f"others; remove it, or name a folder to make it in by {FOLDER}"
        )
    folder = copies / digest
    with _lock(folder) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        while not (folder / MANIFEST).exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / MANIFEST).exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
            fcntl.flock(lock, fcntl.LOCK_SH)  # for an instant there is no lock, and the copy may be removed
        touch(digest)
        yield folder


def touch(digest: str) -> None:
    """Remember that a version was used, if there is a copy."""
    with suppress(OSError):
        os.utime(_copies() / digest)


def discard(folder: Path) -> None:
    """Have an altered copy made again: its files are then compared, and intact ones stay."""
    (folder / MANIFEST).unlink(missing_ok=True)


def reuse(folder: Path, name: str, entry: dict[str, Any]) -> bool:
    """Whether a file is in a folder already, from an unfinished copy, or can be linked there from another version."""
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    file = target.name  # has its hash; a version may be a shard of another
    for path in _named(folder.parent, file):
        with suppress(OSError):
            if path.stat().st_size == entry["size"] and _sha256(path) == entry["sha256"]:
                if path != target:
                    os.link(path, target)
                return True
    return False


def _named(copies: Path, file: str) -> Iterator[Path]:
    """The files of this name in all copies and their shards; other processes may remove some meanwhile."""
    for folder, _, names in os.walk(copies):
        if file in names:
            yield Path(folder, file)


def make_room(folder: Path, needed: int) -> None:
    """Remove the least recently used copies until there is room for these bytes; those being opened stay."""
    others = [other for other in folder.parent.iterdir() if other.is_dir() and other != folder]
    for other in sorted(others, key=_used):
        held = _bytes(folder.parent)
        if held + needed <= _limit(folder, held):
            return
        _remove(other)


def _limit(folder: Path, held: int) -> float:
    given = os.environ.get(BYTES, "")
    if given and not given.isdecimal():
        raise StorageError(f"{BYTES} must be a whole number of bytes, found {given!r}")
    return int(given) if given else SHARE * (shutil.disk_usage(folder).free + held)


def _bytes(copies: Path) -> int:
    """Of all copies; a file in several versions counts once."""
    sizes = {}
    for folder, _, names in os.walk(copies):  # which skips what is removed meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                facts = os.stat(os.path.join(folder, name))
                sizes[facts.st_ino] = facts.st_size
    return sum(sizes.values())


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # another process has removed it
        return 0.0


def _remove(folder: Path) -> None:
    with _lock(folder) as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """A lock file beside the folder, never removed: two processes must not lock different files."""
    descriptor = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # even if a child that another thread has forked has the descriptor too
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
