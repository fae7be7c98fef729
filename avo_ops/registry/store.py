"""The kernel store: a cubin is looked for in the package, then in the user's cache folder, else compiled now.

A cached cubin is one file whose name holds the key (what it was made from) and the checksum of its content,
so that one rename publishes both. A file that does not match its name is a miss. Locks are flocks: a killed
process leaves none.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from . import cache

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class Frozen(RuntimeError):
    """Something would have to be compiled after :func:`avo_ops.freeze`, or while a CUDA graph is captured."""


class Compiler(Protocol):
    """Makes the cubin of a unit of kernels (a family's, or those of one of its dtypes). ``arch`` is spelled "sm_90"."""

    def inputs(self, unit: str, arch: str) -> Sequence[bytes]:
        """All that decides the result: source, headers, flags, compiler version."""

    def compile(self, unit: str, arch: str) -> bytes:
        """The cubin.

        Raises:
            Frozen: nothing may be compiled now; the caller of the store hears of it.
            Exception: there is no compiler, or it refused the source; the message says what to do.
        """


class LibraryCompiler(Compiler, Protocol):
    """Makes libraries of kernels for the emulator; these are its units, and ``arch`` says nothing."""

    def library_of(self, kernel: str) -> str:
        """The library that has a kernel."""


def cache_key(inputs: Sequence[bytes]) -> str:
    """sha256 over the inputs, each preceded by its length: no two lists of inputs give the same bytes."""
    digest = hashlib.sha256()
    for part in inputs:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def default_cache_folder() -> Path | None:
    """``AVO_OPS_CACHE``, else ``avo_ops`` in the user's cache folder; None if there is no home."""
    named = os.environ.get("AVO_OPS_CACHE")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "avo_ops"
    except RuntimeError:
        return None


class KernelStore:
    """Answers where the cubin of a unit of kernels for an architecture is.

    Args:
        packaged: folder with ``sm_XX/<unit>.cubin`` (and ``compute_XX/<unit>.ptx``), or None. Only read.
        cache: the user's folder; None or unwritable: a private temporary one, with one warning.
        compiler: makes what is not there; None: nothing is compiled.
        accepts_ptx: whether the driver takes this PTX file (its version may be newer than the driver).
        suffix: of the files in the cache.
    """

    def __init__(
        self,
        packaged: Path | None,
        cache: Path | None,
        compiler: Compiler | None,
        accepts_ptx: Callable[[Path], bool] = lambda path: False,
        suffix: str = ".cubin",
    ) -> None:
        self._suffix = suffix
        self._packaged = [] if packaged is None else [packaged]
        self._cache, self.compiler = cache, compiler
        self._accepts_ptx = accepts_ptx
        self._mutex = threading.Lock()
        self._writable = True
        self._temporary: Path | None = None
        self._warned: set[str] = set()

    def add_packaged(self, folder: Path) -> None:
        """Look into this folder too, as into ``packaged``."""
        if folder not in self._packaged:
            self._packaged.append(folder)

    def resolve(self, unit: str, arch: int) -> str | None:
        """The path of a file that the driver loads on compute capability ``arch`` (90 for 9.0), or None."""
        found = self._find_packaged(unit, arch)
        if found is None and self.compiler is not None:
            found = self._find_compiled(self.compiler, unit, f"sm_{arch}" if arch else "this machine")
        if found is None:
            found = self._find_ptx(unit, arch)
        return None if found is None else str(found)

    # ---- the package ----

    def _find_packaged(self, unit: str, arch: int) -> Path | None:
        # A cubin also runs on later minor versions of its major compute capability.
        for minor in range(arch % 10, -1, -1):
            path = self._packaged_file(f"sm_{arch // 10 * 10 + minor}", f"{unit}{self._suffix}")
            if path is not None:
                return path
        return None

    def _find_ptx(self, unit: str, arch: int) -> Path | None:
        found = {
            p.name.removeprefix("compute_") for folder in self._packaged for p in folder.glob("compute_*")
        }
        for version in sorted((int(v) for v in found if v.isdigit()), reverse=True):
            path = self._packaged_file(f"compute_{version}", f"{unit}.ptx")
            if version <= arch and path is not None and self._accepts_ptx(path):
                return path
        return None

    def _packaged_file(self, folder: str, name: str) -> Path | None:
        paths = (packaged / folder / name for packaged in list(self._packaged))
        return next((path for path in paths if path.is_file()), None)

    # ---- the cache, and the compiler behind it ----

    def _find_compiled(self, compiler: Compiler, unit: str, arch: str) -> Path | None:
        try:
            key = cache_key(compiler.inputs(unit, arch))
        except Exception as error:  # a missing compiler must not fail the call: the definition runs
            self._warn(f"avo_ops: no kernel {unit} for {arch}: {error}")
            return None
        for folder in (self._cache, self._temporary):
            found = lookup(folder, key, self._suffix) if folder is not None else None
            if found is not None:
                return found
        return self._compiled(compiler, unit, arch, key)

    def _compiled(self, compiler: Compiler, unit: str, arch: str, key: str) -> Path | None:
        if self._cache is not None and self._writable:
            try:
                return self._compiled_into(self._cache, compiler, unit, arch, key)
            except OSError as error:
                self._writable = False  # what is in it is still read
                self._warn(f"avo_ops: kernels cannot be kept in {self._cache} ({error}): set AVO_OPS_CACHE")
        elif self._cache is None:
            self._warn("avo_ops: there is no folder to keep kernels in: set AVO_OPS_CACHE")
        return self._compiled_into(self._temporary_folder(), compiler, unit, arch, key)

    def _compiled_into(self, folder: Path, compiler: Compiler, unit: str, arch: str, key: str) -> Path | None:
        with _locked(folder, key) as alone:
            found = lookup(folder, key, self._suffix)  # another process may have been faster
            if found is not None:
                return found
            if alone:
                _remove_leftovers(folder, key, self._suffix)
            try:
                binary = compiler.compile(unit, arch)
            except Frozen:
                raise
            except Exception as error:
                self._warn(f"avo_ops: no kernel {unit} for {arch}: {error}")
                return None
            path = publish(folder, key, binary, self._suffix)
        cache.prune(folder, keep=path)
        return path

    def _temporary_folder(self) -> Path:
        with self._mutex:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="avo_ops-"))
                atexit.register(_remove_folder, self._temporary, os.getpid())
            return self._temporary

    def _warn(self, message: str) -> None:
        with self._mutex:
            known = message in self._warned
            self._warned.add(message)
        if not known:
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def _remove_folder(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child shares the folder with its parent
        shutil.rmtree(folder, ignore_errors=True)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entries_of(folder: Path, key: str, suffix: str) -> list[Path]:
    """The files of a key, damaged ones included."""
    try:
        names = os.listdir(folder / key[:2])
    except OSError:
        return []
    return [folder / key[:2] / n for n in sorted(names) if n.startswith(f"{key}-") and n.endswith(suffix)]


def lookup(folder: Path, key: str, suffix: str) -> Path | None:
    """The entry of a key whose content has the checksum in its name."""
    return next((path for path, _ in read_all(folder, key, suffix)), None)


def read_all(folder: Path, key: str, suffix: str) -> Iterator[tuple[Path, bytes]]:
    """The entries of a key that are not damaged, with their content."""
    for path in entries_of(folder, key, suffix):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if path.name == f"{key}-{_checksum(content)}{suffix}":
            with contextlib.suppress(OSError):  # a folder that may only be read
                os.utime(path)  # the entries used least recently are removed first
            yield path, content


def publish(folder: Path, key: str, binary: bytes, suffix: str) -> Path:
    """Make an entry of a key, by one rename.

    Raises:
        OSError: the folder cannot be written to.
    """
    target = folder / key[:2] / f"{key}-{_checksum(binary)}{suffix}"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{key}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(binary)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return target


def _remove_leftovers(folder: Path, key: str, suffix: str) -> None:
    """Remove damaged entries, and what killed writers left. Only under the lock of the key."""
    for path in [*entries_of(folder, key, suffix), *(folder / key[:2]).glob(f"{key}.*.tmp")]:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _locked(folder: Path, key: str) -> Iterator[bool]:
    """Holds the lock of a key, between threads and processes. False where the file system has no locks."""
    (folder / key[:2]).mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / key[:2] / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            alone = True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            alone = False  # twice the work, at worst: entries appear by rename
        yield alone
    finally:
        os.close(handle)
