"""explain, stats and strict: what they say is what runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from catalogue import (
    DEVICES,
    LAYOUTS,
    RECORDS,
    REPRESENTATIVES,
    as_tuple,
    build,
    calls,
    differentiable,
)

import avo_ops
from avo_ops.registry.native import CudaTarget


def ran(call: Any) -> dict[str, tuple[list[str], int, int, int]]:
    """Kernels, copies, casts and definitions of each op that a call ran."""
    avo_ops.reset_stats()
    call()
    return {
        op: (sorted(k.removeprefix("cuda/") for k in s.kernels), s.copies, s.casts, s.definitions)
        for op, s in avo_ops.stats().by_op().items()
    }


def told(explanation: Any) -> dict[str, tuple[list[str], int, int, int]]:
    return {
        c.op: (
            sorted({k.name for k in c.kernels}),
            len(c.copies),
            len(c.casts),
            int(c.path == "definition"),
        )
        for c in explanation.calls
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_the_explained_path_is_the_one_that_runs(name: str, device: str) -> None:
    record, op = RECORDS[name], getattr(torch.ops.avo, name)
    for m, n in ((5, 33), (2, 20000)):
        for call in calls(record, m, n):
            for layout in LAYOUTS.values():
                arguments = build(call, torch.float32, device, layout=layout)
                if "weight" in arguments and arguments["weight"] is not None:
                    arguments["weight"] = arguments["weight"].to(torch.bfloat16)
                values = list(arguments.values())
                assert told(avo_ops.explain(op, *values)) == ran(lambda v=values: op(*v))
                if record.differentiation != "kernels":
                    continue
                for key in differentiable(record, arguments):
                    arguments[key].requires_grad_()
                outs: list[torch.Tensor] = []
                explanation = avo_ops.explain(name, **arguments)

                def both(v: Any = values, outs: Any = outs) -> None:
                    outs.extend(as_tuple(op(*v)))
                    torch.autograd.backward(outs, [torch.ones_like(o) for o in outs])

                assert told(explanation) == ran(both), (call, str(explanation))
                saved = {t.numel() * t.element_size() for t in kept(lambda v=values: op(*v))}
                assert set(explanation.saved.values()) == saved


def kept(call: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: found.append(t) or t, lambda t: t):
        call()
    return found


def test_bytes_are_those_of_the_operands() -> None:
    x, w = torch.empty(8, 64, dtype=torch.bfloat16, device="meta"), torch.empty(64, device="meta")
    for on in ("cpu", "sm_90"):
        call = avo_ops.explain("layer_norm", x, [64], w, on=on).calls[0]
        assert (call.read, call.written, call.temporary) == (8 * 64 * 2 + 64 * 4, 8 * 64 * 2, 0)
    call = avo_ops.explain("layer_norm", x, [64], w.double(), on="sm_90").calls[0]
    # x is read and written as float64 beside its own dtype, y written so and read again, to be rounded.
    assert call.casts == ("x from bf16 to f64", "y from bf16 to f64") and call.temporary == 2 * 8 * 64 * 10
    x = torch.empty(4, 8, 16, device="meta")
    call = avo_ops.explain("softmax", x, 1, on="sm_90").calls[0]
    assert call.copies == ("x", "y") and call.temporary == 2 * 2 * 4 * x.numel()
    sums = avo_ops.explain("layer_norm", x.requires_grad_(), [16], w[:16].requires_grad_(), on="sm_90")
    backward = sums.calls[1]
    assert backward.temporary == 2 * 4 * 16 * backward.kernels[0].grid[0] and len(backward.kernels) == 2


def test_why_not_faster() -> None:
    def why(*args: Any, on: Any = "sm_90") -> str:
        return " / ".join(avo_ops.explain(*args, on=on).calls[-1].why_not_faster)

    x = torch.empty(64, 769, device="meta")
    assert why("layer_norm", torch.empty(64, 768, device="meta"), [768]) == ""
    assert (
        why("layer_norm", x, [769])
        == "no 16-byte accesses: the row length of x is no multiple of the vector width"
    )
    said = why("layer_norm", x[:, 1:], [768])
    assert "x does not start at a multiple of 16 bytes" in said and "row stride of x" in said
    assert "layer_norm_forward was passed over: N is above its limit" in why(
        "layer_norm", torch.empty(2, 70000, device="meta"), [70000]
    )
    assert "was passed over: the operands do not share one dense layout" in why("gelu", x[:, 1:])
    half = torch.empty(64, 1025, dtype=torch.bfloat16, device="meta")
    said = why("layer_norm", half[:, 1:], [1024], half[0, :1024], half[0, :1024])
    assert "the faster kernel needs aligned rows" in said
    wide = torch.empty(64, 32768, requires_grad=True, device="meta")
    w = torch.empty(32768, requires_grad=True, device="meta")
    assert "it needs a newer architecture" in why("layer_norm", wide, [32768], w, on=CudaTarget(80, 108))


def test_targets_and_names() -> None:
    x = torch.empty(4, 8, device="meta")
    assert "sm_80 with 108 SMs" in str(avo_ops.explain("avo::gelu", x, on="sm_80"))
    assert (
        avo_ops.explain(torch.ops.avo.gelu.default, x, on=CudaTarget(90, 7)).calls[0].where.endswith("7 SMs")
    )
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.empty(4, 9)[:, 1:])
        call = avo_ops.explain("softmax", fake, -1, on="sm_90").calls[0]
    assert not call.kernels[0].aligned
    for wrong, message in (
        (lambda: avo_ops.explain("nothing", x), "no operator avo::nothing"),
        (lambda: avo_ops.explain("gelu", x), "say on="),
        (lambda: avo_ops.explain("gelu", x, on="H200"), "on must be"),
        (lambda: avo_ops.explain("gelu"), "x is missing"),
        (lambda: avo_ops.explain("gelu", x, x=x, on="cpu"), r"takes \(x, approximate\)"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(RuntimeError, match="x must be a floating-point tensor"):
        avo_ops.explain("gelu", torch.ones(2, dtype=torch.int32))
    assert avo_ops.explain("layer_norm_forward", torch.empty(3, 0), [0]).calls[0].path == "definition"
    said = []
    torch.func.vmap(lambda t: said.append(avo_ops.explain("gelu", t)) or t)(torch.ones(2, 3))
    assert said[0].calls[0].reason.startswith("a torch.func transform")


def test_operators_made_of_others() -> None:
    """By the calls that they make, which are those that run; nothing is drawn or computed."""
    x = torch.randn(6, 40, requires_grad=True)
    state = torch.get_rng_state()
    for name, arguments in (
        ("mse_loss", (x, x.detach() * 2)),
        ("jsd", (x.log_softmax(-1), x.detach().log_softmax(-1))),
        ("cross_entropy", (x, torch.arange(6))),
        ("bias_dropout_add", (x, None, x.detach()[0])),
        ("dropout_add_layer_norm", (x, x, [40])),
    ):
        avo_ops.reset_stats()
        found = avo_ops.explain(getattr(torch.ops.avo, name), *arguments)
        assert not avo_ops.stats() and torch.equal(state, torch.get_rng_state())
        kernels = 4 if name == "cross_entropy" else 2  # of the rows, and of their mean
        assert found.saved and len(found.calls) == kernels and name in str(found)
        out = getattr(torch.ops.avo, name)(*arguments)
        torch.autograd.grad((out[0] if isinstance(out, tuple) else out).sum(), x)
        assert {f"{c.op} / {c.path}" for c in found.calls} == set(avo_ops.stats())
        torch.set_rng_state(state)
    on_meta = torch.empty(6, 40, device="meta")
    (call,) = avo_ops.explain("dropout", on_meta, on="sm_90").calls
    assert call.op == "avo::dropout_rows" and call.path == "cuda" and call.kernels
    (call,) = avo_ops.explain("dropout", x, training=False).calls
    assert call.path == "definition" and "torch's own operations" in call.reason
    with pytest.raises(ValueError, match="kl_div: missing a required argument: 'target'"):
        avo_ops.explain("kl_div", x)
    with pytest.raises(RuntimeError, match="jsd: target must have shape"):
        avo_ops.explain("jsd", x, x[:3])


def test_stats_are_readable_and_by_op() -> None:
    avo_ops.reset_stats()
    assert str(avo_ops.stats()) == "no calls of avo_ops operators"
    torch.ops.avo.gelu(torch.ones(3))
    torch.ops.avo.gelu(torch.ones(0))
    torch.ops.avo.layer_norm_forward(torch.ones(3, 0), [0])
    stats = avo_ops.stats()
    (kernel,) = stats.by_op()["avo::gelu"].kernels
    assert stats[f"avo::gelu / {kernel}"] == 1 and stats.by_op()["avo::gelu"].empties == 1
    assert stats.by_op()["avo::layer_norm_forward"].definitions == 1
    assert len(str(stats).splitlines()) == 3 and "avo::layer_norm_forward" in str(stats)


def second_derivative() -> None:
    x = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad(torch.ops.avo.gelu(x).sum(), x, create_graph=True)
    g.sum().backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: torch.ops.avo.layer_norm_forward(torch.ones(3, 0), [0]), "row results over zero columns"),
        (lambda: torch.func.vmap(torch.ops.avo.gelu)(torch.ones(2, 3)), "part of a vmap"),
        (
            lambda: torch.func.grad(lambda x: torch.ops.avo.silu(x).sum())(torch.ones(3)),
            "torch.func transform",
        ),
        (second_derivative, "this gradient is differentiated"),
    ],
)
def test_strict_raises_where_the_definition_would_run(call: Any, message: str) -> None:
    avo_ops.reset_stats()
    call()
    assert any("definition" in path for path in avo_ops.stats())  # so it is counted without strict
    with avo_ops.strict(), pytest.raises(RuntimeError, match=f"strict mode: .*{message}"):
        call()
    call()


def test_a_gradient_that_vanishes_is_no_fallback() -> None:
    w = torch.ones(8, requires_grad=True)
    _, residual_out = torch.ops.avo.add_layer_norm(torch.ones(2, 8), torch.ones(2, 8), [8], w)
    avo_ops.reset_stats()
    with avo_ops.strict():
        (gradient,) = torch.autograd.grad(residual_out.sum(), w, materialize_grads=True)
    assert not gradient.any() and avo_ops.stats().by_op()["avo::add_layer_norm_backward"].empties == 1


def test_strict_about_copies() -> None:
    x = torch.randn(8, 4, 6).transpose(1, 2)  # its last two dims have no one stride
    want = torch.ops.avo.layer_norm(x, [6, 4])
    with avo_ops.strict():
        assert torch.equal(torch.ops.avo.layer_norm(x, [6, 4]), want)
        with avo_ops.strict(copies=True), pytest.raises(RuntimeError, match="x would be copied"):
            torch.ops.avo.layer_norm(x, [6, 4])
        torch.ops.avo.layer_norm(x, [6, 4])  # the inner one is over, the outer one is not
        with pytest.raises(RuntimeError, match="strict"):
            torch.ops.avo.layer_norm_forward(torch.ones(3, 0), [0])


def test_strict_holds_in_every_thread() -> None:
    failures: list[str] = []

    def call() -> None:
        try:
            torch.ops.avo.layer_norm_forward(torch.ones(3, 0), [0])
        except RuntimeError as error:
            failures.append(str(error))

    with avo_ops.strict():
        threads = [threading.Thread(target=call) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(failures) == 4


@pytest.mark.parametrize(
    ("value", "raises"), [("1", [True, False]), ("copies", [True, True]), ("0", [False, False])]
)
def test_strict_by_environment(value: str, raises: list[bool]) -> None:
    code = (
        "import torch, avo_ops\n"
        "def refused(f):\n"
        "    try: f()\n"
        "    except RuntimeError as e: return 'strict' in str(e)\n"
        "    return False\n"
        "print(refused(lambda: torch.ops.avo.layer_norm_forward(torch.ones(3, 0), [0])),\n"
        "      refused(lambda: torch.ops.avo.layer_norm(torch.ones(8, 4, 6).transpose(1, 2), [6, 4])))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "AVO_OPS_STRICT": value},
    )
    assert out.stdout.split() == [str(r) for r in raises], out.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("softmax", 1.0),
        ("softmax", None),
        ("layer_norm", 4),
        ("layer_norm", [4], "w"),
        ("layer_norm", [4], None, None, None),
    ],
)
def test_what_torch_refuses_is_refused_in_its_words(arguments: tuple[Any, ...]) -> None:
    name, *rest = arguments
    x = torch.randn(3, 4)
    with pytest.raises(RuntimeError) as real:
        getattr(torch.ops.avo, name).default(x, *rest)
    with pytest.raises(RuntimeError) as explained:
        avo_ops.explain(name, x, *rest)
    assert str(explained.value).splitlines()[0] == str(real.value).splitlines()[0]


def test_numpy_ints_and_gpus_that_are_none() -> None:
    x = torch.randn(3, 4)
    assert str(avo_ops.explain("softmax", x, np.int64(1))) == str(avo_ops.explain("softmax", x, 1))
    with pytest.raises(ValueError, match="none for sm_12"):
        avo_ops.explain("gelu", x, on="sm_12")
