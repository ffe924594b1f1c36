"""Where events go: shards and filters with little leak (Sieve), destination lists over overlays (D-DBR, MERC).

Names load on first use: Sieve's parts need NumPy and numba only, overlays need ``pip install 'gpumatch[routing]'``.
"""

from __future__ import annotations

_HOMES: dict[str, tuple[str, ...]] = {}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__: list[str] = []


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gpumatch.routing' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"gpumatch.routing.{_HOME[name]}"), name)
    globals()[name] = value  # next time no call
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
