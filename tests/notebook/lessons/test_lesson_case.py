"""A fault beside its repair: run, recorded, diagnosed, swept."""

from __future__ import annotations

import dataclasses
import re
import tempfile

import pytest

from xpu_triage.errors import UnusableInput
from xpu_triage.notebook import lessons
from xpu_triage.notebook.lessons.case import doublings, step_ms
from xpu_triage.plots.sweep import SweepPoint

SMALL = {"batch": 8, "vocab": 500, "steps": 3}


def test_the_fault_is_found_in_the_evidence_and_gone_after_the_repair():
    case = lessons.reproduce("exponential-fallback", batch=32, vocab=152_000, steps=3)
    assert case.before.verdict.id == "cpu-fallback"
    assert case.before.signals.value("fallback.op") == "aten::exponential_"
    assert case.after.signals.value("fallback.fraction") == 0
    assert case.ratio == pytest.approx(step_ms(case.before) / step_ms(case.after))
    assert case.ratio == pytest.approx(case.faulty.step_ms / case.fixed.step_ms, rel=0.01)


def test_a_smaller_load_than_the_incident_s_need_not_show_the_fault_in_full(predicate):
    assert predicate.at_size
    assert not lessons.reproduce("exponential-fallback", **SMALL).at_size


def test_evidence_that_nobody_wants_to_keep_is_named_by_its_place_and_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    case = lessons.reproduce("exponential-fallback", **SMALL)
    assert [record.path for record in case.before.evidence] == ["faulty/trace.json.gz"]
    assert [record.path for record in case.after.evidence] == ["fixed/trace.json.gz"]
    case.beside("more.yaml", "schema: 1\ntitle: t\nsignals:\n  serving.running: 8\n")
    assert list(tmp_path.iterdir()) == []


def test_evidence_in_a_folder_that_the_reader_names_is_kept(tmp_path):
    case = lessons.reproduce("exponential-fallback", **SMALL, out=str(tmp_path / "kept"))
    assert case.before.evidence[0].path == str(tmp_path / "kept" / "faulty" / "trace.json.gz")
    more = case.beside("more.yaml", "schema: 1\ntitle: t\nsignals:\n  serving.concurrency: 8\n")
    assert more.signals.value("serving.concurrency") == 8
    assert more.signals.value("step.wall_ms") == case.before.signals.value("step.wall_ms")
    kept = {str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*.*")}
    assert {"faulty/trace.json.gz", "fixed/trace.json.gz", "fixed/lab.txt", "more.yaml"} <= kept


def test_a_load_that_cannot_run_is_refused():
    with pytest.raises(UnusableInput, match="batch is 0"):
        lessons.reproduce("exponential-fallback", batch=0, vocab=500, steps=3)


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_a_sweep_doubles_up_to_the_batch_itself(largest, sizes):
    assert doublings(largest) == sizes


def test_a_sweep_of_the_fallback_grows_with_the_batch():
    points = lessons.sweep("exponential-fallback", batch=4, vocab=152_000)
    assert [p.batch for p in points] == [1, 2, 4]
    lost = [p.faulty_ms - p.fixed_ms for p in points]
    assert lost[2] / lost[1] == pytest.approx(2, rel=0.05)
    assert "1.40" in repr(lessons.sweep_table(points))


def test_the_sweep_is_drawn_in_the_colour_of_what_the_device_waits_for(predicate, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "xpu_triage.notebook.lessons.case.batch_sweep", lambda points, **how: drawn.update(how)
    )
    lessons.sweep_picture((SweepPoint(1, 2.0, 1.0, 0.5, 0.9),), predicate)
    assert drawn == {"cause": "after_sync", "of": "910B-like model, virtual clock, 152,000 tokens"}


def test_what_a_step_holds_is_what_the_queue_counted(predicate):
    """256 × 152,000 logits never leave the device; the tokens, 256 × 8 bytes, do."""
    text = repr(lessons.inside(predicate))
    rows = [re.split(r" {2,}", line) for line in text.splitlines()]
    assert ["waits of the host for the device", "9", "1"] in rows
    assert ["operators on the host's CPU", "0", "0"] in rows
    assert ["moved to the host", "0.0 MB", "0.0 MB"] in rows
    launches = [f"{run.launches_per_step:.0f}" for run in (predicate.faulty, predicate.fixed)]
    assert ["launches", *launches] in rows


def test_the_report_and_the_lab_stand_side_by_side_with_the_report_s_own_contradiction():
    """256 ÷ 4.89 = 52.4; 3,201.71 ÷ 32 = 100; 4,890 ÷ (256,000 ÷ 3,201.71) = 61."""
    text = repr(lessons.beside_the_report(lessons.reproduce("exponential-fallback", **SMALL)))
    assert "256 ÷ 4.89 s = 52.4" in text
    assert "100 by tokens/s, 61 by step" in text
    assert "the lab's are at 8 × 500" in text


def test_real_time_runs_on_request_alone(monkeypatch):
    def fails(*args, **kwargs):
        raise AssertionError("nothing may run")

    monkeypatch.setattr("xpu_triage.lab.run", fails)
    assert "set live = True" in repr(lessons.in_real_time(False, "none", batch=1, vocab=10))


def test_in_real_time_both_runs_and_their_ratio_are_told():
    text = repr(lessons.in_real_time(True, "exponential-fallback", batch=2, vocab=500))
    assert text.count("real clock") == 2
    assert "measured in real time" in text
    assert "evidence in" not in text, "the folder is gone"


def test_every_assumption_has_its_source(predicate):
    told = repr(lessons.assumptions(predicate))
    figures = [
        f.name for f in dataclasses.fields(predicate.faulty.model) if f.name not in ("name", "sources")
    ]
    for name in figures:
        assert f"· {name} = " in told
    assert told.count("(") >= len(figures)
