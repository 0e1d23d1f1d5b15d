"""The reader against recorded exports of others, each figure computed from the tables by SQL and plain Python."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xpu_triage.evidence import nsys
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind, Trace

DEVICE_TABLES = ("KERNEL", "MEMCPY", "MEMSET")


class Recorded:
    """One export, and questions to it that the reader has no part in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace: Trace = nsys.read(path)
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            self.tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro&immutable=1", uri=True)) as connection:
            return connection.execute(query).fetchall()

    def on_device(self, columns: str) -> list[tuple[Any, ...]]:
        return [row for kind in DEVICE_TABLES if f"CUPTI_ACTIVITY_KIND_{kind}" in self.tables
                for row in self.ask(f"SELECT {columns} FROM CUPTI_ACTIVITY_KIND_{kind}")]

    def busy(self) -> dict[int, int]:
        """ns of the union of a device's intervals, one at a time."""
        total: Counter[int] = Counter()
        reached: dict[int, int] = {}
        for start, end, device in sorted(self.on_device('start, "end", deviceId')):
            total[device] += max(0, end - max(start, reached.get(device, 0)))
            reached[device] = max(reached.get(device, 0), end)
        return total


@pytest.fixture(scope="module")
def exports(shared: Path) -> list[Recorded]:
    found = [Recorded(path) for path in sorted((shared / "traces" / "nsys").glob("*.sqlite"))]
    assert len(found) >= 3
    return found


def test_busy_time_and_rows_are_those_of_the_tables(exports: list[Recorded]) -> None:
    for recorded in exports:
        trace = recorded.trace
        assert {int(use.device.split()[0]): int(use.busy.sum()) for use in walk(trace).devices} == recorded.busy()
        assert int(trace.on_device.sum()) == len(recorded.on_device("start"))
        assert trace.counts.unplaced == trace.counts.unreadable == trace.counts.unmatched == 0
        assert trace.counts.kept + trace.counts.repeated == trace.counts.events


def test_a_launch_is_the_call_of_that_id_in_the_same_process(exports: list[Recorded]) -> None:
    for recorded in exports:
        trace = recorded.trace
        calls = set(recorded.ask("SELECT globalTid >> 24, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
        work = recorded.on_device("globalPid >> 24, correlationId")
        linked = np.flatnonzero(trace.launch >= 0)
        assert len(linked) == sum(key in calls for key in work)
        assert len(linked) > 0.99 * len(work)
        rows = trace.launch[linked]
        assert (trace.kind[rows] == Kind.RUNTIME).all()
        assert (trace.correlation[rows] == trace.correlation[linked]).all()


def test_collectives_are_those_that_nccl_names(exports: list[Recorded]) -> None:
    counts = []
    for recorded in exports:
        named = recorded.ask("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
                             "ON s.id = k.shortName WHERE s.value LIKE 'nccl%'")[0][0]
        counts.append(named)
        assert int((recorded.trace.kind == Kind.COMM).sum()) == named
    assert any(counts)


def test_two_gpus_are_as_busy_as_their_origin_says(exports: list[Recorded]) -> None:
    """About 89 % before a change, 80 to 85 % after it."""
    pairs = [recorded.trace for recorded in exports if len(recorded.trace.devices) == 2]
    assert pairs
    for trace in pairs:
        assert all(0.80 < use.busy.sum() / trace.span < 0.92 for use in walk(trace).devices)
        operators = {trace.name_of(i) for i in range(len(trace)) if trace.kind[i] == Kind.HOST_OP}
        assert operators >= {"aten::copy_", "aten::addmm", "c10d::alltoall_base_"}
        assert not any("op_id" in operator for operator in operators)


def test_a_target_that_tells_its_bandwidth_is_read_with_it(exports: list[Recorded]) -> None:
    for recorded in exports:
        told = recorded.ask("SELECT id, name, memoryBandwidth FROM TARGET_INFO_GPU") if (
            "TARGET_INFO_GPU" in recorded.tables) else []
        assert recorded.trace.meta.get("deviceProperties", []) == [
            {"id": gpu, "name": name, "memoryBandwidth": bandwidth} for gpu, name, bandwidth in told]
