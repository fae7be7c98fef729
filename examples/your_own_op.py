"""From a function of one's own to kernels, and to a server: explain, compile, verify, warm up, freeze, export, load.

Runs on any machine with g++, in seconds:

    PYTHONPATH=. python examples/your_own_op.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import torch

import avo_ops


def gated_norm(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    h = x * torch.sigmoid(gate)
    rstd = torch.rsqrt((h * h).mean(-1, keepdim=True) + eps)
    return h * rstd * weight


def projected(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    return y / y.sum().item()


# A server: it has neither the functions above nor, here, a compiler.
SERVER = """
import sys, torch, avo_ops
f = avo_ops.load(sys.argv[1])["gated_norm"]
x, gate, weight = torch.randn(7, 100), torch.randn(7, 100), torch.randn(100, requires_grad=True)
f(x, gate, weight).sum().backward()
print("served without source or compiler:", *sorted(k for k in avo_ops.stats()), sep="\\n  ")
try:
    f(x.double(), gate.double(), weight)
except RuntimeError as error:
    print("\\nwhat was not exported:", error, sep="\\n")
"""


def main() -> None:
    x, gate, weight = torch.randn(32, 256), torch.randn(32, 256), torch.ones(256, requires_grad=True)

    # Before anything else: will it work, what will it become, how much does it move? And what of this one stands in the way?
    print(avo_ops.explain(gated_norm, x, gate, weight, on="sm_90"))
    print(avo_ops.explain(projected, x, torch.randn(256, 256)))

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
    avo_ops.freeze(False)

    # Or on another machine: archs=("sm_90",) would add the CUDA kernels, by NVRTC and without a GPU.
    with tempfile.TemporaryDirectory() as folder:
        avo_ops.export(os.path.join(folder, "gated_norm.avo"), [f])
        sys.stdout.flush()
        environment = {
            **os.environ,
            "CXX": "no-such-compiler",
            "AVO_OPS_CACHE": os.path.join(folder, "cache"),
        }
        subprocess.run(
            [sys.executable, "-c", SERVER, os.path.join(folder, "gated_norm.avo")],
            env=environment,
            check=True,
        )


if __name__ == "__main__":
    main()
