"""The load client reads streams to the end, says what went wrong, and knows when it was itself the slow one."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from live_servers import dead_port
from xpu_triage import lab_load
from xpu_triage.cli import main
from xpu_triage.lab_load import Load, Reply, lines, run_load

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@contextmanager
def answering(answer: Callable[[Callable[[bytes], object]], None], asked: list[dict] | None = None) -> Iterator[str]:
    """A server on loopback that reads a request and lets `answer` write what it likes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while line := self.rfile.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            if not length:  # somebody looks whether anything listens here
                return
            body = json.loads(self.rfile.read(length))
            if asked is not None:
                asked.append(body)
            answer(self.wfile.write)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def event(text: str, reason: str = "null") -> bytes:
    return b'data: {"choices": [{"text": "%s", "finish_reason": %s}]}\n\n' % (text.encode(), reason.encode())


def test_an_event_without_text_is_no_first_token():
    def answer(write: Callable[[bytes], object]) -> None:
        write(OK + event(""))
        time.sleep(0.1)
        write(event("a") + b": a comment\n\n")
        time.sleep(0.1)
        write(event("b", '"length"') + b'data: {"choices": [], "usage": {}}\n\n' + b"data: [DONE]\n\n")

    with answering(answer) as url:
        reply, = run_load(url, 1, 1).replies
    assert reply.ok
    assert (reply.tokens, reply.finish_reason, len(reply.gaps_s)) == (2, "length", 1)
    assert reply.ttft_s >= 0.1
    assert reply.ttft_s + reply.gaps_s[0] >= 0.2  # the first of the two may be read late
    assert reply.e2e_s >= reply.ttft_s + reply.gaps_s[0]


@pytest.mark.parametrize(("sent", "status", "tokens", "says"), [
    (OK + event("a"), 200, 1, "cut"),
    (OK, 200, 0, "cut"),
    (OK + b"data: {broken\n\n", 200, 0, "Expecting"),
    (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 503, 0, "Service Unavailable"),
    (b"", 0, 0, "Remote end closed"),
    (b"nonsense\r\n\r\n", 0, 0, "nonsense"),
])
def test_an_answer_that_is_not_whole_counts_as_failed(sent: bytes, status: int, tokens: int, says: str):
    with answering(lambda write: write(sent) and None) as url:
        load = run_load(url, 3, 2)
    assert not load.answered
    assert {(reply.status, reply.tokens) for reply in load.replies} == {(status, tokens)}
    assert says in load.replies[0].error
    assert (load.ttft_ms, load.itl_ms, load.e2e_ms, load.tokens_per_s) == (None, None, None, 0)
    assert "3 failed" in lines(load)[-1]


def test_prompts_differ_and_answers_vary_only_where_that_is_asked_for():
    sent: list[list[dict]] = []
    for vary in (False, True, True):
        sent.append([])
        with answering(lambda write: write(OK + b"data: [DONE]\n\n") and None, sent[-1]) as url:
            run_load(url, 12, 3, prompt_tokens=5, max_tokens=9, vary=vary)
    same, varied, again = (sorted((body["prompt"], body["max_tokens"]) for body in bodies) for bodies in sent)
    assert len({prompt for prompt, _ in same}) == 12
    assert {len(prompt) for prompt, _ in same} == {5 * 4}
    assert {tokens for _, tokens in same} == {9}
    assert {tokens for _, tokens in varied} == {5, 6, 7, 8, 9}
    assert varied == again


def test_nobody_there_is_said():
    with dead_port() as port:
        load = run_load(f"http://127.0.0.1:{port}", 1, 1)
    assert (load.replies[0].status, load.replies[0].ok) == (0, False)
    assert "refused" in load.replies[0].error


def test_a_server_that_keeps_silent_costs_no_more_than_the_patience():
    given_up = threading.Event()
    with answering(lambda write: given_up.wait(120) and None) as url:
        load = run_load(url, 1, 1, timeout_s=0.3)
        given_up.set()
    assert "timed out" in load.replies[0].error


def test_it_is_late_where_its_process_gets_no_turn():
    """Calls of C that keep the interpreter, of a tenth of a second and more each: no thread of the client runs."""
    def answer(write: Callable[[bytes], object]) -> None:
        sum(x * 0 for x in (1,))
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            sorted(range(1_000_000, 0, -1), key=int.__neg__)
        write(OK + b"data: [DONE]\n\n")

    with answering(answer) as url:
        load = run_load(url, 1, 1)
    assert max(load.lag_s) > 0.03


def test_figures_are_medians_over_what_was_answered():
    load = Load((Reply(200, 3, 0.1, (0.02, 0.04), 0.2), Reply(200, 3, 0.3, (0.03, 0.99), 1.4), Reply(503, error="no")),
                wall_s=2.0, lag_s=(0.001, 0.003))
    assert load.ttft_ms == pytest.approx(200)
    assert load.itl_ms == pytest.approx(35)
    assert load.itl_p99_ms == pytest.approx(1e3 * (0.04 + 0.97 * 0.95))  # of 4 gaps the 99 % point is at 2.97
    assert load.e2e_ms == pytest.approx(800)
    assert load.tokens_per_s == 3
    assert load.lag_p99_ms == pytest.approx(2.98)


@pytest.mark.parametrize(("wrong", "says"), [
    ({"requests": 0}, "requests is 0"), ({"concurrency": 10_000}, "concurrency is"), ({"max_tokens": 0}, "max_tokens"),
    ({"prompt_tokens": -1}, "prompt_tokens"), ({"url": "https://x"}, "address"), ({"url": "127.0.0.1:80"}, "address"),
])
def test_loads_without_bounds_or_address_are_refused(wrong: dict, says: str):
    with pytest.raises(ValueError, match=says):
        run_load(**{"url": "http://127.0.0.1:9", **wrong})


def test_the_command_s_exit_code_tells_whether_all_were_answered(capsys: pytest.CaptureFixture[str]):
    def answer(write: Callable[[bytes], object]) -> None:
        write(OK + event("a") + b"data: [DONE]\n\n")

    with answering(answer) as url:
        assert main(["lab", "load", url, "--requests", "2"]) == 0
    assert "2 of 2 requests answered" in capsys.readouterr().out
    with answering(lambda write: write(OK) and None) as url:
        assert main(["lab", "load", url, "--requests", "1"]) == 1
    assert "0 of 1 request answered" in capsys.readouterr().out


def test_no_request_is_sent_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """On a clock that each answer moves by a second: of ten requests those of the first three seconds go out."""
    now = [0.0]
    monkeypatch.setattr(lab_load.time, "perf_counter", lambda: now[0])
    sent: list[dict] = []

    def answer(write: Callable[[bytes], object]) -> None:
        now[0] += 1.0
        write(OK + event("a") + b"data: [DONE]\n\n")

    with answering(answer, sent) as url:
        assert main(["lab", "load", url, "--requests", "10", "--concurrency", "1", "--seconds", "2.5"]) == 0
    assert len(sent) == 3
    told = capsys.readouterr().out
    assert "3 of 3 requests answered" in told
    assert "7 not sent: after 2.5 s none is" in told


@pytest.mark.parametrize("host", ["10.0.0.1", "example.org", "127.0.0.1.example.org", "[2001:db8::1]"])
def test_another_machine_is_loaded_only_where_that_is_meant(host: str, capsys: pytest.CaptureFixture[str]):
    assert main(["lab", "load", f"http://{host}:8000"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--elsewhere" in told


def test_a_server_that_is_not_there_costs_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["lab", "load", "http://127.0.0.1:9", "--wait", "0"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "nothing listens there" in told


def test_the_command_needs_no_torch():
    """It runs beside the server that it loads: half a gigabyte of imports would be CPU taken from it."""
    code = "import sys\nfrom xpu_triage.cli import main\nfrom xpu_triage import lab_load\n" \
           "assert 'torch' not in sys.modules and 'xpu_triage.lab' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
