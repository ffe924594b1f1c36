"""``gpumatch doctor``: what this machine has, and what to install."""

from __future__ import annotations

import argparse
import json

import gpumatch as gm
from gpumatch.cli.console import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> None:
    from dataclasses import asdict

    from gpumatch.cli.doctor import examine

    findings = examine()
    if args.json:
        checks = [asdict(finding) for finding in findings]
        print(json.dumps({"gpumatch": gm.__version__, "checks": checks}, indent=2))
        return
    rows = [(("ok" if it.found else "–"), it.name, "\n".join(filter(None, (it.detail, it.hint)))) for it in findings]
    print_table(("", f"gpumatch {gm.__version__}", "found, or what to do"), rows)
