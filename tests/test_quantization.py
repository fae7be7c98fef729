"""Numbers of 8 bits: every conversion against arithmetic in float64, on each instruction set and in the emulator."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from catalogue import DEVICES, WAYS, Way, equal

import avo_ops
from avo_ops import testing

avo = torch.ops.avo
EMULATED = Way("emulated", "cpu", lambda: testing.emulate(arch=90, sms=4))
WHERE = [*WAYS.values(), EMULATED]
ONE = torch.tensor(1.0)


def all_of_e4m3() -> torch.Tensor:
    """The numbers of e4m3 that are not negative, ascending, by the format's own rule."""
    return torch.tensor(
        [(i % 8 + 8 * (i > 7)) * 2.0 ** (max(i // 8, 1) - 10) for i in range(127)], dtype=torch.float64
    )


def nearest(x: torch.Tensor) -> torch.Tensor:
    """To e4m3 by searching: the nearest, of two the even one, at most the largest; NaN is NaN."""
    numbers, size = all_of_e4m3(), x.double().abs().nan_to_num(0.0).clamp(max=448.0)
    above = torch.searchsorted(numbers, size).clamp(max=126)
    below = (above - 1).clamp(min=0)
    up, down = numbers[above] - size, size - numbers[below]
    chosen = torch.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return torch.where(x.isnan(), torch.nan, torch.copysign(numbers[chosen], x.double()))


def to_integer(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x.double().nan_to_num(0.0, 127.0, -128.0)).clamp(-128, 127)


def boundaries(numbers: torch.Tensor) -> torch.Tensor:
    """Float32 at, before and after each number and the middle of each two, with both signs."""
    middles = (numbers[1:] + numbers[:-1]) / 2
    at = torch.cat([numbers, middles, torch.tensor([464.0, 480.0, 1e30, 3e38, 2.0**-149])]).float()
    up = torch.full_like(at, float("inf"))
    found = torch.cat([at, torch.nextafter(at, up), torch.nextafter(at, -up), up[:1], up[:1] * torch.nan])
    return torch.cat([found, -found])


def all_of_16_bits(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)


def check_conversions(device: str) -> int:
    """How many numbers were converted."""
    inputs = [all_of_16_bits(torch.bfloat16), all_of_16_bits(torch.float16)]
    inputs += [boundaries(all_of_e4m3()), boundaries(torch.arange(0.0, 130.0, dtype=torch.float64))]
    inputs += [inputs[0].float()[:-3], inputs[0][5:], inputs[2].double()]  # not whole vectors, not aligned
    one = ONE.to(device)
    for x in inputs:
        for dtype, rule in (("float8_e4m3fn", nearest), ("int8", to_integer)):
            q, want = avo.quantize(x.to(device), one, dtype).cpu(), rule(x)
            got = q.double()
            wrong = (got != want) & ~(got.isnan() & want.isnan())
            assert not wrong.any(), (dtype, x.dtype, x[wrong][:5], got[wrong][:5], want[wrong][:5])
            zero = (got == 0) & (dtype == "float8_e4m3fn")
            assert torch.equal(q.view(torch.uint8)[zero] > 127, torch.signbit(x[zero])), "a zero's sign"
            assert equal(q[~want.isnan()], avo.quantize.definition(x, ONE, dtype)[~want.isnan()])
            assert (q.view(torch.uint8)[want.isnan()] == 0x7F).all(), "one NaN everywhere"
    bytes_ = torch.arange(256, dtype=torch.uint8)
    for q in (bytes_.view(torch.float8_e4m3fn), bytes_.view(torch.int8)):
        for part in (q, q[3:], q[:-5]):
            for out in (torch.float32, torch.float16, torch.bfloat16):
                name = str(out).removeprefix("torch.")
                got, want = (
                    avo.dequantize(part.to(device), one * 0.5, name).cpu(),
                    (part.float() * 0.5).to(out),
                )
                assert got.dtype == out and ((got == want) | (got.isnan() & want.isnan())).all()
    return sum(x.numel() for x in inputs)


@pytest.mark.parametrize("way", WHERE, ids=str)
def test_conversions(way: Way) -> None:
    with way.context():
        assert check_conversions(way.device) > 4 * 2**16


@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_conversions_on_each_instruction_set(isa: str) -> None:
    code = "import avo_ops, test_quantization as t; t.check_conversions('cpu'); print(*avo_ops.stats())"
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "AVO_OPS_CPU_ISA": isa, "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=here
    )
    if "AVO_OPS_CPU_ISA" in run.stderr or run.returncode < 0:
        pytest.skip(f"this machine has no {isa}")
    assert run.returncode == 0, run.stderr
    assert f"cpu/{isa}/quantize_forward" in run.stdout or isa == "v4", run.stdout


def test_the_numbers_of_e4m3() -> None:
    numbers = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    assert torch.equal(numbers, all_of_e4m3())


# ---- scales of rows ----

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}


@pytest.mark.parametrize("way", WHERE, ids=str)
@pytest.mark.parametrize("dtype", LARGEST)
def test_scale_of_a_row(dtype: str, way: Way) -> None:
    torch.manual_seed(0)
    inf, nan, largest = float("inf"), float("nan"), LARGEST[dtype]
    x = torch.randn(7, 40)
    x[1], x[2], x[3, 5], x[4, 6] = 0.0, 1e-30, nan, inf
    x[5] *= 1e30
    with way.context():
        q, scale = (t.cpu() for t in avo.quantize_rows(x.to(way.device), dtype))
    least = torch.tensor(1 / (512 * largest), dtype=torch.float64).float()
    assert scale.dtype == torch.float32 and scale.shape == (7, 1)
    assert torch.equal(scale[[1, 2]], least.expand(2, 1)) and not q.float()[[1, 2]].any()
    assert scale[3].isnan() and scale[4] == inf
    none = torch.full((40,), nan) if dtype == "float8_e4m3fn" else torch.zeros(40)
    torch.testing.assert_close(q[3].float(), none, equal_nan=True)
    alone = torch.where(torch.arange(40) == 6, none, 0.0)
    torch.testing.assert_close(q[4].float(), alone, equal_nan=True)
    for row in (0, 5, 6):
        most = x[row].double().abs().max() / largest
        assert abs(float(scale[row]) / float(most) - 1) < 1e-6
        assert q[row].float().abs().max() == largest
        step = torch.maximum(q[row].double().abs() / 16, torch.tensor(2.0**-10)) if dtype != "int8" else 0.5
        off = (q[row].double() - x[row].double() / scale[row].double()).abs()
        assert (off <= step * (1 + 1e-5)).all()


@pytest.mark.parametrize("dtype", LARGEST)
def test_scale_of_a_row_of_nothing(dtype: str) -> None:
    """It is that of a row of zeros."""
    least = avo.quantize_rows(torch.zeros(3, 4), dtype)[1]
    for m in (3, 0):
        x = torch.empty(m, 0)
        for q, scale, *_ in (
            avo.quantize_rows(x, dtype), avo.swiglu_packed_quantize_rows(x, dtype),
            avo.rms_norm_quantize_rows(x, [0], dtype=dtype), avo.add_rms_norm_quantize_rows(x, x, [0], dtype=dtype),
        ):  # fmt: skip
            assert q.shape == (m, 0) and q.dtype == getattr(torch, dtype) and torch.equal(scale, least[:m])
            assert avo.dequantize_rows(q, scale).shape == (m, 0)


@pytest.mark.parametrize("device", DEVICES)
def test_infinities_with_a_given_scale(device: str) -> None:
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e38, -1e38], device=device)
    scale = torch.tensor([1e-3], device=device)
    assert avo.quantize(x, scale, "int8").tolist() == [127, -128, 0, 127, -128]
    q = avo.quantize(x, scale).float()
    assert q[[0, 1, 3, 4]].tolist() == [448, -448, 448, -448] and q[2].isnan()


# ---- gradients ----


@pytest.mark.parametrize("mode", ["plain", "strict"])
def test_results_are_constants(mode: str) -> None:
    """As those of integers: no result requires a gradient, and asking for one is torch's own error."""
    x, w = torch.randn(4, 40, requires_grad=True), torch.randn(40, requires_grad=True)
    r, s = torch.randn(4, 40, requires_grad=True), torch.tensor(0.05, requires_grad=True)
    with avo_ops.strict() if mode == "strict" else contextlib.nullcontext():
        outs = [
            avo.quantize(x, s), *avo.quantize_rows(x, "int8"), avo.rms_norm_quantize(x, [40], s, w),
            *avo.rms_norm_quantize_rows(x, [40], w), *avo.add_rms_norm_quantize(x, r, [40], s, w, None, "int8"),
            *avo.add_rms_norm_quantize_rows(x, r, [40], w), avo.swiglu_packed_quantize(x, s),
            *avo.swiglu_packed_quantize_rows(x), *avo.quantize_rows_forward(x),
        ]  # fmt: skip
    assert not any(o.requires_grad for o in outs)
    with pytest.raises(RuntimeError, match="does not require grad"):
        outs[2].sum().backward()
    assert not any(o.requires_grad for o in avo.quantize_rows.definition(x))
    gradient = torch.func.grad(lambda x: avo.quantize_rows(x)[1].sum())(x.detach())
    assert not gradient.any()
    _, tangent = torch.func.jvp(lambda x: avo.quantize_rows(x)[1], (x.detach(),), (torch.ones(4, 40),))
    assert not tangent.any()


def test_the_gradient_of_a_scale() -> None:
    """Of dequantize, whose result is no number of few: torch differentiates the definition, and that is counted."""
    q = torch.randint(-128, 128, (3, 8), dtype=torch.int8)
    for op, shape in ((avo.dequantize, (1,)), (avo.dequantize_rows, (3, 1))):
        scale = torch.full(shape, 0.25, requires_grad=True)
        avo_ops.reset_stats()
        (got,) = torch.autograd.grad(op(q, scale).sum(), scale)
        torch.testing.assert_close(
            got, q.float().sum_to_size(shape) if len(shape) > 1 else q.float().sum()[None]
        )
        assert [s.definitions for s in avo_ops.stats().by_op().values()] == [1]
        assert avo_ops.explain(op, q, scale).calls[0].path == "definition"
        with avo_ops.strict(), pytest.raises(RuntimeError, match="a gradient is wanted"):
            op(q, scale)
        with torch.no_grad(), avo_ops.strict():
            op(q, scale)


# ---- functions of the user ----


def test_compiled_functions_end_in_8_bits() -> None:
    torch.manual_seed(0)

    def to_e4m3(x: Any, w: Any, s: Any) -> Any:
        return (x * w / s).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)

    def to_int8(x: Any) -> Any:
        s = x.abs().amax(-1, keepdim=True) / 127.0
        return torch.round(x / s).clamp(-128, 127).to(torch.int8), s

    def back(q: Any, s: Any) -> Any:
        return (q.float() * s).to(torch.bfloat16)

    x, w, s = torch.randn(6, 40), torch.randn(40), torch.tensor([2.0**-5])
    q, scale = to_int8(x)
    compiled = [avo_ops.compile(f) for f in (to_e4m3, to_int8, back, back)]
    calls: list[tuple[Any, ...]] = [(x, w, s), (x,), (q, scale), (to_e4m3(x, w, s), scale)]
    for f, c, args in zip((to_e4m3, to_int8, back, back), compiled, calls, strict=True):
        with avo_ops.strict():
            got, want = c(*args), f(*args)
        for a, b in zip(
            got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want], strict=True
        ):
            assert equal(a, b) and a.dtype == b.dtype
    one = avo_ops.compile(back)  # a graph for each dtype
    for args in calls[2:]:
        assert torch.equal(one(*args), back(*args))
    leaf = x.clone().requires_grad_()
    q, scale = compiled[1](leaf)
    assert not q.requires_grad
    (got,) = torch.autograd.grad(scale.sum(), leaf)
    torch.testing.assert_close(got, torch.autograd.grad(to_int8(leaf)[1].sum(), leaf)[0])


def test_a_cast_of_what_may_lie_outside_is_left_to_torch() -> None:
    f = avo_ops.compile(lambda x: (x * 2.0).to(torch.int8))
    x = torch.randn(6, 40) * 40
    assert torch.equal(f(x), (x * 2.0).to(torch.int8))
    assert "beyond which its values may lie: clamp(-128.0, 127.0) before" in str(f.plan())


# ---- refusals ----


def test_refusals() -> None:
    x, q = torch.randn(3, 8), torch.zeros(3, 8, dtype=torch.int8)
    one_number = r"quantize: scale must have shape \[\] or \[1\] \(one number\), but has shape \[2\]"
    for call, message in (
        (lambda: avo.quantize(x, torch.ones(2)), one_number),
        (lambda: avo.quantize(q, ONE), "quantize: x must be a floating-point tensor .*, but is int8"),
        (lambda: avo.quantize(x, ONE, "uint8"), "quantize: dtype must be 'float8_e4m3fn' or 'int8', but is 'uint8'"),
        (lambda: avo.dequantize(x, ONE), "dequantize: x must be float8_e4m3fn or int8, but is float32"),
        (lambda: avo.dequantize_rows(q, torch.ones(3)), r"scale must have shape \[3, 1\] \(one value for each row of x\)"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            call()
