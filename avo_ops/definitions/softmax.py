"""Softmax and its logarithm over one dim."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .record import Arguments, Grads, OpDef, Sample, Tensor, along


def softmax(x: Tensor, dim: int) -> Tensor:
    # The maximum only shifts the exponent: the result does not depend on it, so neither does the gradient.
    shifted = torch.exp(x - x.amax(dim, keepdim=True).detach())
    return shifted / shifted.sum(dim, keepdim=True)


def softmax_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    # In terms of the result alone, so that the input need not be kept alive.
    grad, y, dim = grads["y"], results["y"], args["dim"]
    return {"x": y * (grad - (grad * y).sum(dim, keepdim=True))}


def log_softmax(x: Tensor, dim: int) -> Tensor:
    shifted = x - x.amax(dim, keepdim=True).detach()
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def log_softmax_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    grad, y, dim = grads["y"], results["y"], args["dim"]
    return {"x": grad - torch.exp(y) * grad.sum(dim, keepdim=True)}


SOFTMAX = OpDef(
    name="softmax",
    schema="(Tensor x, int dim) -> Tensor",
    definition=softmax,
    columns=along("dim"),
    formula="exp(x - max(x)) / sum(exp(x - max(x)))",
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (the shifted form)",
    gradient=softmax_gradient,
    twin=F.softmax,
    samples=(Sample(((6, 40), -1)), Sample(((2, 5, 7), 1)), Sample(((3, 4, 5), 0))),
)

LOG_SOFTMAX = OpDef(
    name="log_softmax",
    schema="(Tensor x, int dim) -> Tensor",
    definition=log_softmax,
    columns=along("dim"),
    formula="x - max(x) - log(sum(exp(x - max(x))))",
    source=SOFTMAX.source,
    gradient=log_softmax_gradient,
    twin=F.log_softmax,
    samples=SOFTMAX.samples,
)

CATALOGUE = (SOFTMAX, LOG_SOFTMAX)
