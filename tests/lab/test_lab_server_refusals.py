"""What cannot be served is refused in JSON, never with a traceback, and the server goes on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client", reason="the lab server needs the extra `lab` (prometheus_client)")

from lab_servers import ask, small
from xpu_triage.lab import front
from xpu_triage.lab.server import LabServer


@pytest.fixture(scope="module")
def refusing() -> Iterator[LabServer]:
    """One server for all of them: it has to survive them."""
    before = set(threading.enumerate())
    with small() as lab:
        yield lab
    assert set(threading.enumerate()) <= before


@pytest.fixture(autouse=True)
def no_thread_is_left() -> None:
    """Looked at once, after the last of them: a connection's thread ends a moment after its reader has the answer."""


@pytest.mark.parametrize(("path", "body", "status", "says"), [
    ("/v1/completions", b"", 400, "body cannot be read"),
    ("/v1/completions", b"{", 400, "body cannot be read"),
    ("/v1/completions", b"\xff\xfe\x00", 400, "body cannot be read"),
    ("/v1/completions", b"[" * 100_000, 400, "body cannot be read"),
    ("/v1/completions", {"prompt": 3}, 400, "$.prompt"),
    ("/v1/completions", {"max_tokens": 1}, 400, "empty"),
    ("/v1/completions", {"prompt": ["a", "b"]}, 400, "one prompt"),
    ("/v1/completions", {"prompt": [1, "a"]}, 400, "not both"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 10**30}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": "5"}, 400, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1024}, 400, "context is 1024"),
    ("/v1/completions", {"prompt": "a" * 5000}, 400, "context is 1024"),
    ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature"),
    ("/v1/completions", b'{"prompt": "a", "temperature": NaN}', 400, "body cannot be read"),
    ("/v1/completions", {"prompt": "a", "top_p": 2}, 400, "top_p"),
    ("/v1/completions", {"prompt": "a", "n": 2}, 400, "n is not supported"),
    ("/v1/completions", {"prompt": "a", "stop": ["x"]}, 400, "stop is not supported"),
    ("/v1/completions", {"prompt": "a", "model": "gpt"}, 404, "`lab`"),
    ("/v1/chat/completions", {"messages": []}, 400, "no messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "only text"),
    ("/v1/chat/completions", {"messages": "hi"}, 400, "$.messages"),
    ("/v1/embeddings", {}, 404, "Not Found"),
    ("/metrics", {}, 405, "POST"),
    ("/lab/fault", {"fault": "none"}, 404, "Not Found"),
    ("/v1/completions", b"x" * (front.MAX_BODY_BYTES + 1), 413, "can have"),
])
def test_bad_requests_are_refused_in_json(refusing: LabServer, capfd, path: str, body: object, status: int, says: str):
    got, headers, answer = ask(refusing, "POST", path, body)
    assert got == status
    assert headers["content-type"] == "application/json"
    error = json.loads(answer)["error"]
    assert error["code"] == status
    assert says in error["message"]
    assert ask(refusing, "GET", "/health")[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("raw", "status"), [
    (b"nonsense\r\n\r\n", 400),
    (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
    (b"BREW /coffee HTTP/1.1\r\n\r\n", 501),
    (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
    (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
])
def test_what_is_no_proper_http_is_refused_and_hung_up_on(refusing: LabServer, capfd, raw: bytes, status: int):
    with socket.create_connection(("127.0.0.1", refusing.port), timeout=60) as connection:
        connection.sendall(raw)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.split()[1] == str(status).encode()
    assert b'{"error":' in answer
    assert capfd.readouterr() == ("", "")


def test_a_body_that_never_comes_whole_is_no_request(refusing: LabServer):
    with socket.create_connection(("127.0.0.1", refusing.port), timeout=60) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
