"""Dropout, alone and between a bias and a residual. Which values fall is drawn from a seed for each row.

The backward draws it again from the same seeds, so no mask is kept. Composites (composites.py) draw the seeds.
"""

from __future__ import annotations

import torch

from .normalization import layer_norm, rms_norm
from .random import uniform
from .record import LAST, OpDef, Sample, Tensor


def dropout_rows(x: Tensor, seed: Tensor, p: float = 0.5) -> Tensor:
    column = torch.arange(x.shape[-1], device=x.device)
    # A factor, as in torch: what falls has a gradient of 0 also where p is 1, and the scale infinite.
    return x * torch.where(uniform(seed, column) >= p, torch.ones_like(x) / (1.0 - p), 0.0)


def bias_dropout_add_rows(
    x: Tensor, residual: Tensor, seed: Tensor, bias: Tensor | None = None, p: float = 0.5
) -> Tensor:
    return residual + dropout_rows(x if bias is None else x + bias, seed, p)


def dropout_add_layer_norm_rows(
    x: Tensor,
    residual: Tensor,
    seed: Tensor,
    weight: Tensor,
    bias: Tensor,
    p: float = 0.5,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = residual + dropout_rows(x, seed, p)
    return layer_norm(residual_out, x.shape[-1:], weight, bias, eps), residual_out


def dropout_add_rms_norm_rows(
    x: Tensor,
    residual: Tensor,
    seed: Tensor,
    weight: Tensor,
    p: float = 0.5,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    residual_out = residual + dropout_rows(x, seed, p)
    return rms_norm(residual_out, x.shape[-1:], weight, eps), residual_out


_DROP = "x / (1 - p) where Philox(seed of the row, column) >= p, else 0"
_SOURCE = (
    "Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as easy as 1, 2, 3, "
    "SC 2011 (Philox4x32-10)"
)

DROPOUT_ROWS = OpDef(
    name="dropout_rows",
    schema="(Tensor x, Tensor seed, float p=0.5) -> Tensor",
    definition=dropout_rows,
    columns=LAST,
    formula=_DROP,
    source=_SOURCE,
    spans={"seed": "M"},
    integers=("seed",),
    samples=(Sample(((6, 40), (6, 1))), Sample(((2, 3, 33), (2, 3, 1), 0.1))),
)

BIAS_DROPOUT_ADD_ROWS = OpDef(
    name="bias_dropout_add_rows",
    schema="(Tensor x, Tensor residual, Tensor seed, Tensor? bias=None, float p=0.5) -> Tensor",
    definition=bias_dropout_add_rows,
    columns=LAST,
    formula=f"residual + dropout(x + bias); dropout(x) = {_DROP}",
    source=_SOURCE,
    spans={"seed": "M", "bias": "N"},
    integers=("seed",),
    packaged=False,
    samples=(
        Sample(((6, 40), (6, 40), (6, 1), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), (2, 3, 1)), {"p": 0.1}),
    ),
)

DROPOUT_ADD_LAYER_NORM_ROWS = OpDef(
    name="dropout_add_layer_norm_rows",
    schema=(
        "(Tensor x, Tensor residual, Tensor seed, Tensor weight, Tensor bias, float p=0.5, float eps=1e-05) "
        "-> (Tensor y, Tensor residual_out)"
    ),
    definition=dropout_add_layer_norm_rows,
    columns=LAST,
    invariant=True,
    formula=f"residual_out = residual + dropout(x); y = layer_norm(residual_out); dropout(x) = {_DROP}",
    source=f"{_SOURCE}; Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450",
    spans={"seed": "M", "weight": "N", "bias": "N"},
    integers=("seed",),
    results=("y", "residual_out"),
    dtypes={"residual_out": "residual"},
    packaged=False,
    samples=(
        Sample(((6, 40), (6, 40), (6, 1), (40,), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), (2, 3, 1), (33,), (33,)), {"p": 0.1, "eps": 1e-3}),
    ),
)

DROPOUT_ADD_RMS_NORM_ROWS = OpDef(
    name="dropout_add_rms_norm_rows",
    schema=(
        "(Tensor x, Tensor residual, Tensor seed, Tensor weight, float p=0.5, float? eps=None) "
        "-> (Tensor y, Tensor residual_out)"
    ),
    definition=dropout_add_rms_norm_rows,
    columns=LAST,
    formula=f"residual_out = residual + dropout(x); y = rms_norm(residual_out); dropout(x) = {_DROP}",
    source=f"{_SOURCE}; Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467",
    spans={"seed": "M", "weight": "N"},
    integers=("seed",),
    results=("y", "residual_out"),
    dtypes={"residual_out": "residual"},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    packaged=False,
    samples=(
        Sample(((6, 40), (6, 40), (6, 1), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), (2, 3, 1), (33,)), {"p": 0.1, "eps": 1e-3}),
    ),
)

CATALOGUE = (
    DROPOUT_ROWS, BIAS_DROPOUT_ADD_ROWS, DROPOUT_ADD_LAYER_NORM_ROWS, DROPOUT_ADD_RMS_NORM_ROWS,
)  # fmt: skip
