"""One run, written as a PyTorch trace and as an Nsight Systems export, is one walk with the same figures."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from kineto_files import written
from nsys_exports import Export
from xpu_triage.evidence import kineto, nsys
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind, Trace

INCIDENT = Path("playbook") / "incidents" / "p800-exponential-fallback"

_WAYS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")


def without_frames(source: Path, target: Path) -> Path:
    """The same PyTorch trace without Python stacks, which Nsight Systems does not record as ranges of a thread."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") != "python_function"]
    return written(target, json.dumps(document).encode())


def as_export(trace: Trace, path: Path) -> Path:
    """What Nsight Systems would have exported of the same run, with PyTorch's NVTX ranges on."""
    export = Export(path)
    for i in range(len(trace)):
        name, start, end = trace.name_of(i), int(trace.start[i]) + 10**12, int(trace.start[i] + trace.dur[i]) + 10**12
        correlation = int(trace.correlation[i])
        match Kind(int(trace.kind[i])):
            case Kind.HOST_OP:
                export.range(f"{name}, seq = {i}, op_id = {i + 7}", start, end)
            case Kind.ANNOTATION:
                export.range(name, start, end, registered=True)
            case Kind.RUNTIME:
                export.call(f"{name}_v11070", start, end, correlation)
            case Kind.COPY:
                way, source, target = _COPY.match(name).groups()  # type: ignore[union-attr]
                export.copy(start, end, correlation, _WAYS[way], _MEMORY[source], _MEMORY[target])
            case Kind.KERNEL:
                export.kernel(start, end, correlation, name)
            case other:
                raise AssertionError(other)
    export.gpu(0, "xpulab (P800-like)", None)
    return export.done()


@pytest.fixture(params=["faulty", "fixed"])
def both(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> tuple[Trace, Trace]:
    as_kineto = kineto.read(without_frames(root / INCIDENT / f"{request.param}.json.gz", tmp_path / "trace.json"))
    return as_kineto, nsys.read(as_export(as_kineto, tmp_path / "run.sqlite"))


def test_the_rows_are_the_same(both: tuple[Trace, Trace]) -> None:
    def rows(trace: Trace) -> list[tuple[object, ...]]:
        return sorted((int(trace.start[i]), int(trace.dur[i]), trace.name_of(i), int(trace.kind[i]),
                       trace.name_of(int(trace.launch[i])) if trace.launch[i] >= 0 else int(trace.launch[i]),
                       bool(trace.blocking[i])) for i in range(len(trace)))

    one, other = both
    assert rows(one) == rows(other)
    assert one.devices == other.devices


def test_the_signals_findings_and_unknowns_are_the_same(both: tuple[Trace, Trace]) -> None:
    one, other = walk(both[0]), walk(both[1])
    assert {s.name: s.value for s in one.signals} == {s.name: s.value for s in other.signals}
    assert one.unknown == other.unknown
    assert one.notes == other.notes
    assert [(f.about, f.name, f.share) for f in one.findings] == [(f.about, f.name, f.share) for f in other.findings]
    assert len(one.signals) > 30


def test_the_figures_without_stacks_are_those_of_the_incident(both: tuple[Trace, Trace]) -> None:
    """Guards the comparison: the run says something, and not the same for both files."""
    found = {s.name: s.value for s in walk(both[1]).signals}
    faulty = float(found["step.wall_ms"]) > 1000
    assert found["fallback.op"] == ("aten::exponential_" if faulty else "none")
