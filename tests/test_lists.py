"""Operators over lists of tensors: every one against its definition in float64, on the CPU and by its CUDA kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from catalogue import WAYS, Way

import avo_ops
from avo_ops import testing
from avo_ops.definitions import LISTS, ListDef, ListReduction, OverLists
from avo_ops.generator import build, lists, nvrtc
from avo_ops.generator.plan import pointwise_graph
from avo_ops.generator.trace import TraceError
from avo_ops.registry import explain_lists

Tensor = torch.Tensor
avo = torch.ops.avo
ROOT = Path(__file__).resolve().parent.parent
EMULATED = Way("emulated", "cpu", lambda: testing.emulate(arch=90, sms=4))
WHERE = [*WAYS.values(), EMULATED]
STEPS = [record for record in LISTS if isinstance(record, ListDef)]
REDUCTIONS = [record for record in LISTS if isinstance(record, ListReduction)]
CHUNK = 16384  # kListChunk of csrc/common/list.h
F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
# At both sides of vectors and chunks, a tensor of no elements, and of none but one.
SHAPES = ((33,), (4, 5), (), (0, 3), (2, 3, 7), (CHUNK,), (CHUNK + 9,), (1,))
EPS = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7, F64: 2.0**-52}

each_record = pytest.mark.parametrize("record", LISTS, ids=[r.name for r in LISTS])
each_step = pytest.mark.parametrize("record", STEPS, ids=[r.name for r in STEPS])
each_reduction = pytest.mark.parametrize("record", REDUCTIONS, ids=[r.name for r in REDUCTIONS])
each_way = pytest.mark.parametrize("way", WHERE, ids=[w.name for w in WHERE])


def contiguous(t: Tensor) -> Tensor:
    return t.clone()


def off_by_one(t: Tensor) -> Tensor:
    return torch.cat([t.new_zeros(1), t.reshape(-1)])[1:].view(t.shape)


def permuted(t: Tensor) -> Tensor:
    return t.clone() if t.dim() < 2 else t.transpose(0, -1).contiguous().transpose(0, -1)


def sliced(t: Tensor) -> Tensor:
    return torch.stack([t, torch.full_like(t, torch.nan)], -1)[..., 0]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    f.__name__: f for f in (contiguous, off_by_one, permuted, sliced)
}


def make(record: OverLists, shapes: Any, dtypes: Any, device: str, seed: int = 0) -> list[list[Tensor]]:
    """The lists of a call; a list of numbers has float32, all others take the dtypes in turn."""
    generator = torch.Generator().manual_seed(seed)
    made, turn = [], iter(dtypes * 8)
    for argument in record.arguments:
        if str(argument.type) != "List[Tensor]":
            continue
        if isinstance(record, ListDef) and argument.name in record.numbers:
            made.append([torch.tensor(float(3 + i % 5), device=device) for i in range(len(shapes))])
            continue
        dtype = next(turn)
        some = [torch.randn(s, generator=generator, dtype=F64) for s in shapes]
        if argument.name.endswith("_sqs"):
            some = [t.square() for t in some]
        made.append([t.to(device, dtype) for t in some])
    return made


def call(record: OverLists, lists_: list[list[Tensor]], overload: str = "", **changes: Any) -> Any:
    op = getattr(getattr(avo, record.name), overload or "default")
    return op(*lists_, **{**record.samples[0].kwargs, **changes})


def reference(record: OverLists, lists_: list[list[Tensor]], **changes: Any) -> list[list[Tensor]] | Tensor:
    """What the lists hold afterwards, or the result, by the definition in float64."""
    wide = [[t.detach().cpu().double().clone() for t in tensors] for tensors in lists_]
    out = record.compute(*wide, **{**record.samples[0].kwargs, **changes})
    return wide if out is None else out


def check(record: ListDef, got: list[list[Tensor]], want: Any, before: list[list[Tensor]]) -> None:
    for argument, tensors, wanted, old in zip(record.arguments, got, want, before, strict=False):
        for i, (t, w, o) in enumerate(zip(tensors, wanted, old, strict=True)):
            where = f"{argument.name}[{i}] {tuple(t.shape)} {t.dtype}"
            if argument.name not in record.written:
                assert torch.equal(t, o), f"{where} was written"
            elif t.numel():
                # One rounding of the result, and those of the math in float32.
                most = EPS[t.dtype] / 2 * w.abs() + 8 * EPS[F64 if t.dtype == F64 else F32] * (1 + w.abs())
                assert ((t.cpu().double() - w).abs() <= most).all(), where


def copied(lists_: list[list[Tensor]], layout: Callable[[Tensor], Tensor] = contiguous) -> list[list[Tensor]]:
    return [[layout(t) for t in tensors] for tensors in lists_]


def apart(record: OverLists, dtypes: tuple[torch.dtype, ...], way: Way) -> None:
    made = make(record, SHAPES, dtypes, way.device)
    if isinstance(record, ListReduction):
        want = reference(record, made)
        with way.context():
            got = call(record, made)
        assert got.dtype == (F64 if F64 in dtypes[:1] else F32) and got.shape == ()
        assert abs(got.item() - want.item()) <= EPS[got.dtype] * want.item()
        return
    got = copied(made)
    with way.context():
        assert call(record, got) is None
    check(record, got, reference(record, made), made)


@each_way
@each_record
def test_values(record: OverLists, way: Way) -> None:
    apart(record, (F32,), way)
    apart(record, (BF16, BF16, F32, F32), way)


@each_way
@pytest.mark.parametrize("dtypes", [(F64,), (F16,), (F16, F64), (F32, BF16)], ids=str)
def test_dtypes(dtypes: tuple[torch.dtype, ...], way: Way) -> None:
    apart(LISTS[0], dtypes, way)


@each_way
@each_reduction
@pytest.mark.parametrize("dtype", [F64, F16], ids=str)
def test_dtypes_of_reductions(record: ListReduction, dtype: torch.dtype, way: Way) -> None:
    apart(record, (dtype,), way)


@each_way
def test_several_dtypes_in_one_list(way: Way) -> None:
    record = LISTS[0]
    made = make(record, [(5,), (70,), (3, 3)], (F32,), way.device)
    made[0][1], made[1][1] = made[0][1].bfloat16(), made[1][1].bfloat16()
    got = copied(made)
    avo_ops.reset_stats()
    with way.context():
        call(record, got)
    check(record, got, reference(record, made), made)
    if way is EMULATED:
        launches = {k: v for k, v in avo_ops.stats().items() if v}
        assert launches == {
            f"avo::adamw_ / cuda/adamw___{d}": 1 for d in ("f32_f32_f32_f32", "bf16_bf16_f32_f32")
        }


@each_way
@each_record
@pytest.mark.parametrize("layout", ["off_by_one", "permuted", "sliced"])
def test_layouts_have_the_same_bits(record: OverLists, layout: str, way: Way) -> None:
    made = make(record, (*SHAPES[:5], (CHUNK + 3,)), (F32,), way.device)
    plain, other = copied(made), copied(made, LAYOUTS[layout])
    with way.context():
        first, second = call(record, plain), call(record, other)
    if isinstance(record, ListReduction):
        # A tensor is added up in the order of its memory.
        assert abs(first - second) <= EPS[F32] * first if layout == "permuted" else torch.equal(first, second)
        return
    assert all(
        torch.equal(a, b) for x, y in zip(plain, other, strict=True) for a, b in zip(x, y, strict=True)
    )


@each_way
def test_operands_that_lie_in_different_orders_are_copied_and_counted(way: Way) -> None:
    made = make(LISTS[2], [(6, 7), (5,)], (F32,), way.device)
    want, got = reference(LISTS[2], made), copied(made)
    got[1][0] = permuted(got[1][0])
    with way.context():
        avo_ops.reset_stats()
        call(LISTS[2], got)
        assert avo_ops.stats()["avo::sgd_ / copy"] == 1
        check(LISTS[2], got, want, made)
        with (
            avo_ops.strict(copies=True),
            pytest.raises(RuntimeError, match=r"sgd_: strict mode: grads\[0\] would be copied"),
        ):
            call(LISTS[2], got)


@each_way
@pytest.mark.parametrize("count", [1, 300])
def test_long_lists_take_several_launches(count: int, way: Way) -> None:
    record = STEPS[0]
    shapes = [(i % 7 + 1,) for i in range(count)]
    made = make(record, shapes, (F32,), way.device)
    got = copied(made)
    avo_ops.reset_stats()
    with way.context():
        call(record, got)
    check(record, got, reference(record, made), made)
    if way is EMULATED:
        # 4096 bytes less what the call has, over five addresses, a size and a number of blocks for each tensor.
        each = (4096 - 8 * 9 - 4 - 24) // (8 * 5 + 12)
        assert avo_ops.stats() == {"avo::adamw_ / cuda/adamw___f32_f32_f32_f32": -(-count // each)}


@each_way
@each_record
def test_explained_is_what_runs(record: OverLists, way: Way) -> None:
    """Of several dtypes, of more tensors than one launch takes, of operands that are copied, and of none."""
    shapes = [(3, 5), (0,), (2 * CHUNK + 1,), *((i % 7 + 1, 2) for i in range(400))]
    made = make(record, shapes, (F32,), way.device)
    made[0][2] = made[0][2].bfloat16()
    made[0][0] = permuted(made[0][0]) if len(made) > 1 else sliced(made[0][0])
    for lists_ in (made, [tensors[1:2] for tensors in made]):
        avo_ops.reset_stats()
        with way.context():
            told = avo_ops.explain(f"avo::{record.name}", *lists_, **record.samples[0].kwargs).calls[0]
            call(record, copied(lists_, lambda t: t.detach() if t.dim() else t.clone()))
        ran = avo_ops.stats()
        kernels = [k.name if k.grid is None else f"cuda/{k.name}" for k in told.kernels] or [told.path]
        want = Counter(f"avo::{record.name} / {name}" for name in kernels)
        if told.copies:
            want[f"avo::{record.name} / copy"] = len(told.copies)
        if told.path != "empty" and not lists_[0][0].numel():
            want[f"avo::{record.name} / empty"] = 1
        assert ran == want, str(told)
    assert "kernel" in str(told) or told.path == "empty"


def test_what_explained_calls_move() -> None:
    record = STEPS[0]
    made = make(record, [(4, 6), (10,)], (BF16, BF16, F32, F32), "cpu")
    made[2][0] = permuted(made[2][0])
    told = avo_ops.explain(avo.adamw_, *made, **record.samples[0].kwargs, on="sm_90").calls[0]
    assert (told.read, told.written) == (34 * (2 + 2 + 4 + 4), 34 * (2 + 4 + 4))
    assert told.copies == ("exp_avgs[0]",) and told.temporary == 4 * 24 * 4
    assert [(k.name, k.grid) for k in told.kernels] == [("adamw___bf16_bf16_f32_f32", (2, 1, 1))]
    assert "exp_avgs[0] is copied: it does not lie in the order of the first list" in str(told)
    for arguments, named, error, message in (
        (made[:4], {}, ValueError, "adamw_: state_steps is missing"),
        (made, {"moment": 1.0}, ValueError, r"adamw_ takes \(params, .* and moment by name"),
        (
            [made[0][:1], *made[1:]],
            {},
            RuntimeError,
            "adamw_: grads must have 1 tensors like params, but has 2",
        ),
    ):
        with pytest.raises(error, match=message):
            avo_ops.explain("adamw_", *arguments, **named)


def test_a_reduction_of_a_long_list() -> None:
    made = make(REDUCTIONS[0], [(i % 50,) for i in range(500)], (F32,), "cpu")
    with EMULATED.context():
        got = call(REDUCTIONS[0], made)
    assert abs(got - reference(REDUCTIONS[0], made)) <= EPS[F32] * got


@pytest.mark.parametrize("way", WHERE, ids=[w.name for w in WHERE])
@each_reduction
def test_a_reduction_neither_overflows_nor_depends_on_the_split(record: ListReduction, way: Way) -> None:
    with way.context():
        assert call(record, [[torch.full((9,), 1e30, device=way.device)]]).item() == pytest.approx(3e30)
        assert call(record, [[torch.full((9,), 1e-30, device=way.device)]]).item() == pytest.approx(3e-30)
        assert (
            call(record, [[]]).item() == 0
            and call(record, [[torch.ones(0, 4, device=way.device)]]).item() == 0
        )
        assert call(record, [[torch.tensor([1.0, torch.inf], device=way.device)]]).item() == torch.inf
        whole = make(record, [(3 * CHUNK,)], (F32,), way.device)[0][0]
        parts = [whole[:CHUNK], whole[CHUNK:]]
        assert torch.equal(call(record, [[whole]]), call(record, [parts]))


@each_way
@each_step
def test_what_a_call_may_say_of_gradients(record: ListDef, way: Way) -> None:
    """Scaled, clipped, to maximize, a learning rate that is a tensor, a step that is skipped."""
    made = make(record, [(70,), (3, 5)], (F32,), way.device)

    def number(value: float, dtype: torch.dtype = F32) -> Tensor:
        return torch.full((1,), value, dtype=dtype, device=way.device)

    scaled = copied(made)
    scaled[1] = [256.0 * g for g in scaled[1]]
    want = reference(record, made, maximize=True, lr=0.125)
    changes = {
        "grad_scale": number(64.0, BF16),
        "clip": number(0.25, F64),
        "maximize": True,
        "lr": number(0.125, F16),
    }
    skipped = copied(scaled)
    with way.context():
        call(record, skipped, "tensor_lr", found_inf=number(1.0), **changes)
        call(record, scaled, "tensor_lr", found_inf=number(0.0), **changes)
    before = [made[0], [256.0 * g for g in made[1]], *made[2:]]
    check(record, scaled, want, before)
    assert all(
        torch.equal(a, b) for x, y in zip(skipped, before, strict=True) for a, b in zip(x, y, strict=True)
    )


@each_way
def test_samples(way: Way) -> None:
    for record in STEPS:
        for sample in record.samples:
            made = make(replace(record, samples=(sample,)), sample.args[0], (F32,), way.device)
            got = copied(made)
            with way.context():
                call(record, got, **sample.kwargs)
            check(record, got, reference(record, made, **sample.kwargs), made)


def test_coefficients_are_found_in_double() -> None:
    """1 - 0.999 has 14 bits left in float32; of a first step the correction takes 0.1 % of that."""
    for way in WHERE:
        lists_ = [[torch.zeros(1, device=way.device)] for _ in range(4)]
        lists_[1] = [torch.ones(1, device=way.device)]
        lists_.append([torch.ones((), device=way.device)])
        with way.context():
            avo.adamw_(*lists_, lr=1.0, beta1=0.0, beta2=1 - 2.0**-40, weight_decay=0.0, eps=0.0)
        assert lists_[3][0].item() == 2.0**-40 and lists_[0][0].item() == -1.0


@each_record
def test_orders_and_fills_do_not_matter(record: OverLists) -> None:
    made = make(record, [(CHUNK + 300,), (40,)], (F32,), "cpu")
    found = []
    for order, fill in (("ascending", 0xFF), ("descending", 0), ("random", 0x55)):
        got = copied(made)
        with testing.emulate(order=order, fill=fill, seed=7):
            out = call(record, got)
        found.append([out] if out is not None else [t for tensors in got for t in tensors])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


# ---- what torch sees ----


@each_record
def test_opcheck(record: OverLists) -> None:
    made = make(record, [(5,), (3, 4), ()], (F32,), "cpu")
    op = getattr(avo, record.name)
    numbers = record.samples[0].kwargs
    torch.library.opcheck(op.default, tuple(made), numbers)
    if record is STEPS[2]:
        tensors = {name: torch.tensor(0.5) for name in ("lr", "clip", "found_inf", "grad_scale")}
        torch.library.opcheck(op.tensor_lr, tuple(made), tensors)


@each_step
def test_autograd_sees_what_is_written(record: ListDef) -> None:
    made = make(record, [(5,), (3, 4)], (F32,), "cpu")
    call(record, made)
    lists_ = dict(zip((a.name for a in record.arguments), made, strict=False))
    assert {n: [t._version for t in tensors] for n, tensors in lists_.items()} == {
        n: [int(n in record.written)] * 2 for n in lists_
    }
    weight, x = made[0][0].requires_grad_(), torch.ones(5, requires_grad=True)
    product = (weight * x).sum()
    with pytest.raises(
        RuntimeError, match=rf"{record.name}: params\[0\] requires grad, and is written in place"
    ):
        call(record, made)
    with torch.no_grad():
        call(record, made)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@each_reduction
def test_a_reduction_is_a_constant(record: ListReduction) -> None:
    assert not call(record, [[torch.ones(3, requires_grad=True)]]).requires_grad


@pytest.mark.parametrize("record", [STEPS[0], *REDUCTIONS], ids=lambda r: r.name)
def test_compiles_without_a_break(record: OverLists) -> None:
    made = make(record, [(5,), (3, 4)], (F32,), "cpu")
    got, want = copied(made), copied(made)
    compiled = torch.compile(lambda *lists_: call(record, list(lists_)), fullgraph=True, backend="aot_eager")
    first, second = compiled(*got), call(record, want)
    assert first is second is None or torch.equal(first, second)
    assert all(torch.equal(a, b) for x, y in zip(got, want, strict=True) for a, b in zip(x, y, strict=True))


# ---- refusals ----


def broken(kind: str) -> Iterator[list[list[Tensor]]]:
    made = make(STEPS[0], [(5,), (3, 4)], (F32,), "cpu")
    if kind == "length":
        made[2].pop()
    elif kind == "shape":
        made[1][1] = torch.zeros(4, 3)
    elif kind == "dtype":
        made[3][0] = torch.zeros(5, dtype=torch.int64)
    elif kind == "number":
        made[4][1] = torch.zeros(2)
    elif kind == "device":
        made[1][1] = torch.zeros(3, 4, device="meta")
    elif kind == "overlap":
        made[0][0] = torch.zeros(1).expand(5)
    yield made


REFUSED = {
    "length": r"adamw_: exp_avgs must have 2 tensors like params, but has 1",
    "shape": r"adamw_: grads[1] must have shape [3, 4] like params[1], but has shape [4, 3]",
    "dtype": r"adamw_: exp_avg_sqs[0] must be a floating-point tensor (float32, float16, bfloat16 or float64), but is int64",
    "number": r"adamw_: state_steps[1] must be a tensor of one number, but has shape [2]",
    "device": r"adamw_: grads[1] must be on cpu like params[0], but is on meta",
    "overlap": r"adamw_: params[0] is written, but several of its elements are one in memory",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_are_the_same_everywhere(kind: str) -> None:
    (made,) = broken(kind)
    before = copied([made[0]])[0]
    numbers = STEPS[0].samples[0].kwargs
    for op in (avo.adamw_, avo.adamw_definition_):
        with pytest.raises(RuntimeError, match=f"^{re.escape(REFUSED[kind])}$"):
            op(*made, **numbers)
    if kind not in ("device", "overlap"):
        fakes = [[t.to("meta") for t in tensors] for tensors in made]
        with pytest.raises(RuntimeError, match=re.escape(REFUSED[kind].replace("cpu", "meta"))):
            avo.adamw_(*fakes, **numbers)
    assert all(torch.equal(a, b) for a, b in zip(before, made[0], strict=True))


def test_refusals_of_numbers() -> None:
    made = make(STEPS[2], [(5,)], (F32,), "cpu")
    with pytest.raises(
        RuntimeError, match=r"^sgd_: clip must be a tensor of one number, but has shape \[2\]$"
    ):
        avo.sgd_(*made, lr=0.1, clip=torch.ones(2))
    with pytest.raises(RuntimeError, match=r"^sgd_: lr must be a floating-point tensor .* but is int64$"):
        avo.sgd_.tensor_lr(*made, lr=torch.tensor(1))


def test_the_definition_runs_on_other_devices() -> None:
    made = make(STEPS[0], [(5,), (3, 4)], (F32,), "cpu")
    by_definition, want = copied(made), reference(STEPS[0], made)
    avo.adamw_definition_(*by_definition, **STEPS[0].samples[0].kwargs)
    check(STEPS[0], by_definition, want, made)


# ---- the generator ----


def test_what_elements_share_is_split_off() -> None:
    split = lists.split_step(STEPS[0], pointwise_graph(STEPS[0].step))
    assert split.given[-1] == "step" and {"factor", "beta1", "beta2", "eps", "correction"} <= set(
        split.shared
    )
    assert not any(n.op in ("pow", "recip") for n in split.elements.nodes())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"elements": {"grads": "grad", "params": "param"}}, "elements must name the lists of the schema"),
        ({"absent": {"clip": 1.0}}, "each Tensor. must be in absent"),
        ({"schema": STEPS[2].schema.replace("(a!)", "")}, "some lists must be written"),
        ({"schema": STEPS[2].schema.replace("float lr", "int lr")}, "argument lr has type int"),
    ],
)
def test_records_that_contradict_themselves(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^sgd_: {message}"):
        lists.generate_list(replace(STEPS[2], **changes))


def test_a_step_that_is_not_pointwise_is_refused() -> None:
    def centred(param: Tensor, grad: Tensor, **numbers: Tensor) -> Tensor:
        return param - (grad - grad.mean(-1, keepdim=True)) * numbers["lr"]

    with pytest.raises(TraceError, match="sgd_ must treat each element alone, without"):
        lists.generate_list(replace(STEPS[2], definition=centred))


@pytest.mark.skipif(not nvrtc._candidates(), reason="NVRTC is not installed")
@each_record
def test_kernels_compile_for_gpus(record: OverLists) -> None:
    operands = len(record.operands) if isinstance(record, ListDef) else 1
    kinds = [("sm_90", ["bf16"] + ["f32"] * (operands - 1)), ("sm_80", ["f64"] * operands)]
    for arch, dtypes in kinds if record is LISTS[0] else kinds[:1]:
        name = f"{record.name}__{'_'.join(dtypes)}"
        assert build.compile_unit(name, arch)[:4] == b"\x7fELF"


# ---- the sanitizers ----

SANITIZED = """
import torch, test_lists as t
from avo_ops import testing
with testing.emulate(sms=4):
    for record in (t.STEPS[0], t.REDUCTIONS[0]):
        for dtypes in ((t.F32,), (t.BF16, t.F32)):
            for layout in (t.contiguous, t.off_by_one):
                t.call(record, t.copied(t.make(record, t.SHAPES, dtypes, "cpu"), layout))
print("clean")
"""


@pytest.mark.slow
def test_memory_by_the_sanitizers() -> None:
    """Reads and writes stay within tensors that are odd in size or address, and vectors are aligned."""
    environment = testing.sanitizer_environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    program = [sys.executable, "-c", SANITIZED]
    result = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (result.stdout, result.returncode) == ("clean\n", 0), result.stderr


def test_the_constants_of_explained_calls_are_those_of_launches() -> None:
    header = (build.CSRC / "common" / "list.h").read_text()
    for name, value in (
        ("kListBytes", explain_lists._BYTES),
        ("kListBlock", explain_lists.BLOCK),
        ("kListChunk", explain_lists._CHUNK),
        ("kListCodes", explain_lists._CODES),
    ):
        assert f" {name} = {value};" in header
