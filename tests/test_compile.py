"""What is compiled and kept: counted, looked up, and never taken from a folder that others may write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_machine_code_for_another_processor_does_not_count(tmp_path: Path) -> None:
    run(START + "unique()", tmp_path)
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
