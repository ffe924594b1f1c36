"""Times events with subscriptions on patterns that are not prefixes: ``python bench/patterns.py --help``.

Titles are six made-up words each; half of the patterns are one word anywhere, the others two words, or one at the end.
For comparison: the same number of subscriptions with prefixes, and Arrow trying each pattern on each title.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpumatch as gm
from measuring.clock import best
from measuring.report import terminal

SCHEMA = {"title": "string", "px": "float64"}
REPEATS = 7
ALONE = 200  # events to match one by one
TRIED = 100  # patterns that Arrow tries, extrapolated to all


def words(rng: np.random.Generator, count: int) -> list[str]:
    letters = rng.choice(list("abcdefghijklmnopqrstuvwxyz"), (count, 8))
    return ["".join(row[:length]) for row, length in zip(letters, rng.integers(4, 9, count), strict=True)]


def patterns(rng: np.random.Generator, known: list[str], count: int) -> list[str]:
    """Distinct patterns as conditions, one in five case-insensitive."""
    made: dict[str, str] = {}
    while len(made) < count:
        one, other = rng.choice(known, 2)
        pattern = rng.choice([f"%{one}%", f"%{one}%", f"%{one}%{other}%", f"%{one}"])
        made[pattern] = f"title {'ILIKE' if rng.random() < 0.2 else 'LIKE'} '{pattern}'"
    return list(made.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100_000, help="subscriptions (default 100000)")
    parser.add_argument("--patterns", type=int, default=5000, help="distinct patterns (default 5000)")
    parser.add_argument("--events", type=int, default=10_000, help="(default 10000)")
    options = parser.parse_args()
    gm.set_num_threads(1)
    rng, console = np.random.default_rng(0), terminal()
    known = words(rng, 20_000)
    conditions = patterns(rng, known, options.patterns)
    titles = [" ".join(rng.choice(known, 6)) for _ in range(options.events)]
    prices = rng.uniform(0, 100, options.events)
    few = [titles[at % 500] for at in range(options.events)]
    for name, some in (
        ("patterns", conditions),
        ("prefixes", [f"title LIKE '{word}%'" for word in known[: options.patterns]]),
    ):
        matcher = gm.Matcher(SCHEMA, device="cpu")
        chosen = rng.integers(0, len(some), options.count).tolist()
        matcher.add({at: f"{some[number]} AND px > {at % 90}" for at, number in enumerate(chosen)})
        batches = [gm.EventBatch.of({"title": given, "px": prices}, matcher.schema) for given in (titles, few)]
        pairs = matcher.match(batches[0]).n_pairs
        each, repeated = (best(partial(matcher.match, batch), REPEATS) / options.events for batch in batches)
        alone = best(partial(_one_by_one, matcher, titles[:ALONE]), REPEATS) / ALONE
        console.print(
            f"{name}: {each * 1e6:.1f} µs per event, {repeated * 1e6:.1f} if only 500 titles differ, "
            f"{alone * 1e6:.0f} alone; {pairs / options.events:.1f} matches"
        )
    tried = [text.split("'")[1] for text in conditions[:TRIED]]
    array: Any = pa.array(titles)
    seconds = best(lambda: [pc.match_like(array, pattern) for pattern in tried], REPEATS) / len(tried)
    each = seconds * len(conditions) / options.events
    console.print(f"Arrow, each pattern on each title: {each * 1e6:.0f} µs per event")
    return 0


def _one_by_one(matcher: Any, titles: list[str]) -> None:
    for title in titles:
        matcher.match_one({"title": title, "px": 50.0})


if __name__ == "__main__":
    sys.exit(main())
