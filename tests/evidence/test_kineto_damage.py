"""Damaged, cut, foreign and hostile files: read as far as they go, counted, or refused in one line."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from kineto_files import Reading, kernel, names_at, span, text_of, written
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import chunks, json_stream, kineto

EVENTS = [
    span("cuda_runtime", 'launch "}, {" \\', 0, 2, correlation=1, shapes=[{"a": 1}, {"b": [{}, {}]}]),
    kernel("gemm<{lambda(int)#1}, {x}>", 3.125, 4, correlation=1, grid=[1, 2, 3]),
    {"ph": "s", "id": 1, "ts": 2, "name": "ac2g", "cat": "ac2g", "pid": 1, "tid": 1},
    span("cpu_op", "aten::mul", 9, 1, **{"Input Dims": [[1], []], "bw": float("inf")}),
    span("python_function", "a.py(1): f, {NaN}, {", 11, 3, pid="x", tid=-5),
]


def refusal(path: Path) -> str:
    with pytest.raises(UnusableInput) as caught:
        kineto.read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("content", "says"), [
    (b"", "empty"),
    (b"\n \n", "nothing to read"),
    (bytes(range(256)) * 40, "binary"),
    (b"\x89PNG\r\n\x1a\n" + bytes(99), "binary"),
    (b"step,ms\n1,20\n", "not JSON"),
    ('{"a": 1}'.encode("utf-16"), "UTF-16"),
    (b'{"throughput": 12, "latencies": [1, 2]}', "JSON without a traceEvents list"),
    (b'"traceEvents"', "not JSON"),
    (b"[1, 2, 3]", "none of its 3 events is a complete one"),
    (b"[]", "no events"),
    (b'{"traceEvents": []}', "no events"),
    (text_of([{"ph": "i", "ts": 1, "name": "a"}]), "none of its 1 events is a complete one"),
    (text_of([span("FEE", "main", 1, 2)]), "known category (FEE)"),
    (gzip.compress(b"hello " * 99), "not JSON"),
    (gzip.compress(text_of(EVENTS))[:12], "cut at byte 12"),
], ids=lambda given: given if isinstance(given, str) else "")
def test_a_file_with_nothing_to_work_with_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refusal(written(tmp_path / "given.json", content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.json")
    assert "folder" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", text_of(EVENTS))
    path.chmod(0)
    assert "permission" in refusal(path)


def test_control_characters_in_a_path_do_not_reach_the_message(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput) as caught:
        kineto.read(tmp_path / "a\x1b[31m.json")
    assert "a\\x1b[31m.json" in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("pack", [False, True], ids=["json", "gzip"])
def test_a_file_cut_at_any_byte_gives_the_events_before_the_cut(tmp_path: Path, pack: bool) -> None:
    text = text_of(EVENTS, deviceProperties=[{"id": 0, "name": "N"}, {"id": 1}])
    data = gzip.compress(text, 1) if pack else text
    whole = kineto.read(written(tmp_path / "whole", data))
    names = names_at(whole, range(len(whole)))
    assert len(names) == 4
    path, seen = tmp_path / "cut", set()
    for size in range(1, len(data)):
        path.write_bytes(data[:size])
        try:
            cut = kineto.read(path)
        except UnusableInput:
            continue                                            # no event before the cut
        assert names_at(cut, range(len(cut))) == names[:len(cut)]
        assert cut.counts.unreadable == 0
        if len(cut) < len(names):
            assert any("breaks off after byte" in note for note in cut.notes)
        if pack:
            assert any("gzip has no end: cut at byte" in note for note in cut.notes)
        seen.add(len(cut))
    assert 4 in seen
    assert pack or seen == {1, 2, 3, 4}


def test_the_note_of_a_cut_names_the_byte_and_the_last_event(tmp_path: Path) -> None:
    text = text_of([span("cpu_op", "a", 5, 1), span("cpu_op", "b", 1505.25, 1), span("cpu_op", "c", 1600, 1)])
    end_of_b = text.index(b'"name": "c"') - len(', {"ph": "X", "cat": "cpu_op", ')
    trace = kineto.read(written(tmp_path / "t.json", text[:end_of_b + 40]))
    (note,) = trace.notes
    assert f"after byte {end_of_b:,} of its text" in note
    assert "starts at 1.500 ms" in note


def test_a_cut_file_that_is_not_in_order_of_time_may_lack_anything(tmp_path: Path) -> None:
    """Profilers write by kind and thread: a cut then takes device work from everywhere, and no time."""
    ordered = text_of([span("cpu_op", f"op{i}", 10 * i, 5) for i in range(40)])[:-60]
    grouped = text_of([span(kind, f"{kind}{i}", 10 * i, 5) for kind in ("cpu_op", "kernel") for i in range(40)])
    assert not kineto.read(written(tmp_path / "ordered.json", ordered)).incomplete
    cut = kineto.read(written(tmp_path / "grouped.json", grouped[:-1000]))
    assert cut.incomplete
    assert "not written in order of time" in " ".join(cut.notes)
    assert not kineto.read(written(tmp_path / "whole.json", grouped)).incomplete


def test_what_comes_before_damage_in_a_gzip_stream_is_read(tmp_path: Path) -> None:
    first, second = gzip.compress(text_of(EVENTS)[:-30]), bytearray(gzip.compress(text_of(EVENTS)[-30:]))
    second[12] ^= 0xFF
    trace = kineto.read(written(tmp_path / "t.gz", first + bytes(second)))
    assert len(trace) == 3
    assert any("gzip damaged near byte" in note for note in trace.notes)


def test_one_unreadable_event_is_counted_and_the_rest_kept(tmp_path: Path) -> None:
    good = [json.dumps(span("cpu_op", f"op{i}", i, 1, x=[{}, {}])) for i in range(40)]
    for bad in ('{"ph": "X", "name": "a"b", "ts": 1}', "null", "[1, {}]", '{"ph": "X", "ts": 1, "x": [{"a": }, {}]}',
                '{"ph": "X", "name": "n, "ts": 3, "y": [{}, {}]}', "}", '{"ph": "X" "ts": [}',
                '{"ph": "X", "cat": "cpu_op", "name": "no time", "dur": 1}',
                '{"ph": "X", "cat": "cpu_op", "name": "endless", "ts": 1, "dur": 1e300}',
                '{"ph": "X", "cat": "cpu_op", "name": "never", "ts": NaN, "dur": 1}'):
        for place in (0, 20, 40):
            events = [*good[:place], bad, *good[place:]]
            text = b'{"traceEvents": [' + ",\n".join(events).encode() + b'], "x": [{}, {}]}'
            trace = kineto.read(written(tmp_path / "t.json", text))
            assert len(trace) == 40, (bad, place)
            assert trace.counts.unreadable == 1, (bad, place)
            assert "1 event could not be read: left out" in trace.notes


def test_fields_of_another_type_are_taken_for_what_they_mean(tmp_path: Path) -> None:
    events = [
        '{"ph": "X", "cat": "kernel", "name": 17, "pid": null, "tid": 1.5, "ts": 1, "dur": null}',
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 1, "ts": 2, "dur": 1, "args": [1]}',
        '{"ph": "X", "cat": "kernel", "name": "c\n\xff", "pid": 0, "tid": 1, "ts": 3, "dur": Infinity,'
        ' "args": {"correlation": "0x5"}}',
        '{"ph": "X", "cat": "kernel", "name": "d", "pid": 0, "tid": 1, "ts": 4, "dur": -3,'
        ' "args": {"correlation": 18446744073709551615, "bw": -inf}}',
        '{"ph": "X", "cat": "kernel", "name": "\\ud800e", "pid": 0, "tid": 1, "ts": 5, "dur": 1}']
    text = '{"traceEvents": [' + ", ".join(events) + "]}"
    trace = kineto.read(written(tmp_path / "t.json", text.encode("latin-1")))
    assert names_at(trace, range(3)) == ["b", "d", "\\ud800e"]
    assert trace.dur.tolist() == [1000, 0, 1000]
    assert trace.counts.unreadable == 2, "a duration that nobody can read is not 0"
    assert any("1 event has a negative duration" in note for note in trace.notes)


def test_nan_and_infinity_as_bare_words_are_only_replaced_outside_names(tmp_path: Path) -> None:
    text = b'{"traceEvents": [' + b", ".join(
        b'{"ph": "X", "cat": "kernel", "name": "k: inf, NaN }, {", "pid": 0, "tid": 7, "ts": %d, "dur": 1, "args": '
        b'{"bw": inf, "x": [-Infinity, {"y": nan}, {}]}}' % i for i in range(3)) + b'], "limit": Infinity}'
    trace = kineto.read(written(tmp_path / "t.json", text))
    assert trace.names == ("k: inf, NaN }, {",)
    assert (len(trace), trace.counts.unreadable, trace.meta["limit"]) == (3, 0, None)


def test_rows_at_time_0_of_a_clock_that_is_far_from_it_are_left_out(reading: Reading) -> None:
    """The profiler writes 0 for what began before its clock: such a row would make a span of 58 days."""
    trace = reading(span("cpu_op", "early", 0, 5), span("cpu_op", "a", 5e12, 5), span("cpu_op", "b", 5e12 + 10, 5))
    assert names_at(trace, range(len(trace))) == ["a", "b"]
    assert (trace.span, trace.counts.unreadable) == (15_000, 1)
    near = reading(span("cpu_op", "first", 0, 5), span("cpu_op", "a", 50, 5))
    assert names_at(near, range(len(near))) == ["first", "a"]


def test_damaged_words_about_the_capture_do_not_cost_its_events(tmp_path: Path) -> None:
    text = text_of(EVENTS, deviceProperties=[{"id": 0, "name": "N"}])[:-1] + b', "rank": }'
    trace = kineto.read(written(tmp_path / "t.json", text))
    assert (len(trace), trace.devices) == (4, ("0 N",))
    assert any("says about its capture is damaged" in note for note in trace.notes)


def test_a_bomb_of_real_events_is_refused_where_it_inflates_beyond_the_limits(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = json.dumps(span("cpu_op", "a", 1, 2)).encode()
    path = written(tmp_path / "bomb.gz", b"[" + b", ".join([event] * 40_000) + b"]", pack=True)
    inflated = 40_000 * (len(event) + 2)
    assert inflated / path.stat().st_size > 100
    monkeypatch.setattr(chunks, "RATIO_FREE", 1 << 20)
    monkeypatch.setattr(chunks, "MAX_RATIO", 100)
    assert "100 times the file" in refusal(path)
    monkeypatch.setattr(chunks, "MAX_RATIO", 300)
    assert len(kineto.read(path)) == 40_000                     # as repetitive as a real trace: passes
    monkeypatch.setattr(chunks, "MAX_INFLATED", 1 << 20)
    assert "inflate to more than" in refusal(path)


def test_bytes_without_an_event_end_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LARGEST", 1 << 20)
    event = json.dumps(span("cpu_op", "a", 1, 2)).encode()
    blank = written(tmp_path / "blank.gz", b"[" + event + b", " + b" " * (4 << 20) + event + b"]", pack=True)
    trace = kineto.read(blank)
    assert len(trace) == 1
    assert any("no event in the 1 MiB that follow" in note for note in trace.notes)
    assert "binary" in refusal(written(tmp_path / "zeros.gz", bytes(4 << 20), pack=True))
    assert "in its first 1 MiB" in refusal(written(tmp_path / "dict.json", b'{"a": "' + b"x" * (4 << 20)))


def test_nesting_without_end_is_no_crash(tmp_path: Path) -> None:
    deep = b'{"ph": "X", "x": ' + b"[" * 200_000
    refusal(written(tmp_path / "deep.json", b'{"traceEvents": [' + deep))
    good = json.dumps(span("cpu_op", "a", 1, 2)).encode()
    trace = kineto.read(written(tmp_path / "t.json", b"[" + good + b", " + deep + b"]}, " + good + b"]"))
    assert names_at(trace, [0]) == ["a"]
    assert np.all(trace.dur == 2000)
