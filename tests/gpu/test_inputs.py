"""Events in a device's memory as real libraries hold them, and results for these libraries."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.device_memory import is_device_array, library

pytestmark = pytest.mark.gpu
SCHEMA = {
    "x": "int64",
    "y": "float64",
    "f": "float32",
    "b": "bool",
    "s": "string",
    "w": "timestamp",
    "n": "list<int64>",
}
TEXTS = {
    0: "x > 3 AND y < 0.5",
    1: "f = 0.25 OR b = TRUE",
    2: "s = 'b' AND x IS NOT NULL",
    3: "s LIKE 'a%'",
    4: "w >= TIMESTAMP '2024-01-01 00:00:00'",
    5: "n = 3 AND NOT (n = 4)",
    6: "x IS NULL OR y IS NULL",
    7: "x BETWEEN 2 AND 5 XOR y > 0.3",
}
TABLE = pa.table(
    {
        "x": pa.array([1, 4, None, 9, 5]),
        "y": pa.array([0.1, 0.4, 0.9, None, 0.45]),
        "f": pa.array([0.25, 0.5, None, 0.25, 1.0], pa.float32()),
        "b": pa.array([True, False, None, True, False]),
        "s": pa.array(["a", "b", None, "abc", "b"]).dictionary_encode(),
        "w": pa.array([dt.datetime(2024, 1, 2), None, dt.datetime(2023, 1, 1), dt.datetime(2024, 1, 1), None]),
        "n": pa.array([[3], [3, 4], None, [], [1, 3]]),
    }
)


@pytest.fixture
def right() -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    matcher.add(TEXTS)
    return matcher


def test_cudf(right: gm.Matcher) -> None:
    cudf = pytest.importorskip("cudf")
    expected = right.match(TABLE)
    mine = right.to("cuda:0")
    frame = cudf.DataFrame.from_arrow(TABLE)
    found = mine.match(frame)
    assert found == expected
    assert right.match(frame) == expected
    assert found.to_cudf().to_arrow().to_pydict() == expected.to_arrow().to_pydict()
    assert expected.to_cudf().to_arrow().to_pydict() == expected.to_arrow().to_pydict()
    columns = {name: frame[name] for name in ("x", "y", "s")}
    assert mine.match(columns) == right.match(TABLE.select(["x", "y", "s"]))
    plain = cudf.DataFrame.from_arrow(TABLE.set_column(4, "s", TABLE["s"].cast(pa.string())))
    assert mine.match(plain) == expected


def test_cupy(right: gm.Matcher) -> None:
    cupy = library()
    columns = {"x": np.array([1, 4, 9]), "y": np.array([0.1, np.nan, 0.45]), "b": np.array([True, False, True])}
    expected = right.match(columns)
    mine = right.to("cuda:0")
    held = {name: cupy.asarray(values) for name, values in columns.items()}
    for events in (held, {**held, "x": columns["x"]}, {name: values[::1] for name, values in held.items()}):
        found = mine.match(events)
        assert found == expected
        assert all(map(is_device_array, found.to_cupy()))
    every_other = {name: values[::2] for name, values in held.items()}
    assert mine.match(every_other) == right.match({name: values[::2] for name, values in columns.items()})


def test_other_arrays(right: gm.Matcher) -> None:
    """By the CUDA array interface, and by DLPack."""
    from numba import cuda

    values = np.array([1, 4, 9])
    expected = right.match({"x": values})
    mine = right.to("cuda:0")
    assert mine.match({"x": cuda.to_device(values)}) == expected
    torch = pytest.importorskip("torch")
    assert mine.match({"x": torch.as_tensor(values, device="cuda:0")}) == expected


def test_events_that_are_still_being_made(right: gm.Matcher) -> None:
    """On the caller's stream: matching waits for them."""
    cupy = library()
    mine = right.to("cuda:0")
    with cupy.cuda.Stream(non_blocking=True):
        large = cupy.random.random((2000, 2000))
        for _ in range(20):
            large = large @ large / 1000
        values = (large[0, :1000] * 0).astype(cupy.int64) + 4
        found = mine.match({"x": values, "y": cupy.full(1000, 0.4)})
    assert found == right.match({"x": np.full(1000, 4), "y": np.full(1000, 0.4)})


def test_results_that_outlive_their_matcher(right: gm.Matcher) -> None:
    """What stays on the device is not reused while it is held."""
    mine = right.to("cuda:0")
    kept: list[tuple[gm.Matches, Any]] = []
    for at in range(20):
        columns = {"x": np.arange(100) % (at + 2), "y": np.linspace(0, 1, 100)}
        kept.append((mine.match(columns), right.match(columns)))
    del mine
    for found, expected in kept:
        assert found == expected
