"""What a process of an inference service is for, from its title."""

from __future__ import annotations

import re

ROLES = ("api server", "tokenizer", "detokenizer", "scheduler", "engine", "worker")

# First match decides. `top` and pidstat cut titles at 15 characters, so the start of a title has to do.
_TITLES = tuple((re.compile(pattern, re.IGNORECASE), role) for pattern, role in (
    (r"\bVLLM::Worker|\bRayWorkerWrapper|\bray::.{0,40}worker|\bpt_main_thread.{0,20}worker|\bVllmWorker", "worker"),
    (r"\bVLLM::(?:EngineCor|DPEngine|EngineProc|Engine)", "engine"),
    (r"\bVLLM::(?:APIServer|API|Router|DPCoordinator)", "api server"),
    (r"\bsglang::de(?:t|$)", "detokenizer"),
    (r"\bsglang::(?:sche|data_paral|dp_contr)", "scheduler"),
    (r"\bsglang::(?:tokeni|multi_tok)", "tokenizer"),
    (r"\bsglang::(?:rout|http|api|serv|grpc)", "api server"),
    (r"\bsglang::", "worker"),
    (r"\bvllm(?:\.exe)?\s+serve\b|\bvllm\.entrypoints\.|\bvllm/entrypoints/", "api server"),
    (r"\bsglang\.launch_server\b|\bsglang\s+serve\b|\bsglang_router\b|\bsglang/launch_server", "api server"),
    (r"\btrtllm-serve\b|\blmdeploy\s+serve\b|\bserve\.openai_api\b|\btritonserver\b", "api server"),
    (r"\btext-generation-(?:launcher|router)\b", "api server"),
    (r"\btext-generation-server\b", "worker"),
    (r"\bllama-server\b|\bollama(?:_llama_server)?\s+runner\b|\bollama_llama_se", "engine"),
    (r"\bollama\s+serve\b|\buvicorn\b|\bgunicorn\b|\bhypercorn\b", "api server"),
    (r"\bxpu[-_]triage\S*\s+lab\s+serve\b", "engine"),
    (r"\bdetokeniz", "detokenizer"),
    (r"(?<![-\w])tokenizer\w*\.py\b", "tokenizer"),
    (r"\bEngineCore\b", "engine"),
    (r"\bAPIServer\b", "api server"),
    (r"\b(?:mindieservice_|mindie_llm_ba)", "engine"),
))


def role(title: str) -> str:
    """`api server`, `tokenizer`, `detokenizer`, `scheduler`, `engine` or `worker`; empty for anything else.

    `title` is a process title, a command line or a name that a tool has cut short. A front end that also tokenizes in
    its own process (vLLM's, SGLang's) is an api server.

    >>> role("VLLM::Worker_TP0"), role("sglang::detokenizer"), role("vllm serve model")
    ('worker', 'detokenizer', 'api server')
    """
    title = title[:1000]
    return next((role for pattern, role in _TITLES if pattern.search(title)), "")


_CLIENTS = re.compile(
    r"\b(?:benchmark|bench)_\w+(?:\.py)?\b|\b(?:vllm|sglang|lmdeploy)\s+bench\b|\bsglang\.bench_\w+"
    r"|\bvllm\.benchmarks\b|\b(?:guidellm|aiperf|genai-perf|evalscope|llmeter|locust|lm_eval)\b", re.IGNORECASE)


def is_client(title: str) -> bool:
    """Whether a process makes the load and does not serve it.

    >>> is_client("python benchmark_serving.py"), is_client("vllm serve model")
    (True, False)
    """
    return _CLIENTS.search(title[:1000]) is not None
