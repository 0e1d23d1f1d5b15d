"""Which device work exchanges data with other ranks, told by its name; and which computes in the same kernel."""

from __future__ import annotations

import re

_COLLECTIVE = r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"

_LIBRARY = re.compile(
    r"[nrhxmseult]ccl|cncl|bkcl|nvshmem|roc_?shmem|\bmori::|deep_ep|\bc10d::|symm_mem|userbuffers_|moe_comm::", re.I)
"""Libraries that do nothing else: NCCL and those named after it (RCCL, HCCL, oneCCL, XCCL, MSCCL, MCCL, UCCL, CNCL,
BKCL), OpenSHMEM on devices, MORI, DeepEP, torch's symmetric memory, Transformer Engine's user buffers, TensorRT-LLM's
expert exchange."""

_VERB = re.compile(
    rf"{_COLLECTIVE}|cross_device_reduce|send_?recv|lamport"
    # tokens to their experts and back: TensorRT-LLM, FlashInfer, PPLX; MORI; Triton-distributed
    r"|a2a_?(prepare_?)?(dispatch|combine)|(?<![a-z])ep_?(dispatch|combine)|(?-i:Ep(Dispatch|Combine))"
    r"|(dispatch|combine)_tokens?_(intra|inter)_?node|kernel_(dispatch|combine)_token"
    # the same on Ascend
    r"|moe_?distribute_?(dispatch|combine)|moe_?(dispatch|combine)_?normal|notify_?dispatch|distribute_?barrier", re.I)
"""What kernels of other libraries are called that exchange. `dispatch` and `combine` alone are everybody's words: an
operator is dispatched, the parts of a split attention are combined."""

_INSIDE = re.compile(r"(block|warp|wave(front)?|threads?|sub_?group|cta|cluster|simd|lane)_?all_?reduce", re.I)
"""A reduction among the threads of one kernel: no other rank takes part."""

_MATMUL = re.compile(r"mat_?mul|gemm|(?<![a-z])(gmm|bmm|mm)(?![a-z])", re.I)
_COLLECTIVES = re.compile(_COLLECTIVE, re.I)

_FUSED = re.compile(
    r"(?<![a-z])ag_?gemm|kernel_consumer_gemm|gemm_rs_producer|dispatch_?(ffn|gmm|gemm|mlp)\w{0,40}combine"
    r"|dispatch_token\w{0,40}gemm|mega_?moe|fused_?deep_?moe", re.I)
"""Kernels that compute and exchange, and do not bear the name of a collective: FLUX and Triton-distributed
(`kernel_consumer_gemm`), Ascend's `DispatchFFNCombine`, DeepGEMM's `mega_moe`."""

_DRIVES = re.compile(r"ai_?cpu(_\d+)*$", re.I)
"""The task that carries out the exchange of a fused operator while the operator itself runs on the cores. msprof's
manual: on the stream of the communication it is named after the operator, with `Aicpu` behind
(`AllgatherMatmulAicpu`)."""


def exchanges(name: str) -> bool:
    """Whether device work of this name exchanges data with other ranks and does little else, so that it lasts until
    the others have come."""
    text = _INSIDE.sub("", name)
    if _fused(text):
        return bool(_DRIVES.search(text))
    return bool(_LIBRARY.search(text) or _VERB.search(text))


def exchanges_and_computes(name: str) -> bool:
    """Whether it is one kernel that multiplies matrices and exchanges the result (Ascend's MC2: `MatmulAllReduce`,
    `AllGatherMatmul`): its time is compute, exchange and waiting for other ranks, and nothing on one rank tells them
    apart."""
    text = _INSIDE.sub("", name)
    return _fused(text) and not _DRIVES.search(text)


def _fused(text: str) -> bool:
    if _LIBRARY.search(text):
        return False
    return bool(_FUSED.search(text) or (_COLLECTIVES.search(text) and _MATMUL.search(text)))
