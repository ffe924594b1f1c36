"""An index that lives in a folder: a change is in its log before the call returns, and in its manifest some time later.

One process has the folder open for writing, and holds its lock until it closes the folder or ends. It appends to the
log. From time to time it folds: it begins another log and writes a manifest of the state at that moment, with new files
only for segments that have none. The previous manifest and its log stay for a while, for readers about to open them.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard
from weakref import ref

from gpumatch.errors import StorageError
from gpumatch.store.background import LOG
from gpumatch.store.checks import REMOVED, id_columns
from gpumatch.store.folder import directory, disk, locks, manifests
from gpumatch.store.folder.log import START, Change, Files, Log, Position, log_number
from gpumatch.store.folder.manifests import LOCK, MANIFEST
from gpumatch.store.removed import Removed
from gpumatch.store.segment import Segment
from gpumatch.store.snapshot import Piece, Snapshot
from gpumatch.store.store import Store
from gpumatch.subscriptions.block import Attributes

Fsync: TypeAlias = Literal["always", "batch", "never"]
FSYNCS = ("always", "batch", "never")
KEEP = 3600.0  # seconds that an earlier version stays after the next has been written
_ROWS = 8192  # rows added or removed after which the log is folded into the manifest
_SHARE = 32  # of all rows, if that is more
_RECORDS, _BYTES = 1000, 16 << 20  # of a log before it is folded, whatever they change
_RETRY = 60.0  # seconds before a failed fold is tried again
_BATCH = 1.0  # seconds after which a change is on disk with "batch"
_ABOUT = ("format", "checksum")  # what a manifest says of itself


class Durable:
    """The folder that a store writes its changes to."""

    def __init__(
        self,
        folder: Path,
        lock: int,
        store: Store,
        attributes: Attributes,
        meta: Callable[[Snapshot], Mapping[str, Any]],
        fsync: Fsync = "always",
        keep: float = KEEP,
    ) -> None:
        """``lock``: the folder's, which ``close`` releases. ``meta``: the facts of a manifest."""
        self._folder, self._lock, self._store, self._attributes = folder, lock, store, attributes
        self._meta, self._fsync, self._keep = meta, fsync, keep
        self._why_not = "it is not open"  # why nothing can be written; else empty
        self._timer: threading.Timer | None = None
        self._retry = 0.0  # when to try a failed fold again
        self._make_locks()
        self._entries: dict[int, tuple[ref[Segment], dict[str, Any]]] = {}  # of segments in files, by their id()
        self._named: dict[int, set[str]] = {}  # files that records name, by the number of their log
        self._records = self._rows = 0  # of the log

    def _make_locks(self) -> None:
        """Locks are taken in this order, and all but the first after the store's own."""
        self._folding = threading.Lock()
        self._logging = threading.Lock()  # held to use the log
        self._filing = threading.RLock()  # held to write arrays, and to remove files that nothing names

    def begin(self, manifest: Mapping[str, Any], position: Position, segments: Sequence[Segment]) -> None:
        """Continue at a position, with the segments of the manifest."""
        for entry, segment in zip(manifest["segments"], segments, strict=True):
            self._remember(segment, {**entry, "arrays": _lasting(entry["arrays"])})
        first, size = manifests.position_of(manifest)
        durable = size if first.log == position.log and size else START
        self._log = Log(self._folder, position, self._fsync == "always", durable)
        try:
            self._records = position.number - first.number
            self._note_files()
            if not size:  # from now on a missing log is damage
                self._write_manifest({key: manifest[key] for key in manifest if key not in _ABOUT}, START)
        except BaseException:
            self._log.close()
            raise
        self._why_not = ""

    def _note_files(self) -> None:
        """Note the files that logs name. Between the logs of a pinned version and the others, some may be missing."""
        noted: set[int] = set()
        for manifest in manifests.written(self._folder):
            logs: set[int] = set()
            with suppress(OSError, StorageError):  # damage to an earlier version does not matter here
                for position, change in directory.changes_after(self._folder, manifest):
                    if position.log in noted:
                        break
                    self._note(position.log, change.files)
                    logs.add(position.log)
            noted |= logs

    @property
    def version(self) -> str:
        return self._log.position.version

    # Changes

    def prepare(self, piece: Piece) -> None:
        """Write a large segment to files before writers have to wait for it."""
        if not self._why_not and _is_filed(piece):
            with self._storing():
                self._entry(piece)

    def commit(self, what: str, removed: Any, piece: Piece | None, publish: Callable[[], None]) -> None:
        """Store a change, then publish it; on an error, neither. ``removed``: ids, or None."""
        if why := self._why_not or self._why_broken():
            raise StorageError(why)
        with self._storing():
            self._commit(self._change(what, removed, piece), publish)
        self._rows += (0 if piece is None else len(piece)) + (0 if removed is None else len(removed))
        if self._fsync == "batch":
            self._sync_soon()

    def _commit(self, change: Change, publish: Callable[[], None]) -> None:
        payload = change.encode()
        with self._logging:
            if self._why_not:  # it was closed meanwhile
                raise StorageError(self._why_not)
            if not locks.is_lock_of(self._folder, self._lock):
                raise OSError(errno.ENOENT, f"its {LOCK} was removed, or the folder; open it again")
            before = self._log.position
            self._note(before.log, change.files)
            self._log.append(payload)
            try:
                publish()
            except BaseException:
                self._log.undo(before)
                raise
            self._records += 1

    def _change(self, what: str, removed: Any, piece: Piece | None) -> Change:
        ids = {} if removed is None else id_columns(removed)
        if piece is None:
            return Change(what, time.time(), ids)
        if _is_filed(piece):
            entry = self._entry(piece)
            facts = {key: entry[key] for key in entry if key != "arrays"}
            return Change(what, time.time(), ids, facts, None, entry["arrays"])
        facts, arrays = self._segment(piece).stored(None)
        return Change(what, time.time(), ids, facts, arrays)

    def _segment(self, piece: Piece) -> Segment:
        return piece if isinstance(piece, Segment) else Segment.of_fresh(piece, self._attributes)

    def _note(self, log: int, files: Files | None) -> None:
        if files is not None:
            with self._filing:
                self._named.setdefault(log, set()).update(entry["file"] for entry in files.values())

    def _sync_soon(self) -> None:
        if self._timer is not None:
            return
        self._timer = threading.Timer(_BATCH, self._sync)
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError:  # the program ends, or the system has no more threads
            self._sync()

    def _sync(self) -> None:
        self._timer = None
        try:
            with self._logging:
                if not self._why_not:
                    self._log.sync()
        except OSError as error:
            LOG.error("%s: %s", self._why_broken(), error.strerror)  # every change from now on says so too

    def flush(self) -> None:
        """Force all changes to disk."""
        with self._logging:
            if self._why_not:
                return
            with suppress(OSError):
                self._log.sync()
            if why := self._why_broken():
                raise StorageError(why)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            advice = "make room and call again" if full else "check the disk, then call again"
            left = f"nothing of it was made: {advice}"
            if self._log.why_broken:
                left = "whether it was made shows when the folder is opened again: close it, and check the disk"
            raise StorageError(f"cannot store the change in {str(self._folder)!r}: {error.strerror}; {left}") from error

    def _why_broken(self) -> str:
        why = self._log.why_broken
        return why and f"cannot store changes in {str(self._folder)!r}: {why}; open the folder again"

    # Folding

    def is_due(self) -> bool:
        """Whether opening the index would have to read much of the log."""
        if self._why_not or self._log.why_broken or time.monotonic() < self._retry:
            return False
        rows = max(_ROWS, len(self._store) // _SHARE)
        return self._records >= _RECORDS or self._rows >= rows or self._log.position.offset >= _BYTES

    def fold(self) -> None:
        """Write a manifest of the current state, so that the log begins anew."""
        with self._folding:
            try:
                self._write_version(*self._store.checkpoint(self._rotate))
            except OSError as error:
                self._retry = time.monotonic() + _RETRY
                if why := self._why_broken():
                    raise StorageError(why) from error
                raise StorageError(
                    f"cannot write a version in {str(self._folder)!r}: {error.strerror}; all changes are in its log, "
                    "nothing is lost: make room or check the disk"
                ) from error

    def _write_version(self, state: Snapshot, position: Position) -> None:
        with self._filing:
            segments = [
                self._stored(self._segment(piece), gone)
                for piece, gone in zip(state.pieces, state.removed, strict=True)
            ]
            facts = {**self._meta(state), "segments": segments, "version": _version(position)}
            with locks.locked(self._folder):
                self._check_there()
                before = manifests.read_manifest(self._folder)
                disk.replace(self._folder / manifests.kept_name(before), (self._folder / MANIFEST).read_bytes())
                self._write_manifest({**facts, "log": {"number": position.log}}, START)
                self._remove_stale()

    def _rotate(self) -> Position:
        with self._logging:
            if why := self._why_not or self._why_broken():
                raise StorageError(why)
            self._check_there()
            if self._log.position.offset > START:
                self._log.rotate()
            self._records = self._rows = 0
            return self._log.position

    def _check_there(self) -> None:
        """Raise if the path may have another index by now, which is not ours to change."""
        if not locks.is_lock_of(self._folder, self._lock):
            raise StorageError(f"{str(self._folder)!r} was removed, or its {LOCK}, while it was open; open it again")

    def _stored(self, segment: Segment, gone: Removed | None) -> dict[str, Any]:
        """The entry of a manifest."""
        entry = self._entry(segment)
        if gone is None:
            return entry
        files = directory.write_arrays(self._folder, {REMOVED: gone.mask})
        return {**entry, "arrays": {**entry["arrays"], **files}}

    def _entry(self, segment: Segment) -> dict[str, Any]:
        """Facts and files of a segment, which is written if it has no files yet."""
        with self._filing:
            found = self._entries.get(id(segment))
            if found is not None and found[0]() is segment:
                return found[1]
            facts, arrays = segment.stored(None)
            entry = {**facts, "arrays": directory.write_arrays(self._folder, arrays)}
            disk.sync_folder(self._folder)
            self._remember(segment, entry)
            return entry

    def _remember(self, segment: Segment, entry: dict[str, Any]) -> None:
        self._entries[id(segment)] = ref(segment), entry

    def _write_manifest(self, facts: Mapping[str, Any], size: int) -> None:
        """``size``: how much of the log is on disk."""
        position = self._log.position
        version = facts.get("version", _version(position))
        log = {"number": facts.get("log", {}).get("number", position.log), "bytes": size}
        directory.write_manifest(self._folder, {"features": [], **facts, "version": version, "log": log})

    def _remove_stale(self) -> None:
        """Remove what no remaining version needs."""
        self._entries = {key: found for key, found in self._entries.items() if found[0]() is not None}
        named = {file["file"] for _, entry in self._entries.values() for file in entry["arrays"].values()}
        needed = [manifests.read_manifest(self._folder)]
        for path in manifests.kept_manifests(self._folder):
            manifest = manifests.kept_manifest(path)
            if manifest is not None and time.time() - path.stat().st_mtime < self._keep:
                needed.append(manifest)
                named.add(path.name)
        first = min(manifests.position_of(manifest)[0].log for manifest in needed)
        for manifest in needed:
            named |= {entry["file"] for entry in manifests.files_of(manifest, str(self._folder))}
        named |= {name for name in os.listdir(self._folder) if (log_number(name) or 0) >= first}
        self._named = {log: files for log, files in self._named.items() if log >= first}
        pinned = directory.pinned_files(self._folder, besides=named)
        directory.remove_stale(self._folder, pinned.union(named, *self._named.values()))

    # The end

    def close(self) -> None:
        """Release the folder. All changes are then on disk, and the manifest says how long the log is."""
        with self._folding, self._logging, self._filing:
            if self._why_not:
                return
            try:
                self._log.sync()
                if not self._log.why_broken:  # else reading it shows what is there
                    self._note_size()
            except OSError as error:
                if self._log.why_broken:
                    raise StorageError(
                        f"{str(self._folder)!r} is closed, but {self._log.why_broken}: {error.strerror}; check the disk"
                    ) from error
                LOG.warning("%r is closed, but its manifest could not be written: %s", str(self._folder), error)
            except StorageError as error:
                LOG.warning("%s", error)
            finally:
                self._give_up(f"{str(self._folder)!r} is closed; open it again to change it")

    def _note_size(self) -> None:
        """Write to the manifest how long the log is: from now on a shorter log is damaged."""
        with locks.locked(self._folder):
            self._check_there()
            manifest = manifests.read_manifest(self._folder)
            if manifest["log"]["number"] == self._log.position.log:  # else a fold has failed since
                facts = {key: manifest[key] for key in manifest if key not in _ABOUT}
                self._write_manifest(facts, self._log.position.offset)

    def abandon(self) -> None:
        """In a forked child: the folder stays the parent's."""
        self._make_locks()
        if not self._why_not:
            self._give_up(
                f"{str(self._folder)!r} is open for writing in the parent of this process: change it there, or close it"
                " there and open it here"
            )

    def __del__(self) -> None:
        """If a matcher is lost, its folder can be opened again."""
        if not self._why_not:
            self._give_up("nobody has it")

    def _give_up(self, why: str) -> None:
        self._why_not = why
        self._log.close()
        locks.release(self._lock)


def _is_filed(piece: Piece) -> TypeGuard[Segment]:
    """Whether it is large enough for files of its own."""
    return isinstance(piece, Segment) and piece.fresh is None


def _lasting(files: Files) -> Files:
    return {name: entry for name, entry in files.items() if name != REMOVED}


def _version(position: Position) -> dict[str, Any]:
    return {"number": position.number, "chain": position.chain.hex()}
