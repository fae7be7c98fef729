"""Pointwise activations of a sum with a bias, which a linear layer leaves to them."""

from __future__ import annotations

import torch.nn.functional as F

from . import activations
from .record import LAST, OpDef, Sample, Tensor


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    return activations.relu(x + bias)


def bias_gelu(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return activations.gelu(x + bias, approximate)


def bias_silu(x: Tensor, bias: Tensor) -> Tensor:
    return activations.silu(x + bias)


def _bias_gelu_twin(x: Tensor, bias: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x + bias, approximate=approximate)


def _bias_silu_twin(x: Tensor, bias: Tensor) -> Tensor:
    return F.silu(x + bias)


_SAMPLES = (Sample(((6, 40), (40,))), Sample(((2, 3, 33), (33,))))

BIAS_RELU = OpDef(
    name="bias_relu",
    schema="(Tensor x, Tensor bias) -> Tensor",
    definition=bias_relu,
    columns=LAST,
    formula="relu(x + bias)",
    source=activations.RELU.source,
    spans={"bias": "N"},
    twin=bias_relu,
    samples=_SAMPLES,
)

BIAS_GELU = OpDef(
    name="bias_gelu",
    schema="(Tensor x, Tensor bias, str approximate='none') -> Tensor",
    definition=bias_gelu,
    columns=LAST,
    formula="gelu(x + bias): " + activations.GELU_FORMULA.replace("x", "h") + "; h = x + bias",
    source=activations.GELU.source,
    spans={"bias": "N"},
    choices={"approximate": ("none", "tanh")},
    twin=_bias_gelu_twin,
    samples=(Sample(((6, 40), (40,))), Sample(((2, 3, 33), (33,), "tanh"))),
)

BIAS_SILU = OpDef(
    name="bias_silu",
    schema="(Tensor x, Tensor bias) -> Tensor",
    definition=bias_silu,
    columns=LAST,
    formula="h * sigmoid(h), h = x + bias",
    source=activations.SILU.source,
    spans={"bias": "N"},
    twin=_bias_silu_twin,
    samples=_SAMPLES,
)

CATALOGUE = (BIAS_RELU, BIAS_GELU, BIAS_SILU)
