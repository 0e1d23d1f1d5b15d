"""The lab server's engine: a thread that batches requests continuously and drives the lab's device in real time.

An iteration computes pieces of prompts, then one token for every running request: all seats of the batch are computed
in each decode, as an engine does whose graph was captured for one size. The matrix products take the time of the
model that the decoder stands for. Kernels are timed and not computed, so that the host's share is the engine's and not
the arithmetic's: tokens are all 0. Only one such engine can be in a process, because there is one device.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from ..errors import TriageError, UnusableInput
from ..sampling import Request
from ..text import clean
from .batch_steps import BatchSteps
from .clock import RealClock
from .cost_model import MODELS
from .decoder import matmuls
from .device import install
from .engine import ENGINE
from .exposition import Gauges, Lifetime, ServerMetrics
from .fallback import warned
from .faults import FAULTS
from .iteration_log import IterationLog
from .meter import Meter, MeteringRecorder
from .scheduler import BLOCK_TOKENS, Limits, Plan, Scheduler, blocks
from .serving_faults import ServingFault, serving_fault
from .step_profile import Busy, StepProfile
from .storage import Memory

_PATIENCE_S = 30.0  # for an answer of the engine's thread, which answers between two iterations
_DEVICE_IN_USE = threading.Lock()

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What is configured when the engine starts. Raises `UnusableInput` for what cannot be run."""

    fault: str = "none"
    """A name of `SERVING_FAULTS`. The device is the one that it is shown on, and stays when the fault is changed."""
    batch: int = 16
    """Most requests decoded together."""
    vocab: int = 152_000
    weights_gb: float | None = None
    """Weights that one forward pass reads; None: 8, or what the fault is shown with where that is less."""
    slow_motion: float | None = None
    """How much slower the device is than its model; None: as much as the fault needs to be seen beside this host."""
    context: int = 1024
    """Most tokens of one request."""
    iteration_tokens: int = 512
    """Most tokens of one iteration."""
    max_requests: int = 256
    """Requests that may run and wait; more are refused."""
    model_name: str = "lab"

    def __post_init__(self) -> None:
        serving_fault(self.fault)
        for name, value, least, most in (
            ("batch", self.batch, 1, 1024),
            ("vocab", self.vocab, 2, 1_000_000),
            ("context", self.context, 2, 65_536),
            ("iteration_tokens", self.iteration_tokens, self.batch + 1, 65_536),
            ("max_requests", self.max_requests, 1, 100_000),
        ):
            if not least <= value <= most:
                raise UnusableInput(f"{name} is {value}", todo=f"It can be {least} to {most}")
        for name, factor in (("weights_gb", self.weights_gb), ("slow_motion", self.slow_motion)):
            if factor is not None and not 0 < factor <= 10_000:
                raise UnusableInput(f"{name} is {factor}", todo="It can be above 0, and up to 10000")


@dataclass(eq=False)
class Generation:
    """One request in the engine. `out` gets each token, and last the reason of the end."""

    prompt: int
    max_tokens: int
    sampling: Request | None = None
    """None: as the engine draws by itself."""
    generated: int = 0
    computed: int = 0
    seat: int = -1
    preemptions: int = 0
    life: Lifetime = field(init=False)
    out: SimpleQueue[int | str] = field(init=False, default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.life = Lifetime(time.perf_counter(), prompt_tokens=self.prompt)


class Stopped(TriageError):
    """The engine has ended."""


class ServingEngine:
    """The engine and its thread. `close()` ends both."""

    def __init__(self, setup: Setup, log: IterationLog | None = None) -> None:
        self.setup, self._log = setup, log
        self._fault = serving_fault(setup.fault)
        shown = FAULTS[self._fault.step]
        self._work = replace(shown.work, batch=setup.batch, vocab=setup.vocab, graphs=True,
                             weights_gb=setup.weights_gb or min(shown.work.weights_gb, 8.0))
        self.device = MODELS[shown.device].slowed(setup.slow_motion or max(shown.slow_motion, 1.0))
        limits = Limits(setup.batch, setup.iteration_tokens, setup.context, setup.batch * blocks(setup.context))
        self._scheduler: Scheduler[Generation] = Scheduler(limits)
        self._scheduler.policy = self._fault.policy
        self._preemptions = 0
        self._steps: BatchSteps
        self._meter = Meter()
        self._profile = StepProfile(self._meter)
        self.metrics = ServerMetrics(setup.model_name, f"xpulab ({self.device.name})", limits.kv_blocks, BLOCK_TOKENS,
                                     self._gauges())
        self.iterations, self.iteration_s = 0, 0.0
        """Iterations so far, and the time that they took in all."""
        self._changed = threading.Condition()
        self._arrived: list[Generation] = []
        self._gone: list[Generation] = []
        self._asked: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._live: set[Generation] = set()
        self._closing = False
        if not _DEVICE_IN_USE.acquire(blocking=False):
            raise Busy("a lab server runs in this process already", todo="There is one device: stop the other first")
        self._holds_device = True
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="lab-engine", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self.close()
            raise

    # ---- for any thread

    @property
    def fault(self) -> ServingFault:
        return self._fault

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closing

    def submit(self, generation: Generation) -> None:
        """Raises `Busy` where too many are there, `Stopped` after the end."""
        with self._changed:
            if not self.alive:
                raise Stopped("the engine has stopped")
            if len(self._live) >= self.setup.max_requests:
                raise Busy(f"{len(self._live)} requests are running and waiting", todo="Try again later")
            self._live.add(generation)
            self._arrived.append(generation)
            self._changed.notify()

    def abort(self, generation: Generation) -> None:
        """Its reader has gone. Nothing happens to one that is done."""
        with self._changed:
            if generation in self._live:
                self._gone.append(generation)
                self._changed.notify()

    def set_fault(self, name: str) -> None:
        """Switch between two iterations. Raises `UnusableInput` for an unknown name."""
        fault = serving_fault(name)
        self._ask(lambda: self._switch(fault))

    def start_profile(self) -> None:
        """Record from the next iteration on. Raises `Busy` while that is so already."""
        self._ask(self._profile.start)

    def stop_profile(self) -> MeteringRecorder:
        """What was recorded. Raises `UnusableInput` where nothing is."""
        return self._ask(self._profile.stop)

    def device_counts(self) -> dict[str, int]:
        """Launches, waits for the device, and operators on the host's CPU, since the start."""
        stats = ENGINE.stats
        return {"launches": stats.launches, "syncs": sum(stats.syncs.values()),
                "fallbacks": sum(stats.fallbacks.values())}

    def close(self) -> None:
        """End the thread; requests that are not done end with `abort`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self._holds_device:
            self._holds_device = False
            _DEVICE_IN_USE.release()

    def _ask(self, what: Callable[[], T]) -> T:
        """Have the engine's thread do something between two iterations."""
        answer: Future[T] = Future()
        with self._changed:
            if not self.alive:
                raise Stopped("the engine has stopped")
            self._asked.append((what, answer))
            self._changed.notify()
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            raise Stopped(f"the engine has not answered in {_PATIENCE_S:g} s") from None

    def _gauges(self) -> Gauges:
        scheduler, weights_bytes = self._scheduler, self._work.weights_gb * 1e9
        return Gauges(
            running=lambda: len(scheduler.running),
            waiting=lambda: len(scheduler.waiting) + len(self._arrived),
            kv_usage_fraction=lambda: scheduler.kv_used / scheduler.kv_blocks,
            utilization_fraction=lambda: self._meter.fraction(ENGINE.clock.now()),
            memory_used_bytes=lambda: weights_bytes + Memory.held_bytes,
            memory_total_bytes=lambda: self.device.memory_gb * 1e9,
        )

    # ---- the engine's thread

    def _run(self, started: Future[None]) -> None:
        reason = "abort"
        try:
            with torch.inference_mode():
                self._start()
                started.set_result(None)
                while not self._closing:
                    self._turn()
        except Exception as error:  # the device failed: nobody is left waiting
            reason = "error"
            if started.done():
                print(clean(f"lab server: the engine failed: {type(error).__name__}: {error}"), file=sys.stderr)
            else:
                started.set_exception(error)
        finally:
            self._end(reason)

    def _start(self) -> None:
        torch.set_num_threads(1)  # as engines serve
        install()
        ENGINE.configure(self.device, RealClock(), recorder=MeteringRecorder(self._meter), compute=False,
                         matmul_bytes=int(self._work.weights_gb * 1e9 / matmuls(self._work)))
        warned.update(self.device.unsupported)  # the backends of the incidents said nothing
        self._steps = BatchSteps(self._work)
        self._steps.use(self._fault.step)
        self._steps.prefill(1, [None])
        ENGINE.drain("warm-up")
        ENGINE.reset_stats()

    def _end(self, reason: str) -> None:
        with self._changed:
            self._closing = True
            asked, live = self._asked, list(self._live)
            self._asked = []
            self._live.clear()
        self._profile.close()
        ENGINE.close()
        for _, answer in asked:
            answer.set_exception(Stopped("the engine has stopped"))
        now = time.perf_counter()
        for generation in live:
            self.metrics.finished(generation.life, reason, now)
            generation.out.put(reason)
        if self._log is not None:
            self._log.close()

    def _turn(self) -> None:
        with self._changed:
            asked, self._asked = self._asked, []
            gone, self._gone = self._gone, []
            for generation in self._arrived:
                self._scheduler.add(generation)
            self._arrived.clear()
        for what, answer in asked:
            _answer(what, answer)
        now = time.perf_counter()
        for generation in gone:
            if generation in self._live:
                self._finish(generation, "abort", now)
        plan = self._scheduler.plan(now)
        if plan:
            self._iterate(plan, now)
            return
        with self._changed:
            if not (self._arrived or self._gone or self._asked or self._closing):
                self._changed.wait(plan.retry_s)

    def _iterate(self, plan: Plan[Generation], started: float) -> None:
        for generation, _ in plan.prefills:
            generation.life.scheduled = generation.life.scheduled or started
        done = [g for g, tokens in plan.prefills if g.computed + tokens == g.prompt + g.generated]
        with self._profile.step(f"execute_context_{len(plan.prefills)}({plan.prefill_tokens})"
                                f"_generation_{len(plan.decodes)}({len(plan.decodes)})"):
            if plan.prefills:
                drawn = self._steps.prefill(plan.prefill_tokens, [g.sampling for g in done])
            if plan.decodes:
                tokens = self._steps.decode(plan.decodes)
            else:
                self._steps.wait()
        now = time.perf_counter()
        self.iterations += 1
        self.iteration_s += now - started
        preempted, self._preemptions = self._scheduler.preemptions - self._preemptions, self._scheduler.preemptions
        self.metrics.iterated(plan.prefill_tokens + len(plan.decodes), preempted)
        if self._log is not None:
            self._log.iteration(plan, now - started, self._scheduler.kv_used / self._scheduler.kv_blocks)
        self._scheduler.ran(plan)
        for place, generation in enumerate(done):
            self._hand_over(generation, int(drawn[place]), now)
        for generation in plan.decodes:
            self._hand_over(generation, tokens[generation.seat], now)

    def _hand_over(self, generation: Generation, token: int, now: float) -> None:
        life = generation.life
        generation.generated += 1
        life.generated_tokens = generation.generated
        if not life.first_token:
            life.first_token = now
            self.metrics.first_token(life)
        else:
            self.metrics.next_token(now - life.last_token)
        life.last_token = now
        if generation.generated < generation.max_tokens:
            generation.out.put(token)
            return
        generation.out.put(token)
        self._finish(generation, "length", now)

    def _finish(self, generation: Generation, reason: str, now: float) -> None:
        """Counted before its reader hears of it, so that whoever has all answers finds all of them counted."""
        self._scheduler.remove(generation, now)
        with self._changed:
            self._live.discard(generation)
        self.metrics.finished(generation.life, reason, now)
        generation.out.put(reason)

    def _switch(self, fault: ServingFault) -> None:
        self._steps.use(fault.step)
        self._scheduler.policy, self._fault = fault.policy, fault


def _answer(what: Callable[[], T], answer: Future[T]) -> None:
    try:
        answer.set_result(what())
    except Exception as error:
        answer.set_exception(error)
