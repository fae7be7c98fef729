"""What a compiled function became, as text: its graphs and steps, its kernels' sources, where its numbers depart from eager's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .compilers import family_text
from .composite import Eager
from .program import CallStep, KernelStep

if TYPE_CHECKING:
    from .graph import Variant


def plan_text(name: str, variants: Sequence[Variant]) -> str:
    """One paragraph a graph: the calls it serves, then its steps in order."""
    lines = [f"{name}: {len(variants)} graph{'s' if len(variants) != 1 else ''}"]
    for variant in variants:
        lines.append(f"  {variant.calls}")
        if isinstance(variant.composite, Eager):
            lines.append(f"    torch   the whole function: {variant.composite.reasons[0][1]}")
            continue
        for step in variant.composite.program.steps:
            if isinstance(step, KernelStep):
                lines.append(f"    kernel  {step.op}{step.text}")
            elif isinstance(step, CallStep) and step.reason:
                where = f" ({step.where})" if step.where else ""
                lines.append(f"    torch   {step.target}{where}: {step.reason}")
    return "\n".join(lines)


def source_text(variants: Sequence[Variant], target: str) -> str:
    """The sources of all operators of some graphs.

    Raises:
        ValueError: the target is neither "cuda" nor "cpu".
    """
    from .kernels import cpu_unit, known_operator

    if target not in ("cuda", "cpu"):
        raise ValueError(f"source: the target must be 'cuda' or 'cpu', but is {target!r}")
    names = list(dict.fromkeys(n for v in variants for n in v.operators))
    if target == "cpu":
        return cpu_unit(names) if names else ""
    families: dict[str, Any] = {}
    for n in names:
        families |= known_operator(n).families
    return "\n".join(family_text(f) for f in families)
