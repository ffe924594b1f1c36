"""A process that writes to an index is killed, again and again: what it knows to be stored is there, and no more."""

from __future__ import annotations

import os
import signal
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from tests.examples import rounds
from tests.store import histories
from tests.store.histories import Model

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
eager = histories.eager

IN_A_ROW = 10  # kills of one folder
OPENED, STORED = b"o", b"."


def write(folder: Path, seed: int, model: Model, options: dict[str, Any], pipe: int) -> None:
    """The life of a child: calls without end, each reported when it has returned."""
    matcher = gm.open(folder, "a", schema=histories.SCHEMA, **options)
    assert histories.state(matcher) == histories.state_of(model)
    os.write(pipe, OPENED)
    for call, _ in histories.random_calls(np.random.default_rng(seed), model):
        histories.make(matcher, call)
        os.write(pipe, STORED)


def killed(folder: Path, seed: int, model: Model, options: dict[str, Any], reports: int, delay: float) -> bytes:
    """What a child reported until it was killed, some seconds after so many reports."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(here)
            write(folder, seed, model, options, there)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(there)
    report = b""
    while len(report) < reports and (more := os.read(here, reports - len(report))):
        report += more
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    while more := os.read(here, 1 << 16):
        report += more
    os.close(here)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the child ended by itself"
    return report


def survivor(folder: Path, seed: int, model: Model, report: bytes, verify: Any) -> Model:
    """What is in the folder: all that was reported, and of the call that was under way all or nothing."""
    done = report.count(STORED)
    history = [
        model,
        *(later for _, later in islice(histories.random_calls(np.random.default_rng(seed), model), done + 1)),
    ]
    found = histories.state(gm.load(folder, device="cpu", verify=verify))
    for possible in history[done:]:
        if found == histories.state_of(possible):
            return possible
    raise AssertionError(f"after {done} calls of seed {seed} with {model}: found {found}, expected {history[done:]}")


def torture(folder: Path, seed: int, kills: int = IN_A_ROW) -> int:
    """Kill writers of a folder one after another; returns how many calls they made."""
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {
        "fsync": str(rng.choice(["always", "batch", "never"])),
        "keep": float(rng.choice([0, 0.05, 3600])),
        "background": bool(rng.random() < 0.5),
        "index": str(rng.choice(["auto", "pstbloom"])),
    }
    model: Model = {}
    reader, calls = None, 0
    for kill in range(kills):
        report = killed(folder, seed + kill, model, options, int(rng.integers(10)), float(rng.random() * 0.03))
        if not (folder / "manifest.json").exists():
            assert report == b""
            continue
        model = survivor(folder, seed + kill, model, report, "full" if kill % 3 == 0 else "once")
        calls += report.count(STORED)
        reader = reader or gm.open(folder, device="cpu")
        reader.refresh()
        assert histories.state(reader) == histories.state_of(model)
        if rng.random() < 0.3:
            with gm.open(folder, "a", **options) as writer:
                assert histories.state(writer) == histories.state_of(model)
                assert writer.version == reader.version
    return calls


def warm(folder: Path) -> None:
    """Kernels are compiled before children are made."""
    matcher = gm.open(folder, "a", schema=histories.SCHEMA, index="pstbloom", background=False, keep=0)
    for call, model in islice(histories.random_calls(np.random.default_rng(1), {}), 30):
        histories.make(matcher, call)
        assert histories.state(matcher) == histories.state_of(model)
    matcher.close()


def test_a_killed_writer(tmp_path: Path, eager: None) -> None:
    warm(tmp_path / "warm")
    assert torture(tmp_path / "idx", 0, 3) > 0


@pytest.mark.long
def test_killed_writers(tmp_path: Path, eager: None) -> None:
    warm(tmp_path / "warm")
    seeds = range(IN_A_ROW, rounds(300) + IN_A_ROW, IN_A_ROW)
    calls = sum(torture(tmp_path / str(seed), seed) for seed in seeds)
    print(f"{len(seeds) * IN_A_ROW} kills, {calls} calls")
    assert calls > len(seeds)
