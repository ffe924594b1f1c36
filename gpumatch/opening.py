"""Saved indexes as matchers: ``load`` detaches them from their folder, ``open`` keeps or follows them there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

from gpumatch.errors import SchemaError, StorageError
from gpumatch.index import IndexParams, params_from
from gpumatch.index.planner import requested_index
from gpumatch.matcher import Matcher
from gpumatch.schema import Schema, SchemaLike
from gpumatch.store.checks import understood
from gpumatch.store.folder import directory, locks, manifests
from gpumatch.store.folder import remote as storage
from gpumatch.store.folder.directory import Stored, Verify
from gpumatch.store.folder.durable import FSYNCS, KEEP, Durable, Fsync
from gpumatch.store.folder.follower import Follower, restore
from gpumatch.store.folder.place import is_uri, shown
from gpumatch.store.snapshot import Snapshot


def load(
    path: str | os.PathLike[str],
    device: str = "auto",
    mmap: bool = True,
    verify: Verify = "once",
    background: bool = True,
    version: str | None = None,
) -> Matcher:
    """A matcher from a saved index, detached from its directory: changes stay in memory.

    ``path`` may be a URI, as for ``save``: this machine then keeps a copy.

    ``mmap`` maps the arrays instead of reading them. ``verify="once"`` compares checksums, which reads every file,
    unless this user has done so on this machine since the files last changed. ``"full"`` always does, and checks that
    all values are safe to use: for an index from an untrusted source. ``"size"`` compares only sizes.
    ``background``: as for ``Matcher``. ``version``: the name of one that the folder still has, instead of the newest.
    """
    return from_stored(storage.read(path, mmap, verify, version), device, background)


def from_stored(stored: Stored, device: str, background: bool = True) -> Matcher:
    """A matcher from what was read."""
    matcher = _matcher_for(stored, device, background)
    restore(matcher._store, matcher._attributes, stored)
    return matcher


def _matcher_for(stored: Stored, device: str, background: bool) -> Matcher:
    with understood():
        asked = stored.meta["index"]
        index = "auto" if asked == "auto" else params_from(asked)
        return Matcher(stored.meta["schema"], index, device, stored.meta["memory_limit"], background)


def open(
    path: str | os.PathLike[str],
    mode: Literal["a", "r"] = "r",
    schema: SchemaLike | None = None,
    index: str | IndexParams | None = None,
    device: str = "auto",
    memory_limit: int | None = None,
    background: bool = True,
    mmap: bool = True,
    verify: Verify = "once",
    fsync: Fsync = "always",
    keep: float = KEEP,
) -> Matcher:
    """A matcher that lives in a folder: with mode ``"a"`` it changes the index there, with ``"r"`` it follows changes.

    Mode ``"a"``: a call that changes the matcher returns when its change is stored. One process at a time may have the
    folder open in this mode. With a ``schema`` a missing folder is created. ``index``, ``memory_limit``: as for
    ``Matcher``; for an existing index they must be those it was made with. ``fsync``: with ``"always"`` every change is
    on disk when its call returns, so that it survives a power failure; with ``"batch"`` within a second; ``"never"``
    leaves it to the system. All survive the end of the process. ``keep``: seconds that earlier versions stay.

    Mode ``"r"``: any number of readers, in any process; ``refresh()`` picks up changes. Other arguments are as for
    ``load``.
    """
    if mode not in ("a", "r"):
        raise ValueError(f"mode is 'a' (read and change) or 'r' (read), found {mode!r}")
    if fsync not in FSYNCS:
        raise ValueError(f"fsync is 'always', 'batch' or 'never', found {fsync!r}")
    if isinstance(keep, bool) or not isinstance(keep, (int, float)) or not keep >= 0:
        raise ValueError(f"keep is a number of seconds, at least 0, found {keep!r}")
    if mode == "r" and (fsync != "always" or keep != KEEP):
        raise ValueError("fsync= and keep= are for mode 'a': a reader writes nothing")
    verify = directory.checked_verify(verify)  # before a folder is made
    if not is_uri(path):
        path = Path(path).absolute()  # the program may change its working folder
    if mode == "r":
        found = _open_reader(path, device, background, mmap, verify)
        _check_same(found, path, schema, index, memory_limit)
        return found
    try:
        return _open_writer(path, schema, index, device, memory_limit, background, mmap, verify, fsync, keep)
    except OSError as error:
        raise StorageError(
            f"cannot open {shown(path)!r} to change it: {error.strerror}; make room, check the disk, and what this "
            "user may do there"
        ) from error


def follow(path: str | os.PathLike[str], device: str, version: str | None = None) -> tuple[Matcher, Follower]:
    """A reader, at first of one version, and the follower that moves it to others."""
    matcher = _open_reader(path, device, background=True, mmap=True, verify="once", version=version)
    assert isinstance(matcher._folder, Follower)
    return matcher, matcher._folder


def _open_reader(
    path: str | os.PathLike[str], device: str, background: bool, mmap: bool, verify: Verify, version: str | None = None
) -> Matcher:
    stored = storage.read(path, mmap, verify, version)
    matcher = _matcher_for(stored, device, background)
    follower = Follower(path, matcher._store, matcher._attributes, mmap, verify)
    follower.begin(stored, restore(matcher._store, matcher._attributes, stored))
    matcher._attach(follower)
    return matcher


def _open_writer(
    path: str | os.PathLike[str],
    schema: SchemaLike | None,
    index: str | IndexParams | None,
    device: str,
    memory_limit: int | None,
    background: bool,
    mmap: bool,
    verify: Verify,
    fsync: Fsync,
    keep: float,
) -> Matcher:
    # First, since wrong arguments should leave no folder.
    new = None if schema is None else Matcher(schema, index or "auto", device, memory_limit)
    folder = _writable(path, schema)
    with locks.locked(folder):
        lock = locks.take_lock(folder, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        if new is not None and not (folder / manifests.MANIFEST).exists():
            directory.write_manifest(folder, {**new._meta(Snapshot()), "segments": []})
        stored = directory.read(folder, mmap, verify)
        matcher = _matcher_for(stored, device, background)
        _check_same(matcher, path, schema, index, memory_limit)  # before anything is written
        durable = Durable(folder, lock, matcher._store, matcher._attributes, matcher._meta, fsync, keep)
        segments = restore(matcher._store, matcher._attributes, stored)
        durable.begin(manifests.read_manifest(folder), stored.position, segments)
    except BaseException:
        locks.release(lock)
        raise
    matcher._attach(durable)
    return matcher


def _writable(path: str | os.PathLike[str], schema: SchemaLike | None) -> Path:
    """The folder, which is created if there is a schema for it."""
    if is_uri(path):
        raise StorageError(
            f"mode 'a' needs a folder, since a store cannot append to a file, found {shown(path)!r}: keep the index in "
            "a folder and save() it there, or open it with mode='r'"
        )
    folder = Path(path)
    if not (folder / manifests.MANIFEST).exists():
        if rest := manifests.remains(folder):
            raise StorageError(
                f"{str(folder)!r} has files of an index, such as {rest[0]!r}, but no {manifests.MANIFEST}: restore it "
                "from a copy, or remove the folder"
            )
        if schema is None:
            raise StorageError(f"there is no index at {str(folder)!r}; give a schema= to make one, or check the path")
        return directory.make(folder)
    if manifests.read_manifest(folder).get("shards"):
        raise StorageError(
            f"the index at {str(folder)!r} has shards, which only Spark changes: build it again with build_index(), or "
            "open it with mode='r'"
        )
    return folder


def _check_same(
    matcher: Matcher,
    path: str | os.PathLike[str],
    schema: SchemaLike | None,
    index: str | IndexParams | None,
    memory_limit: int | None,
) -> None:
    """Raise unless an index is what the caller expects."""
    if schema is not None and (wanted := Schema.of(schema)) != matcher.schema:
        found, expected = matcher.schema.to_dict(), wanted.to_dict()
        order = "with its attributes in that order, " if found == expected else ""
        raise SchemaError(
            f"the index at {shown(path)!r} has the schema {found}, {order}expected {expected}; leave schema= out, or "
            "build another index"
        )
    if index is not None and requested_index(index) != matcher._requested:
        made = "auto" if matcher._requested is None else repr(matcher._requested)
        raise StorageError(f"the index at {shown(path)!r} was made with index={made}, expected {index!r}; leave it out")
    if memory_limit is not None and memory_limit != matcher._memory_limit:
        limit = matcher._memory_limit
        raise StorageError(
            f"the index at {shown(path)!r} was made with memory_limit={limit}, expected {memory_limit}; leave it out"
        )
