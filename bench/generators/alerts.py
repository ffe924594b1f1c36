"""Alerts as text on wide rows, such as orders: 40 columns, categories by Zipf's law, skewed numbers, nulls.

``typical`` alerts name a category or two and bound a number; one in 120 matches an event. ``mixed`` ones are AND, OR
and NOT over arbitrary bounds; one in three matches. The texts have many shapes and are seeded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpumatch.workloads import Workload

CATEGORIES = {f"c{at}": size for at, size in enumerate((3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 500, 2000))}
FLOATS = [f"f{at}" for at in range(12)]
INTS = [f"i{at}" for at in range(10)]
FLAGS = [f"b{at}" for at in range(6)]
GONE = 0.05  # share of nulls
SAMPLE = 4000  # values of a column whose quantiles are bounds


@dataclass(frozen=True)
class TextWorkload(Workload):
    """Expressions as text, and the generator of their events."""

    texts: list[str]
    draw: Callable[[int, int], pa.Table]

    def add_to(self, matcher: Any) -> None:
        matcher.add_table(pa.table({"id": self.ids, "expr": self.texts}))

    def events(self, n: int, seed: int = 0) -> Any:
        return self.draw(n, seed)


def rows(n: int, seed: int) -> pa.Table:
    """Events."""
    rng = np.random.default_rng([seed, n])
    columns: dict[str, NDArray[Any]] = {}
    for at, (name, size) in enumerate(CATEGORIES.items()):
        weight = 1 / np.arange(1, size + 1) ** (0.7 + 0.05 * (at % 5))
        columns[name] = np.array([f"{name}-{v:04}" for v in range(size)])[rng.choice(size, n, p=weight / weight.sum())]
    for at, name in enumerate(FLOATS):
        columns[name] = np.round(np.exp(rng.normal(3, 0.5 + 0.1 * at, n)), 2)
    for at, name in enumerate(INTS):
        columns[name] = rng.geometric(1 / (2 + 5 * at * at), n)
    for at, name in enumerate(FLAGS):
        columns[name] = rng.random(n) < 0.1 + 0.1 * at
    return pa.table({name: pa.array(values, mask=rng.random(n) < GONE) for name, values in columns.items()})


class _Writer:
    """Conditions with constants that occur in events."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        sample = rows(SAMPLE, 99).to_pydict()
        self.values = {name: [v for v in values if v is not None] for name, values in sample.items()}
        self.sorted = {name: sorted(self.values[name]) for name in FLOATS + INTS}

    def pick(self, names: Any) -> str:
        return str(names[self.rng.integers(len(names))])

    def category(self, rare: bool) -> str:
        """On a column with many values, if it should be rare."""
        names = list(CATEGORIES)[5:] if rare else list(CATEGORIES)
        name = self.pick(names)
        if self.rng.random() < 0.7:
            return f"{name} = '{self.pick(self.values[name])}'"
        some = sorted({self.pick(self.values[name]) for _ in range(self.rng.integers(2, 5))})
        return f"{name} IN ({', '.join(repr(value) for value in some)})"

    def bound(self, low: float, high: float) -> str:
        """On a number; true for a share of events in this range."""
        name, share = self.pick(FLOATS + INTS), self.rng.uniform(low, high)
        values = self.sorted[name]
        if self.rng.random() < 0.3:
            first = self.rng.uniform(0, 1 - share)
            ends = [values[int(q * (len(values) - 1))] for q in (first, first + share)]
            return f"{name} BETWEEN {ends[0]} AND {ends[1]}"
        above = self.rng.random() < 0.6
        return f"{name} {'>=' if above else '<'} {values[int((1 - share if above else share) * (len(values) - 1))]}"

    def flag(self) -> str:
        return f"{'NOT ' if self.rng.random() < 0.3 else ''}{self.pick(FLAGS)}"

    def typical(self) -> str:
        parts = [self.category(rare=True), self.bound(0.05, 0.5)]
        if self.rng.random() < 0.3:
            parts.append(self.flag())
        if self.rng.random() < 0.3:
            parts.append(self.category(rare=False))
        if self.rng.random() < 0.2:
            parts[1] = f"({parts[1]} OR {self.bound(0.05, 0.3)})"
        return " AND ".join(parts)

    def mixed(self, depth: int = 2) -> str:
        if depth == 0 or self.rng.random() < 0.15:
            kind = self.rng.random()
            return self.bound(0.1, 0.9) if kind < 0.6 else self.category(rare=False) if kind < 0.8 else self.flag()
        word = " AND " if self.rng.random() < 0.6 else " OR "
        text = f"({word.join(self.mixed(depth - 1) for _ in range(self.rng.integers(2, 4)))})"
        return f"NOT {text}" if self.rng.random() < 0.1 else text


def _schema() -> dict[str, str]:
    kinds = {"string": CATEGORIES, "float64": FLOATS, "int64": INTS, "bool": FLAGS}
    return {name: kind for kind, names in kinds.items() for name in names}


def typical(n: int = 50_000, seed: int = 0) -> TextWorkload:
    writer = _Writer(np.random.default_rng(seed))
    return TextWorkload("typical alerts", _schema(), np.arange(n), [writer.typical() for _ in range(n)], rows)


def mixed(n: int = 20_000, seed: int = 0) -> TextWorkload:
    writer = _Writer(np.random.default_rng(seed))
    return TextWorkload("mixed alerts", _schema(), np.arange(n), [writer.mixed() for _ in range(n)], rows)


def both(n: int = 40_000, seed: int = 0) -> TextWorkload:
    """Three typical alerts for each mixed one."""
    texts = typical(n - n // 4, seed).texts + mixed(n // 4, seed).texts
    return TextWorkload("both alerts", _schema(), np.arange(n), texts, rows)
