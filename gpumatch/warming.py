"""Compiling ahead of time, for images and nodes: all code for building and matching with an index on the CPU.

Kernels are compiled for the types that they are called with, so small indexes are built, matched, saved and loaded, in
every form of subscriptions and events. numba compiles one function at a time in a process, so several processes fill
the same folder.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpumatch.errors import GpumatchError
from gpumatch.events.batch import EventBatch
from gpumatch.index import KINDS, IndexParams
from gpumatch.kernels.cache import VARIABLE, borrow, complaint, named_folder, trusted, unusable
from gpumatch.kernels.compile import compilations
from gpumatch.matcher import Matcher
from gpumatch.opening import load
from gpumatch.parallel.processes import run_module
from gpumatch.parallel.threads import get_num_threads
from gpumatch.routing.shards.plan import Draft
from gpumatch.routing.shards.router import Entries

_MANY = 5_000  # narrow ranges: more than a tile of bitsets, and enough for a grid of pairs
_LISTS = {"t": "list<string>", "n": "list<int64>", "r": "list<float64>"}
_PLAIN = {"s": "string", "f": "float64", "g": "float32", "i": "int64", "b": "bool"}
_TEXTS = (
    "s = 'a' AND f > 1",
    "f BETWEEN 1 AND 2 AND i IN (1, 5)",
    "NOT (s = 'b' AND (f < 3 OR i = 2)) OR g > 1",
    "s IS NULL AND b",
    "(i = 1 AND f > 0.5) OR (b AND s LIKE 'a%') OR (i = 2 XOR f < 9)",
)
_LIST_TEXTS = ("t = 'x' AND n = 3", "t <> 'y' OR r = 1.5")
_ROWS: list[dict[str, Any]] = [
    {"s": "a", "f": 2.0, "g": 2.0, "i": 5, "b": True, "t": ["x"], "n": [1, 3], "r": [1.5]},
    {"f": 1.5, "i": None},
    {},
]


def warm_up(indexes: Iterable[str] | None = None, done: Callable[[str, int], None] | None = None) -> dict[str, int]:
    """Compile the code for building and matching on the CPU with these indexes, and keep it in the cache folder.

    ``indexes``: names, such as ``"gem"``; ``"auto"`` and None stand for all. ``done`` is called with a name and a
    number when an index is finished. Returns for each index how many functions had to be compiled: none if all were in
    the folder. As many processes work on it as matching uses threads.
    """
    names = names_of(indexes)
    wrong = unusable()
    if wrong:
        raise GpumatchError(f"{wrong}; set {VARIABLE} to a folder that you own and can write to")
    found: dict[str, int] = {}

    def run(name: str) -> None:
        found[name] = int(run_module(__name__, name))
        if done is not None:
            done(name, found[name])

    run(names[0])
    with ThreadPoolExecutor(get_num_threads(), "gpumatch-warm-up") as pool:
        list(pool.map(run, names[1:]))
    return {name: found[name] for name in names}


def cache_folder() -> Path:
    """Folder of the compiled kernels of this version."""
    return named_folder()[0]


def pack_kernels(archive: Path) -> int:
    """Put the machine code that this machine has, and trusts, into a zip file; returns how many files."""
    folder, wrong = named_folder()
    packed = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for path in [] if wrong else sorted(folder.glob("*.nbc")):
            if (content := trusted(path)) is not None:
                target.writestr(f"{folder.name}/{path.name}", content)
                packed += 1
    return packed


def use_kernels(folder: Path) -> None:
    """Use what ``pack_kernels`` packed on another machine, where it fits this one."""
    borrow(folder)


def names_of(indexes: Iterable[str] | None) -> list[str]:
    """The indexes in the order in which they are compiled."""
    given = ["auto"] if indexes is None else [indexes] if isinstance(indexes, str) else list(indexes)
    for name in given:
        if name not in (*KINDS, "auto"):
            raise GpumatchError(f"there is no index {name!r} to compile; there are auto, {', '.join(KINDS)}")
    if not given:
        raise GpumatchError("no index is named; leave the argument out to compile for all")
    names = [name for name in KINDS if name in given or "auto" in given]
    return names[:1] + names[:0:-1]  # the first alone, since others share much of its code; then the largest


def _exercise(params: IndexParams) -> None:
    """Do everything that a user may do with an index on the CPU."""
    for schema, texts in ((_PLAIN, _TEXTS), (_PLAIN | _LISTS, (*_TEXTS, *_LIST_TEXTS))):
        few = Matcher(schema, params, "cpu")
        few.add(dict(enumerate(texts)), destination="d")
        _use(few, schema)
    narrow = Matcher(_PLAIN, params, "cpu")
    narrow.add({0: "f > 1"}, destination="d")
    _ask(narrow, [{"f": 2.0}, {}])
    many = Matcher(_PLAIN, params, "cpu")
    low = np.random.default_rng(0).random((2, _MANY))
    many.add_ranges(np.arange(_MANY), {"f": (low[0], low[0] + 0.01), "g": (low[1], low[1] + 0.01)})
    many.add({_MANY + number: text for number, text in enumerate(_TEXTS)}, destination="d")
    _use(many, _PLAIN)
    for width in (0.01, 1.0):  # few match, and many
        alone = Matcher(_PLAIN, params, "cpu")  # with a clause for each, so that they are counted without being listed
        alone.add_ranges(np.arange(_MANY), {"f": (low[0], low[0] + width), "g": (low[1], low[1] + width)})
        alone.count(_ROWS)
        alone.remove([0])
        alone.count(_ROWS)
    draft = Draft.of(many, 2, len(many), _ROWS)
    draft.finished([Entries.of(draft.grid, many)] * 2).router.route(_ROWS)


def _use(matcher: Matcher, schema: dict[str, str]) -> None:
    rows = [{name: value for name, value in row.items() if name in schema} for row in _ROWS]
    _ask(matcher, rows)
    matcher.observe(rows)
    matcher.compact()
    matcher.remove([0])
    _ask(matcher, rows)
    matcher.compact()
    with tempfile.TemporaryDirectory() as folder:
        matcher.save(Path(folder, "index"))
        for mapped in (True, False):
            loaded = load(Path(folder, "index"), "cpu", mmap=mapped)
            _ask(loaded, rows)
            loaded.replace({1: "f > 3"})
            loaded.compact()
            _ask(loaded, rows)


def _ask(matcher: Matcher, rows: Sequence[dict[str, Any]]) -> None:
    """Match events as rows, a single row, columns, and CSR entries of integers, floats and strings."""
    offsets, attribute = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    sparse = (
        EventBatch.from_csr(offsets, attribute, np.array([1.0, 2.0]), ["f", "g"]),
        EventBatch.from_csr(offsets, attribute, np.array([1, 2]), ["f", "i"]),
        EventBatch.from_csr(offsets, np.array([0, 0]), ["a", "z"], ["s"]),
    )
    columns = {"f": np.array([1.0, 2.0]), "i": np.array([1, 2]), "b": np.array([True, False]), "s": ["a", None]}
    for events in (list(rows), list(rows[:1]), columns, *sparse):
        matcher.match(events)
        matcher.destinations(events)
    matcher.count(columns)
    matcher.any(columns)
    matcher.match_one(rows[0])


def _main(name: str) -> None:
    for params in KINDS[name].forms or (KINDS[name].params(),):
        _exercise(params)
    if complaint():
        sys.exit(complaint())
    print(compilations())


if __name__ == "__main__":
    _main(sys.argv[1])
