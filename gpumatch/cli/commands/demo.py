"""``gpumatch demo``: stock alerts through Spark."""

from __future__ import annotations

import argparse

from gpumatch.cli.arguments import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subscriptions", type=positive, default=200_000, metavar="N", help="alerts (default: 200,000)"
    )
    parser.add_argument("--events", type=positive, default=500_000, metavar="N", help="daily bars (default: 500,000)")
    parser.add_argument("--out", default="demo-output", metavar="DIR", help="output folder (default: demo-output)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="seed of the random data (default: 7)")


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import demo

    demo.run(args.subscriptions, args.events, args.out, args.seed)
