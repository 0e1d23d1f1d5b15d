"""What the notebook on baselines calls, one line each: two recordings, what got worse, the stages, and the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..baseline.commands import load
from ..baseline.compare import Comparison, State, compare
from ..baseline.dimension import Dimension, Kind, dimension
from ..baseline.figures import METRICS, TAILS
from ..baseline.limit import MeasuredStep, load_words, measured_steps
from ..baseline.loads import words
from ..baseline.records import BenchRecord
from ..baseline.store import Baseline, Cell
from ..errors import UnusableInput
from ..plots import baseline as maps
from ..plots import limit as limits
from ..plots.canvas import Picture, empty
from ..resources import shipped
from ..roofline import config_json, devices
from ..roofline.devices import Device
from ..roofline.model_shape import ModelShape
from ..telemetry.stages import interference, ttft_points
from ..telemetry.ttft_fit import CannotFitError, fit_ttft
from ..units import figure
from .shown import Shown, counted, label, lines, pairs, safe, said, stacked, table

SHIPPED = Path("baselines", "lost-graphs")
SHIPPED_DEVICE = "H100 SXM"

COLOURS = {Kind.NONE: "#2e7d32", Kind.UNKNOWN: "#0b6b83", Kind.OPEN: "#0b6b83",
           Kind.ONE_LOAD: "#0b6b83"}
REGRESSION = "#b3261e"


@dataclass(frozen=True, eq=False)
class Read:
    """What the parameters name."""

    now: Baseline
    before: Baseline | None = None
    comparison: Comparison | None = None
    verdict: Dimension | None = None
    shape: ModelShape | None = None
    device: Device | None = None
    why_no_limit: str = ""
    """Why there is no floor; empty where there is one."""
    devices: int = 1

    @property
    def names(self) -> tuple[tuple[str, Baseline], ...]:
        return (*((("before", self.before),) if self.before is not None else ()), ("now", self.now))

    @property
    def hardware(self) -> limits.Hardware | None:
        if self.shape is None or self.device is None or self.why_no_limit:
            return None
        return limits.Hardware(self.shape, self.device, self.devices)

    def steps(self, recording: Baseline | None) -> tuple[tuple[MeasuredStep, ...], tuple[str, ...]]:
        """The decode steps of a recording beside their floors, and why some are missing."""
        hardware = self.hardware
        if recording is None or hardware is None:
            return (), ()
        return measured_steps(recording.records, hardware.shape, hardware.device, hardware.devices)


def path_of(name: str) -> str:
    """The path of one file of the baselines that ship."""
    return str(shipped("playbook") / SHIPPED / name)


def read(old: str = "", new: str = "", *, config: str = "", device: str = "", gbps: float = 0.0, tflops: float = 0.0,
         tp: int = 1, anyway: bool = False) -> Read:
    """The recordings that `old` and `new` name (a baseline, a folder of recorded loads, a result file), compared; the
    pair that ships where neither is named. One alone is looked at by itself.

    `config` is the model's config.json, `device` its product name; or its bandwidth in 10⁹ bytes/s and arithmetic peak
    in 10¹² operations/s, 0 for unknown. `tp`: devices that tensors are split over. Raises `UnusableInput`, one line.
    """
    if not 1 <= tp <= 4096:
        raise UnusableInput(f"parameter 'tp' is {tp}", todo="It is a number of devices, 1 or more")
    if gbps < 0 or tflops < 0 or not (gbps < float("inf") and tflops < float("inf")):
        raise UnusableInput("parameters 'gbps' and 'tflops' are rates", todo="Leave out what is not known")
    if not old.strip() and not new.strip():
        old, new = path_of("before.json"), path_of("after.json")
        if not config:
            config, device = path_of("config.json"), device or ("" if gbps else SHIPPED_DEVICE)
    paths = [Path(name) for name in (old, new) if name.strip()]
    recordings = [load(path) for path in paths]
    shape = config_json.read(config) if config.strip() else None
    found, why = _device(device, gbps, tflops, recordings[-1])
    if shape is None:
        why = "the model's config.json is not given, so what a step must read is not known"
    read = Read(recordings[-1], recordings[0] if len(recordings) > 1 else None, shape=shape, device=found,
                why_no_limit=why, devices=tp)
    if read.before is None:
        return read
    comparison = compare(read.before, read.now, anyway=anyway)
    return Read(read.now, read.before, comparison, dimension(comparison), shape, found, why, tp)


def _device(name: str, gbps: float, tflops: float, recording: Baseline) -> tuple[Device | None, str]:
    """The device, and why its bandwidth is not known."""
    named = name.strip() or recording.environment.device
    if gbps:
        return Device(named or "device as given", gbps, tflops or None, "as given", "typed"), ""
    found, why = devices.from_names([named])
    if found is None:
        return None, why if named else "the device is not named, so its bandwidth is not known"
    if tflops:
        found = Device(found.name, found.gbps, tflops, found.source, "typed")
    return found, "" if found.gbps else f"the memory bandwidth of {found.name} is not known"


# ---- the verdict


def verdict(read: Read) -> Shown:
    """The card: which dimension got worse, how much, and how near to the limit the service is."""
    facts = [*_worst(read), *_limit_facts(read)]
    if read.verdict is None:
        head, text, colour = "ONE RECORDING", "Nothing to compare with: give one from before as well.", "#0b6b83"
        following = "Keep this one: it is the baseline of the next incident."
    else:
        head, text = str(read.verdict.kind).upper(), read.verdict.text
        colour = COLOURS.get(read.verdict.kind, REGRESSION)
        following = _following(read.verdict)
    source = " against ".join(label(one.source) for _, one in reversed(read.names))
    plain = [head, text, *(f"{what}: {value}" for value, what in facts), f"Next: {following}" if following else "",
             f"from {source}"]
    return Shown(_card(colour, head, text, facts, following, source), "\n".join(line for line in plain if line))


def _worst(read: Read) -> list[tuple[str, str]]:
    """The largest sure change of each metric, and how many loads have one; of a tail where the typical request does not
    say it already."""
    facts: list[tuple[str, str]] = []
    told: set[str] = set()
    for metric in (*METRICS, *TAILS) if read.comparison is not None else ():
        assert read.comparison is not None
        if TAILS.get(metric) in told:
            continue
        entries = [entry for entry in read.comparison.entries if entry.metric == metric]
        sure = [entry for entry in entries if entry.state is State.WORSE]
        if sure:
            told.add(metric)
            most = max(sure, key=lambda entry: entry.effect)
            facts.append((f"× {most.ratio:.2f}", f"{maps.name_of(metric).lower()}, at worst ({words(most.cell)}); "
                                                 f"surely worse in {len(sure)} of {counted(len(entries), 'load')}"))
    return facts


def _limit_facts(read: Read) -> list[tuple[str, str]]:
    """The load whose tokens got slower most, else the one farthest from its floor: its share now, and before."""
    steps, _ = read.steps(read.now)
    if not steps:
        return []
    worse = [] if read.comparison is None else [
        entry for entry in read.comparison.with_state(State.WORSE) if entry.metric == "itl"]
    worst = max(worse, key=lambda entry: entry.effect).cell if worse else None
    now = next((step for step in steps if step.cell == worst), min(steps, key=lambda step: step.share))
    was = next((step for step in read.steps(read.before)[0] if step.cell == now.cell), None)
    before = "" if was is None else f", {_percent(was.share)} before"
    return [(_percent(now.share), f"of what {now.floor.by} allows with {load_words(now)}{before}")]


def _following(found: Dimension) -> str:
    if found.record_next:
        return f"record in both: {'; '.join(map(words, found.record_next))}"
    if not found.regression:
        return ""
    return ("a trace of a few steps at the load that is worst, and 00 triage on it: this says where it is slow, not "
            "why")


def _card(colour: str, head: str, text: str, facts: Sequence[tuple[str, str]], following: str, source: str) -> str:
    cells = "".join(
        f'<div style="margin:8px 30px 0 0;max-width:260px"><div style="font-size:20px;font-weight:600">{safe(value)}'
        f'</div><div style="font-size:12px;color:#6b7380">{safe(what)}</div></div>' for value, what in facts)
    after = f'<div style="margin-top:10px;font-size:14px"><b>Next:</b> {safe(following)}</div>' if following else ""
    return (
        f'<div style="border:1px solid #d5d9e0;border-left:8px solid {colour};border-radius:6px;padding:12px 18px;'
        f'background:#ffffff;color:#1b1f24;max-width:1100px"><div><span style="background:{colour};color:#ffffff;'
        f'border-radius:4px;padding:2px 10px;font-weight:700;font-size:13px">{safe(head)}</span></div>'
        f'<div style="font-size:17px;font-weight:600;margin:8px 0 2px 0">{safe(text)}</div>'
        f'<div style="display:flex;flex-wrap:wrap">{cells}</div>{after}'
        f'<div style="margin-top:8px;font-size:12px;color:#6b7380">from {safe(source)}</div></div>')


def reasons(read: Read) -> Shown:
    """What the verdict rests on, what differs besides the figures, and what limits the comparison."""
    if read.verdict is None or read.comparison is None:
        return said("One recording: there is no comparison to explain.")
    found, comparison = read.verdict, read.comparison
    failed = [f"{words(one.cell)}: {one.new} of {one.of_new} requests failed, before {one.old} of {one.of_old}"
              + (", more than chance" if one.more else "") for one in comparison.failures]
    only = [(name, cells) for name, cells in (("before", comparison.only_old), ("now", comparison.only_new)) if cells]
    notes = [*failed, *(f"recorded {name} alone: {'; '.join(map(words, cells))}" for name, cells in only),
             *comparison.notes]
    return stacked(lines("It rests on", found.where, empty="It rests on every ratio of the matrix."),
                   lines("What to know about it", notes, empty="Nothing else differs between the two recordings."))


# ---- pictures


def heat_map(read: Read, metric: str = "ttft") -> Picture:
    """A metric of the recording of now over the loads."""
    return maps.heat_map(read.now, metric, "now" if read.before is not None else "")


def ratio_matrix(read: Read) -> Picture:
    """Now ÷ before, with how sure."""
    if read.comparison is None or read.verdict is None:
        return empty("Ratios now ÷ before", "There is one recording.", "Give one from before the incident as `old`.")
    return maps.ratio_matrix(read.comparison, read.verdict)


def tail_matrix(read: Read) -> Picture:
    """Now ÷ before of the slowest tenth of the requests."""
    if read.comparison is None:
        return empty("The slowest tenth, now ÷ before", "There is one recording.",
                     "Give one from before the incident as `old`.")
    return maps.tail_matrix(read.comparison)


def roofline(read: Read) -> Picture:
    """The decode steps of both beside their floor."""
    now, why = read.steps(read.now)
    if read.hardware is None or not now:
        return empty("Decode steps against their floor", read.why_no_limit or "; ".join(why) or "No load has a step.",
                     "Give the model's config.json as `config`, and `device` or `gbps` and `tflops`.")
    return limits.roofline(now, read.hardware, read.steps(read.before)[0])


def ttft_fit(read: Read) -> Picture:
    """Time to first token over prompt length, of the loads with fewest requests in flight."""
    points, caution = {}, ""
    for name, recording in read.names:
        tokens, times, caution = ttft_points(recording.records)
        points[name] = (tokens, times)
    return limits.ttft_fit(points, read.hardware, caution)


# ---- tables


def recordings(read: Read) -> Shown:
    """What was recorded: of what, by what, how many requests, which loads."""
    rows = []
    for name, one in read.names:
        of = one.environment
        engine = " ".join(part for part in (of.engine, of.engine_version) if part)
        completed = [record.completed for record in one.records]
        total = "unknown" if None in completed else f"{sum(part or 0 for part in completed):,}"
        rows.append((name, label(one.source), of.model or "unknown", engine or "unknown", of.device or "unknown",
                     ", ".join(dict.fromkeys(record.tool for record in one.records)), f"{len(one.cells):,}", total))
    notes = list(dict.fromkeys(note for _, one in read.names for record in one.records
                               for note in (*record.definitions, *record.notes)))
    shown = table(("", "recording", "model", "engine", "device", "by", "loads", "requests"), rows, numbers=(6, 7))
    return stacked(shown, lines("What the recordings say of themselves", notes)) if notes else shown


def ratios(read: Read) -> Shown:
    """The matrix as figures, what is sure and largest first: what was, what is, the ratio and where it lies."""
    if read.comparison is None:
        return said("One recording: no ratio.")
    sure = sorted((*read.comparison.with_state(State.WORSE), *read.comparison.with_state(State.BETTER)),
                  key=lambda entry: -abs(entry.effect))
    rows = [(words(entry.cell), maps.name_of(entry.metric).lower(), figure(entry.old), figure(entry.new),
             f"{entry.ratio:.2f}", _between(entry.low, entry.high), str(entry.state)) for entry in sure[:MOST_RATIOS]]
    rows += [(f"all {one.cells} loads together", maps.name_of(one.metric).lower(), "", "", f"{one.ratio:.2f}",
              _between(one.low, one.high), str(one.state)) for one in read.comparison.pooled]
    left = Counter(str(entry.state) for entry in read.comparison.entries)
    left.subtract(str(entry.state) for entry in sure[:MOST_RATIOS])
    rest = ", ".join(f"{count} {state}" for state, count in left.items() if count)
    return table(("load", "", "before", "now", "ratio", "lies within", "is"), rows, numbers=(2, 3, 4),
                 note=f"Not listed: {rest}." if rest else "")


MOST_RATIOS = 16


def _between(low: float | None, high: float | None) -> str:
    return "unknown" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def stages(read: Read) -> Shown:
    """Prefill and decode of each load: time to first token, the usual gap between tokens, and the worst."""
    rows = []
    for name, one in read.names:
        for record, row in zip(one.records, interference(one.records), strict=True):
            rows.append((name, words(_cell(record)), _ms(row.ttft_ms), _ms(row.usual_gap_ms), _ms(row.p99_gap_ms),
                         _ms(row.worst_gap_ms), "unknown" if row.worst_ratio is None else f"{row.worst_ratio:.1f}"))
    rows.sort(key=lambda row: -_ratio(row[6]))
    shown = table(("", "load", "first token, ms", "usual gap, ms", "p99 gap, ms", "worst gap, ms", "worst ÷ usual"),
                  rows[:MOST_STAGES], numbers=(2, 3, 4, 5, 6), note="" if len(rows) <= MOST_STAGES else (
                      f"The {MOST_STAGES} with the longest gaps of {len(rows)}."))
    return stacked(shown, *(_fit_words(name, one.records) for name, one in read.names))


MOST_STAGES = 12


def _fit_words(name: str, records: Sequence[BenchRecord]) -> Shown:
    tokens, times, caution = ttft_points(records)
    try:
        return said(f"{name}: {fit_ttft(tokens, times).words}{f'; {caution}' if caution else ''}.")
    except CannotFitError as error:
        return said(f"{name}: how the first token grows with the prompt cannot be told: {error}.")


def limit(read: Read) -> Shown:
    """Each load's step, its floor, and what the share says."""
    if read.hardware is None:
        return said(f"No floor: {read.why_no_limit}.")
    rows, why = [], []
    for name, recording in read.names:
        steps, missing = read.steps(recording)
        why += [f"{name}: {reason}" for reason in missing]
        rows += [(name, load_words(step), figure(step.floor.gb), figure(step.floor.ms), step.floor.by, figure(step.ms),
                  _percent(step.share), step.words) for step in _ends(steps)]
    shown = table(("", "batch × context", "reads, GB", "floor, ms", "by", "step, ms", "share", "which says"), rows,
                  numbers=(2, 3, 5, 6), note=TAKEN)
    parts = [shown, lines("No floor for some", why)] if why else [shown]
    return stacked(*parts, _hardware_words(read.hardware))


TAKEN = ("Smallest and largest batch of each prompt length. The batch is taken as the requests in flight, the context "
         "as the prompt and half of the answer.")


def _ends(steps: Sequence[MeasuredStep]) -> list[MeasuredStep]:
    """Smallest and largest batch of each prompt length, longest outputs."""
    groups: dict[float | None, list[MeasuredStep]] = {}
    for step in sorted(steps, key=lambda s: (s.context, s.batch)):
        groups.setdefault(step.cell.prompt_tokens, []).append(step)
    kept = []
    for group in groups.values():
        longest = [step for step in group if step.cell.output_tokens == group[-1].cell.output_tokens]
        kept += [min(longest, key=lambda s: s.batch)]
        if len(longest) > 1:
            kept.append(max(longest, key=lambda s: s.batch))
    return kept


def _hardware_words(hardware: limits.Hardware) -> Shown:
    device, shape = hardware.device, hardware.shape
    peaks = [f"{figure(device.gbps)} GB/s" if device.gbps else "bandwidth unknown",
             f"{figure(device.tflops)} TFLOP/s" if device.tflops else "arithmetic peak unknown"]
    of = f"{figure(shape.parameters / 1e9)} billion parameters, {shape.dtype or 'type unknown'}"
    rows = [("device", f"{device.name}: {', '.join(peaks)} ({device.source})"
             + (f", {hardware.devices} of them" if hardware.devices > 1 else "")),
            ("model", f"{shape.name}, {of} ({label(shape.source)})"),
            *(("mind", note) for note in shape.notes)]
    return pairs(rows)


def _cell(record: BenchRecord) -> Cell:
    return Cell(record.concurrency, record.request_rate, record.prompt_tokens, record.output_tokens)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else figure(value)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _ratio(text: str) -> float:
    return -1.0 if text == "unknown" else float(text)
