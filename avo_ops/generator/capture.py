"""From a user's function and example tensors to one ATen graph over symbolic sizes, and the sizes that it holds for."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.fx.traceback as fx_traceback
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.overrides import TorchFunctionMode

from .ir import Source
from .trace import TraceError, calling_line, decompositions, innermost

# Work for other libraries, whose cost a fused kernel around it does not change.
_REFUSED = {
    **dict.fromkeys(
        ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "vdot", "linear", "_scaled_mm", "addbmm"),
        "a matrix product: call it outside, and compile what comes before and after it",
    ),
    **dict.fromkeys(
        ("convolution", "_convolution", "conv2d", "cudnn_convolution", "mkldnn_convolution"),
        "a convolution: call it outside, and compile what comes before and after it",
    ),
}
_CASTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "_to_copy"}


@dataclass(frozen=True)
class Condition:
    """What the sizes of a call must satisfy: the size of a dim, or any relation, in the symbols bound before it."""

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

    def holds(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether the graph is right for tensors of these shapes, whose ranks and sizes of 1 are those of the example."""
        values: dict[Any, Any] = {}
        for c in self.conditions:
            size = None if c.dim is None else shapes[c.dim[0]][c.dim[1]]
            if c.symbol is not None:
                values[c.symbol] = size
                continue
            symbols = [s for s in values if s in c.expression.free_symbols]
            found = compiled(c.expression, symbols)(*(values[s] for s in symbols))
            if not (found == size if c.dim is not None else found):
                return False
        return True

    def conditions_in_words(self, names: Sequence[str]) -> list[str]:
        """The conditions as text, with ``x.shape[0]`` for the sizes."""
        words: dict[Any, str] = {}
        out = []
        for c in self.conditions:
            at = "" if c.dim is None else f"{names[c.dim[0]]}.shape[{c.dim[1]}]"
            if c.symbol is not None:
                words[c.symbol] = at
                continue
            text = str(c.expression)
            for symbol, word in words.items():
                text = text.replace(str(symbol), word)
            out.append(f"{at} == {text}" if at else text)
        return out


def compiled(expression: Any, symbols: Sequence[Any]) -> Callable[..., Any]:
    """A function of the sizes, also of symbolic ones, on which it leaves guards."""
    functions = {"FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod,
                 "Max": max, "Min": min}  # fmt: skip
    found: Callable[..., Any] = sympy.lambdify(list(symbols), expression, modules=[functions, "math"])
    return found


def line_text(source: Source | str | None) -> str:
    """``file:line`` with the text of the line below it."""
    if not isinstance(source, Source):
        return str(source)
    text = linecache.getline(source.file, source.line).strip()
    return f"{source}" + (f"\n      {text}" if text else "")


class _Annotate(TorchFunctionMode):
    """Annotates each node with the author's line, casts that the author wrote, and where gradients end."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        source = calling_line()
        name = getattr(func, "__name__", "")
        note = {
            "source": (source.file, source.line),
            "cast": name in _CASTS,
            "detached": name == "detach" or not torch.is_grad_enabled(),
        }
        with fx_traceback.annotate(note):
            return func(*args, **(kwargs or {}))


class _Watch(TorchFunctionMode):
    """Raises TraceError at the line that modifies an argument."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {name: t._version for name, t in self.tensors.items()}
        out = func(*args, **(kwargs or {}))
        for name, t in self.tensors.items():
            if t._version != before[name]:
                raise TraceError(
                    f"{line_text(calling_line())}\n    the argument {name} is modified in place; a compiled function never "
                    "writes to its arguments: compute a new tensor and return it"
                )
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
    fakes = []
    for t in tensors:
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * t.dim())
        plain = torch.empty(t.shape, dtype=t.dtype, device=t.device)
        fakes.append(mode.from_tensor(plain, symbolic_context=context))
    with mode:
        fakes += [torch.empty((), dtype=torch.float64) for _ in floats]

    def call(*leaves: torch.Tensor) -> Any:
        with _Annotate():
            return tuple(function(*leaves))

    try:
        with mode, _Watch(dict(zip(names, fakes, strict=True))):
            function(*fakes)
        with mode, fx_traceback.preserve_node_meta():
            module = make_fx(
                functionalize(call, remove="mutations"),  # of temporaries
                tracing_mode="real",
                decomposition_table=decompositions(),
            )(*fakes)
    except Exception as error:
        raise _refusal(error) from error
    _refuse_nodes(module.graph)
    _without_mutations(module.graph)
    module.graph.eliminate_dead_code()
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
        if expression != sympy.true and not _says_not_empty(expression):
            conditions.append(Condition(expression))
    return Captured(module, tuple(dict.fromkeys(conditions)))


def _says_not_empty(expression: Any) -> bool:
    """Whether a guard only says that a size is neither 0 nor 1, which the sizes of 1 of a call say already."""
    if not getattr(expression, "is_Relational", False):
        return False
    symbol, bound = expression.lhs, expression.rhs
    if not (symbol.is_Symbol and bound.is_number):
        return False
    return bool({"!=": bound in (0, 1), ">=": bound <= 2, ">": bound <= 1}.get(expression.rel_op, False))


def _refuse_nodes(graph: torch.fx.Graph) -> None:
    problems = []
    for node in graph.nodes:
        name = str(node.target).removeprefix("aten.").split(".")[0]
        if name in _REFUSED:
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


def source_of(node: torch.fx.Node) -> Source | None:
    """The author's line that made this node."""
    recorded = (node.meta.get("custom") or {}).get("source")
    return Source(*recorded) if recorded else None


def _refusal(error: Exception) -> TraceError:
    if isinstance(error, TraceError):
        return error
    text = (str(error) or type(error).__name__).splitlines()[0]
    reason = f"{type(error).__name__}: {text}"
    if isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException):
        reason = (
            "a Python number or a decision depends on the values of a tensor; "
            "keep it a tensor, and use torch.where instead of if"
        )
    elif isinstance(error, DynamicOutputShapeException):
        reason = "a shape depends on the values of a tensor; use torch.where, which keeps the shape"
    return TraceError(f"{line_text(innermost(error))}\n    {reason}")
