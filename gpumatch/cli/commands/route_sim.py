"""``gpumatch route-sim``: simulate events in an overlay of brokers."""

from __future__ import annotations

import argparse

from gpumatch.cli.arguments import new_file, positive
from gpumatch.cli.console import print_table, progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gpumatch.cli import route_sim

    route_sim.add_arguments(parser, positive, new_file)


def run(args: argparse.Namespace) -> None:
    from gpumatch.cli import route_sim

    with progress() as bar:
        report = route_sim.run(args, bar)
    if report.title:
        print(report.title)
    for header, rows in report.tables:
        print_table(header, rows)
    for line in report.lines:
        print(line)
