"""What single lines of inference engines' logs look like. Patterns only; `engine_log` puts the lines together.

Read off the sources and printed logs of vLLM 0.5 to 0.32, SGLang 0.3 to 0.5, TensorRT-LLM, llama.cpp and torch's
fallbacks. Every message is matched from its first character on, behind a prefix that the engine's logger writes: a
prompt that quotes such a line, inside a request's line, is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

MAX_MESSAGE = 2000
"""Characters of a line that are looked at: no line with figures is longer, and a prompt of a megabyte costs nothing."""


@dataclass(frozen=True)
class Head:
    """The prefix of a line."""

    engine: str
    """Whose logger wrote it: `vllm`, `sglang`, `tensorrt-llm`; empty for any other."""
    message: str
    time: float | None = None
    """Seconds since the epoch, local time taken as UTC; vLLM writes no year, see `read_head`."""
    ranks: tuple[tuple[str, int], ...] = ()
    """As written: `DP0 TP7` is (("DP", 0), ("TP", 7))."""
    logged: bool = False
    """A logger's prefix was there."""


_CONTAINER = re.compile(
    r"[\w.-]{1,80} +\| "                                                            # docker compose
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP] "        # kubernetes
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w@./-]{1,60}(?:\[\d+\])?: "  # journal
    r"|\d{1,4}: (?=\[)")                                                            # mpirun, srun -l
_PROCESS = re.compile(r"\(([^()]{0,80}?\bpid=\d+[^()]{0,60})\) ?")
_VLLM = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d(?:[.,]\d+)?) "
                   r"(?:\[[^\]]{1,200}\]|[^\s\]]{1,200}\]) ?")
_SGLANG = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)((?: [A-Z]{2,6}\d+)*)\] ?")
_TRTLLM = re.compile(r"(?:\[(\d\d)/(\d\d)/(\d{4})-(\d\d:\d\d:\d\d)\] )?\[TRT-LLM\] (?:\[[^\]]{1,40}\] ?)*")
_LLAMA = re.compile(r"\d{1,4}\.\d\d\.\d{3}\.\d{3} [IWED] ")
_OTHER = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?,? *(?:[-|] *)?(?:[\w.]{1,60} *[-|] *)?"
    r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b(?: *[-|:] *[\w./]{1,80}:\d+)? *[-|:]? *(?:[\w:]{1,80}: )?")
_RANK = re.compile(r"(?<![A-Za-z])(DP|TP|PP|EP|CP|DCP|ATTN_TP|MOE_DP|RANK)[ _]?(\d{1,5})")


def read_head(line: str, year: int) -> Head:
    """The prefix of one line, without colours. `year` is the one that vLLM's stamps are taken to be of."""
    line = line[:MAX_MESSAGE].lstrip()
    for _ in range(3):
        if not (found := _CONTAINER.match(line)):
            break
        line = line[found.end():]
    ranks: tuple[tuple[str, int], ...] = ()
    while found := _PROCESS.match(line):
        ranks += _ranks(found[1])
        line = line[found.end():]
    if found := _VLLM.match(line):
        month, day, hour, minute, second = found.groups()
        stamp = _stamp(f"{year}-{month}-{day} {hour}:{minute}:{second}")
        return Head("vllm", line[found.end():], stamp, ranks, True)
    if found := _SGLANG.match(line):
        return Head("sglang", line[found.end():], _stamp(found[1]), ranks + _ranks(found[2]), True)
    if found := _TRTLLM.match(line):
        month, day, of_year, clock = found.groups()
        stamp = _stamp(f"{of_year}-{month}-{day} {clock}") if month else None
        return Head("tensorrt-llm", line[found.end():], stamp, ranks, True)
    if found := _LLAMA.match(line):
        return Head("llama.cpp", line[found.end():], None, ranks, True)
    if found := _OTHER.match(line):
        return Head("", line[found.end():], _stamp(found[1]), ranks, True)
    return Head("", line, None, ranks, False)


def _ranks(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(number)) for name, number in _RANK.findall(text))


def _stamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.replace(",", ".")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


# vLLM: one line an iteration, of --enable-logging-iteration-details (0.14 on). Since 0.2x the front end prints it.
# What it times is the wait for the model's result, so scheduling between two iterations is not in it.
ITERATION = re.compile(
    r"(?:Engine (\d+): )?Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens(?:, [\w ]{1,60})*?, iteration elapsed time: ([\d.]+) ms( \(dummy\))?(?=,|\s*$)")
KV_USAGE = re.compile(r"\b(\w{2,12}) KV cache usage: ([\d.]+)%")

# vLLM, LMDeploy and others: one line every few seconds.
PERIODIC = re.compile(r"(?:Engine (\d+): |\d+ Engines Aggregated: )?Avg prompt throughput: ([\d.]+) tokens/s, "
                      r"Avg generation throughput: ([\d.]+) tokens/s")
PERIODIC_COUNT = re.compile(r"\b(Running|Waiting|Swapped|Pending|Preemptions): (\d+)")
SPECULATION = re.compile(r"(?:Engine \d+: )?(?:SpecDecoding|Speculative) metrics: ")
"""Beside it where tokens are drafted (vLLM 0.5 on, both names)."""
PREFIX_HITS = re.compile(r"(?<!External )\b[Pp]refix cache (?:token )?hit rate: (?:GPU: )?([\d.]+)%")

# SGLang: one line a prefill batch, and one every --decode-log-interval decode batches.
BATCH = re.compile(r"(Decode|Prefill) batch[.,:]? (?=#)")
PAIR = re.compile(r"(#?[A-Za-z][A-Za-z /()-]{1,40}): (True|False|\d+(?:\.\d+)?)\b")

# TensorRT-LLM, print_iter_log: dictionary-like, the order differs between versions.
TRT_ITERATION = re.compile(r"iter = (\d+), (?=.{0,400}\bhost_step_time = )")
TRT_PAIR = re.compile(r"'?\b([a-z][a-z_]{2,30})'?(?: = |: )([\d.]+)")

BROKEN = re.compile(r"(?:Engine \d+: )?(?:Iteration\(\d|Avg prompt throughput)|(?:Decode|Prefill) batch[.,:] ?#"
                    r"|iter = \d+, ")
"""Begins like a line with figures; one that none of the patterns above takes is cut or of another version."""

# Preemption. vLLM before 1.0 counted, and said so at every 50th.
PREEMPTED_V0 = re.compile(r"Sequence group .{1,200}? is preempted by .{1,400}total_num_cumulative_preemption=(\d+)")
RETRACTED = re.compile(r"KV cache pool is full\. Retract requests\.(?: #retracted_reqs: (\d+))?")
KV_FULL = re.compile(
    r"KV cache pool is full\b|Sequence group .{1,200}? is preempted by |.{0,80}(?:Decode|Prefill) out of memory\b"
    r"|.{0,60}not enough (?:GPU )?KV cache (?:space|blocks)", re.IGNORECASE)

# A torch backend that sends an operator to the CPU. XPU prints no space before "on".
_WARNED = r"(?:\[W[^\]]{1,200}\] ?)?(?:[^\s'\"]{1,300}:\d+: )?(?:\w*[Ww]arning: )?"
FALLBACK = re.compile(
    _WARNED + r"(?:CAUTION: )?The operator '([\w:.<>+-]{1,120})'? ?(?:'|is|on|not).{0,120}?"
    r"(?:fall back to run|falling back to run) on the CPU")
FALLBACK_NAMELESS = re.compile(_WARNED + r"Aten Op fallback from (\w+) to CPU happen")
FALLBACK_OTHER = re.compile(_WARNED + r"Falling back to CPU for (?:operator|op)s?:? ['\"]?([\w:.]{1,120})")

# What was started.
PLATFORM = re.compile(r"Automatically detected platform (\w{1,30})\b")
ATTENTION = (
    re.compile(r"Using (Flash Attention|Torch SDPA)(?: \w+)? backend()"),
    re.compile(r"Using (?:AttentionBackendEnum\.)?(\w[\w.+-]{1,40})(?: [Aa]ttention)? backend(?: on V1 engine)?"
               r"(?: out of potential backends: [\[(]([^\])]{0,300})[\])])?\.?\s*(?:\(|$)"),
    re.compile(r"(?:Attention backend not (?:explicitly specified|set)\. )?Use (\w{2,30})(?: attention)? backend"
               r" by default()"),
)
RUNNER = re.compile(r".{0,400}?\brunners/([\w.-]{1,40})/")

# Something slower in place of something better, as the engine says itself.
IN_PLACE = (
    (re.compile(_WARNED + r"Using a slow tokenizer"), "slow tokenizer"),
    (re.compile(r"Using default ((?:MoE|W8A8|[\w ]{1,30}) ?(?:kernel )?)config\b.{0,5} ?Performance might be"),
     "default {} config"),
    (re.compile(r".{0,200}?\b[Ff]orcing (?:the )?(\w{3,40}) (?:attention )?backend"), "{}"),
    (re.compile(r"(?:Cannot|Can't|cannot) use (FlashAttention\S*|FlashInfer|[\w-]{3,40}) (?:backend|kernel)"),
     "no {}"),
    (re.compile(r".{0,200}?[Ff]all(?:ing|s)? back to (?:the |use )?((?:[Tt]riton|[Ee]ager|[Nn]aive|[Tt]orch|[Pp]y[Tt]"
                r"orch|SDPA|XFormers|native)[\w/. -]{0,30}?)(?=[.,;:(]|\s*$)"), "{}"),
    (re.compile(r"Your GPU does not have native support for (\w{2,10}) computation"), "no native {}"),
)

# Compilation, counted only once requests are served.
COMPILES = re.compile(
    r"(?:\[\w+\] )?Compiling a graph for\b|[\w -]{2,30} JIT compilation during inference\b"
    r"|(?:Configuration: )?\(.{1,100}\) was not warmed-up!|.{0,60}\[__recompiles\]|Recompiling function\b"
    r"|torch\._dynamo hit config\.\w+|.{0,40}Graph capturing finished\b|.{0,40}Capture \w+ graph end\b"
    r"|Compiling CuTe-DSL kernel\b|.{0,20}DeepGEMM JIT (?:Compiling|Pre-Compile)\b")
READY = re.compile(r"(?:INFO: +)?Application startup complete\b|The server is fired up and ready to roll"
                   r"|.{0,60}server is listening on http")
ACCESS = re.compile(r"(?:INFO: +)?[\w.:\[\]-]{3,60} - \"POST (/\S{1,100}) HTTP/[\d.]+\" (\d{3})")
ANSWERING = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/generate", "/v1/messages", "/completion")

PROFILER_ON = re.compile(r"Starting profiler|(?:Torch )?[Pp]rofiling starts\b|Profiling starts for")
PROFILER_OFF = re.compile(r"Profiler stopped|Max profiling iterations reached|Profiling done|Stop profiling")

# llama.cpp and Ollama.
_LLAMA_AT = r"(?:[\w.]{1,60}: +)?"
OFFLOADED = re.compile(_LLAMA_AT + r"offloaded (\d+)/(\d+) layers to GPU")
OLLAMA_OFFLOAD = re.compile(r".{0,400}?\blayers\.model=(\d+)\b.{0,200}?\blayers\.offload=(\d+)\b")
MODEL_BUFFER = re.compile(_LLAMA_AT + r" *([\w.:-]{1,40}) +(model|KV) buffer size *= *([\d.]+) MiB")
LAYER_AT = re.compile(_LLAMA_AT + r"layer +(\d+) assigned to device ([\w.:-]{1,40})")
KV_LAYER_AT = re.compile(_LLAMA_AT + r"layer +(\d+): .{0,60}?\bdev = ([\w.:-]{1,40})")
GRAPH_SPLITS = re.compile(_LLAMA_AT + r"graph splits *= *(\d+)(?: \(with bs=\d+\), (\d+) \(with bs=1\))?")

RECOGNISED = (ITERATION, PERIODIC, BATCH, TRT_ITERATION, PREEMPTED_V0, RETRACTED, FALLBACK, FALLBACK_NAMELESS,
              PLATFORM, OFFLOADED, MODEL_BUFFER, OLLAMA_OFFLOAD)
"""Any of these makes a text an engine's log."""
