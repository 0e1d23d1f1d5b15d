"""A baseline folded into a diagnosis: the rate that the same load once had, and how much slower it is since.

The reference is the rate of the baseline's load that is the present one: requests in flight and lengths within
`loads.SAME`, for a throughput moves with each of them. Where no load is that near nothing is taken, and what to record
is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from ..signals import Signal
from ..telemetry.measured import Measured
from ..text import clean, counted
from ..units import figure, show
from . import signals as bench
from .against import Against, against
from .compare import UNTOLD, Comparison, State
from .dimension import dimension
from .doubted import paused
from .figures import TAILS
from .limit import PER_REQUEST, step_of
from .loads import SAME, alike, unlike, words
from .records import BenchRecord
from .slowdown import LEAST, MOST, TAIL
from .store import Baseline, Cell

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


def fold(kept: Baseline, signals: Mapping[str, Signal], records: Sequence[BenchRecord] = (), *, device: str = "",
         held: Against | None = None) -> Measured:
    """`serving.reference_tokens_per_s` of the load that `signals` and `records` describe; how much slower the loads of
    `records` are, at least and at most (`latency.baseline_*_ratio`); and notes: which latency is how many times that of
    the baseline, and which dimension got worse where `records` are of loads that it has.

    `device` is the product name that the evidence gives, empty for unknown. `held`: what `against` gave for the same,
    where that is known. What a person typed as the reference stays. A baseline of another model or device gives nothing
    but a note that says so.
    """
    out = _Out(kept.source)
    held = held if held is not None else against(kept, records, device=device)
    if held.other:
        out.notes.append(f"the baseline is not used: {held.other}")
        for name in (REFERENCE, LEAST, MOST, TAIL):
            _cannot(out, signals, f"the baseline is of something else: {held.other}", name)
        return out.measured()
    out.notes += held.notes
    load = _present(signals, records)
    if load.assumed:
        out.notes.append(load.assumed)
    comparison = held.comparison
    _slowdown(held, signals, out)
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
        _elsewhere(held, here, out)
        _reference(kept, [here], signals, out, _doubted(held))
    else:
        slower = _latencies(kept, cells, load, signals, out)
        _reference(kept, cells, signals, out, slower or _doubted(held))
    if comparison is not None:
        _dimension(comparison, out)
    return out.measured()


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
    of = max(same, key=lambda record: _figures_of(record, signals), default=None)
    return _Load(concurrency, rate, prompt, None if of is None else of.output_tokens, of, assumed)


def _figures_of(record: BenchRecord, signals: Mapping[str, Signal]) -> int:
    """How many of the signals are this record's: loads that differ by the length of their answers alone have others."""
    pairs = ((DECODE, record.output_tokens_per_s), ("latency.e2e_ms", record.stat("e2e").p50),
             ("latency.ttft_ms", record.stat("ttft").p50))
    return sum(value is not None and (now := _number(signals, name)) is not None
               and math.isclose(now, value, rel_tol=1e-5) for name, value in pairs)


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

    `slower` says what may be slower than in the baseline without being surely so, for which there is no signal: a rate
    that is as it was would then read as an all-clear, and is held back."""
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
        value = (1000 / each if each else None) if single else (
            None if _paced(record) or paused(record) else record.output_tokens_per_s)
        if value is not None and math.isfinite(value) and value > 0:
            found.append(value)
    return geometric_mean(found) if found else None


def _paced(record: BenchRecord) -> bool:
    """Whether the clients' rate is what was measured: it was set, and the server is not known to have fallen behind."""
    return record.request_rate is not None and (
        record.requests_per_s is None or record.requests_per_s >= SATURATED * record.request_rate)


def _slowdown(held: Against, signals: Mapping[str, Signal], out: _Out) -> None:
    """How much slower the loads of the comparison are, at least and at most, and their slowest requests at most."""
    if held.slowdown is None:
        for name in (LEAST, MOST, TAIL):
            _cannot(out, signals, held.why, name)
        return
    slow = held.slowdown
    for name, bound in ((LEAST, slow.least), (MOST, slow.most), (TAIL, slow.tail)):
        if bound.ratio is None or not math.isfinite(bound.ratio):
            _cannot(out, signals, bound.where, name)
        elif name not in signals:
            value = float(f"{bound.ratio:.6g}")
            out.signals.append(Signal(name, value, "bench", f"against the baseline: {bound.where}", out.source))


def _doubted(held: Against) -> str:
    """What may be slower than before by as much as is worth saying, where nothing rules it out and nothing is surely
    slower. Empty for nothing."""
    comparison = held.comparison
    if comparison is None or (held.slowdown is not None and held.slowdown.sure):
        return ""
    # An open tail is open nearly always: of the tails only what has no interval at all counts.
    found = [entry for entry in comparison.entries if entry.effect >= math.log(WORTH_SAYING)
             and entry.state not in (State.SAME, State.BETTER)
             and not (entry.metric in TAILS and entry.state is State.UNCLEAR)]
    if found:
        worst = max(found, key=lambda entry: (entry.metric not in TAILS, entry.effect))
        return f"{worst.metric} × {worst.ratio:,.3g} at {words(worst.cell)} ({_state(worst.state)})"
    if comparison.stalls:
        return comparison.stalls[0].text
    verdict = dimension(comparison)
    return f"the comparison says: {verdict.kind}" if verdict.regression else ""


def _state(state: State) -> str:
    return "no interval" if state is State.UNKNOWN else str(state)


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


def _entries(comparison: Comparison, here: Cell, out: _Out) -> None:
    """The present load as the comparison has it, which knows how sure each ratio is."""
    told = [f"{entry.metric} × {entry.ratio:.2f} ({_state(entry.state)})" for entry in comparison.entries
            if entry.cell == here]
    out.notes.append(f"at {words(here)}, now ÷ baseline: {', '.join(told)}")


def _elsewhere(held: Against, here: Cell, out: _Out) -> None:
    """That the figures are of a load that is as it was, where another is surely slower."""
    comparison, slow = held.comparison, held.slowdown
    if comparison is None or slow is None or not slow.sure or slow.least.cell in (here, None):
        return
    if not any(entry.cell == here for entry in comparison.with_state(State.WORSE)):
        out.notes.append(f"the figures are of {words(here)}, which is not surely slower than it was, and "
                         f"{slow.least.where} is: give the result of that load alone")


def _dimension(comparison: Comparison, out: _Out) -> None:
    """What the comparison says."""
    found = dimension(comparison)
    head = f"against the baseline ({counted(len(comparison.cells), 'load')} in common)"
    if found.regression and str(found.kind) not in found.text:
        head += f", {found.kind}"
    out.notes.append(f"{head}: {found.text}")
    if found.regression:
        out.notes += found.where[:MOST_NAMED]
    known = (note for note in comparison.notes if not note.endswith(UNTOLD))  # `against` says it, of all evidence
    out.notes += (*comparison.course, *known)


def _cannot(out: _Out, signals: Mapping[str, Signal], why: str, name: str = REFERENCE) -> None:
    if name not in signals:
        out.unknown.setdefault(name, clean(why))


def _number(signals: Mapping[str, Signal], name: str) -> float | None:
    signal = signals.get(name)
    if signal is None or isinstance(signal.value, bool | str) or not math.isfinite(signal.value):
        return None
    return float(signal.value)
