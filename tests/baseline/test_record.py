"""`baseline record` against a server on loopback whose speed is known, and what `compare` makes of two recordings."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from live_servers import dead_port
from paper_server import MODEL, PaperServer, Speed, serving
from paper_wire import in_virtual_time
from xpu_triage.baseline import store
from xpu_triage.baseline.commands import load
from xpu_triage.baseline.compare import compare
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.record import Plan, record
from xpu_triage.errors import MissingExtra, UnusableInput
from xpu_triage.live.request import address

SPEED = Speed(noise=0.05)
PLAN = Plan(concurrency=(1, 4), prompt_tokens=(64, 1024), output_tokens=(8,), requests=20, seconds=60)
INJECTED = {
    "old": SPEED,
    "nothing": SPEED,
    "prefill": replace(SPEED, prefill=0.15),
    "decode": replace(SPEED, decode=18.0),
    "queue": replace(SPEED, queue=40.0),
    "long context": replace(SPEED, context=0.02),
    "one noisy outlier": replace(SPEED, stumble=15),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The same grid on seven servers whose times scatter by 5 %, each by itself."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        for seed, (name, speed) in enumerate(INJECTED.items()):
            with in_virtual_time(server := PaperServer(replace(speed, seed=seed)), patch):
                record(address(server.url), PLAN, folder / name, device="paper")
    return {name: load(folder / name) for name in INJECTED}


@pytest.fixture
def virtual(monkeypatch):
    """Puts a server behind a client without sockets; time passes only where both wait."""
    return lambda server: in_virtual_time(server, monkeypatch)


DONE = [("nothing", Kind.NONE), ("one noisy outlier", Kind.NONE), ("prefill", Kind.PREFILL), ("decode", Kind.DECODE),
        ("queue", Kind.QUEUE), ("long context", Kind.KV_GROWTH)]


@pytest.mark.parametrize(("name", "kind"), DONE)
def test_what_was_done_to_the_server_is_named(recorded, name, kind):
    found = dimension(compare(recorded["old"], recorded[name]))
    assert found.kind is kind, found
    assert found.regression is (kind is not Kind.NONE)


BUSY_MS = 3.0
"""Lag of a client, at its 99th percentile: half of the least that is injected here, 6 ms a token."""


@pytest.fixture(scope="module")
def recorded_over_sockets(tmp_path_factory):
    """The same grid on seven servers on loopback, at the same time: they only wait."""
    folder = tmp_path_factory.mktemp("sockets")

    def one(name):
        with serving(PaperServer(replace(INJECTED[name], noise=0.0))) as server:
            record(address(server.url), PLAN, folder / name, device="paper")
        return name, load(folder / name)

    with ThreadPoolExecutor(len(INJECTED)) as threads:
        return dict(threads.map(one, INJECTED))


@pytest.mark.parametrize(("name", "kind"), DONE)
def test_and_over_connections_in_real_time(recorded_over_sockets, name, kind):
    old, new = recorded_over_sockets["old"], recorded_over_sockets[name]
    found = dimension(compare(old, new))
    lag_ms = max(one.extra["client_lag_p99_ms"] for kept in (old, new) for one in kept.records)
    if found.kind is not kind and lag_ms > BUSY_MS:
        pytest.skip(f"real time is what is tested, and this machine was too busy for it: the client woke up to "
                    f"{lag_ms:.0f} ms late (without sockets, in virtual time: the test above)")
    assert found.kind is kind, found
    assert found.regression is (kind is not Kind.NONE)


def test_the_outlier_was_measured(recorded):
    worst = max(record.stat("ttft").max for record in recorded["one noisy outlier"].records)
    assert worst > 1000


def test_figures_are_those_of_the_server(tmp_path, virtual):
    """30 + 0.05 · 1024 = 81.2 ms to the first token; 12 + 0.002 · (1024 + 3) = 14.054 ms for each of 7 more, in the
    mean: 179.578 ms. Four at a time: who comes when three others are in flight waits 3 · 2 ms more. To warm up they
    waited 0, 2, 4 and 6 ms, so the first of the five waves is spread over 6 ms."""
    with virtual(server := PaperServer(Speed())):
        done = record(address(server.url), replace(PLAN, prompt_tokens=(1024,)), tmp_path / "out")
    alone, together = done.records
    assert alone.requests.ttft_ms == pytest.approx(np.full(20, 81.2))
    assert alone.requests.tpot_ms == pytest.approx(np.full(20, 14.054))
    assert alone.requests.e2e_ms == pytest.approx(np.full(20, 179.578))
    assert (alone.completed, alone.failed, alone.output_tokens) == (20, 0, 8)
    assert alone.stat("itl").n == 20 * 7
    assert alone.output_tokens_per_s == pytest.approx(8000 / 179.578)
    assert together.requests.ttft_ms == pytest.approx(np.full(20, 87.2))
    assert together.output_tokens_per_s == pytest.approx(20 * 8000 / (6 + 5 * 185.578))


def test_over_a_connection_no_request_is_faster_than_the_server_waits(tmp_path):
    with serving(PaperServer(Speed())) as server:
        done = record(address(server.url), replace(PLAN, prompt_tokens=(1024,), concurrency=(1,), requests=3),
                      tmp_path / "out")
    (alone,) = done.records
    assert alone.requests.ttft_ms.min() > 80.2  # a millisecond for what clocks read
    assert alone.requests.e2e_ms.min() > 178.6


def test_the_record_says_what_it_belongs_to(recorded):
    environment = recorded["old"].environment
    assert (environment.model, environment.engine, environment.engine_version) == (MODEL, "vllm", "0.9.1")
    assert (environment.device, environment.client) == ("paper", "xpu-triage")
    for one in recorded["old"].records:
        assert one.extra["warm_up_requests"] == one.concurrency
        assert 0 <= one.extra["client_lag_mean_ms"] <= one.extra["client_lag_p99_ms"]


# ---- how the server is asked

SMALL = Plan(concurrency=(2,), prompt_tokens=(40,), output_tokens=(3,), requests=4, seconds=20)
FAST = Speed(fixed=1, prefill=0, queue=0, decode=1, context=0)


def recording(tmp_path, plan=SMALL, **server):
    """The record of one load on a server, and the server."""
    with serving(PaperServer(FAST, **server)) as paper:
        done = record(address(paper.url), plan, tmp_path / "out")
    return done.records[0], paper


def test_prompts_are_token_ids_where_the_server_takes_them(tmp_path):
    kept, paper = recording(tmp_path, meet=2)
    prompts = [body["prompt"] for body in paper.bodies[1:]]  # after the probe
    assert all(len(prompt) == 40 for prompt in prompts)
    assert len({tuple(prompt[:16]) for prompt in prompts}) == len(prompts) == 6  # 2 to warm up, 4 counted
    assert kept.prompt_tokens == 40
    assert all(body["ignore_eos"] and body["max_tokens"] == 3 for body in paper.bodies[1:])
    assert paper.most_in_flight == 2


@pytest.mark.parametrize("server", [{"no_ids": True}, {"chat_only": True}])
def test_prompts_of_words_are_as_long_as_was_asked(tmp_path, server):
    kept, _ = recording(tmp_path, **server)  # 7 tokens of a template, and one for each word
    assert kept.prompt_tokens == 40


def test_an_empty_first_event_is_no_first_token(tmp_path):
    kept, _ = recording(tmp_path, chat_only=True)
    assert any("the first event is empty" in line for line in kept.definitions)
    assert kept.stat("ttft").p50 > 1  # the server waits 1 ms after that event


def test_fields_that_a_server_refuses_are_left_out(tmp_path):
    kept, paper = recording(tmp_path, strict=True)
    assert "ignore_eos" not in paper.bodies[-1]
    assert kept.output_tokens == 3
    assert not any("counts no tokens" in line for line in kept.definitions)


def test_a_server_that_counts_no_tokens_is_said(tmp_path):
    kept, _ = recording(tmp_path, strict=True, counts=False)
    assert any("the server counts no tokens" in line for line in kept.definitions)
    assert (kept.prompt_tokens, kept.output_tokens) == (40, 3)


def test_fields_of_the_service_are_sent_and_kept(tmp_path):
    kept, paper = recording(tmp_path, replace(SMALL, fields={"temperature": 0.7, "top_k": 20}))
    assert all((body["temperature"], body["top_k"]) == (0.7, 20) for body in paper.bodies)
    assert "asked with temperature=0.7, top_k=20" in kept.notes


def test_a_key_goes_to_the_server_and_nowhere_else(tmp_path):
    key = "sk-never-to-be-seen"
    with serving(PaperServer(FAST, key=key)) as paper:
        with pytest.raises(UnusableInput, match="wants a key"):
            record(address(paper.url), SMALL, tmp_path / "none")
        record(address(paper.url), SMALL, tmp_path / "out", headers={"Authorization": f"Bearer {key}"})
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert key not in written
    assert str(paper.port) not in re.findall(r"\d{5}", written.split('"requests"')[0])
    assert "127.0.0.1" not in written


# ---- what can go wrong


def test_an_interrupted_recording_goes_on_where_it_stopped(tmp_path):
    plan = replace(SMALL, concurrency=(1, 2, 3))

    def stop_in_the_second(event):
        if event.number == 2:
            raise KeyboardInterrupt

    with serving(PaperServer(FAST)) as paper:
        with pytest.raises(KeyboardInterrupt):
            record(address(paper.url), plan, tmp_path / "out.json", show=stop_in_the_second)
        first = (tmp_path / "out.json.loads" / "c0001-p000040-o000003.json").read_bytes()
        events = []
        done = record(address(paper.url), plan, tmp_path / "out.json", show=events.append)
    assert [event.number for event in events if event.said == "recorded before"] == [1]
    assert done.path == tmp_path / "out.json"
    assert [one.concurrency for one in store.load(done.path).records] == [1, 2, 3]
    assert not (tmp_path / "out.json.loads").exists()
    kept = store.load(done.path).records[0].requests.ttft_ms
    assert list(kept) == json.loads(first)["cells"][0]["records"][0]["requests"]["ttft_ms"]


def test_a_load_beyond_the_server_is_said_and_the_others_are_kept(tmp_path):
    with serving(PaperServer(FAST, refuse_above=100)) as paper:
        done = record(address(paper.url), replace(SMALL, prompt_tokens=(40, 400)), tmp_path / "out.json")
    assert [one.prompt_tokens for one in done.records] == [40]
    assert "prompt 400" in done.failed[0]
    assert "maximum context length is 100" in done.failed[0]
    assert done.path == tmp_path / "out.json.loads"  # what is not whole is no file of all


def test_a_server_that_refuses_everything_is_one_line(tmp_path):
    with serving(PaperServer(FAST, refuse_above=1)) as paper, pytest.raises(UnusableInput) as refusal:
        record(address(paper.url), SMALL, tmp_path / "out")
    assert "gives no streamed answer: HTTP 400" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_of_another_server_is_refused(tmp_path):
    kept, _ = recording(tmp_path)
    file = next((tmp_path / "out").iterdir())
    store.save(file, [replace(kept, environment=replace(kept.environment, model="another"))])
    with pytest.raises(UnusableInput, match=f"holds a load of another server: model another, now {MODEL}"):
        recording(tmp_path)


def test_loads_asked_with_other_fields_are_not_mixed(tmp_path):
    recording(tmp_path)
    with pytest.raises(UnusableInput, match="asked with other fields"):
        recording(tmp_path, replace(SMALL, fields={"temperature": 0.0}))


def test_a_file_that_is_there_is_not_replaced(tmp_path):
    (tmp_path / "out.json").write_text("mine")
    with pytest.raises(UnusableInput, match="is there already"):
        record(address("http://127.0.0.1:9"), SMALL, tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == "mine"


def test_nobody_listening_is_one_line(tmp_path):
    with dead_port() as port, pytest.raises(UnusableInput, match="nothing listens there"):
        record(address(f"http://127.0.0.1:{port}"), SMALL, tmp_path / "out")


def test_the_time_of_a_load_is_bounded(tmp_path, virtual):
    """302 ms each: a connection warms up, and begins two in what is left of the second and one at 906 ms."""
    with virtual(paper := PaperServer(replace(FAST, fixed=300))):
        kept = record(address(paper.url), replace(SMALL, requests=1000, seconds=1.0), tmp_path / "out").records[0]
    assert kept.completed == 2 * 3
    assert "6 of 1000 requests within 1 s" in kept.notes


def test_a_request_that_takes_too_long_has_failed(tmp_path, virtual):
    with virtual(paper := PaperServer(replace(FAST, stumble=7))):  # one of the last, so a counted one
        kept = record(address(paper.url), replace(SMALL, requests=6, timeout_s=1.0), tmp_path / "out").records[0]
    assert (kept.failed, kept.completed) == (1, 5)
    assert "1 failed: no whole answer within 1 s" in kept.notes


class Endless(PaperServer):
    async def _stream(self, asked, prompt, writer):
        await super()._stream({**asked, "max_tokens": 10 ** 9}, prompt, writer)


@dataclass
class Counting(PaperServer):
    """Counts tokens as it likes."""

    usage: tuple[int, int] = (0, 0)

    async def _stream(self, asked, prompt, writer):
        used = dict(zip(("prompt_tokens", "completion_tokens"), self.usage, strict=True))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for event in ({"choices": [{"text": "a "}]}, {"choices": [], "usage": used}):
            writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()


def test_a_stream_that_never_ends_is_given_up_within_the_timeout_in_one_line(tmp_path, virtual):
    events = []
    with (virtual(paper := Endless(FAST)) as loop,
          pytest.raises(UnusableInput, match="its stream does not end") as refusal):
        record(address(paper.url), replace(SMALL, timeout_s=1.0), tmp_path / "out", show=events.append)
    assert "within 1 s" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(paper.bodies) == 1, "no other way of asking is tried"
    assert loop.time() == pytest.approx(1.0)
    assert [event.said for event in events] == ["asking how the server takes prompts, for 1 s at most"]


@pytest.mark.parametrize(("usage", "says"), [
    ((-5, 4), "counts -5 prompt tokens"), ((0, 4), "counts 0 prompt tokens"),
    ((10 ** 12, 4), "counts 1,000,000,000,000 prompt tokens"),
    ((32, 10 ** 12), "counts 1,000,000,000,000 generated tokens where 4 were asked for"),
    ((32, -1), "counts -1 generated tokens in 1 events"), ((32, 0), "counts 0 generated tokens in 1 events")])
def test_token_counts_that_cannot_be_are_refused(tmp_path, usage, says):
    with serving(Counting(FAST, usage=usage)) as paper, pytest.raises(UnusableInput) as refusal:
        record(address(paper.url), SMALL, tmp_path / "out")
    assert says in str(refusal.value)


def test_token_counts_that_can_be_are_taken(tmp_path):
    with serving(Counting(FAST, usage=(40, 1))) as paper:
        kept = record(address(paper.url), replace(SMALL, output_tokens=(1,)), tmp_path / "out").records[0]
    assert (kept.prompt_tokens, kept.output_tokens) == (40, 1)


@pytest.mark.parametrize("wrong", [{"concurrency": ()}, {"concurrency": (0,)}, {"prompt_tokens": (-1,)},
                                   {"requests": 0}, {"seconds": 1e9}, {"output_tokens": tuple(range(1, 300))},
                                   {"timeout_s": float("nan")}])
def test_a_plan_that_cannot_be_is_refused(wrong):
    with pytest.raises(UnusableInput):
        Plan(**wrong)


def test_without_httpx_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with serving(PaperServer(FAST)) as paper, pytest.raises(MissingExtra, match="bench-record"):
        record(address(paper.url), SMALL, tmp_path / "out")


def test_a_notebook_whose_loop_runs_can_record(tmp_path):
    async def cell():
        return recording(tmp_path)[0]

    assert asyncio.run(cell()).completed == 4


def test_a_client_that_is_late_says_so(tmp_path):
    from xpu_triage.baseline.asking import Served, Way
    from xpu_triage.baseline.record import Asked, made
    from xpu_triage.baseline.records import Environment
    from xpu_triage.baseline.stream import Answer, Load

    answers = tuple(Answer(float(i), [i + 0.05, i + 0.06, i + 0.08], 40, 3) for i in range(4))
    lag = tuple(np.full(100, 0.02))
    kept = made(Load(answers, (), lag, False), Served(Environment(), Way("/", True, {})), Asked(2, 40, 3), SMALL)
    assert any("the client itself was late by 20.0 ms" in note for note in kept.notes)
    # by hand: 50 ms to the first, (80 − 50) ÷ 2 a token, gaps of 10 and 20
    assert (kept.stat("ttft").p50, kept.stat("tpot").p50) == (pytest.approx(50), pytest.approx(15))
    assert kept.stat("itl").mean == pytest.approx(15)
    assert kept.output_tokens_per_s == pytest.approx(12 / 3.08)
