"""What `redact` goes by: which labels are known to be harmless, and which words name a host, a user or a place.

Labels of metrics are an allow-list: a label that is not here is hashed, whatever its value looks like, but for small
numbers and yes or no. Read off the metrics of vLLM, SGLang, TGI, TensorRT-LLM, LMDeploy, Triton, prometheus_client and
of the exporters of NVIDIA, Ascend, AMD and Intel devices.
"""

from __future__ import annotations

import re

NUMBERS = frozenset((
    "le", "quantile", "engine", "engine_id", "engine_idx", "engine_index", "gpu", "gpu_id", "npu", "npuid", "npu_id",
    "id", "index", "minor_number", "card_id", "chip", "chip_id", "die", "tile", "sub_dev", "gpu_i_id",
    "gpu_partition_id", "err_code", "generation", "major", "minor", "patchlevel", "priority", "status_code", "code",
    "block_size",
))
"""Labels whose value is a number."""

_NUMBER_NAMES = re.compile(
    r".*(?:^|_)(?:rank|bytes|tokens|blocks|size|len|length|count|num|gb|mb|utilization|concurrency|steps?|layers?)"
    r"|num_.*|n_.*|max_.*|min_.*")

WORDS = frozenset((
    "engine_type", "finished_reason", "finish_reason", "reason", "stage", "phase", "method", "mode", "status", "state",
    "type", "source", "cause", "kind", "unit", "dtype", "quantization", "platform", "implementation", "location",
    "gpu_i_profile", "direction", "event", "result", "outcome", "is_streaming", "forward_mode", "memory_type", "op",
))
"""Labels whose value is a word of the engine's own, without a hyphen and a number."""

_WORD_NAMES = re.compile(r".*_(?:dtype|algo|mode|backend|layout|policy|type|state|reason|stage|phase|method|kind)"
                         r"|(?:is|use|enable|disable|has)_.*|.*version")

DEVICES = frozenset((
    "device", "modelname", "card", "card_model", "card_series", "dev_name", "dev_file", "pci_bus_id", "pci_bdf", "bdf",
    "pcie_bus_info",
))
"""Labels that say which device it is, or of what make."""

MODELS = frozenset(("model_name", "model", "served_model_name", "base_model"))
ROUTES = frozenset(("handler", "path", "route", "endpoint", "uri", "url", "http_route", "http_target"))
"""Labels that are kept where they hold a route of a server."""


def group(label: str) -> str:
    """`number`, `word`, `device`, `model` or `route`; empty for a label that is not known to be harmless."""
    label = label.lower()
    for name, labels in (("number", NUMBERS), ("word", WORDS), ("device", DEVICES), ("model", MODELS),
                         ("route", ROUTES)):
        if label in labels:
            return name
    if _WORD_NAMES.fullmatch(label):
        return "word"
    return "number" if _NUMBER_NAMES.fullmatch(label) else ""


HOST_KEYS = (
    r"(?:exported_)?(?:hosts?|host_?(?:name|ip|id|addr)|instance(?:_?id)?|node|node_?(?:name|ip|id)|nodename|pod"
    r"|pod_?(?:name|ip|id)|machine(?:_?id)?|fqdn|server|server_?(?:name|addr|address|host|ip)|target|endpoint"
    r"|address|addr|remote|remote_?(?:addr|address|host|ip)|peer|peer_?(?:addr|host|ip)|client|client_?(?:addr|host|ip)"
    r"|src|dst|worker|worker_?(?:id|name|host|addr|ip)|master|master_?(?:addr|host|ip)|head_?(?:node|addr|ip)"
    r"|broker|router|gateway|upstream|domain|cluster|cluster_?(?:name|id)|rack|site|dc|datacenter|container"
    r"|container_?(?:name|id)|replica|deployment|job_?name|scheduler_?host)")
USER_KEYS = (
    r"(?:user|user_?(?:name|id)|login|owner|uid|account|account_?(?:name|id)|tenant|tenant_?(?:name|id)|customer"
    r"|customer_?(?:name|id)|team|project|project_?(?:name|id)|namespace|exported_namespace|org|organi[sz]ation|e-?mail"
    r"|author|created_by|principal|api_?key|secret|passw(?:or)?d|authorization|access_?token|lora_?name|adapter)")
PATH_KEYS = (
    r"(?:cwd|pwd|home|dir|directory|folder|path|file|file_?name|short_filename|module|root|work_?dir|exe|executable"
    r"|[a-z_]+_(?:dir|path|file|folder|directory))")
SAID_KEYS = r"(?:host|host_?name|node_?name|fqdn|user|user_?name|login|owner|account|namespace|e-?mail)"
"""Keys that name something also where a colon and bare words follow."""

PACKAGES = frozenset((
    "torch", "torch_npu", "torchvision", "torch_xla", "intel_extension_for_pytorch", "habana_frameworks", "vllm",
    "vllm_ascend", "vllm_kunlun", "vllm_gaudi", "sglang", "sgl_kernel", "transformers", "tokenizers", "triton",
    "tensorrt_llm", "lmdeploy", "text_generation_server", "flashinfer", "flash_attn", "xformers", "deep_gemm",
    "deep_ep", "aiter", "numpy", "ray", "zmq", "uvloop", "uvicorn", "gunicorn", "fastapi", "starlette", "pydantic",
    "msgspec", "msgpack", "prometheus_client", "opentelemetry", "requests", "httpx", "aiohttp", "anyio", "psutil",
    "accelerate", "safetensors", "huggingface_hub", "modelscope", "mindie_llm", "mindspore", "xpu_triage", "jinja2",
    "outlines", "xgrammar", "llguidance", "lmcache", "mooncake", "nixl", "deepspeed", "llama_cpp", "_pytest", "pytest",
))
"""Packages whose files are named from the package on."""

TOP_DOMAINS = (
    r"(?:local|localdomain|internal|intranet|corp|lan|home|arpa|svc|com|net|org|edu|gov|mil|info|biz|io|ai|dev|app|cloud"
    r"|tech|xyz|site|online|systems|computer|network|services|compute|hpc|site|cluster|consul|k8s|private)")
NATIONAL = (
    r"(?:cn|uk|de|fr|jp|kr|ru|in|eu|us|ca|au|ch|nl|se|no|fi|pl|it|es|br|tw|hk|sg|at|be|dk|cz|pt|gr|ie|il|tr|mx|za|nz|th"
    r"|vn|my|id|ph|ua|ro|hu|ae|sa|cl|ar|co|me|tv|cc|ws|is|to|li|lu|ee|lt|lv|sk|si|hr|rs|bg)")
"""Two letters that are also a file's ending or a method's name: asked for with two labels before them, or with a
number or a hyphen."""
MODULES = r"(?:torchvision|torchaudio|torch|std|tokio|fsspec|skimage|scipy|pandas|numpy|aten|prims|vllm|sglang)"
"""What a dotted name that is no host's begins with."""

HIDDEN = re.compile(r"(?:host|user|ip|path|name)-[0-9a-f]{8}")
"""What stands for a name that was taken out."""

HERE = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "", "*", "-", "/", "n/a", "none", "null",
                  "unknown", "true", "false", "yes", "no", "default", "auto"))
"""This machine itself, and no name at all."""

_WORDS_OF_EVIDENCE = """
    root user admin python python3 vllm sglang server worker engine node host model nvidia device process triton
    torch trtllm lmdeploy main metrics ms us ns sec min mb gb kb mib gib tib mhz ghz kv tp pp dp ep le id ts ph pid
    tid cat dur cpu gpu npu xpu dcu mlu hpu mem name args arg file line lines time date sum max mean avg count total
    all log logs run op ops int8 fp16 bf16 fp8 fp32 cuda rocm amd intel ascend kunlun cann smi api get post put http
    https tcp app dev test true false null none nan inf active idle gil thread threads frames module watch version
    started seconds asked interrupted redacted probes samples notes failed files profile stacks trace traces step
    steps decode prefill batch queue running waiting power util utilization memory clock clocks temp temperature
    index timestamp role card chip error info warning debug prompt token tokens request requests generation usage
    read write copy kernel stream ubuntu docker nobody system home data ray sm of in on at to is it as by no or and
    the for with from are was not epoch day start identity role scheduler tokenizer detokenizer pidstat pmon dmon busy
    counter gauge histogram none limit reason fact kind tool source
"""
COMMON = frozenset(_WORDS_OF_EVIDENCE.split())
"""Words of evidence itself, which cannot be taken out because some machine is called so."""
