"""Folders that were damaged: each opens as what it was at some time, or is refused."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.store.folder import durable, log
from tests.examples import rounds
from tests.store import histories
from tests.store.forging import bounded, forged, payloads
from tests.store.histories import State

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as on Linux")
eager = histories.eager

Rng = np.random.Generator
INDEXES = ("auto", "scan", "gem", "tama", "pstbloom", "psthash", "ladder", "atree")


class Master:
    """A folder to be damaged, and all that it has ever held."""

    def __init__(self, folder: Path, index: str, kind: str, seed: int) -> None:
        self.folder = folder
        keep = 0 if seed % 2 else 3600  # files of earlier versions matter to few
        given: dict[str, Any] = {"index": index, "background": False, "device": "cpu", "keep": keep}
        matcher = gm.open(folder, "a", schema=histories.SCHEMA, **given)
        history = list(islice(histories.random_calls(np.random.default_rng(seed), {}), 25))
        for at, (call, _) in enumerate(history):
            if at == 18:  # the last calls stay in the log, some of them in files
                durable._ROWS = durable._RECORDS = 1 << 30
            if call[0] != "compact" or at < 18:
                histories.make(matcher, call)
        self.states: list[State] = [[], *(histories.state_of(model) for _, model in history)]
        if kind == "open":
            histories.crash(matcher)
        else:
            matcher.close()
        if kind == "saved":
            loaded = gm.load(folder, device="cpu")
            loaded.save(folder.with_name(f"{folder.name}-saved"))
            self.folder, self.states = folder.with_name(f"{folder.name}-saved"), self.states[-1:]
        assert histories.state(gm.load(self.folder, device="cpu")) == self.states[-1]


@pytest.fixture
def masters(tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Master]:
    """The n-th folder; there are three kinds, of all indexes."""
    made: dict[int, Master] = {}

    def master(number: int) -> Master:
        number %= 3 * len(INDEXES)
        if number not in made:
            kind, index = ("open", "closed", "saved")[number % 3], INDEXES[number // 3]
            with monkeypatch.context() as patch:
                histories.lower(patch)
                made[number] = Master(tmp_path / str(number), index, kind, number)
        return made[number]

    return master


# Damage


def flip(content: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(max(len(content), 1)))
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :] if content else b"\0"


def scramble(content: bytes, rng: Rng) -> bytes:
    at, size = int(rng.integers(len(content) + 1)), int(rng.integers(1, 100))
    return content[:at] + rng.bytes(size) + content[at + size :]


def blank(content: bytes, rng: Rng) -> bytes:
    at, size = int(rng.integers(len(content) + 1)), int(rng.choice([1, 8, 64, 512, 4096]))
    return content[:at] + bytes(len(content[at : at + size])) + content[at + size :]


def cut(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def cut_out(content: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(content) + 1))
    return content[:at] + content[at + int(rng.integers(1, 200)) :]


def lengthen(content: bytes, rng: Rng) -> bytes:
    return content + (bytes if rng.random() < 0.5 else rng.bytes)(int(rng.choice([1, 44, 5000])))


def repeat(content: bytes, rng: Rng) -> bytes:
    first, last = sorted(int(at) for at in rng.integers(len(content) + 1, size=2))
    return content[:last] + content[first:last] + content[last:]


WAYS = (flip, flip, scramble, blank, cut, cut_out, lengthen, repeat)


def damaged(folder: Path, rng: Rng) -> tuple[str, dict[Path, bytes | None]]:
    """Damage a file or two; returns how, and what they held."""
    names = sorted(path for path in folder.iterdir() if path.name != "writer.lock")
    special = [path for path in names if path.suffix != ".npy"]
    path = (special if rng.random() < 0.5 else names)[int(rng.integers(len(special)))]
    content, how = path.read_bytes(), rng.random()
    if how < 0.7:
        way = WAYS[int(rng.integers(len(WAYS)))]
        path.write_bytes(way(content, rng))
        return f"{way.__name__} of {path.name}", {path: content}
    other = names[int(rng.integers(len(names)))]
    if how < 0.8:
        path.unlink()
        return f"{path.name} is missing", {path: content}
    held = other.read_bytes()
    path.write_bytes(held)
    if how < 0.9:
        return f"{other.name} in the place of {path.name}", {path: content}
    other.write_bytes(content)
    return f"{other.name} and {path.name} are swapped", {path: content, other: held}


def opened(folder: Path, how: int, base: Path) -> gm.Matcher:
    verify: Any = ("full", "once")[how % 2]
    if how % 10 == 7:
        return gm.open(folder, device="cpu", verify=verify)
    if how % 10 != 8:
        return gm.load(folder, device="cpu", verify=verify, mmap=how % 3 > 0)
    copy = shutil.copytree(folder, base / f"copy-{how}")
    try:
        matcher = gm.open(copy, "a", device="cpu", verify=verify)
        matcher.add({1000: "x = -1000"})
        matcher.remove([1000])
        matcher.close()
        return gm.load(copy, device="cpu", verify=verify, mmap=False)
    finally:
        shutil.rmtree(copy)


def attack(masters: Callable[[int], Master], count: int, seed: int, base: Path) -> Counter[str]:
    rng, outcome = np.random.default_rng(seed), Counter[str]()
    for at in range(count):
        master = masters(int(rng.integers(1 << 20)))
        how, held = damaged(master.folder, rng)
        try:
            with bounded():
                found = histories.state(opened(master.folder, at, base))
        except gm.GpumatchError:
            outcome["refused"] += 1
        else:
            assert found in master.states, (how, master.folder, seed)
            outcome["right"] += 1
        for path, content in held.items():
            if content is not None:
                path.write_bytes(content)
    assert outcome["refused"] > count // 4
    assert outcome["right"] > 0
    return outcome


def test_some_damage(masters: Callable[[int], Master], tmp_path: Path) -> None:
    attack(lambda _: masters(1), 30, 0, tmp_path)


@pytest.mark.long
def test_damage(masters: Callable[[int], Master], tmp_path: Path) -> None:
    print(attack(masters, rounds(6000), 1, tmp_path))


@pytest.mark.long
def test_logs_whose_records_are_moved(masters: Callable[[int], Master]) -> None:
    """With right hashes they are another history, which may be one."""
    master = masters(1)
    [path] = sorted(master.folder.glob("changes-*.log"))[-1:]
    content = path.read_bytes()
    held = payloads(content)
    assert len(held) > 4
    outcome = Counter[str]()
    for first in range(len(held)):
        for moved in (held[:first] + held[first + 1 :], held[first:] + held[:first], [*held, held[first]]):
            path.write_bytes(forged(content, moved))
            with bounded():
                try:
                    histories.state(gm.load(master.folder, device="cpu", verify="full"))
                    outcome["opened"] += 1
                except gm.GpumatchError:
                    outcome["refused"] += 1
    assert outcome["refused"] > 0
    path.write_bytes(content)
    assert histories.state(gm.load(master.folder, device="cpu", verify="full")) == master.states[-1]


@pytest.mark.long
def test_a_log_of_zeros_without_end(masters: Callable[[int], Master], monkeypatch: pytest.MonkeyPatch) -> None:
    master = masters(0)
    monkeypatch.undo()  # in pieces as large as they are
    [path] = sorted(master.folder.glob("changes-*.log"))[-1:]
    os.truncate(path, 1 << 29)  # takes no room
    with bounded(1 << 27):
        assert histories.state(gm.load(master.folder, device="cpu")) == master.states[-1]


@pytest.mark.long
def test_files_that_claim_to_be_large(masters: Callable[[int], Master], monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no room on the disk, and should take none in memory."""
    master = masters(0)
    monkeypatch.undo()
    [path] = sorted(master.folder.glob("changes-*.log"))[-1:]
    content, number = path.read_bytes(), len(payloads(path.read_bytes()))
    first = log._FILE.unpack_from(content)[1]
    head = log._HEAD.pack(log._MAGIC, first + number + 1, (1 << 29) - 1000, 0)
    path.write_bytes(content + head + log._check(head))
    os.truncate(path, len(content) + (1 << 29))
    with bounded(1 << 27):
        assert histories.state(gm.load(master.folder, device="cpu")) == master.states[-1]
    path.write_bytes(content)
    os.truncate(master.folder / "manifest.json", 1 << 40)
    with bounded(1 << 27), pytest.raises(gm.StorageError, match="it is no manifest; save the index again"):
        gm.load(master.folder, device="cpu")
