"""Values to leaf codes: the code of a value is the number of cuts at or below it.

All types arrive as int64 keys that sort as their values do. A bucket table over the keys' numeric values narrows the
search: buckets rise with the value, so cuts in lower buckets are below and cuts in higher ones above.
"""

from __future__ import annotations

import numpy as np

from gpumatch.kernels.compile import driver, scalar

MISSING = -1
_MAX = np.int64(0x7FFF_FFFF_FFFF_FFFF)


@scalar
def float_key(value):
    """int64 that sorts as the float does; -0.0 and 0.0 are one key."""
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
    position = (number - low) * scale
    if not position > 0.0:
        return 0
    if position >= count:
        return count - 1
    return np.int64(position)


@scalar
def rank(key, is_float, cuts, first, last, buckets, bucket_first, bucket_last, low, scale):
    """How many of ``cuts[first:last]`` are at or below ``key``."""
    if last == first or key == _MAX:  # the ends of open ranges have a key, but among floats no number
        return last - first
    b = bucket_first + bucket_of(key_number(key, is_float), low, scale, bucket_last - bucket_first - 1)
    lo = buckets[b]
    hi = buckets[b + 1]
    while lo < hi:
        mid = (lo + hi) >> 1
        if cuts[first + mid] <= key:
            lo = mid + 1
        else:
            hi = mid
    return lo


@driver
def unique_runs(keys, ptr, out, out_ptr):
    """Drop repeats from each sorted run ``keys[ptr[a]:ptr[a+1]]``; returns the length of what is kept in ``out``."""
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
    """Counting sort of keys by attribute; ``ptr`` holds where each attribute's keys go."""
    place = ptr[:-1].copy()
    for i in range(keys.size):
        a = attribute[i]
        out[place[a]] = keys[i]
        place[a] += 1


@driver
def sort_runs(keys, ptr, limit):
    """Sort the runs that are shorter than ``limit``; long ones are left to NumPy, whose sort is faster there."""
    for a in range(ptr.size - 1):
        if ptr[a + 1] - ptr[a] < limit:
            keys[ptr[a] : ptr[a + 1]].sort()


@driver
def fill_buckets(cuts, cut_ptr, is_float, bucket_ptr, buckets, low, scale):
    """``buckets`` of an attribute: for each bucket how many cuts lie in lower ones, and one closing entry."""
    for a in range(cut_ptr.size - 1):
        first = cut_ptr[a]
        count = cut_ptr[a + 1] - first
        size = bucket_ptr[a + 1] - bucket_ptr[a] - 1
        if size < 1:
            continue
        for i in range(first, cut_ptr[a + 1]):
            b = bucket_of(key_number(cuts[i], is_float[a]), low[a], scale[a], size)
            buckets[bucket_ptr[a] + b + 1] += 1
        for b in range(1, size + 1):
            buckets[bucket_ptr[a] + b] += buckets[bucket_ptr[a] + b - 1]
        buckets[bucket_ptr[a] + size] = count


@scalar
def book_rank(a, key, book):
    """The code of a key of attribute ``a``."""
    is_float, cuts, cut_ptr, buckets, bucket_ptr, low, scale = book
    first, last = cut_ptr[a], cut_ptr[a + 1]
    return rank(key, is_float[a], cuts, first, last, buckets, bucket_ptr[a], bucket_ptr[a + 1], low[a], scale[a])


@driver
def encode_keys(attribute, keys, start, stop, book, out):
    """Codes of keys that belong to different attributes."""
    for i in range(start, stop):
        out[i] = book_rank(attribute[i], keys[i], book)


@driver
def encode_numbers(attribute, values, book, out):
    """Codes of float or int values, none of them NaN, that belong to different attributes of either kind."""
    is_float = book[0]
    for i in range(values.size):
        key = float_key(values[i]) if is_float[attribute[i]] else np.int64(values[i])
        out[i] = book_rank(attribute[i], key, book)


@driver
def encode_float_column(values, start, stop, cuts, buckets, low, scale, out):
    """Codes of one float attribute's values; NaN is missing."""
    for i in range(start, stop):
        value = values[i]
        if np.isnan(value):
            out[i - start] = MISSING
        else:
            out[i - start] = rank(float_key(value), True, cuts, 0, cuts.size, buckets, 0, buckets.size, low, scale)


@driver
def encode_int_column(values, start, stop, cuts, buckets, low, scale, out):
    """Codes of one attribute whose values are their own keys."""
    for i in range(start, stop):
        out[i - start] = rank(values[i], False, cuts, 0, cuts.size, buckets, 0, buckets.size, low, scale)


@driver
def columns_to_rows(attribute, codes, base, list_ptr, list_base, ptr, out_attribute, out_code):
    """Columns of codes to rows: event ``e`` owns entries ``ptr[e]:ptr[e+1]``. Returns the number of entries.

    Column ``c`` starts at ``codes[base[c]]``. It holds one code per event, or, where ``list_base[c]`` is not negative,
    those of the lists that ``list_ptr[list_base[c] + e]`` delimits. The outputs have room for every code.
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
    """Rows with an entry behind each event's own for every list attribute it has. Returns the number of entries."""
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
    """Keys of strings in a sorted pool: ``2r`` for the pool's string ``r``, ``2r + 1`` for the gap above it, -1 below all."""
    for i in range(offsets.size - 1):
        lo = 0
        hi = pool_offsets.size - 1
        equal = False
        while lo < hi and not equal:
            mid = (lo + hi) >> 1
            order = compare_bytes(
                data, offsets[i], offsets[i + 1], pool_data, pool_offsets[mid], pool_offsets[mid + 1]
            )
            if order == 0:
                equal = True
                lo = mid
            elif order > 0:
                lo = mid + 1
            else:
                hi = mid
        out[i] = 2 * lo if equal else 2 * lo - 1


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
