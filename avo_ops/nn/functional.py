"""The call of an operator from a module: below autograd where nothing can need it, else the usual way."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

# Exactly these types: a subclass (DTensor, FakeTensor, a proxy, a symbolic size) takes the usual way.
_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, tuple, float, int, str, type(None)})

_bare_calls: dict[str, Any] = {}


def call(name: str, *args: Any) -> torch.Tensor:
    """``torch.ops.avo.<name>(*args)``, below the Autograd key when no gradient can be asked for.

    A parameter carries the Autograd key whether or not gradients are enabled, so under ``no_grad`` each call
    would pass the Python kernel that lives there. Measured with such a kernel (an ``autograd.Function``
    around the operator), one CPU thread: it costs 23 us a call, the checks and the guard here 2.3 us.
    Autocast stays in force, since its keys come before Autograd.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return _usual(name, args)
    if (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0  # no_grad does not switch forward mode off
        or not _PLAIN_TYPES.issuperset(map(type, args))
    ):
        return _usual(name, args)
    bare = _bare_calls.get(name)
    if bare is None:
        bare = _bare_calls[name] = getattr(
            torch.ops.avo, name
        ).default._op  # without OpOverload's Python part
    with torch._C._AutoDispatchBelowAutograd():
        return bare(*args)  # type: ignore[no-any-return]


def _usual(name: str, args: tuple[Any, ...]) -> torch.Tensor:
    return getattr(torch.ops.avo, name).default(*args)  # type: ignore[no-any-return]


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Stands in for ``torch.nn.functional.gelu`` where a model holds that function as an attribute."""
    return call("gelu", input, approximate)


def silu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """Stands in for ``torch.nn.functional.silu``; ``inplace`` overwrites and returns ``input``."""
    if not inplace:
        return call("silu", input)
    if torch.is_grad_enabled() and input.requires_grad and not input.is_leaf:
        # The operator saves its input for backward, which the write below would invalidate.
        return input.copy_(call("silu", input.clone()))
    return input.copy_(call("silu", input))  # for a leaf that requires grad this raises, as torch's does
