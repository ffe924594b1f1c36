"""Indexes in object stores: an S3 API on this machine, and folders by URI."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpumatch as gm
from gpumatch.cli import main
from gpumatch.store.folder import copies, directory, manifests, place, remote
from tests.examples import later
from tests.s3 import ACCOUNT, BUCKET, S3, running

EVENTS = [{"x": x, "s": s} for x in range(12) for s in ("a", "b", None)]


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture
def s3(server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A bucket of the test's own, and no copies on this machine."""
    for name, value in {**ACCOUNT, copies.FOLDER: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(copies.BYTES, raising=False)
    server.pause, server.cut, server.refuse = 0.0, False, False
    server.store.create_dir(BUCKET)
    server.store.delete_dir_contents(BUCKET)
    server.requests.clear()
    return server


def matcher(first: int = 0) -> gm.Matcher:
    made = gm.Matcher({"x": "int64", "s": "string"})
    made.add({f"r{n}": f"x = {n} OR s = 'a' AND x > {n}" for n in range(first, first + 9)})
    return made


def answers(made: gm.Matcher) -> list[list[Any]]:
    return [list(ids) for ids in made.match(EVENTS)]


def versions(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("gpumatch-store-*/*") if path.is_dir())


def in_store(s3: S3, under: str = "i") -> set[str]:
    from pyarrow.fs import FileSelector

    found = s3.store.get_file_info(FileSelector(f"{BUCKET}/{under}", allow_not_found=True))
    return {info.base_name for info in found if info.is_file}


def rewrite(s3: S3, name: str, change: Any) -> None:
    path = f"{BUCKET}/i/{name}"
    with s3.store.open_input_stream(path) as source:
        content = source.read()
    with s3.store.open_output_stream(path) as out:
        out.write(change(content))


def running_elsewhere(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", f"import gpumatch as gm\n{code}"], stdout=subprocess.PIPE, text=True)


# Saving and loading


def test_round_trip(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_CHUNK", 100)
    before = matcher()
    before.save(s3.uri("deep/i"))
    after = gm.load(s3.uri("deep/i"))
    assert answers(after) == answers(before)
    assert after.ids.tolist() == before.ids.tolist()
    assert answers(gm.load(s3.uri("deep/i"), mmap=False, verify=False)) == answers(before)
    [copy] = versions(tmp_path)
    assert answers(gm.load(copy)) == answers(before)


def test_what_is_here_is_not_fetched_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher().save(s3.uri("i"))
    gm.load(s3.uri("i"), verify="once")
    fetched = s3.files("GET")
    assert set(fetched) == in_store(s3) - {"manifest.json"}
    monkeypatch.setattr(directory, "_hash_file", None)  # what has just come is not read again
    gm.load(s3.uri("i"), verify="once")
    assert s3.files("GET") == fetched


def test_a_new_version_while_the_old_is_open(s3: S3, tmp_path: Path) -> None:
    old, new = matcher(), matcher(5)
    old.save(s3.uri("i"))
    opened = gm.load(s3.uri("i"))
    new.save(s3.uri("i"))
    assert answers(gm.load(s3.uri("i"))) == answers(new)
    assert answers(opened) == answers(old)
    assert len(versions(tmp_path)) == 2


def test_versions_share_files(s3: S3) -> None:
    """Neither goes over the wire what is there already."""
    made = matcher()
    made.save(s3.uri("i"))
    gm.load(s3.uri("i"))
    first = set(s3.files("GET"))
    s3.requests.clear()
    made.remove(["r3"])
    made.save(s3.uri("i"))
    assert answers(gm.load(s3.uri("i"))) == answers(made)
    for method in ("PUT", "GET"):
        assert s3.files(method)
        assert not first & set(s3.files(method))


def test_files_without_a_name_go_after_a_while(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher().save(s3.uri("i"))
    old = in_store(s3)
    matcher(5).save(s3.uri("i"))
    assert old <= in_store(s3)  # somebody may be about to name them
    monkeypatch.setattr(place, "_GRACE", -2)  # S3 counts whole seconds
    matcher(7).save(s3.uri("i"))
    named = {entry["file"] for entry in manifests.files_of(remote.read_manifest(s3.uri("i")), "")}
    assert in_store(s3) == named | {"manifest.json"}


@pytest.mark.long
def test_saved_over_while_it_is_fetched(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_GRACE", -2)
    matcher().save(s3.uri("i"))
    newer = [matcher(7), matcher(5)]
    fetch = place.Place.fetch

    def late(self: place.Place, manifest: Any, folder: Path) -> None:
        if newer:
            newer.pop().save(s3.uri("i"))
        fetch(self, manifest, folder)

    monkeypatch.setattr(place.Place, "fetch", late)
    assert answers(gm.load(s3.uri("i"))) == answers(matcher(7))


def test_a_manifest_that_is_being_replaced(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS has none for an instant."""
    matcher().save(s3.uri("i"))
    s3.store.move(f"{BUCKET}/i/manifest.json", f"{BUCKET}/aside")
    back = SimpleNamespace(sleep=lambda _: s3.store.move(f"{BUCKET}/aside", f"{BUCKET}/i/manifest.json"))
    monkeypatch.setattr(place, "time", back)
    assert len(gm.load(s3.uri("i"))) == 9


def test_other_files_are_left_alone(s3: S3) -> None:
    with s3.store.open_output_stream(f"{BUCKET}/i/letters.txt") as out:
        out.write(b"dear")
    with pytest.raises(gm.StorageError, match=r"cannot save in 's3://indexes/i': it holds other files \('letters.txt'"):
        matcher().save(s3.uri("i"))


@pytest.mark.long
def test_a_save_that_was_killed(s3: S3) -> None:
    made = "m = gm.Matcher({'x': 'int64'}); m.add({n: f'x = {n}' for n in range(9)}); "
    s3.pause = 0.1
    saving = running_elsewhere(f"{made}m.save({s3.uri('i')!r})")
    try:
        while not in_store(s3):
            assert saving.poll() is None
    finally:
        saving.kill()
        saving.communicate()
    s3.pause = 0.0
    with pytest.raises(gm.StorageError, match="'s3://indexes/i' is not a saved index: it has no manifest"):
        gm.load(s3.uri("i"))
    whole = gm.Matcher({"x": "int64"})
    whole.add({n: f"x = {n}" for n in range(9)})
    whole.save(s3.uri("i"))
    assert gm.load(s3.uri("i")).match_one({"x": 4}) == [4]


def test_folders_by_uri(s3: S3, tmp_path: Path) -> None:
    uri = (tmp_path / "new" / "i").as_uri()
    matcher().save(uri)
    assert answers(gm.load(uri)) == answers(matcher())
    assert answers(gm.load(tmp_path / "new" / "i")) == answers(matcher())
    assert s3.requests == []
    (tmp_path / "file").write_text("")
    with pytest.raises(gm.StorageError, match=r"cannot \w+ 'file:///\S+/file/i'"):
        matcher().save((tmp_path / "file" / "i").as_uri())


def test_shards(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [manifests.shard_name(n, 16 * str(n)) for n in range(3)]
    for n, name in enumerate(names):
        matcher(10 * n).save(remote.below(s3.uri("i/"), name))
    remote.write_shards(s3.uri("i"), names[:2])
    assert gm.load(s3.uri("i")).ids.tolist() == [f"r{n}" for n in (*range(9), *range(10, 19))]
    first = len(s3.files("GET"))
    monkeypatch.setattr(place, "_GRACE", -2)
    remote.write_shards(s3.uri("i"), names[1:])
    assert len(gm.load(s3.uri("i"))) == 18
    assert len(s3.files("GET")) <= first * 3 // 2  # the shard in the middle is here, and equal files of others
    assert len(gm.load(remote.below(s3.uri("i"), names[0]))) == 9  # frames of Spark may lead there
    remote.write_shards(s3.uri("i"), names[1:])
    with pytest.raises(gm.StorageError, match=f"s3://indexes/i/{names[0]}' is not a saved index"):
        gm.load(remote.below(s3.uri("i"), names[0]))
    matcher().save(remote.below(s3.uri("i"), names[1]))
    for copy in versions(Path(os.environ[copies.FOLDER])):
        copies._remove(copy)
    with pytest.raises(gm.StorageError, match=f"s3://indexes/i/{names[1]}' is another version"):
        gm.load(s3.uri("i"))


def test_commands(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "subs.csv").write_text("id,expr\na,x > 3\nb,x < 2\n")
    (tmp_path / "events.csv").write_text("x\n1\n5\n")
    uri = s3.uri("i", user="someone:s3cr3t@")
    assert main(["build", str(tmp_path / "subs.csv"), uri, "--schema", "x:int64"]) == 0
    assert main(["match", uri, str(tmp_path / "events.csv"), "-"]) == 0
    assert main(["info", uri]) == 0
    assert main(["explain", uri, "a", "--event", '{"x": 4}']) == 0
    assert main(["info", s3.uri("none", user="someone:s3cr3t@")]) == 2
    printed = "".join(capsys.readouterr())
    assert '1,"b"\n5,"a"\n' in printed
    assert "s3://indexes/i" in printed
    assert "s3cr3t" not in printed
    assert "endpoint" not in printed


# Copies


@pytest.mark.long
def test_two_processes_fetch_one_copy(s3: S3, tmp_path: Path) -> None:
    matcher().save(s3.uri("i"))
    s3.pause = 0.2
    code = f"print(gm.load({s3.uri('i')!r}).match_one({{'x': 4, 's': 'a'}}))"
    both = [running_elsewhere(code) for _ in range(2)]
    right = f"{matcher().match_one({'x': 4, 's': 'a'})}\n"
    assert [one.communicate()[0] for one in both] == [right, right]
    assert sorted(s3.files("GET")) == sorted(in_store(s3) - {"manifest.json"})
    [copy] = versions(tmp_path)
    assert not list(copy.glob(".*"))


@pytest.mark.long
def test_the_oldest_copies_go(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        matcher(n).save(s3.uri(f"i{n}"))
    digests = [remote.read_manifest(s3.uri(f"i{n}"))["checksum"] for n in range(4)]
    opened = {n: gm.load(s3.uri(f"i{n}")) for n in range(3)}
    folder = copies._copies()
    for at, n in enumerate((0, 2, 1)):
        os.utime(folder / digests[n], (at, at))
    remote.read_manifest(s3.uri("i2"))  # so it is used
    monkeypatch.setenv(copies.BYTES, str(copies._bytes(folder)))  # one has to go
    with copies._lock(folder / digests[0]) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # somebody is opening the oldest
        gm.load(s3.uri("i3"))
    assert {copy.name for copy in versions(tmp_path)} == {digests[n] for n in (0, 2, 3)}
    for n, made in opened.items():
        assert answers(made) == answers(matcher(n))  # mapped files stay readable
    monkeypatch.setenv(copies.BYTES, "10")
    assert answers(gm.load(s3.uri("i1"))) == answers(matcher(1))
    assert len(versions(tmp_path)) == 1
    monkeypatch.setenv(copies.BYTES, "ten")
    with pytest.raises(gm.StorageError, match="GPUMATCH_STORE_CACHE_BYTES must be a whole number of bytes"):
        gm.load(s3.uri("i2"))


@pytest.mark.parametrize("verify", [True, *later("once", False)])
def test_an_altered_copy_is_fetched_again(s3: S3, tmp_path: Path, verify: Any) -> None:
    matcher().save(s3.uri("i"))
    gm.load(s3.uri("i"), verify=verify)
    [copy] = versions(tmp_path)
    lost, *_, altered = sorted(copy.glob("*.npy"), key=lambda path: path.stat().st_size)
    lost.unlink()
    if verify:
        altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    s3.requests.clear()
    assert answers(gm.load(s3.uri("i"), verify=verify)) == answers(matcher())
    assert sorted(s3.files("GET")) == sorted([lost.name] + [altered.name] * bool(verify))


def test_copies_where_others_could_write_are_refused(s3: S3, tmp_path: Path) -> None:
    matcher().save(s3.uri("i"))
    gm.load(s3.uri("i"))
    copies._copies().chmod(0o777)
    with pytest.raises(gm.StorageError, match="expected a folder of this user that is closed to others"):
        gm.load(s3.uri("i"))


# What goes wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-3], r"has \d+ bytes, expected \d+"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "was altered"),
    ],
)
def test_damaged_files_are_refused(s3: S3, tmp_path: Path, change: Any, message: str) -> None:
    matcher().save(s3.uri("i"))
    name = max(in_store(s3) - {"manifest.json"})
    rewrite(s3, name, change)
    with pytest.raises(gm.StorageError, match=rf"'s3://indexes/i/{re.escape(name)}' {message}"):
        gm.load(s3.uri("i"))
    [copy] = versions(tmp_path)
    assert name not in {path.name for path in copy.iterdir()}
    assert not (copy / "manifest.json").exists()
    s3.store.delete_file(f"{BUCKET}/i/{name}")
    with pytest.raises(gm.StorageError, match=rf"cannot fetch 's3://indexes/i/{re.escape(name)}': there is no such"):
        gm.load(s3.uri("i"))
    matcher().save(s3.uri("i"))
    assert answers(gm.load(s3.uri("i"))) == answers(matcher())


@pytest.mark.long
def test_a_transfer_that_breaks_off(s3: S3, tmp_path: Path) -> None:
    matcher().save(s3.uri("i"))
    s3.cut = True
    with pytest.raises(gm.StorageError, match=r"cannot fetch 's3://indexes/i/s0\.\S+npy': .*try again"):
        gm.load(s3.uri("i"))
    [copy] = versions(tmp_path)
    assert list(copy.iterdir()) == []
    s3.cut = False
    assert answers(gm.load(s3.uri("i"))) == answers(matcher())


def test_a_damaged_manifest(s3: S3) -> None:
    matcher().save(s3.uri("i"))
    rewrite(s3, "manifest.json", lambda content: content.replace(b"s0.", b"../s0."))
    with pytest.raises(gm.StorageError, match="manifest of 's3://indexes/i' was altered"):
        gm.load(s3.uri("i"))
    matcher().save(s3.uri("i"))
    assert len(gm.load(s3.uri("i"))) == 9


SECRETS = ("s3cr3t", "hush", "endpoint_override")


def told(error: BaseException) -> str:
    """All that a traceback shows."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("action", [gm.load, lambda uri: matcher().save(uri)])
def test_refused(s3: S3, action: Any) -> None:
    s3.refuse = True
    uri = s3.uri("i", user="someone:s3cr3t@")
    with pytest.raises(gm.StorageError, match=r"cannot \w+ 's3://indexes/i\S*': .*; check the credentials") as caught:
        action(uri)
    assert not any(secret in told(caught.value) for secret in SECRETS)


def test_missing(s3: S3) -> None:
    with pytest.raises(gm.StorageError, match="'s3://indexes/none' is not a saved index: it has no manifest"):
        gm.load(s3.uri("none"))
    with pytest.raises(gm.StorageError, match="'s3://nowhere/i': there is no bucket 'nowhere'"):
        gm.load(s3.uri("i", bucket="nowhere"))
    with pytest.raises(gm.StorageError, match="cannot save in 's3://nowhere/i': there is no bucket 'nowhere'"):
        matcher().save(s3.uri("i", bucket="nowhere"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://me:s3cr3t@host/i?token=hush", r"cannot open 'ftp://host/i': .*; use s3://, gs://"),
        ("s3://me:s3cr3t@b/i?region=us-east-1&token=hush", r"cannot open 's3://b/i': .*token"),
        ("s3://me:s3c/s3cr3t@b/i?region=hush", r"cannot open 's3://b/i': Cannot parse URI.*%2F"),
        ("s3://b b/i?region=hush", r"cannot open 's3://b b/i': Cannot parse URI"),
    ],
)
def test_bad_uris(uri: str, message: str) -> None:
    for action in (gm.load, lambda uri: matcher().save(uri)):
        with pytest.raises(gm.StorageError, match=message) as caught:
            action(uri)
        assert not any(secret in told(caught.value) for secret in SECRETS)


def test_hdfs_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(gm.StorageError, match=r"cannot open 'hdfs://host:9000/i': .*; install Hadoop's client"):
        gm.load("hdfs://user@host:9000/i?kerb_ticket=hush")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://b/i", "s3://b/i"),
        ("s3://key:secret@b/i?a=b#c", "s3://b/i"),
        ("s3://key:sec/ret@b/i", "s3://b/i"),
        ("s3://b/a@b", "s3://b/a@b"),
        ("hdfs://host:90/a@b", "hdfs://host:90/a@b"),
        ("abfss://box@account.dfs.core.windows.net/i", "abfss://box@account.dfs.core.windows.net/i"),
        ("abfss://box:key@account.dfs.core.windows.net/i?x", "abfss://box@account.dfs.core.windows.net/i"),
        ("abfss://:key@account.dfs.core.windows.net/box/i", "abfss://account.dfs.core.windows.net/box/i"),
        ("/a/b?c@d", "/a/b?c@d"),
    ],
)
def test_secrets_are_not_shown(uri: str, shown: str) -> None:
    assert place.shown(uri) == shown
