"""Kernels for one width, made in the background for widths that calls have again and again.

The runtime says when many calls in a row of a kernel were of one width. A thread compiles the kernel for it, as the store does
any, and the runtime puts it in the place of the general one, with the same bits. No call waits for that, and none fails.
``AVO_OPS_HOT_WIDTHS=0`` switches it off.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import warnings
from collections.abc import Iterable

from ..registry import native_library, resolve_kernel
from ..registry.store import Frozen
from .compilers import add_exact_unit, has_family_of, is_frozen

_MOST = 64  # such kernels in a process
_PATIENCE = 10.0  # seconds
_Job = tuple[str, int, int]  # the general kernel, the width, the architecture


class _Worker:
    """The thread, which is started by the first job, and what it has made."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.seen: set[_Job] = set()
        self.made: list[str] = []
        self.thread: threading.Thread | None = None
        self.is_ending = False

    def ask(self, symbol: str, n: int, arch: int) -> None:
        """For the runtime, on the thread of a call."""
        job = (symbol, n, arch)
        with self.mutex:
            if is_frozen() or job in self.seen or len(self.seen) >= _MOST or not has_family_of(symbol):
                return
            self.seen.add(job)
            self.jobs.put(job)
            if self.thread is None and not self.is_ending:
                self.thread = threading.Thread(target=self.run, name="avo_ops kernels", daemon=True)
                self.thread.start()

    def run(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None or self.is_ending:
                return
            self.work(*job)

    def end(self) -> None:
        """Wait for the kernel that is being compiled: a compiler whose library is torn down under it would crash the process."""
        with self.mutex:
            self.is_ending, thread = True, self.thread
            self.jobs.put(None)
        if thread is not None:
            thread.join(_PATIENCE)

    def work(self, symbol: str, n: int, arch: int) -> None:
        native = native_library.runtime()
        try:
            unit = add_exact_unit(symbol, n)
            if native is None or is_frozen() or resolve_kernel(unit, arch) is None:
                return
            native.add_exact(symbol, unit, n, arch)
            self.made.append(unit)
        except Frozen:
            return  # between the question above and the compiler's own
        except Exception as error:
            warnings.warn(
                f"avo_ops: no kernel of {symbol} for rows of {n} alone: {error}", RuntimeWarning, stacklevel=2
            )


_worker = _Worker()
_started: list[bool] = []


def start() -> None:
    """Have the runtime say which widths are hot, unless that is switched off; once."""
    native = native_library.runtime()
    if native is None or _started or os.environ.get("AVO_OPS_HOT_WIDTHS") == "0":
        return
    _started.append(True)
    atexit.register(lambda: _worker.end())
    native.set_hot_width_callback(lambda symbol, n, arch: _worker.ask(symbol, n, arch))


def made_for(operators: Iterable[str]) -> tuple[str, ...]:
    """The kernels for one width that there are for some operators by now."""
    names = tuple(operators)
    return tuple(unit for unit in list(_worker.made) if unit.startswith(names)) if names else ()


def _in_child() -> None:
    """A forked child has no such thread, and the mutex may be held for ever; what was made is there."""
    global _worker
    made, _worker = _worker.made, _Worker()
    _worker.made = made


os.register_at_fork(after_in_child=_in_child)
