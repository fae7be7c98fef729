"""Kernels compiled at run time: the catalogue's, for a GPU that the package brought no cubins for, or for the emulator."""

from __future__ import annotations

from collections.abc import Sequence

from .registry.native import has_sanitizer


class GeneratorCompiler:
    """The catalogue's units, by the generator and NVRTC. Both are imported when first needed."""

    def inputs(self, unit: str, arch: str) -> Sequence[bytes]:
        from .generator import build

        return build.unit_inputs(unit, arch)

    def compile(self, unit: str, arch: str) -> bytes:
        from .generator import build

        return build.compile_unit(unit, arch)


class EmulatorCompiler:
    """The catalogue's families as libraries for the emulator, by g++; ``arch`` says nothing here."""

    def inputs(self, family: str, arch: str) -> Sequence[bytes]:
        from .generator import emulator

        return emulator.inputs(emulator.family_unit(family), sanitized=has_sanitizer())

    def compile(self, family: str, arch: str) -> bytes:
        from .generator import emulator

        return emulator.compile_unit(family, emulator.family_unit(family), sanitized=has_sanitizer())
