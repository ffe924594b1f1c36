"""Numbers from users: checked, and converted to int64 or float64 values of one line without changing any."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import RoutingError

INT64 = np.iinfo(np.int64)


def is_whole(given: object) -> bool:
    """Whether it is an integer; bools are not."""
    return isinstance(given, (int, np.integer)) and not isinstance(given, bool)


def is_number(given: object) -> bool:
    """Whether it is a number in the range of floats: neither NaN nor infinite."""
    if not is_whole(given) and not isinstance(given, (float, np.floating)):
        return False
    try:
        return math.isfinite(given)  # type: ignore[arg-type]
    except OverflowError:
        return False


def numbered(given: Any, count: int, name: str) -> int:
    """The number of one of ``count`` things."""
    if not is_whole(given) or not 0 <= given < count:
        raise RoutingError(f"{name} {given!r}: expected a number from 0 to {count - 1}")
    return int(given)


def values_of(given: Any, name: str) -> Array:
    """Values as an int64 or float64 array of one dimension; anything else is an error under that name."""
    try:
        found = np.atleast_1d(np.asarray(given))
    except (ValueError, OverflowError) as error:
        raise RoutingError(f"{name}: expected numbers in one dimension; {error}") from None
    if found.ndim != 1:
        raise RoutingError(f"{name}: expected one dimension, found {found.ndim}")
    if found.size == 0 or found.dtype.kind == "i":
        return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)
    if found.dtype.kind == "u":
        if found.max() > INT64.max:
            raise RoutingError(f"{name}: expected integers that fit 64 bits with a sign, found {found.max()}")
        return found.astype(np.int64)
    if found.dtype.kind != "f":
        raise RoutingError(f"{name}: expected integers or floats, found {found.dtype}; give codes for other values")
    if isinstance(given, (list, tuple)):
        _check_mixed(given, found, name)
    return found.astype(np.float64)


def _check_mixed(given: list[Any] | tuple[Any, ...], found: Array, name: str) -> None:
    """Raise if an array of floats made of integers, or of integers and floats, has rounded any."""
    if all(is_whole(one) for one in given):
        raise RoutingError(f"{name}: expected integers that fit 64 bits with a sign, found {max(given, key=abs)}")
    for one, kept in zip(given, found.tolist(), strict=True):
        if is_whole(one) and int(one) != kept:
            raise RoutingError(f"{name}: {one} is not an exact float; give all as integers")


def integers_of(given: Any, name: str) -> Array:
    """Values as int64."""
    found = values_of(given, name)
    if len(found) and found.dtype.kind != "i":
        raise RoutingError(f"{name}: expected integers, found floats")
    return found.astype(np.int64)


def one_line(low: Any, high: Any) -> tuple[Array, Array]:
    """Bounds of ranges in one type. NaN, lengths that differ, and integers that no float64 equals are errors."""
    bounds = [values_of(low, "low"), values_of(high, "high")]
    if len(bounds[0]) != len(bounds[1]):
        raise RoutingError(f"low and high: expected equally many, found {len(bounds[0])} and {len(bounds[1])}")
    for name, bound in zip(("low", "high"), bounds, strict=True):
        if np.isnan(bound).any():
            raise RoutingError(f"{name}: bounds are numbers or infinite, found NaN at {np.isnan(bound).argmax()}")
    if any(bound.dtype.kind == "f" for bound in bounds):
        return exact_floats(bounds[0], "low"), exact_floats(bounds[1], "high")
    return bounds[0], bounds[1]


def exact_floats(bounds: Array, name: str) -> Array:
    """Bounds as float64; an integer that none equals is an error."""
    if bounds.dtype.kind == "f":
        return bounds
    found = bounds.astype(np.float64)
    lost = _whole(found) != bounds
    if lost.any():
        raise RoutingError(
            f"{name}: {bounds[lost.argmax()]} cannot meet float bounds exactly; give all bounds as integers"
        )
    return found


def on_line(values: Any, edges: Array) -> Array:
    """Values in the type of the edges that compare with all edges as the given ones do: at or above, or below.

    On a line of integers a float counts as the integer below it, on one of floats an integer as the float below it.
    What no int64 equals or follows, including NaN, becomes the largest, which no half-open range contains.
    """
    given = values_of(values, "values")
    if edges.dtype.kind == given.dtype.kind:
        return given
    if edges.dtype.kind == "f":
        near = given.astype(np.float64)
        return np.where((near == 2.0**63) | (_whole(near) > given), np.nextafter(near, -np.inf), near)
    floor = np.floor(given)
    found = np.full(len(given), INT64.max)
    inside = (floor >= -(2.0**63)) & (floor < 2.0**63)
    found[inside] = floor[inside].astype(np.int64)
    return found


def _whole(near: Array) -> Array:
    """Whole floats as int64; 2**63, which is none but may be the nearest to one, as 0."""
    return np.where(near < 2.0**63, near, 0).astype(np.int64)
