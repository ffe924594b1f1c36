"""From an event to the shards that may match it: what a shard plan needs without the subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, pointers
from gpumatch.codes.book import Codebook
from gpumatch.codes.encode import EventEncoder
from gpumatch.events.batch import EventBatch
from gpumatch.results import Matches
from gpumatch.routing.sieve.interest import Lookup
from gpumatch.subscriptions.block import Attributes

_AT_ONCE = 8192  # events whose bits are kept at a time


@dataclass(frozen=True)
class ColumnFilter:
    """The shards that want events with each code of one column, and those that want events without it."""

    column: int
    lookup: Lookup
    missing: Array  # uint8 (bytes,)

    def passing(self, events: Coded) -> Array:
        """The bits of each event."""
        bits = np.tile(self.missing, (len(events), 1))
        own = np.flatnonzero(events.column == self.column)
        bits[events.event[own]] = self.lookup.at(events.code[own])
        return bits


@dataclass(frozen=True)
class Routes:
    """Where an event goes: the value stage must want one of its values, and it must pass all columns."""

    always: Array  # uint8 (bytes,): shards with subscriptions that are placed by no attribute
    values: Lookup
    columns: tuple[ColumnFilter, ...]
    shards: int

    def passing(self, events: Coded) -> Array:
        """The bits of each event."""
        bits = self.wanted(events)
        for one in self.columns:
            bits &= one.passing(events)
        return bits

    def wanted(self, events: Coded) -> Array:
        """The bits of the value stage."""
        bits = np.tile(self.always, (len(events), 1))
        found = self.values.at(events.positions)
        some = np.flatnonzero(np.diff(events.ptr))
        if len(some):
            bits[some] |= np.bitwise_or.reduceat(found, events.ptr[some], axis=0)
        return bits

    def unpacked(self, bits: Array) -> Array:
        """Bits as booleans (events, shards)."""
        return np.unpackbits(bits, axis=1, count=self.shards).view(np.bool_)


@dataclass(frozen=True)
class Coded:
    """Events in codes, and the positions of these."""

    ptr: Array
    column: Array
    code: Array
    positions: Array

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def event(self) -> Array:
        """The event of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.ptr))


@dataclass(frozen=True)
class Coder:
    """Encodes events in the codes of the subscriptions."""

    attributes: Attributes
    book: Codebook

    @cached_property
    def base(self) -> Array:
        """The position of each column's first code; one is left free between columns, so that no range spans two."""
        return pointers(self.book.counts() + 1)

    @cached_property
    def names(self) -> list[str]:
        """Names of all columns; after the attributes come those that say whether a list is present."""
        schema = self.attributes.schema
        lists = [name for name, type in zip(schema.names, schema.types, strict=True) if type.multi]
        return [*schema.names, *lists]

    def encode(self, batch: EventBatch) -> Coded:
        everything = np.ones(len(self.attributes), np.bool_)
        ptr, column, code = EventEncoder(self.book, self.attributes, everything, batch).encode(0, len(batch)).arrays()
        return Coded(ptr, column, code, self.base[column] + code)

    def slices(self, events: Any) -> Iterator[Coded]:
        """Events in any form, some at a time."""
        batch = EventBatch.of(events, self.attributes.schema).to_host()
        for start in range(0, len(batch), _AT_ONCE):
            yield self.encode(batch.slice(start, min(start + _AT_ONCE, len(batch))))


@dataclass(frozen=True, eq=False)
class ShardRouter:
    """Decides where events go. It is small, has no subscriptions, and can be pickled, for those who send events."""

    coder: Coder
    routes: Routes

    def __repr__(self) -> str:
        return f"ShardRouter({self.shards} shards)"

    @property
    def shards(self) -> int:
        return self.routes.shards

    def route(self, events: Any) -> Matches:
        """The shards that each event must be matched in; ids are the shards' numbers.

        No match is ever lost: a shard left out has no subscription that the event satisfies.
        """
        found = [self.routes.unpacked(self.routes.passing(some)) for some in self.coder.slices(events)]
        counts = [bits.sum(axis=1, dtype=np.int64) for bits in found]
        rows = [np.nonzero(bits)[1].astype(np.int32) for bits in found]
        none: list[Array] = [np.zeros(0, np.int32)]
        names = pa.array(np.arange(self.shards))
        return Matches(pointers(np.concatenate([*none, *counts])), np.concatenate([*none, *rows]), names, "shard")
