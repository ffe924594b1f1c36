"""A folder in a store that ``pyarrow.fs`` reaches by a URI, as a place for an index.

Files are put first and the manifest last; what it no longer names is removed afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pyarrow import ArrowException

from gpumatch.errors import StorageError
from gpumatch.store.folder import copies, directory, disk, manifests
from gpumatch.store.folder.log import log_number
from gpumatch.store.folder.manifests import MANIFEST, files_of, position_of, shards_of
from gpumatch.store.folder.verified import facts_of, mark

Where: TypeAlias = "str | os.PathLike[str]"
T = TypeVar("T")
U = TypeVar("U")

_AT_ONCE = 8  # files under way
_CHUNK = 1 << 23  # bytes: a store is asked once for each chunk
_GRACE = 3600  # seconds that a file stays though no manifest names it: another writer may be about to
_GAP = 0.2  # seconds after which a missing manifest is looked for again: HDFS removes the old one before the new
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+://")
_USER = re.compile(r"(?<=://)[^/@:]*(:(?!\d+/)[^@]*)?@")  # a secret may have slashes, by mistake; a port is none
_ADVICE = (
    (r"ACCESS_|SIGNATURE|TOKEN|status 40[13]|[Cc]redential|[Pp]ermission|Authenti|Authoriz|UNAUTH|denied",
     "check the credentials that pyarrow finds (environment, profile or role of this machine) and what they allow"),
    (r"NO_SUCH_BUCKET|[Bb]ucket '\S+ not found|ContainerNotFound", "check the name of the bucket, and that it exists"),
    (r"libhdfs|libjvm|JVM|hadoop", "install Hadoop's client, and set JAVA_HOME, HADOOP_HOME and CLASSPATH"),
    (r"Hierarchical", "use an account with a hierarchical namespace, where files can be renamed"),
    (r"Unrecognized|without .* support", "use s3://, gs://, abfss://, hdfs:// or file://, and a pyarrow that has it"),
    (r"URI", "check its spelling; special characters in keys and options are written as %2F"),
    (r"No space left", f"make room, or name a folder of another disk by {copies.FOLDER}"),
)  # fmt: skip


def is_uri(path: Where) -> bool:
    return isinstance(path, str) and _SCHEME.match(path) is not None


def shown(path: Where) -> str:
    """A path as messages may show it: without user, password and options."""
    text = os.fspath(path)
    if not is_uri(text):
        return text
    text = re.sub(r"[?#].*", "", text, flags=re.DOTALL)
    user = _USER.search(text)
    kept = user[0].split(":")[0].rstrip("@") + "@" if user and text.startswith("abf") else ""  # the container
    return _USER.sub(kept.lstrip("@"), text, count=1)


def each(function: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Handle several at once, since stores answer slowly."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))


class GoneError(StorageError):
    """A file that its manifest names is missing: there may be a newer manifest."""


class Place:
    """A folder in a store. Names are relative to it."""

    def __init__(self, uri: Where) -> None:
        from pyarrow import fs  # starts the clients of stores, which must not happen before Spark forks

        self._uri, self._shown = os.fspath(uri), shown(uri)
        with self._reported("open"):
            self._store, base = fs.FileSystem.from_uri(self._uri)
        self._base = base.rstrip("/")

    def manifest(self, shard: str = "") -> dict[str, Any]:
        try:
            return self._manifest(shard)
        except GoneError:
            time.sleep(_GAP)
        try:
            return self._manifest(shard)
        except GoneError:
            raise StorageError(self._why_none(shard)) from None

    def _manifest(self, shard: str) -> dict[str, Any]:
        return manifests.checked_manifest(self._read(_joined(shard, MANIFEST)), _joined(self._shown, shard))

    def _why_none(self, shard: str) -> str:
        self._check_bucket("open")
        return f"{_joined(self._shown, shard)!r} is not a saved index: it has no manifest.json; check the path"

    def _check_bucket(self, doing: str) -> None:
        from pyarrow.fs import FileType

        bucket = self._base.split("/")[0]
        with suppress(OSError):  # the user may have access to files, but not to the bucket
            if bucket and self._store.get_file_info(bucket).type == FileType.NotFound:
                raise StorageError(f"cannot {doing} {self._shown!r}: there is no bucket {bucket!r}; check its name")

    def _read(self, name: str) -> bytes:
        with self._reported("read", name), self._store.open_input_stream(self._path(name)) as source:
            return bytes(source.read())

    # Fetching

    def fetch(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Copy a version into a folder; the manifest is its last file."""
        shards = {entry["folder"]: entry["checksum"] for entry in shards_of(manifest, self._shown)}
        parts = {**dict(zip(shards, each(self._manifest, shards), strict=True)), "": manifest}
        files = []
        for name, part in parts.items():
            if part["checksum"] != shards.get(name, part["checksum"]):
                where = _joined(self._shown, name)
                raise GoneError(f"{where!r} is another version than its manifest says; build the index again")
            if position_of(part)[1]:
                raise StorageError(
                    f"{_joined(self._shown, name)!r} is a folder that was opened for writing, or a copy of one, with "
                    "changes in a log: give its path instead of a URI, or save() the index to the store"
                )
            files += [(_joined(name, entry["file"]), entry) for entry in files_of(part, _joined(self._shown, name))]
        lacking = [(name, entry) for name, entry in files if not copies.reuse(folder, name, entry)]
        copies.make_room(folder, sum(entry["size"] for _, entry in lacking))
        each(lambda file: self._get(folder, *file), lacking)
        for name, part in parts.items():
            mark(folder / name, facts_of(folder / name, files_of(part, name)))
            disk.replace(folder / name / MANIFEST, json.dumps(part).encode())

    def _get(self, folder: Path, name: str, entry: Mapping[str, Any]) -> None:
        """Copy a file as a whole or not at all."""
        target, digest = folder / name, hashlib.sha256()
        draft = target.with_name(f".{target.name}.tmp")
        try:
            with self._reported("fetch", name), open(draft, "wb") as out:
                with self._store.open_input_stream(self._path(name)) as source:
                    while chunk := source.read(_CHUNK):
                        digest.update(chunk)
                        out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            size, where = draft.stat().st_size, _joined(self._shown, name)
            if size != entry["size"]:
                raise StorageError(f"{where!r} has {size} bytes, expected {entry['size']}; save the index again")
            if digest.hexdigest() != entry["sha256"]:
                raise StorageError(f"{where!r} was altered: its checksum differs; remove it, and save the index again")
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    # Putting

    def contents(self) -> dict[str, Any]:
        """What is there, by name; raises if it is something other than an index."""
        found = {info.base_name: info for info in self.listed("")}
        if not found:
            self._check_bucket("save in")
        directory.check_target(self._shown, list(found), lambda: manifests.is_manifest(self._read(MANIFEST)))
        if logs := sorted(name for name in found if log_number(name) is not None):
            raise StorageError(
                f"cannot save in {self._shown!r}: it has {logs[0]!r}, so it is a folder that was opened for writing: "
                "give its path instead of a URI; if it is a copy of one, remove it first"
            )
        return found

    def listed(self, name: str, recursive: bool = False) -> list[Any]:
        from pyarrow.fs import FileSelector

        with self._reported("list", name):
            found: list[Any] = self._store.get_file_info(
                FileSelector(self._path(name), allow_not_found=True, recursive=recursive)
            )
        return found

    def put(self, folder: Path, before: Mapping[str, Any]) -> None:
        """Copy an index from a folder. Names have the hash of their files: one that is there is the same."""
        files = {entry["file"]: entry["size"] for entry in files_of(manifests.read_manifest(folder), str(folder))}
        if self._store.type_name == "local":  # others need no folders, or make them
            with self._reported("save"):
                self._store.create_dir(self._base, recursive=True)
        lacking = [name for name, size in files.items() if name not in before or before[name].size != size]
        each(lambda name: self._put(folder / name, name), lacking)
        self.replace_manifest((folder / MANIFEST).read_bytes(), set(files), before)

    def _put(self, source: Path, name: str) -> None:
        with (
            self._reported("save", name),
            open(source, "rb") as content,
            self._store.open_output_stream(self._path(name)) as out,
        ):
            shutil.copyfileobj(content, out, _CHUNK)

    def replace_manifest(self, content: bytes, named: set[str], before: Mapping[str, Any]) -> None:
        """Put a manifest, then remove what was there before and is not named in it."""
        draft = f".{MANIFEST}.{secrets.randbits(64)}.tmp"  # some stores show a file while it is being written
        with self._reported("save", MANIFEST):
            with self._store.open_output_stream(self._path(draft)) as out:
                out.write(content)
            self._store.move(self._path(draft), self._path(MANIFEST))
            now = self._store.get_file_info(self._path(MANIFEST)).mtime
        old = now - timedelta(seconds=_GRACE)
        for name in before.keys() - named:
            with suppress(GoneError):  # another process has removed it
                self._remove(name, before[name], old)

    def _remove(self, name: str, info: Any, old: Any) -> None:
        """Remove a file or a shard of ours, if it is old."""
        with self._reported("remove", name):
            if manifests.is_file(name) and info.mtime < old:
                self._store.delete_file(self._path(name))
            elif manifests.is_shard(name) and all(file.mtime < old for file in self.listed(name) if file.is_file):
                self._store.delete_dir(self._path(name))

    def _path(self, name: str) -> str:
        return _joined(self._base, name)

    @contextmanager
    def _reported(self, doing: str, name: str = "") -> Iterator[None]:
        """Turn errors of a store into ours."""
        where = _joined(self._shown, name)
        try:
            yield
        except FileNotFoundError:
            raise GoneError(
                f"cannot {doing} {where!r}: there is no such file; check the path, or save the index again"
            ) from None
        except (OSError, ArrowException) as error:
            what = str(error).partition("\n")[0]
            user = _USER.search(self._uri)
            for secret in (self._uri, user[0] if user else "", self._uri.partition("?")[2]):
                what = what.replace(secret, "…") if secret else what
            advice = next((text for sign, text in _ADVICE if re.search(sign, what)), "check the address and try again")
            raise StorageError(f"cannot {doing} {where!r}: {what}; {advice}") from None


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
