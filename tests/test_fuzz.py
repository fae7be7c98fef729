"""Random calls of every op of the catalogue, against float64 and against themselves.

A case draws an operator and one of its patterns, a shape, and for each tensor a layout, a dtype and values; which tensors
require grad; and how the incoming gradients lie. It checks values and gradients, that layouts and neighbours change no
bit, that nothing of the caller's is written to, and that a kernel ran.

AVO_OPS_FUZZ_CASES (2000) is the number of cases over all operators, AVO_OPS_FUZZ_SEED the seed, printed on a failure.
AVO_OPS_FUZZ_DTYPES (f32,bf16,f16,f64) are those of the tensors. With AVO_OPS_FUZZ_EMULATED=1
they run by the CUDA kernels in the emulator: test_emulator.py does that, under sanitizers.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from catalogue import (
    LAYOUTS,
    OPERATORS,
    RECORDS,
    RELATIVE,
    REPRESENTATIVES,
    STEPS,
    WAYS,
    Way,
    as_tuple,
    differentiable,
    doubled,
    gradient_roundings,
    is_narrow,
    number,
    readable,
    real,
    result_dtype,
    rounds_between,
    same,
    saves_a_result,
    schema_names,
    stated_by_results,
)
from emulator_catalogue import use_libraries
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import avo_ops
from avo_ops.definitions import OpDef
from benchmarks.accuracy import short_of_infinity, twin_of

CASES = int(os.environ.get("AVO_OPS_FUZZ_CASES", "2000"))
SEED = int(os.environ.get("AVO_OPS_FUZZ_SEED", random.SystemRandom().randrange(2**32)))

EMULATED = Way("emulated", "cpu", lambda: avo_ops.testing.emulate(arch=90, sms=4))
CHOSEN, NAMES = list(WAYS.values()), REPRESENTATIVES
SHORT = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
DTYPES = [SHORT[name] for name in os.environ.get("AVO_OPS_FUZZ_DTYPES", ",".join(SHORT)).split(",")]
if os.environ.get("AVO_OPS_FUZZ_EMULATED") == "1":
    CHOSEN, NAMES = [EMULATED], list(RECORDS)
WIDTHS = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    15,
    16,
    17,
    31,
    33,
    34,
    36,
    64,
    65,
    100,
    127,
    257,
    300,
    513,
    1026,
]
LEADING = [1, 2, 3, 4, 5, 7, 0, 9]
VALUES = ["normal", "small", "tails", "mean", "constant", "zeros", "denormal", "outlier", "special"]


def values(kind: str, shape: tuple[int, ...], generator: torch.Generator, coarse: bool) -> torch.Tensor:
    """``coarse``: sums of two are exact in bfloat16, for operators that round one result before another uses it."""
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if coarse:
        x = (x * 8).round().clamp(-64, 64) / 8
        return {"small": x / 1024, "mean": x.clamp(-1, 1) + 8, "constant": x * 0 + 3}.get(kind, x)
    match kind:
        case "small":
            return x * 1e-3
        case "tails":
            return x * 8
        case "mean":
            return x + 100
        case "constant":
            return torch.full_like(x, 3.1)
        case "zeros":
            return torch.where(x > 0, 0.0, -0.0)
        case "denormal":
            return x * 1e-39
        case "outlier":
            return torch.where(x > 2, x * 1000, x)
        case "special":
            for value in (float("inf"), float("-inf"), float("nan")):
                here = torch.rand(shape[:1] or (1,), generator=generator) < 0.2
                if x.numel():
                    x[here if x.dim() else ...] = value
            return x
    return x


@dataclass(frozen=True)
class Case:
    """What hypothesis draws; the numbers come from ``seed``."""

    shape: tuple[int, ...]
    columns: int  # trailing dims of a record that counts them
    dim: int
    patterns: int
    broadcast: int
    layouts: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    values: tuple[str, ...]
    wanted: int  # bits: which tensors require grad
    gradients: tuple[str, ...]
    omit: bool
    seed: int


# The most tensors that an operator takes.
TENSORS = max(sum(a["kind"] == "tensor" for a in op["ops"][0]["args"]) for op in OPERATORS.values())
GRADIENTS = [*LAYOUTS, "expanded", "expanded rows"]


@st.composite
def cases(draw: Any) -> Case:
    rank = draw(st.sampled_from([2, 2, 3, 1, 4, 0]))
    shape = tuple(draw(st.sampled_from(LEADING)) for _ in range(rank - 1))
    if rank:
        shape += (draw(st.sampled_from(WIDTHS)),)
    each = lambda choices: tuple(draw(st.sampled_from(choices)) for _ in range(TENSORS))  # noqa: E731
    same = draw(st.booleans())
    dtypes = each(DTYPES)
    return Case(
        shape=shape,
        columns=draw(st.integers(1, 2)),
        dim=draw(st.integers(-4, 3)),
        patterns=draw(st.integers(0, 7)),
        broadcast=draw(st.integers(-3, 4)),
        layouts=each(list(LAYOUTS)),
        dtypes=(dtypes[0],) * TENSORS if same else dtypes,
        values=(draw(st.sampled_from(VALUES)), *("normal",) * (TENSORS - 1)),
        wanted=draw(st.integers(0, 2**TENSORS - 1)),
        gradients=each(GRADIENTS),
        omit=draw(st.booleans()),
        seed=draw(st.integers(0, 2**20)),
    )


@dataclass
class Built:
    arguments: dict[str, Any]
    columns: tuple[int, ...]  # dims of x

    @property
    def any(self) -> bool:
        """Whether there is an element to compute."""
        return all(next(iter(self.tensors.values())).shape)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Those that have a gradient, or could have."""
        return {k: v for k, v in self.arguments.items() if real(v)}


def build(record: OpDef, case: Case, device: str) -> Built | None:
    """The arguments of a case; None where the operator has no such call."""
    generator = torch.Generator().manual_seed(case.seed)
    shape, rank = case.shape, len(case.shape)
    rule = record.columns.rule
    if rule == "dim":
        if not -max(rank, 1) <= case.dim < max(rank, 1):
            return None
        columns: tuple[int, ...] = (case.dim % rank,) if rank else ()
    elif rule == "groups":  # of a sample, dim 0, all other dims
        if rank < 2:
            return None
        columns = tuple(range(1, rank))
    elif rule == "flat":
        columns = ()
    else:
        count = 1 if rule == "last" else case.columns
        if count > rank:
            return None
        columns = tuple(range(rank - count, rank))
    arguments: dict[str, Any] = {}
    place = optional = 0
    for a in torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments:
        kind = str(a.type)
        if "Tensor" in kind:
            whole = list(shape)
            if a.name in record.parts:
                if len(columns) != 1:
                    return None
                whole[columns[0]] *= len(record.parts[a.name])
            span = record.spans.get(a.name, "MN")
            given_shape = tuple(whole[d] for d in columns) if span == "N" else tuple(whole)
            if span == "N" and rule == "groups":
                given_shape = (whole[1],)
            if span == "M":
                given_shape = tuple(1 if d in columns else s for d, s in enumerate(whole))
            if span == "1":
                given_shape = (1,) if case.seed % 2 else ()
            if place and a.name not in record.spans and 0 <= case.broadcast < rank:
                given_shape = tuple(1 if d == case.broadcast else s for d, s in enumerate(shape))
            rounded = len(record.results) > 1 and a.name not in record.spans
            kind_of = case.values[0 if rounded else place]
            tensor = values(kind_of, given_shape, generator, rounded).to(case.dtypes[place])
            if a.name in record.of_integers:
                most = max(math.prod(shape[d] for d in columns), 1)
                tensor = torch.randint(most, given_shape, generator=generator)
            if a.name in record.narrow:
                names = record.narrow[a.name]
                tensor = (30 * torch.randn(given_shape, generator=generator)).clamp(-128, 127)
                tensor = tensor.to(getattr(torch, names[case.seed % len(names)]))
            if span == "1":
                tensor = torch.full_like(tensor, 0.0431)
            tensor = LAYOUTS[case.layouts[place]](tensor.to(device))
            if kind.startswith("Optional"):
                optional += 1
                if not case.patterns >> optional - 1 & 1:
                    tensor = None
            arguments[a.name] = tensor
            place += 1
        elif kind == "List[int]":
            arguments[a.name] = [shape[d] for d in columns]
        elif a.name == record.columns.arg:
            divisors = (
                [d for d in range(1, max(shape[1], 1) + 1) if shape[1] % d == 0] if rule == "groups" else []
            )
            arguments[a.name] = divisors[case.dim % len(divisors)] if divisors else case.dim
        elif kind == "int":
            arguments[a.name] = a.default_value
        elif kind == "str":
            arguments[a.name] = record.choices[a.name][case.patterns % len(record.choices[a.name])]
        elif "float" in kind:
            usual = case.patterns & 4 and a.has_default_value()
            arguments[a.name] = a.default_value if usual else number(record, a.name)
    return Built(arguments, columns)


def exact(record: OpDef, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same values in float64, None as the number that it stands for."""
    double = any(isinstance(v, torch.Tensor) and v.dtype == torch.float64 for v in arguments.values())
    found = doubled(arguments)
    found |= {name: found[name].reshape(()) for name, span in record.spans.items() if span == "1"}
    for name, of in record.none_scalars.items():
        if found[name] is None:
            found[name] = of(torch.float64 if double else torch.float32)
    return found


def call(record: OpDef, arguments: dict[str, Any], omit: bool = False) -> tuple[torch.Tensor, ...]:
    function = getattr(torch.ops.avo, record.name)
    if omit:  # as a caller would, without what has its default
        schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments
        needed = [a.name for a in schema if not a.has_default_value()]
        rest = {
            a.name: arguments[a.name]
            for a in schema
            if a.has_default_value()
            and (isinstance(arguments[a.name], torch.Tensor) or arguments[a.name] != a.default_value)
        }
        return as_tuple(function(*[arguments[n] for n in needed], **rest))
    return as_tuple(function(*[arguments[n] for n in schema_names(record)]))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and same(a, b)


def memory(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [
        torch.tensor([], dtype=torch.uint8, device=t.device).set_(t.untyped_storage())
        for t in tensors.values()
    ]


def incoming(kind: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    gradient = (
        torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype).to(like.device)
    )
    if kind == "expanded":
        return torch.full((), 0.7, dtype=like.dtype, device=like.device).expand(like.shape)
    if kind == "expanded rows":
        return gradient[:1].contiguous().expand(like.shape) if like.dim() and like.shape[0] else gradient
    return LAYOUTS[kind](gradient)


def distance(got: torch.Tensor, want: torch.Tensor, floor: float) -> float:
    """The largest error beside each value, their mean and ``floor``; infinite where NaN is not met by NaN."""
    largest = min(torch.finfo(got.dtype).max, torch.finfo(torch.float32).max)
    got, want = got.detach().double(), want.detach()
    if bool((want.isnan() & ~got.isnan()).any()):
        return float("inf")
    usual = want.abs() < largest / 8  # beyond, it may be infinite
    if not bool(usual.any()):
        return 0.0
    got, want = got[usual], want[usual]
    error = (got - want).abs() / (want.abs() + want.abs().mean() + floor + 1e-300)
    return float(error.nan_to_num(float("inf")).max())


def defined(record: OpDef) -> Any:
    return getattr(torch.ops.avo, record.name).definition


def near_in_steps(record: OpDef, got: torch.Tensor, want: torch.Tensor) -> str:
    """What is wrong with a result of 8 bits: it is that of the definition in the same dtype, or its neighbour.

    Where a rounded result is used further, which the definition does not round, it may overflow.
    """
    a, b = readable(got), readable(want)
    between = rounds_between(record)
    if not between and bool((a.isnan() != b.isnan()).any()):
        return "NaN in other places"
    here = ~(a.isnan() | b.isnan())
    steps = (STEPS[got.dtype](got) - STEPS[got.dtype](want)).abs()[here]
    most = int(steps.max()) if steps.numel() else 0
    return f"{most} steps off" if most > 1 + between else ""


def near(
    got: torch.Tensor, want: torch.Tensor, tolerance: float, floor: float, twin: Callable[[], torch.Tensor]
) -> str:
    """Nothing, or how far the two are apart, if that is more than the tolerance and than twice as far as torch's."""
    if got.shape != want.shape:
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    error = distance(got, want, floor)
    if error <= tolerance:
        return ""
    other = float("inf")
    with contextlib.suppress(RuntimeError):  # torch refuses some mixes of dtypes
        other = distance(twin(), want, floor)
    # What torch itself cannot do better is the conditioning of the call.
    return (
        "" if error <= 2 * other < 1 else f"relative error {error:.2e} > {tolerance:.2e}, torch's {other:.2e}"
    )


def check(record: OpDef, case: Case, way: Way) -> None:
    with way.context():
        built = build(record, case, way.device)
        if built is None:
            return
        arguments, named = built.arguments, built.tensors
        before = [m.clone() for m in memory(named)]
        out = call(record, arguments, case.omit)

        # values
        wide = exact(record, arguments)
        want = (record.compute(**wide)) if built.any else None  # torch reduces no empty rows
        if want is not None and case.values[0] == "special":
            limits = record.compute(**short_of_infinity(wide))
            want = tuple(
                w if is_narrow(w) else torch.where(w.isnan() & (o.double() == limit), limit, w)
                for o, w, limit in zip(out, want, limits, strict=True)
            )
        kind = case.values[0]
        floor = {"constant": 1000.0, "zeros": 1.0, "denormal": 1e-3, "outlier": 10.0, "mean": 1.0}.get(
            kind, 0.1
        )
        owned = {t.untyped_storage().data_ptr() for t in named.values()}
        for i, (got, r) in enumerate(zip(out, record.results, strict=True)):
            dtype = result_dtype(record, r, arguments)
            assert got.dtype == dtype, f"result {r}: {got.dtype}"
            assert not got.numel() or got.untyped_storage().data_ptr() not in owned, "a result is not its own"
            if dtype in STEPS:
                said = near_in_steps(record, got, as_tuple(defined(record)(*arguments.values()))[i])
                assert not said, f"result {r}: {said}"
            elif want is not None:
                coarse = max(RELATIVE[t.dtype] for t in named.values()) if rounds_between(record) else 0.0
                said = near(
                    got,
                    want[i],
                    max(RELATIVE[dtype], coarse if record.dtypes.get(r) == "float32" else 0.0),
                    floor,
                    lambda i=i: as_tuple(twin_of(record)(*arguments.values()))[i],
                )
                assert not said, f"result {r}: {said}"

        # layouts
        plain = {k: v.contiguous() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        for a, b in zip(out, call(record, plain), strict=True):
            assert same_bits(a, b), "contiguous operands give other bits"

        # neighbours
        x = next(v for v in arguments.values() if isinstance(v, torch.Tensor))
        if out[0].dim() > 1 and out[0].shape[0] > 1 and 0 not in built.columns:
            row = case.seed % out[0].shape[0]
            alone = {
                k: v[row : row + 1] if isinstance(v, torch.Tensor) and v.dim() == x.dim() and v.shape[0] > 1
                and record.spans.get(k) != "N" else v
                for k, v in arguments.items()
            }  # fmt: skip
            for a, b in zip(call(record, alone), out, strict=True):
                assert same_bits(a, b[row : row + 1]), "a row alone has other bits"

        # gradients
        if record.differentiation == "kernels":
            check_gradients(record, case, built, out, floor)
        for a, b in zip(memory(named), before, strict=True):
            assert torch.equal(a, b), "an argument was written to"


def check_gradients(
    record: OpDef, case: Case, built: Built, out: tuple[torch.Tensor, ...], floor: float
) -> None:
    possible = differentiable(record, built.arguments)
    names = [n for i, n in enumerate(possible) if case.wanted >> i & 1]
    if not names:
        return
    generator = torch.Generator().manual_seed(case.seed + 1)
    kinds = case.gradients
    grads = [incoming(kinds[i], o, generator) for i, o in enumerate(out)]
    used = [i for i in range(len(out)) if len(out) == 1 or i != case.seed % 3]
    before = [g.clone() for g in grads]

    def gradients(arguments: dict[str, Any], grads: list[torch.Tensor]) -> list[torch.Tensor]:
        own = {k: v.detach().requires_grad_(k in names) if real(v) else v for k, v in arguments.items()}
        results = call(record, own, case.omit)
        for a, b in zip(results, out, strict=True):
            assert same_bits(a, b), "with gradients the results have other bits"
        roots = [results[i] for i in used]
        found = torch.autograd.grad(
            roots,
            [own[n] for n in names],
            [grads[i] for i in used],
            retain_graph=True,
            materialize_grads=True,
        )
        again = torch.autograd.grad(
            roots, [own[n] for n in names], [grads[i] for i in used], materialize_grads=True
        )
        for a, b in zip(found, again, strict=True):
            assert same_bits(a, b), "a second backward has other bits"
        return list(found)

    found = gradients(built.arguments, grads)
    for n, g in zip(names, found, strict=True):
        assert g.dtype == built.tensors[n].dtype and g.shape == built.tensors[n].shape, f"gradient of {n}"
    contiguous = {k: v.contiguous() if isinstance(v, torch.Tensor) else v for k, v in built.arguments.items()}
    for n, a, b in zip(names, found, gradients(contiguous, [g.contiguous() for g in grads]), strict=True):
        assert same_bits(a, b), f"gradient of {n}: contiguous operands give other bits"
    for a, b in zip(grads, before, strict=True):
        assert torch.equal(a, b) or a.isnan().any(), "an incoming gradient was written to"
    if case.values[0] == "special" or not built.any:
        return

    wide = exact(record, built.arguments)
    own = {k: v.requires_grad_(k in names) if real(v) else v for k, v in wide.items()}
    results = record.compute(**own)
    used = [i for i in used if results[i].requires_grad]

    def exact_gradients(grads: list[torch.Tensor]) -> list[torch.Tensor]:
        if not used:
            return [torch.zeros_like(own[n]) for n in names]
        roots, given = [results[i] for i in used], [grads[i].double() for i in used]
        found = torch.autograd.grad(
            roots, [own[n] for n in names], given, retain_graph=True, materialize_grads=True
        )
        return list(found)

    want = exact_gradients(grads)

    def of_terms(n: str) -> float:
        """The size of what cancels in a gradient: of that for incoming ones of alternating signs."""
        signs = [1 - 2 * (torch.arange(g.numel(), device=g.device) % 2).reshape(g.shape) for g in grads]
        other = exact_gradients([g.double() * s for g, s in zip(grads, signs, strict=True)])
        size = float(other[names.index(n)].abs().nanmean())
        return size if math.isfinite(size) else 0.0

    def of_eager() -> dict[str, torch.Tensor]:
        own = {k: v.detach().requires_grad_(k in names) if real(v) else v for k, v in built.arguments.items()}
        results = as_tuple(twin_of(record)(*own.values()))
        return dict(
            zip(
                names,
                torch.autograd.grad(
                    [results[i] for i in used],
                    [own[n] for n in names],
                    [grads[i].to(results[i].dtype) for i in used],
                    materialize_grads=True,
                ),
                strict=True,
            )
        )

    few = math.prod(case.shape[d] for d in built.columns)
    if record.columns.rule == "groups":
        few //= built.arguments[record.columns.arg or ""]
    sizes = summed_sizes(record, built, names, used, grads)
    for n, got, exactly in zip(names, found, want, strict=True):
        scale = 100.0 if built.columns and few <= 3 else 1.0
        least = max(max(floor, 0.1) * scale, sizes.get(n, 0.0))
        roundings = gradient_roundings(record.name)
        # A gradient that is computed from a result is as exact as that is stored.
        rounding = max(RELATIVE[t.dtype] for t in ((got, *out) if saves_a_result(record) else (got,)))
        said = near(got, exactly, roundings * rounding, least, lambda n=n: of_eager()[n])
        if said:
            least = max(least, 0.1 * of_terms(n))
            said = near(got, exactly, roundings * rounding, least, lambda n=n: of_eager()[n])
        if said and len(used) == len(out) and record.columns.rule != "flat":
            stated = stated_by_results(record, built.arguments, out, grads)
            if stated:
                said = near(got, stated[n], roundings * rounding, least, lambda n=n: of_eager()[n])
        assert not said, f"gradient of {n}: {said}"


def summed_sizes(
    record: OpDef, built: Built, names: list[str], used: list[int], grads: list[torch.Tensor]
) -> dict[str, float]:
    """Of each broadcast tensor, the largest sum of the sizes of what its gradient adds up.

    The elements are rounded to the dtype of the tensor before they are added, each by a part of itself.
    """
    wide = exact(record, built.arguments)

    def of_part(name: str, tensor: torch.Tensor) -> tuple[int, ...]:
        packed = len(record.parts.get(name, (name,)))
        return tuple(s // packed if d in built.columns else s for d, s in enumerate(tensor.shape))

    shape = torch.broadcast_shapes(
        *(of_part(n, t) for n, t in built.tensors.items() if n not in record.spans)
    )
    spread = [n for n in names if n not in record.spans and of_part(n, built.tensors[n]) != shape]
    if not spread or not used:
        return {}
    own = {k: v.expand(shape).clone().requires_grad_() if k in spread else v for k, v in wide.items()}
    results = record.compute(**own)
    elements = torch.autograd.grad(
        [results[i] for i in used],
        [own[n] for n in spread],
        [grads[i].double() for i in used],
        materialize_grads=True,
    )
    found = {}
    for n, e in zip(spread, elements, strict=True):
        added = e.abs().sum_to_size(built.tensors[n].shape)
        found[n] = float(added.nan_to_num(0.0).max()) if added.numel() else 0.0
    return found


@pytest.mark.parametrize("way", CHOSEN, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_fuzz(name: str, way: Way) -> None:
    print(f"AVO_OPS_FUZZ_SEED={SEED}")
    if way is EMULATED:
        use_libraries(name)

    @seed(SEED)
    @settings(
        max_examples=-(-CASES // len(REPRESENTATIVES)),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=True,
    )
    @given(cases())
    def run(case: Case) -> None:
        # Row results over no columns are the definition's.
        with contextlib.nullcontext() if 0 in case.shape else avo_ops.strict():
            check(RECORDS[name], case, way)

    run()
