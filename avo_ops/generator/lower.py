"""From an ATen graph to the (M, N) normal form: every value becomes a node over rows and columns."""

from __future__ import annotations

import linecache
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from . import integers
from .ir import MASK_OPERANDS, NARROW, Builder, Graph, Node, Source, Span, is_const
from .trace import Traced, TraceError, aten_name, dim_of, source_of

Handler = Callable[["_Lowering", torch.fx.Node, list[Any]], Node]

_POINTWISE = {
    "neg": "neg", "abs": "abs", "sign": "sign", "sgn": "sign", "floor": "floor", "exp": "exp", "expm1": "expm1",
    "log": "log", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "recip", "sigmoid": "sigmoid",
    "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos", "mul": "mul", "maximum": "max", "round": "round",
    "trunc": "trunc", "fix": "trunc", "exp2": "exp2", "special_exp2": "exp2", "tan": "tan", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "atan2": "atan2",
    "hypot": "hypot", "fmod": "fmod", "lgamma": "lgamma",
    "minimum": "min", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
    "logical_and": "and", "logical_or": "or", "logical_not": "not", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_not": "not", "where": "where",
}  # fmt: skip

# Views that keep each value's place in the space; what they may not do is checked against the shapes.
_VIEWS = {
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "alias", "detach", "clone", "contiguous",
    "permute", "transpose", "t", "lift_fresh_copy", "broadcast_to",
}  # fmt: skip
_MAY_PERMUTE = {"permute", "transpose", "t"}

# Arithmetic on sizes.
_ON_SIZES: dict[Any, str] = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.neg: "neg",
}  # fmt: skip

# Keyword arguments that say nothing about the values.
IGNORED = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}

# A way out, where there is one to be named.
_WAYS_OUT = {
    "rand": "random numbers have no place in a kernel: pass them as an argument",
    "bernoulli": "random numbers have no place in a kernel: pass them as an argument",
    "dropout": "random numbers have no place in a kernel: pass a mask as an argument",
    "max": "use torch.amax", "min": "use torch.amin", "var": "write ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1)",
    "std": "write ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1).sqrt()",
    "sort": "compute it outside", "cumsum": "compute it outside",
    "mm": "matrix products belong outside", "bmm": "matrix products belong outside",
}  # fmt: skip

_ROUNDINGS = {torch.float32: "round_f32", torch.float16: "round_f16", torch.bfloat16: "round_bf16"}


class _Unsupported(Exception):
    """One node that has no normal form; collected, so that the author sees all of them at once."""


class _Lowering:
    """State of one lowering: the builder and the value of each node of the ATen graph.

    ``exact``: whether math with integers is torch's. Else they are numbers of the math.
    """

    def __init__(self, traced: Traced, builder: Builder, exact: bool = False) -> None:
        self.traced, self.builder, self.exact = traced, builder, exact
        self.values: dict[torch.fx.Node, Any] = {}

    def operand(self, value: Any) -> Node:
        """An operand as a node: a lowered value or a number."""
        if isinstance(value, torch.fx.Node):
            value = self.values[value]
        if isinstance(value, Node):
            return self.number(value)
        if isinstance(value, bool | int | float):
            return self.builder.const(float(value))
        raise _Unsupported(f"an operand {value!r} is not supported")

    def number(self, value: Node) -> Node:
        """A mask as 1 and 0, as torch promotes it in arithmetic; an integer as a number of the math."""
        if value.is_whole:
            return self.builder.make("to_math", value)
        return (
            self.builder.make("where", value, self.builder.const(1.0), self.builder.const(0.0))
            if value.is_mask
            else value
        )

    def whole(self, value: Any) -> Node:
        """An operand as an integer."""
        node = self.values[value] if isinstance(value, torch.fx.Node) else value
        if isinstance(node, bool | int):
            return self.builder.integer(node)
        if not isinstance(node, Node):
            raise _Unsupported(f"an operand {value!r} of integer math is not supported")
        if node.is_mask:
            return self.builder.make("iwhere", node, self.builder.integer(1), self.builder.integer(0))
        if is_const(node):
            return self.builder.integer(int(node.attr))
        return node if node.is_whole else self.builder.make("to_whole", node)

    def mask(self, value: Any) -> Node:
        """An operand as a mask: whether it differs from 0."""
        node = self.values.get(value) if isinstance(value, torch.fx.Node) else None
        if isinstance(node, Node) and node.is_mask:
            return node
        if isinstance(node, Node) and node.is_whole:
            return self.builder.make("ine", node, self.builder.integer(0))
        return self.builder.make("ne", self.operand(value), self.builder.const(0.0))

    def result(self, value: Any) -> Node:
        """A value as a kernel stores it."""
        node = self.values.get(value) if isinstance(value, torch.fx.Node) else None
        if self.exact and isinstance(node, Node) and (node.is_mask or node.is_whole):
            return self.whole(value)
        return self.operand(value)

    def pointwise(self, op: str, args: list[Any]) -> Node:
        masks = MASK_OPERANDS.get(op, ())
        return self.builder.make(
            op, *(self.mask(a) if i in masks else self.operand(a) for i, a in enumerate(args))
        )

    def dims(self, node: torch.fx.Node) -> list[Span]:
        """The dims of a node's shape as rows, columns or nothing; rows and columns at most once."""
        try:
            dims = [dim_of(s, self.traced.rows, self.traced.cols) for s in node.meta["val"].shape]
        except TraceError as error:
            raise _Unsupported(str(error)) from error
        if dims.count(Span.ROWS) > 1 or dims.count(Span.COLS) > 1:
            raise _Unsupported("a tensor has the rows (or the columns) twice")
        return dims

    def reduce(self, op: str, value: Node, axes: Sequence[Span]) -> Node:
        """Reduce over the given axes, columns before rows. A value that does not vary along an axis is scaled."""
        for axis in (Span.COLS, Span.ROWS):
            if axis not in axes:
                continue
            if value.span & axis:
                value = self.builder.make(op, value, attr=axis)
            elif op == "sum":
                value = self.builder.make("mul", value, self.builder.size(axis))
            elif op == "prod":
                value = self.builder.make("pow", value, self.builder.size(axis))
        return value

    def axes(self, node: torch.fx.Node, dims: Any) -> list[Span]:
        """The axes that a reduction of ``node`` over ``dims`` (None or empty: all) runs over."""
        spans = self.dims(node)
        if dims is None or dims == []:
            return [s for s in spans if s]
        chosen = dims if isinstance(dims, list | tuple) else [dims]
        return [spans[d] for d in chosen if spans[d]]

    def lower(self, node: torch.fx.Node) -> Any:
        name = aten_name(node)
        args = list(node.args)
        if node.target in _ON_SIZES:
            return self.builder.make(_ON_SIZES[node.target], *(self.operand(a) for a in args))
        if node.target is torch.sym_float or (node.target is operator.floordiv and args[1] == 1):
            return self.operand(args[0])
        if name in ("sym_size", "size"):
            assert isinstance(args[0], torch.fx.Node)
            axis = self.dims(args[0])[args[1]]  # type: ignore[index]
            return self.builder.size(axis) if axis else self.builder.const(1.0)
        if name == "sym_stride":  # how torch may spell a size
            axis = dim_of(node.meta["val"], self.traced.rows, self.traced.cols)
            return self.builder.size(axis) if axis else self.builder.const(1.0)
        handler = _HANDLERS.get(name)
        integer = _integer_math(self, node, name, args) if self.exact else None
        if integer is not None:
            result = integer
        elif handler is not None:
            result = handler(self, node, args)
        elif name in _POINTWISE:
            unknown = [k for k in node.kwargs if k not in IGNORED]
            if unknown:
                raise _Unsupported(
                    f"{node.target} with {unknown[0]}={node.kwargs[unknown[0]]!r} is not supported"
                )
            result = self.pointwise(_POINTWISE[name], args)
        elif name in _VIEWS:
            result = self.view(name, node)
        elif node.op == "get_attr":
            raise _Unsupported("a tensor is made inside; write it as a Python number, or make it an argument")
        else:
            raise _Unsupported(f"{node.target} is not supported{_way_out(name)}")
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            self.dims(node)
            if value.dtype == torch.bool and result.is_whole:
                return self.builder.make("ine", result, self.builder.integer(0))
            if value.dtype == torch.bool and not result.is_mask:  # as in mask + mask
                return self.builder.make("ne", result, self.builder.const(0.0))
            # A function that computes in a narrower type rounds each of its values to it.
            if (
                value.dtype in _ROUNDINGS
                and name not in _VIEWS
                and result.op not in ("const", _ROUNDINGS[value.dtype])
            ):
                result = self.builder.make(_ROUNDINGS[value.dtype], result)
        return result

    def view(self, name: str, node: torch.fx.Node) -> Node:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        before, after = ([d for d in self.dims(n) if d] for n in (source, node))
        kept = [d for d in after if d in before]
        if name not in _MAY_PERMUTE and (
            kept != before or (len(after) > len(before) and name not in ("expand", "broadcast_to"))
        ):
            raise _Unsupported(f"{node.target} moves values between rows and columns")
        value = self.values[source]
        return value if isinstance(value, Node) else self.operand(source)  # a mask stays one


def _integer_math(low: _Lowering, node: torch.fx.Node, name: str, args: list[Any]) -> Node | None:
    """The value of a node that is math with integers, or a cast to one; else None."""
    value, b = node.meta.get("val"), low.builder
    if not isinstance(value, torch.Tensor) or name in _VIEWS:
        return None
    tensors = [
        a for a in args if isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)
    ]
    dtypes = [a.meta["val"].dtype for a in tensors]
    if name in integers.COMPARISONS:
        given = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        if not all(isinstance(g, torch.Tensor | int) for g in given):
            return None
        if torch.result_type(*given) not in integers.INTEGERS:
            return None
        return integers.compare(b, name, low.whole(args[0]), low.whole(args[1]))
    dtype = value.dtype
    if dtype not in integers.INTEGERS:
        return None
    if is_fill(name):
        return low.whole(fill_value(node))
    if name in ("_to_copy", "_to", "convert_element_type", "copy"):
        source = args[1] if name == "copy" else args[0]
        before = source.meta["val"].dtype
        if (
            before.is_floating_point and dtype == torch.int8
        ):  # as numbers of 8 bits are cast, within their range
            return None
        whole = low.whole(source)
        if before.is_floating_point:
            return integers.from_number(b, whole, dtype)
        return whole if integers.holds(dtype, before) else integers.wrapped(b, whole, dtype)
    if name in integers.REDUCTIONS:
        axes = low.axes(args[0], args[1] if len(args) > 1 else None)
        return _reduce_integers(low, name, low.whole(args[0]), axes, dtype)
    if name == "where":
        return b.make("iwhere", low.mask(args[0]), low.whole(args[1]), low.whole(args[2]))
    if name in ("clamp", "clamp_min", "clamp_max", "relu"):
        return _clamp_integers(low, node, name, args)
    alpha = node.kwargs.get("alpha", args[2] if name in ("add", "sub", "rsub") and len(args) > 2 else 1)
    if name == "div":
        mode = node.kwargs.get("rounding_mode", args[2] if len(args) > 2 else None)
        op = "ifloordiv" if mode == "floor" else "idiv"
        return integers.wrapped(b, b.make(op, low.whole(args[0]), low.whole(args[1])), dtype)
    handler = integers.ARITHMETIC.get(name)
    if handler is None or not all(d in (*integers.INTEGERS, torch.bool) for d in dtypes):
        return None
    given = [low.whole(a) for a in args[:2]]
    if alpha != 1:
        given[1] = integers.wrapped(b, b.make("imul", given[1], low.whole(alpha)), dtype)
    return handler(b, dtype, given)


def _clamp_integers(low: _Lowering, node: torch.fx.Node, name: str, args: list[Any]) -> Node:
    value, bounds = low.whole(args[0]), [*args[1:], None, None]
    if name == "relu":
        bounds = [0, None]
    elif name == "clamp_max":
        bounds = [None, bounds[0]]
    lower, upper = node.kwargs.get("min", bounds[0]), node.kwargs.get("max", bounds[1])
    if lower is not None:
        value = low.builder.make("imax", value, low.whole(lower))
    return value if upper is None else low.builder.make("imin", value, low.whole(upper))


def _reduce_integers(
    low: _Lowering, name: str, value: Node, axes: Sequence[Span], dtype: torch.dtype
) -> Node:
    for axis in (Span.COLS, Span.ROWS):
        if axis not in axes:
            continue
        if value.span & axis:
            value = low.builder.make(integers.REDUCTIONS[name], value, attr=axis)
        elif name in ("sum", "prod"):
            raise _Unsupported(f"a {name} of integers that are all the same is not supported")
    return value if name in ("amax", "amin") else integers.wrapped(low.builder, value, dtype)


def _way_out(name: str) -> str:
    key = next((k for k in _WAYS_OUT if name == k or (k == "rand" and name.startswith(k))), None)
    return f"; {_WAYS_OUT[key]}" if key else ""


def _copy(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return _cast(low, node, args[1:])


def _add(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    op = "sub" if "sub" in str(node.target) else "add"
    left, right = low.operand(args[0]), low.operand(args[1])
    alpha = node.kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    if alpha != 1:
        right = low.builder.make("mul", right, low.operand(alpha))
    return low.builder.make(op, left, right)


def _rsub(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.builder.make("sub", low.operand(args[1]), low.operand(args[0]))


def _div(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    b, x, y = low.builder, low.operand(args[0]), low.operand(args[1])
    mode = node.kwargs.get("rounding_mode", args[2] if len(args) > 2 else None)
    if aten_name(node) == "floor_divide":
        mode = "floor"
    if mode != "floor":
        quotient = b.make("div", x, y)
        return quotient if mode is None else b.make("trunc", quotient)
    # As torch: floor(x / y) would round the quotient first, and so lose one beside a whole number.
    rest = b.make("fmod", x, y)
    quotient = b.make("div", b.make("sub", x, rest), y)
    quotient = b.make("where", _is_beyond(low, rest, y), b.make("sub", quotient, b.const(1.0)), quotient)
    whole = b.make("floor", quotient)
    is_less = b.make("gt", b.make("sub", quotient, whole), b.const(0.5))
    whole = b.make("where", is_less, b.make("add", whole, b.const(1.0)), whole)
    signed_zero = b.make("mul", b.make("div", x, y), b.const(0.0))
    whole = b.make("where", b.make("ne", quotient, b.const(0.0)), whole, signed_zero)
    return b.make("where", b.make("eq", y, b.const(0.0)), b.make("div", x, y), whole)


def _remainder(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    b, y = low.builder, low.operand(args[1])
    rest = b.make("fmod", low.operand(args[0]), y)
    return b.make("where", _is_beyond(low, rest, y), b.make("add", rest, y), rest)


def _is_beyond(low: _Lowering, rest: Node, y: Node) -> Node:
    """Whether a rest of a division by y has the other sign."""
    b, zero = low.builder, low.builder.const(0.0)
    return b.make(
        "and", b.make("ne", rest, zero), _differ(low, b.make("lt", y, zero), b.make("lt", rest, zero))
    )


def _differ(low: _Lowering, a: Node, b: Node) -> Node:
    """Whether one of two masks holds and the other does not."""
    return low.builder.make("ne", low.number(a), low.number(b))


def _xor(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return _differ(low, low.mask(args[0]), low.mask(args[1]))


def _isnan(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    value = low.operand(args[0])
    return low.builder.make("ne", value, value)


def _isinf(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.builder.make("eq", low.builder.make("abs", low.operand(args[0])), low.builder.const(math.inf))


def _isfinite(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.builder.make("lt", low.builder.make("abs", low.operand(args[0])), low.builder.const(math.inf))


def _pow(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.builder.make("pow", low.operand(args[0]), low.operand(args[1]))


def _square(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    value = low.operand(args[0])
    return low.builder.make("mul", value, value)


def _relu(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.builder.make("max", low.operand(args[0]), low.builder.const(0.0))


def _erfc(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    z = low.operand(args[0])
    return low.builder.make("erfc", z, low.builder.make("exp_neg_sq", z))


def _clamp(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    value = low.operand(args[0])
    bounds = [*args[1:], None, None]
    lower, upper = node.kwargs.get("min", bounds[0]), node.kwargs.get("max", bounds[1])
    if lower is not None:
        value = low.builder.make("max", value, low.operand(lower))
    if upper is not None:
        value = low.builder.make("min", value, low.operand(upper))
    return value


def _reduction(op: str) -> Handler:
    def handler(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
        axes = low.axes(args[0], args[1] if len(args) > 1 else None)
        return low.reduce(op, low.operand(args[0]), axes)

    return handler


def _mean(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    axes = low.axes(args[0], args[1] if len(args) > 1 else None)
    total = low.reduce("sum", low.operand(args[0]), axes)
    for axis in axes:
        total = low.builder.make("div", total, low.builder.size(axis))
    return total


def _arange(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    """The numbers of the columns, from 0 in steps of 1."""
    bounds = args if len(args) > 1 else [0, *args]
    step = node.kwargs.get("step", bounds[2] if len(bounds) > 2 else 1)
    if str(node.target).startswith("prims."):
        bounds, step = [node.kwargs["start"], *args], node.kwargs["step"]
    if (bounds[0], step) != (0, 1) or low.dims(node) != [Span.COLS]:
        raise _Unsupported(
            "an arange that does not number the columns, from 0 in steps of 1, is not supported"
        )
    return low.builder.column()


def _uniform(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    seed, column = (low.operand(a) for a in args)
    if seed.op != "load" or column.op != "column":
        raise _Unsupported(
            "random numbers depend on a seed for each row, as it is, and on the number of the column"
        )
    return low.builder.make("uniform", seed, column)


def fill_value(node: torch.fx.Node) -> Any:
    """What every element of a tensor is that :func:`is_fill` makes: a number or a node."""
    name = aten_name(node)
    if "zeros" in name or "empty" in name:
        return 0.0
    if "ones" in name:
        return 1.0
    return node.args[0 if name == "scalar_tensor" else 2 if name == "new_full" else 1]


def _fill(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    return low.operand(fill_value(node))


def _cast(low: _Lowering, node: torch.fx.Node, args: list[Any]) -> Node:
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:
        return low.mask(args[0])
    value = low.operand(args[0])
    if dtype in (torch.float64, torch.int64):  # whole numbers stay so
        return value
    if dtype in NARROW:
        if not _is_within(value, *RANGES[dtype]):
            low_end, high_end = RANGES[dtype]
            raise _Unsupported(
                f"a cast to {dtype} of what may lie outside it is not supported; clamp({low_end}, {high_end}) before"
            )
        return low.builder.make(f"round_{NARROW[dtype]}", value)
    if dtype not in _ROUNDINGS:
        raise _Unsupported(f"a cast to {dtype} is not supported")
    return low.builder.make(_ROUNDINGS[dtype], value)


# What torch makes of other numbers differs between its releases (e4m3) and devices (int8).
RANGES = {torch.float8_e4m3fn: (-448.0, 448.0), torch.int8: (-128.0, 127.0)}


def _is_within(value: Node, low: float, high: float) -> bool:
    """Whether a value is a number of the interval, or NaN, by what it is made of."""
    least, most = _bounds(value)
    return low <= least and most <= high


def _bounds(value: Node) -> tuple[float, float]:
    if value.op == "const":
        return value.attr, value.attr
    if value.op == "round_i8":
        return RANGES[torch.int8]
    if value.op == "round":
        least, most = _bounds(value.args[0])
        return math.floor(least) if math.isfinite(least) else least, math.ceil(most) if math.isfinite(
            most
        ) else most
    if value.op in ("max", "min", "where"):
        (a, b), (c, d) = (_bounds(x) for x in value.args[-2:])
        first = max if value.op == "max" else min
        last = min if value.op == "min" else max
        return first(a, c), last(b, d)
    return -math.inf, math.inf


_HANDLERS: dict[str, Handler] = {
    "add": _add, "sub": _add, "rsub": _rsub, "pow": _pow, "square": _square, "relu": _relu, "clamp": _clamp,
    "clamp_min": _clamp, "erfc": _erfc, "special_erfc": _erfc, "sum": _reduction("sum"), "amax": _reduction("amax"),
    "amin": _reduction("amin"), "mean": _mean, "prod": _reduction("prod"),
    "zeros": _fill, "ones": _fill, "full": _fill, "full_like": _fill,
    "zeros_like": _fill, "ones_like": _fill, "scalar_tensor": _fill, "_to_copy": _cast, "_to": _cast,
    "convert_element_type": _cast, "copy": _copy, "empty": _fill, "empty_like": _fill, "empty_permuted": _fill,
    "new_zeros": _fill, "new_ones": _fill, "new_full": _fill, "arange": _arange, "iota": _arange,
    "uniform": _uniform, "div": _div, "true_divide": _div, "divide": _div, "floor_divide": _div, "remainder": _remainder,
    "logical_xor": _xor, "bitwise_xor": _xor, "isnan": _isnan, "isinf": _isinf, "isfinite": _isfinite,
}  # fmt: skip


def has_handler(name: str) -> bool:
    """Whether an ATen operation of this name ("add") has a normal form, for some arguments at least."""
    return name in _HANDLERS or name in _POINTWISE


def is_view(name: str) -> bool:
    """Whether the operation keeps the values of its operand."""
    return name in _VIEWS


def is_fill(name: str) -> bool:
    """Whether the operation makes a tensor of one value."""
    return _HANDLERS.get(name) is _fill


def lower(traced: Traced, builder: Builder, exact: bool = False) -> Graph:
    """The traced graph in normal form: results by name, gradients as ``grad_<operand>``.

    ``exact``: whether math with integers is torch's, and results of integers and bools are integers.

    Raises:
        TraceError: one or more operations have no normal form; the message lists all of them with their lines.
    """
    low = _Lowering(traced, builder, exact)
    placeholders = iter(traced.placeholders)
    problems = list(traced.problems)
    last_on_line = _last_on_line(traced.graph)
    # A node of the derived gradient has the autograd sequence number of the node that it belongs to.
    line_of_sequence: dict[Any, Source] = {}
    outputs: list[Any] = []
    node: torch.fx.Node
    for node in traced.graph.nodes:
        own = source_of(node)
        sequence = node.meta.get("seq_nr")
        if own is not None:
            line_of_sequence.setdefault(sequence, own)
        builder.source = own or line_of_sequence.get(sequence)
        if node.op == "placeholder":
            operand = next(placeholders)
            leaf = "scalar" if operand.number else "load"
            low.values[node] = builder.make(leaf, attr=operand.name, span=operand.span)
            if operand.exact is not None:
                low.values[node] = builder.make("whole", low.values[node])
                if operand.exact == torch.bool:
                    low.values[node] = low.mask(node)
        elif node.op == "output":
            outputs = list(cast(Any, node.args[0]))
        else:
            try:
                low.values[node] = low.lower(node)
                if last_on_line.get(own) is node and isinstance(low.values[node], Node):
                    builder.label(low.values[node], _assigned_name(own))
            except _Unsupported as reason:
                # What only takes a failed value apart is no problem of its own.
                if node.target is not operator.getitem:
                    problems.append(f"{builder.source or '<gradient>'}: {reason}")
                low.values[node] = builder.const(0.0)
    names = [*traced.results, *(f"grad_{n}" for n in traced.gradients)]
    for name, out in zip(names, outputs, strict=True) if not problems else ():
        if isinstance(out, torch.fx.Node) and isinstance(low.values[out], Node):
            if not name.startswith("grad_") and low.operand(out).span == Span.NONE and not any(low.dims(out)):
                problems.append(
                    f"{source_of(out)}: the result {name} is one number for the whole call; reduce along the columns only"
                )
                break
            missing = [s for s in low.dims(out) if s and not low.operand(out).span & s]
            if missing and not (name.startswith("grad_") and is_const(low.operand(out), 0.0)):
                what = f"the gradient of {name[5:]}" if name.startswith("grad_") else f"the result {name}"
                axis = "rows" if Span.ROWS in missing else "columns"
                problems.append(
                    f"{source_of(out) or '<gradient>'}: {what} has one value for all {axis}; no kernel repeats a value"
                )
    builder.source = None
    if problems:
        raise TraceError("this function cannot become a kernel:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return Graph({name: low.result(out) for name, out in zip(names, outputs, strict=True)})


def _last_on_line(graph: torch.fx.Graph) -> dict[Source | None, torch.fx.Node]:
    return {
        source_of(n): n for n in graph.nodes if n.op == "call_function" and "sym_size" not in str(n.target)
    }


def _assigned_name(source: Source | None) -> str | None:
    """The variable that the author assigns on this line."""
    if source is None:
        return None
    match = re.match(r"\s*([A-Za-z]\w*)\s*=[^=]", linecache.getline(source.file, source.line))
    return match.group(1) if match else None
