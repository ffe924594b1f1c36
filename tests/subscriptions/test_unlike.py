"""Texts of unlike shapes: cut into conditions they make the block that the parser's trees make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.errors import GpumatchError
from gpumatch.expr import evaluate, shapes
from gpumatch.expr.keys import MIN
from gpumatch.expr.normal import Splitting
from gpumatch.opcodes import NULL, RANGE, SET
from gpumatch.subscriptions import texts as alike
from gpumatch.subscriptions import unlike
from gpumatch.subscriptions.block import EMPTY, Attributes, Block, BlockBuilder
from gpumatch.subscriptions.texts import text_block
from gpumatch.subscriptions.unlike import add_unlike
from tests.conformance.strategies import events, expressions, schemas

Clauses = dict[int, Counter[Any]]


@pytest.fixture(params=[1, 16], ids=["by column", "by row"], autouse=True)
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlike, "_FEW", 0)
    monkeypatch.setattr(unlike, "_MANY", request.param)


def parsed(attributes: Attributes, texts: list[Any], splitting: Splitting) -> tuple[Block, dict[int, GpumatchError]]:
    """The block and the errors without any cutting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlike, "_FEW", len(texts) + 1)
        return text_block(attributes, texts, splitting)


def clauses(block: Block, attributes: Attributes) -> Clauses:
    """What each row's clauses and programs say, in no order and without numbers of strings and ranges."""
    strings = attributes.covering(block.columns).of_kind("string")
    columns = [column.tolist() for column in block.predicates.columns()]

    def cut(attribute: int, key: int) -> Any:
        found = (block.pool[key >> 1], key & 1) if strings[attribute] and key != MIN else key
        return MIN if found == (b"", 0) else found

    def predicate(at: int) -> Any:
        attribute, kind, lo, hi = (column[at] for column in columns)
        if kind == NULL:
            return attribute, kind
        ends = [(lo, hi)]
        if kind != RANGE:
            ends = list(zip(block.ranges.lo[lo:hi].tolist(), block.ranges.hi[lo:hi].tolist(), strict=True))
            assert (block.ranges.attribute[lo:hi] == attribute).all()
        elif (lo, hi) == EMPTY or (lo > hi and not strings[attribute]):
            ends = []
        merged: list[Any] = []
        for low, high in ends:
            if merged and not strings[attribute] and merged[-1][1] + 1 == low:  # keys without a gap between them
                low = merged.pop()[0]
            merged.append((low, high) if not strings[attribute] else (cut(attribute, low), cut(attribute, high)))
        return attribute, RANGE if kind == SET else kind, tuple(merged)

    found: Clauses = {}
    for number, (row, program) in enumerate(zip(block.clause_row.tolist(), block.clause_program.tolist(), strict=True)):
        own = Counter(map(predicate, range(*block.clause_ptr[number : number + 2])))
        items = block.program_item[slice(*block.program_ptr[program : program + 2])].tolist() if program >= 0 else []
        steps = tuple(predicate(item) if item >= 0 else item for item in items)
        found.setdefault(row, Counter())[frozenset(own.items()), steps] += 1
    return found


def check(schema: dict[str, str], texts: list[Any]) -> Sequence[int]:
    """Blocks and errors are the same; returns the rows that the parser had to read."""
    attributes = Attributes.of(gm.Schema.of(schema))
    left: Sequence[int] = []
    for splitting in Splitting:
        right, wrong = parsed(attributes, texts, splitting)
        block, errors = text_block(attributes, texts, splitting)
        assert clauses(block, attributes) == clauses(right, attributes), texts
        assert {row: str(error) for row, error in errors.items()} == {row: str(e) for row, e in wrong.items()}
        assert list(errors) == sorted(errors)
        left = add_unlike(BlockBuilder(attributes.schema), attributes, splitting, texts, range(len(texts)))
    return left


SCHEMA = {
    "a": "int64",
    "b": "int64",
    "f": "float64",
    "g": "float32",
    "s": "string",
    "t": "string",
    "k": "bool",
    "d": "date",
    "m": "timestamp[us]",
    "n": "timestamp[ns]",
    "z": "timestamp[us, tz=Europe/Berlin]",
    "l": "list<string>",
    "i": "list<int64>",
}
RIGHT = [
    "a = 1 AND b > 2",
    "a >= 1 AND a < 5 AND NOT a = 3",
    "a >= 5 AND a < 1 OR b = 2",
    "a <> 3 OR a IN (1, 5, 3) OR b NOT IN (2, 2, 1)",
    "NOT (a > 9223372036854775807 OR a < -9223372036854775808) AND NOT b <= 9223372036854775807",
    "a = 9007199254740993.0 AND f = 9007199254740993 AND f > 1e22 AND g = 0.1 AND a < 2.5",
    "f BETWEEN 2 AND 1 OR f NOT BETWEEN -1.5 AND 1.5 OR f <= -0.0",
    "s = 'x' AND t <> 'it''s' AND NOT s LIKE 'y%'",
    "s < '' OR s >= '' OR NOT s < '' OR NOT s >= ''",
    "s <= 'b' AND NOT t > 'c' AND NOT t <= 'a'",
    "s BETWEEN 'a' AND 'c' AND t BETWEEN 'c' AND 'a'",
    "s NOT BETWEEN 'b' AND 'c' AND t NOT BETWEEN 'c' AND 'b'",
    "s BETWEEN '' AND 'a' OR t NOT BETWEEN '' AND 'a'",
    "s LIKE '%' AND t NOT LIKE '%'",
    r"s LIKE 'a\%%' OR s NOT LIKE 'é%' OR s NOT IN ('b', 'a', 'b')",
    "s > 'a' AND s < 'c' AND s <> 'b' XOR t = 'x'",
    "k AND NOT k OR k = FALSE",
    "d = DATE '2024-01-01' OR d > '2024-02-29' OR d NOT IN ('0001-01-01', DATE '9999-12-31')",
    "m > '2024-01-01 10:00:00' AND m <= TIMESTAMP '2024-01-01T10:00:00.123456' AND m <> DATE '2024-01-01'",
    "m > '2024-01-01' AND m = '2024-01-01 10:00' AND NOT m < '0001-01-01 00:00:00.000000001'",
    "n > '2024-01-01 10:00:00.5' AND n < '2500-01-01 00:00:00' AND n >= DATE '1001-01-01'",
    "z > '2024-01-01 10:00:00' AND z <= TIMESTAMP '2024-07-01 10:00:00Z'",
    "l = 'x' AND NOT l = 'y' AND l IS NOT NULL",
    "i IN (1, 2) OR i NOT IN (3) OR NOT i > 5 XNOR l IS NULL",
    "a IS NULL AND a = 1",
    "a IS NULL AND (a IS NOT NULL OR b = 1)",
    "a IS NULL XOR a = 1 XOR b IS NOT NULL",
    "NOT (a = 1 AND (b = 2 OR NOT (f > 1 XOR s = 'x')))",
    "(a = 1 OR b = 2) AND (a = 2 OR s = 'x') AND (f > 1 OR g < 2)",
    "a = 1 AND (a = 1 AND (a = 1))",
    "NOT NOT a = 1 XNOR NOT b = 2",
]
WRONG = [
    "a = 1 AND nothing = 2",
    "a = 'x'",
    "a = TRUE",
    "s = 5",
    "a LIKE 'x%'",
    "s LIKE 'x%y%' AND nothing = 1",
    "d = '2024-02-30'",
    "d = DATE '2024-02-30'",
    "d = TIMESTAMP '2024-01-01 00:00:00'",
    "m = DATE '2024-01-01 10:00:00'",
    "m = '2024-01-01 24:00:00'",
    "m = '2024-01-01 23:59:60'",
    "m = TIMESTAMP '2024-01-01 00:00:00Z'",
    "f = 1e400",
    "a < 1e400",
    "f = " + "9" * 5000,
    "k = 1",
    "a = 1 AND (b = 2",
    "a = = 1",
    "",
    None,
    5,
    "a = 'x\ud800'",
]


@pytest.mark.parametrize("text", RIGHT)
def test_alone(text: str) -> None:
    assert check(SCHEMA, [text]) == []


def test_all_at_once_and_with_wrong_ones() -> None:
    assert check(SCHEMA, RIGHT * 3) == []
    mixed: list[Any] = [*WRONG, *RIGHT, *WRONG[::-1], "5 < a AND TRUE"]
    left = check(SCHEMA, mixed)
    last = len(mixed) - 1
    assert set(left) == {*range(len(WRONG)), *range(len(WRONG) + len(RIGHT), last), last}


def test_a_wrong_constant_costs_its_own_text_only() -> None:
    texts = [f"d = '2024-01-{day:02}' AND a = {day}" for day in range(1, 40)]
    assert check(SCHEMA, texts) == list(range(31, 39))


def test_presence_of_a_list_beside_strings() -> None:
    assert check({"s": "string", "l": "list<int64>"}, ["NOT l = 1", "s = 'x' AND l NOT IN (1, 2)"]) == []


def test_no_texts() -> None:
    assert check(SCHEMA, []) == []


@given(data=st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_expressions(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    wanted = data.draw(st.lists(expressions(schema), max_size=8))
    check(schema, [str(expr) for expr in wanted])


@given(data=st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_the_oracle(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    wanted = data.draw(st.lists(expressions(schema), min_size=1, max_size=8))
    batch = data.draw(st.lists(events(schema), min_size=1, max_size=6))
    typed = gm.Schema.of(schema)
    right = [[at for at, expr in enumerate(wanted) if evaluate(expr, event, typed) is True] for event in batch]
    for index in ("auto", "gem", "atree"):
        matcher = gm.Matcher(schema, index=index, device="cpu")
        matcher.add({at: str(expr) for at, expr in enumerate(wanted)})
        assert list(matcher.match(batch)) == right, [str(expr) for expr in wanted]


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 5), st.integers(1, 3))
@example([0] * 40, 4, 1)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_some_alike_and_some_not(numbers: list[int], stretch: int, trial: int) -> None:
    """Whichever texts are grouped by shape, each is added once."""
    written = ("a = {}", "b IN ({}, 7)", "a = {} OR s = 'x'", "a = {} AND", "{} < b", "{}")
    texts = [written[number].format(at) for at, number in enumerate(numbers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_STRETCH", stretch)
        patch.setattr(shapes, "_TRIAL", trial)
        patch.setattr(alike, "_AT_ONCE", 17)
        patch.setattr("gpumatch.subscriptions.texts._MANY", 3)
        check(SCHEMA, texts)


def test_large_sets_of_few_shapes_are_grouped() -> None:
    texts = [f"a = {at} AND b < {at % 7}" if at % 5 else f"a{at} = 1" for at in range(20_000)]
    found, errors, others = shapes.parse_alike(texts, 16)
    assert not errors
    assert [len(shape.rows) for shape in found] == [16_000]
    assert others == list(range(0, 20_000, 5))
    assert shapes.parse_alike([f"a{at} = 1" for at in range(5000)], 16) == ([], {}, list(range(5000)))


def test_joins_of_many_texts() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.integers(-50, 50, (2, 600)).tolist()
    texts = [
        f"a > {x} AND NOT a > {y} AND a <> {x + 1} AND b >= {x} AND b < {y}" for x, y in zip(low, high, strict=True)
    ]
    assert check(SCHEMA, texts) == []
