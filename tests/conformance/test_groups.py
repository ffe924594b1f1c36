"""Groups behind an equality that clauses share, at small sizes: what hangs in them is what the oracle returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpumatch as gm
from gpumatch.codes.encode import likelihoods
from gpumatch.expr import Expr, Op, Predicate
from gpumatch.index import IndexParams
from gpumatch.index.postings import compound
from gpumatch.kernels.postings import CELLS, FILTERED
from tests.conformance.devices import new_matcher, sized
from tests.conformance.strategies import CONSTANTS, events, predicates, schemas
from tests.conformance.test_oracle import expected
from tests.likelihood import equally_likely

PARAMS: tuple[IndexParams, ...] = (gm.PstBloom(), gm.PstHash(access=1), gm.PstHash(), gm.Scan())
each_index = pytest.mark.parametrize("index", PARAMS[:2], ids=str)
TICKS = {"sym": "string", "px": "float64", "qty": "int64", "name": "string", "tags": "list<string>"}


@pytest.fixture(autouse=True)
def few_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clauses get a group, however many codes there are, and hang on their first predicate."""
    equally_likely(monkeypatch)
    monkeypatch.setattr(compound, "_SHARED", 2)
    monkeypatch.setattr(compound, "_CODES", 1000)


def groups(matcher: gm.Matcher) -> list[int]:
    """How many codes each group has, of the first part of each segment; groups without any are left out."""
    found = []
    for segment in matcher._seal().segments:
        sizes = np.diff(segment.parts[0].index.arrays["group_ptr"])
        found += sizes[sizes > 0].tolist()
    return found


def lines(matcher: gm.Matcher) -> list[tuple[str, str]]:
    """Owner and partner of each line of the first segment."""
    segment = matcher._seal().segments[0]
    names = [*segment.attributes.schema.names, *(f"{name} there" for name in segment.attributes.schema.names)]
    held = segment.parts[0].index.arrays["lines"].reshape(-1, 3)
    return [(names[owner], names[partner]) for owner, partner, _ in held.tolist()]


def check(matcher: gm.Matcher, texts: Sequence[str], batch: list[dict[str, Any]]) -> None:
    """All at once, and the first events one by one."""
    right = expected({name: str(kind) for name, kind in TICKS.items()}, [gm.parse(text) for text in texts], batch)
    assert list(matcher.match(batch)) == right
    for event, ids in zip(batch[:3], right, strict=False):
        assert matcher.match_one(event) == ids


def filled(texts: Sequence[str], index: IndexParams | str = "pstbloom", schema: Any = TICKS) -> gm.Matcher:
    matcher = new_matcher(schema, index=index)
    matcher.add(dict(enumerate(texts)))
    return matcher


def alerts(count: int, symbols: str = "abc", seed: int = 0) -> list[str]:
    """An equality that many share, a range of prices each, and further ranges behind some."""
    rng = np.random.default_rng(seed)
    texts = []
    for at in range(count):
        low, width = rng.integers(0, 1000), rng.integers(0, 60)
        text = f"sym = '{symbols[at % len(symbols)]}' AND px BETWEEN {low} AND {low + width}.5"
        more = ("", f" AND qty >= {rng.integers(0, 90)}", " AND name < 'm'", f" AND qty < {low} AND name >= 'ab'")
        texts.append(text + more[rng.integers(len(more))])
    return texts


def ticks(count: int, symbols: str = "abcd", seed: int = 1) -> list[dict[str, Any]]:
    """Events that lack each of the attributes now and then, one symbol that nobody names, and an event of nothing."""
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = [{}]
    for _ in range(count):
        event = {
            "sym": symbols[rng.integers(len(symbols))],
            "px": float(rng.integers(0, 1060)),
            "qty": int(rng.integers(0, 1000)),
            "name": ("", "a", "ab", "m", "z")[rng.integers(5)],
            "tags": ["x", "y"][: rng.integers(3)],
        }
        gone = [name for name in event if rng.random() < 0.08]
        made.append({name: None if name in gone else value for name, value in event.items()})
    return made


# Random cases


@st.composite
def shared(draw: Any) -> tuple[dict[str, str], list[Expr], list[dict[str, Any]]]:
    """Clauses that begin with one of two equalities; most go on with ranges, some with programs."""
    schema = draw(schemas()) | draw(schemas(max_size=2).map(lambda it: {f"b{name}": kind for name, kind in it.items()}))
    owner = draw(st.sampled_from(list(schema)))
    kind = schema[owner].removeprefix("list<").removesuffix(">")
    values = draw(st.lists(CONSTANTS[kind], min_size=1, max_size=2))
    wanted = []
    for _ in range(draw(st.integers(2, 16))):
        items: list[Any] = [Predicate(owner, "=", (draw(st.sampled_from(values)),), False)]
        items += draw(st.lists(predicates(schema), max_size=3))
        count = len(items)
        if draw(st.integers(0, 3)) == 0:
            items += [draw(predicates(schema)), draw(predicates(schema)), Op(draw(st.sampled_from(["or", "xor"])), 2)]
            count += 1
        wanted.append(Expr(tuple(items + ([Op("and", count)] if count > 1 else []))))
    batch = draw(st.lists(events(schema), min_size=1, max_size=6))
    plain = [value for value in values if kind == schema[owner] and kind in ("bool", "string", "date", "int64")]
    plain = [value for value in plain if kind != "int64" or (isinstance(value, int) and -(2**63) <= value < 2**63)]
    for event in batch if plain else []:
        if draw(st.booleans()):
            event[owner] = draw(st.sampled_from(plain))
    return schema, wanted, batch


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=shared(), observed=st.booleans(), least=st.integers(1, 2))
def test_shared_equalities_equal_the_oracle(case: tuple[Any, ...], observed: bool, least: int) -> None:
    schema, wanted, batch = case
    right = expected(schema, wanted, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compound, "_SHARED", least)
        patch.setattr("gpumatch.store.segment.likelihoods", likelihoods)
        for index in PARAMS:
            matcher = new_matcher(schema, index=index)
            if observed:
                matcher.observe(batch)
            matcher.add(dict(enumerate(wanted)))
            assert list(matcher.match(batch)) == right, (index, [str(expr) for expr in wanted])


# What is in groups, and what is not


@each_index
@pytest.mark.parametrize("count", [40, 240])
def test_alerts(index: IndexParams, count: int) -> None:
    texts = alerts(count)
    matcher = filled(texts, index)
    assert set(lines(matcher)) >= {("sym", "px"), ("sym", "qty"), ("sym", "name")}
    check(matcher, texts, ticks(sized(60, few=12)))


def test_scan_has_no_groups() -> None:
    texts = alerts(60)
    matcher = filled(texts, "scan")
    assert groups(matcher) == []
    check(matcher, texts, ticks(20))


@pytest.mark.parametrize("clauses", [CELLS // 2 + 20, CELLS + 20], ids=["shifted once", "shifted twice"])
def test_groups_of_more_codes_than_cells(clauses: int) -> None:
    """Every clause has two cuts of its own in the only group of either partner."""
    texts = [f"sym = 'a' AND px BETWEEN {4 * at} AND {4 * at + 6} AND qty < {3 * at}" for at in range(clauses)]
    matcher = filled(texts)
    sizes = groups(matcher)
    assert max(sizes) > 2 * clauses
    assert sorted(lines(matcher)) == [("sym", "px"), ("sym", "qty")]
    rng = np.random.default_rng(2)
    prices = rng.integers(0, 4 * clauses + 8, sized(100, few=10))
    batch = [{"sym": "a", "px": float(price), "qty": int(rng.integers(0, 3 * clauses))} for price in prices]
    check(matcher, texts, batch)


def test_where_groups_end() -> None:
    """Below, at, between and above all bounds, also those that only floats beside them tell apart."""
    texts = [f"sym = 'a' AND px BETWEEN {at} AND {at + 2}" for at in range(0, 40, 3)] + ["sym = 'a' AND px > 39"] * 2
    matcher = filled(texts)
    edges = [float(at) for at in range(-1, 44)]
    prices = [*edges, *np.nextafter(edges, np.inf), *np.nextafter(edges, -np.inf), np.inf, -np.inf, np.nan]
    check(matcher, texts, [{"sym": "a", "px": float(price)} for price in prices[:: sized(1, few=7)]])


def test_lists_are_neither_owners_nor_partners() -> None:
    texts = [f"tags = 'x' AND px BETWEEN {at} AND {at + 9}" for at in range(20)]
    texts += [f"sym = 'a' AND tags < '{name}'" for name in "abcdefgh"]
    matcher = filled(texts)
    assert not any("tags" in pair for pair in lines(matcher))
    check(matcher, texts, ticks(30))


@each_index
def test_programs_behind_groups(index: IndexParams, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_LITERALS", 0), ("_PER_ITEM", 1)):  # nothing is split
        monkeypatch.setattr(f"gpumatch.expr.normal.{name}", value)
    texts = [f"{text} AND (qty > 500 XOR name = 'm' XOR tags = 'x')" for text in alerts(60)]
    texts += [f"sym = 'b' AND px < {at} AND NOT (qty > {at} AND name IS NULL)" for at in range(0, 400, 20)]
    matcher = filled(texts, index)
    assert groups(matcher)
    assert matcher.stats()["segments"][0]["programs"] > 0
    check(matcher, texts, ticks(sized(50, few=10)))


def test_ranges_that_nothing_satisfies() -> None:
    """An empty range is no range of a group, first or second."""
    texts = [f"sym = 'a' AND px BETWEEN {at} AND {at - 1} AND qty < {at}" for at in range(8)]
    texts += [f"sym = 'a' AND qty < {at} AND name IN ()" for at in range(8)] + alerts(12)
    matcher = filled(texts)
    assert groups(matcher)
    check(matcher, texts, ticks(30))


@pytest.mark.parametrize("owner", [-(2**63), 2**63 - 1, 0])
def test_extreme_integers(owner: int) -> None:
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**53 + 1, 2**63 - 2, 2**63 - 1]
    schema = {"o": "int64", "p": "int64", "q": "int64"}
    texts = [f"o = {owner} AND p BETWEEN {low} AND {high}" for low in ends for high in ends if low <= high]
    texts += [f"o = {owner} AND p <= {end} AND q >= {end}" for end in ends]
    matcher = filled(texts, schema=schema)
    assert groups(matcher)
    batch = [{"o": owner, "p": end, "q": ends[-1 - at]} for at, end in enumerate(ends)] + [{"o": 5, "p": 0, "q": 0}]
    assert list(matcher.match(batch)) == expected(schema, [gm.parse(text) for text in texts], batch)


def test_destinations_behind_groups() -> None:
    texts = alerts(90)
    matcher = filled([])
    matcher.add(dict(enumerate(texts)), destination=[at % 7 for at in range(90)])
    batch = ticks(sized(60, few=12))
    right = expected(TICKS, [gm.parse(text) for text in texts], batch)
    assert groups(matcher)
    assert [sorted(names) for names in matcher.destinations(batch)] == [sorted({at % 7 for at in row}) for row in right]
    assert matcher.any(batch).tolist() == [bool(row) for row in right]
    assert matcher.count(batch).tolist() == [len(row) for row in right]


def test_several_segments_and_changes() -> None:
    texts, batch = alerts(120), ticks(sized(40, few=8))
    matcher = filled([])
    for first, last in ((0, 80), (80, 110), (110, 120)):
        matcher.add({at: texts[at] for at in range(first, last)})
        matcher.match(batch[:1])
    assert len(matcher.plan().segments) == 3
    check(matcher, texts, batch)
    matcher.remove(range(0, 120, 3))
    right = expected(TICKS, [gm.parse(text) for text in texts], batch)
    for _ in range(2):
        assert list(matcher.match(batch)) == [[at for at in row if at % 3] for row in right]
        matcher.compact()
    assert groups(matcher)


@each_index
def test_saved_with_groups(index: IndexParams, tmp_path: Path) -> None:
    texts, batch = alerts(60), ticks(sized(40, few=8))
    matcher = filled(texts, index)
    matcher.save(tmp_path / "idx")
    for mmap in (False, True):
        back = gm.load(tmp_path / "idx", device=matcher.device, mmap=mmap)
        assert groups(back) == groups(matcher) != []
        check(back, texts, batch)


def test_outside_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clauses on symbol and price hang in grids; those on symbol and quantity are too few, and have a group."""
    monkeypatch.setattr("gpumatch.index.psthash._PAYS", 15)
    texts = alerts(200) + [f"sym = 'c' AND qty < {50 * at}" for at in range(12)]
    matcher = filled(texts, gm.PstHash())
    arrays = matcher._seal().segments[0].parts[0].index.arrays
    assert len(arrays["pairs"]) > 0
    assert ("sym", "qty") in lines(matcher)
    check(matcher, texts, ticks(sized(50, few=10)))


# How many there are


def test_what_pays() -> None:
    """An equality of one clause only has no group, and one of many without ranges has none."""
    texts = [f"sym = 'a' AND px > {at}" for at in range(5)] + ["sym = 'b' AND px > 7"] + ["sym = 'c'"] * 9
    matcher = filled(texts)
    assert groups(matcher) == [6]  # of 'a': five bounds; below all of them is a code, too
    check(matcher, texts, [{"sym": sym, "px": float(price)} for sym in "abcd" for price in range(9)])


def test_clauses_with_wide_ranges_hang_on_the_equality() -> None:
    """They have postings by symbol, and filters on the line; clauses with narrow ranges hang in the group."""
    texts = [f"sym = 'a' AND px > {at}" for at in range(2)] + [f"sym = 'a' AND px = {20 + at}" for at in range(30)]
    matcher = filled(texts)
    arrays = matcher._seal().segments[0].parts[0].index.arrays
    roots = np.append(arrays["directory"][::2].astype(np.int64), len(arrays["node_ptr"]) - 1)
    sizes = np.diff(arrays["node_ptr"][roots])
    assert sizes[0] == 2
    assert sizes[1 : len(TICKS) + 1].sum() == 0
    assert sizes[len(TICKS) + 1 :].sum() == 30
    check(matcher, texts, [{"sym": "a", "px": price / 2} for price in range(0, 110, 5)])


def test_no_more_lines_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the most clauses are kept."""
    texts, batch = alerts(60), ticks(30)
    monkeypatch.setattr(compound, "_LINES", 1)
    matcher = filled(texts)
    assert lines(matcher) == [("sym", "px")]
    check(matcher, texts, batch)
    monkeypatch.setattr(compound, "_LINES", 0)
    check(filled(texts), texts, batch)


@pytest.mark.parametrize("room", [2, 0])
def test_lines_have_room_behind_attributes(room: int) -> None:
    """A filter has 16 bits for attributes and lines together."""
    own = {"sym": "string", "px": "float64", "qty": "int64", "name": "string"}
    schema = own | {f"x{at}": "int64" for at in range(FILTERED - room - len(own))}
    texts = [
        text.replace("sym", "x9").replace("'a'", "1").replace("'b'", "2").replace("'c'", "3") for text in alerts(60)
    ]
    matcher = filled(texts, schema=schema)
    assert len(lines(matcher)) == room
    batch = [
        {**{k: v for k, v in it.items() if k not in ("sym", "tags")}, "x9": 1 + at % 4}
        for at, it in enumerate(ticks(8))
    ]
    assert list(matcher.match(batch)) == expected(own | {"x9": "int64"}, [gm.parse(text) for text in texts], batch)


def test_pairs_are_counted_by_sorting_too(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = alerts(60)
    usual = filled(texts)._seal().segments[0].parts[0].index.arrays
    monkeypatch.setattr(compound, "_DIRECT", 0)
    sorted_ = filled(texts)._seal().segments[0].parts[0].index.arrays
    assert usual.keys() == sorted_.keys()
    for name, array in usual.items():
        assert array.tolist() == sorted_[name].tolist(), name


def test_stats_tell_groups() -> None:
    matcher = filled([f"sym = 'a' AND px > {at}" for at in range(5)])
    [part] = matcher.stats()["segments"][0]["parts"]
    assert part["groups"] == 3  # codes of the symbol: below 'a', 'a', and above it
