"""Compiling ahead of time: afterwards a new process compiles nothing, whatever it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpumatch as gm
from gpumatch import threads, warming
from gpumatch.arrays import simulated
from gpumatch.cli import main
from gpumatch.index import KINDS
from gpumatch.kernels import cache

# Not what warm_up itself does: other types, shapes and ways, as a user would have them.
USE = """
import sys, datetime as dt
import numpy as np, pyarrow as pa
import gpumatch as gm
from gpumatch import threads, warming
from gpumatch.kernels.compile import compilations

SCHEMA = {"sym": "string", "px": "float64", "qty": "int64", "day": "date", "at": "timestamp", "tags": "list<string>"}

def use(index, schema):
    m = gm.Matcher(schema, index, device="cpu")
    m.add({"hot": "sym = 'NVDA' AND px > 900", "odd": "px < 10 OR qty IN (1, 2)", "day": "day > DATE '2024-01-01'"})
    if "tags" in schema:
        m.add({"tag": "tags = 'x' AND NOT (px > 5 XOR qty = 2)"})
    ids = [f"r{number}" for number in range(300)]
    low = np.linspace(0, 1, 300)
    m.add_ranges(ids, {"px": (low, low + 0.5), "qty": (np.arange(300), np.arange(300) + 3)})
    rows = [{"sym": "NVDA", "px": 950.0, "tags": ["x"]}, {"px": 3}, {"qty": 2, "day": dt.date(2025, 1, 1)}]
    rows = [{name: value for name, value in row.items() if name in schema} for row in rows]
    table = pa.table({"px": pa.array([1.0, None, 3.0], pa.float32()), "qty": pa.array([1, 2, 3], pa.int16())})
    columns = {name: np.arange(5).astype(kind) for name, kind in (("px", np.float32), ("qty", np.uint8))}
    sparse = gm.EventBatch.from_csr([0, 2, 3], [0, 1, 0], [0.5, 2.0, 0.7], ["px", "qty"])
    def ask(m):
        answers = [m.match(events).counts.tolist() for events in (rows, rows[:1], [], table, columns, sparse)]
        return answers, m.match_one(rows[0]), m.count(rows).tolist(), [len(r) for r in m.match_iter(table)]
    first = ask(m)
    m.save(sys.argv[1] + index + str(len(schema)))
    for mmap in (True, False):
        loaded = gm.load(sys.argv[1] + index + str(len(schema)), device="cpu", mmap=mmap)
        assert ask(loaded) == first
        loaded.remove(["r1", "hot"])
        loaded.observe(rows)
        loaded.compact()
        ask(loaded)

for index in sys.argv[2].split(","):
    use(index, SCHEMA)
    use(index, {name: kind for name, kind in SCHEMA.items() if name != "tags"})
print(compilations())
"""

pytestmark = pytest.mark.skipif(simulated(), reason="what is compiled for the CPU does not depend on the simulator")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    cache.named_folder.cache_clear()
    yield tmp_path / "cache"
    cache.named_folder.cache_clear()


def test_after_a_warm_up_nothing_is_compiled(tmp_path: Path, folder: Path) -> None:
    seen: list[tuple[str, int]] = []
    found = gm.warm_up(done=lambda name, count: seen.append((name, count)))
    assert sorted(found) == sorted(KINDS)
    assert dict(seen) == found
    assert len(list(folder.rglob("*.nbc"))) >= max(found.values()) > 0
    command = [sys.executable, "-c", USE, f"{tmp_path}/", ",".join((*KINDS, "auto"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert gm.warm_up(["scan"]) == {"scan": 0}


def test_names_that_there_are_not(folder: Path) -> None:
    with pytest.raises(gm.GpumatchError, match="no index 'bloom' to compile; there are auto, scan"):
        gm.warm_up(["gem", "bloom"])
    with pytest.raises(gm.GpumatchError, match="no index is named"):
        gm.warm_up([])
    assert not folder.exists()


def test_a_folder_that_cannot_be_used_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write_text("no folder")
    with pytest.raises(gm.GpumatchError, match=r"cannot keep compiled kernels in .*cache.* set GPUMATCH_CACHE_DIR"):
        gm.warm_up("scan")
    assert main(["warm-up", "scan"]) == 2
    assert "GPUMATCH_CACHE_DIR" in capsys.readouterr().err


def test_a_folder_that_others_may_write_to_is_an_error(folder: Path) -> None:
    cache.named_folder()[0].chmod(0o777)
    cache.named_folder.cache_clear()
    with pytest.raises(gm.GpumatchError, match="others may write to it, mode 777; set GPUMATCH_CACHE_DIR"):
        gm.warm_up("scan")


def test_a_failure_names_the_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(gm.GpumatchError, match="warming gem failed with status 1"):
        gm.warm_up(["gem"])


def test_the_command_shows_what_was_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warming, "run_module", lambda module, name: b"%d" % len(name))
    monkeypatch.setattr(threads, "_count", None)
    assert main(["warm-up", "ladder", "scan", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1:4:2] for line in out.splitlines() if line.startswith("│")] == [
        ["scan", "4"],
        ["ladder", "6"],
    ]
    assert f"kept in {folder}" in out
    assert threads.get_num_threads() == 1
