"""Quantising epilogues, to 8-bit floating point (e4m3) and 8-bit integers, and the way back.

q = y / scale, rounded to nearest even and held within the range of the dtype. The scale is given for the whole tensor, or found
for each row (``*_rows``) as max(|y|) / (the largest q), but at least 1 / (512 * the largest q), so that a row of zeros has one
too. NaN stays NaN in e4m3 and becomes 0 in int8; infinities become the largest q. Where a row's scale is found, one NaN makes it,
and so the whole row, NaN, and beside an infinity numbers become 0. No result has a gradient, as none of integers has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from . import gated, normalization
from .record import FLAT, LAST, OpDef, Sample, Tensor

DTYPES = ("float8_e4m3fn", "int8")
_LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}


def quantize(x: Tensor, scale: Tensor, dtype: str = "float8_e4m3fn") -> Tensor:
    q = x / scale
    if dtype == "int8":
        return torch.round(torch.where(q == q, q, 0.0)).clamp(-128.0, 127.0).to(torch.int8)
    return q.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def _with_scale(y: Tensor, dims: Sequence[int], dtype: str) -> tuple[Tensor, Tensor]:
    largest = _LARGEST[dtype]
    scale = (y.abs().amax(dims, keepdim=True) / largest).clamp(min=1.0 / (512.0 * largest)).to(torch.float32)
    return quantize(y, scale, dtype), scale


def quantize_rows(x: Tensor, dtype: str = "float8_e4m3fn") -> tuple[Tensor, Tensor]:
    return _with_scale(x, [-1], dtype)


def dequantize(x: Tensor, scale: Tensor, dtype: str = "float32") -> Tensor:
    return x * scale


def rms_norm_quantize(
    x: Tensor,
    normalized_shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> Tensor:
    return quantize(normalization.rms_norm(x, normalized_shape, weight, eps), scale, dtype)


def rms_norm_quantize_rows(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor]:
    y = normalization.rms_norm(x, normalized_shape, weight, eps)
    return _with_scale(y, normalization.trailing_dims(x, normalized_shape), dtype)


def add_rms_norm_quantize(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return rms_norm_quantize(residual_out, normalized_shape, scale, weight, eps, dtype), residual_out


def add_rms_norm_quantize_rows(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor, Tensor]:
    residual_out = x + residual
    return *rms_norm_quantize_rows(residual_out, normalized_shape, weight, eps, dtype), residual_out


def swiglu_packed_quantize(x: Tensor, scale: Tensor, dtype: str = "float8_e4m3fn") -> Tensor:
    return quantize(gated.swiglu(*x.chunk(2, -1)), scale, dtype)


def swiglu_packed_quantize_rows(x: Tensor, dtype: str = "float8_e4m3fn") -> tuple[Tensor, Tensor]:
    return _with_scale(gated.swiglu(*x.chunk(2, -1)), [-1], dtype)


# ---- in torch's own terms: each step rounded to the dtype of its arguments, the quantisation in float32 -----------


def _rms_norm_quantize_twin(
    x: Tensor,
    normalized_shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> Tensor:
    return quantize(F.rms_norm(x, normalized_shape, weight, eps).float(), scale, dtype)


def _rms_norm_quantize_rows_twin(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor]:
    y = F.rms_norm(x, normalized_shape, weight, eps).float()
    return _with_scale(y, normalization.trailing_dims(x, normalized_shape), dtype)


def _add_rms_norm_quantize_twin(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    scale: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return _rms_norm_quantize_twin(residual_out, normalized_shape, scale, weight, eps, dtype), residual_out


def _add_rms_norm_quantize_rows_twin(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    dtype: str = "float8_e4m3fn",
) -> tuple[Tensor, Tensor, Tensor]:
    residual_out = x + residual
    return *_rms_norm_quantize_rows_twin(residual_out, normalized_shape, weight, eps, dtype), residual_out


def _silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return (F.silu(gate) * up).float()


def _quantize_twin(x: Tensor, scale: Tensor, dtype: str = "float8_e4m3fn") -> Tensor:
    return quantize(x.float(), scale, dtype)


def _quantize_rows_twin(x: Tensor, dtype: str = "float8_e4m3fn") -> tuple[Tensor, Tensor]:
    return _with_scale(x.float(), [-1], dtype)


def _swiglu_packed_quantize_twin(x: Tensor, scale: Tensor, dtype: str = "float8_e4m3fn") -> Tensor:
    return quantize(_silu_and_mul(x), scale, dtype)


def _swiglu_packed_quantize_rows_twin(x: Tensor, dtype: str = "float8_e4m3fn") -> tuple[Tensor, Tensor]:
    return _with_scale(_silu_and_mul(x), [-1], dtype)


def _dequantize_twin(x: Tensor, scale: Tensor, dtype: str = "float32") -> Tensor:
    y: Tensor = (x.float() * scale).to(getattr(torch, dtype))
    return y


# ---- records ------------------------------------------------------------------------------------------------------

_E4M3 = "Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)"
_ROWS = "; scale = max(max(|{y}|) / 448, 1 / (512 * 448)) of each row, 127 instead of 448 for int8"
_ONE = "q = {y} / scale, to nearest even, within [-448, 448] or [-128, 127]"


def _formula(y: str, rows: bool) -> str:
    return (_ONE + (_ROWS if rows else "")).format(y=y)


QUANTIZE = OpDef(
    name="quantize",
    schema="(Tensor x, Tensor scale, str dtype='float8_e4m3fn') -> Tensor",
    definition=quantize,
    columns=FLAT,
    formula=_formula("x", rows=False),
    source=_E4M3,
    spans={"scale": "1"},
    results=("q",),
    dtypes={"q": "dtype"},
    choices={"dtype": DTYPES},
    differentiation="none",
    twin=_quantize_twin,
    packaged=False,
    samples=(Sample(((6, 40), ())), Sample(((2, 3, 33), (1,), "int8"))),
)

QUANTIZE_ROWS = OpDef(
    name="quantize_rows",
    schema="(Tensor x, str dtype='float8_e4m3fn') -> (Tensor q, Tensor scale)",
    definition=quantize_rows,
    columns=LAST,
    formula=_formula("x", rows=True),
    source=_E4M3,
    results=("q", "scale"),
    dtypes={"q": "dtype", "scale": "float32"},
    choices={"dtype": DTYPES},
    differentiation="none",
    twin=_quantize_rows_twin,
    packaged=False,
    samples=(Sample(((6, 40),)), Sample(((2, 3, 33), "int8"))),
)

DEQUANTIZE = OpDef(
    name="dequantize",
    schema="(Tensor x, Tensor scale, str dtype='float32') -> Tensor",
    definition=dequantize,
    columns=FLAT,
    formula="x * scale",
    source=_E4M3,
    spans={"scale": "1"},
    narrow={"x": DTYPES},
    dtypes={"y": "dtype"},
    choices={"dtype": ("float32", "float16", "bfloat16")},
    differentiation="definition",
    twin=_dequantize_twin,
    packaged=False,
    samples=(Sample(((6, 40), ())), Sample(((2, 3, 33), (1,), "bfloat16"))),
)

DEQUANTIZE_ROWS = replace(
    DEQUANTIZE,
    name="dequantize_rows",
    columns=LAST,
    formula="x * scale, one for each row",
    spans={"scale": "M"},
    samples=(Sample(((6, 40), (6, 1))), Sample(((2, 3, 33), (2, 3, 1), "bfloat16"))),
)

RMS_NORM_QUANTIZE = replace(
    normalization.RMS_NORM,
    name="rms_norm_quantize",
    schema=(
        "(Tensor x, SymInt[] normalized_shape, Tensor scale, Tensor? weight=None, float? eps=None, "
        "str dtype='float8_e4m3fn') -> Tensor"
    ),
    definition=rms_norm_quantize,
    formula=_formula("rms_norm(x)", rows=False),
    source=f"{normalization.RMS_NORM.source}; {_E4M3}",
    spans={"weight": "N", "scale": "1"},
    results=("q",),
    dtypes={"q": "dtype"},
    choices={"dtype": DTYPES},
    differentiation="none",
    twin=_rms_norm_quantize_twin,
    packaged=False,
    widths={},
    samples=(
        Sample(((6, 40), [40], (), (40,))),
        Sample(((2, 3, 33), [33], (1,)), {"dtype": "int8"}),
        Sample(((4, 2, 6), [2, 6], (), (2, 6), 1e-3)),
    ),
)

RMS_NORM_QUANTIZE_ROWS = replace(
    RMS_NORM_QUANTIZE,
    name="rms_norm_quantize_rows",
    schema=(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None, str dtype='float8_e4m3fn') "
        "-> (Tensor q, Tensor scale)"
    ),
    definition=rms_norm_quantize_rows,
    formula=_formula("rms_norm(x)", rows=True),
    spans={"weight": "N"},
    results=("q", "scale"),
    dtypes={"q": "dtype", "scale": "float32"},
    twin=_rms_norm_quantize_rows_twin,
    samples=(
        Sample(((6, 40), [40], (40,))),
        Sample(((2, 3, 33), [33]), {"dtype": "int8"}),
        Sample(((4, 2, 6), [2, 6], (2, 6), 1e-3)),
    ),
)

ADD_RMS_NORM_QUANTIZE = replace(
    RMS_NORM_QUANTIZE,
    name="add_rms_norm_quantize",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor scale, Tensor? weight=None, float? eps=None, "
        "str dtype='float8_e4m3fn') -> (Tensor q, Tensor residual_out)"
    ),
    definition=add_rms_norm_quantize,
    formula="residual_out = x + residual; " + _formula("rms_norm(residual_out)", rows=False),
    results=("q", "residual_out"),
    dtypes={"q": "dtype", "residual_out": "residual"},
    twin=_add_rms_norm_quantize_twin,
    samples=(
        Sample(((6, 40), (6, 40), [40], (), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33], (1,)), {"dtype": "int8"}),
    ),
)

ADD_RMS_NORM_QUANTIZE_ROWS = replace(
    RMS_NORM_QUANTIZE_ROWS,
    name="add_rms_norm_quantize_rows",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None, "
        "str dtype='float8_e4m3fn') -> (Tensor q, Tensor scale, Tensor residual_out)"
    ),
    definition=add_rms_norm_quantize_rows,
    formula="residual_out = x + residual; " + _formula("rms_norm(residual_out)", rows=True),
    results=("q", "scale", "residual_out"),
    dtypes={"q": "dtype", "scale": "float32", "residual_out": "residual"},
    twin=_add_rms_norm_quantize_rows_twin,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33]), {"dtype": "int8"}),
    ),
)

_GATED = "gate * sigmoid(gate) * up"
_HALVES = "; gate, up = the halves of the last dim of x"

SWIGLU_PACKED_QUANTIZE = replace(
    QUANTIZE,
    name="swiglu_packed_quantize",
    definition=swiglu_packed_quantize,
    columns=LAST,
    formula=_formula(_GATED, rows=False) + _HALVES,
    source=f"{gated.SWIGLU.source}; {_E4M3}",
    parts={"x": ("gate", "up")},
    twin=_swiglu_packed_quantize_twin,
    samples=(Sample(((6, 80), ())), Sample(((2, 3, 66), (1,), "int8"))),
)

SWIGLU_PACKED_QUANTIZE_ROWS = replace(
    QUANTIZE_ROWS,
    name="swiglu_packed_quantize_rows",
    definition=swiglu_packed_quantize_rows,
    formula=_formula(_GATED, rows=True) + _HALVES,
    source=f"{gated.SWIGLU.source}; {_E4M3}",
    parts={"x": ("gate", "up")},
    twin=_swiglu_packed_quantize_rows_twin,
    samples=(Sample(((6, 80),)), Sample(((2, 3, 66), "int8"))),
)

CATALOGUE = (
    QUANTIZE, QUANTIZE_ROWS, DEQUANTIZE, DEQUANTIZE_ROWS, RMS_NORM_QUANTIZE, RMS_NORM_QUANTIZE_ROWS,
    ADD_RMS_NORM_QUANTIZE, ADD_RMS_NORM_QUANTIZE_ROWS, SWIGLU_PACKED_QUANTIZE, SWIGLU_PACKED_QUANTIZE_ROWS,
)  # fmt: skip
