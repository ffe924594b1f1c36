"""Input of the index builders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumatch.codes.book import Codebook
from gpumatch.codes.table import Table
from gpumatch.events.batch import EventBatch
from gpumatch.subscriptions.block import Attributes


class Input(NamedTuple):
    """Clauses ``first:last`` of a table, in their final order."""

    attributes: Attributes
    book: Codebook
    table: Table
    first: int
    last: int
    sample: Sequence[EventBatch] = ()  # observed events
