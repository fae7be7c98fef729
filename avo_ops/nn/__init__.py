"""Modules that run avo_ops' operators, and the replacement of a model's modules by them."""

from .modules import GELU, LayerNorm, RMSNorm, SiLU, Softmax
from .replace import Left, Replaced, Report, replace, restore

__all__ = [
    "GELU",
    "LayerNorm",
    "Left",
    "RMSNorm",
    "Replaced",
    "Report",
    "SiLU",
    "Softmax",
    "replace",
    "restore",
]
