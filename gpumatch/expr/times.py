"""Dates and timestamps: to and from text, and from a zone's wall clock to an instant."""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo

from gpumatch.errors import ParseError, SchemaError
from gpumatch.expr.atoms import Timestamp

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}|[+-][0-9]{4,})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")
EPOCH = dt.date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = dt.date.min.toordinal() - EPOCH, dt.date.max.toordinal() - EPOCH  # the years 1 to 9999
_CYCLE_START = dt.date(2000, 1, 1).toordinal() - EPOCH
_CYCLE = 146_097  # days in 400 years, after which the calendar repeats
SECOND = 1_000_000_000
_DAY = 86_400 * SECOND


def parse_date(text: str) -> dt.date:
    """``2024-01-31``, years 1 to 9999."""
    try:
        if _DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
    except ValueError:
        pass
    raise ParseError(f"{text!r} is not a date; expected 'YYYY-MM-DD'", text)


def parse_timestamp(text: str) -> Timestamp:
    """``2024-01-31 12:00[:00[.123456789]][Z|+hh:mm]`` or a date, which means midnight; zoned if it names an offset."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match:
            return _timestamp(*match.groups())
    except ValueError:
        pass
    raise ParseError(f"{text!r} is not a timestamp; expected 'YYYY-MM-DD hh:mm[:ss[.fraction]][Z|+hh:mm]'", text)


def _timestamp(
    year: str,
    month: str,
    day: str,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    offset: str | None,
) -> Timestamp:
    cycle, within = divmod(int(year) - 2000, 400)
    date = dt.date(2000 + within, int(month), int(day))
    time = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    days = date.toordinal() - EPOCH + cycle * _CYCLE
    seconds = days * 86_400 + time.hour * 3600 + time.minute * 60 + time.second
    if offset and offset not in "Zz":
        seconds -= _offset_minutes(offset) * 60
    return Timestamp(seconds * SECOND + int((fraction or "").ljust(9, "0")), offset is not None)


def _offset_minutes(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError(text)
    time = dt.time(int(match[2]), int(match[3]))
    minutes = time.hour * 60 + time.minute
    return -minutes if match[1] == "-" else minutes


def timestamp_text(value: Timestamp) -> str:
    """Text that ``parse_timestamp`` reads back; years outside 0 to 9999 have a sign."""
    days, rest = divmod(value.nanos, _DAY)
    cycle, within = divmod(days - _CYCLE_START, _CYCLE)
    date = dt.date.fromordinal(EPOCH + _CYCLE_START + within)
    year = date.year + 400 * cycle
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    seconds, nanos = divmod(rest, SECOND)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
    return f"{shown}-{date.month:02}-{date.day:02} {clock}{'Z' if value.zoned else ''}"


def midnight(date: dt.date) -> Timestamp:
    return Timestamp((date.toordinal() - EPOCH) * _DAY)


def from_datetime(value: dt.datetime) -> Timestamp:
    zoned = value.utcoffset() is not None
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if zoned else None)
    since = (value if zoned else value.replace(tzinfo=None)) - epoch
    return Timestamp(((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000, zoned)


def in_zone(clock: Timestamp, zone: dt.tzinfo) -> Timestamp:
    """The instant at which the zone's wall clock shows ``clock``; the first, if it does so twice."""
    days, rest = divmod(clock.nanos, _DAY)
    if days > LAST_DAY:  # a zone's rules go on for ever, in cycles of 400 years
        days = LAST_DAY - (LAST_DAY - days) % _CYCLE
    elif days < FIRST_DAY:
        days = FIRST_DAY + (days - FIRST_DAY) % _CYCLE
    local = dt.datetime.fromordinal(EPOCH + days) + dt.timedelta(microseconds=rest // 1000)
    offset = zone.utcoffset(local.replace(tzinfo=zone)) or dt.timedelta()
    return Timestamp(clock.nanos - offset // dt.timedelta(microseconds=1) * 1000, True)


@functools.lru_cache(maxsize=1024)
def zone_named(name: str, attribute: str) -> dt.tzinfo:
    """A zone of the tz database or an offset such as ``+05:30``."""
    if name.upper() in ("UTC", "Z"):
        return dt.UTC
    try:
        if _OFFSET.fullmatch(name):
            return dt.timezone(dt.timedelta(minutes=_offset_minutes(name)))
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise SchemaError(f"attribute {attribute!r} has time zone {name!r}, which the tz database lacks") from None
