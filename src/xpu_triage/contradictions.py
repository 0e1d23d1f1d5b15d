"""Figures of one load that cannot all be true, with the arithmetic. Nothing is corrected: the reader is told.

Each check compares a figure with what others make of it. A check speaks only beyond a tolerance that fits it: means
against medians and readings at slightly different moments differ by tens of percent without anything being wrong.

A contradiction says what each of its figures would be if the others are right: one of them is wrong, and a verdict must
not hang on which. A remark on figures that may all be right carries no such repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .catalogue import CATALOGUE
from .expressions import Value
from .signals import Signals
from .units import figure, show
from .verdict import Contradiction

RATE_TOLERANCE = 0.3
"""Of a throughput against what batch and step time make of it: means, medians and ramps lie within that. Judgement."""
SUM_TOLERANCE = 0.02
"""Of shares that must not add up to more than 1: rounding of two-digit figures."""
MOST_BETWEEN_TOKENS = 32.0
"""Steps between two tokens of a request, and running requests by tokens against those counted, beyond which the figures
are of two servers or two times. Stages of a pipeline and prefills between decode steps make some. Judgement."""
QUEUE_TOLERANCE = 1.0
"""Of a part of a latency against the whole while requests wait: those that got their first token came later, in a queue
that had grown, than those that finished, and each figure is a median of other requests. Judgement."""
PART_TOLERANCE = 0.1
"""Of a part against its whole, both medians of different distributions. Judgement."""

Numbers = Mapping[str, float]
Check = Callable[[Numbers], Iterator[Contradiction]]


def contradictions(signals: Signals) -> tuple[Contradiction, ...]:
    """All contradictions among the signals, in the order of the checks."""
    numbers = {name: float(signal.value) for name, signal in signals.items() if _is_number(signal.value)}
    return (*_no_operator(signals), *(found for check in CHECKS for found in check(numbers)))


def _no_operator(signals: Signals) -> Iterator[Contradiction]:
    """Somebody looked and saw no operator on a CPU, and yet it has a share of the time."""
    operator, share = signals.value("fallback.op"), signals.value("fallback.fraction")
    looked = isinstance(operator, str) and operator.casefold() == "none"
    if looked and isinstance(share, int | float) and share > SUM_TOLERANCE:
        yield _contradiction(f"fallback.op says none, but fallback.fraction is {figure(share)}",
                             "fallback.op", "fallback.fraction")


def _rate(n: Numbers) -> Iterator[Contradiction]:
    """Running ÷ step time is the decode rate. More tokens than that need several a step (speculation): no
    contradiction below eight times. Fewer are no contradiction where some steps are far longer than the usual one (a
    token gap in a hundred of eight steps and more): the mean step is then longer than the median."""
    if (made := _ratio(n, "serving.running", "step.wall_ms", 1000)) is None or made == 0:
        return
    if (rate := n.get("serving.decode_tokens_per_s")) is None:
        return
    uneven = n.get("latency.itl_p99_ms", 0.0) >= 8 * n["step.wall_ms"]
    if (rate < made * (1 - RATE_TOLERANCE) and not uneven) or rate > made * 8:
        yield Contradiction(
            f"{_shown(n, 'serving.running')} running ÷ {_shown(n, 'step.wall_ms')} a step = {_tokens(made)}, "
            f"but serving.decode_tokens_per_s says {_tokens(rate)}",
            ("serving.running", "step.wall_ms", "serving.decode_tokens_per_s"),
            {"serving.running": rate * n["step.wall_ms"] / 1000,
             "step.wall_ms": n["serving.running"] / rate * 1000 if rate else None,
             "serving.decode_tokens_per_s": made})


def _request_rate(n: Numbers) -> Iterator[Contradiction]:
    """The rates of single requests add up to the aggregate, or to less where not all are decoding."""
    each, all_ = n.get("serving.request_decode_tokens_per_s"), n.get("serving.decode_tokens_per_s")
    running = n.get("serving.running", n.get("serving.concurrency"))
    name = "serving.running" if "serving.running" in n else "serving.concurrency"
    if each is None or all_ is None or running is None:
        return
    if all_ > each * max(running, 1) * (1 + RATE_TOLERANCE):
        yield Contradiction(
            f"{figure(running)} requests × {_tokens(each)} each = {_tokens(each * max(running, 1))}, "
            f"but serving.decode_tokens_per_s says {_tokens(all_)}",
            (name, "serving.request_decode_tokens_per_s", "serving.decode_tokens_per_s"),
            {name: all_ / each if each else None, "serving.request_decode_tokens_per_s": all_ / max(running, 1),
             "serving.decode_tokens_per_s": each * max(running, 1)})


def _itl_rate(n: Numbers) -> Iterator[Contradiction]:
    """The rate of one request after its first token is 1 ÷ its mean time per token. The median gap is below the mean
    where a few gaps are long, and above it never by much: only a rate that is too high contradicts."""
    each = n.get("serving.request_decode_tokens_per_s")
    itl = n.get("latency.itl_ms")
    if each and itl and each * itl / 1000 > 1 + RATE_TOLERANCE:
        yield Contradiction(
            f"latency.itl_ms {figure(itl)} ms a token = {_tokens(1000 / itl)} a request, "
            f"but serving.request_decode_tokens_per_s says {_tokens(each)}",
            ("latency.itl_ms", "serving.request_decode_tokens_per_s"),
            {"latency.itl_ms": 1000 / each, "serving.request_decode_tokens_per_s": 1000 / itl})


def _step_against_token(n: Numbers) -> Iterator[Contradiction]:
    """A request gets its tokens from decode steps: without speculation its time per token is a step or more. Where one
    gap in a hundred is as long as a step, gaps are uneven, and a median of them is no measure of the mean step."""
    step, long = n.get("step.wall_ms"), n.get("latency.itl_p99_ms", 0.0)
    for name in ("latency.engine_itl_ms", "latency.itl_ms"):
        itl = n.get(name)
        if itl and step and itl < step / 8 and long < step / 2:
            yield Contradiction(
                f"{name} {figure(itl)} ms is {figure(step / itl)} times shorter than a step of {figure(step)} ms: "
                "more tokens a step than speculation makes", (name, "step.wall_ms"),
                {name: step, "step.wall_ms": itl})
    itl = n.get("latency.engine_itl_ms")
    if itl and step and itl > MOST_BETWEEN_TOKENS * step:
        yield Contradiction(
            f"latency.engine_itl_ms {figure(itl)} ms is {figure(itl / step)} steps of {figure(step)} ms: more than run "
            "between two tokens of a request", ("latency.engine_itl_ms", "step.wall_ms"),
            {"latency.engine_itl_ms": step, "step.wall_ms": itl})


def _rate_against_token(n: Numbers) -> Iterator[Contradiction]:
    """Running ÷ time per token bounds the rate. Readings of `running` miss bursts, so only by orders of magnitude."""
    running, itl, rate = (n.get(name) for name in (
        "serving.running", "latency.engine_itl_ms", "serving.decode_tokens_per_s"))
    if running is None or running < 1 or not itl or rate is None:
        return
    if rate > MOST_BETWEEN_TOKENS * running / itl * 1000:
        yield Contradiction(
            f"{figure(running)} running ÷ {show(itl, 'ms')} a token = {_tokens(running / itl * 1000)}, but "
            f"serving.decode_tokens_per_s says {_tokens(rate)}",
            ("serving.running", "latency.engine_itl_ms", "serving.decode_tokens_per_s"),
            {"serving.running": rate * itl / 1000, "latency.engine_itl_ms": running / rate * 1000,
             "serving.decode_tokens_per_s": running / itl * 1000})


def _idle_engine(n: Numbers) -> Iterator[Contradiction]:
    """Utilization about 0 beside steps that a device computes. A remark: all three may be right, and then it points at
    the host; or the tool reads the wrong device."""
    used, step, running = (n.get(name) for name in ("device.utilization_fraction", "step.wall_ms", "serving.running"))
    seen = n.get("device.busy_fraction")  # a trace that says the same explains it
    if used is not None and used <= 0.02 and step and running and running >= 1 and (seen is None or seen > 0.05):
        yield Contradiction(
            f"device.utilization_fraction {figure(used)} while {figure(running)} requests run in steps of "
            f"{show(step, 'ms')}: a device that computes cannot read 0 %, so the time is spent elsewhere",
            ("device.utilization_fraction", "step.wall_ms", "serving.running"))


def _utilization_against_busy(n: Numbers) -> Iterator[Contradiction]:
    """A tool samples whether anything ran, so it reads about busy or more, and never far less. The trace has every
    interval of its window, so it is the tool's reading that does not stand for it."""
    used, busy = n.get("device.utilization_fraction"), n.get("device.busy_fraction")
    if used is not None and busy is not None and busy - used > 0.3:
        yield Contradiction(
            f"device.busy_fraction {figure(busy)} from a trace, but the vendor tool reads {figure(used)}: different "
            "moments, a different device, or a single reading", ("device.busy_fraction", "device.utilization_fraction"),
            {"device.utilization_fraction": busy})


def _spinning(n: Numbers) -> Iterator[Contradiction]:
    """A tool calls a device in use while any kernel runs, one that spins too: work that computes draws power and reads
    memory. A hung kernel of a real capture: sm 100, mem 0, at 17 % of its power. Power and memory are right: it is the
    utilization that says nothing."""
    used, memory, power = (n.get(name) for name in (
        "device.utilization_fraction", "device.memory_active_fraction", "power.draw_fraction"))
    cold = power is not None and power <= 0.35
    still = memory is not None and memory < 0.005
    if used is None or used < 0.9 or not (cold or still) or (memory is not None and memory > 0.02):
        return
    names = [*(["device.memory_active_fraction"] if still else []), *(["power.draw_fraction"] if cold else [])]
    beside = " and ".join(f"{name} {figure(n[name])}" for name in names)
    yield Contradiction(
        f"device.utilization_fraction {figure(used)}, but {beside}: a kernel that spins (hung, or waiting for another "
        "rank) reads as full", ("device.utilization_fraction", *names), {"device.utilization_fraction": None})


def _shares(n: Numbers) -> Iterator[Contradiction]:
    idle = [name for name in n if name.startswith("idle.") and name.endswith("_fraction")
            and name != "idle.before_unlinked_fraction"]  # a property of idle, beside its causes
    yield from _at_most_one(n, ["device.busy_fraction", *idle], "busy and the causes of idle")
    for beside in ("device.busy_fraction", "roofline.bandwidth_fraction"):  # an operator on a CPU has the device wait
        if "fallback.fraction" in n and beside in n:
            yield from _at_most_one(n, [beside, "fallback.fraction"], f"{beside} and fallback.fraction", PART_TOLERANCE)
    parts = ["device.compute_fraction", "device.comm_fraction", "device.copy_fraction"]
    yield from _parts_of(n, parts, "device.busy_fraction", "device.compute_fraction, comm and copy", SUM_TOLERANCE)


def _latencies(n: Numbers) -> Iterator[Contradiction]:
    before = ["latency.queue_ms", "latency.prefill_ms", "latency.before_prefill_ms"]
    queued = QUEUE_TOLERANCE if n.get("serving.waiting", 0.0) >= 1 else 0.0
    yield from _parts_of(n, before, "latency.ttft_ms", "queue, prefill and the time before",
                         max(3 * PART_TOLERANCE, queued))
    yield from _parts_of(n, ["latency.ttft_ms"], "latency.e2e_ms", "latency.ttft_ms", max(PART_TOLERANCE, queued))
    for shorter, longer in (("latency.itl_ms", "latency.itl_p99_ms"), ("latency.itl_p99_ms", "latency.itl_max_ms")):
        yield from _parts_of(n, [shorter], longer, shorter, SUM_TOLERANCE)


def _steps(n: Numbers) -> Iterator[Contradiction]:
    """Parts of a step that are longer than the step."""
    for part in ("step.fixed_ms", "idle.step_gap_ms", "sync.copy_ms", "comm.host_ms"):
        yield from _parts_of(n, [part], "step.wall_ms", part, PART_TOLERANCE)
    if (kernels := _product(n, "kernel.per_step", "kernel.median_us")) is not None and n.get("device.busy_fraction"):
        busy_us = n["device.busy_fraction"] * n.get("step.wall_ms", 0.0) * 1000
        if busy_us and kernels > 4 * busy_us:  # several streams, and a median that is no mean
            yield _contradiction(
                f"{figure(n['kernel.per_step'])} kernels × {figure(n['kernel.median_us'])} µs = "
                f"{figure(kernels / 1000)} ms a step, but busy × step is {figure(busy_us / 1000)} ms",
                "kernel.per_step", "kernel.median_us", "device.busy_fraction", "step.wall_ms")
    if (comm := _product(n, "comm.calls_per_step", "comm.isolated_us")) is not None and n.get("step.wall_ms"):
        yield from _longer(comm / 1000, n["step.wall_ms"], "comm.calls_per_step × comm.isolated_us",
                           ("comm.calls_per_step", "comm.isolated_us", "step.wall_ms"))


def _littles_law(n: Numbers) -> Iterator[Contradiction]:
    """What is in flight is rate × duration: concurrency ÷ e2e bounds the tokens that can come out."""
    if (done := _ratio(n, "serving.concurrency", "latency.e2e_ms", 1000)) is None:
        return
    offered = n.get("serving.offered_requests_per_s")
    if offered and offered < done * (1 - RATE_TOLERANCE):
        yield Contradiction(
            f"{figure(n['serving.concurrency'])} in flight ÷ {show(n['latency.e2e_ms'], 'ms')} = {figure(done)} "
            f"requests/s, but only {figure(offered)} are offered",
            ("serving.concurrency", "latency.e2e_ms", "serving.offered_requests_per_s"),
            {"serving.concurrency": offered * n["latency.e2e_ms"] / 1000,
             "latency.e2e_ms": n["serving.concurrency"] / offered * 1000, "serving.offered_requests_per_s": done})


def _batch(n: Numbers) -> Iterator[Contradiction]:
    running = n.get("serving.running")
    for limit in ("serving.running_limit", "serving.concurrency"):
        if running is not None and limit in n and running > n[limit] * (1 + PART_TOLERANCE):
            yield Contradiction(f"serving.running {figure(running)} is more than {limit} {figure(n[limit])}",
                                ("serving.running", limit), {"serving.running": n[limit], limit: running})


def _bandwidth(n: Numbers) -> Iterator[Contradiction]:
    """Bytes ÷ time against the share of the bandwidth that is claimed, and against what is possible."""
    road = "roofline.probe_gbps" if "roofline.probe_gbps" in n else "roofline.peak_gbps"
    rate = _ratio(n, "roofline.read_gb", "step.wall_ms", 1000)
    if rate is None or not n.get(road):
        return
    share, said = rate / n[road], n.get("roofline.bandwidth_fraction")
    text = (f"roofline.read_gb {figure(n['roofline.read_gb'])} GB ÷ {show(n['step.wall_ms'], 'ms')} = {figure(rate)} "
            f"GB/s = {figure(share)} of {road} {figure(n[road])}")
    names = ("roofline.read_gb", "step.wall_ms", road)
    if said is not None and abs(share - said) > 0.15:
        right = rate / said if said else None  # the bandwidth at which both are true
        scale = right / n[road] if right is not None else None
        yield Contradiction(f"{text}, but roofline.bandwidth_fraction says {figure(said)}",
                            (*names, "roofline.bandwidth_fraction"),
                            {"roofline.read_gb": n["roofline.read_gb"] / scale if scale else None,
                             "step.wall_ms": n["step.wall_ms"] * scale if scale else None, road: right,
                             "roofline.bandwidth_fraction": min(share, 1.0)})
    elif share > 1 + PART_TOLERANCE:
        yield _contradiction(f"{text}: more than there is", *names)


CHECKS: tuple[Check, ...] = (
    _rate, _request_rate, _itl_rate, _step_against_token, _rate_against_token, _idle_engine, _utilization_against_busy,
    _spinning, _shares, _latencies, _steps, _littles_law, _batch, _bandwidth,
)


def _at_most_one(
    n: Numbers, names: list[str], what: str, tolerance: float = SUM_TOLERANCE
) -> Iterator[Contradiction]:
    there = [name for name in names if name in n]
    total = sum(n[name] for name in there)
    if total > 1 + tolerance:
        yield Contradiction(f"{what} add up to {figure(total)}: {_sum(n, there)}", tuple(there),
                            {name: max(1 - (total - n[name]), 0.0) for name in there})


def _parts_of(n: Numbers, parts: list[str], whole: str, what: str, tolerance: float) -> Iterator[Contradiction]:
    there = [name for name in parts if name in n]
    if whole not in n or not there:
        return
    total = sum(n[name] for name in there)
    if total > n[whole] * (1 + tolerance) + (SUM_TOLERANCE if CATALOGUE[whole].unit == "fraction" else 0.0):
        left = _sum(n, there) if len(there) > 1 else _shown(n, there[0])
        verb = "are" if len(there) > 1 else "is"
        yield Contradiction(f"{what} {verb} {left}, more than {whole} {_shown(n, whole)}", (*there, whole),
                            {whole: total, **{name: max(n[whole] - (total - n[name]), 0.0) for name in there}})


def _longer(part: float, whole: float, what: str, names: tuple[str, ...]) -> Iterator[Contradiction]:
    if part > whole * (1 + PART_TOLERANCE):
        yield _contradiction(f"{what} = {figure(part)} ms, longer than a step of {figure(whole)} ms", *names)


def _ratio(n: Numbers, top: str, bottom: str, factor: float) -> float | None:
    return n[top] / n[bottom] * factor if top in n and n.get(bottom) else None


def _product(n: Numbers, *names: str) -> float | None:
    if any(name not in n for name in names):
        return None
    return n[names[0]] * n[names[1]]


def _sum(n: Numbers, names: list[str]) -> str:
    return f"{' + '.join(_shown(n, name) for name in names)} = {figure(sum(n[name] for name in names))}"


def _shown(n: Numbers, name: str) -> str:
    return show(n[name], CATALOGUE[name].unit)


def _tokens(rate: float) -> str:
    return show(rate, "tokens_per_s")


def _contradiction(text: str, *names: str) -> Contradiction:
    """One whose figures do not tell what another should be."""
    return Contradiction(text, names, dict.fromkeys(names))


def _is_number(value: Value) -> bool:
    return not isinstance(value, bool | str)
