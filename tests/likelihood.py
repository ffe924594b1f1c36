"""Predicates that are all equally likely, so that clauses hang on the first one as written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def equally_likely(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gpumatch.store.segment.likelihoods", _none)


def _none(attributes: Any, book: Any, table: Any, sample: Any) -> Any:
    return np.zeros(len(table.predicate) // 4)
