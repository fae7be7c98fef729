"""Fits the polynomials of csrc/cpu/math.h and csrc/device/math.cuh and prints their proven bounds.

    python tools/fit_math.py            prints every fit and its bound
    python tools/fit_math.py --write    writes avo_ops/csrc/common/polynomials.h
    python tools/fit_math.py --check    fails if that header is not what this program writes

Each polynomial is the minimax one (Remez exchange, in 40 digits) for the weighted error given beside it; its
coefficients are then rounded to the type that the kernels use, and the bound is that of the rounded
polynomial, taken over a dense grid with a margin for what lies between the grid's points. Rounding errors of
the evaluation come on top: tests/test_math.py measures the whole functions. Needs mpmath; deterministic.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpmath import mp, mpf  # type: ignore[import-untyped]

HEADER = Path(__file__).resolve().parent.parent / "avo_ops" / "csrc" / "common" / "polynomials.h"
GRID = 600
# Between two points of the grid the error curve (at most degree + 2 extrema) rises by less than this factor.
MARGIN = mpf("1.01")

mp.dps = 40
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """One polynomial: `function` on [low, high], least maximum of |polynomial - function| * weight."""

    name: str
    meaning: str
    function: Function
    weight: Function
    low: mpf
    high: mpf
    degree: int
    single: bool


def exp_rest(r: mpf) -> mpf:
    return (
        sum((r**i / mp.factorial(i + 2) for i in range(8)), mpf(0))
        if abs(r) < mpf("1e-6")
        else ((mp.expm1(r) - r) / r**2)
    )


def log_rest(f: mpf) -> mpf:
    if abs(f) < mpf("1e-6"):
        return mpf(1) / 3 - f / 4 + f**2 / 5 - f**3 / 6
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def tanh_rest(t: mpf) -> mpf:
    if t < mpf("1e-12"):
        return -mpf(1) / 3 + 2 * t / 15
    x = mp.sqrt(t)
    return (mp.tanh(x) - x) / x**3


def erf_rest(t: mpf) -> mpf:
    if t < mpf("1e-12"):
        return 2 / mp.sqrt(mp.pi) * (1 - t / 3) - 1
    return mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1


# The scale of erfc's variable k = 1 / (1 + scale |z|): the best of a scan at this degree; exact in binary.
ERFC_SCALE = mpf("0.375")
# Beyond this erfc(z) < 2^-150 rounds to zero in float.
ERFC_END = mpf("10.25")


def erfc_ratio(k: mpf) -> mpf:
    z = (1 / k - 1) / ERFC_SCALE
    return mp.exp(z * z) * mp.erfc(z) / k


# The same of the normal distribution's tail; one scale for degrees 6 and 8, another for 4.
NDTR_SCALE, NDTR_SCALE_ROUGH = mpf("0.265625"), mpf("0.375")
# Beyond this the tail is < 2^-150.
NDTR_END = mpf("14.5")


def ndtr_near(t: mpf) -> mpf:
    if t < mpf("1e-12"):
        return (1 - t / 6) / mp.sqrt(2 * mp.pi)
    x = mp.sqrt(t)
    return (mp.ncdf(x) - mpf("0.5")) / x


def ndtr_fit(name: str, scale: mpf, degree: int, what: str) -> Fit:
    def ratio(k: mpf) -> mpf:
        x = (1 / k - 1) / scale
        return mp.exp(x * x / 2) * mp.ncdf(-x) / k

    meaning = f"Phi(-x) = exp(-x^2 / 2) k P(k), k = 1 / (1 + s x), 0 <= x <= 14.5; relative{what}"
    low = 1 / (1 + scale * NDTR_END)
    return Fit(name, meaning, ratio, lambda k: 1 / ratio(k), low, mpf(1), degree, True)


def catalogue() -> list[Fit]:
    half_ln2 = mp.log(2) / 2 * mpf("1.0001")
    root = mp.sqrt(2)
    log_low, log_high = 1 / root - 1 - mpf("1e-6"), root - 1 + mpf("1e-6")
    return [
        Fit(
            "EXP_F32",
            "exp(r) = 1 + (r + r^2 P(r)), |r| <= ln(2)/2; relative to expm1(r)",
            exp_rest,
            lambda r: mpf(1) if r == 0 else abs(r * r / mp.expm1(r)) + mpf("1e-3"),
            -half_ln2,
            half_ln2,
            4,
            True,
        ),
        Fit(
            "EXP_F64",
            "the same for double",
            exp_rest,
            lambda r: mpf(1) if r == 0 else abs(r * r / mp.expm1(r)) + mpf("1e-3"),
            -half_ln2,
            half_ln2,
            10,
            False,
        ),
        Fit(
            "LOG_F32",
            "log(1 + f) = f - f^2/2 + f^3 P(f), 1 + f in [sqrt(1/2), sqrt(2)]; relative",
            log_rest,
            lambda f: mpf("1e-3") + (mpf(0) if f == 0 else abs(f**3 / mp.log1p(f))),
            log_low,
            log_high,
            8,
            True,
        ),
        Fit(
            "TANH_F32",
            "tanh(x) = x + x^3 P(x^2), |x| <= 0.625; relative to tanh(x)",
            tanh_rest,
            lambda t: mpf("1e-3") + t * (mpf(1) if t == 0 else mp.sqrt(t) / mp.tanh(mp.sqrt(t))),
            mpf(0),
            mpf("0.390625"),
            4,
            True,
        ),
        Fit(
            "TANH_F64",
            "the same for double",
            tanh_rest,
            lambda t: mpf("1e-3") + t * (mpf(1) if t == 0 else mp.sqrt(t) / mp.tanh(mp.sqrt(t))),
            mpf(0),
            mpf("0.390625"),
            11,
            False,
        ),
        Fit(
            "ERF_F32",
            "erf(z) = z + z P(z^2), |z| <= 1; relative to erf(z)",
            erf_rest,
            lambda t: 1 / (1 + erf_rest(t)),
            mpf(0),
            mpf(1),
            6,
            True,
        ),
        Fit(
            "ERFC_F32",
            "erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s z), 0 <= z <= 10.25; relative",
            erfc_ratio,
            lambda k: 1 / erfc_ratio(k),
            1 / (1 + ERFC_SCALE * ERFC_END),
            mpf(1),
            8,
            True,
        ),
        Fit(
            "ERFC_COARSE",
            "erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s z), 0 <= z <= 10.25; relative; for 16-bit results",
            erfc_ratio,
            lambda k: 1 / erfc_ratio(k),
            1 / (1 + ERFC_SCALE * ERFC_END),
            mpf(1),
            6,
            True,
        ),
        Fit(
            "NDTR_NEAR_F32",
            "Phi(x) = 1/2 + x P(x^2), |x| <= 1; relative to Phi(-|x|)",
            ndtr_near,
            lambda t: mp.sqrt(t) / mp.ncdf(-mp.sqrt(t)) + mpf("1e-3"),
            mpf(0),
            mpf(1),
            6,
            True,
        ),
        ndtr_fit("NDTR_F32", NDTR_SCALE, 8, ""),
        ndtr_fit("NDTR_F16", NDTR_SCALE, 6, "; for float16 results"),
        ndtr_fit("NDTR_BF16", NDTR_SCALE_ROUGH, 4, "; for bfloat16 results"),
    ]


def horner(coefficients: list[mpf], x: mpf) -> mpf:
    value = mpf(0)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def chebyshev_points(low: mpf, high: mpf, count: int) -> list[mpf]:
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]


def remez(fit: Fit) -> list[mpf]:
    """Coefficients, lowest first, of the minimax polynomial."""
    grid = chebyshev_points(fit.low, fit.high, GRID)
    values = [fit.function(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    count = fit.degree + 2
    picks = [round(i * (GRID - 1) / (count - 1)) for i in range(count)]
    coefficients: list[mpf] = []
    for _ in range(30):
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, i in enumerate(picks):
            for j in range(fit.degree + 1):
                matrix[row, j] = grid[i] ** j
            matrix[row, fit.degree + 1] = (-1) ** row / weights[i]
            right[row] = values[i]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[j] for j in range(fit.degree + 1)]
        errors = [(horner(coefficients, x) - v) * w for x, v, w in zip(grid, values, weights, strict=True)]
        fresh = extrema(errors, count)
        worst, levelled = max(abs(e) for e in errors), abs(solution[fit.degree + 1])
        if fresh is None or worst <= levelled * mpf("1.0001"):
            break
        picks = fresh
    return coefficients


def extrema(errors: list[mpf], count: int) -> list[int] | None:
    """One index of largest |error| for each run of one sign, cut to the `count` best neighbours."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs if len(runs) == count else None


def rounded(value: mpf, single: bool) -> float:
    """`value` rounded to float (through double: close enough for a coefficient)."""
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0]) if single else float(value)


def bound(fit: Fit, coefficients: list[float]) -> mpf:
    exact = [mpf(c) for c in coefficients]
    points = chebyshev_points(fit.low, fit.high, 2 * GRID + 1)
    return MARGIN * max(abs(horner(exact, x) - fit.function(x)) * fit.weight(x) for x in points)


def literal(value: float, single: bool) -> str:
    return f"{value:.9g}f" if single else f"{value:.17g}"


def header() -> str:
    """The text of polynomials.h."""
    lines = [
        "// Coefficients of the polynomials that the CPU kernels and the device kernels share.",
        "// Written by tools/fit_math.py, which proves the bounds: change it there. Highest power first.",
        "#pragma once",
        "",
        "// The scale s of erfc's variable k = 1 / (1 + s |z|).",
        f"#define AVO_ERFC_SCALE {float(ERFC_SCALE):.9g}f",
        "// The same of the normal distribution's tail, and where results are bfloat16.",
        f"#define AVO_NDTR_SCALE {float(NDTR_SCALE):.9g}f",
        f"#define AVO_NDTR_SCALE_ROUGH {float(NDTR_SCALE_ROUGH):.9g}f",
        "// sqrt(1/2) in two parts, and 1/sqrt(pi).",
        f"#define AVO_SQRT_HALF {float(mp.sqrt(mpf(1) / 2)):.17g}",
        f"#define AVO_SQRT_HALF_LOW {float(mp.sqrt(mpf(1) / 2) - mpf(float(mp.sqrt(mpf(1) / 2)))):.17g}",
        f"#define AVO_SQRT_1_PI {float(1 / mp.sqrt(mp.pi)):.17g}",
    ]
    for fit in catalogue():
        coefficients = [rounded(c, fit.single) for c in remez(fit)]
        error = bound(fit, coefficients)
        texts = [literal(c, fit.single) for c in reversed(coefficients)]
        lines += [
            "",
            f"// {fit.meaning}.",
            f"// Error of the rounded polynomial <= {mp.nstr(error, 3)}.",
            f"#define AVO_POLYNOMIAL_{fit.name} \\",
        ]
        for start in range(0, len(texts), 4):
            more = start + 4 < len(texts)
            lines.append("  " + ", ".join(texts[start : start + 4]) + (", \\" if more else ""))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = header()
    if options.write:
        HEADER.write_text(text)
    elif options.check:
        if HEADER.read_text() != text:
            print(f"{HEADER} is not what tools/fit_math.py writes", file=sys.stderr)
            return 1
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
