"""This checkout against another, in one run: ``python bench/versus.py ../other --only w5 one count``.

Each has a process of its own with the interpreter in its ``.venv``; both stay, and take turns at every measurement. The
figures are the least CPU time per event on one thread. Answers are compared first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
WORKLOADS = ("w1-100k", "w2", "w3", "w4", "w5", "stock-100k", "stock-200k", "atree-10k", "ads-100k")
WAYS = ("match", "count", "any", "subscriptions", "destinations", "one", "one-rows")
_EVENTS, _ALONE = 1000, 300
_DESTINATIONS = 100


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("other", type=Path, help="another checkout, with a .venv")
    options.add_argument("--only", nargs="+", default=[*WORKLOADS, *WAYS], help="workloads and ways of matching")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--output", type=Path, help="write JSON")
    given = options.parse_args()
    found: dict[str, Any] = {}
    for name in [name for name in (*WORKLOADS, "w1-1m") if name in given.only] or WORKLOADS:
        ways = [way for way in WAYS if way in given.only] or list(WAYS)
        found[name] = _compared(name, ways, given.other.resolve(), given.rounds)
        if given.output:
            given.output.write_text(json.dumps(found, indent=1) + "\n")


def _compared(name: str, ways: list[str], other: Path, rounds: int) -> dict[str, Any]:
    trees = {"before": other, "after": HERE}
    asked = {
        tree: subprocess.Popen(
            [path / ".venv" / "bin" / "python", __file__, "--serve", str(path), name, *ways],
            stdin=-1,
            stdout=-1,
            text=True,
        )
        for tree, path in trees.items()
    }
    facts = {tree: json.loads(process.stdout.readline()) for tree, process in asked.items()}  # type: ignore[union-attr]
    if facts["before"]["answer"] != facts["after"]["answer"]:
        sys.exit(f"{name}: the answers differ")
    result: dict[str, Any] = {"matches": facts["after"]["matches"], "ways": {}}
    result |= {what: {tree: facts[tree][what] for tree in trees} for what in ("index", "bytes")}
    for way in ways:
        times: dict[str, list[float]] = {tree: [] for tree in trees}
        for _ in range(rounds):
            for tree, process in asked.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{way}\n")
                process.stdin.flush()
                times[tree].append(float(process.stdout.readline()))
        result["ways"][way] = {tree: round(min(times[tree]), 2) for tree in trees}
        print(name, way, result["ways"][way], flush=True)
    for process in asked.values():
        process.communicate()
    return result


def _serve(tree: str, name: str, *wanted: str) -> None:
    """Build a workload, then time each way that stdin asks for, of those that are wanted."""
    sys.path.insert(0, f"{tree}/bench")
    import gpumatch as gm

    gm.set_num_threads(1)
    matcher, batch, rows = _loaded(name)
    matcher.compact()
    found = matcher.match(batch)
    routed = _routed(matcher) if "destinations" in wanted else matcher
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "match": (lambda: matcher.match(batch), len(found)),
        "count": (lambda: matcher.count(batch), len(found)),
        "any": (lambda: matcher.any(batch), len(found)),
        "subscriptions": (lambda: _totals(matcher, batch), len(found)),
        "destinations": (lambda: routed.destinations(batch), len(found)),
        "one": (lambda: [matcher.match_one(row) for row in rows], len(rows)),
        "one-rows": (lambda: [matcher.match([row]) for row in rows], len(rows)),
    }
    for way in wanted:
        ways[way][0]()
    answers = [found.offsets, found.rows]
    if "subscriptions" in wanted:
        answers.append(_totals(matcher, batch))
    if "destinations" in wanted:
        answers.append(routed.destinations(batch).rows)
    facts = {
        "answer": hashlib.sha256(b"".join(answer.tobytes() for answer in answers)).hexdigest(),
        "matches": float(found.counts.mean()),
        "index": [segment["index"] for segment in matcher.stats()["segments"]],
        "bytes": matcher.stats()["bytes"],
    }
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        call, count = ways[line.strip()]
        times = []
        for _ in range(3):
            start = time.thread_time()
            call()
            times.append(time.thread_time() - start)
        print(1e6 * min(times) / count, flush=True)


def _totals(matcher: Any, batch: Any) -> Any:
    """How many events each subscription matches; in versions without a method for it, from all matches."""
    import numpy as np

    if hasattr(matcher, "count_subscriptions"):
        return matcher.count_subscriptions(batch)
    return np.bincount(matcher.match(batch).rows, minlength=len(matcher)).astype(np.int64)


def _routed(matcher: Any) -> Any:
    """The same subscriptions, dealt to destinations."""
    from dataclasses import replace

    from gpumatch.subscriptions.destinations import Destinations

    source = matcher._source()
    names = [at % _DESTINATIONS for at in range(len(source))]
    routed = matcher._subset(replace(source, destinations=Destinations.of(names, len(source))))
    routed.compact()
    return routed


def _loaded(name: str) -> tuple[Any, Any, list[dict[str, Any]]]:
    """A matcher with the subscriptions, a batch of events, and some of them as dicts."""
    import gpumatch as gm
    from gpumatch import workloads

    if name.startswith("stock"):
        from generators.stocks import demo

        alerts, bars = demo(int(name[6:-1]) * 1000, 20_000)
        matcher = gm.Matcher(bars.schema)
        matcher.add_table(alerts, *alerts.column_names[:2])
        return matcher, bars.slice(0, _EVENTS), bars.slice(0, _ALONE).to_pylist()
    if name.startswith(("atree", "ads")):
        from generators.abe import abe
        from generators.ads import ads

        workload: Any = abe(10_000) if name == "atree-10k" else ads(100_000)
    elif name.startswith("w1"):
        workload = workloads.gem(100_000 if name == "w1-100k" else 1_000_000)
    else:
        workload = workloads.make(name)
    matcher = gm.Matcher(workload.schema, "atree" if name.startswith("atree") else "auto")
    workload.add_to(matcher)
    events = workload.events(_EVENTS)
    if isinstance(events, workloads.SparseEvents):
        batch = gm.EventBatch.of(gm.EventBatch.from_csr(*events), matcher.schema)
        return matcher, batch, [batch.row(at) for at in range(_ALONE)]
    columns = {key: values.tolist() for key, values in events.items()}
    return (
        matcher,
        events,
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)][:_ALONE],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(*sys.argv[2:])
    else:
        main()
