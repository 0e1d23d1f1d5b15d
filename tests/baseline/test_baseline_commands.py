"""`xpu-triage baseline …` as it is typed: what is printed, and the exit code."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest

from baseline_runs import Paper, summaries
from paper_server import PaperServer, Speed, serving
from xpu_triage.baseline import commands, store
from xpu_triage.errors import UnusableInput

GRID = ((1, 8), (128, 2048), (64,))
FAST = Speed(fixed=1, prefill=0, queue=0, decode=1, context=0)


def typed(*words: object) -> int:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def kept(tmp_path):
    """Files of a server before, after nothing, and after its prefill became slower."""
    for name, paper, seed in (("old", Paper(), 0), ("same", Paper(), 1), ("slow", Paper(prefill=0.06), 2)):
        store.save(tmp_path / f"{name}.json", paper.baseline(seed, 100, GRID).records)
    return tmp_path


# ---- compare


def test_no_regression_is_exit_code_0(kept, capsys):
    assert typed("compare", kept / "old.json", kept / "same.json") == 0
    assert "NO REGRESSION" in capsys.readouterr().out


def test_a_regression_is_exit_code_1_and_its_stage_comes_first(kept, capsys):
    assert typed("compare", kept / "old.json", kept / "slow.json") == 1
    out = capsys.readouterr().out
    assert out.index("PREFILL") < out.index("in flight")
    row = next(line for line in out.splitlines() if line.split()[:3] == ["1", "2,048", "64"])
    assert row.split()[3] == "!"
    assert max(map(len, out.splitlines())) <= 100


def test_what_allows_no_claim_is_exit_code_3(tmp_path, capsys):
    for name, p50 in (("a", 100.0), ("b", 200.0)):
        store.save(tmp_path / f"{name}.json", summaries(p50).records)
    assert typed("compare", tmp_path / "a.json", tmp_path / "b.json") == 3
    assert "NO CLAIM" in capsys.readouterr().out


def test_apples_and_pears_are_refused_and_compared_when_told(kept, capsys):
    pears = [replace(record, environment=replace(record.environment, device="NVIDIA H100"))
             for record in store.load(kept / "same.json").records]
    store.save(kept / "pears.json", pears)
    with pytest.raises(UnusableInput, match="device NVIDIA L40S and NVIDIA H100"):
        typed("compare", kept / "old.json", kept / "pears.json")
    assert typed("compare", kept / "old.json", kept / "pears.json", "--anyway") == 0
    assert "mind: not of one kind" in capsys.readouterr().out


def test_json_holds_every_figure_of_the_table(kept, capsys):
    assert typed("compare", kept / "old.json", kept / "slow.json", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["comparison_schema"] == 1
    assert said["verdict"]["kind"] == "prefill"
    assert said["verdict"]["regression"] is True
    assert [(load["concurrency"], load["prompt_tokens"]) for load in said["loads"]] == [
        (1, 128), (1, 2048), (8, 128), (8, 2048)]
    ttft = said["loads"][1]["figures"]["ttft"]
    assert ttft["low"] < ttft["ratio"] < ttft["high"]
    assert ttft["ratio"] == pytest.approx(ttft["new"] / ttft["old"])
    # 12 + 0.03 · 2048 = 73.4 ms before, 134.9 after: 1.84
    assert ttft["ratio"] == pytest.approx(1.84, abs=0.1)
    assert (ttft["state"], ttft["n_old"], ttft["n_new"]) == ("worse", 100, 100)


def test_names_of_a_file_reach_no_terminal_as_commands(kept, capsys):
    records = [replace(record, environment=replace(record.environment, engine_version="\x1b[31m9[bold]"))
               for record in store.load(kept / "same.json").records]
    store.save(kept / "hostile.json", records)
    typed("compare", kept / "old.json", kept / "hostile.json")
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "[bold]" in out


@pytest.mark.parametrize(("content", "says"), [
    ("", "empty"), ("{", "no benchmark result"), ('{"baseline_schema": 99}', "baseline_schema 99 is not known"),
    ('{"baseline_schema": 1, "cells": []}', "no run to keep"), ("not json", "no benchmark result")])
def test_files_that_are_none_are_one_line(kept, content, says):
    (kept / "bad.json").write_text(content)
    with pytest.raises(UnusableInput, match=says) as refusal:
        typed("compare", kept / "old.json", kept / "bad.json")
    assert "\n" not in str(refusal.value)


def test_a_missing_file_and_an_empty_folder_are_one_line(kept):
    (kept / "empty").mkdir()
    with pytest.raises(UnusableInput, match="cannot be read"):
        typed("compare", kept / "old.json", kept / "nowhere.json")
    with pytest.raises(UnusableInput, match="no recorded load in this folder"):
        typed("compare", kept / "old.json", kept / "empty")


# ---- import

SERVE = {"backend": "vllm", "model_id": "m", "num_prompts": 2, "request_rate": "inf", "max_concurrency": 4,
         "duration": 10.0, "completed": 2, "failed": 0, "total_input_tokens": 200, "total_output_tokens": 20,
         "request_throughput": 0.2, "output_throughput": 2.0, "total_token_throughput": 22.0,
         "mean_ttft_ms": 50.0, "median_ttft_ms": 48.0, "p99_ttft_ms": 70.0, "mean_tpot_ms": 10.0,
         "median_tpot_ms": 9.5, "p99_tpot_ms": 12.0, "mean_itl_ms": 10.0, "median_itl_ms": 9.0, "p99_itl_ms": 20.0,
         "mean_e2el_ms": 150.0, "median_e2el_ms": 148.0, "p99_e2el_ms": 170.0}


def test_results_of_a_load_generator_become_a_baseline(tmp_path, capsys):
    (tmp_path / "serve.json").write_text(json.dumps(SERVE))
    assert typed("import", tmp_path / "serve.json", "--out", tmp_path / "kept.json") == 0
    assert store.load(tmp_path / "kept.json").records[0].stat("ttft").p50 == 48.0
    assert "concurrency 4, prompt 100, output 10" in capsys.readouterr().out


def test_a_file_that_cannot_be_imported_is_named_and_the_others_are_kept(tmp_path, capsys):
    (tmp_path / "serve.json").write_text(json.dumps(SERVE))
    (tmp_path / "bad.json").write_text("{}")
    assert typed("import", tmp_path / "bad.json", tmp_path / "serve.json", "--out", tmp_path / "kept.json") == 1
    assert "bad.json" in capsys.readouterr().err
    assert len(store.load(tmp_path / "kept.json").records) == 1


def test_nothing_to_import_writes_nothing(tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UnusableInput, match=r"bad\.json"):
        typed("import", tmp_path / "bad.json", "--out", tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()


def test_an_import_replaces_no_file(tmp_path):
    (tmp_path / "serve.json").write_text(json.dumps(SERVE))
    with pytest.raises(UnusableInput, match="is there already"):
        typed("import", tmp_path / "serve.json", "--out", tmp_path / "serve.json")


# ---- record


def test_a_recording_prints_a_line_for_each_load_and_can_be_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XPU_TRIAGE_API_KEY", "sk-of-the-test")
    with serving(PaperServer(FAST, key="sk-of-the-test")) as paper:
        assert typed("record", "--server", paper.url, "--out", tmp_path / "out", "--concurrency", "1,2",
                     "--prompt-tokens", "40", "--output-tokens", "3", "--requests", 12, "--field", "temperature=0.5",
                     "--field", "add_special_tokens=true", "--device", "paper\x1b[1m") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(": asking how the server takes prompts, for 120 s at most")
    assert out[1].startswith("1/2  concurrency 1, prompt 40, output 3: 12 requests, ttft ")
    assert out[-1] == f"2 of 2 loads: {tmp_path / 'out'}"
    assert (paper.bodies[-1]["temperature"], paper.bodies[-1]["add_special_tokens"]) == (0.5, True)
    assert store.load(tmp_path / "out" / "c0001-p000040-o000003.json").environment.device == r"paper\x1b[1m"
    assert typed("compare", tmp_path / "out", tmp_path / "out") in (0, 3)


def test_loads_that_come_to_nothing_are_exit_code_1(tmp_path, capsys):
    with serving(PaperServer(FAST, refuse_above=100)) as paper:
        assert typed("record", "--server", paper.url, "--out", tmp_path / "out", "--concurrency", "1",
                     "--prompt-tokens", "40,400", "--output-tokens", "3", "--requests", 3) == 1
    assert "failed: concurrency 1, prompt 400, output 3" in capsys.readouterr().out


@pytest.mark.parametrize("field", ["temperature", "temperature=hot", "prompt=1", "a b=1", "x=[1]", "stop=NaN", "=1"])
def test_fields_that_cannot_be_are_refused_before_anything_is_asked(tmp_path, field):
    with pytest.raises(UnusableInput, match="--field"):
        typed("record", "--server", "http://127.0.0.1:9", "--out", tmp_path / "out", "--field", field)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", ["1,x", "", "1.5"])
def test_lists_that_are_none_are_named_by_their_option(tmp_path, wrong, capsys):
    with pytest.raises(SystemExit):
        typed("record", "--server", "http://127.0.0.1:9", "--out", tmp_path, "--concurrency", wrong)
    assert "argument --concurrency: invalid list of numbers value" in capsys.readouterr().err
