"""A-Tree: programs over nodes."""

from __future__ import annotations

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart, shares
from gpumatch.index.flat import FlatIndex


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """How long programs are, of nodes that several use and of clauses; and how many wait for a node."""
    arrays = index.arrays
    inner = int(arrays["level_ptr"][-1])
    lengths = np.diff(arrays["unit_ptr"])
    most = int(lengths.max(initial=1))
    series = {}
    for name, part in (("nodes", lengths[:inner]), ("clauses", lengths[inner:])):
        share, labels = shares(np.append(part, most))  # one more of the greatest length, so that both have all bars
        series[name] = (share[""] * (len(part) + 1)).round()
        series[name][-1] -= 1
    nodes, edges = index.meta["nodes"], index.meta["edges"]
    waiting = np.diff(arrays["parent_ptr"])
    levels, clauses = len(arrays["level_ptr"]) - 1, len(lengths) - inner
    title = f"{inner:,} shared nodes in {levels} levels, and {clauses:,} clauses"
    graph = f"a graph of {nodes:,} nodes and {edges:,} edges"
    return [
        Bars(title, "items of a program", "programs", series, labels),
        Bars(graph, "programs that wait for a node", "share of nodes", *shares(waiting)),
    ]
