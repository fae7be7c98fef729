"""From a captured graph to regions, each of which is one operator in (M, N) form, and what torch does between them.

A region is a set of nodes over one space of axes, all of whose reductions run over the same axes. Within it a value is known
by the axes along which it varies, so that views which only insert, remove or permute dims are nothing at all. Other views,
and whatever has no place in a kernel, are steps of torch's own.
"""

from __future__ import annotations

import hashlib
import linecache
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import sympy  # type: ignore[import-untyped]
import torch

from ..definitions.record import FLAT, LAST, OpDef, trailing
from . import integers
from .capture import Captured
from .integers import INTEGERS
from .ir import NARROW, NARROW_NAMES, WHOLE_NAMES
from .lower import IGNORED, RANGES, fill_value, has_handler, is_fill, is_view
from .replay import PLACES, Definition, Line, Number, Ref, Scalar
from .trace import aten_name, is_kept_whole, source_of

FxNode = torch.fx.Node
Axes = tuple[int | None, ...]
"""For each dim of a value the axis along which it varies there, or None."""

_REDUCTIONS = ("sum", "mean", "prod", "amax", "amin", "any", "all", *PLACES)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_READABLE = (*_FLOATS, *NARROW, torch.bool, *INTEGERS)  # dtypes of what a region may read


def _value(node: FxNode) -> Any:
    return node.meta.get("val")


def _is_tensor(node: Any) -> bool:
    return isinstance(node, FxNode) and isinstance(_value(node), torch.Tensor)


def _shares_memory(node: FxNode) -> bool:
    """Whether torch makes a view of an operand, other than one that leaves each value in its place."""
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    aliases = schema is not None and any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
    return aliases and not is_view(aten_name(node))


_CASTS = ("_to_copy", "lift_fresh_copy", "copy")


def common_dtype(node: FxNode) -> torch.dtype | None:
    """The dtype to which torch brings the operands of math with integers: None if it is none."""
    value, name = _value(node), aten_name(node)
    if not isinstance(value, torch.Tensor) or name in PLACES:
        return None
    dtype = value.dtype if value.dtype in INTEGERS else _compared_in(node)
    return dtype if dtype in INTEGERS else None


def _compared_in(node: FxNode) -> torch.dtype | None:
    """The dtype to which torch brings what it compares: None if a node is no comparison."""
    if aten_name(node) not in integers.COMPARISONS or _value(node).dtype != torch.bool:
        return None
    given: list[Any] = [_value(a) if isinstance(a, FxNode) else a for a in node.args]
    given = [1 if isinstance(g, torch.SymInt) else g for g in given]
    if not all(isinstance(g, torch.Tensor | int | float) for g in given):
        return None
    return torch.result_type(*given)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _shape(node: FxNode) -> tuple[Any, ...]:
    return tuple(_value(node).shape)


def _note(node: FxNode, key: str) -> Any:
    return (node.meta.get("custom") or {}).get(key)


# ---- what a caller runs ----


# Those that an operand of one value a row may have.
_OF_ROWS = (torch.int64, torch.int32)


@dataclass(frozen=True)
class View:
    """How a tensor becomes an operand, or a result a value of the graph: permuted, reshaped, expanded.

    ``shape``: for each dim 1, or the dim (of the permuted tensor) whose size it has. ``expand``: for each dim None, or the
    size it gets. Each of them None: not needed. ``dtype``: the dtype that it is cast to.
    """

    permute: tuple[int, ...] | None = None
    shape: tuple[int | None, ...] | None = None
    expand: tuple[Any, ...] | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Operand:
    """One tensor argument of a region. ``span``: as of a record. ``dtype``: in which it arrives at the operator."""

    name: str
    node: FxNode
    span: str
    view: View
    mask: bool
    dtype: torch.dtype


@dataclass(frozen=True)
class Result:
    """One result of a region, and the nodes of the graph that are views of it."""

    name: str
    span: str
    nodes: tuple[tuple[FxNode, View], ...]


@dataclass(frozen=True)
class RegionStep:
    """One operator. ``columns``: how many trailing dims are columns, if the record takes their sizes, else 0.

    ``double``: whether its math is in float64.
    """

    record: OpDef
    operands: tuple[Operand, ...]
    scalars: tuple[tuple[str, Any], ...]  # name and node
    columns: int
    column_sizes: tuple[Any, ...]
    results: tuple[Result, ...]
    nodes: tuple[FxNode, ...]
    double: bool


@dataclass(frozen=True)
class TorchStep:
    """One node that torch runs as it is; ``reason``: why, or "" for a view or a size."""

    node: FxNode
    reason: str


Step = RegionStep | TorchStep


# ---- growing regions ----


@dataclass
class _Region:
    number: int
    members: list[FxNode] = field(default_factory=list)
    axes: dict[FxNode, Axes] = field(default_factory=dict)  # of members and of loads
    loads: list[FxNode] = field(default_factory=list)
    reduced: frozenset[int] | None = None
    count: int = 0

    def sizes(self) -> dict[int, Any]:
        return {
            a: _expression(s)
            for n, axes in self.axes.items()
            for a, s in zip(axes, _shape(n), strict=True)
            if a is not None
        }

    def inputs(self) -> Iterator[FxNode]:
        """What the members take, each other among it."""
        return (a for node in self.members for a in node.all_input_nodes)

    def space(self) -> set[int]:
        return {a for axes in self.axes.values() for a in axes if a is not None}


@dataclass
class _Join:
    """What a region becomes if a node joins it."""

    axes: Axes
    loads: dict[FxNode, Axes]
    reduced: frozenset[int] | None
    count: int


class _Partition:
    def __init__(self, captured: Captured, sealed: set[FxNode], apart: Mapping[FxNode, str]) -> None:
        self.captured, self.sealed, self.apart = captured, sealed, apart
        self.constants: dict[FxNode, float] = {}
        self.group: dict[FxNode, _Region | FxNode] = {}
        self.regions: list[_Region] = []
        self.reasons: dict[FxNode, str] = {}

    @cached_property
    def needed(self) -> set[FxNode]:
        """Constants that torch needs as tensors, once all nodes have their place."""
        found: set[FxNode] = set()
        stack = [n for n, g in self.group.items() if g is n]
        stack += [n for n in self.captured.graph.nodes if n.op == "output"]
        while stack:
            for a in stack.pop().all_input_nodes:
                if a in self.constants and a not in found:
                    found.add(a)
                    stack.append(a)
        return found

    # -- classes of nodes

    def run(self) -> None:
        for node in self.captured.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            constant = self._constant(node)
            if constant is not None:
                self.constants[node] = constant
                continue
            reason = self._not_in_a_kernel(node)
            if reason is None and self._place(node):
                continue
            self.group[node] = node
            self.reasons[node] = reason or ""

    def _constant(self, node: FxNode) -> float | None:
        """The one value that all elements of a tensor made inside have."""
        if node.op == "get_attr":
            tensor = getattr(self.captured.module, str(node.target))
            lifted = all(aten_name(u) == "lift_fresh_copy" for u in node.users)
            if not lifted or tensor.numel() != 1 or tensor.dtype not in (*_FLOATS, *INTEGERS):
                return None
            return cast(float, tensor.item())
        value = _value(node)
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            return None
        if value.dtype in INTEGERS:
            return self._integer_constant(node)
        if value.dtype not in _FLOATS:
            return None
        tensors = [a for a in node.all_input_nodes if _is_tensor(a)]
        name = aten_name(node)
        if is_fill(name):
            number = fill_value(node)
            return float(number) if isinstance(number, int | float) else None
        if tensors and all(a in self.constants for a in tensors):
            if is_view(name) or name in ("_to_copy", "lift_fresh_copy"):
                return self.constants[tensors[0]]
            of_sizes = len(tensors) < len(node.all_input_nodes)
            if has_handler(name) and not _reduces(node) and not of_sizes:
                known = {a: torch.tensor(self.constants[a], dtype=torch.float64) for a in tensors}
                given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: known.get(n, n))
                args, kwargs = cast(Any, given)
                return float(node.target(*args, **kwargs))  # type: ignore[operator]
        return None

    def _integer_constant(self, node: FxNode) -> int | None:
        """The same of integers: of fills, and of views and casts of what is known."""
        name, dtype = aten_name(node), _value(node).dtype
        if is_fill(name):
            number = fill_value(node)
            if not isinstance(number, int | float) or not integers.fills(number, dtype):
                return None
            return integers.as_integer(int(number), dtype)
        if name == "pow" and isinstance(node.args[1], int) and node.args[1] == 0:
            return 1
        (source,) = node.all_input_nodes if len(node.all_input_nodes) == 1 else (None,)
        known = self.constants.get(source) if source is not None else None
        if not isinstance(known, int) or not (is_view(name) or name in ("_to_copy", "lift_fresh_copy")):
            return None
        return integers.as_integer(known, dtype)

    def _not_in_a_kernel(self, node: FxNode) -> str | None:
        value, name = _value(node), aten_name(node)
        if not isinstance(value, torch.Tensor) or node.op == "get_attr" or _shares_memory(node):
            return ""
        if node in self.apart:
            return self.apart[node]
        if is_view(name) and name != "clone":
            if node.target is torch.ops.aten.view.dtype:
                return "it takes the bits of a tensor for another dtype"
            return None if any(a in self.group for a in node.all_input_nodes) else ""
        if value.dtype in NARROW and name == "_to_copy" and _value(node.all_input_nodes[0]).dtype in _FLOATS:
            low, high = RANGES[value.dtype]
            if not self._lies_within(node.all_input_nodes[0], low, high):
                return f"it is cast to {_name(value.dtype)}, beyond which its values may lie: clamp({low}, {high}) before"
        elif name in PLACES:
            return self._finds_no_place(node)
        elif value.dtype in INTEGERS or common_dtype(node) in INTEGERS:
            reason = self._integer_math(node)
            if reason is not None:
                return reason
        elif value.dtype not in (*_FLOATS, torch.bool):
            return f"its result is {_name(value.dtype)}, which kernels do not make"
        reduction = _reduces(node)
        known = has_handler(name) or name in (*_REDUCTIONS, "clone") or is_kept_whole(name)
        if not (known or value.dtype in INTEGERS) or (reduction and name not in _REDUCTIONS):
            return f"{node.target} has no place in a kernel yet"
        tensors = [a for a in node.all_input_nodes if _is_tensor(a)]
        if is_fill(name) or not tensors:
            return "it makes a tensor"
        if name in ("sub", "rsub") and any(_value(a).dtype == torch.bool for a in tensors):
            return "it subtracts bools, which torch refuses"
        inputs = [a for a in tensors if a not in self.constants]
        if (
            value.dtype == torch.float64
            and inputs
            and (
                _value(inputs[0]).dtype != torch.float64
                if name == "_to_copy" or reduction
                else all(_value(a).dtype in (*INTEGERS, torch.bool) for a in inputs)
            )
        ):
            return "the math after it is in float64"
        if name == "_to_copy" and inputs and _value(inputs[0]).device != value.device:
            return "it moves a tensor to another device"
        if any(_value(a).is_complex() for a in inputs):
            return "it is complex"
        unknown = [_value(a).dtype for a in inputs if _value(a).dtype not in _READABLE]
        if unknown:
            return f"it reads {_name(unknown[0])}, which kernels do not"
        inside = any(isinstance(self.group.get(a), _Region) for a in inputs)
        if not inside and not any(not _is_one(s) for a in inputs for s in _shape(a)):
            return ""  # one number
        return None

    def integer(self, node: FxNode, dtype: torch.dtype) -> Any:
        """A constant as math in that dtype of integers has it."""
        value = self.constants[node]
        return integers.as_integer(value, dtype) if isinstance(value, int) else value

    def _integer_math(self, node: FxNode) -> str | None:
        """Why no kernel does this math with integers."""
        name, dtype = aten_name(node), common_dtype(node)
        if name in _CASTS or name in (*integers.REDUCTIONS, "clone"):
            return None
        if dtype is None or not integers.has_handler(name):
            return f"{node.target} has no place in a kernel for integers"
        tensors = [a for a in node.all_input_nodes if _is_tensor(a)]
        if len(tensors) < len(node.all_input_nodes) or any(map(self._scalar, tensors)):
            return "it computes integers with a number that kernels take as one of floating point"
        if any(_value(a).dtype not in (*INTEGERS, torch.bool) for a in tensors):
            return f"{node.target} has no place in a kernel for integers"
        limits = torch.iinfo(dtype)
        numbers = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, int)]
        if not all(limits.min <= n <= limits.max for n in numbers):
            return f"it takes a number that is no {_name(dtype)}"
        second: Any = node.args[1] if len(node.args) > 1 else None
        if second in self.constants:
            second = self.integer(second, dtype)
        if name in integers.DIVISIONS and (not isinstance(second, int) or second == 0):
            return "it divides by integers that may be 0, which torch refuses"
        if name == "pow" and (not isinstance(second, int) or second < 0 or tensors[0] is not node.args[0]):
            return "its exponent is no number that is known, 0 or more"
        return None

    def _finds_no_place(self, node: FxNode) -> str | None:
        """Why no kernel looks for the place of an extreme value."""
        source = node.all_input_nodes[0]
        shape = _shape(source)
        if _value(source).dtype not in _FLOATS:
            return f"its argument is {_name(_value(source).dtype)}: kernels find places of floating-point numbers alone"
        if not shape or sum(not _is_one(shape[d]) for d in _dims(node, len(shape))) != 1:
            return "it runs over several dims, or over one of size 1"
        return None if node.meta["numbered"] else "its rows have more columns than float32 can number"

    def _lies_within(self, node: FxNode, low: float, high: float) -> bool:
        """Whether a value is a number of the interval, or NaN, by the author's clamp."""
        if node in self.constants:
            return low <= self.constants[node] <= high
        name = aten_name(node)
        args: list[Any] = list(node.args)
        if name in ("round", "_to_copy", "clone", "where") or is_view(name):
            return all(
                self._lies_within(a, low, high) for a in args[1 if name == "where" else 0 :] if _is_tensor(a)
            )
        given: list[Any] = [node.kwargs.get("min"), node.kwargs.get("max")]
        least, most = (
            b if b is not None else a for a, b in zip([*args[1:], None, None], given, strict=False)
        )
        numbers = isinstance(least, int | float) and isinstance(most, int | float)
        return name in ("clamp", "hardtanh") and numbers and low <= least and most <= high

    # -- placing

    def _inputs(self, node: FxNode) -> list[FxNode]:
        return [
            a
            for a in node.all_input_nodes
            if _is_tensor(a) and a not in self.constants and not self._scalar(a)
        ]

    def _scalar(self, node: FxNode) -> bool:
        return bool(node.op == "placeholder" and node.meta.get("float"))

    def _place(self, node: FxNode) -> bool:
        inputs = self._inputs(node)
        candidates = [r for r in reversed(self.regions) if any(a in r.axes for a in inputs)]
        for region in candidates:
            join = self._join(region, node, inputs)
            if join is not None and self._acyclic(region, inputs) and self._keeps_sealed(region, node, join):
                self._add(region, node, join)
                return True
        if is_view(aten_name(node)) and aten_name(node) != "clone":
            return False
        region = _Region(len(self.regions))
        join = self._join(region, node, inputs)
        if join is None or not any(map(_varies, [join.axes, *join.loads.values()])):  # or it is one number
            return False
        self.regions.append(region)
        self._add(region, node, join)
        return True

    def _add(self, region: _Region, node: FxNode, join: _Join) -> None:
        for load, axes in join.loads.items():
            region.loads.append(load)
            region.axes[load] = axes
        region.axes[node], region.reduced, region.count = join.axes, join.reduced, join.count
        region.members.append(node)
        self.group[node] = region

    def _join(self, region: _Region, node: FxNode, inputs: Sequence[FxNode]) -> _Join | None:
        name = aten_name(node)
        if is_view(name) and name != "clone":
            source = inputs[0]
            axes = _view(node, source, region.axes[source]) if source in region.members else None
            return None if axes is None else _Join(axes, {}, region.reduced, region.count)
        return (
            self._reduction(region, node, inputs[0])
            if _reduces(node)
            else self._pointwise(region, node, inputs)
        )

    def _pointwise(self, region: _Region, node: FxNode, inputs: Sequence[FxNode]) -> _Join | None:
        if any(aten_name(_root(region, a)) in PLACES for a in inputs if a in region.members):
            return None  # in a region places are numbers of the math, not integers
        shape, count = _shape(node), region.count
        out: list[int | None] = []
        outside = []
        for d, size in enumerate(shape):
            known = set()
            for a in inputs:
                at = d - (len(shape) - len(_shape(a)))
                if at < 0 or _is_one(size) or _is_one(_shape(a)[at]):
                    continue
                if a in region.axes:
                    known |= {region.axes[a][at]} - {None}
                elif d not in outside:
                    outside.append(d)
            if len(known) > 1:
                return None
            out.append(next(iter(known), None))
        for d in outside:
            if out[d] is None:  # an axis of this size that nothing else here is along, or a new one
                free = [a for a, s in region.sizes().items() if s == _expression(shape[d]) and a not in out]
                out[d], count = (free[0], count) if free else (count, count + 1)
        if len({a for a in out if a is not None}) < sum(a is not None for a in out):
            return None
        loads = {
            a: tuple(
                None if _is_one(s) else out[len(shape) - len(_shape(a)) + d] for d, s in enumerate(_shape(a))
            )
            for a in inputs
            if a not in region.axes
        }
        return _Join(tuple(out), loads, region.reduced, count)

    def _reduction(self, region: _Region, node: FxNode, source: FxNode) -> _Join | None:
        shape, count, loads = _shape(source), region.count, {}
        if source in region.axes:
            axes = region.axes[source]
        else:
            if region.members:
                return None
            axes = tuple(None if _is_one(s) else count + d for d, s in enumerate(shape))
            count, loads = count + len(shape), {source: axes}
        dims = _dims(node, len(shape))
        if any(axes[d] is None and not _is_one(shape[d]) for d in dims):
            return None
        over = frozenset(a for a in (axes[d] for d in dims) if a is not None)
        reduced = region.reduced
        if over:
            if reduced not in (None, over):
                return None
            reduced = over
        keep = len(_shape(node)) == len(shape)
        out = tuple(None if d in dims else a for d, a in enumerate(axes) if keep or d not in dims)
        return _Join(out, loads, reduced, count)

    def _acyclic(self, region: _Region, inputs: Iterable[FxNode]) -> bool:
        """Whether nothing that the node takes from elsewhere depends on the region."""
        seen: set[Any] = set()
        stack = [self.group[a] for a in inputs if a in self.group and self.group[a] is not region]
        while stack:
            group = stack.pop()
            key = group if isinstance(group, FxNode) else group.number
            if group is region:
                return False
            if key in seen:
                continue
            seen.add(key)
            inputs = self._inputs_of_torch(group) if isinstance(group, FxNode) else group.inputs()
            stack += [self.group[a] for a in inputs if a in self.group and self.group[a] is not group]
        return True

    def _inputs_of_torch(self, node: FxNode) -> Iterator[FxNode]:
        """What torch needs for a node: for a constant among its inputs, the tensors that say what shape it has."""
        for a in node.all_input_nodes:
            if a in self.constants:
                yield from self._inputs_of_torch(a)
            else:
                yield a

    def _keeps_sealed(self, region: _Region, node: FxNode, join: _Join) -> bool:
        """Whether no value that must be whole would be computed again for each of more rows or columns."""
        space = region.space() | {
            a for axes in [join.axes, *join.loads.values()] for a in axes if a is not None
        }
        for n in [*region.members, node]:
            if n in self.sealed:
                axes = join.axes if n is node else region.axes[n]
                if not _is_whole(_varies(axes), space, join.reduced):
                    source = n.all_input_nodes[0]
                    if not (_reduces(n) and _varies(region.axes.get(source, ())) == space):
                        return False
        return True


def _varies(axes: Axes) -> set[int]:
    return {a for a in axes if a is not None}


def _is_whole(axes: set[int], space: set[int], reduced: frozenset[int] | None) -> bool:
    return axes == space or (reduced is not None and axes == space - reduced)


def _reduces(node: FxNode) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or is_view(aten_name(node)):
        return False
    return aten_name(node) in _REDUCTIONS or any(a.name == "dim" for a in schema.arguments)


def _dims(node: FxNode, rank: int) -> tuple[int, ...]:
    found: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if found is None or rank == 0 or found == []:
        return tuple(range(rank))
    dims = found if isinstance(found, list | tuple) else [found]
    return tuple(d % rank for d in dims)


def _view(node: FxNode, source: FxNode, axes: Axes) -> Axes | None:
    """The axes of a view that only inserts, removes, repeats or permutes dims; None for any other."""
    before, after, name = _shape(source), _shape(node), aten_name(node)
    if name in ("permute", "transpose", "t"):
        rank, args = len(before), [cast(Any, a) for a in node.args]
        if name == "permute":
            order = [d % rank for d in args[1]]
        else:
            order = list(range(rank))
            a, b = (args[1] % rank, args[2] % rank) if name == "transpose" else (0, rank - 1)
            order[a], order[b] = order[b], order[a]
        return tuple(axes[d] for d in order)
    if name in ("expand", "broadcast_to"):
        shift = len(after) - len(before)
        return tuple(None if d < shift else axes[d - shift] for d in range(len(after)))
    old = [(s, a) for s, a in zip(before, axes, strict=True) if not _is_one(s)]
    if [_expression(s) for s, _ in old] != [_expression(s) for s in after if not _is_one(s)]:
        return None
    rest = iter(a for _, a in old)
    return tuple(None if _is_one(s) else next(rest) for s in after)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


# ---- from regions to steps ----


def partition(
    captured: Captured, names: Sequence[str], title: str, apart: Mapping[FxNode, str] | None = None
) -> list[Step]:
    """The steps of a captured graph in an order in which they can run.

    ``names``: of the placeholders. ``title``: of the function, for the names of the operators. ``apart``: nodes that are known to
    have no kernel, and why.
    """
    _split_full_reductions(captured)
    sealed: set[FxNode] = set()
    while True:
        found = _Partition(captured, sealed, apart or {})
        found.run()
        wrong = {n for r in found.regions for n in _not_whole(found, r)} - sealed
        if not wrong:
            break
        sealed |= wrong
    placeholders = [n for n in captured.graph.nodes if n.op == "placeholder"]
    return _ordered(found, dict(zip(placeholders, names, strict=True)), title)


def _split_full_reductions(captured: Captured) -> None:
    """Reduce over all dims in two steps, the last dim first: as one row it would be the work of one block."""
    graph = captured.graph
    for node in list(graph.nodes):
        if (
            node.op != "call_function"
            or aten_name(node) not in ("sum", "mean", "prod", "amax", "amin")
            or not _is_tensor(node)
        ):
            continue
        source = node.all_input_nodes[0]
        shape = _shape(source)
        dims = _dims(node, len(shape))
        wide = [d for d, s in enumerate(shape) if not _is_one(s)]
        if len(wide) < 2 or not set(wide) <= set(dims):
            continue
        if _value(source).dtype not in (*_FLOATS, *INTEGERS, torch.bool) or _value(node).dtype == torch.bool:
            continue
        keep = len(_shape(node)) == len(shape)
        part: tuple[Any, ...] = (_over_dims(node), [wide[-1]], True)
        rest: tuple[Any, ...] = (part[0], list(dims), keep)
        if aten_name(node) == "prod":  # over one dim, or over all
            part, rest = (torch.ops.aten.prod.dim_int, wide[-1], True), (torch.ops.aten.prod.default,)
        before, after = _value(source).dtype, _value(node).dtype
        between = torch.promote_types(before, after)
        # Without a dtype those of integers are int64.
        named = after in INTEGERS and aten_name(node) in ("sum", "prod")
        widen: dict[str, Any] = {"dtype": between} if named or between != before else {}
        narrow: dict[str, Any] = {"dtype": after} if named or after != between else {}
        with graph.inserting_before(node):
            first = graph.call_function(part[0], (source, *part[1:]), widen)
            second = graph.call_function(rest[0], (first, *rest[1:]), narrow)
        with _value(source).fake_mode:
            first.meta = {**node.meta, "val": part[0](_value(source), *part[1:], **widen)}
            second.meta = {**node.meta, "val": rest[0](first.meta["val"], *rest[1:], **narrow)}
        node.replace_all_uses_with(second)
        graph.erase_node(node)


def _over_dims(node: FxNode) -> Any:
    """The overload of a reduction that takes dims."""
    overload = {"sum": "dim_IntList", "mean": "dim"}.get(aten_name(node), "default")
    return getattr(getattr(torch.ops.aten, aten_name(node)), overload)


def _outside_uses(found: _Partition, region: _Region) -> list[FxNode]:
    """Members that are used elsewhere: not by a constant of their shape alone, if kernels alone need that."""
    inside = {*region.members, *(found.constants.keys() - found.needed)}
    return [n for n in region.members if any(u not in inside for u in n.users)]


def _root(region: _Region, node: FxNode) -> FxNode:
    """The member of which this one is a view."""
    while (
        is_view(aten_name(node)) and aten_name(node) != "clone" and node.all_input_nodes[0] in region.members
    ):
        node = node.all_input_nodes[0]
    return node


def _not_whole(found: _Partition, region: _Region) -> list[FxNode]:
    space, wrong = region.space(), []
    for n in _outside_uses(found, region):
        root = _root(region, n)
        if not _is_whole(_varies(region.axes[root]), space, region.reduced):
            wrong.append(root)
    for n in region.members:
        if _reduces(n) and n.all_input_nodes[0] in region.axes:
            over = _varies(region.axes[n.all_input_nodes[0]])
            if over != space and over - _varies(region.axes[n]):
                wrong.append(n)
    return wrong


def _ordered(found: _Partition, names: dict[FxNode, str], title: str) -> list[Step]:
    needed = found.needed
    steps: dict[Any, Step] = {}
    for node in found.constants:
        if node in needed:
            steps[node] = TorchStep(node, "")
    for node, group in found.group.items():
        if group is node:
            steps[node] = TorchStep(node, found.reasons[node])
    for region in found.regions:
        steps[region.number] = _RegionBuilder(found, region, names, title).step()

    def key(node: FxNode) -> Any:
        group = found.group.get(node, node)
        return group if isinstance(group, FxNode) else group.number

    out: list[Step] = []
    done: set[Any] = set()

    def visit(k: Any) -> None:
        if k in done or k not in steps:
            return
        done.add(k)
        step = steps[k]
        nodes = [step.node] if isinstance(step, TorchStep) else list(step.nodes)
        for n in nodes:
            for a in n.all_input_nodes:
                if key(a) != k:
                    visit(key(a))
        out.append(step)

    for k in list(steps):
        visit(k)
    return out


class _RegionBuilder:
    """One region as a record, with the views that its operands and results need."""

    def __init__(self, found: _Partition, region: _Region, names: dict[FxNode, str], title: str) -> None:
        self.found, self.region, self.title = found, region, title
        self.space = region.space()
        self.columns = self._columns()
        self.order = self._order()
        self.rows = [a for a in self.order if a not in self.columns]
        self.size = {
            a: s
            for n, axes in region.axes.items()
            for a, s in zip(axes, _shape(n), strict=True)
            if a is not None
        }
        self.double = any(_value(n).dtype == torch.float64 for n in region.axes)
        self.compute = torch.float64 if self.double else torch.float32
        self.taken = {"shape", "grad", "mask", "y"}
        self.names = {n: self._fresh(names.get(n, f"t{i}")) for i, n in enumerate(region.loads)}
        self.scalars: dict[FxNode, str] = {}
        self.exact = self._is_exact()

    def _is_exact(self) -> bool:
        """Whether there are integers, or bools that are stored as they are."""
        spans = {n: self._span(_varies(self.region.axes[n])) for n in self.region.loads}
        loads = any(
            _value(n).dtype in INTEGERS or (_value(n).dtype == torch.bool and span == "MN")
            for n, span in spans.items()
        )
        results = any(
            _value(n).dtype == torch.bool and self._result_span(_root(self.region, n)) == "MN"
            for n in _outside_uses(self.found, self.region)
        )
        return loads or results or any(self.is_integer(n) for n in self.region.members)

    def is_integer(self, node: FxNode) -> bool:
        """Whether the definition has a value as integers: places, and what is cast to 8 bits, are numbers of the math there."""
        members = self.region.members
        while node in members and is_view(aten_name(node)):
            node = node.all_input_nodes[0]
        if _value(node).dtype not in INTEGERS:
            return False
        is_cast = aten_name(node) == "_to_copy" and _value(node).dtype in NARROW
        of_numbers = is_cast and _value(node.all_input_nodes[0]).dtype in _FLOATS
        return node not in members or not (aten_name(node) in PLACES or of_numbers)

    def _fresh(self, wanted: str) -> str:
        name = re.sub(r"\W", "_", wanted).lstrip("_") or "t"
        if name[0].isdigit() or name.startswith("grad_"):
            name = f"a_{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _columns(self) -> frozenset[int]:
        """The reduced axes; without any, trailing axes such that the fewest operands have to be read in repetition."""
        if self.region.reduced is not None:
            return self.region.reduced
        order = self._full_order()
        loads = [_varies(self.region.axes[n]) for n in self.region.loads]

        def cost(columns: frozenset[int]) -> int:
            if not columns:
                return sum(load != self.space for load in loads)
            rows = self.space - columns
            return sum(bool(load & columns and load & rows) and load != self.space for load in loads)

        choices = [frozenset(order[i:]) for i in range(len(order), 0, -1)]
        best = min(choices, key=cost)
        if not best and any(load == set() for load in loads):
            best = frozenset(order[-1:])
        return best if cost(best) < cost(frozenset()) or any(not load for load in loads) else frozenset()

    def _full_order(self) -> list[int]:
        for n in [*self.region.loads, *self.region.members]:
            axes = [a for a in self.region.axes[n] if a is not None]
            if set(axes) == self.space:
                return axes
        return sorted(self.space)

    def _order(self) -> list[int]:
        order = self._full_order()
        return [a for a in order if a not in self.columns] + [a for a in order if a in self.columns]

    def _span(self, axes: set[int]) -> str:
        if not self.columns or (axes and not self.rows):
            return "MN"
        if axes & self.columns:
            return "MN" if axes & set(self.rows) else "N"
        return "M" if axes <= set(self.rows) else "N"

    def _operand_view(self, node: FxNode, span: str, whole: bool) -> View:
        """A tensor with dims ``axes`` brought to the dims of its span. ``whole``: it must have the shape of the call."""
        axes = self.region.axes[node]
        dims = [a for a in self.order if a in self.columns] if span == "N" else self.order
        missing = {a for a in dims if a not in axes}
        if span == "M":
            missing -= self.columns
        lengthen = missing if span in ("N", "M") or whole else set()
        dtype = None
        value = _value(node)
        if value.dtype in INTEGERS:
            dtype = None if span == "MN" or value.dtype in _OF_ROWS else torch.int64
        elif value.dtype not in _FLOATS and not (value.dtype in (*NARROW, torch.bool) and span == "MN"):
            dtype = self._float_dtype()
        if not lengthen and _fits(axes, dims, span, self.columns):
            return View(dtype=dtype)
        return _view_to(
            axes,
            [a if a in axes else None for a in dims],
            [self.size[a] if a in lengthen else None for a in dims],
            dtype,
        )

    def _float_dtype(self) -> torch.dtype:
        return next((_value(n).dtype for n in self.region.loads if _value(n).dtype in _FLOATS), torch.float32)

    def _result_view(self, node: FxNode, span: str, root_dtype: torch.dtype | None) -> View:
        axes = self.region.axes[node]
        dims: list[int | None] = [None if span == "M" and a in self.columns else a for a in self.order]
        expand = [
            s if a is None and not _is_one(s) else None for a, s in zip(axes, _shape(node), strict=True)
        ]
        if tuple(dims) == tuple(axes) and not any(e is not None for e in expand):
            return View(dtype=root_dtype)
        return _view_to(tuple(dims), list(axes), expand, root_dtype)

    def step(self) -> RegionStep:
        region = self.region
        spans = {n: self._span(_varies(region.axes[n])) for n in region.loads}
        place = {n: i for i, n in enumerate(self.found.captured.graph.nodes)}
        # The first has the shape of the call; else they come as the function takes them. Integers of the columns are repeated.
        repeated = {n for n in region.loads if spans[n] == "N" and _value(n).dtype in INTEGERS}
        loads = sorted(region.loads, key=lambda n: (spans[n] != "MN", place[n]))
        if "MN" in spans.values():
            spans |= dict.fromkeys(repeated, "MN")
        if "MN" not in spans.values():
            loads.sort(key=lambda n: (-len(_varies(region.axes[n])), spans[n] != "M"))
            spans[loads[0]] = "MN"
            spans |= dict.fromkeys(repeated, "MN")
            loads.sort(key=lambda n: spans[n] != "MN")
        covered = {a for n in loads if spans[n] == "MN" for a in region.axes[n] if a is not None}
        operands = []
        for i, n in enumerate(loads):
            view = self._operand_view(n, spans[n], i == 0 and covered != self.space)
            mask, dtype = _value(n).dtype == torch.bool, view.dtype or self._runtime_dtype(n)
            operands.append(Operand(self.names[n], n, spans[n], view, mask, dtype))
        program = _Program(self, operands)
        k = len(self.columns)
        columns = FLAT if not self.columns else LAST if k == 1 else trailing("shape")
        results, dtypes, roots = self._results(program)
        listed = k if k > 1 else 0
        parameters = [f"Tensor {o.name}" for o in operands]
        parameters += ["SymInt[] shape"] if listed else []
        parameters += [f"float {name}" for name in self.scalars.values()]
        returns = "Tensor" if len(results) == 1 else f"({', '.join(f'Tensor {r.name}' for r in results)})"
        text = "\n".join(
            [
                self.title, str(columns), repr(self.double), program.text(),
                *(f"{o.name} {o.span} {o.mask}" for o in operands), repr(self.scalars.values()),
                *(f"{o.name} {o.dtype}" for o in operands if o.dtype in NARROW),
                *(f"{r.name} {program.index[root]} {dtypes.get(r.name)}" for r, root in zip(results, roots, strict=True)),
                *(f"{o.name} {o.dtype}" for o in operands if self.exact and o.dtype not in _FLOATS),
            ]
        )  # fmt: skip
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        stored = [root for root, r in zip(roots, results, strict=True) if dtypes[r.name] == "bool"]
        definition = program.definition(roots, k if listed else 0, stored)
        is_whole = {r.name for r in results if dtypes[r.name] in WHOLE_NAMES}
        multiplies = any((line.kind, line.target) == ("reduce", "prod") for line in definition.lines)
        record = OpDef(
            name=f"{self.title}_{digest}",
            schema=f"({', '.join(parameters)}) -> {returns}",
            definition=definition,
            columns=columns,
            formula=self._formula(),
            source=self.title,
            spans={o.name: o.span for o in operands if o.span != "MN"},
            integers=tuple(o.name for o in operands if o.dtype in INTEGERS and o.span == "M"),
            narrow={
                o.name: (_name(o.dtype),) for o in operands if o.dtype in NARROW and o.dtype not in INTEGERS
            },
            whole={
                o.name: _name(o.dtype)
                for o in operands
                if o.span == "MN" and o.dtype in (*INTEGERS, torch.bool)
            }
            if self.exact
            else None,
            differentiation=self._differentiation(is_whole, dtypes),
            results=tuple(r.name for r in results),
            dtypes=dtypes,
            gradient=definition.gradient if multiplies else None,
            packaged=False,
        )
        sizes = tuple(self.size[a] for a in self.order if a in self.columns) if listed else ()
        return RegionStep(
            record, tuple(operands), tuple((name, n) for n, name in self.scalars.items()), listed, sizes, results,
            tuple(region.members), self.double,
        )  # fmt: skip

    def _differentiation(self, whole: Collection[str], dtypes: Mapping[str, str]) -> str:
        """Who finds gradients. There are none of integers."""
        if len(whole) == len(dtypes) and "int8" not in dtypes.values():
            return "none"
        return "definition" if {*dtypes.values()} & {*NARROW_NAMES} else "kernels"

    def _results(self, program: _Program) -> tuple[tuple[Result, ...], dict[str, str], list[FxNode]]:
        region = self.region
        by_root: dict[FxNode, list[FxNode]] = {}
        for n in _outside_uses(self.found, region):
            by_root.setdefault(_root(region, n), []).append(n)
        spans = {root: self._result_span(root) for root in by_root}
        if self.exact:  # what has gradients comes first
            by_root = dict(sorted(by_root.items(), key=lambda one: self._is_stored(one[0], spans[one[0]])))
        results, dtypes = [], {}
        for i, (root, nodes) in enumerate(by_root.items()):
            span = spans[root]
            name = "y" if len(by_root) == 1 else f"y{i}"
            while name in self.taken and name != "y":
                name += "_"
            dtypes[name], narrow = self._result_dtype(root, nodes, program, span)
            views = tuple((n, self._result_view(n, span, narrow)) for n in nodes)
            results.append(Result(name, span, views))
        return tuple(results), dtypes, list(by_root)

    def _result_span(self, root: FxNode) -> str:
        axes = _varies(self.region.axes[root])
        if not self.rows and axes != self.space:
            return "M"
        return "MN" if not self.columns or axes & self.columns else "M"

    def _is_stored(self, root: FxNode, span: str) -> bool:
        """Whether a kernel stores a result as integers or bools."""
        dtype = _value(root).dtype
        return self.is_integer(root) or dtype == torch.int8 or (dtype == torch.bool and span == "MN")

    def _result_dtype(
        self, root: FxNode, nodes: Sequence[FxNode], program: _Program, span: str
    ) -> tuple[str, torch.dtype | None]:
        """The dtype of a result as a record says it, and the cast that remains."""
        region, dtype = self.region, _value(root).dtype
        compute = self.compute
        if span == "M" and self.is_integer(root):
            return "int64", dtype if dtype != torch.int64 else None
        if dtype in NARROW or self._is_stored(root, span):
            return _name(dtype), None
        seen = self._seen(region, nodes)
        if dtype in _FLOATS and not seen:
            return "compute", None
        for o in program.operands:
            if dtype in _FLOATS and self._runtime_dtype(o.node) == dtype:
                return o.name, None
        return "compute", dtype if dtype != compute else None

    def _seen(self, region: _Region, nodes: Sequence[FxNode]) -> bool:
        """Whether a result of a region is seen by torch or the caller, and not by kernels alone."""
        users = (u for n in nodes for u in n.users if u not in region.members)
        return any(not isinstance(self.found.group.get(u), _Region) for u in users)

    def _runtime_dtype(self, node: FxNode) -> torch.dtype:
        """The dtype of an operand. What passes between kernels alone stays in the dtype of the math."""
        region, dtype = self.found.group.get(node), _value(node).dtype
        if not isinstance(region, _Region) or dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return cast(torch.dtype, dtype)
        root = _root(region, node)
        nodes = [n for n in _outside_uses(self.found, region) if _root(region, n) is root]
        return cast(torch.dtype, dtype) if self._seen(region, nodes) else torch.float32

    def _formula(self) -> str:
        """The author's lines that the region computes."""
        lines = [source_of(n) for n in self.region.members]
        texts = [linecache.getline(s.file, s.line).strip() for s in dict.fromkeys(lines) if s is not None]
        return "; ".join(t.removeprefix("return ") for t in texts if t)[:400].replace("\\", "/") or self.title


def _fits(axes: Axes, dims: Sequence[int], span: str, columns: frozenset[int]) -> bool:
    """Whether a tensor with these axes is an operand as it is: MN by broadcasting, N and M in their exact shape."""
    if span == "N":
        return list(axes) == list(dims)
    if span == "M":
        return list(axes) == [None if a in columns else a for a in dims]
    tail = dims[len(dims) - len(axes) :]
    return len(axes) <= len(dims) and all(a in (None, d) for a, d in zip(axes, tail, strict=True))


def _view_to(
    axes: Sequence[int | None], dims: Sequence[int | None], expand: Sequence[Any], dtype: Any
) -> View:
    """The view that turns a tensor with these axes into one with those dims (None: of size 1 before it is expanded)."""
    present = [a for a in dims if a is not None]
    places = [list(axes).index(a) for a in present]
    rest = [d for d in range(len(axes)) if d not in places]
    order = rest + places
    shape: list[int | None] = []
    at = len(rest)
    for a in dims:
        shape.append(None if a is None else at)
        at += a is not None
    permute = None if order == list(range(len(axes))) else tuple(order)
    reshape = None if shape == list(range(len(axes))) else tuple(shape)
    return View(permute, reshape, tuple(expand) if any(e is not None for e in expand) else None, dtype)


# ---- the definition of a region ----


class _Program:
    """The nodes of a region as lines over its operands and scalars, whatever the rank of a call."""

    def __init__(self, builder: _RegionBuilder, operands: Sequence[Operand]) -> None:
        self.builder, self.operands = builder, tuple(operands)
        self.index: dict[FxNode, int] = {o.node: i for i, o in enumerate(operands)}
        # The dtypes of integers and bools.
        self.whole: dict[FxNode, torch.dtype] = {
            o.node: torch.int64 if o.span == "M" and not o.mask else _value(o.node).dtype
            for o in operands
            if _value(o.node).dtype in (*INTEGERS, torch.bool)
        }
        self.lines: list[Line] = []
        self.numbers: dict[FxNode, str] = builder.scalars
        for node in builder.region.members:
            line = self._line(node)
            self.index[node] = self._add(line)
            if is_view(aten_name(node)):
                source = node.all_input_nodes[0]
                self.whole |= {node: self.whole[source]} if source in self.whole else {}
            elif builder.is_integer(node) or _value(node).dtype == torch.bool:
                self.whole[node] = _value(node).dtype

    def text(self) -> str:
        return "\n".join(line.text() for line in self.lines)

    def _add(self, line: Line) -> int:
        self.lines.append(line)
        return len(self.operands) + len(self.lines) - 1

    def _as_integers(self, node: FxNode, dtype: torch.dtype) -> Any:
        """An operand in a dtype of integers, for of what has no dims torch's promotion depends on that."""
        found = self.builder.found
        if node in found.constants:
            return Number(found.integer(node, dtype))
        if not _is_tensor(node):
            return self._argument(node)
        if self.whole.get(node) == dtype:
            return Ref(self.index[node])
        return Ref(self._add(Line("whole", dtype, (Ref(self.index[node]),), {}, source_of(node), False)))

    def _as_compared(self, node: FxNode, dtype: torch.dtype | None) -> Any:
        """An operand of a comparison that torch makes in that dtype, to which it first rounds integers."""
        given = self._argument(node)
        if self.whole.get(node) not in INTEGERS or dtype not in _FLOATS or dtype == self.builder.compute:
            return given
        return Ref(self._add(Line("cast", dtype, (given,), {}, source_of(node), False)))

    def _argument(self, node: FxNode) -> Any:
        if node in self.index:
            return Ref(self.index[node])
        found = self.builder.found
        if node in found.constants:
            return Number(found.constants[node])
        name = self.numbers.get(node)
        if name is None:
            name = self.numbers[node] = self.builder._fresh(
                node.name if node.op == "placeholder" else f"s{len(self.numbers)}"
            )
        return Scalar(name)

    def _line(self, node: FxNode) -> Line:
        source, name = source_of(node), aten_name(node)
        value = _value(node)
        common = None if is_view(name) or name in _CASTS else common_dtype(node)
        if common is not None:
            kept = 1 if name == "where" else 0
            args: Any = torch.fx.node.map_arg(node.args[:kept], self._argument)
            given, kwargs = torch.fx.node.map_arg(
                (node.args[kept:], dict(node.kwargs)), lambda n: self._as_integers(n, common)
            )
            args += given
        else:
            compared_in = _compared_in(node)
            args = torch.fx.node.map_arg(node.args, lambda n: self._as_compared(n, compared_in))
            kwargs = dict(torch.fx.node.map_arg(node.kwargs, self._argument))
        detached = bool(_note(node, "detached"))
        if is_view(name):
            return Line("same", None, args[:1], {}, source, detached)
        if name in ("_to_copy", "lift_fresh_copy", "copy"):
            narrow = None
            if value.dtype == torch.bool:
                return Line("cast", torch.bool, args[:1], {}, source, detached)
            source_dtype = _value(node.all_input_nodes[0]).dtype
            if self.builder.is_integer(node):
                given = args[-1:] if name == "copy" else args[:1]
                return Line("whole", value.dtype, given, {}, source, detached)
            if value.dtype in NARROW:
                return Line("cast", value.dtype, args[:1], {}, source, detached)
            compute = self.builder.compute
            if source_dtype in INTEGERS and value.dtype != torch.float64:
                narrow = value.dtype if value.dtype != compute else None
            if _note(node, "cast") and value.dtype in _FLOATS and source_dtype in _FLOATS:
                narrow = (
                    value.dtype if torch.promote_types(value.dtype, source_dtype) != value.dtype else None
                )
                narrow = narrow if narrow != compute else None
            return Line("cast", narrow, args[-1:] if name == "copy" else args[:1], {}, source, detached)
        if _reduces(node):
            whole = not _dims_reduced(self.builder.region, node)
            if self.whole.get(node.all_input_nodes[0]) in INTEGERS and value.dtype in _FLOATS:
                args = (Ref(self._add(Line("cast", None, args[:1], {}, source, detached))),)
            if whole and value.dtype == torch.bool:
                return Line("cast", torch.bool, args[:1], {}, source, detached)
            reduced = Line("same" if whole else "reduce", name, args[:1], {}, source, detached)
            return self._in_dtype(reduced, value.dtype) if name in ("sum", "prod") else reduced
        kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED}
        call = Line("call", node.target, args, kwargs, source, detached)
        numbers = any(isinstance(a, Number) for a in args)
        return self._in_dtype(call, value.dtype) if numbers else call

    def _in_dtype(self, line: Line, dtype: torch.dtype) -> Line:
        """A line whose integers torch may have in another dtype than that of the captured graph."""
        if dtype not in INTEGERS or dtype == torch.int64:
            return line
        return Line("whole", dtype, (Ref(self._add(line)),), {}, line.source, line.detached)

    def definition(self, roots: Sequence[FxNode], listed: int, bools: Sequence[FxNode]) -> Definition:
        operands = tuple((o.name, o.mask) for o in self.operands)
        scalars = tuple(self.builder.scalars.values())
        results, whole = (tuple(self.index[r] for r in nodes) for nodes in (roots, bools))
        return Definition(operands, listed, scalars, tuple(self.lines), results, whole)


def _dims_reduced(region: _Region, node: FxNode) -> bool:
    return _varies(region.axes[node.all_input_nodes[0]]) != _varies(region.axes[node])
