"""What is compiled and kept: counted, looked up, and never taken from a folder that others may write to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

START = """
import numpy as np
from gpumatch.kernels.compile import compilations, compiled
from gpumatch.kernels.encode import group_keys, unique_runs

keys, ptr = np.array([3, 3, 5]), np.array([0, 3])
def unique():
    return unique_runs(keys, ptr, np.empty(3, np.int64), np.empty(2, np.int64))
"""


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GPUMATCH_CACHE_DIR": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with machine code, which is made once; tests that change it have a copy."""
    folder = tmp_path_factory.mktemp("compiled")
    run(START + "unique()", folder)
    return folder


@pytest.mark.long
def test_what_is_compiled_is_counted_and_found(tmp_path: Path) -> None:
    first = """
assert not compiled(unique_runs) and compiled() and compilations() == 0
assert unique() == 2
assert compiled(unique_runs) and not compiled(unique_runs, group_keys) and compilations() == 1
assert unique() == 2 and compilations() == 1
"""
    run(START + first, tmp_path)
    second = """
assert compiled(unique_runs) and not compiled(group_keys)  # before anything was called
assert unique() == 2 and compilations() == 0
"""
    run(START + second, tmp_path)


@pytest.mark.long
def test_machine_code_for_another_processor_does_not_count(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    run(START + "assert not compiled(unique_runs)", tmp_path, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")


def test_a_failed_compilation_is_counted_and_leaves_nothing(tmp_path: Path) -> None:
    program = """
import numba
try:
    unique_runs("no", "such", "types", "here")
except numba.core.errors.NumbaError:
    pass
assert compilations() == 1 and not compiled(unique_runs)
"""
    run(START + program, tmp_path)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


@pytest.mark.long
def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(compiled: Path, tmp_path: Path) -> None:
    named, aside = tmp_path / "named", tmp_path / "tmp"
    aside.mkdir()
    shutil.copytree(compiled, named, dirs_exist_ok=True)
    (inner,) = named.iterdir()
    inner.chmod(0o777)
    before = kept(named)
    done = run(START + "assert unique() == 2 and compilations() == 1", named, TMPDIR=str(aside))
    assert done.stderr.count(str(inner)) == 1
    assert "others may write to it, mode 777" in done.stderr
    assert "GPUMATCH_CACHE_DIR" in done.stderr
    assert kept(named) == before
    assert [path.name for path in kept(aside)] == [path.name for path in before]
    again = run(START + "assert unique() == 2 and compilations() == 0", named, TMPDIR=str(aside))
    assert again.stderr == ""  # nothing was compiled, so nothing could have been kept


@pytest.mark.long
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_read(compiled: Path, tmp_path: Path, mode: int) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    (file,) = kept(tmp_path)
    file.chmod(mode)
    run(START + "assert unique() == 2 and compilations() == 1", tmp_path)  # which replaces the file
    assert file.stat().st_mode & 0o022 == 0
    run(START + "assert unique() == 2 and compilations() == 0", tmp_path)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user can look into; pytest's are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_root_are_read_by_others_and_those_of_others_by_nobody(open_path: Path) -> None:
    named, aside = open_path / "named", open_path / "tmp"
    aside.mkdir()
    aside.chmod(0o777)
    run(START + "unique()", named)
    (file,) = kept(named)
    # numba imports much of itself when it compiles, and Python may lie where only root can read.
    first = "import os, tempfile\nfrom gpumatch.kernels.compile import driver\n"
    first += "assert driver(lambda keys, ptr: keys[ptr[0] : ptr[1]].copy().size)(keys, ptr) == 3\n"
    other = START + first + "os.setgid(12345); os.setuid(12345)\n"
    read = "assert unique() == 2 and compilations() == 1\n"
    assert "cannot keep" not in run(other + read, named, TMPDIR=str(aside)).stderr
    more = "group_keys(np.array([0]), keys[:1], ptr, np.empty(1, np.int64))\nassert compilations() == 2"
    done = run(other + read + more, named, TMPDIR=str(aside))
    assert f"cannot keep compiled kernels in {file.parent}: Permission denied" in done.stderr
    assert f"kept in {aside}/gpumatch-12345" in done.stderr
    os.chown(file, 12345, 12345)
    run(START + "assert unique() == 2 and compilations() == 1", named)
    os.chown(file.parent, 12345, 12345)
    done = run(START + "assert unique() == 2 and compilations() == 1", named, TMPDIR=str(aside))
    assert "it belongs to another user, 12345" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("spoil", ["link", "mode", "file", "owner"])
def test_the_temporary_folder_must_be_ours_alone(tmp_path: Path, spoil: str) -> None:
    named, aside = tmp_path / "file", tmp_path / "tmp"
    named.write_text("no folder")
    base = aside / f"gpumatch-{os.geteuid()}"
    aside.mkdir()
    elsewhere = tmp_path / "elsewhere"
    if spoil == "link":
        elsewhere.mkdir(mode=0o700)
        base.symlink_to(elsewhere)
    elif spoil == "file":
        base.write_text("no folder")
    else:
        base.mkdir(mode=0o700)
        if spoil == "mode":
            base.chmod(0o750)
        elif os.geteuid() == 0:
            os.chown(base, 12345, 12345)
        else:
            pytest.skip("only root can give folders away")
    done = run(START + "assert unique() == 2 and compilations() == 1", named, TMPDIR=str(aside))
    assert done.stderr.count("every process compiles them anew") == 1
    assert str(named) in done.stderr
    assert "GPUMATCH_CACHE_DIR" in done.stderr
    assert kept(aside) == kept(elsewhere) == []


def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    full = """
import errno, os
def refuse(self, content):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
from gpumatch.kernels import cache
cache.os = type("Full", (), {**vars(os), "fdopen": lambda *_: refuse(None, None)})
assert unique() == 2 and compilations() == 1
group_keys(np.array([0]), keys[:1], ptr, np.empty(1, np.int64))
assert compilations() == 2
"""
    done = run(START + full, tmp_path, TMPDIR=str(tmp_path))
    assert done.stderr.count("No space left on device; every process compiles them anew") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.long
def test_a_spoiled_file_is_replaced(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    flipped = bytes([*whole[:-100], whole[-100] ^ 1, *whole[-99:]])
    for content in (b"", whole[: len(whole) // 2], b"no pickle", flipped):
        file.write_bytes(content)
        run(START + "assert unique() == 2 and compilations() == 1", tmp_path)
        run(START + "assert unique() == 2 and compilations() == 0", tmp_path)


@pytest.mark.long
def test_a_long_compilation_is_announced_once_and_a_short_one_not(tmp_path: Path) -> None:
    program = """
import sys, time
from gpumatch.kernels import compile
compile.LONG = float(sys.argv[1]) if len(sys.argv) > 1 else LONG
unique()
group_keys(np.array([0]), keys[:1], ptr, np.empty(1, np.int64))
print("out")
"""
    for long, cached, times in ((1000, False, 0), (0, False, 1), (0, True, 0)):
        done = run(f"LONG = {long}{START}{program}", tmp_path / str(long))
        assert done.stdout == "out\n"
        assert done.stderr.count("`gpumatch warm-up` does it ahead of time") == times, (long, cached)


@pytest.mark.long
def test_a_driver_that_is_loaded_into_another_can_still_be_called(tmp_path: Path) -> None:
    """Of what a driver calls, numba makes no machine code; a driver that it calls must have some."""
    program = """
from gpumatch.kernels.dag import larger_table
from gpumatch.kernels import dag
from gpumatch.kernels.compile import driver
hashes = np.arange(3, dtype=np.uint64)
def table(): return larger_table(hashes, 3, 4).tolist()
"""
    run(START + program + "assert table() == [0, 1, 2, -1]", tmp_path)
    caller = """
@driver
def outer(hashes):
    return larger_table(hashes, 3, 4)[1]
assert outer(hashes) == 1 and compilations() == 1
assert table() == [0, 1, 2, -1] and compilations() == 1
"""
    run(START + program + caller, tmp_path)
