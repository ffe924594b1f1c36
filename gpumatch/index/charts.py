"""Charts of the contents of indexes: numbers and labels, made without matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpumatch.arrays import Array

_BARS = 24  # attributes that a chart names


@dataclass(frozen=True)
class Bars:
    """Stacked columns: per series one value for each name, or, without names, for each interval of the x axis."""

    title: str
    x: str
    y: str
    series: dict[str, Array]
    names: list[str] | None = None
    width: float = 1.0  # of a column without a name, in units of ``x``


@dataclass(frozen=True)
class Heat:
    """Cells by colour; zeros are left empty."""

    title: str
    x: str
    y: str
    colour: str
    values: Array
    width: float  # of all columns together, in units of ``x``
    height: float
    upward: bool = False  # the first row at the bottom


Chart: TypeAlias = Bars | Heat


def by_attribute(title: str, y: str, names: list[str], values: list[Any], rest: Any) -> Bars:
    """The largest values by name, the mean of the others, and the value for every event."""
    ranked = sorted(zip(values, names, strict=True), key=lambda it: -it[0])
    ranked = [it for it in ranked if it[0]]
    shown, others = ranked[:_BARS], [value for value, _ in ranked[_BARS:]]
    x = "attribute"
    if others:
        shown.append((sum(others) / len(others), f"+{len(others):,}"))
        x = f"attribute; +{len(others):,} is the mean of the others"
    if rest or not shown:
        shown.append((rest, "every event"))
    return Bars(title, x, y, {"": np.array([it[0] for it in shown])}, [it[1] for it in shown])


def shares(sizes: Array) -> tuple[dict[str, Array], list[str]]:
    """Shares of the sizes 0, 1, 2, 3 to 4, 5 to 8, and so on."""
    most = int(sizes.max(initial=1))
    tops = [0, *(1 << k for k in range((most - 1).bit_length() + 1))]
    counts = np.bincount(np.searchsorted(tops, sizes), minlength=len(tops))
    names = ["0", *(str(top) if top <= 2 else f"{top // 2 + 1}-{top}" for top in tops[1:])]
    return {"": counts / max(len(sizes), 1)}, names


def resized(values: Array, length: int) -> Array:
    """Rows repeated or averaged to ``length``; both lengths are powers of two."""
    if len(values) <= length:
        return np.repeat(values, length // len(values), axis=0)
    mean: Array = values.reshape(length, -1, *values.shape[1:]).mean(axis=1)
    return mean
