"""Whose device readings are whose: files that something proves to be of two hosts are never averaged."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.samples import Recorder, Samples
from xpu_triage.telemetry import devices
from xpu_triage.telemetry.hosts import IDENTITY, hosts


def file(source: str, utilization: list[float], *, start: float = 1000.0, memory: float | None = None,
         total: float = 80_000, name: str = "", identity: str = "", tool: str = "nvidia-smi --query-gpu",
         clock: str = "epoch", of: str = "0") -> Samples:
    """Readings of device 0, one a second."""
    recorder = Recorder()
    for i, value in enumerate(utilization):
        time = start + i if clock else None
        recorder.add(of, "utilization", value, time=time)
        recorder.add(of, "memory_total", total, time=time)
        if memory is not None:
            recorder.add(of, "memory_used", memory, time=time)
    for what, said in (("name", name), (IDENTITY, identity)):
        if said:
            recorder.say(of, what, said)
    return recorder.samples(tool, source, clock=clock)


def labels(*samples: Samples) -> list[tuple[str, ...]]:
    return [tuple(each.source for each in host.samples) for host in hosts(samples)]


BUSY, IDLE = [0.98, 0.97, 0.99, 0.98], [0.0, 0.0, 0.01, 0.0]


def test_readings_of_one_moment_that_differ_are_of_two_devices() -> None:
    assert labels(file("a.csv", BUSY), file("b.csv", IDLE)) == [("a.csv",), ("b.csv",)]


def test_readings_of_one_moment_that_agree_may_be_of_one() -> None:
    assert labels(file("a.csv", BUSY), file("b.csv", BUSY)) == [("a.csv", "b.csv")]


def test_two_loops_on_two_hosts_need_not_tick_together() -> None:
    assert len(labels(file("a.csv", BUSY), file("b.csv", IDLE, start=1000.4))) == 2


def test_a_load_that_comes_and_goes_is_one_device_to_two_loops() -> None:
    """Half a second apart one device may read 0 and 1; ranges without a common value are what proves two."""
    assert len(labels(file("a.csv", [0.0, 1.0, 0.0, 1.0]), file("b.csv", [1.0, 0.0, 1.0, 0.0], start=1000.4))) == 1


def test_files_one_after_the_other_are_one_host() -> None:
    assert labels(file("0.csv", BUSY), file("1.csv", IDLE, start=2000.0)) == [("0.csv", "1.csv")]


@pytest.mark.parametrize("other", [
    file("b.csv", BUSY, start=2000.0, total=24_000), file("b.csv", BUSY, start=2000.0, name="NVIDIA L4")])
def test_another_model_or_memory_under_one_index_is_another_host(other: Samples) -> None:
    assert len(labels(file("a.csv", BUSY, name="NVIDIA H100"), other)) == 2


def test_an_identity_decides_over_all_else() -> None:
    one, same, other = (file("x/a.csv", BUSY, identity="1"), file("y/b.csv", IDLE, identity="1"),
                        file("x/c.csv", BUSY, start=9000.0, identity="2"))
    assert labels(one, same, other) == [("x/a.csv", "y/b.csv"), ("x/c.csv",)]


def test_without_one_files_of_different_folders_are_of_different_hosts() -> None:
    assert len(labels(file("x/gpu.csv", BUSY), file("y/gpu.csv", BUSY, start=2000.0))) == 2
    assert len(labels(file("x/gpu.csv", BUSY), file("y/dmon.txt", BUSY, tool="nvidia-smi dmon"))) == 1


def test_files_without_times_in_one_folder_stay_together() -> None:
    assert len(labels(file("a.txt", BUSY, clock=""), file("b.txt", IDLE, clock=""))) == 1


def test_other_devices_of_one_host_are_no_other_host() -> None:
    assert len(labels(file("0.csv", BUSY), file("1.csv", IDLE, of="1"))) == 1


def test_the_busiest_host_is_measured_and_never_a_mean_of_two() -> None:
    measured = devices.measure([file("a.csv", BUSY, memory=60_000), file("b.csv", IDLE, memory=60_000)])
    signal = next(one for one in measured.signals if one.name == "device.utilization_fraction")
    assert signal.value == pytest.approx(0.98)                             # (0.98 + 0.97 + 0.99 + 0.98) ÷ 4
    assert "device 0 of a.csv, the busiest of 2" in signal.window
    assert signal.source == "a.csv"
    assert any(note.startswith("readings of 2 hosts: those of a.csv are used") and "b.csv 0%" in note
               for note in measured.notes)


def test_a_process_counts_for_the_host_that_lists_it() -> None:
    """Device 0 of b.csv has a process on it, device 0 of a.csv has none."""
    listed = Recorder()
    for i, value in enumerate(IDLE):
        listed.add("0", "utilization", value, time=1000.0 + i)
    listed.say("7", "device", "0", kind="process")
    measured = devices.measure([file("a.csv", BUSY), listed.samples("nvidia-smi --query-gpu", "b.csv", clock="epoch")])
    assert next(one.source for one in measured.signals if one.name == "device.utilization_fraction") == "b.csv"


def test_one_host_is_told_without_a_label() -> None:
    measured = devices.measure([file("a.csv", BUSY)])
    assert all(" of a.csv" not in signal.window for signal in measured.signals)
    assert not any("hosts" in note for note in measured.notes)


def test_files_of_one_name_are_told_by_their_folder() -> None:
    found = hosts([file("run/x/gpu.csv", BUSY), file("run/y/gpu.csv", BUSY)])
    assert [host.label for host in found] == ["x/gpu.csv", "y/gpu.csv"]


@given(st.lists(st.sampled_from([
    file("a.csv", BUSY), file("b.csv", IDLE), file("x/c.csv", BUSY), file("d.txt", IDLE, clock=""),
    file("e.csv", BUSY, identity="1"), file("f.csv", IDLE, identity="1")]), unique_by=lambda one: one.source),
    st.randoms())
def test_every_file_has_one_host_and_the_order_does_not_matter(files: list[Samples], order: random.Random) -> None:
    found = labels(*files)
    assert sorted(itertools.chain(*found)) == sorted(one.source for one in files)
    order.shuffle(files)
    assert labels(*files) == found
