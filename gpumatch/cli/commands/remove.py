"""``gpumatch remove``: remove subscriptions from an index, all of them or none."""

from __future__ import annotations

import argparse
from typing import Any

from gpumatch.cli.subscriptions import FOLDER, add_id, ids_like, opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help=FOLDER)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a .parquet, .csv or .jsonl file with a column of ids; - for standard input, CSV or JSON lines",
    )
    given.add_argument("--ids", nargs="+", metavar="ID", help="the ids themselves")
    add_id(parser)


def run(args: argparse.Namespace) -> None:
    import pyarrow.compute as pc

    with opened(args.index) as matcher:
        ids = pc.unique(ids_like(matcher, _given(args)))
        matcher.remove(ids)
        print(
            f"{len(ids):,} subscriptions removed from {args.index}, which has {len(matcher):,} "
            f"in version {matcher.version}"
        )


def _given(args: argparse.Namespace) -> Any:
    """The ids as an Arrow array, of text if they are from the command line or from CSV."""
    import pyarrow as pa

    from gpumatch.cli import files

    if args.ids is not None:
        return pa.array(args.ids, pa.string())
    with files.as_file(args.file) as path:
        return files.read_table(path, [args.id]).column(0)
