"""The pictures of docs/index: every index on a small workload that shows what it does, drawn from its arrays.

    python bench/pictures.py [--out docs/pictures]

The workloads are seeded, so the same indexes give the same pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from abe_ads import ads
from ladder import stock

import gpumatch as gm
from gpumatch import workloads
from gpumatch.cli.pictures import draw
from gpumatch.index import IndexParams
from gpumatch.workloads import Workload
from gpumatch.workloads.stocks import SCHEMA

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def loaded(index: IndexParams, workload: Workload) -> gm.Matcher:
    matcher = gm.Matcher(workload.schema, index=index)
    workload.add_to(matcher)
    return matcher


def on_stocks(index: IndexParams) -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index=index)
    texts, events = stock(5_000, 1_000)
    matcher.observe(events)
    matcher.add(dict(enumerate(texts)))
    return matcher


PICTURES: dict[str, Callable[[], gm.Matcher]] = {
    "scan": lambda: loaded(gm.Scan(), workloads.dense(20_000, dims=100)),
    "pstbloom": lambda: loaded(gm.PstBloom(), workloads.dense(20_000, dims=10)),
    "gem": lambda: loaded(gm.Gem(), workloads.gem(20_000, dims=6)),
    "gem-triangles": lambda: loaded(gm.Gem(cells=32, caches=4), workloads.dense(20_000, dims=6)),
    "tama": lambda: loaded(gm.Tama(levels=6), workloads.dense(20_000, dims=100)),
    "psthash": lambda: loaded(gm.PstHash(), workloads.dense(20_000, dims=10)),
    "ladder": lambda: on_stocks(gm.Ladder()),
    "atree": lambda: loaded(gm.ATree(), ads(20_000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to write to")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        path = folder / f"{name}.png"
        draw(make(), path)
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
