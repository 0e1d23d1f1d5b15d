"""What an Nsight Systems export says about itself: versions, GPUs, processes, and what its profiler warned of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...text import clean, shorten
from ...trace import Ints
from ..sqlite_file import MISSING, Database
from .names import Strings
from .tables import THREAD_BITS

_PLAUSIBLE = (1e10, 1e14)
"""bytes/s between which a figure can be the bandwidth of a device's memory: outside it is in another unit."""

_NEWEST_MAJOR = 3
"""Largest major number of a schema that was seen."""

_DIAGNOSTICS = 4
_DIAGNOSTIC_WIDTH = 240
_SERIOUS = {2: "Warning", 3: "Error"}
_EXPORT = {"EXPORT_PRODUCT_VERSION": "exporter", "EXPORT_SCHEMA_VERSION": "schema"}


@dataclass
class About:
    """The capture's own words.

    gpus         properties of each GPU, by its number in the file: `id`, `name`, `memoryBandwidth` (bytes/s)
    physical     number of the GPU that a process calls by a number of its own, by (process id, that number)
    processes    names by globalPid
    threads      names by globalTid
    """

    exporter: str = ""
    schema: str = ""
    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    physical: dict[tuple[int, int], int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    traced: frozenset[str] = frozenset()
    """Kinds of events that the profiler was asked for; empty where the file does not say."""
    notes: list[str] = field(default_factory=list)

    def meta(self, used: Collection[int]) -> dict[str, Any]:
        """As a trace has it: `deviceProperties` as in a PyTorch trace, of the GPUs `used`, of all where none was."""
        gpus = [properties for gpu, properties in self.gpus.items() if gpu in used or not used]
        known = {"exporter": self.exporter, "schema": self.schema, "deviceProperties": gpus}
        return {key: value for key, value in known.items() if value}

    @cached_property
    def mapped(self) -> frozenset[int]:
        """Processes whose device numbers the file translates."""
        return frozenset(pid for pid, _ in self.physical)

    def gpu(self, process: int, device: int) -> int:
        """The GPU behind a process's device number. Where the file does not say, the number itself."""
        keys = ((pid_of(process), device), (0, device), (MISSING, device))      # 0, NULL: of every process
        return next((self.physical[key] for key in keys if key in self.physical), device)

    def gpu_label(self, gpu: int) -> str:
        """`0 NVIDIA H100`, or `0` where the file does not name the device."""
        return clean(f"{gpu} {self.gpus.get(gpu, {}).get('name', '')}".strip())


def read_about(database: Database) -> About:
    """Environment variables, command lines and paths, which the file holds too, are left where they are."""
    about = About()
    for name, value in database.texts("META_DATA_EXPORT", "name", "value"):
        if name in _EXPORT:
            setattr(about, _EXPORT[name], clean(shorten(value, 64)))
    major = about.schema.partition(".")[0]
    if major.isdecimal() and len(major) < 5 and int(major) > _NEWEST_MAJOR:
        about.notes.append(f"schema {about.schema} of the export is newer than those known (up to {_NEWEST_MAJOR}.x): "
                           "tables and columns are read by their names")
    about.traced = frozenset(value for name, value in database.texts("META_DATA_CAPTURE", "name", "value")
                             if name == "CAPTURE_EVENT_TYPE")
    _read_gpus(database, about)
    for (process,), names in database.batches("PROCESSES", ("globalPid",), "name"):
        about.processes.update(zip(process.tolist(), names, strict=True))
    threads, ids = database.integers("ThreadNames", "globalTid", "nameId")
    strings = Strings(database, ids)
    known = {i: strings(i) for i in set(ids.tolist()) if strings.has(i)}
    about.threads = {thread: known[i] for thread, i in zip(threads.tolist(), ids.tolist(), strict=True) if i in known}
    about.notes += _diagnostics(database)
    return about


def pid_of(process: int) -> int:
    """The operating system's number of a process, of its globalPid."""
    return process >> THREAD_BITS & ((1 << THREAD_BITS) - 1)


def _read_gpus(database: Database, about: About) -> None:
    """TARGET_INFO_GPU; before 2021.3 TARGET_INFO_CUDA_GPU, which numbers the devices as CUDA does."""
    for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"):
        number = database.first_column(table, "id", "deviceId")
        if not number:
            continue
        for (ids, bandwidths), names in database.batches(table, (number, "memoryBandwidth"), "name"):
            for gpu, bandwidth, name in zip(ids.tolist(), bandwidths.tolist(), names, strict=True):
                if gpu == MISSING:
                    continue
                properties: dict[str, Any] = {"id": gpu, "name": clean(shorten(name, 128))}
                if _PLAUSIBLE[0] <= bandwidth <= _PLAUSIBLE[1]:
                    properties["memoryBandwidth"] = bandwidth
                about.gpus.setdefault(gpu, properties)
        break
    columns = database.integers("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    for pid, number_, gpu in zip(*map(_listed, columns), strict=True):
        if MISSING not in (number_, gpu):
            about.physical.setdefault((pid, number_), gpu)


def _listed(column: Ints) -> list[int]:
    return column.tolist()


def _diagnostics(database: Database) -> list[str]:
    """Warnings and errors of the profiler itself: that it lost events, or does not know the driver."""
    named = database.enumeration("ENUM_DIAGNOSTIC_SEVERITY_LEVEL")
    serious = {n for n, name in named.items() if name in _SERIOUS.values()} or set(_SERIOUS)
    said: Counter[str] = Counter()
    for (severity,), texts in database.batches("DIAGNOSTIC_EVENT", ("severity",), "text"):
        said.update(" ".join(text.split()) for level, text in zip(severity.tolist(), texts, strict=True)
                    if level in serious and text)
    notes = [f"the profiler itself says: {shorten(clean(text), _DIAGNOSTIC_WIDTH)}" + (f" ({n} times)" if n > 1 else "")
             for text, n in said.most_common(_DIAGNOSTICS)]
    if len(said) > _DIAGNOSTICS:
        notes.append(f"and {len(said) - _DIAGNOSTICS} more of its warnings")
    return notes
