"""What a compiled function became, as text: its graphs and steps, its kernels' sources, where its numbers depart from eager's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .compilers import family_text

if TYPE_CHECKING:
    from .function import Variant


def plan_text(name: str, variants: Sequence[Variant]) -> str:
    """One paragraph a graph: the calls it serves, then its steps in order."""
    from ..generator.partition import RegionStep

    lines = [f"{name}: {len(variants)} graph{'s' if len(variants) != 1 else ''}"]
    for variant in variants:
        where = f" where {' and '.join(variant.conditions)}" if variant.conditions else ""
        lines.append(f"  {variant.signature}{where}")
        if not variant.composite.steps:
            lines.append(f"    torch   the whole function: {variant.composite.reasons[0][1]}")
        for step in variant.composite.steps:
            if isinstance(step, RegionStep):
                operands = ", ".join(f"{o.name}[{o.span or '1'}]" for o in step.operands)
                results = ", ".join(f"{r.name}[{r.span}]" for r in step.results)
                lines.append(
                    f"    kernel  {step.record.name}({operands}) -> {results}: {step.record.formula}"
                )
            elif step.reason:
                lines.append(f"    torch   {step.node.target}{_line(step.node)}: {step.reason}")
    return "\n".join(lines)


def _line(node: torch.fx.Node) -> str:
    from ..generator.trace import source_of

    source = source_of(node)
    return f" ({source})" if source else ""


def source_text(variants: Sequence[Variant], target: str) -> str:
    """The sources of all operators of some graphs.

    Raises:
        ValueError: the target is neither "cuda" nor "cpu".
    """
    from .function import cpu_unit, generated

    if target not in ("cuda", "cpu"):
        raise ValueError(f"source: the target must be 'cuda' or 'cpu', but is {target!r}")
    names = list(dict.fromkeys(n for v in variants for n in v.operators))
    if target == "cpu":
        return cpu_unit(names) if names else ""
    families: dict[str, Any] = {}
    for n in names:
        families |= generated(n).families
    return "\n".join(family_text(f) for f in families)
