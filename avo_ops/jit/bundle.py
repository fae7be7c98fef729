"""Bundles: compiled functions as a folder of JSON and binaries, made on one machine and served on another.

bundle.json      package, torch, instruction sets and archs; for each function its graphs, for each operator its definition
plan.json        the operators and their CUDA families, as that of the catalogue (``plan_file``)
constants/N.bin  the bytes of a tensor that is no argument
cpu_<isa>.so     the CPU kernels of all operators
sm_<arch>/       a cubin for each unit of CUDA kernels
SHA256SUMS       of all other files, as ``sha256sum -c`` reads it
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from .. import plan_file
from ..registry import add_kernels, native_library, register_dynamic
from ..registry.dynamic import record_of
from ..registry.layout import DTYPES, NAMED
from ..registry.native import SHORT_NAMES, families_of
from ..registry.store import KernelStore, default_cache_folder
from .calls import exported_kind_of
from .codec import NotEncodable, decode, encode
from .compilers import EmulatorCompiler, GeneratorCompiler, note_exported
from .composite import Composite
from .function import CompiledFunction
from .graph import Graph
from .graph_file import encoded_graph, key_and_graph
from .kernels import compile_cpu_library, known_operator, mark_loaded
from .loaded import LoadedFunction
from .program import KernelStep

Json = dict[str, Any]
Tensor = torch.Tensor

FORMAT = 2
_ISAS = ("base", "v3", "v4")
_SUMS = "SHA256SUMS"


class BundleError(ValueError):
    """A bundle cannot be made, or is not fit to be loaded here; the message is one sentence that says why."""


# ---- export ----


def export(
    path: str | os.PathLike[str],
    functions: Sequence[CompiledFunction],
    archs: Sequence[str] = (),
    cpu: Sequence[str] | None = None,
    gradients: bool = True,
) -> None:
    """Write compiled functions, all their graphs with forward and backward, into a folder that :func:`load` serves elsewhere.

    What is exported are the graphs made so far: by calls, ``example_inputs``, ``prepare`` or ``warmup``. With ``archs`` each graph
    that was made for the CPU is exported for CUDA besides: the function is traced again for tensors that lie there. No GPU is
    needed. Globals and closures, tensors among them too, are as they are now; no gradient goes to them.

    Args:
        path: the folder. A bundle that is there is replaced, anything else is left alone.
        functions: what :func:`avo_ops.compile` returned, of different names.
        archs: GPUs such as "sm_90", whose kernels NVRTC makes: all of every width that the dtypes may need. "emulator": those
            of the emulator (:func:`avo_ops.testing.emulate`), by g++.
        cpu: instruction sets of the CPU kernels, of "base", "v3", "v4" (x86-64, -v3, -v4); by default this machine's. () for none.
        gradients: False leaves out the CUDA kernels of the backward, which are three of four; a gradient there is then left to
            torch, after a warning.

    Raises:
        avo_ops.BundleError: an argument is none of the above; a function has no graph, was not traced, or holds what JSON cannot
            say; the folder is there and no bundle.
        Exception: a compiler is missing or fails; the message says which.
    """
    path = Path(path).absolute()
    _check_arguments(path, functions, archs, cpu)
    native = native_library.runtime()
    isas = [native.cpu_isa() if native else "base"] if cpu is None else list(cpu)
    writer = _Writer(functions, bool(isas) or "emulator" in archs, any(a != "emulator" for a in archs))
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        writer.write(temporary, archs, isas, gradients)
        os.chmod(temporary, 0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
            os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _check_arguments(
    path: Path, functions: Sequence[CompiledFunction], archs: Sequence[str], cpu: Sequence[str] | None
) -> None:
    if isinstance(functions, CompiledFunction) or not all(isinstance(f, CompiledFunction) for f in functions):
        raise BundleError("export takes a list of functions that avo_ops.compile returned")
    names = [f.name for f in functions]
    for f in functions:
        if names.count(f.name) > 1:
            raise BundleError(
                f"two functions are called {f.name}: give one another name, compile(..., name=...)"
            )
        if not f.variants():
            raise BundleError(
                f"{f.name} has no graph to export: call it, or prepare(...) or warmup(...) it, first"
            )
    for arch in archs:
        number = arch.removeprefix("sm_")
        if arch != "emulator" and not (
            arch.startswith("sm_") and number.isdigit() and 80 <= int(number) < 200
        ):
            raise BundleError(f"an arch is such as 'sm_90', at least 'sm_80', but {arch!r} was given")
    for isa in cpu or ():
        if isa not in _ISAS:
            raise BundleError(f"an instruction set is one of {', '.join(_ISAS)}, but {isa!r} was given")
    if path.exists() and not (
        path.is_dir() and (path / "bundle.json").is_file() and (path / _SUMS).is_file()
    ):
        raise BundleError(f"{path} is there, and no bundle: name another place")


class _Writer:
    """What a bundle holds, gathered before any file is written."""

    def __init__(self, functions: Sequence[CompiledFunction], for_cpu: bool, for_cuda: bool) -> None:
        self.constants: list[Tensor] = []
        self.operators: dict[
            str, set[tuple[Any, ...]]
        ] = {}  # dtypes of the operands of each operator that CUDA runs
        self.functions = {f.name: self._function(f, for_cpu, for_cuda) for f in functions}

    def _function(self, f: CompiledFunction, for_cpu: bool, for_cuda: bool) -> Json:
        graphs = []
        for (spec, kinds, autocast), made in f.graphs_by_key():
            for graph in made:
                if for_cpu if graph.device == "cpu" else for_cuda:
                    graphs.append(self._graph(f, graph, spec, kinds, autocast))
                if for_cuda and graph.device == "cpu":
                    if autocast is not None:
                        raise BundleError(
                            f"{f.name} has a graph that was made on the CPU under autocast, which says nothing of CUDA: make it "
                            "without autocast, or on a GPU"
                        )
                    leaves = _leaves_on_cuda(graph, kinds)
                    on_cuda = f.traced(leaves, spec)
                    graphs.append(self._graph(f, on_cuda, spec, tuple(map(exported_kind_of, leaves)), None))
        if not graphs:
            devices = sorted({g.device for _, made in f.graphs_by_key() for g in made})
            raise BundleError(
                f"{f.name} has graphs for {', '.join(devices)} alone: name archs, or instruction sets, for them"
            )
        return {"parameters": _parameters(f.fn), "graphs": graphs}

    def _graph(
        self, f: CompiledFunction, graph: Graph, spec: Any, kinds: Sequence[Any], autocast: Any
    ) -> Json:
        if not isinstance(graph.composite, Composite):
            raise BundleError(
                f"{f.name} is run by plain torch operations, which no bundle can hold: {graph.composite.reasons[0][1]}"
            )
        program = graph.composite.program
        for step in program.steps:
            if isinstance(step, KernelStep):
                self.operators.setdefault(step.op, set()).add(step.dtypes)
        try:
            return encoded_graph(graph, spec, kinds, autocast, self._keep)
        except NotEncodable as error:
            raise BundleError(
                f"{f.name} cannot be exported: {graph.variant.calls} has {error}, which JSON cannot hold"
            ) from None

    def _keep(self, tensor: Tensor) -> int:
        self.constants.append(tensor.detach())
        return len(self.constants) - 1

    # ---- files ----

    def write(self, folder: Path, archs: Sequence[str], isas: Sequence[str], gradients: bool) -> None:
        made = {name: known_operator(name) for name in self.operators}
        families = {k: one.records[k] for one in made.values() for k in one.families}
        (folder / "plan.json").write_text(plan_file.text([one.operator for one in made.values()], families))
        if made:
            for isa in isas:
                (folder / f"cpu_{isa}.so").write_bytes(compile_cpu_library(list(made), isa))
            self._write_cuda(folder, archs, made, gradients)
        constants = []
        if self.constants:
            (folder / "constants").mkdir()
        for i, tensor in enumerate(self.constants):
            plain = tensor.contiguous().cpu()
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
            (folder / "constants" / f"{i}.bin").write_bytes(data)
            constants.append([encode(tensor.dtype), list(tensor.shape), tensor.device.type])
        about = {
            "format": FORMAT,
            "avo_ops": package_version(),
            "torch": ".".join(map(str, torch_version())),
            "cpu": list(isas),
            "archs": list(archs),
            "constants": constants,
            "functions": self.functions,
            "definitions": {name: encode(one.definition()) for name, one in made.items()},
        }
        (folder / "bundle.json").write_text(json.dumps(about, allow_nan=False))
        sums = [f"{_sum(p)}  {p.relative_to(folder)}\n" for p in sorted(folder.rglob("*")) if p.is_file()]
        (folder / _SUMS).write_text("".join(sums))

    def _write_cuda(
        self, folder: Path, archs: Sequence[str], made: Mapping[str, Any], gradients: bool
    ) -> None:
        jobs: list[tuple[Any, str, int, Path]] = []
        cuda, emulator = (
            KernelStore(None, default_cache_folder(), compiler, suffix=suffix)
            for compiler, suffix in ((GeneratorCompiler(), ".cubin"), (EmulatorCompiler(), ".so"))
        )
        for arch in archs:
            into = folder / ("sm_0" if arch == "emulator" else arch)
            into.mkdir()
            for name, one in made.items():
                if arch == "emulator":
                    jobs += [(emulator, family, 0, into / f"{family}.so") for family in one.families]
                else:
                    ops = one.operator["ops"][: None if gradients else 2]
                    units = _units_for(ops, one.records, self.operators[name])
                    jobs += [(cuda, unit, int(arch[3:]), into / f"{unit}.cubin") for unit in units]

        def make(job: tuple[Any, str, int, Path]) -> None:
            store, unit, arch, path = job
            found = store.resolve(unit, arch)
            if found is None:  # it has warned; again, for the error itself
                path.write_bytes(store.compiler.compile(unit, f"sm_{arch}"))
            else:
                shutil.copyfile(found, path)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(make, jobs))


def _leaves_on_cuda(graph: Graph, kinds: Sequence[Any]) -> list[Any]:
    """The arguments that a graph was made for, with tensors on a CUDA device that need not be there."""
    from torch._subclasses import FakeTensorMode

    shapes, floats = iter(graph.example_shapes), iter(graph.floats)
    leaves: list[Any] = []
    with FakeTensorMode():
        for kind in kinds:
            if kind is float:
                leaves.append(float(next(floats)))
            elif len(kind) == 2:
                leaves.append(kind[1])
            else:
                leaves.append(torch.empty(next(shapes), dtype=kind[0], device="cuda"))
    return leaves


def _parameters(fn: Callable[..., Any]) -> list[Any]:
    try:
        found = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return [
            ["args", int(inspect.Parameter.VAR_POSITIONAL), False],
            ["kwargs", int(inspect.Parameter.VAR_KEYWORD), False],
        ]
    return [[p.name, int(p.kind), p.default is not p.empty] for p in found]


def _units_for(
    ops: Sequence[Json], families: Mapping[str, Json], operands: set[tuple[Any, ...]]
) -> list[str]:
    """The units of all CUDA kernels that calls of an operator's ops with operands of these dtypes may need, at any shape.

    The runtime chooses by X, what the (M, N) tensors of a call promote to, and W, the dtype of the (N) ones, or float32 where there
    are no kernels for that (``choose_dtypes`` in csrc/runtime/plan_cuda.cpp).
    """
    pairs = {pair for dtypes in operands for pair in _pairs(ops[0], dtypes)}
    used = [families[name] for name in families_of({"ops": ops})]
    tables = [{tuple(d.split(",")): rows for d, rows in f["variants"].items()} for f in used]
    pairs |= {(x, "f32") for x, w in pairs if any((x, w) not in t and (x,) not in t for t in tables)}
    xs = {x for x, _ in pairs}
    found = (
        v["unit"]
        for t in tables
        for key, rows in t.items()
        if key in pairs or (key[0] in xs and len(key) == 1)
        for v in rows
    )
    return list(dict.fromkeys(found))


_NARROW = {name: dtype for name, dtype in NAMED.items() if dtype not in DTYPES}


def _pairs(public: Json, operands: Sequence[torch.dtype]) -> Iterator[tuple[str, str]]:
    """The X and W that calls of an operator's ops may have, if the public one has operands of these dtypes.

    A gradient has the dtype of its operand or result, so that the backward has no others than these.
    """
    compute = torch.float64 if torch.float64 in operands else torch.float32
    tensors = [a for a in public["args"] if a["kind"] == "tensor"]
    known = {"compute": compute, **{a["name"]: d for a, d in zip(tensors, operands, strict=True)}}
    found: dict[str, set[torch.dtype]] = {"MN": set(), "N": set(), "M": set(), "1": set()}
    for a in tensors:
        found[a["span"]] |= {known[a["name"]]} - {*_NARROW.values()}
    for r in public["returns"]:
        found[r["span"]] |= {known[name] for name in r["dtype"].split("|") if name not in _NARROW}
    # What two of them promote to is one of them, but for float16 and bfloat16.
    xs, ws = (d | {torch.float32} if len(d) > 1 else d for d in (found["MN"], found["N"]))
    if compute == torch.float64 or not xs:
        xs = ws = {compute}
    yield from ((SHORT_NAMES[x], SHORT_NAMES[w]) for x in xs for w in ws or {x})


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- load ----


def load(
    path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
) -> dict[str, LoadedFunction]:
    """The functions of a bundle that :func:`export` made, by name; without a compiler, and without the source of the functions.

    They compute what the exported functions do, gradients of any order, ``torch.func``, autocast, ``torch.compile`` and CUDA graphs
    included. A call that no exported graph serves raises RuntimeError with what there is. A bundle is code: load only what you
    would run.

    Args:
        path: the folder.
        functions: the functions themselves by name, as far as they are at hand: one runs where no graph serves its call (counted,
            and refused in strict mode, as all that is left to torch).

    Raises:
        avo_ops.BundleError: the folder is no bundle, or one of its files was cut or altered; it was made by another version of this
            package or for a later torch; this machine lacks the instruction set of its CPU kernels; ``functions`` names what is not
            in it.
    """
    path = Path(path).absolute()
    about = _checked(path)
    _check_fit(path, about)
    functions = functions or {}
    for name in functions:
        if name not in about["functions"]:
            raise BundleError(f"{path} has no function {name}: it has {', '.join(about['functions'])}")
    _register(path, about)
    archs = [int(a[3:]) for a in about["archs"] if a.startswith("sm_")]
    constants: dict[int, Tensor] = {}

    def fetch(number: int) -> Tensor:
        if number not in constants:
            constants[number] = _constant(path, number, about["constants"][number])
        return constants[number]

    loaded = {}
    for name, function in about["functions"].items():
        graphs: dict[Any, list[Graph]] = {}
        for data in function["graphs"]:
            key, graph = key_and_graph(data, name, fetch)
            graphs.setdefault(key, []).append(graph)
        loaded[name] = LoadedFunction(
            name, _signature_of(function["parameters"]), graphs, archs, str(path), functions.get(name)
        )
    return loaded


def _checked(path: Path) -> Json:
    """What bundle.json says, after a look at the checksum of every file.

    Raises:
        BundleError: the folder is no bundle, or not as it was written.
    """
    try:
        lines = (path / _SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        raise BundleError(
            f"{path} is no bundle of avo_ops.export: there is no readable {_SUMS} in it"
        ) from None
    sums = {name: own for own, _, name in (line.partition("  ") for line in lines)}
    found = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()} - {_SUMS}
    for name in sorted({"bundle.json", "plan.json", *sums, *found}):
        if name not in found:
            raise BundleError(f"{path} is damaged: {name} is missing")
        if name not in sums:
            raise BundleError(f"{path} is damaged: {_SUMS} says nothing of {name}")
        if _sum(path / name) != sums[name]:
            raise BundleError(f"{path} is damaged: {name} is not what was exported")
    about: Json = json.loads((path / "bundle.json").read_bytes())
    return about


def _check_fit(path: Path, about: Json) -> None:
    if (about.get("format"), about.get("avo_ops")) != (FORMAT, package_version()):
        raise BundleError(
            f"{path} was exported by avo_ops {about.get('avo_ops')} (format {about.get('format')}), and this is avo_ops "
            f"{package_version()} (format {FORMAT}): export it again with this one"
        )
    needed = tuple(map(int, about["torch"].split(".")))
    if torch_version() < needed:
        raise BundleError(
            f"{path} was exported with torch {about['torch']}, and this is torch {torch.__version__}: install a later one"
        )
    native = native_library.runtime()
    if about["cpu"] and native is not None and _best_isa(about["cpu"], native.cpu_isa()) is None:
        raise BundleError(
            f"{path} has CPU kernels for {', '.join(about['cpu'])} (of base, v3, v4: x86-64, -v3, -v4), and this machine is "
            f"{native.cpu_isa()}: export with cpu=({native.cpu_isa()!r},), or cpu=() for none"
        )


def package_version() -> str:
    """The version of this package, whose ``__init__`` imports this module before it says it."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def torch_version() -> tuple[int, ...]:
    """Major and minor of the torch that runs."""
    return tuple(int(n) for n in torch.__version__.split(".")[:2])


def _best_isa(there: Sequence[str], machine: str) -> str | None:
    fit = [isa for isa in _ISAS[: _ISAS.index(machine) + 1] if isa in there]
    return fit[-1] if fit else None


def _register(path: Path, about: Json) -> None:
    plan = plan_file.load(path)
    for operator in plan["operators"]:
        definition = decode(about["definitions"][operator["name"]])
        register_dynamic(record_of(operator, definition), operator, plan["families"])
    note_exported(plan["families"])
    native = native_library.runtime()
    if native is not None and about["cpu"] and plan["operators"]:
        native.load_cpu_kernels(path / f"cpu_{_best_isa(about['cpu'], native.cpu_isa())}.so")
        mark_loaded([operator["name"] for operator in plan["operators"]])
    add_kernels(path)


def _signature_of(parameters: Sequence[Any]) -> inspect.Signature:
    kinds = list(type(inspect.Parameter.POSITIONAL_ONLY))
    return inspect.Signature(
        [
            inspect.Parameter(n, kinds[k], default=... if optional else inspect.Parameter.empty)
            for n, k, optional in parameters
        ]
    )


def _constant(path: Path, number: int, about: Sequence[Any]) -> Tensor:
    dtype, shape, device = decode(about[0]), about[1], about[2]
    data = bytearray((path / "constants" / f"{number}.bin").read_bytes())
    if not data:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape).to(device)
