"""Operands whose rows have several strides, by the CUDA kernels in the emulator: run by test_emulator.py, in a process of its own.

    python tests/strided_rows.py NAME [NAME ...]

Each call gives the bits of the same call on contiguous tensors, forward and backward, and copies nothing: heads of a packed
projection, heads that lie behind their positions, operands that broadcast over heads or within a sample.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import avo_ops
from avo_ops import testing

Tensor = torch.Tensor
ops = torch.ops.avo


def of_projection(x: Tensor) -> Tensor:
    """(batch, position, head, column) as one of three projections that lie side by side: rows of two strides."""
    wide = x.new_full((*x.shape[:2], 3, *x.shape[2:]), float("nan"))
    wide[:, :, 1] = x
    return wide[:, :, 1]


def behind_positions(x: Tensor) -> Tensor:
    """The same values, each head with all its positions: rows of three strides."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def of_channels(x: Tensor) -> Tensor:
    """Some of the channels of (sample, channel, position): groups have two strides."""
    return torch.cat([x, x.new_full(x.shape, float("nan"))], 1)[:, : x.shape[1]]


@dataclass(frozen=True)
class Call:
    """An operator on tensors: how each lies, or that it is as small as this and broadcasts."""

    run: Callable[..., Any]
    shape: tuple[int, ...]
    tensors: dict[str, Any]
    dtype: torch.dtype = torch.float32
    arch: int = 90

    def made(self, apart: bool) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        out = {}
        for name, how in self.tensors.items():
            shape = how if isinstance(how, tuple) else self.shape
            value = torch.randn(shape, generator=generator).to(self.dtype)
            if isinstance(how, tuple):
                whole = apart or len(how) == 1
                value = value if whole else value.expand(*self.shape[:-1], how[-1]).contiguous()
            elif apart:
                value = how(value)
            out[name] = value.detach()
        return out

    def results(self, apart: bool) -> list[Tensor]:
        leaves = {k: v.requires_grad_(k not in ("cos", "sin", "scale")) for k, v in self.made(apart).items()}
        y = self.run(**leaves)
        grad = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype)
        if apart:
            first = next(iter(self.tensors.values()))
            grad = first(grad)
        wanted = [v for v in leaves.values() if v.requires_grad]
        return [y, *torch.autograd.grad(y, wanted, grad)]


def heads(n: int, small: bool = False) -> tuple[int, ...]:
    return (2, 1, 2, n) if small else (2, 5, 3, n)


def norm(n: int, lies: Callable[[Tensor], Tensor] = of_projection, **more: Any) -> Call:
    return Call(
        lambda x, w, b: ops.layer_norm(x, [n], w, b), heads(n), {"x": lies, "w": (n,), "b": (n,)}, **more
    )


def turned_norm(n: int, lies: Callable[[Tensor], Tensor], **more: Any) -> Call:
    angles = (1, 5, 1, n // 2)
    tensors = {"x": lies, "cos": angles, "sin": angles, "weight": (n,)}
    return Call(ops.rms_norm_rotary_halves, heads(n), tensors, **more)


def softmax(n: int, **more: Any) -> Call:
    return Call(lambda x: ops.softmax(x, -1), heads(n, small=n > 1000), {"x": of_projection}, **more)


def compiled(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1.0) * w


CALLS: dict[str, Call] = {
    # Rows that few threads hold and the next ones; of whole chunks, of none, an element at a time.
    "norm 128": norm(128),
    "norm 132": norm(132, behind_positions),
    "norm 31": norm(31),
    "norm bf16": norm(64, behind_positions, dtype=torch.bfloat16),
    "rotary 24": turned_norm(24, of_projection),
    "rotary 26": turned_norm(26, behind_positions, dtype=torch.bfloat16),
    # A cluster shares a row, and one block reads it again and again.
    "softmax 24": softmax(24),
    "softmax 32772": softmax(32772),
    "softmax 32772, sm_80": softmax(32772, arch=80),
    # An operand for each sample, pointwise rows, sums over the rows alone.
    "modulate": Call(
        lambda x, scale: ops.layer_norm_modulate(x, scale, scale, [24]), heads(24), {"x": of_projection, "scale": (2, 1, 1, 24)}
    ),
    "swiglu": Call(ops.swiglu, heads(24), {"gate": of_projection, "up": behind_positions}),
    "bias_gelu": Call(ops.bias_gelu, heads(24), {"x": behind_positions, "bias": (24,)}),
    "compiled": Call(avo_ops.compile(compiled), heads(24), {"x": of_projection, "w": (24,)}),
    # Sums over runs of columns.
    "group_norm": Call(
        lambda x, w, b: ops.group_norm(x, 3, w, b), (2, 6, 10), {"x": of_channels, "w": (6,), "b": (6,)}
    ),
}  # fmt: skip


def check(name: str) -> None:
    call = CALLS[name]
    with testing.emulate(call.arch, 2, order="random", fill=0x5A):
        avo_ops.reset_stats()
        got = call.results(apart=True)
        paths = avo_ops.stats()
        avo_ops.reset_stats()
        want = call.results(apart=False)
        plain = avo_ops.stats()
    assert len(got) == len(want) and all(torch.equal(a, b) for a, b in zip(got, want, strict=True)), name
    assert any(path.endswith("_strided") for path in paths), (name, paths)
    # No copy more: halves of a weight that do not start at a chunk have one in any case.
    one, two = ({k: n for k, n in found.items() if " / cuda/" not in k} for found in (paths, plain))
    assert one == two, (name, paths, plain)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or CALLS:
        start = time.perf_counter()
        check(name)
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
