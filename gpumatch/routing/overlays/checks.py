"""Arguments of the wrong type, refused by name and with a hint before they fail somewhere inside."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any

import numpy as np

from gpumatch.errors import RoutingError


def expect(what: str, given: Any, *kinds: type, hint: str = "") -> None:
    """Raise unless it is of one of these types."""
    if isinstance(given, kinds):
        return
    names = ["a number" if kind is Real else kind.__name__ for kind in kinds]
    if "Topology" in names and hasattr(given, "is_directed"):
        hint = "from_networkx(graph) turns a networkx graph into a Topology"
    elif "Topology" in names and hasattr(given, "topology"):
        hint = f"pass the .topology of the {type(given).__name__}"
    raise RoutingError(f"{what}: expected {' or '.join(names)}, found {_found(given)}{hint and f'; {hint}'}")


def whole(what: str, given: Any, expected: str = "a whole number") -> int:
    """An int, of Python or NumPy; bools are refused."""
    try:
        if not isinstance(given, bool):
            return index(given)
    except TypeError:
        pass
    raise RoutingError(f"{what}: expected {expected}, found {_found(given)}")


def as_array(what: str, given: Any) -> Any:
    """A NumPy array of anything that can be one."""
    try:
        return np.asarray(given)
    except ValueError:
        raise RoutingError(f"{what}: expected an array, found rows of different lengths") from None


def whole_numbers(what: str, given: Any) -> Any:
    """An int64 array; floats are not rounded."""
    found = as_array(what, given)
    if found.size and found.dtype.kind not in "iu":
        raise RoutingError(f"{what}: expected whole numbers, found {found.dtype}")
    return found.astype(np.int64)


def nanoseconds(what: str, given: Any) -> int:
    return whole(what, given, "whole nanoseconds (a second is 1_000_000_000)")


def _found(given: Any) -> str:
    name = type(given).__name__
    return f"{name} {given!r}" if isinstance(given, (str, int, float, complex)) else name
