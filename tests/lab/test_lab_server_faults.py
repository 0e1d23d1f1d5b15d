"""Each fault of the lab server moves the figure that names it, and switched off the figure is back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the lab server needs the extra `lab` (prometheus_client)")

from lab_servers import ask, loaded, scrape, small
from xpu_triage.errors import UnusableInput
from xpu_triage.fingerprints import load as fingerprints
from xpu_triage.lab.server import LabServer, Options
from xpu_triage.lab.serving_faults import SERVING_FAULTS
from xpu_triage.lab_load import Load


@dataclass(frozen=True)
class Seen:
    """One load under one fault: differences of the counters, and what the client saw."""

    metrics: dict[str, float]
    iterations: int
    device: dict[str, int]
    load: Load

    def per_step(self, count: str) -> float:
        return self.device[count] / self.iterations

    def mean_s(self, name: str) -> float:
        return self.metrics[f"vllm:{name}_seconds_sum"] / self.metrics[f"vllm:{name}_seconds_count"]


def seen(lab: LabServer, fault: str, **load: int) -> Seen:
    lab.set_fault(fault)
    before, counts, n = scrape(lab), lab.engine.device_counts(), lab.engine.iterations
    size = {"requests": 8, "concurrency": 8, "prompt_tokens": 16, "max_tokens": 12, **load}
    with loaded(lab, **size) as loads:
        pass
    done, = loads
    assert len(done.answered) == len(done.replies)
    after, device = scrape(lab), lab.engine.device_counts()
    return Seen({name: value - before[name] for name, value in after.items()}, lab.engine.iterations - n,
                {name: device[name] - counts[name] for name in device}, done)


def off_on_off(lab: LabServer, fault: str, **load: int) -> tuple[Seen, Seen, Seen]:
    return seen(lab, "none", **load), seen(lab, fault, **load), seen(lab, "none", **load)


def shortest_decodes_ms(log: Path, *parts: Seen) -> list[float]:
    """Of each part the shortest iteration without a prompt: a busy machine makes none shorter."""
    rows = re.findall(r"(\d+) context requests.* time: ([\d.]+) ms", log.read_text())
    assert len(rows) == sum(part.iterations for part in parts)
    shortest, start = [], 0
    for part in parts:
        own = rows[start:start + part.iterations]
        shortest.append(min(float(ms) for context, ms in own if context == "0"))
        start += part.iterations
    return shortest


# ---- faults of the step


def test_a_fallback_makes_steps_long_though_the_device_has_little_to_do(tmp_path: Path):
    """16 × 152,000 draws by one thread take 50 ms and more, beside 7 ms of the device."""
    with LabServer(options=Options(log=tmp_path / "log")) as lab:
        before, faulty, after = off_on_off(lab, "exponential-fallback", requests=16, concurrency=16)
    assert faulty.per_step("fallbacks") > 0.8
    assert before.per_step("fallbacks") == after.per_step("fallbacks") == 0
    usual, long, again = shortest_decodes_ms(tmp_path / "log", before, faulty, after)
    assert long / max(usual, again) > 2
    for healthy in (before, after):
        assert faulty.load.itl_ms / healthy.load.itl_ms > 2
        assert faulty.mean_s("inter_token_latency") / healthy.mean_s("inter_token_latency") > 2


@pytest.mark.parametrize(("fault", "count", "at_least"), [
    ("device-predicate", "syncs", 8),  # one for each of its groups
    ("item-per-step", "syncs", 8),  # one for each seat
    ("per-row-generators", "fallbacks", 8),
    ("boolean-mask", "syncs", 16),  # one for each processor
    ("blocking-h2d", "syncs", 21),  # one for each copy
    ("eager-launches", "launches", 100),
])
def test_what_a_faulty_step_does_too_often_is_done_as_often_as_it_says(fault: str, count: str, at_least: int):
    with small(weights_gb=4.0) as lab:
        before, faulty, after = off_on_off(lab, fault)
    for healthy in (before, after):
        assert faulty.per_step(count) - healthy.per_step(count) > 0.8 * at_least


def test_slow_preparation_on_the_host_adds_its_time_to_every_step(tmp_path: Path):
    """120 µs for each of 128 seats: no step is shorter than 15 ms; else some are far shorter."""
    with small(Options(log=tmp_path / "log"), batch=128, weights_gb=2.0) as lab:
        before, faulty, after = off_on_off(lab, "slow-host-prep")
    usual, long, again = shortest_decodes_ms(tmp_path / "log", before, faulty, after)
    assert long > 128 * 0.12 > min(usual, again)  # one of the two: a busy machine is slow for a while
    for healthy in (before, after):
        assert faulty.per_step("syncs") == pytest.approx(healthy.per_step("syncs"), abs=0.5)


# ---- faults around the step


def test_stalled_admission_makes_requests_wait_though_there_is_room():
    with small() as lab:
        before, faulty, after = off_on_off(lab, "queueing-idle-device", requests=4, concurrency=4, max_tokens=8)
    assert faulty.iterations == 4 * 8  # one after another
    assert faulty.mean_s("request_queue_time") > 0.5
    assert faulty.mean_s("request_queue_time") / faulty.mean_s("time_to_first_token") > 0.5
    for healthy in (before, after):
        assert healthy.iterations == 8  # all together


def test_a_small_pool_makes_requests_be_put_out_and_computed_again():
    """8 × 60 tokens are 32 blocks; under pressure there are 8."""
    size = {"prompt_tokens": 20, "max_tokens": 40}
    with small(context=128) as lab:
        before, faulty, after = off_on_off(lab, "kv-pressure", **size)
    assert faulty.metrics["vllm:num_preemptions_total"] >= 4
    assert faulty.metrics["vllm:iteration_tokens_total_sum"] > 8 * 59  # some were computed more than once
    assert faulty.metrics["vllm:prompt_tokens_total"] == 8 * 20  # a prompt counts once all the same
    for healthy in (before, after):
        assert healthy.metrics["vllm:num_preemptions_total"] == 0
        assert healthy.metrics["vllm:iteration_tokens_total_sum"] == 8 * 59
        assert faulty.iterations / healthy.iterations > 1.5
    assert {reply.tokens for reply in faulty.load.replies} == {40}


def test_prompts_first_make_running_requests_wait(tmp_path: Path):
    """600 tokens are two pieces, eight times one after another: who has got a first token waits for most of them."""
    size = {"prompt_tokens": 600, "max_tokens": 20, "requests": 12, "concurrency": 8}
    with small(Options(log=tmp_path / "log")) as lab:
        before, _, after = off_on_off(lab, "prefill-starves-decode", **size)
    rows = [[int(n) for n in row] for row in re.findall(
        r"(\d+) context requests, \d+ context tokens, (\d+) generation requests", (tmp_path / "log").read_text())]
    parts = [rows[:before.iterations], rows[before.iterations:-after.iterations], rows[-after.iterations:]]
    first, starved, last = ([c and g for c, g in part] for part in parts)
    assert not any(starved)  # never both
    assert any(first)
    assert any(last)
    longest = [max(len(list(same)) for alone, same in groupby(c > 0 and not g for c, g in part) if alone)
               for part in parts]
    assert longest[1] >= 8
    assert max(longest[0], longest[2]) <= 2  # nobody can decode before the first prompt is done


def test_a_slow_tokenizer_burns_a_core_of_its_own_before_the_engine_hears_of_a_request():
    """16 tokens at 2 ms, one prompt after another: the last of 8 waits 256 ms, the mean 144."""
    psutil = pytest.importorskip("psutil")
    with small() as lab:
        before = seen(lab, "none")
        assert not _tokenizers(psutil)
        faulty = seen(lab, "tokenizer-cpu")
        process, = _tokenizers(psutil)
        assert sum(process.cpu_times()[:2]) > 8 * 16 * 2e-3 * 0.9
        after = seen(lab, "none")
        assert not _tokenizers(psutil)
        lab.set_fault("tokenizer-cpu")
        ask(lab, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
        assert _tokenizers(psutil)
    assert not _tokenizers(psutil)

    def before_engine(one: Seen) -> float:
        return sum(reply.ttft_s for reply in one.load.replies) / 8 - one.mean_s("time_to_first_token")

    assert before_engine(faulty) > 0.12
    assert max(before_engine(before), before_engine(after)) < before_engine(faulty) / 2


def _tokenizers(psutil):
    return [child for child in psutil.Process().children() if any("tokenizer" in part for part in child.cmdline())]


def client_gaps_s(one: Seen) -> float:
    return sum(sum(reply.gaps_s) for reply in one.load.replies)


def test_frames_held_back_are_late_for_the_client_alone():
    with small() as lab:
        before, faulty, after = off_on_off(lab, "slow-front", max_tokens=16)
    assert client_gaps_s(faulty) > 8 * 15 * 0.1 - 8 * 0.2  # the first frame may be read late
    for healthy in (before, after):  # the shortest gaps: a busy machine makes none shorter
        shortest = min(min(reply.gaps_s) for reply in healthy.load.replies)
        assert min(sum(reply.gaps_s) / len(reply.gaps_s) for reply in faulty.load.replies) > 1.5 * shortest
        assert client_gaps_s(healthy) / healthy.metrics["vllm:inter_token_latency_seconds_sum"] < 1.5
    # the engine does not hold them back
    assert client_gaps_s(faulty) / faulty.metrics["vllm:inter_token_latency_seconds_sum"] > 1.2


# ---- switching


def test_a_fault_switched_under_load_costs_no_request():
    with small() as lab, loaded(lab, 16, 8, 16, 20) as loads:
        for fault in ("kv-pressure", "device-predicate", "tokenizer-cpu", "prefill-starves-decode", "none"):
            lab.set_fault(fault)
            assert lab.fault.name == fault
    assert {(reply.status, reply.tokens) for reply in loads[0].replies} == {(200, 20)}


def test_over_http_the_fault_is_switched_only_where_that_was_allowed():
    with small(Options(admin=True)) as lab:
        status, _, body = ask(lab, "POST", "/lab/fault", {"fault": "slow-front"})
        assert (status, json.loads(body)["fault"], lab.fault.name) == (200, "slow-front", "slow-front")
        for wrong, says in ({"fault": "slow-frond"}, "'slow-front'"), ({}, "fault"), ({"fault": 3}, "fault"):
            status, _, body = ask(lab, "POST", "/lab/fault", wrong)
            assert status == 400
            assert says in json.loads(body)["error"]["message"]
        assert lab.fault.name == "slow-front"
        assert json.loads(ask(lab, "GET", "/lab/fault")[2])["known"] == list(SERVING_FAULTS)
        with pytest.raises(UnusableInput, match="'slow-front'"):
            lab.set_fault("slow-frond")
    with small() as lab:
        assert ask(lab, "GET", "/lab/fault")[0] == 404


def test_every_fault_says_which_fingerprint_is_right():
    known = {page.id for page in fingerprints()}
    healthy, *others = SERVING_FAULTS.values()
    assert (healthy.name, healthy.fingerprints) == ("none", ())
    for fault in others:
        assert fault.fingerprints, fault.name
        assert set(fault.fingerprints) <= known, fault.name
