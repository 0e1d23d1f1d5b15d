"""Names of device work that exchanges between ranks, as libraries write them, and of what only sounds alike."""

from __future__ import annotations

import pytest

from xpu_triage.steps.exchange_names import exchanges, exchanges_and_computes


@pytest.mark.parametrize("name", [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "mscclKernel_Sum_half_LL", "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
    "void quickreduce::allreduce_prototype_twoshot<half>", "void (anonymous namespace)::multimem_all_reduce_kernel<16>",
    "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2>",
    "lamport_style_one_shot_all_reduce_norm_kernel", "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>",
    # experts, NVIDIA
    "tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel", "moeA2ACombineKernel", "moeA2APrepareDispatchKernel",
    "moeAllToAllKernel", "deep_ep::internode_ll::dispatch", "a2a_dispatch_recv_kernel", "a2a_combine_send_kernel",
    "kernel_dispatch_token_intra_node", "uccl::internode_ll::combine",
    # AMD
    "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>", "EpCombineInterNodeV1Kernel_bf16",
    # Ascend
    "MoeDistributeDispatchV2", "aclnnMoeDistributeCombineAddRmsNorm_MoeDistributeCombineAddRmsNorm",
    "MoeDispatchNormal", "NotifyDispatch", "CamMoeDistributeDispatch",
    "aclnnMatmulAllReduce_MatmulAllReduceAicpu_MatmulAllReduceAicpu", "AllGatherMatmulAicpu_903_0_1",
    "DispatchFFNCombineAicpu",
])
def test_what_exchanges_between_ranks_is_told_by_its_name(name: str) -> None:
    assert exchanges(name)
    assert not exchanges_and_computes(name)


@pytest.mark.parametrize("name", [
    "MatmulAllReduce", "aclnnAllGatherMatmul_AllGatherMatmul", "MatmulReduceScatterV2", "AlltoAllvGroupedMatMul",
    "BatchMatMulReduceScatterAlltoAll", "DispatchFFNCombine", "gemm_allreduce_kernel",
    "kernel_consumer_gemm_persistent",
    "kernel_gemm_rs_producer_persistent", "mega_kernel_dispatch_token_moe_grouped_gemm", "sm100_fp8_fp4_mega_moe_impl",
])
def test_a_product_and_an_exchange_in_one_kernel_are_both(name: str) -> None:
    assert exchanges_and_computes(name)
    assert not exchanges(name)


@pytest.mark.parametrize("name", [
    "moe_align_block_size_kernel", "flash_fwd_splitkv_combine_kernel<128>", "flash::FlashAttnFwdCombine",
    "combineKernel",
    "_combined_routing_compute", "moe::dev::routing::routingIndicesHistogramKernel", "_finalize_matmul_scatter_bf16",
    "cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>>", "void expandInputRowsKernel", "cccl::detail::scan",
    "aclnnReduceSum_CastAiCpu_Cast", "MaskedScatter", "sm90_gemm_warp_all_reduce", "block_all_reduce_sum_f32_kernel",
    "stepDispatch", "gmm_dispatch", "splitKreduce_kernel", "occlusion_kernel", "MatMulV3", "GroupedMatmul", "",
])
def test_ordinary_kernels_are_neither(name: str) -> None:
    assert not exchanges(name)
    assert not exchanges_and_computes(name)
