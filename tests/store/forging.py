"""Logs taken apart and put together again with right hashes, and limits for what reads them."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpumatch.store.folder import log

AROUND = log._HEAD.size + log._CHECK
ROOM = 2 << 30  # bytes that opening a small index may ask for
SECONDS = 300  # after which it hangs


def payloads(content: bytes) -> list[bytes]:
    """What the records of a log hold."""
    found, at = [], log.START
    while at < len(content):
        size = log._HEAD.unpack_from(content, at)[2]
        found.append(content[at + AROUND : at + AROUND + size])
        at += AROUND + size + log.CHAIN
    return found


def forged(content: bytes, held: list[bytes], synced: int = 0) -> bytes:
    """A log that begins like another one and has these records, with right hashes."""
    _, number, chain = log._FILE.unpack_from(content)
    out = content[: log.START]
    for payload in held:
        number += 1
        head = log._HEAD.pack(log._MAGIC, number, len(payload), synced)
        chain = log._chained(chain, head, payload)
        out += head + log._check(head) + payload + chain
    return out


def taken_apart(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """The facts of a change, and the bytes of its arrays."""
    start = 4 + int.from_bytes(payload[:4], "little")
    return json.loads(payload[4:start]), payload[start:]


def put_together(facts: Any, arrays: bytes) -> bytes:
    text = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
    return len(text).to_bytes(4, "little") + text + arrays


def with_array(payload: bytes, name: str, array: Any) -> bytes:
    """The change with another array in the place of one."""
    facts, data = taken_apart(payload)
    out, at = b"", 0
    for key, (dtype, *shape) in facts["arrays"].items():
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        out += array.tobytes() if key == name else data[at : at + size]
        at += size
    facts["arrays"][name] = [array.dtype.str, *array.shape]
    return put_together(facts, out)


@contextmanager
def bounded(room: int = ROOM) -> Iterator[None]:
    """What allocates wildly is a MemoryError, what hangs a TimeoutError."""

    def late(*_: object) -> None:
        raise TimeoutError(f"it has taken {SECONDS} seconds")

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + room, before[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
