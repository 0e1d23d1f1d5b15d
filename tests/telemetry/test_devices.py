"""The device's signals from readings made by hand: means, what is no mean, which device, and what misleads."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.samples import Recorder, Samples
from xpu_triage.telemetry import devices
from xpu_triage.telemetry.measured import Measured

Values = Sequence[float | None]


def sampled(of: str = "0", *, tool: str = "tool", clock: str = "epoch", start: float = 0.0, every: float = 1.0,
            facts: dict[str, str] | None = None, **quantities: Values) -> Samples:
    """Readings of one device, one every `every` seconds."""
    recorder = Recorder()
    for quantity, read in quantities.items():
        for i, value in enumerate(read):
            recorder.add(of, quantity, value, time=start + i * every if clock else None)
    for name, value in (facts or {}).items():
        recorder.say(of, name, value, time=start)
    return recorder.samples(tool, f"{tool}.txt", clock=clock)


def values(measured: Measured) -> dict[str, object]:
    assert all(signal.how == "smi" for signal in measured.signals)
    return {signal.name: signal.value for signal in measured.signals}


def window(measured: Measured, name: str) -> str:
    return next(signal.window for signal in measured.signals if signal.name == name)


def test_utilization_is_the_mean_and_its_spread_is_said() -> None:
    measured = devices.measure([sampled(utilization=[0, 1, 0, 0.2], memory_activity=[0, 0.5, 0, 0.1])])
    assert values(measured) == pytest.approx({"device.utilization_fraction": 0.3,
                                              "device.memory_active_fraction": 0.15})
    assert window(measured, "device.utilization_fraction") == "0%–100%, 4 readings over 3 s"


def test_an_unknown_reading_is_not_zero() -> None:
    assert values(devices.measure([sampled(utilization=[0.4, None, 0.4, 0.4])])) == pytest.approx(
        {"device.utilization_fraction": 0.4})


@pytest.mark.parametrize(("samples", "why"), [
    (sampled(utilization=[0]), r"one reading \(0%\) is not a mean"),
    (sampled(utilization=[0, 1]), r"2 readings \(0% and 100%\) are no mean"),
    (sampled(utilization=[0, 1, 0.5, 0.5], every=0.2), "4 readings within 0.6 s are as good as one"),
    (sampled(tool="xpu-smi", utilization=[None] * 3, power=[1]), r"xpu-smi says that it does not know it \(N/A\)"),
    (sampled(utilization=[900, 900, 900]), "which is no share"),
    (sampled(memory_used=[3], memory_total=[4]), "gives no utilization"),
])
def test_what_is_no_mean_is_unknown_and_says_why(samples: Samples, why: str) -> None:
    measured = devices.measure([samples])
    assert "device.utilization_fraction" not in values(measured)
    assert re.search(why, measured.unknown["device.utilization_fraction"])


def test_memory_held_needs_one_reading_only() -> None:
    assert values(devices.measure([sampled(memory_used=[60_000], memory_total=[80_000])])) == {
        "device.memory_used_fraction": 0.75}
    assert values(devices.measure([sampled(memory_used_fraction=[0.94])])) == {"device.memory_used_fraction": 0.94}


def test_several_files_of_one_tool_make_a_series() -> None:
    files = [sampled(utilization=[used], start=10 * i) for i, used in enumerate((0.0, 0.3, 0.6))]
    measured = devices.measure(files)
    assert values(measured)["device.utilization_fraction"] == pytest.approx(0.3)
    assert window(measured, "device.utilization_fraction") == "0%–60%, 3 readings over 20 s"


def test_only_readings_while_requests_ran_count() -> None:
    samples = sampled(utilization=[0, 0, 0, 0.8, 0.9, 1.0, 0, 0], start=1000)
    measured = devices.measure([samples], busy_spans=[(1003, 1005)])
    assert values(measured)["device.utilization_fraction"] == pytest.approx(0.9)
    assert "while requests ran" in window(measured, "device.utilization_fraction")


@pytest.mark.parametrize("spans", [[(5000.0, 5010.0)], []])
def test_readings_that_miss_the_requests_are_unknown(spans: list[tuple[float, float]]) -> None:
    measured = devices.measure([sampled(utilization=[0, 0, 0, 0], memory_used_fraction=[0.9])], busy_spans=spans)
    assert values(measured) == {"device.memory_used_fraction": 0.9}
    assert "none of the 4 readings was taken while requests ran" in measured.unknown["device.utilization_fraction"]


@pytest.mark.parametrize("clock", ["day", "start", ""])
def test_readings_of_another_clock_count_and_it_is_said(clock: str) -> None:
    measured = devices.measure([sampled(utilization=[0.2] * 4, clock=clock)], busy_spans=[(5000, 5010)])
    assert values(measured) == pytest.approx({"device.utilization_fraction": 0.2})
    assert any("no times that can be compared" in note for note in measured.notes)


def test_the_busiest_device_is_measured_and_the_others_are_said() -> None:
    measured = devices.measure([sampled("0", utilization=[0.1] * 3), sampled("1", utilization=[0.9] * 3),
                                sampled("10", utilization=[0.3] * 3)])
    assert values(measured)["device.utilization_fraction"] == pytest.approx(0.9)
    assert "device 1, the busiest of 3; the others 10% to 30%" in window(measured, "device.utilization_fraction")


def test_a_device_without_the_model_is_not_measured() -> None:
    idle_but_serving = sampled("0", utilization=[0] * 3, memory_used_fraction=[0.9])
    somebody_else = sampled("1", utilization=[0.8] * 3, memory_used_fraction=[0.1])
    measured = devices.measure([idle_but_serving, somebody_else])
    assert values(measured)["device.utilization_fraction"] == 0
    assert "device 0, the only one with memory in use (of 2)" in window(measured, "device.utilization_fraction")


def test_a_process_tells_which_device_serves() -> None:
    recorder = Recorder()
    recorder.say("4242", "device", "1", kind="process")
    listed = recorder.samples("tool", "processes")
    measured = devices.measure([sampled("0", utilization=[0.8] * 3), sampled("1", utilization=[0.1] * 3), listed])
    assert values(measured)["device.utilization_fraction"] == pytest.approx(0.1)


CLOCKS = {"core_clock": [990.0] * 3, "core_clock_max": [1980.0], "memory_clock": [2600.0] * 3,
          "memory_clock_max": [2600.0], "power": [210.0] * 3, "power_limit": [300.0], "power_rated": [700.0]}


def test_clocks_and_power_of_a_loaded_device_are_shares_of_their_highest() -> None:
    found = values(devices.measure([sampled(utilization=[0.95] * 3, facts={"limit_reason": "sw_power_cap"}, **CLOCKS)]))
    assert {name: found[name] for name in found if not name.startswith("device.")} == pytest.approx({
        "clock.core_fraction": 0.5, "clock.memory_fraction": 1.0, "power.draw_fraction": 0.7,
        "power.limit_fraction": 3 / 7, "clock.limit_reason": "sw_power_cap"})


def test_clocks_and_power_of_an_idle_device_say_nothing() -> None:
    measured = devices.measure([sampled(utilization=[0.0] * 3, facts={"limit_reason": "gpu_idle"}, **CLOCKS)])
    assert set(values(measured)) == {"device.utilization_fraction", "power.limit_fraction"}
    for name in ("clock.core_fraction", "clock.memory_fraction", "power.draw_fraction", "clock.limit_reason"):
        assert "under load is not known" in measured.unknown[name]


def test_with_requests_running_an_idle_device_s_power_counts() -> None:
    measured = devices.measure([sampled(utilization=[0.0] * 3, **CLOCKS)], busy_spans=[(0, 10)])
    assert values(measured)["power.draw_fraction"] == pytest.approx(0.7)


def test_without_a_maximum_a_clock_is_unknown() -> None:
    measured = devices.measure([sampled(utilization=[1] * 3, core_clock=[1980] * 3, power=[634] * 3)])
    assert measured.unknown["clock.core_fraction"] == "1,980 MHz, and the tool does not give the device's highest clock"
    assert measured.unknown["power.draw_fraction"] == "634 W, and the tool does not give the power limit"


def test_two_tools_complete_each_other() -> None:
    found = values(devices.measure([sampled(tool="dmon", utilization=[1] * 3, core_clock=[990] * 3),
                                    sampled(tool="query", core_clock_max=[1980])]))
    assert found["clock.core_fraction"] == 0.5


def test_two_tools_that_disagree_are_said_and_the_longer_is_used() -> None:
    measured = devices.measure([sampled(tool="short", utilization=[1] * 3), sampled(tool="long", utilization=[0] * 9)])
    assert values(measured)["device.utilization_fraction"] == 0
    assert any("long reads 0% utilization and short 100%" in note for note in measured.notes)


@pytest.mark.parametrize(("said", "reason"), [
    ("none", "none"), ("gpu_idle", "idle"), ("GPU Idle", "idle"), ("sw_power_cap", "sw_power_cap")])
def test_what_the_driver_says_of_its_clocks_is_kept_idle_as_well(said: str, reason: str) -> None:
    found = devices.measure([sampled(utilization=[1] * 3, facts={"limit_reason": said})])
    assert values(found)["clock.limit_reason"] == reason


@pytest.mark.parametrize(("said", "reason"), [
    (("gpu_idle", "none"), "none"), (("gpu_idle", "hw_thermal_slowdown"), "hw_thermal_slowdown")])
def test_idle_at_some_moments_only_is_no_reason_of_the_load(said: tuple[str, str], reason: str) -> None:
    files = [sampled(utilization=[1] * 3, start=10.0 * i, facts={"limit_reason": text}) for i, text in enumerate(said)]
    assert values(devices.measure(files))["clock.limit_reason"] == reason


def test_readings_of_an_exporter_are_the_metrics_and_say_whose_they_are() -> None:
    measured = devices.measure([sampled(tool="DCGM exporter", utilization=[0.2] * 3)])
    (signal,) = measured.signals
    assert (signal.how, signal.value) == ("metrics", pytest.approx(0.2))
    assert signal.window.startswith("20%–20%, 3 readings over 2 s (DCGM exporter)")


@pytest.mark.parametrize(("samples", "remark"), [
    (sampled(utilization=[1] * 3, memory_activity=[0] * 3, power=[119] * 3, power_limit=[700]),
     "100% busy at 17% of its power with 0% memory activity: a kernel that spins or hangs"),
    (sampled(utilization=[1] * 3, power=[31] * 3, power_limit=[210]), "some tools read 100 % on an idle device"),
    (sampled(utilization=[1] * 3, memory_activity=[0] * 3), "Its power would tell"),
    (sampled(utilization=[0] * 3, memory_used_fraction=[0.94]), "holds 94% of its memory"),
    (sampled(utilization=[None] * 3, power=[280] * 3), "draws 280 W, and the tool knows no utilization"),
    (sampled("0/MIG 2", utilization=[None] * 3, memory_used_fraction=[0.5]), "a MIG instance has no utilization"),
])
def test_what_misleads_is_said(samples: Samples, remark: str) -> None:
    assert any(remark in note for note in devices.measure([samples]).notes)


def test_a_busy_device_at_full_power_is_no_remark() -> None:
    samples = sampled(utilization=[1] * 3, memory_activity=[0.5] * 3, power=[650] * 3, power_limit=[700])
    assert devices.measure([samples]).notes == ()


def test_names_from_evidence_are_cleaned() -> None:
    shown = repr(devices.measure([sampled("\x1b[31m0", utilization=[1] * 3, memory_activity=[0] * 3),
                                  sampled("1", utilization=[0] * 3)]))
    assert "\x1b" not in shown
    assert "x1b[31m0" in shown


def test_nothing_gives_nothing() -> None:
    assert devices.measure([]) == Measured()
    assert devices.measure([Recorder().samples("tool", "empty")]) == Measured()


@given(st.lists(st.floats(0, 1), min_size=3, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(used: list[float], order: random.Random) -> None:
    files = [sampled(utilization=[value], start=10.0 * i) for i, value in enumerate(used)]
    expected = values(devices.measure(files))["device.utilization_fraction"]
    order.shuffle(files)
    found = devices.measure(files)
    assert values(found)["device.utilization_fraction"] == pytest.approx(expected)
    assert expected == pytest.approx(sum(used) / len(used))


def test_a_device_without_the_model_s_memory_while_requests_run_is_said() -> None:
    held = {"utilization": [0.0] * 3, "memory_used": [500.0] * 3, "memory_total": [80_000.0] * 3}
    told = devices.measure([sampled("0", **held)], busy_spans=[(0, 9)])
    assert any("holds 1% of its memory while requests run" in note for note in told.notes)     # 500 of 80,000
    assert not any("while requests run:" in note for note in devices.measure([sampled("0", **held)]).notes)


def test_a_clock_counts_at_the_moments_at_which_the_device_works() -> None:
    """An idle device lowers its clock, whatever the requests do: two of five readings are of work."""
    one = sampled(utilization=[0, 0.8, 0, 0.9, 0], core_clock=[345, 1980, 345, 1900, 345], core_clock_max=[1980] * 5,
                  power=[80] * 5, power_limit=[700] * 5)
    found = devices.measure([one], busy_spans=[(0, 10)])
    assert "2 readings" in found.unknown["clock.core_fraction"]
    more = sampled(utilization=[0, 0.8, 0.9, 0.9, 0], core_clock=[345, 1980, 1980, 1980, 345],
                   core_clock_max=[1980] * 5)
    assert values(devices.measure([more], busy_spans=[(0, 10)]))["clock.core_fraction"] == 1.0


def test_a_device_that_reads_idle_throughout_has_no_clock_under_load() -> None:
    idle = sampled(utilization=[0.0] * 4, core_clock=[345] * 4, core_clock_max=[1980] * 4, power=[80] * 4,
                   power_limit=[700] * 4)
    found = devices.measure([idle], busy_spans=[(0, 10)])
    assert "clock.core_fraction" not in values(found)
    assert "an idle one lowers its clocks" in found.unknown["clock.core_fraction"]
    assert values(found)["power.draw_fraction"] == pytest.approx(80 / 700), "little power under load is a finding"


def test_one_slow_device_among_peers_is_told_though_the_busiest_is_measured() -> None:
    group = [sampled(str(i), utilization=[0.97 if i else 0.99] * 4, core_clock=[900 if i == 2 else 1980] * 4,
                     core_clock_max=[1980] * 4) for i in range(4)]
    found = devices.measure(group)
    assert values(found)["clock.core_fraction"] == 1.0
    assert any("of 4 devices at work device 2 at 900 MHz, the fastest at 1,980" in note for note in found.notes)
    idle = [*group[:2], sampled("2", utilization=[0.0] * 4, core_clock=[345] * 4)]
    assert not any("at work" in note for note in devices.measure(idle).notes)
