"""The registered operators as PyTorch citizens, every op of the catalogue; then the kernel store."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.utils
import torch.nn.functional as F
from catalogue import REPRESENTATIVES, STEPS, is_narrow, real
from torch.utils._python_dispatch import TorchDispatchMode

import avo_ops
from avo_ops import plan_file
from avo_ops.definitions import CATALOGUE, FLAT, LAST, OpDef, Sample
from avo_ops.registry import register_operator
from avo_ops.registry.layout import NAMED
from avo_ops.registry.plan import Operator, generated_folder, operator_from_json
from avo_ops.registry.store import KernelStore, cache_key, default_cache_folder

FOLDER = generated_folder()
assert FOLDER is not None
OPERATORS = {d["name"]: operator_from_json(d) for d in plan_file.load(FOLDER)["operators"]}
RECORDS = {r.name: r for r in CATALOGUE}
SCRATCH: list[torch.library.Library] = []


def register_scratch(operator: Operator, record: OpDef) -> Any:
    """An operator in a namespace of its own, for as long as the process runs: torch 2.11 can crash where one is taken away."""
    SCRATCH.append(torch.library.Library(f"avo_test_{len(SCRATCH)}", "DEF"))
    register_operator(SCRATCH[-1], operator, record)
    return getattr(torch.ops, SCRATCH[-1].ns)


@dataclass(frozen=True)
class Call:
    """One sample of one operator: how to make its arguments, and what it computes."""

    record: OpDef
    sample: Sample

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.record.name]

    @property
    def op(self) -> Any:
        return getattr(torch.ops.avo, self.record.name).default

    @property
    def forward(self) -> Any:
        return getattr(torch.ops.avo, f"{self.record.name}_forward").default

    @property
    def backward(self) -> Any:
        return getattr(torch.ops.avo, f"{self.record.name}_backward").default

    @property
    def kinds(self) -> list[str]:
        return [a.kind for a in self.operator.public.arguments]

    def args(self, dtype: Any = torch.float64, seed: int = 0, rows: int | None = None) -> list[Any]:
        """All arguments; tensors in ``dtype`` (by name, if a dict). ``rows`` replaces the first size."""
        arguments = self.operator.public.arguments
        values = list(self.sample.args) + [None] * (len(arguments) - len(self.sample.args))
        for i, a in enumerate(arguments):
            if i >= len(self.sample.args):
                values[i] = self.sample.kwargs.get(a.name, self.operator.public.defaults[i])
        generator = torch.Generator().manual_seed(seed)
        for i, a in enumerate(arguments):
            if a.kind == "tensor" and values[i] is not None:
                shape = list(values[i])
                if rows is not None and self.has_rows(a) and shape:
                    shape[0] = rows
                if a.narrow:  # int8: opcheck compares, which torch does not for e4m3
                    wide = torch.randn(shape, generator=generator) * 30
                    values[i] = wide.clamp(-128, 127).to(a.narrow[-1])
                    continue
                if a.integer:
                    columns = self.sample.args[0][-1]
                    values[i] = torch.randint(columns, shape, generator=generator)
                    continue
                wide = torch.randn(shape, dtype=torch.float64, generator=generator)
                wide = wide.abs() / 30 if a.span == "1" else wide
                values[i] = wide.to(dtype[a.name] if isinstance(dtype, dict) else dtype)
            elif a.kind == "ints":
                values[i] = list(values[i])
        return values

    def has_rows(self, a: Any) -> bool:
        """Whether the first size of the argument is that of the call; what broadcasts to it keeps its own."""
        place = [x.name for x in self.operator.public.arguments].index(a.name)
        shapes = [s for s in self.sample.args if isinstance(s, tuple)]
        own = self.sample.args[place] if place < len(self.sample.args) else self.sample.kwargs[a.name]
        return a.span in ("MN", "M") and len(own) == len(shapes[0]) and own[0] == shapes[0][0]

    def inputs(self, args: list[Any]) -> list[int]:
        """The positions of all tensors."""
        return [i for i, kind in enumerate(self.kinds) if kind == "tensor" and args[i] is not None]

    def tensors(self, args: list[Any]) -> list[int]:
        """The positions of those that have a gradient."""
        return [i for i in self.inputs(args) if self.operator.gradients[i] is not None]

    def of_tensors(self, args: list[Any], function: Any = None, places: list[int] | None = None) -> Any:
        """``function`` (the op by default) of the tensors (at ``places``) alone."""
        places, function = self.tensors(args) if places is None else places, function or self.op

        def run(*tensors: torch.Tensor) -> Any:
            full = list(args)
            for i, t in zip(places, tensors, strict=True):
                full[i] = t
            return function(*full)

        return run

    def leaves(self, args: list[Any]) -> list[torch.Tensor]:
        return [args[i].clone().requires_grad_() for i in self.tensors(args)]

    def definition(self, *args: Any) -> Any:
        """The author's definition in float64."""
        wide = [a.to(torch.float64) if real(a) or is_narrow(a) else a for a in args]
        dtype = (
            torch.float64
            if any(t.dtype == torch.float64 for t in args if isinstance(t, torch.Tensor))
            else None
        )
        for i, a in enumerate(self.operator.public.arguments):
            if wide[i] is None and a.kind == "float":
                wide[i] = self.record.none_scalars[a.name](dtype or torch.float32)
        return self.record.compute(*wide)

    def __str__(self) -> str:
        return f"{self.record.name}{self.record.samples.index(self.sample)}"


# What registration does depends on the structure of operators, not on their formulas.
ALL_CALLS = [Call(RECORDS[name], sample) for name in REPRESENTATIVES for sample in RECORDS[name].samples]
ALL_FIRST = [Call(RECORDS[name], RECORDS[name].samples[0]) for name in REPRESENTATIVES]
CALLS = [call for call in ALL_CALLS if call.record.differentiation == "kernels"]
FIRST = [call for call in ALL_FIRST if call.record.differentiation == "kernels"]
all_calls = pytest.mark.parametrize("call", ALL_CALLS, ids=str)
all_first = pytest.mark.parametrize("call", ALL_FIRST, ids=str)
calls = pytest.mark.parametrize("call", CALLS, ids=str)
first = pytest.mark.parametrize("call", FIRST, ids=str)
by_name = {c.record.name: c for c in reversed(CALLS)}

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1.1e-3, torch.bfloat16: 9e-3}


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def result_dtype(call: Call, name: str, args: list[Any]) -> torch.dtype:
    names = [a.name for a in call.operator.public.arguments]
    source = call.record.dtypes.get(name, names[0])
    if source in names and isinstance(args[names.index(source)], str):
        source = args[names.index(source)]
    if source in NAMED:
        return NAMED[source]
    if source != "compute":
        return args[names.index(source)].dtype
    return torch.float64 if any(real(a) and a.dtype == torch.float64 for a in args) else torch.float32


def scalar(value: Any) -> torch.Tensor:
    """A number that depends on every result, in a way that is not linear."""
    return sum((r.to(torch.float64) * (i + 1)).sin().sum() for i, r in enumerate(as_tuple(value)))


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    found, expected = as_tuple(found), as_tuple(expected)
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert (f is None) == (e is None)
        if f is not None and f.dtype in STEPS:
            assert (STEPS[f.dtype](f) - STEPS[f.dtype](e)).abs().max() <= (tolerance > 0)
        elif f is not None:
            torch.testing.assert_close(f.double(), e.double(), rtol=tolerance, atol=tolerance)


# ---- values ----


@all_calls
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_value(call, dtype):
    args = call.args(dtype)
    expected = as_tuple(call.definition(*args))
    with torch.no_grad():
        found = as_tuple(call.op(*args))
        forward = as_tuple(call.forward(*args))[: len(found)]
        stated = as_tuple(getattr(torch.ops.avo, call.record.name).definition(*args))
    for results in (found, forward, stated):
        for name, r, e in zip(call.record.results, results, expected, strict=True):
            assert r.dtype == result_dtype(call, name, args) and r.shape == e.shape
            assert r.is_contiguous()
        for r, e in zip(results, expected, strict=True):
            close(r, e, max(TOLERANCE[dtype], TOLERANCE.get(r.dtype, 0.0)))


@calls
def test_gradient_value(call):
    args = call.args()
    ours, theirs = call.leaves(args), call.leaves(args)
    found = torch.autograd.grad(scalar(call.of_tensors(args)(*ours)), ours)
    close(found, torch.autograd.grad(scalar(call.of_tensors(args, call.definition)(*theirs)), theirs))


def all_patterns(call: Call) -> list[list[Any]]:
    """The call with each optional tensor there and not, and each string choice."""
    args, choices = call.args(), []
    arguments = call.operator.public.arguments
    n_shape = next((args[i].shape for i in call.inputs(args) if arguments[i].span == "N"), args[0].shape[-1:])
    shapes = {"MN": args[0].shape, "M": (*args[0].shape[:-1], 1), "N": n_shape}
    for a, value in zip(arguments, args, strict=True):
        if a.kind == "tensor" and a.optional:
            made = torch.randn(shapes[a.span], dtype=torch.float64)
            there = torch.randint(args[0].shape[-1], shapes[a.span]) if a.integer else made
            choices.append([None, there if value is None else value])
        else:
            choices.append(list(a.choices) if a.kind == "str" else [value])
    return [list(c) for c in itertools.product(*choices)]


@first
def test_every_case_is_the_gradient_of_the_definition(call):
    """Each expression of the forward and backward op, against autograd of the definition, in float64."""
    operator, seen = call.operator, set()
    forward = getattr(torch.ops.avo, operator.forward.name).definition
    backward = getattr(torch.ops.avo, operator.backward.name).definition
    count = len(operator.public.returns)
    for args in all_patterns(call):
        results = as_tuple(forward(*args))
        leaves = call.leaves(args)
        outputs = as_tuple(call.of_tensors(args, call.definition)(*leaves))
        close(results[:count], outputs)
        saved = [args[i] if kind == "arg" else results[i] for kind, i in operator.saved]
        plain = [args[i] for i, kind in enumerate(call.kinds) if kind != "tensor"]
        width = len(operator.backward.returns)
        for used in itertools.product((True, False), repeat=count):
            if not any(used) or (count == 1 and not all(used)):
                continue
            grads = [torch.randn_like(o) if u else None for o, u in zip(outputs, used, strict=True)]
            pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
            if not operator.backward.arguments[0].optional:  # autograd passes zeros
                grads = [torch.zeros_like(o) if g is None else g for o, g in zip(outputs, grads, strict=True)]
            roots, incoming = zip(*pairs, strict=True)
            of_leaves = torch.autograd.grad(roots, leaves, incoming, allow_unused=True, retain_graph=True)
            expected = dict(zip(call.tensors(args), of_leaves, strict=True))
            for mask in itertools.product((True, False), repeat=width):
                call_args = (*grads, *saved, *plain, list(mask))
                case = operator.backward.case(call_args)
                found = as_tuple(backward(*call_args))
                if any(mask) and case is not None:
                    seen.add(id(case))
                for i, place in enumerate(operator.gradients):
                    wanted = expected.get(i) if place is not None and mask[place] else None
                    if place is None:
                        continue
                    if not mask[place] and found[place] is not None:
                        # Gradients that vary along the rows may come together where one is asked for.
                        spans = [r.span for r in operator.backward.returns]
                        asked = [span for span, m in zip(spans, mask, strict=True) if m]
                        assert case.returned[place] and spans[place] != "N" and set(asked) - {"N"}
                    elif wanted is None or not wanted.any():
                        assert found[place] is None or not found[place].any()
                    else:
                        close(found[place].sum_to_size(wanted.shape), wanted)
    assert len(seen) == sum(any(key[-width:]) for key in operator.backward.cases)


@calls
def test_gradcheck(call):
    args = call.args()
    torch.autograd.gradcheck(
        call.of_tensors(args),
        call.leaves(args),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=True,
    )
    torch.autograd.gradgradcheck(
        call.of_tensors(args), call.leaves(args), check_batched_grad=True, fast_mode=True
    )


@first
def test_gradcheck_of_the_forward_and_backward_ops(call):
    args = call.args()
    torch.autograd.gradcheck(call.of_tensors(args, call.forward), call.leaves(args), fast_mode=True)
    inputs = backward_inputs(call, args)
    places = [i for i, v in enumerate(inputs) if real(v)]

    def function(*tensors):
        full = list(inputs)
        for i, t in zip(places, tensors, strict=True):
            full[i] = t
        return tuple(r for r in as_tuple(call.backward(*full)) if r is not None)

    leaves = [inputs[i].detach().requires_grad_() for i in places]
    torch.autograd.gradcheck(function, leaves, check_forward_ad=True, fast_mode=True)
    # A bias is saved for its presence alone; gradgradcheck does not take inputs that nothing depends on.
    influences = torch.autograd.grad(scalar(function(*leaves)), leaves)
    leaves = [t if i.any() else t.detach() for t, i in zip(leaves, influences, strict=True)]
    torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


def backward_inputs(call: Call, args: list[Any]) -> list[Any]:
    operator = call.operator
    with torch.no_grad():
        results = as_tuple(call.forward(*args))
    count = len(operator.public.returns)
    # Off the kink where results lie, such as the zeros of relu.
    results = (*(r + 0.1 for r in results[:count]), *results[count:])
    saved = [args[i] if kind == "arg" else results[i] for kind, i in operator.saved]
    plain = [args[i] for i, kind in enumerate(call.kinds) if kind != "tensor"]
    return [
        *(torch.randn_like(r) for r in results[:count]),
        *saved,
        *plain,
        [True] * len(operator.backward.returns),
    ]


@calls
def test_third_derivative(call):
    args = call.args()

    def third(function, leaves):
        value = scalar(function(*leaves))
        for _ in range(3):
            value = scalar(torch.autograd.grad(value, leaves, create_graph=True))
        return value

    found = third(call.of_tensors(args), call.leaves(args))
    close(found, third(call.of_tensors(args, call.definition), call.leaves(args)), 1e-7)


# ---- opcheck ----


@all_calls
def test_opcheck(call):
    args = call.args(torch.float32)
    ops = [(call.op, args), (call.forward, args)]
    if call.operator.backward is not None:
        ops.append((call.backward, backward_inputs(call, args)))
    for op, inputs in ops:
        torch.library.opcheck(op, [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs])
        wanted = [v.clone().requires_grad_() if real(v) else v for v in inputs]
        torch.library.opcheck(op, wanted)


@pytest.mark.parametrize("call", [call for call in ALL_FIRST if not call.record.narrow], ids=str)
def test_opcheck_of_mixed_dtypes_and_strides(call):
    args = call.args(torch.float32)
    args = [v.bfloat16() if i == 0 else v for i, v in enumerate(args)]
    args[0] = args[0].transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
    torch.library.opcheck(call.op, args)


# ---- torch.func ----


@calls
def test_func_transforms(call):
    args = call.args()
    tensors = [args[i] for i in call.tensors(args)]
    ours, theirs = call.of_tensors(args), call.of_tensors(args, call.definition)
    every = tuple(range(len(tensors)))
    tangents = tuple(torch.randn_like(t) for t in tensors)
    batch = [torch.stack([t, 2 * t, -t], dim=-1) for t in tensors]
    for transform in (
        lambda f: torch.func.grad(lambda *t: scalar(f(*t)), every)(*tensors),
        lambda f: torch.func.jvp(f, tuple(tensors), tangents)[1],
        lambda f: torch.func.grad(lambda *t: scalar(torch.func.jvp(f, t, tangents)[1]), every)(*tensors),
        lambda f: torch.func.vmap(f, in_dims=-1)(*batch),
        lambda f: torch.func.vmap(f, in_dims=(-1, *[None] * (len(batch) - 1)))(batch[0], *tensors[1:]),
        lambda f: torch.func.vmap(torch.func.grad(lambda *t: scalar(f(*t)), every), in_dims=-1)(*batch),
        lambda f: torch.func.vjp(f, *tensors)[1](f(*tensors)),
    ):
        close(transform(ours), transform(theirs), 1e-9)


@first
def test_func_jacobian_and_hessian(call):
    args = call.args(rows=2)
    tensors = [args[i] for i in call.tensors(args)]
    ours, theirs = call.of_tensors(args), call.of_tensors(args, call.definition)
    close(torch.func.jacrev(ours)(*tensors), torch.func.jacrev(theirs)(*tensors))
    close(torch.func.jacfwd(ours)(*tensors), torch.func.jacfwd(theirs)(*tensors))
    found = torch.func.hessian(lambda *t: scalar(ours(*t)))(*tensors)
    close(found, torch.func.hessian(lambda *t: scalar(theirs(*t)))(*tensors))


@first
def test_batched_gradients(call):
    args = call.args()

    def gradients(function):
        leaves = call.leaves(args)
        outputs = as_tuple(function(*leaves))
        torch.manual_seed(0)
        grads = [torch.randn(3, *o.shape, dtype=torch.float64) for o in outputs]
        return torch.autograd.grad(outputs, leaves, grads, is_grads_batched=True)

    close(gradients(call.of_tensors(args)), gradients(call.of_tensors(args, call.definition)))


# ---- torch.compile, torch.export ----


def compiled_gradients(call, backend, dynamic):
    torch._dynamo.reset()
    args = call.args(torch.float32)
    places = call.inputs(args)
    function = call.of_tensors(args, places=places)
    compiled = torch.compile(
        lambda *t: scalar(function(*t)), backend=backend, dynamic=dynamic, fullgraph=True
    )
    for rows in (6, 9) if dynamic else (6,):
        args = call.args(torch.float32, rows=rows)
        wanted = call.tensors(args)
        inputs = [args[i].requires_grad_() if i in wanted else args[i] for i in places]
        leaves = [args[i] for i in wanted]
        if leaves:
            found = torch.autograd.grad(compiled(*inputs), leaves)
            close(found, torch.autograd.grad(scalar(function(*inputs)), leaves), 1e-5)
        with torch.no_grad():
            close(compiled(*inputs), scalar(function(*inputs)), 1e-5)


@all_first
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(call, dynamic):
    compiled_gradients(call, "aot_eager", dynamic)


def test_compile_inductor():
    # torch's key of a cached graph does not know the schemas of our ops: one from before a change would be called.
    with torch._inductor.utils.fresh_inductor_cache():
        compiled_gradients(by_name["add_layer_norm"], "inductor", True)


@all_first
def test_compile_does_not_specialise(call):
    torch._dynamo.reset()
    args = call.args(torch.float32)
    places, wanted = call.inputs(args), call.tensors(args)
    for place in places:
        if call.has_rows(call.operator.public.arguments[place]):
            torch._dynamo.mark_dynamic(args[place], 0)  # an error if it gets specialised
    inputs = [args[i].requires_grad_() if i in wanted else args[i] for i in places]
    function = call.of_tensors(args, places=places)
    value = torch.compile(lambda *t: scalar(function(*t)), backend="aot_eager")(*inputs)
    if wanted:
        torch.autograd.grad(value, [args[i] for i in wanted])


@all_first
def test_export(call):
    args = call.args(torch.float32)
    places = call.inputs(args)
    function = call.of_tensors(args, places=places)

    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    dims = tuple(
        {0: torch.export.Dim("rows")} if call.has_rows(call.operator.public.arguments[i]) else None
        for i in places
    )
    program = torch.export.export(Module(), tuple(args[i] for i in places), dynamic_shapes=(dims,))
    targets = [n.target for n in program.run_decompositions().graph.nodes if n.op == "call_function"]
    assert call.op in targets
    other = call.args(torch.float32, rows=11)
    close(program.module()(*(other[i] for i in places)), call.op(*other), 1e-6)


# ---- autograd ----


@first
def test_any_subset_requires_grad(call):
    args = call.args()
    places = call.tensors(args)
    reference = call.leaves(args)
    expected = torch.autograd.grad(scalar(call.of_tensors(args, call.definition)(*reference)), reference)
    for subset in itertools.product((False, True), repeat=len(places)):
        leaves = [t.detach().requires_grad_(s) for t, s in zip(reference, subset, strict=True)]
        value = scalar(call.of_tensors(args)(*leaves))
        assert value.requires_grad == any(subset)
        if any(subset):
            value.backward()
        close(
            [leaf.grad for leaf in leaves], [e if s else None for e, s in zip(expected, subset, strict=True)]
        )


class Recorder(TorchDispatchMode):
    """The calls of avo ops that reach the kernels."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "avo":
            self.calls.append((func.name(), args))
        return func(*args, **(kwargs or {}))


def test_only_wanted_gradients_are_computed():
    x, w, b = torch.randn(3, 8), torch.randn(8), torch.randn(8, requires_grad=True)
    y = torch.ops.avo.layer_norm(x, [8], w, b)
    with Recorder() as recorder:
        y.sum().backward()
    ((name, args),) = recorder.calls
    assert name == "avo::layer_norm_backward" and args[-1] == [False, False, True]


@calls
def test_omitted_defaults(call):
    """The dispatcher leaves trailing defaults out; gradients must land at their arguments all the same."""
    args = call.args()
    leaves = iter(call.leaves(args))
    given = [next(leaves) if i in call.tensors(args) else a for i, a in enumerate(args)]
    names = [a.name for a in call.operator.public.arguments]
    full = scalar(call.op(*given))
    short = scalar(call.op(**{n: v for n, v in zip(names, given, strict=True) if v is not None}))
    tensors = [given[i] for i in call.tensors(args)]
    close(torch.autograd.grad(short, tensors), torch.autograd.grad(full, tensors), 0)


@calls
@pytest.mark.parametrize("layout", ["expanded", "transposed", "sliced"])
def test_incoming_gradients_of_any_layout(call, layout):
    args = call.args()

    def gradient(function, leaves):
        outputs = as_tuple(function(*leaves))
        grads = []
        for o in outputs:
            torch.manual_seed(3)
            if layout == "expanded":
                grads.append(torch.full((), 0.7, dtype=torch.float64).expand(o.shape))
            elif layout == "transposed":
                grads.append(
                    torch.randn(o.shape[::-1], dtype=torch.float64).permute(list(range(o.dim()))[::-1])
                )
            else:
                grads.append(torch.randn(*o.shape, 2, dtype=torch.float64)[..., 0])
        return torch.autograd.grad(outputs, leaves, grads)

    found = gradient(call.of_tensors(args), call.leaves(args))
    close(found, gradient(call.of_tensors(args, call.definition), call.leaves(args)))


@first
@pytest.mark.parametrize(
    "widths", list(itertools.product((torch.bfloat16, torch.float32), repeat=2)), ids=str
)
def test_mixed_dtypes(call, widths):
    """Results have the dtype of their argument, each gradient that of its tensor."""
    names = [a.name for a in call.operator.public.arguments]
    dtype = {n: widths[min(i, 1)] for i, n in enumerate(names)}
    args = call.args(dtype)
    leaves = call.leaves(args)
    outputs = as_tuple(call.of_tensors(args)(*leaves))
    for name, out in zip(call.record.results, outputs, strict=True):
        assert out.dtype == result_dtype(call, name, args)
    found = torch.autograd.grad(scalar(outputs), leaves)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = torch.autograd.grad(scalar(call.of_tensors(args, call.definition)(*wide)), wide)
    for f, e, leaf in zip(found, expected, leaves, strict=True):
        assert f.dtype == leaf.dtype
        assert (f.double() - e).abs().max() <= 3e-2 * max(1.0, float(e.abs().max()))


def test_a_missing_gradient_of_one_result():
    x, r, w = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 8), (3, 8), (8,)))
    for pick in (0, 1):
        ours = torch.ops.avo.add_layer_norm(x, r, [8], w)[pick]
        theirs = RECORDS["add_layer_norm"].definition(x, r, [8], w)[pick]
        found = torch.autograd.grad(scalar(ours), (x, r, w), allow_unused=True)
        close(found, torch.autograd.grad(scalar(theirs), (x, r, w), allow_unused=True))
    with Recorder() as recorder:
        torch.ops.avo.add_layer_norm(x, r, [8], w)[1].sum().backward()
    assert recorder.calls[-1][1][0] is None


def test_no_gradient_at_all():
    class Dropped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return sum(t.sum() for t in tensors)

        @staticmethod
        def backward(ctx, grad):
            return None, None

    x, r = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    Dropped.apply(*torch.ops.avo.add_layer_norm(x, r, [8])).backward()
    assert x.grad is None and r.grad is None


def test_shared_gradients_do_not_share_memory():
    x, r = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    scalar(torch.ops.avo.add_layer_norm(x, r, [8])).backward()
    assert torch.equal(x.grad, r.grad) and x.grad.data_ptr() != r.grad.data_ptr()


@pytest.mark.parametrize(
    "shapes", [((1, 3, 8), (2, 3, 8)), ((2, 3, 8), (3, 8)), ((2, 3, 8), (1, 3, 1)), ((3, 1), (8,))]
)
def test_broadcast_operands(shapes):
    for pick in itertools.product((True, False), repeat=2):
        leaves = [
            torch.randn(s, dtype=torch.float64, requires_grad=p) for s, p in zip(shapes, pick, strict=True)
        ]
        with Recorder() as recorder:
            ours = torch.ops.avo.add_layer_norm(*leaves, [8])
        assert recorder.calls[0][1][0].shape == recorder.calls[0][1][1].shape  # what kernels take
        theirs = RECORDS["add_layer_norm"].definition(*torch.broadcast_tensors(*leaves), [8])
        close(ours, theirs)
        wanted = [t for t in leaves if t.requires_grad]
        if wanted:
            close(torch.autograd.grad(scalar(ours), wanted), torch.autograd.grad(scalar(theirs), wanted))


def test_the_gradient_of_a_broadcast_operand_does_not_depend_on_strides():
    """torch adds it up in the order of strides, which are those of the other operands."""
    generator = torch.Generator().manual_seed(0)
    x, grad = torch.randn(2, 37, 19, 8, generator=generator)
    up = torch.randn(1, 19, 8, generator=generator, requires_grad=True)
    found = []
    for dims in ((0, 1, 2), (2, 1, 0)):  # as they lie in memory
        gate, given = (t.permute(dims).contiguous().permute(dims) for t in (x, grad))
        found += torch.autograd.grad(torch.ops.avo.swiglu(gate, up), up, given)
    assert torch.equal(*found)


@first
def test_repeated_backward_and_checkpoint(call):
    from torch.utils.checkpoint import checkpoint

    args = call.args()
    leaves = call.leaves(args)
    value = scalar(call.of_tensors(args)(*leaves))
    one = torch.autograd.grad(value, leaves, retain_graph=True)
    close(torch.autograd.grad(value, leaves), one, 0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value, leaves)
    for reentrant in (False, True):
        again = scalar(checkpoint(call.of_tensors(args), *leaves, use_reentrant=reentrant))
        again.backward()
        close([leaf.grad for leaf in leaves], one, 0)
        for leaf in leaves:
            leaf.grad = None


def saved_tensors(function) -> list[torch.Tensor]:
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = function()
        sum(o.sum() for o in as_tuple(out)).backward()
    return saved


@calls
def test_what_is_saved(call):
    """Arguments, results and one number a row: never another tensor of the input's size."""
    args = call.args(torch.float32)
    leaves = call.leaves(args)
    outputs = []
    saved = saved_tensors(lambda: outputs.append(call.of_tensors(args)(*leaves)) or outputs[-1])
    integers = [t for t in args if isinstance(t, torch.Tensor) and not real(t)]
    known = {t.data_ptr() for t in (*leaves, *integers, *as_tuple(outputs[-1]))}
    size = max(t.numel() for t in leaves)
    assert all(t.data_ptr() in known or t.numel() < size or size == 1 for t in saved)
    assert {t.data_ptr() for t in saved} & known


def test_softmax_does_not_keep_its_input():
    x = torch.randn(4, 8, requires_grad=True)
    hidden = x * 1
    saved = saved_tensors(lambda: torch.ops.avo.softmax(hidden, -1))
    assert hidden.data_ptr() not in {t.data_ptr() for t in saved}
    r = torch.randn(4, 8, requires_grad=True)
    saved = saved_tensors(lambda: torch.ops.avo.add_layer_norm(x, r, [8]))
    assert not {x.data_ptr(), r.data_ptr()} & {t.data_ptr() for t in saved}


def test_a_saved_tensor_that_was_written_to_is_noticed():
    x = torch.randn(4, 8, requires_grad=True)
    hidden = x * 1
    y = torch.ops.avo.silu(hidden)
    hidden.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_statistics_of_unsaved_arguments():
    """Double backward works where a statistic comes from a tensor that backward itself does not need."""
    from avo_ops.generator.pipeline import generate

    def scaled(x, w):
        return w * torch.rsqrt((x.detach() * x.detach()).mean(-1, keepdim=True))

    record = OpDef("scaled", "(Tensor x, Tensor w) -> Tensor", scaled, LAST, "", "", spans={"w": "N"})
    operator = operator_from_json(generate([record]).plan["operators"][0])
    assert ("arg", 0) not in operator.saved and ("return", 1) in operator.saved
    ops = register_scratch(operator, record)
    x, w = torch.randn(3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda w: ops.scaled(x, w), (w,))
    torch.autograd.gradgradcheck(lambda w: ops.scaled(x, w), (w,))


def test_second_derivatives_of_a_definition_that_detaches():
    """The backward op's formula, differentiated, would go through what the definition has detached."""
    from avo_ops.generator.pipeline import generate

    def kept(x):
        return x * (x * x).mean(-1, keepdim=True).detach()

    record = OpDef("kept", "(Tensor x) -> Tensor", kept, LAST, "", "")
    entry = generate([record]).plan["operators"][0]
    assert entry["autograd"]["detaches"]
    ops = register_scratch(operator_from_json(entry), record)
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    found = []
    for function in (ops.kept, kept):
        first = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)[0]
        found.append((first, torch.autograd.grad(first.sin().sum(), x)[0]))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", [r.name for r in CATALOGUE if r.invariant])
def test_what_an_invariant_definition_detaches_changes_no_derivative(name):
    """The record says so: second derivatives through the backward op are those of the definition itself."""
    call = Call(RECORDS[name], RECORDS[name].samples[0])
    assert not call.operator.detaches
    args = call.args()
    found = []
    for function in (call.op, RECORDS[name].compute):
        leaves = call.leaves(args)
        outputs = as_tuple(call.of_tensors(args, function)(*leaves))
        loss = sum((o * o.detach().cos()).sum() + o.square().sum() for o in outputs)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in first), leaves, materialize_grads=True)
        found.append((*first, *second))
    for ours, expected in zip(*found, strict=True):
        close(ours, expected)


def test_an_operator_without_gradient():
    entry = next(d for d in plan_file.load(FOLDER)["operators"] if d["name"] == "silu")
    entry = {**entry, "ops": entry["ops"][:2], "autograd": None}
    ops = register_scratch(operator_from_json(entry), RECORDS["silu"])
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(ops.silu, (x,))


@all_first
def test_no_grad_and_inference_mode(call):
    args = call.args(torch.float32)
    leaves = call.leaves(args)
    expected = call.of_tensors(args)(*[t.detach() for t in leaves])
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            out = call.of_tensors(args)(*leaves)
        assert not any(o.requires_grad for o in as_tuple(out))
        close(out, expected, 0)


@first
def test_autocast(call):
    args = call.args(
        {
            a.name: torch.bfloat16 if i == 0 else torch.float32
            for i, a in enumerate(call.operator.public.arguments)
        }
    )
    leaves = call.leaves(args)
    plain = call.of_tensors(args)(*leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call.of_tensors(args)(*leaves)
        scalar(out).backward()
    close(out, plain, 0)
    assert all(leaf.grad.dtype == leaf.dtype for leaf in leaves)


# ---- other devices, fake tensors, layouts ----


@all_calls
def test_meta_and_fake(call):
    from torch._subclasses import FakeTensorMode

    args = call.args(torch.bfloat16)
    real = as_tuple(call.forward(*args))
    meta = as_tuple(call.forward(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args)))
    with FakeTensorMode() as mode:
        fake = as_tuple(
            call.forward(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        )
    for r, m, f in zip(real, meta, fake, strict=True):
        assert (
            (r.shape, r.dtype, r.stride()) == (m.shape, m.dtype, m.stride()) == (f.shape, f.dtype, f.stride())
        )
        assert m.device.type == "meta" and f.device.type == "cpu"


def test_layout_of_results():
    """A pointwise operator keeps the strides of a dense input; all others give contiguous results."""
    x = torch.randn(2, 3, 4, 5)
    for view in (
        x,
        x.permute(0, 2, 3, 1),
        x.permute(3, 1, 0, 2),
        x[:, :, 1:2],
        x[..., ::2],
        x[:, :1].expand(2, 3, 4, 5),
    ):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = torch.ops.avo.silu(mode.from_tensor(view))
        out = torch.ops.avo.silu(view)
        dense = torch.ops.aten.is_non_overlapping_and_dense(view)
        assert out.stride() == fake.stride() == (view.stride() if dense else torch.empty(view.shape).stride())
        close(out, F.silu(view), 1e-6)
        assert torch.ops.avo.softmax(view, 1).is_contiguous()
        leaf = view.detach().requires_grad_()
        (grad,) = torch.autograd.grad(torch.ops.avo.silu(leaf).sum(), leaf)
        close(grad, torch.autograd.grad(F.silu(leaf).sum(), leaf), 1e-6)


def test_layout_follows_the_first_tensor():
    """Whichever operand torch's own operations would take the strides from."""
    from avo_ops.generator.pipeline import generate

    record = OpDef(
        "from_other", "(Tensor x, Tensor other) -> Tensor", lambda x, other: other - x, FLAT, "", ""
    )
    ops = register_scratch(operator_from_json(generate([record]).plan["operators"][0]), record)
    x, other = torch.randn(3, 4), torch.randn(4, 3).t()
    for a, b in ((x, other), (other, x)):
        for op in (ops.from_other, ops.from_other_forward):
            assert op(a, b).stride() == a.stride()
            close(op(a, b), b - a)
        torch.library.opcheck(ops.from_other.default, (a, b))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0)])
def test_nothing_to_compute(shape):
    for name in ("softmax", "layer_norm", "silu", "rms_norm"):
        x = torch.randn(shape, requires_grad=True)
        extra = {"softmax": [-1], "silu": []}.get(
            name, [[shape[-1]], torch.ones(shape[-1], requires_grad=True)]
        )
        for overload in ("default", "definition"):
            y = getattr(getattr(torch.ops.avo, name), overload)(x, *extra)
            assert y.shape == shape
            tensors = [x, *(e for e in extra if isinstance(e, torch.Tensor))]
            for g, t in zip(torch.autograd.grad(y.sum(), tensors), tensors, strict=True):
                assert g.shape == t.shape and not g.any()
    assert torch.ops.avo.layer_norm_forward(torch.randn(shape), [shape[-1]])[1].shape == (shape[0], 1)


def test_one_number():
    x = torch.tensor(0.3, requires_grad=True)
    close(torch.ops.avo.gelu(x), F.gelu(x), 1e-6)
    y = torch.ops.avo.softmax(x, 0)
    assert y.shape == () and y == 1 and torch.autograd.grad(y, x)[0] == 0


def test_all_dims_are_columns():
    """One row: sums over the rows are sums over one row, not over everything."""
    args = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 5), (2, 5), (2, 5))]
    torch.autograd.gradcheck(lambda x, w, b: torch.ops.avo.layer_norm(x, [2, 5], w, b), args)


# ---- refusals ----


@pytest.mark.parametrize("overload", ["default", "definition"])
@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "gelu",
            [torch.ones(3, dtype=torch.int64)],
            r"gelu: x must be a floating-point tensor .* but is int64",
        ),
        (
            "silu",
            [torch.ones(3, dtype=torch.bool)],
            r"silu: x must be a floating-point tensor .* but is bool",
        ),
        (
            "softmax",
            [torch.ones(3, dtype=torch.complex64), 0],
            r"x must be a floating-point .* but is complex64",
        ),
        ("gelu", [torch.ones(3), "erf"], r"gelu: approximate must be 'none' or 'tanh', but is 'erf'"),
        (
            "softmax",
            [torch.ones(2, 3), 2],
            r"softmax: dim must be in \[-2, 1\] \(x has 2 dimensions\), but is 2",
        ),
        (
            "layer_norm",
            [torch.ones(2, 3), [4]],
            r"normalized_shape must be the last dimensions of x.*\[2, 3\].*\[4\]",
        ),
        ("layer_norm", [torch.ones(2, 3), []], r"normalized_shape must have at least 1 entry, but is \[\]"),
        (
            "layer_norm",
            [torch.ones(2, 3), [3], torch.ones(2)],
            r"weight must have shape \[3\].*but has shape \[2\]",
        ),
        ("layer_norm", [torch.ones(3), [2, 3]], r"normalized_shape must be the last dimensions of x"),
        (
            "bias_gelu",
            [torch.tensor(1.0), torch.ones(1)],
            r"x must have at least 1 dimension, but has shape \[\]",
        ),
        (
            "rms_norm",
            [torch.ones(2, 3), [3], torch.ones(3, dtype=torch.int32)],
            r"weight must be .* but is int32",
        ),
        ("add_layer_norm", [torch.ones(2, 3), torch.ones(2, 2), [3]], r"residual must have shape \[2, 3\]"),
    ],
)
def test_refusals(name, args, message, overload):
    function = getattr(getattr(torch.ops.avo, name), overload)
    with pytest.raises(RuntimeError, match=message):
        function(*args)
    with pytest.raises(RuntimeError, match=message):
        function(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args))


def test_other_devices_are_refused_together():
    with pytest.raises(RuntimeError, match=r"weight must be on meta like x, but is on cpu"):
        torch.ops.avo.layer_norm(torch.ones(2, 3, device="meta"), [3], torch.ones(3))


# ---- the package ----


def run_python(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stats():
    avo_ops.reset_stats()
    x = torch.randn(2, 3)
    torch.func.vmap(torch.ops.avo.gelu)(x)
    assert avo_ops.stats()["avo::gelu / definition"] == 1
    torch.ops.avo.silu(x)
    assert sum(n for path, n in avo_ops.stats().items() if path.startswith("avo::silu / ")) == 1
    avo_ops.reset_stats()
    assert not any(avo_ops.stats().values())


def test_import_is_light():
    new = run_python(
        "import torch, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "before = set(sys.modules)\n"
        "import avo_ops\n"
        "print(*(m for m in sys.modules if m not in before))"
    ).split()
    heavy = ("sympy", "triton", "torch._dynamo", "torch._inductor", "avo_ops.generator", "avo_ops.nn")
    assert "avo_ops.registry" in new and not [m for m in new if m.startswith(heavy)]


def test_without_the_runtime_library_everything_works_with_one_warning():
    out = run_python(
        "import ctypes, torch, warnings\n"
        "real = ctypes.CDLL.__init__\n"
        "def refuse(self, name, *a, **k):\n"
        "    if 'libavo' in str(name): raise OSError('refused')\n"
        "    return real(self, name, *a, **k)\n"
        "ctypes.CDLL.__init__ = refuse\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always'); import avo_ops\n"
        "x = torch.randn(3, requires_grad=True); torch.ops.avo.gelu(x).sum().backward()\n"
        "print(len([w for w in seen if 'avo_ops' in str(w.message)]), x.grad is not None,\n"
        "      avo_ops.stats()['avo::gelu_forward / definition'])\n"
    )
    assert out.split() == ["1", "True", "1"]


def test_without_a_plan():
    """The build imports the package to make the plan."""
    code = (
        "import torch, warnings; warnings.simplefilter('error')\n"
        "import avo_ops; print(hasattr(torch.ops.avo, 'gelu'))"
    )
    assert run_python(code, AVO_OPS_GENERATED="") == "False\n"
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always'); import avo_ops\n"
        "print(len(seen), seen[0].message)"
    )
    out = run_python(code, AVO_OPS_GENERATED="/nonexistent")
    assert out.startswith("1 avo_ops: there is no plan.json in /nonexistent")


def test_lazy_attributes():
    assert avo_ops.nn.GELU is not None and "nn" in dir(avo_ops) and avo_ops.__version__
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        avo_ops.missing  # noqa: B018


# ---- the kernel store ----


class FakeCompiler:
    """Makes "cubins" of text and counts how often."""

    def __init__(self, source: bytes = b"source", error: Exception | None = None, seconds: float = 0.0):
        self.source, self.error, self.seconds, self.count = source, error, seconds, 0

    def inputs(self, family, arch):
        return [self.source, family.encode(), arch.encode()]

    def compile(self, family, arch):
        self.count += 1
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return b"cubin of " + family.encode() + b" for " + arch.encode()


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def content(path):
    return Path(path).read_bytes()


def entries(cache):
    return sorted(p for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_key_separates_its_inputs():
    assert (
        cache_key([b"ab", b"c"])
        != cache_key([b"a", b"bc"])
        != cache_key([b"abc"])
        != cache_key([b"abc", b""])
    )
    assert cache_key([b"ab", b"c"]) == cache_key([b"ab", b"c"])


def test_store_compiles_once_and_keeps(tmp_path, no_warnings):
    compiler = FakeCompiler()
    path = KernelStore(None, tmp_path, compiler).resolve("f", 90)
    assert content(path) == b"cubin of f for sm_90" and Path(path).is_relative_to(tmp_path)
    assert KernelStore(None, tmp_path, compiler).resolve("f", 90) == path and compiler.count == 1
    for family, arch in (("g", 90), ("f", 80)):
        assert KernelStore(None, tmp_path, compiler).resolve(family, arch) != path
    KernelStore(None, tmp_path, other := FakeCompiler(b"other source")).resolve("f", 90)
    assert (compiler.count, other.count) == (3, 1)
    assert len(entries(tmp_path)) == 4


def test_store_prefers_packaged_kernels(tmp_path, no_warnings):
    packaged, cache, compiler = tmp_path / "kernels", tmp_path / "cache", FakeCompiler()
    for arch in ("sm_80", "sm_86", "sm_90"):
        (packaged / arch).mkdir(parents=True)
        (packaged / arch / "f.cubin").write_text(arch)
    store = KernelStore(packaged, cache, compiler)
    # A cubin serves later minor versions of its major one, and none before.
    for arch, expected in ((80, b"sm_80"), (86, b"sm_86"), (89, b"sm_86"), (90, b"sm_90")):
        assert content(store.resolve("f", arch)) == expected
    assert compiler.count == 0 and not cache.exists()
    assert content(store.resolve("f", 100)) == b"cubin of f for sm_100"
    assert content(store.resolve("f", 75)) == b"cubin of f for sm_75"
    (packaged / "sm_100").mkdir()
    (packaged / "sm_100" / "f.cubin").write_text("sm_100")
    assert content(store.resolve("f", 103)) == b"sm_100" and content(store.resolve("f", 100)) == b"sm_100"


def test_store_takes_ptx_only_if_the_driver_does(tmp_path):
    for version in (80, 90, 120):
        (tmp_path / f"compute_{version}").mkdir()
        (tmp_path / f"compute_{version}" / "f.ptx").write_text(str(version))
    assert KernelStore(tmp_path, None, None).resolve("f", 100) is None
    store = KernelStore(tmp_path, None, None, accepts_ptx=lambda path: True)
    assert content(store.resolve("f", 100)) == b"90" and content(store.resolve("f", 86)) == b"80"
    assert store.resolve("f", 75) is None
    old = KernelStore(tmp_path, None, None, accepts_ptx=lambda path: path.read_text() == "80")
    assert content(old.resolve("f", 100)) == b"80"


@pytest.mark.parametrize(
    "damage", [b"", b"cubin of f for sm_9", b"cubin of f for sm_9X", b"cubin of f for sm_90\0"]
)
def test_store_rebuilds_a_damaged_file(tmp_path, no_warnings, damage):
    compiler = FakeCompiler()
    path = KernelStore(None, tmp_path, compiler).resolve("f", 90)
    Path(path).write_bytes(damage)
    again = KernelStore(None, tmp_path, compiler).resolve("f", 90)
    assert content(again) == b"cubin of f for sm_90" and compiler.count == 2
    assert len(entries(tmp_path)) == 1


def test_store_removes_what_does_not_match_its_name(tmp_path, no_warnings):
    path = Path(KernelStore(None, tmp_path, FakeCompiler()).resolve("f", 90))
    stale = path.with_name(path.name.split("-")[0] + "-" + "0" * 64 + ".cubin")
    path.rename(stale)
    assert KernelStore(None, tmp_path, FakeCompiler()).resolve("f", 90) == str(path) and not stale.exists()


def test_store_without_a_writable_folder(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")  # also stops root, whom permissions do not
    compiler = FakeCompiler()
    store = KernelStore(None, blocked / "cache", compiler)
    with pytest.warns(RuntimeWarning, match="kernels cannot be kept in .*set AVO_OPS_CACHE") as seen:
        path = store.resolve("f", 90)
        assert store.resolve("f", 90) == path and compiler.count == 1
        store.resolve("g", 90)
    assert len(seen) == 1 and content(path) == b"cubin of f for sm_90"
    assert stat.S_IMODE(Path(path).parents[1].stat().st_mode) == 0o700


def test_store_reads_a_folder_that_it_cannot_write(tmp_path, monkeypatch):
    path = KernelStore(None, tmp_path, FakeCompiler()).resolve("f", 90)
    real = os.open

    def refuse(name, flags, *rest, **named):
        if str(name).startswith(str(tmp_path)) and flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(name, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    compiler = FakeCompiler()
    store = KernelStore(None, tmp_path, compiler)
    assert store.resolve("f", 90) == path and compiler.count == 0
    with pytest.warns(RuntimeWarning, match="Read-only"):
        assert content(store.resolve("g", 90)) == b"cubin of g for sm_90"
    assert store.resolve("f", 90) == path and compiler.count == 1


def test_store_with_a_full_disk(tmp_path, monkeypatch):
    real = os.replace

    def full(source, target):
        if str(target).startswith(str(tmp_path)):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        path = KernelStore(None, tmp_path, FakeCompiler()).resolve("f", 90)
    assert content(path) == b"cubin of f for sm_90" and entries(tmp_path) == []


def test_store_without_a_home(monkeypatch):
    monkeypatch.delenv("AVO_OPS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert default_cache_folder() is None
    with pytest.warns(RuntimeWarning, match="no folder to keep kernels in"):
        assert KernelStore(None, None, FakeCompiler()).resolve("f", 90)
    monkeypatch.setenv("AVO_OPS_CACHE", "relative")
    assert default_cache_folder() == Path.cwd() / "relative"


def test_store_without_a_compiler(tmp_path):
    assert KernelStore(None, tmp_path, None).resolve("f", 90) is None
    store = KernelStore(None, tmp_path, FakeCompiler(error=ImportError("install nvrtc")))
    with pytest.warns(RuntimeWarning, match="no kernel f for sm_90: install nvrtc") as seen:
        assert store.resolve("f", 90) is None and store.resolve("f", 90) is None
    assert len(seen) == 1 and entries(tmp_path) == []


def test_store_where_there_are_no_locks(tmp_path, monkeypatch, no_warnings):
    def unsupported(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert content(KernelStore(None, tmp_path, FakeCompiler()).resolve("f", 90)) == b"cubin of f for sm_90"


def test_threads_share_one_compilation(tmp_path, no_warnings):
    compiler = FakeCompiler(seconds=0.2)
    store, found = KernelStore(None, tmp_path, compiler), []
    threads = [threading.Thread(target=lambda: found.append(store.resolve("f", 90))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiler.count == 1 and len(set(found)) == 1 and len(found) == 4


_WRITER = """
import sys, time, types, pathlib, importlib
registry = sys.modules["registry"] = types.ModuleType("registry")  # without what else the package imports
registry.__path__ = [str(pathlib.Path(sys.argv[1]).parent)]
store = importlib.import_module("registry.store")
class Compiler:
    def inputs(self, family, arch): return [b"source", family.encode(), arch.encode()]
    def compile(self, family, arch):
        with open(sys.argv[3], "a") as log: log.write("x")
        time.sleep(float(sys.argv[4]))
        return b"cubin of " + family.encode() + b" for " + arch.encode()
real = store.os.fsync
if len(sys.argv) > 5:  # hang with half a file written, holding the lock
    def fsync(handle):
        store.os.ftruncate(handle, 3); open(sys.argv[5], "w").close(); time.sleep(60)
    store.os.fsync = fsync
print(store.KernelStore(None, pathlib.Path(sys.argv[2]), Compiler()).resolve("f", 90))
"""


def writer(cache, log, seconds, *more):
    source = sys.modules[KernelStore.__module__].__file__
    command = [sys.executable, "-c", _WRITER, source, str(cache), str(log), str(seconds), *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_compile_once(tmp_path):
    cache, log = tmp_path / "cache", tmp_path / "log"
    processes = [writer(cache, log, 1.0) for _ in range(3)]
    found = {p.communicate(timeout=60)[0].strip() for p in processes}
    assert len(found) == 1 and content(found.pop()) == b"cubin of f for sm_90" and log.read_text() == "x"


def test_a_killed_writer_leaves_no_lock_and_no_file(tmp_path, no_warnings):
    cache, ready = tmp_path / "cache", tmp_path / "ready"
    process = writer(cache, tmp_path / "log", 0, ready)
    deadline = time.monotonic() + 60
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    (half,) = entries(cache)
    assert half.suffix == ".tmp" and half.stat().st_size == 3
    process.send_signal(signal.SIGKILL)
    process.communicate()
    compiler = FakeCompiler()
    path = KernelStore(None, cache, compiler).resolve("f", 90)
    assert content(path) == b"cubin of f for sm_90" and compiler.count == 1 and entries(cache) == [Path(path)]


def test_the_temporary_folder_goes_with_its_process_alone(tmp_path):
    code = (
        "import os, sys, pathlib, warnings; warnings.simplefilter('ignore')\n"
        "from avo_ops.registry.store import KernelStore\n"
        "class Compiler:\n"
        "    inputs = staticmethod(lambda family, arch: [b'source'])\n"
        "    compile = staticmethod(lambda family, arch: b'cubin')\n"
        "path = KernelStore(None, None, Compiler()).resolve('f', 90)\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(path, os.path.exists(path))\n"
    )
    path, there = run_python(code).split()
    assert there == "True" and not Path(path).exists()
