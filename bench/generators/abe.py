"""ABE-Gen of the thesis (10.4.1): random arbitrary Boolean expressions.

The same arguments always give the same arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from generators.programs import PREDICATE, BooleanWorkload, Programs, interned
from gpumatch.arrays import pointers

OPERATORS = (0.4, 0.4, 0.1, 0.05, 0.05)  # shares of and, or, not, xor, xnor
WIDEST = 50  # widest range, as in W2


def abe(
    n: int = 1_000_000,
    depth: int = 3,
    children: int = 4,
    repeats: int = 0,
    alpha: float = 0.0,
    dims: int = 1000,
    cardinality: int = 100,
    present: int = 20,
    equality: float = 1.0,
    operators: Sequence[float] = OPERATORS,
    seed: int = 0,
) -> BooleanWorkload:
    """ABE-Gen with the thesis's defaults (table 10.4.1).

    The root has depth 1, and a node at depth ``depth`` is a predicate: depth 3 is two levels of operators. AND and OR
    have ``children`` operands, XOR and XNOR two. Each of the ``n`` expressions occurs ``1 + repeats`` times, in mixed
    order: more repeats mean more expressions, not fewer distinct ones. Only then can the times of engines that do not
    share rise with repeats, as they do in Fig. 10.3(d).

    Not stated in the thesis: predicates are equalities, except for a share of ``1 - equality`` that are ranges 1 to 50
    wide, cut at the largest value as in W2. The attributes of events are uniform whatever ``alpha`` is, because the
    thesis applies Zipf's law only to predicates.
    """
    rng = np.random.default_rng([seed, depth, children, dims])
    step = max(
        1, 2_000_000 // children ** (depth - 1)
    )  # in chunks, so that a level of all trees need not fit in memory
    parts = [_trees(rng, min(step, n - at), depth, children, operators) for at in range(0, n, step)]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    kind, operand = (np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:])
    leaves = np.flatnonzero(kind == PREDICATE)
    attribute = _zipf_ranks(rng, len(leaves), dims, alpha)
    lo = rng.integers(0, cardinality, len(leaves))
    width = np.where(rng.random(len(leaves)) < equality, 0, rng.integers(1, WIDEST + 1, len(leaves)))
    table, operand[leaves] = interned(attribute, lo, np.minimum(lo + width, cardinality - 1), cardinality)
    programs = Programs(pointers(sizes), kind, operand)
    if repeats:
        programs = programs.take(rng.permutation(np.repeat(np.arange(n), 1 + repeats)))
    schema = {f"a{d}": "int64" for d in range(dims)}
    return BooleanWorkload(
        "abe", schema, np.arange(len(programs)), programs, table, present, np.full(dims, cardinality)
    )


def _trees(rng: np.random.Generator, n: int, depth: int, children: int, operators: Sequence[float]) -> Programs:
    """Trees level by level from the roots, then each node at its position in postfix order."""
    arities = np.array([0, children, children, 1, 2, 2], np.int32)
    kinds, at = [], np.cumsum(operators)
    count = n
    for _ in range(depth - 1):
        kinds.append((1 + np.searchsorted(at[:-1], rng.random(count) * at[-1], "right")).astype(np.int8))
        count = int(arities[kinds[-1]].sum())
    kinds.append(np.zeros(count, np.int8))
    sizes = [np.ones(count, np.int64)]  # of the subtree of each node, last level first
    for kind in kinds[-2::-1]:
        ends = pointers(arities[kind])
        below = pointers(sizes[-1])
        sizes.append(1 + below[ends[1:]] - below[ends[:-1]])
    sizes.reverse()
    offsets = pointers(sizes[0])
    first = offsets[:-1]
    out, operand = np.empty(offsets[-1], np.int8), np.empty(offsets[-1], np.int32)
    for level, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        place, arity = first + size - 1, arities[kind]
        out[place], operand[place] = kind, arity
        if level + 1 < depth:  # operands are adjacent, from the first item of the node on
            below, ends = pointers(sizes[level + 1]), pointers(arity)
            first = below[:-1] + np.repeat(first - below[ends[:-1]], arity)
    return Programs(offsets, out, operand)


def _zipf_ranks(rng: np.random.Generator, n: int, among: int, alpha: float) -> NDArray[np.int64]:
    """Numbers below ``among`` with P(r) = C / (r + 1)^alpha."""
    if not alpha:
        return rng.integers(0, among, n)
    at = np.cumsum(np.arange(1, among + 1) ** -float(alpha))
    ranks: NDArray[np.int64] = np.searchsorted(at[:-1], rng.random(n) * at[-1], "right")
    return ranks
