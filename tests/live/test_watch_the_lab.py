"""The whole of it against a real server: a fault is switched on, and `watch` finds it; switched off, it finds none."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the lab server needs the extra `lab` (prometheus_client)")
pytest.importorskip("torch", reason="the lab server needs the extra `lab` (torch)")

from xpu_triage import cli
from xpu_triage import notebook as show
from xpu_triage.diagnosis import diagnose
from xpu_triage.lab import load
from xpu_triage.lab.server import LabServer, Options
from xpu_triage.lab.serving import Setup

FAULTS_OF_OPERATORS = {"cpu-fallback", "host-bound", "implicit-sync", "launch-bound", "wrong-backend"}


@contextmanager
def under_load(lab: LabServer, *, max_tokens: int = 24) -> Iterator[None]:
    """Requests from a process of their own, bounded in number, until the block ends."""
    client = subprocess.Popen(
        [sys.executable, load.__file__, lab.url, "--requests", "400", "--concurrency", "8", "--prompt-tokens", "16",
         "--max-tokens", str(max_tokens)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not lab.engine.iterations and time.monotonic() < until:
            time.sleep(0.05)
        yield
    finally:
        client.kill()
        client.wait(30)


def watched(capsys: pytest.CaptureFixture[str], lab: LabServer, out: Path, *more: str) -> dict:
    code = cli.main(["watch", "--server", lab.url, "--device", "none", "--seconds", "5", "--interval", "1", "--json",
                     "--out", str(out), *more])
    assert code in (0, 3)
    return json.loads(capsys.readouterr().out)


def test_a_fallback_is_confirmed_by_the_profile_and_gone_when_it_is_off(tmp_path, capsys):
    traces = tmp_path / "traces"
    traces.mkdir()
    with LabServer(Setup(batch=8, vocab=152_000, weights_gb=60.0), Options(profile_dir=traces)) as lab:
        lab.set_fault("exponential-fallback")
        with under_load(lab):
            found = watched(capsys, lab, tmp_path / "on", "--profile", "--profile-dir", str(traces))
        assert found["verdict"]["level"] == "confirmed"
        assert found["verdict"]["id"] == "cpu-fallback"
        assert found["signals"]["fallback.op"]["value"] == "aten::exponential_"
        lab.set_fault("none")
        with under_load(lab):
            found = watched(capsys, lab, tmp_path / "off", "--profile", "--profile-dir", str(traces))
        assert found["verdict"]["id"] not in FAULTS_OF_OPERATORS
        assert found["signals"]["fallback.fraction"]["value"] < 0.05
    assert lab.engine.iterations > 0


def test_admission_that_stalls_is_found_in_the_scrapes_alone(tmp_path, capsys):
    with LabServer(Setup(batch=8, vocab=500, weights_gb=24.0)) as lab:
        lab.set_fault("queueing-idle-device")
        with under_load(lab, max_tokens=400):
            found = watched(capsys, lab, tmp_path / "on")
        assert found["verdict"]["id"] == "queueing-idle-device"
        assert found["signals"]["serving.waiting"]["value"] >= 1
        lab.set_fault("none")
        with under_load(lab):
            found = watched(capsys, lab, tmp_path / "off")
        assert found["verdict"]["id"] != "queueing-idle-device"


def test_the_record_gives_the_same_verdict_again_without_the_server(tmp_path, capsys):
    with LabServer(Setup(batch=8, vocab=500, weights_gb=24.0)) as lab, under_load(lab):
        found = watched(capsys, lab, tmp_path / "record")
    again = diagnose(tmp_path / "record")
    assert again.verdict.id == found["verdict"]["id"]
    assert {name: signal.value for name, signal in again.signals.items()} == {
        name: signal["value"] for name, signal in found["signals"].items()}
    assert found["signals"]["step.method"]["value"] == "metrics"


def test_a_notebook_watches_too_and_keeps_the_record(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with LabServer(Setup(batch=8, vocab=500, weights_gb=24.0)) as lab, under_load(lab):
        found = show.diagnose(server=lab.url, seconds=3)
    assert found.signals.value("serving.running") > 0
    (record,) = tmp_path.glob("watch-*Z")
    assert f"into {record.name}" in capsys.readouterr().out
    assert diagnose(record).signals.value("serving.running") == found.signals.value("serving.running")
