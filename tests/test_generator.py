"""The generator: tracing and its refusals, the normal form, simplification, plans, emission and schedules."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from catalogue import REPRESENTATIVES, column_argument, number
from expecttest import assert_expected_inline
from hypothesis import given, settings
from hypothesis import strategies as st

from avo_ops.definitions import CATALOGUE
from avo_ops.definitions.record import FLAT, LAST, Columns, OpDef, trailing
from avo_ops.generator import build, emit_cpu, nvrtc, pipeline, schedule
from avo_ops.generator.emit_cuda import Emitter
from avo_ops.generator.ir import (
    PRIMITIVES,
    Builder,
    Graph,
    Node,
    Source,
    Span,
    VerifyError,
    evaluate,
    verify,
)
from avo_ops.generator.lower import lower
from avo_ops.generator.pipeline import generate
from avo_ops.generator.plan import Case, Op, Plan, make_plan
from avo_ops.generator.product import Family, translation_unit
from avo_ops.generator.schedule import DTYPES, ITEM_SIZE, Features
from avo_ops.generator.simplify import (
    contract,
    joined,
    keep_means_in_range,
    local_rules,
    merged_phases,
    online_phases,
    online_sums,
    phase_of,
    pick_columns,
    regroup_powers,
    split_sums,
)
from avo_ops.generator.trace import Operand, TraceError, trace
from avo_ops.plan_file import ANY

ROOT = Path(__file__).resolve().parent.parent
RECORDS = {r.name: r for r in CATALOGUE}
Tensor = torch.Tensor
M, N = 4, 9

each_record = pytest.mark.parametrize("name", RECORDS)


def record(
    name: str,
    definition: Callable[..., Any],
    schema: str = "(Tensor x) -> Tensor",
    columns: Columns = LAST,
    **more: Any,
) -> OpDef:
    return OpDef(
        name=name, schema=schema, definition=definition, columns=columns, formula="-", source="-", **more
    )


_PLANS: dict[str, Plan] = {}


def plan_of(name: str) -> Plan:
    if name not in _PLANS:
        _PLANS[name] = make_plan(RECORDS[name])
    return _PLANS[name]


def lowered(f: Callable[..., Any], *spans: str, rules: bool = True) -> Graph:
    """The normal form of f over operands a, b, ... of these spans: the result y and the gradients of all operands."""
    operands = [Operand(n, Span.parse(s)) for n, s in zip("abcd", spans, strict=False)]
    traced = trace(
        lambda tensors, numbers, cols: f(*tensors.values()),
        operands, (), ("y",), differentiable=[o.name for o in operands], grads=("y",),
    )  # fmt: skip
    return lower(traced, Builder(rules=local_rules if rules else None))


def line(f: Callable[..., Any], offset: int) -> str:
    """The line ``offset`` below the ``def`` of f, as messages name it."""
    return f"{__file__}:{inspect.getsourcelines(f)[1] + offset}"


def refused(f: Callable[..., Any], *parts: str, schema: str = "(Tensor x) -> Tensor", **more: Any) -> str:
    """Check that f has no plan and that the message has these parts."""
    with pytest.raises(TraceError) as caught:
        make_plan(record("refused", f, schema, **more))
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    return message


# ---- tracing: spans ----


@pytest.mark.parametrize(
    ("span", "gradient"), [("N", Span.COLS), ("M", Span.ROWS), ("MN", Span.BOTH)], ids=["N", "M,1", "M,N"]
)  # fmt: skip
def test_each_broadcast_is_its_own_graph(span: str, gradient: Span) -> None:
    graph = lowered(lambda x, b: x + b, "MN", span)
    assert graph.results["y"].span == Span.BOTH
    assert graph.results["grad_a"].span == Span.BOTH
    assert graph.results["grad_b"].span == gradient
    sums = [n.attr for n in graph.nodes() if n.is_reduction]
    assert sums == {"N": [Span.ROWS], "M": [Span.COLS], "MN": []}[span]


def test_a_scalar_tensor_broadcasts_and_its_gradient_sums_everything() -> None:
    graph = lowered(lambda x, b: x * b, "MN", "1")
    assert (graph.results["y"].span, graph.results["grad_b"].span) == (Span.BOTH, Span.NONE)
    assert [n.attr for n in graph.nodes() if n.is_reduction] == [Span.COLS, Span.ROWS]


def test_unsqueezed_operands_keep_their_span() -> None:
    assert lowered(lambda x, b: x + b.unsqueeze(0), "MN", "N").results["grad_b"].span == Span.COLS
    assert (
        lowered(lambda x, b: x + b.squeeze(-1).unsqueeze(-1), "MN", "M").results["grad_b"].span == Span.ROWS
    )


def test_rows_are_never_taken_for_columns() -> None:
    """With a square example, b[:, None] of span N would look like a row operand."""
    refused(
        lambda x, b: x + b.unsqueeze(-1),
        f"{__file__}:",
        "M",
        "N",
        schema="(Tensor x, Tensor b) -> Tensor",
        spans={"b": "N"},
    )


def test_reductions_know_their_axis() -> None:
    for dims, axes in (((-1,), [Span.COLS]), ((0,), [Span.ROWS]), ((0, 1), [Span.COLS, Span.ROWS])):
        graph = lowered(lambda x, dims=dims: (x * x) * (x.sum(dims, keepdim=True)), "MN")
        axes_of_y = [n.attr for n in Graph({"y": graph.results["y"]}).nodes() if n.is_reduction]
        assert axes_of_y == axes


# ---- tracing: lines ----


def _two_lines(x: Tensor, w: Tensor) -> Tensor:
    inner = torch.tanh(x * w)
    return torch.exp(inner) * inner


def test_nodes_carry_the_authors_lines() -> None:
    graph = lowered(_two_lines, "MN", "N")
    first, second = (int(line(_two_lines, i).rsplit(":", 1)[1]) for i in (1, 2))
    lines = {n.op: n.source for n in Graph({"y": graph.results["y"]}).nodes() if n.args}
    assert lines["tanh"] == Source(__file__, first)
    assert lines["exp"] == Source(__file__, second)
    forward = {n.index for n in Graph({"y": graph.results["y"]}).nodes()}
    backward = [n for n in graph.nodes() if n.index not in forward and n.args]
    assert len(backward) > 3
    assert {n.source for n in backward} == {Source(__file__, first), Source(__file__, second)}
    # The derivative of tanh, 1 - tanh^2, belongs to the first line; the sum over the rows (of w's gradient) too.
    assert all(n.source == Source(__file__, first) for n in backward if n.op in ("sub", "sum"))


def test_values_have_the_authors_names() -> None:
    graph = lowered(_two_lines, "MN", "N")
    assert [n.name for n in graph.nodes() if n.op == "tanh"] == ["inner"]


# ---- tracing: refusals ----


def _branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def _loops(x: Tensor) -> Tensor:
    while bool((x > 1).any()):
        x = x / 2
    return x


def _item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def _float(x: Tensor) -> Tensor:
    return x * float(x.max())


def _nonzero(x: Tensor) -> Tensor:
    return x[x > 0]


@pytest.mark.parametrize("f", [_branches, _loops, _item, _float, _nonzero])
def test_decisions_on_values_are_refused(f: Callable[..., Any]) -> None:
    refused(f, line(f, 1), "depends on the values of a tensor", "torch.where")


def _wide(x: Tensor) -> Tensor:
    if x.shape[-1] > 100:
        return x
    return -x


def _even(x: Tensor) -> Tensor:
    return x if x.shape[-1] % 2 == 0 else -x


def _tall(x: Tensor) -> Tensor:
    return x if x.shape[0] >= 3 * x.shape[1] else -x


@pytest.mark.parametrize("f", [_wide, _even, _tall])
def test_decisions_on_sizes_are_refused(f: Callable[..., Any]) -> None:
    message = refused(f, line(f, 1), "sizes of the arguments", "one kernel must serve every size")
    assert "N" in message and not re.search(r"\bs\d+", message), "torch's symbols mean nothing to the author"


def test_rank_and_non_zero_sizes_are_no_decision() -> None:
    make_plan(record("rank", lambda x: x * 2 if x.dim() == 2 and x.shape[-1] > 0 else x))


def _two_unsupported(x: Tensor) -> Tensor:
    a = torch.sort(x)[0]
    b = torch.cumsum(x, -1)
    return a + b


def test_all_unsupported_functions_are_in_one_message() -> None:
    f = _two_unsupported
    message = refused(f, f"{line(f, 1)}: aten.sort", f"{line(f, 2)}: aten.cumsum", "outside")
    assert "getitem" not in message, "what takes a failed value apart is no problem of its own"


def _writes(x: Tensor) -> Tensor:
    y = x + 1
    x.mul_(2)
    return x + y


def _writes_through_a_view(x: Tensor) -> Tensor:
    x.view(x.shape).zero_()
    return x


@pytest.mark.parametrize(("f", "offset"), [(_writes, 2), (_writes_through_a_view, 1)])
def test_writing_to_an_argument_is_refused(f: Callable[..., Any], offset: int) -> None:
    refused(f, line(f, offset), "argument x is modified in place", "new tensor")


def test_writing_to_an_intermediate_is_functionalised() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        y *= 3
        return y

    def g(x: Tensor) -> Tensor:
        return torch.zeros_like(x).copy_(x * 2)

    for h in (f, g):
        x = torch.randn(M, N, dtype=torch.float64)
        values = {"a": x, "grad_y": torch.ones_like(x)}
        assert torch.allclose(evaluate(lowered(h, "MN"), values, M, N)["y"], h(x.clone()))


_CLOSURE = torch.tensor(3.0)


@pytest.mark.parametrize(
    ("f", "parts"),
    [
        (lambda x: x + torch.rand_like(x), ["rand_like", "random numbers", "argument"]),
        (lambda x: x + torch.randn(x.shape), ["randn", "random numbers", "argument"]),
        (lambda x: x.reshape(x.shape[1], x.shape[0]), ["sizes"]),
        (lambda x: x.reshape(x.shape[1], x.shape[0]).reshape(x.shape) + x, ["view"]),
        (lambda x: x.flatten() + 1, ["M*N"]),
        (lambda x: x[:, :10] * 2, ["dim of size 10", "aten.slice"]),
        (lambda x: x.t(), ["transposed"]),
        (lambda x: x @ x.t(), ["aten.mm", "matrix products"]),
        (lambda x: x.sum(-1, keepdim=True) * x.sum(-1), ["rows (or the columns) twice"]),
        (lambda x: x.to(torch.int32).to(x.dtype), ["torch.int32"]),
        (lambda x: x * _CLOSURE, ["not an argument", "make it an argument"]),
        (lambda x: x * torch.tensor(2.0), ["Python number"]),
        (lambda x: torch.special.bessel_j0(x), ["aten.special_bessel_j0"]),
        (lambda x: x - x.max(-1, keepdim=True).values, ["aten.max", "torch.amax"]),
        (lambda x: x + torch.zeros(5), ["must match"]),
        (lambda x: x.nonsense, ["nonsense"]),
        (lambda x: x > 0, ["torch.bool", "torch.where"]),
        (lambda x: None, ["NoneType"]),
        (lambda x: (x, x), ["2 values"]),
        (lambda x: x.sum(), ["one number"]),
        (lambda x: x - x.mean(0), ["over the rows"]),
        (lambda x: x / x.sum(), ["over the rows"]),
        (lambda x: x.amax(0) * 1.0, ["over the rows"]),
        (lambda x: torch.ones_like(x), ["one value for all"]),
        (lambda x: F.dropout(x, 0.5, True), []),
    ],
)  # fmt: skip
def test_refusals_name_line_reason_and_way_out(f: Callable[..., Any], parts: list[str]) -> None:
    refused(f, f"{__file__}:", *parts)


def test_an_outer_product_is_refused() -> None:
    two = "(Tensor x, Tensor w) -> Tensor"
    refused(
        lambda x, w: x * (w.unsqueeze(-1) * w).sum(0), "twice", f"{__file__}:", schema=two, spans={"w": "N"}
    )
    refused(
        lambda x, w: x * (w * w.t()).sum(-1, keepdim=True),
        "twice",
        f"{__file__}:",
        schema=two,
        spans={"w": "M"},
    )


def test_a_scalar_tensor_argument_is_refused() -> None:
    refused(
        lambda x, s: x * s,
        "argument s",
        "make it a float",
        schema="(Tensor x, Tensor s) -> Tensor",
        spans={"s": "1"},
    )


def test_names_that_would_collide_are_refused() -> None:
    for name in ("y", "grad", "mask", "grad_y"):
        definition = eval(f"lambda x, {name}: x * {name}")
        with pytest.raises(ValueError, match=f"rename the argument {name}"):
            make_plan(record("collides", definition, f"(Tensor x, Tensor {name}) -> Tensor"))


def test_casts_are_kept() -> None:
    """A cast rounds, and so does each step of what is computed in a narrower type."""

    def f(x: Tensor) -> Tensor:
        return (x.to(torch.bfloat16) * x.to(torch.float16).to(torch.bfloat16)).float().to(x.dtype) * 3

    x = torch.randn(M, N, dtype=torch.float64)
    got = evaluate(lowered(f, "MN"), {"a": x, "grad_y": x}, M, N)["y"]
    assert torch.equal(got, f(x))
    assert not torch.equal(got, 3 * x * x)
    assert torch.equal(
        evaluate(lowered(lambda x: x.half().double(), "MN"), {"a": x, "grad_y": x}, M, N)["y"],
        x.half().double(),
    )


# ---- lowering: each function by value and gradient ----


@pytest.mark.parametrize(
    "f",
    [
        F.relu, F.silu, F.gelu, F.mish, F.elu, F.hardtanh, F.hardswish, F.leaky_relu, F.softplus, F.logsigmoid,
        lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softmax(x, -1), lambda x: F.log_softmax(x, -1),
        lambda x: F.normalize(x, dim=-1), lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: F.rms_norm(x, x.shape[-1:]),
        lambda x: x / x.std(-1, keepdim=True), lambda x: x * x.var(-1, keepdim=True, correction=0),
        lambda x: torch.rsub(x, x * x, alpha=2), lambda x: torch.sub(x, x * x, alpha=3), lambda x: x**3 + x**-2 + 2**x,
        lambda x: torch.clamp(x, -0.5, 0.5) + x.clamp_min(0.1) + x.clamp_max(0.2), lambda x: torch.where(x > 0, x, 0.1 * x),
        lambda x: x * (x > 0) + ((x > 0) + (x < 0.5)) * x, lambda x: x / (x > 0).sum(-1, keepdim=True),
        lambda x: x.masked_fill(x < 0, 2.0), lambda x: x - x.amax(-1, keepdim=True), lambda x: torch.addcmul(x, x, x, value=2),
        lambda x: torch.lerp(x, x * x, 0.3), lambda x: x.t().exp().t(), lambda x: x.abs() + x.sign() + torch.maximum(x, -x),
        lambda x: torch.logical_and(x, x > 0) * x + torch.logical_not(x > 0) * x, lambda x: x * torch.logsumexp(x, -1, keepdim=True),
    ],
)  # fmt: skip
def test_values_and_gradients_of_torch_functions(f: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(M, N, dtype=torch.float64).requires_grad_()
    grad = torch.randn(M, N, dtype=torch.float64)
    y = f(x)
    (want,) = torch.autograd.grad(y, x, grad)
    for rules in (False, True):
        graph = lowered(f, "MN", rules=rules)
        verify(graph)
        got = evaluate(graph, {"a": x.detach(), "grad_y": grad}, M, N)
        torch.testing.assert_close(got["y"], y.detach(), rtol=1e-6 if f is F.rms_norm else 1e-9, atol=1e-12)
        torch.testing.assert_close(got["grad_a"], want, rtol=1e-9, atol=1e-12)


# ---- the normal form ----


def _node(op: str, *args: Node, attr: Any = None, span: Span = Span.BOTH) -> Node:
    return Node(op, args, attr, span, next(_COUNTER), Source("f.py", 7))


_COUNTER = itertools.count(1000)
_X = _node("load", attr="x")
_MASK = _node("gt", _X, _X)
_ROW = _node("load", attr="r", span=Span.ROWS)


@pytest.mark.parametrize(
    "bad",
    [
        _node("neg", _X, _X),
        _node("add", _X),
        _node("nonsense", _X),
        _node("load", attr=None),
        _node("load", _X, attr="x"),
        _node("neg", _X, span=Span.ROWS),
        _node("add", _ROW, _ROW, span=Span.BOTH),
        _node("sum", _X, attr=Span.COLS, span=Span.BOTH),
        _node("sum", _X, _X, attr=Span.COLS, span=Span.ROWS),
        _node("sum", _X, attr=Span.BOTH, span=Span.NONE),
        _node("sum", _ROW, attr=Span.COLS, span=Span.ROWS),
        _node("sum", _MASK, attr=Span.COLS, span=Span.ROWS),
        _node("mul", _X, _MASK),
        _node("where", _X, _X, _X),
        _node("where", _MASK, _MASK, _X),
        _node("and", _MASK, _X),
        _node("not", _X),
    ],
    ids=lambda n: repr(n).split("= ")[1],
)
def test_verify_finds_each_malformed_node(bad: Node) -> None:
    root = _node("neg", bad, span=bad.span) if not bad.is_mask else _node("where", bad, _X, _X)
    with pytest.raises(VerifyError, match=r"f\.py:7"):
        verify(Graph({"y": root}))


def test_verify_refuses_a_mask_as_result() -> None:
    with pytest.raises(VerifyError, match="'y' is a mask"):
        verify(Graph({"y": _MASK}))
    verify(Graph({"y": _node("where", _MASK, _X, _ROW)}))


def selection(op: Op, case: Case) -> dict[str, Any]:
    """What a case's key selects: present optional tensors, chosen strings and the mask."""
    key, found = iter(case.key), {}
    for a in op.arguments:
        if a.kind == "tensor" and a.optional:
            found[a.name] = bool(next(key))
        elif a.choices:
            found[a.name] = a.choices[next(key)]
        elif a.kind == "mask":
            found[a.name] = [bool(next(key)) for _ in range(a.length)]
    assert next(key, None) is None
    return found


_SHAPES = {"MN": (M, N), "M": (M, 1), "N": (1, N), "1": (1, 1)}
_SCALARS = {"eps": 1e-3, "scale": 0.7}


def _tensors(
    plan: Plan, chosen: dict[str, Any], fill: Callable[[tuple[int, ...]], Tensor]
) -> dict[str, Tensor]:
    """Operands of the public op in the (rows, columns) form, those that the case has."""
    wanted = [a for a in plan.ops[0].arguments if a.kind == "tensor" and chosen.get(a.name, True)]
    found = {}
    for a in wanted:
        rows, columns = _SHAPES[a.span.text]
        shape = (rows, columns * max(len(a.parts), 1))
        found[a.name] = torch.randint(N, shape) if a.integer else fill(shape)
    return found


def _in_parts(plan: Plan, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Packed tensors in their parts."""
    found = {}
    for name, value in tensors.items():
        parts = plan.record.parts.get(name)
        if parts is None:
            found[name] = value
        elif plan.record.interleaved:
            found |= {p: value[..., i :: len(parts)] for i, p in enumerate(parts)}
        else:
            found |= dict(zip(parts, value.chunk(len(parts), -1), strict=True))
    return found


def _define(plan: Plan, chosen: dict[str, Any], tensors: dict[str, Tensor]) -> list[Tensor]:
    keywords: dict[str, Any] = {}
    for a in plan.ops[0].arguments:
        if a.kind == "tensor":
            value = tensors.get(a.name)
            keywords[a.name] = value.reshape(-1) if value is not None and a.span == Span.COLS else value
            if a.span == Span.NONE:
                keywords[a.name] = tensors[a.name].reshape(())
        else:
            keywords[a.name] = {
                "ints": [N],
                "int": column_argument(plan.record),
                "float": _number(plan, a.name) if a.name in _numbers(plan) else None,
                "str": chosen.get(a.name),
            }["float" if a.name in _numbers(plan) else a.kind]
    return list(plan.record.compute(**keywords))


def _numbers(plan: Plan) -> list[str]:
    """The arguments that kernels take as numbers."""
    of_columns = plan.record.columns.arg
    return [a.name for a in plan.ops[0].arguments if a.kind in ("float", "int") and a.name != of_columns]


def _scalars(plan: Plan) -> dict[str, Tensor]:
    names = _numbers(plan)
    return {n: torch.full((1, 1), _number(plan, n), dtype=torch.float64) for n in names}


def _number(plan: Plan, name: str) -> float:
    return _SCALARS[name] if name in _SCALARS else number(plan.record, name)


def check_plan(
    plan: Plan, fill: Callable[[tuple[int, ...]], Tensor], *, rtol: float = 1e-8, backward: bool = True
) -> int:
    """Compare every case of a plan with its definition under autograd, in float64; how many gradients were compared."""
    forward, back = plan.ops[1], plan.ops[2] if len(plan.ops) > 2 else None
    compared = 0
    saved_of: dict[tuple[Any, ...], tuple[dict[str, Tensor], dict[str, Tensor]]] = {}
    for case in forward.cases:
        chosen = selection(forward, case)
        tensors = _tensors(plan, chosen, fill)
        got = evaluate(case.graph, {**_in_parts(plan, tensors), **_scalars(plan)}, M, N)
        defined = dict(zip(plan.record.results, _define(plan, chosen, tensors), strict=True))
        for result, want in _in_parts(plan, defined).items():
            want = want.reshape(got[result].shape)
            torch.testing.assert_close(
                got[result].to(want.dtype).double(),  # of 8 bits: rounded when it is stored
                want.double(),
                rtol=rtol,
                atol=1e-10,
                equal_nan=True,
                msg=lambda m, case=case: f"{case.name}: {m}",
            )
        saved_of[case.key] = tensors, got
    for case in back.cases if backward and back is not None else ():
        chosen = selection(back, case)
        pattern = {k: v for k, v in chosen.items() if k != "mask" and not k.startswith("grad_")}
        key = next(c.key for c in forward.cases if selection(forward, c).items() == pattern.items())
        tensors, results = saved_of[key]
        leaves = {n: t.clone().requires_grad_() for n, t in tensors.items() if t.is_floating_point()}
        outs = _define(plan, chosen, {**tensors, **leaves})
        several = len(outs) > 1
        names = [f"grad_{r}" if several else "grad" for r in plan.record.results]
        there = [n for n in names if chosen.get(n, True)]
        grads = {n: fill(tuple(o.shape)) for n, o in zip(names, outs, strict=True) if n in there}
        packed = {
            f"grad_{part}": value
            for n, r in zip(names, plan.record.results, strict=True)
            if n in there and r in plan.record.parts
            for part, value in _in_parts(plan, {r: grads[n]}).items()
        }
        used = [o for o, n in zip(outs, names, strict=True) if n in there]
        want = dict(zip(leaves, torch.autograd.grad(
            used, list(leaves.values()), [g.reshape(o.shape) for g, o in zip(grads.values(), used, strict=True)], allow_unused=True
        ), strict=True)) if used else dict.fromkeys(leaves)  # fmt: skip
        got = (
            evaluate(
                case.graph, {**_in_parts(plan, tensors), **results, **grads, **packed, **_scalars(plan)}, M, N
            )
            if case.graph.results
            else {}
        )
        for name, group in plan.gradients.items():
            if not chosen["mask"][group] or not used:
                continue
            result = back.returns[group].name
            expected = want.get(name)
            if expected is None or not case.returned[group]:
                assert expected is None or not expected.any(), f"{case.name}: {name} has a gradient"
                assert not case.returned[group]
                continue
            packed = name in plan.record.parts
            for part, value in _in_parts(plan, {name: expected}).items():
                found = got[f"grad_{part}" if packed else result]
                if plan.record.gradient is not None:  # stated where the derived one is 0 times infinity
                    value = torch.where(value.isnan(), found, value)
                torch.testing.assert_close(
                    found,
                    value,
                    rtol=rtol,
                    atol=1e-9,
                    equal_nan=True,
                    msg=lambda m, case=case, part=part: f"{case.name} {part}: {m}",
                )
            compared += 1
    return compared


def random_values(seed: int) -> Callable[[tuple[int, ...]], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def extreme_values(values: list[float], seed: int) -> Callable[[tuple[int, ...]], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    table = torch.tensor(values, dtype=torch.float64)
    return lambda shape: table[torch.randint(len(values), shape, generator=generator)]


@each_record
def test_every_case_is_the_definition(name: str) -> None:
    plan = plan_of(name)
    assert check_plan(plan, random_values(1)) >= (plan.record.differentiation == "kernels")
    check_plan(plan, lambda shape: 1e4 * random_values(2)(shape), rtol=1e-6)
    check_plan(plan, extreme_values([0.0, -0.0, 1e-300, -1e-300, 1.0, -40.0, 40.0, 1e3], 3), rtol=1e-6)


@each_record
def test_every_forward_is_the_definition_at_infinity(name: str) -> None:
    check_plan(
        plan_of(name), extreme_values([math.inf, -math.inf, math.nan, 1e300, -1e300, 0.0], 4), backward=False
    )


# ---- simplification ----

SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.7, 1e300, -1e300, 1e-300, math.inf, -math.inf, math.nan, 17.0],
    dtype=torch.float64,
)

# Each local rule: what it starts from, and the operations that must be gone or must have come.
RULES: dict[str, tuple[Callable[..., Node], str, str]] = {
    "fold neg": (lambda b, x, y, r: b.make("add", x, b.make("neg", b.const(2.0))), "neg", ""),
    "fold add": (lambda b, x, y, r: b.make("mul", x, b.make("add", b.const(2.0), b.const(0.5))), "add", ""),
    "fold sub": (lambda b, x, y, r: b.make("mul", x, b.make("sub", b.const(2.0), b.const(0.5))), "sub", ""),
    "fold mul": (lambda b, x, y, r: b.make("add", x, b.make("mul", b.const(2.0), b.const(0.5))), "mul", ""),
    "x * 1": (lambda b, x, y, r: b.make("mul", x, b.const(1.0)), "mul", ""),
    "x * -1": (lambda b, x, y, r: b.make("mul", b.const(-1.0), x), "mul", "neg"),
    "-x * c": (lambda b, x, y, r: b.make("mul", b.make("neg", x), b.const(3.0)), "neg", "mul"),
    "c * (d * x)": (lambda b, x, y, r: b.make("mul", b.const(3.0), b.make("mul", b.const(0.25), x)), "", "mul"),
    "c * (r * x)": (lambda b, x, y, r: b.make("mul", b.const(3.0), b.make("mul", r, x)), "", "mul"),
    "x + -0": (lambda b, x, y, r: b.make("add", x, b.const(-0.0)), "add", ""),
    "x + -y": (lambda b, x, y, r: b.make("add", x, b.make("neg", y)), "neg", "sub"),
    "x - 0": (lambda b, x, y, r: b.make("sub", x, b.const(0.0)), "sub", ""),
    "x - -y": (lambda b, x, y, r: b.make("sub", x, b.make("neg", y)), "neg", "add"),
    "xy + (xy + y)": (lambda b, x, y, r: b.make("add", b.make("mul", x, y), b.make("add", b.make("mul", x, y), y)), "", "mul"),
    "x / 1": (lambda b, x, y, r: b.make("div", x, b.const(1.0)), "div", ""),
    "x / 4": (lambda b, x, y, r: b.make("div", x, b.const(4.0)), "div", "mul"),
    "x / sqrt(y)": (lambda b, x, y, r: b.make("div", x, b.make("sqrt", y)), "sqrt", "rsqrt"),
    "x / r": (lambda b, x, y, r: b.make("div", x, r), "div", "recip"),
    "x ** 1": (lambda b, x, y, r: b.make("pow", x, b.const(1.0)), "pow", ""),
    "x ** 2": (lambda b, x, y, r: b.make("pow", x, b.const(2.0)), "pow", "mul"),
    "x ** 3": (lambda b, x, y, r: b.make("pow", x, b.const(3.0)), "pow", "mul"),
    "x ** 4": (lambda b, x, y, r: b.make("pow", x, b.const(4.0)), "pow", "mul"),
    "x ** -1": (lambda b, x, y, r: b.make("pow", x, b.const(-1.0)), "pow", "recip"),
    "x ** -2": (lambda b, x, y, r: b.make("pow", x, b.const(-2.0)), "pow", "recip"),
    "--x": (lambda b, x, y, r: b.make("neg", b.make("neg", x)), "neg", ""),
    "-(c * x)": (lambda b, x, y, r: b.make("neg", b.make("mul", b.const(3.0), x)), "neg", "mul"),
    "exp(-(x * x))": (lambda b, x, y, r: b.make("exp", b.make("neg", b.make("mul", x, x))), "exp", "exp_neg_sq"),
    "exp(-(x * x) / 2)": (lambda b, x, y, r: b.make("exp_neg_sq", b.make("mul", x, b.const(math.sqrt(0.5)))), "exp_neg_sq", "exp_neg_half_sq"),
    "erfc(-x / sqrt(2))": (lambda b, x, y, r: _erfc(b, b.make("mul", b.const(-math.sqrt(0.5)), x)), "erfc", "ndtr"),
    "erfc(x / sqrt(2))": (lambda b, x, y, r: _erfc(b, b.make("mul", x, b.const(math.sqrt(0.5)))), "erfc", "ndtr"),
    "x / 2 * erfc(-x / sqrt(2))": (
        lambda b, x, y, r: b.make("mul", b.make("mul", b.const(0.5), x), _erfc(b, b.make("mul", x, b.const(-math.sqrt(0.5))))),
        "ndtr", "x_ndtr",
    ),
    "(c * x) * (d * y)": (
        lambda b, x, y, r: b.make("mul", b.make("mul", b.const(0.5), x), b.make("mul", b.const(2.0), y)), "const", "mul"
    ),
    "where(m, x, x)": (lambda b, x, y, r: b.make("where", b.make("gt", x, y), x, x), "where", ""),
}  # fmt: skip


def _erfc(b: Builder, z: Node) -> Node:
    return b.make("erfc", z, b.make("exp_neg_sq", z))


def _operands(b: Builder) -> tuple[Node, Node, Node]:
    return b.load("x", Span.BOTH), b.load("y", Span.BOTH), b.load("r", Span.ROWS)


def _grid() -> dict[str, Tensor]:
    x = SPECIAL.repeat(len(SPECIAL), 1)
    return {"x": x, "y": x.t().contiguous(), "r": SPECIAL.reshape(-1, 1)}


def assert_same_value(got: Tensor, want: Tensor, rtol: float = 4e-15) -> None:
    torch.testing.assert_close(got, want, rtol=rtol, atol=0.0, equal_nan=True)
    zero = (got == 0) & (want == 0)
    assert torch.equal(torch.signbit(got[zero]), torch.signbit(want[zero])), "the sign of a zero"


@pytest.mark.parametrize("rule", RULES)
def test_local_rule(rule: str) -> None:
    start, gone, come = RULES[rule]
    plain, simple = Builder(), Builder(rules=local_rules)
    before, after = (
        Graph({"y": start(plain, *_operands(plain))}),
        Graph({"y": start(simple, *_operands(simple))}),
    )
    ops = [n.op for n in after.nodes()]
    assert [(n.op, n.attr) for n in before.nodes()] != [(n.op, n.attr) for n in after.nodes()], (
        "the rule did not apply"
    )
    assert not gone or gone not in ops
    assert not come or come in ops
    verify(after)
    values, size = _grid(), len(SPECIAL)
    got, want = (evaluate(g, values, size, size)["y"].expand(size, size) for g in (after, before))
    if rule in ("c * (r * x)", "xy + (xy + y)"):  # may overflow one step earlier or later
        fine = torch.isfinite(got) & torch.isfinite(want) | ~torch.isfinite(
            values["x"] + values["y"] + values["r"]
        )
        got, want = got[fine], want[fine]
        assert fine.sum() > size
    assert_same_value(got, want, 1e-13 if "exp_neg_half_sq" in ops else 4e-15)


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_square_root_powers_are_torchs_own(power: float) -> None:
    """torch computes x ** 0.5 as sqrt(x), also where the real power of -inf or -0 is another."""
    b = Builder(rules=local_rules)
    graph = Graph({"y": b.make("pow", b.load("x", Span.BOTH), b.const(power))})
    assert_same_value(evaluate(graph, _grid(), len(SPECIAL), len(SPECIAL))["y"], _grid()["x"] ** power)


def test_rules_do_not_touch_what_only_looks_alike() -> None:
    b = Builder(rules=local_rules)
    x, y, _ = _operands(b)
    zero = b.const(0.0)
    assert b.make("add", x, zero).op == "add"  # -0 + 0 is 0
    assert b.make("sub", x, b.const(-0.0)).op == "sub"
    assert b.make("mul", x, zero).op == "mul"  # inf * 0
    assert b.make("sub", x, x).op == "sub"
    assert b.make("div", x, x).op == "div"
    assert b.make("div", x, b.const(3.0)).op == "div"
    assert b.make("neg", b.make("sub", x, y)).op == "neg"  # -(x - x) is -0
    assert b.make("mul", b.const(1e20), b.make("mul", b.const(1e20), x)).args[1].op == "mul", (
        "1e40 is no float"
    )
    assert b.make("div", x, b.const(2.0**-140)).op == "div", "its reciprocal is no float"


_LEAF_OPS = ("neg", "abs", "exp", "rsqrt", "recip", "sqrt", "sigmoid", "tanh")
_BINARY = ("add", "sub", "mul", "max", "min")
_CONSTANTS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 0.1])
_TREES = st.recursive(
    st.one_of(
        st.tuples(st.just("load"), st.sampled_from(["x", "y", "w", "r"])),
        st.tuples(st.just("const"), _CONSTANTS),
        st.tuples(st.just("leaf"), st.sampled_from(_LEAF_OPS), st.sampled_from(["x", "w", "r"])),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(_BINARY), inner, inner),
        st.tuples(st.just("neg"), inner),
        st.tuples(st.just("pow"), inner, st.sampled_from([1.0, 2.0, 3.0])),
        st.tuples(st.just("div"), inner, st.sampled_from(["w", "r", "sqrt", "4", "3"])),
        st.tuples(st.just("where"), inner, inner),
    ),
    max_leaves=9,
)
_SPANS = {"x": Span.BOTH, "y": Span.BOTH, "w": Span.COLS, "r": Span.ROWS}


def _build(b: Builder, tree: tuple[Any, ...]) -> Node:
    op, *rest = tree
    if op == "load":
        return b.load(rest[0], _SPANS[rest[0]])
    if op == "const":
        return b.const(rest[0])
    if op == "leaf":
        return b.make(rest[0], b.load(rest[1], _SPANS[rest[1]]))
    if op == "pow":
        return b.make("pow", _build(b, rest[0]), b.const(rest[1]))
    if op == "where":
        return b.make(
            "where",
            b.make("gt", b.load("x", Span.BOTH), b.load("w", Span.COLS)),
            *(_build(b, t) for t in rest),
        )
    if op == "div":
        bottom = {
            "w": lambda: b.load("w", Span.COLS), "r": lambda: b.load("r", Span.ROWS), "4": lambda: b.const(4.0),
            "3": lambda: b.const(3.0), "sqrt": lambda: b.make("sqrt", b.load("r", Span.ROWS)),
        }[rest[1]]  # fmt: skip
        return b.make("div", _build(b, rest[0]), bottom())
    return b.make(op, *(_build(b, t) for t in rest))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tree=_TREES, seed=st.integers(0, 5))
def test_simplified_expressions_have_the_same_value(tree: tuple[Any, ...], seed: int) -> None:
    fill = random_values(seed)
    values = {n: fill(_SHAPES[s.text]) for n, s in _SPANS.items()}
    values["x"][0, :4] = torch.tensor([0.0, -0.0, math.inf, math.nan])
    plain, simple = Builder(), Builder(rules=local_rules)
    before, after = Graph({"y": _build(plain, tree)}), Graph({"y": _build(simple, tree)})
    verify(after)
    everything = evaluate(Graph({str(n.index): n for n in before.nodes() if not n.is_mask}), values, M, N)
    scale = max(float(v.abs().nan_to_num(0.0, 0.0, 0.0).max()) for v in everything.values())
    got, want = (evaluate(g, values, M, N)["y"].expand(M, N) for g in (after, contract(simple, after)))
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13 * scale, equal_nan=True)
    want = evaluate(before, values, M, N)["y"].expand(M, N)
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13 * scale, equal_nan=True)


def _phases(graph: Graph) -> int:
    return max(phase_of(graph.nodes()).values(), default=0)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "add_layer_norm"])
def test_backward_of_norms_reduces_once(name: str) -> None:
    backward = plan_of(name).ops[2]
    assert {_phases(c.graph) for c in backward.cases} <= {0, 1}
    everything = [c for c in backward.cases if all(c.key)]
    assert [_phases(c.graph) for c in everything] == [1]


def test_split_sums_saves_phases_and_keeps_the_value() -> None:
    """layer_norm's backward as it is derived: one sum waits for another until they are split."""
    f = RECORDS["layer_norm"].definition
    joint = lowered(lambda x, w: f(x, [x.shape[-1]], w, None, 1e-3), "MN", "N")
    b = Builder(rules=local_rules)
    # In a fresh builder, with mean and rstd as loads, as the cut makes them.
    known = {
        n.index: b.load(n.name or "", n.span) for n in joint.nodes() if n.name in ("mean", "rstd", "residue")
    }

    def copy(node: Node) -> Node:
        if node.index not in known:
            known[node.index] = b.make(node.op, *(copy(a) for a in node.args), attr=node.attr, span=node.span)
        return known[node.index]

    fill = random_values(5)
    x = fill((M, N))
    mean = x.mean(-1, keepdim=True)
    values = {"a": x, "b": fill((1, N)), "grad_y": fill((M, N)), "mean": mean}
    values["rstd"] = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-3)
    values["residue"] = torch.zeros(M, 1, dtype=torch.float64)
    graph = Graph({"g": copy(joint.results["grad_a"])})
    split = split_sums(b, graph)
    assert _phases(split) <= _phases(graph)
    assert _phases(split) == 1
    torch.testing.assert_close(
        *(evaluate(g, values, M, N)["g"] for g in (graph, split)), rtol=1e-10, atol=1e-12
    )


def test_split_sums_by_hand() -> None:
    b = Builder(rules=local_rules)
    x, r = b.load("x", Span.BOTH), b.load("r", Span.ROWS)
    first = b.make("sum", x, attr=Span.COLS)
    waits = b.make("sum", b.make("sub", b.make("mul", x, first), r), attr=Span.COLS)
    graph = Graph({"a": waits})
    split = split_sums(b, graph)
    assert (_phases(graph), _phases(split)) == (2, 1)
    values = {"x": random_values(6)((M, N)), "r": random_values(7)((M, 1)), "z": random_values(8)((M, N))}
    want, got = (evaluate(g, values, M, N)["a"] for g in (graph, split))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)

    # Where the mean is known, the sum of x - mean(x) vanishes whatever it is multiplied with once a row.
    mean = b.make("div", first, b.size(Span.COLS))
    other = b.make("sum", b.load("z", Span.BOTH), attr=Span.COLS)
    graph = Graph({"b": b.make("sum", b.make("mul", b.make("sub", x, mean), other), attr=Span.COLS)})
    vanished = split_sums(b, graph, frozenset({mean.index}), finite=True).results["b"]
    assert vanished.op == "const" and vanished.attr == 0.0
    assert float(evaluate(graph, values, M, N)["b"].abs().max()) < 1e-13
    # But not in a row that is not finite, nor where the factor is not.
    split = split_sums(b, graph, frozenset({mean.index}))
    assert not any(n.op == "sum" and n.args[0] is graph.results["b"].args[0] for n in split.nodes())
    for name, value in (("x", torch.nan), ("x", torch.inf), ("z", torch.nan)):
        special = {**values, name: values[name].clone()}
        special[name][0, 0] = value
        found = evaluate(split, special, M, N)["b"]
        assert found[0].isnan() and not found[1:].any(), (name, value)
    squares = Graph({"a": b.make("sum", b.make("exp", b.make("sub", x, first)), attr=Span.COLS)})
    assert split_sums(b, squares) is squares, "a sum that does not split stays"


def test_contract_takes_products_of_one_use() -> None:
    b = Builder()
    x, y, w = b.load("x", Span.BOTH), b.load("y", Span.BOTH), b.load("w", Span.COLS)
    product = b.make("mul", x, y)

    def ops(**results: Node) -> list[str]:
        return sorted(n.op for n in contract(b, Graph(results)).nodes() if n.args)

    assert ops(a=b.make("add", product, w)) == ["fma"]
    assert ops(a=b.make("sub", product, w)) == ["fma", "neg"]
    assert ops(a=b.make("sub", w, product)) == ["fma", "neg"]
    assert ops(a=b.make("add", product, w), b=product) == ["add", "mul"], "the product is a result too"
    assert ops(a=b.make("add", product, w), b=b.make("exp", product)) == ["add", "exp", "mul"]
    assert ops(a=b.make("add", product, product)) == ["add", "mul"]
    rows = b.make("mul", b.load("r", Span.ROWS), b.load("s", Span.ROWS))
    assert ops(a=b.make("add", rows, b.load("t", Span.ROWS))) == ["fma"], (
        "a product beyond the range is not lost"
    )
    of_row = b.make("recip", b.load("r", Span.ROWS))
    assert ops(a=b.make("mul", x, of_row)) == ["quotient", "recip"]
    assert ops(a=b.make("mul", w, b.make("recip", x))) == ["mul", "recip"], (
        "a division an element has no other"
    )
    values = {"x": _grid()["x"], "y": _grid()["y"], "w": SPECIAL.reshape(1, -1)}
    for node in (b.make("add", product, w), b.make("sub", product, w), b.make("sub", w, product)):
        graph = Graph({"a": node})
        got, want = (
            evaluate(g, values, len(SPECIAL), len(SPECIAL))["a"] for g in (contract(b, graph), graph)
        )
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_powers_are_shared_out() -> None:
    """Of r^3 one goes to the value, one into the sum of its products: no number is beyond the range if the result is not."""
    b = Builder(rules=local_rules)
    x, g, r, m = (
        b.load("x", Span.BOTH),
        b.load("g", Span.BOTH),
        b.load("r", Span.ROWS),
        b.load("m", Span.ROWS),
    )
    cube = b.make("mul", r, b.make("mul", r, r))
    values = {"x": torch.full((2, 4), 1e30), "g": torch.full((2, 4), 1e20), "r": torch.full((2, 1), 1e-30)}
    values = {n: v.float() for n, v in {**values, "m": torch.zeros(2, 1)}.items()}
    for factor in (x, b.make("sub", x, m)):
        total = b.make("sum", b.make("mul", factor, g), attr=Span.COLS)
        graph = Graph({"y": b.make("mul", x, b.make("mul", cube, total))})
        shared = regroup_powers(b, graph)
        assert [n.args[0].args for n in shared.nodes() if n.op == "sum"] == [(g, b.make("mul", factor, r))]
        assert not evaluate(graph, values, 2, 4)["y"].isfinite().any()
        torch.testing.assert_close(evaluate(shared, values, 2, 4)["y"], torch.full((2, 4), 4e-10))
        squared = Graph({"y": b.make("mul", x, b.make("mul", b.make("mul", r, r), total))})
        (kept,) = (n for n in regroup_powers(b, squared).nodes() if n.op == "sum")
        assert kept is total, "of r^2 none is left over for the sum"


def test_means_stay_in_range() -> None:
    b = Builder(rules=local_rules)
    x = b.load("x", Span.BOTH)

    def mean(v: Node) -> Node:
        return b.make("div", b.make("sum", v, attr=Span.COLS), b.size(Span.COLS))

    centred = b.make("sub", x, mean(x))
    residue = mean(centred)
    squares, square = mean(b.make("mul", centred, centred)), b.make("mul", residue, residue)
    variance = {"v": b.make("sub", squares, square)}
    graph = Graph({"m": mean(x), "r": residue, **variance})
    held = keep_means_in_range(b, graph, {"m", "r"})
    values = {"x": torch.full((2, 8), 3e38)}
    assert evaluate(graph, values, 2, 8)["m"].isinf().all()
    assert evaluate(held, values, 2, 8)["m"].isfinite().all()
    huge = {"x": torch.tensor([[3e38, 3e38, 3e38, 3e38, -1e38, -1e38, -1e38, -1e38]])}
    assert evaluate(held, huge, 1, 8)["r"].isfinite().all()
    alone = Graph({"m": mean(x)})
    assert keep_means_in_range(b, alone).results == alone.results, "nothing would give back what it loses"
    for seen in (
        {"r": residue},
        {"r": residue, **variance},
        {"m": mean(x), **variance},
        {"c": centred, **variance},
        {"y": b.make("sub", centred, residue)},
        {"y": b.make("mul", mean(x), x), **variance},
    ):
        by_itself = Graph(seen)
        assert keep_means_in_range(b, by_itself).results == by_itself.results, tuple(seen)
    folded = Graph({"v": b.make("fma", b.make("neg", residue), residue, squares)})
    assert keep_means_in_range(b, folded).results != folded.results


# ---- plans ----


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("gelu", ["x"]),
        ("silu", ["x"]),
        ("bias_gelu", ["x", "bias"]),
        ("layer_norm", ["x", "weight", "bias", "rstd", "mean", "residue"]),
        ("rms_norm", ["x", "weight", "rstd"]),
        ("add_layer_norm", ["weight", "bias", "residual_out", "rstd", "mean", "residue"]),
        ("softmax", ["y"]),
    ],
)
def test_what_is_saved(name: str, saved: list[str]) -> None:
    plan = plan_of(name)
    names = [what if kind == "arg" else plan.ops[1].returns[int(what)].name for kind, what in plan.saved]
    assert names == saved
    arguments = [a.name for a in plan.ops[2].arguments]
    assert [n for n in arguments if n in saved] == saved, "the backward takes what is saved, in that order"


@each_record
def test_every_combination_has_one_case(name: str) -> None:
    for op in plan_of(name).ops:
        axes: list[range] = []
        for a in op.arguments:
            if a.kind == "tensor" and a.optional:
                axes.append(range(2))
            elif a.choices:
                axes.append(range(len(a.choices)))
            elif a.kind == "mask":
                axes += [range(2)] * a.length
        expected = set(itertools.product(*axes))
        if op.name.endswith("_backward"):
            several = [
                i for i, a in enumerate(x for x in op.arguments if x.optional) if a.name.startswith("grad_")
            ]
            # Where every incoming gradient is absent autograd does not call.
            expected = {k for k in expected if not several or any(k[i] for i in several)}
        keys = [c.key for c in op.cases]
        assert len(keys) == len(set(keys))
        assert set(keys) == expected


@each_record
def test_schemas_parse_and_agree_with_the_plan(name: str) -> None:
    plan = plan_of(name)
    for op in plan.ops:
        schema = torch._C.parse_schema(f"avo::{op.schema}")
        assert [a.name for a in schema.arguments] == [a.name for a in op.arguments]
        assert len(schema.returns) == len(op.returns)
        primary = op.arguments[op.primary]
        assert primary.kind == "tensor" and primary.span == Span.BOTH and not primary.optional
        for case in op.cases:
            assert len(case.returned) == len(op.returns)
            verify(case.graph)
    assert str(torch._C.parse_schema(f"avo::{plan.ops[0].schema}")).startswith(f"avo::{name}(")


def _two_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    return x / (x * x).sum(-1, keepdim=True), x / torch.exp(x).sum(-1, keepdim=True)


def _reused_name(x: Tensor, s: Tensor) -> Tensor:
    s = s * (x * x).sum(-1, keepdim=True)
    return x * s


def test_statistics_keep_their_names_in_every_case() -> None:
    """Unnamed statistics are numbered, and which are needed depends on the incoming gradients."""
    plan = make_plan(record("two", _two_statistics, "(Tensor x) -> (Tensor a, Tensor b)", results=("a", "b")))
    assert check_plan(plan, random_values(8)) == 3
    plan = make_plan(record("reused", _reused_name, "(Tensor x, Tensor s) -> Tensor", spans={"s": "M"}))
    assert check_plan(plan, random_values(9)) == 4


def test_arguments_without_gradient_are_not_differentiable() -> None:
    plan = make_plan(record("stops", lambda x, z: x * z.detach(), "(Tensor x, Tensor z) -> Tensor"))
    assert plan.differentiable == ("x",)
    assert check_plan(plan, random_values(1)) == 1


def _turned(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    scale = torch.rsqrt((a * a + b * b).mean(-1, keepdim=True))
    return b * scale, a * scale


def test_an_operator_may_have_the_kernels_of_another() -> None:
    parts = {"x": ("a", "b"), "y": ("c", "d")}
    halves = record("halves", lambda x: _turned(x, False), parts=parts)
    pairs = replace(
        halves, name="pairs", definition=lambda x: _turned(x, True), interleaved=True, kernels="halves"
    )
    both, alone = generate([halves, pairs]), generate([halves])
    assert {k: v for k, v in both.files.items() if k != "plan.json"} == {
        k: v for k, v in alone.files.items() if k != "plan.json"
    }
    one, two = ([op["cases"] for op in entry["ops"]] for entry in both.plan["operators"])
    assert one == two and any(case["cuda"] and case["cpu"] for cases in one for case in cases)
    with pytest.raises(
        ValueError, match=r"^pairs: halves, whose kernels it has, is not before it in the catalogue$"
    ):
        generate([pairs])
    other = replace(pairs, definition=lambda x: _turned(x, True)[::-1])
    with pytest.raises(ValueError, match=r"^pairs: it computes something else than halves, whose kernels"):
        generate([halves, other])


def test_gradients_that_are_one_value_are_returned_once() -> None:
    plan = plan_of("add_layer_norm")
    assert plan.gradients == {"x": 0, "residual": 0, "weight": 1, "bias": 2}
    plan = make_plan(record("apart", lambda x, z: x + 2 * z, "(Tensor x, Tensor z) -> Tensor"))
    assert plan.gradients == {"x": 0, "z": 1}
    assert [r.dtype for r in plan.ops[2].returns] == ["grad", "z"], "each gradient has its tensor's dtype"


# ---- functions beyond the catalogue ----


def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(x)))


def _l2_normalize(x: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def _gemma_norm(x: Tensor, normalized_shape: list[int], weight: Tensor, eps: float = 1e-6) -> Tensor:
    rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * rstd * (1.0 + weight)


def _log_softmax(x: Tensor) -> Tensor:
    shifted = x - x.amax(-1, keepdim=True).detach()
    return shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))


def _scaled_softmax(x: Tensor, scale: float = 1.0) -> Tensor:
    logits = x * scale
    shifted = torch.exp(logits - logits.amax(-1, keepdim=True).detach())
    return shifted / shifted.sum(-1, keepdim=True)


def _nasty_names(x: Tensor, a: Tensor, p: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    column = (x * x).mean(-1, keepdim=True)
    count = torch.exp(x * p)
    first = column * a
    row = count * first
    m_exp = torch.tanh(row * scale)
    double = m_exp * torch.exp(x)
    return double + count, double * column


USERS: dict[str, OpDef] = {
    r.name: r
    for r in [
        record("mish", _mish, columns=FLAT),
        record("softplus_mish", lambda x: x * torch.tanh(F.softplus(x)), columns=FLAT),
        record("swiglu", lambda gate, up: F.silu(gate) * up, "(Tensor gate, Tensor up) -> Tensor", FLAT),
        record("l2_normalize", _l2_normalize),
        record("gemma_norm", _gemma_norm, "(Tensor x, SymInt[] normalized_shape, Tensor weight, float eps=1e-06) -> Tensor",
               trailing("normalized_shape"), spans={"weight": "N"}),
        record("log_softmax", _log_softmax),
        record("scaled_softmax", _scaled_softmax, "(Tensor x, float scale=1.0) -> Tensor"),
        record("relu_squared", lambda x: F.relu(x) ** 2, columns=FLAT),
        record("quick_gelu", lambda x: x * torch.sigmoid(1.702 * x), columns=FLAT),
        record("row_scale", lambda x, s: x * s, "(Tensor x, Tensor s) -> Tensor", spans={"s": "M"}),
        record("three", lambda x, z: (x * z, x + z, torch.sigmoid(x)), "(Tensor x, Tensor z) -> (Tensor a, Tensor b, Tensor c)",
               results=("a", "b", "c")),
        record("with_column_sum", lambda x: (torch.exp(x), (x * x).sum(0)), "(Tensor x) -> (Tensor a, Tensor b)", results=("a", "b")),
        record("logsumexp", lambda x: torch.logsumexp(x, -1, keepdim=True)),
        record("shift_by_max", lambda x: x - x.amax(-1, keepdim=True)),
        record("nasty", _nasty_names, "(Tensor x, Tensor a, Tensor p, float scale=1.0) -> (Tensor u, Tensor v)",
               spans={"a": "M", "p": "N"}, results=("u", "v")),
    ]
}  # fmt: skip

each_user = pytest.mark.parametrize("name", USERS)
_USER_PLANS: dict[str, Plan] = {}


def any_plan(name: str) -> Plan:
    if name in RECORDS:
        return plan_of(name)
    if name not in _USER_PLANS:
        _USER_PLANS[name] = make_plan(USERS[name])
    return _USER_PLANS[name]


@each_user
def test_functions_beyond_the_catalogue(name: str) -> None:
    plan = any_plan(name)
    assert check_plan(plan, random_values(11)) >= 1


# ---- emission ----

_EMITTED: dict[str, tuple[dict[str, Family], str, list[list[Any]]]] = {}


def emitted(name: str) -> tuple[dict[str, Family], str, list[list[Any]]]:
    """CUDA families, the C++ translation unit and the alternatives of each case."""
    if name not in _EMITTED:
        plan = any_plan(name)
        emitter, kernels, alternatives = Emitter(plan.record), {}, []
        for op in plan.ops:
            for case in op.cases:
                kernel = emit_cpu.emit(plan.record, case)
                if kernel is not None:
                    kernels[kernel.symbol] = kernel
                alternatives.append(emitter.alternatives(case, op))
        _EMITTED[name] = (
            emitter.families,
            translation_unit(name, list(kernels.values())),
            alternatives,
        )
    return _EMITTED[name]


EVERY = [*RECORDS, *USERS]
each = pytest.mark.parametrize("name", EVERY)

_DECLARATION = re.compile(
    r"(?<![<\w])(?:const )?(?:C|V|auto|int|bool|int64_t|Vec<\w, V>)[*&]? (?:const )?(\w+)(?=[ ;\[({)=,])"
)


def shadowed(text: str) -> list[str]:
    """Names that a block declares although it or an enclosing one has them."""
    text = re.sub(
        r"(?m)^(\s*)for \((.*?;).*\{$", r"\1{ \2", text
    )  # the variable of a loop belongs to its block
    text = re.sub(r"(?m)^\s*for \(.*[^{]$", "", text)
    text = re.sub(r"(?m)^(.*)\[&\]\((.*)\) \{$", r"\1{ \2;", text)  # and the parameters of a lambda
    scopes: list[set[str]] = [set()]
    found = []
    for code in (raw.split("//")[0] for raw in text.splitlines() if not raw.startswith("#")):
        at = 0
        for match in re.finditer(r"[{}]|$", code):
            for name in _DECLARATION.findall(code[at : match.start()]):
                if any(name in s for s in scopes):
                    found.append(name)
                scopes[-1].add(name)
            at = match.end()
            if match.group() == "{":
                scopes.append(set())
            elif match.group() == "}":
                scopes.pop()
    assert len(scopes) == 1
    return found


@each
def test_no_name_is_declared_twice(name: str) -> None:
    families, _, _ = emitted(name)
    assert families
    for family in families.values():
        body = family.text
        # A pass of a looped kernel declares its own tile; the prefetch is a function of its own row.
        assert [n for n in shadowed(body) if n not in ("row", "tile")] == [], family.name


@each
def test_no_trace_of_this_machine_or_of_old_ways(name: str) -> None:
    families, unit, _ = emitted(name)
    for text in (unit, *(f.text for f in families.values())):
        assert not re.search(r"\baligned\b", text)
        assert str(ROOT) not in text and str(Path.home()) + "/" not in text and sys.prefix not in text
        assert "nan" not in re.sub(r"quiet_nan", "", text.lower().split("namespace", 1)[1])


def test_cpp_compiles_without_warnings(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    flags = [
        "-std=c++20",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Werror",
        "-march=x86-64-v3",
        f"-I{ROOT / 'avo_ops' / 'csrc'}",
    ]
    flags += ["-DAVO_ISA_NAMESPACE=avo_v3", "-DAVO_ISA_SUFFIX=v3"]
    files = []
    for name in [*REPRESENTATIVES, *USERS]:
        files.append(tmp_path / f"{name}.cpp")
        files[-1].write_text(emitted(name)[1])
    done = subprocess.run(["g++", *flags, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


# One family for each schedule class, and those with names that a careless author would choose.
COMPILED = [
    "silu_forward", "softmax_forward", "softmax_forward_loop", "gemma_norm_backward", "gemma_norm_backward_to_weight",
    "gemma_norm_backward_to_weight_finish", "row_scale_forward", "with_column_sum_forward", "logsumexp_backward",
    "nasty_forward", "nasty_forward_loop", "nasty_backward",
]  # fmt: skip


@pytest.mark.parametrize("family", COMPILED)
def test_cuda_compiles(family: str) -> None:
    try:
        nvrtc.load()
    except nvrtc.NvrtcError:
        pytest.skip("NVRTC is not installed")
    owner = max((n for n in EVERY if family.startswith(f"{n}_")), key=len)
    found = emitted(owner)[0][family]
    lines = found.instantiations()
    chosen = [lines[0], lines[-1]]
    source = found.text + "\n" + "\n".join(dict.fromkeys(chosen)) + "\n"
    assert build.compile_source(family, source, "sm_90")


def test_golden_flat_kernel() -> None:
    text = emitted("relu_squared")[0]["relu_squared_backward"].text
    assert_expected_inline(
        text,
        """\
// Generated, do not edit. avo::relu_squared_backward: flat kernel; formula: relu_squared_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION relu_squared_backward
#define AVO_ARGUMENTS x_ptr, grad_ptr, grad_x_ptr, N
#define AVO_PARAMETERS(X, ...) \\
  const X* __restrict__ x_ptr, const X* __restrict__ grad_ptr, X* __restrict__ grad_x_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void relu_squared_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(grad_ptr, 0) && starts_at_chunk<V>(grad_x_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> x_vec[P];
    tile.load(x_vec, x_ptr);
    Vec<X, V> grad_vec[P];
    tile.load(grad_vec, grad_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t1 = m_max(x_vec[p][j], C(0.0));
        grad_x_out[j] = m_where(m_le(t1, C(0.0)), C(0.0), t1 * C(2.0) * grad_vec[p][j]);
      }
      tile.store(grad_x_ptr, p, grad_x_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo
""",
    )


def test_golden_row_kernel() -> None:
    text = emitted("l2_normalize")[0]["l2_normalize_forward"].text
    assert_expected_inline(
        text,
        """\
// Generated, do not edit. avo::l2_normalize_forward: row kernel
// x / max(sqrt(sum(x^2)), eps)
// Source: Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, arXiv:1704.06369
#include "device/avo.cuh"

#define AVO_FUNCTION l2_normalize_forward
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, scale_ptr, norm_ptr, eps, M, N
#define AVO_PARAMETERS(X, ...) \\
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, \\
  compute_t<X>* __restrict__ scale_ptr, compute_t<X>* __restrict__ norm_ptr, compute_t<X> eps, int64_t M, \\
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void l2_normalize_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(x_to);
    }
  };
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      fetch(row + rows.step, x_next);
    } else {
      fetch(row, x_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      t1.add_product(x_vec[p][j], x_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C norm = m_sqrt(t1.total);
    const C t2 = m_max(eps, norm);
    const C scale = m_recip(t2);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
    if (live && thread == 0 && norm_ptr) norm_ptr[row] = norm;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        y_out[j] = m_quotient<A>(x_vec[p][j], t2, scale);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo
""",
    )


def test_the_runtime_gives_buffers_of_the_size_that_kernels_use() -> None:
    header = (build.CSRC / "cpu" / "abi.h").read_text()
    assert (
        f"#define AVO_POINTWISE_BLOCK {emit_cpu.BLOCK}\n" in header and emit_cpu.COLUMNS % emit_cpu.BLOCK == 0
    )


def test_the_counts_of_an_operator_are_those_that_the_runtime_takes() -> None:
    header = (build.CSRC / "runtime" / "table.h").read_text()
    assert f"kMaxOperands = {pipeline.MOST_OPERANDS};" in header
    assert f"kMaxReturns = {pipeline.MOST_RETURNS};" in header


def test_golden_cpu_kernel() -> None:
    unit = emitted("row_scale")[1]
    text = unit[unit.index("void row_scale_backward(") :].split("\n}\n")[0]
    assert_expected_inline(
        text,
        """\
void row_scale_backward(AVO_PARAMETERS) {
  using V = Vec<C>;
  const RowBuffers<C> buffer(a, scratch);
  const int64_t N = a->N;
  for (RowPanel panel(a, row_begin, row_end); panel.begin < panel.end; panel.advance()) {
    load_panel<C>(a, 0, panel, buffer(0));
    load_panel<C>(a, 1, panel, buffer(1));
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const C* grad_row = load_row<C>(a, 0, row, panel, buffer(0));
      const C* x_row = load_row<C>(a, 1, row, panel, buffer(1));
      C* grad_x_row = open_row<C>(a, 3, row, panel, buffer(2));
      const C s = load_stat<C>(a, 2, row);
      V t1_lanes(C(0));
      for (int64_t c0 = 0; c0 < N; c0 += kSumBlock) {
        V t1_block[2] = {V(C(0)), V(C(0))};
        sweep_pairs<C>(c0, block_end(c0, N), [&](int64_t c, auto part, auto chain) AVO_LAMBDA {
          const V x = part.load(x_row + c);
          const V grad = part.load(grad_row + c);
          t1_block[chain] = part.sum(t1_block[chain], x, grad);
        });
        t1_lanes = t1_lanes + (t1_block[0] + t1_block[1]);
      }
      const C t1 = hsum(t1_lanes);
      store_stat<C>(a, 4, row, t1);
      sweep<C>(0, N, [&](int64_t c, auto part) AVO_LAMBDA {
        const V grad = part.load(grad_row + c);
        part.store(grad_x_row + c, V(s) * grad);
      });
      close_row<C>(a, 3, row, panel, grad_x_row);
    }
    store_panel<C>(a, 3, panel, buffer(2));
  }""",
    )


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256("\0".join(f"{p}\0{t}" for p, t in sorted(files.items())).encode()).hexdigest()


_SAME = ["softmax", "bias_gelu"]


def test_the_same_bytes_again_and_elsewhere(tmp_path: Path) -> None:
    records = [RECORDS[n] for n in _SAME]
    here = _digest(generate(records).files)
    assert _digest(generate(records).files) == here
    script = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1])\n"
        "from avo_ops.definitions import CATALOGUE; from avo_ops.generator.pipeline import generate\n"
        f"files = generate([r for n in {_SAME!r} for r in CATALOGUE if r.name == n]).files\n"
        "print(hashlib.sha256('\\0'.join(f'{p}\\0{t}' for p, t in sorted(files.items())).encode()).hexdigest())\n"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == here


def test_a_changed_definition_changes_the_sources() -> None:
    silu = RECORDS["silu"]
    files = generate([silu]).files
    assert generate([replace(silu, definition=lambda x: x * torch.sigmoid(2 * x))]).files != files


# ---- schedules ----


def every_family() -> Iterator[Family]:
    for name in EVERY:
        yield from emitted(name)[0].values()


def variants() -> Iterator[tuple[Family, str, dict[str, Any]]]:
    for family in every_family():
        for dtypes, rows in family.variants.items():
            for variant in rows:
                yield family, dtypes, variant


@pytest.mark.parametrize(
    ("what", "is_joined"),
    [
        ("sum", True),
        ("random", True),
        ("one operand", False),
        ("column operand", False),
        ("used apart", False),
        ("no result", False),
        ("after a reduction", False),
    ],
)
def test_what_several_operands_become_is_kept_in_their_place(what: str, is_joined: bool) -> None:
    b = Builder()
    x, other = b.load("x", Span.BOTH), b.load("r", Span.BOTH)
    if what == "random":
        other = b.make("uniform", b.load("seed", Span.ROWS), b.column())
    elif what == "one operand":
        other = b.const(2.0)
    elif what == "column operand":
        other = b.make("mul", other, b.load("w", Span.COLS))
    elif what == "after a reduction":
        other = b.make("mul", other, b.make("sum", x, attr=Span.COLS))
    total = b.make("add", x, other)
    rounded = b.make("round_result", total, attr="total")
    y = b.make("sub", rounded, b.make("sum", rounded, attr=Span.COLS))
    if what == "used apart":
        y = b.make("mul", y, x)
    graph = Graph({"y": y} if what == "no result" else {"y": y, "total": total})
    assert joined(graph) == ([rounded] if is_joined else [])
    features = Features.of(graph)
    assert features.held == (1 if is_joined else features.row_loads)


@pytest.mark.parametrize(
    "what", ["x", "sum of operands", "float place", "other rest", "uniform", "other mask", "of runs"]
)
def test_a_sum_over_one_column_is_a_load_of_it(what: str) -> None:
    b = Builder()
    x, place = b.load("x", Span.BOTH), b.load("t", Span.ROWS)
    value = {
        "sum of operands": b.make("add", b.make("mul", x, b.load("w", Span.COLS)), b.column()),
        "uniform": b.make("uniform", b.load("seed", Span.ROWS), b.column()),
    }.get(what, x)
    here = b.make("eq", place if what != "other mask" else x, b.column())
    rest = b.const(1.0 if what == "other rest" else 0.0)
    total = b.make("sum", b.make("where", here, value, rest), attr=Span.COLS)
    before = Graph({"y": b.make("sub", total, b.make("amax", x, attr=Span.COLS))})
    after = pick_columns(b, before, () if what in ("float place", "of runs") else ("t",))
    verify(after)
    picked = [n for n in after.nodes() if n.op == "pick"]
    assert bool(picked) == (what in ("x", "sum of operands"))
    if picked:
        values = {"x": torch.randn(4, 9), "w": torch.randn(1, 9), "t": torch.tensor([[0], [8], [-1], [9]])}
        assert torch.equal(evaluate(after, values, 4, 9)["y"], evaluate(before, values, 4, 9)["y"])


def test_reductions_that_can_wait_are_made_together() -> None:
    b = Builder()
    x, t = b.load("x", Span.BOTH), b.load("t", Span.BOTH)
    largest = b.make("amax", x, attr=Span.COLS)
    early = b.make("sum", t, attr=Span.COLS)
    late = b.make("sum", b.make("abs", b.make("sub", x, largest)), attr=Span.COLS)
    waits = Graph({"y": b.make("sub", late, early)})
    assert [merged_phases(waits)[n.index] for n in (largest, early, late)] == [1, 2, 2]
    # What the second phase needs cannot wait, nor does what is of another kind, or alone in its phase.
    needed = b.make("sum", b.make("mul", b.make("sub", x, largest), early), attr=Span.COLS)
    assert merged_phases(Graph({"y": needed}))[early.index] == 1
    other = b.make("amin", t, attr=Span.COLS)
    assert merged_phases(Graph({"y": b.make("sub", late, other)}))[other.index] == 1
    alone = b.make("sum", b.make("sub", x, early), attr=Span.COLS)
    assert merged_phases(Graph({"y": alone, "z": b.make("neg", early)}))[early.index] == 1


def test_sums_of_exponentials_go_with_their_maximum() -> None:
    b = Builder()
    x, w = b.load("x", Span.BOTH), b.load("w", Span.COLS)
    largest = b.make("amax", x, attr=Span.COLS)
    total = b.make("sum", b.make("exp", b.make("sub", x, largest)), attr=Span.COLS)
    graph = Graph({"y": b.make("log", total)})
    assert online_sums(graph.nodes()) == {total.index: largest} and Features.of(graph).single_pass
    assert online_phases(graph.nodes(), online_sums(graph.nodes()))[total.index] == 1
    stored = Graph({"y": b.make("mul", x, total)})
    assert online_sums(stored.nodes()) and not Features.of(stored).single_pass
    for one in (
        b.make("sub", b.make("mul", x, w), largest),
        b.make("sub", x, b.make("amax", w, attr=Span.COLS)),
    ):
        other = b.make("sum", b.make("exp", one), attr=Span.COLS)
        assert not online_sums(Graph({"y": other}).nodes())
        assert not Features.of(Graph({"y": b.make("log", other)})).single_pass


def test_ladders_ascend() -> None:
    features = [
        Features(a, 1, c, r, p, s)
        for a in (1, 2, 3, 5)
        for c in (0, 2)
        for r, p in ((1, 1), (3, 2))
        for s in (0, 2)
    ]
    for item in set(ITEM_SIZE.values()):
        for f in features:
            pointwise = [t.max_n for t in schedule.pointwise_ladder(f, item)[:-1]]  # cut in tiles of columns
            assert pointwise == sorted(set(pointwise)) and all(w > 0 for w in pointwise)
            ladders = [schedule.sums_ladder(f, item)]
            ladders += [
                schedule.row_ladder(f, item, w, sums)
                for w in (item, 4)
                for sums in (False, True)
                if w >= item
            ]
            for ladder in ladders:
                widths = [t.max_n for t in ladder]
                assert widths == sorted(set(widths)) and all(w > 0 for w in widths)
                for t in ladder:
                    assert t.threads * t.vectors * (16 // item) >= t.max_n, "the row fits the registers"
                    assert t.block % t.threads == 0 and t.rows == t.block // t.threads


def test_schedules_are_pure() -> None:
    f = Features(2, 1, 1, 2, 1, 2)
    assert schedule.row_ladder(f, 2, 4) == schedule.row_ladder(f, 2, 4)
    assert "torch" not in vars(schedule), "no device is asked"


def test_every_width_has_one_generic_variant() -> None:
    """For each dtype of each alternative of each case: N from 1 to its limit, or to any width."""
    checked = 0
    for name in EVERY:
        families, _, cases = emitted(name)
        for alternatives in cases:
            for alternative in alternatives:
                for step in alternative["steps"]:
                    for dtypes, rows in families[step["family"]].variants.items():
                        x = dtypes.split(",")[0]
                        limit = (alternative["limit"] or {}).get(x)
                        generic = [(v["min_n"], v["max_n"]) for v in rows if v["exact"] is None]
                        covered = torch.zeros(200_002, dtype=torch.int8)
                        for least, most in generic:
                            covered[least : min(most, 200_000) + 1] += 1
                        until = min(limit or ANY, 200_000)
                        # A cluster takes over where one block ends: an alternative before it serves narrower rows.
                        first = min(m for m, _ in generic) if alternative["min_arch"] else 1
                        assert bool((covered[first : until + 1] == 1).all()), (
                            step["family"],
                            dtypes,
                            generic,
                        )
                        assert max(m for _, m in generic) >= (limit or ANY)
                        checked += 1
            if alternatives:
                assert any(a["limit"] is None and a["when"] == "rows" for a in alternatives), (
                    "the last resort takes any width"
                )
    assert checked > 100


@each
def test_cases_of_one_op_share_their_thread_map(name: str) -> None:
    """A row's gradient must not change by a bit with the set of tensors that require grad."""
    families, _, _ = emitted(name)
    plan, cases = any_plan(name), iter(emitted(name)[2])
    for op in plan.ops:
        of_op = [a for _, a in zip(op.cases, cases, strict=False)]
        # What a call is given besides is another computation.
        given = [
            a.name
            for a in op.arguments
            if a.kind == "str" or (a.optional and a.span == Span.BOTH and not a.name.startswith("grad_"))
        ]
        groups: dict[Any, list[Any]] = {}
        for case, a in zip(op.cases, of_op, strict=True):
            if Features.of(case.graph).reductions:
                chosen = selection(op, case)
                groups.setdefault(tuple(chosen[n] for n in given), []).append(a)
        for reducing, x in itertools.product(groups.values(), DTYPES):
            for n in [
                1,
                64,
                65,
                256,
                1000,
                1024,
                1025,
                2048,
                4096,
                4097,
                8192,
                8193,
                16384,
                16385,
                65536,
                200_000,
            ]:
                chunk = 16 // ITEM_SIZE[x]
                threads = set()
                for alternatives in reducing:
                    rows = next(
                        rows
                        for a in alternatives
                        if a["limit"] is None or n <= a["limit"][x]
                        for d, rows in families[a["steps"][0]["family"]].variants.items()
                        if d.split(",")[0] == x
                    )
                    held = [v for v in rows if v["min_n"] <= n <= v["max_n"]]
                    odd = [v for v in held if v["exact"] == "odd" and n % chunk]
                    threads |= {
                        (v["vec"], _tile_of(v)["threads"])
                        for v in odd or [v for v in held if v["exact"] is None]
                    }
                assert len(threads) <= 1, (op.name, x, n, threads)


def _tile_of(variant: dict[str, Any]) -> dict[str, int]:
    arguments = variant["instantiate"].removeprefix("AVO_KERNEL(").removesuffix(")").split(", ")
    numbers = [int(a) for a in arguments if a.isdigit()]
    return dict(zip(("block", "min_blocks", "threads", "vectors", "exact"), numbers, strict=False))


def test_blocks_are_within_the_limits_of_a_gpu() -> None:
    for family, dtypes, v in variants():
        tile = _tile_of(v)
        assert tile["block"] == v["block"] <= 1024, family.name
        if family.kind == "finish":
            continue
        assert tile["block"] * tile["min_blocks"] <= 2048, "threads of an SM"
        few = (1,) if family.kind == "runs" else (192, 384, 640) if v["exact"] == "few" else ()
        assert tile["threads"] in (*few, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
        assert v["vec"] == (1 if v["exact"] == "odd" else 16 // ITEM_SIZE[dtypes.split(",")[0]])
        if family.kind == "row" and not v["cols"]:
            assert tile["threads"] * tile["vectors"] * v["vec"] >= v["max_n"], family.name
        if family.kind not in ("flat", "loop"):
            assert v["rows"] == max(1, tile["block"] // tile["threads"])
            assert v["cluster"] == max(1, tile["threads"] // tile["block"]) <= 8
        if v["cols"]:
            assert v["cols"] == tile["threads"] * tile["vectors"] * v["vec"]


def parts_of(variant: dict[str, Any]) -> int:
    """The threads that share what is one thread's in the map of the row."""
    found = re.search(r"of(\d+)$", variant["symbol"])
    return int(found.group(1)) if found else 1


def static_shared(family: Family, dtypes: str, variant: dict[str, Any]) -> int:
    """Bytes of static shared memory, from the template and the sizes in csrc/device."""
    tile, c = _tile_of(variant), 8 if dtypes.startswith("f64") else 4
    if family.kind == "finish":
        return variant["block"] // 32 * 33 * c * family.text.count("finish_column<")
    most = re.search(r"RowScratch<C, kBlock, T, (\d+)", family.text)
    warps = tile["block"] // 32 if tile["threads"] > 32 else 1
    parts = tile["block"] if parts_of(variant) > 1 else 1
    total = 2 * int(most.group(1)) * (warps + parts) * c if most else 0
    if "__shared__ C shared[" in family.text and tile["block"] > tile["threads"]:
        total += tile["threads"] * tile["vectors"] * variant["vec"] * c
    return total


def test_static_shared_memory_is_below_48_kb() -> None:
    sizes = {(f.name, v["symbol"]): static_shared(f, d, v) for f, d, v in variants()}
    assert max(sizes.values()) <= 48 * 1024, max(sizes, key=lambda k: sizes[k])
    assert any(sizes.values()), "some kernel has shared memory"


def test_symbols_are_unique() -> None:
    lines: dict[str, set[str]] = {}
    for _, _, v in variants():
        lines.setdefault(v["symbol"], set()).add(v["instantiate"])
    assert all(len(found) == 1 for found in lines.values())


def test_every_primitive_has_a_meaning_for_evaluation() -> None:
    for name, primitive in PRIMITIVES.items():
        arity = primitive.spelling.count("{")
        b = Builder()
        args = [b.load(n, Span.BOTH) for n in "xyz"[:arity]]
        for i in {"and": (0, 1), "or": (0, 1), "not": (0,), "where": (0,)}.get(name, ()):
            args[i] = b.make("gt", args[i], b.const(0.0))
        if name == "iwhere":
            args[0] = b.make("gt", args[0], b.const(0.0))
        made = name in ("whole", "to_whole")  # an integer, of something else
        if not made and (primitive.result == "whole" or name in ("to_math", "ilt", "ile", "ieq", "ine")):
            args = [a if a.is_mask else b.make("whole", a) for a in args]
        values = {n: torch.rand(M, N, dtype=torch.float64) + 1.5 for n in "xyz"}
        if name == "uniform":
            args = [b.load("x", Span.ROWS), b.column()]
            values["x"] = torch.arange(M).reshape(M, 1)
        out = evaluate(Graph({"a": b.make(name, *args)}), values, M, N)["a"]
        assert out.shape == (M, N)
        assert (out.dtype == torch.bool) == (primitive.result == "mask")
        assert (out.dtype == torch.int64) == (primitive.result == "whole")


def test_dtypes_of_the_tables() -> None:
    for family in every_family():
        keys = set(family.variants)
        if family.name.endswith("_cluster"):  # the alternative after it serves float64
            assert {k.split(",")[0] for k in keys} == {"f32", "f16", "bf16"}
        elif any("," in k for k in keys):
            assert {k.split(",")[0] for k in keys} == set(DTYPES)
        else:
            assert keys == set(DTYPES)
