"""Operands of predicates: constants, and slots for constants in templates."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: nanoseconds since 1970, in UTC if ``zoned``, else on an unnamed wall clock."""

    nanos: int
    zoned: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for the ``index``-th constant of a text in the template that all texts of one shape share."""

    index: int
    kind: Literal["literal", "date", "timestamp", "like", "pattern", "escape"] = "literal"


Constant: TypeAlias = "bool | int | float | Decimal | str | dt.date | Timestamp"
