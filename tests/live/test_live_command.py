"""Another program is bounded in time and in what it prints, and its processor time is known."""

from __future__ import annotations

import sys
import time

import pytest

from xpu_triage.live import command
from xpu_triage.live.probe import Trouble


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_both_streams_the_exit_code_and_the_processor_time_come_back():
    code = ("import sys, time\nwhile time.process_time() < 0.2: pass\n"
            "print('out'); print('err', file=sys.stderr); sys.exit(3)")
    done = command.run(python(code), timeout_s=10)
    assert (done.out, done.err, done.code, done.first_line) == ("out\n", "err\n", 3, "err")
    assert 0.2 <= done.cpu_s < 2.0


@pytest.mark.parametrize("code", [
    "import time; time.sleep(30)",
    "import subprocess,sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(30)'])",
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(30)",
], ids=["silent", "waits for a child", "ignores SIGTERM"])
def test_a_program_that_does_not_end_is_ended(code):
    began = time.monotonic()
    with pytest.raises(Trouble, match=r"within 0\.5 s"):
        command.run(python(code), timeout_s=0.5)
    assert time.monotonic() - began < 3


def test_a_program_that_closes_its_output_and_lives_on_is_ended_too():
    assert command.run(python("import os,time; os.close(1); os.close(2); time.sleep(30)"), timeout_s=0.5).code == -9


def test_a_program_that_prints_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(command, "MAX_OUTPUT", 1 << 20)
    with pytest.raises(Trouble, match="prints more than 1 MiB"):
        command.run(python("while True: print('x' * 9999)"), timeout_s=10)


def test_a_program_that_is_not_there_is_one_line_and_final():
    with pytest.raises(Trouble, match="no-such-smi does not start: No such file") as trouble:
        command.run(("/nowhere/no-such-smi",), timeout_s=1)
    assert trouble.value.final


def test_the_environment_of_a_program_has_no_key_of_ours(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    env = command.environment(["MY_KEY"])
    done = command.run(python("import os; print(os.environ)"), timeout_s=10, env=env)
    assert "sk-0123456789" not in done.out
    assert "'TZ': 'UTC'" in done.out
