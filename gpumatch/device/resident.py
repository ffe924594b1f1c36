"""What of a segment lies on a device: codebook, table and indexes, in arrays that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumatch.coded import Table
from gpumatch.codes import Codebook
from gpumatch.device.card import Card
from gpumatch.index import FlatIndex
from gpumatch.predicates import Array, Attributes

# Arrays of indexes that only the CPU's kernels read.
_STAY = {"summary", "expected", "observed", "cache_nearest", "cache_cell", "cache_bits", "cache_added"}


class HeldIndex(NamedTuple):
    """An index, and its arrays on the device."""

    flat: FlatIndex
    arrays: dict[str, Any]


class Parts(NamedTuple):
    """The host's arrays of a segment that go to a device. Rows of clauses do not: they change with removals."""

    attributes: Attributes
    used: Array  # bool per attribute: predicates test it
    book: Codebook
    table: Table
    indexes: Sequence[FlatIndex]

    def of_index(self, flat: FlatIndex) -> dict[str, Array]:
        return {name: array for name, array in flat.arrays.items() if name not in _STAY}

    @property
    def nbytes(self) -> int:
        """On the device, with a row for each clause."""
        table, attributes = self.table, self.attributes
        held = [attributes.multi, attributes.presence, attributes.single, *self.book.search()]
        held += [table.clause_row, table.clause_ptr, table.clause_program, *table.predicates(), *table.programs[:2]]
        for flat in self.indexes:
            held += self.of_index(flat).values()
        return sum(array.nbytes for array in held)


class Resident:
    """A segment on a device."""

    def __init__(self, card: Card, parts: Parts) -> None:
        attributes, table = parts.attributes, parts.table
        self.card, self.attributes, self.book, self.used = card, attributes, parts.book, parts.used
        self.nbytes, self.width = parts.nbytes, len(attributes)
        self.multi, self.presence, self.single = map(
            card.hold, (attributes.multi, attributes.presence, attributes.single)
        )
        self.search = tuple(map(card.hold, parts.book.search()))
        self.clause_ptr, self.clause_program = card.hold(table.clause_ptr), card.hold(table.clause_program)
        self.predicates = tuple(map(card.hold, table.predicates()))
        program_ptr, program_item, self.depth = table.programs
        self.programs = (card.hold(program_ptr), card.hold(program_item))
        self.has_programs = len(program_ptr) > 1
        self.indexes = [
            HeldIndex(flat, {name: card.hold(array) for name, array in parts.of_index(flat).items()})
            for flat in parts.indexes
        ]
