"""The command line, run in this process on small files, with the real matcher behind it."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch import cli
from gpumatch.cli import files as tables
from gpumatch.cli import subscriptions as reading
from gpumatch.cli.arguments import schema_of
from gpumatch.cli.commands import match as matching
from gpumatch.parallel import threads
from tests.cli.shell import Shell

SCHEMA = "sym:string,px:float64,at:timestamp[us, tz=UTC]"
ALERTS = {"hot": "sym = 'NVDA' AND px > 900", "cheap": "px < 10 OR sym = 'X'", "new": "at >= '2024-01-01'"}
BARS = [
    {"n": "a", "sym": "NVDA", "px": 950.0, "at": "2024-05-06T07:08:09Z"},
    {"n": "b", "sym": "X", "px": 5.0, "at": "2023-12-31T23:59:59Z"},
    {"n": "c", "sym": "Y", "px": 50.0, "at": None},
]
PAIRS = [("a", "hot"), ("a", "new"), ("b", "cheap")]


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_alerts(tmp_path / "alerts.csv", ALERTS)
    (tmp_path / "bars.jsonl").write_text("".join(json.dumps(bar) + "\n" for bar in BARS))
    return Shell(tmp_path, capsys)


def write_alerts(path: Path, alerts: dict[str, str] | dict[int, str]) -> None:
    table = pa.table({"id": list(alerts), "expr": list(alerts.values())})
    pa.csv.write_csv(table, path)


@pytest.fixture
def index(shell: Shell) -> str:
    shell("build", "alerts.csv", "idx", "--schema", SCHEMA)
    return "idx"


def read_pairs(path: Path, key: str = "n") -> list[tuple[str, str]]:
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = (pq.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)).to_pylist()
    return [(row[key], row["subscription"]) for row in rows]


def test_build_then_match(shell: Shell, index: str) -> None:
    assert shell.out.startswith("3 subscriptions in idx")
    assert gm.load(index).match_one({"px": 5.0}) == ["cheap"]
    shown = shell("match", index, "bars.jsonl", "pairs.parquet")
    assert shown == "3 events, 3 matches; wrote pairs.parquet\n"  # and no rate, which so few do not tell
    assert read_pairs(shell.folder / "pairs.parquet") == PAIRS
    table = pq.read_table("pairs.parquet")
    assert set(table.column_names) == {"n", "sym", "px", "at", "subscription"}
    assert table.column_names[-1] == "subscription"


@pytest.mark.parametrize("events", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("out", [".parquet", ".csv", ".jsonl"])
def test_formats(shell: Shell, index: str, events: str, out: str) -> None:
    shell("match", index, "bars.jsonl", "all.parquet")  # gives us the types
    bars = pq.read_table("all.parquet").schema
    columns = {name: [bar[name] for bar in BARS] for name in ("n", "sym", "px")}
    times = pa.array([bar["at"] for bar in BARS]).cast(bars.field("at").type)
    table = pa.table({**columns, "at": times})
    if events == ".parquet":
        pq.write_table(table, "bars.parquet")
    elif events == ".csv":
        pa.csv.write_csv(table, "bars.csv")
    shell("match", index, f"bars{events}", f"pairs{out}", "--columns", "n")
    assert read_pairs(shell.folder / f"pairs{out}") == PAIRS


def test_the_rate_is_that_of_matching(shell: Shell, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_EVENTS_AT_FIRST", 1)
    monkeypatch.setattr(matching, "_EVENTS_TO_TELL", 2)
    ticks = iter(range(100))  # so many seconds at each look
    monkeypatch.setattr(matching, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    shown = shell("match", index, "bars.jsonl", "pairs.parquet")
    assert shown == "3 events, 3 matches, matched at 2 events/s; wrote pairs.parquet\n"  # the first does not count
    monkeypatch.setattr(matching, "_EVENTS_TO_TELL", 3)
    assert "/s" not in shell("match", index, "bars.jsonl", "pairs.parquet")


def test_to_standard_output(shell: Shell, index: str) -> None:
    out = shell("match", index, "bars.jsonl", "-", "--columns", "n")
    assert out == '"n","subscription"\n' + "".join(f'"{n}","{alert}"\n' for n, alert in PAIRS)
    assert shell.err == "3 events, 3 matches\n"
    assert not [path.name for path in shell.folder.iterdir() if "partial" in path.name or path.name == "-"]
    assert shell("match", index, "bars.jsonl", "-", "--columns", "") == "".join(
        f'"{line}"\n' for line in ("subscription", "hot", "new", "cheap")
    )


def test_standard_output_takes_no_lists(shell: Shell) -> None:
    shell("build", "alerts.csv", "idx", "--schema", SCHEMA)
    pq.write_table(pa.table({"px": [5.0], "tags": [["a"]]}), "lists.parquet")
    assert "cannot write standard output: column 'tags'" in shell.fails("match", "idx", "lists.parquet", "-")
    assert shell("match", "idx", "lists.parquet", "-", "--columns", "px").splitlines()[1:] == ['5,"cheap"']


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("n,sym,px\na,NVDA,950\nb,X,\n", [("a", "hot"), ("b", "cheap")]),
        ('{"n": "a", "px": 5}\n\n{"n": "b", "sym": "X"}\n', [("a", "cheap"), ("b", "cheap")]),
        ('\n  {"n": "é", "px": 5}', [("é", "cheap")]),
        ("n,px\n", []),
    ],
)
def test_from_standard_input(
    shell: Shell, index: str, text: str, pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for out in ("pairs.parquet", "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        printed = shell("match", index, "-", out, "--columns", "n")
        if out == "-":
            assert printed.splitlines()[1:] == [f'"{n}","{alert}"' for n, alert in pairs]
        else:
            assert read_pairs(shell.folder / out) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read standard input: Empty CSV file"),
        ("[1, 2]", "cannot read standard input: line 1 is a JSON array"),
        ('{"px": "x"}', "cannot read standard input: column 'px', row 1: expected a JSON number"),
        ("px\n1\ntwo\n", "cannot read standard input: column 'px', row 2"),
    ],
)
def test_errors_of_standard_input(
    shell: Shell, index: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert message in shell.fails("match", index, "-", "out.csv")


def test_a_reader_that_has_seen_enough(shell: Shell, index: str) -> None:
    (shell.folder / "many.csv").write_text("px\n" + "5\n" * 100_000)
    command = f"{shlex.quote(sys.executable)} -m gpumatch match {index} many.csv -; echo $? > code"
    run = subprocess.run(["sh", "-c", f"({command}) | head -1"], capture_output=True, text=True, check=True)
    assert run.stdout == '"px","subscription"\n'
    assert run.stderr == ""
    assert (shell.folder / "code").read_text() == "141\n"


def test_an_interrupt_is_one_line(shell: Shell, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(matching, "_pairs", interrupted)
    assert shell("match", index, "bars.jsonl", "pairs.csv", code=130) == ""
    assert shell.err == "interrupted\n"
    assert not list(shell.folder.glob("*pairs.csv*"))


def test_tables_in_a_pipe_are_not_cut(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    bad = {"bad": "unknown_attribute_with_a_long_name_" + "x" * 200 + " = 1"}
    write_alerts(shell.folder / "alerts.csv", bad)
    shell("build", "alerts.csv", "idx", "--schema", SCHEMA, "--on-error", "collect")
    assert "unknown_attribute_with_a_long_name_" + "x" * 200 in shell.out
    assert max(map(len, shell.out.splitlines())) < 1000
    monkeypatch.setenv("COLUMNS", "60")
    shell("build", "alerts.csv", "other", "--schema", SCHEMA, "--on-error", "collect")
    assert max(map(len, shell.out.splitlines())) == 60


def test_no_match_writes_an_empty_file(shell: Shell, index: str) -> None:
    (shell.folder / "none.jsonl").write_text('{"px": 50.0}\n')
    assert shell("match", index, "none.jsonl", "pairs.parquet").startswith("1 events, 0 matches")
    assert pq.read_table("pairs.parquet").schema.names == ["px", "subscription"]


def test_no_events(shell: Shell, index: str) -> None:
    (shell.folder / "none.jsonl").write_text("")
    (shell.folder / "none.csv").write_text("sym,px\n")
    for events in ("none.jsonl", "none.csv"):
        assert shell("match", index, events, "pairs.csv").startswith("0 events, 0 matches")
        assert shell.err == ""


def test_only_subscriptions(shell: Shell, index: str) -> None:
    shell("match", index, "bars.jsonl", "pairs.csv", "--columns", "")
    assert (shell.folder / "pairs.csv").read_text().splitlines() == ['"subscription"', '"hot"', '"new"', '"cheap"']


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("columns", [[], ["--columns", ""]])
def test_events_without_attributes_are_pointed_out(shell: Shell, suffix: str, columns: list[str]) -> None:
    write_alerts(shell.folder / "gaps.csv", {"gap": "px IS NULL"})
    shell("build", "gaps.csv", "gaps", "--schema", "px:float64,sym:string")
    with tables.Sink(f"odd{suffix}", pa.schema([("PX", pa.string()), ("n", pa.string())])) as sink:
        sink.write(pa.record_batch({"PX": ["1", "2"], "n": ["a", "b"]}))
    assert shell("match", "gaps", f"odd{suffix}", "pairs.csv", *columns).startswith("2 events, 2 matches")
    assert shell.err.startswith(
        f"warning: odd{suffix} has no attribute of the index: it has 'PX', 'n', not 'px', 'sym'; check the delimiter"
    )
    assert shell.err.count("\n") == 1
    shell("match", "gaps", "bars.jsonl", "pairs.csv")
    assert shell.err == ""


def test_errors_name_rows_of_the_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_EVENTS_AT_FIRST", 8)
    write_alerts(shell.folder / "whole.csv", {"a": "n > 1"})
    shell("build", "whole.csv", "whole", "--schema", "n:int64")
    pq.write_table(pa.table({"n": [1.0] * 99 + [2.5]}), "bad.parquet")
    assert "attribute 'n' is int64, but row 100 holds 2.5" in shell.fails("match", "whole", "bad.parquet", "p.csv")


def test_chunks_shrink_when_matches_are_many(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": list(range(100)), "expr": [f"px > {i}" for i in range(100)]}), "subs.parquet")
    shell("build", "subs.parquet", "many", "--schema", "px:float64")
    table = pa.table({"n": list(range(500)), "px": [float(i % 120) for i in range(500)]})
    pq.write_table(table, "many.parquet")
    monkeypatch.setattr(matching, "_PAIRS_AT_ONCE", 1000)
    monkeypatch.setattr(matching, "_EVENTS_AT_FIRST", 8)
    sizes: list[int] = []
    pairs = matching._pairs
    monkeypatch.setattr(matching, "_pairs", lambda chunk, *rest: (sizes.append(len(chunk)), pairs(chunk, *rest))[1])
    shell("match", "many", "many.parquet", "pairs.parquet", "--columns", "n")
    assert sum(sizes) == 500
    assert max(sizes) < 200
    expected = [(n, i) for n in range(500) for i in range(100) if n % 120 > i]
    assert read_pairs(shell.folder / "pairs.parquet") == expected


def test_schema_from_a_file(shell: Shell) -> None:
    (shell.folder / "schema.json").write_text(json.dumps({"sym": "string", "px": "float64", "at": "timestamp"}))
    shell("build", "alerts.csv", "idx", "--schema", "schema.json")
    assert gm.load("idx").schema.to_dict() == {"sym": "string", "px": "float64", "at": "timestamp[us]"}


def test_schema_from_events(shell: Shell) -> None:
    shell("build", "alerts.csv", "idx", "--events", "bars.jsonl", "--index", "scan")
    assert gm.load("idx").schema.to_dict() == {
        "n": "string",
        "sym": "string",
        "px": "float64",
        "at": "timestamp[us, tz=UTC]",
    }


def test_other_column_names(shell: Shell) -> None:
    pq.write_table(pa.table({"key": [1, 2], "rule": ["px > 1", "px > 2"]}), "rules.parquet")
    shell("build", "rules.parquet", "idx", "--schema", "px:float64", "--id", "key", "--where", "rule")
    assert gm.load("idx").match_one({"px": 1.5}) == [1]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("px:float64", {"px": "float64"}),
        ("px : float64 , tags:list<string>", {"px": "float64", "tags": "list<string>"}),
        ("a:timestamp[us, tz=UTC],b:list<timestamp[ns, tz=Europe/Berlin]>,c:int8", None),
    ],
)
def test_schema_as_text(text: str, schema: dict[str, str] | None) -> None:
    expected = schema or {"a": "timestamp[us, tz=UTC]", "b": "list<timestamp[ns, tz=Europe/Berlin]>", "c": "int8"}
    assert schema_of(text) == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("px", "--schema has 'px', expected name:type"),
        ("px:float64,px:int64", "names 'px' twice"),
        ("px:decimal", "attribute 'px' has type 'decimal', which is not supported"),
        ("gone.json", "gone.json"),
        ("bad.json", "bad.json is not JSON"),
        ("list.json", "must be an object"),
    ],
)
def test_bad_schemas(shell: Shell, schema: str, message: str) -> None:
    (shell.folder / "bad.json").write_text("px")
    (shell.folder / "list.json").write_text("[1]")
    assert message in shell.fails("build", "alerts.csv", "idx", "--schema", schema)
    assert not Path("idx").exists()


BAD = {"good": "px > 1", "typo": "px >> 1", "unknown": "pxx > 1", "type": "px = 'x'"}


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_bad_expressions_are_listed(shell: Shell, on_error: str) -> None:
    write_alerts(shell.folder / "bad.csv", BAD)
    stops = on_error == "raise"
    shown = shell("build", "bad.csv", "idx", "--schema", SCHEMA, "--on-error", on_error, code=2 if stops else 0)
    for name, message in (("typo", " 4 "), ("unknown", "did you mean 'px'?"), ("type", "expected a number")):
        assert any(name in line and message in line for line in shown.splitlines()), shown
    assert "good" not in shown
    if stops:
        assert shell.err.startswith("error: 3 of 4 subscriptions are bad, so no index was written")
        assert not Path("idx").exists()
    else:
        assert "1 subscriptions in idx" in shown
        assert list(gm.load("idx").ids) == ["good"]


def test_a_long_list_of_bad_expressions_is_cut(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 7)
    write_alerts(shell.folder / "bad.csv", {i: "px >" if i % 2 else "px > 1" for i in range(200)})
    shown = shell("build", "bad.csv", "idx", "--schema", SCHEMA, "--on-error", "collect")
    assert "and 50 more" in shown
    assert "100 subscriptions in idx" in shown


def test_ids_must_differ(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 2)
    (shell.folder / "twice.csv").write_text("id,expr\na,px > 1\nb,px > 1\na,px > 2\n")
    assert "'a'" in shell("build", "twice.csv", "idx", "--schema", SCHEMA, code=2)


def test_explain(shell: Shell, index: str) -> None:
    shown = shell("explain", index, "hot", "--event", '{"sym": "NVDA", "px": 3}')
    assert "px > 900" in shown
    assert "px > 900" in shell("explain", index, "hot", "--event", '{"px": 950, "at": "2024-01-01T00:00:00Z"}')


def test_explain_refuses(shell: Shell, index: str) -> None:
    assert "'warm'" in shell.fails("explain", index, "warm", "--event", "{}")
    assert "did you mean 'px'?" in shell.fails("explain", index, "hot", "--event", '{"pxx": 1}')
    assert 'an object such as {"px": 3.5}' in shell.fails("explain", index, "hot", "--event", "{'px': 1}")


def test_explain_takes_numbers_as_ids(shell: Shell) -> None:
    (shell.folder / "n.jsonl").write_text('{"id": 7, "expr": "px > 1"}\n{"id": 8, "expr": "px > 2"}\n')
    shell("build", "n.jsonl", "n", "--schema", "px:float64")
    assert "px > 2" in shell("explain", "n", "8", "--event", '{"px": 3}')


def test_ids_of_csv_are_text(shell: Shell) -> None:
    (shell.folder / "n.csv").write_text("id,expr\n007,px > 1\n010,px > 2\n")
    shell("build", "n.csv", "n", "--schema", "px:float64")
    assert list(gm.load("n").ids) == ["007", "010"]
    assert "px > 2" in shell("explain", "n", "010", "--event", '{"px": 3}')


def test_the_events_are_not_overwritten(shell: Shell, index: str) -> None:
    before = (shell.folder / "bars.jsonl").read_bytes()
    (shell.folder / "link.jsonl").symlink_to("bars.jsonl")
    for out in ("bars.jsonl", "./bars.jsonl", "link.jsonl"):
        assert f"{out} is the file of events" in shell.fails("match", index, "bars.jsonl", out)
    assert (shell.folder / "bars.jsonl").read_bytes() == before


def test_doubled_headers(shell: Shell, index: str) -> None:
    (shell.folder / "twice.csv").write_text("id,expr,px,px\na,px > 1,1,2\n")
    doubled = "twice.csv has 2 columns named 'px'; drop or rename all but one"
    assert doubled in shell.fails("match", index, "twice.csv", "p.csv")
    assert doubled in shell.fails("match", index, "twice.csv", "p.csv", "--columns", "id")
    assert doubled in shell.fails("build", "alerts.csv", "i2", "--events", "twice.csv")
    shell("build", "twice.csv", "i2", "--schema", "px:float64")
    (shell.folder / "twice.csv").write_text("id,expr,id\na,px > 1,1\n")
    assert "2 columns named 'id'" in shell.fails("build", "twice.csv", "i3", "--schema", "px:float64")


@pytest.mark.parametrize("error", [gm.IdError("bad"), OSError("bad"), pa.ArrowKeyError("bad"), pa.ArrowInvalid("bad")])
def test_errors_are_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr("gpumatch.cli.commands.info.run", fail)
    assert shell.fails("info", "idx").strip().count("\n") == 0


def test_bad_number_of_threads(shell: Shell, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMATCH_NUM_THREADS", "many")
    monkeypatch.setattr(threads, "_count", None)
    assert "GPUMATCH_NUM_THREADS" in shell.fails("match", index, "bars.jsonl", "p.csv")


def test_info(shell: Shell, index: str) -> None:
    shown = shell("info", index)
    for words in (
        ("subscriptions", "3"),
        ("px", "float64"),
        ("at", "timestamp[us, tz=UTC]"),
        ("files", "bytes"),
        ("index", "scan"),
        ("segment 0",),
        ("parts", "index scan, clauses 4, bytes "),
    ):
        assert any(all(word in line for word in words) for line in shown.splitlines()), shown


def test_info_draws(shell: Shell, index: str) -> None:
    pytest.importorskip("matplotlib")
    assert shell("info", index, "--plot", "p.svg").endswith("wrote p.svg\n")
    assert "Scan(), 4 clauses" in Path("p.svg").read_text()
    assert shell("info", f"{index}/", "--plot").endswith("wrote idx.png\n")
    assert Path("idx.png").read_bytes().startswith(b"\x89PNG")
    assert ".png, .ps, " in shell.fails("info", index, "--plot", "p.xls")
    assert "no/p.png" in shell.fails("info", index, "--plot", "no/p.png")


def test_info_draws_only_with_matplotlib(shell: Shell, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = shell.fails("info", index, "--plot", "p.png")
    assert message.strip().endswith("is not installed: pip install matplotlib")
    assert not Path("p.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("match", "nowhere", "bars.jsonl", "p.csv"), "nowhere"),
        (("match", "idx", "gone.csv", "p.csv"), "gone.csv does not exist"),
        (("match", "idx", "bars.jsonl", "p.xls"), "p.xls has the suffix '.xls'; expected one of .parquet"),
        (("match", "idx", "bars.jsonl", "no/p.csv"), "cannot write no/p.csv"),
        (("match", "idx", "bars.jsonl", "p.csv", "--columns", "n,zz"), "no column 'zz'"),
        (("match", "idx", "subscription.csv", "p.csv"), "have a column 'subscription'"),
        (("info", "nowhere"), "nowhere"),
        (("build", "alerts.csv", "i2", "--schema", SCHEMA, "--id", "name"), "no column 'name'"),
        (("build", "alerts.csv", "i2", "--schema", SCHEMA, "--index", "magic"), "magic"),
    ],
)
def test_errors(shell: Shell, index: str, arguments: tuple[str, ...], message: str) -> None:
    (shell.folder / "subscription.csv").write_text("px,subscription\n1,a\n")
    assert message in shell.fails(*arguments)
    assert not Path("p.csv").exists()
    assert not Path("i2").exists()


def test_wrong_value_in_the_events(shell: Shell, index: str) -> None:
    (shell.folder / "bad.csv").write_text("px\n1\nx\n")
    assert "bad.csv" in shell.fails("match", index, "bad.csv", "p.csv")
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("match", "a", "b", "c", "--threads", "0")])
def test_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: gpumatch" in capsys.readouterr().err


def test_build_needs_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["build", "a.csv", "idx"])
    assert "--schema --events is required" in capsys.readouterr().err


def test_as_a_program(shell: Shell, index: str) -> None:
    """The threads of a process, the entry point, and plain output where there is no terminal."""
    shell("match", index, "bars.jsonl", "p.csv")  # what is compiled now is not announced below
    command = [sys.executable, "-m", "gpumatch", "match", index, "bars.jsonl", "p.csv", "--threads", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("3 events, 3 matches")
    assert run.stderr == ""
    version = subprocess.run(
        [sys.executable, "-m", "gpumatch", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout == f"gpumatch {gm.__version__}\n"
