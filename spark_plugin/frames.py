"""DataFrame helpers for ``match_events`` and ``build_index``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpumatch.errors import SchemaError, StorageError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
    """Whether tasks run on this machine in one executor; unknown through Connect, and then they may not."""
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


def absolute(index: str | os.PathLike[str]) -> str:
    """An absolute path: executors have a different working directory."""
    path = os.fspath(index)
    if "://" in path:
        raise StorageError(f"{path} is not a folder that Python can open: use a mounted path, or pass a Matcher")
    return os.path.abspath(path)
