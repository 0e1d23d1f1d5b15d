"""Run the lab's engine with a fault, record it, and leave evidence files as an incident would."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar

import torch

from ..errors import UnusableInput
from . import files
from .clock import RealClock, VirtualClock
from .cost_model import MODELS, DeviceModel
from .decoder import Workload, matmuls
from .device import install
from .engine import ENGINE, Stats
from .faults import FAULTS, Fault, repaired
from .frames import Frames
from .record import Recorder

COMPUTED_LOGITS = 1 << 20
"""Above so many logits a step, kernels are only timed and not computed: no host does a device's work in its
time."""

WARM_UP_STEPS = 1

DISTURBED = 0.05
"""From this share on, a run in real time is told to be disturbed. Judgement: idle of 3 % is where a fault counts."""

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run, as the engine saw it. Per-step figures are over the recorded steps."""

    fault: Fault
    work: Workload
    model: DeviceModel
    clock: str
    out: Path
    steps: int
    step_ms: float
    """Wall time of all steps ÷ their number."""
    first_step_ms: float
    busy_fraction: float
    """Time in kernels and copies ÷ wall time."""
    utilization_fraction: float
    """Mean of the samples that an SMI would show: time in kernels ÷ sampled time."""
    tokens_per_s: float
    launches_per_step: float
    syncs_per_step: float
    fallbacks_per_step: float
    late_fraction: float
    """Time by which waits ended later than the model has it ÷ wall time: the lab's worker was behind, or this
    machine did not wake the host's thread (real clock)."""
    held_up_fraction: float
    """Share of the time that this machine gave to other programs while the host's thread had work or was to
    wake (real clock)."""
    stats: Stats
    tokens: torch.Tensor
    """int64 [steps, batch]; zeros where kernels are only timed."""

    @property
    def disturbed(self) -> bool:
        """Whether this machine was too busy for the run's times to say much."""
        return max(self.late_fraction, self.held_up_fraction) >= DISTURBED


def run(
    fault: str = "none",
    *,
    batch: int = 256,
    vocab: int = 152_000,
    steps: int = 20,
    clock: Literal["virtual", "real"] = "virtual",
    out: str | Path,
    repair: bool = False,
    device: str = "",
    compute: bool | None = None,
) -> Run:
    """Decode `steps` tokens for `batch` requests and write `trace.json.gz`, `utilization.csv`, `steps.log`
    and `lab.txt`.

    `repair` runs the same workload on the healthy engine, to measure against. `device` is a key of `MODELS`;
    left empty it is the one that the fault is shown on. `compute` chooses whether kernels compute their
    values; left out they do up to a million logits a step. On the virtual clock the files are the same every
    time. Raises `UnusableInput` for an unknown name or an impossible size.
    """
    known = _known(fault, FAULTS)
    model = _known(device or known.device, MODELS)
    if repair:
        known = repaired(known)
    for name, value, least in (("batch", batch, 1), ("vocab", vocab, 2), ("steps", steps, 1)):
        if value < least:
            raise UnusableInput(f"{name} is {value}", todo=f"At least {least} is needed")
    if clock not in ("virtual", "real"):
        raise UnusableInput(f"no clock {clock!r}", todo="Take 'virtual' or 'real'")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(
            f"cannot be made: {error.strerror}", where=folder, todo="Name a folder"
        ) from error
    work = replace(known.work, batch=batch, vocab=vocab)
    install()
    recorder = Recorder()
    if clock == "real":
        model = model.slowed(known.slow_motion)
    ENGINE.configure(
        model,
        RealClock() if clock == "real" else VirtualClock(),
        recorder=recorder,
        compute=batch * vocab <= COMPUTED_LOGITS if compute is None else compute,
        matmul_bytes=int(work.weights_gb * 1e9 / matmuls(work)),
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as engines serve (vllm-project/vllm#49919)
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fallback's own warning; it is in the trace
            tokens = _decode(known, work, steps)
        result = _result(known, work, model, clock, folder, tokens)
        files.write(result, recorder)
        return result
    finally:
        torch.set_num_threads(threads)
        ENGINE.close()


def _known(name: str, known: Mapping[str, T]) -> T:
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    raise UnusableInput(
        f"the lab knows no {name!r}",
        todo=(f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"),
    )


def _decode(fault: Fault, work: Workload, steps: int) -> torch.Tensor:
    """Run the engine, recording `steps` steps; the tokens of these steps [steps, batch]."""
    loop = fault.loop(work)
    if fault.cold:
        ENGINE.loaded = set()
    else:
        for _ in range(WARM_UP_STEPS):
            loop.step()
    ENGINE.drain("warm-up")
    loop.tokens.clear()
    ENGINE.reset_stats()
    recorder, frames = ENGINE.recorder, Frames(ENGINE)
    collecting = gc.isenabled()
    gc.disable()  # a collection takes 0.1 s, and is not what runs here
    recorder.on = True
    held_up_before = ENGINE.clock.held_up_ns()
    frames.start()
    try:
        for _ in range(steps):
            with recorder.step(f"execute_context_0(0)_generation_{work.batch}({work.batch})", ENGINE.clock):
                loop.step()
    finally:
        frames.stop()
        ENGINE.stats.held_up_ns = ENGINE.clock.held_up_ns() - held_up_before
        recorder.on = False
        if collecting:
            gc.enable()
    return torch.stack(loop.tokens)


def _result(
    fault: Fault, work: Workload, model: DeviceModel, clock: str, out: Path, tokens: torch.Tensor
) -> Run:
    steps, stats = ENGINE.recorder.steps, ENGINE.stats
    wall = steps[-1].end - steps[0].start
    taken = files.samples(ENGINE.recorder)
    return Run(
        fault=fault,
        work=work,
        model=model,
        clock=clock,
        out=out,
        steps=len(steps),
        step_ms=wall / len(steps) / 1e6,
        first_step_ms=(steps[0].end - steps[0].start) / 1e6,
        busy_fraction=(stats.kernel_ns + stats.copy_ns) / wall,
        utilization_fraction=sum(taken) / len(taken) / 100,
        tokens_per_s=work.batch * len(steps) / (wall / 1e9),
        launches_per_step=stats.launches / len(steps),
        syncs_per_step=sum(stats.syncs.values()) / len(steps),
        fallbacks_per_step=sum(stats.fallbacks.values()) / len(steps),
        late_fraction=stats.late_ns / wall,
        held_up_fraction=stats.held_up_ns / wall,
        stats=stats,
        tokens=tokens,
    )
