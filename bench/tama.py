"""TAMA's false positive rate against levels, on values as in the paper's Fig. 8: ``python bench/tama.py``.

Subscriptions have 1 to 10 ranges of width 0.01 to 0.1 over [0, 1]; events are uniform. The rate is the false share of
the answers. On values it is computed exactly, from the volume of the cells that a range is rounded to relative to that
of the range. Counting is not feasible: with ten ranges of width 0.01, one event in 10^16 finds anything. The rate in
``stats()`` of ``Tama(approximate=True)``, which cuts codes instead of values, is shown too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from rich.progress import track
from rich.table import Table

import gpumatch as gm
from engines.ours import batch_of, loaded
from gpumatch import workloads
from gpumatch.index.tama import discretise
from measuring.options import parser, positive
from measuring.plots import Axis, Line, draw
from measuring.report import headed, judged, terminal, write

Rates: TypeAlias = dict[int, float]  # by level
TARGET, AT = 5e-4, 20  # the paper's rate, and its number of levels
CONSTRAINTS, WIDTHS = (1, 2, 5, 10), (0.01, 0.02, 0.05, 0.1)
EVENTS = 10_000  # in the paper's Fig. 8, with 20,000 subscriptions
HALVING = 10  # from this level on a range of width 0.01 has at least ten cells


def on_values(n: int, k: int, width: float, levels: int, seed: int = 0) -> tuple[float, float]:
    """The rate for ``n`` subscriptions of ``k`` ranges, and the number that a uniform event finds."""
    lo = np.random.default_rng([seed, k]).random((n, k)) * (1 - width)
    line = discretise.Line(0, 1, levels)
    cells = line.finest(lo + width) - line.finest(lo) + 1
    _check(line, lo[:50, 0], width, cells[:50, 0])
    found = (cells * 2.0**-levels).prod(axis=1).sum()
    return float(1 - n * width**k / found), float(found)


def _check(line: discretise.Line, lo: Any, width: float, cells: Any) -> None:
    """The cells of a discretised range must cover exactly what it touches."""
    for low, count in zip(lo.tolist(), cells.tolist(), strict=True):
        by_level = line.discretise(low, low + width)
        size = sum(len(found) << (line.levels - level) for level, found in by_level.items())
        if size != count:
            raise SystemExit(f"{low} to {low + width} touches {count} finest cells, discretised it has {size}")


def of_index(n: int, k: int, events: int, levels: range) -> tuple[Rates, Rates]:
    """By level: the rate in ``stats()``, and the rate counted against exact results."""
    workload = replace(workloads.tama(n, k, k), present=k, planted=False)
    batch = batch_of(workload.events(events))
    true, reported, counted = loaded(workload).count(batch), Rates(), Rates()
    for level in track(levels, f"Tama(approximate=True), {k} ranges", transient=True):
        matcher = loaded(workload, gm.Tama(levels=level, approximate=True))
        found = matcher.count(batch)
        if (found < true).any():
            raise SystemExit(f"Tama(levels={level}, approximate=True) misses matches of {(found < true).sum()} events")
        reported[level] = matcher.stats()["segments"][0]["parts"][0]["fpr"]
        counted[level] = float(1 - true.sum() / found.sum())
    return reported, counted


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--levels", type=positive, default=24, help="maximum number of levels")
    given, console = options.parse_args(), terminal()
    n = max(1, round(20_000 * given.scale))
    levels = range(1, given.levels + 1)
    values = {k: {level: on_values(n, k, WIDTHS[0], level)[0] for level in levels} for k in CONSTRAINTS}
    index = {k: of_index(n, k, given.events, range(1, min(given.levels, AT) + 1)) for k in (1, 2)}
    console.print(_by_level(values, index))
    grid = {(k, width): on_values(n, k, width, AT) for k in range(1, 11) for width in WIDTHS}
    console.print(_by_setting(grid))
    verdict = _verdict(values[1], grid)
    code = judged(console, verdict)
    lines = [Line(f"{k} ranges, values", list(rates.items())) for k, rates in values.items()]
    for k, (reported, _) in index.items():
        lines.append(
            Line(f"{k} ranges, stats() of the index", [(x, y) for x, y in reported.items() if y], joined=False)
        )
    axes = Axis("levels"), Axis("false share of the answers", log=True)
    picture = draw(given.out / "tama.png", {"ranges of width 0.01": lines}, *axes, (f"{TARGET:g}", TARGET))
    rates = {
        "values": values,
        "index": {k: {"stats": reported, "counted": all_} for k, (reported, all_) in index.items()},
    }
    settings = [{"ranges": k, "width": w, "fpr": rate, "found": found} for (k, w), (rate, found) in grid.items()]
    path = write("tama", given, {"subscriptions": n, **rates, f"at_{AT}_levels": settings, "verdict": verdict})
    console.print(f"written to {path}, drawn to {picture}")
    return code


def _by_level(values: Mapping[int, Rates], index: Mapping[int, tuple[Rates, Rates]]) -> Table:
    columns: dict[str, Rates] = {f"values, {k}": rates for k, rates in values.items()}
    for k, (reported, counted) in index.items():
        columns |= {f"stats(), {k}": reported, f"counted, {k}": counted}
    table = headed("false positive rate by levels, ranges of width 0.01", "levels", *columns, left=0)
    for level in values[1]:
        table.add_row(str(level), *(f"{rates[level]:.2e}" if level in rates else "" for rates in columns.values()))
    return table


def _by_setting(grid: Mapping[tuple[int, float], tuple[float, float]]) -> Table:
    title = f"false positive rate at {AT} levels; in brackets if {EVENTS:,} uniform events find nothing"
    table = headed(title, "ranges", *(f"width {width}" for width in WIDTHS), left=0)
    for k in range(1, 11):
        cells = [grid[k, width] for width in WIDTHS]
        table.add_row(str(k), *(f"{rate:.2e}" if EVENTS * found >= 1 else f"({rate:.2e})" for rate, found in cells))
    return table


def _verdict(rates: Rates, grid: Mapping[tuple[int, float], tuple[float, float]]) -> list[str]:
    """Whether the paper's two claims hold; the second covers only what its experiment could find."""
    steps = [rates[a] / rates[b] for a, b in pairwise(sorted(rates)) if a >= HALVING]
    seen = max(rate for rate, found in grid.values() if EVENTS * found >= 1)
    worst = max(rate for rate, _ in grid.values())
    lines = []
    if steps:
        halves = "yes" if all(1.8 < step < 2.2 for step in steps) else "no"
        lines.append(f"{halves}: the rate falls {min(steps):.2f} to {max(steps):.2f} times per level from {HALVING} on")
    lines.append(
        f"{'yes' if seen < TARGET else 'no'}: at {AT} levels at most {seen:.1e} where the paper's {EVENTS:,} events "
        f"find anything (target: {TARGET:g}); with ten ranges of width 0.01, where they do not, it is {worst:.1e}"
    )
    return lines


if __name__ == "__main__":
    sys.exit(main())
