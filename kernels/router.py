"""Which shards may match an event: relaxed clauses in lists, to which the codes of an event lead.

A clause is an entry of bytes: start and width of its access condition, of the second and of the third one, the columns
of these two, and the shard. The access condition's column and width say in which list it lies: a *slot* has the lists
of one column and level, and list ``n`` of a level has conditions that start in cells ``n << level`` to ``(n + 1) <<
level`` and are at most ``1 << level`` cells wide. So the conditions that a code may satisfy are in two neighbouring
lists of each level. Starts of access conditions are kept modulo 256: those of two such lists are never confused.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar

WIDTH = 11  # bytes of an entry, or one more if there are more than 256 shards
FINEST = 7  # bits of a list's cells that starts and widths keep
AT_ONCE = 256  # candidates that are checked together
ABSENT = np.uint16(0xFFFF)  # the value of a column that an event lacks: beyond those of all entries


@scalar
def byte(entry, at, number):
    return entry[at + np.uint64(number)]


@scalar
def pair(entry, at, number):
    """Two bytes as a number."""
    return np.uint64(byte(entry, at, number)) | np.uint64(byte(entry, at, number + 1)) << np.uint64(8)


@scalar
def gather(slot, code, width, slot_level, slot_first, list_ptr, entry, candidates, count):
    """Append the entries of a slot whose access condition holds. Without branches, which could not be predicted."""
    level = np.int64(slot_level[slot])
    last = slot_first[slot] + (code >> level)
    first = last - 1 if level > 0 and code >> level > 0 else last
    value = np.uint8(code >> max(level - FINEST, 0))
    for at in range(np.uint64(list_ptr[first]) * width, np.uint64(list_ptr[last + 1]) * width, width):
        candidates[count] = at
        count += np.uint64(np.uint8(value - byte(entry, at, 0)) <= byte(entry, at, 1))
    return count


@scalar
def mark(candidates, count, width, entry, row, event, found):
    """Mark the shards of candidates whose other conditions hold, too; returns how many were not marked before."""
    kept = np.uint64(0)
    for j in range(count):
        at = candidates[j]
        candidates[kept] = at
        kept += np.uint64(np.uint16(row[pair(entry, at, 6)] - byte(entry, at, 2)) <= byte(entry, at, 3))
    marked = 0
    for j in range(kept):
        at = candidates[j]
        if np.uint16(row[pair(entry, at, 8)] - byte(entry, at, 4)) <= byte(entry, at, 5):
            shard = pair(entry, at, 10) if width > np.uint64(WIDTH) else np.uint64(byte(entry, at, 10))
            marked += not found[event, shard]
            found[event, shard] = True
    return marked


@driver
def route(
    ptr, attribute, code, column_ptr, slot_level, slot_first, list_ptr, entry, width, shift, always, candidates, found
):
    """Mark the shards of each event in ``found`` (events, shards).

    Slots of a column are ``column_ptr[c]:column_ptr[c + 1]``; ``shift`` turns its codes into bytes. The last value of
    a row is for "no column", which entries with fewer than three conditions name. Columns of events beyond these are
    left out. ``candidates`` has room for AT_ONCE and two lists more.
    """
    columns = shift.size
    row = np.full(columns + 1, ABSENT, np.uint16)
    row[columns] = 0
    for e in range(ptr.size - 1):
        left = 0
        for s in range(always.size):
            found[e, s] = always[s]
            left += not always[s]
        last = ptr[e + 1]
        while last > ptr[e] and attribute[last - 1] >= columns:
            last -= 1
        for i in range(ptr[e], last):
            row[attribute[i]] = code[i] >> shift[attribute[i]]
        count = np.uint64(0)
        for i in range(ptr[e], last):
            own = np.int64(code[i])
            for slot in range(column_ptr[attribute[i]], column_ptr[attribute[i] + 1]):
                count = gather(slot, own, width, slot_level, slot_first, list_ptr, entry, candidates, count)
                if count >= np.uint64(AT_ONCE):
                    left -= mark(candidates, count, width, entry, row, e, found)
                    count = np.uint64(0)
            if left == 0:
                break
        mark(candidates, count, width, entry, row, e, found)
        for i in range(ptr[e], last):
            row[attribute[i]] = ABSENT
