"""Memory and work of the Match-Ladder kernels."""

from __future__ import annotations

from gpumatch.index.flat import FlatIndex
from gpumatch.kernels import count_lists
from gpumatch.kernels.count import WARP
from gpumatch.proof.roofline.lists import Found, OnRoofline, blocks, clause_marks, clause_touched, cut, found_in
from gpumatch.proof.roofline.sample import Sample, SlotWork, listing, marks_of, testing

_TEST, _PREDICATE = 112, 50  # instructions of a thread, as in sample


def _count(sample: Sample, index: FlatIndex) -> Found:
    a, table = index.arrays, sample.table
    sample, runs, work = cut(sample, lambda it: blocks(it, a, it.entries, len(a["waiting"])))
    lists = (a["waiting"], a["rest"])
    list_marks, marks = tuple(map(marks_of, (*lists, table.clause_program))), clause_marks(sample)
    keys, _, steps, tiles, warps, sectors = count_lists.test_waiting(
        tuple(runs),
        sample.coded.arrays(),
        sample.rows,
        sample.width,
        table.clause_ptr,
        table.clause_program,
        table.predicates(),
        lists,
        list_marks,
        marks,
        sample.row_stamps(),
    )
    named = zip(("waiting", "rest", "clause_program"), sectors, list_marks, strict=False)
    touched = (*(sample.touched(*it) for it in named), *clause_touched(sample, sectors[3:], marks))
    slots = SlotWork(tiles, warps, touched, _TEST * runs.slots + _PREDICATE * WARP * steps)
    costs = listing(sample, ("postings.count_runs", "postings.fill_runs"), len(sample.coded.code), runs, work)
    costs += testing(sample, "ladder.test_waiting", runs, len(keys), slots)
    return found_in(sample, costs, (runs, keys))


ON_ROOFLINE = OnRoofline(_count)
