"""Times the loading of subscriptions that are written as text: ``python bench/text.py --help``.

By number of shapes, texts that differ in their constants only having one. Each set is loaded twice in turn: as it is,
and with every text of a new shape left to the parser, as it was before texts were cut into conditions.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
from report import machine
from rich.console import Console
from rich.table import Table

import gpumatch as gm
from gpumatch.subscriptions import intake as sources

Generator = np.random.Generator
TYPES = {  # how many attributes there are of each
    "int64": 9, "int32": 3, "float64": 9, "float32": 2, "bool": 3, "string": 10, "date": 3, "timestamp[us]": 4,
    "list<string>": 2, "list<int64>": 1,
}  # fmt: skip
SCHEMA = {f"{''.join(filter(str.isalnum, kind))}_{at}": kind for kind, count in TYPES.items() for at in range(count)}
SHAPES = (1, 50, 1000, 10_000)
BAR_ALIKE, BAR_UNLIKE = 60, 60  # µs per expression, of 50 shapes and of unlike ones
FIRST_DAY, FIRST_TIME = dt.date(2020, 1, 1), dt.datetime(2024, 1, 1)

# Holes are for constants, {a} is the attribute.
COMPARISONS = ("{a} = {}", "{a} <> {}", "{a} < {}", "{a} <= {}", "{a} > {}", "{a} >= {}", "{a} BETWEEN {} AND {}")
LISTS = ("{a} IN ({}, {})", "{a} IN ({}, {}, {}, {})", "{a} NOT IN ({}, {}, {})", "{a} IS NULL", "{a} IS NOT NULL")
TESTS = {
    "bool": ("{a}", "NOT {a}", "{a} = TRUE", "{a} IS NULL"),
    "string": (*COMPARISONS, *LISTS, "{a} = {}", "{a} = {}", "{a} LIKE {%}", "{a} NOT LIKE {%}"),
}
CONSTANTS: dict[str, Callable[[Generator], str]] = {
    "int": lambda rng: str(rng.integers(-1000, 100_000)),
    "float": lambda rng: f"{rng.normal(0, 1000):.2f}",
    "string": lambda rng: f"'S{rng.integers(5000)}'",
    "date": lambda rng: f"DATE '{FIRST_DAY + dt.timedelta(days=int(rng.integers(2000)))}'",
    "timestamp": lambda rng: f"TIMESTAMP '{FIRST_TIME + dt.timedelta(seconds=int(rng.integers(10**7)))}'",
}


class Shape:
    """A text with holes, and what fills them."""

    def __init__(self, rng: Generator) -> None:
        self.holes: list[str] = []
        count = int(rng.integers(2, 9))
        plain = rng.random() < 0.25
        self.text = " AND ".join(self._test(rng) for _ in range(count)) if plain else self._tree(rng, count, 0)

    def filled(self, rng: Generator) -> str:
        constants = [f"'S{rng.integers(500)}%'" if hole == "%" else CONSTANTS[hole](rng) for hole in self.holes]
        return self.text.format(*constants)

    def _test(self, rng: Generator) -> str:
        name = str(rng.choice(list(SCHEMA)))
        kind = SCHEMA[name].removeprefix("list<").removesuffix(">")
        test = str(rng.choice(TESTS.get(kind, COMPARISONS + LISTS)))
        hole = "%" if "{%}" in test else kind.rstrip("0123456789").split("[")[0]
        self.holes += [hole] * (test.count("{}") + test.count("{%}"))
        return test.replace("{a}", name).replace("{%}", "{}")

    def _tree(self, rng: Generator, count: int, depth: int) -> str:
        """So many tests under AND and OR, which mostly alternate; now and then negated."""
        if count == 1:
            text = self._test(rng)
            return f"NOT ({text})" if rng.random() < 0.05 else text
        cuts = np.sort(rng.permutation(count - 1)[: int(rng.integers(1, 4))]) + 1
        sizes = np.diff([0, *cuts, count]).tolist()
        parts = [self._tree(rng, size, depth + 1) for size in sizes]
        word = " AND " if (depth % 2 == 0) == (rng.random() < 0.75) else " OR "
        text = word.join(part if size == 1 else f"({part})" for part, size in zip(parts, sizes, strict=True))
        return f"NOT ({text})" if depth and rng.random() < 0.05 else text


def expressions(count: int, shapes: int, seed: int = 0) -> dict[int, str]:
    """``count`` expressions of so many shapes, mixed."""
    rng = np.random.default_rng(seed)
    made = [Shape(rng) for _ in range(min(count, shapes))]
    return {at: made[at % len(made)].filled(rng) for at in range(count)}


@contextmanager
def before() -> Iterator[None]:
    """Shapes are parsed one by one, whether or not others have them."""
    with (
        mock.patch.object(sources, "group_alike", lambda given, rows, errors: ([], list(rows))),
        mock.patch.object(sources, "add_unlike", lambda builder, attributes, splitting, given, rows: list(rows)),
    ):
        yield


def seconds(texts: dict[int, str], index: str) -> float:
    """CPU seconds: the bars are for one core, and other processes may hold it up."""
    matcher = gm.Matcher(SCHEMA, index=index, device="cpu")
    start = time.process_time()
    matcher.add(texts)
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="expressions (default 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many counts (default 3)")
    parser.add_argument("--index", default="auto", help="index that they are meant for (default auto)")
    parser.add_argument("--out", type=Path, help="JSON to write")
    options = parser.parse_args()
    console = Console(highlight=False)
    console.print("for example", *(f"  {text}" for text in expressions(3, 3).values()), sep="\n", markup=False)
    gm.set_num_threads(1)
    rows = []
    for shapes in (*(n for n in SHAPES if n < options.count), options.count):
        texts = expressions(options.count, shapes)
        seconds({at: texts[at] for at in range(min(300, len(texts)))}, options.index)  # imports
        times: dict[str, float] = {}
        for _ in range(options.repeats):
            with before():
                times["before"] = min(times.get("before", np.inf), seconds(texts, options.index))
            times["after"] = min(times.get("after", np.inf), seconds(texts, options.index))
        us = {name: 1e6 * best / len(texts) for name, best in times.items()}
        rows.append({"shapes": shapes, **{f"{name}_us": round(value, 1) for name, value in us.items()}})
        console.print(f"{shapes:,} shapes: {us['before']:.1f} -> {us['after']:.1f} µs")
    _report(console, rows, options)
    last, alike = rows[-1]["after_us"], [row["after_us"] for row in rows if row["shapes"] == 50]
    return int(last > BAR_UNLIKE or any(us > BAR_ALIKE for us in alike))


def _report(console: Console, rows: list[dict[str, float]], options: argparse.Namespace) -> None:
    table = Table(title=f"µs per expression from text to block, one core, {options.count:,} expressions")
    for name in ("shapes", "before", "after"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(f"{row['shapes']:,}", f"{row['before_us']:.1f}", f"{row['after_us']:.1f}")
    console.print(table)
    if options.out:
        held = {"machine": machine(), "count": options.count, "index": options.index, "rows": rows}
        options.out.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
