"""Bounds on what a GPU can do with a workload: kernels' memory and work, counted on the CPU, over published rates.

Nothing here is a measurement. A bound is a number of events per second that a device cannot exceed, if every kernel
runs at the rate of its scarcest resource, and kernels follow each other without a pause.
"""

from __future__ import annotations

from gpumatch.proof.roofline.cost import Bound, Cost, bound
from gpumatch.proof.roofline.gpus import GPUS, Gpu, gpus_named
from gpumatch.proof.roofline.report import ASSUMPTIONS, bound_table, kernel_table, summary_table, to_json
from gpumatch.proof.roofline.trace import Counted, count_given, count_workload, pairs_named

__all__ = [
    "ASSUMPTIONS",
    "GPUS",
    "Bound",
    "Cost",
    "Counted",
    "Gpu",
    "bound",
    "bound_table",
    "count_given",
    "count_workload",
    "gpus_named",
    "kernel_table",
    "pairs_named",
    "summary_table",
    "to_json",
]
