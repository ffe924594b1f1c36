"""Archives on the path of Spark's Python workers, which are read once, not before every task."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from zipimport import zipimporter


class Unchanged(zipimporter):
    """Reads its archive again only if that has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._facts = _facts(self.archive)

    def invalidate_caches(self) -> None:
        found = _facts(self.archive)
        if found != self._facts:
            super().invalidate_caches()
            self._facts = found


def read_once() -> None:
    """Spare later tasks of this worker 0.2 seconds each, with Python before 3.13.

    Before every task, PySpark invalidates what Python knows of its path. Each importer of an archive then rereads it at
    once, and there is one for every package inside: dozens for PySpark's own.
    """
    if sys.version_info < (3, 13):
        for path, finder in list(sys.path_importer_cache.items()):
            if type(finder) is zipimporter:
                with suppress(ImportError):  # it is gone, as Python would find out later
                    sys.path_importer_cache[path] = Unchanged(path)


def _facts(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
