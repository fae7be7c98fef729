"""Functions as one node of what torch.compile makes, without importing torch._dynamo for it, which takes a second or two."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
_mutex = threading.Lock()
_waiting: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


def allow_in_graph(function: Callable[..., Any]) -> None:
    """As ``torch.compiler.allow_in_graph``; where nobody has imported dynamo, as soon as somebody does."""
    with _mutex:
        there = _NAME in sys.modules
        if not there:
            _waiting.add(function)
            if not any(isinstance(f, _Finder) for f in sys.meta_path):
                sys.meta_path.insert(0, _Finder())
    if there:
        torch.compiler.allow_in_graph(function)


def _allow_all() -> None:
    with _mutex:
        functions = list(_waiting)
        _waiting.clear()
    for function in functions:
        torch.compiler.allow_in_graph(function)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds dynamo as the others do, once, and has the functions allowed when it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME:
            return None
        with _mutex:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        _allow_all()
