"""Builds the native parts of avo_ops: the runtime library, the CPU kernels, where it compiles the accelerator for the
installed torch, and where NVRTC is there the CUDA kernels.

Everything is compiled into build/ (objects by ninja, cubins by NVRTC, both only if out of date) and then laid where
this build wants it: into the source tree (``pip install -e .``, ``setup.py build_ext --inplace``) or into the package
that becomes a wheel. It needs g++ and torch's headers; no CUDA toolkit, no GPU, and torch itself is not imported.

Environment: CXX; MAX_JOBS; AVO_OPS_ARCHS ("sm_90,sm_100", "release" or "none"; default: the GPUs present, or sm_90).
"""

from __future__ import annotations

import ctypes
import fcntl
import filecmp
import importlib
import importlib.util
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "avo_ops"
GENERATED = ROOT / "generated"
BUILD = Path("build/native")  # relative, as all paths in build.ninja: a copied tree need not be rebuilt
KERNELS = ROOT / "build" / "kernels"

# The oldest torch whose stable ABI the runtime may use: 2.11.
RUNTIME_FLAGS = (
    "-std=c++20 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -DTORCH_TARGET_VERSION=0x020b000000000000"
)
# No contraction: fma stands where the IR says so, and nowhere else. No errno: sqrt is one instruction.
# No exceptions: nothing here throws, and what handles them is libstdc++'s.
CPU_FLAGS = (
    "-std=c++20 -O3 -fPIC -ffp-contract=off -fno-math-errno -fno-exceptions -Wall -Wextra -Iavo_ops/csrc"
)
# Against libtorch and Python themselves, not a stable ABI.
ACCELERATOR_FLAGS = "-std=c++20 -O2 -fPIC -fvisibility=hidden -Wall -Wextra"
ISAS = {"base": "-march=x86-64", "v3": "-march=x86-64-v3", "v4": "-march=x86-64-v4"}
# With it the kernels of compiled functions are linked: generator/gcc.py.
COMMON = "avo_cpu_common.{}.o"
CPU_EXPORTS = "{ global: avo_cpu_kernels_*; avo_cpu_finish_*; local: *; };\n"
RUNTIME_EXPORTS = "{ global: avo_*; local: *; };\n"
ACCELERATOR_EXPORTS = "{ global: PyInit_avo_torch; local: *; };\n"

RULES = """\
ninja_required_version = 1.5
builddir = {build}

rule compile
  command = {cxx} -MMD -MF $out.d $flags -c $in -o $out # $made_by
  depfile = $out.d
  deps = gcc
  description = compile $out

rule link
  command = {cxx} -shared -Wl,--as-needed -Wl,--version-script=$exports $in $flags -o $out # $made_by
  description = link $out
"""


class BuildError(RuntimeError):
    """The build cannot go on; the message says what to do."""


# ---- libraries, by ninja ----


def installed_torch() -> tuple[Path, str]:
    """The folder of the installed torch, and its version, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(
            "torch is not installed here: avo_ops is compiled against its headers (pip install torch)"
        )
    home = Path(spec.submodule_search_locations[0])
    version = re.search(r"__version__ = '([^']+)'", (home / "version.py").read_text())
    return home, version[1] if version else "unknown"


def ninja_text(cxx: str, compiler: str) -> str:
    """The text of build.ninja. A command ends in what made it, so that another compiler or torch rebuilds."""
    torch, torch_version = installed_torch()
    include = f"-isystem {shlex.quote(str(torch / 'include'))}"
    statements = [RULES.format(build=BUILD, cxx=cxx)]

    def compile_(source: Path, target: Path, flags: str, made_by: str) -> Path:
        statements.append(
            f"build {target}: compile {source}\n  flags = {_escaped(flags)}\n  made_by = {_escaped(made_by)}"
        )
        return target

    def link(name: str, objects: Sequence[Path], flags: str) -> None:
        exports = BUILD / f"{name}.map"
        statements.append(
            f"build {BUILD / name}: link {' '.join(map(str, objects))} | {exports}\n"
            f"  exports = {exports}\n  flags = {_escaped(flags)}\n  made_by = {_escaped(compiler)}"
        )

    runtime = [
        compile_(
            source,
            BUILD / "runtime" / f"{source.stem}.o",
            f"{RUNTIME_FLAGS} {include}",
            f"{compiler}, torch {torch_version}",
        )
        for source in [*_sources("avo_ops/csrc/runtime"), *_sources("avo_ops/csrc/emulator")]
    ]
    # torch has its library loaded by the time ours is: the name is enough, whichever torch and wherever it is.
    torch_library = f"-L{shlex.quote(str(torch / 'lib'))} -Wl,--no-as-needed -ltorch_cpu -Wl,--as-needed"
    link("libavo_runtime.so", runtime, f"{torch_library} -ldl -lpthread -Wl,--no-undefined")
    per_isa = {
        isa: f"{CPU_FLAGS} {march} -DAVO_ISA_NAMESPACE=avo_{isa} -DAVO_ISA_SUFFIX={isa}"
        for isa, march in ISAS.items()
    }
    (common,) = _sources("avo_ops/csrc/cpu")
    kernels = [
        compile_(common, BUILD / COMMON.format(isa), flags, compiler) for isa, flags in per_isa.items()
    ]
    kernels += [
        compile_(source, BUILD / "cpu" / f"{source.stem}.{isa}.o", flags, compiler)
        for source in _sources("generated/cpu")
        for isa, flags in per_isa.items()
    ]
    link("libavo_cpu.so", kernels, "-Wl,--no-undefined")

    made_by = f"{compiler}, torch {torch_version}, {sysconfig.get_config_var('SOABI')}"
    headers = [
        torch / "include",
        torch / "include/torch/csrc/api/include",
        Path(sysconfig.get_path("include")),
    ]
    flags = " ".join([ACCELERATOR_FLAGS, *(f"-isystem {shlex.quote(str(folder))}" for folder in headers)])
    accelerator = [
        compile_(source, BUILD / "torch" / f"{source.stem}.o", flags, made_by)
        for source in _sources("avo_ops/csrc/torch")
    ]
    torch_libraries = f"-L{shlex.quote(str(torch / 'lib'))} -ltorch_python -ltorch_cpu -lc10"
    link(accelerator_name(torch_version), accelerator, torch_libraries)
    return "\n\n".join(statements) + "\n"


def accelerator_name(torch_version: str) -> str:
    """As registry/accelerator.py looks for it."""
    return f"avo_torch-{torch_version}-{sysconfig.get_config_var('SOABI')}.so"


def _sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).glob("*.cpp"))
    if not found:
        raise BuildError(f"{ROOT / folder} has no sources")
    return [path.relative_to(ROOT) for path in found]


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def build_libraries() -> list[Path]:
    """Compile what is out of date. What is laid into lib/: the accelerator last, if it could be compiled."""
    cxx = os.environ.get("CXX", "g++")
    try:
        version = subprocess.check_output([*shlex.split(cxx), "--version"], stderr=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"the C++ compiler {cxx!r} does not run ({error}): install g++ or set CXX") from None
    folder = ROOT / BUILD
    folder.mkdir(parents=True, exist_ok=True)
    _write_if_different(folder / "libavo_runtime.so.map", RUNTIME_EXPORTS)
    _write_if_different(folder / "libavo_cpu.so.map", CPU_EXPORTS)
    accelerator = accelerator_name(installed_torch()[1])
    _write_if_different(folder / f"{accelerator}.map", ACCELERATOR_EXPORTS)
    _write_if_different(folder / "build.ninja", ninja_text(cxx, version.splitlines()[0]))
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))

    start = [_ninja(), "-C", str(ROOT), "-f", str(BUILD / "build.ninja")]

    def ninja(*names: str) -> bool:
        targets = [str(BUILD / name) for name in names]
        return subprocess.run([*start, "-j", jobs, *targets]).returncode == 0

    # Objects whose source is no longer generated.
    subprocess.run([*start, "-t", "cleandead"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    needed = ("libavo_runtime.so", "libavo_cpu.so")
    if not ninja(*needed):
        raise BuildError("the libraries did not compile")
    built = (*needed, *(COMMON.format(isa) for isa in ISAS))
    if ninja(accelerator):
        return [folder / name for name in (*built, accelerator)]
    print(
        "warning: the accelerator did not compile; without it each call costs some microseconds more",
        flush=True,
    )
    return [folder / name for name in built]


def _ninja() -> str:
    beside = Path(sys.executable).parent / "ninja"  # a virtual environment that is not activated
    found = str(beside) if beside.exists() else shutil.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed here (pip install ninja)")
    return found


def _write_if_different(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


# ---- CUDA kernels, by NVRTC ----


def package_module(name: str) -> Any:
    """A module of avo_ops, without running avo_ops/__init__.py, which registers operators."""
    if "avo_ops" not in sys.modules:
        parent = types.ModuleType("avo_ops")
        parent.__path__ = [str(PACKAGE)]
        sys.modules["avo_ops"] = parent
    return importlib.import_module(f"avo_ops.{name}")


def present_archs() -> list[str]:
    """The archs of this machine's GPUs, asked of the driver; none without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return []

        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR; a CUdevice is its ordinal.
        def capability(device: int, attribute: int) -> int:
            value = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            return value.value

        archs = {f"sm_{capability(device, 75)}{capability(device, 76)}" for device in range(count.value)}
        return sorted(archs)
    except (OSError, AttributeError):
        return []


def build_kernels() -> list[Path]:
    """Compile the units that are out of date for the wanted archs. All cubins, relative to build/kernels."""
    build, nvrtc = package_module("generator.build"), package_module("generator.nvrtc")
    archs = build.archs_to_build(present=present_archs)
    if not archs:
        return []
    try:
        version = nvrtc.load().version
    except nvrtc.NvrtcError as error:
        print(f"warning: no CUDA kernels are built; they are compiled when first used. {error}", flush=True)
        return []
    plan = package_module("plan_file").load(GENERATED)
    print(f"CUDA kernels for {', '.join(archs)}, by NVRTC {version[0]}.{version[1]}", flush=True)

    def progress(done: int, total: int, what: str) -> None:
        if done % 20 == 0 or done == total:
            print(f"[{done}/{total}] {what}", flush=True)

    if sys.platform == "linux":  # a child that is not forked would import avo_ops and register its operators
        multiprocessing.set_start_method("fork", force=True)
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
    totals = build.compile_all(plan, GENERATED, KERNELS, archs, jobs=jobs, progress=progress)
    print(
        f"CUDA kernels: {totals['variants']} variants in {totals['units']} modules, {totals['compiled']} compiled "
        f"in {totals['seconds']} s, {totals['bytes'] / 1e6:.1f} MB",
        flush=True,
    )
    return [
        Path(arch) / build.file_name(unit.name, arch) for arch in archs for unit in build.packaged_units(plan)
    ]


# ---- laying what was built where it is wanted ----


def lay(source: Path, target: Path) -> None:
    """Copy a file unless it is there already; by a rename, since a running process may have the old one mapped."""
    if target.exists() and filecmp.cmp(source, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy2(source, temporary)
    temporary.replace(target)


def mirror(source: Path, files: Sequence[Path], target: Path) -> None:
    """Make ``target`` hold exactly these files: a left-over kernel of an older source would be found and run."""
    wanted = set(files)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(target) not in wanted:
            path.unlink()
    for file in files:
        lay(source / file, target / file)


@contextmanager
def alone() -> Iterator[None]:
    """One build at a time in this tree."""
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class BuildNative(build_ext):
    """build_ext that builds libraries which any Python loads, and kernels, instead of extension modules."""

    def run(self) -> None:
        with alone():
            libraries, kernels = build_libraries(), build_kernels()
            package = PACKAGE if self.inplace else Path(self.build_lib).absolute() / "avo_ops"
            # Nothing else may stay there: an accelerator of other sources would not fit the runtime.
            mirror(ROOT / BUILD, [Path(library.name) for library in libraries], package / "lib")
            if self.inplace:
                # The generated sources are read where they are. The stamps tell `avo_ops compile` what is fresh.
                stamps = [path.with_suffix(".stamp") for path in kernels]
                mirror(KERNELS, [*kernels, *stamps], GENERATED / "kernels")
            else:
                sources = [Path("plan.json"), *self._generated("cuda/*.cu"), *self._generated("cpu/*.cpp")]
                mirror(GENERATED, sources, package / "_generated")
                mirror(KERNELS, kernels, package / "_generated" / "kernels")

    @staticmethod
    def _generated(pattern: str) -> list[Path]:
        return sorted(path.relative_to(GENERATED) for path in GENERATED.glob(pattern))


class BuildPython(build_py):
    """build_py into an empty folder: setuptools would pack modules that are no longer in the source."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "avo_ops", ignore_errors=True)
        super().run()


class Wheel(bdist_wheel):
    """One wheel serves every Python and torch: what it needs uses torch's stable ABI and not Python's.

    The accelerator is for one of each and named so; others go without.
    """

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


if __name__ == "__main__":
    setup(
        distclass=NativeDistribution,
        ext_modules=[],
        cmdclass={"build_ext": BuildNative, "build_py": BuildPython, "bdist_wheel": Wheel},
    )
