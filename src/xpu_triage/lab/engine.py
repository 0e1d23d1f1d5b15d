"""The device's queue: what is submitted runs in order, later, while the host goes on; a sync waits for all of
it.

When an operation runs on the device's timeline follows from the cost model alone, at the moment it is
submitted. Its values are computed on CPU tensors: at once on the virtual clock, by a worker thread on the
real one (small ones at once too, while the worker has nothing to do). Where the worker is behind the timeline
a sync ends late; that lateness is recorded as the lab's own, not as the device's.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .clock import Clock, VirtualClock
from .cost_model import H100_LIKE, NS_PER_US, DeviceModel
from .record import Recorder
from .storage import NAME, Box, Ref

_C: Any = torch._C
_LATE_NS = 500_000  # a sync that returns so long after its modelled end was held up by this machine

Spec = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, int]
"""Shape, stride, dtype and bytes of a result."""


@dataclass(slots=True)
class Task:
    """One operation in the queue. `outs` are the boxes that its results go to (None: it writes into its
    arguments)."""

    name: str
    run: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    duration_ns: int
    outs: Sequence[Box] | None = None
    specs: Sequence[Spec] = ()
    copy_bytes: int | None = None
    """Bytes of a copy over the host link; None for a kernel."""
    timed_only: bool = False
    """The values are not computed: they read as zeros."""
    small: bool = False
    """Computing them takes no longer than handing the task to another thread."""
    result: list[Any] | None = None
    """Receives what `run` returns."""

    def execute(self) -> None:
        if self.timed_only:
            return
        value = self.run(*[_real(a) for a in self.args], **{k: _real(v) for k, v in self.kwargs.items()})
        if self.result is not None:
            self.result.append(value)
        elif self.outs is not None:
            for box, (shape, stride, dtype, _), x in zip(
                self.outs, self.specs, value if isinstance(value, (tuple, list)) else (value,), strict=False
            ):
                if x.stride() != stride or x.storage_offset() != 0:
                    x = torch.empty_strided(shape, stride, dtype=dtype).copy_(x)
                box.values = x


def _real(value: Any) -> Any:
    if type(value) is Ref:
        return value.real()
    if type(value) is list:
        return [_real(v) for v in value]
    return value


@dataclass
class Stats:
    """What happened since the last reset."""

    syncs: Counter[str] = field(default_factory=Counter)
    """Implicit and explicit waits, by the call that waited."""
    sync_wait_ns: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    fallback_ns: int = 0
    launches: int = 0
    kernels: int = 0
    kernel_ns: int = 0
    copy_ns: int = 0
    to_host_bytes: int = 0
    to_device_bytes: int = 0
    late_ns: int = 0
    """Time that syncs ended after their modelled end: distortion by the lab itself."""
    held_up_ns: int = 0
    """Of a recorded run: time that the machine gave to other programs (`Clock.held_up_ns`)."""


class AsyncError(RuntimeError):
    """An operation failed in the queue; raised by the sync that found out."""


class Engine:
    """One device with one stream. There is one in the process (`ENGINE`), because PyTorch has one
    PrivateUse1."""

    def __init__(self) -> None:
        self.on_sync: list[Callable[[str, int], None]] = []
        """Called after every wait with the waiting call and the ns that it took."""
        self.generator = torch.Generator().manual_seed(0)
        self._worker: _Worker | None = None
        self.configure()

    def configure(
        self,
        model: DeviceModel = H100_LIKE,
        clock: Clock | None = None,
        *,
        compute: bool = True,
        matmul_bytes: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        """Start afresh. `compute=False` only times kernels and computes no values (small copies are still
        made). `matmul_bytes`: each matrix product reads so many bytes of weights, in place of its own small
        matrix."""
        self.close()
        self.model, self.clock = model, clock or VirtualClock()
        self.compute, self.matmul_bytes = compute, matmul_bytes
        self.recorder = recorder or Recorder()
        self.costs: dict[Any, Any] = {}
        self.loaded: set[str] | None = None
        """Kernels whose module is loaded; None: loading costs nothing."""
        self.capture: list[Task] | None = None
        self.free_at = self.clock.now()
        """When the device will have done all that was submitted."""
        self.error: tuple[str, BaseException] | None = None
        self._correlation = itertools.count(1)
        self.generator.manual_seed(0)
        self.reset_stats()

    def reset_stats(self) -> None:
        self.stats = Stats()

    def close(self) -> None:
        """Stop the worker thread, after it has done what was submitted."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    # ---- the host's side of a launch

    def submit(self, task: Task) -> None:
        """Launch one operation."""
        if self.capture is not None:
            self.capture.append(task)
            return
        call = "xpulabMemcpyAsync" if task.copy_bytes is not None else "xpulabLaunchKernel"
        self._load(task)
        started = self.clock.now()
        self.clock.charge(self.model.launch_us * NS_PER_US)
        correlation = next(self._correlation)
        self.recorder.call(call, started, self.clock.now(), correlation)
        self.stats.launches += 1
        self._enqueue(task, correlation, self.model.turnaround_us)

    def replay(self, tasks: Sequence[Task]) -> None:
        """Launch a captured graph with one call. Its kernels share one correlation id, as profilers show
        them."""
        self._forbid_capture("xpulabGraphLaunch")
        started = self.clock.now()
        self.clock.charge(2 * self.model.launch_us * NS_PER_US)
        correlation = next(self._correlation)
        self.recorder.call("xpulabGraphLaunch", started, self.clock.now(), correlation)
        self.stats.launches += 1
        for task in tasks:
            self._enqueue(task, correlation, self.model.graph_turnaround_us)

    def _load(self, task: Task) -> None:
        if self.loaded is None or task.copy_bytes is not None or task.name in self.loaded:
            return
        self.loaded.add(task.name)
        started = self.clock.now()
        self.clock.wait_until(started + int(self.model.module_load_ms * 1e6))
        self.recorder.call("xpulabModuleLoadData", started, self.clock.now())

    def _enqueue(self, task: Task, correlation: int, turnaround_us: float) -> None:
        arrives = self.clock.now() + int(self.model.start_us * NS_PER_US)
        start = max(arrives, self.free_at + int(turnaround_us * NS_PER_US))
        self.free_at = start + task.duration_ns
        if task.copy_bytes is None:
            self.stats.kernels += 1
            self.stats.kernel_ns += task.duration_ns
        else:
            self.stats.copy_ns += task.duration_ns
        self.recorder.device(task.name, start, task.duration_ns, correlation, task.copy_bytes)
        if task.timed_only:
            return
        idle = self._worker is None or self._worker.idle
        if self.clock.name == "virtual" or (task.small and idle):
            self.run(task)
            return
        if self._worker is None:
            self._worker = _Worker(self)
        self._worker.put(task)

    def run(self, task: Task) -> None:
        """Compute the values. After a failure nothing more is computed until a sync has raised it."""
        if self.error is None:
            try:
                task.execute()
            except Exception as error:
                self.error = (task.name, error)

    # ---- waiting

    def drain(self, why: str, call: str = "xpulabStreamSynchronize") -> None:
        """Wait until the device has done everything. `why` names what waits: an operator, or the caller's own
        sync."""
        self.wait(self.free_at, why, call)

    def wait(self, until: int, why: str, call: str) -> None:
        """Wait until the device's timeline reaches `until` and the worker has caught up."""
        self._forbid_capture(call)
        started = self.clock.now()
        due = max(started, until) + int(self.model.sync_return_us * NS_PER_US)
        self.clock.wait_until(due)
        if self._worker is not None:
            self.clock.wait_for(self._worker.wait)
        ended = self.clock.now()
        shown = ended if ended - due < _LATE_NS else due
        self.recorder.call(call, started, shown)
        if ended > shown:
            self.recorder.overhead("xpulab: the lab's worker is late", shown, ended)
            self.stats.late_ns += ended - shown
        self.stats.syncs[why] += 1
        self.stats.sync_wait_ns += ended - started
        for hook in self.on_sync:
            hook(why, ended - started)
        if self.error is not None:
            (name, error), self.error = self.error, None
            raise AsyncError(f"{NAME}: {name} failed in the queue: {error}") from error

    def _forbid_capture(self, call: str) -> None:
        if self.capture is not None:
            raise RuntimeError(f"{NAME}: {call} is not permitted while a graph is captured")


class _Worker:
    """The thread that computes values on the real clock."""

    def __init__(self, engine: Engine) -> None:
        self._tasks: queue.SimpleQueue[Task | threading.Event | None] = queue.SimpleQueue()
        self._engine = engine
        self._given = self._done = 0
        self._thread = threading.Thread(target=self._work, name=f"{NAME}-stream0", daemon=True)
        self._thread.start()

    def put(self, task: Task) -> None:
        self._given += 1
        self._tasks.put(task)

    @property
    def idle(self) -> bool:
        return self._done == self._given

    def wait(self) -> None:
        if self.idle:
            return
        reached = threading.Event()
        self._tasks.put(reached)
        reached.wait()

    def stop(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        guard = _C._InferenceMode(True)  # below autograd for the thread's whole life
        while (item := self._tasks.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._engine.run(item)
                self._done += 1
        del guard


ENGINE = Engine()


def host_work(us: float) -> None:
    """The host is busy in Python for so long: a stand-in for code of which only the cost matters."""
    ENGINE.clock.work(us * NS_PER_US)
