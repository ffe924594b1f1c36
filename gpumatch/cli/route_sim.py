"""``gpumatch route-sim``: simulate an overlay of brokers, or reproduce the thesis' results on overlays."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpumatch.errors import RoutingError

if TYPE_CHECKING:
    from rich.progress import Progress

    from gpumatch.routing.overlays.clusters import Clusters
    from gpumatch.routing.overlays.topology import Topology
    from gpumatch.routing.simulator.experiments import Row
    from gpumatch.routing.simulator.failures import Failures
    from gpumatch.routing.simulator.simulated import Simulated
    from gpumatch.routing.simulator.traffic import Workload

_GRAPHS = ("random", "waxman", "transit-stub")
_PROTOCOLS = ("d-dbr", "merc", "fbr")
_MILLISECOND = 1_000_000
_MOST_BROKERS = 5_000  # tables of all pairs of brokers stay below half a gigabyte
_DEFAULTS: dict[str, Any] = {  # not allowed with --thesis
    "brokers": 100,
    "degree": 6.0,
    "graph": "random",
    "protocol": "all",
    "cluster_size": 10,
    "interested": 0.5,
    "events": 500,
    "rate": 30.0,
    "subscriptions": 30,
    "links_lost": 0.0,
    "brokers_lost": 0.0,
    "fail_at": 0.5,
    "detection": 100.0,
}
_SHOWN = (
    ("messages per event", "messages_per_event", "{:,.1f}"),
    ("mean destination list", "mean_list", "{:.2f}"),
    ("mean list at sources", "mean_source_list", "{:.2f}"),
    ("hops per delivery", "mean_hops", "{:.2f}"),
    ("matches per event", "matches_per_event", "{:,.1f}"),
    ("latency, mean, ms", "latency_mean_ms", "{:,.1f}"),
    ("latency, p50, ms", "latency_p50_ms", "{:,.1f}"),
    ("latency, p99, ms", "latency_p99_ms", "{:,.1f}"),
    ("delivered", "delivered", "{:.2%}"),
    ("of those with a path", "delivered_with_path", "{:.2%}"),
    ("duplicates dropped", "duplicates", "{:,.0f}"),
    ("messages lost", "lost", "{:,.0f}"),
    ("sent again", "sent_again", "{:,.0f}"),
    ("busiest broker is busy", "busiest_share", "{:.1%}"),
)


@dataclass(slots=True)
class Report:
    """The output: a title, tables as (header, rows), then lines."""

    title: str = ""
    tables: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def add_arguments(
    parser: argparse.ArgumentParser, positive: Callable[[str], int], new_file: Callable[[str], Path]
) -> None:
    """``positive`` and ``new_file`` parse a whole number and the name of a file to write."""
    add = parser.add_argument
    add("--thesis", action="store_true", help="reproduce the thesis' figures over 10 seeds, in one to two minutes")
    add("--brokers", type=positive, metavar="N", help="number of brokers (default: 100)")
    add("--degree", type=float, metavar="D", help="mean number of neighbours (default: 6)")
    add("--graph", choices=_GRAPHS, help="type of graph; merc always uses transit-stub (default: random)")
    add("--protocol", choices=("all", *_PROTOCOLS), help="default: all")
    add("--cluster-size", type=positive, metavar="N", help="brokers per cluster of a transit-stub graph (default: 10)")
    add("--interested", type=float, metavar="SHARE", help="share of brokers interested in each event (default: 0.5)")
    add("--events", type=positive, metavar="N", help="number of events (default: 500)")
    add("--rate", type=float, metavar="R", help="events per second (default: 30)")
    add("--subscriptions", type=positive, metavar="N", help="subscriptions per broker (default: 30)")
    add("--links-lost", type=float, metavar="SHARE", help="share of links that fail during publishing")
    add("--brokers-lost", type=float, metavar="SHARE", help="share of brokers that fail during publishing")
    add(
        "--fail-at",
        type=float,
        metavar="SHARE",
        help="when they fail, as a share of the publishing time; 0: before the first event (default: 0.5)",
    )
    add("--detection", type=float, metavar="MS", help="time until failures are noticed (default: 100)")
    add("--seed", type=int, default=0, metavar="N", help="first seed (default: 0)")
    add("--seeds", type=positive, metavar="N", help="number of seeds (default: 1; with --thesis 10)")
    add("--json", type=new_file, metavar="FILE", help="also write all figures as JSON")
    add("--plot", type=new_file, metavar="FILE", help="also draw them, as a .png, .svg or .pdf file")


def run(args: argparse.Namespace, bar: Progress) -> Report:
    with _needs_extra():
        _fill_in(args)
        _check(args)
        if args.plot is not None:
            from gpumatch.cli.pictures import figure_for

            figure_for(args.plot)  # fail before the work if it cannot be drawn
        report = _thesis(args, bar) if args.thesis else _simulate(args, bar)
    report.lines += [f"wrote {path}" for path in (args.json, args.plot) if path is not None]
    return report


def _fill_in(args: argparse.Namespace) -> None:
    """Fill in defaults."""
    given = [_option(name) for name in _DEFAULTS if getattr(args, name) is not None]
    if args.thesis and given:
        raise RoutingError(f"--thesis sets up its own experiments: leave out {', '.join(given)}")
    for name, value in _DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _check(args: argparse.Namespace) -> None:
    """Reject impossible values and combinations; errors name the options."""
    if args.seed < 0:
        raise RoutingError(f"--seed: expected 0 or more, found {args.seed}")
    if args.json is not None and str(args.json) == "-":
        raise RoutingError("--json: expected the name of a file, found '-'")
    if args.brokers > _MOST_BROKERS:
        raise RoutingError(f"--brokers: expected at most {_MOST_BROKERS:,}, found {args.brokers:,}")
    for name in ("interested", "links_lost", "brokers_lost", "fail_at"):
        share = getattr(args, name)
        if not 0 <= share <= 1:
            raise RoutingError(f"{_option(name)}: expected a share from 0 to 1 (0.2 is 20 %), found {share:g}")
    if not 0 <= args.detection <= 1e6:
        raise RoutingError(f"--detection: expected 0 to 1,000,000 milliseconds, found {args.detection:g}")
    clusters = args.protocol in ("all", "merc") or args.graph == "transit-stub"
    if clusters and args.cluster_size > args.brokers:
        raise RoutingError(f"--cluster-size: expected 1 to {args.brokers} (all --brokers), found {args.cluster_size}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("scipy", "networkx"):
            raise
        raise RoutingError(f"overlays need {error.name}: pip install 'gpumatch[routing]'") from None


def _simulate(args: argparse.Namespace, bar: Progress) -> Report:
    from gpumatch.routing.overlays.topology import Topology
    from gpumatch.routing.simulator.protocols import Costs
    from gpumatch.routing.simulator.simulation import simulate
    from gpumatch.routing.simulator.traffic import Workload

    protocols = _PROTOCOLS if args.protocol == "all" else (args.protocol,)
    seeds = range(args.seed, args.seed + (args.seeds or 1))
    results: dict[str, list[Simulated]] = {protocol: [] for protocol in protocols}
    costs = Costs(subscriptions=args.subscriptions)
    for seed in seeds:
        workload = Workload.random(args.brokers, args.events, args.rate, args.interested, seed)
        for protocol in protocols:
            overlay = _graph(args, protocol, seed)
            topology = overlay if isinstance(overlay, Topology) else overlay.topology
            failures = _failures(args, topology, workload, seed)
            task = bar.add_task(f"{protocol}, seed {seed}", total=max(len(workload.destinations), 1))

            def show(delivered: int, task: Any = task) -> None:
                bar.update(task, completed=delivered)

            results[protocol].append(simulate(overlay, workload, protocol, costs, failures, show))
            bar.remove_task(task)
    return _report(args, results, seeds)


def _graph(args: argparse.Namespace, protocol: str, seed: int) -> Topology | Clusters:
    from gpumatch.routing.overlays.graphs import random_graph, transit_stub_graph, waxman_graph

    if protocol == "merc" or args.graph == "transit-stub":
        return transit_stub_graph(args.brokers, args.cluster_size, args.degree, seed)
    return (random_graph if args.graph == "random" else waxman_graph)(args.brokers, args.degree, seed)


def _failures(args: argparse.Namespace, topology: Topology, workload: Workload, seed: int) -> Failures:
    from gpumatch.routing.simulator.failures import Failures, random_failures

    losses = random_failures(topology, args.links_lost, args.brokers_lost, seed)
    moment = int(args.fail_at * int(workload.times[-1]))
    return Failures(losses.changes(moment), round(args.detection * _MILLISECOND))


def _report(args: argparse.Namespace, results: dict[str, list[Simulated]], seeds: range) -> Report:
    found = {protocol: [result.to_dict() for result in several] for protocol, several in results.items()}
    rows = []
    for name, key, form in _SHOWN:
        columns = ([each[key] for each in several] for several in found.values())
        rows.append((name, *(_spread(values, form) for values in columns)))
    busiest = (" ".join(str(each["busiest_broker"]) for each in several[:3]) for several in found.values())
    rows.append(("busiest broker", *busiest))
    report = Report(_title(args, seeds), [(("", *found), rows)])
    report.lines.append("with a path: source and broker are up at the end, and the remaining links connect them")
    if "merc" in found and args.graph != "transit-stub":
        report.lines.append(f"merc: on a transit-stub graph with clusters of about {args.cluster_size}")
    if args.json is not None:
        asked = {name: value for name, value in vars(args).items() if name not in ("run", "json", "plot", "thesis")}
        args.json.write_text(json.dumps({"asked": asked, "found": _plain(found)}, indent=1) + "\n")
    if args.plot is not None:
        from gpumatch.cli.route_pictures import curves_of, draw_curves

        draw_curves(curves_of([several[0] for several in results.values()]), args.plot)
    return report


def _plain(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """For JSON, which has no NaN."""
    return {
        protocol: [{key: None if value != value else value for key, value in each.items()} for each in several]
        for protocol, several in found.items()
    }


def _title(args: argparse.Namespace, seeds: range) -> str:
    kind = f"{args.brokers:,} brokers, {args.graph}, degree {args.degree:g}"
    several = f"{len(seeds)} seeds: mean (min..max)" if len(seeds) > 1 else f"seed {seeds[0]}"
    events = f"{args.events:,} events, {args.rate:g} per second, {args.interested:.0%} interested"
    return "; ".join((kind, events, *_lost(args), several))


def _lost(args: argparse.Namespace) -> list[str]:
    shares = (("links", args.links_lost), ("brokers", args.brokers_lost))
    lost = " and ".join(f"{share * 100:.3g}% of the {what}" for what, share in shares if share)
    when = f"after {args.fail_at:.0%} of the time, noticed within {args.detection:g} ms"
    return [f"{lost} fail {when}"] if lost else []


def _spread(values: list[float], form: str) -> str:
    values = [value for value in values if value == value]
    if not values:  # only NaN: not defined for this protocol
        return "–"
    mean = form.format(sum(values) / len(values))
    return mean if min(values) == max(values) else f"{mean} ({form.format(min(values))}..{form.format(max(values))})"


def _thesis(args: argparse.Namespace, bar: Progress) -> Report:
    from gpumatch.routing.simulator import experiments

    started = time.perf_counter()
    seeds = range(args.seed, args.seed + (args.seeds or 10))
    task = bar.add_task("the thesis' figures", total=3 * len(seeds) + len(experiments.RATES) * 3 + 4)
    found, waxman = [], []
    for seed in seeds:
        found.append(experiments.run_seed(seed))
        bar.advance(task, 2)
        waxman.append(experiments.run_waxman(seed))
        bar.advance(task)
    rows = experiments.table(found, waxman)
    bar.update(task, description="curves")
    curves = [*experiments.list_curves(args.seed), *experiments.failure_curves(seeds)]
    bar.advance(task, 4)
    curves.append(experiments.latency_curves(args.seed, done=lambda: bar.advance(task)))
    header = ("figure", "thesis", "ours", "min..max", "differs", "Waxman")
    report = Report(f"the thesis' figures and ours over {len(seeds)} seeds", [(header, [_row(row) for row in rows])])
    report.lines += [
        f"{row.figure.key}: {row.figure.what}{f' ({row.figure.note})' if row.figure.note else ''}" for row in rows
    ]
    key, what = experiments.BESIDE
    mean = sum(each[key] for each in found) / len(found)
    report.lines.append(f"{what}, not in the thesis: {mean:.2f}")
    seconds = time.perf_counter() - started
    report.lines.append(f"{seconds:.0f} s")
    if args.json is not None:
        run = {"seeds": list(seeds), "events_per_seed": experiments.EVENTS, "seconds": seconds}
        shown = [{name: getattr(each, name) for name in ("title", "x_name", "y_name", "x", "lines")} for each in curves]
        tables = {"table": [row.to_dict() for row in rows], "curves": shown}
        args.json.write_text(json.dumps({**run, **tables, what: [each[key] for each in found]}, indent=1) + "\n")
    if args.plot is not None:
        from gpumatch.cli.route_pictures import draw_curves

        draw_curves(curves, args.plot)
    return report


def _row(row: Row) -> tuple[str, ...]:
    figure = row.figure
    share = figure.paper < 1
    form = "{:.1%}" if share else "{:,.0f}" if figure.paper > 1000 else "{:.2f}"
    differs = "holds" if figure.bound and row.difference == 0 else f"{row.difference:+.1%}"
    waxman = form.format(sum(row.waxman) / len(row.waxman)) if row.waxman else ""
    low, high = form.format(min(row.values)), form.format(max(row.values))
    bound = "> " if figure.bound else ""
    return figure.key, bound + form.format(figure.paper), form.format(row.mean), f"{low}..{high}", differs, waxman
