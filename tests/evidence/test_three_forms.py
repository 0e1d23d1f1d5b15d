"""One run in the forms of three profilers is one walk: the same verdict, the same signals.

Where a format by its nature has no row for something, the signal is unknown, and never another figure. What differs is
listed here, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from three_forms import Row, as_ascend, as_nsight, neutral, rows_of, without_frames
from xpu_triage import lab
from xpu_triage.diagnosis import Diagnosis, diagnose

SIZES = {"none": (64, 16_000), "exponential-fallback": (64, 16_000), "item-per-step": (64, 2_000),
         "eager-launches": (64, 2_000)}
VERDICTS = {"none": ("kernel-bound", "probable"), "exponential-fallback": ("cpu-fallback", "confirmed"),
            "item-per-step": ("implicit-sync", "probable"), "eager-launches": ("launch-bound", "probable")}

CORES = {"kernel.top_core"}
"""PyTorch's profiler does not record the kind of core; the others name it, or imply it by their calls."""

FRAMES = {"warmup.compiles", "host.top_op"}
"""Nsight Systems records no Python frames: what Python compiles, and which of its functions works, is not seen."""

DIRECTIONS = {"fallback.op", "fallback.fraction", "sync.copy_ms", "device.link_copy_fraction"}
"""Level1 does not say where a copy goes: a fallback's copies cannot be told from others, nor what crosses the link."""

LINKS = {"idle.before_unlinked_fraction"}
"""How much of the idle lies before work of unknown launch: a figure of the capture and not of the run."""

QUEUE = {"host.top_op", "host.top_op_fraction", "host.top_op_ms"}
"""With the task queue on, launches and copies are handed over under one name, `Enqueue`."""


@dataclass(frozen=True)
class Recorded:
    fault: str
    trace: Path
    rows: list[Row]
    diagnosis: Diagnosis


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    folder, known = tmp_path_factory.mktemp("forms"), dict[str, Recorded]()

    def recorded(fault: str) -> Recorded:
        if fault not in known:
            batch, vocab = SIZES[fault]
            lab.run(fault, batch=batch, vocab=vocab, steps=4, compute=False, out=folder / fault)
            trace = folder / fault / "trace.json.gz"
            known[fault] = Recorded(fault, trace, rows_of(trace), diagnose(trace))
        return known[fault]

    return recorded


@pytest.fixture(params=SIZES)
def run(request: pytest.FixtureRequest, recordings: Callable[[str], Recorded]) -> Recorded:
    return recordings(request.param)


def signals(diagnosis: Diagnosis) -> dict[str, object]:
    return {name: neutral(signal.value) for name, signal in diagnosis.signals.items()}


def differences(one: Diagnosis, other: Diagnosis) -> set[str]:
    a, b = signals(one), signals(other)
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


def judged(diagnosis: Diagnosis) -> tuple[str | None, str]:
    return diagnosis.verdict.id, str(diagnosis.verdict.level)


def pointed_at(diagnosis: Diagnosis) -> tuple[object, ...]:
    found = diagnosis.finding
    return () if found is None else (found.about, neutral(found.name), round(found.share, 9))


def test_the_runs_say_something_each_its_own(run: Recorded) -> None:
    """Guards the comparisons below."""
    assert judged(run.diagnosis) == VERDICTS[run.fault]
    assert len(run.diagnosis.signals) > 35


@pytest.mark.parametrize("form", ["text", "database"])
def test_ascend_at_level2_says_what_kineto_says(run: Recorded, tmp_path: Path, form: str) -> None:
    ascend = as_ascend(run.rows)
    given = ascend.text(tmp_path, 2) if form == "text" else ascend.database(tmp_path / "run.db", directions=True)
    found = diagnose(given)
    assert differences(run.diagnosis, found) == CORES
    assert judged(found) == judged(run.diagnosis)
    assert pointed_at(found) == pointed_at(run.diagnosis)
    assert found.signals.value("kernel.top_core") == "AI_VECTOR_CORE"
    assert not found.evidence[0].notes


@pytest.mark.parametrize("form", ["text", "database"])
def test_level1_differs_in_what_needs_the_direction_of_copies_and_says_which_level_has_it(
        run: Recorded, tmp_path: Path, form: str) -> None:
    ascend = as_ascend(run.rows)
    found = diagnose(ascend.text(tmp_path, 1) if form == "text" else ascend.database(tmp_path / "run.db"))
    assert differences(run.diagnosis, found) == CORES | DIRECTIONS
    assert not DIRECTIONS & found.signals.keys()
    assert found.verdict.id == run.diagnosis.verdict.id
    assert "Level2" in found.unknown["fallback.op"]
    assert "where they go" in found.lead.trace.cannot["sync.copy_ms"]  # type: ignore[union-attr]


def test_level0_differs_in_what_it_says_that_it_cannot_show(run: Recorded, tmp_path: Path) -> None:
    found = diagnose(as_ascend(run.rows).text(tmp_path, 0))
    cannot = found.lead.trace.cannot  # type: ignore[union-attr]
    other = differences(run.diagnosis, found) - LINKS
    assert {name for name in other if name in found.signals} <= cannot.keys()
    assert all("Level1" in why for name, why in cannot.items() if name != "sync.copy_ms")
    kept = {"step.wall_ms", "device.busy_fraction", "device.compute_fraction", "device.copy_fraction", "step.count",
            "idle.host_op_fraction", "idle.hidden_fraction", "kernel.per_step", "kernel.median_us", "kernel.top_ms"}
    assert not other & kept


def test_the_task_queue_changes_who_launches_and_nothing_else(run: Recorded, tmp_path: Path) -> None:
    found = diagnose(as_ascend(run.rows, queue=True).text(tmp_path, 2))
    assert differences(run.diagnosis, found) - QUEUE == CORES
    assert judged(found) == judged(run.diagnosis)
    assert pointed_at(found) == pointed_at(run.diagnosis)


@pytest.mark.parametrize("year", [2019, 2021, 2026])
def test_nsight_says_what_kineto_says_without_python_frames(run: Recorded, tmp_path: Path, year: int) -> None:
    plain = diagnose(without_frames(run.trace, tmp_path / "trace.json"))
    found = diagnose(as_nsight(run.rows, tmp_path / "run.sqlite", year))
    assert differences(plain, found) == CORES
    assert judged(found) == judged(plain)
    assert pointed_at(found) == pointed_at(plain)


def test_nsight_differs_from_kineto_with_frames_in_what_frames_tell(run: Recorded, tmp_path: Path) -> None:
    found = diagnose(as_nsight(run.rows, tmp_path / "run.sqlite"))
    one, other = signals(run.diagnosis), signals(found)
    assert differences(run.diagnosis, found) <= CORES | FRAMES | {"sync.site"}
    assert "warmup.compiles" not in other
    assert str(one["sync.site"]).partition(" at ")[0] == other["sync.site"]
    assert judged(found) == judged(run.diagnosis)
