"""What was set out to be reached on an H200, as times of a copy that moves the same bytes, and the worst cell of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Cell

CARD = "H200"


@dataclass(frozen=True)
class Target:
    """Cells and the bound on their time: copies of the same bytes, or ``of`` times something else."""

    what: str
    bound: float
    holds_for: Callable[[Cell], bool]
    of: str = "copy"  # contiguous: the same cell with contiguous operands; peer: the best one


def _norm(cell: Cell) -> bool:
    return cell.op.endswith(("layer_norm", "rms_norm"))


def _bytes(cell: Cell) -> int:
    return int(cell.avo["bytes"]) if cell.avo else 0


def _at(cell: Cell, direction: str, *ops: str) -> bool:
    return cell.direction == direction and cell.op in ops and cell.m * cell.n > 2**20


def _usual(cell: Cell) -> bool:
    return cell.n in (768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384) and cell.m >= 8192


def _odd(cell: Cell) -> bool:
    return _norm(cell) and cell.n in (1000, 4097, 50257)


_POINTWISE = ("silu", "swiglu", "gelu_tanh")
_BIG = 64_000_000

TARGETS = (
    Target(
        "silu, swiglu, gelu_tanh, >= 64 MB", 1.02,
        lambda c: (_at(c, "forward", *_POINTWISE) or _at(c, "backward", *_POINTWISE)) and _bytes(c) >= _BIG,
    ),
    Target("gelu forward", 1.02, lambda c: _at(c, "forward", "gelu")),
    Target("gelu backward", 1.03, lambda c: _at(c, "backward", "gelu")),
    Target("bias_gelu forward", 1.03, lambda c: _at(c, "forward", "bias_gelu")),
    Target("bias_gelu backward with dbias", 1.12, lambda c: _at(c, "backward", "bias_gelu")),
    Target("norms forward, N 768 to 16384", 1.04, lambda c: _norm(c) and c.direction == "forward" and _usual(c)),
    Target(
        "norms backward with weight gradients, >= 64 MB", 1.10,
        lambda c: _norm(c) and c.direction == "backward" and _usual(c) and _bytes(c) >= _BIG,
    ),
    Target(
        "norms backward, 8192x768 to 8192x2048", 1.20,
        lambda c: _norm(c) and c.direction == "backward" and _usual(c) and c.m == 8192 and c.n <= 2048,
    ),
    Target("norms forward at N = 1000, 4097, 50257", 1.12, lambda c: _odd(c) and c.direction == "forward"),
    Target("norms backward at N = 1000, 4097, 50257", 1.30, lambda c: _odd(c) and c.direction == "backward"),
    Target("norms forward, N >= 65536", 1.10, lambda c: _norm(c) and c.direction == "forward" and c.n >= 65536),
    Target("norms backward, N >= 65536", 1.25, lambda c: _norm(c) and c.direction == "backward" and c.n >= 65536),
    Target("softmax, log_softmax forward", 1.05, lambda c: _at(c, "forward", "softmax", "log_softmax")),
    Target("cross_entropy forward + backward", 1.25, lambda c: _at(c, "both", "cross_entropy")),
    Target("rows with stride 3N, one-element offset", 1.10, lambda c: c.layout != "contiguous", "contiguous"),
    Target("1x4096, 64x4096, 512x1024", 1.00, lambda c: c.m * c.n <= 2**20, "peer"),
)  # fmt: skip


def table(cells: Sequence[Cell]) -> list[str]:
    """The table in markdown; nothing unless there are cells of that card."""
    mine = [c for c in cells if c.avo and CARD in str(c.avo["card"])]
    if not mine:
        return []
    lines = [
        "## Targets",
        "",
        "| what | target | cells | missed | worst |",
        "| --- | --- | --- | --- | --- |",
    ]
    contiguous = {_key(c): c for c in mine if c.layout == "contiguous"}
    for t in TARGETS:
        found = sorted(_ratios(t, mine, contiguous), reverse=True)
        unit = {"copy": "copies", "contiguous": "of contiguous", "peer": "of the best peer"}[t.of]
        missed = sum(r > t.bound for r, _ in found)
        worst = f"{found[0][0]:.2f} at {found[0][1]}" if found else "not measured"
        lines.append(f"| {t.what} | {t.bound:.2f} {unit} | {len(found)} | {missed} | {worst} |")
    return [*lines, ""]


def _ratios(
    t: Target, cells: Sequence[Cell], contiguous: dict[tuple[object, ...], Cell]
) -> Iterator[tuple[float, str]]:
    for c in cells:
        if not t.holds_for(c) or (t.of != "contiguous" and c.layout != "contiguous"):
            continue
        ratio = c.over_copy
        if t.of == "peer":
            speedup = c.speedup()
            ratio = None if speedup is None else 1 / speedup
        elif t.of == "contiguous":
            same = contiguous.get(_key(c))
            ratio = float(c.avo["us"]) / float(same.avo["us"]) if c.avo and same and same.avo else None
        if ratio is not None:
            yield ratio, f"{c.op} {c.direction} {c.dtype} {c.shape}"


def _key(c: Cell) -> tuple[object, ...]:
    return c.device, c.op, c.direction, c.dtype, c.m, c.n
