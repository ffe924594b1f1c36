"""Tables with their clauses in another order, or with some of them only."""

from __future__ import annotations

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.codes.decode import expression_of
from gpumatch.codes.table import reorder
from gpumatch.parallel import threads

TEXTS = {
    0: "i > 1 AND f < 2.5",
    1: "NOT (i = 3 AND (f < 3 OR s = 'a')) OR f > 7",
    2: "i = 5",
    3: "(i = 1 XOR f < 9) AND s = 'b' AND i < 4",
    4: "f BETWEEN 1 AND 2 AND i IN (1, 5) AND s LIKE 'x%'",
}


@pytest.mark.parametrize("shared", [1, 1000])
@pytest.mark.parametrize("rows", [[4, 2, 0, 1, 3], [3, 0], [1], []])
def test_clauses_keep_their_predicates_and_programs(
    rows: list[int], shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``shared``: how many clauses are worth a thread."""
    monkeypatch.setattr(threads, "_count", 2)
    monkeypatch.setattr(threads, "_SHARE", shared)
    matcher = gm.Matcher({"i": "int64", "f": "float64", "s": "string"}, index="atree")
    matcher.add(TEXTS)
    [segment] = matcher._seal().pieces
    clauses = np.array([at for row in rows for at in np.flatnonzero(segment.table.clause_row == row)], np.int64)
    table = reorder(segment.table, clauses)
    assert table.clause_row.tolist() == segment.table.clause_row[clauses].tolist()
    for row in rows:
        one = np.flatnonzero(table.clause_row == row)
        assert len(one) > 0
        before = expression_of(segment.attributes, segment.book, segment.table, row)
        assert expression_of(segment.attributes, segment.book, table, row) == before
