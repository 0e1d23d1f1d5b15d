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

_TRIED: dict[str, tuple[Value, ...]] = {
    "fraction": (0.03, 0.3, 0.6, 0.95), "ratio": (0.3, 0.8, 1.0, 1.5), "bool": (True, False),
}
_ASKED = re.compile(r'contains\(([\w.]+), "([^"]+)"')
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
    kind = min(CATALOGUE[best].evidence, key=EFFORT.__getitem__)
    beside = [name for name in gains
              if name != best and kind in CATALOGUE[name].evidence and CATALOGUE[name].group != "ab"]
    named = [text for found in _with_it(best, front, values) for text in found]
    names = [best] if CATALOGUE[best].group == "ab" else [best, *dict.fromkeys([*named, *beside])][:2]
    return f"{_how(names, kind, given)}{_tells(front)}"


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
    return f": `{line}`" if (line := given.command(kind)) else ""


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
    for name in {name for w in front for name in w.page.names if name not in values}:
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
            effort = min(EFFORT[kind] for kind in spec.evidence) * (1.3 if spec.group == "ab" else 1.0)
            gains[name] = gain * (1.5 if name in settling else 1.0) * (1.2 if spec.from_trace else 1.0) / effort
    return dict(sorted(gains.items(), key=lambda item: (-item[1], item[0])))


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
    return f"Measure {' and '.join(names)} ({EVIDENCE[kind]}{_by(kind, given)})"


def _tells(front: Sequence[Weighed]) -> str:
    if len(front) == 1:
        return f"; it tells whether it is {front[0].page.id}."
    return f"; it tells {' from '.join(w.page.id for w in front[:2])}."
