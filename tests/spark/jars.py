"""Jars that tests need, which Maven fetches once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# What ``fetched`` takes, for PySpark 4.1: what Maven's folder is to be called, and artifacts
DELTA = ("delta-4.4.0", "io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG = ("iceberg-1.12.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")


def fetched(name: str, *artifacts: str, alone: bool = False) -> list[Path]:
    """The jars of artifacts, and unless they are to be alone of what they need, in the user's folder of caches."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpumatch-test", name)
    if not (folder / "complete").exists():
        if shutil.which("mvn") is None:
            pytest.skip(f"Maven is not installed, and fetches {name}")
        folder.mkdir(parents=True, exist_ok=True)
        none = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>" * alone
        facts = ""
        for group, artifact, version in (one.split(":") for one in artifacts):
            facts += f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            facts += f"<version>{version}</version><exclusions>{none}</exclusions></dependency>"
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>gpumatch</groupId><artifactId>test</artifactId>"
            f"<version>1</version><dependencies>{facts}</dependencies></project>"
        )
        command = ["mvn", "-q", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"Maven cannot fetch {artifacts}: {done.stdout.strip()[-300:]}")
        (folder / "complete").touch()
    return sorted(folder.glob("*.jar"))
