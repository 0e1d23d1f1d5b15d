"""A few dumps of the process that runs the model, with neither locals nor command lines in them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from xpu_triage.evidence import pyspy
from xpu_triage.live import command
from xpu_triage.live.clock import Clock
from xpu_triage.live.command import Done
from xpu_triage.live.folder import Folder
from xpu_triage.live.probe import Trouble
from xpu_triage.live.stacks import StacksProbe, kept, py_spy

THREAD = {
    "pid": 7, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": True,
    "process_info": {"command_line": "serve --api-key hunter2"},
    "frames": [{"name": "sample", "filename": "/x/site-packages/vllm/sampler.py", "module": None, "line": 3,
                "short_filename": "vllm/sampler.py", "locals": [{"name": "prompt", "repr": "hunter2"}]}],
}
TARGET = (7, "worker")


def probe(tmp_path, answers, **more) -> StacksProbe:
    replies = iter(answers)
    return StacksProbe(lambda: TARGET, lambda argv: next(replies), Folder(tmp_path), Clock(), seconds=30.0,
                       program=lambda: "py-spy", **more)


def test_a_dump_is_written_without_locals_and_command_lines_and_the_reader_reads_it(tmp_path):
    probe(tmp_path, [Done(json.dumps([THREAD]), "", 0, 0.05)]).sample()
    path = tmp_path / "stacks/0000.json"
    assert "hunter2" not in path.read_text()
    (stack,) = pyspy.read(path).stacks
    assert (stack.thread, stack.active, stack.frames[0].function) == ("MainThread", True, "sample")


def test_the_process_is_not_stopped_and_no_locals_are_asked_for(tmp_path):
    asked = []

    def run(argv):
        asked.append(argv)
        return Done(json.dumps([THREAD]), "", 0, 0.05)

    StacksProbe(lambda: TARGET, run, Folder(tmp_path), Clock(), seconds=30, program=lambda: "py-spy").sample()
    assert asked == [("py-spy", "dump", "--json", "--nonblocking", "--pid", "7")]


def test_a_missing_permission_is_named_with_the_flag_that_gives_it_and_not_asked_again(tmp_path):
    refused = Done("", "Permission Denied: Try running again with elevated permissions by going 'sudo env …'", 1, 0.0)
    with pytest.raises(Trouble) as trouble:
        probe(tmp_path, [refused]).sample()
    assert "CAP_SYS_PTRACE" in str(trouble.value)
    assert "--cap-add SYS_PTRACE" in str(trouble.value)
    assert trouble.value.final
    assert list(tmp_path.iterdir()) == []


def test_a_torn_read_is_tried_again_and_given_up_after_three(tmp_path):
    torn = Done("", "Error: Failed to get stack trace\n", 1, 0.0)
    probe(tmp_path, [torn, torn, Done(json.dumps([THREAD]), "", 0, 0.0)]).sample()
    with pytest.raises(Trouble, match="py-spy cannot read process 7: Error: Failed to get stack trace") as trouble:
        probe(tmp_path, [torn] * 3).sample()
    assert not trouble.value.final


def test_a_process_without_python_ends_it(tmp_path):
    no_python = Done("", "Error: Failed to find python version from target process", 1, 0.0)
    with pytest.raises(Trouble, match="no Python that py-spy can read") as trouble:
        probe(tmp_path, [no_python]).sample()
    assert trouble.value.final


def test_the_dumps_are_few_and_spread_over_the_recording(tmp_path):
    few = probe(tmp_path, [Done(json.dumps([THREAD]), "", 0, 0.0)] * 9, dumps=5)
    assert (few.delay_s, few.interval_s) == (2.5, 6.0)
    for _ in range(7):
        few.sample()
    assert len(list((tmp_path / "stacks").iterdir())) == 5


@pytest.mark.parametrize("dump", ["", "{}", "null", "[1, {}]", '[{"frames": 3}]', "[" * 90_000, "not json"])
def test_what_is_no_dump_is_none(dump):
    assert kept(dump) == []


def test_a_child_that_spins_in_a_known_function_is_seen_there(tmp_path):
    try:
        program = py_spy()
    except Trouble:
        pytest.skip("py-spy is not installed")
    code = ("import time\ndef busy_sampler():\n    end = time.monotonic() + 120\n    print('in', flush=True)\n"
            "    while time.monotonic() < end: pass\nbusy_sampler()")
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "in\n"
        real = StacksProbe(lambda: (child.pid, "worker"), lambda argv: command.run(argv, timeout_s=60),
                           Folder(tmp_path), Clock(), seconds=30, program=lambda: program)
        try:
            real.sample()
        except Trouble as trouble:
            if "CAP_SYS_PTRACE" in str(trouble):
                pytest.skip("no permission to read another process here")
            raise
    finally:
        child.kill()
        child.communicate()
    (stack,) = pyspy.read(tmp_path / "stacks/0000.json").stacks
    assert stack.frames[0].function == "busy_sampler"
    assert stack.active
