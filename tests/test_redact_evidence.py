"""Evidence without names says the same: same signals, no name in what is printed; before it is shared, and after."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from xpu_triage.cli import main
from xpu_triage.diagnosis import diagnose
from xpu_triage.errors import UnusableInput
from xpu_triage.redact import Redactor
from xpu_triage.redact_evidence import ASKED, asked, hidden, redacting
from xpu_triage.samples import Frame, Scrape, Stack, Stacks
from xpu_triage.signals import Signal

NAMES = ("alice", "gpu-77", "rack9", "carol", "acme", "henry", "10.9.8.7")
SAMPLES = Path(__file__).resolve().parents[2] / "shared/samples"


def metrics(count: int) -> str:
    who = 'model_name="/home/alice/acme-7b",engine="0",server="gpu-77:8000",namespace="acme-prod"'
    return (f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{who}}} 4\n"
            f"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{{who}}} {100 * count}\n"
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1f-{count}",Hostname="rack9"}} 97\n')


STACK = [{"pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": True,
          "frames": [{"name": "sample", "filename": "/home/alice/acme serve/app.py", "short_filename": "acme/app.py",
                      "module": None, "line": 3}]}]
LOG = ("Nov 30 07:00:00 rack9 vllm[7]: INFO 11-30 07:00:00 [x.py:1] Using FLASH_ATTN backend.\n"
       "INFO 11-30 07:00:01 [x.py:1] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: "
       "200.0 tokens/s, Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 12.0%\n"
       "INFO 11-30 07:00:02 [x.py:1] args: host='gpu-77', user='henry', model='/home/alice/acme-7b' from 10.9.8.7\n")
QUERY = "timestamp, index, name, utilization.gpu [%], power.draw [W]\n" + "".join(
    f"2026/01/01 10:00:0{at}.000, 0, NVIDIA L40S, 9{at} %, 250.{at} W\n" for at in range(6))


@pytest.fixture
def folder(tmp_path):
    """A folder of a person, on a host, of a customer."""
    folder = tmp_path / "alice" / "acme-run"
    (folder / "gpu-77").mkdir(parents=True)
    for count in range(3):
        (folder / f"carol-2026010{1}T10000{count}Z.prom").write_text(metrics(count))
        (folder / "gpu-77" / f"henry-{count}.json").write_text(json.dumps(STACK))
    (folder / "rack9.log").write_text(LOG)
    (folder / "gpu-77" / "smi.csv").write_text(QUERY)
    (folder / "henry-notes.txt").write_text("bring milk\n")
    return folder


def values(path) -> dict[str, object]:
    return {name: signal.value for name, signal in diagnose(path).signals.items()}


def named(text: str) -> list[str]:
    return [name for name in NAMES if name in text.lower()]


def without_folders(found: dict[str, object]) -> dict[str, object]:
    """A source file may lose the folder that it lies in."""
    return {name: re.sub(r"\((?:[\w.+-]+/)+", "(", value) if isinstance(value, str) else value
            for name, value in found.items()}


def rewritten(source: Path, target: Path) -> str:
    """A copy with names taken out of every file; all of its text."""
    one = Redactor(b"salt")
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    written = ""
    for path in files:
        to = target / (path.name if path == source else path.relative_to(source))
        to.parent.mkdir(parents=True, exist_ok=True)
        text = one.text(path.read_text(encoding="utf-8", errors="surrogateescape"))
        to.write_text(text, encoding="utf-8", errors="surrogateescape")
        shutil.copystat(path, to)
        written += text
    return written


def test_a_folder_rewritten_without_names_gives_the_same_signals(folder, tmp_path):
    written = rewritten(folder, tmp_path / "out")
    assert not named(written)
    assert without_folders(values(tmp_path / "out")) == without_folders(values(folder))


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples: others' evidence is not in the repository")
@pytest.mark.parametrize("kind", ["metrics", "smi", "pyspy", "logs", "bench"])
def test_recorded_evidence_gives_the_same_signals_without_names(kind, tmp_path):
    compared = 0
    for number, path in enumerate(sorted((SAMPLES / kind).iterdir())):
        if path.is_dir() or path.stat().st_size > 2 << 20 or b"\0" in path.read_bytes()[:4096]:
            continue
        try:
            before = values(path)
        except UnusableInput:
            continue
        rewritten(path, tmp_path / str(number))
        assert without_folders(values(tmp_path / str(number))) == without_folders(before), path.name
        compared += 1
    assert compared


def run(capsys, *words) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_what_is_printed_has_no_name_in_it_even_where_lines_are_wrapped(folder, capsys, more):
    code, out, err = run(capsys, "diagnose", folder, "--redact", *more)
    assert code in (0, 3)
    assert not named("".join(out.split()) + err)
    assert "evidence-0001.prom" in out
    assert ASKED not in os.environ


def test_the_json_has_the_same_signals_and_evidence_in_the_same_order(folder, capsys):
    _, plain, _ = run(capsys, "diagnose", folder, "--json")
    _, redacted, _ = run(capsys, "diagnose", folder, "--json", "--redact")
    before, after = json.loads(plain), json.loads(redacted)
    assert [signal["value"] for name, signal in before["signals"].items() if name != "host.top_op"] == \
        [signal["value"] for name, signal in after["signals"].items() if name != "host.top_op"]
    assert before["verdict"]["id"] == after["verdict"]["id"]
    assert [e["events"] for e in before["evidence"]] == [e["events"] for e in after["evidence"]]
    assert before["evidence"][0]["path"].endswith(".prom")


def test_a_relative_path_and_a_file_alone_are_hidden_too(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    for given in ("alice/acme-run", "alice/acme-run/rack9.log"):
        _, out, err = run(capsys, "diagnose", given, "--redact", "--json")
        assert not named(out + err)


@pytest.mark.parametrize("name", ["rack9-nothing.log", "alice/gone"])
def test_a_refusal_does_not_name_what_it_refuses(folder, capsys, name):
    code, _, err = run(capsys, "diagnose", folder / name, "--redact")
    assert code == 2
    assert not named(err)
    code, _, err = run(capsys, "diagnose", folder / "henry-notes.txt", "--redact")
    assert code == 2
    assert "text of no known kind" in err
    assert not named(err)


def test_kernels_and_operators_of_a_trace_keep_their_names(tmp_path, capsys):
    rows = []
    for step in range(4):
        at = 1000.0 + 10_000 * step
        rows += [
            {"ph": "X", "cat": "user_annotation", "name": "step", "ts": at, "dur": 9_000, "pid": 1, "tid": 1},
            {"ph": "X", "cat": "python_function", "name": "/home/alice/serve/app.py(3): step", "ts": at + 1,
             "dur": 8_000, "pid": 1, "tid": 1},
            {"ph": "X", "cat": "cpu_op", "name": "aten::exponential_", "ts": at + 2, "dur": 7_000, "pid": 1, "tid": 1},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 3, "dur": 5, "pid": 1, "tid": 1,
             "args": {"correlation": step + 1}},
            {"ph": "X", "cat": "kernel", "name": "void at::native::fill<float>(int)", "ts": at + 20, "dur": 100,
             "pid": 0, "tid": 7, "args": {"correlation": step + 1}}]
    path = tmp_path / "alice.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": rows}).encode()))
    _, out, _ = run(capsys, "diagnose", path, "--redact", "--json")
    assert "aten::exponential_" in out
    assert "void at::native::fill<float>(int)" in out
    assert not named(out)


def test_parts_are_hidden_field_by_field_and_figures_are_the_same():
    one = Redactor(b"salt")
    scrape = hidden(Scrape("/home/alice/a.prom", 1.0, {"m": (({"server": "rack9", "le": "0.5"}, 2.0),)}), one)
    ((labels, value),) = scrape.values["m"]
    assert (labels["le"], value, scrape.time) == ("0.5", 2.0, 1.0)
    assert not named(str(labels) + scrape.source)
    frames = (Frame("forward", "vllm/v1/core.py", 3), Frame("step", "acme/serve/app.py", 4))
    stacks = hidden(Stacks("x", "py-spy dump", (Stack("7 worker", "MainThread", True, None, frames),)), one)
    kept, changed = stacks.stacks[0].frames
    assert str(kept) == "forward (vllm/v1/core.py:3)"
    assert re.fullmatch(r"step \(path-[0-9a-f]{8}/app\.py:4\)", str(changed))
    assert hidden(Signal("step.wall_ms", 30.0, "typed", "", "/home/alice/s.yaml"), one).value == 30.0


def test_it_is_asked_for_within_the_block_alone_and_its_refusals_are_hidden_too():
    def refuse():
        with redacting() as one:
            assert asked() is one
            raise UnusableInput("cannot be read", where="/home/alice/x", todo="Ask alice@rack9")

    with pytest.raises(UnusableInput) as error:
        refuse()
    assert asked() is None
    assert "cannot be read" in str(error.value)
    assert not named(str(error.value))


def test_a_report_has_no_name_in_it(folder, tmp_path, capsys):
    pytest.importorskip("papermill")
    code, out, _ = run(capsys, "diagnose", folder, "--redact", "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    text = re.sub(r"data:image/[^\"']+", "", page)
    assert code in (0, 3)
    assert "evidence-0001.prom" in text
    assert not named(text)
    assert not named(out)
