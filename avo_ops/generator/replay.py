"""The definition of a region of a captured graph as data: the graph's own lines, run again on tensors of any rank.

Nothing here needs the trace, so that a bundle can be served without it.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Iterator, Mapping, Sequence
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
    """A constant that takes the place of a tensor."""

    value: float


@dataclass(frozen=True)
class Scalar:
    """A float argument, or a size, in the arguments of a line."""

    name: str


@dataclass(frozen=True)
class Line:
    """One operation. ``kind``: call (of the torch operator ``target``), reduce (by its name), same, or cast (to a dtype)."""

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

    ``operands``: name, and whether it is a mask (numbers that stand for a bool tensor). ``listed``: how many trailing dims
    are columns, whose sizes are then an argument; 0: the last one. ``results``: the values that it returns.
    """

    operands: tuple[tuple[str, bool], ...]
    listed: int
    scalars: tuple[str, ...]
    lines: tuple[Line, ...]
    results: tuple[int, ...]

    @cached_property
    def _takes(self) -> list[str]:
        return [*(name for name, _ in self.operands), *(["shape"] if self.listed else []), *self.scalars]

    @cached_property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self._takes])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(self._takes, args, strict=False)), **kwargs}
        like = given[self.operands[0][0]]
        dims = tuple(range(-(len(given["shape"]) if self.listed else 1), 0))
        values: list[Any] = [given[name] != 0 if mask else given[name] for name, mask in self.operands]
        numbers = {name: _as_tensor(given[name], like) for name in self.scalars}
        for line in self.lines:
            with at_line(line.source):
                values.append(_run_line(line, values, numbers, dims, like))
        out = tuple(
            v.to(like.dtype) if v.dtype == torch.bool else v for v in (values[i] for i in self.results)
        )
        return out[0] if len(out) == 1 else out


def _as_tensor(value: Any, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _run_line(
    line: Line, values: Sequence[Any], numbers: Mapping[str, Any], dims: tuple[int, ...], like: Tensor
) -> Any:
    def get(a: Any) -> Any:
        if isinstance(a, Ref):
            return values[a.index]
        if isinstance(a, Number):
            return _as_tensor(a.value, like)
        if isinstance(a, Scalar):
            return numbers[a.name]
        return [get(x) for x in a] if isinstance(a, list | tuple) else a

    args = [get(a) for a in line.args]
    if line.kind == "call":
        out = line.target(*args, **{k: get(v) for k, v in line.kwargs.items()})
    elif line.kind == "same":
        out = args[0]
    elif line.kind == "cast":
        out = args[0]
        if line.target == torch.bool:
            out = out if out.dtype == torch.bool else out != 0
        elif out.dtype == torch.bool:
            out = out.to(like.dtype)
        elif line.target is not None:
            out = out.to(line.target).to(like.dtype)
    else:
        out = _reduce(line.target, args[0], dims, like)
    return out.detach() if line.detached else out


def _reduce(name: str, value: Tensor, dims: tuple[int, ...], like: Tensor) -> Tensor:
    if name in ("any", "all"):
        truth = (value if value.dtype == torch.bool else value != 0).to(like.dtype)
        return (torch.amax if name == "any" else torch.amin)(truth, dims, keepdim=True) != 0
    if value.dtype == torch.bool:
        value = value.to(like.dtype)
    found: Tensor = getattr(torch, name)(value, dims, keepdim=True)
    return found


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
