"""The cost of matching a workload's events on a device, kernel by kernel, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.encode import EventEncoder
from gpumatch.errors import SchemaError, nearest
from gpumatch.events.batch import EventBatch
from gpumatch.index import KINDS, FlatIndex, IndexParams, kind_of
from gpumatch.index.planner import index_names
from gpumatch.kernels.count import WARP
from gpumatch.kernels.postings import LINE
from gpumatch.matcher import Matcher
from gpumatch.proof.roofline.cost import Bound, Cost, Transfer, bound
from gpumatch.proof.roofline.events import bytes_to_device, coding
from gpumatch.proof.roofline.gpus import Gpu
from gpumatch.proof.roofline.lists import Found, OnRoofline
from gpumatch.proof.roofline.results import named, ordered, verified
from gpumatch.proof.roofline.sample import WORD_EVENTS, Sample, events_at_once
from gpumatch.store.segment import Segment
from gpumatch.workloads import WORKLOADS, DenseEvents, SparseEvents, Workload

_ENOUGH = WARP * WORD_EVENTS  # events that fill a warp if a word has bits of several


@dataclass(frozen=True)
class Counted:
    """The cost of one event of a workload with an index; counted for ``events``, with ``batch`` matched together."""

    workload: str
    subscriptions: int
    index: str
    events: int
    batch: int
    matches: float
    costs: tuple[Cost, ...]
    transfer: Transfer
    rows: tuple[Array, ...]  # of each event that was counted, ascending

    def bounds(self, gpus: Sequence[Gpu]) -> list[Bound]:
        return [bound(self.costs, self.transfer, gpu, self.batch) for gpu in gpus]

    def to_dict(self, gpus: Sequence[Gpu]) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "subscriptions": self.subscriptions,
            "index": self.index,
            "events counted": self.events,
            "events at once": self.batch,
            "matches per event": self.matches,
            "bytes to device": self.transfer.to_device,
            "bytes to host": self.transfer.to_host,
            "kernels, per event": [cost.to_dict() for cost in self.costs],
            "bounds": [it.to_dict() for it in self.bounds(gpus)],
        }


def index_named(name: str) -> str | IndexParams:
    """Argument of ``Matcher(index=…)`` for a name; names of variants are known, too."""
    variants = {variant: params for kind in KINDS.values() for variant, params in kind.variants.items()}
    names = (*index_names(), *variants)
    if name not in names:
        raise SchemaError(f"no index is called {name!r}; there are {', '.join(names)}{nearest(name, names)}")
    return variants.get(name, name)


def pairs_named(workloads: Sequence[str], indexes: Sequence[str]) -> list[tuple[str, str]]:
    """Every workload with every index; an unknown name is an error before anything is built."""
    for name in workloads:
        if name not in WORKLOADS:
            known = ", ".join(WORKLOADS)
            raise SchemaError(f"no workload is called {name!r}; there are {known}{nearest(name, WORKLOADS)}")
    for index in indexes:
        index_named(index)
    return [(name, index) for name in workloads for index in indexes]


def count_workload(name: str, index: str = "auto", subscriptions: int | None = None, events: int = 256) -> Counted:
    """Build a workload's index and count the cost of matching some of its events."""
    pairs_named([name], [index])
    size, generate = WORKLOADS[name]
    return count_given(name, index, generate(size if subscriptions is None else subscriptions), events)


def count_given(name: str, index: str, workload: Workload, events: int = 256) -> Counted:
    """As ``count_workload``, for any workload; graphs of expressions take as many events as fill a warp."""
    matcher = Matcher(workload.schema, index=index_named(index), device="cpu")
    workload.add_to(matcher)
    segment = matcher._seal().segments[0]
    if _nodes(segment):
        events = max(events, min(_at_once(segment), _ENOUGH))
    batch = EventBatch.of(_given(workload.events(events)), matcher.schema)
    return count_segment(name, index, segment, batch)


def _traits(index: FlatIndex) -> OnRoofline:
    found: OnRoofline = kind_of(index.params).beside("roofline").ON_ROOFLINE
    return found


def _nodes(segment: Segment) -> int:
    """Nodes of the largest graph of expressions, if there is one."""
    return max(_traits(part.index).nodes(part.index) for part in segment.parts)


def _words(segment: Segment) -> int:
    """Words of bits per event from which the device gets matches in the order in which they are returned, or 0."""
    first = segment.parts[0].index
    return _traits(first).words(first) if segment.ascending else 0


def _at_once(segment: Segment) -> int:
    """How many events the device matches together."""
    lines = max(len(part.index.arrays.get("lines", ())) // LINE for part in segment.parts)
    return events_at_once(len(segment.attributes) + lines, _words(segment), _nodes(segment))


def _given(events: DenseEvents | SparseEvents) -> Any:
    return EventBatch.from_csr(*events) if isinstance(events, SparseEvents) else events


def count_segment(workload: str, index: str, segment: Segment, batch: EventBatch) -> Counted:
    """The cost of matching a batch with one segment, per event."""
    encoder = EventEncoder(segment.book, segment.attributes, segment.used, batch)
    coded = encoder.encode(0, len(batch))
    sample = Sample.of(segment.attributes, segment.table, coded, _at_once(segment))
    costs = coding(sample, encoder, segment.book)
    found: list[tuple[Found, Array]] = []
    for part in segment.parts:
        traits = _traits(part.index)
        candidates = traits.candidates(sample, part.index)
        tests: list[Cost] = []
        keys = candidates.keys
        if not traits.decides:
            tests, keys = verified(candidates.sample, keys)
        naming, keys = named(candidates.sample, keys)
        costs += [*candidates.costs, *tests, *naming]
        found.append((candidates, keys))
    counted = min(it.sample.events for it, _ in found)
    at_once = min(it.sample.batch for it, _ in found)
    pieces = sum(it.pieces for it, _ in found)
    keys_per_event = sum(len(keys) / it.sample.events for it, keys in found)
    costs += ordered(keys_per_event, at_once, pieces, _words(segment) > 0)
    rows = _rows([keys for _, keys in found], counted)
    matches = sum(map(len, rows)) / counted
    transfer = Transfer(bytes_to_device(sample, encoder), 4 * matches + 8)
    shown = index if index != "auto" else "auto: " + ", ".join(part.index.params.kind for part in segment.parts)
    return Counted(workload, len(segment), shown, counted, at_once, matches, tuple(costs), transfer, rows)


def _rows(keys: list[Array], events: int) -> tuple[Array, ...]:
    """Rows of the first events, of all parts together."""
    every = np.unique(np.concatenate(keys))
    ends = np.searchsorted(every, np.arange(events + 1, dtype=np.int64) << 32)
    return tuple(every[first:last] & 0xFFFF_FFFF for first, last in pairwise(ends))
