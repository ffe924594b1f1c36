"""Checksums once per machine and version: marks of what was verified, in a folder that is this user's alone."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Facts: TypeAlias = "dict[str, list[int]]"  # of each file: size, times and inode


def facts_of(folder: Path, files: Iterable[str]) -> Facts:
    """What changes when a file does, as far as its folder tells."""
    found = ((name, (folder / name).stat()) for name in files)
    return {name: [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino] for name, facts in found}


def is_marked(folder: Path, digest: str, facts: Facts) -> bool:
    """Whether this user has verified these very files on this machine."""
    marks = _marks()
    try:
        return marks is not None and json.loads(_mark(marks, folder, digest).read_bytes()) == facts
    except (OSError, ValueError):
        return False


def mark(folder: Path, digest: str, facts: Facts) -> None:
    """Remember that they were verified. ``facts`` are those from before: what changed since then has no mark."""
    marks = _marks()
    if marks is None:
        return
    try:
        with tempfile.NamedTemporaryFile("w", dir=marks, delete=False) as draft:
            json.dump(facts, draft)
        os.replace(draft.name, _mark(marks, folder, digest))
    except OSError:
        return  # it is verified again next time


def _mark(marks: Path, folder: Path, digest: str) -> Path:
    return marks / hashlib.sha256(f"{digest} {folder.resolve()}".encode()).hexdigest()


def _marks() -> Path | None:
    """In the temporary folder, since home may lie on another machine; None where others could have made it."""
    if os.name == "nt":
        return None
    return private(Path(tempfile.gettempdir(), f"gpumatch-verified-{os.geteuid()}"))


def private(folder: Path) -> Path | None:
    """The folder, which is made if there is none; None unless it is this user's and closed to others."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
    return folder if ours else None
