"""What changes while indexes are built: readers see all of it or nothing, and nobody waits who need not."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.store import ids, merging, removed, store
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
    build = matcher._store.build

    def slowly(source: Source, patient: bool) -> Any:
        monkeypatch.setattr(matcher._store, "build", build)
        found.extend(elsewhere(act) for act in acts)
        return build(source, patient)

    monkeypatch.setattr(matcher._store, "build", slowly)
    return found


def fail(source: Source, patient: bool) -> Any:
    raise MemoryError


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


def test_adding_and_looking_do_not_wait_for_the_first_index(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher(SCHEMA, index="scan")
    matcher.add({f"s{at}": f"x >= {at}" for at in range(100)})
    looks = (
        lambda: matcher.add({"later": "x = 5"}),
        lambda: len(matcher),
        lambda: "later" in matcher,
        lambda: [it.message for it in matcher.add({"later": "x = 6", "s7": "x = 6"}, on_error="collect")],
        lambda: matcher.remove(["s0", "s99"]),
    )
    seen = while_building(matcher, monkeypatch, *looks)
    assert matcher.match_one({"x": 5}) == ["s1", "s2", "s3", "s4", "s5", "later"]
    taken = "the id {!r} is there already; use replace() to change it"
    assert seen == [[], 101, True, [taken.format("later"), taken.format("s7")], None]


def test_what_is_added_during_the_first_build_has_an_index_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that comes meanwhile waits for the first build, and does not scan all that there is."""
    monkeypatch.setattr(store, "_BEHIND", 20)
    matcher = gm.Matcher(SCHEMA, index="scan")
    matcher.add({f"s{at}": "x >= 0" for at in range(50)})
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(matcher.match_one({"x": 1})))

    def more() -> None:
        matcher.add({"late": "x >= 0"})
        reader.start()
        matcher.add({f"t{at}": "x >= 0" for at in range(50)})
        reader.join(0.2)

    while_building(matcher, monkeypatch, more)
    right = [*(f"s{at}" for at in range(50)), "late", *(f"t{at}" for at in range(50))]
    assert matcher.match_one({"x": 1}) == right
    reader.join(LONG)
    assert found == [right]
    assert [part.reason for part in matcher.plan().segments] == ["as asked"] * 2


def test_a_change_is_made_though_nothing_can_be_merged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(merging, "SCANNED", 1)
    for background in (True, False):
        matcher = gm.Matcher(SCHEMA, index="scan", background=background)
        matcher.add({"a": "x > 0"})
        matcher.match_one({"x": 1})
        with monkeypatch.context() as patch:
            patch.setattr(matcher._store, "build", fail)
            patch.setattr(store, "_BEHIND", 1)
            matcher.add({"b": "x > 0", "c": "x > 0"})
            matcher.upsert({"d": "x > 0", "b": "x > 5"})
            idle(matcher)
        assert "could not merge" in caplog.text
        assert matcher.match_one({"x": 1}) == ["a", "c", "d"]
        caplog.clear()


def test_searches_do_not_try_again_what_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(merging, "SCANNED", 1)
    monkeypatch.setattr(store, "WORTH", 1)
    matcher = filled(1)
    monkeypatch.setattr(matcher._store, "build", fail)
    matcher.add({"b": "x > 0", "c": "x > 0"})
    idle(matcher)
    for _ in range(5):
        matcher.match_one({"x": 1})
        idle(matcher)
    assert caplog.text.count("could not merge") == 1


def test_no_thread_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SCANNED", 1)
    matcher = filled(1)

    def refuse(thread: threading.Thread) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        matcher.add({"b": "x > 0", "c": "x > 0"})
    matcher.add({"d": "x > 0"})
    idle(matcher)
    assert [part.reason for part in matcher.plan().segments] == ["as asked"] * 2


def test_copies_have_a_thread_only_if_the_matcher_has(tmp_path: Path) -> None:
    matcher = gm.Matcher(SCHEMA, background=False)
    matcher.add({"a": "x > 0"})
    matcher.save(tmp_path)
    copies = [matcher.to("cpu"), gm.load(tmp_path, background=False)]
    assert [copy._store._background for copy in copies] == [None, None]
    assert gm.load(tmp_path)._store._background is not None


def test_what_is_saved_has_an_index(tmp_path: Path) -> None:
    matcher = filled(10)
    matcher.add({"new": "x > 0"})
    assert [part.reason for part in matcher.plan().segments] == ["as asked", "just added"]
    matcher.save(tmp_path)
    assert [part.reason for part in gm.load(tmp_path).plan().segments] == ["as asked"] * 2


def test_all_at_once_after_everything_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matcher in use stays so: what is large has an index when the call returns."""
    monkeypatch.setattr(store, "SCANNED", 5)
    matcher = filled(10)
    matcher.remove(list(matcher))
    matcher.add({f"t{at}": "x > 0" for at in range(10)})
    assert [part.reason for part in matcher.plan().segments] == ["as asked"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_forked_while_rows_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher, other = filled(20), filled(20)
    remove, child = removed.kernels.remove, list[int]()

    def forking(*given: Any) -> Any:
        monkeypatch.setattr(removed.kernels, "remove", remove)
        forker = threading.Thread(target=fork)
        forker.start()
        forker.join()
        return remove(*given)

    def fork() -> None:
        if (pid := os.fork()) == 0:
            other.remove(["s0"])
            os._exit(0 if other.match_one({"x": 1}) == ["s1"] else 1)
        child.append(pid)

    monkeypatch.setattr(removed.kernels, "remove", forking)
    matcher.remove(["s1"])
    assert os.waitpid(child[0], 0)[1] == 0


def test_nobody_waits_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was added to a matcher in use is found while an index of it is being built."""
    matcher = filled()
    matcher.add({f"t{at}": f"x >= {at}" for at in range(50)})
    acts = (
        lambda: matcher.match_one({"x": 0}),
        lambda: matcher.add({"later": "x = 0"}),
        lambda: matcher.match_one({"x": 0}),
        lambda: matcher.remove(["s0", "t0"]),
        lambda: matcher.match_one({"x": 0}),
        lambda: matcher.replace({"s3": "x = 0", "t3": "x = 0"}),
        lambda: matcher.match_one({"x": 0}),
    )
    seen = while_building(matcher, monkeypatch, *acts)
    matcher.compact()
    right = ["later", "s3", "t3"]
    assert seen == [["s0", "t0"], [], ["s0", "t0", "later"], None, ["later"], None, right]
    assert matcher.match_one({"x": 0}) == right


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


def test_an_upsert_that_was_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread adds the id while the upsert builds an index."""
    matcher = filled()
    monkeypatch.setattr(store, "SCANNED", 1)
    seen = while_building(matcher, monkeypatch, lambda: matcher.add({"a": "x = 2"}))
    matcher.upsert({"a": "x = 1", "b": "x = 1"})
    assert seen == [[]]
    assert [name for name in matcher if name == "a"] == ["a"]
    assert str(matcher["a"]) == "x = 1"


def test_an_add_that_was_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    monkeypatch.setattr(store, "SCANNED", 1)
    while_building(matcher, monkeypatch, lambda: matcher.add({"a": "x = 2"}))
    with pytest.raises(gm.IdError, match="the id 'a' is there already"):
        matcher.add({"a": "x = 1", "b": "x = 1"})
    assert "b" not in matcher
    while_building(matcher, monkeypatch, lambda: matcher.add({"c": "x = 2"}))
    rejected = matcher.add({"c": "x = 1", "d": "x = 1", "e": "x = 1"}, on_error="collect")
    assert [it.id for it in rejected] == ["c"]
    assert matcher.match([{"x": 1}, {"x": 2}]).ids(0)[-2:] == ["d", "e"]


def test_a_failed_change_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled()
    with monkeypatch.context() as patch:
        patch.setattr(matcher._store, "build", fail)
        patch.setattr(store, "SCANNED", 1)
        for change in (lambda: matcher.upsert({"a": "x = 1", "s1": "x = 1"}), matcher.compact):
            with pytest.raises(MemoryError):
                change()
    assert matcher.match_one({"x": 1}) == ["s0", "s1"]
    matcher.upsert({"a": "x = 1"})
    assert matcher.match_one({"x": 1}) == ["s0", "s1", "a"]


def test_nothing_is_built_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher(SCHEMA, index="scan")
    build, built = matcher._store.build, []
    monkeypatch.setattr(matcher._store, "build", lambda source, _: (built.append(len(source)), build(source, _))[1])
    matcher.compact()
    assert built == []
    matcher.add({at: f"x = {at}" for at in range(100)})
    matcher.compact()
    assert built == [100]
    matcher.add({at: f"x = {at}" for at in range(100, 150)})
    matcher.compact()
    assert built == [100, 150]
    matcher.remove([0])
    matcher.compact()
    assert built == [100, 150, 149]
    assert matcher.match_one({"x": 120}) == [120]


def test_what_takes_long_to_scan_gets_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMATCH_TRIALS", "1")
    monkeypatch.setattr(merging, "WORTH", 10)
    monkeypatch.setattr(store, "WORTH", 10)
    matcher = filled(1)
    matcher.add({f"t{at}": f"x >= {at}" for at in range(20)})
    for _ in range(3):
        matcher.match([{"x": 5}] * 100)
    idle(matcher)
    assert matcher.match_one({"x": 5}) == ["s0", *(f"t{at}" for at in range(6))]
    assert [part.reason for part in matcher.plan().segments] == ["as asked"] * 2


def test_two_merges_at_once_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_FRESH", 100)
    matcher = filled(1)
    for at in range(8):
        matcher.add({f"t{at}": "x > 0"})
        matcher.match_one({"x": 1})
    seen = while_building(
        matcher,
        monkeypatch,
        lambda: matcher.remove(["t1", "t5"]),
        lambda: matcher._store._settle(lambda state, claimed: merging.Job(1, 3)),
    )
    assert matcher._store._settle(lambda state, claimed: merging.Job(5, 8))
    assert seen == [None, True]
    assert matcher.match_one({"x": 1}) == ["s0", "t0", "t2", "t3", "t4", "t6", "t7"]
    assert [segment["subscriptions"] for segment in matcher.stats()["segments"]] == [1, 2, 1, 2, 1]


def test_nothing_new_is_due_between_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that are not indexed, but few side by side: writers do not wait for what never comes."""
    monkeypatch.setattr(merging, "_TIER", 100)
    monkeypatch.setattr(store, "_BEHIND", 20)
    matcher = filled(1)
    for at in range(0, 100, 10):
        matcher.add({f"t{at + n}": "x > 0" for n in range(9)})
        matcher.match_one({"x": 1})
        with monkeypatch.context() as patch:
            patch.setattr(store, "SCANNED", 0)
            matcher.add({f"t{at + 9}": "x > 0"})
    assert matcher.match_one({"x": 1}) == ["s0", *(f"t{at}" for at in range(100))]


def test_what_failed_in_the_background_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    matcher = filled(10)
    monkeypatch.setattr(merging, "SCANNED", 2)
    with monkeypatch.context() as patch:
        patch.setattr(matcher._store, "build", fail)
        matcher.add({"a": "x = 5", "b": "x = 5", "c": "x = 5"})
        idle(matcher)
    assert "could not merge what was added" in caplog.text
    right = [*(f"s{at}" for at in range(6)), "a", "b", "c"]
    assert matcher.match_one({"x": 5}) == right
    matcher.add({"d": "x = 5"})
    idle(matcher)
    assert matcher.match_one({"x": 5}) == [*right, "d"]
    assert [segment["subscriptions"] for segment in matcher.stats()["segments"]] == [10, 4]


def idle(matcher: gm.Matcher) -> None:
    """Wait until the thread that merges has nothing to do."""
    for thread in threading.enumerate():
        if thread.name == "gpumatch-store":
            thread.join(LONG)
            assert not thread.is_alive()


def test_the_thread_ends_with_its_work_and_without_the_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SCANNED", 2)
    matcher = filled(10)
    for at in range(5):
        matcher.add({f"a{at}{n}": "x = 5" for n in range(3)})
    gone = weakref.ref(matcher._store)
    idle(matcher)
    assert len(matcher.match_one({"x": 5})) == 21
    del matcher
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it was forked in the midst of a merge, by a thread that is not there."""
    matcher = filled(10)
    child: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            matcher.add({"child": "x = 5"})
            matcher.compact()
            os._exit(0 if matcher.match_one({"x": 5}) == [*(f"s{at}" for at in range(6)), "child"] else 1)
        child.append(pid)

    while_building(matcher, monkeypatch, fork)
    matcher.compact()
    assert os.waitpid(child[0], 0)[1] == 0
    assert "child" not in matcher


def test_a_program_ends_while_segments_are_merged() -> None:
    program = """
import gpumatch as gm
from gpumatch.store import merging, store
merging.SCANNED = 2
m = gm.Matcher({"x": "int64"})
m.add({at: "x = 5" for at in range(100)})
m.match_one({"x": 5})
for at in range(100, 400):
    m.add({at: "x = 5"})
print(len(m.match_one({"x": 5})))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (0, "400\n", "")


SMALL = {
    merging: {"SCANNED": 4, "_FRESH": 1, "_TIER": 2},
    store: {"SCANNED": 4, "_JOINED": 2, "_BEHIND": 8},
    ids: {"_FEW": 1},
    removed: {"_SPARE": 1},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes at which something is merged are small."""
    for module, numbers in SMALL.items():
        for name, number in numbers.items():
            monkeypatch.setattr(module, name, number)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("named", [True, False], ids=["strings", "integers"])
def test_any_order_of_changes(background: bool, named: bool) -> None:
    rng = random.Random(f"{background} {named}")
    for _ in range(10):
        matcher, model = gm.Matcher(SCHEMA, background=background), {}
        for step in range(60):
            kind, count = (
                rng.choice(["add", "add", "remove", "upsert", "match", "compact"]),
                rng.choice([1, 1, 2, 3, 12]),
            )
            if kind == "remove":
                gone = rng.sample(list(model), min(count, len(model)))
                matcher.remove(gone)
                for name in gone:
                    del model[name]
            elif kind == "compact":
                matcher.compact()
            elif kind == "match":
                assert matcher.match_one({"x": step % 10}) == [name for name, low in model.items() if step % 10 >= low]
            else:
                new = range(1000 * step, 1000 * step + count)
                names = [f"é{at}" if named else at for at in new]
                if kind == "upsert":
                    names += rng.sample(list(model), min(count, len(model)))
                lows = {name: rng.randrange(10) for name in names}
                getattr(matcher, kind)({name: f"x >= {low}" for name, low in lows.items()})
                for name, low in lows.items():
                    model.pop(name, None)
                    model[name] = low
            assert len(matcher) == len(model)
        batch = [{"x": at} for at in range(10)]
        assert list(matcher.match(batch)) == [[name for name, low in model.items() if at >= low] for at in range(10)]
        assert matcher.match(batch)[::2].to_arrow()["subscription"].to_pylist() == [
            name for at in range(0, 10, 2) for name, low in model.items() if at >= low
        ]
        assert list(matcher) == list(model)
        assert matcher.any(batch).tolist() == [any(at >= low for low in model.values()) for at in range(10)]
        idle(matcher)
        assert len(matcher.stats()["segments"]) <= 16


@pytest.mark.usefixtures("small")
def test_segments_stay_few_and_rows_are_merged_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher(SCHEMA, index="scan", background=False)
    build, built = matcher._store.build, []
    monkeypatch.setattr(matcher._store, "build", lambda source, _: (built.append(len(source)), build(source, _))[1])
    for at in range(512):
        matcher.add_ranges([at], {"x": ([at], None)})
        matcher.match_one({"x": 0})
        assert len(matcher.stats()["segments"]) <= 12
    assert sum(built) <= 512 * 9  # two segments of a size become one: a row is merged once for each doubling
    matcher.remove(range(0, 512, 2))
    matcher.remove(range(1, 400, 2))
    assert sum(segment["removed"] for segment in matcher.stats()["segments"]) <= len(matcher)
    assert matcher.match_one({"x": 405}) == [401, 403, 405]


def test_readers_see_a_call_as_a_whole(small: None) -> None:
    """Pairs come and go together, while others search and merge."""
    matcher = gm.Matcher({"x": "int64"}, index="scan")
    matcher.add({0: "x >= 0", 1: "x >= 0"})
    matcher.match_one({"x": 1})
    stop, wrong, searches = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            found = matcher.match_one({"x": 1})
            searches[0] += 1
            if [name ^ 1 for name in found] != [
                name for pair in zip(found[1::2], found[::2], strict=True) for name in pair
            ]:
                wrong.append(found)

    def write(first: int) -> None:
        rng, own = random.Random(first), []
        for at in range(first, first + 300, 2):
            matcher.add({at: "x >= 0", at + 1: "x >= 0"})
            own.append(at)
            if rng.random() < 0.6:
                gone = own.pop(rng.randrange(len(own)))
                matcher.remove([gone, gone + 1])
            if rng.random() < 0.1 and own:
                matcher.replace({own[0]: "x > 0", own[0] + 1: "x > 0"})
        left.extend(own)

    left: list[int] = [0]
    threads = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(1000 * at,)) for at in range(1, 4)]
    for thread in (*threads, *writers):
        thread.start()
    for thread in writers:
        thread.join(LONG)
    matcher.compact()
    stop.set()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in (*threads, *writers))
    assert wrong == []
    assert searches[0] > 10
    assert sorted(matcher.match_one({"x": 1})) == sorted(name for at in left for name in (at, at + 1))
