"""Names in events that are not attributes: misspelt ones cause a warning, and on request all of them are errors."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gpumatch.errors import GpumatchWarning, SchemaError, nearest
from gpumatch.schema import Schema

Strangers: TypeAlias = dict[Any, int | None]  # by name, the first event that has it; None: a column

_JUDGED = 1024  # names whose likely meaning is remembered
_SEPARATORS = re.compile(r"[\s_-]+")


def refuse(strangers: Strangers, schema: Schema) -> None:
    """Raise an error that names the first of them, if there are any."""
    for name, event in strangers.items():
        where = "the events have the column" if event is None else f"event {event} has the key"
        hint = nearest(str(name), schema.names)
        raise SchemaError(f"{where} {name!r}, which is no attribute of the schema{hint}")


class Spelling:
    """Warns the user of a matcher, once, that a key of an event is spelt nearly like an attribute."""

    def __init__(self, schema: Schema) -> None:
        self._schema, self.warned = schema, False
        self._folded: dict[str, list[str]] = {}
        self._judged: dict[Any, list[str]] = {}

    def look(self, strangers: Strangers, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Warn if an event has one of these keys but lacks the attribute that it may mean."""
        self._look(strangers, events, "key", " With strict=True this is an error")

    def look_at_columns(self, names: Sequence[str]) -> None:
        """The same for the columns of a table."""
        strangers: Strangers = {name: None for name in names if self._schema.find(name) is None}
        self._look(strangers, dict.fromkeys(names), "column", "")

    def _look(
        self, strangers: Strangers, events: Mapping[str, Any] | Sequence[Mapping[str, Any]], what: str, advice: str
    ) -> None:
        rows = [events] if isinstance(events, Mapping) else events
        for name in strangers:
            meant = self._meant(name)
            if meant and any(_lacks(row, name, meant) for row in rows):
                self.warned = True
                warnings.warn(
                    f"the events have the {what} {name!r}, which is no attribute and is ignored; did you mean "
                    f"{meant[0]!r}?{advice}",
                    GpumatchWarning,
                    stacklevel=_outside(),
                )
                return

    def _meant(self, name: Any) -> list[str]:
        """The attributes that differ from the name only in case, spaces, underscores and hyphens."""
        found = self._judged.get(name)
        if found is None:
            if not self._folded:
                for one in self._schema.names:
                    self._folded.setdefault(_fold(one), []).append(one)
            if len(self._judged) >= _JUDGED:
                self._judged.clear()
            found = self._judged[name] = self._folded.get(_fold(name), []) if isinstance(name, str) else []
        return found


def _lacks(row: Any, name: Any, meant: list[str]) -> bool:
    """Whether a dict has the name but nothing that it may mean. A row of pandas may well have other columns."""
    return isinstance(row, Mapping) and name in row and not any(one in row for one in meant)


def _fold(name: str) -> str:
    return _SEPARATORS.sub("", name.casefold())


def _outside() -> int:
    """The stack level of the caller's caller outside this package, as ``warnings.warn`` counts."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gpumatch":
        level, frame = level + 1, frame.f_back
    return level
