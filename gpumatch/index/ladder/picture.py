"""Match-Ladder: where clauses wait."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpumatch.arrays import Array
from gpumatch.index.charts import Chart, by_attribute
from gpumatch.index.flat import FlatIndex
from gpumatch.index.postings.picture import roots


def charts(index: FlatIndex, names: list[str], counts: Array) -> list[Chart]:
    arrays, clauses = index.arrays, max(index.last - index.first, 1)
    ends = pairwise(arrays["node_ptr"][roots(arrays)].tolist())
    shares = [len(np.unique(arrays["waiting"][first:last])) / clauses for first, last in ends]
    title, rest = "where clauses wait: the attribute of their first predicate", len(arrays["rest"]) / clauses
    return [by_attribute(title, "share of clauses", names, shares, rest)]
