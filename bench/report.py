"""Tables of a run, and the machine that it ran on."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import NUMPY_INDEXES, Result
from rich.table import Table

from gpumatch.workloads import WORKLOADS

# For auto at the published sizes: µs per event and core, and how many times as fast as the better numpy index
GOALS = {"w1-100k": (7, 6), "w1-1m": (60, 6), "w2": (20, 6), "w3": (5, 6), "w4": (12, 3), "w5": (25, 3)}


def machine() -> dict[str, Any]:
    packages = ("gpumatch", "numpy", "numba", "llvmlite", "pyarrow", "polars", "duckdb")
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "commit": _commit(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def tables(results: Sequence[Result]) -> list[Table]:
    threads = sorted({r.threads for r in results})
    shown = " / ".join(str(t) for t in threads)
    best = {(t, w): _best_numpy(results, t, w) for t in threads for w in {r.workload for r in results}}

    def ratio(r: Result) -> str:
        base = best[r.threads, r.workload]
        return f"{base / r.us:.1f}×" if base else ""

    def memory(r: Result) -> str:
        seconds = r.build_cpu_s if r.threads == 1 else r.build_s
        return f"{seconds:.1f} s, " + (f"{r.bytes / r.subscriptions:,.0f} B" if r.bytes is not None else "?")

    full = {r.workload for r in results if r.subscriptions == WORKLOADS[r.workload][0] and r.workload in GOALS}
    goals = {w: " / ".join(us(GOALS[w][0] / t) for t in threads) for w in full}
    floors = {w: f"{GOALS[w][1]:.1f}×" for w in full}
    title = f"µs per event, {shown} threads (one: CPU time, more: wall time)"
    return [
        _table(title, results, threads, lambda r: us(r.us), {"goal": goals}),
        _table(f"times as fast as the better numpy index, {shown} threads", results, threads, ratio, {"floor": floors}),
        _table(f"build time and bytes per subscription, {threads[0]} threads", results, threads[:1], memory, {}),
    ]


def _best_numpy(results: Sequence[Result], threads: int, workload: str) -> float | None:
    known = [r.us for r in results if (r.threads, r.workload) == (threads, workload) and r.status == "ok"
             and r.engine in NUMPY_INDEXES]  # fmt: skip
    return min(known, default=None)


def _table(
    title: str,
    results: Sequence[Result],
    threads: Sequence[int],
    cell: Callable[[Result], str],
    beside: Mapping[str, Mapping[str, str]],
) -> Table:
    """A row per engine and a column per workload; ``beside``: rows by name that are not measured."""
    found = {(r.engine, r.workload, r.threads): r for r in results}
    table = Table(title=title, title_justify="left")
    table.add_column("engine", no_wrap=True)
    workloads = list(dict.fromkeys(r.workload for r in results))
    for workload in workloads:
        table.add_column(workload, justify="right")
    for engine in dict.fromkeys(r.engine for r in results):
        row = ([found.get((engine, w, t)) for t in threads] for w in workloads)
        table.add_row(engine, *(" / ".join(status(r) or cell(r) if r else "" for r in cells) for cells in row))
    table.add_section()
    for name, cells in beside.items():
        if cells:
            table.add_row(name, *(cells.get(w, "") for w in workloads))
    return table


def problems(results: Sequence[Result]) -> list[str]:
    """Each error once, with the places where it came up."""
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for r in results:
        if r.error:
            places.setdefault((r.status, r.engine, r.error), {})[r.workload] = None
    return [f"{status}: {engine} on {', '.join(where)}: {error}" for (status, engine, error), where in places.items()]


def status(result: Result) -> str:
    """What a table shows in the place of a number; empty where there is one."""
    return {"ok": "", "unsuited": "-"}.get(result.status, result.status.upper())


def us(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
