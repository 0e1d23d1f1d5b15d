"""When requests ran, and how many, from scrapes of `/metrics` with times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ..samples import Floats, Scrape
from .scrape_runs import Run, runs

Spans = tuple[tuple[float, float], ...]


def busy_spans(scrapes: Sequence[Scrape]) -> Spans | None:
    """Seconds since the epoch: between neighbouring scrapes of a server that both see requests run or wait, or, where
    nobody says how many, that see tokens generated. None where no two scrapes with times tell."""
    told = [spans for run in runs(scrapes)[0] if run.is_timed and (spans := _spans(run)) is not None]
    return _union(span for spans in told for span in spans) if told else None


def _spans(run: Run) -> Spans | None:
    gauge = run.gauge("running")
    engines = set().union(*gauge)
    waiting = [sum(cells.values()) for cells in run.gauge("waiting")]
    running = [total if (total := sum(cells.values()) + queued) or cells.keys() == engines else None
               for cells, queued in zip(gauge, waiting, strict=True)]
    spans, knows = [], False
    for (view, now), (later, then) in pairwise(zip(run.views, running, strict=True)):
        made = Run(run.engine, (view, later)).change("generated")
        if engines and now is not None and then is not None:
            ran = now > 0 and then > 0
        elif made is not None:
            ran = made.value > 0
        else:
            continue
        knows = True
        if ran and view.time is not None and later.time is not None:
            spans.append((view.time, later.time))
    return tuple(spans) if knows else None


def _union(spans: Iterable[tuple[float, float]]) -> Spans:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return tuple(joined)


def gauges(scrapes: Sequence[Scrape]) -> tuple[Floats, Mapping[str, Floats]]:
    """Seconds from the first scrape, and `running`, `waiting`, `kv_usage_fraction` at each (NaN unknown), of the server
    with most scrapes; empty where fewer than two have times."""
    timed = [run for run in runs(scrapes)[0] if run.is_timed and len(run.views) > 1]
    if not timed:
        return np.zeros(0), {}
    run = max(timed, key=lambda run: len(run.views))
    times = np.array([view.time for view in run.views], dtype=float)
    columns = {}
    for name, quantity, of in (("running", "running", sum), ("waiting", "waiting", sum),
                               ("kv_usage_fraction", "kv_usage", max)):
        read = [of(cells.values()) if cells else np.nan for cells in run.gauge(quantity)]
        columns[name] = np.array(read, dtype=float)
    return times - times[0], columns
