"""Every exception that gpumatch raises on purpose.

Each message names the thing, what was expected, what was found and, where it helps, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class GpumatchError(Exception):
    """Base class: ``except gm.GpumatchError`` catches all of them.

    ``id`` is the id of the subscription to blame, and ``position`` the offset of the first offending character in its
    text; None if there is none.
    """

    id: Any = None
    position: int | None = None

    @property
    def message(self) -> str:
        """What is wrong, without the subscription and the position in its text."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self._shown() if self.id is None else f"subscription {self.id!r}: {self._shown()}"

    def _shown(self) -> str:
        return self.message


class ParseError(GpumatchError, ValueError):
    """Text that is not an expression; ``text`` is that text."""

    def __init__(self, message: str, text: str = "", position: int | None = None) -> None:
        self.text, self.position = text, 0 if position is None and text else position
        super().__init__(message, text, position)

    def _shown(self) -> str:
        if not self.text or self.position is None:
            return self.message
        return f"{self.message} (at position {self.position})\n{_caret(self.text, self.position)}"


class SchemaError(GpumatchError, ValueError):
    """An unknown attribute, an unsupported type, or a constant or value of the wrong type."""


class IdError(GpumatchError, ValueError):
    """A subscription id that is duplicate, unknown, or of another type than the others."""

    def __str__(self) -> str:
        return self.message  # which names the id


class UnknownIdError(IdError, KeyError):
    """An id that no subscription has."""


class StorageError(GpumatchError):
    """A saved index that is missing, out of reach, truncated, altered, or written by a newer version."""


class LimitError(GpumatchError, OverflowError):
    """More subscriptions or more matches than there is room for."""


class MissingFileError(GpumatchError, FileNotFoundError):
    """A missing file of events."""


class DeviceError(GpumatchError, RuntimeError):
    """A missing device, or one without room for what was asked of it."""


class RoutingError(GpumatchError, ValueError):
    """Ranges, filters, shards or an overlay of brokers that cannot be as asked, or a broker that cannot be reached."""


class GpumatchWarning(UserWarning):
    """Something that was done as asked but hardly intended: a key of an event that is nearly an attribute."""


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: ``"; did you mean 'px'?"`` or the empty string."""
    known = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower()[:100], known, n=1, cutoff=0.5)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def _caret(text: str, position: int, width: int = 72) -> str:
    """The line that contains ``position`` with a caret below it, cut to ``width`` around the caret."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    at = position - start
    left = max(0, min(at - width // 2, len(line) - width))
    shown = line[left : left + width].replace("\t", " ")
    return f"  {shown}\n  {' ' * (at - left)}^"
