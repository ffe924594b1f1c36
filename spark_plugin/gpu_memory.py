"""How the JVM of RAPIDS and the Python workers of an executor share the memory of their GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpumatch.store.folder.remote import below, read_manifest

RESERVE = 640 << 20  # RAPIDS leaves as much unallocated by default
CONTEXT = 512 << 20  # of CUDA, in every process: an estimate, not measured on a GPU
_WORK = 4 << 30  # at most, for matching: two chunks of four buffers, see docs/gpu.md
_QUARTER = 4  # RAPIDS starts only with at least a quarter of the GPU


@dataclass(frozen=True)
class GpuMemory:
    """Bytes of one GPU; ``str()`` explains them.

    Every Python worker is a process with its own copy of the index, and there is a worker for every task. The JVM gets
    the rest.
    """

    gpu: int
    tasks: int  # at the same time
    index: int

    @property
    def usable(self) -> int:
        """What RAPIDS takes its fraction of."""
        return self.gpu - CONTEXT - RESERVE

    @property
    def work(self) -> int:
        """Of a worker while it matches; with less it matches fewer events at a time."""
        return min(self.gpu // 4, _WORK)

    @property
    def worker(self) -> int:
        return CONTEXT + self.index + self.work

    @property
    def jvm(self) -> int:
        return self.usable - self.tasks * self.worker

    @property
    def fraction(self) -> float:
        """``spark.rapids.memory.gpu.allocFraction``, rounded down."""
        return 1000 * self.jvm // self.usable / 1000

    def __str__(self) -> str:
        return (
            f"{_gib(self.gpu)} GPU = {_gib(CONTEXT + RESERVE)} for CUDA and in reserve + {self.tasks} workers of "
            f"{_gib(self.worker)} (index {_gib(self.index)}, matching {_gib(self.work)}, CUDA {_gib(CONTEXT)}) + "
            f"{_gib(self.jvm)} for the JVM, {self.fraction} of what is usable"
        )


def split_gpu_memory(gpu_memory: int, tasks_per_gpu: int, index: str | os.PathLike[str] | int | None) -> GpuMemory:
    """Split a GPU of ``gpu_memory`` bytes between the JVM and the workers of its tasks.

    ``index`` is a saved index's folder or a number of bytes. None: an index as large as half of the GPU has room for.
    """
    for name, number in (("gpu_memory", gpu_memory), ("tasks_per_gpu", tasks_per_gpu)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, found {number!r}")
    if isinstance(index, int) and index < 0:
        raise ValueError(f"index must be a folder or a number of bytes, found {index}")
    bare = GpuMemory(gpu_memory, tasks_per_gpu, 0)
    if index is None:
        size = max(0, bare.usable // 2 // tasks_per_gpu - bare.worker)
    else:
        size = index if isinstance(index, int) else index_bytes(os.fspath(index))
    split = GpuMemory(gpu_memory, tasks_per_gpu, size)
    if split.jvm < gpu_memory // _QUARTER:
        raise ValueError(_too_large(split))
    return split


def index_bytes(path: str) -> int:
    """Of a saved index and its shards, as their manifests say: with ids and texts, which do not go to the GPU."""
    manifest = read_manifest(path)
    own: int = sum(entry["size"] for segment in manifest["segments"] for entry in segment["arrays"].values())
    return own + sum(index_bytes(below(path, shard["folder"])) for shard in manifest.get("shards", []))


def _too_large(split: GpuMemory) -> str:
    room = split.usable - split.gpu // _QUARTER
    tasks = room // split.worker
    advice = (
        f"pass tasks_per_gpu={tasks}" if tasks > 0 else "take a larger GPU, or match with device='cpu' without RAPIDS"
    )
    return (
        f"{split.tasks} tasks per GPU need {_gib(split.tasks * split.worker)} for their workers, each of which holds "
        f"the index ({_gib(split.index)}); a GPU of {_gib(split.gpu)} has {_gib(max(room, 0))} for them, since RAPIDS "
        f"wants at least a quarter: {advice}"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
