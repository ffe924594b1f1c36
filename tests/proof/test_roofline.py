"""Bounds for GPUs: what is counted, against hand-made cases and the matcher itself, and what follows from it."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpumatch as gm
from gpumatch import cli
from gpumatch.codes.table import CodedEvents
from gpumatch.events.batch import EventBatch
from gpumatch.index.gem import roofline as gem
from gpumatch.kernels import count, count_atree, count_gem, count_lists
from gpumatch.kernels.atree_build import NEGATED
from gpumatch.kernels.dag import AND, OR
from gpumatch.proof.roofline import GPUS, Cost, bound, count_workload, gpus_named, sample, trace
from gpumatch.proof.roofline.cost import LIMITS, Touched, Transfer
from gpumatch.proof.roofline.sample import Runs, Sample, SlotWork, marks_of, warp_steps
from gpumatch.proof.roofline.trace import count_segment, index_named
from gpumatch.workloads import WORKLOADS, SparseEvents, stocks

KINDS = ("scan", "pstbloom", "psthash", "gem", "tama", "ladder", "triangle", "atree")
NO_TRANSFER = Transfer(1.0, 1.0)


def runs(*lengths: int, start: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One run after another, the first from ``start`` on, each of an event of its own."""
    length = np.array(lengths, np.int64)
    first = start + np.cumsum(length) - length
    return first, length, np.arange(len(length), dtype=np.int32)


def fixed(array: np.ndarray) -> np.ndarray:
    """As arrays of indexes are, so that compiled code is shared."""
    array.flags.writeable = False
    return array


# What is found is what the matcher finds


@pytest.mark.long
@pytest.mark.parametrize("index", KINDS)
@pytest.mark.parametrize("workload", ["w1-100k", "w3", "w5"])
def test_matches_are_those_of_the_matcher(workload: str, index: str) -> None:
    check_matches(workload, index, 1500)


@pytest.mark.parametrize("workload", ["w2", "w4", "w6", "ads"])
def test_matches_of_what_auto_chooses(workload: str) -> None:
    check_matches(workload, "auto", 3000)


def check_matches(name: str, index: str, size: int) -> None:
    counted = count_workload(name, index, size, 40)
    count = trace._ENOUGH if index == "atree" else 40
    workload = WORKLOADS[name][1](size)
    matcher = gm.Matcher(workload.schema, index=index_named(index), device="cpu")
    workload.add_to(matcher)
    events = workload.events(count)
    expected = matcher.match(gm.EventBatch.from_csr(*events) if isinstance(events, SparseEvents) else events)
    assert counted.events == count
    assert counted.matches == expected.n_pairs / count
    for event, rows in enumerate(counted.rows):
        assert rows.tolist() == expected.rows[expected.offsets[event] : expected.offsets[event + 1]].tolist()


LISTS = {
    "red": "tags IN ('red', 'blue') AND n > 2",
    "other": "n BETWEEN 1 AND 4 AND name IN ('a', 'c', 'e')",
    "many": "(n = 1 AND name = 'a') XOR (n = 2 AND x > 0.5) XOR (tags = 'red' AND x < 0.25)",
    "none": "NOT (x > 0.5)",
    "null": "name IS NULL",
}


@pytest.mark.long
@pytest.mark.parametrize("index", KINDS)
def test_lists_sets_and_programs_are_counted_too(index: str) -> None:
    schema = {"n": "int64", "x": "float64", "name": "string", "tags": "list<string>"}
    matcher = gm.Matcher(schema, index=index_named(index), device="cpu")
    matcher.add(LISTS)
    events = [
        {"n": 3, "x": 0.1, "name": "a", "tags": ["red", "red", "blue"]},
        {"n": 1, "x": 0.9, "name": "a", "tags": []},
        {"n": 2, "x": 0.7},
        {},
        {"x": 0.2, "tags": ["green", "blue"]},
    ]
    batch = EventBatch.of(events, matcher.schema)
    expected = matcher.match(batch)
    [segment] = matcher._seal().segments
    found = count_segment("lists", index, segment, batch)
    assert [[matcher.ids[row] for row in rows] for rows in found.rows] == [expected.ids(i) for i in range(len(events))]


@pytest.mark.long
@pytest.mark.parametrize("index", [gm.PstBloom(), gm.PstHash(access=1)], ids=str)
def test_groups_are_counted_too(index: gm.IndexParams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are those of the matcher; what finds groups is among the kernels, and cells are among what they read."""
    monkeypatch.setattr("gpumatch.index.postings.compound._SHARED", 4)
    rng = np.random.default_rng(5)
    bars = stocks.draw_bars(2000, rng)
    alerts = stocks.draw_alerts(5000, bars, rng)
    matcher = gm.Matcher(stocks.SCHEMA, index=index, device="cpu")
    matcher.add_table(alerts.select(["id", "expr"]))
    [segment] = matcher._seal().segments
    lines = len(segment.parts[0].index.arrays["lines"]) // 3
    assert lines > 2
    batch = EventBatch.of(stocks.to_events(bars, 2000).drop_columns(["event"]).slice(700, 60), matcher.schema)
    found, expected = count_segment("stocks", "pstbloom", segment, batch), matcher.match(batch)
    for event, rows in enumerate(found.rows):
        assert rows.tolist() == expected.rows[expected.offsets[event] : expected.offsets[event + 1]].tolist()
    costs = {cost.kernel: cost for cost in found.costs}
    assert costs["postings.find_groups"].written == 13 * lines
    assert {"postings.test_grouped", "joining of entries"} <= costs.keys()
    read = {it.array: it.sectors for it in costs["postings.test_grouped"].touched}
    assert read["cells"] > 0
    assert costs["postings.count_runs"].written == 8 * (len(stocks.SCHEMA) + lines)  # entries and items of an event


# Hand-made cases, one for each kernel that goes through lists or bitsets


def test_postings_read_filters_in_order_and_heads_where_the_first_filter_holds() -> None:
    rows = np.array([5, 7, 6, 7], np.int32)  # two events of two attributes
    five, seven = 0 | 5 << 16, 1 | 7 << 16  # attribute 0 is 5; attribute 1 is 7
    filters = fixed(np.array([five] * 40, np.uint32))
    heads = (np.arange(40, dtype=np.uint64)) | np.uint64(seven) << np.uint64(32)
    heads[1] |= np.uint64(1 << 31)  # nothing is left to verify
    fixed(heads)
    rest, shift = fixed(np.zeros(0, np.int32)), fixed(np.zeros(2, np.uint8))
    marks = (*map(marks_of, (filters, heads, rest)), marks_of(rows), marks_of(shift))
    stamps = (np.full(9, -1), np.full(9, -1))
    keys, second, tiles, warps, sectors = count_lists.test_postings(
        runs(3, 37), rows, 2, shift, (0, np.zeros(0, np.uint8)), (filters, heads, rest), marks, stamps
    )
    undecided = 1 << 31
    assert keys.tolist() == [0 | undecided, 1, 2 | undecided]  # of event 0; event 1 has a 6
    assert second == 1  # only the first warp goes on to heads
    assert (tiles, warps) == (1, 1)
    # 32 filters of 4 bytes fill 4 sectors, 8 more fill one; 3 heads lie in one; both events' codes in one sector, which
    # is read once for either event
    assert sectors.tolist() == [5, 1, 0, 2, 0]


def test_the_rest_is_read_behind_all_postings() -> None:
    filters, heads = fixed(np.zeros(4, np.uint32)), fixed(np.zeros(4, np.uint64))
    rest, shift = fixed(np.array([9, 11], np.int32)), fixed(np.zeros(2, np.uint8))
    marks = (*map(marks_of, (filters, heads, rest)), np.zeros(2, np.bool_), np.zeros(2, np.bool_))
    lists, stamps = (filters, heads, rest), (np.full(2, -1), np.full(2, -1))
    keys, second, tiles, warps, sectors = count_lists.test_postings(
        runs(2, start=4), np.zeros(2, np.int32), 2, shift, (0, np.zeros(0, np.uint8)), lists, marks, stamps
    )
    assert keys.tolist() == [9 | 1 << 31, 11 | 1 << 31]
    assert (second, tiles, warps, sectors.tolist()) == (0, 1, 1, [0, 0, 1, 0, 0])


def test_filters_in_lines_read_cells() -> None:
    """An event of two attributes and two lines, which has a cell in the second line only."""
    rows, cells = np.array([5, 7], np.int32), np.array([255, 9], np.uint8)
    nine, absent, five = 3 | 9 << 16, 2 | 9 << 16, 0 | 5 << 16
    filters = fixed(np.array([nine, absent, nine], np.uint32))
    heads = fixed(np.arange(3, dtype=np.uint64) | np.array([five, five, absent], np.uint64) << np.uint64(32))
    rest, shift = fixed(np.zeros(0, np.int32)), fixed(np.zeros(2, np.uint8))
    marks = tuple(map(marks_of, (filters, heads, rest, rows, cells)))
    stamps = (np.full(9, -1), np.full(9, -1))
    keys, second, tiles, warps, sectors = count_lists.test_postings(
        runs(3), rows, 2, shift, (2, cells), (filters, heads, rest), marks, stamps
    )
    assert keys.tolist() == [0 | 1 << 31]
    assert (second, tiles, warps) == (1, 1, 1)
    assert sectors.tolist() == [1, 1, 0, 1, 1]


@pytest.mark.long
def test_groups_are_found_by_owner_and_partner() -> None:
    """One line from attribute 0 to attribute 1; the owner's code 1 has the cuts 0, 3 and 5, others have none."""
    lines, group_ptr = fixed(np.array([0, 1, 0], np.int32)), fixed(np.array([0, 0, 3], np.int32))
    cuts = fixed(np.array([0, 3, 5], np.int32))
    rows = np.array([1, 4, 1, -1, -1, 4, 0, 4, 1, 9], np.int32)  # five events
    marks, steps = tuple(map(marks_of, (rows, group_ptr, cuts))), np.zeros(5, np.int32)
    items, cells = tuple(np.empty(5, np.int32) for _ in range(3)), np.empty(5, np.uint8)
    sectors = count_lists.find_groups(rows, 2, (lines, group_ptr, cuts), marks, steps, items, cells)
    assert items[0].tolist() == [0, 1, 2, 3, 4]
    assert items[1].tolist() == [3, -1, -1, -1, 3]  # behind two attributes
    assert items[2].tolist() == [1, 0, 0, 0, 2]
    assert cells.tolist() == [1, 255, 255, 255, 2]
    assert steps.tolist() == [2, 0, 0, 0, 2]
    # ten codes lie in two sectors, of owners and again of partners; three events look for a group, two at its cuts
    assert sectors.tolist() == [4, 3, 4]


@pytest.mark.long
def test_pairs_read_the_second_filter_and_the_clause_only_if_they_must() -> None:
    rows = np.array([5, 7], np.int32)
    five, seven, six = 0 | 5 << 16, 1 | 7 << 16, 0 | 6 << 16
    pairs = fixed(np.array([five, seven, 3, six, seven, 4, five, six, 5], np.uint32))
    marks = (marks_of(pairs), marks_of(rows))
    keys, second, tiles, warps, sectors = count_lists.test_pairs(
        runs(3), rows, 2, fixed(np.zeros(2, np.uint8)), pairs, marks, np.full(2, -1)
    )
    assert keys.tolist() == [3 | 1 << 31]
    assert (second, tiles, warps) == (1, 1, 1)
    assert sectors.tolist() == [1, 1]  # eight numbers of 4 bytes: the ninth, a clause, is not read


def clauses() -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Three clauses: a=1 b=1 c=1; a=2; none."""
    clause_ptr, program = fixed(np.array([0, 3, 4, 4])), fixed(np.full(3, -1, np.int32))
    predicate = fixed(np.array([[0, 0, 1, 1], [1, 0, 1, 1], [2, 0, 1, 1], [0, 0, 2, 2]], np.int32).ravel())
    ranges = fixed(np.zeros(1, np.int32))
    return clause_ptr, program, (predicate, ranges, ranges)


@pytest.mark.long
def test_clauses_are_tested_up_to_the_first_predicate_that_fails() -> None:
    clause_ptr, program, predicates = clauses()
    rows = np.array([1, 1, 3, 2, -1, -1], np.int32)  # two events
    entries = (np.array([0, 3, 4]), np.array([0, 1, 2, 0], np.int32), np.array([1, 1, 3, 2], np.int32))
    waiting, rest = fixed(np.array([0, 1], np.int32)), fixed(np.array([2], np.int32))
    list_marks = tuple(map(marks_of, (waiting, rest, program)))
    marks = tuple(map(marks_of, (clause_ptr, predicates[0], predicates[1], rows)))
    both = (np.array([0, 0, 2]), np.array([2, 2, 1]), np.array([0, 1, 1], np.int32))
    keys, tests, steps, tiles, warps, sectors = count_lists.test_waiting(
        both,
        entries,
        rows,
        3,
        clause_ptr,
        program,
        predicates,
        (waiting, rest),
        list_marks,
        marks,
        np.full(9, -1),
    )
    assert keys.tolist() == [1 << 32 | 1, 1 << 32 | 2]
    assert tests == 3 + 1 + 1 + 1  # event 0: a, b, c and then a; event 1: a and then a
    assert steps == 3  # of the one warp
    assert (tiles, warps) == (1, 1)
    assert sectors[:3].tolist() == [1, 1, 2]
    # pointers lie in one sector, asked for by five slots; 48 bytes of predicates are two sectors, 16 are one
    assert sectors[3:5].tolist() == [5, 2 + 1 + 1 + 1]


@pytest.mark.long
def test_verifying_decides_and_keeps_what_was_decided() -> None:
    clause_ptr, program, predicates = clauses()
    rows = np.array([1, 1, 1, 2, -1, -1], np.int32)
    entries = (np.array([0, 3, 4]), np.array([0, 1, 2, 0], np.int32), np.array([1, 1, 1, 2], np.int32))
    marks = tuple(map(marks_of, (clause_ptr, predicates[0], predicates[1], rows)))
    undecided = 1 << 31
    keys = np.array([undecided, undecided | 1, 2, 1 << 32 | undecided | 1])
    kept = np.empty(4, np.int64)
    n, asked, steps, tiles, warps, sectors = count.verify(
        keys, entries, rows, 3, clause_ptr, program, predicates, marks, marks_of(program), np.full(9, -1), kept
    )
    assert kept[:n].tolist() == [0, 2, 1 << 32 | 1]
    assert (asked, steps, tiles, warps) == (3, 3, 1, 1)
    assert sectors.tolist() == [3, 2 + 1 + 1, 0, 2, 2]  # no program is read of what fails


@pytest.mark.long
def test_hits_are_counted_in_a_table_of_each_event() -> None:
    postings = fixed(np.array([2 * 0, 2 * 1, 2 * 0 + 1, 2 * 2], np.uint32))
    needed, owner = fixed(np.array([2, 1, 2], np.uint8)), fixed(np.zeros(0, np.int32))
    places = np.zeros(8, np.uint32)
    marks = (*map(marks_of, (postings, needed, owner)), marks_of(places), marks_of(places))
    keys, atomics, steps, tiles, warps, sectors = count_lists.count_hits(
        runs(4), np.array([0, 4]), 10, 2, postings, needed, owner, marks
    )
    assert keys.tolist() == [11, 10 | 1 << 31]  # clause 1 with its only hit; clause 0 with a second one, in doubt
    assert (tiles, warps) == (1, 1)
    assert atomics >= 8  # a claim and an addition for every hit, more where places collide
    assert steps >= 2
    assert sectors[:3].tolist() == [1, 4, 0]


@pytest.mark.long
def test_triangles_compare_bounds_until_one_excludes() -> None:
    rows = np.array([5, 5], np.int32)
    bounds = np.array([[[0, 9], [6, 9]], [[6, 9], [0, 9]]], np.int32)  # dimension, clause, low and high
    bounds, dims, sub = map(fixed, (bounds.reshape(-1), np.array([0, 1], np.int32), np.array([0, 1], np.int32)))
    decided = fixed(np.array([True, False]))
    marks = (*map(marks_of, (sub, bounds, decided)), marks_of(rows))
    keys, steps, tiles, warps, sectors = count_lists.test_bounds(
        runs(2), 0, rows, 2, dims, sub, bounds, decided, marks, np.full(2, -1)
    )
    assert len(keys) == 0
    assert (steps, tiles, warps) == (2, 0, 0)
    assert sectors.tolist() == [1, 3, 0, 1]


@pytest.mark.long
def test_sifting_stops_a_warp_when_all_its_words_are_empty() -> None:
    words = 64
    bits = np.zeros((3, words), np.uint64)  # three cells of one tile
    bits[0, 0], bits[1, 0], bits[2] = 0b110, 0b011, ~np.uint64(0)
    places = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2]], np.uint64)
    out = np.empty((3, words), np.uint64)
    steps, _, reads = count_gem.sift(places, 3, 3, 2, fixed(bits), out)
    assert out[:, 0].tolist() == [0b010] * 3
    assert not out[:, 1:].any()
    # A warp has four words of all three events. In the first one, three cells leave a bit; in the others cell 0 or 1,
    # which come first, leave none.
    assert steps == 3 + 15
    assert reads == 3 * 4 + 3 + 3 + 15 * 12


@pytest.mark.long
def test_banks_of_shared_memory_conflict_where_cells_do() -> None:
    bits = np.ones((8, 64), np.uint64)
    apart = np.array([[0], [1], [2], [3]], np.uint64)  # 4 words each: 16 banks of 8 bytes
    same = np.array([[0], [0], [0], [0]], np.uint64)
    clash = np.array([[0], [4], [0], [4]], np.uint64)
    answers = [
        count_gem.sift(places, 1, 8, 2, bits, np.empty((4, 64), np.uint64))[1] for places in (apart, same, clash)
    ]
    assert answers == [16, 16, 32]  # 16 warps; the second half of each has no events


@pytest.mark.long
def test_bits_become_keys_and_warps_wait_for_the_fullest_word() -> None:
    words = np.zeros((1, 64), np.uint64)
    words[0, 0], words[0, 33] = 0b111, 0b1
    keys = np.empty(4, np.int64)
    n, blocks, warps, steps = count_gem.list_bits(
        words, np.zeros((0, 0), np.uint64), fixed(np.zeros(64, np.uint64)), keys
    )
    assert (n, blocks, warps, steps) == (4, 1, 2, 3 + 1)
    assert (keys & 0x7FFF_FFFF).tolist() == [0, 1, 2, 64 * 33]


@pytest.mark.long
def test_predicates_of_graphs_are_set_by_events_in_their_pieces() -> None:
    waiting, node = fixed(np.arange(40, dtype=np.int32)), fixed(np.arange(40, dtype=np.int32) // 2)
    low, high = fixed(np.arange(40, dtype=np.int32)), fixed(np.arange(40, dtype=np.int32) + 1)
    marks, value = tuple(map(marks_of, (waiting, low, high, node))), np.zeros(2 * 20, np.uint64)
    entries = np.array([3, 70], np.int32), np.array([9, 36], np.int32)  # events and codes
    hits, warps, sectors = count_atree.set_leaves(runs(35, 3), *entries, waiting, (node, low, high), 2, marks, value)
    # Code 9 lies in the pieces 8 and 9, both of node 4; code 36 in 35 and 36, of the nodes 17 and 18.
    assert {int(at): int(value[at]) for at in np.flatnonzero(value)} == {8: 1 << 3, 35: 1 << 6, 37: 1 << 6}
    assert (hits, warps) == (4, 2)
    # 32 pieces fill 4 sectors of the list and of first codes, the 6 of the other warp one; last codes are read of the
    # pieces 0 to 9, 35 and 36, and nodes of those that hold the code.
    assert sectors.tolist() == [5, 5, 2 + 1, 1 + 1]


@pytest.mark.long
def test_programs_read_until_an_and_is_empty() -> None:
    both, either = -1 - AND, -1 - OR
    programs = [[0], [both, 2, 0, 1], [both, 3, 2, 0, 1], [either, 5, 2, both, 2, 0, 1], [NEGATED - 1]]
    items = fixed(np.concatenate(programs).astype(np.int32))
    unit_ptr = fixed(np.cumsum([0, *map(len, programs)]))
    value = np.array([0b0110, 0b0011, 0], np.uint64)  # of three predicates; the second is known where the first is
    base = fixed(np.array([-1, 0, -1], np.int32))
    marks, out = tuple(map(marks_of, (items, base, value))), np.empty(5, np.uint64)
    weights = np.array([1, 100, 10_000])
    instructions, groups, sectors = count_atree.evaluate(0, 5, 1, unit_ptr, items, base, value, weights, marks, out)
    assert out.tolist() == [0b0110, 0b0010, 0, 0b0010, 0b0100]
    # One warp, which waits for the fourth unit: three words, and two groups.
    assert (instructions, groups) == (32 * 20_003, 2)
    # 19 items in 3 sectors. Words: 1, 2, 1 of the third unit, whose first is empty, 3, and 2 of the last.
    assert sectors.tolist() == [3, 1, 1 + 2 + 1 + 3 + 2]


@pytest.mark.long
def test_words_of_one_unit_are_read_together() -> None:
    unit_ptr, items = fixed(np.array([0, 4])), fixed(np.array([-1 - AND, 2, 0, 1], np.int32))
    value = np.ones(2 * 33, np.uint64)
    value[33] = 0
    base, out = fixed(np.full(2, -1, np.int32)), np.empty(33, np.uint64)
    marks = tuple(map(marks_of, (items, base, value)))
    weights = np.array([1, 0, 0])
    instructions, groups, sectors = count_atree.evaluate(0, 1, 33, unit_ptr, items, base, value, weights, marks, out)
    assert out.tolist() == [0] + [1] * 32
    assert (instructions, groups) == (32 * (2 + 2), 2)  # two warps, the second with one thread
    assert sectors.tolist() == [1, 0, 9 + 9]  # 33 words of 8 bytes each, from places 0 and 33 on
    keys = np.empty(32, np.int64)
    assert count_atree.list_clauses(out, 7, 33, keys) == (32, 1, 2, 1 + 1)
    assert keys.tolist() == [(64 * word) << 32 | 7 for word in range(1, 33)]


def test_warps_wait_for_their_slowest_thread() -> None:
    assert warp_steps(np.array([1] * 31 + [7] + [2])) == 32 * (7 + 2)
    assert warp_steps(np.zeros(0, np.int64)) == 0


def test_the_search_for_codes_is_counted() -> None:
    matcher = gm.Matcher({"x": "float64"}, index="scan", device="cpu")
    matcher.add({i: f"x > {i * i}" for i in range(50)})
    [segment] = matcher._seal().segments
    guide, cuts, buckets = segment.book.search()
    marks, steps = tuple(map(marks_of, (guide, cuts, buckets))), np.zeros(2, np.int32)
    values = np.array([-1.0, 1200.5])
    sectors = count.encode(np.zeros(2, np.int32), values, segment.attributes.single, guide, cuts, buckets, marks, steps)
    assert sectors[0] == 4  # 64 bytes of the guide, twice
    assert sectors[2] >= 2
    assert steps.max() <= math.ceil(math.log2(len(cuts) + 1))


@pytest.mark.long
def test_tiles_and_warps_that_keep_any() -> None:
    bounds, dims = fixed(np.array([[[0, 9]] * 600], np.int32).reshape(-1)), fixed(np.zeros(1, np.int32))
    bounds.flags.writeable = True
    bounds.reshape(-1, 2)[[0, 1, 40, 299], 0] = 6  # these four do not hold
    bounds.reshape(-1, 2)[320:, 0] = 6
    fixed(bounds)
    sub, decided, rows = fixed(np.arange(600, dtype=np.int32)), fixed(np.ones(600, np.bool_)), np.array([5], np.int32)
    marks = (*map(marks_of, (sub, bounds, decided)), marks_of(rows))
    keys, _, tiles, warps, _ = count_lists.test_bounds(
        runs(600), 0, rows, 1, dims, sub, bounds, decided, marks, np.full(2, -1)
    )
    assert (len(keys), tiles, warps) == (316, 2, 10)


@pytest.mark.long
def test_a_search_starts_at_the_runs_of_tiles() -> None:
    made = count_workload("w5", "scan", 800, 16)
    one = Runs(*runs(512))
    many = Runs(*runs(*[2] * 256))
    some = Sample(None, None, CodedEvents(np.zeros(2, np.int64), *(np.zeros(0, np.int32),) * 2), np.zeros(0), 1)
    work = SlotWork(0, 0, (), 0.0)
    alone, searched = (sample.testing(some, "k", it, 0, work) for it in (one, many))
    assert [cost.kernel for cost in alone] == ["runs of tiles", "k", "work.compact, sums"]
    # Two tiles of 256 threads. In one run there is nothing to search. The first tile searches its 128 runs and the one
    # that the next tile starts with, in 8 steps of 27 instructions; the second tile its 128 runs, in 7.
    assert searched[1].instructions - alone[1].instructions == 256 * ((8 + 7) * 27 + 2 * 9)
    assert alone[1].read == 20 + 2 * 8
    assert searched[1].read == 256 * 20 + 2 * 8
    assert any(cost.kernel == "runs of tiles" for cost in made.costs)


@pytest.mark.long
def test_only_bitsets_in_one_piece_need_no_sort() -> None:
    def kernels(index: str) -> list[str]:
        return [cost.kernel for cost in count_workload("w5", index, 800, 16).costs]

    assert "sorting" not in kernels("gem")
    assert {"sorting", "work.distinct"} <= set(kernels("pstbloom"))
    assert "sorting" in kernels("triangle")
    assert "sorting" in kernels("atree")


def test_graphs_take_as_many_events_as_there_are_words_for() -> None:
    assert sample.events_at_once(10, nodes=1 << 16) == 64 * 1024
    assert sample.events_at_once(10, nodes=1 << 21) == 64 * 32
    assert sample.events_at_once(10, nodes=1 << 30) == 64


def test_runs() -> None:
    made = Runs(*runs(3, 5, 2))
    assert made.slots == 10
    assert [made.events_within(most, 3) for most in (1, 3, 7, 8, 10)] == [1, 1, 1, 2, 3]
    more = made.with_rest(3, 100, 4)
    assert more.slots == 22
    assert more.start[-3:].tolist() == [100] * 3
    assert made.with_rest(3, 100, 0) is made


# What follows from counts


def test_memory_is_asked_for_what_l2_cannot_hold() -> None:
    cost = Cost("k", read=100.0, written=50.0)
    assert cost.memory_bytes(0, 1000) == 150
    assert cost.memory_bytes(100_000, 1000) == 50
    assert cost.memory_bytes(1 << 30, 1000) == 0
    assert cost.l2_bytes() == 150


def test_sectors_that_fit_into_l2_are_read_once_for_a_batch() -> None:
    shared = Touched("filters", sectors=1000.0, distinct=10.0, events=10, size=10.0)
    cost = Cost("k", touched=(shared,))
    assert cost.l2_bytes() == 32 * 100
    assert cost.memory_bytes(1 << 20, 100) == pytest.approx(32 * 10 / 100)
    assert cost.memory_bytes(160, 100) == pytest.approx(32 * (10 + (10_000 - 10) / 2) / 100)  # half of it fits
    own = Cost("k", touched=(Touched("rows", 1000.0, 10.0, 10),))
    assert own.memory_bytes(1 << 20, 100) == 32 * 1


def test_different_sectors_become_more_with_the_batch_but_not_more_than_there_are() -> None:
    spread = Touched("heads", sectors=100.0, distinct=100.0, events=10, size=1000.0)
    few, many = spread.in_batch(10), spread.in_batch(100_000)
    assert few[0] == 100
    assert 90 < few[1] <= 100
    assert many == (1_000_000, pytest.approx(1000))
    hot = Touched("heads", sectors=100.0, distinct=5.0, events=10, size=1000.0)
    assert hot.in_batch(100_000)[1] == pytest.approx(5, abs=0.1)
    assert Touched("none", 0.0, 0.0, 10, 1000.0).in_batch(100)[1] == 0


def test_bounds_rise_with_what_binds_and_with_nothing_else() -> None:
    counted = count_workload("w1-100k", "pstbloom", 2000, 32)
    gpu = GPUS["H100"]
    [plain] = counted.bounds([gpu])
    for faster in (
        replace(gpu, memory=2 * gpu.memory),
        replace(gpu, slices=2 * gpu.slices),
        replace(gpu, l2=2 * gpu.l2),
        replace(gpu, units=2 * gpu.units),
        replace(gpu, clock=2 * gpu.clock),
    ):
        [better] = counted.bounds([faster])
        assert better.events >= plain.events
        assert all(better.limits[name] >= plain.limits[name] * (1 - 1e-9) for name in LIMITS)
    assert counted.bounds([replace(gpu, clock=2 * gpu.clock)])[0].events > plain.events
    assert counted.bounds([replace(gpu, pcie=3)])[0].events == plain.events  # copies run beside kernels
    assert plain.events <= min(plain.limits[name] for name in (*LIMITS, "output"))
    assert sum(plain.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("cost", "binds"),
    [
        (Cost("k", read=1e9), "memory"),
        (Cost("k", pieces=1e9), "L2"),
        (Cost("k", shared=1e9), "shared memory"),
        (Cost("k", atomics=1e9), "atomics"),
        (Cost("k", instructions=1e9), "instructions"),
        (Cost("k", read=1e9, output=True), "output"),
    ],
)
def test_what_binds(cost: Cost, binds: str) -> None:
    found = bound([cost, Cost("small", read=1.0)], NO_TRANSFER, GPUS["A100"], 1000)
    assert (found.binds, found.kernel) == (binds, "k")
    assert found.events == pytest.approx(found.limits[binds], rel=1e-3)


def test_rates_of_a_gpu() -> None:
    a100 = GPUS["A100"]
    assert a100.l2_rate == 5120 * 1.41e9  # as published
    assert a100.shared_rate == 108 * 128 * 1.41e9
    assert GPUS["B200"].l2_rate == 64 * 148 * GPUS["B200"].clock  # no more than its units take
    transfer = bound([Cost("k", read=1.0)], Transfer(15.75, 3.0), GPUS["T4"], 1).limits["transfer"]
    assert transfer == pytest.approx(1e9)


def test_work_is_cut_as_on_the_device() -> None:
    pytest.importorskip("numba_cuda")
    from gpumatch.device import card, matching
    from gpumatch.index.gem import device
    from gpumatch.kernels.cuda import gem as kernels
    from gpumatch.kernels.cuda import tama

    assert (sample.BUDGET, sample.MOST_EVENTS) == (card._MOST_BYTES, matching._EVENTS)
    assert (gem.SHARE, gem.MOST_LOG, gem.STAGED) == (device._SHARE, device._LOG_WORDS, kernels.STAGED)
    assert (count_lists.LIST, count_lists.PREDICATE, count_lists.SPREAD) == (tama.LIST, tama.PREDICATE, tama.SPREAD)
    assert sample.events_at_once(10) == 1 << 16
    assert sample.events_at_once(30_000) == (1 << 29) // 120_000
    assert sample.ENOUGH == matching._ENOUGH
    assert sample.events_at_once(10, 15_680) == (1 << 29) // (8 * 15_680)  # all bitsets of an event at once
    assert sample.events_at_once(10, 156_800) == 1 << 16  # too few events: the bitsets come in pieces


def test_gpus_are_found_by_name_in_any_case() -> None:
    assert [gpu.name for gpu in gpus_named(["h100", "T4"])] == ["H100", "T4"]
    assert list(GPUS) == [gpu.name for gpu in gpus_named([])]
    with pytest.raises(gm.DeviceError, match=r"no figures for a GPU 'H10'; there are T4, A10, .*did you mean 'H100'"):
        gpus_named(["H10"])


def test_unknown_workloads_and_indexes() -> None:
    with pytest.raises(gm.SchemaError, match="no workload is called 'w9'; there are w1-100k, w1-1m"):
        count_workload("w9")
    with pytest.raises(gm.SchemaError, match=r"no index is called 'gme'; there are auto, .*did you mean 'gem'"):
        count_workload("w2", "gme")


# The command


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "roofline.json"
    args = ["w5", "--index", "gem", "scan", "--subscriptions", "800", "--events", "16", "--gpu", "h100", "t4"]
    assert cli.main(["roofline", *args, "--save", str(out)]) == 0
    text = capsys.readouterr().out
    assert "bound in events/s" in text
    assert "not measured" in text
    assert "Bounds, not measurements" in text
    assert "gem.sift" in text
    assert "postings.test_postings" in text
    saved = json.loads(out.read_text())
    assert list(saved["gpus"]) == ["H100", "T4"]
    assert [(it["workload"], it["index"]) for it in saved["results"]] == [("w5", "gem"), ("w5", "scan")]
    assert all(it["bound in events/s"] > 0 for result in saved["results"] for it in result["bounds"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["w9"], "no workload is called 'w9'"),
        (["w5", "--index", "hash"], "no index is called 'hash'"),
        (["w5", "--gpu", "V100"], "no figures for a GPU 'V100'"),
    ],
)
def test_command_with_unknown_names(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["roofline", *args]) == 2
    assert message in capsys.readouterr().err


def test_what_is_counted_again_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench")  # scripts import each other by bare names
    bounds = importlib.import_module("bounds")
    file = tmp_path / "roofline.json"
    for number, (workload, index) in enumerate(
        [("w5", "atree"), ("w2", "scan"), ("w5", "auto: gem"), ("abe", "atree"), ("w5", "auto: scan"), ("w2", "scan")]
    ):
        bounds.update(file, {"what": "bounds", "results": [{"workload": workload, "index": index, "n": number}]})
    kept = [(it["workload"], it["index"], it["n"]) for it in json.loads(file.read_text())["results"]]
    assert kept == [("w2", "scan", 5), ("w5", "auto: scan", 4), ("w5", "atree", 0), ("abe", "atree", 3)]


def test_a_million_subscriptions_on_an_h100() -> None:
    """What is kept of the published workload: over a million events per second are not excluded."""
    kept = json.loads((Path(__file__).parents[2] / "bench/results/roofline.json").read_text())
    found = {(it["workload"], it["index"]): it for it in kept["results"]}
    [h100] = [it for it in found["w1-1m", "auto: gem"]["bounds"] if it["gpu"] == "H100"]
    assert h100["bound in events/s"] > 1_000_000
    assert "bound" in kept["what"].lower()
