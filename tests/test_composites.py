"""Operators made of others: values, gradients, every way in; and what dropout draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from catalogue import DEVICES, RELATIVE, real

from avo_ops import testing
from avo_ops.definitions import COMPOSITES, Composite
from avo_ops.definitions.random import philox, uniform
from avo_ops.definitions.record import Whole

CASES = [(c, i) for c in COMPOSITES for i in range(len(c.samples))]
each_case = pytest.mark.parametrize(("composite", "index"), CASES, ids=[f"{c.name}-{i}" for c, i in CASES])


def made(composite: Composite, index: int, dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """The arguments of a sample."""
    generator = torch.Generator().manual_seed(index)
    sample = composite.samples[index]
    names = [a.name for a in torch._C.parse_schema(f"avo::{composite.name}{composite.schema}").arguments]
    out: dict[str, Any] = {}
    for name, value in {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}.items():
        if isinstance(value, Whole):
            whole = torch.randint(value.low, value.high, value.shape, generator=generator).to(device)
            out[name] = whole.bool() if name == "attn_mask" else whole
            if name == "attn_mask":
                out[name][..., 0] = True  # no row without a score
        elif isinstance(value, tuple):
            tensor = torch.rand(value, generator=generator, dtype=torch.float64) + (
                0.1 if name == "weight" else -0.5
            )
            out[name] = (tensor if name == "weight" else 3.0 * tensor).to(dtype).to(device)
        else:
            out[name] = value
    return out


def checked(composite: Composite, arguments: dict[str, Any], dtype: torch.dtype) -> None:
    op = getattr(torch.ops.avo, composite.name)
    wanted = [k for k, v in arguments.items() if real(v) and k != "weight"]
    own = {k: v.detach().requires_grad_(k in wanted) if real(v) else v for k, v in arguments.items()}
    wide = {
        k: v.detach().double().requires_grad_(k in wanted) if real(v) else v for k, v in arguments.items()
    }
    out, want = op(**own), composite.reference(**wide)
    outs, wants = (v if isinstance(v, tuple) else (v,) for v in (out, want))
    close = {"rtol": 4 * RELATIVE[dtype], "atol": 4 * RELATIVE[dtype]}
    grads = []
    for o, w in zip(outs, wants, strict=True):
        assert o.dtype == dtype and o.shape == w.shape
        torch.testing.assert_close(o.double(), w, **close)
        grads.append(torch.randn(w.shape, dtype=torch.float64, device=w.device).to(dtype))
    got = torch.autograd.grad(outs, [own[k] for k in wanted], grads)
    expected = torch.autograd.grad(wants, [wide[k] for k in wanted], [g.double() for g in grads])
    for k, g, e in zip(wanted, got, expected, strict=True):
        assert g.dtype == own[k].dtype
        torch.testing.assert_close(g.double(), e, msg=lambda m, k=k: f"gradient of {k}: {m}", **close)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@each_case
def test_values_and_gradients(composite: Composite, index: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    checked(composite, made(composite, index, dtype, device), dtype)


@pytest.mark.xdist_group("composites")
@pytest.mark.parametrize("composite", COMPOSITES, ids=[c.name for c in COMPOSITES])
def test_by_the_cuda_kernels(composite: Composite) -> None:
    torch.manual_seed(0)
    with testing.emulate():
        for index in range(len(composite.samples)):
            checked(composite, made(composite, index, torch.float32), torch.float32)


@each_case
def test_opcheck(composite: Composite, index: int) -> None:
    arguments = made(composite, index, torch.float32)
    for k, v in arguments.items():
        if real(v) and k != "weight":
            v.requires_grad_()
    torch.library.opcheck(getattr(torch.ops.avo, composite.name).default, (), arguments)


def test_compiled() -> None:
    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.ops.avo.cross_entropy(x, target, label_smoothing=0.1) + torch.ops.avo.mse_loss(x, x * 2)

    x, target = torch.randn(6, 40, requires_grad=True), torch.randint(40, (6,))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    one, two = step(x, target), compiled(x, target)
    torch.testing.assert_close(one, two)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss in (one, two)))


def test_transforms() -> None:
    x, target = torch.randn(3, 6, 40), torch.randint(40, (3, 6))
    function = torch.func.vmap(torch.func.grad(torch.ops.avo.cross_entropy))
    want = torch.stack(
        [torch.func.grad(torch.nn.functional.cross_entropy)(a, t) for a, t in zip(x, target, strict=True)]
    )
    torch.testing.assert_close(function(x, target), want)
    seeds = torch.randint(2**62, (3, 6, 1))
    batched = torch.func.vmap(torch.ops.avo.dropout_rows)(x, seeds)
    assert torch.equal(batched, torch.ops.avo.dropout_rows(x, seeds))


# ---- cross entropy ----


def test_targets_that_name_no_class() -> None:
    x = torch.randn(4, 7)
    losses = torch.ops.avo.cross_entropy(x, torch.tensor([3, 7, -1, -100]), reduction="none")
    assert losses.isnan().tolist() == [False, True, True, False] and losses[3] == 0
    assert torch.ops.avo.cross_entropy(x, torch.full((4,), -100)).isnan()  # the mean of nothing, as torch


def test_the_loss_of_large_scores_that_differ_little() -> None:
    x = torch.randn(5, 40, dtype=torch.float64).float() + 1e5
    target = torch.randint(40, (5,))
    for smoothing in (0.0, 0.1):
        want = torch.nn.functional.cross_entropy(x.double(), target, label_smoothing=smoothing)
        got = torch.ops.avo.cross_entropy(x, target, label_smoothing=smoothing)
        torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-6)


def test_scores_that_are_left_out() -> None:
    x = torch.randn(5, 40)
    x[:, 20:] = -torch.inf
    x.requires_grad_()
    loss = torch.ops.avo.cross_entropy(x, torch.arange(5))
    (grad,) = torch.autograd.grad(loss, x)
    want = torch.nn.functional.cross_entropy(x, torch.arange(5))
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(grad, torch.autograd.grad(want, x)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": torch.zeros(4, 7)}, "target must hold class indices"),
        (
            {"target": torch.zeros(4, dtype=torch.uint8)},
            "target must be a tensor of whole numbers .* but is uint8",
        ),
        ({"target": torch.zeros(3, dtype=torch.int64)}, r"target must have shape \[4\]"),
        ({"label_smoothing": 2.0}, "label_smoothing must be in"),
        ({"reduction": "avg"}, "reduction must be 'none', 'mean' or 'sum', but is 'avg'"),
        ({"weight": torch.ones(7, requires_grad=True)}, "weight must not require a gradient"),
        ({"weight": torch.ones(6)}, r"weight must have shape \[7\]"),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    good = {"x": torch.randn(4, 7), "target": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(RuntimeError, match=message):
        torch.ops.avo.cross_entropy(**{**good, **arguments})


# ---- what is drawn ----


def test_philox_gives_the_published_numbers() -> None:
    """Of Random123's file of known answers, philox4x32 with 10 rounds; its counter has 128 bits, ours the lower 64."""
    words = philox(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    assert [int(w) for w in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_draw_what_the_definition_draws(device: str) -> None:
    torch.manual_seed(1)
    for n in (1, 3, 5, 16, 33, 2049, 4100):
        seed = torch.randint(-(2**63), 2**63 - 1, (7, 1)).to(device)
        want = uniform(seed, torch.arange(n, device=device)) >= 0.3
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            x = torch.ones(7, n, dtype=dtype, device=device)
            assert torch.equal(torch.ops.avo.dropout_rows(x, seed, 0.3) != 0, want), (n, dtype)
            if device == "cpu" and n < 2050:
                with testing.emulate():
                    assert torch.equal(torch.ops.avo.dropout_rows(x, seed, 0.3) != 0, want), (n, dtype)


def test_dropout_is_what_it_says() -> None:
    torch.manual_seed(2)
    x = torch.ones(400, 1000, requires_grad=True)
    y = torch.ops.avo.dropout(x, 0.25)
    kept = y != 0
    assert abs(float(kept.float().mean()) - 0.75) < 5 * (0.25 * 0.75 / kept.numel()) ** 0.5
    # Rows and columns do not know of each other.
    for dim in (0, 1):
        share, count = kept.float().mean(dim), kept.shape[dim]
        assert abs(float(share.var()) / (0.25 * 0.75 / count) - 1) < 0.3
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.75))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y.detach())
    assert not torch.equal(torch.ops.avo.dropout(x, 0.25), y)
    torch.manual_seed(2)
    assert torch.equal(torch.ops.avo.dropout(x, 0.25), y)
    assert not torch.ops.avo.dropout(x, 1.0).any()
    with pytest.raises(RuntimeError, match=r"p must be in \[0, 1\], but is 1.5"):
        torch.ops.avo.dropout(x, 1.5)


def test_dropout_under_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(8, 100, requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.avo.dropout_add(x.sin(), x, 0.5)

    torch.manual_seed(3)
    (want,) = torch.autograd.grad(block(x).square().sum(), x)
    torch.manual_seed(3)
    (got,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).square().sum(), x)
    assert torch.equal(got, want)
