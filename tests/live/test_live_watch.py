"""The command: what it refuses, what it writes and prints, and that no key is in any of it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count

import pytest

from live_servers import METRICS, always, answer, dead_port, serving, silent
from virtual_time import VirtualClock
from xpu_triage.diagnosis import diagnose
from xpu_triage.errors import UnusableInput
from xpu_triage.live import arguments as command
from xpu_triage.live import server, stacks, watch
from xpu_triage.live.clock import Clock
from xpu_triage.live.folder import Folder

KEY = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    """A recording in this process keeps its beat, however busy the machine is."""
    monkeypatch.setattr(watch, "Clock", VirtualClock)


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(given)


def run(tmp_path, *given: str) -> int:
    return watch.run(arguments("--out", str(tmp_path / "out"), "--device", "none", "--seconds", "1.2", *given))


def everything(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


TOKENS = count(100, 100)


def counting(connection, _):
    connection.sendall(answer(METRICS.replace(b"} 100.0", b"} %d.0" % next(TOKENS))))


def test_a_server_is_recorded_and_the_record_diagnosed(tmp_path, capsys):
    with serving(counting) as served:
        code = run(tmp_path, "--server", served.url, "--interval", "0.5")
    assert code in (0, 3)
    out = capsys.readouterr().out
    assert "2 step time" in out
    assert "serving.running" in out
    assert len(list((tmp_path / "out/metrics").iterdir())) == 3
    said = json.loads((tmp_path / "out/watch.json").read_text())
    assert said["asked"]["server"] == served.url
    assert said["probes"][0]["samples"] == 3


def test_step_two_is_on_screen_within_the_recording_in_plain_lines(tmp_path, capsys):
    with serving(counting) as served:
        run(tmp_path, "--server", served.url, "--interval", "0.5")
    lines = capsys.readouterr().out.splitlines()
    assert " s  2 step time: serving.running 4" in lines[0]


def test_json_is_alone_on_stdout(tmp_path, capsys):
    with serving(counting) as served:
        code = run(tmp_path, "--server", served.url, "--json")
    printed = capsys.readouterr()
    assert json.loads(printed.out)["schema"]
    assert code in (0, 3)
    assert "record: " in printed.err


def test_a_key_is_sent_and_is_in_no_file_and_no_output_though_the_server_repeats_it(tmp_path, capsys, monkeypatch):
    def echo(connection, head):
        connection.sendall(answer(METRICS + b'# HELP echo %s\necho{a="%s"} 1\n' % (KEY.encode(), KEY.encode())))

    monkeypatch.setenv(watch.KEY, KEY)
    monkeypatch.setenv("MY_KEY", f"{KEY}-other")
    with serving(echo) as served:
        run(tmp_path, "--server", served.url, "--pid", "auto", "--header", "X-Api-Key: env:MY_KEY")
        assert f"Authorization: Bearer {KEY}".encode() in served.heads[0]
        assert f"X-Api-Key: {KEY}-other".encode() in served.heads[0]
    printed = capsys.readouterr()
    assert KEY.encode() not in everything(tmp_path / "out")
    assert KEY not in printed.out + printed.err
    assert b'echo{a="[secret]"} 1' in everything(tmp_path / "out")


def test_a_dead_server_is_one_line_and_leaves_a_folder_that_can_be_used_again(tmp_path, capsys):
    with dead_port() as port, pytest.raises(UnusableInput) as error:
        run(tmp_path, "--server", f"http://127.0.0.1:{port}")
    assert "nothing could be recorded" in str(error.value)
    assert "refuses the connection: nothing listens there" in str(error.value)
    assert "\n" not in str(error.value)
    with serving(counting) as served:
        assert run(tmp_path, "--server", served.url) in (0, 3)


@pytest.mark.parametrize(("given", "said"), [
    (["--seconds", "0"], "--seconds is between 1 and 3600"),
    (["--seconds", "nan"], "--seconds is between"),
    (["--interval", "0.01"], "--interval is at least 0.5 s"),
    (["--device", "none"], "nothing to watch"),
    (["--profile"], "--profile asks the server"),
    (["--profile-dir", "/nowhere"], "goes with --profile"),
    (["--profile", "--server", "h", "--profile-dir", "/nowhere"], "is no folder here"),
    (["--pid", "sh"], "wants a process id, or auto"),
    (["--server", "ftp://h"], "only http and https"),
    (["--header", f"Authorization: Bearer {KEY}"], "the value is read from the environment"),
    (["--header", "X: env:NOT_THERE"], "the environment has no NOT_THERE"),
])
def test_what_makes_no_sense_is_refused_in_one_line_before_anything_is_written(tmp_path, given, said):
    with pytest.raises(UnusableInput) as error:
        watch.run(arguments("--out", str(tmp_path / "out"), *given))
    assert said in str(error.value)
    assert KEY not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_key_that_would_break_out_of_its_header_is_refused_without_repeating_it():
    with pytest.raises(UnusableInput) as error:
        watch.headers_of(["X: env:V"], {"V": "hunter2\r\nX-Evil: 1"})
    assert "hunter2" not in str(error.value)


def test_a_given_header_replaces_the_default_one():
    headers, secrets = watch.headers_of(["authorization: Token env:V"], {watch.KEY: "default-key", "V": "another-key"})
    assert headers == {"authorization": "Token another-key"}
    assert set(secrets) == {watch.KEY, "V"}


def test_options_do_not_show_their_keys():
    options = watch.options_of(arguments("--out", "x", "--server", "h"), {watch.KEY: KEY})
    assert KEY not in repr(options)


def test_redact_takes_names_out_of_the_folder_and_the_output(tmp_path, capsys):
    body = METRICS.replace(b'model_name="m"', b'model_name="/home/alice/acme-7b",Hostname="rack7",tenant="acme"')
    with serving(always(answer(body))) as served:
        run(tmp_path, "--server", served.url, "--redact")
    text = everything(tmp_path / "out")
    printed = capsys.readouterr().out
    assert not [name for name in (b"alice", b"acme", b"rack7") if name in text]
    assert str(tmp_path) not in printed
    assert json.loads((tmp_path / "out/watch.json").read_text())["redacted"] is True


def test_the_time_is_bounded_with_a_server_that_never_answers(tmp_path, monkeypatch):
    """It waits for ever for the client to leave; in real time."""
    monkeypatch.setattr(server, "TIMEOUT_S", 0.4)
    with serving(silent) as served:
        given = arguments("--out", "x", "--device", "none", "--server", served.url, "--seconds", "1")
        recording = watch.recorded(watch.options_of(given, {}), Folder(tmp_path), lambda _: None, clock=Clock())
    assert recording.said == [f"server: {served.url}/metrics gives no whole answer within 0.4 s"]


def test_the_profiler_runs_after_everything_else_and_its_trace_is_in_the_record(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()

    def talk(connection, head):
        path = head.split()[1]
        if path == b"/stop_profile":
            (traces / "w_rank0.pt.trace.json").write_text('{"traceEvents": []}')
        connection.sendall(answer(METRICS if path == b"/metrics" else b""))

    with serving(talk) as served:
        given = arguments("--out", "x", "--device", "none", "--server", served.url, "--seconds", "1", "--profile",
                          "--profile-dir", str(traces))
        recording = watch.recorded(watch.options_of(given, {}), Folder(tmp_path / "out"), lambda _: None,
                                   step_ms=lambda: 50.0)
    assert served.asked == ["GET /metrics", "POST /start_profile", "POST /stop_profile"]
    assert recording.notes == [f"profiled with {served.url}/start_profile"]
    said = json.loads((tmp_path / "out/watch.json").read_text())
    assert "trace/w_rank0.pt.trace.json" in said["files"]
    assert (tmp_path / "out/trace/w_rank0.pt.trace.json").exists()


def test_without_the_flag_nothing_is_posted(tmp_path):
    with serving(counting) as served:
        given = arguments("--out", "x", "--device", "none", "--server", served.url, "--seconds", "1")
        watch.recorded(watch.options_of(given, {}), Folder(tmp_path / "out"), lambda _: None)
    assert {line.split()[0] for line in served.asked} == {"GET"}


def test_sigterm_ends_like_ctrl_c_with_a_record(tmp_path):
    with serving(counting) as served:
        code = ("import sys; from xpu_triage.live import arguments; import argparse; p = argparse.ArgumentParser();"
                "arguments.add_arguments(p); a = p.parse_args(); sys.exit(a.run(a))")
        given = ("--server", served.url, "--device", "none", "--interval", "0.5", "--out", str(tmp_path / "out"))
        child = subprocess.Popen([sys.executable, "-c", code, "--seconds", "60", *given], stdout=subprocess.PIPE,
                                 text=True)
        killer = threading.Timer(120, child.kill)
        killer.start()
        try:
            while len(served.heads) < 2 and child.poll() is None:
                time.sleep(0.05)
            os.kill(child.pid, signal.SIGTERM)
            out, _ = child.communicate()
        finally:
            killer.cancel()
            child.kill()
    assert child.returncode in (0, 3)
    assert "2 step time" in out
    assert json.loads((tmp_path / "out/watch.json").read_text())["interrupted"] is True


def test_two_watches_of_one_server_at_once_each_have_a_whole_record(tmp_path):
    clock = VirtualClock()

    def one(name: str) -> None:
        given = arguments("--out", "x", "--device", "none", "--server", served.url, "--seconds", "1.2",
                          "--interval", "0.5")
        recordings[name] = watch.recorded(watch.options_of(given, {}), Folder(tmp_path / name), lambda _: None,
                                          clock=clock)

    recordings: dict[str, object] = {}
    with serving(counting) as served:
        threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    for name in ("a", "b"):
        assert recordings[name].said == []
        assert len(list((tmp_path / name / "metrics").iterdir())) == 3
        assert diagnose(tmp_path / name).signals.value("serving.running") == 4
    assert len(served.heads) == 6


def test_a_missing_permission_for_stacks_costs_the_stacks_alone_and_is_in_the_record(tmp_path, capsys, monkeypatch):
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(stacks.StacksProbe.__init__, "__kwdefaults__",
                        {**stacks.StacksProbe.__init__.__kwdefaults__, "program": lambda: str(program)})
    with serving(counting) as served:
        assert run(tmp_path, "--server", served.url, "--interval", "0.5", "--pid", str(os.getpid())) in (0, 3)
    printed = capsys.readouterr()
    assert "it needs CAP_SYS_PTRACE" in printed.err
    assert "serving.running" in printed.out
    assert "it needs CAP_SYS_PTRACE" in (tmp_path / "out/watch.json").read_text()
    assert (tmp_path / "out/processes.csv").exists()
    assert not (tmp_path / "out/stacks").exists()


def test_importing_the_command_loads_none_of_its_optional_packages():
    code = ("import sys, xpu_triage.live.watch, xpu_triage.live.process, xpu_triage.live.stacks\n"
            "print([m for m in ('psutil', 'pynvml', 'rich', 'torch', 'httpx') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
