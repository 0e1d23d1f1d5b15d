"""Telemetry over time: what a vendor's tool read, how many requests ran and waited, how long iterations took, where
the host stood. These stand in for the pictures of a trace where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..samples import EngineLog, Floats, Samples, Series
from ..telemetry.exporters import device_samples
from ..telemetry.stacks import profile
from ..text import clean, counted
from .canvas import LEGEND_IN, TOP_IN, Entry, Picture, empty, legend, number_ticks, picture, place, plain, whole_ticks
from .palette import ALERT, HOST_TIME, INK, PHASE_COLOURS
from .words import milliseconds, percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..diagnosis import Diagnosis

HEIGHT_IN = 3.5
LINES = ("#20252d", "#0053fb", "#c03b02", "#00b562", "#dd3cc2", "#e88c02", "#58159b", "#69472c")
"""Colours of devices, the most used first; more than these are drawn faint."""
MOST_BARS = 12


def has_readings(diagnosis: Diagnosis) -> bool:
    """Whether any device's utilization was read."""
    return any(len(series.known) for samples in on_device(diagnosis) for series in samples.of("utilization"))


def on_device(diagnosis: Diagnosis) -> tuple[Samples, ...]:
    """What vendor tools and exporters read."""
    return (*diagnosis.telemetry.samples, *device_samples(diagnosis.telemetry.scrapes))


def readings(diagnosis: Diagnosis) -> Picture:
    """Utilization as the vendor's tool reads it, every reading of every device. One reading proves nothing; the spread
    is what one looks at."""
    found = [(samples, series) for samples in on_device(diagnosis) for series in samples.of("utilization")
             if len(series.known)]
    if not found:
        return empty("Utilization over time", "No device's utilization is known from this evidence.",
                     "Sample it under load: nvidia-smi dmon -c 30, npu-smi info watch, xpu-smi, rocm-smi; or watch.")
    found.sort(key=lambda pair: -float(pair[1].known.mean()))
    shown = found[:len(LINES)]
    has_times = all(not np.isnan(series.times).any() and len(series.values) > 1 for _, series in shown)
    start = min(float(series.times.min()) for _, series in shown) if has_times else 0.0

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.85, 0.52, LEGEND_IN, TOP_IN)
        for i, (_, series) in enumerate(found):
            x = series.times - start if has_times else np.arange(1, len(series.values) + 1)
            axes.plot(x, 100 * series.values, color=LINES[i] if i < len(LINES) else "#c9ced6", linewidth=1.3,
                      marker="o", markersize=3.5 if len(x) < 80 else 0, zorder=3 if i < len(LINES) else 2)
        axes.set(ylim=(-2, 103), ylabel="% utilization", xlabel="s" if has_times else "reading, in order")
        number_ticks(axes.xaxis) if has_times else whole_ticks(axes, max(len(series.values) for _, series in found))
        number_ticks(axes.yaxis)
        plain(axes, sides=("bottom", "left"))
        legend(figure, _devices(shown, len(found)), TOP_IN + 0.05)

    samples, series = found[0]
    values = series.known
    spread = f"{percent(float(values.min()))} to {percent(float(values.max()))}"
    return picture(
        f"Utilization of device {series.of}: mean {percent(float(values.mean()))} of {len(values):,} "
        f"reading{'s' if len(values) > 1 else ''}, {spread}",
        f"{samples.tool}; a kernel that spins counts as use, so this is not the busy share of a trace"
        + (f"; highest of {len(found)} devices" if len(found) > 1 else ""), HEIGHT_IN, draw)


def _devices(shown: Sequence[tuple[Samples, Series]], count: int) -> list[Entry]:
    entries = [(LINES[i], percent(float(series.known.mean())), f"device {clean(series.of)}")
               for i, (_, series) in enumerate(shown)]
    if count > len(shown):
        entries.append(("#c9ced6", "", f"{counted(count - len(shown), 'more device')}, less used"))
    return entries


def iterations(diagnosis: Diagnosis) -> Picture:
    """How long each iteration took, as the engine's log says, prefill and decode apart; what is higher than the axis is
    cut, marked and counted."""
    log = next((log for log in diagnosis.telemetry.logs if len(log.iterations.get("elapsed_ms", ()))), None)
    if log is None:
        return serving(diagnosis)
    elapsed = log.iterations["elapsed_ms"]
    prefill = np.nan_to_num(_column(log, "context_tokens")) > 0
    middle, of_which = _middle(log)
    longest = float(np.nanmax(elapsed))
    top = 1.3 * float(np.nanpercentile(elapsed, 99))
    cut = np.flatnonzero(elapsed > top)

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.85, 0.52, LEGEND_IN, TOP_IN)
        x = np.arange(1, len(elapsed) + 1)
        for rows, phase in ((~prefill, "decode"), (prefill, "prefill")):
            axes.vlines(x[rows], 0, np.minimum(elapsed[rows], top), colors=PHASE_COLOURS[phase],
                        linewidth=max(0.6, min(6.0, 500 / len(elapsed))), zorder=2)
        axes.axhline(middle, color=ALERT, linewidth=1.1, linestyle=(0, (5, 3)), zorder=4)
        axes.set(xlim=(0.3, len(elapsed) + 0.7), ylim=(0, top), ylabel="ms an iteration", xlabel="iteration, in order")
        if len(cut):
            axes.plot(x[cut], np.full(len(cut), 0.985 * top), linestyle="none", marker="^", markersize=5, color=INK,
                      zorder=5)
        whole_ticks(axes, len(elapsed))
        number_ticks(axes.yaxis)
        plain(axes, sides=("bottom", "left"))
        entries: list[Entry] = [(PHASE_COLOURS["decode"], f"{int((~prefill).sum()):,} ×", "decode"),
                                (PHASE_COLOURS["prefill"], f"{int(prefill.sum()):,} ×", "with prompt tokens"),
                                (ALERT, "median", f"of {of_which}:\n{milliseconds(1e6 * middle)}")]
        if len(cut):
            entries.append((INK, f"▲ {len(cut):,} ×", "cut: longer than the axis"))
        legend(figure, entries, TOP_IN + 0.05)

    higher = f"; {counted(len(cut), 'bar is', 'bars are')} cut at {milliseconds(1e6 * top)} (▲)" if len(cut) else ""
    return picture(
        f"{of_which}, median {milliseconds(1e6 * middle)}",
        f"the engine's log, {counted(len(elapsed), 'iteration')}; longest {milliseconds(1e6 * longest)}{higher}",
        HEIGHT_IN, draw)


def _middle(log: EngineLog) -> tuple[float, str]:
    """The median in ms and of which iterations it is: those that only decode, without those under a profiler, as
    `step.wall_ms` has it; where there are none, all."""
    elapsed = log.iterations["elapsed_ms"]
    decode = (_column(log, "context_requests") == 0) & (_column(log, "generation_requests") > 0) & (elapsed > 0)
    quiet = decode & ~(_column(log, "profiled") > 0)
    for rows in (quiet, decode):
        if rows.any():
            return float(np.median(elapsed[rows])), counted(int(rows.sum()), "decode iteration")
    return float(np.nanmedian(elapsed)), counted(len(elapsed), "iteration")


def serving(diagnosis: Diagnosis) -> Picture:
    """Requests that run and wait, from the engine's periodic lines or from scrapes, beside the KV cache in use."""
    times, columns = _over_time(diagnosis)
    if not len(times):
        return empty("Step time", "The evidence holds no trace, no iteration lines and no two scrapes with times.",
                     "Scrape /metrics twice under load, or give the engine's log; a trace of a few steps shows more.")
    running, waiting, usage = columns["running"], columns["waiting"], columns["kv_usage_fraction"]

    def draw(figure: Figure) -> None:
        axes = place(figure, 0.85, 0.52, LEGEND_IN + 0.35, TOP_IN)
        axes.step(times, running, where="post", color=INK, linewidth=1.4)
        axes.step(times, waiting, where="post", color=ALERT, linewidth=1.4)
        most = float(np.nanmax([1.0, *running, *waiting]))
        axes.set(ylim=(0, 1.08 * most), ylabel="requests", xlabel="s")
        number_ticks(axes.xaxis)
        number_ticks(axes.yaxis)
        plain(axes, sides=("bottom", "left"))
        entries: list[Entry] = [(INK, "", "running"), (ALERT, "", "waiting")]
        if not np.isnan(usage).all():
            _beside(axes, times, 100 * usage)
            entries.append((HOST_TIME, "", "KV cache in use, % (right)"))
        legend(figure, entries, TOP_IN + 0.05)

    def middle(values: Floats) -> str:
        return "unknown" if np.isnan(values).all() else f"{float(np.nanmean(values)):,.4g}"

    return picture(f"Running {middle(running)}, waiting {middle(waiting)} requests on average",
                   f"{counted(len(times), 'reading')} over {times[-1] - times[0]:,.0f} s", HEIGHT_IN, draw)


def _beside(axes: Axes, times: Floats, percents: Floats) -> None:
    right = axes.twinx()
    right.step(times, percents, where="post", color=HOST_TIME, linewidth=1.2, linestyle=(0, (3, 2)))
    right.set(ylim=(0, 105))
    number_ticks(right.yaxis)
    plain(right, sides=())


def _over_time(diagnosis: Diagnosis) -> tuple[Floats, Mapping[str, Floats]]:
    """Seconds from the first reading, and running, waiting, KV usage: from the log that has most of them, else from
    the scrapes."""
    logs = [log for log in diagnosis.telemetry.logs if len(log.stats.get("time", ()))]
    names = ("running", "waiting", "kv_usage_fraction")
    if logs:
        log = max(logs, key=lambda log: len(log.stats["time"]))
        times = log.stats["time"]
        order = np.argsort(times, kind="stable")
        if len(times) > 1 and not np.isnan(times).any():
            return times[order] - times[order][0], {name: _stat(log, name)[order] for name in names}
    from ..telemetry.load import gauges

    return gauges(diagnosis.telemetry.scrapes)


def _stat(log: EngineLog, name: str) -> Floats:
    return log.stats.get(name, np.full(len(log.stats["time"]), np.nan))


def _column(log: EngineLog, name: str) -> Floats:
    return log.iterations.get(name, np.full(len(log.iterations["elapsed_ms"]), np.nan))


def where_the_host_stands(diagnosis: Diagnosis) -> Picture:
    """The functions in which the thread that runs the model was seen, by share of its stack samples."""
    rows = profile(diagnosis.telemetry.stacks)[:MOST_BARS]
    if not rows:
        return empty("Where the host stands", "The evidence holds neither a trace nor stacks of the model's process.",
                     "py-spy dump --pid PID a few times, of the worker that runs the model; or a trace of a few steps.")

    def draw(figure: Figure) -> None:
        axes = place(figure, 4.2, 0.52, 0.9, TOP_IN)
        y = np.arange(len(rows))[::-1]
        axes.barh(y, [100 * row.share for row in rows], color=[ALERT, *[HOST_TIME] * (len(rows) - 1)], height=0.66)
        for place_y, row in zip(y, rows, strict=True):
            words = f"{row.samples} ({percent(row.share)})"
            axes.text(100 * row.share + 0.8, place_y, words, va="center", fontsize=8.5)
        axes.set(yticks=y, yticklabels=[short(f"{row.function} ({row.file})", 60) for row in rows], xlim=(0, 112),
                 xlabel="% of the stack samples of the thread that runs the model")
        number_ticks(axes.xaxis)
        axes.tick_params(axis="y", colors=INK)
        plain(axes)

    total = round(rows[0].samples / rows[0].share)
    few = "; a few dumps are a few observations" if total < 30 else ""
    return picture(f"The host stands in {rows[0].function}: {rows[0].samples} of {counted(total, 'sample')}",
                   f"a stack shows where Python is, not what the device does{few}", 1.35 + 0.27 * len(rows), draw)
