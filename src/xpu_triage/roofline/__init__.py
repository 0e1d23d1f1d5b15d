"""What the hardware allows: the least that a step must read and compute, against what a device can."""

from __future__ import annotations

from .config_json import matches, read, shape_of
from .devices import Device
from .floors import Load, Reads, UnknownFloorError, decode_operations, decode_reads, prefill_operations
from .measure import Given, measure
from .model_shape import ModelShape

__all__ = ["Device", "Given", "Load", "ModelShape", "Reads", "UnknownFloorError", "decode_operations", "decode_reads",
           "matches", "measure", "prefill_operations", "read", "shape_of"]
