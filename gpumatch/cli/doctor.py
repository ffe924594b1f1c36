"""What this machine has for gpumatch, and what to install. Does not import the packages that it looks for."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpumatch.errors import GpumatchError
from gpumatch.parallel.threads import get_num_threads

_CPU_FEATURES = ("sse4_2", "avx", "avx2", "fma", "bmi2", "popcnt", "avx512f", "avx512bw", "asimd", "sve")
_CUDA_EXTRAS = 'pip install "gpumatch[gpu13]" (CUDA 13) or "gpumatch[gpu12]" (CUDA 12)'
_CUDF_EXTRAS = 'pip install "gpumatch[cudf13]" (CUDA 13) or "gpumatch[cudf12]" (CUDA 12), in a separate environment'


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: ``detail`` is what was found, ``hint`` what to do if it was not."""

    name: str
    found: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """The NVIDIA driver's CUDA version and the devices visible to this process."""

    version: str
    devices: tuple[str, ...]


def examine() -> list[Finding]:
    """All checks, in the order in which ``gpumatch doctor`` prints them."""
    return [
        Finding("Python", True, f"{platform.python_version()} on {platform.platform(terse=True)}"),
        _cpu(),
        _cores(),
        _memory(),
        _package("numba", ("numba",), "pip install numba"),
        _gpu(),
        _package("numba-cuda", ("numba-cuda",), _CUDA_EXTRAS),
        _package("CuPy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), _CUDA_EXTRAS),
        _package("cuDF", ("cudf-cu13", "cudf-cu12", "cudf"), _CUDF_EXTRAS),
        _java(),
        _package("PySpark", ("pyspark", "pyspark-client"), 'pip install "gpumatch[spark]"'),
        _rapids(),
    ]


def cuda_driver() -> CudaDriver | str:
    """The driver, found through ``libcuda`` alone, or the reason why there is none."""
    library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return f"no NVIDIA driver ({library} does not load)"
    status = cuda.cuInit(0)
    if status != 0:
        return f"{library} loads, but cuInit fails with CUDA error {status}"
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for ordinal in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    return CudaDriver(f"{version.value // 1000}.{version.value % 1000 // 10}", tuple(names))


def java_version() -> str | None:
    """The version of the Java that Spark would start: from JAVA_HOME, else from the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None:
        return None
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', run.stderr + run.stdout)
    return match.group(1) if match else None


def rapids_jars(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The RAPIDS plugin's jars, where Spark would load them or where its guides say to put them."""
    found = {jar.resolve() for path in _jar_paths(environ) for jar in _jars(path) if jar.is_file()}
    return sorted(found)


def _jar_paths(environ: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("SPARK_RAPIDS_PLUGIN_JAR", "SPARK_RAPIDS_DIR"):
        if environ.get(variable):
            yield Path(environ[variable])
    yield from (Path(entry.removesuffix("*")) for entry in environ.get("CLASSPATH", "").split(os.pathsep) if entry)
    if environ.get("SPARK_HOME"):
        yield Path(environ["SPARK_HOME"], "jars")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is not None and pyspark.submodule_search_locations:
        yield Path(pyspark.submodule_search_locations[0], "jars")


def _jars(path: Path) -> Iterator[Path]:
    pattern = "rapids-4-spark*.jar"
    if path.is_dir():
        yield from path.glob(pattern)
    elif path.match(pattern):
        yield path


def _package(name: str, distributions: tuple[str, ...], hint: str) -> Finding:
    for distribution in distributions:
        version = _version(distribution)
        if version is not None:
            detail = version if distribution == name.lower() else f"{version} ({distribution})"
            return Finding(name, True, detail)
    return Finding(name, False, "not installed", hint)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> Finding:
    try:
        info = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    present = set(flags.group(1).split()) if flags else set()
    features = " ".join(feature for feature in _CPU_FEATURES if feature in present)
    name = model.group(1) if model else platform.processor() or platform.machine()
    return Finding("CPU", True, f"{name} ({features})" if features else name)


def _cores() -> Finding:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    try:
        threads = f"{get_num_threads()} threads in use"
    except GpumatchError as error:
        threads = str(error)
    return Finding("cores", True, f"{usable} usable of {total}; {threads}")


def _memory() -> Finding:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return Finding("memory", True, "size unknown on this platform")
    return Finding("memory", True, f"{total / 2**30:.1f} GiB")


def _gpu() -> Finding:
    driver = cuda_driver()
    hint = "install the NVIDIA driver on a machine with a CUDA device; without it everything runs on the CPU"
    if isinstance(driver, str):
        return Finding("GPU", False, driver, hint)
    if not driver.devices:
        return Finding("GPU", False, f"driver for CUDA {driver.version}, but no device is visible", hint)
    return Finding("GPU", True, f"{', '.join(driver.devices)}; driver for CUDA {driver.version}")


def _java() -> Finding:
    version = java_version()
    hint = "Spark 4 needs Java 17 or 21: install OpenJDK 17 and set JAVA_HOME"
    if version is None:
        return Finding("Java", False, "not found", hint)
    major = int(version.split(".")[0]) if version.split(".")[0].isdigit() else 0
    return Finding("Java", major >= 17, version, "" if major >= 17 else hint)


def spark_versions(jar: Path) -> list[str]:
    """The versions of Spark that a RAPIDS jar is made for: it has a folder for each, and takes no other."""
    with zipfile.ZipFile(jar) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
    return sorted(".".join(name.removeprefix("spark")) for name in folders if re.fullmatch(r"spark\d{3}", name))


def _rapids() -> Finding:
    jars = rapids_jars()
    if jars:
        shown, spark = ", ".join(map(str, jars)), _version("pyspark")
        try:
            taken = spark_versions(jars[-1])
        except (OSError, zipfile.BadZipFile) as error:
            return Finding("RAPIDS jar", False, f"{jars[-1]} cannot be read: {error}", "fetch it again")
        if spark is None or not taken or spark in taken:
            return Finding("RAPIDS jar", True, shown)
        hint = f"it takes Spark {', '.join(taken)} and no other, for instance pip install pyspark=={taken[-1]}"
        return Finding("RAPIDS jar", False, f"{shown} does not take PySpark {spark}", hint)
    hint = "put com.nvidia:rapids-4-spark_2.13 from Maven Central on Spark's classpath (--packages or SPARK_HOME/jars)"
    return Finding("RAPIDS jar", False, "not found", hint)
