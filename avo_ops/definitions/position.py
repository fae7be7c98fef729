"""Rotary position embedding: each pair of columns of a query or key is turned by an angle of its position."""

from __future__ import annotations

from dataclasses import replace

import torch

from .record import LAST, OpDef, Sample, Tensor

Pair = tuple[Tensor, Tensor]


def rotary_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Pair:
    first, second = x.chunk(2, -1)
    return first * cos - second * sin, second * cos + first * sin


def rotary_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Pair:
    first, second = x[..., 0::2], x[..., 1::2]
    return first * cos - second * sin, second * cos + first * sin


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

CATALOGUE = (ROTARY_HALVES, ROTARY_PAIRS)
