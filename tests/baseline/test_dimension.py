"""The verdict names the dimension that got worse, and no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from baseline_runs import Paper, summaries
from xpu_triage.baseline.compare import compare
from xpu_triage.baseline.dimension import Kind, dimension
from xpu_triage.baseline.store import Baseline, Cell, baseline

PAPER = Paper()
ALL = ("fixed", "prefill", "queue", "decode", "context")
GRID = ((1, 8), (128, 2048), (64, 512))


def faster(**factors: float) -> Paper:
    return replace(PAPER, **{name: getattr(PAPER, name) * factor for name, factor in factors.items()})


def verdict(paper: Paper, seed: int = 0, grid: tuple = GRID, n: int = 120):
    return dimension(compare(PAPER.baseline(2 * seed, n, grid), paper.baseline(2 * seed + 1, n, grid)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("paper", "kind", "says"), [
    (PAPER, Kind.NONE, "No regression found"),
    (faster(prefill=1.6), Kind.PREFILL, "the more the longer the prompt"),
    (faster(decode=1.3), Kind.DECODE, "Tokens are slower in every load"),
    (faster(queue=6), Kind.QUEUE, "Only with more requests in flight the first token comes later"),
    (faster(context=4), Kind.KV_GROWTH, "a growing KV cache"),
    (faster(fixed=4), Kind.QUEUE, "whatever the prompt's length"),
    (faster(**dict.fromkeys(ALL, 1.2)), Kind.DEVICE_OR_BUILD, "both slower in every load"),
])
def test_each_injected_kind_is_named(paper, kind, says, seed):
    found = verdict(paper, seed)
    assert found.kind is kind
    assert says in found.text
    assert found.exit_code == (0 if kind is Kind.NONE else 1)
    assert kind is Kind.NONE or not found.record_next


def test_one_noisy_request_in_each_load_is_no_regression_and_too_many_for_chance():
    """12 of 1,440 against none: each alone may be chance, and all of them hardly are."""
    new = PAPER.baseline(1, 120, GRID)
    for record in new.records:
        record.requests.ttft_ms[50] += 5_000
        record.requests.e2e_ms[50] += 5_000
    found = dimension(compare(PAPER.baseline(0, 120, GRID), new))
    assert (found.kind, found.regression, found.exit_code) == (Kind.OPEN, False, 3)
    assert "1 of 120 requests waited more than" in found.text


def test_one_disturbed_load_among_good_neighbours_is_to_be_recorded_again():
    new = PAPER.baseline(1, 120, ((1, 8, 32), (128, 2048), (64,)))
    disturbed = next(r for r in new.records if (r.concurrency, r.prompt_tokens) == (8, 128))
    for column in ("ttft_ms", "tpot_ms", "e2e_ms"):
        getattr(disturbed.requests, column)[:] *= 1.5
    found = dimension(compare(PAPER.baseline(0, 120, ((1, 8, 32), (128, 2048), (64,))), new))
    assert found.kind is Kind.ONE_LOAD
    assert found.record_next == (Cell(8, None, 128, 64),)
    assert found.exit_code == 3


def test_a_batch_that_weighs_more_is_seen_by_concurrency():
    """Tokens slower with 8 in flight alone, and not the first one."""
    new = PAPER.baseline(1, 120, GRID)
    for record in new.records:
        if record.concurrency == 8:
            record.requests.tpot_ms[:] *= 1.4
            record.requests.e2e_ms[:] = record.requests.ttft_ms + record.requests.tpot_ms * (record.output_tokens - 1)
    found = dimension(compare(PAPER.baseline(0, 120, GRID), new))
    assert found.kind is Kind.CONCURRENCY
    assert "decode is slower" in found.text


def test_decodes_that_wait_for_slow_prefills_do_not_hide_the_prefill():
    """As an engine does: alone, tokens are as before; together, each waits for the others' prompts."""
    new = faster(prefill=2).baseline(1, 120, GRID)
    for record in new.records:
        if record.concurrency == 8:
            record.requests.tpot_ms[:] *= 1.25
    found = dimension(compare(PAPER.baseline(0, 120, GRID), new))
    assert found.kind is Kind.PREFILL
    assert "they wait for it" in found.text


def test_requests_that_queue_behind_slow_decodes_do_not_hide_the_decode():
    new = faster(decode=1.4, queue=4).baseline(1, 120, GRID)
    found = dimension(compare(PAPER.baseline(0, 120, GRID), new))
    assert found.kind is Kind.DECODE
    assert "they wait for their turn" in found.text


@pytest.mark.parametrize(("grid", "kind", "asked"), [
    (((1,), (128,), (64,)), Kind.QUEUE_OR_PREFILL,
     [Cell(8, None, 128, 64), Cell(1, None, 1024, 64), Cell(1, None, 128, 512)]),
    (((32,), (128, 2048), (64,)), Kind.QUEUE, [Cell(4, None, 2048, 64), Cell(32, None, 2048, 512)]),
])
def test_what_the_grid_cannot_tell_is_asked_for(grid, kind, asked):
    found = verdict(replace(PAPER, fixed=90), grid=grid)
    assert found.kind is kind
    assert list(found.record_next) == asked
    assert "cannot be told" in found.text


def test_without_single_requests_there_is_no_claim():
    found = dimension(compare(summaries(100.0), summaries(300.0)))
    assert (found.kind, found.exit_code) == (Kind.UNKNOWN, 3)
    assert "× 3.00" in found.where[0]


def test_what_is_too_noisy_to_be_seen_is_no_all_clear():
    wild = replace(PAPER, own=0.6)
    grid = ((8,), (128,), (64,))
    found = dimension(compare(wild.baseline(0, 16, grid), wild.baseline(1, 16, grid)))
    assert (found.kind, found.exit_code) == (Kind.UNKNOWN, 3)
    assert "too noisy to rule out a slow-down of 10 %" in found.text


def test_more_failures_are_a_regression_of_their_own():
    new = PAPER.baseline(1, 120, GRID)
    new = baseline([replace(record, failed=30) for record in new.records])
    found = dimension(compare(PAPER.baseline(0, 120, GRID), new))
    assert (found.kind, found.exit_code) == (Kind.ERRORS, 1)
    assert "30 of 150 requests failed, before 0 of 120" in found.where[0]


def test_durations_alone_tell_the_lengths_and_say_what_is_missing():
    def only_e2e(kept: Baseline) -> Baseline:
        for record in kept.records:
            record.requests.ttft_ms[:] = record.requests.tpot_ms[:] = np.nan
        return baseline([replace(record, latencies={"e2e": record.latencies["e2e"]}) for record in kept.records])

    grid = ((1, 8), (128, 8192), (16,))
    found = dimension(compare(only_e2e(PAPER.baseline(0, 120, grid)),
                              only_e2e(faster(prefill=1.6).baseline(1, 120, grid))))
    assert found.kind is Kind.PREFILL
    assert "would tell the stage" in found.text


def test_a_change_for_the_better_is_no_regression():
    found = verdict(faster(**dict.fromkeys(ALL, 0.7)))
    assert found.kind is Kind.NONE
    assert "figures are better" in found.text
    assert "× 0.69" in found.where[0]
