"""Pointwise activations, alone and with a bias."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from .record import FLAT, LAST, OpDef, Sample, Tensor


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "none":
        # erfc keeps its relative accuracy where 1 + erf(x / sqrt(2)) would cancel.
        return 0.5 * x * torch.special.erfc(x * -math.sqrt(0.5))
    # 0.5 * (1 + tanh(u)) = sigmoid(2 u), without its cancellation. Beyond |x| = 30 the sigmoid is exactly 0 or 1 even in
    # float64; the clamp keeps the cube finite, and its gradient (0) then meets no infinity.
    t = x.clamp(-30.0, 30.0)
    u = 2.0 * math.sqrt(2.0 / math.pi) * t * (1.0 + 0.044715 * t * t)
    return x * torch.sigmoid(u)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def bias_gelu(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return gelu(x + bias, approximate)


def _bias_gelu_twin(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


_GELU_SOURCE = "Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415"
_GELU_FORMULA = (
    "x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"
)

GELU = OpDef(
    name="gelu",
    schema="(Tensor x, str approximate='none') -> Tensor",
    definition=gelu,
    columns=FLAT,
    formula=_GELU_FORMULA,
    source=_GELU_SOURCE,
    choices={"approximate": ("none", "tanh")},
    twin=F.gelu,
    samples=(Sample(((6, 40),)), Sample(((6, 40), "tanh")), Sample(((3, 5, 7),), {"approximate": "tanh"})),
)

SILU = OpDef(
    name="silu",
    schema="(Tensor x) -> Tensor",
    definition=silu,
    columns=FLAT,
    formula="x * sigmoid(x)",
    source="Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118",
    twin=F.silu,
    samples=(Sample(((6, 40),)), Sample(((),)), Sample(((2, 3, 4, 5),))),
)

BIAS_GELU = OpDef(
    name="bias_gelu",
    schema="(Tensor x, Tensor bias, str approximate='none') -> Tensor",
    definition=bias_gelu,
    columns=LAST,
    formula="gelu(x + bias): " + _GELU_FORMULA.replace("x", "h") + "; h = x + bias",
    source=_GELU_SOURCE,
    spans={"bias": "N"},
    choices={"approximate": ("none", "tanh")},
    twin=_bias_gelu_twin,
    samples=(Sample(((6, 40), (40,))), Sample(((2, 3, 33), (33,), "tanh"))),
)

CATALOGUE = (GELU, SILU, BIAS_GELU)
