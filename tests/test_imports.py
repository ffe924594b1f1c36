"""What ``import gpumatch`` loads, and which module may import which."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import gpumatch
import gpumatch.routing

ROOT = Path(__file__).parents[1]
FOLDERS = {"gpumatch": ROOT / "gpumatch", "gpumatch.kernels": ROOT / "kernels", "gpumatch.spark": ROOT / "spark_plugin"}

BESIDE = ("device", "picture", "roofline")  # a kind of index, in its package

# Folders and modules from top to bottom: each imports from its own layer and from those below it.
LAYERS: tuple[set[str], ...] = (
    {"__main__", "cli", "spark"},
    {"proof", "index's roofline"},
    {"workloads", "warming"},
    {"routing"},
    {"opening"},
    {"matcher", "explain"},
    {"device", "index's device"},
    {"store"},
    {"index", "index's picture"},
    {"codes"},
    {"subscriptions"},
    {"events"},
    {"expr", "schema", "results"},
    {"device_memory"},
    {"arrays", "arrayspec"},
    {"errors", "opcodes"},
)
# Folders outside the chain: what they may import, and who may import them.
ASIDE = {
    "kernels": (
        {"opcodes"},
        {"index", "device", "codes", "proof", "routing", "store", "warming", *(f"index's {name}" for name in BESIDE)},
    ),
    "parallel": ({"errors", "kernels"}, set().union(*LAYERS)),
}
KERNEL_LIBRARIES = {"llvmlite", "numba", "numpy"}  # llvmlite is how numba is extended


def part(module: str) -> str:
    """``gpumatch.expr.tree`` -> ``expr``; the package itself is the empty string.

    What lies beside a kind of index is a part of its own, such as ``index's device``.
    """
    names = module.split(".")
    if names[1:2] == ["index"] and names[-1] in BESIDE:
        return f"index's {names[-1]}"
    return names[1] if len(names) > 1 else ""


@cache
def modules() -> dict[str, Path]:
    """Every module of the source tree by its installed name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *inner))
            found[name.removesuffix(".__init__")] = path
    return found


def imports(module: str, path: Path) -> Iterator[str]:
    """The absolute names that a module imports, anywhere in it: also in functions and for type checkers."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            for alias in node.names:  # "from gpumatch.x import y" may name a module, or what is in one
                name = f"{source}.{alias.name}"
                yield name if source == "gpumatch" or name in modules() else source


def allowed(importer: str, imported: str) -> bool:
    if importer in ASIDE:
        return imported in ASIDE[importer][0]
    if imported in ASIDE:
        return importer in ASIDE[imported][1]
    if imported in gpumatch.__all__ or imported == "":  # the public face, for what stands on top of it
        return importer in LAYERS[0]
    place = {name: level for level, layer in enumerate(LAYERS) for name in layer}
    return importer in place and imported in place and place[importer] <= place[imported]


def internal_edges() -> list[tuple[str, str, str]]:
    """(module, its part, imported part) for every import of one part by another; the package itself is exempt."""
    return [
        (module, part(module), part(name))
        for module, path in modules().items()
        for name in imports(module, path)
        if name.split(".")[0] == "gpumatch" and part(module) not in ("", part(name))
    ]


def test_every_part_has_a_place() -> None:
    placed = set().union({""}, ASIDE, *LAYERS)
    unknown = sorted({part(module) for module in modules()} - placed)
    assert not unknown, f"give {unknown} a place in LAYERS"


def test_imports_go_one_way() -> None:
    wrong = [f"{module} imports gpumatch.{to}" for module, of, to in internal_edges() if not allowed(of, to)]
    assert not wrong


def test_no_cycles_between_modules() -> None:
    """Imports in functions and for type checkers count."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        if module != "gpumatch":
            graph[module] = {
                name for name in imports(module, path) if name in known and name not in ("gpumatch", module)
            }
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_kernels_import_only_numpy_numba_and_opcodes() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if part(module) == "kernels"
        for name in imports(module, path)
        if name.split(".")[0] not in KERNEL_LIBRARIES | sys.stdlib_module_names
        and part(name) not in ("kernels", "opcodes")
    ]
    assert not wrong


def test_nobody_imports_the_source_folders() -> None:
    """``import kernels.x`` would make a second copy beside ``gpumatch.kernels.x``."""
    wrong = [
        f"{module} imports {name}"
        for module, path in modules().items()
        for name in imports(module, path)
        if name.split(".")[0] in ("kernels", "spark_plugin")
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("gpumatch.codes", "import numpy as np", ["numpy"]),
        ("gpumatch.codes", "from gpumatch import expr, col", ["gpumatch.expr", "gpumatch.col"]),
        ("gpumatch.codes", "from .expr.tree import Expr", ["gpumatch.expr.tree"]),
        ("gpumatch.expr.tree", "from ..schema import Schema", ["gpumatch.schema"]),
        ("gpumatch.expr.tree", "def f():\n    from . import parser", ["gpumatch.expr.parser"]),
    ],
)
def test_the_reader_of_imports(tmp_path: Path, module: str, source: str, expected: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert list(imports(module, path)) == expected


def test_the_rule_itself() -> None:
    assert allowed("matcher", "store")
    assert allowed("cli", "errors")
    assert allowed("spark", "Matcher")
    assert allowed("codes", "kernels")
    assert allowed("index's device", "device")
    assert not allowed("store", "matcher")
    assert not allowed("index", "device")
    assert not allowed("matcher", "kernels")
    assert not allowed("matcher", "Matcher")
    assert not allowed("errors", "schema")
    assert not allowed("kernels", "errors")
    assert not allowed("parallel", "codes")


def loaded_by(code: str) -> set[str]:
    """The top-level modules in ``sys.modules`` after running ``code`` in a new interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in run.stdout.split()}


def test_import_is_light() -> None:
    heavy = {"numba", "numpy", "pyarrow", "pandas", "pyspark", "rich", "cupy", "cudf", "rmm", "cuda", "numba_cuda"}
    assert "gpumatch" in loaded_by("import gpumatch")
    assert not heavy & loaded_by("import gpumatch")
    assert not (heavy - {"rich"}) & loaded_by("import gpumatch.cli")


@pytest.mark.parametrize("package", [gpumatch, gpumatch.routing])
def test_public_names_resolve(package: ModuleType) -> None:
    assert set(package.__all__) - {"__version__"} == set(package._HOME)
    for name in package.__all__:
        assert not isinstance(getattr(package, name), ModuleType)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'Matchr'"):
        _ = package.Matchr


@pytest.mark.parametrize("package", [gpumatch, gpumatch.routing])
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text())
    seen = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gpumatch.")
        for alias in node.names
    }
    assert seen == {name: f"{package.__name__}.{home}" for name, home in package._HOME.items()}


def test_overlays_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("gpumatch.routing.overlays")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(gpumatch.routing, "Topology", raising=False)
    with pytest.raises(ImportError, match=r"routing\.Topology needs scipy.*pip install 'gpumatch\[routing\]'"):
        _ = gpumatch.routing.Topology
