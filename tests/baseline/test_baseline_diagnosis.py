"""A diagnosis with a baseline beside it: what it says where no cause can be named, and what is an all-clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline_runs import Paper
from xpu_triage.baseline import store
from xpu_triage.baseline.slowdown import LEAST, MOST
from xpu_triage.diagnosis import Diagnosis, diagnose
from xpu_triage.verdict import Level

GRID = ((1, 8), (128, 2048), (64,))
LATER = Paper(fixed=412.0)


def found(folder: Path, now: Paper, grid: tuple = GRID, was: tuple | None = None) -> Diagnosis:
    store.save(folder / "now.json", now.baseline(2, 200, grid).records)
    store.save(folder / "was.json", Paper().baseline(1, 200, was or grid).records)
    return diagnose(folder / "now.json", baseline=folder / "was.json")


def test_loads_that_take_as_long_as_when_it_was_right_are_no_fault(tmp_path):
    same = found(tmp_path, Paper())
    assert (same.verdict.id, same.verdict.level) == ("no-fault", Level.PROBABLE)
    assert "in every load compared requests take as long as when it was right" in same.verdict.summary
    assert same.signals.value(LEAST) == 1


@pytest.mark.parametrize("grid", [((1,), (128,), (2048,)), ((8,), (2048,), (2048,))])
def test_a_later_first_token_that_the_rate_hides_is_no_all_clear(tmp_path, grid):
    """400 ms of 17 s and more: the rate is 98 % of what it was."""
    later = found(tmp_path, LATER, grid)
    rate, was = (later.signals.value(f"serving.{name}_tokens_per_s") for name in ("decode", "reference"))
    assert rate / was > 0.95
    assert later.verdict.level is Level.NOT_ENOUGH
    assert later.verdict.summary.startswith("Surely slower than in the baseline, at least × ")
    assert "): queue or prefill. " in later.verdict.summary
    assert later.signals.value(LEAST) > 2


def test_the_figures_are_of_the_load_that_is_slower(tmp_path):
    """A fixed 8 ms more a token, which weighs most where one request runs."""
    slower = found(tmp_path, Paper(decode=16.0))
    assert slower.signals.value("serving.concurrency") == pytest.approx(
        float(slower.signals[LEAST].window.split("concurrency ")[1].split(",")[0]))
    assert any("surely slower than in the baseline" in note for note in slower.measured.notes)


def test_a_baseline_without_the_present_load_changes_no_verdict(tmp_path):
    other = found(tmp_path, Paper(), was=((64,), (128,), (64,)))
    alone = diagnose(tmp_path / "now.json")
    assert (other.verdict.id, other.verdict.summary) == (alone.verdict.id, alone.verdict.summary)
    assert "not compared with the baseline: " in other.unknown[LEAST]
    assert MOST in other.unknown
