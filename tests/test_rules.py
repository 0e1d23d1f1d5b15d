"""A rule: when it holds, what it is worth, whether a number stands behind it, how it reads."""

from __future__ import annotations

import pytest

from xpu_triage.rules import condition, from_page

BASE = {"signal": "device.busy_fraction", "comparison": "<=", "threshold": 0.6, "weight": 1, "says": "idle",
        "source": "judgement"}

STEP_OR_RATE = "first(step.wall_ms, 1000 / serving.request_decode_tokens_per_s)"


def rule(**changes):
    return from_page({**BASE, **changes})


def test_it_holds_fails_or_is_unknown():
    assert rule().holds({"device.busy_fraction": 0.6}) is True
    assert rule().holds({"device.busy_fraction": 0.61}) is False
    assert rule().holds({}) is None


def test_without_its_condition_known_to_hold_it_says_nothing():
    guarded = rule(given="serving.running >= 1")
    assert guarded.holds({"device.busy_fraction": 0.1}) is None
    assert guarded.holds({"device.busy_fraction": 0.1, "serving.running": 0}) is None
    assert guarded.holds({"device.busy_fraction": 0.1, "serving.running": 2}) is True


def test_a_list_of_conditions_must_hold_together():
    both = rule(given=["serving.running >= 1", "unless(step.wall_ms > 5)"])
    assert both.holds({"device.busy_fraction": 0.1, "serving.running": 2}) is True
    assert both.holds({"device.busy_fraction": 0.1, "serving.running": 2, "step.wall_ms": 6}) is None


def test_texts_are_contained_or_lacking_without_case():
    named = rule(signal="kernel.top_name", comparison="contains", threshold=["nccl", "allreduce"])
    assert named.holds({"kernel.top_name": "ncclDevKernel_AllReduce"}) is True
    assert named.holds({"kernel.top_name": "gemm"}) is False
    lacking = rule(signal="log.fallback_op", comparison="lacks", threshold="none")
    assert lacking.holds({"log.fallback_op": "None"}) is False
    assert lacking.holds({"log.fallback_op": "aten::nms"}) is True


def test_a_weight_may_follow_a_share_and_is_bounded():
    by_share = rule(weight="10 * device.busy_fraction")
    assert by_share.worth({"device.busy_fraction": 0.25}) == 2.5
    assert by_share.worth({}) == 0
    assert rule(weight="100 * device.busy_fraction").worth({"device.busy_fraction": 1}) == 12


@pytest.mark.parametrize(("changes", "values", "numeric"), [
    ({}, {"device.busy_fraction": 0.3}, True),
    ({}, {"device.busy_fraction": 0}, False),
    ({"signal": "device.busy_fraction + kernel.graph_fraction"},
     {"device.busy_fraction": 0, "kernel.graph_fraction": 0.1}, True),
    ({"signal": "sync.site", "comparison": "contains", "threshold": "item"}, {"sync.site": "item"}, False),
    ({"signal": "host.graph_requested", "comparison": "==", "threshold": False},
     {"host.graph_requested": False}, False),
])
def test_only_a_number_that_is_not_zero_counts_as_one(changes, values, numeric):
    assert rule(**changes).numeric(values) is numeric


@pytest.mark.parametrize(("changes", "values", "text"), [
    ({}, {"device.busy_fraction": 0.3}, "device.busy_fraction 0.3 ≤ 0.6: idle"),
    ({"given": "serving.running >= 1"}, {"device.busy_fraction": 0.3, "serving.running": 4},
     "device.busy_fraction 0.3 ≤ 0.6 (with serving.running 4): idle"),
    ({"signal": "step.wall_ms", "comparison": ">=", "threshold": 500}, {"step.wall_ms": 4890},
     "step.wall_ms 4,890 ms ≥ 500 ms: idle"),
    ({"signal": "latency.itl_ms / first(latency.engine_itl_ms, step.wall_ms)", "comparison": ">=", "threshold": 1.5},
     {"latency.itl_ms": 90, "step.wall_ms": 30},
     "latency.itl_ms ÷ step.wall_ms = 3 ≥ 1.5 (latency.itl_ms 90 ms, step.wall_ms 30 ms): idle"),
    ({"signal": STEP_OR_RATE, "comparison": ">=", "threshold": 500},
     {"step.wall_ms": 4890, "serving.request_decode_tokens_per_s": 2}, "step.wall_ms 4,890 ms ≥ 500 ms: idle"),
    ({"signal": STEP_OR_RATE, "comparison": ">=", "threshold": 500},
     {"serving.request_decode_tokens_per_s": 2}, "1000 ÷ serving.request_decode_tokens_per_s = 500 ≥ 500 "
     "(serving.request_decode_tokens_per_s 2 tokens/s): idle"),
    ({"signal": "host.graph_requested", "comparison": "==", "threshold": False}, {"host.graph_requested": False},
     "host.graph_requested no: idle"),
    ({"signal": "sync.site", "comparison": "lacks", "threshold": "none", "says": "seen at {sync.site|a line}"},
     {"sync.site": "x\x1b[1m"}, 'sync.site is "x\\x1b[1m": seen at x\\x1b[1m'),
])
def test_it_reads_as_arithmetic_with_its_words(changes, values, text):
    assert rule(**changes).text(values) == text


def test_words_stand_in_for_a_text_that_is_not_known():
    assert rule(says="in {idle.host_op|something}").words({}) == "in something"
    assert rule(says="in {idle.host_op|something}").words({"idle.host_op": "prepare"}) == "in prepare"


@pytest.mark.parametrize(("changes", "says"), [
    ({"signal": "device.busy"}, "'device.busy' is not a signal"),
    ({"comparison": "=>"}, "'=>' is not a comparison"),
    ({"comparison": "contains"}, "is not a comparison for a number"),
    ({"threshold": "0.6"}, "is not a number"),
    ({"threshold": True}, "is not a number"),
    ({"signal": "sync.site", "comparison": "==", "threshold": "x"}, "compared by contains or lacks"),
    ({"signal": "sync.site", "comparison": "contains", "threshold": 3}, "compared by contains or lacks"),
    ({"signal": "host.graph_requested", "comparison": "==", "threshold": 1}, "is not a bool"),
    ({"weight": "sync.site"}, "is no weight"),
    ({"given": "step.wall_ms"}, "is no condition"),
    ({"source": ""}, "needs its source"),
    ({"says": None}, "needs its says"),
    ({"says": "in {idle.nothing|x}"}, "'idle.nothing' is not a signal with a text"),
    ({"says": "in {step.wall_ms|x}"}, "'step.wall_ms' is not a signal with a text"),
    ({"because": "x"}, "'because' is not a part of a rule"),
])
def test_a_rule_with_a_mistake_is_refused(changes, says):
    with pytest.raises(ValueError, match=r".") as refusal:
        rule(**changes)
    assert says in str(refusal.value)


def test_no_condition_is_none():
    assert condition(None) is None
