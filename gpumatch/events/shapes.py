"""Single events with the same keys and plain values, one after another: what they have in common is kept.

Most single events are dicts with the same keys, whose values have the types of their attributes. These are packed into
numbers in a few calls; all others go through ``single``.
"""

from __future__ import annotations

import datetime as dt
import struct
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpumatch.arrays import Array, read_only
from gpumatch.opcodes import DOUBLE, FLOAT32, NUMBER, TEXT
from gpumatch.schema import AttributeType, Schema

_MOST = 1024  # shapes that are kept

Key: TypeAlias = "tuple[tuple[Any, ...], tuple[type, ...]]"

_EPOCH = dt.date(1970, 1, 1).toordinal()
_PLAIN = {"float": float, "int": int, "bool": bool, "string": str, "date": dt.date}


class Packed(NamedTuple):
    """An event of known shape, in buffers of its own: its attributes, kinds and numbers, and its texts."""

    attribute: Array  # int32
    kind: Array  # uint8: what the number of an entry is: its key, the bits of a float, or where a text ends
    number: Array  # int64
    text: Array  # uint8: the bytes of all texts
    ptr: Array  # int64: 0 and the number of entries
    code: Array  # int32: room for codes
    given: Array  # the same, read-only


class Shape:
    """Keys of events in order, and types of their values, which are plain or None."""

    def __init__(self, schema: Schema, key: Key) -> None:
        names, types = key
        held = [(schema.find(name), at) for at, name in enumerate(names) if types[at] is not type(None)]
        known = sorted((attribute, at) for attribute, at in held if attribute is not None)
        self.strange = any(schema.find(name) is None for name in names)
        self.at = [at for _, at in known]
        kinds = [schema.types[attribute] for attribute, _ in known]
        self.plain = all(_is_plain(kind, types[at]) for kind, at in zip(kinds, self.at, strict=True))
        if not self.plain:
            return
        self.attribute = read_only(np.array([attribute for attribute, _ in known], np.int32))
        self.kind = read_only(np.array([_what(kind) for kind in kinds], np.uint8))
        self.pack = struct.Struct("=" + "".join("d" if kind.kind == "float" else "q" for kind in kinds)).pack_into
        self.dates = [i for i, kind in enumerate(kinds) if kind.kind == "date"]
        self.texts = [i for i, kind in enumerate(kinds) if kind.kind == "string"]
        self.free: list[Packed] = []  # buffers not in use

    def _buffers(self) -> Packed:
        size = len(self.kind)
        text, ptr, code = np.zeros(0, np.uint8), np.array([0, size]), np.zeros(size, np.int32)
        numbers = np.zeros(size, np.int64)
        return Packed(self.attribute, self.kind, numbers, read_only(text), read_only(ptr), code, read_only(code))

    def packed(self, event: Mapping[str, Any]) -> Packed | None:
        """The event as numbers; None for values that are not plain after all.

        The caller puts it into ``free`` after use. Until then nothing else gets its buffers: a signal may arrive at any
        time, and its handler may match events too.
        """
        try:
            into = self.free.pop()
        except IndexError:
            into = self._buffers()
        given = list(event.values())
        values = [given[at] for at in self.at]
        for i in self.dates:
            values[i] = values[i].toordinal() - _EPOCH
        try:
            if self.texts:
                data = b""
                for i in self.texts:
                    data += values[i].encode()
                    values[i] = len(data)
                into = into._replace(text=np.frombuffer(data, np.uint8))
            self.pack(into.number.data, 0, *values)
        except (UnicodeEncodeError, struct.error):  # not UTF-8, or not an int64
            self.free.append(into)
            return None
        return into


class Shapes(threading.local):
    """The shapes of events of one schema that a thread has met."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[Key, Shape] = {}
        self._missed = 0  # events of other shapes, once there is no room for more

    def find(self, event: Mapping[str, Any], strict: bool) -> Shape | None:
        """The shape of the event, if one like it has been met and its values are plain."""
        shape = self._known.get((tuple(event), tuple(map(type, event.values()))))
        return None if shape is None or not shape.plain or (strict and shape.strange) else shape

    def meet(self, event: Mapping[str, Any]) -> None:
        """Remember the shape of an event that went through ``single``, which has looked at all its keys.

        Once there are very many shapes, about every other new one is only counted: if all events differ, remembering
        them is useless. Then all are forgotten, since other shapes may be common by now.
        """
        key = (tuple(event), tuple(map(type, event.values())))
        if key in self._known:
            return
        if len(self._known) >= _MOST:
            self._missed += 1
            if self._missed <= _MOST:
                return
            self._known, self._missed = {}, 0
        self._known[key] = Shape(self._schema, key)


def _is_plain(kind: AttributeType, given: type) -> bool:
    return not kind.multi and _PLAIN.get(kind.kind) is given


def _what(kind: AttributeType) -> int:
    if kind.kind == "float":
        return FLOAT32 if kind.name == "float32" else DOUBLE
    return TEXT if kind.kind == "string" else NUMBER
