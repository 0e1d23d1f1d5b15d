"""Another program is bounded in time and in what it prints, and its processor time is known."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from xpu_triage.live import command
from xpu_triage.live.probe import Trouble


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_both_streams_the_exit_code_and_the_processor_time_come_back():
    code = ("import sys, time\nwhile time.process_time() < 0.2: pass\n"
            "print(time.process_time()); print('err', file=sys.stderr); sys.exit(3)")
    began = time.monotonic()
    done = command.run(python(code), timeout_s=60)
    assert (done.err, done.code, done.first_line) == ("err\n", 3, "err")
    own_s = float(done.out)
    assert 0.2 <= own_s <= done.cpu_s + 0.02  # the kernel counts in ticks
    assert done.cpu_s <= time.monotonic() - began + 0.02, "of one thread"


@pytest.mark.parametrize("code", ["exec sleep 60", "sleep 60; exit", "trap '' TERM; echo x; sleep 60; exit"],
                         ids=["silent", "waits for a child", "ignores SIGTERM"])
def test_a_program_that_does_not_end_is_ended(code, monkeypatch):
    started = []

    class Kept(subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            started.append(self)

    monkeypatch.setattr(command.subprocess, "Popen", Kept)
    with pytest.raises(Trouble, match=r"within 0\.5 s"):
        command.run(("/bin/sh", "-c", code), timeout_s=0.5)
    assert [process.returncode for process in started] == [-9], "ended, and not by itself"


class Later:
    """Stands for `time` in a program's run, in which the first wait for its end takes two minutes."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def sleep(self, seconds):
        self.ahead = 120.0
        time.sleep(seconds)


def test_a_program_that_closes_its_output_and_lives_on_is_ended_too(monkeypatch):
    monkeypatch.setattr(command, "time", Later())
    code = "import os,time; os.close(1); os.close(2); time.sleep(60)"
    assert command.run(python(code), timeout_s=60).code == -9


def test_a_program_that_prints_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(command, "MAX_OUTPUT", 1 << 20)
    with pytest.raises(Trouble, match="prints more than 1 MiB"):
        command.run(python("while True: print('x' * 9999)"), timeout_s=60)


def test_a_program_that_is_not_there_is_one_line_and_final():
    with pytest.raises(Trouble, match="no-such-smi does not start: No such file") as trouble:
        command.run(("/nowhere/no-such-smi",), timeout_s=1)
    assert trouble.value.final


def test_the_environment_of_a_program_has_no_key_of_ours(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    env = command.environment(["MY_KEY"])
    done = command.run(python("import os; print(os.environ)"), timeout_s=60, env=env)
    assert "sk-0123456789" not in done.out
    assert "'TZ': 'UTC'" in done.out
