"""Immutable segments: some subscriptions with their codebook, table and index, and how they are merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpumatch import index as indexes
from gpumatch import threads
from gpumatch.blocks import decode_table, join_blocks
from gpumatch.coded import TABLE_TYPES, EventEncoder, Table, arrange, encode_block
from gpumatch.codes import BOOK_TYPES, Codebook, bytes_of, freeze
from gpumatch.errors import StorageError
from gpumatch.events import EventBatch
from gpumatch.index import FlatIndex, IndexParams
from gpumatch.predicates import Array, Attributes, Block

_MIN_CHUNK, _MAX_CHUNK = 64, 4096  # events that one thread takes at a time


@dataclass(frozen=True)
class Source:
    """Subscriptions that are not indexed yet: ids and texts as Arrow arrays (a null text: known by predicates only)."""

    ids: Any
    texts: Any
    block: Block

    def __len__(self) -> int:
        return self.block.length


@dataclass(frozen=True)
class Segment:
    """Indexed subscriptions. Nothing in here ever changes."""

    ids: Any
    texts: Any
    attributes: Attributes
    book: Codebook
    table: Table
    index: FlatIndex
    reason: str = field(default="")

    @classmethod
    def build(
        cls, source: Source, attributes: Attributes, params: IndexParams, reason: str, sample: Sequence[EventBatch]
    ) -> Segment:
        """``sample``: events that tell how often predicates hold; without any, widths do."""
        book, table = encode_block(source.block, attributes)
        table = arrange(attributes, book, table, sample)
        built = indexes.build(params, attributes, book, table)
        segment = cls(source.ids, source.texts, attributes, book, table, built, reason)
        freeze(table)
        for array in built.arrays.values():
            array.flags.writeable = False
        return segment

    def __len__(self) -> int:
        return self.table.length

    @cached_property
    def used(self) -> Array:
        """Which attributes predicates test."""
        used = np.zeros(len(self.attributes), np.bool_)
        used[self.table.columns()[0]] = True
        return used

    @cached_property
    def places(self) -> dict[int | str, int]:
        """The row of each id."""
        return {name: row for row, name in enumerate(self.ids.to_pylist())}

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, for saving and for counting bytes."""
        parts: dict[str, Array] = {}
        for prefix, part in (("book", self.book), ("table", self.table)):
            parts |= {f"{prefix}.{f.name}": getattr(part, f.name) for f in fields(part) if f.name != "length"}
        return parts | {f"index.{name}": array for name, array in self.index.arrays.items()}

    def stats(self) -> dict[str, Any]:
        held = sum(int(part.nbytes) for part in (self.ids, self.texts) if part is not None)
        return {
            "index": self.index.params.kind,
            "clauses": len(self.table.clause_row),
            "predicates": len(self.table.predicate) // 4,
            "programs": len(self.table.program_ptr) - 1,
            "postings": len(self.index.arrays["heads"]),
            "bytes": held + sum(array.nbytes for array in self.arrays().values()),
        }

    def stored(self, dead: Array | None) -> tuple[dict[str, Any], dict[str, Array]]:
        """Facts and arrays for storage; ``segment_from`` reads them back."""
        facts = {"length": len(self), "ids": str(self.ids.type), "index": self.index.params.to_dict()}
        arrays = self.arrays()
        if self.ids.type == pa.int64():
            arrays["ids"] = self.ids.to_numpy()
        else:
            arrays["ids.data"], arrays["ids.offsets"] = bytes_of(self.ids)
        if self.texts is not None:
            arrays["texts.data"], arrays["texts.offsets"] = bytes_of(self.texts)
            arrays["texts.valid"] = self.texts.is_valid().to_numpy(zero_copy_only=False)
        if dead is not None:
            arrays["dead"] = dead
        return {**facts, "reason": self.reason}, arrays

    def source(self, keep: Array | None = None) -> Source:
        """What the segment was built from, less the rows that are not to be kept."""
        block = decode_table(self.attributes, self.book, self.table)
        return join_sources(self.attributes, [Source(self.ids, self.texts, block)], [keep])

    def match(self, batch: EventBatch) -> list[tuple[Array, Array]]:
        """Offsets and rows of consecutive chunks of the batch."""
        encoder = EventEncoder(self.book, self.attributes, self.used, batch)

        def work(chunk: tuple[int, int]) -> tuple[Array, Array]:
            events = encoder.encode(*chunk)
            return indexes.match(self.index, self.attributes, self.table, events, 0, chunk[1] - chunk[0])

        return threads.run(work, chunks(len(batch)))


def segment_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Array], attributes: Attributes
) -> tuple[Segment, Array | None]:
    """The segment that ``Segment.stored`` wrote, and its dead rows."""
    length = int(facts["length"])
    names = {"book": [f.name for f in fields(Codebook)], "table": [f.name for f in fields(Table) if f.name != "length"]}
    names["index"] = list(indexes.ARRAYS)
    lacking = [f"{part}.{name}" for part, held in names.items() for name in held if f"{part}.{name}" not in arrays]
    if lacking:
        raise StorageError(f"the saved index lacks the array {lacking[0]!r}; save it again")
    parts = {part: {name: arrays[f"{part}.{name}"] for name in held} for part, held in names.items()}
    expected = {**BOOK_TYPES, **TABLE_TYPES, **{name: spec.dtype for name, spec in indexes.ARRAYS.items()}}
    for name, found in (pair for part in parts.values() for pair in part.items()):
        if found.dtype != expected[name] or found.ndim != 1:
            raise StorageError(f"the array {name!r} of a saved index should be {expected[name]}, found {found.dtype}")
    ids = pa.array(arrays["ids"]) if "ids" in arrays else _strings(arrays, "ids")
    texts = None
    if "texts.data" in arrays:
        texts = _strings(arrays, "texts", pa.array(arrays["texts.valid"]))
    built = FlatIndex(indexes.params_from(facts["index"]), parts["index"])
    book, table = Codebook(**parts["book"]), Table(length, **parts["table"])
    return Segment(ids, texts, attributes, book, table, built, str(facts["reason"])), arrays.get("dead")


def _strings(arrays: Mapping[str, Array], name: str, valid: Any = None) -> Any:
    data, offsets = arrays[f"{name}.data"], arrays[f"{name}.offsets"]
    found = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return found if valid is None else pc.if_else(valid, found, None)


def chunks(count: int) -> list[tuple[int, int]]:
    """Cuts of a batch: a few for each thread, so that none waits long for another."""
    size = min(max(-(-count // (4 * threads.get_num_threads())), _MIN_CHUNK), _MAX_CHUNK)
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def join_sources(attributes: Attributes, sources: Sequence[Source], keeps: Sequence[Array | None]) -> Source:
    """One source of all rows that are to be kept, in order."""
    if len(sources) == 1 and keeps[0] is None:
        return sources[0]
    ids, texts = [], []
    for source, keep in zip(sources, keeps, strict=True):
        mask = None if keep is None else pa.array(keep)
        ids.append(source.ids if mask is None else source.ids.filter(mask))
        held = pa.nulls(len(source), pa.large_string()) if source.texts is None else source.texts
        texts.append(held if mask is None else held.filter(mask))
    text = pa.concat_arrays(texts)
    block = join_blocks(attributes, [source.block for source in sources], keeps)
    return Source(pa.concat_arrays(ids), None if text.null_count == len(text) else text, block)
