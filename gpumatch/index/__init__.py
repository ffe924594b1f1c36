"""Indexes: small frozen parameters, and builders that turn a table of predicates into flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumatch.errors import StorageError
from gpumatch.index.flat import FlatIndex, IndexParams
from gpumatch.index.postings import ARRAYS, PstBloom, Scan, build, match

__all__ = [
    "ARRAYS",
    "FlatIndex",
    "IndexParams",
    "PstBloom",
    "Scan",
    "build",
    "index_named",
    "match",
    "params_from",
]

_BY_NAME: dict[str, type[IndexParams]] = {"scan": Scan, "pstbloom": PstBloom}


def index_named(name: str) -> IndexParams:
    """Default parameters of the index of that name; KeyError if there is none."""
    return _BY_NAME[name]()


def params_from(facts: Mapping[str, Any]) -> IndexParams:
    """Parameters from what ``IndexParams.to_dict`` gave."""
    kind = _BY_NAME.get(str(facts.get("kind")))
    if kind is None:
        raise StorageError(f"the saved index is of kind {facts.get('kind')!r}, which this version does not know")
    return kind(**{name: value for name, value in facts.items() if name != "kind"})
