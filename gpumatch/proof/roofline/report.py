"""Bounds as tables and as JSON, always by that name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpumatch.proof.roofline.cost import LIMITS, SECTOR
from gpumatch.proof.roofline.gpus import BANKS, LANES, SLICE, Gpu
from gpumatch.proof.roofline.trace import Counted

ASSUMPTIONS = (
    "Bounds, not measurements: what the kernels touch, counted on the CPU over the same arrays, over published rates.",
    "Every kernel runs at the rate of what it needs most, one after the other, without launches, waiting or latency.",
    f"Memory: arrays in order as far as they exceed L2; of others each sector of {SECTOR} bytes once for all events at "
    "once, and again as often as L2 cannot have held it, if reads are spread evenly.",
    f"L2: all loads and stores, {SLICE} bytes per clock and slice; only the A100's rate is published.",
    f"Shared memory: {BANKS} bytes per clock and multiprocessor, conflicts of banks counted. L1 costs nothing.",
    "Atomics: one per clock and slice of L2; in shared memory, one per clock and multiprocessor.",
    f"Instructions: {LANES} threads' per clock and multiprocessor; as many per step as the machine code for sm_90 has, "
    "where threads of a warp wait for the slowest.",
    "Output: all that is done with matches once they are found. Transfer: 16 lanes of PCIe, events in and matches out; "
    "it runs beside the kernels and is no part of the bound.",
)


def kernel_table(counted: Counted, gpus: Sequence[Gpu]) -> Table:
    """What each kernel takes for one event; of memory, with the least and the most L2 that the GPUs have."""
    title = (
        f"{counted.workload}, {counted.subscriptions:,} subscriptions, {counted.index}: {counted.matches:,.1f} matches "
        f"per event; bytes and operations of one, counted for {counted.events:,}, with {counted.batch:,} at once"
    )
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", min_width=max(len(cost.kernel) for cost in counted.costs))
    sizes = sorted({gpu.l2 for gpu in gpus})
    held = sizes[:1] + sizes[1:][-1:]
    memory = [f"memory, {size >> 20} MB L2" for size in held]
    for name in ("in order", "scattered", "through L2", *memory, "shared memory", "atomics", "instructions"):
        table.add_column(name, justify="right")
    for cost in counted.costs:
        scattered = SECTOR * sum(it.sectors / it.events for it in cost.touched)
        figures = (
            cost.read + cost.written,
            scattered,
            cost.l2_bytes(),
            *(cost.memory_bytes(size, counted.batch) for size in held),
            cost.shared,
            cost.atomics,
            cost.instructions,
        )
        table.add_row(cost.kernel, *map(_whole, figures))
    return table


def bound_table(counted: Counted, gpus: Sequence[Gpu]) -> Table:
    """The bound of each GPU: by each limit alone, and by kernels one after the other."""
    title = f"{counted.workload}, {counted.index}: bound in events/s, by each limit alone and in all (not measured)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    bounds = counted.bounds(gpus)
    binding = [f"{it.binds}, {it.kernel}" for it in bounds]
    table.add_column("GPU", min_width=max(len(gpu.name) for gpu in gpus))
    table.add_column("bound", justify="right", style="bold", min_width=6)
    table.add_column("what binds", min_width=max(map(len, binding)))  # what matters has room in a narrow window, too
    for name in (*LIMITS, "output", "transfer"):
        table.add_column(name, justify="right")
    for it, what in zip(bounds, binding, strict=True):
        by_limit = (_rate(it.limits[name]) for name in (*LIMITS, "output", "transfer"))
        table.add_row(it.gpu, _rate(it.events), what, *by_limit)
    return table


def summary_table(several: Sequence[Counted], gpus: Sequence[Gpu]) -> Table:
    """One line for each workload and index: the bound and what binds, on each GPU."""
    title = "bound in events/s, and what binds (not measured)"
    table = Table("workload", "index", title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for gpu in gpus:
        table.add_column(gpu.name, justify="right")
    for counted in several:
        bounds = [f"{_rate(it.events)} {it.binds}" for it in counted.bounds(gpus)]
        table.add_row(counted.workload, counted.index, *bounds)
    return table


def to_json(several: Sequence[Counted], gpus: Sequence[Gpu]) -> dict[str, Any]:
    """All there is, for a file."""
    figures = {
        gpu.name: {
            "memory bytes/s": gpu.memory,
            "multiprocessors": gpu.units,
            "clock in Hz": gpu.clock,
            "L2 bytes": gpu.l2,
            "L2 slices": gpu.slices,
            "L2 bytes/s": gpu.l2_rate,
            "PCIe generation": gpu.pcie,
            "source": gpu.source,
        }
        for gpu in gpus
    }
    results = [_rounded(counted.to_dict(gpus)) for counted in several]
    return {"what": ASSUMPTIONS[0], "assumptions": ASSUMPTIONS[1:], "gpus": figures, "results": results}


def _rounded(held: Any) -> Any:
    """Numbers with four digits: the counts of a sample have no more to tell."""
    if isinstance(held, dict):
        return {name: _rounded(value) for name, value in held.items()}
    if isinstance(held, list):
        return [_rounded(value) for value in held]
    return float(f"{held:.4g}") if isinstance(held, float) else held


def _whole(number: float) -> str:
    return f"{number:,.0f}" if number else ""


def _rate(events: float) -> str:
    """Three digits, in thousands or millions where there are as many."""
    if math.isinf(events):
        return "–"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if events >= unit:
            return f"{events / unit:.3g} {name}" if events < 999.5 * unit else f"{events / unit:,.0f} {name}"
    return f"{events:.3g}"
