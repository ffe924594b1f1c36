"""Settings for RAPIDS: how they split a GPU's memory, and that the property files hold nothing else.

``python tests/spark/test_rapids_conf.py`` writes those files.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any, get_args

import pytest

import gpumatch as gm
from gpumatch.device import card
from gpumatch.spark import rapids, rapids_conf, split_gpu_memory
from gpumatch.spark.gpu_memory import index_bytes
from gpumatch.spark.rapids import DISCOVERY_SCRIPT, as_properties
from gpumatch.store.folder.directory import read, write_shards
from gpumatch.store.folder.manifests import shard_name

GIB = 1 << 30
FOLDER = Path(__file__).parents[2] / "spark_plugin" / "conf"
NAME = "rapids-4-spark_2.13-26.08.1.jar"
EXAMPLES: dict[rapids.Cluster, tuple[str, str | None, str]] = {  # the jar, the script, and what else is needed
    "standalone": (
        f"/opt/gpumatch/{NAME}",
        "/opt/gpumatch/gpu_discovery.sh",
        "Workers need in conf/spark-env.sh: SPARK_WORKER_OPTS='-Dspark.worker.resource.gpu.amount=1 "
        "-Dspark.worker.resource.gpu.discoveryScript=/opt/gpumatch/gpu_discovery.sh'",
    ),
    "yarn": (f"/opt/gpumatch/{NAME}", "/opt/gpumatch/gpu_discovery.sh", "YARN must schedule yarn.io/gpu."),
    "kubernetes": (
        f"/opt/gpumatch/{NAME}",
        "/opt/gpumatch/gpu_discovery.sh",
        "Both files are in the image; nodes need NVIDIA's device plugin.",
    ),
    "databricks": (
        f"/databricks/jars/{NAME}",
        None,
        "For the field Spark config of a cluster; an init script puts the jar there.",
    ),
    "emr": (
        "/usr/lib/spark/jars/rapids-4-spark.jar",
        "/opt/gpumatch/gpu_discovery.sh",
        "The jar is the release's own, under its name there: EMR's Spark is not Apache's.",
    ),
    "dataproc": (
        f"/usr/lib/spark/jars/{NAME}",
        "/opt/gpumatch/gpu_discovery.sh",
        "An initialization action puts the jar there.",
    ),
}


def text_of(cluster: rapids.Cluster) -> str:
    """The property file of a cluster."""
    jar, script, needs = EXAMPLES[cluster]
    size: dict[str, Any] = {"gpu_memory": 24 * GIB, "index": 2 * GIB, "tasks_per_gpu": 2}
    head = (
        f"RAPIDS and gpumatch on {cluster}: an example, which was NEVER RUN there, nor on any GPU.",
        needs,
        f"Made by rapids_conf(jar=…, gpu_memory=24 << 30, index=2 << 30, tasks_per_gpu=2, cluster={cluster!r}).",
        f"{split_gpu_memory(**size)}.",
    )
    settings = rapids_conf(jar=jar, cluster=cluster, discovery_script=script, **size)
    return "".join(f"# {line}\n" for line in head) + as_properties(settings)


@pytest.mark.parametrize("cluster", get_args(rapids.Cluster))
def test_files_are_what_the_function_returns(cluster: rapids.Cluster) -> None:
    assert (FOLDER / f"{cluster}.properties").read_text() == text_of(cluster), f"run python {__file__}"


def test_no_other_files() -> None:
    names = {f"{cluster}.properties" for cluster in EXAMPLES}
    assert {path.name for path in FOLDER.iterdir()} == names | {DISCOVERY_SCRIPT.name}


def test_settings() -> None:
    found = rapids_conf(jar="/jars/r.jar", gpu_memory=24 * GIB, index=2 * GIB, tasks_per_gpu=2)
    assert found["spark.plugins"] == "com.nvidia.spark.SQLPlugin"
    assert found["spark.task.resource.gpu.amount"] == "0.5"
    assert found["spark.rapids.python.concurrentPythonWorkers"] == "2"
    assert found["spark.executorEnv.PYTHONPATH"] == found["spark.driver.extraClassPath"] == "/jars/r.jar"
    assert found["spark.executor.resource.gpu.discoveryScript"] == str(DISCOVERY_SCRIPT)
    assert all(isinstance(value, str) for value in found.values())


@pytest.mark.parametrize("tasks", range(1, 40))
def test_spark_counts_as_many_tasks(tasks: int) -> None:
    found = rapids_conf(jar="r.jar", gpu_memory=1000 * GIB, index=0, tasks_per_gpu=tasks)
    assert int(1 / float(found["spark.task.resource.gpu.amount"])) == tasks


def test_the_split_adds_up() -> None:
    split = split_gpu_memory(24 * GIB, 2, 2 * GIB)
    assert split.jvm + 2 * split.worker == split.usable
    assert split.worker > 2 * GIB + split.work
    assert 0 <= split.jvm / split.usable - split.fraction < 0.001
    assert "24.00 GiB GPU = " in str(split)
    assert "2 workers of 6.50 GiB (index 2.00 GiB, matching 4.00 GiB, CUDA 0.50 GiB)" in str(split)


@pytest.mark.parametrize("gib", [8, 24, 80])
def test_room_for_matching_is_what_a_card_takes(gib: int) -> None:
    buffer = min(gib * GIB // card._SHARE_OF_MEMORY, card._MOST_BYTES)
    assert split_gpu_memory(gib * GIB, 1, 0).work == card._IN_FLIGHT * 4 * buffer


def test_without_an_index_python_gets_half() -> None:
    split = split_gpu_memory(40 * GIB, 2, None)
    assert 0 <= split.jvm - split.usable // 2 < 4
    assert split.index > 4 * GIB


def test_the_size_of_saved_indexes(tmp_path: Path) -> None:
    names = [shard_name(number, "0123456789abcdef") for number in range(2)]
    for number, name in enumerate(names):
        matcher = gm.Matcher({"x": "int64"})
        matcher.add({f"s{number}": "x < 3"})
        matcher.save(tmp_path / name)
    write_shards(tmp_path, names)
    size = index_bytes(tmp_path)
    assert size == read(tmp_path).nbytes > 0
    assert split_gpu_memory(24 * GIB, 1, tmp_path).index == size


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gpu_memory": 16 * GIB, "index": 3 * GIB, "tasks_per_gpu": 3}, "at least a quarter: pass tasks_per_gpu=1"),
        ({"gpu_memory": 16 * GIB, "index": 9 * GIB}, "take a larger GPU, or match with device='cpu'"),
        ({"gpu_memory": 1 * GIB}, "has 0.00 GiB for them"),
        ({"gpu_memory": 16 * GIB, "index": -1}, "index must be a folder or a number of bytes, found -1"),
        ({"gpu_memory": "16g"}, "gpu_memory must be a whole number of at least 1, found '16g'"),
        ({"gpu_memory": 16 * GIB, "tasks_per_gpu": 0}, "tasks_per_gpu must be a whole number of at least 1, found 0"),
        ({"gpu_memory": 16 * GIB, "cluster": "mesos"}, "cluster must be one of standalone, yarn, .*, found 'mesos'"),
        (
            {"gpu_memory": 16 * GIB, "cluster": "databricks", "discovery_script": "x.sh"},
            "leave out discovery_script, found 'x.sh'",
        ),
        ({"gpu_memory": 16 * GIB, "jar": "rapids.zip"}, "jar must be the path of RAPIDS's jar"),
    ],
)
def test_bad_arguments(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rapids_conf(**{"jar": "r.jar", **more})


def test_jars_that_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    jar = tmp_path / "r.jar"
    cases = (("spark999", "does not take PySpark .*: it takes 9.9.9"), ("other", "it is not a RAPIDS jar"))
    for folder, words in cases:
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr(f"{folder}/x.class", "")
        with pytest.raises(ValueError, match=words):
            rapids_conf(jar=jar, gpu_memory=24 * GIB)
    jar.write_text("nothing")
    with pytest.raises(ValueError, match="fetch it again"):
        rapids_conf(jar=jar, gpu_memory=24 * GIB)


def test_the_script_prints_what_spark_reads(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for lines, gpus in (("0", ["0"]), ("0\\n1\\n3", ["0", "1", "3"])):
        program.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\n")
        program.chmod(0o755)
        done = subprocess.run([DISCOVERY_SCRIPT], env=os.environ | path, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {"name": "gpu", "addresses": gpus}
    program.write_text("#!/bin/sh\nexit 9\n")
    assert subprocess.run([DISCOVERY_SCRIPT], env=os.environ | path, capture_output=True).returncode == 1


if __name__ == "__main__":
    for cluster in EXAMPLES:
        (FOLDER / f"{cluster}.properties").write_text(text_of(cluster))
