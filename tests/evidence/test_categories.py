"""What a category and a name make of a row."""

from __future__ import annotations

import pytest

from xpu_triage.evidence.categories import REPEATED, UNPLACED, place
from xpu_triage.trace import Kind


@pytest.mark.parametrize(("category", "name", "kind"), [
    ("cpu_op", "aten::mm", Kind.HOST_OP),
    ("Operator", "aten::mm", Kind.HOST_OP),
    ("Operator", "ProfilerStep#17", Kind.ANNOTATION),
    ("cpu_op", "ProfilerStep#17", Kind.ANNOTATION),
    ("python_function", "a.py(1): f", Kind.PYTHON),
    ("user_annotation", "execute_context_1(8)_generation_0(0)", Kind.ANNOTATION),
    ("user_annotation", "cpu_fallback aten::exponential_", Kind.HOST_OP),
    ("overhead", "Activity Buffer Request", Kind.OVERHEAD),
    ("Runtime", "cudaLaunchKernel", Kind.RUNTIME),
    ("glow_runtime", "x", Kind.RUNTIME),
    ("privateuse1_driver", "x", Kind.RUNTIME),
    ("Kernel", "k", Kind.KERNEL),
    ("concurrent_kernel", "k", Kind.KERNEL),
    ("privateuse1_kernel", "k", Kind.KERNEL),
    ("gpu_memset", "Memset (Device)", Kind.KERNEL),
    ("Memcpy", "Memcpy HtoD (Pinned -> Device)", Kind.COPY),
    ("kernel", "__amd_rocclr_copyBuffer.kd", Kind.COPY),
    ("kernel", "__amd_rocclr_fillBufferAligned.kd", Kind.KERNEL),
    ("kernel", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", Kind.COMM),
    ("kernel", "rcclGenericKernel", Kind.COMM),
    ("kernel", "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>", Kind.COMM),
    ("kernel", "allreduce_fusion_kernel_oneshot_lamport", Kind.COMM),
    ("kernel", "deep_ep::internode_ll::dispatch", Kind.COMM),
    ("kernel", "moeA2ADispatchKernel", Kind.COMM),
    ("kernel", "mori::moe::EpCombineIntraNodeKernel<__hip_bfloat16>", Kind.COMM),
    ("kernel", "gemm_allreduce_kernel", Kind.KERNEL),
    ("kernel", "flash_fwd_splitkv_combine_kernel", Kind.KERNEL),
    ("kernel", "SoftmaxBlockAllReduce<float>", Kind.KERNEL),
    ("kernel", "void block_all_reduce_sum_f32_kernel<256>", Kind.KERNEL),
    ("kernel", "softmax_warp_all_reduce_kernel", Kind.KERNEL),
    ("kernel", "multimem_all_reduce_kernel", Kind.COMM),
    ("kernel", "two_shot_all_reduce_kernel", Kind.COMM),
    ("kernel", "at::native::reduce_kernel<512, 1>", Kind.KERNEL),
    ("collective_comm", "whatever", Kind.COMM),
    ("gpu_user_annotation", "ProfilerStep#17", REPEATED),
    ("cuda_sync", "Stream Sync", REPEATED),
    ("Trace", "PyTorch Profiler (0)", REPEATED),
    ("trace_me", "x", UNPLACED),
    ("", "x", UNPLACED),
    ("runtimes", "x", UNPLACED),
    ("kernel_queue", "x", UNPLACED),
])
def test_a_row_is_what_its_category_says_and_a_device_row_also_what_its_name_says(
        category: str, name: str, kind: int) -> None:
    assert place(category, name) == kind
