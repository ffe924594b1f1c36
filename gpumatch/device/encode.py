"""Encoding events of a batch on the device: columns or CSR entries in, rows of entries out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpumatch.codes.encode import EventEncoder
from gpumatch.device.card import Card, Job
from gpumatch.device.resident import Resident
from gpumatch.device_memory import is_device_array
from gpumatch.events.batch import EventBatch
from gpumatch.events.columns import Column, Strings
from gpumatch.events.csr import Sparse
from gpumatch.kernels.cuda import events as kernels


class Coded(NamedTuple):
    """Events on the device, as ``CodedEvents``; also the event of each entry, and all codes spread over attributes."""

    length: int
    ptr: Any
    event: Any
    attribute: Any
    code: Any
    rows: Any  # int32, ``width`` for each event
    width: int

    def entries(self) -> tuple[Any, Any, Any]:
        return self.ptr, self.attribute, self.code


class Encoder:
    """Encodes ranges of one batch for one segment. Strings are looked up on the host, once for the whole batch."""

    def __init__(self, resident: Resident, batch: EventBatch) -> None:
        self._resident, self._card, self._xp = resident, resident.card, resident.card.xp
        sparse = batch.sparse(resident.attributes.schema) if resident.attributes.owners else None
        if sparse is not None and isinstance(sparse.values, Strings):
            batch = batch.to_host()  # patterns are found there, and added to an event's entries
        self._host = EventEncoder(resident.book, resident.attributes, resident.used, batch)
        self._tables = {at: self._card.hold(table) for at, _, table in self._host.columns if table is not None}
        self._keys = None if self._host.keys is None else self._card.hold(self._host.keys)

    def encode(self, start: int, stop: int) -> Job[Coded]:
        """The events ``start:stop``."""
        sparse = self._host.sparse
        if sparse is None:
            coded = yield from self._columns(start, stop)
        else:
            coded = yield from self._entries(sparse, start, stop)
        resident = self._resident
        rows = self._xp.full((stop - start) * resident.width, -1, dtype=np.int32)
        ptr, event, attribute, code = coded
        entries = len(code)
        self._card.launch(kernels.spread, entries, ptr, event, attribute, code, resident.multi, resident.width, rows)
        return Coded(stop - start, ptr, event, attribute, code, rows, resident.width)

    def _here(self, array: Any) -> Any:
        """An array on the device, contiguous."""
        return self._card.own(array) if is_device_array(array) else self._card.upload(np.ascontiguousarray(array))

    def _column(self, at: int, column: Column) -> Any:
        """Codes of a column."""
        xp, values, resident = self._xp, column.values, self._resident
        if isinstance(values, Strings):
            codes = xp.asarray(self._tables[at])[self._here(values.indices)]
            if column.offsets is None and column.valid is not None:
                codes[~self._here(column.valid)] = -1
            return codes
        values = self._here(values)
        codes = xp.empty(len(values), dtype=np.int32)
        # for a list, valid says which events have it: its values are all present
        valid = xp.empty(0, dtype=np.bool_)
        if column.valid is not None and column.offsets is None:
            valid = self._here(column.valid)
        if resident.attributes.single[at]:
            values = values.astype(np.float32).astype(np.float64)
        kernel = kernels.encode_floats if values.dtype == np.float64 else kernels.encode_integers
        self._card.launch(kernel, len(values), values, valid, at, *resident.search, codes)
        return codes

    def _columns(self, start: int, stop: int) -> Job[tuple[Any, Any, Any, Any]]:
        xp, count = self._xp, stop - start
        attribute: list[int] = []
        codes: list[Any] = []
        lists: list[Any] = []  # offsets of list columns, None for others
        presences: list[tuple[int, Any]] = []
        for at, whole, _ in self._host.columns:
            column = whole.slice(start, stop)
            attribute.append(at)
            codes.append(self._column(at, column))
            lists.append(None if column.offsets is None else self._here(column.offsets))
            if column.offsets is not None:
                present = xp.zeros(count, dtype=np.int32)
                if column.valid is not None:
                    present[~self._here(column.valid)] = -1
                presences.append((int(self._resident.attributes.presence[at]), present))
        for at, present in presences:  # numbered after all attributes, so entries stay in order
            attribute.append(at)
            codes.append(present)
            lists.append(None)
        for at, found in self._host.found.items():  # and patterns after those
            column = next(whole for number, whole, _ in self._host.columns if number == at)
            listed, offsets = found.lists(column.slice(start, stop))
            attribute.append(found.column)
            codes.append(self._here(listed))
            lists.append(self._here(offsets))
        coded = yield from self._rows(count, attribute, codes, lists)
        return coded

    def _rows(
        self, count: int, attribute: list[int], codes: list[Any], lists: list[Any]
    ) -> Job[tuple[Any, Any, Any, Any]]:
        """Columns of codes to entries."""
        xp, card = self._xp, self._card
        base = np.cumsum([0, *map(len, codes)], dtype=np.int64)[:-1] if codes else np.zeros(0, np.int64)
        starts = np.cumsum([0, *(0 if offsets is None else count + 1 for offsets in lists)], dtype=np.int64)
        list_base = np.array([-1 if o is None else at for o, at in zip(lists, starts[:-1], strict=True)], np.int64)
        given = [offsets for offsets in lists if offsets is not None]
        columns = (
            card.upload(np.array(attribute, np.int32)),
            xp.concatenate(codes) if codes else xp.empty(0, dtype=np.int32),
            card.upload(base),
            xp.concatenate(given) if given else xp.empty(0, dtype=np.int64),
            card.upload(list_base),
        )
        counts = xp.empty(count, dtype=np.int64)
        card.launch(kernels.count_entries, count, *columns, counts)
        ptr = pointers(card, counts)
        entries = yield ptr[-1:]
        made = [xp.empty(entries, dtype=np.int32) for _ in range(3)]
        card.launch(kernels.fill_entries, count, *columns, ptr, *made)
        event, names, code = made
        return ptr, event, names, code

    def _entries(self, sparse: Sparse, start: int, stop: int) -> Job[tuple[Any, Any, Any, Any]]:
        xp, card, resident = self._xp, self._card, self._resident
        if self._host.found:
            ptr, attribute, code = map(self._here, self._host.encode(start, stop).arrays())
            return ptr, self._owner(ptr, code), attribute, code
        piece = sparse.slice(start, stop)
        ptr, attribute = self._here(piece.offsets), self._here(piece.attribute)
        code = xp.empty(len(attribute), dtype=np.int32)
        if isinstance(piece.values, Strings):
            keys = xp.asarray(self._keys)[self._here(piece.values.indices)]
            card.launch(kernels.encode_keys, len(code), attribute, keys, *resident.search, code)
        else:
            values = self._here(piece.values)
            mixed = kernels.encode_mixed_floats if values.dtype == np.float64 else kernels.encode_mixed_integers
            card.launch(mixed, len(code), attribute, values, resident.single, *resident.search, code)
        if not resident.attributes.multi.any():
            return ptr, self._owner(ptr, code), attribute, code
        counts = xp.empty(stop - start, dtype=np.int64)
        card.launch(kernels.count_presence, stop - start, ptr, attribute, resident.multi, counts)
        wide = pointers(card, counts)
        entries = yield wide[-1:]
        made = [xp.empty(entries, dtype=np.int32) for _ in range(3)]
        lists = (resident.multi, resident.presence)
        card.launch(kernels.fill_presence, stop - start, ptr, attribute, code, *lists, wide, *made)
        event, names, codes = made
        return wide, event, names, codes

    def _owner(self, ptr: Any, code: Any) -> Any:
        """The event of each entry."""
        return self._xp.searchsorted(ptr, self._xp.arange(len(code)), side="right").astype(np.int32) - np.int32(1)


def pointers(card: Card, counts: Any) -> Any:
    """Where each of consecutive pieces starts, from their sizes, and where the last one ends."""
    ptr = card.xp.zeros(len(counts) + 1, dtype=np.int64)
    ptr[1:] = card.xp.cumsum(counts)
    return ptr
