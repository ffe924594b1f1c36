"""``gpumatch demo``: stock alerts through Spark."""

from __future__ import annotations

import argparse

from gpumatch.cli.arguments import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stream", action="store_true", help="bars arrive, and alerts change, while a query runs")
    parser.add_argument(
        "--subscriptions", type=positive, metavar="N", help="alerts (default: 200,000, with --stream 20,000)"
    )
    parser.add_argument(
        "--events", type=positive, metavar="N", help="daily bars (default: 500,000, with --stream 120,000)"
    )
    parser.add_argument("--out", default="demo-output", metavar="DIR", help="output folder (default: demo-output)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="seed of the random data (default: 7)")


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import demo, demo_stream

    if args.stream:
        demo_stream.run(args.subscriptions or 20_000, args.events or 120_000, args.out, args.seed)
    else:
        demo.run(args.subscriptions or 200_000, args.events or 500_000, args.out, args.seed)
