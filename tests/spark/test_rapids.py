"""Plans stay on the GPU under RAPIDS, as its own ``ExplainPlan`` tells without a GPU.

The jar is fetched by Maven, a gigabyte; a copy without its native libraries is kept in the user's folder of caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.rapids, pytest.mark.long]

VERSION = "26.08.1"
NAME = f"rapids-4-spark_2.13-{VERSION}"

SCRIPT = """
import sys
import gpumatch as gm
from gpumatch.spark import count_subscriptions, match_events, register
from pyspark.sql import SparkSession

jar, folder = sys.argv[1:]
settings = {"spark.driver.extraClassPath": jar, "spark.sql.adaptive.enabled": "false", "spark.ui.enabled": "false"}
builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
explain = spark.sparkContext._jvm.com.nvidia.spark.rapids.ExplainPlan.explainPotentialGpuPlan
matcher = gm.Matcher({"x": "int64", "s": "string", "tags": "list<string>", "at": "timestamp[us, tz=UTC]"})
matcher.add({"a": "x < 3", "b": "s = 'q'"}, destination=["d1", "d2"], weight=[1, 2])
made = "id AS x, 'q' AS s, array('t') AS tags, timestamp_micros(id) AS at, id * 2 AS k, CAST(id AS DECIMAL(9, 2)) AS d"
spark.sql(f"SELECT {made} FROM range(6)").write.parquet(folder)
events = spark.read.parquet(folder)
matcher.save(folder + "-index")
register(spark)
plans = {
    "pairs": match_events(events, matcher, columns=["k"]).groupBy("subscription").count(),
    "array": match_events(events, matcher, output="array", columns=["k", "tags"]),
    "count": match_events(events, matcher, output="count", columns=["k"]),
    "destinations": match_events(events, matcher, output="destinations", columns=["k"]),
    "top": match_events(events, matcher, top=1, columns=["k"]),
    "totals": count_subscriptions(events, matcher),
    "match_ids": events.selectExpr("k", f"match_ids('{folder}-index', 'x, s', x, s)"),
    "decimal": match_events(events, matcher, columns=["d"]),
}
for name, plan in plans.items():
    print(name, len(explain(plan._jdf, "NOT_ON_GPU").strip()), plan.count())
"""


@pytest.fixture(scope="session")
def jar() -> Path:
    """The jar without native libraries: they are nine tenths of it, and nothing here loads them."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpumatch-test")
    slim = folder / f"{NAME}-slim.jar"
    if slim.exists():
        return slim
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed, and fetches the RAPIDS jar")
    artifact = f"com.nvidia:rapids-4-spark_2.13:{VERSION}"
    command = ["mvn", "-q", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=600)
    whole = Path.home() / ".m2/repository/com/nvidia/rapids-4-spark_2.13" / VERSION / f"{NAME}.jar"
    if fetched.returncode or not whole.exists():
        pytest.skip(f"Maven cannot fetch {artifact}: {fetched.stdout.strip()[-300:]}")
    folder.mkdir(parents=True, exist_ok=True)
    draft = slim.with_name(f".{slim.name}.{os.getpid()}")
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(draft, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".so"):
                target.writestr(entry, source.read(entry))
    draft.replace(slim)
    return slim


def test_plans_stay_on_the_gpu(jar: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'gpumatch[spark]'")
    command = [sys.executable, "-c", SCRIPT, str(jar), str(tmp_path / "events")]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {name: (int(off), int(rows)) for name, off, rows in map(str.split, done.stdout.splitlines())}
    off, _ = found.pop("decimal")
    assert off > 0  # else explain says nothing, whatever the plan
    assert found == {
        "pairs": (0, 2),
        "array": (0, 6),
        "count": (0, 6),
        "destinations": (0, 6),
        "top": (0, 6),
        "totals": (0, 2),
        "match_ids": (0, 6),
    }
