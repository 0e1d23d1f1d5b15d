"""Pieces of a stack as the tools print them: frames, files, processes, without what nobody needs to know.

A file is shortened to what names the code (from `site-packages` on, or its last parts), a process to its pid and
program: arguments of a command line hold keys, host names and paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..samples import Frame, Stack
from ..text import clean, shorten

MAX_STACKS = 100_000
"""Stacks of one file that are kept; a reader that meets more stops there and says so in `notes`."""

MAX_FRAMES = 1_000
"""Frames of one stack that are kept, the innermost: recursion fills the rest."""

MAX_FUNCTION = 2_000
"""Characters of a function's name. C++ templates are that long, and their middle names the operator."""

MAX_SAMPLES = 1 << 48
"""A count beyond that is no count."""

_PARTS = 4
"""Parts of a path outside `site-packages` that are kept: `torch/nn/modules/module.py`."""

_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD = re.compile(r".*/lib/python\d+(?:\.\d+)?t?/")
_HOME = re.compile(r"^(?:[A-Za-z]:)?/(?:(?:home|Users)/[^/]+|root)(?=/)")
_BINARY = re.compile(r"\.(?:so(?:\.[\w.]+)?|dylib|dll|pyd)$|/bin/[^/]+$")
_AT = re.compile(r"^(?P<function>.*\S)\s+\((?P<file>.*?)(?::(?P<line>\d{1,9}))?\)$", re.S)
_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*t?(?:\.exe)?$", re.I)


def short_file(path: str) -> str:
    """`path` from the package on; binaries by name alone; other files by their last parts, home folders left out.

    >>> short_file("/home/ann/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py")
    'vllm/v1/worker/gpu_worker.py'
    """
    path = path.strip().replace("\\", "/")
    if path.startswith("<") or "/" not in path:
        return clean(shorten(path, 200))
    if _BINARY.search(path):
        return clean(shorten(path.rpartition("/")[2], 200))
    for known in (_PACKAGES, _STANDARD):
        if match := known.match(path):
            return clean(shorten(path[match.end():], 200))
    if (absolute := path.startswith("/") or path[1:3] == ":/") or path.startswith("~/"):
        path = _HOME.sub("", path.removeprefix("~")) if absolute else path[2:]
        path = "/".join(part for part in path.split("/")[-_PARTS:] if part and not part.endswith(":"))
    return clean(shorten(path, 200))


def frame(function: str, file: str = "", line: object = None) -> Frame:
    """A frame, cleaned. A line of 0 is how a tool says that it knows none."""
    known = isinstance(line, int) and not isinstance(line, bool) and 0 < line < 10 ** 9
    return Frame(clean(shorten(function, MAX_FUNCTION)), short_file(file),
                 line if known else None)  # type: ignore[arg-type]


def parse_frame(text: str) -> Frame | None:
    """`function (file:line)`, `function (file)` or a symbol `function (library.so)`; None where it is none of them."""
    text = text.strip()
    start = text.rfind(" (")
    if start < 0 or not text.endswith(")"):
        return None
    match = _AT.match(f"{text[:start].rstrip()} {text[start + 1:]}")
    if match is None or not match["file"].strip():
        return None
    return frame(match["function"], match["file"], int(match["line"]) if match["line"] else None)


def process_name(pid: object, title: str = "") -> str:
    """Pid and program: a title that a process gave itself, the module or script that Python runs, or the program.

    >>> process_name(7, "/usr/bin/python3 -m vllm.entrypoints.openai.api_server --api-key sk-1")
    '7 vllm.entrypoints.openai.api_server'
    """
    return clean(f"{pid} {_program(title)}".strip())


def _program(title: str) -> str:
    words = title.strip().strip('"').split()
    if not words:
        return ""
    first = _last_part(words[0])
    if not _PYTHON.match(first):
        return shorten(first, 80)
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return shorten(next(rest, first), 80)
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, "")
        elif not word.startswith("-"):
            return shorten(_last_part(word), 80)
        elif word.startswith("-c"):
            break                                       # what follows is a program, not its name
    return first


def _last_part(word: str) -> str:
    return word.replace("\\", "/").rstrip("/").rpartition("/")[2] or word


def stack(process: str, thread: str, active: bool | None, holds_gil: bool | None, frames: Iterable[Frame],
          samples: int = 1) -> Stack:
    """A stack of at most MAX_FRAMES frames, given innermost first."""
    return Stack(process, clean(shorten(thread.strip(), 120)), active, holds_gil, tuple(frames)[:MAX_FRAMES], samples)
