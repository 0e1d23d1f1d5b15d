"""What a run says about itself: its level, its rank, and what it therefore cannot show."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...text import clean, counted
from ...trace import Kind
from ..unshown import FALLBACKS, LAUNCHES, SYNCS, WAITS
from . import cores, stage
from .run import Run
from .words import GRAPH, Place, is_runtime_level

MAX_INFO = 1 << 20
"""Bytes of `profiler_info_*.json` that are read."""

RUN = ("_ascend_pt", "_ascend_ms")
"""How the folder of one run ends: of torch_npu's profiler, of MindSpore's."""

ABOVE = 2
"""Folders above a file in which `profiler_info_*.json` is looked for."""

_LEVEL = re.compile(r"level_?([0-2]|none)$", re.I)
_RANK = re.compile(r"_(\d{1,9})\.(json|db)$")

_NO_CORES = ("{level} does not record on which kind of core a kernel ran, so that work on AI_CPU would not be seen. "
             "Record with profiler_level=Level1")
_NO_CALLS = "{level} does not record the calls of CANN, synchronizations among them. Record with profiler_level=Level1"
_WAITS = ("{level} does not record the calls of CANN: work of the host cannot be told from waiting for the device, nor "
          "idle after a wait from idle while it launches. Record with profiler_level=Level1")
_SILENT = ("{count:,} copies that the host waits for do not say where they go: an operator between two of them cannot "
           "be told from other work of the host. Record with profiler_level=Level2")
_UNMEASURED = ("{count:,} copies do not say where they go, or have no length: what crosses to the host and back is not "
               "known")
_NO_COPIES = "a table of device operations has no copies"
_BLOCKING = ("{count:,} blocking copies say neither where they go nor how much they carry, at any level: an operator "
             "between two of them cannot be told from other work of the host")


@dataclass(frozen=True)
class Copies:
    """What is not known of copies.

    blocking   calls that block, of unknown direction, without a row of the device
    placed     calls that block and bring data down, whose row of the device is made up: without length
    silent     rows of the device of unknown direction
    waited     of these, those that the host waits for before it launches anything else
    """

    blocking: int = 0
    placed: int = 0
    silent: int = 0
    waited: int = 0


@dataclass(frozen=True)
class About:
    kind: str
    """`trace_view.json`, `database` or `kernel_details.csv`."""
    level: str = ""
    """`Level0`, `Level1`, `Level2`; empty until it is known."""
    rank: int | None = None
    notes: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    """`cannot`: signals that this run cannot show, each with the reason and the level that would show it."""

    @property
    def format(self) -> str:
        return " ".join(filter(None, ("ascend", self.kind, self.level)))

    def finished(self, run: Run, copies: Copies) -> About:
        """With what follows from the rows."""
        level = self.level or _level_of(run)
        on_cpu = _about_cores(run)
        cannot = _cannot(run, copies, level or "a profile without levels", bool(on_cpu))
        notes = [why for name, why in cannot.items() if name != "sync.copy_ms"]
        if self.kind == cores.FILE and not (run.device.kind == Kind.COPY).any():
            cannot["device.copy_fraction"] = _NO_COPIES
        meta: dict[str, Any] = dict(self.meta)
        if cannot:
            meta["cannot"] = cannot
        if level:
            meta["profilerLevel"] = level
        if self.rank is not None:
            meta["distributedInfo"] = {"backend": "hccl", "rank": self.rank}
        said = (*self.notes, *dict.fromkeys(notes), *_about_graphs(run), *on_cpu)
        return replace(self, level=level, meta=meta, notes=said)


def _cannot(run: Run, copies: Copies, level: str, on_cpu: bool) -> dict[str, str]:
    """Signals that the rows cannot give, each with the reason. `on_cpu`: work on AI_CPU was seen."""
    cannot: dict[str, str] = {}
    if len(run.host) and not (run.host.place == Place.CALL).any():
        cannot |= dict.fromkeys(SYNCS, _NO_CALLS.format(level=level))
        cannot |= dict.fromkeys((*WAITS, *LAUNCHES), _WAITS.format(level=level))
    if copies.silent or copies.placed:
        cannot["sync.copy_ms"] = _UNMEASURED.format(count=copies.silent + copies.placed)
    if not run.cores_known and not on_cpu and (run.device.kind == Kind.KERNEL).any():
        cannot |= dict.fromkeys((*FALLBACKS, "kernel.top_core"), _NO_CORES.format(level=level))
    elif copies.blocking:
        cannot |= dict.fromkeys(FALLBACKS, _BLOCKING.format(count=copies.blocking))
    elif copies.waited:
        cannot |= dict.fromkeys(FALLBACKS, _SILENT.format(count=copies.waited))
    return cannot


def _level_of(run: Run) -> str:
    """The level that the rows speak of: without calls of CANN 0, with those of its runtime 2."""
    if not len(run.host):
        return ""
    calls = run.host.name[run.host.place == Place.CALL]
    if not len(calls):
        return "Level0"
    names = list(run.names)
    lower = any(is_runtime_level(names[i]) for i in np.unique(calls).tolist())
    return "Level2" if lower or run.repeated_calls else "Level1"


def _about_graphs(run: Run) -> list[str]:
    names = list(run.names)
    graphs = [i for i in np.unique(run.host.name).tolist() if GRAPH.search(names[i])]
    if not graphs or run.device.model.any():
        return []
    return ["models or captured graphs were executed, and no task names one: their device work may be missing"]


def _about_cores(run: Run) -> list[str]:
    names = list(run.names)
    kernels = np.flatnonzero(run.device.kind == Kind.KERNEL)
    on_cpu = np.array(["(AI_CPU)" in name for name in names], bool)[run.device.name[kernels]] if names else kernels > 0
    rows = kernels[on_cpu]
    if not len(rows):
        return []
    heaviest = np.bincount(run.device.name[rows], run.device.dur[rows]).argmax()
    count = counted(len(rows), "task")
    return [f"{count} ran on the device's own CPU (AI_CPU), {int(run.device.dur[rows].sum()) / 1e6:,.3f} ms in all, "
            f"most in {clean(names[heaviest])}: the NPU counts as busy meanwhile"]


def of(path: Path, kind: str) -> About:
    """What the files around `path` say: `profiler_info_<rank>.json` beside it or above it, and the profiler's own
    length of the steps."""
    found = _info_of(path, kind)
    steps = stage.beside(path)
    return replace(found, meta={**found.meta, "vendorSteps": steps}) if steps else found


def _info_of(path: Path, kind: str) -> About:
    rank = int(found[1]) if (found := _RANK.search(path.name)) else None
    folder = path.absolute().parent
    for _ in range(ABOVE + 1):
        for info in sorted(folder.glob("profiler_info*.json"))[:1]:
            level, told = _read(info)
            return About(kind, level, told if told is not None else rank)
        folder = folder.parent
        if not (folder.name.endswith(RUN) or (folder / "ASCEND_PROFILER_OUTPUT").is_dir()):
            break
    return About(kind, rank=rank)


def _read(info: Path) -> tuple[str, int | None]:
    try:
        with info.open("rb") as file:
            said = json.loads(file.read(MAX_INFO).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return "", None
    said = said if isinstance(said, dict) else {}
    rank = said.get("rank_id")
    config = said.get("config")
    inner = config.get("experimental_config") if isinstance(config, dict) else None
    level = str(inner.get("_profiler_level", "")) if isinstance(inner, dict) else ""
    found = _LEVEL.search(level)
    word = f"Level{found[1]}" if found and found[1].isdigit() else ""
    named = _RANK.search(info.name)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        rank = int(named[1]) if named else None
    return word, rank
