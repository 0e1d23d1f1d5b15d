"""The files that a run leaves: a trace, utilization over time, the engine's log, and what was configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import kineto
from .record import Recorder

if TYPE_CHECKING:
    from .run import Run

SAMPLE_NS = 100_000_000
"""Period of the utilization samples. Vendor tools average over 1/6 s to 1 s; shorter, so that short runs have
some."""


def write(run: Run, recorder: Recorder) -> None:
    """Write all files of `run` into its folder."""
    kineto.write(run.out / "trace.json.gz", recorder, run.model)
    rows = [f"{(i + 1) * SAMPLE_NS / 1e9:.1f}, 0, {percent} %" for i, percent in enumerate(samples(recorder))]
    _text(run, "utilization.csv", ["time_s, index, utilization.gpu [%]", *rows])  # as `nvidia-smi --query-gpu` does
    _text(
        run,
        "steps.log",
        [
            f"Iteration({i}): 0 context requests, 0 context tokens, {run.work.batch} generation requests, "
            f"{run.work.batch} generation tokens, iteration elapsed time: {(end - start) / 1e6:.2f} ms"
            for i, (start, end) in enumerate(_spans(recorder), 1)
        ],
    )
    _text(
        run,
        "lab.txt",
        [
            f"fault {run.fault.name}: {run.fault.line}",
            f"clock: {run.clock}",
            *(
                (f"this machine: other programs had it for {run.held_up_fraction:.1%} of the run",)
                if run.clock == "real"
                else ()
            ),
            f"workload: {run.work}",
            f"device: {run.model.name}, a configured model:",
            *(f"  {line}" for line in run.model.described()),
        ],
    )


def _text(run: Run, name: str, lines: list[str]) -> None:
    (run.out / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _spans(recorder: Recorder) -> list[tuple[int, int]]:
    """Start of each step and of the next one; the last one ends by itself."""
    starts = [step.start for step in recorder.steps]
    return list(zip(starts, [*starts[1:], recorder.steps[-1].end], strict=True))


def samples(recorder: Recorder) -> list[int]:
    """Utilization in whole percent, one value a period, as vendor tools define it: the share of the period in
    which a kernel ran. Copies do not count. The last, shorter period is left out unless it is the only
    one."""
    start = recorder.steps[0].start
    kernels = [(row.start - start, row.end - start) for row in recorder.rows if row.category == "kernel"]
    end = max([recorder.steps[-1].end - start, *(e for _, e in kernels)])
    used = [0] * (end // SAMPLE_NS + 1)
    for s, e in kernels:  # one stream: kernels do not overlap
        for i in range(s // SAMPLE_NS, e // SAMPLE_NS + 1):
            used[i] += max(min(e, (i + 1) * SAMPLE_NS) - max(s, i * SAMPLE_NS), 0)
    if len(used) == 1:
        return [round(100 * used[0] / max(end, 1))]
    return [round(100 * ns / SAMPLE_NS) for ns in used[:-1]]
