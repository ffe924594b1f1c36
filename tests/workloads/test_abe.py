"""Generators of Boolean expressions make what they say, and the engines beside ours give the oracle's answers."""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.expr import Expr, Op, evaluate
from gpumatch.parallel import threads
from gpumatch.schema import Schema

BENCH = str(Path(__file__).parents[2] / "bench")
sys.path.insert(0, BENCH)  # scripts import each other by bare names
try:
    programs, abe, ads = (importlib.import_module(f"generators.{name}") for name in ("programs", "abe", "ads"))
    expressions, translation = (importlib.import_module(f"engines.{name}") for name in ("expressions", "translation"))
    measuring = importlib.import_module("measuring.expressions")
finally:
    sys.path.remove(BENCH)

pytestmark = pytest.mark.long

# Few attributes and values, so that all three results are frequent
SMALL = {"dims": 8, "cardinality": 3, "present": 5}


@pytest.fixture(autouse=True)
def settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines set the number of threads, and jobs a limit, for their process."""
    monkeypatch.setattr(threads, "_count", threads._count)
    monkeypatch.setattr(translation.Translation, "most", translation.Translation.most)


def small(n: int = 150, **given: Any) -> Any:
    return abe.abe(n, **{**SMALL, **given})


def event_rows(events: Any) -> list[dict[str, int]]:
    ends = events.offsets.tolist()
    pairs = [(events.names[a], v) for a, v in zip(events.attribute.tolist(), events.value.tolist(), strict=True)]
    return [dict(pairs[a:b]) for a, b in pairwise(ends)]


def oracle(workload: Any, events: Any) -> list[list[int]]:
    schema = Schema.of(workload.schema)
    expressions = [workload.expression(row) for row in range(len(workload.ids))]
    return [
        [i for i, expr in enumerate(expressions) if evaluate(expr, row, schema) is True] for row in event_rows(events)
    ]


def answers(engine: Any, workload: Any, events: Any) -> list[list[int]]:
    engine.build(workload)
    offsets, rows = engine.match(events)
    return [rows[a:b].tolist() for a, b in pairwise(offsets)]


def depths(expr: Expr) -> list[int]:
    """Of every item, the root having 1."""
    found = [1] * len(expr.program)
    for at, joined in reversed(list(enumerate(expr.operands()))):
        for child in joined:
            found[child] = found[at] + 1
    return found


def test_operators_come_in_their_shares() -> None:
    workload = abe.abe(20_000)
    kinds = np.bincount(workload.programs.kind, minlength=6)[1:]
    assert kinds / kinds.sum() == pytest.approx(abe.OPERATORS, abs=0.01)


@pytest.mark.parametrize("depth", range(1, 7))
def test_depth_and_numbers_of_operands(depth: int) -> None:
    workload = abe.abe(60, depth=depth, children=3)
    right = {"and": 3, "or": 3, "not": 1, "xor": 2, "xnor": 2}
    for row in range(60):
        expr = workload.expression(row)
        for item, at in zip(expr.program, depths(expr), strict=True):
            if isinstance(item, Op):
                assert item.arity == right[item.kind]
                assert at < depth
            else:
                assert at == depth


def test_depth_three_makes_up_to_256_conjunctions() -> None:
    workload = abe.abe(20_000)
    roots = workload.programs.offsets[1:] - 1
    assert translation.clause_counts(workload)[0][roots].max() == 256


@pytest.mark.parametrize("repeats", [0, 2, 5])
def test_repeats_add_to_the_expressions(repeats: int) -> None:
    workload = abe.abe(500, repeats=repeats)
    assert len(workload.ids) == len(workload.programs) == 500 * (1 + repeats)
    _, counts = np.unique([str(workload.expression(row)) for row in range(len(workload.ids))], return_counts=True)
    assert set(counts.tolist()) == {1 + repeats}
    once = abe.abe(500).facts()
    for key in ("distinct_expressions", "distinct_subexpressions", "distinct_predicates"):
        assert workload.facts()[key] == once[key]


def test_attributes_follow_zipf() -> None:
    for alpha, first in ((0.0, 1 / 50), (1.0, 1 / sum(1 / r for r in range(1, 51)))):
        workload = abe.abe(5000, alpha=alpha, dims=50)
        leaves = workload.programs.operand[workload.programs.kind == programs.PREDICATE]
        shares = np.bincount(workload.predicates.attribute[leaves], minlength=50) / len(leaves)
        assert shares[0] == pytest.approx(first, rel=0.1)
        assert len(shares) == 50


def test_ranges_are_those_of_w2() -> None:
    workload = abe.abe(5000, equality=0.3)
    leaves = workload.programs.operand[workload.programs.kind == programs.PREDICATE]
    lo, hi = workload.predicates.lo[leaves], workload.predicates.hi[leaves]
    assert np.mean((lo == hi) & (lo < 99)) == pytest.approx(0.3, abs=0.02)
    assert (hi - lo).max() == 50
    assert lo.min() == 0
    assert hi.max() == 99
    assert (abe.abe(500).predicates.lo == abe.abe(500).predicates.hi).all()


def test_events_have_distinct_attributes() -> None:
    for workload in (abe.abe(10), ads.ads(100)):
        events = workload.events(200)
        attribute, value = events.attribute.reshape(200, 20), events.value.reshape(200, 20)
        assert (np.diff(attribute, axis=1) > 0).all()
        assert (value >= 0).all()
        assert (value < workload.cardinality[attribute]).all()


@pytest.mark.parametrize("make", [lambda seed: abe.abe(300, seed=seed), lambda seed: ads.ads(300, seed=seed)])
def test_the_seed_decides(make: Any) -> None:
    one, two, other = make(1), make(1), make(2)
    for first, second in zip(one.programs, two.programs, strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(one.programs.operand, other.programs.operand)
    assert np.array_equal(one.events(10, seed=3).value, two.events(10, seed=3).value)
    assert not np.array_equal(one.events(10, seed=3).value, two.events(10, seed=4).value)


def test_the_long_form_is_the_program() -> None:
    workload = small(n=40, equality=0.5)
    table = workload.to_arrow(10, 30).to_pylist()
    assert workload.to_arrow(0, 40).num_rows == sum(table_.num_rows for table_ in workload.tables)
    at = 0
    for row in range(10, 30):
        for item in workload.expression(row).program:
            found = table[at]
            at += 1
            assert found["id"] == row
            if isinstance(item, Op):
                assert found["attribute"] is None
                assert found["op"] == item.kind.upper()
                assert found["value"] == (None if item.kind == "not" else item.arity)
            else:
                assert (found["attribute"], found["op"]) == (item.attribute, item.op)
                constants = (found["value"],) if item.op == "=" else tuple(found["values"])
                assert constants == item.values
    assert at == len(table)


def test_large_tables_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_TABLE_ROWS", 100)
    workload = small(n=50)
    ids = [set(table["id"].to_pylist()) for table in workload.tables]
    assert len(ids) > 3
    assert sorted(i for part in ids for i in part) == list(range(50))


def test_ads_repeat_their_parts() -> None:
    workload = ads.ads(20_000)
    facts = workload.facts()
    assert facts["predicates_least"] == 1
    assert 6 < facts["predicates_mean"] < 10
    assert 20 < facts["predicates_most"] <= ads.MOST
    assert len(workload.schema) == 122
    assert 0.15 < facts["distinct_expressions"] / 20_000 < 0.26
    parts = np.count_nonzero(workload.programs.kind != programs.PREDICATE)
    assert facts["distinct_subexpressions"] < parts / 5
    assert facts["distinct_predicates"] < parts / 10


def test_equal_parts_have_equal_hashes_whatever_the_order() -> None:
    kind = np.array([0, 0, programs.AND, 0, 0, programs.AND, 0, 0, programs.OR, 0, 0, programs.XOR], np.int8)
    operand = np.array([3, 5, 2, 5, 3, 2, 3, 5, 2, 3, 3, 2], np.int32)
    found = programs.links(programs.Programs(np.arange(0, 13, 3), kind, operand))
    assert found.hashes[2] == found.hashes[5]
    assert len({*found.hashes[[2, 8, 11]].tolist()}) == 3
    assert found.size.tolist() == [1, 1, 3] * 4
    assert found.parent.tolist() == [2, 2, -1, 5, 5, -1, 8, 8, -1, 11, 11, -1]


CASES: dict[str, Any] = {
    "depth 1": lambda: small(depth=1),
    "depth 2": lambda: small(depth=2),
    "depth 3": small,
    "depth 4": lambda: small(depth=4, n=60),
    "ranges": lambda: small(equality=0.3, children=2),
    "not and xor": lambda: small(operators=(0.1, 0.1, 0.3, 0.25, 0.25), depth=4, children=2),
    "repeats": lambda: small(n=40, repeats=3),
    "one attribute": lambda: small(present=1, depth=2),
    "ads": lambda: ads.ads(300),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["BitPlanes", "BooleanScan"])
@pytest.mark.parametrize("cores", [1, 2])
def test_engines_agree_with_the_oracle(case: str, engine: str, cores: int) -> None:
    workload = CASES[case]()
    events = workload.events(70, seed=5)
    right = oracle(workload, events)
    assert any(right)
    assert answers(getattr(expressions, engine)(cores), workload, events) == right


def test_slabs_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions.BitPlanes, "nodes", 20)
    workload = small(depth=4, n=60)  # one expression may be larger than a slab
    events = workload.events(10, seed=1)
    engine = expressions.BitPlanes(1)
    assert answers(engine, workload, events) == oracle(workload, events)
    assert len(engine.slabs) > 10


@pytest.mark.parametrize("engine", ["BitPlanes", "BooleanScan"])
def test_xor_of_many_operands(engine: str) -> None:
    """Three operands and two operators of which one is asked for falsehood too."""
    whole = small(n=1)
    kind = np.array([0, 0, 0, programs.XOR, 0, 0, 0, programs.XNOR, programs.NOT], np.int8)
    operand = np.array([0, 1, 2, 3, 3, 4, 5, 3, 1], np.int32)
    table = programs.PredicateTable(np.arange(6, dtype=np.int32), np.zeros(6, np.int64), np.ones(6, np.int64))
    held = programs.Programs(np.array([0, 4, 9]), kind, operand)
    workload = programs.BooleanWorkload("x", whole.schema, np.arange(2), held, table, 7, whole.cardinality)
    events = workload.events(100)
    right = oracle(workload, events)
    assert {len(found) for found in right} == {0, 1, 2}
    assert answers(getattr(expressions, engine)(1), workload, events) == right


@pytest.mark.parametrize("case", ["depth 1", "depth 3", "ranges", "not and xor", "repeats", "ads"])
def test_translation_agrees_with_the_oracle(case: str) -> None:
    workload = CASES[case]() if case != "not and xor" else small(operators=(0.1, 0.1, 0.3, 0.25, 0.25), children=2)
    events = workload.events(70, seed=5)
    assert answers(translation.Translation(1), workload, events) == oracle(workload, events)


def test_translation_drops_contradictions() -> None:
    workload = small(n=400, equality=0.5)
    whole = translation.conjunctions(workload)
    assert len(whole.owner) == translation.clauses_of(workload)
    made = translation.merged(whole, workload.predicates)
    assert 400 < len(made.owner) < len(whole.owner)
    assert (np.diff(made.owner) >= 0).all()
    assert (made.lo <= made.hi).all()
    assert (np.diff(made.pieces) >= 1).all()
    assert (np.diff(made.pieces) >= 2).any()  # NOT of a value between others
    for first, last in pairwise(made.offsets):
        assert (np.diff(made.attribute[first:last]) > 0).all()  # one literal for each attribute


def test_translation_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = abe.abe(200, depth=5)
    assert translation.clauses_of(deep) > 1e9
    assert not translation.Translation.suits(deep)
    monkeypatch.setattr(translation.Translation, "most", 10_000)
    assert translation.Translation.suits(abe.abe(200))


def test_a_wrong_answer_is_found() -> None:
    workload = small()
    events = workload.events(50)
    engine = expressions.BitPlanes(1)
    engine.build(workload)
    offsets, rows = engine.match(events)
    assert measuring.against_oracle(workload, events, (offsets, rows)) > 1000
    with pytest.raises(AssertionError, match="the answer says"):
        measuring.against_oracle(workload, events, (offsets, (rows + 1) % len(workload.ids)))


class Sent(list[Any]):
    """What a job sends."""

    def send(self, one: Any) -> None:
        self.append(one)


def job(**given: Any) -> Any:
    sizes = {"size": 300, "events": 60, "batch": 25, "seconds": 0.1, "repeats": 1, "clauses": 100_000}
    kinds = measuring.BooleanJob.kinds
    return measuring.BooleanJob(**{"workload": "abe", "generate": small, "engines": tuple(kinds), **sizes, **given})


def test_a_job_verifies_and_times_all_engines() -> None:
    sent = Sent()
    job().run(sent)
    facts, *results = sent
    assert facts.facts["expressions"] == 300
    assert facts.checked > 1000
    assert {r.engine: (r.status, r.error) for r in results} == dict.fromkeys(job().engines, ("ok", ""))
    assert all(r.cpu_us > 0 and r.bytes > 0 and r.matches > 0 for r in results)
    tree = results[0].graph
    assert tree["cost"] == tree["nodes"] + tree["edges"]


def test_a_job_tells_what_is_wrong_or_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    right = expressions.BooleanScan.rows_of
    monkeypatch.setattr(expressions.BooleanScan, "rows_of", lambda self, events: [r[:-1] for r in right(self, events)])
    sent = Sent()
    job(engines=("numba scan", "translation"), clauses=100).run(sent)
    _, scan, translated = sent
    assert scan.status == "wrong"
    assert "missing" in scan.error
    assert translated.status == "unsuited"
    assert "the limit is 100" in translated.error


@pytest.mark.parametrize("case", ["depth 3", "ranges", "ads"])
def test_a_matcher_takes_the_tables(case: str) -> None:
    workload = CASES[case]()
    events = workload.events(40, seed=2)
    matcher = gm.Matcher(workload.schema, index="atree")
    workload.add_to(matcher)
    assert list(matcher.match(gm.EventBatch.from_csr(*events))) == oracle(workload, events)
