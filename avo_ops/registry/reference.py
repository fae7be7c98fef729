"""The definitions as torch code: the math in float32 or float64 on any device, each result rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..definitions.record import put_together
from .expression import Space
from .layout import (
    keeps_strides,
    memory_format,
    return_dtype,
    returned,
    shape_of,
    space_of,
    space_of_tensors,
    take_apart,
)
from .plan import Op, Return

Tensor = torch.Tensor
Definition = Callable[..., Any]


def _number(op: Op, index: int, value: Any, space: Space) -> Any:
    return op.arguments[index].none_value(space.dtype) if value is None else value


def _widened(op: Op, args: Sequence[Any], space: Space) -> list[Any]:
    """The arguments as the math takes them: tensors in its dtype, span MN in one shape, None as a number."""
    out = []
    for i, (a, value) in enumerate(zip(op.arguments, args, strict=True)):
        if a.kind != "tensor":
            out.append(_number(op, i, value, space))
        elif value is None:
            out.append(None)
        else:
            wide = value if a.whole else value.to(torch.int64 if a.integer else space.dtype)
            if a.span == "1":
                wide = wide.reshape(())
            out.append(wide.expand(space.shape) if i in op.elements and len(op.elements) > 1 else wide)
    return out


def _is_empty(space: Space) -> bool:
    # A symbolic size is never taken for 0.
    return any(isinstance(s, int) and s == 0 for s in space.sizes)


def _nothing(op: Op, ret: Return, args: Sequence[Any], space: Space) -> Tensor:
    """An (M, N) result without elements that depends on every tensor: their gradients are zeros."""
    total = torch.zeros(shape_of(op, ret, space), dtype=space.dtype, device=space.device)
    for i in op.tensors:
        if args[i] is not None:
            total = total + args[i].to(space.dtype).sum()
    return total


def _finished(op: Op, ret: Return, value: Tensor, args: Sequence[Any], space: Space) -> Tensor:
    """A result in the shape, dtype and layout that a kernel gives it, in memory of its own."""
    shape = shape_of(op, ret, space)
    value = space.joined(value, ret.span)
    if ret.span == "N" and space.rows and space.channels is None:
        if not ret.parts:
            value = value.expand([1 if d in space.rows else s for d, s in enumerate(space.sizes)])
        value = value.reshape(shape)
    out = value.to(return_dtype(op, ret, args, space))
    if tuple(out.shape) != tuple(shape):
        out = out.expand(shape)
    primary = args[op.primary]
    if ret.span != "MN" or not keeps_strides(op, primary, space):
        layout = memory_format(op, primary) if ret.span == "MN" else torch.contiguous_format
        out = out.contiguous(memory_format=layout)
    elif out.stride() != primary.stride():
        out = torch.empty_like(primary, dtype=out.dtype).copy_(out)
    return out.clone() if any(out is args[i] for i in op.tensors) else out


def stated(op: Op, compute: Callable[..., tuple[Tensor, ...]]) -> Definition:
    """The public op by the author's definition; without elements by its expression, for torch finds no largest of them."""
    by_expression = derived(op)

    def run(*args: Any) -> Any:
        args = op.filled(args)
        space = space_of(op, args)
        if _is_empty(space):
            return by_expression(*args)
        results = compute(*_widened(op, args, space))
        finished = tuple(_finished(op, r, v, args, space) for r, v in zip(op.returns, results, strict=True))
        return finished[0] if len(finished) == 1 else finished

    return run


def without_gradients(definition: Definition) -> Definition:
    """The same, with results that are constants."""

    def run(*args: Any) -> Any:
        return definition(*(a.detach() if isinstance(a, Tensor) else a for a in args))

    return run


def _whole(value: Tensor, ret: Return, space: Space) -> Tensor:
    """A value in all the dims of its span, each other of size 1."""
    rows = space.rows if ret.span == "N" else ()
    return value.expand([1 if d in rows else s for d, s in enumerate(space.sizes)])


def _operands(op: Op, args: Sequence[Any], space: Space) -> dict[str, Any]:
    """What an expression loads, by name: tensors that broadcast against the (M, N) space, and numbers."""
    values: dict[str, Any] = {}
    for a, value in zip(op.arguments, _widened(op, args, space), strict=True):
        if a.kind == "tensor" and a.span == "N" and value is not None and op.rule == "dim":
            value = value.reshape([1 if d in space.rows else -1 for d in range(len(space.sizes))])
        if a.kind == "tensor" and value is not None:
            value = space.split(value, a.span)
        values[a.name] = value
        if a.parts and value is not None:
            dim = space.columns[0] - len(space.sizes)
            values |= zip(a.parts, take_apart(value, a, value.dim() + dim), strict=True)
    return values


def derived(op: Op) -> Definition:
    """The forward or backward op by the expression that its kernels compute."""

    def run(*args: Any) -> Any:
        args = op.filled(args)
        space = space_of(op, args)
        exists = returned(op, args)
        case = op.case(args)
        out: list[Tensor | None] = [None] * len(op.returns)
        if case is not None:
            empty = _is_empty(space)
            wanted = [
                r for r, e in zip(op.returns, exists, strict=True) if e and not (empty and r.span == "MN")
            ]
            names = [name for r in wanted for name in r.parts or (r.name,)]
            values = case.expression.evaluate(names, _operands(op, args, space), space)
            for i, r in enumerate(op.returns):
                if not exists[i]:
                    continue
                if r.parts and r in wanted:
                    parts = [_whole(values[name], r, space) for name in r.parts]
                    value = put_together(parts, space.columns[0], r.interleaved)
                else:
                    value = values[r.name] if r in wanted else _nothing(op, r, args, space)
                out[i] = _finished(op, r, value, args, space)
        return out[0] if len(out) == 1 else tuple(out)

    return run


def statistics(op: Op, known: Sequence[str], names: Sequence[str]) -> Callable[..., list[Tensor]]:
    """A function that computes row statistics of the forward op again, differentiably.

    It takes the arguments of the forward op (None for a tensor that the statistics do not need), the results
    named in ``known`` and the dtype of the math.
    """
    by_name = {r.name: r for r in op.returns}

    def run(args: Sequence[Any], results: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        case = op.case(tuple(args))
        assert case is not None
        # A tensor that is not at hand has the shape of any result or other argument of its span.
        shaped = [t for t, n in zip(results, known, strict=True) if by_name[n].span == "MN"]
        shaped += [args[i] for i in op.elements if args[i] is not None]
        like = shaped[0] if shaped else None
        if like is not None and not like.is_floating_point():
            like = like.to(dtype)
        args = [like if v is None and i in op.elements else v for i, v in enumerate(args)]
        space = replace(space_of_tensors(op, args), dtype=dtype)
        expression = case.expression
        at_hand = {
            expression.results[n]: space.split(t.to(dtype), by_name[n].span)
            for n, t in zip(known, results, strict=True)
        }
        found = expression.evaluate(names, _operands(op, args, space), space, at_hand)
        return [_finished(op, by_name[n], found[n], args, space) for n in names]

    return run
