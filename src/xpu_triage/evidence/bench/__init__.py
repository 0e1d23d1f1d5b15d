"""Results of load generators, each tool's own file, read to one record a run."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...baseline.records import BenchRecord
from ...errors import UnusableInput
from .. import lines
from ..chunks import pieces

SNIFFED = 1 << 18
"""Inflated bytes of a file that are looked at to tell which tool wrote it."""


@dataclass(frozen=True)
class Reader:
    tool: str
    module: str
    """In this package: has `matches(head: str) -> bool` and `read(path)`. Imported where it is asked."""

    def matches(self, head: str) -> bool:
        """Whether this tool writes files that begin like this (the first 256 KiB)."""
        return bool(self._module.matches(head))

    def read(self, path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
        """A record a run. Raises UnusableInput where no run can be used."""
        read: tuple[BenchRecord, ...] = self._module.read(path)
        return read

    @property
    def _module(self) -> Any:
        return importlib.import_module(f".{self.module}", __package__)


READERS: tuple[Reader, ...] = (
    Reader("xpu-triage baseline", "kept"),
    Reader("guidellm", "guidellm"),
    Reader("llmeter", "llmeter"),
    Reader("aiperf", "aiperf"),
    Reader("evalscope", "evalscope"),
    Reader("sglang bench_serving", "sglang_bench"),
    Reader("vllm bench serve", "vllm_bench"),
)
"""In the order in which they are asked."""


def matches(head: str) -> bool:
    """Whether one of the readers reads a file that begins so."""
    return any(reader.matches(head) for reader in READERS)


def read(path: str | PathLike[str]) -> tuple[BenchRecord, ...]:
    """The runs of one result file, of whichever tool. Raises UnusableInput where no reader knows it or no run can be
    used."""
    path = Path(path)
    head = b""
    try:
        for piece in pieces(path, []):
            head += piece
            if len(head) >= SNIFFED:
                break
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    text = lines.head_text(head[:SNIFFED])
    for reader in READERS:
        if reader.matches(text):
            return reader.read(path)
    tools = ", ".join(reader.tool for reader in READERS)
    raise UnusableInput("no benchmark result of a known tool" if head.strip() else "empty", where=path,
                        todo=f"Give a result file of {tools}")
