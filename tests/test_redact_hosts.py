"""A host's name that one place of the evidence states is gone from all of it, however short and plain it is."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.cli import main
from xpu_triage.live.folder import Folder
from xpu_triage.redact import Redactor
from xpu_triage.redact_hosts import stated

SHORT = st.from_regex(r"[a-z]{2,7}[0-9]{0,2}", fullmatch=True).filter(lambda name: stated(f'Hostname="{name}"'))
STATES = (
    'DCGM_FI_DEV_GPU_UTIL{{gpu="0",Hostname="{host}"}} 97', 'up{{instance="{host}:9400",job="dcgm"}} 1',
    'm{{kubernetes_node="{host}",le="0.5"}} 2', '{{"hostname": "{host}"}}', "hostname: {host}", "node_name={host}, x=1",
    "SLURMD_NODENAME={host}", "<hostname>{host}</hostname>", "http://{host}:8000/metrics",
    "serve --host {host} --port 80",
    "Nov 30 06:20:31 {host} vllm[12]: INFO ready", "Linux 5.15.0-x ({host}) 11/30/2026 _x86_64_",
    "Linux {host} 5.15.0-105-generic #115-Ubuntu SMP", "alice@{host}:~$ nvidia-smi", "alice@{host} $ uptime",
    "timestamp, index, hostname, power.draw [W]\n2026/01/01 10:00:00.000, 0, {host}, 71.2 W",
    'm{{node="{host}.example.internal"}} 1',
)
SAYS = ("the reply of {host} was late", "moved from {host}, then back", "({host}) is slow", "see {host}: it hangs",
        "{host}", "restart of {Host} at noon")


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_.-]+", text.lower())


@given(SHORT, st.sampled_from(STATES), st.lists(st.sampled_from(SAYS), min_size=1, max_size=4), st.booleans())
def test_a_name_stated_anywhere_is_gone_from_free_text_before_it_and_after_it(host, states, says, first):
    free = [line.format(host=host, Host=host.upper()) for line in says]
    lines = [states.format(host=host), *free] if first else [*free, states.format(host=host)]
    one = Redactor(b"salt")
    out = one.text("\n".join(lines) + "\n")
    assert host not in [part for word in words(out) for part in (word, *re.split(r"[.-]", word))]
    assert one.text(out) == out


@given(SHORT, st.sampled_from(STATES))
def test_one_name_has_one_stand_in_wherever_it_stands(host, states):
    out = Redactor(b"salt").text(f"{states.format(host=host)}\nbare: {host} !\n")
    stand_in = re.search(r"bare: (host-[0-9a-f]{8}) !", out)
    assert stand_in
    if ".internal" not in states:  # a name with its domain is another name
        assert out.count(stand_in[1]) == 2


@pytest.mark.parametrize("text", [
    'm{instance="10.0.0.7:9400",node="3"} 1', 'up{instance="localhost:8000"}', "http://github.com/x https://docs.vllm.ai",
    'x{node="gpu0"} 1', "host: cuda0", 'm{host="h100"} 1', "worker=3 node: 7", "http://vllm:8000",
    "Running: 4 reqs, Waiting: 2 reqs", '{"node": "matmul", "node_name": "softmax"}', 'm{model_name="acme"}',
    "torch.distributed rank=0 host_op host_bound", '"hostname": "host-0123abcd"',
])
def test_addresses_numbers_public_pages_and_words_of_evidence_are_no_names_of_hosts(text):
    assert stated(text) == frozenset()


def test_a_host_called_like_a_device_is_hidden_where_it_is_stated_and_evidence_keeps_its_devices():
    out = Redactor(b"salt").text('m{Hostname="gpu0"} 1\ngpu0 reads 97 %\n')
    assert 'Hostname="host-' in out
    assert "gpu0 reads 97 %" in out


SCRAPE = ('# scraped 2026-11-30T06:00:00Z\n# TYPE vllm:num_requests_running gauge\n'
          'vllm:num_requests_running{engine="0",model_name="m"} 4\n'
          '# TYPE vllm:num_requests_waiting_by_reason gauge\n'
          'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="HOST is full"} 6\n')


@pytest.mark.parametrize("host", ["hal", "n7", "atlas", "rack9"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_what_is_printed_of_one_file_has_no_name_that_another_file_states(tmp_path, capsys, host, together, more):
    """The first file says the name in passing, and is read before the one that states it."""
    (tmp_path / "a.prom").write_text(SCRAPE.replace("HOST", host))
    (tmp_path / "z.prom").write_text(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",Hostname="{host}"}} 97\n')
    given = [str(tmp_path)] if together else [str(tmp_path / "a.prom"), str(tmp_path / "z.prom")]
    assert main(["diagnose", *given, *more]) in (0, 3)
    assert f"{host} is full" in " ".join(capsys.readouterr().out.split())
    assert main(["diagnose", *given, *more, "--redact"]) in (0, 3)
    printed = capsys.readouterr()
    assert host not in words(printed.out + printed.err)
    assert "is full" in " ".join(printed.out.split())


def test_a_recording_is_hidden_again_with_the_names_that_it_met_late(tmp_path):
    one = Redactor(b"salt")
    folder = Folder(tmp_path, one.text)
    folder.write("stacks/0001.json", json.dumps([{"thread_name": "io of hal", "frames": []}]))
    assert "hal" in (tmp_path / "stacks/0001.json").read_text()
    folder.write("metrics/0001.prom", 'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="hal"} 97\nx 1\n')
    folder.hide_again(one.bare)
    assert not any("hal" in words(path.read_text()) for path in tmp_path.rglob("*.*"))
    assert json.loads((tmp_path / "stacks/0001.json").read_text())[0]["frames"] == []
