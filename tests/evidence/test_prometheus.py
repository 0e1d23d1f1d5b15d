"""The reader of `/metrics` dumps: lines, dumps in one file, times, damage."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import prometheus, scrape_times
from xpu_triage.samples import Scrape

AT = 1796019631.0
"""2026-11-30 06:20:31 UTC, by `date -u -d '2026-11-30 06:20:31' +%s`."""

DUMP = """\
# HELP vllm:num_requests_running Requests in the batch.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 4.0
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 648.0
"""


def read(tmp_path: Path, text: str, name: str = "dump.prom") -> tuple[Scrape, ...]:
    path = tmp_path / name
    path.write_text(text)
    return prometheus.read(path)


def one(tmp_path: Path, text: str, name: str = "dump.prom") -> Scrape:
    (scrape,) = read(tmp_path, text, name)
    return scrape


def running(scrapes: tuple[Scrape, ...]) -> list[float]:
    return [scrape.values["vllm:num_requests_running"][0][1] for scrape in scrapes]


def test_samples_keep_their_name_labels_and_value(tmp_path: Path) -> None:
    scrape = one(tmp_path, DUMP)
    assert scrape.values == {
        "vllm:num_requests_running": (({"engine": "0", "model_name": "tiny"}, 4.0),),
        "vllm:generation_tokens_total": (({"engine": "0", "model_name": "tiny"}, 648.0),),
    }
    assert (scrape.time, scrape.empty, scrape.skipped, scrape.notes) == (None, (), 0, ())


@pytest.mark.parametrize(("line", "labels", "value"), [
    ("x_y 1", {}, 1.0), ("x_y{} 1.5e+3", {}, 1500.0), ("x_y  -.5", {}, -0.5), ('x_y{a="1"} +Inf', {"a": "1"}, math.inf),
    ('x_y{a="1",} -Inf', {"a": "1"}, -math.inf), ('x_y { a = "1" , b="2" } 3', {"a": "1", "b": "2"}, 3.0),
    (r'x_y{a="q\"}{\\ \n"} 2', {"a": 'q"}{\\ \\x0a'}, 2.0), ('x_y{a="}"} 1 # {trace_id="7"} 0.5 1.2', {"a": "}"}, 1.0),
    ('x_y{a="\u4f60"} 7', {"a": "\u4f60"}, 7.0),
])
def test_a_line_as_exporters_write_it(tmp_path: Path, line: str, labels: dict[str, str], value: float) -> None:
    assert one(tmp_path, f"# TYPE x_y gauge\n{line}\n").values["x_y"] == ((labels, value),)


def test_nan_is_kept_as_unknown(tmp_path: Path) -> None:
    ((_, value),) = one(tmp_path, "# TYPE x_y gauge\nx_y NaN\n").values["x_y"]
    assert math.isnan(value)


def test_announced_families_without_samples_are_empty_not_zero(tmp_path: Path) -> None:
    scrape = one(tmp_path, "# HELP a:b x\n# TYPE a:b gauge\n# TYPE a:h histogram\na:h_bucket{le=\"1\"} 2\n"
                           "# TYPE a:c counter\na:c_total 1\n")
    assert scrape.empty == ("a:b",)
    assert "a:b" not in scrape.values


@pytest.mark.parametrize("noise", [
    "  % Total    % Received % Xferd  Average Speed   Time", "100 51979  100 51979    0     0  3172k      0 --:--:--",
    "Traceback (most recent call last):", 'broken{a="1} 2', "name 1 2 3 4", "vllm:x one", "12 13", "\x00\x01",
])
def test_a_line_that_is_no_sample_is_counted_and_the_rest_is_read(tmp_path: Path, noise: str) -> None:
    first, second = DUMP.split("# HELP vllm:generation")
    scrape = one(tmp_path, f"{first}{noise}\n# HELP vllm:generation{second}")
    assert len(scrape.values) == 2
    assert scrape.skipped == 1
    assert "1 lines are no samples" in scrape.notes[0]


def test_an_error_page_between_two_dumps_is_named(tmp_path: Path) -> None:
    scrapes = read(tmp_path, f"{DUMP}<!DOCTYPE html>\n<html><body>502</body></html>\n{DUMP.replace(' 4.0', ' 5.0')}")
    assert running(scrapes) == [4.0, 5.0]
    assert "HTML page" in scrapes[0].notes[0]
    assert scrapes[1].notes == ()


@pytest.mark.parametrize("text", [
    "", "\n\n", "<html><body>404</body></html>", "no metrics here\n", "404 page not found",
])
def test_a_file_without_a_dump_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnusableInput, match="no line of a /metrics dump") as refusal:
        read(tmp_path, text)
    assert "\n" not in str(refusal.value)


def test_names_from_a_dump_cannot_move_a_cursor(tmp_path: Path) -> None:
    scrape = one(tmp_path, '# TYPE x_y gauge\nx_y{a="\x9b31m\u202e<b>"} 1\n\u202ebad line\n')
    assert scrape.values["x_y"][0][0] == {"a": "\\x9b31m\\u202e<b>"}
    assert "\u202e" not in "".join(scrape.notes)


# several dumps in one file

@pytest.mark.parametrize("between", [
    "# scraped 2026-11-30T06:20:31.000Z", "Mon Nov 30 06:20:31 UTC 2026", "Mon 30 Nov 2026 06:20:31 AM UTC",
    "HTTP/1.1 200 OK\ndate: Mon, 30 Nov 2026 06:20:31 GMT\nserver: uvicorn\n", "=== 2026-11-30 06:20:31 ===",
    "1796019631", "--- 2026-11-30T07:20:31+01:00 ---",
])
def test_a_line_that_is_a_time_begins_the_dump_taken_then(tmp_path: Path, between: str) -> None:
    later = DUMP.replace(" 4.0", " 5.0")
    scrapes = read(tmp_path, f"{DUMP}{between}\n{later}")
    assert running(scrapes) == [4.0, 5.0]
    assert [scrape.time for scrape in scrapes] == [None, AT]
    assert one(tmp_path, f"{between}\n{DUMP}").time == AT


def test_a_family_announced_again_begins_the_next_dump(tmp_path: Path) -> None:
    assert running(read(tmp_path, DUMP + DUMP.replace(" 4.0", " 5.0") + DUMP)) == [4.0, 5.0, 4.0]


def test_without_announcements_a_sample_met_again_begins_the_next_dump(tmp_path: Path) -> None:
    lines = [line for line in DUMP.splitlines() if not line.startswith("#")]
    assert running(read(tmp_path, "\n".join(lines * 3))) == [4.0, 4.0, 4.0]
    assert running(read(tmp_path, "\n".join(lines[:1] * 3))) == [4.0, 4.0, 4.0]


def test_the_end_mark_of_openmetrics_ends_a_dump(tmp_path: Path) -> None:
    scrapes = read(tmp_path, "# TYPE a_b gauge\na_b 1\n# EOF\n# TYPE c_d gauge\nc_d 2\n# EOF\n")
    assert [list(scrape.values) for scrape in scrapes] == [["a_b"], ["c_d"]]


def test_one_dump_with_a_family_in_two_places_stays_one(tmp_path: Path) -> None:
    scrape = one(tmp_path, '# TYPE a_b gauge\na_b 1\n# TYPE c_d gauge\nc_d{x="1"} 2\n# TYPE e_f gauge\ne_f 3\n'
                           '# TYPE c_d gauge\nc_d{x="2"} 4\nc_d{x="2"} 4\n')
    assert [value for _, value in scrape.values["c_d"]] == [2.0, 4.0]
    assert scrape.skipped == 1


# times

@pytest.mark.parametrize(("name", "time"), [
    ("m-2026-11-30T06-20-31Z.prom", AT), ("metrics_20261130_062031.prom", AT), ("20261130T062031.250Z.txt", AT + 0.25),
    ("1796019631.prom", AT), ("1796019631250.prom", AT + 0.25), ("m-2026-11-30T07:20:31+01:00.prom", AT),
    ("20261130.prom", None), ("vllm-0.32.0-after-20req.prom", None), ("1796019631-1796019641.prom", None),
    ("m-2026-13-30T06-20-31Z.prom", None), ("1234567890123456.prom", None),
])
def test_the_time_in_a_file_name(tmp_path: Path, name: str, time: float | None) -> None:
    scrape = one(tmp_path, DUMP, name)
    assert scrape.time == (None if time is None else pytest.approx(time, abs=1e-3))


def test_a_time_beside_the_samples_comes_before_the_name_and_after_our_own_line(tmp_path: Path) -> None:
    stamped = "# TYPE x_y gauge\nx_y{a=\"1\"} 1 1796019631000\nx_y{a=\"2\"} 1 1796019630000\n"
    assert one(tmp_path, stamped, "1796000000.prom").time == AT
    assert one(tmp_path, "# TYPE x_y gauge\nx_y 1 1796019631.5\n# EOF\n").time == AT + 0.5  # OpenMetrics: seconds
    assert one(tmp_path, f"# scraped 2026-11-30T06:20:41Z\n{stamped}").time == AT + 10
    assert one(tmp_path, "# TYPE x_y gauge\nx_y 1 99999999999999999999\nz_y 1 -4\n").time is None


def test_the_date_of_the_file_is_never_taken(tmp_path: Path) -> None:
    read(tmp_path, DUMP)
    os.utime(tmp_path / "dump.prom", (AT, AT))
    assert prometheus.read(tmp_path / "dump.prom")[0].time is None


def test_a_log_line_that_begins_with_a_time_is_no_separator() -> None:
    assert not scrape_times.is_separator("2026-11-30 06:20:31 INFO server started")
    assert not scrape_times.is_separator("12345")


# what is such a dump

def test_dumps_are_known_by_their_content(shared: Path) -> None:
    found = {path.name for folder in ("metrics", "smi", "pyspy", "logs", "bench")
             for path in (shared / "samples" / folder).iterdir()
             if prometheus.matches(path.read_bytes()[:1 << 18].decode("utf-8", "replace"))}
    assert found == {path.name for path in (shared / "samples").rglob("*.prom")}


@pytest.mark.parametrize("text", [
    DUMP, "# HELP vllm:x y\n", 'x_y{a="1"} 2\n', "vllm:num_requests_running 3\n", f"HTTP/1.1 200 OK\n{DUMP}",
    "# TYPE x counter\n# EOF\n",
])
def test_a_dump_is_recognised(text: str) -> None:
    assert prometheus.matches(text)


@pytest.mark.parametrize("text", [
    "schema: 1\nsignals:\n  serving.running: 4\n", "title: x\nrunning: 4\nwaiting: 2\n", "# HELP wanted\n\nSome text\n",
    "timestamp, utilization.gpu [%]\n2026/11/30 06:20:31.123, 43 %\n", "nr_free_pages 123\nnr_zone 4\n",
    "# gpu   pwr  gtemp\n    0    43     35\n", "main;run;step 12\n", '{"a": 1}\n', "",
    "INFO 11-30 06:20:31 x\n" * 9 + "# TYPE x counter\n", "<html><body>404</body></html>\n",
])
def test_other_formats_are_not_taken_for_one(text: str) -> None:
    assert not prometheus.matches(text)


@pytest.mark.parametrize("line", [
    "a{" + 'x="1"  ' * 3000, "a " + "1" * 100_000 + "x", "a" * 100_000, 'a{x="' + "\\a" * 50_000,
    "a" + " " * 50_000 + "b", "# scraped " + "=" * 100_000,
])
def test_a_hostile_line_takes_no_time(tmp_path: Path, line: str) -> None:
    """Patterns that backtrack would not end on these within the life of the test run."""
    assert one(tmp_path, f"{DUMP}{line}\n").skipped <= 1


label_text = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8)
label_sets = st.dictionaries(st.sampled_from(["a", "b", "le"]), label_text).map(lambda found: (*sorted(found.items()),))
metric_names = st.from_regex(r"[a-z][a-z_]{0,6}_[a-z]{1,3}", fullmatch=True)


@given(st.dictionaries(st.tuples(metric_names, label_sets), st.floats(allow_nan=False), min_size=1, max_size=12))
def test_what_was_rendered_is_read_back(tmp_path_factory: pytest.TempPathFactory,
                                        samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", r"\\").replace('"', r"\"")

    lines = []
    for (name, labels), value in samples.items():
        written = ",".join(f'{key}="{escaped(text)}"' for key, text in labels)
        lines.append(f"{name}{{{written}}} {value!r}")
    path = tmp_path_factory.mktemp("dump") / "dump.prom"
    path.write_text("\n".join(lines), encoding="utf-8")
    (scrape,) = prometheus.read(path)
    assert {(name, tuple(sorted(labels.items()))): value for name, found in scrape.values.items()
            for labels, value in found} == samples
    assert scrape.skipped == 0
