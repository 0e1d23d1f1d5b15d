"""PyTorch, or one line that says why not: for all parts of this package that need it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import MissingExtra, TriageError


@contextmanager
def torch_or_one_line() -> Iterator[None]:
    """`with torch_or_one_line(): import torch`, or import what imports it.

    Raises `MissingExtra` where torch is not installed, and `TriageError` where torch_npu is and CANN is not:
    torch_npu has `import torch` load it, and without CANN's libraries torch then fails with it. Any other
    failure goes through as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "lab") from error
    except (ImportError, RuntimeError) as error:
        if "torch_npu" not in f"{error} {error.__cause__}":
            raise
        raise TriageError(
            "torch_npu is installed but cannot load, and torch with it: CANN is not set up in this environment",
            todo="Source CANN's set_env.sh, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to use torch without the NPU",
        ) from error
