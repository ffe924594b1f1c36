"""Ships matchers and compiled kernels to executors, as archives that Spark unpacks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import gpumatch as gm
from gpumatch.spark.frames import is_local
from gpumatch.store.folder.manifests import MANIFEST, read_manifest
from gpumatch.store.snapshot import Snapshot
from gpumatch.warming import pack_kernels, use_kernels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_shipped: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
_kernels: WeakKeyDictionary[SparkSession, str] = WeakKeyDictionary()
_saved: WeakKeyDictionary[gm.Matcher, tuple[Snapshot, str]] = WeakKeyDictionary()  # what was shipped, and its checksum


def ship(session: SparkSession, matcher: gm.Matcher) -> str:
    """The name under which ``SparkFiles.get`` finds the matcher's folder on every executor.

    It is an archive because ``addFile`` accepts local folders only with a local master. It stays until this process
    ends, because executors fetch it with their first task.
    """
    names = _shipped.setdefault(session, {})
    snapshot = matcher._seal()
    sealed, key = _saved.get(matcher, (None, ""))
    if sealed is snapshot and key in names:
        return names[key]
    with tempfile.TemporaryDirectory(prefix="gpumatch-") as saved:
        matcher.save(saved)
        key = read_manifest(Path(saved))["checksum"]
        _saved[matcher] = snapshot, key
        if key not in names:
            folder = Path(tempfile.mkdtemp(prefix="gpumatch-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            archive = folder / f"{folder.name}.zip"  # Spark requires unique names
            _archive(Path(saved), archive)
            session.addArtifacts(f"{archive}#{folder.name}", archive=True)
            names[key] = folder.name
    return names[key]


def ship_kernels(session: SparkSession) -> str:
    """The name under which executors find this machine's machine code; empty if they run here, or there is none."""
    if is_local(session):
        return ""
    if session not in _kernels:
        folder = Path(tempfile.mkdtemp(prefix="gpumatch-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        archive, packed = folder / f"{folder.name}.zip", 0
        with suppress(OSError):  # it helps, but is not needed
            packed = pack_kernels(archive)
        if packed:
            session.addArtifacts(f"{archive}#{folder.name}", archive=True)
        _kernels[session] = folder.name if packed else ""
    return _kernels[session]


def use_shipped_kernels(name: str) -> None:
    """Use them on an executor."""
    use_kernels(unpacked(name))


def unpacked(name: str) -> Path:
    """Where an archive is on an executor.

    Through Connect it is in the folder of a session. The tasks of a stream are told the folder above these.
    """
    from pyspark import SparkFiles

    told = Path(SparkFiles.get(name))
    if told.exists():
        return told
    return next((path for path in told.parent.glob(f"*/{name}") if (path / MANIFEST).exists()), told)


def _archive(source: Path, target: Path) -> None:
    """Uncompressed: arrays of codes hardly shrink, and time matters more."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(source.rglob("*"), key=lambda path: path.name == MANIFEST):  # last: then all is there
            archive.write(path, path.relative_to(source))
