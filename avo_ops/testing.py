"""CUDA kernels without a GPU: the operators' own kernels and launch plans, run on CPU tensors by the emulator."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .jit import EmulatorCompiler
from .registry import native_library
from .registry.native import Native, has_sanitizer
from .registry.store import KernelStore, default_cache_folder

__all__ = ["compile_kernels", "emulate", "sanitizer_environment"]

_ORDERS = ("ascending", "descending", "random")


@dataclass(frozen=True)
class _Emulation:
    arch: int = 0
    sms: int = 0
    order: str = "ascending"
    seed: int = 0
    fill: int = 0xFF


_active = [_Emulation()]
_lock = threading.Lock()


@contextmanager
def emulate(
    arch: int = 90, sms: int = 132, *, order: str = "ascending", seed: int = 0, fill: int = 0xFF
) -> Iterator[None]:
    """Within it ``torch.ops.avo.*`` on CPU tensors is planned for a GPU that is imagined, and run by its CUDA kernels.

    It holds for all threads of the process, as the backward of a call needs; of several, the one entered last counts.

    A kernel is compiled by g++ when it is first used, and kept in the cache folder. What a kernel may not do is
    a RuntimeError with the kernel, the source line, block and thread: barriers that not all threads reach, lanes of a
    mask that are absent, access to a block of the cluster that has not begun or has returned. In a process started
    with ``sanitizer_environment()``, reads and writes outside of an allocation, and misaligned ones, end the process
    with a report. A missing barrier, or a read of memory that was not written, shows as results that
    differ between orders or fills.

    Args:
        arch: 90 for compute capability 9.0.
        sms: multiprocessors; few of them make persistent kernels go round.
        order: in which threads and blocks run: "ascending", all taking turns, or "descending" or "random" by ``seed``,
            where a warp runs on as long as it can.
        fill: the byte that shared memory, results and workspaces hold before they are written; 0xFF is NaN.

    Raises:
        RuntimeError: the package is not built.
        ValueError: an argument is out of range.
    """
    numbers = {
        "arch": (arch, 80, 199),
        "sms": (sms, 1, 2**16),
        "seed": (seed, 0, 2**32 - 1),
        "fill": (fill, 0, 0xFF),
    }
    for name, (value, least, most) in numbers.items():
        if not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"emulate: {name} must be an int from {least} to {most}, but is {value!r}")
    if order not in _ORDERS:
        raise ValueError(f"emulate: order must be one of {_ORDERS}, but is {order!r}")
    mine = _Emulation(arch, sms, order, seed, fill)
    with _lock:
        _set(mine)
        _active.append(mine)
    try:
        yield
    finally:
        with _lock:
            # Another thread may have entered its own since; equal ones are told apart by identity.
            del _active[next(i for i, one in enumerate(_active) if one is mine)]
            _set(_active[-1])


def _set(emulation: _Emulation) -> None:
    native = native_library.runtime()
    if native is None:
        raise RuntimeError("avo_ops is not built: make build")
    if has_sanitizer():
        _report_threads(native)
    native.emulate(
        emulation.arch, emulation.sms, _ORDERS.index(emulation.order), emulation.seed, emulation.fill
    )


@lru_cache(maxsize=1)
def _report_threads(native: Native) -> None:
    """Have the sanitizers of this process end their reports with the thread that was running."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(("libasan.so", "libubsan.so")):
            ctypes.CDLL(path).__sanitizer_set_death_callback(native.print_running_thread)


def compile_kernels(
    libraries: Collection[Collection[str]], jobs: int | None = None, run_often: bool = True
) -> None:
    """Compile kernels of the catalogue for the emulator, several libraries of them at once; ``emulate`` would compile one by one.

    Args:
        libraries: the names of the kernels of each library, as ``avo_ops.stats()`` has them.
        jobs: how many compilers run at a time; as many as there are cores.
        run_often: optimize them, which takes a third longer.

    Raises:
        RuntimeError: one did not compile; a warning has said why.
    """
    compiler = EmulatorCompiler()
    store = KernelStore(None, default_cache_folder(), compiler, suffix=".so")
    names = [compiler.together(kernels, run_often) for kernels in libraries]
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        for name, path in zip(names, pool.map(lambda name: store.resolve(name, 0), names), strict=True):
            if path is None:
                raise RuntimeError(f"the emulator has no library of {name}")


def sanitizer_environment() -> dict[str, str]:
    """The environment of a process whose emulated kernels are compiled with AddressSanitizer and UBSan.

    Raises:
        OSError, subprocess.CalledProcessError: there is no g++.
    """
    libraries = [
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(os.path.realpath(library) for library in libraries),
        # Python and torch leak by design; each kernel library has an object of the same name.
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:alloc_dealloc_mismatch=0:new_delete_type_mismatch=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
