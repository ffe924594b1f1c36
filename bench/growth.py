"""Time per event by subscriptions, dimensions and widths, one line per index: ``python bench/growth.py``.

Every point is checked against brute force before it is timed, on one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from engines.ours import OURS
from gpumatch import workloads
from gpumatch.workloads import Workload
from measuring.conjunctions import ConjunctionJob
from measuring.jobs import Source, run_all
from measuring.options import positive, timing_parser
from measuring.plots import Axis, draw, lines
from measuring.report import by_engine, finish, matches, terminal, us

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
GEM_SIZE = 100_000  # when another parameter varies
INDEXES = tuple(name for name in OURS if name not in ("gpumatch auto, observed", "gpumatch gem triangles"))


class Panel(NamedTuple):
    """One plot: a source of subscriptions for each position on the x axis."""

    title: str
    axis: Axis
    sources: dict[float, Source]

    def places(self) -> dict[str, float]:
        return {source.name: x for x, source in self.sources.items()}


def _by_n(workload: str, generate: Callable[[int], Workload], scale: float) -> Panel:
    sources: dict[float, Source] = {round(n * scale): Source(f"{workload} n={n}", n, generate) for n in SIZES}
    return Panel(workload, Axis("subscriptions", log=True), sources)


def _of_gem(label: str, name: str, values: Iterable[float], scale: float) -> Panel:
    """W1 with one of its parameters varied."""

    def generator(x: Any) -> Callable[[int], Workload]:
        return partial(workloads.gem, **{name: x})

    sources = {x: Source(f"w1 {name}={x}", GEM_SIZE, generator(x)) for x in values}
    return Panel(f"w1, {round(GEM_SIZE * scale):,} subscriptions", Axis(label), sources)


PLOTS: dict[str, Callable[[float], list[Panel]]] = {  # by scale
    "n": lambda s: [_by_n("w1", workloads.gem, s), _by_n("w2", workloads.dense, s)],
    "dims": lambda s: [_of_gem("dimensions", "dims", range(2, 21, 3), s)],
    "theta": lambda s: [_of_gem("theta", "theta", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), s)],
}


def main() -> int:
    options = timing_parser(__doc__ or "", events=300, seconds=0.5, verify=4)
    options.add_argument("--only", choices=PLOTS, help="only this plot")
    options.add_argument("--most", type=positive, default=max(SIZES), help="leave out larger sizes, before scaling")
    given, console, code = options.parse_args(), terminal(), 0
    for name in [given.only] if given.only else PLOTS:
        panels = PLOTS[name](given.scale)
        sources = [source for panel in panels for source in panel.sources.values() if source.size <= given.most]
        results = run_all([ConjunctionJob.of(given, source, engines=INDEXES) for source in sources], console)
        for panel in panels:
            shown = {workload: f"{x:,}" for workload, x in panel.places().items()}
            title = f"µs per event, {panel.title}, by {panel.axis.label}"
            console.print(by_engine(title, results, lambda r: us(r.us), matches(results), shown))
        code |= finish(console, f"growth-{name}", given, results)
        drawn = {panel.title: lines(results, panel.places(), lambda r: r.us) for panel in panels}
        axes = panels[0].axis, Axis("µs per event, one thread", log=True)
        console.print(f"drawn to {draw(given.out / f'growth-{name}.png', drawn, *axes)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
