"""What PySpark makes Python forget before every task is not read again from archives that have not changed."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumatch.spark.archives import Unchanged, read_once

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python reads archives when it needs them")


def write(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", f"NAME = {name!r}\n")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "some.zip"
    write(path, "archived_first")
    sys.path.insert(0, str(path))
    importlib.import_module("archived_first")
    read_once()
    yield path
    sys.path.remove(str(path))
    sys.path_importer_cache.pop(str(path), None)
    for name in ("archived_first", "archived_second"):
        sys.modules.pop(name, None)


def test_an_unchanged_archive_is_not_read_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(sys.path_importer_cache[str(archive)]) is Unchanged
    read: list[str] = []
    original = zipimport._read_directory
    monkeypatch.setattr(zipimport, "_read_directory", lambda path: read.append(path) or original(path))
    importlib.invalidate_caches()
    assert str(archive) not in read
    os.utime(archive, ns=(1, 1))
    importlib.invalidate_caches()
    assert read.count(str(archive)) == 1


def test_modules_of_a_changed_archive_are_found(archive: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("archived_second")
    write(archive, "archived_first", "archived_second")
    importlib.invalidate_caches()
    assert importlib.import_module("archived_second").NAME == "archived_second"


def test_an_archive_that_was_gone_before_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "gone.zip"
    write(path, "archived_first")
    sys.path_importer_cache[str(path)] = zipimport.zipimporter(str(path))
    path.unlink()
    read_once()
    assert type(sys.path_importer_cache.pop(str(path))) is zipimport.zipimporter


def test_an_archive_that_is_gone_is_no_error(archive: Path) -> None:
    archive.unlink()
    importlib.invalidate_caches()
    assert importlib.import_module("archived_first").NAME == "archived_first"
