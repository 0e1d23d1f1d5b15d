"""The benchmark's input is what it claims to be, and its fit finds a known line."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def scripts(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The benchmark scripts, imported as they import each other: from their own folder."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    yield {"bench": import_module("bench_diagnose"), "synthetic": import_module("synthetic_trace")}
    for name in ("bench_diagnose", "synthetic_trace", "kineto_layout", "measure"):
        sys.modules.pop(name, None)


def events(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


@pytest.mark.parametrize("count", [1, 7, 8, 1_234, 20_001])
def test_the_file_holds_exactly_as_many_events_as_asked(
    scripts: dict[str, ModuleType], tmp_path: Path, count: int
) -> None:
    scripts["synthetic"].write(tmp_path / "t.json", count)
    assert len(events(tmp_path / "t.json")) == count


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    files = [tmp_path / f"{i}.json.gz" for i in range(3)]
    for file, seed in zip(files, (5, 5, 6), strict=True):
        scripts["synthetic"].write(file, 3_000, seed)
    a, b, c = (gzip.decompress(f.read_bytes()) for f in files)
    assert a == b != c


def test_the_mix_is_that_of_a_served_decoder(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    size = scripts["synthetic"].write(tmp_path / "t.json.gz", 20_000)
    found = events(tmp_path / "t.json.gz")
    share = {c: sum(e["cat"] == c for e in found) / len(found) for c in {e["cat"] for e in found}}
    assert 280 < size / len(found) < 340
    assert share["cpu_op"] > 0.25
    assert share["python_function"] > 0.2
    assert share["kernel"] > 0.1
    assert share["cuda_runtime"] >= share["kernel"]
    assert share["ac2g"] == pytest.approx(2 * share["kernel"], rel=0.01)


def test_calls_lie_inside_their_operator_and_the_device_runs_one_thing_at_a_time(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    scripts["synthetic"].write(tmp_path / "t.json", 10_000)
    found = events(tmp_path / "t.json")
    first = found[0]["ts"]

    def interval(e: dict[str, Any]) -> tuple[int, int]:
        start = round((e["ts"] - first) * 1000)
        return start, start + round(e["dur"] * 1000)

    operators = {e["args"]["External id"]: interval(e) for e in found if e["cat"] == "cpu_op"}
    for e in found:
        if e["cat"] == "cuda_runtime":
            outer, inner = operators[e["args"]["External id"]], interval(e)
            assert outer[0] - 1000 <= inner[0] <= inner[1] <= outer[1] + 1000  # a µs: floats of this size
    device = sorted(interval(e) for e in found if e["cat"] in ("kernel", "gpu_memcpy"))
    assert all(b[0] >= a[1] - 1000 for a, b in pairwise(device))


def test_the_fit_finds_a_known_line_and_its_exponents(scripts: dict[str, ModuleType]) -> None:
    line = scripts["bench"].fit([100_000, 1_000_000, 4_000_000], [0.7, 2.5, 8.5])  # 0.5 + 2 per million
    assert (line.intercept, line.slope) == pytest.approx((0.5, 2.0))
    assert line.worst == pytest.approx(0, abs=1e-12)
    square = scripts["bench"].fit([1_000, 10_000, 100_000], [1e-4, 1e-2, 1.0])
    assert (square.exponent, square.exponent_at_the_end) == pytest.approx((2.0, 2.0))
