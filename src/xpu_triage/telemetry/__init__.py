"""From telemetry to signals: pure functions, one kind of evidence a module. `telemetry.measure` is all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..baseline.records import BenchRecord
    from ..samples import Telemetry
    from .measured import Measured


def measure(telemetry: Telemetry, speaks: BenchRecord | None = None) -> Measured:
    """All signals of this telemetry, of the device, the server, its log, stacks, processes and the load generator. The
    first to give a signal comes first. `speaks`: of several loads of the generator the one to take, where a baseline
    tells. The modules are loaded where there is telemetry: a trace alone needs none of them."""
    from .measured import Measured, joined

    if not telemetry:
        return Measured()
    from ..baseline import signals as bench
    from . import devices, exporters, iterations, processes, serving, stacks
    from .load import busy_spans

    spans = busy_spans(telemetry.scrapes)
    on_device = (*telemetry.samples, *exporters.device_samples(telemetry.scrapes))
    return joined((
        devices.measure(on_device, busy_spans=spans),
        serving.measure(telemetry.scrapes),
        iterations.measure(telemetry.logs),
        stacks.measure(telemetry.stacks),
        processes.measure(telemetry.samples, busy_spans=spans),
        bench.measure(telemetry.benches, speaks),
    ))

