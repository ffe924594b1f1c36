"""Turns texts into blocks: those of one shape are normalised once, and their constants are bound as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from gpumatch.errors import GpumatchError
from gpumatch.expr import Predicate, Shape, Slot, constant, parse_alike, parse_many
from gpumatch.expr.normal import Splitting, normal_form, plain
from gpumatch.expr.patterns import prefix, read
from gpumatch.expr.typing_rules import operands, pattern_of
from gpumatch.subscriptions.binding import Binding
from gpumatch.subscriptions.block import Attributes, Block, BlockBuilder
from gpumatch.subscriptions.unlike import add_unlike

Texts: TypeAlias = "Sequence[Any] | Mapping[int, Any]"  # by row; anything but text is an error
Errors: TypeAlias = "dict[int, GpumatchError]"  # by row

_AT_ONCE = 1 << 17  # texts per chunk: if all differ, shapes take much memory
_MANY = 16  # from this many rows on, binding whole columns pays


def text_block(attributes: Attributes, texts: Sequence[Any], splitting: Splitting) -> tuple[Block, Errors]:
    """The block of texts, and the error of each that is not an expression. Rows with errors have no clause."""
    builder = BlockBuilder(attributes.schema)
    errors: Errors = {}
    add_texts(builder, attributes, splitting, texts, range(len(texts)), errors)
    return builder.build(len(texts)), dict(sorted(errors.items()))


def add_texts(
    builder: BlockBuilder,
    attributes: Attributes,
    splitting: Splitting,
    texts: Texts,
    rows: Sequence[int],
    errors: Errors,
) -> None:
    """Add the texts of these rows; those that are wrong go to ``errors`` instead."""
    for start in range(0, len(rows), _AT_ONCE):
        shapes, others = _alike(texts, rows[start : start + _AT_ONCE], errors)
        others = add_unlike(builder, attributes, splitting, texts, others)
        for shape in shapes + parsed(texts, others, errors):
            for part in _by_pattern(shape):
                add_shape(builder, attributes, splitting, part, errors)


def parsed(texts: Texts, rows: Sequence[int], errors: Errors) -> list[Shape]:
    """The shapes of texts; the error of each that is not an expression goes to ``errors``."""
    shapes, wrong = parse_many([texts[row] for row in rows])
    errors.update((rows[at], error) for at, error in wrong.items())
    return _of_rows(shapes, rows)


def _alike(texts: Texts, rows: Sequence[int], errors: Errors) -> tuple[list[Shape], Sequence[int]]:
    """The shapes that many texts share, and the remaining rows."""
    if len(rows) < _MANY:
        return [], rows
    shapes, wrong, others = parse_alike([texts[row] for row in rows], _MANY)
    errors.update((rows[at], error) for at, error in wrong.items())
    return _of_rows(shapes, rows), [rows[at] for at in others]


def _of_rows(shapes: Iterable[Shape], rows: Sequence[int]) -> list[Shape]:
    return [replace(shape, rows=[rows[at] for at in shape.rows]) for shape in shapes]


def _by_pattern(shape: Shape) -> list[Shape]:
    """The shape in operators that have a normal form, split by which LIKE patterns are more than a prefix."""
    template = shape.template
    likes = [(at, p) for at, p in enumerate(template.program) if isinstance(p, Predicate) and p.op == "like"]
    if not likes:
        plainer = any(item.op == "is" for item in template.predicates())
        return [replace(shape, template=plain(template, ())) if plainer else shape]
    kinds = list(zip(*[_searching(item, shape) for _, item in likes], strict=True))
    parts = []
    for kind in dict.fromkeys(kinds):
        made = plain(template, {at for (at, _), searched in zip(likes, kind, strict=True) if searched})
        chosen = [row for row, found in enumerate(kinds) if found == kind]
        if len(chosen) == len(kinds):
            return [replace(shape, template=made)]
        columns = [[column[row] for row in chosen] for column in shape.constants]
        parts.append(Shape(made, [shape.rows[row] for row in chosen], columns))
    return parts


def _searching(item: Predicate, shape: Shape) -> list[bool]:
    """Whether the LIKE pattern of each row is more than a prefix; malformed ones are reported elsewhere."""
    columns = [shape.constants[v.index] if isinstance(v, Slot) else [v] * len(shape.rows) for v in item.values]
    kinds = [v.kind if isinstance(v, Slot) else None for v in item.values]
    known: dict[tuple[Any, ...], bool] = {}
    for given in set(zip(*columns, strict=True)):
        try:
            values = [v if kind is None else constant(v, kind) for v, kind in zip(given, kinds, strict=True)]
            known[given] = prefix(read(pattern_of(values, item.attribute))) is None
        except GpumatchError:
            known[given] = True
    return [known[given] for given in zip(*columns, strict=True)]


def add_shape(
    builder: BlockBuilder, attributes: Attributes, splitting: Splitting, shape: Shape, errors: Errors
) -> None:
    """Add the subscriptions of a shape. Rows whose constants do not suit go to ``errors`` instead."""
    schema = attributes.schema
    try:
        form = normal_form(shape.template, lambda name: schema[name].multi, splitting)
        for predicate in shape.template.predicates():
            operands(predicate, schema[predicate.attribute])
    except GpumatchError as error:
        errors.update((row, error) for row in shape.rows)
        return
    binding = Binding(builder, attributes, shape)
    binding.check(errors, len(shape.rows) >= _MANY)
    if len(binding.rows) == 0:
        return
    programs = binding.programs(form.program) if form.program else None
    for clause in form.clauses:
        literals = [one for literal in clause for one in binding.literals(literal)]
        builder.add_columns(binding.rows, literals, programs)
