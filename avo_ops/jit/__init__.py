"""``avo_ops.compile``: the generator at run time, for a user's own function, and the compilers behind the kernel store."""

from __future__ import annotations

from .bundle import BundleError, export, load
from .compilers import EmulatorCompiler, Frozen, GeneratorCompiler, freeze
from .explain import FunctionExplanation, explain
from .function import CompiledFunction, CompileError, compile
from .graph import Variant

__all__ = [
    "BundleError",
    "CompileError",
    "CompiledFunction",
    "EmulatorCompiler",
    "Frozen",
    "FunctionExplanation",
    "GeneratorCompiler",
    "Variant",
    "compile",
    "explain",
    "export",
    "freeze",
    "load",
]
