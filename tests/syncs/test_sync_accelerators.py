"""CUDA and NPU hooks, on fakes of exactly the functions and registries that they use (names as in torch 2.13.0 and
torch_npu 2.13.0). What a driver really reports is not shown here: there is none."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest
import torch
from torch._utils import CallbackRegistry

from xpu_triage.errors import TriageError
from xpu_triage.syncs import SyncsFound, count_syncs, forbid_syncs
from xpu_triage.syncs import accelerators as module
from xpu_triage.syncs import backends as backends_module
from xpu_triage.syncs.accelerators import Accelerator
from xpu_triage.syncs.backends import Hooks

RUNTIME = """
import warnings

class NamedRegistry:
    '''torch_npu's registries take a name for each callback, and keep pairs.'''

    def __init__(self, name):
        self.callback_list = []

    def add_callback(self, cb, cb_name):
        self.callback_list.append((cb, cb_name))

    def fire_callbacks(self, *args):
        for cb, _ in self.callback_list:
            cb(*args)

def wait(fake, hook="Stream", traced=True, warned=True):
    '''What an operator does that waits: callbacks at once, buffered warnings when it returns to Python.'''
    fake.waits += 1
    if traced and fake.activated:
        fake.registries[hook].fire_callbacks(*(() if hook == "Device" else (7,)))
    if warned and hook == "Stream" and fake.mode == 1:
        warnings.warn(fake.text + " (Triggered internally at fake.cpp:1.)", UserWarning, stacklevel=1)
    if fake.mode == 2:
        raise RuntimeError(fake.text)
"""


LIBRARY: dict = {"__name__": "torch.fake_runtime"}
exec(compile(RUNTIME, "/site-packages/torch/fake_runtime.py", "exec"), LIBRARY)


class Fake:
    """One device: its debug mode, its registries, and a way to wait for it."""

    def __init__(self, text: str, registry: type) -> None:
        self.text, self.mode, self.activated, self.waits = text, 0, 0, 0
        self.registries = {hook: registry(hook) for hook in module.HOOKS}
        self.wait = types.MethodType(LIBRARY["wait"], self)

    def set_mode(self, mode: int | str) -> None:
        self.mode = {"default": 0, "warn": 1, "error": 2}.get(mode, mode)

    def activate(self, *mode: int) -> None:
        self.activated += 1


@pytest.fixture(params=["cuda", "npu"])
def device(request, monkeypatch):
    name = request.param
    prefix = "" if name == "cuda" else "NPU"
    text = f"called a synchronizing {name.upper()} operation"
    fake = Fake(text, CallbackRegistry if name == "cuda" else LIBRARY["NamedRegistry"])
    trace = types.ModuleType("fake_trace")
    for hook, registry in fake.registries.items():
        setattr(trace, f"{prefix}{hook}SynchronizationCallbacks", registry)
    runtime = types.ModuleType("fake_runtime")
    runtime.is_available = lambda: True
    runtime.get_sync_debug_mode, runtime.set_sync_debug_mode = lambda: fake.mode, fake.set_mode
    if name == "cuda":
        monkeypatch.setattr(torch._C, "_activate_gpu_trace", fake.activate, raising=False)
    else:
        npu = types.ModuleType("torch_npu")
        npu._C = types.SimpleNamespace(_activate_npu_trace=fake.activate)
        monkeypatch.setitem(sys.modules, "torch_npu", npu)
    monkeypatch.setitem(sys.modules, "fake_runtime", runtime)
    monkeypatch.setitem(sys.modules, "fake_trace", trace)
    accelerator = Accelerator(name, "fake_runtime", "fake_trace", prefix, text)
    monkeypatch.setattr(backends_module, "BACKENDS", {**backends_module.BACKENDS, name: Hooks(accelerator, "all")})
    monkeypatch.setattr(backends_module, name.upper(), accelerator)
    fake.name = name
    return fake


def test_the_real_hooks_have_the_names_that_are_used():
    import torch.cuda._gpu_trace as cuda_trace
    import torch.xpu._gpu_trace as xpu_trace

    for trace in (cuda_trace, xpu_trace):
        for hook in module.HOOKS:
            assert isinstance(getattr(trace, f"{hook}SynchronizationCallbacks"), CallbackRegistry)
    assert callable(torch._C._activate_gpu_trace)
    assert callable(torch.cuda.set_sync_debug_mode)
    assert callable(torch.cuda.get_sync_debug_mode)
    assert (module.CUDA.runtime, module.CUDA.trace) == ("torch.cuda", cuda_trace.__name__)
    assert (module.XPU.runtime, module.XPU.trace, module.XPU.warning) == ("torch.xpu", xpu_trace.__name__, "")


def test_the_npu_s_hooks_have_the_names_that_are_used():
    """Read from the installed package's own files, without importing it: it cannot load without CANN."""
    try:
        files = importlib.metadata.files("torch_npu") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch_npu is not installed (extra: npu)")
    bytes_of = {str(f): Path(str(f.locate())).read_bytes() for f in files if f.parts[0] == "torch_npu" and f.name in
                ("_npu_trace.py", "utils.py", "_sanitizer.py", "libtorch_npu.so")}  # fmt: skip
    trace = bytes_of["torch_npu/utils/_npu_trace.py"]
    assert module.NPU.trace == "torch_npu.utils._npu_trace"
    for hook in module.HOOKS:
        assert f"\n{module.NPU.prefix}{hook}SynchronizationCallbacks".encode() in trace
    assert b"def add_callback(self, cb: Callable, cb_name: str)" in trace
    runtime = bytes_of["torch_npu/npu/utils.py"]
    assert module.NPU.runtime == "torch_npu.npu"
    assert b"def set_sync_debug_mode(debug_mode):" in runtime
    assert b"def get_sync_debug_mode():" in runtime
    assert b"torch_npu._C._activate_npu_trace(" in bytes_of["torch_npu/npu/_sanitizer.py"]
    assert module.NPU.warning.encode() in bytes_of["torch_npu/lib/libtorch_npu.so"]


def test_a_wait_that_both_hooks_report_counts_once_at_its_line(device):
    with count_syncs(device.name) as syncs:
        for _ in syncs.steps(range(3)):
            device.wait()
    (row,) = syncs.rows
    assert (syncs.by_step, row.call, row.device, row.wait_ms) == ((1, 1, 1), "stream synchronize", device.name, None)
    assert row.site.text == "device.wait()"
    assert row.site.file == __file__


def test_events_and_the_device_are_seen_though_the_debug_mode_does_not(device):
    with count_syncs(device.name) as syncs:
        device.wait("Event")
        device.wait("Device")
        device.wait("Stream")
    assert sorted(row.call for row in syncs.rows) == ["device synchronize", "event synchronize", "stream synchronize"]
    assert syncs.total == 3


def test_where_one_hook_is_silent_the_other_counts(device):
    with count_syncs(device.name) as syncs:
        device.wait(traced=False)
        syncs.step()
        device.wait(warned=False)
        syncs.step()
        device.wait(traced=False)
        device.wait(traced=False)
        syncs.step()
        device.wait()
    assert (syncs.by_step, syncs.rest) == ((1, 1, 2), 1)


@pytest.mark.parametrize("hostile", ["ignore", "error", "default", "reset", "record", "own"])
def test_no_change_of_the_warning_filters_hides_a_wait_or_raises(device, hostile):
    """As pytest does for each test, and libraries when they silence themselves."""

    def waits() -> None:
        for _ in range(2):
            device.wait(traced=False)

    with count_syncs(device.name) as syncs:
        waits()
        with warnings.catch_warnings(record=hostile == "record") as recorded:
            if hostile == "reset":
                warnings.resetwarnings()
            elif hostile == "own":
                warnings.filters[:] = [("error", None, Warning, None, 0)]
            else:
                warnings.simplefilter("always" if hostile == "record" else hostile)
            waits()
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="called a sync")
                waits()
        waits()
    assert syncs.total == 8
    assert not recorded


def test_other_warnings_go_where_they_went(device):
    with warnings.catch_warnings(record=True) as seen, count_syncs(device.name) as syncs:
        warnings.simplefilter("always")
        warnings.warn("something else", UserWarning, stacklevel=1)
        device.wait()
    assert ([str(w.message) for w in seen], syncs.total) == (["something else"], 1)


def test_filters_mode_and_output_are_put_back(device):
    before, show = list(warnings.filters), warnings._showwarnmsg
    with count_syncs(device.name):
        assert device.mode == 1
        warnings.filterwarnings("ignore", message="set inside")
        with count_syncs(device.name):
            assert device.mode == 1
        assert device.mode == 1
    assert device.mode == 0
    assert type(warnings.filters) is list
    assert warnings.filters[1:] == before, "what the code set inside stays, as it would without a count"
    assert warnings.filters[0][0] == "ignore"
    assert warnings._showwarnmsg is show
    warnings.filters[:] = before


def test_a_mode_that_raises_is_left_to_raise(device):
    device.set_mode("error")
    with count_syncs(device.name), pytest.raises(RuntimeError, match="called a synchronizing"):
        device.wait()
    assert device.mode == 2


def test_callbacks_are_registered_once_and_silent_afterwards(device):
    for _ in range(3):
        with count_syncs(device.name) as syncs:
            device.wait()
        assert syncs.total == 1
    device.wait()
    assert syncs.total == 1
    assert device.activated == 1
    assert [len(registry.callback_list) for registry in device.registries.values()] == [1, 1, 1]


def test_nested_counts_and_other_threads(device):
    with count_syncs(device.name) as outer:
        device.wait()
        with count_syncs(device.name) as inner:
            device.wait()
            thread = threading.Thread(target=device.wait)
            thread.start()
            thread.join()
    assert (outer.total, inner.total, outer.elsewhere, inner.elsewhere) == (2, 1, 1, 1)


def test_the_accelerator_of_the_process_is_found_and_guards(device):
    with count_syncs() as syncs:
        device.wait()
    assert (syncs.backend.name, syncs.total) == (device.name, 1)
    with pytest.raises(SyncsFound) as caught, forbid_syncs():
        device.wait()
    assert [found.backend.name for found in caught.value.found] == [device.name]
    assert "pinned" in str(caught.value), "what it cannot see is printed with what it found"


def test_a_version_without_the_callbacks_is_refused_in_one_line(device, monkeypatch):
    prefix = "" if device.name == "cuda" else "NPU"
    monkeypatch.delattr(sys.modules["fake_trace"], f"{prefix}EventSynchronizationCallbacks")
    with pytest.raises(TriageError, match=r"no callbacks for synchronizations\. torch and torch_npu 2.13"):
        count_syncs(device.name).__enter__()
    assert (device.activated, device.mode) == (0, 0)


def test_without_the_device_the_refusal_is_one_line(device, monkeypatch):
    monkeypatch.setattr(sys.modules["fake_runtime"], "is_available", lambda: False)
    with pytest.raises(TriageError) as caught, count_syncs(device.name):
        pass
    assert str(caught.value).splitlines() == [
        f"no {device.name} device in this process. backend='dispatch' counts on any device"
    ]
    assert device.activated == 0
