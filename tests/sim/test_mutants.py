"""A test of the tests: kernels with one deliberate fault each, which a few small cases here must notice.

A fault is noticed by a wrong result, or by what the strict device refuses: races, barriers that not all threads reach,
places outside of arrays, and kernels without end.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.device.card import Card
from gpumatch.kernels.cuda import atree, events, ladder, postings, psthash, tama, target, triangle, verify, work
from gpumatch.kernels.cuda import gem as bitsets
from tests.conformance.device_suite import (
    COLUMNS,
    CONDITIONS,
    EVENTS,
    SCHEMA,
    TEXTS,
    TYPES,
    filled,
    numbers,
    strings,
    there,
)
from tests.likelihood import equally_likely
from tests.sim import strict, test_atree
from tests.sim.rebinding import bound_anew

pytestmark = pytest.mark.long

MODULES = (atree, events, bitsets, ladder, postings, psthash, tama, triangle, verify, work)


class Mutant(NamedTuple):
    """A function with ``old``, which it has once, replaced by ``new``; ``case`` is the one that should notice."""

    module: ModuleType
    function: str
    old: str
    new: str
    case: str

    def __str__(self) -> str:
        module = self.module.__name__.rpartition(".")[2]
        return f"{module}.{self.function}: {' '.join(self.old.split())} -> {' '.join(self.new.split()) or 'nothing'}"


MUTANTS = (
    # how blocks share work
    Mutant(work, "add_run", "last - first\n", "last - first + 1\n", "tama"),
    Mutant(work, "find_run", "slot_ptr[mid] <= slot", "slot_ptr[mid] < slot", "scan"),
    Mutant(work, "find_run", "high = mid - 1", "high = mid", "scan"),
    Mutant(work, "own_run", "tile_run[tile + 1]", "tile_run[tile]", "scan"),
    Mutant(work, "before_me", "scan[x] = value\n    cuda.syncthreads()", "scan[x] = value", "gem"),
    Mutant(work, "before_me", "cuda.syncthreads()\n        scan[x] +=", "scan[x] +=", "gem"),
    Mutant(work, "before_me", "+= more\n        cuda.syncthreads()", "+= more", "gem"),
    Mutant(work, "before_me", "x >= step", "x > step", "dense"),
    Mutant(work, "before_me", "step < cuda.blockDim.x", "2 * step < cuda.blockDim.x", "full"),
    Mutant(work, "keep", "syncthreads_count(int32(key >= 0))", "syncthreads_count(int32(key > 0))", "first"),
    Mutant(work, "keep", "if total == 0:", "if key < 0:", "scan"),
    Mutant(work, "keep", "marks[x] = 0", "pass", "scan"),
    Mutant(work, "keep", "cuda.atomic.or_(marks, word, bit)", "marks[word] |= bit", "scan"),
    Mutant(work, "keep", "bit)\n    cuda.syncthreads()", "bit)", "scan"),
    Mutant(work, "keep", "cuda.syncthreads()  # before the marks", "# before the marks", "scan"),
    Mutant(work, "keep", "(bit - uint32(1))", "bit", "scan"),
    Mutant(work, "distinct", "i == 0 or", "", "scan"),
    Mutant(work, "distinct", "keys[i - 1] != keys[i]", "True", "scan"),
    Mutant(work, "keep", "+ place]", "+ place + 1]", "scan"),
    Mutant(work, "keep", "counts[tile] = total", "counts[tile] = total - 1", "scan"),
    Mutant(work, "compact", "out[first + cuda.threadIdx.x]", "out[first + cuda.threadIdx.x + 1]", "scan"),
    Mutant(work, "compact", "cuda.threadIdx.x < ends[tile]", "cuda.threadIdx.x <= ends[tile]", "scan"),
    Mutant(work, "compact", "ends[tile - 1]", "ends[tile - 1] - 1", "scan"),
    Mutant(work, "to_rows", "row >= 0", "row > 0", "scan"),
    Mutant(work, "to_rows", "i < keys.size", "i <= keys.size", "scan"),
    # events
    Mutant(events, "encode_floats", "value != value or", "", "scan"),
    Mutant(events, "encode_floats", "values.size, cuda.gridsize(1)", "values.size - 1, cuda.gridsize(1)", "scan"),
    Mutant(events, "encode_integers", "not valid[i]", "valid[i]", "types"),
    Mutant(events, "encode_keys", "int64(attribute[i])", "int64(0)", "strings"),
    Mutant(events, "key_of", "np.float32(value)", "value", "floats"),
    Mutant(events, "list_entries", "if codes[i] != MISSING:", "if True:", "scan"),
    Mutant(events, "list_entries", "list_ptr[list_base[c] + e + 1]", "list_ptr[list_base[c] + e]", "scan"),
    Mutant(events, "fill_entries", "ptr[e], entry_event", "ptr[e] + 1, entry_event", "scan"),
    Mutant(events, "count_presence", "i == ptr[e] or", "", "lists"),
    Mutant(events, "fill_presence", "presence[a]", "a", "lists"),
    Mutant(events, "spread", "elif i == entry_ptr[e] or entry_attribute[i - 1] != a:", "else:", "scan"),
    Mutant(events, "spread", "i == entry_ptr[e] or", "", "scan"),
    # postings
    Mutant(postings, "list_runs", "at + n if at >= 0 else at", "at", "pstbloom"),
    Mutant(postings, "fill_runs", "ends[i - 1]", "ends[i]", "pstbloom"),
    Mutant(postings, "passes", "code >= 0", "code > 0", "lowest"),
    Mutant(postings, "test_slots", "q >= filters.size", "q > filters.size", "scan"),
    Mutant(postings, "test_slots", "(decided ^ UNDECIDED)", "decided", "scan"),
    Mutant(postings, "test_slots", "slot < last", "slot <= last", "short"),
    # groups
    Mutant(postings, "list_runs", "if attribute < 0:", "if False:", "groups"),
    Mutant(postings, "find_groups", "width + group", "width + group + 1", "groups"),
    Mutant(postings, "find_groups", "i - e * count", "0", "groups"),
    Mutant(postings, "find_groups", "if group >= 0", "if group > 0", "first group"),
    Mutant(postings, "find_groups", "e * width", "width", "groups"),
    Mutant(postings, "find_groups", "item_event[i] = int32(e)", "item_event[i] = int32(0)", "groups"),
    Mutant(postings, "passes_in_line", "e * lines + line", "line", "groups"),
    Mutant(postings, "passes_in_line", "line >= 0", "line > 0", "groups"),
    # grids
    Mutant(psthash, "list_cells", "held < 0", "held <= 0", "psthash"),
    Mutant(psthash, "list_cells", "break\n            code = int64(entry_code[j])", "break", "psthash"),
    Mutant(psthash, "list_cells", "<< bits", "<< shift", "psthash"),
    Mutant(psthash, "fill_cells", "run_event[k] = e", "run_event[k] = 0", "psthash"),
    Mutant(psthash, "test_pairs", "passes(pairs[q + 1]", "passes(pairs[q]", "psthash"),
    # counting
    Mutant(tama, "list_nodes", "at + n if at >= 0 else at", "at", "tama"),
    Mutant(tama, "list_nodes", "cell >>= 4", "cell >>= 3", "tama"),
    Mutant(tama, "claim", "place = place + 1 if place + 1 < size else int64(0)", "place = place", "claims"),
    Mutant(tama, "claim", "place + 1 < size", "place < size", "claims"),
    Mutant(tama, "claim", "return place, False", "return place, True", "tama"),
    Mutant(tama, "count_hits", "== needed[clause]", "== needed[clause] - 1", "tama"),
    Mutant(tama, "count_hits", "if new:", "if True:", "tama"),
    Mutant(tama, "count_hits", "UNDECIDED if count >> uint32(8) else 0", "0", "coarse"),
    Mutant(tama, "count_hits", "cuda.atomic.add(hits, base + place, hit)", "hits[base + place]", "tama"),
    # the ladder
    Mutant(ladder, "test_waiting", "if steps == length:", "if steps >= length - 1:", "ladder"),
    Mutant(
        ladder, "test_waiting", "cuda.atomic.add(total, 0, tested)\n    cuda.syncthreads()", "total[0] = 1", "ladder"
    ),
    Mutant(ladder, "test_waiting", "rest[q - waiting.size]", "rest[q - waiting.size - 1]", "ladder"),
    # bitsets
    Mutant(bitsets, "stage", "cells << log, cuda", "(cells << log) - 1, cuda", "words"),
    Mutant(bitsets, "and_cells", "first < last", "first + uint64(1) < last", "dense"),
    Mutant(bitsets, "sift", "cuda.syncthreads()\n        start", "start", "gem"),
    Mutant(bitsets, "sift", "cuda.syncthreads()  # the words", "# the words", "gem"),
    Mutant(bitsets, "sift", "min(share, events - start)", "share", "gem"),
    Mutant(bitsets, "sift", "(first_tile + tile) * cells", "tile * cells", "tiles"),
    Mutant(bitsets, "count_bits", "total[0] = 0", "pass", "gem"),
    Mutant(bitsets, "count_bits", "            cuda.syncthreads()\n", "", "gem"),
    Mutant(bitsets, "list_bits", "0 if (sure >> bit) & U1 else UNDECIDED", "0", "gem"),
    Mutant(bitsets, "list_bits", "& ~loose[own]", "", "gem"),
    Mutant(bitsets, "list_bits", "first_word + i % event_words", "i % event_words", "tiles"),
    Mutant(bitsets, "check_bounds", "within != TOPS", "inside != TOPS", "lanes"),
    Mutant(bitsets, "check_bounds", "inside == TOPS and not", "not", "lanes"),
    Mutant(bitsets, "check_bounds", "inside == TOPS and", "inside == TOPS or", "gem"),
    # triangles
    Mutant(triangle, "list_cells", "row + v + 1", "row + v", "triangle"),
    Mutant(triangle, "list_cells", "range(v, cells + 1)", "range(v, cells)", "triangle"),
    Mutant(triangle, "fill_rows", "ends[e - 1]", "ends[e - 1] - 1", "triangle"),
    Mutant(triangle, "test_bounds", "while d < dims.size and within", "while d < dims.size or within", "triangle"),
    Mutant(triangle, "test_bounds", "d * decided.size + clause", "clause", "triangle"),
    Mutant(triangle, "test_bounds", "0 if decided[clause] else UNDECIDED", "0", "triangle"),
    # graphs
    Mutant(atree, "set_leaves", "tile_run.size - 1", "tile_run.size - 2", "graph"),
    Mutant(atree, "set_leaves", "slot < last", "slot <= last", "leaves"),
    Mutant(atree, "set_leaves", "piece_lo[piece] <=", "piece_lo[piece] <", "atree"),
    Mutant(atree, "set_leaves", "<= piece_hi[piece]", "< piece_hi[piece]", "atree"),
    Mutant(
        atree,
        "set_leaves",
        "cuda.atomic.or_(value, place, U1 << (e & U63))",
        "value[place] |= U1 << (e & U63)",
        "graph",
    ),
    Mutant(atree, "set_leaves", "int64(piece_node[piece]) * words", "int64(piece_node[piece])", "graph"),
    Mutant(atree, "set_leaves", "int64(e >> U6)", "0", "graph"),
    Mutant(atree, "set_leaves", "entry_event[entry]", "entry_event[run]", "atree"),
    Mutant(atree, "set_leaves", "(e & U63)", "(e & (U63 >> U1))", "graph"),
    Mutant(atree, "member", "uint64(uint32(item)) * words + w", "uint64(uint32(item)) * words", "graph"),
    Mutant(atree, "member", "known &= ~value[number * words + w]", "pass", "atree"),
    Mutant(atree, "member", "~value", "value", "atree"),
    Mutant(atree, "member", "known != U0", "known == U0", "atree"),
    Mutant(atree, "member", "uint64(uint32(base[number]))", "number", "atree"),
    Mutant(atree, "evaluate", "if i < end:", "if i <= end:", "atree"),
    Mutant(atree, "evaluate", "either, i, end = U0, True", "either, i, end = U0, False", "atree"),
    Mutant(atree, "evaluate", "item == GROUP_OR", "item != GROUP_OR", "atree"),
    Mutant(atree, "evaluate", "U0 if either else ~U0", "U0", "atree"),
    Mutant(atree, "evaluate", "U0 if either else ~U0", "~U0", "atree"),
    Mutant(atree, "evaluate", "(1 if either else 0)", "0", "graph"),
    Mutant(atree, "evaluate", "uint32(top + ALL)", "uint32(top + ONE)", "graph"),
    Mutant(atree, "evaluate", "uint32(top + ALL)", "uint32(top + ALL - ONE)", "graph"),
    Mutant(atree, "evaluate", "top < ALL", "top < 3 * ALL", "graph"),
    Mutant(atree, "evaluate", "uint32(items[first + uint32(i + ONE)])", "uint32(items[first + i] + 8)", "graph"),
    Mutant(atree, "evaluate", "i = uint32(i + TWO)", "i = uint32(i + ONE)", "graph"),
    Mutant(atree, "evaluate", "uint32(ends[top] >> ONE)", "ends[top]", "graph"),
    Mutant(atree, "evaluate", "found = word\n", "found = held[top]\n", "graph"),
    Mutant(atree, "evaluate", "word |= found", "word ^= found", "graph"),
    Mutant(atree, "evaluate", "word &= found", "word |= found", "atree"),
    Mutant(atree, "evaluate", "i = end", "i = uint32(end + ONE)", "graph"),
    Mutant(atree, "evaluate", "if word == U0:", "if word != U0:", "atree"),
    Mutant(atree, "evaluate_nodes", "(last - first) * words", "(last - first) * words - 1", "graph"),
    Mutant(atree, "evaluate_nodes", "uint64(first) + uint64(i)", "uint64(i)", "graph"),
    Mutant(atree, "evaluate_nodes", "(uint64(leaves) + unit)", "unit", "graph"),
    Mutant(atree, "evaluate_nodes", "unit_ptr[unit + U1]", "unit_ptr[unit]", "graph"),
    Mutant(atree, "evaluate_nodes", "uint32(uint64(i) % n)", "uint32(0)", "graph"),
    Mutant(atree, "evaluate_clauses", "i < (last - first) * words", "i <= (last - first) * words", "graph"),
    Mutant(atree, "evaluate_clauses", "i < (last - first) * words", "i + 1 < (last - first) * words", "graph"),
    Mutant(atree, "evaluate_clauses", "uint64(i) // n\n", "uint64(i)\n", "graph"),
    Mutant(atree, "evaluate_clauses", "total[0] = 0", "pass", "atree"),
    Mutant(atree, "evaluate_clauses", "cuda.syncthreads_or(int32(word != U0))", "word != U0", "graph"),
    Mutant(atree, "evaluate_clauses", "            cuda.syncthreads()\n", "", "atree"),
    Mutant(atree, "evaluate_clauses", "i < out.size", "word != U0", "graph"),
    Mutant(atree, "evaluate_clauses", "i < out.size", "i <= out.size", "graph"),
    Mutant(
        atree,
        "evaluate_clauses",
        "cuda.atomic.add(total, 0, int32(cuda.popc(word)))",
        "total[0] += int32(cuda.popc(word))",
        "atree",
    ),
    Mutant(atree, "list_clauses", "ends[tile - 1]", "ends[tile - 1] - 1", "graph"),
    Mutant(atree, "list_clauses", "if ends[tile] == start:", "if False:", "sparse"),
    Mutant(atree, "list_clauses", "i < out.size", "i <= out.size", "graph"),
    Mutant(atree, "list_clauses", "first_clause + i // words", "i // words", "pieces"),
    Mutant(atree, "list_clauses", "64 * (i % words)", "63 * (i % words)", "graph"),
    Mutant(atree, "list_clauses", "word &= word - U1", "word = U0", "atree"),
    Mutant(atree, "list_clauses", "at += 1", "pass", "atree"),
    # the last word
    Mutant(verify, "test_predicates", "if key & UNDECIDED:", "if False:", "scan"),
    Mutant(verify, "test_predicates", "clause_program[clause] < 0", "clause_program[clause] <= 0", "programs"),
    Mutant(verify, "test_predicates", "entry_ptr[e + 1]", "entry_ptr[e]", "scan"),
    Mutant(verify, "run_programs", "int64(cuda.grid(1)) * depth", "int64(cuda.threadIdx.x) * depth", "programs"),
    Mutant(verify, "run_programs", "int64(cuda.grid(1)) * depth", "0", "programs"),
    Mutant(verify, "run_programs", "if holds", "if not holds", "programs"),
)


# Cases


def compare(right: gm.Matcher, batch: Any = EVENTS) -> None:
    assert there(right).match(batch) == right.match(batch)


def first_key_of_all() -> None:
    """One event, and the numbers of threads of a block and of a grid of clauses, all decided: the first key is 0."""
    for count in (8, 24):
        right = gm.Matcher({"x": "int64"}, index="pstbloom", device="cpu")
        right.add({at: f"x = {at // 30}" for at in range(count)})
        compare(right, [{"x": 0}])


def types() -> None:
    import pyarrow as pa

    right = gm.Matcher(TYPES, index="scan", device="cpu")
    right.add(dict(zip(CONDITIONS, CONDITIONS, strict=True)))
    compare(right, pa.table(COLUMNS))


def sparse_floats() -> None:
    right = gm.Matcher({"f": "float32", "x": "float64"}, index="scan", device="cpu")
    right.add({0: "f = 0.1", 1: "f <> 0.1", 2: "x = 0.1"})
    compare(right, gm.EventBatch.from_csr([0, 2, 3], [0, 1, 0], [0.1, 0.1, 0.5], ["f", "x"]))


def lists_alone() -> None:
    """Events that have nothing but values of one list, which the next event has, too."""
    right = gm.Matcher({"n": "list<int64>", "x": "int64"}, index="scan", device="cpu")
    right.add({0: "NOT (n > 4)", 1: "n IS NOT NULL", 2: "n = 5", 3: "n IS NULL", 4: "NOT (n = 5) AND n < 9"})
    compare(right, gm.EventBatch.from_csr([0, 1, 2, 4, 4, 6], [0] * 6, np.array([3, 3, 5, 5, 3, 7]), ["n", "x"]))


def lowest_codes() -> None:
    """Values below all constants satisfy what filters test."""
    right = gm.Matcher(dict.fromkeys("xyz", "int64"), index="pstbloom", device="cpu")
    right.add({at: f"x = {at % 5} AND y < {at % 7} AND z < {at % 3}" for at in range(40)})
    compare(right, [{"x": at, "y": -9, "z": -9} for at in range(5)] + [{"x": 1, "y": 2, "z": 1}, {"x": 1, "z": 0}])


def groups(owner: str = "o") -> None:
    """Two lines from one owner, of which events have some; ranges hang in one and are filters of the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpumatch.index.postings.compound._SHARED", 1)
        patch.setattr("gpumatch.index.postings.compound._CODES", 1000)
        right = gm.Matcher(dict.fromkeys("fopq", "int64"), index="pstbloom", device="cpu")
        equally_likely(patch)
        least = -(2**63)  # its code is 0
        first = f"f = {least}" if owner == "f" else f"{owner} = 1"
        right.add({at: f"{first} AND p BETWEEN {at} AND {at + 3} AND q < {at % 7}" for at in range(30)})
        right.add({100 + at: f"o = 3 AND q BETWEEN {at} AND {at + 1} AND p > {5 * at}" for at in range(8)})
        assert len(right._seal().segments[0].parts[0].index.arrays["lines"]) >= 6
    batch: list[dict[str, Any]] = [
        {"o": 1 + at % 3, "f": 5 if at % 2 else least, "p": 4 * at, "q": at % 5} for at in range(8)
    ]
    compare(right, [{"p": 3}, *batch, {"o": 1}, {"o": 1, "q": 2}, {"f": least, "p": 9, "q": 1}, {}])


def plain_strings() -> None:
    """Without patterns to search for, which the host encodes."""
    right = gm.Matcher(SCHEMA, index="scan", device="cpu")
    right.add({at: text for at, text in enumerate(TEXTS) if "LIKE '%" not in text and "LIKE '_" not in text})
    compare(right, strings())


def short_runs() -> None:
    """Of one to three postings; one event's end just before a block does, those of the last within a block."""
    names = [f"a{at}" for at in range(14)]
    right = gm.Matcher(dict.fromkeys(names, "int64"), index="scan", device="cpu")
    right.add({3 * at + more: f"a{at} > {more}" for at in range(14) for more in range(at % 3 + 1)})
    compare(right, [dict.fromkeys(names[:4], 9), dict.fromkeys(names, 1)])


def pairs() -> None:
    """Grids of numbers and of lists; values below all constants satisfy some."""
    right = gm.Matcher({**dict.fromkeys("cdef", "int64"), "l": "list<int64>"}, index="psthash", device="cpu")
    texts = {}
    for at in range(60):
        texts[at] = f"{'cdef'[at % 4]} <= {at % 5} AND l <= {at % 7}"
        texts[200 + at] = f"c <= {at % 5} AND d <= {at % 7}"
        texts[100 + at] = f"c = {at % 3} AND d = {at % 4} AND e <= {at % 2} AND f <= {at % 2}"
    right.add(texts)
    assert len(right._seal().segments[0].parts[0].index.arrays["pairs"])
    batch: list[dict[str, Any]] = [
        {"c": 0, "d": 0, "e": 0, "f": 1, "l": [9, 3, 0]},
        {"c": 0, "d": 0, "e": 1, "f": 0, "l": [-99]},
        {"c": -99, "d": -99},
        {"d": -20, "l": [9, 9, 2]},
    ]
    compare(right, batch)


def claim_all(number: Any, out: Any, new: Any, table: Any) -> None:
    for i in range(number.size):
        out[i], new[i] = tama.claim(number[i], 2, 5, table)


def claims() -> None:
    """A table of five places behind two others, claimed whole, and again."""
    card = Card(0)
    number = np.array([3, 1, 4, 2, 9, 9, 2, 4, 1, 3])
    made = [card.xp.asarray(number), *(card.xp.zeros(len(number), dtype=np.int64) for _ in range(2))]
    table = card.xp.zeros(7, dtype=np.uint32)
    card.launch(target.Kernel("claims", claim_all, "void(i8[::1], i8[::1], i8[::1], u4[::1])", 1), 1, *made, table)
    places, new, held = (card.download(array).tolist() for array in (*made[1:], table))
    assert new == [1] * 5 + [0] * 5
    assert places[:5] == places[:4:-1]
    assert held == [0, 0, *(number[places.index(place)] for place in range(5))]


def long_lists() -> None:
    """So many hits that counters collide and the table's end is reached."""
    right = gm.Matcher({"t": "list<int64>", "x": "int64", "y": "int64"}, index="tama", device="cpu")
    right.add({at: f"t > {at} AND x < {50 - at} AND y > {at % 3}" for at in range(50)})
    compare(right, [{"t": [3, 40, 60, 60], "x": 5, "y": 2}, {"t": [7] * 4, "x": 1, "y": 1}, {"x": 3, "y": 9}])


def several_tiles() -> None:
    """Groups of one tile, of which the second has the matches; some clauses leave a dimension open that events lack."""
    count = 4200
    low = np.arange(count, dtype=np.float64) // 3
    side = np.where(np.arange(count) % 2, low, np.nan)
    right = gm.Matcher({"x": "float64", "y": "float64"}, index="gem", device="cpu")
    right.add_ranges(np.arange(count), {"x": (low, low + 1), "y": (side, None)})
    right.add({count: "x > 1300 AND y > 1300 AND x <> 1399.5"})
    mine = there(right)
    batch = {"x": np.array([1399.5, 3.0, 80.0]), "y": np.array([1399.5, 3.0, np.nan])}
    assert mine.match(batch) == right.match(batch)
    mine._engine._card.budget = 1
    assert mine.match(batch) == right.match(batch)


def where_many_match() -> None:
    """Cells that clauses cover decide."""
    right = gm.Matcher(dict.fromkeys("xyz", "int64"), index="gem", device="cpu")
    right.add({at: f"x > {at % 5} AND y < {20 - at % 4} AND z BETWEEN {at % 3} AND {9 + at % 6}" for at in range(70)})
    assert len(right._seal().segments[0].parts[0].index.arrays["cover"])
    compare(right, [{"x": x, "y": 20 - x, "z": 2 * x} for x in range(5)] + [{"x": 4, "y": 17, "z": 1}])


def all_words() -> None:
    """Matches in every word of a tile up to the tenth, also for events that lack what most leave open."""
    low = np.arange(600, dtype=np.float64) // 3
    right = gm.Matcher({"x": "float64", "y": "float64"}, index="gem", device="cpu")
    right.add_ranges(np.arange(600), {"x": (low, low + 1), "y": (np.where(low % 2, low, np.nan), None)})
    compare(right, {"x": np.arange(2, 200, 21.0), "y": np.where(np.arange(10) % 2, np.nan, 500)})


def full_blocks() -> None:
    """Every word of a block of threads has matches."""
    right = gm.Matcher({"x": "int64"}, index="gem", device="cpu")
    right.add({at: f"x > {at % 3}" for at in range(600)})
    compare(right, [{"x": 2}, {"x": 7}])


def shared_lanes() -> None:
    """More codes than lanes: an event in the lane of a bound may lie on either side of it."""
    count = 20_000
    low = np.arange(count, dtype=np.float64)
    right = gm.Matcher({"x": "float64"}, index="gem", device="cpu")
    right.add_ranges(np.arange(count), {"x": (low, low + 0.5)})
    compare(right, {"x": np.array([5.0, 5.25, 5.5, 5.75, 6.0])})


def programs() -> None:
    names = [f"a{at}" for at in range(14)]
    right = gm.Matcher(dict.fromkeys(names, "int64"), index="scan", device="cpu")
    xor = " XOR ".join(f"{name} > 5" for name in names)
    right.add({at: f"a0 < {at} AND ({xor})" if at % 2 else f"NOT ({xor}) OR a1 = {at} AND ({xor})" for at in range(30)})
    assert right.stats()["programs"] > 0
    rng = np.random.default_rng(0)
    compare(right, [{name: int(rng.integers(0, 10)) for name in names} for _ in range(3)])


def graph() -> None:
    """Two words of events, and several levels; neither words nor postings end where blocks do."""
    right, batch = test_atree.of(test_atree.TEXTS), test_atree.some_events(70)
    assert test_atree.levels(right) > 2
    compare(right, batch)


def short_leaves() -> None:
    """The last posting that is looked at lies before another of the same predicate's piece."""
    for more in range(8):
        right = gm.Matcher(dict.fromkeys("xy", "int64"), index="atree", device="cpu")
        right.add({at: f"x > {at % 3}" if at % 2 else f"y > {at % 4}" for at in range(2 * more + 4)})
        compare(right, [{"x": at % 5} for at in range(more + 1)])


def few_matches() -> None:
    """Most blocks of words have no bit."""
    right = gm.Matcher({"x": "int64"}, index="atree", device="cpu")
    right.add({at: f"x = {at} OR x = {at + 100}" for at in range(60)})
    compare(right, [{"x": 7}, {"x": 130}, {"x": 500}])


def clauses_in_pieces() -> None:
    right, batch = test_atree.of(test_atree.TEXTS), test_atree.some_events(5)
    mine = there(right)
    mine._engine._card.budget = 8 * 5
    assert mine.match(batch) == right.match(batch)


CASES = {
    "scan": lambda: compare(filled("scan")),
    "first": first_key_of_all,
    "pstbloom": lambda: compare(filled("pstbloom", copies=3)),
    "types": types,
    "numbers": lambda: compare(filled("scan"), numbers("int64")),
    "strings": plain_strings,
    "floats": sparse_floats,
    "lists": lists_alone,
    "lowest": lowest_codes,
    "groups": groups,
    "first group": lambda: groups("f"),
    "psthash": pairs,
    "claims": claims,
    "short": short_runs,
    "tama": long_lists,
    "coarse": lambda: compare(filled(gm.Tama(levels=0))),
    "ladder": lambda: compare(filled("ladder")),
    "gem": lambda: compare(filled("gem", copies=2)),
    "cells": lambda: compare(filled(gm.Gem(cells=3))),
    "dense": where_many_match,
    "words": all_words,
    "full": full_blocks,
    "tiles": several_tiles,
    "lanes": shared_lanes,
    "triangle": lambda: compare(filled(gm.Gem(cells=7, caches=2))),
    "programs": programs,
    "atree": lambda: compare(filled("atree")),
    "graph": graph,
    "leaves": short_leaves,
    "sparse": few_matches,
    "pieces": clauses_in_pieces,
}


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The fault is in place, wherever the function is known by its name."""
    original = getattr(mutant.module, mutant.function)
    plain = original.function if isinstance(original, target.Kernel) else original
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(mutant.old) == 1, f"{mutant.function} has {mutant.old!r} {source.count(mutant.old)} times"
    with pytest.MonkeyPatch.context() as patch, bound_anew():
        patch.setattr(strict, "STEPS", 300_000)
        if isinstance(original, target.Kernel):
            patch.setitem(target.KERNELS, original.name, original)  # the new one takes its place for now
        names = dict(vars(mutant.module))
        exec(compile(source.replace(mutant.old, mutant.new), str(mutant), "exec"), names)
        for module in MODULES:
            for name, held in list(vars(module).items()):
                if held is original:
                    patch.setattr(module, name, names[mutant.function])
        yield


@pytest.mark.parametrize("case", CASES)
def test_without_a_fault(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "STEPS", 300_000)
    CASES[case]()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_fault_is_noticed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(Exception) as caught:  # noqa: PT011
        CASES[mutant.case]()
    assert not isinstance(caught.value, (NameError, SyntaxError, TypeError, pytest.fail.Exception))


def test_kernels_are_whole_again() -> None:
    for mutant in MUTANTS:
        held = getattr(mutant.module, mutant.function)
        plain = held.function if isinstance(held, target.Kernel) else held
        assert inspect.getsourcefile(plain) == inspect.getsourcefile(mutant.module)
        assert not isinstance(held, target.Kernel) or target.KERNELS[held.name] is held
