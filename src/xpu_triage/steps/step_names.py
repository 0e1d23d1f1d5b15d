"""What engines and profilers call a step, and what the name tells of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROFILER_STEP = re.compile(r"^ProfilerStep\*?#?\d*")
"""`torch.profiler`'s own mark, one each call of `step()`."""

_VLLM = re.compile(r"^execute_(?:\d+_)?context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)")
"""vLLM: `execute_context_<prefill requests>(<tokens>)_generation_<decode requests>(<tokens>)`, or with a
count of all requests first and `sq<query tokens>sk<keys>…` in the parentheses."""

_SGLANG = re.compile(r"^step\[([A-Z_]+)([^\]]*)\]")
"""SGLang: `step[DECODE bs=32]`, `step[EXTEND bs=2 toks=4096 …]`, `step[MIXED …]`, `step[VERIFY …]`."""

_BRACKET = re.compile(r"^(prefill|decode)\[([^\]]*)\]", re.I)
"""ATOM and others: `prefill[bs=2 tok=16384]`, `decode[bs=32]`."""

_FORWARD_STEP = re.compile(r"_forward_step \d+: (\d+) ctx reqs(?:, (\d+) ctx tokens)?, (\d+) gen reqs")
"""TensorRT-LLM: `[Executor] _forward_step 12: 0 ctx reqs, 0 ctx tokens, 32 gen reqs`."""

_STEP_WORD = re.compile(
    r"(?<![a-z])(step|iter|iteration|training_batch|train_batch|execute_model)(?![a-z])", re.I)
_NO_STEP = re.compile(r"^Optimizer\.|zero_grad", re.I)
"""`Optimizer.step#Adam.step` is a part of a step."""

_STEP_FUNCTION = re.compile(
    r": (execute_model|run_batch|forward_batch_generation|_forward_step|engine_step|train_step"
    r"|training_step)$")
"""vLLM's `execute_model`, SGLang's `run_batch`, TensorRT-LLM's `_forward_step`, and what trainers call
theirs."""

_BATCH = re.compile(r"\bbs=(\d+)")
_TOKENS = re.compile(r"\btok(?:en)?s?=(\d+)")
_FIRST_NUMBER = re.compile(r"\d+")

_SGLANG_PHASE = {
    "EXTEND": "prefill", "PREFILL": "prefill", "SPLIT_PREFILL": "prefill", "DECODE": "decode",
    "VERIFY": "decode", "TARGET_VERIFY": "decode", "MIXED": "mixed"}
"""SGLang's forward modes. Drafts and idle passes are parts of a step, or none."""


@dataclass(frozen=True)
class StepName:
    """What a step's name tells; None and "" where it does not."""

    phase: str = ""
    prefill_requests: int | None = None
    prefill_tokens: int | None = None
    decode_requests: int | None = None


def is_engine_step(name: str) -> bool:
    """Whether an inference engine marks one of its iterations with this name."""
    sglang = _SGLANG.match(name)
    if sglang:
        return sglang[1] in _SGLANG_PHASE
    return bool(_VLLM.match(name) or _BRACKET.match(name) or _FORWARD_STEP.search(name))


def is_profiler_step(name: str) -> bool:
    return bool(PROFILER_STEP.match(name))


def speaks_of_steps(name: str) -> bool:
    """Whether some other program's annotation calls itself a step or an iteration."""
    return bool(_STEP_WORD.search(name)) and not _NO_STEP.search(name)


def is_step_function(frame: str) -> bool:
    """Whether a Python frame is the function that an engine or a trainer calls once an iteration."""
    return bool(_STEP_FUNCTION.search(frame))


def template(name: str) -> str:
    """`name` with its numbers blanked: the same for all steps of one kind.

    >>> template("execute_context_4(24)_generation_0(0)")
    'execute_context_#(#)_generation_#(#)'
    """
    return re.sub(r"\d+", "#", name)


def parse(name: str) -> StepName:
    """Phase, requests and tokens, as far as `name` tells them.

    >>> parse("execute_context_1(888_788544)_generation_3(3)")
    StepName(phase='mixed', prefill_requests=1, prefill_tokens=888, decode_requests=3)
    """
    if match := _VLLM.match(name):
        return _counted(int(match[1]), _first_number(match[2]), int(match[3]))
    if match := _FORWARD_STEP.search(name):
        return _counted(int(match[1]), int(match[2]) if match[2] else None, int(match[3]))
    if match := _SGLANG.match(name):
        return _batched(_SGLANG_PHASE.get(match[1], ""), match[2])
    if match := _BRACKET.match(name):
        return _batched(match[1].lower(), match[2])
    return StepName()


def _counted(prefills: int, tokens: int | None, decodes: int) -> StepName:
    phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode" if decodes else ""
    return StepName(phase, prefills, tokens, decodes)


def _batched(phase: str, text: str) -> StepName:
    """One batch size for the whole step: it counts prefills, or decodes, or cannot be told apart."""
    batch, tokens = _BATCH.search(text), _TOKENS.search(text)
    size = int(batch[1]) if batch else None
    if phase == "prefill":
        return StepName(phase, size, int(tokens[1]) if tokens else None, 0)
    if phase == "decode":
        return StepName(phase, 0, 0, size)
    return StepName(phase)


def _first_number(text: str) -> int | None:
    match = _FIRST_NUMBER.search(text)
    return int(match[0]) if match else None
