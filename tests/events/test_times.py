"""Dates and timestamps of events."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.events.cells import UTC, one, refusal

DAY = 86_400


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("target", ["us", "ns"])
def test_timestamps_of_every_unit(unit: str, target: str) -> None:
    per_second = {"us": 10**6, "ns": 10**9}[target]
    array = np.array(["1970-01-01T00:00:05", "NaT", "1969-12-31T23:59:59"], f"datetime64[{unit}]")
    expected = [5 * per_second, None, -per_second]
    for data in (array, list(array), pa.array(array), pd.Series(array), pl.Series(pa.array(array))):
        if isinstance(data, pl.Series) and unit == "s":
            continue  # polars has no such unit
        assert one(f"timestamp[{target}]", data) == expected
        assert one(f"list<timestamp[{target}]>", [[value] for value in array]) == [[expected[0]], [], [expected[2]]]
    zoned = pa.array(array).cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, "Europe/Berlin"))
    for data in (zoned, pd.Series(array).dt.tz_localize("UTC")):
        assert one(f"timestamp[{target}, tz=UTC]", data) == expected


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "25s", "10us"])
def test_other_units_of_numpy(unit: str) -> None:
    array = np.array(["1971-01-01", "NaT"], f"datetime64[{unit}]")
    expected = int(array[0].astype("datetime64[us]").astype(int))
    assert one("timestamp[us]", array) == [expected, None]
    assert one("timestamp[us]", list(array)) == [expected, None]


def test_timestamps_that_do_not_fit() -> None:
    fine = np.array([0, 1], "datetime64[ns]")
    for data in (fine, list(fine), pa.array(fine), pd.Series(fine), list(pd.Series(fine))):
        text = refusal("timestamp[us]", data)
        assert "event 1" in text
        assert "timestamp[ns]" in text
        assert one("timestamp[ns]", data) == [0, 1]
    far = np.array(["1970-01-01", "3000-01-01"], "datetime64[s]")
    for data in (far, list(far), pa.array(far), [dt.datetime(1970, 1, 1), dt.datetime(3000, 1, 1)]):
        text = refusal("timestamp[ns]", data)
        assert "event 1" in text
        assert "outside the range" in text
        assert one("timestamp[us]", data) == [0, 32503680000 * 10**6]
    for days in (2**62, -(2**62)):
        assert "outside the range" in refusal("timestamp[us]", np.array([0, days], "datetime64[D]"))
        assert "outside the range" in refusal("timestamp[us]", [np.datetime64(days, "D")])
        assert "outside the range" in refusal("timestamp[us]", np.array([0, days], "datetime64[s]"))
    assert "ps" in refusal("timestamp[ns]", np.array([1], "datetime64[ps]"))
    assert "ps" in refusal("timestamp[ns]", [np.datetime64(1, "ps")])


def test_zones_must_agree() -> None:
    naive = dt.datetime(2020, 1, 1)
    aware = naive.replace(tzinfo=UTC)
    for data in (
        [naive],
        np.array([naive], "datetime64[us]"),
        pa.array([naive]),
        pd.Series([naive]),
        pl.Series([naive]),
    ):
        text = refusal("timestamp[us, tz=UTC]", data)
        assert "with a time zone" in text
        assert one("timestamp[us]", data) == [1577836800 * 10**6]
    for data in ([aware], pa.array([aware]), pd.Series([aware]), pl.Series([aware]), [pd.Timestamp(aware)]):
        text = refusal("timestamp[us]", data)
        assert "without a time zone" in text
        assert "without a time zone" in refusal("date", data)
        assert one("timestamp[us, tz=America/New_York]", data) == [1577836800 * 10**6]
    assert "with a time zone" in refusal("list<timestamp[us, tz=UTC]>", pa.array([[naive]]))
    assert "with a time zone" in refusal("list<timestamp[us, tz=UTC]>", [[naive]])


def test_dates() -> None:
    for data in (
        pa.array([DAY * 1000, None], pa.date64()),
        pa.array([1, None], pa.date32()),
        pa.array([DAY, None], pa.timestamp("s")),
        pa.array([DAY * 10**9, None], pa.timestamp("ns")),
        np.array([1, "NaT"], "datetime64[D]"),
        np.array([DAY * 10**9, "NaT"], "datetime64[ns]"),
        [dt.date(1970, 1, 2), None],
        [dt.datetime(1970, 1, 2), pd.NaT],
        [np.datetime64(1, "D"), np.datetime64("NaT")],
        [pd.Timestamp("1970-01-02"), pd.NaT],
    ):
        assert one("date", data) == [1, None]
    noon = dt.datetime(1970, 1, 2, 12)
    for data in (
        [None, noon],
        pa.array([None, noon]),
        np.array([None, noon], "datetime64[us]"),
        pd.Series([None, noon]),
    ):
        text = refusal("date", data)
        assert "event 1" in text
        assert "midnight" in text
    for data in ([dt.date(1970, 1, 2)], pa.array([dt.date(1970, 1, 2)])):
        assert "date" in refusal("timestamp[us]", data)
    ends = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert one("date", ends) == one("date", pa.array(ends)) == [-719162, 2932896]


def test_pandas_timestamps_keep_nanoseconds() -> None:
    stamp = pd.Timestamp("1970-01-01T00:00:00.000001002")
    assert one("timestamp[ns]", [stamp]) == [1002]
    assert one("timestamp[ns, tz=UTC]", [stamp.tz_localize("Europe/Berlin")]) == [1002 - 3600 * 10**9]
    assert "timestamp[ns]" in refusal("timestamp[us]", [stamp])
