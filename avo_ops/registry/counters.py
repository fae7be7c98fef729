"""How often which path ran, and strict mode, which refuses the slow ones."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from . import native_library


@dataclass
class OpStats:
    """Calls of one op: launches by kernel, operands that were copied or cast, runs of the definition, empty calls."""

    kernels: dict[str, int] = field(default_factory=dict)
    copies: int = 0
    casts: int = 0
    definitions: int = 0
    empties: int = 0


_FIELDS = {"copy": "copies", "cast": "casts", "definition": "definitions", "empty": "empties"}


class Stats(dict[str, int]):
    """Counts by op and path, ``{"avo::gelu / cpu/v3/gelu_forward_none": 3, ...}``; printed, a table.

    Paths: ``cpu/<isa>/<kernel>``, ``cuda/<symbol>`` (launches), ``definition``, ``empty`` (nothing to compute),
    ``copy`` and ``cast`` (operands that went through a temporary).
    """

    def by_op(self) -> dict[str, OpStats]:
        """The same counts, one record an op."""
        found: dict[str, OpStats] = {}
        for key, count in self.items():
            op, _, path = key.partition(" / ")
            stats = found.setdefault(op, OpStats())
            if path in _FIELDS:
                setattr(stats, _FIELDS[path], count)
            else:
                stats.kernels[path] = count
        return found

    def __str__(self) -> str:
        rows = [(*key.split(" / ", 1), str(count)) for key, count in sorted(self.items()) if count]
        if not rows:
            return "no calls of avo_ops operators"
        op, path, number = (max(len(row[i]) for row in rows) for i in range(3))
        return "\n".join(f"{r[0]:<{op}}  {r[1]:<{path}}  {r[2]:>{number}}" for r in rows)


_mutex = threading.Lock()
_definitions: Counter[str] = Counter()
_empties: Counter[str] = Counter()


def noted(name: str, definition: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """``definition`` of the op ``name``, counted; in strict mode it raises instead and says the reason."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if _strict:
            short = name.partition("::")[2]
            raise RuntimeError(f"{short}: strict mode: the definition would run, not a kernel: {reason}")
        with _mutex:
            _definitions[name] += 1
        return definition(*args, **kwargs)

    return run


def note_definition(name: str, reason: str) -> None:
    """Count that some of the op ``name`` is left to torch; in strict mode raise, with the reason."""
    if _strict:
        short = name.partition("::")[2]
        raise RuntimeError(f"{short}: strict mode: torch would run a part of it, not a kernel: {reason}")
    with _mutex:
        _definitions[name] += 1


def note_empty(name: str) -> None:
    """Count a call of the op ``name`` that had nothing to compute."""
    with _mutex:
        _empties[name] += 1


def stats() -> Stats:
    """Which paths calls took since the start or the last :func:`reset_stats`, of all threads."""
    with _mutex:
        counts = Counter({f"{name} / definition": count for name, count in _definitions.items()})
        counts.update({f"{name} / empty": count for name, count in _empties.items()})
    counts.update(native_library.counters())
    return Stats(counts)


def reset_stats() -> None:
    """Set every counter to zero."""
    with _mutex:
        _definitions.clear()
        _empties.clear()
    native_library.reset_counters()


_DEFINITIONS, _COPIES = 1, 2
_strict: list[int] = []  # one entry for each reason to be strict


def _changed() -> None:
    native_library.set_strict(max(_strict, default=0))


@contextlib.contextmanager
def strict(*, copies: bool = False) -> Iterator[None]:
    """While open, a call that no kernel serves raises RuntimeError with the reason, instead of running the definition.

    It holds for all threads of the process, since a backward may run on another one. ``AVO_OPS_STRICT=1`` (or
    ``copies``) does the same from the start.

    Args:
        copies: raise too where an operand would be copied or cast before its kernel runs.
    """
    mode = _COPIES if copies else _DEFINITIONS
    with _mutex:
        _strict.append(mode)
        _changed()
    try:
        yield
    finally:
        with _mutex:
            _strict.remove(mode)
            _changed()


def strict_from_environment() -> None:
    """Strict mode for good, if ``AVO_OPS_STRICT`` asks for it."""
    wanted = os.environ.get("AVO_OPS_STRICT", "0")
    if wanted not in ("", "0"):
        with _mutex:
            _strict.append(_COPIES if wanted == "copies" else _DEFINITIONS)
            _changed()
