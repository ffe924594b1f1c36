"""Rows by their ids, which are bytes: a table of rows by the hash of the id, without a copy of the ids."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar

EMPTY = -1


@scalar
def hash_bytes(data, first, last):
    """FNV-1a of bytes, mixed so that the low bits depend on all of them."""
    mixed = np.uint64(0xCBF29CE484222325)
    for i in range(first, last):
        mixed = (mixed ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


@scalar
def equal_bytes(a, a_first, a_last, b, b_first, b_last):
    if a_last - a_first != b_last - b_first:
        return False
    for i in range(a_last - a_first):
        if a[a_first + i] != b[b_first + i]:
            return False
    return True


@driver
def fill(data, offsets, slots):
    """Put the rows of distinct ids into empty slots: a power of two, more than there are ids."""
    mask = np.uint64(slots.size - 1)
    for row in range(offsets.size - 1):
        at = hash_bytes(data, offsets[row], offsets[row + 1]) & mask
        while slots[at] != EMPTY:
            at = (at + np.uint64(1)) & mask
        slots[at] = row


@driver
def look_up(data, offsets, slots, wanted, wanted_offsets, out):
    """The row of each wanted id, -1 if there is none."""
    mask = np.uint64(slots.size - 1)
    for i in range(wanted_offsets.size - 1):
        first, last = wanted_offsets[i], wanted_offsets[i + 1]
        at = hash_bytes(wanted, first, last) & mask
        row = slots[at]
        while row != EMPTY and not equal_bytes(wanted, first, last, data, offsets[row], offsets[row + 1]):
            at = (at + np.uint64(1)) & mask
            row = slots[at]
        out[i] = row
