"""Normalisations over trailing dims, alone and fused with the residual addition before them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from . import activations
from .record import Arguments, Grads, OpDef, Sample, Tensor, along, groups, trailing


def trailing_dims(x: Tensor, normalized_shape: Sequence[int]) -> list[int]:
    return list(range(x.dim() - len(normalized_shape), x.dim()))


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    y = _standardised(x, trailing_dims(x, normalized_shape), eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y


def _standardised(x: Tensor, dims: list[int], eps: float) -> Tensor:
    """The values of each row less their mean, over their standard deviation."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    # What rounding left of the mean, nothing in exact arithmetic: a row that hardly varies would show it, times rstd.
    residue = centred.mean(dims, keepdim=True).detach()
    variance = (centred * centred).mean(dims, keepdim=True) - residue * residue
    rstd = torch.rsqrt(variance + eps)
    y = (centred - residue) * rstd
    return y  # noqa: RET504  (its name in the generated code)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    scale: str = "weight",
) -> Tensor:
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    dims = trailing_dims(x, normalized_shape)
    rstd = torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
    y = x * rstd
    if weight is not None:
        y = y * (weight + 1.0 if scale == "one_plus_weight" else weight)
    return y


def _rms_norm_twin(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    scale: str = "weight",
) -> Tensor:
    if weight is not None and scale == "one_plus_weight":  # as Gemma does it, in float32
        y = F.rms_norm(x.float(), normalized_shape, None, eps) * (1.0 + weight.float())
        return y.to(x.dtype)
    return F.rms_norm(x, normalized_shape, weight, eps)


def l2_normalize(x: Tensor, dim: int, eps: float = 1e-12) -> Tensor:
    norm = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
    scale = torch.reciprocal(norm.clamp(min=eps))
    return x * scale


def l2_normalize_gradient(grads: Grads, args: Arguments, results: Grads) -> Grads:
    # By the result: the part of the gradient along it does not reach x, unless the norm is below eps.
    grad, x, y, dim, eps = grads["y"], args["x"], results["y"], args["dim"], args["eps"]
    norm = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
    along_y = torch.where(norm > eps, (grad * y).sum(dim, keepdim=True), 0.0)
    return {"x": (grad - y * along_y) * torch.reciprocal(norm.clamp(min=eps))}


def _l2_normalize_twin(x: Tensor, dim: int, eps: float = 1e-12) -> Tensor:
    return F.normalize(x, 2.0, dim, eps)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return rms_norm(residual_out, normalized_shape, weight, eps), residual_out


def _add_rms_norm_twin(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return F.rms_norm(residual_out, normalized_shape, weight, eps), residual_out


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return layer_norm(residual_out, normalized_shape, weight, bias, eps), residual_out


def _add_layer_norm_twin(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    residual_out = x + residual
    return F.layer_norm(residual_out, normalized_shape, weight, bias, eps), residual_out


LAYER_NORM = OpDef(
    name="layer_norm",
    schema="(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    definition=layer_norm,
    columns=trailing("normalized_shape"),
    invariant=True,
    formula="(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, var with divisor N",
    source="Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450",
    spans={"weight": "N", "bias": "N"},
    twin=F.layer_norm,
    samples=(
        Sample(((6, 40), (40,), (40,), (40,))),
        Sample(((2, 3, 33), [33], (33,))),
        Sample(((4, 2, 6), [2, 6]), {"bias": (2, 6), "eps": 1e-3}),
        Sample(((5, 16), [16])),
    ),
)

RMS_NORM = OpDef(
    name="rms_norm",
    schema=(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None, str scale='weight') -> Tensor"
    ),
    definition=rms_norm,
    columns=trailing("normalized_shape"),
    formula=(
        "x / sqrt(mean(x^2) + eps) * weight, or * (1 + weight) as in Gemma; eps=None: the machine epsilon of the dtype "
        "of the math"
    ),
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467",
    spans={"weight": "N"},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    choices={"scale": ("weight", "one_plus_weight")},
    twin=_rms_norm_twin,
    # A kernel for this width alone is 5 % faster than the one for rows of whole chunks (H200, bf16: 9.8 and 10.3 us); at 4096,
    # and for layer_norm at 1024, 2048, 4096 and 12288, within 2 %.
    widths={"forward": (1024,)},
    samples=(
        Sample(((6, 40), [40], (40,))),
        Sample(((2, 3, 33), [33])),
        Sample(((4, 2, 6), [2, 6], (2, 6), 1e-3)),
        Sample(((6, 40), [40], (40,)), {"scale": "one_plus_weight"}),
    ),
)

L2_NORMALIZE = OpDef(
    name="l2_normalize",
    schema="(Tensor x, int dim, float eps=1e-12) -> Tensor",
    definition=l2_normalize,
    columns=along("dim"),
    formula="x / max(sqrt(sum(x^2)), eps)",
    source="Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, arXiv:1704.06369",
    gradient=l2_normalize_gradient,
    twin=_l2_normalize_twin,
    samples=(Sample(((6, 40), -1)), Sample(((2, 5, 7), 1)), Sample(((3, 4, 5), 0, 10.0))),
)

ADD_RMS_NORM = OpDef(
    name="add_rms_norm",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) "
        "-> (Tensor y, Tensor residual_out)"
    ),
    definition=add_rms_norm,
    columns=trailing("normalized_shape"),
    formula="residual_out = x + residual; y = rms_norm(residual_out)",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467",
    spans={"weight": "N"},
    results=("y", "residual_out"),
    dtypes={"residual_out": "residual"},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    twin=_add_rms_norm_twin,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33])),
        Sample(((4, 2, 6), (4, 2, 6), [2, 6], (2, 6)), {"eps": 1e-3}),
    ),
)

ADD_LAYER_NORM = OpDef(
    name="add_layer_norm",
    schema=(
        "(Tensor x, Tensor residual, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05) -> (Tensor y, Tensor residual_out)"
    ),
    definition=add_layer_norm,
    columns=trailing("normalized_shape"),
    invariant=True,
    formula="residual_out = x + residual; y = layer_norm(residual_out)",
    source="Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450",
    spans={"weight": "N", "bias": "N"},
    results=("y", "residual_out"),
    dtypes={"residual_out": "residual"},
    twin=_add_layer_norm_twin,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,), (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33])),
        Sample(((4, 2, 6), (4, 2, 6), [2, 6], (2, 6)), {"eps": 1e-3}),
    ),
)


def layer_norm_modulate(
    x: Tensor, scale: Tensor, shift: Tensor, normalized_shape: Sequence[int], eps: float = 1e-5
) -> Tensor:
    return layer_norm(x, normalized_shape, None, None, eps) * (scale + 1.0) + shift


def _layer_norm_modulate_twin(
    x: Tensor, scale: Tensor, shift: Tensor, normalized_shape: Sequence[int], eps: float = 1e-5
) -> Tensor:
    return F.layer_norm(x, normalized_shape, None, None, eps) * (1 + scale) + shift


LAYER_NORM_MODULATE = OpDef(
    name="layer_norm_modulate",
    schema="(Tensor x, Tensor scale, Tensor shift, SymInt[] normalized_shape, float eps=1e-05) -> Tensor",
    definition=layer_norm_modulate,
    columns=trailing("normalized_shape"),
    invariant=True,
    formula="layer_norm(x) * (1 + scale) + shift; scale and shift have the shape of x or broadcast to it",
    source="Peebles and Xie, Scalable Diffusion Models with Transformers, arXiv:2212.09748 (adaLN)",
    twin=_layer_norm_modulate_twin,
    packaged=False,
    samples=(
        Sample(((2, 3, 40), (2, 1, 40), (2, 1, 40), [40])),
        Sample(((6, 33), (6, 33), (33,), [33], 1e-3)),
    ),
)


def gated_rms_norm(
    x: Tensor,
    gate: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor,
    eps: float | None = None,
    order: str = "norm_first",
) -> Tensor:
    if order == "gate_first":
        return rms_norm(x * activations.silu(gate), normalized_shape, weight, eps)
    return rms_norm(x, normalized_shape, weight, eps) * activations.silu(gate)


def _gated_rms_norm_twin(
    x: Tensor,
    gate: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor,
    eps: float | None = None,
    order: str = "norm_first",
) -> Tensor:
    if order == "gate_first":
        return F.rms_norm(x * F.silu(gate), normalized_shape, weight, eps)
    return F.rms_norm(x, normalized_shape, weight, eps) * F.silu(gate)


GATED_RMS_NORM = OpDef(
    name="gated_rms_norm",
    schema=(
        "(Tensor x, Tensor gate, SymInt[] normalized_shape, Tensor weight, float? eps=None, "
        "str order='norm_first') -> Tensor"
    ),
    definition=gated_rms_norm,
    columns=trailing("normalized_shape"),
    formula="rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'",
    source="Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)",
    spans={"weight": "N"},
    none_scalars={"eps": lambda dtype: torch.finfo(dtype).eps},
    choices={"order": ("norm_first", "gate_first")},
    twin=_gated_rms_norm_twin,
    packaged=False,
    samples=(
        Sample(((6, 40), (6, 40), [40], (40,))),
        Sample(((2, 3, 33), (2, 3, 33), [33], (33,)), {"order": "gate_first"}),
    ),
)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    rows = x.unflatten(1, (num_groups, -1))
    y = _standardised(rows, list(range(2, rows.dim())), eps).flatten(1, 2)
    channel = [-1] + [1] * (x.dim() - 2)
    if weight is not None:
        y = y * weight.view(channel)
    if bias is not None:
        y = y + bias.view(channel)
    return y


def group_norm_silu(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return activations.silu(group_norm(x, num_groups, weight, bias, eps))


def _group_norm_silu_twin(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return F.silu(F.group_norm(x, num_groups, weight, bias, eps))


GROUP_NORM = OpDef(
    name="group_norm",
    schema="(Tensor x, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    definition=group_norm,
    columns=groups("num_groups"),
    invariant=True,
    formula=(
        "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias; mean and var, with divisor N, of each group of C / num_groups "
        "channels of each sample of x (samples, C, ...); weight and bias (C)"
    ),
    source="Wu and He, Group Normalization, arXiv:1803.08494",
    spans={"weight": "N", "bias": "N"},
    twin=F.group_norm,
    packaged=False,
    samples=(
        Sample(((2, 12, 5, 3), 3, (12,), (12,))),
        Sample(((3, 8), 4, (8,))),
        Sample(((2, 6, 7), 6), {"bias": (6,), "eps": 1e-3}),
        Sample(((2, 4, 2, 3, 5), 1)),
        Sample(((2, 4, 4, 4), 2, (4,), (4,))),
    ),
)

GROUP_NORM_SILU = OpDef(
    name="group_norm_silu",
    schema=GROUP_NORM.schema,
    definition=group_norm_silu,
    columns=groups("num_groups"),
    invariant=True,
    formula="y * sigmoid(y), y = group_norm(x)",
    source="Ho, Jain and Abbeel, Denoising Diffusion Probabilistic Models, arXiv:2006.11239, appendix B, and its published code",
    spans=GROUP_NORM.spans,
    twin=_group_norm_silu_twin,
    packaged=False,
    samples=GROUP_NORM.samples,
)

CATALOGUE = (
    LAYER_NORM, RMS_NORM, L2_NORMALIZE, ADD_LAYER_NORM, ADD_RMS_NORM, LAYER_NORM_MODULATE, GATED_RMS_NORM, GROUP_NORM,
    GROUP_NORM_SILU,
)  # fmt: skip
