"""Reading a folder: the index in it, and for readers that follow it, what has changed since."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from gpumatch.errors import IdError, StorageError
from gpumatch.store.checks import check_ids, ids_from, understood
from gpumatch.store.folder import directory, manifests
from gpumatch.store.folder import remote as storage
from gpumatch.store.folder.directory import Stored, Verify
from gpumatch.store.folder.log import Change, Position
from gpumatch.store.folder.place import is_uri, shown
from gpumatch.store.segment import Segment, check_kinds, removed_from, segment_from
from gpumatch.store.snapshot import Piece, Snapshot
from gpumatch.store.store import Store
from gpumatch.subscriptions.block import Attributes


def restore(
    store: Store, attributes: Attributes, stored: Stored, known: Mapping[str, Segment] | None = None
) -> list[Segment]:
    """Put what was read into a store; returns the segments of the manifest, reusing those in ``known``."""
    found = []
    with understood():
        for (facts, arrays), files in zip_longest(stored.segments, stored.files):  # shards have no files here
            same = known.get(manifests.segment_key({**facts, "arrays": files})) if known and files else None
            if same is None:
                found.append(segment_from(facts, arrays, attributes, stored.full))
            else:
                found.append((same, removed_from(arrays)))
        check_kinds([segment for segment, _ in found])
    store.restore(Snapshot(tuple(segment for segment, _ in found), tuple(gone for _, gone in found)))
    store.routes = store.routes or bool(stored.meta.get("routes"))
    for change in stored.changes:
        replay(store, attributes, change, stored.full)
    return [segment for segment, _ in found]


def replay(store: Store, attributes: Attributes, change: Change, full: bool) -> None:
    """Apply a change of the log."""
    removed, piece = None, None
    try:
        with understood():
            if change.removed:
                check_ids(change.removed)
                removed = ids_from(change.removed)
            if change.facts is not None:
                piece = _piece(change, attributes, full)
            store.replay(removed, piece, full)
    except (IdError, pa.ArrowException) as error:
        raise StorageError(f"the log of the saved index is damaged: {error}; build it again") from error


def _piece(change: Change, attributes: Attributes, full: bool) -> Piece:
    segment, _ = segment_from(change.facts or {}, change.arrays or {}, attributes, full)
    return segment if segment.fresh is None else segment.fresh


class Follower:
    """A store whose changes are made elsewhere, in a folder or a place that is read again on demand."""

    def __init__(
        self, path: str | os.PathLike[str], store: Store, attributes: Attributes, mmap: bool, verify: Verify
    ) -> None:
        self._path, self._store, self._attributes, self._mmap, self._verify = path, store, attributes, mmap, verify
        self._known: dict[str, Segment] = {}
        self.abandon()

    def begin(self, stored: Stored, segments: list[Segment]) -> None:
        """Continue from what was read."""
        self._stored, self._position = stored, stored.position
        entries = zip(stored.segments, stored.files, segments, strict=False)  # shards have no files here
        self._known = {manifests.segment_key({**facts, "arrays": files}): it for (facts, _), files, it in entries}

    @property
    def version(self) -> str:
        return self._position.version

    @property
    def position(self) -> Position:
        return self._position

    @property
    def nbytes(self) -> int:
        """Of the files, without those of later changes."""
        return self._stored.nbytes

    @property
    def has_shards(self) -> bool:
        return "shards" in self._stored.meta["features"]

    @property
    def checksum(self) -> str:
        """Of the manifest that led to the version."""
        return self._stored.checksum

    def move(self, version: str) -> None:
        """Move to a version by its name, a later one or an earlier one."""
        with self._refreshing:
            if version == self.version or self._goes_on_to(version):
                return
            self._reload(version)

    def _goes_on_to(self, version: str) -> bool:
        """Move there along the log, which is faster; whether it leads there."""
        with suppress(StorageError):
            manifest = storage.read_manifest(self._path)
            if manifest["checksum"] == self.checksum:
                self._catch_up(manifest, version)
        return version == self.version

    def refresh(self) -> bool:
        """Pick up changes since the last time; whether there were any."""
        with self._refreshing:
            manifest = storage.read_manifest(self._path)
            if manifest["checksum"] != self._stored.checksum:
                return self._reload()
            return not is_uri(self._path) and self._catch_up(manifest)

    def _catch_up(self, manifest: Mapping[str, Any], last: str = "") -> bool:
        """Read what was added to the log, up to a version if one is named."""
        news = []
        try:
            for position, change in directory.changes_after(Path(self._path), manifest, self._position):
                news.append((position, change))
                if position.version == last:
                    break
        except (OSError, StorageError):  # the log has been folded and removed, or its last change was rolled back
            return self._reload(last or None)
        if last and (not news or news[-1][0].version != last):
            return False
        if any(change.files is not None for _, change in news):
            return self._reload(last or None)
        for position, change in news:
            replay(self._store, self._attributes, change, self._stored.full)
            self._position = position
        self._store.tidy_up()  # else each search would leave one more small segment
        return bool(news)

    def _reload(self, version: str | None = None) -> bool:
        """Read a manifest and what follows it; open segments are reused."""
        stored = storage.read(self._path, self._mmap, self._verify, version, self._known)
        if list(stored.meta["schema"].items()) != list(self._stored.meta["schema"].items()):  # in this order
            raise StorageError(
                f"the index at {shown(self._path)!r} has another schema now; open it again, or restart the query"
            )
        fresh = Store(self._attributes, self._store.build, background=False)
        segments = restore(fresh, self._attributes, stored, self._known)
        before = self._position
        self._store.take_over(fresh)
        self.begin(stored, segments)
        return before.version != self._position.version

    # As a journal: it stores nothing

    def prepare(self, piece: Piece) -> None:
        self._refuse()

    def commit(self, what: str, removed: Any, piece: Piece | None, publish: Callable[[], None]) -> None:
        self._refuse()

    def _refuse(self) -> None:
        if self.has_shards:
            raise StorageError(
                f"the index at {shown(self._path)!r} has shards, which only Spark changes: build it again with "
                "build_index(); to change a copy in memory, load() it"
            )
        raise StorageError(
            f"the index at {shown(self._path)!r} is open for reading: to change it, open it with mode='a'; to change "
            "a copy in memory, load() it"
        )

    def is_due(self) -> bool:
        return False

    def fold(self) -> None:
        """There is nothing to write."""

    def flush(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        """Files stay open as long as they are mapped."""

    def abandon(self) -> None:
        self._refreshing = threading.Lock()
