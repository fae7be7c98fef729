"""Operators made of others and of torch's own: reductions of losses, views, what is drawn or looked up before a kernel runs.

They are registered as composites: torch differentiates, batches and compiles through them. ``COMPOSITES`` lists every record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .record import Sample, Tensor


@dataclass(frozen=True)
class Composite:
    """One operator that calls others.

    Attributes:
        name: name of the operator in ``torch.ops.avo``.
        schema: its signature without the name, in the syntax of ``torch.library``.
        function: torch code over ``torch.ops.avo`` with the schema's parameters.
        formula: the formula, for documentation.
        source: where the formula comes from.
        reference: the same in torch alone, for tests.
        samples: calls for the tests; ``Whole`` stands for a tensor of whole numbers.
    """

    name: str
    schema: str
    function: Callable[..., Any]
    formula: str
    source: str
    reference: Callable[..., Any]
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Whole:
    """A tensor of whole numbers in [low, high), in a sample."""

    shape: tuple[int, ...]
    high: int
    low: int = 0


def _reduced(name: str, values: Tensor, reduction: str, count: Any) -> Tensor:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if reduction == "mean":
        return values.sum() / count
    raise RuntimeError(f"{name}: reduction must be 'none', 'mean' or 'sum', but is '{reduction}'")


# ---- cross entropy ----------------------------------------------------------------------------------------------


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    if target.is_floating_point():
        raise RuntimeError(
            "cross_entropy: target must hold class indices (int64 or int32), but is "
            f"{str(target.dtype).removeprefix('torch.')}: for class probabilities use torch.nn.functional.cross_entropy"
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"cross_entropy: label_smoothing must be in [0, 1], but is {label_smoothing}")
    if not x.dim():
        raise RuntimeError("cross_entropy: x must have at least 1 dimension, but has shape []")
    rows = x.movedim(1, -1) if x.dim() > 2 else x  # the classes are dim 1, or the only one
    if target.shape != rows.shape[:-1]:
        raise RuntimeError(
            f"cross_entropy: target must have shape {list(rows.shape[:-1])} (that of x without the classes), "
            f"but has shape {list(target.shape)}"
        )
    losses = torch.ops.avo.cross_entropy_rows(
        rows, target.unsqueeze(-1), weight, ignore_index, "yes" if label_smoothing else "no", label_smoothing, z_loss
    ).squeeze(-1)
    count = None
    if reduction == "mean":
        valid = target != ignore_index
        if weight is None:
            count = valid.sum()
        else:
            count = torch.where(valid, weight.to(losses.dtype)[target.where(valid, 0)], 0.0).sum()
    return _reduced("cross_entropy", losses, reduction, count).to(x.dtype)


def _cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    target = target.long()
    classes = min(x.dim() - 1, 1)
    valid = target != ignore_index
    loss = F.cross_entropy(x, target, weight, None, ignore_index, None, "none", label_smoothing)
    loss = loss + torch.where(valid, z_loss * torch.logsumexp(x, classes) ** 2, 0.0)
    count = valid.sum() if weight is None else (weight[target.where(valid, 0)] * valid).sum()
    return loss if reduction == "none" else loss.sum() / (count if reduction == "mean" else 1)


CROSS_ENTROPY = Composite(
    name="cross_entropy",
    schema=(
        "(Tensor x, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction='mean', "
        "float label_smoothing=0.0, float z_loss=0.0) -> Tensor"
    ),
    function=cross_entropy,
    formula="the sum of cross_entropy_rows, over that of w[t] where the target t is not ignore_index",
    source="torch.nn.functional.cross_entropy, with class indices; z-loss: de Brebisson and Vincent, arXiv:1604.08859",
    reference=_cross_entropy,
    samples=(
        Sample(((6, 40), Whole((6,), 40))),
        Sample(((40,), Whole((), 40))),
        Sample(((2, 7, 3, 5), Whole((2, 3, 5), 7)), {"reduction": "none"}),
        Sample(((6, 33), Whole((6,), 33, -1), (33,)), {"ignore_index": -1, "label_smoothing": 0.1, "z_loss": 1e-4}),
        Sample(((6, 33), Whole((6,), 33, -1)), {"ignore_index": -1, "reduction": "sum"}),
    ),
)

COMPOSITES = (CROSS_ENTROPY,)
