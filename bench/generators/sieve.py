"""Sieve's workload for selective subscription (V-C), attributes and values by Zipf's law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpumatch.arrays import pointers

SUBSCRIPTIONS, DIMS, VALUES, ALPHA = 10_000, 50, 10_000, 0.7


@dataclass(frozen=True)
class SieveWorkload:
    """Subscription i has the half-open ranges ``ptr[i]`` to ``ptr[i + 1] - 1``."""

    ptr: NDArray[np.int64]
    attribute: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    p: NDArray[np.float64]  # share of messages in each range
    presence: NDArray[np.float64]  # by attribute: share of messages that have it
    permutation: NDArray[np.int64]  # by attribute: its values, the most popular first

    def messages(self, n: int, seed: int = 0) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """By attribute: the messages that have it, and their values."""
        rng, found = np.random.default_rng([seed, 1]), {}
        for attribute, (share, values) in enumerate(zip(self.presence, self.permutation, strict=True)):
            held = np.flatnonzero(rng.random(n) < share)
            found[attribute] = held, rng.choice(values, len(held), p=zipf(len(values)))
        return found


def zipf(n: int, alpha: float = ALPHA) -> NDArray[np.float64]:
    weights = np.arange(1, n + 1) ** -alpha
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def selective(
    n: int = SUBSCRIPTIONS,
    attributes: int = 5,
    width: int = 30,
    *,
    dims: int = DIMS,
    values: int = VALUES,
    present: float = 5,
    spread: int = 0,
    seed: int = 0,
) -> SieveWorkload:
    """The workload of V-C; ``present`` is the mean number of attributes of a message.

    A subscription has ``attributes`` attributes, plus or minus up to ``spread``, uniformly.
    """
    rng = np.random.default_rng([seed, attributes, width])
    popularity = rng.permutation(zipf(dims))
    keys = np.log(popularity) + rng.gumbel(size=(n, dims))  # the highest are a sample without replacement
    lengths = attributes + rng.integers(-spread, spread + 1, n)
    attribute = np.argsort(-keys, axis=1)[np.arange(dims) < lengths[:, None]]
    permutation = np.array([rng.permutation(values) for _ in range(dims)])
    low = permutation[attribute, rng.choice(values, len(attribute), p=zipf(values))]
    high = np.minimum(low + rng.integers(1, 2 * width, len(low)), values)
    share = np.zeros((dims, values + 1))
    share[np.arange(dims)[:, None], permutation + 1] = zipf(values)
    below = share.cumsum(axis=1)
    presence = _presence(popularity, present)
    p = presence[attribute] * (below[attribute, high] - below[attribute, low])
    return SieveWorkload(pointers(lengths), attribute, low, high, p, presence, permutation)


def _presence(popularity: NDArray[np.float64], present: float) -> NDArray[np.float64]:
    """The share of messages with each attribute: ``1 - exp(-t * popularity)``, as in sampling without replacement."""
    if present >= len(popularity):
        return np.ones(len(popularity))
    least, most = 0.0, 1.0 / popularity.min() * len(popularity)
    for _ in range(100):
        middle = (least + most) / 2
        least, most = (middle, most) if -np.expm1(-middle * popularity).sum() < present else (least, middle)
    found: NDArray[np.float64] = -np.expm1(-most * popularity)
    return found
