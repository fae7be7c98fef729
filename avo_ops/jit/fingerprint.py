"""What a function computes, as bytes that another process finds equal: its code, and every value that its trace can read.

Only of what is known to its end: code, numbers, strings, dtypes, tuples, lists and dicts of them, modules, pure functions of
Python, torch and this package, and functions made of these. Of a function that can read anything else (an attribute of an
object, a tensor that it closes over, a file, the clock) there are no such bytes, and it is traced anew in each process.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import os
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_PACKAGE = __name__.partition(".")[0]
_PURE_BUILTINS = {
    "abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "object", "pow", "range", "reversed", "round",
    "set", "slice", "sorted", "str", "sum", "tuple", "zip", "NotImplemented", "Ellipsis", "ArithmeticError", "AssertionError",
    "Exception", "IndexError", "KeyError", "NotImplementedError", "RuntimeError", "StopIteration", "TypeError", "ValueError",
    "ZeroDivisionError",
}  # fmt: skip
_PURE_MODULES = ("math", "_operator")
# Where torch's functions of tensors are. What it says of the machine or of its own state (cuda, backends, seeds) is elsewhere.
_TORCH_MODULES = {
    "torch", "torch.nn", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.functional",
}  # fmt: skip
_TORCH_FUNCTIONS = ("torch.nn.functional", "torch.functional", "torch._jit_internal")
_TORCH_OWNERS = ("torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft")
_TORCH_OBJECTS = (
    torch.Tensor, torch.Size, torch.dtype, torch.device, torch.finfo, torch.iinfo, torch.no_grad, torch.enable_grad,
    torch.get_default_dtype,
)  # fmt: skip
# What no name says: a module that is imported within, a global that is written, a class that is made; and ways around names.
_REFUSED = {
    dis.opmap[name] for name in
    ("IMPORT_NAME", "IMPORT_STAR", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_BUILD_CLASS", "LOAD_NAME", "STORE_NAME",
    "LOAD_FROM_DICT_OR_GLOBALS") if name in dis.opmap
}  # fmt: skip
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_REFUSED_NAMES = {
    "__globals__",
    "__builtins__",
    "__dict__",
    "__closure__",
    "__getattribute__",
    "__subclasses__",
}
_NUMBERS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Unknown(Exception):
    """A value that has no bytes."""


def fingerprint(fn: Callable[..., Any]) -> bytes | None:
    """The bytes of a function and all that it reads now; None if it can read what is not known.

    Places in files are a part: the texts of a graph name the author's lines.
    """
    walk = _Walk()
    try:
        walk.value(fn)
    except _Unknown:
        return None
    return walk.digest.digest()


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is given twice

    def note(self, *words: Any) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def value(self, value: Any) -> None:
        kind = type(value)
        if kind in _NUMBERS:
            self.note(kind.__name__, repr(value))
        elif kind in _TORCH_VALUES:
            self.note("torch", value)
        elif kind in (tuple, frozenset, torch.Size, slice):
            self.several(value)
        elif id(value) in self.seen:
            self.note("seen", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
            if isinstance(value, types.FunctionType):
                self.function(value)
            elif kind in (list, set, dict):
                self.several(value)
            elif kind is functools.partial:
                self.note("partial")
                self.several((value.func, value.args, value.keywords))
            else:
                self.note(_name_of(value))

    def several(self, value: Any) -> None:
        items = list(value) if not isinstance(value, slice) else [value.start, value.stop, value.step]
        if isinstance(value, dict):
            items = [x for pair in value.items() for x in pair]
        elif isinstance(value, set | frozenset):
            items.sort(key=lambda v: (type(v).__name__, repr(v)))
        self.note(type(value).__name__, len(items))
        for item in items:
            self.value(item)

    def function(self, fn: types.FunctionType) -> None:
        cells = [
            (n, c.cell_contents)
            for n, c in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
            if _is_filled(c)
        ]
        if _is_known(fn):
            # A decorator of torch's or of this package returns a function of its own, and the author's is in a cell.
            self.note("known", fn.__module__, fn.__qualname__)
            self.several(tuple(c for _, c in cells))
            return
        self.note("function", fn.__qualname__)
        self.code(fn.__code__)
        self.several((fn.__defaults__, fn.__kwdefaults__, vars(fn)))
        names = sorted({n for code in _codes(fn.__code__) for n in code.co_names})
        for name in _global_names(fn.__code__) - fn.__globals__.keys():
            if name not in _PURE_BUILTINS:
                raise _Unknown
        self.reached([*cells, *((n, fn.__globals__[n]) for n in names if n in fn.__globals__)], names)

    def reached(self, values: list[tuple[str, Any]], names: Sequence[str]) -> None:
        """Values by the names that may stand for them, and what these names mean in those that are modules."""
        modules: set[int] = set()
        while values:
            path, value = values.pop()
            self.note("name", path)
            if not isinstance(value, types.ModuleType):
                self.value(value)
                continue
            self.note(_module_name(value))
            if id(value) not in modules:
                modules.add(id(value))
                inner = vars(value)
                values += [(f"{path}.{name}", inner[name]) for name in names if name in inner]

    def code(self, code: types.CodeType) -> None:
        # Every second byte is an instruction, or a cache of one, which is 0 here.
        if not _REFUSED.isdisjoint(code.co_code[::2]) or not _REFUSED_NAMES.isdisjoint(code.co_names):
            raise _Unknown
        # The cells of a notebook are in files that do not exist, of another name in each session.
        file = code.co_filename if os.path.isfile(code.co_filename) else ""
        self.note(
            file, code.co_linetable, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable,
        )  # fmt: skip
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant)
            else:
                self.value(constant)


def _global_names(code: types.CodeType) -> set[str]:
    """The names that are read as globals. Not by ``dis.get_instructions``, which takes longer than the rest of a fingerprint."""
    names = set()
    for c in _codes(code):
        extended = 0
        for op, low in zip(c.co_code[::2], c.co_code[1::2], strict=True):
            argument = extended | low
            extended = argument << 8 if op == dis.EXTENDED_ARG else 0
            if op == _LOAD_GLOBAL:
                names.add(c.co_names[argument >> 1])  # the last bit says that a NULL is pushed too
    return names


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_known(fn: types.FunctionType) -> bool:
    """Whether a function of Python is one of torch's of tensors, or this package's: known by name, for the versions are."""
    package = fn.__globals__.get("__name__", "").partition(".")[0]
    if package == _PACKAGE:
        return True
    return (
        package == "torch"
        and fn.__module__ in _TORCH_FUNCTIONS
        and fn.__globals__["__name__"] in _TORCH_FUNCTIONS
    )


def _module_name(module: types.ModuleType) -> str:
    """The name of a module whose attributes may be looked at.

    Raises:
        _Unknown: it is one of torch whose functions depend on more than their arguments; or it makes attributes when they are
            asked for.
    """
    name = module.__name__
    of_torch = name.partition(".")[0] == "torch"
    makes_attributes = type(module) is not types.ModuleType or (
        not of_torch and "__getattr__" in vars(module)
    )
    if makes_attributes or (of_torch and name not in _TORCH_MODULES):
        raise _Unknown
    return name


def _name_of(value: Any) -> str:
    """The name of a function or class of C or of a library, which stands for it.

    Raises:
        _Unknown: it is not known to depend on its arguments alone, or is no such thing.
    """
    if isinstance(value, types.BuiltinFunctionType):
        owner, name = value.__self__, value.__name__
        if getattr(torch._C._VariableFunctions, name, None) is value:
            return f"torch.{name}"
        if isinstance(owner, types.ModuleType) and (
            owner.__name__ in (*_PURE_MODULES, *_TORCH_OWNERS)
            or (owner is builtins and name in _PURE_BUILTINS)
        ):
            return f"{owner.__name__}.{name}"
    if any(value is known for known in _TORCH_OBJECTS):
        return f"torch.{value.__name__}"
    if isinstance(value, type) and value.__module__ == "builtins" and value.__name__ in _PURE_BUILTINS:
        return f"builtins.{value.__name__}"
    raise _Unknown
