"""``gpumatch warm-up``: compile all CPU kernels in advance."""

from __future__ import annotations

import argparse

import gpumatch as gm
from gpumatch.cli.arguments import positive
from gpumatch.cli.console import print_table, progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("indexes", nargs="*", metavar="INDEX", help="indexes to compile for (default: all)")
    parser.add_argument("--threads", type=positive, metavar="N", help="processes to use (default: all cores)")


def run(args: argparse.Namespace) -> None:
    from gpumatch.warming import cache_folder, names_of, warm_up

    if args.threads is not None:
        gm.set_num_threads(args.threads)
    names = names_of(args.indexes or None)
    with progress() as bar:
        task = bar.add_task(f"compiling for {len(names)} indexes", total=len(names))
        found = warm_up(names, lambda name, count: bar.advance(task))
    print_table(("index", "compiled"), [(name, f"{count:,}") for name, count in found.items()])
    print(f"kept in {cache_folder()}")
