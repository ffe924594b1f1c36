"""Random schemas, expressions and events, nasty values first."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from gpumatch.expr import Expr, Op, Predicate, Timestamp
from gpumatch.expr.patterns import escaped

_NEW_YEAR = 1704067200 * 10**9  # 2024
INTS = st.sampled_from([0, 1, -1, 2, 3, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(-4, 4)
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 0.5, 2.5, 1e300, 5e-324, float("inf"), float("-inf"), 2.0**53]) | st.floats(
    -4, 4, allow_nan=False
)
STRINGS = st.sampled_from(
    ["", "a", "ab", "abc", "b", "é", "a\x00", "\ud7ff", "\U0010ffff", "z", "''", "AB", "É", "a_b", "a%b", "a\nbcab"]
)
# With a text in it now and then, so that some patterns are met.
PATTERNS = st.lists(
    st.sampled_from(["%", "%", "_", "a", "b", "ab", "B", "é", "\x00", "\n", "\U0010ffff", r"\%", r"\_", r"\\"]),
    max_size=5,
).map("".join) | STRINGS.map(lambda text: f"%{escaped(text)}%")
DATES = st.dates(dt.date(2023, 12, 30), dt.date(2024, 1, 3)) | st.sampled_from(
    [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
)
TIMES = st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 2))
TYPES = (
    "int64",
    "int8",
    "float64",
    "float32",
    "bool",
    "string",
    "date",
    "timestamp",
    "timestamp[ns, tz=Europe/Berlin]",
)
SCALARS = {
    "int64": INTS,
    "int8": st.integers(-128, 127),
    "float64": FLOATS,
    "float32": st.sampled_from([0.0, 0.5, 2.5, 0.1]) | st.floats(-4, 4, width=32),
    "bool": st.booleans(),
    "string": STRINGS,
    "date": DATES,
    "timestamp": TIMES,
    "timestamp[ns, tz=Europe/Berlin]": TIMES.map(lambda t: t.replace(tzinfo=dt.UTC)),
}
NUMBERS = INTS | FLOATS | st.sampled_from([2**70, -(2**70), 10**400, 2.5])
CONSTANTS = {
    **dict.fromkeys(
        ("int64", "int8", "float64", "float32"), NUMBERS.map(lambda x: x + 0.0 if isinstance(x, float) else x)
    ),
    "bool": st.booleans(),
    "string": STRINGS,
    "date": DATES,
    "timestamp": TIMES.map(lambda t: Timestamp(_nanos(t)))
    | DATES
    | st.integers(0, 10**9).map(lambda n: Timestamp(_NEW_YEAR + n)),
    "timestamp[ns, tz=Europe/Berlin]": TIMES.map(lambda t: Timestamp(_nanos(t), True))
    | st.just(Timestamp(_NEW_YEAR + 3600 * 10**9)),
}


def _nanos(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000


@st.composite
def schemas(draw: Any, max_size: int = 5) -> dict[str, str]:
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=max_size))
    lists = draw(st.lists(st.integers(0, 3), min_size=len(kinds), max_size=len(kinds)))
    return {
        f"a{i}": f"list<{kind}>" if not flag else kind for i, (kind, flag) in enumerate(zip(kinds, lists, strict=True))
    }


@st.composite
def predicates(draw: Any, schema: dict[str, str]) -> Predicate:
    name = draw(st.sampled_from(list(schema)))
    kind = schema[name].removeprefix("list<").removesuffix(">")
    ops = ["=", "<", "<=", ">", ">=", "between", "in", "null", "is"]
    op = draw(st.sampled_from(ops + (["like", "like", "ilike"] if kind == "string" else [])))
    if op in ("like", "ilike"):
        pattern = draw(PATTERNS)
        values = (pattern.replace("\\", "!"), "!") if draw(st.integers(0, 4)) == 0 else (pattern,)
        return Predicate(name, op, values, draw(st.booleans()))
    sizes = {"between": (2, 2), "in": (0, 4), "null": (0, 0)}.get(op, (1, 1))
    constants = draw(st.lists(CONSTANTS[kind], min_size=sizes[0], max_size=sizes[1]))
    return Predicate(name, op, tuple(constants), draw(st.booleans()))


@st.composite
def expressions(draw: Any, schema: dict[str, str], max_leaves: int = 8) -> Expr:
    """Postfix: predicates, now and then joined by what is on the stack."""
    program: list[Any] = []
    depth = 0
    for _ in range(draw(st.integers(1, max_leaves))):
        program.append(draw(predicates(schema)) if draw(st.integers(0, 15)) else draw(st.booleans()))
        depth += 1
        while depth and draw(st.integers(0, 2)) == 0:
            kind = draw(st.sampled_from(["not", "and", "or", "xor", "xnor"]))
            arity = 1 if kind == "not" else 2 if kind == "xnor" else draw(st.integers(2, 3))
            if arity > depth:
                break
            program.append(Op(kind, arity))
            depth += 1 - arity
    if depth > 1:
        program.append(Op(draw(st.sampled_from(["and", "or", "and"])), depth))
    return Expr(tuple(program))


@st.composite
def events(draw: Any, schema: dict[str, str]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for name, type_name in schema.items():
        kind = type_name.removeprefix("list<").removesuffix(">")
        values = SCALARS[kind] if kind not in ("float64", "float32") else SCALARS[kind] | st.just(float("nan"))
        one = values if kind == type_name else st.lists(values | st.none(), max_size=3)
        choice = draw(st.integers(0, 4))
        if choice == 0:
            continue
        event[name] = None if choice == 1 else draw(one)
    return event
