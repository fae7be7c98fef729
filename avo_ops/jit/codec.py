"""Programs and what belongs to them as JSON, and back: a closed list of kinds, nothing of which can name other code.

An array is a tuple. Everything else that is no number, string, bool or null is an object with one key, its kind.
"""

from __future__ import annotations

import builtins
import dataclasses
import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from .graph import Sizes
from .program import (
    CallDevice,
    CallStep,
    Condition,
    ConstantStep,
    KernelStep,
    Program,
    Size,
    SizeStep,
    Slot,
    SlotView,
)

_ENUMS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
# What torch traces of Python's arithmetic on sizes.
_FUNCTIONS = {
    **{f"operator.{n}": getattr(operator, n) for n in
       ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pow", "pos", "getitem", "eq", "ne", "lt", "le", "gt", "ge",
        "and_", "or_", "not_")},
    **{f"math.{n}": getattr(math, n) for n in ("ceil", "floor", "trunc", "sqrt", "pow")},
    **{f"torch.{n}": getattr(torch, n) for n in ("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite")},
    **{f"builtins.{n}": getattr(builtins, n) for n in ("max", "min", "abs", "round", "int", "float", "bool")},
}  # fmt: skip


# The dataclasses that a bundle may hold, by name: those of programs, and those of definitions.
_OF_PROGRAMS: dict[str, Any] = {
    c.__name__: c
    for c in (CallStep, Condition, ConstantStep, KernelStep, Program, Size, SizeStep, Sizes, Slot, SlotView)
}  # fmt: skip
_OF_DEFINITIONS = ("Definition", "Line", "Number", "Ref", "Scalar", "Source")


def _record(name: str) -> Any:
    """The dataclass of a name, or None. Those of the generator are imported when first needed: that is most of a first call."""
    return _of_definitions()[name] if name in _OF_DEFINITIONS else _OF_PROGRAMS.get(name)


@lru_cache(maxsize=1)
def _of_definitions() -> dict[str, Any]:
    from ..generator import ir, replay

    return {name: getattr(ir if name == "Source" else replay, name) for name in _OF_DEFINITIONS}


class NotEncodable(ValueError):
    """A value has no place in a bundle; the message says what it is."""


def encode(value: Any, keep: Callable[[torch.Tensor], int] | None = None) -> Any:
    """A value for ``json.dumps``. ``keep``: takes a tensor, and gives the number under which it can be had again.

    Raises:
        NotEncodable: it is of no known kind.
    """

    def rest(v: Any) -> Any:
        return encode(v, keep)

    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [rest(value.real), rest(value.imag)]}
    if kind is tuple:
        return [rest(v) for v in value]
    if kind is torch.Size:
        return {"Size of numbers": [int(v) for v in value]}
    if kind in (list, immutable_list):
        return {"list": [rest(v) for v in value]}
    if kind in (dict, immutable_dict):  # no others: an OrderedDict would come back as another structure
        return {"dict": [[rest(k), rest(v)] for k, v in value.items()]}
    if kind is _record(kind.__name__):
        return {kind.__name__: {f.name: rest(getattr(value, f.name)) for f in dataclasses.fields(value)}}
    for name, enum in _ENUMS.items():
        if kind is enum:
            return {name: str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"device": value.type}
    if isinstance(value, torch._ops.OpOverload):
        return {"op": str(value)}
    if kind in (torch.Tensor, torch.nn.Parameter) and keep is not None:
        return {"tensor": keep(value)}
    for name, function in _FUNCTIONS.items():
        if value is function:
            return {"function": name}
    raise NotEncodable(f"{value!r:.80} ({kind.__module__}.{kind.__qualname__})")


def decode(value: Any, fetch: Callable[[int], torch.Tensor] | None = None, device: int | None = None) -> Any:
    """What :func:`encode` was given.

    ``fetch``: the tensor of a number. ``device``: the slot of a tensor on CUDA, whose device takes the place of any CUDA device.

    Raises:
        ValueError: it is nothing that ``encode`` gives, or an operator that this process does not have.
    """

    def rest(v: Any) -> Any:
        return decode(v, fetch, device)

    if isinstance(value, list):
        return tuple(rest(v) for v in value)
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    record = _record(kind)
    if record is not None:
        return record(**{name: rest(v) for name, v in inner.items()})
    if kind in _ENUMS:
        found = getattr(torch, inner, None)
        if type(found) is _ENUMS[kind]:
            return found
    match kind:
        case "float":
            return float(inner)
        case "complex":
            return complex(*map(rest, inner))
        case "Size of numbers":
            return torch.Size(inner)
        case "list":
            return [rest(v) for v in inner]
        case "dict":
            return {rest(k): rest(v) for k, v in inner}
        case "device":
            return torch.device(inner) if device is None or inner != "cuda" else CallDevice(device)
        case "op":
            return _operator(inner)
        case "tensor" if fetch is not None:
            return fetch(inner)
        case "function" if inner in _FUNCTIONS:
            return _FUNCTIONS[inner]
    raise ValueError(f"not a value of a bundle: {value!r:.80}")


def _operator(name: str) -> Any:
    space, packet, overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload)
    except AttributeError:
        raise ValueError(f"this torch has no operator {name}") from None
