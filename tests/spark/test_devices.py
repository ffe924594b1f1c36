"""Which device a task matches on, without Spark and without devices."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from gpumatch.spark import devices


@pytest.fixture(autouse=True)
def said_nothing() -> None:
    devices._say.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, count: int | None, missing: str = "", **task: Any) -> None:
    """A machine with these devices, and a task with these resources."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "count_devices", lambda: count)
    monkeypatch.setattr(devices, "why_not", lambda: missing)
    given = {name: SimpleNamespace(addresses=addresses) for name, addresses in task.get("resources", {}).items()}
    context = SimpleNamespace(resources=lambda: given, partitionId=lambda: task.get("partition", 0))
    monkeypatch.setattr(pyspark.TaskContext, "get", staticmethod(lambda: context))


def test_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 4, resources={"gpu": ["2"]})
    assert devices.device_of_task("cpu", is_local=False) == "cpu"
    assert devices.device_of_task("cuda:1", is_local=False) == "cuda:1"


def test_the_resources_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 4, resources={"gpu": ["2"], "fpga": ["0"]})
    assert devices.device_of_task("auto", is_local=False) == "cuda:2"
    assert devices.device_of_task("auto", is_local=True) == "cuda:2"


def test_what_the_environment_leaves_is_numbered_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1, resources={"gpu": ["2"]})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert devices.device_of_task("auto", is_local=False) == "cuda:0"


def test_in_turn_in_local_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for partition in range(5):
        machine(monkeypatch, 2, partition=partition)
        found.append(devices.device_of_task("auto", is_local=True))
    assert found == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]


@pytest.mark.parametrize(
    ("count", "missing", "level", "words"),
    [
        (None, "no NVIDIA driver was found here", logging.INFO, "no NVIDIA driver"),
        (2, "CuPy is missing", logging.WARNING, "CuPy is missing"),
        (2, "", logging.WARNING, "Spark gives them no GPU"),
    ],
)
def test_else_the_cpu_and_said_once(
    count: int | None,
    missing: str,
    level: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine(monkeypatch, count, missing)
    with caplog.at_level(logging.INFO, "gpumatch"):
        assert [devices.device_of_task("auto", is_local=False) for _ in range(3)] == ["cpu"] * 3
    [record] = caplog.records
    assert record.levelno == level
    assert words in record.getMessage()
