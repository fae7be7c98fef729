"""Normalisations over trailing dims, alone and fused with the residual addition before them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .record import OpDef, Sample, Tensor, trailing


def _trailing_dims(x: Tensor, normalized_shape: Sequence[int]) -> list[int]:
    return list(range(x.dim() - len(normalized_shape), x.dim()))


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    dims = _trailing_dims(x, normalized_shape)
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    # What rounding left of the mean, nothing in exact arithmetic: a row that hardly varies would show it, times rstd.
    residue = centred.mean(dims, keepdim=True).detach()
    variance = (centred * centred).mean(dims, keepdim=True) - residue * residue
    rstd = torch.rsqrt(variance + eps)
    y = (centred - residue) * rstd
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y


def rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    dims = _trailing_dims(x, normalized_shape)
    rstd = torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
    y = x * rstd
    if weight is not None:
        y = y * weight
    return y


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return layer_norm(residual_out, normalized_shape, weight, bias, eps), residual_out


def _add_layer_norm_twin(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return F.layer_norm(residual_out, normalized_shape, weight, bias, eps), residual_out


LAYER_NORM = OpDef(
    name="layer_norm",
    schema="(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    definition=layer_norm,
    columns=trailing("normalized_shape"),
    formula="(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, var with divisor N",
    source="Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450",
    spans={"weight": "N", "bias": "N"},
    twin=F.layer_norm,
    samples=(
        Sample(((6, 40), (40,), (40,), (40,))),
        Sample(((2, 3, 33), [33], (33,))),
        Sample(((4, 2, 6), [2, 6]), {"bias": (2, 6), "eps": 1e-3}),
        Sample(((5, 16), [16])),
    ),
)

RMS_NORM = OpDef(
    name="rms_norm",
    schema="(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
    definition=rms_norm,
    columns=trailing("normalized_shape"),
    formula="x / sqrt(mean(x^2) + eps) * weight; eps=None: the machine epsilon of the dtype of the math",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467",
    spans={"weight": "N"},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    twin=F.rms_norm,
    # A kernel for this width alone is 5 % faster than the one for rows of whole chunks (H200, bf16: 9.8 and 10.3 us); at 4096,
    # and for layer_norm at 1024, 2048, 4096 and 12288, within 2 %.
    widths={"forward": (1024,)},
    samples=(
        Sample(((6, 40), [40], (40,))),
        Sample(((2, 3, 33), [33])),
        Sample(((4, 2, 6), [2, 6], (2, 6), 1e-3)),
    ),
)

ADD_LAYER_NORM = OpDef(
    name="add_layer_norm",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05) -> (Tensor y, Tensor residual_out)"
    ),
    definition=add_layer_norm,
    columns=trailing("normalized_shape"),
    formula="residual_out = x + residual; y = layer_norm(residual_out)",
    source="Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450",
    spans={"weight": "N", "bias": "N"},
    results=("y", "residual_out"),
    dtypes={"residual_out": "residual"},
    twin=_add_layer_norm_twin,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33])),
        Sample(((4, 2, 6), (4, 2, 6), [2, 6], (2, 6)), {"eps": 1e-3}),
    ),
)

CATALOGUE = (LAYER_NORM, RMS_NORM, ADD_LAYER_NORM)
