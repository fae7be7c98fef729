"""NVRTC through ctypes: CUDA source to cubin or PTX, with whichever libnvrtc (12.x or 13.x) is installed."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


class NvrtcError(RuntimeError):
    """NVRTC is missing or refused a source; the message holds the compiler's log."""


@dataclass(frozen=True)
class Nvrtc:
    """A loaded libnvrtc. Device code includes our own headers alone, so none of CUDA's are needed."""

    library: ctypes.CDLL
    version: tuple[int, int]

    def compile(self, source: str, *, name: str, arch: str, options: Sequence[str] = ()) -> bytes:
        """Compile ``source`` for ``arch`` (``sm_90`` gives a cubin, ``compute_90`` gives PTX).

        Raises:
            NvrtcError: the source did not compile; the message is the compiler's log.
        """
        lib, program = self.library, ctypes.c_void_p()
        self._check(
            lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        )
        try:
            flags = [f"--gpu-architecture={arch}", *options]
            array = (ctypes.c_char_p * len(flags))(*(f.encode() for f in flags))
            if lib.nvrtcCompileProgram(program, len(flags), array):
                raise NvrtcError(f"{name} ({arch}):\n{self._log(program)}")
            kind = "CUBIN" if arch.startswith("sm_") else "PTX"
            size = ctypes.c_size_t()
            self._check(getattr(lib, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
            data = ctypes.create_string_buffer(size.value)
            self._check(getattr(lib, f"nvrtcGet{kind}")(program, data))
            return data.raw
        finally:
            lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _log(self, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        return log.value.decode(errors="replace")

    def _check(self, result: int) -> None:
        if result:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise NvrtcError(self.library.nvrtcGetErrorString(result).decode())


def _candidates() -> list[str]:
    """Libraries in the order in which they are tried: pip packages, CUDA toolkits, the loader's path."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    # CUDA 12 packages have a folder each; those of CUDA 13 share nvidia/cu13.
    found = [
        str(p)
        for r in roots
        for g in ("cuda_nvrtc/lib", "cu1[0-9]/lib")
        for p in sorted(r.glob(f"{g}/libnvrtc.so.1[0-9]"))
    ]
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        found += [str(p) for p in sorted(Path(home).glob("lib64/libnvrtc.so.1[0-9]"))] if home else []
    return [*found, "libnvrtc.so.12", "libnvrtc.so.13"]


@lru_cache(maxsize=1)
def load() -> Nvrtc:
    """The first usable NVRTC.

    Raises:
        NvrtcError: none is installed.
    """
    problems = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            problems.append(str(error))
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return Nvrtc(library, (major.value, minor.value))
    raise NvrtcError(
        "NVRTC was not found. Install it with: pip install nvidia-cuda-nvrtc-cu12"
        + "".join(f"\n  {p}" for p in problems)
    )
