"""Options shared by the scripts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def parser(doc: str) -> argparse.ArgumentParser:
    """Options of all scripts."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--scale", type=_scale, default=1.0, help="fraction of the published number of subscriptions")
    add("--events", type=positive, default=1000, help="maximum number of events")
    add("--out", type=Path, default=RESULTS, help="folder for the results")
    return parser


def timing_parser(doc: str, **defaults: Any) -> argparse.ArgumentParser:
    """Options of scripts that time engines."""
    timing = parser(doc)
    add = timing.add_argument
    add("--seconds", type=float, default=2.0, help="target length of a pass; slow engines get fewer events")
    add("--repeats", type=positive, default=3, help="passes; the best counts")
    add("--verify", type=positive, default=16, help="events checked against brute force")
    timing.set_defaults(**defaults)
    return timing


def some_of(names: Collection[str], fits: Callable[[str, str], bool] = str.__contains__) -> Any:
    """Type of an option that accepts comma-separated abbreviations of names, and returns the full names in order."""

    def chosen(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",")]
        for part in parts:
            if not any(fits(name, part) for name in names):
                raise argparse.ArgumentTypeError(f"no name matches {part!r}; choose from {', '.join(names)}")
        return tuple(name for name in names if any(fits(name, part) for part in parts))

    return chosen


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return number


def _scale(text: str) -> float:
    number = float(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and up to 10, found {text}")
    return number
