"""What was measured beside what the hardware allows: decode steps over the batch, and the first token over the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..baseline.limit import Floor, MeasuredStep, floor_of, load_words, prefill_floor_ms
from ..baseline.loads import alike
from ..roofline.devices import Device
from ..roofline.floors import Load
from ..roofline.model_shape import ModelShape
from ..samples import Floats
from ..telemetry.ttft_fit import CannotFitError, Fit, fit_ttft
from ..text import clean, counted, shorten
from ..units import figure
from .canvas import LEGEND_IN, TOP_IN, Entry, Picture, empty, legend, number_ticks, picture, place, plain
from .palette import ALERT, FAINT, INK
from .sweep import ticks_between
from .telemetry import LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT_IN = 4.4
MOST_SERIES = 4
ASIDE = 1.035
"""Factor by which points of one batch stand beside each other."""
SHADE = "#f1dccb"
"""The quadratic part."""


@dataclass(frozen=True)
class Hardware:
    """Whose floor is drawn."""

    shape: ModelShape
    device: Device
    devices: int = 1


@dataclass(frozen=True)
class _Series:
    """Steps of one prompt and output length, smallest batch first."""

    colour: str
    steps: tuple[MeasuredStep, ...]
    before: tuple[MeasuredStep, ...]


def roofline(now: Sequence[MeasuredStep], hardware: Hardware, before: Sequence[MeasuredStep] = ()) -> Picture:
    """Decode steps over the batch, filled for `now` and hollow for `before`, and the floor of each context: solid where
    it is the memory's, dashed where the arithmetic's is longer. Of the lengths at most `MOST_SERIES` are drawn."""
    if not now:
        return empty("Decode steps against their floor", "No load has a step, a batch, a context and a floor.",
                     "Give the model's config.json and its device, and runs that say their lengths.")
    series = _series(now, before)
    farthest, nearest = min(now, key=lambda s: s.share), max(now, key=lambda s: s.share)

    def draw(sheet: Figure) -> None:
        axes = place(sheet, 0.85, 0.55, LEGEND_IN + 0.1, TOP_IN)
        every = [step for one in series for step in (*one.steps, *one.before)]
        batches = sorted({step.batch for step in every})
        lowest = min(batches) / 1.4, max(batches) * 1.4
        curves = [_curve(hardware, one.steps[0].context, *lowest) for one in series]
        for one, (x, floors) in zip(series, curves, strict=True):
            _floor_line(axes, x, floors, one.colour)
        for i, one in enumerate(series):
            _points(axes, one, ASIDE ** (i - (len(series) - 1) / 2))
        values = [step.ms for step in every] + [floor.ms for _, floors in curves for floor in floors]
        axes.set(xscale="log", yscale="log", xlim=lowest, ylim=(min(values) / 1.25, max(values) * 1.35),
                 xlabel="requests in flight, taken as the batch", ylabel="ms a decode step")
        _ticks(axes.xaxis, batches if len(batches) <= 9 else ticks_between(*lowest))
        _ticks(axes.yaxis, ticks_between(*axes.get_ylim()))
        axes.grid(axis="y", color="#e6e9ee", linewidth=0.7, zorder=0)
        plain(axes, sides=("bottom", "left"))
        legend(sheet, _legend(series, hardware), TOP_IN + 0.02)

    title = f"Decode at {_percent(farthest.share)} of what {farthest.floor.by} allows with {load_words(farthest)}"
    if nearest is not farthest:
        title += f", at {_percent(nearest.share)} with {load_words(nearest)}"
    whose = f"{hardware.device.name}, {shorten(clean(hardware.shape.name), 40)}"
    return picture(title, f"{whose}; farthest from its floor: {farthest.words}", HEIGHT_IN, draw)


def _series(now: Sequence[MeasuredStep], before: Sequence[MeasuredStep]) -> list[_Series]:
    """By lengths, the same colour for the same lengths in both; the longest output of each prompt where there are too
    many."""
    groups: list[list[MeasuredStep]] = []
    for step in sorted(now, key=lambda s: (s.context, s.batch)):
        same = next((g for g in groups if _same_lengths(g[0], step)), None)
        if same is None:
            groups.append([step])
        else:
            same.append(step)
    longest: list[list[MeasuredStep]] = []
    for group in groups:
        if longest and alike(longest[-1][0].cell.prompt_tokens, group[0].cell.prompt_tokens):
            longest[-1] = group
        else:
            longest.append(group)
    if len(longest) > MOST_SERIES:
        longest = [longest[round(i * (len(longest) - 1) / (MOST_SERIES - 1))] for i in range(MOST_SERIES)]
    return [_Series(LINES[1:][i], tuple(sorted(group, key=lambda s: s.batch)),
                    tuple(sorted((s for s in before if _same_lengths(group[0], s)), key=lambda s: s.batch)))
            for i, group in enumerate(longest)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _same_lengths(a: MeasuredStep, b: MeasuredStep) -> bool:
    return alike(a.cell.prompt_tokens, b.cell.prompt_tokens) and alike(a.cell.output_tokens, b.cell.output_tokens)


def _curve(hardware: Hardware, context: float, low: float, high: float) -> tuple[Floats, list[Floor]]:
    x = np.geomspace(max(low, 1.0), high, 60)
    return x, [floor_of(hardware.shape, hardware.device, Load(float(b), context, hardware.devices)) for b in x]


def _floor_line(axes: Axes, x: Floats, floors: Sequence[Floor], colour: str) -> None:
    """The memory's floor, and the arithmetic's where that is longer."""
    memory = np.array([floor.memory_ms for floor in floors])
    arithmetic = np.array([floor.arithmetic_ms or math.nan for floor in floors])
    axes.plot(x, memory, color=colour, linewidth=1.2, alpha=0.75, zorder=2)
    axes.plot(x, np.where(arithmetic > memory, arithmetic, np.nan), color=colour, linewidth=1.4,
              linestyle=(0, (4, 2)), zorder=2)


def _points(axes: Axes, one: _Series, aside: float) -> None:
    axes.plot([s.batch * aside for s in one.before], [s.ms for s in one.before], linestyle="none", marker="s",
              markersize=8.5, markerfacecolor="white", markeredgecolor=one.colour, markeredgewidth=1.4, zorder=3)
    axes.plot([s.batch * aside for s in one.steps], [s.ms for s in one.steps], color=one.colour, linewidth=0.8,
              linestyle=(0, (1, 2)), marker="o", markersize=5.5, zorder=4)


def _legend(series: Sequence[_Series], hardware: Hardware) -> list[Entry]:
    entries: list[Entry] = []
    for one in series:
        first, last = one.steps[0], one.steps[-1]
        text = f"of its limit: {load_words(first)}"
        if last is not first:
            text += f"; {_percent(last.share)} at a batch of {figure(last.batch)}"
        if one.before:
            ends = (one.before[0], one.before[-1])[:len(one.before)]
            text += f". Before {' and '.join(_percent(step.share) for step in ends)}"
        entries.append((one.colour, _percent(first.share), text))
    entries.append(("#ffffff", "", "filled: now" + (", hollow: before" if any(one.before for one in series) else "")
                    + "; lines: floors, solid by memory, dashed where the arithmetic takes longer"))
    if any(step.floor.arithmetic_ms is None for one in series for step in one.steps):
        entries.append(("#ffffff", "", "arithmetic peak for this model's type unknown: the memory's floor alone"))
    return entries


def ttft_fit(points: Mapping[str, tuple[Floats, Floats]], hardware: Hardware | None = None, caution: str = ""
             ) -> Picture:
    """Time to first token over prompt length for each recording (name to tokens and ms), with the fit a + b·L + c·L²
    and its quadratic part shaded. The last one leads; where it cannot be fitted the reason is the subtitle."""
    known = {clean(name): pair for name, pair in points.items() if len(pair[0])}
    if not known:
        return empty("Time to first token over prompt length", "No run says both prompt lengths and times.",
                     "Record several prompt lengths at concurrency 1: xpu-triage baseline record --concurrency 1.")
    fits: dict[str, Fit] = {}
    reasons: dict[str, str] = {}
    for name, (tokens, times) in known.items():
        try:
            fits[name] = fit_ttft(tokens, times)
        except CannotFitError as error:
            reasons[name] = str(error)
    lead = next(reversed(known))
    valid = {name: _valid(*pair) for name, pair in known.items()}
    if not any(len(tokens) for tokens, _ in valid.values()):
        return empty("Time to first token over prompt length", reasons[lead])

    def draw(sheet: Figure) -> None:
        axes = place(sheet, 0.85, 0.55, LEGEND_IN + 0.1, TOP_IN)
        colours = dict(zip(known, (*([INK] * (len(known) > 1)), ALERT), strict=False))
        if lead in fits:
            _shade(axes, fits[lead])
        for i, (name, (tokens, times)) in enumerate(valid.items()):
            colour = colours.get(name, LINES[i + 1])
            hollow = name != lead
            axes.plot(tokens, times, linestyle="none", marker="s" if hollow else "o", markersize=5 if hollow else 4,
                      markerfacecolor="white" if hollow else colour, markeredgecolor=colour, alpha=0.85, zorder=3)
            if name in fits:
                x = np.linspace(fits[name].shortest, fits[name].longest, 120)
                axes.plot(x, [fits[name].at(v) for v in x], color=colour, linewidth=1.4, zorder=4,
                          linestyle=(0, (4, 2)) if hollow else "solid")
        longest = max(float(tokens.max()) for tokens, _ in valid.values() if len(tokens))
        _prefill_floor(axes, hardware, longest)
        axes.set(xlim=(0, 1.04 * longest), xlabel="prompt, tokens", ylabel="ms to the first token")
        axes.set_ylim(bottom=0, top=1.3 * float(np.percentile(np.concatenate([t for _, t in valid.values()]), 99)))
        number_ticks(axes.xaxis)
        number_ticks(axes.yaxis)
        plain(axes, sides=("bottom", "left"))
        legend(sheet, _fit_legend(valid, fits, colours, lead, _has_floor(hardware)), TOP_IN + 0.02)

    if lead not in fits:
        return picture("Time to first token over prompt length: no fit", reasons[lead], HEIGHT_IN, draw)
    told = "; ".join(part for part in (_fit_words(fits[lead]), caution) if part)
    return picture(_fit_title(fits[lead]), told, HEIGHT_IN, draw)


def _valid(tokens: Floats, times: Floats) -> tuple[Floats, Floats]:
    known = np.isfinite(tokens) & np.isfinite(times) & (tokens > 0) & (times > 0)
    return tokens[known], times[known]


def _fit_title(fit: Fit) -> str:
    if not fit.has_quadratic:
        return (f"The first token takes {figure(fit.b * 1000)} ms more per 1,000 tokens; up to {fit.longest:,.0f} a "
                "square cannot be told from noise")
    low, high = fit.share_interval(fit.longest)
    return (f"At {fit.longest:,.0f} tokens the square of attention is {_percent(fit.quadratic_share(fit.longest))} of "
            f"the time to the first token ({_percent(max(low, 0))} to {_percent(min(high, 1))})")


def _fit_words(fit: Fit) -> str:
    return (f"{figure(fit.a)} ms + {figure(fit.b * 1000)} ms per 1,000 tokens + {figure(fit.c * 1e6)} ms per (1,000 "
            f"tokens)²; {fit.points:,} prompts of {fit.shortest:,.0f} to {fit.longest:,.0f}")


def _shade(axes: Axes, fit: Fit) -> None:
    """Between the fixed and linear part and the whole."""
    if not fit.has_quadratic:
        return
    x = np.linspace(0, fit.longest, 120)
    axes.fill_between(x, fit.a + fit.b * x, fit.a + fit.b * x + fit.c * x * x, color=SHADE, linewidth=0, zorder=1)


def _prefill_floor(axes: Axes, hardware: Hardware | None, longest: float) -> None:
    if hardware is None or not _has_floor(hardware):
        return
    x = np.linspace(1, longest, 60)
    y = [prefill_floor_ms(hardware.shape, hardware.device, float(v), hardware.devices) or math.nan for v in x]
    axes.plot(x, y, color=FAINT, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=2)


def _has_floor(hardware: Hardware | None) -> bool:
    return hardware is not None and prefill_floor_ms(hardware.shape, hardware.device, 1.0, hardware.devices) is not None


def _fit_legend(points: Mapping[str, tuple[Floats, Floats]], fits: Mapping[str, Fit], colours: Mapping[str, str],
                lead: str, floor: bool) -> list[Entry]:
    entries: list[Entry] = []
    for i, (name, (tokens, _)) in enumerate(points.items()):
        text = f"{shorten(name, 30)}: {counted(len(tokens), 'request')}"
        if name in fits:
            fit = fits[name]
            text += f"\n{figure(fit.a)} + {figure(fit.b * 1000)}·L + {figure(fit.c * 1e6)}·L² ms"
        entries.append((colours.get(name, LINES[i + 1]), "", text))
    if fits:
        drawn = f"; filled and solid: {shorten(lead, 24)}" if len(points) > 1 else ""
        entries.append(("#ffffff", "", f"L: 1,000 tokens of prompt{drawn}"))
    if lead in fits and fits[lead].has_quadratic:
        fit = fits[lead]
        entries.append((SHADE, "", f"the square: {figure(fit.quadratic_ms(fit.longest))} ms at {fit.longest:,.0f} "
                                   f"tokens, {figure(fit.quadratic_ms(fit.longest / 8))} ms at an eighth of it"))
    if floor:
        entries.append((FAINT, "", "dotted: the prompt's arithmetic at the device's peak"))
    return entries


def _ticks(direction: Any, ticks: Sequence[float]) -> None:
    """Ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    direction.set_major_locator(FixedLocator(list(ticks)))
    direction.set_minor_locator(NullLocator())
    number_ticks(direction)
