"""Steps of optimizers, each stated for one parameter: gradients may be scaled and clipped, and a step skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .lists import ListDef, ListReduction, OverLists
from .record import Sample, Tensor

# What a schema has for gradients behind the numbers of its formula: as torch's fused optimizers have it, and ``clip``.
_OF_GRADIENTS = "bool maximize=False, Tensor? grad_scale=None, Tensor? found_inf=None, Tensor? clip=None"
_GIVEN = "g = clip * grad / grad_scale (-g to maximize); nothing changes where found_inf is not 0; "


def _gradient(grad: Tensor, maximize: Tensor, grad_scale: Tensor, clip: Tensor) -> Tensor:
    """The gradient to descend by; ``clip`` is 1, or what brings the norm of all gradients to its bound."""
    factor = torch.where(maximize != 0, -clip, clip) / grad_scale
    return grad * factor


def _averages(
    g: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, beta1: Tensor, beta2: Tensor
) -> tuple[Tensor, Tensor]:
    mean = exp_avg * beta1 + g * (1 - beta1)
    square = exp_avg_sq * beta2 + (g * g) * (1 - beta2)
    return mean, square


def _adamw_step(
    param: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    weight_decay: Tensor, eps: Tensor,
) -> Tensor:  # fmt: skip
    step_size = lr / (1 - beta1**step)
    correction = 1 / torch.sqrt(1 - beta2**step)
    denominator = torch.sqrt(square) * correction + eps
    return param * (1 - lr * weight_decay) - mean / denominator * step_size


def adamw(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: Tensor, lr: Tensor, beta1: Tensor,
    beta2: Tensor, weight_decay: Tensor, eps: Tensor, maximize: Tensor, grad_scale: Tensor, clip: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    g = _gradient(grad, maximize, grad_scale, clip)
    mean, square = _averages(g, exp_avg, exp_avg_sq, beta1, beta2)
    return _adamw_step(param, mean, square, step, lr, beta1, beta2, weight_decay, eps), mean, square


def adamw_amsgrad(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor, step: Tensor, lr: Tensor,
    beta1: Tensor, beta2: Tensor, weight_decay: Tensor, eps: Tensor, maximize: Tensor, grad_scale: Tensor, clip: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    g = _gradient(grad, maximize, grad_scale, clip)
    mean, square = _averages(g, exp_avg, exp_avg_sq, beta1, beta2)
    largest = torch.maximum(max_exp_avg_sq, square)
    return _adamw_step(param, mean, largest, step, lr, beta1, beta2, weight_decay, eps), mean, square, largest


def lion(
    param: Tensor, grad: Tensor, exp_avg: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor, weight_decay: Tensor,
    maximize: Tensor, grad_scale: Tensor, clip: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    g = _gradient(grad, maximize, grad_scale, clip)
    update = torch.sign(exp_avg * beta1 + g * (1 - beta1))
    return param * (1 - lr * weight_decay) - update * lr, exp_avg * beta2 + g * (1 - beta2)


def sgd(
    param: Tensor,
    grad: Tensor,
    lr: Tensor,
    weight_decay: Tensor,
    maximize: Tensor,
    grad_scale: Tensor,
    clip: Tensor,
) -> Tensor:
    g = _gradient(grad, maximize, grad_scale, clip) + param * weight_decay
    return param - g * lr


def sgd_momentum(
    param: Tensor, grad: Tensor, momentum_buffer: Tensor, lr: Tensor, momentum: Tensor, dampening: Tensor,
    weight_decay: Tensor, nesterov: Tensor, is_first_step: Tensor, maximize: Tensor, grad_scale: Tensor, clip: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    g = _gradient(grad, maximize, grad_scale, clip) + param * weight_decay
    buffer = torch.where(is_first_step != 0, g, momentum_buffer * momentum + g * (1 - dampening))
    update = torch.where(nesterov != 0, buffer * momentum + g, buffer)
    return param - update * lr, buffer


_SHAPES = ((33,), (4, 5), (1,), (2, 3, 7))
_STEPS = ((), (), (), ())


def _adamw(name: str, moments: Sequence[str], **fields: Any) -> ListDef:
    """AdamW, or a form of it, with these running values of each parameter."""
    written = ", ".join(f"Tensor({alias}!)[] {m}s" for alias, m in zip("bcd", moments, strict=False))
    return ListDef(
        name=name,
        schema=f"(Tensor(a!)[] params, Tensor[] grads, {written}, Tensor[] state_steps, *, "
        f"float lr, float beta1, float beta2, float weight_decay, float eps, {_OF_GRADIENTS}) -> ()",
        elements={"params": "param", "grads": "grad", **{f"{m}s": m for m in moments}, "state_steps": "step"},
        numbers=("state_steps",),
        absent={"grad_scale": 1.0, "clip": 1.0},
        unless="found_inf",
        tensors=("lr",),
        samples=(
            Sample(
                (_SHAPES, _SHAPES, *[_SHAPES] * len(moments), _STEPS),
                {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.1, "eps": 1e-8},
            ),
        ),
        **fields,
    )


ADAMW = _adamw(
    "adamw_",
    ("exp_avg", "exp_avg_sq"),
    definition=adamw,
    formula=_GIVEN + "m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; "
    "p = p (1 - lr weight_decay) - lr / (1 - beta1^step) m / (sqrt(v / (1 - beta2^step)) + eps)",
    source="Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101",
)

ADAMW_AMSGRAD = _adamw(
    "adamw_amsgrad_",
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    definition=adamw_amsgrad,
    formula=_GIVEN + "m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; u = max(u, v); "
    "p = p (1 - lr weight_decay) - lr / (1 - beta1^step) m / (sqrt(u / (1 - beta2^step)) + eps)",
    source="Reddi, Kale and Kumar, On the Convergence of Adam and Beyond, ICLR 2018; as torch.optim.AdamW(amsgrad=True)",
)

LION = ListDef(
    name="lion_",
    schema="(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, *, float lr, float beta1, float beta2, "
    f"float weight_decay, {_OF_GRADIENTS}) -> ()",
    definition=lion,
    elements={"params": "param", "grads": "grad", "exp_avgs": "exp_avg"},
    formula=_GIVEN
    + "p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g",
    source="Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv:2302.06675",
    absent={"grad_scale": 1.0, "clip": 1.0},
    unless="found_inf",
    tensors=("lr",),
    samples=(
        Sample(
            (_SHAPES, _SHAPES, _SHAPES),
            {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1},
        ),
    ),
)

_SGD_SOURCE = "Robbins and Monro, A Stochastic Approximation Method, 1951; as torch.optim.SGD"

SGD = ListDef(
    name="sgd_",
    schema=f"(Tensor(a!)[] params, Tensor[] grads, *, float lr, float weight_decay=0.0, {_OF_GRADIENTS}) -> ()",
    definition=sgd,
    elements={"params": "param", "grads": "grad"},
    formula=_GIVEN + "p = p - lr (g + weight_decay p)",
    source=_SGD_SOURCE,
    absent={"grad_scale": 1.0, "clip": 1.0},
    unless="found_inf",
    tensors=("lr",),
    samples=(Sample((_SHAPES, _SHAPES), {"lr": 1e-2, "weight_decay": 0.1}),),
)

SGD_MOMENTUM = ListDef(
    name="sgd_momentum_",
    schema="(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, *, float lr, float momentum, "
    "float dampening=0.0, float weight_decay=0.0, bool nesterov=False, bool is_first_step=False, "
    f"{_OF_GRADIENTS}) -> ()",
    definition=sgd_momentum,
    elements={"params": "param", "grads": "grad", "momentum_buffers": "momentum_buffer"},
    formula=_GIVEN + "d = g + weight_decay p; b = momentum b + (1 - dampening) d, at first d; p = p - lr b, "
    "or lr (d + momentum b) if nesterov",
    source="Sutskever et al., On the Importance of Initialization and Momentum in Deep Learning, ICML 2013; as torch.optim.SGD",
    absent={"grad_scale": 1.0, "clip": 1.0},
    unless="found_inf",
    tensors=("lr",),
    samples=(
        Sample((_SHAPES, _SHAPES, _SHAPES), {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
        Sample(
            (_SHAPES, _SHAPES, _SHAPES),
            {"lr": 1e-2, "momentum": 0.9, "dampening": 0.1, "nesterov": True, "is_first_step": True},
        ),
    ),
)


def _square(x: Tensor) -> Tensor:
    return x * x


def _root(total: Tensor) -> Tensor:
    return torch.sqrt(total)


LIST_NORM = ListReduction(
    name="list_norm",
    schema="(Tensor[] tensors) -> Tensor",
    definition=_square,
    finish=_root,
    formula="sqrt(sum of x^2 over all elements of all tensors), in float64",
    source="what torch.nn.utils.get_total_norm computes",
    samples=(Sample((_SHAPES,)),),
)

LISTS: tuple[OverLists, ...] = (ADAMW, LION, SGD, SGD_MOMENTUM, ADAMW_AMSGRAD, LIST_NORM)
