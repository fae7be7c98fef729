"""``avo_ops.explain`` of a function: what it becomes, what has no kernel and why, what is moved, and what that may take."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import registry
from ..registry.dynamic import NAMESPACE
from .composite import Eager, arguments_of, run_of
from .function import CompiledFunction, CompileError, Function
from .loaded import NotExported
from .program import CallStep, KernelStep

Tensor = torch.Tensor


@dataclass(frozen=True)
class TorchPart:
    """An operation that is left to torch: the author's line, its text, and why."""

    operation: str
    where: str
    text: str
    reason: str

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        line = f"\n      {self.text}" if self.text else ""
        return f"  torch   {self.operation}{place}: {self.reason}{line}"


@dataclass(frozen=True)
class FunctionExplanation:
    """What one call of a function becomes.

    ``problems``: why it cannot be compiled, each with file, line, text and a way out; "" if it can. ``calls``: the graph that
    serves the call. ``kernels``: the calls of operators, in order, with their backward where a gradient is wanted. ``left``: what
    torch does. ``bandwidth``: bytes a second of the device's memory, where that is known.
    """

    name: str
    problems: str = ""
    calls: str = ""
    kernels: tuple[registry.Explanation, ...] = ()
    left: tuple[TorchPart, ...] = ()
    bandwidth: float | None = None

    @property
    def supported(self) -> bool:
        """Whether the function compiles, and kernels do all of it."""
        return not self.problems and not self.left

    def moved(self, backward: bool = False) -> int:
        """Bytes that the kernels read and write, those of temporaries included; or those of the backward."""
        calls = [c for e in self.kernels for c in (e.calls[1:] if backward else e.calls[:1])]
        return sum(c.read + c.written + c.temporary for c in calls)

    def seconds(self, backward: bool = False) -> float | None:
        """The time that the memory needs for these bytes; None where its bandwidth is not known."""
        return None if self.bandwidth is None else self.moved(backward) / self.bandwidth

    def __str__(self) -> str:
        if self.problems:
            return f"{self.name}: not supported\n{self.problems}"
        what = "supported" if self.supported else "supported in part" if self.kernels else "not supported"
        count = len(self.kernels)
        lines = [
            f"{self.name}({self.calls}): {what}, {count} kernel call{'s' if count != 1 else ''}",
            *map(str, self.left),
        ]
        lines += [f"  {line}" for e in self.kernels for line in str(e).splitlines()]
        for backward in (False, True) if any(len(e.calls) > 1 for e in self.kernels) else (False,):
            moved, seconds = self.moved(backward), self.seconds(backward)
            time = "" if seconds is None else f", {seconds * 1e6:.3g} us at {self.bandwidth / 1e12:.3g} TB/s"
            lines.append(
                f"  {'backward' if backward else 'forward'}: {registry.size_text(moved)} moved by kernels{time}"
            )
        return "\n".join(lines)


def explain(op: Any, *args: Any, on: Any = None, **kwargs: Any) -> Any:
    """What a call of an operator or of a function becomes, as an object to print; nothing is computed.

    A function is traced if it was not, and its kernels for the CPU are compiled if the call would run there.

    Args:
        op: an operator of the catalogue: "gelu", "avo::gelu", ``torch.ops.avo.gelu`` or an overload of it, the ``_forward`` and
            ``_backward`` ops too. Or a function: plain, compiled or loaded.
        args, kwargs: the arguments of the call. Tensors on the meta device and fake tensors will do: of a tensor only its
            dtype, shape, strides, address and whether it requires a gradient count.
        on: "cpu", or a GPU as "sm_90", whether or not it is there; by default where the tensors are.

    Returns:
        For an operator an ``Explanation``: the path that the call takes. For a function a ``FunctionExplanation``: whether it can
        be compiled, all that stands against it with file, line and a way out, which kernels it becomes, what is left to torch
        and why, the bytes that kernels move, and the time that takes if the bandwidth of the device is known (on a GPU that
        is there).

    Raises:
        ValueError: there is no such op, or what it would run on cannot be told from the tensors.
        RuntimeError: the call would be refused; with the message that it would have.
    """
    if isinstance(op, str | torch._ops.OpOverload | torch._ops.OpOverloadPacket) or not callable(op):
        return registry.explain(op, *args, on=on, **kwargs)
    return explain_function(op, args, kwargs, on)


def explain_function(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], on: Any = None
) -> FunctionExplanation:
    """The explanation of one call of a function."""
    function = fn if isinstance(fn, Function) else CompiledFunction(fn)
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    try:
        graph = function._graph(leaves, spec)
    except (CompileError, NotExported) as error:
        return FunctionExplanation(
            function.name, str(error).removeprefix(f"{function.name} cannot be compiled:\n")
        )
    if graph is None:
        return FunctionExplanation(
            function.name, "  no graph of the bundle serves such a call: the function itself runs"
        )
    if isinstance(graph.composite, Eager):
        return FunctionExplanation(
            function.name, f"  torch runs the whole function: {graph.composite.reasons[0][1]}"
        )
    if on in (None, "cpu"):
        graph.complete()
    kernels, left = _walk(graph.composite.program, [leaves[i] for i in graph.places], on)
    device = next(a.device for a in leaves if isinstance(a, Tensor))
    bandwidth = _bandwidth(device) if on is None else None
    return FunctionExplanation(function.name, "", graph.variant.calls, kernels, left, bandwidth)


def _walk(
    program: Any, given: Sequence[Any], on: Any
) -> tuple[tuple[registry.Explanation, ...], tuple[TorchPart, ...]]:
    """Run a program on tensors without values, and ask at each operator what its call would be."""
    from torch._subclasses import FakeTensorMode

    kernels, left = [], []
    env: list[Any] = [None] * program.slots
    with FakeTensorMode(allow_non_fake_inputs=True), torch._C._DisableAutocast():
        env[: len(given)] = [_fake(a) if isinstance(a, Tensor) else a for a in given]
        for step in program.steps:
            if isinstance(step, KernelStep):
                kernels.append(registry.explain(f"{NAMESPACE}::{step.op}", *arguments_of(step)(env), on=on))
            elif isinstance(step, CallStep) and step.reason:
                file, _, line = step.where.rpartition(":")
                text = linecache.getline(file, int(line)).strip() if file else ""
                left.append(TorchPart(str(step.target), step.where, text, step.reason))
            run_of(step)(env)
    return tuple(kernels), tuple(left)


def _fake(t: Tensor) -> Tensor:
    """A tensor of the same dtype, layout and alignment, without values; within a fake mode."""
    size = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1 if t.numel() else 0
    address = 0 if t.device.type == "meta" or type(t) not in (Tensor, torch.nn.Parameter) else t.data_ptr()
    offset = address % 256 // t.dtype.itemsize
    storage = torch.empty(size + offset, dtype=t.dtype, device=t.device)
    found = storage.as_strided(t.shape, t.stride(), offset)
    return found.requires_grad_(t.requires_grad) if t.is_floating_point() else found


def _bandwidth(device: torch.device) -> float | None:
    """Bytes a second of a GPU's memory, by its clock (two transfers a tick) and the width of its bus."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    about = torch.cuda.get_device_properties(device)
    kilohertz, bits = getattr(about, "memory_clock_rate", 0), getattr(about, "memory_bus_width", 0)
    return 2e3 * kilohertz * bits / 8 or None
