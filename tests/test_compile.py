"""``avo_ops.compile``: a corpus of functions against eager in float64, graphs and their conditions, semantics, refusals."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import threading
import warnings
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from compile_corpus import CORPUS, Kind
from torch._subclasses import FakeTensorMode

import avo_ops
from avo_ops.generator.capture import Captured, Condition, capture
from avo_ops.jit import codec, program
from avo_ops.jit.calls import kind_of
from avo_ops.jit.composite import Composite
from avo_ops.jit.function import prepare_all
from avo_ops.jit.program import Program, Size
from avo_ops.registry import native_library
from avo_ops.testing import emulate

if native_library.runtime() is None:
    pytest.skip("the package is not built", allow_module_level=True)

Tensor = torch.Tensor
CHUNK = 14
CHUNKS = [list(CORPUS)[i : i + CHUNK] for i in range(0, len(CORPUS), CHUNK)]
# torch.quantile asks for a number of elements that is a symbol in traces, which torch 2.11 refuses.
TRACES_QUANTILE = torch.__version__ >= (2, 13)  # type: ignore[operator]
# Of values about 1 after some ten operations; a bfloat16 result is rounded once, and eager rounds at each step.
BOUNDS = {torch.float32: (2e-5, 2e-5), torch.float64: (1e-12, 1e-12), torch.bfloat16: (0.02, 0.02)}


def make(shape: Any, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(shape, Kind):
        if shape.kind == "bool":
            return torch.rand(shape.shape, generator=generator) > 0.5
        if shape.kind == "int":
            return torch.randint(0, 20, shape.shape, generator=generator)
        return (torch.rand(shape.shape, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def inputs_of(name: str, row: Sequence[Any], dtype: torch.dtype) -> list[Tensor]:
    return [make(shape, dtype, zlib.crc32(f"{name}{i}".encode())) for i, shape in enumerate(row)]


def leaves(value: Any) -> list[Any]:
    return pytree.tree_leaves(value)


def check(
    fn: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Any], gradients: bool = True
) -> None:
    """Values, dtypes and shapes as eager's, and values and gradients near those of float64."""
    tensors = [a for a in inputs if isinstance(a, Tensor)]
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
    rtol, atol = BOUNDS[dtype]

    def fresh(wide: bool) -> list[Any]:
        out = []
        for a in inputs:
            if isinstance(a, Tensor) and a.is_floating_point():
                a = (a.double() if wide else a).detach().requires_grad_(gradients)
            out.append(a)
        return out

    own, wide = fresh(False), fresh(True)
    eager, found, exact = leaves(fn(*own)), leaves(compiled(*own)), leaves(fn(*wide))
    assert [(o.shape, o.dtype, o.requires_grad) for o in found] == [
        (o.shape, o.dtype, o.requires_grad) for o in eager
    ]
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=rtol, atol=atol)
    used = [i for i, o in enumerate(found) if o.requires_grad]
    if not used:
        return
    seeds = [make(exact[i].shape, torch.float64, i) for i in used]
    sources = [[a for a in side if isinstance(a, Tensor) and a.requires_grad] for side in (own, wide)]
    one = torch.autograd.grad(
        [found[i] for i in used], sources[0], [s.to(found[i].dtype) for s, i in zip(seeds, used, strict=True)],
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    two = torch.autograd.grad(
        [exact[i] for i in used], sources[1], seeds, allow_unused=True, materialize_grads=True
    )
    for a, b, source in zip(one, two, sources[0], strict=True):
        assert a.dtype == source.dtype
        assert a.shape == source.shape
        torch.testing.assert_close(a.double(), b, rtol=10 * rtol, atol=10 * atol)


def cases(names: Sequence[str], dtypes: Sequence[torch.dtype]) -> list[tuple[str, Any, list[Tensor]]]:
    """Every function at all its shapes in the first dtype, and at the first shape in the others; kernels made in one go."""
    functions = {name: avo_ops.compile(CORPUS[name].fn, name=name) for name in names}
    made = [
        (name, functions[name], inputs_of(name, row, dtype))
        for name in names
        for i, row in enumerate(CORPUS[name].shapes)
        for dtype in (dtypes if i == 0 else dtypes[:1])
    ]
    prepare_all([(compiled, inputs, {}) for _, compiled, inputs in made])
    return made


def check_as_json(compiled: Any, inputs: Sequence[Any]) -> None:
    """The graph of a call is the same in a bundle, to the bit."""
    graph = compiled._graph(*pytree.tree_flatten((tuple(inputs), {})))
    composite = graph.composite
    assert isinstance(composite, Composite)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> int:
        kept.append(tensor)
        return len(kept) - 1

    text = json.dumps(codec.encode(composite.program, keep))
    again = codec.decode(json.loads(text), kept.__getitem__)
    assert json.dumps(codec.encode(again, lambda t: next(i for i, k in enumerate(kept) if k is t))) == text
    given = [inputs[i] for i in graph.places]
    with torch.no_grad():
        for a, b in zip(composite(given), Composite(again, composite.title)(given), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_corpus(names: list[str]) -> None:
    for name, compiled, inputs in cases(names, (torch.float32, torch.bfloat16)):
        function = CORPUS[name]
        check(function.fn, compiled, inputs, function.gradients)
        if name == "middle" and not TRACES_QUANTILE:
            continue
        check_as_json(compiled, inputs)
        left = compiled.variants()[0].composite.reasons
        assert bool(left) == function.torch_parts, (name, left)


@pytest.mark.slow
@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: names[0])
def test_corpus_in_float64(names: list[str]) -> None:
    for name, compiled, inputs in cases(names, (torch.float64,)):
        check(CORPUS[name].fn, compiled, inputs, CORPUS[name].gradients)


@pytest.mark.parametrize(
    "name",
    [
        "rms_norm",
        "swiglu",
        "outer_product",
        "ignored_rows",
        "masked_columns",
        "masked_and_the_mask",
        "causal_by_positions",
    ],
)
def test_corpus_in_the_emulator(name: str) -> None:
    compiled = avo_ops.compile(CORPUS[name].fn, name=name)
    avo_ops.reset_stats()
    with emulate(sms=3):
        check(CORPUS[name].fn, compiled, inputs_of(name, CORPUS[name].shapes[0], torch.float32))
    ran = [k for k in avo_ops.stats() if k.startswith("avo_jit::")]
    assert ran
    assert all(" / cuda/" in k or k.endswith(("copy", "cast")) for k in ran)


def test_constants_of_the_shape_of_a_value_do_not_store_it() -> None:
    def masked(x: Tensor, m: Tensor) -> Tensor:
        t = torch.exp(x)
        return torch.where(m, t, torch.zeros_like(t)) + torch.ones_like(t) * 3

    def of_sums(x: Tensor, m: Tensor) -> Tensor:
        t = torch.exp(x)
        return t.sum(-1, keepdim=True) * torch.full_like(t, 2.0)  # as wide as t

    def given_back(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        t = torch.exp(x)
        return torch.ones_like(t), torch.where(m, t, torch.zeros_like(t))

    for fn in (masked, of_sums, given_back):
        for shape in ((4, 8), (4, 1)):
            x, m = torch.randn(shape), torch.rand(shape) < 0.5
            f = avo_ops.compile(fn, example_inputs=(x, m))
            torch.testing.assert_close(f(x, m), fn(x, m))
            if fn is masked:
                assert f.plan().count("kernel ") == 1 and "-> y[MN]" in f.plan(), f.plan()


@pytest.mark.parametrize("emulated", [False, True], ids=["cpu", "emulator"])
@pytest.mark.parametrize("integer", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 2**24), (torch.bfloat16, 2**8), (torch.float16, 2**11)], ids=str
)
def test_masks_of_integers_are_those_of_torch(
    dtype: torch.dtype, most: int, integer: torch.dtype, emulated: bool
) -> None:
    """Beside the largest numbers that are exact in a dtype, and with integers that are no numbers of floating point."""
    limits = torch.iinfo(integer)
    values = [0, 1, -1, most - 2, most - 1, most, most + 1, 1 - most, -most, limits.min, limits.max]
    ids = torch.tensor([v for v in values if limits.min <= v <= limits.max], dtype=integer)
    last = min(most - 1, limits.max)

    def weights(x: Tensor, of_row: Tensor, of_element: Tensor) -> Tensor:
        row = 1.0 * (of_row == last) + 2.0 * (of_row < last) + 4.0 * (of_row >= last)
        element = 8.0 * (of_element != last) + 16.0 * (of_element > last) + 32.0 * (of_element <= last)
        return x * (row + element)

    compiled = avo_ops.compile(weights)
    x = torch.ones(len(ids), len(ids), dtype=dtype)
    given = (x, ids[:, None], ids.flip(0).expand(x.shape).contiguous())
    with emulate(sms=2) if emulated else contextlib.nullcontext():
        found = compiled(*given)
    torch.testing.assert_close(found, weights(*given), rtol=0, atol=0)
    assert compiled.variants()[0].composite.reasons == []


def test_integers_of_rows_are_read_as_they_are() -> None:
    """By the kernel that makes the masks, with no conversion before it."""

    def ignored(loss: Tensor, labels: Tensor) -> Tensor:
        return torch.where((labels != -100)[:, None], loss, 0.0)

    def counted(loss: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        keep = labels != -100
        return torch.where(keep[:, None], loss, 0.0), keep

    def large(loss: Tensor, labels: Tensor) -> Tensor:
        return torch.where((labels != 2**24 + 1)[:, None], loss, 0.0)

    loss, labels = torch.randn(3, 9), torch.tensor([-100, 2**24 + 1, 2**24])
    for fn in (ignored, counted, large):
        compiled = avo_ops.compile(fn)
        torch.testing.assert_close(compiled(loss, labels), fn(loss, labels))
        composite = compiled.variants()[0].composite
        assert composite.reasons == []
        if fn is ignored:
            (step,) = composite.program.steps
            assert torch.int64 in step.dtypes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("emulated", [False, True], ids=["cpu", "emulator"])
def test_places_are_those_of_torch(dtype: torch.dtype, emulated: bool) -> None:
    """The first of equal values, and the first NaN before any number."""
    inf, nan = math.inf, math.nan
    rows = [
        [1.0, 3.0, 3.0, -1.0, -1.0], [nan, 1.0, nan, 2.0, 0.0], [0.0, nan, inf, -inf, nan], [-0.0, 0.0, 0.0, -0.0, 0.0],
        [-inf] * 5, [inf] * 5, [nan] * 5, [2.0, inf, inf, -inf, -inf], [4.0, 3.0, 2.0, 1.0, 0.0],
    ]  # fmt: skip
    wide = torch.randint(-3, 3, (4, 300)).to(dtype)
    x = torch.tensor(rows, dtype=dtype)

    def places(x: Tensor) -> tuple[Tensor, ...]:
        return x.argmax(-1), x.argmin(-1), x.argmax(0, keepdim=True), x.argmin(0)

    f = avo_ops.compile(places)
    for given in (x, wide, wide[:, ::2], x[:1].expand(3, 5)):
        with emulate(sms=3) if emulated else contextlib.nullcontext():
            found = f(given)
        for a, b in zip(found, places(given), strict=True):
            assert a.dtype == torch.int64
            assert torch.equal(a, b)
    assert not f.variants()[0].composite.reasons


def test_places_in_rows_that_float32_cannot_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("avo_ops.generator.capture.MOST_NUMBERED", 8)
    f = avo_ops.compile(lambda x: x.argmax(-1))
    for n in (8, 9, 6, 20):
        x = torch.randn(20, n)
        assert torch.equal(f(x), x.argmax(-1))
    assert [bool(v.composite.reasons) for v in f.variants()] == [False, True]
    assert [v.conditions for v in f.variants()] == [("x.shape[1] <= 8",), ("x.shape[1] > 8",)]


def many_results(x: Tensor) -> list[Tensor]:
    return [(x * i).sin().sum(-1) for i in range(20)]


def many_numbers_a_row(x: Tensor) -> Tensor:
    """Its gradient would need more of them saved than an operator may return."""
    m = x.mean(-1, keepdim=True)
    for i in range(25):
        m = torch.tanh(m * 1.1 + i) * torch.sin(m + 1)
    return x * m


@pytest.mark.parametrize("fn", [many_results, many_numbers_a_row])
def test_what_is_too_much_for_one_operator_is_no_error(fn: Any) -> None:
    f = avo_ops.compile(fn)
    check(fn, f, [make((4, 5), torch.float32, 1)])
    (variant,) = f.variants()
    assert bool(variant.operators) == (fn is many_numbers_a_row)  # its forward is a kernel


SPECIAL_FUNCTIONS = {
    "lgamma": (-20.03, 40.0, [0.0, -0.0, 1.0, 2.0, -1.0, -2.5, 3e30, 1e-30, -1e-30]),
    "digamma": (-20.03, 40.0, [0.0, -0.0, -1.0, -2.5, 0.5, 10.0, 9.99, 1e20, 1e-6, 100.0]),
    "erfinv": (-1.0, 1.0, [0.0, -0.0, 1.0, -1.0, 1.5, 0.7, 0.70001, 1 - 2**-24, -1 + 2**-23, 1e-38]),
}


@pytest.mark.parametrize("emulated", [False, True], ids=["cpu", "emulator"])
@pytest.mark.parametrize("name", SPECIAL_FUNCTIONS)
def test_special_functions(name: str, emulated: bool) -> None:
    low, high, points = SPECIAL_FUNCTIONS[name]
    fn = getattr(torch, name)
    f = avo_ops.compile(lambda x: fn(x), name=name)
    for dtype, rtol in ((torch.float32, 3e-6), (torch.float64, 1e-11)):
        special = torch.tensor([*points, math.inf, -math.inf, math.nan], dtype=torch.float64)
        x = (
            torch.cat([special, torch.linspace(low, high, 2001, dtype=torch.float64)])
            .to(dtype)
            .requires_grad_()
        )
        wide = x.detach().double().requires_grad_()
        with emulate(sms=3) if emulated else contextlib.nullcontext():
            y = f(x)
            (grad,) = torch.autograd.grad(y.sum(), x)
        want = fn(wide)
        torch.testing.assert_close(y.double(), want, rtol=rtol, atol=rtol, equal_nan=True)
        signs = (y.signbit() == want.signbit()) | want.isnan()
        assert signs[: len(points)].all()
        (exact,) = torch.autograd.grad(want.sum(), wide)
        near = exact.isfinite() & (exact.abs() < 1e6)  # at poles torch's own is some large number
        close = max(10 * rtol, 1e-8)  # torch's own derivatives of digamma are no better
        torch.testing.assert_close(grad[near].double(), exact[near], rtol=close, atol=close)
    assert not any(v.composite.reasons for v in f.variants())


@pytest.mark.parametrize("emulated", [False, True], ids=["cpu", "emulator"])
def test_products_and_their_gradients(emulated: bool) -> None:
    """Rows without a zero, with one, with several; with infinities and NaN."""

    def products(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 0.5
        return y.prod(-1) * y.sum(-1), x.prod(0, keepdim=True)

    f = avo_ops.compile(products)
    x = make((5, 37), torch.float32, 3).sign() * (1 + 0.1 * make((5, 37), torch.float32, 4))
    x[1, 3] = x[2, 0] = x[2, 36] = x[3, 0] = 0.0
    special = x.clone()
    special[0, 1], special[1, 1], special[4, 4] = math.inf, math.inf, math.nan
    with emulate(sms=3) if emulated else contextlib.nullcontext():
        for given in (x, x[:, :4], x[:, ::2]):
            check(products, f, [given])
        for a, b in zip(f(special), products(special), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)
        given = torch.tensor([[0.0, math.nan, 2.0], [0.0, math.inf, 3.0]], requires_grad=True)
        (grad,) = torch.autograd.grad(f(given)[1].sum() + f(given.t())[1].sum(), given)
        assert grad[:, 2].isnan().all(), "0 times infinity and 0 times NaN are NaN"
    assert not f.variants()[0].composite.reasons


@pytest.mark.parametrize(
    "fn",
    [torch.lgamma, torch.digamma, torch.erfinv, F.elu, F.celu, F.selu, F.softplus,
     lambda x: F.elu(x.clone(), 0.5, True), lambda x: F.softplus(x, 0.5, 3.0)],
    ids=["lgamma", "digamma", "erfinv", "elu", "celu", "selu", "softplus", "elu_", "softplus_beta"],
)  # fmt: skip
def test_what_has_branches_is_differentiated_twice(fn: Any) -> None:
    """Also where a branch that is not taken is infinite, or has an infinite slope."""
    points = [-0.5, -1.5, -0.25, 0.3, 0.5, 0.7]
    points += [] if fn is torch.erfinv else [-199.25, -7.25, 1.0, 2.0, 9.0, 10.0, 12.0, 25.0, 200.0, 1000.0]
    x = torch.tensor([points], requires_grad=True)
    if fn is torch.erfinv:
        x = (x * 0.6).detach().requires_grad_()

    def of(f: Any) -> Tensor:
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * torch.arange(1.0, 1 + x.numel())).sum(), x)[0]

    torch.testing.assert_close(
        of(avo_ops.compile(lambda x: fn(x) * 1.5)), of(lambda x: fn(x) * 1.5), rtol=2e-4, atol=1e-6
    )


@pytest.mark.parametrize("before", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("after", [torch.float64, torch.float32, torch.bfloat16])
def test_the_dtype_that_a_reduction_names(before: torch.dtype, after: torch.dtype) -> None:
    def sums(x: Tensor) -> tuple[Tensor, ...]:
        return (
            x.sum(-1, dtype=after),
            x.mean(0, dtype=after),
            x.prod(-1, dtype=after),
            x.sum(dtype=after),
            x.prod(dtype=after),
        )

    x = make((4, 40), before, 6).sign()
    for got, want in zip(avo_ops.compile(sums)(x), sums(x), strict=True):
        torch.testing.assert_close(got, want)


def test_the_place_in_a_tensor_without_dims() -> None:
    fn = lambda x: ((x * 2).argmax(-1), (x * 2).argmin(0, keepdim=True), (x * 2).argmax())  # noqa: E731
    for got, want in zip(avo_ops.compile(fn)(torch.tensor(3.0)), fn(torch.tensor(3.0)), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)


def test_products_are_differentiated_twice_also_where_there_are_zeros() -> None:
    x = 1 + 0.1 * make((4, 5), torch.float64, 5)
    x[1, 3] = x[2, 0] = x[2, 4] = x[3, 0] = x[3, 1] = x[3, 2] = 0.0
    f = avo_ops.compile(lambda x: torch.exp(0.1 * x).prod(0) + x.prod(-1).sum() + x.prod())
    x.requires_grad_()
    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)
    tangents = [torch.func.jvp(g, (x.detach(),), (x.detach().cos(),)) for g in (f, f.fn)]
    torch.testing.assert_close(*tangents)


# ---- graphs and conditions ----


def scale(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


@pytest.fixture(scope="module")
def scaled() -> Any:
    return avo_ops.compile(scale, example_inputs=(torch.randn(4, 4), torch.randn(4)))


@pytest.mark.parametrize(
    "shapes",
    [((4, 4), (4,)), ((5, 3), (3,)), ((3, 5), (5,)), ((7, 1), (1,)), ((1, 7), (7,)), ((2, 3, 4), (4,)), ((6,), (6,)),
     ((4, 4), (4, 4)), ((4, 4), (4, 1)), ((4, 4), ()), ((1, 4), (4, 1)), ((2, 1, 4), (3, 1)), ((1, 1), (1, 1))],
    ids=str,
)  # fmt: skip
def test_any_shape_after_a_square_example(scaled: Any, shapes: Any) -> None:
    check(scale, scaled, [make(s, torch.float32, 7 + i) for i, s in enumerate(shapes)])


def test_one_graph_serves_all_sizes() -> None:
    f = avo_ops.compile(scale, example_inputs=(torch.randn(4, 4), torch.randn(4)))
    for rows, columns in itertools.product((2, 4, 9), (2, 4, 33)):
        f(torch.randn(rows, columns), torch.randn(columns))
    assert len(f.variants()) == 1
    assert str(f.variants()[0]).startswith(
        "x: float32[A, B], w: float32[C] where w.shape[0] == x.shape[1]: scale_"
    )
    f(torch.randn(1, 4), torch.randn(4))
    f(torch.randn(4, 4).double(), torch.randn(4).double())
    assert len(f.variants()) == 3


def test_an_equality_that_the_trace_needed_is_a_condition() -> None:
    def plus(x: Tensor, y: Tensor) -> Tensor:
        return x.sum(0) + y

    f = avo_ops.compile(plus)
    check(plus, f, [torch.randn(5, 5), torch.randn(5)])
    with pytest.raises(RuntimeError, match="size of tensor a"):
        f(torch.randn(5, 6), torch.randn(5))

    def half(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 4 else x - 1

    g = avo_ops.compile(half)
    for rows in (3, 8, 4, 5):
        check(half, g, [torch.randn(rows, 3)])
    assert len(g.variants()) == 2


def test_a_size_may_follow_from_that_of_a_later_argument() -> None:
    def doubled(x: Tensor, y: Tensor) -> Tensor:
        return x + torch.cat([y, y])

    f = avo_ops.compile(doubled)
    for rows in (2, 3, 4):
        check(doubled, f, [torch.randn(2 * rows, 5), torch.randn(rows, 5)])
    assert [v.conditions for v in f.variants()] == [
        ("x.shape[0] == 2*y.shape[0]", "y.shape[1] == x.shape[1]")
    ]
    with pytest.raises(RuntimeError, match="size of tensor a"):
        f(torch.randn(5, 5), torch.randn(2, 5))


def test_conditions_of_any_kind_are_kept_and_checked() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        part = x[: int(x.shape[0] * 0.5)] * 2
        return part + 1 if x.shape[0] / y.shape[0] > 1.5 else part - y.amax(0)

    compiled = avo_ops.compile(f)
    for rows, others in ((6, 3), (9, 4), (6, 5), (7, 7)):
        check(f, compiled, [torch.randn(rows, 5), torch.randn(others, 5)])


def test_conditions_are_said_with_the_names_of_the_sizes() -> None:
    a, b = sympy.symbols("s1 s10")
    conditions = (Condition(None, a, (0, 0)), Condition(None, b, (0, 1)), Condition(a + 2 * b, None, (1, 0)))
    captured = Captured(torch.fx.GraphModule({}, torch.fx.Graph()), conditions)
    assert captured.conditions_in_words(["x", "y"]) == ["y.shape[0] == x.shape[0] + 2*x.shape[1]"]
    size = Size(*captured.size_text(conditions[2].expression))
    holds = Program(2, 2, (program.Condition(size, (1, 0)),), (), (), ()).holds()
    assert holds([(3, 5), (13,)])
    assert not holds([(3, 5), (14,)])


def test_a_known_graph_is_found_without_symbolic_math(monkeypatch: pytest.MonkeyPatch) -> None:
    f = avo_ops.compile(scale)
    for n in (4, 5):
        f(torch.randn(3, n), torch.randn(n))
    monkeypatch.setattr("avo_ops.jit.program.evaluator", None)
    f(torch.randn(5, 6), torch.randn(6))
    assert len(f.variants()) == 1


def test_float_arguments_make_no_graphs_and_ints_do() -> None:
    def f(x: Tensor, t: float, n: int, mode: str = "a", flag: Any = None) -> Tensor:
        y = x / t + n
        return y if mode == "a" and flag is None else -y

    compiled = avo_ops.compile(f)
    x = torch.randn(4, 5)
    for t in (0.5, 2.0, math.inf):
        torch.testing.assert_close(compiled(x, t, 3), f(x, t, 3))
    assert len(compiled.variants()) == 1
    torch.testing.assert_close(compiled(x, 0.5, 4), f(x, 0.5, 4))
    torch.testing.assert_close(compiled(x, n=3, t=0.5, mode="b"), f(x, 0.5, 3, "b"))
    torch.testing.assert_close(compiled(x, 0.5, 3, flag=True), -f(x, 0.5, 3))
    assert len(compiled.variants()) == 4


def test_a_float_that_must_be_a_number_is_part_of_the_graph() -> None:
    def f(x: Tensor, p: float) -> Tensor:
        return x * math.sqrt(p) if p > 1 else F.leaky_relu(x, p)

    compiled = avo_ops.compile(f)
    for p in (0.1, 4.0, 0.3, 4.0):
        check(f, compiled, [torch.randn(4, 5), p])
    assert len(compiled.variants()) == 3
    x = torch.randn(4, 5)
    for p in (math.nan, float("nan")):
        torch.testing.assert_close(compiled(x, p), f(x, p), equal_nan=True)
    assert len(compiled.variants()) == 4


def test_structures_in_and_out() -> None:
    def f(pair: tuple[Tensor, dict[str, Tensor]], scale: float = 2.0) -> dict[str, Any]:
        x, more = pair
        return {"y": x * more["w"], "rest": [more["w"] * scale, None, 3]}

    x, w = torch.randn(3, 4), torch.randn(4)
    out = avo_ops.compile(f)((x, {"w": w}))
    assert out["rest"][1:] == [None, 3]
    torch.testing.assert_close(out["y"], x * w)
    torch.testing.assert_close(out["rest"][0], w * 2)
    single = avo_ops.compile(lambda x, pair: x * pair[0])
    for _ in range(3):
        torch.testing.assert_close(single(x, (w,)), x * w)


def test_keyword_arguments_of_any_name() -> None:
    def f(x: Tensor, key: Any = None, self: Any = None, args: Any = None) -> Tensor:
        for a in (key, self, args):
            x = x * 2 if a is None else x + a
        return x

    compiled = avo_ops.compile(f)
    x = torch.ones(3, 4)
    for name in ("key", "self", "args"):
        given = {name: torch.full((4,), 10.0)}
        compiled.prepare(x, **given)
        torch.testing.assert_close(compiled(x, **given), f(x, **given))
        fast = torch.compile(lambda x, given: compiled(x, **given), fullgraph=True, backend="eager")
        torch.testing.assert_close(fast(x, given), f(x, **given))


def test_sizes_in_the_results_are_those_of_the_call() -> None:
    def f(x: Tensor) -> Any:
        n = x.shape[0]
        return {
            "y": x * 2,
            "sizes": [n, n * x.shape[1] // 2, x.shape],
            "ratio": (n / x.shape[1], n > 5),
            "k": 3,
        }

    compiled = avo_ops.compile(f)
    for shape in ((4, 6), (8, 3), (6, 6)):
        x = torch.randn(shape)
        for _ in range(2):
            found, expected = compiled(x), f(x)
            torch.testing.assert_close(found.pop("y"), expected.pop("y"))
            assert found == expected
            assert list(map(type, leaves(found))) == list(map(type, leaves(expected)))
    assert len(compiled.variants()) == 1


def test_a_result_that_may_hold_tensors_unseen_is_refused() -> None:
    class Pair:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    with pytest.raises(avo_ops.CompileError, match="returns a Pair: return tensors, numbers, strings"):
        avo_ops.compile(lambda x: Pair(x * 2))(torch.randn(3, 4))


def test_an_argument_that_cannot_choose_a_graph_is_named() -> None:
    def f(x: Tensor, more: Any = None) -> Tensor:
        return x * 2

    with pytest.raises(avo_ops.CompileError, match="the argument more is a set, which has no hash"):
        avo_ops.compile(f)(torch.randn(3, 4), {1, 2})


def test_strides_and_views_of_any_kind() -> None:
    f = avo_ops.compile(scale)
    x = torch.randn(8, 6, 10)
    for view in (
        x.transpose(0, 1),
        x[:, ::2],
        x[..., ::3],
        x.permute(2, 0, 1),
        x[:1].expand(4, 6, 10),
        x.as_strided((3, 4), (1, 1)),
    ):
        check(scale, f, [view, torch.randn(2 * view.shape[-1])[::2]])


def test_empty_tensors() -> None:
    f = avo_ops.compile(scale)
    for shape in ((0, 4), (3, 0)):
        avo_ops.reset_stats()
        with avo_ops.strict():
            assert f(torch.randn(shape), torch.randn(shape[-1])).shape == shape
        assert avo_ops.stats() == {"avo_jit::scale / empty": 1}


# ---- semantics ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["exp_", "sigmoid_", "clamp_", "mul_", "relu_", "tanh_"])
def test_temporaries_modified_in_place(name: str, dtype: torch.dtype) -> None:
    """They become functions of their operands: so do those within torch's, as within binary_cross_entropy_with_logits."""
    arguments = {"clamp_": (-0.5, 0.5), "mul_": (2.0,)}.get(name, ())

    def f(x: Tensor) -> list[Tensor]:
        h = x * 1.5
        getattr(h, name)(*arguments)
        return [h, F.binary_cross_entropy_with_logits(h, x)]

    captured = capture(f, [torch.randn(4, 6, dtype=dtype)], [], ["x"])
    mutable = [
        n for n in captured.graph.nodes if getattr(n.target, "_schema", None) and n.target._schema.is_mutable
    ]
    assert not mutable


def test_rows_that_are_not_finite() -> None:
    """Their sums are not known to vanish, and their means are not in range."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        c = x - x.mean(-1, keepdim=True)
        residue = c.mean(-1, keepdim=True)
        scaled = c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-3)
        return residue, c - residue, scaled.mean(-1), x.mean(-1)

    x = torch.randn(6, 40)
    x[1, 3], x[2, 3], x[3, 4], x[4, 5:7] = math.nan, math.inf, -math.inf, torch.tensor([math.inf, -math.inf])
    x[5] *= 1e-33
    for got, want in zip(avo_ops.compile(f)(x), f(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-6)
    got, want = avo_ops.compile(f)(x)[3][5], x[5].double().mean()
    assert abs(float(got) / float(want) - 1) < 1e-5


def test_special_values_and_promotion() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(x > 0, x, torch.maximum(x * y, -x)) + torch.sign(x)

    values = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42, 3.0])
    x, y = values[:, None].expand(7, 7).contiguous(), values[None].expand(7, 7).contiguous()
    torch.testing.assert_close(avo_ops.compile(f)(x, y), f(x, y), equal_nan=True)
    for a, b in itertools.product((torch.float32, torch.bfloat16, torch.float16, torch.float64), repeat=2):
        left, right = torch.randn(3, 4, dtype=a), torch.randn(4, dtype=b)
        assert avo_ops.compile(lambda x, y: x + y)(left, right).dtype == (left + right).dtype


def test_casts_of_the_author_are_kept_and_torchs_are_not() -> None:
    def rounded(x: Tensor) -> Tensor:
        return (x * 1.001).to(torch.bfloat16).float() * 3

    x = torch.randn(4, 40)
    torch.testing.assert_close(avo_ops.compile(rounded)(x), rounded(x), rtol=0, atol=0)
    # Eager's softmax rounds to bfloat16 before the product; the kernel does not.
    y = torch.randn(4, 40).bfloat16()
    found = avo_ops.compile(lambda x: torch.softmax(x, -1) * 1.01)(y)
    exact = torch.softmax(y.double(), -1) * 1.01
    assert ((found.double() - exact).abs() <= exact * 2.0**-8).all()


def test_gradients_end_where_the_author_says() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            m = x.amax(-1, keepdim=True)
        return (x - m) * x.detach()

    check(f, avo_ops.compile(f), [torch.randn(4, 5)])


def test_closures_over_tensors_are_read_at_each_call() -> None:
    w = torch.randn(5, requires_grad=True)
    f = avo_ops.compile(lambda x: x * w)
    x = torch.randn(3, 5)
    torch.testing.assert_close(f(x), x * w)
    with torch.no_grad():
        w.mul_(2)
    torch.testing.assert_close(f(x), x * w)
    torch.testing.assert_close(torch.autograd.grad(f(x).sum(), w)[0], x.sum(0))


def _gate_kept(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(x).detach()


def _mean_kept(x: torch.Tensor) -> torch.Tensor:
    return x * (x * x).mean(-1, keepdim=True).detach()


def _mean_kept_and_not(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return x * mean.detach() + x * x * mean


def _maximum_without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        largest = x.amax(-1, keepdim=True)
    return torch.exp(x - largest) * x


def _shifted(x: torch.Tensor) -> torch.Tensor:
    c = x - x.amax(-1, keepdim=True).detach()
    return c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-3)


@pytest.mark.parametrize(
    "fn", [_gate_kept, _mean_kept, _mean_kept_and_not, _maximum_without_gradient, _shifted]
)
def test_what_is_detached_stays_so_in_every_derivative(fn: Any) -> None:
    """A second derivative of a formula with detached parts is not that of the formula without."""
    f = avo_ops.compile(fn)
    found: list[list[torch.Tensor]] = []
    for function in (f, fn):
        x = torch.randn(
            3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(6)
        ).requires_grad_()
        first = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sin().sum(), x, create_graph=True)[0]
        third = torch.autograd.grad(second.cos().sum(), x)[0]
        found.append([first, second, third])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


def test_higher_derivatives_and_transforms(scaled: Any) -> None:
    x, w = (
        torch.randn(3, 4, dtype=torch.float64, requires_grad=True),
        torch.rand(4, dtype=torch.float64, requires_grad=True),
    )
    assert torch.autograd.gradcheck(scaled, (x, w), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(scaled, (x, w))
    torch.testing.assert_close(
        torch.func.jacrev(scaled)(x.detach(), w.detach()), torch.func.jacrev(scale)(x.detach(), w.detach())
    )
    many = torch.randn(5, 3, 4)
    torch.testing.assert_close(
        torch.vmap(scaled, (0, None))(many, w.float()), torch.vmap(scale, (0, None))(many, w.float())
    )
    fresh = avo_ops.compile(lambda x: x.amax(-1).mean(0))  # its first call is under the transform
    torch.testing.assert_close(torch.vmap(fresh)(many), many.amax(-1).mean(-1))


def test_checkpoint_and_autocast(scaled: Any) -> None:
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    out = torch.utils.checkpoint.checkpoint(scaled, x, w, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x), torch.autograd.grad(scale(x, w).sum(), x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scaled(x, w).dtype == scale(x, w).dtype


def test_autocast_is_a_part_of_the_graph() -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(x * 2, y)

    def products(x: Tensor, y: Tensor) -> Tensor:  # in float32 under autocast, and left to torch
        return (x * y).prod(-1)

    a, b = torch.rand(4, 6).bfloat16(), torch.rand(4, 6).bfloat16()
    for fn in (loss, products):
        compiled = avo_ops.compile(fn)
        for enabled in (True, True, False, False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                found, expected = compiled(a, b), fn(a, b)
                assert found.dtype == expected.dtype == (torch.float32 if enabled else torch.bfloat16)
                torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
        assert len(compiled.variants()) == 2
    # A graph made without it is the same under it, whatever torch's own steps would do there.
    whole = avo_ops.compile(lambda x: x.float().prod(-1).bfloat16() * 2, example_inputs=(a,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert whole(a).dtype == torch.bfloat16
        assert whole.verify(a).departure is None


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="torch makes no fake tensor on a second GPU here")
def test_the_device_is_a_part_of_the_graph() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.arange(x.shape[-1], device=x.device) * x

    compiled = avo_ops.compile(f)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), f(x))
    assert compiled(x.to("meta")).device.type == "meta"
    with FakeTensorMode():
        one, two = (kind_of(torch.empty(3, 4, device=f"cuda:{i}")) for i in range(2))
    assert one != two


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_it_whole(scaled: Any, dynamic: bool) -> None:
    def model(x: Tensor, w: Tensor) -> Tensor:
        return scaled(x * 2, w).sin()

    fast = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (3, 6, 9):
        x, w = torch.randn(rows, 4, requires_grad=True), torch.randn(4)
        torch.testing.assert_close(fast(x, w), model(x, w))
        torch.testing.assert_close(
            torch.autograd.grad(fast(x, w).sum(), x), torch.autograd.grad(model(x, w).sum(), x)
        )
    new = avo_ops.compile(lambda x: (x.mean(0), x * 2))
    a, b = torch.compile(lambda x: new(x + 1), fullgraph=True, backend="aot_eager", dynamic=dynamic)(
        many := torch.randn(4, 5)
    )
    torch.testing.assert_close((a, b), ((many + 1).mean(0), (many + 1) * 2))


def test_it_is_a_registered_operator(scaled: Any) -> None:
    (name,) = scaled.variants()[0].operators
    torch.library.opcheck(
        getattr(torch.ops.avo_jit, name).default,
        (torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)),
    )


def test_methods_and_decorators() -> None:
    class Model:
        scale = 3.0

        @avo_ops.compile
        def run(self, x: Tensor) -> Tensor:
            return x * 3.0

    @avo_ops.compile(name="twice")
    def double(x: Tensor) -> Tensor:
        """Twice."""
        return x * 2

    x = torch.randn(3, 4)
    torch.testing.assert_close(double(x), x * 2)
    assert double.__doc__ == "Twice."
    assert double.variants()[0].operators[0].startswith("twice_")
    torch.testing.assert_close(Model().run(x), x * 3)


# ---- what is left to torch, and what is refused ----


def test_several_regions_are_several_kernels() -> None:
    def f(x: Tensor) -> Tensor:
        y = x - x.mean(0)
        return y / (y * y).mean(1, keepdim=True).sqrt()

    compiled = avo_ops.compile(f)
    avo_ops.reset_stats()
    check(f, compiled, [torch.randn(6, 7)])
    assert len(compiled.variants()[0].operators) == 2
    assert not any(k.endswith("definition") for k in avo_ops.stats())
    assert "torch   " not in compiled.plan()


def test_what_has_no_kernel_is_said_counted_and_refused_in_strict_mode() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.exp(x).cumsum(-1) * 2

    compiled = avo_ops.compile(f)
    avo_ops.reset_stats()
    check(f, compiled, [torch.randn(4, 5)])
    assert avo_ops.stats()["avo_jit::f / definition"] == 1
    (line,) = [line for line in compiled.plan().splitlines() if line.startswith("    torch")]
    assert line.startswith(f"    torch   aten.cumsum.default ({__file__}:")
    assert line.endswith("aten.cumsum.default has no place in a kernel yet")
    with (
        avo_ops.strict(),
        pytest.raises(RuntimeError, match=r"^f: strict mode: torch would run a part of it.*cumsum"),
    ):
        compiled(torch.randn(4, 5))


@pytest.mark.parametrize(
    ("fn", "reason"),
    [(lambda x: x * torch.arange(x.shape[-1], dtype=x.dtype), "it makes a tensor"),
     (lambda x: (x * 2).view(torch.int32) + 1, "it takes the bits of a tensor for another dtype")],
)  # fmt: skip
def test_what_is_left_to_torch_has_a_reason(fn: Any, reason: str) -> None:
    compiled = avo_ops.compile(fn)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), fn(x))
    assert next(r for _, r in compiled.variants()[0].composite.reasons) == reason


def test_a_mask_of_one_value() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.where(torch.zeros(x.shape[-1]).bool(), x, -x)

    check(f, avo_ops.compile(f), [torch.randn(3, 4)])


def test_what_torch_cannot_trace_runs_as_it_is_after_one_warning() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)

    compiled = avo_ops.compile(f)
    x = torch.randn(3, 4)
    with pytest.warns(
        RuntimeWarning, match=r"f runs by plain torch operations:\n  .*test_compile.py:\d+\n +return torch"
    ):
        torch.testing.assert_close(compiled(x), x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(x + 1), (x + 1) * 2)
    assert "torch   the whole function" in compiled.plan()
    with avo_ops.strict(), pytest.raises(RuntimeError, match="strict mode"):
        compiled(x)


def test_what_runs_as_it_is_keeps_nothing_of_a_call() -> None:
    def f(x: Tensor, many: int) -> Any:
        doubled = torch.from_numpy(x.detach().numpy() * 2)
        return [doubled] * many if many > 1 else {"y": doubled, "sum": float(x.sum())}

    compiled = avo_ops.compile(f)
    with pytest.warns(RuntimeWarning, match="runs by plain torch operations"):
        for many in (1, 2):
            compiled(torch.ones(3, 4), many)
        compiled(torch.ones(3, 4), many=1)
    x = torch.full((3, 4), 2.0)
    kept = weakref.ref(x)
    for found in (compiled(x, 1), compiled(x, many=1)):
        assert found["sum"] == 24
    assert len(compiled(x, 2)) == 2
    del found
    del x
    assert kept() is None


def in_threads(*calls: Callable[[], Any]) -> None:
    barrier, errors = threading.Barrier(len(calls)), []

    def run(call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(c,)) for c in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_make_graphs_of_several_functions() -> None:
    def make_and_check(i: int) -> None:
        def f(x: Tensor, w: Tensor) -> Tensor:
            y = torch.softmax(x * w + i, -1)
            return y.mean(0) if i % 2 else torch.cumsum(y, 0) - y.amax(-1, keepdim=True)

        compiled = avo_ops.compile(f)
        x, w = torch.randn(4, 5), torch.randn(5)
        torch.testing.assert_close(compiled(x, w), f(x, w))
        assert "test_compile.py" in compiled.plan() or i % 2
        assert compiled.verify(x, w).lines[0].text == "y = torch.softmax(x * w + i, -1)"

    in_threads(*(functools.partial(make_and_check, i) for i in range(6)))


def test_a_call_during_the_warmup_of_another_function_has_its_kernels() -> None:
    x = torch.randn(3, 4)
    other = avo_ops.compile(lambda x: x * 7 + 1)
    with emulate(sms=3):
        other(x)  # its graph is made, its kernels for the CPU are not

    def f(x: Tensor) -> Tensor:
        in_threads(lambda: other(x0))
        return x * 2

    x0 = x
    compiled = avo_ops.compile(f)
    compiled._example = (x,)
    avo_ops.reset_stats()
    compiled.warmup([((3, 4),)])
    (name,) = other.variants()[0].operators
    ran = [k for k in avo_ops.stats() if k.startswith(f"avo_jit::{name}")]
    assert ran
    assert all(" / cpu/" in k for k in ran)


def test_plan_and_source(scaled: Any) -> None:
    assert "kernel  scale_" in scaled.plan()
    assert "rsqrt" in scaled.plan()
    assert "m_rsqrt" in scaled.source("cpu")
    assert "#define AVO_FUNCTION scale_" in scaled.source("cuda")
    with pytest.raises(ValueError, match="'cuda' or 'cpu'"):
        scaled.source("tpu")


NO_VALUES = "a Python number or a decision depends on the values of a tensor: keep it a tensor, and use torch.where instead of if"


def everything_wrong(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    x.add_(1)
    z = F.conv1d(y[None], w[None])
    if y.sum() > 0:
        return y
    return z


def data_dependent_shape(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def as_a_number(x: Tensor) -> Tensor:
    return x * x.sum().item()


def lines_of(error: BaseException) -> str:
    first = everything_wrong.__code__.co_firstlineno
    text = str(error).replace(__file__, "FILE")
    for line in range(first, first + 30):
        text = text.replace(f"FILE:{line}\n", f"FILE:+{line - first}\n")
    return text


def test_explain_says_what_a_function_becomes_and_what_is_left() -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = scale(x, w)
        return torch.cumsum(y, 0) * 2

    x, w = torch.randn(6, 40, requires_grad=True), torch.randn(40, requires_grad=True)
    found = avo_ops.explain(f, x, w, on="sm_90")
    assert not found.supported
    assert [(p.operation, p.text) for p in found.left] == [
        ("aten.cumsum.default", "return torch.cumsum(y, 0) * 2")
    ]
    assert str(found).startswith(
        "f(x: float32[A, B], w: float32[C] where w.shape[0] == x.shape[1]): supported in part, 2 kernel calls"
    )
    whole = [[c.path for c in e.calls] for e in found.kernels]
    assert whole == [["cuda", "cuda"]] * 2
    # x, w and the result with its statistic; then what cumsum gave, and its double.
    assert found.moved() == (240 + 40 + 240 + 6) * 4 + (240 + 240) * 4
    assert found.moved(backward=True) > 0
    assert found.seconds() is None  # whose bandwidth?
    assert dataclasses.replace(found, bandwidth=1e9).seconds() == pytest.approx(found.moved() / 1e9)
    compiled = avo_ops.compile(scale)
    avo_ops.reset_stats()
    here = avo_ops.explain(compiled, x, w)
    assert here.supported
    assert [c.path.partition("/")[0] for c in here.kernels[0].calls] == ["cpu", "cpu"]
    assert avo_ops.stats() == {}  # nothing ran
    with torch.no_grad():
        assert avo_ops.explain(compiled, x.T, w[:6]).kernels[0].saved is None
    assert "avo::gelu" in str(avo_ops.explain("gelu", x))


def test_explain_says_all_that_stands_against_a_function() -> None:
    found = avo_ops.explain(everything_wrong, torch.randn(4, 4), torch.randn(4, 4))
    assert not found.supported
    assert str(found).startswith("everything_wrong: not supported\n  ")
    with pytest.raises(avo_ops.CompileError) as caught:
        avo_ops.compile(everything_wrong)(torch.randn(4, 4), torch.randn(4, 4))
    assert found.problems == str(caught.value).removeprefix("everything_wrong cannot be compiled:\n")
    with pytest.warns(RuntimeWarning, match="runs by plain torch operations"):
        found = avo_ops.explain(lambda x: torch.from_numpy(x.numpy() * 2), torch.randn(3, 4))
    assert found.problems.startswith("  torch runs the whole function: ")
    plain = avo_ops.compile(lambda n: torch.ones(3) * n)
    assert avo_ops.explain(plain, 2.0).problems == "  no argument is a tensor: the function itself runs"
    with pytest.raises(avo_ops.CompileError, match="no argument is a tensor"):
        plain.verify(2.0)


def test_refusals_name_every_line_the_reason_and_the_rewrite() -> None:
    with pytest.raises(avo_ops.CompileError) as caught:
        avo_ops.compile(everything_wrong, example_inputs=(torch.randn(4, 4), torch.randn(4, 4)))
    product = "a matrix product has no place in these kernels: call it outside, and compile what comes before and after it"
    assert lines_of(caught.value) == "\n".join(
        [
            "everything_wrong cannot be compiled:",
            "  FILE:+1", "      y = x @ w", f"    {product}",
            "  FILE:+2", "      x.add_(1)",
            "    the argument x is modified in place, and a compiled function never writes to its arguments: compute a new tensor "
            "and return it",
            "  FILE:+3", "      z = F.conv1d(y[None], w[None])",
            f"    {product.replace('matrix product', 'convolution')}",
            "  FILE:+4", "      if y.sum() > 0:",
            f"    {NO_VALUES}",
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fn", "line", "reason"),
    [(data_dependent_shape, 1, "a shape depends on the values of a tensor: use torch.where, which keeps the shape"),
     (as_a_number, 1, NO_VALUES)],
)  # fmt: skip
def test_refusals_of_one_line(fn: Any, line: int, reason: str) -> None:
    with pytest.raises(avo_ops.CompileError) as caught:
        avo_ops.compile(fn)(torch.randn(3, 4))
    first, place, text, why = str(caught.value).splitlines()
    assert first == f"{fn.__name__} cannot be compiled:"
    assert place == f"  {__file__}:{fn.__code__.co_firstlineno + line}"
    assert text.strip().startswith("return ")
    assert why.strip() == reason


def cancelling(x: Tensor) -> Tensor:
    big = x + 1e4
    small = big - 1e4
    return small * 2


def test_verify_shows_each_line_and_where_ours_departs(monkeypatch: pytest.MonkeyPatch) -> None:
    f = avo_ops.compile(cancelling)
    x = torch.linspace(0.1, 3, 200).reshape(4, 50)  # nothing that the addition loses as a whole
    found = f.verify(x)
    assert [line.text for line in found.lines] == ["big = x + 1e4", "small = big - 1e4", "return small * 2"]
    assert found.lines[0].ours.ulp <= 0.5
    assert found.lines[1].eager.absolute > 1e-4  # what the addition lost, in eager and in ours
    assert found.lines[1].ours == found.lines[1].eager
    assert found.departure is None
    assert "no line departs from eager" in str(found)
    # A kernel that is wrong from the second line on.
    real = Composite.__call__
    monkeypatch.setattr(
        Composite,
        "__call__",
        lambda self, leaves: [y * (1 + (i > 0) * 0.5) for i, y in enumerate(real(self, leaves))],
    )
    wrong = f.verify(x)
    assert wrong.departure is wrong.lines[1]
    assert f"first departure: {__file__}:" in str(wrong)
    monkeypatch.undo()
    mean = avo_ops.compile(lambda x: (x - x.mean()).abs().amax(0))
    assert mean.verify(torch.randn(4, 50).bfloat16()).departure is None


def test_freeze_refuses_new_graphs_and_keeps_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVO_OPS_REMEMBER", "0")
    f = avo_ops.compile(scale, example_inputs=(torch.randn(4, 4), torch.randn(4)))
    x, w = torch.randn(8, 6), torch.randn(6)
    f.warmup([((8, 6), (6,)), ((2, 8, 6), (6,))])
    avo_ops.freeze()
    try:
        torch.testing.assert_close(f(x, w), scale(x, w))
        f(torch.randn(2, 3, 6), w)
        with pytest.raises(
            RuntimeError, match=r"a graph of scale would have to be compiled, but avo_ops\.freeze"
        ):
            f(torch.randn(1, 6), w)
    finally:
        avo_ops.freeze(False)
    f(torch.randn(1, 6), w)


def test_warmup_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="example_inputs"):
        avo_ops.compile(scale).warmup([((4, 4), (4,))])
    f = avo_ops.compile(scale, example_inputs=(torch.randn(4, 4), torch.randn(4)))
    with pytest.raises(ValueError, match="takes 2 tensors, but 1 shapes"):
        f.warmup([((4, 4),)])
