"""Arguments shared by several commands."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import gpumatch as gm

INDEXES = "auto (default), " + ", ".join(sorted(name.lower() for name, home in gm._HOME.items() if home == "index"))


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return int(text)


def share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return share


def new_file(text: str) -> Path:
    """A path that can be written, checked before the work starts."""
    path = Path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, found {text!r}")
    return path


def schema_of(text: str) -> dict[str, str]:
    """A schema as ``name:type,name:type``, or the name of a JSON file that maps names to types."""
    if text.endswith(".json"):
        try:
            given = json.loads(Path(text).read_text())
        except ValueError as error:
            raise gm.SchemaError(f"{text} is not JSON: {error}") from None
        if not isinstance(given, dict) or not all(isinstance(kind, str) for kind in given.values()):
            raise gm.SchemaError(f'{text} must be an object that maps names to types, such as {{"px": "float64"}}')
        return given
    schema = {}
    for item in re.split(r",(?![^<\[]*[>\]])", text):  # not the comma of timestamp[us, tz=UTC]
        name, colon, kind = item.partition(":")
        if not colon:
            raise gm.SchemaError(f"--schema has {item.strip()!r}, expected name:type, as in px:float64,sym:string")
        if name.strip() in schema:
            raise gm.SchemaError(f"--schema names {name.strip()!r} twice")
        schema[name.strip()] = kind.strip()
    return schema
