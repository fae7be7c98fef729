"""From one record to its cases: which graph computes what, what the forward saves, what the backward returns.

A case is one combination of present optional tensors, string choices and (backward) wanted gradients.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..definitions.record import OpDef
from .ir import NARROW_NAMES, STORED_NAMES, WHOLE_NAMES, Builder, Graph, Node, Span, is_const, verify, walk
from .lower import lower
from .simplify import (
    contract,
    keep_means_in_range,
    local_rules,
    pick_columns,
    rebuild,
    regroup_powers,
    split_sums,
)
from .trace import Operand, Packed, TraceError, trace


@dataclass(frozen=True)
class Argument:
    """One argument of a schema. ``kind``: tensor, ints, int, float, str or mask.

    ``parts``: the operands that a packed tensor consists of. ``choices``: the values of a string, or the dtypes of a tensor that
    has not that of the row operands, by which cases differ. ``exact``: of integers or bools the dtype, if their math is torch's.
    """

    name: str
    kind: str
    optional: bool = False
    span: Span = Span.NONE
    choices: tuple[str, ...] = ()
    length: int = 0
    parts: tuple[str, ...] = ()
    integer: bool = False
    exact: torch.dtype | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """The names under which graphs know it."""
        return self.parts or (self.name,)


def is_incoming_gradient(name: str) -> bool:
    """Whether an argument of a backward op is the gradient of a result."""
    return name == "grad" or name.startswith("grad_")


@dataclass(frozen=True)
class Case:
    """One combination of a call's selecting arguments and the graph that serves it.

    ``graph`` has the results named in ``computed``; ``returned`` says which returns of the op exist in this case.
    """

    key: tuple[int, ...]
    name: str
    graph: Graph
    returned: tuple[bool, ...]


@dataclass(frozen=True)
class Return:
    """One return of an op.

    ``dtype``: "a|b", what the arguments a and b promote to; or a string argument that names it; or its name; or "compute".
    """

    name: str
    span: Span
    dtype: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Op:
    """One torch op: public, forward or backward."""

    name: str
    schema: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]
    primary: int
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that the registry and the emitters need to know of one operator."""

    record: OpDef
    ops: tuple[Op, ...]
    differentiable: tuple[str, ...] = ()
    saved: tuple[tuple[str, str | int], ...] = ()  # ("arg", name) or ("return", index of the forward op)
    gradients: dict[str, int] = field(default_factory=dict)
    detaches: bool = False  # and its results depend on what is detached


def parse_schema(record: OpDef) -> tuple[Argument, ...]:
    """The arguments of a record's schema.

    Raises:
        ValueError: a type that records may not use.
    """
    schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}")
    arguments = []
    for a in schema.arguments:
        text = re.sub(r"\[\]", "[]", str(a.type))
        optional = text.startswith("Optional[")
        text = text.removeprefix("Optional[").removesuffix("]") if optional else text
        kind = {"Tensor": "tensor", "List[int]": "ints", "int": "int", "float": "float", "str": "str"}.get(
            text
        )
        if kind is None:
            raise ValueError(
                f"{record.name}: argument {a.name} has type {text}, which records do not support"
            )
        span = Span.parse(record.spans.get(a.name, "MN")) if kind == "tensor" else Span.NONE
        whole = record.whole or {}
        exact = None
        if a.name in whole:
            exact = getattr(torch, whole[a.name])
        elif record.whole is not None and a.name in record.integers:
            exact = torch.int64
        arguments.append(
            Argument(
                a.name,
                kind,
                optional,
                span,
                record.choices.get(a.name, record.stored.get(a.name, ())),
                parts=record.parts.get(a.name, ()),
                integer=a.name in record.integers or a.name in whole,
                exact=exact,
            )
        )
        if a.name in record.integers and span != Span.ROWS:
            raise ValueError(f"{record.name}: the tensor {a.name} of whole numbers must have the span M")
        if a.name in record.narrow and (
            span != Span.BOTH or optional or not {*record.narrow[a.name]} <= {*NARROW_NAMES}
        ):
            raise ValueError(
                f"{record.name}: the tensor {a.name} of 8 bits must have the span MN, and be there"
            )
        if a.name in whole and (span != Span.BOTH or optional or whole[a.name] not in WHOLE_NAMES):
            raise ValueError(
                f"{record.name}: the tensor {a.name} of integers or bools must have the span MN, and be there"
            )
        if kind == "str" and a.name not in record.choices:
            raise ValueError(f"{record.name}: the string argument {a.name} needs its choices")
        for name in (a.name, *record.parts.get(a.name, ())):
            of_backward = name == "mask" or is_incoming_gradient(name)
            if name in record.results or (of_backward and record.differentiation == "kernels"):
                raise ValueError(
                    f"{record.name}: rename the argument {name}: a result or an argument of the backward is called so"
                )
    return tuple(arguments)


@dataclass(frozen=True)
class _Pattern:
    """Present optional tensors and string choices of one forward case."""

    present: dict[str, bool]
    chosen: dict[str, str]

    def suffix(self, record: OpDef) -> str:
        parts = [n for n, there in self.present.items() if there]
        parts += [c for n, c in self.chosen.items() if c != {**record.stored, **record.choices}[n][0]]
        return "".join(f"_{p}" for p in parts)


def _patterns(arguments: Sequence[Argument]) -> list[_Pattern]:
    optional = [a.name for a in arguments if a.kind == "tensor" and a.optional]
    strings = [a for a in arguments if a.choices]
    return [
        _Pattern(
            dict(zip(optional, bits, strict=True)), dict(zip((s.name for s in strings), chosen, strict=True))
        )
        for bits in itertools.product((False, True), repeat=len(optional))
        for chosen in itertools.product(*(s.choices for s in strings))
    ]


def _joint(
    record: OpDef, arguments: Sequence[Argument], pattern: _Pattern, grads: Sequence[str], builder: Builder
) -> tuple[Graph, bool]:
    """Results and gradients of one pattern in normal form, before anything is cut; and whether gradients end somewhere."""
    tensors = [a for a in arguments if a.kind == "tensor" and pattern.present.get(a.name, True)]
    scalars = [a.name for a in arguments if _is_scalar(record, a)]

    def call(by_name: dict[str, torch.Tensor], numbers: dict[str, torch.Tensor], cols: Any) -> Any:
        packed = {
            a.name: Packed(a.name, [by_name[p] for p in a.parts], record.interleaved)
            for a in tensors
            if a.parts
        }
        return record.definition(
            **_keywords(record, arguments, pattern, {**by_name, **packed}, numbers, cols)
        )

    gradient = record.gradient
    stated = None
    if gradient is not None:
        fixed = _keywords(record, arguments, pattern, {}, {}, 0)

        def stated(g: Any, a: Any, r: Any) -> dict[str, torch.Tensor]:
            assert gradient is not None
            return gradient(g, {**fixed, **a}, r)

    try:
        traced = trace(
            call,
            [Operand(name, a.span, a.integer, exact=a.exact) for a in tensors for name in a.operands],
            scalars,
            record.values,
            differentiable=[name for a in tensors if not a.integer for name in a.operands],
            grads=grads,
            gradient=stated,
            whole=[r for r, dtype in record.dtypes.items() if _is_exact(record, dtype)],
        )
        graph = lower(traced, builder, exact=record.whole is not None)
        # The columns of a run are no places in a tensor.
        integers = record.integers if record.columns.rule != "groups" else ()
        return pick_columns(builder, graph, integers), traced.detaches
    except TraceError as error:
        raise _located(record, error) from error


def _is_exact(record: OpDef, dtype: str) -> bool:
    """Whether a result of that dtype is of integers or bools that are exact."""
    return record.whole is not None and dtype in WHOLE_NAMES


def _located(record: OpDef, error: TraceError) -> TraceError:
    """The same error, with the author's file and line also where no single line is at fault."""
    code = getattr(inspect.unwrap(record.definition), "__code__", None)
    if code is None or code.co_filename in str(error):
        return error
    return TraceError(f"{code.co_filename}:{code.co_firstlineno}: {error}")


def _is_scalar(record: OpDef, a: Argument) -> bool:
    """Whether kernels take the argument as a number. The int that names the column dim is none."""
    return a.kind == "float" or (a.kind == "int" and a.name != record.columns.arg)


def _keywords(
    record: OpDef,
    arguments: Sequence[Argument],
    pattern: _Pattern,
    tensors: dict[str, Any],
    numbers: dict[str, Any],
    cols: Any,
) -> dict[str, Any]:
    """The definition's keyword arguments in the canonical (rows, columns) call."""
    # The canonical call of groups: one group of as many channels as there are columns, each of one position.
    fixed = {"ints": [cols], "int": 1 if record.columns.rule == "groups" else -1}
    values: dict[str, Any] = {}
    for a in arguments:
        if a.kind == "tensor":
            values[a.name] = tensors.get(a.name)
        elif _is_scalar(record, a):
            values[a.name] = numbers.get(a.name)
        else:
            values[a.name] = pattern.chosen[a.name] if a.kind == "str" else fixed[a.kind]
    return values


def _select_key(
    arguments: Sequence[Argument], pattern: _Pattern, mask: Sequence[bool] = ()
) -> tuple[int, ...]:
    key: list[int] = []
    for a in arguments:
        if a.kind == "tensor" and a.optional:
            key.append(int(pattern.present[a.name]))
        elif a.choices:
            key.append(a.choices.index(pattern.chosen[a.name]))
        elif a.kind == "mask":
            key.extend(int(m) for m in mask)
    return tuple(key)


@dataclass
class _Cut:
    """Splits a joint graph: what the gradients need of the forward becomes loads of saved values.

    Saved are inputs, results, and values of one number a row; anything as large as the input is computed again.
    """

    builder: Builder
    forward: dict[int, Node]
    results: dict[int, str]
    names: dict[str, str]  # signature of a statistic -> its name; shared by all cuts of one pattern
    statistics: dict[int, str] = field(default_factory=dict)

    def load_for(self, node: Node, args: tuple[Node, ...]) -> Node | None:
        if node.index not in self.forward or node.op in ("load", "scalar", "const", "size"):
            return None
        if node.is_whole:  # computed again: what is saved has the dtype of the math
            return None
        if node.index in self.results and node.span == Span.BOTH:
            return self.builder.load(self.results[node.index], Span.BOTH)
        if node.op == "round_result":
            return self.builder.load(node.attr, Span.BOTH)
        if node.span == Span.ROWS and not node.is_mask:
            if node.index not in self.statistics:
                text = signature(Graph({"": node}))
                arguments = {n.attr for n in self.forward.values() if n.op in ("load", "scalar")}
                taken = {*self.names.values(), *self.results.values(), *arguments, "grad", "mask"}
                name = self.names.get(text) or node.name or f"statistic{len(self.names)}"
                while text not in self.names and name in taken:
                    name += "_"
                self.statistics[node.index] = self.names[text] = name
            return self.builder.load(self.statistics[node.index], Span.ROWS)
        return None

    def backward(self, gradients: dict[str, Node]) -> Graph:
        new: dict[int, Node] = {}

        def visit(node: Node) -> Node:
            if node.index not in new:
                loaded = self.load_for(node, ())
                if loaded is None:
                    args = tuple(visit(a) for a in node.args)
                    self.builder.source, self.builder.name = node.source, node.name
                    loaded = node if args == node.args else self.builder.make(
                        node.op, *args, attr=node.attr, span=node.span
                    )  # fmt: skip
                new[node.index] = loaded
            return new[node.index]

        return Graph({name: visit(node) for name, node in gradients.items()})

    def needless(self, backward: Graph) -> set[str]:
        """Results that a backward loads beside all that they are computed of, element by element.

        Computed again they cost some instructions, loaded a quarter of the bytes (``sigmoid``: its result, its input and
        the gradient are read, one gradient is written).
        """
        loads = {n.attr for n in backward.nodes() if n.op == "load"}
        found = set()
        for index, name in self.results.items():
            below = list(walk([self.forward[index]]))
            inputs = {n.attr for n in below if n.op == "load"}
            if (
                name in loads
                and inputs <= loads
                and not any(n.is_reduction or n.op == "round_result" for n in below)
            ):
                found.add(name)
        return found


@dataclass(frozen=True)
class _Derived:
    """One pattern with one set of incoming gradients."""

    pattern: _Pattern
    grads: tuple[str, ...]
    builder: Builder
    forward: Graph
    statistics: dict[str, Node]
    backward: Graph
    detaches: bool


def _derive(
    record: OpDef,
    arguments: Sequence[Argument],
    pattern: _Pattern,
    grads: tuple[str, ...],
    names: dict[str, str],
) -> _Derived:
    b = Builder(rules=local_rules)
    values = [v for r in grads for v in record.parts.get(r, (r,))]
    joint, detaches = _joint(record, arguments, pattern, values, b)
    joint = _round_shared_results(b, joint, record.values)
    results = {n: node for n, node in joint.results.items() if n in record.values}
    forward_nodes = {n.index: n for n in walk(results.values())}
    known = frozenset(i for i, n in forward_nodes.items() if n.span == Span.ROWS)
    joint = Graph(
        {
            **results,
            **split_sums(
                b, Graph({n: v for n, v in joint.results.items() if n not in results}), known, finite=True
            ).results,
        }
    )
    gradients = {n: v for n, v in joint.results.items() if n not in results}
    cut = _Cut(b, forward_nodes, {node.index: name for name, node in results.items()}, names)
    backward = cut.backward(gradients)
    if spared := cut.needless(backward):
        kept = {node.index: name for name, node in results.items() if name not in spared}
        cut = _Cut(b, forward_nodes, kept, names)
        backward = cut.backward(gradients)
    statistics = {name: forward_nodes[index] for index, name in cut.statistics.items()}
    return _Derived(pattern, grads, b, Graph(results), statistics, backward, detaches)


def _round_shared_results(b: Builder, joint: Graph, names: Sequence[str]) -> Graph:
    """Let whatever else uses a result of the input's size see it as it is stored, rounded to its dtype.

    So ``y`` of ``add_layer_norm`` is the layer norm of ``residual_out``, in the backward too, which loads it: where a row varies
    little about a large mean, statistics of the unrounded values would not fit the rounded ones.
    """
    shared = {}
    for name in names:
        node = joint.results[name]
        others = [v for n, v in joint.results.items() if n in names and v is not node]
        if (
            node.span == Span.BOTH
            and node.op != "load"
            and not node.is_whole
            and any(n is node for n in walk(others))
        ):
            shared[node.index] = name
    if not shared:
        return joint

    def change(node: Node, args: tuple[Node, ...]) -> Node | None:
        if not any(a.index in shared for a in node.args):
            return None
        b.source, b.name = node.source, node.name
        rounded = [
            b.make("round_result", new, attr=shared[old.index]) if old.index in shared else new
            for old, new in zip(node.args, args, strict=True)
        ]
        return b.make(node.op, *rounded, attr=node.attr, span=node.span)

    return rebuild(b, joint, change)


def _case_graph(
    b: Builder,
    results: dict[str, Node],
    narrow: dict[str, str] | None = None,
    statistics: Collection[str] = (),
) -> Graph:
    """The graph of one case.

    ``narrow``: its loads and results of dtypes of their own; a result is rounded where it is stored. ``statistics``: results that
    are none of the author's.
    """
    narrow = narrow or {}
    rounded = {n for n, v in results.items() if n in narrow and v.op == f"round_{narrow[n]}"}
    results = {n: v.args[0] if n in rounded else v for n, v in results.items()}
    graph = contract(b, regroup_powers(b, split_sums(b, Graph(results))))
    graph = keep_means_in_range(b, graph, statistics)
    there = {*graph.results, *(n.attr for n in graph.nodes() if n.op == "load")}
    graph = Graph(graph.results, {n: short for n, short in narrow.items() if n in there})
    verify(graph)
    return graph


def _narrow_of(arguments: Sequence[Argument], pattern: _Pattern, dtype_of: dict[str, str]) -> dict[str, str]:
    """The arguments and results of dtypes of their own in one pattern, by name, and the short names of their dtypes."""
    named = {a.name: pattern.chosen[a.name] for a in arguments if a.kind == "tensor" and a.choices}
    named |= {r: pattern.chosen.get(dtype, dtype) for r, dtype in dtype_of.items()}
    return {name: STORED_NAMES[dtype] for name, dtype in named.items() if dtype in STORED_NAMES}


def _check_normal_form(
    record: OpDef, tensors: Sequence[Argument], derived: Iterable[_Derived], differentiate: bool
) -> None:
    """Refuse what no schedule serves yet, all of it in one message with the author's lines.

    Raises:
        TraceError: a result or gradient of one number, or a reduction over the rows other than a sum that is a result.
    """
    problems = [
        f"the argument {a.name} is a tensor of one number, whose gradient no kernel adds up; make it a float, or give it the "
        "shape of the rows or columns"
        for a in tensors if a.span == Span.NONE and differentiate
    ]  # fmt: skip
    for d in derived:
        for name, node in d.forward.results.items():
            if node.span == Span.COLS and not node.is_reduction:
                problems.append(
                    f"{node.source}: the result {name} does not vary along the rows and is not a sum over them; compute it outside"
                )
        for a in tensors:
            for name in a.operands:
                gradient = d.backward.results.get(f"grad_{name}")
                if gradient is not None and gradient.span & ~a.span:
                    axis = "rows" if gradient.span & ~a.span & Span.ROWS else "columns"
                    problems.append(
                        f"{gradient.source}: the gradient of {name} varies along the {axis}, {name} does not: sum it over them"
                    )
        if any(not a.optional and a.span == Span.BOTH for a in tensors):
            whole = {**d.forward.results, **d.backward.results}
            for node in walk(whole.values()):
                plain = node.op == "sum" and any(node is v for v in whole.values())
                inside = any(node is not user and node in user.args for user in walk(whole.values()))
                if node.is_reduction and node.attr == Span.ROWS and (inside or not plain):
                    problems.append(
                        f"{node.source}: {node.op} over the rows is used further or is not a sum; a kernel can only return "
                        "sums over the rows: reduce the columns, or do this step outside"
                    )
        else:
            problems.append("no argument has the shape of the whole call (rows, columns)")
    if problems:
        raise _located(
            record,
            TraceError(f"{record.name} cannot become a kernel:\n  " + "\n  ".join(dict.fromkeys(problems))),
        )


def pointwise_graph(record: OpDef) -> Graph:
    """The graph of a pointwise record that has one pattern and no gradients. A result that others use is not rounded for them.

    Raises:
        TraceError: the definition cannot become a kernel.
    """
    arguments = parse_schema(record)
    (pattern,) = _patterns(arguments)
    builder = Builder(rules=local_rules)
    joint, _ = _joint(record, arguments, pattern, (), builder)
    graph = _case_graph(builder, joint.results)
    knows_place = [n for n in graph.nodes() if n.is_reduction or n.op in ("size", "column", "pick")]
    if knows_place:
        raise _located(
            record,
            TraceError(
                f"{knows_place[0].source}: {record.name} must treat each element alone, without {knows_place[0].op}"
            ),
        )
    return graph


def make_plan(record: OpDef, differentiate: bool = True) -> Plan:
    """Trace, derive and cut every pattern of one record.

    There is no backward op without ``differentiate``, nor where the record wants none.

    Raises:
        TraceError: the definition cannot become a kernel (file, line, reason and way out in the message).
    """
    differentiate = differentiate and record.differentiation == "kernels"
    arguments = parse_schema(record)
    tensors = [a for a in arguments if a.kind == "tensor"]
    patterns = _patterns(arguments)
    real = [r for r in record.results if not _is_exact(record, record.dtypes.get(r, ""))]
    grad_sets = [
        tuple(n for n, there in zip(real, bits, strict=True) if there)
        for bits in itertools.product((True, False), repeat=len(real))
        if any(bits)
    ]
    if len(real) > (2 if record.packaged else 1):
        # The kernels of every subset would be many: autograd makes zeros of what is missing.
        grad_sets = grad_sets[:1]
    if not differentiate:
        grad_sets = [()]
    names_of: list[dict[str, str]] = [{} for _ in patterns]
    derived = {
        (i, g): _derive(record, arguments, p, g, names_of[i])
        for i, p in enumerate(patterns)
        for g in grad_sets
    }
    _check_normal_form(record, tensors, derived.values(), differentiate)

    # What any case needs is saved in all of them: one schema serves every case.
    statistics: list[str] = []
    needed: set[str] = set()
    for d in derived.values():
        statistics += [s for s in d.statistics if s not in statistics]
        loads = {n.attr for n in d.backward.nodes() if n.op == "load"}
        needed |= loads | {a.name for a in tensors if loads & {*a.parts}}
    operands_of = {a.name: a.operands for a in tensors}
    differentiable = tuple(
        a.name
        for a in tensors
        if not a.integer and any(_differs_from_zero(d, a.operands) for d in derived.values())
    )
    differentiable = differentiable or (tensors[0].name,)
    saved_results = [r for r in record.results if r in needed]
    dtype_of = {r: record.dtypes.get(r, tensors[0].name) for r in record.results}  # or "compute"
    first = derived[0, grad_sets[0]]
    span_of = {r: first.forward.results[record.parts.get(r, (r,))[0]].span for r in record.results}
    if set(record.parts) & set(record.results) and needed & set(record.values):
        raise ValueError(
            f"{record.name}: the backward needs a packed result; state the gradient by the arguments"
        )
    # Gradients that are one value in every case are returned once.
    groups: list[list[str]] = []
    for name in differentiable:
        for group in groups:
            if all(_same(d, operands_of[name], operands_of[group[0]]) for d in derived.values()):
                group.append(name)
                break
        else:
            groups.append([name])
    # A tensor is also saved where nothing else in the backward has the dtype of its gradient, or the shape of the call.
    needed |= {g[0] for g in groups if not {*g} & {*needed, *dtype_of.values()}}
    saved_args = [a for a in tensors if a.name in needed or a.span != Span.BOTH]
    whole = [a for a in saved_args if a.span == Span.BOTH and not a.parts] + [
        r for r in saved_results if span_of[r] == Span.BOTH
    ]
    if not whole and not (len(record.results) == 1 and span_of[record.results[0]] == Span.BOTH):
        saved_args = [a for a in tensors if a in saved_args or a is tensors[0]]

    returns = tuple(Return(r, span_of[r], dtype_of[r], record.parts.get(r, ())) for r in record.results)
    stat_returns = tuple(Return(s, Span.ROWS, "compute") for s in statistics)
    public_cases, forward_cases = [], []
    for i, pattern in enumerate(patterns):
        d = derived[i, grad_sets[0]]
        named = {
            names_of[i].get(signature(Graph({"": n}))): n
            for n in walk(d.forward.results.values())
            if n.span == Span.ROWS
        }
        own = {
            s: named.get(s, d.builder.const(0.0)) for s in statistics
        }  # 0 where this pattern does without it
        graph = _case_graph(
            d.builder, {**d.forward.results, **own}, _narrow_of(arguments, pattern, dtype_of), own
        )
        name = f"{record.name}_forward{pattern.suffix(record)}"
        key = _select_key(arguments, pattern)
        public_cases.append(Case(key, name, graph, (True,) * len(returns)))
        forward_cases.append(Case(key, name, graph, (True,) * (len(returns) + len(stat_returns))))
    primary = arguments.index(tensors[0])
    public = Op(
        record.name, f"{record.name}{record.schema}", arguments, returns, primary, tuple(_share(public_cases))
    )
    forward = Op(
        f"{record.name}_forward",
        f"{record.name}_forward{_with_returns(record.schema, [r.name for r in (*returns, *stat_returns)])}",
        arguments,
        (*returns, *stat_returns),
        primary,
        tuple(_share(forward_cases)),
    )
    if not differentiate:
        return Plan(record, (public, forward))

    several = len(record.results) > 1
    grad_arguments = [
        Argument(
            f"grad_{r}" if several else "grad",
            "tensor",
            len(grad_sets) > 1,
            ret.span,
            parts=tuple(f"grad_{p}" for p in ret.parts),
        )
        for r, ret in zip(real, returns, strict=False)  # integers come last
    ]
    saved = [
        *saved_args,
        *(Argument(r, "tensor", False, span_of[r]) for r in saved_results),
        *(Argument(s, "tensor", False, Span.ROWS) for s in statistics),
    ]
    plain = [a for a in arguments if a.kind != "tensor"]
    gradients = {a: i for i, group in enumerate(groups) for a in group}
    mask = Argument("mask", "mask", length=len(groups))
    backward_arguments = (*grad_arguments, *saved, *plain, mask)
    names = {a.name for a in backward_arguments}
    candidates = [a for a in (*saved, *grad_arguments) if a.span == Span.BOTH and not a.optional]
    # Not a packed one, for its parts have the shape of the call; but what is no part of a packed call may broadcast to it.
    may_broadcast = {a.name for a in tensors if tensors[0].parts and not a.parts}
    primary_name = min(candidates, key=lambda a: 2 if a.name in may_broadcast else bool(a.parts)).name

    def of_its_dtype(name: str) -> str | None:
        """An argument of the backward that has the dtype of a tensor of the forward."""
        if name in names:
            return name
        results = [r for r, source in dtype_of.items() if source == name]
        known = [r for r in results if r in names] or [f"grad_{r}" if several else "grad" for r in results]
        return known[0] if known else None

    def grad_dtype(group: list[str]) -> str:
        # The autograd engine rounds a gradient that several tensors share to the dtype of each.
        found = [of_its_dtype(name) for name in group]
        return "|".join(dict.fromkeys(n for n in found if n)) if all(found) else "compute"

    spans = {a.name: a.span for a in tensors}
    parts = {a.name: tuple(f"grad_{p}" for p in a.parts) for a in tensors}
    backward_returns = tuple(Return(f"grad_{g[0]}", spans[g[0]], grad_dtype(g), parts[g[0]]) for g in groups)
    backward_cases = []
    # A kernel for each subset of many gradients would be too many: of those that vary along the rows then the first comes
    # alone, or all do.
    of_rows = [spans[g[0]] != Span.COLS for g in groups]
    together = sum(of_rows) > (2 if record.packaged else 1)
    first_alone = [row and i == of_rows.index(True) for i, row in enumerate(of_rows)]
    for (_, grads), d in derived.items():
        pattern = _Pattern(
            {
                **{g.name: (r in grads) for g, r in zip(grad_arguments, real, strict=True) if several},
                **d.pattern.present,
            },
            d.pattern.chosen,
        )
        for bits in itertools.product((False, True), repeat=len(groups)):
            there = [_differs_from_zero(d, operands_of[g[0]]) for g in groups]
            wanted = list(bits)
            asked = [bit and row for bit, row in zip(bits, of_rows, strict=True)]
            if together and any(asked) and asked != first_alone:
                wanted = [bit or row for bit, row in zip(bits, of_rows, strict=True)]
            exists = [bit and some for bit, some in zip(wanted, there, strict=True)]
            computed = _computed(exists, backward_returns, there)
            results = {
                f"grad_{name}": d.backward.results[f"grad_{name}"]
                for g, c in zip(groups, computed, strict=True)
                if c
                for name in operands_of[g[0]]
            }
            everything = all(c or not some for c, some in zip(computed, there, strict=True))
            name = f"{record.name}_backward{d.pattern.suffix(record)}"
            name += "" if grads == tuple(real) else "".join(f"_from_{g}" for g in grads)
            name += (
                ""
                if everything
                else "_to" + "".join(f"_{g[0]}" for g, c in zip(groups, computed, strict=True) if c)
            )
            graph = _case_graph(
                d.builder,
                _rename_grads(d.builder, results, several or bool(grad_arguments[0].parts)),
                _narrow_of(arguments, d.pattern, {}),
            )
            backward_cases.append(
                Case(_select_key(backward_arguments, pattern, bits), name, graph, tuple(exists))
            )
    backward_cases = _share(backward_cases)
    schema = ", ".join(_declare(a) for a in backward_arguments)
    results_text = ", ".join("Tensor?" for _ in groups)
    backward = Op(
        f"{record.name}_backward",
        f"{record.name}_backward({schema}) -> {results_text if len(groups) == 1 else f'({results_text})'}",
        backward_arguments,
        backward_returns,
        backward_arguments.index(next(a for a in backward_arguments if a.name == primary_name)),
        tuple(backward_cases),
    )
    saved_from: list[tuple[str, str | int]] = [("arg", a.name) for a in saved_args]
    order = [r.name for r in forward.returns]
    saved_from += [("return", order.index(n)) for n in (*saved_results, *statistics)]
    detaches = not record.invariant and any(d.detaches for d in derived.values())
    return Plan(record, (public, forward, backward), differentiable, tuple(saved_from), gradients, detaches)


def _share(cases: Sequence[Case]) -> list[Case]:
    """Cases with the same graph share one kernel, under the shortest of their names."""
    shortest: dict[str, str] = {}
    for case in cases:
        text = signature(case.graph)
        shortest[text] = min(shortest.get(text, case.name), case.name, key=lambda n: (len(n), n))
    return [replace(c, name=shortest[signature(c.graph)]) for c in cases]


def signature(graph: Graph) -> str:
    """A text that is equal for graphs that compute the same."""
    number: dict[int, int] = {}
    lines = []
    for node in graph.nodes():
        number[node.index] = len(number)
        lines.append(f"{node.op} {[number[a.index] for a in node.args]} {node.attr!r} {node.span!r}")
    narrow = (f"{n} {short}" for n, short in sorted(graph.narrow.items()))
    return "\n".join([*lines, *(f"{n} {number[v.index]}" for n, v in graph.results.items()), *narrow])


def _rename_grads(b: Builder, results: dict[str, Node], several: bool) -> dict[str, Node]:
    """Loads of the only incoming gradient are called "grad", as the backward's argument is."""
    if several:
        return results
    new: dict[int, Node] = {}
    for node in walk(results.values()):
        args = tuple(new[a.index] for a in node.args)
        b.source, b.name = node.source, node.name
        if node.op == "load" and str(node.attr).startswith("grad_"):
            new[node.index] = b.load("grad", node.span)
        else:
            new[node.index] = (
                node if args == node.args else b.make(node.op, *args, attr=node.attr, span=node.span)
            )
    b.source = b.name = None
    return {name: new[node.index] for name, node in results.items()}


def _computed(exists: list[bool], returns: tuple[Return, ...], there: list[bool]) -> list[bool]:
    """Which gradients a kernel computes: column sums come all together, so that there are fewer kernels."""
    sums = any(e and r.span == Span.COLS for e, r in zip(exists, returns, strict=True))
    return [
        e or (sums and r.span == Span.COLS and some)
        for e, r, some in zip(exists, returns, there, strict=True)
    ]


def _differs_from_zero(d: _Derived, operands: Sequence[str]) -> bool:
    """Whether there is a gradient at all: none for an absent tensor, nor where no used result depends on it.

    Raises:
        TraceError: there is one for a part of the operands alone.
    """
    gradients = [d.backward.results.get(f"grad_{name}") for name in operands]
    there = [gradient is not None and not is_const(gradient, 0.0) for gradient in gradients]
    if any(there) != all(there):
        raise TraceError(
            f"no result depends on {operands[there.index(False)]}; leave it out, or pass it apart"
        )
    return all(there)


def _same(d: _Derived, a: Sequence[str], b: Sequence[str]) -> bool:
    grads = d.backward.results
    return len(a) == len(b) and all(
        f"grad_{x}" in grads and f"grad_{y}" in grads and grads[f"grad_{x}"] is grads[f"grad_{y}"]
        for x, y in zip(a, b, strict=True)
    )


def _declare(a: Argument) -> str:
    kind = {
        "tensor": "Tensor",
        "ints": "SymInt[]",
        "int": "int",
        "float": "float",
        "str": "str",
        "mask": "bool[]",
    }[a.kind]
    return f"{kind}{'?' if a.optional else ''} {a.name}"


def _with_returns(schema: str, names: Sequence[str]) -> str:
    head = schema.rsplit("->", 1)[0]
    if len(names) == 1:
        return f"{head}-> Tensor"
    return f"{head}-> ({', '.join(f'Tensor {n}' for n in names)})"
