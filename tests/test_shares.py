"""A share is of something: of the step, or of what its page divides by; and that is what is said."""

from __future__ import annotations

import pytest

from sheets import typed, verdict_of
from xpu_triage import fingerprints
from xpu_triage.expressions import parse
from xpu_triage.shares import CAPTURE, COMPARED, STEP, WHOLES, whole_of

PAGES = fingerprints.load()


@pytest.mark.parametrize(("share", "whole"), [
    ("device.compute_fraction", STEP),
    ("idle.step_gap_ms / step.wall_ms", STEP),
    ("comm.calls_per_step * comm.isolated_us / 1000 / step.wall_ms", STEP),
    ("latency.queue_ms / latency.ttft_ms", "the time to first token"),
    ("latency.queue_ms / latency.e2e_ms", "a request's time"),
    ("1 - latency.engine_itl_ms / latency.itl_ms", "the time between tokens"),
    ("1 - warmup.repeat_ms / warmup.first_ms", "the first request"),
    ("1 - 1 / step.drift_ratio", "a step late in the run"),
    ("saved(ab.graph_ratio)", COMPARED),
    ("saved(ab.kernel_ratio) * kernel.top_fraction", STEP),
])
def test_the_whole_is_what_is_divided_by(share, whole):
    assert whole_of(parse(share), {}) == whole


def test_without_steps_a_share_of_the_window_is_one_of_the_capture():
    assert whole_of(parse("device.compute_fraction"), {"step.method": "window"}) == CAPTURE
    assert whole_of(parse("latency.queue_ms / latency.ttft_ms"), {"step.method": "window"}) != CAPTURE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_every_share_of_every_page_has_a_whole(page):
    assert {whole_of(share, {}) for share in page.share} <= {*WHOLES.values(), COMPARED}


def test_the_hypothesis_and_the_summary_say_of_what():
    """0.8 s of the second that a first token takes are the queue: that is no share of a step."""
    figures = {"latency.queue_ms": 800, "latency.ttft_ms": 1000, "serving.running": 1, "serving.waiting": 40,
               "kv.usage_fraction": 0.05, "serving.running_limit": 256, "device.utilization_fraction": 0.1}
    first = verdict_of(figures).hypotheses[0]
    assert (first.id, first.share, first.share_of) == ("queueing-idle-device", 0.8, "the time to first token")
    assert "(80% of the time to first token)" in verdict_of(figures).summary


def test_a_hypothesis_without_a_share_names_no_whole():
    without = [h for h in verdict_of({"kernel.top_ms": 50, "step.wall_ms": 60}).hypotheses if h.share is None]
    assert without
    assert {h.share_of for h in without} == {""}
    page = next(page for page in PAGES if page.id == "queueing-idle-device")
    assert page.whole_of({name: signal.value for name, signal in typed({"latency.queue_ms": 800}).items()}) == ""
