"""Logs of inference engines: iteration and periodic lines, and what single lines say.

vLLM, SGLang, TensorRT-LLM, llama.cpp and Ollama, and torch's warnings of operators sent to the CPU. A line that
carries neither is passed over, arguments and prompts among them: nothing of their text is kept.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from os import PathLike

import numpy as np

from ..errors import UnusableInput
from ..samples import MAX_READINGS, EngineLog, Fact, Floats
from ..text import clean, counted
from . import engine_lines as known
from .lines import lines

NAN = float("nan")

ITERATION_COLUMNS = ("time", "engine", "index", "elapsed_ms", "context_requests", "context_tokens",
                     "generation_requests", "generation_tokens", "kv_usage_fraction", "profiled")
STATS_COLUMNS = ("time", "engine", "running", "waiting", "swapped", "kv_usage_fraction", "prefill_tokens_per_s",
                 "decode_tokens_per_s", "prefix_hit_fraction", "is_prefill", "graph", "new_requests", "new_tokens",
                 "cached_tokens", "tokens", "accept_length", "preempted")
"""Beside those of `EngineLog`: of a prefill batch its new requests, computed and cached tokens; of a decode batch the
tokens that its requests hold and the tokens accepted a step; preemptions since the line before."""

MAX_NAMES = 50
"""Different values of one fact that are kept."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_YEAR_S = 365 * 86400


def matches(head: str) -> bool:
    """Whether a text that begins like this is the log of an engine."""
    for line in _COLOUR.sub("", head).splitlines():
        found = known.read_head(line, 2000)
        if found.engine in ("vllm", "tensorrt-llm"):
            return True
        if any(pattern.match(found.message) for pattern in known.RECOGNISED):
            return True
    return False


def read(path: str | PathLike[str]) -> EngineLog:
    """What an engine's log says. Times are seconds since the epoch, local time taken as UTC; vLLM writes no year, so
    its is that of the file's last change.

    Raises UnusableInput where no line carries a figure or names a fact, or the file cannot be read.
    """
    notes: list[str] = []
    try:
        changed = os.stat(path).st_mtime
    except OSError as error:
        raise UnusableInput(f"cannot be read: {error.strerror or error}", where=path) from None
    log = _Log(datetime.fromtimestamp(changed, UTC).year)
    for line in lines(path, notes):
        log.take(line)
        if log.full:
            log.forget()
    if log.forgotten:
        notes.append(f"more than {MAX_READINGS:,} readings: those of the first {counted(log.forgotten, 'line')} are "
                     "left out")
    result = log.result(str(path), notes)
    if not result.iterations and not result.stats and not result.facts and not log.logged:
        raise UnusableInput("no line of an engine's log with figures", where=path,
                            todo="Give the engine's own log; vLLM: --enable-logging-iteration-details")
    return result


class _Log:
    """The lines so far."""

    def __init__(self, year: int) -> None:
        self.year = year
        self.lines = self.skipped = self.logged = self.forgotten = 0
        self.iterations: list[dict[str, float]] = []
        self.stats: list[dict[str, float]] = []
        self.said: dict[str, Counter[str]] = {}
        self._rank: dict[str, list[tuple[tuple[str, int], ...]]] = {"iterations": [], "stats": []}
        self._at: dict[str, list[int]] = {"iterations": [], "stats": []}
        self._bare: list[bool] = []
        self._engines: Counter[str] = Counter()
        self._last_time: float | None = None
        self._profiled = self._serving = False
        self._buffers: dict[tuple[str, str], float] = {}
        self._layers: dict[int, str] = {}
        self._kv_layers: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._preempted_v0 = 0

    @property
    def full(self) -> bool:
        wide = len(self.iterations) * len(ITERATION_COLUMNS) + len(self.stats) * len(STATS_COLUMNS)
        return wide >= MAX_READINGS

    def forget(self) -> None:
        """Leave out the beginning, a quarter of the lines: what is wrong now is at the end of a log."""
        oldest = min(at[0] for at in self._at.values() if at)
        self.forgotten = oldest + (self.lines - oldest) // 4
        for table, rows in (("iterations", self.iterations), ("stats", self.stats)):
            old = bisect_right(self._at[table], self.forgotten)
            del rows[:old], self._rank[table][:old], self._at[table][:old]
            if table == "iterations":
                del self._bare[:old]

    def take(self, line: str) -> None:
        if not line or line.isspace():
            return
        self.lines += 1
        head = known.read_head(line, self.year)
        head = self._forward(head)
        self.logged += head.engine in ("vllm", "tensorrt-llm")
        if head.engine:
            self._engines[head.engine] += 1
        if self._iteration(head) or self._batch(head) or self._periodic(head) or self._trt(head):
            return
        self._fact(head)
        if not self._placement(head.message) and known.BROKEN.match(head.message):
            self.skipped += 1

    def _forward(self, head: known.Head) -> known.Head:
        """vLLM's stamps have no year: one that goes back by most of a year is of the next."""
        if head.engine == "vllm" and head.time is not None:
            if self._last_time is not None and self._last_time - head.time > 0.8 * _YEAR_S:
                self.year += 1
                head = known.Head(head.engine, head.message, head.time + _YEAR_S, head.ranks, True)
            self._last_time = head.time
        return head

    def _add(self, table: str, head: known.Head, **values: float) -> None:
        rows = self.iterations if table == "iterations" else self.stats
        row = {"time": NAN if head.time is None else head.time, **values}
        rows.append(row)
        self._rank[table].append(tuple(rank for rank in head.ranks if rank[0] != "DP"))
        self._at[table].append(self.lines)

    def _iteration(self, head: known.Head) -> bool:
        found = known.ITERATION.match(head.message)
        if not found:
            return False
        engine, index, requests, tokens, running, generated, elapsed, dummy = found.groups()
        usage, device = _usage(head.message[found.end():])
        self._name_device(device)
        if dummy:  # a data-parallel rank without requests keeps in step with the others
            self._counts["dummy"] += 1
            return True
        self._serving = True
        self._bare.append(not head.logged)
        self._engines["vllm"] += 1
        self._add("iterations", head, engine=_number(engine, _data_rank(head)), index=float(index),
                  elapsed_ms=_number(elapsed), context_requests=float(requests), context_tokens=float(tokens),
                  generation_requests=float(running), generation_tokens=float(generated), kv_usage_fraction=usage,
                  profiled=float(self._profiled))
        return True

    def _periodic(self, head: known.Head) -> bool:
        found = known.PERIODIC.match(head.message)
        if not found:
            return False
        rest = head.message[found.end():]
        counts = {name: float(number) for name, number in known.PERIODIC_COUNT.findall(rest)}
        usage, device = _usage(rest)
        self._name_device(device)
        hits = known.PREFIX_HITS.search(rest)
        self._serving = self._serving or counts.get("Running", 0) > 0
        self._engines["vllm"] += 1
        self._counts["preempted"] += int(counts.get("Preemptions", 0))
        self._add("stats", head, engine=_number(found[1], _data_rank(head)), running=counts.get("Running", NAN),
                  waiting=counts.get("Waiting", counts.get("Pending", NAN)), swapped=counts.get("Swapped", NAN),
                  kv_usage_fraction=usage, prefill_tokens_per_s=_number(found[2]),
                  decode_tokens_per_s=_number(found[3]),
                  prefix_hit_fraction=_number(hits[1]) / 100 if hits else NAN,
                  preempted=counts.get("Preemptions", NAN))
        return True

    def _batch(self, head: known.Head) -> bool:
        found = known.BATCH.match(head.message)
        if not found:
            return False
        said = {name.strip().casefold(): value for name, value in known.PAIR.findall(head.message[found.end():])}
        figure = {name: _number(value) for name, value in said.items()}
        prefill = found[1] == "Prefill"
        new, cached = figure.get("#new-token", NAN), figure.get("#cached-token", NAN)
        usages = [value for name, value in figure.items() if name.endswith("token usage")]
        graph = said.get("cuda graph", said.get("npu graph", said.get("graph", "")))
        self._serving = True
        self._engines["sglang"] += 1
        self._add("stats", head, engine=_data_rank(head), running=figure.get("#running-req", NAN),
                  waiting=figure.get("#queue-req", NAN), swapped=figure.get("#retracted-req", NAN),
                  kv_usage_fraction=_fraction(max(usages, default=NAN)),
                  prefill_tokens_per_s=figure.get("input throughput (token/s)", NAN),
                  decode_tokens_per_s=figure.get("gen throughput (token/s)", NAN),
                  prefix_hit_fraction=cached / (new + cached) if new + cached > 0 else NAN, is_prefill=float(prefill),
                  graph={"True": 1.0, "False": 0.0}.get(graph, NAN), new_requests=figure.get("#new-seq", NAN),
                  new_tokens=new, cached_tokens=cached, tokens=figure.get("#token", figure.get("#full token", NAN)),
                  accept_length=figure.get("accept len", NAN))
        return True

    def _trt(self, head: known.Head) -> bool:
        if not known.TRT_ITERATION.match(head.message):
            return False
        said = {name: _number(value) for name, value in known.TRT_PAIR.findall(head.message)}
        context = said.get("num_ctx_requests", NAN)
        rank = said.get("global_rank", said.get("rank", 0.0))
        self._serving = True
        self._engines["tensorrt-llm"] += 1
        self._add("iterations", head, engine=rank, index=said.get("iter", NAN),
                  elapsed_ms=said.get("host_step_time", NAN), context_requests=context,
                  context_tokens=said.get("num_ctx_tokens", NAN),
                  generation_requests=said.get("num_scheduled_requests", NAN) - context,
                  generation_tokens=said.get("num_generation_tokens", NAN),
                  kv_usage_fraction=_fraction(said.get("kv_cache_util", NAN)), profiled=float(self._profiled))
        self._bare.append(not head.logged)
        return True

    def _fact(self, head: known.Head) -> None:
        text = head.message
        if known.PROFILER_ON.match(text):
            self._profiled = True
        elif known.PROFILER_OFF.match(text):
            self._profiled = False
        elif known.READY.match(text):
            self._serving = True
        elif found := known.ACCESS.match(text):
            if found[1].partition("?")[0] in known.ANSWERING:
                self._serving = True
                self._counts["answered"] += found[2].startswith("2")
        elif known.COMPILES.match(text):
            self._counts["compiles"] += self._serving
        elif known.SPECULATION.match(text):
            self._say("serving.speculation", "true")
        for pattern in (known.FALLBACK, known.FALLBACK_OTHER):
            if found := pattern.match(text):
                self._say("log.fallback_op", found[1])
        if found := known.FALLBACK_NAMELESS.match(text):
            self._say("log.fallback_op", f"not named ({found[1]})")
        if known.KV_FULL.match(text):
            self._say("log.kv_exhausted", "true")
        if found := known.RETRACTED.match(text):
            self._counts[f"retracted {head.ranks}"] += int(found[1] or 1)
        if found := known.PREEMPTED_V0.match(text):
            self._preempted_v0 = max(self._preempted_v0, int(found[1]))
        if found := known.PLATFORM.match(text):
            self._say("log.backend", found[1])
        if found := known.RUNNER.match(text) if "runners/" in text else None:
            self._say("log.backend", found[1])
        for pattern in known.ATTENTION:
            if found := pattern.match(text):
                self._say("log.backend", found[1])
                listed = [name.strip(" '\"") for name in (found[2] or "").split(",") if name.strip()]
                if listed and found[1] != listed[0] and found[1] in listed:
                    self._say("log.implementation", f"{found[1]} ({listed[0]} was there)")
                break
        for pattern, said in known.IN_PLACE:
            if found := pattern.match(text):
                self._say("log.implementation", said.format(*(group.strip() for group in found.groups())))

    def _placement(self, text: str) -> bool:
        if found := known.OFFLOADED.match(text):
            self._say("placement.planned", f"{found[1]}/{found[2]}")
        elif found := known.OLLAMA_OFFLOAD.match(text) if "layers.offload" in text else None:
            self._say("placement.planned", f"{found[2]}/{found[1]}")
        elif found := known.MODEL_BUFFER.match(text):
            self._buffers[found[2], found[1]] = self._buffers.get((found[2], found[1]), 0.0) + _number(found[3])
        elif found := known.LAYER_AT.match(text):
            self._layers[int(found[1])] = found[2]
        elif found := known.KV_LAYER_AT.match(text):
            self._kv_layers[int(found[1])] = found[2]
        elif found := known.GRAPH_SPLITS.match(text):
            self._say("placement.host_ops", found[2] or found[1])
        else:
            return False
        self._engines["llama.cpp"] += 1
        return True

    def _say(self, name: str, value: str) -> None:
        counts = self.said.setdefault(name, Counter())
        value = clean(value)
        if value in counts or len(counts) < MAX_NAMES:
            counts[value] += 1

    def _name_device(self, device: str) -> None:
        """Newer vLLM names the device whose memory the cache is in."""
        if device:
            self._say("log.backend", device.lower())

    def result(self, source: str, notes: list[str]) -> EngineLog:
        self._distrust_bare(notes)
        for (kind, device), size in sorted(self._buffers.items()):
            self._say(f"placement.{kind.lower()}_buffer", f"{device} {size:g} MiB")
        for name, layers in (("placement.layers", self._layers), ("placement.kv_layers", self._kv_layers)):
            for device, count in sorted(Counter(layers.values()).items()):
                self._say(name, f"{device} {count}")
        # ranks of one engine all report the same retraction
        retracted = max((n for key, n in self._counts.items() if key.startswith("retracted")), default=0)
        preempted = self._counts["preempted"] + retracted
        if self._preempted_v0:
            self._say("kv.preempted", f"at least {self._preempted_v0}")
        elif preempted:
            self._say("kv.preempted", str(preempted))
            self._say("log.kv_exhausted", "true")
        if self._counts["answered"]:
            self._say("serving.answered", str(self._counts["answered"]))
        if self._counts["compiles"]:
            self._say("warmup.compiles", str(self._counts["compiles"]))
        if self._counts["dummy"]:
            notes.append(f"{counted(self._counts['dummy'], 'iteration')} of a rank without requests left out")
        iterations = self._table("iterations", self.iterations, ITERATION_COLUMNS, notes)
        stats = self._table("stats", self.stats, STATS_COLUMNS, notes)
        facts = tuple(Fact("log", "", name, value) for name, counts in sorted(self.said.items())
                      for value in sorted(counts))
        engine = self._engines.most_common(1)[0][0] if self._engines else ""
        return EngineLog(source, engine, iterations, stats, facts, self.lines, self.skipped, tuple(notes))

    def _distrust_bare(self, notes: list[str]) -> None:
        """In a log whose lines have a prefix, an iteration line without one is something that was quoted."""
        if not any(self._bare) or (all(self._bare) and not self.logged):
            return
        kept = [i for i, bare in enumerate(self._bare) if not bare]
        dropped = len(self._bare) - len(kept)
        self.iterations = [self.iterations[i] for i in kept]
        self._rank["iterations"] = [self._rank["iterations"][i] for i in kept]
        self.skipped += dropped
        notes.append(f"{dropped:,} iteration lines without the logger's prefix, among lines that have it: left out")

    def _table(self, table: str, rows: list[dict[str, float]], columns: Iterable[str],
               notes: list[str]) -> Mapping[str, Floats]:
        """Columns of rows. Tensor- and pipeline-parallel ranks repeat each other's lines: the first counts."""
        if not rows:
            return {}
        ranks = self._rank[table]
        first: dict[float, tuple[tuple[str, int], ...]] = {}
        for row, rank in zip(rows, ranks, strict=True):
            first[row["engine"]] = min(first.get(row["engine"], rank), rank)
        kept = [row for row, rank in zip(rows, ranks, strict=True) if rank == first[row["engine"]]]
        if len(kept) < len(rows):
            names = {" ".join(f"{name}{number}" for name, number in rank) or "no rank" for rank in first.values()}
            notes.append(f"several ranks write the same lines: those of {', '.join(sorted(names)[:4])} are used")
        return {name: np.array([row.get(name, NAN) for row in kept], float) for name in columns}


def _data_rank(head: known.Head) -> float:
    return float(next((number for name, number in head.ranks if name == "DP"), 0))


def _usage(text: str) -> tuple[float, str]:
    """KV use as a fraction, and the device as the line names it. Older vLLM gives the CPU's swap space beside the
    device's."""
    found = known.KV_USAGE.findall(text)
    if not found:
        return NAN, ""
    device = next((pair for pair in found if pair[0] != "CPU"), found[0])
    return _fraction(_number(device[1]) / 100), device[0] if device[0] == "CPU" else ""


def _fraction(value: float) -> float:
    return value if 0 <= value <= 1 else NAN


def _number(text: str | None, default: float = NAN) -> float:
    """A figure; `default` where there is none, NaN where it is no number."""
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        return NAN
    return value if np.isfinite(value) else NAN
