"""Plots: panels side by side with the same axes, one line per name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Axis(NamedTuple):
    label: str
    log: bool = False


class Line(NamedTuple):
    """Named points; drawn as crosses if not joined."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True


def lines(results: Sequence[Any], places: Mapping[str, float], value: Callable[[Any], float]) -> list[Line]:
    """One line per engine: the measurement on each workload, at its position on the x axis."""
    good = [r for r in results if r.status == "ok" and r.workload in places]
    engines = dict.fromkeys(r.engine for r in results)
    return [Line(name, [(places[r.workload], value(r)) for r in good if r.engine == name]) for name in engines]


def draw(
    path: Path, panels: Mapping[str, Sequence[Line]], x: Axis, y: Axis, target: tuple[str, float] | None = None
) -> Path:
    """Draw to ``path``; ``target`` is the name and height of a line to compare with."""
    import matplotlib

    matplotlib.use("Agg")  # no screen needed
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 5), sharey=True, squeeze=False)
    for (title, lines), axis in zip(panels.items(), axes[0], strict=True):
        for i, line in enumerate(lines):
            if line.points:
                style = "o-" if line.joined else "x"
                axis.plot(*zip(*line.points, strict=True), style, label=line.name, color=f"C{i}", markersize=4)
        if target is not None:
            axis.axhline(target[1], color="grey", linestyle="--", label=target[0])
        axis.set(title=title, xlabel=x.label, xscale="log" if x.log else "linear", yscale="log" if y.log else "linear")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[0][0].set_ylabel(y.label)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
