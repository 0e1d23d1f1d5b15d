"""Steps, threads, nesting and failures: what is counted, to whom it is counted, and what is said about it."""

from __future__ import annotations

import copy
import threading
import warnings
from pathlib import PurePath
from types import FunctionType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from sync_cases import NONE, ONE, Data
from xpu_triage.errors import TriageError
from xpu_triage.syncs import count_syncs, describe_backends
from xpu_triage.syncs.sites import UNKNOWN, caller, site_of

X = torch.arange(3.0)


def read(times: int = 1) -> None:
    for _ in range(times):
        X.sum().item()


READS_AT = read.__code__.co_firstlineno + 2


# ---- steps


def test_syncs_belong_to_the_step_that_ends_after_them():
    with count_syncs("dispatch") as syncs:
        read(2)
        syncs.step()
        syncs.step()
        read(3)
        syncs.step()
        read()
    assert (syncs.by_step, syncs.rest, syncs.total) == ((2, 0, 3), 1, 6)
    assert syncs.per_step == pytest.approx(5 / 3)
    (row,) = syncs.rows
    assert (row.steps, row.count, row.call) == ((2, 0, 3), 6, "aten::item")


def test_without_a_mark_a_rate_is_unknown_and_not_zero():
    with count_syncs("dispatch") as syncs:
        read()
    assert (syncs.per_step, syncs.by_step, syncs.rest) == (None, (), 1)
    assert "1 sync, no step was marked" in str(syncs)


def test_iterations_are_steps_and_a_broken_one_is_not():
    with count_syncs("dispatch") as syncs:
        for i in syncs.steps(range(5)):
            read(i)
            if i == 3:
                break
    assert (syncs.by_step, syncs.rest) == ((0, 1, 2), 3)


NAMES = sorted(n for n in ONE | NONE if n not in ("synchronize", "assigning tensors", "writing by positions"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=6), max_size=5), st.lists(st.sampled_from(NAMES), max_size=3))
def test_any_mixture_of_reading_and_other_lines_adds_up(steps, rest):
    cases = ONE | NONE
    with warnings.catch_warnings(), count_syncs("dispatch") as syncs:
        warnings.simplefilter("ignore")
        for names in syncs.steps(steps):
            for name in names:
                cases[name](Data.on("cpu"))
        for name in rest:
            cases[name](Data.on("cpu"))
    uploads = 6 * len(rest) + 6 * sum(map(len, steps))  # `Data.on` says `.to("cpu")`, which counts
    assert syncs.total - uploads == sum(name in ONE for names in (*steps, rest) for name in names)
    assert syncs.by_step == tuple(sum(name in ONE for name in names) + 6 * len(names) for names in steps)
    assert sum(syncs.by_site.values()) == sum(row.count for row in syncs.rows) == syncs.total
    assert all(sum(row.steps) <= row.count for row in syncs.rows)


def test_sites_are_apart_and_the_most_frequent_comes_first():
    with count_syncs("dispatch") as syncs:
        read(2)
        bool(X.any())
    first, second = syncs.rows
    assert (first.count, first.site.line, first.site.function) == (2, READS_AT, "read")
    assert second.site.function == "test_sites_are_apart_and_the_most_frequent_comes_first"
    assert first.site.file == second.site.file == __file__


# ---- the report


def test_the_report_names_the_line_and_what_the_backend_cannot_see():
    with count_syncs("dispatch") as syncs:
        for _ in syncs.steps(range(2)):
            read()
    lines = str(syncs).splitlines()
    assert lines[0] == "dispatch: 2 syncs in 2 steps: 1 in each"
    assert lines[1].endswith(f"test_sync_counter.py:{READS_AT} in read")
    assert lines[1].startswith("  1.00 a step  aten::item on cpu  "), "no time is known of a CPU tensor"
    assert lines[2].strip() == "X.sum().item()"
    assert lines[3] == "dispatch does not see"
    assert [line.strip() for line in lines[4:]] == list(syncs.backend.cannot_see)
    assert repr(syncs) == str(syncs)


def test_every_backend_says_what_it_cannot_see():
    text = describe_backends()
    for name in ("dispatch", "lab", "cuda", "npu", "xpu"):
        assert f"\n{name}: " in f"\n{text}"
    assert text.count("    not: ") >= 10


def test_time_is_known_where_something_was_waited_for(lab_device):
    x = torch.ones(1000, 1000, device="xpulab")
    before = lab_device.stats.sync_wait_ns
    with count_syncs("lab") as syncs:
        x.exp_()
        x.sum().item()
    assert syncs.total == 1
    assert syncs.wait_ms == (lab_device.stats.sync_wait_ns - before) / 1e6
    assert syncs.wait_ms > 0
    assert f"{syncs.wait_ms:.3f} ms each" in str(syncs)
    with count_syncs("dispatch") as unknown:
        read()
    assert unknown.wait_ms is None
    with count_syncs("dispatch") as nothing:
        pass
    assert nothing.wait_ms == 0


# ---- nesting, threads, failures


def test_nested_counts_both_count():
    with count_syncs("dispatch") as outer:
        read()
        with count_syncs("dispatch") as inner:
            read(2)
        read()
    assert (outer.total, inner.total) == (4, 2)


def test_counts_may_end_in_any_order():
    first, second = count_syncs("dispatch"), count_syncs("dispatch")
    a, b = first.__enter__(), second.__enter__()
    read()
    first.__exit__(None, None, None)
    read()
    second.__exit__(None, None, None)
    read()
    assert (a.total, b.total) == (1, 2)


def run_in_thread(function) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_another_thread_counts_only_where_it_joins():
    def joined() -> None:
        with syncs.also_here():
            read(2)
        read()

    with count_syncs("dispatch") as syncs:
        run_in_thread(read)
        assert syncs.total == 0
        run_in_thread(joined)
    assert syncs.total == 2


def test_syncs_of_other_threads_are_told_apart_where_they_are_seen(lab_device):
    x = torch.ones(3, device="xpulab")

    def joined() -> None:
        with syncs.also_here():
            x.tolist()

    with count_syncs("lab") as syncs:
        run_in_thread(x.tolist)
        run_in_thread(joined)
        x.tolist()
    assert (syncs.total, syncs.elsewhere) == (2, 1)
    assert "and 1 on threads that were not counted" in str(syncs)


def test_threads_that_count_at_once_do_not_disturb_each_other():
    totals: dict[int, int] = {}

    def count(times: int) -> None:
        with count_syncs("dispatch") as syncs:
            for _ in range(times):
                X.tolist()
                read()
        totals[times] = syncs.total

    threads = [threading.Thread(target=count, args=(n,)) for n in (5, 50, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {5: 10, 50: 100, 500: 1000}


def test_an_exception_ends_the_count_and_keeps_it():
    def fails() -> None:
        with count_syncs("dispatch") as syncs:
            kept.append(syncs)
            read()
            raise ZeroDivisionError

    kept: list = []
    with pytest.raises(ZeroDivisionError):
        fails()
    read()
    assert kept[0].total == 1


def test_only_the_device_asked_for_counts(lab_device):
    x = torch.ones(2, device="xpulab")
    with count_syncs("dispatch", device="xpulab") as syncs:
        read()
        X.tolist()
        x.tolist()
    assert [row.device for row in syncs.rows] == ["xpulab"]


def test_it_works_below_a_dispatch_mode_and_without_gradients():
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with count_syncs("dispatch") as syncs, Mode(), torch.inference_mode():
        read()
        X.nonzero()
    assert syncs.total == 2


def test_copies_of_a_tensor_object_read_nothing():
    with count_syncs("dispatch") as syncs:
        copy.copy(X)
        copy.deepcopy(X)
    assert syncs.total == 0


# ---- backends and sites


def test_a_backend_that_cannot_work_here_says_so():
    with pytest.raises(TriageError, match=r"is called 'gpu'. There are dispatch, lab, cuda"), count_syncs("gpu"):
        pass
    if not torch.cuda.is_available():
        with pytest.raises(TriageError, match="no cuda device in this process"), count_syncs("cuda"):
            pass
    with pytest.raises(TriageError, match="no npu device"), count_syncs("npu"):
        pass


def test_the_accelerator_of_the_process_is_the_default(lab_device):
    with count_syncs() as syncs:
        pass
    assert syncs.backend.name == ("cuda" if torch.cuda.is_available() else "lab")


LIBRARY = "def call(function):\n    return function()\ndef reads(x):\n    return x.item()\n"


def library(module: str) -> dict:
    names: dict = {"__name__": module}
    exec(compile(LIBRARY, f"/somewhere/{module.replace('.', '/')}.py", "exec"), names)
    return names


def test_library_frames_are_not_the_users():
    here = library("torch.nn.extra")["call"](lambda: site_of(caller(-1)))
    assert here.function == "<lambda>"
    with count_syncs("dispatch") as syncs:
        library("torch.nn.extra")["reads"](X.sum())
        library("engine.core.step")["reads"](X.sum())
    with count_syncs("dispatch", skip=("engine.core",)) as skipping:
        library("engine.core.step")["reads"](X.sum())
        library("engine.corelike")["reads"](X.sum())
    assert [(PurePath(r.site.path).name, r.site.function) for r in syncs.rows] == [
        ("step.py", "reads"),
        ("test_sync_counter.py", "test_library_frames_are_not_the_users"),
    ]
    assert [PurePath(r.site.path).name for r in skipping.rows] == ["corelike.py", "test_sync_counter.py"]


@pytest.mark.parametrize(
    ("file", "module", "shown"),
    [
        ("/srv/app/engine/sampler.py", "engine.sampler", "engine/sampler.py"),
        ("/srv/app/engine/__init__.py", "engine", "engine/__init__.py"),
        ("/srv/app/run.py", "__main__", "run.py"),
        ("/tmp/ipykernel_4711/381234.py", "__main__", "<cell>"),
        ("<ipython-input-3-abc>", "__main__", "<cell>"),
        ("<stdin>", "__main__", "<stdin>"),
    ],
)
def test_a_site_looks_the_same_on_every_machine(file, module, shown):
    names: dict = {"__name__": module}
    exec(compile("def f(look):\n    return look()", file, "exec"), names)
    site = names["f"](FunctionType(look.__code__, {**globals(), "__name__": "torch.look"}))
    assert (site.path, site.line, site.function) == (shown, 2, "f")
    assert str(site) == f"{shown}:2 in f"


def look():
    return site_of(caller(-1))


def test_no_frame_of_the_users_is_said():
    assert site_of(None) is UNKNOWN
    assert str(UNKNOWN) == "outside of Python code"
