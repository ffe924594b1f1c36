"""All ways of writing files of an index. Tests replace ``os`` here with a disk that fails or forgets."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def plain(path: Path) -> BinaryIO:
    """A plain file, open for reading; anything else, such as a link or a pipe that would never end, is an OSError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return open(path, "rb")


def replace(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file as a whole or not at all."""
    draft = _draft(path)
    try:
        _fill(draft, pieces)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            remove(draft)
        raise


def create(path: Path, content: bytes) -> bool:
    """Write a file as a whole, unless it exists; whether it was written."""
    draft = _draft(path)
    try:
        _fill(draft, [content])
        with suppress(FileExistsError):
            os.link(draft, path)
            return True
        return False
    finally:
        with suppress(OSError):
            remove(draft)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _fill(path: Path, pieces: Sequence[bytes | memoryview]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        for piece in pieces:
            write(descriptor, piece)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(descriptor: int, content: bytes | memoryview) -> None:
    left = memoryview(content).cast("B") if len(content) else memoryview(b"")
    while left:
        left = left[os.write(descriptor, left) :]


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def truncate(descriptor: int, size: int) -> None:
    os.ftruncate(descriptor, size)


def remove(path: Path) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
