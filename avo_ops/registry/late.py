"""What waits for the import of a module that takes long to import, and that most processes never need."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_mutex = threading.Lock()
_waiting: dict[str, list[Callable[[], None]]] = {}


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call ``callback`` when a module has been imported: now, if it was."""
    with _mutex:
        there = name in sys.modules
        if not there:
            _waiting.setdefault(name, []).append(callback)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
    if there:
        callback()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are waited for as the other finders do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        with _mutex:
            if fullname not in _waiting or fullname in _looking:
                return None
            _looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            _looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as the loader of the module does, and calls back after that."""

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
        with _mutex:
            callbacks = _waiting.pop(module.__name__, [])
            if not _waiting and _finder in sys.meta_path:
                sys.meta_path.remove(_finder)
        for callback in callbacks:
            callback()


_finder = _Finder()
_looking: set[str] = set()  # names that the other finders are asked for now
