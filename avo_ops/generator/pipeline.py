"""The whole way from a catalogue of records to generated sources, on one screen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..definitions.record import OpDef
from . import emit_cpu
from .emit_cuda import Emitter, Family
from .ir import Graph, Span
from .plan import Argument, Case, Op, Plan, make_plan
from .schedule import PAIRS

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

    operator: Json
    families: dict[str, Family]
    cpu: tuple[emit_cpu.CpuKernel, ...]

    @property
    def family_records(self) -> dict[str, Json]:
        """The entries of the plan for the families."""
        return {name: _family_json(f) for name, f in self.families.items()}


def generate(records: Iterable[OpDef]) -> Generated:
    """Everything that the records become. Pure: the same bytes on any machine.

    Raises:
        TraceError: a definition cannot become a kernel.
    """
    files: dict[str, str] = {}
    families: dict[str, Family] = {}
    operators, units = [], []
    for record in records:
        one = generate_operator(record)
        operators.append(one.operator)
        families |= one.families
        files[f"cpu/{record.name}.cpp"] = emit_cpu.translation_unit(record.name, one.cpu)
        units.append(record.name)
    files["cpu/index.cpp"] = emit_cpu.index_unit(units)
    files |= {f"cuda/{f.template}.cu": f.text for f in families.values()}
    plan_json = {
        "version": 1,
        "operators": operators,
        "families": {f.name: _family_json(f) for f in families.values()},
    }
    files["plan.json"] = _dump(plan_json)
    return Generated(files, families, plan_json)


def generate_operator(
    record: OpDef, rows: Sequence[str] | None = None, differentiate: bool = True
) -> GeneratedOperator:
    """Everything that one record becomes.

    ``rows``: dtypes of the (M, N) operands, each of which gets CUDA families of its own, to be compiled when first used;
    by default all dtypes share their families. ``differentiate``: whether there is a backward op.

    Raises:
        TraceError: the definition cannot become a kernel.
    """
    plan = make_plan(record, differentiate)  # trace, derive, simplify, cut
    cpu: dict[str, emit_cpu.CpuKernel] = {}
    emitters = [Emitter(record)]
    if rows is not None:
        emitters = [Emitter(record, tuple(p for p in PAIRS if p[0] == x), f"_{x}") for x in rows]
    ops = []
    for op in plan.ops:
        cases = []
        for case in op.cases:
            kernel = emit_cpu.emit(record, case)
            if kernel is not None:
                cpu[kernel.symbol] = kernel
            cuda = [alternative for e in emitters for alternative in e.alternatives(case, op)]
            cases.append(_case_json(case, kernel, cuda))
        ops.append(_op_json(record, op, cases))
    families = {name: f for e in emitters for name, f in e.families.items()}
    return GeneratedOperator(_operator_json(plan, ops), families, tuple(cpu.values()))


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
        "returns": [{"name": r.name, "span": r.span.text, "dtype": r.dtype} for r in op.returns],
        "cases": cases,
    }


def _argument_json(record: OpDef, a: Argument) -> Json:
    import torch

    out: Json = {"name": a.name, "kind": a.kind}
    if a.kind == "tensor":
        out |= {"span": a.span.text, "optional": a.optional}
    elif a.kind == "str":
        out["choices"] = list(a.choices)
    elif a.kind == "mask":
        out["length"] = a.length
    elif a.kind == "float":
        rule = record.none_scalars.get(a.name)
        out |= {"optional": a.optional, "none": [rule(torch.float32), rule(torch.float64)] if rule else None}
    return out


def _case_json(case: Case, cpu: emit_cpu.CpuKernel | None, cuda: list[Json]) -> Json:
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
        rows.append([node.op, [number[a.index] for a in node.args], attr, node.span.text])
    return {"nodes": rows, "results": {name: number[v.index] for name, v in graph.results.items()}}


def _family_json(f: Family) -> Json:
    return {"source": f"cuda/{f.template}.cu", "class": f.kind, "sums": f.sums, "variants": f.variants}


def _dump(plan: Json) -> str:
    """JSON with one line for each case, variant row and argument: it is read in reviews."""

    def write(value: Any, depth: int) -> str:
        pad = "  " * depth
        flat = json.dumps(value)
        if depth >= 6 or len(flat) <= 140 or not isinstance(value, dict | list):
            return flat
        if isinstance(value, dict):
            inner = [f"{pad}  {json.dumps(k)}: {write(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(inner) + f"\n{pad}}}"
        return "[\n" + ",\n".join(f"{pad}  {write(v, depth + 1)}" for v in value) + f"\n{pad}]"

    return write(plan, 0) + "\n"
