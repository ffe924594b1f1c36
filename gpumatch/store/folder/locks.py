"""Who may write to a folder: one process that keeps it open, and one thread at a time that replaces files."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpumatch.errors import StorageError
from gpumatch.store.folder.manifests import LOCK

_held: dict[int, int] = {}  # descriptors of locks, and the processes that opened them


def _after_fork() -> None:
    """A lock lasts until all its descriptors are closed, so a child must not keep those of its parent."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


def check_unused(folder: Path) -> None:
    """Raise if the index is open for writing."""
    with suppress(FileNotFoundError):
        release(take_lock(folder, os.O_RDWR))


def take_lock(folder: Path, flags: int) -> int:
    """Take the lock of the folder's writer: its descriptor. ``release``, or the end of the process, releases it."""
    descriptor = _open_lock(folder / LOCK, flags)
    _held[descriptor] = os.getpid()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 200).decode(errors="replace") or "another process"
        release(descriptor)
        raise StorageError(f"{str(folder)!r} is open for writing in {owner}; close it there first") from None
    except BaseException:
        release(descriptor)
        raise
    return descriptor


def release(descriptor: int) -> None:
    """Release a lock, even if a child also has its descriptor. In a child there is nothing to release."""
    owner = _held.pop(descriptor, None)
    if owner is None:
        return
    if owner == os.getpid():
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_lock_of(folder: Path, descriptor: int) -> bool:
    """Whether the lock file in the folder is still this one: not missing, nor that of another folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _open_lock(path: Path, flags: int) -> int:
    """Open a plain file only: a link may lead to somebody else's file, and a pipe may block."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise StorageError(f"{str(path)!r} is no plain file; remove it")
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time among all threads and processes: two would remove each other's unfinished files."""
    descriptor = os.open(folder, os.O_RDONLY)
    _held[descriptor] = os.getpid()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        release(descriptor)
