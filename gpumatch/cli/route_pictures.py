"""Pictures of overlays: several small charts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpumatch.cli.pictures import figure_for
from gpumatch.routing.simulator.experiments import Curves
from gpumatch.routing.simulator.simulated import Simulated

_POINTS = 101  # per line of latencies
_WIDE = 10  # the axis is logarithmic if values span more than this factor


@dataclass(frozen=True, slots=True)
class Columns:
    """A chart of shares: for each name, one share per group."""

    title: str
    groups: list[str]
    shares: dict[str, list[float]]


def draw_curves(curves: Sequence[Curves | Columns], path: str | os.PathLike[str], columns: int = 2) -> None:
    """Write a picture with one chart for each; the suffix selects the format."""
    figure = figure_for(path)
    rows = -(-len(curves) // columns)
    figure.set_size_inches(5 * columns, 3.4 * rows)
    charts = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, drawn in zip(charts, curves, strict=False):
        _draw_columns(axes, drawn) if isinstance(drawn, Columns) else _draw_lines(axes, drawn)
        axes.set_title(drawn.title, fontsize=9)
        axes.tick_params(which="both", labelsize=7)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    for axes in charts[len(curves) :]:
        axes.remove()
    figure.savefig(path)


def _draw_lines(axes: Any, drawn: Curves) -> None:
    for name, values in drawn.lines.items():
        axes.plot(drawn.x, values, label=name, marker="o" if len(drawn.x) < 30 else None, markersize=3)
    if "x" in drawn.log:
        axes.set_xscale("log")
    if "y" in drawn.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(drawn.x_name, fontsize=8)
    axes.set_ylabel(drawn.y_name, fontsize=8)


def _draw_columns(axes: Any, drawn: Columns) -> None:
    width = 0.8 / max(len(drawn.shares), 1)
    for number, (name, shares) in enumerate(drawn.shares.items()):
        where = np.arange(len(shares)) + number * width
        columns = axes.bar(where, np.nan_to_num(shares), width, align="edge", label=name)
        axes.bar_label(columns, [f"{share:.1%}" for share in shares], fontsize=6)
    axes.set_xticks(np.arange(len(drawn.groups)) + 0.4, drawn.groups)
    axes.set_ylim(0, 1.35)  # room for the legend
    axes.set_yticks(np.arange(6) / 5)


def curves_of(results: Sequence[Simulated]) -> list[Curves | Columns]:
    """For each protocol: the distributions of latency and of list length, and the share delivered."""
    percent = np.linspace(0, 100, _POINTS)
    spans = [(result.latency.min(), result.latency.max()) for result in results if len(result.event)]
    wide = bool(spans) and max(high for _, high in spans) > _WIDE * min(low for low, _ in spans)
    axis = ("latency of deliveries", "% of deliveries", "milliseconds, at most", percent.tolist())
    latency = Curves(*axis, log="y" if wide else "")
    longest = max((len(result.counts.sizes) for result in results), default=0)
    lists = Curves("destination lists", "destinations, at most", "share of messages", list(range(1, longest)))
    for result in results:
        if len(result.event):
            latency.lines[result.protocol] = (np.percentile(result.latency, percent) / 1e6).tolist()
        sizes = np.zeros(longest)
        sizes[: len(result.counts.sizes)] = result.counts.sizes
        if sizes.any():
            lists.lines[result.protocol] = (np.cumsum(sizes)[1:] / sizes.sum()).tolist()
    shares = {result.protocol: [result.delivered, result.delivered_with_path] for result in results}
    delivered = Columns("delivered pairs of event and broker", ["of all", "of those with a path"], shares)
    return [*(chart for chart in (latency, lists) if chart.lines), delivered]
