"""Microseconds of CPU time for one call on a tiny tensor: ``python -m benchmarks calls [--device cuda]``.

A plain loop; the least of several runs, since the noise of a shared machine only adds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import avo_ops
import avo_ops.nn


def cost(call: Callable[[], object], device: str, calls: int = 500, runs: int = 9) -> float:
    for _ in range(50):
        call()
    best = float("inf")
    for _ in range(runs):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
        if device == "cuda":
            torch.cuda.synchronize()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks calls", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(16, 1024, device=device, dtype=dtype) if device == "cuda" else torch.randn(16)
    n = x.shape[-1]
    w, b = torch.ones(n, device=device, dtype=dtype), torch.zeros(n, device=device, dtype=dtype)
    gelu, norm = avo_ops.nn.GELU(), avo_ops.nn.LayerNorm(n, device=device, dtype=dtype)
    rows: dict[str, tuple[Callable[..., object], tuple[torch.Tensor, ...]]] = {
        "F.gelu": (F.gelu, (x,)),
        "avo.gelu": (torch.ops.avo.gelu, (x,)),
        "avo_ops.nn.GELU": (gelu, (x,)),
        "F.layer_norm": (lambda x, w, b: F.layer_norm(x, (n,), w, b), (x, w, b)),
        "avo.layer_norm": (lambda x, w, b: torch.ops.avo.layer_norm(x, (n,), w, b), (x, w, b)),
        "avo_ops.nn.LayerNorm": (lambda x, w, b: norm(x), (x, w, b)),
    }
    print(f"{'us a call':<24}{'inference':>12}{'no_grad':>12}{'grad':>12}{'fwd+bwd':>12}")
    for name, (function, arguments) in rows.items():
        leaves = [a.detach().requires_grad_() for a in arguments]
        with torch.inference_mode():
            frozen = [a.clone() for a in arguments]
            inference = cost(lambda: function(*frozen), device)  # noqa: B023
        with torch.no_grad():
            no_grad = cost(lambda: function(*arguments), device)  # noqa: B023
        grad = cost(lambda: function(*leaves), device)  # noqa: B023
        wanted = [*norm.parameters(), leaves[0]] if name == "avo_ops.nn.LayerNorm" else leaves

        def both(
            function: Callable[..., object] = function,
            leaves: list[torch.Tensor] = leaves,
            wanted: list[torch.Tensor] = wanted,
        ) -> object:
            out = function(*leaves)
            assert isinstance(out, torch.Tensor)
            return torch.autograd.grad(out, wanted, torch.ones_like(out))

        print(f"{name:<24}{inference:>12.1f}{no_grad:>12.1f}{grad:>12.1f}{cost(both, device, 200):>12.1f}")


if __name__ == "__main__":
    main()
