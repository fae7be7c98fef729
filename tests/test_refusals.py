"""Wrong calls of every op: one kind of error, and the same words from C++, from the definitions and from fake kernels.

The checks exist twice, in csrc/runtime/plan.cpp and in registry/layout.py, since sizes may be symbols in the second.
What holds them together is the random set of wrong calls here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from catalogue import DEVICES, RECORDS, REPRESENTATIVES, as_tuple, build, calls
from torch._subclasses import FakeTensorMode

import avo_ops
from avo_ops import plan_file
from avo_ops.registry.plan import Op, generated_folder, operator_from_json

FOLDER = generated_folder()
assert FOLDER is not None
OPERATORS = {d["name"]: operator_from_json(d) for d in plan_file.load(FOLDER)["operators"]}
OPS = {op.name: (name, op) for name in REPRESENTATIVES for op in OPERATORS[name].ops}

WRONG_DTYPES = [
    torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
]  # fmt: skip


def right_calls(op_name: str) -> list[list[Any]]:
    """Calls that the op takes, all patterns."""
    name, op = OPS[op_name]
    operator, found = OPERATORS[name], []
    for call in calls(RECORDS[name], 4, 6):
        args = list(build(call, torch.float32, "cpu").values())
        if op is operator.backward:
            out = as_tuple(getattr(torch.ops.avo, operator.forward.name)(*args))
            grads = [torch.ones_like(o) for o in out[: len(operator.public.returns)]]
            saved = [args[i] if kind == "arg" else out[i] for kind, i in operator.saved]
            plain = [v for v, a in zip(args, operator.public.arguments, strict=True) if a.kind != "tensor"]
            args = [*grads, *saved, *plain, [True] * len(op.returns)]
        found.append(args)
    return found


def damaged(kind: str, value: Any, choose: random.Random) -> Any:
    """An argument that is wrong, most of the time."""
    if kind == "tensor":
        base = torch.ones(4, 6) if value is None else value
        if not base.dim():  # one number
            return choose.choice(
                [
                    lambda: base.to(choose.choice(WRONG_DTYPES)),
                    lambda: None,
                    lambda: base.to("meta"),
                    lambda: base.expand(2),
                    lambda: base.reshape(1, 1),
                    lambda: base.to_sparse() if base.dtype.itemsize > 1 else None,
                ]
            )()
        return choose.choice(
            [
                lambda: base.to(choose.choice(WRONG_DTYPES)),
                lambda: None,
                lambda: base.to("meta"),
                lambda: base[..., :-1],
                lambda: torch.cat([base, base]),
                lambda: base[0],
                lambda: base[None],
                lambda: base.reshape(-1)[0],
                lambda: base.reshape([1] * (65 - base.dim()) + list(base.shape)),
                lambda: base.to_sparse() if base.dtype.itemsize > 1 else None,
            ]
        )()
    if kind == "ints":
        return choose.choice([[], [-1], [value[0] + 1], [1, *value], [4, *value], [1] * 65, [*value, 1]])
    if kind == "int":
        return choose.choice([2, -3, 100, -(2**40), 1])
    if kind == "str":
        return choose.choice(["", "erf", "None"])
    if kind == "mask":
        return choose.choice([[], value[:-1], [*value, True]])
    return value


def message(call: Callable[[], Any]) -> str:
    """What a call raises; "" if it is taken."""
    try:
        call()
    except Exception as error:
        assert type(error) in (RuntimeError, avo_ops.registry.native.NativeError), repr(error)
        return str(error)
    return ""


def mapped(args: list[Any], function: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    return [function(a) if isinstance(a, torch.Tensor) else a for a in args]


def differentiable(t: torch.Tensor) -> torch.Tensor:
    return t.detach().requires_grad_() if t.is_floating_point() and t.dtype.itemsize > 1 else t


def ways(op_name: str, op: Op, args: list[Any]) -> dict[str, str]:
    """The message of each way in which a call can reach the checks."""
    function = getattr(torch.ops.avo, op_name)
    found = {
        "kernel": message(lambda: function(*args)),
        "autograd": message(lambda: function(*mapped(args, differentiable))),
        "definition": message(lambda: function.definition(*args)),
    }
    plain = all(
        a.layout == torch.strided and a.device.type == "cpu" for a in args if isinstance(a, torch.Tensor)
    )
    if plain:  # else what is wrong is wrong on one device alone
        with FakeTensorMode() as mode:
            found["fake"] = message(lambda: function(*mapped(args, mode.from_tensor)))
        on_meta = mapped(args, lambda t: t.to("meta"))
        found["meta"] = message(lambda: function(*on_meta)).replace("on meta", "on cpu")
        found["explain"] = message(lambda: avo_ops.explain(op_name, *args))
        if "cuda" in DEVICES:
            found["cuda"] = message(lambda: function(*mapped(args, lambda t: t.cuda()))).replace(
                "cuda:0", "cpu"
            )
    return found


@pytest.mark.parametrize("op_name", OPS)
def test_wrong_calls_are_refused_in_the_same_words(op_name: str) -> None:
    op, choose = OPS[op_name][1], random.Random(op_name)
    right, refused = right_calls(op_name), set()
    for args in right:
        assert set(ways(op_name, op, args).values()) == {""}
    for _ in range(150):
        args = list(choose.choice(right))
        for i in choose.sample(range(len(args)), min(len(args), choose.choice((1, 1, 2, 3)))):
            args[i] = damaged(op.arguments[i].kind, args[i], choose)
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        found = ways(op_name, op, args)
        told = "\n".join(f"{way}: {said}" for way, said in found.items())
        assert len(set(found.values())) == 1, told
        said = found["kernel"]
        if said:
            names = "|".join(a.name for a in op.arguments)
            assert re.match(rf"{op.subject}: ({names}) must [^\n]*, but (is|has) [^\n]+$", said), said
            refused.add(re.sub(r"\d+", "N", said))
        for a, b in zip(args, before, strict=True):
            assert (
                not isinstance(a, torch.Tensor)
                or a.layout != torch.strided
                or a.is_meta
                or torch.equal(
                    a.to(b.dtype).view(torch.uint8) if a.dtype.itemsize == 1 else a,
                    b.view(torch.uint8) if b.dtype.itemsize == 1 else b,
                )
            )
    assert len(refused) >= 6, refused


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("op_name", OPS)
def test_tensors_on_two_devices(op_name: str) -> None:
    """Refused before any launch: the context stays usable."""
    op = OPS[op_name][1]
    args = right_calls(op_name)[-1]
    for i in op.tensors:
        if args[i] is None or len([j for j in op.tensors if args[j] is not None]) < 2:
            continue
        mixed = list(args)
        mixed[i] = args[i].cuda()
        with pytest.raises(RuntimeError, match=r"must be on (cpu|cuda:0) like .*, but is on (cpu|cuda:0)$"):
            getattr(torch.ops.avo, op_name)(*mixed)
    torch.cuda.synchronize()
    getattr(torch.ops.avo, op_name)(*mapped(args, lambda t: t.cuda()))
    torch.cuda.synchronize()


def test_a_wrong_call_in_a_transform_or_a_compiled_function() -> None:
    x, wrong = torch.ones(2, 3), torch.ones(4)
    want = r"bias_gelu: bias must have shape \[3\] \(the last dimension of x\), but has shape \[4\]"
    for call in (
        lambda: torch.func.grad(lambda x: torch.ops.avo.bias_gelu(x, wrong).sum())(x),
        lambda: torch.func.vmap(lambda x: torch.ops.avo.bias_gelu(x, wrong))(x[None]),
        lambda: torch.compile(lambda x: torch.ops.avo.bias_gelu(x, wrong), backend="eager")(x),
    ):
        with pytest.raises(RuntimeError, match=want):
            call()
