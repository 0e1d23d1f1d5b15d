"""Ctrl-C and SIGTERM at any moment: one line, an exit code, no traceback and nothing temporary left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from live_servers import METRICS, answer, serving

COMMAND = [sys.executable, "-m", "xpu_triage"]
ONE_LINE = {signal.SIGINT: (130, "xpu-triage: interrupted\n"), signal.SIGTERM: (143, "xpu-triage: terminated\n")}
ENTERED = ("import sys, xpu_triage.__main__ as entry; at_once = entry.interrupts.end_at_once\n"
           "entry.interrupts.end_at_once = lambda: (at_once(), print('in', flush=True))\n"
           "sys.exit(entry.main())")
"""Says when signals are in hand, which is the first thing that the command does."""


def started(*words: str, tmp=None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"TMPDIR": str(tmp)} if tmp else {})}
    return subprocess.Popen([sys.executable, "-c", ENTERED, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment, start_new_session=True)


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = child.communicate(timeout=180)
    finally:
        child.kill()
    return child.returncode, out, err


@pytest.fixture
def sheets(tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir()
    for number in range(30):
        (folder / f"s{number}.yaml").write_text("schema: 1\nsignals: {step.wall_ms: 30, serving.running: 4}\n")
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_whatever_moment_it_comes_it_is_one_line_or_the_verdict(sheets, number):
    """From the moment on at which the command has signals in hand; what Python does before that is its own."""
    seen = set()
    for wait_s in (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6):
        child = started("diagnose", str(sheets))
        assert child.stdout.readline() == "in\n"
        time.sleep(wait_s)
        child.send_signal(number)
        code, out, err = ended(child)
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        quiet = (-int(number), "")  # after the answer, while the interpreter shuts down
        assert (code, err) in (ONE_LINE[number], (0, ""), (3, ""), quiet)
        assert code != 3 or "evidence" in out, "a verdict comes whole"
        seen.add(code)
    assert ONE_LINE[number][0] in seen


def test_a_signal_that_an_import_turns_into_another_error_is_still_an_interrupt():
    code = ("import signal, sys\nfrom xpu_triage import interrupts\n"
            "def command():\n"
            "    interrupts.end_in_order()\n"
            "    try: signal.raise_signal(signal.SIGINT)\n"
            "    except KeyboardInterrupt: raise ImportError('numpy._core.multiarray failed to import') from None\n"
            "sys.exit(interrupts.run(command))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == ONE_LINE[signal.SIGINT]


def test_an_import_error_without_a_signal_is_not_hidden():
    code = ("from xpu_triage import interrupts\n"
            "def command(): raise ImportError('real')\n"
            "interrupts.run(command)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: real" in done.stderr


def test_a_signal_in_a_finalizer_is_delivered_once_more():
    code = ("import signal, sys, time\nfrom xpu_triage import interrupts\n"
            "class Closing:\n"
            "    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
            "def command():\n"
            "    interrupts.end_in_order()\n"
            "    one = Closing(); del one\n"
            "    for _ in range(100): time.sleep(0.05)\n"
            "    return 0\n"
            "sys.exit(interrupts.run(command))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == ONE_LINE[signal.SIGINT]


def test_once_the_command_is_over_a_signal_changes_nothing():
    code = ("import atexit, os, signal, sys\nfrom xpu_triage import interrupts\n"
            "def command():\n"
            "    interrupts.end_in_order()\n"
            "    return 3\n"
            "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
            "sys.exit(interrupts.run(command))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")


def test_what_was_ignored_when_it_started_stays_ignored(sheets):
    child = subprocess.Popen([*COMMAND, "diagnose", str(sheets)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    assert code in (0, 3)
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_report_that_is_ended_leaves_no_file_and_no_folder(sheets, tmp_path, number):
    pytest.importorskip("papermill")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    child = started("diagnose", str(sheets), "--report", str(tmp_path / "out/r.html"), tmp=temporary)
    until = time.monotonic() + 180
    while not list(temporary.glob("xpu-triage-*")) and time.monotonic() < until and child.poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)
    child.send_signal(number)
    code, out, err = ended(child)
    assert code == ONE_LINE[number][0]
    assert "evidence" in out, "the verdict was there before"
    assert err.startswith(ONE_LINE[number][1])
    assert "Traceback" not in err
    assert not list(temporary.glob("xpu-triage-*"))
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_that_is_ended_gives_its_verdict(tmp_path, number):
    count = [0]

    def talk(connection, _):
        count[0] += 100
        connection.sendall(answer(METRICS.replace(b"} 100.0", b"} %d.0" % count[0])))

    with serving(talk) as served:
        child = started("watch", "--server", served.url, "--device", "none", "--interval", "0.5", "--seconds", "60",
                        "--out", str(tmp_path / "out"))
        until = time.monotonic() + 180
        while len(served.heads) < 3 and time.monotonic() < until and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(number)
        code, out, err = ended(child)
    assert code in (0, 3)
    assert "2 step time" in out
    assert "record: " in out
    assert "Traceback" not in err
    assert re.search(r"watched for [\d.]+ s, then interrupted", out)
