"""What is asked for next, in the words of what is at hand: the vendor's own command, the address of the server that
the evidence is of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sheets import typed
from xpu_triage import fingerprints
from xpu_triage.advice import next_measurement
from xpu_triage.at_hand import DEVICE_COMMANDS, AtHand, at_hand
from xpu_triage.catalogue import EVIDENCE
from xpu_triage.diagnosis import diagnose
from xpu_triage.evidence import watch_record
from xpu_triage.samples import EngineLog, Samples, Scrape, Series, Telemetry
from xpu_triage.verdict import Level, judge

NONE = Telemetry()


def smi(tool):
    return Telemetry(samples=(Samples(tool, "f", (Series("device", "0", "utilization", [0.0], [0.5]),)),))


@pytest.mark.parametrize(("tool", "vendor"), [
    ("nvidia-smi dmon", "nvidia"), ("npu-smi info", "ascend"), ("xpu-smi (Kunlun)", "kunlun"),
    ("xpu-smi dump (Intel)", "intel"), ("amd-smi monitor", "amd"), ("rocm-smi", "amd"), ("hl-smi", "gaudi"),
    ("cnmon", "cambricon"), ("hy-smi", "hygon"), ("mthreads-gmi", "mthreads"), ("mx-smi", "metax"),
    ("ixsmi", "iluvatar"), ("DCGM", "nvidia"), ("something", ""),
])
def test_the_vendor_is_told_by_its_tool(tool, vendor):
    found = at_hand(smi(tool), [], [], {})
    assert (found.vendor, found.kinds) == (vendor, {"smi"})


@pytest.mark.parametrize(("form", "vendor"), [
    ("kineto cuda", "nvidia"), ("kineto rocm", "amd"), ("kineto xpu", "intel"), ("nsys 2026.2", "nvidia"),
    ("ascend trace_view.json Level1", "ascend"), ("kineto privateuse1", ""), ("kineto cpu", ""),
])
def test_or_by_the_trace(form, vendor):
    assert at_hand(NONE, [form], [], {}).vendor == vendor


def test_what_a_person_typed_counts_where_nothing_was_read():
    assert at_hand(NONE, [], ["Ascend 910B", "vllm-ascend 0.23"], {}).vendor == "ascend"
    assert at_hand(NONE, [], ["my accelerator", "SGLang 0.5"], {}).engine == "sglang"
    assert at_hand(smi("nvidia-smi"), [], ["Kunlun P800"], {}).vendor == "nvidia"


def test_two_vendors_are_none():
    both = Telemetry(samples=(*smi("nvidia-smi").samples, *smi("rocm-smi").samples))
    assert at_hand(both, [], [], {}).vendor == ""


@pytest.mark.parametrize(("telemetry", "engine", "path"), [
    (Telemetry(logs=(EngineLog("f", "sglang"),)), "sglang", "/metrics"),
    (Telemetry(logs=(EngineLog("f", "tensorrt-llm"),)), "trtllm", "/prometheus/metrics"),
    (Telemetry(scrapes=(Scrape("f", None, {"vllm:num_requests_running": (({}, 1.0),)}),)), "vllm", "/metrics"),
    (Telemetry(scrapes=(Scrape("f", None, {"lmdeploy:num_requests_running": (({}, 1.0),)}),)), "lmdeploy", "/metrics"),
    (NONE, "", "/metrics"),
])
def test_the_engine_says_where_its_metrics_are_and_the_watch_on_which_server(telemetry, engine, path):
    nowhere = at_hand(telemetry, [], [], {})
    assert nowhere.engine == engine
    assert f"curl -s http://HOST:PORT{path} >" in nowhere.command("metrics")
    watched = at_hand(telemetry, [], [], {}, ["http://127.0.0.1:18431"])
    assert f"curl -s http://127.0.0.1:18431{path} >" in watched.command("metrics")


@pytest.mark.parametrize("servers", [
    [], [""], ["http://10.0.0.1:8000", "http://10.0.0.2:8000"], ["http://host-0a1b2c3d:8000"],
    ["http://ip-0a1b2c3d:8000", "http://127.0.0.1:1"]])
def test_a_server_that_is_not_known_is_hidden_or_one_of_several_gives_no_command_that_reaches_one(servers):
    """A name that was taken out counts as a server: the other one need not be the slow one."""
    for engine in ("", "vllm", "sglang"):
        given = at_hand(NONE, [], [engine], {}, servers)
        for kind in ("metrics", "trace"):
            assert re.findall(r"http://[^ /]*", given.command(kind)) in (
                [], ["http://HOST:PORT"], ["http://HOST:PORT", "http://HOST:PORT"])


def watch(server: object) -> str:
    return json.dumps({"watch": 1, "seconds": 3.0, "asked": {"server": server}, "notes": [],
                       "probes": [{"name": "server", "samples": 2, "failed": []}]})


def test_what_is_asked_for_next_is_sent_to_the_server_that_was_watched(tmp_path: Path):
    (tmp_path / "a.prom").write_text(
        '# scraped 2026-11-30T06:00:00Z\nvllm:num_requests_running{engine="0"} 4\n'
        '# TYPE vllm:iteration_tokens_total histogram\nvllm:iteration_tokens_total_bucket{engine="0",le="+Inf"} 9\n'
        'vllm:iteration_tokens_total_count{engine="0"} 9\nvllm:iteration_tokens_total_sum{engine="0"} 36\n')
    (tmp_path / "watch.json").write_text(watch("http://127.0.0.1:18431"))
    text = diagnose(str(tmp_path)).verdict.next
    assert "http://127.0.0.1:18431/metrics" in text
    assert ":8000" not in text


@pytest.mark.parametrize("server", [
    None, 3, ["http://a"], "", "http://a b", "http://a;reboot", "http://a/$(id)", "http://a/`id`", "http://-o:1",
    "ftp://a", "http://a:1' -d '", "http://u:pw@a", "http://a?x=1", "http://" + "a" * 400, "file:///etc/passwd"])
def test_nothing_but_an_address_gets_into_a_command_that_is_pasted(tmp_path: Path, server: object):
    path = tmp_path / "watch.json"
    path.write_text(watch(server))
    assert watch_record.read(path).server == ""


@pytest.mark.parametrize("server", ["http://127.0.0.1:8000", "https://gpu-7.example/vllm", "http://[::1]:30000",
                                    "http://gpu7"])
def test_an_address_of_a_server_is_one(tmp_path: Path, server: str):
    path = tmp_path / "watch.json"
    path.write_text(watch(server))
    assert watch_record.read(path).server == server


def test_each_device_command_is_the_one_of_the_playbook(root: Path):
    """Its program and options, as the vendor's page has them. Of a loop that is the program it runs."""
    pages = " ".join(" ".join(page.read_text(encoding="utf-8").replace("\\\n", " ").split())
                     for page in (root / "playbook/platforms").glob("*.md"))
    for vendor, command in DEVICE_COMMANDS.items():
        looped = re.search(r"timeout 5 (.*?);", command)
        core = looped[1] if looped else command.partition(" > ")[0].replace("sudo ", "").replace("TZ=UTC ", "")
        assert f"`{core}" in pages or f"{core} " in pages, vendor


@pytest.mark.parametrize("kind", sorted(EVIDENCE))
def test_a_command_is_one_line_or_none(kind):
    for vendor in ("", *DEVICE_COMMANDS):
        for engine in ("", "vllm", "sglang", "tgi"):
            assert "\n" not in AtHand(vendor=vendor, engine=engine).command(kind)


def asked(figures, given):
    return judge(typed(figures), fingerprints.load(), (), given).next


def test_what_was_begun_is_finished_before_anything_else_is_asked_for():
    """One reading of a device: half a minute of it, by the tool that is there. One scrape: a second."""
    one = AtHand(frozenset({"smi"}), "nvidia", "", {"device.utilization_fraction": "one reading (9%) is not a mean"})
    text = asked({"device.memory_used_fraction": 0.5}, one)
    assert text.startswith("Measure device.utilization_fraction")
    assert "here: one reading (9%) is not a mean" in text
    assert "`TZ=UTC nvidia-smi dmon -s pucm -o DT -d 1 -c 30 > dmon.txt`" in text
    scrape = AtHand(frozenset({"metrics"}), "", "vllm", {"step.wall_ms": "take a second scrape"}, "http://10.1.1.1:81")
    text = asked({"serving.running": 4}, scrape)
    assert text.startswith("Measure step.wall_ms")
    assert "take a second scrape" in text
    assert "http://10.1.1.1:81/metrics" in text


def test_a_server_without_requests_is_to_be_looked_at_again():
    assert asked({"serving.running": 0, "serving.waiting": 0}, AtHand()).startswith("Collect it while requests run")
    assert "while requests run: none did" not in asked({"serving.running": 2}, AtHand())


def test_the_measurement_that_tells_hypotheses_apart_has_its_command_too():
    text = asked({"device.busy_fraction": 0.3}, AtHand(engine="sglang"))
    assert "a profiler trace of a few steps under load: `curl -X POST http://HOST:PORT/start_profile" in text


def test_what_is_at_hand_changes_words_and_no_verdict():
    figures = typed({"device.busy_fraction": 0.3, "step.wall_ms": 40})
    here = AtHand(vendor="amd", engine="vllm")
    plain, placed = (judge(figures, fingerprints.load(), (), given) for given in (None, here))
    assert plain.level is placed.level is Level.NOT_ENOUGH
    assert plain.hypotheses == placed.hypotheses
    assert plain.next != placed.next
    assert next_measurement([], {}) == next_measurement([], {}, AtHand())


def test_a_pasted_table_of_one_moment_asks_for_its_own_tool(tmp_path: Path):
    (tmp_path / "smi.csv").write_text("timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
                                      "2026/11/30 06:00:00.000, 0, 9 %, 2000 MiB, 81559 MiB\n")
    text = diagnose(str(tmp_path)).verdict.next
    assert "one reading (9%) is not a mean" in text
    assert "nvidia-smi dmon" in text
