"""A disk that fails, and that forgets what was not synced: it stands for ``os`` in gpumatch/store/folder/disk.py."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

SECTOR = 512  # bytes that are written all or not at all

Op: TypeAlias = "tuple[Any, ...]"


class Failure:
    """Whether an operation fails: the one with this number, among all or those of one kind; ``mend`` ends it."""

    def __init__(
        self, at: int, code: int = errno.EIO, torn: bool = False, lasting: bool = False, only: str = ""
    ) -> None:
        self.at, self.code, self.torn, self.lasting, self.only = at, code, torn, lasting, only
        self.happened, self._seen = False, 0
        self.watch: Callable[[], object] = lambda: None  # what others do at the moment of the failure

    def hits(self, kind: str) -> bool:
        self._seen += self.only in ("", kind)
        found = self.only in ("", kind) and (self._seen == self.at or (self.lasting and self._seen > self.at))
        self.happened = self.happened or found
        return found

    def mend(self) -> None:
        self.at, self.lasting = -1, False


class Disk:
    """Does what ``os`` does in one folder, counts and records it."""

    def __init__(
        self, folder: Path, failure: Failure | None = None, shorten: Callable[[], bool] = lambda: False
    ) -> None:
        """``shorten``: whether a write takes only the first part of what it is given."""
        self.folder, self.failure, self._shorten = folder, failure or Failure(-1), shorten
        self.count, self.failed, self.ops = 0, 0, list[Op]()  # ``failed``: how many were done when the last one failed
        self._files: dict[int, int] = {}  # numbers of files, which the system's may be used again
        self._next = 0
        self.contents: dict[int, bytes] = {}  # on disk at first
        self.names: dict[str, int] = {}
        for path in folder.iterdir() if folder.exists() else ():
            number = self._new(path.stat().st_ino)
            self.names[path.name], self.contents[number] = number, path.read_bytes()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _new(self, inode: int) -> int:
        self._next += 1
        self._files[inode] = self._next
        return self._next

    def _number(self, where: int | Path) -> int:
        inode = os.stat(where).st_ino
        return self._files[inode] if inode in self._files else self._new(inode)

    def _try(self, kind: str) -> None:
        self.count += 1
        if self.failure.hits(kind):
            self.failed = len(self.ops)
            self.failure.watch()
            raise OSError(self.failure.code, os.strerror(self.failure.code))

    def _is_here(self, path: Any) -> bool:
        return Path(path).parent == self.folder

    # What gpumatch calls

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if not flags & os.O_CREAT:
            return os.open(path, flags, mode)
        self._try("open")
        is_new = not os.path.lexists(path)
        descriptor = os.open(path, flags, mode)
        if self._is_here(path):
            number = self._new(os.fstat(descriptor).st_ino) if is_new else self._number(descriptor)
            self.ops.append(("name", Path(path).name, number) if is_new else ("cut", number, 0))
        return descriptor

    def write(self, descriptor: int, content: Any) -> int:
        content = bytes(content)
        at, number = os.lseek(descriptor, 0, os.SEEK_CUR), self._number(descriptor)
        try:
            self._try("write")
        except OSError:
            if self.failure.torn:
                self.ops.append(("write", number, at, content[: os.write(descriptor, content[: len(content) // 2])]))
            raise
        some = content[: max(len(content) // 2, 1)] if self._shorten() else content
        done = os.write(descriptor, some)
        self.ops.append(("write", number, at, some[:done]))
        return done

    def fsync(self, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            self._try("fsync")
            if facts.st_ino == self.folder.stat().st_ino:
                self.ops.append(("sync names",))
            return
        number = self._number(descriptor)
        try:
            self._try("fsync")
        except OSError:
            self.ops.append(("sync failed", number))
            raise
        self.ops.append(("sync", number))

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._try("ftruncate")
        os.ftruncate(descriptor, size)
        self.ops.append(("cut", self._number(descriptor), size))

    def replace(self, path: Any, other: Any) -> None:
        self._try("replace")
        number = self._number(path)
        os.replace(path, other)
        self.ops.append(("rename", Path(path).name, Path(other).name, number))

    def link(self, path: Any, other: Any) -> None:
        self._try("link")
        os.link(path, other)
        self.ops.append(("name", Path(other).name, self._number(path)))

    def unlink(self, path: Any) -> None:
        self._try("unlink")
        os.unlink(path)
        self.ops.append(("unname", Path(path).name))

    # What the test asks

    def promise(self, *possible: Any) -> None:
        """From now on the folder holds one of these, whatever happens."""
        self.ops.append(("promise", possible))

    def after_power_loss(self, end: int, rng: np.random.Generator, folder: Path) -> Any:
        """Make a folder of what may be left if the power fails before an operation; returns what was promised."""
        contents, names = dict(self.contents), dict(self.names)
        unsynced: dict[int, list[Op]] = {}
        unnamed: list[Op] = []
        promised: Any = None
        for op in self.ops[:end]:
            kind = op[0]
            if kind in ("write", "cut"):
                unsynced.setdefault(op[1], []).append(op)
            elif kind == "sync":
                contents[op[1]] = written(contents.get(op[1], b""), unsynced.pop(op[1], []), 1, rng)
            elif kind == "sync failed":  # what was on its way may be there; later ones do not try again
                some = float(rng.choice([0, 0.5, 1]))
                contents[op[1]] = written(contents.get(op[1], b""), unsynced.pop(op[1], []), some, rng)
            elif kind == "sync names":
                rename(names, unnamed, 1, rng)
                unnamed = []
            elif kind == "promise":
                promised = op[1]
            else:
                unnamed.append(op)
        share = float(rng.choice([0, 0.5, 1, rng.random()]))
        rename(names, unnamed, float(rng.choice([0, 0.5, 1, rng.random()])), rng)
        folder.mkdir()
        for name, number in names.items():
            (folder / name).write_bytes(written(contents.get(number, b""), unsynced.get(number, []), share, rng))
        return promised


def written(content: bytes, ops: list[Op], share: float, rng: np.random.Generator) -> bytes:
    """A file after some of its writes, which are torn into sectors, and some of its truncations."""
    held = bytearray(content)
    for op in ops:
        if op[0] == "cut":
            if rng.random() < share:
                held[:] = held[: op[2]].ljust(op[2], b"\0")
            continue
        _, _, at, data = op
        start = at
        while start < at + len(data):
            stop = min((start // SECTOR + 1) * SECTOR, at + len(data))
            if rng.random() < share:
                held.extend(bytes(max(stop - len(held), 0)))
                held[start:stop] = data[start - at : stop - at]
            start = stop
    return bytes(held)


def rename(names: dict[str, int], ops: list[Op], share: float, rng: np.random.Generator) -> None:
    """Some of the changes of a folder's names; each is made as a whole or not at all."""
    for op in ops:
        if rng.random() >= share:
            continue
        if op[0] == "name":
            names[op[1]] = op[2]
        elif op[0] == "unname":
            names.pop(op[1], None)
        else:
            _, old, new, number = op
            if names.get(old) == number:
                del names[old]
            names[new] = number
