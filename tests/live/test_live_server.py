"""`/metrics` becomes one file a scrape; a server that gives none costs a line that says what to do."""

from __future__ import annotations

import re
import time

import pytest

from live_servers import METRICS, always, answer, by_path, serving
from xpu_triage.evidence import prometheus
from xpu_triage.live.clock import Clock
from xpu_triage.live.folder import Folder
from xpu_triage.live.probe import Trouble
from xpu_triage.live.request import Client
from xpu_triage.live.server import MetricsProbe, engine


def probe(served, tmp_path, **more) -> MetricsProbe:
    return MetricsProbe(Client(served.address), Folder(tmp_path), Clock(), interval_s=2.0, seconds=30.0, **more)


def test_each_scrape_is_a_file_that_says_when_and_that_the_reader_reads(tmp_path):
    with serving(always(answer())) as served:
        polled = probe(served, tmp_path)
        before = time.time()
        polled.sample()
        polled.sample()
    assert sorted(path.name for path in (tmp_path / "metrics").iterdir()) == ["0000.prom", "0001.prom"]
    text = (tmp_path / "metrics/0000.prom").read_text()
    assert re.match(r"# scraped \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\n", text)
    assert text.partition("\n")[2] == METRICS.decode()
    (scrape,) = prometheus.read(tmp_path / "metrics/0000.prom")
    assert scrape.values["vllm:num_requests_running"][0][1] == 4.0
    assert scrape.time == pytest.approx(before, abs=2.0)


def test_the_time_of_a_scrape_is_that_of_the_answer_and_a_slow_one_is_said(tmp_path):
    def late(connection, _):
        time.sleep(1.1)
        connection.sendall(answer())

    with serving(late) as served:
        polled = probe(served, tmp_path)
        began = time.time()
        polled.sample()
        polled.close()
    (scrape,) = prometheus.read(tmp_path / "metrics/0000.prom")
    assert 1.0 < scrape.time - began < 2.0
    assert any(re.fullmatch(r"the slowest answer came after 1\.\d s", note) for note in polled.notes)


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
