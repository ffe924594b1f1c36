"""What changed in a folder, and when, as far back as versions are kept there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumatch.errors import StorageError
from gpumatch.store.checks import check_ids, ids_from, understood
from gpumatch.store.folder import directory, manifests
from gpumatch.store.folder.log import Change


@dataclass(frozen=True, slots=True)
class Entry:
    """A version that ``load`` still finds, and the call that made it."""

    version: str
    what: str = ""  # the call; empty for the oldest version, whose call is no longer known
    at: float | None = None  # seconds since 1970
    added: int = 0
    removed: int = 0


def history(folder: Path) -> list[Entry]:
    """All versions of an index, the oldest first."""
    while True:
        newest = manifests.read_manifest(folder)
        if newest.get("shards"):
            raise StorageError(f"the index at {str(folder)!r} has shards, and no log: each version is built anew")
        try:
            return _leading_to(folder, newest)
        except (FileNotFoundError, StorageError):  # perhaps the writer has just removed that version
            if manifests.read_manifest(folder)["checksum"] == newest["checksum"]:
                raise


def _leading_to(folder: Path, newest: Mapping[str, Any]) -> list[Entry]:
    """From the oldest manifest that leads to this one. Streams may have pinned others, of a replaced index."""
    version = manifests.position_of(newest)[0].version
    for manifest in reversed(manifests.written(folder)):
        with suppress(FileNotFoundError, StorageError):  # it is being removed, or was saved over
            found = _since(folder, manifest)
            if any(entry.version == version for entry in found):
                return found
    return _since(folder, newest)


def _since(folder: Path, manifest: Mapping[str, Any]) -> list[Entry]:
    first, _ = manifests.position_of(manifest)
    found = [Entry(first.version)]
    for position, change in directory.changes_after(folder, manifest):
        with understood():
            found.append(_entry(position.version, change))
    return found


def _entry(version: str, change: Change) -> Entry:
    removed = 0
    if change.removed:
        check_ids(change.removed)
        removed = len(ids_from(change.removed))
    added = 0 if change.facts is None else int(change.facts["length"])
    return Entry(version, change.what, change.at, added, removed)
