"""`/metrics` becomes one file a scrape; a server that gives none costs a line that says what to do."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from live_servers import METRICS, always, answer, by_path, serving
from virtual_time import VirtualClock
from xpu_triage.evidence import prometheus
from xpu_triage.live import request, server
from xpu_triage.live.clock import Clock
from xpu_triage.live.folder import Folder
from xpu_triage.live.probe import Trouble
from xpu_triage.live.request import Client
from xpu_triage.live.server import MetricsProbe, engine


def probe(served, tmp_path, **more) -> MetricsProbe:
    return MetricsProbe(Client(served.address), Folder(tmp_path), VirtualClock(), interval_s=2.0, seconds=30.0, **more)


def test_each_scrape_is_a_file_that_says_when_and_that_the_reader_reads(tmp_path):
    with serving(always(answer())) as served:
        polled = probe(served, tmp_path)
        polled.sample()
        polled.sample()
    assert sorted(path.name for path in (tmp_path / "metrics").iterdir()) == ["0000.prom", "0001.prom"]
    text = (tmp_path / "metrics/0000.prom").read_text()
    assert re.match(r"# scraped \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\n", text)
    assert text.partition("\n")[2] == METRICS.decode()
    (scrape,) = prometheus.read(tmp_path / "metrics/0000.prom")
    assert scrape.values["vllm:num_requests_running"][0][1] == 4.0


def test_the_time_of_a_scrape_is_that_of_the_answer_and_a_slow_one_is_said(tmp_path, monkeypatch):
    """Asked at 06:01:40, by the clock of these tests, and answered 1.5 s later, by the one of the request."""
    gone = [0.0]
    monkeypatch.setattr(request, "time", SimpleNamespace(monotonic=lambda: gone[0]))

    def late(connection, _):
        gone[0] += 1.5
        connection.sendall(answer())

    with serving(late) as served:
        polled = probe(served, tmp_path)
        polled.sample()
        polled.close()
    text = (tmp_path / "metrics/0000.prom").read_text()
    assert text.startswith("# scraped 2026-11-30T06:01:41.500Z\n")
    assert "the slowest answer came after 1.5 s" in polled.notes


def test_bytes_that_are_no_text_are_replaced_and_the_rest_is_read(tmp_path):
    with serving(always(answer(METRICS + b'x{a="\xff\xfe"} 1\n'))) as served:
        probe(served, tmp_path).sample()
    (scrape,) = prometheus.read(tmp_path / "metrics/0000.prom")
    assert scrape.values["vllm:generation_tokens_total"][0][1] == 100.0


def test_metrics_under_the_other_path_are_found_and_asked_there_alone_from_then_on(tmp_path):
    with serving(by_path({"/metrics": answer(b"[]"), "/prometheus/metrics": answer()})) as served:
        polled = probe(served, tmp_path)
        polled.sample()
        polled.sample()
    assert served.asked == ["GET /metrics", "GET /prometheus/metrics", "GET /prometheus/metrics"]


@pytest.mark.parametrize(("reply", "said", "final"), [
    (answer(b"", "401 Unauthorized"), "wants a key (401): set XPU_TRIAGE_API_KEY", True),
    (answer(b"{}", "404 Not Found"), "not there (404): metrics are off, or on another port", False),
    (answer(b"oh no", "500 Internal Server Error"), "/metrics answers 500", False),
    (answer(b"<html>sign in</html>"), "something else than metrics", False),
    (answer(b""), "answers with nothing", False),
])
def test_a_server_without_metrics_costs_one_line_and_leaves_no_file(tmp_path, reply, said, final):
    with serving(always(reply)) as served, pytest.raises(Trouble) as trouble:
        probe(served, tmp_path).sample()
    assert said in str(trouble.value)
    assert trouble.value.final is final
    assert list(tmp_path.rglob("*")) == []


def test_a_long_recording_scrapes_less_often(tmp_path):
    with serving(always(answer())) as served:
        client = Client(served.address)
    assert MetricsProbe(client, Folder(tmp_path), Clock(), interval_s=0.5, seconds=3600).interval_s == 1.8


@pytest.mark.parametrize(("text", "name"), [
    (METRICS.decode(), "vllm"), ("sglang:num_running_reqs 3\n", "sglang"), ("# TYPE sglang_x gauge\n", "sglang"),
    ("tgi_queue_size 1\n", ""), ("", "")])
def test_the_engine_is_told_by_the_names_of_its_metrics(text, name):
    assert engine(text) == name


def test_whether_the_first_scrape_tells_of_a_device(tmp_path):
    folder = Folder(tmp_path)
    assert server.tells_of_a_device(folder) is None
    folder.write("metrics/0000.prom", METRICS.decode())
    assert server.tells_of_a_device(folder) is False
    folder.write("metrics/0000.prom", METRICS.decode() + 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 26\n')
    assert server.tells_of_a_device(folder) is True
