"""What the arrays of an index are declared to be: type, length, and what their values are used for.

Types and lengths are always checked when an index is loaded; values with ``verify="full"``, so that nobody's folder can
make a kernel read or write beyond an array, loop for ever, or allocate without bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import StorageError

_LENGTH = re.compile(r"(?:(\d+) \* )?(\w+)(?: \+ (\d+))?( or 0)?")

Problem: TypeAlias = "tuple[str, str]"  # the name of an array or a number; what it should have, and what it has
Sizes: TypeAlias = "dict[str, int]"


@dataclass(frozen=True, slots=True)
class Anything:
    """Values that nobody uses as an index, a size or the end of a loop."""

    def problem(self, array: Array, sizes: Sizes) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers from ``least`` to one less than ``end``. Either may be the name of a size."""

    end: int | str
    least: int | str = 0

    def problem(self, array: Array, sizes: Sizes) -> str:
        low, end = (sizes[one] if isinstance(one, str) else one for one in (self.least, self.end))
        if len(array) == 0:
            return ""
        least, most = int(array.min()), int(array.max())
        return "" if low <= least and most < end else _range_text(low, end - 1, least if least < low else most)


@dataclass(frozen=True, slots=True)
class Pointers:
    """Where each of consecutive lists starts, and the last one ends: ascending from 0 to the size of them all.

    If not ``whole``, something may follow the last one.
    """

    size: str
    whole: bool = True

    def problem(self, array: Array, sizes: Sizes) -> str:
        size = sizes[self.size]
        if len(array) == 0:
            return ""
        falls = np.flatnonzero(array[1:] < array[:-1])
        if len(falls):
            before, after = array[falls[0] : falls[0] + 2].tolist()
            return f"should ascend, has {after} after {before} at {falls[0] + 1}"
        first, last = int(array[0]), int(array[-1])
        if first != 0:
            return f"should begin with 0, begins with {first}"
        if last > size or (self.whole and last < size):
            return f"should end with {'' if self.whole else 'at most '}{size}, ends with {last}"
        return ""


Values: TypeAlias = "Anything | Numbers | Pointers"

ANYTHING = Anything()
HOOKED = Anything()  # what the owner's own checks look at, since no declaration says it
CLAUSES = Numbers("last", "first")  # of the table, among those that an index holds
SHIFTS = Numbers(32)  # of codes, which are int32


class ArraySpec(NamedTuple):
    """Type, length and meaning of one array of an index, and what its values are.

    ``length`` is a name, times and plus a number: ``"nodes + 1"``, ``"2 * attributes"``; it ends in ``" or 0"`` if the
    array may be empty. ``attributes`` and ``clauses`` are those of the index; any other name stands for the same number
    in all its arrays, and in ``values``.
    """

    dtype: str
    length: str
    meaning: str
    values: Values | None = None  # which checks nothing
    on_device: bool = True  # otherwise only CPU kernels read it


def check_types(owner: str, specs: Mapping[str, ArraySpec], arrays: Mapping[str, Array], sizes: Sizes) -> None:
    """Raise unless the arrays exist and have the right types and lengths; adds the sizes that these imply."""
    for name, spec in specs.items():
        array = arrays.get(name)
        if array is None:
            raise StorageError(f"the {owner} lacks the array {name!r}; build it again")
        if array.dtype != spec.dtype or array.ndim != 1:
            shape = f"{array.ndim} dimensions of {array.dtype}"
            raise StorageError(f"the array {name!r} of a {owner} should be one of {spec.dtype}, has {shape}")
        if not _agrees(spec.length, len(array), sizes):
            known = ", ".join(f"{size} {name}" for name, size in sizes.items())
            raise StorageError(
                f"the array {name!r} of a {owner} should have {spec.length} numbers, has {len(array)}; "
                f"there are {known}"
            )


def _agrees(length: str, found: int, sizes: Sizes) -> bool:
    """Is ``found`` the right length of an array? The first use of a name fixes its value in ``sizes``."""
    match = _LENGTH.fullmatch(length)
    assert match is not None, f"a length is a name, times and plus a number, found {length!r}"
    times, name, plus, optional = match.groups()
    if optional and found == 0:
        return True
    size, rest = divmod(found - int(plus or 0), int(times or 1))
    return rest == 0 and size >= 0 and sizes.setdefault(name, size) == size


def check_values(owner: str, specs: Mapping[str, ArraySpec], arrays: Mapping[str, Array], sizes: Sizes) -> None:
    """Raise unless the arrays, whose types are right, have values as declared."""
    for name, spec in specs.items():
        values = spec.values or ANYTHING
        problem = _no_flags(arrays[name]) if spec.dtype == "bool" else values.problem(arrays[name], sizes)
        raise_first(owner, [(name, problem)] if problem else [])


def _no_flags(array: Array) -> str:
    """NumPy counts a truth value by its byte."""
    most = int(array.view(np.uint8).max(initial=0))
    return "" if most <= 1 else _range_text(0, 1, most)


def raise_first(owner: str, problems: Iterable[Problem]) -> None:
    """Raise the first of the problems, if any: what comes after it may need what it is about."""
    for name, problem in problems:
        raise StorageError(f"{name!r} of a {owner} {problem}; build it again")


def between(name: str, values: Array, low: Array | int, high: Array | int) -> Iterator[Problem]:
    """A problem if some value is below ``low`` or above ``high``, which may be numbers or one for each value."""
    wrong = np.flatnonzero((values < low) | (values > high))
    if len(wrong):
        at = wrong[0]
        least, most = (one[at] if isinstance(one, np.ndarray) else one for one in (low, high))
        yield name, f"{_range_text(least, most, values[at])} at {at}"


def refused(name: str, values: Array, wrong: Array, wanted: str) -> Iterator[Problem]:
    """A problem if some values are marked as wrong."""
    for at in np.flatnonzero(wrong)[:1]:
        yield name, f"should have {wanted}, has {values[at]} at {at}"


def equal(name: str, values: Array, wanted: Array) -> Iterator[Problem]:
    """A problem if the values, as many as wanted, are not those."""
    wrong = np.flatnonzero(values != wanted)
    if len(wrong):
        yield name, f"should have {wanted[wrong[0]]}, has {values[wrong[0]]} at {wrong[0]}"


def sized(name: str, array: Array, wanted: int) -> Iterator[Problem]:
    """A problem if the array has another length."""
    if len(array) != wanted:
        yield name, f"should have {wanted} numbers, has {len(array)}"


def whole(name: str, number: object, low: int, high: int) -> Iterator[Problem]:
    """A problem if it is no whole number from ``low`` to ``high``."""
    if type(number) is not int or not low <= number <= high:
        yield name, f"should be a whole number from {low} to {high}, is {number!r}"


def _range_text(low: object, high: object, found: object) -> str:
    return f"should have numbers from {low} to {high}, has {found}"
