"""CPU of processes: the CSV of a live run, top and pidstat as people paste them."""

from __future__ import annotations

from pathlib import Path

import pytest

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import process_csv
from xpu_triage.samples import Samples

CSV = """\
timestamp,pid,tid,role,cpu_cores,host_cpu_fraction
1000.0,4242,,engine,1.5,
1000.0,4242,4250,,1.0,
1000.0,,,,,0.25
1001.0,4242,,engine,1.7,
1001.0,,,,,0.35
"""

TOP = """\
top - 06:25:58 up 11 min,  0 user,  load average: 1.50, 1.54, 0.91
Tasks:  91 total,   3 running,  88 sleeping,   0 stopped,   0 zombie
%Cpu(s): 50.0 us,  0.0 sy,  0.0 ni, 50.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st
MiB Mem :  24105.6 total,  21346.5 free,   1343.9 used,   1723.7 buff/cache
MiB Swap:      0.0 total,      0.0 free,      0.0 used.  22761.6 avail Mem

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   8802 root      20   0  812680 656148  34784 R {cpu}   2.7   0:07.22 VLLM::EngineCor
   8838 root      20   0  723608 317868  91020 R   3.0   1.3   0:05.99 python3 --api-key SECRET

"""

PIDSTAT = """\
Linux 6.1.0-13-amd64 (host) \t06/01/2025 \t_x86_64_\t(64 CPU)

03:12:05 PM   UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
03:12:06 PM     0      4242   95.00    5.00    0.00    0.00  100.00     3  sglang::detoken
03:12:06 PM     0      4243    1.00    1.00    0.00    0.00    2.00     4  sglang::schedul

Average:      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
Average:        0      4242   95.00    5.00    0.00    0.00  100.00     -  sglang::detoken
"""


def read(tmp_path: Path, text: str) -> Samples:
    path = tmp_path / "processes.txt"
    path.write_text(text, encoding="utf-8")
    assert process_csv.matches(text)
    return process_csv.read(path)


def series(samples: Samples) -> dict[tuple[str, str, str], list[float]]:
    return {(one.kind, one.of, one.quantity): one.values.tolist() for one in samples.series}


def test_the_csv_of_a_live_run(tmp_path: Path) -> None:
    samples = read(tmp_path, CSV)
    assert series(samples) == {("process", "4242", "cpu"): [1.5, 1.7], ("process", "4242/4250", "cpu"): [1.0],
                               ("host", "", "host_cpu"): [0.25, 0.35]}
    assert samples.clock == "epoch"
    assert next(samples.of("cpu", "process")).times.tolist() == [1000, 1001]
    assert [(fact.of, fact.name, fact.value) for fact in samples.facts] == [("4242", "role", "engine")]
    assert samples.skipped == 0


def test_columns_come_in_any_order_and_unknown_ones_are_kept(tmp_path: Path) -> None:
    samples = read(tmp_path, "gil,cpu_cores,pid,timestamp\n0.9,1.5,7,2026-11-29T10:00:00Z\n")
    assert series(samples) == {("process", "7", "cpu"): [1.5], ("process", "7", "gil"): [0.9]}
    assert next(samples.of("cpu", "process")).times.tolist() == [1795946400]  # date -u -d 2026-11-29T10:00 +%s


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    samples = read(tmp_path, CSV + "x,y\n1002,abc,,engine,1.0,\n1002,4242,,engine,nan,\n1002,4242,,engine,-1,\n"
                   "1002,4242,,\x1b]0;evil\x07,1.6,\n1003,4242,,\"unclosed,1,\n")
    assert series(samples)["process", "4242", "cpu"] == [1.5, 1.7, 1.6, 1.0]
    assert samples.skipped == 4
    assert all("\x1b" not in fact.value and "\x07" not in fact.value for fact in samples.facts)


def test_the_first_page_of_top_is_left_out_and_no_command_line_is_kept(tmp_path: Path) -> None:
    samples = read(tmp_path, TOP.format(cpu=" 10.0") + TOP.format(cpu="187.5").replace("06:25:58", "06:26:01"))
    assert series(samples) == {("process", "8802", "cpu"): [1.875], ("process", "8838", "cpu"): [0.03],
                               ("host", "", "host_cpu"): [0.5]}
    assert (samples.tool, samples.clock) == ("top", "day")
    assert next(samples.of("cpu", "process")).times.tolist() == [6 * 3600 + 26 * 60 + 1]
    assert [(fact.of, fact.value) for fact in samples.facts] == [("8802", "engine")]
    assert "SECRET" not in repr(samples)


def test_one_page_of_top_is_an_average_since_the_start(tmp_path: Path) -> None:
    samples = read(tmp_path, TOP.format(cpu=" 10.0").replace("50.0 id", "50,0 id").replace("3.0 ", "3,0 "))
    assert series(samples)["process", "8802", "cpu"] == [0.1]
    assert series(samples)["process", "8838", "cpu"] == [0.03]  # a locale with a decimal comma
    assert "averages since each process began" in samples.notes[0]


def test_pidstat_without_its_averages(tmp_path: Path) -> None:
    samples = read(tmp_path, PIDSTAT)
    assert series(samples) == {("process", "4242", "cpu"): [1.0], ("process", "4243", "cpu"): [0.02]}
    assert next(samples.of("cpu", "process")).times.tolist() == [15 * 3600 + 12 * 60 + 6]
    assert {fact.of: fact.value for fact in samples.facts} == {"4242": "detokenizer", "4243": "scheduler"}


def test_pidstat_with_threads(tmp_path: Path) -> None:
    samples = read(tmp_path, """\
Linux 6.1.0 (host) \t2025-06-01 \t_x86_64_\t(64 CPU)

15:12:05      UID      TGID       TID    %usr %system  %guest   %wait    %CPU   CPU  Command
15:12:06        0      4242         -   95.00    5.00    0.00    0.00  100.00     3  VLLM::Worker_TP
15:12:06        0         -      4250   90.00    5.00    0.00    0.00   95.00     3  |__VLLM::Worker_TP
""")
    assert series(samples) == {("process", "4242", "cpu"): [1.0], ("process", "4242/4250", "cpu"): [0.95]}


@pytest.mark.parametrize("text", ["", "pid,name\n1,x\n", "hello\n",
                                  "# gpu pid type sm mem\n# Idx # C/G % %\n 0 1 C 1 1\n"])
def test_other_texts_are_none(text: str) -> None:
    assert not process_csv.matches(text)


def test_a_header_without_readings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("timestamp,pid,tid,role,cpu_cores\n")
    with pytest.raises(UnusableInput, match="no reading of a process's CPU"):
        process_csv.read(path)
