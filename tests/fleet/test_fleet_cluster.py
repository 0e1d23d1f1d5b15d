"""256 ranks on Dask: on this machine's cores, and on a scheduler with two workers that runs by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet_job import written_job
from xpu_triage.errors import MissingExtra, UnusableInput

pytest.importorskip("distributed", reason="needs the fleet extra")

from xpu_triage.fleet import cluster
from xpu_triage.fleet.contract import to_json
from xpu_triage.fleet.diagnosis import FleetDiagnosis, diagnose_fleet, judge_ranks
from xpu_triage.fleet.inputs import find_ranks
from xpu_triage.fleet.summary import diagnose_rank

RANKS, STRAGGLER, FALLBACK = 256, 37, 200
FEWER = 48
START_S = 180


@dataclass(frozen=True)
class Dask:
    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    written_job(folder, RANKS, slower={STRAGGLER: 1.5}, fallback=[FALLBACK])
    return folder


@pytest.fixture
def smaller_job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    written_job(folder, FEWER, slower={STRAGGLER: 1.5})
    return folder


@pytest.fixture(scope="module")
def here(job: Path) -> FleetDiagnosis:
    return diagnose_fleet(str(job), workers=2)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    """A scheduler and two workers on loopback, each a process of its own, ended by their ids."""
    told = tmp_path / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    with ExitStack() as ends:
        def started(*words: str) -> subprocess.Popen[bytes]:
            log = ends.enter_context((tmp_path / f"{len(list(tmp_path.iterdir()))}.log").open("wb"))
            process = subprocess.Popen([sys.executable, "-m", "dask", *words, *common], stdout=log, stderr=log,
                                       cwd=tmp_path)
            ends.callback(_ended, process)
            return process

        scheduler = started("scheduler", "--port", "0", "--scheduler-file", str(told))
        deadline = time.monotonic() + START_S
        while not (told.exists() and told.read_bytes().endswith(b"}")):
            assert scheduler.poll() is None, "the scheduler ended"
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        worker = ("worker", "--scheduler-file", str(told), "--nthreads", "1", "--no-nanny", "--worker-port", "0")
        workers = [started(*worker) for _ in range(2)]
        address = json.loads(told.read_text())["address"]
        _wait_for_workers(address, 2)
        yield Dask(address, scheduler, workers)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(60)


def _wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, timeout=START_S) as client:  # type: ignore[no-untyped-call]
        client.wait_for_workers(count, timeout=START_S)


def test_of_256_ranks_the_straggler_and_the_one_that_falls_back_are_found_and_no_other(here: FleetDiagnosis) -> None:
    rows = here.comparison.rows

    assert [row.result.rank for row in rows] == list(range(RANKS))
    assert [row.result.rank for row in rows if row.remarkable] == [STRAGGLER, FALLBACK]
    assert rows[FALLBACK].result.id == "cpu-fallback"
    assert here.verdict.id == "straggler"
    assert here.verdict.rank == f"rank {FALLBACK}"      # the later of the two: the others wait for it
    assert here.verdict.fingerprint == "cpu-fallback"
    assert f"rank {STRAGGLER}: 1.48 × the median" in here.verdict.summary
    assert here.comparison.left_out == ()


def test_the_others_own_verdict_that_they_wait_is_not_held_against_communication(here: FleetDiagnosis) -> None:
    said = {row.result.id for row in here.comparison.rows if not row.remarkable}

    assert said == {None}                               # what each of them can say by itself: not enough
    assert {row.waits_for for row in here.comparison.rows if not row.remarkable} == {f"rank {FALLBACK}"}
    assert here.comparison.groups[0].cost_ms == pytest.approx(0.060, rel=1e-3)     # 3 layers × 20 µs


def test_a_scheduler_with_two_workers_says_the_same(job: Path, here: FleetDiagnosis, dask: Dask) -> None:
    there = diagnose_fleet(str(job), scheduler=dask.address)

    assert to_json(there) == to_json(here)


def test_a_worker_that_is_killed_on_the_way_loses_nothing(smaller_job: Path, dask: Dask) -> None:
    victim, survivor = dask.workers
    seen = []

    def kill_one(done: int, of: int) -> None:
        seen.append((done, of))
        if done == FEWER // 4:
            os.kill(victim.pid, signal.SIGKILL)

    there = diagnose_fleet(str(smaller_job), scheduler=dask.address, progress=kill_one)

    assert victim.wait(60) == -signal.SIGKILL
    assert survivor.poll() is None
    assert seen == [(done, FEWER) for done in range(1, FEWER + 1)]
    assert to_json(there) == to_json(judge_ranks([diagnose_rank(piece) for piece in
                                                  find_ranks([str(smaller_job)]).pieces]))
    assert there.verdict.rank == f"rank {STRAGGLER}"


@pytest.mark.parametrize(("who", "refusal"), [("workers", "the last worker is gone"),
                                               ("scheduler", "the scheduler was lost before all ranks were done")])
def test_without_workers_or_scheduler_nobody_waits_for_ever(
        who: str, refusal: str, smaller_job: Path, dask: Dask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "STALLED_S", 1.0)
    killed = dask.workers if who == "workers" else [dask.scheduler]

    def kill(done: int, of: int) -> None:
        if done == 5:
            for process in killed:
                os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(UnusableInput, match=refusal):
        diagnose_fleet(str(smaller_job), scheduler=dask.address, progress=kill)


def test_ranks_that_cannot_be_read_are_told_beside_the_others(tmp_path: Path) -> None:
    paths = [str(path) for path in written_job(tmp_path, 6, slower={4: 1.5})]
    whole = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(whole[:40])
    Path(paths[2]).unlink()
    written_job(tmp_path, 3, name="other{}.json", world_size=64)
    paths[3] = str(tmp_path / "other2.json")

    found = diagnose_fleet(*paths, workers=2)

    assert [row.result.rank for row in found.comparison.rows] == [0, 4, 5]
    assert found.verdict.rank == "rank 4"
    why = {left.label: left.why for left in found.comparison.left_out}
    assert set(why) == {paths[1], paths[2], paths[3]}
    assert "no such file" in why[paths[2]]
    assert "its world size is 64, that of most ranks 6" in why[paths[3]]
    assert found.exit_code == 0


def test_evidence_that_takes_its_worker_down_is_given_up_and_who_was_beside_it_is_not(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written_job(tmp_path, 3)
    monkeypatch.setattr(cluster, "diagnose_rank", _dies_over_rank_1)
    import dask as dask_package

    with dask_package.config.set({"distributed.scheduler.allowed-failures": 0}):
        results = cluster.diagnose_all(find_ranks([str(path) for path in paths]).pieces, workers=1)

    assert [bool(result.error) for result in results] == [False, True, False]
    assert "its worker died over it" in results[1].error
    assert judge_ranks(results).comparison.left_out[0].rank == 1


def _dies_over_rank_1(piece: Any) -> Any:
    if piece.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return diagnose_rank(piece)


def test_a_scheduler_that_does_not_answer_is_refused_in_one_line(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "TIMEOUT_S", 0.5)
    pieces = find_ranks([str(written_job(tmp_path, 1)[0])]).pieces

    with pytest.raises(UnusableInput, match=r"127\.0\.0\.1:1: no scheduler answers") as refused:
        cluster.diagnose_all(pieces, scheduler="tcp://127.0.0.1:1")
    assert "\n" not in str(refused.value)
    with pytest.raises(UnusableInput, match="no scheduler answers"):
        cluster.diagnose_all(pieces, scheduler="nonsense://x")


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 64,
    b"\xff" * 64, struct.pack("<QQ", 8, 0), struct.pack("<QQQ", 16, 1, 2**62), struct.pack("<QQQ", 17, 1, 1) + b"\x80",
    b"-ERR unknown command\r\n", b""])
def test_whatever_answers_that_is_no_scheduler_is_refused_in_one_line(
        answer: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cluster, "TIMEOUT_S", 0.5)
    pieces = find_ranks([str(written_job(tmp_path, 1)[0])]).pieces
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()
        thread = threading.Thread(target=_answering, args=(server, answer, over))
        thread.start()
        try:
            with pytest.raises(UnusableInput, match="no scheduler") as refused:
                cluster.diagnose_all(pieces, scheduler=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        finally:
            over.set()
            thread.join(60)

    assert refused.value.exit_code == 2
    assert str(refused.value).isprintable()
    assert "Traceback" not in "".join(capfd.readouterr())


def _answering(server: socket.socket, answer: bytes, over: threading.Event) -> None:
    """Say the same to everybody, whatever they say."""
    while not over.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        with connection:
            connection.sendall(answer)
            over.wait(0.2)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(MissingExtra, match=r"pip install 'xpu-triage\[fleet\]'"):
        cluster.diagnose_all([])
