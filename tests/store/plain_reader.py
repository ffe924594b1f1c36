"""A reader of folders as docs/format.md describes them, which shares no code with the package."""

from __future__ import annotations

import ast
import hashlib
import json
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

TYPES = {"i1": "b", "u1": "B", "b1": "?", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f8": "d"}


class BrokenError(Exception):
    """The folder is not as the description says."""


def expect(condition: object, what: str) -> None:
    if not condition:
        raise BrokenError(what)


def manifest_at(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    body = {key: value for key, value in manifest.items() if key != "checksum"}
    found = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    expect(found == manifest["checksum"], f"the checksum of {path.name}")
    expect(manifest["format"] in (5, 6), "the format")
    expect(set(manifest["features"]) <= {"patterns", "shards"}, "the features")
    return manifest


def numbers(content: bytes, descr: str) -> tuple[Any, ...]:
    expect(descr[0] in "<|", "the order of bytes")
    kind = TYPES[descr[1:]]
    return struct.unpack(f"<{len(content) // struct.calcsize(kind)}{kind}", content)


def array_at(folder: Path, entry: dict[str, Any]) -> tuple[Any, ...]:
    content = (folder / entry["file"]).read_bytes()
    expect(len(content) == entry["size"], f"the size of {entry['file']}")
    digest = hashlib.sha256(content).hexdigest()
    expect(digest == entry["sha256"] and digest[:16] in entry["file"], f"the hash of {entry['file']}")
    expect(content[:8] == b"\x93NUMPY\x01\x00", "the beginning of an array")
    start = 10 + struct.unpack("<H", content[8:10])[0]
    expect(start % 64 == 0 and content[start - 1 : start] == b"\n", "the header of an array")
    header = ast.literal_eval(content[10:start].decode())
    found = numbers(content[start:], header["descr"])
    expect((len(found),) == header["shape"], "the shape of an array")
    return found


def texts(data: tuple[int, ...], offsets: tuple[int, ...]) -> list[str]:
    return [bytes(data[a:b]).decode() for a, b in pairwise(offsets)]


def ids_of(arrays: dict[str, tuple[Any, ...]]) -> list[Any]:
    return list(arrays["ids"]) if "ids" in arrays else texts(arrays["ids.data"], arrays["ids.offsets"])


def blake(content: bytes, size: int) -> bytes:
    return hashlib.blake2b(content, digest_size=size).digest()


def log_file(folder: Path, log: int, number: int, chain: bytes) -> bytes | None:
    """The records of a log that continues a version."""
    path = folder / f"changes-{log}.log"
    content = path.read_bytes() if path.exists() else b""
    head = struct.pack("<16sQ16s", b"gpumatch log 1\n\0", number, chain)
    return content[48:] if content[:48] == head + blake(head, 8) else None


def records(folder: Path, log: int, number: int, chain: bytes) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Version, text and arrays of every change."""
    while (content := log_file(folder, log, number, chain)) is not None:
        at = 0
        while at < len(content):
            magic, follows, size, _ = struct.unpack("<4sQQQ", content[at : at + 28])
            expect((magic, follows) == (b"\xf1gmR", number + 1), "the head of a record")
            expect(content[at + 28 : at + 36] == blake(content[at : at + 28], 8), "the check of a record")
            payload = content[at + 36 : at + 36 + size]
            chain = blake(chain + content[at : at + 20] + payload, 16)
            at, number = at + 36 + size + 16, number + 1
            expect(content[at - 16 : at] == chain, "the chain of a record")
            length = 4 + struct.unpack("<I", payload[:4])[0]
            yield f"{number}-{chain.hex()[:8]}", json.loads(payload[4:length]), payload[length:]
        log += 1


def arrays_in(shapes: dict[str, list[Any]], content: bytes) -> dict[str, tuple[Any, ...]]:
    found, at = {}, 0
    for name, (descr, *shape) in shapes.items():
        count = 1
        for size in shape:
            count *= size
        end = at + count * int(descr[2:])
        found[name], at = numbers(content[at:end], descr), end
    expect(at == len(content), "the end of a payload")
    return found


def versions(folder: Path, name: str = "manifest.json") -> Iterator[tuple[str, list[Any]]]:
    """The ids of every version from a manifest on."""
    manifest = manifest_at(folder / name)
    held: list[Any] = []
    for segment in manifest["segments"]:
        arrays = {key: array_at(folder, entry) for key, entry in segment["arrays"].items()}
        ids = ids_of(arrays)
        expect(len(ids) == segment["length"], "the length of a segment")
        held += [one for one, gone in zip(ids, arrays.get("dead", [False] * len(ids)), strict=True) if not gone]
    version = manifest.get("version", {"number": 0, "chain": manifest["checksum"][:32]})
    number, chain = version["number"], bytes.fromhex(version["chain"])
    yield f"{number}-{chain.hex()[:8]}", list(held)
    for name, change, content in records(folder, manifest.get("log", {"number": 1})["number"], number, chain):
        arrays = arrays_in(change["arrays"], content)
        gone = {key.removeprefix("removed."): array for key, array in arrays.items() if key.startswith("removed.")}
        for one in ids_of(gone) if gone else ():
            held.remove(one)
        if change["segment"] is not None:
            files = change["files"] or {}
            arrays |= {key: array_at(folder, entry) for key, entry in files.items()}
            added = ids_of(arrays)
            expect(len(added) == change["segment"]["length"], "the length of what was added")
            held += added
        yield name, list(held)
