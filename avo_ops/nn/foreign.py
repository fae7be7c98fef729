"""Which class of torch or transformers is replaced by which, and what each replacement needs to know.

transformers' classes are known by qualified name, so that nothing of it is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .functional import call
from .modules import GELU, TWINS, LayerNorm, Mish, QuickGELU, RMSNorm, SiLU, Softmax2d, SquaredReLU, _parameter

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


def _norm(eps: str) -> Settings:
    def settings(module: torch.nn.Module) -> dict[str, Any] | str:
        weight = module._parameters.get("weight")
        if weight is None:
            return "has no weight parameter"
        if weight.dim() != 1:
            return f"its weight has {weight.dim()} dimensions, while it normalises over one"
        return {
            "normalized_shape": tuple(weight.shape),
            "eps": getattr(module, eps),
            "elementwise_affine": True,
        }

    return settings


def _norm_without_bias(module: torch.nn.Module) -> dict[str, Any] | str:
    if getattr(module, "bias", None) is not None:
        return "has a bias, which its class does not apply"
    found = _norm("variance_epsilon")(module)
    return found if isinstance(found, str) else {**found, "bias": None}


TORCH_RULES: dict[type[torch.nn.Module], Rule] = {
    ours.__bases__[0]: Rule(ours, _slower_softmax if ours is Softmax2d else _not_inplace) for ours in TWINS
}

_ACTIVATIONS = {
    "GELUActivation": Rule(GELU, _with(approximate="none")),
    "GELUTanh": Rule(GELU, _with(approximate="tanh")),
    "PytorchGELUTanh": Rule(GELU, _with(approximate="tanh")),  # GELUTanh's name in transformers 4
    "NewGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "FastGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "AccurateGELUActivation": Rule(GELU, _with(approximate="tanh")),
    "QuickGELUActivation": Rule(QuickGELU, _with()),
    "SiLUActivation": Rule(SiLU, _with(inplace=False)),
    "MishActivation": Rule(Mish, _with(inplace=False)),
    "ReLUSquaredActivation": Rule(SquaredReLU, _with()),
}

# weight * round(normalised): Llama and those that follow it.
_LLAMA = """
    arcee.ArceeRMSNorm bitnet.BitNetRMSNorm chameleon.ChameleonRMSNorm csm.CsmRMSNorm
    deepseek_v2.DeepseekV2RMSNorm deepseek_v3.DeepseekV3RMSNorm dots1.Dots1RMSNorm ernie4_5.Ernie4_5RMSNorm
    ernie4_5_moe.Ernie4_5_MoeRMSNorm exaone4.Exaone4RMSNorm falcon_h1.FalconH1RMSNorm
    falcon_mamba.FalconMambaRMSNorm glm.GlmRMSNorm glm4.Glm4RMSNorm glm4_moe.Glm4MoeRMSNorm
    granite.GraniteRMSNorm granitemoe.GraniteMoeRMSNorm hunyuan_v1_dense.HunYuanDenseV1RMSNorm
    idefics2.Idefics2RMSNorm idefics3.Idefics3RMSNorm jamba.JambaRMSNorm jetmoe.JetMoeRMSNorm
    lfm2.Lfm2RMSNorm llama.LlamaRMSNorm mamba.MambaRMSNorm mamba2.Mamba2RMSNorm minimax.MiniMaxRMSNorm
    mistral.MistralRMSNorm mixtral.MixtralRMSNorm mllama.MllamaTextRMSNorm olmoe.OlmoeRMSNorm
    phi3.Phi3RMSNorm pixtral.PixtralRMSNorm qwen2.Qwen2RMSNorm qwen2_5_vl.Qwen2_5_VLRMSNorm
    qwen2_moe.Qwen2MoeRMSNorm qwen2_vl.Qwen2VLRMSNorm qwen3.Qwen3RMSNorm qwen3_moe.Qwen3MoeRMSNorm
    qwen3_vl.Qwen3VLTextRMSNorm seed_oss.SeedOssRMSNorm smollm3.SmolLM3RMSNorm zamba.ZambaRMSNorm
    zamba2.Zamba2RMSNorm
"""
# round(weight * normalised), which is avo::rms_norm.
_PLAIN = """
    flex_olmo.FlexOlmoRMSNorm gpt_oss.GptOssRMSNorm olmo2.Olmo2RMSNorm olmo3.Olmo3RMSNorm
"""
_T5 = """
    longt5.LongT5LayerNorm mt5.MT5LayerNorm pix2struct.Pix2StructLayerNorm pop2piano.Pop2PianoLayerNorm
    switch_transformers.SwitchTransformersLayerNorm t5.T5LayerNorm udop.UdopLayerNorm umt5.UMT5LayerNorm
"""
_GEMMA = """
    gemma.GemmaRMSNorm gemma2.Gemma2RMSNorm gemma3.Gemma3RMSNorm qwen3_next.Qwen3NextRMSNorm
    recurrent_gemma.RecurrentGemmaRMSNorm
"""
_GEMMA4 = """
    gemma3n.Gemma3nRMSNorm gemma4.Gemma4RMSNorm
"""
_COHERE = """
    cohere.CohereLayerNorm cohere2.Cohere2LayerNorm
"""


def _models(names: str, rule: Rule) -> dict[str, Rule]:
    pairs = (name.split(".") for name in names.split())
    return {f"transformers.models.{model}.modeling_{model}.{cls}": rule for model, cls in pairs}


TRANSFORMERS_RULES: dict[str, Rule] = {
    **{f"transformers.activations.{cls}": rule for cls, rule in _ACTIVATIONS.items()},
    **_models(_LLAMA, Rule(PromotedRMSNorm, _norm("variance_epsilon"))),
    **_models(_PLAIN, Rule(RMSNorm, _norm("variance_epsilon"))),
    **_models(_T5, Rule(T5RMSNorm, _norm("variance_epsilon"))),
    **_models(_GEMMA, Rule(OffsetRMSNorm, _norm("eps"))),
    **_models(_GEMMA4, Rule(RMSNorm, _norm("eps"))),
    **_models(_COHERE, Rule(LayerNorm, _norm_without_bias)),
}
