"""Files of subscriptions, and indexes in folders that commands change."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpumatch as gm
from gpumatch.cli.console import print_table, progress

if TYPE_CHECKING:
    from gpumatch.subscriptions.intake import Rejected

_ROWS_AT_ONCE = 50_000  # subscriptions per update of the progress bar
FOLDER = "the folder of an index"


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what a file of subscriptions has, and what to do with bad ones."""
    add_id(parser)
    parser.add_argument("--where", default="expr", metavar="COLUMN", help="the column of expressions (default: expr)")
    parser.add_argument("--destination", metavar="COLUMN", help="the column of destinations (default: none)")
    parser.add_argument("--weight", metavar="COLUMN", help="the column of weights (default: none)")
    parser.add_argument(
        "--on-error",
        choices=("raise", "collect"),
        default="raise",
        help="if subscriptions are bad: write nothing (raise, default), or leave them out (collect); both list them",
    )


def add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--id", default="id", metavar="COLUMN", help="the column of ids (default: id)")


def columns_of(args: argparse.Namespace) -> list[str]:
    """The columns that ``add_rows`` reads."""
    return [name for name in (args.id, args.where, args.destination, args.weight) if name is not None]


def add_rows(matcher: gm.Matcher, table: Any, args: argparse.Namespace, doing: str) -> list[Rejected]:
    """Add all rows of a table but for bad ones, with a progress bar."""
    rejected = []
    with progress() as bar:
        task = bar.add_task(doing, total=len(table))
        for first in range(0, len(table), _ROWS_AT_ONCE):
            rows = table.slice(first, _ROWS_AT_ONCE)
            destination = None if args.destination is None else rows[args.destination].to_pylist()
            weight = None if args.weight is None else _numbers(rows[args.weight], args.weight)
            rejected += matcher.add_table(rows, args.id, args.where, "collect", destination, weight)
            bar.advance(task, len(rows))
    return rejected


def _numbers(column: Any, name: str) -> Any:
    """Weights, which are text in a CSV file."""
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        return column
    try:
        return column.cast(pa.float64())
    except pa.ArrowException as error:
        raise gm.SchemaError(f"the column {name!r} should have numbers, to be weights: {error}") from None


def check_rejected(
    rejected: list[Rejected], total: int, args: argparse.Namespace, outcome: str, hint: str = ""
) -> None:
    """List bad subscriptions, and raise unless they may be left out."""
    if not rejected:
        return
    bad = [(str(it.id), "" if it.position is None else str(it.position), it.message) for it in rejected]
    print_table(("id", "position", "message"), bad)
    if args.on_error == "raise":
        found = f"{len(rejected):,} of {total:,} subscriptions are bad, so {outcome}"
        raise gm.GpumatchError(f"{found}; fix them, or leave them out with --on-error collect{hint}")


@contextmanager
def opened(index: str) -> Iterator[gm.Matcher]:
    """An index in a folder, whose changes are on disk when their calls return."""
    from gpumatch.store.folder import manifests
    from gpumatch.store.folder.place import is_uri, shown

    if is_uri(index):
        raise gm.StorageError(f"{shown(index)!r} is in an object store, where no index can be changed: build it again")
    manifests.read_manifest(Path(index))  # says what is missing; open() would ask for a schema
    matcher = gm.open(index, "a", background=False)
    try:
        yield matcher
    except BaseException:
        with suppress(gm.StorageError):  # the first error says more
            matcher.close()
        raise
    matcher.close()


def ids_like(matcher: gm.Matcher, ids: Any) -> Any:
    """Ids from a file or the command line as integers, if those of the index are."""
    import pyarrow as pa

    if matcher.id_type is not int or pa.types.is_integer(ids.type):
        return ids
    try:
        return ids.cast(pa.int64())
    except pa.ArrowException:
        wrong = next(name for name in ids.to_pylist() if not _is_integer(name))
        raise gm.IdError(f"the ids of the index are integers, found {wrong!r:.80}; give integers") from None


def _is_integer(name: Any) -> bool:
    import pyarrow as pa

    try:
        return bool(pa.scalar(name).cast(pa.int64()).is_valid)
    except pa.ArrowException:
        return False
