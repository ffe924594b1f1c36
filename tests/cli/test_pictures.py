"""Pictures show what the arrays hold, and the pages about indexes say what the code has."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import workloads
from gpumatch.cli import pictures
from gpumatch.index import KINDS, FlatIndex, IndexParams
from gpumatch.index.charts import Bars, Chart, Heat, shares
from gpumatch.index.gem import picture
from gpumatch.store.segment import Segment
from gpumatch.workloads import Workload, stocks
from tests.likelihood import equally_likely

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(5)


def page(kind: str) -> str:
    return (ROOT / "docs" / "index" / f"{kind}.md").read_text()


def loaded(index: IndexParams, workload: Workload) -> gm.Matcher:
    matcher = gm.Matcher(workload.schema, index=index)
    workload.add_to(matcher)
    return matcher


def texts(schema: dict[str, str], index: IndexParams, *expressions: str) -> gm.Matcher:
    matcher = gm.Matcher(schema, index=index)
    matcher.add(dict(enumerate(expressions)))
    return matcher


def charts(matcher: gm.Matcher) -> list[Chart]:
    [panel] = pictures.panels(matcher)
    return panel.charts


def bars(chart: Chart) -> dict[str, Any]:
    assert isinstance(chart, Bars)
    assert chart.names is not None
    [values] = chart.series.values()
    return dict(zip(chart.names, values.tolist(), strict=True))


def heat(chart: Chart) -> np.ndarray:
    assert isinstance(chart, Heat)
    return chart.values


def built(matcher: gm.Matcher) -> tuple[Segment, FlatIndex]:
    [segment] = matcher._seal().segments
    return segment, segment.parts[0].index


# Charts


def test_every_kind_is_drawn() -> None:
    assert all(kind.has("picture") for kind in KINDS.values())


def test_scan_by_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.index.postings._TESTED", 0)
    schema = {"sym": "string", "px": "float64", "tags": "list<string>", "qty": "int64"}
    matcher = texts(schema, gm.Scan(), "sym = 'A'", "sym = 'B'", "px > 3", "tags = 'x'", "tags IS NULL", "px IS NULL")
    [chart] = charts(matcher)
    assert bars(chart) == {"sym": 2, "px": 1, "tags": 1, "every event": 2}


def test_scan_of_many_attributes_names_the_longest() -> None:
    schema = {f"a{i}": "int64" for i in range(40)}
    matcher = texts(schema, gm.Scan(), *(f"a{i} = {j}" for i in range(40) for j in range(100 - i)))
    found = bars(charts(matcher)[0])
    assert list(found.items())[:2] == [("a0", 100), ("a1", 99)]
    assert len(found) == 25
    assert found["+16"] == np.mean([100 - i for i in range(24, 40)])


@pytest.mark.parametrize("index", [gm.PstBloom(), gm.PstHash(access=1)])
def test_tree_meets_what_is_at_a_code(index: IndexParams) -> None:
    values = RNG.integers(0, 8, 400).tolist()
    matcher = texts({"y": "int64", "x": "int64"}, index, "y = 1", *(f"x = {value}" for value in values))
    tree, met = charts(matcher)
    assert isinstance(met, Bars)
    codes = met.series[""].tolist()
    counts = Counter(values)
    assert [count for count in codes if count] == [counts[value] for value in range(8)]
    assert heat(tree).sum(axis=0).tolist() == codes
    assert not heat(tree)[:-1].any()  # an equality hangs on a leaf


def test_tree_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty clauses with one symbol, told apart by their prices; few with others."""
    monkeypatch.setattr("gpumatch.index.postings.compound._SHARED", 2)
    equally_likely(monkeypatch)
    prices = [f"sym = 'A' AND px = {price}" for price in range(60)]
    others = [f"sym = '{sym}' AND qty > {qty}" for sym in "BCD" for qty in range(4)]
    matcher = gm.Matcher({"sym": "string", "px": "int64", "qty": "int64"}, index=gm.PstBloom(), device="cpu")
    matcher.add({f"s{at}": text for at, text in enumerate((*prices, *others))})
    tree, met = charts(matcher)
    assert isinstance(met, Bars)
    assert tree.x == "code of px for one sym, the fullest of 3 attributes and 4 groups"
    assert tree.title == "the tree (69 of 72 postings are in groups)"  # a range of four codes of five is wide
    assert met.series[""].tolist() == [3, *14 * [4], 1]  # four codes to a leaf; below all prices is one more


def test_long_lines_are_averaged() -> None:
    matcher = texts({"x": "int64"}, gm.PstBloom(), *(f"x BETWEEN {10 * i} AND {10 * i + 9}" for i in range(5000)))
    tree, met = charts(matcher)
    assert isinstance(tree, Heat)
    assert isinstance(met, Bars)
    codes = int(built(matcher)[0].book.counts()[0])
    assert heat(tree).shape[1] == len(met.series[""]) <= 256
    assert codes <= tree.width == len(met.series[""]) * met.width < codes + met.width
    assert not heat(tree)[:8].any()
    assert met.series[""].sum() > 0


@pytest.mark.parametrize("workload", [workloads.gem(9000, dims=3), workloads.dense(5000, dims=6, k=3)])
@pytest.mark.parametrize("index", [gm.Gem(), gm.Gem(cells=20, caches=3), gm.Gem(cells=1), gm.Gem(cells=1, caches=0)])
def test_triangle_of_gem(index: gm.Gem, workload: Workload) -> None:
    matcher = loaded(index, workload)
    triangle, left = map(heat, charts(matcher))
    segment, built_index = built(matcher)
    attribute = segment.table.columns()[0]
    bound = int((attribute == built_index.arrays["dims"][0]).sum())
    assert triangle.sum() == bound
    assert not np.triu(triangle, 1).any()  # rows are of high bounds, columns of low ones
    touching = picture._touching(triangle, len(workload.ids) - bound) / len(workload.ids)
    np.testing.assert_allclose(left[0][: len(touching)], touching)
    assert len(left) == len(built_index.arrays["dims"])


def test_gem_without_dimensions() -> None:
    assert bars(charts(texts({"x": "int64"}, gm.Gem(), "x IS NULL", "TRUE"))[0]) == {"every event": 2}


def dyadic(lo: int, hi: int, level: int) -> list[int]:
    """Levels of the largest cells that make up ``lo..hi``, cells of ``level`` being single codes."""
    found = []
    while lo <= hi:
        up = 0
        while lo % (2 << up) == 0 and lo + (2 << up) - 1 <= hi:
            up += 1
        found.append(level - up)
        lo += 1 << up
    return found


def test_levels_of_tama() -> None:
    pairs = np.sort(RNG.integers(1, 299, (300, 2)), axis=1).tolist()
    ends = ["x < 300", *(f"x = {value}" for value in range(300))]
    matcher = texts({"x": "int64"}, gm.Tama(), *ends, *(f"x BETWEEN {lo} AND {hi}" for lo, hi in pairs))
    segment, _ = built(matcher)
    codes = int(segment.book.counts()[0])
    _, _, lo, hi = (column.tolist() for column in segment.table.columns())
    expected = Counter(level for a, b in zip(lo, hi, strict=True) for level in dyadic(a, b, (codes - 1).bit_length()))
    found = bars(charts(matcher)[0])
    assert {int(level): count for level, count in found.items() if count} == expected


@pytest.mark.parametrize(
    "index", [gm.Tama(), gm.Tama(levels=4), gm.Tama(levels=0), gm.Tama(levels=5, approximate=True)]
)
@pytest.mark.parametrize("workload", [workloads.dense(3000, dims=20), workloads.tama(500, dims=20)])
def test_tama_counts_every_posting(index: gm.Tama, workload: Workload) -> None:
    matcher = loaded(index, workload)
    [chart] = charts(matcher)
    assert isinstance(chart, Bars)
    assert chart.names is not None
    [part] = matcher.stats()["segments"][0]["parts"]
    assert sum(int(values.sum()) for values in chart.series.values()) == part["postings"]
    finest = [name for name in chart.names if name != "="][-1]
    assert int(finest) == part["levels"]
    if "verified" in chart.series:  # only the finest cells reach too far
        assert set(np.array(chart.names)[chart.series["verified"] > 0]) == {finest}
    assert ("verified" in chart.series) == (index.levels is not None and not index.approximate)


def test_grid_of_psthash() -> None:
    pairs = RNG.integers(0, 8, (2000, 2)).tolist()
    matcher = texts(
        {"x": "int64", "y": "int64"}, gm.PstHash(), *(f"x = {x} AND y = {y}" for x, y in pairs), *["x > 3"] * 2
    )
    grid, sizes = charts(matcher)
    assert isinstance(sizes, Bars)
    outside = len(built(matcher)[1].arrays["heads"])
    assert outside >= 2
    assert sizes.title == f"2,000 postings in grids, {outside} outside"
    counts = Counter(map(tuple, pairs))
    cells = heat(grid)
    assert sorted(cells[cells > 0].tolist()) == sorted(counts.values())
    assert sum(bars(sizes).values()) == pytest.approx(1)
    [part] = matcher.stats()["segments"][0]["parts"]
    assert part["in grids"] == cells.sum() == 2000


def test_shares_by_size() -> None:
    series, names = shares(np.array([0, 0, 1, 2, 3, 4, 5, 8, 9, 100]))
    assert names == ["0", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128"]
    assert series[""].tolist() == [0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0, 0, 0.1]
    assert shares(np.zeros(3, np.int64))[1] == ["0", "1"]


def test_ladder_by_first_predicate() -> None:
    schema = {"sym": "string", "px": "float64"}
    matcher = texts(schema, gm.Ladder(), *["sym = 'A' AND px > 3"] * 3, "px < 2 OR px > 5", "TRUE", "px <> 4")
    assert bars(charts(matcher)[0]) == {"sym": 3 / 6, "px": 2 / 6, "every event": 1 / 6}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_odd_indexes_have_charts(kind: str) -> None:
    """One clause, none that can hold, nothing but what is tested on every event, hidden attributes."""
    for expression in ("x = 1", "x < 1 AND x > 1", "x IS NULL", "tags IS NOT NULL", "NOT tags = 'a'"):
        matcher = texts({"x": "int64", "tags": "list<string>"}, KINDS[kind].params(), expression)
        assert charts(matcher)


def test_programs_of_an_atree() -> None:
    matcher = gm.Matcher({"x": "int64", "y": "int64"}, index="atree", device="cpu")
    either = "(x = 1 OR y = 2)"
    matcher.add({"a": f"{either} AND x < 9", "b": f"{either} AND y < 9", "c": "x < 9", "d": "x < 9"})
    lengths, waiting = charts(matcher)
    assert isinstance(lengths, Bars)
    assert isinstance(waiting, Bars)
    assert lengths.names == ["0", "1", "2", "3-4"]
    assert lengths.series["nodes"].tolist() == [0, 0, 0, 1]  # either: a group of two items
    assert lengths.series["clauses"].tolist() == [0, 2, 0, 2]
    assert lengths.title == "1 shared nodes in 1 levels, and 4 clauses"
    assert "7 nodes and 6 edges" in waiting.title
    assert waiting.series[""].sum() == pytest.approx(1)


# Drawing


def test_a_panel_for_each_segment(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    matcher = texts({"x": "int64"}, gm.Tama(levels=2), *(f"x = {value}" for value in range(1000)))
    matcher.stats()  # builds the first segment
    matcher.add({1000: "x > 3"})
    pictures.draw(matcher, tmp_path / "p.svg")
    titles = ["segment 0: Tama(levels=2), 1,000 clauses", "segment 1: Scan(), 1 clauses"]  # what is new
    assert [panel.title for panel in pictures.panels(matcher)] == titles
    drawn = (tmp_path / "p.svg").read_text()
    assert all(title in drawn for title in titles)


def test_a_panel_for_each_part() -> None:
    workload = workloads.dense(2000, dims=5, k=3)
    one, two = loaded(gm.Gem(cells=9), workload), loaded(gm.PstBloom(), workload)
    segment = replace(built(one)[0], parts=(*built(one)[0].parts, *built(two)[0].parts))
    one._store.restore(replace(one._seal(), pieces=(segment,)))
    shown = pictures.panels(one)
    assert [panel.title for panel in shown] == [
        "segment 0: Gem(cells=9), 2,000 clauses",
        "segment 0: PstBloom(), 2,000 clauses",
    ]
    assert heat(shown[0].charts[0]).shape == (9, 9)
    assert heat(shown[1].charts[0]).sum() > 0


@pytest.mark.parametrize("index", [gm.PstBloom(), gm.Gem(), gm.Tama(levels=3), gm.PstHash(), gm.Ladder(), gm.ATree()])
def test_draw(index: IndexParams, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "p.png"
    pictures.draw(loaded(index, workloads.dense(2000, dims=5, k=3)), path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("longest", [6, 40, 300])
def test_names_below_bars_do_not_overlap(longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    turn = pictures._turn_crowded_names
    monkeypatch.setattr(pictures, "_turn_crowded_names", lambda figure: (turn(figure), drawn.append(figure)))
    shared = " OR ".join(f"a = {i}" for i in range(longest))
    pictures.draw(
        texts({"a": "int64", "b": "int64"}, gm.ATree(), *(f"b = {i} OR {shared}" for i in range(longest))),
        tmp_path / "atree.png",
    )
    [figure] = drawn
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(boxes) > 1
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(gm.GpumatchError, match="not installed: pip install matplotlib"):
        pictures.draw(gm.Matcher({"x": "int64"}), tmp_path / "p.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    with pytest.raises(gm.GpumatchError, match="no subscriptions"):
        pictures.draw(gm.Matcher({"x": "int64"}), tmp_path / "p.png")
    with pytest.raises(gm.GpumatchError, match=r"ends in one of .*\.png.*found '.*p'"):
        pictures.draw(texts({"x": "int64"}, gm.Scan(), "x = 1"), tmp_path / "p")
    assert not list(tmp_path.iterdir())


# Pages


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_page_names_every_array(kind: str) -> None:
    lines = page(kind).splitlines()
    wanted = [f"| `{name}` | {s.dtype} | {s.length} | {s.meaning} |" for name, s in KINDS[kind].arrays.items()]
    wanted += [f"| `{name}` | number | | {meaning} |" for name, meaning in KINDS[kind].meta.items()]
    missing = [line for line in wanted if line not in lines]
    assert not missing, f"docs/index/{kind}.md lacks\n" + "\n".join(missing)
    stale = [line for line in lines if re.match(r"\| `\w+` \| u?(int|float)\d+ \|", line) and line not in wanted]
    assert not stale, f"docs/index/{kind}.md tells of arrays that are not\n" + "\n".join(stale)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_page_names_every_parameter(kind: str) -> None:
    parameters = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page(kind), re.MULTILINE)
    assert parameters == [(field.name, repr(field.default)) for field in fields(KINDS[kind].params)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_page_shows_pictures_and_is_short(kind: str) -> None:
    shown = re.findall(r"!\[[^]]+\]\((\.\./pictures/[^)]+)\)", page(kind))
    assert shown
    for name in shown:
        assert (ROOT / "docs" / "index" / name).stat().st_size < 60_000
    assert len(page(kind).splitlines()) < 90
    for target in re.findall(r"\]\(([^)#]+)\)", page(kind)):
        assert (ROOT / "docs" / "index" / target).exists(), target


def test_overview_links_every_page() -> None:
    overview = (ROOT / "docs" / "indexes.md").read_text()
    for kind in KINDS:
        assert f"](index/{kind}.md)" in overview
    for target in re.findall(r"\]\(([^)#]+)\)", overview):
        assert (ROOT / "docs" / target).exists(), target


def facts_of(matcher: gm.Matcher) -> dict[str, float]:
    """What the formulas of the pages count."""
    segment, index = built(matcher)
    [part] = matcher.stats()["segments"][0]["parts"]
    arrays, params, counts = index.arrays, index.params, segment.book.counts()
    facts = {"attributes": len(segment.attributes), **{k: v for k, v in part.items() if isinstance(v, int)}}
    if "node_ptr" in arrays:
        facts["nodes"] = len(arrays["node_ptr"]) - 1
    if "cuts" in arrays:
        facts |= {"groups": len(arrays["group_ptr"]) - 1, "cuts": len(arrays["cuts"])}
    if isinstance(params, gm.Gem):
        facts |= {"cells": params.cells, "caches": params.caches or 0, "tiles": math.ceil(part["clauses"] / 4096)}
        facts |= {"codes": int(counts[arrays["dims"]].sum()), "bitsets": 1 + (len(arrays["cover"]) > 0)}
    if isinstance(params, gm.ATree):
        facts |= {"blocks": facts["nodes"], "pieces": len(arrays["piece_lo"]), "leaves": len(arrays["base"])}
        facts |= {"units": len(arrays["unit_ptr"]) - 1, "kept": len(arrays["parent_ptr"]) - 1}
        facts |= {"items": len(arrays["items"]), "parents": len(arrays["parent"])}
    if isinstance(params, gm.PstHash):
        facts |= {"in_grids": part["in grids"], "outside": len(arrays["heads"]), "cells": len(arrays["cell_ptr"]) - 1}
    return facts


@pytest.mark.parametrize(
    ("index", "number", "workload"),
    [
        (gm.Scan(), 0, workloads.dense(20_000)),
        (gm.PstBloom(), 0, workloads.dense(20_000)),
        (gm.PstBloom(), 0, workloads.tama(3_000)),
        (gm.Gem(), 0, workloads.gem(20_000)),
        (gm.Gem(cells=100), 0, workloads.box(20_000)),
        (gm.Gem(caches=0), 1, workloads.gem(20_000)),
        (gm.Gem(cells=40, caches=10), 1, workloads.gem(20_000)),
        (gm.Tama(), 0, workloads.tama(3_000)),
        (gm.Tama(levels=8), 0, workloads.dense(20_000)),
        (gm.PstHash(), 0, workloads.dense(20_000, dims=10)),
        (gm.Ladder(), 0, workloads.dense(20_000)),
        (gm.ATree(), 0, workloads.dense(20_000)),
    ],
)
def test_memory_formulas(index: IndexParams, number: int, workload: Workload) -> None:
    """Each page gives its bytes as an expression; it must come within two percent of what stats() counts."""
    formula = re.findall(r"^bytes = (.+)$", page(index.kind), re.MULTILINE)[number]
    facts = facts_of(loaded(index, workload))
    held = eval(formula, {"ceil": math.ceil}, facts)
    assert held == pytest.approx(facts["bytes"], rel=0.02), f"{formula} with {facts}"


@pytest.mark.parametrize("index", [gm.PstBloom(), gm.PstHash(access=1)], ids=str)
def test_memory_formulas_with_groups(index: IndexParams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumatch.index.postings.compound._SHARED", 4)
    rng = np.random.default_rng(5)
    matcher = gm.Matcher(stocks.SCHEMA, index=index, device="cpu")
    matcher.add_table(stocks.draw_alerts(10_000, stocks.draw_bars(2000, rng), rng).select(["id", "expr"]))
    facts = facts_of(matcher)
    assert facts["cuts"] > facts["groups"] > 1000
    assert facts["nodes"] <= facts["clauses"] + facts["attributes"] + facts["groups"]
    [formula] = re.findall(r"^bytes = (.+)$", page(index.kind), re.MULTILINE)
    assert eval(formula, {}, facts) == pytest.approx(facts["bytes"], rel=0.02), f"{formula} with {facts}"


def test_trees_have_no_more_nodes_than_the_pages_say() -> None:
    for workload in (workloads.dense(20_000), workloads.tama(3_000), workloads.sparse(3_000)):
        clauses, attributes = len(workload.ids), len(workload.schema)
        bloom, ladder = (facts_of(loaded(index, workload)) for index in (gm.PstBloom(), gm.Ladder()))
        assert bloom["nodes"] <= clauses + attributes
        assert ladder["nodes"] <= 4 * clauses + attributes


def test_columns_of_patterns_have_names() -> None:
    matcher = gm.Matcher({"s": "string", "tags": "list<string>", "x": "float64"}, device="cpu")
    matcher.add({at: f"s LIKE '%{at}' AND tags NOT ILIKE '_{at}%' AND x > {at}" for at in range(9)})
    [segment] = matcher._seal().segments
    assert pictures._names(segment) == ["s", "tags", "x", "tags there", "s like", "tags like"]
