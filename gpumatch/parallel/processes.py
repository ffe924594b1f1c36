"""Runs modules of this package as programs: Python on another core.

They are new processes: a fork would copy locks held by other threads, and ``multiprocessing`` would run the
user's script again, which may not expect that.
"""

from __future__ import annotations

import os
import subprocess
import sys

from gpumatch.errors import GpumatchError


def run_module(name: str, *args: str, given: bytes = b"") -> bytes:
    """The output of ``python -m name args`` with ``given`` as its input."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", name, *args], input=given, capture_output=True, env=environment)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise GpumatchError(f"python -m {' '.join((name, *args))} failed with status {done.returncode}: {said}")
    return done.stdout
