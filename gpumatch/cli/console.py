"""Where commands print tables."""

from __future__ import annotations

import os

from rich.console import Console

_NO_LIMIT = 100_000  # columns


def make_console(stderr: bool = False, markup: bool = False) -> Console:
    """As wide as the terminal. In a pipe or file there is no width to fit, and rich's 80 columns would cut numbers."""
    console = Console(stderr=stderr, markup=markup, highlight=markup)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width = _NO_LIMIT
    return console
