"""Threads that match, change, follow and save one index at once: every answer is that of some moment."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from tests.examples import rounds
from tests.store import histories

eager = histories.eager

GROUP = 7  # subscriptions that are only ever added, changed and removed together
GROUPS = 30  # of each writer
WRITERS = 2
STUCK = 120.0  # seconds without a step of some thread
GROWTH = 150 << 20  # bytes that a process may vary by
EVENT = {"x": 0, "s": "a"}
MARKS = [{"x": at} for at in range(1, 6)]


class WrongError(Exception):
    """What a thread found."""


def check(matcher: gm.Matcher) -> int:
    """Of each group all are there, with the same expression; returns how many groups."""
    results = [list(map(int, ids)) for ids in matcher.match([EVENT, *MARKS])]
    groups: dict[int, list[int]] = {}
    for name in results[0]:
        groups.setdefault(name // 10, []).append(name % 10)
    torn = {group: held for group, held in groups.items() if held != list(range(GROUP))}
    if torn:
        raise WrongError(f"groups of one snapshot are {torn}")
    marked = sorted(name for ids in results[1:] for name in ids)
    if marked != sorted(results[0]):
        raise WrongError(f"marked {marked}, there {sorted(results[0])}")
    for ids in results[1:]:
        if any(sum(name // 10 == group for name in ids) != GROUP for group in {name // 10 for name in ids}):
            raise WrongError(f"a group has two expressions: {ids}")
    return len(groups)


class Crowd:
    """Threads that take steps until the time is up, or one finds something wrong."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.wrong: list[BaseException] = []
        self.steps: dict[str, int] = {}
        self.threads: list[threading.Thread] = []

    def add(self, name: str, step: Callable[[], object]) -> None:
        self.steps[name] = 0

        def run() -> None:
            try:
                while not self.stop.is_set():
                    step()
                    self.steps[name] += 1
            except BaseException as error:
                self.wrong.append(error)
                self.stop.set()

        self.threads.append(threading.Thread(target=run, name=name, daemon=True))

    def run(self, seconds: float, look: Callable[[float], None]) -> None:
        """``look`` is called with the share of the time that is over, again and again."""
        begin = time.monotonic()
        seen, last = dict(self.steps), begin
        for thread in self.threads:
            thread.start()
        while not self.stop.wait(0.2) and time.monotonic() - begin < seconds:
            look((time.monotonic() - begin) / seconds)
            if all(self.steps[name] > seen[name] for name in seen):
                seen, last = dict(self.steps), time.monotonic()
            self.moves(time.monotonic() - last < STUCK)
        self.stop.set()
        for thread in self.threads:
            thread.join(STUCK)
            self.moves(not thread.is_alive())
        if self.wrong:
            raise self.wrong[0]

    def moves(self, really: bool) -> None:
        if not really:
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)
            raise AssertionError(f"some thread is stuck: {self.steps}")


def expression(rng: np.random.Generator) -> str:
    return f"x = 0 OR x = {int(rng.integers(1, 6))}"


def writer(matcher: gm.Matcher, number: int) -> Callable[[], None]:
    """A step that changes groups of its own, and looks whether the change is there at once."""
    rng = np.random.default_rng(number)
    there: set[int] = set()

    def step() -> None:
        group = number * GROUPS + int(rng.integers(GROUPS))
        names = [group * 10 + at for at in range(GROUP)]
        text, kind = expression(rng), rng.random()
        if group not in there:
            (matcher.add if kind < 0.6 else matcher.upsert)(dict.fromkeys(names, text))
            there.add(group)
        elif kind < 0.4:
            (matcher.replace if kind < 0.2 else matcher.upsert)(dict.fromkeys(names, text))
        else:
            matcher.remove(names)
            there.remove(group)
        found = {int(name) // 10 for name in matcher.match_one(EVENT)}
        mine = {one for one in found if one // GROUPS == number}
        if mine != there:
            raise WrongError(f"after a call of writer {number} on {group}: found {mine}, expected {there}")

    return step


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def crowd(base: Path, seconds: float, durable: bool) -> None:
    given: dict[str, Any] = {"device": "cpu"}
    folder = base / "idx"
    if durable:
        matcher = gm.open(folder, "a", schema=histories.SCHEMA, fsync="batch", keep=0.5, **given)
    else:
        matcher = gm.Matcher(histories.SCHEMA, **given)
    matcher.save(base / "saved") if not durable else gm.Matcher(histories.SCHEMA).save(base / "saved")
    reader = gm.open(folder if durable else base / "saved", **given)
    threads = Crowd()
    for number in range(WRITERS):
        threads.add(f"writer {number}", writer(matcher, number))
    threads.add("matcher", lambda: check(matcher))
    threads.add("follower", lambda: (reader.refresh(), check(reader)))
    threads.add("reader", lambda: check(reader))

    def save() -> None:
        matcher.save(base / "saved")
        check(gm.load(base / "saved", verify="full", **given))
        if durable:
            check(gm.load(folder, **given))

    def compact() -> None:
        matcher.compact()
        check(matcher)
        threads.stop.wait(0.05)

    threads.add("saver", save)
    threads.add("compacter", compact)
    sizes: list[tuple[float, int, int, int]] = []
    threads.run(seconds, lambda share: sizes.append((share, resident(), descriptors(), threading.active_count())))
    print(threads.steps)
    warm = [size for size in sizes if size[0] > 0.3] or sizes
    assert warm[-1][1] < warm[0][1] + GROWTH, [size[1] >> 20 for size in sizes]
    assert max(size[3] for size in sizes) < len(threads.threads) + 20
    matcher.close()
    reader.refresh()
    assert check(reader) == check(gm.load(folder if durable else base / "saved", **given))
    if durable:
        assert histories.state(reader) == histories.state(matcher)


@pytest.mark.long
@pytest.mark.parametrize("durable", [True, False])
def test_threads(durable: bool, tmp_path: Path, eager: None) -> None:
    before = descriptors(), threading.active_count()
    crowd(tmp_path, rounds(600) * (0.7 if durable else 0.3), durable)
    gc.collect()
    assert descriptors() <= before[0] + 3
    assert threading.active_count() <= before[1] + 3
