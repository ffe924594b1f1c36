"""Times the loading of subscriptions that are written as text: ``python bench/text.py --help``.

A million expressions of 50 shapes shall take less than 60 s on one core.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console

SCHEMA = {
    "sym": "string", "venue": "string", "px": "float64", "chg": "float64",
    "qty": "int64", "lots": "int64", "day": "date", "settle": "date",
}  # fmt: skip
SHAPES = 50
EPOCH = dt.date(2020, 1, 1).toordinal()
Generator = np.random.Generator

# For each type some predicates that it allows; then how many constants there are, and how they are written.
OPERATORS: dict[str, tuple[str, ...]] = {
    "string": ("{a} = {}", "{a} <> {}", "{a} IN ({}, {}, {})", "{a} NOT IN ({}, {})", "{a} IS NOT NULL"),
    "float64": ("{a} > {}", "{a} <= {}", "{a} >= {} AND {a} < {}", "{a} NOT BETWEEN {} AND {}"),
    "int64": ("{a} = {}", "{a} >= {}", "{a} < {}", "{a} IN ({}, {}, {}, {})", "{a} BETWEEN {} AND {}"),
    "date": ("{a} >= {}", "{a} < {}", "{a} = {}", "{a} BETWEEN {} AND {}"),
}
CONSTANTS: dict[str, tuple[int, Callable[[int], str]]] = {
    "string": (5000, lambda i: f"'S{i}'"),
    "float64": (100_000, lambda i: f"{i / 100:.2f}"),
    "int64": (100_000, str),
    "date": (2000, lambda i: f"DATE '{dt.date.fromordinal(EPOCH + i)}'"),
}


def expressions(n: int, seed: int = 0) -> dict[int, str]:
    """``n`` expressions of 50 shapes, of four predicates on average, the shapes mixed."""
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    for i in range(SHAPES):
        texts += _texts(rng, n // SHAPES + (i < n % SHAPES))
    return {i: texts[j] for i, j in enumerate(rng.permutation(n).tolist())}


def _texts(rng: Generator, n: int) -> list[str]:
    """``n`` expressions of one shape: predicates on distinct attributes under AND, OR, NOT."""
    names = rng.permutation(list(SCHEMA))[: rng.integers(2, 7)].tolist()
    templates, columns = [], []
    for name in names:
        kind = SCHEMA[name]
        template = str(rng.choice(OPERATORS[kind])).replace("{a}", name)
        among, written = CONSTANTS[kind]
        ascending = np.sort(rng.integers(0, among, (template.count("{}"), n)), axis=0)  # so that ranges are not empty
        columns += [[written(i) for i in column] for column in ascending.tolist()]
        templates.append(f"NOT ({template})" if rng.random() < 0.1 else template)
    if len(templates) > 2 and rng.random() < 0.4:  # an OR of the last two, which keeps the constants in order
        templates[-2:] = [f"({templates[-2]} OR {templates[-1]})"]
    shape = " AND ".join(templates)
    return [shape.format(*constants) for constants in zip(*columns, strict=True)] if columns else [shape] * n


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1_000_000, help="expressions (default 1000000)")
    parser.add_argument("--index", default="auto", help="index to build afterwards (default auto)")
    options = parser.parse_args()
    import gpumatch as gm

    console = Console(highlight=False)
    gm.set_num_threads(1)
    gm.Matcher(SCHEMA, index=options.index).add(expressions(SHAPES))  # imports and compiles
    texts = expressions(options.count)
    examples = "\n".join(f"  {texts[i]}" for i in range(min(3, len(texts))))
    console.print(f"{len(texts):,} expressions, for example\n{examples}", markup=False, soft_wrap=True)

    matcher = gm.Matcher(SCHEMA, index=options.index)
    add, compact = _timed(lambda: matcher.add(texts)), _timed(matcher.compact)
    million = 1e6 / len(texts)
    console.print(f"add      {add:6.1f} s, {add * million:6.1f} s per million (bar: 60)")
    console.print(f"compact  {compact:6.1f} s, {compact * million:6.1f} s per million")
    return int(add * million > 60)


def _timed(call: Callable[[], object]) -> float:
    """CPU seconds: the bar is for one core, and other processes may hold it up."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
