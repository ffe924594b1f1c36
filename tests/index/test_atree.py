"""A-Tree: the thesis' worked examples, what the graph costs, and expressions that nothing should be afraid of."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.expr import evaluate
from gpumatch.expr.normal import Splitting
from gpumatch.index import KINDS
from tests.examples import later

SCHEMA = dict.fromkeys("abcdefgh", "int64")
OR_ABC, OR_EF, OR_GH = "(a = 1 OR b = 1 OR c = 1)", "(e = 1 OR f = 1)", "(g = 1 OR h = 1)"
SIX = {  # thesis, 9.3.2: Pa is "a = 1", and so on
    "S1": f"{OR_ABC} AND d = 1 AND {OR_EF}",
    "S2": f"{OR_EF} AND {OR_GH}",
    "S3": "a = 1 OR b = 1 OR c = 1 OR d = 1",
    "S4": f"{OR_ABC} AND d = 1",
    "S5": f"{OR_EF} AND {OR_GH}",
    "S6": f"NOT {OR_GH}",
}
EVENT = {"a": 1, "e": 0, "g": 0, "h": 0}  # Pa is true, Pe, Pg and Ph are false, the others undefined


def matcher(expressions: dict[Any, Any], schema: Any = SCHEMA, index: Any = "atree") -> gm.Matcher:
    made = gm.Matcher(schema, index=index, device="cpu")
    made.add(expressions)
    return made


def facts(made: gm.Matcher) -> dict[str, Any]:
    made.match_one({})  # what is added is indexed at the first match
    (segment,) = made.stats()["segments"]
    (part,) = segment["parts"]
    assert part["index"] == "atree"
    return part


def test_the_six_expressions() -> None:
    made = matcher(SIX)
    assert made.match_one(EVENT) == ["S3", "S6"]
    typed = gm.Schema.of(SCHEMA)
    for values in itertools.product([None, 0, 1], repeat=8):
        event = {name: value for name, value in zip("abcdefgh", values, strict=True) if value is not None}
        right = [name for name, text in SIX.items() if evaluate(gm.parse(text), event, typed) is True]
        assert made.match_one(event) == right, event


def test_the_graph_of_the_six_expressions() -> None:
    """Figure 9.3.2: ten predicates, two of them negations, eight nodes above them, and 17 edges."""
    part = facts(matcher(SIX))
    assert (part["nodes"], part["edges"], part["cost"]) == (18, 17, 35)


def test_the_optimised_run() -> None:
    """9.3.4: only nodes 11, 14 and 15 are evaluated, which are "a or b or c", S6 and S3."""
    made = matcher(SIX)
    before = facts(made)["evaluated"]
    assert made.match_one(EVENT) == ["S3", "S6"]
    assert facts(made)["evaluated"] - before == 3


def test_costs_of_the_thesis() -> None:
    """Figure 9.1.1, and what 9.2.2 and 9.2.3 add to it."""
    first = {"x": SIX["S1"], "y": SIX["S2"]}
    part = facts(matcher(first))
    assert (part["nodes"], part["edges"]) == (13, 12)
    assert facts(matcher({**first, "z": SIX["S3"]}))["cost"] == 25 + 3  # "a or b or c" is used again
    assert facts(matcher({**first, "z": SIX["S4"]}))["cost"] == 25 + 2  # x is put together anew


@pytest.mark.parametrize("step", [37, *later(1)])
def test_the_order_of_insertion_does_not_matter(step: int) -> None:
    for order in itertools.islice(itertools.permutations(SIX), 0, None, step):
        made = matcher({name: SIX[name] for name in order})
        assert facts(made)["cost"] == 35
        assert sorted(made.match_one(EVENT)) == ["S3", "S6"]


def test_operands_in_any_order_are_one_node() -> None:
    part = facts(matcher({1: "a = 1 XOR b = 2 XOR c = 3", 2: "c = 3 XOR a = 1 XOR b = 2", 3: "NOT (a = 1 AND b = 2)"}))
    twice = facts(matcher({1: "b = 2 XOR c = 3 XOR a = 1", 3: "NOT a = 1 OR NOT b = 2"}))
    assert part["cost"] == twice["cost"]


def test_repeated_expressions_cost_nothing() -> None:
    texts = [random_text(random.Random(seed), 3) for seed in range(40)]
    once = facts(matcher(dict(enumerate(texts))))
    many = matcher(dict(enumerate(texts * 5)))
    assert facts(many)["cost"] == once["cost"]
    typed = gm.Schema.of(SCHEMA)
    for event in random_events(random.Random(7), 20):
        right = [at for at, text in enumerate(texts * 5) if evaluate(gm.parse(text), event, typed) is True]
        assert many.match_one(event) == right


def test_what_was_split_is_one_expression_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = facts(matcher({1: "a = 1 AND b = 1 OR c = 1 AND d = 1", 2: "e = 1 OR f = 1"}))
    monkeypatch.setitem(KINDS, "atree", replace(KINDS["atree"], splitting=Splitting.PRODUCTS))
    split = matcher({1: "a = 1 AND b = 1 OR c = 1 AND d = 1", 2: "e = 1 OR f = 1"})
    assert (facts(split)["clauses"], facts(split)["cost"]) == (4, whole["cost"] + 1)  # one that is always false
    texts = {at: random_text(random.Random(at), 3) for at in range(100)}
    made, events = matcher(texts), random_events(random.Random(1), 600)
    made.remove(range(0, 100, 3))
    left = {at: gm.parse(text) for at, text in texts.items() if at % 3}
    typed = gm.Schema.of(SCHEMA)
    right = [[at for at, expr in left.items() if evaluate(expr, event, typed) is True] for event in events]
    assert facts(made)["clauses"] > 100
    assert list(made.match(events)) == right


def test_what_is_removed_is_gone_from_the_graph() -> None:
    texts = {at: random_text(random.Random(at), 4) for at in range(200)}
    made = matcher(texts)
    full = facts(made)
    made.remove(range(0, 200, 2))
    made.compact()
    kept = {at: text for at, text in texts.items() if at % 2}
    left, fresh = facts(made), facts(matcher(kept))
    assert (left["nodes"], left["edges"], left["bytes"]) == (fresh["nodes"], fresh["edges"], fresh["bytes"])
    assert left["bytes"] < full["bytes"]


def random_text(choose: random.Random, depth: int) -> str:
    if depth == 0 or choose.random() < 0.15:
        name, value = choose.choice("abcdefgh"), choose.randrange(4)
        return choose.choice((f"{name} = {value}", f"{name} <> {value}", f"{name} < {value}", f"{name} IS NULL"))
    operands = [f"({random_text(choose, depth - 1)})" for _ in range(choose.choice((2, 2, 3, 4)))]
    operator = choose.choice(("AND", "AND", "OR", "OR", "XOR", "XNOR", "NOT"))
    if operator == "NOT":
        return f"NOT {operands[0]}"
    return f" {operator} ".join(operands[:2] if operator == "XNOR" else operands)


def random_events(choose: random.Random, count: int) -> list[dict[str, int]]:
    return [{name: choose.randrange(4) for name in "abcdefgh" if choose.random() < 0.7} for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 64, 65, 512, 1100])
def test_tiles_of_events(count: int) -> None:
    """Few events wake few expressions, many wake all of them: the dense sweep. All return the same."""
    texts = [random_text(random.Random(seed), 3) for seed in range(40)]
    made = matcher(dict(enumerate(texts)))
    facts(made)
    events = random_events(random.Random(count), count)
    typed, parsed = gm.Schema.of(SCHEMA), [gm.parse(text) for text in texts]
    right = [[at for at, expr in enumerate(parsed) if evaluate(expr, event, typed) is True] for event in events]
    assert list(made.match(events)) == right
    assert made.count(events).tolist() == [len(rows) for rows in right]
    assert made.any(events).tolist() == [bool(rows) for rows in right]


def deep_text(choose: random.Random, depth: int) -> str:
    """Parentheses in parentheses, each beside another expression."""
    text = random_text(choose, 2)
    for at in range(depth):
        other = random_text(choose, 2)
        text = f"NOT ({text}) OR ({other})" if at % 2 else f"({text}) {choose.choice(('AND', 'XOR', 'XNOR'))} ({other})"
    return text


@pytest.mark.parametrize("seed", range(6))
def test_deep_expressions(seed: int) -> None:
    texts = [deep_text(random.Random(100 * seed + at), 12) for at in range(3)]
    assert min(gm.parse(text).depth for text in texts) >= 11
    made, typed = matcher(dict(enumerate(texts))), gm.Schema.of(SCHEMA)
    events = random_events(random.Random(seed), 70)
    parsed = [gm.parse(text) for text in texts]
    right = [[at for at, expr in enumerate(parsed) if evaluate(expr, event, typed) is True] for event in events]
    assert list(made.match(events)) == right


@pytest.mark.long
@pytest.mark.parametrize("operator", ["AND", "OR", "XOR"])
def test_ten_thousand_predicates(operator: str) -> None:
    names = [f"x{at}" for at in range(10_000)]
    made = matcher({"long": f" {operator} ".join(f"{name} = 1" for name in names)}, dict.fromkeys(names, "int64"))
    everything = dict.fromkeys(names, 1)
    but_one = {**everything, "x77": 0}
    unknown = dict.fromkeys(names[:-1], 1)
    right = {"AND": [True, False, False], "OR": [True, True, True], "XOR": [False, True, False]}[operator]
    assert [bool(found) for found in made.match([everything, but_one, unknown])] == right
    assert facts(made)["cost"] <= 200_000  # XOR is taken by halves: nothing multiplies


def test_nested_to_the_limit() -> None:
    text = "a = 1"
    for at in range(300):
        text = f"(b = 1 {'XOR' if at % 3 else 'XNOR'} ({text} OR c = {at}))"
    made, typed = matcher({"deep": text}), gm.Schema.of(SCHEMA)
    for event in random_events(random.Random(3), 50):
        assert bool(made.match_one(event)) == (evaluate(gm.parse(text), event, typed) is True), event


def test_no_translation() -> None:
    """An AND of twelve ORs of four would be 16 million conjunctions."""
    names = [f"{name}{at}" for name in "abcdefghijkl" for at in range(4)]
    groups = [" OR ".join(f"{name}{at} = 1" for at in range(4)) for name in "abcdefghijkl"]
    made = matcher({"x": " AND ".join(f"({group})" for group in groups)}, dict.fromkeys(names, "int64"))
    event = {f"{name}{at % 4}": 1 for at, name in enumerate("abcdefghijkl")}
    assert made.match_one(event) == ["x"]
    assert made.match_one({name: value for name, value in event.items() if name != "c2"}) == []
    part = facts(made)
    assert (part["clauses"], part["nodes"], part["edges"]) == (1, 48 + 12 + 1, 48 + 12)


def test_a_long_program_of_many_clauses() -> None:
    """What clauses have in common stays one node, however long it is."""
    rest = " AND ".join(f"(a{at} = 1 OR b{at} = 2)" for at in range(40))
    schema = dict.fromkeys(["z", *(f"{name}{at}" for name in "ab" for at in range(40))], "int64")
    made = matcher({at: f"z = {at} AND {rest}" for at in range(3000)}, schema)
    assert made.match_one({**{f"a{at}": 1 for at in range(40)}, "z": 7}) == [7]
    assert made.match_one({**{f"a{at}": 1 for at in range(39)}, "z": 7}) == []
    part = facts(made)
    assert (part["nodes"], part["edges"]) == (3000 + 80 + 40 + 1 + 3000, 80 + 40 + 2 * 3000)


def test_constants_beside_long_operands() -> None:
    choose = random.Random(5)
    names = [f"a{at}" for at in range(60)]
    parts = [" AND ".join(f"{name} = 1" for name in choose.sample(names, 40)) for _ in range(300)]
    schema = dict.fromkeys(["z", *names], "int64")
    made = matcher({at: f"z = {at % 7} AND (({part}) XOR FALSE)" for at, part in enumerate(parts)}, schema)
    assert made.match_one({**dict.fromkeys(names, 1), "z": 3}) == list(range(3, 300, 7))


def test_many_destinations_once_each() -> None:
    texts = {at: random_text(random.Random(at), 3) for at in range(300)}
    made = gm.Matcher(SCHEMA, index="atree", device="cpu")
    made.add(texts, destination=[at % 90 for at in texts])
    events, typed = random_events(random.Random(2), 150), gm.Schema.of(SCHEMA)
    wanted = {at: gm.parse(text) for at, text in texts.items()}
    right = [
        sorted({at % 90 for at, expr in wanted.items() if evaluate(expr, event, typed) is True}) for event in events
    ]
    for _ in range(2):  # the second call gets the memory of the first
        assert [sorted(found) for found in made.destinations(events)] == right
        assert [sorted(found) for found in made.destinations(events[:1])] == right[:1]


def test_rows_with_several_clauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index takes clauses as they come: a row that several of them find is returned once."""
    monkeypatch.setitem(KINDS, "atree", replace(KINDS["atree"], splitting=Splitting.PRODUCTS))
    texts = {at: random_text(random.Random(at), 2) for at in range(120)}
    made = matcher(texts)
    assert facts(made)["clauses"] > len(texts)
    events, typed = random_events(random.Random(4), 130), gm.Schema.of(SCHEMA)
    wanted = {at: gm.parse(text) for at, text in texts.items()}
    right = [[at for at, expr in wanted.items() if evaluate(expr, event, typed) is True] for event in events]
    assert list(made.match(events)) == right


def test_lists_are_negated_as_none_of() -> None:
    made = matcher(
        {"x": "NOT (t = 3 OR n > 2)", "y": "t = 3 XOR n > 2", "z": "t <> 3"}, {"t": "list<int64>", "n": "int64"}
    )
    assert made.match_one({"t": [1, 2], "n": 1}) == ["x", "z"]
    assert made.match_one({"t": [1, 3], "n": 1}) == ["y"]
    assert made.match_one({"t": [], "n": 5}) == ["y", "z"]
    assert made.match_one({"n": 1}) == []


def test_constants_and_nothing() -> None:
    made = matcher({"true": "TRUE", "false": "FALSE", "null": "a IS NULL", "both": "a IS NULL XOR b IS NULL"})
    assert made.match_one({}) == ["true", "null"]
    assert made.match_one({"a": 1}) == ["true", "both"]
    assert list(made.match([])) == []
    assert list(matcher({}).match([{"a": 1}])) == [[]]


def test_threads_share_an_index() -> None:
    texts = [random_text(random.Random(seed), 4) for seed in range(80)]
    made = matcher(dict(enumerate(texts)))
    batches = [random_events(random.Random(seed), 100) for seed in range(8)]
    right = [list(made.match(batch)) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [list(found) for found in pool.map(made.match, batches)] == right


def test_auto_may_give_conjunctions_to_other_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.index.planner._rank", lambda offer: ("atree" not in offer.name, -len(offer.parts)))
    conjunctions = {f"c{at}": f"a = {at} AND b > {at % 7}" for at in range(200)}
    others = {f"o{at}": f"(a = {at} OR b = {at}) AND (c = 1 OR NOT (d = 2 AND e = {at}))" for at in range(200)}
    made = matcher({**conjunctions, **others}, index="auto")
    event = {"a": 5, "b": 9, "c": 1, "d": 2, "e": 5}
    assert made.match_one(event) == ["c5", "o5", "o9"]
    parts = {part["index"]: part["clauses"] for part in made.stats()["segments"][0]["parts"]}
    assert 200 <= parts["atree"] < 300
    assert sum(parts.values()) == 400
    assert f"common sub-expressions of {parts['atree']} clauses are evaluated once" in str(made.plan())


def test_auto_without_room_for_a_graph() -> None:
    texts = {at: random_text(random.Random(at), 3) for at in range(200)}
    made = gm.Matcher(SCHEMA, device="cpu", memory_limit=1)
    made.add(texts)
    events, typed = random_events(random.Random(1), 20), gm.Schema.of(SCHEMA)
    right = [[at for at, text in texts.items() if evaluate(gm.parse(text), event, typed) is True] for event in events]
    assert list(made.match(events)) == right
    assert all(part["index"] != "atree" for part in made.stats()["segments"][0]["parts"])
