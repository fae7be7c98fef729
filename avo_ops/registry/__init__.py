"""Registration of the catalogue with torch, and the kernel store."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .. import plan_file
from ..definitions import CATALOGUE, COMPOSITES, LISTS
from . import native_library
from .accelerator import direct_call
from .counters import note_definition, note_empty, reset_stats, stats, strict, strict_from_environment
from .dynamic import register_dynamic
from .explain import Explanation, explain, remember, remember_composite, remember_list, size_text
from .lists import register_list
from .plan import generated_folder, operator_from_json
from .register import register_composite, register_operator
from .store import Compiler, KernelStore, LibraryCompiler, default_cache_folder

NAMESPACE = "avo"

__all__ = [
    "Explanation",
    "add_kernels",
    "direct_call",
    "explain",
    "note_definition",
    "note_empty",
    "register_catalogue",
    "register_dynamic",
    "register_operator",
    "reset_stats",
    "resolve_kernel",
    "size_text",
    "stats",
    "strict",
]

_libraries: list[torch.library.Library] = []  # a Library unregisters its ops when it is collected
_stores: list[KernelStore] = []
_emulator: list[LibraryCompiler] = []
_emulated: dict[str, str] = {}  # paths of libraries for the emulator


def register_catalogue(compiler: Compiler, emulator_compiler: LibraryCompiler) -> None:
    """Register every operator of the catalogue; done once, by importing ``avo_ops``.

    ``compiler`` makes a unit of CUDA kernels that is neither packaged nor cached, ``emulator_compiler`` one that the
    emulator is to run.
    """
    if _libraries:
        return
    folder = generated_folder()
    if folder is None:
        return
    with _without_collections():
        _register(folder, compiler, emulator_compiler)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Holds Python's garbage collector off: all that registration makes lives as long as the process.

    It makes some 25000 objects, which would have all those of torch looked through: 40 of 110 ms.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _register(folder: Path, compiler: Compiler, emulator_compiler: LibraryCompiler) -> None:
    plan = plan_file.load(folder)
    records = {record.name: record for record in CATALOGUE}
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    for entry in plan["operators"]:
        operator = operator_from_json(entry)
        register_operator(library, operator, records[entry["name"]])
        remember(NAMESPACE, operator)
    of_lists = {record.name: record for record in LISTS}
    for entry in plan["lists"]:
        register_list(library, entry, of_lists[entry["name"]])
        remember_list(NAMESPACE, entry)
    for composite in COMPOSITES:
        register_composite(library, composite)
        remember_composite(NAMESPACE, composite)
    store = KernelStore(folder / "kernels", default_cache_folder(), compiler)
    emulator_store = KernelStore(None, default_cache_folder(), emulator_compiler, suffix=".so")
    _stores[:], _emulator[:] = [store, emulator_store], [emulator_compiler]

    native_library.connect(plan, resolve_kernel, library)
    strict_from_environment()


def resolve_kernel(unit: str, arch: int) -> str | None:
    """The path of a unit of CUDA kernels for an architecture (0: the emulator), compiled now if it has to be.

    Raises:
        Frozen: it has to be, and may not.
    """
    store, emulator_store = _stores
    if arch:
        return store.resolve(unit, arch)
    name = _emulator[0].library_of(unit)
    found = _emulated.get(name) or emulator_store.resolve(name, 0)
    if found is not None:  # one library has many kernels, and to look at it takes longer than to run one
        _emulated[name] = found
    return found


def add_kernels(folder: Path) -> None:
    """Look for kernels in this folder too: ``sm_XX/<unit>.cubin``, and ``sm_0/<family>.so`` for the emulator."""
    for store in _stores:
        store.add_packaged(folder)
