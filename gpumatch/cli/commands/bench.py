"""``gpumatch bench``: time a workload on a device."""

from __future__ import annotations

import argparse
import json

import gpumatch as gm
from gpumatch.cli.arguments import INDEXES, new_file, positive, share
from gpumatch.cli.console import print_table, progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gpumatch.workloads import WORKLOADS

    parser.add_argument(
        "workloads",
        nargs="+",
        metavar="WORKLOAD",
        choices=tuple(WORKLOADS),
        help=f"one or more of {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda:N, or auto (default): a CUDA device if there is one"
    )
    parser.add_argument("--index", default="auto", help=INDEXES)
    parser.add_argument("--scale", type=share, default=1.0, help="fraction of the published number of subscriptions")
    parser.add_argument("--events", type=positive, default=100_000, metavar="N", help="events (default: 100,000)")
    parser.add_argument("--batch", type=positive, default=50_000, metavar="N", help="events per call (default: 50,000)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="passes; the best counts (default: 3)")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads to use (default: all cores)")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="also write the results as JSON")


def run(args: argparse.Namespace) -> None:
    from dataclasses import asdict

    from gpumatch.cli.benchmark import Timing, measure

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    timings: list[Timing] = []
    with progress() as bar:
        task = bar.add_task("", total=len(args.workloads))
        for name in args.workloads:
            bar.update(task, description=name)
            sizes = (args.scale, args.events, args.batch, args.repeats)
            timings += measure(name, args.device, args.index, *sizes)
            bar.advance(task)
    columns = ("workload", "device", "index", "events", "µs/event", "events/s", "matches")
    rows = []
    for t in timings:
        numbers = (f"{t.us:.2f}", f"{t.rate:,.0f}", f"{t.matches:,.1f}")
        rows.append((t.workload, t.device, t.index, t.events_from, *numbers))
    print_table(columns, rows)
    if args.save:
        args.save.write_text(
            json.dumps([{**asdict(timing), "rate": timing.rate} for timing in timings], indent=1) + "\n"
        )
