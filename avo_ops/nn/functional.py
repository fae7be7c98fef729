"""The call of an operator from a module: the shortest way to the kernel that is safe, else the usual one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from ..registry import direct_call

# Exactly these types: a subclass (DTensor, FakeTensor, a proxy, a symbolic size) takes the usual way.
_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, tuple, float, int, str, type(None)})

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


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Stands in for ``torch.nn.functional.gelu`` where a model holds that function as an attribute."""
    return call("gelu", input, approximate)


def silu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """Stands in for ``torch.nn.functional.silu``; ``inplace`` overwrites and returns ``input``."""
    return written_to(input, "silu") if inplace else call("silu", input)


def written_to(input: torch.Tensor, name: str, *args: Any) -> torch.Tensor:
    """``call(name, input, *args)`` written to ``input``, which is returned."""
    if torch.is_grad_enabled() and input.requires_grad and not input.is_leaf:
        # The operator may save its input for backward, which the write below would invalidate.
        return input.copy_(call(name, input.clone(), *args))
    return input.copy_(call(name, input, *args))  # for a leaf that requires grad this raises, as torch's does
