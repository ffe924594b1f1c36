"""Patterns on strings that lie in a device's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sim.fakes import DeviceArrowArray

import gpumatch as gm
from gpumatch.device_memory import library, simulated
from gpumatch.index import KINDS

pytestmark = pytest.mark.skipif(not simulated(), reason="needs NUMBA_ENABLE_CUDASIM=1")

SCHEMA = {"s": "string", "tags": "list<string>", "x": "int64"}
TEXTS = [
    "s LIKE '%b'",
    "s NOT LIKE '%b'",
    "s ILIKE 'É%'",
    "tags LIKE '_'",
    "tags NOT LIKE '_'",
    "s LIKE '%b' XOR x > 1",
]
WORDS = pa.array(["ab", None, "éa", "", "b", "ab"])
LISTS = pa.array([["a", "ab"], None, [], [None, "b"], ["abc"], ["é"]])
NUMBERS = pa.array([1, 2, None, 4, 0, 2])


def matchers(index: str) -> tuple[gm.Matcher, gm.Matcher]:
    right = gm.Matcher(SCHEMA, index=index, device="cpu")
    right.add(dict(enumerate(TEXTS)))
    return right, right.to("cuda:0")


@pytest.mark.parametrize("index", KINDS)
def test_columns(index: str) -> None:
    right, mine = matchers(index)
    here = right.match({"s": WORDS, "tags": LISTS, "x": NUMBERS})
    assert here.n_pairs > len(TEXTS)
    for words in (WORDS, WORDS.dictionary_encode()):
        columns: dict[str, Any] = {"s": DeviceArrowArray(words), "tags": LISTS, "x": DeviceArrowArray(NUMBERS)}
        assert mine.match(columns) == here
        assert right.match(columns) == here


@pytest.mark.parametrize("index", KINDS)
def test_sparse_events(index: str) -> None:
    xp = library()
    right, mine = matchers(index)
    offsets, attribute = np.array([0, 3, 3, 5]), np.array([0, 1, 1, 1, 0], np.int32)
    values = pa.array(["ab", "a", "zz", "b", "éb"])
    here = right.match(gm.EventBatch.from_csr(offsets, attribute, values, list(SCHEMA)))
    assert here.n_pairs > 0
    for given in (values, DeviceArrowArray(values.dictionary_encode())):
        batch = gm.EventBatch.from_csr(xp.asarray(offsets), xp.asarray(attribute), given, list(SCHEMA))
        assert mine.match(batch) == here
        assert right.match(batch) == here
    number = (np.array([0, 1]), np.array([2], np.int32), np.array([5]))
    assert mine.match(gm.EventBatch.from_csr(*map(xp.asarray, number), list(SCHEMA))) == right.match([{"x": 5}])
