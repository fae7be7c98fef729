"""From a user's function and example tensors to one ATen graph over symbolic sizes, and the sizes that it holds for."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.overrides import TorchFunctionMode
from torch.utils._sympy.printers import PythonPrinter

from .ir import Source
from .replay import PLACES
from .trace import (
    DATA_DEPENDENT,
    RecordLines,
    TraceError,
    aten_name,
    calling_line,
    decompositions_before_gradients,
    graph_of,
    in_words,
    innermost,
    is_harmless,
    source_of,
    traceable,
)

# Work for other libraries, whose cost a fused kernel around it does not change; by torch function and by ATen operation.
_PRODUCT = "a matrix product has no place in these kernels: call it outside, and compile what comes before and after it"
_CONVOLUTION = (
    "a convolution has no place in these kernels: call it outside, and compile what comes before and after it"
)
_REFUSED = {
    **dict.fromkeys(
        ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "addmv", "addbmm", "baddbmm", "linear",
         "bilinear", "einsum", "tensordot", "inner", "scaled_dot_product_attention", "vdot", "_scaled_mm"),
        _PRODUCT,
    ),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"), _CONVOLUTION
    ),
}  # fmt: skip
_CASTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "_to_copy"}


class UntraceableError(TraceError):
    """torch does not trace the function, for a reason that is not known to be the author's."""


@dataclass(frozen=True)
class Condition:
    """What the sizes of a call must satisfy: the size of a dim, or any relation, in the symbols that others bind."""

    expression: Any
    symbol: Any = None  # bound to the size of ``dim`` where this is the first use
    dim: tuple[int, int] | None = None  # (tensor, dim)


@dataclass(frozen=True)
class Captured:
    """A graph whose placeholders are the tensors, then the float arguments; its nodes have their real dtypes.

    Each node's ``meta`` has "val" (a fake tensor or a symbolic size) and "custom": the author's line, whether the author
    asked for a cast there, and whether gradients were off.
    """

    module: torch.fx.GraphModule
    conditions: tuple[Condition, ...]

    @property
    def graph(self) -> torch.fx.Graph:
        return self.module.graph

    @cached_property
    def _dims(self) -> dict[Any, tuple[int, int]]:
        return {c.symbol: c.dim for c in self.conditions if c.symbol is not None and c.dim is not None}

    def size_text(self, size: Any) -> tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]]:
        """A size, or what was computed from sizes, as Python text, its names and the (tensor, dim) that each is the size of."""
        expression = sympy.sympify(size.node.expr if hasattr(size, "node") else size)
        symbols = sorted(expression.free_symbols, key=str)
        text = PythonPrinter().doprint(expression)
        return text, tuple(map(str, symbols)), tuple(self._dims[s] for s in symbols)

    def conditions_in_words(self, names: Sequence[str]) -> list[str]:
        """The conditions as text, with ``x.shape[0]`` for the sizes."""
        words: dict[str, str] = {}
        out = []
        for c in self.conditions:
            at = "" if c.dim is None else f"{names[c.dim[0]]}.shape[{c.dim[1]}]"
            if c.symbol is not None:
                words[str(c.symbol)] = at
                continue
            text = in_words(str(c.expression), words)
            out.append(f"{at} == {text}" if at else text)
        return out


def exposed(captured: Captured) -> tuple[Captured, list[torch.fx.Node]]:
    """The same graph with every floating-point tensor that it makes as a result, and these nodes in order."""
    module = torch.fx.GraphModule(captured.module, captured.graph.__deepcopy__({}))
    nodes = [
        n
        for n in module.graph.nodes
        if n.op == "call_function"
        and isinstance(n.meta.get("val"), torch.Tensor)
        and n.meta["val"].is_floating_point()
    ]
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    output.args = (tuple(nodes),)
    return Captured(module, captured.conditions), nodes


def line_text(source: Source | str | None) -> str:
    """``file:line`` with the text of the line below it."""
    if not isinstance(source, Source):
        return str(source)
    text = linecache.getline(source.file, source.line).strip()
    return f"{source}" + (f"\n      {text}" if text else "")


class _Annotate(RecordLines):
    """Annotates each node with the author's line, casts that the author wrote, and where gradients end."""

    def note(self, func: Any) -> dict[str, Any]:
        name = getattr(func, "__name__", "")
        detached = name == "detach" or not torch.is_grad_enabled()
        return {**super().note(func), "cast": name in _CASTS, "detached": detached}


class _Watch(TorchFunctionMode):
    """Notes the lines that modify an argument, or do what is refused by name."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors
        self.problems: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {name: t._version for name, t in self.tensors.items()}
        refused = _REFUSED.get(getattr(func, "__name__", ""))
        if refused is not None:
            self.problems.append(f"{line_text(calling_line())}\n    {refused}")
        out = traceable(func)(*args, **(kwargs or {}))
        self.problems += [
            f"{line_text(calling_line())}\n    the argument {name} is modified in place, and a compiled function never writes to "
            "its arguments: compute a new tensor and return it"
            for name, t in self.tensors.items()
            if t._version != before[name]
        ]
        return out


def capture(
    function: Callable[..., Sequence[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    floats: Sequence[float],
    names: Sequence[str],
) -> Captured:
    """Trace ``function(*tensors, *floats)``, which returns a list of tensors. Of the tensors only the metadata counts.

    The float arguments become tensors of one number, so that one graph serves all their values.

    Raises:
        TraceError: control flow on values, an argument that is modified, a matrix product, or anything torch cannot trace.
    """
    env = ShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    fakes: list[torch.Tensor] = []
    for t in tensors:
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * t.dim())
        sizes = [s.node.hint if isinstance(s, torch.SymInt) else s for s in t.shape]
        plain = torch.empty(sizes, dtype=t.dtype, device="meta")  # the device need not be there
        symbolic = mode.from_tensor(plain, symbolic_context=context)
        with mode:
            fakes.append(torch.empty(symbolic.shape, dtype=t.dtype, device=t.device))
    with mode:
        fakes += [torch.empty((), dtype=torch.float64) for _ in floats]

    def call(*leaves: torch.Tensor) -> Any:
        with _Annotate():
            return tuple(function(*leaves))

    watch = _Watch(dict(zip(names, fakes, strict=True)))
    try:
        with mode, watch:
            function(*fakes)
        if watch.problems:
            raise TraceError()
        try:
            module = graph_of(call, mode, fakes, decompositions_before_gradients())
        except (
            RuntimeError
        ):  # a decomposition of torch's fails for these dtypes: its function then stays whole
            module = graph_of(call, mode, fakes, {})
    except Exception as error:
        problems = [*watch.problems, *([] if str(error) == "" else [_reason(error)])]
        known = isinstance(error, (TraceError, *DATA_DEPENDENT)) or watch.problems
        raise (TraceError if known else UntraceableError)("\n  ".join(dict.fromkeys(problems))) from error
    _refuse_nodes(module.graph)
    _without_mutations(module.graph)
    _for_any_strides(module.graph)
    _without_full_slices(module.graph)
    module.graph.eliminate_dead_code()
    _note_long_rows(module.graph)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node in placeholders[len(tensors) :]:
        node.meta["float"] = True
    conditions: list[Condition] = []
    bound: set[Any] = set()
    for i, fake in enumerate(fakes[: len(tensors)]):
        for d, size in enumerate(fake.shape):
            if not isinstance(size, torch.SymInt):
                continue
            expression = env.simplify(size.node.expr)
            if expression.is_Symbol and expression not in bound:
                bound.add(expression)
                conditions.append(Condition(None, expression, (i, d)))
            else:
                conditions.append(Condition(expression, None, (i, d)))
    for guard in env.guards:
        expression = env.simplify(guard.expr)
        if expression != sympy.true and not is_harmless(expression):
            conditions.append(Condition(expression))
    # What is bound first: a size may follow from those of later arguments.
    return Captured(module, tuple(sorted(dict.fromkeys(conditions), key=lambda c: c.symbol is None)))


def _refuse_nodes(graph: torch.fx.Graph) -> None:
    problems = []
    for node in graph.nodes:
        name = aten_name(node)
        if name in _REFUSED:  # by a function of torch that calls it
            problems.append(f"{line_text(source_of(node))}\n    {_REFUSED[name]}")
    if problems:
        raise TraceError("\n  ".join(dict.fromkeys(problems)))


def _without_mutations(graph: torch.fx.Graph) -> None:
    """What decompositions of temporaries do in place, by the function that makes a new tensor."""
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable or not schema.name.endswith("_"):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::").removesuffix("_"))
        mutated = node.args[0]
        node.target = getattr(packet, schema.overload_name or "default")
        later = False
        for user in graph.nodes:
            if user is node:
                later = True
            elif later and mutated in user.all_input_nodes:
                user.replace_input_with(mutated, node)


def _for_any_strides(graph: torch.fx.Graph) -> None:
    """Views that depend on the strides, which are not always those of the example, by what copies where it must."""
    for node in graph.nodes:
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default


def _without_full_slices(graph: torch.fx.Graph) -> None:
    """Nothing for slices of a whole dim, as torch traces ``x[:, None]`` with one, unless the caller gets them."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.slice.Tensor:
            given = tuple(node.args)
            source, _, start, end, step = given + (0, None, None, 1)[len(given) - 1 :]
            if start in (0, None) and end in (sys.maxsize, None) and step == 1 and not node.kwargs:
                node.replace_all_uses_with(source, lambda user: user.op != "output")


# Up to here float32, in which kernels number the columns, has every whole number.
MOST_NUMBERED = 2**24


def _note_long_rows(graph: torch.fx.Graph) -> None:
    """Make it a condition of the graph whether rows in which a place is looked for have columns that float32 can number."""
    for node in graph.nodes:
        if aten_name(node) in PLACES:
            shape, dim = node.all_input_nodes[0].meta["val"].shape, [*node.args, None][1]
            sizes = shape if dim is None or not shape else [shape[dim]]
            node.meta["numbered"] = all(size <= MOST_NUMBERED for size in sizes)


def _reason(error: Exception) -> str:
    """What stopped a trace, in the author's terms."""
    text = (str(error) or type(error).__name__).splitlines()[0]
    reason = f"{type(error).__name__}: {text}"
    if isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException):
        reason = (
            "a Python number or a decision depends on the values of a tensor: "
            "keep it a tensor, and use torch.where instead of if"
        )
    elif isinstance(error, DynamicOutputShapeException):
        reason = "a shape depends on the values of a tensor: use torch.where, which keeps the shape"
    return f"{line_text(innermost(error))}\n    {reason}"
