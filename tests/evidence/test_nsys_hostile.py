"""Exports that are cut, damaged, made to harm, or none: refused in one line, or read as far as they go."""

from __future__ import annotations

import gzip
import itertools
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nsys_exports import Export, process, simple, thread
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import nsys, sqlite_file
from xpu_triage.evidence.sqlite_file import LONGEST_TEXT, Damaged, Database
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def tables(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


KERNELS = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER)"


# -- no export
@pytest.mark.parametrize(("make", "says"), [
    (lambda path: path, "no such file"),
    (lambda path: path.parent, "a folder, not an export"),
    (lambda path: written(path, b""), "empty"),
    (lambda path: written(path, b'{"traceEvents": []}'), "no SQLite database"),
    (lambda path: written(path, bytes(range(256))), "no SQLite database"),
    (lambda path: written(path, b"SQLite format 3\0"), "cannot be read"),
    (lambda path: written(path, b"SQLite format 3\0" + b"\xff" * 5000), "cannot be read"),
    (lambda path: written(path, gzip.compress(simple(path.with_name("whole")).read_bytes())), "Unpack it"),
    (lambda path: tables(path, "CREATE TABLE STRING_IDS (id, value)", "CREATE TABLE TASK (startNs)"),
     r"it has STRING_IDS, TASK"),
    (lambda path: tables(path, "CREATE TABLE t (x)", "DROP TABLE t"), r"it has none"),
    (lambda path: tables(path, KERNELS, "CREATE TABLE StringTable (_id_, value)"), "nvprof"),
    (lambda path: tables(path, KERNELS), "no events"),
    (lambda path: tables(path, KERNELS, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 'b', 'c')"),
     "none of its 1 events has a place and a time"),
    (lambda path: tables(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (x INTEGER)",
                         "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1)"), "none of its 1 events"),
    (lambda path: tables(path, "CREATE TABLE x (y)", "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start"),
     "without the tables of Nsight Systems"),
])
def test_what_is_no_export_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], Path], says: str) -> None:
    with pytest.raises(UnusableInput, match=says) as refusal:
        nsys.read(make(tmp_path / "run.sqlite"))
    assert "\n" not in str(refusal.value)
    assert str(tmp_path) in str(refusal.value)


# -- cut and damaged
def long_export(path: Path, rows: int = 3000) -> Path:
    export = Export(path)
    for i in range(rows):
        export.call("cudaLaunchKernel_v7000", 1000 * i, 1000 * i + 10, i + 1)
        export.kernel(1000 * i + 20, 1000 * i + 800, i + 1)
    return export.done()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_that_is_cut_is_read_to_the_cut_and_names_no_cause_of_idleness(tmp_path: Path, share: float) -> None:
    whole = long_export(tmp_path / "whole.sqlite").read_bytes()
    trace = nsys.read(written(tmp_path / "cut.sqlite", whole[:int(share * len(whole))]))
    assert 0.5 * share * 6000 < len(trace) < 6000
    assert trace.incomplete
    assert any("damaged or cut" in note for note in trace.notes)
    found = {signal.name: signal.value for signal in walk(trace).signals}
    idle = 1 - float(found["device.busy_fraction"])
    assert found["idle.hidden_fraction"] == pytest.approx(idle, abs=0.01)


def test_rows_before_the_damage_are_kept(tmp_path: Path) -> None:
    path = long_export(tmp_path / "run.sqlite")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle:middle + 4096] = bytes(4096)
    trace = nsys.read(written(path, bytes(content)))
    assert 1500 < len(trace) < 6000
    assert trace.incomplete
    assert any("breaks off after" in note for note in trace.notes)


@pytest.mark.parametrize("seed", range(12))
def test_noise_in_the_file_ends_in_a_trace_or_a_refusal(tmp_path: Path, seed: int) -> None:
    import random
    noise = random.Random(seed)
    content = bytearray(long_export(tmp_path / "run.sqlite", 300).read_bytes())
    for _ in range(4 ** (1 + seed % 5)):
        content[noise.randrange(100, len(content))] = noise.randrange(256)
    path = written(tmp_path / "noise.sqlite", bytes(content))
    try:
        trace = nsys.read(path)
    except UnusableInput:
        return
    walk(trace)
    assert trace.counts.kept == len(trace)
    assert (trace.dur >= 0).all()
    assert (trace.start[1:] >= trace.start[:-1]).all()


def circular(path: Path) -> Path:
    """A table whose inner pages point, each with all its children, to the next: rows without number in few pages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute(KERNELS)
        connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
                           "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i, i + 1, 0 FROM n")
    content = bytearray(path.read_bytes())
    pages = [at for at in range(512, len(content), 512) if content[at] == 5]        # inner pages of tables
    over_leaves = [at for at in pages if content[(struct.unpack_from(">I", content, at + 8)[0] - 1) * 512] == 13]
    for at, following in itertools.pairwise(over_leaves[:5]):
        target = following // 512 + 1
        struct.pack_into(">I", content, at + 8, target)
        for cell in range(struct.unpack_from(">H", content, at + 3)[0]):
            struct.pack_into(">I", content, at + struct.unpack_from(">H", content, at + 12 + 2 * cell)[0], target)
    return written(path, bytes(content))


def test_pages_that_point_at_one_another_end_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_STEPS_AT_LEAST", 1_000_000)
    path = circular(tmp_path / "run.sqlite")
    trace = nsys.read(path)
    assert trace.incomplete
    assert any("it never ends" in note for note in trace.notes)
    assert 8 * len(trace) <= path.stat().st_size


# -- made to harm
HOSTILE = "\x1b[31mred\x1b[0m<script>alert(1)</script>\u202e\n"
HARMLESS = r"\x1b[31mred\x1b[0m<script>alert(1)</script>\u202e\x0a"


def test_names_reach_nobody_as_a_command(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel(0, 10, 1, HOSTILE)
    export.call(HOSTILE, 0, 5, 1)
    export.range(HOSTILE, 0, 20)
    export.range(HOSTILE, 30, 40, event_type=60, registered=True, endGlobalTid=thread(9))
    export.os_call(HOSTILE, 50, 60)
    export.gpu(0, HOSTILE, 10**12)
    export.row("ThreadNames", nameId=export.string(HOSTILE), globalTid=thread())
    export.row("DIAGNOSTIC_EVENT", severity=2, text=HOSTILE)
    export.row("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=HOSTILE)
    export.connection.execute(f'CREATE TABLE "CUPTI_ACTIVITY_KIND_{HOSTILE}" (start, end, deviceId)')
    export.connection.execute(f'INSERT INTO "CUPTI_ACTIVITY_KIND_{HOSTILE}" VALUES (1, 2, 0)')
    trace = nsys.read(export.done())
    assert set(trace.names) == {HARMLESS}
    assert trace.devices == (f"0 {HARMLESS}",)
    for text in (*trace.names, *trace.devices, *trace.threads, *trace.notes, trace.format,
                 *trace.counts.unknown_categories, trace.meta["exporter"], trace.meta["deviceProperties"][0]["name"]):
        assert not set(text) & {"\x1b", "\n", "\u202e"}


def test_bytes_that_are_no_text_and_texts_without_end_are_names_of_a_row(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel(0, 10, 1, "x" * 100_000)
    export.row("StringIds", id=7, value=b"\xff\xfe")
    export.kernel(20, 30, 2, demangledName=7, shortName=None)
    export.range("", 40, 50)
    export.connection.execute("INSERT INTO StringIds VALUES (8, CAST(x'ff41' AS TEXT))")
    export.kernel(60, 70, 3, demangledName=8)
    trace = nsys.read(export.done())
    assert [len(trace.name_of(i)) for i in range(1)] == [LONGEST_TEXT]
    assert trace.name_of(1) == "(name 7 is not in the file)"
    assert trace.name_of(2) == "(unnamed)"
    assert trace.name_of(3) == "\ufffdA"


def test_numbers_of_any_size_do_no_harm(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    for i, huge in enumerate((-(1 << 63), (1 << 63) - 1, 1 << 62, -(1 << 62), 1 << 40)):
        export.kernel(10 * i, 10 * i + 5, huge, device=huge, stream=huge, globalPid=huge, demangledName=huge)
        export.kernel(huge, huge, 1)
        export.call("cudaLaunchKernel_v7000", 10 * i, 10 * i + 5, huge, tid=0)
        export.row("NVTX_EVENTS", start=10 * i, end=10 * i + 9, eventType=60, globalTid=huge, textId=huge)
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=huge, cudaId=huge, pid=huge)
        export.copy(10 * i, 10 * i + 5, 2, kind=huge, source=huge, target=huge)
    trace = nsys.read(export.done())
    assert trace.counts.kept + trace.counts.unreadable == 25
    assert (trace.start >= 0).all()
    assert (trace.dur >= 0).all()
    walk(trace)


def test_ranges_without_number_beside_one_another_share_lanes(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    export.kernel(0, 10, 1)
    for i in range(600):
        export.range(f"request {i}", i, 10_000 + i, event_type=60, endGlobalTid=thread(9))
    trace = nsys.read(export.done())
    assert len(trace.threads) == 256
    assert (trace.kind == Kind.ANNOTATION).sum() == 600


def test_nothing_of_the_file_is_run(tmp_path: Path) -> None:
    """A generated column would be computed as it is read: here, a gigabyte of zeros a row. A trigger or a default is
    none of a reader's."""
    path = tables(
        tmp_path / "run.sqlite",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0)",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN demangledName INTEGER "
        "AS (length(hex(zeroblob(499999999))))")
    trace = nsys.read(path)
    assert trace.names == ("(unnamed)",)
    with Database(path) as opened, pytest.raises(sqlite3.Error):
        opened._run("ATTACH DATABASE ':memory:' AS other")
    with Database(path) as opened, pytest.raises(sqlite3.Error):
        opened._run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    with Database(path) as opened, pytest.raises(sqlite3.Error):
        opened._run("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")


def test_the_file_and_its_folder_stay_as_they_are(tmp_path: Path) -> None:
    path = simple(tmp_path / "a?b#c %41.sqlite")
    before = path.read_bytes()
    path.chmod(0o444)
    nsys.read(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_rows_that_wait_in_a_log_beside_the_file_are_spoken_of(tmp_path: Path) -> None:
    path = simple(tmp_path / "run.sqlite")
    written(tmp_path / "run.sqlite-wal", b"rows")
    assert any("-wal" in note for note in nsys.read(path).notes)


def test_a_database_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="no SQLite database"):
        Database(written(tmp_path / "x", b"text"))


def test_two_processes_of_one_number_in_two_containers_are_two(tmp_path: Path) -> None:
    export = Export(tmp_path / "run.sqlite")
    other = process(7) + (1 << 48)                          # the same pid in another VM
    export.call("cudaLaunchKernel_v7000", 0, 10, 1, pid=7)
    export.kernel(20, 30, 1, globalPid=other)
    trace = nsys.read(export.done())
    assert trace.launch[trace.on_device].tolist() == [-1]
