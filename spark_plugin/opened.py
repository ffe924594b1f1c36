"""Indexes, shards and plans that a Python worker has open: they outlive a task, and none of them is ever pickled."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from weakref import WeakKeyDictionary

import gpumatch as gm
from gpumatch.errors import StorageError
from gpumatch.opening import follow, from_stored
from gpumatch.routing.shards.plan import Plan
from gpumatch.store.folder.follower import Follower
from gpumatch.store.folder.log import log_state
from gpumatch.store.folder.manifests import MANIFEST
from gpumatch.store.folder.place import is_uri, shown
from gpumatch.store.folder.remote import below, read, read_manifest

SHARE = 0.25  # of the machine's memory, which mapped indexes may take before the least recently used is closed

_open: OrderedDict[tuple[str, str], tuple[gm.Matcher, int]] = OrderedDict()  # by version and device; with its bytes
_followers: WeakKeyDictionary[gm.Matcher, Follower] = WeakKeyDictionary()  # of matchers that change
_asked: dict[str, tuple[int, str]] = {}  # by URI: the last task that asked its store for the version, and the answer

_plans: dict[str, Plan] = {}
# How often an index had to be opened, was open, or kept an old version as the new one was bad
uses = {"opened": 0, "reused": 0, "refused": 0}


def open_index(path: str, device: str) -> gm.Matcher:
    """The matcher of a folder, memory-mapped; from earlier tasks if the folder still holds the same version.

    A store is asked for the version once in a task: functions of SQL come here for every batch.
    """
    task = _task() if is_uri(path) else None
    last, version = _asked.get(path, (None, ""))
    if task is None or task != last:
        version = _version(path)
    uses["reused" if (version, device) in _open else "opened"] += 1
    if (version, device) not in _open:
        stored = read(path, mmap=True, verify="once")
        if not version.startswith(stored.checksum):  # it is newer than the manifest was
            version = stored.checksum
        _open[version, device] = from_stored(stored, device), stored.nbytes
    if task is not None:
        _asked[path] = task, version
    return _used(version, device)


def open_follower(path: str, query: str, device: str, version: str | None) -> tuple[gm.Matcher, Follower]:
    """A matcher that follows a folder for a query, and what moves it; from earlier tasks if it is open.

    ``version`` is the one to begin with.
    """
    key = f"{path} {query}", device
    uses["reused" if key in _open else "opened"] += 1
    if key not in _open:
        matcher, follower = follow(path, device, version)
        _open[key], _followers[matcher] = (matcher, follower.nbytes), follower
    matcher = _used(*key)
    return matcher, _followers[matcher]


def close_follower(path: str, query: str, device: str) -> None:
    _open.pop((f"{path} {query}", device), None)


def _used(version: str, device: str) -> gm.Matcher:
    """The matcher, which stays open at the expense of others."""
    key = version, device
    _open.move_to_end(key)
    room = _room() if device == "cpu" else 0  # a worker's share of a GPU has room for one
    while len(_open) > 1 and sum(size for _, size in _open.values()) > room:
        _open.popitem(last=False)
    return _open[key][0]


def _task() -> int | None:
    """The number of Spark's task; None outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else int(context.taskAttemptId())


def shards_of(path: str) -> tuple[str, ...]:
    """The paths of the shards."""
    return tuple(below(path, entry["folder"]) for entry in read_manifest(path).get("shards", []))


def plan_of(path: str) -> str:
    """The path of the plan for an index with shards."""
    entry = read_manifest(path).get("plan")
    if entry is None:
        raise StorageError(f"the index at {shown(path)} has no plan for its shards; build it again with shards=")
    return below(path, entry["folder"])


def open_plan(path: str) -> Plan:
    """The plan at a path; from earlier tasks if it is the same."""
    version = _version(path)
    if version not in _plans:
        _plans.clear()
        _plans[version] = Plan.load(path)
    return _plans[version]


def _version(path: str) -> str:
    """The digest of an index. In a folder, a repaired one differs from the damaged one before it."""
    digest = str(read_manifest(path)["checksum"])
    if is_uri(path):
        return digest
    facts = os.stat(os.path.join(path, MANIFEST))
    return f"{digest} {facts.st_ino} {facts.st_mtime_ns} {log_state(Path(path))}"


def _room() -> float:
    return SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
