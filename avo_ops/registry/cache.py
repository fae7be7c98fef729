"""The user's cache folder as a whole: what is in it, its size limit, removal of what is old or damaged.

An entry is ``<key[:2]>/<key>-<sha256 of the content>.<suffix>``; beside it lie the locks of keys, which are empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path

_ENTRY = re.compile(r"[0-9a-f]{64}-[0-9a-f]{64}\.\w+")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_DEFAULT = "1G"


def size_limit(text: str | None = None) -> int:
    """Bytes that the cache may hold: ``text``, else ``AVO_OPS_CACHE_SIZE``, else 1G.

    Raises:
        ValueError: it is no number with at most one of K, M, G behind it.
    """
    text = text or os.environ.get("AVO_OPS_CACHE_SIZE") or _DEFAULT
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if found is None:
        raise ValueError(
            f"the size of the cache must be a number of bytes, such as 500M or 1G, but is {text!r}"
        )
    return int(found[1]) * _UNITS[found[2]]


def size_text(size: int) -> str:
    """A number of bytes in words."""
    return f"{size / 2**20:.1f} MB"


def entries(folder: Path) -> list[Path]:
    """Every entry, damaged ones included."""
    return sorted(p for p in folder.glob("[0-9a-f][0-9a-f]/*") if _ENTRY.fullmatch(p.name))


def _sized(folder: Path) -> list[tuple[float, int, Path]]:
    """Time of the last use, size and path of each entry; one that another process removes meanwhile is left out."""
    found = []
    for path in entries(folder):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return found


def total_size(folder: Path) -> int:
    """Bytes of all entries."""
    return sum(size for _, size, _ in _sized(folder))


def describe(folder: Path) -> str:
    """What is in the folder, in words."""
    found = _sized(folder)
    kinds = Counter(path.suffix for _, _, path in found)
    what = ", ".join(f"{count} {suffix}" for suffix, count in sorted(kinds.items())) or "empty"
    size = sum(size for _, size, _ in found)
    return f"{folder}: {what}; {size_text(size)} of at most {size_text(size_limit())} (AVO_OPS_CACHE_SIZE)"


def prune(folder: Path, limit: int | None = None, keep: Path | None = None) -> int:
    """Remove what was used least recently until the rest fits the limit; how many were removed. ``keep`` stays."""
    limit = _stated_limit() if limit is None else limit
    found = sorted(_sized(folder))
    size, removed = sum(size for _, size, _ in found), 0
    for _, own, path in found:
        if size <= limit:
            break
        if path != keep and _remove(path):
            size, removed = size - own, removed + 1
    return removed


def _stated_limit() -> int:
    """``size_limit()``, or the default and one warning: a call that needs a kernel must not fail for the cache's size."""
    try:
        return size_limit()
    except ValueError as error:
        _warn_once(f"avo_ops: AVO_OPS_CACHE_SIZE: {error}: it holds {_DEFAULT} at most")
        return size_limit(_DEFAULT)


@lru_cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def clear(folder: Path) -> int:
    """Remove every entry; how many there were. Locks stay: another process may hold one."""
    return sum(_remove(path) for path in entries(folder))


def remove_damaged(folder: Path) -> list[Path]:
    """Remove the entries whose content is not what their name says; their paths."""
    damaged = []
    for path in entries(folder):
        with contextlib.suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.stem.partition("-")[2]:
                damaged.append(path)
                _remove(path)
    return damaged


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
