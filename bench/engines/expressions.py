"""Baselines for arbitrary Boolean expressions, without an index: the engines that A-Tree must beat."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.base import Csr, Engine, Events, PerEvent, Rows, count, joined, shared_out
from generators.programs import (
    AND,
    NOT,
    OR,
    PREDICATE,
    XOR,
    BooleanWorkload,
    Links,
    PredicateTable,
    Programs,
    compiled,
    cuts,
    links,
)
from gpumatch.arrays import pointers

TRUE, FALSE = 1, 2  # which results of a node its parents need
Words = NDArray[np.uint64]


def needs(programs: Programs, found: Links) -> NDArray[np.int8]:
    """For each item the needed results: for a root whether it is true, below NOT whether it is false."""
    need = np.empty(len(programs.kind), np.int8)
    compiled(_need)(programs.kind, found.parent, need)
    return need


def _need(kind: Any, parent: Any, need: Any) -> None:
    for i in range(len(kind) - 1, -1, -1):
        p = parent[i]
        if p < 0:
            need[i] = TRUE
        elif kind[p] == AND or kind[p] == OR:
            need[i] = need[p]
        elif kind[p] == NOT:
            need[i] = (need[p] & TRUE) * FALSE | (need[p] & FALSE) // FALSE
        else:
            need[i] = TRUE | FALSE


class Group(NamedTuple):
    """Nodes with the same slab, height, operator, number of operands and need: rows of operands, and their own."""

    kind: int
    need: int
    operands: NDArray[np.int32]  # (operands, nodes)
    rows: slice


class Slab(NamedTuple):
    """Expressions that are evaluated together; the next slab reuses the rows after those of the predicates."""

    start: int
    roots: NDArray[np.int32]
    groups: list[Group]


class BitPlanes(Engine):
    """Every expression over the whole batch, with two bits per node and event: is it true, and is it false?

    There is a row of words for each distinct predicate, then for each node of a slab of expressions, from the lowest
    to the roots. All nodes with the same operator and number of operands are one operation. Slabs are small enough to
    stay in cache. Results that are not needed (nearly always whether a node is false) are not computed.
    """

    nodes = 8192  # per slab

    def build(self, workload: BooleanWorkload) -> None:
        self.table = workload.predicates
        found = links(workload.programs)
        self.slabs = list(self._slabs(workload.programs, found, needs(workload.programs, found)))
        groups = [group for slab in self.slabs for group in slab.groups]
        self.rows = max((group.rows.stop for group in groups), default=len(self.table))
        self.widest = max((group.operands.shape[1] for group in groups), default=0)

    def _slabs(self, programs: Programs, found: Links, need: NDArray[np.int8]) -> Iterator[Slab]:
        """Nodes sorted by group; a node's row is its rank in its slab."""
        inner = programs.kind != PREDICATE
        for first, last in pairwise(cuts(pointers(inner)[programs.offsets], self.nodes)):
            low, high = programs.offsets[[first, last]].tolist()
            kind, operand, size = programs.kind[low:high], programs.operand[low:high], found.size[low:high]
            nodes = np.flatnonzero(kind != PREDICATE)
            of_group = (found.height[low:high][nodes].astype(np.int64) << 34) | (operand[nodes].astype(np.int64) << 6)
            of_group |= kind[nodes].astype(np.int64) << 2 | need[low:high][nodes]
            order = np.argsort(of_group, kind="stable")
            nodes, of_group = nodes[order], of_group[order]
            row = operand.copy()  # for predicates, their number
            row[nodes] = len(self.table) + np.arange(len(nodes), dtype=np.int32)
            ends = [*np.flatnonzero(np.diff(of_group, prepend=-1)).tolist(), len(nodes)]
            groups = [self._group(kind, need[low:high], operand, size, row, nodes[a:b]) for a, b in pairwise(ends)]
            yield Slab(first, row[programs.offsets[first + 1 : last + 1] - 1 - low].copy(), groups)

    @staticmethod
    def _group(kind: Any, need: Any, operand: Any, size: Any, row: Any, nodes: Any) -> Group:
        child, operands = nodes - 1, []
        for _ in range(operand[nodes[0]]):
            operands.append(row[child])
            child = child - size[child]
        first = int(row[nodes[0]])
        return Group(int(kind[nodes[0]]), int(need[nodes[0]]), np.stack(operands), slice(first, first + len(nodes)))

    def match(self, events: Events) -> Csr:
        return joined(shared_out(self._match, events, self.threads))

    def _match(self, events: Events) -> Csr:
        n = count(events)
        true, false = np.empty((2, self.rows, -(-n // 64)), np.uint64)
        spare = np.empty((3, self.widest, true.shape[1]), np.uint64)
        predicate_planes(self.table, events, true, false)
        found: list[tuple[Rows, Rows]] = []
        for slab in self.slabs:
            for group in slab.groups:
                _evaluate(group, true, false, spare)
            found.append(_pairs(true.take(slab.roots, axis=0), slab.start))
        rows, event = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(
            event.astype(np.uint16 if n <= 1 << 16 else np.int64), kind="stable"
        )  # with 16 bits: radix sort
        return pointers(np.bincount(event, minlength=n)), rows[order]

    def bytes(self) -> int | None:
        held: list[NDArray[Any]] = [*self.table, *(slab.roots for slab in self.slabs)]
        held += [group.operands for slab in self.slabs for group in slab.groups]
        return sum(array.nbytes for array in held)


def predicate_planes(table: PredicateTable, events: Any, true: Words, false: Words) -> None:
    """The first rows of both planes: each distinct predicate against the events that have its attribute."""
    ptr = np.searchsorted(table.attribute, np.arange(len(events.names) + 1)).tolist()
    owner = np.repeat(np.arange(count(events)), np.diff(events.offsets))
    order = np.argsort(events.attribute, kind="stable")
    owner, value = owner[order], events.value[order]
    ends = np.searchsorted(events.attribute[order], np.arange(len(events.names) + 1)).tolist()
    bits = np.zeros((max(np.diff(ptr)), 64 * true.shape[1]), np.bool_)
    for a, b, first, last in zip(ptr[:-1], ptr[1:], ends[:-1], ends[1:], strict=True):
        if first == last or a == b:
            true[a:b] = false[a:b] = 0
            continue
        here, v = owner[first:last], value[first:last]
        part = bits[: b - a]
        part[:, here] = (table.lo[a:b, None] <= v) & (v <= table.hi[a:b, None])
        true[a:b] = np.packbits(part, axis=1, bitorder="little").view(np.uint64)
        part[:, here] = False
        known = np.zeros(part.shape[1], np.bool_)
        known[here] = True
        np.bitwise_and(~true[a:b], np.packbits(known, bitorder="little").view(np.uint64), out=false[a:b])


def _evaluate(group: Group, true: Words, false: Words, spare: Words) -> None:
    """The needed planes, in three-valued logic."""
    kind, need, operands, rows = group
    if kind == NOT:
        for wanted, plane, other in ((TRUE, true, false), (FALSE, false, true)):
            if need & wanted:
                other.take(operands[0], axis=0, out=plane[rows], mode="clip")
    elif kind in (AND, OR):
        one = spare[0, : operands.shape[1]]
        for wanted, plane in ((TRUE, true), (FALSE, false)):
            if need & wanted:
                join = np.bitwise_and if (kind == AND) == (wanted == TRUE) else np.bitwise_or
                out = plane[rows]
                plane.take(operands[0], axis=0, out=out, mode="clip")
                for child in operands[1:]:
                    plane.take(child, axis=0, out=one, mode="clip")
                    join(out, one, out=out)
    else:
        _exclusive(group, true, false, spare)


def _exclusive(group: Group, true: Words, false: Words, spare: Words) -> None:
    """XOR is a sum of bits if all operands are known, XNOR its opposite."""
    kind, need, operands, rows = group
    odd, known, one = spare[:, : operands.shape[1]]
    for i, child in enumerate(operands):
        true.take(child, axis=0, out=one, mode="clip")
        if i == 0:
            odd[:] = one
        else:
            odd ^= one
        is_known = one | false.take(child, axis=0, mode="clip")
        if i == 0:
            known[:] = is_known
        else:
            known &= is_known
    planes = (true, false) if kind == XOR else (false, true)
    if need & (TRUE if kind == XOR else FALSE):
        np.bitwise_and(odd, known, out=planes[0][rows])
    if need & (FALSE if kind == XOR else TRUE):
        np.bitwise_and(~odd, known, out=planes[1][rows])


def _pairs(true: Words, start: int) -> tuple[Rows, Rows]:
    """The positions of the bits: expressions, ascending, and events."""
    flat = true.reshape(-1).view(np.uint8)
    at = np.flatnonzero(flat)
    bit = np.flatnonzero(np.unpackbits(flat[at], bitorder="little").view(np.bool_))
    row, byte = np.divmod(at[bit >> 3], true.shape[1] * 8)
    return row + start, byte << 3 | bit & 7


class BooleanScan(PerEvent):
    """A compiled loop over all expressions for each event.

    Predicates are looked up in a table of results that is made once per event. Evaluation of an expression, and of
    each subexpression, stops as soon as its result is certain: of an AND, if only its truth is needed, at the first
    operand that is not true.
    """

    def build(self, workload: BooleanWorkload) -> None:
        programs, table = workload.programs, workload.predicates
        found = links(programs)
        at = np.arange(len(programs.kind))
        up = np.where(found.parent < 0, 0, found.parent - at).astype(np.int32)  # 1 for the last operand
        is_first = at - found.size == found.parent - found.size[found.parent]
        code = programs.kind | needs(programs, found) << 3 | is_first.astype(np.int8) << 5
        ptr = np.searchsorted(table.attribute, np.arange(len(workload.schema) + 1))
        self.arrays = (programs.offsets, programs.operand, up, code, ptr, table.lo, table.hi)
        self.longest = int(np.diff(programs.offsets).max())

    def rows_of(self, events: Any) -> list[Rows]:
        state = np.full(len(self.arrays[-1]), UNKNOWN, np.int8)
        held = np.empty(self.longest, np.int8)
        out = np.empty(len(self.arrays[0]) - 1, np.int64)
        found = []
        for a, b in pairwise(events.offsets.tolist()):
            matches = compiled(_scan)(*self.arrays, events.attribute[a:b], events.value[a:b], state, held, out)
            found.append(out[:matches].copy())
        return found


NO, UNKNOWN, YES = 0, 1, 2  # AND is the minimum, OR the maximum, NOT the difference from 2


def _scan(
    offsets: Any, operand: Any, up: Any, code: Any, ptr: Any, lo: Any, hi: Any, attribute: Any, value: Any,
    state: Any, held: Any, out: Any,
) -> int:  # fmt: skip
    for j in range(len(attribute)):
        for p in range(ptr[attribute[j]], ptr[attribute[j] + 1]):
            state[p] = YES if lo[p] <= value[j] <= hi[p] else NO
    found = 0
    for e in range(len(offsets) - 1):
        base = i = offsets[e]
        v = state[operand[i]]
        while up[i] != 0:
            p = i + up[i]
            kind, need = code[p] & 7, code[p] >> 3 & 3
            is_last, is_first, other = up[i] == 1, code[i] >> 5 == 1, held[p - base]
            if kind == NOT:
                v, stop = YES - v, True
            elif kind == AND:
                v = v if is_first else min(v, other)
                stop = v != YES if need == TRUE else v == NO
            elif kind == OR:
                v = v if is_first else max(v, other)
                stop = v != NO if need == FALSE else v == YES
            else:
                if not is_first:
                    v = UNKNOWN if v == UNKNOWN else v ^ other
                stop = v == UNKNOWN
                if kind != XOR and (is_last or stop):
                    v = YES - v
            if stop or is_last:
                i = p
            else:
                held[p - base] = v
                i += 1
                v = state[operand[i]]
        if v == YES:
            out[found] = e
            found += 1
    for j in range(len(attribute)):
        state[ptr[attribute[j]] : ptr[attribute[j] + 1]] = UNKNOWN
    return found
