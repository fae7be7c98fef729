"""Which class of torch or transformers is replaced by which, and what each replacement needs to know.

Nothing of transformers is imported here: its activations are known by qualified name, norms by their formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .formula import formula_of
from .functional import call
from .modules import (
    GELU,
    TWINS,
    LayerNorm,
    Mish,
    QuickGELU,
    RMSNorm,
    SiLU,
    Softmax2d,
    SquaredReLU,
    _parameter,
)

HALF_TYPES = (torch.float16, torch.bfloat16)


class PromotedRMSNorm(RMSNorm):
    """Llama's RMSNorm, whose result has the dtype that the input and the weight promote to.

    Llama rounds the normalised row to the input's dtype before it multiplies by the weight; here there is one
    rounding, at the end.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = _parameter(self, "weight")
        assert weight is not None  # the table only swaps modules that have one
        if x.dtype != weight.dtype:
            x = x.to(torch.promote_types(x.dtype, weight.dtype))
        return call("rms_norm", x, self.normalized_shape, weight, self.eps)


class T5RMSNorm(PromotedRMSNorm):
    """T5's layer norm (an RMS norm), whose result has the weight's dtype where that is a half type."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        weight = _parameter(self, "weight")
        assert weight is not None
        return y.to(weight.dtype) if weight.dtype in HALF_TYPES else y


class OffsetRMSNorm(RMSNorm):
    """Gemma's RMSNorm, which multiplies by 1 + weight; the result has the input's dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = _parameter(self, "weight")
        assert weight is not None
        return call("rms_norm", x, self.normalized_shape, weight, self.eps, "one_plus_weight")


class BareRMSNorm(torch.nn.Module):
    """An RMSNorm of the last dim, without a weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return call("rms_norm", x, (x.shape[-1],), None, self.eps)


# Attributes that the new class needs and the old object lacks, or the reason to leave the object alone.
Settings = Callable[[torch.nn.Module], "dict[str, Any] | str"]


@dataclass(frozen=True)
class Rule:
    """What a class is replaced by, and how an object of it is fitted."""

    new: type[torch.nn.Module]
    settings: Settings


def _not_inplace(module: torch.nn.Module) -> dict[str, Any] | str:
    if getattr(module, "inplace", False):
        return "works in place; the avo_ops twin would need one more copy"
    return {}


def _slower_softmax(module: torch.nn.Module) -> dict[str, Any] | str:
    # (8, 512, 512) float32 on one CPU thread: 28 ms, torch's 3.5; of the last dim 2.9 and 2.3.
    return "torch's own is faster over a dim that is not the last"


def _with(**settings: Any) -> Settings:
    return lambda module: settings


def _eps(module: torch.nn.Module) -> dict[str, Any] | str:
    names = [name for name in ("variance_epsilon", "epsilon", "eps") if hasattr(module, name)]
    values = {getattr(module, name) for name in names}
    if len(values) != 1 or not isinstance(*values, float):
        return f"its epsilon is not one number: {', '.join(names)}"
    return {"eps": values.pop()}


def _norm(module: torch.nn.Module) -> dict[str, Any] | str:
    weight = module._parameters.get("weight")
    if weight is None:
        return "has no weight parameter"
    if weight.dim() != 1:
        return f"its weight has {weight.dim()} dimensions, while it normalises over one"
    eps = _eps(module)
    return (
        eps
        if isinstance(eps, str)
        else {**eps, "normalized_shape": tuple(weight.shape), "elementwise_affine": True}
    )


def _norm_without_bias(module: torch.nn.Module) -> dict[str, Any] | str:
    if getattr(module, "bias", None) is not None:
        return "has a bias, which its class does not apply"
    found = _norm(module)
    return found if isinstance(found, str) else {**found, "bias": None}


TORCH_RULES: dict[type[torch.nn.Module], Rule] = {
    ours.__bases__[0]: Rule(ours, _slower_softmax if ours is Softmax2d else _not_inplace) for ours in TWINS
}

ACTIVATION_RULES: dict[str, Rule] = {
    "transformers.activations.GELUActivation": Rule(GELU, _with(approximate="none")),
    "transformers.activations.GELUTanh": Rule(GELU, _with(approximate="tanh")),
    "transformers.activations.PytorchGELUTanh": Rule(
        GELU, _with(approximate="tanh")
    ),  # GELUTanh's name in transformers 4
    "transformers.activations.NewGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "transformers.activations.FastGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "transformers.activations.AccurateGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "transformers.activations.QuickGELUActivation": Rule(QuickGELU, _with()),
    "transformers.activations.SiLUActivation": Rule(SiLU, _with(inplace=False)),
    "transformers.activations.MishActivation": Rule(Mish, _with(inplace=False)),
    "transformers.activations.ReLUSquaredActivation": Rule(SquaredReLU, _with()),
}

# Norms are known by the formula of their forward (``formula``), whatever their class is called: there are hundreds.
_ROOT = "torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.EPS)"
FORMULAS: dict[str, Rule] = {
    # Llama and those that follow it: the normalised row is rounded before it is multiplied.
    f"self.weight * (f * {_ROOT}).to(x.dtype)": Rule(PromotedRMSNorm, _norm),
    f"(f * {_ROOT}).to(x.dtype) * self.weight": Rule(PromotedRMSNorm, _norm),
    # OLMo 2, gpt-oss; Helium; Moshi: rounded once.
    f"(self.weight * (f * {_ROOT})).to(x.dtype)": Rule(RMSNorm, _norm),
    f"(self.weight.to(torch.float32) * (f * {_ROOT})).to(x.dtype)": Rule(RMSNorm, _norm),
    f"(f * {_ROOT} * self.weight.to(torch.float32)).to(x.dtype)": Rule(RMSNorm, _norm),
    # Gemma; Gemma 3n and 4.
    f"(f * {_ROOT} * (1.0 + self.weight.to(torch.float32))).to(x.dtype)": Rule(OffsetRMSNorm, _norm),
    f"(f * {_ROOT} * self.weight.to(torch.float32) if self.with_scale else f * {_ROOT}).to(x.dtype)": Rule(
        RMSNorm, _norm
    ),
    f"(f * {_ROOT}).to(x.dtype)": Rule(BareRMSNorm, _eps),
    # T5
    f"self.weight * ((x * {_ROOT}).to(self.weight.dtype) if self.weight.dtype in [torch.float16, torch.bfloat16] "
    f"else x * {_ROOT})": Rule(T5RMSNorm, _norm),
    # Cohere
    "(self.weight.to(torch.float32) * ((f - f.mean(-1, keepdim=True)) * torch.rsqrt((f - f.mean(-1, keepdim=True))"
    ".pow(2).mean(-1, keepdim=True) + self.EPS))).to(x.dtype)": Rule(LayerNorm, _norm_without_bias),
}
# Spellings of the same, in the order in which they are exchanged.
_SPELLINGS = (
    (r"\bself\.(?:variance_epsilon|epsilon|eps)\b", "self.EPS"),
    (r"\.float\(\)", ".to(torch.float32)"),
    (r"\.type_as\(x\)", ".to(x.dtype)"),
    (r"\.square\(\)", ".pow(2)"),
    (r"\bx\.to\(torch\.float32\)", "f"),
    (r"torch\.pow\((f\.pow\(2\)\.mean\(-1, keepdim=True\) \+ self\.EPS), -0\.5\)", r"torch.rsqrt(\1)"),
)


def spelled(formula: str | None) -> str:
    """A formula as it is spelled here."""
    for pattern, same in _SPELLINGS if formula is not None else ():
        formula = re.sub(pattern, same, formula)
    return formula or ""


def rule_of_formula(cls: type[torch.nn.Module]) -> Rule | None:
    """The rule for a class whose forward is one of the known formulas."""
    return FORMULAS.get(spelled(formula_of(cls)))
