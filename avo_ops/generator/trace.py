"""From a Python function to one ATen graph of its results and gradients, with the author's lines on the nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch._decomp import core_aten_decompositions
from torch._subclasses import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.overrides import TorchFunctionMode

from .ir import Source, Span

# Distinct primes: rows and columns can never be taken for each other, nor for a product or a quotient of them.
_ROWS, _COLS = 61, 127


class TraceError(ValueError):
    """The function cannot become a kernel. The message names the author's file and line, the reason and a way out."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument of the traced function."""

    name: str
    span: Span


@dataclass(frozen=True)
class Traced:
    """An ATen graph whose placeholders are the operands, the scalars, then the gradients of the results.

    ``results`` and ``gradients`` name the outputs in order; ``rows`` and ``cols`` are the symbols of the two sizes.
    """

    graph: torch.fx.Graph
    placeholders: tuple[Operand, ...]
    results: tuple[str, ...]
    gradients: tuple[str, ...]
    rows: Any
    cols: Any


class _RecordLines(TorchFunctionMode):
    """Annotates each node with the innermost frame outside torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        with fx_traceback.annotate({"source": (frame.f_code.co_filename, frame.f_lineno)}):
            return func(*args, **(kwargs or {}))


def shape_of(span: Span, rows: Any, cols: Any) -> tuple[Any, ...]:
    """The shape that an operand of this span has in the trace."""
    return {Span.BOTH: (rows, cols), Span.COLS: (cols,), Span.ROWS: (rows, 1), Span.NONE: ()}[span]


def trace(
    function: Callable[..., Any],
    operands: Sequence[Operand],
    scalars: Sequence[str],
    results: Sequence[str],
    *,
    differentiable: Sequence[str] = (),
    grads: Sequence[str] = (),
    gradient: Callable[..., dict[str, torch.Tensor]] | None = None,
) -> Traced:
    """Trace ``function(tensors, scalars, columns)`` together with its gradients.

    ``function`` takes a dict of tensors, a dict of zero-dim tensors (the scalar arguments) and the symbolic number of
    columns, and returns the results in order. ``differentiable`` names the operands whose gradients are wanted,
    ``grads`` the results whose incoming gradient exists (the others are taken as not used).

    Raises:
        TraceError: control flow on data, on sizes, or anything else that cannot be traced.
    """
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)

    def fake(shape: tuple[int, ...]) -> torch.Tensor:
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DUCK] * len(shape))
        tensor: torch.Tensor = mode.from_tensor(torch.empty(shape, dtype=torch.float64), symbolic_context=context)
        return tensor

    anchor = fake((_ROWS, _COLS))
    rows, cols = anchor.shape
    inputs = [fake(shape_of(o.span, _ROWS, _COLS)) for o in operands]
    inputs += [fake(()) for _ in scalars]
    with mode:
        shapes = [tuple(r.shape) for r in _call(function, operands, scalars, cols, inputs)]
    grad_operands = []
    for name, shape in zip(results, shapes, strict=True):
        if name in grads:
            inputs.append(fake(tuple({"M": _ROWS, "N": _COLS}.get(dim_of(s, rows, cols).text, 1) for s in shape)))
            grad_operands.append(Operand(f"grad_{name}", _span(shape, rows, cols)))

    wanted = [o.name for o in operands if o.name in differentiable]

    def joint(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plain, incoming = tensors[: len(operands) + len(scalars)], tensors[len(operands) + len(scalars) :]
        by_name = {o.name: t for o, t in zip(operands, plain, strict=False)}

        def results_of(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
            merged = {**by_name, **dict(zip(wanted, leaves, strict=True))}
            with _RecordLines():
                tensors = [*(merged[o.name] for o in operands), *plain[len(operands) :]]
                outs = tuple(_call(function, operands, scalars, cols, tensors))
            setup_stacktrace_preservation_hooks([o.grad_fn for o in outs if o.grad_fn is not None])
            return outs

        leaves = [by_name[n] for n in wanted]
        if not wanted or not incoming:
            return results_of(*leaves)
        if gradient is not None:
            outs = results_of(*leaves)
            with _RecordLines():
                stated = gradient(
                    dict(zip(grads, incoming, strict=True)), by_name, dict(zip(results, outs, strict=True))
                )
            return (*outs, *(stated[n] for n in wanted))
        def used_results(*leaves: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
            outs = results_of(*leaves)
            return tuple(o for n, o in zip(results, outs, strict=True) if n in grads), outs

        _, pull_back, outs = torch.func.vjp(used_results, *leaves, has_aux=True)
        return (*outs, *pull_back(incoming))

    try:
        with mode, fx_traceback.preserve_node_meta():
            module = make_fx(
                functionalize(joint, remove="mutations"),
                tracing_mode="real",
                decomposition_table=core_aten_decompositions(),
            )(*inputs)
    except GuardOnDataDependentSymNode as error:
        raise TraceError(
            f"{_innermost(error)}: a Python decision depends on the values of a tensor; use torch.where instead"
        ) from error
    guards = [str(g.expr) for g in env.guards if not _harmless(g.expr)]
    if guards:
        raise TraceError(
            "the function takes decisions that depend on the sizes of its arguments "
            f"({', '.join(guards)}); one kernel must serve every size"
        )
    return Traced(
        module.graph,
        (*operands, *(Operand(s, Span.NONE) for s in scalars), *grad_operands),
        tuple(results),
        tuple(wanted) if grad_operands else (),
        rows,
        cols,
    )


def _call(
    function: Callable[..., Any],
    operands: Sequence[Operand],
    scalars: Sequence[str],
    cols: Any,
    tensors: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    by_name = {o.name: t for o, t in zip(operands, tensors, strict=False)}
    numbers = dict(zip(scalars, tensors[len(operands) :], strict=False))
    out = function(by_name, numbers, cols)
    return [out] if isinstance(out, torch.Tensor) else list(out)


def _span(shape: Sequence[Any], rows: Any, cols: Any) -> Span:
    span = Span.NONE
    for size in shape:
        span |= dim_of(size, rows, cols)
    return span


def dim_of(size: Any, rows: Any, cols: Any) -> Span:
    """Whether a size is the number of rows, of columns, or 1. Compares expressions, so that no guard is recorded.

    Raises:
        TraceError: it is anything else.
    """
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    if expression == 1:
        return Span.NONE
    if expression == rows.node.expr:
        return Span.ROWS
    if expression == cols.node.expr:
        return Span.COLS
    raise TraceError(f"a tensor has a dim of size {expression}; only the rows, the columns and 1 are supported")


def _harmless(expression: Any) -> bool:
    """Guards that only say that a size is neither 0 nor 1 hold for every launch (empty calls launch nothing)."""
    text = str(expression)
    return text.startswith(("Ne(", "s")) and any(text.endswith(end) for end in (", 0)", ", 1)", ">= 2", "> 1", ">= 0"))


def _innermost(error: BaseException) -> Source | str:
    """The author's line in a traceback: the last frame outside torch and this package's generator."""
    found: Source | str = "?"
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if "/torch/" not in code.co_filename and not code.co_filename.endswith(__file__.rsplit("/", 1)[-1]):
            found = Source(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
