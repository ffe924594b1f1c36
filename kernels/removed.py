"""Removed rows as pages of bits: left out of results, and counted, so that live rows can be numbered."""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import ones, trailing_zeros
from gpumatch.kernels.compile import driver

SPAN = 12  # log2 of the rows of a page
WORDS = (1 << SPAN) // 64


@driver
def remove(bits, ranks, page, count, used, rows):
    """Mark ascending rows in copies, from page ``used`` on, of the pages that hold them; returns the next free page.

    ``ranks`` has, for each word of a page, how many rows before it are removed; ``page`` and ``count`` have the page of
    each span and how many of its rows are removed.
    """
    i = 0
    while i < rows.size:
        span = rows[i] >> SPAN
        for w in range(WORDS):
            bits[used, w] = bits[page[span], w]
        while i < rows.size and rows[i] >> SPAN == span:
            bits[used, (rows[i] >> 6) & (WORDS - 1)] |= np.uint64(1) << np.uint64(rows[i] & 63)
            i += 1
        removed = 0
        for w in range(WORDS):
            ranks[used, w] = removed
            removed += np.int64(ones(bits[used, w]))
        page[span], count[span] = used, removed
        used += 1
    return used


@driver
def number(bits, ranks, page, before, rows, out):
    """The number of each row among the live ones, -1 if it is removed."""
    for i in range(rows.size):
        row = np.int64(rows[i])
        p, w = page[row >> SPAN], (row >> 6) & (WORDS - 1)
        word, bit = bits[p, w], np.uint64(row & 63)
        if (word >> bit) & np.uint64(1):
            out[i] = -1
        else:
            lower = word & ((np.uint64(1) << bit) - np.uint64(1))
            out[i] = row - before[row >> SPAN] - ranks[p, w] - np.int64(ones(lower))


@driver
def keep(bits, ranks, page, before, base, offsets, rows, out_offsets, out):
    """The live rows of each event, by their numbers from ``base`` on; returns how many there are."""
    n = 0
    for e in range(offsets.size - 1):
        for i in range(offsets[e], offsets[e + 1]):
            row = np.int64(rows[i])
            p, w = page[row >> SPAN], (row >> 6) & (WORDS - 1)
            word, bit = bits[p, w], np.uint64(row & 63)
            if not (word >> bit) & np.uint64(1):
                lower = word & ((np.uint64(1) << bit) - np.uint64(1))
                out[n] = base + row - before[row >> SPAN] - ranks[p, w] - np.int64(ones(lower))
                n += 1
        out_offsets[e + 1] = n
    return n


@driver
def find(bits, ranks, page, before, numbers, out):
    """The rows that have these numbers among the live ones."""
    for i in range(numbers.size):
        wanted = np.int64(numbers[i])
        lo, hi = 0, page.size - 1  # the last span with at most ``wanted`` live rows before it
        while lo < hi:
            mid = (lo + hi + 1) >> 1
            if (mid << SPAN) - before[mid] <= wanted:
                lo = mid
            else:
                hi = mid - 1
        left = wanted - ((lo << SPAN) - before[lo])
        p = page[lo]
        w, end = 0, WORDS - 1
        while w < end:
            mid = (w + end + 1) >> 1
            if (mid << 6) - ranks[p, mid] <= left:
                w = mid
            else:
                end = mid - 1
        left -= (w << 6) - ranks[p, w]
        living = ~bits[p, w]
        for _ in range(left):
            living &= living - np.uint64(1)
        out[i] = (lo << SPAN) + (w << 6) + np.int64(trailing_zeros(living))
