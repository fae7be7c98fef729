"""The operators of compiled functions and their kernels for the CPU: made, registered, loaded once in a process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..registry import native_library, register_dynamic
from ..registry.store import KernelStore, cache_key, default_cache_folder, lookup, publish, read_all
from . import hot_widths, installation
from .compilers import CpuCompiler, add_cpu_unit, add_families, host_compiler

if TYPE_CHECKING:
    from ..generator.capture import Captured
    from ..generator.partition import Step
    from ..generator.pipeline import GeneratedOperator
    from ..generator.product import CpuKernel, Family


@dataclass(frozen=True)
class KnownOperator:
    """What there is of a registered operator: its entry of a plan and those of its CUDA families, and these.

    ``sources``: a digest of the texts of its kernels for the CPU. ``cpu`` makes those kernels, ``definition`` the definition:
    where another process has made the operator, few need either. ``double``: whether its math is in float64.
    """

    operator: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]
    families: Mapping[str, Family]
    sources: str
    cpu: Callable[[], tuple[CpuKernel, ...]]
    definition: Callable[[], Callable[..., Any]]
    double: bool

    def define(self, *args: Any, **kwargs: Any) -> Any:
        """Call the definition."""
        return self.definition()(*args, **kwargs)


_known: dict[str, KnownOperator] = {}  # by name
_loaded: set[str] = set()  # operators whose CPU kernels are loaded
_kernels_mutex = threading.Lock()


def tracing_lock() -> Any:
    """Held while anything is traced: make_fx and what torch notes on nodes have state that is the process's.

    It is that of ``torch.compile``, which traces in the same way.
    """
    from torch._dynamo.convert_frame import compile_lock

    return compile_lock


def registered(captured: Captured, names: Sequence[str], title: str, gradients: bool = True) -> list[Step]:
    """The steps of a graph, all of whose operators are registered: what has no kernel after all is left to torch."""
    from ..generator.partition import partition

    apart: dict[Any, str] = {}
    with tracing_lock(), torch._C._DisableAutocast():  # the graph has the casts
        while True:
            steps = partition(captured, names, title, apart)
            failed = _register(steps, gradients)
            if not failed:
                return steps
            apart |= failed


def _register(steps: Sequence[Step], gradients: bool = True) -> dict[Any, str]:
    """Generate and register the operators of regions; the nodes for which that failed, and why."""
    from ..generator.partition import RegionStep
    from ..generator.pipeline import generate_operator
    from ..generator.trace import TraceError

    failed: dict[Any, str] = {}
    for step in steps:
        if not isinstance(step, RegionStep) or step.record.name in _known:
            continue
        problem: Exception | None = None
        for differentiate in (True, False) if gradients else (False,):
            try:
                made = generate_operator(step.record, differentiate)
                break
            except TraceError as error:
                problem = error
        else:
            failed |= dict.fromkeys(step.nodes, str(problem).splitlines()[-1].strip())
            continue
        register(step.record, _known_of(made, step.double))
    return failed


def _known_of(made: GeneratedOperator, double: bool) -> KnownOperator:
    definition = made.plan.record.definition
    return KnownOperator(
        made.operator, made.families_on_demand(), made.families, cache_key([k.text.encode() for k in made.cpu]),
        lambda: made.cpu, lambda: definition, double,
    )  # fmt: skip


def register(record: Any, known: KnownOperator, tables: str | None = None) -> None:
    """Register the operator of an OpDef, unless one of its name is: names hold a digest of what an operator computes.

    ``tables``: those of the runtime, if they are at hand.
    """
    if record.name not in _known:
        hot_widths.start()
        add_families(known.families, known.records)
        register_dynamic(record, known.operator, known.records, tables)
        _known[record.name] = known


def known_operator(name: str) -> KnownOperator:
    """What there is of an operator that was registered here."""
    return _known[name]


@lru_cache(maxsize=1)
def _host_compiler() -> bool:
    """Whether there is a C++ compiler; the one warning if not."""
    from ..generator import gcc

    try:
        host_compiler()
    except gcc.CompilerError as error:
        warnings.warn(
            f"avo_ops: compiled functions on the CPU run by plain torch operations: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


@lru_cache(maxsize=1)
def _cpu_store() -> KernelStore:
    return KernelStore(None, default_cache_folder(), CpuCompiler(), suffix=".so")


def cpu_unit(names: Sequence[str]) -> str:
    """The source of the CPU kernels of some operators."""
    from ..generator.product import index_unit, translation_unit

    parts = []
    for name in names:
        types = ("double",) if _known[name].double else ("float",)
        parts.append(translation_unit(name, _known[name].cpu(), types))
    return "\n".join([*parts, index_unit(names)])


def _unit_of(names: Sequence[str], isa: str) -> str:
    """The name of the unit of the CPU kernels of some operators for an instruction set, which the compiler now knows."""
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
    unit = f"{names[0]}_{digest}_{isa}" if len(names) > 1 else f"{names[0]}_{isa}"
    add_cpu_unit(unit, cpu_unit(names), isa)
    return unit


def load_cpu_kernels(names: Sequence[str]) -> None:
    """Compile, or find in the cache, the CPU kernels of some operators in one library, and load it.

    Without a compiler nothing is loaded, after one warning: the definitions run.
    """
    native = native_library.runtime()
    with _kernels_mutex:
        todo = sorted({n for n in names if n not in _loaded and n in _known})
        if native is None or not todo:
            return
        isa = native.cpu_isa()
        path = _remembered_library(todo, isa)
        if path is None:
            if not _host_compiler():
                return
            path = _library(todo, isa)
        if path is not None:
            native.load_cpu_kernels(path)
        _loaded.update(todo)


# The key of a library is of all that it is made from, which takes several times longer to read than the library. So there are
# entries besides whose key is of the state of the files that are read, and whose content is that other key.
_KEYS = ".key"


def _short_key(names: Sequence[str], isa: str) -> str | None:
    compiler = installation.host_compiler()
    if compiler is None:
        return None
    kernels = [[name, _known[name].double, _known[name].sources] for name in names]
    texts = [isa.encode(), json.dumps(kernels).encode()]
    return cache_key([*texts, *compiler, *installation.cpu_headers(), *installation.versions()])


def _remembered_library(names: Sequence[str], isa: str) -> Path | None:
    """The library of some operators, if it is in the cache and was found there before."""
    folder = default_cache_folder()
    short = None if folder is None else _short_key(names, isa)
    if folder is None or short is None:
        return None
    keys = (content.decode() for _, content in read_all(folder, short, _KEYS))
    found = (lookup(folder, key, ".so") for key in keys)
    return next((path for path in found if path is not None), None)


def _library(names: Sequence[str], isa: str) -> Path | None:
    """The library of some operators from the cache, or made now."""
    found = _cpu_store().resolve(_unit_of(names, isa), 0)
    if found is None:
        return None
    path, folder, short = Path(found), default_cache_folder(), _short_key(names, isa)
    if folder is not None and folder in path.parents and short is not None:
        with contextlib.suppress(OSError):
            publish(folder, short, path.name.partition("-")[0].encode(), _KEYS)
    return path


def mark_loaded(names: Sequence[str]) -> None:
    """Note that the CPU kernels of some operators are loaded."""
    with _kernels_mutex:
        _loaded.update(names)


def compile_cpu_library(names: Sequence[str], isa: str) -> bytes:
    """The library of the CPU kernels of some operators for an instruction set, from the cache if it is there.

    Raises:
        CompilerError: there is no compiler, or it fails.
    """
    unit = _unit_of(names, isa)
    path = _cpu_store().resolve(unit, 0)
    return CpuCompiler().compile(unit, "") if path is None else Path(path).read_bytes()
