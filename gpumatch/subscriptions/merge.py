"""Blocks back from tables, and several blocks into one: what merging segments takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpumatch.arrays import Array, pointers, spans
from gpumatch.expr.keys import MIN
from gpumatch.subscriptions.block import EMPTY, RANGE, Attributes, Block, has_ranges, move_cuts, own_ranges, shared


def join_blocks(attributes: Attributes, blocks: Sequence[Block], keeps: Sequence[Array | None]) -> Block:
    """The kept rows of several blocks as one block."""
    pool: dict[bytes, int] = {}
    strings = attributes.covering(max(block.columns for block in blocks)).of_kind("string")
    parts = [_renumbered(_kept(block, keep), strings, pool) for block, keep in zip(blocks, keeps, strict=True)]
    rows, predicates, ranges, programs, items = 0, 0, 0, 0, 0
    clauses: list[tuple[Array, Array, Array]] = []
    columns: list[tuple[Array, ...]] = []
    leaves: list[tuple[Array, ...]] = []
    program_ptr, program_item = [np.zeros(1, np.int64)], []
    total = sum(int(part.clause_ptr[-1]) for part in parts)
    leaf_base = total
    for part in parts:
        own = int(part.clause_ptr[-1])
        program = np.where(part.clause_program >= 0, part.clause_program + programs, -1).astype(np.int32)
        clauses.append((part.clause_row + rows, part.clause_ptr[1:] + predicates, program))
        shift = np.where(has_ranges(part.kind), ranges, 0)
        columns_of = (part.attribute, part.kind, part.lo + shift, part.hi + shift)
        columns.append(tuple(column[:own] for column in columns_of))
        leaves.append(tuple(column[own:] for column in columns_of))
        item = part.program_item
        program_item.append(np.where(item >= 0, item - own + leaf_base, item).astype(np.int32))
        program_ptr.append(part.program_ptr[1:] + items)
        rows += part.length
        predicates += own
        ranges += len(part.range_lo)
        programs += len(part.program_ptr) - 1
        items += len(item)
        leaf_base += len(part.attribute) - own
    attribute, kind, lo, hi = (np.concatenate(c) for c in zip(*columns, *leaves, strict=True))
    joined = Block(
        rows,
        np.concatenate([c[0] for c in clauses]).astype(np.int32),
        np.concatenate([np.zeros(1, np.int64), *(c[1] for c in clauses)]),
        np.concatenate([c[2] for c in clauses]),
        attribute,
        kind,
        lo,
        hi,
        np.concatenate([part.range_attribute for part in parts]),
        np.concatenate([part.range_lo for part in parts]),
        np.concatenate([part.range_hi for part in parts]),
        np.concatenate(program_ptr),
        np.concatenate(program_item),
        list(pool),
    )
    return joined if len(parts) == 1 else shared(joined)


def _kept(block: Block, keep: Array | None) -> Block:
    """The block without the clauses of other rows. Ranges and programs that nobody uses any more go, too."""
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
    needed = np.zeros(len(block.attribute), np.bool_)
    needed[item[leaf]] = True
    item[leaf] = (len(own) + np.cumsum(needed) - 1)[item[leaf]]
    at = np.concatenate([own, np.flatnonzero(needed)])
    kind = block.kind[at]
    held, lo, hi = own_ranges(kind, block.lo[at], block.hi[at], len(block.range_lo))
    number = np.cumsum(keep) - 1
    return Block(
        int(np.count_nonzero(keep)),
        number[block.clause_row[clauses]].astype(np.int32),
        pointers(counts),
        np.where(programs >= 0, np.searchsorted(used, programs), -1).astype(np.int32),
        block.attribute[at],
        kind,
        lo,
        hi,
        block.range_attribute[held],
        block.range_lo[held],
        block.range_hi[held],
        pointers(np.diff(block.program_ptr)[used]),
        item,
        block.pool,
    )


def _renumbered(block: Block, strings: Array, pool: dict[bytes, int]) -> Block:
    """The block with cuts of strings that point into a common pool, to which its strings are added."""
    if not block.pool:
        return block
    own = strings[block.attribute] & (block.kind == RANGE)
    own &= (block.lo != EMPTY[0]) | (block.hi != EMPTY[1])
    others = strings[block.range_attribute]
    cuts = (block.lo[own], block.hi[own], block.range_lo[others], block.range_hi[others])
    used = np.unique(np.concatenate([cut[cut != MIN] for cut in cuts]) >> 1)
    numbers = np.zeros(len(block.pool), np.int64)
    for old in used.tolist():
        numbers[old] = pool.setdefault(block.pool[old], len(pool))
    lo, hi, range_lo, range_hi = (a.copy() for a in (block.lo, block.hi, block.range_lo, block.range_hi))
    lo[own], hi[own], range_lo[others], range_hi[others] = (move_cuts(cut, numbers) for cut in cuts)
    return replace(block, lo=lo, hi=hi, range_lo=range_lo, range_hi=range_hi)
