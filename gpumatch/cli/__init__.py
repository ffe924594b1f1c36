"""The command line: ``gpumatch demo | build | add | remove | match | explain | info | log | bench | doctor | …``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import gpumatch as gm
from gpumatch.cli.console import print_error

COMMANDS = {  # name: (module, help)
    "demo": ("demo", "stock alerts through Spark, or in process without Java"),
    "build": ("build", "make an index from a file of subscriptions"),
    "add": ("add", "add subscriptions to an index, or change some"),
    "remove": ("remove", "remove subscriptions from an index"),
    "compact": ("compact", "rebuild an index as one segment, without what was removed"),
    "match": ("match", "match a file of events and write the pairs"),
    "explain": ("explain", "explain why a subscription matches an event, or does not"),
    "info": ("info", "show the contents of an index"),
    "log": ("log", "show what changed in an index and when, and the versions that can be loaded"),
    "bench": ("bench", "check a workload's results on a device, then time it"),
    "doctor": ("doctor", "show what this machine has, and what to install"),
    "warm-up": ("warm_up", "compile the CPU kernels for this machine in advance"),
    "kernels": ("kernels", "compile the CUDA kernels and show their registers, memory and occupancy"),
    "roofline": ("roofline", "compute an upper bound on events per second, by GPU"),
    "route-sim": ("route_sim", "simulate events in an overlay of brokers"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code is 0, 2 after an error that the user can fix, 130 after Ctrl-C, or 141."""
    try:
        args = _parser().parse_args(argv)
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _closed()
    except _expected() as error:
        print_error(error)
        return 2
    return 0


def _closed() -> int:
    """The reader of standard output, such as head, has closed it: discard the rest of the buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _expected() -> tuple[type[Exception], ...]:
    """Errors that are reported without a traceback. Called only on failure, so that Arrow is not imported earlier."""
    import pyarrow as pa

    return gm.GpumatchError, OSError, UnicodeError, pa.ArrowException


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpumatch", description="Match events against millions of subscriptions.")
    parser.add_argument("--version", action="version", version=f"gpumatch {gm.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, help) in COMMANDS.items():
        command, own = import_module(f"gpumatch.cli.commands.{module}"), commands.add_parser(name, help=help)
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
