"""Rotary position embedding: each pair of columns of a query or key is turned by an angle of its position.

Alone, and after the norm of each head that some models have before it (QK-Norm). Such a model rounds the norm to its 16
bits before it turns it; in one kernel nothing is rounded between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F

from .record import LAST, OpDef, Sample, Tensor

Pair = tuple[Tensor, Tensor]


def _halves(x: Tensor) -> Pair:
    first, second = x.chunk(2, -1)
    return first, second


def _pairs(x: Tensor) -> Pair:
    return x[..., 0::2], x[..., 1::2]


def _turned(x: Pair, cos: Tensor, sin: Tensor) -> Pair:
    first, second = x
    return first * cos - second * sin, second * cos + first * sin


def rotary_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Pair:
    return _turned(_halves(x), cos, sin)


def rotary_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Pair:
    return _turned(_pairs(x), cos, sin)


def _halves_twin(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.cat(rotary_halves(x, cos, sin), -1)


def _pairs_twin(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.stack(rotary_pairs(x, cos, sin), -1).flatten(-2)


ROTARY_HALVES = OpDef(
    name="rotary_halves",
    schema="(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    definition=rotary_halves,
    columns=LAST,
    formula="a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x, and of the result",
    source="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864",
    parts={"x": ("first", "second"), "y": ("turned_first", "turned_second")},
    twin=_halves_twin,
    samples=(
        Sample(((6, 80), (6, 40), (6, 40))),
        Sample(((2, 3, 4, 66), (3, 1, 33), (3, 1, 33))),
    ),
)

ROTARY_PAIRS = replace(
    ROTARY_HALVES,
    name="rotary_pairs",
    definition=rotary_pairs,
    formula="a cos - b sin, b cos + a sin; a, b = x[..., 0::2], x[..., 1::2], and of the result",
    interleaved=True,
    twin=_pairs_twin,
)


# ---- after a norm -----------------------------------------------------------------------------------------------


def _normalised(x: Pair, weight: Pair, eps: float | None, offset: float) -> Pair:
    """rms_norm of a row of which these are the parts."""
    (first, second), (first_weight, second_weight) = x, weight
    if eps is None:
        eps = torch.finfo(first.dtype).eps
    rstd = torch.rsqrt((first * first + second * second).mean(-1, keepdim=True) * 0.5 + eps)
    return first * rstd * (first_weight + offset), second * rstd * (second_weight + offset)


def rms_norm_rotary_halves(
    x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor, eps: float | None = None, offset: float = 0.0
) -> Pair:
    normalised = _normalised(_halves(x), _halves(weight), eps, offset)
    return _turned(normalised, cos.detach(), sin.detach())


def rms_norm_rotary_pairs(
    x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor, eps: float | None = None, offset: float = 0.0
) -> Pair:
    normalised = _normalised(_pairs(x), _pairs(weight), eps, offset)
    return _turned(normalised, cos.detach(), sin.detach())


def _after_norm(rotary: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The norm and then the rotation, by torch."""

    def twin(
        x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor, eps: float | None = None, offset: float = 0.0
    ) -> Tensor:
        return rotary(F.rms_norm(x, x.shape[-1:], weight + offset, eps), cos, sin)

    return twin


RMS_NORM_ROTARY_HALVES = OpDef(
    name="rms_norm_rotary_halves",
    schema="(Tensor x, Tensor cos, Tensor sin, Tensor weight, float? eps=None, float offset=0.0) -> Tensor",
    definition=rms_norm_rotary_halves,
    columns=LAST,
    formula=(
        "a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x / sqrt(mean(x^2) + eps) * (weight + offset), and "
        "of the result; no gradient for cos and sin; eps=None: the machine epsilon of the dtype of the math"
    ),
    source="Yang et al., Qwen3 Technical Report, arXiv:2505.09388 (QK-Norm); " + ROTARY_HALVES.source,
    spans={"weight": "N"},
    parts={**ROTARY_HALVES.parts, "weight": ("first_weight", "second_weight")},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    twin=_after_norm(_halves_twin),
    packaged=False,
    samples=(
        Sample(((6, 80), (6, 40), (6, 40), (80,))),
        Sample(((2, 3, 4, 66), (3, 1, 33), (3, 1, 33), (66,)), {"eps": 1e-3}),
        Sample(((2, 3, 4, 16), (3, 1, 8), (3, 1, 8), (16,)), {"offset": 1.0}),
    ),
)

RMS_NORM_ROTARY_PAIRS = replace(
    RMS_NORM_ROTARY_HALVES,
    name="rms_norm_rotary_pairs",
    definition=rms_norm_rotary_pairs,
    formula=(
        "a cos - b sin, b cos + a sin; a, b = y[..., 0::2], y[..., 1::2] of y = x / sqrt(mean(x^2) + eps) * (weight + offset), "
        "and of the result; no gradient for cos and sin; eps=None: the machine epsilon of the dtype of the math"
    ),
    interleaved=True,
    kernels=RMS_NORM_ROTARY_HALVES.name,
    twin=_after_norm(_pairs_twin),
)

CATALOGUE = (ROTARY_HALVES, ROTARY_PAIRS, RMS_NORM_ROTARY_HALVES, RMS_NORM_ROTARY_PAIRS)
