"""What the rows of an Nsight Systems export are called: texts by their ids, spelled as a PyTorch trace spells them.

One way of spelling, so that the patterns of the steps fit the traces of both profilers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...text import clean
from ...trace import Ints, Kind
from ..sqlite_file import MISSING, Database

Codes = NDArray[np.int32]

_VERSIONED = re.compile(r"(_ptsz|_ptds)?_v\d{4,5}$|_pt(sz|ds)$")
"""`cudaLaunchKernel_v7000`, `cudaMemcpy_ptds_v7000`: the CUDA version that a signature dates from, and the stream that
stands for none. `_v2` is part of a name (`cuMemcpyDtoH_v2`)."""

_OF_OPERATOR = re.compile(r", (?:stashed )?(seq|op_id|sizes|input_op_ids) = ")
"""What `torch.autograd.profiler.emit_nvtx` appends to the name of an operator, and of a user's `record_function`:
`aten::addmm, seq = 45339, op_id = 990761, sizes = [[640, 256]]`. Only an operator has a place in autograd (`seq`)."""

_OPERATOR = re.compile(r"[A-Za-z_][\w.]*::[\w.]+$|autograd::engine::evaluate_function: ")

_WAYS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
         10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD"}
"""ENUM_CUDA_MEMCPY_OPER: CUpti_ActivityMemcpyKind, and from 11 on migrations of unified memory."""

_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
"""ENUM_CUDA_MEM_KIND; not CUPTI's own numbers."""

_WAY = re.compile(r"(UVM_)?([HDAP])TO([HDAP])$")

_WAITS = re.compile(
    r"(poll|ppoll|epoll_p?wait2?|p?select|pause|(u|nano|clock_nano)?sleep|futex(_wait)?|accept4?|recv(from|m?msg)?"
    r"|sem_(wait|timedwait|clockwait)|pthread_(cond_(wait|timedwait|clockwait)|join|timedjoin_np|barrier_wait)"
    r"|sigwait\w*|sigtimedwait|wait(pid|id|[34])?|mq_(timed)?receive|msgrcv)(64|_nocancel|@.*)?$")
"""Calls in which a thread waits for somebody else. Reading a file or taking a lock is no such call."""


class Names:
    """Codes of names, cleaned; the same name has one code, whichever table it came from."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._raw: dict[str, int] = {}

    def code(self, name: str) -> int:
        """The code of a name, as it stands in the file."""
        found = self._raw.get(name)
        if found is None:
            found = self._raw[name] = self._codes.setdefault(clean(name), len(self._codes))
        return found

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def codes(self, ids: Ints, name_of: Callable[[int], str]) -> Codes:
        """int32, the code of each id's name. `name_of` is asked once an id."""
        distinct, which = np.unique(ids, return_inverse=True)
        return np.array([self.code(name_of(i)) for i in distinct.tolist()], np.int32)[which]


class Strings:
    """The texts of `StringIds` that are asked for. Those of a large export fill the memory, and few are names."""

    def __init__(self, database: Database, wanted: Ints) -> None:
        self._text: dict[int, str] = {}
        self.present = "StringIds" in database.columns
        self._known = np.zeros(0, np.int64)
        wanted = np.unique(wanted[wanted != MISSING])
        if not len(wanted):
            return
        for (ids,), texts in database.batches("StringIds", ("id",), "value"):
            place = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
            for i in np.flatnonzero(wanted[place] == ids).tolist():
                self._text[int(ids[i])] = texts[i]
        self._known = np.array([i for i, text in self._text.items() if text], np.int64)

    def __call__(self, number: int) -> str:
        return self._text.get(number) or ("(unnamed)" if number == MISSING else f"(name {number} is not in the file)")

    def has(self, number: int) -> bool:
        return bool(self._text.get(number))

    def first_known(self, *columns: Ints) -> Ints:
        """Of several ids a row the first that has a text; the first of all where none has."""
        out = columns[0].copy()
        for other in columns[1:]:
            lacking = ~np.isin(out, self._known) & np.isin(other, self._known)
            out[lacking] = other[lacking]
        return out


def call_name(name: str) -> str:
    """A CUDA call without the version of its signature.

    >>> call_name("cudaMemcpy_ptds_v7000"), call_name("cudaStreamGetCaptureInfo_v2_v11030"), call_name("cuMemFree_v2")
    ('cudaMemcpy', 'cudaStreamGetCaptureInfo_v2', 'cuMemFree_v2')
    """
    return _VERSIONED.sub("", name)


def range_name(text: str) -> tuple[str, Kind]:
    """Name and kind of an NVTX range: an operator as PyTorch marks it, else an annotation.

    >>> range_name("aten::addmm, seq = 45339, op_id = 990761")
    ('aten::addmm', <Kind.HOST_OP: 0>)
    >>> range_name("FSDP::pre_forward (blocks.3), op_id = 12")
    ('FSDP::pre_forward (blocks.3)', <Kind.ANNOTATION: 3>)
    """
    mark = _OF_OPERATOR.search(text)
    name = text[:mark.start()] if mark else text
    operator = _OPERATOR.match(name) or (mark and mark[1] == "seq")
    return name, Kind.HOST_OP if operator else Kind.ANNOTATION


class RangeNames:
    """`range_name`, each name cut once: an operator's texts differ in the numbers behind its name alone."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Kind]] = {}

    def __call__(self, text: str) -> tuple[str, Kind]:
        head, equals, _ = text.partition(" = ")
        key = head + equals
        found = self._known.get(key)
        if found is None:
            found = range_name(text)
            if not equals or found[0] == head.rpartition(", ")[0]:
                self._known[key] = found
        return found


def os_call_name(name: str) -> str:
    """A call of the operating system's libraries; said to wait where that is all it does.

    >>> os_call_name("pthread_cond_timedwait"), os_call_name("read")
    ('pthread_cond_timedwait: waiting', 'read')
    """
    return f"{name}: waiting" if _WAITS.match(name) else name


class CopyNames:
    """Names of copies and memory sets, by the numbers of the file's own enumerations where it has them."""

    def __init__(self, ways: dict[int, str], memory: dict[int, str]) -> None:
        self._way, self._memory = dict(_WAYS), dict(_MEMORY)
        for number, name in ways.items():
            found = _WAY.search(name)
            self._way[number] = f"{'UVM ' if found[1] else ''}{found[2]}to{found[3]}" if found else ""
        for number, name in memory.items():
            word = name.rpartition("_KIND_")[2].replace("_", " ").title()
            self._memory[number] = "" if word == "Unknown" else word

    def copy(self, kind: int, source: int, target: int) -> str:
        """`Memcpy HtoD (Pageable -> Device)`, as far as the numbers tell.

        >>> names = CopyNames({}, {})
        >>> names.copy(2, 2, 0), names.copy(11, MISSING, MISSING), names.copy(99, 0, 2)
        ('Memcpy DtoH (Device -> Pageable)', 'Memcpy HtoD (unified memory)', 'Memcpy (Pageable -> Device)')
        """
        way = self._way.get(kind, "")
        ends = [self._memory.get(end, "") for end in (source, target)]
        between = f" ({ends[0]} -> {ends[1]})" if all(ends) else ""
        if way.startswith("UVM "):
            return f"Memcpy {way.removeprefix('UVM ')} (unified memory)"
        return f"Memcpy {way}{between}" if way else f"Memcpy{between}"

    def memset(self, kind: int) -> str:
        """`Memset (Device)`."""
        return f"Memset ({self._memory[kind]})" if self._memory.get(kind) else "Memset"
