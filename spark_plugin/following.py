"""Streams that follow an index: each batch of a query is matched with one version, the newest when it began.

The first of its tasks pins that version in the index's folder. Tasks that run again, on any machine and after any
restart with the same checkpoint, find the pin and use the same version. If the newest version cannot be
used, it is refused: the query continues with the one before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gpumatch as gm
from gpumatch.errors import SchemaError, StorageError
from gpumatch.spark import opened
from gpumatch.spark.answers import Output
from gpumatch.spark.frames import absolute
from gpumatch.store.folder import pins
from gpumatch.store.folder.follower import Follower
from gpumatch.store.folder.pins import Pin
from gpumatch.store.folder.place import is_uri, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's names of them among a task's properties. A query has another run after each restart
QUERY, BATCH, RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
_begun: set[tuple[str, str, str]] = set()  # on the driver: folder, query and run, once checked with the newest
_LOG = logging.getLogger("gpumatch")


# On the driver


def followed(events: DataFrame, index: object, id_type: str | None) -> gm.Matcher:
    """The matcher that a query which follows an index is checked against. Raises if the index cannot be followed."""
    if isinstance(index, gm.Matcher):
        raise ValueError("follow=True needs the folder of an index, and a Matcher is shipped as it is now: save() it")
    path = absolute(index)  # type: ignore[arg-type]
    if is_uri(path):
        raise StorageError(
            f"follow=True needs a folder, where tasks can agree on a version, found {shown(path)!r}: "
            "keep the index in a folder that all executors share, or restart the query when the index has changed"
        )
    if id_type is not None:
        raise ValueError("follow=True needs a folder that the driver can read too: leave id_type= out")
    if events.isStreaming:
        return _loaded(path)
    query, batch, run = _batch_of(events)
    if query is None or batch is None:
        raise ValueError(
            "follow=True needs a stream, or what foreachBatch is called with by classic PySpark (Spark Connect does "
            "not say which batch that is); other events are matched with the newest version anyway: leave it out"
        )
    return _of_batch(path, query, int(batch), str(run))


def _batch_of(events: DataFrame) -> list[str | None]:
    """Query, batch and run of a DataFrame that foreachBatch was called with, or of one derived from it."""
    context = getattr(events.sparkSession, "_sc", None)
    return [None if context is None else context.getLocalProperty(name) for name in (QUERY, BATCH, RUN)]


def _of_batch(path: str, query: str, batch: int, run: str) -> gm.Matcher:
    """The version that a batch is pinned to; else, from a run's second batch on, that of the batch before.

    The newest version may be bad, and tasks then refuse it. A run begins with the newest, like other queries.
    """
    folder, key = Path(path), (path, query, run)
    pin = pins.read(folder, query, batch)
    if pin is None and key in _begun:
        pin = pins.last_before(folder, query, batch)
    if pin is not None:
        return _loaded(path, pin.version)
    matcher = _loaded(path)
    _begun.add(key)
    return matcher


def _loaded(path: str, version: str | None = None) -> gm.Matcher:
    if version is None and opened.shards_of(path):
        raise StorageError(
            f"follow=True needs an index without shards, and the one at {shown(path)} has some: build it without "
            "shards=, or restart the query after each build"
        )
    return gm.load(path, device="cpu", verify="once", version=version)


@dataclass(frozen=True)
class Expected:
    """What the versions that a query follows have in common.

    Types of ids and destinations are checked for every use of the index, even if it returns only one of them: another
    use in the same query may return the other, and all share the pin.
    """

    schema: str  # its digest
    integers: tuple[bool | None, bool | None]  # whether ids are, and destinations; None if either will do

    @classmethod
    def of(cls, matcher: gm.Matcher, output: Output, integers: bool) -> Expected:
        """Those of a matcher; ``integers``: whether the column of the output is of integers."""
        ids, destinations = [None if kind is None else kind is int for kind in _kinds(matcher)]
        if output == "destinations":
            destinations = integers
        elif output != "count":
            ids = integers
        return cls(_digest(matcher.schema), (ids, destinations))

    def check(self, matcher: gm.Matcher, place: str) -> None:
        """Raise unless a version meets these expectations."""
        if _digest(matcher.schema) != self.schema:
            raise StorageError(
                f"the index at {shown(place)} has another schema than the query began with, found "
                f"{matcher.schema.to_dict()}: make it what it was, or start the query anew"
            )
        for what, kind, integers in zip(("ids", "destinations"), _kinds(matcher), self.integers, strict=True):
            if kind is not None and integers is not None and (kind is int) != integers:
                asked = "bigint" if integers else "string"
                raise StorageError(
                    f"the {what} of the index at {shown(place)} are not of type {asked}, which the query expects"
                )


def _kinds(matcher: gm.Matcher) -> tuple[type | None, type | None]:
    """The types of ids and destinations; None while there are none."""
    return matcher.id_type, matcher._seal().destination_type


def _digest(schema: gm.Schema) -> str:
    return hashlib.sha256(json.dumps(schema.to_dict()).encode()).hexdigest()


def pinned_versions(index: str | os.PathLike[str], query: str) -> dict[int, str]:
    """The versions that batches of a streaming query were matched with, by batch number, while they are known.

    ``query`` is the query's ``id``, which stays the same with its checkpoint. ``gm.load(index, version=…)`` loads it.
    """
    folder = Path(absolute(index))
    found = {batch: pins.read(folder, str(query), batch) for batch in pins.batches(folder, str(query))}
    return {batch: pin.version for batch, pin in found.items() if pin is not None}


# In tasks


@dataclass(frozen=True)
class Following:
    """The index that a task follows, for its batch."""

    path: str
    query: str
    batch: int
    device: str
    expected: Expected

    @classmethod
    def of_task(cls, path: str, device: str, expected: Expected) -> Following:
        return cls(path, *_batch_of_task(), device, expected)

    def open(self) -> gm.Matcher:
        """The matcher, with the version that the batch is pinned to."""
        pin = pins.read(self._folder, self.query, self.batch)
        while pin is None:
            pin = self._pinned()
        try:
            return self._at(pin.version)
        except (StorageError, SchemaError) as error:
            where = pins.path_of(self._folder, self.query, self.batch)
            raise StorageError(
                f"batch {self.batch} of the query {self.query} is pinned to version {pin.version!r} of "
                f"{self.path!r}, which cannot be used: {error}. Restore that version from a copy, or remove "
                f"{str(where)!r} to have the batch matched with the newest one"
            ) from error

    @property
    def _folder(self) -> Path:
        return Path(self.path)

    @property
    def _key(self) -> str:
        return f"{self.query} {self.expected.schema}"

    def _follower(self, version: str | None) -> tuple[gm.Matcher, Follower]:
        return opened.open_follower(self.path, self._key, self.device, version)

    def _at(self, version: str) -> gm.Matcher:
        matcher, follower = self._follower(version)
        follower.move(version)
        self.expected.check(matcher, self.path)
        return matcher

    def _pinned(self) -> Pin | None:
        """Pin the newest version, or that of the batch before if the newest is bad. None: try again."""
        before = pins.last_before(self._folder, self.query, self.batch)
        state = pins.state_of(self._folder)
        if before is not None and pins.is_refused(self._folder, self.query, state):
            return self._kept(before)
        try:
            newest = self._newest()
        except (StorageError, SchemaError) as error:
            if before is None:
                raise
            self._refuse(state, before, error)
            return self._kept(before)
        pins.accept(self._folder, self.query)
        made = pins.make(self._folder, self.query, self.batch, newest)
        return None if made is None else made[0]

    def _newest(self) -> Pin:
        """A pin of the newest version, which is opened and checked."""
        matcher, follower = self._follower(None)
        follower.refresh()
        if follower.has_shards:
            raise StorageError(f"the index at {self.path!r} has shards now; build it without shards=")
        self.expected.check(matcher, self.path)
        return Pin(follower.version, follower.checksum, follower.position.log)

    def _refuse(self, state: str, before: Pin, error: Exception) -> None:
        opened.close_follower(self.path, self._key, self.device)  # it may have moved to the bad one
        if pins.refuse(self._folder, self.query, state, str(error)):
            _LOG.warning(
                "the newest version of %r is refused, and the query %s goes on with version %r, from batch %d on: %s",
                self.path, self.query, before.version, self.batch, error,
            )  # fmt: skip

    def _kept(self, before: Pin) -> Pin:
        self._at(before.version)  # first, since a pin to an unusable version would stay
        made = pins.make(self._folder, self.query, self.batch, before)
        if made is None:
            raise StorageError(
                f"the newest version of {self.path!r} is bad, and the one before, {before.version!r}, has gone: "
                "restore either from a copy, or save the index again"
            )
        pin, is_new = made
        opened.uses["refused"] += is_new
        return pin


def _batch_of_task() -> tuple[str, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    query, batch = [None if context is None else context.getLocalProperty(name) for name in (QUERY, BATCH)]
    if query is None or batch is None or not batch.isdecimal():
        raise StorageError(
            "follow=True needs the tasks of a streaming query, which say their query and batch; this one says "
            f"{query!r} and {batch!r}: take a trigger with micro-batches, and with foreachBatch classic PySpark, since "
            "Spark Connect does not tell"
        )
    return query, int(batch)
