"""``avo_ops.compile``: which graph serves a call, made when first needed."""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import inspect
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from ..registry import native_library, note_definition, note_empty, register_dynamic
from ..registry.dynamic import NAMESPACE
from ..registry.store import KernelStore, default_cache_folder
from .compilers import CpuCompiler, add_cpu_unit, add_families, check_may_compile
from .composite import Composite, Eager

if TYPE_CHECKING:
    from ..generator.capture import Captured
    from ..generator.partition import RegionStep, Step

Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_is_compiling = torch.compiler.is_compiling
_is_autocasting = torch._C._is_any_autocast_enabled
_PLAIN = (Tensor, _Parameter)
# Results, besides tensors, that a graph can give again.
_VALUES = (
    int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip
_GOOD_VALUES = "tensors, numbers, strings, and tuples, lists or dicts of them"
_MOST_SHAPES = 4096  # entries of the table of calls; beyond it is begun anew


class CompileError(ValueError):
    """A function cannot be compiled; the message has every reason with the author's file, line and text, and a way out."""


@dataclass(frozen=True)
class Variant:
    """One graph of a compiled function and the calls that it serves.

    ``signature``: of each tensor the dtype and the shape, with 1 for a dim of that size and letters for any others; of other
    arguments the value. ``conditions``: what sizes must be besides.
    """

    signature: str
    conditions: tuple[str, ...]
    operators: tuple[str, ...]
    composite: Composite | Eager

    def __str__(self) -> str:
        where = f" where {' and '.join(self.conditions)}" if self.conditions else ""
        return f"{self.signature}{where}: {', '.join(self.operators) or 'torch alone'}"


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    name: str | None = None,
) -> Any:
    """A function that computes what ``fn`` does, by one or a few generated kernels.

    ``fn`` is plain torch code without side effects on tensors, tuples, lists and dicts of them, numbers, strings and None;
    positional and keyword arguments as it likes. The compiled function takes the same arguments and returns the same: shapes,
    dtypes, gradients of any order, ``torch.func``, autocast, ``torch.compile`` and CUDA graphs included. Math is in float32
    (float64 where a tensor is), rounded once at each result; casts that ``fn`` makes are kept.

    A graph is made when a call first needs it: for the dtypes, the devices, the ranks, which sizes are 1, the values of ints,
    bools and strings (a float argument is an argument of the kernel where that is possible), and autocast. All other sizes are
    free, also where they are results, and no kernel is made again for them. What no kernel can do is left to torch between the
    kernels, and ``plan()`` says so. Globals and closures are read when a graph is made; tensors among them are read at each
    call. Any thread may call it; graphs are made by one at a time.

    Args:
        fn: the function; without it this is a decorator.
        example_inputs: positional arguments of one call, for which a graph is made now.
        name: of the operators ``torch.ops.avo_jit.<name>_<digest>``; by default that of the function.

    Raises:
        avo_ops.CompileError: ``fn`` has a matrix product or a convolution, decides by values of tensors, or modifies an argument;
            the message has the lines, and what to write instead. Or an argument or a result is an object of another kind.
            Here with ``example_inputs``, else at the first call.
    """
    if fn is None:
        return functools.partial(compile, example_inputs=example_inputs, name=name)
    compiled = CompiledFunction(fn, name)
    if example_inputs is not None:
        compiled.prepare(*example_inputs)
    return compiled


class CompiledFunction:
    """What :func:`avo_ops.compile` returns; call it as the function it was made of."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.name = re.sub(r"\W", "_", name or getattr(fn, "__name__", "function")).strip("_") or "function"
        if not self.name[0].isalpha():
            self.name = f"fn_{self.name}"
        self._fast: dict[Any, Callable[..., Any]] = {}
        self._graphs: dict[Any, list[_Graph]] = {}
        self._example: tuple[Any, ...] | None = None
        # One node of its graph to torch.compile. This imports dynamo, as the first trace would.
        self._opaque = torch.compiler.allow_in_graph(lambda *args, **kwargs: self._slow(args, kwargs))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return self._opaque(*args, **kwargs)
        if kwargs:
            return self._slow(args, kwargs)
        # Shapes, dtypes and devices of tensors, nothing of floats, types and values of the rest. Only plain tensors enter
        # the table.
        parts: list[Any] = []
        for a in args:
            kind = type(a)
            if kind is Tensor or kind is _Parameter:
                parts += (a.shape, a.dtype, a.device)
            elif kind is float:
                parts.append(float)
            elif isinstance(a, Tensor):
                return self._slow(args, {})
            else:
                parts += (kind, a)
        if _is_autocasting():
            parts.append(_autocast())
        key = tuple(parts)
        try:
            entry = self._fast.get(key)
        except TypeError:  # a list or a dict
            return self._slow(args, {})
        return self._slow(args, {}, key) if entry is None else entry(*args)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # ---- finding a graph ----

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any = None) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        if not tensors or any(s == 0 for t in tensors for s in t.shape):
            name = f"{NAMESPACE}::{self.name}"
            if tensors:
                note_empty(name)
            else:
                note_definition(name, "no argument is a tensor")
            return self.fn(*args, **kwargs)
        graph = self._graph(leaves, spec)
        plain = all(type(t) in _PLAIN for t in tensors) and list(map(id, leaves)) == list(map(id, args))
        if key is not None and plain and graph.complete():
            entry = graph.entry(len(args))
            if entry is not None:
                if len(self._fast) >= _MOST_SHAPES:
                    self._fast.clear()
                self._fast[key] = entry
        if isinstance(graph.composite, Eager):
            return graph.composite(*args, **kwargs)
        return graph.run(leaves)

    def _graph(self, leaves: Sequence[Any], spec: Any) -> _Graph:
        key = (spec, tuple(_kind(a) for a in leaves), _autocast() if _is_autocasting() else None)
        if not _has_hash(key):
            raise self._unhashable(leaves, spec)
        shapes = [a.shape for a in leaves if isinstance(a, Tensor)]
        floats = _spelled_floats(leaves)
        for graph in self._graphs.get(key, ()):
            if graph.holds(floats, shapes):
                return graph
        with tracing_lock():
            for graph in self._graphs.get(key, ()):
                if graph.holds(floats, shapes):  # another thread was faster
                    return graph
            check_may_compile(f"a graph of {self.name}")
            with _outside_of_modes():
                made = _Graph(self, leaves, spec)
            self._graphs.setdefault(key, []).append(made)
            return made

    def _unhashable(self, leaves: Sequence[Any], spec: Any) -> CompileError:
        at = next(i for i, a in enumerate(leaves) if not _has_hash(_kind(a)))
        name = _leaf_names(self.fn, len(leaves), spec)[at]
        return CompileError(
            f"{self.name} cannot be compiled: the argument {name} is a {type(leaves[at]).__name__}, which has no hash: "
            f"pass {_GOOD_VALUES}"
        )

    def prepare(self, /, *args: Any, **kwargs: Any) -> None:
        """Make the graph and the kernels for such arguments, without running anything."""
        prepare_all([(self, args, kwargs)])
        if self._example is None and not kwargs:
            self._example = args

    def warmup(self, shapes: Sequence[Sequence[Sequence[int]]]) -> None:
        """Make and load everything that calls with tensors of these shapes need, by one call of each.

        ``shapes``: for each call the shapes of the tensors, in the order of the arguments. All else is as in the example inputs:
        dtypes, devices, other arguments, and whether gradients are wanted.

        Raises:
            ValueError: there are no example inputs, or they have another number of tensors.
        """
        if self._example is None:
            raise ValueError(f"{self.name}.warmup: give example_inputs to compile, or call prepare(...) once")
        leaves, spec = pytree.tree_flatten((self._example, {}))
        calls = []
        for row in shapes:
            count = sum(isinstance(a, Tensor) for a in leaves)
            if len(row) != count:
                raise ValueError(
                    f"{self.name}.warmup: a call takes {count} tensors, but {len(row)} shapes were given"
                )
            given = iter(row)
            made = [
                a.new_ones(tuple(next(given))).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a
                for a in leaves
            ]
            calls.append(pytree.tree_unflatten(made, spec)[0])
        prepare_all([(self, args, {}) for args in calls])
        for args in calls:
            out = [o for o in pytree.tree_leaves(self(*args)) if isinstance(o, Tensor) and o.requires_grad]
            if out:
                torch.autograd.grad(
                    out, [a for a in pytree.tree_leaves(args) if isinstance(a, Tensor) and a.requires_grad],
                    [torch.ones_like(o) for o in out], allow_unused=True,
                )  # fmt: skip

    # ---- asking about it ----

    def variants(self) -> list[Variant]:
        """Every graph made so far, in the order of their making."""
        return [g.variant for graphs in list(self._graphs.values()) for g in graphs]

    def plan(self) -> str:
        """Every graph with its steps: operators, and what is left to torch and why."""
        from .report import plan_text

        return plan_text(self.name, self.variants())

    def verify(self, /, *args: Any, **kwargs: Any) -> Any:
        """How far each step is from float64, in eager and in our kernels, by line of the function: an object to print.

        Every tensor that the function makes on its way is a result of the kernels that run here. Gradients are not looked at.

        Raises:
            ValueError: torch cannot trace the function, or there is nothing to look at.
        """
        from .verify import verify

        leaves, spec = pytree.tree_flatten((args, kwargs))
        graph = self._graph(leaves, spec)
        if not isinstance(graph.composite, Composite):
            raise ValueError(
                f"{self.name}.verify: torch does not trace this function: {graph.composite.reasons[0][1]}"
            )
        return verify(self.name, graph.composite.captured, [leaves[i] for i in graph.places])

    def source(self, target: str = "cuda") -> str:
        """The kernels' source, "cuda" or "cpu", of every graph made so far."""
        from .report import source_text

        return source_text(self.variants(), target)


class _Graph:
    """One captured graph and where its tensors and floats are among the leaves of a call."""

    def __init__(self, owner: CompiledFunction, leaves: Sequence[Any], spec: Any) -> None:
        from ..generator.partition import RegionStep

        self.owner, self.floats = owner, _spelled_floats(leaves)
        self.names = _leaf_names(owner.fn, len(leaves), spec)
        tensors = [i for i, a in enumerate(leaves) if isinstance(a, Tensor)]
        floats = [i for i, a in enumerate(leaves) if type(a) is float]
        self.fixed_floats = False
        self.out_spec: Any = None
        self.out_plain: dict[int, Any] = {}
        try:
            self.places = [*tensors, *floats]
            composite = self._composite(leaves, spec)
            same = not floats or self._same_results(composite, leaves, spec)
        except CompileError:
            if not floats:
                raise
            same = False
        if not same:  # such a float is a part of the graph, as an int is
            self.fixed_floats, self.places = True, tensors
            composite = self._composite(leaves, spec)
        self.composite = composite
        if isinstance(composite, Composite):
            self._refuse_results(leaves)
            self._others = {i: composite.value_of(o) for i, o in self.out_plain.items()}
        else:
            self.fixed_floats = False
        regions: list[RegionStep] = [s for s in composite.steps if isinstance(s, RegionStep)]
        self._ready = False
        self._device = leaves[tensors[0]].device.type
        words = composite.conditions([self.names[i] for i in tensors])
        operators = tuple(s.record.name for s in regions)
        self.variant = Variant(
            _signature(leaves, self.names, self.fixed_floats), tuple(words), operators, composite
        )

    def _composite(self, leaves: Sequence[Any], spec: Any) -> Composite | Eager:
        from ..generator.capture import UntraceableError, capture
        from ..generator.trace import TraceError

        fixed = list(leaves)

        def flat(*given: Any) -> list[Any]:
            for i, value in zip(self.places, given, strict=True):
                fixed[i] = value
            args, kwargs = pytree.tree_unflatten(fixed, spec)
            out, self.out_spec = pytree.tree_flatten(self.owner.fn(*args, **kwargs))
            self.out_plain = {i: o for i, o in enumerate(out) if not isinstance(o, Tensor)}
            return [o for o in out if isinstance(o, Tensor)]

        given = [leaves[i] for i in self.places]
        names = [self.names[i] for i in self.places]
        try:
            captured = capture(
                flat,
                [a for a in given if isinstance(a, Tensor)],
                [a for a in given if not isinstance(a, Tensor)],
                names,
            )
        except UntraceableError as error:
            if not any(type(a) is float for a in given):
                args, kwargs = pytree.tree_unflatten(list(leaves), spec)
                with torch.no_grad():
                    self.owner.fn(
                        *args, **kwargs
                    )  # raises what it raises by itself: for shapes that do not fit, say
                text = f"avo_ops: {self.owner.name} runs by plain torch operations:\n  {error}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                return Eager(self.owner.fn, self.owner.name, str(error).splitlines()[-1].strip())
            raise CompileError(str(error)) from None
        except TraceError as error:
            raise CompileError(f"{self.owner.name} cannot be compiled:\n  {error}") from None
        return Composite(captured, registered(captured, names, self.owner.name), self.owner.name)

    def _refuse_results(self, leaves: Sequence[Any]) -> None:
        """Refuse a result in which there may be a part of the trace, which is no value of any call.

        Raises:
            CompileError: its type is not known to have none.
        """
        for value in self.out_plain.values():
            if not isinstance(value, _VALUES) and not any(value is a for a in leaves):
                raise CompileError(
                    f"{self.owner.name} cannot be compiled: it returns a {type(value).__name__}: return {_GOOD_VALUES}"
                )

    def _same_results(self, composite: Composite | Eager, leaves: Sequence[Any], spec: Any) -> bool:
        """Whether the dtypes of the results are those with Python's floats."""
        out = pytree.tree_leaves(self._imagined(leaves, spec))
        return isinstance(composite, Composite) and composite.result_dtypes() == [
            o.dtype for o in out if isinstance(o, Tensor)
        ]

    def _imagined(self, leaves: Sequence[Any], spec: Any) -> Any:
        """The function's results for tensors that have no values."""
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = [
                torch.empty_like(a, memory_format=torch.contiguous_format) if isinstance(a, Tensor) else a
                for a in leaves
            ]
            args, kwargs = pytree.tree_unflatten(fakes, spec)
            return self.owner.fn(*args, **kwargs)

    def holds(self, floats: tuple[str, ...], shapes: Sequence[Any]) -> bool:
        return (not self.fixed_floats or self.floats == floats) and self.composite.holds(shapes)

    def missing(self) -> tuple[str, ...]:
        """The operators whose kernels for the CPU have to be loaded, if calls go there now."""
        native = native_library.runtime()
        on_cpu = native is not None and native.emulated is None and self._device == "cpu"
        return self.variant.operators if on_cpu and not self._ready else ()

    def complete(self) -> bool:
        """Load the kernels for the CPU if calls will go there; whether nothing is left to load."""
        if not self._ready:
            native = native_library.runtime()
            if native is not None and self._device == "cpu":
                if native.emulated is not None:
                    return False
                load_cpu_kernels(self.variant.operators)
            self._ready = True
        return True

    def entry(self, count: int) -> Callable[..., Any] | None:
        """What serves further calls with ``count`` positional arguments without a structure; None if nothing does."""
        if self.fixed_floats:
            return None
        if isinstance(self.composite, Eager):
            return self.composite
        direct, places = self.composite.direct, list(self.places)
        if direct is not None and not self._others and self.out_spec.is_leaf():
            if places == list(range(count)):
                return direct
            return lambda *args: direct(*[args[i] for i in places])
        return lambda *args: self._run([args[i] for i in places])

    def run(self, leaves: Sequence[Any]) -> Any:
        self.complete()
        return self._run([leaves[i] for i in self.places])

    def _run(self, given: Sequence[Any]) -> Any:
        """The results in the structure that the function returns."""
        out = self.composite(given)
        if self._others:
            rest = iter(out)
            count = len(out) + len(self._others)
            out = [self._others[i](given) if i in self._others else next(rest) for i in range(count)]
        return out[0] if self.out_spec.is_leaf() else pytree.tree_unflatten(out, self.out_spec)


# ---- operators and kernels ----

_generated: dict[str, Any] = {}  # GeneratedOperator by name
_double: dict[str, bool] = {}  # whether an operator's math is in float64
_loaded: set[str] = set()  # operators whose CPU kernels are loaded
_kernels_mutex = threading.Lock()


def tracing_lock() -> Any:
    """Held while anything is traced: make_fx and what torch notes on nodes have state that is the process's.

    It is that of ``torch.compile``, which traces in the same way.
    """
    from torch._dynamo.convert_frame import compile_lock

    return compile_lock


def registered(captured: Captured, names: Sequence[str], title: str, gradients: bool = True) -> list[Step]:
    """The steps of a graph, all of whose operators are registered: what has no kernel after all is left to torch."""
    from ..generator.partition import partition

    apart: dict[Any, str] = {}
    with tracing_lock(), torch._C._DisableAutocast():  # the graph has the casts
        while True:
            steps = partition(captured, names, title, apart)
            failed = register(steps, gradients)
            if not failed:
                return steps
            apart |= failed


def register(steps: Sequence[Step], gradients: bool = True) -> dict[Any, str]:
    """Generate and register the operators of regions; the nodes for which that failed, and why."""
    from ..generator.partition import RegionStep
    from ..generator.pipeline import generate_operator
    from ..generator.trace import TraceError

    failed: dict[Any, str] = {}
    for step in steps:
        if not isinstance(step, RegionStep) or step.record.name in _generated:
            continue
        problem: Exception | None = None
        for differentiate in (True, False) if gradients else (False,):
            try:
                made = generate_operator(step.record, differentiate)
                break
            except TraceError as error:
                problem = error
        else:
            failed |= dict.fromkeys(step.nodes, str(problem).splitlines()[-1].strip())
            continue
        records = made.families_on_demand()
        add_families(made.families, records)
        register_dynamic(step.record, made.operator, records)
        _double[step.record.name] = step.double
        _generated[step.record.name] = made
    return failed


def generated(name: str) -> Any:
    """The GeneratedOperator of an operator that was registered here."""
    return _generated[name]


@lru_cache(maxsize=1)
def _host_compiler() -> bool:
    """Whether there is a C++ compiler; the one warning if not."""
    from ..generator import gcc

    try:
        gcc.version()
    except gcc.CompilerError as error:
        warnings.warn(
            f"avo_ops: compiled functions on the CPU run by plain torch operations: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


@lru_cache(maxsize=1)
def _cpu_store() -> KernelStore:
    return KernelStore(None, default_cache_folder(), CpuCompiler(), suffix=".so")


def cpu_unit(names: Sequence[str]) -> str:
    """The source of the CPU kernels of some operators."""
    from ..generator import emit_cpu

    parts = []
    for name in names:
        types = ("double",) if _double[name] else ("float",)
        parts.append(emit_cpu.translation_unit(name, _generated[name].cpu, types))
    return "\n".join([*parts, emit_cpu.index_unit(names)])


def prepare_all(calls: Iterable[tuple[CompiledFunction, Sequence[Any], Mapping[str, Any]]]) -> None:
    """Make the graphs that calls need, then the CPU kernels of all of them by one call of the compiler."""
    graphs = []
    for function, args, kwargs in calls:
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if any(isinstance(a, Tensor) for a in leaves):
            graphs.append(function._graph(leaves, spec))
    load_cpu_kernels([n for g in graphs for n in g.missing()])
    for graph in graphs:
        graph.complete()


def load_cpu_kernels(names: Sequence[str]) -> None:
    """Compile, or find in the cache, the CPU kernels of some operators in one library, and load it.

    Without a compiler nothing is loaded, after one warning: the definitions run.
    """
    native = native_library.runtime()
    with _kernels_mutex:
        todo = sorted({n for n in names if n not in _loaded and n in _generated})
        if native is None or not todo or not _host_compiler():
            return
        digest = hashlib.sha256("\0".join(todo).encode()).hexdigest()[:8]
        unit = f"{todo[0]}_{digest}" if len(todo) > 1 else todo[0]
        add_cpu_unit(unit, cpu_unit(todo), native.cpu_isa())
        path = _cpu_store().resolve(unit, 0)
        if path is not None:
            native.load_cpu_kernels(Path(path))
        _loaded.update(todo)


# ---- small things ----


@contextlib.contextmanager
def _outside_of_modes() -> Iterator[None]:
    """Tracing is the same whatever modes and transforms, but for autocast, the call that needs it is under."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch.utils._python_dispatch import _disable_current_modes

    with (
        _disable_current_modes(),
        temporarily_clear_interpreter_stack(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


def _kind(leaf: Any) -> Any:
    """What of an argument decides which graphs may serve it."""
    if isinstance(leaf, Tensor):
        ones = tuple(isinstance(s, int) and s == 1 for s in leaf.shape)
        return leaf.dtype, leaf.device, ones
    return float if type(leaf) is float else (type(leaf), leaf)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _autocast() -> tuple[Any, ...]:
    """The dtypes of autocast, which are a part of what a function computes."""
    return tuple(torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in ("cpu", "cuda"))


def _spelled_floats(leaves: Sequence[Any]) -> tuple[str, ...]:
    """The floats of a call, for comparisons in which NaN is itself and -0.0 is not 0.0."""
    return tuple(repr(a) for a in leaves if type(a) is float)


def _leaf_names(fn: Callable[..., Any], count: int, spec: Any) -> list[str]:
    """The names of the parameters that the leaves of a call belong to, numbered where there are several."""
    args, kwargs = pytree.tree_unflatten(list(range(count)), spec)
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{f"a{i}": a for i, a in enumerate(args)}, **kwargs}
    names = [f"a{i}" for i in range(count)]
    for parameter, value in bound.items():
        found = pytree.tree_leaves(value)
        for j, i in enumerate(found):
            names[i] = parameter if len(found) == 1 else f"{parameter}_{j}"
    return names


def _signature(leaves: Sequence[Any], names: Sequence[str], fixed_floats: bool) -> str:
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 8)
    parts = []
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, Tensor):
            sizes = ", ".join("1" if isinstance(s, int) and s == 1 else next(letters) for s in leaf.shape)
            parts.append(f"{name}: {str(leaf.dtype).removeprefix('torch.')}[{sizes}]")
        elif type(leaf) is float and not fixed_floats:
            parts.append(f"{name}: float")
        else:
            parts.append(f"{name}={leaf!r}")
    return ", ".join(parts)
