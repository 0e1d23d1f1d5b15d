"""The server's profiler is started, always stopped when it was started, and its trace collected."""

from __future__ import annotations

import gzip
import json
import os
from threading import Event

import pytest

from live_servers import answer, serving, silent
from xpu_triage.evidence import chunks
from xpu_triage.live import profiler
from xpu_triage.live.clock import Clock
from xpu_triage.live.folder import Folder
from xpu_triage.live.profiler import Profiler, chosen
from xpu_triage.live.request import Client
from xpu_triage.redact import Redactor

TRACE = b'{"traceEvents": [\n{"ph": "X", "name": "/home/alice/serve/app.py(3): step", "ts": 1, "dur": 2}\n]}'


def run(tmp_path, replies, *, on_stop=lambda folder: None, traces=True, clock=None, **more):
    """Profile a server that answers so; the profiler, and what was asked of the server."""
    there, out = tmp_path / "traces", tmp_path / "out"
    there.mkdir(exist_ok=True)
    out.mkdir()

    def talk(connection, head):
        path = head.split()[1].decode()
        if path == "/stop_profile":
            on_stop(there)
        reply = replies.get(path, answer(b"", "404 Not Found"))
        if reply:
            connection.sendall(reply)
        else:
            silent(connection, head)

    with serving(talk) as served:
        one = Profiler(Client(served.address), Folder(out), clock or Clock(), directory=there if traces else None,
                       step_ms=1.0, poll_s=0.05, **more)
        one.run(Event())
    return one, served


OK = {"/start_profile": answer(b""), "/stop_profile": answer(b"")}


def test_the_worker_s_trace_is_taken_and_the_front_end_s_left(tmp_path):
    def write(folder):
        (folder / "w_rank0.17.pt.trace.json.gz").write_bytes(gzip.compress(TRACE))
        (folder / "h_9.async_llm.18.pt.trace.json.gz").write_bytes(gzip.compress(TRACE))

    one, served = run(tmp_path, OK, on_stop=write)
    assert served.asked == ["POST /start_profile", "POST /stop_profile"]
    assert [path.name for path in (tmp_path / "out/trace").iterdir()] == ["w_rank0.17.pt.trace.json.gz"]
    assert list(one.folder.files) == ["trace/w_rank0.17.pt.trace.json.gz"]


def test_a_trace_that_was_there_before_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler, "COLLECT_S", 0.3)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/old.json").write_bytes(TRACE)
    one, _ = run(tmp_path, OK)
    assert one.notes[-1] == f"no new trace in {tmp_path / 'traces'}"
    assert not (tmp_path / "out/trace").exists()


def test_a_server_without_a_profiler_says_how_to_turn_it_on_and_is_not_stopped(tmp_path):
    one, served = run(tmp_path, {})
    assert served.asked == ["POST /start_profile"]
    assert one.notes == [profiler.ENABLE_VLLM]
    assert "--profiler-config" in one.notes[0]


@pytest.mark.parametrize("reply", [
    answer(b"Profiling is already in progress. Call /stop_profile first.", "400 Bad Request"),
    answer(b"busy", "409 Conflict"),
    answer(b'{"success": false, "message": "Profiling is already in progress"}'),
])
def test_somebody_else_s_profiling_is_left_alone(tmp_path, reply):
    one, served = run(tmp_path, {"/start_profile": reply})
    assert served.asked == ["POST /start_profile"]
    assert one.notes == ["the server's profiler is running already: left alone, and not stopped"]


def test_sglang_is_told_how_many_steps_and_where(tmp_path):
    _, served = run(tmp_path, OK, engine="sglang", on_stop=lambda folder: (folder / "1-TP-0.json").write_bytes(TRACE))
    body = json.loads(served.heads[0].partition(b"\r\n\r\n")[2])
    assert body == {"num_steps": 12, "output_dir": str(tmp_path / "traces")}


def test_a_stop_that_times_out_is_said_and_the_trace_taken_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler, "STOP_S", 0.3)
    one, _ = run(tmp_path, {**OK, "/stop_profile": b""}, on_stop=lambda folder: (folder / "w.json").write_bytes(TRACE))
    assert any("within 0.3 s: a worker's trace may be whole all the same" in note for note in one.notes)
    assert (tmp_path / "out/trace/w.json").read_bytes() == TRACE


def test_a_start_that_times_out_is_stopped_because_it_may_have_started(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler, "START_S", 0.3)
    _, served = run(tmp_path, {**OK, "/start_profile": b""})
    assert served.asked == ["POST /start_profile", "POST /stop_profile"]


@pytest.mark.parametrize(("reply", "said"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "breaks off in its answer"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + bytes(1 << 20) * 17, "answers with more than 16 MiB"),
    (b"nonsense\r\n\r\n", "does not answer in HTTP"),
    (answer(b"gateway", "504 Gateway Timeout"), "/start_profile answers 504: nothing was profiled"),
    (answer(b"\x1f\x8bjunk", "200 OK", "Content-Encoding: gzip"), "answers with damaged gzip"),
])
def test_a_start_that_may_have_happened_is_stopped_whatever_the_answer(tmp_path, reply, said):
    one, served = run(tmp_path, {**OK, "/start_profile": reply})
    assert served.asked == ["POST /start_profile", "POST /stop_profile"]
    assert len(one.notes) == 1
    assert said in one.notes[0]


@pytest.mark.parametrize("reply", [
    answer(b"", "307 Temporary Redirect", "Location: http://elsewhere/start_profile"),
    answer(b"boom\x1b[31m<script>", "500 Internal Server Error"),
    answer(b"who are you", "401 Unauthorized"),
])
def test_a_start_that_did_not_happen_is_not_stopped_and_is_one_clean_line(tmp_path, reply):
    one, served = run(tmp_path, {**OK, "/start_profile": reply})
    assert served.asked == ["POST /start_profile"]
    assert len(one.notes) == 1
    assert "\x1b" not in one.notes[0]
    assert not (tmp_path / "out/trace").exists()


@pytest.mark.parametrize(("reply", "said"), [
    (answer(b"", "500 Internal Server Error"), "/stop_profile answers 500: the server may still be profiling"),
    (b"junk\r\n\r\n", "a worker's trace may be whole all the same"),
])
def test_a_stop_that_fails_is_said_and_the_trace_taken(tmp_path, reply, said):
    def write(folder):
        (folder / "w.json").write_bytes(TRACE)

    one, _ = run(tmp_path, {**OK, "/stop_profile": reply}, on_stop=write)
    assert any(said in note for note in one.notes)
    assert (tmp_path / "out/trace/w.json").read_bytes() == TRACE


def test_a_trace_that_never_ends_is_taken_as_it_is_and_said(tmp_path, monkeypatch):
    """It has grown whenever it is looked at, by a clock that goes on where somebody waits."""
    monkeypatch.setattr(profiler, "COLLECT_S", 0.4)

    class Growing(Clock):
        gone_s = 0.0

        def now(self):
            return self.gone_s

        def wait(self, seconds, stop):
            self.gone_s += seconds
            with (tmp_path / "traces/w.json").open("ab") as file:
                file.write(b"{},\n")
            return stop.is_set()

    one, _ = run(tmp_path, OK, clock=Growing())
    assert "the trace was still being written when it was copied" in one.notes


def test_a_trace_that_inflates_without_end_costs_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "RATIO_FREE", 1 << 20)
    bomb = gzip.compress(b" " * (8 << 20))
    one, _ = run(tmp_path, OK, on_stop=lambda folder: (folder / "w.json.gz").write_bytes(bomb),
                 redact=Redactor(b"salt").text)
    assert any("w.json.gz cannot be copied" in note and "inflate to more than" in note for note in one.notes)
    assert not list((tmp_path / "out/trace").iterdir())


def test_links_pipes_and_folders_among_the_traces_are_not_followed(tmp_path):
    (tmp_path / "secret.json").write_bytes(TRACE)

    def write(folder):
        (folder / "link.json").symlink_to(tmp_path / "secret.json")
        os.mkfifo(folder / "pipe.json")
        (folder / "folder.json").mkdir()
        (folder / "w.json").write_bytes(TRACE)

    run(tmp_path, OK, on_stop=write)
    assert [path.name for path in (tmp_path / "out/trace").iterdir()] == ["w.json"]


def test_ctrl_c_while_it_records_stops_the_profiler_and_takes_the_trace(tmp_path):
    class Interrupted(Clock):
        waits = 0

        def wait(self, seconds, stop):
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return super().wait(seconds, stop)

    _, served = run(tmp_path, OK, clock=Interrupted(), on_stop=lambda folder: (folder / "w.json").write_bytes(TRACE))
    assert served.asked == ["POST /start_profile", "POST /stop_profile"]
    assert (tmp_path / "out/trace/w.json").exists()


def test_without_a_folder_to_look_in_it_says_where_the_trace_is(tmp_path):
    one, _ = run(tmp_path, OK, traces=False)
    assert one.notes[-1] == "the trace lies where the server runs: give --profile-dir where that is on this machine"


def test_names_are_taken_out_of_a_trace_and_of_its_file_s_name(tmp_path):
    def write(folder):
        (folder / "rack7_1234.17.pt.trace.json.gz").write_bytes(gzip.compress(TRACE))

    run(tmp_path, OK, on_stop=write, redact=Redactor(b"salt").text)
    (path,) = (tmp_path / "out/trace").iterdir()
    assert path.name == "0000.pt.trace.json.gz"
    event = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"][0]
    assert event["name"].startswith("path-")
    assert event["name"].endswith("/app.py(3): step")
    assert "alice" not in event["name"]


def test_a_folder_full_of_traces_is_taken_in_part_and_said(tmp_path):
    notes = []
    assert len(chosen([tmp_path / f"r{rank}.json" for rank in range(20)], notes)) == profiler.MAX_FILES
    assert notes == ["20 traces: the first 8 are taken"]
    assert chosen([tmp_path / "a.async_llm.json"], []) == [tmp_path / "a.async_llm.json"]
