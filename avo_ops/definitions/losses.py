"""Losses, row by row: their reductions are composites (composites.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from . import activations
from .record import LAST, Arguments, Grads, OpDef, Sample, Tensor


def _is_target(x: Tensor, target: Tensor) -> Tensor:
    """A mask of the element of each row that the target names."""
    return torch.arange(x.shape[-1], device=x.device) == target


def _target_weight(x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor | float:
    return 1.0 if weight is None else torch.where(_is_target(x, target), weight, 0.0).sum(-1, keepdim=True)


def _total_weight(x: Tensor, weight: Tensor | None) -> Tensor | float:
    return float(1) * x.shape[-1] if weight is None else weight.sum(-1)


def cross_entropy_rows(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    smooth: str = "no",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    # In terms of x - max(x): log(sum(exp(x))) may be much larger than its distance from any x.
    largest = x.amax(-1, keepdim=True).detach()
    centred = x - largest
    log_sum = torch.log(torch.exp(centred).sum(-1, keepdim=True))
    of_target = torch.where(_is_target(x, target), x, 0.0).sum(-1, keepdim=True) - largest
    loss = log_sum - of_target
    loss = loss * _target_weight(x, target, weight)
    if smooth == "yes":
        weighted = centred if weight is None else centred * weight
        others = log_sum * _total_weight(x, weight) - weighted.sum(-1, keepdim=True)
        loss = loss * (1.0 - label_smoothing) + others * (label_smoothing / x.shape[-1])
    loss = loss + z_loss * (largest + log_sum) ** 2
    loss = torch.where((target >= 0) & (target < x.shape[-1]), loss, float("nan"))
    return torch.where(target == ignore_index, 0.0, loss)


def cross_entropy_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    x, target, weight, rest = args["x"], args["target"], args["weight"], 1.0 - args["label_smoothing"]
    largest = x.amax(-1, keepdim=True)
    exponential = torch.exp(x - largest)
    total = exponential.sum(-1, keepdim=True)
    log_sum_exp = largest + torch.log(total)
    of_target = _target_weight(x, target, weight)
    share = args["label_smoothing"] / x.shape[-1]
    smooth = args["smooth"] == "yes"
    of_all = of_target * rest + _total_weight(x, weight) * share if smooth else of_target
    of_target = of_target * rest if smooth else of_target
    gradient = exponential / total * (of_all + 2.0 * args["z_loss"] * log_sum_exp)
    gradient = gradient - torch.where(_is_target(x, target), of_target, 0.0)
    if smooth:
        gradient = gradient - (share if weight is None else weight * share)
    return {"x": torch.where(target == args["ignore_index"], 0.0, gradient * grads["loss"])}


def _cross_entropy_rows_twin(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    smooth: str = "no",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    losses = F.cross_entropy(
        x.movedim(-1, 1) if x.dim() > 2 else x, target.squeeze(-1), weight, ignore_index=ignore_index, reduction="none",
        label_smoothing=label_smoothing if smooth == "yes" else 0.0,
    ).unsqueeze(-1)  # fmt: skip
    return losses + torch.where(
        target == ignore_index, 0.0, z_loss * torch.logsumexp(x, -1, keepdim=True) ** 2
    )


CROSS_ENTROPY_ROWS = OpDef(
    name="cross_entropy_rows",
    schema=(
        "(Tensor x, Tensor target, Tensor? weight=None, int ignore_index=-100, str smooth='no', "
        "float label_smoothing=0.0, float z_loss=0.0) -> Tensor"
    ),
    definition=cross_entropy_rows,
    twin=_cross_entropy_rows_twin,
    columns=LAST,
    invariant=True,
    formula=(
        "(1 - s) w[t] (lse(x) - x[t]) + s / N sum(w (lse(x) - x)) + z lse(x)^2, 0 where t is ignore_index; "
        "lse(x) = max(x) + log(sum(exp(x - max(x)))), s the label smoothing, z the z-loss"
    ),
    source=(
        "Szegedy et al., arXiv:1512.00567 (label smoothing, as torch.nn.functional.cross_entropy); "
        "de Brebisson and Vincent, arXiv:1604.08859 (z-loss)"
    ),
    spans={"target": "M", "weight": "N"},
    integers=("target",),
    results=("loss",),
    dtypes={"loss": "compute"},
    gradient=cross_entropy_rows_gradient,
    choices={"smooth": ("no", "yes")},
    packaged=False,
    samples=(
        Sample(((6, 40), (6, 1))),
        Sample(((2, 5, 7), (2, 5, 1), (7,))),
        Sample(((3, 33), (3, 1)), {"smooth": "yes", "label_smoothing": 0.1, "z_loss": 1e-4}),
    ),
)


# ---- of two tensors alike ---------------------------------------------------------------------------------------


def mse_loss_rows(x: Tensor, target: Tensor) -> Tensor:
    return ((x - target) ** 2).sum(-1, keepdim=True)


def huber_loss_rows(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    distance = (x - target).abs()
    inner = distance.clamp(
        max=delta
    )  # (d - inner / 2) inner is d^2 / 2 up to delta, and delta (d - delta / 2) beyond
    return ((distance - 0.5 * inner) * inner).sum(-1, keepdim=True)


def huber_loss_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    slope = grads["loss"] * (args["x"] - args["target"]).clamp(-args["delta"], args["delta"])
    return {"x": slope, "target": -slope}


def binary_cross_entropy_with_logits_rows(x: Tensor, target: Tensor) -> Tensor:
    return (activations.softplus(x, 1.0, 50.0) - x * target).sum(-1, keepdim=True)


def binary_cross_entropy_with_logits_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x = grads["loss"], args["x"]
    return {"x": grad * (torch.sigmoid(x) - args["target"]), "target": -grad * x}


_LEAST = -1000.0  # stands for the logarithm of 0: its exponential is 0 in float64 too, and it times 0 is 0


def _distance(x: Tensor, target: Tensor, p: Tensor) -> Tensor:
    """target - x, or a number where p = exp(target) is 0 and nothing is to come of it."""
    return target.clamp(min=_LEAST) - torch.where(p == 0.0, 0.0, x)


def kl_elements(x: Tensor, target: Tensor) -> Tensor:
    """The terms of ``kl_div_rows`` for a target of logarithms."""
    p = torch.exp(target)
    return p * _distance(x, target, p)


def kl_div_rows(x: Tensor, target: Tensor, log_target: str = "no") -> Tensor:
    if log_target == "yes":
        return kl_elements(x, target).sum(-1, keepdim=True)
    # 0 log(0) is 0; a negative probability gives NaN, as in torch.
    logarithm = torch.log(torch.where(target == 0.0, 1.0, target))
    return (target * (logarithm - x)).sum(-1, keepdim=True)


def kl_div_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x, target = grads["loss"], args["x"], args["target"]
    if args["log_target"] == "yes":
        p = torch.exp(target)
        weighted = grad * p  # once for each term: an infinite one times 0 is none
        return {"x": -weighted, "target": weighted * _distance(x, target, p) + weighted}
    logarithm = torch.log(torch.where(target == 0.0, 1.0, target))
    return {"x": -grad * target, "target": grad * torch.where(target == 0.0, -x, logarithm - x + 1.0)}


def _to_mixture(x: Tensor, target: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """How far log(beta exp(target) + (1 - beta) exp(x)) lies below the target and below x, by their difference alone."""
    difference = target.clamp(min=_LEAST) - x.clamp(min=_LEAST)
    larger = difference >= 0.0
    # The slope of abs would be 0 where both are alike.
    below = torch.where(larger, -difference, difference)
    # The derivative of expm1, which is expm1 + 1, would lose what is small.
    ratio = torch.where(below > -1.0, torch.expm1(below.clamp(min=-1.0)), torch.exp(below) - 1.0)
    of_larger = -torch.log1p(torch.where(larger, ratio * (1.0 - beta), ratio * beta))
    return (
        torch.where(larger, of_larger, of_larger + difference),
        torch.where(larger, of_larger - difference, of_larger),
    )


def jsd_elements(x: Tensor, target: Tensor, beta: float) -> Tensor:
    """The terms of ``jsd_rows``."""
    of_target, of_x = _to_mixture(x, target, beta)
    return torch.exp(target) * of_target * beta + torch.exp(x) * of_x * (1.0 - beta)


def jsd_rows(x: Tensor, target: Tensor, beta: float = 0.5) -> Tensor:
    return jsd_elements(x, target, beta).sum(-1, keepdim=True)


def jsd_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    # What the mixture itself contributes adds up to nothing.
    grad, x, target, beta = grads["loss"], args["x"], args["target"], args["beta"]
    of_target, of_x = _to_mixture(x, target, beta)
    return {
        "x": grad * (torch.exp(x) * of_x * (1.0 - beta)),
        "target": grad * (torch.exp(target) * of_target * beta),
    }


def _twin(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch's loss without a reduction, summed over the last dim."""

    def rows(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, reduction="none", **kwargs).sum(-1, keepdim=True)

    return rows


def _kl_div_twin(x: Tensor, target: Tensor, log_target: str = "no") -> Tensor:
    return _twin(F.kl_div)(x, target, log_target=log_target == "yes")


def _of_two(name: str, **fields: Any) -> OpDef:
    values = {
        "schema": "(Tensor x, Tensor target) -> Tensor", "columns": LAST, "results": ("loss",), "dtypes": {"loss": "compute"},
        "packaged": False, "samples": (Sample(((6, 40), (6, 40))), Sample(((2, 3, 33), (2, 3, 33)))),
    }  # fmt: skip
    return OpDef(name=name, **{**values, **fields})


MSE_LOSS_ROWS = _of_two(
    "mse_loss_rows",
    definition=mse_loss_rows,
    twin=_twin(F.mse_loss),
    formula="sum((x - target)^2) over the last dim",
    source="torch.nn.functional.mse_loss",
)

HUBER_LOSS_ROWS = _of_two(
    "huber_loss_rows",
    schema="(Tensor x, Tensor target, float delta=1.0) -> Tensor",
    definition=huber_loss_rows,
    twin=_twin(F.huber_loss),
    formula="sum of d^2 / 2 where d = |x - target| <= delta, delta (d - delta / 2) beyond, over the last dim",
    source="Huber, Robust Estimation of a Location Parameter, Ann. Math. Statist. 35 (1964), 73-101",
    gradient=huber_loss_rows_gradient,
)

BINARY_CROSS_ENTROPY_WITH_LOGITS_ROWS = _of_two(
    "binary_cross_entropy_with_logits_rows",
    definition=binary_cross_entropy_with_logits_rows,
    twin=_twin(F.binary_cross_entropy_with_logits),
    formula="sum(log(1 + exp(x)) - x target) over the last dim",
    source="torch.nn.functional.binary_cross_entropy_with_logits",
    gradient=binary_cross_entropy_with_logits_rows_gradient,
)

KL_DIV_ROWS = _of_two(
    "kl_div_rows",
    schema="(Tensor x, Tensor target, str log_target='no') -> Tensor",
    definition=kl_div_rows,
    twin=_kl_div_twin,
    formula="sum(p (log(p) - x)) over the last dim; p = target, or exp(target) where the target is a logarithm",
    source="Kullback and Leibler, On Information and Sufficiency, Ann. Math. Statist. 22 (1951), 79-86",
    choices={"log_target": ("no", "yes")},
    gradient=kl_div_rows_gradient,
)

JSD_ROWS = _of_two(
    "jsd_rows",
    schema="(Tensor x, Tensor target, float beta=0.5) -> Tensor",
    definition=jsd_rows,
    formula=(
        "sum(beta p (log(p) - log(m)) + (1 - beta) q (log(q) - log(m))) over the last dim; p = exp(target), q = exp(x), "
        "m = beta p + (1 - beta) q"
    ),
    source=(
        "Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37 (1991), 145-151; Agarwal et al., "
        "On-Policy Distillation of Language Models, arXiv:2306.13649 (beta)"
    ),
    gradient=jsd_rows_gradient,
)

# ---- means of losses --------------------------------------------------------------------------------------------


def mean_of_losses(x: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    counts = target != ignore_index
    count = torch.where(counts, torch.ones_like(x), 0.0).sum(-1, keepdim=True)
    return torch.where(counts, x, 0.0).sum(-1, keepdim=True) / count


MEAN_OF_LOSSES = OpDef(
    name="mean_of_losses",
    schema="(Tensor x, Tensor target, int ignore_index=-100) -> Tensor",
    definition=mean_of_losses,
    columns=LAST,
    formula="the mean of x over the elements of the last dim whose target is not ignore_index",
    source="torch.nn.functional.cross_entropy with reduction='mean', of the losses without a reduction",
    whole={"target": "int64"},
    results=("mean",),
    dtypes={"mean": "compute"},
    packaged=False,
    samples=(Sample(((40,), (40,))), Sample(((3, 33), (3, 33)), {"ignore_index": 1})),
)

CATALOGUE = (
    CROSS_ENTROPY_ROWS, MSE_LOSS_ROWS, HUBER_LOSS_ROWS, BINARY_CROSS_ENTROPY_WITH_LOGITS_ROWS, KL_DIV_ROWS,
    JSD_ROWS, MEAN_OF_LOSSES,
)  # fmt: skip
