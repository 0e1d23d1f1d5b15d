"""Log lines of the lab server, one an iteration, as vLLM writes them with `--enable-logging-iteration-details`."""

from __future__ import annotations

import time
from os import PathLike
from typing import Any

from ..errors import UnusableInput
from .scheduler import Plan

MAX_LINES = 1_000_000
"""Some 200 MB; the last line says that it is the last."""


class IterationLog:
    """Appends to a file, line by line. Raises `UnusableInput` where it cannot be written."""

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed with the server
        except OSError as error:
            raise UnusableInput(f"cannot be written: {error.strerror}", where=path, todo="Name a file") from error
        self._lines = 0

    def iteration(self, plan: Plan[Any], elapsed_s: float, kv_usage_fraction: float) -> None:
        if self._lines >= MAX_LINES or self._file.closed:
            return
        self._write(
            f"Iteration({self._lines}): {len(plan.prefills)} context requests, {plan.prefill_tokens} context tokens, "
            f"{len(plan.decodes)} generation requests, {len(plan.decodes)} generation tokens, iteration elapsed time: "
            f"{elapsed_s * 1e3:.2f} ms, GPU KV cache usage: {100 * kv_usage_fraction:.1f}%")
        self._lines += 1
        if self._lines == MAX_LINES:
            self._write(f"{MAX_LINES} iterations are logged, no more will be")

    def close(self) -> None:
        self._file.close()

    def _write(self, text: str) -> None:
        self._file.write(f"INFO {time.strftime('%m-%d %H:%M:%S')} [iteration_log.py] Engine 000: {text}\n")
