"""Inputs and references for the tests that run over the whole catalogue, on every device of this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import avo_ops  # noqa: F401  (registers torch.ops.avo)
from avo_ops.definitions import CATALOGUE, OpDef
from avo_ops.registry.plan import generated_folder, load_plan

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
RECORDS = {r.name: r for r in CATALOGUE}
FOLDER = generated_folder()
assert FOLDER is not None
OPERATORS: dict[str, Any] = {o["name"]: o for o in load_plan(FOLDER)["operators"]}
FAMILIES: dict[str, Any] = load_plan(FOLDER)["families"]


def structure(name: str) -> str:
    """All that the plan says of an operator but its math and its names: equal for operators that only compute another formula."""
    operator = OPERATORS[name]
    public = [a["name"] for a in operator["ops"][0]["args"]]

    def place(names: str) -> list[int]:
        return [public.index(n) if n in public else -1 for n in names.split("|")]

    def of_family(step: dict[str, Any]) -> Any:
        family = FAMILIES[step["family"]]
        tiles = {
            dtypes: [[v[k] for k in v if k not in ("symbol", "instantiate", "unit")] for v in rows]
            for dtypes, rows in family["variants"].items()
        }
        return [
            family["class"],
            family["sums"],
            [v["unit"] is None for rows in family["variants"].values() for v in rows],
            tiles,
            sorted(p[0] for p in step["params"]),
        ]

    def of_case(case: dict[str, Any]) -> Any:
        cpu = case["cpu"] or {"class": "", "operands": [], "scalars": [], "sums": [], "buffers": 0}
        return [
            case["key"], case["returns"], cpu["class"], *(len(cpu[k]) for k in ("operands", "scalars", "sums")),
            cpu["buffers"],
            [[a["when"], a["limit"], a["min_arch"], [of_family(s) for s in a["steps"]]] for a in case["cuda"]],
        ]  # fmt: skip

    ops = [
        [
            op["columns"], op["primary"],
            [{k: len(v) if k == "choices" else v for k, v in a.items() if k != "name"} for a in op["args"]],
            [[r["span"], place(r["dtype"])] for r in op["returns"]],
            [of_case(case) for case in op["cases"]],
        ]
        for op in operator["ops"]
    ]  # fmt: skip
    rules = operator["autograd"]
    saved = [[s["kind"], public.index(s["name"]) if "name" in s else s["index"]] for s in rules["saved"]]
    gradients = [[public.index(n), i] for n, i in rules["gradients"].items()]
    return json.dumps([ops, saved, gradients], sort_keys=True)


def representatives() -> list[str]:
    """One operator of each structure, that of the longest formula: for what does not depend on the formula."""

    def length(name: str) -> int:
        return sum(len(c["expression"]["nodes"]) for op in OPERATORS[name]["ops"] for c in op["cases"])

    longest: dict[str, str] = {}
    for name in sorted(RECORDS, key=length):
        longest[structure(name)] = name
    return [name for name in RECORDS if name in longest.values()]


REPRESENTATIVES = representatives()
OTHERS = [name for name in RECORDS if name not in REPRESENTATIVES]


def saves_a_result(name: str) -> bool:
    """Whether the backward starts from a rounded result of the size of the input."""
    public, returns = OPERATORS[name]["ops"][0]["returns"], OPERATORS[name]["autograd"]["saved"]
    return any(s["kind"] == "return" and s["index"] < len(public) for s in returns)


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


def _in_rows(x: torch.Tensor, extra: int, skip: int) -> torch.Tensor:
    """The same values as a slice of wider rows: the row stride grows by ``extra``, the base moves by ``skip`` elements."""
    if x.dim() == 0:
        return x
    wide = x.new_full((*x.shape[:-1], x.shape[-1] + extra), float("nan"))
    wide[..., skip : skip + x.shape[-1]] = x
    return wide[..., skip : skip + x.shape[-1]]


def _offset(x: torch.Tensor) -> torch.Tensor:
    flat = x.new_full((x.numel() + 1,), float("nan"))
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
    wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"))
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
    wide = x.new_full((2 * x.shape[0], *x.shape[1:]), float("nan"))
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
    """A value of a float argument: its default, and a larger eps than that, so that rows of a few numbers vary more than it."""
    schema = torch._C.parse_schema(f"avo::{record.name}{record.schema}")
    (default,) = [a.default_value for a in schema.arguments if a.name == name]
    return 1e-3 if name == "eps" else float(default)


def calls(record: OpDef, m: int, n: int) -> list[dict[str, Any]]:
    """One call of (m, n) for each pattern of the record: shapes for tensors, plain values otherwise."""
    found: list[dict[str, Any]] = [{}]
    for a in torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments:
        kind = str(a.type)
        shape = (n,) if record.spans.get(a.name) == "N" else (m, n)
        if kind == "Tensor":
            options: list[Any] = [shape]
        elif kind == "Optional[Tensor]":
            options = [None, shape]
        elif kind == "List[int]":
            options = [[n]]
        elif kind == "int":
            options = [-1]
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
            tensor = torch.randn(value, generator=generator, dtype=torch.float64).to(dtype).to(device)
            out[name] = layout(tensor) if layout is not None else tensor
        else:
            out[name] = value
    return out


def tensors(arguments: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {k: v for k, v in arguments.items() if isinstance(v, torch.Tensor)}


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def run(
    record: OpDef, arguments: dict[str, Any], op: Callable[..., Any] | None = None
) -> tuple[torch.Tensor, ...]:
    function = op or getattr(torch.ops.avo, record.name)
    return as_tuple(function(*arguments.values()))


def reference(record: OpDef, arguments: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The definition in float64 on the same values."""
    exact = {k: v.detach().double() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    return as_tuple(record.definition(**exact))


def gradients(
    record: OpDef, arguments: dict[str, Any], grads: Sequence[torch.Tensor]
) -> tuple[
    tuple[torch.Tensor, ...], dict[str, torch.Tensor], tuple[torch.Tensor, ...], dict[str, torch.Tensor]
]:
    """(results, gradients) of the operator and of the definition in float64, for the same incoming gradients."""
    own = {k: v.detach().requires_grad_() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    exact = {
        k: v.detach().double().requires_grad_() if isinstance(v, torch.Tensor) else v
        for k, v in arguments.items()
    }
    out, want = run(record, own), as_tuple(record.definition(**exact))
    got = torch.autograd.grad(out, list(tensors(own).values()), list(grads))
    wanted = torch.autograd.grad(want, list(tensors(exact).values()), [g.double() for g in grads])
    names = list(tensors(own))
    return out, dict(zip(names, got, strict=True)), want, dict(zip(names, wanted, strict=True))


def assert_close(
    got: torch.Tensor,
    want: torch.Tensor,
    dtype: torch.dtype,
    what: str,
    scale: float = 1.0,
    floor: float = 0.0,
) -> None:
    """Within the rounding of ``dtype``, measured against each value, the tensor's spread and ``floor`` together."""
    assert got.dtype == dtype, f"{what}: dtype {got.dtype}, expected {dtype}"
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    if want.numel() == 0:
        return
    want = want.detach().double()
    spread = float(want.abs().mean())
    error = (got.detach().double() - want).abs() / (want.abs() + spread + floor + 1e-300)
    worst = float(error.max())
    assert worst <= RELATIVE[dtype] * scale, (
        f"{what}: relative error {worst:.2e} > {RELATIVE[dtype] * scale:.2e}"
    )
