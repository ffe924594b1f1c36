"""``python -m tests.differential --seconds 3600``: case after case against DuckDB, each with another seed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import count
from pathlib import Path
from random import Random

from tests.differential.lane import INDEXES, LIVES, Report, mixed, numeric, ranges

SIZES = ((50, 100_000), (1_000, 100_000), (20_000, 100_000), (5_000, 50_000))  # shapes and expressions
CASES = (
    (mixed, ("text", "table", "built", "rows")),
    (numeric, ("text", "rows", "numbers")),
    (ranges, ("text", "ranges")),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="how long to go on (default: an hour)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; later cases have the next ones")
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--json", type=Path, help="also write what was compared to this file")
    args = parser.parse_args()
    report, end = Report(), time.monotonic() + args.seconds
    for seed in count(args.seed):
        make, ways = CASES[seed % len(CASES)]
        case, chance = make(seed, *SIZES[seed // len(CASES) % len(SIZES)], args.events), Random(seed)
        for index in INDEXES:
            if time.monotonic() > end:
                return _finish(report, args.json)
            wrong = report.run(case, chance.choice(ways), index, chance.choice(list(LIVES)))
            print(f"seed {seed}: {report.runs[-1]}", *wrong, sep="\n", flush=True)
    raise AssertionError("seeds never end")


def _finish(report: Report, path: Path | None) -> int:
    print(report)
    if path is not None:
        path.write_text(json.dumps({"sums": report.sums(), "runs": report.runs}, indent=1) + "\n")
    return int(any(run["differences"] for run in report.runs))


if __name__ == "__main__":
    sys.exit(main())
