"""From a function of one's own to kernels: compile, look, verify, warm up, freeze. Runs on any machine with g++.

PYTHONPATH=. python examples/your_own_op.py
"""

from __future__ import annotations

import torch

import avo_ops


def gated_norm(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    h = x * torch.sigmoid(gate)
    rstd = torch.rsqrt((h * h).mean(-1, keepdim=True) + eps)
    return h * rstd * weight


def main() -> None:
    x, gate, weight = torch.randn(32, 256), torch.randn(32, 256), torch.ones(256, requires_grad=True)

    # One trace, one kernel forward and one backward; the example inputs say dtypes and ranks, all sizes stay free.
    f = avo_ops.compile(gated_norm, example_inputs=(x, gate, weight))
    print(f.plan())

    # It is the function: same values, dtypes and gradients, and torch.compile takes it as an operator.
    torch.testing.assert_close(f(x, gate, weight), gated_norm(x, gate, weight))
    (mine,) = torch.autograd.grad(f(x, gate, weight).sum(), weight)
    (eager,) = torch.autograd.grad(gated_norm(x, gate, weight).sum(), weight)
    torch.testing.assert_close(mine, eager)

    # What the kernel reads like, and how far each line is from float64.
    print(f.source("cuda").partition("template")[2][:600], "...\n")
    print(f.verify(x, gate, weight))

    # For serving: everything that calls will need, now; after freeze() nothing is compiled any more.
    f.warmup([((8, 512), (8, 512), (512,)), ((4, 16, 64), (4, 16, 64), (64,))])
    avo_ops.freeze()
    print("\n".join(["", "graphs:", *(f"  {v}" for v in f.variants())]))
    f(torch.randn(7, 100), torch.randn(7, 100), torch.randn(100))
    print("\npaths that ran:", avo_ops.stats(), sep="\n")


if __name__ == "__main__":
    main()
