"""Output of the scripts: tables, problems, results as JSON, and a description of the machine."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from measuring.jobs import Result


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


def headed(title: str, *columns: str, left: int = 1) -> Table:
    """A table with columns for numbers, except the first ``left``."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < left else "right", no_wrap=i < left)
    return table


def by_engine(
    title: str,
    results: Sequence[Any],
    cell: Callable[[Any], str],
    extra: Mapping[str, Mapping[str, str]],
    shown: Mapping[str, str] | None = None,
    threads: Sequence[int] = (1,),
) -> Table:
    """One row per engine and one column per workload, named by ``shown`` if given; ``extra`` has additional rows that
    are not measured."""
    found = {(r.engine, r.workload, r.threads): r for r in results}
    workloads = [w for w in dict.fromkeys(r.workload for r in results) if shown is None or w in shown]
    table = headed(title, "engine", *(shown[w] if shown else w for w in workloads))
    for engine in dict.fromkeys(r.engine for r in results):
        row = ([found.get((engine, w, t)) for t in threads] for w in workloads)
        table.add_row(engine, *(" / ".join(status(r) or cell(r) if r else "" for r in cells) for cells in row))
    table.add_section()
    for name, cells in extra.items():
        if cells:
            table.add_row(name, *(cells.get(w, "") for w in workloads))
    return table


def matches(results: Sequence[Result]) -> dict[str, dict[str, str]]:
    """A row for ``by_engine``: matches per event, from the engine that got the most events."""
    most = {r.workload: r for r in sorted(results, key=lambda r: r.events)}
    return {"matches per event": {workload: us(r.matches) for workload, r in most.items()}}


def problems(results: Sequence[Result]) -> list[str]:
    """Each error once, with the workloads where it occurred."""
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for r in results:
        if r.error:
            places.setdefault((r.status, r.engine, r.error), {})[r.workload] = None
    return [f"{status}: {engine} on {', '.join(where)}: {error}" for (status, engine, error), where in places.items()]


def status(result: Result) -> str:
    """What a table shows instead of a number; empty if there is one."""
    return {"ok": "", "unsuited": "-"}.get(result.status, result.status.upper())


def us(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def finish(
    console: Console, name: str, options: argparse.Namespace, results: Sequence[Result], more: Mapping[str, Any] = {}
) -> int:
    """Print problems and write everything to ``name``.json; returns the exit code."""
    for problem in problems(results):
        console.print(problem)
    console.print(f"written to {write(name, options, {'results': [asdict(r) for r in results], **more})}")
    return int(any(r.status in ("wrong", "failed") for r in results))


def write(name: str, options: argparse.Namespace, content: Mapping[str, Any]) -> Path:
    given = {key: value for key, value in vars(options).items() if key != "out"}
    return save(options.out / f"{name}.json", {"machine": machine(), "options": given, **content})


def save(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def judged(console: Console, verdict: Sequence[str]) -> int:
    """Print the verdicts; returns exit code 1 unless all begin with yes."""
    for line in verdict:
        console.print(line)
    return int(not all(line.startswith("yes") for line in verdict))


def terminal() -> Console:
    return Console(markup=False) if sys.stdout.isatty() else Console(width=140, markup=False)
