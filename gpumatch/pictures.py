"""Pictures of built indexes, drawn from their arrays: what ``gpumatch info --plot`` and the docs show.

Charts are numbers and labels and are made without matplotlib; only ``draw`` needs it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gpumatch.errors import GpumatchError
from gpumatch.index import FlatIndex, IndexParams
from gpumatch.kernels.postings import LINE
from gpumatch.matcher import Matcher
from gpumatch.predicates import Array
from gpumatch.segments import Segment

_COLUMNS = 256  # of a line of codes; longer ones are averaged
_SIDE = 64  # of a grid; larger ones are averaged
_GAP = 4  # pixels between names
_BARS = 24  # attributes that a chart names


@dataclass(frozen=True)
class Bars:
    """Stacked bars: per series one value for each name, or for each stretch of a line, which then have no names."""

    title: str
    x: str
    y: str
    series: dict[str, Array]
    names: list[str] | None = None
    width: float = 1.0  # of a bar without a name, in what ``x`` counts


@dataclass(frozen=True)
class Heat:
    """Cells by colour; zeros are left empty."""

    title: str
    x: str
    y: str
    colour: str
    values: Array
    width: float  # what all columns stand for
    height: float
    upward: bool = False  # the first row at the bottom


Chart: TypeAlias = Bars | Heat


@dataclass(frozen=True)
class Panel:
    """The charts of one part of a segment."""

    title: str
    charts: list[Chart]


def panels(matcher: Matcher) -> list[Panel]:
    """A panel for each part of each segment."""
    found = []
    for number, segment in enumerate(matcher._seal().segments):
        for part in segment.parts:
            index = part.index
            title = f"segment {number}: {_written(index.params)}, {index.last - index.first:,} clauses"
            found.append(Panel(title, CHARTS[index.params.kind](segment, index)))
    return found


def _written(params: IndexParams) -> str:
    """Parameters as one would write them: without those that have their defaults."""
    given = ((field.name, getattr(params, field.name), field.default) for field in fields(params))
    told = ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)
    return f"{type(params).__name__}({told})"


def figure_for(path: str | os.PathLike[str]) -> Any:
    """An empty figure, if there is matplotlib and it knows the kind of picture that the suffix tells."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GpumatchError("matplotlib, which draws pictures, is not installed: pip install matplotlib") from None
    figure = Figure(dpi=100, layout="constrained")
    formats = sorted(figure.canvas.get_supported_filetypes())
    if Path(path).suffix[1:].lower() not in formats:
        raise GpumatchError(f"the name of a picture ends in one of .{', .'.join(formats)}; found {os.fspath(path)!r}")
    return figure


def draw(matcher: Matcher, path: str | os.PathLike[str]) -> None:
    """Write a picture of the matcher's indexes; the suffix tells the format, such as .png, .svg or .pdf."""
    figure = figure_for(path)
    shown = panels(matcher)
    if not shown:
        raise GpumatchError("the index holds no subscriptions, so there is nothing to draw")
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
    """Names below bars stand upright where they would run into each other: only the finished layout tells."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        if any(one.x1 + _GAP > other.x0 for one, other in pairwise(boxes)):
            axes.tick_params(axis="x", rotation=90)


def _draw_bars(axes: Any, chart: Bars) -> None:
    below: Array = np.zeros(len(next(iter(chart.series.values()))))
    at = np.arange(len(below))
    for label, values in chart.series.items():
        if chart.names is None:  # as in a Heat, a bar of one code is centred on it
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


# Scan, PstBloom, Ladder: lists by attribute, or by the blocks of a tree over its codes


def _roots(arrays: dict[str, Array]) -> Array:
    """The first node of each attribute, then of each group, and the one behind all nodes."""
    return np.append(arrays["directory"][::2].astype(np.int64), len(arrays["node_ptr"]) - 1)


def _scan(segment: Segment, index: FlatIndex) -> list[Chart]:
    sizes = np.diff(index.arrays["node_ptr"][_roots(index.arrays)]).tolist()
    rest = len(index.arrays["rest"])
    return [_by_attribute("postings that an event with the attribute meets", "postings", segment, sizes, rest)]


def _tree(segment: Segment, index: FlatIndex) -> list[Chart]:
    """The tree with the most postings, and what an event meets on the way to each of its leaves."""
    arrays = index.arrays
    counts = np.concatenate([segment.book.counts(), np.diff(arrays["group_ptr"])])  # of attributes, then of groups
    roots = _roots(arrays)
    sizes = np.diff(arrays["node_ptr"][roots])
    a = int(sizes.argmax())
    levels = int(roots[a + 1] - roots[a]).bit_length() - 1
    starts = [int(roots[a]) + (1 << level) - 1 for level in range(levels + 1)]
    lists = [np.diff(arrays["node_ptr"][at : at + (1 << level) + 1]) for level, at in enumerate(starts)]
    shift = int(arrays["directory"][2 * a + 1]) & 0xFFFF
    width = min(1 << levels, _COLUMNS)
    codes = (1 << (levels + shift)) / width  # of a column
    used = math.ceil(int(counts[a]) / codes)
    values = np.stack([_resized(blocks, width)[:used] for blocks in lists])
    own = len(segment.attributes)
    title, trees = "the tree", f"{own:,} attributes"
    if len(sizes) > own:
        title += f" ({sizes[own:].sum():,} of {sizes.sum():,} postings are in groups)"
        trees += f" and {np.count_nonzero(counts[own:]):,} groups"
    x = f"code of {_named(segment, arrays, a)}, the fullest of {trees}"
    return [
        Heat(title, x, "level", "postings per block", values, used * codes, levels + 1),
        Bars("postings that an event meets", x, "postings", {"": values.sum(axis=0)}, width=codes),
    ]


def _named(segment: Segment, arrays: dict[str, Array], a: int) -> str:
    """An attribute, or a group, which is numbered behind all attributes."""
    names = _names(segment)
    if a < len(names):
        return names[a]
    owners, partners, starts = arrays["lines"].reshape(-1, LINE).T
    line = int(np.searchsorted(starts, a - len(names), side="right")) - 1
    return f"{names[partners[line]]} behind one {names[owners[line]]}"


def _ladder(segment: Segment, index: FlatIndex) -> list[Chart]:
    arrays, clauses = index.arrays, max(index.last - index.first, 1)
    ends = pairwise(arrays["node_ptr"][_roots(arrays)].tolist())
    shares = [len(np.unique(arrays["waiting"][first:last])) / clauses for first, last in ends]
    title, rest = "where clauses wait: the attribute of their first predicate", len(arrays["rest"]) / clauses
    return [_by_attribute(title, "share of clauses", segment, shares, rest)]


# Gem: clauses as points in a triangle of low and high cells


def _gem(segment: Segment, index: FlatIndex) -> list[Chart]:
    """Clauses by low and high cell of the first dimension, and how many each cell leaves in every dimension."""
    arrays, clauses = index.arrays, max(index.last - index.first, 1)
    dims = arrays["dims"].tolist()
    if not dims:
        return [Bars("no attribute is indexed", "", "clauses", {"": np.array([clauses])}, ["every event"])]
    if len(arrays["cell_ptr"]):
        triangle = _from_bits(arrays)
        left = [arrays["count"][first : last - 1] for first, last in pairwise(arrays["cell_ptr"].tolist())]
    else:
        parts = [_from_cells(arrays, d) for d in range(len(dims))]
        triangle = parts[0][0]
        left = [_touching(*part) for part in parts]
    width = max(map(len, left))
    shares = np.stack([np.pad(row, (0, width - len(row))) for row in left]) / clauses
    of, low, high = f"clauses by their bounds on {_names(segment)[dims[0]]}", "cell of the low bound", "of the high one"
    what, value = "clauses that a value leaves", "cell of the value"
    return [
        Heat(of, low, high, "clauses", triangle, len(triangle), len(triangle), upward=True),
        Heat(what, value, "dimension", "share of clauses", shares, width, len(dims)),
    ]


def _from_bits(arrays: dict[str, Array]) -> Array:
    """Clauses by last (rows) and first cell that they touch in the first dimension, less those it does not bind."""
    missing = int(arrays["cell_ptr"][1]) - 1  # behind the cells of values
    words = len(arrays["bits"]) // max(len(arrays["summary"]), 1)
    found = np.zeros(missing * missing, np.int64)
    for tile in arrays["bits"].reshape(-1, int(arrays["cell_ptr"][-1]), max(words, 1)):
        touched = np.unpackbits(tile[: missing + 1].view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        bound = touched[:missing, touched[:missing].any(axis=0) & ~touched[missing]]
        low, high = bound.argmax(axis=0), missing - 1 - bound[::-1].argmax(axis=0)
        found += np.bincount(high * missing + low, minlength=len(found))
    return found.reshape(missing, missing)


def _from_cells(arrays: dict[str, Array], d: int) -> tuple[Array, int]:
    """The same from a triangle of the paper's, and how many clauses its dimension does not bind."""
    cells = len(arrays["triangle_starts"]) // len(arrays["triangle_dims"])
    lists = cells * (cells + 1) // 2 + 1
    sizes = np.diff(arrays["triangle_ptr"][d * lists : (d + 1) * lists + 1])
    found = np.zeros((cells, cells), np.int64)
    found[np.tril_indices(cells)] = sizes[:-1]
    return found, int(sizes[-1])


def _touching(triangle: Array, free: int) -> Array:
    """How many clauses touch each cell: low bound at or before it, high bound at or behind it."""
    touching: Array = triangle.cumsum(axis=1)[::-1].cumsum(axis=0)[::-1].diagonal() + free
    return touching


# Tama: trees of all predicates, laid in bricks of four levels


_HEIGHTS = np.array([3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])  # of the nodes of a brick; the last is not used


def _tama(segment: Segment, index: FlatIndex) -> list[Chart]:
    """Postings by level, those that are certain and those that are verified; predicates of single codes apart."""
    arrays = index.arrays
    directory = arrays["directory"].reshape(-1, 4)
    ends = [*directory[1:, 0].tolist(), len(arrays["node_ptr"]) - 1]
    sums: dict[int, Array] = {}
    singles = np.zeros(2, np.int64)
    for (first, _, top, codes), end in zip(directory.tolist(), ends, strict=True):
        for level, found in _levels(arrays, first, top):
            sums[level] = sums.get(level, 0) + found
        if codes >= 0:
            singles += _certain(arrays, codes, end, np.zeros(end - codes, np.int64), 1)[0]
    names = [str(level) for level in sorted(sums)] + ["="] * bool(singles.any())
    certain, verified = np.array([sums[level] for level in sorted(sums)] + [singles] * bool(singles.any())).T
    series = {"certain": certain, "verified": verified} if verified.any() else {"": certain}
    return [Bars("postings of all attributes", "level: how often codes are halved", "postings", series, names)]


def _levels(arrays: dict[str, Array], first: int, top: int) -> Iterator[tuple[int, Array]]:
    """Levels of a tree whose last finest cell is ``top``: certain and verified postings of each."""
    level = top.bit_length()
    while level >= 0:
        last = first + 16 * ((top >> 3) + 1)
        heights = np.tile(_HEIGHTS, (last - first) // 16)
        for height, found in enumerate(_certain(arrays, first, last, heights, 4)[: level + 1]):
            yield level - height, found
        first, top, level = last, top >> 4, level - 4


def _certain(arrays: dict[str, Array], first: int, last: int, group: Array, groups: int) -> Array:
    """Certain and verified postings of the nodes ``first:last``, by group of nodes."""
    ptr = arrays["node_ptr"][first : last + 1].astype(np.int64)
    marks = np.concatenate([[0], np.cumsum(arrays["postings"][ptr[0] : ptr[-1]] & 1, dtype=np.int64)])
    verified = np.bincount(group, np.diff(marks[ptr - ptr[0]]), groups).astype(np.int64)
    return np.stack([np.bincount(group, np.diff(ptr), groups).astype(np.int64) - verified, verified], axis=1)


# PstHash: grids of two attributes


def _psthash(segment: Segment, index: FlatIndex) -> list[Chart]:
    """The fullest grid, and how many postings the cells of all grids have; the tree where there are no grids."""
    arrays = index.arrays
    if len(arrays["grid_facts"]) == 0:
        return _tree(segment, index)
    facts, cell_ptr = arrays["grid_facts"].astype(np.int64), arrays["cell_ptr"].astype(np.int64)
    starts = np.append(facts >> 24, len(cell_ptr) - 1)
    g = int(np.diff(cell_ptr[starts]).argmax())
    sizes = np.diff(cell_ptr)
    grid = sizes[starts[g] : starts[g + 1]].reshape(-1, 1 << (int(facts[g]) & 0xFF))
    sides = (int(np.searchsorted(arrays["grid_ptr"], g, side="right")) - 1, int(arrays["grid_partner"][g]))
    used = []
    for attribute, shift in zip(sides, (16, 8), strict=True):
        used.append(((int(segment.book.counts()[attribute]) - 1) >> (int(facts[g]) >> shift & 0xFF)) + 1)
        side = min(len(grid), _SIDE)  # rows are done first, then columns
        grid = _resized(grid, side)[: math.ceil(used[-1] * side / len(grid))].T
    y, x = (f"block of {_names(segment)[attribute]}" for attribute in sides)
    title = f"the fullest of {len(facts):,} grids, {used[0]} × {used[1]} cells"
    kept = f"{cell_ptr[-1]:,} postings in grids, {len(arrays['heads']):,} outside"
    return [
        Heat(title, x, y, "postings per cell", grid, used[1], used[0]),
        Bars(kept, "postings of a cell", "share of all cells", *_shares(sizes)),
    ]


def _shares(sizes: Array) -> tuple[dict[str, Array], list[str]]:
    """Shares of the sizes 0, 1, 2, 3 to 4, 5 to 8, and so on."""
    most = int(sizes.max(initial=1))
    tops = [0, *(1 << k for k in range((most - 1).bit_length() + 1))]
    counts = np.bincount(np.searchsorted(tops, sizes), minlength=len(tops))
    names = ["0", *(str(top) if top <= 2 else f"{top // 2 + 1}-{top}" for top in tops[1:])]
    return {"": counts / max(len(sizes), 1)}, names


# A-Tree: programs over nodes


def _atree(segment: Segment, index: FlatIndex) -> list[Chart]:
    """How long programs are, of nodes that several use and of clauses; and how many wait for a node."""
    arrays = index.arrays
    inner = int(arrays["level_ptr"][-1])
    lengths = np.diff(arrays["unit_ptr"])
    most = int(lengths.max(initial=1))
    series = {}
    for name, part in (("nodes", lengths[:inner]), ("clauses", lengths[inner:])):
        shares, names = _shares(np.append(part, most))  # one more of the greatest length, so that both have all bars
        series[name] = (shares[""] * (len(part) + 1)).round()
        series[name][-1] -= 1
    nodes, edges = arrays["graph"][:2].tolist()
    waiting = np.diff(arrays["parent_ptr"])
    levels, clauses = len(arrays["level_ptr"]) - 1, len(lengths) - inner
    title = f"{inner:,} shared nodes in {levels} levels, and {clauses:,} clauses"
    graph = f"a graph of {nodes:,} nodes and {edges:,} edges"
    return [
        Bars(title, "items of a program", "programs", series, names),
        Bars(graph, "programs that wait for a node", "share of nodes", *_shares(waiting)),
    ]


# What several share


def _names(segment: Segment) -> list[str]:
    """Columns by number: the schema's attributes, then those that tell whether a list is there, and of patterns."""
    names, attributes = list(segment.attributes.schema.names), segment.attributes
    there = [f"{name} there" for name, multi in zip(names, attributes.multi, strict=False) if multi]
    return [*names, *there, *(f"{names[at]} like" for at in attributes.owners)]


def _by_attribute(title: str, y: str, segment: Segment, values: list[Any], rest: Any) -> Bars:
    """The largest values by name, the mean of the others, and what every event meets."""
    ranked = sorted(zip(values, _names(segment), strict=True), key=lambda it: -it[0])
    ranked = [it for it in ranked if it[0]]
    shown, others = ranked[:_BARS], [value for value, _ in ranked[_BARS:]]
    x = "attribute"
    if others:
        shown.append((sum(others) / len(others), f"+{len(others):,}"))
        x = f"attribute; +{len(others):,} is the mean of so many more"
    if rest or not shown:
        shown.append((rest, "every event"))
    return Bars(title, x, y, {"": np.array([it[0] for it in shown])}, [it[1] for it in shown])


def _resized(values: Array, length: int) -> Array:
    """Rows repeated or averaged so that there are so many; both lengths are powers of two."""
    if len(values) <= length:
        return np.repeat(values, length // len(values), axis=0)
    mean: Array = values.reshape(length, -1, *values.shape[1:]).mean(axis=1)
    return mean


CHARTS: dict[str, Callable[[Segment, FlatIndex], list[Chart]]] = {
    "scan": _scan,
    "pstbloom": _tree,
    "gem": _gem,
    "tama": _tama,
    "psthash": _psthash,
    "ladder": _ladder,
    "atree": _atree,
}
