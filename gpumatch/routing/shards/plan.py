"""How events reach the shards of an index: made from a sample of its subscriptions, and stored with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import ceil
from typing import Any, Literal, TypeAlias

import numpy as np

from gpumatch.arrays import Array
from gpumatch.codes.book import BOOK_TYPES, Codebook
from gpumatch.codes.table import CodedEvents, encode_block
from gpumatch.errors import SchemaError
from gpumatch.events.batch import EventBatch
from gpumatch.matcher import Matcher
from gpumatch.results import Matches
from gpumatch.routing.shards.grid import Grid
from gpumatch.routing.shards.placement import Placement
from gpumatch.routing.shards.router import Entries, Relaxed, Router
from gpumatch.routing.sieve.placing import SLACKS, Ordering
from gpumatch.schema import Schema
from gpumatch.store.folder import manifests, remote
from gpumatch.store.folder.place import Where
from gpumatch.store.source import Source, join_sources
from gpumatch.subscriptions.block import Attributes

Place: TypeAlias = Literal["auto", "hash", "similar"]
PLACES: tuple[Place, ...] = ("auto", "hash", "similar")

MOST_SHARDS = 1 << 16  # whose numbers have two bytes in the router
EVENTS = 4096  # of a sample, at most
_GAIN = 0.75  # of the copies: placing similar subscriptions together must save a quarter of them
_FEWER = 4  # times fewer subscriptions, to see how copies grow with their number
_SKEW = 1.5  # and no shard may be so much larger than the average
_SAMPLE = tuple(one.name for one in fields(CodedEvents))
_ROUTER = tuple(one.name for one in fields(Router) if one.name != "grid")
_BUSY = 1.5  # times the average: a shard that gets more events is given several tasks
_MOST = 0.5  # of the shards: where an event would go to more of them, it is not routed


@dataclass(frozen=True)
class Report:
    """The effect of a plan, on events of a sample, or made-up ones."""

    sent: tuple[float, ...]  # share of the events that each shard is sent
    leak: float | None  # share of the copies for which a shard has no match, by a sample; None: there were no events

    def __str__(self) -> str:
        leak = "unknown (build with events=)" if self.leak is None else f"{self.leak:.0%}"
        known = f"{self.copies:.2f} copies of an event, leak {leak}, balance {self.balance:.2f}"
        split, parts = sum(parts > 1 for parts in self.parts), sum(self.parts)
        return f"{self.shards} shards, {known}" + (
            f", {split} of them in several parts: {parts} in all" if split else ""
        )

    @property
    def shards(self) -> int:
        return len(self.sent)

    @property
    def copies(self) -> float:
        """Of an event that are sent to shards."""
        return sum(self.sent)

    @property
    def balance(self) -> float:
        """Copies of the busiest shard over those of the average one: 1 is best."""
        return max(self.sent, default=0.0) * self.shards / self.copies if self.copies else 1.0

    @property
    def parts(self) -> tuple[int, ...]:
        """Tasks that share the events of each shard: several for one that gets many more than others."""
        most = _BUSY * self.copies / max(self.shards, 1)
        return tuple(max(1, ceil(sent / most)) if most else 1 for sent in self.sent)

    @property
    def pays(self) -> bool:
        """Whether sending events to the shards that may match them is better than showing them to all."""
        return self.copies <= _MOST * self.shards


@dataclass(frozen=True)
class Draft:
    """Made before the shards are built: cells, and where subscriptions go (None: anywhere, by a hash of the id)."""

    shards: int  # of which some may stay empty
    grid: Grid
    placement: Placement | None
    sample: CodedEvents
    leak: float | None

    @classmethod
    def of(cls, matcher: Matcher, shards: int, total: int, events: Any = None, place: Place = "auto") -> Draft:
        """``matcher`` has a sample of the ``total`` subscriptions; of the events at most EVENTS count."""
        if shards > MOST_SHARDS:
            raise SchemaError(f"an index has at most {MOST_SHARDS:,} shards, but {shards:,} were asked for")
        source, attributes = matcher._source(), Attributes.of(matcher.schema)
        batch = None if events is None else EventBatch.of(events, matcher.schema).to_host()
        batch = None if batch is None or not len(batch) else batch.slice(0, min(len(batch), EVENTS))
        grid = Grid.of(attributes, source.block, batch)
        sample = grid.made_up() if batch is None else grid.encode(batch)
        coded = encode_block(source.block, attributes.covering(source.block.columns))
        relaxed = Relaxed.of(grid, *coded)
        ways = _ways(grid, source, matcher, shards, place)
        copies = [_copies(grid, relaxed, shard, shards, sample, total) for _, shard in ways]
        for at, (way, shard) in enumerate(ways):
            if way is not None:  # at most what the attributes that subscriptions are placed by would send
                placed = Relaxed.of(grid, *coded, way.tree(grid, source))
                copies[at] = min(copies[at], _sent(grid, placed, shard, shards, sample).mean() * shards)
        costs = [each if way is None else each / _GAIN for (way, _), each in zip(ways, copies, strict=True)]
        best = int(np.argmin(costs))
        placement, shard = ways[0 if min(copies) > _MOST * shards else best]  # without routing, any placement will do
        leak = (
            None if batch is None else _leak(matcher.match(batch), shard, _sent(grid, relaxed, shard, shards, sample))
        )
        return cls(shards, grid, placement, sample, leak)

    def finished(self, shards: Sequence[Entries]) -> Plan:
        """The plan, with the entries of all shards."""
        router = Router.of(self.grid, shards)
        sent = router.marks(self.sample).sum(axis=0) / max(len(self.sample.ptr) - 1, 1)
        return Plan(self, router, Report(tuple(sent.tolist()), self.leak))


def _ways(
    grid: Grid, source: Source, matcher: Matcher, shards: int, place: Place
) -> list[tuple[Placement | None, Array]]:
    """Placements that may be used, and the shards of the source's subscriptions under each."""
    spread = np.arange(len(source)) % shards
    ways: list[tuple[Placement | None, Array]] = [] if place == "similar" else [(None, spread)]
    if place != "hash":
        half = [join_sources(matcher._attributes, [source], [np.arange(len(source)) % 2 == n]) for n in range(2)]
        for slack in SLACKS:
            sizes = np.bincount(Placement.of(grid, half[0], shards, slack).shards(grid, half[1]), minlength=shards)
            if place == "similar" or sizes.max() <= _SKEW * sizes.mean():
                placement = Placement.of(grid, source, shards, slack)
                ways.append((placement, placement.shards(grid, source)))
    return ways


def _copies(grid: Grid, relaxed: Relaxed, shard: Array, shards: int, sample: CodedEvents, total: int) -> float:
    """Copies of an event over shards of ``total`` subscriptions: they grow with the logarithm of their number."""
    fewer = np.where(np.arange(len(shard)) % _FEWER, -1, shard)
    some, all_ = (_sent(grid, relaxed, of, shards, sample).sum() / (len(sample.ptr) - 1) for of in (fewer, shard))
    growth = np.log(max(total / max(len(shard), 1), 1)) / np.log(_FEWER)
    return float(min(all_ + (all_ - some) * growth, shards))


def _sent(grid: Grid, relaxed: Relaxed, shard: Array, shards: int, sample: CodedEvents) -> Array:
    """Which shards each event is sent to."""
    return Router.of(grid, [relaxed.some(shard == n) for n in range(shards)]).marks(sample)


def _leak(matches: Matches, shard: Array, sent: Array) -> float:
    """The share of copies that lead to no match."""
    needed = np.zeros_like(sent)
    needed[np.repeat(np.arange(len(sent)), matches.counts), shard[matches.rows]] = True
    return 1 - float(needed.sum() / max(sent.sum(), 1))


@dataclass(frozen=True)
class Plan:
    """A draft, the router of its shards, and what they do."""

    draft: Draft
    router: Router
    report: Report

    def save(self, path: Where) -> str:
        """Returns the digest."""
        draft, grid = self.draft, self.draft.grid
        arrays = {f"book.{name}": getattr(grid.book, name) for name in BOOK_TYPES} | {"grid.below": grid.below}
        arrays |= {f"sample.{name}": getattr(draft.sample, name) for name in _SAMPLE}
        arrays |= {f"router.{name}": getattr(self.router, name) for name in _ROUTER}
        meta: dict[str, Any] = {"schema": grid.attributes.schema.to_dict(), **asdict(self.report)}
        meta["planned"] = draft.shards
        if draft.placement is not None:
            ordering = draft.placement.ordering
            meta["slack"] = list(ordering.slack)
            placed = {"rank": ordering.rank, "finest": ordering.finest, "cuts": draft.placement.cuts}
            arrays |= {f"placement.{name}": array for name, array in placed.items()}
        return remote.write(path, meta, [({}, arrays)])

    @classmethod
    def load(cls, path: Where) -> Plan:
        stored = remote.read(path, verify="once")
        [(_, arrays)] = stored.segments
        book, report = Codebook(**_named(arrays, "book")), Report(tuple(stored.meta["sent"]), stored.meta["leak"])
        grid = Grid(Attributes.of(Schema.of(stored.meta["schema"])), book, arrays["grid.below"])
        placement, placed = None, _named(arrays, "placement")
        if placed:
            first, second = stored.meta["slack"]
            placement = Placement(Ordering(placed["rank"], placed["finest"], (first, second)), placed["cuts"])
        draft = Draft(stored.meta["planned"], grid, placement, CodedEvents(**_named(arrays, "sample")), report.leak)
        return cls(draft, Router(grid, **_named(arrays, "router")), report)


def save_shards(matcher: Matcher, path: Where, shards: int, events: Any = None, place: Place = "auto") -> Plan:
    """Save a matcher as an index with shards, as ``gpumatch.spark.build_index(shards=…)`` builds one."""
    source = matcher._source()
    draft = Draft.of(matcher, shards, len(source), events, place)
    placement = draft.placement
    shard = np.arange(len(source)) % shards if placement is None else placement.shards(draft.grid, source)
    names, entries = [], []
    for number in range(shards):
        part = matcher._subset(join_sources(matcher._attributes, [source], [shard == number]))
        names.append(manifests.shard_name(number, _digest(part)))
        part.save(remote.below(path, names[-1]))
        entries.append(Entries.of(draft.grid, part))
    plan, name = draft.finished(entries), manifests.plan_name(names)
    plan.save(remote.below(path, name))
    remote.write_shards(path, names, name)
    return plan


def _digest(matcher: Matcher) -> str:
    """A digest of all that is saved, so that each version of a shard has its own name."""
    digest = hashlib.sha256()
    for segment in matcher._seal().segments:
        for name, array in sorted(segment.stored(None)[1].items()):
            digest.update(name.encode() + str(array.dtype).encode() + array.tobytes())
    return digest.hexdigest()


def _named(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
