"""Bytes on a device per subscription, by workload and index, and how many fit: ``python bench/memory.py --help``."""

from __future__ import annotations

from rich.table import Table

import gpumatch as gm
from engines.ours import loaded
from gpumatch.device.resident import HostArrays
from gpumatch.workloads import WORKLOADS, RangeWorkload, make
from measuring.options import parser
from measuring.report import machine, save, terminal

CARDS = (16, 24, 80)  # GB
FREE = 0.75  # share of a card for the index; the rest is for events, results and libraries
INDEXES = ("scan", "pstbloom", "psthash", "gem", "tama", "ladder", "atree")


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--workloads", default="w1-1m,w2,w3,w4,w5", help=f"of {', '.join(WORKLOADS)}")
    chosen, console = options.parse_args(), terminal()
    rows = []
    for name in chosen.workloads.split(","):
        workload = make(name, chosen.scale)
        for index in INDEXES:
            if index == "gem" and not isinstance(workload, RangeWorkload):
                continue
            matcher = loaded(workload, index, "cpu")
            matcher.compact()
            rows.append({"workload": name, "index": index, "bytes": device_bytes(matcher) / len(matcher)})
            console.print(f"{name} {index}: {rows[-1]['bytes']:.0f} bytes per subscription")
    table = Table("workload", "index", "bytes per subscription", *(f"millions in {card} GB" for card in CARDS))
    for row in rows:
        fits = [f"{FREE * card * 1e9 / row['bytes'] / 1e6:,.0f}" for card in CARDS]
        table.add_row(row["workload"], row["index"], f"{row['bytes']:.0f}", *fits)
    console.print(table)
    save(chosen.out / "memory.json", {"machine": machine(), "scale": chosen.scale, "results": rows})


def device_bytes(matcher: gm.Matcher) -> int:
    """Bytes of a matcher that stay on a device between calls."""
    segments = matcher._seal().segments
    arrays = (HostArrays(s.attributes, s.used, s.book, s.table, [(p.index, p.work) for p in s.parts]) for s in segments)
    return sum(it.nbytes for it in arrays)


if __name__ == "__main__":
    main()
