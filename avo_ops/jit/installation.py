"""What tells this installation from another without reading it: the versions, and the state of files."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@lru_cache(maxsize=1)
def versions() -> list[bytes]:
    """Of Python, torch and this package, whose files count besides: an editable one changes while its version does not."""
    files = _states("", "definitions", "generator", "jit", "nn", "registry", suffix=".py")
    package = sys.modules[__name__.partition(".")[0]].__version__
    python = (sys.implementation.cache_tag, sys.version_info[:3])
    return [str(v).encode() for v in (python, torch.__version__, torch.version.git_version, package, files)]


@lru_cache(maxsize=1)
def cpu_headers() -> list[bytes]:
    """The state of what kernels for the CPU include and are linked with."""
    folders = [os.path.join("csrc", name) for name in ("common", "cpu", "device")]
    return [str(_states(*folders)).encode(), str(_states("lib", suffix=".o")).encode()]


def host_compiler(command: Sequence[str] | None = None) -> list[bytes] | None:
    """Of the C++ compiler: its command (by default CXX, else g++), and the state of its file. None if there is none."""
    line = shlex.split(os.environ.get("CXX", "g++")) if command is None else command
    path = shutil.which(line[0]) if line else None
    if path is None:
        return None
    about = os.stat(path)  # of what a link leads to
    parts = (*line, os.path.realpath(path), str(about.st_size), str(about.st_mtime_ns))
    return [part.encode() for part in parts]


def _states(*folders: str, suffix: str = "") -> list[tuple[str, int, int]]:
    return sorted(_states_of(folders, suffix))


def _states_of(folders: Iterable[str], suffix: str) -> Iterable[tuple[str, int, int]]:
    for folder in folders:
        path = os.path.join(_PACKAGE, folder)
        if not os.path.isdir(path):
            continue
        for entry in os.scandir(path):
            if entry.name.endswith(suffix) and entry.is_file():
                about = entry.stat()
                yield f"{folder}/{entry.name}", about.st_size, about.st_mtime_ns
