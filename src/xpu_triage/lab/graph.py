"""A captured graph: operations recorded once, launched again and again with one call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .cost_model import NS_PER_US
from .engine import ENGINE, Task


class Graph:
    """Operations of one capture, over the same memory each time. Inputs are changed by writing into them.

    graph = Graph()
    with graph.capture():
        logits = model(ids)          # nothing runs yet
    graph.replay()                   # now it does
    """

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Operations inside are recorded and do not run. A sync inside raises, as it does on any device."""
        if ENGINE.capture is not None:
            raise RuntimeError("a graph is being captured already")
        ENGINE.capture = self._tasks
        try:
            yield
        finally:
            ENGINE.capture = None
        if ENGINE.loaded is not None:
            started = ENGINE.clock.now()
            ENGINE.clock.wait_until(started + int(ENGINE.model.graph_build_ms * NS_PER_US * 1000))
            ENGINE.recorder.call("xpulabGraphInstantiate", started, ENGINE.clock.now())

    def replay(self) -> None:
        ENGINE.replay(self._tasks)
