"""The command line: ``gpumatch demo | build | match | explain | info | bench | doctor | kernels | roofline | …``.

Each command imports what it needs when it runs, so that ``gpumatch --help`` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import gpumatch as gm

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.progress import Progress

    from gpumatch.cli.files import Source
    from gpumatch.proof.compiled import Compiled

_PAIRS_AT_ONCE = 2_000_000  # that a chunk of events should yield, so that memory stays bounded
_EVENTS_AT_FIRST = 1_024
_EVENTS_AT_MOST = 65_536
_EVENTS_TO_TELL = 10_000  # how fast they were matched
_ROWS_AT_ONCE = 50_000  # of subscriptions, between two moves of the bar
_ROWS_SHOWN = 50
_INDEXES = "auto (default), scan, pstbloom, gem, tama, psthash, ladder or atree"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code is 0, 2 for what the user can mend, or 130 after Ctrl-C."""
    try:
        args = _parser().parse_args(argv)
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _closed()
    except _mendable() as error:
        _print_error(error)
        return 2
    return 0


def _closed() -> int:
    """The reader of standard output, such as head, has seen enough. What is left in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _mendable() -> tuple[type[Exception], ...]:
    """What a message is enough for. Asked for only when something fails, so that Arrow is not imported before."""
    import pyarrow as pa

    return gm.GpumatchError, OSError, UnicodeError, pa.ArrowException


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpumatch", description="Match events against millions of subscriptions.")
    parser.add_argument("--version", action="version", version=f"gpumatch {gm.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands.add_parser("demo", help="stock alerts through Spark, or in process without Java"))
    _add_build(commands.add_parser("build", help="make an index from a file of subscriptions"))
    _add_match(commands.add_parser("match", help="match a file of events and write the pairs"))
    _add_explain(commands.add_parser("explain", help="tell why a subscription matches an event, or does not"))
    _add_info(commands.add_parser("info", help="show what an index holds"))
    _add_bench(commands.add_parser("bench", help="time a workload on a device, after a check of its results"))
    _add_doctor(commands.add_parser("doctor", help="show what this machine offers, and what to install"))
    _add_warm_up(commands.add_parser("warm-up", help="compile for this machine now, not when something is matched"))
    _add_kernels(commands.add_parser("kernels", help="compile the CUDA kernels and show what they take of a GPU"))
    _add_roofline(commands.add_parser("roofline", help="tell how many events per second a GPU cannot exceed"))
    _add_route_sim(commands.add_parser("route-sim", help="send events through an overlay of brokers, simulated"))
    return parser


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subscriptions", type=_positive, default=200_000, metavar="N", help="default: 200,000")
    parser.add_argument("--events", type=_positive, default=500_000, metavar="N", help="default: 500,000")
    parser.add_argument("--out", default="demo-output", metavar="DIR", help="folder for the results")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="another seed draws other data")
    parser.set_defaults(run=_demo)


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscriptions", metavar="SUBS", help="a .parquet, .csv or .jsonl file, one subscription a row")
    parser.add_argument("out", metavar="OUT", help="the folder of the index")
    schema = parser.add_mutually_exclusive_group(required=True)
    schema.add_argument("--schema", help='\'px:float64,sym:string\', or a JSON file {"px": "float64", …}')
    schema.add_argument("--events", metavar="FILE", help="take names and types from the columns of an event file")
    parser.add_argument("--id", default="id", metavar="COLUMN", help="the column of ids (default: id)")
    parser.add_argument("--where", default="expr", metavar="COLUMN", help="the column of expressions (default: expr)")
    parser.add_argument("--index", default="auto", help=_INDEXES)
    parser.add_argument(
        "--on-error",
        choices=("raise", "collect"),
        default="raise",
        help="write no index if an expression is bad (default), or leave the bad ones out; either way they are listed",
    )
    parser.set_defaults(run=_build)


def _add_match(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help="the folder of an index")
    parser.add_argument(
        "events",
        metavar="EVENTS",
        help="a .parquet, .csv or .jsonl file, one event a row; - for standard input, CSV or JSON lines",
    )
    parser.add_argument(
        "out", metavar="OUT", help="the .parquet, .csv or .jsonl file to write; - for standard output, as CSV"
    )
    parser.add_argument(
        "--columns", metavar="A,B", help="event columns to write beside subscription (default: all; '': none)"
    )
    parser.add_argument("--threads", type=_positive, metavar="N", help="threads to use (default: all cores)")
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda:N, or auto (default): a CUDA device if there is one"
    )
    parser.set_defaults(run=_match)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help="the folder of an index")
    parser.add_argument("id", metavar="ID", help="the subscription's id")
    parser.add_argument("--event", required=True, metavar="JSON", help="the event: '{\"px\": 3}'")
    parser.set_defaults(run=_explain)


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="IDX", help="the folder of an index")
    parser.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="also draw what the arrays hold: into a .png, .svg or .pdf file (default: IDX.png in this folder)",
    )
    parser.set_defaults(run=_info)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    from gpumatch.workloads import WORKLOADS

    parser.add_argument(
        "workloads",
        nargs="+",
        metavar="WORKLOAD",
        choices=tuple(WORKLOADS),
        help=f"of {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda:N, or auto (default): a CUDA device if there is one"
    )
    parser.add_argument("--index", default="auto", help=_INDEXES)
    parser.add_argument("--scale", type=_share, default=1.0, help="share of the published number of subscriptions")
    parser.add_argument("--events", type=_positive, default=100_000, metavar="N", help="default: 100,000")
    parser.add_argument(
        "--batch", type=_positive, default=50_000, metavar="N", help="events per call (default: 50,000)"
    )
    parser.add_argument("--repeats", type=_positive, default=3, metavar="N", help="passes, of which the best counts")
    parser.add_argument("--threads", type=_positive, metavar="N", help="threads to use (default: all cores)")
    parser.add_argument("--save", type=_new_file, metavar="FILE", help="also write what is shown as JSON")
    parser.set_defaults(run=_bench)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_doctor)


def _add_warm_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("indexes", nargs="*", metavar="INDEX", help="names of indexes (default: all)")
    parser.add_argument("--threads", type=_positive, metavar="N", help="processes to use (default: all cores)")
    parser.set_defaults(run=_warm_up)


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    from gpumatch.proof.occupancy import MULTIPROCESSORS

    parser.add_argument(
        "--arch",
        action="append",
        choices=tuple(MULTIPROCESSORS),
        help="compile for this one; may be given several times (default: sm_75, sm_80, sm_90, sm_100 and sm_120)",
    )
    parser.add_argument(
        "--check", action="store_true", help="fail on spills, on local memory, and on an occupancy under 50 %%"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the .ptx and .cubin files in this folder")
    parser.add_argument("--save", type=_new_file, metavar="FILE", help="also write what is shown as JSON")
    parser.set_defaults(run=_kernels)


def _add_roofline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", help="w1-100k, w1-1m, w2, w3, w4, w5, w6, ads")
    parser.add_argument("--subscriptions", type=_positive, metavar="N", help="default: as many as were published")
    parser.add_argument(
        "--index",
        nargs="+",
        default=["auto"],
        metavar="NAME",
        help="auto (default), scan, pstbloom, psthash, gem, triangle, tama, ladder or atree",
    )
    parser.add_argument("--events", type=_positive, default=256, metavar="N", help="that are counted; default: 256")
    parser.add_argument(
        "--gpu", nargs="+", default=[], metavar="NAME", help="T4, A10, L4, A100-40GB, A100, H100, B200 (default: all)"
    )
    parser.add_argument("--save", type=_new_file, metavar="FILE.json", help="also write all figures as JSON")
    parser.set_defaults(run=_roofline)


def _add_route_sim(parser: argparse.ArgumentParser) -> None:
    from gpumatch.cli.route_sim import add_arguments

    add_arguments(parser, _positive, _new_file)
    parser.set_defaults(run=_route_sim)


def _demo(args: argparse.Namespace) -> None:
    from gpumatch.cli import demo

    demo.run(args.subscriptions, args.events, args.out, args.seed)


def _build(args: argparse.Namespace) -> None:
    from gpumatch.cli import files as tables

    schema = _schema(args.schema) if args.schema else tables.infer_schema(args.events)
    matcher = gm.Matcher(schema, index=args.index)
    start = time.perf_counter()
    table = tables.read_table(args.subscriptions, [args.id, args.where])
    rejected = []
    with _progress() as bar:
        task = bar.add_task("building", total=len(table))
        for first in range(0, len(table), _ROWS_AT_ONCE):
            rows = table.slice(first, _ROWS_AT_ONCE)
            rejected += matcher.add_table(rows, id=args.id, where=args.where, on_error="collect")
            bar.advance(task, len(rows))
    if rejected:
        bad = [(str(it.id), "" if it.position is None else str(it.position), it.message) for it in rejected]
        _print_table(("id", "position", "message"), bad)
    if rejected and args.on_error == "raise":
        found = f"{len(rejected):,} of {len(table):,} subscriptions are bad, so no index was written"
        raise gm.GpumatchError(f"{found}; mend them, or leave them out with --on-error collect")
    matcher.save(args.out)
    print(f"{len(matcher):,} subscriptions in {args.out} after {time.perf_counter() - start:.1f} s")


def _match(args: argparse.Namespace) -> None:
    from gpumatch.cli import files as tables

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    columns = None if args.columns is None else list(filter(None, args.columns.split(",")))
    tables.format_of(args.out)
    if Path(args.out).exists() and Path(args.events).exists() and Path(args.out).samefile(args.events):
        raise gm.GpumatchError(f"{args.out} is the file of events; write the matches to another one")
    matcher = gm.load(args.index, device=args.device)
    with tables.as_file(args.events) as path:
        source = tables.open_table(path, tables.arrow_types(matcher.schema), columns)
        if source.names and not any(name in matcher.schema for name in source.names):
            shown = "standard input" if args.events == tables.STANDARD else args.events
            _warn_of_strangers(shown, source.names, matcher.schema.names)
        written = source.schema.names if columns is None else columns
        if "subscription" in written:
            raise gm.GpumatchError("the events have a column 'subscription'; choose others with --columns")
        done = _write_pairs(matcher, source, args.out, _pairs_schema(source.schema, written, matcher))
    if args.out == tables.STANDARD:
        print(done, file=sys.stderr)
    else:
        print(f"{done}; wrote {args.out}")


def _write_pairs(matcher: gm.Matcher, source: Source, out: str, schema: pa.Schema) -> str:
    """Match all events and write the pairs. Returns how many there were, and how fast."""
    from gpumatch.cli import files as tables

    events = pairs = 0
    watch = _Watch()
    with tables.Sink(out, schema) as sink, _progress() as bar:
        task = bar.add_task("matching", total=1.0)
        for chunk, matches in _chunks(matcher, source.batches, watch):
            sink.write(_pairs(chunk, matches, schema))
            events, pairs = events + len(chunk), pairs + matches.n_pairs
            bar.update(task, completed=source.done(), description=f"{pairs:,} matches")
        bar.update(task, completed=1.0)
    return f"{events:,} events, {pairs:,} matches{watch.rate()}"


class _Watch:
    """Times matching, without reading and writing, and without the first chunk, which may load or compile kernels."""

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
        """Nothing where there were too few events to tell."""
        if self._events < _EVENTS_TO_TELL:
            return ""
        return f", matched at {self._events / self._seconds:,.0f} events/s"


def _explain(args: argparse.Namespace) -> None:
    from gpumatch.cli import files as tables

    matcher = gm.load(args.index)
    event = tables.parse_row(args.event, tables.arrow_types(matcher.schema))
    print(matcher.explain(event, _known_id(matcher, args.id)))


def _info(args: argparse.Namespace) -> None:
    matcher = gm.load(args.index)
    picture = args.plot
    if picture is not None:
        from gpumatch.cli import pictures

        picture = picture or f"{Path(args.index).resolve().name}.png"
        pictures.draw(matcher, picture)
    files = [path for path in Path(args.index).rglob("*") if path.is_file()]
    stats = matcher.stats()
    segments = stats.pop("segments")
    rows = [(name, _shown(value)) for name, value in stats.items()]
    rows += [("plan", str(matcher.plan()))]
    rows += [("files", f"{len(files):,} of {sum(path.stat().st_size for path in files):,} bytes in all")]
    _print_table(("index", args.index), rows)
    if segments:
        columns = [f"segment {number}" for number in range(len(segments))]
        _print_table(("", *columns), [(name, *(_shown(part[name]) for part in segments)) for name in segments[0]])
    _print_table(("attribute", "type"), list(matcher.schema.to_dict().items()))
    if picture is not None:
        print(f"wrote {picture}")


def _bench(args: argparse.Namespace) -> None:
    from dataclasses import asdict

    from gpumatch.cli.benchmark import Timing, measure

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    timings: list[Timing] = []
    with _progress() as bar:
        task = bar.add_task("", total=len(args.workloads))
        for name in args.workloads:
            bar.update(task, description=name)
            sizes = (args.scale, args.events, args.batch, args.repeats)
            timings += measure(name, args.device, args.index, *sizes)
            bar.advance(task)
    columns = ("workload", "device", "index", "events", "µs/event", "events/s", "matches")
    rows = []
    for t in timings:
        numbers = (f"{t.us:.2f}", f"{t.rate:,.0f}", f"{t.matches:,.1f}")
        rows.append((t.workload, t.device, t.index, t.events_from, *numbers))
    _print_table(columns, rows)
    if args.save:
        args.save.write_text(
            json.dumps([{**asdict(timing), "rate": timing.rate} for timing in timings], indent=1) + "\n"
        )


def _doctor(args: argparse.Namespace) -> None:
    from dataclasses import asdict

    from gpumatch.cli.doctor import examine

    findings = examine()
    if args.json:
        checks = [asdict(finding) for finding in findings]
        print(json.dumps({"gpumatch": gm.__version__, "checks": checks}, indent=2))
        return
    rows = [(("ok" if it.found else "–"), it.name, "\n".join(filter(None, (it.detail, it.hint)))) for it in findings]
    _print_table(("", f"gpumatch {gm.__version__}", "found, or what to do"), rows)


def _warm_up(args: argparse.Namespace) -> None:
    from gpumatch.warming import cache_folder, names_of, warm_up

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    names = names_of(args.indexes or None)
    with _progress() as bar:
        task = bar.add_task(f"compiling for {len(names)} indexes", total=len(names))
        found = warm_up(names, lambda name, count: bar.advance(task))
    _print_table(("index", "compiled"), [(name, f"{count:,}") for name, count in found.items()])
    print(f"kept in {cache_folder()}")


def _kernels(args: argparse.Namespace) -> None:
    from gpumatch.proof import compiled

    archs = tuple(dict.fromkeys(args.arch or compiled.ARCHITECTURES))
    names = tuple(compiled.load_kernels())
    done: list[compiled.Compiled] = []
    with _progress() as bar:
        task = bar.add_task(f"compiling {len(names)} kernels", total=len(names))
        for several in compiled.compile_all(names, archs, args.keep):
            done += several
            bar.advance(task)
    for arch in archs:
        _print_kernels(arch, [it for it in done if it.arch == arch])
    if args.save is not None:
        args.save.write_text(compiled.report(done))
    bad = [
        f"{it.kernel} for {it.arch}: {problem}" for it in done if args.check or it.error for problem in it.problems()
    ]
    if bad:
        raise gm.GpumatchError("\n".join((f"{len(bad):,} problems in {len(done):,} compiled kernels", *bad)))
    print(f"{len(names):,} kernels compiled for {', '.join(archs)}" + (", all fit" if args.check else ""))


def _print_kernels(arch: str, kernels: Sequence[Compiled]) -> None:
    """A narrow table, so that names stay whole on a terminal of 80 columns. Sizes are in bytes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(arch, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("threads", "regs", "shared", "local", "spills", "occupancy"):
        table.add_column(name, justify="right")
    for it in kernels:
        if it.usage is None or it.occupancy is None:
            table.add_row(it.kernel, str(it.threads), "failed")
            continue
        sizes = (it.threads, it.usage.registers, it.usage.shared, it.usage.local)
        spills = f"{it.usage.spill_stores:,}/{it.usage.spill_loads:,}"
        table.add_row(it.kernel, *(f"{size:,}" for size in sizes), spills, f"{100 * it.occupancy.share:.0f} %")
    _console().print(table)


def _roofline(args: argparse.Namespace) -> None:
    from gpumatch.proof import roofline

    gpus = roofline.gpus_named(args.gpu)
    pairs = roofline.pairs_named(args.workloads, args.index)
    done = []
    with _progress() as bar:
        task = bar.add_task("counting", total=len(pairs))
        for workload, index in pairs:
            bar.update(task, description=f"{workload}, {index}")
            done.append(roofline.count_workload(workload, index, args.subscriptions, args.events))
            bar.advance(task)
    for counted in done:
        _console().print(roofline.kernel_table(counted, gpus), roofline.bound_table(counted, gpus))
    if len(done) > 1:
        _console().print(roofline.summary_table(done, gpus))
    _console().print("\n".join(roofline.ASSUMPTIONS))
    if args.save is not None:
        args.save.write_text(json.dumps(roofline.to_json(done, gpus), indent=1) + "\n")


def _route_sim(args: argparse.Namespace) -> None:
    from gpumatch.cli import route_sim

    with _progress() as bar:
        report = route_sim.run(args, bar)
    if report.title:
        print(report.title)
    for header, rows in report.tables:
        _print_table(header, rows)
    for line in report.lines:
        print(line)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return share


def _new_file(text: str) -> Path:
    """A file that can be written, asked before the work and not after it."""
    path = Path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, found {text!r}")
    return path


def _schema(text: str) -> dict[str, str]:
    """A schema as ``name:type,name:type``, or the name of a JSON file that maps names to types."""
    if text.endswith(".json"):
        try:
            given = json.loads(Path(text).read_text())
        except ValueError as error:
            raise gm.SchemaError(f"{text} is not JSON: {error}") from None
        if not isinstance(given, dict) or not all(isinstance(kind, str) for kind in given.values()):
            raise gm.SchemaError(f'{text} must hold one object from names to types, such as {{"px": "float64"}}')
        return given
    schema = {}
    for item in re.split(r",(?![^<\[]*[>\]])", text):  # not the comma of timestamp[us, tz=UTC]
        name, colon, kind = item.partition(":")
        if not colon:
            raise gm.SchemaError(f"--schema has {item.strip()!r}, expected name:type, as in px:float64,sym:string")
        if name.strip() in schema:
            raise gm.SchemaError(f"--schema names {name.strip()!r} twice")
        schema[name.strip()] = kind.strip()
    return schema


def _known_id(matcher: gm.Matcher, text: str) -> str | int:
    """The id as the index knows it: a number where its ids are numbers."""
    if text not in matcher and re.fullmatch(r"[+-]?\d+", text) and int(text) in matcher:
        return int(text)
    return text


def _warn_of_strangers(path: str, found: Sequence[str], attributes: Sequence[str]) -> None:
    held, known = (", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "") for names in (found, attributes))
    hint = "are delimiter (a comma), upper and lower case right?"
    print(
        f"warning: {path} has none of the index's attributes: it has {held}, they are {known}; {hint}", file=sys.stderr
    )


def _chunks(
    matcher: gm.Matcher, batches: Iterator[pa.RecordBatch], watch: _Watch
) -> Iterator[tuple[pa.RecordBatch, gm.Matches]]:
    """Matches chunk by chunk, as many events at once as the matches so far make it wise."""
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
    """Errors that name an event of a chunk name the row of the file instead, counted from 1 as for CSV and JSON."""
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


def _shown(value: object) -> str:
    if isinstance(value, list):  # parts of a segment, a line each
        return "\n".join(", ".join(f"{name} {_shown(fact)}" for name, fact in part.items()) for part in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, gone when it is done; none where that is not a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = _console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first rows, and how many more there are."""
    from rich.table import Table

    table = Table(*header)
    for row in rows[:_ROWS_SHOWN]:
        table.add_row(*row)
    _console().print(table)
    if len(rows) > _ROWS_SHOWN:
        print(f"and {len(rows) - _ROWS_SHOWN:,} more")


def _print_error(error: Exception) -> None:
    """One red line, and below it the caret's lines where the error points into a text."""
    from rich.text import Text

    line, *rest = str(error).split("\n")
    console = _console(stderr=True)
    console.print(Text(f"error: {line}", style="bold red"), soft_wrap=True)
    for text in rest:
        console.print(text, soft_wrap=True)


def _console(stderr: bool = False) -> Console:
    from gpumatch.cli.console import make_console

    return make_console(stderr)


if __name__ == "__main__":
    sys.exit(main())
