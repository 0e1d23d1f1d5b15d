"""Stacks are read as a person reads them, whatever tool printed them, and nothing of a prompt or a key comes along."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import pyspy
from xpu_triage.evidence.stack_frames import MAX_FRAMES, process_name, short_file
from xpu_triage.samples import Frame, Stack, Stacks

DUMP = """\
Process 310: sglang::scheduler_TP7
Python v3.12.12 (/usr/bin/python3.12)

Thread 310 (active+gil): "MainThread"
    _apply (penaltylib/min_new_tokens.py:78)
    run_batch (scheduler.py:1930)

    <module> (<string>:1)
Thread 0x7F12AB (idle): "Thread-1 (_read_thread)"
    read (libc.so.6)
    0x7f2a1c02 (libpthread.so.0)
    operator() (pos_encoding.cpp:347)
    cuEventSynchronize                       (libcuda.so.570.12)
    _recv_msg (torch/_inductor/compile_worker/subproc_pool.py:61)
Thread 1612 (active)
    forward (model.py:3)
"""


def read(folder: Path, text: str, name: str = "stacks.txt") -> Stacks:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    assert pyspy.matches(text)
    return pyspy.read(path)


def functions(stack: Stack) -> list[str]:
    return [frame.function for frame in stack.frames]


# ---- py-spy dump


def test_a_dump_has_its_process_its_threads_and_their_frames(tmp_path: Path) -> None:
    stacks = read(tmp_path, DUMP)
    assert stacks.tool == "py-spy dump"
    assert stacks.skipped == 0
    main, reader, unnamed = stacks.stacks
    assert (main.process, main.thread, main.active, main.holds_gil) == (
        "310 sglang::scheduler_TP7", "MainThread", True, True)
    assert main.frames == (Frame("_apply", "penaltylib/min_new_tokens.py", 78),
                           Frame("run_batch", "scheduler.py", 1930), Frame("<module>", "<string>", 1))
    assert (reader.thread, reader.active, reader.holds_gil) == ("Thread-1 (_read_thread)", False, False)
    assert [str(frame) for frame in reader.frames] == [
        "read (libc.so.6)", "0x7f2a1c02 (libpthread.so.0)", "operator() (pos_encoding.cpp:347)",
        "cuEventSynchronize (libcuda.so.570.12)", "_recv_msg (torch/_inductor/compile_worker/subproc_pool.py:61)"]
    assert (unnamed.thread, unnamed.active, unnamed.samples) == ("1612", True, 1)


@pytest.mark.parametrize("prefix", ["sglang-1  | ", "> ", "    ", "2025-10-29T11:25:58.123Z stdout F ",
                                    "(EngineCore pid=17) INFO 10-29 11:25:58 [core.py:9] "])
def test_a_dump_pasted_with_a_prefix_before_each_line_reads_the_same(tmp_path: Path, prefix: str) -> None:
    pasted = "".join(f"{prefix}{line}\n" for line in DUMP.splitlines())
    assert read(tmp_path, pasted).stacks == read(tmp_path, DUMP, "plain.txt").stacks


def test_times_in_a_prefix_may_change_from_line_to_line(tmp_path: Path) -> None:
    pasted = "".join(f"[2025-10-29 11:25:{at:02d}] {line}\n" for at, line in enumerate(DUMP.splitlines()))
    assert read(tmp_path, pasted).stacks == read(tmp_path, DUMP, "plain.txt").stacks


def test_a_heading_of_a_log_and_what_follows_the_dump_are_no_frames(tmp_path: Path) -> None:
    heading = "[2025-10-29 11:25:58 TP7] Pyspy dump for PID 310:\n"
    following = "[2025-10-29 11:26:01] INFO foo (server.py:12)\n"
    assert read(tmp_path, f"{heading}{DUMP}{following}").stacks == read(tmp_path, DUMP, "plain.txt").stacks


def test_a_long_log_with_a_dump_in_it_is_left_to_the_reader_of_logs() -> None:
    log = "".join(f"INFO 10-29 11:25:58 [loggers.py:{n}] Running: {n} reqs, Waiting: 0 reqs\n" for n in range(100))
    assert not pyspy.matches(log + DUMP)
    assert not pyspy.matches(log)


def test_several_dumps_in_one_file_are_several_looks(tmp_path: Path) -> None:
    stacks = read(tmp_path, DUMP * 3)
    assert [stack.thread for stack in stacks.stacks].count("MainThread") == 3


def test_child_processes_are_told_apart_and_parents_do_not_rename_them(tmp_path: Path) -> None:
    text = """\
Process 9443: /app/venv/bin/python kid.py
Python v3.11.7 (/opt/bin/python3.11)

Thread 9443 (active+gil): "MainThread"
    work (kid.py:4)

--------------------------------------------------------------------------------
Process 9446: VLLM::Worker_TP1
Python v3.11.7 (/opt/bin/python3.11)
Parent Process 9443: /app/venv/bin/python kid.py

Thread 9446 (active+gil): "MainThread"
    work (kid.py:9)
"""
    assert [(stack.process, str(stack.frames[0])) for stack in read(tmp_path, text).stacks] == [
        ("9443 kid.py", "work (kid.py:4)"), ("9446 VLLM::Worker_TP1", "work (kid.py:9)")]


def test_values_of_arguments_and_locals_are_dropped(tmp_path: Path) -> None:
    text = '''\
Process 5: VLLM::Worker
Thread 5 (active): "MainThread"
    work (kid.py:4)
        Arguments:
            prompt: "the secret of the secret (bar.py:12)"
            shape: (2, 3)
        Locals:
            torn: "first
second secret line (evil.py:3)
  third secret (evil.py:4)
            t: 1796020123.9
    main (kid.py:7)
        Locals:
            p: <secret at 0x7fe89fafbf90>
Thread 6 (idle): "other"
    wait (threading.py:3)
'''
    stacks = read(tmp_path, text)
    assert [functions(stack) for stack in stacks.stacks] == [["work", "main"], ["wait"]]
    assert "secret" not in repr(stacks)
    assert stacks.skipped == 0


def test_a_dump_that_lost_its_indentation_still_reads_and_values_stay_out(tmp_path: Path) -> None:
    text = 'Thread 5 (active): "MainThread"\nwork (kid.py:4)\nLocals:\nshape: (2, 3)\nkey: secret\nmain (kid.py:7)\n'
    stacks = read(tmp_path, text)
    assert functions(stacks.stacks[0]) == ["work", "main"]
    assert "secret" not in repr(stacks)


def test_a_dump_that_is_cut_keeps_what_was_whole_and_counts_the_rest(tmp_path: Path) -> None:
    stacks = read(tmp_path, DUMP[:DUMP.index("subproc_pool")])
    assert [len(stack.frames) for stack in stacks.stacks] == [3, 4]
    assert stacks.skipped == 1


def test_a_refusal_of_py_spy_says_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "refused.txt"
    path.write_text("Permission Denied: Try running again with elevated permissions by going 'sudo env ...'\n")
    assert pyspy.matches(path.read_text())
    with pytest.raises(UnusableInput, match="SYS_PTRACE"):
        pyspy.read(path)


# ---- JSON


def entry(**changes: Any) -> dict[str, Any]:
    frames = [{"name": "wait", "filename": "/home/ann/threading.py", "short_filename": "threading.py", "line": 327,
               "locals": [{"name": "prompt", "repr": "secret"}]},
              {"name": "read", "filename": "/usr/lib/x86_64-linux-gnu/libc.so.6", "short_filename": None, "line": 0}]
    return {"pid": 28100, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 28411, "active": True,
            "owns_gil": False, "frames": frames, "process_info": None} | changes


def test_a_json_dump_reads_like_the_text(tmp_path: Path) -> None:
    parent = {"pid": 1, "command_line": "tini", "parent": None}
    info = {"pid": 28100, "command_line": "python -m vllm.entrypoints.api_server --api-key secret", "parent": parent}
    stacks = read(tmp_path, json.dumps([entry(), entry(thread_name=None, process_info=info, owns_gil=True)], indent=2))
    assert stacks.tool == "py-spy dump (JSON)"
    first, second = stacks.stacks
    assert first == Stack("28100", "MainThread", True, False, (
        Frame("wait", "threading.py", 327), Frame("read", "libc.so.6", None)))
    assert (second.process, second.thread, second.holds_gil) == ("28100 vllm.entrypoints.api_server", "28411", True)
    assert "secret" not in repr(stacks)


def test_json_dumps_one_after_the_other_and_a_cut_in_the_last(tmp_path: Path) -> None:
    whole = json.dumps([entry(), entry()])
    stacks = read(tmp_path, f"{whole}\n{whole}\n{whole[:-40]}")
    assert len(stacks.stacks) == 5
    assert "cut" in stacks.notes[0]


@pytest.mark.parametrize("bad", [
    {"frames": None}, {"frames": []}, {"frames": [17, {"name": 3}]}, {"frames": {"name": "x"}}])
def test_an_entry_without_frames_is_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    stacks = read(tmp_path, json.dumps([entry(), entry(**bad), "text", None]))
    assert (len(stacks.stacks), stacks.skipped) == (1, 3)


@pytest.mark.parametrize("line", [0, -4, True, "12", None, 10 ** 12, float("nan")])
def test_a_line_that_is_none_is_unknown(tmp_path: Path, line: Any) -> None:
    stacks = read(tmp_path, json.dumps([entry(frames=[{"name": "f", "filename": "a.py", "line": line}])]))
    assert stacks.stacks[0].frames == (Frame("f", "a.py", None),)


# ---- recordings


def test_folded_stacks_are_root_first_and_carry_their_count(tmp_path: Path) -> None:
    stacks = read(tmp_path, "<module> (a.py:1);step (a.py:9);at::native::f<int, (x)1> (libtorch_cpu.so) 17\n\n"
                            "<module> (a.py:1);no_line (a.py) 3\n")
    assert stacks.tool == "py-spy record (raw)"
    first, second = stacks.stacks
    assert [str(frame) for frame in first.frames] == [
        "at::native::f<int, (x)1> (libtorch_cpu.so)", "step (a.py:9)", "<module> (a.py:1)"]
    assert (first.samples, second.samples, first.active) == (17, 3, None)
    assert second.frames[0] == Frame("no_line", "a.py", None)


def test_process_and_thread_frames_name_the_stack_and_a_command_line_may_hold_anything(tmp_path: Path) -> None:
    text = ('process 1:"python run.py --key secret";process 7:"/usr/bin/python3 -B -c from m import s; s(a=1) --fork";'
            "thread (7): MainThread;<module> (<string>:1);work (kid.py:4) 9\n"
            "process 8:\"VLLM::Worker_TP0\";work (kid.py:4) 1\nthread (12): Thread-1 (x);work (kid.py:4) 2\n")
    stacks = read(tmp_path, text)
    assert [(stack.process, stack.thread, stack.samples) for stack in stacks.stacks] == [
        ("7 python3", "MainThread", 9), ("8 VLLM::Worker_TP0", "", 1), ("", "Thread-1 (x)", 2)]
    assert functions(stacks.stacks[0]) == ["work", "<module>"]
    assert "secret" not in repr(stacks)


def test_lines_that_are_no_folded_stack_are_counted_and_never_counts(tmp_path: Path) -> None:
    good = "<module> (a.py:1);f (a.py:2) 5\n"
    bad = "f (a.py:2) -3\nf (a.py:2) 0\nf (a.py:2) 99999999999999999999\nno frame 4\n"
    stacks = read(tmp_path, good * 30 + bad)
    assert (sum(stack.samples for stack in stacks.stacks), stacks.skipped) == (150, 4)


def test_austin_counts_a_line_as_a_sample_whatever_its_microseconds(tmp_path: Path) -> None:
    text = ("# austin: 3.6.0\n# mode: wall\n"
            "P12;T0x7f:12;/usr/lib/python3.12/threading.py:run:9;/srv/app/a.py:f:33 100523\n"
            "P12;T0x7f:12;/srv/app/a.py:g:40;:GC: 12\n")
    stacks = read(tmp_path, text)
    assert stacks.tool == "austin"
    assert stacks.stacks == (Stack("12", "0x7f:12", None, None, (Frame("f", "srv/app/a.py", 33),
                                                                 Frame("run", "threading.py", 9))),
                             Stack("12", "0x7f:12", None, None, (Frame("g", "srv/app/a.py", 40),)))


def speedscope(profile: dict[str, Any], *frames: Any) -> str:
    return json.dumps({"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": [profile],
                       "shared": {"frames": list(frames)}, "exporter": "py-spy@0.4.3"})


MAIN = {"name": "<module>", "file": "/srv/run.py", "line": 14, "col": None}
LEAF = {"name": "leaf", "file": "/x/lib/python3.11/site-packages/torch/nn/functional.py", "line": 8, "col": None}


def test_a_sampled_profile_counts_its_samples(tmp_path: Path) -> None:
    mark = {"name": 'process 7:"python run.py --key secret"', "file": "", "line": 0}
    profile = {"type": "sampled", "name": 'Process 7 Thread 9 "MainThread"', "unit": "seconds",
               "samples": [[2, 0, 1], [2, 0, 1], [2, 0], [9], [True], "x", []], "weights": [0.05] * 7}
    stacks = read(tmp_path, speedscope(profile, MAIN, LEAF, mark))
    assert stacks.stacks == (
        Stack("7 run.py", "MainThread", None, None, (Frame("leaf", "torch/nn/functional.py", 8),
                                                     Frame("<module>", "srv/run.py", 14)), 2),
        Stack("7 run.py", "MainThread", None, None, (Frame("<module>", "srv/run.py", 14),), 1))
    assert stacks.skipped == 4
    assert "secret" not in repr(stacks)


def test_an_evented_profile_is_counted_in_milliseconds_and_says_so(tmp_path: Path) -> None:
    events = [{"type": "O", "at": 0.0, "frame": 0}, {"type": "O", "at": 0.1, "frame": 1},
              {"type": "C", "at": 0.35, "frame": 1}, {"type": "C", "at": 0.4, "frame": 0},
              {"type": "C", "at": 0.5, "frame": 0}, {"type": "O", "at": float("nan"), "frame": 0}, 4]
    profile = {"type": "evented", "name": "x", "unit": "seconds", "events": events}
    stacks = read(tmp_path, speedscope(profile, MAIN, LEAF))
    assert {(stack.frames[0].function, stack.samples) for stack in stacks.stacks} == {("leaf", 250), ("<module>", 150)}
    assert stacks.skipped == 3
    assert stacks.notes == ("a profile of times, not of samples: counted in milliseconds",)


@pytest.mark.parametrize("text", [
    '{"profiles": [], "shared": {"frames": []}}', '{"profiles": 3, "shared": {"frames": 1}}',
    '{"profiles": [{"samples": [[0', "[]", "", "Process 5: x\n", "[" * 20_000])
def test_what_holds_no_stack_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(text)
    with pytest.raises(UnusableInput) as refusal:
        pyspy.read(path)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


# ---- faulthandler


def test_faulthandler_prints_a_file_before_the_function(tmp_path: Path) -> None:
    text = '''\
Thread 0x00007fce47ae1480 [worker] (most recent call first):
  File "/usr/lib/python3.10/threading.py", line 320 in wait
  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 1147 in process_batch_result_prefill
  ...

Current thread 0x00007fce47ae1481 (most recent call first):
  <no Python frame>
Current thread 0x00007fce47ae1482 (most recent call first):
  File "<string>", line ??? in <module>
'''
    stacks = read(tmp_path, text)
    assert stacks.tool == "faulthandler"
    assert stacks.stacks == (
        Stack("", "worker", None, None, (Frame("wait", "threading.py", 320), Frame(
            "process_batch_result_prefill", "sglang/srt/managers/scheduler.py", 1147))),
        Stack("", "0x00007fce47ae1482", None, None, (Frame("<module>", "<string>", None),)))


def test_a_traceback_of_an_exception_is_no_look_at_a_thread() -> None:
    assert not pyspy.matches('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise ValueError\n')


# ---- files, processes, hostile names


@pytest.mark.parametrize(("path", "short"), [
    ("/home/ann/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", "vllm/v1/worker/gpu_worker.py"),
    ("/usr/local/lib/python3.10/dist-packages/torch/_ops.py", "torch/_ops.py"),
    ("/opt/python3.11/lib/python3.11/multiprocessing/spawn.py", "multiprocessing/spawn.py"),
    ("/home/ann/run.py", "run.py"), ("/Users/ann/a/b/c/d/e.py", "b/c/d/e.py"),
    ("C:\\Users\\ann\\app\\run.py", "app/run.py"), ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
    ("vllm/v1/engine/core.py", "vllm/v1/engine/core.py"),
    ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
    ("", "")])
def test_a_file_keeps_what_names_the_code_and_loses_the_home_folder(path: str, short: str) -> None:
    assert short_file(path) == short


@pytest.mark.parametrize("home", ["home/ann", "Users/ann", "root"])
def test_whoever_it_is_the_home_folder_goes(home: str) -> None:
    assert short_file(f"/{home}/run.py") == "run.py"


@pytest.mark.parametrize(("title", "name"), [
    ("VLLM::Worker_TP0", "VLLM::Worker_TP0"), ("", ""),
    ("/usr/bin/python3 -m vllm.entrypoints.openai.api_server --api-key sk-1", "vllm.entrypoints.openai.api_server"),
    ("python3.12 -u -X dev /srv/x/serve.py --token abc", "serve.py"), ("python -c import os; os.x('key')", "python"),
    ("/usr/local/bin/vllm serve m --api-key sk-1", "vllm"), ("text-generation-server serve", "text-generation-server"),
    ("python -m", "python")])
def test_a_process_is_its_program_without_arguments(title: str, name: str) -> None:
    assert process_name(7, title) == f"7 {name}".strip()


def test_names_from_a_dump_can_do_nothing_in_a_terminal(tmp_path: Path) -> None:
    text = ('Thread 5 (active): "M\u202eain"\n    f\x07\u200b<script> (a\u2028.py:4)\n    \x1b[31mg\x1b[0m (b.py:5)\n')
    stacks = read(tmp_path, text)
    assert stacks.stacks[0].thread == "M\\u202eain"
    assert [str(frame) for frame in stacks.stacks[0].frames] == ["f\\x07\\u200b<script> (a\\u2028.py:4)", "g (b.py:5)"]


def test_a_stack_of_a_recursion_keeps_its_innermost_frames(tmp_path: Path) -> None:
    frames = "".join(f"    f{at} (a.py:{at + 1})\n" for at in range(MAX_FRAMES + 500))
    stack = read(tmp_path, f'Thread 5 (active): "MainThread"\n{frames}').stacks[0]
    assert (len(stack.frames), stack.frames[0].function) == (MAX_FRAMES, "f0")


@pytest.mark.parametrize("row", [
    " " * 300_000 + ")", "    " + "a (" * 100_000 + ")", '  File "' + '", line 1' * 40_000,
    "process 1;" * 30_000 + "f 3",
    'Thread 5 (active): "' + '" ' * 100_000 + ")", "f" + " " * 300_000 + "(a.py:3)"])
def test_a_line_made_to_be_slow_is_read_in_linear_time(tmp_path: Path, row: str) -> None:
    path = tmp_path / "slow.txt"
    path.write_text(f"{DUMP}{row}\n")
    started = time.process_time()
    assert len(pyspy.read(path).stacks) >= 3
    assert time.process_time() - started < 20           # quadratic would take minutes


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters=";()"),
                min_size=1, max_size=30).filter(lambda name: name == name.strip() and name.isprintable())
FRAMES = st.builds(lambda name, line: f"{name} (pkg/mod.py:{line})", NAMES, st.integers(1, 99_999))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(FRAMES, min_size=1, max_size=5), st.integers(1, 10 ** 6)), min_size=1, max_size=6))
def test_folded_counts_and_frames_come_back_as_written(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("folded") / "r.raw"
    path.write_text("".join(f"{';'.join(frames)} {count}\n" for frames, count in rows), encoding="utf-8")
    stacks = pyspy.read(path)
    assert [stack.samples for stack in stacks.stacks] == [count for _, count in rows]
    assert [len(stack.frames) for stack in stacks.stacks] == [len(frames) for frames, _ in rows]
    assert [stack.frames[0].line for stack in stacks.stacks] == [
        int(frames[-1].rpartition(":")[2][:-1]) for frames, _ in rows]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.integers(0, len(DUMP)))
def test_no_text_and_no_cut_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, noise: str, cut: int) -> None:
    path = tmp_path_factory.mktemp("noise") / "x.txt"
    for text in (noise, DUMP[:cut] + noise, noise + DUMP[cut:], "[{" + noise, "{" + noise):
        path.write_text(text, encoding="utf-8", errors="replace")
        pyspy.matches(text)
        try:
            stacks = pyspy.read(path)
        except UnusableInput:
            continue
        assert all(stack.frames and stack.samples > 0 for stack in stacks.stacks)


# ---- recorded by others


@pytest.mark.parametrize(("name", "tool", "process", "threads", "samples"), [
    ("sglang-12076-scheduler-penalty-op.txt", "py-spy dump", "310 sglang::scheduler_TP7",
     {"MainThread": 16, "Thread-1 (_read_thread)": 1}, 2),
    ("vllm-17676-enginecore-flashinfer-sampler.txt", "py-spy dump", "2403 VLLM::EngineCore", {"2403": 21}, 1),
    ("vllm-0.32.0-cpu-enginecore-decode.txt", "py-spy dump", "28100 VLLM::EngineCore",
     {"MainThread": 18, "MultiprocWorkerMonitor": 6, "Thread-1 (process_input_sockets)": 5,
      "Thread-2 (process_output_sockets)": 6, "signal-callback": 6}, 5),
    ("vllm-0.32.0-cpu-enginecore-decode.json", "py-spy dump (JSON)", "28100",
     {"MainThread": 18, "MultiprocWorkerMonitor": 6, "Thread-1 (process_input_sockets)": 5,
      "Thread-2 (process_output_sockets)": 6, "signal-callback": 6}, 5),
    *[(f"vllm-0.32.0-cpu-worker-decode-{at}.txt", "py-spy dump", "28257 VLLM::Worker",
       {"MainThread": frames, "tqdm_monitor": 5, "DeathPipeMonitor": 7}, 3)
      for at, frames in ((1, 32), (2, 31), (3, 32), (4, 21), (5, 34))],
    ("vllm-0.32.0-cpu-worker-decode-native.txt", "py-spy dump", "28257 VLLM::Worker",
     {"MainThread": 53, "tqdm_monitor": 12, "DeathPipeMonitor": 12}, 3),
])
def test_dumps_of_others_have_these_threads_and_so_many_frames(
        shared: Path, name: str, tool: str, process: str, threads: dict[str, int], samples: int) -> None:
    path = shared / "samples" / "pyspy" / name
    assert pyspy.matches(path.read_text(encoding="utf-8"))
    stacks = pyspy.read(path)
    assert (stacks.tool, stacks.skipped, stacks.notes) == (tool, 0, ())
    assert {stack.process for stack in stacks.stacks} == {process}
    assert {stack.thread: len(stack.frames) for stack in stacks.stacks} == threads
    assert sum(stack.samples for stack in stacks.stacks) == samples


def test_a_recording_of_others_adds_up_to_its_samples(shared: Path) -> None:
    stacks = pyspy.read(shared / "samples" / "pyspy" / "vllm-0.32.0-cpu-worker-record.raw.txt")
    assert (stacks.tool, len(stacks.stacks), stacks.skipped) == ("py-spy record (raw)", 42, 0)
    assert sum(stack.samples for stack in stacks.stacks) == 452
    assert str(stacks.stacks[0].frames[0]) == "OpOverloadPacket.__call__ (torch/_ops.py:1279)"
    assert stacks.stacks[0].samples == 8
