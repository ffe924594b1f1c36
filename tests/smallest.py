"""Every number in the code at which paths switch, and the smallest value that it can have.

Beyond these numbers code takes other paths: whole columns in place of rows, hashing in place of tables, a second chunk,
tile or buffer. Small cases never get there, so the conformance suite also runs on a copy of the package in which all of
them are at their smallest. Numbers in kernels are compiled into them, so they are lowered in the sources.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALLEST: dict[str, dict[str, int]] = {
    "gpumatch/store/store.py": {"_JOINED": 2, "_ROUNDS": 1},
    "gpumatch/store/merging.py": {"SCANNED": 2, "WORTH": 1, "_FRESH": 1, "_SHARE": 1, "_TIER": 2},
    "gpumatch/store/ids.py": {"_FEW": 0, "_SHARE": 1},
    "gpumatch/store/removed.py": {"_SPARE": 1},
    "gpumatch/codes/encode.py": {"_UNUSED": 1},
    "gpumatch/parallel/threads.py": {"_SHARE": 1},
    "gpumatch/codes/ends.py": {"_AT_ONCE": 1},
    "gpumatch/subscriptions/ranges.py": {"_ROWS": 1},
    "gpumatch/codes/book.py": {"_AT_ONCE": 1, "_LONG": 4, "_SHORT": 2},  # buckets hold four cuts
    "gpumatch/expr/constants.py": {"_EXACT": 0},
    "gpumatch/expr/normal.py": {"_FOLDED": 1, "_LITERALS": 0, "_PER_ITEM": 1, "_SMALL": 1},
    "gpumatch/expr/shapes.py": {"_CACHED_SHAPES": 1, "_STRETCH": 2, "_TRIAL": 1},
    "gpumatch/index/atree/__init__.py": {
        "_KEPT": 0,
        "_PER_LEAF": 1,
        "_ROWS": 1,
        "_VALUES": 16,
    },  # the stack, and a node
    "gpumatch/index/postings/compound.py": {
        "_CODES": 1 << 30,
        "_DIRECT": 0,
        "_SHARED": 1,
    },  # fewer codes leave no groups
    "gpumatch/index/costs.py": {"_KNOWN": 1, "_SAMPLE": 1},
    "gpumatch/index/flat.py": {"_EVENTS": 1},
    "gpumatch/index/gem/__init__.py": {
        "_GRANULES": 1,
        "_LANES": 4,
        "_LEAST_EVENTS": 1,
        "_MANY_ROWS": 1,
        "_MOST_DIMS": 1,
        "_MOST_EVENTS": 1,
        "_ROWS": 1,
    },
    "gpumatch/index/postings/__init__.py": {"_TESTED": 0, "_PER_LEAF": 1},
    "gpumatch/index/psthash/__init__.py": {"_CELLS": 1, "_PAYS": 0, "_POSTINGS": 1},
    "gpumatch/index/tama/__init__.py": {"_ALL_CHECKED": 0, "_AT_ONCE": 1, "_ENOUGH": 0, "_PLENTY": 1},
    "gpumatch/subscriptions/longform.py": {"_AT_ONCE": 3},
    "gpumatch/matcher.py": {"_FEW": 1, "_IDS": 1, "_MET": 1, "_SAMPLE": 1, "_TRIED": 0},
    "gpumatch/events/parquet.py": {"_ROWS": 1},
    "gpumatch/index/planner.py": {"_CALLS": 1, "_FEW": 0, "_SHARE": 1, "_TRIED": 1},
    "gpumatch/subscriptions/programs.py": {"_LARGE": 0, "_SLICE": 1, "_TABLE": 0},
    "gpumatch/results.py": {"_CHUNK": 1, "_FEW": 0},
    "gpumatch/routing/overlays/multicast.py": {"CELLS": 1},
    "gpumatch/routing/overlays/overlap.py": {"_REMEMBERED": 1},
    "gpumatch/routing/sieve/routes.py": {"_AT_ONCE": 1},
    "gpumatch/routing/sieve/trees.py": {"KEPT": 1},
    "gpumatch/routing/simulator/calendar.py": {"_NEAR": 1},
    "gpumatch/routing/simulator/merc_lists.py": {"_PAIRS": 1},
    "gpumatch/routing/simulator/traffic.py": {"_CELLS": 1},
    "gpumatch/codes/search.py": {"_AT_ONCE": 1, "_BITS": 1, "_GRAM": 1, "_WINDOWS": 1},
    "gpumatch/store/segment.py": {"_COUNTED": 1, "_MIN_CHUNK": 1},
    "gpumatch/store/snapshot.py": {"_ITER_EVENTS": 1, "_SHARE": 1},
    "gpumatch/events/shapes.py": {"_MOST": 1},
    "gpumatch/events/strangers.py": {"_JUDGED": 1},
    "gpumatch/subscriptions/texts.py": {"_AT_ONCE": 3, "_MANY": 1},
    "gpumatch/cli/files.py": {"_BATCH_ROWS": 1, "_WRITE_ROWS": 1},
    "gpumatch/subscriptions/unlike.py": {"_FEW": 0, "_MANY": 1},
    "kernels/atree.py": {"ROOM": 2},
    "kernels/atree_build.py": {"NEST": 1, "SIZE": 1},
    "kernels/dag.py": {"MOST": 1, "NODES": 1, "PAIRS": 1, "STEPS": 1},
    "kernels/encode.py": {"BLOCK": 1},
    "kernels/gem.py": {"AT_ONCE": 1, "WORDS": 1},
    "kernels/gem_dense.py": {"AT_ONCE": 1},
    "kernels/ends.py": {"NEAR": 1},
    "kernels/leak.py": {"BLOCK": 1},
    "kernels/order.py": {"AHEAD": 1},
    "kernels/postings.py": {"AHEAD": 1, "CELLS": 1, "MANY": 1, "SPREAD": 0},
    "kernels/psthash.py": {"STEP": 1},
    "kernels/removed.py": {"SPAN": 6},
    "kernels/router.py": {"AT_ONCE": 1},
    "kernels/rows.py": {"SMALL": 0, "START": 1},
    "kernels/tama.py": {"AHEAD": 1, "MOST": 1, "PADDING": 1},
    "kernels/triangle.py": {"AHEAD": 1, "ANDED": 0, "KEPT": 0},
    "kernels/words.py": {"WORDS": 1},
}
# Numbers that tests of their own lower, and the file where they do.
ELSEWHERE: dict[str, dict[str, str]] = {
    "gpumatch/cli/subscriptions.py": {"_ROWS_AT_ONCE": "cli/test_cli.py"},
    "gpumatch/cli/commands/match.py": dict.fromkeys(
        ("_EVENTS_AT_FIRST", "_EVENTS_TO_TELL", "_PAIRS_AT_ONCE"), "cli/test_cli.py"
    ),
    "gpumatch/index/gem/device.py": {"_SHARE": "sim/test_edges.py"},
    "gpumatch/device/matching.py": {"_EVENTS": "sim/test_edges.py", "_FEW": "sim/test_edges.py"},
    "gpumatch/index/postings/compound.py": {"_LINES": "conformance/test_groups.py"},
    "gpumatch/store/store.py": {"MOST": "store/test_durable.py"},
    "gpumatch/store/folder/log.py": {"_AT_ONCE": "store/histories.py"},
    "gpumatch/store/room.py": {"_SURE": "store/test_limits.py"},
    "gpumatch/subscriptions/intake.py": {"LONGEST": "store/test_limits.py"},
    "gpumatch/store/folder/durable.py": dict.fromkeys(
        ["_BYTES", "_RECORDS", "_ROWS", "_SHARE"], "store/test_durable.py"
    ),
    "gpumatch/cli/jsonlines.py": {"_BLOCK_BYTES": "cli/test_files.py"},
    "gpumatch/cli/files.py": {"_BLOCK_BYTES": "cli/test_files.py"},
    "gpumatch/subscriptions/shares.py": {"_SHARE": "subscriptions/test_shares.py"},
    "gpumatch/index/trials.py": dict.fromkeys(
        ("_ALIKE", "_EVENTS", "_FEW_EVENTS", "_LARGE", "_LEAST", "_SAMPLE"), "index/test_trials.py"
    ),
    "gpumatch/routing/shards/grid.py": dict.fromkeys(("COLUMNS", "_CELLS"), "routing/test_router.py"),
    "gpumatch/routing/shards/router.py": dict.fromkeys(("_MARKS", "_PER_LIST"), "routing/test_router.py"),
    "spark_plugin/routed.py": {"SENT_BYTES": "spark/test_routed.py"},
    "spark_plugin/worker.py": dict.fromkeys(("PASS_BYTES", "PASS_ROWS"), "spark/test_routed.py"),
    "gpumatch/store/folder/place.py": {"_CHUNK": "store/test_remote.py", "_GRACE": "store/test_remote.py"},
    "spark_plugin/answers.py": dict.fromkeys(("SLICE_ROWS", "SLICE_BYTES", "SLICE_IDS"), "spark/test_worker.py"),
}
# Numbers that switch no path between the same answers: limits, layouts, marks, figures of cost, what a device has.
FIXED: dict[str, str] = {
    "gpumatch/cli/commands/match.py": "_EVENTS_AT_MOST",
    "gpumatch/codes/book.py": "_CUTS_PER_BUCKET",
    "gpumatch/cli/console.py": "_NO_LIMIT _ROWS_SHOWN",
    "gpumatch/events/cuda.py": "_NAT",
    "gpumatch/subscriptions/keys.py": "_NANOS",
    "gpumatch/device/candidates.py": "_KEY",
    "gpumatch/device/card.py": (
        "_BLOCKS_PER_UNIT _IN_FLIGHT _MOST_BYTES _SHARE_OF_MEMORY "
        "_SIMULATED_BLOCKS _SIMULATED_MEMORY _SIMULATED_THREADS"
    ),
    "gpumatch/device/matching.py": "_ENOUGH _PIECES",
    "gpumatch/index/tama/discretise.py": "_MOST_LEVELS",
    "gpumatch/expr/constants.py": "MAX_DIGITS",
    "gpumatch/expr/shapes.py": "_CACHED_LENGTH",
    "gpumatch/expr/times.py": "SECOND _CYCLE",
    "gpumatch/expr/tree.py": "MAX_DEPTH",
    "gpumatch/index/trials.py": "_DRAWS _LONG _REPEATS _SHARE",
    "gpumatch/index/atree/__init__.py": "_EXPRESSION _ITEM",
    "gpumatch/index/atree/device.py": "_WORD",
    "gpumatch/index/charts.py": "_BARS",
    "gpumatch/index/costs.py": "_ENTRIES",
    "gpumatch/index/flat.py": "_CLAUSE_BYTES",
    "gpumatch/index/gem/device.py": "_LOG_WORDS",
    "gpumatch/index/postings/__init__.py": "BLOCKS POSTING",
    "gpumatch/index/gem/__init__.py": "_SHARE",
    "gpumatch/index/psthash/__init__.py": "_BEHIND _PER_CELL",
    "gpumatch/index/tama/__init__.py": "_MOST_LEVELS _SLACK _STEP",
    "gpumatch/expr/keys.py": "INF_KEY MAX MIN",
    "gpumatch/opcodes.py": (
        "ANY DOUBLE FLOAT32 HI KIND LO NONE NULL NUMBER OP_AND OP_BASE OP_FALSE OP_NOT OP_OR OP_TRUE OP_XNOR OP_XOR "
        "RANGE SET TEXT WIDTH"
    ),
    "gpumatch/subscriptions/programs.py": "_KINDS",
    "gpumatch/routing/overlays/graphs.py": "_MOST",
    "gpumatch/routing/overlays/topology.py": "MOST_BROKERS",
    "gpumatch/routing/shards/grid.py": "_ENTRIES _EVENTS",
    "gpumatch/routing/shards/placement.py": "_HASH _LEVEL _MIDDLE",
    "gpumatch/routing/shards/plan.py": "EVENTS MOST_SHARDS _FEWER",
    "gpumatch/routing/shards/router.py": "_FIELDS _LEVELS",
    "gpumatch/routing/sieve/placing.py": "NOWHERE _TREES",
    "gpumatch/routing/sieve/shards.py": "_EDGES _ENTRIES _MOST _SAMPLE",
    "gpumatch/routing/simulator/experiments.py": "DRAWS EVENTS MINUTE",
    "gpumatch/routing/simulator/protocols.py": "_LONGEST _MOST_SUBSCRIPTIONS",
    "gpumatch/routing/simulator/traffic.py": "LATEST SECOND",
    "gpumatch/store/folder/manifests.py": "BEFORE FORMAT _MOST",
    "gpumatch/store/folder/log.py": "CHAIN _CHECK",
    "gpumatch/store/folder/pins.py": "KEPT",
    "gpumatch/store/folder/place.py": "_AT_ONCE",
    "gpumatch/store/room.py": "_BYTES",
    "gpumatch/subscriptions/intake.py": "_SHOWN",
    "gpumatch/cli/files.py": "_LEADING",
    "gpumatch/subscriptions/unlike.py": "_JOIN _LIST _NOT_NULL _NULL _VALUES _WHATS",
    "gpumatch/warming.py": "_MANY",
    "kernels/atree.py": "STACK",
    "kernels/router.py": "FINEST WIDTH",
    "spark_plugin/strategy.py": "GPU_BYTES",
    "kernels/compile.py": "_finished",
    "kernels/atree_build.py": "NEGATED",
    "kernels/cuda/gem.py": "LOG_WORDS STAGED",
    "kernels/cuda/tama.py": "LIST PREDICATE SPREAD",
    "kernels/cuda/target.py": "THREADS",
    "kernels/cuda/work.py": "NOTHING UNDECIDED",
    "kernels/dag.py": "ALWAYS AND F FALSE_NODE LATE NEVER OR POSTED T TRUE_NODE",
    "kernels/encode.py": "DIRECT FLOAT GUIDE MISSING",
    "kernels/ids.py": "EMPTY",
    "kernels/order.py": "LINE",
    "kernels/gem.py": "ABSENT LANES OPEN STRICTER",
    "kernels/partition.py": "WORD",
    "kernels/postings.py": "ABSENT BLOCKS CLAUSE FILTERED LEVELS LINE",
    "kernels/predicates.py": "FALSE TRUE UNKNOWN",
    "kernels/psthash.py": "RECORD",
    "kernels/tama.py": "BASE BRICK CELLS CODES FACTS HEIGHTS LEFT LOOKUPS TOP WORDS",
    "spark_plugin/build.py": "_SAMPLE",
    "spark_plugin/deliver.py": "LIST ROW SAMPLE WORD",
    "spark_plugin/gpu_memory.py": "CONTEXT RESERVE _QUARTER _WORK",
    "spark_plugin/shards.py": "REPORTED",
}
# Modules that only draw, time, count or show.
OUTSIDE = (
    "benchmark",
    "demo",
    "occupancy",
    "picture",
    "pictures",
    "roofline",
    "route_sim",
    "route_pictures",
    "workloads",
    "count",
)


def lowered(text: str, name: str, value: int) -> str:
    """The source with another value in the place of a number's, alone or in a tuple of them."""
    pattern = re.compile(rf"^(?P<names>(?:\w+, )*{name}\b(?:, \w+)*) = (?P<values>[^#\n]+?)(?=  #|$)", re.MULTILINE)
    match = pattern.search(text)
    assert match is not None, name
    values = match["values"].split(", ")
    values[match["names"].split(", ").index(name)] = str(value)
    return text[: match.start("values")] + ", ".join(values) + text[match.end("values") :]


def copy_at_smallest(folder: Path) -> None:
    """The package as it installs, and its tests, in a folder; with all numbers at their smallest."""
    for source, target in (
        ("gpumatch", "gpumatch"),
        ("kernels", "gpumatch/kernels"),
        ("spark_plugin", "gpumatch/spark"),
    ):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, folder / target, ignore=ignored)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, numbers in SMALLEST.items():
        file = folder / re.sub("^kernels", "gpumatch/kernels", path)
        text = file.read_text()
        for name, value in numbers.items():
            text = lowered(text, name, value)
        file.write_text(text)
