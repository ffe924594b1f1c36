"""``gpumatch info``: the contents of an index."""

from __future__ import annotations

import argparse
from pathlib import Path

import gpumatch as gm
from gpumatch.cli.console import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help="the folder of an index")
    parser.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="also draw the index, as a .png, .svg or .pdf file (default: IDX.png in the current folder)",
    )


def run(args: argparse.Namespace) -> None:
    matcher = gm.load(args.index)
    picture = args.plot
    if picture is not None:
        from gpumatch.cli import pictures

        picture = picture or f"{Path(args.index).resolve().name}.png"
        pictures.draw(matcher, picture)
    files = [path for path in Path(args.index).rglob("*") if path.is_file()]
    stats = matcher.stats()
    segments = stats.pop("segments")
    rows = [(name, shown(value)) for name, value in stats.items()]
    rows += [("plan", str(matcher.plan()))]
    rows += [("files", f"{len(files):,} with {sum(path.stat().st_size for path in files):,} bytes in total")]
    print_table(("index", args.index), rows)
    if segments:
        columns = [f"segment {number}" for number in range(len(segments))]
        print_table(("", *columns), [(name, *(shown(part[name]) for part in segments)) for name in segments[0]])
    print_table(("attribute", "type"), list(matcher.schema.to_dict().items()))
    if picture is not None:
        print(f"wrote {picture}")


def shown(value: object) -> str:
    if isinstance(value, list):  # parts of a segment, one per line
        return "\n".join(", ".join(f"{name} {shown(fact)}" for name, fact in part.items()) for part in value)
    return f"{value:,}" if isinstance(value, int) else str(value)
