"""Which index a segment gets, and why."""

from __future__ import annotations

from dataclasses import dataclass

from gpumatch.errors import SchemaError, nearest
from gpumatch.index import IndexParams, PstBloom, Scan, index_named

INDEX_NAMES = ("auto", "scan", "pstbloom")
_FEW = 64  # clauses up to which building postings by block does not pay


def requested_index(index: str | IndexParams) -> IndexParams | None:
    """What ``index=`` asks for: parameters, or None for "auto"."""
    if isinstance(index, IndexParams):
        return index
    if not isinstance(index, str) or index not in INDEX_NAMES:
        hint = nearest(index, INDEX_NAMES) if isinstance(index, str) else ""
        raise SchemaError(
            f"index is one of {', '.join(INDEX_NAMES)} or parameters such as Scan(), found {index!r}{hint}"
        )
    return None if index == "auto" else index_named(index)


def choose(requested: IndexParams | None, clauses: int) -> tuple[IndexParams, str]:
    """The index for so many clauses, and the reason."""
    if requested is not None:
        return requested, "as asked"
    if clauses <= _FEW:
        return Scan(), f"auto: {clauses} clauses are tested faster than looked up"
    return PstBloom(), f"auto: {clauses} clauses, found by their most selective predicate"


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment's size, its index, and why it has it."""

    subscriptions: int
    index: IndexParams
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``Matcher.plan`` tells; prints as text."""

    device: str
    device_reason: str
    segments: tuple[PlannedSegment, ...]

    def __str__(self) -> str:
        lines = [f"device {self.device} ({self.device_reason})"]
        lines += [f"{part.subscriptions} subscriptions: {part.index} ({part.reason})" for part in self.segments]
        return "\n".join(lines if self.segments else [*lines, "no subscriptions"])
