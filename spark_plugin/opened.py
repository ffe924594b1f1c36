"""Indexes that a Python worker has open: they outlive a task, and none of them is ever pickled."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

import gpumatch as gm
from gpumatch.matcher import from_stored
from gpumatch.store.directory import read, read_manifest

SHARE = 0.25  # of the machine's memory, which mapped indexes may take before the one unused for longest is closed

_open: OrderedDict[tuple[str, str], tuple[gm.Matcher, int]] = OrderedDict()  # by version and device; with its bytes


def open_index(path: str, device: str) -> gm.Matcher:
    """The matcher of a folder, memory-mapped; from earlier tasks if the folder still holds the same version."""
    key = read_manifest(Path(path))["checksum"], device
    if key not in _open:
        stored = read(path, mmap=True, verify="once")
        key = stored.digest, device  # which may be newer than the manifest was
        _open[key] = from_stored(stored, device), stored.nbytes
    _open.move_to_end(key)
    while len(_open) > 1 and sum(size for _, size in _open.values()) > _room():
        _open.popitem(last=False)
    return _open[key][0]


def _room() -> float:
    return SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
