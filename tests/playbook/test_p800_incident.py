"""The incident's evidence holds what its pages say, computed here from the raw files alone."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

Event = dict[str, Any]
FOLDER = "playbook/incidents/p800-exponential-fallback"
DRAWS = 256 * 152_000


@pytest.fixture(scope="module")
def pages(root: Path) -> tuple[str, str]:
    """(incident page, readme of the evidence), each on one line."""
    texts = (root / f"{FOLDER}.md").read_text(), (root / FOLDER / "README.md").read_text()
    return " ".join(texts[0].split()), " ".join(texts[1].split())


@pytest.fixture(scope="module")
def traces(root: Path) -> dict[str, dict[str, Any]]:
    return {
        name: json.loads(gzip.decompress((root / FOLDER / f"{name}.json.gz").read_bytes()))
        for name in ("faulty", "fixed")
    }


def spans(trace: dict[str, Any], *categories: str) -> list[Event]:
    """Complete events of these categories, by start."""
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]
    return sorted(found, key=lambda e: e["ts"])


def end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def walls_ms(trace: dict[str, Any]) -> list[float]:
    """Each step to the next one's start; the last to the later of its own end and its device work's."""
    steps = spans(trace, "user_annotation")
    last = max(end(steps[-1]), max(map(end, spans(trace, "kernel", "gpu_memcpy"))))
    starts = [s["ts"] for s in steps]
    return [(b - a) / 1e3 for a, b in zip(starts, [*starts[1:], last], strict=True)]


def busy_ms(trace: dict[str, Any]) -> float:
    """The one stream runs one piece after another, so busy is a sum; that no two overlap is checked."""
    rows = spans(trace, "kernel", "gpu_memcpy")
    assert all(b["ts"] >= end(a) - 0.002 for a, b in pairwise(rows))
    return sum(float(r["dur"]) for r in rows) / 1e3


def draws(trace: dict[str, Any]) -> list[Event]:
    return [e for e in spans(trace, "cpu_op") if e["name"] == "aten::exponential_"]


def test_every_step_of_the_faulty_run_draws_once_on_the_host_between_two_copies(
    traces: dict[str, dict[str, Any]],
) -> None:
    faulty = traces["faulty"]
    calls, copies = spans(faulty, "privateuse1_runtime"), spans(faulty, "gpu_memcpy")
    by_correlation = {c["args"]["correlation"]: c for c in copies}
    assert len(draws(faulty)) == len(spans(faulty, "user_annotation")) == 10
    for draw in draws(faulty):
        assert draw["args"]["Input Dims"][0] == [256, 152_000]
        inside = [c for c in calls if draw["ts"] <= c["ts"] and end(c) <= end(draw)]
        assert [c["name"] for c in inside] == ["xpulabMemcpyAsync", "xpulabStreamSynchronize"] * 2
        down, up = (by_correlation[c["args"]["correlation"]] for c in inside[::2])
        assert "DtoH" in down["name"]
        assert "HtoD" in up["name"]
        assert down["args"]["bytes"] == up["args"]["bytes"] == 4 * DRAWS


def test_the_fixed_run_copies_nothing_but_the_tokens_and_draws_on_the_device(
    traces: dict[str, dict[str, Any]],
) -> None:
    fixed = traces["fixed"]
    assert not draws(fixed)
    assert {c["args"]["bytes"] for c in spans(fixed, "gpu_memcpy")} == {256 * 8}
    kernels = [k["name"] for k in spans(fixed, "kernel")]
    assert [kernels.count(f"xpulab::{op}_") for op in ("uniform", "log", "neg")] == [20, 20, 20]


@pytest.mark.parametrize("name", ["faulty", "fixed"])
def test_every_launch_is_inside_an_operator_and_has_its_device_row(
    traces: dict[str, dict[str, Any]], name: str
) -> None:
    trace = traces[name]
    operators = {e["args"]["External id"]: e for e in spans(trace, "cpu_op")}
    device = {r["args"]["correlation"]: r for r in spans(trace, "kernel", "gpu_memcpy")}
    launches = [c for c in spans(trace, "privateuse1_runtime") if "Synchronize" not in c["name"]]
    assert {c["args"]["correlation"] for c in launches} == set(device)
    for call in launches:
        operator = operators[call["args"]["External id"]]
        assert operator["ts"] <= call["ts"]
        assert end(call) <= end(operator) + 0.001
        assert device[call["args"]["correlation"]]["ts"] >= call["ts"]


def test_the_readme_states_the_figures_of_the_files(
    traces: dict[str, dict[str, Any]], pages: tuple[str, str]
) -> None:
    _, readme = pages
    faulty, fixed = traces["faulty"], traces["fixed"]
    median = {name: statistics.median(walls_ms(trace)) for name, trace in traces.items()}
    window = sum(walls_ms(faulty))
    in_operator = sum(float(d["dur"]) for d in draws(faulty)) / 1e3
    waits = [c for c in spans(faulty, "privateuse1_runtime") if "Synchronize" in c["name"]]
    silent = sum(  # from the end of the wait for the copy down to the call of the copy up
        next(c["ts"] for c in spans(faulty, "privateuse1_runtime") if c["ts"] > end(first)) - end(first)
        for d in draws(faulty)
        for first in [next(c for c in waits if c["ts"] > d["ts"])]
    ) / 1e3
    for figure in (
        f"| {median['faulty']:.1f} ms | {median['fixed']:.1f} ms |",
        f"{100 * busy_ms(faulty) / window:.1f} % = {busy_ms(faulty) / 10:.1f} ms a step",
        f"{100 * busy_ms(fixed) / sum(walls_ms(fixed)):.1f} % = {busy_ms(fixed) / 20:.1f} ms a step",
        f"{100 * in_operator / window:.1f} % of the window, {in_operator / 10:.1f} ms a call",
        f"**{median['faulty'] / median['fixed']:.1f} times**",
        f"| {len(spans(faulty, 'kernel')) // 10} | {len(spans(fixed, 'kernel')) // 20} |",
    ):
        assert figure in readme
    stated = re.search(r"([\d.]+) % of the window, ([\d.]+) ms a step \| – \|", readme)
    assert stated is not None
    # the drawing itself, to within the allocation and the copies' set-up around it
    assert float(stated[1]) == pytest.approx(100 * silent / window, abs=0.2)
    assert float(stated[2]) == pytest.approx(silent / 10, rel=0.005)


def test_the_page_computes_its_ratios_from_the_sheet(root: Path, pages: tuple[str, str]) -> None:
    page, _ = pages
    typed = yaml.safe_load((root / FOLDER / "sheet.yaml").read_text())["signals"]
    step_s, running = typed["step.wall_ms"] / 1e3, typed["serving.running"]
    rate, reference = typed["serving.decode_tokens_per_s"], typed["serving.reference_tokens_per_s"]
    assert typed["device.utilization_fraction"] == 0
    healthy_ms = 1e3 * running / reference
    for figure in (
        f"256 ÷ 4.89 s = {running / step_s:.1f} tokens/s",
        f"{rate} × 4.89 = {rate * step_s:.0f} running requests",
        f"a step of {running / rate:.0f} s",
        f"256 ÷ 3,201.71 = {healthy_ms:.0f} ms",
        f"busy {healthy_ms:.0f} ÷ 4,890 = {healthy_ms / 10 / step_s:.1f} %",
        f"3,201.71 ÷ 32 = {reference / rate:.0f} times",
        f"4,890 ÷ 80 = {1e3 * step_s / healthy_ms:.0f} times",
    ):
        assert figure in page


@pytest.mark.parametrize("name", ["faulty", "fixed"])
def test_a_shipped_trace_is_small_and_tells_nothing_of_its_machine(root: Path, name: str) -> None:
    raw = (root / FOLDER / f"{name}.json.gz").read_bytes()
    assert len(raw) < 400_000
    assert raw[3] == 0, "the gzip header carries a file name"
    assert raw[4:8] == bytes(4), "the gzip header carries a time"
    text = gzip.decompress(raw).decode()
    assert not re.search(r"/(home|root|tmp|usr|work|Users)\b|host_?name|site-packages|\.local", text)
    frames = re.findall(r'"cat":"python_function","name":"([^"]+)"', text)
    assert frames
    assert all(re.fullmatch(r"workload/\w+\.py\(\d+\): \w+|nn\.Module: \w+", f) for f in frames)
