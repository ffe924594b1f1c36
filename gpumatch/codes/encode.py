"""Encodes events, and estimates how likely predicates are to hold for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array, bytes_of, pointers, read_only, spans
from gpumatch.codes.book import Codebook
from gpumatch.codes.table import CodedEvents, FrozenEvents, Table
from gpumatch.device_memory import to_host
from gpumatch.events.batch import EventBatch
from gpumatch.events.columns import Column, Strings
from gpumatch.events.csr import Sparse
from gpumatch.events.shapes import Packed
from gpumatch.events.single import Single
from gpumatch.kernels import encode as kernels
from gpumatch.kernels import order
from gpumatch.opcodes import WIDTH
from gpumatch.parallel import threads
from gpumatch.subscriptions.block import Attributes

_UNUSED = 2  # if fewer than one in so many attributes are tested, entries of the others are left out first


class EventEncoder:
    """Encodes chunks of one batch with one codebook. Strings are looked up once for the whole batch.

    A CSR batch has its entries in ``sparse`` and the keys of its strings in ``keys``; any other batch has the columns
    that predicates test in ``columns``: attribute, values, and the codes of a dictionary's strings. ``found`` has, by
    attribute, the patterns that its strings satisfy.
    """

    def __init__(self, book: Codebook, attributes: Attributes, used: Array, batch: EventBatch) -> None:
        """``used`` marks the attributes that predicates test; others are left out."""
        self._book, self._attributes = book, attributes
        self.sparse = batch.sparse(attributes.schema)
        self.keys: Array | None = None
        self.columns: list[tuple[int, Column, Array | None]] = []
        self.found: dict[int, Found] = {}
        self._needed: Array | None = None  # attributes of a CSR batch, if many others are in it
        searched = [at for at in attributes.owners if used[attributes.patterns[at]]]
        if self.sparse is not None:
            needed = used | used[attributes.presence]
            needed[searched] = True
            if _UNUSED * np.count_nonzero(needed) < len(needed):
                self._needed = read_only(needed)
            if isinstance(self.sparse.values, Strings):
                self.keys = self._string_keys(self.sparse.values)
                for at in searched:
                    self._search(at, self.sparse.values[np.flatnonzero(self.sparse.attribute == at)])
            return
        for at, column in sorted(batch.columns(attributes.schema).items()):
            if used[at] or used[attributes.presence[at]] or at in searched:
                table = self._string_codes(at, column.values) if isinstance(column.values, Strings) else None
                self.columns.append((at, column, table))
                if at in searched and isinstance(column.values, Strings):
                    self._search(at, column.values)

    def _search(self, at: int, strings: Strings) -> None:
        """Search those of the dictionary's strings that occur for the attribute's patterns."""
        indices = to_host(strings.indices)
        occurs = np.zeros(len(strings.dictionary) + 1, np.bool_)
        occurs[indices] = True
        occurs[-1] = False  # marked by index -1
        column = int(self._attributes.patterns[at])
        texts = strings.dictionary.filter(pa.array(occurs[:-1])).to_pylist()
        ptr, codes = self._book.patterns(column).search(texts)
        counts = np.zeros(len(occurs), np.int64)
        counts[occurs] = np.diff(ptr)
        self.found[at] = Found(column, pointers(counts), codes)

    def encode(self, start: int, stop: int) -> CodedEvents:
        """Encode the events ``start:stop``."""
        if self.sparse is not None:
            return self._encode_sparse(self.sparse, start, stop)
        return self._encode_columns(start, stop)

    def _string_keys(self, strings: Strings) -> Array:
        """Keys of a dictionary's strings in the codebook's pool."""
        dictionary = strings.dictionary.cast(pa.large_string())
        keys = np.empty(len(dictionary), np.int64)
        book = self._book
        kernels.search_strings(*bytes_of(dictionary), book.pool_data, book.pool_offsets, keys)
        return keys

    def _string_codes(self, at: int, strings: Strings) -> Array:
        """Codes by dictionary index; the last entry is for index -1, a missing value."""
        keys = self._string_keys(strings)
        codes = np.full(len(keys) + 1, kernels.MISSING, np.int32)
        kernels.encode_keys(
            read_only(np.full(len(keys), at, np.int32)), keys, 0, len(keys), *self._book.search(), codes
        )
        return codes

    def _encode_column(self, at: int, values: Array | Strings, table: Array | None) -> Array:
        if isinstance(values, Strings):
            assert table is not None
            return table[values.indices]
        if self._attributes.single[at]:
            values = _to_single(values)
        codes = np.empty(len(values), np.int32)
        kernels.encode_column(read_only(values), at, *self._book.search(), codes)
        return codes

    def _encode_columns(self, start: int, stop: int) -> CodedEvents:
        rows = _RowMaker(stop - start)
        presences: list[tuple[int, Array]] = []
        for at, whole, table in self.columns:
            column = whole.slice(start, stop)
            codes = self._encode_column(at, column.values, table)
            if column.offsets is not None:
                present = np.zeros(stop - start, np.int32)
                if column.valid is not None:
                    present[~column.valid] = kernels.MISSING
                presences.append((int(self._attributes.presence[at]), present))
            elif column.valid is not None:
                codes[~column.valid] = kernels.MISSING
            rows.add(at, codes, column.offsets)
        for at, present in presences:  # numbered after all attributes, so entries stay in order
            rows.add(at, present, None)
        for at, whole, _ in self.columns:
            if at in self.found:  # patterns come last
                rows.add(self.found[at].column, *self.found[at].lists(whole.slice(start, stop)))
        return rows.finish()

    def _encode_sparse(self, events: Sparse, start: int, stop: int) -> CodedEvents:
        first, last = int(events.offsets[start]), int(events.offsets[stop])
        ptr = events.offsets[start : stop + 1] - first
        attribute, values = read_only(events.attribute[first:last]), events.values[first:last]
        if self._needed is not None:
            chosen, ptr = _selected(attribute, ptr, self._needed)
            attribute, values = read_only(attribute[chosen]), values[chosen]
        code = np.empty(len(attribute), np.int32)
        if isinstance(values, Strings):
            assert self.keys is not None
            keys = self.keys[values.indices]
            kernels.encode_keys(attribute, keys, 0, len(code), *self._book.search(), code)
        else:
            kernels.encode_numbers(attribute, read_only(values), *self._book.search(), code)
            single = np.flatnonzero(self._attributes.single[attribute])
            if len(single):
                part, rounded = np.empty(len(single), np.int32), _to_single(values[single])
                kernels.encode_numbers(read_only(attribute[single]), read_only(rounded), *self._book.search(), part)
                code[single] = part
        coded = CodedEvents(ptr, attribute, code)
        if self._attributes.multi.any():
            coded = _with_presence(ptr, attribute, code, self._attributes)
        for at, found in self.found.items():
            mine = np.flatnonzero(attribute == at)
            assert isinstance(values, Strings)
            column = Column(values[mine], offsets=np.searchsorted(mine, ptr))
            coded = _with_lists(coded, found.column, *found.lists(column))
        return coded


def _selected(attribute: Array, ptr: Array, needed: Array) -> tuple[Array, Array]:
    """Positions of the entries of needed attributes, and where those of each event start."""
    out_ptr, out = np.empty(len(ptr), np.int64), np.empty(len(attribute), np.int64)
    return out[: kernels.select(attribute, ptr, needed, out_ptr, out)], out_ptr


class Found(NamedTuple):
    """The patterns that the strings of a dictionary satisfy; the last entry is for index -1, a missing value."""

    column: int  # of the patterns
    ptr: Array  # int64
    codes: Array  # int32

    def lists(self, column: Column) -> tuple[Array, Array]:
        """The codes of the patterns that a column's strings satisfy, and where those of each event begin."""
        assert isinstance(column.values, Strings)
        indices = to_host(column.values.indices)
        counts = np.diff(self.ptr)[indices]
        offsets, valid = to_host(column.offsets), to_host(column.valid)
        if offsets is None and valid is not None:
            counts[~valid] = 0
        ends = pointers(counts)
        return self.codes[spans(self.ptr[:-1][indices], counts)], ends if offsets is None else ends[offsets]


def _with_lists(events: CodedEvents, column: int, codes: Array, offsets: Array) -> CodedEvents:
    """The events with one more column of lists at the end."""
    ptr = events.ptr + offsets
    old = np.ones(int(ptr[-1]), np.bool_)
    old[spans(ptr[1:] - np.diff(offsets), np.diff(offsets))] = False
    attribute, code = np.full(len(old), column, np.int32), np.empty(len(old), np.int32)
    attribute[old], code[old] = events.attribute, events.code
    code[~old] = codes
    return CodedEvents(ptr, attribute, code)


def encode_packed(event: Packed, book: Codebook) -> CodedEvents | None:
    """Encode one event in the buffers of its shape; None if a value is NaN. For codebooks without patterns."""
    if kernels.encode_packed(event.attribute, event.kind, event.number, event.text, book.frame.numbers, event.code):
        return FrozenEvents(event.ptr, event.attribute, event.given)
    return None


def encode_single(event: Single, book: Codebook, attributes: Attributes) -> CodedEvents:
    """Encode one event, in as few calls as possible."""
    keys, where = event.key, event.attribute
    listed = _search_single(event, book, attributes) if attributes.owners else []
    texts = [at for at, key in enumerate(keys) if type(key) is bytes]
    if texts:
        strings: list[bytes] = [keys[at] for at in texts]  # type: ignore[misc]
        found = np.empty(len(texts), np.int64)
        ends = np.array([0, *accumulate(map(len, strings))], np.int64)
        data = np.frombuffer(b"".join(strings), np.uint8)
        kernels.search_strings(data, ends, book.pool_data, book.pool_offsets, found)
        keys = keys.copy()
        for at, key in zip(texts, found.tolist(), strict=True):
            keys[at] = key
    if event.lists:
        where = where + attributes.presence[event.lists].tolist()
    attribute = np.array([*where, *(column for column, _ in listed)] if listed else where, np.int32)
    code = np.zeros(len(attribute), np.int32)  # presence has code 0
    kernels.encode_keys(read_only(attribute), np.array(keys, np.int64), 0, len(keys), *book.search(), code)
    if listed:
        code[-len(listed) :] = [code for _, code in listed]
    return CodedEvents(np.array([0, len(code)]), attribute, code)


def _search_single(event: Single, book: Codebook, attributes: Attributes) -> list[tuple[int, int]]:
    """The columns and codes of the patterns that an event's strings satisfy, ascending by column."""
    found: list[tuple[int, int]] = []
    for at, key in zip(event.attribute, event.key, strict=True):
        if at in attributes.owners:
            assert isinstance(key, bytes)
            column = int(attributes.patterns[at])
            found += [(column, code) for code in book.patterns(column).search_one(key.decode())]
    return found


def _to_single(values: Array) -> Array:
    """Values rounded to float32, as their attribute requires, and widened again."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


class _RowMaker:
    """Collects columns of codes and turns them into rows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._attribute: list[int] = []
        self._codes: list[Array] = []
        self._list_ptrs: list[Array] = [np.zeros(0, np.int64)]
        self._list_base: list[int] = []

    def add(self, attribute: int, codes: Array, offsets: Array | None) -> None:
        """A column of one code per event, or of lists that the offsets delimit."""
        self._attribute.append(attribute)
        self._codes.append(codes)
        self._list_base.append(-1 if offsets is None else sum(len(ptr) for ptr in self._list_ptrs))
        if offsets is not None:
            self._list_ptrs.append(offsets)

    def finish(self) -> CodedEvents:
        base = pointers(np.array([len(codes) for codes in self._codes], np.int64))
        flat = np.concatenate([*self._codes, np.zeros(0, np.int32)])
        ptr = np.empty(self._count + 1, np.int64)
        attribute, code = np.empty(len(flat), np.int32), np.empty(len(flat), np.int32)
        entries = kernels.columns_to_rows(
            np.array(self._attribute, np.int32),
            flat,
            base,
            np.concatenate(self._list_ptrs),
            np.array(self._list_base, np.int64),
            ptr,
            attribute,
            code,
        )
        return CodedEvents(ptr, attribute[:entries], code[:entries])


def _with_presence(ptr: Array, attribute: Array, code: Array, attributes: Attributes) -> CodedEvents:
    """CSR rows with an entry at the end of each event for every list with a value."""
    out_ptr = np.empty(len(ptr), np.int64)
    out_attribute, out_code = np.empty(2 * len(code), np.int32), np.empty(2 * len(code), np.int32)
    entries = kernels.add_presence(
        ptr, attribute, code, attributes.multi, attributes.presence, out_ptr, out_attribute, out_code
    )
    return CodedEvents(out_ptr, out_attribute[:entries], out_code[:entries])


def likelihoods(attributes: Attributes, book: Codebook, table: Table, sample: Sequence[EventBatch]) -> Array:
    """How likely each predicate is to hold: from a sample of events, and the share of codes that it covers."""
    counts, events = book.counts(), sum(map(len, sample))
    seen, ptr = _seen(attributes, book, sample) if events else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    likelihood = np.empty(len(table.predicate) // WIDTH)
    given = (table.predicates(), counts, seen, ptr, events, likelihood)
    threads.run(lambda share: order.likelihoods(*share, *given), threads.shares(len(likelihood)))
    return likelihood


def _seen(attributes: Attributes, book: Codebook, sample: Sequence[EventBatch]) -> tuple[Array, Array]:
    """How many values of each attribute have codes below 0, 1, 2 …, and where these counts start."""
    counts = book.counts()
    ptr = pointers(counts + 1)
    below = np.zeros(int(ptr[-1]), np.int64)
    everything = np.ones(len(attributes), np.bool_)
    for batch in sample:
        events = EventEncoder(book, attributes, everything, batch).encode(0, len(batch))
        below += np.bincount(ptr[events.attribute] + events.code + 1, minlength=len(below))
    seen = np.cumsum(below)
    seen -= np.repeat(seen[ptr[:-1]], counts + 1)
    return seen, ptr
