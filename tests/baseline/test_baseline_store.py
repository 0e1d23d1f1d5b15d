"""A baseline file: what is saved comes back; another version, another server and damage are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.baseline import store
from xpu_triage.baseline.records import BenchRecord, Environment, Requests, Stat
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import detect

NAN = math.nan


def record(concurrency: float | None = 4.0, **more: Any) -> BenchRecord:
    requests = Requests(
        ttft_ms=np.array([100.1234, NAN]), e2e_ms=np.array([180.0, 200.5]), tpot_ms=np.array([20.0, NAN]),
        prompt_tokens=np.array([64.0, 64.0]), output_tokens=np.array([5.0, NAN]), start_s=np.array([0.0, 0.1234567]),
        itl_ms=(np.array([20.0, 20.5]), np.empty(0)))
    base: dict[str, Any] = {
        "source": "a.json", "tool": "vllm bench serve",
        "environment": Environment("m", "vllm", "0.10.0", "H100", "vllm bench serve"), "concurrency": concurrency,
        "request_rate": None, "prompt_tokens": 64.0, "output_tokens": 5.0,
        "latencies": {"ttft": Stat(100.1, 100.2, None, 150.0, 2, 151.0), "itl": Stat(mean=20.25)}, "duration_s": 10.0,
        "completed": 2, "failed": 1, "output_tokens_per_s": 1.0, "requests_per_s": 0.2, "prompt_tokens_per_s": None,
        "invalid_ttft": 1, "requests": requests, "definitions": ("tpot: converted",), "notes": ("a note",),
        "extra": {"mean_in_flight": 3.9}}
    return BenchRecord(**(base | more))


def same(one: BenchRecord, other: BenchRecord) -> bool:
    """All but the source, to a microsecond."""
    for name in ("tool", "environment", "concurrency", "request_rate", "prompt_tokens", "output_tokens", "duration_s",
                 "completed", "failed", "output_tokens_per_s", "requests_per_s", "prompt_tokens_per_s",
                 "invalid_ttft", "definitions", "notes", "extra", "latencies"):
        if getattr(one, name) != getattr(other, name):
            return False
    if one.requests is None or other.requests is None:
        return one.requests is other.requests
    pairs = [(getattr(one.requests, name), getattr(other.requests, name)) for name in
             ("ttft_ms", "e2e_ms", "tpot_ms", "prompt_tokens", "output_tokens", "start_s")]
    pairs += list(zip(one.requests.itl_ms, other.requests.itl_ms, strict=True))
    return all(np.allclose(a, b, rtol=0, atol=5.01e-4, equal_nan=True) for a, b in pairs)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    records = [record(8.0), record(1.0), record(None, request_rate=2.5, requests=None)]
    store.save(path, records, recorded="2026-01-01")
    loaded = store.load(path)
    assert loaded.environment == records[0].environment
    assert loaded.recorded == "2026-01-01"
    by_load = {one.concurrency: one for one in loaded.records}
    assert all(same(one, by_load[one.concurrency]) for one in records)
    assert all(one.source == str(path) for one in loaded.records)


def test_cells_are_loads_smallest_first_and_hold_every_run(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    store.save(path, [record(8.0), record(1.0), record(8.0), record(8.0, prompt_tokens=2048.0)])
    cells = store.load(path).cells
    assert [(cell.concurrency, cell.prompt_tokens, len(runs)) for cell, runs in cells.items()] == [
        (1, 64, 1), (8, 64, 2), (8, 2048, 1)]


def test_the_same_records_make_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    store.save(one, [record(8.0), record(1.0)])
    store.save(other, [record(1.0), record(8.0)])
    assert one.read_bytes() == other.read_bytes()
    store.save(other, store.load(one).records)
    assert one.read_bytes() == other.read_bytes()


def test_the_file_is_plain_json_that_names_its_version_and_its_server(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    store.save(path, [record(extra={"odd": math.inf})])
    plain = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert plain["baseline_schema"] == 1
    assert plain["environment"]["model"] == "m"
    assert plain["cells"][0]["records"][0]["requests"]["ttft_ms"] == [100.123, None]


def test_it_is_told_by_its_content_and_by_no_other_reader(tmp_path: Path) -> None:
    from xpu_triage.evidence import bench
    path = tmp_path / "x"
    store.save(path, [record()])
    assert store.matches(path.read_text())
    assert [reader.module for reader in bench.READERS if reader.matches(path.read_text())] == ["kept"]
    assert not store.matches('{"schema": 1, "signals": {}}')
    assert not store.matches('[{"baseline_schema": 1}]')
    assert [found.kind for found in detect.find(path)] == ["bench"]


@pytest.mark.parametrize("part", ["model", "engine", "engine_version", "device"])
def test_runs_of_two_servers_do_not_go_into_one_file(part: str, tmp_path: Path) -> None:
    other = record(environment=replace(record().environment, **{part: "other"}))
    with pytest.raises(UnusableInput, match=f"runs of two servers: {part} .* and other") as refusal:
        store.save(tmp_path / "b.json", [record(), other])
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_what_one_run_does_not_know_another_tells_and_clients_may_differ() -> None:
    together = store.baseline([record(environment=Environment("m", client="llmeter")),
                               record(environment=Environment(engine="vllm", client="aiperf"))])
    assert together.environment == Environment("m", "vllm")


def test_an_empty_baseline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no run to keep"):
        store.save(tmp_path / "b.json", [])


@pytest.mark.parametrize("schema", [0, 2, 99])
def test_another_schema_version_is_refused_by_its_number(schema: int, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    store.save(path, [record()])
    path.write_text(path.read_text().replace('"baseline_schema": 1', f'"baseline_schema": {schema}'))
    with pytest.raises(UnusableInput, match=f"baseline_schema {schema} is not known"):
        store.load(path)


@pytest.mark.parametrize(("old", "new"), [
    ('"cells"', '"other"'), ('"completed":2', '"completed":"two"'), ('"ttft_ms":[100.123,null]', '"ttft_ms":[100.123]'),
    ('"itl_ms":[[20,20.5],[]]', '"itl_ms":[[20]]'), ('"mean":100.1', '"mean":NaN'), ('"tool"', '"too"'),
    ('"baseline_schema": 1', '"baseline_schema": "1"'), ('"environment":{"model":"m"', '"environment":{"model":1'),
    ('"duration_s":10', '"duration_s":' + "[" * 5000)])
def test_a_damaged_file_is_refused_in_one_line(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    store.save(path, [record()])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UnusableInput, match="no baseline") as refusal:
        store.load(path)
    assert "\n" not in str(refusal.value)


def test_a_file_that_breaks_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    store.save(path, [record()])
    text = path.read_text()
    for size in range(0, len(text) - 4, 37):
        path.write_text(text[:size])
        with pytest.raises(UnusableInput):
            store.load(path)


def test_names_in_it_are_made_harmless(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    store.save(path, [record()])
    path.write_text(path.read_text().replace("a note", "a \\u001b[31m\\u202enote"))
    assert "\x1b" not in store.load(path).records[0].notes[0]


def test_a_file_that_cannot_be_written_or_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="cannot be written"):
        store.save(tmp_path / "no" / "b.json", [record()])
    with pytest.raises(UnusableInput, match="cannot be read"):
        store.load(tmp_path / "none.json")


figures = st.one_of(st.just(NAN), st.floats(0.001, 1e6))


@given(rows=st.lists(st.tuples(figures, figures, st.lists(st.floats(0, 1e4), max_size=3)), min_size=1, max_size=5))
def test_any_requests_come_back_to_a_microsecond(rows: list[tuple[float, float, list[float]]],
                                                 tmp_path_factory: pytest.TempPathFactory) -> None:
    ttft, after = (np.array([row[i] for row in rows], dtype=float) for i in (0, 1))
    e2e = ttft + after  # a request that ends before its first token is refused
    blank = np.full(len(rows), NAN)
    kept = record(requests=Requests(ttft, e2e, blank, blank, blank, blank,
                                    tuple(np.array(row[2], dtype=float) for row in rows)))
    path = tmp_path_factory.mktemp("store") / "b.json"
    store.save(path, [kept])
    assert same(store.load(path).records[0], kept)
