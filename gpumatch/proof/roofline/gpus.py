"""Named GPUs: published figures, and assumptions where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpumatch.errors import DeviceError, nearest

LANES = 128  # threads for which a multiprocessor issues an instruction per clock: four schedulers, a warp of 32 each
BANKS = 128  # bytes per clock from a multiprocessor's shared memory: 32 banks of 4
SLICE = 64  # bytes per clock from a slice of L2
PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9}  # bytes/s in each direction over 16 lanes, without the overhead of packets


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device. ``slices`` of L2 are published for only one of these; ``source`` says where figures are from."""

    name: str
    memory: float  # bytes/s of device memory
    units: int  # multiprocessors
    clock: float  # boost, in Hz
    l2: int  # bytes
    slices: int  # of L2: 64 bytes, or an atomic operation, per clock each
    pcie: int  # generation, 16 lanes
    source: str

    @property
    def l2_rate(self) -> float:
        """Bytes/s from L2: of all slices, but no more than 64 per clock into each multiprocessor."""
        return SLICE * min(self.slices, self.units) * self.clock

    @property
    def shared_rate(self) -> float:
        """Bytes/s from all shared memories."""
        return BANKS * self.units * self.clock

    @property
    def issue_rate(self) -> float:
        """Instructions of threads per second."""
        return LANES * self.units * self.clock

    @property
    def atomic_rate(self) -> float:
        """Atomic operations per second on different addresses."""
        return self.slices * self.clock

    @property
    def transfer_rate(self) -> float:
        """Bytes/s between host and device, in each direction."""
        return PCIE[self.pcie]


_MIB = 1 << 20

GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "T4",
            320e9,
            40,
            1.59e9,
            4 * _MIB,
            16,
            3,
            "NVIDIA T4 data sheet, Turing white paper; slices assumed, two for each of 8 memory controllers: 1,024 "
            "bytes per clock, of which Jia et al. (2019) measured 78 %",
        ),
        Gpu(
            "A10",
            600e9,
            72,
            1.695e9,
            6 * _MIB,
            48,
            4,
            "NVIDIA A10 data sheet, GA102 white paper; slices assumed, four for each of 12 memory controllers",
        ),
        Gpu(
            "L4",
            300e9,
            58,
            2.04e9,
            48 * _MIB,
            24,
            4,
            "NVIDIA L4 data sheet, Ada white paper; slices assumed, four for each of 6 memory controllers",
        ),
        Gpu(
            "A100-40GB",
            1555e9,
            108,
            1.41e9,
            40 * _MIB,
            80,
            4,
            "NVIDIA A100 white paper, which gives 5,120 bytes per clock for L2",
        ),
        Gpu(
            "A100",
            2039e9,
            108,
            1.41e9,
            40 * _MIB,
            80,
            4,
            "80 GB, SXM: NVIDIA A100 data sheet and white paper, which gives 5,120 bytes per clock for L2",
        ),
        Gpu(
            "H100",
            3350e9,
            132,
            1.98e9,
            50 * _MIB,
            80,
            5,
            "SXM5: NVIDIA H100 data sheet, Hopper white paper; slices assumed as many as the A100 has",
        ),
        Gpu(
            "B200",
            8000e9,
            148,
            1.965e9,
            126 * _MIB,
            160,
            5,
            "NVIDIA HGX B200 data sheet; units, clock and L2 as the driver reports them; slices assumed, twice those "
            "of an H100 for its two dies",
        ),
    )
}


def gpus_named(names: Sequence[str]) -> list[Gpu]:
    """GPUs by name, in any case; all if no name is given."""
    known = {name.lower(): gpu for name, gpu in GPUS.items()}
    for name in names:
        if name.lower() not in known:
            raise DeviceError(f"no figures for a GPU {name!r}; there are {', '.join(GPUS)}{nearest(name, GPUS)}")
    return [known[name.lower()] for name in names] or list(GPUS.values())
