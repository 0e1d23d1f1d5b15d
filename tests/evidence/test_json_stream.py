"""Reading in pieces equals reading at once, whatever the pieces and whatever the events hold."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xpu_triage.evidence import chunks, kineto
from xpu_triage.text import clean

names = st.text(max_size=8) | st.sampled_from(["}, {", '"}],"', "\\", 'a\\"b', "NaN, inf", "[{", "\x1b[0m\n"])
leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | names
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
                      max_leaves=6)
TIMES = {
    "float": st.integers(0, 10**9).map(lambda ns: ns / 1000),
    "integer": st.integers(1_700_000_000_000_000, 1_700_000_001_000_000),
    "string": st.integers(1_700_000_000_000_000_000, 1_700_000_000_010_000_000).map(
        lambda ns: f"{ns // 1000}.{ns % 1000:03}"),
}


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    ts = TIMES[draw(st.sampled_from(sorted(TIMES)))]
    span = st.fixed_dictionaries({
        "ph": st.just("X"), "cat": st.sampled_from(["cpu_op", "kernel", "Kernel", "cuda_runtime", "gpu_memcpy"]),
        "name": names, "pid": st.integers(0, 2), "tid": st.sampled_from([1, "stream 7"]), "ts": ts,
        "dur": st.integers(0, 9) | st.integers(0, 9000).map(lambda ns: ns / 1000)},
        optional={"args": st.dictionaries(names, values, max_size=3).flatmap(
            lambda more: st.integers(1, 9).map(lambda i: {**more, "correlation": i}))})
    other = st.fixed_dictionaries({"ph": st.sampled_from(["i", "s", "C"]), "name": names, "ts": ts, "x": values})
    return draw(st.lists(span | other, max_size=12))


def rows_at_once(found: list[dict[str, Any]]) -> list[tuple[int, int, str, str]]:
    """Start from the first, duration (ns), name and lane of every complete event, by exact decimal arithmetic."""
    spans = [event for event in found if event["ph"] == "X"]
    starts = [round(Decimal(str(event["ts"])) * 1000) for event in spans]
    rows = [(start - min(starts), round(Decimal(str(event["dur"])) * 1000), clean(event["name"]),
             f"{event['pid']}/{str(event['tid']).removeprefix('stream ')}")
            for start, event in zip(starts, spans, strict=True)]
    return sorted(rows, key=lambda row: row[0])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=events(), size=st.integers(1, 200), indent=st.sampled_from([None, 1]), as_list=st.booleans())
def test_any_split_gives_what_a_whole_decode_gives(tmp_path: Path, found: list[dict[str, Any]], size: int,
                                                   indent: int | None, as_list: bool) -> None:
    root: Any = found if as_list else {"before": [{}, {}], "traceEvents": found, "after": [{"a": 1}, {"b": 2}]}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(root, indent=indent), encoding="utf-8")
    expected = rows_at_once(found)
    if not expected:
        return
    whole, chunks.PIECE = chunks.PIECE, size
    try:
        trace = kineto.read(path)
    finally:
        chunks.PIECE = whole
    lane = [trace.streams[s] if s >= 0 else trace.threads[t].split()[0]
            for s, t in zip(trace.stream.tolist(), trace.thread.tolist(), strict=True)]
    got = list(zip(trace.start.tolist(), trace.dur.tolist(), [trace.names[i] for i in trace.name.tolist()], lane,
                   strict=True))
    assert got == expected
    assert trace.counts.events == len(found)
    assert trace.counts.unreadable == 0
    assert trace.notes == ()
    assert trace.meta == ({} if as_list else {"before": [{}, {}], "after": [{"a": 1}, {"b": 2}]})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=events(), data=st.data())
def test_no_damage_crashes_and_none_makes_more_rows_than_there_were_events(
        tmp_path: Path, found: list[dict[str, Any]], data: st.DataObject) -> None:
    from xpu_triage.errors import UnusableInput
    text = bytearray(json.dumps({"traceEvents": found}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at:at + data.draw(st.integers(0, 5))] = data.draw(
            st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"NaN", b"\xff", b"},{"]))
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    try:
        trace = kineto.read(path)
    except UnusableInput:
        return
    assert (trace.start >= 0).all()
    assert (trace.dur >= 0).all()
    assert len(trace) <= len(found) + text.count(b"},{")
