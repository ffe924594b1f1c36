"""``gpumatch compact``: rebuild an index as one segment, and write it."""

from __future__ import annotations

import argparse
import time

from gpumatch.cli.subscriptions import FOLDER, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help=FOLDER)


def run(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    with opened(args.index) as matcher:
        before = matcher.stats()
        matcher.compact()
        after = matcher.stats()
        print(
            f"{len(matcher):,} subscriptions in {args.index}; segments: {len(before['segments']):,} before, "
            f"{len(after['segments']):,} now; removed rows: {before['removed']:,} before, {after['removed']:,} now; "
            f"after {time.perf_counter() - start:.1f} s"
        )
