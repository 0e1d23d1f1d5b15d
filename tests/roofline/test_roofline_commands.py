"""`xpu-triage roofline`: what it prints, and how it refuses."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from model_configs import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_2_7B, Config
from xpu_triage.errors import UnusableInput
from xpu_triage.roofline import commands


def printed(capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Config, *options: str) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    parser = argparse.ArgumentParser(prog="xpu-triage roofline")
    commands.add_arguments(parser)
    args = parser.parse_args([str(path), *options])
    assert args.run(args) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100 or "--json" in options
    return out if "--json" in options else in_lines(out)


def in_lines(out: str) -> str:
    """Without the wrapping: a line a fact."""
    return re.sub(r"\n(?: {4}| {12})(?=\S)", " ", out)


def test_floors_at_two_batches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = printed(capsys, tmp_path, GEMMA_3_27B, "--device", "NVIDIA H100 80GB HBM3", "--batch", "1,256",
                  "--context", "4096")
    assert "floor     16.4 ms by memory: at most 61.1 tokens/s" in out     # 16.354 ms (see test_floors)
    assert "floor     75.1 ms by memory: at most 3,409 tokens/s" in out
    assert "prompt of 4,096 tokens: 214.2 TFLOP, attention 2.1% of it; floor 216.6 ms" in out


@pytest.mark.parametrize(("step_ms", "words"), [
    ("20", "82% of what the memory allows, at its limit: nothing is broken, only fewer bytes help"),
    ("28", "58% of what the memory allows: between"), ("80", "20% of what the memory allows: the time goes elsewhere"),
    ("10", "shorter than its floor")])
def test_a_measured_step_is_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path, step_ms: str, words: str
                                     ) -> None:
    assert words in printed(capsys, tmp_path, GEMMA_3_27B, "--bandwidth", "3350", "--step-ms", step_ms)


def test_what_of_the_load_is_assumed_is_said_where_a_step_is_judged_by_it(
        capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ("--bandwidth", "3350", "--step-ms", "10")
    assert ("assumed   a batch of 1 and a context of 4,096 tokens: with the real one give --batch and --context, or "
            "the comparison means little") in printed(capsys, tmp_path, LLAMA_2_7B, *given)
    out = printed(capsys, tmp_path, LLAMA_2_7B, *given, "--batch", "64")
    assert "assumed   a context of 4,096 tokens: with the real one give --context" in out
    assert "assumed" not in printed(capsys, tmp_path, LLAMA_2_7B, *given, "--batch", "64", "--context", "4096")
    assert "assumed" not in printed(capsys, tmp_path, LLAMA_2_7B, "--bandwidth", "3350")


def test_lines_wrap_beside_their_label(capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    wide = printed(capsys, tmp_path, LLAMA_2_7B, "--device", "H100 SXM", "--step-ms", "10")
    monkeypatch.setenv("COLUMNS", "60")
    path = tmp_path / "config.json"
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    commands.run(parser.parse_args([str(path), "--device", "H100 SXM", "--step-ms", "10"]))
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 60
    assert in_lines(narrow) == wide


def test_a_large_batch_of_short_contexts_is_bound_by_arithmetic(capsys: pytest.CaptureFixture[str], tmp_path: Path
                                                                ) -> None:
    out = printed(capsys, tmp_path, LLAMA_2_7B, "--device", "H100 SXM", "--batch", "2000", "--context", "1")
    assert "by arithmetic" in out


def test_unknown_peaks_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = printed(capsys, tmp_path, LLAMA_2_7B)
    assert 'floor     unknown: no device is given (--device "H100 SXM", or --bandwidth)' in out
    assert 'floor unknown: no device is given (--device "H100 SXM", or --tflops and --bandwidth)' in out
    out = printed(capsys, tmp_path, LLAMA_2_7B, "--tflops", "989", "--prompt", "16")
    assert "ms by arithmetic: the device's bandwidth is not known (--bandwidth)" in out
    out = printed(capsys, tmp_path, DEEPSEEK_V3, "--device", "NVIDIA H200", "--tp", "8")
    assert "products run in fp8, and the peak is for 16 bits" in out
    assert "floor unknown" not in printed(capsys, tmp_path, DEEPSEEK_V3, "--device", "NVIDIA H200", "--tflops", "1979")


def test_another_type_halves_the_bytes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # 6.607 billion × 2 B = 13.2 GB, and half of it
    assert "13.2 GB read by a step" in printed(capsys, tmp_path, LLAMA_2_7B)
    assert "6.61 GB read by a step" in printed(capsys, tmp_path, LLAMA_2_7B, "--dtype", "fp8")
    assert "2.15 KV" in printed(capsys, tmp_path, LLAMA_2_7B)
    assert "1.07 KV" in printed(capsys, tmp_path, LLAMA_2_7B, "--kv-dtype", "fp8")


@pytest.mark.parametrize(("options", "what"), [
    (["--device", "Ascend910B2"], "no peak is known for Ascend910B2. Known are A100"),
    (["--device", "H100"], "no peak is known for H100. Did you mean H100 SXM"),
    (["--dtype", "int3"], "'int3' is not a type"),
    (["--kv-dtype", "x\x1b"], "not a type"), (["--batch", "1,2", "--step-ms", "3"], "belongs to one batch")])
def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], what: str
                               ) -> None:
    with pytest.raises(UnusableInput, match=what) as refusal:
        printed(capsys, tmp_path, LLAMA_2_7B, *options)
    assert "\n" not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)


@pytest.mark.parametrize("options", [
    ["--batch", "0"], ["--batch", "-1"], ["--batch", "x"], ["--batch", "nan"], ["--tp", "1.5"], ["--tp", "0"],
    ["--context", "inf"], ["--bandwidth", "1e99"], ["--batch", ",".join(["1"] * 51)],
    ["--device", "H100 SXM", "--bandwidth", "3"]])
def test_senseless_options_are_errors_of_use(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
                                             ) -> None:
    with pytest.raises(SystemExit) as stopped:
        printed(capsys, tmp_path, LLAMA_2_7B, *options)
    assert stopped.value.code == 2


def test_escape_codes_in_a_configuration_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path
                                                                   ) -> None:
    out = printed(capsys, tmp_path, {**LLAMA_2_7B, "architectures": ["\x1b]0;x\x07"], "torch_dtype": "\x1b[2J"})
    assert "\x1b" not in out


def test_a_prompts_floor_is_the_larger_of_arithmetic_and_reading(capsys: pytest.CaptureFixture[str], tmp_path: Path
                                                                 ) -> None:
    out = printed(capsys, tmp_path, LLAMA_2_7B, "--device", "H100 SXM", "--prompt", "16,4096")
    assert "of it; floor 3.94 ms by memory\n" in out            # 13.2 GB ÷ 3,350 GB/s
    assert "by arithmetic" in out
    out = printed(capsys, tmp_path, LLAMA_2_7B, "--bandwidth", "3350", "--prompt", "16")
    assert "floor at least 3.94 ms by memory: the arithmetic peak is not known (--tflops)" in out


def test_the_json_has_the_figures_of_the_lines_and_null_for_what_is_unknown(
        capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = json.loads(printed(capsys, tmp_path, GEMMA_3_27B, "--device", "NVIDIA H100 80GB HBM3", "--batch", "1,256",
                              "--context", "4096", "--json"))
    assert [round(each["floor_ms"], 1) for each in told["decode"]] == [16.4, 75.1]      # as the lines above
    assert [each["by"] for each in told["decode"]] == ["memory", "memory"]
    assert round(told["prefill"][0]["floor_ms"], 1) == 216.6
    assert told["prefill"][0]["is_bound"] is False
    told = json.loads(printed(capsys, tmp_path, LLAMA_2_7B, "--json", "--step-ms", "12"))
    assert (told["decode"][0]["floor_ms"], told["decode"][0]["share"], told["device"]["gbps"]) == (None, None, None)
    assert "no device is given" in told["decode"][0]["unknown"]
    assert told["decode"][0]["assumed"] == ["batch", "context"]
    told = json.loads(printed(capsys, tmp_path, LLAMA_2_7B, "--tflops", "989", "--prompt", "16", "--json"))
    assert told["prefill"][0]["is_bound"] is True
