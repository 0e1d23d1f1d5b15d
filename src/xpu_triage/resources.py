"""Files that ship with the package: the playbook and the notebooks."""

from __future__ import annotations

from pathlib import Path

from .errors import TriageError

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """The folder `name` (`playbook`, `notebooks`): inside an installed wheel, or at the top of a checkout.

    Raises `TriageError` where neither holds it.
    """
    for folder in (_PACKAGE / "_shipped" / name, _PACKAGE.parents[1] / name):
        if folder.is_dir():
            return folder
    raise TriageError(f"the package's own {name!r} folder is missing", where=_PACKAGE,
                      todo="Install xpu-triage again")
