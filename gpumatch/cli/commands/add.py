"""``gpumatch add``: add a file of subscriptions to an index, all of them or none."""

from __future__ import annotations

import argparse
import time

from gpumatch.cli.subscriptions import FOLDER, add_columns, add_rows, check_rejected, columns_of, ids_like, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help=FOLDER)
    parser.add_argument(
        "subscriptions",
        metavar="SUBS",
        help=".parquet, .csv or .jsonl file, one subscription per row; - for standard input, CSV or JSON lines",
    )
    add_columns(parser)
    parser.add_argument(
        "--upsert", action="store_true", help="change the expressions of ids that exist, rather than refuse them"
    )


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import files

    start = time.perf_counter()
    with opened(args.index) as matcher:
        with files.as_file(args.subscriptions) as path:
            table = files.read_table(path, columns_of(args))
        at = table.column_names.index(args.id)
        table = table.set_column(at, args.id, ids_like(matcher, table.column(at)))
        gathered = matcher._gathering()  # so that it is one change, however long the file is
        rejected = add_rows(gathered, table, args, "reading")
        conflicts = [] if args.upsert else matcher._conflicts(gathered)
        rejected += conflicts
        hint = ", or change those that exist with --upsert" if conflicts else ""
        check_rejected(rejected, len(table), args, "nothing was added", hint)
        before = len(matcher)
        matcher._take(gathered, args.upsert, (args.destination is not None, args.weight is not None))
        added = len(matcher) - before
        done = f"added and {len(gathered) - added:,} changed in" if args.upsert else "added to"
        seconds = time.perf_counter() - start
        print(
            f"{added:,} subscriptions {done} {args.index}, which has {len(matcher):,} in version {matcher.version} "
            f"after {seconds:.1f} s"
        )
