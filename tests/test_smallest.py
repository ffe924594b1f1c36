"""The conformance suite with every number at which paths switch at its smallest; and no such number is forgotten."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.smallest import ELSEWHERE, FIXED, OUTSIDE, ROOT, SMALLEST, copy_at_smallest, lowered

SUITE = (
    "conformance/test_oracle.py", "conformance/test_counts.py", "conformance/test_examples.py",
    "conformance/test_groups.py", "cli/test_files.py",
    "routing/test_filters.py", "routing/test_multicast.py", "routing/test_overlap.py", "routing/test_shards.py",
    "routing/test_simulation.py",
)  # fmt: skip
# Large cases, which take the paths as they are; limits that are set already; what asks how far expressions are split.
LEFT_OUT = ("million", "many_rows", "(by and column)", "hardly", "by_hand", "without_a_program")


def numbers(path: Path) -> Iterator[str]:
    """Names that a module gives to integers."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = eval(compile(ast.Expression(node.value), path.name, "eval"), {"__builtins__": {}})
        except (NameError, TypeError, AttributeError):  # no mere number
            continue
        target = node.targets[0]
        names, values = (target.elts, value) if isinstance(target, ast.Tuple) else ([target], [value])
        for name, one in zip(names, values, strict=True):
            if isinstance(one, int) and not isinstance(one, bool):
                yield ast.unparse(name)


def modules() -> Iterator[Path]:
    for folder in ("gpumatch", "kernels", "spark_plugin"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if not any(part == name or part.startswith(f"{name}_") for part in parts for name in OUTSIDE):
                yield path


def test_every_number_is_lowered_or_needs_not() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in modules() for name in numbers(path)}
    listed = [(path, name) for table in (SMALLEST, ELSEWHERE) for path, held in table.items() for name in held]
    listed += [(path, name) for path, names in FIXED.items() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert found == set(listed), "say in tests/smallest.py how small it can be, or that it switches nothing"


def test_tests_of_their_own_lower_the_others() -> None:
    for held in ELSEWHERE.values():
        for name, file in held.items():
            assert f'"{name}", ' in (ROOT / "tests" / file).read_text(), name


@pytest.mark.parametrize(
    ("text", "name", "right"),
    [
        ("A = 1 << 4  # why\n", "A", "A = 7  # why\n"),
        ("A, B = 1, 2  # why\n", "B", "A, B = 1, 7  # why\n"),
        ("AA = 3\nA = 4\n", "A", "AA = 3\nA = 7\n"),
    ],
)
def test_numbers_are_lowered_in_sources(text: str, name: str, right: str) -> None:
    assert lowered(text, name, 7) == right


@pytest.mark.long
def test_the_suite_at_its_smallest(tmp_path: Path) -> None:
    copy_at_smallest(tmp_path)
    environment = {**os.environ, "GPUMATCH_CACHE_DIR": str(tmp_path / "cache"), "HYPOTHESIS_PROFILE": "ci"}
    chosen = [*(f"tests/{file}" for file in SUITE), "-k", " and ".join(f"not {name}" for name in LEFT_OUT)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
