"""Copies that something waits for, worked out by hand. Times in µs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Rows
from xpu_triage import fingerprints
from xpu_triage.contradictions import contradictions
from xpu_triage.signals import Signals
from xpu_triage.steps.copy_waits import _without
from xpu_triage.steps.results import Walk
from xpu_triage.steps.walk import walk
from xpu_triage.trace import NOT_LINKED, Trace
from xpu_triage.verdict import Level, judge


def share(walked: Walk, name: str = "device.copy_wait_fraction") -> float:
    return float(next(s.value for s in walked.signals if s.name == name))


def one_copy(launched: float, starts: float, host: str = "", linked: bool = True) -> Trace:
    """A step of 1,000: a kernel of 100, a copy from 110 to 910 on its own stream, and a kernel of 50 behind it."""
    rows = Rows()
    rows.annotation("ProfilerStep#1", 0, 1_000)
    rows.launch(1, "first", 5, 100)
    made = rows.call("cudaMemcpyAsync", 20, 880 if host == "in the call" else 3)
    rows.copy("Memcpy HtoD (Pinned -> Device)", 110, 800, made, stream="9")
    if host == "blocked":
        rows.sync(300, 615)
    call = rows.call("cudaLaunchKernel", launched, 3)
    rows.kernel("second", starts, 50, call if linked else NOT_LINKED)
    return rows.trace()


@pytest.mark.parametrize(("launched", "starts", "host", "waited"), [
    (30, 912, "", 0.8),              # queued before the copy began: it holds up all of its 800
    (510, 912, "", 0.4),             # launched at 510: from there on
    (905, 912, "", 0.0),             # launched as the copy ends: it came late by itself
    (500, 508, "", 0.0),             # starts beside the copy: held up by nothing
    (30, 945, "", 0.0),              # starts 35 after its end: it waited for something else
    (930, 940, "blocked", 0.61),     # the host waits from 300 on
    (930, 940, "in the call", 0.79),  # the host itself moves it, until 900
])
def test_what_waits_for_a_copy_is_counted_from_when_it_waits(
        launched: float, starts: float, host: str, waited: float) -> None:
    walked = walk(one_copy(launched, starts, host))
    assert share(walked, "device.copy_fraction") == pytest.approx(0.8 - (0.05 if starts == 508 else 0))
    assert share(walked) == pytest.approx(waited, abs=1e-6)


def asked(until: float, every: float = 40, thread: str = "main", then: float = 20, call: str = "cudaEventQuery",
          between: bool = False) -> Trace:
    """Steps of 10,000: a copy of 6,000 on its own stream, from 30 on. From 100 on the host asks whether an event is
    done, `every` so often and the last time at `until`, and launches `then` after that. `between`: a kernel of 1 after
    each question."""
    rows = Rows()
    for i in range(4):
        at = 10_000.0 * i
        rows.annotation(f"ProfilerStep#{i}", at, 9_990)
        rows.copy("Memcpy HtoD (Pinned -> Device)", at + 30, 6_000, rows.call("cudaMemcpyAsync", at + 1, 3), stream="9")
        times = np.arange(100, until, every).tolist()
        for time in [*times, until]:
            rows.call(call, at + time, 3, thread)
            if between:
                rows.launch(at + time + 5, "aside", at + time + 12, 1)
        for k in range(20):
            rows.launch(at + until + 3 + then + 5 * k, f"k{k}", at + until + 20 + then + 100 * k, 90)
    return rows.trace()


@pytest.mark.parametrize(("how", "waited"), [
    ({"until": 6_040}, 5_930),                                # from the first question to the copy's end
    ({"until": 6_040, "call": "hipStreamQuery"}, 5_930),
    ({"until": 6_040, "call": "aclrtQueryEventStatus"}, 5_930),
    ({"until": 6_040, "call": "cudaGetDevice"}, 0),           # asks for nothing
    ({"until": 6_200}, 0),                                    # goes on asking after it: waits for something else
    ({"until": 5_000}, 0),                                    # stopped before its end
    ({"until": 6_040, "thread": "side"}, 0),                  # a thread that launches nothing
    ({"until": 6_040, "then": 1_500}, 0),                     # and then does other work
    ({"until": 6_040, "every": 5_950}, 0),                    # asked twice, in passing
    ({"until": 6_040, "every": 2_500}, 0),                    # other work between the questions
    ({"until": 6_040, "every": 1_070}, 5_930),                # sleeps for a millisecond between them
    ({"until": 6_040, "between": True}, 0),                   # asks while it works
])
def test_a_host_that_asks_again_and_again_until_a_copy_is_done_waits_for_it(
        how: dict[str, object], waited: float) -> None:
    walked = walk(asked(**how))  # type: ignore[arg-type]
    assert share(walked) == pytest.approx(waited / 10_000, abs=0.01)


def test_a_load_that_the_engine_asks_for_is_bound_by_the_link_and_no_work_of_the_host() -> None:
    found = Signals(walk(asked(until=6_040)).signals)
    verdict = judge(found, fingerprints.load(), contradictions(found))
    assert verdict.id == "bandwidth-bound"
    assert "device.copy_over_host_op_fraction" not in found


def test_where_the_launch_of_what_follows_is_unknown_so_is_the_wait() -> None:
    walked = walk(one_copy(30, 912, linked=False))
    assert "device.copy_wait_fraction" not in {s.name for s in walked.signals}
    assert "launch of what follows" in walked.unknown["device.copy_wait_fraction"]


def test_of_a_chain_of_copies_each_holds_up_what_was_queued_behind_it() -> None:
    """Copies 0–400 and 400–800 on one stream; a kernel behind each, of 100, both launched at the start."""
    rows = Rows()
    rows.annotation("ProfilerStep#1", 0, 1_000)
    for start in (0, 400):
        rows.copy("Memcpy HtoD (Pinned -> Device)", start + 10, 400, rows.call("cudaMemcpyAsync", 1 + start / 100, 2),
                  stream="9")
    for i, start in enumerate((411, 811)):
        rows.launch(6 + 4 * i, f"k{i}", start, 100)
    walked = walk(rows.trace())
    assert share(walked, "device.copy_fraction") == pytest.approx(0.7)     # 800 less 100 beside the kernel
    assert share(walked) == pytest.approx(0.7)


def test_what_kernels_wait_for_behind_copies_in_the_background_is_told() -> None:
    """Steps of 6,000: a copy of 5,820 that nobody waits for, 4,000 in the scheduler, then kernels one by one."""
    rows = Rows()
    for i in range(8):
        at = 6_000.0 * i
        rows.annotation(f"ProfilerStep#{i}", at, 5_999)
        rows.copy("Memcpy HtoD (Pinned -> Device)", at + 5, 5_820, rows.call("cudaMemcpyAsync", at + 1, 3), stream="9")
        rows.python("engine/scheduler.py(80): schedule", at + 20, 4_000)
        for k in range(15):
            rows.op("aten::mm", at + 4_095 + 100 * k, 12)
            rows.launch(at + 4_100 + 100 * k, f"k{k}", at + 4_110 + 100 * k, 90)
    walked = walk(rows.trace())
    assert share(walked, "device.busy_fraction") > 0.95
    note = next(note for note in walked.notes if "only copies run and nothing waits for them" in note)
    assert "host busy with work that launches nothing 7" in note                      # 4,100 and more of 6,000
    assert "mostly engine/scheduler.py(80): schedule" in note
    assert share(walked, "device.copy_over_host_op_fraction") == pytest.approx(
        (4_105 + 225) / 6_000, abs=0.01)        # of the copy, before the first kernel and behind the last one
    found = Signals(walked.signals)
    verdict = judge(found, fingerprints.load(), contradictions(found))
    assert (verdict.level, verdict.id) == (Level.PROBABLE, "host-bound")


def test_of_copies_that_kernels_wait_for_nothing_of_that_kind_is_said() -> None:
    assert not any("nothing waits for them" in note for note in walk(one_copy(30, 912)).notes)


def intervals(cuts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint intervals between every second pair of distinct, sorted times."""
    times = np.unique(np.array(cuts, np.int64))
    times = times[:len(times) // 2 * 2]
    return times[0::2], times[1::2]


@given(st.lists(st.integers(0, 60), max_size=12), st.lists(st.integers(0, 60), max_size=12))
def test_intervals_less_others_hold_the_moments_that_only_the_first_hold(a: list[int], b: list[int]) -> None:
    def moments(start: np.ndarray, end: np.ndarray) -> set[int]:
        return {t for s, e in zip(start.tolist(), end.tolist(), strict=True) for t in range(s, e)}

    first, second = intervals(a), intervals(b)
    left = _without(*first, *second)
    assert moments(*left) == moments(*first) - moments(*second)
    assert (left[1] > left[0]).all()
