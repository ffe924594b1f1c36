"""An eighth kind of index, all of it in this file: what an author writes, and that the rest of the house takes it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.arrays import Array, pointers
from gpumatch.arrayspec import ANYTHING, CLAUSES, ArraySpec, Pointers
from gpumatch.cli import pictures
from gpumatch.codes.table import CodedEvents, Table
from gpumatch.errors import DeviceError, StorageError
from gpumatch.index import KINDS, register
from gpumatch.index.flat import FlatIndex, IndexParams, Kind, Planning, Workspace
from gpumatch.index.input import Input
from gpumatch.kernels.postings import match_rest
from gpumatch.opcodes import RANGE
from gpumatch.subscriptions.block import Attributes
from tests.conformance import test_examples, test_extremes, test_oracle
from tests.test_imports import FOLDERS

# The kind


@dataclass(frozen=True, slots=True)
class Hashed(IndexParams):
    """Find a subscription by one of its equalities; test those without any on every event."""

    kind: ClassVar[str] = "hashed"


ARRAYS = {
    "key": ArraySpec("int64", "keys", "an attribute and a code that clauses name, ascending", ANYTHING),
    "key_ptr": ArraySpec("int64", "keys + 1", "per key: where its clauses start", Pointers("held")),
    "clause": ArraySpec("int32", "held", "the clauses of the keys", CLAUSES),
    "rest": ArraySpec("int32", "rest", "clauses without an equality", CLAUSES),
}


def build(params: Hashed, given: Input) -> dict[str, Any]:
    """Each clause hangs on the first of its equalities."""
    table = given.table
    attribute, kind, lo, hi = table.predicate.reshape(-1, 4)[: table.clause_ptr[-1]].astype(np.int64).T
    owner = np.repeat(np.arange(len(table.clause_row)), np.diff(table.clause_ptr))
    named = (kind == RANGE) & (lo == hi) & (owner >= given.first) & (owner < given.last)
    clause, first = np.unique(owner[named], return_index=True)
    found, number = np.unique(((attribute << 32) + lo)[named][first], return_inverse=True)
    return {
        "key": found,
        "key_ptr": pointers(np.bincount(number, minlength=len(found))),
        "clause": clause[np.argsort(number, kind="stable")].astype(np.int32),
        "rest": np.setdiff1d(np.arange(given.first, given.last), clause).astype(np.int32),
    }


def match(
    index: FlatIndex, attributes: Attributes, table: Table, events: CodedEvents, once: bool, work: Workspace
) -> tuple[Array, Array]:
    """The clauses of an event's values are tested, and the rest."""
    a, found = index.arrays, []
    facts = (attributes.multi, attributes.presence, np.zeros(len(attributes), np.uint8))
    tests = ((table.clause_row, table.clause_ptr, table.clause_program), table.predicates(), table.programs)
    for start, stop in zip(events.ptr[:-1], events.ptr[1:], strict=True):
        attribute, code = events.attribute[start:stop], events.code[start:stop]
        keys = np.flatnonzero(np.isin(a["key"], (attribute.astype(np.int64) << 32) + code))
        lists = [a["clause"][a["key_ptr"][key] : a["key_ptr"][key + 1]] for key in keys]
        alone = CodedEvents(np.array([0, stop - start]), attribute, code)
        tested = np.concatenate([a["rest"], *lists])
        found.append(match_rest(alone.arrays(), table.length, once, facts, tested, *tests)[1])
        work.count("tests", len(tested))
    return pointers(np.array([len(rows) for rows in found], np.int64)), np.concatenate([np.zeros(0, np.int32), *found])


HASHED = Kind(params=Hashed, arrays=ARRAYS, build=build, match=match, facts=lambda index, counters: dict(counters))

# What it must pass


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register(HASHED)
    yield
    del KINDS["hashed"]


def conformance() -> list[Callable[..., None]]:
    """All tests of the suite that take an index."""
    modules = (test_examples, test_extremes)
    tests = [one for module in modules for name, one in vars(module).items() if name.startswith("test_")]
    return [one for one in tests if "index" in inspect.signature(one).parameters]


@pytest.mark.long
@pytest.mark.parametrize("test", conformance(), ids=lambda test: test.__name__)
def test_it_passes_the_suite(test: Callable[..., None]) -> None:
    marks = {mark.args[0]: mark.args[1][-1] for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"}
    test(**{**marks, "index": "hashed" if test.__module__ == test_examples.__name__ else Hashed()})


def test_it_equals_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_oracle, "VARIANTS", (Hashed(),))
    test_oracle.test_every_index_equals_the_oracle()


def filled(index: Any = "hashed", **options: Any) -> gm.Matcher:
    matcher = gm.Matcher({"a": "int64", "b": "float64"}, index=index, **options)
    matcher.add({at: f"a = {at % 7} AND b > {at} OR b = {at}" for at in range(200)}, destination="d")
    return matcher


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    events = [{"a": 3, "b": 70.0}, {"b": 5.0}, {}]
    right = list(filled("scan").match(events))
    filled().save(tmp_path / "index")
    loaded = gm.load(tmp_path / "index")
    assert loaded._requested == Hashed()
    assert list(loaded.match(events)) == right
    assert list(loaded.destinations(events)) == [["d"], ["d"], []]
    loaded.remove([70])
    loaded.compact()
    assert list(loaded.match(events)) == [[at for at in rows if at != 70] for rows in right]
    del KINDS["hashed"]
    with pytest.raises(StorageError, match="'hashed', which is not known here"):
        gm.load(tmp_path / "index")
    register(HASHED)


def test_it_is_planned_counted_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    matcher = filled()
    matcher.match([{"a": 3}])
    assert "200 subscriptions: Hashed() (as asked)" in str(matcher.plan())
    [part] = matcher.stats()["segments"][0]["parts"]
    assert (part["index"], part["clauses"]) == ("hashed", 400)
    assert part["tests"] > 0
    assert "hashed" in dict(filled("auto").plan().segments[-1].others)  # estimated, for comparison
    [panel] = pictures.panels(matcher)
    assert panel.title == "segment 0: Hashed(), 400 clauses"
    assert panel.charts[0].names == list(ARRAYS)
    pictures.draw(matcher, tmp_path / "it.png")
    assert (tmp_path / "it.png").stat().st_size > 1000


def test_auto_may_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMATCH_TRIALS", "0")
    planning = Planning((Hashed(),), lambda costs, clauses: "it costs nothing")
    cheap = replace(HASHED, planning=planning, cost=lambda params, costs, clauses: np.zeros(len(clauses)))
    with pytest.raises(ValueError, match="an index named 'hashed' already exists"):
        register(cheap)
    monkeypatch.setitem(KINDS, "hashed", cheap)
    assert filled("auto").plan().segments[0].index == Hashed()


def test_a_device_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.matcher.resolve_device", lambda device: ("cuda:0", "as asked"))
    with pytest.raises(DeviceError, match="index 'hashed' has no kernels for a CUDA device; use device='cpu'"):
        filled(device="cuda:0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"key": np.zeros(2, np.int32)},
            "array 'key' of a hashed index should be one of int64, has 1 dimensions of int32",
        ),
        (
            {"key_ptr": np.zeros(9, np.int64)},
            r"'key_ptr' of a hashed index should have keys \+ 1 numbers, has 9; .* 2 keys",
        ),
        ({"key": None}, "the hashed index lacks the array 'key'"),
        ({"more": np.zeros(1)}, "a hashed index should have clause, key, key_ptr, rest, has .*more"),
    ],
)
def test_what_is_loaded_is_checked(change: dict[str, Any], message: str) -> None:
    right = {
        "key": np.zeros(2, np.int64),
        "key_ptr": np.zeros(3, np.int64),
        "clause": np.zeros(1, np.int32),
        "rest": np.zeros(0, np.int32),
    }
    held = {name: array for name, array in (right | change).items() if array is not None}
    with pytest.raises(StorageError, match=message):
        HASHED.checked(FlatIndex(Hashed(), 0, 1, held), 3)


def test_the_kind_is_short() -> None:
    text = Path(__file__).read_text()
    own = text[text.index("# The kind") : text.index("# What it must pass")]
    assert own.count("\n") < 80


# Nobody else names a kind


def names_of_kinds(path: Path) -> set[str]:
    """Kinds that a module names, as classes or as the text that ``index=`` takes."""
    kinds = {kind.params.__name__ for kind in KINDS.values()} | {kind.name.upper() for kind in KINDS.values()}
    texts = set(KINDS)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and node.id in kinds:
            found.add(node.id)
        elif (
            isinstance(node, (ast.Attribute, ast.alias))
            and (node.attr if isinstance(node, ast.Attribute) else node.name) in kinds
        ):
            found.add(node.attr if isinstance(node, ast.Attribute) else node.name)
        elif isinstance(node, ast.Constant) and node.value in texts:
            found.add(node.value)
    return found


def test_no_other_module_names_a_kind() -> None:
    packages = {Path(inspect.getfile(kind.params)).parent for kind in KINDS.values() if kind is not HASHED}
    excepted = {FOLDERS["gpumatch"] / "__init__.py", FOLDERS["gpumatch"] / "index" / "__init__.py"}
    folders = [folder for name, folder in FOLDERS.items() if name != "gpumatch.kernels"]
    modules = [path for folder in folders for path in folder.rglob("*.py")]
    wrong = {
        str(path): names_of_kinds(path) for path in modules if path.parent not in packages and path not in excepted
    }
    assert not {path: names for path, names in wrong.items() if names}
