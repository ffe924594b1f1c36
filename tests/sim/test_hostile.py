"""Indexes whose checksums are right and whose values are not, matched by the kernels of the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from tests.conformance.test_oracle import VARIANTS
from tests.store.test_hostile import EVENTS, corrupted, filled, forge, manifest, npy, read, write_manifest

pytestmark = pytest.mark.long

ACCEPTED = 5  # corrupted copies of each index that are matched


@pytest.mark.parametrize("index", VARIANTS, ids=str)
def test_what_full_accepts_is_harmless(index: Any, tmp_path: Path) -> None:
    filled(index, 40).save(tmp_path)
    right, rng = manifest(tmp_path), np.random.default_rng(VARIANTS.index(index))
    places = [(0, name) for name in right["segments"][0]["arrays"] if name.startswith(("book.", "table.", "index"))]
    accepted = 0
    while accepted < ACCEPTED:
        number, name = places[rng.integers(len(places))]
        file = forge(tmp_path, number, name, npy(corrupted(read(tmp_path, number, name), rng)))
        try:
            matcher = gm.load(tmp_path, device="cuda:0", verify="full")
        except gm.StorageError:
            continue
        else:
            list(matcher.match(EVENTS[1:4]))
            list(matcher.destinations(EVENTS[1:3]))
            accepted += 1
        finally:
            write_manifest(tmp_path, right)
            if file.name not in {entry["file"] for entry in right["segments"][number]["arrays"].values()}:
                file.unlink()
