"""What auto chooses, beside every index that it could have: ``python bench/auto.py --help``.

On one thread, CPU time per event from the caller's events to the ids; and what the plan estimated and measured, which
is the time in indexes alone. All indexes must find as many matches. Each workload runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import abe
import abe_ads
import alerts
import numpy as np
import pyarrow as pa
from jobs import parser, terminal, write
from rich.table import Table

import gpumatch as gm
from gpumatch import workloads
from gpumatch.workloads import Workload, stocks

INDEXES = ("auto", "auto, observed", "pstbloom", "psthash", "gem", "atree", "scan")
BARS = 500_000  # of the demo
LONG = 3.0  # seconds after which no further pass is made


def stock_alerts(n: int) -> alerts.TextWorkload:
    """The demo's."""
    rng = np.random.default_rng(7)
    bars = stocks.draw_bars(BARS, rng)
    texts = stocks.draw_alerts(n, bars, rng)["expr"].to_pylist()
    table = stocks.to_events(bars, BARS).drop(["event"])
    events = lambda count, seed: table.slice(seed * BARS // 2, count)  # noqa: E731
    return alerts.TextWorkload("stocks", dict(stocks.SCHEMA), np.arange(n), texts, events)


WORKLOADS: dict[str, tuple[int, Callable[[int], Any]]] = {
    "w1": (100_000, workloads.gem),
    "w2": (200_000, workloads.dense),
    "w3": (200_000, workloads.sparse),
    "w4": (100_000, workloads.tama),
    "w5": (100_000, workloads.box),
    "w6": (200_000, workloads.mixed),
    "ads": (300_000, workloads.ads),
    "abe-gen": (100_000, abe.abe),
    "boolean ads": (140_000, abe_ads.ads),
    "stocks": (200_000, stock_alerts),
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


def batches(workload: Workload, count: int, seed: int = 0) -> list[Any]:
    """Events as the caller has them, a thousand at a time."""
    given: Any = workload.events(count, seed)
    cuts = [(first, min(first + 1000, count)) for first in range(0, count, 1000)]
    if isinstance(given, pa.Table):
        return [given.slice(first, last - first) for first, last in cuts]
    if isinstance(given, dict):
        return [{name: values[first:last] for name, values in given.items()} for first, last in cuts]
    found = []
    for first, last in cuts:
        ends = given.offsets[first : last + 1]
        entries = slice(ends[0], ends[-1])
        found.append((ends - ends[0], given.attribute[entries], given.value[entries], given.names))
    return found


def match(matcher: gm.Matcher, batch: Any) -> Any:
    return matcher.match(gm.EventBatch.from_csr(*batch) if isinstance(batch, tuple) else batch)


def built(workload: Workload, index: str) -> tuple[gm.Matcher, float]:
    """A matcher, and the CPU seconds that it took to build its index."""
    matcher = gm.Matcher(workload.schema, index="auto" if index.startswith("auto") else index)
    workload.add_to(matcher)
    if index == "auto, observed":
        [seen] = batches(workload, 1000, seed=1)
        matcher.observe(gm.EventBatch.from_csr(*seen) if isinstance(seen, tuple) else seen)
    start = time.process_time()
    matcher.compact()
    return matcher, time.process_time() - start


def timed(matchers: Sequence[gm.Matcher], given: list[Any], repeats: int) -> list[float]:
    """CPU seconds for all batches, by matcher: the best of several rounds. In a round all of them have their turn, so
    that what else the machine does meanwhile meets them alike."""
    times: list[list[float]] = [[] for _ in matchers]
    for _ in range(repeats):
        for matcher, mine in zip(matchers, times, strict=True):
            if sum(mine) < LONG:
                start = time.process_time()
                for batch in given:
                    match(matcher, batch)
                mine.append(time.process_time() - start)
    return [min(mine) for mine in times]


def run(name: str, options: argparse.Namespace, sender: Any) -> None:
    gm.set_num_threads(1)
    size, generate = WORKLOADS[name]
    workload = generate(max(100, round(size * options.scale)))
    given = batches(workload, options.events)
    match(built(workload, "auto")[0], given[0])  # whatever has to be compiled or loaded is there now
    matchers, build_s = zip(*(built(workload, index) for index in INDEXES), strict=True)
    matches = [sum(len(match(matcher, batch).rows) for batch in given) / options.events for matcher in matchers]
    times = timed(matchers, given, options.repeats)
    for index, matcher, *found in zip(INDEXES, matchers, times, build_s, matches, strict=True):
        parts = matcher.plan().segments
        chosen = " + ".join(part.index.kind for part in parts)
        costs = (sum(part.estimate for part in parts), sum(part.measured or 0.0 for part in parts))
        sender.send(Line(name, index, chosen, 1e6 * found[0] / options.events, *costs, *found[1:]))


def lines(name: str, options: argparse.Namespace) -> list[Line]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(name, options, sender))
    process.start()
    sender.close()
    found: list[Line] = [receiver.recv() for _ in INDEXES]
    process.join()
    if len({line.matches for line in found}) > 1:
        raise SystemExit(f"{name}: indexes disagree: {[(line.index, line.matches) for line in found]}")
    return found


def show(found: Sequence[Line]) -> Table:
    table = Table(title="µs per event on one core; in brackets auto's times the best single index")
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
    given.add_argument("--workloads", default=",".join(WORKLOADS), help="names, with commas between them")
    given.add_argument("--repeats", type=int, default=5, help="passes, of which the best counts")
    options = given.parse_args()
    console = terminal()
    path = options.out / "auto.json"  # workloads that are not measured again keep their lines
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
