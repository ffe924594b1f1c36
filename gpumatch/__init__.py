"""Match batches of events against millions of subscriptions: on the CPU, and on Spark.

The public names load on first use, so that ``import gpumatch`` costs milliseconds and pulls in no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumatch.errors import (
        DeviceError,
        GpumatchError,
        GpumatchWarning,
        IdError,
        LimitError,
        MissingFileError,
        ParseError,
        RoutingError,
        SchemaError,
        StorageError,
        UnknownIdError,
    )
    from gpumatch.events.batch import EventBatch
    from gpumatch.expr import Expr, col, parse
    from gpumatch.index import ATree, Gem, Ladder, PstBloom, PstHash, Scan, Tama
    from gpumatch.matcher import Matcher
    from gpumatch.opening import load, open
    from gpumatch.parallel.threads import set_num_threads
    from gpumatch.results import Matches
    from gpumatch.schema import Schema
    from gpumatch.warming import warm_up

__version__ = "0.1.0"  # pyproject.toml reads it from here

__all__ = [
    "ATree",
    "DeviceError",
    "EventBatch",
    "Expr",
    "Gem",
    "GpumatchError",
    "GpumatchWarning",
    "IdError",
    "Ladder",
    "LimitError",
    "Matcher",
    "Matches",
    "MissingFileError",
    "ParseError",
    "PstBloom",
    "PstHash",
    "RoutingError",
    "Scan",
    "Schema",
    "SchemaError",
    "StorageError",
    "Tama",
    "UnknownIdError",
    "__version__",
    "col",
    "load",
    "open",
    "parse",
    "set_num_threads",
    "warm_up",
]

_HOMES = {
    "errors": (
        "DeviceError",
        "GpumatchError",
        "GpumatchWarning",
        "IdError",
        "LimitError",
        "MissingFileError",
        "ParseError",
        "RoutingError",
        "SchemaError",
        "StorageError",
        "UnknownIdError",
    ),
    "events.batch": ("EventBatch",),
    "expr": ("Expr", "col", "parse"),
    "index": ("ATree", "Gem", "Ladder", "PstBloom", "PstHash", "Scan", "Tama"),
    "matcher": ("Matcher",),
    "opening": ("load", "open"),
    "results": ("Matches",),
    "schema": ("Schema",),
    "parallel.threads": ("set_num_threads",),
    "warming": ("warm_up",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gpumatch' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"gpumatch.{_HOME[name]}"), name)
    globals()[name] = value  # found directly next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
