"""From one rank's diagnosis to what travels. Runs where the evidence is read: on a worker."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from statistics import fmean
from typing import Any

import numpy as np

from ..diagnosis import Diagnosis, diagnose
from ..errors import TriageError, UnusableInput
from ..evidence import detect
from ..steps.intervals import covered_between
from ..steps.results import CAUSES, Cause, DeviceUse, Step, Walk
from ..text import clean, shorten
from ..trace import LONGEST_GROUP, Kind, Trace
from .collectives import OF_PAIRS
from .fetch import fetched
from .inputs import Piece
from .result import MAX_CALLS, MAX_STEPS, Calls, Group, KernelTimes, RankResult, StepTable

HEAVIEST = 64
"""Kernels whose names tell a model from another."""
TIMED, SHORT = 20, 40
"""Kernels whose times travel, and characters of their names: 1.5 kB a rank."""
MAX_GROUP = 100_000
MAX_GROUPS = 256
"""Process groups of one rank's collectives; those of further ones count as of unknown group."""

_WORDS = tuple((word, re.compile(pattern, re.I)) for word, pattern in (
    ("reduce-scatter", r"reduce_?scatter"), ("all-reduce", r"all_?reduce|cross_device_reduce"),
    ("all-gather", r"all_?gather"), ("all-to-all", r"all_?to_?all"), ("dispatch", r"dispatch"),
    ("combine", r"combine"), ("broadcast", r"broadcast"),
    ("send-receive", r"send_?recv"), ("send", r"(?<![a-z])i?send"), ("receive", r"(?<![a-z])i?recv|receive"),
    ("barrier", r"barrier"), ("reduce", r"reduce"), ("scatter", r"scatter"), ("gather", r"gather")))
_OPTIONS = (("record_shapes", "shapes"), ("profile_memory", "memory"), ("with_flops", "FLOPs"),
            ("with_modules", "modules"))
_NUMBER = re.compile(r"(\d{1,18})")
_HOST_BACKENDS = re.compile(r"(?:(?:\w+:)?(?:gloo|mpi),?)+", re.I)


def diagnose_rank(piece: Piece) -> RankResult:
    """One rank's evidence, read, walked and judged. Never raises: what went wrong is said in `error`."""
    try:
        with fetched(piece) as here:
            try:
                usable, notes = _usable(here.paths)
                return summarised(diagnose(*usable), piece, notes)
            except TriageError as error:
                return failed(piece, here.as_given(str(error)))
    except TriageError as error:
        return failed(piece, str(error))
    except Exception as error:  # a defect met in one rank's evidence must not cost the others their diagnosis
        words = clean(shorten(" ".join(str(error).split()), 200))
        return failed(piece, f"{piece.label}: could not be diagnosed ({type(error).__name__}: {words})")


def failed(piece: Piece, why: str) -> RankResult:
    """What is left of a rank that could not be diagnosed: its name, and the reason."""
    return RankResult(piece.label, error=why, rank=piece.rank, rank_from=_by(piece))


def _by(piece: Piece) -> str:
    return "" if piece.rank is None else "name"


def _usable(paths: Sequence[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """Of several files those that a reader reads, and a note of each other; one alone is refused by its reader."""
    if len(paths) == 1:
        return list(paths), ()
    usable: list[Path] = []
    refused: list[UnusableInput] = []
    for path in paths:
        try:
            detect.find(path)
            usable.append(path)
        except UnusableInput as error:
            refused.append(error)
    if not usable:
        raise refused[0]
    return usable, tuple(f"not used: {error}" for error in refused)


def summarised(found: Diagnosis, piece: Piece, notes: Iterable[str] = ()) -> RankResult:
    """What travels of a diagnosis."""
    walked, verdict = found.lead, found.verdict
    said = list(notes)
    said += [note for record in found.evidence for note in record.notes]
    rank, rank_from = piece.rank, _by(piece)
    if found.others:
        said.append(f"{len(found.others) + 1} traces in the evidence of one rank: compared by "
                    f"{clean(PurePath(walked.trace.source).name) if walked else 'one'} alone")
    more: dict[str, Any] = {}
    if walked is not None:
        about = _about(walked.trace)
        told = _natural(about.get("rank"))
        if told is not None:
            if rank is not None and rank != told:
                said.append(f"its name says rank {rank}, its trace rank {told}: the trace is believed")
            rank, rank_from = told, "trace"
        more = _of_walk(walked, said) | _of_job(about, rank) | {"traces": 1 + len(found.others)}
    return RankResult(
        piece.label, rank=rank, rank_from=rank_from, level=verdict.level, id=verdict.id, title=verdict.title,
        summary=verdict.summary, next=verdict.next, where=_where(found), notes=tuple(dict.fromkeys(said)),
        values=tuple((s.name, s.value, s.how) for s in found.signals.values()), **more)


def _where(found: Diagnosis) -> str:
    finding = found.finding
    if finding is None:
        return ""
    return f"{shorten(clean(finding.name), 80)}, {finding.share or finding.total_share:.0%} of the window"


# -- the job, as the capture tells of it
def _about(trace: Trace) -> dict[str, Any]:
    about = trace.meta.get("distributedInfo")
    return about if isinstance(about, dict) else {}


def _natural(value: Any) -> int | None:
    """A rank or a world size; some write it as text."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,7}", value):
        value = int(value)
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000
    return value if is_one else None


def _of_job(about: dict[str, Any], rank: int | None) -> dict[str, Any]:
    size = _natural(about.get("world_size"))
    groups = set() if rank is None else _groups(about, rank)
    smallest = min(groups, key=lambda ranks: (len(ranks), ranks), default=())
    return {"world_size": size or None, "group": spans(smallest), "groups": len(groups)}


def _groups(about: dict[str, Any], rank: int) -> set[tuple[int, ...]]:
    """The groups of several ranks, this one among them, that can exchange on the device."""
    return {members for _, backend, members in _configured(about)
            if rank in members and not _HOST_BACKENDS.fullmatch(backend)}


def _named_groups(about: dict[str, Any]) -> dict[str, str]:
    """The ranks of each group, by its name."""
    return {name: spans(members) for name, _, members in _configured(about)}


def _configured(about: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, backend and ranks, sorted, of each group of several that the capture tells of."""
    config = about.get("pg_config")
    for group in config if isinstance(config, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if not isinstance(ranks, list) or not 1 < len(ranks) <= MAX_GROUP:
            continue
        members = {member for member in map(_natural, ranks) if member is not None}
        if len(members) == len(ranks):
            yield (clean(shorten(str(group.get("pg_name", "")), LONGEST_GROUP)), str(group.get("backend_config", "")),
                   tuple(sorted(members)))


def spans(ranks: Sequence[int]) -> str:
    """Sorted numbers in short.

    >>> spans([0, 1, 2, 3, 8, 10])
    '0-3,8,10'
    """
    out: list[str] = []
    at = 0
    while at < len(ranks):
        last = at
        while last + 1 < len(ranks) and ranks[last + 1] == ranks[last] + 1:
            last += 1
        out.append(f"{ranks[at]}-{ranks[last]}" if last > at + 1 else ",".join(map(str, ranks[at:last + 1])))
        at = last + 1
    return ",".join(out)


# -- the walk
def _of_walk(walked: Walk, notes: list[str]) -> dict[str, Any]:
    use = walked.busiest
    out: dict[str, Any] = {"has_trace": True, "has_device": use is not None, "method": walked.steps.method}
    own = _own(walked, use)
    out["window_own_ms"] = float(own.sum())
    if walked.steps.method != "window":
        out["steps"] = _step_table(walked, use, own, notes)
    trace = walked.trace
    out |= {"began": trace.began, "span_ns": trace.span, "digest": _digest(trace), "recorded": recorded(trace)}
    out |= _load(walked.steps.steps)
    if use is not None:
        if len(walked.devices) > 1:
            notes.append(f"{len(walked.devices)} devices in one trace: compared by {clean(use.device)}, the busiest")
        rows = np.flatnonzero(walked.trace.device == walked.trace.devices.index(use.device))
        out["calls"] = _calls(walked, rows, notes)
        out["kernels"], out["heaviest"] = _kernels(walked, rows)
    return out


def recorded(trace: Trace) -> str:
    """What a capture records beside calls and device work, as `RankResult` has it: by the rows that there are, and by
    what it says of its options (torch.profiler's, in the root of its file)."""
    kinds = [words for kind, words in ((Kind.HOST_OP, "operators"), (Kind.PYTHON, "Python stacks"))
             if (trace.kind == kind).any()]
    return ", ".join(kinds + [words for option, words in _OPTIONS if trace.meta.get(option) in (1, True, "1", "true")])


def _load(steps: Sequence[Step]) -> dict[str, Any]:
    """What steps carry, where all their names tell."""
    requests = [step.decode_requests for step in steps if step.decode_requests is not None]
    tokens = [step.prefill_tokens for step in steps if step.prefill_tokens is not None]
    return {"requests": fmean(requests) if len(requests) == len(steps) else None,
            "tokens": fmean(tokens) if len(tokens) == len(steps) else None}


def _edges(walked: Walk) -> tuple[np.ndarray, np.ndarray]:
    steps = walked.steps.steps
    return np.array([s.start for s in steps], np.int64), np.array([s.end for s in steps], np.int64)


def _own(walked: Walk, use: DeviceUse | None) -> np.ndarray:
    """ms, one entry a step: wall without exposed collectives and without idle until another rank, or work, arrives: a
    stage of a pipeline, or a server between requests, is not slow while it has nothing to do."""
    left, right = _edges(walked)
    wall = (right - left).astype(np.float64)
    if use is not None:
        waits = np.isin(use.gaps.cause, [CAUSES.index(cause) for cause in (Cause.PEER_WAIT, Cause.NO_WORK)])
        wall -= use.comm + covered_between(use.gaps.start[waits], use.gaps.end[waits], left, right)
    return np.maximum(wall, 0) / 1e6


def _step_table(walked: Walk, use: DeviceUse | None, own: np.ndarray, notes: list[str]) -> StepTable:
    left, right = _edges(walked)
    names = [step.name for step in walked.steps.steps]
    count = min(len(names), MAX_STEPS)
    if count < len(names):
        notes.append(f"{len(names):,} steps: compared by the first {count:,}")
    apart = len(set(names)) == len(names)
    key = [_hash(name) for name in names[:count]] if apart and walked.steps.method == "annotation" else []

    def column(ns: np.ndarray) -> np.ndarray:
        return np.asarray(ns[:count] / 1e6, np.float32)

    zero = np.zeros(len(names))
    return StepTable(np.array(key, np.int64), column(right - left), own[:count].astype(np.float32),
                     column(use.comm if use else zero), column(use.compute if use else zero),
                     bool(key) and _counts(names))


def _counts(names: Sequence[str]) -> bool:
    """Whether the names of a rank's steps, in order, count them.

    >>> _counts(["ProfilerStep#9", "ProfilerStep#10"]), _counts(["prefill(9)", "decode(10)"]), _counts(["step 3"])
    (True, False, False)
    """
    parts = [_NUMBER.split(name) for name in names]
    if len(names) < 2 or len({tuple(part[::2]) for part in parts}) > 1:
        return False
    numbers = np.array([[int(number) for number in part[1::2]] for part in parts], np.int64)
    rises = np.diff(numbers, axis=0)
    moves = (rises != 0).any(axis=0)
    return bool(moves.sum() == 1 and (rises[:, moves] == 1).all())


def _calls(walked: Walk, rows: np.ndarray, notes: list[str]) -> Calls | None:
    """Collectives that belong to a step of the window: that of their launch, else the one they start in."""
    trace = walked.trace
    rows = rows[trace.kind[rows] == Kind.COMM]
    launch = trace.launch[rows]
    at = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], trace.start[rows])
    inside = (at >= walked.steps.start) & (at < walked.steps.end)
    rows, at = rows[inside], at[inside]
    if not len(rows):
        return None
    step = np.searchsorted(_edges(walked)[0], at, "right") - 1
    words, spoken = _spoken(trace, rows)
    order = np.lexsort((trace.start[rows], spoken, step))
    steps = len(walked.steps.steps)
    if len(order) > MAX_CALLS:                  # no step is cut, but the first where it alone is too long
        steps = max(int(step[order][MAX_CALLS]), 1)
        keep = min(int((step[order] < steps).sum()), MAX_CALLS)
        notes.append(f"{len(order):,} collectives: compared by the first {keep:,}")
        order = order[:keep]
    us = (trace.dur[rows[order]] / 1e3).astype(np.float32)
    rows = rows[order]
    return Calls(step[order].astype(np.int32), spoken[order], us, words, steps, trace.end[rows], *_told(trace, rows))


def _spoken(trace: Trace, rows: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """What collectives do, sorted, and of each of `rows` which of it: by the kernel's name, but that of a kernel that
    sends and receives tells no all-to-all from a pair's exchange, where what is told of the call is believed."""
    told = trace.exchange[rows] if len(trace.exchange) else np.full(len(rows), -1, np.int32)
    both, place = np.unique(np.stack([trace.name[rows], told]), axis=1, return_inverse=True)
    said = []
    for name, code in both.T.tolist():
        by_name = word(trace.names[name])
        what = trace.exchanges[code].what if code >= 0 else ""
        said.append(word(what) if by_name in OF_PAIRS and what else by_name)
    words = tuple(sorted(set(said)))
    return words, np.array([words.index(one) for one in said], np.int16)[place.reshape(-1)]


def _told(trace: Trace, rows: np.ndarray) -> tuple[np.ndarray, tuple[Group, ...], np.ndarray]:
    """Of collectives' rows the code of the group, the groups, and the elements; as `Calls` has them."""
    code = trace.exchange[rows] if len(trace.exchange) else np.full(len(rows), -1, np.int32)
    if (code < 0).all():
        return np.zeros(0, np.int16), (), np.zeros(0, np.int64)
    sizes = {trace.exchanges[one].group: trace.exchanges[one].size for one in np.unique(code[code >= 0]).tolist()}
    names = sorted(sizes)[:MAX_GROUPS]
    place = {name: i for i, name in enumerate(names)}
    of_code = [place.get(one.group, -1) for one in trace.exchanges] + [-1]      # the last is that of -1
    size = [one.elements if 0 <= one.elements < 1 << 62 else -1 for one in trace.exchanges] + [-1]
    ranks = _named_groups(_about(trace))
    return (np.array(of_code, np.int16)[code], tuple(Group(name, ranks.get(name, ""), sizes[name]) for name in names),
            np.array(size, np.int64)[code])


def word(name: str) -> str:
    """What a collective's kernel does, by its name.

    >>> word("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)"), word("hcom_allGather__857_0_1")
    ('all-reduce', 'all-gather')
    """
    found = next((word for word, pattern in _WORDS if pattern.search(name)), "")
    return found or shorten(re.sub(r"\d+", "", clean(name)), 40)


def _kernels(walked: Walk, rows: np.ndarray) -> tuple[np.ndarray, KernelTimes]:
    """Of a device's rows inside the window: sorted hashes of the heaviest kernels, and the times of the very heaviest.
    """
    trace, steps = walked.trace, walked.steps
    rows = rows[trace.kind[rows] == Kind.KERNEL]
    ns = np.bincount(trace.name[rows], trace.dur[rows], len(trace.names)) if len(rows) else np.zeros(0)
    codes = np.unique(trace.name[rows])
    heaviest = codes[np.argsort(-ns[codes], kind="stable")][:HEAVIEST]
    key = np.array([_hash(trace.names[code]) for code in heaviest.tolist()], np.int64)
    rows = rows[(trace.start[rows] >= steps.start) & (trace.start[rows] < steps.end)]
    each = np.bincount(trace.name[rows], trace.dur[rows], len(trace.names))[heaviest] / 1e6 / len(steps.steps)
    calls = np.bincount(trace.name[rows], minlength=len(trace.names))[heaviest] / len(steps.steps)
    names = "\n".join(shorten(clean(trace.names[code]), SHORT) for code in heaviest[:TIMED].tolist())
    return np.sort(key), KernelTimes(key[:TIMED].copy(), each[:TIMED].astype(np.float32),
                                     calls[:TIMED].astype(np.float32), names)


def _hash(name: str) -> int:
    """The same number on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest(), signed=True)


def _digest(trace: Trace) -> int:
    """Of the rows' times and links. No two captures have the same."""
    known = hashlib.blake2b(digest_size=8)
    for column in (trace.start, trace.dur, trace.correlation):
        known.update(np.ascontiguousarray(column, "<i8").data)
    return int.from_bytes(known.digest(), signed=True)
