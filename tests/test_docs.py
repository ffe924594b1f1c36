"""The documents say what is: their examples run, and the table of operators and types is the code's."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

import gpumatch as gm
from gpumatch.errors import GpumatchError
from gpumatch.expr import check, parse
from gpumatch.schema import _KINDS, Schema, parse_type

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCHEMA = Schema.of(
    {
        "sym": "string",
        "px": "float64",
        "qty": "int64",
        "halted": "bool",
        "day": "date",
        "at": "timestamp",
        "Last Price": "float64",
        "tags": "list<string>",
        "scores": "list<int32>",
    }
)
KINDS = {"int": "qty", "float": "px", "bool": "halted", "string": "sym", "date": "day", "timestamp": "at"}
CONSTANT = {
    "qty": "5",
    "px": "-2.5",
    "halted": "TRUE",
    "sym": "'it''s'",
    "day": "DATE '2024-01-31'",
    "at": "TIMESTAMP '2024-01-31 12:00:00'",
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def operators_by_kind() -> list[tuple[str, str, bool]]:
    """(operator, kind, whether it applies), read from the table in docs/language.md."""
    text = (ROOT / "docs" / "language.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    start = next(i for i, row in enumerate(rows) if row[1:] == list(KINDS))
    table = [row for row in rows[start + 3 :] if set(row[1:]) <= {"yes", "no"}]
    return [
        (operator, kind, answer == "yes")
        for cells in table
        for operator in re.findall(r"`([^`]+)`", cells[0])
        for kind, answer in zip(KINDS, cells[1:], strict=True)
    ]


def condition(operator: str, attribute: str) -> str:
    constant = CONSTANT[attribute]
    forms = {
        "BETWEEN": f"BETWEEN {constant} AND {constant}",
        "IN": f"IN ({constant})",
        "LIKE": "LIKE '%a'",
        "ILIKE": "ILIKE 'a%'",
        "IS NULL": "IS NULL",
    }
    return f"{attribute} {forms.get(operator, f'{operator} {constant}')}"


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted((ROOT / "docs" / "index").glob("*.md")), ROOT / "bench" / "README.md"],
    ids=lambda p: p.stem,
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    for link in links:
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_tables_of_the_readme_fit_a_screen() -> None:
    tables = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    assert tables
    assert max(map(len, tables)) <= 100


def test_table_of_operators_is_complete() -> None:
    assert len(operators_by_kind()) == 12 * len(KINDS)


@pytest.mark.parametrize(("operator", "kind", "applies"), operators_by_kind())
def test_operators_by_type(operator: str, kind: str, applies: bool) -> None:
    expr = parse(condition(operator, KINDS[kind]))
    if applies:
        check(expr, SCHEMA)
    else:
        with pytest.raises(GpumatchError, match=f"{operator} works on strings only"):
            check(expr, SCHEMA)


def test_table_of_types() -> None:
    text = (ROOT / "docs" / "language.md").read_text()
    table = text[text.index("| type | also written |") : text.index("Everything else")]
    quoted = set(re.findall(r"`([^`]+)`", table)) - {"UTC", "+05:30"}
    lists = {name for name in quoted if "…" in name}
    named = quoted - lists
    assert {str(parse_type("x", name)) for name in named} == {
        *(f"int{bits}" for bits in (8, 16, 32, 64)),
        *("float32", "float64", "bool", "string", "date", "timestamp[us]", "timestamp[ns]"),
        "timestamp[us, tz=Europe/Berlin]",
    }
    assert set(_KINDS) <= named
    for form in lists:
        assert str(parse_type("x", form.replace("…", "int8"))) == "list<int8>"
    for name in ("uint8", "decimal128(5, 2)", "binary", "float"):
        with pytest.raises(GpumatchError, match="not supported"):
            parse_type("x", name)


@pytest.mark.parametrize(
    ("clock", "instant"),
    [("2024-03-31 02:30", "2024-03-31T03:30:00+02:00"), ("2024-10-27 02:30", "2024-10-27T02:30:00+02:00")],
)
def test_clocks_that_are_skipped_or_shown_twice(clock: str, instant: str) -> None:
    matcher = gm.Matcher({"at": "timestamp[us, tz=Europe/Berlin]"})
    matcher.add({"at": f"at = '{clock}'"})
    assert matcher.match_one({"at": dt.datetime.fromisoformat(instant)}) == ["at"]


@pytest.mark.parametrize(
    "text", [line for page in PAGES for block in blocks(page, "sql") for line in block.splitlines()]
)
def test_expressions(text: str) -> None:
    check(parse(text), SCHEMA)


@pytest.mark.parametrize(
    ("page", "code"),
    [
        pytest.param(page, code, id=page.name)
        for page in PAGES
        if page.stem != "spark"
        for code in blocks(page, "python")
    ],
)
def test_python_runs(page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page.name, "exec"), {})
