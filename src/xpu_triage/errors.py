"""What can go wrong, as one line each: what, where, and what to do about it.

    TriageError
    ├── UnusableInput     the evidence cannot be read at all (exit code 2)
    └── MissingExtra      an optional dependency is not installed; the message names the extra
"""

from __future__ import annotations

from os import PathLike

from .text import clean


class TriageError(Exception):
    """An error meant for the reader: printed as one line, without a traceback."""

    exit_code = 2

    def __init__(self, what: str, *, where: str | PathLike[str] = "", todo: str = "") -> None:
        self.what, self.where, self.todo = what, str(where), todo
        line = f"{self.where}: {what}" if self.where else what
        super().__init__(clean(f"{line}. {todo}" if todo else line))

    def _render_traceback_(self) -> list[str]:
        """IPython calls this instead of printing a traceback: a refusal stays short in a saved notebook."""
        return [f"{type(self).__name__}: {self}"]


class UnusableInput(TriageError):
    """Evidence that cannot be read at all. Damaged evidence that can be read in part is a note, not this."""


class MissingExtra(TriageError):
    """An optional dependency is missing."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", todo=install(extra))


def install(extra: str) -> str:
    """How to get an extra, in both places where the project may be.

    >>> install("live")
    "pip install 'xpu-triage[live]' (in a checkout: pip install -e '.[live]')"
    """
    return f"pip install 'xpu-triage[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
