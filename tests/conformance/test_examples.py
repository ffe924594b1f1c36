"""The papers' worked examples, and cases that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import col
from gpumatch.expr import evaluate
from tests.conformance.devices import new_matcher, sized
from tests.conformance.test_oracle import INDEXES

I64_MIN, I64_MAX = -(2**63), 2**63 - 1


def spaces(matcher: gm.Matcher, values: list[int]) -> list[list[int]]:
    """Values grouped by the leaf space that they fall into."""
    segment = matcher._seal().segments[0]
    from gpumatch.codes.encode import EventEncoder

    batch = gm.EventBatch.of({"age": np.array(values)}, matcher.schema)
    codes = EventEncoder(segment.book, segment.attributes, segment.used, batch).encode(0, len(values)).code
    return [
        [v for v, code in zip(values, codes.tolist(), strict=True) if code == space]
        for space in sorted(set(codes.tolist()))
    ]


def test_predicate_spaces_of_the_thesis() -> None:
    """Section 6.4, corrected: [1,20) [20,30) [30,60] (60,80] (80,100]; after S2 is gone three remain."""
    matcher = new_matcher({"age": "int64"})
    matcher.add({"S1": "age BETWEEN 20 AND 60", "S2": "age BETWEEN 30 AND 80"})
    whole = list(range(1, 101))
    found = [(space[0], space[-1]) for space in spaces(matcher, whole)]
    assert found == [(1, 19), (20, 29), (30, 60), (61, 80), (81, 100)]
    matcher.remove(["S2"])
    matcher.compact()
    assert [(space[0], space[-1]) for space in spaces(matcher, whole)] == [(1, 19), (20, 60), (61, 100)]


@pytest.mark.parametrize("index", INDEXES)
def test_leaf_codes_follow_the_table(index: str) -> None:
    """Every operator on one attribute, at, below, between and above the constants."""
    texts = [
        "x < 3", "x <= 3", "x = 3", "x <> 3", "x > 3", "x >= 3", "x BETWEEN 3 AND 7", "x NOT BETWEEN 3 AND 7",
        "x IN (3, 7)", "x NOT IN (3, 7)", "x IS NULL", "x IS NOT NULL", "x BETWEEN 7 AND 3", "x IN ()", "x NOT IN ()",
        "x < 2.5", "x = 2.5", "x <> 2.5", "x > 1e30", "x < 1e30", "x >= -INFINITY", "x < INFINITY",
    ]  # fmt: skip
    events: list[dict[str, Any]] = [{"x": value} for value in (I64_MIN, 2, 3, 4, 6, 7, 8, I64_MAX, None)] + [{}]
    matcher = new_matcher({"x": "int64"}, index=index)
    matcher.add(dict(zip(texts, texts, strict=True)))
    right = [[text for text in texts if evaluate(gm.parse(text), event, matcher.schema)] for event in events]
    assert list(matcher.match(events)) == right


@pytest.mark.parametrize("index", INDEXES)
def test_int64_constants_keep_all_bits(index: str) -> None:
    matcher = new_matcher({"x": "int64"}, index=index)
    matcher.add(
        {
            0: f"x = {I64_MAX}",
            1: f"x > {I64_MAX - 1}",
            2: f"x < {I64_MIN + 1}",
            3: f"x > {I64_MAX}",
            4: f"x < {I64_MIN}",
        }
    )
    matcher.add({5: f"NOT x <= {I64_MAX}", 6: f"x >= {2**53 + 1}", 7: "x <= 9223372036854775808"})
    events = {"x": np.array([I64_MAX, I64_MAX - 1, I64_MIN, 2**53, 2**53 + 1])}
    assert list(matcher.match(events)) == [[0, 1, 6, 7], [6, 7], [2, 7], [7], [6, 7]]


@pytest.mark.parametrize("index", INDEXES)
def test_many_equal_comparisons_at_the_ends(index: str) -> None:
    """So many rows of one shape that constants are bound by column."""
    matcher = new_matcher({"x": "int64", "f": "float64"}, index=index)
    matcher.add({at: f"NOT x <= {I64_MAX - at % 2}" for at in range(40)})
    matcher.add({100 + at: col("f") <= float("inf") for at in range(40)})
    matcher.add({200 + at: col("f") > float("inf") for at in range(40)})
    result = matcher.match({"x": np.array([I64_MAX, 0]), "f": np.array([np.inf, np.nan])})
    assert result.ids(0) == [*range(1, 40, 2), *range(100, 140)]
    assert result.ids(1) == []


@pytest.mark.parametrize("index", INDEXES)
def test_lists(index: str) -> None:
    """A list satisfies a predicate when one value does; negated, when none does and the list is there."""
    texts = [
        "t = 'a'",
        "t <> 'a'",
        "NOT t = 'a'",
        "t IS NULL",
        "t >= 'a' AND t <= 'b'",
        "t BETWEEN 'a' AND 'b'",
        "t = 'a' AND t = 'c'",
    ]
    matcher = new_matcher({"t": "list<string>"}, index=index)
    matcher.add(dict(enumerate(texts)))
    events = [{"t": ["a", "a"]}, {"t": []}, {"t": None}, {"t": ["Z", "c"]}, {"t": ["a", "c", None]}]
    assert list(matcher.match(events)) == [[0, 4, 5], [1, 2], [3], [1, 2, 4], [0, 4, 5, 6]]


@pytest.mark.parametrize("index", INDEXES)
def test_strings(index: str) -> None:
    """Prefixes, unicode order by code point, quotes, and the empty string."""
    texts = [
        "s LIKE 'ab%'",
        "s LIKE '%'",
        "s = ''",
        "s < 'é'",
        "s LIKE '\ud7ff%'",
        "s = 'it''s'",
        "s > '\U0010ffff'",
        "s NOT LIKE 'a%'",
    ]
    values = ["", "a", "ab", "abz", "ac", "é", "\ud7ff\U0010ffff", "\ue000", "it's", "\U0010ffff", "\U0010ffff!"]
    matcher = new_matcher({"s": "string"}, index=index)
    matcher.add(dict(enumerate(texts)))
    right = [[at for at, t in enumerate(texts) if evaluate(gm.parse(t), {"s": v}, matcher.schema)] for v in values]
    assert list(matcher.match({"s": values})) == right


@pytest.mark.parametrize("index", INDEXES)
def test_only_missing_attributes(index: str) -> None:
    """Subscriptions that hold only where nothing is there, among 30,000 attributes."""
    names = [f"a{at}" for at in range(30_000)]
    matcher = new_matcher(dict.fromkeys(names, "int64"), index=index)
    matcher.add(
        {0: "a5 IS NULL", 1: "a5 IS NULL AND a6 IS NULL", 2: "a29999 IS NULL AND a7 > 3", 3: "a7 IS NULL OR a7 > 3"}
    )
    events = gm.EventBatch.from_csr([0, 2, 3, 3], [5, 7, 7], [1, 4, 2], names)
    assert list(matcher.match(events)) == [[2, 3], [0, 1], [0, 1, 3]]


@pytest.mark.long
@pytest.mark.parametrize("index", INDEXES)
def test_expressions_that_do_not_split(index: str) -> None:
    """XOR over many attributes, and products of ORs, stay programs: same answers, nothing refused."""
    names = [f"a{at}" for at in range(24)]
    matcher = new_matcher(dict.fromkeys(names, "int64"), index=index)
    xor = " XOR ".join(f"{name} > 5" for name in names)
    product = " AND ".join(f"({left} > 5 OR {right} > 7)" for left, right in zip(names[::2], names[1::2], strict=True))
    deep = "".join(f"a{at % 24} > 5 {'AND' if at % 2 else 'OR'} (" for at in range(900)) + "a3 > 2" + ")" * 900
    texts = [xor, product, f"NOT ({xor})", f"NOT ({product})", deep, f"a0 = 9 AND ({xor})", f"a0 = 9 OR ({product})"]
    matcher.add(dict(enumerate(texts)))
    assert matcher.stats()["programs"] >= 4
    rng = np.random.default_rng(0)
    events = [{name: int(rng.integers(0, 10)) for name in names} for _ in range(sized(40, few=4))]
    events += [{name: value for name, value in event.items() if rng.random() < 0.9} for event in events]
    right = [[at for at, t in enumerate(texts) if evaluate(gm.parse(t), event, matcher.schema)] for event in events]
    assert list(matcher.match(events)) == right


@pytest.mark.long
@pytest.mark.parametrize("index", INDEXES)
def test_sizes(index: str) -> None:
    """No subscriptions, no events, no attributes in an event, always true, never true, 60 predicates, one of 10,000."""
    names, many = [f"a{at}" for at in range(60)], sized(10_000, few=100)
    matcher = new_matcher(dict.fromkeys(names, "float64"), index=index)
    assert list(matcher.match([{"a0": 1.0}])) == [[]]
    assert list(matcher.match([])) == []
    matcher.add({0: "TRUE", 1: "FALSE", 2: " AND ".join(f"{name} >= 0.5" for name in names), 3: "a0 = 1 AND a0 = 2"})
    matcher.add({4: " OR ".join(f"a1 = {at}" for at in range(many)), 5: "NOT (a0 = 1 AND a0 = 2)"})
    matcher.add({6: " OR ".join(f"{name} = {at}" for at in range(sized(50, few=3)) for name in names)})
    whole = dict.fromkeys(names, 0.5)
    assert list(matcher.match([{}, whole, {"a1": many - 1.0}])) == [[0], [0, 2, 5], [0, 4]]
    assert matcher.match([]).to_arrow().num_rows == 0


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("count", [1, 63, 64, 65, sized(5000, few=129)])
def test_many_rows_of_one_event(index: str, count: int) -> None:
    """All match: rows come ascending and once, however many there are and however many branches hold."""
    matcher = new_matcher({"x": "int64", "y": "int64"}, index=index)
    matcher.add({at: f"x < {10 + at} OR y < {10 + at} OR x = 3" for at in range(count)})
    result = matcher.match([{"x": 3, "y": 3}, {"x": 3}, {"x": 100 + count, "y": 9}])
    assert result.rows.tolist() == [*range(count)] * 3


@pytest.mark.long
@pytest.mark.parametrize("index", INDEXES)
def test_a_million_codes(index: str) -> None:
    """More codes than a filter's 16 bits tell apart: the filter lets more through, verification does not."""
    count = sized(1 << 18, few=300)
    low = np.arange(count, dtype=np.float64)
    matcher = new_matcher({"x": "float64", "y": "float64", "z": "float64"}, index=index)
    side = (low, low + 0.5)
    matcher.add_ranges(np.arange(count), {"x": side, "y": side, "z": side})
    far = count - 100
    events = {"x": [7.0, 7.25, 7.75, far + 0.5], "y": [7.5, 7.0, 7.0, far], "z": [7.1, 8.0, 7.0, far + 0.2]}
    assert list(matcher.match(events)) == [[7], [], [], [far]]


def test_wide_schemas_cost_nothing_per_event() -> None:
    """30,000 attributes, 30 values: the coded batch holds the entries that predicates test and nothing else."""
    from gpumatch.codes.encode import EventEncoder

    names = [f"a{at}" for at in range(30_000)]
    matcher = new_matcher(dict.fromkeys(names, "int64"))
    matcher.add({at: f"a{at} = 1" for at in range(0, 30_000, 100)})
    rng = np.random.default_rng(1)
    count = sized(100, few=5)
    attribute = np.sort(rng.choice(30_000, (count, 30)), axis=1)
    attribute += np.arange(30)  # distinct within an event
    attribute %= 30_000
    batch = gm.EventBatch.from_csr(np.arange(count + 1) * 30, attribute.ravel(), np.ones(30 * count, np.int64), names)
    segment = matcher._seal().segments[0]
    coded = EventEncoder(segment.book, segment.attributes, segment.used, batch).encode(0, count)
    assert len(coded.code) == np.count_nonzero(attribute % 100 == 0)
    right = [sorted(at for at in row.tolist() if at % 100 == 0) for row in attribute]
    assert list(matcher.match(batch)) == right


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("values", [np.array([0.1, 0.5]), np.array([16777217, 2**53 + 1])], ids=["floats", "ints"])
def test_float32_attributes_hold_what_float32_holds(index: str, values: Any) -> None:
    """However the value comes: as rows, as columns, or sparse beside an attribute that keeps all its digits."""
    number = values[0].item()
    matcher = new_matcher({"f": "float32", "x": "int64" if values.dtype.kind == "i" else "float64"}, index=index)
    matcher.add({0: f"f = {number}", 1: f"f <> {number}", 2: f"x = {values[1].item()}"})
    right = [[1, 2]]
    assert list(matcher.match([{"f": number, "x": values[1].item()}])) == right
    assert list(matcher.match({"f": values[:1], "x": values[1:]})) == right
    assert list(matcher.match(gm.EventBatch.from_csr([0, 2], [0, 1], values, ["f", "x"]))) == right


@pytest.mark.parametrize("index", INDEXES)
def test_one_attribute_nested_deeply(index: str) -> None:
    """Beyond some depth conditions on one attribute are no longer folded into one set: none may get lost."""
    chain = "x > 0"
    for at in range(1, 130):
        chain = f"({chain}) OR x = {-at}" if at % 2 else f"({chain}) AND x <> {at}"
    texts = [
        "NOT " * 100 + "x > 5 AND x < 10",
        "NOT " * 101 + "x > 5 OR x < 10",
        "NOT " * 120 + "(x > 5) AND x < 10 AND y > 1",
        chain,
        f"NOT ({chain})",
    ]
    matcher = new_matcher({"x": "int64", "y": "int64"}, index=index)
    matcher.add(dict(enumerate(texts)))
    events = [{"x": x, "y": 2} for x in (-200, -129, -128, -3, 0, 2, 7, 20, 128, 131)] + [{"x": 7}, {"y": 2}]
    right = [[at for at, t in enumerate(texts) if evaluate(gm.parse(t), event, matcher.schema)] for event in events]
    assert list(matcher.match(events)) == right


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize(
    "text", ["s = DATE '2024-01-01'", "s IN (DATE '2024-01-01', 'x')", "s = 5", "d = 5", "x = 'a'"]
)
def test_wrong_constants_are_refused_however_many_there_are(text: str, count: int) -> None:
    matcher = new_matcher({"s": "string", "d": "date", "x": "int64"})
    with pytest.raises(gm.SchemaError, match="has type"):
        matcher.add({at: text.replace("5", str(at)).replace("01'", f"{at % 28 + 1:02}'") for at in range(count)})
    assert len(matcher) == 0


def test_csr_arrays_may_be_used_again() -> None:
    """Kernels trust checked numbers, so a batch keeps its own."""
    attribute = np.array([0, 1], np.int32)
    matcher = new_matcher({"a": "int64", "b": "int64"})
    matcher.add({0: "a = 5", 1: "b = 6"})
    batch = gm.EventBatch.from_csr(np.array([0, 1, 2]), attribute, np.array([5, 6]), ["a", "b"])
    matcher.observe(batch)
    attribute[:] = 7
    matcher.compact()
    assert list(matcher.match(batch)) == [[0], [1]]
