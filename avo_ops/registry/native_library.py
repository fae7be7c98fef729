"""The runtime library, loaded and connected if it is there; without it every op runs by its definition."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from . import accelerator
from .native import KernelResolver, Native, NativeError, load

_FOLDER = Path(__file__).resolve().parents[1] / "lib"
_RUNTIME, _CPU_KERNELS = "libavo_runtime.so", "libavo_cpu.so"


@lru_cache(maxsize=1)
def runtime() -> Native | None:
    """The loaded runtime; None, after one warning, if it is not there or does not load."""
    path = _FOLDER / _RUNTIME
    try:
        native = load(path)
    except (OSError, AttributeError) as error:
        reason = error if path.is_file() else f"{path} is not there"
        _warn(f"avo_ops: every operator runs by its definition, without kernels: {reason}")
        return None
    native.set_warning_callback(_warn)
    return native


def connect(plan: Mapping[str, Any], resolver: KernelResolver, library: torch.library.Library) -> None:
    """Register the kernels of every operator of a plan whose schemas are defined in ``library``.

    The runtime gets the tables of an operator when one of its ops is first called or described. That may be in several
    threads at once, and no lock is taken: a forked child might find it locked for ever.
    """
    native = runtime()
    if native is None:
        return
    native.set_kernel_resolver(resolver)
    try:
        native.load_cpu_kernels(_FOLDER / _CPU_KERNELS)
    except NativeError as error:
        _warn(f"avo_ops: operators on the CPU run by their definitions: {error}")
    operators = {f"{library.ns}::{op['name']}": o for o in plan["operators"] for op in o["ops"]}

    def give_tables(op: str) -> None:
        operator = operators.get(op)
        if operator is None:
            return
        try:
            native.add_tables(operator, plan["families"], library.ns)
        except NativeError as error:
            _warn(f"avo_ops: {operator['name']} runs by its definition: {error}")
            without_cases = [{**op, "cases": []} for op in operator["ops"]]
            native.add_tables({**operator, "ops": without_cases}, {}, library.ns)

    native.set_table_source(give_tables)
    try:
        native.register_lists(plan["lists"], library.ns)
    except NativeError as error:
        _warn(f"avo_ops: operators over lists run by their definitions: {error}")
    if accelerator.connect(native):
        accelerator.register_kernels(library, operators)
    else:
        for name in operators:
            native.declare(name)


def add_operator(
    operator: Mapping[str, Any],
    families: Mapping[str, Any],
    library: torch.library.Library,
    text: str | None = None,
) -> None:
    """Register the kernels of one operator whose schemas are defined in ``library``. ``text``: its tables, if they are at hand."""
    native = runtime()
    if native is None:
        return
    try:
        if not accelerator.is_there():
            native.register(operator, families, library.ns, text)
            return
        native.add_tables(operator, families, library.ns, text)
    except NativeError as error:
        _warn(f"avo_ops: {operator['name']} runs by its definition: {error}")
        return
    accelerator.register_kernels(library, [f"{library.ns}::{op['name']}" for op in operator["ops"]])


def counters() -> dict[str, int]:
    """The runtime's counters, by path."""
    native = runtime()
    return {} if native is None else native.stats()


def reset_counters() -> None:
    """Set the runtime's counters to zero."""
    native = runtime()
    if native is not None:
        native.reset_stats()


def set_strict(mode: int) -> None:
    """0: off; 1: a call whose definition would run raises; 2: one that would copy or cast an operand does too."""
    native = runtime()
    if native is not None:
        native.set_strict(mode)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)
