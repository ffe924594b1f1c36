"""Events that arrive as files, and what a streaming query made of them: which batch read which, and wrote which."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

import gpumatch as gm
from gpumatch.spark import pinned_versions

SCHEMA = {"x": "int64", "s": "string"}
COLUMNS = "k bigint, x bigint, s string"


def events(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": numbers, "x": [k * 7 % 100 for k in numbers], "s": ["abc"[k % 3] for k in numbers]})


def arrive(folder: Path, first: int, count: int) -> None:
    """A file of events, as a whole."""
    folder.mkdir(exist_ok=True)
    draft = folder.with_name(f"{folder.name}-{first}.draft")
    pq.write_table(events(first, count), draft)
    os.replace(draft, folder / f"{first:08d}.parquet")


def started(writer: Any) -> Any:
    """A query with foreachBatch through Connect. Spark gives its Python ten seconds to start, and it may need more."""
    for _ in range(3):
        try:
            return writer.start()
        except Exception as error:
            if "waiting for the Python worker" not in str(error):
                raise
    return writer.start()


def _log(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The entries that each batch added to a log of Spark's. Every tenth file also repeats those before."""
    found: dict[int, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    names = [path for path in folder.iterdir() if path.name.removesuffix(".compact").isdecimal()]
    for path in sorted(names, key=lambda path: int(path.stem)):
        lines = path.read_text().splitlines()[1:]
        found[int(path.stem)] = [json.loads(line) for line in lines if line not in seen]
        seen.update(lines)
    return found


def _local(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def read_by_batch(checkpoint: Path) -> dict[int, pa.Table]:
    """The events of each batch."""
    entries, found, before = _log(checkpoint / "sources" / "0"), {}, -1
    for path in sorted((checkpoint / "offsets").iterdir(), key=lambda path: path.name.zfill(9)):
        if path.name.isdecimal():
            last = json.loads(path.read_text().splitlines()[-1])["logOffset"]
            files = [_local(entry["path"]) for at in range(before + 1, last + 1) for entry in entries[at]]
            tables = [pq.read_table(file) for file in files]
            found[int(path.name)] = pa.concat_tables(tables) if tables else events(0, 0)
            before = last
    return found


def written_by_batch(sink: Path) -> dict[int, list[tuple[int, Any]]]:
    """The pairs of ``k`` and subscription that each batch has in a sink of Parquet files."""
    found = {}
    for batch, entries in _log(sink / "_spark_metadata").items():
        tables = [pq.ParquetFile(_local(entry["path"])).read() for entry in entries]
        found[batch] = sorted(pair for table in tables for pair in zip(*table.to_pydict().values(), strict=True))
    return found


def check(index: Path, query: str, checkpoint: Path, sink: Path) -> dict[int, str]:
    """Every batch has the rows that a matcher of its version finds; returns the versions."""
    versions, batches, written = pinned_versions(index, query), read_by_batch(checkpoint), written_by_batch(sink)
    assert set(written) <= set(batches)
    for batch, table in batches.items():
        if batch not in versions:
            assert len(table) == 0
            continue
        found = gm.load(index, device="cpu", version=versions[batch]).match(table).to_arrow()
        names = found["subscription"].to_pylist()
        right = zip(table["k"].take(found["event"]).to_pylist(), names, strict=True)
        assert written.get(batch, []) == sorted(right), f"batch {batch}, version {versions[batch]}"
    return versions
