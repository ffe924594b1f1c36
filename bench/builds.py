"""What building takes, phase by phase, from arrays to an index: ``python bench/builds.py --other ../other``.

CPU seconds of all threads; those of the caller's thread and the busiest other one, about what the clock would show on a
machine that does nothing else (*path*); and the peak of memory above what the process held before the first call that
adds. Everything is compiled first. Every build runs in a process of its own. With another checkout, the two take turns;
their matches must be equal, and their arrays are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
WORKLOADS = ("w1-1m", "w2")
INDEXES = {"w1-1m": ("auto", "gem"), "w2": ("auto", "pstbloom")}
# Where each phase begins; what runs inside planning and its check belongs to them.
PHASES = (
    ("codebook", "gpumatch.codes.table", "make_book"),
    ("codebook", "gpumatch.codes.ends", "distinct_runs"),
    ("table", "gpumatch.store.segment", "encode_block"),
    ("likelihoods", "gpumatch.store.segment", "likelihoods"),
    ("planning", "gpumatch.store.segment", "choose"),
    ("order", "gpumatch.index", "rank"),
    ("order", "gpumatch.index", "arrange"),
    ("index", "gpumatch.index", "build"),
    ("check", "gpumatch.store.segment", "checked"),
)
_WHOLE = ("planning", "check")
_SMALL = 0.01  # of the subscriptions, to load machine code with


class Phases:
    """CPU and wall seconds by phase."""

    def __init__(self) -> None:
        self.cpu = dict.fromkeys(("intake", *(phase for phase, *_ in PHASES), "other"), 0.0)
        self.wall = dict(self.cpu)
        self._open: list[str] = []
        self._since = (0.0, 0.0)

    def install(self) -> None:
        for phase, module, name in PHASES:
            if find_spec(module) is not None and hasattr(home := import_module(module), name):  # else it came later
                setattr(home, name, self._timed(phase, getattr(home, name)))

    def _timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._open or self._open[-1] in _WHOLE:
                return call(*args, **kwargs)
            with self.phase(phase):
                return call(*args, **kwargs)

        return timed

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time until the end counts for the phase, without what other phases take in between."""
        self._note()
        self._open.append(name)
        try:
            yield
        finally:
            self._note()
            self._open.pop()

    def _note(self) -> None:
        now = time.process_time(), time.perf_counter()
        if self._open:
            self.cpu[self._open[-1]] += now[0] - self._since[0]
            self.wall[self._open[-1]] += now[1] - self._since[1]
        self._since = now


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    options.add_argument("--other", type=Path, help="another checkout, with a .venv")
    options.add_argument("--workloads", default=",".join(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    options.add_argument("--threads", default="1,2", help="numbers of threads")
    options.add_argument("--scale", type=float, default=1.0, help="fraction of the published number of subscriptions")
    options.add_argument("--rounds", type=int, default=3, help="builds of each; the best counts")
    options.add_argument("--out", type=Path, default=HERE / "bench" / "results", help="folder for the results")
    given = options.parse_args()
    from measuring.report import machine, save

    trees = {"after": HERE} if given.other is None else {"before": given.other.resolve(), "after": HERE}
    for path in trees.values():  # or trials would leave out what is not compiled
        command = [path / ".venv" / "bin" / "python", "-m", "gpumatch", "warm-up"]
        subprocess.run(command, check=True, cwd=HERE / "bench")  # where neither checkout is found by its folder
    results = []
    names, threads = given.workloads.split(","), [int(number) for number in given.threads.split(",")]
    for at, workload, number in product(range(2), names, threads):
        results += compared(trees, (workload, INDEXES[workload][at], number, given.scale), given.rounds)
        show(results[-len(trees) :])
        save(given.out / "builds.json", {"machine": machine(), "scale": given.scale, "results": results})
    return 0


def compared(trees: dict[str, Path], case: tuple[Any, ...], rounds: int) -> list[dict[str, Any]]:
    """One line per checkout: the best of its builds."""
    found: dict[str, list[dict[str, Any]]] = {tree: [] for tree in trees}
    for _ in range(rounds):
        for tree, path in trees.items():
            found[tree].append(built(path, case))
    answers = {one["answer"] for builds in found.values() for one in builds}
    if len(answers) > 1:
        sys.exit(f"{case}: the matches differ")
    same = len({one["arrays"] for builds in found.values() for one in builds}) == 1
    return [{"tree": tree, **best(builds), "same_arrays": same} for tree, builds in found.items()]


def built(path: Path, case: tuple[Any, ...]) -> dict[str, Any]:
    command = [path / ".venv" / "bin" / "python", __file__, "--serve", str(path), *map(str, case)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result


def best(builds: list[dict[str, Any]]) -> dict[str, Any]:
    """The build with the least CPU time, with the least times of the others and the highest peak of all."""
    least = min(builds, key=lambda one: one["cpu_s"])
    lowest = {name: min(one[name] for one in builds) for name in ("path_s", "wall_s")}
    return {**least, **lowest, "peak_mb": max(one["peak_mb"] for one in builds)}


def show(lines: list[dict[str, Any]]) -> None:
    from measuring.report import headed, terminal

    first = lines[0]
    title = f"{first['workload']}, {first['index']}, threads: {first['threads']}; CPU seconds"
    table = headed(title, "", *first["phases"], "all", "path", "wall", "peak MB", "index MB", "same arrays")
    for line in lines:
        numbers = [*line["phases"].values(), line["cpu_s"], line["path_s"], line["wall_s"]]
        cells = (*(f"{seconds:.2f}" for seconds in numbers), f"{line['peak_mb']:.0f}", f"{line['index_mb']:.0f}")
        table.add_row(line["tree"], *cells, "yes" if line["same_arrays"] else "no")
    terminal().print(table)


def serve(tree: str, name: str, index: str, threads: int, scale: float) -> None:
    """Build one index, and print what it took."""
    sys.path.insert(0, f"{tree}/bench")
    import gpumatch as gm
    from gpumatch import workloads

    gm.set_num_threads(threads)
    size, generate = workloads.WORKLOADS[name]
    small = generate(round(size * _SMALL))
    add, matcher = adding(gm, small, index)
    add()
    matcher.compact()
    matcher.match(events_of(gm, small))
    phases = Phases()
    workload = generate(max(100, round(size * scale)))
    add, matcher = adding(gm, workload, index)
    phases.install()
    before = rss("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    cpu, wall, path = time.process_time(), time.perf_counter(), busy()
    with phases.phase("intake"):
        add()
    with phases.phase("other"):
        matcher.compact()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    took = {thread: seconds - path.get(thread, 0.0) for thread, seconds in busy().items()}
    own = took.pop(threading.get_ident())
    peak = rss("VmHWM") - before
    [segment] = matcher._store.searchable().pieces
    found = matcher.match(events_of(gm, workload))
    facts = {
        "workload": name,
        "index": index,
        "threads": threads,
        "chosen": segment.stats()["index"],
        "phases": {phase: round(seconds, 3) for phase, seconds in phases.cpu.items()},
        "phases_wall": {phase: round(seconds, 3) for phase, seconds in phases.wall.items()},
        "cpu_s": round(cpu, 3),
        "path_s": round(own + max(took.values(), default=0.0), 3),
        "wall_s": round(wall, 3),
        "peak_mb": round(peak, 1),
        "held_mb": round(rss("VmRSS") - before, 1),
        "index_mb": round(sum(part.index.nbytes for part in segment.parts) / 1e6, 1),
        "all_mb": round(matcher.stats()["bytes"] / 1e6, 1),
        "arrays": digest(*(array for _, array in sorted(segment.arrays().items()))),
        "answer": digest(found.offsets, found.rows),
    }
    print(json.dumps(facts), flush=True)


def adding(gm: Any, workload: Any, index: str) -> tuple[Callable[[], Any], Any]:
    """What adds all subscriptions, from arrays that are there already, and the matcher that gets them."""
    matcher = gm.Matcher(workload.schema, index=index)
    if hasattr(workload, "to_arrow"):
        table = workload.to_arrow()
        return lambda: matcher.add_predicates(table), matcher
    return lambda: workload.add_to(matcher), matcher


def events_of(gm: Any, workload: Any) -> Any:
    events = workload.events(200)
    return gm.EventBatch.from_csr(*events) if hasattr(events, "offsets") else events


def busy() -> dict[int, float]:
    """CPU seconds of each thread so far."""
    clocks = {thread.ident: time.pthread_getcpuclockid(thread.ident) for thread in threading.enumerate()}
    return {thread: time.clock_gettime(clock) for thread, clock in clocks.items()}


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()


def rss(which: str) -> float:
    """Megabytes of memory that this process holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(which))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
    else:
        sys.exit(main())
