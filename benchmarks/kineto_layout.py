"""Single events of a Kineto trace as text, laid out line by line as PyTorch 2.13 writes them."""

from __future__ import annotations

from typing import NamedTuple

HOST, DEVICE, STREAM = 4242, 0, 7
"""Process (and thread) of the program, process of the device, its stream."""

EPOCH_NS = 5_149_425_540_000_000_000


class Row(NamedTuple):
    """One event before it is text: `what` is a key of `LAYOUT`; times in ns from the capture's start."""

    what: str
    name: str
    start: int
    dur: int = 0
    own: int = 0
    """Its own id: External id, Python id, or correlation."""
    other: int = 0
    """The id that ties it to another: External id of the operator, id of the Python parent."""


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def text(row: Row) -> str:
    """The event, without the comma that follows it."""
    if row.what == "flow":
        pid, tid, tail = (HOST, HOST, "") if row.name == "s" else (DEVICE, STREAM, ',\n    "bp": "e"')
        return (
            f'  {{\n    "ph": "{row.name}",\n    "id": {row.own},\n    "pid": {pid},\n    "tid": {tid},\n'
            f'    "ts": {us(EPOCH_NS + row.start)},\n    "cat": "ac2g",\n    "name": "ac2g"{tail}\n  }}'
        )
    category, pid, tid, args = LAYOUT[row.what]
    if row.what == "instant":
        kind, took = '"i",\n    "s": "t"', ""
    else:
        kind, took = '"X"', f',\n    "dur": {us(row.dur)}\n    '
    return (
        f'  {{\n    "ph": {kind},\n    "cat": "{category}",\n    "name": "{row.name}",\n'
        f'    "pid": {pid},\n    "tid": {tid},\n    "ts": {us(EPOCH_NS + row.start)}{took},\n'
        f'    "args": {{\n      {args(row)}\n    }}\n  }}'
    )


def _operator(row: Row) -> str:
    return (
        f'"External id": {row.own},"Record function id": 0, "Concrete Inputs": ["", ""], '
        '"Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[4096, 1], [1, 4096]], '
        f'"Input Dims": [[32, 4096], [4096, 4096]], "Ev Idx": {row.own}'
    )


def _kernel(row: Row) -> str:
    return (
        f'"External id": {row.other}, "queued": 0, "device": 0, "context": 1, "stream": {STREAM}, '
        f'"correlation": {row.own}, "registers per thread": 168, "shared memory": 213248, '
        '"blocks per SM": 1.939394, "warps per SM": 23.272728, "grid": [256, 1, 1], '
        '"block": [384, 1, 1], "est. achieved occupancy %": 19'
    )


def _copy(row: Row) -> str:
    return (
        f'"External id": {row.other}, "device": 0, "context": 1, "stream": {STREAM}, '
        f'"correlation": {row.own}, "bytes": 128, "memory bandwidth (GB/s)": 0.0914'
    )


def _python(row: Row) -> str:
    return f'"Python parent id": {row.other or "null"}, "Python id": {row.own}, "Ev Idx": {row.own}'


def _annotation(row: Row) -> str:
    return f'"External id": {row.own},"Record function id": 0, "Ev Idx": {row.own}'


def _call(row: Row) -> str:
    return f'"External id": {row.other}, "cbid": 211, "correlation": {row.own}'


def _memory(row: Row) -> str:
    return (
        f'"Total Reserved": 0, "Total Allocated": {row.own * 512}, "Bytes": 512, '
        f'"Addr": {row.own * 4096}, "Device Id": -1, "Device Type": 0'
    )


LAYOUT = {
    "op": ("cpu_op", HOST, HOST, _operator),
    "annotation": ("user_annotation", HOST, HOST, _annotation),
    "python": ("python_function", HOST, HOST, _python),
    "call": ("cuda_runtime", HOST, HOST, _call),
    "kernel": ("kernel", DEVICE, STREAM, _kernel),
    "copy": ("gpu_memcpy", DEVICE, STREAM, _copy),
    "instant": ("cpu_instant_event", HOST, HOST, _memory),
}
"""What an event is: category, process, thread, arguments."""

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "Synthetic device", "totalGlobalMem": 85899345920}
  ],
  "with_stack": 1,
  "record_shapes": 1,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
TAIL = "\n  ]\n}\n"
