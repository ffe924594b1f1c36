"""Ctrl-C at a bad moment: the caller is stopped, and the next call gives the right answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# An interrupt is sent once and has time to arrive: on the main thread it would end what runs there half-way.
_START = """
import os, signal, sys, time
from importlib.abc import MetaPathFinder

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)

def interrupted(function):
    try:
        function()
    except KeyboardInterrupt:
        return True
    return False
"""
_IMPORT = """
class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MODULE and self in sys.meta_path:
            sys.meta_path.remove(self)
            interrupt()

sys.meta_path.insert(0, Finder())
import gpumatch as gm
assert interrupted(lambda: gm.Matcher({"x": "int64"}))
matcher = gm.Matcher({"x": "int64"}, device="cpu")
matcher.add({1: "x > 3"})
print(matcher.match([{"x": 5}, {"x": 2}]).rows.tolist())
"""
_COMPILE = """
import gpumatch as gm
from gpumatch.kernels.compile import driver
from numba.core import event

compiled, passes = [], []

class Listener(event.Listener):
    def on_start(self, event):
        if event.kind == "numba:compile":
            compiled.append(event)
        elif compiled and not passes:
            passes.append(event)
            interrupt()

    def on_end(self, event):
        pass

for kind in ("numba:compile", "numba:run_pass"):
    event.register(kind, Listener())
double = driver(lambda x: 2 * x)
assert interrupted(lambda: double(21))
print(double(21), len(compiled))
"""


def run(program: str, **environment: str) -> str:
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("module", ["numba.core.types.misc", "numba.core.typing", "numba.np.ufunc"])
def test_while_numba_is_imported(module: str) -> None:
    assert run(f"{_START}MODULE = {module!r}\n{_IMPORT}") == "[0]"


def test_while_numba_compiles(tmp_path: Path) -> None:
    assert run(_START + _COMPILE, GPUMATCH_CACHE_DIR=str(tmp_path)) == "42 1"


def test_while_the_interpreter_ends() -> None:
    program = """
import atexit
import gpumatch as gm

matcher = gm.Matcher({"x": "float64"}, device="cpu")
matcher.add({"a": "x > 1"})
atexit.register(lambda: print(matcher.match_one({"x": 3.0}), matcher.count({"x": [3.0] * 300}).sum()))
"""
    assert run(program) == "['a'] 300"
