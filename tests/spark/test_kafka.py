"""From Kafka to Kafka, through a real broker: one process of Kafka's server, which Maven fetches, on this machine."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpumatch as gm
from gpumatch.spark import pinned_versions
from tests.spark.jars import fetched
from tests.spark.streams import SCHEMA, events

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.skipif("GPUMATCH_ALL" not in os.environ, reason="it fetches 100 MB: make test-long runs it"),
]

SERVER, TOKENS = "3.9.1", "4.0.0"  # later providers of tokens are not everywhere, and this one fits
PROGRAM = Path(__file__).with_name("kafka_program.py")
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=2
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker, which ends with the test."""
    jars = fetched(f"kafka-{SERVER}", f"org.apache.kafka:kafka_2.13:{SERVER}")
    folder, port = tmp_path / "kafka", free_port()
    folder.mkdir()
    settings = folder / "server.properties"
    settings.write_text(PROPERTIES.format(port=port, control=free_port(), folder=folder))
    java = ["java", "-Xmx256m", "-cp", os.pathsep.join(map(str, jars))]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with open(folder / "said", "wb") as said:
        server = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + 120
        while not answers(port):
            assert server.poll() is None, (folder / "said").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_from_kafka_to_kafka(broker: str, tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    spark = [("sql", pyspark.__version__), ("token-provider", TOKENS)]
    names = [f"org.apache.spark:spark-{name}-kafka-0-10_2.13:{version}" for name, version in spark]
    names.append("org.apache.commons:commons-pool2:2.12.1")
    # alone: the parent of Spark's artifacts names a mirror that Maven may not reach
    connector = fetched(f"spark-kafka-{pyspark.__version__}", *names, alone=True)
    clients = fetched(f"kafka-clients-{SERVER}", f"org.apache.kafka:kafka-clients:{SERVER}", alone=True)
    jars = ",".join(map(str, [*connector, *clients]))
    right: list[list[object]] = []
    topics: list[list[object]] = []
    with gm.open(tmp_path / "index", "a", schema=SCHEMA, keep=0) as matcher:
        matcher.add({"high": "x > 90", "b": "s = 'b'"}, destination=["vip", "all"])
        for step in range(2):
            command = [sys.executable, str(PROGRAM), str(tmp_path), jars, broker, str(step)]
            environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr[-3000:]
            found = json.loads((tmp_path / f"pairs{step}.json").read_text())
            ids = matcher.match(events(100 * step, 100))
            right += [[100 * step + k, name] for k, names in enumerate(ids) for name in names]
            assert found["pairs"] == sorted(right)
            sent = matcher.destinations(events(100 * step, 100))
            topics += [[100 * step + k, f"alerts-{name}"] for k, names in enumerate(sent) for name in names]
            assert found["topics"] == sorted(topics)
            matcher.remove(["b"])
            matcher.upsert({"b": "x < 10", "c": "s = 'c'"}, destination=["all", "vip"])
            matcher.compact()
        versions = pinned_versions(tmp_path / "index", found["query"])
        assert list(versions) == [0, 1]
        assert versions[0] != versions[1]
