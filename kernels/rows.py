"""Matched rows of one event: sorted in ascending order, without repeats."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import trailing_zeros
from gpumatch.kernels.compile import driver, maker, scalar

SMALL = 24  # up to here an insertion sort beats the bitmap
START = 1024  # initial size of a buffer


@maker
def grow(buffer):
    """The buffer's contents in one of twice the size."""
    larger = np.empty(2 * buffer.size, buffer.dtype)
    for i in range(buffer.size):  # assigning a slice would compile its error messages, which takes seconds
        larger[i] = buffer[i]
    return larger


@scalar
def is_had(row, e, once, had):
    """Can event ``e`` skip the row: is it removed, or one to find only ``once`` that the event has already?

    ``gem.settle`` and ``postings.verify`` spell this and ``append_row`` out: with calls, their matches take a tenth to
    a quarter longer (W1, ads).
    """
    return once and (row < 0 or had[row] == e)


@scalar
def append_row(row, e, once, had, out, n):
    """Append a row that event ``e`` satisfies; returns the end."""
    out[n] = row
    if once:
        had[row] = e
    return n + 1


@scalar
def sort_unique(rows, first, last, words, summary):
    """Sort ``rows[first:last]`` in place and drop repeats; returns the new end.

    ``words`` (a bit per row) and ``summary`` (a bit per word) are all zero before and after.
    """
    if last - first <= SMALL:
        return _sort_few(rows, first, last)
    for i in range(first, last):
        w = rows[i] >> 6
        words[w] |= np.uint64(1) << np.uint64(rows[i] & 63)
        summary[w >> 6] |= np.uint64(1) << np.uint64(w & 63)
    end = first
    for s in range(summary.size):
        marks = summary[s]
        summary[s] = 0
        while marks != 0:
            w = (s << 6) + np.int64(trailing_zeros(marks))
            marks &= marks - np.uint64(1)
            bits = words[w]
            words[w] = 0
            while bits != 0:
                rows[end] = (w << 6) + np.int64(trailing_zeros(bits))
                bits &= bits - np.uint64(1)
                end += 1
    return end


@scalar
def _sort_few(rows, first, last):
    end = first
    for i in range(first, last):
        row = rows[i]
        j = end
        while j > first and rows[j - 1] > row:
            j -= 1
        if j > first and rows[j - 1] == row:
            continue
        for k in range(end, j, -1):
            rows[k] = rows[k - 1]
        rows[j] = row
        end += 1
    return end


@driver
def merge_rows(offsets, rows, other_offsets, other_rows):
    """Rows of each event from two results, ascending, without repeats."""
    out = np.empty(rows.size + other_rows.size, np.int32)
    out_offsets = np.zeros(offsets.size, np.int64)
    n = 0
    for e in range(offsets.size - 1):
        i, j = offsets[e], other_offsets[e]
        while i < offsets[e + 1] or j < other_offsets[e + 1]:
            if j == other_offsets[e + 1] or (i < offsets[e + 1] and rows[i] <= other_rows[j]):
                if j < other_offsets[e + 1] and rows[i] == other_rows[j]:
                    j += 1
                out[n] = rows[i]
                i += 1
            else:
                out[n] = other_rows[j]
                j += 1
            n += 1
        out_offsets[e + 1] = n
    return out_offsets, out[:n]
