"""One graph of a compiled function, ready to run: views, registered operators, and what is left to torch, in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..registry import direct_call, note_definition
from ..registry.dynamic import NAMESPACE
from .calls import is_autocasting
from .program import (
    CallDevice,
    CallStep,
    ConstantStep,
    KernelStep,
    Program,
    ProgramStep,
    SizeStep,
    Slot,
    SlotView,
    mapped,
)

Tensor = torch.Tensor
Run = Callable[[list[Any]], None]
"""Reads and writes the slots of a call."""


class Composite:
    """Runs a program on flat lists of tensors and floats, and returns the flat results.

    ``direct`` is one operator that takes the tensors and floats as they are and gives the only result, or None.
    """

    def __init__(self, program: Program, title: str) -> None:
        self.program, self.title = program, title
        self.holds = program.holds()
        self.reasons = program.reasons()
        self._runs = [run_of(s) for s in program.steps]
        self._names = [f"{NAMESPACE}::{title}", "; ".join(f"{n}: {r}" for n, r in self.reasons)]
        self.direct = _direct(program)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        if self.reasons:
            note_definition(*self._names)
        env: list[Any] = [None] * self.program.slots
        env[: len(leaves)] = leaves
        if is_autocasting():
            with torch._C._DisableAutocast():  # the graph has the casts
                for run in self._runs:
                    run(env)
        else:
            for run in self._runs:
                run(env)
        return [None if o is None else env[o] for o in self.program.outputs]


# ---- steps ----


def run_of(step: ProgramStep) -> Run:
    match step:
        case KernelStep():
            return _kernel(step)
        case CallStep():
            return _call(step)
        case SizeStep(into, source, dim):

            def size(env: list[Any]) -> None:
                env[into] = env[source].shape[dim]

            return size
        case ConstantStep(into, constant):

            def fetch(env: list[Any]) -> None:
                env[into] = constant

            return fetch


def _operator(name: str) -> Callable[..., Any]:
    overload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return direct_call(f"{NAMESPACE}::{name}", overload) or overload


def arguments_of(step: KernelStep) -> Callable[[list[Any]], list[Any]]:
    """What makes the arguments of the operator from the slots of a call."""
    operands = [(o.slot, _view(o)) for o in step.operands]
    columns = [s.function() for s in step.columns]
    scalars = step.scalars

    def arguments(env: list[Any]) -> list[Any]:
        args = [env[i] if view is None else view(env[i], env) for i, view in operands]
        if columns:
            args.append([s(env) for s in columns])
        for i in scalars:
            value = env[i]
            args.append(value if type(value) is float else float(value))
        return args

    return arguments


def _kernel(step: KernelStep) -> Run:
    op, arguments = _operator(step.op), arguments_of(step)
    results = [[(v.slot, _view(v)) for v in views] for views in step.results]
    single = len(results) == 1

    def run(env: list[Any]) -> None:
        out = op(*arguments(env))
        for found, views in zip((out,) if single else out, results, strict=True):
            for i, view in views:
                env[i] = found if view is None else view(found, env)

    return run


def _view(view: SlotView) -> Callable[[Tensor, list[Any]], Tensor] | None:
    if view.is_plain:
        return None
    permute, shape, dtype = view.permute, view.shape, view.dtype
    expand = None if view.expand is None else [None if s is None else s.function() for s in view.expand]

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


def _call(step: CallStep) -> Run:
    target, args, kwargs, into, detached = step.target, step.args, step.kwargs, step.into, step.detached

    def run(env: list[Any]) -> None:
        def get(a: Any) -> Any:
            if isinstance(a, Slot):
                return torch.tensor(env[a.index], dtype=torch.float64) if a.number else env[a.index]
            return env[a.slot].device if isinstance(a, CallDevice) else a

        found = target(*mapped(args, get), **mapped(kwargs, get))
        env[into] = found.detach() if detached and isinstance(found, Tensor) else found

    return run


def _direct(program: Program) -> Callable[..., Any] | None:
    if len(program.steps) != 1 or len(program.outputs) != 1 or not isinstance(program.steps[0], KernelStep):
        return None
    (step,) = program.steps
    views = [*step.operands, *(v for views in step.results for v in views)]
    if step.columns or not all(v.is_plain for v in views) or len(views) != len(step.operands) + 1:
        return None
    if program.outputs[0] != step.results[0][0].slot:
        return None
    places = [*(o.slot for o in step.operands), *step.scalars]
    if not set(places) <= set(range(program.inputs)):
        return None
    op = _operator(step.op)
    if places == list(range(program.inputs)):
        return op
    pick = operator.itemgetter(*places) if len(places) > 1 else None
    if pick is not None:
        return lambda *leaves: op(*pick(leaves))
    (place,) = places
    return lambda *leaves: op(leaves[place])


class Eager:
    """Stands for a graph that torch cannot trace: the function itself, counted as the work of torch."""

    def __init__(self, function: Callable[..., Any], title: str, reason: str) -> None:
        self.function, self.name = function, f"{NAMESPACE}::{title}"
        self.reasons = [("", reason)]

    def holds(self, shapes: Sequence[Sequence[int]]) -> bool:
        return True

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        note_definition(self.name, self.reasons[0][1])
        return self.function(*args, **kwargs)
