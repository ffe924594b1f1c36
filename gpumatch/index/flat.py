"""An index is data: parameters and named arrays. Saving, counting bytes and checking are one loop each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from gpumatch.predicates import Array


@dataclass(frozen=True, slots=True)
class IndexParams:
    """Base of the parameter classes; ``kind`` is the name that ``index=`` takes."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


class ArraySpec(NamedTuple):
    """What one array of an index holds."""

    dtype: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FlatIndex:
    """One built index."""

    params: IndexParams
    arrays: dict[str, Array]
