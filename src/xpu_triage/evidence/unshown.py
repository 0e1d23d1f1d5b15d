"""Signals that a capture cannot give though its rows look as if, by what it lacks: the keys of `Trace.cannot`."""

from __future__ import annotations

SYNCS = ("sync.per_step", "sync.wait_fraction", "sync.gain_bound_fraction")
"""Without the calls that wait, or without their names."""

WAITS = ("idle.after_sync_fraction", "idle.launching_fraction", "idle.turnaround_fraction", "host.top_op",
         "host.top_op_fraction", "host.top_op_ms", "device.copy_wait_fraction")
"""The same: work of the host cannot be told from waiting for the device."""

LAUNCHES = ("kernel.launch_to_start_us", "kernel.graph_fraction", "host.launch_us")
"""Without the calls that launch."""

FALLBACKS = ("fallback.op", "fallback.fraction")
"""Without copies that say where they go, who asked for them, or on which kind of core a kernel ran."""
