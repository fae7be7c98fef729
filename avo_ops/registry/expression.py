"""The generator's expressions in torch: what a kernel computes, on any device and differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..definitions.primitives import TORCH

Tensor = torch.Tensor


def _product(value: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for d in dims:
        value = value.prod(d, keepdim=True)
    return value


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum, "prod": _product, "amax": torch.amax, "amin": torch.amin,
    "isum": torch.sum, "iprod": _product, "iamax": torch.amax, "iamin": torch.amin,
}  # fmt: skip
# What torch does not find: what leaves any other value as it is.
_OF_NOTHING = {"amax": -math.inf, "amin": math.inf}


@dataclass(frozen=True)
class Space:
    """Rows and columns of one call: which dims of the primary tensor they are, and the dtype of the math.

    ``channels``: where a row is a group of channels, their number. Dim 1 of a tensor of shape (samples, channels, ...) is then
    two dims of the space, groups and the channels of one, and what spans the columns has a value for each channel.
    """

    sizes: tuple[Any, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    channels: Any = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the primary tensor."""
        return self.sizes if self.channels is None else (self.sizes[0], self.channels, *self.sizes[3:])

    def split(self, value: Tensor, span: str) -> Tensor:
        """A tensor of a call in the dims of the space."""
        if self.channels is None:
            return value
        if span == "MN":
            return value.reshape(value.shape[0], *self.sizes[1:3], *value.shape[2:])
        return value.unsqueeze(-1) if span == "M" else value.reshape(self._of_channels)

    def joined(self, value: Tensor, span: str) -> Tensor:
        """The other way, of a value that may have a size of 1 in place of another."""
        if self.channels is None or value.dim() < len(self.sizes):
            return value
        if span == "MN":
            return value.expand(self.sizes).reshape(self.shape)
        return value.squeeze(-1) if span == "M" else value.expand(1, *self._of_channels).reshape(-1)

    @property
    def _of_channels(self) -> tuple[Any, ...]:
        return (*self.sizes[1:3], *(1,) * (len(self.sizes) - 3))

    def reduced(self, axis: str) -> tuple[int, ...]:
        """The dims along which a reduction over the rows ("M") or the columns runs."""
        if axis == "M" and self.channels is not None:
            return (0, *range(3, len(self.sizes)))
        return self.dims(axis)

    def dims(self, axis: str) -> tuple[int, ...]:
        return self.rows if axis == "M" else self.columns

    @property
    def numbers(self) -> Tensor:
        """Those of the columns."""
        sizes = [s if d in self.columns else 1 for d, s in enumerate(self.sizes)]
        return torch.arange(self.extent("N"), device=self.device).reshape(sizes)

    def extent(self, axis: str) -> Any:
        product: Any = 1
        for d in self.dims(axis):
            product = product * self.sizes[d]
        return product


@dataclass(frozen=True, eq=False)
class Expression:
    """Nodes ``(op, operands, attr)``, operands before their users, and the nodes that are results."""

    nodes: tuple[tuple[str, tuple[int, ...], Any], ...]
    results: Mapping[str, int]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Expression:
        nodes = ((op, tuple(operands), attr[0] if attr else None) for op, operands, *attr in data["nodes"])
        return Expression(tuple(nodes), dict(data["results"]))

    def needed(self, wanted: Iterable[str], known: Iterable[int] = ()) -> list[int]:
        """The nodes that the wanted results depend on, operands first; ``known`` ones are not looked into."""
        stop, seen = set(known), set()
        stack = [self.results[name] for name in wanted]
        while stack:
            index = stack.pop()
            if index not in seen:
                seen.add(index)
                if index not in stop:
                    stack.extend(self.nodes[index][1])
        return sorted(seen)

    def loads(self, wanted: Iterable[str], known: Iterable[int] = ()) -> set[str]:
        """The names of the arguments that the wanted results depend on."""
        known = set(known)
        nodes = (self.nodes[i] for i in self.needed(wanted, known) if i not in known)
        return {attr for op, _, attr in nodes if op in ("load", "scalar")}

    def evaluate(
        self,
        wanted: Iterable[str],
        values: Mapping[str, Any],
        space: Space,
        known: Mapping[int, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The wanted results.

        ``values``: tensors in the dtype of the math that broadcast against the primary one, and numbers.
        ``known``: values of nodes that are at hand, by index. Reductions keep their dims, with size 1.
        """
        wanted = tuple(wanted)
        done: dict[int, Tensor] = dict(known or {})
        for index in self.needed(wanted, done):
            if index not in done:
                op, operands, attr = self.nodes[index]
                done[index] = self._node(op, [done[i] for i in operands], attr, values, space)
        return {name: done[self.results[name]] for name in wanted}

    @staticmethod
    def _node(op: str, operands: list[Tensor], attr: Any, values: Mapping[str, Any], space: Space) -> Tensor:
        if op == "load":
            value: Tensor = values[attr]
            return value
        if op in ("scalar", "const", "size"):
            number = values[attr] if op == "scalar" else float(attr) if op == "const" else space.extent(attr)
            if isinstance(number, Tensor):
                return number
            return torch.full((), number, dtype=space.dtype, device=space.device)
        if op == "iconst":
            return torch.full((), int(attr), dtype=torch.int64, device=space.device)
        if op == "to_math":
            return operands[0].to(space.dtype)
        if op == "column":
            return space.numbers
        if op == "pick":  # the value in one column, or 0
            value, place = operands
            here = torch.where(space.numbers == place, value, 0.0)
            return here.sum(space.columns, keepdim=True) if space.columns else here
        if op in _REDUCTIONS:
            value = operands[0]
            shift = len(space.sizes) - value.dim()
            dims = [d - shift for d in space.reduced(attr) if d >= shift]
            if op in _OF_NOTHING and any(
                isinstance(s, int) and s == 0 for s in (value.shape[d] for d in dims)
            ):
                return value.sum(dims, keepdim=True) + _OF_NOTHING[op]
            # Without rows (all dims are columns) there is one row; torch would take [] for all dims.
            return _REDUCTIONS[op](value, dims, keepdim=True) if dims else value
        result: Tensor = TORCH[op](*operands)
        return result
