"""A notebook's parameters: which there are, what was given, and what evidence they name."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..diagnosis import Diagnosis
from ..diagnosis import diagnose as _diagnose
from ..errors import UnusableInput
from ..resources import shipped
from ..text import clean

SEPARATOR = ";"
"""Between several pieces of evidence in one parameter."""

INJECTED = "# Parameters"
"""First line of the cell that papermill writes with the parameters it was given."""

INCIDENT = Path("incidents", "p800-exponential-fallback")


def incident(name: str) -> str:
    """The path of one file of the incident evidence that ships with the project."""
    return str(shipped("playbook") / INCIDENT / name)


def check_parameters(namespace: Mapping[str, Any]) -> None:
    """Refuse parameters that the notebook does not have.

    papermill only warns of a wrong name and then runs with the default: the reader would get a verdict on
    other evidence than they asked for. `namespace` is the notebook's ``globals()``; the names it declares
    are those assigned in its first cell. Raises `UnusableInput` with the nearest name.
    """
    cells = [source for source in namespace.get("In", ()) if source.strip()]
    declared = _assigned(cells[0]) if cells else {}
    for source in cells:
        if source.startswith(INJECTED):
            check_names(_assigned(source), declared)


def check_names(given: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Refuse names and types that are not `declared` (name to default value)."""
    for name, value in given.items():
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1, cutoff=0.5)
            known = ", ".join(declared) or "none"
            raise UnusableInput(f"unknown parameter {name!r}",
                                todo=f"Did you mean {near[0]!r}?" if near else f"Parameters here: {known}")
        if not _fits(value, declared[name]):
            raise UnusableInput(f"parameter {name!r} is {value!r}, a {type(value).__name__}",
                                todo=f"It takes a {type(declared[name]).__name__}")


def _fits(value: Any, default: Any) -> bool:
    """Whether a value may take a default's place. papermill makes numbers of what looks like one: a pid, whole
    seconds."""
    if isinstance(default, str):
        return type(value) is int or (isinstance(value, str | list) and all(isinstance(item, str) for item in value))
    return type(value) is type(default) or (isinstance(default, float) and type(value) is int)


def _assigned(source: str) -> dict[str, Any]:
    """Names and literal values that a cell assigns at its top level."""
    found: dict[str, Any] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id: ast.literal_eval(node.value) for t in targets if isinstance(t, ast.Name)}
    return found


def pieces(evidence: str | int | Sequence[str]) -> list[str]:
    """The pieces of evidence that a parameter names: a list as it is, a text cut at ``;`` if it is no path.

    >>> pieces("trace.json.gz; sheet.yaml")
    ['trace.json.gz', 'sheet.yaml']
    """
    if isinstance(evidence, int):
        return [str(evidence)]
    if not isinstance(evidence, str):
        return [piece for piece in evidence if piece.strip()]
    if not evidence.strip() or Path(evidence).exists():
        return [evidence] if evidence.strip() else []
    return [piece.strip() for piece in evidence.split(SEPARATOR) if piece.strip()]


def diagnose(evidence: str | int | Sequence[str] = "", *, server: str = "", pid: str | int = "",
             seconds: float = 30, baseline: str = "") -> Diagnosis:
    """Walk the evidence that a parameter names; the incident trace that ships where nothing is named.

    With a `server` (URL) or a `pid` (or `auto`) they are watched for `seconds` first. The record stays in a folder
    `watch-<UTC>` here, so that the verdict can be had again without them. A `baseline` file says what was normal.
    """
    given = pieces(evidence)
    if server or pid:
        given.append(str(_watched(server, str(pid), seconds)))
    return _diagnose(*(given or [incident("faulty.json.gz")]), baseline=baseline or None)


def _watched(server: str, pid: str, seconds: float) -> Path:
    from ..live.watch import record_into

    out = Path(datetime.now(UTC).strftime("watch-%Y%m%dT%H%M%SZ"))
    print(f"watching for {seconds:g} s, into {out}")
    recording = record_into(out, server=server, pid=pid, seconds=seconds)
    for line in (*recording.said, *recording.notes):
        print(clean(f"watch: {line}"))
    return out
