"""The wheel: holds every module, and matches in an environment that has the core dependencies only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import gpumatch

ROOT = Path(__file__).parents[1]
FOLDERS = {"gpumatch": "gpumatch", "kernels": "gpumatch/kernels", "spark_plugin": "gpumatch/spark"}

MATCH_ONE = """
import sys
import gpumatch as gm
m = gm.Matcher({"sym": "string", "px": "float64"})
m.add({"hot": "sym = 'NVDA' AND px > 900", "cold": "px < 10"})
assert m.match_one({"sym": "NVDA", "px": 950.0}) == ["hot"]
assert "site-packages" in gm.__file__, gm.__file__
assert "pyspark" not in sys.modules and "pandas" not in sys.modules
import gpumatch.spark
print(gm.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because setuptools takes stale modules along from a ``build`` folder beside the source."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source))
    (built,) = out.glob("*.whl")
    return built


def run(*command: str, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_wheel_holds_every_module(wheel: Path) -> None:
    expected = {"gpumatch/py.typed"}
    for folder, package in FOLDERS.items():
        expected |= {f"{package}/{path.relative_to(ROOT / folder)}" for path in (ROOT / folder).rglob("*.py")}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held >= expected, sorted(expected - held)
    assert all(name.startswith("gpumatch/") for name in held)


def test_wheel_holds_the_settings_for_gpus(wheel: Path) -> None:
    files = {info.filename: info for info in zipfile.ZipFile(wheel).infolist()}
    held = {name.rpartition("/")[2] for name in files if name.startswith("gpumatch/spark/conf/")}
    assert held == {path.name for path in (ROOT / "spark_plugin" / "conf").iterdir()}
    assert files["gpumatch/spark/conf/gpu_discovery.sh"].external_attr >> 16 & 0o111  # Spark runs it


def test_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    assert f"\nVersion: {gpumatch.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    for extra in ("spark", "gpu12", "gpu13", "cudf12", "cudf13", "bench", "test"):
        assert f"\nProvides-Extra: {extra}\n" in metadata


@pytest.mark.long
def test_wheel_matches_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home)
    python = str(home / "bin" / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", str(wheel))
    assert run(python, "-c", MATCH_ONE, cwd=tmp_path).strip() == gpumatch.__version__
    assert run(str(home / "bin" / "gpumatch"), "--version", cwd=tmp_path).split()[-1] == gpumatch.__version__
