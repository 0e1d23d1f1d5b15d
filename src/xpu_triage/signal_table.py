"""The rows of the signal catalogue (`catalogue.py` reads them). To add a signal, add a row.

A row: name, ● where a trace always gives it | unit | kinds of evidence | example; below it the meaning.
ab.*: one change, same load, both arms repeated. Each ratio is time with the change ÷ time without it (from throughputs:
without ÷ with), of the step or of the latency complained about. Below 1 the change is faster.
idle.*: shares of the window; with device.busy_fraction they add up to 1, one cause for each interval.
"""

TABLE = """\
device.busy_fraction ● | fraction | trace | 0.135
    Share of the window in which the device has work on any stream (union); a replayed graph counts its
    recorded kernels, or its whole span where only that is recorded. Not an SMI utilization, not a
    kernel sum
device.compute_fraction ● | fraction | trace | 0.59
    Part of busy spent in compute kernels. The three parts add up to busy; an overlap counts once:
    compute, then communication, then copy
device.copy_fraction ● | fraction | trace | 0.11
    Part of busy in which only copies run
device.link_copy_fraction | fraction | trace | 0.05
    Part of device.copy_fraction in copies between the host and the device. Not copies on the device
device.copy_wait_fraction | fraction | trace | 0.09
    Part of copy in which something waits for the copies to end: work that was launched before their end
    and starts at it, or a feeding host thread blocked, inside a copy's call, or asking until it is done.
    The rest runs beside a device that waits for something else
device.copy_over_launching_fraction | fraction | trace | 0.6
    Part of copy behind which kernels wait for the host that launches as fast as it can: idle, were it not
    for copies that nothing waits for. Not part of the idle
device.copy_over_host_op_fraction | fraction | trace | 0.3
    The same, behind which kernels wait for the host's work that launches nothing
device.comm_fraction ● | fraction | trace | 0.48
    Part of busy in collectives without compute beside it, waiting inside them included
device.utilization_fraction | fraction | smi, metrics | 0.04
    Mean of the utilization that a vendor tool reports while requests run (with none, say
    serving.running: 0). A spinning kernel reads 1; one reading proves nothing; not busy
device.memory_active_fraction | fraction | smi | 0.06
    Mean activity of the memory controller under load. Not the memory in use
device.memory_used_fraction | fraction | smi | 0.94
    Memory held ÷ memory present. Says what is allocated, not that anything runs

step.wall_ms ● | ms | trace, log, timers, metrics | 4890
    Median wall time of one step, start to next start; a decode step unless the title says otherwise.
    Unprofiled where known. Not the kernel sum
step.count ● | count | trace, log | 12
    Whole steps in the window
step.method ● | text | trace | anchor
    How steps were found: annotation, anchor, log, metrics, timer, window
step.fixed_ms | ms | bench | 6.0
    Part of the step that does not shrink with model size, batch or context: intercept of a fit over at
    least two of them
step.drift_ratio | ratio | bench, log | 1.65
    Step or per-token time late in a sustained run ÷ early, same load and lengths. Not first-request
    warm-up
step.drift_after_s | s | bench, log | 1200
    From start (of the run or the machine) until that change sets in

idle.after_sync_fraction ● | fraction | trace | 0.21
    Idle from the end of a host synchronization to the next device start. Not the time that the host
    waits
idle.host_op_fraction ● | fraction | trace, stacks | 0.95
    Idle while the host runs something that launches nothing (Python, scheduler, tokenizer, an operator
    on the host)
idle.launching_fraction ● | fraction | trace | 0.47
    Idle while the host launches back to back and each piece ends before the next arrives
idle.peer_wait_fraction ● | fraction | trace | 0.12
    Idle until another rank arrives. Waiting inside a collective kernel is busy: see comm.skew_ms
idle.other_device_fraction | fraction | trace | 0.49
    Part of idle.peer_wait_fraction in which another device works on what the same host thread launched:
    the parts of one model in turns, and no other rank
idle.no_work_fraction ● | fraction | trace, metrics | 0.60
    Idle with no request to run, or none scheduled
idle.hidden_fraction ● | fraction | trace | 0.99
    Idle only in the capture: device work was not recorded
idle.turnaround_fraction ● | fraction | trace | 0.01
    Idle between pieces that were already queued: the device's own turnaround. Nothing on the host would
    shorten it
idle.first_use_fraction ● | fraction | trace | 0.80
    Idle while a launch, module load, allocation or compilation takes its first-time toll
idle.profiler_fraction ● | fraction | trace | 0.02
    Idle under the profiler's own overhead rows
idle.unrecorded_fraction ● | fraction | trace | 0.05
    Idle during which the launching thread has no rows: cause not in the capture
idle.before_unlinked_fraction | fraction | trace | 0.82
    Idle before device work whose launch is not in the capture. Where it is most of the idle, no cause
    can be named
idle.step_gap_ms | ms | trace | 5.0
    Median device idle between the last work of one step and the first of the next
idle.host_op | text | trace, stacks | prepare_inputs
    What the host is seen doing during the largest idle intervals. Not the largest host time overall,
    and never a blocking call (that is sync.site)

sync.per_step ● | count | trace, config | 3.25
    Calls per step that block the host until the device is done: explicit, read-backs, blocking copies
sync.wait_fraction ● | fraction | trace, timers | 0.44
    Share of the window that the feeding host thread is blocked in them. Mostly device work finishing;
    not the cost of the sync
sync.gain_bound_fraction ● | fraction | trace | 0.30
    Most of the window that removing every sync could win: the smaller of the host's blocked share and
    the device's idle share
sync.site | text | trace, stacks, config | aten::item
    The call or line that blocks
sync.copy_mb | MB | trace | 65
    Bytes moved between host and device per step, both directions
sync.copy_ms | ms | trace | 0.9
    Time that the copies themselves take per step, on the copy engine. Not the API call, which contains
    waiting

fallback.op ● | text | trace, stacks | aten::exponential_
    The operator with most time on a CPU (the host's, or the device's own control CPU) while the model
    is on the device, seen running there
fallback.fraction ● | fraction | trace, stacks | 0.97
    Share of the window in such operators, their copies included. A warning alone gives no share

placement.planned_fraction | fraction | log, config | 1.0
    Share of layers or bytes that a flag, planner line or status command puts on the device. A plan, not
    an observation
placement.loaded_fraction | fraction | log, config | 0.42
    Share that load lines, buffer sizes or parameter devices show on the device. Says nothing about
    single operators
placement.host_ops | count | log | 37
    Graph nodes, or graph splits between backends, that the runtime put on the host in a model meant for
    the device

kernel.median_us ● | us | trace | 6.4
    Median duration of a kernel in the window
kernel.per_step ● | count | trace | 1185
    Kernels per step, replayed ones included
kernel.recorded | count | trace | 11850
    Kernels in the window, replayed ones included: how much the shares of the window rest on. Not a rate
kernel.graph_fraction ● | fraction | trace | 0.0
    Share of kernels that come from graph replay
kernel.launch_to_start_us | us | trace | 8.0
    Median from the launch call's start to the kernel's start. Long on a busy device is a healthy queue;
    long on an idle one is work that the capture lacks
kernel.top_name | text | trace | MaskedScatter
    The device operation (kernel, copy, collective) with most total time
kernel.top_compute_name | text | trace | MaskedScatter
    The kernel with most total time: collectives, copies and waits in a queue left out
kernel.top_fraction | fraction | trace | 0.31
    Its share of device busy time, not of the window
kernel.top_ms | ms | trace, micro | 46
    Its median duration per call
kernel.top_core | text | trace | AI_CPU
    Kind of core it ran on, as the profiler says: AI_CORE, AI_VECTOR_CORE, AI_CPU, SM, copy, CPU. Where
    the CPU is the device that was asked for, CPU is no fallback

host.launch_us | us | trace | 9.1
    Mean host time of one launch call, of a kernel or of a whole graph
host.online_fraction | fraction | trace | 0.47
    Share of the window in host calls that compile or select operators online, where most steps have some. Host
    time, not idle; a call of a first use is none
host.graph_requested | bool | config, log | true
    The configuration asks for graph capture or compilation. Not that any step used it
host.top_op | text | stacks, timers, trace | sampler
    The host function, operator or timed span with most host time in the window
host.top_op_fraction | fraction | stacks, timers | 0.83
    Its share of the step, or of the stack samples. A span that ends in a sync contains the wait
host.top_op_ms | ms | stacks, timers, micro | 1.5
    Its time per step (all its calls), or of one call where it was measured alone. The same caution
host.length_exponent | number | micro, timers | 0.97
    Slope of log time of host.top_op (or of the time before prefill) over log context length: 0 flat, 1
    linear, 2 quadratic
host.timer_drained | bool | timers, config | false
    The device was drained (or its events used) before each clock reading behind the host figures.
    false: it was not
host.timed_sum_ratio | ratio | timers | 0.054
    Sum of the timed parts ÷ wall time of the whole that they should cover

comm.layout | text | config | TP8
    How the model is spread: TP8, PP4, TP4 DP4, layer split
comm.calls_per_step | count | trace | 129
    Collectives on the device per step and rank
comm.min_us | us | trace | 10.5
    Shortest duration of the same collective over ranks (over calls where one rank is known). An upper
    bound of its true cost
comm.max_us | us | trace | 72
    Longest, same scope. Contains the waiting
comm.skew_ms | ms | trace | 74
    Per step, summed over collectives: last rank's entry − first rank's entry
comm.fused_fraction | fraction | trace | 0.46
    Share of the window in kernels that multiply matrices and exchange with other ranks in one. Compute,
    exchange and waiting together: part of device.compute_fraction, not of device.comm_fraction
comm.compute_spread_ratio | ratio | trace | 1.3
    Longest ÷ shortest over ranks, for the same compute between two collectives
comm.isolated_us | us | micro | 20
    One collective of the step's message size alone, all ranks ready
comm.host_ms | ms | trace, timers | 0.6
    Per step, exchanges between ranks on the host (CPU collectives, sockets, pickled messages) on the
    step's path

serving.decode_tokens_per_s | tokens_per_s | metrics, log, bench | 706
    Generated tokens per second over all requests of the run
serving.prefill_tokens_per_s | tokens_per_s | metrics, log, bench | 9900
    Prompt tokens computed per second over all requests; cached ones do not count
serving.request_decode_tokens_per_s | tokens_per_s | bench, log | 1.38
    Generation rate of one request after its first token, median. Not the aggregate
serving.reference_tokens_per_s | tokens_per_s | bench | 3202
    The same rate measured on the same model, device and load when it was right. Not a wish
serving.offered_requests_per_s | requests_per_s | bench | 10
    Arrival rate that the load generator was set to
serving.concurrency | count | bench | 256
    Requests that the clients keep in flight
serving.running | count | metrics, log | 34
    Requests in the running batch, mean or at the reading
serving.waiting | count | metrics, log | 6
    Requests waiting at the engine, mean or at the reading
serving.waiting_reason | text | metrics | capacity
    The reason that the engine states; it can be false
serving.running_spread_ratio | ratio | metrics, log | 0.0
    (Largest − smallest) ÷ mean of serving.running over three or more readings of one load, at each of
    which requests wait. 0: the same number ran every time; not that a limit was set
serving.queued_fraction | fraction | metrics | 0.78
    Engine: mean time in the queue ÷ mean time to first token, of the same run. Not a ratio of medians
serving.running_limit | count | config | 256
    Configured most requests in the running batch
serving.prompt_tokens | count | bench, metrics | 96000
    Median prompt length, history included
serving.chunked_prefill | bool | config | true
    Configured to split prompts. Not that decodes run between the pieces
serving.prefill_run_steps | count | trace, log | 58
    Longest run of consecutive prefill steps while decodes were pending
serving.prefill_run_ms | ms | trace, log | 77000
    Time of the longest run, in time, of two and more consecutive prefill steps while decodes were pending
serving.prefill_run_fraction | fraction | trace, log | 0.6
    Share of the steps' time in two and more consecutive prefill steps while decodes were pending. Not the
    share of all prefill
serving.features | text | config | penalties
    What requests or engine use beyond plain sampling: penalties, structured output, speculative
    decoding, multimodal, parallel samples, weight offload, …

latency.ttft_ms | ms | bench, metrics | 64.8
    Median time to first token over the run. Not a mean; see client.first_chunk_empty
latency.itl_ms | ms | bench, metrics | 98.5
    Median time per output token after the first
latency.itl_p99_ms | ms | bench, metrics | 40.6
    99th percentile of the gap between tokens
latency.itl_max_ms | ms | bench | 11163
    Longest gap between two tokens of a running request
latency.e2e_ms | ms | bench, metrics | 143000
    Median request duration
latency.queue_ms | ms | metrics | 2100
    Engine: median from arrival to first scheduling
latency.prefill_ms | ms | metrics, log, trace | 161
    Engine: time in prefill of one request, all chunks, without queue
latency.before_prefill_ms | ms | timers | 13600
    From arrival to the engine's start without queue: reading, templating, tokenizing, checks
latency.engine_itl_ms | ms | metrics, log | 39
    Engine: median time per output token as its scheduler or metrics measure it
latency.baseline_least_ratio | ratio | bench | 1.31
    Time now ÷ time in a baseline of the same loads (of a throughput before ÷ now), of the figure that is
    worst: what is surely exceeded, all intervals of the comparison holding at once in 99 of 100. 1:
    nothing is surely slower. Not why it is slower, and not the usual ratio, which is larger
latency.baseline_most_ratio | ratio | bench | 1.06
    The same over the typical times of all loads compared: the largest that the noise leaves open (upper
    ends of 95 %). Near 1: as before. The slowest tenth of the requests is not in it
latency.baseline_tail_ratio | ratio | bench | 1.4
    The same over the slowest tenth of the requests, or the longest now ÷ before where more requests
    stall, whichever is larger. Not what is sure: a wide interval is large too

kv.usage_fraction | fraction | metrics, log | 0.99
    KV cache in use, typical under load or at the reading
kv.preemptions_per_request | count | metrics, log | 2.4
    Preemptions, retractions or pauses ÷ requests finished in the same run
kv.swapped | count | log | 137
    Admitted requests that hold no device KV at the reading (swapped, retracted, paused)
kv.prefix_hit_fraction | fraction | metrics, log | 0.32
    Share of prompt tokens found in the prefix cache, over the run
kv.shared_prefix_fraction | fraction | config, bench | 0.0
    Share of prompt tokens that repeat an earlier prompt by the workload's construction (random prompts:
    0)

client.events_per_s | events_per_s | bench, metrics | 49000
    Streamed events per second that the server writes, all streams
client.frame_interval_ms | ms | bench | 89.5
    Median time between arrivals with content on one stream, on the wire
client.first_chunk_empty | bool | bench | true
    The first streamed event carries no text (a role, an empty string)

process.busiest_cpu_cores | cores | os | 1.0
    CPU of the busiest process of the service under load. A thread that spins on the device reads 1.0
    too
process.busiest_name | text | os | detokenizer
    Its role: api server, tokenizer, detokenizer, scheduler, engine, worker
process.sibling_cpu_cores | cores | os | 0.02
    Mean of the other processes with that role
process.host_cpu_fraction | fraction | os | 0.018
    CPU in use over the whole machine. Hides one full core among many

clock.core_fraction | fraction | smi | 0.89
    Compute clock under load ÷ its rated boost. A clock that was "locked" is a request
clock.memory_fraction | fraction | smi | 1.0
    Memory clock under load ÷ its maximum
clock.limit_reason | text | smi | sw_power_cap
    Limits that the vendor tool reports as active under load (power cap, thermal, licence, …), or none;
    idle where it names nothing but the want of work. Active is not harmful

power.draw_fraction | fraction | smi | 0.22
    Power under load ÷ the limit in force
power.limit_fraction | fraction | smi, spec | 0.36
    Limit in force ÷ rated power of the device

warmup.first_ms | ms | bench, log | 25000
    Duration of the first of a series of identical requests, steps or runs (after a start, or with an
    unseen shape)
warmup.repeat_ms | ms | bench, log | 11000
    Median of the later identical ones
warmup.first_step_excess_fraction ● | fraction | trace, log | 0.42
    (First step − median of the others) ÷ window
warmup.compiles | count | log, metrics, trace | 12
    Kernel or graph compilations while requests were served, start-up excluded
warmup.compiler_running | bool | os, log | true
    Compiler processes or cache writes were seen while requests were served

roofline.read_gb | GB | config, spec | 0.864
    Bytes that one step must read: weights used plus KV read. Not the bytes resident
roofline.peak_gbps | GBps | spec, smi | 1008
    Advertised memory bandwidth
roofline.probe_gbps | GBps | micro | 854
    Read bandwidth that a probe reaches on this device
roofline.bandwidth_fraction | fraction | trace, bench | 0.24
    Achieved bandwidth over the step's wall time ÷ the probe's, or the advertised where no probe is
    given
roofline.compute_fraction | fraction | trace, micro | 0.28
    Achieved arithmetic rate ÷ the device's dense peak for that type

log.fallback_op | text | log | aten::isin
    Operators that a line names as unsupported or sent to the CPU. Not a share of time: harmless ones
    exist
log.backend | text | log | cpu_avx2
    Compute backend or runner that was started, as the log names it. "Device found" is not "device used"
log.implementation | text | log | TRITON_ATTN
    Kernel, attention backend, tile configuration or tokenizer that a line says was forced or chosen in
    place of a better one
log.kv_exhausted | bool | log | true
    Lines report that the KV pool is full (preempted, retracted, out of memory)
log.output_wrong | bool | log, bench | true
    The output is garbled or differs from a trusted run

ab.graph_ratio | ratio | bench, trace | 0.22
    Graph capture or compilation on
ab.fewer_syncs_ratio | ratio | bench | 1.0
    A suspected read-back or sync removed
ab.drained_span_ratio | ratio | timers | 0.05
    The device drained before a suspected host span: that span with ÷ without
ab.profiler_ratio | ratio | bench, trace | 1.71
    The profiler on
ab.cpu_binding_ratio | ratio | bench | 0.84
    Host threads pinned to cores of their own
ab.on_cpu_ratio | ratio | bench | 0.73
    The suspected operator, or the whole model, run on the host's CPU
ab.plain_request_ratio | ratio | bench | 0.5
    What serving.features names switched off, or greedy in place of the requested sampling
ab.batch_one_ratio | ratio | bench | 0.13
    One request alone in place of the present load: per step or per token of one request
ab.double_load_ratio | ratio | bench | 1.92
    Twice the concurrency: request latency (1 = room left, 2 = something is full, not what)
ab.interleave_ratio | ratio | bench | 0.08
    Decode steps forced between prefill steps: token gap or per-request token time
ab.kv_headroom_ratio | ratio | bench | 0.44
    Fewer requests admitted or KV held in reserve
ab.kv_allocation_ratio | ratio | bench, trace | 1.57
    A larger cache allocated, same prompt
ab.kernel_ratio | ratio | micro | 0.48
    Another implementation of one kernel or collective, isolated
ab.kernel_choice_ratio | ratio | bench | 0.19
    Another implementation selected for the whole run (flag, override, tuned configuration)
ab.other_dtype_ratio | ratio | bench | 0.82
    The same model in another weight format
ab.other_version_ratio | ratio | bench | 0.998
    An earlier (or the other) version of the software
ab.other_engine_ratio | ratio | bench | 1.0
    Another engine, same model and device
ab.other_device_ratio | ratio | bench | 0.52
    Another device: a twin, the same after a power cycle, or other hardware (the title says which)
ab.one_device_ratio | ratio | bench | 0.87
    One device in place of several
ab.no_comm_ratio | ratio | micro | 0.42
    Collectives left out (timing only, results wrong)
ab.no_tokenizer_ratio | ratio | bench | 0.22
    Tokenizing and detokenizing skipped
ab.direct_engine_ratio | ratio | bench | 0.26
    The engine called directly, without the serving layer or proxy before it
ab.other_client_ratio | ratio | bench | 0.2
    Another load generator, same load
ab.fewer_events_ratio | ratio | bench | 0.73
    Several tokens per streamed event, or streaming off
ab.spread_fraction | fraction | bench | 0.007
    No change: (largest − smallest) ÷ mean over repeats of one arm
"""
