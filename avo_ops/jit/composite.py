"""One graph of a compiled function, ready to run: views, registered operators, and what is left to torch, in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..registry import direct_call, note_definition
from ..registry.dynamic import NAMESPACE

if TYPE_CHECKING:
    from ..generator.capture import Captured
    from ..generator.partition import RegionStep, Step, TorchStep, View

Tensor = torch.Tensor
_is_autocasting = torch._C._is_any_autocast_enabled
Run = Callable[[list[Any]], None]
"""Reads and writes the slots of a call."""


class Composite:
    """Runs the steps of a graph on flat lists of tensors and floats, and returns the flat results.

    ``direct`` is one operator that takes the tensors and floats as they are and gives the only result, or None.
    """

    def __init__(self, captured: Captured, steps: Sequence[Step], title: str) -> None:
        from ..generator.partition import RegionStep

        self.captured, self.steps, self.title = captured, tuple(steps), title
        self.holds, self.conditions = captured.holds, captured.conditions_in_words
        nodes = list(captured.graph.nodes)
        self._slot = {n: i for i, n in enumerate(nodes)}
        self._placeholders = [n for n in nodes if n.op == "placeholder"]
        (output,) = (n for n in nodes if n.op == "output")
        self._outputs = list(output.args[0])
        self.reasons = [
            (s.node, s.reason) for s in steps if not isinstance(s, RegionStep) and s.reason
        ]  # fmt: skip
        self._runs = [self._region(s) if isinstance(s, RegionStep) else self._torch(s) for s in steps]
        self._names = [f"{NAMESPACE}::{title}", "; ".join(f"{n.target}: {r}" for n, r in self.reasons)]
        self.direct = self._direct()

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        if self.reasons:
            note_definition(*self._names)
        env: list[Any] = [None] * len(self._slot)
        env[: len(leaves)] = leaves
        if _is_autocasting():
            with torch._C._DisableAutocast():  # the graph has the casts
                for run in self._runs:
                    run(env)
        else:
            for run in self._runs:
                run(env)
        return [env[self._slot[o]] if isinstance(o, torch.fx.Node) else o for o in self._outputs]

    def result_nodes(self) -> list[Any]:
        """The nodes of the results, in order."""
        return list(self._outputs)

    def result_dtypes(self) -> list[torch.dtype]:
        """The dtypes of the results, in order."""
        return [o.meta["val"].dtype for o in self._outputs]

    def value_of(self, result: Any) -> Callable[[Sequence[Any]], Any]:
        """What gives a result of the trace that is no tensor, from the tensors and floats of a call."""
        if isinstance(result, torch.Size):
            sizes = [self._size(s) for s in result]
            return lambda leaves: torch.Size([s(leaves) for s in sizes])
        if isinstance(result, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self._size(result)
        return lambda leaves: result

    def _size(self, size: Any) -> Callable[[Sequence[Any]], Any]:
        """A size, or what was computed from sizes, from the tensors of a call or its slots, which begin with them."""
        expression = size.node.expr if hasattr(size, "node") else size
        if isinstance(expression, int) or expression.is_Integer:
            number = int(expression)
            return lambda env: number
        function, places = self.captured.from_sizes(expression)
        if expression.is_Symbol:
            ((tensor, dim),) = places
            return lambda env: env[tensor].shape[dim]
        return lambda env: function(*[env[t].shape[d] for t, d in places])

    # ---- steps ----

    def _operator(self, step: RegionStep) -> Callable[..., Any]:
        overload = getattr(getattr(torch.ops, NAMESPACE), step.record.name).default
        return direct_call(f"{NAMESPACE}::{step.record.name}", overload) or overload

    def _region(self, step: RegionStep) -> Run:
        op = self._operator(step)
        slot = self._slot
        operands = [(slot[o.node], self._view(o.view)) for o in step.operands]
        columns = [self._size(s) for s in step.column_sizes]
        scalars = [slot[n] for _, n in step.scalars]
        results = [[(slot[n], self._view(v)) for n, v in r.nodes] for r in step.results]
        single = len(results) == 1

        def run(env: list[Any]) -> None:
            args = [env[i] if view is None else view(env[i], env) for i, view in operands]
            if columns:
                args.append([s(env) for s in columns])
            for i in scalars:
                value = env[i]
                args.append(value if type(value) is float else float(value))
            out = op(*args)
            for found, nodes in zip((out,) if single else out, results, strict=True):
                for i, view in nodes:
                    env[i] = found if view is None else view(found, env)

        return run

    def _view(self, view: View) -> Callable[[Tensor, list[Any]], Tensor] | None:
        permute, shape, dtype = view.permute, view.shape, view.dtype
        expand = None if view.expand is None else [None if s is None else self._size(s) for s in view.expand]
        if permute is None and shape is None and expand is None and dtype is None:
            return None

        def run(t: Tensor, env: list[Any]) -> Tensor:
            if permute is not None:
                t = t.permute(permute)
            if shape is not None:
                sizes = t.shape
                t = t.reshape([1 if d is None else sizes[d] for d in shape])
            if expand is not None:
                t = t.expand([-1 if s is None else s(env) for s in expand])
            return t if dtype is None else t.to(dtype)

        return run

    def _torch(self, step: TorchStep) -> Run:
        node, slot = step.node, self._slot
        into = slot[node]
        if node.op == "get_attr":
            constant = getattr(self.captured.module, str(node.target))

            def fetch(env: list[Any]) -> None:
                env[into] = constant

            return fetch
        target: Any = node.target
        floats = {n for n in node.all_input_nodes if n.meta.get("float")}
        if str(target) == "aten.sym_size.int":
            source, dim = slot[node.args[0]], node.args[1]  # type: ignore[index]

            def size(env: list[Any]) -> None:
                env[into] = env[source].shape[dim]

            return size
        args, kwargs, detached = node.args, node.kwargs, bool((node.meta.get("custom") or {}).get("detached"))

        def run(env: list[Any]) -> None:
            def get(n: torch.fx.Node) -> Any:
                value = env[slot[n]]
                return torch.tensor(value, dtype=torch.float64) if n in floats else value

            found = target(*torch.fx.node.map_arg(args, get), **torch.fx.node.map_arg(kwargs, get))
            env[into] = found.detach() if detached and isinstance(found, Tensor) else found

        return run

    def _direct(self) -> Callable[..., Any] | None:
        from ..generator.partition import RegionStep

        if len(self.steps) != 1 or len(self._outputs) != 1 or not isinstance(self.steps[0], RegionStep):
            return None
        (step,) = self.steps
        views = [o.view for o in step.operands] + [v for r in step.results for _, v in r.nodes]
        if (
            step.column_sizes
            or any(self._view(v) is not None for v in views)
            or len(views) != len(step.operands) + 1
        ):
            return None
        if self._outputs[0] is not step.results[0].nodes[0][0]:
            return None
        order = [*(o.node for o in step.operands), *(n for _, n in step.scalars)]
        if not set(order) <= set(self._placeholders):
            return None
        op, places = self._operator(step), [self._placeholders.index(n) for n in order]
        if places == list(range(len(self._placeholders))):
            return op
        pick = operator.itemgetter(*places) if len(places) > 1 else None
        if pick is not None:
            return lambda *leaves: op(*pick(leaves))
        (place,) = places
        return lambda *leaves: op(leaves[place])


class Eager:
    """Stands for a graph that torch cannot trace: the function itself, counted as the work of torch."""

    steps: tuple[Any, ...] = ()

    def __init__(self, function: Callable[..., Any], title: str, reason: str) -> None:
        self.function, self.name = function, f"{NAMESPACE}::{title}"
        self.reasons = [(None, reason)]

    def holds(self, shapes: Sequence[Sequence[int]]) -> bool:
        return True

    def conditions(self, names: Sequence[str]) -> list[str]:
        return []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        note_definition(self.name, self.reasons[0][1])
        return self.function(*args, **kwargs)
