"""Machine code shared between processes: a file for each driver, its argument types and the processor.

The files are pickles, so reading one runs its writer's code. Files of other users are not read: a file and its folder
must belong to this user or to root, and nobody else may write to them. Root's files, as in an image, are thus allowed.
The folder is named after a hash of all kernel sources, since a driver includes its callees: no stale code is loaded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from gpumatch import opcodes
from gpumatch.kernels.pipeline import libraries

VARIABLE = "GPUMATCH_CACHE_DIR"
_DIGEST = hashlib.sha256().digest_size  # bytes before the pickle, which reveal a damaged file

LOG = logging.getLogger("gpumatch")

_complaint = ""
_borrowed: list[Path] = []


class KernelCache(NullCache):  # type: ignore[misc]
    """Where numba loads the machine code of one driver from, and saves it."""

    def __init__(self, function: Any) -> None:
        self._stem = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    def load_overload(self, signature: Any, context: Any) -> Any:
        context.refresh()
        name = self._name(signature, context.codegen())
        payloads = (_read(folder / name) for folder in folders())
        found = next((payload for payload in payloads if payload is not None), None)
        if found is None:
            return None
        with libraries(context.codegen()):  # also if a driver is loaded because one that calls it is compiled
            return CompileResult._rebuild(context, *found)

    def save_overload(self, signature: Any, result: Any) -> None:
        name, content = self._name(signature, result.codegen), dumps(result._reduce())
        content = hashlib.sha256(content).digest() + content
        folder, wrong = named_folder()
        if not wrong:
            wrong = _write(folder / name, content)
        if wrong:
            aside = temporary_folder()
            kept = aside is not None and not _write(aside / name, content)
            _say(folder, wrong, aside if kept else None)

    def holds(self, context: Any) -> bool:
        """Is there machine code for this processor, for any types?"""
        pattern = f"{self._begin(context.codegen())}-*"
        return any(any(folder.glob(pattern)) for folder in folders())

    def _begin(self, codegen: Any) -> str:
        return f"{self._stem}-{_digest(repr(codegen.magic_tuple()))}"

    def _name(self, signature: Any, codegen: Any) -> str:
        return f"{self._begin(codegen)}-{_digest(str(signature))}.nbc"


def folders() -> list[Path]:
    """Folders that are searched for machine code."""
    folder, wrong = named_folder()
    aside = temporary_folder()
    return ([] if wrong else [folder]) + ([] if aside is None else [aside]) + _borrowed


def borrow(base: Path) -> None:
    """Look for machine code in a copy of another machine's folder, too, if it has any of this version."""
    folder = base / _version()
    with suppress(OSError):
        if folder not in _borrowed and not _distrusted(folder.stat()):
            _borrowed.append(folder)


@cache
def named_folder() -> tuple[Path, str]:
    """The folder named in the environment, else one in the user's cache folder; and what is wrong with it."""
    given = os.environ.get(VARIABLE)
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpumatch")
    folder = base / _version()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return folder, _distrusted(folder.stat())
    except OSError as error:
        return folder, _reason(error)


@cache
def temporary_folder() -> Path | None:
    """A folder in the shared temporary folder, if it is this user's alone: anyone may have created it first."""
    if os.name == "nt":
        return None
    base = Path(tempfile.gettempdir(), f"gpumatch-{os.geteuid()}")
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        facts = base.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            return None
        folder = base / _version()
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder
    except OSError:
        return None


def _distrusted(facts: os.stat_result) -> str:
    """Why code from a file or folder is not trusted; empty if it is."""
    if os.name == "nt":  # no such modes; the user's folders are closed to others
        return ""
    if facts.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user, {facts.st_uid}"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it, mode {stat.S_IMODE(facts.st_mode):o}"
    return ""


def trusted(path: Path) -> bytes | None:
    """All bytes of the file; None if there is none, or none that can be read and trusted."""
    try:
        with path.open("rb") as file:
            return None if _distrusted(os.fstat(file.fileno())) else file.read()
    except OSError:
        return None


def _read(path: Path) -> Any:
    """The contents of the file; None if it is not trusted, or damaged."""
    found = trusted(path)
    if found is None or hashlib.sha256(found[_DIGEST:]).digest() != found[:_DIGEST]:
        return None
    return pickle.loads(found[_DIGEST:])


def _write(path: Path, content: bytes) -> str:
    """Write a file as a whole or not at all; returns why not."""
    draft = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(content)
        draft.replace(path)
        return ""
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        return _reason(error)


def _say(folder: Path, wrong: str, aside: Path | None) -> None:
    global _complaint
    if _complaint:
        return
    instead = f"they are kept in {aside} instead" if aside else "every process compiles them anew"
    _complaint = f"gpumatch cannot keep compiled kernels in {folder}: {wrong}"
    LOG.warning("%s; %s. %s names another folder", _complaint, instead, VARIABLE)


def complaint() -> str:
    """The complaint about the folder, if something could not be kept there."""
    return _complaint


def unusable() -> str:
    """Why compiled kernels cannot be kept, found out by trying; empty if they can."""
    folder, wrong = named_folder()
    probe = folder / f".{uuid.uuid4().hex}"
    wrong = wrong or _write(probe, b"probe")
    if wrong:
        return f"gpumatch cannot keep compiled kernels in {folder}: {wrong}"
    probe.unlink()
    return ""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _version() -> str:
    """A hash of everything that machine code depends on, except types and processor."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {sys.implementation.cache_tag}".encode())
    try:
        for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(opcodes.__file__)]:
            digest.update(path.read_bytes())
    except OSError:  # inside an archive, whose file name has the version
        digest.update(__file__.encode())
    return digest.hexdigest()[:16]
