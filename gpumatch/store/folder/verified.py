"""Checksums once per machine and file: marks of what was verified, in a folder that only this user can access."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Facts: TypeAlias = "dict[str, list[int]]"  # of each file: size, times and inode


def mark_key(entry: Mapping[str, Any]) -> str:
    return f"{entry['file']} {entry['sha256']}"


def facts_of(folder: Path, entries: Iterable[Mapping[str, Any]]) -> Facts:
    """What ``stat`` says of each file, which changes when the file does; by name and checksum."""
    found = ((mark_key(entry), (folder / entry["file"]).stat()) for entry in entries)
    return {key: [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino] for key, facts in found}


def marked(folder: Path) -> Facts:
    """The files of a folder that this user has verified on this machine, with their facts at that time."""
    marks = _marks()
    try:
        found = {} if marks is None else json.loads(_mark(marks, folder).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mark(folder: Path, facts: Facts) -> None:
    """Remember that these were verified. ``facts`` are from before: files changed since then are verified again."""
    marks = _marks()
    if marks is None:
        return
    try:
        with tempfile.NamedTemporaryFile("w", dir=marks, delete=False) as draft:
            json.dump(facts, draft)
        os.replace(draft.name, _mark(marks, folder))
    except OSError:
        return  # it is verified again next time


def _mark(marks: Path, folder: Path) -> Path:
    return marks / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()


def _marks() -> Path | None:
    """In the temporary folder, since home may be on another machine; None where others could have made it."""
    if os.name == "nt":
        return None
    return private(Path(tempfile.gettempdir(), f"gpumatch-verified-{os.geteuid()}"))


def private(folder: Path) -> Path | None:
    """The folder, made if there is none; None unless it is this user's and closed to others."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
    return folder if ours else None
