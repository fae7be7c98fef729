"""Math with integers and bools in kernels of compiled functions: to the bit what eager has, overflow and all layouts included."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import avo_ops
from avo_ops.generator import integers
from avo_ops.registry import native_library
from avo_ops.testing import emulate

if native_library.runtime() is None:
    pytest.skip("the package is not built", allow_module_level=True)

Tensor = torch.Tensor
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PLACES = pytest.mark.parametrize(
    "place",
    [
        "cpu",
        "emulator",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
    ],
)


def within(place: str) -> contextlib.AbstractContextManager[Any]:
    """Where the tensors of the CPU run by the emulator's kernels, if they do."""
    return emulate(sms=2) if place == "emulator" else contextlib.nullcontext()


def on(place: str, t: Tensor) -> Tensor:
    """The tensor as it lies, with all of its memory."""
    if place != "cuda":
        return t
    whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    return whole.cuda().as_strided(t.shape, t.stride(), t.storage_offset())


def values(dtype: torch.dtype, shape: Sequence[int], seed: int) -> Tensor:
    """Limits, numbers about 0, and any."""
    generator = torch.Generator().manual_seed(seed)
    limits = torch.iinfo(dtype)
    about = [0, 1, 2, 7, 8, limits.max, limits.max - 1, limits.max // 2]
    about += [limits.min, limits.min + 1, -1, -7, -8] if limits.min else []
    chosen = torch.tensor(about)[torch.randint(len(about), tuple(shape), generator=generator)]
    any_of_them = torch.randint(-(2**62), 2**62, tuple(shape), generator=generator) * 2 + 1
    return torch.where(torch.rand(tuple(shape), generator=generator) < 0.7, chosen, any_of_them).to(dtype)


def layouts(t: Tensor) -> Iterator[Tensor]:
    """The same values, as they lie; by columns; every second; from an odd address."""
    yield t
    yield t.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = t.new_zeros(*t.shape[:-1], 2 * t.shape[-1] + 3)
    wide[..., ::2][..., : t.shape[-1]] = t
    yield wide[..., ::2][..., : t.shape[-1]]
    wide[..., 1 : 1 + t.shape[-1]] = t
    yield wide[..., 1 : 1 + t.shape[-1]]


def assert_same(fn: Callable[..., Any], compiled: Any, args: Sequence[Tensor], place: str) -> None:
    """Bits, dtypes and shapes as eager's, and by kernels alone."""
    avo_ops.reset_stats()
    with within(place):
        found = compiled(*(on(place, t) for t in args))
    for i, (a, b) in enumerate(zip(found, fn(*args), strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), i
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, msg=lambda text, i=i: f"result {i}: {text}")
    assert compiled.variants()[-1].composite.reasons == []
    assert not [k for k, n in avo_ops.stats().items() if n and "definition" in k]


def arithmetic(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        a + b, a - b * 3, a * b, torch.abs(-a), torch.sign(a), a // 7 - a % 7, a % 5 + torch.fmod(a, 3),
        torch.div(b, 3, rounding_mode="trunc"), torch.maximum(a, b).clamp(2, 100), a**3, 5 - a,
    )  # fmt: skip


def bits(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    few = b & 15
    return (
        a & b | 9, ~(a ^ b), a << few, a >> few, a << 31, a >> 40, a.to(torch.int8), a.to(torch.uint8), a.to(torch.int32),
        a.bool(), torch.minimum(a, b).to(torch.int64) * 2**33,
    )  # fmt: skip


def masks(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    kept = (a < b) & (b != 7) | (a == 1)
    return (
        kept, torch.where(kept, a, b), a.masked_fill(kept, 3), (a >= b) ^ (a <= 2), torch.where(kept, 4, 2), kept * a,
        kept + kept, torch.logical_and(a, b), torch.where(a > b, a.to(torch.int64), -5), a.float() * 0.5,
    )  # fmt: skip


def by_negatives(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        a // -7,
        a % -5,
        torch.fmod(a, -3),
        torch.div(b, -2, rounding_mode="trunc"),
        a * -1,
        b // -1,
        a.clamp(max=-2),
    )


@PLACES
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fn", [arithmetic, bits, masks], ids=lambda fn: fn.__name__)
def test_pointwise(fn: Callable[..., Any], dtype: torch.dtype, place: str) -> None:
    if place == "emulator" and dtype not in (torch.uint8, torch.int8, torch.int64):
        pytest.skip("the others have the same text")
    compiled = avo_ops.compile(fn)
    a, b = values(dtype, (9, 37), 1), values(dtype, (9, 37), 2)
    for x, y in zip(layouts(a), layouts(b), strict=True):
        assert_same(fn, compiled, (x, y), place)
    assert_same(fn, compiled, (a, next(layouts(b)).t().contiguous().t()), place)
    if place != "emulator":
        assert_same(fn, compiled, (a, values(dtype, (37,), 3)), place)  # of the columns
        assert_same(fn, compiled, (a, values(dtype, (9, 1), 4)), place)  # of the rows


@PLACES
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_division_by_negatives(dtype: torch.dtype, place: str) -> None:
    if place == "emulator" and dtype not in (torch.int8, torch.int64):
        pytest.skip("the others have the same text")
    a, b = values(dtype, (9, 37), 5), values(dtype, (9, 37), 6)
    b = b.where(b != torch.iinfo(dtype).min, 1)  # by -1, which traps in eager
    assert_same(by_negatives, avo_ops.compile(by_negatives), (a, b), place)


@PLACES
def test_least_integer_by_minus_one(place: str) -> None:
    """It wraps around, where eager may trap."""
    compiled = avo_ops.compile(lambda a: (a // -1, a % -1))
    least = torch.iinfo(torch.int64).min
    with within(place):
        quotient, rest = compiled(on(place, torch.tensor([least, -1, 5])))
    assert (quotient.tolist(), rest.tolist()) == ([least, 1, -5], [0, 0, 0])


def reduced(a: Tensor, m: Tensor, row: Tensor) -> tuple[Tensor, ...]:
    return (
        a.sum(-1), a.amax(-1, keepdim=True), a.amin(-1), (a | 1).prod(-1), m.sum(-1), (a != row).sum(-1), m.any(-1),
        (a > 2).all(-1), a + a.amax(-1, keepdim=True), a.sum(-1, keepdim=True) + row,
    )  # fmt: skip


@PLACES
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(dtype: torch.dtype, place: str) -> None:
    if place == "emulator" and dtype not in (torch.uint8, torch.int64):
        pytest.skip("the others have the same text")
    compiled = avo_ops.compile(reduced)
    # Rows in the registers of a warp, of a block and of a cluster, and rows that are read again; one of few columns.
    for n in (5, 37, 2048, 9000, 40000) if place != "cpu" else (5, 37, 1000):
        a, row = values(dtype, (4, n), n), values(dtype, (4, 1), n + 1)
        assert_same(reduced, compiled, (a, a > 2, row), place)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_of_rows_overflow_in_their_dtype(dtype: torch.dtype) -> None:
    """Kernels read them as int64."""

    def fn(x: Tensor, of_row: Tensor) -> tuple[Tensor, ...]:
        wide = of_row[:, None]
        return x * (wide * wide == 0), (wide * wide).sum(-1), (of_row * 3 + 100)[:, None] << 1

    x, of_row = torch.randn(9, 5), values(dtype, (9,), 1)
    assert_same(fn, avo_ops.compile(fn), (x, of_row), "cpu")


def test_reductions_over_all_and_over_rows() -> None:
    def fn(a: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        return a.sum(), m.sum(), a.amax(), a.sum(0), m.any(0), a.amin((0, 2), keepdim=True)

    a = values(torch.int32, (3, 8, 8), 1)
    assert_same(fn, avo_ops.compile(fn), (a, a > 2), "cpu")


@PLACES
def test_gradients_beside_integers(place: str) -> None:
    """Through masks and numbers that integers become, by kernels; integers and bools among the results have none."""

    def fn(x: Tensor, labels: Tensor, of_row: Tensor) -> tuple[Tensor, ...]:
        keep = (labels % 3 != 1) & (of_row != 4)
        scaled = torch.where(keep, torch.exp(x), x * labels)
        return keep, scaled, labels * 2, (scaled * (labels > 2)).sum(-1) / keep.sum(-1).clamp(min=1)

    x, labels = on(place, torch.randn(6, 40)), on(place, torch.randint(-9, 9, (6, 40)))
    of_row = on(place, torch.tensor([4, 3, 4, -2, 0, 1], dtype=torch.int16)[:, None])
    own, theirs = (x.clone().requires_grad_() for _ in range(2))
    compiled = avo_ops.compile(fn)
    avo_ops.reset_stats()
    with within(place):
        found, wanted = compiled(own, labels, of_row), fn(theirs, labels, of_row)
        for leaf, results in ((own, found), (theirs, wanted)):
            (results[1].sum() + (results[3] * torch.arange(6, device=x.device)).sum()).backward()
            assert [r.requires_grad for r in results] == [False, True, False, True]
            assert leaf.grad is not None
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(own.grad, theirs.grad)
    assert compiled.variants()[0].composite.reasons == []
    ran = [k for k, n in avo_ops.stats().items() if n]
    assert any("_backward" in k for k in ran)
    assert not any("definition" in k for k in ran)


def test_integers_to_numbers_are_rounded_once() -> None:
    """By way of float64 some would be rounded twice."""
    a = torch.tensor([2**24 + 1, 2**60 + 2**36 + 1, -(2**62) - 2**38 - 1, 2**63 - 1, -(2**63)])

    def fn(a: Tensor) -> tuple[Tensor, ...]:
        return (
            a.float(),
            a.to(torch.bfloat16),
            (a * 1.0).to(torch.int64) // 2,
            a.sum(-1, keepdim=True).float(),
        )

    assert_same(fn, avo_ops.compile(fn), (a[:3].repeat(7),), "cpu")

    def limits(a: Tensor) -> tuple[Tensor, ...]:
        return (a.float(),)

    assert_same(limits, avo_ops.compile(limits), (a,), "cpu")


def test_constants_are_of_the_dtype_in_which_torch_computes() -> None:
    """Those of tensors without dims wrap around in it."""

    def fn(a: Tensor) -> tuple[Tensor, ...]:
        wide = torch.tensor(2**60 + 300)
        return (
            a < wide,
            a + wide,
            torch.maximum(a, wide),
            a // wide,
            a**0,
            (a**0 + 1) * a,
            a.clamp(min=torch.tensor(130)),
        )

    assert_same(fn, avo_ops.compile(fn), (values(torch.int8, (9, 37), 1),), "cpu")


def test_comparisons_with_numbers_are_in_the_dtype_of_torch() -> None:
    """Integers become numbers of 16 bits, or of 32 where the math is in float64, before they are compared."""
    a = torch.tensor([[257, 256, 65505, 2**24 + 1, 3, -259]])

    def fn(a: Tensor, half: Tensor, single: Tensor, double: Tensor) -> tuple[Tensor, ...]:
        return a == half, a < half, half >= a, a == single, a.float() == double, a < double

    numbers = torch.tensor([[256.0, 258, 65504, 2**24, 3, -260]])
    assert_same(fn, avo_ops.compile(fn), (a, numbers.to(torch.bfloat16), numbers, numbers.double()), "cpu")


@PLACES
def test_casts_from_beyond_an_integer(place: str) -> None:
    """As torch's CPU casts them."""
    x = torch.tensor(
        [math.nan, math.inf, -math.inf, 3e38, 1e10, -1e10, 2.0**31, -(2.0**31), 300.7, -3.7, 0.9, 70000.0]
    )

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.to(torch.int64), x.to(torch.int32), x.to(torch.int16), x.to(torch.uint8)

    assert_same(fn, avo_ops.compile(fn), (x[None],), place)


def test_reductions_of_bools_and_to_a_dtype() -> None:
    def fn(a: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        narrow = (
            m.sum(dtype=torch.int32),
            a.prod(dtype=torch.int32),
            a.sum(-1, dtype=torch.int16),
            a.sum(dtype=torch.uint8),
        )
        return *narrow, m.amax(-1), m.amin(-1, keepdim=True), m.amax(-1, keepdim=True) & m

    a = values(torch.int32, (5, 8), 1)
    assert_same(fn, avo_ops.compile(fn), (a, a > 2), "cpu")


def test_shapes_of_constants_come_from_torch() -> None:
    """What torch makes of a kernel's result, that kernel does not take."""

    def fn(a: Tensor) -> tuple[Tensor, ...]:
        doubled = a * 2
        return a + torch.full_like(doubled, 1).clamp(max=9), doubled

    compiled = avo_ops.compile(fn)
    a = values(torch.int32, (5, 8), 1)
    for found, wanted in zip(compiled(a), fn(a), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_what_torch_refuses_is_refused() -> None:
    n = torch.arange(-3, 9).to(torch.int8)
    cases: list[Callable[..., Any]] = [
        lambda a, m: m - m,
        lambda a, m: a - m,
        lambda a, m: 1 - m,
        lambda a, m: a.float() - m,
        lambda a, m: torch.full_like(a, 300) + a,
        lambda a, m: a.masked_fill(m, 300),
        lambda a, m: torch.full_like(a, math.nan) + a,
        lambda a, m: torch.where(m, a, 300) + torch.full_like(a, -129),
    ]
    for fn in cases:
        with pytest.raises(RuntimeError, match=r"bool tensor|without overflow"):
            fn(n, n > 2)
        with pytest.raises(RuntimeError, match=r"bool tensor|without overflow"):
            avo_ops.compile(fn)(n, n > 2)


def test_what_is_left_to_torch_says_why() -> None:
    n = torch.arange(1, 10)
    cases: list[tuple[Callable[..., Any], str]] = [
        (lambda a, b: a // b, "it divides by integers that may be 0"),
        (lambda a, b: a % b, "it divides by integers that may be 0"),
        (lambda a, b: a < b.shape[0] * 2, "with a number that kernels take as one of floating point"),
        (lambda a, b: a.to(torch.uint8) * 300, "it takes a number that is no uint8"),
        (lambda a, b: a**b, "its exponent is no number that is known"),
        (lambda a, b: torch.gcd(a, b), "has no place in a kernel for integers"),
        (lambda a, b: a.argmax(-1), "kernels find places of floating-point numbers alone"),
    ]
    for fn, reason in cases:
        compiled = avo_ops.compile(fn)
        try:
            wanted = fn(n, n)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)[:20]):
                compiled(n, n)
            continue
        torch.testing.assert_close(compiled(n, n), wanted, rtol=0, atol=0)
        reasons = [text for _, text in compiled.variants()[0].composite.reasons]
        assert any(reason in text for text in reasons), (reason, reasons)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        avo_ops.compile(lambda a, b: a // b)(n, n - 1)


def test_numbers_as_integers_hold_them() -> None:
    assert integers.as_integer(300, torch.uint8) == 44
    assert integers.as_integer(-129, torch.int8) == 127
    assert integers.as_integer(2**63, torch.int64) == -(2**63)
    assert integers.holds(torch.int16, torch.uint8)
    assert not integers.holds(torch.int8, torch.uint8)
