"""GPU bounds, also for Boolean expressions, into results/roofline.json: ``python bench/bounds.py --help``.

Results replace those in the file for the same workload and index.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from generators.abe import abe
from generators.ads import ads
from gpumatch.proof.roofline import bound_table, count_given, gpus_named, kernel_table, to_json
from gpumatch.workloads import WORKLOADS, Workload, make
from measuring.options import RESULTS
from measuring.report import save

BOOLEAN: dict[str, Callable[[], Workload]] = {"abe": abe, "abe-ads": ads}
INDEXES = ("auto", "scan", "pstbloom", "psthash", "gem", "triangle", "tama", "ladder", "atree")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    names = (*WORKLOADS, *BOOLEAN)
    options.add_argument("--workloads", default="w1-100k,w1-1m,w2,w3,w4,w5", help=f"of {', '.join(names)}")
    options.add_argument("--indexes", default=",".join(INDEXES), help=f"of {', '.join(INDEXES)}")
    options.add_argument("--file", type=Path, default=RESULTS / "roofline.json", help="default: results/roofline.json")
    chosen, console = options.parse_args(), Console(width=160)
    gpus = gpus_named([])
    for name in chosen.workloads.split(","):
        workload = BOOLEAN[name]() if name in BOOLEAN else make(name)
        for index in chosen.indexes.split(","):
            counted = count_given(name, index, workload)
            console.print(kernel_table(counted, gpus), bound_table(counted, gpus))
            update(chosen.file, to_json([counted], gpus))


def update(file: Path, report: dict[str, Any]) -> None:
    """Write a report, followed by the file's other results."""
    [new] = report["results"]
    stored = json.loads(file.read_text())["results"] if file.exists() else []
    report["results"] = sorted([new, *(it for it in stored if key(it) != key(new))], key=order)
    save(file, report)


def key(result: dict[str, Any]) -> tuple[str, str]:
    """Workload and index, whatever ``auto`` chose."""
    return result["workload"], result["index"].partition(":")[0]


def order(result: dict[str, Any]) -> tuple[int, int]:
    workload, index = key(result)
    return [*WORKLOADS, *BOOLEAN].index(workload), INDEXES.index(index)


if __name__ == "__main__":
    main()
