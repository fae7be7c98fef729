"""Operators made of others and of torch's own: reductions of losses, views, what is drawn or looked up before a kernel runs.

They are registered as composites: torch differentiates, batches and compiles through them. ``COMPOSITES`` lists every record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .losses import jsd_elements, kl_elements
from .record import Sample, Tensor, Whole


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
        samples: calls for the tests.
        at: a loss's arguments for M rows of N columns, the first of which gets a gradient, for the benchmarks.
    """

    name: str
    schema: str
    function: Callable[..., Any]
    formula: str
    source: str
    reference: Callable[..., Any]
    samples: tuple[Sample, ...] = ()
    at: Callable[[int, int], Sample] | None = None


def _reduced(name: str, values: Tensor, reduction: str, count: Any) -> Tensor:
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if reduction == "mean":
        return values.sum() / count
    raise RuntimeError(f"{name}: reduction must be 'none', 'mean' or 'sum', but is '{reduction}'")


# Losses up to this count are one row of a kernel, in one launch. Beyond it, one row is too little for a GPU.
_ONE_ROW = 32768


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
    if weight is not None and weight.requires_grad:
        raise RuntimeError("cross_entropy: weight must not require a gradient: there is none for it")
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
        rows,
        target.unsqueeze(-1),
        weight,
        ignore_index,
        "yes" if label_smoothing else "no",
        label_smoothing,
        z_loss,
    ).squeeze(-1)
    if reduction == "mean" and weight is None and losses.numel() <= _ONE_ROW:
        mean = torch.ops.avo.mean_of_losses(losses.reshape(-1), target.long().reshape(-1), ignore_index)
        return mean.squeeze(-1).to(x.dtype)
    count = None
    if reduction == "mean":
        valid = target != ignore_index
        weights = (
            valid
            if weight is None
            else torch.where(valid, weight.to(losses.dtype)[target.where(valid, 0)], 0.0)
        )
        count = weights.sum()
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
    if not z_loss:
        return F.cross_entropy(
            x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    classes = min(x.dim() - 1, 1)
    valid = target != ignore_index
    loss = F.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction="none", label_smoothing=label_smoothing
    )
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
        Sample(
            ((6, 33), Whole((6,), 33, -1), (33,)),
            {"ignore_index": -1, "label_smoothing": 0.1, "z_loss": 1e-4},
        ),
        Sample(((6, 33), Whole((6,), 33, -1)), {"ignore_index": -1, "reduction": "sum"}),
    ),
    at=lambda m, n: Sample(((m, n), Whole((m,), n))),
)


# ---- losses of two tensors alike --------------------------------------------------------------------------------


def _in_one_shape(name: str, x: Tensor, other: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """Two tensors that broadcast; ``what`` is the name of the second argument."""
    if x.shape == other.shape:
        return x, other
    try:
        x, other = torch.broadcast_tensors(x, other)  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise RuntimeError(
            f"{name}: {what} must have shape {list(x.shape)} (that of x) or broadcast to it, but has shape {list(other.shape)}"
        ) from None
    return x, other


def _rows(name: str, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The two tensors in one shape, of at least one dim."""
    x, target = _in_one_shape(name, x, target, "target")
    return (x, target) if x.dim() else (x.reshape(1), target.reshape(1))


def _elements(name: str, function: Callable[..., Tensor], x: Tensor, target: Tensor, **kwargs: Any) -> Tensor:
    """A loss that nothing is to be reduced of, by torch's own, which is one kernel.

    In the dtype to which both promote: torch takes that of one of them, and some of its losses have no gradient then.
    """
    x, target = _in_one_shape(name, x, target, "target")
    dtype = torch.promote_types(x.dtype, target.dtype)
    return function(x.to(dtype), target.to(dtype), reduction="none", **kwargs)


def _loss(name: str, rows: Tensor, x: Tensor, target: Tensor, reduction: str, count: int) -> Tensor:
    return _reduced(name, rows, reduction, count).to(torch.promote_types(x.dtype, target.dtype))


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    if reduction == "none":
        return _elements("mse_loss", F.mse_loss, x, target)
    wide, other = _rows("mse_loss", x, target)
    return _loss("mse_loss", torch.ops.avo.mse_loss_rows(wide, other), x, target, reduction, wide.numel())


def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    if delta <= 0:
        raise RuntimeError(f"huber_loss: delta must be positive, but is {delta}")
    if reduction == "none":
        return _elements("huber_loss", F.huber_loss, x, target, delta=delta)
    wide, other = _rows("huber_loss", x, target)
    return _loss(
        "huber_loss", torch.ops.avo.huber_loss_rows(wide, other, delta), x, target, reduction, wide.numel()
    )


def binary_cross_entropy_with_logits(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    if x.shape != target.shape:
        raise RuntimeError(
            f"binary_cross_entropy_with_logits: target must have shape {list(x.shape)} (that of x), "
            f"but has shape {list(target.shape)}"
        )
    if reduction == "none":
        return _elements("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, x, target)
    wide, other = _rows("binary_cross_entropy_with_logits", x, target)
    rows = torch.ops.avo.binary_cross_entropy_with_logits_rows(wide, other)
    return _loss("binary_cross_entropy_with_logits", rows, x, target, reduction, wide.numel())


def _divergence(
    name: str,
    x: Tensor,
    target: Tensor,
    reduction: str,
    rows: Callable[[Tensor, Tensor], Tensor],
    elements: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """A loss of rows with torch's reductions of kl_div; without one, its terms by torch, in float32 or float64."""
    if reduction not in ("none", "mean", "sum", "batchmean"):
        raise RuntimeError(
            f"{name}: reduction must be 'none', 'mean', 'sum' or 'batchmean', but is '{reduction}'"
        )
    dtype = torch.promote_types(x.dtype, target.dtype)
    if reduction == "none":
        x, target = _in_one_shape(name, x, target, "target")
        compute = torch.promote_types(dtype, torch.float32)
        return elements(x.to(compute), target.to(compute)).to(dtype)
    wide, other = _rows(name, x, target)
    count = wide.numel()
    if reduction == "batchmean":
        reduction, count = "mean", x.shape[0] if x.dim() else 1
    return _loss(name, rows(wide, other), x, target, reduction, count)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    if reduction == "none" and not log_target:
        return _elements("kl_div", F.kl_div, x, target)
    kind = "yes" if log_target else "no"
    return _divergence(
        "kl_div", x, target, reduction, lambda x, t: torch.ops.avo.kl_div_rows(x, t, kind), kl_elements
    )


def _kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    if reduction == "mean":  # of which torch warns that it is not the divergence
        return F.kl_div(x, target, reduction="sum", log_target=log_target) / x.numel()
    return F.kl_div(x, target, reduction=reduction, log_target=log_target)


def jsd(x: Tensor, target: Tensor, reduction: str = "batchmean", beta: float = 0.5) -> Tensor:
    if not 0.0 <= beta <= 1.0:
        raise RuntimeError(f"jsd: beta must be in [0, 1], but is {beta}")
    # Over beta (1 - beta), it goes to KL(target, x) as beta goes to 0, and to KL(x, target) as it goes to 1.
    x, target = _in_one_shape("jsd", x, target, "target")
    if beta in (0.0, 1.0):
        pair = (target, x) if beta else (x, target)
        return _divergence(
            "jsd", *pair, reduction, lambda x, t: torch.ops.avo.kl_div_rows(x, t, "yes"), kl_elements
        )
    return _divergence(
        "jsd",
        x,
        target,
        reduction,
        lambda x, t: torch.ops.avo.jsd_rows(x, t, beta),
        lambda x, t: jsd_elements(x, t, beta),
    )


def _jsd(x: Tensor, target: Tensor, reduction: str = "batchmean", beta: float = 0.5) -> Tensor:
    p, q = target.exp(), x.exp()
    if beta in (0.0, 1.0):
        loss = p * (target - x) if beta == 0.0 else q * (x - target)
    else:
        mixture = torch.log(beta * p + (1 - beta) * q)
        loss = beta * p * (target - mixture) + (1 - beta) * q * (x - mixture)
    return (
        loss
        if reduction == "none"
        else loss.sum() / {"batchmean": x.shape[0], "mean": x.numel()}.get(reduction, 1)
    )


def _pair(name: str, **fields: Any) -> Composite:
    values = {
        "schema": "(Tensor x, Tensor target, str reduction='mean') -> Tensor",
        "formula": f"{name}_rows, summed (or over the number of elements)",
        "source": f"torch.nn.functional.{name}",
        "samples": tuple(Sample(((6, 40), (6, 40)), {"reduction": r}) for r in ("mean", "sum", "none")),
        "at": lambda m, n: Sample(((m, n), (m, n))),
    }
    return Composite(name=name, **{**values, **fields})


MSE_LOSS = _pair(
    "mse_loss",
    function=mse_loss,
    reference=lambda x, target, reduction="mean": F.mse_loss(x, target, reduction=reduction),
)
HUBER_LOSS = _pair(
    "huber_loss",
    schema="(Tensor x, Tensor target, str reduction='mean', float delta=1.0) -> Tensor",
    function=huber_loss,
    reference=lambda x, target, reduction="mean", delta=1.0: F.huber_loss(x, target, reduction, delta),
)
BINARY_CROSS_ENTROPY_WITH_LOGITS = _pair(
    "binary_cross_entropy_with_logits",
    function=binary_cross_entropy_with_logits,
    reference=lambda x, target, reduction="mean": F.binary_cross_entropy_with_logits(
        x, target, reduction=reduction
    ),
)
KL_DIV = _pair(
    "kl_div",
    schema="(Tensor x, Tensor target, str reduction='mean', bool log_target=False) -> Tensor",
    function=kl_div,
    reference=_kl_div,
    samples=(
        Sample(((6, 40), (6, 40)), {"log_target": True}),
        Sample(((6, 40), (6, 40)), {"reduction": "batchmean", "log_target": True}),
    ),
)

JSD = _pair(
    "jsd",
    schema="(Tensor x, Tensor target, str reduction='batchmean', float beta=0.5) -> Tensor",
    function=jsd,
    formula=(
        "jsd_rows of log-probabilities x (student) and target (teacher), summed (or over the number of elements or of "
        "x.shape[0]); beta=0: KL(target, x), beta=1: KL(x, target)"
    ),
    source=(
        "Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37 (1991), 145-151; Agarwal et al., "
        "On-Policy Distillation of Language Models, arXiv:2306.13649"
    ),
    reference=_jsd,
    samples=(
        Sample(((6, 40), (6, 40))),
        Sample(((6, 40), (6, 40)), {"beta": 0.0, "reduction": "mean"}),
        Sample(((6, 40), (6, 40)), {"beta": 1.0, "reduction": "sum"}),
        Sample(((2, 3, 33), (2, 3, 33)), {"beta": 0.1, "reduction": "none"}),
        Sample(((2, 3, 33), (2, 3, 33)), {"beta": 1.0, "reduction": "none"}),
    ),
)


# ---- attention scores -------------------------------------------------------------------------------------------


def scaled_masked_softmax(
    x: Tensor, attn_mask: Tensor | None = None, scale: float = 1.0, is_causal: bool = False
) -> Tensor:
    if x.dim() < (2 if is_causal else 1):
        raise RuntimeError(
            f"scaled_masked_softmax: x must have at least {2 if is_causal else 1} dimensions, but has shape {list(x.shape)}"
        )
    last = None
    if is_causal:
        # As torch.nn.functional.scaled_dot_product_attention: query i sees the keys up to i.
        queries = torch.arange(x.shape[-2], device=x.device).unsqueeze(-1)
        last = queries.expand(*x.shape[:-1], 1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=x.dtype).masked_fill(~attn_mask, -torch.inf)
    return torch.ops.avo.scaled_masked_softmax_rows(x, attn_mask, last, scale)


def _scaled_masked_softmax(
    x: Tensor, attn_mask: Tensor | None = None, scale: float = 1.0, is_causal: bool = False
) -> Tensor:
    score = x * scale
    if attn_mask is not None:
        score = (
            score.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else score + attn_mask
        )
    if is_causal:
        seen = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
        score = score.masked_fill(~seen, -torch.inf)
    return torch.softmax(score, -1)


SCALED_MASKED_SOFTMAX = Composite(
    name="scaled_masked_softmax",
    schema="(Tensor x, Tensor? attn_mask=None, float scale=1.0, bool is_causal=False) -> Tensor",
    function=scaled_masked_softmax,
    formula=(
        "softmax(scale * x + attn_mask) over the last dim; a boolean mask says what takes part, and is_causal that query i "
        "sees the keys up to i"
    ),
    source="torch.nn.functional.scaled_dot_product_attention",
    reference=_scaled_masked_softmax,
    samples=(
        Sample(((2, 3, 5, 7), (2, 1, 1, 7), 0.5)),
        Sample(((2, 3, 5, 5), None, 0.25, True)),
        Sample(((2, 3, 5, 9), Whole((2, 1, 5, 9), 2), 1.0, True)),
    ),
)


# ---- position ---------------------------------------------------------------------------------------------------


def rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    width = 2 * cos.shape[-1]
    if not x.dim() or width > x.shape[-1]:
        raise RuntimeError(
            f"rotary: cos must have at most half as many columns as x, but their shapes are {list(cos.shape)} and "
            f"{list(x.shape)}"
        )
    op = torch.ops.avo.rotary_pairs if interleaved else torch.ops.avo.rotary_halves
    turned = op(x[..., :width], cos, sin)
    return turned if width == x.shape[-1] else torch.cat([turned, x[..., width:]], -1)


def _rotary(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([turned, rest], -1)


ROTARY = Composite(
    name="rotary",
    schema="(Tensor x, Tensor cos, Tensor sin, bool interleaved=False) -> Tensor",
    function=rotary,
    formula="the first 2 cos.shape[-1] columns of x turned by rotary_halves or rotary_pairs, the others as they are",
    source="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864",
    reference=_rotary,
    samples=(
        Sample(((2, 5, 3, 16), (5, 1, 8), (5, 1, 8))),
        Sample(((2, 5, 3, 20), (5, 1, 8), (5, 1, 8), True)),
    ),
)


def qk_norm_rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
    position_ids: Tensor | None = None,
    scale: str = "weight",
) -> tuple[Tensor, Tensor]:
    if scale not in ("weight", "one_plus_weight"):
        raise RuntimeError(f"qk_norm_rope: scale must be 'weight' or 'one_plus_weight', but is '{scale}'")
    if position_ids is not None:
        if position_ids.dtype not in (torch.int64, torch.int32):
            raise RuntimeError(
                "qk_norm_rope: position_ids must be a tensor of whole numbers (int64 or int32), but is "
                f"{str(position_ids.dtype).removeprefix('torch.')}"
            )
        if cos.dim() != 2 or cos.shape != sin.shape:
            raise RuntimeError(
                "qk_norm_rope: cos and sin must be tables of a row for each position where position_ids is given, but have "
                f"shapes {list(cos.shape)} and {list(sin.shape)}"
            )
        cos, sin = cos[position_ids], sin[position_ids]
    turned_q = _normed_and_turned("q", q, cos, sin, q_weight, eps, interleaved, scale)
    return turned_q, _normed_and_turned("k", k, cos, sin, k_weight, eps, interleaved, scale)


def _normed_and_turned(
    name: str,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    weight: Tensor | None,
    eps: float | None,
    interleaved: bool,
    scale: str,
) -> Tensor:
    """rotary of rms_norm: one kernel where all columns are turned, and by constants."""
    width = 2 * cos.shape[-1]
    if not x.dim() or width > x.shape[-1]:
        raise RuntimeError(
            f"qk_norm_rope: cos must have at most half as many columns as {name}, but their shapes are {list(cos.shape)} and "
            f"{list(x.shape)}"
        )
    if weight is not None and weight.shape != x.shape[-1:]:
        raise RuntimeError(
            f"qk_norm_rope: {name}_weight must have shape {list(x.shape[-1:])} (the last dimension of {name}), but has shape "
            f"{list(weight.shape)}"
        )
    if width < x.shape[-1] or cos.requires_grad or sin.requires_grad:
        normed = torch.ops.avo.rms_norm(x, x.shape[-1:], weight, eps, scale)
        return rotary(normed, cos, sin, interleaved)
    op = torch.ops.avo.rms_norm_rotary_pairs if interleaved else torch.ops.avo.rms_norm_rotary_halves
    if weight is None:
        weight, scale = x.new_ones(width), "weight"
    return op(x, cos, sin, weight, eps, 1.0 if scale == "one_plus_weight" else 0.0)


def _qk_norm_rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float | None = None,
    interleaved: bool = False,
    position_ids: Tensor | None = None,
    scale: str = "weight",
) -> tuple[Tensor, Tensor]:
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]

    def normed(x: Tensor, weight: Tensor | None) -> Tensor:
        factor = weight + 1.0 if weight is not None and scale == "one_plus_weight" else weight
        return F.rms_norm(x, x.shape[-1:], factor, eps)

    return (
        _rotary(normed(q, q_weight), cos, sin, interleaved),
        _rotary(normed(k, k_weight), cos, sin, interleaved),
    )


QK_NORM_ROPE = Composite(
    name="qk_norm_rope",
    schema=(
        "(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor? q_weight=None, Tensor? k_weight=None, float? eps=None, "
        "bool interleaved=False, Tensor? position_ids=None, str scale='weight') -> (Tensor q_out, Tensor k_out)"
    ),
    function=qk_norm_rope,
    formula=(
        "rotary(rms_norm(q), cos, sin) and that of k: the norm over the last dim, a head, scale as in rms_norm. Where all "
        "columns are turned it is rms_norm_rotary_halves or _pairs, rounded once; else, or if cos or sin requires a gradient, "
        "rms_norm, rounded, then rotary. With position_ids, which broadcast with the rows of q and k, cos and sin are tables: "
        "cos[position_ids]"
    ),
    source="Yang et al., Qwen3 Technical Report, arXiv:2505.09388; Dehghani et al., Scaling Vision Transformers to 22 Billion "
    "Parameters, arXiv:2302.05442 (QK normalisation); " + ROTARY.source,
    reference=_qk_norm_rope,
    samples=(
        Sample(((2, 5, 4, 16), (2, 5, 2, 16), (5, 1, 8), (5, 1, 8), (16,), (16,))),
        Sample(((2, 5, 4, 16), (2, 5, 2, 16), (5, 1, 8), (5, 1, 8)), {"interleaved": True, "eps": 1e-3}),
        Sample(
            ((2, 5, 4, 20), (2, 5, 2, 20), (5, 1, 8), (5, 1, 8), (20,), (20,)), {"scale": "one_plus_weight"}
        ),
        Sample(
            ((2, 4, 5, 16), (2, 2, 5, 16), (70, 8), (70, 8), (16,)),
            {"position_ids": Whole((2, 1, 5), 70), "scale": "one_plus_weight"},
        ),
    ),
)


# ---- dropout ----------------------------------------------------------------------------------------------------


def _seeds(x: Tensor) -> Tensor:
    """A seed for each row of the last dim, drawn by torch: from its seed, and under CUDA graphs."""
    return torch.randint(0, 2**63 - 1, (*x.shape[:-1], 1), dtype=torch.int64, device=x.device)


def _check_p(name: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"{name}: p must be in [0, 1], but is {p}")


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    _check_p("dropout", p)
    if not training or p == 0.0:
        return x.clone()
    if not x.dim():
        return dropout(x.reshape(1), p).reshape(())
    return torch.ops.avo.dropout_rows(x, _seeds(x), p)


def bias_dropout_add(
    x: Tensor, bias: Tensor | None, residual: Tensor, p: float = 0.5, training: bool = True
) -> Tensor:
    return _dropout_add("bias_dropout_add", x, bias, residual, p, training)


def dropout_add(x: Tensor, residual: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    return _dropout_add("dropout_add", x, None, residual, p, training)


def _dropout_add(
    name: str, x: Tensor, bias: Tensor | None, residual: Tensor, p: float, training: bool
) -> Tensor:
    _check_p(name, p)
    x, residual = _in_one_shape(name, x, residual, "residual")
    if bias is not None and bias.shape != x.shape[-1:]:
        raise RuntimeError(
            f"{name}: bias must have shape {list(x.shape[-1:])} (the last dimension of x), but has shape {list(bias.shape)}"
        )
    if not training or p == 0.0:
        return (residual + (x if bias is None else x + bias)).to(x.dtype)
    if not x.dim():
        return _dropout_add(name, x.reshape(1), bias, residual.reshape(1), p, training).reshape(())
    return torch.ops.avo.bias_dropout_add_rows(x, residual, _seeds(x), bias, p)


def _flat(
    name: str, t: Tensor | None, what: str, normalized_shape: Sequence[int], fill: float, like: Tensor
) -> Tensor:
    """A weight or bias of one dim, and one that changes nothing in place of none."""
    if t is None:
        return torch.full((math.prod(normalized_shape),), fill, dtype=like.dtype, device=like.device)
    if list(t.shape) != list(normalized_shape):
        raise RuntimeError(
            f"{name}: {what} must have shape {list(normalized_shape)} (normalized_shape), but has shape {list(t.shape)}"
        )
    return t.reshape(-1)


def _flat_rows(
    name: str, x: Tensor, residual: Tensor, normalized_shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The two tensors in one shape, the normalized dims as one."""
    count = len(normalized_shape)
    if not count:
        raise RuntimeError(f"{name}: normalized_shape must have at least 1 entry, but is []")
    if list(x.shape[-count:]) != list(normalized_shape):
        raise RuntimeError(
            f"{name}: normalized_shape must be the last dimensions of x, whose shape is {list(x.shape)}, but is "
            f"{list(normalized_shape)}"
        )
    x, residual = _in_one_shape(name, x, residual, "residual")
    return (x, residual) if count == 1 else (x.flatten(-count), residual.flatten(-count))


def dropout_add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    name = "dropout_add_layer_norm"
    _check_p(name, p)
    if not training or p == 0.0:
        return torch.ops.avo.add_layer_norm(x, residual, normalized_shape, weight, bias, eps)
    wide, other = _flat_rows(name, x, residual, normalized_shape)
    weight = _flat(name, weight, "weight", normalized_shape, 1.0, x)
    bias = _flat(name, bias, "bias", normalized_shape, -0.0, x)
    y, out = torch.ops.avo.dropout_add_layer_norm_rows(wide, other, _seeds(wide), weight, bias, p, eps)
    shape = wide.shape[:-1] + torch.Size(normalized_shape)
    return y.reshape(shape), out.reshape(shape)


def dropout_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    name = "dropout_add_rms_norm"
    _check_p(name, p)
    if not training or p == 0.0:
        return torch.ops.avo.add_rms_norm(x, residual, normalized_shape, weight, eps)
    wide, other = _flat_rows(name, x, residual, normalized_shape)
    weight = _flat(name, weight, "weight", normalized_shape, 1.0, x)
    y, out = torch.ops.avo.dropout_add_rms_norm_rows(wide, other, _seeds(wide), weight, p, eps)
    shape = wide.shape[:-1] + torch.Size(normalized_shape)
    return y.reshape(shape), out.reshape(shape)


def _no_dropout(x: Tensor, p: float = 0.0, training: bool = True) -> Tensor:
    return x * 1.0


DROPOUT = Composite(
    name="dropout",
    schema="(Tensor x, float p=0.5, bool training=True) -> Tensor",
    function=dropout,
    formula="dropout_rows with seeds that torch draws; x where not training",
    source="Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958",
    reference=_no_dropout,
    samples=(Sample(((6, 40), 0.0)), Sample(((6, 40), 0.5, False))),
)

BIAS_DROPOUT_ADD = Composite(
    name="bias_dropout_add",
    schema="(Tensor x, Tensor? bias, Tensor residual, float p=0.5, bool training=True) -> Tensor",
    function=bias_dropout_add,
    formula="residual + dropout(x + bias)",
    source="Shoeybi et al., Megatron-LM, arXiv:1909.08053",
    reference=lambda x, bias, residual, p, training=True: residual + (x if bias is None else x + bias),
    samples=(Sample(((6, 40), (40,), (6, 40), 0.0)), Sample(((6, 40), None, (6, 40), 0.5, False))),
)

DROPOUT_ADD = Composite(
    name="dropout_add",
    schema="(Tensor x, Tensor residual, float p=0.5, bool training=True) -> Tensor",
    function=dropout_add,
    formula="residual + dropout(x)",
    source=DROPOUT.source,
    reference=lambda x, residual, p, training=True: residual + x,
    samples=(Sample(((6, 40), (6, 40), 0.0)), Sample(((6, 40), (6, 40), 0.5, False))),
)


def _add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    p: float = 0.0,
    training: bool = True,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return F.layer_norm(residual_out, normalized_shape, weight, bias, eps), residual_out


def _add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    p: float = 0.0,
    training: bool = True,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return F.rms_norm(residual_out, normalized_shape, weight, eps), residual_out


DROPOUT_ADD_LAYER_NORM = Composite(
    name="dropout_add_layer_norm",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float p=0.5, "
        "bool training=True, float eps=1e-05) -> (Tensor y, Tensor residual_out)"
    ),
    function=dropout_add_layer_norm,
    formula="residual_out = residual + dropout(x); y = layer_norm(residual_out)",
    source="Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450; " + DROPOUT.source,
    reference=_add_layer_norm,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,), (40,), 0.0)),
        Sample(((2, 3, 33), (2, 3, 33), [3, 33]), {"training": False, "eps": 1e-3}),
    ),
)

DROPOUT_ADD_RMS_NORM = Composite(
    name="dropout_add_rms_norm",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, float p=0.5, bool training=True, "
        "float? eps=None) -> (Tensor y, Tensor residual_out)"
    ),
    function=dropout_add_rms_norm,
    formula="residual_out = residual + dropout(x); y = rms_norm(residual_out)",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467; " + DROPOUT.source,
    reference=_add_rms_norm,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,), 0.0)),
        Sample(((2, 3, 33), (2, 3, 33), [3, 33]), {"training": False, "eps": 1e-3}),
    ),
)

COMPOSITES = (
    CROSS_ENTROPY, MSE_LOSS, HUBER_LOSS, BINARY_CROSS_ENTROPY_WITH_LOGITS, KL_DIV, JSD, SCALED_MASKED_SOFTMAX, ROTARY,
    QK_NORM_ROPE, DROPOUT, BIAS_DROPOUT_ADD, DROPOUT_ADD, DROPOUT_ADD_LAYER_NORM, DROPOUT_ADD_RMS_NORM,
)  # fmt: skip
