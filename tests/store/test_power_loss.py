"""Power fails while an index is changed: what was synced is there, what was not may be there, torn or in any order."""

from __future__ import annotations

import errno
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
from tests.store.histories import Model

eager = histories.eager

IN_A_ROW = 4  # losses of power that a folder survives one after another
LOOKS = 12  # moments of each life that are tried
NOTHING = None  # there is no index yet


class Life:
    """A writer from opening a folder to closing it, and what it was promised."""

    def __init__(self, folder: Path, model: Model | None, rng: np.random.Generator, options: dict[str, Any]) -> None:
        self.rng, self.options, self.possible = rng, options, [model]
        only = str(rng.choice(["", "fsync", "write"]))
        failure = Failure(int(rng.integers(1, 40 if only else 200)), errno.EIO, torn=True, only=only)
        self.disk = Disk(folder, failure if rng.random() < 0.5 else None, shorten=lambda: bool(rng.random() < 0.1))

    def open(self) -> gm.Matcher:
        self.disk.promise(*self.possible, *[{}] * (self.possible == [NOTHING]))
        while True:
            try:
                matcher = gm.open(self.disk.folder, "a", schema=histories.SCHEMA, background=False, **self.options)
            except gm.StorageError:
                assert self.disk.failure.happened
                self.disk.failure.mend()
                continue
            found = histories.state(matcher)
            [model] = [it or {} for it in self.possible if histories.state_of(it or {}) == found][:1]
            self.kept(model, all_of_it=True)
            return matcher

    def kept(self, model: Model, all_of_it: bool) -> None:
        """The matcher holds this; on disk, in batches, may be what it held since it was last flushed."""
        self.possible = [model] if all_of_it else [*self.possible, model]
        self.disk.promise(*self.possible)

    def make(self, matcher: gm.Matcher, call: Any) -> gm.Matcher:
        model = self.possible[-1] or {}
        later = histories.after(model, call)
        self.disk.promise(*self.possible, later)
        try:
            histories.make(matcher, call)
        except gm.StorageError as error:
            assert self.disk.failure.happened
            if "opened again" in str(error) or "open the folder again" in str(error):
                self.possible.append(later)
                matcher.close()
                return self.open()
            self.disk.promise(*self.possible)
            return matcher
        self.kept(later, self.options["fsync"] == "always")
        return matcher

    def flush(self, matcher: gm.Matcher) -> gm.Matcher:
        try:
            matcher.flush()
        except gm.StorageError:
            assert self.disk.failure.happened
            matcher.close()
            return self.open()
        self.kept(self.possible[-1] or {}, all_of_it=True)
        return matcher

    def live(self) -> None:
        matcher = self.open()
        model = self.possible[-1] or {}
        for _ in range(8):
            [(call, _)] = islice(histories.random_calls(self.rng, model), 1)
            matcher = self.make(matcher, call)
            if self.rng.random() < 0.2:
                matcher = self.flush(matcher)
            model = self.possible[-1] or {}
            assert histories.state(matcher) == histories.state_of(model)
        try:
            matcher.close()
        except gm.StorageError:
            assert self.disk.failure.happened
            matcher.close()
        self.kept(model, all_of_it=True)

    def moment(self, look: int) -> int:
        """One of its operations, now and then a file's new name, or one soon after the disk has failed."""
        ops = self.disk.ops
        if look % 2 and self.disk.failed:
            return min(self.disk.failed + look, len(ops))
        named = [at for at, op in enumerate(ops, 1) if op[0] == "rename"]
        return int(self.rng.choice(named)) if look % 3 == 0 and named else int(self.rng.integers(1, len(ops) + 1))


def found_in(folder: Path, possible: Any) -> Model | None:
    """What is in a folder, which must be one of these."""
    try:
        found = histories.state(gm.load(folder, device="cpu", verify="full"))
    except gm.StorageError:
        if NOTHING not in possible or (folder / "manifest.json").exists():
            raise
        return NOTHING
    right = [model for model in possible if model is not NOTHING and histories.state_of(model) == found]
    assert right, (found, possible)
    return right[-1]


def torture(base: Path, seed: int, lives: int = IN_A_ROW) -> int:
    """Lives one after another, each beginning where the power failed in the one before; returns the losses of power."""
    rng = np.random.default_rng(seed)
    options = {"fsync": str(rng.choice(["always", "batch", "never"])), "keep": float(rng.choice([0, 3600]))}
    folder, model = base / "first", NOTHING
    folder.mkdir()
    for number in range(lives):
        life = Life(folder, model, rng, options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disks_of_store, "os", life.disk)
            life.live()
        for look in range(LOOKS):
            end = life.moment(look)
            folder = base / f"{number}-{look}"
            promised = life.disk.after_power_loss(end, rng, folder)
            model = found_in(folder, promised)
            if look % 3 == 0 and model is not NOTHING:
                with gm.open(folder, "a", **options) as again:
                    assert histories.state(again) == histories.state_of(model)
                assert found_in(folder, [model]) == model
    return lives * LOOKS


@pytest.fixture
def hasty(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_RETRY", 0.0)
    monkeypatch.setattr(durable, "_BATCH", 0.002)


def test_a_loss_of_power(tmp_path: Path, hasty: None) -> None:
    assert torture(tmp_path, 0, 1) > 0


def test_a_change_that_failed_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written, but not synced; then the power fails."""
    disk = Disk(tmp_path / "idx")
    monkeypatch.setattr(disks_of_store, "os", disk)
    matcher = gm.open(tmp_path / "idx", "a", schema=histories.SCHEMA, background=False)
    matcher.add({1: "x > 1"})
    disk.failure = Failure(1, errno.EIO, only="fsync")
    with pytest.raises(gm.StorageError, match="Input/output error; nothing of it was made"):
        matcher.add({2: "x > 2"})
    rng = np.random.default_rng(0)
    for look in range(20):
        disk.after_power_loss(len(disk.ops), rng, tmp_path / str(look))
        assert list(gm.load(tmp_path / str(look), device="cpu")) == [1]


def test_what_could_not_be_synced_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later sync succeeds though it does not write what the one before should have written."""
    disk = Disk(tmp_path / "idx")
    monkeypatch.setattr(disks_of_store, "os", disk)
    monkeypatch.setattr(durable, "_BATCH", 3600.0)
    given: dict[str, Any] = {"schema": histories.SCHEMA, "background": False, "fsync": "batch"}
    matcher = gm.open(tmp_path / "idx", "a", **given)
    matcher.add({1: "x > 1"})
    disk.failure = Failure(1, errno.EIO, only="fsync")
    with pytest.raises(gm.StorageError, match="earlier changes could not be put on disk; open the folder again"):
        matcher.flush()
    matcher.close()
    matcher = gm.open(tmp_path / "idx", "a", **given)
    assert list(matcher) == [1]
    matcher.add({2: "x > 2"})
    matcher.flush()
    rng = np.random.default_rng(0)
    for look in range(20):
        disk.after_power_loss(len(disk.ops), rng, tmp_path / str(look))
        assert list(gm.load(tmp_path / str(look), device="cpu")) == [1, 2]


@pytest.mark.long
def test_every_moment_of_a_fold(tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large segments some rows are removed, which is in files of its own."""
    monkeypatch.setattr(durable, "_ROWS", 1 << 30)
    disk = Disk(tmp_path / "idx")
    monkeypatch.setattr(disks_of_store, "os", disk)
    matcher = gm.open(tmp_path / "idx", "a", schema=histories.SCHEMA, background=False, keep=0)
    matcher.add_ranges(range(30), {"x": (range(30), None)})
    matcher.remove([3, 5])
    first, rng = len(disk.ops), np.random.default_rng(0)
    assert matcher._folder is not None
    matcher._folder.fold()
    assert any("dead" in str(op[1]) for op in disk.ops[first:] if op[0] == "rename")
    for end in range(first, len(disk.ops) + 1):
        for look in range(8):
            folder = tmp_path / f"{end}-{look}"
            disk.after_power_loss(end, rng, folder)
            assert histories.state(gm.load(folder, device="cpu", verify="full")) == histories.state(matcher)


@pytest.mark.long
def test_every_moment_of_a_save(tmp_path: Path, eager: None) -> None:
    """Over what has changed since the same was saved before: the changes must not come back."""
    saved, folder, rng = gm.Matcher(histories.SCHEMA), tmp_path / "idx", np.random.default_rng(0)
    saved.add({at: f"x > {at}" for at in range(10)})
    saved.save(folder)
    with gm.open(folder, "a", background=False) as writer:
        writer.add_ranges(range(10, 30), {"x": (range(20), None)})
        writer.remove([3])
        writer.compact()
        writer.add({99: "x > 1"})
    new, old = histories.state(saved), histories.state(writer)
    disk = Disk(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disks_of_store, "os", disk)
        saved.save(folder)
    for end in range(len(disk.ops) + 1):
        for look in range(6):
            after = tmp_path / f"{end}-{look}"
            disk.after_power_loss(end, rng, after)
            found = histories.state(gm.load(after, device="cpu", verify="full"))
            assert found == new or (found == old and end < len(disk.ops))


@pytest.mark.long
def test_losses_of_power(tmp_path: Path, hasty: None) -> None:
    count = 0
    for seed in range(1, rounds(60) + 1):
        (tmp_path / str(seed)).mkdir()
        count += torture(tmp_path / str(seed), seed)
    print(f"{count} losses of power")
