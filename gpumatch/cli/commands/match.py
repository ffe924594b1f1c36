"""``gpumatch match``: match a file of events and write the pairs."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import gpumatch as gm
from gpumatch.cli.arguments import positive
from gpumatch.cli.console import progress

if TYPE_CHECKING:
    import pyarrow as pa

    from gpumatch.cli.files import Source

_PAIRS_AT_ONCE = 2_000_000  # pairs per chunk of events to aim at, so that memory stays bounded
_EVENTS_AT_FIRST = 1_024
_EVENTS_AT_MOST = 65_536
_EVENTS_TO_TELL = 10_000  # events needed to report a rate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index", metavar="IDX", help="the folder of an index, or its URI (s3://, gs://, abfss://, hdfs://)"
    )
    parser.add_argument(
        "events",
        metavar="EVENTS",
        help="a .parquet, .csv or .jsonl file, one event per row; - for standard input, CSV or JSON lines",
    )
    parser.add_argument(
        "out", metavar="OUT", help="the .parquet, .csv or .jsonl file to write; - for standard output, as CSV"
    )
    parser.add_argument(
        "--columns", metavar="A,B", help="event columns to write in addition to subscription (default: all; '': none)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="threads to use (default: all cores)")
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda:N, or auto (default): a CUDA device if there is one"
    )


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import files

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    columns = None if args.columns is None else list(filter(None, args.columns.split(",")))
    files.format_of(args.out)
    if Path(args.out).exists() and Path(args.events).exists() and Path(args.out).samefile(args.events):
        raise gm.GpumatchError(f"{args.out} is the file of events; write the matches to another one")
    matcher = gm.load(args.index, device=args.device)
    with files.as_file(args.events) as path:
        source = files.open_table(path, files.arrow_types(matcher.schema), columns)
        if source.names and not any(name in matcher.schema for name in source.names):
            shown = "standard input" if args.events == files.STANDARD else args.events
            _warn_of_strangers(shown, source.names, matcher.schema.names)
        written = source.schema.names if columns is None else columns
        if "subscription" in written:
            raise gm.GpumatchError("the events have a column 'subscription'; choose other columns with --columns")
        done = _write_pairs(matcher, source, args.out, _pairs_schema(source.schema, written, matcher))
    if args.out == files.STANDARD:
        print(done, file=sys.stderr)
    else:
        print(f"{done}; wrote {args.out}")


def _write_pairs(matcher: gm.Matcher, source: Source, out: str, schema: pa.Schema) -> str:
    """Match all events and write the pairs. Returns a line with the counts and the rate."""
    from gpumatch.cli import files

    events = pairs = 0
    watch = _Watch()
    with files.Sink(out, schema) as sink, progress() as bar:
        task = bar.add_task("matching", total=1.0)
        for chunk, matches in _chunks(matcher, source.batches, watch):
            sink.write(_pairs(chunk, matches, schema))
            events, pairs = events + len(chunk), pairs + matches.n_pairs
            bar.update(task, completed=source.done(), description=f"{pairs:,} matches")
        bar.update(task, completed=1.0)
    return f"{events:,} events, {pairs:,} matches{watch.rate()}"


class _Watch:
    """Times matching without reading and writing, and without the first chunk, which may load or compile kernels."""

    def __init__(self) -> None:
        self._chunks = self._events = 0
        self._seconds = 0.0

    @contextmanager
    def over(self, events: int) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._chunks:
            self._events, self._seconds = self._events + events, self._seconds + time.perf_counter() - start
        self._chunks += 1

    def rate(self) -> str:
        """Empty if there were too few events."""
        if self._events < _EVENTS_TO_TELL:
            return ""
        return f", matched at {self._events / self._seconds:,.0f} events/s"


def _warn_of_strangers(path: str, found: Sequence[str], attributes: Sequence[str]) -> None:
    shown, known = (
        ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "") for names in (found, attributes)
    )
    hint = "check the delimiter (a comma) and the case of names"
    print(f"warning: {path} has no attribute of the index: it has {shown}, not {known}; {hint}", file=sys.stderr)


def _chunks(
    matcher: gm.Matcher, batches: Iterator[pa.RecordBatch], watch: _Watch
) -> Iterator[tuple[pa.RecordBatch, gm.Matches]]:
    """Matches chunk by chunk. The number of events per chunk depends on the matches so far."""
    events = _EVENTS_AT_FIRST
    done = 0
    for batch in batches:
        first = 0
        while first < len(batch):
            chunk = batch.slice(first, events)
            with _rows_of_the_file(done), watch.over(len(chunk)):
                matches = matcher.match(chunk)
            done += len(chunk)
            yield chunk, matches
            first += len(chunk)
            per_event = matches.n_pairs / len(chunk)
            events = int(min(2 * events, _EVENTS_AT_MOST, max(1, _PAIRS_AT_ONCE / (per_event + 1e-9))))


@contextmanager
def _rows_of_the_file(before: int) -> Iterator[None]:
    """Make errors name the row of the file, counted from 1 as for CSV and JSON, not the event of the chunk."""
    try:
        yield
    except gm.SchemaError as error:
        message = str(error)
        shifted = re.sub(
            r", but event (\d+) holds ",
            lambda found: f", but row {before + int(found[1]) + 1:,} holds ",
            message,
            count=1,
        )
        raise gm.SchemaError(shifted) from error


def _pairs_schema(source: pa.Schema, columns: Sequence[str], matcher: gm.Matcher) -> pa.Schema:
    import pyarrow as pa

    ids = matcher.match([]).to_arrow().schema.field("subscription")
    return pa.schema([*(source.field(name) for name in columns), ids])


def _pairs(chunk: pa.RecordBatch, matches: gm.Matches, schema: pa.Schema) -> pa.RecordBatch:
    """One row per match: the event's columns and the subscription."""
    import pyarrow as pa

    pairs = matches.to_arrow().combine_chunks()
    event, ids = (pairs.column(name).combine_chunks() for name in ("event", "subscription"))
    columns = [chunk.column(name).take(event) for name in schema.names[:-1]]
    return pa.RecordBatch.from_arrays([*columns, ids], schema=schema)
