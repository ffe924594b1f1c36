"""How numba compiles a driver: everything that it calls is passed to LLVM once, as a component of the driver.

By default numba optimises every function, writes machine code for it, and then does the same again for each caller that
it was inlined into. Only drivers are called from outside, so only they get machine code: less than half the wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _NoEnvironment:
    """Stands in for the code generator where numba tells compiled code about its Python globals: ours uses none."""

    def set_env(self, name: str, environment: Any) -> None:
        pass


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """Code that is linked into other code and has no address of its own."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return _NoEnvironment()


class Whole(Compiler):  # type: ignore[misc]
    """A driver: a normal numba library. Everything that numba compiles on the way becomes a component of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._codegen = self.state.targetctx.codegen()
        self.state.library = JITCodeLibrary(self._codegen, "driver")
        self.state.library.enable_object_caching()

    def compile_extra(self, function: Any) -> Any:
        with libraries(self._codegen, _Part):
            return super().compile_extra(function)


@contextmanager
def libraries(codegen: Any, kind: type = JITCodeLibrary) -> Iterator[None]:
    """Libraries made in this context are of this kind. The caller holds numba's lock: nobody else makes any."""
    before = codegen._library_class
    codegen._library_class = kind
    try:
        yield
    finally:
        codegen._library_class = before
