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
STEPS = {"faulty": 10, "fixed": 20}


@pytest.fixture(scope="module")
def pages(root: Path) -> tuple[str, str]:
    """(incident page, readme of the evidence), each on one line."""
    texts = (root / f"{FOLDER}.md").read_text(), (root / FOLDER / "README.md").read_text()
    return " ".join(texts[0].split()), " ".join(texts[1].split())


@pytest.fixture(scope="module")
def traces(root: Path) -> dict[str, dict[str, Any]]:
    return {
        name: json.loads(gzip.decompress((root / FOLDER / f"{name}.json.gz").read_bytes())) for name in STEPS
    }


def spans(trace: dict[str, Any], *categories: str) -> list[Event]:
    """Complete events of these categories, by start."""
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]
    return sorted(found, key=lambda e: e["ts"])


def end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def inside(outer: Event, events: list[Event]) -> list[Event]:
    """Those within `outer`, to the rounding of a float64 µs; `outer` itself is left out."""
    return [
        e for e in events if e is not outer and outer["ts"] <= e["ts"] and end(e) <= end(outer) + 1e-6
    ]


def walls_ms(trace: dict[str, Any]) -> list[float]:
    """Each step to the next one's start; the last to the later of its own end and its device work's."""
    steps = spans(trace, "user_annotation")
    last = max(end(steps[-1]), max(map(end, spans(trace, "kernel", "gpu_memcpy"))))
    starts = [s["ts"] for s in steps]
    return [(b - a) / 1e3 for a, b in zip(starts, [*starts[1:], last], strict=True)]


def busy_ms(trace: dict[str, Any], *categories: str) -> float:
    """The one stream runs one piece after another, so busy is a sum; that no two overlap is checked."""
    rows = spans(trace, *(categories or ("kernel", "gpu_memcpy")))
    assert all(b["ts"] >= end(a) - 0.002 for a, b in pairwise(rows))
    return sum(float(r["dur"]) for r in rows) / 1e3


def draws(trace: dict[str, Any]) -> list[tuple[Event, Event]]:
    """(the operator as it was called, what of it the host's CPU computed) for every draw."""
    rows = [e for e in spans(trace, "cpu_op") if e["name"] == "aten::exponential_"]
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(inside(called, rows) == [computed] for called, computed in pairs)
    return pairs


def test_every_step_of_the_faulty_run_draws_once_on_the_host_between_two_copies(
    traces: dict[str, dict[str, Any]],
) -> None:
    faulty = traces["faulty"]
    calls, copies = spans(faulty, "privateuse1_runtime"), spans(faulty, "gpu_memcpy")
    by_correlation = {c["args"]["correlation"]: c for c in copies}
    assert len(draws(faulty)) == len(spans(faulty, "user_annotation")) == STEPS["faulty"]
    for called, computed in draws(faulty):
        assert not inside(computed, calls)
        made = inside(called, calls)
        assert [c["name"] for c in made] == ["xpulabMemcpyAsync", "xpulabStreamSynchronize"] * 2
        down, up = (by_correlation[c["args"]["correlation"]] for c in made[::2])
        assert "DtoH" in down["name"]
        assert "HtoD" in up["name"]
        assert down["args"]["bytes"] == up["args"]["bytes"] == 4 * DRAWS
        assert end(down) <= computed["ts"]
        assert end(computed) <= up["ts"]


def test_the_fixed_run_copies_the_position_and_the_tokens_and_draws_on_the_device(
    traces: dict[str, dict[str, Any]],
) -> None:
    fixed = traces["fixed"]
    assert not draws(fixed)
    moved = [(c["name"].split()[1], c["args"]["bytes"]) for c in spans(fixed, "gpu_memcpy")]
    assert moved == [("HtoD", 8), ("DtoH", 256 * 8)] * STEPS["fixed"]
    kernels = [k["name"] for k in spans(fixed, "kernel")]
    assert kernels.count("uniform_kernel") == STEPS["fixed"]
    assert "exponential_kernel" not in kernels


@pytest.mark.parametrize("name", STEPS)
def test_the_device_works_only_on_what_an_operator_or_the_graph_of_the_forward_pass_launched(
    traces: dict[str, dict[str, Any]], name: str
) -> None:
    trace = traces[name]
    operators = spans(trace, "cpu_op")
    forward = [f for f in spans(trace, "python_function") if f["name"].endswith(": forward")]
    calls = {c["args"]["correlation"]: c for c in spans(trace, "privateuse1_runtime") if "args" in c}
    work: dict[int, list[Event]] = {correlation: [] for correlation in calls}
    for row in spans(trace, "kernel", "gpu_memcpy"):
        work[row["args"]["correlation"]].append(row)
    graphs = 0
    for correlation, call in calls.items():
        graph = call["name"] == "xpulabGraphLaunch"
        graphs += graph
        holders = [e for e in (forward if graph else operators) if inside(e, [call])]
        assert holders, call
        assert (len(work[correlation]) > 100) if graph else (len(work[correlation]) == 1), call
        assert all(row["ts"] >= end(call) for row in work[correlation])
    assert graphs == STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_the_virtual_clock_makes_every_step_the_same(traces: dict[str, dict[str, Any]], name: str) -> None:
    walls = walls_ms(traces[name])
    assert len(walls) == STEPS[name]
    assert max(walls) - min(walls) < 0.001


def test_the_readme_states_the_figures_of_the_files(
    traces: dict[str, dict[str, Any]], pages: tuple[str, str]
) -> None:
    page, readme = pages
    faulty, fixed = traces["faulty"], traces["fixed"]
    median = {name: statistics.median(walls_ms(trace)) for name, trace in traces.items()}
    window = sum(walls_ms(faulty))
    called, computed = (sum(float(d["dur"]) for d in rows) / 1e3 for rows in zip(*draws(faulty), strict=True))
    waits = {
        name: sum("Synchronize" in c["name"] for c in spans(trace, "privateuse1_runtime")) // STEPS[name]
        for name, trace in traces.items()
    }
    kernels = {name: len(spans(trace, "kernel")) // STEPS[name] for name, trace in traces.items()}
    share = {name: busy_ms(trace) / sum(walls_ms(trace)) for name, trace in traces.items()}
    ratio = median["faulty"] / median["fixed"]
    for figure in (
        f"| median step | {median['faulty']:,.1f} ms | {median['fixed']:.1f} ms |",
        f"{100 * share['faulty']:.1f} % = {busy_ms(faulty) / 10:.1f} ms a step",
        f"{100 * share['fixed']:.1f} % = {busy_ms(fixed) / 20:.1f} ms a step",
        f"| {busy_ms(faulty, 'gpu_memcpy') / 10:.1f} ms a step | {busy_ms(fixed, 'gpu_memcpy') / 20:.2f} ms a step |",
        f"{100 * called / window:.2f} % of the window, {called / 10:,.1f} ms a call",
        f"{100 * computed / window:.1f} % of the window, {computed / 10:,.1f} ms a step",
        f"| kernels a step | {kernels['faulty']} | {kernels['fixed']} |",
        f"| synchronizations a step | {waits['faulty']} (",
        f"| {waits['fixed']} (",
        f"= **{ratio:.1f} times**",
        f"{computed / 10 * 1e6 / DRAWS:.0f} ns a draw",
    ):
        assert figure in readme, figure
    for figure in (
        f"Busy {100 * share['faulty']:.1f} % of the window",
        f"Ten decode steps of {median['faulty']:,.0f} ms",
        f"needs {busy_ms(faulty) / 10:.0f} ms of each, {busy_ms(faulty, 'gpu_memcpy') / 10:.0f} of those for copies",
        f"then {computed / 10:,.0f} ms in which",
        f"from {median['faulty']:,.0f} to {median['fixed']:.1f} ms, **{ratio:.0f} times**",
        f"the same steps at {median['fixed']:.1f} ms, the device busy {100 * share['fixed']:.1f} %",
    ):
        assert figure in page, figure


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


@pytest.mark.parametrize("name", STEPS)
def test_a_shipped_trace_is_small_and_tells_nothing_of_its_machine(root: Path, name: str) -> None:
    raw = (root / FOLDER / f"{name}.json.gz").read_bytes()
    assert len(raw) < 400_000
    assert raw[3] == 0, "the gzip header carries a file name"
    assert raw[4:8] == bytes(4), "the gzip header carries a time"
    text = gzip.decompress(raw).decode()
    assert not re.search(r"/(home|root|tmp|usr|work|Users)\b|host_?name|site-packages|\.local", text)


@pytest.mark.parametrize("name", STEPS)
def test_every_line_that_a_shipped_trace_names_is_where_the_source_has_that_function(
    root: Path, traces: dict[str, dict[str, Any]], name: str
) -> None:
    """Where this fails the source has moved on: `make incidents notebooks`."""
    frames = {f["name"] for f in spans(traces[name], "python_function")}
    assert frames
    for frame in frames:
        named = re.fullmatch(r"(xpu_triage/(?:lab|sampling)/\w+\.py)\((\d+)\): (\w+)", frame)
        assert named, frame
        lines = (root / "src" / named[1]).read_text().splitlines()[int(named[2]) - 1 :]
        first = next(line for line in lines if not line.lstrip().startswith("@"))  # decorators belong to it
        assert re.match(rf" *def {named[3]}\(", first), frame
