"""Fused memory-bound operators for PyTorch, each stated once in plain torch math.

Importing registers ``torch.ops.avo.*``; it touches no GPU, compiles nothing and writes nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from .jit import (
    BundleError,
    CompileError,
    EmulatorCompiler,
    GeneratorCompiler,
    compile,
    explain,
    export,
    freeze,
    load,
)
from .registry import register_catalogue, reset_stats, stats, strict

if TYPE_CHECKING:
    from . import nn, optim, testing

__version__ = "0.1.0"

__all__ = [
    "BundleError",
    "CompileError",
    "__version__",
    "compile",
    "explain",
    "export",
    "freeze",
    "load",
    "nn",
    "optim",
    "reset_stats",
    "stats",
    "strict",
    "testing",
]

register_catalogue(GeneratorCompiler(), EmulatorCompiler())

if os.environ.get("AVO_OPS_EMULATE", "0") not in ("", "0"):  # for the whole process
    _emulation = importlib.import_module(".testing", __name__).emulate()
    _emulation.__enter__()  # and it lasts as long as this reference to it


def __getattr__(name: str) -> Any:
    if name in ("nn", "optim", "testing"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
