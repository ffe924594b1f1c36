"""Expressions like the thesis's advertisements (10.4.4), which repeat as a whole and in pieces.

The thesis states 1,392,196 expressions, 1 to 56 predicates, 122 dimensions, events of 20, and that predicates,
subexpressions and expressions occur many times. The rest is made up to resemble a real inventory:

- An attribute is a dimension such as channel, region, position or a trait of the user. Popularity follows Zipf's law,
  for dimensions in expressions and in events, and for the values of each.
- A *block* is reusable targeting on one dimension: a value, a list of values joined by OR, a list that is excluded by
  NOT, a range, or pairs with a second dimension: ``(a = 1 AND b = 2) OR (a = 3 AND b = 4)``.
- A *campaign* is an AND of blocks on distinct dimensions. Its *groups* share these and add blocks on other
  dimensions; a group is an expression.
- An *advertisement* has the expression of its group, and popular groups have many of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from generators.programs import AND, NOT, OR, PREDICATE, BooleanWorkload, PredicateTable, Programs, interned, zipf
from gpumatch.arrays import pointers
from gpumatch.workloads import popular

SIZE = 1_392_196
DIMS = 122
MOST = 56  # most predicates of an expression
PRESENT = 20
LONGEST = 32  # longest list of values in a block
BLOCKS = 24_000  # in total, distributed by popularity
SHARES = (0.62, 0.22, 0.07, 0.04, 0.05)  # of blocks: value, list, excluded list, range, pairs
GROUPS = 0.25  # distinct expressions, as a share of all
CAMPAIGNS = 0.2  # for each group
FIXED = (0.01, 0.29, 0.7)  # shares of campaigns with 1, 2, 3 blocks
ADDED = (0.05, 0.35, 0.35, 0.2, 0.05)  # shares of groups that add 0, 1, 2, 3, 4 blocks


class Blocks(NamedTuple):
    """Programs of blocks, grouped by dimension, and their numbers of predicates."""

    programs: Programs
    predicates: NDArray[np.int64]
    dims: NDArray[np.int64]  # where the blocks of each dimension start


def ads(n: int = SIZE, seed: int = 0) -> BooleanWorkload:
    """``n`` advertisements; the numbers of groups and blocks scale with it, so that repetition stays the same."""
    rng = np.random.default_rng([seed, DIMS])
    popularity = 1 / np.arange(1, DIMS + 1) ** 0.8
    cardinality = 2 + zipf(rng, np.full(DIMS, 400))
    cardinality[:8] = 6, 200, 40, 3, 12, 80, 25, 1000  # in nearly every event: channel, region, position …
    table, blocks = _blocks(rng, popularity, cardinality, max(2 * DIMS, round(BLOCKS * min(1.0, 4 * n / SIZE))))
    groups = _groups(rng, max(1, round(GROUPS * n)), popularity, blocks)
    kept = np.arange(min(n, len(groups)))
    rows = np.concatenate([kept, skewed(rng, n - len(kept), len(groups))])
    programs = groups.take(rng.permutation(rows))
    schema = {f"a{d}": "int64" for d in range(DIMS)}
    return BooleanWorkload("ads", schema, np.arange(n), programs, table, PRESENT, cardinality, popularity)


def _blocks(
    rng: np.random.Generator, popularity: NDArray[np.float64], cardinality: NDArray[np.int64], total: int
) -> tuple[PredicateTable, Blocks]:
    counts = np.maximum(2, np.round(total * popularity / popularity.sum()).astype(np.int64))
    leaves: list[tuple[int, int, int]] = []  # attribute, lo, hi
    kinds: list[int] = []
    operands: list[int] = []
    sizes: list[int] = []

    def operator(kind: int, arity: int) -> None:
        kinds.append(kind)
        operands.append(arity)

    def predicate(attribute: int, lo: int, hi: int | None = None) -> None:
        operator(PREDICATE, len(leaves))
        leaves.append((attribute, lo, lo if hi is None else hi))

    for d, count in enumerate(counts.tolist()):
        most = int(cardinality[d])
        drawn = popular(rng, count, min(most, LONGEST), 1 / np.arange(1, most + 1)).tolist()
        lengths = (2 + zipf(rng, 1 + zipf(rng, np.full(count, LONGEST - 1)))).tolist()
        other = int(rng.integers(0, DIMS - 1))
        other += other >= d
        pair = zipf(rng, np.full((count, 2), cardinality[other])).tolist()
        for form, values, length, second in zip(
            rng.choice(len(SHARES), count, p=SHARES).tolist(), drawn, lengths, pair, strict=True
        ):
            before, listed = len(kinds), values[: max(1, min(length, most // 2))]
            if form == 0 or len(listed) == 1:
                predicate(d, values[0])
            elif form == 3:
                predicate(d, min(values[:2]), max(values[:2]))
            elif form == 4:
                for value, with_ in zip(values[:2], second, strict=True):
                    predicate(d, value)
                    predicate(other, with_)
                    operator(AND, 2)
                operator(OR, 2)
            else:
                for value in listed:
                    predicate(d, value)
                operator(OR, len(listed))
            if form == 2:
                operator(NOT, 1)
            sizes.append(len(kinds) - before)
    attribute, lo, hi = np.array(leaves).T
    table, numbers = interned(attribute, lo, hi, int(cardinality.max()))
    kind, operand = np.array(kinds, np.int8), np.array(operands, np.int32)
    operand[kind == PREDICATE] = numbers
    offsets = pointers(np.array(sizes))
    predicates = np.diff(pointers(kind == PREDICATE)[offsets])
    return table, Blocks(Programs(offsets, kind, operand), predicates, pointers(counts))


def _groups(rng: np.random.Generator, n: int, popularity: NDArray[np.float64], blocks: Blocks) -> Programs:
    """Each is an AND of blocks; the first ones are those of the campaign."""
    width = len(FIXED) + len(ADDED) - 1
    campaigns = max(1, round(CAMPAIGNS * n))
    of = skewed(rng, n, campaigns)
    fixed = rng.choice(np.arange(1, len(FIXED) + 1), campaigns, p=FIXED)[of]
    count = fixed + rng.choice(len(ADDED), n, p=ADDED)
    dims = popular(rng, campaigns, width, popularity)
    own = _drawn(rng, dims, blocks)[of]
    chosen = np.where(np.arange(width) < fixed[:, None], own, _drawn(rng, dims[of], blocks))
    used = np.arange(width) < count[:, None]
    used &= np.cumsum(np.where(used, blocks.predicates[chosen], 0), axis=1) <= MOST
    joined = used.sum(axis=1)
    # The ANDs of 2, 3 … blocks are blocks too, after the others, so that a group is a row of blocks
    last = len(blocks.predicates)
    sizes = np.concatenate([np.diff(blocks.programs.offsets), np.ones(width - 1, np.int64)])
    kind = np.concatenate([blocks.programs.kind, np.full(width - 1, AND, np.int8)])
    operand = np.concatenate([blocks.programs.operand, np.arange(2, width + 1, dtype=np.int32)])
    pieces = np.column_stack([np.where(used, chosen, -1), np.where(joined > 1, last + joined - 2, -1)])
    flat = Programs(pointers(sizes), kind, operand).take(pieces[pieces >= 0])
    ends = pointers((pieces >= 0).sum(axis=1))
    return Programs(flat.offsets[ends], flat.kind, flat.operand)


def _drawn(rng: np.random.Generator, dims: NDArray[Any], blocks: Blocks) -> NDArray[np.int64]:
    """One block on each of these dimensions."""
    first = blocks.dims[dims]
    drawn: NDArray[np.int64] = first + zipf(rng, blocks.dims[dims + 1] - first)
    return drawn


def skewed(rng: np.random.Generator, n: int, among: int) -> NDArray[np.int64]:
    """Numbers below ``among``, roughly as 1 / sqrt(r): no campaign has a large share of all advertisements."""
    numbers: NDArray[np.int64] = (rng.random(n) ** 2 * among).astype(np.int64)
    return numbers
