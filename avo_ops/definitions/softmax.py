"""Softmax and its logarithm over one dim."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .record import LAST, Arguments, Grads, OpDef, Sample, Tensor, along


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
    invariant=True,
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
    invariant=True,
    formula="x - max(x) - log(sum(exp(x - max(x))))",
    source=SOFTMAX.source,
    gradient=log_softmax_gradient,
    twin=F.log_softmax,
    samples=SOFTMAX.samples,
)


def softcap_softmax(x: Tensor, dim: int, cap: float) -> Tensor:
    return softmax(torch.tanh(x / cap) * cap, dim)


SOFTCAP_SOFTMAX = OpDef(
    name="softcap_softmax",
    schema="(Tensor x, int dim, float cap) -> Tensor",
    definition=softcap_softmax,
    columns=along("dim"),
    invariant=True,
    formula="softmax(cap * tanh(x / cap))",
    source="Gemma Team, Gemma 2: Improving Open Language Models at a Practical Size, arXiv:2408.00118",
    twin=softcap_softmax,
    packaged=False,
    samples=(Sample(((6, 40), -1, 2.0)), Sample(((2, 5, 7), 1, 30.0))),
)


def scaled_masked_softmax_rows(
    x: Tensor, attn_mask: Tensor | None = None, last: Tensor | None = None, scale: float = 1.0
) -> Tensor:
    score = x * scale
    if attn_mask is not None:
        score = score + attn_mask
    if last is not None:
        score = torch.where(torch.arange(x.shape[-1], device=x.device) <= last, score, -torch.inf)
    return softmax(score, -1)


def scaled_masked_softmax_rows_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    of_score, last = softmax_gradient(grads, {"dim": -1}, results)["x"], args["last"]
    if last is not None:  # also in a row that is not finite
        of_score = torch.where(
            torch.arange(of_score.shape[-1], device=of_score.device) <= last, of_score, 0.0
        )
    return {"x": of_score * args["scale"], "attn_mask": of_score}


def _scaled_masked_softmax_rows_twin(
    x: Tensor, attn_mask: Tensor | None = None, last: Tensor | None = None, scale: float = 1.0
) -> Tensor:
    score = x * scale if attn_mask is None else x * scale + attn_mask
    if last is not None:
        score = score.masked_fill(torch.arange(x.shape[-1], device=x.device) > last, -torch.inf)
    return torch.softmax(score, -1)


SCALED_MASKED_SOFTMAX_ROWS = OpDef(
    name="scaled_masked_softmax_rows",
    schema="(Tensor x, Tensor? attn_mask=None, Tensor? last=None, float scale=1.0) -> Tensor",
    definition=scaled_masked_softmax_rows,
    columns=LAST,
    invariant=True,
    formula="softmax(scale * x + attn_mask) over the last dim, without the columns beyond last",
    source="Vaswani et al., Attention Is All You Need, arXiv:1706.03762",
    spans={"last": "M"},
    integers=("last",),
    gradient=scaled_masked_softmax_rows_gradient,
    twin=_scaled_masked_softmax_rows_twin,
    packaged=False,
    samples=(Sample(((6, 40), (6, 40))), Sample(((2, 5, 7), None, (2, 5, 1), 0.25))),
)


def softmax_with_sink(x: Tensor, sink: Tensor) -> Tensor:
    largest = torch.maximum(x.amax(-1, keepdim=True), sink).detach()
    shifted = torch.exp(x - largest)
    return shifted / (shifted.sum(-1, keepdim=True) + torch.exp(sink - largest))


def softmax_with_sink_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    x, sink, grad, y = args["x"], args["sink"], grads["y"], results["y"]
    largest = torch.maximum(x.amax(-1, keepdim=True), sink)
    own = torch.exp(sink - largest)
    share = own / (torch.exp(x - largest).sum(-1, keepdim=True) + own)
    along_y = (grad * y).sum(-1, keepdim=True)
    return {"x": y * (grad - along_y), "sink": -share * along_y}


def _softmax_with_sink_twin(x: Tensor, sink: Tensor) -> Tensor:
    return torch.softmax(torch.cat([x, sink], -1), -1)[..., :-1]


SOFTMAX_WITH_SINK = OpDef(
    name="softmax_with_sink",
    schema="(Tensor x, Tensor sink) -> Tensor",
    definition=softmax_with_sink,
    columns=LAST,
    invariant=True,
    formula="exp(x - m) / (sum(exp(x - m)) + exp(sink - m)), m = max(x, sink); one sink for each row",
    source="OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925; Xiao et al., arXiv:2309.17453",
    spans={"sink": "M"},
    gradient=softmax_with_sink_gradient,
    twin=_softmax_with_sink_twin,
    packaged=False,
    samples=(Sample(((6, 40), (6, 1))), Sample(((2, 5, 7), (2, 5, 1)))),
)

CATALOGUE = (SOFTMAX, LOG_SOFTMAX, SOFTCAP_SOFTMAX, SCALED_MASKED_SOFTMAX_ROWS, SOFTMAX_WITH_SINK)
