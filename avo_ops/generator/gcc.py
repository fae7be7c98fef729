"""The host's C++ compiler: found once, asked for its version once, run with its output kept for the message."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from .build import CSRC, PACKAGE, headers_digest

# As setup.py compiles the CPU kernels, but for -O3, which takes a third more time for at most 3 % of speed.
CPU_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-exceptions",
    "-Wall",
    "-Wextra",
)
_MARCH = {"base": "x86-64", "v3": "x86-64-v3", "v4": "x86-64-v4"}


class CompilerError(RuntimeError):
    """There is no C++ compiler, or it refused a source; the message holds its output."""


def command() -> list[str]:
    """The compiler: CXX or g++."""
    return shlex.split(os.environ.get("CXX", "g++"))


def version() -> str:
    """What tells this compiler from another: its command, of which flags may be a part, and what it says of itself.

    Raises:
        CompilerError: there is none.
    """
    return _version(tuple(command()))


@lru_cache
def _version(line: tuple[str, ...]) -> str:
    return "\n".join([*line, run([*line, "--version"], ".")])


def run(line: Sequence[str], folder: str) -> str:
    """Run a command in a folder; its output.

    Raises:
        CompilerError: it failed, or is not there.
    """
    try:
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, env=_environment())
    except OSError as error:
        raise CompilerError(f"there is no C++ compiler: install g++ or set CXX ({error})") from None
    if done.returncode:
        raise CompilerError(f"{shlex.join(line)}:\n{done.stderr}")
    return done.stdout


def _environment() -> dict[str, str]:
    # A sanitizer preloaded into this process is not for the compiler.
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


def _flags(isa: str) -> list[str]:
    return [*CPU_FLAGS, f"-march={_MARCH[isa]}", f"-DAVO_ISA_NAMESPACE=avo_{isa}", f"-DAVO_ISA_SUFFIX={isa}"]


def inputs(text: str, flags: Sequence[str], headers: str, compiler: str | None = None) -> list[bytes]:
    """All that decides the library of a source: it, the headers of that folder of csrc and of device code, flags, compiler.

    ``compiler``: its :func:`version`, if that is known already.
    """
    own = [path.read_bytes() for path in sorted((CSRC / headers).glob("*.h"))]
    return [*(p.encode() for p in (text, headers_digest(), *flags, compiler or version())), *own]


def library(files: Mapping[str, str], compile_flags: Sequence[str], link_flags: Sequence[str]) -> bytes:
    """The shared library of the first of some files, in whose folder the compiler runs.

    Raises:
        CompilerError: no compiler, or it refused the source.
    """
    with tempfile.TemporaryDirectory(prefix="avo_ops-") as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        places = [f"-I{CSRC}", f"-ffile-prefix-map={folder}=.", f"-ffile-prefix-map={CSRC}/="]
        ccache = shutil.which("ccache")
        first = [*([ccache] if ccache else []), *command(), *compile_flags, *places]
        run([*first, "-c", next(iter(files)), "-o", "unit.o"], folder)
        run([*command(), "unit.o", "-shared", *link_flags, "-o", "unit.so"], folder)
        return Path(folder, "unit.so").read_bytes()


def _common(isa: str) -> Path:
    """The object of csrc/cpu/common.cpp that the build has made for an instruction set."""
    return PACKAGE / "lib" / f"avo_cpu_common.{isa}.o"


def cpu_inputs(text: str, isa: str, compiler: str | None = None) -> list[bytes]:
    """All that decides the library of a unit of CPU kernels. ``compiler``: its :func:`version`, if that is known already."""
    common = _common(isa)
    return [*inputs(text, _flags(isa), "cpu", compiler), common.read_bytes() if common.exists() else b""]


def compile_cpu(text: str, isa: str) -> bytes:
    """The shared library of a unit of CPU kernels for one instruction set ("base", "v3" or "v4").

    Raises:
        CompilerError: no compiler, or it refused the source.
    """
    exports = f"{{ global: avo_cpu_kernels_{isa}; avo_cpu_finish_{isa}; local: *; }};\n"
    link_flags, common = ["-Wl,--version-script=unit.map"], _common(isa)
    if common.exists():
        link_flags.append(str(common))
    else:
        text += '#include "cpu/common.cpp"\n'
    return library({"unit.cpp": text, "unit.map": exports}, _flags(isa), link_flags)
