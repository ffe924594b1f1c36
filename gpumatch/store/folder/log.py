"""The log of changes to an index: one record per call, appended before the call returns.

A record is ``head | check | payload | chain``. The head has the change's number, the payload's size and how much of
the file was on disk by then; the check covers only the head. The chain is a hash over all records so far: it proves
that none is missing, and names a version. See docs/format.md.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import StorageError
from gpumatch.store.folder import disk

_FILE_MAGIC, _MAGIC = b"gpumatch log 1\n\0", b"\xf1gmR"
_FILE = struct.Struct("<16sQ16s")  # magic; number and chain of the version that the log begins with
_HEAD = struct.Struct("<4sQQQ")  # magic, number, bytes of the payload, bytes of the file that were on disk
_CHECK, CHAIN = 8, 16
_AT_ONCE = 1 << 20  # bytes that are read or written together
START = _FILE.size + _CHECK  # where the first record begins
_NAME = re.compile(r"changes-(0|[1-9][0-9]{0,17})\.log")
_TYPE = re.compile(r"[|<][biuf][1248]")


Files: TypeAlias = "dict[str, dict[str, Any]]"  # file, size and SHA-256 of arrays by their names


class Position(NamedTuple):
    """A version, and where its last record ends."""

    log: int
    offset: int
    number: int  # of changes since the index began
    chain: bytes

    @property
    def version(self) -> str:
        return version_name(self.number, self.chain.hex())


def version_name(number: int, chain: str) -> str:
    return f"{number}-{chain[:8]}"


@dataclass(frozen=True, slots=True)
class Change:
    """A call: the ids that it removed, and the segment that it added, whose arrays are here or in files."""

    what: str
    at: float  # seconds since 1970
    removed: Mapping[str, Array]  # as columns of a segment, see ``ids_from``; or empty
    facts: Mapping[str, Any] | None = None
    arrays: Mapping[str, Array] | None = None
    files: Files | None = None

    def encode(self) -> bytes:
        arrays = {f"removed.{name}": array for name, array in self.removed.items()} | dict(self.arrays or {})
        plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        shapes = {name: [array.dtype.str, *array.shape] for name, array in plain.items()}
        facts = {"what": self.what, "at": self.at, "segment": self.facts, "files": self.files, "arrays": shapes}
        text = json.dumps(facts).encode()
        return b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in plain.values())])

    @classmethod
    def decode(cls, payload: bytes) -> Change:
        """The change of a payload; raises ValueError, KeyError or TypeError if it is not one."""
        start = 4 + int.from_bytes(payload[:4], "little")
        facts = json.loads(payload[4:start])
        arrays = {}
        for name, (dtype, *shape) in facts["arrays"].items():
            arrays[name], start = _array(payload, start, dtype, shape)
        if start != len(payload):
            raise ValueError(f"it has {len(payload) - start} bytes after its arrays")
        removed = {name: array for name, array in arrays.items() if name.startswith("removed.")}
        own = {name: array for name, array in arrays.items() if name not in removed}
        return cls(
            str(facts["what"]),
            float(facts["at"]),
            {name.removeprefix("removed."): array for name, array in removed.items()},
            facts["segment"],
            None if facts["segment"] is None or facts["files"] is not None else own,
            facts["files"],
        )


def _array(payload: bytes, start: int, dtype: str, shape: list[int]) -> tuple[Array, int]:
    """An array of the payload, and where it ends."""
    if not _TYPE.fullmatch(dtype) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"it has an array of {dtype!r} with the shape {shape}")
    count = 1
    for size in shape:
        count *= size
    end = start + count * np.dtype(dtype).itemsize
    if end > len(payload):
        raise ValueError(f"it ends within an array of {dtype!r} with the shape {shape}")
    array = np.frombuffer(payload[start:end], dtype).reshape(shape).copy()  # which is aligned
    array.flags.writeable = False
    return array, end


def log_name(number: int) -> str:
    return f"changes-{number}.log"


def log_number(name: str) -> int | None:
    """The number of a log, by its file's name; None for other files."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def log_state(folder: Path) -> str:
    """The newest log and its size, which change with every record; empty if there is none."""
    number = max((log_number(name) or 0 for name in os.listdir(folder)), default=0)
    path = folder / log_name(number)
    return f"{number} {path.stat().st_size}" if number else ""


# Writing


class Log:
    """The log that changes are appended to. Its owner is the only writer of the folder.

    ``why_broken``: why nothing more can be appended, since it is not known what is on disk; else empty.
    """

    def __init__(self, folder: Path, position: Position, always: bool, durable: int = START) -> None:
        """``always``: each record is on disk when ``append`` returns. What follows the position is removed.

        ``durable``: how much of the position's log is known to be on disk.
        """
        while _begins_with(folder, following := position._replace(log=position.log + 1, offset=0)):
            position = following  # it was begun, and nothing was appended
        self._folder, self._always, self.position, self.why_broken = folder, always, position, ""
        if later := [name for name in os.listdir(folder) if (log_number(name) or 0) > position.log]:
            for name in later:  # of an index that was here before, or they would have been read
                disk.remove(folder / name)
            disk.sync_folder(folder)
        path = folder / log_name(position.log)
        if position.offset <= START or not path.exists():
            self._create()
        else:
            self._cut(path, durable)
        self.synced = self.position.offset

    def _cut(self, path: Path, durable: int) -> None:
        """Make the file on disk exactly what was read.

        It is written again: if an earlier sync failed, the system has the data, but would not try to write it again.
        """
        descriptor, end = os.open(path, os.O_RDWR), self.position.offset
        try:
            disk.truncate(descriptor, end)
            for at in range(durable, end, _AT_ONCE):
                content = os.pread(descriptor, min(_AT_ONCE, end - at), at)
                os.lseek(descriptor, at, os.SEEK_SET)
                disk.write(descriptor, content)
            disk.sync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _create(self) -> None:
        head = _FILE.pack(_FILE_MAGIC, self.position.number, self.position.chain)
        path = self._folder / log_name(self.position.log)
        disk.replace(path, head + _check(head))
        disk.sync_folder(self._folder)
        self._descriptor = os.open(path, os.O_RDWR)
        self.position = self.position._replace(offset=START)
        self.synced = START

    def append(self, payload: bytes) -> None:
        """Append a record, all or nothing."""
        if self.why_broken:
            raise OSError(errno.EIO, self.why_broken)
        if os.fstat(self._descriptor).st_nlink == 0:
            raise OSError(errno.ENOENT, "its log was removed, or the folder; open it again")
        before = self.position
        head = _HEAD.pack(_MAGIC, before.number + 1, len(payload), self.synced)
        chain = _chained(before.chain, head, payload)
        content = b"".join([head, _check(head), payload, chain])
        try:
            os.lseek(self._descriptor, before.offset, os.SEEK_SET)
            disk.write(self._descriptor, content)
            self.position = Position(before.log, before.offset + len(content), before.number + 1, chain)
            if self._always:
                self.sync()
        except BaseException:
            self.undo(before)
            raise

    def undo(self, before: Position) -> None:
        """Roll back to a position."""
        self.position, self.synced = before, min(self.synced, before.offset)
        self.why_broken = "an earlier change could not be taken back"
        disk.truncate(self._descriptor, before.offset)
        disk.sync(self._descriptor)  # or it may reappear after a power failure
        self.synced, self.why_broken = before.offset, ""

    def sync(self) -> None:
        end = self.position.offset
        if self.synced < end and not self.why_broken:
            try:
                disk.sync(self._descriptor)
            except BaseException:  # a retry would not tell whether they are on disk
                self.why_broken = "earlier changes could not be put on disk"
                raise
            self.synced = end

    def rotate(self) -> None:
        """Continue in another file."""
        self.sync()
        before, descriptor = self.position, self._descriptor
        self.position = before._replace(log=before.log + 1)
        try:
            self._create()
        except BaseException:
            following, self.position = self.position, before
            path = self._folder / log_name(following.log)
            if path.exists():  # it would not continue this one any more
                self.why_broken = "the next log could not be taken back"
                disk.remove(path)
                disk.sync_folder(self._folder)
                self.why_broken = ""
            raise
        os.close(descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1  # the system may soon reuse the number


# Reading


def read_log(folder: Path, position: Position, durable: int = 0) -> Iterator[tuple[Position, bytes]]:
    """Payloads of the records that follow a position, each with the position after it.

    They end before an incomplete record: its call had not returned when the writer or the machine stopped.
    ``durable``: how much of the position's log is known to be complete. Other damage is a StorageError.
    """
    if position.offset < START:
        if not _begins_with(folder, position):
            if durable:
                raise _damaged(folder, position, "it is missing, or does not continue the version of the manifest")
            return  # logs are those of an index that was here before
        position = position._replace(offset=START)
    elif not _leads_to(folder, position):
        raise _damaged(folder, position, "what was read before is there no more")
    while True:
        # Checked first: nothing is appended to a log once the next one exists.
        is_last = not (folder / log_name(position.log + 1)).exists()
        for last, payload in _records(folder, position, durable):
            yield last, payload
            position = last
        following = position._replace(log=position.log + 1, offset=START)
        if is_last:
            return
        if not _begins_with(folder, following):
            if not (folder / log_name(following.log)).exists():  # the writer has rolled it back
                return
            raise _damaged(folder, position, "the next log does not continue it")
        position, durable = following, 0


def _records(folder: Path, position: Position, durable: int) -> Iterator[tuple[Position, bytes]]:
    """The records of one file."""
    with disk.plain(folder / log_name(position.log)) as file:
        end = os.fstat(file.fileno()).st_size
        if end < max(position.offset, durable):
            raise _damaged(folder, position, f"it has {end} bytes, expected {max(position.offset, durable)}")
        while position.offset < end:
            found = _record(file, position, end)
            if found is None:
                if position.offset < durable or _is_followed(file, position):
                    raise _damaged(folder, position, "its checksum differs")
                return
            payload, chain = found
            offset = position.offset + _HEAD.size + _CHECK + len(payload) + CHAIN
            position = Position(position.log, offset, position.number + 1, chain)
            yield position, payload


def _record(file: BinaryIO, position: Position, end: int) -> tuple[bytes, bytes] | None:
    """Payload and chain of the record at a position; None if it is incomplete or altered."""
    file.seek(position.offset)
    content = file.read(_HEAD.size + _CHECK)
    head = _head(content)
    if head is None or head[0] != position.number + 1 or head[1] > end - file.tell() - CHAIN:
        return None
    if head[1] > _AT_ONCE and not _is_whole(file, position, content[: _HEAD.size], head[1]):
        return None
    payload, chain = file.read(head[1]), file.read(CHAIN)
    return (payload, chain) if chain == _chained(position.chain, content[: _HEAD.size], payload) else None


def _is_whole(file: BinaryIO, position: Position, head: bytes, size: int) -> bool:
    """Whether a payload of this size follows; a head with a false size must not make us allocate as much."""
    start, left = file.tell(), size
    digest = _chaining(position.chain, head)
    while left and (some := file.read(min(left, _AT_ONCE))):
        digest.update(some)
        left -= len(some)
    chain = file.read(CHAIN)
    file.seek(start)
    return not left and chain == digest.digest()


def _head(content: bytes) -> tuple[int, int, int] | None:
    """Number, bytes of payload, and bytes on disk, of a record's head and its check."""
    head = content[: _HEAD.size]
    if len(head) < _HEAD.size or content[_HEAD.size :] != _check(head):
        return None
    magic, number, size, synced = _HEAD.unpack(head)
    return (number, size, synced) if magic == _MAGIC else None


def _is_followed(file: BinaryIO, position: Position) -> bool:
    """Whether a later record says that the one at a position was already on disk."""
    whole, data = _HEAD.size + _CHECK, b""
    file.seek(position.offset + 1)
    while more := file.read(_AT_ONCE):
        data = data[1 - whole :] + more
        at = data.find(_MAGIC)
        while at >= 0:
            head = _head(data[at : at + whole])
            if head is not None and head[0] > position.number and head[2] > position.offset:
                return True
            at = data.find(_MAGIC, at + 1)
    return False


def _begins_with(folder: Path, position: Position) -> bool:
    """Whether a log exists and continues a version."""
    try:
        with disk.plain(folder / log_name(position.log)) as file:
            found = file.read(START)
    except FileNotFoundError:
        return False
    head = _FILE.pack(_FILE_MAGIC, position.number, position.chain)
    return found == head + _check(head)


def _leads_to(folder: Path, position: Position) -> bool:
    """Whether a log still has what was read of it. A change that could not be synced is rolled back."""
    if position.offset == START:
        return _begins_with(folder, position)
    with disk.plain(folder / log_name(position.log)) as file:
        file.seek(position.offset - CHAIN)
        return file.read(CHAIN) == position.chain


def _damaged(folder: Path, position: Position, why: str) -> StorageError:
    path = str(folder / log_name(position.log))
    return StorageError(
        f"{path!r} is damaged after change {position.number}, at byte {position.offset}: {why}; restore it from a "
        f"copy, or go on in another folder with what was there before it: gm.load({str(folder)!r}, "
        f"version={position.version!r}).save(…)"
    )


def _check(head: bytes) -> bytes:
    return hashlib.blake2b(head, digest_size=_CHECK).digest()


def _chained(chain: bytes, head: bytes, payload: bytes) -> bytes:
    digest = _chaining(chain, head)
    digest.update(payload)
    return digest.digest()


def _chaining(chain: bytes, head: bytes) -> hashlib.blake2b:
    digest = hashlib.blake2b(chain, digest_size=CHAIN)
    digest.update(head[:20])  # without how much was on disk: a version's name must not depend on it
    return digest
