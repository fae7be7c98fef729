"""Pictures of results by matplotlib, where it is installed: ratio heat map, roofline, share of a copy by N."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .workloads import DIRECTIONS

if TYPE_CHECKING:
    from .report import Cell

_COLORS = {
    "avo": "#d62728", "eager": "#7f7f7f", "compile": "#1f77b4", "compile_max": "#17becf", "liger": "#2ca02c",
    "quack": "#9467bd", "apex": "#8c564b", "apex_fast": "#e377c2", "flash_attn": "#ff7f0e",
}  # fmt: skip


def draw(cells: Sequence[Cell], folder: Path) -> list[str]:
    """The names of the pictures written to ``folder``; none, and a word about it, without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no pictures: matplotlib is not installed", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = []
    for device, dtype in dict.fromkeys((c.device, c.dtype) for c in cells):
        part = [c for c in cells if (c.device, c.dtype) == (device, dtype)]
        for kind, make in (("ratio", _ratios), ("roofline", _roofline), ("share", _shares)):
            figure = make(pyplot, part)
            if figure is None:
                continue
            name = f"{kind}-{device}-{dtype}.png"
            figure.savefig(folder / name, dpi=110, bbox_inches="tight")
            pyplot.close(figure)
            names.append(name)
    return names


def _ratios(pyplot: Any, cells: Sequence[Cell]) -> Any:
    """How many times as long the best peer takes, for every cell: green where we are faster."""
    found = {(c.op, c.direction, c.m, c.n): s for c in cells if (s := c.speedup()) is not None}
    if not found:
        return None
    rows = sorted({k[:2] for k in found}, key=lambda k: (DIRECTIONS.index(k[1]), k[0]))
    columns = sorted({k[2:] for k in found}, key=lambda k: (k[0] * k[1], k))
    grid = [[math.log2(found.get((*r, *c), math.nan)) for c in columns] for r in rows]
    figure, axes = pyplot.subplots(figsize=(1.6 + 0.75 * len(columns), 1.2 + 0.32 * len(rows)))
    axes.imshow(grid, cmap="RdYlGn", vmin=-1, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), [f"{m}x{n}" for m, n in columns], rotation=60, ha="right")
    axes.set_yticks(range(len(rows)), [f"{op} {direction}" for op, direction in rows])
    for i, r in enumerate(rows):
        for j, c in enumerate(columns):
            if (*r, *c) in found:
                axes.text(j, i, f"{found[(*r, *c)]:.2f}", ha="center", va="center", fontsize=7)
    axes.set_title(f"time of the best peer over ours, {cells[0].device} {cells[0].dtype}")
    return figure


def _roofline(pyplot: Any, cells: Sequence[Cell]) -> Any:
    """Bandwidth reached by the bytes of a call; a copy of as many is the roof."""
    directions = [d for d in DIRECTIONS if any(c.direction == d for c in cells)]
    figure, panels = pyplot.subplots(
        1, len(directions), figsize=(6 * len(directions), 4.5), sharey=True, squeeze=False
    )
    for axes, direction in zip(panels[0], directions, strict=True):
        mine = [c for c in cells if c.direction == direction]
        roof = sorted((c.avo["bytes"], c.avo["bytes"] / c.avo["copy_us"] / 1e3) for c in mine if c.avo)
        axes.plot(*zip(*roof, strict=True), color="black", linewidth=1.2, label="copy")
        ops = list(dict.fromkeys(c.op for c in mine))
        for i, op in enumerate(ops):
            points = sorted(
                (c.avo["bytes"], c.avo["bytes"] / c.avo["us"] / 1e3) for c in mine if c.op == op and c.avo
            )
            marker = "osv^D*XPh<>"[i % 11]
            axes.plot(*zip(*points, strict=True), marker=marker, linestyle="none", markersize=5, label=op)
        axes.set_xscale("log")
        axes.set_xlabel("bytes that a call must move")
        axes.set_title(f"{direction}, {cells[0].device} {cells[0].dtype}")
        axes.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("GB/s")
    panels[0][-1].legend(fontsize=7)
    return figure


def _shares(pyplot: Any, cells: Sequence[Cell]) -> Any:
    """For the commonest number of rows: each implementation's share of a copy by N, a panel for each operator."""
    counts = [c.m for c in cells]
    m = max(set(counts), key=lambda v: (counts.count(v), v))
    mine = [c for c in cells if c.m == m and c.n % 64 == 0]  # odd widths would be spikes in the lines
    panels = sorted({(c.op, c.direction) for c in mine}, key=lambda k: (k[0], DIRECTIONS.index(k[1])))
    if not panels:
        return None
    across = min(4 if len(panels) <= 24 else 8, len(panels))
    down = -(-len(panels) // across)
    figure, grid = pyplot.subplots(
        down, across, figsize=(4 * across, 2.8 * down), squeeze=False, sharey=True, layout="constrained"
    )
    flat = [axes for line in grid for axes in line]
    for axes, (op, direction) in zip(flat, panels, strict=False):
        here = [c for c in mine if (c.op, c.direction) == (op, direction)]
        for name, color in _COLORS.items():
            points = sorted((c.n, c.rows[name]["of_copy"]) for c in here if name in c.rows)
            if points:
                width = 2.2 if name == "avo" else 1.0
                axes.plot(
                    *zip(*points, strict=True),
                    color=color,
                    linewidth=width,
                    marker="o",
                    markersize=3,
                    label=name,
                )
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.15)
        axes.axhline(1.0, color="black", linewidth=0.5)
        axes.set_title(f"{op} {direction}", fontsize=9)
        axes.grid(alpha=0.3)
    for axes in flat[len(panels) :]:
        axes.set_visible(False)
    handles = {label: h for axes in flat for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=9, fontsize=8)
    figure.suptitle(f"share of a copy by N, {m} rows, {cells[0].device} {cells[0].dtype}", fontsize=11)
    return figure
