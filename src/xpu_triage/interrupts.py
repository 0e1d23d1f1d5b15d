"""Ctrl-C and SIGTERM, from the first moment to the last: one line and an exit code, never a traceback.

Imports next to nothing: it is loaded before everything that takes time to load.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes as a shell gives them: 128 and the signal's number."""

_SAID = {signal.SIGINT: (b"interrupted", INTERRUPTED), signal.SIGTERM: (b"terminated", TERMINATED)}


class Terminated(KeyboardInterrupt):
    """SIGTERM. It ends what Ctrl-C ends, and what is temporary is cleared away as after Ctrl-C."""


_last: list[int] = []
"""Signals that were met. One that falls into an import may come out of it as another error."""


def end_at_once() -> None:
    """Until `end_in_order` is called a signal ends the process: nothing is open yet that would have to be closed."""
    _handle(_leave)


def end_in_order() -> None:
    """From here on a signal raises `KeyboardInterrupt` or `Terminated` in the main thread."""
    sys.unraisablehook = _raise_again
    _handle(_raise)


def run(command: Callable[[], int]) -> int:
    """The exit code of `command`, where signals have been met as `end_in_order` says. Once it is over, one that comes
    while the interpreter shuts down changes nothing any more."""
    try:
        return _run(command)
    finally:
        _handle(signal.SIG_IGN)


def _run(command: Callable[[], int]) -> int:
    try:
        return command()
    except KeyboardInterrupt as error:
        return said(error)
    except (ImportError, SystemError):  # extension modules turn an interrupt into one of these
        if not _last:
            raise
        return _say(_last[-1])


def said(error: KeyboardInterrupt) -> int:
    """Say that it is over, in one line; the exit code."""
    return _say(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def _say(number: int) -> int:
    word, code = _SAID[signal.Signals(number)]
    with contextlib.suppress(OSError):
        os.write(2, b"xpu-triage: " + word + b"\n")
    return code


def _leave(number: int, _: FrameType | None) -> None:
    _handle(signal.SIG_IGN)
    os._exit(_say(number))


def _raise(number: int, _: FrameType | None) -> None:
    _last.append(number)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """A signal that fell into a finalizer, which can raise nothing: it is delivered once more, a moment later."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _thread.start_new_thread(_again, (_last[-1] if _last else signal.SIGINT,))
    else:
        sys.__unraisablehook__(unraisable)


def _again(number: int) -> None:
    time.sleep(0.01)
    _thread.interrupt_main(signal.Signals(number))


def _handle(how: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _SAID:
        # ignored by whoever started us (`nohup`, a job in the background): it stays ignored
        if signal.getsignal(number) is not signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, how)
