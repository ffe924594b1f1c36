"""Subscriptions and events by the hundred thousand, for gpumatch and DuckDB alike: repeatable, and hostile.

A *shape* is an expression with holes for its constants. Both engines get the same text, save for XOR and XNOR, which
DuckDB writes as <> and = of conditions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

BERLIN = "timestamp[us, tz=Europe/Berlin]"
TYPES = {  # attributes of each type
    "int64": 7,
    "int32": 2,
    "int8": 2,
    "float64": 7,
    "float32": 2,
    "bool": 3,
    "string": 10,
    "date": 3,
    "timestamp[us]": 4,
    "timestamp[ns]": 2,
    BERLIN: 3,
}
NUMERIC = ("int64", "int32", "int8", "float64", "float32")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
REVERSED = {"reversed <": ">", "reversed >=": "<=", "reversed =": "="}  # with the constant first, and what that means
LIKES = ("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")
ESCAPING = " ESCAPE '!'"
TRUTHS = ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE")
WORDS = (
    "", " ", "a", "ab", "abc", "abd", "b", "B", "é", "e\u0301", "ß", "ss", "ſ", "İ", "it's", "''", "a%b", "a_b", "%",
    "\\", '"', "`", "NULL", "true", "5", "日本語", "日本", "\u202eabc", "\ufffd", "\uffff", "\ue000", "\ud7ff", "😀",
    "😀😀", "\U0010ffff", "a\nb", "a\tb", "a;b--c", "x" * 300, "x" * 299 + "y", "long " * 50,
    *(f"sym{at:03}" for at in range(60)),
)  # fmt: skip
INTS = (0, 1, -1, 2**31, -(2**31), 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 2, 2**63 - 1, -(2**63))
FLOATS = (
    0.0,
    -0.0,
    0.1,
    0.1 + 0.2,
    1 / 3,
    5e-324,
    2.2250738585072014e-308,
    1e22,
    2.0**53,
    -1e300,
    1.7976931348623157e308,
)
_DAY0, _TIME0 = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1)


class Constant(NamedTuple):
    """As both engines write it, and bare, as a column of constants holds it."""

    sql: str
    bare: str


def number(value: float | int | str) -> Constant:
    """Floats of many digits are written with an exponent: others are decimals in DuckDB, which rounds them twice."""
    text = str(value)
    if isinstance(value, float) and (len(text) > 15 or "e" in text or "inf" in text):
        text = f"{value:.17e}" if np.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"
    return Constant(text, text)


def quoted(text: str) -> Constant:
    return Constant("'" + text.replace("'", "''") + "'", text)


def keyword(word: str, text: str) -> Constant:
    return Constant(f"{word} '{text}'", text)


def _times(rng: np.random.Generator, count: int) -> list[dt.datetime]:
    """Within three days, some of them at the same time; the year's first, so that no clock is set."""
    steps = rng.integers(0, 3 * 24 * 60, count) * 60_000_000 + rng.choice([0, 0, 1, 500_000, 999_999], count)
    return [_TIME0 + dt.timedelta(microseconds=int(step)) for step in steps]


def _many(kind: str, rng: np.random.Generator) -> list[Any]:
    """Values that hardly repeat."""
    if kind == "int64":
        return rng.integers(-(10**12), 10**12, 4000).tolist()
    if kind == "float64":
        return rng.normal(0, 100, 4000).tolist()
    if kind == "string":
        return [f"word {at}" for at in rng.integers(0, 10**6, 4000)]
    return _times(rng, 4000) if kind == "timestamp[us]" else []


def _values(kind: str, rng: np.random.Generator) -> list[Any]:
    """What events hold of a type; constants are chosen from the same, so that they meet."""
    if kind in ("int64", "int32", "int8"):
        limit = int(kind[3:])
        special = [value for value in INTS if -(2 ** (limit - 1)) <= value < 2 ** (limit - 1)]
        return [*special, -(2 ** (limit - 1)), 2 ** (limit - 1) - 1, *range(-10, 90)]
    if kind == "float64":
        return [*FLOATS, float("inf"), float("-inf"), *(at / 4 for at in range(-20, 160))]
    if kind == "float32":
        return [float(np.float32(value)) for value in (0.1, 1 / 3, *(at / 8 for at in range(-20, 80)))]
    if kind == "bool":
        return [True, False]
    if kind == "string":
        return [*WORDS, *(f"word {at}" for at in rng.integers(0, 500, 40))]
    if kind == "date":
        far = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]
        return [*far, *(_DAY0 + dt.timedelta(days=at) for at in range(60))]
    return _times(rng, 80)


def _constants(kind: str, values: list[Any], rng: np.random.Generator) -> list[Constant]:
    """Constants of a type in every form that means the same to both engines."""
    if kind in ("int64", "int32", "int8"):
        beyond = [2**64, -(2**70), 300, "2.5", "-0.0", "7.0", "9007199254740993.0", "9223372036854775806.5"]
        beyond += ["1e1", "2.5e0"] if kind != "int64" else []  # DuckDB compares as floats then
        return [number(value) for value in [*values, *beyond, *range(40)]]
    if kind in ("float64", "float32"):
        return [number(value) for value in [*values, *range(-3, 30), "1e1", ".5", "+3."]]
    if kind == "bool":
        return [Constant("TRUE", "true"), Constant("FALSE", "false")]
    if kind == "string":
        return [quoted(value) for value in values]
    if kind == "date":
        texts = [value.isoformat() for value in values]
        return [quoted(text) if rng.random() < 0.5 else keyword("DATE", text) for text in texts]
    texts = [value.isoformat(sep=rng.choice([" ", "T"])) for value in values]
    if kind == "timestamp[ns]":  # DuckDB cuts TIMESTAMP '…' to microseconds
        return [quoted(f"{text}{'' if '.' in text else '.000000'}{rng.integers(1000):03}") for text in texts]
    if kind == BERLIN:  # DuckDB drops the offset of TIMESTAMP '…'
        return [quoted(text + rng.choice(["", "", "+00:00", "+01:00", "-05:30"])) for text in texts]
    days = [keyword("DATE", (_DAY0 + dt.timedelta(days=at)).isoformat()) for at in range(4)]
    return [*days, *(quoted(text) if rng.random() < 0.5 else keyword("TIMESTAMP", text) for text in texts)]


@dataclass
class World:
    """A schema, what its attributes are compared with, and events."""

    rng: np.random.Generator
    types: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    constants: dict[str, list[Constant]] = field(default_factory=dict)

    @classmethod
    def of(cls, rng: np.random.Generator) -> World:
        world = cls(rng)
        for kind, count in TYPES.items():
            for at in range(count):
                name = f"{kind.split('[')[0]}{'z' if kind == BERLIN else 'n' if 'ns' in kind else ''} {at}"
                world.types[name] = kind
                world.values[name] = _values(kind, rng) + (_many(kind, rng) if at < 2 else [])
                world.constants[name] = _constants(kind, world.values[name], rng)
        return world

    def events(self, count: int) -> pa.Table:
        """Most attributes are null here and there, some nearly always."""
        columns = {}
        for name, kind in self.types.items():
            pool, gone = self.values[name], self.rng.choice([0.0, 0.05, 0.3, 0.9])
            chosen = [pool[at] for at in self.rng.integers(0, len(pool), count)]
            if kind == "int64":
                chosen = [max(-(2**63), min(value + int(self.rng.integers(-1, 2)), 2**63 - 1)) for value in chosen]
            there = self.rng.random(count) >= gone
            columns[name] = _column(kind, [v if here else None for v, here in zip(chosen, there, strict=True)])
        return pa.table(columns)


def _column(kind: str, values: list[Any]) -> pa.Array:
    if kind == BERLIN:
        zoned = [None if value is None else value.replace(tzinfo=dt.UTC) for value in values]
        return pa.array(zoned, pa.timestamp("us", "Europe/Berlin"))
    named: dict[str, Any] = {
        "date": pa.date32(),
        "timestamp[us]": pa.timestamp("us"),
        "timestamp[ns]": pa.timestamp("ns"),
    }
    return pa.array(values, named.get(kind) or pa.type_for_alias(kind))


class Leaf(NamedTuple):
    """A condition with holes."""

    attribute: str
    op: str
    holes: int
    text: str


class Node(NamedTuple):
    kind: str
    parts: tuple[Leaf | Node, ...]


class Shape(NamedTuple):
    """Texts with ``{}`` for constants, the attribute of each, and the tree."""

    ours: str
    theirs: str
    holes: tuple[str, ...]
    tree: Leaf | Node

    @property
    def leaves(self) -> list[Leaf]:
        return list(_leaves(self.tree))

    @property
    def kinds(self) -> set[str]:
        return {leaf.op for leaf in self.leaves} | set(_connectives(self.tree))


def _leaves(tree: Leaf | Node) -> Iterator[Leaf]:
    if isinstance(tree, Leaf):
        yield tree
    else:
        for part in tree.parts:
            yield from _leaves(part)


def _connectives(tree: Leaf | Node) -> Iterator[str]:
    if isinstance(tree, Node):
        yield tree.kind
        for part in tree.parts:
            yield from _connectives(part)


def _leaf(world: World, attributes: list[str]) -> Leaf:
    rng = world.rng
    name = attributes[rng.integers(len(attributes))]
    kind = world.types[name]
    ops = [*COMPARISONS, "=", "BETWEEN", "BETWEEN", "NOT BETWEEN", "IN", "IN", "NOT IN", "IS NULL", "IS NOT NULL"]
    ops += ["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
    ops += [*LIKES, *LIKES] if kind == "string" else ["bare", *TRUTHS] if kind == "bool" else [*REVERSED]
    op = str(rng.choice(ops))
    holes = {"BETWEEN": 2, "NOT BETWEEN": 2, **dict.fromkeys(("IS NULL", "IS NOT NULL", "bare", *TRUTHS), 0)}.get(op, 1)
    if op in ("IN", "NOT IN"):
        holes = int(rng.choice([1, 2, 3, 4, 8]))
    return Leaf(name, op, holes, _condition(f'"{name}"', op, holes, rng))


def _condition(name: str, op: str, holes: int, rng: np.random.Generator) -> str:
    if op == "bare":
        return name
    if op in REVERSED:
        return f"{{}} {op.split()[1]} {name}"
    if op in COMPARISONS:
        return f"{name} {rng.choice({'=': ['=', '=='], '<>': ['<>', '!=']}.get(op, [op]))} {{}}"
    if "BETWEEN" in op:
        return f"{name} {op} {{}} AND {{}}"
    if op in ("IN", "NOT IN"):
        return f"{name} {op} ({', '.join(['{}'] * holes)})"
    if "LIKE" in op:
        return f"{name} {op} {{}}" + rng.choice(["", ESCAPING])
    return f"{name} {op} {{}}" if "DISTINCT" in op else f"{name} {op}"


def _tree(world: World, attributes: list[str], depth: int) -> Leaf | Node:
    rng = world.rng
    if depth == 0 or rng.random() < 0.3:
        return _leaf(world, attributes)
    kind = str(rng.choice(["AND", "AND", "OR", "NOT", "XOR", "XNOR"], p=[0.3, 0.3, 0.2, 0.1, 0.06, 0.04]))
    parts = 1 if kind == "NOT" else int(rng.integers(2, 5)) if kind in ("AND", "OR") else 2
    return Node(kind, tuple(_tree(world, attributes, depth - 1) for _ in range(parts)))


def _written(tree: Leaf | Node, write: Callable[[str, list[str]], str]) -> str:
    if isinstance(tree, Leaf):
        return tree.text
    return write(tree.kind, [_written(part, write) for part in tree.parts])


def _ours(kind: str, parts: list[str]) -> str:
    return f"NOT ({parts[0]})" if kind == "NOT" else "(" + f" {kind} ".join(parts) + ")"


def _theirs(kind: str, parts: list[str]) -> str:
    return f"(({parts[0]}) {'<>' if kind == 'XOR' else '='} ({parts[1]}))" if kind[0] == "X" else _ours(kind, parts)


def shape(tree: Leaf | Node) -> Shape:
    holes = tuple(leaf.attribute for leaf in _leaves(tree) for _ in range(leaf.holes))
    return Shape(_written(tree, _ours), _written(tree, _theirs), holes, tree)


def random_shapes(world: World, count: int, attributes: list[str] | None = None, depth: int = 2) -> list[Shape]:
    """Half of them conjunctions, as most subscriptions are."""
    names = attributes or list(world.types)
    trees: list[Leaf | Node] = []
    for at in range(count):
        if at % 2:
            trees.append(_tree(world, names, depth))
        else:
            trees.append(Node("AND", tuple(_leaf(world, names) for _ in range(world.rng.integers(2, 6)))))
    return [shape(tree) for tree in trees]


class Subscriptions(NamedTuple):
    """Expressions of some shapes: which, and with which constants."""

    shapes: list[Shape]
    numbers: list[int]
    constants: list[list[Constant]]

    def ours(self) -> list[str]:
        return [self._fill(self.shapes[at].ours, given) for at, given in zip(self.numbers, self.constants, strict=True)]

    def theirs(self) -> list[str]:
        return [
            self._fill(self.shapes[at].theirs, given) for at, given in zip(self.numbers, self.constants, strict=True)
        ]

    @staticmethod
    def _fill(text: str, given: list[Constant]) -> str:
        return text.format(*(constant.sql for constant in given))

    def __len__(self) -> int:
        return len(self.numbers)


def fill(world: World, shapes: list[Shape], count: int) -> Subscriptions:
    """Every shape at least once, a few very often; constants repeat, within a list as well."""
    rng = world.rng
    numbers = [*range(min(count, len(shapes)))]
    numbers += (len(shapes) * rng.random(count - len(numbers)) ** 3).astype(int).tolist()
    draws = rng.random((count, 16)) ** 1.5
    constants = []
    for row, at in enumerate(numbers):
        chosen = []
        for hole, name in enumerate(shapes[at].holes):
            pool = world.constants[name]
            chosen.append(pool[int(draws[row, hole % 16] * len(pool))])
        constants.append(_patterns(shapes[at], chosen, rng))
    return Subscriptions(shapes, numbers, constants)


def _patterns(shape: Shape, chosen: list[Constant], rng: np.random.Generator) -> list[Constant]:
    """The constants with patterns in the place of LIKE's."""
    at = 0
    for leaf in shape.leaves:
        if "LIKE" in leaf.op:
            chosen[at] = _pattern(chosen[at].bare, ESCAPING in leaf.text, rng)
        at += leaf.holes
    return chosen


def _pattern(text: str, escaping: bool, rng: np.random.Generator) -> Constant:
    """A piece of a text with wildcards around and within. DuckDB has no escape character unless one is named, so
    without one there are no backslashes, and wildcards of the text stay what they are."""
    first, last = sorted(rng.integers(0, len(text) + 1, 2).tolist())
    first, last = (0, last) if rng.random() < 0.3 else (first, len(text)) if rng.random() < 0.3 else (first, last)
    characters = [one for one in text[first:last] if escaping or one != "\\"]
    wild = [rng.random() < 0.1 for _ in characters]
    ends = rng.choice(["", "%", "%", "_", "%%"], 2)
    sql, bare = ("".join(_escaped(characters, wild, escape if escaping else "")) for escape in "!\\")
    return Constant(quoted(ends[0] + sql + ends[1]).sql, ends[0] + bare + ends[1])


def _escaped(characters: list[str], wild: list[bool], escape: str) -> Iterator[str]:
    for character, gone in zip(characters, wild, strict=True):
        if gone:
            yield "_" if ord(character) % 2 else "%"
        else:
            yield escape + character if character in ("%", "_", escape) else character


RANGED = ("int64", "float64", "string", "date", "timestamp[us]")
Ends: TypeAlias = "tuple[list[Any], list[Any]]"  # low and high, None where a side is open
CLOSED = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "neither": (">", "<")}


def fill_ranges(world: World, closed: str, shapes: int, count: int) -> tuple[Subscriptions, dict[str, Ends]]:
    """Conjunctions of ranges, some open on a side, as expressions and as arrays of ends."""
    rng = world.rng
    names = [name for name, kind in world.types.items() if kind in RANGED][::4]
    ordered = {name: sorted(world.values[name], key=_place) for name in names}
    sides = [rng.choice(4, len(names), p=[0.5, 0.15, 0.15, 0.2]) for _ in range(shapes)]  # none, low, high, both
    numbers = rng.integers(0, shapes, count).tolist()
    ends: dict[str, Ends] = {name: ([None] * count, [None] * count) for name in names}
    constants: list[list[Constant]] = []
    for row, at in enumerate(numbers):
        constants.append([])
        for name, side in zip(names, sides[at].tolist(), strict=True):
            pair = sorted(rng.integers(0, len(ordered[name]), 2).tolist())
            for end in (0, 1):
                if side & (end + 1):
                    value = ordered[name][pair[end]]
                    ends[name][end][row] = value
                    constants[-1].append(_written_value(value))
    made = [shape(_ranges(names, side.tolist(), CLOSED[closed])) for side in sides]
    return Subscriptions(made, numbers, constants), ends


def _place(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _written_value(value: Any) -> Constant:
    return number(value) if isinstance(value, (int, float)) else quoted(value if isinstance(value, str) else str(value))


def _ranges(names: list[str], sides: list[int], ops: tuple[str, str]) -> Node:
    leaves = [
        Leaf(name, ops[end], 1, f'"{name}" {ops[end]} {{}}')
        for name, side in zip(names, sides, strict=True)
        for end in (0, 1)
        if side & (end + 1)
    ]
    return Node("AND", tuple(leaves) or (Leaf("", "TRUE", 0, "TRUE"),))
