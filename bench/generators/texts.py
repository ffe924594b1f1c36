"""Expressions as text with a given number of shapes, over attributes of all types.

Texts that differ only in constants have the same shape.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np

Generator = np.random.Generator
TYPES = {  # number of attributes of each
    "int64": 9, "int32": 3, "float64": 9, "float32": 2, "bool": 3, "string": 10, "date": 3, "timestamp[us]": 4,
    "list<string>": 2, "list<int64>": 1,
}  # fmt: skip
SCHEMA = {f"{''.join(filter(str.isalnum, kind))}_{at}": kind for kind, count in TYPES.items() for at in range(count)}
FIRST_DAY, FIRST_TIME = dt.date(2020, 1, 1), dt.datetime(2024, 1, 1)

# Constants go into the holes; {a} is the attribute.
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
    """A text with holes, and the constants for them."""

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
        """This number of conditions under AND and OR, which mostly alternate; some are negated."""
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
    """``count`` expressions of ``shapes`` shapes, mixed."""
    rng = np.random.default_rng(seed)
    made = [Shape(rng) for _ in range(min(count, shapes))]
    return {at: made[at % len(made)].filled(rng) for at in range(count)}
