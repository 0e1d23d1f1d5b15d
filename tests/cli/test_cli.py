"""The command as people and programs meet it: exit codes, one-line refusals, the JSON contract, hostile names."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xpu_triage.catalogue import CATALOGUE
from xpu_triage.cli import main

HOST, DEVICE = 100, 0


def _x(cat, name, ts, dur, pid=HOST, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def decode_steps(n=4, draw="aten::slow_draw", annotation="execute_context_0(0)_generation_8(8)"):
    """`n` equal steps of 10 ms: ten kernels of 100 us, then `draw` for 8 ms on the host between a copy down and up."""
    rows, correlation = [], 0
    for i in range(n):
        t = 1000.0 + 10_000 * i
        rows.append(_x("user_annotation", annotation, t, 9_990))
        for j in range(10):
            correlation += 1
            rows.append(_x("cpu_op", "aten::mm", t + 10 + 20 * j, 15))
            rows.append(_x("cuda_runtime", "cudaLaunchKernel", t + 12 + 20 * j, 8, correlation=correlation))
            rows.append(_x("kernel", "gemm", t + 100 + 100 * j, 100, DEVICE, 7, correlation=correlation))
        rows.append(_x("cpu_op", draw, t + 300, 9_300))
        for at, name, blocked in ((t + 310, "Memcpy DtoH", 850), (t + 9_300, "Memcpy HtoD", 100)):
            correlation += 1
            rows.append(_x("cuda_runtime", "cudaMemcpyAsync", at, blocked, correlation=correlation))
            rows.append(_x("gpu_memcpy", name, at + blocked - 55, 50, DEVICE, 7, correlation=correlation))
    return rows


@pytest.fixture
def trace(tmp_path):
    def write(rows=None, name="trace.json"):
        path = tmp_path / name
        text = json.dumps({"schemaVersion": 1, "traceEvents": decode_steps() if rows is None else rows})
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path
    return write


def run(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


def diagnosed(capsys, *words):
    code, out, err = run(capsys, "diagnose", *words, "--json")
    assert err == ""
    return code, json.loads(out)


def test_a_fallback_is_named_with_its_share_and_exits_0(capsys, trace):
    code, found = diagnosed(capsys, trace())
    assert code == 0
    assert (found["verdict"]["level"], found["verdict"]["id"]) == ("confirmed", "cpu-fallback")
    assert found["bisection"]["path"][-1] == "aten::slow_draw"
    # device idle while the host draws: from the copy down's end (t + 1155) to the copy up's start (t + 9345) of 10,000
    assert found["bisection"]["share"] == pytest.approx(0.819, abs=0.02)
    assert found["signals"]["fallback.op"]["value"] == "aten::slow_draw"


def test_the_json_contract_holds_field_by_field(capsys, trace):
    _, found = diagnosed(capsys, trace())
    assert found["schema"] == 1
    assert set(found["verdict"]) >= {"level", "id", "next"}
    assert found["hypotheses"]
    for hypothesis in found["hypotheses"]:
        assert set(hypothesis) >= {"id", "score", "for", "against", "missing"}
    for name, signal in found["signals"].items():
        assert signal["unit"] == CATALOGUE[name].unit
        assert set(signal) >= {"value", "unit", "window", "source"}
    (record,) = found["evidence"]
    assert set(record) == {"path", "kind", "events", "skipped", "notes"}
    assert record["events"] == 4 * 36
    assert record["skipped"] == 0
    steps = found["steps"]
    assert steps["method"] == "annotation"
    assert [s["start_ms"] for s in steps["list"]] == [0.0, 10.0, 20.0, 30.0]
    # the last step ends with its own end (9.99 ms), later than its device work
    assert [s["wall_ms"] for s in steps["list"]] == pytest.approx([10.0, 10.0, 10.0, 9.99])
    # ten kernels of 100 us and two copies of 50 us, none overlapping
    assert [s["busy_ms"] for s in steps["list"]] == pytest.approx([1.1] * 4)
    assert {s["phase"] for s in steps["list"]} == {"decode"}
    (device,) = steps["devices"]
    assert steps["capture"] == {"span_ms": pytest.approx(39.99), "busy_ms": pytest.approx(4.4)}
    assert device["busy_ms"] + sum(device["idle_ms"].values()) == pytest.approx(39.99)


def test_from_a_trace_every_always_given_signal_is_there_or_its_absence_is_explained(capsys, trace):
    _, found = diagnosed(capsys, trace())
    always = {name for name, spec in CATALOGUE.items() if spec.from_trace}
    assert len(always) >= 25
    assert always <= set(found["signals"]) | set(found["unknown"])
    assert not set(found["signals"]) & set(found["unknown"])


def test_a_sheet_of_two_harmless_figures_is_not_enough_and_exits_3(capsys, tmp_path):
    sheet = tmp_path / "s.yaml"
    sheet.write_text("schema: 1\ntitle: slow\nsignals: {serving.running: 4, step.wall_ms: 30}\n")
    code, found = diagnosed(capsys, sheet)
    assert code == 3
    assert found["verdict"]["level"] == "not enough evidence"
    assert found["verdict"]["id"] is None
    assert found["verdict"]["next"], "it says what to measure"
    assert found["steps"]["method"] is None
    assert found["steps"]["list"] == found["steps"]["devices"] == []


def test_a_trace_and_a_sheet_are_combined_and_a_disagreement_is_said(capsys, trace, tmp_path):
    sheet = tmp_path / "s.yaml"
    sheet.write_text("schema: 1\nsignals: {device.utilization_fraction: 0, device.busy_fraction: 0.9}\n")
    code, out, _ = run(capsys, "diagnose", trace(), sheet)
    assert code == 0
    assert "device.busy_fraction" in out
    assert "disagree" in out
    _, found = diagnosed(capsys, trace(), sheet)
    assert found["signals"]["device.utilization_fraction"]["value"] == 0
    assert found["signals"]["device.busy_fraction"]["value"] == pytest.approx(0.11, abs=0.001), "measured before typed"
    assert [e["kind"] for e in found["evidence"]][1] == "sheet"


def test_a_folder_is_read_whole_and_its_unreadable_files_are_named(capsys, trace, tmp_path):
    trace(name="a.json")
    trace(name="b.json.gz")
    (tmp_path / "broken.json").write_text('{"traceEvents": 3}')
    code, found = diagnosed(capsys, tmp_path)
    assert code == 0
    by_name = {Path(e["path"]).name: e for e in found["evidence"]}
    assert set(by_name) >= {"a.json", "b.json.gz", "broken.json"}
    assert by_name["broken.json"]["notes"][0].startswith("not used: ")
    assert [o["verdict"]["id"] for o in found["others"]] == ["cpu-fallback"]


BAD = {
    "missing file": lambda d: d / "nothing.json",
    "empty file": lambda d: _put(d / "e.json", b""),
    "folder without evidence": lambda d: _folder(d / "sub"),
    "JSON that is no trace": lambda d: _put(d / "j.json", b'{"a": 1}'),
    "trace without complete events": lambda d: _put(
        d / "i.json", b'{"traceEvents": [{"ph": "i", "name": "a", "ts": 1, "pid": 1, "tid": 1}]}'),
    "binary junk": lambda d: _put(d / "x.bin", bytes(range(256)) * 40),
    "sheet with a wrong unit": lambda d: _put(
        d / "u.yaml", b"schema: 1\nsignals: {step.wall_ms: {value: 3, unit: GB}}\n"),
    "sheet with an unknown name": lambda d: _put(d / "n.yaml", b"schema: 1\nsignals: {step.wal_ms: 3}\n"),
    "gzip of nothing but blanks": lambda d: _put(d / "z.json.gz", gzip.compress(b" " * (1 << 27))),
    "Nsight report": lambda d: _put(d / "r.nsys-rep", b"NSYSREP\x00" + bytes(200)),
    "URL": lambda d: "https://example.invalid/trace.json",
}


def _put(path, data):
    path.write_bytes(data)
    return path


def _folder(path):
    path.mkdir()
    return path


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_is_written(capsys, tmp_path, kind):
    path = BAD[kind](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, "diagnose", path, "--report", tmp_path / "r.html")
    assert code == 2
    assert out == ""
    assert err.startswith("xpu-triage: ")
    assert err.count("\n") == 1
    assert len(err) < 600
    assert str(Path(str(path)).name) in err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unreadable_file_is_refused_in_one_line(capsys, trace):
    if os.geteuid() == 0:
        pytest.skip("root may read everything, so there is no unreadable file to try")
    path = trace()
    path.chmod(0)
    code, out, err = run(capsys, "diagnose", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "ermission" in err


def test_a_misspelt_signal_is_answered_with_the_nearest_name(capsys, tmp_path):
    code, _, err = run(capsys, "diagnose", BAD["sheet with an unknown name"](tmp_path))
    assert code == 2
    assert "step.wall_ms" in err


@pytest.mark.parametrize("target", ["notes.txt", "trace.json", "link.html", "device", "folder.html"])
def test_a_report_replaces_nothing_but_a_report(capsys, trace, tmp_path, target):
    path = trace()
    before = path.read_bytes()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "link.html").symlink_to(path)
    (tmp_path / "folder.html").mkdir()
    out = Path("/dev/null") if target == "device" else tmp_path / target
    code, shown, err = run(capsys, "diagnose", path, "--report", out)
    assert (code, shown, err.count("\n")) == (2, "", 1)
    assert path.read_bytes() == before
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert Path("/dev/null").is_char_device()


def test_a_report_that_cannot_be_written_does_not_cost_the_answer(capsys, trace, monkeypatch):
    from xpu_triage import report

    def no_room(evidence, out, **_):
        raise report.UnusableInput("cannot be written: no space left on device", where=out)

    monkeypatch.setattr(report, "write_report", no_room)
    code, out, err = run(capsys, "diagnose", trace(), "--report", "r.html")
    assert code == 2
    assert "CONFIRMED   cpu-fallback" in out
    assert err == "xpu-triage: r.html: cannot be written: no space left on device\n"


def test_of_several_traces_the_one_that_says_most_leads_and_is_named(capsys, trace, tmp_path):
    trace(decode_steps(1)[:3], name="a-few-rows.json")
    trace(name="b-whole.json")
    code, out, _ = run(capsys, "diagnose", tmp_path)
    assert code == 0
    card = out.split("╰")[0]
    assert "b-whole.json" in card
    assert "a-few-rows.json on its own: not enough evidence" in " ".join(out.split())


def test_damage_is_said_in_the_headline(capsys, trace):
    path = trace(name="t.json.gz")
    path.write_bytes(path.read_bytes()[:-200])
    _, out, _ = run(capsys, "diagnose", path)
    assert "gzip has no end" in out.split("╰")[0]


def test_a_proof_that_nothing_falls_back_can_be_read_in_the_terminal(capsys, root):
    _, out, _ = run(capsys, "diagnose", root / "playbook/incidents/p800-exponential-fallback/fixed.json.gz")
    assert "operators on a CPU: none, 0.0 % of the window" in out
    assert "the host waits for the device 1.0 times a step" in out


HOSTILE = "<script>alert(1)</script>\x1b[2J\x1b]0;owned\x07\nnext line [bold]x[/bold] $\\frac{1}{0}$ \u202e"


def test_names_from_a_trace_cannot_command_the_terminal(capsys, trace):
    code, out, err = run(capsys, "diagnose", trace(decode_steps(draw=HOSTILE, annotation="step " + HOSTILE)))
    assert code == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u202e]", out + err)
    assert "[bold]" in out, "markup of the terminal library is text as well"


def test_names_from_a_trace_keep_the_json_valid(capsys, trace):
    _, found = diagnosed(capsys, trace(decode_steps(draw=HOSTILE)))
    assert found["bisection"]["path"][-1].startswith("<script>alert(1)</script>\\x1b[2J")


def test_a_truncated_trace_gives_the_verdict_of_what_is_there_and_says_where_the_cut_is(capsys, trace):
    path = trace(decode_steps(8))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    code, found = diagnosed(capsys, path)
    assert code == 0
    assert found["verdict"]["id"] == "cpu-fallback"
    assert any(re.search(r"(cut|truncated|breaks off).*\d", note) for note in found["evidence"][0]["notes"])


def test_fingerprints_are_listed_and_read_and_a_misspelling_is_answered(capsys):
    code, out, _ = run(capsys, "fingerprints")
    assert code == 0
    assert len(out.strip().splitlines()) >= 17
    code, out, _ = run(capsys, "fingerprints", "cpu-fallback")
    assert code == 0
    assert "Symptom" in out
    assert "---" not in out.splitlines()[0]
    code, out, err = run(capsys, "fingerprints", "cpu-falback")
    assert (code, out) == (2, "")
    assert "cpu-fallback" in err


def test_the_output_may_be_cut_off_by_its_reader(trace):
    command = f"{sys.executable} -m xpu_triage diagnose {trace()} --json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stdout == '{\n  "schem'
    assert done.stderr == ""


def test_no_progress_and_no_colour_where_nobody_looks(trace):
    done = subprocess.run([sys.executable, "-m", "xpu_triage", "diagnose", str(trace())],
                          capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_report_is_written_though_nobody_reads_to_the_end(trace, tmp_path):
    report = tmp_path / "out.html"
    command = f"{sys.executable} -m xpu_triage diagnose {trace()} --report {report} | head -c 10"
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=600)
    assert report.read_text().startswith("<!DOCTYPE html>")
