"""Where in the user's code a sync happened: the innermost frame that is nobody's library."""

from __future__ import annotations

import functools
import linecache
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from types import FrameType, TracebackType

LIBRARIES = frozenset(
    {"torch", "torch_npu", "functorch", "torchgen", "numpy", "pytest", "_pytest", "pluggy", "hypothesis"}
)
"""Top-level packages whose frames are never the user's."""

_OWN = (__package__ or "").rpartition(".")[0]
_LAB_WORKLOAD = frozenset({f"{_OWN}.lab.decoder", f"{_OWN}.lab.faults"})
"""What in the lab is a workload; the rest of it is the device."""

_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


@dataclass(frozen=True, slots=True)
class Site:
    """A line of code. `str(site)` is `sampler.py:41 in sample`, with the folders of its package."""

    path: str
    line: int
    function: str
    file: str = field(default="", compare=False)
    """The file as Python knows it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} in {self.function}" if self.line else self.path

    @property
    def text(self) -> str:
        """The source line, empty where it is not at hand."""
        return linecache.getline(self.file, self.line).strip()


UNKNOWN = Site("outside of Python code", 0, "")
"""A sync with no frame of the user's above it: a thread of a library, an interpreter that is shutting
down."""


def site_of(frame: FrameType | None, skip: Iterable[str] = ()) -> Site:
    """The innermost frame from `frame` outwards that belongs to the user. `skip`: further packages, by their
    dotted names, whose frames are library frames here."""
    skip = tuple(skip)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        code = frame.f_code
        if not (_is_library(code.co_filename, module, code.co_name) or _within(module, skip)):
            return Site(_shown(code.co_filename, module), frame.f_lineno or 0, code.co_name, file=code.co_filename)
        frame = frame.f_back
    return UNKNOWN


def site_of_traceback(traceback: TracebackType | None, skip: Iterable[str] = ()) -> Site:
    """The innermost line of a traceback that belongs to the user."""
    found = UNKNOWN
    while traceback is not None:
        here = site_of(traceback.tb_frame, skip)
        if here.line and here.file == traceback.tb_frame.f_code.co_filename:
            found = Site(here.path, traceback.tb_lineno, here.function, file=here.file)
        traceback = traceback.tb_next
    return found


@functools.lru_cache(maxsize=4096)
def _is_library(filename: str, module: str, function: str) -> bool:
    if module.partition(".")[0] in LIBRARIES or _within(module, (f"{_OWN}.syncs",)):
        return True
    if _within(module, (f"{_OWN}.lab",)):
        return module not in _LAB_WORKLOAD
    if filename.startswith("<"):
        # `<string>` is `python -c`, and also what dataclasses and namedtuples generate.
        return filename.startswith(("<frozen", "<__array_function__")) or (
            filename == "<string>" and function != "<module>"
        )
    return filename.startswith(_STDLIB) and not filename.startswith(_INSTALLED)


def _within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@functools.lru_cache(maxsize=4096)
def _shown(filename: str, module: str) -> str:
    """The file from its top package down: the same on every machine. A notebook's cell is `<cell>`."""
    if filename.startswith("<ipython-input") or any(p.startswith("ipykernel_") for p in PurePath(filename).parts):
        return "<cell>"
    if filename.startswith("<"):
        return filename
    parts = PurePath(filename).parts
    depth = 1 if module == "__main__" else module.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-depth:])


def caller(depth: int = 1) -> FrameType:
    """The frame `depth` calls above the caller of this function."""
    return sys._getframe(depth + 1)
