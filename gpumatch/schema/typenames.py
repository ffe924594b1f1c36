"""Schema names for types of Python, NumPy, Arrow, pandas and polars.

Libraries are recognised by the modules of their classes, so that none of them has to be imported.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, get_args, get_origin

_PYTHON = {int: "int64", float: "float64", str: "string", bool: "bool", dt.datetime: "timestamp", dt.date: "date"}
_POLARS = {
    **{f"Int{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "Float32": "float32",
    "Float64": "float64",
    "Boolean": "bool",
    "Date": "date",
    **dict.fromkeys(("String", "Utf8", "Categorical", "Enum"), "string"),
}
_PANDAS = {
    **{f"Int{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "Float32": "float32",
    "Float64": "float64",
    "boolean": "bool",
    "string": "string",
    "str": "string",
}
_DAYS = ("Y", "M", "W", "D")  # units of datetime64 that are dates
_CLOCKS = {"h": "us", "m": "us", "s": "us", "ms": "us", "us": "us", "ns": "ns"}


def type_name(given: Any) -> str:
    """The name of a type in a schema; a type without one gives a text that names no type."""
    if isinstance(given, str):
        return given
    bases = given.__mro__ if isinstance(given, type) else type(given).__mro__
    libraries = {base.__module__.partition(".")[0] for base in bases}
    for library, name in (("numpy", _numpy), ("pandas", _pandas), ("polars", _polars), ("pyarrow", _arrow)):
        if library in libraries:
            return name(given)
    return _python(given)


def _python(given: Any) -> str:
    if get_origin(given) in (list, set, frozenset):
        return f"list<{type_name(get_args(given)[0])}>"
    if isinstance(given, type):
        return _PYTHON.get(given, f"{given.__module__}.{given.__qualname__}".removeprefix("builtins."))
    return str(given)


def _numpy(given: Any) -> str:
    import numpy as np

    found = np.dtype(given)
    if found.kind in "UT":
        return "string"
    if found.kind == "M":
        unit = np.datetime_data(found)[0]
        return "date" if unit in _DAYS else f"timestamp[{_CLOCKS[unit]}]" if unit in _CLOCKS else str(found)
    name: str = found.name
    return name


def _pandas(given: Any) -> str:
    if hasattr(given, "pyarrow_dtype"):
        return type_name(given.pyarrow_dtype)
    if hasattr(given, "categories"):
        texts = given.categories is not None and given.categories.inferred_type == "string"
        return "string" if texts else str(given) if given.categories is None else type_name(given.categories.dtype)
    if hasattr(given, "subtype") and hasattr(given, "fill_value"):  # of sparse columns
        return type_name(given.subtype)
    if hasattr(given, "tz"):
        return f"timestamp[{given.unit}, tz={_zone(given.tz)}]"
    return _PANDAS.get(getattr(given, "name", ""), str(given))


def _zone(zone: Any) -> str:
    """A fixed offset, such as that of UTC+02:00, without the letters."""
    return re.sub(r"^UTC(?=[+-])", "", str(zone))


def _polars(given: Any) -> str:
    name = given.base_type().__name__
    if name in ("List", "Array") and hasattr(given, "inner"):
        return f"list<{type_name(given.inner)}>"
    if name == "Datetime":
        zone = getattr(given, "time_zone", None)
        return f"timestamp[{getattr(given, 'time_unit', None) or 'us'}{f', tz={zone}' if zone else ''}]"
    return _POLARS.get(name, str(given))


def _arrow(given: Any) -> str:
    text = str(given)
    if text.startswith("dictionary<"):
        return type_name(given.value_type)
    if re.match(r"(large_|fixed_size_)?list(_view)?<", text):
        return f"list<{type_name(given.value_type)}>"
    # Arrow writes float32 as "float", which could mean either in a dict: there it is refused.
    return "float32" if text == "float" else text
