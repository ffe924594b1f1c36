"""Time of the first match with an empty cache folder, by index, and of compiling everything.

``python bench/first_match.py`` runs every case in a new process with a new folder. CPU seconds include Python's start
and imports. ``warm`` is the same with the folder that the first run filled. ``compiled`` counts functions passed to
LLVM, ``drivers`` those kept in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring.options import RESULTS
from measuring.report import save

README = """
import gpumatch as gm
from gpumatch import col

m = gm.Matcher({"sym": "string", "px": "float64", "qty": "int64", "tags": "list<string>"}, INDEX, "cpu")
m.add({"hot": "sym = 'NVDA' AND px > 900", "odd": "px < 10 OR qty IN (1, 2)"})
m.add({"dsl": (col("px") > 5) & ~col("sym").is_in(["X"])})

r = m.match([{"sym": "NVDA", "px": 950.0}, {"px": 3.0}, {"sym": "X", "qty": 2}])
assert [r.ids(i) for i in range(len(r))] == [["hot", "dsl"], ["odd"], ["odd"]]
"""
COUNT = """
from numba.core import event

class Count(event.Listener):
    found = 0
    def on_start(self, event):
        Count.found += 1
    def on_end(self, event):
        pass

event.register("numba:compile", Count())
"""
INDEXES = ("auto", "scan", "pstbloom", "psthash", "gem", "tama", "ladder", "atree")
EVERYTHING = """
from gpumatch import warming
for forms in warming._FORMS.values():
    for params in forms:
        warming._exercise(params)
"""


def cpu_seconds(program: str, folder: str) -> tuple[float, str]:
    """User and system time of a process that runs the program, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "GPUMATCH_CACHE_DIR": folder}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout.strip()


def measure(program: str, repeats: int) -> dict[str, Any]:
    """The fastest of several runs with an empty folder and with a filled one, and what was compiled."""
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            seconds, counted = cpu_seconds(f"{COUNT}{program}\nprint(Count.found)", folder)
            cold.append(seconds)
            warm.append(cpu_seconds(program, folder)[0])
            drivers = len(list(Path(folder).rglob("*.nbc")))
    return {"cold": round(min(cold), 1), "warm": round(min(warm), 1), "compiled": int(counted), "drivers": drivers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs; the fastest counts")
    parser.add_argument("--only", help="comma-separated cases: indexes, and 'everything'")
    parser.add_argument("--name", default="now", help="key for the results (default: now)")
    parser.add_argument("--out", type=Path, default=RESULTS / "first-match.json")
    args = parser.parse_args()
    cases = {name: README.replace("INDEX", repr(name)) for name in INDEXES} | {"everything": EVERYTHING}
    found = {}
    for name in args.only.split(",") if args.only else cases:
        found[name] = measure(cases[name], args.repeats)
        print(f"{name:12} {found[name]}", flush=True)
    stored = json.loads(args.out.read_text()) if args.out.exists() else {}
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
    stored[args.name] = stored.get(args.name, {}) | machine | {"load": round(os.getloadavg()[0], 1)} | found
    save(args.out, stored)


if __name__ == "__main__":
    main()
