"""Compiling ahead of time: afterwards a new process compiles nothing, whatever it does.

What a process needs are drivers with types of arguments, so it is enough to compare those of a warm-up with those of
other uses; nothing is compiled for that where the cache folder has it all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import gpumatch as gm
from gpumatch import warming
from gpumatch.cli import main
from gpumatch.device_memory import simulated
from gpumatch.index import KINDS
from gpumatch.kernels import cache as kernel_cache
from gpumatch.parallel import threads

# Not what warm_up itself does: other types, shapes and ways, as a user would have them.
USE = """
import datetime as dt
import numpy as np, pyarrow as pa
import gpumatch as gm
from gpumatch.index import costs
from gpumatch.store import ids

costs._SAMPLE, ids._FEW = 100, 100  # so that this does what larger indexes do
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

index = sys.argv[2]
use(index, SCHEMA)
use(index, {name: kind for name, kind in SCHEMA.items() if name != "tags"})
"""

WARM_UP = """
from gpumatch import warming
from gpumatch.index import KINDS
kind = KINDS[sys.argv[2]]
for params in kind.forms or (kind.params(),):
    warming._exercise(params)
"""
NEEDED = """
import importlib, pkgutil, sys
{}
import gpumatch.kernels
for module in pkgutil.iter_modules(gpumatch.kernels.__path__):
    for name, one in vars(importlib.import_module(f"gpumatch.kernels.{{module.name}}")).items():
        for signature in getattr(one, "signatures", ()) if hasattr(one, "_cache_misses") else ():
            print(name, signature)
"""

pytestmark = pytest.mark.skipif(simulated(), reason="what is compiled for the CPU does not depend on the simulator")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "cache"))
    kernel_cache.named_folder.cache_clear()
    yield tmp_path / "cache"
    kernel_cache.named_folder.cache_clear()


@cache
def needed(program: str, index: str) -> set[str]:
    """The drivers that a process calls, and with what types."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", NEEDED.format(program), f"{folder}/", index]
        env = {**os.environ, "GPUMATCH_TRIALS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return set(done.stdout.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("index", [*KINDS, "auto"])
def test_a_warm_up_does_all_that_is_needed(index: str) -> None:
    done = set().union(*(needed(WARM_UP, name) for name in (KINDS if index == "auto" else ("scan", index))))
    wanted = needed(USE, index)
    assert len(wanted) > 10
    assert not wanted - done


@pytest.mark.long
def test_after_a_warm_up_nothing_is_compiled(folder: Path) -> None:
    seen: list[tuple[str, int]] = []
    found = gm.warm_up(["scan"], lambda name, count: seen.append((name, count)))
    assert dict(seen) == found
    assert len(list(folder.rglob("*.nbc"))) >= found["scan"] > 0
    assert gm.warm_up("scan") == {"scan": 0}


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
    kernel_cache.named_folder()[0].chmod(0o777)
    kernel_cache.named_folder.cache_clear()
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


def test_code_that_is_not_trusted_is_not_lent(folder: Path, tmp_path: Path) -> None:
    own = warming.cache_folder()
    for name, mode in (("mine", 0o644), ("theirs", 0o666)):
        (own / f"{name}.nbc").write_bytes(b"code")
        (own / f"{name}.nbc").chmod(mode)
    assert warming.pack_kernels(tmp_path / "lent.zip") == 1
    own.chmod(0o777)
    kernel_cache.named_folder.cache_clear()
    assert warming.pack_kernels(tmp_path / "lent.zip") == 0


BORROW = """
import sys
from pathlib import Path
import gpumatch as gm
from gpumatch.kernels.compile import compilations
from gpumatch.warming import pack_kernels, use_kernels
use_kernels(Path(sys.argv[1]))
m = gm.Matcher({"x": "int64"}, index="scan", device="cpu")
m.add({"a": "x > 3"})
print(m.match([{"x": 5}]).n_pairs, compilations(), pack_kernels(Path(sys.argv[2])))
"""


def borrowing(lent: Path, home: Path) -> list[int]:
    """Matches, compilations and files of machine code of a process whose own folders are empty."""
    (home / "temporary").mkdir(parents=True)
    environment = os.environ | {"GPUMATCH_CACHE_DIR": str(home / "cache"), "TMPDIR": str(home / "temporary")}
    command = [sys.executable, "-c", BORROW, str(lent), str(home / "packed.zip")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(word) for word in done.stdout.split()]


def test_kernels_that_this_machine_lends(tmp_path: Path) -> None:
    """Where another's machine code fits, nothing is compiled."""
    matcher = gm.Matcher({"x": "int64"}, index="scan", device="cpu")
    matcher.add({"a": "x > 3"})
    assert matcher.match([{"x": 5}]).n_pairs == 1  # so it is compiled
    assert warming.pack_kernels(tmp_path / "lent.zip") > 0
    shutil.unpack_archive(tmp_path / "lent.zip", tmp_path / "lent")
    assert borrowing(tmp_path / "lent", tmp_path / "home") == [1, 0, 0]


@pytest.mark.long
def test_kernels_of_another_machine(tmp_path: Path) -> None:
    """All that a process compiled is packed, and it is enough for one that does the same."""
    matches, compiled, packed = borrowing(tmp_path / "nowhere", tmp_path / "lender")
    assert matches == 1
    assert compiled == packed > 0
    shutil.unpack_archive(tmp_path / "lender" / "packed.zip", tmp_path / "lent")
    assert borrowing(tmp_path / "lent", tmp_path / "home") == [1, 0, 0]
