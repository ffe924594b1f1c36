"""Texts that differ only in their constants share a shape, which is parsed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpumatch.errors import ParseError
from gpumatch.expr.atoms import Slot
from gpumatch.expr.constants import SlotKind, constant
from gpumatch.expr.parser import parse_template
from gpumatch.expr.tokens import divide, find_surrogate
from gpumatch.expr.tree import Expr, Item, Predicate

_CACHED_SHAPES, _CACHED_LENGTH = 1024, 4096  # most templates kept, and the longest texts to keep one for
_STRETCH, _TRIAL = 4096, 512  # the first texts of a stretch show whether it pays to group the others by shape
_cache: dict[tuple[str, ...], Expr] = {}


@dataclass(frozen=True, slots=True)
class Shape:
    """A template and the constants of the texts that fill it: one list per slot, parallel to ``rows``."""

    template: Expr
    rows: list[int]
    constants: list[list[str]]


@dataclass(slots=True)
class _Group:
    """A shape while texts are read: the constants of all rows in sequence."""

    template: Expr
    rows: list[int]
    flat: list[str]


def parse(text: str) -> Expr:
    """One expression from text; anything wrong with it is a ParseError with its position."""
    _require_text(text)
    pieces, raw = divide(text)
    template = _cache.get(pieces)
    if template is None:
        template, _ = parse_template(text)
        if len(_cache) >= _CACHED_SHAPES:
            _cache.clear()
        if len(text) <= _CACHED_LENGTH:
            _cache[pieces] = template
    try:
        return bind(template, raw)
    except ParseError:
        raise _misfit(text) from None


def parse_many(texts: Sequence[str]) -> tuple[list[Shape], dict[int, ParseError]]:
    """Shapes in the order of first appearance, and the error of every row that is not an expression."""
    groups: dict[tuple[str, ...], _Group] = {}
    by_template: dict[Expr, _Group] = {}
    errors: dict[int, ParseError] = {}
    for row, text in enumerate(texts):
        try:
            _require_text(text)
            pieces, raw = divide(text)
            group = groups.get(pieces)
            if group is None:
                template, _ = parse_template(text)
                group = groups[pieces] = by_template.setdefault(template, _Group(template, [], []))
        except ParseError as error:
            errors[row] = error
            continue
        group.rows.append(row)
        group.flat += raw
    shapes = [_shape(group, texts, errors) for group in by_template.values()]
    return [shape for shape in shapes if shape.rows], dict(sorted(errors.items()))


def parse_alike(texts: Sequence[str], least: int) -> tuple[list[Shape], dict[int, ParseError], list[int]]:
    """As ``parse_many``, for shapes of at least ``least`` texts; the rows of all other texts are returned last."""
    found, others = _alike(texts)
    by_template: dict[Expr, _Group] = {}
    for rows, flat in found.values():
        try:
            template = parse_template(texts[rows[0]])[0] if len(rows) >= least else None
        except ParseError:  # each text has an error of its own
            template = None
        if template is None:
            others += rows
        else:
            group = by_template.setdefault(template, _Group(template, [], []))
            group.rows += rows
            group.flat += flat
    errors: dict[int, ParseError] = {}
    shapes = [_shape(group, texts, errors) for group in by_template.values()]
    return [shape for shape in shapes if shape.rows], errors, sorted(others)


def _alike(texts: Sequence[str]) -> tuple[dict[tuple[str, ...], tuple[list[int], list[str]]], list[int]]:
    """Rows and constants by the text between the constants, and the rows of texts that were not divided."""
    found: dict[tuple[str, ...], tuple[list[int], list[str]]] = {}
    others: list[int] = []
    for start in range(0, len(texts), _STRETCH):
        known, tried = 0, min(start + _TRIAL, len(texts))
        for row in range(start, min(start + _STRETCH, len(texts))):
            text = texts[row]
            if not isinstance(text, str) or find_surrogate(text) is not None or (row >= tried and known <= _TRIAL // 2):
                others.append(row)
                continue
            try:
                pieces, raw = divide(text)
            except ParseError:  # a comment without an end, which the parser explains
                others.append(row)
                continue
            group = found.get(pieces)
            if group is None:
                found[pieces] = [row], raw
            else:
                group[0].append(row)
                group[1].extend(raw)
                known += 1
    return found, others


def bind(template: Expr, raw: Sequence[str]) -> Expr:
    """The template with its slots filled by the raw constants of one text."""
    items: list[Item] = []
    for item in template.program:
        if isinstance(item, Predicate):
            values = tuple(constant(raw[v.index], v.kind) if isinstance(v, Slot) else v for v in item.values)
            item = Predicate(item.attribute, item.op, values, item.negated)
        items.append(item)
    return Expr(tuple(items))


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise ParseError(f"an expression is text, found {text!r}")
    at = find_surrogate(text)
    if at is not None:
        shown = text.encode("utf-8", "replace").decode()  # an error must be printable
        raise ParseError("a lone surrogate is not a character", shown, at)


def _shape(group: _Group, texts: Sequence[str], errors: dict[int, ParseError]) -> Shape:
    """Turn the constants into columns, and rows with a malformed one into errors."""
    slots = list(_slots(group.template))
    columns = [group.flat[slot.index :: len(slots)] for slot in slots]
    rows = group.rows
    group.flat = []
    bad = {at for slot, column in zip(slots, columns, strict=True) for at in malformed(column, slot.kind)}
    if bad:
        errors.update((rows[at], _misfit(texts[rows[at]])) for at in bad)
        keep = [at for at in range(len(rows)) if at not in bad]
        rows = [rows[at] for at in keep]
        columns = [[column[at] for at in keep] for column in columns]
    return Shape(group.template, rows, columns)


def _slots(template: Expr) -> Iterator[Slot]:
    return (value for item in template.predicates() for value in item.values if isinstance(value, Slot))


def malformed(column: list[str], kind: SlotKind) -> list[int]:
    """Positions of constants that have no value."""
    doubtful = set(column)
    if (
        kind == "literal"
    ):  # the tokenizer accepts only well-formed strings and numbers; only a large float is not a number
        doubtful = {raw for raw in doubtful if len(raw) > 300 or "e" in raw or "E" in raw}
    bad = {raw for raw in doubtful if not _has_value(raw, kind)}
    return [at for at, raw in enumerate(column) if raw in bad] if bad else []


def _has_value(raw: str, kind: SlotKind) -> bool:
    try:
        constant(raw, kind)
    except ParseError:
        return False
    return True


def _misfit(text: str) -> ParseError:
    """The error of a text with a valid shape and a wrong constant."""
    template, tokens = parse_template(text)
    for slot in _slots(template):
        token = tokens[slot.index]
        try:
            constant(token.text, slot.kind)
        except ParseError as error:
            return ParseError(error.message, text, token.position)
    raise AssertionError("every constant has a value")
