"""Functions as one node of what torch.compile makes, without importing torch._dynamo for it, which takes a second or two."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..registry.late import when_imported

_NAME = "torch._dynamo"
_waiting: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


def allow_in_graph(function: Callable[..., Any]) -> None:
    """As ``torch.compiler.allow_in_graph``; where nobody has imported dynamo, as soon as somebody does."""
    _waiting.add(function)
    if _NAME in sys.modules:
        _allow_all()


def _allow_all() -> None:
    for function in list(_waiting):  # in two threads at once: to allow one twice does no harm
        torch.compiler.allow_in_graph(function)
        _waiting.discard(function)


when_imported(_NAME, _allow_all)
