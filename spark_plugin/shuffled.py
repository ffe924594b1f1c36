"""Rows and bytes that Spark has shuffled, according to its own status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shuffled:
    """What a session shuffles while a block runs: ``with Shuffled(spark) as shuffled: …``, then ``print(shuffled)``.

    All jobs of the application count, including those of other threads, as long as Spark remembers their stages
    (``spark.ui.retainedStages``). A task that runs again counts twice.
    """

    def __init__(self, session: SparkSession) -> None:
        context: Any = getattr(session, "_sc", None)
        if context is None:
            raise TypeError("Shuffled needs classic PySpark: Spark Connect does not show the status of stages")
        self._context = context
        self.rows = 0
        self.bytes = 0  # compressed, as they are sent

    def __enter__(self) -> Shuffled:
        self._last = max((stage.stageId() for stage in self._stages()), default=-1)
        return self

    def __exit__(self, *_: object) -> None:
        stages = [stage for stage in self._stages() if stage.stageId() > self._last]
        self.rows = sum(stage.shuffleWriteRecords() for stage in stages)
        self.bytes = sum(stage.shuffleWriteBytes() for stage in stages)

    def __str__(self) -> str:
        return f"{self.rows:,} rows and {self.bytes:,} bytes shuffled"

    def _stages(self) -> list[Any]:
        spark: Any = self._context._jsc.sc()
        spark.listenerBus().waitUntilEmpty()
        empty = self._context._gateway.new_array(self._context._jvm.double, 0)
        stages = spark.statusStore().stageList(None, False, False, empty, None)
        return [stages.apply(at) for at in range(stages.size())]
