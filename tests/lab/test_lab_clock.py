"""The real clock knows what other programs took from the run, by time that it is given in these tests."""

from __future__ import annotations

import pytest

from xpu_triage.lab import clock as module
from xpu_triage.lab.clock import RealClock, VirtualClock

MS = 1_000_000


class Machine:
    """Stands for `time`: what passes, and how much of it this thread was run for."""

    def __init__(self) -> None:
        self.passed = self.run = 0
        self.overslept = 0
        """By how much a sleep is longer than asked for."""

    def perf_counter_ns(self) -> int:
        return self.passed

    def thread_time_ns(self) -> int:
        return self.run

    def sleep(self, seconds: float) -> None:
        self.passed += round(seconds * 1e9) + self.overslept

    def work(self, ns: int, *, of: int) -> None:
        """This thread is run for `ns` while `of` pass."""
        self.run, self.passed = self.run + ns, self.passed + of


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(module, "time", machine)
    monkeypatch.setattr(module, "_SPIN_NS", 0)
    return machine


def test_work_that_is_run_throughout_is_not_held_up(machine: Machine):
    clock = RealClock()
    machine.work(10 * MS, of=10 * MS)
    assert clock.held_up_ns() == 0


def test_work_that_is_interrupted_is_held_up_by_the_difference(machine: Machine):
    machine.work(3 * MS, of=50 * MS)  # before the clock starts
    clock = RealClock()
    machine.work(4 * MS, of=10 * MS)
    assert clock.held_up_ns() == 6 * MS
    machine.work(1 * MS, of=2 * MS)
    assert clock.held_up_ns() == 7 * MS


def test_a_wait_is_no_hold_up_and_its_late_end_is(machine: Machine):
    clock = RealClock()
    clock.wait_until(20 * MS)
    assert (clock.now(), clock.held_up_ns()) == (20 * MS, 0)
    machine.overslept = 5 * MS
    clock.wait_until(30 * MS)
    assert (clock.now(), clock.held_up_ns()) == (35 * MS, 5 * MS)
    clock.wait_until(10 * MS)  # over before it began
    assert clock.held_up_ns() == 5 * MS


def test_waiting_for_another_thread_is_no_hold_up_whatever_it_burns(machine: Machine):
    clock = RealClock()
    clock.wait_for(lambda: machine.work(2 * MS, of=30 * MS))
    assert clock.held_up_ns() == 0
    machine.work(1 * MS, of=4 * MS)
    assert clock.held_up_ns() == 3 * MS, "what was burnt while waiting makes up for nothing"


def test_counted_time_is_never_held_up():
    clock, called = VirtualClock(), []
    clock.work(5 * MS)
    clock.wait_for(lambda: called.append(1))
    assert (clock.held_up_ns(), clock.now(), called) == (0, 5 * MS, [1])
