"""Whom a difference of pace is blamed on: nobody without a shown wait, the device only where its kernels are slower
alike, and no rank for what its profiler, its batch or its turn in a pipeline takes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet_job import COST_US, LAYER_US, LAYERS, STEPS, written_job
from kineto_files import kernel, span, text_of, written
from xpu_triage import limits
from xpu_triage.fleet.diagnosis import FleetDiagnosis, judge_ranks
from xpu_triage.fleet.inputs import Piece, rank_of
from xpu_triage.fleet.kernels import Kernels, Why, kernels_of, mirrored, why_longer
from xpu_triage.fleet.result import KernelTimes, RankResult
from xpu_triage.fleet.summary import diagnose_rank
from xpu_triage.verdict import Level

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def results(paths: Sequence[Path]) -> list[RankResult]:
    return [diagnose_rank(Piece(path.name, (str(path),), rank_of(path.name))) for path in paths]


def told(paths: Sequence[Path]) -> FleetDiagnosis:
    return judge_ranks(results(paths))


def with_args(paths: Sequence[Path], name: str, args: Mapping[str, Any]) -> list[Path]:
    """The captures with more said of each kernel of that name."""
    for path in paths:
        content = json.loads(path.read_bytes())
        for event in content["traceEvents"]:
            if event["name"] == name:
                event["args"] |= args
        path.write_text(json.dumps(content))
    return list(paths)


def is_not_enough(found: FleetDiagnosis) -> bool:
    return (found.verdict.level, found.verdict.id, found.exit_code) == (Level.NOT_ENOUGH, None, 3)


# -- nobody waits, as far as is shown
def test_sends_and_receives_of_different_pairs_show_nobody_waiting(tmp_path: Path) -> None:
    found = told(written_job(tmp_path, 4, slower={0: 1.6}, comm=SEND_RECV))

    assert is_not_enough(found)
    assert found.verdict.title == "rank 0 takes longer; nothing shows that the others wait for it"
    assert found.comparison.groups == ()
    assert any(note.startswith("sends and receives are between pairs of ranks") for note in found.comparison.notes)
    assert "stages of a pipeline" in found.verdict.next


def test_an_all_to_all_under_the_same_kernel_name_is_matched_where_the_call_is_told(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 4, slower={0: 1.6}, comm=SEND_RECV)
    found = told(with_args(paths, SEND_RECV, {"Process Group Name": "0", "Collective name": "alltoallv",
                                              "In msg nelems": 4096, "Group size": 4}))

    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 0")
    assert found.comparison.groups[0].words == ("all-to-all",)
    assert found.comparison.groups[0].cost_ms == pytest.approx(LAYERS * COST_US / 1e3, rel=1e-3)


def test_collectives_that_do_not_end_together_make_no_straggler_however_long_the_others_are_in_them(
        tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 3, slower={1: 1.6}))
    calls = ranks[1].calls
    assert calls is not None
    scattered = calls.end + 60_000 * np.array([1, -1] * (len(calls) // 2))      # neither near nor far: not shown
    ranks[1] = replace(ranks[1], calls=replace(calls, end=scattered))
    found = judge_ranks(ranks)

    assert found.comparison.rows[1].late
    assert is_not_enough(found)
    assert "not seen to end at the same moments" in found.verdict.summary
    assert found.verdict.next.startswith("Record the same steps on all ranks at the same time")


def test_replicas_with_another_batch_are_told_of_and_not_blamed(tmp_path: Path) -> None:
    def one(rank: int) -> Path:
        batch = 128 if rank == 2 else 64
        return written_job(tmp_path, 4, slower={2: 1.6}, groups=[(i,) for i in range(4)],
                           name=f"b{batch}_rank{{}}.json",
                           marks=f"execute_context_0(0)_generation_{batch}({batch})")[rank]

    paths = [one(rank) for rank in range(4)]
    for path in paths:
        content = json.loads(path.read_bytes())
        content["traceEvents"] = [event for event in content["traceEvents"] if "AllReduce" not in event["name"]]
        path.write_text(json.dumps(content))
    found = told(paths)

    assert is_not_enough(found)
    assert "Its steps carry 128 requests that decode where the others carry 64" in found.verdict.summary
    assert "swap" not in found.verdict.next


def test_a_larger_batch_that_the_others_wait_for_is_a_straggler_and_no_slow_device(tmp_path: Path) -> None:
    ranks = [replace(rank, requests=128.0 if rank.rank == 2 else 64.0)
             for rank in results(written_job(tmp_path, 4, slower={2: 1.6}))]
    found = judge_ranks(ranks)

    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 2")
    assert "the device itself is slower" not in found.verdict.summary
    assert found.verdict.next.startswith("Compare what rank 2 is given with another's")


def test_idle_for_want_of_work_is_no_time_of_the_ranks_own(tmp_path: Path) -> None:
    events = []
    for step in range(4):                                        # 1 ms of work, then 9 ms until the next is handed out
        at = 10_000.0 * step + 1_000
        events += [span("user_annotation", "execute_context_0(0)_generation_8(8)", at, 1_050),
                   span("cuda_runtime", "cudaLaunchKernel", at + 5, 3, correlation=step + 1),
                   kernel("gemm", at + 20, 1_000, correlation=step + 1),
                   span("cuda_runtime", "cudaStreamSynchronize", at + 10, 1_015),
                   span("python_function", "vllm/distributed/device_communicators/shm_broadcast.py(512): dequeue",
                        at + 1_080, 8_900)]
    (rank,) = results([written(tmp_path / "rank0.json", text_of(events))])

    assert rank.steps is not None
    assert rank.steps.wall[0] == pytest.approx(10.0, rel=0.01)
    assert rank.steps.own[0] < 1.5


# -- a cut
def test_of_a_capture_that_breaks_off_the_whole_steps_are_compared(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4, slower={2: 1.6}))
    calls, steps = ranks[2].calls, ranks[2].steps
    assert calls is not None
    assert steps is not None
    kept = slice(0, len(calls) - 1)                              # the last collective of the last step is lost
    own = steps.own.copy()
    own[-1] = 0.1
    ranks[2] = replace(ranks[2], steps=replace(steps, own=own), calls=replace(
        calls, step=calls.step[kept], word=calls.word[kept], us=calls.us[kept], end=calls.end[kept]))
    found = judge_ranks(ranks)

    (group,) = found.comparison.groups
    assert (group.ranks.tolist(), group.steps, len(group.step)) == ([0, 1, 2, 3], STEPS - 1, LAYERS * (STEPS - 1))
    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 2")
    assert found.comparison.rows[2].own_ratio == pytest.approx(1.6, rel=0.05)    # without the step that was cut
    assert any(note.startswith("some steps of rank 2 have other collectives") for note in found.comparison.notes)


# -- what captures record
def deeper(tmp_path: Path, kernels_too: bool) -> FleetDiagnosis:
    ranks = results(written_job(tmp_path, 4, slower={1: 1.6}))
    usual, mine = ranks[0].steps, ranks[1].steps
    assert usual is not None
    assert mine is not None
    if not kernels_too:
        mine = replace(mine, compute=usual.compute)
    ranks[1] = replace(ranks[1], steps=mine, recorded="operators, Python stacks")
    return judge_ranks(ranks)


def test_a_rank_whose_profiler_records_more_is_not_blamed_for_its_host(tmp_path: Path) -> None:
    found = deeper(tmp_path, kernels_too=False)

    assert is_not_enough(found)
    assert "Its capture records Python stacks, operators" in found.verdict.summary
    assert found.verdict.next.startswith("Record all ranks with the same options")
    assert found.comparison.rows[1].recorded_more == ("Python stacks", "operators")


def test_what_kernels_take_longer_is_no_profilers_doing(tmp_path: Path) -> None:
    assert deeper(tmp_path, kernels_too=True).verdict.id == "straggler"


def test_the_options_that_a_capture_tells_of_are_read(tmp_path: Path) -> None:
    path = written_job(tmp_path, 1)[0]
    content = json.loads(path.read_bytes()) | {"record_shapes": 1, "profile_memory": 0, "with_stack": [1]}
    content["traceEvents"].append(span("python_function", "a.py(1): f", 1_000, 5))
    path.write_text(json.dumps(content))

    assert results([path])[0].recorded == "Python stacks, shapes"


# -- kernels by name
def beside(*ranks: Mapping[str, float]) -> Kernels:
    """Of ranks what each kernel takes, called once a step."""
    names = tuple(dict.fromkeys(name for rank in ranks for name in rank))
    ms = np.array([[rank.get(name, 0.0) for name in names] for rank in ranks])
    return Kernels(names, ms, np.asarray(ms > 0, np.float64))


USUAL = {"qkv": 2.0, "attention": 3.0, "up": 4.0, "norm": 1.0, "grouped": 2.0}


def test_all_kernels_slower_alike_are_a_slow_device() -> None:
    slow = {name: ms * factor for (name, ms), factor in zip(USUAL.items(), (1.5, 1.4, 1.6, 1.3, 1.5), strict=True)}

    assert why_longer(beside(slow, USUAL, USUAL), [0], [1, 2]).why is Why.DEVICE


def test_one_kernel_three_times_as_long_is_more_work_and_is_named() -> None:
    found = why_longer(beside(USUAL | {"grouped": 6.0}, USUAL, USUAL), [0], [1, 2])

    assert found.why is Why.WORK
    assert found.words == ("not all of them alike, as on a slow device, but grouped 3.00 ×, while the median one takes "
                           "1.00 ×")


def test_kernels_that_run_more_often_are_more_work() -> None:
    found = beside({name: 2 * ms for name, ms in USUAL.items()}, USUAL, USUAL)
    found.calls[0] *= 2
    longer = why_longer(found, [0], [1, 2])

    assert longer.why is Why.WORK
    assert "run 2.00 × as often" in longer.words


@pytest.mark.parametrize("ranks", [
    ({"gemm": 3.0}, {"gemm": 2.0}), ({"a": 3.0}, {"b": 2.0}), ({}, {}), ({}, {"a": 1.0}), (USUAL, USUAL)])
def test_too_little_tells_nothing(ranks: tuple[dict[str, float], ...]) -> None:
    assert why_longer(beside(*ranks), [0], [1]).why is Why.UNKNOWN


def test_a_hot_expert_is_a_straggler_by_its_work_and_its_device_is_not_blamed(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4, slower={2: 1.6}))
    usual, mine = ranks[0].heaviest, ranks[2].heaviest
    assert usual is not None
    assert mine is not None
    hot = usual.ms.copy()
    hot[0] += mine.ms.sum() - usual.ms.sum()
    ranks[2] = replace(ranks[2], heaviest=replace(usual, ms=hot))
    found = judge_ranks(ranks)

    assert (found.verdict.id, found.verdict.rank) == ("straggler", "rank 2")
    assert "not all of them alike, as on a slow device, but gemm_up" in found.verdict.summary
    assert "swap" not in found.verdict.next
    assert "tokens per expert" in found.verdict.next


@pytest.mark.parametrize("count", [2, 4])
def test_a_kernel_that_mirrors_another_ranks_lateness_may_be_an_exchange(tmp_path: Path, count: int) -> None:
    found = told(written_job(tmp_path, count, slower={1: 1.6}, comm="vendor_private_kernel"))

    assert not any(row.late for row in found.comparison.rows)
    assert is_not_enough(found)
    assert found.verdict.title == "rank 1 may be late: the others may wait for it in vendor_private_kernel"


def test_ranks_with_fewer_layers_and_another_kernel_mirror_nothing() -> None:
    last = beside(USUAL, USUAL, {"qkv": 1.0, "attention": 1.5, "up": 2.0, "norm": 0.5, "grouped": 1.0, "head": 6.0})
    last.calls[:2, :5] = 2

    assert mirrored(last) is None
    assert mirrored(beside(USUAL)) is None
    assert mirrored(beside({}, {})) is None


def test_the_times_of_kernels_are_those_drawn_and_take_little_room(tmp_path: Path) -> None:
    (rank,) = results(written_job(tmp_path, 1, kernels=[(f"a_kernel_with_a_name_that_has_no_end<{i:060}>", 0.03)
                                                        for i in range(30)]))
    found = rank.heaviest

    assert found is not None
    assert len(found) == 20
    assert found.ms.tolist() == pytest.approx([LAYERS * 0.03 * LAYER_US / 1e3] * 20, rel=1e-4)
    assert found.calls.tolist() == [LAYERS] * 20
    assert len(pickle.dumps(found)) < 2_048
    assert kernels_of([RankResult("a"), rank]).ms[0].sum() == 0
    assert rank.steps is not None
    whole = kernels_of([rank], 1.25 * rank.steps.compute.mean(keepdims=True))     # a step in five was cut off empty
    assert whole.ms[0].tolist() == pytest.approx((1.25 * found.ms).tolist(), rel=1e-5)
    nothing = KernelTimes(np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32), "")
    assert kernels_of([RankResult("a", heaviest=nothing)]).names == ()


# -- who is missing, and what is not asked for again
def test_collectives_of_a_larger_group_than_the_ranks_given_miss_ranks(tmp_path: Path) -> None:
    paths = written_job(tmp_path, 8, slower={5: 1.5}, stated=False)[:4]
    comm = next(event["name"] for event in json.loads(paths[0].read_bytes())["traceEvents"] if "nccl" in event["name"])
    found = told(with_args(paths, comm, {"Process Group Name": "0", "Collective name": "allreduce",
                                         "In msg nelems": 4096, "Group size": 8}))

    assert is_not_enough(found)
    assert found.verdict.title == "4 ranks of the group missing: the late one may be among them"
    assert "Collectives cost at most" in found.verdict.summary
    assert found.verdict.next.startswith("Give the evidence of 4 ranks of the group too")


def test_ranks_that_are_late_in_turn_are_told_to_compare_their_work(tmp_path: Path) -> None:
    found = told(written_job(tmp_path, 4, steps=9, late={(step, step % 4): 6_000 for step in range(1, 9)}))

    assert is_not_enough(found)
    assert found.verdict.title == "ranks are late in turn, and the others wait"
    assert "tokens per expert" in found.verdict.next


def test_a_rank_that_comes_last_and_has_no_longer_time_of_its_own_is_named(tmp_path: Path) -> None:
    ranks = results(written_job(tmp_path, 4, slower={1: 5.0}))
    like = ranks[0]
    ranks[1] = replace(ranks[1], steps=like.steps, heaviest=like.heaviest, values=like.values, id=None,
                       level=Level.NOT_ENOUGH)
    found = judge_ranks(ranks)

    assert is_not_enough(found)
    assert found.verdict.title == "rank 1 comes last in most collectives, though its own time is no longer"
    assert "for rank 1 in 100% of those with waiting" in found.verdict.summary


def test_with_all_ranks_given_nobody_is_sent_for_them(tmp_path: Path) -> None:
    asks, *_ = [limit.next for limit in limits.load() if "traces of all ranks over the same steps and compare them" in
                limit.next]
    ranks = [replace(rank, level=Level.PROBABLE, id="comm-bound", next=asks)
             if rank.rank == 3 else rank for rank in results(written_job(tmp_path, 4))]
    found = judge_ranks(ranks)

    assert found.verdict.id == "rank-differs"
    assert "xpu-triage fleet" not in found.verdict.next
    assert found.verdict.next.startswith("All ranks are compared")
