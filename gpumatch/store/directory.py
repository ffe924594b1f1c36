"""The directory format: a manifest, plain arrays that memory-map, and for a durable index a log of its changes.

``manifest.json`` names every file with its size and SHA-256, and carries a checksum of its own. Files are written under
names that hold their hash; then the manifest is replaced by a rename; then files that it no longer names are removed. A
crash at any instant leaves the old index or the new one. There is no pickle: opening an index runs no code from it.
docs/format.md has the details.
"""

from __future__ import annotations

import errno
import fcntl
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
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from gpumatch.store.disk import remove, replace, sync_folder
from gpumatch.store.log import CHAIN, Change, Files, Position, log_number, read_log
from gpumatch.store.verified import facts_of, mark, mark_key, marked

Verify: TypeAlias = "bool | Literal['full', 'once', 'size']"  # True is full, False is size

FORMAT, BEFORE = 6, 5  # the one that is written, and the oldest that is read
FEATURES = frozenset({"patterns", "shards"})  # a reader must refuse an index with features that it does not know
MANIFEST = "manifest.json"
_OWN_FILE = re.compile(r"s[0-9]+\.[\w.]+-[0-9a-f]{16}\.npy")
_SHARD = re.compile(r"(shard-[0-9]+|plan)-[0-9a-f]{16}")
_KEPT = re.compile(r"manifest-[0-9a-f]{16}\.json")  # of an earlier version
_DRAFT = re.compile(r"\.(.+)\.[0-9]+\.tmp")
LOCK = "writer.lock"
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
    with locked(folder):
        check_unused(folder)
        warn_of_shards(lambda: read_manifest(folder), str(folder))
        entries = [
            {**facts, "arrays": write_arrays(folder, arrays, number)} for number, (facts, arrays) in enumerate(segments)
        ]
        digest = write_manifest(folder, {"features": [], **meta, "segments": entries})
        remove_stale(folder, {file["file"] for entry in entries for file in entry["arrays"].values()})
    return digest


def make(path: str | os.PathLike[str]) -> Path:
    """The folder for an index, made if it does not exist; one with other files is refused."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise StorageError(f"cannot save in {str(folder)!r}: it is a file, expected a directory") from None
    except OSError as error:
        raise StorageError(f"cannot save in {str(folder)!r}: {error.strerror}") from error
    check_target(str(folder), os.listdir(folder), lambda: _has_manifest(folder))
    return folder


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], number: int = 0) -> Files:
    """Write those that are not there yet. ``number`` is part of the names of the files."""
    return {name: _write_array(folder, f"s{number}.{name}", array) for name, array in arrays.items()}


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> str:
    """Make the index consist of files that are there. Returns the digest."""
    manifest = {"format": FORMAT, **facts}
    digest = _digest(manifest)
    sync_folder(folder)  # files must be on disk before the manifest that names them
    replace(folder / MANIFEST, json.dumps({**manifest, "checksum": digest}, indent=1).encode())
    sync_folder(folder)
    return digest


def write_shards(path: str | os.PathLike[str], shards: Sequence[str], plan: str | None = None) -> str:
    """Make one index of indexes in folders below ``path``, which ``shard_name`` named. Returns the digest.

    ``plan`` is another such folder, which says how events reach the shards.
    """
    folder = make(path)
    with locked(folder):
        check_unused(folder)
        found = {name: read_manifest(folder / name) for name in shards}
        before = shards_before(lambda: read_manifest(folder))
        manifest = manifest_of_shards(found, None if plan is None else (plan, read_manifest(folder / plan)))
        replace(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        sync_folder(folder)
        remove_stale(folder, {*shards, *filter(None, [plan]), *before})
    return str(manifest["checksum"])


def manifest_of_shards(
    shards: Mapping[str, Mapping[str, Any]], plan: tuple[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The manifest of an index of indexes, from theirs by the names of their folders, and from that of a plan."""
    first = next(iter(shards.values()))
    features = {"shards"}.union(*(manifest["features"] for manifest in shards.values()))
    meta = {key: first[key] for key in ("schema", "index", "memory_limit")}
    entries = [{"folder": name, "checksum": manifest["checksum"]} for name, manifest in shards.items()]
    manifest = {"format": FORMAT, **meta, "features": sorted(features), "shards": entries, "segments": []}
    if plan is not None:
        manifest["plan"] = {"folder": plan[0], "checksum": plan[1]["checksum"]}
    return {**manifest, "checksum": _digest(manifest)}


def shards_before(read: Callable[[], Mapping[str, Any]]) -> set[str]:
    """The folders of the version that a build replaces: they stay until the next, for who was led to them already."""
    try:
        manifest = read()
    except StorageError:
        return set()
    plan = [manifest["plan"]] if "plan" in manifest else []
    return {str(entry["folder"]) for entry in [*manifest.get("shards", []), *plan]}


def warn_of_shards(read: Callable[[], Mapping[str, Any]], where: str) -> None:
    """An index without shards takes the place of one that has them."""
    if shards_before(read):
        warnings.warn(
            f"the index at {where!r} had shards, and is one index now: Spark no longer routes events to it; build it "
            "with build_index(shards=…) to change that",
            GpumatchWarning,
            stacklevel=5,  # at the call of save
        )


def shard_name(number: int, digest: str) -> str:
    return f"shard-{number}-{digest[:16]}"


def plan_name(shards: Sequence[str]) -> str:
    """The folder of a plan for these shards."""
    return f"plan-{hashlib.sha256(' '.join(shards).encode()).hexdigest()[:16]}"


def remove_stale(folder: Path, named: set[str]) -> None:
    """Remove what the manifest no longer names."""
    for stale in folder.iterdir():
        if stale.name in named or stale.name == LOCK:
            continue
        if is_shard(stale.name):
            shutil.rmtree(stale, ignore_errors=True)
        elif is_file(stale.name):
            remove(stale)


def is_shard(name: str) -> bool:
    return _SHARD.fullmatch(name) is not None


def is_file(name: str) -> bool:
    """Whether it is the name of an array, a log, an earlier manifest, the lock, or a draft that a crash left."""
    draft = _DRAFT.fullmatch(name)
    name = name if draft is None else draft[1]
    own = _OWN_FILE.fullmatch(name) or _KEPT.fullmatch(name) or log_number(name) is not None or name == LOCK
    return bool(own) or (draft is not None and name == MANIFEST)


def read(
    path: str | os.PathLike[str],
    mmap: bool = True,
    verify: Verify = "once",
    version: str | None = None,
    known: Collection[str] = (),
) -> Stored:
    """Open an index. Sizes are always compared, checksums unless ``verify`` is "size", and "once" if that suffices.

    ``version``: the name of one, instead of the newest. Of segments whose ``segment_key`` is ``known`` only the removed
    rows are read.
    """
    if isinstance(verify, bool):
        verify = "full" if verify else "size"
    if verify not in ("full", "once", "size"):
        raise ValueError(f"verify is 'full', 'once' or 'size', found {verify!r}")
    folder = Path(path)
    manifest = read_manifest(folder)
    while True:
        try:
            if version is not None:
                return _read_version(folder, version, mmap, verify)
            return _read_all(folder, manifest, mmap, verify, known)
        except FileNotFoundError as error:
            # Another process may have saved over the index while it was being read.
            found = read_manifest(folder)
            if found["checksum"] == manifest["checksum"]:
                raise StorageError(f"{error.filename!r} is missing; save or copy the index again") from None
            manifest = found
        except OSError as error:
            raise StorageError(f"cannot read {error.filename!r}: {error.strerror}") from error


def _read_version(folder: Path, name: str, mmap: bool, verify: Verify) -> Stored:
    number = name.partition("-")[0]
    for manifest in manifests(folder) if number.isdecimal() else ():
        if position_of(manifest)[0].number <= int(number):
            with suppress(FileNotFoundError):  # it is being removed
                found = _read_all(folder, manifest, mmap, verify, end=name)
                if found.position.version == name:
                    return found
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


def segment_key(entry: Mapping[str, Any]) -> str:
    """What identifies a segment of a manifest, apart from the rows that were removed from it."""
    files = {name: file["sha256"] for name, file in entry["arrays"].items() if name != REMOVED}
    return _digest({**entry, "arrays": files})


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
    """Those since a manifest, or a version that it leads to, each with the position after it."""
    first, durable = position_of(manifest)
    position = position or first
    for last, payload in read_log(folder, position, durable if first.log == position.log else 0):
        yield last, decoded(payload, last, folder)


def decoded(payload: bytes, position: Position, folder: Path) -> Change:
    """The change of a record."""
    try:
        return Change.decode(payload)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"{str(folder)!r} has a log whose change {position.number} cannot be read: {error!r}; build the index again"
        ) from None


def position_of(manifest: Mapping[str, Any]) -> tuple[Position, int]:
    """The version of a manifest and where its log begins; and how many bytes of that log are known to be there."""
    log = manifest.get("log", {"number": 1, "bytes": 0})
    version = manifest.get("version", {"number": 0, "chain": manifest["checksum"][:32]})
    return Position(log["number"], 0, version["number"], bytes.fromhex(version["chain"])), log["bytes"]


def manifests(folder: Path) -> list[dict[str, Any]]:
    """The manifest and those of earlier versions that are still there, the newest first."""
    found = [read_manifest(folder)]
    for path in kept_manifests(folder):
        with suppress(FileNotFoundError):
            found.append(checked_manifest(_content(path), str(path)))
    return sorted(found, key=lambda manifest: -position_of(manifest)[0].number)


def kept_manifests(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _KEPT.fullmatch(path.name)]


def kept_name(manifest: Mapping[str, Any]) -> str:
    """The file of a manifest when another has taken its place."""
    return f"manifest-{manifest['checksum'][:16]}.json"


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


def files_of(manifest: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Name, size and hash of each file beside a manifest; what lies elsewhere is refused."""
    entries = [entry for segment in manifest["segments"] for entry in segment["arrays"].values()]
    for entry in entries:
        name, size = str(entry["file"]), entry["size"]
        if not _OWN_FILE.fullmatch(name):
            raise StorageError(f"the manifest of {where!r} names {name!r}, which is no file of an index")
        if type(size) is not int or size < 0 or not isinstance(entry["sha256"], str):
            raise StorageError(f"the manifest of {where!r} gives {name!r} no right size and checksum")
    distinct = {json.dumps(entry, sort_keys=True): str(entry["file"]) for entry in entries}
    _check_different(list(distinct.values()), where)  # equal arrays may share a file
    return entries


def _check_different(names: list[str], where: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise StorageError(f"the manifest of {where!r} names {name!r} {count} times")


def shards_of(manifest: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Folder and checksum of each shard below a manifest; shards or a plan that lie elsewhere are refused."""
    entries: list[dict[str, Any]] = manifest.get("shards", [])
    plan = [manifest["plan"]] if "plan" in manifest else []
    for name in (str(entry["folder"]) for entry in [*entries, *plan]):
        if not is_shard(name):
            raise StorageError(f"the manifest of {where!r} names {name!r}, which is no shard of an index")
    _check_different([entry["folder"] for entry in entries], where)
    return entries


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, checked: right format, known features, unaltered."""
    try:
        content = _content(folder / MANIFEST)
    except FileNotFoundError:
        what = "is not a saved index: it has no manifest.json" if folder.is_dir() else "does not exist"
        raise StorageError(f"{str(folder)!r} {what}") from None
    except NotADirectoryError:
        raise StorageError(f"{str(folder)!r} is a file; a saved index is a directory") from None
    except OSError as error:
        raise StorageError(f"cannot read {str(folder / MANIFEST)!r}: {error.strerror}") from error
    return checked_manifest(content, str(folder))


def _content(path: Path) -> bytes:
    """The bytes of a file; anything else, such as a pipe that would never end, is an OSError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return path.read_bytes()


def checked_manifest(content: bytes, where: str) -> dict[str, Any]:
    """The manifest in a file of the place ``where``."""
    try:
        manifest: dict[str, Any] = _parsed(content)
        found = manifest if isinstance(manifest, dict) else {}
        digest = _digest({key: value for key, value in found.items() if key != "checksum"})
    except (ValueError, RecursionError) as error:
        raise StorageError(f"the manifest of {where!r} is damaged: {error}; save the index again") from None
    if not _is_ours(manifest):
        raise StorageError(f"the manifest of {where!r} is not one of gpumatch; name another directory")
    if manifest["format"] > FORMAT:
        raise StorageError(
            f"{where!r} has format {manifest['format']}, this version reads up to {FORMAT}; upgrade gpumatch"
        )
    if manifest["format"] < BEFORE:
        raise StorageError(
            f"{where!r} has format {manifest['format']}, expected {BEFORE} or {FORMAT}; build the index again"
        )
    unknown = sorted(set(map(str, manifest["features"])) - FEATURES)
    if unknown:
        raise StorageError(f"{where!r} needs {', '.join(unknown)}, which this version lacks; upgrade gpumatch")
    if manifest["checksum"] != digest:
        raise StorageError(f"the manifest of {where!r} was altered: its checksum differs; save the index again")
    try:
        files_of(manifest, where)
        shards_of(manifest, where)
        _check_version(manifest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"the manifest of {where!r} is damaged: {error!r}; save the index again") from None
    return manifest


def _check_version(manifest: Mapping[str, Any]) -> None:
    position, durable = position_of(manifest)
    for number in (position.log, position.number, durable):
        if type(number) is not int or number < 0:
            raise ValueError(f"it has the number {number!r} in its version or log")
    if len(position.chain) != CHAIN:
        raise ValueError(f"the chain of its version has {len(position.chain)} bytes, expected {CHAIN}")


def _is_ours(manifest: Any) -> bool:
    if not isinstance(manifest, dict):
        return False
    expected = {"format": int, "features": list, "checksum": str}
    return all(isinstance(manifest.get(key), kind) for key, kind in expected.items())


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_unused(folder: Path) -> None:
    """Raise if the index is open for writing."""
    with suppress(FileNotFoundError):
        os.close(take_lock(folder, os.O_RDWR))


def take_lock(folder: Path, flags: int) -> int:
    """The descriptor of the lock of the folder's writer, which closing it gives back, or the end of the process."""
    descriptor = os.open(folder / LOCK, flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 200).decode(errors="replace") or "another process"
        os.close(descriptor)
        raise StorageError(f"{str(folder)!r} is open for writing in {owner}; close it there first") from None
    return descriptor


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time among all threads and processes: each would remove the files that the other is writing."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_target(where: str, names: Sequence[str], has_manifest: Callable[[], bool]) -> None:
    """Raise unless the names are none, or those of an index, whole or damaged, or what a crash left of one."""
    others = sorted(name for name in names if not is_file(name) and not is_shard(name))
    if others and not (MANIFEST in others and (has_manifest() or len(others) < len(names))):
        raise StorageError(
            f"cannot save in {where!r}: it holds other files ({others[0]!r}); name a new or empty directory"
        )


def _has_manifest(folder: Path) -> bool:
    try:
        return is_manifest(_content(folder / MANIFEST))
    except OSError:
        return False


def is_manifest(content: bytes) -> bool:
    """Whether gpumatch wrote it, this version or another."""
    try:
        return _is_ours(_parsed(content))
    except (ValueError, RecursionError):
        return False


def _parsed(content: bytes) -> Any:
    """JSON in which every name occurs once, and every number is one."""
    return json.loads(content, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"it has the name {name!r} twice in one place")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is no number")
    return float(text)


def _write_array(folder: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
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

    NumPy's own reader evaluates the header as a Python literal, and takes more than we write.
    """
    with open(path, "rb") as file:
        start = file.read(10)
        if start[:8] != npy.magic(1, 0):
            raise ValueError("it does not begin like one")
        header = file.read(int.from_bytes(start[8:], "little"))
    match = _HEADER.fullmatch(header)
    if match is None or (len(start) + len(header)) % npy.ARRAY_ALIGN:  # as all that NumPy writes
        raise ValueError(f"its header is {header[:100]!r}")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(number) for number in match[2].split(b",") if number)
    if math.prod(shape) * dtype.itemsize != size - len(start) - len(header):
        raise ValueError(f"it has {size - len(start) - len(header)} bytes for the shape {shape} of {dtype}")
    return dtype, shape, len(start) + len(header)
