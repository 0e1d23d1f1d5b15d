"""The service's processes are found by what they call themselves, and their CPU is written with roles alone."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise
from threading import Event

import pytest

psutil = pytest.importorskip("psutil", reason="needs the extra `live` (psutil)")

from virtual_time import VirtualClock  # noqa: E402
from xpu_triage.errors import UnusableInput  # noqa: E402
from xpu_triage.live import process, service  # noqa: E402
from xpu_triage.live.clock import Clock  # noqa: E402
from xpu_triage.live.folder import Folder  # noqa: E402
from xpu_triage.live.probe import Trouble  # noqa: E402
from xpu_triage.live.process import HEADER, ProcessProbe  # noqa: E402
from xpu_triage.live.service import Seen, Service, chosen, parsed, runs_the_model  # noqa: E402
from xpu_triage.telemetry.roles import role  # noqa: E402

SPIN = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
WAIT = "import time; time.sleep(120)"


@contextmanager
def running(*programs: tuple[str, str]):
    """Children by (title, code); their pids."""
    children = [subprocess.Popen([title, "-c", code, "--api-key", "hunter2"], executable=sys.executable)
                for title, code in programs]
    try:
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def among(pids):
    return lambda: [psutil.Process(pid) for pid in pids]


def cpu_s(pid):
    return sum(psutil.Process(pid).cpu_times()[:2])


def test_a_spinning_worker_is_found_by_auto_and_its_cores_are_its_cpu_time_by_the_clock(tmp_path, monkeypatch):
    """Of a clock that goes on by a second between two samples, in which the worker is run for 0.3 s or more."""
    monkeypatch.setattr(process, "THREADS_SHARE", 1e9)  # looking at threads may cost what it likes
    clock, burnt = VirtualClock(), []
    with running(("VLLM::Worker_TP0", SPIN), ("sleeper", WAIT)) as pids:
        probe = ProcessProbe(lambda: Service(None, role=role, psutil=psutil, among=among(pids)), Folder(tmp_path),
                             clock)
        for _ in range(3):
            before = cpu_s(pids[0])
            probe.sample()
            burnt.append((before, cpu_s(pids[0])))
            end = time.monotonic() + 60
            while cpu_s(pids[0]) < burnt[-1][1] + 0.3 and time.monotonic() < end:
                time.sleep(0.02)
            clock.wait(1.0, Event())
        assert probe.service.root.pid == pids[0]
    text = (tmp_path / "processes.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert text.startswith(HEADER)
    assert "hunter2" not in text
    assert "Worker_TP0" not in text
    of_process = [row for row in rows if row["pid"] and not row["tid"]]
    of_thread = [row for row in rows if row["tid"]]
    of_machine = [row for row in rows if not row["pid"]]
    assert {row["role"] for row in of_process} == {"worker"}
    assert {row["pid"] for row in of_process} == {str(pids[0])}
    for row, (first, second) in zip(of_process, pairwise(burnt), strict=True):
        assert 0.25 < second[0] - first[1] - 0.001 <= float(row["cpu_cores"]) <= second[1] - first[0] + 0.001
    assert {row["tid"] for row in of_thread} == {str(pids[0])}
    assert all(0 <= float(row["host_cpu_fraction"]) <= 1 for row in of_machine)
    assert len(of_machine) == 2
    assert probe.notes == ["1 worker"]


def test_the_first_look_writes_nothing_because_nothing_is_known_yet(tmp_path):
    with running(("VLLM::Worker_TP0", WAIT)) as pids:
        ProcessProbe(lambda: Service(pids[0], role=role, psutil=psutil), Folder(tmp_path), Clock()).sample()
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_ends_is_said_and_ends_the_probe(tmp_path):
    with running(("VLLM::Worker_TP0", WAIT)) as pids:
        found = Service(pids[0], role=role, psutil=psutil)
    with pytest.raises(Trouble, match=f"process {pids[0]} has ended") as trouble:
        found.processes()
    assert trouble.value.final


TREE = (Seen(10, 1, "api server"), Seen(11, 10, "engine"), Seen(12, 11, "worker"), Seen(13, 11, "worker"))
OTHER = (Seen(20, 1, "api server"), Seen(21, 20, "scheduler"))
SHELLS = (Seen(1, 0, ""), Seen(5, 1, ""), Seen(30, 5, ""))


def test_the_one_service_is_the_top_of_its_tree():
    assert chosen((*SHELLS, *TREE), set()) == 10


def test_of_several_services_the_one_that_listens_where_the_server_is_asked():
    assert chosen((*SHELLS, *TREE, *OTHER), {20}) == 20
    assert chosen((*SHELLS, *TREE), {30}) == 30


def test_several_services_are_listed_and_none_is_picked():
    with pytest.raises(Trouble) as trouble:
        chosen((*SHELLS, *TREE, *OTHER), set())
    assert str(trouble.value) == ("several services run here: 10 (api server, engine, worker), 20 (api server,"
                                  " scheduler). Say which: --pid PID")


def test_no_service_at_all_asks_for_a_pid():
    with pytest.raises(Trouble, match="give --pid PID"):
        chosen(SHELLS, set())


def test_the_worker_runs_the_model_and_not_the_engine_that_waits_for_it():
    spins = {11: 1.0, 12: 0.3, 13: 0.9}
    assert runs_the_model([(one.pid, one.role) for one in TREE], spins) == 13
    assert runs_the_model([(10, "api server"), (11, "engine")], {10: 1.0}) == 11
    assert runs_the_model([(20, "api server"), (21, "scheduler"), (22, "detokenizer")], {22: 1.0}) == 21
    assert runs_the_model([(7, ""), (8, "")], {8: 0.5}) == 8
    assert runs_the_model([], {}) is None


def test_what_starts_a_server_is_not_taken_for_it_before_their_cpu_is_known():
    wrapped = [(30, "engine"), (31, "engine")]  # `timeout 300 … serve`, and what it runs
    assert runs_the_model(wrapped, {}) == 31
    assert runs_the_model(wrapped, {30: 0.0, 31: 0.0}) == 31
    assert runs_the_model(wrapped, {30: 0.5, 31: 0.2}) == 30


@pytest.mark.parametrize("given", ["0", "-1", "abc", "99999999999", "1;ls", ""])
def test_what_is_no_pid_is_refused(given):
    with pytest.raises(UnusableInput, match="wants a process id, or auto"):
        parsed(given)


def test_a_pid_that_is_not_there_is_one_final_line():
    with pytest.raises(Trouble, match="no process 4194303 here") as trouble:
        Service(4_194_303, role=role, psutil=psutil)
    assert trouble.value.final


def test_without_psutil_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(Trouble, match=r"pip install 'xpu-triage\[live\]'"):
        service.psutil_library()
