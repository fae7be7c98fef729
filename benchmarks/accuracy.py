"""Errors against float64, avo_ops beside eager: ``python -m benchmarks accuracy [--device cuda]``.

Every operator, result and gradient, in every dtype that float64 can judge, over a million elements of fixed seed and
over the special ranges below. Errors are in units in the last place of the result's dtype; in gradients and where sums are
at work, of the larger of a value and the root mean square of its row, since a small difference of large terms has no
accuracy of its own. "wrong" counts elements that are wrongly NaN, infinite or finite; the errors are of the others. A line
is flagged where the promise of avo_ops is not kept:

  bfloat16, float16   max <= max(eager's, 0.51), mean <= eager's + 0.01
  float32             max <= max(1.5 times eager's, eager's + 1)
  all                 no more wrong elements than eager has; beside wrong ones of eager no error is too large
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import avo_ops
from avo_ops import plan_file
from avo_ops.definitions import CATALOGUE, OpDef
from avo_ops.definitions.record import Narrow, Whole
from avo_ops.registry.plan import generated_folder

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WIDTH = 1024

Tensor = torch.Tensor
Make = Callable[[Tensor, torch.Generator], Tensor]


def _special(x: Tensor, generator: torch.Generator) -> Tensor:
    """A row of each kind: one inf, one -inf, both, all inf, all -inf, one NaN, a few large beside -inf, all usual."""
    inf = float("inf")
    rows = x.clone()
    for i, row in enumerate(rows):
        match i % 8:
            case 0 | 1:
                row[3] = inf if i % 8 == 0 else -inf
            case 2:
                row[3], row[7] = inf, -inf
            case 3 | 4:
                row[:] = inf if i % 8 == 3 else -inf
            case 5:
                row[1] = float("nan")
            case 6:
                row[::2] = -inf
    return rows


# Of numbers of a normal distribution, in float64.
RANGES: dict[str, Make] = {
    "normal": lambda x, g: x,
    "tails": lambda x, g: x.sort(-1).values * 5,
    "every magnitude": lambda x, g: (
        x.sign() * 10.0 ** (torch.rand(x.shape, generator=g, dtype=x.dtype) * 76 - 38)
    ),
    "magnitudes to 1e17": lambda x, g: (
        x.sign() * 10.0 ** (torch.rand(x.shape, generator=g, dtype=x.dtype) * 55 - 38)
    ),
    "mean 1e4": lambda x, g: x + 1e4,
    "rows at 1e13": lambda x, g: x * 1e13,
    "rows at 1e25": lambda x, g: x * 1e25,
    "rows at 1e-20": lambda x, g: x * 1e-20,
    "constant rows": lambda x, g: x[:, :1].expand_as(x) * 7,
    "one large": lambda x, g: torch.where(torch.arange(x.shape[-1]) == 5, x * 1e4, x),
    "near 1e7": lambda x, g: (x * 8).round() + 1e7,
    "near 1e20": lambda x, g: x.sign() * 1e20,
    "denormal": lambda x, g: x * 1e-40,
    "zeros": lambda x, g: x.sign() * 0.0,
    "not finite": _special,
}


@dataclass(frozen=True)
class Errors:
    """Of one tensor: the largest and the mean error in ulp, how many elements are wrongly finite or not, and the mean
    without the largest errors (one in 500 elements), which a few in which nearly everything cancels do not rule."""

    max: float
    mean: float
    wrong: int
    rest: float


@dataclass(frozen=True)
class Line:
    """One tensor of one call: by avo_ops, and by eager."""

    op: str
    what: str
    dtype: torch.dtype
    range: str
    avo: Errors
    eager: Errors

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        if self.avo.wrong > self.eager.wrong:
            return False
        if self.eager.wrong:
            return True
        if self.dtype == torch.float32:
            return self.avo.max <= max(1.5 * self.eager.max, self.eager.max + 1)
        return self.avo.max <= max(self.eager.max, 0.51) and self.avo.mean <= self.eager.mean + 0.01

    def __str__(self) -> str:
        def cells(e: Errors) -> str:
            return f"{e.max:11.3g}{e.mean:9.2g}{e.wrong:7}"

        name = str(self.dtype).removeprefix("torch.")
        flag = "" if self.kept else "  BEYOND THE PROMISE"
        return f"{self.op:<20}{self.what:<18}{name:<10}{self.range:<17}{cells(self.avo)}{cells(self.eager)}{flag}"


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of the neighbours of each value (of float64) in ``dtype``."""
    about = torch.finfo(dtype)
    exponent = torch.frexp(values.abs().clamp(about.smallest_normal, about.max)).exponent - 1
    return torch.ldexp(torch.full_like(values, about.eps), exponent)


def errors(
    got: Tensor, want: Tensor, summed: bool, limit: Tensor | None = None, of_nan: Tensor | None = None
) -> Errors:
    """``summed``: units are those of a row's root mean square, where a value is smaller.

    ``limit``: what is as right as a NaN in ``want``. ``of_nan``: elements of which an argument is NaN; a NaN is right there.
    """
    dtype = got.dtype
    # Beyond the largest number the right result is infinite; half a unit beyond may be either.
    rounded = want.to(dtype)
    borderline = want.abs().isfinite() & (want.abs() > torch.finfo(dtype).max * (1 - 1e-6))
    usual = got.isfinite() & rounded.isfinite()
    same = usual | (got == rounded) | (got.isnan() & rounded.isnan()) | borderline
    if limit is not None:
        same |= want.isnan() & (got == limit.to(dtype))
    if of_nan is not None:
        same |= of_nan & got.isnan()
        usual &= ~of_nan
    size = want.abs()
    if summed and want.dim():
        # Sums of rows are beside those of other rows.
        dims = (-1,) if want.shape[-1] > 1 else tuple(range(want.dim()))
        square = torch.where(usual, want, 0.0).square().mean(dims, keepdim=True).sqrt()
        size = torch.maximum(size, square)
    off = torch.where(usual, (got.double() - want).abs() / ulp(size.nan_to_num(1.0), dtype), 0.0)
    count, total = max(int(usual.sum()), 1), float(off.sum())
    largest = off.flatten().topk(min(1 + count // 500, off.numel())).values
    rest = (total - float(largest.sum())) / max(count - len(largest), 1)
    return Errors(float(largest[0]) if len(largest) else 0.0, total / count, int((~same).sum()), rest)


def calls(record: OpDef, m: int, n: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every variant of a record that its strings choose, all optional tensors there; shapes for tensors."""
    schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments
    strings = [a.name for a in schema if a.name in record.choices]
    options = record.choices[strings[0]] if strings else ("",)
    for option in options:
        call: dict[str, Any] = {}
        for a in schema:
            kind = str(a.type)
            if "Tensor" in kind:
                shape = record.shape_of(a.name, m, n)
                call[a.name] = Whole(shape, n) if a.name in record.of_integers else shape
                if a.name in record.narrow:
                    call[a.name] = Narrow(shape, getattr(torch, record.narrow[a.name][0]))
            elif kind == "List[int]":
                call[a.name] = [n]
            elif a.name == record.columns.arg:
                call[a.name] = 1 if record.columns.rule == "groups" else -1
            elif a.name in strings:
                call[a.name] = option
            else:  # a number that has no default is small
                call[a.name] = a.default_value if a.has_default_value() else 2.0
        yield (f"{record.name} {option}" if option != options[0] else record.name), call


COMPARED = tuple(r for r in CATALOGUE if r.twin is not None and r.differentiation == "kernels")
"""The operators that torch has too, but for those between 8 bits and more: a result is one number of few, or its neighbour."""


def _step_of_e4m3(q: Tensor) -> Tensor:
    bits = q.contiguous().view(torch.uint8).int()
    return torch.where(bits > 127, 128 - bits, bits)


STEPS: dict[torch.dtype, Callable[[Tensor], Tensor]] = {
    torch.float8_e4m3fn: _step_of_e4m3,
    torch.int8: Tensor.int,
}
"""The place of each value among all numbers of a dtype of 8 bits."""


def real(value: Any) -> bool:
    """Whether it is a tensor that has a gradient."""
    return isinstance(value, Tensor) and value.is_floating_point()


@lru_cache(maxsize=1)
def _differentiable() -> dict[str, list[str]]:
    folder = generated_folder()
    assert folder is not None
    return {e["name"]: e["autograd"]["differentiable"] for e in plan_file.load(folder)["operators"]}


def differentiable(name: str) -> list[str]:
    """The arguments of an operator that it has a gradient for."""
    return _differentiable()[name]


def twin_of(record: OpDef) -> Callable[..., Any]:
    """The torch function of a record, taking arguments in the order of the schema; its own defaults are keywords."""
    schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments
    needed = sum(not a.has_default_value() for a in schema)
    names = [a.name for a in schema[needed:]]

    def call(*args: Any) -> Any:
        assert record.twin is not None
        return record.twin(*args[:needed], **dict(zip(names, args[needed:], strict=True)))

    return call


def evaluate(
    function: Callable[..., Any], arguments: dict[str, Any], grads: list[Tensor] | None, wanted: Sequence[str]
) -> dict[str, Tensor]:
    """Results, and gradients of the arguments ``wanted``, by name; incoming gradients get the dtypes of the results."""
    own = {k: v.detach().clone().requires_grad_(k in wanted) if real(v) else v for k, v in arguments.items()}
    out = function(*own.values())
    outs = list(out) if isinstance(out, tuple | list) else [out]
    found = {f"result {i}" if len(outs) > 1 else "result": o.detach() for i, o in enumerate(outs)}
    tensors = {k: own[k] for k in wanted if own[k] is not None}
    incoming = [g.to(o.dtype) for g, o in zip(grads or [], outs, strict=True)]
    for k, g in zip(tensors, torch.autograd.grad(outs, list(tensors.values()), incoming), strict=True):
        found[f"gradient {k}"] = g
    return found


def short_of_infinity(wide: dict[str, Any]) -> dict[str, Any]:
    """The arguments in float64 with numbers far out for infinities.

    Where torch says NaN (gelu of -inf, say), the limit is right as well, and this is where a definition has reached it.
    """
    return {k: v.nan_to_num(float("nan"), 1e290, -1e290) if real(v) else v for k, v in wide.items()}


def measure(
    record: OpDef, name: str, call: dict[str, Any], dtype: torch.dtype, range_name: str, device: str
) -> Iterator[Line]:
    """The lines of one call. The range is that of the tensors of span (M, N), parameters are normal."""
    generator = torch.Generator().manual_seed(20261129)
    arguments = {}
    for key, value in call.items():
        if isinstance(value, tuple):
            x = torch.randn(value, generator=generator, dtype=torch.float64)
            if len(value) == 2 and value[1] > 1:
                x = RANGES[range_name](x, generator)
            value = x.to(dtype).to(device)
        elif isinstance(value, Whole):
            value = torch.randint(value.low, value.high, value.shape, generator=generator).to(device)
        arguments[key] = value
    wide = {k: v.double() if real(v) else v for k, v in arguments.items()}
    for key, of in record.none_scalars.items():
        if wide[key] is None:
            wide[key] = of(torch.float32)
    grads = [
        torch.randn(r.shape, generator=generator, dtype=torch.float64).to(dtype).to(device)
        for r in record.compute(**wide)
    ]
    wanted = differentiable(record.name)
    ours = evaluate(getattr(torch.ops.avo, record.name), arguments, grads, wanted)
    same = {k: wide[k] if k in record.none_scalars else v for k, v in arguments.items()}
    theirs = evaluate(twin_of(record), same, grads, wanted)
    exact = evaluate(record.compute, wide, grads, wanted)
    limits = evaluate(record.compute, short_of_infinity(wide), grads, wanted)
    for what, want in exact.items():
        summed = record.columns.rule != "flat" or what.startswith("gradient")
        # Eager's in our dtype, which for a sum of a row is float32.
        nans = [v.isnan() for v in wide.values() if real(v) and v.shape == want.shape]
        of_nan = torch.stack(nans).any(0) if nans else None
        got, eager = (
            errors(o[what].to(ours[what].dtype), want, summed, limits[what], of_nan) for o in (ours, theirs)
        )
        yield Line(name, what, dtype, range_name, got, eager)


def lines(
    device: str, rows: int, special_rows: int, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> Iterator[Line]:
    """All lines. ``rows`` of 1024 elements of the normal range, ``special_rows`` of each other one."""
    for record in COMPARED:
        for range_name in RANGES:
            for name, call in calls(record, rows if range_name == "normal" else special_rows, WIDTH):
                for dtype in dtypes:
                    yield from measure(record, name, call, dtype, range_name, device)


def about(device: str) -> str:
    if device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        model = [
            text for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")
        ]
        where = model[0].partition(": ")[2] if model else platform.processor()
    versions = f"avo_ops {avo_ops.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return f"{where}; {versions}; {time.strftime('%Y-%m-%d')}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks accuracy", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rows", type=int, default=1024, help="rows of 1024 elements of the normal range")
    parser.add_argument("--special-rows", type=int, default=64, help="and of each other range")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/DATE-DEVICE-accuracy.txt")
    args = parser.parse_args()
    out = (
        args.out
        or Path(__file__).parent / "results" / f"{time.strftime('%Y-%m-%d')}-{args.device}-accuracy.txt"
    )
    titles = "".join(f"{t:>11}{'mean':>9}{'wrong':>7}" for t in ("avo max", "eager max"))
    texts = [
        about(args.device),
        "",
        (__doc__ or "").strip(),
        "",
        f"{'op':<20}{'of':<18}{'dtype':<10}{'range':<17}{titles}",
    ]
    print("\n".join(texts))
    found = []
    for line in lines(args.device, args.rows, args.special_rows):
        found.append(line)
        print(line, flush=True)
    broken = sum(not line.kept for line in found)
    better = sum(line.avo.wrong < line.eager.wrong for line in found)
    last = f"{len(found)} lines, {broken} beyond the promise, {better} where eager has more wrong NaN or infinities"
    print(last)
    partial = out.with_name(f"{out.name}.{os.getpid()}")
    partial.write_text("\n".join([*texts, *map(str, found), last]) + "\n")
    partial.rename(out)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
