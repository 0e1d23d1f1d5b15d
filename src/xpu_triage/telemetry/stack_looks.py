"""What one stack says its thread is doing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..samples import Frame, Stack
from ..steps.patterns import NOT_COMPUTE
from . import stack_names as names
from .stack_names import Known, known


class Doing(StrEnum):
    """The words are those of the table that people read."""

    WORK = "works"
    ON_CPU = "computes an operator on a CPU"
    LAUNCH = "launches"
    DEVICE = "waits for the device"
    WAIT = "waits for work or another process"
    ASLEEP = "asleep"


@dataclass(frozen=True)
class Look:
    """One stack, read."""

    stack: Stack
    doing: Doing
    at: Frame
    """The innermost frame that is no wrapper: where the sample belongs."""
    name: str
    """What it is called: an operator, a runtime call, or a function with its file."""
    python: bool = True
    native: bool = False
    """The tool recorded native frames."""
    fallback: bool = False
    """A frame carries the operator from a device to the CPU: by itself the proof of a fallback."""
    usual: bool = False
    """A wait for a step's tokens, as every step has it."""
    model: bool = False
    """The thread runs the model, or waits to."""
    framework: bool = False
    """Code that computes with tensors is on the stack."""
    start_up: bool = False
    compiles: bool = False
    device: bool = False
    """Code is at work that only a run on a device has."""
    cpu_build: bool = False
    engine: bool = False
    """Code of an inference engine, or of the server before it, is on the stack."""
    client: bool = False
    """Code of a load generator is on the stack."""

    @property
    def samples(self) -> int:
        return self.stack.samples

    @property
    def busy(self) -> bool:
        """Neither waiting nor asleep."""
        return self.doing in (Doing.WORK, Doing.ON_CPU, Doing.LAUNCH)


def look(stack: Stack) -> Look:
    """What the frames of `stack` tell. Pure, and the same for equal stacks."""
    told = [known(frame) for frame in stack.frames]
    first = next((index for index, one in enumerate(told) if one.python), len(told))
    at = next((frame for frame, one in zip(stack.frames, told, strict=True) if one.python and not one.wrapper),
              stack.frames[first] if first < len(told) else stack.frames[0])
    called = [one.own for one in told if one.python]
    if known(at).library and not known(at).syncs and any(names.PREPARES.match(one) for one in called):
        # the framework's function says less than the engine's that prepares with it
        at = next((frame for frame, one in zip(stack.frames, told, strict=True)
                   if one.python and not one.wrapper and not one.library), at)
    doing, name, fallback = _doing(stack, stack.frames[:first], told, called, at)
    return Look(
        stack, doing, at, name,
        python=first < len(told),
        native=any(one.native for one in told),
        fallback=fallback,
        usual=doing is Doing.DEVICE and any(names.USUAL_WAIT.match(one) for one in called[:8]),
        model=any(one.model for one in told),
        framework=any(one.framework for one in told),
        start_up=any(names.START_UP.match(one) for one in called),
        compiles=any(one.compiles for one in told),
        device=fallback or any(one.device for one in told),
        cpu_build=any(one.cpu_build for one in told),
        engine=any(one.engine for one in told),
        client=any(one.client for one in told))


def place(frame: Frame) -> str:
    """The function and its file, without the line: what samples are added up by."""
    return f"{frame.function} ({frame.file})" if frame.file else frame.function


def _doing(stack: Stack, inner: Sequence[Frame], told: Sequence[Known], called: Sequence[str],
           at: Frame) -> tuple[Doing, str, bool]:
    """What the thread does, its name, and whether a fallback is proved. `inner` are the native frames below the
    innermost frame of Python."""
    if not any(names.PREPARES.match(one) for one in called):
        operator, fallback = _on_cpu(inner)
        if operator:
            return Doing.ON_CPU, operator, fallback
    python = [one for one in told if one.python]
    if _waits_for_work(python):
        return Doing.WAIT, place(at), False
    blocking = _blocking(inner)
    if blocking or (python and known(at).syncs):
        caller = next((frame for frame, one in zip(stack.frames, told, strict=True)
                       if one.python and not one.wrapper and not one.library), at)
        return Doing.DEVICE, f"{blocking or names.own_name(at.function)} in {caller}", False
    if python and names.TOKEN_WAIT.match(known(at).own) and not any(one.native for one in told):
        return Doing.DEVICE, str(at), False
    if (launch := next((frame for frame in inner if names.LAUNCH.match(frame.function)), None)) is not None:
        return Doing.LAUNCH, place(launch), False
    if stack.active is False or not python:
        return Doing.ASLEEP, place(at), False
    return Doing.WORK, place(at), False


def _on_cpu(inner: Sequence[Frame]) -> tuple[str, bool]:
    """The operator that runs on a CPU in these native frames, if one does, and whether it fell back from a device.
    A copy of its data inside the fallback is part of it; a CPU kernel that calls the device is none."""
    for index, frame in enumerate(inner):
        if names.FALLBACK.search(frame.function):
            operator = names.operator_of(inner[index:])
            return (operator or "an operator that the frames do not name", True)
    for index, frame in enumerate(inner):
        if names.DEVICE_LIBRARY.match(frame.file):
            break
        if names.CPU_KERNEL.search(frame.function) or (
                names.CPU_KERNEL_BY_LIBRARY.match(frame.function) and names.CPU_LIBRARY.match(frame.file)):
            operator = names.operator_of(inner[index:])
            return ("", False) if NOT_COMPUTE.search(operator) else (operator, False)
    return "", False


def _blocking(inner: Sequence[Frame]) -> str:
    """The call that holds the host: the operator where there is one, else the runtime's function."""
    for index, frame in enumerate(inner):
        if names.SYNC_NATIVE.search(frame.function):
            outer = inner[index:]
            method = next((part.function.rpartition("THPVariable_")[2] for part in reversed(outer)
                           if "THPVariable_" in part.function), "")
            return f"aten::{method}" if method else names.operator_of(outer) or frame.function
    return ""


def _waits_for_work(python: Sequence[Known]) -> bool:
    """Whether the innermost frames wait for somebody to hand over work: nothing but libraries and the looks of a
    waiting loop below the frame that waits."""
    for one in python:
        if one.syncs:
            return False
        if one.waits:
            return True
        if not (one.spins or one.wrapper or one.library):
            return False
    return False
