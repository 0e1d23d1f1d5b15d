"""What the `/metrics` of a serving engine say: load, rates, step time, latencies, cache. Pure functions.

One scrape gives gauges. Two give what happened between them: means are Δsum ÷ Δcount, quantiles come from the
difference of the buckets, rates need the times of the scrapes. What is counted since the server started is never passed
off as the run: it contains warm-up and every load there was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from ..samples import Scrape
from ..text import clean, counted, shorten
from ..units import figure
from .engines import GIVES, LMDEPLOY
from .measured import Measured
from .scrape_runs import Change, Run, runs
from .scrape_views import Who
from .serving_basis import (
    NO_TIMES,
    TAKE_TWO,
    Findings,
    Load,
    largest,
    load_of,
    miss_if_exported,
    rounded,
    total,
)
from .serving_checks import mixed
from .serving_latencies import latencies
from .serving_queue import may_prefill, queue
from .serving_steps import steps

OFF = "metrics are announced but hold no sample: they are off"


def measure(scrapes: Sequence[Scrape]) -> Measured:
    """Signals of the server that the scrapes are of, `how` = `metrics`; empty where none of them is of an engine.

    Where they are of several servers, or of one before and after a restart, those with the most scrapes count and
    `notes` says so.
    """
    found, notes = runs(scrapes)
    if not found:
        return Measured()
    run = found[0]
    if why := mixed(run):
        run = Run(run.engine, run.views[-1:])
    out = Findings(run)
    out.notes += notes
    if why:
        _apart(out, why)
    if any(view.samples for view in run.views):
        load = load_of(run)
        _gauges(out, load)
        _rates(out, load)
        steps(out, load)
        latencies(out)
        _cache(out)
        _remarks(out)
        queue(out, load)
    _off(out)
    return out.measured()


_BETWEEN = ("generated", "computed", "preempted", "hits", "iterations", "step", "ttft", "gap", "per_token", "e2e",
            "queue", "prefill", "prompt_length")
"""Quantities that only a difference of two scrapes gives."""


def _apart(out: Findings, why: str) -> None:
    """Of scrapes that cannot be of one server only the last is read, for its gauges."""
    out.notes.append(f"{why}. Only the last scrape is read")
    for quantity in _BETWEEN:
        for signal in GIVES[quantity]:
            out.miss(signal, why)


def _gauges(out: Findings, load: Load) -> None:
    run = out.run
    late = (f"0 at every scrape, but {load.generated.value:,.0f} tokens were generated between them: scrape while the "
            "load runs" if load.missed and load.generated else "")
    for quantity, signal in (("running", "serving.running"), ("waiting", "serving.waiting")):
        values = [value for cells in run.gauge(quantity) if (value := total(cells)) is not None and value >= 0]
        if load.missed and not any(values):
            out.miss(signal, late)
        elif quantity == "running" and may_prefill(run, load):
            out.miss(signal, f"0 at every scrape while requests wait, and {run.engine.name} does not count those whose "
                     "prompt is being computed: its log tells (Prefill batch), or how full the device is")
        elif values:
            out.give(signal, rounded(fmean(values)), _readings(values))
    usage = [largest(cells) for cells in run.gauge("kv_usage")]
    under_load = [value for value, running in zip(usage, load.running, strict=True) if running and value is not None]
    known = under_load or [value for value in usage if value is not None]
    if any(value > 1 or value < 0 for value in known):
        out.miss("kv.usage_fraction", f"the engine exports {figure(max(known))} for a share of 0 to 1")
    elif load.missed:
        out.miss("kv.usage_fraction", late.removeprefix("0 at every scrape, but "))
    elif known:
        out.give("kv.usage_fraction", rounded(fmean(known)), _readings(known))
    reasons = _reasons(run)
    if reasons:
        out.give("serving.waiting_reason", max(reasons, key=lambda reason: reasons[reason]))
    _limit(out)


def _limit(out: Findings) -> None:
    """Several limits hold at once, of each engine the smallest one; a limit of 0 is none."""
    view = out.run.views[-1]
    found: dict[Who, tuple[float, str]] = {}
    for source in out.run.engine.gauges.get("running_limit", ()):
        for who, limit in view.cells(source).items():
            if limit > 0:
                found[who] = min(found.get(who, (math.inf, "")), (limit, source.name))
    if found:
        names = ", ".join(sorted({name for _, name in found.values()}))
        out.give("serving.running_limit", sum(limit for limit, _ in found.values()), f"the smallest, {names}")


def _readings(values: Sequence[float]) -> str:
    return f"{figure(min(values))} to {figure(max(values))}" if len(values) > 1 and min(values) != max(values) else ""


def _reasons(run: Run) -> dict[str, float]:
    """Requests that wait, by the reason that the engine states, summed over the scrapes."""
    waiting: dict[str, float] = {}
    for source in run.engine.gauges.get("waiting_by_reason", ()):
        for view in run.views:
            for labels, value in view.samples.get(source.name, ()):
                if value > 0 and math.isfinite(value) and labels.get("reason"):
                    reason = shorten(clean(labels["reason"]), 60)
                    waiting[reason] = waiting.get(reason, 0.0) + value
    return waiting


def _rates(out: Findings, load: Load) -> None:
    run, decode, prefill = out.run, "serving.decode_tokens_per_s", "serving.prefill_tokens_per_s"
    if len(run.views) == 1:
        miss_if_exported(out, ("generated", "generated_per_s"), decode, TAKE_TWO)
        miss_if_exported(out, ("prompt", "computed"), prefill, TAKE_TWO)
        return
    idle = "; no request ran at the scrapes, so the load did not fill the interval" if load.missed else ""
    if load.generated is not None:
        _rate(out, decode, _once(run, load.generated, out), idle)
    else:
        _own_rate(out, load)
    computed = _computed(run)
    if computed is not None:
        _rate(out, prefill, computed, f"{idle}; what the load asked for, not what prefill can do")
    elif run.change("prompt") is not None:
        out.miss(prefill, f"this {run.engine.name} does not count the prompt tokens that came out of the cache")


def _rate(out: Findings, signal: str, change: Change, idle: str) -> None:
    if change.source.at_finish and change.value == 0:
        out.miss(signal, "tokens are counted when a request finishes, and none did between the scrapes")
    elif change.seconds is None:
        out.miss(signal, NO_TIMES)
    else:
        how = f"{change.value:,.0f} tokens" + (", counted when a request finishes" if change.source.at_finish else "")
        out.give(signal, rounded(change.value / change.seconds), how + idle, seconds=change.seconds)


def _own_rate(out: Findings, load: Load) -> None:
    """The engine's own throughput, where it does not export what it counts. It keeps its last value while idle."""
    rates = [total(cells) for cells in out.run.gauge("generated_per_s")]
    busy = [rate for rate, running in zip(rates, load.running, strict=True) if rate and running]
    if busy and len(busy) == len(rates):
        out.give("serving.decode_tokens_per_s", rounded(fmean(busy)), "mean of the engine's own gauge under load")
    elif any(rates):
        out.miss("serving.decode_tokens_per_s", "the engine's throughput gauge keeps its last value while idle: scrape "
                 "under load")


def _computed(run: Run) -> Change | None:
    """Prompt tokens that were computed: counted as such, or all without those that came out of the cache."""
    if (computed := run.change("computed")) is not None:
        return computed
    prompt, cached = run.change("prompt"), run.change("cached")
    if prompt is None or cached is None or prompt.seconds != cached.seconds or cached.value > prompt.value:
        return None
    return Change(prompt.value - cached.value, prompt.seconds, prompt.source)


def _once(run: Run, generated: Change, out: Findings) -> Change:
    """Generated tokens, each counted once. A version of LMDeploy adds each twice; first tokens and the gaps after them
    count it once more, and it has no speculation that makes two tokens a gap."""
    first, gaps = run.spread("ttft"), run.spread("gap")
    if run.engine is not LMDEPLOY or first is None or gaps is None:
        return generated
    once = first[0].count + gaps[0].count
    if once <= 0 or not 1.9 <= generated.value / once <= 2.1:
        return generated
    out.notes.append(f"LMDeploy counts {generated.value:,.0f} generated tokens, but {once:,.0f} first tokens and gaps: "
                     "it counts each twice, and the rate is of the latter")
    return Change(once, generated.seconds, generated.source)


def _cache(out: Findings) -> None:
    run, preempted, hit = out.run, "kv.preemptions_per_request", "kv.prefix_hit_fraction"
    if len(run.views) == 1:
        miss_if_exported(out, ("preempted",), preempted, TAKE_TWO)
        miss_if_exported(out, ("hits", "hit_rate"), hit, TAKE_TWO)
        return
    pauses, finished = run.change("preempted"), run.change("finished")
    if pauses is not None and finished is not None:
        words = counted(round(pauses.value), "preemption")
        if finished.value > 0:
            out.give(preempted, rounded(pauses.value / finished.value),
                     f"{words}, {counted(round(finished.value), 'request')} finished")
        else:
            out.miss(preempted, f"{words}, but no request finished between the scrapes")
    hits, asked = run.change("hits"), run.change("queries")
    if hits is not None and asked is not None:
        if 0 < asked.value >= hits.value:
            out.give(hit, rounded(hits.value / asked.value),
                     f"{hits.value:,.0f} of {counted(round(asked.value), 'prompt token')}")
        else:
            out.miss(hit, "no prompt was looked up between the scrapes")
        return
    rates = [value for cells in run.gauge("hit_rate") if (value := largest(cells)) is not None and 0 <= value <= 1]
    if rates:
        out.give(hit, rounded(fmean(rates)), "the engine's own gauge, of its last batches")


def _remarks(out: Findings) -> None:
    """What the engine counts that no signal stands for."""
    run = out.run
    idle, executing = run.change("idle_s"), run.change("executing_s")
    if idle is not None and idle.seconds and 0 <= idle.value <= 1.02 * idle.seconds:
        out.give("idle.no_work_fraction", rounded(min(idle.value / idle.seconds, 1.0)),
                 "share of the time in which the scheduler had nothing to run", seconds=idle.seconds)
    if executing is not None and executing.seconds:
        out.notes.append(f"the engine counts {executing.value / executing.seconds:.1%} of the time between the scrapes "
                         "in forward passes on the device: its own timer, no utilization and no trace")
    if len(run.views) == 1:
        view = run.views[0]
        for source in run.engine.counters.get("preempted", ()):
            if count := total(view.cells(source)):
                out.notes.append(f"{counted(round(count), 'preemption')} since the server started, which says nothing "
                                 "of when")
                break


def _off(out: Findings) -> None:
    """Families that are announced and empty in every scrape."""
    run = out.run
    tables = (run.engine.gauges, run.engine.counters, run.engine.histograms)
    for table in tables:
        for quantity, sources in table.items():
            for source in sources:
                names = {source.name, source.name + "_total", source.name.removesuffix("_count")}
                if all(names & view.announced for view in run.views):
                    for signal in GIVES.get(quantity, ()):
                        out.miss(signal, OFF if not any(view.samples for view in run.views) else
                                 f"{run.engine.name} announces {source.name} and holds no sample of it")
