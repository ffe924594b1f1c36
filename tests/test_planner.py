"""What index= and device= take, and what plan() says of them."""

from __future__ import annotations

from typing import Any

import pytest

import gpumatch as gm
from gpumatch.planner import Plan, PlannedSegment, requested_index

SCHEMA = {"i": "int64"}


def test_auto_chooses_by_size() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({k: f"i = {k}" for k in range(10)})
    assert [type(part.index) for part in matcher.plan().segments] == [gm.Scan]
    matcher.add({k: f"i = {k}" for k in range(10, 200)})
    plan = matcher.plan()
    assert [type(part.index) for part in plan.segments] == [gm.PstBloom]
    assert plan.segments[0].reason.startswith("auto: 200 clauses")
    assert plan.device == "cpu"


def test_a_plan_as_text() -> None:
    matcher = gm.Matcher(SCHEMA, device="cpu")
    assert str(matcher.plan()) == "device cpu (as asked)\nno subscriptions"
    matcher.add({k: f"i = {k}" for k in range(300)})
    matcher.match_one({})
    matcher.remove([0])
    matcher.add({0: "i = 0"})
    assert str(matcher.plan()) == (
        "device cpu (as asked)\n"
        "299 subscriptions: PstBloom() (auto: 300 clauses, found by their most selective predicate)\n"
        "1 subscriptions: Scan() (auto: 1 clauses are tested faster than looked up)"
    )
    assert "auto: this version matches on the CPU only" in str(gm.Matcher(SCHEMA).plan())


@pytest.mark.parametrize("index", ["scan", gm.Scan(), "pstbloom", gm.PstBloom()])
def test_an_index_that_is_asked_for_is_used(index: Any) -> None:
    matcher = gm.Matcher(SCHEMA, index=index)
    matcher.add({k: f"i = {k}" for k in range(200)})
    matcher.match_one({})
    matcher.add({-1: "i = 1"})
    wanted = requested_index(index)
    assert wanted is not None
    assert {(part.index, part.reason) for part in matcher.plan().segments} == {(wanted, "as asked")}
    assert matcher.match_one({"i": 1}) == [1, -1]


def test_no_clauses_at_all() -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({1: "FALSE"})
    [part] = matcher.plan().segments
    assert (part.index, part.reason) == (gm.Scan(), "auto: 0 clauses are tested faster than looked up")
    matcher = gm.Matcher(SCHEMA, index="pstbloom")
    matcher.add({1: "i < 0 AND i > 0", 2: "FALSE"})
    assert matcher.match_one({"i": 0}) == []
    assert matcher.plan() == Plan("cpu", matcher.plan().device_reason, (PlannedSegment(2, gm.PstBloom(), "as asked"),))


@pytest.mark.parametrize("index", ["gem", "", None, 5, ["scan"], gm.Scan, "SCAN"], ids=repr)
def test_an_index_that_is_not_there(index: Any) -> None:
    with pytest.raises(gm.SchemaError, match="index is one of auto, scan, pstbloom or parameters such as"):
        gm.Matcher(SCHEMA, index=index)


def test_a_misspelled_index_gets_a_hint() -> None:
    with pytest.raises(gm.SchemaError, match="found 'pst_bloom'; did you mean 'pstbloom'"):
        gm.Matcher(SCHEMA, index="pst_bloom")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:17"])
def test_a_gpu_is_not_used_in_silence(device: str) -> None:
    with pytest.raises(gm.DeviceError) as caught:
        gm.Matcher(SCHEMA, device=device)
    assert str(caught.value) == (
        f"device {device!r} was asked for, but this version matches on the CPU only; use device='cpu'"
    )


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", "", "CPU", None, 0, ["cpu"]], ids=repr)
def test_a_device_that_is_none(device: Any) -> None:
    with pytest.raises(gm.DeviceError, match="device is 'auto' or 'cpu', found"):
        gm.Matcher(SCHEMA, device=device)


def test_loading_to_a_device(tmp_path: Any) -> None:
    gm.Matcher(SCHEMA).save(tmp_path / "idx")
    assert gm.load(tmp_path / "idx", device="cpu").device == "cpu"
    with pytest.raises(gm.DeviceError, match="matches on the CPU only"):
        gm.load(tmp_path / "idx", device="cuda:0")
