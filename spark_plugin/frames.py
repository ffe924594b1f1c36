"""DataFrame helpers for ``match_events`` and ``build_index``."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gpumatch.arrays import Array
from gpumatch.errors import SchemaError, nearest
from gpumatch.store.folder.place import is_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_DEFAULT_PYTHON = "python3"  # PySpark's default


def check_frame(frame: object, what: str) -> None:
    """Accept only PySpark DataFrames, classic or Connect."""
    try:
        from pyspark.sql import DataFrame
    except ModuleNotFoundError as error:
        raise ImportError("gpumatch.spark needs PySpark: pip install 'gpumatch[spark]'") from error

    if not isinstance(frame, DataFrame):
        raise TypeError(f"{what} must be a PySpark DataFrame, found {type(frame).__name__}")


def select(frame: DataFrame, names: Iterable[str], what: str) -> DataFrame:
    """The columns with exactly these names; each must occur once."""
    present = frame.columns
    wanted = list(names)
    for name in wanted:
        times = present.count(name)
        if times == 0:
            raise SchemaError(f"{what} have no column {name!r}{nearest(name, present)}")
        if times > 1:
            raise SchemaError(f"{what} have {times} columns named {name!r}; drop or rename all but one")
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in wanted))


def is_local(session: SparkSession) -> bool:
    """Whether tasks run on this machine in one executor; unknown through Connect, so then False."""
    context: Any = getattr(session, "_sc", None)  # Connect has none
    return context is not None and re.match(r"local(\[|$)", context.master) is not None


@contextmanager
def own_python(session: SparkSession) -> Iterator[None]:
    """Run local workers with the Python of this process, unless PYSPARK_PYTHON names another.

    Spark's default is the first python3 on the PATH, which is often wrong in a virtual environment.
    """
    context: Any = getattr(session, "_sc", None)
    if context is None or not context.master.startswith("local") or context.pythonExec != _DEFAULT_PYTHON:
        yield
        return
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = _DEFAULT_PYTHON


def map_in_arrow(frame: DataFrame, function: Callable[[Any], Iterator[Any]], schema: StructType | str) -> DataFrame:
    """``mapInArrow``, also without pandas: classic PySpark requires it here, but does not use it."""
    try:
        return frame.mapInArrow(function, schema)
    except ImportError:
        functions: Any = import_module("pyspark.sql.pandas.functions")
        ask = functions.require_minimum_pandas_version
        functions.require_minimum_pandas_version = lambda: None
        try:
            return frame.mapInArrow(function, schema)
        finally:
            functions.require_minimum_pandas_version = ask


@dataclass(frozen=True)
class Job:
    """What all tasks of a call have in common."""

    total: Any = None  # an accumulator for what they do
    kernels: str = ""  # the name of machine code that the driver shipped


def task(module: str, function: str, job: Job, **given: Any) -> Callable[[Any], Iterator[Any]]:
    """A function of this package for ``mapInArrow``.

    Spark sends it as code, and its arguments packed, so that it can tell what workers lack.
    """
    packed = pickle.dumps((job.total, job.kernels, given))

    def run(batches: Any) -> Iterator[Any]:
        from importlib import import_module

        try:
            home = import_module(f"gpumatch.spark.{module}")
        except ImportError as error:
            import sys

            raise ImportError(
                f"the Python of Spark's workers, {sys.executable}, cannot import gpumatch: {error}. Install gpumatch "
                "there, or set PYSPARK_PYTHON to a Python that has it, before the Spark session starts"
            ) from error
        import pickle

        import_module("gpumatch.spark.archives").read_once()
        total, kernels, given = pickle.loads(packed)
        batches = map(import_module("gpumatch.spark.frames").sound, batches)
        if kernels:
            import_module("gpumatch.spark.ship").use_shipped_kernels(kernels)
        found: Iterator[Any]
        if total is None:
            found = getattr(home, function)(batches, **given)
        else:
            found = import_module("gpumatch.spark.metrics").measured(getattr(home, function), batches, total, **given)
        return found

    return run


def sound(batch: Any) -> Any:
    """The batch, without empty arrays that lack offsets, as Spark sends them inside of lists: Arrow crashes on them."""
    if not any(map(_is_hollow, batch.columns)):
        return batch
    columns = [column.take(pa.array(np.arange(len(column)))) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_hollow(array: Any) -> bool:
    """Whether it, or an array inside it, is empty where there should be offsets."""
    kind = array.type
    if pa.types.is_struct(kind):
        return any(_is_hollow(array.field(at)) for at in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return len(array) == 0 or _is_hollow(array.values)
    return len(array) == 0 and not pa.types.is_primitive(kind)


def arrow_type(kind: DataType) -> Any:
    """The Arrow type in which Python gets a column. From PySpark 4.2 on, timestamps need an explicit zone."""
    from pyspark.sql.pandas.types import to_arrow_type

    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
    return to_arrow_type(kind, **zone)


def absolute(index: str | os.PathLike[str]) -> str:
    """A URI as it is, or an absolute path: executors have a different working directory."""
    path = os.fspath(index)
    return path if is_uri(path) else os.path.abspath(path)


def salts_of(count: int) -> list[int]:
    """A number for each of ``count`` partitions that ``repartition(count, number)`` puts there."""
    found: dict[int, int] = {}
    first = 0
    while len(found) < count:
        numbers = np.arange(first, first + 20 * count)
        for number, partition in zip(numbers.tolist(), (_hash(numbers) % count).tolist(), strict=True):
            found.setdefault(partition, number)
        first += 20 * count
    return [found[partition] for partition in range(count)]


def _hash(numbers: Array) -> Array:
    """Spark's hash of integers: Murmur3 with the seed 42."""
    mixed = _rotated(numbers.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotated(mixed ^ np.uint32(42), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)  # bytes of an integer
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ mixed >> np.uint32(shift)) * np.uint32(factor)
    return (mixed ^ mixed >> np.uint32(16)).astype(np.int32).astype(np.int64)


def _rotated(numbers: Array, bits: int) -> Array:
    rotated: Array = numbers << np.uint32(bits) | numbers >> np.uint32(32 - bits)
    return rotated
