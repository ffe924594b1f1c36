"""What an index is built from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumatch.coded import Table
from gpumatch.codes import Codebook
from gpumatch.events import EventBatch
from gpumatch.predicates import Attributes


class Input(NamedTuple):
    """Clauses ``first:last`` of a table, in their final order."""

    attributes: Attributes
    book: Codebook
    table: Table
    first: int
    last: int
    sample: Sequence[EventBatch] = ()  # observed events
