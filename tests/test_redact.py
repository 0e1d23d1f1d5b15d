"""Names go, and what a diagnosis reads stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.redact import Redactor

SALT = b"salt for tests"
WORD = st.from_regex(r"[a-z][a-z0-9]{5,11}", fullmatch=True)


def hidden(text: str, *names: tuple[str, str]) -> str:
    return Redactor(SALT, names).text(text)


@pytest.mark.parametrize(("text", "gone"), [
    ("/home/alice/models/acme-7b", ["alice", "acme"]),
    ("~bob/checkpoints/acme", ["bob", "acme"]),
    ('vllm:num_requests_running{model_name="/data/acme/7b"} 3.0', ["acme"]),
    ('DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="rack7-node3"} 4', ["rack7"]),
    ('up{instance="rack7-node3:9400",pod="chat-acme-0"} 1', ["rack7", "acme"]),
    ('{"hostname": "rack7-node3"}', ["rack7"]),
    ("hostname: rack7-node3", ["rack7"]),
    ("http://rack7-node3:8000/metrics", ["rack7"]),
    ("https://alice:pw@rack7.acme.com/x", ["alice", "pw", "rack7", "acme"]),
    ("ssh alice@rack7", ["alice", "rack7"]),
    ("listens on 10.11.12.13 and 2001:db8::7", ["10.11.12.13", "2001:db8"]),
    ("file:///srv/acme/app.cfg", ["acme"]),
    (r'"said \n/home/alice/app.cfg"', ["alice"]),
    ("<td>/home/alice/out</td>", ["alice"]),
    ("rack7.acme.internal answers", ["rack7", "acme"]),
])
def test_names_of_hosts_users_and_places_are_gone(text, gone):
    out = hidden(text)
    assert not [name for name in gone if name in out], out


@pytest.mark.parametrize("text", [
    "| N/A   39C  N/A     91W / 400W |  31058MiB / 98304MiB |",
    "|  0%   28C        107 W/ 250 W |     0 MiB/ 20638 MiB | 858 /65536  12W /350W",
    "2026/07/03 08:33:53.415, 0, NVIDIA L40S, 9 %, 2 %, 1235 MiB, 71.20 W",
    'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="acme/chat-7b"} 12.0',
    'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 20.0',
    "# scraped 2026-11-30T06:20:31.123Z",
    "2026-11-30T06:20:31.123Z,4242,4250,worker,0.998,",
    "VLLM::Worker_TP0 std::vector c10::cuda::at aten::exponential_ 12:34:56 00000000:03:00.0 aa:bb:cc:dd:ee:ff",
    "http://127.0.0.1:8000/metrics http://localhost:8000 [::1]:8000",
    "torch.nn.functional.linear rate in MB/s, AIC/s",
    "</div><br/> data:image/png;base64,iVBO+/abc/def//ghi/jkl==",
])
def test_figures_routes_model_names_and_this_machine_stay_as_they_are(text):
    assert hidden(text) == text


def test_code_keeps_the_part_of_its_path_that_a_stack_is_read_by():
    assert hidden("/opt/acme/lib/python3.11/site-packages/vllm/v1/core.py").endswith("/site-packages/vllm/v1/core.py")
    assert hidden("/opt/acme/lib/python3.11/threading.py").endswith("/lib/python3.11/threading.py")
    assert hidden("/srv/acme/serve/app.py").endswith("/app.py")
    assert not any("acme" in hidden(path) or "serve" in hidden(path) for path in (
        "/opt/acme/lib/python3.11/site-packages/vllm/v1/core.py", "/srv/acme/serve/app.py"))


def test_one_name_is_the_same_everywhere_and_another_with_another_salt():
    one = Redactor(SALT, [("host", "rack7-node3")])
    seen = ('Hostname="rack7-node3"', "http://rack7-node3:80", "on rack7-node3")
    label, url, word = map(one.text, seen)
    name = word.removeprefix("on ")
    assert name.startswith("host-")
    assert label == f'Hostname="{name}"'
    assert url == f"http://{name}:80"
    assert Redactor(b"other").text("http://rack7-node3:80") != url


def test_a_machine_called_like_a_word_of_evidence_does_not_break_the_evidence():
    text = "vllm:num_requests_running 3.0 on python"
    assert hidden(text, ("host", "vllm"), ("user", "python")) == text


@given(WORD, WORD, WORD)
def test_what_was_taken_out_is_not_taken_out_again(host, user, folder):
    one = Redactor(SALT, [("host", host), ("user", user)])
    text = f'http://{host}:80 {user}@{host} /home/{user}/{folder} up{{instance="{host}:1"}} {host} /x/{folder}/a.py'
    out = one.text(text)
    assert one.text(out) == out


@given(st.text(max_size=200))
def test_any_text_is_taken_and_lines_stay_lines(text):
    assert hidden(text).count("\n") == text.count("\n")
