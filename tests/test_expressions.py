"""Expressions over signals: three-valued, restricted, checked when they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.expressions import BadExpression, parse

THREE = st.sampled_from([True, False, None])
FLAGS = {"host.graph_requested": "p", "log.kv_exhausted": "q"}


def value(text, /, **signals):
    return parse(text).evaluate({name.replace("__", "."): v for name, v in signals.items()})


def test_arithmetic_over_signals():
    assert value("kernel.per_step * host.launch_us / 1000 / step.wall_ms", kernel__per_step=2000, host__launch_us=8.0,
                 step__wall_ms=20) == pytest.approx(0.8)
    assert value("-(step.wall_ms - 2) + 1", step__wall_ms=5) == -2
    assert value("max(0, min(step.wall_ms, 3))", step__wall_ms=5) == 3


def test_unknown_propagates_through_arithmetic_and_comparison():
    assert value("step.wall_ms + 1") is None
    assert value("step.wall_ms > 1") is None
    assert value("max(step.wall_ms, 3)") is None


@pytest.mark.parametrize("bottom", [0, 0.0])
def test_division_by_zero_is_unknown(bottom):
    assert value("serving.waiting / serving.running", serving__waiting=6, serving__running=bottom) is None
    assert value("serving.waiting / serving.running >= 0.1", serving__waiting=0, serving__running=bottom) is None


def test_an_overflow_is_unknown():
    assert value("step.wall_ms * step.wall_ms", step__wall_ms=1e300) is None


@given(THREE, THREE)
def test_and_or_not_are_kleenes(p, q):
    signals = {name: flag for name, flag in zip(FLAGS, (p, q), strict=True) if flag is not None}
    both = parse("host.graph_requested and log.kv_exhausted").evaluate(signals)
    either = parse("host.graph_requested or log.kv_exhausted").evaluate(signals)
    # Kleene: take every completion of the unknowns; where all agree that is the value, else unknown
    completions = [(a, b) for a in (True, False) for b in (True, False) if p in (a, None) and q in (b, None)]
    for found, results in ((both, {a and b for a, b in completions}), (either, {a or b for a, b in completions})):
        assert found == (results.pop() if len(results) == 1 else None)
    assert parse("not host.graph_requested").evaluate(signals) == (None if p is None else not p)


def test_known_is_never_unknown_and_unless_holds_where_it_is_false_or_unknown():
    assert value("known(step.wall_ms)") is False
    assert value("known(step.wall_ms, step.count)", step__wall_ms=1) is False
    assert value("known(step.wall_ms, step.count)", step__wall_ms=1, step__count=0) is True
    assert value("unless(step.wall_ms > 2)") is True
    assert value("unless(step.wall_ms > 2)", step__wall_ms=1) is True
    assert value("unless(step.wall_ms > 2)", step__wall_ms=3) is False


def test_first_takes_the_first_that_is_known():
    assert value("first(serving.running, serving.concurrency)", serving__concurrency=4) == 4
    assert value("first(serving.running, serving.concurrency)", serving__running=0, serving__concurrency=4) == 0
    assert value("first(serving.running, 7)") == 7
    assert value("first(serving.running, serving.concurrency)") is None


def test_contains_compares_without_case_and_an_unknown_text_is_unknown():
    assert value('contains(kernel.top_core, "cpu")', kernel__top_core="AI_CPU") is True
    assert value('contains(kernel.top_core, "xyz", "core")', kernel__top_core="AI_CORE") is True
    assert value('contains(kernel.top_core, "xyz")', kernel__top_core="AI_CORE") is False
    assert value('contains(kernel.top_core, "cpu")') is None


@pytest.mark.parametrize(("ratio", "spread", "saved", "at_most", "cost"), [
    (0.6, None, 0.4, 0.43, -0.4),        # 0.03 where no spread is given
    (0.98, None, None, 0.05, None),      # inside it: no statement
    (1.0, 0.007, None, 0.007, None),
    (0.98, 0.007, 0.02, 0.027, -0.02),
    (1.5, None, -0.5, -0.47, 0.5),
    (0.8, 0.3, None, 0.5, None),
])
def test_an_ab_ratio_inside_its_spread_says_nothing_and_its_bound_widens_by_it(ratio, spread, saved, at_most, cost):
    signals = {"ab.graph_ratio": ratio} | ({} if spread is None else {"ab.spread_fraction": spread})
    for name, expected in (("saved", saved), ("at_most", at_most), ("cost", cost)):
        found = parse(f"{name}(ab.graph_ratio)").evaluate(signals)
        assert found == (None if expected is None else pytest.approx(expected))


def test_a_ratio_of_zero_was_not_measured():
    for name in ("saved", "at_most", "cost"):
        assert parse(f"{name}(ab.graph_ratio)").evaluate({"ab.graph_ratio": 0}) is None


@pytest.mark.parametrize(("text", "says"), [
    ("step.wall", "'step.wall' is not a signal"),
    ("wall_ms > 3", "'wall_ms' is not a signal"),
    ("a.b.c", "'a.b.c' is not a signal"),
    ("__import__('os')", "no function here"),
    ("known()", "no function here"),
    ("max(step.wall_ms, key=1)", "no function here"),
    ("step.wall_ms.real", "not a signal"),
    ("step.wall_ms[0]", "not allowed"),
    ("[x for x in step.wall_ms]", "not allowed"),
    ("lambda: 1", "not allowed"),
    ("step.wall_ms ** 2", "not allowed"),
    ("~step.wall_ms", "not allowed"),
    ("1 < step.wall_ms < 2", "one comparison at a time"),
    ("step.wall_ms in step.count", "one comparison at a time"),
    ("sync.site == 'x'", "text is compared with contains"),
    ("step.wall_ms == host.graph_requested", "compares a number with a bool"),
    ("sync.site + 1", "a text where a number is wanted"),
    ("step.wall_ms and host.graph_requested", "a number where a bool is wanted"),
    ("not step.wall_ms", "a number where a bool is wanted"),
    ("contains(step.wall_ms, 'x')", "a text signal and quoted texts"),
    ("contains(sync.site)", "a text signal and quoted texts"),
    ("contains(sync.site, '')", "a text signal and quoted texts"),
    ("saved(step.wall_ms)", "takes one ab.*_ratio"),
    ("saved(ab.spread_fraction)", "takes one ab.*_ratio"),
    ("unless(step.wall_ms > 1, step.wall_ms > 2)", "one condition"),
    ("None", "not allowed"),
    ("1 +", "is not an expression"),
    ("", "is not an expression"),
    ("(" * 500 + "1" + ")" * 500, "is not an expression"),
])
def test_a_page_may_contain_nothing_else(text, says):
    with pytest.raises(BadExpression) as refusal:
        parse(text)
    assert says in str(refusal.value)


def test_an_expression_knows_its_kind_and_the_signals_that_it_reads():
    parsed = parse("known(fallback.fraction) and step.wall_ms / step.count > 3")
    assert parsed.kind == "bool"
    assert parsed.names == ("fallback.fraction", "step.wall_ms", "step.count")


def test_when_gives_its_number_only_where_the_condition_is_true():
    share = parse('when(contains(kernel.top_core, "CPU"), kernel.top_fraction * 2)')
    assert share.evaluate({"kernel.top_core": "AI_CPU", "kernel.top_fraction": 0.25}) == 0.5
    assert share.evaluate({"kernel.top_core": "AI_CORE", "kernel.top_fraction": 0.25}) is None
    assert share.evaluate({"kernel.top_fraction": 0.25}) is None
    for wrong in ("when(kernel.top_fraction, 1)", "when(known(kernel.top_core))",
                  "when(known(kernel.top_core), kernel.top_core)"):
        with pytest.raises(BadExpression):
            parse(wrong)
