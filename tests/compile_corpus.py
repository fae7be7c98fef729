"""Functions as users write them, each with three sets of shapes.

``B`` marks a bool tensor, ``I`` an integer one, ``P`` positive values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor

ONE = (((6, 40),), ((1, 7),), ((3, 2, 8),))
TWO = (((6, 40), (6, 40)), ((5, 5), (5, 5)), ((2, 3, 4), (2, 3, 4)))
ROW = (((6, 40), (40,)), ((7, 7), (7,)), ((2, 1, 9), (9,)))
IMAGE = (((2, 3, 4, 5),), ((1, 4, 4, 4),), ((2, 1, 6, 3),))
IMAGE_CHANNEL = (((2, 3, 4, 5), (3,)), ((1, 4, 4, 4), (4,)), ((3, 2, 2, 2), (2,)))
VECTOR = (((33,),), ((2,),), ((257,),))
SERIES = (((4, 24),), ((1, 24),), ((24, 24),))


@dataclass(frozen=True)
class Kind:
    """A shape of a tensor that is not one of any real numbers."""

    shape: tuple[int, ...]
    kind: str


def B(*shape: int) -> Kind:
    return Kind(shape, "bool")


def I(*shape: int) -> Kind:  # noqa: E743
    return Kind(shape, "int")


def P(*shape: int) -> Kind:
    return Kind(shape, "positive")


def positive(shapes: Any) -> Any:
    return tuple(tuple(P(*s) for s in row) for row in shapes)


@dataclass(frozen=True)
class Function:
    """``torch_parts``: whether some of it is known to be left to torch."""

    fn: Callable[..., Any]
    shapes: tuple[tuple[Any, ...], ...]
    torch_parts: bool = False
    gradients: bool = True


CORPUS: dict[str, Function] = {}


def add(shapes: Any, torch_parts: bool = False, gradients: bool = True) -> Callable[..., Any]:
    def keep(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert fn.__name__ not in CORPUS
        CORPUS[fn.__name__] = Function(fn, shapes, torch_parts, gradients)
        return fn

    return keep


# ---- activations ----

for _name in (
    "relu", "gelu", "silu", "elu", "celu", "selu", "leaky_relu", "softplus", "mish", "hardswish", "hardtanh",
    "logsigmoid", "softsign", "tanhshrink", "relu6", "sigmoid", "tanh",
):  # fmt: skip
    CORPUS[_name] = Function(getattr(F, _name), ONE)


@add(ONE)
def hardsigmoid(x):  # torch's own divides float64 by a float32 6
    return F.relu6(x + 3) / 6


@add(ONE)
def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


@add(ONE)
def squared_relu(x):
    return torch.relu(x) ** 2


@add(ONE)
def snake(x, a=0.5):
    return x + torch.sin(a * x) ** 2 / a


@add(ONE)
def gaussian_activation(x):
    return torch.exp(-x * x / 2)


@add(ONE)
def bent_identity(x):
    return (torch.sqrt(x * x + 1) - 1) / 2 + x


@add(ONE)
def swish_beta(x):
    return x * torch.sigmoid(1.5 * x)


@add(TWO)
def swiglu(x, gate):
    return F.silu(gate) * x


@add(TWO)
def geglu(x, gate):
    return F.gelu(gate) * x


@add((((6, 40),), ((1, 8),), ((3, 2, 6),)))
def packed_glu(x):
    a, b = x.chunk(2, dim=-1)
    return a * torch.sigmoid(b)


@add(ROW)
def bias_relu(x, b):
    return torch.relu(x + b)


@add(IMAGE_CHANNEL)
def prelu_image(x, w):
    return torch.where(x > 0, x, x * w[:, None, None])


@add(ROW)
def learned_swish(x, beta):
    return x * torch.sigmoid(beta * x)


@add(ONE)
def softcap(x, cap=5.0):
    return cap * torch.tanh(x / cap)


@add(ONE)
def clipped(x):
    return x.clamp(-0.5, 0.8)


@add(ONE)
def smooth_step(x):
    t = ((x + 1) / 2).clamp(0, 1)
    return t * t * (3 - 2 * t)


# ---- norms and softmaxes ----


@add(ROW)
def rms_norm(x, w, eps=1e-6):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


@add((((6, 40), (40,), (40,)), ((7, 7), (7,), (7,)), ((2, 1, 9), (9,), (9,))))
def layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


@add(ROW)
def layer_norm_by_hand(x, w):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5) * w


@add(TWO)
def add_norm(x, r):
    h = x + r
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6), h


@add(IMAGE)
def instance_norm(x):
    m = x.mean((2, 3), keepdim=True)
    return (x - m) * torch.rsqrt(x.var((2, 3), keepdim=True, unbiased=False) + 1e-5)


@add(IMAGE_CHANNEL)
def batch_norm_train(x, w):
    m = x.mean((0, 2, 3), keepdim=True)
    v = ((x - m) ** 2).mean((0, 2, 3), keepdim=True)
    return (x - m) / torch.sqrt(v + 1e-5) * w[None, :, None, None]


@add((((2, 6, 4, 5),), ((1, 4, 3, 3),), ((3, 2, 2, 2),)))
def group_norm(x):
    return F.group_norm(x, 2)


@add(ONE)
def softmax(x):
    return torch.softmax(x, -1)


@add(ONE)
def softmax_first(x):
    return torch.softmax(x, 0)


@add(ONE)
def log_softmax(x):
    return F.log_softmax(x, -1)


@add(ONE)
def softmax_by_hand(x):
    e = torch.exp(x - x.amax(-1, keepdim=True).detach())
    return e / e.sum(-1, keepdim=True)


@add(ONE)
def softmax_temperature(x, t=0.7):
    return torch.softmax(x / t, dim=-1)


@add((((6, 40), B(6, 40)), ((5, 5), B(5, 5)), ((2, 3, 4), B(3, 4))))
def masked_softmax(x, mask):
    return torch.softmax(x.masked_fill(mask, -1e4), -1)


@add(ONE)
def l2_normalize(x):
    return F.normalize(x, dim=-1)


@add(ONE)
def unit_norm(x):
    return x / (x * x).sum(-1, keepdim=True).sqrt()


@add(ONE)
def standardize_columns(x):
    return (x - x.mean(0)) / (((x - x.mean(0)) ** 2).mean(0) + 1e-3).sqrt()


@add(ONE)
def min_max_scale(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-6)


@add(ONE)
def both_ways(x):
    y = x - x.mean(0, keepdim=True)
    return y / (y.pow(2).mean(-1, keepdim=True) + 0.1).sqrt()


@add(ONE)
def logsumexp(x):
    return torch.logsumexp(x, -1)


@add(positive(ONE))
def entropy(x):
    p = x / x.sum(-1, keepdim=True)
    return -(p * torch.log(p)).sum(-1)


@add(ROW)
def zero_centred_rms(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * (1 + w)


@add(ONE)
def local_contrast(x):
    return (x - x.mean()) / (1 + (x * x).mean())


@add(ONE)
def softmax_all(x):
    return torch.softmax(x.reshape(-1), 0).reshape(x.shape)


# ---- losses ----


@add(TWO)
def mse(x, y):
    return F.mse_loss(x, y)


@add(TWO)
def l1(x, y):
    return F.l1_loss(x, y)


@add(TWO)
def smooth_l1(x, y):
    return F.smooth_l1_loss(x, y)


@add(TWO)
def huber(x, y):
    return F.huber_loss(x, y, delta=0.7)


@add(TWO)
def mse_none(x, y):
    return F.mse_loss(x, y, reduction="none")


@add(TWO)
def bce_logits(x, y):
    return F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))


@add(TWO)
def kl_div(x, y):
    return F.kl_div(F.log_softmax(x, -1), torch.softmax(y, -1), reduction="batchmean")


@add(TWO)
def soft_cross_entropy(x, y):
    return -(torch.softmax(y, -1) * F.log_softmax(x, -1)).sum(-1).mean()


@add((((6, 40), I(6)), ((5, 5), I(5)), ((1, 9), I(1))), torch_parts=True)
def cross_entropy(x, target):
    return F.cross_entropy(x, target % x.shape[1])


@add(TWO)
def focal(x, y):
    p = torch.sigmoid(x)
    t = torch.sigmoid(y)
    ce = -(t * torch.log(p + 1e-6) + (1 - t) * torch.log(1 - p + 1e-6))
    return (ce * (t * (1 - p) + (1 - t) * p) ** 2).mean()


@add(TWO)
def dice(x, y):
    p, t = torch.sigmoid(x), torch.sigmoid(y)
    return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


@add(TWO)
def cosine_loss(x, y):
    return (1 - F.cosine_similarity(x, y, dim=-1)).mean()


@add(TWO)
def hinge(x, y):
    return torch.relu(1 - x * torch.tanh(y)).mean()


@add(TWO)
def log_cosh(x, y):
    d = x - y
    return (d + F.softplus(-2 * d) - math.log(2.0)).mean()


@add((((6, 40), P(6, 40)), ((5, 5), P(5, 5)), ((2, 3, 4), P(2, 3, 4))))
def gaussian_nll(x, var):
    return 0.5 * (torch.log(var) + x * x / var).mean()


@add(positive(TWO))
def poisson_nll(rate, count):
    return (rate - count * torch.log(rate)).mean()


@add((((6, 40),) * 3, ((5, 5),) * 3, ((2, 3, 4),) * 3))
def triplet(a, p, n):
    near, far = ((a - p) ** 2).sum(-1), ((a - n) ** 2).sum(-1)
    return torch.relu(near - far + 1.0).mean()


@add(TWO)
def z_loss(x, y):
    return (torch.logsumexp(x, -1) ** 2).mean() + 0.1 * (y * y).mean()


@add(TWO)
def quantile_loss(x, y):
    d = y - x
    return torch.maximum(0.9 * d, -0.1 * d).mean()


@add(TWO)
def charbonnier(x, y):
    return torch.sqrt((x - y) ** 2 + 1e-6).mean()


@add((((6, 40), B(6, 40)), ((5, 5), B(5, 5)), ((2, 3, 4), B(2, 3, 4))))
def masked_mean(x, mask):
    m = mask.to(x.dtype)
    return (x * m).sum(-1) / (m.sum(-1) + 1.0)


@add(ONE)
def sum_of_squares(x):
    return (x * x).sum()


@add(VECTOR)
def vector_mean(x):
    return x.mean()


# ---- statistics ----


@add(ONE)
def variance(x):
    return x.var(-1, unbiased=False)


@add(ONE)
def std_rows(x):
    return (x.var(-1, unbiased=False) + 0.01).sqrt()


@add(ONE)
def mean_and_spread(x):
    m = x.mean(-1)
    return m, (x - m.unsqueeze(-1)).abs().mean(-1)


@add(ONE)
def skewness(x):
    d = x - x.mean(-1, keepdim=True)
    return (d**3).mean(-1) / ((d * d).mean(-1) + 0.1) ** 1.5


@add(ONE)
def kurtosis(x):
    d = x - x.mean(-1, keepdim=True)
    return (d**4).mean(-1) / ((d * d).mean(-1) + 0.1) ** 2


@add(TWO)
def covariance_rows(x, y):
    return ((x - x.mean(-1, keepdim=True)) * (y - y.mean(-1, keepdim=True))).mean(-1)


@add(TWO)
def correlation(x, y):
    a, b = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return (a * b).sum(-1) / ((a * a).sum(-1) * (b * b).sum(-1) + 0.1).sqrt()


@add(ONE)
def z_score(x):
    return (x - x.mean()) / (x.var(unbiased=False) + 0.1).sqrt()


@add(ONE)
def total_max(x):
    return x.amax()


@add(ONE)
def range_of_rows(x):
    return x.amax(-1) - x.amin(-1)


@add(ONE)
def chain_of_reductions(x):
    return x.amax(-1).mean(0)


@add(ONE)
def column_means(x):
    return x.mean(0)


@add(IMAGE)
def middle_means(x):
    return x.mean((1, 3))


@add(ONE)
def centre_twice(x):
    return x - x.mean(-1, keepdim=True) - x.mean(0, keepdim=True) + x.mean()


@add(ONE)
def p_norm(x):
    return (x.abs() ** 3).sum(-1) ** (1 / 3)


@add(ONE)
def vector_norm(x):
    return torch.linalg.vector_norm(x, dim=-1)


@add(VECTOR)
def weighted_variance(x):
    w = torch.sigmoid(x)
    m = (w * x).sum() / w.sum()
    return (w * (x - m) ** 2).sum() / w.sum()


# ---- physics, finance ----


@add(positive(TWO))
def lennard_jones(r, s):
    q = (s / r) ** 6
    return 4 * (q * q - q)


@add((((6, 3), (6, 3)), ((3, 3), (3, 3)), ((2, 4, 3), (2, 4, 3))))
def coulomb(a, b):
    return 1 / torch.sqrt(((a - b) ** 2).sum(-1) + 0.1)


@add(((P(7), P(7)), (P(1), P(1)), (P(2, 3), P(2, 3))))
def planck(nu, t):
    return nu**3 / torch.expm1(nu / t)


@add(TWO)
def kinetic(v, m):
    return 0.5 * (m * v * v).sum(-1)


@add(ONE)
def damped_oscillator(t):
    return torch.exp(-0.1 * t) * torch.cos(2.0 * t)


@add(positive(ONE))
def maxwell_boltzmann(v):
    return v * v * torch.exp(-v * v / 2) * math.sqrt(2 / math.pi)


@add((((4, 1), (5,)), ((5, 1), (5,)), ((2, 3, 1), (4,))))
def outer_gauss(x, c):
    return torch.exp(-((x - c) ** 2))


@add((((4, 3), (5, 3)), ((3, 3), (3, 3)), ((1, 2), (4, 2))))
def pairwise_distance(a, b):
    return ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)


@add((((4, 3), (5, 3)), ((3, 3), (3, 3)), ((2, 2), (4, 2))))
def rbf_row_sums(a, b):
    return torch.exp(-((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)).sum(-1)


@add((((6, 3),), ((3, 3),), ((2, 4, 3),)))
def unit_vectors(v):
    return v / torch.sqrt((v * v).sum(-1, keepdim=True) + 1e-6)


@add(((P(9), P(9)), (P(1), P(1)), (P(3, 4), P(3, 4))))
def black_scholes(s, k, r=0.05, sigma=0.3):
    d1 = (torch.log(s / k) + (r + sigma * sigma / 2)) / sigma
    d2 = d1 - sigma
    n1, n2 = (0.5 * (1 + torch.erf(d / math.sqrt(2.0))) for d in (d1, d2))
    return s * n1 - k * math.exp(-r) * n2


@add(positive(SERIES))
def log_returns(p):
    return torch.log(p[:, 1:] / p[:, :-1])


@add(positive(SERIES))
def sharpe(p):
    r = p[:, 1:] / p[:, :-1] - 1
    return r.mean(-1) / (r.var(-1, unbiased=False) + 0.01).sqrt()


@add(SERIES, torch_parts=True)
def drawdown(x):
    c = x.cumsum(-1)
    return c - c.amax(-1, keepdim=True)


@add(TWO)
def portfolio(w, r):
    return (torch.softmax(w, -1) * r).sum(-1)


@add(positive(ONE))
def discount(x):
    return x / (1 + 0.03) ** 2


@add(ONE)
def sigmoid_utility(x):
    return -torch.exp(-0.5 * x)


# ---- images ----


@add((((2, 3, 4, 5),), ((1, 3, 4, 4),), ((3, 3, 3, 3),)))
def to_grey(x):
    r, g, b = x.unbind(1)
    return 0.299 * r + 0.587 * g + 0.114 * b


@add(positive(IMAGE))
def gamma_correct(x):
    return x ** (1 / 2.2)


@add(IMAGE)
def channel_mean(x):
    return x.mean((2, 3))


@add(IMAGE_CHANNEL)
def normalize_image(x, mean):
    return (x - mean.view(1, -1, 1, 1)) / 0.25


@add(IMAGE)
def total_variation(x):
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., :, 1:] - x[..., :, :-1]).abs().mean()


@add(IMAGE_CHANNEL)
def scale_channels(x, s):
    return x * torch.sigmoid(s)[None, :, None, None]


@add(IMAGE)
def squeeze_excite(x):
    return x * torch.sigmoid(x.mean((2, 3), keepdim=True))


@add((((2, 3, 4, 5), (2, 3, 4, 5)), ((1, 4, 4, 4), (1, 4, 4, 4)), ((2, 1, 6, 3), (2, 1, 6, 3))))
def blend(x, y, alpha=0.3):
    return alpha * x + (1 - alpha) * y


@add(IMAGE)
def channels_last_mean(x):
    return x.permute(0, 2, 3, 1).mean(-1)


@add(IMAGE)
def pixel_norm(x):
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)


# ---- broadcasts, structure, dtypes ----


@add((((6, 1), (1, 40)), ((5, 1), (1, 5)), ((1, 1), (1, 7))))
def outer_product(x, y):
    return x * y


@add((((2, 3, 4), (3, 1)), ((3, 3, 3), (3, 1)), ((1, 3, 4), (3, 1))))
def middle_broadcast(x, w):
    return x * torch.exp(w)


@add((((6, 40), ()), ((5, 5), ()), ((2, 3, 4), ())))
def scalar_tensor(x, s):
    return x * s + 1


@add((((5, 5), (5, 5)), ((3, 3), (3, 3)), ((7, 7), (7, 7))))
def with_transpose(x, y):
    return x + y.t()


@add((((6, 40), (6, 1)), ((5, 5), (5, 1)), ((2, 3, 4), (2, 3, 1))))
def row_scale(x, s):
    return (x * s).sum(-1)


@add((((4, 6, 8), (6, 8)), ((3, 3, 3), (3, 3)), ((1, 2, 5), (2, 5))))
def positional(x, p):
    return F.gelu(x + p)


@add((((4, 6, 8), (4, 1, 8)), ((3, 3, 3), (3, 1, 3)), ((1, 2, 5), (1, 1, 5))))
def modulate(x, shift):
    return x * (1 + shift)


@add(
    (((4, 6, 8), (4, 1, 8), (4, 1, 8)), ((3, 3, 3), (3, 1, 3), (3, 1, 3)), ((2, 2, 5), (2, 1, 5), (2, 1, 5)))
)
def adaptive_norm(x, scale, shift):
    return F.layer_norm(x, (x.shape[-1],)) * (1 + scale) + shift


@add(TWO)
def dictionary(x, y):
    return {"sum": x + y, "parts": (x * y, [x - y])}


@add(ONE)
def two_results(x):
    return torch.sin(x), torch.cos(x)


@add(TWO)
def where_nan_safe(x, y):
    return torch.where(y > 0, x / torch.where(y > 0, y, torch.ones_like(y)), torch.zeros_like(x))


@add(ONE)
def divided_by_width(x):
    return x.sum(-1) / x.shape[-1] ** 0.5


@add(ONE)
def constant_tensor(x):
    return x * torch.tensor(2.0, dtype=x.dtype) + torch.full((), 0.5, dtype=x.dtype)


@add(ONE)
def through_float(x):
    return (x.float() * 1.5).to(x.dtype)


@add(ONE)
def straight_through(x):
    return x + (torch.round(x) - x).detach()


@add(ONE)
def identity_view(x):
    return x.reshape(-1) * 2


@add((((2, 5, 8),), ((3, 3, 4),), ((1, 4, 6),)), torch_parts=True)
def rotary_halves(x):
    a, b = x.chunk(2, -1)
    return torch.cat((a * 0.8 - b * 0.6, b * 0.8 + a * 0.6), -1)


@add(ONE)
def in_place_temporary(x):
    y = x * 2
    y += 1
    y.mul_(x)
    return y


@add(ONE)
def unused_branch(x, use=False):
    return x + 1 if use else x - 1


@add(ONE)
def any_positive(x):
    return (x > 1.0).any(-1)


@add(ONE)
def inverse_trigonometric(x):
    return (
        torch.atan(x) + torch.asin(torch.tanh(x) * 0.9) * torch.acos(torch.sin(x) * 0.9) + torch.tan(x * 0.3)
    )


@add(ONE)
def hyperbolic(x):
    return (
        torch.sinh(x) / torch.cosh(x)
        + torch.asinh(x) * torch.atanh(torch.sin(x) * 0.9)
        + torch.acosh(x * x + 1.5)
    )


@add(TWO)
def polar(x, y):
    return torch.atan2(x, y), torch.hypot(x, y), torch.exp2(torch.sin(x))


@add(TWO)
def rests(x, y):
    """A divisor away from 0, that the results jump little."""
    d = torch.where(y < 0, y - 1, y + 1)
    return torch.fmod(x * 5, d) * 0.1, torch.remainder(x * 5, 1.7), torch.trunc(x * 3) + torch.frac(x * 2)


@add(TWO, gradients=False)
def floor_division(x, y):
    return x // 0.7 + torch.div(x, torch.where(y < 0, y - 1, y + 1), rounding_mode="floor"), torch.div(
        x, 0.3, rounding_mode="trunc"
    )


@add(ONE)
def without_nan(x):
    y = torch.where(x > 1, math.inf, x)
    return torch.nan_to_num(y - y, nan=2.0) + torch.isfinite(y) * x + torch.isinf(y), torch.xlogy(
        x, x.abs() + 1
    )


@add(ONE, gradients=False)
def exclusive(x):
    return torch.logical_xor(x > 0, x < 1), (x > 0) ^ (x.abs() > 0.5), x.isnan()


@add(ONE)
def compare(x):
    return (x > 0) & (x < 1)


@add(ONE, gradients=False)
def count_positive(x):
    return (x > 0).to(x.dtype).sum(-1)


@add((((6, 40), I(6, 40)), ((5, 5), I(5, 5)), ((2, 3, 4), I(2, 3, 4))))
def times_integer(x, n):
    return x * n


@add(((I(6, 40),), (I(5, 5),), (I(2, 3, 4),)), gradients=False)
def integer_math(n):
    return n // 3 + n % 5 - (n & 3)


@add((((6, 40), I(6)), ((5, 5), I(5)), ((1, 9), I(1))))
def ignored_rows(x, labels):
    keep = (labels != 3) & (labels < 12) | (labels == 17)
    return torch.where(keep[:, None], torch.softmax(x, -1), 0.0)


@add((((6, 40), I(6, 40)), ((5, 5), I(5, 5)), ((2, 3, 4), I(2, 3, 4))))
def ignored_elements(x, labels):
    return (
        torch.where(torch.logical_xor(labels >= 4, labels == 9), x, 0.0).sum(-1) + (x * (labels > 5)).mean()
    )


@add((((6, 40), I(40)), ((5, 5), I(5)), ((2, 3, 4), I(4))))
def masked_columns(x, ids):
    return x.masked_fill(ids > 7, 0.0).amax(-1, keepdim=True) * ~ids.bool()


@add(((I(6, 40),), (I(5, 5),), (I(2, 3, 4),)), gradients=False)
def weights_of_classes(labels):
    return torch.where(labels < 3, 0.5, torch.where(labels <= 10, 1.0, 2.0))


@add((((6, 40), I(6)), ((5, 5), I(5)), ((1, 9), I(1))))
def masked_and_scaled(x, n):
    return torch.where(n[:, None] != 3, x, 0.0) * n[:, None]


@add((((6, 40), I(6), I(6)), ((5, 5), I(5), I(5)), ((1, 9), I(1), I(1))))
def same_class(x, a, b):
    return torch.where((a == b)[:, None], x, 0.0)


@add((((6, 40), I(6)), ((5, 5), I(5)), ((1, 9), I(1))))
def mean_of_kept_rows(x, labels):
    keep = labels != 3
    return torch.where(keep, torch.logsumexp(x, -1), 0.0).sum() / keep.sum().clamp(min=1)


@add((((2, 5, 7), I(5), I(7)), ((3, 3), I(3), I(3)), ((2, 1, 9), I(1), I(9))))
def causal_by_positions(scores, q, k):
    masked = q[:, None] < k[None, :] - 12
    return torch.softmax(scores.masked_fill(masked, -1e9), -1), masked


@add((((6, 40), I(6, 40)), ((5, 5), I(5, 5)), ((2, 3, 4), I(2, 3, 4))))
def masked_and_the_mask(x, labels):
    keep = (labels > 3) & (labels % 5 != 1)
    return torch.where(keep, torch.exp(x), 0.0), keep, keep.sum(-1), (labels * 2).amax(-1)


@add(((I(6, 40), I(40)), (I(5, 5), I(5)), (I(2, 3, 4), I(4))), gradients=False)
def packed_bits(a, b):
    return ((a & 15) << 4 | b & 15).to(torch.uint8), (a ^ b) >> 1, a.to(torch.int16) * 0.5


@add((((6, 40), B(6, 40)), ((5, 5), B(5, 5)), ((2, 3, 4), B(2, 3, 4))))
def bools_both_ways(x, keep):
    return torch.where(keep, x * x, 0.0), ~keep ^ (x > 0), keep.any(-1), keep.sum(-1)


@add(((I(6, 40), I(6, 40)), (I(5, 5), I(5, 5)), (I(2, 3, 4), I(2, 3, 4))), torch_parts=True, gradients=False)
def divided_by_elements(a, b):
    return a // (b + 1)


@add((((6, 40),), ((5, 5),), ((3, 2, 8),)), gradients=False)
def arg_max(x):
    return x.argmax(-1)


@add((((6, 40),), ((5, 5),), ((3, 2, 8),)))
def least_and_where(x):
    y = torch.tanh(x.float())
    return torch.softmax(y, 0), y.argmin(0, keepdim=True)


@add(ONE, torch_parts=True)
def with_position(x):
    return x * torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)


@add((((6, 40), I(6)), ((5, 5), I(5)), ((2, 4), I(2))), torch_parts=True)
def gather_row(x, i):
    return torch.exp(x).gather(1, (i % x.shape[1])[:, None]).squeeze(1)


@add((((8,), (8,)), ((1,), (1,)), ((3,), (3,))))
def vectors(x, y):
    return x * y + torch.sqrt(x * x + 1)


@add(ONE, torch_parts=True, gradients=False)
def middle(x):
    return torch.quantile(x.float(), 0.5, -1)


@add(TWO)
def beta_log_density(x, y):
    a, b = 0.5 + torch.exp(x), 0.5 + torch.exp(y)
    return torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + (a - 1) * torch.log(torch.sigmoid(x))


@add(ONE)
def dirichlet_mean_of_log(x):
    a = 0.1 + torch.exp(x)
    return torch.digamma(a) - torch.digamma(a.sum(-1, keepdim=True))


@add(ONE)
def gaussian_copula(x):
    return torch.erfinv(2 * torch.sigmoid(x) - 1) * math.sqrt(2)


@add(ONE)
def product(x):
    return (1 + 0.1 * x).prod(-1)


@add(TWO)
def product_of_all(x, y):
    return (1 + 0.1 * x * y).prod() * torch.exp(y).mean()


@add(((B(6, 40), B(6, 40)), (B(5, 5), B(5, 5)), (B(2, 3), B(2, 3))), gradients=False)
def masks_alone(a, b):
    return torch.where(a & ~b, 1.0, -1.0)


@add(
    (((2, 3, 4, 6), (4, 3), (4, 3)), ((1, 2, 3, 4), (3, 2), (3, 2)), ((2, 2, 4, 4), (4, 2), (4, 2))),
    torch_parts=True,
)
def rotary(q, cos, sin):
    a, b = q[..., ::2], q[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


@add((((2, 3, 5, 5),), ((1, 2, 4, 4),), ((2, 1, 3, 3),)), torch_parts=True)
def causal_softmax(s):
    n = s.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool, device=s.device).tril()
    return torch.softmax(s.masked_fill(~mask, float("-inf")), -1)


@add(TWO)
def residual_gate(x, y):
    return torch.lerp(x, y, torch.sigmoid(x))


@add(ONE)
def mean_of_everything(x):
    return x.mean(), x.amax(-1), torch.tanh(x)


@add((((6, 40), (40,), (40,)), ((5, 5), (5,), (5,)), ((2, 3, 4), (4,), (4,))))
def affine_softmax(x, w, b):
    return torch.softmax(x * w + b, -1) * w


@add((((8, 5), (4, 5)), ((6, 6), (3, 6)), ((10,), (5,))), torch_parts=True)
def added_to_itself_twice(x, y):
    return x + torch.cat([y, y])
