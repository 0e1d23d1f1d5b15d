"""Evidence sheets: read with their units, refused in one line that names the file and the field."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import sheet

GOOD = """
schema: 1
title: Search assistant got slower overnight
platform: {device: 2 x Some Card, framework: some-server, version: "7.1"}
signals:
  serving.running: 48
  latency.e2e_ms: {value: 12.5, unit: s}
  device.busy_fraction: {value: 37, unit: "%"}
  host.graph_requested: yes
  sync.site: aten::item
  kernel.per_step: null
"""


def write(folder: Path, text: str | bytes, name: str = "sheet.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_sheet_gives_signals_in_their_units_typed_and_with_their_source(tmp_path):
    path = write(tmp_path, GOOD)
    read = sheet.read(path)
    assert {s.name: s.value for s in read.signals} == {
        "serving.running": 48, "latency.e2e_ms": 12_500.0, "device.busy_fraction": pytest.approx(0.37),
        "host.graph_requested": True, "sync.site": "aten::item"}
    assert {s.how for s in read.signals} == {"typed"}
    assert {s.source for s in read.signals} == {str(path)}
    assert read.title == "Search assistant got slower overnight"
    assert read.platform == {"device": "2 x Some Card", "framework": "some-server", "version": "7.1"}


def test_null_is_unknown_and_is_counted_not_filled(tmp_path):
    read = sheet.read(write(tmp_path, GOOD))
    assert "kernel.per_step" not in {s.name for s in read.signals}
    assert read.notes == ("1 typed as unknown (null)",)


def test_title_and_platform_may_be_left_out(tmp_path):
    read = sheet.read(write(tmp_path, "schema: 1\nsignals: {step.wall_ms: 3}"))
    assert (read.title, read.platform, len(read.signals)) == ("", {}, 1)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    assert len(sheet.read(write(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())).signals) == 5


@pytest.mark.parametrize(("text", "says"), [
    ("", "not an evidence sheet"),
    ("just words", "not an evidence sheet"),
    ("- a\n- b", "not an evidence sheet"),
    ("signals: {step.wall_ms: 3}", "schema is missing. Write schema: 1"),
    ("schema: 2\nsignals: {step.wall_ms: 3}", "schema 2 is not known"),
    ("schema: true\nsignals: {step.wall_ms: 3}", "schema True is not known"),
    ("schema: 1", "signals is not a mapping"),
    ("schema: 1\nsignals: [step.wall_ms]", "signals is not a mapping"),
    ("schema: 1\nsignals: {}", "holds no figure"),
    ("schema: 1\nsignals: {step.wall_ms: null}", "holds no figure"),
    ("schema: 1\nsignal: {step.wall_ms: 3}", "'signal' is not a part of a sheet"),
    ("schema: 1\ntitle: 7\nsignals: {step.wall_ms: 3}", "title is not text"),
    ("schema: 1\nplatform: [a]\nsignals: {step.wall_ms: 3}", "platform is not a mapping"),
    ("schema: 1\nplatform: {a: {b: c}}\nsignals: {step.wall_ms: 3}", "platform is not a mapping"),
    ("schema: 1\nsignals: {device.busy: 0.3}", "'device.busy' is not a signal. Did you mean device.busy_fraction?"),
    ("schema: 1\nsignals: {device.busy: null}", "'device.busy' is not a signal"),
    ("schema: 1\nsignals: {step.wall_ms: {value: 3, unit: GB}}", "signals: step.wall_ms: unit 'GB' is not a time"),
    ("schema: 1\nsignals: {device.busy_fraction: 37}", "device.busy_fraction: 37 is not a fraction between 0 and 1"),
    ("schema: 1\nsignals: {serving.running: -2}", "serving.running: -2 is negative"),
    ("schema: 1\nsignals: {step.wall_ms: .nan}", "step.wall_ms: nan is not a finite number"),
    ("schema: 1\nsignals: {latency.itl_ms: 0}", "latency.itl_ms: 0 is no valid latency"),
    ("schema: 1\nsignals:\n  step.wall_ms: 3\n  step.wall_ms: 4", "'step.wall_ms' is given twice (line 4)"),
    ("schema: 1\nsignals: {a: &x [1], b: *x}", "aliases (*x) are not read"),
    ("schema: 1\nsignals: {step.wall_ms: 3", "not valid YAML"),
])
def test_a_bad_sheet_is_refused_in_one_line_that_names_the_file_and_the_field(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(UnusableInput) as refusal:
        sheet.read(path)
    assert says in str(refusal.value)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


def test_binary_oversized_missing_and_unreadable_files_are_refused(tmp_path):
    for path, says in [
        (write(tmp_path, b"\xff\xfe\x00", "binary.yaml"), "not UTF-8"),
        (write(tmp_path, b"a" * (sheet.MAX_BYTES + 1), "big.yaml"), "at most 1,000,000 bytes"),
        (tmp_path / "missing.yaml", "No such file"),
        (tmp_path, "directory"),
    ]:
        with pytest.raises(UnusableInput, match=says):
            sheet.read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(tmp_path):
    path = write(tmp_path, GOOD)
    path.chmod(0)
    with pytest.raises(UnusableInput, match="Permission denied"):
        sheet.read(path)


def test_markup_and_escapes_in_texts_come_out_harmless(tmp_path):
    text = 'schema: 1\ntitle: "a\\eb"\nplatform: {device: "x\\ny"}\nsignals: {step.wall_ms: 3}'
    read = sheet.read(write(tmp_path, text))
    assert read.title == "a\\x1bb"
    assert read.platform == {"device": "x\\x0ay"}


def test_the_sheets_of_public_cases_are_read(shared):
    read = [sheet.read(path) for path in sorted((shared / "cases" / "sheets").glob("*.yaml"))]
    assert len(read) >= 8
    assert all(evidence.title and evidence.signals for evidence in read)
