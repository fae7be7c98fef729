"""What is timed: each operator with its inputs, the bytes that it must move, and the same math by its torch twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import avo_ops  # noqa: F401  (registers torch.ops.avo)
from avo_ops.definitions import CATALOGUE


@dataclass(frozen=True)
class Workload:
    """One operator at (M, N). ``passes``: how many (M, N) tensors the forward and the backward must move at least."""

    op: str
    passes: tuple[int, int]
    columns: int  # parameters of N elements
    arguments: Callable[[int, int, torch.dtype], list[Any]]

    def make(self, m: int, n: int, dtype: torch.dtype) -> list[Any]:
        """Fresh random arguments; tensors require grad."""
        return [a.requires_grad_() if isinstance(a, torch.Tensor) else a for a in self.arguments(m, n, dtype)]

    def bytes(self, m: int, n: int, dtype: torch.dtype, backward: bool) -> int:
        """The fewest bytes that the call can move."""
        return self.passes[backward] * m * n * dtype.itemsize + self.columns * n * dtype.itemsize

    def avo(self) -> Callable[..., Any]:
        return getattr(torch.ops.avo, self.op)  # type: ignore[no-any-return]

    def eager(self) -> Callable[..., Any]:
        return TWINS[self.op]


TWINS: dict[str, Callable[..., Any]] = {r.name: r.twin for r in CATALOGUE if r.twin is not None}


def _rows(m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(m, n, device="cuda", dtype=dtype)


def _columns(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(n, device="cuda", dtype=dtype)


WORKLOADS = (
    Workload("gelu", (2, 3), 0, lambda m, n, t: [_rows(m, n, t)]),
    Workload("silu", (2, 3), 0, lambda m, n, t: [_rows(m, n, t)]),
    Workload("bias_gelu", (2, 3), 1, lambda m, n, t: [_rows(m, n, t), _columns(n, t)]),
    Workload("layer_norm", (2, 3), 2, lambda m, n, t: [_rows(m, n, t), [n], _columns(n, t), _columns(n, t)]),
    Workload("rms_norm", (2, 3), 1, lambda m, n, t: [_rows(m, n, t), [n], _columns(n, t)]),
    Workload(
        "add_layer_norm",
        (4, 4),
        2,
        lambda m, n, t: [_rows(m, n, t), _rows(m, n, t), [n], _columns(n, t), _columns(n, t)],
    ),
    Workload("softmax", (2, 3), 0, lambda m, n, t: [_rows(m, n, t), -1]),
)
