"""Times the loading of subscriptions from text: ``python bench/text.py --help``.

By number of shapes: texts that differ only in their constants have the same shape. Each set is loaded twice, in turns:
normally, and with every new shape left to the parser, as before texts were cut into conditions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

from rich.console import Console

import gpumatch as gm
from generators.texts import SCHEMA, expressions
from gpumatch.subscriptions import texts as sources
from measuring.clock import cpu_seconds, in_turns
from measuring.report import headed, machine, save, terminal

SHAPES = (1, 50, 1000, 10_000)
TARGET_ALIKE, TARGET_UNLIKE = 60, 60  # µs per expression, with 50 shapes and with all different ones


@contextmanager
def before() -> Iterator[None]:
    """Parse texts one by one, whether or not they share a shape."""
    with (
        mock.patch.object(sources, "_alike", lambda given, rows, errors: ([], rows)),
        mock.patch.object(sources, "add_unlike", lambda builder, attributes, splitting, given, rows: rows),
    ):
        yield


def seconds(texts: dict[int, str], index: str) -> float:
    """CPU seconds: the targets are for one core, and other processes may delay it."""
    matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
    return cpu_seconds(partial(matcher.add, texts))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="expressions (default 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="best of N repeats (default 3)")
    parser.add_argument("--index", default="auto", help="index (default auto)")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    console = terminal()
    console.print("for example", *(f"  {text}" for text in expressions(3, 3).values()), sep="\n")
    gm.set_num_threads(1)
    rows = []
    for shapes in (*(n for n in SHAPES if n < options.count), options.count):
        texts = expressions(options.count, shapes)
        seconds({at: texts[at] for at in range(min(300, len(texts)))}, options.index)  # imports
        after = partial(seconds, texts, options.index)
        times = in_turns({"before": before()(after), "after": after}, options.repeats)
        us = {name: 1e6 * best / len(texts) for name, best in times.items()}
        rows.append({"shapes": shapes, **{f"{name}_us": round(value, 1) for name, value in us.items()}})
        console.print(f"{shapes:,} shapes: {us['before']:.1f} -> {us['after']:.1f} µs")
    _report(console, rows, options)
    last, alike = rows[-1]["after_us"], [row["after_us"] for row in rows if row["shapes"] == 50]
    return int(last > TARGET_UNLIKE or any(us > TARGET_ALIKE for us in alike))


def _report(console: Console, rows: list[dict[str, float]], options: argparse.Namespace) -> None:
    title = f"µs per expression from text to block, one core, {options.count:,} expressions"
    table = headed(title, "shapes", "before", "after", left=0)
    for row in rows:
        table.add_row(f"{row['shapes']:,}", f"{row['before_us']:.1f}", f"{row['after_us']:.1f}")
    console.print(table)
    if options.out:
        save(options.out, {"machine": machine(), "count": options.count, "index": options.index, "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
