"""Whatever a path is or becomes, one piece costs one line, and never the others."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

from xpu_triage import gathering
from xpu_triage.cli import main
from xpu_triage.diagnosis import diagnose
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import detect

SHEET = "schema: 1\nsignals: {step.wall_ms: 30, serving.running: 4}\n"
TRACE = {"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 1, "tid": 1}] * 3}
PROM = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 4\n"
QUERY = "timestamp, index, utilization.gpu [%]\n2026/01/01 10:00:00.000, 0, 97 %\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sheet.yaml").write_text(SHEET)
    return tmp_path


def noted(found) -> dict[str, str]:
    return {Path(record.path).name: "; ".join(record.notes) for record in found.evidence}


def test_a_link_to_itself_is_one_line_beside_the_rest(folder):
    (folder / "loop").symlink_to("loop")
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "gone").symlink_to("nowhere")
    said = noted(diagnose(folder))
    assert {name: said[name] for name in ("loop", "a", "b")} == dict.fromkeys(
        ("loop", "a", "b"), "not used: cannot be read (Too many levels of symbolic links)")
    assert said["gone"] == "not used: no such file"
    assert said["sheet.yaml"] == ""


@pytest.mark.parametrize("name", ["loop", "a\0b", "x" * 5000, "a/" * 3000, "\ud800", b"\xff\xfe.txt"])
def test_a_name_that_is_none_is_refused_in_one_line(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    with pytest.raises(UnusableInput) as error:
        diagnose(name)
    assert "\n" not in str(error.value)


def test_names_that_no_terminal_can_show_are_read_all_the_same(folder, capsys):
    names = (b"\xff\xfe.yaml", b"new\nline.yaml", b"esc\x1b[31m.yaml", "bidi\u202e.yaml".encode(), b" .yaml",
             b"-x.yaml")
    for name in names:
        (folder / os.fsdecode(name)).write_text(SHEET)
    assert main(["diagnose", str(folder)]) == 3
    printed = capsys.readouterr()
    assert " ".join(printed.out.split()).count(": sheet, 2 figures") == len(names) + 1
    assert "\x1b" not in printed.out
    assert "\u202e" not in printed.out
    assert main(["diagnose", str(folder), "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["evidence"]) == len(names) + 1


def test_one_file_under_several_names_is_read_once(folder):
    (folder / "again.yaml").symlink_to("sheet.yaml")
    assert len(diagnose(folder, folder / "sheet.yaml").evidence) == 1


def database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")
    connection.commit()
    connection.close()


KINDS = {
    "t.json": lambda path: path.write_text(json.dumps(TRACE)),
    "t.json.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(TRACE).encode())),
    "m.prom": lambda path: path.write_text(PROM),
    "q.csv": lambda path: path.write_text(QUERY),
    "s.yaml": lambda path: path.write_text(SHEET),
    "d.sqlite": database,
    "e.log": lambda path: path.write_text("INFO 01-01 10:00:00 [x.py:1] Automatically detected platform cuda.\n"),
    "config.json": lambda path: path.write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000})),
    "p.json": lambda path: path.write_text(json.dumps([{
        "pid": 1, "thread_id": 1, "thread_name": "m", "active": True, "owns_gil": True,
        "frames": [{"name": "f", "filename": "a.py", "short_filename": "a.py", "line": 1}]}])),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("becomes", ["nothing", "a folder", "a loop"])
def test_what_goes_between_being_found_and_being_read_costs_itself_alone(folder, monkeypatch, name, becomes):
    path = folder / name
    KINDS[name](path)
    find = detect.find

    def found_then_gone(given):
        found = find(given)
        if path.is_file():
            path.unlink()
            if becomes == "a folder":
                path.mkdir()
            elif becomes == "a loop":
                path.symlink_to(name)
        return found

    monkeypatch.setattr(gathering.detect, "find", found_then_gone)
    said = noted(diagnose(folder))
    assert said[name].startswith("not used: ")
    assert said["sheet.yaml"] == ""


def test_what_goes_between_being_listed_and_being_looked_at_is_one_line(folder, monkeypatch):
    look = detect._look

    def gone(path):
        if path.name == "sheet.yaml":
            return look(path)
        path.unlink()
        return look(path)

    (folder / "gone.prom").write_text(PROM)
    monkeypatch.setattr(detect, "_look", gone)
    assert noted(diagnose(folder))["gone.prom"] == "not used: no such file"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_entered_is_one_line(folder):
    (folder / "closed").mkdir(mode=0)
    try:
        assert noted(diagnose(folder))["closed"] == "not used: no permission to read it"
    finally:
        (folder / "closed").chmod(0o755)


def test_a_file_that_inflates_without_end_costs_itself_alone(folder, monkeypatch):
    def bomb(head):
        if head.path.name == "bomb.json.gz":
            raise UnusableInput("inflates without end", where=head.path)
        return False

    (folder / "bomb.json.gz").write_bytes(gzip.compress(b"[1]"))
    monkeypatch.setattr(detect, "FORMATS", (detect._Format("x", bomb), *detect.FORMATS))
    assert noted(diagnose(folder))["bomb.json.gz"] == "not used: inflates without end"
