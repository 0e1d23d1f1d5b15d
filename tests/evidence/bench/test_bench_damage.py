"""Files that break off, that hold nothing, that are of something else, and hostile ones: one line each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bench_files as files
from xpu_triage.baseline.records import BenchRecord
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import bench
from xpu_triage.evidence.bench import documents

VLLM = {**files.VLLM, **files.VLLM_DETAILS}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result"


def read_or_refused(path: Path, text: str) -> tuple[tuple[BenchRecord, ...], str | None]:
    try:
        return files.read(path, text=text), None
    except UnusableInput as refusal:
        return (), str(refusal)


@pytest.mark.parametrize(("document", "says"), [
    ({**files.VLLM, "completed": 0, "failed": 0}, "no request was completed"),
    ({**files.VLLM, "completed": 0, "failed": 4}, "all 4 requests failed"),
    ({**files.SGLANG, "completed": 0}, "no request was completed"),
    ({**files.LLMETER, "failed_requests": 5}, "all 5 requests failed"),
    ({**files.EVALSCOPE, "Success Requests": 0, "Failed Requests": 4}, "all 4 requests failed"),
    ({**files.AIPERF, "request_count": files.metric("requests", avg=0.0)}, "all 1 requests failed"),
    ({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": []}, "no run in it"),
    (files.response(None, None, None, "HTTP 500"), "all 1 requests failed"),
])
def test_a_run_without_a_completed_request_is_refused_in_one_line(document: Any, says: str, path: Path) -> None:
    with pytest.raises(UnusableInput, match=says) as refusal:
        files.read(path, document)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("text", ["", "   \n", "hello\n", "[]", "{}", '{"traceEvents": []}', "a,b\n1,2\n",
                                  '{"schema": 1, "signals": {"latency.ttft_ms": 1}}',
                                  '{"text": "\\"tokenizer_id\\": \\"num_prompts\\": \\"mean_e2e_latency_ms\\":"}'])
def test_other_files_are_none(text: str, path: Path) -> None:
    assert not bench.matches(text)
    with pytest.raises(UnusableInput):
        files.read(path, text=text)


def test_a_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="cannot be read: No such file"):
        bench.read(tmp_path / "none.json")


def test_a_file_that_breaks_off_in_its_requests_gives_those_that_are_whole(path: Path) -> None:
    text = json.dumps(VLLM)
    cut = text[:text.index('"ttfts"') + len('"ttfts": [0.1, 0.11')]
    (record,) = files.read(path, text=cut)
    assert record.latencies["ttft"].n == 1              # of 0.11 nobody knows whether it goes on
    assert "the file breaks off: what is whole was read" in record.notes
    assert any("lists of" in line for line in record.notes)


def test_half_the_gaps_of_a_request_are_not_its_gaps(path: Path) -> None:
    text = json.dumps(VLLM)
    cut = text[:text.index('"itls": [[0.01, 0.02, 0.03], [0.02') + len('"itls": [[0.01, 0.02, 0.03], [0.02')]
    (record,) = files.read(path, text=cut)
    assert record.requests is not None
    assert [gaps.tolist() for gaps in record.requests.itl_ms] == [[10, 20, 30], [], []]


@pytest.mark.parametrize("whole", [files.VLLM, VLLM, files.SGLANG, files.guidellm([files.guidellm_request(1, 1, 5)]),
                                   files.AIPERF, files.EVALSCOPE, files.LLMETER])
def test_wherever_a_file_breaks_off_it_is_read_to_there_or_refused_in_one_line(whole: Any, path: Path) -> None:
    text = json.dumps(whole, indent=1)
    for size in range(0, len(text), 23):
        records, refusal = read_or_refused(path, text[:size])
        if refusal is None:
            assert any("breaks off" in line for line in records[0].notes)
        else:
            assert "\n" not in refusal


def test_a_line_that_breaks_off_is_no_run_of_its_own(path: Path) -> None:
    text = "\n".join([json.dumps(files.response(0.1, 0.3)), json.dumps(files.response(0.2, 0.6))[:-40]])
    (record,) = files.read(path, text=text)
    assert record.completed == 1


def test_a_damaged_line_between_whole_ones_is_counted(path: Path) -> None:
    line = json.dumps(files.SGLANG)
    runs = files.read(path, text="\n".join([line, line[:200], line]))
    assert len(runs) == 2
    assert "1 damaged object left out" in runs[0].notes


def test_packed_files_and_those_of_other_shells_are_read(path: Path) -> None:
    path.write_bytes(gzip.compress(json.dumps(VLLM).encode()))
    assert bench.read(path)[0].completed == 3
    path.write_bytes(json.dumps(VLLM).encode("utf-16"))
    assert bench.read(path)[0].completed == 3
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(VLLM).encode())
    assert bench.read(path)[0].completed == 3


def test_infinity_null_and_words_are_no_figures(path: Path) -> None:
    odd = {**files.VLLM, "median_ttft_ms": float("inf"), "mean_ttft_ms": None, "p99_ttft_ms": "fast",
           "mean_tpot_ms": float("nan"), "median_tpot_ms": True, "p99_tpot_ms": 10**400, "max_concurrency": "many",
           "duration": [], "output_throughput": {}, "completed": 3}
    (record,) = files.read(path, odd)
    assert set(record.latencies) == {"itl"}
    assert (record.concurrency, record.duration_s, record.output_tokens_per_s) == (None, None, None)


def test_hostile_names_reach_no_terminal(path: Path) -> None:
    (record,) = files.read(path, {**files.VLLM, "model_id": "a\x1b[31m<script>\u202e" + "x" * 5000})
    assert "\x1b" not in record.environment.model
    assert len(record.environment.model) < 300


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_brackets_without_end_neither_crash_nor_hide_what_stands_before(deep: str, path: Path) -> None:
    text = json.dumps(files.VLLM)[:-1] + f', "x": {deep}'
    (record,) = files.read(path, text=text)
    assert (record.completed, record.latencies["ttft"].p50) == (3, 110)
    assert "the file breaks off: what is whole was read" in record.notes


def test_a_file_of_brackets_alone_is_refused(path: Path) -> None:
    with pytest.raises(UnusableInput, match="no whole JSON object"):
        files.read(path, text=json.dumps(files.VLLM)[:-1] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}")


json_values = st.recursive(st.none() | st.booleans() | st.integers(-10**6, 10**6) | st.text(max_size=5),
                           lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                                       max_size=3), max_leaves=20)


@given(st.dictionaries(st.text(max_size=3), json_values, min_size=1, max_size=4), st.data())
def test_the_whole_part_of_a_cut_object_has_nothing_that_the_whole_lacks(value: dict[str, Any], data: st.DataObject,
                                                                         ) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    part = documents.whole_part(text[:cut])
    assert part is None or within(part, value)


def within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and within(one, whole[key]) for key, one in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(within, part, whole))
    return bool(part == whole)


@given(st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), min_size=1, max_size=4))
def test_objects_are_found_however_they_follow_each_other(values: list[dict[str, Any]]) -> None:
    for text in ("\n".join(map(json.dumps, values)), " ".join(map(json.dumps, values)), json.dumps(values),
                 "\n".join(json.dumps(value, indent=2) for value in values)):
        assert list(documents.parse(text).found) == values
