"""Cost of the last tests of candidates, and of putting rows in order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gpumatch.arrays import Array
from gpumatch.kernels import count
from gpumatch.kernels.count import BLOCK, WARP
from gpumatch.proof.roofline.cost import SECTOR, Cost
from gpumatch.proof.roofline.lists import clause_marks, clause_touched
from gpumatch.proof.roofline.sample import ELEMENT, KEY, Sample, compact_cost, kept_cost, marks_of

_DECIDED, _UNDECIDED, _PREDICATE, _ITEM = 46, 89, 70, 80  # instructions of a thread
_ROW, _DISTINCT = 48, 61
_PASSES, _SORT = 8, 20  # of a radix sort of 64-bit keys, and instructions of a key in each


def verified(sample: Sample, keys: Array) -> tuple[list[Cost], Array]:
    """Testing the predicates of undecided candidates, and their programs; and the keys of matches."""
    table, per = sample.table, 1 / sample.events
    marks, program_marks, kept = clause_marks(sample), marks_of(table.clause_program), np.empty(len(keys), np.int64)
    n, undecided, steps, tiles, warps, sectors = count.verify(
        keys,
        sample.coded.arrays(),
        sample.rows,
        sample.width,
        table.clause_ptr,
        table.clause_program,
        table.predicates(),
        marks,
        program_marks,
        sample.row_stamps(),
        kept,
    )
    keep = kept_cost("verify.test_predicates", len(keys), n, tiles, warps, per)
    touched = clause_touched(sample, sectors[:4], marks)
    tests = Cost(
        keep.kernel,
        read=KEY * len(keys) * per,
        written=keep.written,
        touched=(*touched, sample.touched("clause_program", sectors[4], program_marks)),
        shared=keep.shared,
        instructions=keep.instructions
        + (_DECIDED * len(keys) + _UNDECIDED * undecided + _PREDICATE * WARP * steps) * per,
    )
    costs = [tests, compact_cost(len(keys), n, tiles, per)]
    if len(table.program_ptr) > 1:
        more, kept = _programs(sample, kept[:n])
        return costs + more, kept
    return costs, kept[:n]


def _programs(sample: Sample, keys: Array) -> tuple[list[Cost], Array]:
    """Programs of the candidates that have one, each read and run from end to end."""
    per, kept = 1 / sample.events, np.empty(len(keys), np.int64)
    n, items = count.run_programs(
        keys,
        sample.coded.arrays(),
        sample.rows,
        sample.width,
        sample.table.clause_program,
        sample.table.predicates(),
        sample.table.programs,
        sample.attributes.presence,
        kept,
    )
    tiles = -(-len(keys) // BLOCK)
    keep = kept_cost("verify.run_programs", len(keys), n, tiles, -(-len(keys) // WARP), per)
    cost = Cost(
        keep.kernel,
        read=KEY * len(keys) * per,
        written=keep.written,
        pieces=3 * SECTOR * items * per,
        shared=keep.shared,
        instructions=keep.instructions + (_DECIDED * len(keys) + _ITEM * items) * per,
    )
    return [cost, compact_cost(len(keys), n, tiles, per)], kept[:n]


def named(sample: Sample, keys: Array) -> tuple[list[Cost], Array]:
    """Rows instead of clauses; and their keys."""
    per, kept = 1 / sample.events, np.empty(len(keys), np.int64)
    marks = marks_of(sample.table.clause_row)
    n, sectors = count.name_rows(keys, sample.table.clause_row, marks, kept)
    tiles = -(-len(keys) // BLOCK)
    keep = kept_cost("work.to_rows", len(keys), n, tiles, -(-len(keys) // WARP), per, output=True)
    cost = Cost(
        keep.kernel,
        read=KEY * len(keys) * per,
        written=keep.written,
        touched=(sample.touched("clause_row", sectors, marks),),
        shared=keep.shared,
        instructions=keep.instructions + _ROW * len(keys) * per,
        output=True,
    )
    return [cost, compact_cost(len(keys), n, tiles, per, output=True)], kept[:n]


def _distinct(keys: int, batch: int) -> list[Cost]:
    """Removing the few repeats from ``keys`` sorted keys of a batch."""
    per, tiles = 1 / batch, -(-keys // BLOCK)
    keep = kept_cost("work.distinct", keys, keys, tiles, -(-keys // WARP), per, output=True)
    instructions = keep.instructions + _DISTINCT * keys * per
    return [
        replace(keep, read=KEY * keys * per, instructions=instructions),
        compact_cost(keys, keys, tiles, per, output=True),
    ]


def ordered(keys: float, batch: int, pieces: int, ascending: bool) -> list[Cost]:
    """``keys`` keys per event, put in order unless they are, cut into offsets and rows, and copied."""
    costs = []
    if pieces > 1:
        costs.append(Cost("joining", KEY * keys, KEY * keys, instructions=ELEMENT * keys, output=True))
    if pieces > 1 or not ascending:
        moved = KEY * keys * (_PASSES + 1)
        costs.append(
            Cost("sorting", moved + KEY * keys, moved, instructions=_SORT * (2 * _PASSES + 1) * keys, output=True)
        )
        costs += _distinct(round(keys * batch), batch)
    steps = math.log2(keys * batch + 2)
    costs.append(
        Cost(
            "offsets and rows",
            read=20 * keys + 32,
            written=16 * keys + 40,
            pieces=SECTOR * steps,
            instructions=ELEMENT * (2 * keys + 3 + steps),
            output=True,
        )
    )
    return costs
