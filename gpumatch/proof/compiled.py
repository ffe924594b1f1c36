"""Compiles every CUDA kernel to machine code, with or without a GPU, and says which resources it uses.

numba compiles a kernel to PTX, and NVIDIA's assembler ptxas turns that into a cubin and reports what it used. On a GPU
numba links with nvJitLink and link-time optimisation, which may need a few registers more or fewer.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import pkgutil
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpumatch.device_memory import simulated
from gpumatch.errors import DeviceError
from gpumatch.parallel.threads import get_num_threads
from gpumatch.proof.occupancy import Occupancy, occupancy

if TYPE_CHECKING:
    from gpumatch.kernels.cuda.target import Kernel

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
LEAST_OCCUPANCY = 0.5
_INSTALL = "pip install 'gpumatch[gpu13]' brings numba-cuda and a ptxas that fits it"


@dataclass(frozen=True, slots=True)
class Usage:
    """Report of ptxas on a kernel: registers per thread, bytes of shared memory per block, other bytes per thread.

    Local memory is slow memory for what does not fit in registers: arrays that are indexed by variables, and spills.
    """

    registers: int
    shared: int
    local: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel for one architecture, or the error of compiling it."""

    kernel: str
    arch: str
    threads: int
    usage: Usage | None
    error: str = ""

    @property
    def occupancy(self) -> Occupancy | None:
        if self.usage is None:
            return None
        return occupancy(self.arch, self.threads, self.usage.registers, self.usage.shared)

    def problems(self) -> list[str]:
        """Reasons why it is unfit for a GPU."""
        if self.usage is None or self.occupancy is None:
            return [self.error]
        found, use = [], self.usage
        if use.spill_stores or use.spill_loads:
            found += [f"spills registers: {use.spill_stores} bytes of stores, {use.spill_loads} of loads"]
        if use.local:
            found += [f"uses {use.local} bytes of local memory"]
        if self.occupancy.share < LEAST_OCCUPANCY:
            found += [f"has {100 * self.occupancy.share:.1f} % occupancy, limited by {self.occupancy.limit}"]
        return found

    def as_dict(self) -> dict[str, Any]:
        """All facts, flat."""
        facts: dict[str, Any] = {"kernel": self.kernel, "arch": self.arch, "threads": self.threads}
        if self.usage is None or self.occupancy is None:
            return facts | {"error": self.error}
        return facts | asdict(self.usage) | {"occupancy": self.occupancy.share, "limit": self.occupancy.limit}


class CompileError(Exception):
    """A compiler's complaint about a kernel."""


def load_kernels() -> dict[str, Kernel]:
    """All kernels by name, from all modules of ``kernels/cuda``."""
    _need_compiler()
    package = importlib.import_module("gpumatch.kernels.cuda")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    from gpumatch.kernels.cuda.target import KERNELS

    return KERNELS


def find_ptxas() -> str:
    """NVIDIA's assembler: from the PyPI packages, else from CUDA_HOME, else from the path."""
    package = importlib.util.find_spec("nvidia")
    roots = [] if package is None else package.submodule_search_locations or []
    homes = sorted(folder for root in roots for folder in Path(root).glob("*/bin"))
    if os.environ.get("CUDA_HOME"):
        homes += [Path(os.environ["CUDA_HOME"], "bin")]
    found = shutil.which("ptxas", path=os.pathsep.join([*map(str, homes), os.environ.get("PATH", "")]))
    if found is None:
        raise DeviceError(f"compiling kernels to machine code needs NVIDIA's ptxas: {_INSTALL}")
    return found


def ptxas_version(ptxas: str) -> str:
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\bV(\d[\d.]*)", said)
    return version[1] if version else "unknown"


def compile_all(names: Sequence[str], archs: Sequence[str], keep: Path | None = None) -> Iterator[list[Compiled]]:
    """Kernel by kernel for all architectures, in as many processes as there are cores.

    ``keep`` is a folder that gets one folder per architecture, with a .ptx and a .cubin file for each kernel.
    """
    ptxas = find_ptxas()
    for arch in archs:
        _try_tools(ptxas, arch)
    work = partial(_compile_named, archs=archs, ptxas=ptxas, keep=keep)
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of this process, but not its threads
    with ProcessPoolExecutor(max(1, min(get_num_threads(), len(names))), mp_context=context) as pool:
        yield from pool.map(work, names)


def compile_kernel(kernel: Kernel, arch: str, ptxas: str, keep: Path | None = None) -> Compiled:
    """One kernel for one architecture, in this process."""
    try:
        ptx = _to_ptx(kernel.bound, kernel.signature, arch)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) if keep is None else keep / arch
            usage = _assemble(ptx, arch, ptxas, folder / kernel.name)
    except CompileError as error:
        return Compiled(kernel.name, arch, kernel.threads, None, str(error))
    return Compiled(kernel.name, arch, kernel.threads, usage)


def report(done: Sequence[Compiled]) -> str:
    """Everything that was compiled, and with which tools, as JSON with a line for each kernel and architecture."""
    tools = {"numba-cuda": importlib.metadata.version("numba-cuda"), "ptxas": ptxas_version(find_ptxas())}
    rows = ",\n".join(json.dumps(it.as_dict()) for it in done)
    return f'{{"tools": {json.dumps(tools)}, "kernels": [\n{rows}\n]}}\n'


def parse_usage(said: str) -> Usage:
    """The report of ``ptxas -v`` on one kernel, and on functions that it calls, if any are left."""
    used = re.search(r"Used (\d+) registers(.*)", said)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    if used is None or not frames:
        raise CompileError(f"ptxas does not say what it used: {said.strip()!r}")
    sizes = {kind: int(size) for size, kind in re.findall(r"(\d+) bytes (smem|lmem|cumulative stack size)", used[2])}
    stack, stores, loads = (sum(map(int, column)) for column in zip(*frames, strict=True))
    local = max(stack, sizes.get("lmem", 0), sizes.get("cumulative stack size", 0))
    return Usage(int(used[1]), sizes.get("smem", 0), local, stores, loads)


def _need_compiler() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        raise DeviceError(f"compiling kernels for CUDA needs numba-cuda: {_INSTALL}")
    if simulated():
        raise DeviceError("numba compiles nothing while it simulates CUDA: unset NUMBA_ENABLE_CUDASIM")


def _nothing() -> None:
    """A kernel to try the tools with."""


def _try_tools(ptxas: str, arch: str) -> None:
    """Raise one error for all kernels if the tools are incomplete or do not fit together."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _assemble(_to_ptx(_nothing, "void()", arch), arch, ptxas, Path(scratch, "nothing"))
    except CompileError as error:
        raise DeviceError(f"numba-cuda with {ptxas} cannot compile for {arch}: {error}; {_INSTALL}") from error


def _compile_named(name: str, archs: Sequence[str], ptxas: str, keep: Path | None) -> list[Compiled]:
    """The work of one process of the pool."""
    kernel = load_kernels()[name]
    return [compile_kernel(kernel, arch, ptxas, keep) for arch in archs]


def _to_ptx(function: Any, signature: str, arch: str) -> str:
    from numba import cuda
    from numba.core import sigutils

    number = arch.removeprefix("sm_")
    capability = int(number[:-1]), int(number[-1])
    args, _ = sigutils.normalize_signature(signature)
    try:
        with _device_of(capability):
            ptx: str = cuda.compile(function, args, cc=capability, device=False, abi="numba", output="ptx")[0]
    except Exception as error:  # of many kinds: typing, lowering, NVVM, a missing library
        raise CompileError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    return ptx


@contextmanager
def _device_of(capability: tuple[int, int]) -> Iterator[None]:
    """Pretend that there is a device: numba asks it what to compile a kernel's callees for.

    numba keeps these for the next architecture, and rightly: it keeps their LLVM code, which is the same for all of
    ours, and NVVM compiles that together with the kernel's for the wanted architecture.
    """
    from numba.cuda import dispatcher

    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


def _assemble(ptx: str, arch: str, ptxas: str, stem: Path) -> Usage:
    """Write ``stem``.ptx and ``stem``.cubin."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    source, target = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("ptx", "cubin"))
    source.write_text(ptx)
    command = [ptxas, "-v", "--warn-on-spills", "-arch", arch, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if re.match(r"ptxas (\S*, line \d+; )?(error|fatal)", line)]
        said = " ".join(errors) or done.stderr.strip() or f"exit code {done.returncode}"
        raise CompileError(re.sub(r"'_Z\w+' ", "", said))  # a mangled name, which grows with the arguments
    return parse_usage(done.stderr)
