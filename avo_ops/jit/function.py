"""``avo_ops.compile``: which graph serves a call, made when first needed."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from ..registry import note_definition, note_empty
from ..registry.dynamic import NAMESPACE
from . import remembered
from .calls import (
    autocast_dtypes,
    is_autocasting,
    key_of,
    kind_of,
    leaf_names,
    signature_text,
    spelled_floats,
)
from .compilers import check_may_compile
from .composite import Composite, Eager
from .dynamo import allow_in_graph
from .graph import Graph, Sizes, Variant
from .kernels import load_cpu_kernels, registered, tracing_lock
from .program import Size, program_of

Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_is_compiling = torch.compiler.is_compiling
_PLAIN = (Tensor, _Parameter)
# Results, besides tensors, that a graph can give again.
_VALUES = (
    int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip
_GOOD_VALUES = "tensors, numbers, strings, and tuples, lists or dicts of them"
_remembering = threading.RLock()  # held while graphs are read that earlier processes made
os.register_at_fork(after_in_child=lambda: globals().update(_remembering=threading.RLock()))
_MOST_SHAPES = 4096  # entries of the table of calls; beyond it is begun anew


class CompileError(ValueError):
    """A function cannot be compiled; the message has every reason with the author's file, line and text, and a way out."""


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

    On CUDA a width that a kernel over rows is called with 64 times in a row gets a kernel of its own, of the same bits, which a
    thread compiles in the background (``AVO_OPS_HOT_WIDTHS=0``: none does; nor after ``freeze()``). ``variants()`` lists them.

    Graphs are kept in the cache folder, where another process finds them by the function's code and all that it reads, if
    that can be known (``AVO_OPS_REMEMBER=0``: it neither looks nor keeps).

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


class Function:
    """What is called as the function that it stands for: one lookup finds the graph of a call, if it was found before.

    ``fn``: the function itself, or None where it is not at hand.
    """

    def __init__(self, fn: Callable[..., Any] | None, name: str) -> None:
        self.fn, self.name = fn, name
        self._fast: dict[Any, Callable[..., Any]] = {}
        self._opaque = lambda *args, **kwargs: self._slow(args, kwargs)
        allow_in_graph(self._opaque)  # one node of its graph to torch.compile

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
        if is_autocasting():
            parts.append(autocast_dtypes())
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
        if self.fn is not None and (not tensors or any(s == 0 for t in tensors for s in t.shape)):
            name = f"{NAMESPACE}::{self.name}"
            if tensors:
                note_empty(name)
            else:
                note_definition(name, "no argument is a tensor")
            return self.fn(*args, **kwargs)
        graph = self._graph(leaves, spec)
        if graph is None:
            return self.fn(*args, **kwargs)
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

    def _graph(self, leaves: Sequence[Any], spec: Any) -> Graph | None:
        """The graph that serves a call; None if only ``fn`` does."""
        raise NotImplementedError

    def _all_graphs(self) -> Iterable[Graph]:
        raise NotImplementedError

    def variants(self) -> list[Variant]:
        """Every graph there is, in the order of their making."""
        return [g.variant for g in self._all_graphs()]

    def plan(self) -> str:
        """Every graph with its steps: operators, and what is left to torch and why."""
        from .report import plan_text

        return plan_text(self.name, self.variants())


class CompiledFunction(Function):
    """What :func:`avo_ops.compile` returns; call it as the function it was made of."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        functools.update_wrapper(self, fn, updated=())
        name = re.sub(r"\W", "_", name or getattr(fn, "__name__", "function")).strip("_") or "function"
        super().__init__(fn, name if name[0].isalpha() else f"fn_{name}")
        self._graphs: dict[Any, list[Graph]] = {}
        self._example: tuple[Any, ...] | None = None

    def _all_graphs(self) -> Iterable[Graph]:
        return [g for graphs in list(self._graphs.values()) for g in graphs]

    def graphs_by_key(self) -> list[tuple[Any, list[Graph]]]:
        """The graphs by structure of the arguments, their kinds, and autocast."""
        return [(key, list(graphs)) for key, graphs in list(self._graphs.items())]

    def _graph(self, leaves: Sequence[Any], spec: Any) -> Graph:
        key = key_of(leaves, spec, kind_of)
        if not _has_hash(key):
            raise self._unhashable(leaves, spec)
        shapes = [a.shape for a in leaves if isinstance(a, Tensor)]
        if not shapes:
            raise CompileError(
                f"{self.name} cannot be compiled:\n  no argument is a tensor: the function itself runs"
            )
        floats = spelled_floats(leaves)
        for graph in self._graphs.get(key, ()):
            if graph.holds(floats, shapes):
                return graph
        address = remembered.address_of(self.fn, self.name, *key)
        with _remembering if address is not None else contextlib.nullcontext():
            known = self._graphs.setdefault(key, [])
            for graph in itertools.chain(known, remembered.find(address, self.name) if address else ()):
                if graph.holds(floats, shapes):
                    if graph not in known:
                        known.append(graph)
                    return graph
        with tracing_lock():
            for graph in self._graphs.get(key, ()):
                if graph.holds(floats, shapes):  # another thread was faster
                    return graph
            check_may_compile(f"a graph of {self.name}")
            made = self.traced(leaves, spec)
            known.append(made)
            if address is not None:
                remembered.keep(address, made, *key)
            return made

    def traced(self, leaves: Sequence[Any], spec: Any) -> TracedGraph:
        """A graph for such arguments, made now, of which the function keeps nothing."""
        with tracing_lock(), outside_of_modes():
            return TracedGraph(self, leaves, spec)

    def _unhashable(self, leaves: Sequence[Any], spec: Any) -> CompileError:
        at = next(i for i, a in enumerate(leaves) if not _has_hash(kind_of(a)))
        name = leaf_names(self.fn, len(leaves), spec)[at]
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

    def verify(self, /, *args: Any, **kwargs: Any) -> Any:
        """How far each step is from float64, in eager and in our kernels, by line of the function: an object to print.

        Every tensor that the function makes on its way is a result of the kernels that run here. Gradients are not looked at.

        Raises:
            ValueError: no argument is a tensor, torch cannot trace the function, or it makes no floating-point tensor.
        """
        from .verify import verify

        leaves, spec = pytree.tree_flatten((args, kwargs))
        found = self._graph(leaves, spec)
        graph = found if isinstance(found, TracedGraph) else self.traced(leaves, spec)
        if graph.captured is None:
            raise ValueError(
                f"{self.name}.verify: torch does not trace this function: {graph.composite.reasons[0][1]}"
            )
        return verify(self.name, graph.captured, [leaves[i] for i in graph.places])

    def source(self, target: str = "cuda") -> str:
        """The kernels' source, "cuda" or "cpu", of every graph made so far."""
        from .report import source_text

        return source_text(self.variants(), target)


class TracedGraph(Graph):
    """A graph that was traced here. ``captured``: None where torch does not trace the function."""

    def __init__(self, owner: CompiledFunction, leaves: Sequence[Any], spec: Any) -> None:
        self.owner, self.captured, self._out = owner, None, (None, {})
        self.names = leaf_names(owner.fn, len(leaves), spec)
        tensors = [i for i, a in enumerate(leaves) if isinstance(a, Tensor)]
        floats = [i for i, a in enumerate(leaves) if type(a) is float]
        fixed = False
        try:
            self.places = [*tensors, *floats]
            composite = self._composite(leaves, spec)
            same = not floats or self._same_results(composite, leaves, spec)
        except CompileError:
            if not floats:
                raise
            same = False
        if not same:  # such a float is a part of the graph, as an int is
            fixed, self.places = True, tensors
            composite = self._composite(leaves, spec)
        words, operators, values = [], (), {}
        if isinstance(composite, Composite):
            self._refuse_results(leaves)
            words = self.captured.conditions_in_words([self.names[i] for i in tensors])
            operators = composite.program.operators()
            values = {i: self._value_of(o) for i, o in self._out[1].items()}
        else:
            fixed = False
        variant = Variant(signature_text(leaves, self.names, fixed), tuple(words), operators, composite)
        device = leaves[tensors[0]].device.type
        shapes = [tuple(map(_number, leaves[i].shape)) for i in tensors]
        super().__init__(
            variant, self.places, spelled_floats(leaves), fixed, self._out[0], values, device, shapes
        )

    def _value_of(self, result: Any) -> Any:
        """A result of the trace that is no tensor, as the graph keeps it."""
        if isinstance(result, torch.Size):
            return Sizes(tuple(Size(*self.captured.size_text(s)) for s in result))
        if isinstance(result, torch.SymInt | torch.SymFloat | torch.SymBool):
            return Size(*self.captured.size_text(result))
        return result

    def _composite(self, leaves: Sequence[Any], spec: Any) -> Composite | Eager:
        from ..generator.capture import UntraceableError, capture
        from ..generator.trace import TraceError

        fixed = list(leaves)

        def flat(*given: Any) -> list[Any]:
            for i, value in zip(self.places, given, strict=True):
                fixed[i] = value
            args, kwargs = pytree.tree_unflatten(fixed, spec)
            out, out_spec = pytree.tree_flatten(self.owner.fn(*args, **kwargs))
            self._out = out_spec, {i: o for i, o in enumerate(out) if not isinstance(o, Tensor)}
            return [o for o in out if isinstance(o, Tensor)]

        given = [leaves[i] for i in self.places]
        names = [self.names[i] for i in self.places]
        try:
            self.captured = capture(
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
        steps = registered(self.captured, names, self.owner.name)
        return Composite(program_of(self.captured, steps), self.owner.name)

    def _refuse_results(self, leaves: Sequence[Any]) -> None:
        """Refuse a result in which there may be a part of the trace, which is no value of any call.

        Raises:
            CompileError: its type is not known to have none.
        """
        for value in self._out[1].values():
            if not isinstance(value, _VALUES) and not any(value is a for a in leaves):
                raise CompileError(
                    f"{self.owner.name} cannot be compiled: it returns a {type(value).__name__}: return {_GOOD_VALUES}"
                )

    def _same_results(self, composite: Composite | Eager, leaves: Sequence[Any], spec: Any) -> bool:
        """Whether the dtypes of the results are those with Python's floats."""
        out = pytree.tree_leaves(self._imagined(leaves, spec))
        return isinstance(composite, Composite) and composite.program.dtypes == tuple(
            o.dtype for o in out if isinstance(o, Tensor)
        )

    def _imagined(self, leaves: Sequence[Any], spec: Any) -> Any:
        """The function's results for tensors that have no values."""
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = [
                torch.empty(a.shape, dtype=a.dtype, device=a.device) if isinstance(a, Tensor) else a
                for a in leaves
            ]
            args, kwargs = pytree.tree_unflatten(fakes, spec)
            return self.owner.fn(*args, **kwargs)


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


# ---- small things ----


@contextlib.contextmanager
def outside_of_modes() -> Iterator[None]:
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


def _number(size: Any) -> int:
    """A size; of a symbolic one, that of the example."""
    return int(size.node.hint if isinstance(size, torch.SymInt) else size)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
