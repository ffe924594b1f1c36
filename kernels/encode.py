"""Values to leaf codes: the code of a value is the number of cuts at or below it.

All types arrive as int64 keys that sort as their values do. A bucket table over the keys' numeric values narrows the
search: buckets rise with the value, so cuts in lower buckets are below and cuts in higher ones above.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.bits import prefetch
from gpumatch.kernels.compile import driver, scalar
from gpumatch.kernels.frames import framed
from gpumatch.opcodes import FLOAT32, NUMBER, TEXT

MISSING = -1
# Search data of an attribute, in sequence: first cut, number of cuts, first bucket, number of buckets, the number at
# which buckets start and buckets per unit (floats by their bits, or the key itself if DIRECT), and flags.
GUIDE = 8
FLOAT, DIRECT = 1, 2
BLOCK = 64  # entries that go through each step of the search together
U1, U2, U3, U4 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)  # unsigned indexes need no sign check
U5, U6, U8 = np.uint64(5), np.uint64(6), np.uint64(GUIDE)
_MAX = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@scalar
def float_key(value):
    """An int64 that sorts as the float does; -0.0 and 0.0 have the same key."""
    bits = np.float64(value + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & _MAX)


@scalar
def key_number(key, is_float):
    """The number that a key stands for, rounded to float64: rises with the key, which is all a bucket needs."""
    if is_float:
        return np.int64(key ^ ((key >> 63) & _MAX)).view(np.float64)
    return np.float64(key)


@scalar
def bucket_of(number, low, scale, count):
    """The bucket of a number: rises with it; numbers beyond either end go to the first or the last."""
    position = (number - low) * scale
    if not position > 0.0:
        return np.int64(0)
    if position >= count:
        return count - 1
    return np.int64(position)


@scalar
def bucket_place(key, attribute, guide):
    """Position of the bucket of a key in the table; any position for an attribute without cuts."""
    g = U8 * np.uint64(attribute)
    base, size = guide[g + U4], guide[g + U3]
    if guide[g + U6] & DIRECT:  # a bucket per whole number; clamped first, so that the difference does not overflow
        return guide[g + U2] + max(min(key, base + size - 1), base) - base
    scale = np.int64(guide[g + U5]).view(np.float64)
    number = key_number(key, guide[g + U6] & FLOAT)
    return guide[g + U2] + max(bucket_of(number, np.int64(base).view(np.float64), scale, size), 0)


@scalar
def rank_from(bucket, key, attribute, guide, cuts, buckets):
    """The code of a key, given the position of its bucket."""
    g = U8 * np.uint64(attribute)
    count = guide[g + U1]
    if count == 0 or key == _MAX:  # _MAX ends open ranges; no float has it as its key
        return count
    b = np.uint64(bucket)
    if guide[g + U6] & DIRECT:  # no need to look at the cuts
        return np.int64(0) if key < guide[g + U4] else np.int64(buckets[b + U1])
    lo = np.uint64(buckets[b])
    hi = np.uint64(buckets[b + U1])
    first = np.uint64(guide[g])
    while lo < hi:
        mid = (lo + hi) >> U1
        if cuts[first + mid] <= key:
            lo = mid + U1
        else:
            hi = mid
    return np.int64(lo)


@scalar
def rank(key, attribute, guide, cuts, buckets):
    """The code of a key: how many of its attribute's cuts are at or below it."""
    return rank_from(bucket_place(key, attribute, guide), key, attribute, guide, cuts, buckets)


@scalar
def rank_block(attribute, first, last, keys, guide, cuts, buckets, places, out):
    """Codes of the entries ``first:last``, whose keys are ``keys[:last - first]``.

    In three steps, each of which prefetches the memory that the next one reads.
    """
    for i in range(last - first):
        places[i] = bucket_place(keys[i], np.int64(attribute[first + i]), guide)
        prefetch(buckets, places[i])
    for i in range(last - first):
        g = U8 * np.uint64(attribute[first + i])
        if guide[g + U1] > 0 and not guide[g + U6] & DIRECT:
            prefetch(cuts, guide[g] + buckets[places[i]])
    for i in range(last - first):
        out[first + i] = rank_from(places[i], keys[i], np.int64(attribute[first + i]), guide, cuts, buckets)


@driver
def unique_runs(keys, ptr, out, out_ptr):
    """Drop repeats from each sorted run ``keys[ptr[a]:ptr[a+1]]``; returns the length kept in ``out``."""
    n = 0
    for a in range(ptr.size - 1):
        out_ptr[a] = n
        for i in range(ptr[a], ptr[a + 1]):
            if i == ptr[a] or keys[i] != keys[i - 1]:
                out[n] = keys[i]
                n += 1
    out_ptr[ptr.size - 1] = n
    return n


@driver
def group_keys(attribute, keys, ptr, out):
    """Counting sort of keys by attribute; ``ptr`` says where each attribute's keys go."""
    place = ptr[:-1].copy()
    for i in range(keys.size):
        a = attribute[i]
        out[place[a]] = keys[i]
        place[a] += 1


@driver
def sort_runs(keys, ptr, limit):
    """Sort the runs that are shorter than ``limit``; the others are left to NumPy, which is faster there."""
    for a in range(ptr.size - 1):
        if ptr[a + 1] - ptr[a] < limit:
            for i in range(ptr[a] + 1, ptr[a + 1]):
                key = keys[i]
                j = i
                while j > ptr[a] and keys[j - 1] > key:
                    keys[j] = keys[j - 1]
                    j -= 1
                keys[j] = key


@driver
def fill_buckets(guide, cuts, buckets):
    """For each bucket, how many of its attribute's cuts lie in lower buckets, and one closing entry."""
    for g in range(0, guide.size, GUIDE):
        first = guide[g + 2]
        size = guide[g + 3]
        is_float = guide[g + 6] & FLOAT
        low = np.int64(guide[g + 4]).view(np.float64)
        for i in range(guide[g], guide[g] + guide[g + 1]):
            if guide[g + 6] & DIRECT:
                b = cuts[i] - guide[g + 4]
            else:
                b = bucket_of(key_number(cuts[i], is_float), low, np.int64(guide[g + 5]).view(np.float64), size)
            buckets[first + b + 1] += 1
        for b in range(first + 1, first + size + 1):
            buckets[b] += buckets[b - 1]


@driver
def encode_keys(attribute, keys, start, stop, guide, cuts, buckets, out):
    """Codes of keys of different attributes."""
    places = np.empty(BLOCK, np.int64)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        for i in range(last, min(last + BLOCK, stop)):
            prefetch(guide, U8 * np.uint64(attribute[i]))
        rank_block(attribute, first, last, keys[first:last], guide, cuts, buckets, places, out)


@driver
def encode_numbers(attribute, values, guide, cuts, buckets, out):
    """Codes of float or int values, none of them NaN, of different attributes of either kind."""
    places, keys = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    for first in range(0, values.size, BLOCK):
        last = min(first + BLOCK, values.size)
        for i in range(last, min(last + BLOCK, values.size)):
            prefetch(guide, U8 * np.uint64(attribute[i]))
        for i in range(first, last):
            is_float = guide[U8 * np.uint64(attribute[i]) + U6] & FLOAT
            keys[i - first] = float_key(values[i]) if is_float else np.int64(values[i])
        rank_block(attribute, first, last, keys, guide, cuts, buckets, places, out)


@driver
def select(attribute, ptr, needed, out_ptr, out):
    """The entries of needed attributes, and where those of each event start among them. Returns their number."""
    n = 0
    for e in range(ptr.size - 1):
        out_ptr[e] = n
        for i in range(ptr[e], ptr[e + 1]):
            out[n] = i
            n += needed[attribute[i]]
    out_ptr[ptr.size - 1] = n
    return n


@driver
def encode_column(values, attribute, guide, cuts, buckets, out):
    """Codes of one attribute's values: floats, where NaN is missing, or integers, which are their own keys."""
    is_float = guide[GUIDE * attribute + 6] & FLOAT
    for i in range(values.size):
        value = values[i]
        if value != value:
            out[i] = MISSING
        else:
            out[i] = rank(float_key(value) if is_float else np.int64(value), attribute, guide, cuts, buckets)


@driver
def columns_to_rows(attribute, codes, base, list_ptr, list_base, ptr, out_attribute, out_code):
    """Turn columns of codes into rows: event ``e`` has entries ``ptr[e]:ptr[e+1]``. Returns the number of entries.

    Column ``c`` starts at ``codes[base[c]]``. It has one code per event, or, if ``list_base[c]`` is not negative, those
    of the lists that ``list_ptr[list_base[c] + e]`` delimits. The outputs have room for every code.
    """
    n = 0
    for e in range(ptr.size - 1):
        ptr[e] = n
        for c in range(attribute.size):
            first = base[c] + e
            last = first + 1
            if list_base[c] >= 0:
                first = base[c] + list_ptr[list_base[c] + e]
                last = base[c] + list_ptr[list_base[c] + e + 1]
            for i in range(first, last):
                if codes[i] != MISSING:
                    out_attribute[n] = attribute[c]
                    out_code[n] = codes[i]
                    n += 1
    ptr[ptr.size - 1] = n
    return n


@driver
def add_presence(ptr, attribute, code, multi, presence, out_ptr, out_attribute, out_code):
    """Copy rows, adding to each event an entry for every list attribute it has. Returns the number of entries."""
    n = 0
    out_ptr[0] = 0
    for e in range(ptr.size - 1):
        for i in range(ptr[e], ptr[e + 1]):
            out_attribute[n] = attribute[i]
            out_code[n] = code[i]
            n += 1
        for i in range(ptr[e], ptr[e + 1]):
            a = attribute[i]
            if multi[a] and (i == ptr[e] or attribute[i - 1] != a):
                out_attribute[n] = presence[a]
                out_code[n] = 0
                n += 1
        out_ptr[e + 1] = n
    return n


@driver
def search_strings(data, offsets, pool_data, pool_offsets, out):
    """Keys of strings in a sorted pool: ``2r`` for its string ``r``, ``2r + 1`` for the gap above, -1 below all."""
    for i in range(offsets.size - 1):
        out[i] = find_string(data, offsets[i], offsets[i + 1], pool_data, pool_offsets)


@scalar
def find_string(data, first, last, pool_data, pool_offsets):
    """The key of the string ``data[first:last]``."""
    lo = np.int64(0)
    hi = np.int64(pool_offsets.size - 1)
    while lo < hi:
        mid = (lo + hi) >> 1
        order = compare_bytes(data, first, last, pool_data, pool_offsets[mid], pool_offsets[mid + 1])
        if order == 0:
            return 2 * mid
        if order > 0:
            lo = mid + 1
        else:
            hi = mid
    return 2 * lo - 1


@driver
def encode_packed(attribute, kind, number, text, book, out):
    """Codes of an event, as ``events.shapes`` packs it; returns whether all its values are there: none is NaN."""
    guide, cuts, buckets = framed(book, 0, np.int64), framed(book, 1, np.int64), framed(book, 2, np.int32)
    pool_data, pool_offsets = framed(book, 3, np.uint8), framed(book, 4, np.int64)
    start = np.int64(0)
    for i in range(attribute.size):
        key = number[i]
        if kind[i] == TEXT:
            end = key
            key = find_string(text, start, end, pool_data, pool_offsets)
            start = end
        elif kind[i] != NUMBER:
            value = np.int64(key).view(np.float64)
            if value != value:
                return False
            if kind[i] == FLOAT32:
                value = np.float64(np.float32(value))
            key = float_key(value)
        out[i] = rank(key, np.int64(attribute[i]), guide, cuts, buckets)
    return True


@scalar
def compare_bytes(a, a_first, a_last, b, b_first, b_last):
    """Below, equal or above zero as ``a[a_first:a_last]`` sorts against ``b[b_first:b_last]``."""
    shared = min(a_last - a_first, b_last - b_first)
    for k in range(shared):
        x = np.int64(a[a_first + k])
        y = np.int64(b[b_first + k])
        if x != y:
            return x - y
    return (a_last - a_first) - (b_last - b_first)
