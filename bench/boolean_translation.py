"""Arbitrary Boolean expressions as conjunctions, each in an index of its own: what the thesis calls Translation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from abe import AND, NOT, OR, PREDICATE, XOR, BooleanWorkload, compiled, ends_of, links
from engines import Csr, Engine
from numpy.typing import NDArray

STEP = 8 << 20  # rows of a table of predicates


class Conjunctions(NamedTuple):
    """The disjunctive normal forms of expressions, one clause after the other."""

    owner: NDArray[np.int64]  # expression of each clause, ascending
    offsets: NDArray[np.int64]
    predicate: NDArray[np.int32]
    negated: NDArray[np.bool_]


def clause_counts(workload: BooleanWorkload) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For every item how many conjunctions make it true, and how many make it false; those that contradict count."""
    programs, found = workload.programs, links(workload.programs)
    true, false = np.ones((2, len(programs.kind)))
    compiled(_counts)(programs.kind, programs.operand, found.size, true, false)
    return true, false


def clauses_of(workload: BooleanWorkload) -> float:
    """How many conjunctions all expressions together would be."""
    return float(clause_counts(workload)[0][workload.programs.offsets[1:] - 1].sum())


def _counts(kind: Any, operand: Any, size: Any, true: Any, false: Any) -> None:
    for i in range(len(kind)):
        if kind[i] == PREDICATE:
            continue
        child, product, sums, odd, even = i - 1, np.ones(2), np.zeros(2), 0.0, 1.0
        for _ in range(operand[i]):
            t, f = true[child], false[child]
            product[0] *= t
            product[1] *= f
            sums[0] += t
            sums[1] += f
            odd, even = odd * f + even * t, odd * t + even * f
            child -= size[child]
        if kind[i] == AND:
            true[i], false[i] = product[0], sums[1]
        elif kind[i] == OR:
            true[i], false[i] = sums[0], product[1]
        elif kind[i] == XOR:
            true[i], false[i] = odd, even
        else:
            true[i], false[i] = even, odd  # NOT is XNOR of one operand


def conjunctions(workload: BooleanWorkload) -> Conjunctions:
    """All clauses but those that contradict themselves. XOR and XNOR have two operands."""
    programs, table, found = workload.programs, workload.predicates, links(workload.programs)
    if (programs.operand[programs.kind >= XOR] != 2).any():
        raise ValueError("XOR and XNOR of other than two operands are not translated")
    counts = [array.astype(np.int64) for array in clause_counts(workload)]
    write = compiled(_write)
    given = (programs.offsets, programs.kind, programs.operand, found.size, *counts, *table)
    room = int(np.diff(programs.offsets).max())
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))
    clauses, literals = write(*given, room, False, *nothing)
    of_clauses = np.empty(clauses, np.int64), np.zeros(clauses + 1, np.int64)
    made = Conjunctions(*of_clauses, np.empty(literals, np.int32), np.empty(literals, np.bool_))
    write(*given, room, True, *made)
    return made


def _write(
    offsets: Any, kind: Any, operand: Any, size: Any, true: Any, false: Any, attribute: Any, lo: Any, hi: Any,
    room: int, fill: bool, owner: Any, ends: Any, predicate: Any, negated: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write clause after clause: its number says, digit by digit, which alternative to take at each node."""
    node, digit = np.empty(room + 1, np.int64), np.empty(room + 1, np.int64)
    wrong = np.empty(room + 1, np.bool_)  # whether the node is to be false
    held, is_not = np.empty(room, np.int32), np.empty(room, np.bool_)
    clauses = literals = 0
    for e in range(len(offsets) - 1):
        root = offsets[e + 1] - 1
        for number in range(true[root]):
            node[0], digit[0], wrong[0] = root, number, False
            top, count, dead = 1, 0, False
            while top > 0 and not dead:
                top -= 1
                i, j, no = node[top], digit[top], wrong[top]
                if kind[i] == PREDICATE:
                    p, known = operand[i], False
                    for k in range(count):
                        q = held[k]
                        if attribute[q] != attribute[p]:
                            continue
                        if q == p and is_not[k] == no:
                            known = True
                        elif not no and not is_not[k]:
                            dead |= lo[p] > hi[q] or lo[q] > hi[p]
                        elif no and not is_not[k]:
                            dead |= lo[p] <= lo[q] and hi[q] <= hi[p]
                        elif not no:
                            dead |= lo[q] <= lo[p] and hi[p] <= hi[q]
                    if not known:
                        held[count], is_not[count] = p, no
                        count += 1
                elif kind[i] == NOT:
                    node[top], digit[top], wrong[top] = i - 1, j, not no
                    top += 1
                elif kind[i] == AND or kind[i] == OR:
                    child, all_of = i - 1, (kind[i] == AND) != no
                    for _ in range(operand[i]):
                        ways = false[child] if no else true[child]
                        if all_of:
                            node[top], digit[top], wrong[top] = child, j % ways, no
                            top += 1
                            j //= ways
                        elif j < ways:
                            node[top], digit[top], wrong[top] = child, j, no
                            top += 1
                            break
                        else:
                            j -= ways
                        child -= size[child]
                else:
                    b = i - 1
                    a = b - size[b]
                    differ = (kind[i] == XOR) != no  # true and false, or false and true; else both the same
                    ways = false[b] if differ else true[b]
                    second = j >= true[a] * ways
                    if second:
                        j -= true[a] * ways
                        ways = true[b] if differ else false[b]
                    node[top], digit[top], wrong[top] = a, j // ways, second
                    node[top + 1], digit[top + 1], wrong[top + 1] = b, j % ways, second != differ
                    top += 2
            if dead:
                continue
            if fill:
                owner[clauses], ends[clauses + 1] = e, literals + count
                predicate[literals : literals + count] = held[:count]
                negated[literals : literals + count] = is_not[:count]
            clauses += 1
            literals += count
    return clauses, literals


class Translation(Engine):
    """Every clause of every expression's disjunctive normal form as a conjunction for ``Matcher(index="auto")``.

    Results are mapped back to expressions, each once. Where there would be more clauses than ``most`` it is not tried.
    """

    most = 30_000_000

    @classmethod
    def suits(cls, workload: Any) -> bool:
        return clauses_of(workload) <= cls.most

    def build(self, workload: Any) -> None:
        import gpumatch as gm

        gm.set_num_threads(self.threads)
        made = conjunctions(workload)
        self.owner = made.owner
        self.from_csr = gm.EventBatch.from_csr
        self.matcher = gm.Matcher(workload.schema, index="auto")
        for table in _tables(workload, made):
            self.matcher.add_predicates(table)
        start = time.process_time()
        self.matcher.compact()
        self.index_s = time.process_time() - start
        self.variant = f"{len(made.owner):,} conjunctions"

    def match(self, events: Any) -> Csr:
        found = self.matcher.match(self.from_csr(*events))
        owner = self.owner[found.rows]  # ascending in each event, as rows are
        fresh = np.ones(len(owner), np.bool_)
        fresh[1:] = owner[1:] != owner[:-1]
        fresh[found.offsets[:-1][found.offsets[:-1] < len(owner)]] = True
        return ends_of(fresh)[found.offsets], owner[fresh]

    def bytes(self) -> int | None:
        return int(self.matcher.stats()["bytes"]) + self.owner.nbytes


def _tables(workload: BooleanWorkload, made: Conjunctions) -> Iterator[Any]:
    """The long form, some millions of rows at a time."""
    import pyarrow as pa

    names, operators = pa.array(list(workload.schema)), pa.array(["=", "<>", "between", "not between"])
    at = 0
    while at < len(made.owner):
        end = max(at + 1, int(np.searchsorted(made.offsets, made.offsets[at] + STEP, "right")) - 1)
        inside = slice(*made.offsets[[at, end]].tolist())
        lo, hi = (side[made.predicate[inside]] for side in workload.predicates[1:])
        is_range = lo != hi
        ends = np.concatenate([[0], np.cumsum(2 * is_range)]).astype(np.int32)
        bounds = np.column_stack([lo, hi])[is_range].ravel()
        number = (2 * is_range + made.negated[inside]).astype(np.int8)
        yield pa.table(
            {
                "id": np.repeat(np.arange(at, end), np.diff(made.offsets[at : end + 1])),
                "attribute": pa.DictionaryArray.from_arrays(
                    workload.predicates.attribute[made.predicate[inside]], names
                ),
                "op": pa.DictionaryArray.from_arrays(number, operators),
                "value": pa.array(lo, mask=is_range),
                "values": pa.ListArray.from_arrays(ends, bounds, mask=pa.array(~is_range)),
            }
        )
        at = end
