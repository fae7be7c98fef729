"""One graph of a compiled function as data, from what the generator found: what :class:`.composite.Composite` runs.

Values of a call are in numbered slots: first the tensors, then the float arguments, then what the steps make.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..generator.capture import Captured
    from ..generator.partition import RegionStep, Step, TorchStep, View

Tensor = torch.Tensor


@dataclass(frozen=True)
class Size:
    """A number that follows from sizes of the tensors: Python text over names, each bound to (tensor, dim)."""

    text: str
    names: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = ()

    def function(self) -> Callable[[Sequence[Any]], Any]:
        """The number, from the tensors of a call or its slots, which begin with them."""
        places = self.places
        if self.names == (self.text,):
            ((tensor, dim),) = places
            return lambda env: env[tensor].shape[dim]
        number = evaluator(self.text, self.names)
        if not places:
            constant = number()
            return lambda env: constant
        return lambda env: number(*[env[t].shape[d] for t, d in places])

    def function_of_shapes(self) -> Callable[[Sequence[Sequence[int]]], Any]:
        """The number, from the shapes of the tensors of a call."""
        places = self.places
        if self.names == (self.text,):
            ((tensor, dim),) = places
            return lambda shapes: shapes[tensor][dim]
        number = evaluator(self.text, self.names)
        return lambda shapes: number(*[shapes[t][d] for t, d in places])


@dataclass(frozen=True)
class Condition:
    """What must hold of the sizes of a call: a number is true, or is the size of ``dim`` (tensor, dim)."""

    size: Size
    dim: tuple[int, int] | None = None


@dataclass(frozen=True)
class SlotView:
    """A slot, and the view of it that is taken, or put there; as of :class:`..generator.partition.View`."""

    slot: int
    permute: tuple[int, ...] | None = None
    shape: tuple[int | None, ...] | None = None
    expand: tuple[Size | None, ...] | None = None
    dtype: torch.dtype | None = None

    @property
    def is_plain(self) -> bool:
        return self.permute is None and self.shape is None and self.expand is None and self.dtype is None


@dataclass(frozen=True)
class KernelStep:
    """A call of a registered operator. ``dtypes``: of its operands. ``text``: its operands, results and formula in words."""

    op: str
    operands: tuple[SlotView, ...]
    dtypes: tuple[torch.dtype, ...]
    columns: tuple[Size, ...]
    scalars: tuple[int, ...]
    results: tuple[tuple[SlotView, ...], ...]
    text: str


@dataclass(frozen=True)
class Slot:
    """A slot in the arguments of a torch operation. ``number``: it holds a float, of which torch gets a tensor."""

    index: int
    number: bool = False


@dataclass(frozen=True)
class CallDevice:
    """The CUDA device of a call, in the arguments of a torch operation: that of the tensor in a slot."""

    slot: int


@dataclass(frozen=True)
class CallStep:
    """An operation of torch's own. ``reason``: why no kernel does it, or "" for a view or a size; ``where``: the author's line."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    into: int
    detached: bool
    reason: str
    where: str = ""


@dataclass(frozen=True)
class SizeStep:
    """The size of a dim of a slot."""

    into: int
    slot: int
    dim: int


@dataclass(frozen=True)
class ConstantStep:
    """A tensor that is no argument."""

    into: int
    value: Tensor


ProgramStep = KernelStep | CallStep | SizeStep | ConstantStep


@dataclass(frozen=True)
class Program:
    """``inputs``: how many slots the call fills. ``outputs``: slots, or None. ``dtypes``: of the outputs."""

    inputs: int
    slots: int
    conditions: tuple[Condition, ...]
    steps: tuple[ProgramStep, ...]
    outputs: tuple[Any, ...]
    dtypes: tuple[torch.dtype | None, ...]

    def operators(self) -> tuple[str, ...]:
        """The names of its operators, in order."""
        return tuple(s.op for s in self.steps if isinstance(s, KernelStep))

    def holds(self) -> Callable[[Sequence[Sequence[int]]], bool]:
        """Whether the graph is right for tensors of these shapes, whose ranks and sizes of 1 are those of the example."""
        checks = [(c.size.function_of_shapes(), c.dim) for c in self.conditions]

        def holds(shapes: Sequence[Sequence[int]]) -> bool:
            for number, dim in checks:
                found = number(shapes)
                if not (found if dim is None else found == shapes[dim[0]][dim[1]]):
                    return False
            return True

        return holds

    def reasons(self) -> list[tuple[str, str]]:
        """What is left to torch, and why."""
        return [(str(s.target), s.reason) for s in self.steps if isinstance(s, CallStep) and s.reason]


# ---- numbers from sizes ----

_SYMBOLIC = ("sym_float", "sym_int", "sym_not", "sym_max", "sym_min", "sym_ite", "sym_sum", "_sym_sqrt")
_MODULES = {"math": tuple(n for n in dir(math) if n[0] != "_"), "torch": _SYMBOLIC}
_BARE = {"max": max, "min": min, "abs": abs, "int": int, "float": float, "round": round}
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.Call, ast.Tuple, ast.List, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def evaluator(text: str, names: Sequence[str]) -> Callable[..., Any]:
    """A function of numbers, also of symbolic ones, on which it leaves guards. The text may be of any origin.

    Raises:
        ValueError: it is more than arithmetic on the names.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise ValueError(f"not arithmetic: {text!r}") from None
    for node in ast.walk(tree):
        good = isinstance(node, _NODES)
        if isinstance(node, ast.Constant):
            good = type(node.value) in (int, float, bool)
        elif isinstance(node, ast.Attribute):
            good = isinstance(node.value, ast.Name) and node.attr in _MODULES.get(node.value.id, ())
        elif isinstance(node, ast.Name):
            good = node.id in (*names, *_MODULES, *_BARE)
        if not good:
            raise ValueError(f"not arithmetic: {text!r}")
    scope = {"__builtins__": {}, "math": math, "torch": torch, **_BARE}
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, tree.body)))
    found: Callable[..., Any] = eval(compile(function, "<sizes>", "eval"), scope)
    return found


# ---- from the generator's steps ----


def program_of(captured: Captured, steps: Sequence[Step]) -> Program:
    """The steps of a graph, whose operators are registered, over the slots of its nodes."""
    return _Lowering(captured).program(steps)


class _Lowering:
    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.nodes = list(captured.graph.nodes)
        self.slot = {n: i for i, n in enumerate(self.nodes)}

    def program(self, steps: Sequence[Step]) -> Program:
        from ..generator.partition import RegionStep

        (output,) = (n for n in self.nodes if n.op == "output")
        outputs: Any = output.args[0]
        return Program(
            sum(n.op == "placeholder" for n in self.nodes),
            len(self.nodes),
            tuple(
                Condition(self.size(c.expression), c.dim)
                for c in self.captured.conditions
                if c.symbol is None
            ),
            tuple(self.region(s) if isinstance(s, RegionStep) else self.torch(s) for s in steps),
            tuple(self.slot[o] if isinstance(o, torch.fx.Node) else o for o in outputs),
            tuple(o.meta["val"].dtype if isinstance(o, torch.fx.Node) else None for o in outputs),
        )

    def region(self, step: RegionStep) -> KernelStep:
        operands = ", ".join(f"{o.name}[{o.span or '1'}]" for o in step.operands)
        results = ", ".join(f"{r.name}[{r.span}]" for r in step.results)
        return KernelStep(
            step.record.name,
            tuple(self.view(self.slot[o.node], o.view) for o in step.operands),
            tuple(o.dtype for o in step.operands),
            tuple(map(self.size, step.column_sizes)),
            tuple(self.slot[n] for _, n in step.scalars),
            tuple(tuple(self.view(self.slot[n], v) for n, v in r.nodes) for r in step.results),
            f"({operands}) -> {results}: {step.record.formula}",
        )

    def size(self, size: Any) -> Size:
        return Size(*self.captured.size_text(size))

    def view(self, slot: int, view: View) -> SlotView:
        expand = view.expand and tuple(None if s is None else self.size(s) for s in view.expand)
        return SlotView(slot, view.permute, view.shape, expand, view.dtype)

    def torch(self, step: TorchStep) -> ProgramStep:
        from ..generator.trace import source_of

        node = step.node
        into = self.slot[node]
        if node.op == "get_attr":
            return ConstantStep(into, getattr(self.captured.module, str(node.target)))
        args: Any = node.args
        if str(node.target) == "aten.sym_size.int":
            return SizeStep(into, self.slot[args[0]], args[1])

        def slot(n: torch.fx.Node) -> Slot:
            return Slot(self.slot[n], bool(n.meta.get("float")))

        args, kwargs = mapped((args, node.kwargs), lambda n: slot(n) if isinstance(n, torch.fx.Node) else n)
        detached = bool((node.meta.get("custom") or {}).get("detached"))
        where = str(source_of(node) or "")
        return CallStep(node.target, args, kwargs, into, detached, step.reason, where)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A structure of tuples, lists and dicts with ``function`` applied to all else."""
    if isinstance(value, tuple):
        return tuple([mapped(v, function) for v in value])
    if isinstance(value, list):
        return [mapped(v, function) for v in value]
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return function(value)
