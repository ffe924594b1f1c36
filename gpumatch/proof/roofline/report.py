"""Bounds as tables and as JSON, always called bounds."""

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
    "Every kernel runs at the rate of its scarcest resource, one after another, without launches, waits or latency.",
    f"Memory: arrays in order as far as they exceed L2; for others each sector of {SECTOR} bytes once per batch, and "
    "again as often as L2 cannot have kept it, if reads are spread evenly.",
    f"L2: all loads and stores, {SLICE} bytes per clock and slice; only the A100's rate is published.",
    f"Shared memory: {BANKS} bytes per clock and multiprocessor, bank conflicts counted. L1 costs nothing.",
    "Atomics: one per clock and slice of L2; in shared memory, one per clock and multiprocessor.",
    f"Instructions: those of {LANES} threads per clock and multiprocessor; as many per step as in the machine code for "
    "sm_90, where threads of a warp wait for the slowest.",
    "Output: all work on matches once they are found. Transfer: 16 lanes of PCIe, events in and matches out; it runs "
    "alongside the kernels and is not included in the bound.",
)


def kernel_table(counted: Counted, gpus: Sequence[Gpu]) -> Table:
    """Resources of each kernel for one event; for memory, with the smallest and the largest L2 of the GPUs."""
    title = (
        f"{counted.workload}, {counted.subscriptions:,} subscriptions, {counted.index}: {counted.matches:,.1f} matches "
        f"per event; bytes and operations of one, counted for {counted.events:,}, with {counted.batch:,} together"
    )
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", min_width=max(len(cost.kernel) for cost in counted.costs))
    sizes = sorted({gpu.l2 for gpu in gpus})
    shown = sizes[:1] + sizes[1:][-1:]
    memory = [f"memory, {size >> 20} MB L2" for size in shown]
    for name in ("in order", "scattered", "through L2", *memory, "shared memory", "atomics", "instructions"):
        table.add_column(name, justify="right")
    for cost in counted.costs:
        scattered = SECTOR * sum(it.sectors / it.events for it in cost.touched)
        figures = (
            cost.read + cost.written,
            scattered,
            cost.l2_bytes(),
            *(cost.memory_bytes(size, counted.batch) for size in shown),
            cost.shared,
            cost.atomics,
            cost.instructions,
        )
        table.add_row(cost.kernel, *map(_whole, figures))
    return table


def bound_table(counted: Counted, gpus: Sequence[Gpu]) -> Table:
    """The bound of each GPU: by each limit alone, and by kernels in sequence."""
    title = f"{counted.workload}, {counted.index}: bound in events/s, by each limit alone and in all (not measured)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    bounds = counted.bounds(gpus)
    binding = [f"{it.binds}, {it.kernel}" for it in bounds]
    table.add_column("GPU", min_width=max(len(gpu.name) for gpu in gpus))
    table.add_column("bound", justify="right", style="bold", min_width=6)
    table.add_column("what binds", min_width=max(map(len, binding)))  # room for what matters in a narrow window, too
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
    """Everything, for a file."""
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


def _rounded(given: Any) -> Any:
    """Numbers with four digits: counts from a sample are no more precise."""
    if isinstance(given, dict):
        return {name: _rounded(value) for name, value in given.items()}
    if isinstance(given, list):
        return [_rounded(value) for value in given]
    return float(f"{given:.4g}") if isinstance(given, float) else given


def _whole(number: float) -> str:
    return f"{number:,.0f}" if number else ""


def _rate(events: float) -> str:
    """Three digits, in thousands or millions if it is that large."""
    if math.isinf(events):
        return "–"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if events >= unit:
            return f"{events / unit:.3g} {name}" if events < 999.5 * unit else f"{events / unit:,.0f} {name}"
    return f"{events:.3g}"
