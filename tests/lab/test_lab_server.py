"""A real HTTP endpoint in this process: it streams, counts what it did, refuses in JSON, and leaves nothing behind."""

from __future__ import annotations

import gc
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the lab server needs the extra `lab` (prometheus_client)")

from lab_servers import ask, events, held, loaded, scrape, small, until
from xpu_triage.errors import UnusableInput
from xpu_triage.lab import server
from xpu_triage.lab.meter import PERIOD_NS, Meter
from xpu_triage.lab.server import LabServer, Options
from xpu_triage.lab.serving import Setup
from xpu_triage.lab.step_profile import Busy
from xpu_triage.lab_load import run_load

# ---- answers


def test_a_stream_delivers_one_event_a_token_and_says_why_it_ends():
    with small() as lab:
        status, headers, body = ask(lab, "POST", "/v1/completions", {
            "prompt": "sixteen letters.", "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}})
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    *tokens, usage, done = events(body)
    assert done == "[DONE]"
    assert len(tokens) == 5
    assert all(event["choices"][0]["text"].strip() for event in tokens)
    assert [event["choices"][0]["finish_reason"] for event in tokens] == [None] * 4 + ["length"]
    assert len({event["id"] for event in tokens}) == 1
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}  # four bytes a token


def test_a_chat_opens_with_a_role_and_no_text():
    with small() as lab:
        _, _, body = ask(lab, "POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 3, "stream": True})
        whole = json.loads(ask(lab, "POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 3})[2])
    opening, *tokens, _ = events(body)
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 3
    assert whole["object"] == "chat.completion"
    text = whole["choices"][0]["message"]["content"]
    assert text == "".join(event["choices"][0]["delta"]["content"] for event in tokens)
    assert whole["usage"]["prompt_tokens"] == 2  # "user: hi", eight bytes


def test_a_tokenized_prompt_and_parameters_of_sampling_are_taken():
    with small() as lab:
        for sampling in ({"temperature": 0}, {"top_k": 5, "top_p": 0.9, "seed": 7}, {"top_k": -1, "min_p": 0.1}):
            status, _, body = ask(lab, "POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, **sampling})
            assert status == 200
            assert json.loads(body)["usage"]["prompt_tokens"] == 3


def test_it_says_which_model_there_is_and_that_it_is_well():
    with small(model_name="tiny") as lab:
        assert ask(lab, "GET", "/health")[0] == 200
        model, = json.loads(ask(lab, "GET", "/v1/models")[2])["data"]
        assert (model["id"], model["max_model_len"]) == ("tiny", 1024)
        assert ask(lab, "POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 1})[0] == 200


def test_requests_on_one_connection_follow_each_other():
    with small() as lab:
        connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=30)
        for _ in range(2):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}))
            assert b"[DONE]" in connection.getresponse().read()
            connection.request("POST", "/nowhere", b"a body that is read all the same")
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["error"]["code"]) == (404, 404)
        connection.close()


# ---- metrics


def test_the_counters_agree_with_what_was_asked_for():
    with small() as lab:
        before = scrape(lab)
        load = run_load(lab.url, requests=10, concurrency=5, prompt_tokens=30, max_tokens=8)
        after = scrape(lab)
        iterations = lab.engine.iterations
    assert len(load.answered) == 10
    assert before["vllm:generation_tokens_total"] == 0
    assert after["vllm:prompt_tokens_total"] == 10 * 30
    assert after["vllm:generation_tokens_total"] == 10 * 8 == sum(reply.tokens for reply in load.replies)
    assert after["vllm:request_success_total{length}"] == 10
    assert [after[f"vllm:request_success_total{{{reason}}}"] for reason in ("stop", "abort", "error")] == [0, 0, 0]
    # The last token of an answer is never computed, its first comes with the prompt.
    assert after["vllm:iteration_tokens_total_sum"] == 10 * (30 + 8 - 1)
    assert after["vllm:iteration_tokens_total_count"] == iterations
    assert after["vllm:inter_token_latency_seconds_count"] == 10 * 7
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time",
                 "request_decode_time", "request_inference_time", "request_time_per_output_token"):
        assert after[f"vllm:{name}_seconds_count"] == 10
    assert after["vllm:request_prompt_tokens_sum"] == 300
    assert after["vllm:request_generation_tokens_sum"] == 80
    idle = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total")
    assert [after[f"vllm:{name}"] for name in idle] == [0, 0, 0, 0]


def test_the_sums_agree_with_the_client_s_clock_and_with_each_other():
    with small() as lab:
        load = run_load(lab.url, requests=8, concurrency=4, prompt_tokens=30, max_tokens=12)
        found = scrape(lab)
    def total(name: str) -> float:
        return found[f"vllm:{name}_seconds_sum"]

    assert total("e2e_request_latency") < sum(reply.e2e_s for reply in load.replies)
    assert total("time_to_first_token") < sum(reply.ttft_s or 0 for reply in load.replies)
    # What reaches the client does so later than the engine has it, its first token and its last; by how much at most,
    # the differences of the sums above say.
    gaps, late_s = sum(sum(reply.gaps_s) for reply in load.replies), 1e-3
    first_s = sum(reply.ttft_s or 0 for reply in load.replies) - total("time_to_first_token")
    last_s = sum(reply.e2e_s for reply in load.replies) - total("e2e_request_latency")
    assert total("inter_token_latency") - first_s - late_s < gaps < total("inter_token_latency") + last_s + late_s
    assert total("request_decode_time") == pytest.approx(total("inter_token_latency"))
    assert total("request_queue_time") + total("request_prefill_time") == pytest.approx(total("time_to_first_token"))
    assert total("request_prefill_time") + total("request_decode_time") == pytest.approx(
        total("request_inference_time"))


def test_gauges_tell_what_runs_now_and_how_busy_the_device_is():
    """Six of at most four: two wait. A step is 80 ms of the device, and little else."""
    found: dict[str, float] = {}
    gc.collect()  # memory of the device that servers before this one had

    def busy() -> bool:
        found.update(scrape(lab))
        return (found["vllm:num_requests_running"] == 4 and found["DCGM_FI_DEV_GPU_UTIL"] >= 50
                and abs(found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] - found["DCGM_FI_DEV_GPU_UTIL"] / 100) < 0.3)

    with small(batch=4, slow_motion=4.0) as lab:
        with loaded(lab, 6, 6, 16, 10) as load:
            until(lambda: busy() or load)
        idle = scrape(lab)
        assert until(lambda: scrape(lab)["DCGM_FI_DEV_GPU_UTIL"] == 0)
    assert found["vllm:num_requests_running"] == 4
    assert found["vllm:num_requests_waiting"] == found["vllm:num_requests_waiting_by_reason{capacity}"] == 2
    # 16 + up to 10 tokens are 1 or 2 blocks each, of 4 × 64
    assert 4 / 256 <= found["vllm:kv_cache_usage_perc"] <= 8 / 256
    assert found["DCGM_FI_DEV_GPU_UTIL"] >= 50
    assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == pytest.approx(found["DCGM_FI_DEV_GPU_UTIL"] / 100, abs=0.3)
    assert found["DCGM_FI_DEV_FB_USED"] == pytest.approx(24e9 / 2**20, rel=0.01)
    assert found["DCGM_FI_DEV_FB_USED"] + found["DCGM_FI_DEV_FB_FREE"] == pytest.approx(64e9 / 2**20, abs=1)
    assert idle["vllm:num_requests_running"] == idle["vllm:num_requests_waiting"] == 0


def test_the_meter_divides_kernels_over_whole_periods():
    """Of five periods: the second is full, the third half, work to come does not count yet."""
    meter = Meter()
    assert meter.fraction(0) == 0
    meter.add(1 * PERIOD_NS, PERIOD_NS + PERIOD_NS // 2)
    meter.add(5 * PERIOD_NS, 10 * PERIOD_NS)
    assert meter.fraction(5 * PERIOD_NS) == pytest.approx(1.5 / 5)
    assert meter.fraction(5 * PERIOD_NS + 1) == pytest.approx(1.5 / 5)
    assert meter.fraction(7 * PERIOD_NS) == pytest.approx((0.5 + 2) / 5)
    meter.add(0, 10_000 * PERIOD_NS)  # longer than what is kept
    assert meter.fraction(9_999 * PERIOD_NS) == 1


def test_the_log_has_the_engine_s_iteration_lines(tmp_path: Path):
    with small(Options(log=tmp_path / "it.log")) as lab:
        run_load(lab.url, requests=2, concurrency=1, prompt_tokens=20, max_tokens=4)
        step_ms = lab.engine.iteration_s / lab.engine.iterations * 1e3
    form = re.compile(
        r"INFO \d\d-\d\d \d\d:\d\d:\d\d \[.*\] Engine 000: Iteration\((\d+)\): (\d+) context requests, (\d+) context "
        r"tokens, (\d+) generation requests, (\d+) generation tokens, iteration elapsed time: ([\d.]+) ms, "
        r"GPU KV cache usage: ([\d.]+)%")
    rows = [form.fullmatch(line) for line in (tmp_path / "it.log").read_text().splitlines()]
    assert all(rows)
    assert [[int(row[i]) for i in range(1, 6)] for row in rows if row] == [
        [0, 1, 20, 0, 0], [1, 0, 0, 1, 1], [2, 0, 0, 1, 1], [3, 0, 0, 1, 1],
        [4, 1, 20, 0, 0], [5, 0, 0, 1, 1], [6, 0, 0, 1, 1], [7, 0, 0, 1, 1]]
    assert sum(float(row[6]) for row in rows if row) / 8 == pytest.approx(step_ms, abs=0.01)


# ---- the profiler


def test_a_profile_under_load_leads_to_the_fault(tmp_path: Path):
    from xpu_triage.diagnosis import diagnose

    with LabServer(Setup(fault="exponential-fallback"), Options(profile_dir=tmp_path)) as lab:
        with loaded(lab, 16, 16, 16, 25):
            assert until(lambda: lab.engine.iterations >= 3)
            assert ask(lab, "POST", "/start_profile")[0] == 200
            begun = lab.engine.iterations
            assert b"already" in ask(lab, "POST", "/start_profile")[2]
            assert until(lambda: lab.engine.iterations >= begun + 8)
            assert ask(lab, "POST", "/stop_profile", {"ignored": True})[0] == 200
        assert ask(lab, "POST", "/stop_profile")[0] == 400
    path, = tmp_path.glob("*_rank0.*.pt.trace.json.gz")
    found = diagnose(path)
    assert found.verdict.id == "cpu-fallback"
    assert found.lead.steps.method == "annotation"
    assert any("aten::exponential_" in level.name for level in found.finding.path)


def test_a_recording_ends_by_itself_before_its_file_becomes_a_burden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("xpu_triage.lab.step_profile.MAX_RECORDED_ROWS", 1000)
    with small(Options(profile_dir=tmp_path), weights_gb=1.0) as lab:
        ask(lab, "POST", "/start_profile")
        run_load(lab.url, 4, 4, 16, 60)
        recorder = lab.engine.stop_profile()
        assert not recorder.on
    assert 1000 < recorder.held < 2000


def test_without_a_folder_there_is_no_profiler():
    with small() as lab:
        assert [ask(lab, "POST", path)[0] for path in ("/start_profile", "/stop_profile")] == [404, 404]


def test_a_profile_of_an_idle_server_is_a_trace_without_steps(tmp_path: Path):
    with small(Options(profile_dir=tmp_path)) as lab:
        assert [ask(lab, "POST", path)[0] for path in ("/start_profile", "/stop_profile")] == [200, 200]
    assert len(list(tmp_path.iterdir())) == 1


# ---- bounds


def test_more_requests_than_it_takes_are_refused_and_those_it_took_are_answered():
    with small(max_requests=3, batch=2) as lab:
        with loaded(lab, 3, 3, 4, 20) as load, held(lab):
            refused = run_load(lab.url, requests=6, concurrency=6, prompt_tokens=4, max_tokens=20)
        found = scrape(lab)
    assert [reply.status for reply in refused.replies] == [503] * 6
    assert [reply.status for reply in load[0].replies] == [200] * 3
    assert found["vllm:request_success_total{length}"] == 3


def test_more_connections_than_it_takes_are_turned_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    with small() as lab:
        first = [socket.create_connection(("127.0.0.1", lab.port)) for _ in range(2)]  # and taken first
        assert ask(lab, "GET", "/health")[0] == 503
        for connection in first:
            connection.close()
        assert until(lambda: ask(lab, "GET", "/health")[0] == 200)


def test_a_reader_that_goes_away_frees_its_place():
    with small() as lab:
        connection = socket.create_connection(("127.0.0.1", lab.port))
        body = json.dumps({"prompt": "a", "max_tokens": 900, "stream": True}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        assert connection.recv(10) == b"HTTP/1.1 2"
        connection.close()
        assert until(lambda: scrape(lab)["vllm:request_success_total{abort}"])
        found = scrape(lab)
    assert found["vllm:request_success_total{abort}"] == 1
    assert found["vllm:num_requests_running"] == found["vllm:kv_cache_usage_perc"] == 0
    assert found["vllm:generation_tokens_total"] < 500


@pytest.mark.parametrize(("wrong", "says"), [
    ({"batch": 0}, "batch is 0"),
    ({"vocab": 1}, "vocab is 1"),
    ({"context": 10**9}, "context is"),
    ({"batch": 600}, "iteration_tokens is 512.*601"),
    ({"weights_gb": -1.0}, "weights_gb"),
    ({"weights_gb": float("nan")}, "weights_gb"),
    ({"slow_motion": 0.0}, "slow_motion"),
    ({"fault": "kv-presure"}, "'kv-pressure'"),
    ({"fault": "cold-start"}, "knows no 'cold-start'"),
])
def test_what_cannot_be_served_is_refused_before_anything_starts(wrong: dict, says: str):
    with pytest.raises(UnusableInput, match=says):
        Setup(**wrong)


# ---- the end


def test_stopping_ends_requests_frees_the_port_and_leaves_no_thread():
    before = set(threading.enumerate())
    lab = small()
    port = lab.port
    loads = []
    clients = threading.Thread(target=lambda: loads.append(run_load(lab.url, 4, 4, 8, 900)))
    idle = socket.create_connection(("127.0.0.1", port))
    clients.start()
    assert until(lambda: lab.engine.iterations >= 3)
    lab.close()
    lab.close()
    clients.join(timeout=60)
    idle.close()
    assert not clients.is_alive()
    assert set(threading.enumerate()) <= before
    assert not loads[0].answered
    assert {reply.error != "" for reply in loads[0].replies} == {True}  # cut, and not as if it were whole
    with socket.create_server(("127.0.0.1", port)):
        pass
    with small() as again:
        assert ask(again, "GET", "/health")[0] == 200


def test_a_second_server_in_the_process_is_refused_and_the_first_goes_on():
    with small() as lab:
        with pytest.raises(Busy, match="runs in this process already"):
            small()
        assert ask(lab, "GET", "/health")[0] == 200


def test_a_port_that_is_taken_is_refused_in_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnusableInput, match=f"{port}.*in use"):
            LabServer(Setup(batch=1, vocab=10), port=port)
    with pytest.raises(UnusableInput, match="99999: cannot be served at"):
        LabServer(Setup(batch=1, vocab=10), port=99_999)
    with small() as lab:  # and the device is free again
        assert lab.engine.alive


def test_an_engine_that_fails_is_said_to_be_unwell_and_nobody_is_left_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with small() as lab:
        def fail(*_: object) -> None:
            raise RuntimeError("the device is gone")

        monkeypatch.setattr(lab.engine._steps, "decode", fail)
        status, _, body = ask(lab, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 3})
        assert status == 503
        assert b"device is gone" not in body
        assert ask(lab, "GET", "/health")[0] == 503
        assert capsys.readouterr().err == "lab server: the engine failed: RuntimeError: the device is gone\n"
        assert scrape(lab)["vllm:request_success_total{error}"] == 1


def test_it_serves_this_machine_alone_unless_told_otherwise():
    with small() as lab:
        assert lab.url == f"http://127.0.0.1:{lab.port}"


def test_the_command_serves_until_it_is_terminated(root: Path):
    script = ("import argparse; from xpu_triage import lab_serve; p = argparse.ArgumentParser(); "
              "lab_serve.add_arguments(p); raise SystemExit(lab_serve.run(p.parse_args()))")
    command = [sys.executable, "-c", script, "--batch", "2", "--vocab", "100", "--seconds", "300",
               "--fault", "slow-front"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        load = run_load(url, 2, 2, 4, 2)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert len(load.answered) == 2


def test_the_arguments_of_the_command_need_no_torch(root: Path):
    done = subprocess.run(
        [sys.executable, "-c", "import sys, argparse; from xpu_triage import lab_serve; "
         "lab_serve.add_arguments(argparse.ArgumentParser()); print('torch' in sys.modules)"],
        capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "False\n"
