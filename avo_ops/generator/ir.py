"""The intermediate representation: pointwise math, reductions and loads over rows M x columns N.

A value spans rows and columns, one of them, or nothing. Nodes are immutable and hash-consed by their ``Builder``, so
that equal expressions are one node; ``PRIMITIVES`` has one row for each operation.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..definitions.primitives import TORCH


class Span(enum.IntFlag):
    """The dims over which a value varies."""

    NONE = 0
    ROWS = 1
    COLS = 2
    BOTH = 3

    @property
    def text(self) -> str:
        return {0: "1", 1: "M", 2: "N", 3: "MN"}[int(self)]

    @staticmethod
    def parse(text: str) -> Span:
        return {"1": Span.NONE, "M": Span.ROWS, "N": Span.COLS, "MN": Span.BOTH}[text]


@dataclass(frozen=True)
class Source:
    """A line of the author's Python."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Primitive:
    """One operation: its spelling in kernels (``{0}``, ``{1}``, ... are the operands) and its cost.

    What it means, ``definitions/primitives.py`` says in torch. ``cost`` counts lane
    instructions of a float32 evaluation on a GPU, roughly.
    """

    spelling: str
    cost: int
    result: str = "math"  # or "mask", or "whole": an integer
    commutes: bool = False
    precedence: int = 9  # of the spelling: 9 a call, 8 unary, 6 multiplication, 5 addition
    approximate: bool = False  # the GPU has a cheaper form for results of 16 bits


PRIMITIVES: dict[str, Primitive] = {
    "neg": Primitive("-{0}", 0, precedence=8),
    "add": Primitive("{0} + {1}", 1, commutes=True, precedence=5),
    "sub": Primitive("{0} - {1}", 1, precedence=5),
    "mul": Primitive("{0} * {1}", 1, commutes=True, precedence=6),
    "div": Primitive("{0} / {1}", 9, precedence=6),
    "fma": Primitive("m_fma({0}, {1}, {2})", 1),
    "abs": Primitive("m_abs({0})", 0),
    "sign": Primitive("m_sign({0})", 2),
    "floor": Primitive("m_floor({0})", 1),
    "trunc": Primitive("m_trunc({0})", 1),
    "round": Primitive("m_round({0})", 1),
    "exp": Primitive("m_exp({0})", 4, approximate=True),
    "expm1": Primitive("m_expm1({0})", 20),
    "log": Primitive("m_log({0})", 12),
    "log1p": Primitive("m_log1p({0})", 20),
    "sqrt": Primitive("m_sqrt({0})", 6),
    "rsqrt": Primitive("m_rsqrt({0})", 6),
    "recip": Primitive("m_recip({0})", 4),
    "quotient": Primitive("m_quotient({0}, {1}, {2})", 1, approximate=True),
    "sigmoid": Primitive("m_sigmoid({0})", 8, approximate=True),
    "sigmoid_rest": Primitive("m_sigmoid_rest({0}, {1})", 1, approximate=True),
    "x_sigmoid": Primitive("m_x_sigmoid({0})", 9, approximate=True),
    "tanh": Primitive("m_tanh({0})", 12),
    "erf": Primitive("m_erf({0})", 16),
    "sin": Primitive("m_sin({0})", 20),
    "cos": Primitive("m_cos({0})", 20),
    "exp2": Primitive("m_exp2({0})", 6),
    "tan": Primitive("m_tan({0})", 30),
    "asin": Primitive("m_asin({0})", 20),
    "acos": Primitive("m_acos({0})", 20),
    "atan": Primitive("m_atan({0})", 20),
    "sinh": Primitive("m_sinh({0})", 20),
    "cosh": Primitive("m_cosh({0})", 20),
    "asinh": Primitive("m_asinh({0})", 25),
    "acosh": Primitive("m_acosh({0})", 25),
    "atanh": Primitive("m_atanh({0})", 20),
    "lgamma": Primitive("m_lgamma({0})", 60),
    "pow": Primitive("m_pow({0}, {1})", 40),
    "fmod": Primitive("m_fmod({0}, {1})", 30),
    "atan2": Primitive("m_atan2({0}, {1})", 30),
    "hypot": Primitive("m_hypot({0}, {1})", 15),
    "max": Primitive("m_max({0}, {1})", 1, commutes=True),
    "min": Primitive("m_min({0}, {1})", 1, commutes=True),
    "exp_neg_sq": Primitive("m_exp_neg_sq({0})", 4, approximate=True),
    "erfc": Primitive("m_erfc({0}, {1})", 14, approximate=True),
    "exp_neg_half_sq": Primitive("m_exp_neg_half_sq({0})", 4, approximate=True),
    "ndtr": Primitive("m_ndtr({0}, {1})", 14, approximate=True),
    "x_ndtr": Primitive("m_x_ndtr({0}, {1})", 14, approximate=True),
    "lt": Primitive("m_lt({0}, {1})", 1, "mask"),
    "le": Primitive("m_le({0}, {1})", 1, "mask"),
    "gt": Primitive("m_gt({0}, {1})", 1, "mask"),
    "ge": Primitive("m_ge({0}, {1})", 1, "mask"),
    "eq": Primitive("m_eq({0}, {1})", 1, "mask", commutes=True),
    "ne": Primitive("m_ne({0}, {1})", 1, "mask", commutes=True),
    "and": Primitive("m_and({0}, {1})", 1, "mask", commutes=True),
    "or": Primitive("m_or({0}, {1})", 1, "mask", commutes=True),
    "not": Primitive("m_not({0})", 1, "mask"),
    "where": Primitive("m_where({0}, {1}, {2})", 1),
    "uniform": Primitive("m_uniform({0}, {1})", 16),
    "round_result": Primitive("m_round_to<X>({0})", 1),
    "round_f32": Primitive("m_round_f32({0})", 1),
    "round_f16": Primitive("m_round_f16({0})", 1),
    "round_bf16": Primitive("m_round_bf16({0})", 1),
    "round_f8": Primitive("m_round_f8({0})", 8),
    "round_i8": Primitive("m_round_i8({0})", 4),
    # Integers, in 64 bits of two's complement whatever their dtype; a wrap brings a result back into that of torch.
    "whole": Primitive("m_whole({0})", 1, "whole"),  # what a load has in memory; emitters spell it
    "to_whole": Primitive("m_to_whole({0})", 2, "whole"),  # towards zero
    "to_math": Primitive("m_to_math<C>({0})", 2),
    "iadd": Primitive("m_iadd({0}, {1})", 2, "whole", commutes=True),
    "isub": Primitive("m_isub({0}, {1})", 2, "whole"),
    "imul": Primitive("m_imul({0}, {1})", 5, "whole", commutes=True),
    "ineg": Primitive("m_ineg({0})", 2, "whole"),
    "iabs": Primitive("m_iabs({0})", 3, "whole"),
    "isign": Primitive("m_isign({0})", 3, "whole"),
    "iand": Primitive("m_iand({0}, {1})", 2, "whole", commutes=True),
    "ior": Primitive("m_ior({0}, {1})", 2, "whole", commutes=True),
    "ixor": Primitive("m_ixor({0}, {1})", 2, "whole", commutes=True),
    "inot": Primitive("m_inot({0})", 2, "whole"),
    "ishl": Primitive("m_ishl({0}, {1}, {2})", 4, "whole"),  # the last: bits of the dtype
    "ishr": Primitive("m_ishr({0}, {1}, {2})", 4, "whole"),
    "imax": Primitive("m_imax({0}, {1})", 3, "whole", commutes=True),
    "imin": Primitive("m_imin({0}, {1})", 3, "whole", commutes=True),
    "idiv": Primitive("m_idiv({0}, {1})", 60, "whole"),  # towards zero, by what is not 0
    "ifloordiv": Primitive("m_ifloordiv({0}, {1})", 64, "whole"),
    "irem": Primitive("m_irem({0}, {1})", 60, "whole"),
    "imod": Primitive("m_imod({0}, {1})", 64, "whole"),  # with the sign of the divisor
    "iwhere": Primitive("m_iwhere({0}, {1}, {2})", 2, "whole"),
    "ilt": Primitive("m_ilt<C>({0}, {1})", 2, "mask"),
    "ile": Primitive("m_ile<C>({0}, {1})", 2, "mask"),
    "ieq": Primitive("m_ieq<C>({0}, {1})", 2, "mask", commutes=True),
    "ine": Primitive("m_ine<C>({0}, {1})", 2, "mask", commutes=True),
    "wrap_u8": Primitive("m_wrap_u8({0})", 1, "whole"),
    "wrap_i8": Primitive("m_wrap_i8({0})", 1, "whole"),
    "wrap_i16": Primitive("m_wrap_i16({0})", 1, "whole"),
    "wrap_i32": Primitive("m_wrap_i32({0})", 1, "whole"),
}

# Dtypes of 8 bits that operands may have, by their short names: storage only. The primitive round_<name> rounds to one.
NARROW = {torch.float8_e4m3fn: "f8", torch.int8: "i8"}
NARROW_NAMES = {str(dtype).removeprefix("torch."): short for dtype, short in NARROW.items()}

# Dtypes of integers, bools among them, that operands and results may have, by their short names.
WHOLE = {
    torch.bool: "b8", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip
# And their types in kernels.
C_TYPES = {
    "b8": "uint8_t",
    "u8": "uint8_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
}
WHOLE_NAMES = {str(dtype).removeprefix("torch."): short for dtype, short in WHOLE.items()}
STORED_NAMES = {**NARROW_NAMES, **WHOLE_NAMES}

MASK_OPERANDS = {
    "and": (0, 1),
    "or": (0, 1),
    "not": (0,),
    "where": (0,),
    "iwhere": (0,),
}  # no others are masks
WHOLE_REDUCTIONS = ("isum", "iprod", "iamax", "iamin")
REDUCTIONS = ("sum", "prod", "amax", "amin", *WHOLE_REDUCTIONS)
# Beside these, pick(value, place) is the value in the column that an integer of the row names, and 0 if there is none.
LEAVES = ("load", "scalar", "const", "iconst", "size", "column")


@dataclass(frozen=True, eq=False)
class Node:
    """One value. ``attr``: a load's or scalar's argument name, a constant's value, an axis (of a reduction, size or column)."""

    op: str
    args: tuple[Node, ...]
    attr: Any
    span: Span
    index: int
    source: Source | None = None
    name: str | None = None

    @property
    def is_reduction(self) -> bool:
        return self.op in REDUCTIONS

    @property
    def is_mask(self) -> bool:
        return self.op in PRIMITIVES and PRIMITIVES[self.op].result == "mask"

    @property
    def is_whole(self) -> bool:
        """Whether it is an integer."""
        if self.op in PRIMITIVES:
            return PRIMITIVES[self.op].result == "whole"
        return self.op == "iconst" or self.op in WHOLE_REDUCTIONS

    def __repr__(self) -> str:
        inner = ", ".join(
            [f"%{a.index}" for a in self.args] + ([repr(self.attr)] if self.attr is not None else [])
        )
        return f"%{self.index}:{self.span.text} = {self.op}({inner})"


@dataclass
class Builder:
    """Makes nodes; equal ones are made once. New nodes pass through ``rules`` (see simplify), if any."""

    rules: Callable[[Builder, str, tuple[Node, ...], Any], Node | None] | None = None
    nodes: dict[tuple[Any, ...], Node] = field(default_factory=dict)
    source: Source | None = None
    name: str | None = None

    def make(self, op: str, *args: Node, attr: Any = None, span: Span | None = None) -> Node:
        if self.rules is not None:
            replaced = self.rules(self, op, args, attr)
            if replaced is not None:
                return replaced
        if op in PRIMITIVES and PRIMITIVES[op].commutes:
            args = tuple(sorted(args, key=lambda n: n.index))
        key = (op, tuple(a.index for a in args), repr(attr), span if op in LEAVES else None)
        if key not in self.nodes:
            self.nodes[key] = Node(
                op, args, attr, self._span(op, args, attr, span), len(self.nodes), self.source, self.name
            )
        return self.nodes[key]

    @staticmethod
    def _span(op: str, args: tuple[Node, ...], attr: Any, span: Span | None) -> Span:
        if op in LEAVES:
            return span if span is not None else Span.NONE
        union = Span.NONE
        for a in args:
            union |= a.span
        return union & ~(attr if op in REDUCTIONS else Span.COLS if op == "pick" else Span.NONE)

    def label(self, node: Node, name: str | None) -> None:
        """Give a node the author's name for it. A label only: equality and results do not depend on it."""
        if name is not None and node.name is None and node.op not in LEAVES:
            object.__setattr__(node, "name", name)

    def const(self, value: float) -> Node:
        return self.make("const", attr=float(value))

    def integer(self, value: int) -> Node:
        return self.make("iconst", attr=int(value))

    def load(self, name: str, span: Span) -> Node:
        return self.make("load", attr=name, span=span)

    def size(self, axis: Span) -> Node:
        return self.make("size", attr=axis)

    def column(self) -> Node:
        """The number of each column, from 0."""
        return self.make("column", attr=Span.COLS, span=Span.COLS)


@dataclass(frozen=True)
class Graph:
    """Named results over the (M, N) space.

    ``narrow``: the loads and results that have another element type than the row operands, by name: "f8", "i32".
    """

    results: dict[str, Node]
    narrow: dict[str, str] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """All nodes, operands before users."""
        return list(walk(self.results.values()))


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node under ``roots``, operands first, each once."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif node.index not in seen:
            seen.add(node.index)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))


def read_whole(roots: Iterable[Node]) -> set[int]:
    """The nodes under ``roots`` of which more than single columns are picked, by index."""
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node.index not in seen:
            seen.add(node.index)
            todo += node.args if node.op != "pick" else node.args[1:]
    return seen


def uses(roots: Iterable[Node]) -> dict[int, int]:
    """How many operands (and results) refer to each node."""
    roots = list(roots)
    count: dict[int, int] = {}
    for root in roots:
        count[root.index] = count.get(root.index, 0) + 1
    for node in walk(roots):
        for a in node.args:
            count[a.index] = count.get(a.index, 0) + 1
    return count


def _takes_whole(op: str) -> bool:
    """Whether the operands of a primitive are integers (other than those that are masks)."""
    return op.startswith(("i", "wrap_")) or op == "to_math"


class VerifyError(AssertionError):
    """The IR breaks one of its own rules: a fault of the generator, never of the author."""


def verify(graph: Graph) -> None:
    """Check arity, spans, kinds of values and reductions of every node."""
    arity = {name: p.spelling.count("{") for name, p in PRIMITIVES.items()}
    for node in graph.nodes():
        if node.op in LEAVES:
            ok = not node.args and node.attr is not None
        elif node.is_reduction:
            ok = (
                len(node.args) == 1
                and node.attr in (Span.ROWS, Span.COLS)
                and bool(node.args[0].span & node.attr)
            )
            ok = ok and not node.args[0].is_mask and node.args[0].is_whole == (node.op in WHOLE_REDUCTIONS)
        elif node.op == "pick":
            ok = len(node.args) == 2 and _is_number(node.args[0]) and _is_of_row(node.args[1])
        elif node.op in PRIMITIVES:
            ok = len(node.args) == arity[node.op]
            wants_mask = MASK_OPERANDS.get(node.op, ())
            ok = ok and all(a.is_mask == (i in wants_mask) for i, a in enumerate(node.args))
            ok = ok and all(
                a.is_whole == _takes_whole(node.op) for i, a in enumerate(node.args) if i not in wants_mask
            )
        else:
            ok = False
        if not ok or node.span != Builder._span(node.op, node.args, node.attr, node.span):
            raise VerifyError(f"malformed node {node!r} from {node.source}")
    for name, node in graph.results.items():
        if node.is_mask:
            raise VerifyError(f"result {name!r} is a mask")


def _is_number(node: Node) -> bool:
    return not node.is_mask and not node.is_whole


def _is_of_row(node: Node) -> bool:
    return node.op == "load" and node.span == Span.ROWS


def evaluate(graph: Graph, values: dict[str, torch.Tensor], rows: int, cols: int) -> dict[str, torch.Tensor]:
    """Compute the graph with torch: loads as (rows, cols), (rows, 1), (1, cols) or (1, 1) tensors. For tests."""
    done: dict[int, torch.Tensor] = {}
    some = next(iter(values.values()))
    for node in graph.nodes():
        args = [done[a.index] for a in node.args]
        if node.op in ("load", "scalar"):
            value = values[node.attr]
        elif node.op == "const":
            value = torch.full((1, 1), node.attr, dtype=some.dtype)
        elif node.op == "iconst":
            value = torch.full((1, 1), node.attr)
        elif node.op == "size":
            value = torch.full((1, 1), float(rows if node.attr == Span.ROWS else cols), dtype=some.dtype)
        elif node.op == "column":
            value = torch.arange(cols).reshape(1, cols)
        elif node.is_reduction:
            dim = 0 if node.attr == Span.ROWS else 1
            value = getattr(torch, node.op.removeprefix("i"))(args[0], dim, keepdim=True)
        elif node.op == "pick":
            value, place = args[0].expand(rows, cols), args[1].long()
            inside = (place >= 0) & (place < cols)
            value = torch.where(inside, value.gather(1, place.clamp(0, cols - 1)), 0.0)
        else:
            value = TORCH[node.op](*args)
        done[node.index] = value
    return {name: done[node.index] for name, node in graph.results.items()}


def is_const(node: Node, value: float | None = None) -> bool:
    """Whether the node is a constant (of that value; the sign of zero counts)."""
    if node.op != "const":
        return False
    return value is None or (node.attr == value and math.copysign(1, node.attr) == math.copysign(1, value))
