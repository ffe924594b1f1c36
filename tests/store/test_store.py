"""What changes while indexes are built: readers see all of it or nothing, and nobody waits who need not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.store.source import Source

SCHEMA = {"x": "int64"}
LONG = 60.0  # seconds after which a thread that is not done waits for what it must not wait for


def filled(count: int = 100) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index="scan")
    matcher.add({f"s{at}": f"x >= {at}" for at in range(count)}, destination="d")
    matcher.match_one({"x": 1})
    return matcher


def elsewhere(act: Callable[[], Any]) -> Any:
    """What a function returns in another thread, which must not wait for this one."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()), daemon=True)
    thread.start()
    thread.join(LONG)
    assert found, "it waits, or has failed"
    return found[0]


def while_building(matcher: gm.Matcher, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> list[Any]:
    """Have other threads act, one after another, in the midst of the next index that is built."""
    found: list[Any] = []
    build = matcher._store._build

    def slowly(source: Source) -> Any:
        monkeypatch.setattr(matcher._store, "_build", build)
        found.extend(elsewhere(act) for act in acts)
        return build(source)

    monkeypatch.setattr(matcher._store, "_build", slowly)
    return found


def test_what_changes_during_a_compaction_is_so_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    matcher.remove(["s0"])

    def change() -> list[Any]:
        matcher.remove(["s1", "s2"])
        matcher.add({"new": "x = 5"}, destination="e")
        matcher.upsert({"s3": "x < 0", "newer": "x = 5"})
        matcher.replace({"s4": "x = -1"})
        matcher.add({"newest": "x = 5"})
        return matcher.match_one({"x": 5})

    seen = while_building(matcher, monkeypatch, change)
    matcher.compact()
    right = ["s5", "new", "newer", "newest"]
    assert seen == [right]
    assert matcher.match_one({"x": 5}) == right
    assert matcher.match_one({"x": -1}) == ["s3", "s4"]
    assert sorted(matcher) == sorted([*(f"s{at}" for at in range(3, 100)), "new", "newer", "newest"])
    assert len(matcher) == 100
    assert matcher.stats()["segments"][0]["removed"] == 4
    assert list(matcher.destinations([{"x": 5}])) == [["d", "e"]]
    matcher.compact()
    assert matcher.match_one({"x": 5}) == right
    assert len(matcher.stats()["segments"]) == 1


def test_all_may_go_during_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled(10)
    while_building(matcher, monkeypatch, lambda: matcher.remove(list(matcher)))
    matcher.compact()
    assert (len(matcher), list(matcher), matcher.match_one({"x": 99})) == (0, [], [])
    matcher.add({"s1": "x > 0"})
    assert matcher.match_one({"x": 1}) == ["s1"]


def test_adding_and_reading_do_not_wait_for_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    matcher.add({"tail": "x = 5"})
    looks = (
        lambda: matcher.add({"later": "x = 5"}),
        lambda: len(matcher),
        lambda: "later" in matcher,
        lambda: [it.message for it in matcher.add({"tail": "x = 6", "s7": "x = 6"}, on_error="collect")],
    )
    seen = while_building(matcher, monkeypatch, *looks)
    assert matcher.match_one({"x": 5})[-1] == "tail"  # what was added since is seen by whoever asks next
    twice = "the id {!r} is there already; use replace() to change it"
    assert seen == [[], 102, True, [twice.format("tail"), twice.format("s7")]]
    assert matcher.match_one({"x": 5})[-2:] == ["tail", "later"]


def test_readers_go_on_during_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    seen = while_building(
        matcher,
        monkeypatch,
        lambda: matcher.match_one({"x": 1}),
        lambda: matcher.plan().segments[0].subscriptions,
        lambda: str(matcher["s7"]),
        lambda: len(matcher.to("cpu")),
    )
    matcher.compact()
    assert seen == [["s0", "s1"], 100, "x >= 7", 100]


def test_an_id_that_is_about_to_come_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    seen = while_building(matcher, monkeypatch, lambda: matcher.add({"a": "x = 2"}, on_error="collect")[0].id)
    matcher.upsert({"a": "x = 1"})
    assert seen == ["a"]
    assert str(matcher["a"]) == "x = 1"
    matcher.remove(["a"])
    matcher.add({"a": "x = 2"})
    assert str(matcher["a"]) == "x = 2"


def test_an_upsert_changes_what_has_just_been_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread adds the id after the upsert has looked for it."""
    matcher = filled()
    reserved, tries = matcher._store._reserved, []

    def late(source: Source) -> bool:
        if not tries:
            elsewhere(lambda: matcher.add({"a": "x = 2"}))
        tries.append(reserved(source))
        return tries[-1]

    monkeypatch.setattr(matcher._store, "_reserved", late)
    matcher.upsert({"a": "x = 1"})
    assert tries == [False, True]
    assert [name for name in matcher if name == "a"] == ["a"]
    assert str(matcher["a"]) == "x = 1"


def test_a_failed_change_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()

    def fail(source: Source) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(matcher._store, "_build", fail)
        for change in (lambda: matcher.upsert({"a": "x = 1", "s1": "x = 1"}), matcher.compact):
            with pytest.raises(MemoryError):
                change()
    assert matcher.match_one({"x": 1}) == ["s0", "s1"]
    matcher.upsert({"a": "x = 1"})
    assert matcher.match_one({"x": 1}) == ["s0", "s1", "a"]


def test_nothing_is_built_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher(SCHEMA, index="scan")
    build, built = matcher._store._build, []
    monkeypatch.setattr(matcher._store, "_build", lambda source: (built.append(len(source)), build(source))[1])
    matcher.compact()
    assert built == []
    matcher.add({at: f"x = {at}" for at in range(100)})
    matcher.compact()
    assert built == [100]
    matcher.add({at: f"x = {at}" for at in range(100, 150)})
    matcher.compact()
    assert built == [100, 50, 150]  # the tail too, which others may ask for meanwhile
    matcher.remove([0])
    matcher.compact()
    assert built == [100, 50, 150, 149]
    assert matcher.match_one({"x": 120}) == [120]


def test_segments_are_merged_again_after_a_failed_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled(10)
    matcher.add({"tail": "x = 5"})

    def fail(source: Source) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(matcher._store, "_build", fail)
        with pytest.raises(MemoryError):
            matcher.compact()
    matcher.add(dict.fromkeys(map(str, range(20)), "x = 5"))
    assert matcher.match_one({"x": 5})[6:8] == ["tail", "0"]
    assert len(matcher.stats()["segments"]) == 1
