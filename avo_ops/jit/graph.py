"""One graph of a function, whichever way it was made: the calls that it serves, and how it is run on their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from ..registry import native_library
from .composite import Composite, Eager
from .hot_widths import made_for
from .kernels import load_cpu_kernels
from .program import Size


@dataclass(frozen=True)
class Variant:
    """One graph of a compiled function and the calls that it serves.

    ``signature``: of each tensor the dtype and the shape, with 1 for a dim of that size and letters for any others; of other
    arguments the value. ``conditions``: what sizes must be besides.
    """

    signature: str
    conditions: tuple[str, ...]
    operators: tuple[str, ...]
    composite: Composite | Eager

    @property
    def calls(self) -> str:
        """The calls that it serves, in words."""
        where = f" where {' and '.join(self.conditions)}" if self.conditions else ""
        return f"{self.signature}{where}"

    @property
    def kernels_of_widths(self) -> tuple[str, ...]:
        """The CUDA kernels that were made in the background, by now, for widths that calls had again and again."""
        return made_for(self.operators)

    def __str__(self) -> str:
        more = f"; for one width: {', '.join(self.kernels_of_widths)}" if self.kernels_of_widths else ""
        return f"{self.calls}: {', '.join(self.operators) or 'torch alone'}{more}"


@dataclass(frozen=True)
class Sizes:
    """A ``torch.Size`` among the results of a function."""

    sizes: tuple[Size, ...]


class Graph:
    """One graph and where its tensors and floats are among the leaves of a call.

    ``places``: the leaves that are its inputs. ``floats``: those of the call it was made for, as text; they choose the graph if
    ``fixed_floats``. ``out_spec``: the structure of the results; ``out_values``: those that are no tensors, by their place: a
    ``Size``, ``Sizes`` or a value. ``device``: the type of the first tensor's. ``example_shapes``: of the tensors it was made for.
    """

    def __init__(
        self, variant: Variant, places: Sequence[int], floats: tuple[str, ...], fixed_floats: bool, out_spec: Any,
        out_values: Mapping[int, Any], device: str, example_shapes: Sequence[tuple[int, ...]],
    ) -> None:  # fmt: skip
        self.variant, self.composite, self.places = variant, variant.composite, list(places)
        self.floats, self.fixed_floats, self.device = floats, fixed_floats, device
        self.out_spec, self.out_values = out_spec, dict(out_values)
        self.example_shapes = tuple(example_shapes)
        self._others = {i: _getter(v) for i, v in out_values.items()}
        self._ready = False

    def holds(self, floats: tuple[str, ...], shapes: Sequence[Any]) -> bool:
        return (not self.fixed_floats or self.floats == floats) and self.composite.holds(shapes)

    def missing(self) -> tuple[str, ...]:
        """The operators whose kernels for the CPU have to be loaded, if calls go there now."""
        native = native_library.runtime()
        on_cpu = native is not None and native.emulated is None and self.device == "cpu"
        return self.variant.operators if on_cpu and not self._ready else ()

    def complete(self) -> bool:
        """Load the kernels for the CPU if calls will go there; whether nothing is left to load."""
        if not self._ready:
            native = native_library.runtime()
            if native is not None and self.device == "cpu":
                if native.emulated is not None:
                    return False
                load_cpu_kernels(self.variant.operators)
            self._ready = True
        return True

    def entry(self, count: int) -> Callable[..., Any] | None:
        """What serves further calls with ``count`` positional arguments without a structure; None if nothing does."""
        if self.fixed_floats:
            return None
        if isinstance(self.composite, Eager):
            return self.composite
        direct, places = self.composite.direct, list(self.places)
        if direct is not None and not self._others and self.out_spec.is_leaf():
            if places == list(range(count)):
                return direct
            return lambda *args: direct(*[args[i] for i in places])
        return lambda *args: self._run([args[i] for i in places])

    def run(self, leaves: Sequence[Any]) -> Any:
        self.complete()
        return self._run([leaves[i] for i in self.places])

    def _run(self, given: Sequence[Any]) -> Any:
        """The results in the structure that the function returns."""
        out = self.composite(given)
        if self._others:
            rest = iter(out)
            count = len(out) + len(self._others)
            out = [self._others[i](given) if i in self._others else next(rest) for i in range(count)]
        return out[0] if self.out_spec.is_leaf() else pytree.tree_unflatten(out, self.out_spec)


def _getter(value: Any) -> Callable[[Sequence[Any]], Any]:
    """What gives a result that is no tensor, from the tensors and floats of a call."""
    if isinstance(value, Size):
        return value.function()
    if isinstance(value, Sizes):
        sizes = [s.function() for s in value.sizes]
        return lambda leaves: torch.Size([s(leaves) for s in sizes])
    return lambda leaves: value
