"""The whole way from a catalogue of records to generated sources, on one screen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .. import plan_file
from ..definitions.lists import OverLists
from ..definitions.record import OpDef
from . import emit_cpu
from .build import list_source
from .emit_cuda import Emitter
from .ir import Graph, Span
from .lists import generate_list
from .plan import Argument, Case, Op, Plan, make_plan, signature
from .product import CpuKernel, Family, index_unit, translation_unit
from .trace import TraceError

Json = dict[str, Any]


@dataclass(frozen=True)
class Generated:
    """The files of ``generated/`` by path, and the families for whoever compiles them."""

    files: dict[str, str]
    families: dict[str, Family]
    plan: Json


@dataclass(frozen=True)
class GeneratedOperator:
    """One operator: its entry of the plan, its CUDA families by name, its kernels for the CPU."""

    plan: Plan
    operator: Json
    families: dict[str, Family]
    cpu: tuple[CpuKernel, ...]
    cuda: Emitter

    def families_on_demand(self) -> dict[str, Json]:
        """The entries of the plan for the families, each variant a unit of its own, to be compiled when first used."""
        records = {name: _family_json(f) for name, f in self.families.items()}
        for record in records.values():
            variants = {
                d: [{**v, "unit": v["symbol"]} for v in rows] for d, rows in record["variants"].items()
            }
            record["variants"] = variants
        return records


def generate(records: Iterable[OpDef], lists: Iterable[OverLists] = ()) -> Generated:
    """Everything that the records become. Pure: the same bytes on any machine.

    Raises:
        TraceError: a definition cannot become a kernel.
    """
    files: dict[str, str] = {}
    cpu: dict[str, dict[str, CpuKernel]] = {}  # by translation unit
    families: dict[str, Family] = {}
    operators = []
    made: dict[str, GeneratedOperator] = {}
    for record in records:
        if record.kernels is not None and record.kernels not in made:
            raise ValueError(
                f"{record.name}: {record.kernels}, whose kernels it has, is not before it in the catalogue"
            )
        one = generate_operator(record, kernels=made[record.kernels] if record.kernels else None)
        made[record.name] = one
        if one.cpu:
            cpu.setdefault(_unit_of(one.plan), {}).update({k.symbol: k for k in one.cpu})
        operators.append(one.operator)
        families |= one.families
    list_entries = []
    for of_lists in map(generate_list, lists):
        unit = cpu.setdefault(_module_of(of_lists.record), {})
        unit.update({k.symbol: k for k in of_lists.cpu})
        list_entries.append(of_lists.entry)
        files[list_source(of_lists.record.name)] = of_lists.cuda
    for name, unit in cpu.items():
        files[f"cpu/{name}.cpp"] = translation_unit(name, list(unit.values()))
    files["cpu/index.cpp"] = index_unit(list(cpu))
    files |= {f"cuda/{f.template}.cu": f.text for f in families.values()}
    family_records = {f.name: _family_json(f) for f in families.values()}
    files["plan.json"] = plan_file.text(operators, family_records, list_entries)
    return Generated(
        files,
        families,
        {
            "version": plan_file.VERSION,
            "operators": operators,
            "families": family_records,
            "lists": list_entries,
        },
    )


def generate_operator(
    record: OpDef, differentiate: bool = True, kernels: GeneratedOperator | None = None
) -> GeneratedOperator:
    """Everything that one record becomes; without ``differentiate`` there is no backward op.

    ``kernels``: the operator that has its kernels, if it has none of its own.

    Raises:
        TraceError: the definition cannot become a kernel, or an op has more arguments or returns than the runtime takes.
        ValueError: it computes something else than the operator that should have its kernels.
    """
    plan = make_plan(record, differentiate)  # trace, derive, simplify, cut
    for op in plan.ops:
        _check_counts(op)
    if kernels is not None:
        plan = _named_as(kernels.plan, plan)
    cuda = Emitter(record) if kernels is None else Emitter.after(kernels.cuda, record)
    cpu: dict[str, CpuKernel] = {}
    ops = []
    for op in plan.ops:
        cases = []
        for case in op.cases:
            kernel = emit_cpu.emit(record, case)
            if kernel is not None and kernels is None:
                cpu[kernel.symbol] = kernel
            cases.append(_case_json(case, kernel, cuda.alternatives(case, op)))
        ops.append(_op_json(record, op, cases))
    for family in cuda.families.values():
        cuda.assign_units(family)
    return GeneratedOperator(plan, _operator_json(plan, ops), cuda.families, tuple(cpu.values()), cuda)


# As kMaxOperands and kMaxReturns of csrc/runtime/table.h.
MOST_OPERANDS, MOST_RETURNS = 48, 16


def _check_counts(op: Op) -> None:
    parts = [*(a.parts for a in op.arguments), *(r.parts for r in op.returns)]
    count = sum(max(1, len(p)) for p in parts)
    if len(op.returns) > MOST_RETURNS or count > MOST_OPERANDS:
        raise TraceError(
            f"{op.name}: one operator would have {count} arguments and results, {len(op.returns)} of them results, and may "
            f"have {MOST_OPERANDS} and {MOST_RETURNS}"
        )


def _named_as(other: Plan, plan: Plan) -> Plan:
    """The plan with the names of another one's cases, by which kernels are called."""
    ops = []
    for op, alike in itertools.zip_longest(plan.ops, other.ops):
        names = {} if alike is None else {signature(case.graph): case.name for case in alike.cases}
        if op is None or any(signature(case.graph) not in names for case in op.cases):
            raise ValueError(
                f"{plan.record.name}: it computes something else than {other.record.name}, whose kernels it should have"
            )
        cases = tuple(replace(case, name=names[signature(case.graph)]) for case in op.cases)
        ops.append(replace(op, cases=cases))
    return replace(plan, ops=tuple(ops))


def _unit_of(plan: Plan) -> str:
    """The C++ file of an operator: its own where rows are reduced, else that of all such operators of its module.

    A file costs a second for each instruction set before its first kernel.
    """
    nodes = [n for op in plan.ops for case in op.cases for n in case.graph.nodes()]
    reduces = any(n.is_reduction and n.attr == Span.COLS for n in nodes)
    return plan.record.name if reduces else _module_of(plan.record)


def _module_of(record: OpDef | OverLists) -> str:
    return record.definition.__module__.rpartition(".")[2]


def _operator_json(plan: Plan, ops: list[Json]) -> Json:
    record = plan.record
    saved = [{"kind": kind, "name" if kind == "arg" else "index": what} for kind, what in plan.saved]
    return {
        "name": record.name,
        "formula": record.formula,
        "source": record.source,
        "ops": ops,
        "autograd": {
            "differentiable": list(plan.differentiable),
            "saved": saved,
            "gradients": plan.gradients,
            **({"detaches": True} if plan.detaches else {}),
            **({"constant": True} if record.differentiation == "none" else {}),
        },
    }


def _op_json(record: OpDef, op: Op, cases: list[Json]) -> Json:
    columns: Json = {"rule": record.columns.rule}
    if record.columns.arg is not None:
        columns["arg"] = [a.name for a in op.arguments].index(record.columns.arg)
    return {
        "name": op.name,
        "schema": op.schema,
        "columns": columns,
        "primary": op.primary,
        "args": [_argument_json(record, a) for a in op.arguments],
        "returns": [
            {"name": r.name, "span": r.span.text, "dtype": r.dtype, **_parts_json(record, r.parts)}
            for r in op.returns
        ],
        "cases": cases,
    }


def _parts_json(record: OpDef, parts: tuple[str, ...]) -> Json:
    return {"parts": list(parts), "interleaved": record.interleaved} if parts else {}


def _argument_json(record: OpDef, a: Argument) -> Json:
    import torch

    out: Json = {"name": a.name, "kind": a.kind}
    if a.kind == "tensor":
        out |= {"span": a.span.text, "optional": a.optional, **_parts_json(record, a.parts)}
        if a.integer and not a.choices:
            out["integer"] = True
        if a.choices:
            out["narrow"] = list(a.choices)
        if a.exact is not None and a.choices:
            out["whole"] = True
    elif a.kind == "str":
        out["choices"] = list(a.choices)
    elif a.kind == "mask":
        out["length"] = a.length
    elif a.kind == "float":
        rule = record.none_scalars.get(a.name)
        out |= {"optional": a.optional, "none": [rule(torch.float32), rule(torch.float64)] if rule else None}
    return out


def _case_json(case: Case, cpu: CpuKernel | None, cuda: list[Json]) -> Json:
    return {
        "key": list(case.key),
        "returns": list(case.returned),
        "cpu": cpu.description if cpu else None,
        "cuda": cuda,
        "expression": expression_json(case.graph),
    }


def expression_json(graph: Graph) -> Json:
    """A graph for the registry, which evaluates it with torch where no kernel serves."""
    nodes = graph.nodes()
    number: dict[int, int] = {}
    rows = []
    for node in nodes:
        number[node.index] = len(number)
        attr = node.attr.text if isinstance(node.attr, Span) else node.attr
        if node.op == "iconst":
            attr = str(attr)  # JSON's numbers need not be exact
        if isinstance(attr, float) and not math.isfinite(attr):
            attr = repr(attr)  # JSON has no such numbers
        row = [node.op, [number[a.index] for a in node.args], attr]
        rows.append(row[:2] if attr is None else row)
    results = {name: number[v.index] for name, v in graph.results.items()}
    return plan_file.as_read({"nodes": rows, "results": results})


def _family_json(f: Family) -> Json:
    return {"source": f"cuda/{f.template}.cu", "class": f.kind, "sums": f.sums, "variants": f.variants}
