"""Any history of changes, against a plain dict and NumPy."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.expr import evaluate, parse
from gpumatch.expr.constants import constant_text
from tests.conformance.strategies import events, expressions
from tests.examples import examples
from tests.matcher.faces import SCHEMA, TYPED, filled

HARD = [
    " XOR ".join(f"i {op} 2 XOR x {op} 1 XOR s {op} 'b' XOR tags {op} 'a'" for op in ("<", ">", "=")),
    " AND ".join(f"(i = {k} OR x > {k} OR s < '{k}' OR tags = '{k}')" for k in range(-4, 4)),
    "NOT (" + " OR ".join(f"(i <> {k} AND x <= {k} AND tags <> '{k}')" for k in range(8)) + ")",
    "(i = 1 XNOR x > 0) XOR (s LIKE 'a%' XNOR tags > 'a') XOR (i IS NULL XNOR x BETWEEN 0 AND 2)",
    "NOT (NOT (i = 1 AND tags = 'a') XOR x = 0.5) OR s IN ('a', 'ab', 'é', 'z')",
    f"i IN ({', '.join(map(str, range(0, 400, 3)))})",
    "TRUE",
    "i < 0 AND i > 0",
]


def model_answers(model: dict[int, gm.Expr], batch: list[dict[str, Any]]) -> list[list[int]]:
    return [[name for name, expr in model.items() if evaluate(expr, event, TYPED) is True] for event in batch]


def hard(index: int) -> gm.Expr:
    return parse(HARD[index])


EXPRESSIONS = expressions(SCHEMA, 5) | st.sampled_from(range(len(HARD))).map(hard)
IDS_OF_MODEL = st.integers(0, 11)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(st.just("collect"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(st.just("ranges"), st.lists(st.tuples(IDS_OF_MODEL, st.integers(-3, 3)), max_size=4)),
    st.tuples(st.just("remove"), st.lists(IDS_OF_MODEL, max_size=4)),
    st.tuples(st.just("replace"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=3)),
    st.tuples(st.just("upsert"), st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5)),
    st.tuples(
        st.just("change"), st.tuples(st.dictionaries(IDS_OF_MODEL, EXPRESSIONS, max_size=5), st.sets(IDS_OF_MODEL))
    ),
    st.tuples(st.just("match"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("reload"), st.booleans()),
)


class Twin:
    """A matcher beside the dict that it should behave like."""

    def __init__(self, index: str, folder: str) -> None:
        self.matcher, self.model, self.folder = gm.Matcher(SCHEMA, index=index), dict[int, gm.Expr](), folder

    def add(self, given_expressions: dict[int, gm.Expr]) -> None:
        if given_expressions.keys() & self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.add(given_expressions)
        else:
            self.matcher.add({k: str(e) if k % 2 else e for k, e in given_expressions.items()})
            self.model.update(given_expressions)

    def collect(self, given_expressions: dict[int, gm.Expr]) -> None:
        rejected = self.matcher.add(given_expressions, on_error="collect")
        known = [name for name in given_expressions if name in self.model]
        assert [one.id for one in rejected] == known
        self.model.update({name: e for name, e in given_expressions.items() if name not in known})

    def ranges(self, pairs: list[tuple[int, int]]) -> None:
        ids, low = [name for name, _ in pairs], [end for _, end in pairs]
        given_ranges = {"i": (low, [end + 2 for end in low]), "s": (["a"] * len(low), None)}
        if len(set(ids)) < len(ids) or set(ids) & self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.add_ranges(ids, given_ranges)
        else:
            self.matcher.add_ranges(ids, given_ranges)
            self.model.update({name: parse(f"i BETWEEN {end} AND {end + 2} AND s >= 'a'") for name, end in pairs})

    def remove(self, ids: list[int]) -> None:
        if set(ids) - self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.remove(ids)
        else:
            self.matcher.remove(ids)
            for name in set(ids):
                del self.model[name]

    def replace(self, given_expressions: dict[int, gm.Expr]) -> None:
        if given_expressions.keys() - self.model.keys():
            with pytest.raises(gm.IdError):
                self.matcher.replace(given_expressions)
        else:
            self.matcher.replace(given_expressions)
            for name, expr in given_expressions.items():
                del self.model[name]
                self.model[name] = expr

    def upsert(self, given_expressions: dict[int, gm.Expr]) -> None:
        self.matcher.upsert({k: str(e) if k % 2 else e for k, e in given_expressions.items()})
        for name, expr in given_expressions.items():
            self.model.pop(name, None)
            self.model[name] = expr

    def change(self, given: tuple[dict[int, gm.Expr], set[int]]) -> None:
        upsert, remove = given[0], given[1] - given[0].keys()
        texts = {name: str(self.matcher[name]) for name in upsert if name in self.model}
        for _ in range(2):  # the second one changes nothing
            self.matcher.change(upsert, list(remove))
            for name, expr in upsert.items():
                if texts.get(name) != str(expr):
                    self.model.pop(name, None)
                    self.model[name] = expr
                    texts[name] = str(expr)
            for name in remove:
                self.model.pop(name, None)

    def match(self, _: None) -> None:
        self.matcher.match_one({})

    def compact(self, _: None) -> None:
        self.matcher.compact()
        assert len(self.matcher.plan().segments) <= 1

    def reload(self, mmap: bool) -> None:
        self.matcher.save(self.folder)
        self.matcher = gm.load(self.folder, mmap=mmap)


@settings(max_examples=examples(60))
@given(
    index=st.sampled_from(["auto", "scan", "pstbloom"]),
    operations=st.lists(OPERATIONS, min_size=1, max_size=12),
    batch=st.lists(events(SCHEMA), min_size=1, max_size=4),
)
def test_any_history_equals_the_model(index: str, operations: list[Any], batch: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        twin = Twin(index, f"{folder}/idx")
        for name, argument in operations:
            getattr(twin, name)(argument)
            assert len(twin.matcher) == len(twin.model)
        assert twin.matcher.ids.tolist() == list(twin.matcher) == list(twin.model)
        assert list(twin.matcher.match(batch)) == model_answers(twin.model, batch)
        for name in list(twin.model)[:3]:
            held, model = twin.matcher[name], twin.model[name]
            assert [evaluate(held, one, TYPED) for one in batch] == [evaluate(model, one, TYPED) for one in batch]
            assert twin.matcher.explain(batch[0], name).result == evaluate(twin.model[name], batch[0], TYPED)


@pytest.mark.parametrize("index", ["scan", "pstbloom"])
@settings(max_examples=examples(60))
@given(batch=st.lists(events(SCHEMA), min_size=1, max_size=20))
def test_what_stays_a_program(index: str, batch: list[dict[str, Any]]) -> None:
    model = {k: hard(k) for k in range(len(HARD))}
    matcher = filled(model, index)
    assert matcher.stats()["programs"] >= 3
    assert list(matcher.match(batch)) == model_answers(model, batch)


WHOLE = [0, 1, -1, 2, 127, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63, 2**63, 2**64, -(2**70), 10**30]
REAL = [0.0, 0.5, -0.5, 2.5, 0.1, 5e-324, -5e-324, 1e300, 2.0**53, 2.0**63, -(2.0**63), 1e19, math.inf, -math.inf]
TEXT = ["", "a", "ab", "b", "é", "a\x00", "\ud7ff", "\U0010ffff", "z", "it's", "ÿ", "\U0001f600", "A", " ", "%", "'"]
DAYS = [dt.date.fromordinal(at) for at in (1, 2, 700_000, 719_162, 719_163, 3_652_058, 3_652_059)]
SMALL = [one for one in WHOLE if -(2**63) <= one < 2**63] * 2
CONSTANTS = [("int64", SMALL), ("int64", WHOLE + REAL), ("float64", REAL * 2), ("float64", SMALL), ("string", TEXT)]
CONSTANTS += [("int8", WHOLE + REAL), ("float64", REAL + WHOLE), ("date", DAYS * 3)]
SHAPES = ["a = {}", "a <> {}", "a < {}", "a <= {}", "a > {}", "a >= {}", "a > {} AND a <= {}", "a > {} XOR a > {}"]
SHAPES += ["a BETWEEN {} AND {}", "NOT a BETWEEN {} AND {}", "a IN ({}, {})", "NOT (a < {} OR a = {})"]
SHAPES += ["a = {} OR b < {}"]


@pytest.mark.parametrize(("kind", "constants"), CONSTANTS, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("shape", SHAPES)
def test_many_rows_of_one_shape(kind: str, constants: list[Any], shape: str) -> None:
    """So many that their constants are bound as columns where they are all exact, one by one where they are not."""
    typed = gm.Schema.of({"a": kind, "b": kind})
    texts = [constant_text(one) for one in constants]
    model = dict(enumerate(shape.format(*pair) for pair in zip(texts, reversed(texts), strict=True)))
    matcher = gm.Matcher(typed, index="pstbloom")
    matcher.add(model)
    values = [one for one in constants if held(one, kind)] or REAL
    batch = [{"a": one, "b": values[at - 3]} for at, one in enumerate(values)]
    expected = [[k for k, text in model.items() if evaluate(parse(text), event, typed)] for event in batch]
    assert list(matcher.match(batch)) == expected


def held(value: Any, kind: str) -> bool:
    """Whether an event can hold a value."""
    if kind == "float64":
        return isinstance(value, float)
    least, most = (-128, 127) if kind == "int8" else (-(2**63), 2**63 - 1)
    return not kind.startswith("int") or (least <= value <= most and value == int(value))


@pytest.mark.parametrize("index", ["scan", "pstbloom"])
def test_many_segments_against_numpy(index: str) -> None:
    """More constants than 16 bits number, ranges narrow and wide, in segments of all sizes and with holes."""
    rng = np.random.default_rng(11)
    count = 40_000
    low = rng.integers(0, 10**9, (2, count))
    high = low + rng.choice([1, 1000, 10**7, 10**9], (2, count))
    matcher = gm.Matcher({"a": "int64", "b": "int64"}, index=index)
    cuts = [0, 30_000, 38_000, 39_900, 40_000]
    for start, stop in pairwise(cuts):
        part = (slice(None), slice(start, stop))
        pairs = zip(low[part], high[part], strict=True)
        matcher.add_ranges(np.arange(start, stop), dict(zip("ab", pairs, strict=True)))
        matcher.match_one({})
    assert len(matcher.plan().segments) > 1
    alive = rng.random(count) < 0.9
    matcher.remove(np.flatnonzero(~alive))
    values = rng.integers(0, 2 * 10**9, (2, 50))
    values[:, :10] = low[:, :10]
    found = matcher.match({"a": values[0], "b": values[1]})
    holds = ((low[:, None] <= values[:, :, None]) & (values[:, :, None] <= high[:, None])).all(axis=0) & alive
    assert [list(ids) for ids in found] == [np.flatnonzero(row).tolist() for row in holds]
    matcher.compact()
    assert matcher.match({"a": values[0], "b": values[1]}) == found


def test_replace_is_seen_at_once() -> None:
    """A reader sees the old expression or the new one, never none."""
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({3: "i >= 0", 4: "i < 0"})
    stop = threading.Event()
    seen: list[list[int | str]] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(matcher.match_one({"i": 100}))

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(30):
        matcher.replace({3: f"i >= {at}"})
    stop.set()
    reader.join()
    assert seen
    assert all(ids == [3] for ids in seen)
