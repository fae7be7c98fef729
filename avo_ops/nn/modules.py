"""Twins of torch.nn's normalisations and activations whose forward runs avo_ops' operators.

Each is a subclass of its twin: same constructor, parameters, state_dict and repr, and ``isinstance`` holds.
"""

from __future__ import annotations

import warnings

import torch

from .functional import call, silu, written_to


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


class GELU(torch.nn.GELU):
    r"""``torch.nn.GELU`` on ``torch.ops.avo.gelu``: :math:`x \Phi(x)`, or its tanh form with
    ``approximate="tanh"``. Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return call("gelu", input, self.approximate)


class SiLU(torch.nn.SiLU):
    r"""``torch.nn.SiLU`` on ``torch.ops.avo.silu``: :math:`x \sigma(x)`.

    ``inplace=True`` keeps its meaning (the input is overwritten and returned), by a copy: it saves no memory
    and costs one more pass, since the operators themselves never write to their inputs.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return silu(input, self.inplace)


def _activation(twin: type[torch.nn.Module], operator: str, *settings: str) -> type[torch.nn.Module]:
    """A twin of one of torch's activations, which passes ``settings`` of the module to the operator.

    One that can be told to overwrite its input keeps that meaning by a copy.
    """

    class Activation(twin):  # type: ignore[misc, valid-type]
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            values = [getattr(self, name) for name in settings]
            if getattr(self, "inplace", False):
                return written_to(input, operator, *values)
            return call(operator, input, *values)

    Activation.__name__ = Activation.__qualname__ = twin.__name__
    Activation.__doc__ = (
        f"``torch.nn.{twin.__name__}`` on ``torch.ops.avo.{operator}``; formula and source: see the README."
    )
    return Activation


ReLU = _activation(torch.nn.ReLU, "relu")
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
GLU = _activation(torch.nn.GLU, "glu", "dim")


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
