"""Several blocks into one, for merging segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.expr.keys import MIN
from gpumatch.subscriptions.block import Attributes, Block, shared
from gpumatch.subscriptions.predicates import Predicates


def join_blocks(attributes: Attributes, blocks: Sequence[Block], keeps: Sequence[Array | None]) -> Block:
    """The kept rows of several blocks as one block."""
    pool: dict[bytes, int] = {}
    strings = attributes.covering(max(block.columns for block in blocks)).of_kind("string")
    parts = [_renumbered(_kept(block, keep), strings, pool) for block, keep in zip(blocks, keeps, strict=True)]
    rows, predicates, ranges, programs, items = 0, 0, 0, 0, 0
    clauses: list[tuple[Array, Array, Array]] = []
    own: list[Predicates] = []
    leaves: list[Predicates] = []
    program_ptr, program_item = [np.zeros(1, np.int64)], []
    leaf_base = sum(int(part.clause_ptr[-1]) for part in parts)
    for part in parts:
        count = int(part.clause_ptr[-1])
        program = np.where(part.clause_program >= 0, part.clause_program + programs, -1).astype(np.int32)
        clauses.append((part.clause_row + rows, part.clause_ptr[1:] + predicates, program))
        attribute, kind, lo, hi = part.predicates.columns()
        shift = np.where(part.predicates.has_ranges(), ranges, 0)
        moved = Predicates(attribute, kind, lo + shift, hi + shift)
        own.append(moved.take(slice(count)))
        leaves.append(moved.take(slice(count, None)))
        item = part.program_item
        program_item.append(np.where(item >= 0, item - count + leaf_base, item).astype(np.int32))
        program_ptr.append(part.program_ptr[1:] + items)
        rows += part.length
        predicates += count
        ranges += len(part.ranges)
        programs += len(part.program_ptr) - 1
        items += len(item)
        leaf_base += len(moved) - count
    joined = Block(
        rows,
        np.concatenate([c[0] for c in clauses]).astype(np.int32),
        np.concatenate([np.zeros(1, np.int64), *(c[1] for c in clauses)]),
        np.concatenate([c[2] for c in clauses]),
        Predicates.join([*own, *leaves]),
        Predicates.join([part.ranges for part in parts]),
        np.concatenate(program_ptr),
        np.concatenate(program_item),
        list(pool),
    )
    return joined if len(parts) == 1 else shared(joined)


def _kept(block: Block, keep: Array | None) -> Block:
    """The block with only the kept rows, without ranges and programs that are then unused."""
    if keep is None:
        return block
    clauses = np.flatnonzero(keep[block.clause_row])
    counts = np.diff(block.clause_ptr)[clauses]
    own = spans(block.clause_ptr[:-1][clauses], counts)
    programs = block.clause_program[clauses]
    used = np.unique(programs[programs >= 0])
    items = spans(block.program_ptr[used], np.diff(block.program_ptr)[used])
    item = block.program_item[items]
    leaf = item >= 0
    needed = np.zeros(len(block.predicates), np.bool_)
    needed[item[leaf]] = True
    item[leaf] = (len(own) + np.cumsum(needed) - 1)[item[leaf]]
    kept = block.predicates.take(np.concatenate([own, np.flatnonzero(needed)]))
    predicates, ranges = kept.with_own(block.ranges)
    number = np.cumsum(keep) - 1
    return Block(
        int(np.count_nonzero(keep)),
        number[block.clause_row[clauses]].astype(np.int32),
        pointers(counts),
        np.where(programs >= 0, np.searchsorted(used, programs), -1).astype(np.int32),
        predicates,
        ranges,
        pointers(np.diff(block.program_ptr)[used]),
        item,
        block.pool,
    )


def _renumbered(block: Block, strings: Array, pool: dict[bytes, int]) -> Block:
    """The block with its strings moved to a common pool."""
    if not block.pool:
        return block
    both = (block.predicates, block.ranges)
    cuts = np.concatenate([end[given.cuts(strings)] for given in both for end in (given.lo, given.hi)])
    numbers = np.zeros(len(block.pool), np.int64)
    for old in np.unique(cuts[cuts != MIN] >> 1).tolist():
        numbers[old] = pool.setdefault(block.pool[old], len(pool))
    predicates, ranges = (given.with_cuts(strings, numbers) for given in both)
    return replace(block, predicates=predicates, ranges=ranges)
