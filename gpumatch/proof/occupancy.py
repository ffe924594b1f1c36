"""Occupancy: the share of a multiprocessor's threads that a kernel can use.

The numbers of each architecture are from the table "Technical Specifications per Compute Capability" in NVIDIA's
CUDA C++ Programming Guide; the units in which registers and shared memory are allocated, and the rule itself, are from
``cuda_occupancy.h`` in the CUDA toolkit 13.0.
"""

from __future__ import annotations

from dataclasses import dataclass

_WARP = 32  # threads
_KB = 1024
# On every architecture below, registers lie in four partitions, and a warp takes its registers from one of them.
_PARTITIONS = 4
_REGISTERS = 16 * _KB  # of a partition
_REGISTERS_AT_ONCE = 256  # allocated to a warp at a time


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Capacity of one multiprocessor; ``shared``, ``reserved`` and ``unit`` are in bytes.

    The driver reserves ``reserved`` bytes of shared memory per block, and blocks get it in multiples of ``unit``.
    """

    threads: int
    blocks: int
    shared: int
    reserved: int
    unit: int


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(1024, 16, 64 * _KB, 0, 256),  # T4
    "sm_80": Multiprocessor(2048, 32, 164 * _KB, _KB, 128),  # A100
    "sm_86": Multiprocessor(1536, 16, 100 * _KB, _KB, 128),  # A10
    "sm_89": Multiprocessor(1536, 24, 100 * _KB, _KB, 128),  # L4
    "sm_90": Multiprocessor(2048, 32, 228 * _KB, _KB, 128),  # H100
    "sm_100": Multiprocessor(2048, 32, 228 * _KB, _KB, 128),  # B200
    "sm_120": Multiprocessor(1536, 24, 100 * _KB, _KB, 128),  # RTX 50
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident blocks per multiprocessor, their share of its threads, and the resource that limits them."""

    blocks: int
    share: float
    limit: str


def occupancy(arch: str, threads: int, registers: int, shared: int) -> Occupancy:
    """Occupancy of blocks of ``threads`` threads, with ``registers`` per thread and ``shared`` bytes per block.

    For kernels with at most one barrier: there are as many barriers as blocks.
    """
    has = MULTIPROCESSORS[arch]
    warps = -(-threads // _WARP)
    room = {"threads": has.threads // _WARP // warps, "blocks": has.blocks}
    if registers > 0:
        room["registers"] = _PARTITIONS * (_REGISTERS // _up(registers * _WARP, _REGISTERS_AT_ONCE)) // warps
    if shared + has.reserved > 0:
        room["shared memory"] = has.shared // _up(shared + has.reserved, has.unit)
    limit = min(room, key=lambda name: room[name])
    return Occupancy(room[limit], room[limit] * warps * _WARP / has.threads, limit)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
