"""Emitted CUDA compiled by g++ for the emulator (csrc/emulator): one shared library for the text of a family."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import plan_file
from . import gcc
from .build import (
    STRIDED,
    family_source,
    generated_folder,
    is_of_lists,
    list_kernels,
    list_unit_text,
    unit_text,
)

FLAGS = (
    "-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
    "-DAVO_EMULATOR", "-mtls-dialect=gnu2", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-but-set-variable",
)  # fmt: skip
# Fifteen kernels of LayerNorm's backward compile in 1.7 s under the sanitizers (-O1: 3.2 s). Without any optimization it
# takes a quarter less time, and kernels run a third slower: for those that run once or twice.
LEVEL, LEVEL_OF_FEW_RUNS = "-Og", "-O0"
# What shows in memory. Checks in line take twice the time to compile; those of integer overflow a third more, for sizes
# that no emulation reaches.
SANITIZERS = (
    "-fsanitize=address,alignment,bounds", "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer", "--param=asan-instrumentation-with-call-threshold=0",
)  # fmt: skip


def unit(text: str, kernels: Iterable[str]) -> str:
    """CUDA source as it ships, followed by what makes its ``extern "C"`` kernels callable in the emulator."""
    return text + "".join(f"AVO_EMULATED({kernel})\n" for kernel in sorted(kernels))


# The widths of all rows that this process will emulate, and the dtypes, where it has said so.
_widths: tuple[int, ...] | None = None
_dtypes: frozenset[str] | None = None


def limit(widths: Iterable[int] | None = None, dtypes: Iterable[str] | None = None) -> None:
    """Compile, of the catalogue's families, the variants for rows of these widths and for operands of these dtypes
    (``"bf16"``) alone: for two widths a tenth of the time. None: all. With either they are not optimized.

    Any other call finds no kernel. To be said before a process emulates anything.
    """
    global _widths, _dtypes
    _widths = None if widths is None else tuple(widths)
    _dtypes = None if dtypes is None else frozenset(dtypes)


def family_unit(family: str) -> str:
    """The unit of a family of the catalogue, or of an operator over lists for some dtypes; or of one kernel, if that is made for
    operands of several row strides.
    """
    if family.endswith(STRIDED):
        return unit(unit_text(family), [family])
    folder = generated_folder()
    plan = _plan(folder, (folder / "plan.json").stat().st_mtime_ns)
    if is_of_lists(plan, family):
        return unit(list_unit_text(family, folder), list_kernels(plan, family))
    entry = plan["families"][family]
    of_runs = entry["class"] == "runs"
    served = {d: [v for v in rows if _serves(v, d, of_runs)] for d, rows in entry["variants"].items()}
    entry = {**entry, "variants": served}
    kernels = {v["symbol"] for rows in entry["variants"].values() for v in rows}
    return unit(family_source(family, entry, folder), kernels)


def _serves(variant: dict[str, Any], dtypes: str, of_runs: bool) -> bool:
    if _dtypes is not None and not _dtypes.issuperset(dtypes.split(",")):
        return False
    if of_runs and _widths is not None:  # its rows are parts of those
        return bool(variant["min_n"] <= max(_widths))
    exact = variant["exact"]
    return _widths is None or any(
        variant["min_n"] <= n <= variant["max_n"] and exact in (None, "chunks", "few", "odd", n)
        for n in _widths
    )


def inputs(text: str, *, sanitized: bool) -> list[bytes]:
    """All that decides the library of a unit."""
    return gcc.inputs(text, _flags(sanitized), "emulator")


def compile_unit(name: str, text: str, *, sanitized: bool) -> bytes:
    """The shared library of a unit; ``name`` is what its faults call the file (``name.cu``).

    Raises:
        CompilerError: no compiler, or it refused the source.
    """
    flags = _flags(sanitized)
    compile_flags = [*flags, "-x", "c++", "-include", "emulator/cuda.h"]
    return gcc.library({f"{name}.cu": text}, compile_flags, [*flags, "-Wl,-Bsymbolic"])


def _flags(sanitized: bool) -> tuple[str, ...]:
    level = LEVEL if _widths is None and _dtypes is None else LEVEL_OF_FEW_RUNS
    return (level, *FLAGS, *_target(), *(SANITIZERS if sanitized else ()))


@lru_cache(maxsize=1)
def _target() -> tuple[str, ...]:
    # fmaf as one instruction, where there is one; the bits are the same.
    try:
        features = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    return ("-mfma",) if " fma " in features else ()


@lru_cache(maxsize=1)
def _plan(folder: Path, changed: int) -> dict[str, Any]:
    return plan_file.load(folder)
