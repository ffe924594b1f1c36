"""Subscriptions on the tree of one attribute: ranges by row, looked up by value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.errors import RoutingError
from gpumatch.routing.sieve.groups import Groups
from gpumatch.routing.sieve.values import INT64

Number: TypeAlias = int | float
Range: TypeAlias = tuple[Number, Number]  # half-open

KEPT = 1 << 20  # rows of groups that a tree keeps


class Tree:
    """The ranges on one attribute, each of a row.

    Group ranges are built when first needed after a change, so that many changes in a row cost one build.
    """

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.ranges: dict[int, Range] = {}  # by row, ascending
        self._floats = self._large = 0  # ranges with a float bound; with an integer that no float equals
        self._groups: Groups | None = None
        self._edges: list[Number] = []
        self._rows: dict[int, Array] = {}  # by group, those asked for
        self._kept = 0  # rows in all of these

    def check(self, ranges: Iterable[Range]) -> None:
        """Raise unless these fit on one line with the existing ones without changing the value of any bound."""
        more = list(ranges)
        if not (self._floats or any(map(_is_float, more))) or not (self._large or any(map(_is_large, more))):
            return
        large = next(filter(_is_large, [*more, *self.ranges.values()]))
        raise RoutingError(
            f"ranges on {self.name!r}: {large} cannot meet float bounds exactly; give all bounds as integers"
        )

    def add(self, row: int, bounds: Range) -> None:
        """Add a row above the existing ones."""
        self.ranges[row] = bounds
        self._changed(bounds, 1)

    def remove(self, row: int) -> None:
        self._changed(self.ranges.pop(row), -1)

    @property
    def groups(self) -> Groups:
        """Group ranges, with rows as owners."""
        if self._groups is None:
            kind = np.float64 if self._floats else np.int64
            line = np.array(list(self.ranges.values()), kind).reshape(-1, 2)
            self._groups = Groups.of(line[:, 0], line[:, 1], np.array(list(self.ranges), np.int64))
            self._edges = self._groups.edges.tolist()
        return self._groups

    def rows(self, value: Number) -> list[int]:
        """Rows whose range contains a value, ascending."""
        groups = self.groups
        group = bisect_right(self._edges, value) - 1
        return self._of_group(group).tolist() if 0 <= group < len(groups) else []

    def copies(self, message: Array, values: Array) -> tuple[Array, Array]:
        """Message and row of each increment that values of messages cause."""
        group = self.groups.locate(values)
        message, group = message[group >= 0], group[group >= 0]
        distinct, inverse = np.unique(group, return_inverse=True)
        found = [self._of_group(one) for one in distinct.tolist()]
        lengths = np.array([len(rows) for rows in found], np.int64)
        flat = np.concatenate([np.empty(0, np.int64), *found])
        at = spans(pointers(lengths)[:-1][inverse], lengths[inverse])
        return np.repeat(message, lengths[inverse]), flat[at]

    def _of_group(self, group: int) -> Array:
        rows = self._rows.get(group)
        if rows is None:
            rows = self.groups.members(group)
            if self._kept + len(rows) > KEPT:
                self._rows.clear()
                self._kept = 0
            self._rows[group] = rows
            self._kept += len(rows)
        return rows

    def _changed(self, bounds: Range, by: int) -> None:
        self._floats += by * _is_float(bounds)
        self._large += by * _is_large(bounds)
        self._groups = None
        self._rows.clear()
        self._kept = 0


def range_of(given: Any, name: str) -> Range:
    """Two bounds, the lower first, either as a float or as an integer of 64 bits."""
    try:
        low, high = (number_of(bound, name) for bound in given)
    except (TypeError, ValueError) as error:
        if isinstance(error, RoutingError):
            raise
        raise RoutingError(f"{name}: expected two bounds, low and high, found {given!r}") from None
    if low is None or high is None or low > high:
        raise RoutingError(f"{name}: expected low <= high, found {given!r}")
    for bound in (low, high):
        if isinstance(bound, int) and not INT64.min <= bound <= INT64.max:
            raise RoutingError(f"{name}: expected integers that fit 64 bits with a sign, found {bound}")
    return low, high


def number_of(value: Any, name: str) -> Number | None:
    """A value that compares exactly; None if it is missing, such as NaN. Anything but a number is an error."""
    found = comparable(value)
    is_nan = isinstance(value, (float, np.floating)) and value != value
    if found is None and value is not None and not is_nan:
        raise RoutingError(f"{name}: expected a number, found {value!r}; give codes for other values")
    return found


def comparable(value: Any) -> Number | None:
    """A value that compares exactly with bounds; None for any other, including NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (int, float)) and value == value else None


def _is_float(bounds: Range) -> bool:
    return any(isinstance(bound, float) for bound in bounds)


def _is_large(bounds: Range) -> bool:
    return any(isinstance(bound, int) and float(bound) != bound for bound in bounds)
