"""What is timed: every operator of the catalogue with its inputs, and the fewest bytes that a call can move.

All of it comes from the record and the generator's plan: an operator that is added to the catalogue is timed as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

import avo_ops  # noqa: F401  (registers torch.ops.avo)
from avo_ops import plan_file
from avo_ops.definitions import CATALOGUE, COMPOSITES, Composite, OpDef
from avo_ops.definitions.record import Narrow, Whole
from avo_ops.registry.plan import Operator, generated_folder, operator_from_json

from .accuracy import calls, twin_of
from .accuracy import differentiable as with_gradient
from .list_workloads import ListWorkload, list_workloads

Tensor = torch.Tensor

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
DIRECTIONS = ("forward", "backward", "both")
LAYOUTS = ("contiguous", "sliced", "offset")

_SMALL = ((1, 4096), (64, 4096), (512, 1024))
SHAPES = {
    "flat": (*_SMALL, *((8192, n) for n in (768, 1024, 2048, 4096, 4097, 8192, 16384))),
    "rows": (
        *_SMALL,
        *((8192, n) for n in (768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384)),
        *((32768, 1024), (32768, 4096), (8192, 1000), (8192, 4097)),
        *((2048, 50257), (1024, 65536), (512, 131072)),
    ),
    "loss": (*_SMALL, (8192, 4096), (8192, 32768), (8192, 50257), (4096, 128256)),
    # Tensors and elements of each: a small model, matrices of one, and few large ones.
    "lists": ((300, 4096), (64, 65536), (16, 1 << 20)),
}  # fmt: skip
CPU_SHAPES = ((1, 4096), (64, 768), (2048, 1024), (8192, 4096))


@lru_cache(maxsize=1)
def _operators() -> dict[str, Operator]:
    folder = generated_folder()
    assert folder is not None
    return {entry["name"]: operator_from_json(entry) for entry in plan_file.load(folder)["operators"]}


@dataclass(frozen=True, eq=False)
class Workload:
    """One operator at (M, N) with every optional tensor there.

    ``call``: its arguments by name, a shape for a tensor. Forward means a training forward, which saves what the backward
    needs; backward the backward alone, with the gradients of all arguments; both one after the other.
    """

    name: str
    record: OpDef
    m: int
    n: int
    call: dict[str, Any]

    @property
    def operator(self) -> Operator:
        return _operators()[self.record.name]

    @property
    def avo(self) -> Callable[..., Any]:
        return getattr(torch.ops.avo, self.record.name)  # type: ignore[no-any-return]

    @property
    def twin(self) -> Callable[..., Any] | None:
        return twin_of(self.record) if self.record.twin is not None else None

    @property
    def exact(self) -> Callable[..., Any]:
        """What results are compared with, in float64."""
        return self.twin or self.record.compute

    @property
    def has_backward(self) -> bool:
        return self.operator.backward is not None

    @property
    def gradients(self) -> Iterable[str]:
        """The arguments that have a gradient."""
        return with_gradient(self.record.name)

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of arguments by name, as one of arguments in the schema's order."""
        return lambda *values: function(**dict(zip(self.call, values, strict=True)))

    @cached_property
    def kind(self) -> str:
        """The class of its shapes: flat (knows no rows), rows, or loss (no result is as large as an operand)."""
        if self.record.columns.rule == "flat":
            return "flat"
        public = self.operator.public
        return "rows" if any(r.span == "MN" for r in public.returns) else "loss"

    def arguments(
        self, make: Callable[[tuple[int, ...], bool], Tensor], differentiable: bool = True
    ) -> list[Any]:
        """The arguments in the schema's order. ``make(shape, primary)`` makes a tensor, primary if of shape (M, N)."""
        found, wanted = [], self.gradients
        for key, value in self.call.items():
            if isinstance(value, tuple):
                value = make(value, value == (self.m, self.n))
                value.requires_grad_(differentiable and key in wanted)
            elif isinstance(value, Narrow):
                value = make(value.shape, True).to(value.dtype)
            elif isinstance(value, Whole):
                like = make((1,), False)
                value = torch.randint(value.low, value.high, value.shape, device=like.device)
            found.append(value)
        return found

    def bytes(self, direction: str, dtype: torch.dtype) -> int:
        """The fewest bytes that a call can move: each tensor it reads or writes once, saved row statistics left out."""
        operator = self.operator
        public, backward = operator.public, operator.backward
        values = self.arguments(lambda shape, _: torch.empty(shape, dtype=dtype, device="meta"), False)
        outs = as_tuple(self.avo(*values))
        results = [r.name for r in public.returns]
        read = _read(public, values, dict(zip((a.name for a in public.arguments), values, strict=True)))
        if direction == "forward":
            return _size(read.values()) + _size(outs)
        if backward is None:
            raise ValueError(f"{self.name} has no backward")
        internal = [None] * (len(operator.forward.returns) - len(outs))
        incoming = self.backward_values(values, [*outs, *internal], outs)
        # What each tensor of the backward op is in the terms of the public one.
        own = [f"gradient {r}" for r in results]
        for kind, i in operator.saved:
            saved = operator.forward.returns if kind == "return" else public.arguments
            own.append(saved[i].name)
        tensors = dict(
            zip((a.name for a in backward.arguments), zip(own, incoming, strict=False), strict=False)
        )
        needed = dict(_read(backward, incoming, tensors).values())
        gradients = {p: v for v, p in zip(values, operator.gradients, strict=True) if p is not None}
        if direction == "backward":
            return _size(needed.values()) + _size(gradients.values())
        # Neither an argument nor a result need be read for a second time.
        once = {**read, **{name: v for name, v in needed.items() if name not in results}}
        return _size(once.values()) + _size(outs) + _size(gradients.values())

    def backward_values(self, values: Sequence[Any], outs: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
        """The arguments of the backward op, all gradients wanted.

        ``values``: those of the public op; ``outs``: all returns of the forward op; ``grads``: of the public results.
        """
        operator = self.operator
        assert operator.backward is not None
        saved = [values[i] if kind == "arg" else outs[i] for kind, i in operator.saved]
        numbers = [v for v, a in zip(values, operator.public.arguments, strict=True) if a.kind != "tensor"]
        return [*grads, *saved, *numbers, [True] * len(operator.backward.returns)]


@dataclass(frozen=True, eq=False)
class Loss:
    """A composite that reduces a loss to one number, with the gradient of its first argument."""

    name: str
    composite: Composite
    m: int
    n: int
    call: dict[str, Any]
    kind = "loss"
    has_backward = True

    @property
    def avo(self) -> Callable[..., Any]:
        return getattr(torch.ops.avo, self.name)  # type: ignore[no-any-return]

    @property
    def exact(self) -> Callable[..., Any]:
        return self.composite.reference

    twin = exact

    @property
    def gradients(self) -> Iterable[str]:
        return list(self.call)[:1]

    arguments = Workload.arguments
    adapted = Workload.adapted

    def bytes(self, direction: str, dtype: torch.dtype) -> int:
        values = self.arguments(lambda shape, _: torch.empty(shape, dtype=dtype, device="meta"), False)
        return _size(values) + (_size(values[:1]) if direction != "forward" else 0)


Measured = Workload | Loss | ListWorkload


def _read(op: Any, values: Sequence[Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Those of ``tensors`` that the case of a call reads."""
    case = op.case(values)
    wanted = [
        name
        for r, there in zip(op.returns, case.returned, strict=True)
        if there
        for name in r.parts or (r.name,)  # a packed tensor is its parts
    ]
    loads = case.expression.loads(wanted)
    parts = {a.name: a.parts or (a.name,) for a in op.arguments}
    return {name: v for name, v in tensors.items() if any(p in loads for p in parts.get(name, (name,)))}


def _size(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))


def as_tuple(value: Any) -> tuple[Tensor, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def leaves_of(values: Iterable[Any]) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor) and v.requires_grad]


def every_workload(m: int, n: int) -> dict[str, Measured]:
    """Those of the catalogue, and those over lists of m tensors."""
    return {**workloads(m, n), **list_workloads(m, n)}


def workloads(m: int, n: int) -> dict[str, Workload | Loss]:
    """The whole catalogue at (M, N), by name: one for each choice of an operator that has several ("gelu_tanh")."""
    found: dict[str, Workload | Loss] = {}
    for record in CATALOGUE:
        for name, call in calls(record, m, n):
            key = name.replace(" ", "_")
            found[key] = Workload(key, record, m, n, call)
    for composite in COMPOSITES:
        if composite.at is not None:
            schema = torch._C.parse_schema(f"avo::{composite.name}{composite.schema}").arguments
            call = dict(zip((a.name for a in schema), composite.at(m, n).args, strict=False))
            found[composite.name] = Loss(composite.name, composite, m, n, call)
    return found


def shapes_of(workload: Measured, device: str) -> tuple[tuple[int, int], ...]:
    return SHAPES[workload.kind] if device == "cuda" or workload.kind == "lists" else CPU_SHAPES


class Arena:
    """Tensors of random numbers cut from a few large ones, so that inputs cost neither allocation nor generation.

    Every tensor starts at a multiple of 256 elements, and no two overlap until ``reset``.
    """

    _CHUNK = 1 << 26

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._chunks: list[Tensor] = []
        self._chunk = self._used = 0

    def reset(self) -> None:
        """Take everything back."""
        self._chunk = self._used = 0

    def refill(self) -> None:
        """Random numbers anew: an implementation may have written to its inputs."""
        for chunk in self._chunks:
            chunk.normal_()

    def take(self, shape: Sequence[int], layout: str = "contiguous") -> Tensor:
        """``sliced``: the first third of rows three times as long, as q of a packed projection; ``offset``: by one element."""
        if layout == "sliced":
            return self.take((*shape[:-1], 3 * shape[-1]))[..., : shape[-1]].detach()
        if layout == "offset":
            return self.take((math.prod(shape) + 1,))[1:].view(tuple(shape)).detach()
        size = math.prod(shape)
        while self._chunk < len(self._chunks) and self._used + size > self._chunks[self._chunk].numel():
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            small = self._CHUNK if self.device == "cuda" else 1
            self._chunks.append(torch.randn(max(size, small), device=self.device, dtype=self.dtype))
        begin = self._used
        self._used += -(-size // 256) * 256
        return self._chunks[self._chunk][begin : begin + size].view(tuple(shape)).detach()
