"""`xpu-triage roofline CONFIG.json`: the floor of a decode step and of a prompt, and how far a measured one is from
it."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..errors import UnusableInput
from ..pipes import columns, wrapped
from ..text import clean
from ..units import figure
from . import config_json, devices, floors
from .devices import Device
from .floors import Load, Operations, Reads, UnknownFloorError
from .model_shape import ModelShape

SCHEMA = 1
"""Of the JSON. Rises when a field changes its meaning or goes; new fields may come without it."""

NEAR_FLOOR = 0.75
"""Share of the bandwidth from which on a step is at its limit: good kernels reach 0.75 to 0.93 of the advertised
figure (see the page bandwidth-bound)."""

NONE_GIVEN = "none given"
_NO_DEVICE = 'no device is given (--device "H100 SXM"'

LABEL = 12
"""Columns before the words of a line with a label."""

BATCH, CONTEXT = 1.0, 4096.0
"""Where none is given."""

FAR = 0.45
"""Share up to which memory is not what the step waits for (the same page)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("config", metavar="CONFIG.json", help="the model's config.json, as Hugging Face models have it")
    road = parser.add_mutually_exclusive_group()
    road.add_argument("--device", metavar="NAME", help="product name as the vendor's tool prints it, or a short one: "
                      "H100 SXM")
    road.add_argument("--bandwidth", type=_positive, metavar="GBPS",
                      help="memory bandwidth of one device, 10^9 bytes/s")
    parser.add_argument("--tflops", type=_positive, metavar="T", help="dense arithmetic peak of one device, 10^12/s")
    parser.add_argument("--batch", type=_list, metavar="N[,N...]", help="requests in a step (1)")
    parser.add_argument("--context", type=_positive, metavar="TOKENS", help=f"mean context ({CONTEXT:.0f})")
    parser.add_argument("--prompt", type=_list, metavar="TOKENS[,...]", help="prompt lengths (the context)")
    parser.add_argument("--tp", type=_count, default=1, metavar="N", help="devices that tensors are split over (1)")
    parser.add_argument("--dtype", metavar="TYPE", help="type of the weights, where it is not the configuration's")
    parser.add_argument("--kv-dtype", metavar="TYPE", help="type of the cache, where it is not that of the weights")
    parser.add_argument("--step-ms", type=_positive, metavar="MS", help="a measured decode step, to compare with")
    parser.add_argument("--json", action="store_true", help="print the floors as JSON (see docs/json.md)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the floors. Exit code 0; refusals are one line."""
    shape = config_json.read(args.config)
    try:
        if args.dtype:
            shape = config_json.with_dtype(shape, args.dtype)
        kv_bits = floors.kv_bits_of(args.kv_dtype) if args.kv_dtype else None
    except ValueError as error:
        raise UnusableInput(str(error)) from None
    batches, context = args.batch or [BATCH], args.context or CONTEXT
    if args.step_ms is not None and len(batches) > 1:
        raise UnusableInput("a measured step belongs to one batch", todo="Give one --batch with --step-ms")
    device = _device(args)
    loads = [Load(batch, context, args.tp, kv_bits) for batch in batches]
    prompts = args.prompt or [context]
    assumed = tuple(name for name in ("batch", "context") if getattr(args, name) is None)
    if args.json:
        told = to_json(shape, device, loads, prompts, args.step_ms, assumed)
        print(json.dumps(told, indent=2, allow_nan=False))
        return 0
    width = columns()
    for line in lines(shape, device, loads, prompts, args.step_ms, assumed):
        print(wrapped(clean(line), width, indent=LABEL if line.startswith(" ") else 4))
    return 0


def to_json(shape: ModelShape, device: Device, loads: list[Load], prompts: list[float], step_ms: float | None = None,
            assumed: Sequence[str] = ()) -> dict[str, Any]:
    """The same floors in plain types; what is unknown is null, and `unknown` says why. `assumed`: of `batch` and
    `context`, what nobody gave."""
    return {
        "schema": SCHEMA,
        "model": {"name": clean(shape.name), "layers": shape.layers, "dtype": shape.dtype or None,
                  "parameters": _or_none(lambda: shape.parameters), "notes": [clean(note) for note in shape.notes]},
        "device": {"name": clean(device.name), "gbps": device.gbps, "tflops": device.tflops,
                   "source": clean(device.source) or None},
        "decode": [_decode_json(shape, device, load, step_ms) | {"assumed": list(assumed)} for load in loads],
        "prefill": [_prefill_json(shape, device, tokens, loads[0].devices) for tokens in prompts],
    }


def _decode_json(shape: ModelShape, device: Device, load: Load, step_ms: float | None) -> dict[str, Any]:
    out: dict[str, Any] = {"batch": load.batch, "context": load.context, "devices": load.devices, "weights_gb": None,
                           "kv_gb": None, "tflop": None, "floor_ms": None, "by": None, "tokens_per_s": None,
                           "step_ms": step_ms, "share": None, "unknown": None}
    try:
        reads, operations = floors.decode_reads(shape, load), floors.decode_operations(shape, load)
    except UnknownFloorError as error:
        return {**out, "unknown": clean(str(error))}
    out |= {"weights_gb": reads.weights / 1e9, "kv_gb": reads.kv / 1e9, "tflop": operations.total / 1e12}
    floor = _floor(reads, operations, device, load.devices, shape)
    if floor is None:
        return {**out, "unknown": _no_bandwidth(device)}
    ms, by = floor
    return {**out, "floor_ms": ms, "by": by, "tokens_per_s": load.batch / ms * 1000,
            "share": None if step_ms is None else ms / step_ms}


def _prefill_json(shape: ModelShape, device: Device, tokens: float, count: int) -> dict[str, Any]:
    out: dict[str, Any] = {"tokens": tokens, "tflop": None, "attention_share": None, "floor_ms": None, "by": None,
                           "is_bound": None, "unknown": None}
    try:
        operations = floors.prefill_operations(shape, tokens)
    except UnknownFloorError as error:
        return {**out, "unknown": clean(str(error))}
    out |= {"tflop": operations.total / 1e12, "attention_share": operations.attention / operations.total}
    lacks = _lacks(shape, device)
    floor = floors.prefill_floor(shape, tokens, device.gbps, device.tflops if _fits(device, shape) else None, count)
    if floor is not None:
        out |= {"floor_ms": floor[0], "by": floor[1], "is_bound": bool(lacks)}
    return {**out, "unknown": "; ".join(lacks) or None}


def _or_none(figure_of: Callable[[], float]) -> float | None:
    try:
        return figure_of()
    except UnknownFloorError:
        return None


def lines(shape: ModelShape, device: Device, loads: list[Load], prompts: list[float], step_ms: float | None = None,
          assumed: Sequence[str] = ()) -> Iterator[str]:
    """The answer, a line a fact. A measured step is told what of its load is `assumed`."""
    yield f"{shape.name}: {shape.layers} layers, {shape.dtype or 'type unknown'}"
    try:
        one = floors.weight_bytes(shape, 1)
        sparse = any(block.mlp.experts for block in shape.blocks)
        yield (f"  weights   {figure(shape.parameters / 1e9)} billion, {figure(one / 1e9)} GB read by a step"
               + (" over one token" if sparse else ""))
    except UnknownFloorError as error:
        yield f"  weights   unknown: {error}"
    try:
        yield (f"  KV cache  {figure(floors.kv_bytes(shape, 1, loads[0].kv_bits) / 1e3)} kB for the first token of a "
               f"request, {figure(floors.kv_bytes(shape, loads[0].context, loads[0].kv_bits) / 1e6)} MB at "
               f"{figure(loads[0].context)}")
    except UnknownFloorError as error:
        yield f"  KV cache  unknown: {error}"
    yield (f"  device    {device.name}: {_or_unknown(device.gbps, 'GB/s')}, {_or_unknown(device.tflops, 'TFLOP/s')}"
           + (f" ({device.source})" if device.source else ""))
    for load in loads:
        yield from _decode(shape, device, load, step_ms, assumed)
    for tokens in prompts:
        yield _prefill(shape, device, tokens, loads[0].devices)
    yield from (f"  note      {note}" for note in shape.notes)


def _decode(shape: ModelShape, device: Device, load: Load, step_ms: float | None, assumed: Sequence[str]
            ) -> Iterator[str]:
    what = f"decode, batch {figure(load.batch)} × {figure(load.context)} tokens" + (
        f", {load.devices} devices" if load.devices > 1 else "")
    try:
        reads, operations = floors.decode_reads(shape, load), floors.decode_operations(shape, load)
    except UnknownFloorError as error:
        yield f"{what}: floor unknown: {error}"
        return
    each = " on each device" if load.devices > 1 else ""
    yield (f"{what}: reads {figure(reads.gb)} GB{each} ({figure(reads.weights / 1e9)} weights + "
           f"{figure(reads.kv / 1e9)} KV), {figure(operations.total / 1e12)} TFLOP")
    floor = _floor(reads, operations, device, load.devices, shape)
    if floor is None:
        yield f"  floor     unknown: {_no_bandwidth(device)}"
        return
    ms, by = floor
    yield f"  floor     {figure(ms)} ms by {by}: at most {figure(load.batch / ms * 1000)} tokens/s"
    if step_ms is not None:
        yield f"  measured  {figure(step_ms)} ms: {_compared(ms / step_ms, by)}"
        taken = {"batch": f"a batch of {figure(load.batch)}", "context": f"a context of {figure(load.context)} tokens"}
        if assumed:
            yield (f"  assumed   {' and '.join(taken[name] for name in assumed)}: with the real one give "
                   f"{' and '.join(f'--{name}' for name in assumed)}, or the comparison means little")


def _floor(reads: Reads, operations: Operations, device: Device, count: int, shape: ModelShape
           ) -> tuple[float, str] | None:
    """The longer of reading and computing, in ms, and which it is; None where the bandwidth is unknown."""
    if not device.gbps:
        return None
    memory = floors.read_ms(reads, device.gbps)
    if device.tflops and _fits(device, shape):
        arithmetic = floors.compute_ms(operations, device.tflops, count)
        if arithmetic > memory:
            return arithmetic, "arithmetic"
    return memory, "memory"


def _fits(device: Device, shape: ModelShape) -> bool:
    """Whether the peak is for the type in which this model computes: a table's is for 16 bits."""
    return device.how == "typed" or shape.arithmetic == "bf16"


def _compared(share: float, by: str) -> str:
    if share > 1:
        return (f"shorter than its floor ({figure(share)} times): the layout, the batch, the contexts, the type of the "
                "weights or the device is another one")
    text = f"{share:.0%} of what the {by} allows"
    if share >= NEAR_FLOOR:
        return f"{text}, at its limit: nothing is broken, only fewer {'bytes' if by == 'memory' else 'operations'} help"
    if share <= FAR:
        return f"{text}: the time goes elsewhere (kernels, launches, host, exchanges)"
    return f"{text}: between its limit and a fault"


def _prefill(shape: ModelShape, device: Device, tokens: float, count: int) -> str:
    try:
        operations = floors.prefill_operations(shape, tokens)
    except UnknownFloorError as error:
        return f"prompt of {figure(tokens)} tokens: floor unknown: {error}"
    text = (f"prompt of {figure(tokens)} tokens: {figure(operations.total / 1e12)} TFLOP, attention "
            f"{operations.attention / operations.total:.1%} of it")
    tflops = device.tflops if _fits(device, shape) else None
    floor = floors.prefill_floor(shape, tokens, device.gbps, tflops, count)
    lacks = _lacks(shape, device)
    if floor is None:
        return f"{text}; floor unknown: {'; '.join(lacks)}"
    ms, by = floor
    return f"{text}; floor {'at least ' if lacks else ''}{figure(ms)} ms by {by}" + (f": {lacks[0]}" if lacks else "")


def _lacks(shape: ModelShape, device: Device) -> list[str]:
    """What is missing for the floor of a prompt."""
    if device.name == NONE_GIVEN:
        return [f"{_NO_DEVICE}, or --tflops and --bandwidth)"]
    lacks = []
    if not device.tflops:
        lacks.append("the arithmetic peak is not known (--tflops)")
    elif not _fits(device, shape):
        lacks.append(f"products run in {shape.arithmetic or 'an unknown type'}, and the peak is for 16 bits")
    if not device.gbps:
        lacks.append(_no_bandwidth(device))
    return lacks


def _no_bandwidth(device: Device) -> str:
    return (f"{_NO_DEVICE}, or --bandwidth)" if device.name == NONE_GIVEN
            else "the device's bandwidth is not known (--bandwidth)")


def _device(args: argparse.Namespace) -> Device:
    if args.device:
        found = devices.by_name(args.device)
        if found is None:
            near = devices.near(args.device)
            meant = f"Did you mean {' or '.join(near)} (variants of one product differ, so it is named whole)" if near \
                else f"Known are {', '.join(devices.known())}"
            raise UnusableInput(f"no peak is known for {args.device}",
                                todo=f"{meant}; or give --bandwidth and --tflops")
        return replace(found, tflops=args.tflops, how="typed") if args.tflops else found
    if args.bandwidth or args.tflops:
        return Device("as given", args.bandwidth, args.tflops, "", "typed")
    return Device(NONE_GIVEN, None, None, "")


def _or_unknown(value: float | None, unit: str) -> str:
    return f"{unit} unknown" if value is None else f"{figure(value)} {unit}"


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value) or not 0 < value <= 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _count(text: str) -> int:
    value = _positive(text)
    if value != int(value) or value > 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of devices")
    return int(value)


def _list(text: str) -> list[float]:
    values = [_positive(part) for part in text.split(",")]
    if len(values) > 50:
        raise argparse.ArgumentTypeError("more than 50 values")
    return values
