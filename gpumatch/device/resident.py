"""Segments on a device: codebook, table and indexes, in arrays that kernels accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumatch.arrays import Array
from gpumatch.codes.book import Codebook
from gpumatch.codes.table import Table
from gpumatch.device.card import Card
from gpumatch.index import FlatIndex, Workspace, kind_of
from gpumatch.kernels.postings import LINE
from gpumatch.subscriptions.block import Attributes


class DeviceIndex(NamedTuple):
    """An index, its workspace, its arrays on the device, and how to match them there."""

    flat: FlatIndex
    work: Workspace
    arrays: dict[str, Any]
    kind: Any  # candidates.OnDevice


def _on_device(index: FlatIndex) -> Any:
    kind = kind_of(index.params)
    kind.check_device()
    return kind.beside("device").ON_DEVICE


class HostArrays(NamedTuple):
    """The host's arrays of a segment that go to a device, and stay there while subscriptions are removed."""

    attributes: Attributes
    used: Array  # bool per attribute: do predicates test it?
    book: Codebook
    table: Table
    indexes: Sequence[tuple[FlatIndex, Workspace]]

    def of_index(self, flat: FlatIndex) -> dict[str, Array]:
        specs = kind_of(flat.params).arrays
        return {name: array for name, array in flat.arrays.items() if specs[name].on_device}

    def of_table(self) -> list[Array]:
        """Arrays for testing candidates: clauses, predicates and programs; empty if all candidates are decided."""
        table = self.table
        arrays = [table.clause_ptr, table.clause_program, *table.predicates(), *table.programs[:2]]
        if all(_on_device(flat).decides for flat, _ in self.indexes):
            return [array[:0] for array in arrays]
        return arrays

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        attributes = self.attributes
        arrays = [attributes.multi, attributes.presence, attributes.single, *self.book.search()]
        arrays += [self.table.clause_row, *self.of_table()]
        for flat, _ in self.indexes:
            arrays += self.of_index(flat).values()
        return sum(array.nbytes for array in arrays)


class Resident:
    """A segment on a device."""

    def __init__(self, card: Card, host: HostArrays) -> None:
        attributes = host.attributes
        self.card, self.attributes, self.book, self.used = card, attributes, host.book, host.used
        self.nbytes, self.width = host.nbytes, len(attributes)
        self.multi, self.presence, self.single = map(
            card.hold, (attributes.multi, attributes.presence, attributes.single)
        )
        self.search = tuple(map(card.hold, host.book.search()))
        self.rows = card.hold(host.table.clause_row)
        self.clause_ptr, self.clause_program, *rest = map(card.hold, host.of_table())
        self.predicates, self.programs = tuple(rest[:3]), tuple(rest[3:])
        self.depth = host.table.programs[2]
        self.has_programs = len(host.table.programs[0]) > 1
        self.lines = max((len(flat.arrays.get("lines", ())) // LINE for flat, _ in host.indexes), default=0)
        self.indexes = [
            DeviceIndex(
                flat, work, {name: card.hold(array) for name, array in host.of_index(flat).items()}, _on_device(flat)
            )
            for flat, work in host.indexes
        ]
