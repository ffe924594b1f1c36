"""``gpumatch roofline``: upper bounds on events per second, by GPU."""

from __future__ import annotations

import argparse
import json

from gpumatch.cli.arguments import INDEXES, new_file, positive
from gpumatch.cli.console import make_console, progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", help="w1-100k, w1-1m, w2, w3, w4, w5, w6 or ads")
    parser.add_argument("--subscriptions", type=positive, metavar="N", help="default: the published number")
    parser.add_argument(
        "--index",
        nargs="+",
        default=["auto"],
        metavar="NAME",
        help=f"{INDEXES}; or triangle",
    )
    parser.add_argument("--events", type=positive, default=256, metavar="N", help="events to count (default: 256)")
    parser.add_argument(
        "--gpu", nargs="+", default=[], metavar="NAME", help="T4, A10, L4, A100-40GB, A100, H100, B200 (default: all)"
    )
    parser.add_argument("--save", type=new_file, metavar="FILE.json", help="also write all figures as JSON")


def run(args: argparse.Namespace) -> None:
    from gpumatch.proof import roofline

    gpus = roofline.gpus_named(args.gpu)
    pairs = roofline.pairs_named(args.workloads, args.index)
    done = []
    with progress() as bar:
        task = bar.add_task("counting", total=len(pairs))
        for workload, index in pairs:
            bar.update(task, description=f"{workload}, {index}")
            done.append(roofline.count_workload(workload, index, args.subscriptions, args.events))
            bar.advance(task)
    for counted in done:
        make_console().print(roofline.kernel_table(counted, gpus), roofline.bound_table(counted, gpus))
    if len(done) > 1:
        make_console().print(roofline.summary_table(done, gpus))
    make_console().print("\n".join(roofline.ASSUMPTIONS))
    if args.save is not None:
        args.save.write_text(json.dumps(roofline.to_json(done, gpus), indent=1) + "\n")
