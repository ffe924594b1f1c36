"""``gpumatch explain``: why a subscription does or does not match."""

from __future__ import annotations

import argparse
import re

import gpumatch as gm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index", metavar="IDX", help="the folder of an index, or its URI (s3://, gs://, abfss://, hdfs://)"
    )
    parser.add_argument("id", metavar="ID", help="the subscription's id")
    parser.add_argument("--event", required=True, metavar="JSON", help="the event, such as '{\"px\": 3}'")


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import files

    matcher = gm.load(args.index)
    event = files.parse_row(args.event, files.arrow_types(matcher.schema))
    print(matcher.explain(event, _known_id(matcher, args.id)))


def _known_id(matcher: gm.Matcher, text: str) -> str | int:
    """The id in the type of the index: an integer if its ids are integers."""
    if text not in matcher and re.fullmatch(r"[+-]?\d+", text) and int(text) in matcher:
        return int(text)
    return text
