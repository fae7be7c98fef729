"""Results: one JSON line for each cell, with all that is needed to read it again."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

Row = dict[str, Any]
Key = tuple[Any, ...]

# What tells one measurement from another.
KEY = ("device", "op", "direction", "dtype", "m", "n", "layout", "implementation")

_PACKAGES = ("triton", "liger-kernel", "quack-kernels", "nvidia-cutlass-dsl", "apex", "flash-attn")


def about(device: str) -> Row:
    """Card, driver, versions, commit and date, which every line carries."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found: Row = {"versions": versions, "commit": _commit(), "date": time.strftime("%Y-%m-%d")}
    if device == "cuda":
        driver = _run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()
        return {"card": torch.cuda.get_device_name(), "driver": driver[0] if driver else "unknown", **found}
    return {"card": f"{_cpu_model()}, {torch.get_num_threads()} threads", **found}


def _commit() -> str:
    changed = "+changes" if _run("git", "status", "--porcelain", "--untracked-files=no", "avo_ops") else ""
    return (_run("git", "rev-parse", "--short", "HEAD") or "unknown") + changed


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown CPU"


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def key_of(row: Row) -> Key:
    return tuple(row[name] for name in KEY)


def read(paths: Iterable[Path]) -> dict[Key, Row]:
    """The rows of some files by key, later ones in place of earlier ones; a line that was cut off is left out."""
    found: dict[Key, Row] = {}
    for path in paths:
        for row in _lines(path):
            found[key_of(row)] = row
    return found


def _lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # a run was ended while it wrote
        if not set(KEY) <= set(row):
            raise SystemExit(f"{path}:{number} is no result of python -m benchmarks run")
        yield row


class Writer:
    """Appends rows to a file, each written before the next cell begins."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            cut = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
            self._file = path.open("a")
            if cut:
                self._file.write("\n")

    def write(self, row: Row) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()


class Progress:
    """A bar on a terminal; elsewhere nothing, for there every group of cells is a line of its own."""

    def __init__(self, total: int, file: TextIO = sys.stderr) -> None:
        self._total, self.done, self._file = total, 0, file
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    def step(self, count: int = 1) -> None:
        self.done += count

    def head(self) -> str:
        """How far the run is, for the beginning of a line."""
        return f"[{self.done:>{len(str(self._total))}}/{self._total} {self.seconds:4.0f} s]"

    def show(self, what: str) -> None:
        if not self._file.isatty():
            return
        columns = os.get_terminal_size(self._file.fileno()).columns
        full = 24 * self.done // max(self._total, 1)
        left = self.seconds / max(self.done, 1) * (self._total - self.done)
        text = f"[{'=' * full}{' ' * (24 - full)}] {self.done}/{self._total}, {left:.0f} s left: {what}"
        self._file.write(f"\r\x1b[K{text[: columns - 1]}")
        self._file.flush()

    def clear(self) -> None:
        if self._file.isatty():
            self._file.write("\r\x1b[K")
            self._file.flush()
