"""Math with integers in the (M, N) normal form: as torch's, so that what overflows wraps around in the dtype of the result.

A node holds an integer in 64 bits, whatever its dtype: what could leave the dtype is wrapped. Divisions are by constants alone, for
torch raises where an element of a divisor is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .ir import WHOLE, Builder, Node

# The integers of torch that math is done with; bools are masks.
INTEGERS = tuple(dtype for dtype in WHOLE if dtype != torch.bool)

Handler = Callable[[Builder, torch.dtype, list[Node]], Node]
"""From the dtype in which torch computes and the operands in it to the result, wrapped if it may leave that."""


def wrapped(b: Builder, value: Node, dtype: torch.dtype) -> Node:
    """The value as an integer of that dtype."""
    if value.op == "iconst":
        return b.integer(as_integer(value.attr, dtype))
    return value if dtype == torch.int64 else b.make(f"wrap_{WHOLE[dtype]}", value)


def as_integer(value: int, dtype: torch.dtype) -> int:
    """A number as an integer of that dtype holds it."""
    bits = torch.iinfo(dtype).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def fills(value: float, dtype: torch.dtype) -> bool:
    """Whether torch fills a tensor of that dtype with a number: for one without a sign, with those that wrap around too."""
    limits = torch.iinfo(dtype)
    least = limits.min if dtype.is_signed else -limits.max
    return math.isfinite(value) and least <= int(value) <= limits.max


def from_number(b: Builder, value: Node, dtype: torch.dtype) -> Node:
    """A number of the math that became an integer, in that dtype.

    torch casts by way of 32 bits if they hold the dtype, and then beyond them all are the least integer, as on its CPU; only for
    uint8 by way of 64.
    """
    if value.op == "iconst" or dtype in (torch.uint8, torch.int64):
        return wrapped(b, value, dtype)
    least = b.integer(torch.iinfo(torch.int32).min)
    held = b.make("iwhere", compare(b, "eq", wrapped(b, value, torch.int32), value), value, least)
    return held if dtype == torch.int32 else wrapped(b, held, dtype)


def holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a dtype has every number of another one."""
    if other == torch.bool:
        return True
    own, least = torch.iinfo(dtype), torch.iinfo(other)
    return own.min <= least.min and least.max <= own.max


def _closed(op: str) -> Handler:
    return lambda b, dtype, args: b.make(op, *args)


def _wraps(op: str) -> Handler:
    return lambda b, dtype, args: wrapped(b, b.make(op, *args), dtype)


def _shift(op: str) -> Handler:
    def handler(b: Builder, dtype: torch.dtype, args: list[Node]) -> Node:
        return wrapped(b, b.make(op, *args, b.integer(torch.iinfo(dtype).bits)), dtype)

    return handler


def _swapped(op: str) -> Handler:
    return lambda b, dtype, args: wrapped(b, b.make(op, args[1], args[0]), dtype)


def _square(b: Builder, dtype: torch.dtype, args: list[Node]) -> Node:
    return wrapped(b, b.make("imul", args[0], args[0]), dtype)


def _power(b: Builder, dtype: torch.dtype, args: list[Node]) -> Node:
    base, exponent = args[0], args[1].attr
    result = b.integer(1)
    while exponent:
        if exponent & 1:
            result = base if result.op == "iconst" else wrapped(b, b.make("imul", result, base), dtype)
        exponent >>= 1
        if exponent:
            base = _square(b, dtype, [base])
    return result


ARITHMETIC: dict[str, Handler] = {
    "add": _wraps("iadd"), "sub": _wraps("isub"), "rsub": _swapped("isub"), "mul": _wraps("imul"), "neg": _wraps("ineg"),
    "abs": _wraps("iabs"), "sign": _closed("isign"), "sgn": _closed("isign"), "square": _square, "pow": _power,
    "maximum": _closed("imax"), "minimum": _closed("imin"), "bitwise_and": _closed("iand"), "bitwise_or": _closed("ior"),
    "bitwise_xor": _closed("ixor"), "bitwise_not": _wraps("inot"), "bitwise_left_shift": _shift("ishl"),
    "bitwise_right_shift": _shift("ishr"), "__lshift__": _shift("ishl"), "__rshift__": _shift("ishr"),
    "__and__": _closed("iand"), "__or__": _closed("ior"), "__xor__": _closed("ixor"),
    "remainder": _closed("imod"), "fmod": _closed("irem"), "floor_divide": _wraps("ifloordiv"),
}  # fmt: skip
"""Operations whose result is of the dtype in which torch computes, by their ATen names."""

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# These have more to say than their operands.
_OTHERS = ("div", "clamp", "clamp_min", "clamp_max", "where", "relu")
DIVISIONS = ("remainder", "fmod", "floor_divide", "div")
REDUCTIONS = {"sum": "isum", "prod": "iprod", "amax": "iamax", "amin": "iamin"}


def compare(b: Builder, name: str, left: Node, right: Node) -> Node:
    """A comparison of two integers as a mask."""
    if name in ("gt", "ge"):
        return b.make("ilt" if name == "gt" else "ile", right, left)
    return b.make(f"i{name}", left, right)


def has_handler(name: str) -> bool:
    """Whether there is such math with integers, for some arguments at least."""
    return name in ARITHMETIC or name in COMPARISONS or name in _OTHERS
