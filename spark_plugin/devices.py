"""Which device a task matches on."""

from __future__ import annotations

import logging
import os
from functools import cache

from gpumatch.device.discovery import count_devices, why_not

_LOG = logging.getLogger("gpumatch")


def device_of_task(device: str, is_local: bool) -> str:
    """``device`` as it was asked for; "auto" is the GPU that Spark or the environment gives the task, else the CPU.

    In local mode, where Spark gives none, tasks take the GPUs in turn by their partition.
    """
    if device != "auto":
        return device
    devices, reason = count_devices(), why_not()
    if reason:
        _say(logging.WARNING if devices else logging.INFO, f"tasks match on the CPU: {reason}")
        return "cpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        return "cuda:0"  # the first of those that the environment leaves
    from pyspark import TaskContext

    context = TaskContext.get()
    given = {} if context is None else context.resources()
    if "gpu" in given:
        return f"cuda:{int(given['gpu'].addresses[0])}"
    if context is not None and is_local:
        return f"cuda:{context.partitionId() % (devices or 1)}"
    missing = "Spark gives them no GPU; set spark.task.resource.gpu.amount, or pass device='cuda:0'"
    _say(logging.WARNING, f"tasks match on the CPU: {missing}")
    return "cpu"


@cache
def _say(level: int, message: str) -> None:
    """Log it once per worker."""
    _LOG.log(level, "%s", message)
