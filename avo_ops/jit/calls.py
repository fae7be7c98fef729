"""What of a call decides which graph serves it, and the call in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

Tensor = torch.Tensor
is_autocasting = torch._C._is_any_autocast_enabled


def key_of(leaves: Sequence[Any], spec: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The structure of the arguments, the kind of each, and autocast."""
    return spec, tuple(map(kind, leaves)), autocast_dtypes() if is_autocasting() else None


def kind_of(leaf: Any) -> Any:
    """What of an argument decides which graphs may serve it: (dtype, device, which sizes are 1), float or (type, value)."""
    if isinstance(leaf, Tensor):
        ones = tuple(isinstance(s, int) and s == 1 for s in leaf.shape)
        return leaf.dtype, leaf.device, ones
    return float if type(leaf) is float else (type(leaf), leaf)


def exported_kind_of(leaf: Any) -> Any:
    """The same for the graphs of a bundle: of a device the type counts, not the index."""
    kind = kind_of(leaf)
    return (kind[0], kind[1].type, kind[2]) if isinstance(leaf, Tensor) else kind


def autocast_dtypes() -> tuple[Any, ...]:
    """The dtypes of autocast, which are a part of what a function computes."""
    return tuple(torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in ("cpu", "cuda"))


def spelled_floats(leaves: Sequence[Any]) -> tuple[str, ...]:
    """The floats of a call, for comparisons in which NaN is itself and -0.0 is not 0.0."""
    return tuple(repr(a) for a in leaves if type(a) is float)


def leaf_names(fn: Callable[..., Any], count: int, spec: Any) -> list[str]:
    """The names of the parameters that the leaves of a call belong to, numbered where there are several."""
    args, kwargs = pytree.tree_unflatten(list(range(count)), spec)
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"a{i}": a for i, a in enumerate(args)}, **kwargs}
    names = [f"a{i}" for i in range(count)]
    for parameter, value in bound.items():
        found = pytree.tree_leaves(value)
        for j, i in enumerate(found):
            names[i] = parameter if len(found) == 1 else f"{parameter}_{j}"
    return names


def signature_text(leaves: Sequence[Any], names: Sequence[str], fixed_floats: bool) -> str:
    """Dtype and shape of each tensor, 1 for a dim of that size and letters for any others; of other arguments the value."""
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 8)
    parts = []
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, Tensor):
            sizes = ", ".join("1" if isinstance(s, int) and s == 1 else next(letters) for s in leaf.shape)
            parts.append(f"{name}: {str(leaf.dtype).removeprefix('torch.')}[{sizes}]")
        elif type(leaf) is float and not fixed_floats:
            parts.append(f"{name}: float")
        else:
            parts.append(f"{name}={leaf!r}")
    return ", ".join(parts)
