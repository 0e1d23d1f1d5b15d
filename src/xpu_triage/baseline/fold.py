"""A baseline folded into a diagnosis: the rate that the same load once had, and what has become slower since.

The reference is the rate of the baseline's load that is the present one: requests in flight and lengths within
`loads.SAME`, for a throughput moves with each of them. Where no load is that near nothing is taken, and what to record
is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from ..errors import UnusableInput
from ..roofline import devices
from ..signals import Signal
from ..telemetry.measured import Measured
from ..text import clean
from ..units import figure, show
from . import signals as bench
from .compare import Comparison, State, compare
from .dimension import dimension
from .figures import TAILS
from .limit import PER_REQUEST, step_of
from .loads import SAME, alike, unlike, words
from .records import BenchRecord, Environment
from .store import Baseline, Cell, baseline

REFERENCE = "serving.reference_tokens_per_s"
DECODE, ONE_REQUEST = "serving.decode_tokens_per_s", "serving.request_decode_tokens_per_s"

LATENCIES = ("latency.ttft_ms", "latency.itl_ms", "latency.itl_p99_ms", "latency.e2e_ms")

AS_BEFORE = 0.9
"""Present rate ÷ reference from which on the reference would say that all is well."""

SATURATED = 0.9
"""Requests per second that a server gave ÷ those it was sent, below which its rate is its own and not its clients'."""

WORTH_SAYING = 1.1
"""A latency nearer to the baseline's is as it was: what no interval is given for, repeats move by a few per cent."""

MOST_NAMED, MOST_VALUES = 4, 6


@dataclass
class _Out:
    source: str
    signals: list[Signal] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def measured(self) -> Measured:
        return Measured(tuple(self.signals), self.unknown, tuple(dict.fromkeys(map(clean, self.notes))))


@dataclass(frozen=True)
class _Load:
    """What runs now; None for unknown."""

    concurrency: float | None
    request_rate: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    record: BenchRecord | None = None
    """The run that the signals are of."""
    assumed: str = ""
    """What of it is not known and was taken."""

    @property
    def cell(self) -> Cell:
        return Cell(self.concurrency, self.request_rate, self.prompt_tokens, self.output_tokens)


def fold(kept: Baseline, signals: Mapping[str, Signal], records: Sequence[BenchRecord] = (), *, device: str = ""
         ) -> Measured:
    """`serving.reference_tokens_per_s` of the load that `signals` and `records` describe, and notes: which latency is
    how many times that of the baseline, and which dimension got worse where `records` are of loads that it has.

    `device` is the product name that the evidence gives, empty for unknown. What a person typed as the reference stays.
    A baseline of another model or device gives nothing but a note that says so.
    """
    out = _Out(kept.source)
    if other := _another(kept.environment, records, device):
        out.notes.append(f"the baseline is not used: {other}")
        _cannot(out, signals, f"the baseline is of something else: {other}")
        return out.measured()
    out.notes += _cannot_tell(kept.environment, records, device)
    load = _present(signals, records)
    if load.assumed:
        out.notes.append(load.assumed)
    comparison = _compared(kept, records, out)
    cells = _matching(kept, load)
    other = next((why for cell in cells if load.record is not None
                  and (why := unlike(kept.cells[cell], [load.record]))), "")
    if not cells:
        why = _why_not(kept, load)
        _cannot(out, signals, why)
        if REFERENCE in signals:  # else it is said where the signal is unknown
            out.notes.append(f"no load of the baseline is the present one: {why}")
    elif other:
        _cannot(out, signals, f"the baseline's {words(cells[0])} is another load: {other}")
    elif comparison is not None and (here := next((cell for cell in cells if cell in comparison.cells), None)):
        _entries(comparison, here, out)
        if better := _elsewhere(comparison, here):
            _cannot(out, signals, better)
        else:
            _reference(kept, [here], signals, out, _slower(comparison))
    else:
        slower = _latencies(kept, cells, load, signals, out)
        _reference(kept, cells, signals, out, slower or ("" if comparison is None else _slower(comparison)))
    if comparison is not None:
        _dimension(comparison, out)
    return out.measured()


def _another(was: Environment, records: Sequence[BenchRecord], device: str) -> str:
    """Why the baseline is of something else; empty where it is not known to be."""
    for record in records:
        now = record.environment
        if was.model and now.model and not _one_model(was.model, now.model):
            return f"it is of model {was.model}, and {now.model} runs"
    for named in (device, *(record.environment.device for record in records)):
        if was.device and named and _one_device(was.device, named) is False:
            return f"it was recorded on {was.device}, and this is {named}"
    return ""


def _cannot_tell(was: Environment, records: Sequence[BenchRecord], device: str) -> list[str]:
    """What is taken as the same without being known to be."""
    models = [record.environment.model for record in records if record.environment.model]
    names = [name for name in (device, *(record.environment.device for record in records)) if name]
    missing = [part for part, known in (
        ("model", was.model and models),
        ("device", was.device and any(_one_device(was.device, name) for name in names))) if not known]
    return [f"whether the baseline is of the same {' and '.join(missing)} is not known: it is taken so, as it was "
            "given"] if missing else []


def _one_model(a: str, b: str) -> bool:
    """A model is served under its path or under its name alone; two paths are two models, as in `compare`."""
    a, b = a.casefold().rstrip("/"), b.casefold().rstrip("/")
    return a == b or (("/" in a) != ("/" in b) and a.rpartition("/")[2] == b.rpartition("/")[2])


def _one_device(a: str, b: str) -> bool | None:
    """By name, or by what both are in the table of peaks; None where it cannot be told."""
    if a.casefold().split() == b.casefold().split():
        return True
    one, other = devices.by_name(a), devices.by_name(b)
    return None if one is None or other is None else one == other


def _present(signals: Mapping[str, Signal], records: Sequence[BenchRecord]) -> _Load:
    """The load of the signals; its output length is that of the record that they are of."""
    concurrency, assumed = _number(signals, "serving.concurrency"), ""
    if concurrency is None and (running := _number(signals, "serving.running")) is not None:
        waiting = _number(signals, "serving.waiting")
        concurrency = running + (waiting or 0.0)
        assumed = "" if waiting is not None else (
            "how many requests wait is not known: those that run are taken as all that are in flight")
    rate, prompt = _number(signals, "serving.offered_requests_per_s"), _number(signals, "serving.prompt_tokens")
    same = [record for record in records if record.output_tokens is not None
            and alike(bench.in_flight(record), concurrency) and alike(record.prompt_tokens, prompt)]
    return _Load(concurrency, rate, prompt, same[0].output_tokens if same else None, same[0] if same else None, assumed)


def _matching(kept: Baseline, load: _Load) -> list[Cell]:
    """Loads of the baseline that the present one can be: equal in all that is known of it, and in requests in flight
    (or the rate that they are sent at) in any case."""
    return [cell for cell in kept.cells if _flows_alike(kept, cell, load)
            and _may_be(cell.prompt_tokens, load.prompt_tokens) and _may_be(cell.output_tokens, load.output_tokens)]


def _flows_alike(kept: Baseline, cell: Cell, load: _Load) -> bool:
    if cell.request_rate is not None and load.request_rate is not None:
        return alike(cell.request_rate, load.request_rate)
    flying = [value for record in kept.cells[cell] if (value := bench.in_flight(record)) is not None]
    return load.concurrency is not None and any(alike(value, load.concurrency) for value in flying)


def _may_be(was: float | None, now: float | None) -> bool:
    return now is None or was is None or alike(was, now)


def _why_not(kept: Baseline, load: _Load) -> str:
    if load.concurrency is None and load.request_rate is None:
        return ("how many requests are in flight now is not known (serving.concurrency, or serving.running and "
                "serving.waiting)")
    return f"{_named(load)} runs, and it has {_cells(kept)}; record that load when the service is right"


def _named(load: _Load) -> str:
    return words(load.cell._replace(concurrency=None if load.concurrency is None else round(load.concurrency, 1)))


def _cells(kept: Baseline) -> str:
    """The loads that there are: one by one where they are few, else the values of each part."""
    cells = list(kept.cells)
    if len(cells) <= MOST_NAMED:
        return "; ".join(map(words, cells))
    parts = []
    for name, part in (("concurrency", "concurrency"), ("requests/s", "request_rate"), ("prompt", "prompt_tokens"),
                       ("output", "output_tokens")):
        values = sorted({value for cell in cells if (value := getattr(cell, part)) is not None})
        shown = [f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for value in values[:MOST_VALUES]]
        if values:
            parts.append(f"{name} {', '.join(shown)}{', …' * (len(values) > MOST_VALUES)}")
    return f"{len(cells)} loads of {' × '.join(parts)}"


def _reference(kept: Baseline, cells: Sequence[Cell], signals: Mapping[str, Signal], out: _Out, slower: str) -> None:
    """The rate of all requests; that of one where the evidence has only such a rate, for the two are compared.

    `slower` says what is slower than in the baseline: a rate that is as it was would then read as an all-clear, and is
    held back."""
    single = DECODE not in signals and ONE_REQUEST in signals
    rates = {cell: rate for cell in cells if (rate := _rate(kept.cells[cell], single)) is not None}
    if not rates:
        if not single and any(record.request_rate is not None for cell in cells for record in kept.cells[cell]):
            _cannot(out, signals, f"at {words(cells[0])} the baseline's clients set the rate: it says nothing of the "
                    "server until that falls behind")
            return
        _cannot(out, signals, f"the baseline has no rate at {words(cells[0])}")
        return
    low, high = min(rates.values()), max(rates.values())
    if high / low > SAME:
        _cannot(out, signals, f"{len(rates)} loads of the baseline fit what is known of the present one, with "
                f"{figure(low)} to {figure(high)} tokens/s: the lengths of prompts and outputs now would tell which")
        return
    value = float(f"{geometric_mean(rates.values()):.6g}")
    typed = signals.get(REFERENCE)
    if typed is not None:
        if not isinstance(typed.value, bool | str) and not 1 / WORTH_SAYING <= typed.value / value <= WORTH_SAYING:
            out.notes.append(f"{REFERENCE} stays as given, {show(typed.value, typed.unit)}; the baseline has "
                             f"{figure(value)} tokens/s at {words(cells[0])}")
        return
    now = _number(signals, ONE_REQUEST if single else DECODE)
    if slower and now is not None and now >= AS_BEFORE * value:
        _cannot(out, signals, f"the rate is as it was, {figure(value)} tokens/s, and {slower}: it would hide that")
        return
    what = "one request, " if single else ""
    more = f" and {len(rates) - 1} more within {SAME - 1:.0%}" if len(rates) > 1 else ""
    out.signals.append(Signal(REFERENCE, value, "bench", f"baseline: {what}{words(next(iter(rates)))}{more}",
                              out.source))


def _rate(records: Sequence[BenchRecord], single: bool) -> float | None:
    found = []
    for record in records:
        each = record.stat("tpot").p50
        value = (1000 / each if each else None) if single else None if _paced(record) else record.output_tokens_per_s
        if value is not None and math.isfinite(value) and value > 0:
            found.append(value)
    return geometric_mean(found) if found else None


def _paced(record: BenchRecord) -> bool:
    """Whether the clients' rate is what was measured: it was set, and the server is not known to have fallen behind."""
    return record.request_rate is not None and (
        record.requests_per_s is None or record.requests_per_s >= SATURATED * record.request_rate)


def _slower(comparison: Comparison) -> str:
    """What is slower than before, or may be: surely, or by as much as is worth saying where nothing rules it out. Empty
    for nothing."""
    def doubted(state: State, effect: float) -> bool:
        return state is State.WORSE or (state not in (State.SAME, State.BETTER) and effect >= math.log(WORTH_SAYING))

    # An open tail is open nearly always: of the tails only what is sure counts, or what has no interval at all.
    found = [entry for entry in comparison.entries if doubted(entry.state, entry.effect)
             and not (entry.metric in TAILS and entry.state is State.UNCLEAR)]
    if found:
        worst = max(found, key=lambda entry: (entry.state is State.WORSE, entry.metric not in TAILS, entry.effect))
        return f"{worst.metric} × {worst.ratio:,.3g} at {words(worst.cell)} ({worst.state})"
    verdict = dimension(comparison)
    return f"the comparison says: {verdict.kind}" if verdict.regression else ""


def _latencies(kept: Baseline, cells: Sequence[Cell], load: _Load, signals: Mapping[str, Signal], out: _Out) -> str:
    """Present latencies as multiples of the baseline's. A request's duration only where the answers' lengths are known
    to be the same. Gives what is slower; empty for nothing."""
    told: list[str] = []
    slower: list[str] = []
    known: list[str] = []
    for name in LATENCIES:
        now = _number(signals, name)
        if now is None or (name == "latency.e2e_ms" and load.output_tokens is None):
            continue
        before = [value for cell in cells if (value := _before(kept, cell, name, load))]
        if not before or max(before) / min(before) > SAME:
            continue
        was = geometric_mean(before)
        known.append(name)
        if now > WORTH_SAYING * was:
            slower.append(f"{name} is {figure(now / was)} times what it was")
        if not 1 / WORTH_SAYING <= now / was <= WORTH_SAYING:
            told.append(f"{name} {figure(now)} ms is {figure(now / was)} times the baseline's {figure(was)} ms")
    where = words(cells[0])
    if told:
        out.notes.append(f"at {where}: {'; '.join(told)}")
        if alright := [name for name in known if not any(line.startswith(f"{name} ") for line in told)]:
            out.notes.append(f"at {where}: {', '.join(alright)} as in the baseline")
    elif known:
        out.notes.append(f"at {where}: {', '.join(known)} as in the baseline, within {WORTH_SAYING - 1:.0%}")
    if (told or known) and any(signals[name].how not in ("bench", "typed") for name in known):
        out.notes.append("the baseline is what clients saw, the present latencies are the engine's own: network and "
                         "front end are in one of them alone")
    return "; ".join(slower)


def _before(kept: Baseline, cell: Cell, name: str, load: _Load) -> float | None:
    """What the baseline's clients measured. A time per token is a mean over a request or the median gap, which pieces
    of other prompts keep apart: it is taken as the present run has it."""
    records = kept.cells[cell]
    now = None if load.record is None else step_of(load.record)
    if name == "latency.itl_ms" and now is not None and now[1] == PER_REQUEST:
        each = [value for record in records if (value := record.stat("tpot").p50)]
        return geometric_mean(each) if each else None
    return _number({signal.name: signal for signal in bench.measure(records).signals}, name)


def _compared(kept: Baseline, records: Sequence[BenchRecord], out: _Out) -> Comparison | None:
    usable = [record for record in records if record.completed != 0]
    if not usable:
        return None
    try:
        return compare(kept, baseline(usable, source=usable[0].source), anyway=True)  # what both are was looked at
    except UnusableInput as error:
        out.notes.append(f"not compared with the baseline: {error}")
        return None


def _entries(comparison: Comparison, here: Cell, out: _Out) -> None:
    """The present load as the comparison has it, which knows how sure each ratio is."""
    told = [f"{entry.metric} × {entry.ratio:.2f} ({entry.state})" for entry in comparison.entries if entry.cell == here]
    out.notes.append(f"at {words(here)}, now ÷ baseline: {', '.join(told)}")


def _elsewhere(comparison: Comparison, here: Cell) -> str:
    """Why the present load's rate would mislead: it is as it was, and others are slower. Empty where it would not."""
    found = dimension(comparison)
    worse = comparison.with_state(State.WORSE)
    if not found.regression or not worse or any(entry.cell == here for entry in worse):
        return ""
    worst = max(worse, key=lambda entry: entry.effect)
    return (f"the figures are of {words(here)}, which is not surely slower than it was, and {words(worst.cell)} is: "
            "give the result of that load alone")


def _dimension(comparison: Comparison, out: _Out) -> None:
    """What the comparison says."""
    found = dimension(comparison)
    count = len(comparison.cells)
    head = f"against the baseline ({count} load{'s' * (count != 1)} in common)"
    if found.regression and str(found.kind) not in found.text:
        head += f", {found.kind}"
    out.notes.append(f"{head}: {found.text}")
    if found.regression:
        out.notes += found.where[:MOST_NAMED]
    out.notes += (*comparison.course, *comparison.notes)


def _cannot(out: _Out, signals: Mapping[str, Signal], why: str) -> None:
    if REFERENCE not in signals:
        out.unknown.setdefault(REFERENCE, clean(why))


def _number(signals: Mapping[str, Signal], name: str) -> float | None:
    signal = signals.get(name)
    if signal is None or isinstance(signal.value, bool | str) or not math.isfinite(signal.value):
        return None
    return float(signal.value)
