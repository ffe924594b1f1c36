"""Checksums once per machine and version."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import gpumatch as gm
from gpumatch.store.folder import directory


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose checksums are computed; marks lie in a temporary folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    found: list[Path] = []
    compute = directory._hash_file
    monkeypatch.setattr(directory, "_hash_file", lambda path: (found.append(path), compute(path))[1])
    return found


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    matcher = gm.Matcher({"x": "int64"})
    matcher.add({"a": "x < 6", "b": "x IN (1, 5)"})
    matcher.save(tmp_path / "index")
    return tmp_path / "index"


def test_files_are_read_once(saved: Path, hashed: list[Path]) -> None:
    gm.load(saved, verify="once")
    files = len(hashed)
    assert files == len(list(saved.glob("*.npy")))
    gm.load(saved, verify="once")
    assert len(hashed) == files
    gm.load(saved)  # as by default
    assert len(hashed) == files
    gm.load(saved, verify="full")
    assert len(hashed) == 2 * files
    gm.load(saved, verify=True)
    assert len(hashed) == 3 * files
    gm.load(saved, verify="size")
    gm.load(saved, verify=False)
    assert len(hashed) == 3 * files


def test_a_change_is_noticed(saved: Path, hashed: list[Path]) -> None:
    gm.load(saved, verify="once")
    file = max(saved.glob("*.npy"), key=lambda path: path.stat().st_size)
    content, times = file.read_bytes(), file.stat()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the time of the change itself stays
    with pytest.raises(gm.StorageError, match="was altered"):
        gm.load(saved, verify="once")
    file.write_bytes(content)
    assert gm.load(saved, verify="once").match_one({"x": 5}) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes")
def test_marks_that_others_can_write_are_not_believed(saved: Path, hashed: list[Path]) -> None:
    gm.load(saved, verify="once")
    [marks] = Path(tempfile.gettempdir()).glob("gpumatch-verified-*")
    marks.chmod(0o777)
    hashed.clear()
    gm.load(saved, verify="once")
    assert hashed


def test_another_word_is_an_error(saved: Path) -> None:
    with pytest.raises(ValueError, match="verify is 'full', 'once' or 'size', found 'twice'"):
        gm.load(saved, verify="twice")  # type: ignore[arg-type]
