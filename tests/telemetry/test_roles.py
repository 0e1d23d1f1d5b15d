"""What a process is for, from titles as engines set them and as tools cut them."""

from __future__ import annotations

import pytest

from xpu_triage.telemetry.roles import ROLES, is_client, role


@pytest.mark.parametrize(("title", "expected"), [
    ("VLLM::EngineCore", "engine"), ("VLLM::EngineCor", "engine"), ("VLLM::EngineCore_DP1", "engine"),
    ("VLLM::Worker_TP0", "worker"), ("VLLM::Worker", "worker"), ("VLLM::Worker_PP1_TP3", "worker"),
    ("VLLM::APIServer_0", "api server"), ("vllm serve Qwen/Qwen3-8B --port 8000", "api server"),
    ("/usr/bin/python3 -m vllm.entrypoints.openai.api_server --model m", "api server"),
    ("sglang::scheduler_TP0", "scheduler"), ("sglang::schedul", "scheduler"), ("sglang::detokenizer", "detokenizer"),
    ("sglang::detoken", "detokenizer"), ("sglang::router", "api server"),
    ("sglang::tokenizer_worker:3", "tokenizer"),
    ("python -m sglang.launch_server --model-path m", "api server"), ("trtllm-serve m", "api server"),
    ("/app/llama-server -m m.gguf", "engine"), ("text-generation-launcher --model-id m", "api server"),
    ("python train.py", ""), ("", ""), ("systemd", ""), ("x" * 100_000, ""),
])
def test_titles(title: str, expected: str) -> None:
    assert role(title) == expected
    assert expected in (*ROLES, "")


def test_a_model_named_like_a_role_does_not_make_one() -> None:
    assert role("vllm serve my/detokenizer-model") == "api server"
    assert role("cat my-worker.txt") == ""


@pytest.mark.parametrize("title", ["python benchmark_serving.py --model m", "vllm bench serve", "99 bench_one_batch.py",
                                   "python -m sglang.bench_serving", "guidellm benchmark", "locust -f x.py"])
def test_a_load_generator_is_a_client(title: str) -> None:
    assert is_client(title)
    assert role(title) == ""


@pytest.mark.parametrize("title", ["vllm serve model", "VLLM::Worker_TP0", "sglang::scheduler", "python train.py",
                                   "python workbench.py", ""])
def test_others_are_no_client(title: str) -> None:
    assert not is_client(title)
