"""``rapids_conf``: the Spark settings with which RAPIDS and gpumatch share the GPUs of executors."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias, get_args

from gpumatch.cli.doctor import spark_versions
from gpumatch.spark.gpu_memory import RESERVE, split_gpu_memory

Cluster: TypeAlias = Literal["standalone", "yarn", "kubernetes", "databricks", "emr", "dataproc"]

PLUGIN = "com.nvidia.spark.SQLPlugin"
DISCOVERY_SCRIPT = Path(__file__).parent / "conf" / "gpu_discovery.sh"


def rapids_conf(
    *,
    jar: str | os.PathLike[str],
    gpu_memory: int,
    index: str | os.PathLike[str] | int | None = None,
    tasks_per_gpu: int = 1,
    cluster: Cluster = "standalone",
    discovery_script: str | os.PathLike[str] | None = None,
) -> dict[str, str]:
    """Settings for ``SparkSession.builder.config(map=…)`` or ``spark-submit``. Each executor has one GPU.

    ``jar`` is that of RAPIDS: on the driver's machine for YARN, which ships it, else its path on the nodes.
    ``discovery_script`` prints which GPUs a machine has, by default gpumatch's own; it is shipped on YARN, EMR and
    Dataproc, and Databricks takes none. ``gpu_memory`` is in bytes, and ``index`` the folder of the index, or its
    size: ``split_gpu_memory`` explains how JVM and Python share the memory.
    """
    if cluster not in get_args(Cluster):
        raise ValueError(f"cluster must be one of {', '.join(get_args(Cluster))}, found {cluster!r}")
    given = os.fspath(jar)
    if not given.endswith(".jar"):
        raise ValueError(f"jar must be the path of RAPIDS's jar, rapids-4-spark_2.13-….jar, found {given!r}")
    if cluster in ("standalone", "yarn", "kubernetes"):  # others have a Spark of their own, and a jar for it
        _check_jar(given)
    if cluster == "databricks" and discovery_script is not None:
        raise ValueError(f"Databricks finds GPUs itself: leave out discovery_script, found {discovery_script!r}")
    script = os.fspath(DISCOVERY_SCRIPT if discovery_script is None else discovery_script)
    split = split_gpu_memory(gpu_memory, tasks_per_gpu, index)
    return {
        "spark.plugins": PLUGIN,
        "spark.task.resource.gpu.amount": f"{10**6 // tasks_per_gpu / 10**6:g}",  # rounded down: Spark counts 1/amount
        "spark.rapids.sql.concurrentGpuTasks": str(tasks_per_gpu),
        "spark.rapids.memory.gpu.reserve": str(RESERVE),
        "spark.rapids.memory.gpu.allocFraction": str(split.fraction),
        "spark.rapids.sql.python.gpu.enabled": "true",
        "spark.rapids.python.concurrentPythonWorkers": str(tasks_per_gpu),
        "spark.rapids.python.memory.gpu.pooling.enabled": "false",  # else every task makes a pool of its own
        "spark.python.daemon.module": "rapids.daemon",
        **_of_cluster(cluster, given, script, tasks_per_gpu),
    }


def _of_cluster(cluster: Cluster, jar: str, script: str, tasks: int) -> dict[str, str]:
    """Where the jar, the modules for Python in it and the GPUs are found."""
    if cluster == "databricks":  # which finds GPUs itself, and has a daemon of its own
        daemon = {"spark.python.daemon.module": "rapids.daemon_databricks"}
        return daemon | {"spark.executorEnv.PYTHONPATH": f"{jar}:/databricks/spark/python"}
    found = {"spark.executor.cores": str(tasks), "spark.executor.resource.gpu.amount": "1"}
    if cluster in ("yarn", "emr", "dataproc"):  # YARN ships files to the folder where an executor starts
        found |= {"spark.files": script}
        script = f"./{PurePosixPath(script).name}"
    found |= {"spark.executor.resource.gpu.discoveryScript": script}
    if cluster == "yarn":
        return found | {"spark.jars": jar, "spark.executorEnv.PYTHONPATH": PurePosixPath(jar).name}
    found |= {"spark.executorEnv.PYTHONPATH": jar}
    if cluster in ("standalone", "kubernetes"):  # others have it among Spark's jars
        found |= {f"spark.{process}.extraClassPath": jar for process in ("driver", "executor")}
    if cluster == "kubernetes":
        found |= {"spark.executor.resource.gpu.vendor": "nvidia.com"}
    return found


def as_properties(settings: Mapping[str, str]) -> str:
    """The text of a file for ``spark-submit --properties-file``."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _check_jar(jar: str) -> None:
    """Raise unless it takes this PySpark, as far as this machine can tell: it may have neither."""
    try:
        taken, spark = spark_versions(Path(jar)), metadata.version("pyspark")
    except (OSError, metadata.PackageNotFoundError):
        return
    except zipfile.BadZipFile as error:
        raise ValueError(f"{jar} cannot be read: {error}; fetch it again") from None
    if spark not in taken:
        known = f"it takes {', '.join(taken)}" if taken else "it is not a RAPIDS jar"
        raise ValueError(f"{jar} does not take PySpark {spark}: {known}; install one that fits the other")
