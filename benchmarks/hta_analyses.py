"""Run HolisticTraceAnalysis over one trace, and print how each of its analyses went. Needs HTA alone.

    python hta_analyses.py TRACE.json.gz [few]

All that its facade offers for one rank without drawing or writing files; with `few`, only the breakdowns of
time, idle time, kernels, launches and overlap, which are the ones nearest to step 1. An analysis that raises
took its time all the same.
"""

import sys

from hta.trace_analysis import TraceAnalysis

analyzer = TraceAnalysis(trace_files={0: sys.argv[1]})
FEW = {
    "temporal breakdown": lambda: analyzer.get_temporal_breakdown(visualize=False),
    "idle time breakdown": lambda: analyzer.get_idle_time_breakdown(visualize=False, visualize_pctg=False),
    "kernel breakdown": lambda: analyzer.get_gpu_kernel_breakdown(visualize=False),
    "launch statistics": lambda: analyzer.get_cuda_kernel_launch_stats(visualize=False),
    "communication overlap": lambda: analyzer.get_comm_comp_overlap(visualize=False),
}
ALL = FEW | {
    "profiler steps": analyzer.get_profiler_steps,
    "queue length": analyzer.get_queue_length_summary,
    "memory bandwidth": analyzer.get_memory_bw_summary,
    "blocked on a full queue": lambda: analyzer.get_time_spent_blocked_on_full_queue(
        analyzer.get_queue_length_time_series()
    ),
    "operators, kernels, delay": analyzer.get_aten_op_kernels_and_delay,
    "user annotations": lambda: analyzer.get_gpu_user_annotation_breakdown(visualize=False),
    "critical path": lambda: analyzer.critical_path_analysis(0, "ProfilerStep", 0),
}
for name, analysis in (FEW if sys.argv[2:] == ["few"] else ALL).items():
    try:
        analysis()
        print(f"hta {name}: done")
    except Exception as error:  # whatever it raises is a finding of the comparison
        print(f"hta {name}: {type(error).__name__}: {str(error)[:80]}")
