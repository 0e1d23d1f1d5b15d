"""Signals of the roofline: what a step must read and compute, against what it took and what the device can do.

All figures are of one device: with tensors split over n devices each reads its part. Whatever is not known makes the
ratio unknown, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..signals import Signal
from ..telemetry.measured import Measured
from ..units import figure
from .devices import Device
from .floors import (
    Load,
    Operations,
    Reads,
    UnknownFloorError,
    compute_ms,
    decode_operations,
    decode_reads,
    read_ms,
)
from .model_shape import ModelShape

READ, PEAK, PROBE = "roofline.read_gb", "roofline.peak_gbps", "roofline.probe_gbps"
BANDWIDTH, COMPUTE = "roofline.bandwidth_fraction", "roofline.compute_fraction"

NEAR = 0.03
"""Over 1, a share of a *probed* bandwidth is the probe's own noise up to here. Judgement."""

_TENSOR = re.compile(r"\b(TP|EP|PP|DP|CP|SP|DCP|ADP)\s*[=:x]?\s*(\d{1,4})\b", re.I)
_ALONE = ("none", "one device", "single", "single device", "1 device", "one gpu", "single gpu", "tp1")


@dataclass(frozen=True)
class Given:
    """What a person says, or the evidence; None for unknown. It goes before what the signals say."""

    batch: float | None = None
    context: float | None = None
    devices: int | None = None
    kv_bits: float | None = None
    step_ms: float | None = None
    tflops: float | None = None


@dataclass
class _Out:
    source: str
    signals: list[Signal] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def give(self, name: str, value: float, how: str, window: str, source: str = "") -> None:
        self.signals.append(Signal(name, value, how, window, source or self.source))

    def measured(self) -> Measured:
        return Measured(tuple(self.signals), self.unknown, tuple(dict.fromkeys(self.notes)))


def measure(shape: ModelShape, signals: Mapping[str, Signal], device: Device | None = None, *,
            why_no_device: str = "", given: Given | None = None) -> Measured:
    """`roofline.read_gb`, `.peak_gbps`, `.bandwidth_fraction` and `.compute_fraction` of a decode step of this model,
    as far as `signals` (batch, prompt length, layout, step time) and `device` give them. What a person typed of these
    stays as it is and is used.

    A floor longer than the measured step is a contradiction: it is said, and no share above 1 is given.
    """
    given, out = given or Given(), _Out(shape.source)
    load = _load(shape, signals, given, out)
    reads = _reads(shape, load, signals, out) if isinstance(load, Load) else None
    if isinstance(load, str):
        _cannot(out, signals, load, READ, BANDWIDTH, COMPUTE)
    peak, road = _peak(signals, device, why_no_device, out)
    step = _step(signals, given)
    if step is None:
        _cannot(out, signals, "no step time is known", BANDWIDTH, COMPUTE)
    elif reads is not None:
        _bandwidth(reads, step, peak, road, why_no_device, signals, out)
    if isinstance(load, Load) and step is not None:
        _compute(shape, load, step, device, given, why_no_device, signals, out)
    out.notes += [f"{shape.name}: {note}" for note in shape.notes]
    return out.measured()


def _load(shape: ModelShape, signals: Mapping[str, Signal], given: Given, out: _Out) -> Load | str:
    """The step's load, or why it is not known."""
    devices, why = (given.devices, "") if given.devices else _devices(signals)
    if devices is None:
        return why
    batch = given.batch if given.batch is not None else _number(signals, "serving.running")
    if batch is None and (_number(signals, "serving.concurrency") or 2) <= 1:
        batch = 1.0
    if batch is None:
        return "how many requests run in a step is not known (serving.running)"
    if batch < 1:
        return "no requests run (serving.running is below 1): there is no step to compare with"
    context = given.context
    if context is None and (context := _number(signals, "serving.prompt_tokens")) is not None:
        out.notes.append("contexts are taken as the prompts' median length: what is generated comes on top, so the "
                         "floor is a little low")
    if context is None:
        return "how long the contexts are is not known (serving.prompt_tokens)"
    return Load(batch, context, devices, given.kv_bits)


def _devices(signals: Mapping[str, Signal]) -> tuple[int | None, str]:
    """Over how many devices tensors are split, by `comm.layout`; one where a trace shows no collective in a step."""
    layout = signals.get("comm.layout")
    if layout is None:
        calls = signals.get("comm.calls_per_step")
        if calls is not None and calls.value == 0 and calls.how == "trace":
            return 1, ""
        return None, "over how many devices the model is split is not known (comm.layout)"
    text = str(layout.value).casefold().strip()
    if text in _ALONE:
        return 1, ""
    parts: dict[str, int] = {}
    for kind, count in _TENSOR.findall(text):
        parts[kind.upper()] = int(count)
    rest = _TENSOR.sub("", text).strip(" ,+;/×x")
    tensor, expert = parts.pop("TP", None), parts.pop("EP", None)
    if tensor is None or tensor < 1 or rest or any(count > 1 for count in parts.values()) or (expert or 1) > tensor:
        return None, (f"a layout of {layout.value} reads other bytes per device than tensor parallelism does, which is "
                      "not computed here")
    return tensor, ""


def _reads(shape: ModelShape, load: Load, signals: Mapping[str, Signal], out: _Out) -> Reads | None:
    typed = signals.get(READ)
    if typed is not None and not isinstance(typed.value, bool | str):
        return Reads(float(typed.value) * 1e9, 0.0)
    try:
        reads = decode_reads(shape, load)
    except UnknownFloorError as error:
        _cannot(out, signals, str(error), READ, BANDWIDTH)
        return None
    each = f" on each of {load.devices} devices" if load.devices > 1 else ""
    out.give(READ, reads.gb, "config",
             f"{figure(reads.weights / 1e9)} GB of weights and {figure(reads.kv / 1e9)} GB of KV for "
             f"{figure(load.batch)} request{'s' * (load.batch != 1)} of {figure(load.context)} tokens{each}")
    if any(block.mlp.experts for block in shape.blocks):
        out.notes.append("experts that a batch touches are counted as even routing would: uneven routing reads fewer")
    return reads


def _peak(signals: Mapping[str, Signal], device: Device | None, why: str, out: _Out) -> tuple[float | None, str]:
    """The bandwidth to compare with, and its signal's name: a probe's goes before the advertised one."""
    if PEAK not in signals:
        if device is not None and device.gbps:
            out.give(PEAK, device.gbps, device.how, f"{device.name}: {device.source}")
        else:
            out.unknown[PEAK] = why or "the device's bandwidth is not known"
    for name in (PROBE, PEAK):
        if (value := _number(signals, name)) is not None:
            return value, name
    return (device.gbps, PEAK) if device is not None and device.gbps else (None, PEAK)


def _step(signals: Mapping[str, Signal], given: Given) -> Signal | None:
    if given.step_ms is not None:
        return Signal("step.wall_ms", given.step_ms, "typed")
    step = signals.get("step.wall_ms")
    return step if step is not None and (_number(signals, "step.wall_ms") or 0) > 0 else None


def _bandwidth(reads: Reads, step: Signal, peak: float | None, road: str, why: str, signals: Mapping[str, Signal],
               out: _Out) -> None:
    if peak is None:
        _cannot(out, signals, why or "the device's bandwidth is not known", BANDWIDTH)
        return
    wall = float(step.value)
    floor = read_ms(reads, peak)
    share = floor / wall
    words = (f"{figure(reads.gb)} GB ÷ {figure(wall)} ms = {figure(reads.gb / wall * 1000)} GB/s of {figure(peak)} "
             f"({road})")
    if share > (1 + NEAR if road == PROBE else 1.0):
        _contradiction(f"to read {figure(reads.gb)} GB at {figure(peak)} GB/s takes {figure(floor)} ms, longer than "
                       f"the measured step of {figure(wall)} ms: the layout, the batch, the contexts, the type of the "
                       "weights or the device is another one", signals, BANDWIDTH, out)
    elif BANDWIDTH not in signals:
        out.give(BANDWIDTH, min(share, 1.0), step.how, words, step.source)


def _compute(shape: ModelShape, load: Load, step: Signal, device: Device | None, given: Given, why: str,
             signals: Mapping[str, Signal], out: _Out) -> None:
    if COMPUTE in signals:
        return
    tflops = given.tflops
    if tflops is None:
        if shape.arithmetic != "bf16":
            kind = shape.arithmetic or "an unknown type"
            _cannot(out, signals, shape.unknown.get("arithmetic") or (
                f"products run in {kind}, and peaks are known for 16 bits only"), COMPUTE)
            return
        tflops = device.tflops if device is not None else None
    if not tflops:
        _cannot(out, signals, why or "the device's arithmetic peak is not known", COMPUTE)
        return
    try:
        operations = decode_operations(shape, load)
    except UnknownFloorError as error:
        _cannot(out, signals, str(error), COMPUTE)
        return
    _arithmetic(operations, tflops, load, step, signals, out)


def _arithmetic(operations: Operations, tflops: float, load: Load, step: Signal, signals: Mapping[str, Signal],
                out: _Out) -> None:
    wall = float(step.value)
    floor = compute_ms(operations, tflops, load.devices)
    if floor > wall:
        _contradiction(f"{figure(operations.total / 1e12)} TFLOP at {figure(tflops)} TFLOP/s take {figure(floor)} ms, "
                       f"longer than the measured step of {figure(wall)} ms", signals, COMPUTE, out)
    else:
        rate = operations.total / load.devices / wall / 1e9
        out.give(COMPUTE, floor / wall, step.how, f"{figure(rate)} of {figure(tflops)} TFLOP/s", step.source)


def _contradiction(text: str, signals: Mapping[str, Signal], name: str, out: _Out) -> None:
    out.notes.append(text)
    _cannot(out, signals, text, name)


def _cannot(out: _Out, signals: Mapping[str, Signal], why: str, *names: str) -> None:
    for name in names:
        if name not in signals:
            out.unknown.setdefault(name, why)


def _number(signals: Mapping[str, Signal], name: str) -> float | None:
    signal = signals.get(name)
    return None if signal is None or isinstance(signal.value, bool | str) else float(signal.value)
