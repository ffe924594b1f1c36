"""``gpumatch kernels``: compile the CUDA kernels and show their registers, memory and occupancy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import gpumatch as gm
from gpumatch.cli.arguments import new_file
from gpumatch.cli.console import make_console, progress

if TYPE_CHECKING:
    from gpumatch.proof.compiled import Compiled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gpumatch.proof.occupancy import MULTIPROCESSORS

    parser.add_argument(
        "--arch",
        action="append",
        choices=tuple(MULTIPROCESSORS),
        help="architecture; repeatable (default: sm_75, sm_80, sm_90, sm_100 and sm_120)",
    )
    parser.add_argument(
        "--check", action="store_true", help="fail on spills, local memory, or an occupancy under 50 %%"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the .ptx and .cubin files in this folder")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="also write the results as JSON")


def run(args: argparse.Namespace) -> None:
    from gpumatch.proof import compiled

    archs = tuple(dict.fromkeys(args.arch or compiled.ARCHITECTURES))
    names = tuple(compiled.load_kernels())
    done: list[compiled.Compiled] = []
    with progress() as bar:
        task = bar.add_task(f"compiling {len(names)} kernels", total=len(names))
        for several in compiled.compile_all(names, archs, args.keep):
            done += several
            bar.advance(task)
    for arch in archs:
        _print_kernels(arch, [it for it in done if it.arch == arch])
    if args.save is not None:
        args.save.write_text(compiled.report(done))
    bad = [
        f"{it.kernel} for {it.arch}: {problem}" for it in done if args.check or it.error for problem in it.problems()
    ]
    if bad:
        raise gm.GpumatchError("\n".join((f"{len(bad):,} problems in {len(done):,} compiled kernels", *bad)))
    print(f"{len(names):,} kernels compiled for {', '.join(archs)}" + (", all fit" if args.check else ""))


def _print_kernels(arch: str, kernels: Sequence[Compiled]) -> None:
    """A narrow table, so that names are not cut on a terminal of 80 columns. Sizes are in bytes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(arch, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("threads", "regs", "shared", "local", "spills", "occupancy"):
        table.add_column(name, justify="right")
    for it in kernels:
        if it.usage is None or it.occupancy is None:
            table.add_row(it.kernel, str(it.threads), "failed")
            continue
        sizes = (it.threads, it.usage.registers, it.usage.shared, it.usage.local)
        spills = f"{it.usage.spill_stores:,}/{it.usage.spill_loads:,}"
        table.add_row(it.kernel, *(f"{size:,}" for size in sizes), spills, f"{100 * it.occupancy.share:.0f} %")
    make_console().print(table)
