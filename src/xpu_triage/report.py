"""The report: the triage notebook, executed by papermill and written as one HTML file that needs nothing
outside."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import __version__
from .errors import MissingExtra, TriageError, UnusableInput
from .resources import shipped
from .text import clean, shorten

NOTEBOOK = "00_triage.ipynb"
PARAMETER = "evidence"
VERDICT_TAG, NOTEBOOK_ONLY_TAG = "verdict", "only-in-notebook"
"""Tags of cells: the one that shows the verdict; those that lead to other notebooks or say how to run one."""
TEMPLATES = Path(__file__).parent / "templates"
CELL_TIMEOUT_S = 600

_LAUNCH = """import os, pathlib, runpy, sys
try:
    pathlib.Path(sys.argv.pop(1)).write_text(str(os.getpid()))
except OSError:
    os._exit(1)  # whoever wanted this kernel has ended
runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
"""
"""The kernel's start: it says who it is, so that it can be ended before its folder goes."""


def write_report(evidence: Sequence[str], out: Path, *, baseline: str = "") -> Path:
    """Execute the triage notebook on `evidence` and write it to `out` as one offline HTML file; returns
    `out`.

    The file appears whole or not at all. Raises `MissingExtra` without the `report` extra, `UnusableInput`
    where `out` cannot be written, `TriageError` where the notebook fails.
    """
    out = check_target(evidence, out)
    notebook = execute([str(piece) for piece in evidence], baseline=baseline)
    write_whole(out, to_html(notebook))
    return out


def check_target(evidence: Sequence[str], out: Path) -> Path:
    """Refuse early what a report must not replace: a name that is no HTML file's, a folder, a device, the evidence.

    Returns the file to write, links followed. Raises `MissingExtra` without the `report` extra, `UnusableInput`.
    """
    for package in ("nbconvert", "nbformat", "papermill"):
        if find_spec(package) is None:
            raise MissingExtra(package, "report")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UnusableInput("is no name for a report", where=out, todo="Let it end in .html")
    try:
        target = Path(os.path.realpath(out))  # `resolve` raises at a link to itself
        if target.exists() and not target.is_file():
            raise UnusableInput("is there and is no file", where=out, todo="Name a file for the report")
        if any(str(target) == os.path.realpath(piece) for piece in evidence):
            raise UnusableInput("is the evidence itself", where=out, todo="Name another file for the report")
    except OSError as error:
        raise UnusableInput(f"cannot be written: {error.strerror}", where=out) from None
    return target


def execute(evidence: Sequence[str], *, baseline: str = "") -> Any:
    """The triage notebook (nbformat node) executed on `evidence`, in a kernel of this interpreter."""
    import nbformat
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    path = shipped("notebooks") / NOTEBOOK
    source = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    if PARAMETER not in papermill.inspect_notebook(str(path)):  # papermill itself would only warn
        raise TriageError(
            f"the notebook has no parameter {PARAMETER!r}", where=path, todo="Install xpu-triage again"
        )
    with own_kernel() as name:
        try:
            return papermill.execute_notebook(
                source, None, parameters={PARAMETER: list(evidence), "baseline": baseline}, kernel_name=name,
                language="python", progress_bar=sys.stderr.isatty(), execution_timeout=CELL_TIMEOUT_S)
        except PapermillExecutionError as error:
            told = (
                error.evalue
                if error.ename in ("UnusableInput", "TriageError")
                else f"{error.ename}: {error.evalue}"
            )
            raise TriageError(f"the triage notebook stopped: {told}") from error


@contextmanager
def own_kernel() -> Iterator[str]:
    """The name of a kernel that runs this interpreter and nothing of the user's: no start-up files, no
    other Python that happens to be registered as `python3`, no history left behind. It has ended, and all that it
    and we wrote meanwhile is gone, whatever ends the block."""
    name = "xpu-triage"
    with tempfile.TemporaryDirectory(prefix="xpu-triage-", ignore_cleanup_errors=True) as folder:
        pid = Path(folder, "pid")
        spec = Path(folder, "kernels", name)
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps({
            "argv": [sys.executable, "-c", _LAUNCH, str(pid), "-f", "{connection_file}", "--log-level=50"],
            "display_name": name, "language": "python"}))
        ours = {"JUPYTER_PATH": folder, "JUPYTER_RUNTIME_DIR": str(Path(folder, "runtime")),
                "IPYTHONDIR": str(Path(folder, "ipython")), "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                "MPLBACKEND": "Agg", "TMPDIR": folder}
        before = {key: os.environ.get(key) for key in ours}
        os.environ.update(ours)
        temporary, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield name
        finally:
            _end(pid)
            tempfile.tempdir = temporary
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value


def _end(pid_file: Path) -> None:
    """End the kernel, where it still runs."""
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def to_html(notebook: Any) -> str:
    """An executed notebook as one HTML page: no code, no script, nothing that loads from outside, no link
    that leads out of the page (the files that the notebook links to do not travel with the report)."""
    import nbformat
    from bs4 import BeautifulSoup
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="offline",
        extra_template_basedirs=[str(TEMPLATES)],
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    cells = [cell for cell in notebook.cells if NOTEBOOK_ONLY_TAG not in cell.metadata.get("tags", ())]
    shown = nbformat.from_dict({**notebook, "cells": cells})  # type: ignore[no-untyped-call]
    resources = {"metadata": {"name": page_title(notebook), "footer": f"xpu-triage {__version__}"}}
    body, _ = exporter.from_notebook_node(shown, resources=resources)
    page = BeautifulSoup(body, "html.parser")
    for link in page.find_all("a"):
        if not str(link.get("href", "")).startswith("#"):
            link.unwrap()
    return str(page)


def page_title(notebook: Any) -> str:
    """`xpu-triage: CONFIRMED cpu-fallback, …`: the first two lines of the verdict cell."""
    for cell in notebook.cells:
        if VERDICT_TAG in cell.metadata.get("tags", ()):
            for output in cell.get("outputs", ()):
                text = str(output.get("data", {}).get("text/plain", ""))
                lines = [" ".join(line.split()) for line in text.splitlines()[:2]]
                return shorten(clean(f"xpu-triage: {', '.join(lines)}"), 120)
    return "xpu-triage"


def write_whole(out: Path, text: str) -> None:
    """Write to a neighbour and rename, so that no half report is ever found at `out`."""
    made = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
        ) as f:
            made = Path(f.name)
            f.write(text)
        made.chmod(0o644)
        made.replace(out)
    except OSError as error:
        raise UnusableInput(f"cannot be written: {error.strerror}", where=out) from error
    finally:
        if made is not None:
            made.unlink(missing_ok=True)
