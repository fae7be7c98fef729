"""Tables and plots of results: ``python -m benchmarks report FILE... --out DIR`` writes DIR/report.md and its pictures.

Of cells that several files have, the last file's count. The best peer of a cell is the fastest other implementation there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import results, targets
from .results import Row
from .workloads import DIRECTIONS

SLOWER = 1.02  # times the best peer: such cells are listed


@dataclass(frozen=True)
class Cell:
    """One operator, direction, dtype, shape and layout, by all implementations that were measured and right."""

    device: str
    op: str
    direction: str
    dtype: str
    m: int
    n: int
    layout: str
    rows: dict[str, Row]

    @property
    def avo(self) -> Row | None:
        return self.rows.get("avo")

    @property
    def best(self) -> Row | None:
        peers = [r for name, r in self.rows.items() if name != "avo"]
        return min(peers, key=lambda r: float(r["us"]), default=None)

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def over_copy(self) -> float | None:
        """Our time in copies of the same bytes."""
        return 1 / float(self.avo["of_copy"]) if self.avo else None

    def speedup(self, name: str | None = None) -> float | None:
        """How many times as long as ours an implementation takes, by default the best peer."""
        other = self.best if name is None else self.rows.get(name)
        return float(other["us"]) / float(self.avo["us"]) if self.avo and other else None


def cells_of(rows: Iterable[Row]) -> list[Cell]:
    found: dict[tuple[Any, ...], Cell] = {}
    for row in rows:
        if "us" not in row:
            continue
        key = results.key_of(row)
        fields = dict(zip(results.KEY[:-1], key, strict=False))
        found.setdefault(key[:-1], Cell(**fields, rows={})).rows[key[-1]] = row
    return list(found.values())


def geometric_mean(values: Iterable[float | None]) -> float | None:
    logs = [math.log(v) for v in values if v is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


# ---- markdown ----


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows), ""]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _parts(cells: Iterable[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """The cells by device and dtype."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.device, cell.dtype), []).append(cell)
    return found


def machines(rows: Iterable[Row]) -> list[str]:
    found: dict[str, None] = {}
    for r in rows:
        versions = ", ".join(f"{k} {v}" for k, v in r["versions"].items())
        driver = f", driver {r['driver']}" if "driver" in r else ""
        found[f"- {r['card']}{driver}; {versions}; commit {r['commit']}, {r['date']}"] = None
    return [*found, ""]


def summary(cells: Sequence[Cell]) -> list[str]:
    rows = []
    for (device, dtype), part in _parts(cells).items():
        for direction in DIRECTIONS:
            mine = [c for c in part if c.direction == direction and c.avo]
            if not mine:
                continue
            copies = sorted(c.over_copy or 0.0 for c in mine)
            behind = [c for c in mine if (c.speedup() or math.inf) < 1 / SLOWER]
            rows.append(
                [
                    device, dtype, direction, str(len(mine)), _number(geometric_mean(c.speedup() for c in mine)),
                    _number(geometric_mean(c.speedup("eager") for c in mine)), str(len(behind)),
                    _number(copies[len(copies) // 2]), _number(copies[-1]),
                ]
            )  # fmt: skip
    head = [
        "device",
        "dtype",
        "direction",
        "cells",
        "x best peer",
        "x eager",
        f"slower than {SLOWER} best peer",
    ]
    return [
        "## Geometric means",
        "",
        "How many times as long as ours the best peer and eager take; our time in copies of the same bytes.",
        "",
        *table([*head, "copies, median", "copies, worst"], rows),
    ]


def against_each(cells: Sequence[Cell]) -> list[str]:
    names = dict.fromkeys(n for c in cells for n in c.rows if n != "avo")
    rows = []
    for device in dict.fromkeys(c.device for c in cells):
        for name in names:
            found = [(s, c) for c in cells if c.device == device and (s := c.speedup(name)) is not None]
            if found:
                worst, cell = min(found, key=lambda f: f[0])
                best = sum(c.best is c.rows[name] for _, c in found)
                rows.append(
                    [
                        device, name, str(len(found)), str(best), _number(geometric_mean(s for s, _ in found)),
                        f"{worst:.2f} at {cell.op} {cell.direction} {cell.dtype} {cell.shape}",
                    ]
                )  # fmt: skip
    head = ["device", "implementation", "cells", "best peer in", "its time over ours", "the least"]
    return ["## Against each implementation", "", *table(head, rows)]


def shares(cells: Sequence[Cell]) -> list[str]:
    lines = [
        "## Every cell",
        "",
        "Our time as a share that a copy of the same bytes would take of it; how many times as long the best peer takes.",
        "",
    ]
    for (device, dtype), part in _parts(cells).items():
        for direction in DIRECTIONS:
            for layout in dict.fromkeys(c.layout for c in part):
                mine = [c for c in part if c.direction == direction and c.layout == layout and c.avo]
                if mine:
                    title = f"### {device}, {dtype}, {direction}"
                    lines += [title + ("" if layout == "contiguous" else f", {layout}"), ""]
                    lines += _grid(mine)
    return lines


def _grid(cells: Sequence[Cell]) -> list[str]:
    shapes = sorted({(c.m, c.n) for c in cells}, key=lambda s: (s[0] * s[1] < 2**20, s[0] < 8192, s))
    by = {(c.op, c.m, c.n): c for c in cells}

    def text(op: str, m: int, n: int) -> str:
        cell = by.get((op, m, n))
        if cell is None or cell.over_copy is None:
            return ""
        best = cell.best
        peer = f", {cell.speedup():.2f} {best['implementation']}" if best else ""
        return f"{1 / cell.over_copy:.2f}{peer}"

    ops = dict.fromkeys(c.op for c in cells)
    return table(
        ["op", *(f"{m}x{n}" for m, n in shapes)], ([op, *(text(op, m, n) for m, n in shapes)] for op in ops)
    )


def behind(cells: Sequence[Cell]) -> list[str]:
    """Cells slower than the best peer, worst first."""
    found = sorted((s, i) for i, c in enumerate(cells) if (s := c.speedup()) is not None and s < 1 / SLOWER)
    lines = [f"## Cells slower than {SLOWER} times the best peer", ""]
    if not found:
        return [*lines, "None.", ""]
    rows = []
    for s, i in found:
        c, best = cells[i], cells[i].best
        assert c.avo is not None and best is not None
        rows.append(
            [
                c.device, c.op, c.direction, c.dtype, c.shape + ("" if c.layout == "contiguous" else f" {c.layout}"),
                f"{c.avo['us']:.2f}", f"{best['implementation']} {best['us']:.2f}", f"{1 / s:.2f}",
            ]
        )  # fmt: skip
    return [*lines, *table(["device", "op", "direction", "dtype", "shape", "us", "best peer", "ratio"], rows)]


def per_call(cells: Sequence[Cell]) -> list[str]:
    """CPU time and memory of a call at each operator's smallest and largest shape."""
    lines = []
    for title, field, show in (
        ("CPU time of a call (us), at the smallest shape", "cpu_us", lambda v: f"{v:.1f}"),
        ("Peak memory of a call (MB), at the largest shape", "peak_bytes", lambda v: f"{v / 1e6:.1f}"),
    ):
        mine = [c for c in cells if c.layout == "contiguous" and any(r.get(field) for r in c.rows.values())]
        if mine:
            lines += [f"## {title}", "", *_per_call(mine, field, show, smallest=field == "cpu_us")]
    return lines


def _per_call(
    cells: Sequence[Cell], field: str, show: Callable[[float], str], smallest: bool
) -> Iterator[str]:
    names = list(dict.fromkeys(n for c in cells for n in c.rows))
    chosen: dict[tuple[str, ...], Cell] = {}
    for cell in sorted(cells, key=lambda c: c.m * c.n, reverse=smallest):
        chosen[cell.op, cell.direction, cell.dtype] = cell
    rows = [
        [
            *key,
            c.shape,
            *(show(c.rows[n][field]) if n in c.rows and c.rows[n].get(field) else "" for n in names),
        ]
        for key, c in sorted(chosen.items())
    ]
    yield from table(["op", "direction", "dtype", "shape", *names], rows)


def failures(rows: Iterable[Row]) -> list[str]:
    found: dict[tuple[str, ...], list[str]] = {}
    for r in rows:
        if "failed" in r:
            key = (
                r["device"],
                r["implementation"],
                r["op"],
                r["dtype"],
                r["failed"].replace("|", "\\|")[:160],
            )
            found.setdefault(key, []).append(f"{r['m']}x{r['n']} {r['direction']}")
    if not found:
        return []
    lines = [[*key[:4], ", ".join(where), key[4]] for key, where in found.items()]
    head = ["device", "implementation", "op", "dtype", "where", "why"]
    return ["## Not measured", "", *table(head, lines)]


def report(rows: Sequence[Row], pictures: Sequence[str]) -> str:
    cells = cells_of(rows)
    contiguous = [c for c in cells if c.layout == "contiguous"]
    lines = ["# Benchmark report", "", *machines(rows)]
    lines += [f"![{name.removesuffix('.png')}]({name})" for name in pictures] + [""] * bool(pictures)
    lines += summary(contiguous)
    lines += targets.table(cells)
    lines += behind(cells) + against_each(contiguous) + shares(cells) + per_call(cells) + failures(rows)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder, which is made if need be")
    options = parser.parse_args(argv)
    rows = list(results.read(options.files).values())
    if not rows:
        print("there are no results in these files", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    from . import plots

    pictures = plots.draw([c for c in cells_of(rows) if c.layout == "contiguous" and c.avo], options.out)
    (options.out / "report.md").write_text(report(rows, pictures))
    print(f"{options.out / 'report.md'}: {len(rows)} results, {len(pictures)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
