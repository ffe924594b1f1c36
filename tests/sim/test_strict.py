"""The strict device refuses what a real one would only sometimes punish."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import int64

from gpumatch.device.card import Card
from gpumatch.kernels.cuda.target import Kernel, cuda
from tests.sim import strict


def run(body: Any, threads: int = 4, blocks: int = 1, size: int = 8) -> list[int]:
    card = Card(0)
    card.threads = threads
    out = card.xp.zeros(size, dtype=np.int64)
    card.launch(Kernel("a kernel", body, "void(i8[::1])", 256), threads * blocks, out, blocks=blocks)
    return card.download(out).tolist()


def shift_without_barrier(out: Any) -> None:
    held = cuda.shared.array(4, int64)
    x = cuda.threadIdx.x
    held[x] = x
    out[x] = held[(x + 1) % 4]


def shift_back_too_early(out: Any) -> None:
    held = cuda.shared.array(4, int64)
    x = cuda.threadIdx.x
    held[x] = x
    cuda.syncthreads()
    out[x] = held[(x + 1) % 4]
    held[x] = 0


def all_write_one_place(out: Any) -> None:
    out[0] = cuda.threadIdx.x


def blocks_write_one_place(out: Any) -> None:
    if cuda.threadIdx.x == 0:
        out[0] = cuda.blockIdx.x


def blocks_read_what_one_writes(out: Any) -> None:
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 2:
            out[0] = 1
        else:
            out[1 + cuda.blockIdx.x] = out[0]


def some_add_others_write(out: Any) -> None:
    if cuda.threadIdx.x == 0:
        out[0] = 0
    else:
        cuda.atomic.add(out, 0, 1)


@pytest.mark.parametrize("body", [shift_without_barrier, shift_back_too_early, all_write_one_place])
def test_threads_race(body: Any) -> None:
    with pytest.raises(strict.Race):
        run(body)


@pytest.mark.parametrize("body", [blocks_write_one_place, blocks_read_what_one_writes, some_add_others_write])
def test_blocks_race(body: Any) -> None:
    with pytest.raises(strict.Race):
        run(body, blocks=3)


def some_skip_the_barrier(out: Any) -> None:
    if cuda.threadIdx.x < 2:
        cuda.syncthreads()


def some_wait_elsewhere(out: Any) -> None:
    if cuda.threadIdx.x < 2:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def one_leaves_early(out: Any) -> None:
    for i in range(3):
        if cuda.threadIdx.x == 1 and i == 2:
            return
        cuda.syncthreads_count(i)


@pytest.mark.parametrize("body", [some_skip_the_barrier, some_wait_elsewhere, one_leaves_early])
def test_barriers_that_not_all_reach(body: Any) -> None:
    with pytest.raises(strict.Diverged):
        run(body)


def read_before(out: Any) -> None:
    out[0] = out[-1]


def read_behind(out: Any) -> None:
    out[0] = out[out.size]


def write_before(out: Any) -> None:
    out[-1] = 1


def write_behind(out: Any) -> None:
    out[out.size] = 1


@pytest.mark.parametrize("body", [read_before, read_behind, write_before, write_behind])
def test_places_outside(body: Any) -> None:
    with pytest.raises(IndexError):
        run(body)


def wait_for_nothing(out: Any) -> None:
    while cuda.atomic.cas(out, 0, 0, 0) == 0:
        pass


def test_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "STEPS", 1000)
    with pytest.raises(strict.Endless):
        run(wait_for_nothing)


def every_number(out: Any) -> None:
    """Votes, atomics, shared memory and blocks, as they should be used."""
    held = cuda.shared.array(4, int64)
    x = cuda.threadIdx.x
    many = cuda.syncthreads_count(x > 0)
    held[x] = many + cuda.syncthreads_or(x > 5)
    cuda.syncthreads()
    cuda.atomic.add(out, 0, held[3 - x])
    if x == 0:
        out[1 + cuda.blockIdx.x] = cuda.atomic.cas(out, 5, cuda.blockIdx.x, cuda.blockIdx.x + 1)
    i = cuda.grid(1)
    if i == cuda.gridsize(1) - 1:
        out[6] = i


def test_what_is_right_runs() -> None:
    """Also after kernels that failed, whose threads are used again."""
    for body in (shift_without_barrier, some_skip_the_barrier, one_leaves_early):
        with pytest.raises((strict.Race, strict.Diverged)):
            run(body)
        assert run(every_number, blocks=3) == [36, 0, 1, 2, 0, 3, 11, 0]


def give_what_was_there(out: Any) -> None:
    held = cuda.shared.array(4, int64)
    x = cuda.threadIdx.x
    out[x] = held[x]
    held[x] = 0


def test_shared_memory_is_nonsense_at_first() -> None:
    nonsense = int.from_bytes(bytes([0x5B]) * 8, "little")
    assert run(give_what_was_there, blocks=1) == [nonsense] * 4 + [0] * 4
