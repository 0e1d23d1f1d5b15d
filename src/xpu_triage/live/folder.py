"""The folder that a recording goes to. Everything that is written passes one function that takes secrets out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from ..errors import UnusableInput

RECORD = "watch.json"


def plain(text: str) -> str:
    return text


class Folder:
    """A new folder, and text files in it. `hide` takes secrets (and with `--redact` names) out of what is written."""

    def __init__(self, path: Path, hide: Callable[[str], str] = plain) -> None:
        self.path, self._hide = path, hide
        self.files: dict[str, int] = {}
        """Files written, by name from here, and how often each was written to."""

    def write(self, name: str, text: str) -> None:
        """One file, whole or not at all."""
        target = self._target(name)
        half = target.with_name(f".{target.name}.half")
        half.write_text(self._hide(text), encoding="utf-8", errors="backslashreplace")
        os.replace(half, target)

    def append(self, name: str, text: str, *, header: str = "") -> None:
        """Whole lines to the end of a file; `header` where it begins."""
        target = self._target(name)
        text = self._hide(header + text if self.files[name] == 1 else text)
        with target.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)

    def hide_again(self, hide: Callable[[str], str]) -> None:
        """Every text that was written once more: what was met late stands in files of before."""
        for name in self.files:
            target = self.path / name
            try:
                before = target.read_bytes().decode("utf-8")
            except (OSError, UnicodeError):  # a copied profile, or gone
                continue
            if (after := hide(before)) != before:
                half = target.with_name(f".{target.name}.half")
                half.write_bytes(after.encode("utf-8"))
                os.replace(half, target)

    def _target(self, name: str) -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files[name] = self.files.get(name, 0) + 1
        return target


def prepared(path: Path) -> Path:
    """`path` as an empty folder. Two recordings in one folder would be read as one load, and an earlier one may be all
    that is left of an incident: so a folder with anything in it is refused, but for one whose recording came to
    nothing. Raises `UnusableInput`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        there = sorted(entry.name for entry in os.scandir(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no file's name can be like this"
        raise UnusableInput(f"cannot be used as a folder: {why}", where=path, todo="Name another") from None
    if there and not (there == [RECORD] and _is_ours(path / RECORD)):
        raise UnusableInput(f"holds {there[0]} already", where=path, todo="A recording needs a new folder")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UnusableInput("no permission to write there", where=path, todo="Name another folder")
    return path


def _is_ours(record: Path) -> bool:
    try:
        with record.open("rb") as file:
            said = json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return False
    # without its length it may be running still
    return isinstance(said, dict) and "watch" in said and said.get("seconds") is not None
