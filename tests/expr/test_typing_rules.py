"""Constants against attribute types: one table, with messages that name attribute, type and constant."""

from __future__ import annotations

import datetime as dt

import pytest

from gpumatch.errors import SchemaError
from gpumatch.expr import Timestamp, check, coerce, parse, parse_many
from gpumatch.schema import Schema, parse_type

TYPES = {
    "i": "int64",
    "f": "float32",
    "b": "bool",
    "s": "string",
    "d": "date",
    "t": "timestamp[us]",
    "z": "timestamp[ns, tz=Europe/Berlin]",
}
SCHEMA = Schema.of({**TYPES, **{f"{name}_list": f"list<{kind}>" for name, kind in TYPES.items()}})
FITS = {
    "5": "if",
    "2.5": "if",
    "INFINITY": "if",
    "10000000000000000000000": "if",
    "TRUE": "b",
    "'x'": "s",
    "''": "s",
    "'2024-01-31'": "sdtz",
    "'2024-01-31 12:00'": "stz",
    "'2024-01-31T12:00Z'": "sz",
    "DATE '2024-01-31'": "dtz",
    "TIMESTAMP '2024-01-31 12:00'": "tz",
    "TIMESTAMP '2024-01-31 12:00Z'": "z",
}


@pytest.mark.parametrize("name", SCHEMA.names)
@pytest.mark.parametrize("constant", FITS)
@pytest.mark.parametrize("test", ["{} = {}", "{} >= {}", "{} NOT IN ({})", "{0} BETWEEN {1} AND {1}"])
def test_table(name: str, constant: str, test: str) -> None:
    expr = parse(test.format(name, constant))
    if name[0] in FITS[constant]:
        check(expr, SCHEMA)
        return
    with pytest.raises(SchemaError) as caught:
        check(expr, SCHEMA)
    assert repr(name) in str(caught.value)
    assert str(SCHEMA[name]) in str(caught.value)
    assert constant.split("'")[-2 if "'" in constant else 0].replace("T", " ")[:10] in str(caught.value).replace(
        "T", " "
    )


def test_messages() -> None:
    for text, message in {
        "i < 'x'": "attribute 'i' has type int64 and is compared with 'x'; expected a number",
        "s_list = 5": "attribute 's_list' has type list<string> and is compared with 5; expected a string",
        "b = 1": "attribute 'b' has type bool and is compared with 1; expected TRUE or FALSE",
        "i": "attribute 'i' has type int64 and is compared with TRUE; expected a number",
        "i LIKE 'a%'": "attribute 'i' has type int64; LIKE works on strings only",
        "d = TIMESTAMP '2024-01-31 12:00'": "compared with TIMESTAMP '2024-01-31 12:00:00'; expected a date",
        "t < TIMESTAMP '2024-01-31 12:00Z'": "remove the zone from the constant",
        "d = '2024-02-31'": "attribute 'd' has type date: '2024-02-31' is not a date; expected 'YYYY-MM-DD'",
        "px = 5 OR i = 5": "unknown attribute 'px'",
        "i_lst = 5": "unknown attribute 'i_lst'; did you mean",
    }.items():
        with pytest.raises(SchemaError) as caught:
            check(parse(text), SCHEMA)
        assert message in str(caught.value)


def test_null_tests_and_empty_lists_fit_all_types() -> None:
    for name in SCHEMA.names:
        check(parse(f"{name} IS NULL OR {name} IN ()"), SCHEMA)


def test_templates_are_checked_without_their_constants() -> None:
    (shape, other), _ = parse_many(["i > 5 AND s LIKE 'a%'", "i LIKE 'a%'"])
    check(shape.template, SCHEMA)
    with pytest.raises(SchemaError, match="LIKE"):
        check(other.template, SCHEMA)


def instant(text: str) -> Timestamp:
    (value,) = next(parse(f"x = TIMESTAMP '{text}'").predicates()).values
    assert isinstance(value, Timestamp)
    return value


@pytest.mark.parametrize(
    ("zone", "clock", "utc"),
    [
        ("Europe/Berlin", "2024-01-31 12:00:00.000000001", "2024-01-31 11:00:00.000000001Z"),
        ("Europe/Berlin", "2024-07-31", "2024-07-30 22:00Z"),
        ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27 00:30Z"),  # shown twice: the first
        ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31 01:30Z"),  # never shown: as if the clock had gone on
        ("America/New_York", "+12024-07-31 00:00", "+12024-07-31 04:00Z"),
        ("America/New_York", "+12024-01-31 00:00", "+12024-01-31 05:00Z"),
        ("UTC", "-0500-01-31 00:00", "-0500-01-31 00:00Z"),
        ("America/New_York", "-0500-01-31 00:00", "-0500-01-31 04:56:02Z"),  # local mean time
        ("+05:30", "2024-01-31 00:00", "2024-01-30 18:30Z"),
        ("-05:30", "0001-01-01 00:00", "0001-01-01 05:30Z"),
        ("Europe/Berlin", "2024-01-31 12:00-03:00", "2024-01-31 15:00Z"),
    ],
)
def test_clock_of_a_zone(zone: str, clock: str, utc: str) -> None:
    kind = parse_type("z", f"timestamp[us, tz={zone}]")
    assert coerce(instant(clock), kind, "z") == instant(utc)
    assert coerce(clock, kind, "z") == instant(utc)


def test_what_constants_become() -> None:
    day = dt.date(2024, 1, 31)
    assert coerce("2024-01-31", SCHEMA["d"], "d") == day
    assert coerce(day, SCHEMA["t"], "t") == coerce("2024-01-31", SCHEMA["t"], "t") == instant("2024-01-31 00:00")
    assert coerce(2.5, SCHEMA["i"], "i") == 2.5
    assert coerce(2**70, SCHEMA["f"], "f") == 2**70
    with pytest.raises(SchemaError, match="'z' has time zone 'Mars/Base'"):
        coerce(day, parse_type("z", "timestamp[us, tz=Mars/Base]"), "z")
