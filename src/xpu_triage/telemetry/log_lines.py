"""The periodic lines of one engine of one log, as columns, and a part of them that is of one load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..samples import EngineLog, Floats
from ..units import figure, show
from . import regimes
from .regimes import Part

SAME_BATCH = 0.1
"""Change of the batch between two lines up to which their throughput is that of one batch size. Judgement."""

WORTH_SAYING = 1.5
"""Two rates that differ by less are not called different. Judgement."""

COLUMNS = ("time", "engine", "running", "waiting", "swapped", "kv_usage_fraction", "prefill_tokens_per_s",
           "decode_tokens_per_s", "prefix_hit_fraction", "is_prefill", "graph", "new_tokens", "cached_tokens", "tokens",
           "accept_length")


@dataclass(frozen=True, eq=False)
class Lines:
    """The periodic lines of one engine of one log."""

    source: str
    engine: str
    rows: dict[str, Floats]
    several: bool
    speculates: bool = False
    """The log says that tokens are drafted."""
    within: str = ""
    """Which part of the log these lines are, behind a comma; empty for all of it."""

    @property
    def batches(self) -> bool:
        """One line a batch, prefill or decode, as SGLang writes them."""
        return bool((~np.isnan(self.rows["is_prefill"])).any())

    @property
    def name(self) -> str:
        return f" of engine {self.engine}" if self.several else ""


class Load(NamedTuple):
    """Which lines count: those under load, and those whose whole interval was under load."""

    now: NDArray[np.bool_]
    throughout: NDArray[np.bool_]


class Present(NamedTuple):
    """The lines that are of the load at the end of the log."""

    lines: Lines
    notes: tuple[str, ...] = ()
    reference: str = ""
    """Why the level before, where it was faster, is no reference; empty where there was none."""


class LastLevel(NamedTuple):
    """Which level of a log is taken, and what to say of it."""

    part: Part
    to_the_end: bool
    """Nothing after it is left out."""
    within: str
    """Which part of the log that is, behind a semicolon."""
    notes: tuple[str, ...]
    reference: str


def engines(log: EngineLog) -> list[Lines]:
    """The periodic lines of each engine in a log."""
    if not log.stats or not len(log.stats.get("running", ())):
        return []
    size = len(log.stats["running"])
    rows = {name: log.stats.get(name, np.full(size, np.nan)) for name in COLUMNS}
    engine = np.nan_to_num(rows["engine"], nan=0)
    names = np.unique(engine)
    drafts = any(fact.name == "serving.speculation" for fact in log.facts)
    return [Lines(log.source, f"{name:g}", {key: column[engine == name] for key, column in rows.items()},
                  len(names) > 1, drafts) for name in names.tolist()]


def load(of: Lines) -> Load:
    """Lines at which requests run or wait; for SGLang its decode lines."""
    running = of.rows["running"]
    before = np.concatenate(([np.nan], running[:-1]))
    if of.batches:
        decode = of.rows["is_prefill"] == 0
        after_decode = np.concatenate(([False], decode[:-1]))
        return Load(decode & (running > 0), decode & after_decode & (running > 0))
    return Load((running > 0) | (of.rows["waiting"] > 0), (running > 0) & (before > 0))


def present(of: Lines) -> Present:
    """The last level of a log whose figures fall apart in time, for a mean over several is of none; all of any
    other."""
    places = np.flatnonzero(load(of).now)
    time, running, rate = (of.rows[name][places] for name in ("time", "running", "decode_tokens_per_s"))
    last = last_level(regimes.parts(time, running, rate),
                      f"{'decode' if of.batches else 'periodic'} lines of the log{of.name}")
    if last is None:
        return Present(of)
    cut = slice(int(places[last.part.first]), None if last.to_the_end else int(places[last.part.last]) + 1)
    lines = replace(of, rows={name: column[cut] for name, column in of.rows.items()}, within=last.within)
    return Present(lines, last.notes, last.reference)


def last_level(found: Sequence[Part], lines: str) -> LastLevel | None:
    """Of several levels, oldest first, the last; None where there are not several. A load that ran out at the end is
    left out: the last requests are not the load. `lines`: what the levels are of, in words."""
    if len(found) < 2:
        return None
    left = ""
    if regimes.is_drain(found[-1], found[-2]):
        left = f", without the {_long(found[-1])} at the end in which the load ran out"
        found = found[:-1]
    last = found[-1]
    within = f"; {_long(last)} of the log{_since(last)}"
    if len(found) < 2:
        return LastLevel(last, False, within, (f"the {lines} are taken{left}",), "")
    before = found[-2]
    often = f", the last of {len(found) - 1} such changes" if len(found) > 2 else ""
    note = (f"the {lines} fall apart in time{often}: {_level(last)} in the last {_long(last)}{_since(last)}, "
            f"{_level(before)} in the {_long(before)} before{_times(last, before)}. Those of the last part are used"
            f"{left}")
    slower = last.tokens_per_s * WORTH_SAYING < before.tokens_per_s
    return LastLevel(last, not left, within, (note,), _no_reference(last, before) if slower else "")


def lasted(seconds: float) -> str:
    """A length of time as people say it.

    >>> lasted(50), lasted(600), lasted(86_400)
    ('50 s', '10 min', '24 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{figure(round(seconds / 60, 1))} min" if seconds < 7200 else f"{figure(round(seconds / 3600, 1))} h"


def _long(part: Part) -> str:
    return f"{part.lines:,} lines" if np.isnan(part.seconds) else lasted(part.seconds)


def _since(part: Part) -> str:
    return "" if np.isnan(part.since) else f" since {datetime.fromtimestamp(part.since, UTC):%m-%d %H:%M}"


def _level(part: Part) -> str:
    return f"{show(part.tokens_per_s, 'tokens_per_s')} at {figure(part.running)} running"


def _times(now: Part, before: Part) -> str:
    if now.tokens_per_s * WORTH_SAYING < before.tokens_per_s:
        return f": {figure(before.tokens_per_s / now.tokens_per_s)} times less" if now.tokens_per_s > 0 else ""
    if before.tokens_per_s * WORTH_SAYING < now.tokens_per_s:
        return f": {figure(now.tokens_per_s / before.tokens_per_s)} times more" if before.tokens_per_s > 0 else ""
    return ""


def _no_reference(now: Part, before: Part) -> str:
    alike = abs(before.running - now.running) <= SAME_BATCH * now.running
    at = "as many running, but" if alike else f"{figure(before.running)} running, not {figure(now.running)}, and"
    return (f"the {show(before.tokens_per_s, 'tokens_per_s')} of the log before were at {at} a log does not tell "
            "whether requests and lengths were the same")
