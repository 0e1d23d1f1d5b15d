"""The device computes what the CPU computes, later, and waits where a device waits."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

from lab_operators import CASES, randn
from xpu_triage import lab
from xpu_triage.lab import fallback
from xpu_triage.lab.clock import RealClock
from xpu_triage.lab.cost_model import P800_LIKE
from xpu_triage.lab.engine import AsyncError, Engine
from xpu_triage.lab.graph import Graph
from xpu_triage.lab.storage import Memory

DEVICE = "xpulab"


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [t for part in value for t in flat(part)]


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "autograd"])
@pytest.mark.parametrize("name", CASES)
def test_code_gives_what_it_gives_on_the_cpu(engine: Engine, name: str, grad: bool):
    with torch.inference_mode(not grad):
        expected, got = flat(CASES[name]("cpu")), [t.cpu() for t in flat(CASES[name](DEVICE))]
    assert len(expected) == len(got)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_draws_have_the_right_moments(engine: Engine):
    n = 200_000
    uniform, normal = torch.empty(n, device=DEVICE).uniform_(), torch.randn(n, device=DEVICE)
    exponential = torch.empty(n, device=DEVICE).exponential_()
    means = [float(t.mean()) for t in (uniform, normal, exponential)]
    assert means == pytest.approx([0.5, 0.0, 1.0], abs=0.02)  # 5 standard errors of the widest are 0.011
    assert float(normal.std()) == pytest.approx(1.0, abs=0.02)


# ---- what waits

SYNCS = {
    "item": (lambda x: x[0, 0].item(), {"aten::item": 1}),
    "bool": (lambda x: bool(x[0, 0] > 0), {"aten::item": 1}),
    "condition": (lambda x: 1 if (x > 0).all() else 0, {"aten::item": 1}),
    "list": (lambda x: x[0].tolist(), {"aten::copy_": 1}),
    "cpu": (lambda x: x.cpu(), {"aten::copy_": 1}),
    "upload": (lambda x: torch.tensor([1, 2], device=DEVICE), {"aten::copy_": 1}),
    "nonzero": (lambda x: x.nonzero(), {"aten::nonzero": 1}),
    "mask": (lambda x: x[x > 0], {"aten::nonzero": 1}),
    "mask, twice": (lambda x: x.__setitem__(x > 0, x[x > 0] * 2), {"aten::nonzero": 2}),
    "a device's number through a mask": (lambda x: x.__setitem__(x > 0, x.sum()), {"aten::nonzero": 1}),
    "one of one element": (lambda x: x.__setitem__(x > 0, x[0, :1].clone()), {"aten::nonzero": 1}),
    "a number added through a mask": (
        lambda x: x.index_put_((x > 0,), x.sum(), accumulate=True),
        {"aten::nonzero": 1},
    ),
    "a number through two masks": (
        lambda x: x.__setitem__((x[:, 0] == x[:, 0].max(), x[0] == x[0].max()), 0.5),
        {"aten::nonzero": 2},
    ),
    "masked_fill with a device's number": (lambda x: x.masked_fill(x > 0, x.sum()), {"aten::item": 1}),
    "the same in place": (lambda x: x.masked_fill_(x > 0, x.sum()), {"aten::item": 1}),
    "index_fill with a device's number": (
        lambda x: x.index_fill(0, torch.arange(2, device=DEVICE), x.sum()),
        {"aten::item": 1},
    ),
    "unique": (lambda x: torch.unique(x), {"aten::_unique2": 1}),
    "equal": (lambda x: torch.equal(x, x), {"aten::equal": 1}),
    "repeats": (lambda x: x.repeat_interleave((x[:, 0] > 0).long(), 0), {"aten::repeat_interleave": 1}),
    "synchronize": (lambda x: torch.accelerator.synchronize(), {"synchronize": 1}),
}


@pytest.mark.parametrize("name", SYNCS)
def test_reading_back_waits_and_is_counted(virtual: Engine, name: str):
    code, expected = SYNCS[name]
    x = randn(6, 5).to(DEVICE)
    virtual.reset_stats()
    code(x)
    assert virtual.stats.syncs == Counter(expected)


NO_SYNCS = {
    "arithmetic": lambda x: (x + 1).softmax(-1).argmax(-1),
    "number through a mask": lambda x: x.__setitem__(x > 0, 0.5),
    "number through a mask of columns": lambda x: x.__setitem__((slice(None), x[0] > 0), 0.5),
    "number of a host's tensor through a mask": lambda x: x.__setitem__(x > 0, torch.tensor([0.5])),
    "masked_fill": lambda x: x.masked_fill_(x > 0, 0.5),
    "masked_fill with a host's tensor": lambda x: x.masked_fill(x > 0, torch.tensor(0.5)),
    "index_fill": lambda x: x.index_fill_(0, torch.arange(2, device=DEVICE), 0.5),
    "median and quantile": lambda x: (x.median(), x.quantile(0.5), x.nanquantile(0.2, dim=1)),
    "other looks in place": lambda x: x.unsqueeze_(1).squeeze_().t_(),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "index": lambda x: x[torch.arange(3, device=DEVICE)],
    "pinned upload": lambda x: x.copy_(torch.zeros(6, 5), non_blocking=True),
    "download behind an event": lambda x: x.to("cpu", non_blocking=True),
    "repeats of known size": lambda x: x.repeat_interleave((x[:, 0] * 0 + 2).long(), 0, output_size=12),
}


@pytest.mark.parametrize("name", NO_SYNCS)
def test_staying_on_the_device_does_not_wait(virtual: Engine, name: str):
    x = randn(6, 5).to(DEVICE)
    virtual.reset_stats()
    NO_SYNCS[name](x)
    assert virtual.stats.syncs == Counter()


def test_a_hook_hears_of_every_wait_with_its_cost(virtual: Engine):
    heard = []
    virtual.on_sync.append(lambda why, ns: heard.append((why, ns)))
    x = torch.ones(1 << 20, device=DEVICE)
    x.sum().item()
    virtual.on_sync.clear()
    assert [why for why, _ in heard] == ["aten::item"]
    assert (
        heard[0][1] > virtual.model.sync_return_us * 1e3
    )  # at least the return of the call; here some work, too


def test_waiting_takes_until_the_work_is_done(virtual: Engine):
    x = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)
    x.zero_()  # 2²⁸ bytes at 3,350 GB/s: 80.1 µs, plus a floor of 2
    launched = virtual.clock.now()
    torch.accelerator.synchronize()
    waited = virtual.clock.now() - launched
    assert waited == pytest.approx(
        5_000 + 82_129 + 6_000, abs=15_000
    )  # start, work, return; dispatch is in the slack


# ---- what falls back


def test_an_operator_without_a_kernel_runs_on_the_cpu_with_copies_both_ways(engine: Engine):
    engine.configure(P800_LIKE, engine.clock)
    x = torch.empty(100, 10, device=DEVICE)
    engine.reset_stats()
    x.exponential_()
    assert engine.stats.fallbacks == Counter({"aten::exponential_": 1})
    assert engine.stats.syncs == Counter({"aten::copy_": 2})
    assert (engine.stats.to_host_bytes, engine.stats.to_device_bytes) == (4000, 4000)
    assert float(x.cpu().min()) > 0


def test_a_fallback_warns_once_and_names_the_operator(virtual: Engine):
    virtual.configure(P800_LIKE)
    fallback.warned.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.empty(3, device=DEVICE).exponential_()
    assert [str(w.message) for w in seen if "aten::exponential_" in str(w.message)]
    assert len(seen) == 1


# ---- what goes wrong


def test_tensors_of_two_devices_do_not_mix(virtual: Engine):
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=DEVICE) + torch.ones(2)


def test_wrong_shapes_raise_at_the_call(virtual: Engine):
    with pytest.raises(RuntimeError):
        torch.ones(2, 3, device=DEVICE) @ torch.ones(2, 3, device=DEVICE)


def test_a_failure_in_the_queue_surfaces_at_the_next_wait_and_names_the_operator(engine: Engine):
    x = torch.ones(3, device=DEVICE)
    x.gather(0, torch.tensor([99], device=DEVICE))  # the index is data: only the kernel sees it
    with pytest.raises(AsyncError, match="gather"):
        torch.accelerator.synchronize()
    assert x.cpu().tolist() == [1.0, 1.0, 1.0]  # and the device goes on


def test_there_is_no_numpy_view_of_device_memory(virtual: Engine):
    with pytest.raises((TypeError, RuntimeError)):
        torch.ones(2, device=DEVICE).numpy()


def test_without_torch_one_line_names_the_extra():
    code = "import sys; sys.modules['torch'] = None\nimport xpu_triage.lab"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra: torch is not installed. pip install 'xpu-triage[lab]'" in done.stderr


def test_saving_device_memory_is_refused_and_saving_a_copy_works(virtual: Engine, tmp_path: Path):
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="move them to the CPU first"):
        torch.save(x, tmp_path / "x.pt")
    torch.save(x.cpu(), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt").tolist() == [1.0, 1.0, 1.0]


# ---- memory, events, threads, graphs


def test_memory_is_held_as_long_as_any_view_lives(virtual: Engine):
    before = Memory.held_bytes
    x = torch.zeros(1000, device=DEVICE)
    view = x[10:20]
    del x
    assert Memory.held_bytes - before == 4000
    del view
    assert Memory.held_bytes == before


def test_events_measure_the_device_and_not_the_host(virtual: Engine):
    a, b = (torch.Event(device=DEVICE, enable_timing=True) for _ in range(2))
    x = torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)
    a.record()
    x.zero_()
    b.record()
    assert not b.query()
    b.synchronize()
    assert b.query()
    assert a.elapsed_time(b) == pytest.approx(0.082, abs=0.02)


def test_the_accelerator_interface_knows_the_device(virtual: Engine):
    assert torch.accelerator.current_accelerator().type == DEVICE
    assert torch.accelerator.device_count() == 1


def test_the_worker_runs_on_the_real_clock_alone_and_ends_with_close():
    lab.install()
    lab.ENGINE.configure(clock=RealClock())
    threads = set(threading.enumerate())
    x = torch.ones(300, 300, device=DEVICE)
    (x @ x).sum().item()
    (worker,) = set(threading.enumerate()) - threads
    lab.ENGINE.close()
    assert not worker.is_alive()


def test_a_worker_behind_the_timeline_shows_as_the_lab_s_own_time():
    lab.install()
    lab.ENGINE.configure(clock=RealClock())
    x = torch.ones(1500, 1500, device=DEVICE)
    lab.ENGINE.recorder.on = True
    for _ in range(3):
        x = x @ x * 0  # 20 ms and more on a CPU, 11 µs on the model
    torch.accelerator.synchronize()
    sync, late = lab.ENGINE.recorder.rows[-2:]
    assert (sync.category, late.category) == ("privateuse1_runtime", "overhead")
    assert sync.end == late.start
    assert late.end - late.start == lab.ENGINE.stats.late_ns > 1_000_000


def test_a_graph_replays_what_was_captured_with_one_launch(engine: Engine):
    x, graph = torch.zeros(4, device=DEVICE), Graph()
    with graph.capture():
        y = (x + 1) * 2
    engine.reset_stats()
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [8.0] * 4
    assert engine.stats.launches == 3  # fill, graph, the copy of `tolist`
    assert engine.stats.kernels == 3  # fill, add, mul


def test_waiting_inside_a_capture_is_refused(virtual: Engine):
    x = torch.zeros(4, device=DEVICE)
    with pytest.raises(RuntimeError, match="captured"), Graph().capture():
        x.sum().item()
    assert x.sum().item() == 0  # the capture has ended all the same


def test_timing_alone_computes_small_conditions_and_nothing_large(virtual: Engine):
    virtual.configure(compute=False)
    top_ks = torch.full((256,), 50).to(DEVICE)
    assert bool(torch.all((top_ks <= 1024) & (top_ks >= 1)))
    assert (torch.ones(1 << 20, device=DEVICE) + 1).sum().item() == 0
