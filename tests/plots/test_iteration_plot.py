"""Iterations of an engine's log: which of them the median is of, and that what is cut says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from synthetic_walks import diagnosis_of
from xpu_triage import plots
from xpu_triage.plots import canvas
from xpu_triage.plots.canvas import Picture
from xpu_triage.samples import EngineLog, Telemetry


def drawn(elapsed_ms: list[float], prompts: list[int] | None = None, profiled: list[int] | None = None) -> Picture:
    none = [0] * len(elapsed_ms)
    context = np.array(prompts or none, float)
    log = EngineLog("engine.log", "vllm", {
        "elapsed_ms": np.array(elapsed_ms, float), "context_requests": np.minimum(context, 1),
        "context_tokens": context, "generation_requests": np.where(context > 0, 0.0, 4.0),
        "profiled": np.array(profiled or none, float)})
    return plots.step_times(replace(diagnosis_of(), telemetry=Telemetry(logs=(log,))))


def test_the_median_is_of_what_only_decodes_and_is_not_profiled_and_the_title_says_so() -> None:
    picture = drawn([10, 12, 11, 900, 40, 40, 40], prompts=[0, 0, 0, 512, 0, 0, 0], profiled=[0, 0, 0, 0, 1, 1, 1])
    assert picture.title == "3 decode iterations, median 11.00 ms"
    assert "7 iterations" in picture.subtitle


def test_bars_that_are_cut_are_counted_with_where_they_are_cut() -> None:
    picture = drawn([10.0] * 299 + [5_000.0])
    # the 99th percentile of 300 is 10 ms: cut at 1.3 times that
    assert "longest 5,000.00 ms; 1 bar is cut at 13.00 ms (▲)" in picture.subtitle


def test_where_all_bars_fit_nothing_is_said_of_cuts() -> None:
    assert "cut" not in drawn([10.0, 11.0, 12.0]).subtitle


@pytest.mark.parametrize("count", [1, 2, 5, 37, 1_399])
def test_what_is_counted_has_no_halves_on_its_axis(count: int) -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    axes.set_xlim(0.3, count + 0.7)
    canvas.whole_ticks(axes, count)
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
