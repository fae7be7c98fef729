"""From a Python function to one ATen graph of its results and gradients, with the author's lines on the nodes."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.overrides import TorchFunctionMode

from .ir import NARROW, Source, Span
from .replay import stated_line

# Distinct primes: rows and columns can never be taken for each other, nor for a product or a quotient of them.
_ROWS, _COLS = 61, 127


DATA_DEPENDENT = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)


# detach() in a trace.
_ENDS_OF_GRADIENTS = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)


class TraceError(ValueError):
    """The function cannot become a kernel. The message names the author's file and line, the reason and a way out."""


@dataclass(frozen=True)
class Operand:
    """An argument of the traced function: a tensor, or a number. ``exact``: the dtype of one of integers or bools."""

    name: str
    span: Span
    integer: bool = False
    number: bool = False
    exact: torch.dtype | None = None


@dataclass(frozen=True)
class Traced:
    """An ATen graph whose placeholders are the operands, the scalars, then the gradients of the results.

    ``results`` and ``gradients`` name the outputs in order; ``rows`` and ``cols`` are the symbols of the two sizes.
    ``problems`` says what the trace already knows to have no kernel, with the author's lines; ``detaches`` whether gradients
    end at some value.
    """

    graph: torch.fx.Graph
    placeholders: tuple[Operand, ...]
    results: tuple[str, ...]
    gradients: tuple[str, ...]
    rows: Any
    cols: Any
    problems: tuple[str, ...] = ()
    detaches: bool = False


def _logical_not(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return torch.eq(x, 0, **kwargs)


def _all(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if kwargs.get("out") is not None:
        return torch.all(x, *args, **kwargs)
    found = torch.bitwise_not(torch.any(torch.eq(x, 0), *args, **kwargs))
    return found.to(x.dtype) if x.dtype == torch.uint8 else found


# Shifts by their own operations cannot be traced with symbolic sizes that broadcast, nor of bools. The others ask for the device,
# which a torch without CUDA does not have where a graph is traced for it.
_TRACEABLE: dict[Any, Any] = {
    torch.Tensor.__lshift__: torch.bitwise_left_shift,
    torch.Tensor.__rshift__: torch.bitwise_right_shift,
    torch.Tensor.__invert__: torch.bitwise_not,
    torch.logical_not: _logical_not,
    torch.Tensor.logical_not: _logical_not,
    torch.all: _all,
    torch.Tensor.all: _all,
}


def traceable(func: Any) -> Any:
    """A function of torch, or another that computes the same and that can be traced."""
    return _TRACEABLE.get(func, func)


class RecordLines(TorchFunctionMode):
    """Annotates each node with the innermost frame outside torch."""

    def note(self, func: Any) -> dict[str, Any]:
        """What is said of the nodes that a function of torch makes."""
        source = calling_line()
        return {"source": (source.file, source.line)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with fx_traceback.annotate(self.note(func)):
            return traceable(func)(*args, **(kwargs or {}))


def source_of(node: torch.fx.Node) -> Source | None:
    """The author's line that made this node, if it was recorded."""
    recorded = (node.meta.get("custom") or {}).get("source")
    return Source(*recorded) if recorded else None


def aten_name(node: torch.fx.Node) -> str:
    """ "add" of aten.add.Tensor."""
    name = str(node.target)
    for namespace in ("aten.", "prims.", "avo_random."):
        name = name.removeprefix(namespace)
    return name.split(".")[0]


class _Watch(TorchFunctionMode):
    """Raises TraceError at the line that modifies one of the tensors; remembers the lines whose functions leave guards."""

    def __init__(self, tensors: dict[str, torch.Tensor], env: ShapeEnv) -> None:
        super().__init__()
        self.tensors, self.env = tensors, env
        self.line_of_guard: dict[int, Source] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, guards = {name: t._version for name, t in self.tensors.items()}, len(self.env.guards)
        out = traceable(func)(*args, **(kwargs or {}))
        self.line_of_guard |= {i: calling_line() for i in range(guards, len(self.env.guards))}
        for name, t in self.tensors.items():
            if t._version != before[name]:
                raise TraceError(
                    f"{calling_line()}: the argument {name} is modified in place; a kernel never writes to its "
                    "arguments: compute a new tensor and return it"
                )
        return out


class Packed:
    """A packed argument while its operator is traced: its parts are operands of their own, and all that it has."""

    def __init__(self, name: str, parts: Sequence[torch.Tensor], interleaved: bool) -> None:
        self._name, self._parts, self._interleaved = name, tuple(parts), interleaved

    def chunk(self, chunks: int, dim: int = 0) -> tuple[torch.Tensor, ...]:
        if self._interleaved or chunks != len(self._parts) or dim != -1:
            raise self._misused()
        return self._parts

    def __getitem__(self, index: Any) -> torch.Tensor:
        for i, part in enumerate(self._parts if self._interleaved else ()):
            if index == (Ellipsis, slice(i, None, len(self._parts))):
                return part
        raise self._misused()

    def __getattr__(self, name: str) -> Any:
        raise self._misused()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own: Packed = next(a for a in [*args, *(kwargs or {}).values()] if isinstance(a, Packed))
        if func is torch.chunk and own is args[0]:
            return own.chunk(*args[1:], **(kwargs or {}))
        raise own._misused()

    def _misused(self) -> TraceError:
        count = len(self._parts)
        ways = ", ".join(f"{self._name}[..., {i}::{count}]" for i in range(count))
        way = ways if self._interleaved else f"{self._name}.chunk({count}, -1)"
        return TraceError(f"{calling_line()}: {self._name} is packed; take it apart by {way}")


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
    whole: Sequence[str] = (),
) -> Traced:
    """Trace ``function(tensors, scalars, columns)`` together with its gradients.

    ``function`` takes a dict of tensors, a dict of zero-dim tensors (the scalar arguments) and the symbolic number of
    columns, and returns the results in order. ``differentiable`` names the operands whose gradients are wanted,
    ``grads`` the results whose incoming gradient exists (the others are taken as not used), ``whole`` those that are integers.

    Raises:
        TraceError: control flow on data, on sizes, or anything else that cannot be traced.
    """
    env = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    mode = FakeTensorMode(shape_env=env)

    def fake(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DUCK] * len(shape))
        tensor: torch.Tensor = mode.from_tensor(torch.empty(shape, dtype=dtype), symbolic_context=context)
        return tensor

    anchor = fake((_ROWS, _COLS))
    rows, cols = anchor.shape
    inputs = [
        fake(shape_of(o.span, _ROWS, _COLS), o.exact or (torch.int64 if o.integer else torch.float64))
        for o in operands
    ]
    inputs += [fake(()) for _ in scalars]
    watch = _Watch(dict(zip((*(o.name for o in operands), *scalars), inputs, strict=True)), env)
    try:
        with mode, watch:
            outs = _call(function, operands, scalars, cols, inputs)
    except Exception as error:
        raise _refusal(error, rows, cols) from error
    problems = _problems_of(outs, results, rows, cols, whole)
    if problems:
        grads = ()  # without gradients the trace still finds the lines of what else is wrong
    grad_operands = []
    for name, shape in zip(results, [tuple(o.shape) for o in outs], strict=True):
        if name in grads:
            inputs.append(
                fake(tuple({"M": _ROWS, "N": _COLS}.get(dim_of(s, rows, cols).text, 1) for s in shape))
            )
            grad_operands.append(Operand(f"grad_{name}", _span(shape, rows, cols)))

    wanted = [o.name for o in operands if o.name in differentiable]

    def joint(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plain, incoming = tensors[: len(operands) + len(scalars)], tensors[len(operands) + len(scalars) :]
        by_name = {o.name: t for o, t in zip(operands, plain, strict=False)}

        def results_of(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
            merged = {**by_name, **dict(zip(wanted, leaves, strict=True))}
            with RecordLines():
                tensors = [*(merged[o.name] for o in operands), *plain[len(operands) :]]
                outs = tuple(_call(function, operands, scalars, cols, tensors))
            setup_stacktrace_preservation_hooks([o.grad_fn for o in outs if o.grad_fn is not None])
            return outs

        leaves = [by_name[n] for n in wanted]
        if not wanted or not incoming:
            return results_of(*leaves)
        if gradient is not None:
            outs = results_of(*leaves)
            with RecordLines():
                arguments = {**by_name, **dict(zip(scalars, plain[len(operands) :], strict=True))}
                stated = gradient(
                    dict(zip(grads, incoming, strict=True)), arguments, dict(zip(results, outs, strict=True))
                )
            # What it does not name has no gradient.
            return (*outs, *(stated[n] if n in stated else torch.zeros_like(by_name[n]) for n in wanted))

        def used_results(*leaves: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
            outs = results_of(*leaves)
            return tuple(o for n, o in zip(results, outs, strict=True) if n in grads), outs

        pulled: Any = torch.func.vjp(used_results, *leaves, has_aux=True)
        _, pull_back, outs = pulled
        return (*outs, *pull_back(incoming))

    try:
        module = graph_of(joint, mode, inputs, decompositions())
    except Exception as error:
        raise _refusal(error, rows, cols) from error
    for i, guard in enumerate(env.guards):
        if not is_harmless(guard.expr):
            problems.append(
                f"{watch.line_of_guard.get(i) or _line_of_guard(guard)}: a decision depends on the sizes of the arguments "
                f"({_in_words(str(guard.expr), rows, cols)}); one kernel must serve every size"
            )
    return Traced(
        module.graph,
        (*operands, *(Operand(s, Span.NONE, number=True) for s in scalars), *grad_operands),
        tuple(results),
        tuple(wanted) if grad_operands else (),
        rows,
        cols,
        tuple(dict.fromkeys(problems)),
        any(n.target in _ENDS_OF_GRADIENTS for n in module.graph.nodes),
    )


def graph_of(
    function: Callable[..., Any],
    mode: FakeTensorMode,
    inputs: Sequence[torch.Tensor],
    table: Mapping[Any, Callable[..., Any]],
) -> torch.fx.GraphModule:
    """The ATen graph of a function of fake tensors. Mutations of temporaries become functions.

    functionalize runs each operation in place once more on meta tensors of symbolic sizes, for which only the Python
    dispatcher finds kernels of all operations; make_fx switches it on by itself where it makes the fake tensors.
    """
    with mode, enable_python_dispatcher(), fx_traceback.preserve_node_meta():
        functional = functionalize(function, remove="mutations")
        return make_fx(functional, tracing_mode="real", decomposition_table=dict(table))(*inputs)


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
    outs = list(out) if isinstance(out, list | tuple) else [out]
    # A packed result is a tuple of its parts.
    return [part for o in outs for part in (o if isinstance(o, list | tuple) else [o])]


def _problems_of(
    outs: Sequence[Any], results: Sequence[str], rows: Any, cols: Any, whole: Sequence[str]
) -> list[str]:
    """What the results say against a kernel although the function itself ran.

    Raises:
        TraceError: they are not as many floating-point tensors as there are results.
    """
    if len(outs) != len(results):
        raise TraceError(
            f"the function returns {len(outs)} values where {len(results)} were declared: {', '.join(results)}"
        )
    problems = []
    for name, out in zip(results, outs, strict=True):
        if not isinstance(out, torch.Tensor):
            raise TraceError(f"the result {name} is a {type(out).__name__}; it must be a tensor")
        if not out.dtype.is_floating_point and out.dtype not in NARROW and name not in whole:
            raise TraceError(
                f"the result {name} has dtype {out.dtype}; use torch.where(mask, 1.0, 0.0) or a cast to get numbers"
            )
        try:
            spans = [s for s in (dim_of(d, rows, cols) for d in out.shape) if s]
        except TraceError as error:
            problems.append(f"the result {name}: {error}")
            continue
        if spans == [Span.COLS, Span.ROWS]:
            problems.append(
                f"the result {name} is transposed (its dims are columns, rows); return it as (rows, columns)"
            )
    return problems


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
    raise TraceError(
        f"a tensor has a dim of size {_in_words(str(expression), rows, cols)}; "
        "only the rows (M), the columns (N) and 1 are supported"
    )


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Any]:
    """torch's core decompositions, and those of the composite functions that the core set keeps whole."""
    aten = torch.ops.aten
    kept = [
        aten._softmax, aten._log_softmax, aten.silu, aten.elu, aten.leaky_relu, aten.hardtanh, aten.linalg_vector_norm,
        aten.native_layer_norm, aten.addcmul, aten.addcdiv,
    ]  # fmt: skip
    own = {
        aten.var_mean.correction: _var_mean, aten.var.correction: _var, aten.gelu.default: _gelu,
        aten.digamma.default: _digamma, aten.polygamma.default: _polygamma, aten.erfinv.default: _erfinv,
        aten.elu_backward.default: _elu_backward, aten.softplus_backward.default: _softplus_backward,
    }  # fmt: skip
    return {**core_aten_decompositions(), **get_decompositions(kept), **own}


# Pointwise functions whose derivative at a kink is not that of their decomposition, or is simpler than it.
_KEPT_WHOLE = {
    "hardtanh", "hardsigmoid", "hardswish", "relu6", "leaky_relu", "elu", "celu", "selu", "softplus", "threshold",
    "hardshrink", "softshrink", "digamma", "erfinv",
}  # fmt: skip


def is_kept_whole(name: str) -> bool:
    """Whether this ATen operation ("elu") is decomposed only after it has been differentiated."""
    return name in _KEPT_WHOLE


@lru_cache(maxsize=1)
def decompositions_before_gradients() -> dict[Any, Any]:
    """Decompositions for a graph of which parts are differentiated later."""
    return {
        op: f for op, f in decompositions().items() if not is_kept_whole(op.name().removeprefix("aten::"))
    }


def _var_mean(
    x: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    dims = list(range(x.dim())) if not dim else list(dim)
    centred = x - x.mean(dims, keepdim=True)
    count: Any = 1
    for d in dims:
        count = count * x.shape[d]
    freedom = count - (1 if correction is None else correction)
    variance: torch.Tensor = (centred * centred).sum(dims, keepdim=keepdim) / freedom
    return variance, x.mean(dims, keepdim=keepdim)


def _var(
    x: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    variance: torch.Tensor = _var_mean(x, dim, correction=correction, keepdim=keepdim)[0]
    return variance


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if approximate == "none":
        # erfc does not cancel where 1 + erf(x / sqrt(2)) would.
        tail: torch.Tensor = torch.special.erfc(x * -math.sqrt(0.5))
        return 0.5 * x * tail
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * x * (1.0 + 0.044715 * x * x))


# What is differentiated again: a branch that is not taken is given arguments for which it is finite, since 0 * inf is NaN.


def _elu_backward(
    grad: torch.Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: torch.Tensor
) -> torch.Tensor:
    """By x, or by elu(x) if ``is_result``."""
    below = x.clamp(max=0.0)
    negative = below + alpha * scale if is_result else torch.exp(below * input_scale) * (alpha * scale)
    return grad * torch.where(x <= 0, input_scale * negative, scale)


def _softplus_backward(grad: torch.Tensor, x: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    return grad * torch.where(x * beta > threshold, 1.0, torch.sigmoid(x * beta))


def _digamma(x: torch.Tensor) -> torch.Tensor:
    """As torch's: by reflection below zero, by recurrence up to 10, then the asymptotic series (Cephes, psi.c)."""
    w = torch.where(x < 0, 1 - x, x)
    result = torch.zeros_like(x)
    for _ in range(10):
        result = torch.where(w < 10, result - 1 / w, result)
        w = torch.where(w < 10, w + 1, w)
    z = 1 / (w * w)
    coefficients = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
    result = result + torch.log(w) - 0.5 / w - z * _polynomial(z, coefficients)
    # The cotangent of pi x, by what is exact of x beside the next whole number, or beside the next half one.
    below = torch.where(x < 0, x, -0.25)
    beside = below - torch.round(below)
    by_tangent = beside.abs() > 0.25
    tangent = torch.tan(math.pi * torch.where(by_tangent, 0.5 - beside.abs(), beside.abs()))
    cotangent = torch.where(by_tangent, tangent, 1 / torch.where(by_tangent, 1.0, tangent))
    reflected = result - math.pi * torch.where(beside < 0, -cotangent, cotangent)
    reflected = torch.where(torch.trunc(x) == x, math.nan, reflected)
    at_zero = torch.where(1 / x < 0, math.inf, -math.inf)
    return torch.where(x < 0, reflected, torch.where(x == 0, at_zero, result))


def _polygamma(n: int, x: torch.Tensor) -> Any:
    """The derivative of digamma, in the same way; those of higher order are left as they are."""
    if n != 1:
        return NotImplemented
    is_reflected = x < 0.5
    w = torch.where(is_reflected, 1 - x, x)
    result = torch.zeros_like(x)
    for _ in range(10):
        result = torch.where(w < 10, result + 1 / (w * w), result)
        w = torch.where(w < 10, w + 1, w)
    z = 1 / (w * w)
    coefficients = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
    result = result + (1 + 0.5 / w + z * _polynomial(z, coefficients)) / w
    below = torch.where(is_reflected, x, -0.5)
    quotient = math.pi / torch.sin(math.pi * (below - torch.round(below)))
    return torch.where(is_reflected, quotient * quotient - result, result)


def _erfinv(y: torch.Tensor) -> torch.Tensor:
    """As torch's on the CPU: rational functions, then two steps of Newton's; these by erfc in the tail, where 1 - erf cancels."""
    size = y.abs()
    near = size <= 0.7
    z = y * y
    x = size * _polynomial(z, (-0.140543331, 0.914624893, -1.645349621, 0.886226899))
    x = x / _polynomial(z, (0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0))
    t = torch.sqrt(-torch.log((1 - size) / 2))
    far = _polynomial(t, (1.641345311, 3.429567803, -1.624906493, -1.970840454))
    x = torch.where(near, x, far / _polynomial(t, (1.637067800, 3.543889200, 1.0)))
    for _ in range(2):
        excess = torch.where(near, torch.erf(x) - size, (1 - size) - torch.special.erfc(x))
        x = x - excess / (2 / math.sqrt(math.pi) * torch.exp(-x * x))
    x = torch.where(y < 0, -x, torch.where(y == 0, y, x))
    beyond = torch.where(size == 1, torch.where(y < 0, -math.inf, math.inf), math.nan)
    return torch.where(size < 1, x, beyond)


def _polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """Horner's rule, highest power first."""
    value = x * coefficients[0]
    for c in coefficients[1:-1]:
        value = (value + c) * x
    return value + coefficients[-1]


def is_harmless(expression: Any) -> bool:
    """Guards that only say that a size is neither 0 nor 1 hold for every launch (empty calls launch nothing)."""
    if not getattr(expression, "is_Relational", False) or not (
        expression.lhs.is_Symbol and expression.rhs.is_number
    ):
        return False
    bound = expression.rhs
    return bool({"!=": bound in (0, 1), ">=": bound <= 2, ">": bound <= 1}.get(expression.rel_op, False))


def _in_words(text: str, rows: Any, cols: Any) -> str:
    """torch's text with M and N for the symbols of the sizes."""
    return in_words(text, {str(rows.node.expr): "M", str(cols.node.expr): "N"})


def in_words(text: str, words: Mapping[str, str]) -> str:
    """The text of an expression with other words for its symbols."""
    return re.sub(r"\w+", lambda found: words.get(found[0], found[0]), text)


_NOT_AUTHORS = (
    *(os.path.dirname(m.__file__ or "?") + os.sep for m in (torch, sys.modules["sympy"])),
    os.path.dirname(__file__) + os.sep,
    "<frozen",
    "<string>",
)
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def _is_authors(file: str) -> bool:
    """Whether a file is neither torch's, nor this generator's, nor of the standard library."""
    if file.startswith(_NOT_AUTHORS):
        return False
    return "site-packages" in file or not file.startswith(_STANDARD_LIBRARY)


def calling_line() -> Source:
    """The innermost of the author's lines that are being executed."""
    stated = stated_line()
    if stated is not None:
        return stated
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_authors(frame.f_code.co_filename):
        frame = frame.f_back
    return Source(frame.f_code.co_filename, frame.f_lineno)


def _line_of_guard(guard: Any) -> Source | str:
    frame = guard.sloc.framework_loc
    return (
        Source(frame.filename, frame.lineno)
        if hasattr(frame, "lineno") and _is_authors(frame.filename)
        else "<gradient>"
    )


def _refusal(error: Exception, rows: Any, cols: Any) -> TraceError:
    """What went wrong under the trace, in the author's terms."""
    if isinstance(error, TraceError):
        return error
    text = _in_words((str(error) or type(error).__name__).splitlines()[0], rows, cols)
    reason = f"{type(error).__name__}: {text}"
    if isinstance(error, DATA_DEPENDENT):
        reason = (
            "a Python value, a decision or a shape depends on the values of a tensor; "
            "keep it a tensor and use torch.where instead of if"
        )
    elif "convert all Tensors to FakeTensors" in text:
        reason = (
            "a tensor that is not an argument is used; make it an argument, or a Python number if it is one"
        )
    return TraceError(f"{innermost(error)}: {reason}")


def innermost(error: BaseException) -> Source | str:
    """The author's line in a traceback: the last frame outside torch and this package's generator."""
    found: Source | str = "?"
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if _is_authors(file):
            found = Source(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
