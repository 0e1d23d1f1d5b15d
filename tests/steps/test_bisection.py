"""From a part of the window down to one operator. Times in µs; shares worked out by hand."""

from __future__ import annotations

import pytest

from builders import Rows
from xpu_triage.steps.bisection import NO_ROWS
from xpu_triage.steps.patterns import is_library
from xpu_triage.steps.results import Finding
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind


def finding(rows: Rows, about: str) -> Finding:
    found = walk(rows.trace()).finding(about)
    assert found is not None
    return found


def sampler_steps(count: int = 4) -> Rows:
    """Steps of 10 ms: 2 ms of one gemm, 6 ms of `aten::sort` on the host, called from the sampler, a small kernel, and
    0.9 ms of post-processing. The device is idle from 2,005 to 8,025 µs and from 8,075 to 10,010."""
    rows = Rows()
    for i in range(count):
        at = 10_000 * i
        rows.annotation(f"ProfilerStep#{i}", at, 10_000)
        rows.python("engine/loop.py(3): run", at + 1, 9_990)
        rows.python("engine/model.py(9): forward", at + 2, 100)
        rows.op("aten::linear", at + 3, 40)
        rows.op("aten::addmm", at + 4, 30)
        rows.launch(at + 5, "sgemm", at + 10, 1_995)
        rows.python("engine/sampler.py(12): sample", at + 1_990, 7_000)
        rows.python("torch/_tensor.py(40): sort", at + 1_995, 6_050)
        rows.op("aten::sort", at + 2_010, 6_000)
        rows.launch(at + 8_015, "gather", at + 8_025, 50)
        rows.sync(at + 8_030, 60)
        rows.python("engine/loop.py(30): post", at + 9_000, 900)
    return rows


def test_host_work_bisects_to_the_operator_and_its_python_line() -> None:
    found = finding(sampler_steps(), "host_op")
    assert found.name == "aten::sort"
    assert found.line == "engine/sampler.py(12): sample"          # not the framework's own frame around it
    assert [level.name for level in found.path] == [
        "step", "engine/loop.py(3): run", "engine/sampler.py(12): sample", "aten::sort"]
    assert [level.kind for level in found.path] == ["phase", "python", "python", "operator"]
    assert found.share == pytest.approx(0.6)                       # 6,000 of 10,000 µs
    assert found.path[-1].share == found.share
    assert found.calls_per_step == 1
    assert found.path[-1].host_self_ms == pytest.approx(6.0)
    assert (found.step_ms, found.step_without_ms) == pytest.approx((10.0, 4.0))


def test_shares_never_grow_on_the_way_down() -> None:
    for found in walk(sampler_steps().trace()).findings:
        shares = [level.share for level in found.path]
        assert shares == sorted(shares, reverse=True)


def test_the_second_is_always_shown_and_outside_the_first() -> None:
    found = finding(sampler_steps(), "host_op")
    # the sampler's own 5 + 5 µs around the sort, and 8,090 (the sync's return) to 8,990; then the post-processing
    assert found.others[:2] == (("engine/sampler.py(12): sample", pytest.approx(0.091)),
                                ("engine/loop.py(30): post", pytest.approx(0.09)))
    assert "aten::sort" not in dict(found.others)
    for other in walk(sampler_steps().trace()).findings:
        assert other.others


def test_findings_come_for_every_part_of_two_percent_largest_first() -> None:
    walked = walk(sampler_steps().trace())
    assert [f.about for f in walked.findings] == ["host_op", "compute"]
    assert [f.total_share for f in walked.findings] == sorted((f.total_share for f in walked.findings), reverse=True)


def test_compute_bisects_to_the_operator_with_its_kernel_as_the_leaf() -> None:
    found = finding(sampler_steps(), "compute")
    assert (found.name, found.line) == ("aten::addmm", "engine/model.py(9): forward")
    assert (found.path[-1].name, found.path[-1].kind) == ("sgemm", "kernel")
    assert found.share == pytest.approx(0.1995)
    assert found.path[-1].device_ms == pytest.approx(1.995)
    assert dict(found.others)["cudaLaunchKernel"] == pytest.approx(0.005)  # the gather, launched by no operator


def eager_steps(launches: int = 40) -> Rows:
    """Steps of 1 ms with 40 kernels of 5 µs, each from an operator of its own name group of 8, under one region."""
    rows = Rows()
    for i in range(3):
        at = 1_000 * i
        rows.annotation(f"ProfilerStep#{i}", at, 1_000)
        rows.python("engine/model.py(7): forward", at + 1, 990)
        rows.op("Torch-Compiled Region: 0/0", at + 2, 985)
        for j in range(launches):
            rows.op(f"aten::op{j % 8}", at + 5 + 24 * j, 20)
            rows.launch(at + 10 + 24 * j, f"kernel{j % 8}", at + 16 + 24 * j, 5)
    return rows


def test_gaps_of_launching_are_spread_with_their_count_and_a_region_is_no_operator() -> None:
    found = finding(eager_steps(), "launching")
    assert found.spread
    assert found.name == "spread over 121 launches"               # before each of 3 × 40 kernels, and after the last
    assert (found.path, found.step_without_ms) == ((), None)
    assert found.line == "engine/model.py(7): forward"
    assert len(found.others) == 5
    assert set(dict(found.others)) <= {f"aten::op{j}" for j in range(8)} | {"Torch-Compiled Region: 0/0"}


def test_one_operator_with_most_launching_gaps_is_named() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    for j in range(10):
        rows.op("aten::index", 5 + 95 * j, 90)
        rows.launch(80 + 95 * j, "index_kernel", 90 + 95 * j, 5)
    found = finding(rows, "launching")
    assert (found.name, found.spread) == ("aten::index", False)
    assert found.calls_per_step == 10


def test_kernels_of_a_graph_replay_are_named_themselves() -> None:
    rows = Rows()
    for i in range(3):
        at = 1_000 * i
        rows.annotation(f"step[DECODE bs=8] {i}", at, 1_000)
        rows.op("aten::add", at + 1, 8)
        call = rows.call("cudaGraphLaunch", at + 2, 6)
        for j in range(9):
            rows.kernel("attention" if j % 3 else "mlp", at + 10 + 100 * j, 90, call)
    found = finding(rows, "compute")
    assert found.name == "attention"                              # 6 of 9
    assert found.share == pytest.approx(0.54)
    assert found.others[0] == ("mlp", pytest.approx(0.27))
    assert found.calls_per_step == 6


def test_a_bubble_bisects_to_the_call_that_waited() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    for j in range(5):
        at = 200 * j
        rows.launch(at + 5, "gemm", at + 10, 90)
        rows.python("engine/sampler.py(3): pick", at + 12, 180)
        rows.op("aten::item", at + 14, 90)
        rows.op("aten::_local_scalar_dense", at + 15, 88)
        rows.sync(at + 20, 82)                                    # returns at 102, the device is dry from 100 on
    found = finding(rows, "after_sync")
    assert (found.name, found.line) == ("aten::item", "engine/sampler.py(3): pick")
    assert found.path[-1].name == "cudaStreamSynchronize"
    # 100 to the next kernel at 210, four times, and 900 + 100 to the step's end
    assert found.share == pytest.approx((4 * 110 + 100) / 1_000)
    assert found.step_without_ms == pytest.approx(1.0 - 0.54)


def test_a_copy_and_a_collective_are_named_as_the_device_names_them() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.op("aten::copy_", 1, 10)
    rows.up(2, 10, 300)
    rows.op("record_param_comms", 20, 10)
    rows.launch(22, "ncclDevKernel_AllReduce", 320, 500, kind=Kind.COMM)
    walked = walk(rows.trace())
    copy, comm = walked.finding("copy"), walked.finding("comm")
    assert copy is not None
    assert comm is not None
    assert (copy.name, copy.share) == ("Memcpy HtoD (Pageable -> Device)", pytest.approx(0.3))
    assert (comm.name, comm.share) == ("ncclDevKernel_AllReduce", pytest.approx(0.5))
    assert comm.step_without_ms == pytest.approx(0.5)


def test_host_time_inside_a_steps_mark_alone_is_said_to_have_no_rows() -> None:
    rows = Rows()
    for i in range(3):
        rows.annotation(f"execute_context_0(0)_generation_4(4) {i}", 5_000 * i, 5_000)
        rows.launch(5_000 * i + 10, "gemm", 5_000 * i + 20, 1_000)
    found = finding(rows, "host_op")
    assert (found.name, found.spread) == (NO_ROWS, False)


def test_one_layer_of_several_is_no_level() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 10_000)
    rows.launch(0, "gemm", 10, 90)
    rows.python("engine/model.py(5): forward", 100, 9_000)
    for i in range(2):
        rows.python(f"engine/layer_{i}.py(3): forward", 110 + 4_000 * i, 3_900)
        rows.op("aten::sort", 120 + 4_000 * i, 3_800)
    rows.launch(9_200, "gemm", 9_210, 90)
    path = [level.name for level in finding(rows, "host_op").path]
    assert path == ["step", "engine/model.py(5): forward", "aten::sort"]


def test_the_step_without_an_operator_is_without_its_device_time_too() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 10_000)
    rows.launch(0, "gemm", 10, 4_990)
    rows.op("aten::unique", 5_000, 4_000)
    rows.launch(8_000, "unique_kernel", 8_010, 1_990)
    found = finding(rows, "host_op")
    assert found.share == pytest.approx(0.301)                    # 5,000 to 8,010
    assert found.step_without_ms == pytest.approx(10 - 3.01 - 1.99)


def test_a_function_that_calls_itself_counts_once() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 10_000)
    rows.launch(0, "gemm", 10, 90)
    for depth in range(3):
        rows.python("engine/tree.py(3): visit", 110 + depth, 6_000 - 2 * depth)
    rows.launch(9_900, "gemm", 9_910, 90)
    found = finding(rows, "host_op")
    assert found.name == "engine/tree.py(3): visit"
    assert (found.share, found.calls_per_step) == (pytest.approx(0.6), 1)


def test_while_the_host_waits_no_operator_is_to_blame() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 3_000)
    rows.launch(0, "gemm", 10, 90)
    rows.op("aten::sort", 110, 1_600)
    rows.op("aten::item", 1_710, 905)
    rows.sync(1_712, 900)
    rows.launch(2_640, "gemm", 2_650, 350)
    found = finding(rows, "host_op")
    assert found.name == "aten::sort"
    assert "aten::item" not in {name for name, share in found.others if share > 0.01}
    assert dict(found.others)["(waiting, or nothing recorded)"] == pytest.approx(0.3)


def test_the_first_level_says_where_most_of_a_part_falls() -> None:
    rows = sampler_steps(4)
    rows.op("aten::unique", 42_000, 90_000)
    rows.annotation("ProfilerStep#4", 40_000, 95_000)
    rows.launch(40_005, "sgemm", 40_010, 1_000)
    rows.launch(132_500, "sgemm", 132_510, 1_000)
    # 41,010 to 132,510 and 133,510 to 135,000 = 92,990 µs, of 124,810 with 6,020 + 1,935 of each of the four others
    assert finding(rows, "host_op").path[0].name == "ProfilerStep#4 (75% of this)"


def test_hidden_and_unrecorded_idle_is_blamed_on_no_operator() -> None:
    rows = Rows()
    rows.launch(0, "gemm", 10, 90)
    rows.op("aten::mm", 105, 20)
    rows.launch(110, "late", 5_000, 100)
    found = finding(rows, "hidden")
    assert found.name == "device work that the capture lacks"
    assert (found.path, found.step_without_ms) == ((), None)


def test_without_a_device_the_hosts_own_time_is_bisected_and_waiting_left_out() -> None:
    rows = Rows()
    rows.annotation("ProfilerStep#0", 0, 1_000)
    rows.python("engine/loop.py(3): run", 0, 1_000)
    rows.op("aten::mm", 100, 500)
    rows.python("queue.py(154): get", 700, 200)
    rows.python("other.py(1): busy", 0, 1_000, thread="elsewhere")
    found = finding(rows, "host")
    assert found.name == "aten::mm"
    assert (found.total_share, found.share) == pytest.approx((0.8, 0.5))
    assert found.step_without_ms == pytest.approx(0.5)


@pytest.mark.parametrize(("frame", "library"), [
    ("torch/nn/modules/module.py(1501): _call_impl", True),
    ("<built-in method embedding of type object at 0x7d>", True),
    ("nn.Module: Linear_3", True),
    ("threading.py(973): _bootstrap", True),
    ("asyncio/runners.py(118): run", True),
    ("torch/_ops.py(756): __call__", True),
    ("/tmp/torchinductor_root/ab/cab.py(123): call", True),
    ("vllm/v1/worker/gpu_model_runner.py(2907): execute_model", False),
    ("engine/queue.py(7): put", False),
    ("model.py(12): forward", False),
    ("transformers/models/qwen2/modeling_qwen2.py(323): forward", False),
])
def test_frames_of_python_and_of_the_framework_are_no_lines_of_the_program(frame: str, library: bool) -> None:
    assert is_library(frame) is library
