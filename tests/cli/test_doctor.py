"""The doctor looks at a machine that the tests make up."""

from __future__ import annotations

import ctypes
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gpumatch.cli import doctor, main
from gpumatch.parallel import threads


class FakeCuda:
    """The four calls of libcuda, for two devices or for an error."""

    def __init__(self, status: int = 0, names: tuple[bytes, ...] = (b"Quick One", b"Big One")) -> None:
        self.status, self.names = status, names

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDriverGetVersion(self, version: Any) -> None:  # noqa: N802
        version._obj.value = 13020

    def cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count._obj.value = len(self.names)

    def cuDeviceGet(self, device: Any, ordinal: int) -> None:  # noqa: N802
        device._obj.value = ordinal

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> None:  # noqa: N802
        name.value = self.names[device.value][: size - 1]


def finding(name: str) -> doctor.Finding:
    return next(it for it in doctor.examine() if it.name == name)


def test_gpu_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda())
    assert doctor.cuda_driver() == doctor.CudaDriver("13.2", ("Quick One", "Big One"))
    assert finding("GPU") == doctor.Finding("GPU", True, "Quick One, Big One; driver for CUDA 13.2")


def test_driver_without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda(names=()))
    assert not finding("GPU").found
    assert "no device" in finding("GPU").detail


def test_driver_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCuda(status=100))
    assert "CUDA error 100" in finding("GPU").detail


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    gpu = finding("GPU")
    assert not gpu.found
    assert gpu.hint


def fake_java(home: Path, line: str) -> str:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    return str(home)


def test_java_of_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, 'openjdk version "21.0.3" 2024-04-16'))
    assert doctor.java_version() == "21.0.3"
    assert finding("Java").found


def test_java_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, 'java version "1.8.0_402"'))
    java = finding("Java")
    assert (java.found, java.detail) == (False, "1.8.0_402")
    assert "Java 17" in java.hint


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert doctor.java_version() is None
    assert not finding("Java").found


def test_rapids_jars_where_they_are_put(tmp_path: Path) -> None:
    names = ("home/jars", "dir", "class")
    jars = [tmp_path / name / "rapids-4-spark_2.13-26.08.0.jar" for name in names]
    for jar in jars:
        jar.parent.mkdir(parents=True)
        jar.touch()
        (jar.parent / "other.jar").touch()
    environ = {
        "SPARK_HOME": str(tmp_path / "home"),
        "SPARK_RAPIDS_DIR": str(tmp_path / "dir"),
        "CLASSPATH": f"{jars[2]}:{tmp_path / 'class' / 'other.jar'}:{tmp_path / 'gone.jar'}",
    }
    assert set(doctor.rapids_jars(environ)) >= {jar.resolve() for jar in jars}
    assert not {jar.name for jar in doctor.rapids_jars(environ)} & {"other.jar", "gone.jar"}


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor._package("Nothing", ("no-such-distribution",), "pip install nothing")
    assert found == doctor.Finding("Nothing", False, "not installed", "pip install nothing")
    assert finding("numba").found


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", None)  # as if nobody had set it
    monkeypatch.setenv("GPUMATCH_NUM_THREADS", "3")
    assert finding("cores").detail.endswith("3 threads in use")
    monkeypatch.setenv("GPUMATCH_NUM_THREADS", "many")
    assert "found 'many'" in finding("cores").detail


def test_command_exits_with_0_and_hints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for it in doctor.examine():
        assert it.name in shown


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["name"] for check in checks] == [it.name for it in doctor.examine()]
    assert all(check["hint"] for check in checks if not check["found"])


@pytest.mark.parametrize(("installed", "ok"), [("4.1.3", True), ("4.1.4", False), (None, True)])
def test_a_jar_that_does_not_take_this_spark(
    installed: str | None, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "rapids-4-spark_2.13-26.08.1.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for folder in ("spark355", "spark413", "spark400db173", "spark-shared"):
            archive.writestr(f"{folder}/some.class", "")
    assert doctor.spark_versions(jar) == ["3.5.5", "4.1.3"]
    monkeypatch.setattr(doctor, "rapids_jars", lambda: [jar])
    monkeypatch.setattr(doctor, "_version", lambda name: installed)
    found = doctor._rapids()
    assert found.found is ok
    if not ok:
        assert "does not take PySpark 4.1.4" in found.detail
        assert found.hint.endswith("pyspark==4.1.3")
    jar.write_bytes(b"half a jar")
    assert not doctor._rapids().found
