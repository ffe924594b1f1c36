"""The lane as CI runs it, and what it compared; ``python -m tests.differential`` goes on for hours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.lane import INDEXES, Case, Report, mixed, numeric, ranges

CASES = {
    "few shapes": (mixed, 1, 50, 100_000, 400),
    "many shapes": (mixed, 2, 1_000, 30_000, 200),
    "all shapes differ": (mixed, 3, 20_000, 20_000, 200),
    "numbers": (numeric, 4, 300, 30_000, 200),
    "ranges": (ranges, 5, 200, 30_000, 200),
}
RUNS = [
    *(("few shapes", "text", index, "added") for index in INDEXES),
    ("few shapes", "table", "auto", "compacted"),
    *(("many shapes", way, "tama", "in parts") for way in ("text", "built", "rows")),
    *(("many shapes", "text", index, "loaded") for index in ("auto", "gem", "atree")),
    *(("all shapes differ", "text", index, "added") for index in ("auto", "psthash", "atree")),
    ("all shapes differ", "rows", "auto", "compacted"),
    *(("numbers", "numbers", index, "added") for index in INDEXES),
    ("numbers", "rows", "auto", "in parts"),
    *(("ranges", "ranges", index, "added") for index in INDEXES),
    ("ranges", "text", "auto", "loaded"),
]
_made: dict[str, Case] = {}


def case_of(name: str) -> Case:
    """The case, which is kept until another is asked for."""
    if name not in _made:
        _made.clear()
        make, *sizes = CASES[name]
        _made[name] = make(*sizes)
    return _made[name]


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    held = Report()
    yield held
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{held}")


@pytest.mark.long
@pytest.mark.parametrize(("name", "way", "index", "life"), RUNS)
def test_duckdb_agrees(name: str, way: str, index: str, life: str, report: Report) -> None:
    wrong = report.run(case_of(name), way, index, life)
    assert wrong == [], "\n".join(wrong)
