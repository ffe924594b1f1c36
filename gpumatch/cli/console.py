"""Tables, progress bars and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_NO_LIMIT = 100_000  # columns
_ROWS_SHOWN = 50


def make_console(stderr: bool = False, markup: bool = False) -> Console:
    """As wide as the terminal. A pipe or file has no width, and rich's default of 80 columns would cut numbers."""
    from rich.console import Console

    console = Console(stderr=stderr, markup=markup, highlight=markup)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width = _NO_LIMIT
    return console


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on standard error, removed at the end; none if that is not a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = make_console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], most: int = _ROWS_SHOWN) -> None:
    """The first rows, and how many more there are."""
    from rich.table import Table

    table = Table(*header)
    for row in rows[:most]:
        table.add_row(*row)
    make_console().print(table)
    if len(rows) > most:
        print(f"and {len(rows) - most:,} more")


def print_error(error: Exception) -> None:
    """One red line, followed by the lines with the caret if the error points into a text."""
    from rich.text import Text

    line, *rest = str(error).split("\n")
    console = make_console(stderr=True)
    console.print(Text(f"error: {line}", style="bold red"), soft_wrap=True)
    for text in rest:
        console.print(text, soft_wrap=True)
