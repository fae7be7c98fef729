"""Operators over lists of tensors as workloads: ``m`` tensors of ``n`` elements in each list, by name and numbers of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

import avo_ops
from avo_ops.definitions import LISTS
from avo_ops.definitions.lists import ListDef, OverLists

Tensor = torch.Tensor

_STEP = 1000.0  # of a number of each tensor: late enough that one step more or less makes no difference


@dataclass(frozen=True, eq=False)
class ListWorkload:
    """One operator over lists. Its functions take all tensors one after the other, and return what they have written."""

    name: str
    record: OverLists
    m: int
    n: int

    kind = "lists"
    twin = None
    has_backward = False
    gradients: frozenset[str] = frozenset()

    @cached_property
    def lists(self) -> tuple[str, ...]:
        """The names of the lists, in the order of the schema."""
        return tuple(a.name for a in self.record.arguments if str(a.type) == "List[Tensor]")

    @cached_property
    def call(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {
            f"{name}[{i}]": () if name in self._numbers else (self.n,)
            for name in self.lists
            for i in range(self.m)
        }

    @property
    def _numbers(self) -> tuple[str, ...]:
        return self.record.numbers if isinstance(self.record, ListDef) else ()

    @property
    def avo(self) -> Callable[..., Any]:
        return self.adapted(getattr(torch.ops.avo, self.record.name))

    def exact(self, *tensors: Tensor) -> Any:
        """What the definition gives, which writes to copies."""
        return self.adapted(self.record.compute)(*(t.clone() for t in tensors))

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of lists and numbers, by name, as one of this workload's tensors."""
        numbers = self.record.samples[0].kwargs
        written = [i for i, name in enumerate(self.lists) if name in getattr(self.record, "written", ())]

        def call(*tensors: Tensor) -> Any:
            lists = [list(tensors[i * self.m : (i + 1) * self.m]) for i in range(len(self.lists))]
            out = function(**dict(zip(self.lists, lists, strict=True)), **numbers)
            return [t for i in written for t in lists[i]] if written else out

        return call

    def arguments(
        self, make: Callable[[tuple[int, ...], bool], Tensor], differentiable: bool = True
    ) -> list[Any]:
        """All tensors, as ``Workload.arguments`` has them; no element is negative, for it may be an average of squares."""
        found = []
        for shape in self.call.values():
            value = make(shape or (1,), False)
            found.append(value.abs_() if shape else torch.full((), _STEP, device=value.device))
        return found

    def bytes(self, direction: str, dtype: torch.dtype) -> int:
        """The bytes that the kernels move, numbers left out."""
        tensors = self.arguments(lambda shape, _: torch.empty(shape, dtype=dtype, device="meta"))
        moved = []

        def explained(**arguments: Any) -> None:
            found = avo_ops.explain(self.record.name, **arguments, on="cpu").calls[0]
            moved.append(found.read + found.written)

        self.adapted(explained)(*tensors)
        return moved[0]


def list_workloads(m: int, n: int) -> dict[str, ListWorkload]:
    """All operators over lists, by name."""
    return {record.name: ListWorkload(record.name, record, m, n) for record in LISTS}
