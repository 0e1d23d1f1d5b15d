"""`baseline record`: a grid of loads against a server, one file a load, so that an interrupted recording goes on."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..errors import UnusableInput
from ..live.request import Address
from . import store
from .asking import Served, find_way, model_and_engine
from .records import BenchRecord, Environment, Requests, stat_of
from .stream import Answer, Limits, Load, http_client, run

MAX_CELLS, MAX_CONCURRENCY, MAX_TOKENS, MAX_REQUESTS, MAX_SECONDS = 200, 1024, 1_000_000, 20_000, 3600.0

ENOUGH = 200
"""Requests with which a slow-down of 10 % is found."""

WAVES = 16
"""Requests for each connection: those that run together share their luck, and count for less than their number. Of
1,000 slow-downs of 10 % at 32 in flight 951 are found with 200 requests, and all of 100 with 16 for each."""

_ASKED_WITH = "asked with "

LATE_MS = 5.0
"""99th percentile of the client's own lag above which the reader is told."""


class Asked(NamedTuple):
    """One load to record."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int

    @property
    def file_name(self) -> str:
        return f"c{self.concurrency:04d}-p{self.prompt_tokens:06d}-o{self.output_tokens:06d}.json"

    def __str__(self) -> str:
        return f"concurrency {self.concurrency:,}, prompt {self.prompt_tokens:,}, output {self.output_tokens:,}"


@dataclass(frozen=True)
class Plan:
    """What is asked of the server. Raises `UnusableInput` for what cannot be."""

    concurrency: Sequence[int] = (1, 8, 32)
    prompt_tokens: Sequence[int] = (128, 2048)
    output_tokens: Sequence[int] = (64,)
    requests: int | None = None
    """Counted in each load; None: `ENOUGH`, or `WAVES` for each connection where that is more."""
    seconds: float = 120.0
    """After which a load starts no more requests."""
    timeout_s: float = 120.0
    fields: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each request, as the service is used: temperature, top_p, …"""

    def __post_init__(self) -> None:
        for name, values, most in (("concurrency", self.concurrency, MAX_CONCURRENCY),
                                   ("prompt-tokens", self.prompt_tokens, MAX_TOKENS),
                                   ("output-tokens", self.output_tokens, MAX_TOKENS),
                                   ("requests", (1 if self.requests is None else self.requests,), MAX_REQUESTS),
                                   ("seconds", (self.seconds,), MAX_SECONDS),
                                   ("timeout", (self.timeout_s,), MAX_SECONDS)):
            if not values or not all(1 <= value <= most for value in values):
                raise UnusableInput(f"--{name} is {', '.join(map(str, values)) or 'empty'}",
                                    todo=f"It can be 1 to {most:g}")
        if len(self.cells) > MAX_CELLS:
            raise UnusableInput(f"{len(self.cells)} loads", todo=f"{MAX_CELLS} at most: leave out some")

    def counted(self, cell: Asked) -> int:
        """Requests to count in a load."""
        return max(ENOUGH, WAVES * cell.concurrency) if self.requests is None else self.requests

    @property
    def cells(self) -> tuple[Asked, ...]:
        return tuple(Asked(*cell) for cell in product(*(sorted(set(values)) for values in (
            self.concurrency, self.prompt_tokens, self.output_tokens))))


@dataclass(frozen=True)
class Event:
    """For whoever shows the progress."""

    cell: Asked
    number: int
    """From 1."""
    of: int
    done: int
    """Requests of it."""
    requests: int
    said: str = ""
    """How it ended; empty while it runs."""


_Loads = tuple[dict[Asked, tuple[BenchRecord, ...]], list[str]]
"""What was recorded, and what failed in words."""


@dataclass(frozen=True)
class Recorded:
    path: Path
    records: tuple[BenchRecord, ...]
    failed: tuple[str, ...]
    """Loads that came to nothing, and why."""


def record(server: Address, plan: Plan, out: Path, *, headers: Mapping[str, str] | None = None,
           model: str | None = None, device: str = "", engine_version: str = "",
           show: Callable[[Event], None] = lambda event: None) -> Recorded:
    """Record each load of the plan that `out` does not hold yet.

    `out` is a folder with a file for each load, or a file ending in .json: then the loads lie beside it in a folder
    until all are there. Nothing of a request is kept but its times and lengths; `headers` go to the server alone.
    Raises `UnusableInput` where the server cannot be asked, where `out` holds another server's loads, and where no
    load came to anything.
    """
    one_file = out.suffix == ".json"
    if one_file and out.exists():
        raise UnusableInput("is there already", where=out, todo="Name another file, or move it away")
    folder = out.with_name(f"{out.name}.loads") if one_file else out
    environment = model_and_engine(server, headers or {}, model)
    environment = replace(environment, device=device, engine_version=engine_version or environment.engine_version,
                          client="xpu-triage", client_version=__version__)
    _make(folder)
    there = {cell: found for cell in plan.cells if (found := _held(folder / cell.file_name, environment, plan))}
    fresh, failed = _to_the_end(_all(server, plan, environment, headers or {}, folder, there, show))
    records = [record for cell in plan.cells for record in (there.get(cell) or fresh.get(cell) or ())]
    if not records:
        raise UnusableInput(f"no load came to anything: {'; '.join(failed[:1])}", where=str(server))
    if one_file and not failed:
        store.save(out, records)
        _remove(folder, plan)
    return Recorded(out if one_file and not failed else folder, tuple(records), tuple(failed))


def _to_the_end(work: Coroutine[Any, Any, _Loads]) -> _Loads:
    """In a thread of its own where a loop runs in this one, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _all(server: Address, plan: Plan, environment: Environment, headers: Mapping[str, str], folder: Path,
               there: Mapping[Asked, Any], show: Callable[[Event], None],
               ) -> _Loads:
    fresh: dict[Asked, tuple[BenchRecord, ...]] = {}
    failed: list[str] = []
    of = len(plan.cells)
    async with http_client(max(plan.concurrency) + 1) as client:
        way = None
        for number, cell in enumerate(plan.cells, 1):
            if cell in there:
                show(Event(cell, number, of, 0, plan.counted(cell), "recorded before"))
                continue
            if way is None:
                show(Event(cell, number, of, 0, plan.counted(cell), f"asking how the server takes prompts, for "
                           f"{plan.timeout_s:g} s at most"))
                way = await find_way(client, str(server), environment.model, headers, plan.fields, plan.timeout_s)
            made = await _one(client, server, plan, Served(environment, way), headers, cell,
                              lambda done, cell=cell, number=number: show(  # type: ignore[misc]
                                  Event(cell, number, of, done, plan.counted(cell))))
            if isinstance(made, str):
                failed.append(f"{cell}: {made}")
                show(Event(cell, number, of, 0, plan.counted(cell), made))
                continue
            store.save(folder / cell.file_name, [made])
            fresh[cell] = (made,)
            show(Event(cell, number, of, made.completed or 0, plan.counted(cell), _summary(made)))
    return fresh, failed


async def _one(client: Any, server: Address, plan: Plan, served: Served, headers: Mapping[str, str], cell: Asked,
               tick: Callable[[int], None]) -> BenchRecord | str:
    """The record of one load, or why there is none."""
    rng = random.Random(os.urandom(16))  # prompts of an earlier recording may lie in the server's prefix cache
    asks = served.way.asks(served.environment.model, rng, cell.prompt_tokens, cell.output_tokens, plan.fields)
    load = await run(client, str(server), asks,
                     Limits(cell.concurrency, plan.counted(cell), plan.seconds, plan.timeout_s), headers, tick)
    if not any(answer.ok for answer in load.answers):
        reasons = Counter(answer.failed for answer in (*load.warm_up, *load.answers) if not answer.ok)
        if not reasons:
            return f"no request was done within {plan.seconds:g} s after the first of each connection"
        return f"every request fails, most with: {reasons.most_common(1)[0][0]}"
    return made(load, served, cell, plan)


def made(load: Load, served: Served, cell: Asked, plan: Plan) -> BenchRecord:
    """The record of one load; at least one of its answers is whole."""
    answers = [answer for answer in load.answers if answer.ok]
    counts = served.way.counts
    began = min(answer.started for answer in answers)
    tokens = np.array([_tokens(answer) for answer in answers], dtype=float)
    first = np.array([answer.arrivals[0] for answer in answers])
    last = np.array([answer.arrivals[-1] for answer in answers])
    started = np.array([answer.started for answer in answers])
    prompts = np.array([np.nan if answer.prompt_tokens is None else answer.prompt_tokens for answer in answers],
                       dtype=float)
    if not counts:
        prompts = np.full(len(answers), float(cell.prompt_tokens))
    gaps = tuple(np.diff(answer.arrivals) * 1e3 for answer in answers)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(tokens > 1, (last - first) * 1e3 / (tokens - 1), np.nan)
    requests = Requests((first - started) * 1e3, (last - started) * 1e3, tpot, prompts, tokens, started - began, gaps)
    duration_s = float(last.max() - began)
    lag = np.array(load.lag_s or (0.0,)) * 1e3
    known = prompts[~np.isnan(prompts)]
    return BenchRecord(
        source="", tool="xpu-triage", environment=served.environment, concurrency=float(cell.concurrency),
        request_rate=None, prompt_tokens=float(np.median(known)) if len(known) else float(cell.prompt_tokens),
        output_tokens=float(np.median(tokens)),
        latencies={"ttft": stat_of(requests.ttft_ms), "tpot": stat_of(tpot), "e2e": stat_of(requests.e2e_ms),
                   "itl": stat_of(np.concatenate(gaps))},
        duration_s=duration_s, completed=len(answers), failed=len(load.answers) - len(answers),
        output_tokens_per_s=float(tokens.sum()) / duration_s if duration_s else None,
        requests_per_s=len(answers) / duration_s if duration_s else None,
        prompt_tokens_per_s=float(known.sum()) / duration_s if duration_s and len(known) == len(answers) else None,
        requests=requests, definitions=tuple(_definitions(served, answers, tokens)),
        notes=tuple(_notes(load, cell, plan, tokens, lag)),
        extra={"client_lag_mean_ms": float(lag.mean()), "client_lag_p99_ms": float(np.percentile(lag, 99)),
               "warm_up_requests": float(len(load.warm_up))})


def _tokens(answer: Answer) -> int:
    return len(answer.arrivals) if answer.output_tokens is None else answer.output_tokens


def _definitions(served: Served, answers: Sequence[Answer], tokens: Any) -> list[str]:
    lines = ["e2e ends with the last text, not with the end of the stream"]
    if not served.way.counts:
        lines.append("the server counts no tokens: outputs are events with text, prompts as long as was asked")
    events = sum(len(answer.arrivals) for answer in answers)
    if tokens.sum() > 1.1 * events:
        lines.append(f"{tokens.sum() / events:.1f} tokens an event: the gaps are those of events")
    if answers[0].first_empty:
        lines.append("the first event is empty: the first with text is the first token")
    return lines


def _notes(load: Load, cell: Asked, plan: Plan, tokens: Any, lag: Any) -> list[str]:
    lines = []
    if plan.fields:
        lines.append(_asked_with(plan))
    if len(load.answers) < plan.counted(cell):
        lines.append(f"{len(load.answers)} of {plan.counted(cell)} requests within {plan.seconds:g} s")
    if len(load.answers) < 2 * cell.concurrency:
        lines.append(f"{len(load.answers)} requests are too few for {cell.concurrency} in flight")
    if float(np.median(tokens)) < 0.95 * cell.output_tokens:
        lines.append(f"answers end by themselves: {np.median(tokens):,.0f} of {cell.output_tokens:,} tokens")
    if (late := float(np.percentile(lag, 99))) > LATE_MS:
        lines.append(f"the client itself was late by {late:,.1f} ms (99th percentile), {lag.mean():,.1f} ms in the "
                     f"mean: look there before blaming the network")
    reasons = Counter(answer.failed for answer in load.answers if not answer.ok)
    lines += [f"{count} failed: {why}" for why, count in reasons.most_common(3)]
    return lines


def _summary(record: BenchRecord) -> str:
    said = [f"{record.completed} requests", *(f"{name} {p50:,.1f} ms" for name in ("ttft", "tpot")
                                              if (p50 := record.stat(name).p50) is not None)]
    if record.output_tokens_per_s is not None:
        said.append(f"{record.output_tokens_per_s:,.0f} tokens/s")
    return ", ".join((*said, *record.notes))


def _held(path: Path, environment: Environment, plan: Plan) -> tuple[BenchRecord, ...]:
    """What an earlier recording left. Raises `UnusableInput` where that was another server."""
    if not path.exists():
        return ()
    held = store.load(path)
    for part in store.SERVER_PARTS:
        was, now = getattr(held.environment, part), getattr(environment, part)
        if was and now and was != now:
            raise UnusableInput(f"holds a load of another server: {part} {was}, now {now}", where=path,
                                todo="Record to another place")
    if any(_asked_with(plan) != next((note for note in record.notes if note.startswith(_ASKED_WITH)), "")
           for record in held.records):
        raise UnusableInput("holds a load that was asked with other fields", where=path, todo="Record to another place")
    return held.records


def _asked_with(plan: Plan) -> str:
    return _ASKED_WITH + ", ".join(f"{name}={value}" for name, value in plan.fields.items()) if plan.fields else ""


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(f"cannot be used as a folder: {error.strerror}", where=folder,
                            todo="Name another") from None


def _remove(folder: Path, plan: Plan) -> None:
    """The files of single loads, once they lie in one; a folder that holds anything else stays."""
    for cell in plan.cells:
        (folder / cell.file_name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
