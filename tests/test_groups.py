"""Operators whose rows are groups of channels: what the shapes of the catalogue-wide tests (rows, columns) do not show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from catalogue import RECORDS, RELATIVE, assert_close, column_argument

import avo_ops

GROUPED = [r for r in RECORDS.values() if r.columns.rule == "groups"]
each = pytest.mark.parametrize("record", GROUPED, ids=lambda r: r.name)

# Shapes and groups: instance norm, one group, one channel a group, positions that are odd, one, and none at all.
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((2, 12, 5, 3), 3),
    ((3, 8, 16, 16), 8),
    ((2, 8, 4, 4), 1),
    ((4, 6), 3),
    ((5, 24, 1), 4),
    ((2, 6, 1, 1), 6),
    ((3, 20, 7), 5),
    ((2, 40, 9, 9), 4),
    ((1, 4, 2, 3, 5), 2),
    ((2, 64, 8, 8), 16),
    ((1, 4, 300, 3), 2),
]
EXTREME: list[tuple[tuple[int, ...], int]] = [((1, 2, 1000, 500), 1), ((2, 1, 131072), 1), ((1, 3000, 1), 1)]


def inputs(
    shape: tuple[int, ...], dtype: torch.dtype, weight: torch.dtype | None = None
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shape))
    x, w, b = (
        torch.randn(s, generator=generator, dtype=torch.float64) for s in (shape, shape[1:2], shape[1:2])
    )
    return [x.to(dtype), w.to(weight or dtype), b.to(weight or dtype)]


def results(
    function: Any,
    tensors: list[torch.Tensor],
    groups: int,
    grad: torch.Tensor,
    wanted: tuple[bool, ...] = (True,) * 3,
) -> list[torch.Tensor]:
    """The result and the gradients wanted."""
    x, w, b = (t.detach().requires_grad_(want) for t, want in zip(tensors, wanted, strict=True))
    y = function(x, groups, w, b, 1e-3)
    leaves = [t for t, want in zip((x, w, b), wanted, strict=True) if want]
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def check(record: Any, shape: tuple[int, ...], groups: int, dtype: torch.dtype, weight: torch.dtype) -> None:
    tensors = inputs(shape, dtype, weight)
    op = getattr(torch.ops.avo, record.name)
    grad = torch.randn(shape, dtype=torch.float64).to(dtype)
    got = results(op, tensors, groups, grad)
    want = results(record.definition, [t.double() for t in tensors], groups, grad.double())
    for name, a, b in zip(("y", "x", "weight", "bias"), got, want, strict=True):
        of = dtype if name in ("y", "x") else weight
        # Sums of thousands of terms of either sign.
        assert_close(a, b, of, f"{record.name} {shape} {groups} {name}", 4.0, 1.0 if name != "y" else 0.1)


@each
@pytest.mark.parametrize("shape,groups", SHAPES)
def test_values_and_gradients(record: Any, shape: tuple[int, ...], groups: int) -> None:
    torch.manual_seed(0)
    for dtype in RELATIVE:
        check(record, shape, groups, dtype, dtype)
    check(record, shape, groups, torch.bfloat16, torch.float32)


def test_values_and_gradients_in_the_emulator() -> None:
    """The CUDA kernels: runs of whole vectors, of fewer elements than one, and such that a vector reaches over two."""
    record = RECORDS["group_norm_silu"]
    torch.manual_seed(0)
    avo_ops.reset_stats()
    with avo_ops.testing.emulate():
        for shape, groups in SHAPES[:-1]:
            check(record, shape, groups, torch.bfloat16, torch.bfloat16)
        x, w, b = inputs((2, 12, 5, 3), torch.bfloat16)
        last = x.contiguous(memory_format=torch.channels_last)
        y = torch.ops.avo.group_norm_silu(last, 3, w, b)
        assert y.stride() == last.stride() and torch.equal(y, torch.ops.avo.group_norm_silu(x, 3, w, b))
    ran = [key for key in avo_ops.stats() if key.startswith("avo::group_norm_silu")]
    assert not any("definition" in key for key in ran)
    assert any("_to_weight_bias__bf16" in key for key in ran), ran  # the kernel of the runs


@each
@pytest.mark.parametrize("shape,groups", EXTREME)
def test_long_rows(record: Any, shape: tuple[int, ...], groups: int) -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        check(record, shape, groups, dtype, dtype)


def layouts(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The same values of a tensor of four dims in other strides."""
    yield "channels last", x.contiguous(memory_format=torch.channels_last)
    wide = x.new_full((2 * x.shape[0], *x.shape[1:]), float("nan"))
    wide[::2] = x
    yield "every second sample", wide[::2]
    more = x.new_full((x.shape[0], 2 * x.shape[1], *x.shape[2:]), float("nan"))
    more[:, : x.shape[1]] = x
    yield "half of the channels", more[:, : x.shape[1]]
    yield "half of the channels last", more.contiguous(memory_format=torch.channels_last)[:, : x.shape[1]]
    yield "transposed", x.transpose(2, 3).contiguous().transpose(2, 3)
    yield "channels first of all", x.transpose(0, 1).contiguous().transpose(0, 1)
    yield "offset", torch.cat([x.new_full((1,), float("nan")), x.reshape(-1)])[1:].view(x.shape)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_layout_has_the_same_bits_and_keeps_torchs_memory_format(record: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    op = getattr(torch.ops.avo, record.name)
    for shape, groups in (
        ((2, 40, 6, 6), 4),
        ((2, 12, 5, 3), 3),
        ((3, 48, 4, 4), 1),
        ((2, 8, 3, 7), 8),
        ((2, 4, 1, 6), 2),
    ):
        x, w, b = inputs(shape, dtype)
        grad = torch.randn(shape).to(dtype)
        want = results(op, [x, w, b], groups, grad)
        for (what, other), (what_grad, other_grad) in itertools.product(layouts(x), layouts(grad)):
            got = results(op, [other, w, b], groups, other_grad)
            for a, c in zip(got, want, strict=True):
                assert torch.equal(a, c), f"{what}, gradient {what_grad}"
            eager = results(record.twin, [other, w, b], groups, other_grad)
            for a, c in zip(got[:2], eager, strict=False):
                assert a.stride() == c.stride(), f"{what}: {a.stride()}, torch's {c.stride()}"
        same = torch.ones((), dtype=dtype).expand(shape)
        for a, c in zip(
            results(op, [x, w, b], groups, same),
            results(op, [x, w, b], groups, same.contiguous()),
            strict=True,
        ):
            assert torch.equal(a, c)
        strided = [w.repeat_interleave(2)[::2], b[:1].expand(shape[1])]
        for a, c in zip(
            results(op, [x, *strided], groups, grad),
            results(op, [x, w, strided[1].contiguous()], groups, grad),
            strict=True,
        ):
            assert torch.equal(a, c)


# Few channels a group: rows come in panels whose tiles reach from one to the next, or do not; whole ones, a rest of columns or
# of runs, panels that the threads cut; rows so long that one would be a chunk of the sums.
PANELS = [
    ((1, 96, 5, 7), 32),
    ((2, 80, 4, 8), 10),
    ((2, 35, 6, 6), 7),
    ((1, 22, 3, 6), 11),
    ((1, 12, 4, 5), 6),
    ((3, 64, 33, 32), 32),
    ((3, 40, 96, 96), 8),
]


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_neighbouring_groups_that_come_together_have_the_same_bits(record: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    op = getattr(torch.ops.avo, record.name)
    threads = torch.get_num_threads()
    for shape, groups in PANELS:
        x, w, b = inputs(shape, dtype)
        grad = torch.randn(shape).to(dtype)
        want = results(op, [x, w, b], groups, grad)
        for what, other in list(layouts(x))[:4]:
            for count in (1, 3):
                try:
                    torch.set_num_threads(count)
                    got = results(
                        op, [other, w, b], groups, grad.contiguous(memory_format=torch.channels_last)
                    )
                finally:
                    torch.set_num_threads(threads)
                for a, c in zip(got, want, strict=True):
                    assert torch.equal(a, c), f"{shape}, {what}, {count} threads"


@each
def test_a_sample_does_not_depend_on_the_others(record: Any) -> None:
    x, w, b = inputs((9, 24, 10, 10), torch.float32)
    grad = torch.randn(x.shape)
    op = getattr(torch.ops.avo, record.name)
    y, gx, *_ = results(op, [x, w, b], 6, grad)
    for i in range(9):
        alone = results(op, [x[i : i + 1], w, b], 6, grad[i : i + 1])
        assert torch.equal(alone[0], y[i : i + 1]) and torch.equal(alone[1], gx[i : i + 1])
    for wanted in itertools.product((False, True), repeat=3):
        if any(wanted):
            some = results(op, [x, w, b], 6, grad, wanted)
            every = results(op, [x, w, b], 6, grad)
            kept = [every[0], *(g for g, want in zip(every[1:], wanted, strict=True) if want)]
            assert all(torch.equal(a, c) for a, c in zip(some, kept, strict=True)), wanted


@each
def test_values_of_large_means(record: Any) -> None:
    """Rows with a mean of 1e4 times their spread, and constant ones."""
    x = torch.randn(2, 32, 24, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for values in (x + 1e4, x * 1e-3 + 7, torch.full_like(x, 3.1), x * 1e15):
        values = values.float()
        got = getattr(torch.ops.avo, record.name)(values, 4)
        want = record.definition(values.double(), 4)
        assert float((got.double() - want).abs().max()) < 2e-5


@each
def test_empty(record: Any) -> None:
    op = getattr(torch.ops.avo, record.name)
    for shape in ((0, 6, 4, 4), (2, 6, 0, 4), (0, 6), (2, 6, 0), (2, 0, 3)):
        tensors = inputs(shape, torch.float32)
        y, gx, gw, gb = results(op, tensors, 3, torch.zeros(shape))
        assert (
            y.shape == gx.shape == shape
            and gw.shape == gb.shape == shape[1:2]
            and not gw.any()
            and not gb.any()
        )


@each
def test_what_is_refused(record: Any) -> None:
    op, name = getattr(torch.ops.avo, record.name), record.name
    x = torch.randn(2, 6, 5)
    argument = record.columns.arg
    for groups in (4, 0, -2, 12):
        said = f"{name}: {argument} must divide the number of channels, 6 \\(dimension 1 of x\\), but is {groups}"
        for device in ("cpu", "meta"):
            with pytest.raises(RuntimeError, match=said):
                op(x.to(device), groups)
    with pytest.raises(RuntimeError, match=f"{name}: x must have 2 to 63 dimensions"):
        op(x[0, 0], 1)
    with pytest.raises(
        RuntimeError, match=f"{name}: weight must have shape \\[6\\] \\(dimension 1 of x\\), but has"
    ):
        op(x, 2, torch.randn(3))


@each
def test_a_citizen_of_torch(record: Any) -> None:
    op = getattr(torch.ops.avo, record.name)
    x, w, b = inputs((2, 6, 3, 4), torch.float64)
    for layout in (torch.contiguous_format, torch.channels_last):
        leaves = [t.clone().requires_grad_() for t in (x.contiguous(memory_format=layout), w, b)]
        torch.library.opcheck(op.default, (leaves[0], 3, *leaves[1:]))

        def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return op(x, 3, w, b)

        assert torch.autograd.gradcheck(call, leaves, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(call, leaves)
    batched = torch.randn(3, 2, 6, 4)
    for a, c in zip(torch.func.vmap(lambda x: op(x, 2))(batched), batched, strict=True):
        torch.testing.assert_close(a, record.twin(c, 2))
    torch.testing.assert_close(
        torch.func.grad(lambda x: op(x, 2).square().sum())(batched[0]),
        torch.func.grad(lambda x: record.twin(x, 2).square().sum())(batched[0]),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


@each
def test_compiled_and_in_strict_mode(record: Any) -> None:
    op = getattr(torch.ops.avo, record.name)
    x, w, b = inputs((2, 12, 6, 6), torch.float32)
    compiled = torch.compile(lambda x, w, b: op(x * 1.0, 4, w, b), fullgraph=True, backend="aot_eager")
    grad = torch.randn(x.shape)
    for values in (x, x.contiguous(memory_format=torch.channels_last), x.repeat(2, 1, 1, 2)):
        grad = torch.randn(values.shape)
        with avo_ops.strict():
            got = results(lambda x, g, w, b, e: compiled(x, w, b), [values, w, b], 4, grad)
            want = results(lambda x, g, w, b, e: op(x * 1.0, 4, w, b), [values, w, b], 4, grad)
        assert all(torch.equal(a, c) and a.stride() == c.stride() for a, c in zip(got, want, strict=True))


def test_the_canonical_call_is_layer_norm() -> None:
    x, w, b = inputs((7, 40), torch.float32)
    assert column_argument(RECORDS["group_norm"]) == 1
    torch.testing.assert_close(torch.ops.avo.group_norm(x, 1, w, b), F.layer_norm(x, [40], w, b))


# ---- modules ----------------------------------------------------------------------------------------------------


class Resnet(torch.nn.Module):
    """A residual block as diffusers has it: a statement for the norm, one for the activation."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.norm1 = torch.nn.GroupNorm(4, channels)
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = torch.nn.GroupNorm(2, channels, affine=False)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.nonlinearity = torch.nn.SiLU(inplace=True)

    def forward(self, input_tensor: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        hidden_states = input_tensor
        hidden_states = self.norm1(hidden_states)
        hidden_states = self.nonlinearity(hidden_states)
        hidden_states = self.conv1(hidden_states)
        hidden_states = self.conv2(F.silu(self.norm2(hidden_states)))
        return (input_tensor + hidden_states) / scale


class UsedTwice(Resnet):
    def forward(self, input_tensor: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        normed = self.norm1(input_tensor)
        return self.conv1(self.nonlinearity(normed * 1.0)) + normed


class Gated(Resnet):
    """The activation of a norm as a gate: swiglu, not group_norm_silu."""

    def forward(self, input_tensor: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        gate = self.norm1(input_tensor)
        return F.silu(self.norm2(input_tensor)) * self.conv1(input_tensor) + self.conv2(gate)


def test_replace_takes_a_silu_after_a_group_norm_into_one_operator() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 5, 5)
    for cls, expected in (
        (Resnet, "Resnet with group_norm_silu"),
        (UsedTwice, None),
        (Gated, "Gated with swiglu"),
    ):
        own, model = cls(), cls()
        model.load_state_dict(own.state_dict())
        report = avo_ops.nn.replace(model)
        news = [r.new for r in report.replaced if r.name == "(the model itself)"]
        assert news == ([expected] if expected else []), str(report)
        assert type(model.norm1) is avo_ops.nn.GroupNorm and repr(model) == repr(own)
        got, want = model(x.clone()), own(x.clone())
        torch.testing.assert_close(got, want)
        got.sum().backward()
        want.sum().backward()
        for p, q in zip(model.parameters(), own.parameters(), strict=True):
            if q.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
        avo_ops.nn.restore(model)
        assert type(model) is cls and type(model.norm1) is torch.nn.GroupNorm
    counted = Resnet()
    avo_ops.nn.replace(counted)
    counted.norm1.register_forward_hook(lambda module, args, y: 2 * y)  # then it runs as it was written
    before = avo_ops.stats()
    counted(x)
    ran = {k for k, v in avo_ops.stats().items() if v != before.get(k, 0)}
    assert {k.split(" ")[0] for k in ran} >= {"avo::group_norm_forward", "avo::group_norm_silu_forward"}, ran
