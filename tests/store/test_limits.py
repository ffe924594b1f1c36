"""Limits are errors that say what to do, and nothing has changed then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gpumatch as gm
from gpumatch.parallel import threads as threading_of
from gpumatch.store import room, store
from gpumatch.subscriptions import intake
from tests.store import plain_reader


def wide(subscriptions: int = 50, background: bool = True) -> gm.Matcher:
    """A matcher whose subscriptions are all satisfied by an x of 0."""
    matcher = gm.Matcher({"x": "int64"}, background=background)
    matcher.add_ranges(np.arange(subscriptions), {"x": (None, np.arange(subscriptions))})
    return matcher


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 1,000 matches."""
    monkeypatch.setattr(room, "_SURE", 0)
    monkeypatch.setattr(room, "available", lambda: 1000 * room._BYTES)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_more_matches_than_memory(little_room: None, changed: bool, threads: int) -> None:
    matcher, count = wide(), 50
    if changed:
        matcher.match_one({"x": 0})
        matcher.add_ranges([50], {"x": (None, [50])})
        matcher.remove([7])
    before = threading_of._count
    gm.set_num_threads(threads)
    try:
        assert matcher.match({"x": np.zeros(19, np.int64)}).n_pairs == 19 * count
        assert matcher.match({"x": np.full(10_000, 100)}).n_pairs == 0
        with pytest.raises(gm.LimitError, match=r"21 events have more than 1,000 matches, .* match_iter.* count"):
            matcher.match({"x": np.zeros(21, np.int64)})
        assert matcher.count({"x": np.zeros(100, np.int64)}).tolist() == [count] * 100
        slices = list(matcher.match_iter({"x": np.zeros(100, np.int64)}))
        assert sum(map(len, slices)) == 100
        assert sum(each.n_pairs for each in slices) == 100 * count
        assert all(each.n_pairs <= 1000 for each in slices)
        assert matcher.any({"x": np.zeros(100, np.int64)}).all()
        assert matcher.top({"x": np.zeros(100, np.int64)}, 1).n_pairs == 100
    finally:
        threading_of._count = before


def test_a_single_event_with_too_many(little_room: None) -> None:
    matcher = wide(1001)
    with pytest.raises(gm.LimitError, match="1 events have more than 1,000 matches"):
        list(matcher.match_iter({"x": np.zeros(2, np.int64)}))


def test_events_are_matched_few_at_a_time_if_all_may_match(little_room: None, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = wide()
    matcher.match_one({"x": 0})
    taken: list[int] = []
    take = room.Room.take
    monkeypatch.setattr(room.Room, "take", lambda self, count: (taken.append(count), take(self, count))[1])
    with pytest.raises(gm.LimitError):
        matcher.match({"x": np.zeros(10_000, np.int64)})
    assert max(taken) <= 1000
    assert sum(taken) <= 1000 * (2 + len(taken) // 2)


def test_memory_of_this_machine() -> None:
    assert 1 << 20 < room.available() < 1 << 50
    assert room.Room(1, 1).most > 1 << 40
    assert room.Room(10**9, 10**9).most < room.available()


def test_memory_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("max", "5000"), ("current", "4000"), ("stat", "anon 1\ninactive_file 500\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(room, "_GROUP", tmp_path)
    assert room.available() == 1500
    (tmp_path / "memory.max").write_text("max\n")
    assert room.available() > 1 << 20


# Ids

IDS = ["", " ", "\0", "a\0b", "a\0", "é", "e\u0301", "\U0001f600", "\ufeff", "\ud7ff", "x" * intake.LONGEST, "7"]


def test_any_text_is_an_id(tmp_path: Path) -> None:
    with gm.open(tmp_path, "a", schema={"x": "int64"}, background=False) as matcher:
        matcher.add({name: f"x = {at}" for at, name in enumerate(IDS)})
        for at, name in enumerate(IDS):
            assert matcher.match_one({"x": at}) == [name]
            assert str(matcher[name]) == f"x = {at}"
        with pytest.raises(gm.IdError, match="is there already"):
            matcher.add({"a\0": "x > 1"})
        matcher.remove(IDS[3:5])
        left = [*IDS[:3], *IDS[5:]]
        assert list(matcher) == left
        assert list(gm.load(tmp_path, verify="full")) == left
        matcher.compact()
        assert list(gm.load(tmp_path, verify="full")) == left
    *_, (_, found) = plain_reader.versions(tmp_path)
    assert found == left


@pytest.mark.parametrize("longest", [intake.LONGEST, 8])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_ids_have_a_length(monkeypatch: pytest.MonkeyPatch, longest: int, letter: str) -> None:
    monkeypatch.setattr(intake, "LONGEST", longest)
    size = len(letter.encode())
    right, wrong = letter * (longest // size), letter * (longest // size + 1)
    told = rf"the id that begins '{letter}+' has {longest + size:,} bytes, expected at most {longest:,}"
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({right: "x > 1"})
    for act in (
        lambda: matcher.add({"a": "x > 1", wrong: "x > 1"}),
        lambda: matcher.upsert({wrong: "x > 1"}),
        lambda: matcher.add_ranges(["a", wrong], {"x": ([1, 2], None)}),
        lambda: matcher.add_ranges(pa.array(["a", wrong]), {"x": ([1, 2], None)}),
        lambda: matcher.add_table(pa.table({"id": ["a", wrong], "expr": ["x > 1", "x > 2"]})),
    ):
        with pytest.raises(gm.IdError, match=told):
            act()
    assert list(matcher) == [right]
    [rejected] = matcher.add({"b": "x > 1", wrong: "x > 1"}, on_error="collect")
    assert "has" in rejected.message
    assert len(rejected.message) < 400
    assert list(matcher) == [right, "b"]
    assert wrong not in matcher


# Subscriptions


def test_a_matcher_is_full_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [wide(3), wide(2)]
    for at, matcher in enumerate(two):
        matcher.save(tmp_path / str(at))
    monkeypatch.setattr(store, "MOST", 2)
    monkeypatch.setattr(store, "SCANNED", 1)
    with pytest.raises(gm.LimitError, match="room for 2 subscriptions, found 3"):
        gm.load(tmp_path / "0")
    loaded = gm.load(tmp_path / "1", background=False)
    monkeypatch.setattr(loaded._store, "build", None)
    with pytest.raises(gm.LimitError, match="found 4"):
        loaded.add({8: "x > 1", 9: "x > 2"})
    with pytest.raises(gm.LimitError, match="found 3"):
        loaded.upsert({7: "x > 1", 8: "x > 1", 9: "x > 2"})
    assert list(loaded) == [0, 1]
