"""The claim "this reads nothing back" proved without hardware: the code runs on tensors that hold no
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from torch.utils._python_dispatch import TorchDispatchMode

from ..text import clean
from . import operators
from .backends import Dispatch
from .rules import COPIES, MAY_READ, WITHOUT_VALUES, blocking_copy, overload
from .sites import UNKNOWN, Site, caller, site_of, site_of_traceback

_Mode: Any = TorchDispatchMode

CANNOT_SEE = (
    "other paths through the code than the one that these arguments take",
    "what kernels and libraries do inside; operators known for it make the outcome undecided",
    "a non-blocking copy that waits all the same, because its host memory is not pinned",
)


@dataclass(frozen=True)
class Proof:
    """What came of a run without values. True as a condition only where it is proved."""

    outcome: Literal["proved", "refuted", "undecided"]
    reason: str
    device: str
    site: Site | None = None
    """Where a value was asked for, or where the run failed."""
    cannot_see: tuple[str, ...] = CANNOT_SEE

    def __bool__(self) -> bool:
        return self.outcome == "proved"

    def __str__(self) -> str:
        where = [f"  {self.site}", f"      {self.site.text}"] if self.site is not None else []
        lines = [f"{self.outcome} on {self.device}: {self.reason}", *where, "this does not cover"]
        lines += [f"  {gap}" for gap in self.cannot_see]
        return "\n".join(clean(line) for line in lines)

    __repr__ = __str__


@dataclass
class _First:
    """Hears of the first read-back, those included that fail for want of a value."""

    attempts: bool = True
    call: str | None = None
    site: Site | None = None
    skip: tuple[str, ...] = ()

    def heard(self, call: str, device: str, count: int, wait_ns: int | None) -> None:
        if self.call is None:
            self.call, self.site = call, site_of(caller(), self.skip)

    def heard_elsewhere(self) -> None:
        pass


class _Kernels(_Mode):  # type: ignore[misc]
    """Hears of what kernels read, by their operators, because on tensors without values they do not run."""

    def __init__(self, first: _First) -> None:
        super().__init__()
        self._first = first
        self.doubt, self.doubt_site = "", UNKNOWN

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        rule = _KERNELS.get(func)
        if rule is not None and rule(args, kwargs or {}):
            self._first.heard(name, "", 1, None)
        copy = blocking_copy(func, args, kwargs or {}) if func in _COPIES else None
        if copy is not None:
            self._first.heard(*copy, 1, None)
        if not self.doubt and name.partition("::")[2] in MAY_READ:
            self.doubt, self.doubt_site = name, site_of(caller(), self._first.skip)
        return func(*args, **(kwargs or {}))


_COPIES = {overload(name) for name in COPIES}
_KERNELS = {overload(name): rule for name, rule in WITHOUT_VALUES.items()}


def prove_no_sync(
    function: Callable[..., object],
    arguments: Callable[[str], Iterable[Any]],
    device: str = "cpu",
    *,
    skip: Iterable[str] = (),
) -> Proof:
    """Run `function(*arguments(device))` on FakeTensors: shapes, dtypes and devices without memory.

    `arguments` builds them under the fake mode, outside of what is proved; 256 × 152,000 logits cost
    nothing. Tensors made before hold values and are refused. *Proved*: it ran to its end, so no value can
    have been looked at. *Refuted*: it asked for one. *Undecided*: it failed for another reason, or used an
    operator that may read inside its kernel; count on CPU tensors then. CPU tensors stand in for a device's;
    another `device` takes its own branches of the code (`"cuda:0"` needs a build of torch with CUDA).
    """
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    skip = tuple(skip)
    first = _First(skip=skip)
    kernels = _Kernels(first)
    failure: Exception | None = None
    with FakeTensorMode():
        given = tuple(arguments(device))
        with _listening(first, device), kernels:
            try:
                function(*given)
            except Exception as error:
                failure = error
    if first.call is not None:
        return Proof("refuted", f"{first.call} makes the host wait", device, first.site)
    if failure is None and kernels.doubt:
        return Proof("undecided", f"{kernels.doubt} may look at values in its kernel", device, kernels.doubt_site)
    if failure is None:
        return Proof("proved", "it ran to its end, and no tensor had a value", device)
    site = site_of_traceback(failure.__traceback__, skip)
    if isinstance(failure, (DataDependentOutputException, DynamicOutputShapeException)):
        return Proof("refuted", f"{failure.func} makes the host wait", device, site)
    return Proof("undecided", f"{type(failure).__name__}: {_first_line(failure)}", device, site)


@contextmanager
def _listening(first: _First, device: str) -> Iterator[None]:
    backend = Dispatch()
    backend.start(first)
    try:
        with operators.watching_waits_of(device.partition(":")[0]):
            yield
    finally:
        backend.stop(first)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
