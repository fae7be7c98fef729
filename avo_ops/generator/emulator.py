"""Emitted CUDA compiled by g++ for the emulator (csrc/emulator): a shared library for a kernel, or for many at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import plan_file
from . import gcc
from .build import STRIDED, Unit, generated_folder, is_of_lists, list_kernels, list_unit_text, unit_text

FLAGS = (
    "-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
    "-DAVO_EMULATOR", "-mtls-dialect=gnu2", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-but-set-variable",
)  # fmt: skip
# Without any optimization it takes a quarter less time to compile, and kernels run a third slower: for those that run once
# or twice.
LEVEL, LEVEL_OF_FEW_RUNS = "-Og", "-O0"
# What shows in memory. Checks in line take twice the time to compile, and red zones between the variables of a stack a fifth
# more, for arrays whose bounds are checked in any case; checks of integer overflow a third more, for sizes that no
# emulation reaches.
SANITIZERS = (
    "-fsanitize=address,alignment,bounds", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
    "--param=asan-instrumentation-with-call-threshold=0", "--param=asan-stack=0",
)  # fmt: skip


def unit(text: str, kernels: Iterable[str]) -> str:
    """CUDA source as it ships, followed by what makes its ``extern "C"`` kernels callable in the emulator."""
    return text + "".join(f"AVO_EMULATED({kernel})\n" for kernel in sorted(kernels))


@dataclass(frozen=True)
class Library:
    """Kernels of the catalogue that are compiled together, and whether they run often enough to be optimized."""

    name: str
    kernels: frozenset[str]
    run_often: bool = True


# By each of their kernels, the libraries that were asked for.
_libraries: dict[str, Library] = {}


def together(kernels: Collection[str], run_often: bool = True) -> Library:
    """Have kernels of the catalogue compiled as one library, which takes half the time of a library each: they share what they
    instantiate of csrc/device. To be said before one of them is called.
    """
    found = Library(min(kernels), frozenset(kernels), run_often)
    _libraries.update(dict.fromkeys(found.kernels, found))
    return found


def library_of(kernel: str) -> Library:
    """Of a kernel of the catalogue; one of its own, if it was not put :func:`together` with others."""
    if kernel in _libraries:
        return _libraries[kernel]
    plan = _current_plan()
    if is_of_lists(plan, kernel):
        name = kernel.removesuffix("_finish")
        return Library(name, frozenset(list_kernels(plan, name)))
    return Library(kernel, frozenset([kernel]))


_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


@lru_cache(maxsize=8)
def library_text(library: Library) -> str:
    """The source of a library.

    Families may have templates of one name, so each is in a namespace of its own. What they include comes before.
    """
    texts = {name: _text(name, kernels) for name, kernels in sorted(_by_source(library).items())}
    if len(texts) == 1:
        return next(iter(texts.values()))
    includes = dict.fromkeys(line for text in texts.values() for line in _INCLUDE.findall(text))
    return "".join([*includes, *(_apart(name, text) for name, text in texts.items())])


def _by_source(library: Library) -> dict[str, list[str]]:
    """Families, units of operators over lists and kernels for several row strides, with those of their kernels that are wanted."""
    plan, found = _current_plan(), dict[str, list[str]]()
    for kernel in sorted(library.kernels):
        if kernel.endswith(STRIDED):
            source = kernel
        elif is_of_lists(plan, kernel):
            source = kernel.removesuffix("_finish")
        else:
            source = kernel.rpartition("__")[0]
        found.setdefault(source, []).append(kernel)
    return found


def _text(source: str, kernels: list[str]) -> str:
    plan, folder = _current_plan(), generated_folder()
    if source.endswith(STRIDED):
        return unit(unit_text(source), kernels)
    if is_of_lists(plan, source):
        return unit(list_unit_text(source, folder), list_kernels(plan, source))
    family = plan["families"][source]
    lines = {v["symbol"]: v["instantiate"] for rows in family["variants"].values() for v in rows}
    wanted = tuple(lines[kernel] for kernel in kernels)
    return unit(Unit(source, family["source"], wanted, packaged=False).text(folder), kernels)


def _apart(name: str, text: str) -> str:
    macros = "".join(f"#undef AVO_{macro}\n" for macro in ("FUNCTION", "ARGUMENTS", "PARAMETERS"))
    inside = (
        f'namespace in_{name} {{\nnamespace avo {{}}\nusing namespace avo;\n{macros}#line 1 "{name}.cu"\n'
    )
    return f"{inside}{text}}} // namespace in_{name}\n"


def inputs(text: str, *, sanitized: bool, run_often: bool = True) -> list[bytes]:
    """All that decides the library of a text."""
    return gcc.inputs(text, _flags(sanitized, run_often), "emulator")


def compile_unit(name: str, text: str, *, sanitized: bool, run_often: bool = True) -> bytes:
    """The shared library of a text; ``name`` is what its faults call the file (``name.cu``).

    Raises:
        CompilerError: no compiler, or it refused the source.
    """
    flags = _flags(sanitized, run_often)
    compile_flags = [*flags, "-x", "c++", "-include", "emulator/cuda.h"]
    return gcc.library({f"{name}.cu": text}, compile_flags, [*flags, "-Wl,-Bsymbolic"])


def _flags(sanitized: bool, run_often: bool) -> tuple[str, ...]:
    level = LEVEL if run_often else LEVEL_OF_FEW_RUNS
    return (level, *FLAGS, *_target(), *(SANITIZERS if sanitized else ()))


def _current_plan() -> dict[str, Any]:
    folder = generated_folder()
    return _plan(folder, (folder / "plan.json").stat().st_mtime_ns)


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
