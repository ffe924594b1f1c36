"""``gpumatch build``: build an index from a file of subscriptions."""

from __future__ import annotations

import argparse
import time

import gpumatch as gm
from gpumatch.cli.arguments import INDEXES, schema_of
from gpumatch.cli.console import print_table, progress

_ROWS_AT_ONCE = 50_000  # subscriptions per update of the progress bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscriptions", metavar="SUBS", help=".parquet, .csv or .jsonl file, one subscription per row")
    parser.add_argument("out", metavar="OUT", help="the folder or the URI to write the index to")
    schema = parser.add_mutually_exclusive_group(required=True)
    schema.add_argument("--schema", help='\'px:float64,sym:string\', or a JSON file {"px": "float64", …}')
    schema.add_argument("--events", metavar="FILE", help="take names and types from the columns of an event file")
    parser.add_argument("--id", default="id", metavar="COLUMN", help="the column of ids (default: id)")
    parser.add_argument("--where", default="expr", metavar="COLUMN", help="the column of expressions (default: expr)")
    parser.add_argument("--index", default="auto", help=INDEXES)
    parser.add_argument(
        "--on-error",
        choices=("raise", "collect"),
        default="raise",
        help="if expressions are bad: write no index (raise, default), or leave them out (collect); both list them",
    )


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import files
    from gpumatch.store.place import shown

    schema = schema_of(args.schema) if args.schema else files.infer_schema(args.events)
    matcher = gm.Matcher(schema, index=args.index)
    start = time.perf_counter()
    table = files.read_table(args.subscriptions, [args.id, args.where])
    rejected = []
    with progress() as bar:
        task = bar.add_task("building", total=len(table))
        for first in range(0, len(table), _ROWS_AT_ONCE):
            rows = table.slice(first, _ROWS_AT_ONCE)
            rejected += matcher.add_table(rows, id=args.id, where=args.where, on_error="collect")
            bar.advance(task, len(rows))
    if rejected:
        bad = [(str(it.id), "" if it.position is None else str(it.position), it.message) for it in rejected]
        print_table(("id", "position", "message"), bad)
    if rejected and args.on_error == "raise":
        found = f"{len(rejected):,} of {len(table):,} subscriptions are bad, so no index was written"
        raise gm.GpumatchError(f"{found}; fix them, or leave them out with --on-error collect")
    matcher.save(args.out)
    print(f"{len(matcher):,} subscriptions in {shown(args.out)} after {time.perf_counter() - start:.1f} s")
