"""The accelerator (csrc/torch): the same registrations in C++ against libtorch itself, where it was built for this torch.

It serves the same calls by the same kernels, only with less work between Python and them: what is said in
``autograd`` and ``native_library`` holds with it and without it. ``AVO_OPS_ACCELERATOR=0`` switches it off.
"""

from __future__ import annotations

import os
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import torch

from .autograd import node_name, statistics_again
from .native import Native
from .plan import Operator

_FOLDER = Path(__file__).resolve().parents[1] / "lib"

_operations: dict[str, Any] = {}  # by qualified name
_rules: dict[str, Any] = {}


def file_name(torch_version: str = torch.__version__) -> str:
    """The file for a torch and this Python: their C++ interfaces change from release to release."""
    return f"avo_torch-{torch_version}-{sysconfig.get_config_var('SOABI')}.so"


def path() -> Path:
    """Where the accelerator for the running torch and Python is, if it was built."""
    return _FOLDER / file_name()


@lru_cache(maxsize=1)
def _module() -> Any:
    """The loaded accelerator; None if there is none for this torch and Python, or if it is switched off."""
    if os.environ.get("AVO_OPS_ACCELERATOR") == "0" or not path().is_file():
        return None
    loader = ExtensionFileLoader("avo_torch", str(path()))
    spec = spec_from_loader("avo_torch", loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
        # Another compiler's pybind11 does not know the types of torch's.
        module.check(torch._C._dispatch_library("FRAGMENT", "avo", ""))
    except (ImportError, TypeError) as error:
        warnings.warn(f"avo_ops: calls cost more: {error}", RuntimeWarning, stacklevel=2)
        return None
    return module


def is_there() -> bool:
    """Whether there is an accelerator for this torch and Python."""
    return _module() is not None


def connect(native: Native) -> bool:
    """Give the accelerator the runtime; whether there is one."""
    module = _module()
    if module is None:
        return False
    module.connect(*map(native.address, ("avo_called_op", "avo_call", "avo_set_allocator")))
    return True


def register_autograd(
    library: torch.library.Library, operator: Operator, kernels: Mapping[str, Callable[..., Any]]
) -> bool:
    """Register the Autograd kernels of an operator's ops in C++; whether there is an accelerator to do it.

    ``kernels``: by name of the op the Python kernel, to which unusual calls are left. The ops must be defined.
    """
    module = _module()
    if module is None:
        return False
    operations = {op.name: module.Operation(f"{library.ns}::{op.name}") for op in operator.ops}
    for op in operator.ops:
        rule = module.Rule(operations[op.name], kernels[op.name], op.broadcast)
        if operator.constant:
            rule.constant()
        if op is operator.public and operator.backward is not None and not operator.detaches:
            extra, recompute = statistics_again(operator)
            rule.differentiate(
                node_name(operator),
                operations[operator.forward.name],
                operations[operator.backward.name],
                [(kind == "return", i) for kind, i in operator.saved] + [(False, i) for i in extra],
                len(operator.saved),
                [-1 if place is None else place for place in operator.gradients],
                recompute,
            )
        module.register_autograd(library.m, rule)
        _rules[f"{library.ns}::{op.name}"] = rule
    _operations.update({f"{library.ns}::{name}": operation for name, operation in operations.items()})
    return True


def register_kernels(library: torch.library.Library, names: Iterable[str]) -> None:
    """Register the CPU and CUDA kernels of ops whose tables the runtime can get."""
    for name in names:
        _module().register_kernels(library.m, _operations[name])


def direct_call(name: str, usual: Callable[..., Any]) -> Callable[..., Any] | None:
    """A function that calls ``torch.ops.<name>`` ("avo::gelu") by positional arguments without torch's dispatcher.

    It leaves to ``usual``, with the same arguments, what is not plain: a mode, a function transform, forward AD,
    autocast, a profiler, a tensor subclass, a tensor without kernels. None if there is no accelerator.
    """
    module, rule = _module(), _rules.get(name)
    return None if module is None or rule is None else module.callable(rule, usual)
