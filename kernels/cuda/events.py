"""Events on the device: values to codes, columns to rows of entries, and rows spread over all attributes."""

from __future__ import annotations

import numpy as np
from numba import float64, int64

from gpumatch.kernels.cuda.target import cuda, device, kernel
from gpumatch.kernels.encode import FLOAT, GUIDE, MISSING, float_key, rank


@kernel("void(f8[::1], b1[::1], i8, i8[::1], i8[::1], i4[::1], i4[::1])")
def encode_floats(values, valid, attribute, guide, cuts, buckets, out):
    """Codes of a column of floats; NaN is missing, and so are invalid values (if ``valid`` is not empty)."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        value = values[i]
        if value != value or (valid.size > 0 and not valid[i]):
            out[i] = MISSING
        else:
            out[i] = rank(float_key(value), attribute, guide, cuts, buckets)


@kernel("void(i8[::1], b1[::1], i8, i8[::1], i8[::1], i4[::1], i4[::1])")
def encode_integers(values, valid, attribute, guide, cuts, buckets, out):
    """Codes of a column of integers, which are their own keys."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        if valid.size > 0 and not valid[i]:
            out[i] = MISSING
        else:
            out[i] = rank(values[i], attribute, guide, cuts, buckets)


@kernel("void(i4[::1], i8[::1], i8[::1], i8[::1], i4[::1], i4[::1])")
def encode_keys(attribute, keys, guide, cuts, buckets, out):
    """Codes of keys of different attributes."""
    for i in range(cuda.grid(1), keys.size, cuda.gridsize(1)):
        out[i] = rank(keys[i], int64(attribute[i]), guide, cuts, buckets)


@device
def key_of(value, attribute, single, guide):
    """The key of a number; a float32 attribute rounds it to float32."""
    if guide[GUIDE * attribute + 6] & FLOAT:
        return float_key(float64(np.float32(value)) if single[attribute] else float64(value))
    return int64(value)


@kernel("void(i4[::1], f8[::1], b1[::1], i8[::1], i8[::1], i4[::1], i4[::1])")
def encode_mixed_floats(attribute, values, single, guide, cuts, buckets, out):
    """Codes of floats, none of them NaN, of different attributes of either kind."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        a = int64(attribute[i])
        out[i] = rank(key_of(values[i], a, single, guide), a, guide, cuts, buckets)


@kernel("void(i4[::1], i8[::1], b1[::1], i8[::1], i8[::1], i4[::1], i4[::1])")
def encode_mixed_integers(attribute, values, single, guide, cuts, buckets, out):
    """As ``encode_mixed_floats``, of integers."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        a = int64(attribute[i])
        out[i] = rank(key_of(values[i], a, single, guide), a, guide, cuts, buckets)


@device
def list_entries(e, attribute, codes, base, list_ptr, list_base, at, entry_event, entry_attribute, entry_code):
    """Entries that event ``e`` has in columns of codes: their number. Written from ``at`` on unless that is negative.

    Columns are as in ``kernels.encode.columns_to_rows``.
    """
    n = int64(0)
    for c in range(attribute.size):
        first = base[c] + e
        last = first + 1
        if list_base[c] >= 0:
            first = base[c] + list_ptr[list_base[c] + e]
            last = base[c] + list_ptr[list_base[c] + e + 1]
        for i in range(first, last):
            if codes[i] != MISSING:
                if at >= 0:
                    entry_event[at + n] = e
                    entry_attribute[at + n] = attribute[c]
                    entry_code[at + n] = codes[i]
                n += 1
    return n


@kernel("void(i4[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def count_entries(attribute, codes, base, list_ptr, list_base, counts):
    """How many entries each event has."""
    for e in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        counts[e] = list_entries(e, attribute, codes, base, list_ptr, list_base, int64(-1), codes, codes, codes)


@kernel("void(i4[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1], i4[::1], i4[::1], i4[::1])")
def fill_entries(attribute, codes, base, list_ptr, list_base, ptr, entry_event, entry_attribute, entry_code):
    """Those entries; those of event ``e`` start at ``ptr[e]``."""
    for e in range(cuda.grid(1), ptr.size - 1, cuda.gridsize(1)):
        list_entries(e, attribute, codes, base, list_ptr, list_base, ptr[e], entry_event, entry_attribute, entry_code)


@kernel("void(i8[::1], i4[::1], b1[::1], i8[::1])")
def count_presence(ptr, attribute, multi, counts):
    """How many entries each event has, including one more for every list attribute that it has."""
    for e in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        n = ptr[e + 1] - ptr[e]
        for i in range(ptr[e], ptr[e + 1]):
            if multi[attribute[i]] and (i == ptr[e] or attribute[i - 1] != attribute[i]):
                n += 1
        counts[e] = n


@kernel("void(i8[::1], i4[::1], i4[::1], b1[::1], i4[::1], i8[::1], i4[::1], i4[::1], i4[::1])")
def fill_presence(ptr, attribute, code, multi, presence, out_ptr, entry_event, entry_attribute, entry_code):
    """Those entries, the additional ones after the event's own."""
    for e in range(cuda.grid(1), ptr.size - 1, cuda.gridsize(1)):
        n = out_ptr[e]
        for i in range(ptr[e], ptr[e + 1]):
            entry_event[n] = e
            entry_attribute[n] = attribute[i]
            entry_code[n] = code[i]
            n += 1
        for i in range(ptr[e], ptr[e + 1]):
            a = attribute[i]
            if multi[a] and (i == ptr[e] or attribute[i - 1] != a):
                entry_event[n] = e
                entry_attribute[n] = presence[a]
                entry_code[n] = 0
                n += 1


@kernel("void(i8[::1], i4[::1], i4[::1], i4[::1], b1[::1], i8, i4[::1])")
def spread(entry_ptr, entry_event, entry_attribute, entry_code, multi, width, rows):
    """Each event's codes by attribute; for a list, the index of its first entry. All rows are -1 before."""
    for i in range(cuda.grid(1), entry_code.size, cuda.gridsize(1)):
        e, a = int64(entry_event[i]), entry_attribute[i]
        if not multi[a]:
            rows[e * width + a] = entry_code[i]
        elif i == entry_ptr[e] or entry_attribute[i - 1] != a:
            rows[e * width + a] = i
