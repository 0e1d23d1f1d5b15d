"""The readers of telemetry, in the order in which they are asked. To add one, add a line to READERS."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..baseline.records import BenchRecord
from ..samples import EngineLog, Samples, Scrape, Stacks, Telemetry
from .watch_record import WatchRecord

Read = Samples | Stacks | EngineLog | tuple[Scrape, ...] | tuple[BenchRecord, ...] | WatchRecord
"""What a reader makes of one file."""


@dataclass(frozen=True)
class Reader:
    kind: str
    """As shown to people: `smi`, `metrics`, `stacks`, `processes`, `log`, `bench`; `watch`, which is no evidence."""
    module: str
    """Below `xpu_triage.evidence`: has `matches(head: str) -> bool` and `read(path)`. Imported where it is asked."""

    def matches(self, head: str) -> bool:
        """Whether this reader reads a file that begins like this (the first 256 KiB)."""
        return bool(self._module.matches(head))

    def read(self, path: Path) -> Read:
        """What the file says. Raises UnusableInput where it says nothing."""
        read: Read = self._module.read(path)
        return read

    @property
    def _module(self) -> Any:
        return importlib.import_module(f".{self.module}", __package__)


READERS: tuple[Reader, ...] = (
    Reader("watch", "watch_record"),
    Reader("smi", "smi.nvidia_columns"),
    Reader("smi", "smi.nvidia_query"),
    Reader("smi", "smi.nvidia_table"),
    Reader("smi", "smi.ascend_table"),
    Reader("smi", "smi.ascend_usages"),
    Reader("smi", "smi.kunlun_table"),
    Reader("smi", "smi.kunlun_columns"),
    Reader("smi", "smi.intel"),
    Reader("smi", "smi.amd_json"),
    Reader("smi", "smi.rocm_table"),
    Reader("smi", "smi.gaudi"),
    Reader("smi", "smi.cambricon"),
    Reader("smi", "smi.intel_table"),
    Reader("smi", "smi.amd_table"),
    Reader("smi", "smi.iluvatar"),
    Reader("smi", "smi.mthreads"),
    Reader("smi", "smi.metax"),
    Reader("smi", "smi.rocm_list"),
    Reader("smi", "smi.intel_stats"),
    Reader("processes", "process_csv"),
    Reader("stacks", "pyspy"),
    Reader("metrics", "prometheus"),
    Reader("bench", "bench"),
    Reader("log", "engine_log"),
)


def reader(kind: str, head: str) -> Reader | None:
    """The first reader of this kind that reads a file which begins so."""
    return next((one for one in READERS if one.kind == kind and one.matches(head)), None)


def gathered(pieces: list[Read]) -> Telemetry:
    """All that was read, by kind, in order."""
    several = [part for piece in pieces if isinstance(piece, tuple) for part in piece]
    return Telemetry(
        samples=tuple(piece for piece in pieces if isinstance(piece, Samples)),
        scrapes=tuple(part for part in several if isinstance(part, Scrape)),
        stacks=tuple(piece for piece in pieces if isinstance(piece, Stacks)),
        logs=tuple(piece for piece in pieces if isinstance(piece, EngineLog)),
        benches=tuple(part for part in several if isinstance(part, BenchRecord)),
    )
