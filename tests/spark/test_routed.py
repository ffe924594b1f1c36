"""What tasks do with shards, called here without Spark: routing, matching, merging, passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.routing.shards.plan import save_shards
from gpumatch.spark import answers, routed, worker
from gpumatch.spark.frames import salts_of
from gpumatch.spark.opened import plan_of, shards_of
from gpumatch.spark.worker import Location, Query
from tests.examples import later

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")

SCHEMA = {"px": "float64", "sym": "string", "tags": "list<string>"}
SHARDS = 3
RULES = {
    f"r{n}": [f"px > {n}", f"sym = 's{n % 7}' AND px < {n}", f"tags = 't{n % 4}' OR px IS NULL", "sym IS NULL"][n % 4]
    for n in range(120)
}
EVENTS = pa.RecordBatch.from_pylist(
    [
        {
            "k": n,
            "px": None if n % 9 == 0 else float(n),
            "sym": None if n % 5 == 0 else f"s{n % 8}",
            "tags": [f"t{n % 6}"],
        }
        for n in [*range(70), 3, 3, 45]  # some of them repeated
    ]
)
ASKED: list[tuple[answers.Output, int | None]] = [
    ("pairs", None), ("array", None), ("count", None), ("destinations", None), ("array", 2), ("pairs", 2)
]  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    place = [None if n % 3 == 0 else f"d{n % 5}" for n in range(len(RULES))]
    matcher.add(RULES, destination=place, weight=[float(n % 13) for n in range(len(RULES))])
    return matcher


@pytest.fixture(scope="module", params=[(1, 1, 1), (3, 1, 2)], ids=["whole", "split"])
def index(request: Any, whole: gm.Matcher, tmp_path_factory: pytest.TempPathFactory) -> Location:
    """Three shards of the same rules, the first of them without destinations; whole, or in parts."""
    folder = tmp_path_factory.mktemp("index")
    save_shards(whole, folder, SHARDS, EVENTS, "hash")
    return Location(str(folder), False, shards_of(str(folder)), plan_of(str(folder)), request.param)


def query(output: answers.Output, top: int | None) -> Query:
    return Query(EVENTS.schema.names, ["k", "answer"], output, top, False, "cpu", True)


def batches(rows: int) -> Iterator[Any]:
    plain = pa.RecordBatch.from_arrays(EVENTS.columns, names=[f"c{n}" for n in range(EVENTS.num_columns)])
    return (plain.slice(first, rows) for first in range(0, len(plain), rows))


def expected(whole: gm.Matcher, output: answers.Output, top: int | None) -> list[Any]:
    """As in process, which other tests hold to the oracle."""
    found = answers.answers(whole, EVENTS, 1, output, top)
    return _rows((pa.RecordBatch.from_arrays(columns, names=["k", "answer"]) for columns in found), output, top)


def _rows(found: Iterator[Any], output: answers.Output, top: int | None) -> list[Any]:
    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    if output in ("array", "destinations") and top is None:  # in the order of the shards
        rows = [(k, sorted(ids)) for k, ids in rows]
    return sorted(rows)


def shuffled(rows: Iterator[Any], by: str, partitions: Callable[[int], int]) -> list[list[Any]]:
    """Rows in partitions by an integer column, as Spark would put them."""
    found: dict[int, list[Any]] = defaultdict(list)
    for batch in rows:
        for at, key in enumerate(batch.column(by).to_pylist()):
            found[partitions(key)].append(batch.slice(at, 1))
    return [held for _, held in sorted(found.items())]


def run_routed(index: Location, asked: Query, rows: int, together: bool) -> Iterator[Any]:
    salts = salts_of(sum(index.parts))
    routes = routed.route_batches(batches(rows), index, asked, salts, routed.merges(asked))
    sent = shuffled(routes, "salt", lambda salt: 0 if together else salt)
    matched = (batch for held in sent for batch in routed.match_sent([pa.concat_batches(held)], index, asked, salts))
    if asked.output == "pairs" and asked.top is None:
        return matched
    merged = []
    for held in shuffled(matched, "v0", lambda key: key % 2):
        keys = [(name, "ascending") for name in ("v0", "v1", "v2")]
        in_order = pa.Table.from_batches(held).sort_by(keys).combine_chunks().to_batches(max_chunksize=3)
        merged += list(routed.merge_events(iter([in_order[0].slice(0, 0), *in_order]), asked))
    return iter(merged)


@pytest.mark.parametrize(("output", "top"), ASKED)
def test_the_same_answers(index: Location, whole: gm.Matcher, output: answers.Output, top: int | None) -> None:
    right = expected(whole, output, top)
    assert len(right) >= 70
    asked = query(output, top)
    assert _rows(worker.pass_batches(batches(13), index, asked), output, top) == right
    for rows in (1, 30, 100):
        for together in (False, True):
            assert _rows(run_routed(index, asked, rows, together), output, top) == right


@pytest.mark.parametrize("limits", [(20, 1 << 30), (1000, 500), *later((1, 1 << 30), (1000, 1))])
def test_passes_of_any_size(
    index: Location, whole: gm.Matcher, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    monkeypatch.setattr(worker, "PASS_ROWS", limits[0])
    monkeypatch.setattr(worker, "PASS_BYTES", limits[1])
    for output, top in ASKED:
        right = expected(whole, output, top)
        assert _rows(worker.pass_batches(batches(7), index, query(output, top)), output, top) == right
        assert _rows(run_routed(index, query(output, top), 50, False), output, top) == right


def test_events_that_are_wide_are_sent_in_pieces(
    index: Location, whole: gm.Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routed, "SENT_BYTES", 2000)
    sent = list(routed.route_batches(batches(50), index, query("pairs", None), salts_of(sum(index.parts)), False))
    assert len(sent) > -(-len(EVENTS) // 50)
    for output, top in ASKED:
        assert _rows(run_routed(index, query(output, top), 50, False), output, top) == expected(whole, output, top)


def test_a_shard_without_subscriptions_counts_nothing(whole: gm.Matcher) -> None:
    total = worker.Totals()
    for number, matcher in enumerate((gm.Matcher(SCHEMA, device="cpu"), whole)):
        total.add(number, matcher, EVENTS)
    found = list(total.batches(["k", "answer"]))
    assert [batch.column(0).type for batch in found] == [whole._seal().ids.type]


def test_totals(index: Location, whole: gm.Matcher) -> None:
    counted = query("count", None)
    pairs = expected(whole, "pairs", None)
    right: dict[str, int] = defaultdict(int)
    for _, name in pairs:
        right[name] += 1
    salts = salts_of(sum(index.parts))
    sent = list(routed.route_batches(batches(9), index, counted, salts, merging=False))
    ways = [worker.count_passes(batches(30), index, counted), routed.count_sent(sent, index, counted, salts)]
    for found in ways:
        totals = {row["k"]: row["answer"] for batch in found for row in batch.to_pylist()}
        assert totals == right


def test_events_of_a_shard_in_parts_are_spread_over_them(index: Location) -> None:
    salts = salts_of(sum(index.parts))
    sent: dict[int, int] = defaultdict(int)
    for batch in routed.route_batches(batches(100), index, query("pairs", None), salts, merging=False):
        for row in batch.to_pylist():
            sent[row["salt"]] += len(row["c0"])
    assert set(sent) == set(salts)
    if index.parts[0] == 3:
        assert max(sent[salt] for salt in salts[:3]) < len(EVENTS) / 2


def test_numbers_of_partitions_are_those_of_spark() -> None:
    assert salts_of(1) == [0]
    assert len(set(salts_of(1000))) == 1000


def test_another_version_is_not_taken_for_the_planned_one(whole: gm.Matcher, tmp_path: Path) -> None:
    save_shards(whole, tmp_path, SHARDS, EVENTS)
    path = str(tmp_path)
    old = Location(path, False, shards_of(path), plan_of(path))
    less = gm.Matcher(SCHEMA, device="cpu")
    less.add({"r1": RULES["r1"]})
    save_shards(less, tmp_path, SHARDS, EVENTS)
    assert set(old.shards).isdisjoint(shards_of(path))
    asked = query("pairs", None)
    assert _rows(worker.pass_batches(batches(5), old, asked), "pairs", None) == expected(whole, "pairs", None)
    less.add({"r2": RULES["r2"]})
    save_shards(less, tmp_path, SHARDS, EVENTS)
    with pytest.raises(gm.StorageError, match="does not exist"):
        list(worker.pass_batches(batches(5), old, query("pairs", None)))


def test_an_index_without_a_plan(whole: gm.Matcher, tmp_path: Path) -> None:
    whole.save(tmp_path)
    assert shards_of(str(tmp_path)) == ()
    with pytest.raises(gm.StorageError, match="has no plan for its shards; build it again with shards="):
        plan_of(str(tmp_path))
