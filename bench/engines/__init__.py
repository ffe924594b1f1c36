"""All engines by name: ours, and those we compare with."""

from engines.base import Engine
from engines.conjunctions import AccessLists, Bitmaps, BruteForce, NumbaScan
from engines.expressions import BitPlanes, BooleanScan
from engines.frames import DuckDB, Polars
from engines.ours import OURS, Auto, using
from engines.translation import Translation

ENGINES: dict[str, type[Engine]] = {
    **OURS,
    "numpy bitmaps": Bitmaps,
    "numpy access lists": AccessLists,
    "numba scan": NumbaScan,
    "polars": Polars,
    "duckdb": DuckDB,
    "numpy brute force": BruteForce,
}
NUMPY_INDEXES = ("numpy bitmaps", "numpy access lists")  # the better one is the baseline
BOOLEAN: dict[str, type[Engine]] = {  # for arbitrary Boolean expressions
    "gpumatch atree": using("atree"),
    "gpumatch auto": Auto,
    "numpy bit planes": BitPlanes,
    "numba scan": BooleanScan,
    "translation": Translation,
}
