"""Continuous batching: who runs, in whose blocks, under every policy, with no device."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xpu_triage.lab.scheduler import BLOCK_TOKENS, HEALTHY, Limits, Policy, Scheduler, blocks

LIMITS = Limits(seats=4, tokens=32, context=64, kv_blocks=16)


@dataclass(eq=False)
class Job:
    prompt: int
    answer: int
    generated: int = 0
    computed: int = 0
    seat: int = -1
    preemptions: int = 0


def turn(scheduler: Scheduler[Job], now_s: float = 0.0) -> tuple[int, int, int]:
    """One iteration: requests prefilled, their tokens, requests decoded."""
    plan = scheduler.plan(now_s)
    for job in scheduler.ran(plan):
        job.generated += 1
        if job.generated == job.answer:
            scheduler.remove(job, now_s)
    return len(plan.prefills), plan.prefill_tokens, len(plan.decodes)


def with_jobs(*jobs: Job, policy: Policy = HEALTHY, limits: Limits = LIMITS) -> Scheduler[Job]:
    scheduler: Scheduler[Job] = Scheduler(limits)
    scheduler.policy = policy
    for job in jobs:
        scheduler.add(job)
    return scheduler


def test_a_prompt_comes_in_pieces_of_the_budget_and_then_decodes():
    job = Job(prompt=40, answer=3)
    scheduler = with_jobs(job)
    assert [turn(scheduler) for _ in range(4)] == [(1, 32, 0), (1, 8, 0), (0, 0, 1), (0, 0, 1)]
    assert (job.generated, job.computed) == (3, 42)  # the last token was drawn and not yet computed
    assert not scheduler.plan(0)
    assert scheduler.kv_used == 0


def test_running_requests_decode_while_another_s_prompt_is_computed():
    first, second = Job(4, 10), Job(40, 2)
    scheduler = with_jobs(first)
    turn(scheduler)
    scheduler.add(second)
    assert [turn(scheduler) for _ in range(3)] == [(1, 31, 1), (1, 9, 1), (0, 0, 2)]


def test_with_prompts_first_running_requests_wait_for_all_of_them():
    first, second, third = Job(4, 10), Job(40, 2), Job(40, 2)
    scheduler = with_jobs(first, policy=Policy(prefill_first=True))
    turn(scheduler)
    scheduler.add(second)
    scheduler.add(third)
    assert [turn(scheduler) for _ in range(4)] == [(1, 32, 0), (2, 32, 0), (1, 16, 0), (0, 0, 3)]


def test_no_more_run_than_there_are_seats():
    scheduler = with_jobs(*(Job(1, 5) for _ in range(6)))
    assert turn(scheduler) == (4, 4, 0)
    assert (len(scheduler.running), len(scheduler.waiting)) == (4, 2)
    assert sorted(job.seat for job in scheduler.running) == [0, 1, 2, 3]


def test_a_request_is_admitted_only_with_blocks_for_all_of_its_prompt():
    """Of 4 blocks the first takes 3 (33 tokens); the second needs 2."""
    limits = Limits(seats=4, tokens=100, context=64, kv_blocks=4)
    scheduler = with_jobs(Job(33, 9), Job(17, 2), limits=limits)
    assert turn(scheduler) == (1, 33, 0)
    assert (len(scheduler.waiting), scheduler.kv_used) == (1, 3)


def test_where_blocks_run_out_the_latest_is_put_out_and_computed_again():
    """Two of 31 tokens in 4 blocks: both fill them, the first to grow takes the second's."""
    limits = Limits(seats=4, tokens=100, context=64, kv_blocks=4)
    early, late = Job(31, 10), Job(31, 10)
    scheduler = with_jobs(early, late, limits=limits)
    assert turn(scheduler) == (2, 62, 0)
    assert turn(scheduler) == (0, 0, 2)  # 32 tokens each: full
    assert turn(scheduler) == (0, 0, 1)  # the early one has the 33rd
    assert (early.preemptions, late.preemptions, scheduler.preemptions) == (0, 1, 1)
    assert (late.computed, late.generated, late.seat) == (0, 2, -1)
    while early.generated < early.answer:
        turn(scheduler)
    assert turn(scheduler) == (1, 33, 0)  # its prompt and the two tokens that it had
    assert late.generated == 3


def test_admission_stalls_one_at_a_time_with_a_pause_after_each():
    scheduler = with_jobs(Job(1, 1), Job(1, 1), policy=Policy(admission_pause_s=2.0))
    assert turn(scheduler, 10.0) == (1, 1, 0)
    plan = scheduler.plan(11.5)
    assert not plan
    assert plan.retry_s == 0.5
    assert turn(scheduler, 12.0) == (1, 1, 0)
    assert scheduler.plan(12.0).retry_s is None  # nobody waits


def test_a_policy_that_ends_lets_everybody_in():
    scheduler = with_jobs(*(Job(1, 9) for _ in range(4)), policy=Policy(admission_pause_s=100.0))
    turn(scheduler)
    scheduler.policy = HEALTHY
    assert turn(scheduler) == (3, 3, 1)


def test_a_pool_that_becomes_smaller_is_vacated():
    scheduler = with_jobs(*(Job(30, 20) for _ in range(4)), limits=Limits(4, 200, 64, 16))
    turn(scheduler)
    assert scheduler.kv_used == 8
    scheduler.policy = Policy(smallest_pool=True)
    scheduler.plan(0)
    assert scheduler.kv_used <= scheduler.kv_blocks == 4
    assert scheduler.preemptions == 2


@pytest.mark.parametrize(("kv_blocks", "tokens", "says"), [(3, 32, "do not hold"), (4, 4, "leave nothing")])
def test_limits_under_which_nothing_could_run_are_refused(kv_blocks: int, tokens: int, says: str):
    with pytest.raises(ValueError, match=says):
        Limits(seats=4, tokens=tokens, context=64, kv_blocks=kv_blocks)


@given(
    jobs=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 24), st.integers(0, 30)), min_size=1, max_size=12),
    pool=st.integers(4, 16),
    budget=st.integers(5, 80),
    policy=st.sampled_from([HEALTHY, Policy(prefill_first=True), Policy(smallest_pool=True),
                            Policy(admission_pause_s=3.0)]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_arrives_is_answered_in_full_within_seats_blocks_and_budget(jobs, pool, budget, policy):
    """Jobs of prompt, answer and time of arrival, each of 64 tokens at most; time is the number of the turn."""
    scheduler = with_jobs(policy=policy, limits=Limits(4, budget, 64, pool))
    todo = [(arrives, Job(prompt, answer)) for prompt, answer, arrives in jobs]
    for now in range(5_000):
        for arrives, job in todo:
            if arrives == now:
                scheduler.add(job)
        plan = scheduler.plan(float(now))
        assert plan.prefill_tokens + len(plan.decodes) <= budget
        assert scheduler.kv_used <= scheduler.kv_blocks
        assert scheduler.kv_used >= sum(blocks(job.computed) for job in scheduler.running)
        seats = [job.seat for job in scheduler.running]
        assert len(set(seats)) == len(seats) <= 4
        assert set(seats) <= {0, 1, 2, 3}
        assert not (policy.prefill_first and plan.prefills and plan.decodes)
        for job in scheduler.ran(plan):
            assert job.computed == job.prompt + job.generated  # all that came before its new token
            job.generated += 1
            if job.generated == job.answer:
                scheduler.remove(job, float(now))
        if all(job.generated == job.answer for _, job in todo):
            break
    assert all(job.generated == job.answer for _, job in todo)
    assert (scheduler.kv_used, scheduler.running, list(scheduler.waiting)) == (0, [], [])
    assert BLOCK_TOKENS == 16
