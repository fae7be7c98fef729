"""The generator's results as typed records: what ``plan.json`` says of each operator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .expression import Expression

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Argument:
    """One argument of a schema. ``kind``: tensor, ints, int, float, str or mask."""

    name: str
    kind: str
    span: str = ""
    optional: bool = False
    none: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    length: int = 0
    parts: tuple[str, ...] = ()
    interleaved: bool = False
    integer: bool = False
    narrow: tuple[torch.dtype, ...] = ()
    whole: bool = False

    def none_value(self, compute: torch.dtype) -> float | None:
        """The value that None stands for, by the dtype of the math."""
        if self.none is None:
            return None
        return self.none[compute == torch.float64]


@dataclass(frozen=True)
class Return:
    """One return.

    ``dtype``: "a|b", what the arguments a and b promote to (the math's if one is absent); a string argument that names it; its
    name; or "compute".
    """

    name: str
    span: str
    dtype: str
    parts: tuple[str, ...] = ()
    interleaved: bool = False


@dataclass(frozen=True)
class Case:
    """What one combination of selecting arguments returns, and the expression that computes it."""

    returned: tuple[bool, ...]
    expression: Expression


@dataclass(frozen=True)
class Op:
    """One torch op: public, forward or backward."""

    name: str
    schema: str
    rule: str
    rule_argument: int
    primary: int
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    case_records: Sequence[Mapping[str, Any]] = field(repr=False)

    @cached_property
    def subject(self) -> str:
        """Who speaks in the messages of this op: its forward op has those of the public one."""
        return self.name.removesuffix("_forward")

    @cached_property
    def cases(self) -> Mapping[tuple[int, ...], Case]:
        """The cases by key; read when first asked for, which importing the package does not."""
        return {
            tuple(c["key"]): Case(tuple(map(bool, c["returns"])), Expression.from_json(c["expression"]))
            for c in self.case_records
        }

    @cached_property
    def defaults(self) -> tuple[Any, ...]:
        """Default of each argument; None where there is none (such an argument is never omitted)."""
        return tuple(a.default_value for a in torch._C.parse_schema(f"avo::{self.schema}").arguments)

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Positions of the tensor arguments."""
        return tuple(i for i, a in enumerate(self.arguments) if a.kind == "tensor")

    @cached_property
    def elements(self) -> tuple[int, ...]:
        """Positions of the tensor arguments that have, or broadcast to, the shape of the call."""
        return tuple(
            i for i in self.tensors if self.arguments[i].span == "MN" and not self.arguments[i].parts
        )

    @cached_property
    def broadcast(self) -> tuple[int, ...]:
        """Positions of the tensors that autograd sees in one shape: the elements, if there are several.

        Not where the primary one is packed, whose parts autograd does not know: what broadcasts to them stays as it is, and
        the engine sums its gradient.
        """
        return () if len(self.elements) < 2 or self.arguments[self.primary].parts else self.elements

    @cached_property
    def packing(self) -> int:
        """How many values a packed tensor has for each column; 1 where none is packed."""
        parts = [*(a.parts for a in self.arguments), *(r.parts for r in self.returns)]
        return max(map(len, parts)) or 1

    @cached_property
    def optional_returns(self) -> bool:
        """Whether a return may be None."""
        return any(a.kind == "mask" for a in self.arguments)

    def filled(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` with the trailing defaults that the dispatcher leaves out."""
        return args if len(args) == len(self.arguments) else args + self.defaults[len(args) :]

    def key(self, args: Sequence[Any]) -> tuple[int, ...]:
        """What selects the case of a call: which optional tensors are there, the strings, the mask."""
        key: list[int] = []
        for a, value in zip(self.arguments, args, strict=True):
            if a.kind == "tensor" and a.optional:
                key.append(int(value is not None))
            elif a.kind == "str":
                key.append(a.choices.index(value))
            elif a.narrow:
                key.append(a.narrow.index(value.dtype))
            elif a.kind == "mask":
                key.extend(int(m) for m in value)
        return tuple(key)

    def case(self, args: Sequence[Any]) -> Case | None:
        """The case that serves a call; None where nothing is to be returned."""
        return self.cases.get(self.key(args))


@dataclass(frozen=True)
class Operator:
    """The three ops of one definition, and how the public one is differentiated.

    ``saved``: ("arg", position in the public op) or ("return", position in the returns of the forward op), in
    the order of the backward op's arguments. ``gradients``: for each argument of the public op the position
    of its gradient in the returns of the backward op, or None. ``detaches``: derivatives of higher order are those of the
    definition, for gradients end at some value within. ``constant``: no result has a gradient.
    """

    name: str
    public: Op
    forward: Op
    backward: Op | None
    saved: tuple[tuple[str, int], ...] = ()
    gradients: tuple[int | None, ...] = ()
    detaches: bool = False
    constant: bool = False

    @property
    def ops(self) -> tuple[Op, ...]:
        return (
            (self.public, self.forward)
            if self.backward is None
            else (self.public, self.forward, self.backward)
        )


def _op(data: Mapping[str, Any]) -> Op:
    arguments = tuple(
        Argument(
            name=a["name"],
            kind=a["kind"],
            span=a.get("span", ""),
            optional=a.get("optional", False),
            none=None if a.get("none") is None else (float(a["none"][0]), float(a["none"][1])),
            choices=tuple(a.get("choices", ())),
            length=a.get("length", 0),
            parts=tuple(a.get("parts", ())),
            interleaved=a.get("interleaved", False),
            integer=a.get("integer", False),
            narrow=tuple(getattr(torch, name) for name in a.get("narrow", ())),
            whole=a.get("whole", False),
        )
        for a in data["args"]
    )
    returns = tuple(
        Return(r["name"], r["span"], r["dtype"], tuple(r.get("parts", ())), r.get("interleaved", False))
        for r in data["returns"]
    )
    columns = data["columns"]
    argument = columns.get("arg")
    return Op(
        data["name"],
        data["schema"],
        columns["rule"],
        -1 if argument is None else int(argument),
        data["primary"],
        arguments,
        returns,
        data["cases"],
    )


def operator_from_json(data: Mapping[str, Any]) -> Operator:
    """One entry of "operators"."""
    ops = [_op(o) for o in data["ops"]]
    position = {a.name: i for i, a in enumerate(ops[0].arguments)}
    autograd = data.get("autograd") or {"saved": [], "gradients": {}}
    saved = tuple(
        ("arg", position[s["name"]]) if s["kind"] == "arg" else ("return", int(s["index"]))
        for s in autograd["saved"]
    )
    gradients = tuple(autograd["gradients"].get(a.name) for a in ops[0].arguments)
    backward, detaches = ops[2] if len(ops) > 2 else None, autograd.get("detaches", False)
    constant = autograd.get("constant", False)
    return Operator(data["name"], ops[0], ops[1], backward, saved, gradients, detaches, constant)


def generated_folder() -> Path | None:
    """Where the generator's results are: ``AVO_OPS_GENERATED``, the installed package, or the checkout.

    None with one warning if there are none. ``AVO_OPS_GENERATED`` set to nothing: None and silence, for the
    build, which imports this package to make those results.
    """
    named = os.environ.get("AVO_OPS_GENERATED")
    if named == "":
        return None
    places = [Path(named)] if named else [_PACKAGE / "_generated", _PACKAGE.parent / "generated"]
    for place in places:
        if (place / "plan.json").is_file():
            return place
    warnings.warn(
        f"avo_ops: there is no plan.json in {' or '.join(map(str, places))}, so no operator is registered; "
        "the package must be built first",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
