"""Signals from what single lines of an engine's log say: fallbacks, what was started, placement, preemptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..samples import EngineLog
from ..signals import Signal
from ..text import counted
from .measured import Measured

TEXTS = ("log.fallback_op", "log.backend", "log.implementation")
"""Facts that are signals as they are; several are listed."""

LISTED = 8
"""Names that one signal lists."""

LEAST_COUNTED = 51
"""vLLM before 1.0 reports its first preemption and then every 50th: from the second report on the count is good to a
factor of two."""


def from_facts(logs: Sequence[EngineLog]) -> Measured:
    """Facts of all logs together; counts of each log by itself, the largest kept."""
    signals: list[Signal] = []
    unknown: dict[str, str] = {}
    notes: list[str] = []
    for name in TEXTS:
        said = {fact.value: log.source for log in logs for fact in log.facts if fact.name == name}
        if said:
            listed = sorted(said)
            more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            signals.append(Signal(name, ", ".join(listed[:LISTED]) + more, "log", "lines of the log",
                                  min(said.values())))
    signals += _exhausted(logs)
    for log in logs:
        signals += _compiles(log)
        signals += _preemptions(log, unknown)
        signals += _placement(log, notes)
    return Measured(_largest(signals), unknown, tuple(notes))


def _of(log: EngineLog, name: str) -> list[str]:
    return [fact.value for fact in log.facts if fact.name == name]


def _exhausted(logs: Sequence[EngineLog]) -> Iterator[Signal]:
    for log in logs:
        if _of(log, "log.kv_exhausted"):
            yield Signal("log.kv_exhausted", True, "log", "lines of the log", log.source)
            return
    for log in logs:  # SGLang says it at the level at which it writes its decode lines; others need not
        if log.engine == "sglang" and len(log.stats.get("is_prefill", ())):
            yield Signal("log.kv_exhausted", False, "log", f"{len(log.stats['is_prefill']):,} batch lines and no "
                         "retraction", log.source)
            return


def _compiles(log: EngineLog) -> Iterator[Signal]:
    for value in _of(log, "warmup.compiles"):
        yield Signal("warmup.compiles", int(value), "log", "lines while requests were served", log.source)


def _preemptions(log: EngineLog, unknown: dict[str, str]) -> Iterator[Signal]:
    told, answered = _of(log, "kv.preempted"), _of(log, "serving.answered")
    quiet = log.engine == "sglang" and bool(len(log.stats.get("is_prefill", ())))
    if not told and not quiet:
        return
    if not answered:
        if told:
            unknown["kv.preemptions_per_request"] = "preemptions are in the log, the requests answered are not"
        return
    said = told[0] if told else "0"
    count = int(said.split()[-1])
    if said.startswith("at least") and count < LEAST_COUNTED:
        unknown["kv.preemptions_per_request"] = "this engine reports every 50th preemption, and the log has the first"
        return
    yield Signal("kv.preemptions_per_request", count / int(answered[0]), "log",
                 f"{said} preemption{'' if said == '1' else 's'}, {counted(int(answered[0]), 'request')} answered",
                 log.source)


def _placement(log: EngineLog, notes: list[str]) -> Iterator[Signal]:
    for value in _of(log, "placement.planned")[:1]:
        placed, layers = map(int, value.split("/"))
        if layers:
            yield Signal("placement.planned_fraction", min(placed / layers, 1.0), "log", f"{value} layers", log.source)
    sizes = _amounts(_of(log, "placement.model_buffer"))
    layers_at = _amounts(_of(log, "placement.layers"))
    of_bytes = bool(sizes)
    held = sizes or layers_at
    total = sum(held.values())
    device = sum(amount for name, amount in held.items() if not on_host(name))
    if total > 0:
        listed = ", ".join(f"{name} {amount:,.0f}" for name, amount in held.items())
        yield Signal("placement.loaded_fraction", device / total, "log",
                     f"{'model buffers in MiB' if of_bytes else 'layers'}: {listed}", log.source)
    if device > 0:  # a model on the CPU alone has one split, and none that was meant for a device
        for value in _of(log, "placement.host_ops")[:1]:
            yield Signal("placement.host_ops", int(value), "log", "graph splits at batch size 1", log.source)
    cache = _amounts(_of(log, "placement.kv_buffer")) or _amounts(_of(log, "placement.kv_layers"))
    on_cpu = sum(amount for name, amount in cache.items() if on_host(name))
    if device > 0 and on_cpu > 0:
        notes.append(f"{on_cpu / sum(cache.values()):.0%} of the KV cache is on the CPU, with the model on the device")


def on_host(buffer: str) -> bool:
    """Whether a buffer of this name lies in the host's memory: `CPU`, `CPU_Mapped`, `CUDA_Host`, `Vulkan_Host`."""
    return re.match(r"(?i)cpu|.*_host$|blas$", buffer) is not None


def _amounts(said: Sequence[str]) -> dict[str, float]:
    """`CUDA0 123.4 MiB` or `CPU 12` by name."""
    found: dict[str, float] = {}
    for text in said:
        name, _, amount = text.removesuffix(" MiB").rpartition(" ")
        found[name] = found.get(name, 0.0) + float(amount)
    return found


def _largest(signals: Sequence[Signal]) -> tuple[Signal, ...]:
    """One of each name: of counts the largest, of placement the least on the device."""
    kept: dict[str, Signal] = {}
    for signal in signals:
        other = kept.get(signal.name)
        if other is None:
            kept[signal.name] = signal
        elif isinstance(signal.value, int | float) and isinstance(other.value, int | float):
            less = signal.value < other.value
            if less == signal.name.startswith("placement.") and signal.name != "placement.host_ops":
                kept[signal.name] = signal
    return tuple(kept.values())
