"""Regressions between two runs: ``python -m benchmarks compare BEFORE AFTER``; the exit status is 1 if there are any.

A cell has become slower if its median has by more than --tolerance and its lower quartile lies above the upper one of
before, so beyond the spread of both runs. Cells that were right before and fail now are regressions too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import results
from .report import geometric_mean, table
from .results import Row


@dataclass(frozen=True)
class Change:
    """One cell of both runs."""

    before: Row
    after: Row

    @property
    def ratio(self) -> float:
        """The time after over that before; infinite where it failed."""
        return float(self.after["us"]) / float(self.before["us"]) if "us" in self.after else float("inf")

    def slower(self, tolerance: float) -> bool:
        if "us" not in self.after:
            return True
        return self.ratio > 1 + tolerance and bool(self.after["us_low"] > self.before["us_high"])

    def faster(self, tolerance: float) -> bool:
        return self.ratio < 1 / (1 + tolerance) and bool(self.after["us_high"] < self.before["us_low"])


def changes(before: Path, after: Path, names: Sequence[str]) -> list[Change]:
    """The cells of some implementations that both runs have and that were measured before."""
    old, new = results.read([before]), results.read([after])
    return [
        Change(row, new[key])
        for key, row in old.items()
        if key in new and "us" in row and row["implementation"] in names
    ]


def lines(found: Sequence[Change]) -> list[str]:
    def cells(c: Change) -> list[str]:
        r = c.before
        layout = "" if r["layout"] == "contiguous" else f" {r['layout']}"
        times = [f"{r['us']:.2f} ({r['us_low']:.2f} to {r['us_high']:.2f})", c.after.get("failed", "")]
        if "us" in c.after:
            times[1] = f"{c.after['us']:.2f} ({c.after['us_low']:.2f} to {c.after['us_high']:.2f})"
        what = [r["device"], r["op"], r["direction"], r["dtype"], f"{r['m']}x{r['n']}{layout}"]
        return [*what, r["implementation"], *times, f"{c.ratio:.3f}"]

    head = ["device", "op", "direction", "dtype", "shape", "by", "before, us", "after, us", "ratio"]
    return table(head, map(cells, found))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--implementations", default="avo")
    # The same work in two runs on one kind of card agreed within 1.2 %.
    parser.add_argument("--tolerance", type=float, default=0.02)
    options = parser.parse_args(argv)
    found = changes(options.before, options.after, options.implementations.split(","))
    if not found:
        print("the two runs have no cell in common", file=sys.stderr)
        return 1
    cards = dict.fromkeys(r["card"] for c in found for r in (c.before, c.after))
    if len(cards) > 1:
        print(f"not the same machine: {' and '.join(cards)}")
    slower = sorted((c for c in found if c.slower(options.tolerance)), key=lambda c: -c.ratio)
    faster = sorted((c for c in found if c.faster(options.tolerance)), key=lambda c: c.ratio)
    for title, part in (("slower", slower), ("faster", faster)):
        if part:
            print("\n".join([f"{title}:", "", *lines(part)]))
    mean = geometric_mean(c.ratio for c in found if "us" in c.after)
    print(
        f"{len(found)} cells: {len(slower)} slower, {len(faster)} faster, geometric mean of the ratios {mean or 0:.3f}"
    )
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
