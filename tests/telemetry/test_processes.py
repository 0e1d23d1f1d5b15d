"""Who uses the CPU, from readings made by hand."""

from __future__ import annotations

import pytest

from xpu_triage.samples import Recorder, Samples
from xpu_triage.telemetry import processes
from xpu_triage.telemetry.measured import Measured


def sampled(cpu: dict[str, list[float | None]], roles: dict[str, str] | None = None, *, tool: str = "xpu-triage watch",
            host: list[float] | None = None, start: float = 0.0) -> Samples:
    recorder = Recorder()
    for of, values in cpu.items():
        for i, value in enumerate(values):
            recorder.add(of, "cpu", value, time=start + i, kind="process")
    for pid, role in (roles or {}).items():
        recorder.say(pid, "role", role, kind="process")
    for i, value in enumerate(host or []):
        recorder.add("", "host_cpu", value, time=start + i, kind="host")
    return recorder.samples(tool, "processes.csv", clock="epoch")


def values(measured: Measured) -> dict[str, object]:
    assert all(signal.how == "os" for signal in measured.signals)
    return {signal.name: signal.value for signal in measured.signals}


def test_the_busiest_process_its_role_and_its_siblings() -> None:
    measured = processes.measure([sampled(
        {"1": [0.9, 1.1], "2": [0.02, 0.04], "3": [0.0, 0.02], "4": [0.5, 0.5]},
        {"1": "detokenizer", "2": "detokenizer", "3": "detokenizer", "4": "engine"}, host=[0.01, 0.03])])
    assert values(measured) == pytest.approx({
        "process.busiest_cpu_cores": 1.0, "process.busiest_name": "detokenizer", "process.sibling_cpu_cores": 0.02,
        "process.host_cpu_fraction": 0.02})
    assert measured.signals[0].window == "pid 1, 0.90–1.10 cores, 2 readings over 1 s"


def test_a_process_alone_in_its_role_has_no_siblings() -> None:
    found = values(processes.measure([sampled({"1": [1.0], "2": [0.1]}, {"1": "engine", "2": "api server"})]))
    assert "process.sibling_cpu_cores" not in found


def test_threads_are_not_processes_and_the_busiest_is_said() -> None:
    measured = processes.measure([sampled({"1": [1.5], "1/10": [0.98], "1/11": [0.5], "2": [1.2]},
                                          {"1": "worker", "2": "worker"})])
    assert values(measured)["process.busiest_cpu_cores"] == 1.5
    assert values(measured)["process.sibling_cpu_cores"] == 1.2
    assert "its busiest thread 0.98" in measured.signals[0].window
    assert "spinning" in measured.notes[0]


def test_threads_alone_add_up() -> None:
    assert values(processes.measure([sampled({"1/10": [0.5, 0.7], "1/11": [0.2]}, {"1": "engine"})]))[
        "process.busiest_cpu_cores"] == pytest.approx(0.8)


def test_a_machine_that_others_use_says_so_and_one_that_the_service_uses_does_not() -> None:
    def said(cores: float, host: float) -> list[str]:
        found = processes.measure([sampled({"1": [cores], "2": [0.05]}, {"1": "engine", "2": "api server"},
                                           host=[host])])
        return [note for note in found.notes if "others use it" in note]

    assert said(0.26, 0.93) == ["93% of the machine's CPU is in use, 0.31 cores of it by the service's processes: "
                                "others use it, which is no sign of what the service does"]
    assert not said(0.26, 0.3)
    assert not said(0.95, 0.93)


def test_of_a_list_of_the_whole_machine_only_the_service_counts() -> None:
    measured = processes.measure([sampled({"1": [8.0], "2": [0.7]}, {"2": "scheduler"}, tool="top")])
    assert values(measured) == {"process.busiest_cpu_cores": 0.7, "process.busiest_name": "scheduler"}
    strangers = processes.measure([sampled({"1": [8.0]}, tool="pidstat")])
    assert values(strangers) == {}
    assert "none of 1 processes has a title" in strangers.unknown["process.busiest_cpu_cores"]


def test_a_watched_process_without_a_role_has_no_name() -> None:
    measured = processes.measure([sampled({"1": [0.7]})])
    assert values(measured) == {"process.busiest_cpu_cores": 0.7}
    assert "cannot be told from its title" in measured.unknown["process.busiest_name"]


def test_only_readings_while_requests_ran_count() -> None:
    samples = sampled({"1": [0.0, 1.0, None, 0.8, 0.0]}, {"1": "engine"}, host=[0.0, 0.5, 0.5, 0.5, 0.0], start=100)
    found = values(processes.measure([samples], busy_spans=[(101, 103)]))
    assert found["process.busiest_cpu_cores"] == pytest.approx(0.9)
    assert found["process.host_cpu_fraction"] == 0.5
    assert values(processes.measure([samples], busy_spans=[(900, 950)])) == {}


def test_a_front_end_that_is_full_while_the_engine_gets_nothing_counts() -> None:
    samples = sampled({"11": [1.0, 0.9, 1.0], "12": [0.02, 0.02, 0.02]}, {"11": "api server", "12": "worker"},
                      host=[0.02, 0.02, 0.02])
    measured = processes.measure([samples], busy_spans=[])
    assert values(measured)["process.busiest_name"] == "api server"
    assert values(measured)["process.busiest_cpu_cores"] == pytest.approx((1.0 + 0.9 + 1.0) / 3)
    said = {signal.name: signal.window for signal in measured.signals}
    assert said["process.busiest_cpu_cores"].endswith("3 readings over 2 s while no request ran in the engine")
    assert said["process.host_cpu_fraction"].endswith("while no request ran in the engine")
    known = processes.measure([samples])
    assert "no request ran" not in known.signals[0].window


def test_nothing_gives_nothing() -> None:
    assert processes.measure([]) == Measured()


@pytest.mark.parametrize(("cores", "named"), [
    ({"1": 0.97, "2": 1.0}, "detokenizer"),      # a scheduler polls in a full core, and the other is full as well
    ({"1": 0.7, "2": 1.0}, "scheduler"),         # not full
    ({"1": 0.95, "2": 7.8}, "scheduler"),        # that is no polling
])
def test_of_full_processes_the_one_before_the_engine_is_named_since_the_engine_s_poll(cores, named) -> None:
    found = values(processes.measure([sampled({pid: [value] * 3 for pid, value in cores.items()},
                                              {"1": "detokenizer", "2": "scheduler"})]))
    assert found["process.busiest_name"] == named
    assert found["process.busiest_cpu_cores"] == pytest.approx(cores["1" if named == "detokenizer" else "2"])
