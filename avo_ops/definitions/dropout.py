"""Dropout, alone and between a bias and a residual. Which values fall is drawn from a seed for each row.

The backward draws it again from the same seeds, so no mask is kept. Composites (composites.py) draw the seeds.
"""

from __future__ import annotations

import torch

from .random import uniform
from .record import LAST, OpDef, Sample, Tensor


def dropout_rows(x: Tensor, seed: Tensor, p: float = 0.5) -> Tensor:
    column = torch.arange(x.shape[-1], device=x.device)
    return torch.where(uniform(seed, column) >= p, x * (1.0 / (1.0 - p)), 0.0)


def bias_dropout_add_rows(
    x: Tensor, residual: Tensor, seed: Tensor, bias: Tensor | None = None, p: float = 0.5
) -> Tensor:
    return residual + dropout_rows(x if bias is None else x + bias, seed, p)


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

CATALOGUE = (DROPOUT_ROWS, BIAS_DROPOUT_ADD_ROWS)
