"""What a batch says of itself follows from its rows: after a merge, after a filter, after a copy."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from xpu_triage.errors import TriageError
from xpu_triage.sampling import BadRequest, Path, Request, SamplingBatch, sample

VOCAB = 5000
FLAGS = ("all_greedy", "needs_temperature", "needs_top_k", "needs_top_p", "needs_min_p", "fused_npu", "any_seeded")


def batch_of(*parameters: dict, vocab: int = VOCAB) -> SamplingBatch:
    return SamplingBatch.from_requests([Request(f"r{i}", **p) for i, p in enumerate(parameters)], vocab)


def unknown(rows: int = 1) -> SamplingBatch:
    return SamplingBatch.from_device(["u"] * rows, torch.tensor([[1.0, 50, 0.9, 0.0]] * rows), VOCAB)


def flags(batch: SamplingBatch) -> dict[str, bool]:
    return {name: getattr(batch, name) for name in FLAGS}


# ------------------------------------------------------------------------------------------------------ one batch
@pytest.mark.parametrize(
    ("parameters", "true", "largest_k"),
    [
        ({}, set(), VOCAB),
        ({"temperature": 0}, {"all_greedy", "needs_top_k", "fused_npu"}, 1),
        ({"temperature": 0.7}, {"needs_temperature"}, VOCAB),
        ({"top_k": 50}, {"needs_top_k", "fused_npu"}, 50),
        ({"top_k": 1024}, {"needs_top_k", "fused_npu"}, 1024),
        ({"top_k": 1025}, {"needs_top_k"}, 1025),
        ({"top_k": VOCAB}, set(), VOCAB),
        ({"top_k": VOCAB + 1}, set(), VOCAB),
        ({"top_k": 0}, set(), VOCAB),
        ({"top_p": 0.9}, {"needs_top_p"}, VOCAB),
        ({"top_p": 1.0}, set(), VOCAB),
        ({"top_p": 0.0}, {"all_greedy", "needs_top_k", "fused_npu"}, 1),
        ({"min_p": 0.1}, {"needs_min_p"}, VOCAB),
        ({"temperature": 0, "top_p": 0.5, "min_p": 0.1}, {"all_greedy", "needs_top_k", "fused_npu"}, 1),
        ({"seed": 0}, {"any_seeded"}, VOCAB),
        ({"generator": torch.Generator()}, {"any_seeded"}, VOCAB),
    ],
    ids=[f"case-{i}" for i in range(16)],
)
def test_each_parameter_raises_the_flags_it_needs_and_no_other(parameters, true, largest_k):
    batch = batch_of(parameters)
    assert {name for name, value in flags(batch).items() if value} == true
    assert batch.largest_k == largest_k


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, Path.WHOLE),
        ({"min_p": 0.1, "temperature": 2}, Path.WHOLE),
        ({"top_k": 1024, "top_p": 0.5}, Path.SHORTLIST),
        ({"temperature": 0}, Path.SHORTLIST),
        ({"top_k": 1025}, Path.GENERAL),
        ({"top_p": 0.5}, Path.GENERAL),
    ],
    ids=str,
)
def test_a_row_takes_its_path_whatever_stands_beside_it(parameters, path):
    others = [{"top_p": 0.9}, {}, {"top_k": 3}, {"top_k": 2000}]
    assert batch_of(parameters).paths == (path,)
    assert batch_of(*others, parameters).paths[-1] is path


def test_a_small_vocabulary_without_a_filter_is_not_ordered_for_nothing():
    assert batch_of({}, {"top_k": 100}, {"top_k": 99}, vocab=100).paths == (Path.WHOLE, Path.WHOLE, Path.SHORTLIST)


def test_a_row_known_to_the_device_alone_takes_the_general_path_and_every_flag_its_safe_side():
    batch = unknown()
    assert batch.paths == (Path.GENERAL,)
    assert not batch.known
    assert flags(batch) == {
        "all_greedy": False,
        "needs_temperature": True,
        "needs_top_k": True,
        "needs_top_p": True,
        "needs_min_p": True,
        "fused_npu": False,
        "any_seeded": False,
    }
    assert batch.largest_k == VOCAB


# ---------------------------------------------------------------------------------------------- merge, filter, copy
request_parameters = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.5, 1.0]),
        "top_k": st.sampled_from([0, 1, 50, 1024, 1025, VOCAB]),
        "top_p": st.sampled_from([0.0, 0.5, 1.0]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "seed": st.integers(0, 9),
    },
)
batches = st.lists(request_parameters | st.none(), min_size=1, max_size=5).map(
    lambda rows: SamplingBatch(
        tuple(unknown().rows[0] if p is None else Request(f"r{i}", **p) for i, p in enumerate(rows)),
        VOCAB,
        torch.device("cpu"),
        wide=True,
    )
)


@settings(max_examples=300, deadline=None)
@given(batches, batches)
def test_after_a_merge_each_flag_is_the_and_or_the_or_of_both_sides(a, b):
    both = a.merge(b)
    assert len(both) == len(a) + len(b)
    for name in ("all_greedy", "fused_npu", "known"):
        assert getattr(both, name) == (getattr(a, name) and getattr(b, name))
    for name in ("needs_temperature", "needs_top_k", "needs_top_p", "needs_min_p", "any_seeded"):
        assert getattr(both, name) == (getattr(a, name) or getattr(b, name))
    assert both.largest_k == max(a.largest_k, b.largest_k)


@settings(max_examples=300, deadline=None)
@given(batches, st.data())
def test_after_a_filter_the_flags_are_those_of_a_batch_built_from_the_rows_that_stay(batch, data):
    keep = data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=6))
    left = batch.filter(keep)
    fresh = SamplingBatch(tuple(batch.rows[i] for i in keep), VOCAB, batch.device, wide=True)
    assert flags(left) == flags(fresh)
    assert (left.known, left.largest_k, left.groups) == (fresh.known, fresh.largest_k, fresh.groups)


def test_a_flag_lost_in_a_merge_comes_back_when_the_row_that_took_it_leaves():
    """The original change kept the flag down for good: from then on the slower path, for speed alone."""
    eligible, other = batch_of({"top_k": 50}), batch_of({"top_p": 0.9})
    both = eligible.merge(other)
    assert (eligible.fused_npu, other.fused_npu, both.fused_npu) == (True, False, False)
    assert both.filter([0]).fused_npu


def test_a_copied_and_a_replaced_batch_say_the_same_and_do_not_share_their_steps():
    batch = batch_of({"top_k": 50, "seed": 3}, {"temperature": 0})
    assert batch.fused_npu
    batch.advance()
    copied = copy.copy(batch)
    copied.advance()
    assert (batch.steps, copied.steps) == (1, 2)
    wider = dataclasses.replace(batch, rows=(*batch.rows, Request("x")))
    assert flags(copied) == flags(batch)
    assert not wider.fused_npu
    assert (wider.needs_top_k, wider.largest_k) == (True, VOCAB)


def test_positions_go_on_through_merge_and_filter():
    a, b = batch_of({"seed": 1}), batch_of({"seed": 2, "position": 10}, {"top_k": 3})
    for _ in range(4):
        a.advance()
    b.advance()
    positions = [row.position for row in a.merge(b).filter([1, 0]).rows]
    assert positions == [11, 4]


# --------------------------------------------------------------------------------------------------- one upload
class Copies(TorchDispatchMode):
    """Counts tensors that come into being on the host, and copies between devices, per call."""

    def __init__(self) -> None:
        super().__init__()
        self.to_device = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and out.device != args[0].device:
            self.to_device += 1
        return out


def test_parameters_are_sent_in_one_copy_when_the_batch_changes_and_never_in_a_step():
    from torch._subclasses.fake_tensor import FakeTensorMode

    rows = [{"top_k": 5, "seed": 1}, {"top_p": 0.5}, {}, {"temperature": 0}]
    with FakeTensorMode(), Copies() as copies:
        device = torch.device("cuda", 0)
        requests = [Request(f"r{i}", **p) for i, p in enumerate(rows)]
        batch = SamplingBatch.from_requests(requests, 1000, device)
        logits = torch.empty(4, 1000, device=device)
        seen = []
        for _ in range(3):
            sample(logits, batch)
            seen.append(copies.to_device)
        batch = batch.filter([3, 1])
        for _ in range(2):
            sample(logits.narrow(0, 0, 2), batch)
            seen.append(copies.to_device)
    assert seen == [1, 1, 1, 2, 2]


def test_the_sent_buffer_carries_every_parameter_to_the_last_bit():
    batch = batch_of(
        {"temperature": 0.7, "top_k": 1025, "top_p": 0.1 + 0.2, "min_p": 0.05, "seed": 2**64 - 1, "position": 2**40},
        {"seed": -5},
    )
    device = batch.on_device
    assert [batch.rows[i].request_id for i in device.order.tolist()] == ["r1", "r0"]
    assert device.inverse_temperature.tolist() == [1.0, 1 / 0.7]
    assert device.log_min_p.tolist() == [-math.inf, math.log(0.05)]
    assert device.top_p.tolist() == [math.inf, 0.1 + 0.2]
    assert device.top_k.tolist() == [math.inf, 1025.0]
    assert device.sources.seed.tolist() == [-5, -1]
    assert device.sources.position.tolist() == [0, 2**40]
    assert device.sources.seeded.tolist() == [True, True]


def test_in_float32_the_buffer_carries_the_nearest_float32():
    batch = SamplingBatch.from_requests([Request("r", temperature=0.7, top_p=0.9, seed=7)], VOCAB, wide=False)
    device = batch.on_device
    assert device.top_p.dtype is torch.float32
    assert device.top_p.item() == torch.tensor(0.9).item()
    assert device.inverse_temperature.item() == torch.tensor(1 / 0.7).item()
    assert device.sources.seed.item() == 7


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", torch.tensor(1.0)),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", math.nan),
        ("top_p", -0.01),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_p", torch.tensor(0.9)),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", None),
        ("seed", 2**64),
        ("seed", 0.5),
        ("position", -1),
    ],
    ids=str,
)
def test_a_bad_parameter_is_refused_by_request_and_field(field, value):
    with pytest.raises(BadRequest) as caught:
        Request("chat-17", **{field: value})
    assert caught.value.request_id == "chat-17"
    assert caught.value.field == field
    line = str(caught.value)
    assert line.startswith(f"request 'chat-17', {field}: ")
    assert "\n" not in line


def test_a_refusal_says_what_to_do():
    with pytest.raises(BadRequest, match="None or 0 keep every token"):
        Request("r", top_k=-1)
    with pytest.raises(BadRequest, match="reading it would sync"):
        Request("r", top_p=torch.tensor(0.9))


def test_a_request_has_a_seed_or_a_generator_not_both():
    with pytest.raises(BadRequest, match="'r', seed"):
        Request("r", seed=1, generator=torch.Generator())


def test_numpy_numbers_are_numbers():
    import numpy as np

    assert batch_of({"top_k": np.int64(50), "top_p": np.float32(0.5), "temperature": np.float64(0.5)}).largest_k == 50


@pytest.mark.parametrize(
    ("shape", "named"), [((2, 7), "a"), ((3, VOCAB), "c"), ((1, VOCAB), "b"), ((2 * VOCAB,), "a"), ((1, 2, VOCAB), "a")]
)
def test_logits_of_a_wrong_shape_are_refused(shape, named):
    batch = SamplingBatch.from_requests([Request("a"), Request("b")], VOCAB)
    if named == "c":
        named = "b"  # more rows than requests: the last one is named
    with pytest.raises(BadRequest, match=f"request '{named}', logits"):
        sample(torch.zeros(shape), batch)


def test_logits_of_a_wrong_type_or_device_are_refused():
    batch = batch_of({})
    with pytest.raises(BadRequest, match="float64 is none of"):
        sample(torch.zeros(1, VOCAB, dtype=torch.float64), batch)
    with pytest.raises(BadRequest, match="'r0', logits: are on meta, the parameters on cpu"):
        sample(torch.zeros(1, VOCAB, device="meta"), batch)


def test_parts_of_a_batch_on_different_devices_are_refused():
    batch = batch_of({})
    with pytest.raises(BadRequest, match="'x', device"):
        batch.merge(SamplingBatch.from_requests([Request("x")], VOCAB, "meta"))
    with pytest.raises(BadRequest, match="'x', vocab"):
        batch.merge(SamplingBatch.from_requests([Request("x")], VOCAB + 1))
    with pytest.raises(BadRequest, match="'x', generator: cpu is not the batch's meta"):
        SamplingBatch.from_requests([Request("x", generator=torch.Generator())], VOCAB, "meta")
    with pytest.raises(BadRequest, match=r"'x', parameters: shape \(1, 3\)"):
        SamplingBatch.from_device(["x"], torch.zeros(1, 3), VOCAB)


@pytest.mark.parametrize("keep", [[2], [-1], [True], torch.tensor([0]), []], ids=str)
def test_a_filter_takes_host_indices_of_rows_that_exist(keep):
    with pytest.raises(TriageError):
        batch_of({}, {}).filter(keep)


def test_an_empty_batch_or_vocabulary_is_refused():
    with pytest.raises(TriageError, match="at least one request"):
        SamplingBatch.from_requests([], VOCAB)
    with pytest.raises(TriageError, match="vocabulary of 0"):
        batch_of({}, vocab=0)
