"""Benchmark results against what the hardware allows: each load's step beside its floor, and the prompt's.

The step of a load is what its clients see between two tokens; its batch is taken as the requests in flight and its
context as the prompt and half of the output. Where some of those wait, fewer run in a step, and the floor reads a
little too high: then a share above 1 is a contradiction, not a fast device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..roofline import floors
from ..roofline.commands import FAR, NEAR_FLOOR
from ..roofline.devices import Device
from ..roofline.floors import Load, UnknownFloorError
from ..roofline.model_shape import ModelShape
from ..units import figure
from .records import BenchRecord
from .signals import ONE_A_TOKEN, gaps_a_token, in_flight
from .store import Cell, cell_of

PER_GAP, PER_REQUEST = "median gap", "median time per token"


@dataclass(frozen=True)
class Floor:
    """Of one decode step, in ms."""

    memory_ms: float
    arithmetic_ms: float | None
    """None where the peak for this model's type is not known."""
    gb: float
    """Bytes that each device reads."""

    @property
    def ms(self) -> float:
        return max(self.memory_ms, self.arithmetic_ms or 0.0)

    @property
    def by(self) -> str:
        """What the floor is made of."""
        return "memory" if self.ms == self.memory_ms else "arithmetic"


@dataclass(frozen=True)
class MeasuredStep:
    """One load's decode step, and its floor."""

    cell: Cell
    batch: float
    context: float
    ms: float
    basis: str
    """What `ms` is: PER_GAP or PER_REQUEST."""
    floor: Floor

    @property
    def share(self) -> float:
        """Floor ÷ measured: 1 is at the limit."""
        return self.floor.ms / self.ms

    @property
    def words(self) -> str:
        """What the share says."""
        if self.share > 1:
            return ("shorter than its floor: the batch, the contexts, the type of the weights or the device is "
                    "another one")
        if self.share >= NEAR_FLOOR:
            what = "bytes" if self.floor.by == "memory" else "operations"
            return f"at its limit: nothing is broken, only fewer {what} help"
        if self.share <= FAR:
            return "the time goes elsewhere: launches, host, kernels, exchanges, or prompts in between"
        return "between its limit and a fault"


def floor_of(shape: ModelShape, device: Device, load: Load) -> Floor:
    """The floor of a decode step. Raises UnknownFloorError, with the reason, where it is not known."""
    if not device.gbps:
        raise UnknownFloorError(f"the memory bandwidth of {device.name} is not known")
    reads = floors.decode_reads(shape, load)
    peak = arithmetic_peak(shape, device)
    arithmetic = None if peak is None else floors.compute_ms(floors.decode_operations(shape, load), peak, load.devices)
    return Floor(floors.read_ms(reads, device.gbps), arithmetic, reads.gb)


def arithmetic_peak(shape: ModelShape, device: Device) -> float | None:
    """10¹² operations a second, where the device's figure is for the type in which this model computes."""
    return device.tflops if device.tflops and (device.how == "typed" or shape.arithmetic == "bf16") else None


def prefill_floor_ms(shape: ModelShape, device: Device, tokens: float, devices: int = 1) -> float | None:
    """Of one prompt: the larger of its arithmetic and of reading the weights once; None where the arithmetic is not
    known."""
    peak = arithmetic_peak(shape, device)
    if peak is None:
        return None
    try:
        found = floors.prefill_floor(shape, tokens, device.gbps, peak, devices)
    except UnknownFloorError:
        return None
    return found[0] if found else None


def measured_steps(records: Sequence[BenchRecord], shape: ModelShape, device: Device, devices: int = 1
                   ) -> tuple[tuple[MeasuredStep, ...], tuple[str, ...]]:
    """The loads whose step, batch and context are known, and why others are not there, each reason once."""
    found: list[MeasuredStep] = []
    why: list[str] = []
    for record in records:
        batch, step = in_flight(record), step_of(record)
        if batch is None or batch < 1:
            why.append("how many requests were in flight is not known")
        elif record.prompt_tokens is None:
            why.append("the prompts' length is not known")
        elif step is None:
            why.append("no time per token is known")
        else:
            context = record.prompt_tokens + (record.output_tokens or 0.0) / 2
            try:
                floor = floor_of(shape, device, Load(batch, context, devices))
            except UnknownFloorError as error:
                why.append(str(error))
                continue
            found.append(MeasuredStep(cell_of(record), batch, context, *step, floor))
    return tuple(found), tuple(dict.fromkeys(why))


def step_of(record: BenchRecord) -> tuple[float, str] | None:
    """ms between two tokens of a request, and what it is: the median gap where a gap is one token's, for a mean over a
    request holds pieces of other prompts too."""
    ratio = gaps_a_token(record)
    gap, each = record.stat("itl").p50, record.stat("tpot").p50
    if gap is not None and gap > 0 and ratio is not None and ONE_A_TOKEN[0] <= ratio <= ONE_A_TOKEN[1]:
        return gap, PER_GAP
    if each is not None and each > 0:
        return each, PER_REQUEST
    return None


def load_words(step: MeasuredStep) -> str:
    """`8 × 2,176 tokens`: a step's batch and mean context."""
    return f"{figure(step.batch)} × {figure(step.context)} tokens"
