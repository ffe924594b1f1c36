"""The manifest of a saved index: what it says, the files and shards that it names, and whether it can be trusted."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpumatch.errors import StorageError
from gpumatch.store.checks import REMOVED
from gpumatch.store.folder import disk
from gpumatch.store.folder.log import CHAIN, Position, log_number

FORMAT, BEFORE = 6, 5  # the one that is written, and the oldest that is read
FEATURES = frozenset({"patterns", "shards"})  # a reader must refuse an index with features that it does not know
MANIFEST = "manifest.json"
LOCK = "writer.lock"
PINS = "pins"  # the folder of ``pins``
_MOST = 1 << 28  # bytes of a manifest; thousands of segments need a few million
_OWN_FILE = re.compile(r"s[0-9]+\.[\w.]+-[0-9a-f]{16}\.npy")
_SHARD = re.compile(r"(shard-[0-9]+|plan)-[0-9a-f]{16}")
_KEPT = re.compile(r"manifest-[0-9a-f]{16}\.json")  # of an earlier version
_DRAFT = re.compile(r"\.(.+)\.[0-9]+\.tmp")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, checked: right format, known features, unaltered."""
    try:
        content = _content(folder / MANIFEST)
    except FileNotFoundError:
        what = "is not a saved index: it has no manifest.json" if folder.is_dir() else "does not exist; check the path"
        raise StorageError(f"{str(folder)!r} {what}") from None
    except NotADirectoryError:
        raise StorageError(f"{str(folder)!r} is a file; a saved index is a directory") from None
    except OSError as error:
        raise StorageError(f"cannot read {str(folder / MANIFEST)!r}: {error.strerror}") from error
    return checked_manifest(content, str(folder))


def _content(path: Path) -> bytes:
    with disk.plain(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _MOST:
            raise StorageError(
                f"{str(path)!r} has {size:,} bytes, expected at most {_MOST:,}: it is no manifest; save the index again"
            )
        return file.read()


def checked_manifest(content: bytes, where: str) -> dict[str, Any]:
    """The manifest in a file of the place ``where``."""
    try:
        manifest: dict[str, Any] = _parsed(content)
        found = manifest if isinstance(manifest, dict) else {}
        digest = digest_of({key: value for key, value in found.items() if key != "checksum"})
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
        if "order" in manifest and manifest["order"] != order_of(manifest["schema"]):
            raise ValueError("its attributes are in another order than when it was written")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"the manifest of {where!r} is damaged: {error!r}; save the index again") from None
    return manifest


def _is_ours(manifest: Any) -> bool:
    if not isinstance(manifest, dict):
        return False
    expected = {"format": int, "features": list, "checksum": str}
    return all(isinstance(manifest.get(key), kind) for key, kind in expected.items())


def _check_version(manifest: Mapping[str, Any]) -> None:
    position, durable = position_of(manifest)
    for number in (position.log, position.number, durable):
        if type(number) is not int or not 0 <= number < 1 << 62:
            raise ValueError(f"it has the number {number!r} in its version or log")
    if len(position.chain) != CHAIN:
        raise ValueError(f"the chain of its version has {len(position.chain)} bytes, expected {CHAIN}")


def is_manifest(content: bytes) -> bool:
    """Whether gpumatch wrote it, this version or another."""
    try:
        return _is_ours(_parsed(content))
    except (ValueError, RecursionError):
        return False


def has_manifest(folder: Path) -> bool:
    try:
        return is_manifest(_content(folder / MANIFEST))
    except (OSError, StorageError):
        return False


def _parsed(content: bytes) -> Any:
    """JSON in which no object has a name twice, and every number is finite."""
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


def digest_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def order_of(names: Iterable[str]) -> str:
    """Tells one order of attributes from another, which the checksum of a manifest does not."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[:16]


def files_of(manifest: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Name, size and hash of each file beside a manifest; files elsewhere are refused."""
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
    """Folder and checksum of each shard below a manifest; shards or a plan elsewhere are refused."""
    entries: list[dict[str, Any]] = manifest.get("shards", [])
    plan = [manifest["plan"]] if "plan" in manifest else []
    for name in (str(entry["folder"]) for entry in [*entries, *plan]):
        if not is_shard(name):
            raise StorageError(f"the manifest of {where!r} names {name!r}, which is no shard of an index")
    _check_different([entry["folder"] for entry in entries], where)
    return entries


def segment_key(entry: Mapping[str, Any]) -> str:
    """What identifies a segment of a manifest, apart from the rows that were removed from it."""
    files = {name: file["sha256"] for name, file in entry["arrays"].items() if name != REMOVED}
    return digest_of({**entry, "arrays": files})


def position_of(manifest: Mapping[str, Any]) -> tuple[Position, int]:
    """The version of a manifest and where its log begins; and how many bytes of that log are known to be on disk."""
    log = manifest.get("log", {"number": 1, "bytes": 0})
    version = manifest.get("version", {"number": 0, "chain": manifest["checksum"][:32]})
    return Position(log["number"], 0, version["number"], bytes.fromhex(version["chain"])), log["bytes"]


def written(folder: Path) -> list[dict[str, Any]]:
    """The manifest and those of earlier versions that are still there, the newest first; damaged ones are left out."""
    newest = kept_manifest(folder / MANIFEST)  # first: if it is replaced meanwhile, it is among the others
    found = filter(None, [newest, *map(kept_manifest, kept_manifests(folder))])
    return sorted(found, key=lambda manifest: -position_of(manifest)[0].number)


def kept_manifests(folder: Path) -> list[Path]:
    return [folder / name for name in os.listdir(folder) if is_kept(name)]


def is_kept(name: str) -> bool:
    """Whether it names the manifest of an earlier version."""
    return _KEPT.fullmatch(name) is not None


def kept_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of an earlier version; None if it is gone or damaged, which does not matter to others."""
    try:
        return checked_manifest(_content(path), str(path))
    except (OSError, StorageError):
        return None


def kept_name(manifest: Mapping[str, Any]) -> str:
    """The file of a manifest that another has replaced."""
    return f"manifest-{manifest['checksum'][:16]}.json"


def is_file(name: str) -> bool:
    """Whether it names an array, a log, an earlier manifest, the lock, the pins, or a draft that a crash left."""
    draft = _DRAFT.fullmatch(name)
    name = name if draft is None else draft[1]
    own = _OWN_FILE.fullmatch(name) or _KEPT.fullmatch(name) or log_number(name) is not None or name in (LOCK, PINS)
    return bool(own) or (draft is not None and name == MANIFEST)


def remains(folder: Path) -> list[str]:
    """Files of an index, except those that a crash may leave before the first manifest is written."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [name for name in names if is_file(name) and name != LOCK and not _DRAFT.fullmatch(name)]


def is_shard(name: str) -> bool:
    return _SHARD.fullmatch(name) is not None


def shard_name(number: int, digest: str) -> str:
    return f"shard-{number}-{digest[:16]}"


def plan_name(shards: Sequence[str]) -> str:
    """The folder of a plan for these shards."""
    return f"plan-{hashlib.sha256(' '.join(shards).encode()).hexdigest()[:16]}"


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
    return {**manifest, "checksum": digest_of(manifest)}


def shards_before(read: Callable[[], Mapping[str, Any]]) -> set[str]:
    """The folders of the version that a build replaces: they stay until the next, for readers with its manifest."""
    try:
        manifest = read()
    except StorageError:
        return set()
    plan = [manifest["plan"]] if "plan" in manifest else []
    return {str(entry["folder"]) for entry in [*manifest.get("shards", []), *plan]}
