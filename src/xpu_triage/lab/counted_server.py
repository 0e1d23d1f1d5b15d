"""A server on paper: the lab's scheduler, with iterations that are counted and not run. It gives baselines.

What happens is real: closed-loop clients, admission, pieces of prompts beside decodes, blocks of the cache. How long an
iteration takes is arithmetic:

    device = max(bytes read ÷ (bandwidth × reached), operations ÷ (peak × reached))     floors of `roofline/floors.py`
    step   = max(device, launches × µs) + scheduling                                    one launch where a graph runs

so a baseline made here is at the configured share of its floor by construction, and is no measurement of a device.
Noise is drawn from a seeded generator, so that two runs give the same figures.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..baseline.records import BenchRecord, Environment, Floats, Requests, Stat, stat_of
from ..roofline import floors
from ..roofline.devices import Device
from ..roofline.model_shape import ModelShape
from .scheduler import BLOCK_TOKENS, Limits, Plan, Scheduler, blocks

SEATS, ITERATION_TOKENS = 64, 2048


@dataclass(frozen=True)
class Build:
    """What is configured; every figure is assumed, and so are those that the lab's H100-like device has (5 µs a launch,
    6 µs an operator)."""

    name: str
    decode_graphs: bool = True
    """A decode is one launch. Steps with pieces of prompts never are: their shapes differ."""
    kernels_per_layer: int = 14
    """Norms, projections, rotary embedding, cache, attention, additions, activation."""
    operator_us: float = 11.0
    """Host time to issue one kernel from Python: operator and launch."""
    schedule_ms: float = 0.2
    bandwidth_reached: float = 0.85
    arithmetic_reached: float = 0.6
    front_ms: float = 6.0
    """Before the engine: reading, tokenizing."""
    memory_gb: float = 80.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations on logarithms, and stalls."""

    step: float = 0.015
    front: float = 0.12
    run: float = 0.005
    """Of all of one load: placement, clocks."""
    stalls_per_step: float = 1 / 4000
    stall_ms: float = 30.0
    """Of the host: a garbage collection, another program."""


@dataclass(eq=False)
class _Asked:
    """One request; times in s."""

    prompt: int
    output: int
    client: int
    sent: float
    generated: int = 0
    computed: int = 0
    seat: int = -1
    preemptions: int = 0
    tokens: list[float] = field(default_factory=list)


class CountedServer:
    """One build of a server of one model on one device."""

    def __init__(self, shape: ModelShape, device: Device, build: Build, environment: Environment,
                 noise: Noise | None = None, *, seed: int) -> None:
        if not device.gbps or not device.tflops:
            raise ValueError(f"{device.name}: bandwidth and arithmetic peak are both needed")
        self.build, self._environment, self._noise, self._seed = build, environment, noise or Noise(), seed
        self._shape = shape
        self._gbps = device.gbps * build.bandwidth_reached
        self._tflops = device.tflops * build.arithmetic_reached
        self._weights = floors.weight_bytes(shape, 1)
        self._kv = floors.kv_bytes(shape, 1)
        self._launches = build.kernels_per_layer * shape.layers + 2

    def record(self, concurrency: int, prompt: int, output: int, requests: int) -> BenchRecord:
        """What clients measure that keep `concurrency` requests in flight. One more for each of them goes first and is
        not counted."""
        random_ = random.Random(f"{self._seed} {concurrency} {prompt} {output}")
        done = self._served(random_, concurrency, prompt, output, requests)
        counted = sorted(done, key=lambda asked: asked.sent)[concurrency:]
        return _record(counted, concurrency, self._environment)

    def _served(self, random_: random.Random, concurrency: int, prompt: int, output: int, requests: int
                ) -> list[_Asked]:
        build, noise = self.build, self._noise
        context = prompt + output
        pool = int((build.memory_gb * 0.9e9 - self._weights) / (self._kv * BLOCK_TOKENS))
        scheduler: Scheduler[_Asked] = Scheduler(
            Limits(SEATS, ITERATION_TOKENS, context, max(pool, blocks(context))))
        run = math.exp(random_.gauss(0, noise.run))
        order, total = itertools.count(), requests + concurrency
        arrivals: list[tuple[float, int, _Asked]] = []
        done: list[_Asked] = []
        sent = 0

        def send(client: int, when: float) -> None:
            nonlocal sent
            sent += 1
            front = build.front_ms / 1e3 * run * math.exp(random_.gauss(0, noise.front))
            heapq.heappush(arrivals, (when + front, next(order), _Asked(prompt, output, client, when)))

        for client in range(concurrency):
            send(client, 0.002 * client)
        now = 0.0
        while len(done) < total:
            while arrivals and arrivals[0][0] <= now:
                scheduler.add(heapq.heappop(arrivals)[2])
            plan = scheduler.plan(now)
            if not plan:
                now = arrivals[0][0]
                continue
            now += self.step_ms(plan) / 1e3 * run * math.exp(random_.gauss(0, noise.step))
            if random_.random() < noise.stalls_per_step:
                now += noise.stall_ms / 1e3
            for asked in scheduler.ran(plan):
                asked.generated += 1
                asked.tokens.append(now)
                if asked.generated == asked.output:
                    scheduler.remove(asked, now)
                    done.append(asked)
                    if sent < total:
                        send(asked.client, now + 0.001)
        return done

    def step_ms(self, plan: Plan[_Asked]) -> float:
        """Of one iteration, before noise."""
        decodes = len(plan.decodes)
        contexts = sum(one.computed for one in plan.decodes)
        work = 0.0
        if decodes:
            work += floors.decode_operations(self._shape, floors.Load(decodes, contexts / decodes)).total
        work += sum(floors.prefill_operations(self._shape, tokens, one.computed).total
                    for one, tokens in plan.prefills)
        device = max((self._weights + contexts * self._kv) / self._gbps / 1e6, work / self._tflops / 1e9)
        launches = 1 if self.build.decode_graphs and not plan.prefills else self._launches
        return max(device, launches * self.build.operator_us / 1e3) + self.build.schedule_ms


def _record(counted: Sequence[_Asked], concurrency: int, environment: Environment) -> BenchRecord:
    start = counted[0].sent
    ttft = _rounded([one.tokens[0] - one.sent for one in counted])
    e2e = _rounded([one.tokens[-1] - one.sent for one in counted])
    outputs = np.array([one.output for one in counted], dtype=float)
    tpot = np.round((e2e - ttft) / (outputs - 1), 3)
    gaps = 1e3 * np.concatenate([np.diff(one.tokens) for one in counted])
    requests = Requests(ttft, e2e, tpot, np.array([one.prompt for one in counted], dtype=float), outputs,
                        np.round([one.sent - start for one in counted], 3))
    seconds = max(one.tokens[-1] for one in counted) - start
    return BenchRecord(
        source="counted", tool="xpu-triage lab", environment=environment, concurrency=float(concurrency),
        request_rate=None, prompt_tokens=float(np.median(requests.prompt_tokens)),
        output_tokens=float(np.median(outputs)),
        latencies={name: _short(stat_of(values)) for name, values in (
            ("ttft", ttft), ("tpot", tpot), ("itl", gaps), ("e2e", e2e))},
        duration_s=round(seconds, 3), completed=len(counted), failed=0,
        output_tokens_per_s=round(float(outputs.sum()) / seconds, 2), requests_per_s=round(len(counted) / seconds, 4),
        requests=requests, notes=("counted on a virtual clock, not measured",))


def _rounded(seconds: Sequence[float]) -> Floats:
    """In ms, to 10 µs."""
    return np.round(np.array(seconds, dtype=float) * 1e3, 2)


def _short(stat: Stat) -> Stat:
    def short(part: float | None) -> float | None:
        return None if part is None else round(part, 3)

    return Stat(short(stat.mean), short(stat.p50), short(stat.p90), short(stat.p99), stat.n, short(stat.max))
