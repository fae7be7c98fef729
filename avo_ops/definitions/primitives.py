"""What the primitives of the generator's normal form mean, in torch. Masks are boolean tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .random import uniform

Tensor = torch.Tensor


def _rounded(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype).to(x.dtype)


def _left(a: Tensor, b: Tensor, bits: Tensor) -> Tensor:
    return torch.where((b < 0) | (b >= bits), 0, a << b.clamp(0, 63))


def _right(a: Tensor, b: Tensor, bits: Tensor) -> Tensor:
    return a >> torch.where((b < 0) | (b >= bits), 63, b)


def _wrapped(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype).to(torch.int64)


TORCH: dict[str, Callable[..., Any]] = {
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "fma": lambda a, b, c: a * b + c,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "trunc": torch.trunc,
    "round": torch.round,  # to nearest even
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "recip": torch.reciprocal,
    # The third operand is the reciprocal of the second, which varies less than the first.
    "quotient": lambda a, b, r: a / b,
    "sigmoid": torch.sigmoid,
    # 1 - sigmoid(x) without its cancellation; the second operand is sigmoid of the first.
    "sigmoid_rest": lambda x, s: torch.sigmoid(-x),
    "x_sigmoid": lambda x: x * torch.sigmoid(x),
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "exp2": torch.exp2,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "lgamma": torch.lgamma,
    "pow": torch.pow,
    "fmod": torch.fmod,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "max": torch.maximum,
    "min": torch.minimum,
    "exp_neg_sq": lambda z: torch.exp(-z * z),
    # The second operand is exp_neg_sq of the first, which a kernel shares with the derivative.
    "erfc": lambda z, e: torch.special.erfc(z),
    # The normal distribution, with exp_neg_half_sq of x for its tail and its density; and times x.
    "exp_neg_half_sq": lambda x: torch.exp(-0.5 * x * x),
    "ndtr": lambda x, e: 0.5 * torch.special.erfc(x * -math.sqrt(0.5)),
    "x_ndtr": lambda x, e: x * (0.5 * torch.special.erfc(x * -math.sqrt(0.5))),
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "where": torch.where,
    # Of a row's seed and a column's number, both whole.
    "uniform": uniform,
    # Rounding to the dtype of a result that others depend on, where only a kernel knows that dtype.
    "round_result": lambda x: x,
    "round_f32": _rounded(torch.float32),
    "round_f16": _rounded(torch.float16),
    "round_bf16": _rounded(torch.bfloat16),
    # Beyond 448 the largest number of e4m3, in every release of torch. Only numbers of its range are cast to int8.
    "round_f8": lambda x: _rounded(torch.float8_e4m3fn)(x.clamp(-448.0, 448.0)),
    "round_i8": _rounded(torch.int8),
    # Integers, as int64.
    "whole": lambda x: x.to(torch.int64),
    "to_whole": lambda x: x.to(torch.int64),
    "to_math": lambda x: x.to(torch.get_default_dtype()),
    "iadd": torch.add,
    "isub": torch.sub,
    "imul": torch.mul,
    "ineg": torch.neg,
    "iabs": torch.abs,
    "isign": torch.sign,
    "iand": torch.bitwise_and,
    "ior": torch.bitwise_or,
    "ixor": torch.bitwise_xor,
    "inot": torch.bitwise_not,
    "ishl": _left,
    "ishr": _right,
    "imax": torch.maximum,
    "imin": torch.minimum,
    "idiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "ifloordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "irem": torch.fmod,
    "imod": torch.remainder,
    "iwhere": torch.where,
    "ilt": torch.lt,
    "ile": torch.le,
    "ieq": torch.eq,
    "ine": torch.ne,
    "wrap_u8": _wrapped(torch.uint8),
    "wrap_i8": _wrapped(torch.int8),
    "wrap_i16": _wrapped(torch.int16),
    "wrap_i32": _wrapped(torch.int32),
}
