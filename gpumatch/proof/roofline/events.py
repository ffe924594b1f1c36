"""Cost of turning events into codes on the device."""

from __future__ import annotations

import math

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.book import Codebook
from gpumatch.codes.encode import EventEncoder
from gpumatch.events.columns import Strings
from gpumatch.kernels import count
from gpumatch.proof.roofline.cost import SECTOR, Cost
from gpumatch.proof.roofline.sample import ELEMENT, Sample, marks_of, warp_steps

_VALUE, _MIXED, _STEP = 123, 151, 21  # instructions of a value, of one with its attribute, of a step of the search
_COUNT, _FILL, _SPREAD = 45, 75, 100


def coding(sample: Sample, encoder: EventEncoder, book: Codebook) -> list[Cost]:
    """All kernels from values to rows of codes."""
    if encoder.sparse is not None:
        pair = (encoder.sparse.attribute, encoder.sparse.values)
        return [_search(sample, book, [pair], mixed=True), _numbering(sample), *_spreading(sample)]
    pairs = [(np.full(len(column.values), at, np.int32), column.values) for at, column, _ in encoder.columns]
    return [_search(sample, book, pairs, mixed=False), *_entries(sample, len(pairs)), *_spreading(sample)]


def bytes_to_device(sample: Sample, encoder: EventEncoder) -> float:
    """Bytes per event that come from the host."""
    if encoder.sparse is not None:
        return 8 + _size(encoder.sparse.values, encoder.sparse.attribute) / sample.events
    return sum(_size(column.values, column.valid, column.offsets) for _, column, _ in encoder.columns) / sample.events


def _size(*arrays: Array | Strings | None) -> int:
    given = [array.indices if isinstance(array, Strings) else array for array in arrays if array is not None]
    return sum(array.nbytes for array in given)


def _search(sample: Sample, book: Codebook, pairs: list[tuple[Array, Array | Strings]], mixed: bool) -> Cost:
    """The search for codes of attributes' values, column by column, or ``mixed``."""
    per = 1 / sample.events
    marks, sectors = tuple(map(marks_of, book.search())), np.zeros(3, np.int64)
    read = written = instructions = 0.0
    for attribute, values in pairs:
        n = len(attribute)
        read += _size(values) + (attribute.nbytes if mixed else 0)
        written += 4 * n
        if isinstance(values, Strings):  # a table of the dictionary's codes
            instructions += ELEMENT * n
            continue
        steps = np.zeros(n, np.int32)
        sectors += count.encode(attribute, values, sample.attributes.single, *book.search(), marks, steps)
        instructions += n * (_MIXED if mixed else _VALUE) + _STEP * warp_steps(steps)
    touched = [sample.touched(*it) for it in zip(("guide", "cuts", "buckets"), sectors.tolist(), marks, strict=True)]
    return Cost(
        "events.encode_mixed" if mixed else "events.encode",
        read=read * per,
        written=written * per,
        touched=tuple(touched if mixed else touched[1:]),  # for one attribute the guide stays in cache
        instructions=instructions * per,
    )


def _entries(sample: Sample, columns: int) -> list[Cost]:
    """Columns of codes, joined and turned into entries: neighbouring threads write far apart."""
    entries = len(sample.coded.code) / sample.events
    return [
        Cost("events.count_entries, sums", 12.0 * columns + 24, 4.0 * columns + 32, instructions=_COUNT * columns),
        Cost(
            "events.fill_entries",
            read=4.0 * columns + 8,
            written=12 * entries,
            pieces=3 * entries * max(min(4 * entries, SECTOR) - 4, 0),
            instructions=_FILL * columns,
        ),
    ]


def _numbering(sample: Sample) -> Cost:
    """The event of each entry, by a search of the offsets."""
    entries = len(sample.coded.code) / sample.events
    steps = math.log2(sample.batch + 1)
    return Cost("numbering of entries", 20 * entries, 24 * entries, instructions=ELEMENT * (4 + steps) * entries)


def _spreading(sample: Sample) -> list[Cost]:
    """Rows of all attributes, most of them missing, and the codes that are present."""
    entries = len(sample.coded.code) / sample.events
    row = 4.0 * sample.width
    sectors = np.unique(np.flatnonzero(sample.rows >= 0) // (SECTOR // 4)).size / sample.events
    return [
        Cost("filling of rows", written=row, instructions=ELEMENT * sample.width / 4),
        Cost(
            "events.spread",
            read=12 * entries,
            written=SECTOR * sectors,
            pieces=max(SECTOR * (entries - sectors), 0),
            instructions=_SPREAD * entries,
        ),
    ]
