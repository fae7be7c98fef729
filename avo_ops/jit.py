"""Kernels compiled at run time: the catalogue's, for a GPU that the package brought no cubins for."""

from __future__ import annotations

from collections.abc import Sequence


class GeneratorCompiler:
    """The catalogue's families, by the generator and NVRTC. Both are imported when first needed."""

    def inputs(self, family: str, arch: str) -> Sequence[bytes]:
        from .generator import build

        return build.family_inputs(family, arch)

    def compile(self, family: str, arch: str) -> bytes:
        from .generator import build

        return build.compile_family(family, arch)
