"""Streams that follow an index: one version for each batch, whoever asks for it, and however often."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.spark import following, opened, pinned_versions
from gpumatch.spark.following import Expected, Following
from gpumatch.store.folder import pins

pytestmark = pytest.mark.spark

SCHEMA = {"x": "int64", "s": "string"}
QUERY = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


def made(folder: Path, **options: Any) -> gm.Matcher:
    return gm.open(folder, "a", schema=SCHEMA, background=False, **options)


# Without Spark


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_open", type(opened._open)())
    monkeypatch.setattr(opened, "uses", dict.fromkeys(opened.uses, 0))


EXPECTED = Expected.of(gm.Matcher(SCHEMA), "pairs", integers=False)


def at(folder: Path, batch: int, expected: Expected = EXPECTED) -> gm.Matcher:
    """As a task of a batch opens it."""
    return Following(str(folder), QUERY, batch, "cpu", expected).open()


def anew() -> None:
    """As in another worker."""
    opened._open.clear()


def test_a_batch_keeps_its_version(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    assert list(at(tmp_path, 0)) == ["a"]
    matcher.add({"b": "x > 1"})
    assert list(at(tmp_path, 0)) == ["a"]
    assert list(at(tmp_path, 1)) == ["a", "b"]
    assert opened.uses == {"opened": 1, "reused": 4, "refused": 0}
    matcher.compact()
    matcher.remove(["a"])
    anew()
    assert list(at(tmp_path, 0)) == ["a"]
    assert list(at(tmp_path, 2)) == ["b"]
    assert list(at(tmp_path, 1)) == ["a", "b"]
    pinned = pinned_versions(tmp_path, QUERY)
    assert [name.partition("-")[0] for name in pinned.values()] == ["1", "2", "3"]
    assert pinned[2] == matcher.version
    for batch, version in pinned.items():
        assert list(gm.load(tmp_path, version=version)) == list(at(tmp_path, batch))


def test_saved_indexes_are_versions_too(tmp_path: Path) -> None:
    for batch, name in enumerate("abc"):
        matcher = gm.Matcher(SCHEMA)
        matcher.add({name: "x > 1"})
        matcher.save(tmp_path)
        assert list(at(tmp_path, batch)) == [name]
    anew()
    assert [list(at(tmp_path, batch)) for batch in range(3)] == [["a"], ["b"], ["c"]]


def test_a_new_version_while_a_task_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = made(tmp_path, keep=0)
    matcher.add({"a": "x > 1"})
    make = pins.make

    def make_late(*given: Any) -> Any:
        monkeypatch.setattr(pins, "make", make)
        for name in "bc":  # the version that was to be pinned goes
            matcher.add({name: "x > 1"})
            matcher.compact()
        return make(*given)

    monkeypatch.setattr(pins, "make", make_late)
    assert list(at(tmp_path, 0)) == ["a", "b", "c"]
    assert pinned_versions(tmp_path, QUERY) == {0: matcher.version}


def test_a_bad_version_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    matcher.close()
    assert list(at(tmp_path, 0)) == ["a"]
    bad = gm.Matcher(SCHEMA)
    bad.add({1: "x > 1"})
    bad.save(tmp_path)
    for batch in range(1, 4):
        assert list(at(tmp_path, batch)) == ["a"]
        anew()
    [record] = caplog.records
    version = pinned_versions(tmp_path, QUERY)[0]
    assert record.name == "gpumatch"
    assert f"the newest version of {str(tmp_path)!r} is refused" in record.message
    assert f"goes on with version {version!r}, from batch 1 on: the ids of the index at " in record.message
    assert "are not of type string, which the query expects" in record.message
    assert opened.uses["refused"] == 3
    assert set(pinned_versions(tmp_path, QUERY).values()) == {version}
    good = gm.Matcher(SCHEMA)
    good.add({"b": "x > 1"})
    good.save(tmp_path)
    assert list(at(tmp_path, 4)) == ["b"]
    bad.save(tmp_path)
    assert list(at(tmp_path, 5)) == ["b"]
    assert len(caplog.records) == 2  # it is news again


def damaged_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text((folder / "manifest.json").read_text().replace('"format"', '"fromat"'))


def damaged_log(folder: Path) -> None:
    [log] = folder.glob("changes-*.log")
    content = log.read_bytes()
    log.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])


def damaged_array(folder: Path) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"b": "x > 7"})
    matcher.save(folder)
    for path in folder.glob("s0.ids.data-*.npy"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"!")


def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def other_schema(folder: Path) -> None:
    matcher = gm.Matcher({**SCHEMA, "y": "int64"})
    matcher.add({"b": "y > 7"})
    matcher.save(folder)


def other_order(folder: Path) -> None:
    matcher = gm.Matcher(dict(reversed(SCHEMA.items())))
    matcher.add({"b": "x > 7"})
    matcher.save(folder)


def other_ids(folder: Path) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({1: "x > 7"})
    matcher.save(folder)


def other_destinations(folder: Path) -> None:
    matcher = gm.Matcher(SCHEMA)
    matcher.add({"a": "x > 7"}, destination=1)
    matcher.save(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        damaged_manifest,
        damaged_log,
        damaged_array,
        no_manifest,
        other_schema,
        other_order,
        other_ids,
        other_destinations,
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_kinds_of_bad_versions(
    tmp_path: Path, spoil: Callable[[Path], None], is_new: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"}, destination="d")
        expected = Expected.of(matcher, "pairs", integers=False)
        assert list(at(tmp_path, 0, expected)) == ["a"]
        matcher.add({"late": "x > 2"})
    spoil(tmp_path)
    for batch in (1, 2):
        if is_new:
            anew()
        assert list(at(tmp_path, batch, expected)) == ["a"]
    assert len(caplog.records) == 1
    assert opened.uses["refused"] == 2
    anew()
    with pytest.raises(gm.StorageError):  # a query that starts on it
        Following(str(tmp_path), QUERY.replace("6", "7"), 0, "cpu", expected).open()


def test_what_was_mended_in_place_is_taken_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        at(tmp_path, 0)
        matcher.add({"b": "x > 1"})
    content = (tmp_path / "manifest.json").read_bytes()
    facts = os.stat(tmp_path / "manifest.json")
    damaged_manifest(tmp_path)
    assert list(at(tmp_path, 1)) == ["a"]
    (tmp_path / "manifest.json").write_bytes(content)
    assert list(at(tmp_path, 2)) == ["a", "b"]  # its time says that it was written
    damaged_manifest(tmp_path)
    os.utime(tmp_path / "manifest.json", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert list(at(tmp_path, 3)) == ["a", "b"]
    (tmp_path / "manifest.json").write_bytes(content)
    os.utime(tmp_path / "manifest.json", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    monkeypatch.setattr(following.gm.Matcher, "id_type", None)
    at(tmp_path, 4)
    assert opened.uses["refused"] == 3
    monkeypatch.setattr(pins, "AGAIN", 0)
    at(tmp_path, 5)
    assert opened.uses["refused"] == 3


def test_a_pinned_version_that_is_missing(tmp_path: Path) -> None:
    matcher = made(tmp_path)
    matcher.add({"a": "x > 1"})
    at(tmp_path, 5)
    shutil.copytree(tmp_path / "pins", tmp_path.with_name("pins"))
    matcher.close()
    shutil.rmtree(tmp_path)
    made(tmp_path).add({"b": "x > 1"})
    shutil.move(tmp_path.with_name("pins"), tmp_path / "pins")
    anew()
    match = rf"batch 5 of the query {QUERY} is pinned to version '1-\w{{8}}' of .*has no version .*remove '.*{QUERY}/5'"
    with pytest.raises(gm.StorageError, match=match):
        at(tmp_path, 5)
    (tmp_path / "pins" / QUERY / "5").unlink()
    assert list(at(tmp_path, 5)) == ["b"]


def test_neither_new_nor_old(tmp_path: Path) -> None:
    with made(tmp_path) as matcher:
        matcher.add({"a": "x > 1"})
        at(tmp_path, 0)
    for path in tmp_path.glob("manifest*.json"):
        path.unlink()
    anew()
    with pytest.raises(gm.StorageError, match="is not a saved index"):
        at(tmp_path, 1)
    assert pins.batches(tmp_path, QUERY) == [0]


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path).add({"a": "x > 1"})

    def fail(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("mkdir", "unlink", "link", "rename", "replace"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(gm.StorageError, match=rf"cannot write '.*{QUERY}/3': Read-only file system; .*follow=False"):
        at(tmp_path, 3)


def test_tasks_that_belong_to_no_batch(tmp_path: Path) -> None:
    with pytest.raises(gm.StorageError, match=r"follow=True needs the tasks of a streaming query.* None and None"):
        Following.of_task(str(tmp_path), "cpu", EXPECTED)
