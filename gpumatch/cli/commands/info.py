"""``gpumatch info``: the contents of an index."""

from __future__ import annotations

import argparse
from pathlib import Path

import gpumatch as gm
from gpumatch.cli.console import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index", metavar="IDX", help="the folder of an index, or its URI (s3://, gs://, abfss://, hdfs://)"
    )
    parser.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="also draw the index, as a .png, .svg or .pdf file (default: IDX.png in the current folder)",
    )


def run(args: argparse.Namespace) -> None:
    from gpumatch.store.folder.place import shown as named
    from gpumatch.store.folder.remote import sizes

    matcher = gm.open(args.index)
    picture = args.plot
    if picture is not None:
        from gpumatch.cli import pictures

        picture = picture or f"{Path(named(args.index)).resolve().name}.png"
        pictures.draw(matcher, picture)
    files = sizes(args.index)
    stats = matcher.stats()
    segments = stats.pop("segments")
    rows = [(name, shown(value)) for name, value in stats.items()]
    if matcher.version is not None:
        rows.insert(0, ("version", matcher.version))
    rows += [("plan", str(matcher.plan()))]
    if (routes := routes_of(args.index)) is not None:
        rows += [("shards", routes)]
    rows += [("files", f"{len(files):,} with {sum(files):,} bytes in total")]
    print_table(("index", named(args.index)), rows)
    if segments:
        columns = [f"segment {number}" for number in range(len(segments))]
        print_table(("", *columns), [(name, *(shown(part[name]) for part in segments)) for name in segments[0]])
    print_table(("attribute", "type"), list(matcher.schema.to_dict().items()))
    if picture is not None:
        print(f"wrote {picture}")


def routes_of(index: str) -> str | None:
    """How events reach the shards of an index, if it has any."""
    from gpumatch.routing.shards.plan import Plan
    from gpumatch.store.folder.remote import below, read_manifest

    entry = read_manifest(index).get("plan")
    return None if entry is None else str(Plan.load(below(index, entry["folder"])).report)


def shown(value: object) -> str:
    if isinstance(value, list):  # parts of a segment, one per line
        return "\n".join(", ".join(f"{name} {shown(fact)}" for name, fact in part.items()) for part in value)
    return f"{value:,}" if isinstance(value, int) else str(value)
