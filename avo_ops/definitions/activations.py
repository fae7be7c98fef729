"""Pointwise activations of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from .record import FLAT, Arguments, Grads, OpDef, Sample, Tensor

# ---- piecewise linear -------------------------------------------------------------------------------------------


def relu(x: Tensor) -> Tensor:
    return F.relu(x)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return torch.where(x > 0, x, x * negative_slope)


def leaky_relu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad = grads["y"]
    return {"x": torch.where(args["x"] > 0, grad, grad * args["negative_slope"])}


def squared_relu(x: Tensor) -> Tensor:
    r = F.relu(x)
    return r * r


def squared_relu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    return {"x": 2.0 * F.relu(args["x"]) * grads["y"]}


# The three below compare rather than clamp: torch's gradient is 0 at their kinks, that of a clamp is 1. NaN passes.
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return torch.where(x >= max_val, max_val, torch.where(x <= min_val, min_val, x))


def hardsigmoid(x: Tensor) -> Tensor:
    return torch.where(x >= 3.0, 1.0, torch.where(x <= -3.0, 0.0, (x + 3.0) * (1.0 / 6.0)))


def hardswish(x: Tensor) -> Tensor:
    return torch.where(x >= 3.0, x, torch.where(x <= -3.0, -0.0, x * (x + 3.0) * (1.0 / 6.0)))


def hardswish_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x = grads["y"], args["x"]
    inside = grad * (x * (1.0 / 3.0) + 0.5)
    return {"x": torch.where(x >= 3.0, grad, torch.where(x <= -3.0, 0.0, inside))}


# ---- of one exponential -----------------------------------------------------------------------------------------

# elu, selu and celu see the exponential of negative numbers alone: what overflows would be NaN in a gradient, though
# unselected. Their stated gradients keep the accuracy of exp in the tail, which expm1 + 1 loses.


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0.0)) * alpha)


def elu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x = grads["y"], args["x"]
    return {"x": torch.where(x > 0, grad, grad * (torch.exp(x.clamp(max=0.0)) * args["alpha"]))}


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def selu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x * _SELU_SCALE, torch.expm1(x.clamp(max=0.0)) * (_SELU_SCALE * _SELU_ALPHA))


def selu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x = grads["y"], args["x"]
    below = torch.exp(x.clamp(max=0.0)) * (_SELU_SCALE * _SELU_ALPHA)
    return {"x": grad * torch.where(x > 0, _SELU_SCALE, below)}


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0.0) / alpha) * alpha)


def celu_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, x = grads["y"], args["x"]
    return {"x": torch.where(x > 0, grad, grad * torch.exp(x.clamp(max=0.0) / args["alpha"]))}


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def sigmoid_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    y = results["y"]
    return {"x": grads["y"] * (1.0 - y) * y}


def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


def logsigmoid(x: Tensor) -> Tensor:
    return F.logsigmoid(x)


def logsigmoid_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    return {"x": grads["y"] * torch.sigmoid(-args["x"])}


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    u = x * beta
    # Beyond 50 the result is x even in float64; the bound keeps exp finite whatever the threshold.
    return torch.where((u > threshold) | (u > 50.0), x, torch.log1p(torch.exp(u.clamp(max=50.0))) / beta)


def softplus_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, u = grads["y"], args["x"] * args["beta"]
    return {"x": torch.where(u > args["threshold"], grad, grad * torch.sigmoid(u))}


# ---- gates of themselves ----------------------------------------------------------------------------------------


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "none":
        # erfc keeps its relative accuracy where 1 + erf(x / sqrt(2)) would cancel.
        return 0.5 * x * torch.special.erfc(x * -math.sqrt(0.5))
    # 0.5 * (1 + tanh(u)) = sigmoid(2 u), without its cancellation. Beyond |x| = 30 the sigmoid is exactly 0 or 1 even in
    # float64; the clamp keeps the cube finite, and its gradient (0) then meets no infinity.
    return x * torch.sigmoid(_tanh_argument(x.clamp(-30.0, 30.0)))


def _tanh_argument(t: Tensor) -> Tensor:
    return 2.0 * math.sqrt(2.0 / math.pi) * t * (1.0 + 0.044715 * t * t)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


# Slopes, for whoever multiplies by them: a gradient of gelu(x) * y that multiplied x by y first would overflow where the
# factor between them is 0.


def gelu_slope(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "none":
        z = x * -math.sqrt(0.5)
        return 0.5 * torch.special.erfc(z) + x * (torch.exp(-(z * z)) * math.sqrt(0.5 / math.pi))
    t = x.clamp(-30.0, 30.0)
    s = torch.sigmoid(_tanh_argument(t))
    du = 2.0 * math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * (t * t))
    return s + t * (s * (1.0 - s)) * du


def silu_slope(x: Tensor, beta: Tensor | float = 1.0) -> Tensor:
    """Of x * sigmoid(beta x)."""
    s = torch.sigmoid(beta * x)
    return s + beta * (x * (s * (1.0 - s)))


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


# tanh(log(1 + e)) = n / (n + 2) with e = exp(x), n = 2 e + e^2 (rounded once): no cancellation, one division. From 20 on
# it is 1 even in float64, and e^2 stays finite.
def mish(x: Tensor) -> Tensor:
    e = torch.exp(x.clamp(max=20.0))
    n = 2.0 * e + e * e
    return x * (n / (n + 2.0))


def mish_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    # The quotient q = n / (n + 2), and x dq/dx = x n' 2 / (n + 2)^2 with n' = 2 e (e + 1).
    t = args["x"].clamp(max=20.0)
    e = torch.exp(t)
    n = 2.0 * e + e * e
    r = torch.reciprocal(n + 2.0)
    slope = r * (n + t * (4.0 * (e * (e + 1.0)) * r))
    return {"x": torch.where(args["x"] > 20.0, grads["y"], grads["y"] * slope)}


_SHAPES = (Sample(((6, 40),)), Sample(((),)), Sample(((2, 3, 4, 5),)))
_GELU_SOURCE = "Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415"
GELU_FORMULA = (
    "x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"
)


def _of_one_tensor(
    definition: Callable[[Tensor], Tensor],
    formula: str,
    source: str,
    twin: Callable[..., Tensor],
    gradient: Callable[..., Grads] | None = None,
) -> OpDef:
    """The record of an activation without parameters, called as its definition is."""
    return OpDef(
        name=definition.__name__,
        schema="(Tensor x) -> Tensor",
        definition=definition,
        columns=FLAT,
        formula=formula,
        source=source,
        gradient=gradient,
        twin=twin,
        samples=_SHAPES,
    )


RELU = _of_one_tensor(
    relu,
    "max(x, 0)",
    "Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, ICML 2010",
    F.relu,
)

LEAKY_RELU = OpDef(
    name="leaky_relu",
    schema="(Tensor x, float negative_slope=0.01) -> Tensor",
    definition=leaky_relu,
    columns=FLAT,
    formula="x if x > 0 else negative_slope * x",
    source="Maas, Hannun and Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models, ICML 2013",
    gradient=leaky_relu_gradient,
    twin=F.leaky_relu,
    samples=(Sample(((6, 40),)), Sample(((3, 5, 7), 0.2)), Sample(((),), {"negative_slope": -0.5})),
)

SQUARED_RELU = _of_one_tensor(
    squared_relu,
    "max(x, 0)^2",
    "So et al., Primer: Searching for Efficient Transformers for Language Modeling, arXiv:2109.08668",
    squared_relu,
    squared_relu_gradient,
)

HARDTANH = OpDef(
    name="hardtanh",
    schema="(Tensor x, float min_val=-1.0, float max_val=1.0) -> Tensor",
    definition=hardtanh,
    columns=FLAT,
    formula="min(max(x, min_val), max_val)",
    source="Collobert, Large Scale Machine Learning, thesis, Université Paris 6, 2004",
    twin=F.hardtanh,
    samples=(Sample(((6, 40),)), Sample(((3, 5, 7), -0.5, 0.25)), Sample(((),), {"min_val": 0.0})),
)

HARDSIGMOID = _of_one_tensor(
    hardsigmoid,
    "min(max(x + 3, 0), 6) / 6",
    "Howard et al., Searching for MobileNetV3, arXiv:1905.02244",
    F.hardsigmoid,
)

HARDSWISH = _of_one_tensor(
    hardswish,
    "x * min(max(x + 3, 0), 6) / 6",
    "Howard et al., Searching for MobileNetV3, arXiv:1905.02244",
    F.hardswish,
    hardswish_gradient,
)

ELU = OpDef(
    name="elu",
    schema="(Tensor x, float alpha=1.0) -> Tensor",
    definition=elu,
    columns=FLAT,
    formula="x if x > 0 else alpha * (exp(x) - 1)",
    source="Clevert, Unterthiner and Hochreiter, Exponential Linear Units, arXiv:1511.07289",
    gradient=elu_gradient,
    twin=F.elu,
    samples=(Sample(((6, 40),)), Sample(((3, 5, 7), 0.5)), Sample(((),), {"alpha": -2.0})),
)

SELU = _of_one_tensor(
    selu,
    "1.0507 x if x > 0 else 1.0507 * 1.6733 * (exp(x) - 1)",
    "Klambauer et al., Self-Normalizing Neural Networks, arXiv:1706.02515",
    F.selu,
    selu_gradient,
)

CELU = OpDef(
    name="celu",
    schema="(Tensor x, float alpha=1.0) -> Tensor",
    definition=celu,
    columns=FLAT,
    formula="x if x > 0 else alpha * (exp(x / alpha) - 1)",
    source="Barron, Continuously Differentiable Exponential Linear Units, arXiv:1704.07483",
    gradient=celu_gradient,
    twin=F.celu,
    samples=(Sample(((6, 40),)), Sample(((3, 5, 7), 0.5)), Sample(((),), {"alpha": 2.0})),
)

SIGMOID = _of_one_tensor(
    sigmoid,
    "1 / (1 + exp(-x))",
    "Han and Moraga, The influence of the sigmoid function parameters on backpropagation learning, IWANN 1995",
    F.sigmoid,
    sigmoid_gradient,
)

TANH = _of_one_tensor(
    tanh,
    "(exp(x) - exp(-x)) / (exp(x) + exp(-x))",
    "LeCun, Bottou, Orr and Müller, Efficient BackProp, 1998",
    F.tanh,
)

LOGSIGMOID = _of_one_tensor(
    logsigmoid,
    "log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|))",
    "Goodfellow, Bengio and Courville, Deep Learning, MIT Press 2016, section 3.10",
    F.logsigmoid,
    logsigmoid_gradient,
)

SOFTPLUS = OpDef(
    name="softplus",
    schema="(Tensor x, float beta=1.0, float threshold=20.0) -> Tensor",
    definition=softplus,
    columns=FLAT,
    formula="log(1 + exp(beta x)) / beta, or x where beta x > threshold",
    source="Dugas et al., Incorporating Second-Order Functional Knowledge for Better Option Pricing, NIPS 2000",
    gradient=softplus_gradient,
    twin=F.softplus,
    samples=(Sample(((6, 40),)), Sample(((3, 5, 7), 2.0, 1.0)), Sample(((),), {"beta": 0.5})),
)

GELU = OpDef(
    name="gelu",
    schema="(Tensor x, str approximate='none') -> Tensor",
    definition=gelu,
    columns=FLAT,
    formula=GELU_FORMULA,
    source=_GELU_SOURCE,
    choices={"approximate": ("none", "tanh")},
    twin=F.gelu,
    samples=(Sample(((6, 40),)), Sample(((6, 40), "tanh")), Sample(((3, 5, 7),), {"approximate": "tanh"})),
)

SILU = _of_one_tensor(
    silu,
    "x * sigmoid(x)",
    "Elfwing, Uchibe and Doya, Sigmoid-Weighted Linear Units, arXiv:1702.03118",
    F.silu,
)

QUICK_GELU = _of_one_tensor(
    quick_gelu,
    "x * sigmoid(1.702 x)",
    _GELU_SOURCE + " (section 2, as in CLIP)",
    quick_gelu,
)

MISH = _of_one_tensor(
    mish,
    "x * tanh(log(1 + exp(x)))",
    "Misra, Mish: A Self Regularized Non-Monotonic Activation Function, arXiv:1908.08681",
    F.mish,
    mish_gradient,
)

CATALOGUE = (
    RELU, LEAKY_RELU, SQUARED_RELU, HARDTANH, HARDSIGMOID, HARDSWISH, ELU, SELU, CELU, SIGMOID, TANH, LOGSIGMOID,
    SOFTPLUS, GELU, SILU, QUICK_GELU, MISH,
)  # fmt: skip
