"""Telemetry all the way: files of several kinds in one folder, to a verdict, in terminal, JSON and plots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xpu_triage import cli, plots
from xpu_triage import notebook as show
from xpu_triage.diagnosis import Diagnosis, diagnose
from xpu_triage.errors import UnusableInput
from xpu_triage.verdict import Level

DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
"""
STEPS_MS = (4890, 4870, 4910, 4900, 4880)


def dmon(*percents: int, memory: int = 0, watts: int = 90) -> str:
    rest = f"{memory}  0  0  0  0  2619  1980"
    return DMON + "".join(f"    0  {watts}  41  47  {percent}  {rest}\n" for percent in percents)


def dump(at: str, *, running: int, waiting: int = 0, usage: float = 0.3, generated: int = 0, iterations: int = 0,
         preempted: int = 0, finished: int = 0) -> str:
    """One scrape of a vLLM server, cut to what matters."""
    return f"""\
# scraped {at}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {generated}
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{{engine="0",model_name="m"}} {preempted}
# TYPE vllm:request_success counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {finished}
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{{engine="0",le="+Inf",model_name="m"}} {iterations}
vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} {iterations}
vllm:iteration_tokens_total_sum{{engine="0",model_name="m"}} {generated}
"""


@pytest.fixture
def folder(tmp_path: Path):
    def made(**files: str) -> Path:
        for name, content in files.items():
            path = tmp_path / "evidence" / name.replace("__", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return tmp_path / "evidence"
    return made


def value(diagnosis: Diagnosis, name: str) -> object:
    return diagnosis.signals.value(name)


def test_the_incident_is_probable_from_an_idle_device_and_two_scrapes(folder):
    """256 running; 12 iterations in 58.68 s are 4,890 ms a step, at 0 % utilization: the case of the playbook."""
    found = diagnose(folder(
        smi__txt=dmon(0, 0, 0, 0, 0),
        a__prom=dump("2026-11-30T06:00:00Z", running=256, generated=256_000, iterations=1000),
        b__prom=dump("2026-11-30T06:00:58.680Z", running=256, generated=256_000 + 12 * 256, iterations=1012)))
    assert value(found, "step.wall_ms") == pytest.approx(4890)
    assert value(found, "serving.decode_tokens_per_s") == pytest.approx(52.35, abs=0.01)
    assert value(found, "device.utilization_fraction") == 0
    assert (found.verdict.level, found.verdict.id) == (Level.PROBABLE, "cpu-fallback")
    assert not any("serving.decode_tokens_per_s" in c.signals for c in found.verdict.contradictions)


def test_an_idle_server_on_an_idle_device_is_no_fault_of_the_operators(folder):
    found = diagnose(folder(
        smi__txt=dmon(0, 0, 0, 0, 0),
        a__prom=dump("2026-11-30T06:00:00Z", running=0, generated=256_000, iterations=1000),
        b__prom=dump("2026-11-30T06:00:30Z", running=0, generated=256_000, iterations=1000)))
    assert found.verdict.id in (None, "no-fault")
    assert value(found, "serving.running") == 0
    assert "step.wall_ms" not in found.signals


def test_a_healthy_busy_server_gets_no_fault_named(folder):
    """64 running at 40 ms a step, 97 % utilization, no queue."""
    found = diagnose(folder(
        smi__txt=dmon(97, 98, 96, 97, 97, memory=60, watts=600),
        a__prom=dump("2026-11-30T06:00:00Z", running=64, generated=0, iterations=0),
        b__prom=dump("2026-11-30T06:00:30Z", running=64, generated=48_000, iterations=750, finished=90)))
    assert value(found, "step.wall_ms") == pytest.approx(40)
    at_its_limit = ("no-fault", "kernel-bound", "bandwidth-bound")
    assert found.verdict.level is Level.NOT_ENOUGH or found.verdict.id in at_its_limit


def test_requests_that_wait_while_there_is_room_are_queueing(folder):
    scrapes = {f"s{i}__prom": dump(f"2026-11-30T06:00:{10 * i:02d}Z", running=0, waiting=6, usage=0.0, generated=5000,
                                   iterations=700) for i in range(3)}
    found = diagnose(folder(**scrapes))
    assert (found.verdict.level, found.verdict.id) == (Level.PROBABLE, "queueing-idle-device")


def gaps(tokens: int, long: int, usual_ms: float = 18.0, long_ms: float = 1900.0) -> str:
    """The gaps between tokens: usual ones in (10, 25] ms, long ones in (1, 2.5] s."""
    name = "vllm:inter_token_latency_seconds"
    below = {"0.01": 0, "0.025": tokens - long, "1.0": tokens - long, "2.5": tokens, "+Inf": tokens}
    total = ((tokens - long) * usual_ms + long * long_ms) / 1000
    return f"# TYPE {name} histogram\n" + "".join(
        f'{name}_bucket{{engine="0",le="{bound}",model_name="m"}} {count}\n' for bound, count in below.items()
    ) + f'{name}_count{{engine="0",model_name="m"}} {tokens}\n{name}_sum{{engine="0",model_name="m"}} {total}\n'


def prefill_times(requests: int, each_s: float) -> str:
    """All in the bucket of 1 to 2.5 s."""
    name, labels = "vllm:request_prefill_time_seconds", 'engine="0",model_name="m"'
    below = {"1.0": 0, "2.5": requests, "+Inf": requests}
    return f"# TYPE {name} histogram\n" + "".join(
        f'{name}_bucket{{le="{bound}",{labels}}} {count}\n' for bound, count in below.items()
    ) + f"{name}_count{{{labels}}} {requests}\n{name}_sum{{{labels}}} {requests * each_s}\n"


def test_a_server_with_little_to_do_is_no_fallback_though_a_request_ran_at_every_scrape(folder):
    """40 steps in 30 s, each of 18 ms: the rest of the time there was nothing to do."""
    found = diagnose(folder(smi__txt=dmon(2, 1, 3, 2, 2), **{
        f"s{i}__prom": dump(f"2026-11-30T06:{i // 2:02d}:{30 * (i % 2):02d}Z", running=1, usage=0.01,
                            generated=40 * i, iterations=40 * i, finished=3 * i) + gaps(40 * i, 0) for i in range(4)}))
    assert "step.wall_ms" not in found.signals
    assert "tokens come 18 ms apart: there was time without work in it" in found.unknown["step.wall_ms"]
    assert found.verdict.level is Level.NOT_ENOUGH


def test_overload_is_no_stalled_admission(folder):
    """256 run at every scrape, 300 and more wait, at 50 ms a step: a limit is reached, and nothing says that it is
    too low."""
    found = diagnose(folder(**{f"s{i}__prom": dump(
        f"2026-11-30T06:00:{10 * i:02d}Z", running=256 - i % 2, waiting=300 + 90 * i, usage=0.2,
        generated=51_200 * i, iterations=200 * i, finished=170 * i) for i in range(4)}))
    assert value(found, "step.wall_ms") == pytest.approx(50)
    assert found.verdict.id is None
    assert any("255 to 256 requests run at each of 4 scrapes" in note for note in found.measured.notes)


def test_prefills_between_the_tokens_of_others_are_found_in_their_gaps(folder):
    """40 of 2,000 gaps last as long as a prefill, at a full device with a queue. Without the prefills' own times the
    gaps may be anything's."""
    def taken(prefills: bool) -> Diagnosis:
        first, last = (dump(f"2026-11-30T06:0{i}:00Z", running=60, waiting=3, generated=2000 * i, iterations=500 * i,
                            finished=70 * i) + gaps(2000 * i, 40 * i)
                       + (prefill_times(70 * i, 1.6) if prefills else "") for i in range(2))
        return diagnose(folder(smi__txt=dmon(97, 98, 96, 97, memory=50, watts=500), a__prom=first, b__prom=last))

    found = taken(prefills=True)
    assert value(found, "latency.itl_p99_ms") > 1000
    assert (found.verdict.level, found.verdict.id) == (Level.PROBABLE, "prefill-starves-decode")
    assert taken(prefills=False).verdict.level is Level.NOT_ENOUGH


def test_a_full_cache_with_preemptions_is_kv_pressure(folder):
    """1,065 preemptions in 450 requests, as in a recorded case of thrashing."""
    found = diagnose(folder(
        a__prom=dump("2026-11-30T06:00:00Z", running=40, waiting=20, usage=0.99, generated=0),
        b__prom=dump("2026-11-30T06:05:00Z", running=40, waiting=20, usage=0.99, generated=90_000, iterations=2500,
                     preempted=1065, finished=450)))
    assert value(found, "kv.preemptions_per_request") == pytest.approx(1065 / 450, rel=1e-5)
    assert found.verdict.id == "kv-pressure"


def test_one_reading_is_unknown_and_says_how_to_take_more(folder):
    found = diagnose(folder(smi__txt=dmon(100)))
    assert "device.utilization_fraction" not in found.signals
    assert "one reading" in found.unknown["device.utilization_fraction"].lower()


def test_a_spinning_kernel_reads_as_full_and_is_said_not_believed(folder):
    found = diagnose(folder(smi__txt=dmon(100, 100, 100, 100, watts=120)))
    assert found.verdict.id is None
    told = [*(c.text for c in found.verdict.contradictions), *found.measured.notes]
    assert any("spin" in text for text in told)


def test_iteration_lines_are_the_steps(folder):
    lines = [f"Iteration({i}): 0 context requests, 0 context tokens, 256 generation requests, 256 generation tokens, "
             f"iteration elapsed time: {ms:.2f} ms" for i, ms in enumerate(STEPS_MS)]
    found = diagnose(folder(steps__log="\n".join(lines) + "\n"))
    assert value(found, "step.wall_ms") == 4890
    assert value(found, "step.method") == "log"


def periodic(lines: int, running: int, rate: float, first: int = 0, prompt: float = 10.0) -> str:
    """vLLM's own lines, one every ten seconds."""
    return "".join(
        f"INFO 11-30 {at // 3600:02}:{at // 60 % 60:02}:{at % 60:02} [loggers.py:123] Engine 000: Avg prompt "
        f"throughput: {prompt} tokens/s, Avg generation throughput: {rate} tokens/s, Running: {running} reqs, Waiting: "
        "0 reqs, GPU KV cache usage: 60.0%, Prefix cache hit rate: 0.0%\n"
        for at in range(10 * first, 10 * (first + lines), 10))


@pytest.mark.parametrize("before", [0, 720])
def test_the_incident_in_its_commonest_evidence_is_probable_also_at_the_end_of_a_long_log(folder, before):
    """256 running at 52.4 tokens/s is 4.89 s a step, at 0 %; whether two hours of 3,200 tokens/s come first or not."""
    log = periodic(before, 128, 3200.0) + periodic(60, 256, 52.4, before)
    found = diagnose(folder(smi__txt=dmon(*[0] * 30), engine__log=log))
    assert value(found, "step.wall_ms") == pytest.approx(4885.5, abs=0.1)
    assert value(found, "serving.decode_tokens_per_s") == pytest.approx(52.4)
    assert (found.verdict.level, found.verdict.id) == (Level.PROBABLE, "cpu-fallback")
    assert any("61.1 times less" in note for note in found.measured.notes) is (before > 0)


def test_a_healthy_log_beside_a_busy_device_gets_no_fault_named(folder):
    found = diagnose(folder(smi__txt=dmon(97, 98, 96, 97, memory=60, watts=600),
                            engine__log=periodic(60, 64, 1600.0, prompt=1600.0)))
    assert value(found, "step.wall_ms") == pytest.approx(40)
    at_its_limit = ("no-fault", "kernel-bound", "bandwidth-bound")
    assert found.verdict.level is Level.NOT_ENOUGH or found.verdict.id in at_its_limit


def test_a_log_of_prompts_alone_names_no_fault_and_says_what_it_has(folder):
    log = "".join(f"[2026-11-30 06:00:{i:02} TP0] Prefill batch. #new-seq: 1, #new-token: 8192, #cached-token: 0, "
                  f"token usage: 0.30, #running-req: 0, #queue-req: {5 + i % 3}, \n" for i in range(40))
    found = diagnose(folder(engine__log=log))
    assert value(found, "serving.prefill_tokens_per_s") == 8192
    assert found.verdict.level is Level.NOT_ENOUGH
    assert "40 prefill batches" in found.unknown["serving.decode_tokens_per_s"]
    assert "none did here" not in found.verdict.next  # requests were there


def test_every_kind_is_counted_in_words(folder, capsys):
    where = folder(smi__txt=dmon(3, 4, 5), a__prom=dump("2026-11-30T06:00:00Z", running=1), notes__md="# hello\n")
    assert cli.main(["diagnose", str(where)]) in (0, 3)
    out = " ".join(capsys.readouterr().out.split())
    assert "smi: nvidia-smi dmon, 3 readings" in out  # eleven columns, three rows
    assert "metrics, 9 samples" in out
    assert "not used: text of no known kind" in out
    assert "1 utilization" in out


def test_the_json_tells_what_is_unknown_and_why(folder, capsys):
    cli.main(["diagnose", "--json", str(folder(a__prom=dump("2026-11-30T06:00:00Z", running=4)))])
    told = json.loads(capsys.readouterr().out)
    assert told["signals"]["serving.running"]["value"] == 4
    assert told["signals"]["serving.running"]["how"] == "metrics"
    assert "second scrape" in told["unknown"]["step.wall_ms"]


def test_a_record_of_a_watch_alone_is_no_evidence(tmp_path):
    record = {"watch": 1, "seconds": 3.0, "interrupted": True, "notes": [],
              "probes": [{"name": "stacks", "samples": 0, "failed": ["no permission: SYS_PTRACE"]}]}
    (tmp_path / "watch.json").write_text(json.dumps(record))
    with pytest.raises(UnusableInput, match=r"no usable evidence.*SYS_PTRACE"):
        diagnose(tmp_path)


def test_what_a_watch_could_not_do_is_told_beside_the_evidence(folder):
    record = {"watch": 1, "seconds": 3.0, "interrupted": False, "notes": [],
              "probes": [{"name": "stacks", "samples": 0, "failed": ["\x1b[31mno permission"]}]}
    found = diagnose(folder(smi__txt=dmon(3, 4, 5), watch__json=json.dumps(record)))
    notes = next(piece.notes for piece in found.evidence if piece.kind == "watch")
    assert notes == ("watched for 3.0 s", "stacks: \\x1b[31mno permission")


@pytest.mark.parametrize("damaged", [
    '{"watch": 1, "probes": 3}', '{"watch": 1, "probes": [{"name": 3}]}', '{"watch": 1, "probes": [',
    '{"watch": 1, "probes": [{"samples": "x", "name": ""}]}'])
def test_a_damaged_record_is_noted_and_costs_nothing_else(folder, damaged):
    found = diagnose(folder(smi__txt=dmon(3, 4, 5), watch__json=damaged))
    assert value(found, "device.utilization_fraction") == pytest.approx(0.04)
    assert any("not used" in note for piece in found.evidence for note in piece.notes)


def test_a_step_that_follows_from_the_other_two_figures_does_not_confirm_them(folder):
    """52.4 tokens/s at 256 running: 4,885 ms, and the product of course is 256."""
    lines = "\n".join(
        f"INFO 11-29 10:{i // 6:02}:{i % 6 * 10:02} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 52.4 tokens/s, Running: 256 reqs, Waiting: 0 reqs, GPU KV cache usage: 40.0%, "
        "Prefix cache hit rate: 0.0%" for i in range(60))
    found = diagnose(folder(engine__log=lines + "\n"))
    assert value(found, "step.wall_ms") == pytest.approx(256 / 52.4 * 1000)
    told = show.cross_check(found).text
    assert "follows from the other two" in told
    assert "agree" not in told


def test_the_notebook_shows_telemetry_where_there_is_no_trace(folder):
    found = diagnose(folder(
        smi__txt=dmon(3, 4, 5),
        a__prom=dump("2026-11-30T06:00:00Z", running=4, generated=100, iterations=100),
        b__prom=dump("2026-11-30T06:00:10Z", running=4, generated=500, iterations=200)))
    assert "mean 4.0 % of 3 readings, 3.0 % to 5.0 %" in plots.utilization(found).title
    assert plots.step_times(found).title == "Running 4, waiting 0 requests on average"
    assert "step.wall_ms" in show.steps(found).text
    assert "They agree" in show.cross_check(found).text  # 40 tokens/s × 0.1 s = 4
    assert "nvidia-smi dmon" in show.smi(found).text
