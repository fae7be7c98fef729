"""``avo_ops.compile``: the generator at run time, for a user's own function, and the compilers behind the kernel store."""

from __future__ import annotations

from .compilers import EmulatorCompiler, Frozen, GeneratorCompiler, freeze
from .function import CompiledFunction, CompileError, Variant, compile

__all__ = [
    "CompileError",
    "CompiledFunction",
    "EmulatorCompiler",
    "Frozen",
    "GeneratorCompiler",
    "Variant",
    "compile",
    "freeze",
]
