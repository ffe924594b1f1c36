"""Messages between brokers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gpumatch.expr import Expr


@dataclass(frozen=True, slots=True)
class Message:
    """The header.

    ``id``: of the advertisement, subscription or event, the same on every hop.
    ``source``: the broker that sent it to the ``destinations``: that of its client or, in MERC, the edge broker through
    which it entered the cluster.
    ``cluster``: the cluster in which it travels. ``trail``: the clusters that it has entered on every route to here,
    including this one.
    ``serial``: counts the messages of the source, to show which of two about the same thing is the later one.
    """

    id: int
    source: int
    destinations: tuple[int, ...]
    cluster: int = 0
    trail: frozenset[int] = frozenset()
    serial: int = 0

    kind: ClassVar[str] = "message"

    def to(self, destinations: tuple[int, ...]) -> Any:
        """The same message with another destination list."""
        return replace(self, destinations=destinations)


@dataclass(frozen=True, slots=True)
class Advertisement(Message):
    """A publisher's promise that all its events satisfy the expression, or, if ``ended``, its end."""

    expression: Expr = field(kw_only=True)
    ended: bool = field(default=False, kw_only=True)

    kind: ClassVar[str] = "advertisement"


@dataclass(frozen=True, slots=True)
class Subscription(Message):
    """A subscriber's interest, or, if ``ended``, its end.

    ``unneeded``: the source still has it, but the destination no longer has an advertisement that overlaps it.
    ``tree``: the advertisement along whose tree it goes (FBR).
    """

    expression: Expr = field(kw_only=True)
    ended: bool = field(default=False, kw_only=True)
    unneeded: bool = field(default=False, kw_only=True)
    tree: int | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "subscription"


@dataclass(frozen=True, slots=True)
class Event(Message):
    """Values by attribute. ``tree``: the advertisement along whose tree it goes (FBR)."""

    values: Mapping[str, Any] = field(kw_only=True)
    tree: int | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "event"


@dataclass(slots=True)
class Outcome:
    """A broker's reaction to a message."""

    sends: list[tuple[int, Message]] = field(default_factory=list)  # next hop, message
    deliveries: list[tuple[Hashable, int]] = field(default_factory=list)  # local client, event
    stranded: list[Message] = field(default_factory=list)  # to destinations without a path for now

    def add(self, other: Outcome) -> None:
        self.sends += other.sends
        self.deliveries += other.deliveries
        self.stranded += other.stranded
