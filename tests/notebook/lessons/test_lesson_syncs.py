"""Syncs counted by two detectors, and what removing them wins."""

from __future__ import annotations

import pytest

from xpu_triage.notebook import lessons
from xpu_triage.notebook.lessons.syncs import by_line


@pytest.mark.parametrize(("repair", "syncs"), [(False, 9), (True, 1)])
def test_both_detectors_count_eight_in_the_sampler_and_one_for_the_tokens(repair, syncs):
    counts = lessons.counted(batch=16, vocab=500, steps=4, repair=repair)
    assert counts.waited.by_step == counts.asked.by_step == (syncs,) * 4
    assert counts.agreed
    lines = by_line(counts.waited)
    assert sorted(lines.values()) == ([1, 8] if syncs == 9 else [1])
    assert any("sample_by_device_predicate" in line for line in lines) is not repair
    assert set(by_line(counts.asked)) == set(lines)


def test_counting_takes_no_time_of_the_counted_clock(predicate):
    counts = lessons.counted(batch=256, vocab=152_000, steps=3, repair=True)
    assert counts.step_ms == pytest.approx(predicate.fixed.step_ms, rel=0.01)


def test_the_table_names_every_line_with_its_count_before_and_after():
    before, after = (lessons.counted(batch=8, vocab=500, steps=2, repair=r) for r in (False, True))
    text = repr(lessons.count_table(before, after))
    rows = [line.split() for line in text.splitlines() if line.startswith("the ")]
    assert [row[-2:] for row in rows] == [["8", "0"], ["1", "1"], ["9", "1"]] * 2
    assert "What the two cannot see" in text


def test_the_trace_alone_is_probable_and_the_measurement_that_it_asks_for_confirms(predicate):
    assert (predicate.before.verdict.level, predicate.before.verdict.id) == ("probable", "implicit-sync")
    settled = lessons.settled(predicate)
    assert (settled.verdict.level, settled.verdict.id) == ("confirmed", "implicit-sync")
    assert settled.signals.value("ab.fewer_syncs_ratio") == pytest.approx(1 / predicate.ratio, abs=1e-3)
    assert [record.path for record in settled.evidence] == ["faulty/trace.json.gz", "after.yaml"]


def test_the_gain_lies_between_the_idle_after_syncs_and_the_bound_and_far_below_the_waiting(predicate):
    won = lessons.gain(predicate)
    signals = predicate.before.signals
    wall = signals.value("step.wall_ms")
    assert won.won_ms == pytest.approx(wall - predicate.after.signals.value("step.wall_ms"))
    assert won.bound_ms == pytest.approx(wall * signals.value("sync.gain_bound_fraction"))
    assert 0.8 * won.idle_ms < won.won_ms <= won.bound_ms < won.waited_ms
    assert f"{won.won_ms:.2f} ms shorter" in repr(won.told)


def test_the_count_stands_beside_the_latency(predicate):
    before, after = (lessons.counted(batch=256, vocab=152_000, steps=2, repair=r) for r in (False, True))
    rows = repr(lessons.before_and_after(predicate, before, after)).splitlines()
    assert rows[1].split() == ["syncs", "9", "1"]
    assert any(line.startswith("step time") for line in rows)
