"""The command line: ``gpumatch demo | build | match | explain | info | bench | doctor | kernels | roofline | …``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import gpumatch as gm
from gpumatch.cli.console import print_error

COMMANDS = {  # the module of each, and what it does
    "demo": ("demo", "stock alerts through Spark, or in process without Java"),
    "build": ("build", "make an index from a file of subscriptions"),
    "match": ("match", "match a file of events and write the pairs"),
    "explain": ("explain", "tell why a subscription matches an event, or does not"),
    "info": ("info", "show what an index holds"),
    "bench": ("bench", "time a workload on a device, after a check of its results"),
    "doctor": ("doctor", "show what this machine offers, and what to install"),
    "warm-up": ("warm_up", "compile for this machine now, not when something is matched"),
    "kernels": ("kernels", "compile the CUDA kernels and show what they take of a GPU"),
    "roofline": ("roofline", "tell how many events per second a GPU cannot exceed"),
    "route-sim": ("route_sim", "send events through an overlay of brokers, simulated"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code is 0, 2 for what the user can mend, or 130 after Ctrl-C."""
    try:
        args = _parser().parse_args(argv)
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return _closed()
    except _mendable() as error:
        print_error(error)
        return 2
    return 0


def _closed() -> int:
    """The reader of standard output, such as head, has seen enough. What is left in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _mendable() -> tuple[type[Exception], ...]:
    """What a message is enough for. Asked for only when something fails, so that Arrow is not imported before."""
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
