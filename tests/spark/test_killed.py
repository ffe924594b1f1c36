"""A query that is killed again and again while its index changes: each batch has the rows of one version, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gpumatch as gm
from gpumatch.store.folder import durable
from tests.examples import rounds
from tests.spark.stream_program import FILES
from tests.spark.streams import SCHEMA, arrive, check, events, written_by_batch

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = Path(__file__).with_name("stream_program.py")
ROWS = 50  # of a file
PATIENCE = 300.0  # seconds
LOCAL = "local[2,100]"  # a task may fail so often
CLUSTER = "local-cluster[2,1,1024]"  # two executors with one core and 1024 MB


class Driver:
    """The query in a process of its own, with all that belongs to it: the JVM, executors and Python's workers."""

    def __init__(self, folder: Path, master: str = LOCAL) -> None:
        self._folder = folder
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "GPUMATCH_TRIALS": "0"}
        with open(folder / "said", "ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import runpy, sys; sys.argv = ['', {str(folder)!r}, {master!r}]; "
                 f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"],
                cwd=PROGRAM.parents[2], env=os.environ | own, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """The driver and its JVM, at once. Workers end when they hear nothing more."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self) -> bool:
        """One of Python's workers, as far as there are any; Spark runs its task again."""
        return kill_one([at for at, parent in below(self._process.pid).items() if runs(parent, "pyspark.daemon")])

    def kill_executor(self) -> bool:
        """One of them, as far as there are any, in the midst of what it does; Spark starts another."""
        return kill_one([at for at in below(self._process.pid) if runs(at, "CoarseGrainedExecutorBackend")])

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_there():
            assert self._process.poll() is None, (self._folder / "said").read_text()[-3000:]
            assert time.monotonic() < deadline, (self._folder / "said").read_text()[-3000:]
            time.sleep(0.05)

    def finish(self) -> None:
        (self._folder / "stop").touch()
        assert self._process.wait(PATIENCE) == 0, (self._folder / "said").read_text()[-3000:]


def committed(folder: Path) -> int:
    """How many batches were committed so far, by all drivers."""
    commits = folder / "check" / "commits"
    return sum(path.name.isdecimal() for path in commits.iterdir()) if commits.exists() else 0


def below(root: int) -> dict[int, int]:
    """The processes below one, with their parents."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            facts = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            parents[int(name)] = int(facts[1])
        except OSError:  # it has ended
            continue

    def is_below(process: int) -> bool:
        while process in parents and process != root:
            process = parents[process]
        return process == root

    return {process: parent for process, parent in parents.items() if process != root and is_below(process)}


def runs(process: int, what: str) -> bool:
    try:
        return what.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def kill_one(processes: list[int]) -> bool:
    """Whether there was any."""
    if processes:
        os.kill(random.choice(processes), signal.SIGKILL)
    return bool(processes)


class Outside(threading.Thread):
    """Changes the index, as often as it is allowed to, and has events arrive, not many more than are read."""

    def __init__(self, matcher: gm.Matcher, folder: Path) -> None:
        super().__init__()
        self._matcher, self._folder = matcher, folder
        self.allowed = self.made = 0
        self.arrived = 0
        self._stop_it = threading.Event()

    def run(self) -> None:
        chosen = random.Random(5)
        while not self._stop_it.wait(0.05):
            if self.made < self.allowed:
                self._matcher.upsert({f"n{chosen.randrange(40)}": f"x >= {chosen.randrange(100)}"})
                self.made += 1
            if self.arrived < FILES * committed(self._folder) + 2 * FILES:
                arrive(self._folder / "in", self.arrived * ROWS, ROWS)
                self.arrived += 1

    def end(self) -> None:
        self._stop_it.set()
        self.join()


def test_killed_drivers_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_RECORDS", 7)  # the log is folded often, and nothing but pins keeps a version
    kills, changes = max(rounds(10), 2), max(rounds(100), 30)
    matcher = gm.open(tmp_path / "index", "a", schema=SCHEMA, background=False, keep=0)
    matcher.add({"low": "x < 50", "b": "s = 'b'"})
    (tmp_path / "in").mkdir()
    random.seed(7)
    workers = 0
    outside = Outside(matcher, tmp_path)
    outside.start()
    try:
        for kill in range(kills + 1):
            driver = Driver(tmp_path)
            before = committed(tmp_path)
            driver.wait_for(lambda before=before: committed(tmp_path) > before)  # type: ignore[misc]
            outside.allowed = changes * (kill + 1) // (kills + 1)
            if kill % 2:
                driver.wait_for(driver.kill_worker)
                workers += 1
            driver.wait_for(lambda: outside.made == outside.allowed)
            if kill < kills:
                time.sleep(random.random())
                driver.kill()
    finally:
        outside.end()
    driver.finish()
    matcher.close()
    assert len(set(checked(tmp_path, outside).values())) > kills
    assert (outside.made, workers) == (changes, (kills + 1) // 2)


@pytest.mark.skipif("GPUMATCH_ALL" not in os.environ, reason="it starts a dozen executors: make test-long runs it")
def test_killed_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the driver goes on."""
    monkeypatch.setattr(durable, "_RECORDS", 7)
    kills, changes = 10, 100
    matcher = gm.open(tmp_path / "index", "a", schema=SCHEMA, background=False, keep=0)
    matcher.add({"low": "x < 50", "b": "s = 'b'"})
    (tmp_path / "in").mkdir()
    random.seed(8)
    outside = Outside(matcher, tmp_path)
    outside.start()
    try:
        driver = Driver(tmp_path, CLUSTER)
        for kill in range(kills):
            before = committed(tmp_path)
            driver.wait_for(lambda before=before: committed(tmp_path) > before)  # type: ignore[misc]
            outside.allowed = changes * (kill + 1) // kills
            time.sleep(random.random())
            driver.wait_for(driver.kill_executor)
            driver.wait_for(lambda: outside.made == outside.allowed)
    finally:
        outside.end()
    driver.finish()
    matcher.close()
    assert len(set(checked(tmp_path, outside).values())) > kills // 2
    assert outside.made == changes


def checked(folder: Path, outside: Outside) -> dict[int, str]:
    """The version of each batch; no row is lost, none is there twice, and none is of another version."""
    versions = check(folder / "index", (folder / "query").read_text(), folder / "check", folder / "out")
    found = [pair for pairs in written_by_batch(folder / "out").values() for pair in pairs]
    assert len(found) == len(set(found))
    low = [k for k, x in enumerate(events(0, ROWS * outside.arrived)["x"].to_pylist()) if x < 50]
    assert sorted(k for k, name in found if name == "low") == low
    return versions


def test_a_bad_version_takes_one_line(tmp_path: Path) -> None:
    with gm.open(tmp_path / "index", "a", schema=SCHEMA) as matcher:
        matcher.add({"low": "x < 50"})
    arrive(tmp_path / "in", 0, ROWS)
    driver = Driver(tmp_path)
    driver.wait_for(lambda: committed(tmp_path) == 1)
    bad = gm.Matcher(SCHEMA)
    bad.add({7: "x < 60"})
    bad.save(tmp_path / "index")
    for step in (1, 2, 3):
        arrive(tmp_path / "in", ROWS * step, ROWS)
        driver.wait_for(lambda step=step: committed(tmp_path) == step + 1)  # type: ignore[misc]
    driver.finish()
    versions = check(tmp_path / "index", (tmp_path / "query").read_text(), tmp_path / "check", tmp_path / "out")
    assert len(versions) == 4
    assert len(set(versions.values())) == 1
    said = (tmp_path / "said").read_text()
    assert said.count("is refused, and the query") == 1
    assert "are not of type string, which the query expects" in said
