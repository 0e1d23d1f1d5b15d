"""Evidence is told by what is in a file, and what cannot be used is listed with the reason."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from kineto_files import span, text_of, written
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import detect

TRACE = text_of([span("cpu_op", "a", 1, 2)])
SHEET = b"# figures of an evening\ntitle: slow\nsignals:\n  step.wall_ms: 41\n"


@pytest.mark.parametrize(("content", "kind"), [
    (TRACE, "kineto"),
    (gzip.compress(TRACE), "kineto"),
    (b'[{"ph": "X", "ts": "1736408883688177.930"}]', "kineto"),
    (b"\xef\xbb\xbf  " + TRACE, "kineto"),
    (b'{"schemaVersion": 1, "distributedInfo": {"a": "' + b"x" * (1 << 19) + b'"}, "traceEvents": []}', "kineto"),
    (TRACE[:TRACE.index(b"[") + 10], "kineto"),
    (SHEET, "sheet"),
    (b'schema: 1\n"signals": {}\n', "sheet"),
    (b'{"schema": 1, "signals": {"step.wall_ms": 41}}', "sheet"),
    ("title: Größe\nsignals: {}\n".encode(), "sheet"),
], ids=lambda given: given if isinstance(given, str) else "")
def test_a_file_is_what_its_content_says_whatever_its_name(tmp_path: Path, content: bytes, kind: str) -> None:
    path = written(tmp_path / "evidence.bin", content)
    assert detect.find(path) == [detect.Found(path, kind)]
    assert detect.find(str(path)) == [detect.Found(path, kind)]


@pytest.mark.parametrize(("name", "content", "says"), [
    ("a.json", b"", "empty"),
    ("a.json", b"{}", "JSON of no known kind"),
    ("a.json", b'{"schema": 1, "verdict": {}, "hypotheses": [], "signals": {}}', "JSON of an earlier diagnosis"),
    ("a.json", b'[{"a": 1}]', "JSON of no known kind"),
    ("a.yaml", b"replicas: 3\nspec:\n  signals: 4\n", "text of no known kind"),
    ("a.log", b"INFO signals: none\n", "text of no known kind"),
    ("a.sqlite", b"SQLite format 3\0" + bytes(99), "SQLite"),
    ("a.nsys-rep", bytes(range(256)), "nsys export --type sqlite"),
    ("a.zip", b"PK\3\4" + bytes(30), "archive"),
    ("a.tgz", gzip.compress(b"a.json".ljust(257, b"\0") + b"ustar" + bytes(99)), "archive"),
    ("a.zst", b"\x28\xb5\x2f\xfd" + bytes(30), "Unpack it"),
    ("a.bin", bytes(range(256)), "binary data"),
    ("a.gz", b"\x1f\x8b\x08" + bytes(30), "damaged gzip"),
], ids=lambda given: given if isinstance(given, str) else "")
def test_what_no_reader_reads_is_refused_in_one_line_that_says_what_it_is(
        tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(UnusableInput) as caught:
        detect.find(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_ascend_trace_is_known_by_its_layers_wherever_they_are_named(tmp_path: Path) -> None:
    events = [span("cpu_op", "aten::add", f"17364088836881{i:04}.930", 2) for i in range(9000)]
    layer = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Ascend Hardware"}}
    path = written(tmp_path / "x.json", json.dumps([*events, layer]).encode())
    assert detect.find(path)[0].kind == "ascend"
    assert detect.find(written(tmp_path / "y.json", json.dumps(events).encode()))[0].kind == "kineto"


@pytest.mark.parametrize("given", ["https://host/trace.json", "s3://bucket/x", "file:///tmp/x"])
def test_addresses_are_refused(given: str) -> None:
    with pytest.raises(UnusableInput, match="URL"):
        detect.find(given)


def test_a_missing_file_and_a_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no such file"):
        detect.find(tmp_path / "absent")
    with pytest.raises(UnusableInput, match="neither a file nor a folder"):
        detect.find("/dev/null")
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(UnusableInput, match="neither a file nor a folder"):
        detect.find(fifo)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", TRACE)
    path.chmod(0)
    with pytest.raises(UnusableInput, match="permission"):
        detect.find(path)


def test_a_folder_gives_all_its_evidence_sorted_and_lists_what_it_could_not_use(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    written(tmp_path / ".git" / "trace.json", TRACE)
    trace = written(tmp_path / "b" / "c" / "t.gz", TRACE, pack=True)
    sheet = written(tmp_path / "b" / "s.yaml", SHEET)
    other = written(tmp_path / "a.md", b"# notes\n")
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "b" / "gone").symlink_to(tmp_path / "nowhere")

    found = detect.find(tmp_path)

    assert [piece for piece in found if not piece.skipped] == [
        detect.Found(trace, "kineto"), detect.Found(sheet, "sheet")]
    skipped = {piece.path: piece.skipped for piece in found if piece.skipped}
    assert skipped == {other: "text of no known kind", tmp_path / "b" / "gone": "no such file"}
    assert [piece.path for piece in found] == sorted(piece.path for piece in found)


def test_a_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="it is empty"):
        detect.find(tmp_path)
    written(tmp_path / "a.md", b"# notes\n")
    written(tmp_path / "run.sqlite", b"SQLite format 3\0")
    with pytest.raises(UnusableInput, match=r"2 files, run\.sqlite among them: an SQLite database"):
        detect.find(tmp_path)


def test_a_folder_is_looked_at_only_so_deep_and_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "MAX_DEPTH", 1)
    monkeypatch.setattr(detect, "MAX_FILES", 3)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    written(deep / "t.json", TRACE)
    for i in range(4):
        written(tmp_path / f"t{i}.json", TRACE)
    found = detect.find(tmp_path)
    assert [(piece.path.name, bool(piece.skipped)) for piece in found] == [
        ("b", True), ("t0.json", False), ("t1.json", False), ("t2.json", True)]
    assert "more than 3 files" in found[-1].skipped
    assert "1 levels down" in found[0].skipped


def test_recorded_evidence_of_others_is_told_apart(shared: Path) -> None:
    found = detect.find(shared / "traces")
    kinds = {piece.path.relative_to(shared / "traces").parts[0]: set() for piece in found}
    for piece in found:
        kinds[piece.path.relative_to(shared / "traces").parts[0]].add(piece.kind)
    assert kinds["kineto"] == {"kineto"}
    assert kinds["nsys"] == {"nsys"}
    assert kinds["ascend"] >= {"ascend", "sqlite"}  # analysis.db holds no profile
    assert "kineto" not in kinds["ascend"]
