"""Records of operators that treat all tensors of some lists in one launch: a step in place, or one number of all elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from .record import FLAT, LAST, OpDef, Sample, Tensor

# What stands behind the name of an op in the name of its overload that takes numbers as tensors, as in torch's own.
TENSOR_OVERLOAD = "tensor_"


@dataclass(frozen=True, kw_only=True)
class OverLists:
    """What every operator over lists of tensors states.

    Attributes:
        name: name of the operator in ``torch.ops.avo``.
        schema: its signature without the name.
        definition: what is computed of an element, as side-effect-free torch code.
        formula: the formula, for documentation and as a comment in the generated code.
        source: where the formula comes from.
        samples: calls for the tests, with the shapes of each list.
    """

    name: str
    schema: str
    definition: Callable[..., Any]
    formula: str
    source: str
    samples: tuple[Sample, ...] = ()

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the schema as torch reads it."""
        return tuple(torch._C.parse_schema(f"avo::{self.name}{self.schema}").arguments)

    @property
    def overloads(self) -> dict[str, str]:
        """The schema of each overload by its name; that of the op itself is empty."""
        return {"": self.schema}

    @property
    def definition_name(self) -> str:
        """The name of the op that runs the definition.

        It is not an overload: torch 2.13 mixes up three that differ in nothing but their names when it unloads them.
        """
        in_place = "_" if self.name.endswith("_") else ""
        return f"{self.name.rstrip('_')}_definition{in_place}"

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The whole call by the definition, tensor by tensor, on any device."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ListReduction(OverLists):
    """One number of all elements of a list of tensors, by a sum: ``(Tensor[] tensors) -> Tensor``.

    ``definition(x)`` says what is summed of an element, ``finish(total)`` what becomes of the sum; both see float64. The result is
    float32, or float64 if any tensor is, and has no gradient.
    """

    finish: Callable[[Tensor], Tensor]

    @property
    def element(self) -> OpDef:
        """The record of what is summed, from which the kernels come."""
        return self._pointwise(self.definition)

    @property
    def of_sum(self) -> OpDef:
        """The record of what becomes of the sum."""
        return self._pointwise(self.finish)

    def _pointwise(self, definition: Callable[..., Any]) -> OpDef:
        (argument,) = inspect.signature(definition).parameters
        return OpDef(
            name=self.name,
            schema=f"(Tensor {argument}) -> Tensor",
            definition=definition,
            columns=LAST,
            formula=self.formula,
            source=self.source,
            results=("value",),
            differentiation="none",
            packaged=False,
        )

    def compute(self, *args: Any, **kwargs: Any) -> Tensor:
        """The result by the definition, on any device."""
        (tensors,) = (*args, *kwargs.values())
        wide = any(t.dtype == torch.float64 for t in tensors)
        device = tensors[0].device if tensors else None
        total = torch.zeros((), dtype=torch.float64, device=device)
        for t in tensors:
            total = total + self.definition(t.detach().to(torch.float64)).sum()
        return self.finish(total).to(torch.float64 if wide else torch.float32)


@dataclass(frozen=True, kw_only=True)
class ListDef(OverLists):
    """A step that writes some lists in place, stated for one tensor of each.

    The schema has lists of tensors first, those that are written marked ``(a!)``; then numbers, which are float, bool or
    ``Tensor?`` of one number. ``definition`` is the step of one tensor, pointwise. Its parameters are one for each list and one for
    each number, by keyword; a bool is 0 or 1. It returns what each written list gets, in order. Elements are float32, or float64
    if any of a tensor's operands is; numbers are float64 tensors of no dims. What tensors hold afterwards that overlap others of a
    call is undefined.

    Attributes:
        elements: the name of each list of the schema in the definition, ``{"params": "param"}``.
        numbers: the lists whose tensors hold one number each.
        absent: for each ``Tensor?`` that is a number of the definition, what it stands for where it is None.
        unless: a ``Tensor?`` of one number that is none of the definition's: all is left as it is where that is not zero.
        tensors: float arguments that a second overload, ``tensor_<names>``, takes as tensors of one number.
    """

    elements: dict[str, str]
    numbers: tuple[str, ...] = ()
    absent: dict[str, float] = field(default_factory=dict)
    unless: str | None = None
    tensors: tuple[str, ...] = ()

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The lists that the operator writes."""
        return tuple(a.name for a in self.arguments if a.alias_info is not None and a.alias_info.is_write)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The lists of whole tensors, which share their sizes."""
        return tuple(name for name in self.elements if name not in self.numbers)

    @cached_property
    def single(self) -> tuple[str, ...]:
        """The arguments of one number that the definition takes, in the order of the schema."""
        return tuple(a.name for a in self.arguments if a.name not in self.elements and a.name != self.unless)

    @cached_property
    def overloads(self) -> dict[str, str]:
        """The schema of each overload by its name: with floats, or with tensors in place of some."""
        found = {"": self.schema}
        if self.tensors:
            text = self.schema
            for name in self.tensors:
                text = text.replace(f"float {name}", f"Tensor {name}")
            found[TENSOR_OVERLOAD + "_".join(self.tensors)] = text
        return found

    @cached_property
    def step(self) -> OpDef:
        """The record of one tensor's step, from which the kernels come: every number is a float argument."""
        names = {**self.elements, **{name: name for name in self.single}}
        kinds = {name: "Tensor" if name in self.operands else "float" for name in names}
        return OpDef(
            name=self.name,
            schema=f"({', '.join(f'{kinds[key]} {name}' for key, name in names.items())}) -> "
            + (f"({', '.join(['Tensor'] * len(self.written))})" if len(self.written) > 1 else "Tensor"),
            definition=self.definition,
            columns=FLAT,
            formula=self.formula,
            source=self.source,
            results=tuple(f"new_{self.elements[name]}" for name in self.written),
            differentiation="none",
            packaged=False,
        )

    def compute(self, *args: Any, **kwargs: Any) -> None:
        """The whole call by the definition, tensor by tensor, on any device."""
        given = dict(zip((a.name for a in self.arguments), args, strict=False)) | kwargs
        given = {a.name: a.default_value for a in self.arguments if a.has_default_value()} | given
        for tensors in _by_tensor(given, tuple(self.elements)):
            old = {name: tensors[name] for name in self.written}
            with torch.no_grad():
                for name, value in zip(self.written, self._step(tensors, given), strict=True):
                    if self.unless is not None and given[self.unless] is not None:
                        value = torch.where(_number(given[self.unless], value) != 0, old[name], value)
                    old[name].copy_(value)

    def _step(self, tensors: dict[str, Tensor], given: dict[str, Any]) -> Sequence[Tensor]:
        like = tensors[self.operands[0]]
        wide = any(tensors[name].dtype == torch.float64 for name in self.operands)
        dtype = torch.float64 if wide else torch.float32
        values = {self.elements[name]: tensors[name].to(dtype) for name in self.operands}
        values |= {self.elements[name]: _number(tensors[name], like) for name in self.numbers}
        for name in self.single:
            value = self.absent[name] if given[name] is None else given[name]
            values[name] = _number(value, like)
        out = self.definition(**values)
        return [out] if isinstance(out, Tensor) else list(out)


def _by_tensor(given: dict[str, Any], lists: tuple[str, ...]) -> Iterator[dict[str, Tensor]]:
    for tensors in zip(*(given[name] for name in lists), strict=True):
        yield dict(zip(lists, tensors, strict=True))


def _number(value: Any, like: Tensor) -> Tensor:
    """A number as the definition takes it: it does not decide the dtype of what it is combined with."""
    if isinstance(value, Tensor):
        return value.detach().reshape(()).to(torch.float64)
    return torch.full((), float(value), dtype=torch.float64, device=like.device)
