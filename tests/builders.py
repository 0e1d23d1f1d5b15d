"""Small traces written row by row, in microseconds, as a person would draw them."""

from __future__ import annotations

from typing import Any

import numpy as np

from xpu_triage.trace import BEFORE_CAPTURE, NOT_LINKED, Counts, Kind, Trace

US = 1000
"""ns in the unit of the builders."""


class Rows:
    """Collects rows in any order; `trace()` sorts them and joins the launches.

    Every method returns a handle of its row, to be given as `by=` to the device work that it launches.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def _add(self, kind: Kind, name: str, start: float, dur: float, **more: Any) -> int:
        self._rows.append({"kind": kind, "name": name, "start": start, "dur": dur, **more})
        return len(self._rows) - 1

    # -- the host
    def op(self, name: str, start: float, dur: float, thread: str = "main") -> int:
        return self._add(Kind.HOST_OP, name, start, dur, thread=thread)

    def python(self, name: str, start: float, dur: float, thread: str = "main") -> int:
        return self._add(Kind.PYTHON, name, start, dur, thread=thread)

    def annotation(self, name: str, start: float, dur: float, thread: str = "main") -> int:
        return self._add(Kind.ANNOTATION, name, start, dur, thread=thread)

    def overhead(self, name: str, start: float, dur: float, thread: str = "main") -> int:
        return self._add(Kind.OVERHEAD, name, start, dur, thread=thread)

    def call(self, name: str, start: float, dur: float, thread: str = "main", blocking: bool = False) -> int:
        return self._add(Kind.RUNTIME, name, start, dur, thread=thread, blocking=blocking)

    def sync(self, start: float, dur: float, name: str = "cudaStreamSynchronize",
             thread: str = "main") -> int:
        return self.call(name, start, dur, thread, blocking=True)

    # -- the device
    def kernel(self, name: str, start: float, dur: float, by: int = NOT_LINKED, device: str = "0",
               stream: str = "7", kind: Kind = Kind.KERNEL) -> int:
        return self._add(kind, name, start, dur, by=by, device=device, stream=stream)

    def copy(self, name: str, start: float, dur: float, by: int = NOT_LINKED, device: str = "0",
             stream: str = "7") -> int:
        return self.kernel(name, start, dur, by, device, stream, Kind.COPY)

    def comm(self, name: str, start: float, dur: float, by: int = NOT_LINKED, device: str = "0",
             stream: str = "20") -> int:
        return self.kernel(name, start, dur, by, device, stream, Kind.COMM)

    def launch(self, at: float, kernel: str, start: float, dur: float, *, call_dur: float = 4,
               call: str = "cudaLaunchKernel", thread: str = "main", device: str = "0", stream: str = "7",
               kind: Kind = Kind.KERNEL) -> int:
        """A launch call at `at` and the device work that it launches. The handle is that of the call."""
        handle = self.call(call, at, call_dur, thread)
        self.kernel(kernel, start, dur, handle, device, stream, kind)
        return handle

    def down(self, at: float, start: float, dur: float, *, call_dur: float, blocking: bool = True,
             thread: str = "main") -> int:
        """A copy from the device to the host, and the call that makes it."""
        handle = self.call("cudaMemcpyAsync", at, call_dur, thread, blocking)
        self.copy("Memcpy DtoH (Device -> Pageable)", start, dur, handle)
        return handle

    def up(self, at: float, start: float, dur: float, *, call_dur: float = 4, blocking: bool = False,
           thread: str = "main") -> int:
        """A copy from the host to the device, and the call that makes it."""
        handle = self.call("cudaMemcpyAsync", at, call_dur, thread, blocking)
        self.copy("Memcpy HtoD (Pageable -> Device)", start, dur, handle)
        return handle

    def trace(self, **fields: Any) -> Trace:
        """The trace, its first row at 0."""
        rows = self._rows
        order = sorted(range(len(rows)), key=lambda i: rows[i]["start"])
        place = {handle: at for at, handle in enumerate(order)}
        place |= {NOT_LINKED: NOT_LINKED, BEFORE_CAPTURE: BEFORE_CAPTURE}
        rows = [rows[i] for i in order]
        start = np.array([round(r["start"] * US) for r in rows], np.int64)
        on_device = np.array([r["kind"] >= Kind.KERNEL for r in rows], np.bool_)
        names, name = _coded([r["name"] for r in rows])
        devices, device = _coded([r.get("device") for r in rows])
        streams, stream = _coded([f"{r['device']}:{r['stream']}" if "stream" in r else None for r in rows])
        threads, thread = _coded([r.get("thread") for r in rows])
        launch = np.array([place[r["by"]] if "by" in r else -1 for r in rows], np.int64)
        return Trace(**{
            "start": start - (start.min() if len(start) else 0),
            "dur": np.array([round(r["dur"] * US) for r in rows], np.int64),
            "name": name, "kind": np.array([r["kind"] for r in rows], np.int8),
            "device": device, "stream": stream, "thread": thread,
            "correlation": np.where(on_device, launch + 1, np.arange(1, len(rows) + 1)),
            "launch": launch,
            "blocking": np.array([r.get("blocking", False) for r in rows], np.bool_),
            "names": names, "devices": devices, "streams": streams, "threads": threads,
            "counts": Counts(events=len(rows), kept=len(rows)), "source": "drawn.json", "format": "drawn",
            **fields})


def _coded(words: list[str | None]) -> tuple[tuple[str, ...], np.ndarray[Any, np.dtype[np.int32]]]:
    """Words in order of first sight, and every row's number (-1 for None)."""
    codes: dict[str, int] = {}
    numbers = [-1 if word is None else codes.setdefault(word, len(codes)) for word in words]
    return tuple(codes), np.array(numbers, np.int32)
