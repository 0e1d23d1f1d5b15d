"""Each dialect of profiler file, as a few events with values worked by hand (µs in, ns out)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kineto_files import Reading, kernel, names_at, row_named, rows_named, span, text_of, written
from xpu_triage.evidence import kineto
from xpu_triage.trace import BEFORE_CAPTURE, NOT_LINKED, Kind, Trace


def kinds(trace: Trace) -> list[str]:
    return [Kind(kind).name for kind in trace.kind.tolist()]


def test_a_cuda_file_gives_rows_in_order_of_time_from_zero(reading: Reading) -> None:
    trace = reading(
        kernel("gemm", 120.5, 30.25, correlation=7),
        span("cpu_op", "aten::mm", 100.125, 40, External_id=3),
        span("cuda_runtime", "cudaLaunchKernel", 110.0, 5.5, External_id=3, correlation=7),
        span("user_annotation", "ProfilerStep#4", 100.0, 90),
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}], displayTimeUnit="ns", baseTimeNanoseconds=10**18)

    assert names_at(trace, range(4)) == ["ProfilerStep#4", "aten::mm", "cudaLaunchKernel", "gemm"]
    assert trace.start.tolist() == [0, 125, 10_000, 20_500]
    assert trace.dur.tolist() == [90_000, 40_000, 5_500, 30_250]
    assert kinds(trace) == ["ANNOTATION", "HOST_OP", "RUNTIME", "KERNEL"]
    assert trace.launch.tolist() == [-1, -1, -1, 2]
    assert trace.device.tolist() == [-1, -1, -1, 0]
    assert trace.thread.tolist() == [0, 0, 0, -1]
    assert (trace.devices, trace.streams, trace.threads) == (("0 NVIDIA H100",), ("0/7",), ("100/100",))
    assert trace.format == "kineto cuda"
    assert trace.meta["displayTimeUnit"] == "ns"                # says how to draw, not in what the file counts
    assert trace.counts.events == trace.counts.kept == 4
    assert trace.notes == ()


def test_categories_of_torch_1_9_and_its_lower_case_external_id(reading: Reading) -> None:
    trace = reading(
        span("Operator", "ProfilerStep#1", 1000, 100, tid="100", External_id=1),
        span("Operator", "aten::add", 1010, 20, tid="100", External_id=2),
        span("Runtime", "cudaMemcpyAsync", 1012, 60, tid="100", correlation=50),
        kernel("Memcpy DtoH (Device -> Pageable)", 1030, 40, cat="Memcpy", stream="stream 7", correlation=50),
        {"ph": "X", "cat": "Kernel", "name": "add_kernel", "pid": 0, "tid": "stream 7", "ts": 1080, "dur": 3,
         "args": {"correlation": 51, "external id": 2}},
        span("Memset", "Memset (Device)", 1090, 1, pid=0, tid="stream 7"))

    assert kinds(trace) == ["ANNOTATION", "HOST_OP", "RUNTIME", "COPY", "KERNEL", "KERNEL"]
    assert trace.streams == ("0/7",)
    assert trace.launch[row_named(trace, "add_kernel")] == row_named(trace, "aten::add")
    copy = row_named(trace, "Memcpy DtoH (Device -> Pageable)")
    assert trace.name_of(trace.launch[copy]) == "cudaMemcpyAsync"
    assert trace.blocking[trace.launch[copy]]                   # it returned 2 µs after its copy ended
    assert trace.format == "kineto cuda, torch 1.9"


@pytest.mark.parametrize(("cat", "call", "backend"), [
    ("cuda_runtime", "hipLaunchKernel", "rocm"),
    ("cuda_driver", "cuLaunchKernel", "cuda"),
    ("xpu_runtime", "urEnqueueKernelLaunch", "xpu"),
    ("mtia_runtime", "runFunction", "mtia"),
    ("privateuse1_runtime", "npuLaunchKernel", "privateuse1"),
    ("gcu_runtime", "topsLaunchKernel", "gcu"),
])
def test_runtime_calls_of_every_backend_launch_kernels(reading: Reading, cat: str, call: str, backend: str) -> None:
    trace = reading(span(cat, call, 10, 2, correlation=9), kernel("k", 20, 5, correlation=9))

    assert kinds(trace) == ["RUNTIME", "KERNEL"]
    assert trace.launch.tolist() == [-1, 0]
    assert trace.format == f"kineto {backend}"


def test_numbers_written_as_strings_are_numbers(reading: Reading) -> None:
    trace = reading(span("cuda_runtime", "hipLaunchKernel", "10.5", "2.25", correlation="9"),
                    kernel("k", "20", "5", correlation="9"))

    assert trace.start.tolist() == [0, 9_500]
    assert trace.dur.tolist() == [2_250, 5_000]
    assert trace.launch.tolist() == [-1, 0]


@pytest.mark.parametrize("ts", [
    ["1736408883688177.931", "1736408883688178.162"],
    [1736408883688177931, 1736408883688178162],             # ns, to be written with a dot as JSON numbers
])
def test_epoch_times_keep_every_nanosecond(tmp_path: Path, ts: list[object]) -> None:
    """As float64 these times are 0.25 µs apart: both would become multiples of 250 ns."""
    shown = [t if isinstance(t, str) else f"{t // 1000}.{t % 1000:03}" for t in ts]  # type: ignore[operator]
    text = text_of([span("cpu_op", name, f"@{t}@", 0.004) for name, t in zip("ab", shown, strict=True)])
    if not isinstance(ts[0], str):
        text = text.replace(b'"@', b"").replace(b'@"', b"")
    trace = kineto.read(written(tmp_path / "t.json", text.replace(b"@", b"")))

    assert trace.start.tolist() == [0, 231]
    assert trace.dur.tolist() == [4, 4]


def test_whole_microseconds_since_1970_and_one_with_decimals_agree(reading: Reading) -> None:
    trace = reading(span("cpu_op", "a", 1623143089861797, 5), span("cpu_op", "b", "1623143089861799.001", 5))
    assert trace.start.tolist() == [0, 2_001]


def test_three_months_since_the_profilers_base_time_are_exact(reading: Reading) -> None:
    """The largest times that files with baseTimeNanoseconds carry: 7.9e12 µs, where floats are 0.98 ns apart."""
    trace = reading(span("cpu_op", "a", 7_899_999_999_999.001, 1), span("cpu_op", "b", 7_899_999_999_999.999, 1))
    assert trace.start.tolist() == [0, 998]


def test_a_list_as_root(tmp_path: Path) -> None:
    events = [span("cpu_op", "a", 1, 2), span("cpu_op", "b", 5, 1)]
    trace = kineto.read(written(tmp_path / "list.json", json.dumps(events).encode()))
    assert names_at(trace, range(2)) == ["a", "b"]
    assert (trace.notes, trace.meta) == ((), {})


def test_the_root_may_hold_its_entries_before_and_after_the_events(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"deviceProperties": [{"id": 3, "name": "A"}, {"id": 4}], "traceEvents" : [\n' + \
        json.dumps(kernel("k", 1, 1, device=3)).encode() + b'\n], "distributedInfo": {"rank": 1}, "x": [{}, {}]}\n'
    trace = kineto.read(written(tmp_path / "t.json", text))
    assert trace.devices == ("3 A",)
    assert trace.meta["distributedInfo"] == {"rank": 1}
    assert trace.meta["x"] == [{}, {}]
    assert "traceEvents" not in trace.meta


def test_gzip_is_told_by_content_and_members_may_follow_one_another(tmp_path: Path) -> None:
    text = text_of([span("cpu_op", "a", 1, 2), span("cpu_op", "b", 5, 1)])
    path = tmp_path / "named.txt"
    path.write_bytes(gzip.compress(text[:40]) + gzip.compress(text[40:]) + bytes(64))      # padded, as tar does
    trace = kineto.read(path)
    assert (len(trace), trace.notes) == (2, ())


def test_begin_and_end_events_make_rows_by_lane_and_depth(reading: Reading) -> None:
    def edge(ph: str, name: str, ts: float, tid: int = 1) -> dict[str, object]:
        return {"ph": ph, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}

    trace = reading(edge("B", "outer", 10), edge("B", "inner", 12.5), edge("B", "elsewhere", 13, tid=2),
                    edge("E", "", 14), edge("E", "", 20), edge("E", "too many", 21), edge("B", "open", 30))

    assert names_at(trace, range(2)) == ["outer", "inner"]
    assert trace.start.tolist() == [0, 2_500]
    assert trace.dur.tolist() == [10_000, 1_500]
    assert trace.counts.unmatched == 3                          # elsewhere, too many, open
    assert any("3 events begin or end without" in note for note in trace.notes)


def test_what_is_no_span_is_counted_and_makes_no_row(reading: Reading) -> None:
    trace = reading(
        span("cpu_op", "a", 1, 2),
        {"ph": "i", "name": "mark", "ts": 1, "cat": "cpu_instant_event", "pid": 1, "tid": 1},
        {"ph": "s", "id": 1, "ts": 1, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1},
        {"ph": "f", "id": 1, "ts": 2, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "bp": "e"},
        {"ph": "C", "name": "memory", "ts": 3, "pid": 1, "args": {"bytes": 5}},
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {})
    assert (trace.counts.events, trace.counts.kept, len(trace)) == (7, 1, 1)
    assert trace.notes == ()


def test_rows_that_repeat_others_are_counted_and_left_out(reading: Reading) -> None:
    trace = reading(
        kernel("k", 10, 5),
        kernel("ProfilerStep#1", 9, 50, cat="gpu_user_annotation"),
        kernel("Stream Sync", 20, 5, cat="cuda_sync", correlation=3),
        kernel("Event Sync", 20, 5, cat="xpu_sync"),
        kernel("cudaEventRecord", 20, 0, cat="cuda_event"),
        span("Trace", "PyTorch Profiler (0)", 0, 500, pid="Spans", tid="PyTorch Profiler"))
    assert names_at(trace, range(len(trace))) == ["k"]
    assert trace.counts.repeated == 5
    assert trace.counts.unplaced == 0


def test_a_cpu_run_has_no_device_and_says_cpu(reading: Reading) -> None:
    trace = reading(span("cpu_op", "aten::mm", 1, 2), span("python_function", "model.py(3): forward", 0, 9))
    assert kinds(trace) == ["PYTHON", "HOST_OP"]
    assert (trace.devices, trace.streams, trace.format) == ((), (), "kineto cpu")


def test_a_capture_of_the_device_alone(reading: Reading) -> None:
    trace = reading(kernel("a", 10, 5, correlation=4), kernel("b", 20, 5))
    assert trace.threads == ()
    assert trace.launch.tolist() == [NOT_LINKED, NOT_LINKED]
    assert trace.format == "kineto device only"


def test_a_graph_replay_links_all_its_kernels_to_one_launch(reading: Reading) -> None:
    trace = reading(span("cuda_runtime", "hipGraphLaunch", 1, 2, correlation=600),
                    *(kernel(f"k{i % 3}", 5 + i, 0.5, correlation=600) for i in range(400)))
    assert (trace.launch[1:] == 0).all()
    assert len(trace.names) == 4


def test_python_rows_on_pid_0_are_host_rows_beside_a_device_0(reading: Reading) -> None:
    trace = reading(span("python_function", "threading.py(1): run", 0, 100, pid=0, tid=0), kernel("k", 5, 5),
                    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "ts": 0,
                     "args": {"name": "thread 0 (python3)"}})
    assert kinds(trace) == ["PYTHON", "KERNEL"]
    assert (trace.threads, trace.devices) == (("0/0 python3",), ("0",))
    assert trace.thread.tolist() == [0, -1]
    assert trace.device.tolist() == [-1, 0]


def test_devices_and_streams_of_several_in_their_natural_order(reading: Reading) -> None:
    trace = reading(kernel("a", 1, 1, device=10, stream=20), kernel("b", 2, 1, device=2, stream=7),
                    kernel("c", 3, 1, device="2", stream="stream 7"), kernel("d", 4, 1, device=10, stream=7),
                    deviceProperties=[{"id": 2, "name": ""}, {"id": 10, "name": "B"}])
    assert trace.devices == ("2", "10 B")
    assert trace.streams == ("2/7", "10/7", "10/20")
    assert trace.device.tolist() == [1, 0, 0, 1]


def test_exchanges_copies_and_compute_are_told_apart_by_what_they_are(reading: Reading) -> None:
    trace = reading(
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 1, 1),
        kernel("void cross_device_reduce_1stage<__half, 2>", 2, 1),
        kernel("Memcpy PtoP (Device -> Device)", 3, 1, cat="gpu_memcpy"),
        kernel("dma_request", 4, 1, cat="mtia_ccp_events"),
        kernel("pe_exe", 5, 1, cat="mtia_ccp_events"),
        kernel("CopyDeviceToHost", 6, 1),
        kernel("Memset (Device)", 7, 1, cat="gpu_memset"),
        kernel("at::native::copy_kernel", 8, 1),
        kernel("hcclAllGather", 9, 1, cat="collective_comm"))
    assert kinds(trace) == ["COMM", "COMM", "COPY", "COPY", "KERNEL", "COPY", "KERNEL", "KERNEL", "COMM"]


def test_work_launched_before_the_capture_is_told_from_work_whose_launch_is_missing(reading: Reading) -> None:
    trace = reading(
        kernel("early", 5, 5, correlation=90),
        span("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=100),
        span("cuda_runtime", "cudaLaunchKernel", 4, 2, correlation=104),
        kernel("linked", 11, 2, correlation=104),
        kernel("lost", 15, 2, correlation=102),
        kernel("nameless", 18, 2))
    launch = {name: int(trace.launch[row_named(trace, name)]) for name in ("early", "linked", "lost", "nameless")}
    assert launch["early"] == BEFORE_CAPTURE
    assert launch["linked"] == rows_named(trace, "cudaLaunchKernel")[1]
    assert launch["lost"] == launch["nameless"] == NOT_LINKED


def test_a_build_of_a_category_of_its_own_joins_device_work_to_operators_and_a_note_says_so(reading: Reading) -> None:
    """PrivateUse1 builds: no runtime calls, and rows that name their stream and the operator that asked for them."""
    trace = reading(
        span("cpu_op", "aten::mm", 1, 3, External_id=4),
        kernel("gemm", 5, 5, cat="kl3_task", External_id=4),
        span("kl3_memory", "alloc", 6, 0, device=0, External_id=4),
        span("kl3_wait", "wait", 7, 1, device=0, queue=3))
    assert kinds(trace) == ["HOST_OP", "KERNEL"]
    assert trace.launch.tolist() == [-1, 0]
    assert set(trace.counts.unknown_categories) == {"kl3_memory", "kl3_wait"}
    assert any("kl3_task" in note and "device work" in note for note in trace.notes)


@pytest.mark.parametrize("label", ["KUNLUN 0", "kunlunxin:1", "KLX 3", "klx_p800 0", "PrivateUse1 0", "XPU 7"])
def test_a_lane_that_the_file_names_a_device_holds_device_work_whatever_its_category(reading: Reading,
                                                                                     label: str) -> None:
    trace = reading(
        span("cpu_op", "aten::mm", 1, 3),
        {"ph": "M", "name": "process_labels", "pid": 9, "tid": 0, "ts": 0, "args": {"labels": label}},
        span("p800", "gemm", 5, 5, pid=9, tid=2))
    assert kinds(trace) == ["HOST_OP", "KERNEL"]
    assert any("'p800'" in note and "device work" in note for note in trace.notes)


def test_an_unknown_category_with_stream_and_launch_is_device_work_and_a_note_says_so(reading: Reading) -> None:
    trace = reading(
        span("cuda_runtime", "launch", 1, 2, correlation=8),
        kernel("gemm", 5, 5, cat="npu_task", correlation=8),
        span("my_lane", "something", 6, 5))
    assert kinds(trace) == ["RUNTIME", "KERNEL"]
    assert trace.launch.tolist() == [-1, 0]
    assert trace.counts.unplaced == 1
    assert trace.counts.unknown_categories == ("my_lane",)
    assert any("npu_task" in note and "device work" in note for note in trace.notes)
    assert any("unknown category" in note and "my_lane" in note for note in trace.notes)


def test_an_unknown_category_on_a_lane_named_as_a_device_is_device_work(reading: Reading) -> None:
    label = {"ph": "M", "name": "process_labels", "ts": 0, "tid": 0, "pid": 4, "args": {"labels": "GPU 4"}}
    trace = reading(span("cpu_op", "a", 0, 20), span("gcu_task", "gemm", 5, 5, pid=4, tid=1), label)
    assert kinds(trace) == ["HOST_OP", "KERNEL"]
    assert trace.devices == ("4",)


def test_an_unknown_category_beside_known_kernels_is_not_counted_as_work_twice(reading: Reading) -> None:
    label = {"ph": "M", "name": "process_labels", "ts": 0, "tid": 0, "pid": 4, "args": {"labels": "GPU 4"}}
    trace = reading(kernel("k", 0, 20, device=4), span("queue_depth", "3 waiting", 5, 50, pid=4, tid=1), label)
    assert names_at(trace, range(len(trace))) == ["k"]
    assert trace.counts.unplaced == 1


def test_hpu_rows_are_host_rows_unless_their_arguments_place_them_on_the_device(reading: Reading) -> None:
    host = reading(span("hpu_op", "synLaunch", 0, 5))
    assert kinds(host) == ["HOST_OP"]
    device = reading(kernel("gemm", 0, 5, cat="hpu_op", correlation=4))
    assert kinds(device) == ["KERNEL"]


def test_names_are_made_harmless_once(reading: Reading) -> None:
    trace = reading(span("cpu_op", "a\x1b[31m\nb", 0, 1), span("cpu_op", "a\x1b[31m\nb", 2, 1),
                    kernel("<script>", 3, 1, device="0\x1b]0;x\x07"))
    assert trace.names == ("a\\x1b[31m\\x0ab", "<script>")
    assert trace.devices == ("0\\x1b]0;x\\x07",)


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json.gz", text_of([span("cpu_op", f"op{i}", i, 1) for i in range(9)]), pack=True)
    seen: list[tuple[int, int]] = []
    kineto.read(path, progress=lambda done, size: seen.append((done, size)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_an_end_closes_the_begin_of_its_name_where_moments_coincide(tmp_path):
    """a runs 10–20 µs, b 20–30 µs; b begins in the file before a ends. A stray end closes nothing."""
    rows = [("B", "a", 10), ("B", "b", 20), ("E", "a", 20), ("E", "x", 25), ("E", "b", 30)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [
        {"ph": ph, "cat": "cpu_op", "name": name, "ts": ts, "pid": 1, "tid": 1} for ph, name, ts in rows]}))
    trace = kineto.read(path)
    spans = {trace.name_of(i): (int(trace.start[i]), int(trace.dur[i])) for i in range(len(trace))}
    assert spans == {"a": (0, 10_000), "b": (10_000, 10_000)}
    assert trace.counts.unmatched == 1
