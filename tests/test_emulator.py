"""The emulator: what it must find in kernels with planted faults, and that the catalogue's kernels have none of them.

The sanitizers end the process that they find a fault in, so what they watch runs in processes of their own.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from emulator_catalogue import EVERYTHING, PAIRS, chosen, families_of, others, pairs_of
from sanitized import run as run_sanitized

import avo_ops
from avo_ops import plan_file, testing
from avo_ops.generator import emulator
from avo_ops.registry import native_library
from avo_ops.registry.native import CudaTarget, NativeError

ROOT = Path(__file__).resolve().parent.parent
PLAN: dict[str, Any] = plan_file.load(ROOT / "generated")
# A formula is of the dtype of the math; what loads and stores float16 is that of the operators all of whose kernels run.
FORMULA_PAIRS = PAIRS if EVERYTHING else ("bf16,bf16", "f32,f32", "f64,f64", "bf16,f32")
ORDERS = ("ascending", "descending", "random")

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

# ---- kernels of our own ----

HEAD = '#include "device/avo.cuh"\nusing namespace avo;\n#line 1 "planted.cu"\n'
Launch = Callable[..., None]


def make_library(folder: Path, text: str, *kernels: str, sanitized: bool = False) -> Path:
    path = folder / "planted.so"
    path.write_bytes(
        emulator.compile_unit("planted", emulator.unit(HEAD + text, kernels), sanitized=sanitized)
    )
    return path


def launch(
    path: Path,
    kernel: str,
    *params: Any,
    blocks: int = 1,
    threads: int = 64,
    cluster: int = 1,
    shared: int = 0,
) -> None:
    native = native_library.runtime()
    assert native is not None
    values = [
        ctypes.c_void_p(p.data_ptr()) if isinstance(p, torch.Tensor) else ctypes.c_int(p) for p in params
    ]
    native.launch_emulated(path, kernel, (blocks, 1, 1), (threads, 1, 1), cluster, shared, values)


FAULTS = {
    "barriers apart": (
        "if (threadIdx.x < 5)\n  __syncthreads();\nelse\n  __syncthreads();\ny[threadIdx.x] = 1;",
        "planted.cu:5: divergent barrier: thread 5 waits here, but thread 0 at planted.cu:3",
    ),
    "a thread that returned before a barrier": (
        "if (threadIdx.x == 3) return;\n__syncthreads();\ny[threadIdx.x] = 1;",
        "planted.cu:3: divergent barrier: thread 0 waits, but thread 3 has returned",
    ),
    "a lane that returned": (
        "if (threadIdx.x == 39) return;\ny[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);",
        "planted.cu:3: absent lane: thread 32 waits for the lanes 0xffffffff, but thread 39 returned",
    ),
    "a lane that waits elsewhere": (
        "if (threadIdx.x % 32 < 16)\n  y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);\n__syncthreads();",
        "absent lane: thread 0 waits for the lanes 0xffffffff, but thread 16 waits at a barrier",
    ),
    "two shuffles in one warp": (
        "if (threadIdx.x % 2)\n  y[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 2);\nelse\n"
        "  y[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 2);",
        "planted.cu:3: divergent warp: thread 1 waits for the lanes 0xffffffff, but thread 0 for 0xffffffff "
        "at planted.cu:5",
    ),
    "a source outside of the mask": (
        "if (threadIdx.x % 32 < 8) y[threadIdx.x] = __shfl_xor_sync(0xffu, 1.0f, 8);",
        "planted.cu:2: absent lane: it reads lane 8, which the mask 0x000000ff is without",
    ),
    "a caller outside of the mask": (
        "y[threadIdx.x] = __any_sync(0xfffffffeu, true);",
        "planted.cu:2: absent lane: the mask 0xfffffffe is without the calling lane 0",
    ),
    "no barrier before the first access to another block": (
        "__shared__ float s[2];\nstore_in_cluster(&s[cluster_rank()], 1 - cluster_rank(), 3.0f);\n"
        "cluster_barrier();\ny[blockIdx.x] = s[1 - cluster_rank()];",
        "planted.cu:3: block 1 of the cluster may not have begun: no cluster barrier yet",
    ),
    "a block of the cluster that returned": (
        "__shared__ float s[2];\ncluster_barrier();\nif (cluster_rank() == 0) return;\n"
        "store_in_cluster(s, 0, 3.0f);\ny[blockIdx.x] = s[1];",
        "planted.cu:5: block 0 of the cluster has returned: its shared memory is gone",
    ),
    "deadlock": (
        "if (threadIdx.x == 1)\n  cluster_barrier();\nelse\n  __syncthreads();\ny[0] = 1;",
        "deadlock, no thread can go on; thread 0 of block (0, 0, 0) waits at planted.cu:5; "
        "thread 1 of block (0, 0, 0) waits at planted.cu:3",
    ),
    "a misaligned vector": (
        "const uint4 v = load_chunk((const uint4 *)(y + 1));\ny[threadIdx.x] = as_float(v.x);",
        "planted.cu:2: misaligned: 16 bytes are read at ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_thread_does_what_it_may_not(fault: str, tmp_path: Path) -> None:
    body, message = FAULTS[fault]
    path = make_library(tmp_path, f'extern "C" __global__ void planted(float *y) {{\n{body}\n}}\n', "planted")
    clustered = "cluster" in body
    with pytest.raises(NativeError) as error:
        launch(path, "planted", torch.zeros(64), blocks=2, cluster=2 if clustered else 1)
    assert str(error.value).startswith("avo emulator: kernel planted, block (")
    assert "thread (" in str(error.value) and message in str(error.value)


# Results that depend on the order of threads or on what memory held, and the same kernels put right.
RACES = {
    "a missing barrier": (
        """
        __shared__ float s[64];
        s[threadIdx.x] = float(threadIdx.x);
        BARRIER
        y[threadIdx.x] = s[63 - threadIdx.x];""",
        "__syncthreads();",
    ),
    "a missing barrier between warps' turns": (
        """
        __shared__ float s;
        if (threadIdx.x == 0) s = 1;
        __syncthreads();
        y[threadIdx.x] = s;
        BARRIER
        if (threadIdx.x == 32) s = 2;""",
        "__syncthreads();",
    ),
    "shared memory that is written again too early": (
        """
        __shared__ float s[64];
        for (int k = 0; k < 2; ++k) {
          s[threadIdx.x] = float(threadIdx.x + 100 * k);
          __syncthreads();
          y[threadIdx.x] += s[63 - threadIdx.x];
          __syncwarp();
          BARRIER
        }""",
        "__syncthreads();",
    ),
    "a warp that is taken to run in step": (
        """
        __shared__ float s[64];
        s[threadIdx.x] = float(threadIdx.x);
        BARRIER
        y[threadIdx.x] = s[threadIdx.x ^ 1];""",
        "__syncwarp();",
    ),
    "a missing cluster barrier": (
        """
        __shared__ float s[2];
        cluster_barrier();
        if (threadIdx.x < 2) store_in_cluster(&s[cluster_rank()], int(threadIdx.x), float(cluster_rank()) + 1);
        BARRIER
        if (threadIdx.x == 0) y[blockIdx.x] = s[0] + s[1];
        cluster_barrier();""",
        "cluster_barrier();",
    ),
    "shared memory that is read before it is written": (
        """
        __shared__ float s[64];
        BARRIER
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x];""",
        "s[threadIdx.x] = 0;",
    ),
    "dynamic shared memory that is read before it is written": (
        """
        AVO_DYNAMIC_SHARED(float, s);
        BARRIER
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x];""",
        "s[threadIdx.x] = 0;",
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_a_race_shows_between_orders_and_fills(race: str, tmp_path: Path) -> None:
    body, barrier = RACES[race]
    kernels = {"planted": body.replace("BARRIER", ""), "right": body.replace("BARRIER", barrier)}
    text = "".join(
        f'extern "C" __global__ void {name}(float *y) {{{textwrap.dedent(body)}\n}}\n'
        for name, body in kernels.items()
    )
    path = make_library(tmp_path, text, *kernels)
    clustered = 2 if "cluster" in race else 1
    different = {}
    for kernel in kernels:
        outcomes = set()
        for order in ORDERS:
            for fill in (0xFF, 0x5A):
                y = torch.zeros(64)
                with testing.emulate(order=order, fill=fill):
                    launch(path, kernel, y, blocks=clustered, cluster=clustered, shared=256)
                outcomes.add(y.numpy().tobytes())
        different[kernel] = len(outcomes)
    assert different["planted"] > 1 and different["right"] == 1


def test_values_of_shuffles_votes_and_indices(tmp_path: Path) -> None:
    text = """
    extern "C" __global__ void planted(float *y, int *z) {
      const int i = int(blockIdx.x * blockDim.x + threadIdx.x), lane = i % 32;
      float *own = y + i * 5;
      own[0] = __shfl_sync(~0u, float(lane), 3);
      own[1] = __shfl_up_sync(~0u, float(lane), 1u, 8);
      own[2] = __shfl_down_sync(~0u, float(lane), 2u, 16);
      own[3] = __shfl_xor_sync(~0u, float(lane), 5);
      own[4] = float(__shfl_sync(~0u, double(lane) + 0.5, lane + 1, 4));
      z[i * 4] = int(__ballot_sync(~0u, lane % 3 == 0));
      z[i * 4 + 1] = __any_sync(~0u, lane == 9) + 2 * __all_sync(~0u, lane == 9);
      z[i * 4 + 2] = __all_sync(~0u, true);
      z[i * 4 + 3] = int(gridDim.x);
    }
    """
    path = make_library(tmp_path, text, "planted")
    y, z = torch.zeros(128, 5), torch.zeros(128, 4, dtype=torch.int32)
    launch(path, "planted", y, z, blocks=2)
    lane = np.arange(128) % 32
    want = np.stack(
        [
            np.full(128, 3),
            np.where(lane % 8 > 0, lane - 1, lane),
            np.where(lane % 16 < 14, lane + 2, lane),
            lane ^ 5,
            lane // 4 * 4 + (lane + 1) % 4 + 0.5,
        ],
        axis=1,
    )
    assert np.array_equal(y.numpy(), want)
    ballot = np.uint32(sum(1 << i for i in range(0, 32, 3))).astype(np.int32)
    assert np.array_equal(z.numpy(), np.tile([ballot, 1, 1, 2], (128, 1)))


def test_conversions_have_the_bits_of_torch(tmp_path: Path) -> None:
    """Every half and bfloat16, and floats around every one of them; a NaN is the canonical one, as on a GPU."""
    text = """
    extern "C" __global__ void planted(const float *x, unsigned *packed, const unsigned *bits, float *wide, int n) {
      const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
      if (i >= n) return;
      packed[2 * i] = pack_half(x[i], -x[i]);
      packed[2 * i + 1] = pack_bfloat(x[i], -x[i]);
      wide[i] = half_to_float(uint16_t(bits[i]));
    }
    """
    path = make_library(tmp_path, text, "planted")
    halves = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    values = torch.cat([halves.view(torch.float16).float(), halves.view(torch.bfloat16).float()])
    between = values.view(torch.int32) + torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000])[:, None]
    x = between.to(torch.int32).reshape(-1).view(torch.float32)
    n = len(x)
    packed, wide = torch.zeros(n, 2, dtype=torch.int32), torch.zeros(n)
    bits = (torch.arange(n, dtype=torch.int32) % 65536).contiguous()
    launch(path, "planted", x, packed, bits, wide, n, blocks=-(-n // 64))
    for column, dtype in enumerate((torch.float16, torch.bfloat16)):
        for shift, given in ((0, x), (16, -x)):
            got = (packed[:, column] >> shift).to(torch.int16)
            want = given.to(dtype).view(torch.int16)
            want[given.isnan()] = 0x7FFF
            assert torch.equal(got, want)
    want_wide = halves.view(torch.float16).float().view(torch.int32)
    want_wide[want_wide.view(torch.float32).isnan()] = 0x7FFFFFFF
    assert torch.equal(wide.view(torch.int32)[:65536], want_wide)


# ---- the sanitizers ----


MEMORY_FAULTS = {
    "read beyond": ("y[threadIdx.x] = x[threadIdx.x + 1];", "AddressSanitizer: heap-buffer-overflow"),
    "read before": ("y[threadIdx.x] = x[int(threadIdx.x) - 1];", "AddressSanitizer: heap-buffer-overflow"),
    "write beyond": ("y[threadIdx.x + 1] = x[threadIdx.x];", "AddressSanitizer: heap-buffer-overflow"),
    "chunk beyond": ("y[threadIdx.x] = as_float(load_chunk((const uint4 *)(x + 64)).x);",
                     "AddressSanitizer: heap-buffer-overflow"),
    "dynamic shared memory": ("AVO_DYNAMIC_SHARED(float, s);\ny[threadIdx.x] = s[64] = 1;",
                              "AddressSanitizer: heap-buffer-overflow"),
    "static shared memory": ("__shared__ float s[64];\ny[threadIdx.x] = s[threadIdx.x + 1] = 1;",
                             "runtime error: index 64 out of bounds"),
    "a thread's own array": ("float own[4] = {};\nown[threadIdx.x] = y[threadIdx.x] = own[1];",
                           "runtime error: index 4 out of bounds"),
    "misaligned": ("*(uint4 *)(y + 1) = make_uint4(0, 0, 0, 0);", "runtime error: store to misaligned address"),
}  # fmt: skip


def symbol_of(fault: str) -> str:
    return re.sub(r"\W", "_", fault)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """(exit status, stderr) of each kernel; one process forks for them, since torch is slow to import there."""
    folder = tmp_path_factory.mktemp("sanitized")
    names = [symbol_of(name) for name in MEMORY_FAULTS]
    text = "".join(
        f'#line 1 "{kernel}.cu"\nextern "C" __global__ void {kernel}(const float *x, float *y) {{\n{body}\n}}\n'
        for kernel, (body, _) in zip(names, MEMORY_FAULTS.values(), strict=True)
    )
    path = make_library(folder, text, *names, sanitized=True)
    program = f"""
import os, torch, test_emulator as t
from avo_ops import testing
for kernel in {names}:
    child = os.fork()
    if child == 0:
        os.dup2(os.open({str(folder)!r} + "/" + kernel, os.O_CREAT | os.O_WRONLY), 2)
        with testing.emulate():
            t.launch(t.Path({str(path)!r}), kernel, torch.zeros(64), torch.zeros(64), shared=256)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = run_sanitized("-c", program)
    assert result.returncode == 0, result.stderr
    codes = map(int, result.stdout.split())
    return {
        name: (code, (folder / kernel).read_text())
        for name, kernel, code in zip(MEMORY_FAULTS, names, codes, strict=True)
    }


@pytest.mark.xdist_group("emulator")
@pytest.mark.parametrize("fault", MEMORY_FAULTS)
def test_the_sanitizers_see_a_fault(fault: str, reports: dict[str, tuple[int, str]]) -> None:
    code, report = reports[fault]
    kernel = symbol_of(fault)
    assert code != 0, "the fault was not seen"
    assert MEMORY_FAULTS[fault][1] in report and re.search(rf"\b{kernel}\.cu:[23]\b", report)
    assert f"avo emulator: kernel {kernel}, block (0, 0, 0), thread (" in report


def test_bytes_beyond_an_allocation_are_read_as_the_fill(tmp_path: Path) -> None:
    """A chunk may reach beyond the last element, as on a GPU, whose allocations end at chunks."""
    text = (
        'extern "C" __global__ void planted(const float *x, float *y) {\n'
        "  const uint4 v = load_chunk((const uint4 *)x);\n"
        "  if (threadIdx.x == 0) y[0] = as_float(v.y), y[1] = as_float(v.z);\n}\n"
    )
    path = make_library(tmp_path, text, "planted", sanitized=True)
    program = f"""
import torch, test_emulator as t
from avo_ops import testing
x, y = torch.ones(2), torch.zeros(2)
for fill in (0xFF, 0x5A):
    with testing.emulate(fill=fill):
        t.launch(t.Path({str(path)!r}), "planted", x, y)
    print(y[0].item(), hex(y.view(torch.int32)[1].item() & 0xFFFFFFFF))
"""
    result = run_sanitized("-c", program)
    assert result.stdout.split() == ["1.0", "0xffffffff", "1.0", "0x5a5a5a5a"], result.stderr


@pytest.fixture(scope="module")
def compiled() -> None:
    """Families under the sanitizers, several at once; the tests that follow find them in the cache."""
    result = run_sanitized("tests/emulator_catalogue.py", "--compile", timeout=1800)
    assert result.returncode == 0, result.stderr[-4000:]


# The long ones first and in parts, so that no worker waits for another at the end.
PARTS = [
    (name, *pairs[part::parts])
    for name in sorted(chosen(), key=families_of, reverse=True)
    for pairs in [[f"{pair.x},{pair.w}" for pair in pairs_of(name)]]
    for parts in [1 + families_of(name) // 15]
    for part in range(parts)
]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("part", PARTS, ids=" ".join)
def test_every_kernel_of_the_catalogue(part: tuple[str, ...]) -> None:
    result = run_sanitized("tests/emulator_catalogue.py", *part, timeout=1200)
    print(result.stdout)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.parametrize("part", range(4))
def test_formulas_of_the_others(part: int) -> None:
    result = run_sanitized(
        "tests/emulator_catalogue.py", "--formulas", f"{part}/4", *FORMULA_PAIRS, timeout=1200
    )
    print(result.stdout)
    assert result.returncode == 0, result.stderr[-4000:]
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == others(part, 4)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", chosen())
def test_fuzz_through_the_emulator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVO_OPS_FUZZ_EMULATED", "1")
    monkeypatch.setenv("AVO_OPS_FUZZ_DTYPES", ",".join(sorted({pair.x for pair in pairs_of(name)})))
    monkeypatch.setenv("AVO_OPS_FUZZ_CASES", os.environ.get("AVO_OPS_FUZZ_EMULATED_CASES", "500"))
    result = run_sanitized(
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        f"tests/test_fuzz.py::test_fuzz[{name}-emulated]",
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert "1 passed" in result.stdout, result.stdout


def test_rows_of_several_strides_run_where_they_lie() -> None:
    """The bits of contiguous ones, and no copy: for each class of kernels, at both sides of widths where these change."""
    result = run_sanitized("tests/strided_rows.py")
    print(result.stdout)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout.count(" s\n") > 10


# ---- through torch.ops.avo ----


def test_leaving_in_one_thread_leaves_the_emulation_of_another() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with testing.emulate(arch=90):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    x = torch.ones(3)
    with testing.emulate(arch=80):
        leave.set()
        thread.join()
        assert "emulated sm_80" in str(avo_ops.explain("gelu", x))
    assert "emulated" not in str(avo_ops.explain("gelu", x))


@pytest.mark.parametrize(
    "wrong", [{"arch": 5}, {"arch": "90"}, {"sms": 0}, {"seed": -1}, {"fill": 256}, {"order": "up"}]
)
def test_what_cannot_be_emulated(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))), testing.emulate(**wrong):
        pass


def test_operators_and_modules_run_by_cuda_kernels() -> None:
    torch.manual_seed(0)
    norm = avo_ops.nn.LayerNorm(40)
    x = torch.randn(5, 40, requires_grad=True)
    want = torch.nn.functional.layer_norm(x, [40], norm.weight, norm.bias)
    wanted = torch.autograd.grad(want.square().sum(), [x, norm.weight, norm.bias])
    avo_ops.reset_stats()
    with testing.emulate(arch=90, sms=4):
        y = norm(x)
        got = torch.autograd.grad(y.square().sum(), [x, norm.weight, norm.bias])
    paths = avo_ops.stats()
    assert paths and all(path.partition(" / ")[2].startswith("cuda/layer_norm_") for path in paths), paths
    torch.testing.assert_close(y, want)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
    avo_ops.reset_stats()
    norm(x)
    assert any("cpu/" in path for path in avo_ops.stats()), "outside of it the CPU kernels run"


def test_the_order_of_a_sum_rounds_little() -> None:
    """Equal numbers, a power of two of them, are added without rounding."""
    x = torch.zeros(2, 1024)
    for order in ORDERS:
        with testing.emulate(order=order):
            loss = torch.ops.avo.binary_cross_entropy_with_logits_rows(x, x)
            assert torch.equal(loss.flatten(), 1024 * x[:, 0].exp().log1p())


@pytest.mark.parametrize("m", [1, 5])
def test_a_gradient_that_is_one_number_is_not_copied(m: int) -> None:
    x, target = torch.randn(m, 40, requires_grad=True), torch.arange(m).unsqueeze(1)
    with testing.emulate():
        losses = torch.ops.avo.cross_entropy_rows(x, target)
        (whole,) = torch.autograd.grad(losses, x, torch.full((m, 1), 0.25), retain_graph=True)
        avo_ops.reset_stats()
        (of_mean,) = torch.autograd.grad(losses.sum() * 0.25, x)
        assert not any(r.copies for r in avo_ops.stats().by_op().values())
    assert torch.equal(whole, of_mean) and whole.abs().max() > 0.1


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy_rows"])
def test_a_sum_that_follows_the_maximum_in_one_pass(name: str) -> None:
    """Rows too wide for registers: what was added up before the maximum grew is scaled, also from or to an infinite one."""
    n, inf = 70_001, float("inf")
    up = torch.linspace(-60, 60, n)
    rows = [up, up.flip(0), torch.randn(n), torch.full((n,), 1000.1), torch.full((n,), -inf)]
    late, large, nan = torch.full((n,), -inf), torch.randn(n), torch.randn(n)
    late[-5:], large[7], nan[n // 2] = torch.arange(5.0), inf, float("nan")
    x = torch.stack([*rows, late, large, nan])
    target = torch.tensor([0, n - 1, 5, 5, 5, n - 1, 5, 5]).unsqueeze(1)
    op = getattr(torch.ops.avo, name)
    call = (lambda x: op(x, target)) if name == "cross_entropy_rows" else (lambda x: op(x, -1))
    twin = {
        "cross_entropy_rows": lambda x: F.cross_entropy(x, target.squeeze(1), reduction="none").unsqueeze(1)
    }
    want = twin.get(name, lambda x: getattr(F, name)(x, -1))(x.double())
    for order in ORDERS:
        avo_ops.reset_stats()
        with testing.emulate(order=order):
            got = call(x)
        assert any("_loop" in path for path in avo_ops.stats())
        torch.testing.assert_close(got.double(), want, rtol=3e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [64, 77, 1030, 70_004])
def test_maxima_of_pairs(n: int, dtype: torch.dtype) -> None:
    """Of 16-bit rows two elements are compared at a time: wherever the largest is, in a whole vector or one cut short."""
    inf, nan = float("inf"), float("nan")
    x = torch.randn(24, n, generator=torch.Generator().manual_seed(0)).to(dtype)
    places = [0, 1, 6, 7, 8, n // 2, n - 2, n - 1]
    for i, place in enumerate(places):
        x[i, place], x[8 + i, place] = 60.0, nan
    x[16], x[17], x[18, 3], x[19] = -inf, -7.5, inf, -inf
    x[19, n - 1] = 2.0
    with testing.emulate():
        got = torch.ops.avo.softmax(x, -1)
    want = torch.softmax(x.double(), -1)
    assert (got[range(8), places] > 0.99).all() and got[8:17].isnan().all() and got[19, n - 1] == 1.0
    torch.testing.assert_close(got.double(), want, rtol=4.1e-3, atol=6e-8, equal_nan=True)


def test_what_runs_is_the_plan_of_the_target() -> None:
    native = native_library.runtime()
    assert native is not None
    x = torch.randn(3, 64)
    for arch in (80, 90):
        planned = native.describe("avo::softmax", x, -1, target=CudaTarget(arch, 7))
        symbols = {line.split()[2] for line in planned if line.startswith("step ")}
        avo_ops.reset_stats()
        with testing.emulate(arch=arch, sms=7):
            torch.ops.avo.softmax(x, -1)
        assert {path.partition(" / cuda/")[2] for path in avo_ops.stats()} == symbols


def test_emulation_nests_and_ends_with_an_exception() -> None:
    x = torch.randn(3, 64)

    def path() -> str:
        avo_ops.reset_stats()
        torch.ops.avo.silu(x)
        (found,) = avo_ops.stats()
        return found.partition(" / ")[2]

    with testing.emulate():
        with pytest.raises(KeyError), testing.emulate(arch=80):
            raise KeyError
        assert path().startswith("cuda/")
    assert path().startswith("cpu/")


@pytest.mark.parametrize("wrong", [{"arch": 0}, {"sms": -1}, {"order": "sideways"}, {"fill": 256}])
def test_emulate_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="emulate"), testing.emulate(**wrong):
        pass


def test_the_environment_variable() -> None:
    program = "import torch, avo_ops; torch.ops.avo.silu(torch.ones(8)); print(*avo_ops.stats())"
    for value, path in (("1", "cuda/silu_forward"), ("0", "cpu/"), ("", "cpu/")):
        result = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "AVO_OPS_EMULATE": value, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert f"/ {path}" in result.stdout


def test_without_a_compiler_emulation_fails(tmp_path: Path) -> None:
    program = (
        "import torch, avo_ops\nfrom avo_ops import testing\n"
        "with testing.emulate(): torch.ops.avo.silu(torch.ones(8))"
    )
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "CXX": "no-such-compiler", "AVO_OPS_CACHE": str(tmp_path),
    }  # fmt: skip
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode != 0 and "there is no library of silu_forward" in result.stderr
    assert "install g++ or set CXX" in result.stderr
