"""What of a segment lies on a device: codebook, table and indexes, in arrays that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpumatch.coded import Table
from gpumatch.codes import Codebook
from gpumatch.device.card import Card
from gpumatch.index import FlatIndex
from gpumatch.predicates import Array, Attributes


class HeldIndex(NamedTuple):
    """An index, and its arrays on the device."""

    flat: FlatIndex
    arrays: dict[str, Any]


class Resident:
    """A segment on a device. Rows of clauses are not part of it: they change when subscriptions are removed."""

    def __init__(
        self,
        card: Card,
        attributes: Attributes,
        used: Array,
        book: Codebook,
        table: Table,
        indexes: Sequence[FlatIndex],
    ) -> None:
        self.card, self.attributes, self.book, self.used = card, attributes, book, used
        self.width = len(attributes)
        self.multi, self.presence, self.single = map(
            card.hold, (attributes.multi, attributes.presence, attributes.single)
        )
        self.search = tuple(map(card.hold, book.search()))
        self.clause_ptr, self.clause_program = card.hold(table.clause_ptr), card.hold(table.clause_program)
        self.predicates = tuple(map(card.hold, table.predicates()))
        program_ptr, program_item, self.depth = table.programs
        self.programs = (card.hold(program_ptr), card.hold(program_item))
        self.has_programs = len(program_ptr) > 1
        self.indexes = [
            HeldIndex(flat, {name: card.hold(array) for name, array in flat.arrays.items()}) for flat in indexes
        ]

    @property
    def nbytes(self) -> int:
        """On the device."""
        held = [self.multi, self.presence, self.single, *self.search, self.clause_ptr, self.clause_program]
        held += [*self.predicates, *self.programs]
        for index in self.indexes:
            held += index.arrays.values()
        return sum(int(np.prod(array.shape)) * array.dtype.itemsize for array in held)
