"""Pictures of built indexes, drawn from their arrays, for ``gpumatch info --plot`` and the docs.

Charts are numbers and labels, computed without matplotlib; only ``draw`` needs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpumatch.arrays import Array
from gpumatch.errors import GpumatchError
from gpumatch.index import FlatIndex, IndexParams, kind_of
from gpumatch.index.charts import Bars, Chart, Heat
from gpumatch.matcher import Matcher
from gpumatch.store.segment import Segment

_GAP = 4  # pixels between names


@dataclass(frozen=True)
class Panel:
    """The charts of one part of a segment."""

    title: str
    charts: list[Chart]


def panels(matcher: Matcher) -> list[Panel]:
    """One panel per part of each segment."""
    found = []
    for number, segment in enumerate(matcher._seal().segments):
        for part in segment.parts:
            index = part.index
            title = f"segment {number}: {_written(index.params)}, {index.last - index.first:,} clauses"
            kind, names, counts = kind_of(index.params), _names(segment), segment.book.counts()
            drawn = kind.beside("picture").charts(index, names, counts) if kind.has("picture") else [_sizes(index)]
            found.append(Panel(title, drawn))
    return found


def _sizes(index: FlatIndex) -> Bars:
    """The sizes of the arrays, for an index without pictures of its own."""
    sizes = {"": np.array([array.nbytes for array in index.arrays.values()])}
    return Bars("arrays", "array", "bytes", sizes, list(index.arrays))


def _names(segment: Segment) -> list[str]:
    """Columns by number: the schema's attributes, then presence of each list attribute, then patterns."""
    names, attributes = list(segment.attributes.schema.names), segment.attributes
    there = [f"{name} there" for name, multi in zip(names, attributes.multi, strict=False) if multi]
    return [*names, *there, *(f"{names[at]} like" for at in attributes.owners)]


def _written(params: IndexParams) -> str:
    """Parameters as a user would write them, without those at their defaults."""
    given = ((field.name, getattr(params, field.name), field.default) for field in fields(params))
    shown = ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)
    return f"{type(params).__name__}({shown})"


def figure_for(path: str | os.PathLike[str]) -> Any:
    """An empty figure. Raises an error without matplotlib, or if it does not support the suffix."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GpumatchError("drawing needs matplotlib, which is not installed: pip install matplotlib") from None
    figure = Figure(dpi=100, layout="constrained")
    formats = sorted(figure.canvas.get_supported_filetypes())
    if Path(path).suffix[1:].lower() not in formats:
        raise GpumatchError(f"the name of a picture ends in one of .{', .'.join(formats)}; found {os.fspath(path)!r}")
    return figure


def draw(matcher: Matcher, path: str | os.PathLike[str]) -> None:
    """Write a picture of the matcher's indexes; the suffix selects the format, such as .png, .svg or .pdf."""
    figure = figure_for(path)
    shown = panels(matcher)
    if not shown:
        raise GpumatchError("the index has no subscriptions, so there is nothing to draw")
    figure.set_size_inches(9, 3.2 * len(shown))
    for panel, own in zip(shown, figure.subfigures(len(shown), 1, squeeze=False)[:, 0], strict=True):
        own.suptitle(panel.title, fontsize=10)
        for chart, axes in zip(panel.charts, own.subplots(1, len(panel.charts), squeeze=False)[0], strict=True):
            if isinstance(chart, Bars):
                _draw_bars(axes, chart)
            else:
                _draw_heat(axes, chart)
            axes.set_title(chart.title, fontsize=9)
            axes.set_xlabel(chart.x, fontsize=8)
            axes.set_ylabel(chart.y, fontsize=8)
            axes.tick_params(labelsize=7)
    _turn_crowded_names(figure)
    figure.savefig(path)


def _turn_crowded_names(figure: Any) -> None:
    """Turn names below columns upright if they would overlap, which only the finished layout shows."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        if any(one.x1 + _GAP > other.x0 for one, other in pairwise(boxes)):
            axes.tick_params(axis="x", rotation=90)


def _draw_bars(axes: Any, chart: Bars) -> None:
    below: Array = np.zeros(len(next(iter(chart.series.values()))))
    at = np.arange(len(below))
    for label, values in chart.series.items():
        if chart.names is None:  # as in a Heat, the column of a code is centred on it
            axes.bar((at + 0.5) * chart.width - 0.5, values, chart.width, below, label=label)
        else:
            axes.bar(at, values, 0.8, below, label=label)
        below = below + values
    axes.set_ylim(0, 1.05 * below.max(initial=0) or 1)
    if chart.names is None:
        axes.margins(x=0)
    else:
        axes.set_xticks(at, chart.names)
    if len(chart.series) > 1:
        axes.legend(fontsize=7)


def _draw_heat(axes: Any, chart: Heat) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = (-0.5, chart.height - 0.5)
    image = axes.imshow(
        np.ma.masked_equal(chart.values, 0),
        aspect="auto",
        interpolation="nearest",
        origin="lower" if chart.upward else "upper",
        extent=(-0.5, chart.width - 0.5, *(rows if chart.upward else reversed(rows))),
        cmap="viridis_r",
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(chart.colour, fontsize=8)
    bar.ax.tick_params(labelsize=7)
