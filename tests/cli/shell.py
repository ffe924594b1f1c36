"""Commands run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumatch import cli


class Shell:
    """A folder to work in, and what the last command printed."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capture = folder, capture
        self.out = self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capture.readouterr()
        found = cli.main(arguments)
        self.out, self.err = self._capture.readouterr()
        assert found == code, self.err
        return self.out

    def fails(self, *arguments: str) -> str:
        """The one line (or the line and its caret) of an error that the user can mend."""
        assert self(*arguments, code=2) == ""
        assert self.err.startswith("error: ")
        assert "Traceback" not in self.err
        return self.err
