"""The call of an operator from a module: the shortest way to the kernel that is safe, else the usual one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from ..registry import direct_call

# Exactly these types: a subclass (DTensor, FakeTensor, a proxy, a symbolic size) takes the usual way.
_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, tuple, float, int, str, type(None)})

is_autocasting = torch._C._is_any_autocast_enabled
_calls: dict[str, Callable[..., torch.Tensor]] = {}


def call(name: str, *args: Any) -> torch.Tensor:
    """``torch.ops.avo.<name>(*args)``, by a shorter way where nothing but the kernel can want to see the call."""
    if torch.compiler.is_compiling():
        return _usual(name, args)
    known = _calls.get(name)
    if known is None:
        known = _calls[name] = _shorter(name)
    return known(*args)


def _shorter(name: str) -> Callable[..., torch.Tensor]:
    """By the accelerator, or else below the Autograd key when no gradient can be asked for.

    A parameter carries the Autograd key whether or not gradients are enabled, so under ``no_grad`` each call
    would pass the Python kernel that lives there. Measured with such a kernel (an ``autograd.Function``
    around the operator), one CPU thread: it costs 23 us a call, the checks and the guard here 2.3 us.
    Autocast stays in force, since its keys come before Autograd.
    """
    direct = direct_call(f"avo::{name}", lambda *args: _usual(name, args))
    if direct is not None:
        return direct
    bare = getattr(torch.ops.avo, name).default._op  # without OpOverload's Python part

    def run(*args: Any) -> torch.Tensor:
        if (
            torch.is_grad_enabled()
            or torch.jit.is_tracing()
            or torch._C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0  # no_grad does not switch forward mode off
            or not _PLAIN_TYPES.issuperset(map(type, args))
        ):
            return _usual(name, args)
        with torch._C._AutoDispatchBelowAutograd():
            return bare(*args)  # type: ignore[no-any-return]

    return run


def _usual(name: str, args: tuple[Any, ...]) -> torch.Tensor:
    return getattr(torch.ops.avo, name).default(*args)  # type: ignore[no-any-return]


# torch's functions that autocast computes in float32, by the name of ours and the device, as this torch has it.
_WIDENED = {
    (ours, device)
    for ours, theirs in {
        "layer_norm": "layer_norm",
        "rms_norm": "rms_norm",
        "group_norm": "group_norm",
        "softmax": "softmax.int",
        "log_softmax": "log_softmax.int",
        "softplus": "softplus",
        "cross_entropy": "nll_loss",
        "mse_loss": "mse_loss",
        "huber_loss": "huber_loss",
        "kl_div": "kl_div",
        "binary_cross_entropy_with_logits": "binary_cross_entropy_with_logits",
    }.items()
    for device in ("cpu", "cuda", "xpu")
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{theirs}", f"Autocast{device.upper()}")
}
AUTOCAST = frozenset(name for name, _ in _WIDENED)


def is_widened(name: str, device: str) -> bool:
    """Whether torch's twin of an operator computes 16-bit tensors on a device in float32 now, since autocast is on."""
    return (name, device) in _WIDENED and torch.is_autocast_enabled(device)


def as_autocast(name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in the dtypes in which autocast, if it is on, has torch's twin of an operator take them."""
    if not is_autocasting():  # to ask for the device takes longer
        return tensors
    if not is_widened(name, tensors[0].device.type):
        return tensors
    return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)


def written_to(input: torch.Tensor, name: str, *args: Any) -> torch.Tensor:
    """``call(name, input, *args)`` written to ``input``, which is returned."""
    if torch.is_grad_enabled() and input.requires_grad and not input.is_leaf:
        # The operator may save its input for backward, which the write below would invalidate.
        return input.copy_(call(name, input.clone(), *args))
    return input.copy_(call(name, input, *args))  # for a leaf that requires grad this raises, as torch's does


def _stand_in(name: str, operator: str, **settings: Any) -> Callable[..., torch.Tensor]:
    """Stands in for torch's function ``name``, called as that is; ``settings``: its further arguments."""
    twin = getattr(torch, name, None) or getattr(F, name)
    places = (*settings, "inplace")

    def function(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = {**dict(zip(places, args, strict=False)), **kwargs}
        inplace = given.pop("inplace", False)
        values = [given.pop(setting, default) for setting, default in settings.items()]
        if given or len(args) > len(places):  # out=, or a wrong call
            return twin(input, *args, **kwargs)  # type: ignore[no-any-return]
        if operator in AUTOCAST:
            (input,) = as_autocast(operator, input)
        return written_to(input, operator, *values) if inplace else call(operator, input, *values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``torch.nn.functional.{name}`` on ``torch.ops.avo.{operator}``."
    return function


relu = _stand_in("relu", "relu")
relu6 = _stand_in("relu6", "hardtanh", min_val=0.0, max_val=6.0)
leaky_relu = _stand_in("leaky_relu", "leaky_relu", negative_slope=0.01)
elu = _stand_in("elu", "elu", alpha=1.0)
selu = _stand_in("selu", "selu")
celu = _stand_in("celu", "celu", alpha=1.0)
hardtanh = _stand_in("hardtanh", "hardtanh", min_val=-1.0, max_val=1.0)
hardsigmoid = _stand_in("hardsigmoid", "hardsigmoid")
hardswish = _stand_in("hardswish", "hardswish")
mish = _stand_in("mish", "mish")
sigmoid = _stand_in("sigmoid", "sigmoid")
tanh = _stand_in("tanh", "tanh")
logsigmoid = _stand_in("logsigmoid", "logsigmoid")
softplus = _stand_in("softplus", "softplus", beta=1.0, threshold=20.0)
gelu = _stand_in("gelu", "gelu", approximate="none")
silu = _stand_in("silu", "silu")
glu = _stand_in("glu", "glu", dim=-1)

# What a model may hold as an attribute, and what stands in for it.
FUNCTIONS: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    **{
        getattr(F, f.__name__): f
        for f in (
            relu, relu6, leaky_relu, elu, selu, celu, hardtanh, hardsigmoid, hardswish, mish, sigmoid, tanh,
            logsigmoid, softplus, gelu, silu, glu,
        )
    },
    torch.relu: relu, torch.selu: selu, torch.celu: celu, torch.sigmoid: sigmoid, torch.tanh: tanh,
}  # fmt: skip
