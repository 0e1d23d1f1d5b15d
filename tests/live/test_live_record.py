"""The schedule keeps its beat and its end, one probe's trouble is its own, and Ctrl-C keeps what there is."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtual_time import VirtualClock
from xpu_triage.errors import UnusableInput
from xpu_triage.live import record
from xpu_triage.live.clock import Clock, iso
from xpu_triage.live.folder import Folder, prepared
from xpu_triage.live.probe import Trouble
from xpu_triage.live.record import Track, following


class FakeClock(Clock):
    """Time that passes only where somebody waits."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def utc(self):
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.time)

    def wait(self, seconds, stop):
        self.time += max(seconds, 0.0)
        return stop.is_set()


class FakeProbe:
    def __init__(self, clock, what=lambda: None, *, name="fake", interval_s=2.0, delay_s=0.0):
        self.name, self.interval_s, self.delay_s, self.notes = name, interval_s, delay_s, []
        self._clock, self._what = clock, what
        self.at, self.closed = [], 0

    def sample(self):
        self.at.append(self._clock.now())
        self._what()

    def close(self):
        self.closed += 1


def run(probe, clock, *, seconds=10.0, stop=None):
    track = Track(probe)
    record.run(track, clock, clock.now() + seconds, stop or Event())
    return track


def test_samples_are_on_the_beat_until_the_end_and_the_probe_is_closed_once():
    clock = FakeClock()
    probe = FakeProbe(clock, delay_s=1.0)
    track = run(probe, clock)
    assert probe.at == [101.0, 103.0, 105.0, 107.0, 109.0]
    assert (track.samples, track.ended, probe.closed) == (5, True, 1)


def test_a_slow_sample_costs_the_beats_it_missed_and_they_are_not_made_up_for():
    clock = FakeClock()
    takes = iter([0.5, 4.5, 0.5])

    def slow():
        clock.time += next(takes, 0.0)

    probe = FakeProbe(clock, slow)
    run(probe, clock)
    assert probe.at == [100.0, 102.0, 108.0]


def test_trouble_is_counted_by_its_line_and_the_next_sample_is_tried():
    clock = FakeClock()

    def fail():
        raise Trouble("no answer\nwithin 5 s \x1b[31m")

    track = run(FakeProbe(clock, fail), clock)
    assert track.lines() == [r"no answer within 5 s \x1b[31m (5 times)"]
    assert track.samples == 0


def test_final_trouble_ends_the_probe_and_a_full_disk_does_not():
    clock = FakeClock()
    errors = iter([OSError(28, "No space left on device"), Trouble("not permitted", final=True)])

    def fail():
        raise next(errors)

    probe = FakeProbe(clock, fail)
    track = run(probe, clock)
    assert len(probe.at) == 2
    assert track.lines() == ["cannot be written: No space left on device", "not permitted"]


def test_an_error_that_nobody_expected_is_named_without_its_text_and_given_up_after_three():
    clock = FakeClock()

    def fail():
        raise ValueError("sk-secret in the message")

    probe = FakeProbe(clock, fail)
    track = run(probe, clock)
    assert len(probe.at) == 3
    assert track.lines() == ["unexpected ValueError (3 times)"]


@given(st.floats(0, 1e6), st.floats(0.5, 60), st.floats(0, 1e4))
def test_the_next_beat_is_after_now_and_on_the_grid(due, interval_s, late):
    after = following(due, interval_s, due + late)
    assert after > due + late - 1e-6
    beats = (after - due) / interval_s
    assert beats == pytest.approx(round(beats), abs=1e-6)
    assert after - (due + late) <= interval_s + 1e-6


def written(folder):
    return json.loads((folder.path / "watch.json").read_text())


def watched(tmp_path, probes, clock, **more):
    folder = Folder(tmp_path)
    return folder, record.watch(folder, probes, clock=clock, facts={"asked": {}}, **more)


def test_one_probe_s_failure_stops_no_other_and_both_are_in_the_record(tmp_path):
    clock = VirtualClock()

    def fail():
        raise Trouble("nothing listens there", final=True)

    good = FakeProbe(clock, interval_s=2.0, name="good")
    folder, recording = watched(tmp_path, [FakeProbe(clock, fail, name="bad"), good], clock, seconds=9.0)
    assert good.at == [100.0, 102.0, 104.0, 106.0, 108.0]
    assert recording.said == ["bad: nothing listens there"]
    said = written(folder)
    assert {one["name"]: one["failed"] for one in said["probes"]} == {"bad": ["nothing listens there"], "good": []}
    assert said["interrupted"] is False
    assert 8.0 <= said["seconds"] <= 9.0, "no beat is left after the one at 8 s"


def test_the_record_ends_in_time_though_a_probe_hangs(tmp_path, monkeypatch):
    """The probe is let go only after the record has ended."""
    monkeypatch.setattr(record, "GRACE_S", 0.2)
    hangs, let_go = threading.Event(), threading.Event()

    class OnceItHangs(FakeClock):
        def wait(self, seconds, stop):
            if seconds > 0:
                assert hangs.wait(60)
            return super().wait(seconds, stop)

    def hang():
        hangs.set()
        let_go.wait(120)

    clock = OnceItHangs()
    _, recording = watched(tmp_path, [FakeProbe(clock, hang, name="stuck")], clock, seconds=30.0)
    let_go.set()
    assert recording.said == ["stuck: still waiting for an answer when the time was up"]
    assert recording.seconds == 30.0


def test_ctrl_c_ends_the_recording_and_keeps_what_there_is(tmp_path):
    clock = VirtualClock()
    folder = Folder(tmp_path)
    probe = FakeProbe(clock, lambda: folder.append("data.csv", "row\n", header="head\n"), interval_s=0.05)

    def tick(gone_s):
        raise KeyboardInterrupt

    asked = []
    recording = record.watch(folder, [probe], seconds=60, clock=clock, facts={}, tick=tick, after=asked.append)
    assert recording.interrupted
    assert recording.seconds == 0.5, "the first tick"
    assert written(folder)["interrupted"] is True
    assert (tmp_path / "data.csv").read_text().startswith("head\nrow\nrow\n")
    assert probe.closed == 1
    assert asked == []


def test_the_record_is_there_from_the_start_and_says_nothing_of_the_machine(tmp_path):
    seen = []
    clock = VirtualClock()
    folder = Folder(tmp_path)
    probe = FakeProbe(clock, lambda: seen.append(written(folder)))
    record.watch(folder, [probe], seconds=0.3, clock=clock, facts={"asked": {"server": None}})
    assert seen[0]["watch"] == 1
    assert seen[0]["seconds"] is None
    assert set(written(folder)) == {"watch", "version", "started", "seconds", "interrupted", "asked", "probes", "notes",
                                    "files"}


def test_times_are_written_to_the_millisecond_in_utc():
    assert iso(datetime(2026, 11, 30, 6, 20, 31, 123_999, UTC)) == "2026-11-30T06:20:31.123Z"


def test_a_folder_with_anything_in_it_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UnusableInput, match=r"holds notes\.txt already"):
        prepared(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_earlier_recording_is_refused_but_for_one_that_came_to_nothing(tmp_path):
    (tmp_path / "watch.json").write_text('{"watch": 1, "seconds": 3.0}')
    assert prepared(tmp_path) == tmp_path
    (tmp_path / "processes.csv").write_text("x")
    with pytest.raises(UnusableInput, match="A recording needs a new folder"):
        prepared(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UnusableInput, match="cannot be used as a folder"):
        prepared(tmp_path / "out")


def test_a_folder_that_another_recording_just_began_is_refused(tmp_path):
    (tmp_path / "watch.json").write_text('{"watch": 1, "seconds": null}')
    with pytest.raises(UnusableInput, match=r"holds watch.json already"):
        prepared(tmp_path)


def test_a_path_that_cannot_be_one_is_one_line(tmp_path):
    with pytest.raises(UnusableInput, match="cannot be used as a folder"):
        prepared(tmp_path / "a\0b")


def test_what_fails_after_the_recording_costs_one_line_and_not_the_record(tmp_path):
    def fails(notes):
        raise RuntimeError("secret")

    recording = record.watch(Folder(tmp_path), [], seconds=0.01, clock=Clock(), facts={}, after=fails)
    assert recording.notes == ["unexpected RuntimeError after the recording"]
    assert json.loads((tmp_path / "watch.json").read_text())["seconds"] is not None


def test_what_fails_is_told_as_soon_as_it_does_and_once(tmp_path):
    clock = VirtualClock()
    told: list[tuple[str, float]] = []

    def refuses():
        raise Trouble("refuses the connection")

    probe = FakeProbe(clock, refuses, name="server", interval_s=2.0, delay_s=1.2)
    done = record.watch(Folder(tmp_path), [probe], seconds=30.0, clock=clock, facts={},
                        tell=lambda line: told.append((line, clock.now() - 100.0)))
    assert [line for line, _ in told] == ["server: refuses the connection"]
    assert 1.2 <= told[0][1] <= 1.2 + 2 * record.TICK_S
    assert done.said == ["server: refuses the connection (15 times)"]
