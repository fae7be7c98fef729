"""Where the numbers of a compiled function depart from exact ones: its graph in float64, in eager, and by our kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .composite import Composite

if TYPE_CHECKING:
    from ..generator.capture import Captured

Tensor = torch.Tensor


@dataclass(frozen=True)
class Errors:
    """The worst of a line: absolute, relative to the exact value, and in units in the last place of the step's dtype."""

    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0

    def worst(self, other: Errors) -> Errors:
        return Errors(
            max(self.absolute, other.absolute), max(self.relative, other.relative), max(self.ulp, other.ulp)
        )


@dataclass(frozen=True)
class Line:
    """One line of the author's: what it says, and the errors of the steps on it."""

    source: str
    text: str
    eager: Errors
    ours: Errors


@dataclass(frozen=True)
class Verification:
    """``departure``: the first line where ours is more than 2 ulp, and more than twice eager's error, from exact; or None."""

    name: str
    lines: tuple[Line, ...]

    @property
    def departure(self) -> Line | None:
        return next((x for x in self.lines if x.ours.ulp > max(2.0, 2 * x.eager.ulp)), None)

    def __str__(self) -> str:
        head = f"{self.name}: worst errors against float64\n{'':>24}eager abs      rel      ulp   ours abs      rel      ulp"
        rows = []
        for x in self.lines:
            numbers = "".join(f"{v:9.1e}" for e in (x.eager, x.ours) for v in (e.absolute, e.relative, e.ulp))
            rows.append(f"{x.source[-22:]:<24}{numbers}  {x.text}")
        first = self.departure
        end = (
            "no line departs from eager"
            if first is None
            else f"first departure: {first.source}: {first.text}"
        )
        return "\n".join([head, *rows, end])


def verify(name: str, captured: Captured, leaves: Sequence[Any]) -> Verification:
    """Run the graph three ways on these tensors and floats, every step exposed."""
    import linecache

    from ..generator.capture import exposed
    from ..generator.trace import source_of
    from .kernels import load_cpu_kernels, registered
    from .program import program_of

    graph, nodes = exposed(captured)
    if not nodes:
        raise ValueError(f"{name}.verify: the function makes no floating-point tensor")
    names = [f"a{i}" for i in range(len(leaves))]
    steps = registered(graph, names, f"{name}_exposed", gradients=False)
    composite = Composite(program_of(graph, steps), name)
    if any(isinstance(a, Tensor) and a.is_cpu for a in leaves):
        load_cpu_kernels(composite.program.operators())
    with torch.no_grad(), torch._C._DisableAutocast():  # the graph has the casts
        plain = [a.detach().contiguous() if isinstance(a, Tensor) else a for a in leaves]
        ours = composite(plain)
        wide = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in plain]
        eager, exact = _interpreted(graph, plain, False), _interpreted(graph, wide, True)
    (output,) = (n for n in graph.graph.nodes if n.op == "output")
    outputs: Any = output.args[0]
    lines: dict[Any, tuple[Errors, Errors]] = {}
    for node, found in zip(outputs, ours, strict=True):
        old = lines.get(source_of(node), (Errors(), Errors()))
        # A step that was split in two for the kernels is not in the graph that torch ran: its last half stands for it.
        if node in exact:
            pair = (_errors(eager[node], exact[node]), _errors(found, exact[node]))
            lines[source_of(node)] = (old[0].worst(pair[0]), old[1].worst(pair[1]))
    return Verification(
        name,
        tuple(
            Line(str(s), linecache.getline(s.file, s.line).strip() if s else "", *pair)
            for s, pair in lines.items()
        ),
    )


def _interpreted(graph: Captured, leaves: Sequence[Any], wide: bool) -> dict[Any, Tensor]:
    """Every tensor of the graph by torch; ``wide``: in float64 throughout."""
    values: dict[Any, Any] = {}
    given = iter(leaves)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            value = next(given)
            values[node] = torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value
        elif node.op == "get_attr":
            value = getattr(graph.module, str(node.target))
            values[node] = value.double() if wide and value.is_floating_point() else value
        elif node.op == "call_function":
            args, kwargs = (torch.fx.node.map_arg(a, values.__getitem__) for a in (node.args, node.kwargs))
            if wide:
                kwargs = {k: torch.float64 if _narrow(v) else v for k, v in kwargs.items()}
            values[node] = node.target(*args, **kwargs)
    return values


def _narrow(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value.is_floating_point


def _errors(found: Tensor, exact: Tensor) -> Errors:
    limits = torch.finfo(found.dtype)
    a, b = found.double(), exact.double()
    difference = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(b), (a - b).abs())
    if not difference.numel():
        return Errors()
    size = b.abs()
    ulp = torch.exp2(torch.floor(torch.log2(size.clamp(min=limits.tiny)))) * limits.eps
    return Errors(
        difference.max().item(),
        (difference / size.clamp(min=limits.tiny)).max().item(),
        (difference / ulp).max().item(),
    )
