"""Compares gpumatch with DuckDB on random cases, one seed after another, until the time is up."""

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
    parser.add_argument("--seconds", type=float, default=3600, help="no comparison begins later (default: an hour)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--events", type=int, default=500, help="per case (default: 500)")
    parser.add_argument("--json", type=Path, help="also write what was compared to this file")
    args = parser.parse_args()
    report, end = Report(), time.monotonic() + args.seconds
    for seed in count(args.seed):
        make, ways = CASES[seed % len(CASES)]
        shapes, expressions = SIZES[seed // len(CASES) % len(SIZES)]
        print(f"seed {seed}: {make.__name__}, {expressions:,} expressions of {shapes:,} shapes", flush=True)
        case, chance = make(seed, shapes, expressions, args.events), Random(seed)
        for index in INDEXES:
            if time.monotonic() > end:
                return _finish(report, args.json)
            wrong = report.run(case, chance.choice(ways), index, chance.choice(list(LIVES)))
            print("  {way in}, {index}, {life}: {differences:,} differences, {seconds} s".format(**report.runs[-1]))
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
    raise AssertionError("seeds never end")


def _finish(report: Report, path: Path | None) -> int:
    wrong = sum(run["differences"] for run in report.runs)
    print(f"\n{report}\n\n{wrong:,} differences in {len(report.runs):,} comparisons")
    if path is not None:
        path.write_text(json.dumps({"sums": report.sums(), "runs": report.runs}, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
