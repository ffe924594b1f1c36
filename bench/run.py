"""Times engines on workloads, after checking every one of them against brute force: ``python bench/run.py --help``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from measure import ENGINES, Job, Result, run
from report import machine, problems, tables
from rich.console import Console
from rich.progress import Progress

from gpumatch.workloads import WORKLOADS


def main() -> int:
    options = _options()
    shared = {name: value for name, value in vars(options).items() if name not in ("workloads", "threads")}
    jobs = [Job(workload=w, threads=t, **shared) for w in options.workloads for t in options.threads]
    console = Console() if sys.stdout.isatty() else Console(width=140)
    about, results = machine(), list[Result]()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(jobs) * len(options.engines))
        for job in jobs:
            progress.update(task, description=f"{job.workload}, {job.threads} threads")
            for result in _results(job):
                results.append(result)
                progress.advance(task)
    for table in tables(results):
        console.print(table)
    for problem in problems(results):
        console.print(problem, markup=False)
    console.print(f"written to {_write(about, vars(options), results)}", markup=False)
    return int(any(r.status in ("wrong", "failed") for r in results))


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


def _write(about: dict[str, object], options: dict[str, object], results: list[Result]) -> Path:
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{str(about['date'])[:19].replace(':', '')}.json"
    content = {"machine": about, "options": options, "results": [asdict(r) for r in results]}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _options() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add(
        "--workloads", type=_workloads, default="w1,w2,w3,w4,w5", help=f"of {', '.join(WORKLOADS)}, or their beginnings"
    )
    add("--engines", type=_engines, default=",".join(ENGINES), help="names, or parts of them")
    add("--threads", type=_numbers, default=f"1,{cores}" if cores > 1 else "1", help="numbers of threads")
    add("--events", type=_positive, default=1000, help="events per pass, at most")
    add("--batch", type=_positive, default=1000, help="events per call")
    add("--scale", type=float, default=1.0, help="share of the published number of subscriptions")
    add("--seconds", type=float, default=2.0, help="aim of a pass; slow engines get fewer events")
    add("--repeats", type=_positive, default=3, help="passes, of which the best counts")
    add("--verify", type=_positive, default=16, help="events checked against brute force")
    options = parser.parse_args()
    if not 0 < options.scale <= 10 or options.seconds <= 0:
        parser.error("--scale must be in (0, 10] and --seconds above 0")
    return options


def _workloads(text: str) -> tuple[str, ...]:
    return _chosen(text, WORKLOADS, str.startswith)


def _engines(text: str) -> tuple[str, ...]:
    return _chosen(text, ENGINES, str.__contains__)


def _chosen(text: str, names: Iterable[str], fits: Callable[[str, str], bool]) -> tuple[str, ...]:
    chosen = {part: [name for name in names if fits(name, part.strip())] for part in text.split(",")}
    for part, found in chosen.items():
        if not found:
            raise argparse.ArgumentTypeError(f"nothing is called {part!r}; there are {', '.join(names)}")
    return tuple(name for name in names if any(name in found for found in chosen.values()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({_positive(part) for part in text.split(",")}))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
