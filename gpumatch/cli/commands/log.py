"""``gpumatch log``: what changed in an index and when."""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import gpumatch as gm
from gpumatch.cli.arguments import positive
from gpumatch.cli.console import print_table
from gpumatch.cli.subscriptions import FOLDER

if TYPE_CHECKING:
    from gpumatch.store.folder.history import Entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help=FOLDER)
    parser.add_argument("--last", type=positive, default=50, metavar="N", help="changes to show (default: 50)")


def run(args: argparse.Namespace) -> None:
    from gpumatch.store.folder.history import history
    from gpumatch.store.folder.place import is_uri, shown

    if is_uri(args.index):
        raise gm.StorageError(f"{shown(args.index)!r} is in an object store, which keeps no log; see 'gpumatch info'")
    entries = history(Path(args.index))
    print_table(("version", "time", "call", "added", "removed"), [_row(it) for it in entries[::-1]], args.last)
    print(f"gm.load({args.index!r}, version=…) loads any of them, {len(entries):,} in all")


def _time(seconds: float) -> str:
    try:
        return dt.datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (OSError, OverflowError, ValueError):  # from a clock set to an impossible year, or a forged log
        return f"{seconds:g} s after 1970"


def _row(entry: Entry) -> tuple[str, str, str, str, str]:
    if entry.at is None:
        return entry.version, "", "", "", ""
    return entry.version, _time(entry.at), entry.what, f"{entry.added:,}", f"{entry.removed:,}"
