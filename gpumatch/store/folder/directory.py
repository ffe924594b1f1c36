"""The directory format: a manifest, plain arrays that memory-map, and for a durable index a log of its changes.

``manifest.json`` names every file with its size and SHA-256, and carries a checksum of its own. Files are written under
names that hold their hash; then the manifest is replaced by a rename; then files that it no longer names are removed. A
crash at any instant leaves the old index or the new one. There is no pickle: opening an index runs no code from it.
docs/format.md has the details.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gpumatch.errors import GpumatchWarning, StorageError
from gpumatch.store.checks import REMOVED
from gpumatch.store.folder import pins
from gpumatch.store.folder.disk import remove, replace, sync_folder
from gpumatch.store.folder.locks import check_unused, locked
from gpumatch.store.folder.log import Change, Files, Position, log_name, log_number, read_log
from gpumatch.store.folder.manifests import (
    FORMAT,
    LOCK,
    MANIFEST,
    PINS,
    checked_manifest,
    digest_of,
    files_of,
    has_manifest,
    is_file,
    is_kept,
    is_shard,
    manifest_of_shards,
    position_of,
    read_manifest,
    segment_key,
    shards_before,
    shards_of,
    written,
)
from gpumatch.store.folder.verified import facts_of, mark, mark_key, marked

Verify: TypeAlias = "bool | Literal['full', 'once', 'size']"  # True is full, False is size

# What NumPy writes before the bytes of plain numbers, in the order of this machine
_HEADER = re.compile(
    rb"\{'descr': '((?:\||%b)[biufc]\d{1,2})', 'fortran_order': False, 'shape': \((\d+,|\d+(?:, \d+)+|)\), \} *\n"
    % (b"<" if sys.byteorder == "little" else b">")
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Contents of a directory: facts, and for each segment facts and arrays."""

    meta: dict[str, Any]
    segments: list[tuple[dict[str, Any], dict[str, NDArray[Any]]]]
    digest: str  # of everything, so that it identifies this version of the index
    nbytes: int  # of the files
    full: bool = False  # values are to be checked, too
    checksum: str = ""  # of the manifest
    files: list[Files] = field(default_factory=list)  # of each segment beside the manifest: where its arrays are
    changes: list[Change] = field(default_factory=list)  # since the manifest was written
    position: Position = field(kw_only=True)  # after these changes


def write(
    path: str | os.PathLike[str],
    meta: Mapping[str, Any],
    segments: Sequence[tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]],
) -> str:
    """Save an index, replacing the one that is there, if any. Returns the digest."""
    folder = make(path)
    with _saving(folder), locked(folder):
        check_unused(folder)
        warn_of_shards(lambda: read_manifest(folder), str(folder))
        entries = [
            {**facts, "arrays": write_arrays(folder, arrays, number)} for number, (facts, arrays) in enumerate(segments)
        ]
        pinned, number = pinned_files(folder), _next_log(folder)
        logs = {"log": {"number": number, "bytes": 0}} if number > 1 else {}
        digest = write_manifest(folder, {"features": [], **meta, **logs, "segments": entries})
        remove_stale(folder, pinned | {file["file"] for entry in entries for file in entry["arrays"].values()})
    return digest


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot save in {str(folder)!r}: {error.strerror}; the index that was there, if any, is unharmed: make "
            "room or check the disk, and save again"
        ) from error


def _next_log(folder: Path) -> int:
    """A number that no log has.

    Logs of pinned versions stay. Others may reappear after a power failure, and would continue this index if it is the
    same as before.
    """
    return max((log_number(name) or 0 for name in os.listdir(folder)), default=0) + 1


def make(path: str | os.PathLike[str]) -> Path:
    """The folder for an index, made if it does not exist; one with other files is refused."""
    folder = Path(path)
    try:
        missing = [it for it in (folder, *folder.parents) if not it.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for made in missing:
            with suppress(PermissionError):  # one that may not be read
                sync_folder(made.parent)
    except (FileExistsError, NotADirectoryError):
        raise StorageError(f"cannot save in {str(folder)!r}: it is a file, expected a directory") from None
    except OSError as error:
        raise StorageError(f"cannot save in {str(folder)!r}: {error.strerror}") from error
    check_target(str(folder), os.listdir(folder), lambda: has_manifest(folder))
    return folder


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], number: int = 0) -> Files:
    """Write those that are not there yet, all or none. ``number`` is part of the names of the files."""
    new: list[Path] = []
    try:
        return {name: _write_array(folder, f"s{number}.{name}", array, new) for name, array in arrays.items()}
    except OSError:
        for path in new:  # on a full disk they would be in the way of what makes room
            with suppress(OSError):
                remove(path)
        raise


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> str:
    """Make the index consist of files that are there. Returns the digest."""
    manifest = {"format": FORMAT, **facts}
    digest = digest_of(manifest)
    sync_folder(folder)  # files must be on disk before the manifest that names them
    replace(folder / MANIFEST, json.dumps({**manifest, "checksum": digest}, indent=1).encode())
    sync_folder(folder)
    return digest


def write_shards(path: str | os.PathLike[str], shards: Sequence[str], plan: str | None = None) -> str:
    """Make one index of indexes in folders below ``path``, which ``shard_name`` named. Returns the digest.

    ``plan`` is another such folder, which says how events reach the shards.
    """
    folder = make(path)
    with _saving(folder), locked(folder):
        check_unused(folder)
        found = {name: read_manifest(folder / name) for name in shards}
        before = shards_before(lambda: read_manifest(folder))
        manifest = manifest_of_shards(found, None if plan is None else (plan, read_manifest(folder / plan)))
        replace(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        sync_folder(folder)
        remove_stale(folder, pinned_files(folder) | {*shards, *filter(None, [plan]), *before})
    return str(manifest["checksum"])


def warn_of_shards(read: Callable[[], Mapping[str, Any]], where: str) -> None:
    """Warn if an index without shards replaces one that has them."""
    if shards_before(read):
        warnings.warn(
            f"the index at {where!r} had shards, and is one index now: Spark no longer routes events to it; build it "
            "with build_index(shards=…) to change that",
            GpumatchWarning,
            stacklevel=5,  # at the call of save
        )


def remove_stale(folder: Path, named: set[str]) -> None:
    """Remove what the manifest no longer names: first earlier manifests, or readers may find one without files."""
    for stale in sorted(folder.iterdir(), key=lambda path: not is_kept(path.name)):
        if stale.name in named or stale.name in (LOCK, PINS):
            continue
        if is_shard(stale.name):
            shutil.rmtree(stale, ignore_errors=True)
        elif is_file(stale.name):
            remove(stale)


def pinned_files(folder: Path, besides: Container[str] = ()) -> set[str]:
    """The names of what pinned versions need, as in ``remove_stale``. ``besides``: manifests that stay anyway."""
    found: set[str] = set()
    for name, last in pins.held(folder).items():
        if name in besides:
            continue
        with suppress(FileNotFoundError, StorageError):  # readers of a damaged version get the error
            manifest = checked_manifest((folder / name).read_bytes(), str(folder / name))
            found |= {name, *(entry["file"] for entry in files_of(manifest, name))}
            found |= {log_name(log) for log in range(position_of(manifest)[0].log, last + 1)}
            for position, change in changes_after(folder, manifest):
                if position.log > last:
                    break
                found |= {entry["file"] for entry in (change.files or {}).values()}
    return found


def read(
    path: str | os.PathLike[str],
    mmap: bool = True,
    verify: Verify = "once",
    version: str | None = None,
    known: Collection[str] = (),
) -> Stored:
    """Open an index. Sizes are always compared; checksums unless ``verify`` is "size", and only once if "once".

    ``version``: the name of one, instead of the newest. For segments whose ``segment_key`` is ``known``, only
    removed rows are read.
    """
    verify = checked_verify(verify)
    folder = Path(path)
    if version is not None:
        return _read_version(folder, version, mmap, verify, known)
    manifest = read_manifest(folder)
    while True:
        try:
            return _read_all(folder, manifest, mmap, verify, known)
        except (OSError, StorageError) as error:
            # Another process may have saved over the index, or folded its log, while it was being read.
            found = read_manifest(folder)
            if found["checksum"] == manifest["checksum"]:
                raise _unreadable(error) from None
            manifest = found


def checked_verify(verify: Verify) -> Verify:
    if isinstance(verify, bool):
        return "full" if verify else "size"
    if verify not in ("full", "once", "size"):
        raise ValueError(f"verify is 'full', 'once' or 'size', found {verify!r}")
    return verify


def _unreadable(error: OSError | StorageError) -> StorageError:
    if isinstance(error, StorageError):
        return error
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{error.filename!r} is missing; save or copy the index again")
    return StorageError(f"cannot read {error.filename!r}: {error.strerror}; save or copy the index again")


def _read_version(folder: Path, name: str, mmap: bool, verify: Verify, known: Collection[str]) -> Stored:
    if not isinstance(name, str):
        raise ValueError(f"version is the name of one, such as '12-9f86d081', found {name!r}")
    number = name.partition("-")[0]
    manifests = written(folder) if folder.is_dir() else []
    if not manifests:
        read_manifest(folder)  # says why
    damage = None
    for manifest in manifests if number.isdecimal() else ():
        if position_of(manifest)[0].number <= int(number):
            try:
                if _read_changes(folder, manifest, name)[1].version == name:
                    return _read_all(folder, manifest, mmap, verify, known, end=name)
            except FileNotFoundError:  # it is being removed
                continue
            except StorageError as error:  # another manifest may lead there
                if manifest["checksum"] in {it["checksum"] for it in written(folder)}:  # else it is being removed
                    damage = error
    if damage is not None:
        raise damage
    raise StorageError(f"{str(folder)!r} has no version {name!r}, or no longer; 'gpumatch log' lists those that it has")


def _read_all(
    folder: Path, manifest: Mapping[str, Any], mmap: bool, verify: Verify, known: Collection[str] = (), end: str = ""
) -> Stored:
    """``end``: the version whose changes are the last to be read."""
    where = str(folder)
    entries = files_of(manifest, where)
    changes, position = _read_changes(folder, manifest, end)
    named = [{"arrays": change.files} for change in changes if change.files is not None]
    entries += files_of({"segments": named}, where)
    facts = facts_of(folder, entries) if verify == "once" else {}
    marks = marked(folder) if verify == "once" else {}

    def arrays_of(files: Files) -> dict[str, NDArray[Any]]:
        found = {}
        for name, entry in files.items():
            key = mark_key(entry)
            is_sure = verify == "size" or (key in facts and marks.get(key) == facts[key])
            found[name] = _read_array(folder, entry, mmap, not is_sure)
        return found

    segments = []
    for segment in manifest["segments"]:
        files = segment["arrays"]
        if known and segment_key(segment) in known:
            files = {name: entry for name, entry in files.items() if name == REMOVED}
        segments.append(({key: value for key, value in segment.items() if key != "arrays"}, arrays_of(files)))
    changes = [it if it.files is None else replaced(it, arrays=arrays_of(it.files)) for it in changes]
    shards = [_read_shard(folder, entry, mmap, verify) for entry in shards_of(manifest, where)]
    segments += [segment for shard in shards for segment in shard.segments]
    if facts != marks and verify == "once":
        mark(folder, facts)
    meta = {key: value for key, value in manifest.items() if key not in ("segments", "shards", "checksum")}
    nbytes = sum(entry["size"] for entry in entries) + sum(shard.nbytes for shard in shards)
    digest = manifest["checksum"]
    if changes:
        digest = hashlib.sha256(f"{digest} {position.chain.hex()}".encode()).hexdigest()
    files = [segment["arrays"] for segment in manifest["segments"]]
    return Stored(
        meta, segments, digest, nbytes, verify == "full", manifest["checksum"], files, changes, position=position
    )


def _read_changes(folder: Path, manifest: Mapping[str, Any], end: str) -> tuple[list[Change], Position]:
    """The changes since a manifest was written, and where they end."""
    changes: list[Change] = []
    last, _ = position_of(manifest)
    if last.version == end:
        return changes, last
    for last, change in changes_after(folder, manifest):
        changes.append(change)
        if last.version == end:
            break
    return changes, last


def changes_after(
    folder: Path, manifest: Mapping[str, Any], position: Position | None = None
) -> Iterator[tuple[Position, Change]]:
    """The changes since a manifest, or a version that it leads to, each with the position after it."""
    first, durable = position_of(manifest)
    position = position or first
    for last, payload in read_log(folder, position, durable if first.log == position.log else 0):
        yield last, decoded(payload, last, folder)


def decoded(payload: bytes, position: Position, folder: Path) -> Change:
    """The change of a record."""
    try:
        change = Change.decode(payload)
        if change.files is not None:
            files_of({"segments": [{"arrays": change.files}]}, str(folder))
        return change
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise StorageError(
            f"{str(folder)!r} has a log whose change {position.number} cannot be read: {error!r}; build the index again"
        ) from None


def _read_shard(folder: Path, entry: Mapping[str, Any], mmap: bool, verify: Verify) -> Stored:
    name = str(entry["folder"])
    if not stat.S_ISDIR((folder / name).lstat().st_mode):
        raise StorageError(f"{str(folder / name)!r} is no folder; build or copy the index again")
    if shards_of(read_manifest(folder / name), str(folder / name)):
        raise StorageError(f"{str(folder / name)!r} is a shard and has shards; build the index again")
    shard = read(folder / name, mmap, verify)
    if shard.digest != entry["checksum"]:
        raise StorageError(f"{str(folder / name)!r} is another version than its manifest says; build the index again")
    return shard


def check_target(where: str, names: Sequence[str], has_manifest: Callable[[], bool]) -> None:
    """Raise unless a place is empty, or has an index, whole or damaged, or what a crash left of one."""
    others = sorted(name for name in names if not is_file(name) and not is_shard(name))
    if others and not (MANIFEST in others and (has_manifest() or len(others) < len(names))):
        raise StorageError(
            f"cannot save in {where!r}: it holds other files ({others[0]!r}); name a new or empty directory"
        )


def _write_array(folder: Path, name: str, array: NDArray[Any], new: list[Path]) -> dict[str, Any]:
    """``new``: files that were not there before."""
    header = io.BytesIO()
    array = np.ascontiguousarray(array)
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    digest = hashlib.sha256(header.getvalue())
    digest.update(array.data)
    file = f"{name}-{digest.hexdigest()[:16]}.npy"
    size = len(header.getvalue()) + array.nbytes
    path = folder / file
    if not (path.exists() and path.stat().st_size == size and _hash_file(path) == digest.hexdigest()):
        replace(path, header.getvalue(), array.data)
        new.append(path)
    return {"file": file, "size": size, "sha256": digest.hexdigest()}


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_array(folder: Path, entry: Mapping[str, Any], mmap: bool, verify: bool) -> NDArray[Any]:
    path = folder / entry["file"]
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise StorageError(f"{str(path)!r} is no plain file; save or copy the index again")
    size = facts.st_size
    if size != entry["size"]:
        raise StorageError(f"{str(path)!r} has {size} bytes, expected {entry['size']}; save or copy the index again")
    if verify and _hash_file(path) != entry["sha256"]:
        raise StorageError(f"{str(path)!r} was altered: its checksum differs; save or copy the index again")
    try:
        dtype, shape, start = _header(path, size)
        if mmap:
            array: NDArray[Any] = np.asarray(np.memmap(path, dtype, "r", start, shape))
        else:
            array = np.fromfile(path, dtype, offset=start).reshape(shape)
    except (ValueError, TypeError) as error:
        raise StorageError(f"{str(path)!r} is not an array: {error}; save or copy the index again") from None
    array.flags.writeable = False
    return array


def _header(path: Path, size: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Type and shape of an array of plain numbers, and where they start in the file.

    NumPy's own reader evaluates the header as a Python literal, and accepts more than we write.
    """
    with open(path, "rb") as file:
        start = file.read(10)
        if start[:8] != npy.magic(1, 0):
            raise ValueError("it does not begin like one")
        header = file.read(int.from_bytes(start[8:], "little"))
    match = _HEADER.fullmatch(header)
    if match is None or (len(start) + len(header)) % npy.ARRAY_ALIGN:  # which NumPy always aligns
        raise ValueError(f"its header is {header[:100]!r}")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(number) for number in match[2].split(b",") if number)
    if math.prod(shape) * dtype.itemsize != size - len(start) - len(header):
        raise ValueError(f"it has {size - len(start) - len(header)} bytes for the shape {shape} of {dtype}")
    return dtype, shape, len(start) + len(header)
