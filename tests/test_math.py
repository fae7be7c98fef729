"""The elementary functions, conversions and row access of the CPU kernels, and the device math's host twin.

The driver tests/native/math_driver.cpp is built with g++ for the three instruction sets and for the twin.
Errors are measured in ulp against a wider type (float against double, double against long double). The twin
computes ex2, rcp and rsqrt exactly rounded: on a GPU the documented errors of those instructions (2, 1 and 2
ulp) come on top. MATH_STRIDE=1 makes the sweeps over floats exhaustive (hours); the default takes each 1009th
and finds the worst cases to about 0.1 ulp.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "avo_ops" / "csrc"
NATIVE = ROOT / "tests" / "native"
ISAS = ("base", "v3", "v4")
ACCURACIES = ("Fine", "Coarse", "Rough")  # of the device functions
IMPLEMENTATIONS = (*ISAS, *ACCURACIES)
FLAGS = ["-std=c++20", "-O3", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
STRIDE = int(os.environ.get("MATH_STRIDE", "1009"))
F32, F16, BF16, F64 = 0, 1, 2, 3

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.xdist_group("math"),  # the driver takes half a minute to compile
    # NaN goes through casts and products on purpose.
    pytest.mark.filterwarnings("ignore:invalid value encountered"),
]


def table_type(real: type) -> type[ctypes.Structure]:
    """The C struct MathTable<real>."""
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64

    class Table(ctypes.Structure):
        _fields_ = [
            ("unary", ctypes.CFUNCTYPE(None, number, pointer, pointer, size)),
            ("scalar", ctypes.CFUNCTYPE(real, number, real)),
            ("ternary", ctypes.CFUNCTYPE(None, number, pointer, pointer, pointer, pointer, size)),
            ("scalar_ternary", ctypes.CFUNCTYPE(real, number, real, real, real)),
            ("reduce", ctypes.CFUNCTYPE(real, number, real, pointer, size)),
        ]

    return Table


COPY_ROWS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_void_p)
COPY_STATS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 2)


class Implementation(ctypes.Structure):
    _fields_ = [
        ("f32", table_type(ctypes.c_float)),
        ("f64", table_type(ctypes.c_double)),
        ("copy_rows", COPY_ROWS * 2),
        ("copy_stats", COPY_STATS * 2),
    ]

    def table(self, dtype: np.dtype) -> ctypes.Structure:
        return self.f32 if dtype == np.float32 else self.f64


class Errors(ctypes.Structure):
    _fields_ = [
        ("normal", ctypes.c_double),
        ("denormal", ctypes.c_double),
        ("normal_at", ctypes.c_double),
        ("denormal_at", ctypes.c_double),
        ("scalar_differs", ctypes.c_int64),
        ("count", ctypes.c_int64),
    ]


class Operand(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("panelled", ctypes.c_int32),
        ("col_stride", ctypes.c_int64),
        ("run", ctypes.c_int64),
        ("run_stride", ctypes.c_int64),
        ("row_strides", ctypes.c_int64 * 8),
    ]


class CpuArgs(ctypes.Structure):
    _fields_ = [
        ("operands", ctypes.POINTER(Operand)),
        ("scalars", ctypes.c_void_p),
        ("M", ctypes.c_int64),
        ("N", ctypes.c_int64),
        ("row_dims", ctypes.c_int32),
        ("panel_rows", ctypes.c_int32),
        ("row_sizes", ctypes.c_int64 * 8),
        ("run", ctypes.c_int64),
        ("runs", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("sum_columns", ctypes.c_int64),
        ("partials", ctypes.c_void_p),
    ]


@dataclass(frozen=True)
class Driver:
    """The built library, its objects, and the implementations that this machine can run."""

    library: ctypes.CDLL
    objects: dict[str, Path]
    implementations: dict[str, Implementation]

    def cpu(self) -> Iterator[tuple[str, Implementation]]:
        return ((name, made) for name, made in self.implementations.items() if name in ISAS)

    def function(self, name: str) -> int:
        number = self.library.math_function(name.encode())
        assert number >= 0, name
        return number


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    folder = tmp_path_factory.mktemp("math_driver")
    march = {"base": "x86-64", "v3": "x86-64-v3", "v4": "x86-64-v4"}
    options = {isa: [f"-DAVO_ISA_NAMESPACE=avo_{isa}", f"-march={march[isa]}"] for isa in ISAS}
    options |= {name: ["-DAVO_EMULATOR", f"-DMATH_ACCURACY={name}"] for name in ACCURACIES} | {"sweeps": []}
    objects = {name: folder / f"{name}.o" for name in options}

    def build(name: str) -> subprocess.CompletedProcess[str]:
        command = [
            "g++",
            *FLAGS,
            *options[name],
            "-c",
            str(NATIVE / "math_driver.cpp"),
            "-o",
            str(objects[name]),
        ]
        return subprocess.run(command, capture_output=True, text=True)

    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(build, options):
            assert result.returncode == 0, result.stderr[-4000:]
    path = folder / "libmath_driver.so"
    subprocess.run(["g++", "-shared", "-o", str(path), *map(str, objects.values()), "-lm"], check=True)
    library = ctypes.CDLL(str(path))
    library.math_implementation.restype = ctypes.POINTER(Implementation)
    library.math_sweep_f32.argtypes = [ctypes.c_int, *[ctypes.c_uint64] * 3, ctypes.c_void_p]
    library.math_sweep_f64.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_uint64, ctypes.c_void_p]
    found = {name: library.math_implementation(i) for i, name in enumerate(IMPLEMENTATIONS)}
    return Driver(library, objects, {name: made.contents for name, made in found.items() if made})


def evaluate(driver: Driver, implementation: Implementation, name: str, x: np.ndarray) -> np.ndarray:
    y = np.full_like(x, 77)
    implementation.table(x.dtype).unary(driver.function(name), x.ctypes.data, y.ctypes.data, x.size)
    return y


# ---- errors --------------------------------------------------------------------------------------

# Largest error in ulp: (fma machines, baseline, twin of the device). Flushed functions of the twin give zero below
# FLT_MIN.
BOUNDS_F32 = {
    "neg": (0, 0, 0),
    "abs": (0, 0, 0),
    "sign": (0, 0, 0),
    "floor": (0, 0, 0),
    "round": (0, 0, 0),
    "sqrt": (0.5, 0.5, 0.5),
    "recip": (0.5, 0.5, 0.5),
    "rsqrt": (1.5, 1.5, 1.1),
    "exp": (1.1, 1.1, 1.1),
    "expm1": (1.8, 1.8, 1.0),
    "log": (0.9, 0.9, 1.0),
    "log1p": (1.5, 1.5, 1.0),
    "sigmoid": (2.4, 2.4, 3.1),
    "sigmoid_rest": (2.4, 2.4, 3.1),
    "tanh": (1.7, 1.7, 1.7),
    "erf": (1.4, 1.5, 1.0),
    "exp_neg_sq": (1.3, 2.2, 1.1),
    "erfc": (7.2, 8.0, 7.2),
    "sin": (1.0, 1.0, 1.0),
    "cos": (1.0, 1.0, 1.0),
    "trunc": (0, 0, 0),
    "exp2": (1.0, 1.0, 1.0),
    "tan": (1.5, 1.5, 1.5),
    "asin": (1.0, 1.0, 1.0),
    "acos": (1.0, 1.0, 1.0),
    "atan": (1.0, 1.0, 1.0),
    "sinh": (2.0, 2.0, 2.0),
    "cosh": (2.0, 2.0, 2.0),
    "asinh": (2.0, 2.0, 2.0),
    "acosh": (2.0, 2.0, 2.0),
    "atanh": (2.0, 2.0, 2.0),
    "lgamma": (8.0, 8.0, 8.0),
    "exp_neg_half_sq": (1.3, 2.2, 1.1),
    "ndtr": (4.7, 5.0, 5.8),
    "x_ndtr": (6.7, 8.5, 6.7),  # the tail is denormal before the product is
}
# And where results have 16 bits, relative to the value (Coarse, Rough), over all of float: it grows with the exponent.
BOUNDS_RELATIVE = {
    "exp": (4.5e-6, 4.5e-6),
    "sigmoid": (4.5e-6, 4.5e-6),
    "exp_neg_sq": (7.5e-6, 7.5e-6),
    "erfc": (8e-6, 8e-6),
    "exp_neg_half_sq": (7.5e-6, 7.5e-6),
    "ndtr": (8e-6, 4.2e-5),
    "x_ndtr": (8e-6, 4.2e-5),
}
# Where a float16 does not vanish, and where eager's bfloat16 does not. 0.01 ulp is 4.9e-6 and 3.9e-5 or more.
BOUNDS_USUAL = {"exp": 17.0, "sigmoid": 17.0, "exp_neg_sq": 4.1, "erfc": 4.0, "ndtr": 5.4, "x_ndtr": 5.4}
FLUSHED = {"sigmoid", "sigmoid_rest", "exp_neg_sq", "erfc", "exp_neg_half_sq", "ndtr", "x_ndtr"}
FLUSHED_COARSE = {"sigmoid", "sigmoid_rest"}  # only where results have 16 bits
BOUNDS_F64 = {
    "neg": 0,
    "abs": 0,
    "sign": 0,
    "floor": 0,
    "round": 0,
    "sqrt": 0.51,
    "recip": 0.51,
    "rsqrt": 1.5,
    "exp": 1.1,
    "expm1": 1.7,
    "log": 1.0,
    "log1p": 1.0,
    "sigmoid": 2.4,
    "sigmoid_rest": 2.5,
    "tanh": 2.0,
    "erf": 1.0,
    "exp_neg_sq": 1.4,
    "erfc": 5.0,
    "sin": 1.0,
    "cos": 1.0,
    "trunc": 0,
    "exp2": 1.0,
    "tan": 1.5,
    "asin": 1.0,
    "acos": 1.0,
    "atan": 1.0,
    "sinh": 2.0,
    "cosh": 2.0,
    "asinh": 2.0,
    "acosh": 2.0,
    "atanh": 2.0,
    "lgamma": 8.0,
    "exp_neg_half_sq": 1.4,
    "ndtr": 5.0,
    "x_ndtr": 5.0,
}


@pytest.mark.parametrize("name", BOUNDS_F32)
def test_float_errors(driver: Driver, name: str) -> None:
    count = 2**32 // STRIDE
    found = [(Errors * len(IMPLEMENTATIONS))(), (Errors * len(IMPLEMENTATIONS))()]

    def sweep(half: int) -> None:
        first = half * (count // 2) * STRIDE
        driver.library.math_sweep_f32(driver.function(name), first, STRIDE, count // 2, found[half])

    with ThreadPoolExecutor(2) as pool:  # ctypes lets go of the interpreter lock
        list(pool.map(sweep, range(2)))
    fma, base, device = BOUNDS_F32[name]
    coarse, rough = (2.0**24 * b for b in BOUNDS_RELATIVE.get(name, (device / 2.0**24,) * 2))
    for i, implementation in enumerate(IMPLEMENTATIONS):
        if implementation not in driver.implementations:
            continue
        limit = {"base": base, "Fine": device, "Coarse": coarse, "Rough": rough}.get(implementation, fma)
        flushed = implementation in ACCURACIES and name in (
            FLUSHED - FLUSHED_COARSE if implementation == "Fine" else FLUSHED
        )
        # Below FLT_MIN a flushed result is off by at most FLT_MIN, which is 2^23 units there.
        tiny = 2.0**23 if flushed else max(limit, 0.5) + 1
        for errors in (found[0][i], found[1][i]):
            assert errors.count == count // 2
            assert errors.normal <= limit, (name, implementation, errors.normal, errors.normal_at)
            assert errors.denormal <= tiny, (name, implementation, errors.denormal, errors.denormal_at)
            assert errors.scalar_differs == 0, (name, implementation)


@pytest.mark.parametrize("name", BOUNDS_F64)
def test_double_errors(driver: Driver, name: str) -> None:
    found = (Errors * len(IMPLEMENTATIONS))()
    limit = {"exp": 750.0, "expm1": 750.0, "log": 10.0, "x_ndtr": 37.0}.get(name, 40.0)
    driver.library.math_sweep_f64(driver.function(name), limit, 200_000, found)
    for i, implementation in enumerate(IMPLEMENTATIONS):
        if implementation in driver.implementations:
            errors = found[i]
            assert errors.count == 200_000
            assert errors.normal <= BOUNDS_F64[name], (name, implementation, errors.normal, errors.normal_at)
            denormal = 40 if name == "x_ndtr" else 2  # the tail has lost bits by then, and is multiplied
            assert errors.denormal <= denormal, (name, implementation, errors.denormal, errors.denormal_at)
            assert errors.scalar_differs == 0, (name, implementation)


@pytest.mark.parametrize("name", BOUNDS_USUAL)
def test_errors_where_results_have_16_bits(driver: Driver, name: str) -> None:
    x = np.linspace(-BOUNDS_USUAL[name], BOUNDS_USUAL[name], 100_001)
    exact = {
        "exp": np.exp,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "exp_neg_sq": lambda x: np.exp(-x * x),
        "erfc": np.vectorize(math.erfc),
        "ndtr": lambda x: np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2,
        "x_ndtr": lambda x: x * (np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2),
    }[name]
    x = x.astype(np.float32)
    want = exact(x.astype(np.float64))
    for accuracy, most in (("Coarse", 3.5e-6), ("Rough", 3.6e-5)):
        y = evaluate(driver, driver.implementations[accuracy], name, x)
        error = np.abs(y - want) / np.where(want == 0, 1, np.abs(want))
        assert error.max() <= most, (accuracy, error.max(), x[error.argmax()])


@pytest.mark.parametrize("dtype, end, most", [(np.float32, 87.0, 2.7), (np.float64, 700.0, 2.9)])
def test_errors_of_x_sigmoid(driver: Driver, dtype: type, end: float, most: float) -> None:
    """Where the exponential is normal; beyond, so few bits are left as it has."""
    x = np.linspace(-end, end, 200_001).astype(dtype)
    wide = x.astype(np.longdouble)
    want = wide * np.exp(np.minimum(wide, 0)) / (1 + np.exp(-np.abs(wide)))
    units = np.spacing(np.abs(want).astype(dtype))
    for name, implementation in driver.implementations.items():
        y = evaluate(driver, implementation, "x_sigmoid", x)
        error = np.abs(y - want)
        if name in ("Coarse", "Rough") and dtype == np.float32:
            assert (error <= np.abs(want) * 2.0**-17).all(), name
        else:
            limit = 3.3 if name == "Fine" and dtype == np.float32 else most
            assert (error <= limit * units).all(), (name, (error / units).max())


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [
        (-INF, 0.0),
        (INF, INF),
        (0.0, 1.0),
        (-0.0, 1.0),
        (1e30, INF),
        (-1e30, 0.0),
        (-3.4e38, 0.0),
        (3.4e38, INF),
    ],
    "expm1": [(-INF, -1.0), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (-1e30, -1.0), (1e30, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (1.0, 0.0), (-1.0, NAN), (-INF, NAN), (-1e-45, NAN)],
    "log1p": [(-1.0, -INF), (INF, INF), (0.0, 0.0), (-0.0, -0.0), (-1.5, NAN), (-INF, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)],
    "recip": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0)],
    "sigmoid": [(-INF, 0.0), (INF, 1.0), (0.0, 0.5), (1e30, 1.0), (-1e30, 0.0), (-3.4e38, 0.0)],
    "sigmoid_rest": [(-INF, 1.0), (INF, 0.0), (0.0, 0.5), (1e30, 0.0), (-1e30, 1.0), (3.4e38, 0.0)],
    "tanh": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (1e30, 1.0), (-1e30, -1.0)],
    "erf": [(-INF, -1.0), (INF, 1.0), (0.0, 0.0), (-0.0, -0.0), (30.0, 1.0)],
    "erfc": [(-INF, 2.0), (INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (1e30, 0.0), (-1e30, 2.0)],
    "exp_neg_sq": [(-INF, 0.0), (INF, 0.0), (0.0, 1.0), (1e30, 0.0), (-3.4e38, 0.0)],
    "exp_neg_half_sq": [(-INF, 0.0), (INF, 0.0), (0.0, 1.0), (1e30, 0.0), (-3.4e38, 0.0)],
    "ndtr": [(-INF, 0.0), (INF, 1.0), (1e30, 1.0), (-1e30, 0.0), (-3.4e38, 0.0)],
    "x_ndtr": [
        (-INF, -0.0),
        (INF, INF),
        (0.0, 0.0),
        (-0.0, -0.0),
        (1e30, 1e30),
        (-1e30, -0.0),
        (3.4e38, 3.4e38),
    ],
    "floor": [
        (-0.5, -1.0),
        (-0.0, -0.0),
        (0.5, 0.0),
        (-INF, -INF),
        (INF, INF),
        (-1e30, -1e30),
        (8388607.5, 8388607.0),
    ],
    "round": [
        (-0.5, -0.0),
        (-0.0, -0.0),
        (0.5, 0.0),
        (1.5, 2.0),
        (-2.5, -2.0),
        (-INF, -INF),
        (INF, INF),
        (-1e30, -1e30),
        (8388606.5, 8388606.0),
    ],
    "sign": [(-0.5, -1.0), (0.0, 0.0), (-0.0, 0.0), (INF, 1.0), (-INF, -1.0)],
    "abs": [(-0.0, 0.0), (-INF, INF)],
    "neg": [(0.0, -0.0), (INF, -INF)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)],
    "cos": [(0.0, 1.0), (INF, NAN)],
    "trunc": [(-0.5, -0.0), (0.5, 0.0), (1.9, 1.0), (-1.9, -1.0), (-INF, -INF), (-1e30, -1e30)],
    "exp2": [(-INF, 0.0), (INF, INF), (0.0, 1.0), (10.0, 1024.0), (1e30, INF), (-1e30, 0.0)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0)],
    "sinh": [(-INF, -INF), (INF, INF), (-0.0, -0.0), (1e30, INF)],
    "cosh": [(-INF, INF), (INF, INF), (0.0, 1.0), (-1e30, INF)],
    "asinh": [(-INF, -INF), (INF, INF), (-0.0, -0.0)],
    "acosh": [(1.0, 0.0), (INF, INF), (0.5, NAN), (-INF, NAN)],
    "atanh": [(1.0, INF), (-1.0, -INF), (-0.0, -0.0), (1.5, NAN)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(driver: Driver, name: str, dtype: type) -> None:
    with np.errstate(over="ignore"):
        x = np.array([pair[0] for pair in SPECIAL[name]] + [NAN], dtype=dtype)
        want = np.array([pair[1] for pair in SPECIAL[name]] + [0.0 if name == "sign" else NAN], dtype=dtype)
    if name == "log" and dtype == np.float64:
        x[-2] = -5e-324
    for implementation, made in driver.implementations.items():
        y = evaluate(driver, made, name, x)
        close = np.isclose(y, want, rtol=4e-5, atol=0) if implementation in ("Coarse", "Rough") else y == want
        same = close & ((np.signbit(y) == np.signbit(want)) | (name == "sign")) | (
            np.isnan(y) & np.isnan(want)
        )
        assert same.all(), (implementation, list(zip(x, y, want, strict=True)))


TERNARY = ["pow", "max", "min", "fma", "lt", "le", "gt", "ge", "eq", "ne", "fmod", "atan2", "hypot"]

BY_NUMPY = {
    "pow": np.power, "max": np.maximum, "min": np.minimum, "fmod": np.fmod, "atan2": np.arctan2, "hypot": np.hypot,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TERNARY)
def test_two_and_three_arguments(driver: Driver, name: str, dtype: type) -> None:
    edge = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -INF, INF, NAN, 1e-40, 3e38, 7.0])
    grid = np.stack(np.meshgrid(edge, edge, np.array([2.0, -3.0]))).reshape(3, -1).astype(dtype)
    noise = np.random.default_rng(0).standard_normal((3, 1001)).astype(dtype)
    a, b, c = (np.ascontiguousarray(row) for row in np.concatenate([grid, noise], axis=1))
    with np.errstate(all="ignore"):
        if name == "fma":
            wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
            want = wide.astype(dtype)
        elif name in BY_NUMPY:
            call = BY_NUMPY[name]
            want = call(a.astype(np.float64), b.astype(np.float64)).astype(dtype)
        else:
            holds = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[name]
            want = np.where(holds, c, -c)
    slack = {"pow": 2.0, "fma": 1.0, "atan2": 1.0, "hypot": 1.0}.get(name, 0.0) * np.finfo(dtype).eps
    for implementation, made in driver.implementations.items():
        table = made.table(a.dtype)
        y = np.full_like(a, 77)
        table.ternary(TERNARY.index(name), a.ctypes.data, b.ctypes.data, c.ctypes.data, y.ctypes.data, a.size)
        with np.errstate(all="ignore"):
            scale = np.abs(want)
            if name == "fma":
                scale = np.maximum(scale, np.abs(a * b))  # the baseline rounds the product
            close = (y == want) | (np.abs(y - want) <= slack * scale) | (np.isnan(y) & np.isnan(want))
        if name == "fma" and implementation == "base":  # the rounded product may overflow
            close |= np.abs(a.astype(np.longdouble) * b) > np.finfo(dtype).max
        assert close.all(), (implementation, a[~close][:4], b[~close][:4], y[~close][:4], want[~close][:4])
        for i in range(0, a.size, 7):
            one = table.scalar_ternary(TERNARY.index(name), a[i], b[i], c[i])
            assert one == y[i] or (np.isnan(one) and np.isnan(y[i])), (implementation, name, a[i], b[i], c[i])


# ---- reductions ----------------------------------------------------------------------------------


def tree_sum(x: np.ndarray, start: float) -> float:
    """16 running sums, then lane i with i + 8, + 4, + 2, + 1: the documented order, in the dtype of x."""
    lanes = np.full(16, start, x.dtype)
    for c in range(0, x.size, 16):
        part = x[c : c + 16]
        lanes[: part.size] += part
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    return float(lanes[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions(driver: Driver, dtype: type) -> None:
    rng = np.random.default_rng(1)
    for n in [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 100, 1000]:
        guarded = rng.standard_normal(n + 16).astype(dtype)
        guarded[n:] = NAN  # beyond the row: must not be read into a result
        x = guarded[:n]
        for name, made in driver.cpu():
            reduce = made.table(x.dtype).reduce
            assert reduce(0, 0.0, x.ctypes.data, n) == tree_sum(x, 0.0), (name, n)
            assert reduce(1, -INF, x.ctypes.data, n) == x.max(), (name, n)
            assert reduce(2, INF, x.ctypes.data, n) == x.min(), (name, n)
            # Lanes past the end are skipped: an empty sum of -0 stays -0, and a NaN anywhere wins.
            assert math.copysign(1.0, reduce(0, -0.0, np.full(n, -0.0, dtype).ctypes.data, n)) == -1.0
            bad = x.copy()
            bad[rng.integers(n)] = NAN
            assert all(math.isnan(reduce(f, 0.0, bad.ctypes.data, n)) for f in range(3)), (name, n)


# ---- rows ----------------------------------------------------------------------------------------


def bf16_of(x: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16: to nearest, ties to even; NaN stays NaN."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def decode(raw: np.ndarray, dtype: int) -> np.ndarray:
    """The values of an array that holds `dtype` (bfloat16 as uint16), in double."""
    if dtype == BF16:
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.astype(np.float64)


def encode(values: np.ndarray, dtype: int) -> np.ndarray:
    """Double to `dtype`; the 16-bit types by way of float, as the kernels do."""
    with np.errstate(over="ignore"):
        if dtype == F64:
            return values.astype(np.float64)
        single = values.astype(np.float32)
        if dtype == F16:
            return single.astype(np.float16)
        return bf16_of(single) if dtype == BF16 else single


def operand(
    array: np.ndarray, dtype: int, row_strides: list[int], col_stride: int, offset: int = 0
) -> Operand:
    data = array.ctypes.data + offset * array.itemsize
    return Operand(data, dtype, 0, col_stride, 0, 0, (ctypes.c_int64 * 8)(*row_strides))


def arguments(operands: list[Operand], row_sizes: list[int], n: int) -> CpuArgs:
    listed = (Operand * len(operands))(*operands)
    sizes = (ctypes.c_int64 * 8)(*row_sizes)
    return CpuArgs(listed, None, math.prod(row_sizes), n, len(row_sizes), 0, sizes, 0, 0, 0, n, None)


def copy(made: Implementation, double: bool, args: CpuArgs, n: int, c0: int = 0) -> None:
    scratch = np.zeros(2 * (n + 64) * 8 + 64, np.uint8)
    aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
    made.copy_rows[double](ctypes.addressof(args), 0, args.M, c0, n, aligned)


def same_values(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN."""
    if got.dtype == np.uint16:
        nan = (got & 0x7FFF > 0x7F80) & (want & 0x7FFF > 0x7F80)
        return (got == want) | nan
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.itemsize]
    return (got.view(unsigned) == want.view(unsigned)) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_half_is_read_and_written_exactly(driver: Driver, dtype: int, double: bool) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    raw = bits.view(np.float16) if dtype == F16 else bits
    want = decode(raw, dtype).astype(np.float64 if double else np.float32)
    for name, made in driver.cpu():
        wide = np.zeros_like(want)
        code = F64 if double else F32
        read, write = operand(raw, dtype, [0], 1), operand(wide, code, [0], 1)
        copy(made, double, arguments([read, write], [1], 65536), 65536)
        assert same_values(wide, want).all(), name
        back = np.zeros_like(raw)
        read, write = operand(wide, code, [0], 1), operand(back, dtype, [0], 1)
        copy(made, double, arguments([read, write], [1], 65536), 65536)
        assert same_values(back, raw).all(), name


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_rounding_to_half(driver: Driver, dtype: int, double: bool) -> None:
    """Each halfway point between neighbours, the floats beside it, and floats of every size."""
    bits = np.arange(65536, dtype=np.uint16)
    values = decode(bits.view(np.float16) if dtype == F16 else bits, dtype)
    finite = np.sort(values[np.isfinite(values)])
    half = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    top = np.float32(65520.0) if dtype == F16 else np.array([0x7F7F8000], np.uint32).view(np.float32)[0]
    edges = np.array([top, -top, np.nextafter(top, np.float32(0)), INF, -INF, NAN], np.float32)
    spread = (np.arange(200_000, dtype=np.uint64) * 21474).astype(np.uint32).view(np.float32)
    beside = [np.nextafter(half, np.float32(d)) for d in (-INF, INF)]
    x = np.concatenate([half, *beside, edges, spread]).astype(np.float64 if double else np.float32)
    want = encode(x.astype(np.float64), dtype)
    for name, made in driver.cpu():
        got = np.zeros_like(want)
        operands = [operand(x, F64 if double else F32, [0], 1), operand(got, dtype, [0], 1)]
        copy(made, double, arguments(operands, [1], x.size), x.size)
        wrong = ~same_values(got, want)
        assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5], want[wrong][:5])


NUMPY = {F32: np.float32, F16: np.float16, BF16: np.uint16, F64: np.float64}


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("source", [F32, F16, BF16, F64])
@pytest.mark.parametrize("target", [F32, F16, BF16, F64])
def test_rows_of_any_layout(driver: Driver, source: int, target: int, double: bool) -> None:
    """Three row dimensions with permuted, gapped and zero strides; columns strided; a part of the columns."""
    rng = np.random.default_rng(2)
    sizes, n = [2, 3, 4], 37
    rows = [(i, j, k) for i in range(2) for j in range(3) for k in range(4)]
    store = encode(rng.standard_normal(20_000) * 100, source)
    inputs = [
        ([12 * 50, 4 * 50, 50], 1),
        ([41, 0, 2000], 3),
        ([900, 300, 75], 2),
        ([1, 2, 6], 24),
        ([5000, 900, 200], 0),
    ]
    outputs = [([12 * 37, 4 * 37, 37], 1), ([1, 2, 6], 24), ([9000, 3000, 700], 5)]
    for in_strides, in_col in inputs:
        for out_strides, out_col in outputs:
            for c0, width in [(0, n), (5, 16), (36, 1)]:
                for name, made in driver.cpu():
                    result = encode(np.full(20_000, 7.0), target)
                    want = result.copy()
                    for i, j, k in rows:
                        first = int(np.dot((i, j, k), in_strides))
                        at = first + in_col * np.arange(c0, c0 + width)
                        values = decode(store[at], source)
                        values = values if double else values.astype(np.float32).astype(np.float64)
                        to = int(np.dot((i, j, k), out_strides)) + out_col * np.arange(c0, c0 + width)
                        want[to] = encode(values, target)
                    read = operand(store, source, in_strides, in_col)
                    write = operand(result, target, out_strides, out_col)
                    copy(made, double, arguments([read, write], sizes, n), width, c0)
                    assert same_values(result, want).all(), (name, in_strides, out_strides, c0)


@pytest.mark.parametrize("double", [False, True])
def test_absent_outputs_and_statistics(driver: Driver, double: bool) -> None:
    real = np.float64 if double else np.float32
    x = np.arange(40, dtype=real)
    for name, made in driver.cpu():
        code = F64 if double else F32
        nothing = Operand(None, F16, 0, 1, 0, 0, (ctypes.c_int64 * 8)(4))
        copy(made, double, arguments([operand(x, code, [4], 1), nothing], [10], 4), 4)
        args = arguments([operand(x, code, [4], 0), nothing], [10], 1)
        made.copy_stats[double](ctypes.addressof(args), 0, 10)
        for dtype in (F32, F64, F16, BF16):
            raw = encode(np.arange(40.0) / 8, dtype)
            out = np.full(10, -1, np.float32)
            args = arguments([operand(raw, dtype, [4], 0), operand(out, F32, [1], 0)], [10], 1)
            made.copy_stats[double](ctypes.addressof(args), 2, 10)
            assert (out == [-1, -1, *np.arange(8.0, 40.0, 4.0) / 8]).all(), (name, dtype)


@pytest.mark.parametrize("target", [F32, F16, BF16, F64])
@pytest.mark.parametrize("double", [False, True])
def test_finish_sums_chunks_in_order(driver: Driver, double: bool, target: int) -> None:
    real = np.float64 if double else np.float32
    chunks, sums, n = 5, 2, 1100
    partials = np.random.default_rng(3).standard_normal((chunks, sums, n)).astype(real)
    total = np.zeros(n, real)
    for chunk in range(chunks):
        total += partials[chunk, 1]
    for name, _ in driver.cpu():
        for stride in (1, 3):
            got = encode(np.full(n * stride, 9.0), target)
            want = got.copy()
            want[stride * np.arange(7, n)] = encode(total.astype(np.float64), target)[7:]
            args = arguments([], [1], n)
            args.partials = partials.ctypes.data
            out = operand(got, target, [0], stride)
            finish = getattr(driver.library, f"avo_cpu_finish_{name}")
            pointer, size = ctypes.c_void_p, ctypes.c_int64
            finish.argtypes = [pointer, size, size, size, pointer, size, size, ctypes.c_int]
            finish(ctypes.addressof(args), chunks, sums, 1, ctypes.addressof(out), 7, n, double)
            assert same_values(got, want).all(), (name, stride)


# ---- what is built -------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
def test_objects_export_their_table_alone(driver: Driver, isa: str) -> None:
    """A weak or global function from the v4 object could be picked by the linker on an older machine: but for the table,
    what an object has for others is in the namespace of its instruction set, and strong."""
    listing = subprocess.run(
        ["nm", "--defined-only", "--extern-only", "--format=posix", str(driver.objects[isa])],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    symbols = dict(line.split()[:2] for line in listing.splitlines())
    namespace = f"avo_{isa}"
    own = {name for name in symbols if name.startswith(f"_ZN{len(namespace)}{namespace}")}
    assert own and {symbols[name] for name in own} == {"T"}
    assert set(symbols) - own == {
        f"avo_cpu_finish_{isa}",
        f"math_driver_{isa}",
    }


def test_polynomials_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "fit_math.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_device_math_compiles(arch: str) -> None:
    nvrtc = pytest.importorskip("avo_ops.generator.nvrtc")
    try:
        compiler = nvrtc.load()
    except nvrtc.NvrtcError as error:
        pytest.skip(str(error))
    names = [name for name in BOUNDS_F32 if name not in ("erfc", "ndtr", "x_ndtr", "sigmoid_rest")]
    calls = [f"y[{i}] = m_{name}(x[{i}]);" for i, name in enumerate(names)]
    calls += ["y[90] = m_erfc(x[90], m_exp_neg_sq(x[90])) + m_pow(x[91], x[92]);"]
    calls += ["y[92] = m_ndtr(x[93], x[94]) + m_x_ndtr(x[95], x[96]) + m_sigmoid_rest(x[97], x[98]);"]
    calls += ["y[93] = m_x_sigmoid(x[0]) + m_quotient(x[1], x[2], x[3]);"]
    calls += ["y[91] = m_where(m_lt(x[0], x[1]), m_fma(m_max(x[2], x[3]), m_min(x[4], x[5]), x[6]), x[7]);"]
    source = '#include "math.cuh"\n'
    for real in ("float", "double"):
        source += (
            f'extern "C" __global__ void all_{real}(const {real}* x, {real}* y) {{ {" ".join(calls)} }}\n'
        )
    options = ["--std=c++17", "--fmad=false", f"--include-path={CSRC / 'device'}"]
    assert compiler.compile(source, name="math.cu", arch=arch, options=options)[:4] == b"\x7fELF"
