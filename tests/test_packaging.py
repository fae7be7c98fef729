"""The build, as users run it: what is compiled again and when, what a wheel holds, what the libraries export."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = {"__pycache__", "dist", "cache"}

# All tests that build share one tree; with xdist, one worker.
pytestmark = pytest.mark.xdist_group("packaging")


def load_setup() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("avo_ops_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def left_out(folder: str, found: list[str]) -> set[str]:
    """What a copy of the source tree leaves out. Ninja's log goes along: without it all would be compiled anew."""
    hidden = {
        name for name in found if name.startswith(".") and not name.startswith((".ninja", ".clang-format"))
    }
    made = {name for name in found if name.startswith(("lib.linux", "bdist.")) or name.endswith(".egg-info")}
    return hidden | made | NOT_COPIED.intersection(found)


# What kernels of compiled functions are linked with.
COMMON = {f"avo_cpu_common.{isa}.o" for isa in ("base", "v3", "v4")}


class Tree:
    """A copy of the source tree with what is compiled already, so that only what a test changes is compiled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT, root, ignore=left_out)
        kernels = root / "build" / "kernels"
        # The archs that this checkout was built for; without any, the tests do not compile CUDA.
        self.archs = sorted(p.name for p in kernels.iterdir()) if kernels.is_dir() else []
        self.environment = {**os.environ, "AVO_OPS_ARCHS": ",".join(self.archs) or "none"}

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert not check or result.returncode == 0, result.stdout
        return result

    def build(self, check: bool = True, **environment: str) -> str:
        return self.run("setup.py", "-q", "build_ext", "--inplace", check=check, **environment).stdout

    def rebuilt(self) -> set[str]:
        """The objects and libraries that a build makes anew."""
        made = re.findall(r"^\[\d+/\d+\] (?:compile|link) build/native/(\S+)$", self.build(), re.M)
        return set(made)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("build") / "tree")
    tree.build()
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Tree) -> Path:
    # What setuptools left of a module that the source no longer has.
    removed = (
        tree.root / "build" / f"lib.linux-x86_64-{sys.implementation.cache_tag}" / "avo_ops" / "removed.py"
    )
    removed.parent.mkdir(parents=True, exist_ok=True)
    removed.write_text("")
    tree.run("-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", "dist", ".")
    (path,) = (tree.root / "dist").glob("*.whl")
    return path


# ---- what is built again ----


def test_a_second_build_compiles_nothing(tree: Tree) -> None:
    out = tree.build()
    assert "no work to do" in out
    assert not tree.archs or re.search(r"^CUDA kernels: \d+ variants in \d+ modules, 0 compiled ", out, re.M)


def test_a_changed_source_is_recompiled_alone(tree: Tree) -> None:
    source = tree.root / "generated" / "cpu" / "index.cpp"
    source.write_text(source.read_text() + "// changed\n")
    assert tree.rebuilt() == {"cpu/index.base.o", "cpu/index.v3.o", "cpu/index.v4.o", "libavo_cpu.so"}
    assert tree.rebuilt() == set()


def test_a_changed_header_recompiles_who_includes_it(tree: Tree) -> None:
    header = tree.root / "avo_ops" / "csrc" / "runtime" / "stats.h"
    header.write_text(header.read_text() + "// changed\n")
    rebuilt = tree.rebuilt()
    assert {"runtime/stats.o", "runtime/api.o", "libavo_runtime.so"} <= rebuilt
    assert "runtime/arguments.o" not in rebuilt and "libavo_cpu.so" not in rebuilt


def test_another_compiler_or_torch_recompiles(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load_setup()
    home, _ = setup.installed_torch()

    def statements(compiler: str, torch_version: str) -> dict[str, str]:
        monkeypatch.setattr(setup, "installed_torch", lambda: (home, torch_version))
        parts = re.split(r"^build ", setup.ninja_text("g++", compiler), flags=re.M)[1:]
        return {part.partition(":")[0]: part for part in parts}

    old, newer, other = (
        statements("g++ 12", "2.13"),
        statements("g++ 13", "2.13"),
        statements("g++ 12", "2.14"),
    )
    assert all(old[target] != newer[target] for target in old)
    # The accelerator of another torch is another file.
    changed = {target for target in old if old[target] != other.get(target)}
    expected = {target for target in old if re.search("/runtime/|/torch/|/avo_torch-", target)}
    assert changed == expected and len({name.rpartition("/")[0] for name in changed}) == 3


def test_a_missing_compiler_is_said(tree: Tree) -> None:
    out = tree.build(check=False, CXX="no-such-compiler")
    assert "the C++ compiler 'no-such-compiler' does not run" in out and "install g++ or set CXX" in out


def test_an_error_in_a_source_fails_the_build(tree: Tree) -> None:
    source = tree.root / "avo_ops" / "csrc" / "runtime" / "stats.cpp"
    text = source.read_text()
    source.write_text(text + "#error planted\n")
    try:
        result = tree.run("setup.py", "-q", "build_ext", "--inplace", check=False)
    finally:
        source.write_text(text)
    assert result.returncode != 0 and "planted" in result.stdout
    tree.build()


needs_headers = pytest.mark.skipif(
    not (Path(sysconfig.get_path("include")) / "Python.h").is_file(), reason="a Python without its headers"
)


@needs_headers
def test_an_accelerator_that_does_not_compile_is_a_warning(tree: Tree) -> None:
    source = tree.root / "avo_ops" / "csrc" / "torch" / "call.cpp"
    text = source.read_text()
    lib = tree.root / "avo_ops" / "lib"
    (lib / "avo_torch-2.0-cpython-311.so").write_text("of an older build")
    source.write_text(text + "#error planted\n")
    try:
        out = tree.build()
    finally:
        source.write_text(text)
    assert "planted" in out and "warning: the accelerator did not compile" in out
    assert {path.name for path in lib.iterdir()} == {"libavo_runtime.so", "libavo_cpu.so"} | COMMON
    tree.build()
    assert len(list(lib.glob("avo_torch-*.so"))) == 1


def test_without_nvrtc_the_build_warns_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = load_setup()
    from avo_ops.generator import build, nvrtc

    def missing() -> nvrtc.Nvrtc:
        raise nvrtc.NvrtcError("NVRTC was not found. Install it with: pip install it")

    monkeypatch.setattr(nvrtc, "load", missing)
    monkeypatch.setenv("AVO_OPS_ARCHS", "sm_90")
    monkeypatch.setattr(
        setup, "package_module", {"generator.build": build, "generator.nvrtc": nvrtc}.__getitem__
    )
    assert setup.build_kernels() == []
    assert "warning: no CUDA kernels are built" in capsys.readouterr().out


def test_the_generator_is_loaded_without_the_package() -> None:
    """setup.py must not run avo_ops/__init__.py (which registers operators), nor import torch."""
    program = (
        "import runpy, sys\n"
        "setup = runpy.run_path('setup.py', run_name='setup')\n"
        "build = setup['package_module']('generator.build')\n"
        "print(build.CSRC, 'torch' in sys.modules, hasattr(sys.modules['avo_ops'], '__version__'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [str(ROOT / "avo_ops" / "csrc"), "False", "False"]


def test_mirror_removes_what_is_not_of_this_build(tmp_path: Path) -> None:
    setup = load_setup()
    source, target = tmp_path / "source", tmp_path / "target"
    for path, text in (
        (source / "sm_90/a.cubin", "new"),
        (target / "sm_90/a.cubin", "old"),
        (target / "sm_80/b", "old"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    setup.mirror(source, [Path("sm_90/a.cubin")], target)
    assert [p.relative_to(target) for p in target.rglob("*") if p.is_file()] == [Path("sm_90/a.cubin")]
    assert (target / "sm_90/a.cubin").read_text() == "new"
    before = (target / "sm_90/a.cubin").stat().st_ino
    setup.mirror(source, [Path("sm_90/a.cubin")], target)
    assert (target / "sm_90/a.cubin").stat().st_ino == before, "an equal file is left alone"


# ---- what is built ----


def names(path: Path, *options: str) -> list[tuple[str, str]]:
    """(type, name) of the symbols of a file."""
    out = subprocess.run(["nm", "-P", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return [(line.split()[1], line.split()[0].partition("@")[0]) for line in out.splitlines() if line.strip()]


def needed(path: Path) -> set[str]:
    out = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert "RUNPATH" not in out and "RPATH" not in out
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", out))


def test_symbols_of_the_cpu_kernels(tree: Tree) -> None:
    library = tree.root / "avo_ops" / "lib" / "libavo_cpu.so"
    assert {name for _, name in names(library, "-D", "--defined-only")} == {
        f"avo_cpu_{what}_{isa}" for what in ("kernels", "finish") for isa in ("base", "v3", "v4")
    }
    assert needed(library) <= {"libm.so.6", "libc.so.6"}


@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_no_code_of_an_instruction_set_leaks(tree: Tree, isa: str) -> None:
    """The linker keeps one of several weak symbols of a name: the v4 one would end an older machine's process."""
    objects = sorted((tree.root / "build" / "native" / "cpu").glob(f"*.{isa}.o"))
    assert len(objects) == len(list((tree.root / "generated" / "cpu").glob("*.cpp")))
    exported = {f"avo_cpu_kernels_{isa}", f"avo_cpu_finish_{isa}"}
    space = f"avo_{isa}"
    checked = 0
    for path in objects:
        for kind, name in names(path, "--defined-only"):
            if kind.islower() and kind not in "vwu":
                continue  # local to the object
            # In the namespace, or a template or guard of something that is.
            assert name in exported or f"{len(space)}{space}" in name, (path.name, kind, name)
            checked += 1
    assert checked > 0


@needs_headers
def test_symbols_of_the_accelerator(tree: Tree) -> None:
    import torch

    (library,) = (tree.root / "avo_ops" / "lib").glob("avo_torch-*.so")
    assert library.name == load_setup().accelerator_name(torch.__version__)
    assert [name for _, name in names(library, "-D", "--defined-only")] == ["PyInit_avo_torch"]
    torch_libraries = {"libtorch_python.so", "libtorch_cpu.so", "libc10.so"}
    assert torch_libraries <= needed(library) and not [name for name in needed(library) if "cuda" in name]
    # The runtime is loaded by its path, and handed over.
    assert not [name for _, name in names(library, "-D", "--undefined-only") if name.startswith("avo_")]


def test_symbols_of_the_runtime(tree: Tree) -> None:
    library = tree.root / "avo_ops" / "lib" / "libavo_runtime.so"
    defined = {name for _, name in names(library, "-D", "--defined-only")}
    assert "avo_register_operator" in defined and all(name.startswith("avo_") for name in defined)
    torch_library = "libtorch_cpu.so"  # by its name alone; torch has loaded it by then
    system = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6"}
    assert torch_library in needed(library)
    assert needed(library) <= {torch_library, "ld-linux-x86-64.so.2"} | system
    # The stable ABI is C functions. A C++ name of torch would tie the library to one release.
    undefined = {name for _, name in names(library, "-D", "--undefined-only")}
    assert not [name for name in undefined if re.match(r"_Z\w*?(2at|3c10|5torch|5caffe2)", name)]
    assert any(name.startswith("aoti_torch_") for name in undefined)


# ---- the wheel ----


def test_the_wheel_holds_what_is_needed(tree: Tree, wheel: Path) -> None:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "avo_ops" / "__init__.py").read_text(), re.M)
    assert version and wheel.name == f"avo_ops-{version[1]}-py3-none-linux_x86_64.whl"
    found = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"avo_ops/lib/libavo_runtime.so", "avo_ops/lib/libavo_cpu.so", "avo_ops/_generated/plan.json"}
    wanted |= {f"avo_ops/lib/{path.name}" for path in (tree.root / "avo_ops" / "lib").iterdir()}
    for folder, place, patterns in (
        ("avo_ops", "avo_ops", ("*.py", "*.h", "*.cuh")),
        ("generated", "avo_ops/_generated", ("cuda/*.cu", "cpu/*.cpp")),
        ("build/kernels", "avo_ops/_generated/kernels", ("*.cubin", "*.ptx")),
    ):
        base = tree.root / folder
        wanted |= {
            f"{place}/{path.relative_to(base)}" for pattern in patterns for path in base.rglob(pattern)
        }
    assert wanted <= found
    others = found - {f"avo_ops/lib/{name}" for name in COMMON}
    assert len(others) == len(found) - len(COMMON)
    assert not [name for name in others if name.endswith((".o", ".stamp", ".pyc")) or "removed" in name]
    assert {name.partition("/")[0] for name in found} == {"avo_ops", f"avo_ops-{version[1]}.dist-info"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    command = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, *command], check=True)
    return target


def in_installed(installed: Path, cwd: Path, program: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AVO_OPS_")}
    environment |= {"PYTHONPATH": str(installed), "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_wheel_runs_without_the_source_tree(installed: Path, tmp_path: Path) -> None:
    program = """
import torch, avo_ops
from avo_ops.generator import build
from avo_ops.registry import native_library
assert native_library.runtime() is not None
assert (avo_ops.registry.accelerator._module() is not None) == avo_ops.registry.accelerator.path().is_file()
x = torch.randn(3, 5)
torch.testing.assert_close(torch.ops.avo.gelu(x), torch.nn.functional.gelu(x))
print(avo_ops.__file__, build.generated_folder(), sorted(native_library.counters()), sep="\\n")
"""
    file, folder, counters = in_installed(installed, tmp_path, program).splitlines()
    assert Path(file) == installed / "avo_ops" / "__init__.py"
    assert Path(folder) == installed / "avo_ops" / "_generated"
    assert "gelu" in counters, "the kernel ran, not the definition"
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_the_kernels_of_the_wheel_are_found(tree: Tree, installed: Path, tmp_path: Path) -> None:
    if "sm_90" not in tree.archs:
        pytest.skip("this checkout is built without kernels for sm_90")
    program = """
from avo_ops.registry import generated_folder
from avo_ops.registry.store import KernelStore
print(KernelStore(generated_folder() / "kernels", None, None).resolve("silu_forward", 90))
"""
    expected = installed / "avo_ops/_generated/kernels/sm_90/silu_forward.cubin"
    assert Path(in_installed(installed, tmp_path, program)) == expected and expected.is_file()


def test_the_source_distribution_holds_what_a_build_reads(tree: Tree) -> None:
    program = "import setuptools.build_meta as b; print(b.build_sdist('dist'))"
    name = tree.run("-c", program).stdout.split()[-1]
    with tarfile.open(tree.root / "dist" / name) as archive:
        found = {path.partition("/")[2] for path in archive.getnames()}
    for folder, patterns in (
        ("avo_ops", ("*.py", "*.h", "*.cuh", "*.cpp")),
        ("generated", ("plan.json", "*.cu", "*.cpp")),
        ("tests", ("*.py",)),
    ):
        for pattern in patterns:
            paths = {str(p.relative_to(tree.root)) for p in (tree.root / folder).rglob(pattern)}
            assert paths and paths <= found, pattern
    assert {"setup.py", "pyproject.toml", "LICENSE", "Makefile", "requirements-dev.txt"} <= found
    assert not [path for path in found if path.endswith((".so", ".o", ".cubin"))]


def test_an_editable_install_finds_the_tree(tree: Tree, tmp_path: Path) -> None:
    """``pip install -e .`` builds in place and leaves no copy of the generated sources that could grow stale."""
    command = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-e", "."]
    tree.run(*command, "--prefix", str(tmp_path / "prefix"))
    assert (tree.root / "avo_ops" / "lib" / "libavo_runtime.so").is_file()
    assert not (tree.root / "avo_ops" / "_generated").exists()
    (site,) = (tmp_path / "prefix").rglob("site-packages")
    assert not (site / "avo_ops").exists() and list(site.glob("avo_ops-*.dist-info"))


@pytest.mark.parametrize("driver", [None, "no devices"])
def test_archs_of_a_machine_without_a_gpu(driver: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load_setup()

    def load(name: str) -> object:
        assert name == "libcuda.so.1"
        if driver is None:
            raise OSError(name)
        return types.SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGetCount=lambda count: 0)

    monkeypatch.setattr(setup.ctypes, "CDLL", load)
    assert setup.present_archs() == []


def test_archs_of_present_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load_setup()
    capabilities = [(9, 0), (8, 6), (9, 0)]

    def count(result: object) -> int:
        result._obj.value = len(capabilities)  # type: ignore[attr-defined]
        return 0

    def attribute(result: object, which: int, device: int) -> int:
        result._obj.value = capabilities[device][which - 75]  # type: ignore[attr-defined]
        return 0

    driver: dict[str, Callable[..., int]] = {
        "cuInit": lambda flags: 0,
        "cuDeviceGetCount": count,
        "cuDeviceGetAttribute": attribute,
    }
    monkeypatch.setattr(setup.ctypes, "CDLL", lambda name: types.SimpleNamespace(**driver))
    assert setup.present_archs() == ["sm_86", "sm_90"]
