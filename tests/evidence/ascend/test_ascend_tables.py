"""Files without a trace: operations of the device alone, and summaries; and which file of a folder is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_files import serving_run
from xpu_triage import fingerprints
from xpu_triage.errors import UnusableInput
from xpu_triage.evidence import ascend
from xpu_triage.evidence.ascend import tables
from xpu_triage.signals import Signal, Signals
from xpu_triage.steps.walk import walk
from xpu_triage.trace import Kind
from xpu_triage.verdict import Level, judge

HEADER = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
CASTS = HEADER + "".join(f"1,Cast{i},Cast,{core},17364088837046{i}3.212\t,{dur},\n" for i, (core, dur) in enumerate(
    [("AI_CPU", 100), ("AI_VECTOR_CORE", 2), ("AI_CPU", 150.5)]))
STEPS = ("Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n"
         "4,200,300,10,310,500,1000\n5,250,250,10,260,700,1200\n")


def test_a_table_of_operations_alone_is_the_devices_side_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(CASTS)
    trace = ascend.read(path)
    assert trace.format == "ascend kernel_details.csv"
    assert trace.dur.tolist() == [100_000, 2_000, 150_500]
    assert trace.start.tolist() == [0, 10_000, 20_000]
    found = {signal.name: signal.value for signal in walk(trace).signals}
    assert found["kernel.top_name"] == "Cast (AI_CPU)"
    assert found["kernel.top_core"] == "AI_CPU"
    assert found["fallback.op"] == "Cast (AI_CPU)"
    assert not trace.threads
    assert "fallback.op" not in trace.meta.get("cannot", {})


def layers_in_steps(steps: int, numbered: bool = True) -> str:
    """Steps of four layers of three kernels of 100 µs, 50 µs apart from each other."""
    lines, at = [HEADER if numbered else HEADER.removeprefix("Step Id,")], 1736408883704643.0
    for step in range(steps):
        for name in ["Norm", "MatMul", "Attention"] * 4:
            lines.append(f"{f'{10 + step},' if numbered else ''}{name},{name},AI_CORE,{at:.1f}\t,100\n")
            at += 100
        at += 50
    return "".join(lines)


def test_the_steps_are_those_that_the_table_gives_its_rows_and_not_their_layers(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(layers_in_steps(8))
    found = {signal.name: signal.value for signal in walk(ascend.read(path)).signals}
    assert (found["step.count"], found["step.method"]) == (8, "annotation")
    assert found["step.wall_ms"] == pytest.approx(12 * 0.1 + 0.05)
    assert found["kernel.per_step"] == 12
    assert "idle.launching_fraction" not in found                       # a step's number is no row of the host


def test_without_numbers_of_steps_layers_alone_are_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(layers_in_steps(8, numbered=False))
    walked = walk(ascend.read(path))
    assert walked.steps.method == "window"
    assert "kernel.per_step" not in {signal.name for signal in walked.signals}


@pytest.mark.parametrize("core", ["HCCL", "COMMUNICATION"])
def test_collectives_are_told_by_either_word(tmp_path: Path, core: str) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(f"{HEADER}1,hcom_broadcast__445_0,hcom_broadcast_,{core},1699529622793969.5,30.68\n")
    trace = ascend.read(path)
    assert (trace.kind.tolist(), trace.names) == ([Kind.COMM], ("hcom_broadcast",))


def test_without_kinds_of_core_the_table_does_not_exclude_ai_cpu(tmp_path: Path) -> None:
    path = serving_run(3).operations(tmp_path / "kernel_details.csv", level=0)
    assert "AI_CPU would not be seen" in ascend.read(path).meta["cannot"]["fallback.op"]


def test_columns_are_found_by_name_in_any_order_and_in_msprofs_words(tmp_path: Path) -> None:
    path = tmp_path / "op_summary_20250101.csv"
    path.write_text("\ufeffTask Duration(us),Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Stream ID\n"
                    "5.5,3,aclnnAdd_Add,Add,AI_VECTOR_CORE,\"1736408883704643.212\t\",7\n")
    trace = ascend.read(path)
    assert (trace.devices, trace.streams, trace.names) == (("NPU 3",), ("NPU 3/7",), ("Add (AI_VECTOR_CORE)",))
    assert trace.dur.tolist() == [5_500]


@pytest.mark.parametrize("bad", ["1,Cast,Cast,AI_CPU,,5", "1,Cast,Cast,AI_CPU,x,5", "1,Cast,Cast,AI_CPU,1736,-5",
                                 "1,Cast,Cast,AI_CPU,1736408883704643.2,nan", "1,Cast", "1,C,C,AI_CPU,1e400,1e400"])
def test_a_row_without_times_is_counted_and_left_out(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(CASTS + bad + "\n")
    trace = ascend.read(path)
    assert (len(trace), trace.counts.unreadable, trace.counts.events) == (3, 1, 4)


@pytest.mark.parametrize("content", [HEADER, "", "\0", HEADER + "x\n"])
def test_a_table_without_a_row_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(content)
    with pytest.raises(UnusableInput):
        ascend.read(path)


TASKS = "kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"


def test_the_tasks_of_the_scheduler_are_work_copies_exchanges_and_marks(tmp_path: Path) -> None:
    path = tmp_path / "task_time_20250101.csv"
    path.write_text(TASKS + "MatMul,KERNEL_AICORE,2,1,10,1736.5,1746.5\nMEMCPY_ASYNC,MEMCPY_ASYNC,2,2,5,1750,1755\n"
                    "x,EVENT_WAIT,2,3,900,1760,2660\nCast,KERNEL_AICPU,2,4,30,1770,1800\nx,COMMUNICATION,3,5,7,1900,1907\n")
    trace = ascend.read(path)
    assert [Kind(kind).name for kind in trace.kind.tolist()] == ["KERNEL", "COPY", "KERNEL", "COMM"]
    assert trace.name_of(2) == "Cast (AI_CPU)"
    assert trace.dur.tolist() == [10_000, 5_000, 30_000, 7_000]
    assert (trace.counts.events, trace.counts.repeated, trace.counts.kept) == (5, 1, 4)
    assert "copies" not in trace.notes[0]
    assert "device.copy_fraction" not in trace.cannot


def test_a_table_without_copies_does_not_say_that_there_were_none(tmp_path: Path) -> None:
    trace = ascend.read(serving_run(3).operations(tmp_path / "kernel_details.csv"))
    assert "no copies" in trace.cannot["device.copy_fraction"]


@pytest.mark.parametrize("header", [
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num",
    "Step Id,Duration(us),Name,Start Time(us),Type,Accelerator,Stream ID",
    "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),Block Dim",
    "Model Name,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible"])
def test_operations_are_found_by_their_columns_in_every_version(tmp_path: Path, header: str) -> None:
    figures = {"Name": "k", "Op Name": "k", "Type": "Cast", "OP Type": "Cast", "Accelerator Core": "AI_CPU",
               "Accelerator": "AI_CPU", "Task Type": "AI_CPU", "Start Time(us)": "1736408883704643.25\t",
               "Task Start Time(us)": "1736408883704643.25", "Duration(us)": "5.5", "Task Duration(us)": "5.5"}
    path = tmp_path / "operations.csv"
    path.write_text(header + "\n" + ",".join(figures.get(name, "N/A") for name in header.split(",")) + "\n")
    assert ascend.kind_of(path, path.read_bytes()) == ascend.OPERATIONS
    trace = ascend.read(path)
    assert (trace.name_of(0), trace.dur.tolist()) == ("Cast (AI_CPU)", [5500])


# -- summaries
def signals(path: Path) -> dict[str, object]:
    return {signal.name: signal.value for signal in tables.read(path).signals}


def test_stages_divide_as_the_vendor_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(STEPS)
    found = signals(path)
    assert found["step.wall_ms"] == 1.1
    assert found["step.count"] == 2
    assert found["device.compute_fraction"] == pytest.approx(450 / 2200)
    assert found["device.comm_fraction"] == pytest.approx(550 / 2200)
    assert found["device.busy_fraction"] == pytest.approx(1 - 1200 / 2200)


def test_a_stage_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(STEPS + "6,5000,0,0,0,0,1000\n7,N/A,1,1,1,1,10\n8,1,1,1,1,1,0\n")
    summary = tables.read(path)
    assert (summary.rows, summary.skipped) == (5, 3)
    assert {signal.name: signal.value for signal in summary.signals}["step.count"] == 2


def test_ai_cpu_in_the_sums_is_named_and_shared_by_the_stages_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "op_statistic.csv"
    path.write_text("OP Type,Core Type,Count,Total Time(us),Min Time(us)\nCast,AI_CPU,7,220,1\nAdd,AI_CORE,9,900,1\n")
    assert signals(path) == {"fallback.op": "Cast (AI_CPU)"}


def test_in_a_sum_of_operations_the_exchange_of_a_fused_operator_is_no_fallback(tmp_path: Path) -> None:
    path = tmp_path / "op_statistic.csv"
    path.write_text("OP Type,Core Type,Count,Total Time(us),Min Time(us)\n"
                    "MatmulAllReduceAicpu,AI_CPU,160,48000,290\nMatmulAllReduce,MIX_AIC,160,48000,290\n")
    assert signals(path) == {}
    path.write_text(path.read_text() + "Cast,AI_CPU,7,220,1\n")
    assert signals(path) == {"fallback.op": "Cast (AI_CPU)"}
    (tmp_path / "step_trace_time.csv").write_text(STEPS)
    assert signals(path)["fallback.fraction"] == pytest.approx(220 / 2200)


@pytest.mark.parametrize(("core", "why"), [("AI_CORE", "does not show what ran on the host"), ("N/A", "Level1")])
def test_no_ai_cpu_in_the_sums_is_no_all_clear(tmp_path: Path, core: str, why: str) -> None:
    path = tmp_path / "op_statistic.csv"
    path.write_text(f"OP Type,Core Type,Count,Total Time(us)\nAdd,{core},9,900\n")
    summary = tables.read(path)
    assert not summary.signals
    assert why in summary.unknown["fallback.op"]


def test_calls_give_the_launch_and_with_stages_the_synchronizations(tmp_path: Path) -> None:
    path = tmp_path / "api_statistic.csv"
    path.write_text("Level,API Name,Time(us),Count,Avg(us)\nacl,aclrtSynchronizeStream,900,6,150\n"
                    "runtime,StreamSynchronize,890,6,148\nnode,launch,400,20,20\nacl,aclnnAdd,5,1,5\n")
    assert signals(path) == {"host.launch_us": 20.0}
    (tmp_path / "step_trace_time.csv").write_text(STEPS)
    assert signals(path)["sync.per_step"] == 3


def test_host_times_with_waits_inside_name_no_operator(tmp_path: Path) -> None:
    path = tmp_path / "operator_details.csv"
    path.write_text("Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),"
                    "Device Self Duration(us)\naten::item,,\"a;\nb\",90,95,0\naten::mm,,,40,45,3\n")
    summary = tables.read(path)
    assert not summary.signals
    assert any("aten::item" in note for note in summary.notes)


def test_names_in_summaries_cannot_do_anything(tmp_path: Path) -> None:
    path = tmp_path / "op_statistic.csv"
    path.write_text("OP Type,Core Type,Count,Total Time(us)\n\x1b[31mCast,AI_CPU,7,220\n")
    assert "\x1b" not in str(signals(path)["fallback.op"])


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "OP Type,Core Type,Count,Total Time(us)\nx,y,z,w\n", "\0\0", "",
                                     "Step,Computing\n"])
def test_what_is_no_summary_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "op_statistic.csv"
    path.write_text(content)
    with pytest.raises(UnusableInput):
        tables.read(path)


# -- folders
def test_a_folder_is_one_trace(tmp_path: Path) -> None:
    run = serving_run(3)
    inner = tmp_path / "node_1_2025_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    run.text(inner)
    run.database(inner / "ascend_pytorch_profiler_0.db")
    (inner / "step_trace_time.csv").write_text(STEPS)
    trace = ascend.read(inner.parent)
    assert trace.source.endswith("trace_view.json")
    (inner / "trace_view.json").unlink()
    assert ascend.read(inner.parent).format.startswith("ascend database")
    (inner / "ascend_pytorch_profiler_0.db").unlink()
    assert ascend.read(inner.parent).format == "ascend kernel_details.csv"


def kinds(folder: Path) -> list[tuple[Path, str]]:
    return [(path, ascend.kind_of(path, path.read_bytes())) for path in sorted(folder.iterdir())]


def test_every_file_of_a_run_is_read_through_the_one_that_leads(tmp_path: Path) -> None:
    run = serving_run(2)
    trace = run.text(tmp_path)
    run.database(tmp_path / "a.db")
    (tmp_path / "step_trace_time.csv").write_text(STEPS)
    assert dict(kinds(tmp_path)) == {
        tmp_path / "a.db": ascend.DATABASE, trace: ascend.TRACE, tmp_path / "step_trace_time.csv": ascend.SUMMARY,
        tmp_path / "kernel_details.csv": ascend.OPERATIONS}
    assert set(ascend.members(kinds(tmp_path)).values()) == {trace}


def test_summaries_without_a_trace_stand_for_themselves(tmp_path: Path) -> None:
    operations = serving_run(2).operations(tmp_path / "kernel_details.csv")
    summary = tmp_path / "step_trace_time.csv"
    summary.write_text(STEPS)
    assert ascend.members(kinds(tmp_path)) == {operations: operations, summary: summary}


def test_what_msprof_wrote_below_a_run_is_the_same_run(tmp_path: Path) -> None:
    run = tmp_path / "host_1_2025_ascend_pt"
    inner, below = run / "ASCEND_PROFILER_OUTPUT", run / "PROF_000001_2025_ABC"
    files = {inner / "trace_view.json": ascend.TRACE, inner / "ascend_pytorch_profiler_0.db": ascend.DATABASE,
             below / "msprof_1.db": ascend.DATABASE, below / "timeline" / "msprof_1.json": ascend.TRACE,
             below / "timeline" / "op_summary_1.csv": ascend.OPERATIONS}
    assert set(ascend.members(files.items()).values()) == {inner / "trace_view.json"}
    alone = {path: kind for path, kind in files.items() if below in path.parents}
    assert len(set(ascend.members(alone.items()).values())) == 1


def test_runs_of_two_processes_or_devices_stay_two(tmp_path: Path) -> None:
    for folders in (("PROF_000001_1_A", "PROF_000002_1_B"), ("PROF_000001_1_A/device_0", "PROF_000001_1_A/device_1")):
        paths = [tmp_path / folder / "timeline" / "msprof.json" for folder in folders]
        assert ascend.members([(path, ascend.TRACE) for path in paths]) == {path: path for path in paths}


def test_the_slices_of_a_long_trace_are_all_read(tmp_path: Path) -> None:
    slices = [tmp_path / f"msprof_slice_{i}_2025.json" for i in range(3)]
    table = tmp_path / "op_summary_slice_0_2025.csv"
    found = ascend.members([*((path, ascend.TRACE) for path in slices), (table, ascend.OPERATIONS)])
    assert found == {**{path: path for path in slices}, table: slices[0]}


def test_runs_of_two_ranks_stay_two(tmp_path: Path) -> None:
    paths = [serving_run(2).text(tmp_path / f"rank{i}", table=False) for i in range(2)]
    assert ascend.members([(path, ascend.TRACE) for path in paths]) == {path: path for path in paths}


def test_a_raw_folder_is_answered_with_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "PROF_000001").mkdir()
    with pytest.raises(UnusableInput, match="analyse"):
        ascend.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"a,b,c\n", b"\x00\x01", b"SQLite format 3\0" + b"\xff" * 200, b"{}"])
def test_other_files_are_nothing_of_ascends(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert ascend.kind_of(path, content) == ""


# -- one rank's share of communication
WAITING = ("Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n"
           "{0},9,100,4,104,25,134\n{1},9,102,4,106,24,135\n")


@pytest.mark.parametrize(("steps", "method"), [
    (("50", "51"), "annotation"), (("", ""), "window"), (("50", ""), "window")])
def test_stages_say_that_they_are_the_steps_of_one_trace(tmp_path: Path, steps: tuple[str, str], method: str) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(WAITING.format(*steps))
    assert signals(path)["step.method"] == method
    assert ("step.count" in signals(path)) == (method == "annotation")


@pytest.mark.parametrize("steps", [("50", "51"), ("", "")])
def test_a_summary_of_one_rank_does_not_name_communication(tmp_path: Path, steps: tuple[str, str]) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(WAITING.format(*steps))
    found = tables.read(path).signals
    verdict = judge(Signals(found), fingerprints.load())
    assert (verdict.level, verdict.id) == (Level.NOT_ENOUGH, None)
    assert "one rank's collectives" in verdict.summary.lower()
    assert "all ranks" in verdict.next
    bound = [Signal("comm.skew_ms", 0.003, "typed"), Signal("comm.min_us", 25.0, "typed"),
             Signal("comm.calls_per_step", 4, "typed")]                         # 100 of 101 µs are cost
    assert judge(Signals([*found, *bound]), fingerprints.load()).id == "comm-bound"
