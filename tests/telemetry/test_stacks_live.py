"""py-spy looks into a real process that spins where this test put it, and the reader names that place."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xpu_triage.evidence import pyspy
from xpu_triage.samples import Stacks
from xpu_triage.telemetry.stack_looks import Doing, look
from xpu_triage.telemetry.stacks import measure

SPINS = """
import time
def known_operator():
    end = time.monotonic() + 600
    while time.monotonic() < end:
        pass
def execute_model():
    known_operator()
print("ready", flush=True)
execute_model()
"""
SAMPLES = """
import time, torch
torch.set_num_threads(1)
scores = torch.empty(64, 100_000)
def random_sample():
    end = time.monotonic() + 600
    print("ready", flush=True)
    while time.monotonic() < end:
        scores.exponential_()
def execute_model():
    random_sample()
execute_model()
"""


def tool() -> str:
    path = Path(sys.executable).with_name("py-spy")
    if not path.exists():
        pytest.skip("py-spy is not installed (pip install py-spy)")
    return str(path)


@contextmanager
def running(script: Path, code: str) -> Iterator[int]:
    """The pid of a child that has reached its loop."""
    script.write_text(code)
    command = [sys.executable, str(script), "--api-key", "secret"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child.pid
        finally:
            child.kill()


def dump(pid: int, path: Path, *options: str) -> Stacks:
    done = subprocess.run([tool(), "dump", "--pid", str(pid), *options], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"py-spy cannot look into a child process here: {done.stderr.strip().splitlines()[-1:]}")
    path.write_text(done.stdout)
    assert pyspy.matches(done.stdout)
    return pyspy.read(path)


def test_a_child_that_spins_in_a_function_is_seen_there_in_every_format(tmp_path: Path) -> None:
    tool()
    with running(tmp_path / "spin.py", SPINS) as pid:
        looks = [dump(pid, tmp_path / f"{at}.txt") for at in range(4)]
        looks += [dump(pid, tmp_path / "dump.json", "--json"), dump(pid, tmp_path / "locals.txt", "--locals")]
        for name in ("raw", "speedscope"):
            path = tmp_path / f"record.{name}"
            subprocess.run([tool(), "record", "--pid", str(pid), "--format", name, "--duration", "1", "--rate", "20",
                            "--output", str(path)], check=True, capture_output=True, timeout=300)
            looks.append(pyspy.read(path))
    for stacks in looks:
        frames = [[frame.function for frame in stack.frames] for stack in stacks.stacks]
        assert ["known_operator", "execute_model", "<module>"] in frames
        assert "secret" not in repr(stacks)
    measured = {signal.name: signal.value for signal in measure(looks[:6]).signals}
    assert measured == {"host.top_op": "known_operator (spin.py)", "host.top_op_fraction": 1.0}


def test_a_child_that_draws_on_the_cpu_is_seen_in_that_operator(tmp_path: Path) -> None:
    tool()
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed (extra lab)")
    with running(tmp_path / "draw.py", SAMPLES) as pid:
        looks = [dump(pid, tmp_path / f"{at}.txt", "--native") for at in range(5)]
    if not any(look(stack).native for stacks in looks for stack in stacks.stacks):
        pytest.skip("py-spy gives no native frames on this platform")
    seen = [look(stack) for stacks in looks for stack in stacks.stacks if stack.thread == "MainThread"]
    assert [one.name for one in seen if one.doing is Doing.ON_CPU].count("aten::exponential_") >= 3
    measured = measure(looks)
    assert {signal.name: signal.value for signal in measured.signals}["host.top_op"] == "aten::exponential_"
    assert "fallback.op" in measured.unknown        # nothing tells that this process was meant for a device
