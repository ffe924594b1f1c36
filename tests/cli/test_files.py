"""Files by suffix: what is written comes back, types come from the index, and errors name file and column."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpumatch.cli import files as tables
from gpumatch.cli import jsonlines
from gpumatch.errors import GpumatchError
from gpumatch.schema import Schema

SCHEMA = Schema.of(
    {
        "n": "int64",
        "px": "float64",
        "sym": "string",
        "up": "bool",
        "day": "date",
        "wall": "timestamp",
        "at": "timestamp[us, tz=UTC]",
        "fine": "timestamp[ns]",
    }
)
TYPES = tables.arrow_types(SCHEMA)
UTC = dt.UTC
TABLE = pa.table(
    {
        "n": [2**62 + 1, None, -3],
        "px": [0.1, None, float("inf")],
        "sym": ['a "b", c\n', "", None],
        "up": [True, False, None],
        "day": [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)],
        "wall": [dt.datetime(2024, 1, 2, 3, 4, 5, 678), None, dt.datetime(1900, 1, 1)],
        "at": [dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None, dt.datetime(1969, 1, 1, tzinfo=UTC)],
        "fine": pa.array([1_700_000_000_123_456_789, None, 0], pa.timestamp("ns")),
    },
    schema=pa.schema(list(TYPES.items())),
)


def write(path: Path, table: pa.Table) -> Path:
    with tables.Sink(path, table.schema) as sink:
        for batch in table.to_batches(max_chunksize=2):
            sink.write(batch)
    return path


def read(path: Path, types: tables.Types = TYPES, columns: list[str] | None = None) -> pa.Table:
    source = tables.open_table(path, types, columns)
    table = pa.Table.from_batches(source.batches, source.schema)
    assert source.done() == 1.0
    return table


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".ndjson", ".json", ".CSV"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", TABLE)
    assert read(path).equals(TABLE)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_lists_round_trip(tmp_path: Path, suffix: str) -> None:
    types = tables.arrow_types(Schema.of({"tags": "list<string>", "days": "list<date>"}))
    table = pa.table(
        {"tags": [["a", None], [], None], "days": [[dt.date(2024, 1, 2)], None, []]},
        schema=pa.schema(list(types.items())),
    )
    assert read(write(tmp_path / f"t{suffix}", table), types).equals(table)


def test_json_is_json(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", pa.table({"px": [float("nan"), 1.5], "day": [dt.date(2024, 1, 2), None]}))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"px": None, "day": "2024-01-02"},
        {"px": 1.5, "day": None},
    ]


def test_csv_takes_its_types_from_the_index(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('zip,sym,px\n007,NA,1\n,"",\n')
    table = read(path, {"sym": pa.string(), "px": pa.float64(), "absent": pa.int64()})
    assert table.to_pylist() == [{"zip": "007", "sym": "NA", "px": 1.0}, {"zip": None, "sym": "", "px": None}]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_chosen_columns_and_attributes_are_read(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", pa.table({"a": [1], "b": [2], "c": [3]}))
    assert read(path, {"b": pa.int64()}, ["c"]).select(["b", "c"]).to_pylist() == [
        {"b": 2, "c": 3 if suffix != ".csv" else "3"}
    ]
    assert read(path, {"b": pa.int64()}, ["c"]).column_names == ["b", "c"]
    with pytest.raises(GpumatchError, match=r"no column 'cc'; did you mean 'c'\?; it has"):
        tables.open_table(path, {"b": pa.int64()}, ["cc"])


def test_json_lines_may_lack_attributes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"px": 1}\n{"sym": "a", "px": null}\n{}\n')
    types = {"sym": pa.string(), "px": pa.float64()}
    assert read(path, types).to_pylist() == [
        {"sym": None, "px": 1.0},
        {"sym": "a", "px": None},
        {"sym": None, "px": None},
    ]


MIXED = """{"x": 1, "n": 1, "y": {"a": [1]}, "at": "2024-01-01 00:00:00"}
{"x": "one", "n": 2, "y": {"a": 2}, "late": 1}

{"x": null, "n": 3, "late": 2.5}
{"x": ["ü", 1.5]}
"""


@pytest.mark.parametrize("block", [1, 8 << 20])
def test_json_fields_that_are_no_attributes(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "_BLOCK_BYTES", block)
    path = tmp_path / "t.jsonl"
    path.write_text(MIXED)
    types = {"n": pa.int64(), "absent": pa.float64()}
    table = read(path, types)
    assert table.column_names == ["x", "n", "y", "at", "late"]
    assert table["x"].to_pylist() == ["1", "one", None, '["ü", 1.5]']
    assert table["n"].to_pylist() == [1, 2, 3, None]
    assert table["y"].to_pylist() == ['{"a": [1]}', '{"a": 2}', None, None]
    assert table["at"].to_pylist() == ["2024-01-01 00:00:00", None, None, None]
    assert table["late"].to_pylist() == [None, 1.0, 2.5, None]
    assert read(path, types, []).to_pydict() == {"n": [1, 2, 3, None]}
    with pytest.raises(GpumatchError, match="'x' has values of several types"):
        tables.infer_schema(path)
    with pytest.raises(GpumatchError, match="'x' has values of several types"):
        tables.read_table(path, ["n", "x"])


def test_json_objects_without_fields_are_events(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("{}\n\n{}\n")
    source = tables.open_table(path, TYPES)
    assert source.schema.names == []
    assert sum(map(len, source.batches)) == 2


WHOLE = ["1", "2.0", "9223372036854775807", "-9223372036854775808.00", "1e3", "-0.0", "2.00000000000000000000"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_whole_numbers_for_integers(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    rows = [f"{text},a" if suffix == ".csv" else f'{{"n": {text}, "x": "a"}}' for text in WHOLE]
    gap = [",a", " 7 ,a"] if suffix == ".csv" else ['{"x": "a"}', '{"n": 7, "x": "a"}']
    path.write_text("\n".join([*(["n,x"] if suffix == ".csv" else []), *rows, *gap]))
    expected = [1, 2, 2**63 - 1, -(2**63), 1000, 0, 2, None, 7]
    assert read(path, {"n": pa.int64()})["n"].to_pylist() == expected


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("bad", ["2.5", "9223372036854775808", "1e-30"])
def test_fractions_for_integers(tmp_path: Path, suffix: str, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(jsonlines, "_BLOCK_BYTES", 100)
    path = tmp_path / f"t{suffix}"
    values = ["1", "2.0"] * 50 + [bad]
    path.write_text("\n".join(["n,x", *(f"{value},a" for value in values)]))
    if suffix == ".jsonl":
        path.write_text("\n".join(f'{{"n": {value}}}' for value in values))
    with pytest.raises(GpumatchError, match=r"cannot read .*: column 'n', row 101: expected a whole number, found"):
        read(path, {"n": pa.int64()})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"n": 1}]', "line 1 is a JSON array; expected JSON lines, one object per line"),
        ('[\n{"n": 1}\n]', "line 1 begins a JSON array; expected JSON lines"),
        ('{"n": 1}\n7', "line 2 is a JSON number; expected JSON lines"),
        ('{"n": 1}\n\n{"n": 2', "line 3 is not JSON"),
        ('{"n": 1}\n{"n": "x"}', "column 'n', row 2: expected a JSON number, found string"),
        ('{"up": 1}', "column 'up', row 1: expected a JSON boolean, found number"),
    ],
)
def test_broken_json(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(GpumatchError, match=rf"cannot read .*t\.json: {message}"):
        read(path)


@pytest.mark.parametrize("block", [1, 8 << 20])
def test_json_is_utf8(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "_BLOCK_BYTES", block)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"x": "a"}\n\n{"x": "\xff"}\n')
    with pytest.raises(GpumatchError, match="line 3 is not UTF-8"):
        read(path)


def test_json_lists_of_integers(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"t": [1, 2.0]}\n{"t": []}\n{"t": [null, 9007199254740993]}\n')
    assert read(path, {"t": pa.list_(pa.int64())})["t"].to_pylist() == [[1, 2], [], [None, 2**53 + 1]]
    path.write_text('{"t": [1, 2.0]}\n{"t": null}\n{"t": [3, 3.5]}\n{"t": [4]}\n')
    with pytest.raises(GpumatchError, match=r"column 't', row 3: expected a whole number, found \[3, 3\.5\]"):
        read(path, {"t": pa.list_(pa.int64())})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,px\n1,2\n1,x\n", "column 'px', row 2: .*'x'"),
        ("up\ntrue\nFALSE\n2\n", "column 'up', row 3: .*2"),
        ("day\n2024-01-01\n2024-02-30\n", "column 'day', row 2: .*2024-02-30"),
        ("n,px\n1,2\n1\n", "Expected 2 columns, got 1"),
    ],
)
def test_broken_csv(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(GpumatchError, match=rf"cannot read .*t\.csv: .*{message}"):
        read(path)


def test_integers_of_any_width(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("n\n300\n")
    assert read(path, tables.arrow_types(Schema.of({"n": "int8"})))["n"].to_pylist() == [300]


@pytest.mark.parametrize("name", ["spark.parquet", "spark"])
def test_folder_of_parquet_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for part in range(3):
        pq.write_table(pa.table({"n": [part, part]}), folder / f"part-{part}.parquet")
    (folder / "_SUCCESS").touch()
    assert read(folder, {"n": pa.int64()})["n"].to_pylist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_files_of_many_blocks(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(jsonlines, "_BLOCK_BYTES", 1000)
    table = pa.table({"n": list(range(1000)), "sym": [f"s{i}" for i in range(1000)]})
    path = write(tmp_path / f"t{suffix}", table)
    source = tables.open_table(path, {"n": pa.int64(), "sym": pa.string()})
    batches = list(source.batches)
    assert len(batches) > 3
    assert pa.Table.from_batches(batches).equals(table)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_infer_schema(tmp_path: Path, suffix: str) -> None:
    table = TABLE.select(["n", "px", "sym", "up", "day", "wall", "at"]).slice(0, 2)
    inferred = Schema.of(tables.infer_schema(write(tmp_path / f"t{suffix}", table))).to_dict()
    if suffix == ".csv":  # Arrow takes every fraction of a second for nanoseconds
        inferred = {name: kind.replace("[ns", "[us") for name, kind in inferred.items()}
    assert inferred == {name: kind for name, kind in SCHEMA.to_dict().items() if name in table.column_names}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_read_table(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"t{suffix}", pa.table({"x": [1.5, 2.5], "expr": ["px > 1", "1"], "id": [7, 8]}))
    table = tables.read_table(path, ["id", "expr"])
    ids = ["7", "8"] if suffix == ".csv" else [7, 8]
    assert table.to_pydict() == {"id": ids, "expr": ["px > 1", "1"]}
    with pytest.raises(GpumatchError, match=r"no column 'name'; it has (x, expr|expr, x), id"):
        tables.read_table(path, ["name", "expr"])


@pytest.mark.parametrize("name", ["t.txt", "t", "t.csv.gz"])
def test_unknown_suffix(name: str) -> None:
    with pytest.raises(GpumatchError, match=r"expected one of \.parquet, \.csv, \.jsonl"):
        tables.open_table(name, {})
    with pytest.raises(GpumatchError, match="suffix"):
        tables.Sink(name, pa.schema([]))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_missing_empty_and_broken_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    with pytest.raises(GpumatchError, match="does not exist"):
        tables.open_table(path, TYPES)
    path.write_text("")
    if suffix == ".jsonl":  # no lines, no events
        assert len(read(path)) == 0
    else:
        with pytest.raises(GpumatchError, match=rf"cannot read .*t\{suffix}"):
            tables.open_table(path, TYPES)
    path.write_text("n\nx\n" if suffix == ".csv" else '{"n": "x"}')
    with pytest.raises(GpumatchError, match=rf"cannot read .*t\{suffix}"):
        read(path)


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".csv", "at\n2024-01-01T00:00:00\n", "zone offset"),
        (".jsonl", '{"at": "2024-01-01T00:00:00"}', "column 'at'.*zone offset"),
        (".jsonl", '{"wall": "2024-01-01T00:00:00Z"}', "column 'wall'.*zone offset"),
        (".jsonl", '{"day": "2024-13-01"}', "column 'day'.*2024-13-01"),
    ],
)
def test_times_must_fit_the_attribute(tmp_path: Path, suffix: str, text: str, message: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_text(text)
    with pytest.raises(GpumatchError, match=message):
        read(path)


def test_csv_holds_no_lists(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(GpumatchError, match=r"column 'tags' is list<.*CSV cannot contain lists"):
        tables.Sink(path, pa.schema([("tags", pa.list_(pa.string()))]))
    path.write_text("tags\na\n")
    with pytest.raises(GpumatchError, match="'tags' is a list, and CSV cannot contain lists"):
        tables.open_table(path, {"tags": pa.list_(pa.string())})


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", pa.table({"n": [1]}))
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), tables.Sink(path, pa.schema([("n", pa.int64())])) as sink:
        sink.write(pa.record_batch({"n": [1 // 0]}))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]
    with pytest.raises(GpumatchError, match="cannot write"):
        tables.Sink(tmp_path / "nowhere" / "t.csv", pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ('{"n": 3, "px": 3}', {"n": 3, "px": 3.0}),
        ('{\n"sym": "ü"}', {"sym": "ü"}),
        ('{"day": "2024-01-02", "up": true}', {"day": dt.date(2024, 1, 2), "up": True}),
        ('{"at": "2024-01-02T00:00:00+02:00"}', {"at": dt.datetime(2024, 1, 1, 22, tzinfo=UTC)}),
        ('{"px": null}', {"px": None}),
        ("{}", {}),
    ],
)
def test_parse_row(text: str, event: dict[str, Any]) -> None:
    assert tables.parse_row(text, TYPES) == event


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("px = 3", "not JSON"),
        ("[1]", "JSON list, expected an object"),
        ('{"pxx": 3}', r"'pxx', which is no attribute of the index; did you mean 'px'\?"),
        ('{"n": "x"}', "cannot read the event"),
        ('{"n": 2.5}', "cannot read the event.*2.5"),
    ],
)
def test_parse_row_refuses(text: str, message: str) -> None:
    with pytest.raises(GpumatchError, match=message):
        tables.parse_row(text, TYPES)


def test_json_keeps_the_digits_of_numbers(tmp_path: Path) -> None:
    """Beside a field of several types, whose lines are written anew, and in a single event."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"n": 9007199254740993.0, "k": 1.50, "l": [1.5]}\n{"n": 5, "k": "x", "l": []}\n')
    [batch] = tables.open_table(path, {"n": pa.int64()}).batches
    assert batch.to_pylist()[0] == {"n": 9007199254740993, "k": "1.50", "l": [1.5]}
    assert tables.parse_row('{"n": 9007199254740993.0}', {"n": pa.int64()}) == {"n": 9007199254740993}
    with pytest.raises(GpumatchError, match="expected a whole number"):
        tables.parse_row('{"n": 9007199254740993.5}', {"n": pa.int64()})
