"""``gpumatch build``: build an index from a file of subscriptions."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import gpumatch as gm
from gpumatch.cli.arguments import INDEXES, schema_of
from gpumatch.cli.subscriptions import add_columns, add_rows, check_rejected, columns_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscriptions", metavar="SUBS", help=".parquet, .csv or .jsonl file, one subscription per row")
    parser.add_argument("out", metavar="OUT", help="the folder or the URI to write the index to")
    schema = parser.add_mutually_exclusive_group(required=True)
    schema.add_argument("--schema", help='\'px:float64,sym:string\', or a JSON file {"px": "float64", …}')
    schema.add_argument("--events", metavar="FILE", help="take names and types from the columns of an event file")
    add_columns(parser)
    parser.add_argument("--index", default="auto", help=INDEXES)


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import files
    from gpumatch.store.folder.place import shown

    schema = schema_of(args.schema) if args.schema else files.infer_schema(args.events)
    matcher = gm.Matcher(schema, index=args.index)
    start = time.perf_counter()
    table = files.read_table(args.subscriptions, columns_of(args))
    rejected = add_rows(matcher, table, args, "building")
    check_rejected(rejected, len(table), args, "no index was written")
    replaced = _replaced(args.out)
    matcher.save(args.out)
    print(f"{len(matcher):,} subscriptions in {shown(args.out)} after {time.perf_counter() - start:.1f} s{replaced}")


def _replaced(out: str) -> str:
    """What to say of an index that is overwritten."""
    from gpumatch.store.folder import manifests
    from gpumatch.store.folder.place import is_uri

    if is_uri(out) or not manifests.has_manifest(Path(out)):
        return ""
    return "; they replace the index that was there ('gpumatch add' adds to it)"
