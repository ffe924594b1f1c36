"""Commands that change an index in its folder: each is one version or none."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import gpumatch as gm
from gpumatch.cli import subscriptions as reading
from gpumatch.store import store
from gpumatch.store.folder import disk
from gpumatch.store.folder.directory import write_shards
from gpumatch.store.folder.history import Entry
from gpumatch.store.folder.manifests import shard_name
from tests.cli.shell import Shell

SCHEMA = "sym:string,px:float64"
ALERTS = {"hot": "sym = 'NVDA' AND px > 900", "cheap": "px < 10 OR sym = 'X'"}
MORE = {"mid": "px BETWEEN 10 AND 20", "x": "sym = 'X'"}


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    written("alerts.csv", ALERTS)
    written("more.csv", MORE)
    shell = Shell(tmp_path, capsys)
    shell("build", "alerts.csv", "idx", "--schema", SCHEMA)
    return shell


def written(name: str, alerts: dict[str, str], **names: str) -> None:
    pa.csv.write_csv(pa.table({"id": list(alerts), "expr": list(alerts.values())}), name)


def contents(folder: str = "idx") -> tuple[str | None, dict[object, str]]:
    """The version and what it has."""
    matcher = gm.open(folder)
    return matcher.version, {name: str(matcher[name]) for name in matcher}


def refused(shell: Shell, *arguments: str) -> str:
    """The one line of an error; nothing has changed."""
    before = contents()
    message = shell.fails(*arguments)
    assert re.fullmatch("error: .*\n", message), message
    assert contents() == before
    return message


def test_add(shell: Shell) -> None:
    shown = shell("add", "idx", "more.csv")
    version, held = contents()
    assert held == ALERTS | MORE
    assert re.fullmatch(rf"2 subscriptions added to idx, which has 4 in version {version} after .* s\n", shown)
    assert gm.load("idx").match_one({"sym": "X", "px": 15.0}) == ["cheap", "mid", "x"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_other_files_and_columns(shell: Shell, suffix: str) -> None:
    if suffix == "parquet":
        pq.write_table(pa.table({"key": list(MORE), "rule": list(MORE.values())}), "more.parquet")
    else:
        Path("more.jsonl").write_text("".join(f'{{"key": "{name}", "rule": "{MORE[name]}"}}\n' for name in MORE))
    assert "has no column 'id'" in refused(shell, "add", "idx", f"more.{suffix}")
    shell("add", "idx", f"more.{suffix}", "--id", "key", "--where", "rule")
    assert contents()[1] == ALERTS | MORE
    shell("remove", "idx", f"more.{suffix}", "--id", "key")
    assert contents()[1] == ALERTS


def test_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("more.csv").read_bytes())))
    shell("add", "idx", "-")
    assert contents()[1] == ALERTS | MORE
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": "x"}\n{"id": "hot"}\n{"id": "x"}\n')))
    assert shell("remove", "idx", "-").startswith("2 subscriptions removed from idx, which has 2 in version 2-")
    assert list(contents()[1]) == ["cheap", "mid"]


@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_bad_ones_are_listed(shell: Shell, on_error: str) -> None:
    before = contents()
    written("bad.csv", {"good": "px > 1", "typo": "px >> 1", "hot": "px > 2"})
    raises = on_error == "raise"
    shown = shell("add", "idx", "bad.csv", "--on-error", on_error, code=2 if raises else 0)
    for name, message in (("typo", " 4 "), ("hot", "is there already")):
        assert any(name in line and message in line for line in shown.splitlines()), shown
    if raises:
        assert shell.err == (
            "error: 2 of 3 subscriptions are bad, so nothing was added; fix them, or leave them out with "
            "--on-error collect, or change those that exist with --upsert\n"
        )
        assert contents() == before
    else:
        assert contents()[1] == ALERTS | {"good": "px > 1"}


def test_an_id_twice_in_a_file(shell: Shell) -> None:
    Path("twice.csv").write_text("id,expr\na,px > 1\nb,px > 1\na,px > 2\n")
    for arguments in ([], ["--upsert"]):
        before = contents()
        shown = shell("add", "idx", "twice.csv", *arguments, code=2)
        assert "1 of 3 subscriptions are bad" in shell.err
        assert "'a' " in shown
        assert contents() == before


def test_upsert(shell: Shell) -> None:
    written("changed.csv", {"new": "px = 1", "hot": "px > 1000"})
    assert shell("add", "idx", "changed.csv", "--upsert").startswith("1 subscriptions added and 1 changed in idx")
    assert contents()[1] == {"cheap": ALERTS["cheap"], "new": "px = 1", "hot": "px > 1000"}
    written("bad.csv", {"new": "px = 2", "typo": "px >> 1"})
    before = contents()
    shell("add", "idx", "bad.csv", "--upsert", code=2)
    assert contents() == before
    shell("add", "idx", "bad.csv", "--upsert", "--on-error", "collect")
    assert contents()[1]["new"] == "px = 2"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("upsert", [False, True])
def test_a_long_file_is_one_change(shell: Shell, monkeypatch: pytest.MonkeyPatch, large: bool, upsert: bool) -> None:
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 7)
    if large:
        monkeypatch.setattr(store, "SCANNED", 10)  # then it is indexed before it is written
    shell("add", "idx", "more.csv")
    many = {f"n{at}": f"px > {at}" for at in range(100)} | ({"x": "px = 3"} if upsert else {})
    written("many.csv", many)
    number = int(str(contents()[0]).partition("-")[0])
    shell("add", "idx", "many.csv", *["--upsert"] * upsert)
    version, held = contents()
    assert version is not None
    assert version.startswith(f"{number + 1}-")
    assert held == ALERTS | MORE | many
    matches = gm.load("idx", verify="full").match_one({"px": 3.5, "sym": "Y"})
    assert sorted(matches) == sorted(["cheap", "n0", "n1", "n2", "n3"])


def test_a_change_without_rows(shell: Shell) -> None:
    before = contents()
    Path("none.csv").write_text("id,expr\n")
    for arguments in (["add"], ["add", "--upsert"], ["remove"]):
        assert shell(*arguments, "idx", "none.csv").startswith("0 subscriptions ")
    assert contents() == before


def test_remove(shell: Shell) -> None:
    shell("add", "idx", "more.csv")
    shown = shell("remove", "idx", "--ids", "hot", "x", "hot")
    version, held = contents()
    assert shown == f"2 subscriptions removed from idx, which has 2 in version {version}\n"
    assert list(held) == ["cheap", "mid"]
    Path("gone.csv").write_text("id,other\nmid,1\ncheap,2\n")
    shell("remove", "idx", "gone.csv")
    assert contents()[1] == {}


def test_destinations_and_weights(shell: Shell) -> None:
    Path("d.csv").write_text("id,expr,to,heavy\na,px > 1,north,2.5\nb,px > 1,south,\nc,px > 1,,7\n")
    columns = ("--destination", "to", "--weight", "heavy")
    shell("build", "d.csv", "new", "--schema", SCHEMA, *columns)
    shell("add", "idx", "d.csv", *columns)
    for folder in ("new", "idx"):
        matcher = gm.load(folder)
        assert list(matcher.destinations([{"px": 5.0}])) == [["north", "south"]]
        assert [*matcher.top([{"px": 15.0}], 2)] == [["c", "a"]]
    Path("d.csv").write_text("id,expr,to,heavy\na,px > 1,east,9\nhot,px > 1,west,1\n")
    shell("add", "idx", "d.csv", "--upsert", *columns)
    changed = gm.load("idx")
    assert set(changed.destinations([{"px": 15.0}]).ids(0)) == {"east", "south", "west"}
    assert [*changed.top([{"px": 15.0}], 2)] == [["a", "c"]]
    Path("d.csv").write_text("id,expr,to,heavy\na,px > 2,,\nhot,px > 2,,\n")
    shell("add", "idx", "d.csv", "--upsert")
    assert set(gm.load("idx").destinations([{"px": 15.0}]).ids(0)) == {"east", "south", "west"}
    shell("add", "idx", "d.csv", "--upsert", "--destination", "to")  # a column of none takes them away
    changed = gm.load("idx")
    assert changed.destinations([{"px": 15.0}]).ids(0) == ["south"]
    assert [*changed.top([{"px": 15.0}], 2)] == [["a", "c"]]
    Path("d.csv").write_text("id,expr,heavy\nz,px > 1,much\n")
    assert "the column 'heavy' should have numbers" in shell.fails("add", "idx", "d.csv", "--weight", "heavy")
    assert "has no column 'to'" in shell.fails("add", "idx", "d.csv", "--destination", "to")


def test_building_over_an_index_says_so(shell: Shell) -> None:
    assert "replace" not in shell("build", "more.csv", "other", "--schema", SCHEMA)
    assert "; they replace the index that was there" in shell("build", "alerts.csv", "other", "--schema", SCHEMA)
    assert contents("other")[1] == ALERTS


def test_integer_ids(shell: Shell) -> None:
    matcher = gm.Matcher({"px": float})
    matcher.add({7: "px > 7", -3: "px > 3"})
    matcher.save("numbers")
    written("n.csv", {"8": "px > 8", "009": "px > 9"})
    shell("add", "numbers", "n.csv")
    assert list(gm.load("numbers")) == [7, -3, 8, 9]
    shell("remove", "numbers", "--ids", "-3", "8")
    assert list(gm.load("numbers")) == [7, 9]
    assert "the ids of the index are integers, found 'hot'" in refused(shell, "add", "numbers", "alerts.csv")
    assert "the ids of the index are integers" in refused(shell, "remove", "numbers", "--ids", "x")
    Path("n.jsonl").write_text('{"id": 1, "expr": "px > 1"}\n')
    assert "all strings or all integers" in shell("add", "idx", "n.jsonl", code=2)


def test_what_is_not_there_is_not_removed(shell: Shell) -> None:
    assert "there is no subscription with the id 'warm'" in refused(shell, "remove", "idx", "--ids", "hot", "warm")
    Path("gone.csv").write_text("id\nhot\nHOT\n")
    assert "there is no subscription with the id 'HOT'" in refused(shell, "remove", "idx", "gone.csv")


def test_compact(shell: Shell) -> None:
    shell("add", "idx", "more.csv")
    shell("remove", "idx", "--ids", "hot")
    version, held = contents()
    shown = shell("compact", "idx")
    assert shown.startswith("3 subscriptions in idx; segments: 2 before, 1 now; removed rows: 1 before, 0 now; after ")
    assert contents() == (version, held)
    assert len(gm.load("idx").stats()["segments"]) == 1
    shell("remove", "idx", "--ids", *held)
    shell("compact", "idx")
    assert contents()[1] == {}


def test_log(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {contents()[0]: ALERTS}
    rows = [("",)]
    for arguments, row in (
        (["add", "idx", "more.csv"], ("add", "2", "0")),
        (["remove", "idx", "--ids", "hot"], ("remove", "0", "1")),
        (["compact", "idx"], None),
        (["add", "idx", "more.csv", "--upsert"], ("upsert", "2", "2")),
    ):
        shell(*arguments)
        if row is not None:
            rows.append(row)
        version, held = contents()
        expected[version] = held
    shown = shell("log", "idx")
    cells = (line.strip("│").split("│") for line in shown.splitlines() if line.startswith("│"))
    lines = [[cell.strip() for cell in line] for line in cells]
    assert [line[0] for line in lines] == list(expected)[::-1]
    assert [tuple(line[2:]) for line in lines[:-1]] == rows[:0:-1]
    assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]", line[1]) for line in lines[:-1])
    assert "loads any of them, 4 in all" in shown
    for version, held in expected.items():
        loaded = gm.load("idx", version=version)
        assert {name: str(loaded[name]) for name in loaded} == held
    assert "and 3 more" in shell("log", "idx", "--last", "1")


@pytest.mark.parametrize("seconds", [1e20, -1e20, float("nan"), float("inf")])
def test_the_log_of_a_wrong_clock(shell: Shell, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("gpumatch.store.folder.history.history", lambda _: [Entry("1-9f86d081", "add", seconds, 2, 0)])
    [line] = [line for line in shell("log", "idx").splitlines() if "1-9f86d081" in line]
    assert f"{seconds:g} s after 1970" in line


def test_info_shows_the_version(shell: Shell) -> None:
    shell("add", "idx", "more.csv")
    assert any("version" in line and str(contents()[0]) in line for line in shell("info", "idx").splitlines())


CHANGES = (["add", "IDX", "more.csv"], ["remove", "IDX", "--ids", "hot"], ["compact", "IDX"])


@pytest.mark.parametrize("arguments", [*CHANGES, ["log", "IDX"]])
def test_what_is_no_folder_of_an_index(shell: Shell, arguments: list[str]) -> None:
    def fails(index: str) -> str:
        return refused(shell, *(index if it == "IDX" else it for it in arguments))

    assert "'none' does not exist" in fails("none")
    assert not Path("none").exists()
    Path("empty").mkdir()
    assert "has no manifest.json" in fails("empty")
    assert "is in an object store" in fails("s3://bucket/idx")
    assert "is a file" in fails("more.csv")
    shard = shard_name(0, "0" * 16)
    matcher = gm.Matcher({"px": float})
    matcher.add({"a": "px > 1"})
    matcher.save(Path("sharded") / shard)
    write_shards("sharded", [shard])
    assert "has shards" in fails("sharded")
    with pytest.raises(gm.StorageError, match="has shards, which only Spark changes"):
        gm.open("sharded").add({"b": "px > 1"})


@pytest.mark.parametrize("arguments", CHANGES)
def test_a_folder_that_is_open(shell: Shell, arguments: list[str]) -> None:
    with gm.open("idx", "a") as matcher:
        matcher.add({"held": "px > 1"})
        given = ["idx" if it == "IDX" else it for it in arguments]
        assert f"is open for writing in process {os.getpid()}" in refused(shell, *given)
        assert "add" in shell("log", "idx")
    shell(*given)


@pytest.mark.parametrize("arguments", CHANGES)
def test_a_full_disk(shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    def full(descriptor: int, content: bytes) -> None:
        os.write(descriptor, bytes(content)[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shell("add", "idx", "more.csv")  # the log is there
    written("more.csv", {"other": "px > 1"})
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", full)
        message = refused(shell, *("idx" if it == "IDX" else it for it in arguments))
    assert "No space left on device" in message
    assert "make room" in message


@pytest.mark.long
def test_as_processes(shell: Shell) -> None:
    for arguments in (["add", "idx", "more.csv"], ["remove", "idx", "--ids", "hot"], ["compact", "idx"]):
        run = subprocess.run([sys.executable, "-m", "gpumatch", *arguments], capture_output=True, text=True)
        assert (run.returncode, run.stderr) == (0, "")
    assert list(contents()[1]) == ["cheap", "mid", "x"]
    run = subprocess.run([sys.executable, "-m", "gpumatch", "add", "idx", "more.csv"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "is there already" in run.stdout
