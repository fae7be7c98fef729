"""Kernels compiled at run time, for a GPU that the package brought no cubins for, for the emulator, for the CPU.

Families and units of compiled functions are known here by name, all others are the catalogue's. The generator is imported when
first needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..registry.native import has_sanitizer
from ..registry.store import Frozen, cache_key, default_cache_folder, publish, read_all
from . import installation

if TYPE_CHECKING:
    from ..generator.product import Family

# By the name of a family, where it is found, and its entry of the plan.
_families: dict[str, tuple[Mapping[str, Family], Mapping[str, Any]]] = {}
_units: dict[str, str] = {}  # text of a unit of CUDA kernels that was asked for, by name
_cpu_units: dict[str, tuple[str, str]] = {}  # text and instruction set of a unit of CPU kernels, by name
_exported: set[str] = set()  # families of bundles that were loaded
_frozen: list[str] = []


def freeze(frozen: bool = True) -> None:
    """Turn any later tracing or compiling into an error; ``freeze(False)`` ends that. For serving, after the warm-up."""
    _frozen[:] = ["avo_ops.freeze() was called"] if frozen else []


def check_may_compile(what: str) -> None:
    """To be called before anything is traced or compiled.

    Raises:
        Frozen: with what it would have been, and what to do.
    """
    if _frozen:
        raise Frozen(f"{what} would have to be compiled, but {_frozen[0]}: warm it up before")
    if torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Frozen(f"{what} would have to be compiled while a CUDA graph is captured: warm it up before")


def add_families(families: Mapping[str, Family], records: Mapping[str, Any]) -> None:
    """Make the CUDA families of a compiled function known, with their entries of the plan."""
    _families.update(dict.fromkeys(families, (families, records)))


def _family_of(unit: str) -> str:
    """The family of a unit that is one, or one of its kernels; the names of families may have two underscores too."""
    return unit if unit in _families or unit in _exported else unit.rpartition("__")[0]


def _text_of(unit: str) -> str | None:
    """The text of a unit of a compiled function's CUDA kernels; None for any other."""
    from ..generator import build

    symbol = unit.removesuffix(build.STRIDED)
    name = _family_of(symbol)
    if name in _families and symbol not in _units:
        families, records = _families[name]
        text = families[name].text
        _units.update({u.name: u.text_with(text) for u in build.units_of(name, records[name])})
    found = _units.get(symbol)
    return found if found is None or symbol == unit else build.with_row_strides(found, symbol)


def has_family_of(kernel: str) -> bool:
    """Whether a CUDA kernel is one of a compiled function."""
    return _family_of(kernel) in _families


def add_exact_unit(general: str, n: int) -> str:
    """Make the unit known that has a compiled function's kernel for rows of ``n`` columns alone; its name.

    ``general``: the kernel that takes such rows now.
    """
    from ..generator import build

    name = _family_of(general)
    families, records = _families[name]
    rows = (row for own in records[name]["variants"].values() for row in own)
    row = next(row for row in rows if row["symbol"] == general)
    symbol, line = build.exact_kernel(name, row, n)
    _units[symbol] = f"{families[name].text}\n{line}\n"
    return symbol


def is_frozen() -> bool:
    """Whether nothing may be compiled until ``freeze(False)``."""
    return bool(_frozen)


def add_cpu_unit(name: str, text: str, isa: str) -> None:
    """Make a unit of CPU kernels known."""
    _cpu_units[name] = (text, isa)


def family_text(name: str) -> str:
    """The CUDA source of a family of a compiled function, with all its variants."""
    family = _families[name][0][name]
    return "\n".join([family.text, *family.instantiations(), ""])


def note_exported(families: Iterable[str]) -> None:
    """Note families whose kernels come from a bundle."""
    _exported.update(families)


def _check_known(unit: str) -> None:
    """To be called for a unit of which there is no text.

    Raises:
        LookupError: it is of a bundle, and was not exported.
    """
    if _family_of(unit) in _exported:
        raise LookupError(
            "the bundle was exported without it: without gradients, or for other archs or dtypes"
        )


def host_compiler() -> str:
    """The version of the C++ compiler, as the cache folder has it for this file: to ask takes longer than to load a kernel.

    Raises:
        CompilerError: there is none.
    """
    from ..generator import gcc

    known, folder = installation.host_compiler(gcc.command()), default_cache_folder()
    if known is None or folder is None:
        return gcc.version()
    key = cache_key([b"compiler", *known])
    for _, content in read_all(folder, key, ".version"):
        return content.decode()
    version = gcc.version()
    with contextlib.suppress(OSError):
        publish(folder, key, version.encode(), ".version")
    return version


class GeneratorCompiler:
    """Units of CUDA kernels, by the generator and NVRTC."""

    def inputs(self, unit: str, arch: str) -> Sequence[bytes]:
        from ..generator import build

        text = _text_of(unit)
        if text is not None:
            return build.source_inputs(text, arch)
        _check_known(unit)
        return build.unit_inputs(unit, arch)

    def compile(self, unit: str, arch: str) -> bytes:
        from ..generator import build

        check_may_compile(f"the kernel {unit} for {arch}")
        text = _text_of(unit)
        return build.compile_unit(unit, arch) if text is None else build.compile_source(unit, text, arch)


class EmulatorCompiler:
    """Libraries of kernels for the emulator, by g++; ``arch`` says nothing here."""

    def library_of(self, kernel: str) -> str:
        """The library that has a kernel: that of its family in a bundle, else one of its own or of several of the catalogue."""
        from ..generator import emulator

        family = _family_of(kernel)
        if family in _exported:
            return family
        return kernel if family in _families else emulator.library_of(kernel).name

    @staticmethod
    def together(kernels: Collection[str], run_often: bool) -> str:
        """Have kernels of the catalogue compiled as one library; its name. To be said before one of them is called."""
        from ..generator import emulator

        return emulator.together(kernels, run_often).name

    def inputs(self, library: str, arch: str) -> Sequence[bytes]:
        from ..generator import emulator

        text, run_often = self._source(library)
        return emulator.inputs(text, sanitized=has_sanitizer(), run_often=run_often)

    def compile(self, library: str, arch: str) -> bytes:
        from ..generator import emulator

        check_may_compile(f"the kernel {library} for the emulator")
        text, run_often = self._source(library)
        name = library if library in _families else library.rpartition("__")[0]
        return emulator.compile_unit(name, text, sanitized=has_sanitizer(), run_often=run_often)

    @staticmethod
    def _source(name: str) -> tuple[str, bool]:
        """The text of a library, and whether it is to be optimized."""
        from ..generator import emulator

        if name in _families:
            rows = _families[name][0][name].variants.values()
            return emulator.unit(
                family_text(name), {v["symbol"] for variants in rows for v in variants}
            ), True
        text = _text_of(name)
        if text is not None:
            return emulator.unit(text, [name]), True
        _check_known(name)
        library = emulator.library_of(name)
        return emulator.library_text(library), library.run_often


class CpuCompiler:
    """Units of CPU kernels as libraries, by g++; ``arch`` says nothing here."""

    def inputs(self, unit: str, arch: str) -> Sequence[bytes]:
        from ..generator import gcc

        return gcc.cpu_inputs(*_cpu_units[unit], host_compiler())

    def compile(self, unit: str, arch: str) -> bytes:
        from ..generator import gcc

        check_may_compile(f"the CPU kernels {unit}")
        return gcc.compile_cpu(*_cpu_units[unit])
