"""docs/format.md says what is there: a reader made from it, which shares no code with ours, finds the same."""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.store import checks, store
from gpumatch.store.folder import durable, log, manifests
from gpumatch.store.folder.history import history
from tests.store import plain_reader

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
SCHEMA = {"x": "int64", "s": "string", "tags": "list<string>"}


def check_same(folder: Path, expected: dict[str | None, list[Any]]) -> None:
    """Each version as the other reader finds it, from every manifest that leads to it."""
    names = ["manifest.json", *(path.name for path in manifests.kept_manifests(folder))]
    found: dict[str | None, list[Any]] = {}
    for name in names:
        for version, ids in plain_reader.versions(folder, name):
            assert found.setdefault(version, ids) == ids
    assert found == expected
    assert [entry.version for entry in history(folder)] == list(expected)
    for version, ids in found.items():
        assert gm.load(folder, version=version).ids.tolist() == ids


@pytest.mark.long
@pytest.mark.parametrize(("integers", "rows", "scanned"), [(True, 10**9, 8192), (False, 3, 8192), (False, 3, 4)])
def test_another_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, integers: bool, rows: int, scanned: int
) -> None:
    """``rows`` and ``scanned``: with and without folding, and files for what is added."""
    monkeypatch.setattr(durable, "_ROWS", rows)
    monkeypatch.setattr(durable, "_SHARE", 10**6)
    monkeypatch.setattr(store, "SCANNED", scanned)
    name = int if integers else "é{}".format
    expected: dict[str | None, list[Any]] = {}
    with gm.open(tmp_path, "a", schema=SCHEMA, background=False) as matcher:

        def note() -> None:
            expected[matcher.version] = matcher.ids.tolist()

        note()
        for step in range(6):
            ids = [name(10 * step + at) for at in range(6)]
            matcher.add_ranges(ids, {"x": (np.arange(6), None)}, destination=["d", None] * 3, weight=step)
            note()
            matcher.upsert({ids[0]: "s LIKE '%a'", name(1000 + step): "tags = 'x' OR x > 1"})
            note()
            matcher.remove(ids[1:3])
            note()
            if step == 3:
                matcher.compact()
        check_same(tmp_path, expected)
        assert len(expected) == 19
    check_same(tmp_path, expected)


def test_another_reader_of_what_was_saved(tmp_path: Path) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "x > 1", "b": "x > 2", "": "x > 3", "\0\U0001f600": "x = 1"})
    matcher.match_one({})
    matcher.remove(["b"])
    matcher.save(tmp_path)
    [(version, ids)] = plain_reader.versions(tmp_path)
    assert ids == ["a", "", "\0\U0001f600"]
    assert version == gm.open(tmp_path).version


def test_another_reader_of_the_format_before(tmp_path: Path) -> None:
    zipfile.ZipFile(Path(__file__).with_name("format-5.zip")).extractall(tmp_path)
    [(version, ids)] = plain_reader.versions(tmp_path)
    assert (version, ids) == (gm.open(tmp_path).version, gm.load(tmp_path).ids.tolist())


def test_the_other_reader_looks(tmp_path: Path) -> None:
    """It would be no check if it took anything."""
    with gm.open(tmp_path, "a", schema=SCHEMA, background=False) as matcher:
        matcher.add({"a": "x > 1"})
        matcher.compact()
        matcher.add({"b": "x > 1"})
        matcher.remove(["a"])
    whole = (tmp_path / "changes-2.log").read_bytes()
    for at in range(48, len(whole), 13):
        (tmp_path / "changes-2.log").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((plain_reader.BrokenError, struct.error)):
            list(plain_reader.versions(tmp_path))
    (tmp_path / "changes-2.log").write_bytes(whole)
    assert [ids for _, ids in plain_reader.versions(tmp_path)] == [["a"], ["a", "b"], ["b"]]


def test_the_page_names_what_there_is(tmp_path: Path) -> None:
    assert f"format {manifests.FORMAT}" in PAGE
    assert f"this one {manifests.FORMAT} and {manifests.BEFORE}" in PAGE
    for feature in manifests.FEATURES:
        assert f"`{feature}`" in PAGE
    for name in checks.COLUMNS:
        assert f"`{name}`" in PAGE or name.startswith("destinations."), name
    assert log.START == 48
    assert f"{durable._RECORDS:,} records or {durable._BYTES >> 20} MB" in PAGE
    assert f"{durable._ROWS:,} rows and 1/{durable._SHARE} of all" in PAGE
    assert f"keep={durable.KEEP:.0f}" in PAGE
    assert f"{store.MOST:,}" in PAGE
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "s LIKE '%x%'"}, destination="d", weight=1)
    matcher.save(tmp_path / "saved")
    with gm.open(tmp_path / "open", "a", schema=SCHEMA) as opened:
        opened.add({"a": "x > 1"})
        opened.compact()
    for folder in ("saved", "open"):
        manifest = manifests.read_manifest(tmp_path / folder)
        for held in (manifest, manifest["segments"][0]):
            for key in held:
                assert re.search(rf"^\| .*`{key}`.* \|", PAGE, re.MULTILINE), key
