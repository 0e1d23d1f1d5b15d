"""What to measure next: the signal that would most likely settle between the hypotheses in front, and how to get it.

Every signal that is missing is tried with a few plausible values; the one after which a verdict most often stands out,
for the effort that it takes, is asked for, with the command that gets it where that is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .at_hand import AtHand
from .catalogue import CATALOGUE, EVIDENCE, SignalSpec
from .expressions import Value, Values
from .weighing import Weighed, stands_out, weigh

IN_FRONT = 3
"""How many hypotheses the measurement should tell apart."""

EFFORT: dict[str, float] = {
    "smi": 1.0, "metrics": 1.0, "log": 1.0, "os": 1.0, "config": 1.0, "spec": 1.0, "stacks": 1.3, "trace": 1.2,
    "timers": 1.8, "bench": 1.6, "micro": 2.2,
}
"""Relative effort in the middle of the night. Judgement: reading is cheap, a trace costs a minute, an experiment a
restart."""

_MORE: dict[str, float] = {
    "roofline.read_gb": 1.5, "roofline.bandwidth_fraction": 1.5, "roofline.compute_fraction": 1.5,
    "comm.compute_spread_ratio": 2.5, "comm.skew_ms": 2.5, "comm.min_us": 2.5, "comm.max_us": 2.5,
}
"""How much more effort than their evidence: no one trace gives them. A roofline takes the model's shape as well, what
differs between ranks takes the traces of all. Judgement."""

_AFTER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("roofline.", ("step.", "device.busy", "latency.", "roofline.")),
    ("comm.", ("device.comm", "device.busy", "comm.", "step.")),
    ("ab.", ("step.", "device.busy", "latency.", "ab.", "serving.decode", "serving.prefill", "serving.request")),
)
"""What is asked for only where one of the others is known, all by the beginnings of their names: a roofline is held
against a step, ranks are compared where exchanges may matter, a change is judged by a time or a rate."""

_BESIDE: tuple[tuple[str, str], ...] = (
    ("roofline.", "; give the model's config.json beside it, and the batch"),
    ("comm.", "; of all ranks over the same steps, compared by `xpu-triage fleet`"),
)
"""What is needed beside the evidence, for signals of `_MORE`, by the beginning of their names."""

_TRIED: dict[str, tuple[Value, ...]] = {
    "fraction": (0.03, 0.3, 0.6, 0.95), "ratio": (0.3, 0.8, 1.0, 1.5), "bool": (True, False),
}
_ASKED = re.compile(r'contains\(([\w.]+), "([^"]+)"')
_PROFILED = "xpu-triage watch --server http://HOST:PORT --profile --out incident"
"""A trace of a server that was started with a profiler, where its engine is not known."""
_NAMED = re.compile(r"\b[a-z]+\.[a-z0-9_]+\b")
_BRACKETS = re.compile(r" \([^()]*\)")
_FACTORS = (0.1, 1.0, 10.0)
_FIRST: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("latency.ttft_ms", "latency.prefill_ms", ("metrics",), "latency.queue_ms and latency.prefill_ms beside it"),
    ("latency.itl_ms", "latency.engine_itl_ms", ("metrics",), "latency.engine_itl_ms beside it"),
    ("", "device.utilization_fraction", ("smi",), "device.utilization_fraction with serving.running"),
    ("", "step.wall_ms", ("metrics", "log"), "step.wall_ms"),
    ("", "device.busy_fraction", ("trace",), "device.busy_fraction and what the idle waits for"),
)
"""Where nothing speaks for anything: what to ask for, where the first is known (or empty) and the second is not, the
evidence that gives it, and in which words."""


def next_measurement(found: Sequence[Weighed], values: Values, given: AtHand | None = None) -> str:
    """The measurement in words: which signals, from what evidence, what it tells apart."""
    given = given or AtHand()
    front = [w for w in found if w.refuted_by is None and w.score > 0][:IN_FRONT]
    if not front:
        return _first_of_the_steps(values, given)
    gains = _gains(front, found, values)
    if not gains:
        return front[0].page.confirm.measure
    best = next(iter(gains))
    kind = _cheapest(best)
    beside = [name for name in gains
              if name != best and kind in CATALOGUE[name].evidence and CATALOGUE[name].group != "ab"
              and (name in _MORE) == (best in _MORE)]
    named = [text for found in _with_it(best, front, values) for text in found]
    names = [best] if CATALOGUE[best].group == "ab" else [best, *dict.fromkeys([*named, *beside])][:2]
    return f"{_how(names, kind, given)}{_tells(front)}"


def settling(found: Sequence[Weighed], values: Values, given: AtHand | None = None) -> str:
    """What would settle the first hypothesis: its page's measurement, of which only what is not known yet is asked for,
    with the command where there is one; before it a cause that was seen inside this one. Where all of it is known and
    settles nothing, what tells it from the others."""
    page, given = found[0].page, given or AtHand()
    measure = page.confirm.measure
    asked = [name for name in _NAMED.findall(measure) if name in CATALOGUE]
    missing = [name for name in asked if name not in values]
    if asked and not missing:
        text = next_measurement(found, values, given)
    elif 2 * len(missing) < len(asked):
        text = f"{_how(missing, _cheapest(missing[0]), given)}{_tells(found[:1])}"
    else:
        looks = (_by(_cheapest(name), given) for name in missing if not _is_experiment(name) and name not in _MORE)
        text = _BRACKETS.sub(lambda match: _still_missing(match, values), measure) + next(filter(None, looks), "")
    first = page.confirm.first(values)
    return f"{first}. Then: {text[0].lower()}{text[1:]}" if first else text


def _still_missing(match: re.Match[str], values: Values) -> str:
    """` (step.wall_ms, sync.copy_ms)` without what is known; nothing where that is all. Other brackets stay."""
    known = [name for name in _NAMED.findall(match[0]) if name in values]
    if not known:
        return match[0]
    missing = [name for name in _NAMED.findall(match[0]) if name in CATALOGUE and name not in values]
    return f" ({', '.join(missing)})" if missing else ""


def _cheapest(name: str) -> str:
    return min(CATALOGUE[name].evidence, key=EFFORT.__getitem__)


def _is_experiment(name: str) -> bool:
    """Whether it takes a change of what runs, and not a look at it."""
    return CATALOGUE[name].group == "ab" or set(CATALOGUE[name].evidence) <= {"micro", "timers", "bench"}


def _first_of_the_steps(values: Values, given: AtHand) -> str:
    """The first of the three steps that the evidence leaves open: one that it began and cannot finish before one that
    nobody looked at. Then the next one, in a word."""
    asked = [(missing, kinds, words) for there, missing, kinds, words in _FIRST
             if missing not in values and (not there or there in values)]
    if not asked:
        return "Record a longer trace."
    asked.sort(key=lambda ask: not _is_begun(ask[0], ask[1], given))  # stable: cheapest first among equals
    (missing, kinds, words), *rest = asked
    kind = next((kind for kind in kinds if kind in given.kinds), kinds[0])
    idle = "Collect it while requests run: none did here. " if _without_requests(values) else ""
    why = f"; here: {given.unknown[missing]}" if _is_begun(missing, kinds, given) else ""
    then = f" Then {rest[0][2]}." if rest else ""
    return f"{idle}Measure {words} ({EVIDENCE[kind]}{why}){_by(kind, given)}.{then}"


def _by(kind: str, given: AtHand) -> str:
    line = given.command(kind) or (_PROFILED if kind == "trace" else "")
    return f": `{line}`" if line else ""


def _is_begun(missing: str, kinds: Sequence[str], given: AtHand) -> bool:
    """Whether evidence of that kind is there, and says why it falls short."""
    return missing in given.unknown and any(kind in given.kinds for kind in kinds)


def _without_requests(values: Values) -> bool:
    return values.get("serving.running") == 0 and values.get("serving.waiting", 0) == 0


def _gains(front: Sequence[Weighed], found: Sequence[Weighed], values: Values) -> dict[str, float]:
    """For each missing signal: how often a hypothesis in front would then stand out, the first counting double, and
    how far it moves them apart; by effort. Preferred are what a page names as settling it, and what any trace gives.
    Largest gain first."""
    rest = [w for w in found if w.page.id not in {f.page.id for f in front}]
    settling = {name for w in front[:2] for rule in w.page.confirm.any_of for name in rule.signal.names}
    gains: dict[str, float] = {}
    asked = {name for w in front for name in w.page.names if name not in values}
    for name in {name for name in asked if _is_its_turn(name, values)} or asked:
        spec = CATALOGUE[name]
        tried = _tried(spec)
        beside = _with_it(name, front, values)
        leads, settled = [], 0.0
        for value in tried:
            outcomes = [_outcome(front, rest, {**values, name: value, **texts}) for texts in beside]
            settled += max(credit for credit, _ in outcomes)
            leads += [lead for _, lead in outcomes]
        if max(leads) > min(leads):
            gain = settled / len(tried) + 0.05 * min(max(leads) - min(leads), 10.0)
            effort = min(EFFORT[kind] for kind in spec.evidence) * _MORE.get(name, 1.3 if spec.group == "ab" else 1.0)
            gains[name] = gain * (1.5 if name in settling else 1.0) * (1.2 if spec.from_trace else 1.0) / effort
    return dict(sorted(gains.items(), key=lambda item: (-item[1], item[0])))


def _is_its_turn(name: str, values: Values) -> bool:
    """Whether what `_AFTER` puts before it is known."""
    after = next((others for start, others in _AFTER if name.startswith(start)), None)
    return after is None or any(known.startswith(after) for known in values)


def _outcome(front: Sequence[Weighed], rest: Sequence[Weighed], assumed: Values) -> tuple[float, float]:
    """Credit for a verdict that would stand out, and the lead of the first hypothesis over the others in front."""
    weighed = [weigh(w.page, assumed) for w in front]
    order = sorted([*weighed, *rest], key=lambda w: (w.refuted_by is not None, -w.score))
    credit = 0.0
    if stands_out(order):
        credit = 2.0 if order[0] is weighed[0] else 1.0 if order[0] in weighed else 0.0
    return credit, weighed[0].score - max((w.score for w in weighed[1:]), default=0.0)


def _with_it(name: str, front: Sequence[Weighed], values: Values) -> list[dict[str, Value]]:
    """What may come to light with a signal in the same look: nothing, or a text that one of the rules asks for
    beside it (the busiest process has a name)."""
    found: list[dict[str, Value]] = [{}]
    for w in front:
        for rule in (*w.page.for_, *w.page.against):
            if name in rule.signal.names and rule.given is not None:
                for text, needle in _ASKED.findall(rule.given.text):
                    if text not in values and {text: needle} not in found and "unless" not in rule.given.text:
                        found.append({text: needle})
    return found[:5]


def _tried(spec: SignalSpec) -> tuple[Value, ...]:
    if spec.unit == "text":
        return (spec.example, "none")
    if spec.unit in _TRIED:
        return _TRIED[spec.unit]
    return tuple(float(spec.example) * factor for factor in _FACTORS)


def _how(names: Sequence[str], kind: str, given: AtHand) -> str:
    if CATALOGUE[names[0]].group == "ab":
        change = CATALOGUE[names[0]].meaning
        return f"Compare with one change, same load, both arms repeated: {change[0].lower()}{change[1:]} ({names[0]})"
    beside = next((words for start, words in _BESIDE for name in names if name in _MORE and name.startswith(start)), "")
    return f"Measure {' and '.join(names)} ({EVIDENCE[kind]}{_by(kind, given)}{beside})"


def _tells(front: Sequence[Weighed]) -> str:
    if len(front) == 1:
        return f"; it tells whether it is {front[0].page.id}."
    return f"; it tells {' from '.join(w.page.id for w in front[:2])}."
