"""Operators made of others: values, gradients, every way in; and what dropout draws."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from catalogue import DEVICES, RELATIVE, real

import avo_ops
from avo_ops import testing
from avo_ops.definitions import COMPOSITES, Composite
from avo_ops.definitions.composites import QK_NORM_ROPE
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
        grads.append(torch.randn(w.shape, dtype=torch.float64).to(dtype).to(w.device))
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


@pytest.mark.parametrize("randomness", ["same", "different", "error"])
def test_vmap_draws_as_it_is_told(randomness: str) -> None:
    avo, x = torch.ops.avo, torch.ones(4, 40)
    for function in (
        avo.dropout,
        lambda x: avo.bias_dropout_add(x, x * 0.5, x),
        lambda x: avo.dropout_add_layer_norm(x, x, [40])[1],
        lambda x: avo.dropout_add_rms_norm(x, x, [40])[1],
    ):
        batched = torch.func.vmap(function, randomness=randomness)
        if randomness == "error":
            with pytest.raises(RuntimeError, match="randomness error mode"):
                batched(x)
        else:
            y = batched(x)
            assert torch.equal(y, y[:1].expand(4, 40)) == (randomness == "same")


def test_losses_of_mixed_dtypes() -> None:
    """The dtype is that to which both promote, with and without a reduction, and each gradient has its tensor's."""
    names = ["mse_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div", "jsd"]
    x, target = torch.randn(4, 5, requires_grad=True), torch.rand(4, 5).bfloat16().requires_grad_()
    for name in names:
        for a, b in ((x, target), (target, x.detach().sigmoid().requires_grad_())):
            for reduction in ("none", "sum"):
                loss = getattr(torch.ops.avo, name)(a, b, reduction)
                assert loss.dtype == torch.float32, (name, reduction)
                for gradient, t in zip(torch.autograd.grad(loss.sum(), (a, b)), (a, b), strict=True):
                    assert gradient.dtype == t.dtype


def test_losses_of_shapes_that_do_not_fit() -> None:
    x, target = torch.randn(4, 5), torch.rand(4)
    for name in ("mse_loss", "huber_loss", "kl_div", "jsd"):
        for reduction in ("none", "sum"):
            message = rf"{name}: target must have shape \[4, 5\] \(that of x\) or broadcast to it, but has shape \[4\]"
            with pytest.raises(RuntimeError, match=message):
                getattr(torch.ops.avo, name)(x, target, reduction)


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


# ---- divergences ----


def _entropies(beta: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Log-probabilities with zeros on either side and on both, the loss and its gradients by probabilities, in float64."""
    generator = torch.Generator().manual_seed(5)
    x, target = torch.randn(2, 4, 33, generator=generator, dtype=torch.float64)
    x[:, :5] = -torch.inf  # the student never says what a class of the first 3 is
    target[:, 3:9] = -torch.inf
    x, target = x.log_softmax(-1), target.log_softmax(-1)
    p, q = target.exp(), x.exp()
    logs = [torch.where(v == 0, 0.0, v.where(v > 0, 1.0).log()) for v in (p, q, beta * p + (1 - beta) * q)]
    loss = beta * p * (logs[0] - logs[2]) + (1 - beta) * q * (logs[1] - logs[2])
    return x, target, loss, [(1 - beta) * q * (logs[1] - logs[2]), beta * p * (logs[0] - logs[2])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_jsd_where_probabilities_are_zero(beta: float, reduction: str, dtype: torch.dtype) -> None:
    x, target, want, gradients = _entropies(beta)
    one, other = (t.to(dtype).requires_grad_() for t in (x, target))
    loss = torch.ops.avo.jsd(one, other, reduction, beta)
    close = {"rtol": 1e-5, "atol": 1e-7} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-14}
    torch.testing.assert_close(loss.double(), want if reduction == "none" else want.sum(), **close)
    for got, exact in zip(torch.autograd.grad(loss.sum(), (one, other)), gradients, strict=True):
        torch.testing.assert_close(got.double(), exact, **close)
    # By the definition, as function transforms differentiate it.
    got = torch.func.grad(lambda x: torch.ops.avo.jsd(x, other.detach(), reduction, beta).sum())(one.detach())
    torch.testing.assert_close(got.double(), gradients[0], **close)
    torch.autograd.gradgradcheck(
        lambda x: torch.ops.avo.jsd(x, target, reduction, beta),
        x.clamp(min=-50).requires_grad_(),
        fast_mode=True,
    )


def test_divergences_of_one_side_where_probabilities_are_zero() -> None:
    x, target, _, _ = _entropies(0.5)
    for beta, (p, q) in ((0.0, (target, x)), (1.0, (x, target))):
        want = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q))
        one, other = x.clone().requires_grad_(), target.clone().requires_grad_()
        elements = torch.ops.avo.jsd(one, other, "none", beta)
        torch.testing.assert_close(elements, want)
        assert torch.ops.avo.jsd(one, other, "batchmean", beta) == torch.inf  # somewhere q = 0 and p > 0
        finite = q > -torch.inf
        both = torch.autograd.grad(elements[finite].sum(), (one, other))
        of_q, of_p = both if beta == 0.0 else both[::-1]
        torch.testing.assert_close(of_q, torch.where(finite, -p.exp(), 0.0))
        of_p, want = of_p[finite], torch.where(p == -torch.inf, 0.0, p.exp() * (p - q + 1))[finite]
        torch.testing.assert_close(of_p, want)


def test_jsd_of_what_hardly_differs() -> None:
    """Second order in the difference, of which the sum of two logarithms of rounded mixtures keeps nothing."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(5, 400, generator=generator, dtype=torch.float64).log_softmax(-1).float()
    target = (x.double() + 1e-4 * torch.randn(5, 400, generator=generator, dtype=torch.float64)).float()
    one = x.clone().requires_grad_()
    wide = x.double().requires_grad_()
    got, want = torch.ops.avo.jsd(one, target), torch.ops.avo.jsd(wide, target.double())
    torch.testing.assert_close(
        torch.autograd.grad(got, one)[0].double(), torch.autograd.grad(want, wide)[0], rtol=1e-2, atol=1e-12
    )
    torch.testing.assert_close(torch.ops.avo.jsd(x, x), torch.zeros(()), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 1.5}, r"jsd: beta must be in \[0, 1\], but is 1.5"),
        ({"reduction": "avg"}, "jsd: reduction must be 'none', 'mean', 'sum' or 'batchmean', but is 'avg'"),
    ],
)
def test_refusals_of_jsd(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.ops.avo.jsd(torch.randn(4, 7), torch.randn(4, 7), **arguments)


def test_jsd_broadcasts_and_mixes_dtypes() -> None:
    x, target = torch.randn(3, 4, 7).log_softmax(-1), torch.randn(7).log_softmax(-1)
    for beta in (0.0, 0.3, 1.0):
        want = torch.ops.avo.jsd(x, target.expand(3, 4, 7).contiguous(), beta=beta)
        torch.testing.assert_close(torch.ops.avo.jsd(x, target, beta=beta), want)
        other = torch.ops.avo.jsd(x.bfloat16(), target, "none", beta)
        assert other.dtype == torch.float32 and other.shape == (3, 4, 7)
        assert torch.ops.avo.jsd(x.sum(), target.sum(), "none", beta).shape == ()


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


_DRAWS = """
import torch, avo_ops
from avo_ops.definitions.random import uniform
torch.manual_seed(1)
for n in (5, 16, 33, 2049):
    seed = torch.randint(-(2**63), 2**63 - 1, (7, 1))
    want = uniform(seed, torch.arange(n)) >= 0.3
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(torch.ops.avo.dropout_rows(torch.ones(7, n, dtype=dtype), seed, 0.3) != 0, want), (n, dtype)
print(*avo_ops.stats())
"""


@pytest.mark.parametrize("isa", ["base", "v3"])
def test_older_machines_draw_the_same(isa: str) -> None:
    environment = {**os.environ, "AVO_OPS_CPU_ISA": isa}
    run = subprocess.run(
        [sys.executable, "-c", _DRAWS],
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    if "AVO_OPS_CPU_ISA" in run.stderr or run.returncode < 0:
        pytest.skip(f"no kernels for {isa} here")
    assert run.returncode == 0, run.stderr
    assert f"avo::dropout_rows / cpu/{isa}/dropout_rows_forward" in run.stdout


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


def test_gradients_where_everything_falls() -> None:
    x, residual, weight = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8), torch.ones(8)
    for y in (
        torch.ops.avo.dropout(x, 1.0),
        torch.ops.avo.bias_dropout_add(x, None, residual, 1.0),
        torch.ops.avo.dropout_add_layer_norm(x, residual, [8], weight, None, 1.0)[0],
        torch.ops.avo.dropout_add_rms_norm(x, residual, [8], weight, 1.0)[0],
    ):
        assert y.isfinite().all() and not torch.autograd.grad(y.square().sum(), x)[0].any()


# name, further arguments, the norm of torch
NORMS = [
    ("layer", lambda w, b: (w, b), lambda x, s, w, b: torch.nn.functional.layer_norm(x, s, w, b)),
    ("layer", lambda w, b: (w, None), lambda x, s, w, b: torch.nn.functional.layer_norm(x, s, w)),
    ("layer", lambda w, b: (None, None), lambda x, s, w, b: torch.nn.functional.layer_norm(x, s)),
    ("rms", lambda w, b: (w,), lambda x, s, w, b: torch.nn.functional.rms_norm(x, s, w)),
    ("rms", lambda w, b: (None,), lambda x, s, w, b: torch.nn.functional.rms_norm(x, s)),
]


@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("shape", [[40], [5, 8]], ids=str)
@pytest.mark.parametrize("norm", range(len(NORMS)))
def test_norm_of_what_dropout_leaves(norm: int, shape: list[int], used: tuple[bool, bool]) -> None:
    """The values that are kept are those of ``dropout_add`` from the same seed; the rest is torch's, in float64."""
    name, settings, function = NORMS[norm]
    generator = torch.Generator().manual_seed(4)
    draw = {"generator": generator, "dtype": torch.float64}
    x, residual = torch.randn(2, 6, *shape, **draw)
    weight, bias = torch.randn(2, *shape, **draw)
    leaves = [t.clone().requires_grad_() for t in (x, residual, weight, bias)]
    torch.manual_seed(7)
    op = getattr(torch.ops.avo, f"dropout_add_{name}_norm")
    outs = op(leaves[0], leaves[1], shape, *settings(leaves[2], leaves[3]), 0.25)
    again = [t.clone().requires_grad_() for t in (x, residual, weight, bias)]
    torch.manual_seed(7)
    flat = torch.ops.avo.dropout(again[0].flatten(-len(shape)), 0.25).reshape(x.shape)
    residual_out = again[1] + flat
    wants = (function(residual_out, shape, again[2], again[3]), residual_out)
    torch.testing.assert_close(outs, wants)
    assert 0.1 < float((flat == 0).double().mean()) < 0.4
    for a, b in zip(leaves, again, strict=True):
        got, want = (
            torch.autograd.grad(
                sum(o.sin().sum() for o, u in zip(o, used, strict=True) if u),
                t,
                retain_graph=True,
                allow_unused=True,
            )[0]
            for o, t in ((outs, a), (wants, b))
        )
        assert got is not None or want is None
        if got is not None:
            torch.testing.assert_close(got, torch.zeros_like(got) if want is None else want)


def test_norm_of_what_dropout_leaves_by_the_cuda_kernels() -> None:
    x, residual, weight, bias = torch.randn(4, 6, 40)
    results = []
    for context in (contextlib.nullcontext, testing.emulate):
        leaves = [t.clone().requires_grad_() for t in (x, residual, weight[0], bias[0])]
        torch.manual_seed(8)
        with context():
            y, out = torch.ops.avo.dropout_add_layer_norm(*leaves[:2], [40], *leaves[2:], 0.3)
            z, _ = torch.ops.avo.dropout_add_rms_norm(y, out, [40], leaves[2], 0.3)
            results.append([y, out, z, *torch.autograd.grad(z.sin().sum() + out.cos().sum(), leaves)])
    torch.testing.assert_close(*results)


def test_mixed_dtypes_and_refusals_of_dropout_and_norm() -> None:
    op = torch.ops.avo.dropout_add_layer_norm
    x, residual = torch.randn(6, 40).bfloat16(), torch.randn(6, 40)
    y, out = op(x, residual, [40], torch.ones(40), torch.zeros(40), 0.5)
    assert y.dtype == torch.bfloat16 and out.dtype == torch.float32
    y, out = op(x, residual[0], [40])  # a residual that broadcasts
    assert y.shape == out.shape == (6, 40)
    for arguments, message in (
        ((x, residual, [40], None, None, -0.1), r"p must be in \[0, 1\], but is -0.1"),
        ((x, residual, [39]), r"normalized_shape must be the last dimensions of x, whose shape is \[6, 40\]"),
        ((x, residual, []), r"normalized_shape must have at least 1 entry, but is \[\]"),
        ((x, residual, [40], torch.ones(39)), r"weight must have shape \[40\] \(normalized_shape\)"),
        ((x, residual, [40], None, torch.ones(40, 1)), r"bias must have shape \[40\] \(normalized_shape\)"),
        ((x, residual[:5], [40]), r"residual must have shape \[6, 40\] \(that of x\) or broadcast to it"),
    ):
        with pytest.raises(RuntimeError, match=f"dropout_add_layer_norm: {message}"):
            op(*arguments)


@pytest.mark.parametrize("training", [True, False])
def test_sums_after_dropout_broadcast(training: bool) -> None:
    """x or the residual may be the smaller; the dtype is that of x, in evaluation as in training."""
    op = torch.ops.avo.bias_dropout_add
    for shape, other in (((1, 40), (6, 40)), ((40,), (6, 40)), ((6, 1), (6, 40)), ((6, 40), (40,)), ((), ())):
        x, residual = torch.ones(shape, requires_grad=True), torch.zeros(other, requires_grad=True)
        y = op(x, None, residual, 0.5, training)
        assert y.shape == torch.broadcast_shapes(shape, other)
        gx, gr = torch.autograd.grad(y.sum(), (x, residual))
        torch.testing.assert_close(gx, y.detach().sum_to_size(shape))  # x is 1: what is left of it
        assert torch.equal(gr, torch.ones(y.shape).sum_to_size(other))
    x, residual, bias = torch.randn(6, 40), torch.randn(6, 40), torch.randn(40)
    for dtypes in itertools.product((torch.float32, torch.bfloat16, torch.float64), repeat=3):
        a, b, c = (t.to(dtype) for t, dtype in zip((x, bias, residual), dtypes, strict=True))
        assert op(a, b, c, 0.5, training).dtype == dtypes[0]
    for b, message in (
        (torch.ones(39), r"bias must have shape \[40\] \(the last dimension of x\), but has shape \[39\]"),
        (torch.ones(6, 40), r"bias must have shape \[40\]"),
    ):
        with pytest.raises(RuntimeError, match=f"bias_dropout_add: {message}"):
            op(x, b, residual, 0.5, training)
    with pytest.raises(RuntimeError, match=r"dropout_add: residual must have shape \[6, 40\] \(that of x\)"):
        torch.ops.avo.dropout_add(x, residual[:5], 0.5, training)


@pytest.mark.parametrize("name", ["layer", "rms"])
def test_dropout_and_norm_compiled(name: str) -> None:
    op = getattr(torch.ops.avo, f"dropout_add_{name}_norm")

    def step(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        settings = (None, 0.5) if name == "layer" else (0.5,)
        y, out = op(x.sin(), residual, [40], weight, *settings)
        return y * out

    x, residual, weight = torch.randn(6, 40), torch.randn(6, 40), torch.randn(40)
    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        leaves = [t.clone().requires_grad_() for t in (x, residual, weight)]
        torch.manual_seed(9)
        out = function(*leaves)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_dropout_under_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(8, 100, requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        y, out = torch.ops.avo.dropout_add_layer_norm(x.sin(), x, [100])
        y, out = torch.ops.avo.dropout_add_rms_norm(y, out, [100])
        return torch.ops.avo.dropout_add(y, out, 0.5)

    torch.manual_seed(3)
    (want,) = torch.autograd.grad(block(x).square().sum(), x)
    torch.manual_seed(3)
    (got,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).square().sum(), x)
    assert torch.equal(got, want)


# ---- norms of heads before a rotation ----


def _heads(dtype: torch.dtype, width: int = 16) -> dict[str, torch.Tensor]:
    shapes = {"q": (2, 5, 4, width), "k": (2, 5, 2, width), "cos": (5, 1, 8), "sin": (5, 1, 8)}
    made = {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}
    weights = {name: torch.randn(width).to(dtype) for name in ("q_weight", "k_weight")}
    return {**made, **weights}


def _value_and_gradients(function: Any, arguments: dict[str, Any], **more: Any) -> list[torch.Tensor]:
    leaves = {k: v.detach().requires_grad_(k not in ("cos", "sin")) for k, v in arguments.items()}
    outs = function(**leaves, **more)
    wanted = [v for v in leaves.values() if v.requires_grad]
    grads = [torch.linspace(-2, 2, o.numel()).reshape(o.shape).bfloat16().to(o.dtype) for o in outs]
    return [*outs, *torch.autograd.grad(outs, wanted, grads)]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scale", ["weight", "one_plus_weight"])
def test_heads_are_normed_and_turned_by_one_kernel(interleaved: bool, scale: str) -> None:
    """Where cos and sin are constants and turn all columns: the result and each gradient is rounded once."""
    avo_ops.reset_stats()
    more = {"interleaved": interleaved, "scale": scale}
    for dtype, way in ((torch.float32, testing.emulate), (torch.bfloat16, contextlib.nullcontext)):
        arguments = _heads(dtype)
        with way():
            got = _value_and_gradients(torch.ops.avo.qk_norm_rope, arguments, **more)
        wide = {k: v.double() for k, v in arguments.items()}
        for a, b in zip(got, _value_and_gradients(QK_NORM_ROPE.reference, wide, **more), strict=True):
            assert a.dtype == dtype
            torch.testing.assert_close(a.double(), b, rtol=4 * RELATIVE[dtype], atol=8 * RELATIVE[dtype])
    name = "rms_norm_rotary_pairs" if interleaved else "rms_norm_rotary_halves"
    ops = {path.partition(" / ")[0] for path in avo_ops.stats()}
    assert ops == {f"avo::{name}_forward", f"avo::{name}_backward"}


def test_heads_that_are_turned_in_part_are_normed_whole() -> None:
    arguments = _heads(torch.float64, 20)
    got = _value_and_gradients(torch.ops.avo.qk_norm_rope, arguments)
    torch.testing.assert_close(got, _value_and_gradients(QK_NORM_ROPE.reference, arguments))
    assert torch.equal(
        got[0][..., 16:], torch.ops.avo.rms_norm(arguments["q"], [20], arguments["q_weight"])[..., 16:]
    )


def test_angles_that_are_learned_have_gradients() -> None:
    """The one kernel has none for them."""
    arguments = _heads(torch.float64)
    results = []
    for function in (torch.ops.avo.qk_norm_rope, QK_NORM_ROPE.reference):
        angle = torch.linspace(0, 1, 40, dtype=torch.float64).reshape(5, 1, 8).requires_grad_()
        q, k = function(**{**arguments, "cos": angle.cos(), "sin": angle.sin()})
        results.append(torch.autograd.grad(q.sin().sum() + k.cos().sum(), angle)[0])
    torch.testing.assert_close(*results)


def test_positions_of_heads() -> None:
    """Tables of cos and sin, and positions that broadcast: heads before positions, and behind them."""
    arguments = _heads(torch.float64)
    cos, sin = torch.randn(2, 9, 8, dtype=torch.float64)
    ids = torch.tensor([[0, 3, 8, 1, 1], [2, 2, 7, 0, 4]])
    want = _value_and_gradients(
        torch.ops.avo.qk_norm_rope, {**arguments, "cos": cos[ids].unsqueeze(2), "sin": sin[ids].unsqueeze(2)}
    )
    tables = {**arguments, "cos": cos, "sin": sin}
    got = _value_and_gradients(torch.ops.avo.qk_norm_rope, tables, position_ids=ids.unsqueeze(2))
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    swapped = {k: v.transpose(1, 2) if k in "qk" else v for k, v in tables.items()}
    q, k = torch.ops.avo.qk_norm_rope(**swapped, position_ids=ids.int().unsqueeze(1))
    torch.testing.assert_close([q.transpose(1, 2), k.transpose(1, 2)], want[:2], rtol=0, atol=0)


def test_refusals_of_heads() -> None:
    good = _heads(torch.float32)
    ids = torch.zeros(2, 5, 1, dtype=torch.int64)
    for wrong, message in (
        ({"scale": "two"}, "scale must be 'weight' or 'one_plus_weight', but is 'two'"),
        (
            {"q_weight": torch.ones(8)},
            r"q_weight must have shape \[16\] \(the last dimension of q\), but has shape \[8\]",
        ),
        (
            {"k": torch.ones(2, 5, 2, 14)},
            "cos must have at most half as many columns as k, but their shapes are",
        ),
        (
            {"position_ids": ids.float()},
            r"position_ids must be a tensor of whole numbers \(int64 or int32\), but is float32",
        ),
        (
            {"position_ids": ids},
            "cos and sin must be tables of a row for each position where position_ids is given",
        ),
    ):
        with pytest.raises(RuntimeError, match=f"qk_norm_rope: {message}"):
            torch.ops.avo.qk_norm_rope(**{**good, **wrong})


def test_heads_compiled() -> None:
    def step(**arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.avo.qk_norm_rope(**arguments)  # type: ignore[no-any-return]

    arguments = _heads(torch.float32)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    one, two = (_value_and_gradients(f, arguments) for f in (step, compiled))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
