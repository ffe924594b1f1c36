"""Indexes at a path: in a folder (``directory``), or in a store (``place``) if the path is a URI.

Readers of a store fetch what their machine lacks (``copies``), and map it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpumatch.errors import StorageError
from gpumatch.store.folder import copies, directory, manifests
from gpumatch.store.folder.directory import Stored, Verify
from gpumatch.store.folder.place import GoneError, Place, Where, each, is_uri, shown


def below(path: Where, name: str) -> str:
    """The path of a folder inside another."""
    text = os.fspath(path)
    if not is_uri(text):
        return os.path.join(text, name)
    place, mark, options = text.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def prepare(path: Where) -> None:
    """Make a folder, or check that a store can be reached and accepts an index there."""
    if is_uri(path):
        Place(path).contents()
    else:
        directory.make(path)


def write(
    path: Where, meta: Mapping[str, Any], segments: Sequence[tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]]
) -> str:
    """Save an index, replacing the one that is there, if any. Returns the digest."""
    if not is_uri(path):
        return directory.write(path, meta, segments)
    place = Place(path)
    before = place.contents()
    if manifests.MANIFEST in before:
        directory.warn_of_shards(place.manifest, shown(path))
    with tempfile.TemporaryDirectory(prefix="gpumatch-", dir=copies.disk()) as folder:
        digest = directory.write(folder, meta, segments)
        place.put(Path(folder), before)
    return digest


def write_shards(path: Where, shards: Sequence[str], plan: str | None = None) -> str:
    """Make one index of indexes in folders below ``path``. See ``directory.write_shards``."""
    if not is_uri(path):
        return directory.write_shards(path, shards, plan)
    place = Place(path)
    before = place.contents()
    found = dict(zip(shards, each(place.manifest, shards), strict=True))
    manifest = manifests.manifest_of_shards(found, None if plan is None else (plan, place.manifest(plan)))
    named = {*shards, *filter(None, [plan]), *manifests.shards_before(place.manifest)}
    place.replace_manifest(json.dumps(manifest, indent=1).encode(), named, before)
    return str(manifest["checksum"])


def read_manifest(path: Where) -> dict[str, Any]:
    """The manifest, checked: right format, known features, unaltered."""
    if not is_uri(path):
        return manifests.read_manifest(Path(path))
    manifest = Place(path).manifest()
    copies.touch(manifest["checksum"])
    return manifest


def read(
    path: Where, mmap: bool = True, verify: Verify = "once", version: str | None = None, known: Collection[str] = ()
) -> Stored:
    """Open an index, from a local copy if it is in a store. See ``directory.read``."""
    if not is_uri(path):
        return directory.read(path, mmap, verify, version, known)
    place = Place(path)
    manifest, altered = place.manifest(), False
    while True:
        try:
            with copies.version(manifest["checksum"], partial(place.fetch, manifest)) as folder:
                try:
                    return directory.read(folder, mmap, verify, version, known)
                except StorageError:  # files were removed or altered here, for instance by a cleaner of /tmp
                    if altered:
                        raise
                    altered = True
                    copies.discard(folder)
        except GoneError:
            # Another process may have saved over the index while it was being fetched.
            found = place.manifest()
            if found["checksum"] == manifest["checksum"]:
                raise
            manifest = found


def sizes(path: Where) -> list[int]:
    """The sizes of all files below a path."""
    if is_uri(path):
        return [info.size for info in Place(path).listed("", recursive=True) if info.is_file]
    return [file.stat().st_size for file in Path(path).rglob("*") if file.is_file()]
