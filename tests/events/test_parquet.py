"""Events from Parquet files by their path, and from a Series of pandas."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch.events import parquet as parquet_in

EVENTS = pa.table(
    {
        "px": [0.5, 2.0, None, 9.0, 3.0],
        "a.b": [2, None, 2, 1, 7],
        "PX": [1, 2, 3, 4, 5],
        "other": [{"x": 1}] * 5,
    }
)
ANSWERS = [["b"], ["a"], ["b"], ["a"], ["a"]]


def matcher() -> gm.Matcher:
    made = gm.Matcher({"px": float, "a.b": int, "absent": str})
    made.add({"a": "px > 1", "b": '"a.b" = 2'}, destination="d")
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "events.parquet"
    pq.write_table(EVENTS, file, row_group_size=2)
    return file


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("rows", [1, 2, 65_536])
def test_every_way_to_match(kind: Any, rows: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_in, "_ROWS", rows)
    made, events = matcher(), kind(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(made.match(events)) == ANSWERS
        parts = list(made.match_iter(events))
        assert [ids for part in parts for ids in part] == ANSWERS
        assert len(parts) >= (5 if rows == 1 else 1)
        assert made.count(events).tolist() == [1] * 5
        assert made.any(events).tolist() == [True] * 5
        assert list(made.destinations(events)) == [["d"]] * 5
        made.observe(events)


def folder_of(folder: Path, files: dict[str, dict[str, Any]]) -> Path:
    for name, columns in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name)
    return folder


def test_files_of_a_folder_differ_in_their_columns(tmp_path: Path) -> None:
    files: dict[str, dict[str, Any]] = {
        "1.parquet": {"px": [2]},
        "2.parquet": {"px": [1.5], "a.b": pa.nulls(1)},
        "3.parquet": {"a.b": [2], "px": pa.nulls(1)},
        "4.parquet": {"other": [1]},
    }
    made, folder = matcher(), folder_of(tmp_path, files)
    assert list(made.match(folder)) == [["a"], ["a"], ["b"], []]
    assert [ids for part in made.match_iter(folder) for ids in part] == [["a"], ["a"], ["b"], []]
    with pytest.raises(gm.SchemaError, match="other"):
        made.match(folder, strict=True)
    folder_of(tmp_path, {"5.parquet": {"px": ["x"]}})
    with pytest.raises(gm.SchemaError, match=r"cannot read events from .* px has incompatible types"):
        made.match(folder)


def test_folders_that_name_columns(tmp_path: Path) -> None:
    made = gm.Matcher({"px": float, "k": int, "s": str})
    made.add({"a": "px > 1", "b": "k = 2", "c": "s = '07'"})
    files = {"k=1/s=07/x.parquet": {"px": [2.0]}, "k=2/s=8/x.parquet": {"px": [0.0, 3.0]}, "k=2/y.parquet": {"px": [2]}}
    assert list(made.match(folder_of(tmp_path, files))) == [["a", "c"], ["b"], ["a", "b"], ["a", "b"]]


def test_folders_and_files_without_attributes(tmp_path: Path) -> None:
    made = matcher()
    folder = tmp_path / "events"
    folder.mkdir()
    for at in range(2):
        pq.write_table(EVENTS, folder / f"part-{at}.parquet")
    assert list(made.match(folder)) == ANSWERS * 2
    assert made.count(str(folder)).tolist() == [1] * 10
    for count in (3, 0):
        pq.write_table(pa.table({"z": pa.array(range(count), pa.int64())}), tmp_path / "z.parquet")
        assert list(made.match(tmp_path / "z.parquet")) == [[]] * count
        assert made.count(tmp_path / "z.parquet").tolist() == [0] * count


def test_strict_files(path: Path, tmp_path: Path) -> None:
    made = matcher()
    for call in (made.match, made.match_iter, made.count, made.any, made.destinations):
        with pytest.raises(gm.SchemaError, match="the events have the column 'PX'"):
            call(path, strict=True)
    pq.write_table(EVENTS.select(["px", "a.b"]), tmp_path / "exact.parquet")
    assert list(made.match(tmp_path / "exact.parquet", strict=True)) == ANSWERS
    assert made.count(tmp_path / "exact.parquet", strict=True).tolist() == [1] * 5


def test_files_that_are_none(tmp_path: Path) -> None:
    made = matcher()
    text = tmp_path / "events.csv"
    text.write_text("px\n1.0\n")
    doubled = tmp_path / "doubled.parquet"
    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=["px", "px"]), doubled)
    wrong = tmp_path / "wrong.parquet"
    pq.write_table(pa.table({"px": ["x"]}), wrong)
    for call in (made.match, made.count):
        with pytest.raises(gm.MissingFileError, match=r"no Parquet file '.*none\.parquet'"):
            call(tmp_path / "none.parquet")
        with pytest.raises(gm.SchemaError, match=r"cannot read events from .*events\.csv' as Parquet"):
            call(str(text))
        with pytest.raises(gm.SchemaError, match=r"doubled\.parquet' as Parquet: .*duplicate field names"):
            call(doubled)
        with pytest.raises(gm.SchemaError, match="attribute 'px' is float64, but its column is string"):
            call(wrong)


def test_a_series_is_one_event() -> None:
    made, frame = matcher(), EVENTS.select(["px", "a.b", "PX"]).to_pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a row of a table may have other columns
        for at, answer in enumerate(ANSWERS):
            row = frame.iloc[at]
            assert made.match_one(row) == made.match(row)[0] == answer
            assert made.explain(row, "a").result == (None if np.isnan(row["px"]) else row["px"] > 1)
        assert list(made.match([frame.iloc[0], {"px": 2.0}, frame.iloc[2]])) == [["b"], ["a"], ["b"]]
        assert made.match_one(pd.Series({"PX": 5.0})) == []
    assert made.match_one(pd.Series({"px": pd.NA, "a.b": np.int8(2), "absent": None})) == ["b"]
    assert made.match_one(pd.Series(dtype=object, index=pd.Index([], dtype=str))) == []
    with pytest.raises(gm.SchemaError, match="event 0 has the key 'PX'"):
        made.match_one(frame.iloc[0], strict=True)


def test_series_that_are_no_events() -> None:
    made = matcher()
    for column in (pd.Series([1.0, 2.0]), pd.Series([1.0], index=[("px", 1)])):
        with pytest.raises(gm.SchemaError, match=r"a pandas Series is one event.*pass a column as a DataFrame"):
            made.match(column)
        with pytest.raises(gm.SchemaError, match=r"a pandas Series is one event"):
            made.match_one(column)
    with pytest.raises(gm.SchemaError, match="the event has 2 values of 'px'"):
        made.match(pd.Series([1.0, 2.0], index=["px", "px"]))
    with pytest.raises(gm.SchemaError, match="attribute 'px' is float64, but event 0 holds 'x'"):
        made.match_one(pd.Series({"px": "x"}))
