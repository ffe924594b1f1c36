"""A-Tree: programs over nodes."""

from __future__ import annotations

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Bars, Chart, shares
from gpumatch.index.flat import FlatIndex


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    """Lengths of programs, of shared nodes and of clauses; and how many programs wait for a node."""
    arrays = index.arrays
    inner = int(arrays["level_ptr"][-1])
    lengths = np.diff(arrays["unit_ptr"])
    most = int(lengths.max(initial=1))
    series = {}
    for name, own in (("nodes", lengths[:inner]), ("clauses", lengths[inner:])):
        share, labels = shares(np.append(own, most))  # one more of the greatest length, so that both have all columns
        series[name] = (share[""] * (len(own) + 1)).round()
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
