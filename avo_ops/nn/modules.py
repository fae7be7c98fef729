"""Twins of torch.nn's normalisations, activations, losses and dropout whose forward runs avo_ops' operators.

Each is a subclass of its twin: same constructor, parameters, state_dict and repr, and ``isinstance`` holds.
An operator that is a module elsewhere, but not in torch, has one of its own.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from .functional import call, written_to


def _parameter(module: torch.nn.Module, name: str) -> torch.Tensor | None:
    # Module.__getattr__ is Python: 0.8 us a parameter against 0.1 us here. A parameter that something has
    # moved elsewhere (weight_norm, parametrize, replicas) is still found by the attribute.
    parameters = module._parameters
    if name in parameters:
        return parameters[name]
    value: torch.Tensor | None = getattr(module, name)
    return value


class LayerNorm(torch.nn.LayerNorm):
    r"""``torch.nn.LayerNorm`` on ``torch.ops.avo.layer_norm``.

    .. math:: y = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} \cdot w + b

    over the last ``len(normalized_shape)`` dimensions. Statistics in float32 (float64 for float64); the
    result has the shape and dtype of the input. Ba et al., "Layer Normalization", 2016.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, bias = _parameter(self, "weight"), _parameter(self, "bias")
        return call("layer_norm", input, self.normalized_shape, weight, bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    r"""``torch.nn.RMSNorm`` on ``torch.ops.avo.rms_norm``.

    .. math:: y = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} \cdot w

    over the last ``len(normalized_shape)`` dimensions. ``eps=None`` means the machine epsilon of the compute
    dtype. The result has the shape and dtype of the input. Zhang and Sennrich, "Root Mean Square Layer
    Normalization", 2019.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return call("rms_norm", x, self.normalized_shape, _parameter(self, "weight"), self.eps)


class GroupNorm(torch.nn.GroupNorm):
    r"""``torch.nn.GroupNorm`` on ``torch.ops.avo.group_norm``.

    .. math:: y = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} \cdot w + b

    over each of ``num_groups`` groups of the channels of a sample; the input is (samples, channels, ...). Statistics in float32
    (float64 for float64); the result has the shape, dtype and memory format of the input. Wu and He, "Group
    Normalization", 2018.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, bias = _parameter(self, "weight"), _parameter(self, "bias")
        return call("group_norm", input, self.num_groups, weight, bias, self.eps)


def _activation(
    twin: type[torch.nn.Module], operator: str, *settings: str, name: str | None = None
) -> type[torch.nn.Module]:
    """A subclass of ``twin`` on an operator of one tensor; ``settings``: the attributes that it takes besides.

    One that can be told to overwrite its input keeps that meaning by a copy: it saves no memory and costs one
    more pass, since the operators themselves never write to their inputs.
    """

    class Activation(twin):  # type: ignore[misc, valid-type]
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            values = [getattr(self, name) for name in settings]
            if getattr(self, "inplace", False):
                return written_to(input, operator, *values)
            return call(operator, input, *values)

    Activation.__name__ = Activation.__qualname__ = name or twin.__name__
    Activation.__doc__ = (
        f"{_the_twin(twin)} on ``torch.ops.avo.{operator}``; formula and source: see the README."
    )
    return Activation


def _the_twin(twin: type[torch.nn.Module]) -> str:
    return f"``torch.nn.{twin.__name__}``" if twin.__module__.startswith("torch.") else str(twin.__doc__)


def _own(name: str, operator: str, doc: str, **settings: Any) -> type[torch.nn.Module]:
    """A module for an operator that is none in torch; its constructor takes the operator's further arguments."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind, default=v) for n, v in settings.items()])

    class Own(torch.nn.Module):
        __signature__ = signature

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            for setting, value in bound.arguments.items():
                setattr(self, setting, value)

        def extra_repr(self) -> str:
            return ", ".join(f"{setting}={getattr(self, setting)!r}" for setting in settings)

    Own.__doc__ = doc
    return _activation(Own, operator, *settings, name=name)


ReLU = _activation(torch.nn.ReLU, "relu")
ReLU6 = _activation(torch.nn.ReLU6, "hardtanh", "min_val", "max_val")
LeakyReLU = _activation(torch.nn.LeakyReLU, "leaky_relu", "negative_slope")
ELU = _activation(torch.nn.ELU, "elu", "alpha")
SELU = _activation(torch.nn.SELU, "selu")
CELU = _activation(torch.nn.CELU, "celu", "alpha")
Hardtanh = _activation(torch.nn.Hardtanh, "hardtanh", "min_val", "max_val")
Hardsigmoid = _activation(torch.nn.Hardsigmoid, "hardsigmoid")
Hardswish = _activation(torch.nn.Hardswish, "hardswish")
Mish = _activation(torch.nn.Mish, "mish")
Sigmoid = _activation(torch.nn.Sigmoid, "sigmoid")
Tanh = _activation(torch.nn.Tanh, "tanh")
LogSigmoid = _activation(torch.nn.LogSigmoid, "logsigmoid")
Softplus = _activation(torch.nn.Softplus, "softplus", "beta", "threshold")
GELU = _activation(torch.nn.GELU, "gelu", "approximate")
SiLU = _activation(torch.nn.SiLU, "silu")
GLU = _activation(torch.nn.GLU, "glu", "dim")

QuickGELU = _own("QuickGELU", "quick_gelu", "transformers' ``QuickGELUActivation``, timm's ``QuickGELU``:")
SquaredReLU = _own("SquaredReLU", "squared_relu", "transformers' ``ReLUSquaredActivation``:")
# Of the halves of the last dim, as torch.nn.GLU, without the linear layers that timm's and diffusers' hold.
ReGLU = _own("ReGLU", "reglu_packed", "relu(gate) * up of the halves of the last dim (T5X's gated relu):")
GEGLU = _own(
    "GEGLU",
    "geglu_packed",
    "gelu(gate) * up of the halves of the last dim (vLLM's ``GeluAndMul``):",
    approximate="none",
)
SwiGLU = _own(
    "SwiGLU", "swiglu_packed", "silu(gate) * up of the halves of the last dim (vLLM's ``SiluAndMul``):"
)
SwiGLUOAI = _own(
    "SwiGLUOAI", "swiglu_oai_interleaved", "gpt-oss's gate of interleaved pairs (vLLM's ``SwigluOAIAndMul``):",
    alpha=1.702, limit=7.0,
)  # fmt: skip


def _softmax_dim(input: torch.Tensor, dim: int | None, name: str) -> int:
    """``dim``, or for None what torch chooses, with its warning."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
        stacklevel=5,  # the line that called the module
    )
    return 0 if input.dim() in (0, 1, 3) else 1


class Softmax(torch.nn.Softmax):
    r"""``torch.nn.Softmax`` on ``torch.ops.avo.softmax``: :math:`e^{x_i} / \sum_j e^{x_j}` along ``dim``.

    ``dim=None`` chooses the dimension as torch does (0 for 0, 1 and 3 dimensions, else 1), with its warning.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return call("softmax", input, _softmax_dim(input, self.dim, "softmax"))


class LogSoftmax(torch.nn.LogSoftmax):
    r"""``torch.nn.LogSoftmax`` on ``torch.ops.avo.log_softmax``: :math:`x_i - \log \sum_j e^{x_j}` along ``dim``.

    ``dim=None`` chooses the dimension as torch does (0 for 0, 1 and 3 dimensions, else 1), with its warning.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return call("log_softmax", input, _softmax_dim(input, self.dim, "log_softmax"))


class Softmax2d(torch.nn.Softmax2d):
    """``torch.nn.Softmax2d`` on ``torch.ops.avo.softmax``: softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return call("softmax", input, -3)


class Dropout(torch.nn.Dropout):
    """``torch.nn.Dropout`` on ``torch.ops.avo.dropout``: x / (1 - p) with probability 1 - p, else 0, in training.

    No mask is kept. What falls follows from torch's seed, but not as in torch's own. Srivastava et al., "Dropout",
    JMLR 15, 2014.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0.0:
            return input
        if not _is_real(input):
            return super().forward(input)
        if self.inplace:
            return written_to(input, "dropout", self.p)
        return call("dropout", input, self.p)


# ---- losses ----


def _is_real(*tensors: torch.Tensor) -> bool:
    return all(t.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64) for t in tensors)


def _as_autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Losses are computed in float32 where autocast is on, as torch's are."""
    device = tensors[0].device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):  # "meta" has none
        return tuple(t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors)
    return tensors


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """``torch.nn.CrossEntropyLoss`` on ``torch.ops.avo.cross_entropy``, for targets that are class indices.

    Targets of class probabilities, and calls that torch refuses, are left to torch. The loss of a target that is neither a
    class nor ``ignore_index`` is NaN, where torch stops.
    """

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        classes = min(input.dim() - 1, 1)
        fits = _is_real(input) and target.dtype in (torch.int64, torch.int32) and classes >= 0
        if not fits or target.shape != input.shape[:classes] + input.shape[classes + 1 :]:
            return super().forward(input, target)
        (input,) = _as_autocast(input)
        return call(
            "cross_entropy",
            input,
            target,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
        )


def _loss(
    twin: type[torch.nn.Module], operator: str, *settings: str, unless: tuple[str, ...] = ()
) -> type[torch.nn.Module]:
    """A subclass of ``twin`` on an operator of two tensors of one shape; ``settings``: the attributes that it takes besides.

    Tensors of other shapes, and objects whose attributes ``unless`` are not None, are left to torch.
    """

    class Loss(twin):  # type: ignore[misc, valid-type]
        def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            other = any(getattr(self, name) is not None for name in unless)
            if other or input.shape != target.shape or not _is_real(input, target):
                return super().forward(input, target)  # type: ignore[no-any-return]
            input, target = _as_autocast(input, target)
            return call(operator, input, target, *(getattr(self, name) for name in settings))

    Loss.__name__ = Loss.__qualname__ = twin.__name__
    Loss.__doc__ = (
        f"``torch.nn.{twin.__name__}`` on ``torch.ops.avo.{operator}``; formula and source: see the README. The reduction is "
        "in float32 (float64 for float64). Tensors of different shapes are left to torch."
    )
    return Loss


MSELoss = _loss(torch.nn.MSELoss, "mse_loss", "reduction")
HuberLoss = _loss(torch.nn.HuberLoss, "huber_loss", "reduction", "delta")
KLDivLoss = _loss(torch.nn.KLDivLoss, "kl_div", "reduction", "log_target")
BCEWithLogitsLoss = _loss(
    torch.nn.BCEWithLogitsLoss,
    "binary_cross_entropy_with_logits",
    "reduction",
    unless=("weight", "pos_weight"),
)

LOSSES = (CrossEntropyLoss, MSELoss, HuberLoss, KLDivLoss, BCEWithLogitsLoss)
TWINS: tuple[type[torch.nn.Module], ...] = (
    LayerNorm, RMSNorm, GroupNorm, ReLU, ReLU6, LeakyReLU, ELU, SELU, CELU, Hardtanh, Hardsigmoid, Hardswish, Mish, Sigmoid,
    Tanh, LogSigmoid, Softplus, GELU, SiLU, GLU, Softmax, Softmax2d, LogSoftmax, Dropout, *LOSSES,
)  # fmt: skip
OWN = (QuickGELU, SquaredReLU, ReGLU, GEGLU, SwiGLU, SwiGLUOAI)
