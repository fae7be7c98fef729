"""Inputs and references for the tests that run over the whole catalogue, on every device of this machine."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import avo_ops  # noqa: F401  (registers torch.ops.avo)
from avo_ops import plan_file
from avo_ops.definitions import CATALOGUE, OpDef
from avo_ops.definitions.record import Narrow, Whole
from avo_ops.registry.layout import NAMED
from avo_ops.registry.plan import generated_folder
from benchmarks.accuracy import STEPS

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
RECORDS = {r.name: r for r in CATALOGUE}
FOLDER = generated_folder()
assert FOLDER is not None
OPERATORS: dict[str, Any] = {o["name"]: o for o in plan_file.load(FOLDER)["operators"]}
FAMILIES: dict[str, Any] = plan_file.load(FOLDER)["families"]
REDUCTIONS = ("sum", "amax", "amin")


def structure(name: str) -> set[Any]:
    """What the plan says of an operator beside its formula and its names, as facts that operators share."""
    operator = OPERATORS[name]
    public = operator["ops"][0]
    results = len(public["returns"])
    facts: set[Any] = set()
    for role, op in zip(("public", "forward", "backward"), operator["ops"], strict=False):
        spans = [a["span"] + ("?" if a["optional"] else "") for a in op["args"] if a["kind"] == "tensor"]
        facts.add((role, op["columns"]["rule"], op["args"][op["primary"]].get("parts") is not None))
        facts |= {(role, span, min(spans.count(span), 2)) for span in spans}
        whole = {part for a in op["args"] if a.get("span") == "MN" for part in a.get("parts", [a["name"]])}
        for x in op["args"]:
            facts.add(
                (
                    role,
                    x["kind"],
                    x.get("span"),
                    x.get("none") is not None,
                    len(x.get("parts", ())),
                    x.get("interleaved"),
                )
            )
        for x in op["returns"]:
            facts.add(
                (
                    role,
                    "return",
                    x["span"],
                    x["dtype"] == "compute",
                    len(x.get("parts", ())),
                    x.get("interleaved"),
                )
            )
        for case in op["cases"]:
            nodes = case["expression"]["nodes"]
            reductions = tuple(sorted(node[0] for node in nodes if node[0] in REDUCTIONS and node[2] == "N"))
            if reductions:
                loads = sum(node[0] == "load" and node[2] in whole for node in nodes)
                facts.add((reductions, loads))
            if cpu := case["cpu"]:
                facts.add((role, "cpu", cpu["class"], min(len(cpu["sums"]), 2), bool(cpu["scalars"])))
            for a in case["cuda"]:
                steps = tuple(
                    (FAMILIES[s["family"]]["class"], min(FAMILIES[s["family"]]["sums"], 2))
                    for s in a["steps"]
                )
                facts.add((role, a["when"], a["min_arch"], a["limit"] is not None, steps))
        facts |= {
            (role, "narrow", x.get("span"), x.get("parts") is not None) for x in op["args"] if x.get("narrow")
        }
        facts |= {
            (role, "named dtype", x["span"], x["dtype"] in NAMED)
            for x in op["returns"]
            if _is_named(op, x["dtype"])
        }
    saved = {
        s["kind"] if s.get("index", results) >= results else "result" for s in operator["autograd"]["saved"]
    }
    return facts | {("saves", tuple(sorted(saved))), ("results", results)}


def _is_named(op: Any, dtype: str) -> bool:
    """Whether the dtype of a result is that of no argument: it, or a string argument, has its name."""
    return dtype in NAMED or any(a["name"] == dtype and a["kind"] == "str" for a in op["args"])


def representatives(names: Sequence[str]) -> list[str]:
    """Those that have all facts of these operators together, of long formulas: for what does not depend on the formula."""

    def length(name: str) -> int:
        return sum(len(c["expression"]["nodes"]) for op in OPERATORS[name]["ops"] for c in op["cases"])

    facts = {name: structure(name) for name in names}
    missing: set[Any] = set().union(*facts.values())
    chosen: set[str] = set()
    while missing:
        best = max(names, key=lambda name: (len(facts[name] & missing), length(name)))
        chosen.add(best)
        missing -= facts[best]
    return [name for name in names if name in chosen]


REPRESENTATIVES = representatives(list(RECORDS))
OTHERS = [name for name in RECORDS if name not in REPRESENTATIVES]


def gradient_roundings(name: str) -> int:
    """By how many roundings a gradient may be off.

    Twice as many where an activation's is computed from its rounded result and magnifies that rounding, as 1 - y^2 does.
    """
    record = RECORDS[name]
    saved = OPERATORS[name]["autograd"]["saved"]
    if record.gradient is None or record.columns.rule != "flat" or [s["kind"] for s in saved] != ["return"]:
        return 4
    x = torch.linspace(-8, 8, 401, dtype=torch.float64)
    y, rounding = record.definition(x), 1e-6
    one, other = (
        record.gradient({"y": torch.ones_like(x)}, {}, {"y": v})["x"] for v in (y, y * (1 + rounding))
    )
    return 8 if float((other - one).abs().max()) > 1.5 * rounding else 4


def magnified(record: OpDef, n: int) -> int:
    """How many times the rounding of a result that another one uses shows in that.

    In the norm of two or three elements more where some of them are dropped: the others may hardly differ.
    """
    return 4 if len(record.results) > 1 and record.integers and 1 < n <= 3 else 1


# Rounding of results: half a unit in the last place of the result, and of sums over a few hundred rows in float32.
RELATIVE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 4.5e-3}


@dataclass(frozen=True)
class Way:
    """A way in which kernels run: on which device, and within what."""

    name: str
    device: str
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def __str__(self) -> str:
        return self.name


WAYS = {device: Way(device, device) for device in DEVICES}

Layout = Callable[[torch.Tensor], torch.Tensor]


def _filler(x: torch.Tensor) -> float:
    """What no kernel may read."""
    return float("nan") if x.is_floating_point() else -77 if x.dtype == torch.int8 else -(2**40)


def _in_rows(x: torch.Tensor, extra: int, skip: int) -> torch.Tensor:
    """The same values as a slice of wider rows: the row stride grows by ``extra``, the base moves by ``skip`` elements."""
    if x.dim() == 0:
        return x
    wide = x.new_full((*x.shape[:-1], x.shape[-1] + extra), _filler(x))
    wide[..., skip : skip + x.shape[-1]] = x
    return wide[..., skip : skip + x.shape[-1]]


def _offset(x: torch.Tensor) -> torch.Tensor:
    flat = x.new_full((x.numel() + 1,), _filler(x))
    flat[1:] = x.reshape(-1)
    return flat[1:].view(x.shape)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return (
        x.t().contiguous().t()
        if x.dim() == 2
        else x.transpose(-1, -2).contiguous().transpose(-1, -2)
        if x.dim() > 2
        else x
    )


def _stepped(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 0:
        return x
    wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), _filler(x))
    wide[..., ::2] = x
    return wide[..., ::2]


def _permuted(x: torch.Tensor) -> torch.Tensor:
    """Dims in memory in reverse order, so that leading dims do not collapse into one."""
    dims = list(range(x.dim()))[::-1]
    return x.permute(dims).contiguous().permute(dims)


def _every_second(x: torch.Tensor) -> torch.Tensor:
    """A stride of two in the first dim."""
    if x.dim() == 0:
        return x
    wide = x.new_full((2 * x.shape[0], *x.shape[1:]), _filler(x))
    wide[1::2] = x
    return wide[1::2]


LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x.contiguous(),
    "sliced rows": lambda x: _in_rows(x, 16, 8),
    "odd rows": lambda x: _in_rows(x, 3, 1),
    "offset": _offset,
    "transposed": _transposed,
    "stepped": _stepped,
    "permuted": _permuted,
    "every second": _every_second,
}


def schema_names(record: OpDef) -> list[str]:
    return [a.name for a in torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments]


def number(record: OpDef, name: str) -> float:
    """A value of a float argument: its default, and a larger eps than that, so that rows of a few numbers vary more than it.

    Where the default is 0, which leaves a term out, or there is none: another.
    """
    schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}")
    (default,) = [a.default_value for a in schema.arguments if a.name == name]
    return 1e-3 if name == "eps" else 2.0 if default is None else float(default) or 0.1


def column_argument(record: OpDef) -> int:
    """The int that names the columns, in a call of (rows, columns): the last dim, or one group of all channels."""
    return 1 if record.columns.rule == "groups" else -1


class Positive(tuple[int, ...]):
    """The shape of a tensor of positive numbers."""


class Scale(tuple[int, ...]):
    """The shape of a number between 1/64 and 1/16, by which others are divided or multiplied."""


def is_narrow(value: Any) -> bool:
    """Whether it is a tensor of 8 bits."""
    return isinstance(value, torch.Tensor) and value.dtype in STEPS


def readable(value: torch.Tensor) -> torch.Tensor:
    """The same values, those of 8 bits in float32: torch has few functions of such tensors."""
    return value.float() if is_narrow(value) else value


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """torch.equal, also of tensors of 8 bits: by their bits."""
    if is_narrow(a) and a.dtype == b.dtype:
        a, b = a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)
    return torch.equal(a, b)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether all values are equal, or both NaN."""
    a, b = readable(a), readable(b)
    equal = a == b
    return bool(equal.all()) or bool((equal | (a.isnan() & b.isnan())).all())


@functools.cache
def of_positive(name: str) -> bool:
    """Whether an operator is not a number where numbers are negative, as a logarithm is: its tests take positive ones."""
    record = RECORDS[name]
    tries = [build(call, torch.float64, "cpu") for call in _calls(record, 4, 6, tuple)]
    return any(bool(r.isnan().any()) for arguments in tries for r in reference(record, arguments))


def calls(record: OpDef, m: int, n: int) -> list[dict[str, Any]]:
    """One call of (m, n) for each pattern of the record: shapes for tensors, plain values otherwise."""
    return _calls(record, m, n, Positive if of_positive(record.name) else tuple)


def _calls(record: OpDef, m: int, n: int, kind_of_shape: type[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    for a in torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments:
        kind = str(a.type)
        shape: Any = kind_of_shape(record.shape_of(a.name, m, n))
        if a.name in record.of_integers:
            shape = Whole(shape, n)
        elif record.spans.get(a.name) == "1":
            shape = Scale(shape)
        if kind == "Tensor" and a.name in record.narrow:
            options: list[Any] = [Narrow(shape, getattr(torch, d)) for d in record.narrow[a.name]]
        elif kind == "Tensor":
            options = [shape]
        elif kind == "Optional[Tensor]":
            options = [None, shape]
        elif kind == "List[int]":
            options = [[n]]
        elif kind == "int":
            options = [column_argument(record) if a.name == record.columns.arg else a.default_value]
        elif kind == "str":
            options = list(record.choices[a.name])
        elif kind in ("float", "Optional[float]"):
            options = [number(record, a.name)]
        else:
            raise AssertionError(kind)
        found = [{**c, a.name: o} for c in found for o in options]
    return found


def build(
    call: dict[str, Any], dtype: torch.dtype, device: str, seed: int = 0, layout: Layout | None = None
) -> dict[str, Any]:
    """Random tensors in place of shapes."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, value in call.items():
        if isinstance(value, tuple):
            wide = torch.randn(value, generator=generator, dtype=torch.float64)
            if isinstance(value, Scale):
                wide = (1 + 3 * torch.rand((), generator=generator, dtype=torch.float64)) / 64
            tensor = (wide.abs() if isinstance(value, Positive) else wide).to(dtype).to(device)
            out[name] = layout(tensor) if layout is not None else tensor
        elif isinstance(value, Narrow):
            wide = torch.randn(value.shape, generator=generator, dtype=torch.float64) * 30
            q = wide.clamp(-128, 127).to(value.dtype).to(device)
            out[name] = layout(q) if layout is not None else q
        elif isinstance(value, Whole):
            whole = torch.randint(max(value.high, 1), value.shape, generator=generator).to(device)
            out[name] = layout(whole) if layout is not None else whole
        else:
            out[name] = value
    return out


def real(value: Any) -> bool:
    """Whether it is a tensor that has a gradient."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not is_narrow(value)


def doubled(arguments: dict[str, Any]) -> dict[str, Any]:
    return {k: v.detach().double() if real(v) or is_narrow(v) else v for k, v in arguments.items()}


def tensors(arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that have a gradient."""
    return {k: v for k, v in arguments.items() if real(v)}


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def run(
    record: OpDef, arguments: dict[str, Any], op: Callable[..., Any] | None = None
) -> tuple[torch.Tensor, ...]:
    function = op or getattr(torch.ops.avo, record.name)
    return as_tuple(function(*arguments.values()))


def reference(record: OpDef, arguments: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The definition in float64 on the same values."""
    return record.compute(**doubled(arguments))


def gradients(
    record: OpDef, arguments: dict[str, Any], grads: Sequence[torch.Tensor]
) -> tuple[
    tuple[torch.Tensor, ...], dict[str, torch.Tensor], tuple[torch.Tensor, ...], dict[str, torch.Tensor]
]:
    """(results, gradients) of the operator and of the definition in float64, for the same incoming gradients."""
    exact = leaves(record, doubled(arguments))
    want, names = record.compute(**exact), differentiable(record, arguments)
    given = [g.double() for g in grads]
    wanted = torch.autograd.grad(want, [exact[n] for n in names], given) if names else ()
    return *own_gradients(record, arguments, grads), want, dict(zip(names, wanted, strict=True))


def own_gradients(
    record: OpDef, arguments: dict[str, Any], grads: Sequence[torch.Tensor]
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """(results, gradients) of the operator."""
    own, names = leaves(record, arguments), differentiable(record, arguments)
    out = run(record, own)
    got = torch.autograd.grad(out, [own[n] for n in names], list(grads)) if names else ()
    return out, dict(zip(names, got, strict=True))


def differentiable(record: OpDef, arguments: dict[str, Any]) -> list[str]:
    """The tensors of a call for which the operator has a gradient."""
    return [n for n in tensors(arguments) if n in OPERATORS[record.name]["autograd"]["differentiable"]]


def leaves(record: OpDef, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same values, those with a gradient as leaves that require one."""
    names = differentiable(record, arguments)
    return {k: v.detach().requires_grad_(k in names) if real(v) else v for k, v in arguments.items()}


def result_dtype(record: OpDef, result: str, arguments: dict[str, Any]) -> torch.dtype:
    source = record.dtypes.get(result, next(iter(tensors(arguments))))
    if source in NAMED or isinstance(arguments.get(source), str):
        return NAMED[arguments.get(source, source)]
    if source != "compute":
        return arguments[source].dtype
    wide = any(t.dtype == torch.float64 for t in tensors(arguments).values())
    return torch.float64 if wide else torch.float32


def result_shapes(record: OpDef, m: int, n: int) -> list[tuple[int, ...]]:
    """The shapes of the results of a call of (m, n)."""
    returns = OPERATORS[record.name]["ops"][0]["returns"]
    return [(m, 1) if r["span"] == "M" else (m, n * len(r.get("parts") or [0])) for r in returns]


def incoming(
    record: OpDef, m: int, n: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[torch.Tensor]:
    """Random gradients of the results, in the dtype of each where the tensors have this one."""
    found = []
    for name, shape in zip(record.results, result_shapes(record, m, n), strict=True):
        own = dtype if record.dtypes.get(name) != "compute" or dtype == torch.float64 else torch.float32
        found.append(torch.randn(shape, dtype=torch.float64).to(own).to(device))
    return found


def saves_a_result(record: OpDef) -> bool:
    """Whether the gradients are computed from a result, as it was rounded."""
    saved, results = OPERATORS[record.name]["autograd"]["saved"], len(record.results)
    return any(s["kind"] == "return" and s["index"] < results for s in saved)


def stated_by_results(
    record: OpDef, arguments: dict[str, Any], out: Sequence[torch.Tensor], grads: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """The gradients in float64 by the record's own formula of the results, as these are rounded; None if it has none of them.

    What the rounding of a result does to such a gradient is not the kernel's.
    """
    if record.gradient is None or not saves_a_result(record):
        return None
    results, given = (dict(zip(record.results, (t.double() for t in ts), strict=True)) for ts in (out, grads))
    stated = record.gradient(given, doubled(arguments), results)
    return {key: stated[key].sum_to_size(arguments[key].shape) for key in differentiable(record, arguments)}


def finds_an_extreme(record: OpDef) -> bool:
    """Whether a row's largest or least value is needed, which torch refuses to find in an empty one."""
    cases = [c for op in OPERATORS[record.name]["ops"] for c in op["cases"]]
    return any(node[0] in ("amax", "amin") for c in cases for node in c["expression"]["nodes"])


def rounds_between(record: OpDef) -> bool:
    """Whether a result is rounded, and then used for another one."""
    cases = [c for op in OPERATORS[record.name]["ops"] for c in op["cases"]]
    return any(node[0] == "round_result" for c in cases for node in c["expression"]["nodes"])


def steps_off(record: OpDef, dtype: torch.dtype) -> float:
    """How many of 8-bit results may be one step off, of arguments of this dtype."""
    return 0.15 if rounds_between(record) and RELATIVE[dtype] > 1e-5 else 0.002


def assert_close(
    got: torch.Tensor,
    want: torch.Tensor,
    dtype: torch.dtype,
    what: str,
    scale: float = 1.0,
    floor: float = 0.0,
    off: float = 0.002,
) -> None:
    """Within the rounding of ``dtype``, measured against each value, the tensor's spread and ``floor`` together.

    Of 8 bits: at most one step off, and that no more than ``off`` of them.
    """
    assert got.dtype == dtype, f"{what}: dtype {got.dtype}, expected {dtype}"
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    if want.numel() == 0:
        return
    if dtype in STEPS:
        # What is rounded may differ in its last bit, so that few results are one step off.
        assert (readable(got).isnan() == readable(want).isnan()).all(), what
        steps = (STEPS[dtype](got) - STEPS[dtype](want)).abs().double()
        worst, mean = float(steps.max()), float(steps.mean())
        assert worst <= 1 and mean <= off + 1.5 / steps.numel(), f"{what}: {worst} steps, mean {mean:.4f}"
        return
    want = want.detach().double()
    size = want.abs()
    spread = float(size.mean())
    if math.isnan(spread):  # seldom, and then by what takes longer
        spread = float(size.nanmean())
    error = (got.detach().double() - want).abs_().div_(size.add_(spread + floor + 1e-300))
    worst = float(error.max())
    if math.isnan(worst):  # of the logarithm of a negative number, say
        worst = float(error.masked_fill_(got.isnan() & want.isnan(), 0.0).max())
    assert worst <= RELATIVE[dtype] * scale, (
        f"{what}: relative error {worst:.2e} > {RELATIVE[dtype] * scale:.2e}"
    )
