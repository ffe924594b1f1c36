"""auto compared with every index that it could choose: ``python bench/auto.py --help``.

CPU time per event on one thread, from the caller's events to the ids, and the plan's estimates and measurements, which
are for the indexes alone. All indexes must find the same number of matches. Each workload runs in a separate process.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.table import Table

from engines.base import batches
from engines.ours import Auto, Observed, using
from generators import abe, ads, alerts, stocks
from gpumatch import workloads
from gpumatch.workloads import Workload
from measuring.clock import cpu_seconds, in_turns
from measuring.jobs import sent_by
from measuring.options import parser
from measuring.report import terminal, write

SINGLE = ("pstbloom", "psthash", "gem", "atree", "scan")
INDEXES: dict[str, type[Auto]] = {"auto": Auto, "auto, observed": Observed, **{name: using(name) for name in SINGLE}}
LONG = 3.0  # seconds after which there are no more passes
WORKLOADS: dict[str, tuple[int, Callable[[int], Any]]] = {
    "w1": (100_000, workloads.gem),
    "w2": (200_000, workloads.dense),
    "w3": (200_000, workloads.sparse),
    "w4": (100_000, workloads.tama),
    "w5": (100_000, workloads.box),
    "w6": (200_000, workloads.mixed),
    "ads": (300_000, workloads.ads),
    "abe-gen": (100_000, abe.abe),
    "boolean ads": (140_000, ads.ads),
    "stocks": (200_000, stocks.stock_alerts),
    "typical alerts": (50_000, alerts.typical),
    "mixed alerts": (20_000, alerts.mixed),
    "both alerts": (40_000, alerts.both),
}


@dataclass(frozen=True)
class Line:
    """One index on one workload; microseconds per event."""

    workload: str
    index: str
    chosen: str
    us: float
    estimated: float
    measured: float
    build_s: float
    matches: float


def built(kind: type[Auto], workload: Workload) -> Auto:
    engine = kind(threads=1)
    engine.build(workload)
    return engine


def matched(engine: Auto, given: list[Any]) -> int:
    return sum(len(engine.match(batch)[1]) for batch in given)


def run(name: str, options: argparse.Namespace, sender: Any) -> None:
    size, generate = WORKLOADS[name]
    workload = generate(max(100, round(size * options.scale)))
    given = batches(workload.events(options.events), 1000)
    built(Auto, workload).match(given[0])  # compile and load everything now
    engines = {index: built(kind, workload) for index, kind in INDEXES.items()}
    matches = {index: matched(engine, given) / options.events for index, engine in engines.items()}
    passes = {index: partial(cpu_seconds, partial(matched, engine, given)) for index, engine in engines.items()}
    times = in_turns(passes, options.repeats, LONG)
    for index, engine in engines.items():
        parts = engine.matcher.plan().segments
        chosen = " + ".join(part.index.kind for part in parts)
        costs = (sum(part.estimate for part in parts), sum(part.measured or 0.0 for part in parts))
        us = 1e6 * times[index] / options.events
        sender.send(Line(name, index, chosen, us, *costs, engine.index_s, matches[index]))


def lines(name: str, options: argparse.Namespace) -> list[Line]:
    found: list[Line] = list(sent_by(run, name, options))
    if len({line.matches for line in found}) > 1:
        raise SystemExit(f"{name}: indexes disagree: {[(line.index, line.matches) for line in found]}")
    return found


def show(found: Sequence[Line]) -> Table:
    table = Table(title="µs per event on one core; in brackets auto's ratio to the best single index")
    for head in ("", *INDEXES, "auto chose", "estimated", "measured"):
        table.add_column(head, justify="left" if head in ("", "auto chose") else "right")
    for name in dict.fromkeys(line.workload for line in found):
        mine = {line.index: line for line in found if line.workload == name}
        best = min(line.us for index, line in mine.items() if not index.startswith("auto"))
        cells = [f"{mine[i].us:,.1f}" + (f" ({mine[i].us / best:.2f})" if "auto" in i else "") for i in INDEXES]
        auto = mine["auto, observed"]
        table.add_row(name, *cells, auto.chosen, f"{auto.estimated:,.1f}", f"{auto.measured:,.1f}")
    return table


def main() -> int:
    given = parser(__doc__ or "")
    given.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated names")
    given.add_argument("--repeats", type=int, default=5, help="passes; the best counts")
    options = given.parse_args()
    console = terminal()
    path = options.out / "auto.json"  # workloads that are not measured now keep their results
    found = [Line(**line) for line in json.loads(path.read_text())["results"]] if path.exists() else []
    for name in options.workloads.split(","):
        new = lines(name, options)
        found = [line for line in found if line.workload != name] + new
        console.print(show(new))
        write("auto", options, {"results": [asdict(line) for line in found]})
    console.print(show(sorted(found, key=lambda line: list(WORKLOADS).index(line.workload))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
