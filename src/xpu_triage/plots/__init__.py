"""Pictures of a diagnosis. Each takes a `Diagnosis` and returns a `Picture`: a PNG and its finding in words.

Pictures need no display and are the same byte for byte each time. Where the evidence gives nothing to draw
the picture says why. matplotlib is imported when the first one is drawn.
"""

from .bisection import waterfall
from .canvas import Picture
from .device_lanes import lanes
from .over_time import utilization
from .series import step_times

__all__ = ["Picture", "lanes", "step_times", "utilization", "waterfall"]
