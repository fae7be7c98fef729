"""How a kernel is laid out on the GPU: a pure function of the graph's features, the element size and the row width.

A schedule decides speed, never a result other than through the thread map and the reduction tree, and these depend on
(kernel, N, dtype) alone: the number of rows never enters. Ladders say what each threshold was measured to gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .ir import Graph, Span
from .simplify import phase_of

ITEM_SIZE = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}
DTYPES = ("f32", "f16", "bf16", "f64")
PAIRS = (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f64", "f64"), ("f16", "f32"), ("bf16", "f32"))
# Dtypes for which a package has no cubin: their kernels are compiled when first called, and kept. bfloat16 rows beside
# float32 weights are usual (norms kept in float32), float16 rows beside them are not.
ON_DEMAND = ("f64", "f64,f64", "f16,f32")


@dataclass(frozen=True)
class Features:
    """What a schedule needs to know of a graph."""

    row_loads: int  # operands of span MN that are read
    row_stores: int
    column_loads: int
    reductions: int  # along the rows, in ``phases`` phases
    phases: int
    sums: int  # over the rows

    @staticmethod
    def of(graph: Graph) -> Features:
        nodes = graph.nodes()
        loads = [n for n in nodes if n.op == "load"]
        phase = phase_of(nodes)
        return Features(
            row_loads=sum(n.span == Span.BOTH for n in loads),
            row_stores=sum(n.span == Span.BOTH for n in graph.results.values()),
            column_loads=sum(n.span == Span.COLS for n in loads),
            reductions=sum(n.is_reduction and n.attr == Span.COLS for n in nodes),
            phases=max(phase.values(), default=0),
            sums=sum(n.is_reduction and n.attr == Span.ROWS for n in nodes),
        )


@dataclass(frozen=True)
class Tile:
    """The layout of one variant. ``max_n``: the widest row that it takes (0: any)."""

    threads: int  # that share a row
    vectors: int  # of 16 bytes a thread
    block: int
    min_blocks: int  # on one SM: bounds the registers
    max_n: int
    persist: int = 0  # blocks an SM of a persistent grid; 0: one pass

    @property
    def ahead(self) -> bool:
        """A persistent block keeps column operands in registers and loads the next row before it treats a row."""
        return self.persist > 0

    @property
    def rows(self) -> int:
        return max(1, self.block // self.threads)


def flat_tile(item: int) -> Tile:
    """One vector a thread, small blocks, and 32 registers, so that an SM is full of threads: that hides the arithmetic.

    GELU in bf16 on an H200, 8192x4096 (a copy: 34.7 us): 34.7 us with 16 blocks of 128 threads, 35.8 with 8 of 256, 37.3 with
    12 of 128, 39.5 with as many registers as the compiler likes. float64 is bound by arithmetic, and needs the registers.
    """
    return Tile(threads=128, vectors=1, block=128, min_blocks=16 if item < 8 else 8, max_n=0)


def pointwise_ladder(features: Features, item: int, elementwise: bool = False) -> tuple[Tile, ...]:
    """Pointwise over rows (a bias, or rows with a stride): one vector a thread, wide rows cut in tiles of columns.

    ``elementwise``: the graph knows neither rows nor columns, and rows come in for their stride alone, mostly beside a flat
    kernel. One tile does there: 64 threads, a kilobyte of a row. Each further tile would cost every build a tenth of a second
    for each dtype and direction of some thirty operators.

    As many blocks as the registers hold, about: bias_gelu in bf16 on an H200, 8192x4096 (a copy: 34.7 us): 38.0 us with 8
    persistent blocks an SM, 39.8 with 6, 42.0 with 4; 39.9 with 8 that are not persistent.
    """
    vector = 16 // item
    registers = 20 + 4 * ((2 if features.column_loads else 1) * features.row_loads + features.column_loads)
    blocks = min(8, 65536 // (256 * registers)) if item < 8 else 4
    persist = blocks if features.column_loads else 0
    threads = (64,) if elementwise else (8, 32, 128) if item < 8 else (128,)
    return tuple(
        Tile(
            threads=t,
            vectors=1,
            block=256,
            min_blocks=blocks,
            max_n=0 if t == threads[-1] else t * vector,
            persist=persist,
        )
        for t in threads
    )


def ladder(features: Features, item: int, column_item: int, with_sums: bool) -> tuple[Tile, ...]:
    """The tiles of a kernel that reduces rows."""
    return (
        sums_ladder(features, item) if features.sums else row_ladder(features, item, column_item, with_sums)
    )


def row_ladder(features: Features, item: int, column_item: int, with_sums: bool = False) -> tuple[Tile, ...]:
    """Rows in registers, one pass: up to four vectors in flight a thread, more threads for wider rows.

    A block has 128 threads at least (four rows of a warp each), so that small rows still fill an SM. ``with_sums``: other
    cases of the op have column sums too, and up to their widest row this one shares their thread map.
    """
    vector = 16 // item
    # What 64 registers a thread (1024 threads a block) hold of the row operands; a packed vector takes four.
    most = 8 if features.row_loads == 1 else 4 if features.row_loads == 2 else 2
    # float64 is bound by arithmetic, and rare: one tier does, and wider rows are read again.
    threads = (8, 32, 64, 128, 256, 512) if item < 8 else (256,)
    tiles = []
    for t in threads:
        block = max(128, t)
        # Measured on an H200 (bf16, rms_norm): 8192x1024 11.2 us persistent, 12.2 us one pass; 8192x4096 40.1 and 37.8.
        blocks = _resident(features, 4, block, item, column_item) if features.column_loads and t <= 32 else 0
        # A row held packed takes four registers a vector, and about 44 more go to addresses and values in flight.
        one_pass = max(1, min(1024 // block, 65536 // (block * (44 + 16 * features.row_loads))))
        tiles.append(Tile(t, 4, block, blocks or one_pass, t * 4 * vector, persist=blocks))
    if most > 2 and item < 8:
        tiles.append(Tile(1024, most, 1024, 1, 1024 * most * vector))
    if with_sums:
        shared = [replace(t, persist=0) for t in sums_ladder(features, item)]
        tiles = [*shared, *(t for t in tiles if t.max_n > shared[-1].max_n)]
    return tuple(tiles)


def _resident(features: Features, vectors: int, block: int, item: int, column_item: int) -> int:
    """Blocks of a persistent kernel without sums that an SM's 65536 registers hold; 0 if not even one.

    A packed vector takes four registers: this row's, the next row's, and the column operands' (eight where they are float32
    beside 16-bit rows). About forty more are needed for addresses and for values in flight.
    """
    registers = 40 + 4 * vectors * (2 * features.row_loads + column_item // item * features.column_loads)
    blocks = 65536 // (block * (-(-registers // 8) * 8))
    return min(blocks, 1024 // block)


def sums_ladder(features: Features, item: int) -> tuple[Tile, ...]:
    """Rows in registers under a persistent grid, with the column sums in registers too.

    From the measurements of a hand-written LayerNorm backward on an H200 (bf16): 8192x1024 18.5 us with 128 threads a row
    and 4 rows in each of 2 blocks an SM; 8192x4096 59.9 us with 256 threads, 2 rows, 1 block; 8192x8192 112.9 us with 512.
    The next row waits in registers: asynchronous copies of it to shared memory, one, two and three rows ahead, were no faster
    on the H200 (rms_norm, 8192x4096: 59 us in registers, 67 two rows ahead, 61 three; layer_norm 65, 65, 63).
    """
    vector = 16 // item
    shapes = [
        (32, 1, 256, 3),
        (128, 1, 256, 3),
        (256, 1, 256, 3),
        (256, 2, 512, 1),
        (512, 2, 512, 1),
    ]
    if item == 8:
        shapes = [shapes[0]]
    if item >= 4:  # half as many values in a vector: four fit
        shapes.append((512, 4, 512, 1))
    return tuple(Tile(t, p, b, m, t * p * vector, persist=m) for t, p, b, m in shapes)


def cluster_ladder(features: Features, item: int) -> tuple[Tile, ...]:
    """Rows too wide for the registers of one block, of ops with column sums: four or eight blocks share a row.

    Two blocks (8192x12288, layer_norm's backward in bf16 on an H200: 298 us) were no faster than a kernel for the rows and one
    for the columns (281 us), which therefore serve the widths up to ``cluster_begin``.
    """
    vectors = 2 if item == 2 else 4
    persist = 1 if features.sums else 0
    return tuple(Tile(512 * b, vectors, 512, 1, b * _row_of_a_block(item), persist) for b in (4, 8))


def _row_of_a_block(item: int) -> int:
    """The columns that one block of a cluster holds."""
    return 512 * (2 if item == 2 else 4) * (16 // item)


def cluster_begin() -> dict[str, int]:
    """The widest row that is left to one block for each part of the work."""
    return {d: 2 * _row_of_a_block(size) for d, size in ITEM_SIZE.items()}


def cluster_limit() -> dict[str, int]:
    """The widest row that a cluster takes; 0 where there is no such kernel."""
    return {d: 8 * _row_of_a_block(size) if d != "f64" else 0 for d, size in ITEM_SIZE.items()}


def column_tile() -> Tile:
    """Sums over the rows where no row is reduced: a warp a row, 8 rows a block, tiles of 32 vectors of columns."""
    return Tile(threads=32, vectors=1, block=256, min_blocks=4, max_n=0, persist=4)


def loop_tile() -> Tile:
    """Rows wider than the registers: one block a row, which reads the row again in each phase (from L2, mostly)."""
    return Tile(threads=1024, vectors=1, block=1024, min_blocks=1, max_n=0)


def exact_tile(tile: Tile, width: int, item: int) -> Tile:
    """The tile of a kernel for one width: the same map, with no vector more than the width needs."""
    vectors = -(-width // (tile.threads * (16 // item)))
    return Tile(tile.threads, vectors, tile.block, tile.min_blocks, width, tile.persist)
