"""Saved indexes: the same answers after loading, and no harm from crashes, damage or strangers' files."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.index import KINDS
from gpumatch.store.folder import directory as storage
from gpumatch.store.folder import manifests

SCHEMA = {
    "i": "int64",
    "x": "float64",
    "f": "float32",
    "s": "string",
    "b": "bool",
    "d": "date",
    "t": "timestamp",
    "z": "timestamp[ns, tz=Europe/Berlin]",
    "tags": "list<string>",
    "nums": "list<int64>",
}
EVENTS: list[dict[str, Any]] = [
    {},
    {"i": 5, "x": 2.5, "s": "abc", "b": True, "tags": ["u", "v"], "nums": [1, 9]},
    {"i": -(2**63), "f": 0.5, "s": "", "b": False, "d": dt.date(2024, 1, 1), "tags": [], "nums": []},
    {"t": dt.datetime(2024, 1, 1), "z": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "s": "é", "nums": [3]},
    {"i": 2**63 - 1, "x": float("inf"), "s": "zz", "d": dt.date(9999, 12, 31), "tags": ["é"]},
]
EXPRESSIONS = {
    "eq": "i = 5 AND s = 'abc'",
    "or": "x > 2 OR f < 1 OR b = FALSE",
    "set": "s IN ('abc', '', 'é') AND i NOT IN (1, 2, 3)",
    "like": "s LIKE 'a%' OR s NOT LIKE 'z%'",
    "search": "s LIKE '%a_' OR s NOT ILIKE '%Z%'",
    "known": "s IS DISTINCT FROM 'a'",
    "null": "d IS NULL AND t IS NULL",
    "times": "d >= DATE '2024-01-01' OR t < TIMESTAMP '2025-01-01' OR z <= TIMESTAMP '2024-01-01 01:00'",
    "lists": "tags = 'u' AND nums <> 3 OR NOT (nums > 5)",
    "xor": "i > 0 XOR x > 0 XOR f > 0 XOR b = TRUE XOR s > 'a' XOR nums = 1",
    "program": " AND ".join(f"(i = {k} OR x > {k} OR s > '{k}' OR f < {k})" for k in range(-4, 4)),
    "never": "i < 0 AND i > 0",
    "always": "TRUE",
}


def several(index: str = "auto") -> gm.Matcher:
    """Two segments at least, one of them with holes, of all that a matcher can hold."""
    matcher = gm.Matcher(SCHEMA, index=index)
    matcher.add(EXPRESSIONS)
    matcher.add({f"n{k}": f"i >= {k} AND i < {k + 7}" for k in range(100)})
    matcher.add_ranges(["r1", "r2"], {"s": (["a", None], ["b", "é"]), "x": ([None, 1], [None, 3.5])})
    long_form = {"id": ["p1", "p1"], "attribute": ["i", "s"], "op": ["<", "<>"], "value": ["6", "abc"]}
    matcher.add_predicates(long_form)
    matcher.match_one({})
    matcher.remove(["n3", "eq"])
    matcher.add({"late": "s = 'abc' XNOR b = TRUE"})
    matcher.match_one({})
    return matcher


def tiny(value: int = 1) -> gm.Matcher:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({value: f"i = {value}"})
    return matcher


def answers(matcher: gm.Matcher) -> list[list[Any]]:
    return [list(ids) for ids in matcher.match(EVENTS)]


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return found


def write_manifest(folder: Path, held: dict[str, Any]) -> None:
    """A manifest that carries the right checksum, as one would write who means harm."""
    held = {key: value for key, value in held.items() if key != "checksum"}
    (folder / "manifest.json").write_text(json.dumps({**held, "checksum": manifests.digest_of(held)}))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "idx"
    several().save(folder)
    return folder


@pytest.fixture
def saved(master: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(master, tmp_path / "idx"))


# Round trips


@pytest.mark.parametrize("index", ["auto", *KINDS])
@pytest.mark.parametrize("mmap", [True, False])
def test_round_trip(index: str, mmap: bool, tmp_path: Path) -> None:
    before = several(index)
    assert len(before.plan().segments) == 2
    before.save(tmp_path / "idx")
    after = gm.load(tmp_path / "idx", mmap=mmap)
    assert answers(after) == answers(before)
    assert after.ids.tolist() == before.ids.tolist()
    assert after.schema == before.schema
    assert after.plan() == before.plan()
    assert {**after.stats(), "bytes": 0, "segments": 2} == {**before.stats(), "bytes": 0, "segments": 2}
    for name in ("xor", "program", "r1", "r2", "p1", "late"):
        assert str(after.explain(EVENTS[1], name)) == str(before.explain(EVENTS[1], name))


@pytest.mark.parametrize("mmap", [True, False])
def test_a_loaded_matcher_goes_on(saved: Path, mmap: bool, tmp_path: Path) -> None:
    before, after = several(), gm.load(saved, mmap=mmap)
    for matcher in (before, after):
        matcher.add({"new": "nums = 9"})
        matcher.remove(["always", "late"])
        matcher.replace({"or": "s = 'zz'"})
        matcher.add({f"m{k}": f"i = {k}" for k in range(300)})
    assert answers(after) == answers(before)
    for matcher in (before, after):
        matcher.compact()
    assert answers(after) == answers(before)
    after.save(tmp_path / "again")
    assert answers(gm.load(tmp_path / "again")) == answers(before)
    assert "always" in gm.load(saved)  # the directory is as it was


def test_nothing_to_save(tmp_path: Path) -> None:
    empty = gm.Matcher(SCHEMA, index="scan")
    empty.save(tmp_path / "idx")
    after = gm.load(tmp_path / "idx")
    assert len(after) == 0
    assert after.match_one({"i": 1}) == []
    after.add({1: "i = 1"})
    assert "Scan" in str(after.plan())


def test_integer_ids_and_removed_rows(tmp_path: Path) -> None:
    matcher = gm.Matcher({"i": "int64"})
    matcher.add({k: f"i >= {k}" for k in (-(2**63), 0, 5, 2**63 - 1)})
    matcher.remove([0])
    matcher.save(tmp_path / "idx")
    after = gm.load(tmp_path / "idx")
    assert after.match_one({"i": 5}) == [-(2**63), 5]
    with pytest.raises(gm.IdError):
        after.add({"text": "i = 1"})
    after.add({0: "i = 5"})
    assert after.match_one({"i": 5}) == [-(2**63), 5, 0]


def test_saving_twice_gives_the_same(saved: Path, tmp_path: Path) -> None:
    gm.load(saved).save(tmp_path / "again")
    several().save(tmp_path / "other")
    assert manifest(tmp_path / "again") == manifest(tmp_path / "other") == manifest(saved)
    assert sorted(os.listdir(tmp_path / "again")) == sorted(os.listdir(saved))


def test_arrays_of_a_loaded_index_cannot_be_written(saved: Path) -> None:
    for mmap in (True, False):
        for _, arrays in storage.read(saved, mmap).segments:
            assert not any(array.flags.writeable for array in arrays.values())


# Saving over what is there


def test_saving_over_an_index_leaves_no_stale_file(saved: Path) -> None:
    other = gm.load(saved, mmap=True)
    tiny().save(saved)
    entries = [entry for segment in manifest(saved)["segments"] for entry in segment["arrays"].values()]
    assert {entry["file"] for entry in entries} | {"manifest.json"} == set(os.listdir(saved))
    assert answers(other) == answers(several())  # what was mapped stays


def test_saving_over_the_directory_it_was_loaded_from(saved: Path) -> None:
    matcher = gm.load(saved, mmap=True)
    matcher.remove(["always"])
    matcher.add({"more": "i = 5"})
    expected = answers(matcher)
    matcher.save(saved)
    assert answers(matcher) == answers(gm.load(saved)) == expected


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "data.npy", "x-0123456789abcdef.npy", ".hidden"])
def test_foreign_files_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"name": "a web page"}')
    with pytest.raises(gm.StorageError, match="it holds other files"):
        tiny().save(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: '{"name": "a web page"}'}


def test_files_beside_an_index_are_left_alone(saved: Path) -> None:
    (saved / "README.txt").write_text("mine")
    tiny().save(saved)
    assert (saved / "README.txt").read_text() == "mine"
    assert gm.load(saved).match_one({"i": 1}) == [1]


def test_a_damaged_index_can_be_saved_over(saved: Path) -> None:
    (saved / "manifest.json").write_text("{")
    tiny().save(saved)
    assert gm.load(saved).match_one({"i": 1}) == [1]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(gm.StorageError, match="it is a file"):
            tiny().save(path)
    assert (tmp_path / "file").read_text() == "x"


# Crashes


class Crash(BaseException):
    """Not an error that anybody handles."""


def interrupted(step: int, monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]) -> None:
    """Stop at the given one of all calls that touch the disk."""
    calls = [0]

    def counted(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == step:
                stop()
            return original(*args, **kwargs)

        return call

    for name in ("replace", "fsync", "listdir", "open", "write", "unlink"):
        monkeypatch.setattr(storage.os, name, counted(getattr(os, name)))
    monkeypatch.setattr(storage.Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(storage, "open", counted(open), raising=False)


def test_an_exception_at_any_step_leaves_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "idx"
    found: list[list[int]] = []

    def stop() -> None:
        raise Crash

    done = False
    while not done:
        shutil.rmtree(folder, ignore_errors=True)
        tiny(1).save(folder)
        with monkeypatch.context() as patch:
            interrupted(len(found) + 1, patch, stop)
            try:
                tiny(2).save(folder)
                done = True
            except Crash:
                pass
        found.append(gm.load(folder).ids.tolist())
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]
    assert found[0] == [1]
    assert found[-1] == [2]
    assert found == sorted(found)
    assert len(found) > 40


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("first", [True, False])
def test_a_killed_process_leaves_old_or_new(first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cleaned up after a kill: drafts and files without a manifest stay, and the next save copes."""
    matcher, old = tiny(2), tiny(1)
    matcher.match_one({})
    old.match_one({})
    folder = tmp_path / "idx"

    def save() -> None:
        child = os.fork()
        if child == 0:
            matcher.save(folder)
            os._exit(0)
        status.append(os.waitpid(child, 0)[1])

    status: list[int] = []
    step, seen = 1, []
    while not status or status[-1] != 0:
        shutil.rmtree(folder, ignore_errors=True)
        if not first:
            old.save(folder)
        with monkeypatch.context() as patch:
            interrupted(step, patch, lambda: os._exit(9))
            save()
        if first and not (folder / "manifest.json").exists():
            seen.append([])
            with pytest.raises(gm.StorageError):
                gm.load(folder)
        else:
            seen.append(gm.load(folder).ids.tolist())
        old.save(folder)  # into what the crash left
        assert gm.load(folder).ids.tolist() == [1]
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]
        step += 5
    assert seen[0] == ([] if first else [1])
    assert seen[-1] == [2]


def test_a_reader_follows_when_the_index_is_saved_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(1).save(tmp_path / "idx")
    original, saves = storage._read_array, iter([2, 3])

    def read(*args: Any) -> Any:
        for value in saves:
            tiny(value).save(tmp_path / "idx")
            break
        return original(*args)

    monkeypatch.setattr(storage, "_read_array", read)
    assert gm.load(tmp_path / "idx").ids.tolist() == [3]


# Damage


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


def test_an_altered_byte_in_any_file(saved: Path) -> None:
    assert len(files(saved)) > 40
    for path in files(saved):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(gm.StorageError, match="was altered: its checksum differs"):
            gm.load(saved)
        path.write_bytes(content)
    gm.load(saved)


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_or_missing_file(saved: Path, verify: bool) -> None:
    for path in files(saved)[::4]:
        content = path.read_bytes()
        for kept in (content[:-1], b"", content + b"x"):
            path.write_bytes(kept)
            with pytest.raises(gm.StorageError, match=f"has {len(kept)} bytes, expected {len(content)}"):
                gm.load(saved, verify=verify)
        path.unlink()
        with pytest.raises(gm.StorageError, match="is missing"):
            gm.load(saved, verify=verify)
        path.write_bytes(content)


def test_any_altered_byte_of_a_manifest(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    path = tmp_path / "manifest.json"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        if content[at : at + 1].isspace():
            continue
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(gm.StorageError):
            gm.load(tmp_path)
    for length in (0, 1, len(content) // 2, len(content) - 2):
        path.write_bytes(content[:length])
        with pytest.raises(gm.StorageError):
            gm.load(tmp_path)


def test_a_reader_without_patterns_must_refuse_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = gm.Matcher({"s": "string"}, device="cpu")
    matcher.add({"prefix": "s LIKE 'ab%'", "equal": "s LIKE 'ab'"})
    matcher.save(tmp_path)
    assert manifest(tmp_path)["features"] == []
    matcher.add({"pattern": "s LIKE '%b'"})
    matcher.save(tmp_path)
    assert manifest(tmp_path)["features"] == ["patterns"]
    loaded = gm.load(tmp_path, device="cpu")
    assert loaded.match_one({"s": "ab"}) == ["prefix", "equal", "pattern"]
    loaded.remove(["pattern"])
    loaded.compact()
    loaded.save(tmp_path)
    assert manifest(tmp_path)["features"] == []
    matcher.save(tmp_path)
    monkeypatch.setattr("gpumatch.store.folder.manifests.FEATURES", frozenset())
    with pytest.raises(gm.StorageError, match="needs patterns, which this version lacks"):
        gm.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 7}, "has format 7, this version reads up to 6; upgrade gpumatch"),
        ({"format": 4}, "has format 4, expected 5 or 6; build the index again"),
        ({"features": ["quantum"]}, "needs quantum, which this version lacks; upgrade gpumatch"),
        ({"format": "one"}, "is not one of gpumatch"),
        ({"features": None}, "is not one of gpumatch"),
    ],
)
def test_formats_of_the_future(saved: Path, change: dict[str, Any], message: str) -> None:
    write_manifest(saved, {**manifest(saved), **change})
    with pytest.raises(gm.StorageError) as caught:
        gm.load(saved)
    assert message in str(caught.value)


def test_what_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "manifest.json").write_text("[]")
    with pytest.raises(gm.StorageError, match="does not exist"):
        gm.load(tmp_path / "nowhere")
    with pytest.raises(gm.StorageError, match="it has no manifest"):
        gm.load(tmp_path)
    with pytest.raises(gm.StorageError, match="is a file; a saved index is a directory"):
        gm.load(tmp_path / "file")
    with pytest.raises(gm.StorageError, match="is not one of gpumatch"):
        gm.load(tmp_path / "list")


# Malice


def first_entry(held: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = held["segments"][0]["arrays"]["table.clause_row"]
    return entry


@pytest.mark.parametrize(
    "name", ["../secret.npy", "/etc/passwd", "s0.x/../../y-0123456789abcdef.npy", "manifest.json", "s0.ids.npy", ""]
)
def test_a_manifest_names_no_file_elsewhere(saved: Path, name: str) -> None:
    held = manifest(saved)
    first_entry(held)["file"] = name
    write_manifest(saved, held)
    with pytest.raises(gm.StorageError, match="which is no file of an index"):
        gm.load(saved, verify=False)


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["GPUMATCH_TEST_BOMB"],)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("kind", ["object array", "pickle", "archive", "nothing"])
def test_opening_runs_no_code(
    saved: Path, kind: str, mmap: bool, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUMATCH_TEST_BOMB", str(tmp_path / "boom"))
    held = manifest(saved)
    entry = first_entry(held)
    path = saved / entry["file"]
    with open(path, "wb") as out:
        if kind == "object array":
            np.save(out, np.array([Bomb()], object), allow_pickle=True)
        elif kind == "pickle":
            pickle.dump(Bomb(), out)
        elif kind == "archive":
            np.savez(out, a=np.array([Bomb()], object))
    entry.update(size=path.stat().st_size, sha256=storage._hash_file(path))
    write_manifest(saved, held)
    with pytest.raises(gm.StorageError, match="is not an array"):
        gm.load(saved, mmap=mmap, verify=verify)
    assert not (tmp_path / "boom").exists()


def test_arrays_of_another_type_are_refused(saved: Path) -> None:
    held = manifest(saved)
    name, entry = next(pair for pair in held["segments"][0]["arrays"].items() if pair[0].startswith("index0."))
    path = saved / entry["file"]
    np.save(path, np.zeros(4, np.complex64))
    entry.update(size=path.stat().st_size, sha256=storage._hash_file(path))
    write_manifest(saved, held)
    with pytest.raises(
        gm.StorageError, match=f"'{name[7:]}' of a .* index should be .*, has 1 dimensions of complex64"
    ):
        gm.load(saved)


def test_an_array_that_is_not_there(saved: Path) -> None:
    held = manifest(saved)
    del held["segments"][0]["arrays"]["book.cuts"]
    write_manifest(saved, held)
    with pytest.raises(gm.StorageError, match=r"lacks the array 'book\.cuts'"):
        gm.load(saved)


def test_an_index_of_an_unknown_kind(saved: Path) -> None:
    held = manifest(saved)
    held["segments"][0]["parts"][0]["index"] = {"kind": "oracle"}
    write_manifest(saved, held)
    with pytest.raises(gm.StorageError, match="of kind 'oracle', which is not known here; upgrade"):
        gm.load(saved)
