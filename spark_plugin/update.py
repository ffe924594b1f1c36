"""``update_index``: changes to a table of subscriptions become one new version of the index in a folder."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import gpumatch as gm
from gpumatch.errors import IdError, SchemaError
from gpumatch.spark.arguments import check_index, check_roles, schema_of
from gpumatch.spark.compare import CHANGE, compare_tables, contents_of
from gpumatch.spark.frames import absolute, check_frame, select
from gpumatch.spark.strategy import Index
from gpumatch.subscriptions.intake import Rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.types import StructType

    from gpumatch.schema import SchemaLike

ORDERS = ("_commit_version", "_change_ordinal")  # names in Delta and Iceberg, as are the kinds of changes below
PUT = ("insert", "update", "update_postimage", "update_after", "upsert")
REMOVE = ("delete", "update_preimage", "update_before")  # an update may change the id
_LOG = logging.getLogger("gpumatch")


@dataclass(frozen=True)
class Update:
    """What a call of ``update_index`` did."""

    version: str | None  # of the index, after the call; None for a matcher in memory
    put: int  # subscriptions that are new or have changed
    removed: int
    rejected: list[Rejected] = field(default_factory=list)

    def __str__(self) -> str:
        bad = f", {len(self.rejected):,} rejected" if self.rejected else ""
        return f"version {self.version}: {self.put:,} put, {self.removed:,} removed{bad}"


@dataclass(frozen=True)
class Wanted:
    """What the caller wants, apart from the changes."""

    index: Index
    schema: gm.Schema | None
    collect: bool
    rejected: str | None  # a folder


def update_index(
    changes: DataFrame,
    index: Index,
    *,
    mode: Literal["changes", "snapshot"] = "changes",
    schema: SchemaLike | StructType | None = None,
    id: str = "id",
    where: str = "expr",
    weight: str | None = None,
    destination: str | None = None,
    change: str = CHANGE,
    order: str | Sequence[str] | None = None,
    on_error: Literal["raise", "collect"] = "raise",
    rejected: str | os.PathLike[str] | None = None,
) -> Update | DataStreamWriter:
    """Apply changes of a table to the index in a folder: as one new version, or none if it has them already.

    ``changes`` has a row per change: the columns of ``build_index``, and in ``change`` what happened: insert, update,
    upsert or delete, as in Delta's change feeds and Iceberg's changelog views. ``order`` names columns that order the
    changes of an id, of which the last one counts; default: ``_commit_version`` or ``_change_ordinal`` if there is one.
    With ``mode="snapshot"``, ``changes`` is the whole table instead, which Spark compares with the index.

    ``index``: a folder, which is created if ``schema`` is given, or a matcher, such as one that has the folder open.

    With ``on_error="collect"`` bad subscriptions are left out of the index, and their former expressions too: it is
    what ``build_index`` would make of the table. ``rejected``: a folder for them, in Parquet; this implies "collect".

    Given a stream of changes, it returns a ``DataStreamWriter``: give it a checkpoint and start it. Every micro-batch
    is a version; one that is repeated after a failure changes nothing.
    """
    check_frame(changes, "changes")
    check_index(index)
    if mode not in ("changes", "snapshot"):
        raise ValueError(f"mode must be 'changes' or 'snapshot', found {mode!r}")
    if on_error not in ("raise", "collect"):
        raise SchemaError(f"on_error must be 'raise' or 'collect', found {on_error!r}")
    given = {"id": id, "expr": where, "weight": weight, "destination": destination}
    roles = {role: name for role, name in given.items() if name is not None}
    path = index if isinstance(index, gm.Matcher) else absolute(index)
    folder = None if rejected is None else absolute(rejected)
    known = None if schema is None else gm.Schema.of(schema_of(schema))
    if known is not None and isinstance(index, gm.Matcher) and known != index.schema:
        raise SchemaError(f"the matcher has the schema {index.schema.to_dict()}, expected {known.to_dict()}")
    wanted = Wanted(path, known, on_error == "collect" or folder is not None, folder)
    if mode == "snapshot":
        if change != CHANGE or order is not None:
            raise ValueError("change= and order= are for changes; mode='snapshot' takes a whole table: leave them out")
        return _compared(changes, roles, wanted)
    orders = _orders(changes, order)
    check_roles(select(changes, dict.fromkeys(roles.values()), "the changes").schema, roles)
    names = {**roles, "kind": change, **{f"order{at}": name for at, name in enumerate(orders)}}
    selected = select(changes, names.values(), _what(changes, change)).toDF(*names)
    if not changes.isStreaming:
        return _update(selected, wanted)
    if isinstance(index, gm.Matcher) and not hasattr(changes.sparkSession, "_sc"):
        raise TypeError("Spark Connect runs a stream's batches in another process: pass the folder, not a Matcher")
    return selected.writeStream.foreachBatch(partial(_update_batch, wanted=wanted))


def _orders(changes: DataFrame, order: str | Sequence[str] | None) -> list[str]:
    if order is None:
        return [name for name in ORDERS if name in changes.columns][:1]
    return [order] if isinstance(order, str) else list(order)


def _what(changes: DataFrame, change: str) -> str:
    """What the frame is called in errors."""
    if change in changes.columns:
        return "the changes"
    return "the changes (pass the column of kinds of changes as change=, or mode='snapshot' for a whole table)"


def _update_batch(frame: DataFrame, batch: int, wanted: Wanted) -> None:
    done = _update(frame, wanted)
    if done.rejected and wanted.rejected is None:
        first = done.rejected[0]
        _LOG.warning("batch %d: %s; pass rejected= to keep them; %r: %s", batch, done, first.id, first.message)


def _update(frame: DataFrame, wanted: Wanted) -> Update:
    """Apply changes with columns named by their roles."""
    table = frame.toArrow()
    with _opened(wanted) as matcher:
        return _applied(frame.sparkSession, table, matcher, wanted)


def _compared(frame: DataFrame, roles: dict[str, str], wanted: Wanted) -> Update:
    """Make the index equal to a table."""
    if frame.isStreaming:
        raise ValueError("mode='snapshot' takes a whole table, not a stream: pass a stream of changes, or a batch")
    check_roles(select(frame, dict.fromkeys(roles.values()), "the table").schema, roles)
    with _opened(wanted) as matcher:
        held = contents_of(frame.sparkSession, wanted.index, len(matcher), *_integers(frame, matcher, roles))
        named = select(frame, roles.values(), "the table").toDF(*roles)
        differing = compare_tables(held, named, **{role: role for role in ("weight", "destination") if role in roles})
        names = [*roles, CHANGE]
        table = differing.select(*names).withColumnRenamed(CHANGE, "kind").toArrow()
        return _applied(frame.sparkSession, table, matcher, wanted)


def _integers(frame: DataFrame, matcher: gm.Matcher, roles: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether ids and destinations of an index are integers; where it has none, whether the table's are."""
    from pyspark.sql.types import IntegralType

    kinds = [matcher.id_type, matcher._seal().destination_type]
    names = [roles["id"], roles.get("destination", roles["id"])]
    found = [
        isinstance(frame.schema[name].dataType, IntegralType) if kind is None else kind is int
        for kind, name in zip(kinds, names, strict=True)
    ]
    return found[0], found[1]


@contextmanager
def _opened(wanted: Wanted) -> Iterator[gm.Matcher]:
    """The matcher to change. A folder is open for writing only while the changes are made."""
    if isinstance(wanted.index, gm.Matcher):
        yield wanted.index
        return
    with gm.open(wanted.index, "a", schema=wanted.schema, device="cpu", background=False) as matcher:
        yield matcher


def _applied(session: SparkSession, table: Any, matcher: gm.Matcher, wanted: Wanted) -> Update:
    """Apply the changes in a table with columns named by their roles."""
    net = Net.of(table)
    twice = [] if wanted.collect else net.twice
    if twice:
        raise IdError(f"{_twice(twice[0])}; delete one, or name the columns that order changes as order=")
    extra = {role: net.column(role) for role in ("destination", "weight") if role in table.column_names}
    upsert = dict(zip(net.ids, net.column("expr"), strict=True))
    bad, put, removed = matcher._apply(
        upsert,
        [*net.removed, *net.twice],
        "collect" if wanted.collect else "raise",
        extra.get("destination"),
        extra.get("weight"),
        drop=True,
    )
    bad += [Rejected(name, None, _twice(name)) for name in net.twice]
    if bad and wanted.rejected is not None:
        _write_rejected(session, wanted.rejected, table.schema.field("id").type, bad, upsert)
    done = Update(matcher.version, put, removed, bad)
    _LOG.info("%s", done)
    return done


def _twice(name: Any) -> str:
    return f"the id {name!r} occurs twice with different expressions, weights or destinations"


@dataclass(frozen=True)
class Net:
    """The net effect of changes: the last one of each id."""

    table: Any
    rows: list[int]  # of the subscriptions to put
    ids: list[Any]  # theirs
    removed: list[Any]
    twice: list[Any]  # put twice with equal order, in different ways

    @classmethod
    def of(cls, table: Any) -> Net:
        """Of changes with equal order, a removal comes first: a row may be deleted and written anew."""
        kinds = [_is_put(kind) for kind in table["kind"].to_pylist()]
        orders = [name for name in table.column_names if name.startswith("order")]
        for name in orders:
            if table[name].null_count:
                raise SchemaError("the columns that order= names must not be null")
        keys = table.select(orders).append_column("put", pa.array(kinds, pa.bool_()))
        ranks = [(name, "ascending") for name in keys.column_names]
        at = list(zip(*(table[name].to_pylist() for name in orders), strict=True)) or [()] * len(table)
        contents = [table[role].to_pylist() for role in ("expr", "weight", "destination") if role in table.column_names]
        ids, last, twice = table["id"].to_pylist(), dict[Any, int](), dict[Any, None]()
        for row in pc.sort_indices(keys, ranks).to_pylist():
            name, before = ids[row], last.get(ids[row])
            if before is None or at[before] != at[row] or not kinds[before]:
                twice.pop(name, None)
            elif name is not None and any(column[before] != column[row] for column in contents):
                twice[name] = None
            last[name] = row
        rows = sorted(row for name, row in last.items() if kinds[row] and name not in twice)
        removed = [name for name, row in last.items() if not kinds[row] and name is not None]
        return cls(table, rows, [ids[row] for row in rows], removed, list(twice))

    def column(self, role: str) -> list[Any]:
        """A column of the subscriptions to put."""
        column = self.table[role].take(pa.array(self.rows, pa.int64()))
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64(), safe=False)
        values: list[Any] = column.to_pylist()
        return values


def _is_put(kind: str | None) -> bool:
    """Whether a change puts a subscription, rather than removing one."""
    found = "" if kind is None else kind.lower()
    if found not in PUT + REMOVE:
        raise SchemaError(f"a change must be one of {', '.join((*PUT, *REMOVE))}, found {kind!r}")
    return found in PUT


def _write_rejected(
    session: SparkSession, folder: str, id_type: Any, rejected: Sequence[Rejected], texts: Mapping[Any, Any]
) -> None:
    """Write a file in a folder named by its contents: a repeated batch writes it again."""
    columns = {
        "id": pa.array([one.id for one in rejected], id_type),
        "expr": pa.array([texts.get(one.id) for one in rejected], pa.string()),
        "position": pa.array([one.position for one in rejected], pa.int64()),
        "message": pa.array([one.message for one in rejected], pa.string()),
    }
    key = hashlib.sha256(repr([column.to_pylist() for column in columns.values()]).encode()).hexdigest()[:16]
    frame = session.createDataFrame(pa.table(columns)).coalesce(1)
    frame.write.mode("overwrite").parquet(f"{folder}/update=u{key}")
