"""What to measure next: a signal that is missing, that would tell the hypotheses apart, and how to get it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sheets import verdict_of
from xpu_triage.catalogue import CATALOGUE
from xpu_triage.verdict import Level

NAME = re.compile(r"\b[a-z]+\.[a-z0-9_]+\b")


def asked(verdict):
    return [name for name in NAME.findall(verdict.next) if name in CATALOGUE]


@pytest.mark.parametrize(("figures", "one_of"), [
    # a device that is idle: which kind of idle
    ({"device.busy_fraction": 0.3}, {"idle.launching_fraction", "idle.host_op_fraction"}),
    # another implementation is faster alone: can it be selected
    ({"ab.kernel_ratio": 0.4}, {"ab.kernel_choice_ratio"}),
    # a log line about the cache: its cost
    ({"log.kv_exhausted": True}, {"kv.preemptions_per_request", "kv.usage_fraction", "ab.kv_headroom_ratio"}),
    # clients behind the engine: front end's CPU, or the network
    ({"latency.itl_ms": 200, "latency.engine_itl_ms": 60},
     {"process.busiest_cpu_cores", "ab.no_tokenizer_ratio", "ab.other_client_ratio", "client.frame_interval_ms",
      "ab.fewer_events_ratio"}),
    # a fallback line: its share
    ({"log.fallback_op": "aten::nonzero"}, {"fallback.fraction", "fallback.op"}),
])
def test_it_asks_for_what_tells_the_hypotheses_apart(figures, one_of):
    verdict = verdict_of(figures)
    assert verdict.level is Level.NOT_ENOUGH
    assert one_of & set(asked(verdict)), verdict.next


def test_it_says_where_the_figure_comes_from():
    assert "a profiler trace of a few steps under load" in verdict_of({"device.busy_fraction": 0.3}).next
    assert "both arms repeated" in verdict_of({"ab.kernel_ratio": 0.4}).next


@pytest.mark.parametrize(("figures", "asks"), [
    ({"latency.ttft_ms": 700}, "latency.queue_ms and latency.prefill_ms"),
    ({"latency.itl_ms": 70}, "latency.engine_itl_ms"),
    ({"serving.concurrency": 3}, "device.utilization_fraction with serving.running"),
    ({"serving.concurrency": 3, "device.utilization_fraction": 0.7, "serving.running": 3, "step.wall_ms": 20},
     "a profiler trace"),
])
def test_where_nothing_speaks_it_walks_the_three_steps_and_skips_what_is_there(figures, asks):
    verdict = verdict_of(figures)
    assert asks in verdict.next
    assert not set(asked(verdict)) & (set(figures) - {"serving.running"})


@given(st.dictionaries(st.sampled_from([n for n, s in CATALOGUE.items() if s.unit == "fraction"]), st.floats(0, 1),
                       max_size=5))
@settings(max_examples=60, deadline=None)
def test_it_never_asks_for_what_is_known_and_always_asks_for_something(figures):
    verdict = verdict_of(figures)
    assert verdict.next
    if verdict.level is Level.NOT_ENOUGH and "Record" not in verdict.next:
        assert not set(asked(verdict)) & set(figures)


@pytest.mark.parametrize(("figures", "id_", "missing", "known"), [
    # two of three are known: what is missing alone is asked for, with its command
    ({"latency.ttft_ms": 4000, "latency.prefill_ms": 3600, "latency.queue_ms": 20}, "prefill-too-long",
     {"kv.prefix_hit_fraction"}, {"latency.prefill_ms", "latency.queue_ms"}),
    # nothing is known: the page's own words
    ({"idle.launching_fraction": 0.6, "device.busy_fraction": 0.3}, "launch-bound", {"ab.graph_ratio"}, set()),
])
def test_of_what_settles_a_probable_verdict_only_what_is_missing_is_asked_for(figures, id_, missing, known):
    verdict = verdict_of(figures)
    assert (verdict.level, verdict.id) == (Level.PROBABLE, id_)
    assert missing <= set(asked(verdict))
    assert not known & set(asked(verdict))


def test_what_the_metrics_give_is_asked_for_with_the_command_that_gets_them():
    assert "/metrics > metrics-" in verdict_of({"latency.ttft_ms": 4000, "latency.prefill_ms": 3600,
                                                "latency.queue_ms": 20}).next


def test_a_roofline_and_a_comparison_of_ranks_are_not_asked_for_before_a_step_or_a_trace_is_known():
    verdict = verdict_of({"device.utilization_fraction": 1.0, "device.memory_active_fraction": 0.09})
    assert verdict.level is Level.NOT_ENOUGH
    assert "device.busy_fraction" in asked(verdict)
    assert not any(name.startswith(("roofline.", "comm.", "ab.")) for name in asked(verdict))
    assert "xpu-triage watch --server http://HOST:PORT --profile" in verdict.next


LAUNCHING = {"idle.launching_fraction": 0.6, "device.busy_fraction": 0.3, "idle.host_op_fraction": 0.05,
             "step.count": 5}


def test_operators_compiled_or_selected_in_each_call_are_settled_before_graphs_are_tried():
    verdict = verdict_of({**LAUNCHING, "host.online_fraction": 0.4})
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "launch-bound")
    assert "Second: warmup-compile (40% of the time)" in verdict.summary
    assert verdict.next.index("jit_compile=False") < verdict.next.index("graph capture")


@pytest.mark.parametrize("online", [None, 0.05])
def test_without_much_of_that_graphs_are_tried_first(online):
    verdict = verdict_of({**LAUNCHING, "host.online_fraction": online})
    assert verdict.next.startswith("The same load with graph capture")
    assert "warmup-compile" not in verdict.summary
