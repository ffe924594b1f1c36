"""A disk that fails at any operation: no change is lost, none is made by halves, and what failed stays so."""

from __future__ import annotations

import errno
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumatch as gm
from gpumatch.store.folder import disk as disks_of_store
from gpumatch.store.folder import durable
from tests.examples import rounds
from tests.store import histories
from tests.store.disks import Disk, Failure
from tests.store.histories import Call, Model

eager = histories.eager

CALLS = 8
WAYS: dict[str, dict[str, Any]] = {
    "full": {"code": errno.ENOSPC, "torn": True},
    "full until there is room": {"code": errno.ENOSPC, "torn": True, "lasting": True},
    "broken": {"code": errno.EIO},
    "broken until it is mended": {"code": errno.EIO, "lasting": True},
}


def history() -> list[tuple[Call, Model]]:
    return list(islice(histories.random_calls(np.random.default_rng(5), {}), CALLS))


class Life:
    """A matcher in a folder on a disk that fails."""

    def __init__(self, folder: Path, failure: Failure, fsync: str) -> None:
        self.folder, self.failure, self.fsync = folder, failure, fsync
        self.model: Model = {}
        self.matcher = self.opened()
        self.reader = gm.open(folder, device="cpu")
        failure.watch = self.reader.refresh  # which may see what is about to be taken back

    def opened(self) -> gm.Matcher:
        given: dict[str, Any] = {"schema": histories.SCHEMA, "fsync": self.fsync, "background": False, "keep": 0}
        try:
            return gm.open(self.folder, "a", **given)
        except gm.StorageError as error:
            self.expect(error)
            return gm.open(self.folder, "a", **given)

    def expect(self, error: gm.StorageError) -> None:
        """The error is that of the disk, which is mended."""
        assert self.failure.happened
        assert any(text in str(error) for text in ("No space left", "Input/output error", "open the folder again"))
        self.failure.mend()

    def make(self, call: Call, later: Model) -> None:
        """Until it succeeds, which it does when the disk is mended."""
        for _ in range(3):
            try:
                histories.make(self.matcher, call)
            except gm.StorageError as error:
                self.expect(error)
                is_made = self.is_made_after_all(error, later)
            else:
                is_made = True
            self.model = later if is_made else self.model
            self.check(crashed=not is_made)
            if is_made:
                return
        raise AssertionError(f"{call} fails on a disk that is mended")

    def is_made_after_all(self, error: gm.StorageError, later: Model) -> bool:
        """If the error says that the folder must be opened again, that is done, and shows it."""
        is_unknown = "whether it was made shows when the folder is opened again" in str(error)
        if is_unknown or "open the folder again" in str(error):
            self.matcher.close()
            self.matcher = self.opened()
        return is_unknown and histories.state(self.matcher) == histories.state_of(later)

    def check(self, crashed: bool = False) -> None:
        """The matcher, its folder, and the folder after the process has ended hold what they should."""
        right = histories.state_of(self.model)
        assert histories.state(self.matcher) == right
        assert histories.state(gm.load(self.folder, device="cpu")) == right
        self.reader.refresh()
        assert histories.state(self.reader) == right
        if crashed:
            copy = shutil.copytree(self.folder, self.folder.with_name("copy"))
            with gm.open(copy, "a") as again:
                assert histories.state(again) == right
            shutil.rmtree(copy)

    def close(self) -> None:
        try:
            self.matcher.close()
        except gm.StorageError as error:
            self.expect(error)
            self.matcher.close()
        with pytest.raises(gm.StorageError, match="is closed"):
            self.matcher.add({99: "x = 1"})
        self.check()


def live(folder: Path, failure: Failure, fsync: str) -> int:
    """A history on a disk that fails once or for a while; returns the number of its operations."""
    disk = Disk(folder, failure)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disks_of_store, "os", disk)
        life = Life(folder, failure, fsync)
        for call, later in history():
            life.make(call, later)
        life.close()
    failure.mend()
    with gm.open(folder, "a") as again:
        assert histories.state(again) == histories.state_of(life.model)
    return disk.count


@pytest.fixture
def hasty(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_RETRY", 0.0)


def test_disks_that_fail_now_and_then(tmp_path: Path, hasty: None) -> None:
    assert live(tmp_path / "mended", Failure(-1), "always") > 100
    for number, way in enumerate(WAYS.values()):
        live(tmp_path / str(number), Failure(20 + 20 * number, **way), "always")


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_disks_that_fail_at_any_operation(way: str, tmp_path: Path, hasty: None) -> None:
    count = live(tmp_path / "mended", Failure(-1), "batch")
    step = count // rounds(count)
    for at in range(1 + list(WAYS).index(way), count + 1, step):
        failure = Failure(at, **WAYS[way])
        live(tmp_path / str(at), failure, "always" if at % 4 else "batch")
        assert failure.happened
        shutil.rmtree(tmp_path / str(at))
