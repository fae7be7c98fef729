"""The definition of a region of a captured graph as data: the graph's own lines, run again on tensors of any rank.

Nothing here needs the trace, so that a bundle can be served without it.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .ir import Source

Tensor = torch.Tensor


@dataclass(frozen=True)
class Ref:
    """A value of the definition, in the arguments of a later line: an operand, or what a line before made."""

    index: int


@dataclass(frozen=True)
class Number:
    """A constant that takes the place of a tensor: an int for one of integers."""

    value: float


@dataclass(frozen=True)
class Scalar:
    """A float argument, or a size, in the arguments of a line."""

    name: str


@dataclass(frozen=True)
class Line:
    """One operation.

    ``kind``: call (of the torch operator ``target``), reduce (by its name), same, or cast (to a dtype: numbers stay in that of the
    math), or whole (to a dtype of integers, or to bool).
    """

    kind: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    source: Source | None
    detached: bool

    def text(self) -> str:
        return f"{self.kind} {self.target} {self.args!r} {sorted(self.kwargs.items())!r} {self.detached}"


@dataclass(frozen=True)
class Definition:
    """What the record of a region has as its definition; called with operands, the columns' sizes and scalars.

    ``operands``: name, and whether it is a mask (a bool tensor, or numbers that stand for one). ``listed``: how many trailing dims
    are columns, whose sizes are then an argument; 0: the last one. ``results``: the values that it returns; ``whole``: those of
    them that are bools as they are, not as numbers.
    """

    operands: tuple[tuple[str, bool], ...]
    listed: int
    scalars: tuple[str, ...]
    lines: tuple[Line, ...]
    results: tuple[int, ...]
    whole: tuple[int, ...] = ()

    @cached_property
    def _takes(self) -> list[str]:
        return [*(name for name, _ in self.operands), *(["shape"] if self.listed else []), *self.scalars]

    @cached_property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self._takes])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(self._takes, args, strict=False)), **kwargs}
        call = self._call_of(given)
        values = self._values(call, given)
        out = tuple(
            v.to(call.like.dtype) if v.dtype == torch.bool and i not in self.whole else v
            for i, v in ((i, values[i]) for i in self.results)
        )
        return out[0] if len(out) == 1 else out

    def gradient(
        self, grads: Mapping[str, Tensor], args: Mapping[str, Any], results: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The gradient of a record: line by line backwards, by torch but for products over columns.

        torch has the product of all others by cumulative ones, which have no normal form; :func:`_product_of_others` has.
        """
        call = self._call_of(args)
        values = self._values(call, args)
        found: dict[int, Tensor] = {}
        for name, index in zip(results, self.results, strict=True):
            if name in grads:
                found[index] = found[index] + grads[name] if index in found else grads[name]
        for at, line in reversed(list(enumerate(self.lines, len(self.operands)))):
            if at not in found or line.detached or not values[at].is_floating_point():
                continue
            with at_line(line.source):
                for index, grad in _pulled_back(line, values, call, found[at]):
                    found[index] = found[index] + grad if index in found else grad
        return {name: found[i] for i, (name, _) in enumerate(self.operands) if i in found}

    def _call_of(self, given: Mapping[str, Any]) -> _Call:
        tensors = [given[name] for name, _ in self.operands]
        real = [t.dtype for t in tensors if t.is_floating_point()]
        like = _Like(real[0] if real else torch.get_default_dtype(), tensors[0].device)
        dims = tuple(range(-(len(given["shape"]) if self.listed else 1), 0))
        return _Call({name: _as_tensor(given[name], like) for name in self.scalars}, dims, like)

    def _values(self, call: _Call, given: Mapping[str, Any]) -> list[Any]:
        """The operands, and what each line makes."""
        values: list[Any] = [
            given[name] != 0 if mask and given[name].dtype != torch.bool else given[name]
            for name, mask in self.operands
        ]
        for line in self.lines:
            with at_line(line.source):
                values.append(_run_line(line, values, call))
        return values


@dataclass(frozen=True)
class _Like:
    """The dtype of the math of a call, and the device."""

    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class _Call:
    """What the lines of a definition see of a call besides values: the scalars, the dims of the columns, how numbers are made."""

    numbers: Mapping[str, Any]
    dims: tuple[int, ...]
    like: _Like


def _pulled_back(
    line: Line, values: Sequence[Any], call: _Call, grad: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """The gradients of the values that a line takes, by their places."""
    places = sorted({i for i in _refs(line) if values[i].is_floating_point()})
    if (line.kind, line.target) == ("reduce", "prod"):
        yield places[0], grad * _product_of_others(values[places[0]], call.dims)
        return
    if not places or (line.kind == "reduce" and line.target in PLACES):
        return

    def run(*leaves: Tensor) -> Any:
        own = list(values)
        for i, leaf in zip(places, leaves, strict=True):
            own[i] = leaf
        return _run_line(line, own, call)

    _, pull_back = torch.func.vjp(run, *(values[i] for i in places))[:2]
    yield from zip(places, pull_back(grad), strict=True)


def _refs(line: Line) -> Iterator[int]:
    """The places of the values that a line takes."""
    stack: list[Any] = [*line.args, *line.kwargs.values()]
    while stack:
        value = stack.pop()
        if isinstance(value, Ref):
            yield value.index
        elif isinstance(value, list | tuple):
            stack += value


def _as_tensor(value: Any, like: _Like) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _run_line(line: Line, values: Sequence[Any], call: _Call) -> Any:
    like = call.like

    def get(a: Any) -> Any:
        if isinstance(a, Ref):
            return values[a.index]
        if isinstance(a, Number):
            if isinstance(a.value, int):
                return torch.full((), a.value, dtype=torch.int64, device=like.device)
            return _as_tensor(a.value, like)
        if isinstance(a, Scalar):
            return call.numbers[a.name]
        return [get(x) for x in a] if isinstance(a, list | tuple) else a

    args = [get(a) for a in line.args]
    if line.kind == "call":
        out = line.target(*args, **{k: get(v) for k, v in line.kwargs.items()})
    elif line.kind == "same":
        out = args[0]
    elif line.kind == "whole":
        out = args[0].to(line.target)
    elif line.kind == "cast":
        out = args[0]
        if line.target == torch.bool:
            out = out if out.dtype == torch.bool else out != 0
        else:
            out = out if out.is_floating_point() else out.to(like.dtype)
            out = out if line.target is None else out.to(line.target).to(like.dtype)
    else:
        out = _reduce(line.target, args[0], call.dims, like)
    return out.detach() if line.detached else out


# Reductions whose result is the number of a column, and the reductions that find its value.
PLACES: dict[str, Callable[..., Tensor]] = {"argmax": torch.amax, "argmin": torch.amin}


def _reduce(name: str, value: Tensor, dims: tuple[int, ...], like: _Like) -> Tensor:
    if name in PLACES:
        return _place(value, PLACES[name](value, dims, keepdim=True), like)
    if name in ("any", "all") or (value.dtype == torch.bool and name in ("amax", "amin")):
        truth = (value if value.dtype == torch.bool else value != 0).to(like.dtype)
        return (torch.amax if name in ("any", "amax") else torch.amin)(truth, dims, keepdim=True) != 0
    if value.dtype == torch.bool:
        value = value.to(like.dtype)
    if name == "prod":
        return product(value, dims)
    found: Tensor = getattr(torch, name)(value, dims, keepdim=True)
    return found


def product(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The product over some dims, which stay as dims of size 1."""
    for d in dims:
        x = x.prod(d, keepdim=True)
    return x


def _product_of_others(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """For each element the product of all others of its row: without a zero, as torch has it, the whole product by the element.

    Where there are zeros it does not say what the derivatives of higher order are. So gradients end here, and these are left to
    the definition.
    """
    x = x.detach()
    is_zero = x == 0
    zeros = is_zero.to(x.dtype).sum(dims, keepdim=True)
    rest = torch.where(is_zero, 1.0, x)
    # Beside a zero the whole product is 0, or NaN if the row has an infinity or NaN.
    return torch.where(is_zero & (zeros == 1), product(rest, dims), product(x, dims) / rest)


def _place(value: Tensor, extreme: Tensor, like: _Like) -> Tensor:
    """The first column with the extreme value of its row, or with NaN, which is beyond any other as torch has it."""
    numbers = torch.arange(value.shape[-1], device=like.device)
    is_there = (value == extreme) | (value != value)
    beyond = torch.full((), math.inf, dtype=like.dtype, device=like.device)
    return torch.where(is_there, numbers.to(like.dtype), beyond).amin((-1,), keepdim=True)


# ---- whose line a traced operation is ----

_line: contextvars.ContextVar[Source | None] = contextvars.ContextVar("line", default=None)


@contextlib.contextmanager
def at_line(source: Source | None) -> Iterator[None]:
    """What is traced within belongs to this line, wherever the code that runs may be: for a graph that is traced again."""
    token = _line.set(source)
    try:
        yield
    finally:
        _line.reset(token)


def stated_line() -> Source | None:
    """The line of the innermost :func:`at_line`, if any."""
    return _line.get()
