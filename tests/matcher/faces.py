"""What tests of matchers share: a schema, and all that a user sees."""

from __future__ import annotations

from typing import Any

import gpumatch as gm

SCHEMA = {"i": "int64", "x": "float64", "s": "string", "tags": "list<string>"}
TYPED = gm.Schema.of(SCHEMA)


def filled(subscriptions: dict[Any, Any], index: str = "auto") -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index=index)
    matcher.add(subscriptions)
    return matcher


def face(matcher: gm.Matcher) -> tuple[Any, ...]:
    """All that a user sees, but for times: it must not change when a call fails."""
    batch = [{"i": 1, "x": 1.0, "s": "a", "tags": ["a"]}, {"i": 2}, {}]
    plan = [(part.subscriptions, part.index, part.reason) for part in matcher.plan().segments]
    return len(matcher), matcher.ids.tolist(), list(matcher.match(batch)), plan
