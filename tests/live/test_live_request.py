"""A request ends in time, in size and in one line, whatever the server does."""

from __future__ import annotations

import gzip
import socket

import pytest

from live_servers import METRICS, always, answer, dead_port, serving, silent, trickle
from xpu_triage.errors import UnusableInput
from xpu_triage.live import request
from xpu_triage.live.probe import Trouble
from xpu_triage.live.request import Address, Client, address

TIMEOUT_S = 0.4
AMPLE_S = 60.0
"""Where something else than the time ends a request, on a busy machine too."""
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def refusal(talk, *, timeout_s: float = AMPLE_S) -> Trouble:
    """The one line that this server costs."""
    with serving(talk) as served, pytest.raises(Trouble) as trouble:
        Client(served.address).ask("GET", "/metrics", timeout_s=timeout_s)
    assert "\n" not in str(trouble.value)
    return trouble.value


def test_an_answer_comes_back_whole_with_its_status():
    with serving(always(answer(METRICS, "503 Busy"))) as served:
        reply = Client(served.address).ask("GET", "/metrics")
    assert (reply.status, reply.body, reply.ok) == (503, METRICS, False)


@pytest.mark.parametrize("talk", [
    silent,
    trickle(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", 0.05),
    trickle(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x", 0.05),
    trickle(b"HTTP/1.1 200 OK\r\n\r\n", b"x", 0.05),
    trickle(CHUNKED, b"1\r\nx\r\n", 0.05),
    trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
], ids=["silent", "endless headers", "slow body", "no length", "slow chunks", "endless continue"])
def test_the_time_is_bounded_as_a_whole_and_not_only_between_two_bytes(talk):
    with serving(talk) as served:
        with pytest.raises(Trouble, match=r"within 0\.4 s"):
            Client(served.address).ask("GET", "/metrics", timeout_s=TIMEOUT_S)
        assert served.whole == 0 or talk is silent, "the client left, and not the server"


@pytest.mark.parametrize("talk", [
    trickle(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n", 0.0),
    always(answer(gzip.compress(bytes(4 << 20)), "200 OK", "Content-Encoding: gzip")),
], ids=["endless body", "gzip bomb"])
def test_the_size_is_bounded_inflated_too(talk, monkeypatch):
    monkeypatch.setattr(request, "MAX_BODY", 1 << 20)
    assert "more than 1 MiB" in str(refusal(talk))


def test_gzip_that_nobody_asked_for_is_read_all_the_same():
    with serving(always(answer(gzip.compress(METRICS), "200 OK", "Content-Encoding: gzip"))) as served:
        assert Client(served.address).ask("GET", "/metrics").body == METRICS


@pytest.mark.parametrize(("talk", "said"), [
    (always(b"220 mail.example ESMTP\r\n"), "not answer in HTTP"),
    (always(b"\x00\xff\x00garbage"), "not answer in HTTP"),
    (always(b""), "closes the connection"),
    (always(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "breaks off"),
    (always(CHUNKED + b"zz\r\n"), "breaks off"),
    (always(answer(b"x", "200 OK", "Content-Encoding: br")), "encoding that is not read (br)"),
    (always(answer(b"not gzip", "200 OK", "Content-Encoding: gzip")), "damaged gzip"),
])
def test_what_is_no_http_is_said_in_words(talk, said):
    assert said in str(refusal(talk))


def test_a_redirect_is_said_and_not_followed_and_its_query_not_repeated():
    with serving(always(answer())) as other:
        to = f"Location: {other.url}/login?token=hunter2"
        trouble = refusal(always(answer(b"", "302 Found", to)))
        assert other.heads == []
    assert "not followed" in str(trouble)
    assert f"{other.url}/login" in str(trouble)
    assert "hunter2" not in str(trouble)
    assert trouble.final


def test_a_dead_port_and_an_unknown_host_are_told_apart(monkeypatch):
    with dead_port() as port, pytest.raises(Trouble, match="nothing listens there"):
        Client(Address("http", "127.0.0.1", port)).ask("GET", "/metrics", timeout_s=AMPLE_S)

    def unknown(*_, **__):  # a name server that cannot be reached would take as long as it likes
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(request.socket, "getaddrinfo", unknown)
    with pytest.raises(Trouble, match="host name that is not known"):
        Client(Address("http", "no-such-host.invalid", 80)).ask("GET", "/metrics", timeout_s=AMPLE_S)


def test_tls_to_a_plain_port_is_said_in_one_line():
    with serving(always(b"HTTP/1.0 400 no\r\n\r\n"), listens=False) as served:
        server = Address("https", "127.0.0.1", served.address.port)
        with pytest.raises(Trouble, match=r"does not speak TLS\. Try http://"):
            Client(server).ask("GET", "/metrics", timeout_s=AMPLE_S)


def test_a_header_reaches_the_server_and_no_message():
    key = "sk-0123456789abcdef"
    with serving(always(b"garbage " + key.encode() + b"\r\n")) as served:
        with pytest.raises(Trouble) as trouble:
            Client(served.address, {"Authorization": f"Bearer {key}"}).ask("GET", "/metrics")
        assert f"Authorization: Bearer {key}".encode() in served.heads[0]
    assert key not in str(trouble.value)


@pytest.mark.parametrize(("url", "shown"), [
    ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    ("localhost:8000/v1/", "http://localhost:8000"),
    ("https://host/prefix/metrics", "https://host:443/prefix"),
    ("http://[::1]:9000", "http://[::1]:9000"),
])
def test_an_address_is_read_from_what_people_type(url, shown):
    assert str(address(url)) == shown


@pytest.mark.parametrize("url", [
    "ftp://host/", "file:///etc/passwd", "http://", "http://host:99999", "http://ho st/", "http://h\x1b[31m/",
    "http://alice:hunter2@host", "http://host/?key=hunter2", "http://host/#hunter2", "",
])
def test_other_schemes_and_urls_with_secrets_are_refused_without_repeating_them(url):
    with pytest.raises(UnusableInput) as error:
        address(url)
    assert "hunter2" not in str(error.value)
    assert "\x1b" not in str(error.value)
