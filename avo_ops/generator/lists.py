"""Operators over lists of tensors: what the elements of a tensor share is computed once, in double, and then each element.

The step of one tensor is split in two. Its *numbers* depend on numbers alone: in C++ a function of their own, for the CPU
and in the CUDA kernel, where one thread of a block calls it. Its *elements* are a pointwise kernel whose scalars these are: for
the CPU one as every other, for CUDA a ``Step`` of csrc/device/list.cuh.

A number of all elements comes from sums, one for each chunk of a tensor, in float64: for the CPU by a kernel of a row, for CUDA by
csrc/device/list_sum.cuh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..definitions.lists import ListDef, ListReduction, OverLists
from . import emit_cpu
from .ir import PRIMITIVES, Builder, Graph, Node, Span, verify
from .plan import Case, pointwise_graph
from .product import CpuKernel
from .render import Body, Names, formula_comment, identifier, summand

Json = dict[str, Any]

_ARRAYS = {"given", "found", "number"}  # what the functions of a step are given, by these names


@dataclass(frozen=True)
class Split:
    """The two parts of a step. ``shared``: what elements need of the numbers, by the name of their scalar; masks are 0 or 1."""

    given: tuple[str, ...]
    shared: dict[str, Node]
    elements: Graph


@dataclass(frozen=True)
class GeneratedList:
    """One operator over lists: its entry of the plan, its CUDA source, its kernels for the CPU."""

    record: OverLists
    entry: Json
    cuda: str
    cpu: tuple[CpuKernel, ...]


def generate_list(record: OverLists) -> GeneratedList:
    """Everything that one record becomes.

    Raises:
        TraceError: the definition cannot become a kernel.
        ValueError: the record contradicts its schema.
    """
    if isinstance(record, ListReduction):
        return _generate_reduction(record)
    assert isinstance(record, ListDef)
    return _generate_step(record)


def _generate_step(record: ListDef) -> GeneratedList:
    _check(record)
    split = split_step(record, pointwise_graph(record.step))
    numbers = _cpu_numbers(record, split)
    elements = emit_cpu.emit(record.step, Case((), f"{_stem(record)}_elements", split.elements, (True,)))
    assert elements is not None
    scalars = [list(split.shared).index(name) for name in elements.description["scalars"]]
    operand_of = {v: k for k, v in record.elements.items()} | _results(record)
    entry = {
        "name": record.name,
        "definition": record.definition_name,
        "overloads": record.overloads,
        "arguments": [_argument(record, a) for a in record.arguments],
        "shared": len(split.shared),
        "reduces": False,
        "cpu": {
            "numbers": numbers.symbol,
            "elements": elements.symbol,
            # The operands of the kernel as lists of the schema, and its scalars as numbers that the other has found.
            "operands": [operand_of[name] for name in elements.description["operands"]],
            "scalars": scalars,
            "buffers": elements.description["buffers"],
        },
    }
    return GeneratedList(record, entry, _cuda_text(record, split), (numbers, elements))


def _generate_reduction(record: ListReduction) -> GeneratedList:
    (argument,) = record.arguments
    if str(argument.type) != "List[Tensor]":
        raise ValueError(f"{record.name}: its one argument must be a list of tensors")
    value = pointwise_graph(record.element).results["value"]
    builder = Builder()
    (summed,) = _rebuilt(builder, [value])
    total = Graph({"total": builder.make("sum", summed, attr=Span.COLS)})
    verify(total)
    finished = pointwise_graph(record.of_sum).results["value"]
    (number,) = _rebuilt(Builder(), [finished], as_number=True)
    split = Split(("total",), {"result": number}, total)
    numbers = _cpu_numbers(record, split)
    element = record.element
    elements = emit_cpu.emit(element, Case((), f"{_stem(record)}_elements", total, (True,)))
    assert elements is not None
    entry = {
        "name": record.name,
        "definition": record.definition_name,
        "overloads": record.overloads,
        "arguments": [{"name": argument.name, "kind": "tensors"}],
        "shared": 1,
        "reduces": True,
        "cpu": {
            "numbers": numbers.symbol,
            "elements": elements.symbol,
            "operands": [argument.name],
            "scalars": [],
            "buffers": elements.description["buffers"],
        },
    }
    return GeneratedList(record, entry, _sum_text(record, split, total), (numbers, elements))


def _rebuilt(builder: Builder, roots: Sequence[Node], *, as_number: bool = False) -> list[Node]:
    """The same nodes by another builder; ``as_number``: of numbers in place of elements."""
    new: dict[int, Node] = {}
    for node in Graph({str(i): root for i, root in enumerate(roots)}).nodes():
        builder.source, builder.name = node.source, node.name
        span = Span.NONE if as_number else node.span
        op = "scalar" if as_number and node.op == "load" else node.op
        new[node.index] = builder.make(op, *(new[a.index] for a in node.args), attr=node.attr, span=span)
    return [new[root.index] for root in roots]


def split_step(record: ListDef, graph: Graph) -> Split:
    """Take what does not vary along the elements out of a step."""
    builder, names = Builder(), Names(set(_ARRAYS))
    for name in (*record.elements.values(), *record.single, *_results(record)):
        names.reserve(identifier(name))
    new: dict[int, Node] = {}
    shared: dict[str, Node] = {}

    def of_number(node: Node) -> Node:
        if node.op == "const":
            return builder.const(node.attr)
        name = next((name for name, other in shared.items() if other is node), None)
        if name is None:
            name = (
                node.attr if node.op == "scalar" else names.of(node) if node.name else f"shared{len(shared)}"
            )
            shared[name] = node
        value = builder.make("scalar", attr=name)
        return builder.make("ne", value, builder.const(0.0)) if node.is_mask else value

    for node in graph.nodes():
        if node.span == Span.NONE:
            continue
        args = [of_number(a) if a.span == Span.NONE else new[a.index] for a in node.args]
        builder.source, builder.name = node.source, node.name
        new[node.index] = builder.make(node.op, *args, attr=node.attr, span=node.span)
        builder.source = builder.name = None
    elements = Graph({name: new[node.index] for name, node in graph.results.items()})
    verify(elements)
    given = (*record.single, *(record.elements[name] for name in record.numbers))
    return Split(given, shared, elements)


def _check(record: ListDef) -> None:
    lists = [a.name for a in record.arguments if str(a.type) == "List[Tensor]"]
    if lists != list(record.elements) or lists != [a.name for a in record.arguments][: len(lists)]:
        raise ValueError(
            f"{record.name}: elements must name the lists of the schema, which stand first: {', '.join(lists)}"
        )
    if not record.written or {*record.written} & {*record.numbers}:
        raise ValueError(f"{record.name}: some lists must be written (a!), and none of numbers")
    optional = [a.name for a in record.arguments if str(a.type) == "Optional[Tensor]"]
    if {*optional} != {*record.absent, *([record.unless] if record.unless else [])}:
        raise ValueError(
            f"{record.name}: each Tensor? must be in absent, or be named by unless: {', '.join(optional)}"
        )


def _stem(record: OverLists) -> str:
    return record.name.rstrip("_")


def _results(record: ListDef) -> dict[str, str]:
    """The list that each result of the step goes to."""
    return dict(zip(record.step.results, record.written, strict=True))


def _argument(record: ListDef, a: Any) -> Json:
    if a.name in record.numbers:
        return {"name": a.name, "kind": "numbers"}
    if a.name in record.elements:
        return {"name": a.name, "kind": "written" if a.name in record.written else "tensors"}
    if a.name == record.unless:
        return {"name": a.name, "kind": "unless"}
    kind = {"float": "float", "bool": "bool", "Optional[Tensor]": "tensor"}.get(str(a.type))
    if kind is None:
        raise ValueError(
            f"{record.name}: argument {a.name} has type {a.type}, which operators over lists do not support"
        )
    return {"name": a.name, "kind": kind, **({"absent": record.absent[a.name]} if kind == "tensor" else {})}


# ---- the numbers ----


def _numbers_body(split: Split) -> list[str]:
    """Statements that fill ``found`` from ``given``."""
    used = {n.attr for n in Graph(split.shared).nodes() if n.op == "scalar"}
    known = {n.index: identifier(n.attr) for n in Graph(split.shared).nodes() if n.op == "scalar"}
    names = Names({identifier(name) for name in split.given} | _ARRAYS)
    lines, values = Body(names, known, "const C", element=False, approximate="").emit(split.shared.values())
    return [
        *(
            f"const C {identifier(name)} = C(given[{i}]);"
            for i, name in enumerate(split.given)
            if name in used
        ),
        *lines,
        *(
            f"found[{i}] = {f'{value} ? C(1) : C(0)' if node.is_mask else value};"
            for i, (node, value) in enumerate(zip(split.shared.values(), values, strict=True))
        ),
    ]


def _cpu_numbers(record: OverLists, split: Split) -> CpuKernel:
    symbol = f"{_stem(record)}_numbers"
    text = [
        *formula_comment(record.formula, record.source),
        "template <class C>",
        f"AVO_KERNEL void {symbol}(AVO_PARAMETERS) {{",
        "  [[maybe_unused]] const double* given = a->scalars;",
        "  C* found = static_cast<C*>(a->partials);",
        *(f"  {line}" for line in _numbers_body(split)),
        "}",
        "",
    ]
    return CpuKernel(symbol, "\n".join(text), {})


# ---- CUDA ----


def _cuda_text(record: ListDef, split: Split) -> str:
    operands = [record.elements[name] for name in record.operands]
    types = [f"T{i}" for i in range(len(operands))]
    place = {name: i for i, name in enumerate(operands)}
    results = {name: record.elements[to] for name, to in _results(record).items()}
    loads = {n.attr for n in split.elements.nodes() if n.op == "load"}
    sizes = {
        "kOperands": len(operands),
        "kGiven": len(record.single),
        "kOfTensor": len(record.numbers),
        "kShared": len(split.shared),
    }
    text = [
        f"// Generated, do not edit. avo::{record.name}: list kernel",
        *formula_comment(record.formula, record.source),
        '#include "device/list.cuh"',
        "",
        "namespace avo {",
        "",
        f"struct {record.name} {{",
        f"  static constexpr int {', '.join(f'{name} = {value}' for name, value in sizes.items())};",
        f"  static constexpr bool kSkips = {str(record.unless is not None).lower()};",
        "",
        f"  // given: {', '.join(split.given)}",
        "  AVO_INLINE static void numbers(const double* given, double* found) {",
        "    using C = double;",
        *(f"    {line}" for line in _numbers_body(split)),
        "  }",
        "",
        f"  template <class C, int V, {', '.join(f'class {t}' for t in types)}>",
        "  AVO_INLINE static void elements(const C* number, const uint64_t* base, int64_t first) {",
        *(
            line if line.startswith("#") else f"    {line}"
            for line in _element_lines(split, place, results, loads)
        ),
        "  }",
        "};",
        "",
        "} // namespace avo",
        "",
    ]
    return "\n".join(text)


def _element_lines(
    split: Split, place: Mapping[str, int], results: Mapping[str, str], loads: set[str]
) -> Sequence[str]:
    nodes = split.elements.nodes()
    names = Names(
        {f"{name}_{what}" for name in (*place, *results) for what in ("ptr", "vec", "out")} | _ARRAYS
    )
    for n in nodes:
        if n.op == "scalar":
            names.reserve(identifier(n.attr))
    known = {n.index: identifier(n.attr) for n in nodes if n.op == "scalar"}
    known |= {n.index: f"C({n.attr}_vec[j])" for n in nodes if n.op == "load"}
    lines, values = Body(names.scope(), known, "const C", approximate="<A>").emit(
        split.elements.results.values()
    )
    out = (
        ["using A = Fine;"] if any(PRIMITIVES[n.op].approximate for n in nodes if n.op in PRIMITIVES) else []
    )
    out += [f"const C {identifier(name)} = number[{i}];" for i, name in enumerate(split.shared)]
    for name, i in place.items():
        out.append(f"T{i}* const {name}_ptr = reinterpret_cast<T{i}*>(base[{i}]) + first;")
    for name, i in place.items():
        if name in loads:
            out += [f"Vec<T{i}, V> {name}_vec;", f"load_list({name}_vec, {name}_ptr);"]
    out.append(f"C {', '.join(f'{name}_out[V]' for name in results)};")
    out += ["#pragma unroll", "for (int j = 0; j < V; ++j) {", *(f"  {line}" for line in lines)]
    out += [f"  {name}_out[j] = {value};" for name, value in zip(results, values, strict=True)]
    out += ["}", *(f"store_list<C>({to}_ptr, {name}_out);" for name, to in results.items())]
    return out


def _sum_text(record: ListReduction, split: Split, graph: Graph) -> str:
    (load,) = [n for n in graph.nodes() if n.op == "load"]
    parts = summand(graph.results["total"], ())
    lines, values = Body(Names({"total", "x"}), {load.index: "x"}, "const C").emit(parts)
    added = f"m_fma({', '.join(values)}, total)" if len(values) > 1 else f"total + {values[0]}"
    text = [
        f"// Generated, do not edit. avo::{record.name}: list kernel",
        *formula_comment(record.formula, record.source),
        '#include "device/list_sum.cuh"',
        "",
        "namespace avo {",
        "",
        f"struct {record.name} {{",
        "  using C = double;",
        "",
        "  AVO_INLINE static C add(C total, C x) {",
        *(f"    {line}" for line in lines),
        f"    return {added};",
        "  }",
        "  AVO_INLINE static void finish(const double* given, double* found) {",
        *(f"    {line}" for line in _numbers_body(split)),
        "  }",
        "};",
        "",
        "} // namespace avo",
        "",
    ]
    return "\n".join(text)
