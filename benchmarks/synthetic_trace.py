"""Write a Kineto trace of N events, as large as wanted, from a seed.

    python benchmarks/synthetic_trace.py big.json.gz --events 1000000

The file looks like what PyTorch 2.13 writes for a decoder that serves: the same layout of lines (about 300
bytes an event), the same order (host operators, then Python frames, then what the device tracer delivered:
launches, kernels and flows), decode steps annotated as vLLM does. The workload is invented, nothing
measured is in it. The same seed and count give the same bytes. Events are written as they are made, so
memory does not grow with their number.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from kineto_layout import HEAD, TAIL, Row, text

LAYERS = 24
TABLE = 8191
"""Length of the tables of random durations; prime, so that they do not repeat in time with layers and
steps."""

LINEAR = ("aten::linear", "aten::matmul", "aten::mm")
GEMM = (
    "void gemm::device_kernel<gemm::universal::Gemm<tuple<int, int, int, int>, "
    "Mainloop<4, Shape<128, {}, 64>>, Epilogue<bfloat16_t, "
    "LinearCombination<bfloat16_t, 1, float>>>>(gemm::Params)"
)
UNITS = (
    ("norm", "RMSNorm", ("aten::rms_norm", "aten::_fused_rms_norm"),
     "void norm::fused_rms_kernel<c10::BFloat16, float, 8>(float const*, c10::BFloat16*, int, float)"),
    ("qkv", "Linear", LINEAR, GEMM.format(64)),
    ("rotary", "Rotary", ("aten::mul", "aten::add", "aten::cat"),
     "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
     "at::native::MulFunctor<float>>, std::array<char*, 3ul>>(int, at::native::MulFunctor<float>)"),
    ("attend", "Attention", ("serving::paged_attention", "aten::empty_like"),
     "void paged::decode_kernel<bfloat16_t, 128, 16, 8, true, false>(paged::Params)"),
    ("out", "Linear", LINEAR, GEMM.format(32)),
    ("gate", "Linear", LINEAR, GEMM.format(128)),
    ("act", "SiluAndMul", ("aten::silu", "aten::mul"),
     "void act::silu_and_mul_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, int)"),
    ("down", "Linear", LINEAR, GEMM.format(256)),
)
"""What a layer does: (attribute, module, nested operators, kernel), one launch each."""

ORDER = (("op", "annotation", "instant"), ("python",), ("call", "kernel", "copy", "flow"))
"""What the profiler's own observers saw comes first, then Python's frames, then the device tracer's
records."""


class Workload:
    """A decoder's host and device, step after step. Times in ns from the capture's start."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.host = [rng.randrange(900, 3_000) for _ in range(TABLE)]
        self.device = [int(min(rng.lognormvariate(9.3, 0.7), 200_000)) for _ in range(TABLE)]
        self.now = self.free = self.ids = 0

    def unit(self, number: int, layer: int, parent: int) -> Iterator[Row]:
        """One launch with the operators and frames around it."""
        attribute, module, operators, kernel = UNITS[number]
        self.ids += 1
        ids, first = self.ids, self.now
        end = first + 14_000 + self.host[ids * 7 % TABLE]
        at = first + self.host[ids % TABLE]
        for depth, operator in enumerate(operators):
            yield Row("op", operator, at, end - 1_000 - 250 * depth - at, ids * 4 + depth)
            at += self.host[(ids + depth) % TABLE] // 2
        start = max(at + 6_000, self.free)
        self.free = start + self.device[ids % TABLE]
        yield Row("call", "cudaLaunchKernel", at, 4_200, ids, ids * 4)
        yield Row("kernel", kernel, start, self.free - start, ids, ids * 4)
        yield Row("flow", "s", at, own=ids)
        yield Row("flow", "f", start, own=ids)
        name = f"nn.Module: {module}_{layer * len(UNITS) + number}"
        yield Row("python", name, first, end - first - 400, ids * 3, parent)
        frame = f"serving/model/{attribute}.py({31 + number}): forward"
        yield Row("python", frame, first + 250, end - first - 900, ids * 3 + 1, ids * 3)
        self.now = end

    def step(self, budget: int) -> list[Row]:
        """One decode step: layers until the step or the budget is full, then the token is read back."""
        began = self.now
        rows: list[Row] = []
        self.ids += 1
        root = self.ids * 3
        for layer in range(LAYERS):
            if len(rows) >= budget:
                break
            self.ids += 1
            layer_began, frame = self.now, self.ids * 3
            for number in range(len(UNITS)):
                rows += self.unit(number, layer, frame)
            took = self.now - layer_began - 200
            rows.append(Row("python", "serving/model/layer.py(40): forward", layer_began, took, frame, root))
        return [*rows[: max(budget - 7, 0)], *self.read_back(began, root)]

    def read_back(self, began: int, root: int) -> list[Row]:
        """The blocking end of a step, and the rows around the whole of it: seven."""
        self.ids += 1
        ids, at = self.ids, self.now + 5_000
        copied = max(self.free, at + 3_600) + 1_400
        done = copied + 2_000
        self.free, self.now = copied, done + 60_000 + self.host[ids % TABLE] * 10
        whole = done + 5_000 - began
        return [
            Row("op", "aten::_local_scalar_dense", at, done - at + 3_000, ids * 4),
            Row("call", "cudaMemcpyAsync", at + 500, 3_000, ids, ids * 4),
            Row("copy", "Memcpy DtoH (Device -> Pageable)", copied - 1_400, 1_400, ids, ids * 4),
            Row("call", "cudaStreamSynchronize", at + 3_800, done - at - 3_800, 0, ids * 4),
            Row("instant", "[memory]", at, own=ids),
            Row("python", "serving/engine/loop.py(88): step", began, whole, root),
            Row("annotation", "execute_context_0(0)_generation_32(32)", began, whole, ids * 4 + 3),
        ]


def rows(count: int, seed: int) -> Iterator[Row]:
    """Exactly `count` events, step by step; the last step is as long as there is room."""
    workload, made = Workload(seed), 0
    while made < count:
        step = workload.step(count - made)[-(count - made):]
        made += len(step)
        yield from step


def write(path: Path, count: int, seed: int = 0) -> int:
    """Write `count` events as .json or, by the name, .json.gz; return the size of the JSON in bytes."""
    gz = path.suffix == ".gz"
    opened = gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) if gz else path.open("wb")
    size, separator, pending = 0, "", [HEAD]
    with opened as out:
        for wanted in ORDER:
            # the workload is run again for each part of the file: cheaper than keeping it in memory
            for row in rows(count, seed):
                if row.what not in wanted:
                    continue
                pending += (separator, text(row))
                separator = ",\n"
                if len(pending) > 4000:
                    size += out.write("".join(pending).encode())
                    pending.clear()
        size += out.write("".join([*pending, TAIL]).encode())
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path, help="file to write, .json or .json.gz")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.events < 1:
        parser.error("--events must be at least 1")
    size, stored = write(given.path, given.events, given.seed) / 1e6, given.path.stat().st_size / 1e6
    print(f"{given.path}: {given.events:,} events, {size:,.1f} MB of JSON, {stored:,.1f} MB on disk")


if __name__ == "__main__":
    main()
