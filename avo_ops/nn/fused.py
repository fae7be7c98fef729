"""What a rewritten forward calls: one operator where that computes the same, else what was written there.

Everything is asked at each call, since a module may be exchanged, hooked or wrapped after it was replaced.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.modules import module as torch_module

from .foreign import PromotedRMSNorm, T5RMSNorm
from .functional import FUNCTIONS, as_autocast, call, is_widened
from .functional import gelu as _gelu
from .functional import relu as _relu
from .functional import sigmoid as _sigmoid
from .functional import silu as _silu
from .modules import GELU, GroupNorm, LayerNorm, ReLU, RMSNorm, Sigmoid, SiLU, _parameter

_TYPES = frozenset({torch.Tensor, FakeTensor, FunctionalTensor})  # the latter two: under torch.export
_DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})


@dataclass(frozen=True)
class Gate:
    """The operators for act(gate) * up.

    Attributes:
        pair: takes the two tensors.
        packed: takes one tensor whose last dim holds both, in the same order.
        gate_first: whether that order is gate, up.
        settings: attributes of the activation that they take besides.
    """

    pair: str
    packed: str
    gate_first: bool = True
    settings: tuple[str, ...] = ()


_BY_CLASS: dict[type, Gate] = {
    ReLU: Gate("reglu", "reglu_packed"),
    GELU: Gate("geglu", "geglu_packed", settings=("approximate",)),
    SiLU: Gate("swiglu", "swiglu_packed"),
    Sigmoid: Gate("sigmoid_gate", "glu", gate_first=False),
}
_STAND_INS = {
    _relu: _BY_CLASS[ReLU],
    _gelu: _BY_CLASS[GELU],
    _silu: _BY_CLASS[SiLU],
    _sigmoid: _BY_CLASS[Sigmoid],
}
_BY_FUNCTION: dict[Callable[..., Any], Gate] = {
    **_STAND_INS, **{f: _STAND_INS[g] for f, g in FUNCTIONS.items() if g in _STAND_INS}
}  # fmt: skip
_FUNCTION_TYPES = (types.FunctionType, types.BuiltinFunctionType)

# The operator of a norm after an addition, and the parameters of the norm that it takes.
_RMS = ("add_rms_norm", ("weight",))
_NORMS: dict[type, tuple[str, tuple[str, ...]]] = {
    LayerNorm: ("add_layer_norm", ("weight", "bias")), RMSNorm: _RMS, PromotedRMSNorm: _RMS, T5RMSNorm: _RMS
}  # fmt: skip
_TORCH = {LayerNorm: "layer_norm", RMSNorm: "rms_norm"}


def gate_of(act: Any) -> Gate | None:
    """The gated operators of an activation: a module of ours that nothing hooks into, or a function."""
    found = _BY_CLASS.get(type(act))
    if found is not None:
        return found if _bare(act) and not getattr(act, "inplace", False) else None
    return _BY_FUNCTION.get(act) if isinstance(act, _FUNCTION_TYPES) else None


def norm_of(norm: Any) -> str | None:
    """The operator of a norm after an addition: of a module of ours that nothing hooks into."""
    found = _NORMS.get(type(norm))
    return found[0] if found is not None and _bare(norm) else None


def norm_act_of(norm: Any, act: Any) -> str | None:
    """The operator of an activation after a norm: modules of ours that nothing hooks into, or a function for the activation."""
    if type(norm) is not GroupNorm or not _bare(norm):
        return None
    if type(act) is SiLU:  # in place or not: what it is given is nobody else's
        return "group_norm_silu" if _bare(act) else None
    silu = isinstance(act, _FUNCTION_TYPES) and FUNCTIONS.get(act, act) is _silu
    return "group_norm_silu" if silu else None


def norm_act(norm: Any, act: Any, x: Any) -> Any:
    """act(norm(x))."""
    operator = norm_act_of(norm, act)
    if operator is None or not _alike(x, x):
        return act(norm(x))
    (x,) = as_autocast("group_norm", x)
    return call(operator, x, norm.num_groups, _parameter(norm, "weight"), _parameter(norm, "bias"), norm.eps)


def gated(act: Any, gate: Any, up: Any) -> Any:
    """act(gate) * up."""
    found = gate_of(act)
    if found is None or not _alike(gate, up):
        return act(gate) * up
    pair = (gate, up) if found.gate_first else (up, gate)
    return call(found.pair, *pair, *_settings(found, act))


def gated_packed(act: Any, packed: Any, gate_first: bool) -> Any:
    """The same of the halves of the last dim."""
    found = gate_of(act)
    if (
        found is not None
        and found.gate_first == gate_first
        and _alike(packed, packed)
        and packed.dim() > 0
        and packed.shape[-1] % 2 == 0
    ):
        return call(found.packed, packed, *_settings(found, act))
    first, second = packed.chunk(2, dim=-1)
    return gated(act, first, second) if gate_first else gated(act, second, first)


def add_norm(norm: Any, x: Any, residual: Any) -> Any:
    """(norm(x + residual), x + residual)."""
    operator = norm_of(norm)
    if (
        operator is not None
        and _alike(x, residual)
        and not is_widened(_TORCH.get(type(norm), ""), x.device.type)
    ):
        weight, *more = [_parameter(norm, name) for name in _NORMS[type(norm)][1]]
        if weight is None or weight.dtype == x.dtype or type(norm) in (LayerNorm, RMSNorm):
            return call(operator, x, residual, norm.normalized_shape, weight, *more, norm.eps)
    total = x + residual
    return norm(total), total


def add_norm_kept(norm: Any, x: Any, residual: Any) -> Any:
    """The same, the first in a list, from which it is taken: so it lives no longer than where it was written."""
    normed, total = add_norm(norm, x, residual)
    return [normed], total


def _settings(gate: Gate, act: Any) -> list[Any]:
    return [getattr(act, name) for name in gate.settings] if isinstance(act, torch.nn.Module) else []


def _alike(a: Any, b: Any) -> bool:
    """Whether the operators take both, without a broadcast or a promotion between them."""
    return (
        type(a) in _TYPES
        and type(b) in _TYPES
        and a.dtype == b.dtype
        and a.dtype in _DTYPES
        and a.shape == b.shape
        and a.layout is b.layout is torch.strided
        and not a.is_nested
    )


def _bare(module: torch.nn.Module) -> bool:
    """Whether to call the module is to call its class's forward, and nobody could see that it was not called."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl
        or "forward" in module.__dict__  # accelerate's hooks
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
        or torch_module._global_backward_hooks
        or torch_module._global_backward_pre_hooks
    )
