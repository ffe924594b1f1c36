"""The pictures of docs/index: every index on a small workload that shows how it works, drawn from its arrays.

    python bench/pictures.py [--out docs/pictures]

The workloads are seeded, so the same indexes give the same pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import gpumatch as gm
from engines.ours import loaded
from generators.ads import ads
from generators.stocks import stock
from gpumatch import workloads
from gpumatch.cli.pictures import draw
from gpumatch.workloads.stocks import SCHEMA

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def ladder() -> gm.Matcher:
    matcher = gm.Matcher(SCHEMA, index="ladder")
    texts, events = stock(5_000, 1_000)
    matcher.observe(events)
    matcher.add(dict(enumerate(texts)))
    return matcher


PICTURES: dict[str, Callable[[], gm.Matcher]] = {
    "scan": lambda: loaded(workloads.dense(20_000, dims=100), gm.Scan()),
    "pstbloom": lambda: loaded(workloads.dense(20_000, dims=10), gm.PstBloom()),
    "gem": lambda: loaded(workloads.gem(20_000, dims=6), gm.Gem()),
    "gem-triangles": lambda: loaded(workloads.dense(20_000, dims=6), gm.Gem(cells=32, caches=4)),
    "tama": lambda: loaded(workloads.dense(20_000, dims=100), gm.Tama(levels=6)),
    "psthash": lambda: loaded(workloads.dense(20_000, dims=10), gm.PstHash()),
    "ladder": ladder,
    "atree": lambda: loaded(ads(20_000), gm.ATree()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="output folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        path = folder / f"{name}.png"
        draw(make(), path)
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
