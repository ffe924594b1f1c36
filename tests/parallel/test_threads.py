"""Any number of threads and processes: the same answers."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.parallel import threads


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", None)
    monkeypatch.delenv("GPUMATCH_NUM_THREADS", raising=False)


def filled() -> gm.Matcher:
    matcher = gm.Matcher({"i": "int64", "s": "string", "tags": "list<int64>"})
    matcher.add({k: f"i >= {k} AND s <> 'x{k % 5}' OR tags = {k}" for k in range(200)})
    return matcher


def events(count: int = 2000) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "i": rng.integers(0, 200, count),
        "s": [f"x{k}" for k in rng.integers(0, 7, count)],
        "tags": [[int(k)] * (int(k) % 3) for k in rng.integers(0, 200, count)],
    }


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None, True])
def test_the_number_of_threads_is_checked(count: Any) -> None:
    with pytest.raises(ValueError, match="whole number of at least 1, found"):
        gm.set_num_threads(count)
    assert threads.get_num_threads() >= 1


@pytest.mark.parametrize("text", ["0", "two", "-1", "1.5"])
def test_the_environment_is_checked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMATCH_NUM_THREADS", text)
    with pytest.raises(gm.GpumatchError, match="GPUMATCH_NUM_THREADS must be a whole number of at least 1, found"):
        threads.get_num_threads()


def test_where_the_number_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= threads.get_num_threads() <= (os.cpu_count() or 1)
    monkeypatch.setenv("GPUMATCH_NUM_THREADS", "3")
    assert threads.get_num_threads() == 3
    gm.set_num_threads(5)
    assert threads.get_num_threads() == 5


def test_work_is_shared_and_stays_in_order() -> None:
    gm.set_num_threads(4)
    used = set()
    barrier = threading.Barrier(4, timeout=30)

    def work(item: int) -> int:
        used.add(threading.current_thread().name)
        barrier.wait()  # passes only if four run at once
        return item * item

    assert threads.run(work, range(8)) == [item * item for item in range(8)]
    assert len(used) == 4


def test_an_exception_reaches_the_caller() -> None:
    gm.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda item: 1 // item, [1, 0, 1])


def test_any_number_of_threads_gives_the_same() -> None:
    matcher, batch = filled(), events()
    gm.set_num_threads(1)
    expected = matcher.match(batch)
    assert expected.n_pairs > 1000
    for count in (2, 3, 8):
        gm.set_num_threads(count)
        assert matcher.match(batch) == expected
        assert filled().match(batch) == expected


def in_threads(*targets: Any) -> None:
    """Run all at once; whatever one of them raises is raised here."""
    problems: list[BaseException] = []
    start = threading.Barrier(len(targets))

    def guarded(target: Any) -> None:
        try:
            start.wait()
            target()
        except BaseException as problem:
            problems.append(problem)

    running = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if problems:
        raise problems[0]


def test_first_match_on_several_threads_at_once() -> None:
    """Each finds the tail unsealed; one of them seals it."""
    for _ in range(30):
        matcher = filled()
        found: list[Any] = []
        in_threads(*[lambda m=matcher, out=found: out.append(m.match_one({"i": 3, "s": "y"}))] * 4)
        assert found == [[0, 1, 2, 3]] * 4


def test_matching_while_others_add_and_remove() -> None:
    gm.set_num_threads(2)
    matcher = gm.Matcher({"i": "int64"})
    matcher.add(dict.fromkeys(range(100), "i >= 0"))

    def add(first: int) -> None:
        for k in range(first, first + 60):
            matcher.add({k: "i >= 0"})

    def remove() -> None:
        for k in range(50):
            matcher.remove([k])

    def match() -> None:
        for _ in range(60):
            found = matcher.match({"i": [1] * 200})
            assert (found.counts == found.counts[0]).all()
            ids = found.ids(0)
            assert len(set(ids)) == len(ids)
            assert set(range(50, 100)) <= set(ids)
            assert len(matcher) >= 50

    in_threads(lambda: add(1000), lambda: add(2000), remove, match, match)
    assert set(matcher.match_one({"i": 1})) == {*range(50, 100), *range(1000, 1060), *range(2000, 2060)}
    assert len(matcher) == 170


def test_saving_while_others_add(tmp_path: Any) -> None:
    matcher = filled()

    def add() -> None:
        for k in range(1000, 1020):
            matcher.add({k: "i >= 0"})

    def save() -> None:
        for k in range(4):
            matcher.save(tmp_path / str(k))
            assert set(range(200)) <= set(gm.load(tmp_path / str(k)).ids.tolist())

    in_threads(add, save)
    assert len(matcher) == 220


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_matches_after_its_parent_did() -> None:
    gm.set_num_threads(2)
    matcher, batch = filled(), events()
    expected = matcher.match(batch)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            matcher.add({999: "i >= 0"})
            matcher.remove([999])
            code = 0 if matcher.match(batch) == expected else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert matcher.match(batch) == expected
