"""Gated linear units, as in the feed-forward blocks of transformers: an activation of one tensor times another one.

The two tensors are arguments of their own, or the halves of the last dim of one (``*_packed``), or alternate along it
(``*_interleaved``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F

from . import activations
from .record import FLAT, LAST, Arguments, Grads, OpDef, Sample, Tensor, along

# ---- two tensors ------------------------------------------------------------------------------------------------


def sigmoid_gate(x: Tensor, gate: Tensor) -> Tensor:
    return x * torch.sigmoid(gate)


def reglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.relu(gate) * up


def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    return activations.gelu(gate, approximate) * up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return activations.silu(gate) * up


def swiglu_oai(gate: Tensor, up: Tensor, alpha: float = 1.702, limit: float = 7.0) -> Tensor:
    g = gate.clamp(max=limit)
    return (up.clamp(-limit, limit) + 1.0) * (g * torch.sigmoid(g * alpha))


# Gradients: that of the gate is the product of its slope with all else, which then overflows no earlier than it has to.


def sigmoid_gate_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, s = grads["y"], torch.sigmoid(args["gate"])
    return {"x": grad * s, "gate": grad * (args["x"] * (s * (1.0 - s)))}


def geglu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, gate, approximate = grads["y"], args["gate"], args["approximate"]
    return {
        "gate": grad * args["up"] * activations.gelu_slope(gate, approximate),
        "up": grad * activations.gelu(gate, approximate),
    }


def swiglu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, gate = grads["y"], args["gate"]
    return {"gate": grad * args["up"] * activations.silu_slope(gate), "up": grad * activations.silu(gate)}


def swiglu_oai_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, gate, up, alpha, limit = grads["y"], args["gate"], args["up"], args["alpha"], args["limit"]
    g = gate.clamp(max=limit)
    of_gate = grad * (up.clamp(-limit, limit) + 1.0) * activations.silu_slope(g, alpha)
    of_up = grad * (g * torch.sigmoid(g * alpha))
    return {
        "gate": torch.where(gate <= limit, of_gate, 0.0),
        "up": torch.where((up >= -limit) & (up <= limit), of_up, 0.0),
    }


def _geglu_twin(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(gate, approximate=approximate) * up


def _swiglu_twin(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


_PAIRS = (Sample(((6, 40), (6, 40))), Sample(((2, 3, 33), (2, 3, 33))))
_SHAZEER = "Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202"

SIGMOID_GATE = OpDef(
    name="sigmoid_gate",
    schema="(Tensor x, Tensor gate) -> Tensor",
    definition=sigmoid_gate,
    columns=FLAT,
    formula="x * sigmoid(gate)",
    gradient=sigmoid_gate_gradient,
    source="Dauphin et al., Language Modeling with Gated Convolutional Networks, arXiv:1612.08083",
    twin=sigmoid_gate,
    samples=_PAIRS,
)

REGLU = OpDef(
    name="reglu",
    schema="(Tensor gate, Tensor up) -> Tensor",
    definition=reglu,
    columns=FLAT,
    formula="max(gate, 0) * up",
    source=_SHAZEER,
    twin=reglu,
    samples=_PAIRS,
)

GEGLU = OpDef(
    name="geglu",
    schema="(Tensor gate, Tensor up, str approximate='none') -> Tensor",
    definition=geglu,
    columns=FLAT,
    formula="gelu(gate) * up",
    source=_SHAZEER,
    gradient=geglu_gradient,
    choices={"approximate": ("none", "tanh")},
    twin=_geglu_twin,
    samples=(Sample(((6, 40), (6, 40))), Sample(((2, 3, 33), (2, 3, 33), "tanh"))),
)

SWIGLU = OpDef(
    name="swiglu",
    schema="(Tensor gate, Tensor up) -> Tensor",
    definition=swiglu,
    columns=FLAT,
    formula="gate * sigmoid(gate) * up",
    gradient=swiglu_gradient,
    source=_SHAZEER,
    twin=_swiglu_twin,
    samples=_PAIRS,
)

SWIGLU_OAI = OpDef(
    name="swiglu_oai",
    schema="(Tensor gate, Tensor up, float alpha=1.702, float limit=7.0) -> Tensor",
    definition=swiglu_oai,
    columns=FLAT,
    formula="g * sigmoid(alpha g) * (u + 1); g = min(gate, limit), u = min(max(up, -limit), limit)",
    source="OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925, and its published code",
    gradient=swiglu_oai_gradient,
    twin=swiglu_oai,
    samples=(Sample(((6, 40), (6, 40))), Sample(((2, 3, 33), (2, 3, 33), 1.0, 0.5))),
)

# ---- one tensor -------------------------------------------------------------------------------------------------


def _packed(record: OpDef, interleaved: bool = False) -> OpDef:
    """The same on the two parts of one tensor."""
    pair, twin = record.definition, record.twin
    assert twin is not None
    names = torch._C.parse_schema(f"avo::{record.name}{record.schema}").arguments
    first, second = (a.name for a in names[:2])
    rest = record.schema.split(f"Tensor {second}")[1]

    def of_parts(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def packed(x: Tensor, *args: object, **kwargs: object) -> Tensor:
            return function(*x.chunk(2, -1), *args, **kwargs)

        def alternating(x: Tensor, *args: object, **kwargs: object) -> Tensor:
            return function(x[..., 0::2], x[..., 1::2], *args, **kwargs)

        return alternating if interleaved else packed

    return replace(
        record,
        name=f"{record.name}_{'interleaved' if interleaved else 'packed'}",
        schema=f"(Tensor x{rest}",
        definition=of_parts(pair),
        columns=LAST,
        formula=f"{record.formula}; {first}, {second} = "
        + ("x[..., 0::2], x[..., 1::2]" if interleaved else "the halves of the last dim of x"),
        parts={"x": (first, second)},
        interleaved=interleaved,
        twin=of_parts(twin),
        samples=tuple(
            Sample(((*s.args[0][:-1], 2 * s.args[0][-1]), *s.args[2:]), s.kwargs) for s in record.samples
        ),
    )


def bias_swiglu_packed(x: Tensor, bias: Tensor) -> Tensor:
    (gate, up), (gate_bias, up_bias) = x.chunk(2, -1), bias.chunk(2, -1)
    return swiglu(gate + gate_bias, up + up_bias)


def bias_swiglu_packed_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    sums = {name: args[name] + args[f"{name}_bias"] for name in ("gate", "up")}
    found = swiglu_gradient(grads, sums, results)
    return {**found, **{f"{name}_bias": gradient.sum(0) for name, gradient in found.items()}}


def _bias_swiglu_packed_twin(x: Tensor, bias: Tensor) -> Tensor:
    return _swiglu_twin(*(x + bias).chunk(2, -1))


BIAS_SWIGLU_PACKED = OpDef(
    name="bias_swiglu_packed",
    schema="(Tensor x, Tensor bias) -> Tensor",
    definition=bias_swiglu_packed,
    columns=LAST,
    formula="gate * sigmoid(gate) * up; gate, up = the halves of the last dim of x + bias",
    source=_SHAZEER,
    spans={"bias": "N"},
    gradient=bias_swiglu_packed_gradient,
    parts={"x": ("gate", "up"), "bias": ("gate_bias", "up_bias")},
    twin=_bias_swiglu_packed_twin,
    samples=(Sample(((6, 80), (80,))), Sample(((2, 3, 66), (66,)))),
)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    half, gate = x.chunk(2, dim)
    return sigmoid_gate(half, gate)


def glu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    found = sigmoid_gate_gradient(grads, {"x": args["half"], "gate": args["gate"]}, results)
    return {"half": found["x"], "gate": found["gate"]}


GLU = OpDef(
    name="glu",
    schema="(Tensor x, int dim=-1) -> Tensor",
    definition=glu,
    columns=along("dim"),
    formula="a * sigmoid(b); a, b = the halves of x along dim",
    source=SIGMOID_GATE.source,
    gradient=glu_gradient,
    parts={"x": ("half", "gate")},
    twin=F.glu,
    samples=(Sample(((6, 80),)), Sample(((2, 6, 33), 1)), Sample(((4, 3, 5),), {"dim": 0})),
)

CATALOGUE = (
    SIGMOID_GATE, REGLU, GEGLU, SWIGLU, SWIGLU_OAI, GLU,
    *(_packed(r) for r in (REGLU, GEGLU, SWIGLU, SWIGLU_OAI)),
    *(_packed(r, interleaved=True) for r in (SWIGLU, SWIGLU_OAI)),
    BIAS_SWIGLU_PACKED,
)  # fmt: skip
