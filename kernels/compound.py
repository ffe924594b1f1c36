"""Building compounds: ranges of clauses that share an equality, and their codes in its group."""

from __future__ import annotations

from gpumatch.kernels.compile import driver
from gpumatch.kernels.postings import group_code
from gpumatch.opcodes import HI, KIND, LO, RANGE, WIDTH


@driver
def list_ranges(indexes, clauses, owners, clause_ptr, predicate, multi, out):
    """Ranges on attributes other than the owner's, of the clauses at ``indexes``; returns their number.

    ``owners`` are numbers of predicates. ``out`` has three arrays: the index of the clause, the number of the range,
    and the pair of both attributes, as one number.
    """
    which, ranges, pairs = out
    n = 0
    for h in indexes:
        owner = predicate[WIDTH * owners[h]]
        for i in range(clause_ptr[clauses[h]], clause_ptr[clauses[h] + 1]):
            p = WIDTH * i
            a = predicate[p]
            if predicate[p + KIND] != RANGE or multi[a] or a == owner or predicate[p + LO] > predicate[p + HI]:
                continue
            which[n], ranges[n], pairs[n] = h, i, owner * multi.size + a
            n += 1
    return n


@driver
def encode_in_groups(group, codes, group_ptr, cuts, out):
    """Codes of partners as codes in groups."""
    for i in range(codes.size):
        out[i] = group_code(codes[i], group_ptr[group[i]], group_ptr[group[i] + 1], cuts)
