"""Kernels compiled to machine code without a GPU: what is read of the assembler's words, what is refused, and ours."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba import float64

from gpumatch.cli import main
from gpumatch.device_memory import simulated
from gpumatch.errors import DeviceError
from gpumatch.kernels.cuda.target import Kernel, cuda
from gpumatch.proof import compiled
from gpumatch.proof.compiled import (
    ARCHITECTURES,
    Compiled,
    Usage,
    compile_kernel,
    find_ptxas,
    load_kernels,
    parse_usage,
)
from gpumatch.proof.occupancy import MULTIPROCESSORS, Occupancy, occupancy

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(simulated(), reason="numba compiles nothing while it simulates CUDA"),
    pytest.mark.skipif(sys.platform == "darwin", reason="NVIDIA has no CUDA for macOS"),
]

# What ptxas 13.0 said, but for names, which are shortened.
FIT = """\
ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function '_ZN2to4rows' for 'sm_90'
ptxas info    : Function properties for _ZN2to4rows
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 27 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 6.021 ms
"""
TURING = """\
ptxas info    : 8 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_ZN5local' for 'sm_75'
ptxas info    : Function properties for _ZN5local
    128 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 0 barriers, 128 bytes cumulative stack size, 472 bytes cmem[0]
ptxas info    : Compile time = 5.609 ms
"""
SPILLS = """\
ptxas warning : Registers are spilled to local memory in function '_ZN5spill', \
1960 bytes spill stores, 1696 bytes spill loads
ptxas info    : 8 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_ZN5spill' for 'sm_75'
ptxas info    : Function properties for _ZN5spill
    2704 bytes stack frame, 1960 bytes spill stores, 1696 bytes spill loads
ptxas info    : Used 254 registers, used 0 barriers, 2704 bytes cumulative stack size, 464 bytes cmem[0]
ptxas info    : Compile time = 96.960 ms
"""


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (FIT, Usage(registers=27, shared=1024, local=0, spill_stores=0, spill_loads=0)),
        (TURING, Usage(registers=38, shared=0, local=128, spill_stores=0, spill_loads=0)),
        (SPILLS, Usage(registers=254, shared=0, local=2704, spill_stores=1960, spill_loads=1696)),
    ],
)
def test_words_of_the_assembler(said: str, usage: Usage) -> None:
    assert parse_usage(said) == usage


def test_functions_that_a_kernel_calls_count() -> None:
    called = (
        "ptxas info    : Function properties for f\n    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads"
    )
    assert parse_usage(FIT + called) == Usage(27, 1024, local=16, spill_stores=4, spill_loads=8)


@pytest.mark.parametrize("said", ["", "ptxas info    : Used 27 registers", FIT.replace("Used", "Took")])
def test_other_words_are_not_taken_for_nothing(said: str) -> None:
    with pytest.raises(compiled.CompileError, match="ptxas does not say what it used"):
        parse_usage(said)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "expected"),
    [
        # 1,024 registers a warp: 16 warps in each of 4 partitions, but there are threads for 32 in all.
        ("sm_75", 256, 32, 0, Occupancy(4, 1.0, "threads")),
        # 63 registers are 64: 2,048 a warp, 8 warps in each of 4 partitions; 32 of 64 warps.
        ("sm_90", 256, 63, 0, Occupancy(4, 0.5, "registers")),
        # 65 registers are 72: 2,304 a warp, 7 warps in each partition, 28 in all, of which 3 blocks of 8 fit.
        ("sm_90", 256, 65, 0, Occupancy(3, 0.375, "registers")),
        # 32 KB and the 1 KB of the driver: 4 times in 164, 6 in 228, 3 in 100; without it twice in 64.
        ("sm_80", 256, 16, 32768, Occupancy(4, 0.5, "shared memory")),
        ("sm_100", 256, 16, 32768, Occupancy(6, 0.75, "shared memory")),
        ("sm_120", 256, 16, 32768, Occupancy(3, 0.5, "shared memory")),
        ("sm_75", 256, 16, 32768, Occupancy(2, 0.5, "shared memory")),
        # Small blocks: 32 (or 16, or 24) at once, a warp each.
        ("sm_90", 32, 16, 0, Occupancy(32, 0.5, "blocks")),
        ("sm_75", 32, 16, 0, Occupancy(16, 0.5, "blocks")),
        ("sm_89", 32, 16, 0, Occupancy(24, 0.5, "blocks")),
        # Part of a warp is a warp, and what does not fit at all is none.
        ("sm_90", 33, 32, 0, Occupancy(32, 1.0, "threads")),
        ("sm_75", 1024, 80, 0, Occupancy(0, 0.0, "registers")),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, expected: Occupancy) -> None:
    assert occupancy(arch, threads, registers, shared) == expected


NVIDIAS = """
#include <limits.h>
#include "cuda_occupancy.h"
int blocks(int major, int minor, int all_threads, int all_shared, int reserved, int threads, int registers, int shared)
{
    cudaOccDeviceProp device = {major, minor, 1024, all_threads,
        65536, 65536, 32, 49152, all_shared, 1, 65536, reserved};
    cudaOccFuncAttributes kernel = {INT_MAX, registers, shared, PARTITIONED_GC_OFF, FUNC_SHMEM_LIMIT_DEFAULT, 0, 1, 0};
    cudaOccDeviceState state = {CACHE_PREFER_NONE, SHAREDMEM_CARVEOUT_DEFAULT};
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, 0)) return -1;
    return result.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def nvidias_blocks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The occupancy calculator of the CUDA toolkit, which is a C header."""
    header = Path(find_ptxas()).parents[1] / "include" / "cuda_occupancy.h"
    compiler = shutil.which("cc")
    if compiler is None or not header.exists():
        pytest.skip("no C compiler" if compiler is None else f"no {header}")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "nvidias.c").write_text(NVIDIAS)
    command = [compiler, "-shared", "-fPIC", f"-I{header.parent}", "nvidias.c", "-o", "nvidias.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "nvidias.so")).blocks


@pytest.mark.parametrize("arch", MULTIPROCESSORS)
def test_occupancy_is_that_of_nvidias_calculator(arch: str, nvidias_blocks: Any) -> None:
    has, number = MULTIPROCESSORS[arch], int(arch.removeprefix("sm_"))
    device = (number // 10, number % 10, has.threads, has.shared, has.reserved)
    for threads in (1, 32, 64, 96, 128, 224, 256, 512, 1000, 1024):
        for registers in (0, 1, 8, 9, 31, 32, 33, 40, 41, 64, 65, 96, 128, 168, 255):
            for shared in (0, 1, 128, 129, 1024, 5000, 16384, 32768, 33000, 49152):
                expected = nvidias_blocks(*device, threads, registers, shared)
                found = occupancy(arch, threads, registers, shared).blocks
                assert found == expected, (threads, registers, shared)


def fit(values, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = 2 * values[i]


def indexed_by_variable(values, out):
    held = cuda.local.array(16, float64)
    for i in range(16):
        held[i] = values[i]
    out[0] = held[out.size]


def too_much_at_once(values, out):
    held = cuda.local.array(200, float64)
    for i in range(200):
        held[i] = values[i]
    for j in range(values.size):
        for i in range(200):
            held[i] = held[i] * values[j] + held[(i * 7) % 200]
    for i in range(200):
        out[i] = held[i]


def much_shared(values, out):
    held = cuda.shared.array(6000, float64)
    held[cuda.threadIdx.x] = values[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = held[out.size - cuda.threadIdx.x]


def more_shared_than_there_is(values, out):
    held = cuda.shared.array(8000, float64)
    held[cuda.threadIdx.x] = values[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = held[out.size - cuda.threadIdx.x]


def not_typed(values, out):
    out[0] = values.nonsense


def of(function: Callable[..., None], keep: Path | None = None) -> Compiled:
    kernel = Kernel(f"made.{function.__name__}", function, "void(f8[::1], f8[::1])", 256)
    return compile_kernel(kernel, "sm_75", find_ptxas(), keep)


def test_a_fit_kernel(tmp_path: Path) -> None:
    found = of(fit, tmp_path)
    assert found.usage is not None
    assert found.usage.registers > 0
    assert (found.usage.shared, found.usage.local, found.occupancy) == (0, 0, Occupancy(4, 1.0, "threads"))
    assert found.problems() == []
    assert ".target sm_75" in (tmp_path / "sm_75" / "made.fit.ptx").read_text()
    assert (tmp_path / "sm_75" / "made.fit.cubin").read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (indexed_by_variable, "uses 128 bytes of local memory"),
        (too_much_at_once, "spills registers: "),
        (much_shared, "has 25.0 % occupancy, limited by shared memory"),
        (more_shared_than_there_is, "uses too much shared data"),
        (not_typed, "Unknown attribute 'nonsense'"),
    ],
)
def test_an_unfit_kernel(function: Callable[..., None], problem: str) -> None:
    assert problem in "; ".join(of(function).problems())


def test_numba_asks_the_real_device_again() -> None:
    from numba.cuda import dispatcher

    before = dispatcher.get_current_device
    of(fit)
    of(not_typed)
    assert dispatcher.get_current_device is before


def decorated() -> Iterator[str]:
    """Functions of ``kernels/cuda`` that their source says are kernels."""
    for path in (ROOT / "kernels" / "cuda").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            if any(isinstance(mark, ast.Call) and ast.unparse(mark.func) == "kernel" for mark in marks):
                yield f"{path.stem}.{node.name}"


def test_no_kernel_is_forgotten() -> None:
    assert sorted(decorated()) == sorted(load_kernels())


@pytest.mark.long
def test_every_kernel_is_fit_for_every_architecture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, kept = tmp_path / "kernels.json", tmp_path / "kept"
    assert main(["kernels", "--check", "--save", str(saved), "--keep", str(kept)]) == 0, capsys.readouterr().err
    rows = json.loads(saved.read_text())["kernels"]
    assert {(row["kernel"], row["arch"]) for row in rows} == {(k, a) for k in load_kernels() for a in ARCHITECTURES}
    assert len(rows) == len(load_kernels()) * len(ARCHITECTURES)
    for row in rows:
        assert (row["local"], row["spill_stores"], row["spill_loads"]) == (0, 0, 0), row
        assert row["occupancy"] >= 0.5, row
        for suffix in ("ptx", "cubin"):
            assert (kept / row["arch"] / f"{row['kernel']}.{suffix}").stat().st_size > 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*load_kernels(), *ARCHITECTURES))


def made_up(monkeypatch: pytest.MonkeyPatch, *kernels: Compiled) -> None:
    """Let the command find that these were compiled."""
    monkeypatch.setattr(compiled, "compile_all", lambda names, archs, keep: iter([list(kernels)]))


SPILLING = Compiled("a.b", "sm_90", 256, Usage(255, 0, 64, 16, 24))
FAILED = Compiled("c.d", "sm_90", 256, None, "ptxas error   : no")


def test_check_names_what_it_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made_up(monkeypatch, SPILLING)
    assert main(["kernels", "--arch", "sm_90", "--check"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: 3 problems in 1 compiled kernels",
        "a.b for sm_90: spills registers: 16 bytes of stores, 24 of loads",
        "a.b for sm_90: uses 64 bytes of local memory",
        "a.b for sm_90: has 12.5 % occupancy, limited by registers",
    ]
    assert main(["kernels", "--arch", "sm_90"]) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if "a.b" in line] == [
        ["a.b", "256", "255", "0", "64", "16/24", "12", "%"]
    ]


def test_what_does_not_compile_always_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made_up(monkeypatch, FAILED)
    saved = tmp_path / "kernels.json"
    assert main(["kernels", "--arch", "sm_90", "--save", str(saved)]) == 2
    out, err = capsys.readouterr()
    assert "c.d for sm_90: ptxas error   : no" in err
    assert "failed" in out
    assert json.loads(saved.read_text())["kernels"] == [
        {"kernel": "c.d", "arch": "sm_90", "threads": 256, "error": "ptxas error   : no"}
    ]


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else real(name))


def test_without_numba_cuda(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without(monkeypatch, "numba_cuda")
    assert main(["kernels"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: compiling kernels for CUDA needs numba-cuda: pip install 'gpumatch[gpu13]'")


def test_without_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without(monkeypatch, "nvidia")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["kernels"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs NVIDIA's ptxas: pip install 'gpumatch[gpu13]'" in line


def test_in_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.ENABLE_CUDASIM", 1)
    with pytest.raises(DeviceError, match="unset NUMBA_ENABLE_CUDASIM"):
        load_kernels()


def assembler(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True)
    program = folder / "ptxas"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_where_ptxas_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Path(find_ptxas()).parts[-3:] in {("cu13", "bin", "ptxas"), ("cuda_nvcc", "bin", "ptxas")}
    without(monkeypatch, "nvidia")
    on_path, at_home = assembler(tmp_path / "path", "exit"), assembler(tmp_path / "home" / "bin", "exit")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert find_ptxas() == str(on_path)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_ptxas() == str(at_home)


def test_an_assembler_that_is_too_old_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "ptxas x.ptx, line 9; fatal   : Unsupported .version 9.0; current version is '8.2'"
    program = assembler(tmp_path / "old", f'echo "{said}" >&2; exit 255')
    monkeypatch.setattr(compiled, "find_ptxas", lambda: str(program))
    with pytest.raises(DeviceError, match=r"cannot compile for sm_90: .*Unsupported .version 9.0.*gpumatch\[gpu13\]"):
        list(compiled.compile_all(list(load_kernels()), ["sm_90"]))
