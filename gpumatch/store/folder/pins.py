"""Pins: which version of an index a batch of a streaming query is matched with.

``pins/QUERY/BATCH`` is a file that is created once: the first task chooses the version, and all others read it, even
after a crash. A pinned version stays in the folder, whatever is written there; ``_release`` and ``held`` say how long.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gpumatch.errors import StorageError
from gpumatch.store.folder import disk, locks
from gpumatch.store.folder.log import log_name, log_state
from gpumatch.store.folder.manifests import MANIFEST, PINS, checked_manifest, kept_manifest, kept_name, position_of

KEPT = 10  # newest batches of a query whose pins stay; Spark repeats only the last one
SECONDS = 3600.0  # that any pin stays
IDLE = 7 * 86400.0  # seconds without a new pin after which a query no longer keeps versions
AGAIN = 60.0  # seconds after which a version that was refused is tried again
_QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BATCH = re.compile(r"0|[1-9]\d{0,18}")
_REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Pin:
    """A version, and what is needed to read it."""

    version: str
    manifest: str  # the checksum of one that leads to it
    log: int  # the number of the last log that has its changes

    def __post_init__(self) -> None:
        right = re.fullmatch(r"\d+-[0-9a-f]{8}", self.version) and re.fullmatch("[0-9a-f]{64}", self.manifest)
        if not right or type(self.log) is not int or self.log < 0:
            raise ValueError(f"it has the version {self.version!r}, the manifest {self.manifest!r}, the log {self.log}")


def path_of(folder: Path, query: str, batch: int) -> Path:
    """The file of a pin. The id of a query becomes the name of a folder."""
    if not _QUERY.fullmatch(query):
        raise StorageError(f"the id of a streaming query is a UUID, found {query!r}")
    if type(batch) is not int or not _BATCH.fullmatch(str(batch)):
        raise StorageError(f"the id of a batch is a whole number of at least 0, found {batch!r}")
    return folder / PINS / query / str(batch)


def read(folder: Path, query: str, batch: int) -> Pin | None:
    """The pin of a batch; None if it has none."""
    path = path_of(folder, query, batch)
    try:
        with disk.plain(path) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    try:
        return Pin(**json.loads(content))
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"the pin {str(path)!r} is damaged: {error}; restore it from a copy, or remove it to have the batch "
            "matched with the newest version"
        ) from None


def batches(folder: Path, query: str) -> list[int]:
    """The batches of a query that have pins, in order."""
    try:
        names = os.listdir(path_of(folder, query, 0).parent)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _BATCH.fullmatch(name))


def last_before(folder: Path, query: str, batch: int) -> Pin | None:
    """The pin of the last batch before one."""
    for number in reversed(batches(folder, query)):
        if number < batch and (pin := read(folder, query, number)) is not None:
            return pin
    return None


def make(folder: Path, query: str, batch: int, pin: Pin) -> tuple[Pin, bool] | None:
    """Pin a batch unless it has a pin: the pin, and whether it is new. None if the version is gone by now."""
    path = path_of(folder, query, batch)
    with _reported(path), locks.locked(folder):
        found = read(folder, query, batch)
        if found is not None:
            return found, False
        if not _keep(folder, pin):
            return None
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            disk.sync_folder(path.parents[1])
        is_new = disk.create(path, json.dumps(asdict(pin)).encode())
        disk.sync_folder(path.parent)
        _release(path)
        disk.sync_folder(folder)  # which has the name of the manifest
    found = read(folder, query, batch)
    return None if found is None else (found, is_new)


def _keep(folder: Path, pin: Pin) -> bool:
    """Keep the manifest of a version when another replaces it; False if the version is already gone."""
    kept = folder / kept_name({"checksum": pin.manifest})
    if (manifest := kept_manifest(kept)) is not None:  # perhaps for another pin, which needs fewer logs
        first = position_of(manifest)[0].log
        return all((folder / log_name(number)).exists() for number in range(first + 1, pin.log + 1))
    with suppress(FileNotFoundError, StorageError):
        content = (folder / MANIFEST).read_bytes()
        if checked_manifest(content, str(folder))["checksum"] == pin.manifest:
            disk.replace(kept, content)  # not a link: damage to one would be damage to the other
            return True
    return False


def _release(path: Path) -> None:
    """Remove the pins of batches that are neither among the last of a query nor recent."""
    for batch in batches(path.parents[2], path.parent.name)[:-KEPT]:
        old = path.with_name(str(batch))
        if time.time() - old.stat().st_mtime < SECONDS:
            return
        disk.remove(old)


def held(folder: Path) -> dict[str, int]:
    """The manifests of pinned versions, by the names of their files, each with the last log that they need.

    Queries that have pinned nothing for a long time are assumed not to come back. Their pins stay, so that they fail
    if they do.
    """
    found: dict[str, int] = {}
    for query in _queries(folder):
        numbers = batches(folder, query)
        if not numbers or _age(path_of(folder, query, numbers[-1])) >= IDLE:
            continue
        for pin in (read(folder, query, number) for number in numbers):
            if pin is not None:
                name = kept_name({"checksum": pin.manifest})
                found[name] = max(pin.log, found.get(name, 0))
    return found


def _age(path: Path) -> float:
    """Seconds since a pin was made; 0 if another machine has just released it."""
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _queries(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder / PINS) if _QUERY.fullmatch(name)]
    except FileNotFoundError:
        return []


# Versions that a query has refused


def state_of(folder: Path) -> str:
    """What changes whenever the newest version does, even if it cannot be read."""
    try:
        facts = os.stat(folder / MANIFEST)
    except FileNotFoundError:
        return ""
    return f"{facts.st_ino} {facts.st_mtime_ns} {facts.st_size} {log_state(folder)}"


def is_refused(folder: Path, query: str, state: str) -> bool:
    """Whether a query has recently refused the newest version."""
    path = path_of(folder, query, 0).with_name(_REFUSED)
    try:
        return time.time() - path.stat().st_mtime < AGAIN and path.read_text().partition("\n")[0] == state
    except FileNotFoundError:
        return False


def refuse(folder: Path, query: str, state: str, why: str) -> bool:
    """Note that a query has refused the newest version; whether version and reason are both new.

    Workers may give different reasons for the same version: some have just opened it, some have the one before.
    """
    path = path_of(folder, query, 0).with_name(_REFUSED)
    with _reported(path), locks.locked(folder):
        before = path.read_text().partition("\n") if path.exists() else None
        disk.replace(path, f"{state}\n{why}".encode())
    return before is None or (before[0] != state and before[2] != why)


def accept(folder: Path, query: str) -> None:
    """Forget what a query has refused."""
    path = path_of(folder, query, 0).with_name(_REFUSED)
    if path.exists():
        with _reported(path):
            disk.remove(path)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "let the executors write there"
        raise StorageError(
            f"cannot write {str(path)!r}: {error.strerror}; a query that follows an index keeps there which version "
            f"each batch was matched with: {advice}, or pass follow=False"
        ) from error
