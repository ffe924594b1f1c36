"""What the scripts share: their options, jobs that run in processes of their own with progress, results as JSON."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measure import Job, Result, run
from report import machine, problems
from rich.console import Console
from rich.progress import Progress

from gpumatch.workloads import WORKLOADS, Workload

RESULTS = Path(__file__).parent / "results"


class Source(NamedTuple):
    """A workload under a name, and its size before it is scaled."""

    name: str
    size: int
    generate: Callable[[int], Workload]

    @classmethod
    def of(cls, name: str) -> Source:
        """One of the published workloads."""
        return cls(name, WORKLOADS[name][0], partial(_published, name))


def _published(name: str, n: int) -> Workload:
    return WORKLOADS[name][1](n)


def parser(doc: str) -> argparse.ArgumentParser:
    """Options that all scripts take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--scale", type=_scale, default=1.0, help="share of the published number of subscriptions")
    add("--events", type=positive, default=1000, help="events, at most")
    add("--out", type=Path, default=RESULTS, help="folder that gets the results")
    return parser


def timing_parser(doc: str, **defaults: Any) -> argparse.ArgumentParser:
    """Options of scripts that time engines."""
    timing = parser(doc)
    add = timing.add_argument
    add("--seconds", type=float, default=2.0, help="aim of a pass; slow engines get fewer events")
    add("--repeats", type=positive, default=3, help="passes, of which the best counts")
    add("--verify", type=positive, default=16, help="events checked against brute force")
    timing.set_defaults(**defaults)
    return timing


def job(options: argparse.Namespace, source: Source, threads: int, engines: Sequence[str], batch: int = 1000) -> Job:
    """A job of the size and with the events that the options ask for."""
    shared = {name: getattr(options, name) for name in ("events", "seconds", "repeats", "verify")}
    size = max(1, round(source.size * options.scale))
    return Job(source.name, size, source.generate, threads, tuple(engines), batch=batch, **shared)


def run_all(jobs: Sequence[Job], console: Console) -> list[Result]:
    results: list[Result] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(len(job.engines) for job in jobs))
        for job in jobs:
            progress.update(task, description=f"{job.workload}, {job.threads} threads")
            for result in _results(job):
                results.append(result)
                progress.advance(task)
    return results


def _results(job: Job) -> Iterator[Result]:
    """Run a job in a process of its own; one that dies leaves the rest of its engines as failed."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(job, sender))
    process.start()
    sender.close()
    for i, _ in enumerate(job.engines):
        try:
            yield receiver.recv()
        except EOFError:
            process.join()
            message = f"the process ended with code {process.exitcode}"
            yield from (Result(job.workload, e, job.threads, "failed", message) for e in job.engines[i:])
            break
    process.join()


def finish(
    console: Console, name: str, options: argparse.Namespace, results: Sequence[Result], more: Mapping[str, Any] = {}
) -> int:
    """Tell problems, write everything to ``name``.json; returns the exit code."""
    for problem in problems(results):
        console.print(problem, markup=False)
    console.print(f"written to {write(name, options, {'results': [asdict(r) for r in results], **more})}", markup=False)
    return int(any(r.status in ("wrong", "failed") for r in results))


def write(name: str, options: argparse.Namespace, content: Mapping[str, Any]) -> Path:
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / f"{name}.json"
    given = {key: value for key, value in vars(options).items() if key != "out"}
    path.write_text(json.dumps({"machine": machine(), "options": given, **content}, indent=1) + "\n")
    return path


def terminal() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=140)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return number


def _scale(text: str) -> float:
    number = float(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and up to 10, found {text}")
    return number
