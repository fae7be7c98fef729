"""Fused memory-bound operators for PyTorch, each stated once in plain torch math.

Importing registers ``torch.ops.avo.*``; it touches no GPU, compiles nothing and writes nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .jit import GeneratorCompiler
from .registry import explain, register_catalogue, reset_stats, stats, strict

if TYPE_CHECKING:
    from . import nn

__version__ = "0.1.0"

__all__ = ["__version__", "explain", "nn", "reset_stats", "stats", "strict"]

register_catalogue(GeneratorCompiler())


def __getattr__(name: str) -> Any:
    if name == "nn":
        return importlib.import_module(".nn", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
