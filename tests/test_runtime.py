"""The C++ runtime with toy operators: values on any strides and dtypes, messages, sizes of zero, sums that
repeat to the bit, threads, forks, leaks, what would be launched on CUDA, and the fall to the definition."""

import ctypes
import gc
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from avo_ops.registry import native
from avo_ops.registry.native import CudaTarget, NativeError, TensorSpec

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "avo_ops" / "csrc"
SPACE = "avo_test_runtime"
H200 = CudaTarget(arch=90, sms=132)

# Kernels as the generator would write them, but slow and plain. Every name states its formula.
TOYS = r"""
#include <cmath>
#include <cstring>
#include "abi.h"
namespace {
double get(const AvoOperand &o, int64_t at) {
  if (o.dtype == AVO_F64) return static_cast<double *>(o.data)[at];
  if (o.dtype == AVO_F32) return static_cast<float *>(o.data)[at];
  uint16_t half = static_cast<uint16_t *>(o.data)[at];
  if (o.dtype == AVO_F16) { _Float16 v; std::memcpy(&v, &half, 2); return static_cast<float>(v); }
  uint32_t bits = uint32_t(half) << 16; float v; std::memcpy(&v, &bits, 4); return v;
}
void put(const AvoOperand &o, int64_t at, double v) {
  if (o.dtype == AVO_F64) { static_cast<double *>(o.data)[at] = v; return; }
  float f = static_cast<float>(v);
  if (o.dtype == AVO_F32) { static_cast<float *>(o.data)[at] = f; return; }
  uint16_t *half = static_cast<uint16_t *>(o.data) + at;
  if (o.dtype == AVO_F16) { _Float16 h = static_cast<_Float16>(f); std::memcpy(half, &h, 2); return; }
  uint32_t bits; std::memcpy(&bits, &f, 4);
  *half = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
int64_t at(const AvoCpuArgs *a, const AvoOperand &o, int64_t row, int64_t col) {
  int64_t offset = col * o.col_stride;
  for (int i = a->row_dims - 1; i >= 0; --i) {
    offset += row % a->row_sizes[i] * o.row_strides[i];
    row /= a->row_sizes[i];
  }
  return offset;
}
double load(const AvoCpuArgs *a, int k, int64_t r, int64_t c) {
  return get(a->operands[k], at(a, a->operands[k], r, c));
}
void store(const AvoCpuArgs *a, int k, int64_t r, int64_t c, double v) {
  put(a->operands[k], at(a, a->operands[k], r, c), v);
}
}
#define KERNEL(name) template <class T> \
  void name(const AvoCpuArgs *a, int64_t r0, int64_t r1, int64_t c0, int64_t c1, int64_t chunk, void *scratch)
#define EACH for (int64_t r = r0; r < r1; ++r) for (int64_t c = c0; c < c1; ++c)
KERNEL(scale) { EACH store(a, 1, r, c, T(load(a, 0, r, c)) * T(a->scalars[0])); }
KERNEL(minus) { EACH store(a, 2, r, c, T(load(a, 0, r, c)) - T(load(a, 1, r, c))); }
KERNEL(center) { // operands: x, weight or none, y, mean
  T *row = static_cast<T *>(scratch);
  if (reinterpret_cast<uintptr_t>(scratch) % 64) return;
  for (int64_t r = r0; r < r1; ++r) {
    T sum = 0;
    for (int64_t c = 0; c < a->N; ++c) sum += row[c] = T(load(a, 0, r, c));
    T mean = sum / T(a->N) + T(a->scalars[0]);
    if (a->operands[3].data) store(a, 3, r, 0, mean);
    for (int64_t c = 0; c < a->N; ++c)
      store(a, 2, r, c, (row[c] - mean) * (a->operands[1].data ? T(load(a, 1, r, c)) : T(1)));
  }
}
KERNEL(center_dim) {
  for (int64_t r = r0; r < r1; ++r) {
    T sum = 0;
    for (int64_t c = 0; c < a->N; ++c) sum += T(load(a, 0, r, c));
    for (int64_t c = 0; c < a->N; ++c) store(a, 1, r, c, T(load(a, 0, r, c)) - sum / T(a->N));
  }
}
KERNEL(sums) { // operands: g, x, dx or none; sums of g * x and of g
  T *p = static_cast<T *>(a->partials) + chunk * 2 * a->N;
  for (int64_t c = c0; c < c1; ++c) p[c] = p[a->N + c] = 0;
  EACH {
    T g = T(load(a, 0, r, c)), x = T(load(a, 1, r, c));
    p[c] += g * x; p[a->N + c] += g;
    if (a->operands[2].data) store(a, 2, r, c, g * x);
  }
}
#define FINISH(name) void name(const AvoCpuArgs *a, int64_t chunks, int64_t sums, int64_t k, \
                               const AvoOperand *out, int64_t c0, int64_t c1, int f64) { \
  for (int64_t c = c0; c < c1; ++c) { double d = 0; float f = 0; \
    for (int64_t i = 0; i < chunks; ++i) { int64_t j = (i * sums + k) * a->N + c; \
      if (f64) d += static_cast<double *>(a->partials)[j]; else f += static_cast<float *>(a->partials)[j]; } \
    put(*out, c * out->col_stride, f64 ? d : f); } }
extern "C" {
#define ENTRY(f) {#f, &f<float>, &f<double>}
static const AvoKernelEntry entries[] = {
    ENTRY(scale), ENTRY(minus), ENTRY(center), ENTRY(center_dim), ENTRY(sums)};
const AvoKernelEntry *avo_cpu_kernels_base(int *count) { *count = 5; return entries; }
const AvoKernelEntry *avo_cpu_kernels_v3(int *count) { *count = 5; return entries; }
FINISH(avo_cpu_finish_base)
FINISH(avo_cpu_finish_v3)
}
"""

LATE_TOYS = r"""
#include "abi.h"
static void negate(const AvoCpuArgs *a, int64_t, int64_t, int64_t c0, int64_t c1, int64_t, void *) {
  for (int64_t c = c0; c < c1; ++c)
    static_cast<float *>(a->operands[1].data)[c] = -static_cast<float *>(a->operands[0].data)[c];
}
static const AvoKernelEntry entries[] = {{"late", &negate, nullptr}};
extern "C" const AvoKernelEntry *avo_cpu_kernels_base(int *count) { *count = 1; return entries; }
"""


def compile_runtime(out: Path) -> None:
    import torch.utils.cpp_extension as extension

    flags = [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-DTORCH_TARGET_VERSION=0x020b000000000000",
    ]
    includes = [word for path in extension.include_paths() for word in ("-isystem", path)]
    torch_lib = Path(torch.__file__).parent / "lib"
    sources = sorted(str(path) for part in ("runtime", "emulator") for path in (CSRC / part).glob("*.cpp"))
    libraries = [f"-L{torch_lib}", "-ltorch_cpu", "-ldl", "-lpthread"]
    subprocess.run(["g++", *flags, *includes, *sources, *libraries, "-o", str(out)], check=True)


def compile_toys(source: str, out: Path) -> Path:
    out.with_suffix(".cpp").write_text(source)
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        f"-I{CSRC / 'cpu'}",
        str(out.with_suffix(".cpp")),
    ]
    subprocess.run([*command, "-o", str(out)], check=True)
    return out


# ---- toy operators, as records of plan.json ----


def tensor(name: str, span: str = "MN", optional: bool = False) -> dict[str, Any]:
    return {"name": name, "kind": "tensor", "span": span, "optional": optional}


def result(name: str, span: str = "MN", dtype: str = "x") -> dict[str, Any]:
    return {"name": name, "span": span, "dtype": dtype}


def cpu(
    symbol: str, kind: str, operands: str, scalars: str = "", sums: str = "", buffers: int = 0
) -> dict[str, Any]:
    lists = {"operands": operands.split(), "scalars": scalars.split(), "sums": sums.split()}
    return {"symbol": symbol, "class": kind, "buffers": buffers, **lists}


def op(
    schema: str,
    columns: dict[str, Any],
    args: list[dict[str, Any]],
    returns: list[dict[str, Any]],
    cases: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "name": schema.partition("(")[0],
        "schema": schema,
        "columns": columns,
        "primary": 0,
        "args": args,
        "returns": returns,
        "cases": cases,
    }


def case(
    key: list[int], returns: list[bool], cpu: dict[str, Any] | None, cuda: list[Any] | None = None
) -> dict[str, Any]:
    return {"key": key, "returns": returns, "cpu": cpu, "cuda": cuda or []}


def step(family: str, *params: str) -> dict[str, Any]:
    return {"family": family, "params": [param.split() for param in params]}


def alternative(when: str, *steps: dict[str, Any], limit: Any = None, min_arch: int = 0) -> dict[str, Any]:
    return {"when": when, "limit": limit, "min_arch": min_arch, "steps": list(steps)}


def variant(symbol: str, **changes: Any) -> dict[str, Any]:
    plain = {
        "min_n": 1,
        "max_n": 1 << 40,
        "exact": None,
        "unit": None,
        "block": 128,
        "rows": 1,
        "vec": 8,
        "cols": 0,
    }
    return {"symbol": symbol, **plain, "persist": 0, "cluster": 1, "smem": 0, **changes}


def family(kind: str, variants: dict[str, Any], sums: int = 0) -> dict[str, Any]:
    return {"source": "", "class": kind, "sums": sums, "variants": variants}


FLAT_PARAMS = ("ptr x", "ptr y", "N", "aligned")
ROW_PARAMS = (
    "ptr x",
    "stride x",
    "ptr weight",
    "ptr y",
    "stride y",
    "ptr mean",
    "M",
    "N",
    "aligned",
    "scalar shift",
)
PAIRS = ("f32,f32", "f16,f16", "bf16,bf16", "f64,f64", "f16,f32", "bf16,f32")


def row_variants(pair: str) -> list[dict[str, Any]]:
    return [
        variant(f"row768_{pair}", exact=768, block=96, rows=1),
        variant(f"row_small_{pair}", max_n=1024, rows=4),
        variant(f"row_{pair}", max_n=4096, block=256, smem=65536, cluster=2),
    ]


FAMILIES = {
    "scale_flat": family("flat", {d: [variant(f"scale_{d}", block=256)] for d in ("f32", "bf16", "f64")}),
    "minus_flat": family("flat", {d: [variant(f"minus_{d}")] for d in ("f32", "bf16", "f64")}),
    "minus_rows": family("row", {"f32": [variant("minus_rows_f32", cols=2048, vec=4)]}),
    "center_row": family("row", {pair: row_variants(pair) for pair in PAIRS}),
    "center_loop": family("loop", {pair: [variant(f"loop_{pair}", persist=2)] for pair in PAIRS}),
    "center_dim": family("row", {"f32": [variant("center_dim_f32", vec=4)]}),
    "sums_row": family(
        "row", {d: [variant(f"sums_row_{d}", rows=2, persist=0.5)] for d in ("f32", "bf16")}, 2
    ),
    "sums_column": family("column", {"f32": [variant("sums_column_f32", rows=8, cols=64, persist=2)]}, 2),
    "sums_finish": family(
        "finish", {"f32": [variant("finish_f32", block=1024)], "bf16": [variant("finish_bf16")]}, 2
    ),
}

SUM_STEP = ("ptr g", "stride g", "ptr x", "ptr dx", "partials", "M", "N")
FINISH_STEP = ("partials", "groups", "ptr dw", "ptr db", "N")
SUM_CUDA = [
    alternative(
        "rows",
        step("sums_row", *SUM_STEP),
        step("sums_finish", *FINISH_STEP),
        limit={"f32": 1024, "bf16": 1024},
    ),
    alternative("rows", step("sums_column", *SUM_STEP), step("sums_finish", *FINISH_STEP)),
]


def center_case(weight: int) -> dict[str, Any]:
    kernel = cpu("center", "row", "x weight y mean", "shift", buffers=1)
    cuda = [
        alternative(
            "rows",
            step("center_row", *ROW_PARAMS),
            limit={"f32": 2048, "f16": 4096, "bf16": 4096, "f64": 1024},
        ),
        alternative("rows", step("center_loop", *ROW_PARAMS)),
    ]
    return case([weight], [True, True], kernel, cuda)


def sum_cases(kind: str) -> list[dict[str, Any]]:
    cases = [case([1, 1, 1], [True, True, True], cpu("sums", kind, "g x dx", sums="dw db"), SUM_CUDA)]
    return [*cases, case([0, 1, 1], [False, True, True], cpu("sums", kind, "g x dx", sums="dw db"), SUM_CUDA)]


def sum_op(name: str, kind: str) -> dict[str, Any]:
    mask = {"name": "mask", "kind": "mask", "length": 3}
    returns = [result("dx", dtype="g"), result("dw", "N"), result("db", "N", "g")]
    schema = f"{name}(Tensor g, Tensor x, bool[] mask) -> (Tensor?, Tensor?, Tensor?)"
    return op(schema, {"rule": "last"}, [tensor("g"), tensor("x"), mask], returns, sum_cases(kind))


SCALE = op(
    "scale(Tensor x, float s) -> Tensor",
    {"rule": "flat"},
    [tensor("x"), {"name": "s", "kind": "float"}],
    [result("y")],
    [
        case(
            [],
            [True],
            cpu("scale", "pointwise", "x y", "s"),
            [alternative("flat", step("scale_flat", *FLAT_PARAMS, "scalar s"))],
        )
    ],
)
MINUS = op(
    "minus(Tensor x, Tensor z) -> Tensor",
    {"rule": "flat"},
    [tensor("x"), tensor("z")],
    [result("y")],
    [
        case(
            [],
            [True],
            cpu("minus", "pointwise", "x z y"),
            [
                alternative("flat", step("minus_flat", "ptr x", "ptr z", "ptr y", "N", "aligned")),
                alternative(
                    "rows",
                    step(
                        "minus_rows", "ptr x", "stride x", "ptr z", "stride z", "ptr y", "stride y", "M", "N"
                    ),
                ),
            ],
        )
    ],
)
CENTER = op(
    "center(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? shift=None) -> (Tensor, Tensor)",
    {"rule": "trailing", "arg": 1},
    [
        tensor("x"),
        {"name": "normalized_shape", "kind": "ints"},
        tensor("weight", "N", True),
        {"name": "shift", "kind": "float", "none": [0.25, 0.5]},
    ],
    [result("y"), result("mean", "M", "compute")],
    [center_case(0), center_case(1)],
)
CENTER_DIM = op(
    "center_dim(Tensor x, int dim) -> Tensor",
    {"rule": "dim", "arg": 1},
    [tensor("x"), {"name": "dim", "kind": "int"}],
    [result("y")],
    [
        case(
            [],
            [True],
            cpu("center_dim", "row", "x y"),
            [alternative("rows", step("center_dim", "ptr x", "stride x", "ptr y", "stride y", "M", "N"))],
        )
    ],
)
ROWWISE = op(  # takes a row statistic
    "rowwise(Tensor x, Tensor m) -> Tensor",
    {"rule": "last"},
    [tensor("x"), tensor("m", "M")],
    [result("y")],
    [
        case(
            [],
            [True],
            cpu("minus", "row", "x m y"),
            [
                alternative(
                    "rows", step("minus_rows", "ptr x", "stride x", "ptr m", "ptr y", "stride y", "M", "N")
                )
            ],
        )
    ],
)
WEIGHTED = op(  # an MN operand, an N operand and its gradient
    "weighted(Tensor g, Tensor w) -> Tensor",
    {"rule": "last"},
    [tensor("g"), tensor("w", "N")],
    [result("dw", "N", "w")],
    [
        case(
            [],
            [True],
            None,
            [
                alternative(
                    "rows",
                    step("sums_row", "ptr g", "stride g", "partials", "M", "N"),
                    step("sums_finish", "partials", "groups", "ptr dw", "N"),
                )
            ],
        )
    ],
)
COLUMNWISE = op(
    "columnwise(Tensor x, int dim, Tensor w) -> Tensor",
    {"rule": "dim", "arg": 1},
    [tensor("x"), {"name": "dim", "kind": "int"}, tensor("w", "N")],
    [result("y")],
    [case([], [True], cpu("minus", "row", "x w y"))],
)
MODE = op(
    "mode(Tensor x, str mode='up and down', Tensor? z=None) -> Tensor",
    {"rule": "flat"},
    [
        tensor("x"),
        {"name": "mode", "kind": "str", "choices": ["", "up and down", "50%"]},
        tensor("z", optional=True),
    ],
    [result("y")],
    [
        case([1, 0], [True], cpu("minus", "pointwise", "x x y")),
        case([2, 0], [True], cpu("absent", "pointwise", "x y")),
        case([0, 1], [True], cpu("minus", "pointwise", "x z y")),
    ],
)
CENTER_ONLY = {  # the same kernel without its statistic
    **CENTER,
    "name": "center_only",
    "schema": "center_only(Tensor x, SymInt[] shape, Tensor? weight=None, float? shift=None) -> Tensor",
    "returns": CENTER["returns"][:1],
    "cases": [{**one, "returns": [True]} for one in CENTER["cases"]],
}
LATE = op(
    "late(Tensor x) -> Tensor",
    {"rule": "flat"},
    [tensor("x")],
    [result("y")],
    [case([], [True], cpu("late", "pointwise", "x y"))],
)


def definition_center(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor | None = None, shift: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    dims = list(range(-len(shape), 0))
    wide = x.double() if torch.float64 in (x.dtype, None if weight is None else weight.dtype) else x.float()
    mean = wide.mean(dims, keepdim=True) + (
        shift if shift is not None else 0.25 if wide.dtype == torch.float32 else 0.5
    )
    return ((wide - mean) * (1 if weight is None else weight)).to(x.dtype), mean


def definition_sums(g: torch.Tensor, x: torch.Tensor, mask: list[bool]) -> tuple[torch.Tensor | None, ...]:
    rows = list(range(x.dim() - 1))
    values = (g * x, (g * x).sum(rows), g.sum(rows))
    return tuple(value if wanted else None for value, wanted in zip(values, mask, strict=True))


OPERATORS: list[tuple[dict[str, Any], Callable[..., Any]]] = [
    (SCALE, lambda x, s: x * s),
    (MINUS, lambda x, z: x - z),
    (CENTER, definition_center),
    (CENTER_ONLY, lambda *args: definition_center(*args)[0]),
    (CENTER_DIM, lambda x, dim: x - x.mean(dim, keepdim=True)),
    (ROWWISE, lambda x, m: x - m),
    (WEIGHTED, lambda g, w: g.sum(0).to(w.dtype)),
    (COLUMNWISE, lambda x, dim, w: x - w.reshape([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])),
    (sum_op("sums", "row"), definition_sums),
    (sum_op("pointwise_sums", "pointwise"), definition_sums),
    (MODE, lambda x, mode="up and down", z=None: x + 100),
    (LATE, lambda x: x + 1000),
]


@dataclass
class Runtime:
    native: native.Native
    ops: Any
    library: torch.library.Library
    folder: Path

    def define(self, record: dict[str, Any], definition: Callable[..., Any]) -> None:
        name, _, rest = record["schema"].partition("(")
        self.library.define(record["schema"])
        self.library.define(f"{name}.definition({rest}")
        self.library.impl(f"{name}.definition", definition, "CompositeExplicitAutograd")

    def add(self, record: dict[str, Any], definition: Callable[..., Any]) -> None:
        self.define(record, definition)
        self.register([record])

    def register(self, records: list[dict[str, Any]]) -> None:
        self.native.register({"name": records[0]["name"], "ops": records}, FAMILIES, SPACE)

    def describe(self, name: str, *args: object, target: CudaTarget | None = H200) -> list[str]:
        return self.native.describe(f"{SPACE}::{name}", *args, target=target)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("runtime")
    # The variable: a runtime that is built already, so that one can try a changed one on these tests.
    built = Path(os.environ.get("AVO_OPS_TEST_RUNTIME") or ROOT / "avo_ops" / "lib" / "libavo_runtime.so")
    parts = [*(CSRC / "runtime").iterdir(), *(CSRC / "emulator").iterdir(), CSRC / "cpu" / "abi.h"]
    newest = max(path.stat().st_mtime for path in parts)
    if not built.exists() or built.stat().st_mtime < newest:
        built = folder / "libavo_runtime.so"
        compile_runtime(built)
    found = native.load(built)
    library = torch.library.Library(SPACE, "FRAGMENT")
    made = Runtime(found, getattr(torch.ops, SPACE), library, folder)
    for record, definition in OPERATORS:
        made.define(record, definition)
    made.register([record for record, _ in OPERATORS])
    found.load_cpu_kernels(compile_toys(TOYS, folder / "libtoys.so"))
    return made


@pytest.fixture
def stats(runtime: Runtime) -> Iterator[Callable[[], dict[str, int]]]:
    runtime.native.reset_stats()
    yield lambda: {key.partition("::")[2]: value for key, value in runtime.native.stats().items()}


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want.to(got.dtype))


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def layouts(*sizes: int) -> dict[str, torch.Tensor]:
    """Tensors of one shape in memory orders of every kind."""
    base = torch.randn(*sizes)
    reverse = list(range(len(sizes)))[::-1]
    wide = torch.randn(*[size * 2 for size in sizes])
    return {
        "contiguous": base,
        "reversed": base.permute(reverse).contiguous().permute(reverse),
        "sliced": wide[tuple(slice(0, size) for size in sizes)],
        "stepped": wide[tuple(slice(1, None, 2) for _ in sizes)],
        "expanded": torch.randn(*[1] * (len(sizes) - 1), sizes[-1]).expand(sizes),
        "constant": torch.randn(()).expand(sizes),
        "offset": torch.randn(base.numel() + 1)[1:].reshape(sizes),
    }


# ---- values ----


@pytest.mark.parametrize("layout", layouts(1, 1))
@pytest.mark.parametrize("sizes", [(3, 4), (1, 7), (2, 3, 4, 5), (5,)])
def test_pointwise_takes_any_strides_and_keeps_those_of_a_dense_input(
    runtime: Runtime, sizes: tuple[int, ...], layout: str
) -> None:
    x = layouts(*sizes)[layout]
    y = runtime.ops.scale(x, 3.0)
    close(y, x * 3)
    dense = torch.ops.aten.is_non_overlapping_and_dense(x)
    assert dense or layout not in ("contiguous", "reversed", "offset")
    expected = torch.empty_like(x) if dense else torch.empty(sizes)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("second", layouts(1, 1))
@pytest.mark.parametrize("first", layouts(1, 1))
def test_two_operands_of_different_strides(runtime: Runtime, first: str, second: str) -> None:
    x, z = layouts(3, 4, 5)[first], layouts(3, 4, 5)[second]
    close(runtime.ops.minus(x, z), x - z)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (3, 1, 1), (3, 1, 5), (1, 4, 5)])
def test_operands_broadcast(runtime: Runtime, shape: tuple[int, ...]) -> None:
    x, z = torch.randn(3, 4, 5), torch.randn(shape)
    close(runtime.ops.minus(x, z), x - z)
    close(runtime.ops.minus(z, x), z - x)
    assert runtime.ops.minus(torch.randn(1, 4), torch.randn(3, 1)).stride() == (4, 1)


@pytest.mark.parametrize("layout", layouts(1, 1))
@pytest.mark.parametrize("dims", [1, 2])
def test_rows_with_trailing_columns_of_any_strides(runtime: Runtime, layout: str, dims: int) -> None:
    x = layouts(2, 3, 4, 5)[layout]
    shape = list(x.shape[-dims:])
    weight = torch.randn(*shape[::-1]).permute(*range(dims)[::-1])
    y, mean = runtime.ops.center(x, shape, weight, 0.0)
    want_y, want_mean = definition_center(x, shape, weight, 0.0)
    close(y, want_y)
    close(mean, want_mean)
    assert y.is_contiguous() and mean.is_contiguous() and mean.shape == want_mean.shape


@pytest.mark.parametrize("layout", layouts(1, 1))
@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -4])
def test_columns_along_any_dim(runtime: Runtime, layout: str, dim: int) -> None:
    x = layouts(2, 3, 4, 5)[layout]
    y = runtime.ops.center_dim(x, dim)
    close(y, x - x.mean(dim, keepdim=True))
    assert y.is_contiguous()


def test_a_tensor_without_dims_is_one_column(runtime: Runtime) -> None:
    assert runtime.ops.center_dim(torch.tensor(3.0), -1).item() == 0
    assert runtime.ops.scale(torch.tensor(3.0), 2.0).item() == 6


def test_row_and_column_operands(runtime: Runtime) -> None:
    x = torch.randn(5, 2, 3, 4).permute(1, 0, 2, 3)
    m = torch.randn(2, 3, 5, 1).permute(0, 2, 1, 3)
    close(runtime.ops.rowwise(x, m), x - m)
    w = torch.randn(10)[::2]
    close(runtime.ops.columnwise(x, 1, w), x - w[:, None, None])


def test_more_row_dims_than_a_kernel_takes_are_copied(
    runtime: Runtime, stats: Callable[[], dict[str, int]]
) -> None:
    x = torch.randn([2] * 11)[..., ::1].permute(*range(9, -1, -1), 10)
    z = torch.randn([2] * 11)
    close(runtime.ops.minus(x, z), x - z)
    assert stats()["minus / copy"] == 1  # x has the layout of the result
    close(runtime.ops.center(x, [2], None, 0.0)[0], definition_center(x, [2], None, 0.0)[0])
    assert stats()["center / copy"] == 1


def test_columns_without_a_single_stride_are_copied(
    runtime: Runtime, stats: Callable[[], dict[str, int]]
) -> None:
    x = torch.randn(3, 5, 4).transpose(1, 2)
    close(runtime.ops.center(x, [4, 5], None, 0.0)[0], definition_center(x, [4, 5], None, 0.0)[0])
    assert stats()["center / copy"] == 1
    close(runtime.ops.center(x, [5], None, 0.0)[0], definition_center(x, [5], None, 0.0)[0])
    assert stats()["center / copy"] == 1


@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_dtype_mixes(runtime: Runtime, first: torch.dtype, second: torch.dtype) -> None:
    x, w = torch.randn(6, 40).to(first), torch.randn(40).to(second)
    y, mean = runtime.ops.center(x, [40], w, None)
    wide = torch.float64 if torch.float64 in (first, second) else torch.float32
    assert y.dtype == first and mean.dtype == wide
    close(mean, definition_center(x, [40], w, None)[1])
    close(y, definition_center(x, [40], w, None)[0])


def test_the_value_of_a_none_depends_on_the_compute_dtype(runtime: Runtime) -> None:
    x = torch.zeros(2, 8)
    assert runtime.ops.center(x, [8])[1].flatten().tolist() == [0.25, 0.25]
    assert runtime.ops.center(x.double(), [8])[1].flatten().tolist() == [0.5, 0.5]
    assert runtime.ops.center(x, [8], None, 1.5)[1].flatten().tolist() == [1.5, 1.5]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("sizes", [(1, 300_001), (3, 200_000), (70_000, 3), (700, 300)])
def test_large_calls_on_several_threads(
    runtime: Runtime, threads: Callable[[int], None], sizes: tuple[int, int], count: int
) -> None:
    threads(count)
    x = torch.randn(*sizes)
    close(runtime.ops.scale(x, -2.0), x * -2)
    z = torch.randn(sizes[0], 1)
    close(runtime.ops.minus(x, z), x - z)
    x = x.double()
    close(runtime.ops.center(x, [sizes[1]], None, 0.0)[0], definition_center(x, [sizes[1]], None, 0.0)[0])


# ---- sums ----


@pytest.mark.parametrize("name", ["sums", "pointwise_sums"])
@pytest.mark.parametrize("sizes", [(1, 5), (7, 3, 50), (20_000, 64), (40, 20_000)])
def test_column_sums_are_right_and_repeat_to_the_bit(
    runtime: Runtime, threads: Callable[[int], None], name: str, sizes: tuple[int, ...]
) -> None:
    g, x = torch.randn(*sizes), torch.randn(*sizes).bfloat16()
    function = getattr(runtime.ops, name)
    threads(1)
    once = function(g, x, [True, True, True])
    for got, want in zip(once, definition_sums(g.double(), x.double(), [True] * 3), strict=True):
        torch.testing.assert_close(
            got.double(), want, rtol=1e-2 if got.dtype == torch.bfloat16 else 1e-4, atol=2e-3
        )
    assert [value.dtype for value in once] == [torch.float32, torch.bfloat16, torch.float32]
    for count in (1, 2, 4):
        threads(count)
        assert all(torch.equal(a, b) for a, b in zip(once, function(g, x, [True, True, True]), strict=True))


def test_a_mask_leaves_results_out(runtime: Runtime, stats: Callable[[], dict[str, int]]) -> None:
    g, x = torch.randn(4, 6), torch.randn(4, 6)
    dx, dw, db = runtime.ops.sums(g, x, [False, True, True])
    assert dx is None
    close(dw, (g * x).sum(0))
    close(db, g.sum(0))
    assert runtime.ops.sums(g, x, [False, False, False]) == (None, None, None)
    assert stats() == {
        f"sums / cpu/{runtime.native.cpu_isa()}/sums".replace("v4", "v3"): 1,
        "sums / empty": 1,
    }


# ---- nothing to compute ----


def test_zero_sizes(runtime: Runtime, stats: Callable[[], dict[str, int]]) -> None:
    assert runtime.ops.scale(torch.empty(0, 3), 2.0).shape == (0, 3)
    y, mean = runtime.ops.center(torch.empty(0, 3), [3])
    assert y.shape == (0, 3) and mean.shape == (0, 1)
    dx, dw, db = runtime.ops.sums(torch.empty(0, 3), torch.empty(0, 3), [True, True, True])
    assert dx.shape == (0, 3) and dw.tolist() == [0, 0, 0] and db.tolist() == [0, 0, 0]
    dx, dw, db = runtime.ops.sums(torch.empty(3, 0), torch.empty(3, 0), [True, True, True])
    assert dx.shape == (3, 0) and dw.shape == (0,) and db.shape == (0,)
    assert stats() == {"scale / empty": 1, "center / empty": 1, "sums / empty": 2}
    y, mean = runtime.ops.center(torch.empty(3, 0), [0])  # a mean of nothing is what the definition says
    assert y.shape == (3, 0) and mean.shape == (3, 1) and mean.isnan().all()
    assert stats()["center / definition"] == 1


@pytest.mark.parametrize(
    ("sizes", "strides"), [((0, 3), (5, 7)), ((0, 3), (1, 1)), ((0, 3), (9, 1)), ((3, 0), (5, 5))]
)
def test_strides_of_empty_results(runtime: Runtime, sizes: tuple[int, int], strides: tuple[int, int]) -> None:
    x = torch.empty_strided(sizes, strides)
    dense = torch.ops.aten.is_non_overlapping_and_dense(x)
    expected = torch.empty_like(x) if dense else torch.empty(sizes)
    assert runtime.ops.scale(x, 2.0).stride() == expected.stride()


# ---- refusals ----


def meta_free(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda o: o.center(meta_free(4, 768), [768], meta_free(512)),
            "center: weight must have shape [768] (normalized_shape), but has shape [512]",
        ),
        (
            lambda o: o.center(meta_free(4, 768), [512]),
            "center: normalized_shape must be the last dimensions of x, whose shape is [4, 768], "
            "but is [512]",
        ),
        (
            lambda o: o.center(meta_free(8), [1, 8]),
            "center: normalized_shape must be the last dimensions of x, whose shape is [8], but is [1, 8]",
        ),
        (
            lambda o: o.center(meta_free(8), []),
            "center: normalized_shape must have at least 1 entry, but is []",
        ),
        (
            lambda o: o.center(meta_free(2, 3), [3], meta_free(3, dtype=torch.int64)),
            "center: weight must be a floating-point tensor (float32, float16, bfloat16 or float64), "
            "but is int64",
        ),
        (
            lambda o: o.scale(meta_free(2, dtype=torch.complex64), 1.0),
            "scale: x must be a floating-point tensor (float32, float16, bfloat16 or float64), "
            "but is complex64",
        ),
        (
            lambda o: o.minus(meta_free(4, 8), meta_free(3, 8)),
            "minus: z must have shape [4, 8] (that of x) or broadcast to it, but has shape [3, 8]",
        ),
        (
            lambda o: o.minus(meta_free(1, 8), meta_free(2, 1, 3)),
            "minus: z must have shape [1, 8] (that of x) or broadcast to it, but has shape [2, 1, 3]",
        ),
        (
            lambda o: o.rowwise(meta_free(2, 3, 4), meta_free(2, 3)),
            "rowwise: m must have shape [2, 3, 1] (one value for each row of x), but has shape [2, 3]",
        ),
        (
            lambda o: o.columnwise(meta_free(2, 3, 4), -2, meta_free(4)),
            "columnwise: w must have shape [3] (dimension 1 of x), but has shape [4]",
        ),
        (
            lambda o: o.rowwise(meta_free(), meta_free()),
            "rowwise: x must have at least 1 dimension, but has shape []",
        ),
        (
            lambda o: o.center_dim(meta_free(2, 3), 2),
            "center_dim: dim must be in [-2, 1] (x has 2 dimensions), but is 2",
        ),
        (
            lambda o: o.center_dim(meta_free(2), -2),
            "center_dim: dim must be in [-1, 0] (x has 1 dimension), but is -2",
        ),
        (
            lambda o: o.mode(meta_free(2), "left"),
            "mode: mode must be '', 'up and down' or '50%', but is 'left'",
        ),
        (
            lambda o: o.sums(meta_free(2, 2), meta_free(2, 2), [True]),
            "sums: mask must have 3 entries, but has 1",
        ),
        (
            lambda o: o.scale(meta_free(*[1] * 65), 1.0),
            "scale: x must have at most 64 dimensions, but has 65",
        ),
        (
            lambda o: o.center(meta_free(2), [2] * 65),
            "center: normalized_shape must have at most 64 entries, but has 65",
        ),
    ],
)
def test_messages(runtime: Runtime, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call(runtime.ops)
    assert str(caught.value) == message
    close(runtime.ops.scale(torch.ones(3), 2.0), torch.full((3,), 2.0))  # and the next call is well


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("avo 2", "the operator table must begin with 'avo 1'"),
        ("avo 1\nnamespace n\nfoo", "line 3: unknown keyword 'foo'"),
        ("avo 1\nop f flat -1 0", "line 2: no namespace line before the first op"),
        ("avo 1\nnamespace n\nop f flat -1 x", "line 3: primary must be an integer, but is 'x'"),
        ("avo 1\nnamespace n\nop f flat -1 0 9", "line 3: unexpected '9'"),
        ("avo 1\nnamespace n\nop f flat -1 0\narg x tensor", "line 4: missing span"),
        ("avo 1\nnamespace n\nop f flat -1 0\narg x tensor Q 0", "line 4: unknown span 'Q'"),
        ("avo 1\nnamespace n\nop f flat -1 0\narg x%2 int", "line 4: bad percent code in 'x%2'"),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 1",
            "line 4: op f: the primary argument must be a tensor of span MN that is not optional",
        ),
        (
            "avo 1\nnamespace n\nop f dim 0 0\narg x tensor MN 0",
            "line 4: op f: rule dim needs an argument of kind int",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\ncase\ncpu s row 0\noperands y",
            "op f: no argument or return of any op is named 'y'",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\ncase\ncpu s row 0\nsums x",
            "line 7: 'x' is no return of span N",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\ncase\ncpu s row 0\nscalars z",
            "line 7: 'z' is no float or int argument",
        ),
        (
            "avo 1\nnamespace n\nfamily k row 0\nvariant f32 - s 1 9 any 128 0 4 0 0 1 0",
            "line 4: a variant of this class needs rows",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\ncase\nalt flat 0\nstep nowhere",
            "line 7: unknown family 'nowhere'",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\nreturn y MN 0 0\ncase\nreturns 0",
            "line 7: op f: return y is absent in a case but not optional",
        ),
        (
            "avo 1\nnamespace n\nop f last -1 0\narg x tensor MN 0\narg w tensor N 1\ncase 1\ncase 1",
            "line 7: op f has two cases of one key",
        ),
        (
            "avo 1\nnamespace n\nop f last -1 0\narg x tensor MN 0\nparts halves a",
            "line 5: a packed tensor has columns, and two parts or more",
        ),
        (
            "avo 1\nnamespace n\nop f last -1 0\narg x tensor MN 0\nparts halves a b\narg w tensor N 0\nparts pairs c d",
            "line 7: the packed tensors of op f differ in their packing",
        ),
        (
            "avo 1\nnamespace n\nop f last -1 0\narg x tensor MN 0\nparts halves a b\ncase\ncpu s row 0\noperands x",
            "line 8: 'x' is packed: kernels see its parts",
        ),
        (
            "avo 1\nnamespace n\nop f flat -1 0\narg x tensor MN 0\nparts pairs a b",
            "line 5: op f: packed tensors need rule last or dim",
        ),
        (
            "avo 1\nnamespace n\nop f last -1 0\narg x tensor MN 0\narg w tensor N 1\ncase 2",
            "line 6: key entry must be in [0, 1], but is 2",
        ),
    ],
)
def test_messages_about_the_table(runtime: Runtime, text: str, message: str) -> None:
    error = runtime.native._lib.avo_register_operator(text.encode())
    assert error is not None and error.decode() == message


def test_an_operator_is_registered_once(runtime: Runtime) -> None:
    with pytest.raises(NativeError, match=rf"^{SPACE}::scale is registered already$"):
        runtime.native.register({"name": "scale", "ops": [SCALE]}, FAMILIES, SPACE)
    with pytest.raises(NativeError, match=r"^scale: there is no family 'scale_flat'$"):
        runtime.native.register({"name": "scale", "ops": [SCALE]}, {}, SPACE)


def test_a_record_that_disagrees_with_its_schema(runtime: Runtime) -> None:
    wrong = {**SCALE, "schema": "scale(Tensor x, float s) -> (Tensor, Tensor)"}
    with pytest.raises(NativeError, match=r"^scale: the schema has 2 returns, the record 1$"):
        runtime.native.register({"name": "scale", "ops": [wrong]}, FAMILIES, SPACE)
    record = {**SCALE, "name": "short", "args": SCALE["args"][:1]}
    record["cases"] = [case([], [True], cpu("minus", "pointwise", "x x y"))]
    runtime.library.define("short(Tensor x, float s) -> Tensor")
    runtime.native.register({"name": "short", "ops": [record]}, FAMILIES, SPACE)
    with pytest.raises(RuntimeError) as caught:
        runtime.ops.short(torch.ones(2), 1.0)
    assert str(caught.value) == (
        f"{SPACE}::short: the schema has 2 arguments and 1 returns, the operator table 1 and 1"
    )


def test_more_operators_than_slots(runtime: Runtime) -> None:
    ops = (f"op f{i} flat -1 0\narg x tensor MN 0" for i in range(1025))
    lines = ["avo 1", "namespace nowhere", *ops]
    error = runtime.native._lib.avo_register_operator("\n".join(lines).encode())
    assert error is not None
    assert re.fullmatch(
        r"no slot left for 1025 operators: at most 1024 can be registered in a process, and \d+ are",
        error.decode(),
    )


def test_libraries_that_do_not_load(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(NativeError, match=r"^CPU kernels: .*nowhere.so: cannot open"):
        runtime.native.load_cpu_kernels(tmp_path / "nowhere.so")
    empty = compile_toys("", tmp_path / "libempty.so")
    with pytest.raises(
        NativeError, match=r"^CPU kernels: .*libempty.so has no avo_cpu_kernels_\* for this machine$"
    ):
        runtime.native.load_cpu_kernels(empty)


# ---- the definition ----


def test_the_definition_runs_where_no_kernel_is(
    runtime: Runtime, stats: Callable[[], dict[str, int]]
) -> None:
    x = torch.randn(3)
    close(runtime.ops.mode(x, "up and down"), x - x)  # a case with a kernel
    close(runtime.ops.mode(x, "50%"), x + 100)  # a case whose kernel no library has
    close(runtime.ops.mode(x, ""), x + 100)  # no case
    close(runtime.ops.mode(x, "", x / 2), x - x / 2)
    dx, dw, db = runtime.ops.sums(x[None], x[None], [True, False, True])
    close(dx, x[None] * x)
    close(db, x)
    assert dw is None
    counts = stats()
    assert counts["mode / definition"] == 2 and counts["sums / definition"] == 1


def test_an_error_in_the_definition_arrives(runtime: Runtime) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("broken on purpose")

    record = {**LATE, "name": "broken", "schema": "broken(Tensor x) -> Tensor", "cases": []}
    runtime.add(record, broken)
    with pytest.raises(RuntimeError, match=r"broken on purpose|broken.definition failed"):
        runtime.ops.broken(torch.ones(2))


def test_a_library_can_come_later(runtime: Runtime, stats: Callable[[], dict[str, int]]) -> None:
    x = torch.randn(9)
    close(runtime.ops.late(x), x + 1000)
    runtime.native.load_cpu_kernels(compile_toys(LATE_TOYS, runtime.folder / "liblate.so"))
    close(runtime.ops.late(x), -x)
    assert stats() == {"late / definition": 1, "late / cpu/base/late": 1}


# ---- threads, forks, memory ----


def test_first_calls_from_many_threads(runtime: Runtime) -> None:
    for round in range(5):
        name = f"race{round}"
        record = {**SCALE, "name": name, "schema": f"{name}(Tensor x, float s) -> Tensor"}
        runtime.add(record, lambda x, s: x + 100)
        function = getattr(runtime.ops, name).default
        barrier = threading.Barrier(8)
        wrong: list[int] = []

        def work(i: int, function: Any = function, barrier: Any = barrier, wrong: list[int] = wrong) -> None:
            x = torch.full((1000 * i + 3,), float(i))
            barrier.wait()
            wrong.extend(i for _ in range(50) if not torch.equal(function(x, 2.0), x * 2))

        workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert wrong == []


def test_a_forked_child_computes(runtime: Runtime, threads: Callable[[int], None]) -> None:
    threads(4)
    x = torch.randn(400_000)
    want = runtime.ops.scale(x, 2.0)  # the pool has threads now, which a child has not
    child = os.fork()
    if child == 0:
        os._exit(0 if runtime.ops.scale(x, 2.0).numpy().tobytes() == want.numpy().tobytes() else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        threading.Event().wait(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


class Mallinfo(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]


def allocated_bytes() -> int:
    """What malloc has handed out and not got back."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo
    gc.collect()
    info = function()
    return int(info.field7) + int(info.field4)  # in use, and mapped


def fails(call: Callable[[], object]) -> None:
    try:
        call()
    except RuntimeError:
        return
    raise AssertionError("no error")


@pytest.mark.parametrize("kind", ["center", "sums", "error", "definition", "copy", "str"])
def test_calls_do_not_leak(runtime: Runtime, kind: str) -> None:
    x, w = torch.randn(4, 16), torch.randn(16)
    long = torch.randn(2, 16, 2).transpose(1, 2)
    calls: dict[str, Callable[[], object]] = {
        "center": lambda: runtime.ops.center(x, [16], w, 0.5),
        "sums": lambda: runtime.ops.sums(x, x, [True, True, True]),
        "error": lambda: fails(lambda: runtime.ops.center(x, [4, 16], w[:8], 0.5)),
        "definition": lambda: runtime.ops.sums(x, x, [True, False, True]),
        "str": lambda: runtime.ops.mode(x, "up and down"),
        "copy": lambda: runtime.ops.center(long, [2, 16], None, 0.5),
    }
    call = calls[kind]
    for _ in range(500):
        call()
    before = allocated_bytes()
    for _ in range(2000):
        call()
    assert allocated_bytes() - before < 16_000  # the smallest block of malloc is 32 bytes


# ---- the instruction set ----


@pytest.mark.parametrize(("wanted", "chosen"), [("base", "base"), ("v3", "v3"), ("v4", None), ("x", "error")])
def test_the_instruction_set_can_be_lowered(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, wanted: str, chosen: str | None
) -> None:
    monkeypatch.delenv("AVO_OPS_CPU_ISA", raising=False)
    best = runtime.native.cpu_isa()
    monkeypatch.setenv("AVO_OPS_CPU_ISA", wanted)
    if chosen == "error":
        with pytest.raises(NativeError, match=r"^AVO_OPS_CPU_ISA must be base, v3 or v4"):
            runtime.native.cpu_isa()
        with pytest.raises(NativeError, match=r"^AVO_OPS_CPU_ISA must be base, v3 or v4, but is 'x'$"):
            runtime.native.load_cpu_kernels(runtime.folder / "libtoys.so")
    elif chosen is None or (chosen == "v3" and best == "base"):
        assert runtime.native.cpu_isa() == best
    else:
        assert runtime.native.cpu_isa() == chosen


# ---- plans for CUDA ----


def line(lines: list[str], word: str) -> str:
    """The one line that begins with the word, without it."""
    found = [text.partition(" ")[2] for text in lines if text.partition(" ")[0] == word]
    assert len(found) == 1, (word, lines)
    return found[0]


def lines_of(lines: list[str], word: str) -> list[str]:
    return [text.partition(" ")[2] for text in lines if text.partition(" ")[0] == word]


def test_flat(runtime: Runtime) -> None:
    plan = runtime.describe("scale", TensorSpec((8, 4096), torch.bfloat16), 2.0)
    assert line(plan, "path") == "cuda"
    assert line(plan, "space") == "1 32768"
    assert line(plan, "dtypes") == "bf16 bf16 f32"
    assert line(plan, "step") == "scale_flat scale_bf16 grid 16 1 1 block 256 cluster 1 shared 0 aligned 1"
    assert line(plan, "params") == "ptr:x ptr:y N=32768 aligned=1 s=2"
    assert line(plan, "result") == "y bf16 [8, 4096] [4096, 1]"


def test_flat_keeps_a_dense_layout_and_counts_as_one_range(runtime: Runtime) -> None:
    spec = TensorSpec((2, 3, 1, 5), strides=(15, 1, 77, 3))
    plan = runtime.describe("minus", spec, TensorSpec((2, 3, 1, 5), strides=(15, 1, 5, 3)))
    assert line(plan, "alternative") == "0 flat"
    assert line(plan, "result") == "y f32 [2, 3, 1, 5] [15, 1, 77, 3]"
    assert not any("copy" in text for text in plan)


@pytest.mark.parametrize(
    ("sizes", "address", "aligned"),
    [((4, 1024), 0, 1), ((4, 1024), 4, 0), ((4, 1024), 16, 1), ((3, 1023), 0, 0)],
)
def test_alignment_of_a_flat_call(
    runtime: Runtime, sizes: tuple[int, ...], address: int, aligned: int
) -> None:
    plan = runtime.describe("scale", TensorSpec(sizes, address=address), 2.0)
    assert line(plan, "step").endswith(f"aligned {aligned}")


def test_rows_where_layouts_differ(runtime: Runtime) -> None:
    slice_of_rows = TensorSpec((4, 8, 1000), strides=(24000, 3000, 1))
    plan = runtime.describe("minus", slice_of_rows, TensorSpec((1, 1, 1000)))
    assert lines_of(plan, "skipped") == ["0 the operands do not share one dense layout"]
    assert line(plan, "alternative") == "1 rows"
    assert line(plan, "space") == "32 1000"
    assert (
        line(plan, "step") == "minus_rows minus_rows_f32 grid 32 1 1 block 128 cluster 1 shared 0 aligned 1"
    )
    assert line(plan, "params") == "ptr:x stride:x=3000 ptr:z stride:z=0 ptr:y stride:y=1000 M=32 N=1000"
    wide = runtime.describe("minus", TensorSpec((4, 5000), strides=(6000, 1)), TensorSpec((4, 5000)))
    assert " grid 4 3 1 " in line(wide, "step")


def test_operands_that_are_not_two_dimensional_are_copied(runtime: Runtime) -> None:
    plan = runtime.describe("minus", TensorSpec((64, 32)), TensorSpec((64, 1)))
    assert lines_of(plan, "operand") == [
        "x MN f32 col 1 rows 32",
        "z MN f32 col 1 rows 32 copy",
        "y MN f32 col 1 rows 32",
    ]
    # More strides than a kernel takes; more rows than it can count in 32 bits; what is cast, and so written anew.
    apart = TensorSpec((2, 3, 4, 5, 8), strides=(7000, 1500, 300, 16, 1))
    long = TensorSpec((1 << 30, 2, 8), strides=(8, 1 << 40, 1))
    for x in (apart, long):
        plan = runtime.describe("center", x, [8], None, 0.0)
        assert "x MN f32 col 1 rows 8 copy" in lines_of(plan, "operand")
    turned = TensorSpec((4, 6, 8), torch.bfloat16, (8, 32, 1))
    plan = runtime.describe("sums", turned, TensorSpec((4, 6, 8)), [True, True, True])
    assert "g MN f32 col 1 rows 8 copy cast bf16" in lines_of(plan, "operand")


def test_rows_of_several_strides_have_kernels_of_their_own(runtime: Runtime) -> None:
    """One and two strides more than the usual kernel takes; the operands beside them may have one."""
    plan = runtime.describe("center", TensorSpec((4, 6, 8), strides=(8, 32, 1)), [8], None, 0.0)
    assert "x MN f32 col 1 rows 8 32" in lines_of(plan, "operand")
    assert "y MN f32 col 1 rows 8" in lines_of(plan, "operand")
    assert line(plan, "step").startswith("center_row row_small_f32,f32_strided grid 6 1 1 block 128 ")
    assert line(plan, "params").startswith("ptr:x stride:x=8,32 ptr:null ptr:y stride:y=8 ")
    cos = TensorSpec((1, 6, 1, 1000), strides=(0, 1000, 0, 1))
    plan = runtime.describe("minus", TensorSpec((4, 6, 5, 1000)), cos)
    assert line(plan, "params").startswith("ptr:x stride:x=1000 ptr:z stride:z=0,1000,0 ptr:y stride:y=1000 ")
    assert line(plan, "step").startswith("minus_rows minus_rows_f32_strided grid 120 1 1 ")
    assert not any(text.startswith("unaligned") for text in plan)
    # Each stride bears on the alignment.
    for strides, aligned in (((40000, 1002), 0), ((40002, 1000), 0), ((40004, 1000), 1)):
        plan = runtime.describe(
            "minus", TensorSpec((4, 8, 1000), strides=(*strides, 1)), TensorSpec((4, 8, 1000))
        )
        assert line(plan, "step").endswith(f"aligned {aligned}")
        assert ("unaligned x stride" in plan) == (not aligned)


def test_a_flat_kernel_alone_gets_copies(runtime: Runtime) -> None:
    plan = runtime.describe("scale", TensorSpec((4, 1024), strides=(2048, 1), address=4), 2.0)
    assert line(plan, "alternative") == "0 flat"
    assert lines_of(plan, "operand")[0] == "x MN f32 col 1 rows 4096 copy"
    assert line(plan, "step").endswith("aligned 1")


@pytest.mark.parametrize(
    ("n", "stride", "address", "symbol", "aligned"),
    [
        (768, 768, 0, "row768_bf16,f32", 1),
        (768, 2304, 0, "row768_bf16,f32", 1),
        (768, 769, 0, "row_small_bf16,f32", 0),
        (768, 768, 2, "row_small_bf16,f32", 0),
        (1024, 1024, 0, "row_small_bf16,f32", 1),
        (1025, 1025, 0, "row_bf16,f32", 0),
        (4096, 4096, 0, "row_bf16,f32", 1),
        (4097, 4097, 0, "loop_bf16,f32", 0),
    ],
)
def test_variants(runtime: Runtime, n: int, stride: int, address: int, symbol: str, aligned: int) -> None:
    x = TensorSpec((1000, n), torch.bfloat16, (stride, 1), address)
    plan = runtime.describe("center", x, [n], TensorSpec((n,)), 0.5)
    assert line(plan, "step").split()[1] == symbol
    assert line(plan, "step").endswith(f"aligned {aligned}")
    assert f"stride:x={stride} " in line(plan, "params") and line(plan, "params").endswith("shift=0.5")


def test_a_statistic_that_nobody_wants_is_null(runtime: Runtime) -> None:
    x, w = torch.randn(3, 8), torch.randn(8)
    close(runtime.ops.center_only(x, [8], w), definition_center(x, [8], w)[0])
    plan = runtime.describe("center_only", TensorSpec((8, 64)), [64], None, 0.0)
    assert " ptr:y stride:y=64 ptr:null M=8 " in line(plan, "params")
    assert not any(text.startswith("mean") for text in lines_of(plan, "operand"))


def test_grids_of_rows(runtime: Runtime) -> None:
    def grid(m: int, n: int) -> str:
        plan = runtime.describe("center", TensorSpec((m, n), torch.bfloat16), [n], TensorSpec((n,)), 0.5)
        return line(plan, "step").partition(" grid ")[2]

    assert grid(1001, 64).startswith("251 1 1 block 128 cluster 1 shared 0")  # four rows a block
    assert grid(1001, 4096).startswith("2002 1 1 block 256 cluster 2 shared 65536")  # two blocks a row
    assert grid(1001, 5000).startswith("264 1 1 ")  # persistent: twice 132 SMs
    assert grid(101, 5000).startswith("101 1 1 ")


def test_limits_depend_on_the_dtype(runtime: Runtime) -> None:
    def chosen(dtype: torch.dtype) -> list[str]:
        plan = runtime.describe("center", TensorSpec((8, 2049), dtype), [2049], None, 0.0)
        return [line(plan, "alternative"), *lines_of(plan, "skipped")]

    assert chosen(torch.float16) == ["0 rows"]
    assert chosen(torch.float32) == ["1 rows", "0 N is above its limit for this dtype"]


@pytest.mark.parametrize(
    ("x", "weight", "dtypes", "casts"),
    [
        (torch.bfloat16, torch.bfloat16, "bf16 bf16 f32", []),
        (torch.bfloat16, torch.float32, "bf16 f32 f32", []),
        (torch.bfloat16, torch.float16, "bf16 f32 f32", ["weight N f32 cast f16"]),
        (torch.float32, torch.bfloat16, "f32 f32 f32", ["weight N f32 cast bf16"]),
        (torch.float64, torch.float32, "f64 f64 f64", ["weight N f64 cast f32"]),
        (
            torch.float32,
            torch.float64,
            "f64 f64 f64",
            ["x MN f64 col 1 rows 64 cast f32", "y MN f64 col 1 rows 64 cast f32"],
        ),
    ],
)
def test_dtypes_of_cuda(
    runtime: Runtime, x: torch.dtype, weight: torch.dtype, dtypes: str, casts: list[str]
) -> None:
    plan = runtime.describe("center", TensorSpec((8, 64), x), [64], TensorSpec((64,), weight), 0.0)
    assert line(plan, "dtypes") == dtypes
    assert [text for text in lines_of(plan, "operand") if "cast" in text] == casts


def test_operands_of_mixed_dtypes_are_promoted(runtime: Runtime) -> None:
    plan = runtime.describe("minus", TensorSpec((8, 64), torch.bfloat16), TensorSpec((8, 64), torch.float16))
    assert lines_of(plan, "operand") == [
        "x MN f32 col 1 rows 512 cast bf16",
        "z MN f32 col 1 rows 512 cast f16",
        "y MN f32 col 1 rows 512 cast bf16",
    ]
    assert line(plan, "result") == "y bf16 [8, 64] [64, 1]"


def test_columns_along_a_dim_go_through_copies(runtime: Runtime) -> None:
    plan = runtime.describe("center_dim", TensorSpec((2, 32, 5)), 1)
    assert line(plan, "space") == "10 32"
    assert lines_of(plan, "operand") == ["x MN f32 col 1 rows 32 copy", "y MN f32 col 1 rows 32 copy"]
    assert line(plan, "result") == "y f32 [2, 32, 5] [160, 5, 1]"
    plan = runtime.describe("center_dim", TensorSpec((2, 32, 5)), -1)
    assert not any("copy" in text for text in plan)
    plan = runtime.describe("center_dim", TensorSpec((2, 32, 5), strides=(160, 1, 32)), 1)
    assert lines_of(plan, "operand") == ["x MN f32 col 1 rows 32", "y MN f32 col 1 rows 32 copy"]


def test_partial_sums_and_their_finish(runtime: Runtime) -> None:
    x = TensorSpec((8192, 512), torch.bfloat16)
    plan = runtime.describe("sums", x, x, [True, True, True])
    assert lines_of(plan, "step") == [
        "sums_row sums_row_bf16 grid 66 1 1 block 128 cluster 1 shared 0 aligned 1",
        "sums_finish finish_bf16 grid 16 2 1 block 128 cluster 1 shared 0 aligned 1",
    ]
    assert lines_of(plan, "params") == [
        "ptr:g stride:g=512 ptr:x ptr:dx partials:0 M=8192 N=512",
        "partials:0 groups=66 ptr:dw ptr:db N=512",
    ]
    assert line(plan, "workspace") == "66 2 512"


def test_column_kernels(runtime: Runtime) -> None:
    def steps(m: int, n: int) -> list[str]:
        x = TensorSpec((m, n))
        plan = runtime.describe("sums", x, x, [False, True, True])
        assert "ptr:null" in lines_of(plan, "params")[0]
        return [
            text.partition(" grid ")[2].partition(" 1 block")[0] for text in lines_of(plan, "step")
        ] + lines_of(plan, "workspace")

    assert steps(10_000, 2000) == ["32 8", "63 2", "8 2 2000"]  # one wave: 264 blocks over 32 columns of them
    assert steps(100, 2000) == ["32 4", "63 2", "4 2 2000"]  # no more than there are rows for


def test_families_by_the_dtype_that_they_touch(runtime: Runtime) -> None:
    plan = runtime.describe("weighted", TensorSpec((64, 512), torch.bfloat16), TensorSpec((512,)))
    assert line(plan, "dtypes") == "bf16 f32 f32"
    assert [text.split()[1] for text in lines_of(plan, "step")] == ["sums_row_bf16", "finish_f32"]


def test_column_and_row_operands_are_contiguous_for_cuda(runtime: Runtime) -> None:
    x = TensorSpec((4, 8, 64))
    plan = runtime.describe("rowwise", x, TensorSpec((4, 8, 1), strides=(1, 4, 1)))
    assert lines_of(plan, "operand")[1] == "m M f32 copy"
    plan = runtime.describe("rowwise", x, TensorSpec((4, 8, 1), strides=(8, 1, 77)))
    assert lines_of(plan, "operand")[1] == "m M f32"
    plan = runtime.describe("rowwise", x, TensorSpec((4, 8, 1), torch.bfloat16))
    assert lines_of(plan, "operand")[1] == "m M f32 cast bf16"
    plan = runtime.describe("center", x, [64], TensorSpec((64,), strides=(2,)), 0.0)
    assert lines_of(plan, "operand")[1] == "weight N f32 copy"


def test_a_cast_of_a_slice_is_contiguous(runtime: Runtime) -> None:
    x = TensorSpec((8, 64), strides=(128, 1))
    plan = runtime.describe("center", x, [64], TensorSpec((64,), torch.float64), 0.0)
    assert lines_of(plan, "operand")[0] == "x MN f64 col 1 rows 64 cast f32"


def packed_op(name: str, interleaved: bool) -> dict[str, Any]:
    packed = {"parts": ["a", "b"], "interleaved": interleaved}
    params = ("ptr a", "stride a", "ptr b", "stride b", "ptr y", "stride y", "M", "N")
    return op(
        f"{name}(Tensor x, Tensor w) -> Tensor",
        {"rule": "last"},
        [{**tensor("x"), **packed}, {**tensor("w", "N"), "parts": ["c", "d"], "interleaved": interleaved}],
        [result("y")],
        [case([], [True], None, [alternative("rows", step("minus_rows", *params))])],
    )


def test_parts_of_packed_tensors(runtime: Runtime) -> None:
    runtime.add(packed_op("halves", False), lambda x, w: x)
    runtime.add(packed_op("pairs", True), lambda x, w: x)
    x, w = TensorSpec((8, 6), strides=(10, 1)), TensorSpec((6,))
    plan = runtime.describe("halves", x, w)
    assert line(plan, "space") == "8 3"
    assert line(plan, "params") == "ptr:a stride:a=10 ptr:b stride:b=10 ptr:y stride:y=3 M=8 N=3"
    # The second half of w starts between two 16-byte chunks, where kernels do not read an N operand.
    assert lines_of(plan, "operand") == [
        "y MN f32 col 1 rows 3", "a MN f32 col 1 rows 10", "b MN f32 col 1 rows 10", "c N f32", "d N f32 copy"
    ]  # fmt: skip
    assert lines_of(plan, "unaligned") == ["x N", "b address"]
    assert line(plan, "result") == "y f32 [8, 3] [3, 1]"
    # Kernels walk over columns one by one: every second is copied.
    assert lines_of(runtime.describe("pairs", x, w), "operand") == [
        "y MN f32 col 1 rows 3", "a MN f32 col 1 rows 3 copy", "b MN f32 col 1 rows 3 copy", "c N f32 copy", "d N f32 copy"
    ]  # fmt: skip
    for wrong, message in [
        (
            (TensorSpec((8, 7)), w),
            "halves: x must have a multiple of 2 as size of dimension 1, but has shape [8, 7]",
        ),
        ((TensorSpec(()), w), "halves: x must have at least 1 dimension, but has shape []"),
        (
            (x, TensorSpec((3,))),
            "halves: w must have shape [6] (2 values for each column of x), but has shape [3]",
        ),
    ]:
        with pytest.raises(NativeError) as caught:
            runtime.describe("halves", *wrong)
        assert str(caught.value) == message


def test_an_alternative_for_rows_of_whole_chunks(runtime: Runtime) -> None:
    record = {**CENTER, "name": "chunks", "schema": CENTER["schema"].replace("center", "chunks", 1)}
    alternatives = [alternative(when, step("center_loop", *ROW_PARAMS)) for when in ("chunks", "rows")]
    record["cases"] = [{**c, "cuda": alternatives} for c in CENTER["cases"]]
    runtime.add(record, definition_center)

    def chosen(n: int, stride: int, dtype: torch.dtype = torch.float32) -> list[str]:
        plan = runtime.describe("chunks", TensorSpec((4, n), dtype, (stride, 1)), [n], None, 0.0)
        return [line(plan, "alternative"), *lines_of(plan, "skipped")]

    no = "0 N is no whole number of 16-byte chunks"
    assert chosen(68, 96) == chosen(68, 69) == chosen(72, 96, torch.bfloat16) == ["0 rows"]
    assert chosen(66, 96) == chosen(68, 96, torch.bfloat16) == ["1 rows", no]


def test_min_arch_and_missing_variants(runtime: Runtime) -> None:
    newer = alternative("flat", step("scale_flat", *FLAT_PARAMS), min_arch=100)
    record = {**SCALE, "name": "arch", "schema": "arch(Tensor x, float s) -> Tensor"}
    record["cases"] = [case([], [True], None, [newer, alternative("flat", step("scale_flat", *FLAT_PARAMS))])]
    runtime.add(record, lambda x, s: x)
    x = TensorSpec((64,))
    assert line(runtime.describe("arch", x, 1.0, target=CudaTarget(arch=100)), "alternative") == "0 flat"
    older = runtime.describe("arch", x, 1.0)
    assert (
        line(older, "alternative") == "1 flat" and line(older, "skipped") == "0 it needs a newer architecture"
    )
    plan = runtime.describe("scale", TensorSpec((64,), torch.float16), 1.0)
    assert plan == ["path definition", "reason no CUDA kernel for this size, dtype and architecture"]


def test_nothing_is_launched_without_elements(runtime: Runtime) -> None:
    empty = TensorSpec((0, 64))
    assert runtime.describe("scale", empty, 1.0) == ["path empty", "result y f32 [0, 64] [64, 1]"]
    assert line(runtime.describe("sums", empty, empty, [True, True, True]), "path") == "empty"
    full = TensorSpec((4, 64))
    assert runtime.describe("sums", full, full, [False, False, False]) == ["path nothing"]


def test_descriptions_for_the_cpu_and_of_real_tensors(runtime: Runtime) -> None:
    x = torch.randn(4, 6, 8).transpose(0, 1)
    plan = runtime.describe("center", x, [8], None, None, target=None)
    assert line(plan, "path").startswith("cpu/") and line(plan, "path").endswith("/center")
    assert line(plan, "space") == "24 8 rows 6 4"
    assert "x MN f32 col 1 rows 8 48" in lines_of(plan, "operand")
    assert "mean M f32 col 0 rows 4 1" in lines_of(plan, "operand")


def test_descriptions_raise_what_the_call_would(runtime: Runtime) -> None:
    with pytest.raises(NativeError, match=r"^center: weight must have shape \[8\]"):
        runtime.describe("center", TensorSpec((4, 8)), [8], TensorSpec((7,)), None)
    with pytest.raises(NativeError, match=r"^there is no operator avo_test_runtime::nothing$"):
        runtime.describe("nothing")
    with pytest.raises(NativeError, match=r"scale: s cannot be 'none'$"):
        runtime.describe("scale", TensorSpec((4,)), None)


# ---- launches, with stand-ins for torch and the CUDA driver that print what is asked of them ----

FAKES = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>
#define API extern "C" __attribute__((visibility("default")))
using std::printf;
static void *pointer(long number) { return reinterpret_cast<void *>(number); }
#if defined(FAKE_DRIVER)
struct Attribute { int id, pad; unsigned cluster[16]; };
struct Config { unsigned grid[3], block[3], shared; void *stream; Attribute *attributes; unsigned count; };
static thread_local void *context;
API int cuInit(unsigned) { return 0; }
API int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
API int cuDeviceGet(int *d, int i) { *d = 70 + i; return 0; }
API int cuDeviceGetAttribute(int *v, int a, int) { *v = a == 16 ? 132 : a == 75 ? 9 : 0; return 0; }
API int cuDevicePrimaryCtxRetain(void **c, int d) { *c = pointer(d); printf("retain %d\n", d); return 0; }
API int cuCtxGetCurrent(void **c) { *c = context; return 0; }
API int cuCtxSetCurrent(void *c) { context = c; return 0; }
API int cuLibraryLoadData(void **l, const char *code, void *, void *, unsigned, void *, void *, unsigned) {
  printf("load %.5s\n", code);
  *l = pointer(9);
  return std::strncmp(code, "cubin", 5) ? 200 : 0;
}
API int cuLibraryGetKernel(void **k, void *, const char *name) {
  printf("kernel %s\n", name);
  *k = strdup(name);
  return std::strstr(name, "missing") ? 500 : 0;
}
API int cuKernelGetAttribute(int *out, int attribute, const char *, int) {
  const char *version = std::getenv("PTX_VERSION");
  *out = version ? std::atoi(version) : 90;
  return attribute == 5 ? 0 : 1;
}
API int cuKernelSetAttribute(int a, int v, const char *k, int d) {
  printf("set %d %d %s %d\n", a, v, k, d);
  return 0;
}
API int cuThreadExchangeStreamCaptureMode(int *) { return 0; }
API int cuGetErrorString(int e, const char **s) {
  *s = e == 500 ? "named symbol not found" : e == 200 ? "device kernel image is invalid" : "launch failure";
  return 0;
}
API int cuLaunchKernelEx(const Config *c, const char *k, void **params, void **) {
  printf("launch %s grid %u %u %u block %u %u shared %u stream %ld", k, c->grid[0], c->grid[1], c->grid[2],
         c->block[0], c->block[1], c->shared, reinterpret_cast<long>(c->stream));
  for (unsigned i = 0; i < c->count; ++i)
    printf(" attribute %d %u %u", c->attributes[i].id, c->attributes[i].cluster[0],
           c->attributes[i].cluster[1]);
  printf(" params");
  for (int i = 0; i < 5; ++i) printf(" %lx", *static_cast<long *>(params[i]));
  printf("\n");
  return std::strstr(k, "broken") ? 719 : 0;
}
#elif defined(FAKE_STREAM)
API int aoti_torch_get_current_cuda_stream(int device, void **s) { *s = pointer(500 + device); return 0; }
#else
using Value = uint64_t;
using Boxed = void (*)(Value *, uint64_t, uint64_t);
struct Tensor { void *data; std::vector<int64_t> sizes, strides; int dtype, index; };
static int live;
static std::vector<Boxed> boxed;
static long addresses;
static Tensor *make(std::vector<int64_t> sizes, std::vector<int64_t> strides, int dtype, int index) {
  ++live;
  return new Tensor{pointer(0x1000 * ++addresses), sizes, strides, dtype, index};
}
API int aoti_torch_delete_tensor_object(Tensor *t) { --live; delete t; return 0; }
API int aoti_torch_is_defined(Tensor *, bool *v) { *v = true; return 0; }
API int aoti_torch_get_dim(Tensor *t, int64_t *v) { *v = t->sizes.size(); return 0; }
API int aoti_torch_get_sizes(Tensor *t, int64_t **v) { *v = t->sizes.data(); return 0; }
API int aoti_torch_get_strides(Tensor *t, int64_t **v) { *v = t->strides.data(); return 0; }
API int aoti_torch_get_dtype(Tensor *t, int *v) { *v = t->dtype; return 0; }
API int aoti_torch_get_device_type(Tensor *, int *v) { *v = 1; return 0; }
API int aoti_torch_get_device_index(Tensor *t, int *v) { *v = t->index; return 0; }
API int torch_get_const_data_ptr(Tensor *t, const void **v) { *v = t->data; return 0; }
API int torch_get_mutable_data_ptr(Tensor *t, void **v) { *v = t->data; return 0; }
API int aoti_torch_empty_strided(int64_t n, const int64_t *sizes, const int64_t *strides, int dtype,
                                 int device, int index, Tensor **v) {
  *v = make({sizes, sizes + n}, {strides, strides + n}, dtype, index);
  printf("empty");
  for (int i = 0; i < n; ++i) printf(" %ld:%ld", sizes[i], strides[i]);
  printf(" dtype %d device %d:%d at %p\n", dtype, device, index, (*v)->data);
  return 0;
}
API int aoti_torch_copy_(Tensor *a, Tensor *b, int) {
  printf("copy %p from %p\n", a->data, b->data);
  return 0;
}
API int aoti_torch_zero_(Tensor *) { return 1; }
API int aoti_torch_get_storage_size(Tensor *, int64_t *) { return 1; }
API int aoti_torch__reinterpret_tensor(Tensor *, int64_t, const int64_t *, const int64_t *, int64_t, Tensor **) { return 1; }
API int aoti_torch_get_current_device_index(int *v) { *v = 0; return 0; }
API int aoti_torch_create_device_guard(int i, void **g) {
  printf("device %d\n", i);
  *g = pointer(8);
  return 0;
}
API int aoti_torch_delete_device_guard(void *) { printf("device back\n"); return 0; }
API int aoti_torch_library_init_impl(const char *, const char *, const char *, unsigned, void **v) {
  *v = pointer(8);
  return 0;
}
API int torch_library_impl(void *, const char *, Boxed f, uint64_t) { boxed.push_back(f); return 0; }
API int torch_call_dispatcher(const char *op, const char *overload, Value *stack, uint64_t) {
  printf("dispatch %s.%s %p\n", op, overload, reinterpret_cast<Tensor *>(stack[0])->data);
  return 0; // the first argument is the result
}
API int torch_list_size(std::vector<Value> *l, size_t *v) { *v = l->size(); return 0; }
API int torch_list_get_item(std::vector<Value> *l, size_t i, Value *v) { *v = (*l)[i]; return 0; }
API int torch_delete_list(std::vector<Value> *l) { delete l; --live; return 0; }
API int torch_delete_string(void *) { return 1; }
API int torch_string_c_str(void *, const char **) { return 1; }
API int torch_string_length(void *, size_t *) { return 1; }
API int torch_parallel_for(int64_t, int64_t, int64_t, void *, void *) { return 1; }
API int torch_get_num_threads(uint32_t *) { return 1; }
API int aoti_torch_device_type_cpu() { return 0; }
API int aoti_torch_device_type_cuda() { return 1; }
#define CODE(name, v) API int aoti_torch_dtype_##name() { return v; }
CODE(uint8, 0) CODE(int8, 1) CODE(int16, 2) CODE(int32, 3) CODE(int64, 4) CODE(float16, 5) CODE(float32, 6)
CODE(float64, 7) CODE(complex32, 8) CODE(complex64, 9) CODE(complex128, 10) CODE(bool, 11) CODE(bfloat16, 15)
CODE(float8_e5m2, 23) CODE(float8_e4m3fn, 24) CODE(float8_e5m2fnuz, 25) CODE(float8_e4m3fnuz, 26)
CODE(uint16, 27) CODE(uint32, 28) CODE(uint64, 29)
// Calls operator `op` with M by N tensors and the scalar 2, or (sums) a mask and three optional results.
// The second tensor is of another dtype if `other` is not 0. Rows of the first one lie in two halves so far apart, if that
// is not 0.
API void call(int op, int sums, int dtype, int64_t M, int64_t N, int64_t stride, int index, int other, int64_t apart) {
  Value stack[4] = {};
  int n = 0;
  for (; n < (sums ? 2 : 1); ++n) {
    Tensor *made = make({M, N}, {stride, 1}, n && other ? other : dtype, index);
    if (apart) made->sizes = {2, M / 2, N}, made->strides = {n ? M / 2 * stride : apart, stride, 1};
    stack[n] = reinterpret_cast<Value>(made);
  }
  double scalar = 2;
  if (sums) { stack[n++] = reinterpret_cast<Value>(new std::vector<Value>{1, 1, 1}); ++live; }
  else std::memcpy(&stack[n++], &scalar, 8);
  try {
    boxed[2 * op](stack, n, sums ? 3 : 1);
    for (int i = 0; i < (sums ? 3 : 1); ++i) {
      auto *box = reinterpret_cast<Value *>(stack[i]);
      auto *t = reinterpret_cast<Tensor *>(sums ? *box : stack[i]);
      if (sums) delete box;
      printf("result %p dtype %d\n", t->data, t->dtype);
      aoti_torch_delete_tensor_object(t);
    }
  } catch (const std::exception &error) {
    printf("error %s\n", error.what());
  }
  printf("live %d\n", live);
  std::fflush(stdout);
}
#endif
"""

FAKE_SESSION = """
import ctypes, sys
folder, runtime = sys.argv[1:]
torch = ctypes.CDLL(folder + "/libtorch_cpu.so")
others = [ctypes.CDLL(folder + "/" + name) for name in ("libcuda.so.1", "libtorch_cuda.so")]
library = ctypes.CDLL(runtime)
library.avo_register_operator.restype = ctypes.c_char_p

def log(*words):
    ctypes.CDLL(None).fflush(None)
    print(*words, flush=True)

def resolve(unit, arch, path, size):
    log("resolve", unit.decode(), arch)
    if unit == b"scale_flat":
        library.avo_forget_failed_kernels()  # hangs if the runtime held its lock
    if unit == b"nowhere" or (unit == b"sums_row_bf16_strided" and arch == 90):
        return 0
    if unit == b"frozen":
        ctypes.memmove(path, b"not now\\0", 8)
        return -1
    name = (folder + ("/damaged" if unit == b"damaged" else "/cubin")).encode() + b"\\0"
    ctypes.memmove(path, name, len(name))
    return 1

def warn(text):
    log("warning", text.decode().replace(folder, "DIR"))

integer, pointer = ctypes.c_int, ctypes.c_void_p
resolver = ctypes.CFUNCTYPE(integer, ctypes.c_char_p, integer, pointer, integer)(resolve)
warning = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(warn)
library.avo_set_kernel_resolver(resolver)
library.avo_set_warning_callback(warning)
error = library.avo_register_operator(open(folder + "/table").read().encode())
assert error is None, error
for line in open(folder + "/calls"):
    print("#", flush=True)
    if line.startswith("forget"):
        library.avo_forget_failed_kernels()
    else:
        words = [int(word) for word in line.split()]
        torch.call(*map(ctypes.c_int64, words + [0] * (9 - len(words))))
"""

F32, F16, BF16, F64 = 6, 5, 15, 7


def one_step_op(name: str, family_name: str) -> dict[str, Any]:
    cuda = [alternative("flat", step(family_name, *FLAT_PARAMS, "scalar s"))]
    schema = f"{name}(Tensor x, float s) -> Tensor"
    return {**SCALE, "name": name, "schema": schema, "cases": [case([], [True], None, cuda)]}


def launches(runtime: Runtime, folder: Path, *calls: str, ptx_version: int = 90) -> list[list[str]]:
    """What each call, given by the arguments of `call`, asked of torch and the driver in its own process."""
    (folder / "fakes.cpp").write_text(FAKES)
    for define, name in (
        ("TORCH", "libtorch_cpu.so"),
        ("DRIVER", "libcuda.so.1"),
        ("STREAM", "libtorch_cuda.so"),
    ):
        if not (folder / name).exists():
            command = [
                "g++",
                "-std=c++20",
                "-w",
                "-fPIC",
                "-shared",
                f"-DFAKE_{define}",
                f"-Wl,-soname,{name}",
            ]
            subprocess.run([*command, str(folder / "fakes.cpp"), "-o", str(folder / name)], check=True)
    (folder / "cubin").write_text("cubin")
    (folder / "damaged").write_text("ruins")
    wide = variant("wide_f32", smem=100_000, cluster=16)
    families = {
        **FAMILIES,
        "nowhere": family("flat", {"f32": [variant("nowhere_f32")]}),
        "damaged": family("flat", {"f32": [variant("damaged_f32")]}),
        "missing": family("flat", {"f32": [variant("missing_f32")]}),
        "broken": family("flat", {"f32": [variant("broken_f32")]}),
        "wide": family("flat", {"f32": [wide]}),
        "frozen": family("flat", {"f32": [variant("frozen_f32")]}),
        "rare": family(
            "flat", {"f32": [variant("rare_f32")], "f64": [variant("rare_f64", unit="rare__f64")]}
        ),
    }
    ops = [SCALE, sum_op("sums", "row")]
    ops += [
        one_step_op(f"op_{name}", name)
        for name in ("nowhere", "damaged", "missing", "broken", "wide", "rare", "frozen")
    ]
    (folder / "table").write_text(native.table_text({"name": "all", "ops": ops}, families, SPACE))
    (folder / "calls").write_text("\n".join(calls) + "\n")
    command = [sys.executable, "-c", FAKE_SESSION, str(folder), str(runtime.native.path)]
    environment = {**os.environ, "PTX_VERSION": str(ptx_version)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip().splitlines() for part in done.stdout.split("#\n")[1:]]


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fakes")


def test_a_launch_and_what_is_kept_of_it(runtime: Runtime, fakes: Path) -> None:
    first, again, other_device = launches(
        runtime, fakes, f"0 0 {F32} 8 64 64 0", f"0 0 {F32} 8 64 64 0", f"0 0 {F32} 8 64 64 1"
    )
    assert first == [
        "retain 70",
        "resolve scale_flat 90",
        "load cubin",
        "kernel scale_f32",
        f"empty 8:64 64:1 dtype {F32} device 1:0 at 0x2000",
        "launch scale_f32 grid 1 1 1 block 256 1 shared 0 stream 500 params 1000 2000 200 1 40000000",
        f"result 0x2000 dtype {F32}",
        "live 0",
    ]
    assert [text.split()[0] for text in again] == ["empty", "launch", "result", "live"]
    assert [text.split()[0] for text in other_device] == [
        "device",
        "empty",
        "launch",
        "device",
        "result",
        "live",
    ]
    assert other_device[0] == "device 1" and " stream 501 " in other_device[2]


def test_a_launch_with_doubles_and_more_elements_than_32_bits_count(runtime: Runtime, fakes: Path) -> None:
    (lines,) = launches(runtime, fakes, f"0 0 {F64} 2 {1 << 31} {1 << 31} 0")
    assert lines[5] == (
        f"launch scale_f64 grid {1 << 21} 1 1 block 256 1 shared 0 stream 500 "
        "params 1000 2000 100000000 1 4000000000000000"
    )


def test_sums_share_a_workspace(runtime: Runtime, fakes: Path) -> None:
    (lines,) = launches(runtime, fakes, f"1 1 {BF16} 1024 64 64 0")
    work = [text for text in lines if text.split()[0] in ("empty", "launch", "live")]
    assert work == [
        f"empty 1024:64 64:1 dtype {BF16} device 1:0 at 0x3000",
        f"empty 64:1 dtype {BF16} device 1:0 at 0x4000",
        f"empty 64:1 dtype {BF16} device 1:0 at 0x5000",
        f"empty {66 * 2 * 64}:1 dtype {F32} device 1:0 at 0x6000",
        "launch sums_row_bf16 grid 66 1 1 block 128 1 shared 0 stream 500 params 1000 40 2000 3000 6000",
        # Attribute 6: it may begin before the kernel whose sums it adds has ended, for which it waits.
        "launch finish_bf16 grid 2 2 1 block 128 1 shared 0 stream 500 attribute 6 1 0 params 6000 42 4000 5000 40",
        "live 0",
    ]
    # From the PTX of an older arch it cannot wait.
    (old,) = launches(runtime, fakes, f"1 1 {BF16} 1024 64 64 0", ptx_version=80)
    assert "attribute" not in next(text for text in old if text.startswith("launch finish"))


def test_operands_through_temporaries(runtime: Runtime, fakes: Path) -> None:
    (lines,) = launches(runtime, fakes, f"0 0 {F32} 8 64 128 0")
    assert [text for text in lines if text.split()[0] in ("empty", "copy", "launch", "live")] == [
        f"empty 8:64 64:1 dtype {F32} device 1:0 at 0x2000",
        "copy 0x2000 from 0x1000",
        f"empty 8:64 64:1 dtype {F32} device 1:0 at 0x3000",
        "launch scale_f32 grid 1 1 1 block 256 1 shared 0 stream 500 params 2000 3000 200 1 40000000",
        "live 0",
    ]


def test_results_of_another_dtype_come_from_temporaries(runtime: Runtime, fakes: Path) -> None:
    (lines,) = launches(runtime, fakes, f"1 1 {F32} 16 64 64 0 {BF16}")
    assert [text for text in lines if text.split()[0] in ("empty", "copy", "launch", "result", "live")] == [
        f"empty 16:64 64:1 dtype {F32} device 1:0 at 0x3000",  # x for the kernel
        "copy 0x3000 from 0x2000",
        f"empty 16:64 64:1 dtype {F32} device 1:0 at 0x4000",  # dx
        f"empty 64:1 dtype {BF16} device 1:0 at 0x5000",  # dw, and for the kernel
        f"empty 64:1 dtype {F32} device 1:0 at 0x6000",
        f"empty 64:1 dtype {F32} device 1:0 at 0x7000",  # db
        f"empty {8 * 2 * 64}:1 dtype {F32} device 1:0 at 0x8000",
        "launch sums_row_f32 grid 8 1 1 block 128 1 shared 0 stream 500 params 1000 40 3000 4000 8000",
        "launch finish_f32 grid 2 2 1 block 1024 1 shared 0 stream 500 attribute 6 1 0 params 8000 8 6000 7000 40",
        "copy 0x5000 from 0x6000",
        f"result 0x4000 dtype {F32}",
        f"result 0x5000 dtype {BF16}",
        f"result 0x7000 dtype {F32}",
        "live 0",
    ]


def test_rows_of_two_strides_are_copied_where_nothing_compiles_their_kernel(
    runtime: Runtime, fakes: Path
) -> None:
    here, nowhere, again = (f"1 1 {dtype} 16 64 64 0 0 4096" for dtype in (F32, BF16, BF16))
    one, two, three = launches(runtime, fakes, here, nowhere, again)
    assert [text for text in one if text.split()[0] in ("resolve", "copy", "warning")] == [
        "resolve sums_row_f32_strided 90",
        "resolve sums_finish 90",
    ]
    # g is a struct of its strides, the slowest first; x, beside it, has none in this kernel.
    (launch,) = (text for text in one if text.startswith("launch sums_row"))
    assert (
        launch.startswith("launch sums_row_f32_strided grid 8 1 1 ") and " params 1000 0 2000 3000 " in launch
    )
    assert [text for text in two if text.split()[0] in ("resolve", "copy", "warning")] == [
        "resolve sums_row_bf16_strided 90",
        "warning avo_ops: no CUDA kernel of sums_row_bf16_strided, so its operands are copied first: there is no cubin for sm_90",
        "resolve sums_row 90",
        "copy 0x9000 from 0x7000",
    ]
    assert any(text.startswith("launch sums_row_bf16 grid 8 1 1 ") for text in two)
    assert not any(text.startswith(("resolve", "warning")) for text in three)
    assert any(text.startswith("copy") for text in three) and three[-1] == "live 0"


def test_a_unit_that_may_not_be_made_now_fails_the_call_and_is_asked_for_again(
    runtime: Runtime, fakes: Path
) -> None:
    first, again = launches(runtime, fakes, *[f"8 0 {F32} 8 64 64 0"] * 2)
    assert first[1:] == ["resolve frozen 90", "error not now", "live 0"]
    assert again == first[1:]


def test_families_that_cannot_be_had_fall_to_the_definition(runtime: Runtime, fakes: Path) -> None:
    call = f"{F32} 8 64 64 0"
    calls = [
        f"2 0 {call}",
        f"2 0 {call}",
        "forget",
        f"2 0 {call}",
        f"3 0 {call}",
        f"4 0 {call}",
        f"4 0 {call}",
        f"0 0 {F16} 8 64 64 0",
    ]
    first, again, _, later, damaged, missing, missing_again, dtype = launches(runtime, fakes, *calls)
    cannot = "so plain torch operations run instead"
    tail = [f"dispatch {SPACE}::op_nowhere.definition 0x1000", f"result 0x1000 dtype {F32}", "live 0"]
    assert first[1:] == [
        "resolve nowhere 90",
        f"warning avo_ops: no CUDA kernel of nowhere, {cannot}: there is no cubin for sm_90",
        *tail,
    ]
    assert [text.split()[0] for text in again] == ["dispatch", "result", "live"]
    assert later[0] == "resolve nowhere 90"
    assert damaged[1:3] == [
        "load ruins",
        f"warning avo_ops: no CUDA kernel of damaged, {cannot}: the driver does not load DIR/damaged: "
        "device kernel image is invalid",
    ]
    assert damaged[3].startswith(f"dispatch {SPACE}::op_damaged.definition")
    assert missing[3] == (
        "warning avo_ops: the cubin of missing for sm_90 has no kernel missing_f32 (named symbol not found), "
        + cannot
    )
    assert missing[4].startswith(f"dispatch {SPACE}::op_missing.definition") and missing[-1] == "live 0"
    assert [text.split()[0] for text in missing_again] == ["kernel", "dispatch", "result", "live"]
    assert dtype[0].startswith(f"dispatch {SPACE}::scale.definition") and dtype[-1] == "live 0"


def test_the_cubin_of_a_variant_is_that_of_its_unit(runtime: Runtime, fakes: Path) -> None:
    single, double, again = launches(runtime, fakes, *(f"7 0 {dtype} 8 64 64 0" for dtype in (F32, F64, F32)))
    assert single[1:4] == ["resolve rare 90", "load cubin", "kernel rare_f32"]
    assert double[:3] == ["resolve rare__f64 90", "load cubin", "kernel rare_f64"]
    assert not [text for text in again if text.startswith(("resolve", "load", "kernel"))]


def test_a_launch_that_fails_names_operator_and_kernel(runtime: Runtime, fakes: Path) -> None:
    (lines,) = launches(runtime, fakes, f"5 0 {F32} 8 64 64 0")
    assert lines[-2:] == [
        "error op_broken: launch of broken_f32 failed: launch failure",
        "live 0",
    ]


def test_attributes_are_set_once_on_each_device(runtime: Runtime, fakes: Path) -> None:
    calls = [f"6 0 {F32} 8 64 64 {index}" for index in (0, 0, 1)]
    first, again, other = (
        [text for text in lines if text[:3] in ("set", "lau")] for lines in launches(runtime, fakes, *calls)
    )
    launch = "launch wide_f32 grid 1 1 1 block 128 1 shared 100000 stream {} attribute 4 16 1 params "
    assert first[:2] == ["set 8 100000 wide_f32 70", "set 14 1 wide_f32 70"]
    assert first[2].startswith(launch.format(500)) and len(again) == 1
    assert other[:2] == ["set 8 100000 wide_f32 71", "set 14 1 wide_f32 71"]
    assert other[2].startswith(launch.format(501))


def test_driver_structs_have_the_layout_of_the_headers() -> None:
    spec = importlib.util.find_spec("nvidia.cuda_runtime")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no CUDA headers here")
    include = Path(next(iter(spec.submodule_search_locations))) / "include"
    check = f"""
#include <cuda.h>
#include "{CSRC / "runtime" / "cuda_driver.h"}"
using namespace avo::cuda;
#define SAME(theirs, a, ours, b) static_assert(offsetof(theirs, a) == offsetof(ours, b))
static_assert(sizeof(CUlaunchConfig) == sizeof(LaunchConfig));
static_assert(sizeof(CUlaunchAttribute) == sizeof(LaunchAttribute));
SAME(CUlaunchConfig, gridDimX, LaunchConfig, grid_x);
SAME(CUlaunchConfig, blockDimX, LaunchConfig, block_x);
SAME(CUlaunchConfig, sharedMemBytes, LaunchConfig, shared_bytes);
SAME(CUlaunchConfig, hStream, LaunchConfig, stream);
SAME(CUlaunchConfig, attrs, LaunchConfig, attributes);
SAME(CUlaunchConfig, numAttrs, LaunchConfig, attribute_count);
SAME(CUlaunchAttribute, value, LaunchAttribute, value);
static_assert(int(CU_STREAM_CAPTURE_MODE_RELAXED) == int(kCaptureRelaxed));
static_assert(int(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == int(kClusterDimension));
static_assert(int(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == int(kMaxDynamicSharedSize));
static_assert(int(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) == int(kNonPortableClusterSize));
static_assert(int(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == int(kMultiprocessorCount));
static_assert(int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == int(kCapabilityMajor));
static_assert(int(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == int(kCapabilityMinor));
"""
    command = ["g++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", str(include), "-"]
    subprocess.run(command, input=check.encode(), check=True)


def test_the_library_leans_on_nothing_but_the_stable_abi(runtime: Runtime) -> None:
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", str(runtime.native.path)], check=True, capture_output=True, text=True
    ).stdout
    names = [text.split()[-1] for text in listing.splitlines()]
    foreign = [name for name in names if re.match("aoti_|torch_|_ZN?K?(2at|3c10|5torch)|cu[A-Z]", name)]
    assert foreign and all(name.startswith(("aoti_torch_", "torch_")) for name in foreign)
