"""Special values, every operator: no worse than eager beside float64, and right in places where eager is not."""

from __future__ import annotations

import pytest
import torch
from catalogue import DEVICES, RECORDS

from benchmarks.accuracy import COMPARED, DTYPES, RANGES, calls, errors, measure, ulp

# Rows whose squares leave the range of float32 are beyond the normalisations, as they are beyond eager: results are 0.
# The largest of 16384 errors is left to chance, so it is held loosely and their mean tightly; benchmarks.accuracy has the
# promise itself, over a million elements.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("range_name", RANGES)
@pytest.mark.parametrize("name", [r.name for r in COMPARED])
def test_no_worse_than_eager(name: str, range_name: str, device: str) -> None:
    record = RECORDS[name]
    for called, call in calls(record, 16, 1024):
        for dtype in DTYPES:
            for line in measure(record, called, call, dtype, range_name, device):
                slack = 2.0 if dtype == torch.float32 else 0.2
                assert line.avo.wrong <= line.eager.wrong, line
                if not line.eager.wrong:
                    assert line.avo.max <= 4 * line.eager.max + slack, line
                    assert line.avo.rest <= 1.5 * line.eager.rest + 0.3 * slack, line


def same(got: torch.Tensor, want: torch.Tensor, units: float = 4.0) -> None:
    assert (got.isnan() == want.isnan()).all() and (got.isinf() == want.isinf()).all(), (got, want)
    here = got.isfinite()
    off = (got.double() - want).abs() / ulp(want.nan_to_num(1.0), got.dtype)
    assert not here.any() or float(off[here].max()) <= units, (got, want)


def slope(op: object, x: torch.Tensor, *args: object) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(op(leaf, *args).sum(), leaf)  # type: ignore[operator]
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_where_eager_is_wrong(device: str) -> None:
    avo = torch.ops.avo
    # GELU's lower tail by erfc: eager cancels from -6 on, and is 0 soon after. Rounding x / sqrt(2) costs x^2 units.
    x = torch.linspace(-12.5, -5, 801, device=device)
    wide = x.double()
    same(avo.gelu(x), 0.5 * wide * torch.special.erfc(-wide * 0.5**0.5), 200.0)
    # Its tanh form where the cube overflows, and the gradient, which is 0 or 1 there; eager's is NaN.
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.tensor([1e20, -1e20, 3e38, -3e38, 1e13, -1e13], dtype=dtype, device=device)
        want = torch.where(x > 0, x.double(), 0.0)
        same(avo.gelu(x, "tanh"), want, 0.0)
        same(slope(avo.gelu, x, "tanh"), (x > 0).double(), 0.0)
    # A row of one value has the normal form 0, whatever its mean was rounded to.
    x = torch.full((2, 4097), 1000.1, device=device)
    assert not avo.layer_norm(x, [4097]).any()
    # A square beyond the range of float32 makes a row vanish, and no NaN of it.
    x = torch.randn(2, 1024, device=device)
    for large in (1e20, 1e30, 1e38):
        x[0, 5] = large
        assert not avo.layer_norm(x, [1024])[0].any() and avo.layer_norm(x, [1024])[1].any()
    # So does a row whose very sum is beyond it, and its gradient.
    x = 2e38 + 1e37 * torch.randn(2, 1024, device=device)
    weight = torch.randn(1024, device=device)
    for norm in (avo.layer_norm, avo.rms_norm):
        assert not norm(x, [1024], weight).any() and not slope(norm, x, [1024], weight).any()
    # Large entries lie close together: the softmax is that of their exact differences.
    x = torch.tensor([[1e7, 1e7 + 1, 1e7 - 2]], device=device)
    same(avo.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_signs_of_zero_and_limits(dtype: torch.dtype, device: str) -> None:
    avo, inf = torch.ops.avo, float("inf")
    x = torch.tensor([0.0, -0.0, inf, -inf, float("nan")], dtype=dtype, device=device)
    for op in (avo.gelu, avo.silu, lambda x: avo.gelu(x, "tanh")):
        y = op(x)
        assert torch.equal(torch.signbit(y[:2]).cpu(), torch.tensor([False, True])), y
        assert y[2] == inf and y[4].isnan()
        assert y[3].isnan() or y[3] == 0  # the limit is 0; torch gives NaN
    # A quotient by a value of the row: a zero keeps its sign, beside a large divisor and an infinite one too.
    for divisor in (3.0, 1e4, inf):
        row = torch.tensor([[0.0, -0.0, divisor]], dtype=dtype, device=device)
        y = avo.l2_normalize(row, -1)
        assert y[0, :2].tolist() == [0.0, 0.0] and torch.signbit(y[0, :2]).tolist() == [False, True], y
        assert y[0, 2].isnan() if divisor == inf else y[0, 2] == 1
    row = torch.tensor([[-inf, 1.0, -inf, 1.0]], dtype=dtype, device=device)
    assert avo.softmax(row, -1).tolist() == [[0.0, 0.5, 0.0, 0.5]]
    assert avo.softmax(row * 0 - inf, -1).isnan().all()


def test_units_in_the_last_place() -> None:
    one = torch.tensor([1.0, 1.999, 2.0, 0.0, 1e-45], dtype=torch.float64)
    assert ulp(one, torch.float32).tolist() == [2.0**-23, 2.0**-23, 2.0**-22, 2.0**-149, 2.0**-149]
    assert float(ulp(one, torch.bfloat16)[0]) == 2.0**-7
    got = torch.tensor([1.0, float("inf"), 3.0, float("nan")])
    want = torch.tensor([1.0 + 2.0**-23, 1e300, float("nan"), 1.0], dtype=torch.float64)
    found = errors(got, want, False)
    assert (found.max, found.mean, found.rest, found.wrong) == (1.0, 1.0, 0.0, 2)
    found = errors(
        torch.tensor([1.0, 1.0, 1.0]), 1.0 + 2.0**-23 * torch.tensor([8.0, 1.0, 3.0]).double(), False
    )
    assert (found.max, found.mean, found.rest) == (8.0, 4.0, 2.0)
