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
    """Register the kernels of every operator of a plan whose schemas are defined in ``library``."""
    native = runtime()
    if native is None:
        return
    native.set_kernel_resolver(resolver)
    try:
        native.load_cpu_kernels(_FOLDER / _CPU_KERNELS)
    except NativeError as error:
        _warn(f"avo_ops: operators on the CPU run by their definitions: {error}")
    accelerator.connect(native)
    for operator in plan["operators"]:
        add_operator(operator, plan["families"], library)


def add_operator(
    operator: Mapping[str, Any], families: Mapping[str, Any], library: torch.library.Library
) -> None:
    """Register the kernels of one operator whose schemas are defined in ``library``."""
    native = runtime()
    if native is None:
        return
    boxed = not accelerator.is_there()
    try:
        native.register(operator, families, library.ns, kernels=boxed)
    except NativeError as error:
        _warn(f"avo_ops: {operator['name']} runs by its definition: {error}")
        return
    if not boxed:
        accelerator.register_kernels(library, [op["name"] for op in operator["ops"]])


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
