"""How a kernel is laid out on the GPU: a pure function of the graph's features, the element size and the row width.

A schedule decides speed, never a result other than through the thread map and the reduction tree, and these depend on
(kernel, N, dtype) alone: the number of rows never enters. Ladders say what each threshold was measured to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .ir import Graph, Span
from .simplify import joined, may_replace_row, online_phases, online_sums, phase_of

ITEM_SIZE = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}
DTYPES = ("f32", "f16", "bf16", "f64")
PAIRS = (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f64", "f64"), ("f16", "f32"), ("bf16", "f32"))
# Dtypes for which a package has no cubin: their kernels are compiled when first called, and kept. bfloat16 rows beside
# float32 weights are usual (norms kept in float32), float16 rows beside them are not.
ON_DEMAND = ("f64", "f64,f64", "f16,f32")
# Those whose reductions it has, and in clusters.
USUAL = ("f32", "bf16", "f32,f32", "bf16,bf16", "bf16,f32")
CLUSTER = ("bf16", "bf16,bf16")


@dataclass(frozen=True)
class Features:
    """What a schedule needs to know of a graph."""

    row_loads: int  # operands of span MN that are read
    row_stores: int
    column_loads: int
    reductions: int  # along the rows, in ``phases`` phases
    phases: int
    sums: int  # over the rows
    held: int = 0  # vectors of a row that stay in registers: of operands, or of what several become first
    most_loads: int = 0  # the most row_loads of the cases that share a thread map, where there are sums
    most_sums: int = 0
    statistics: int = 0  # operands with one value a row
    single_pass: bool = False  # a row that is read once need not be kept
    keeps: bool = False  # values that are dear to compute may take the place of the row between two passes

    @staticmethod
    def of(graph: Graph) -> Features:
        nodes = graph.nodes()
        loads = [n for n in nodes if n.op == "load"]
        phase = phase_of(nodes)
        row_loads = sum(n.span == Span.BOTH for n in loads)
        row_stores = sum(n.span == Span.BOTH for n in graph.results.values())
        made = joined(graph)
        parts = {
            n.index for one in made for n in Graph({"": one}).nodes() if n in loads and n.span == Span.BOTH
        }
        return Features(
            row_loads=row_loads,
            held=row_loads - len(parts) + len(made),
            row_stores=row_stores,
            column_loads=sum(n.span == Span.COLS for n in loads),
            statistics=sum(n.span == Span.ROWS for n in loads),
            single_pass=not row_stores
            and max(online_phases(nodes, online_sums(nodes)).values(), default=0) == 1,
            keeps=may_replace_row(graph),
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
    parts: int = 1  # threads that share what is one thread's in the map of the row
    keep: bool = False  # whether values that are dear to compute stay in registers for a later pass
    shifted: bool = False  # only for rows that are shifted into place, which take more registers than those of whole chunks

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
    persistent blocks an SM, 39.8 with 6, 42.0 with 4; 39.9 with 8 that are not persistent. Below two tiles of 1024 columns half as
    many waste less: 8192x1536 15.0 us with 32 threads of two vectors in four persistent blocks, 19.3 with 128 of one; 8192x768 8.7
    in eight blocks, persistent or not, and 12.6. Two vectors of wide rows where a row has values of its own: cross_entropy's
    backward, 4096x128256, 533 us, 572 with one.
    """
    vector = 16 // item
    registers = 20 + 4 * ((2 if features.column_loads else 1) * features.row_loads + features.column_loads)
    blocks = min(8, 65536 // (256 * registers)) if item < 8 else 4
    persist = blocks if features.column_loads else 0
    threads = (64,) if elementwise else (8, 32, 128) if item < 8 else (128,)
    tiles = [
        Tile(
            threads=t,
            vectors=1,
            block=256,
            min_blocks=blocks,
            max_n=0 if t == threads[-1] else t * vector,
            persist=persist,
        )
        for t in threads
    ]
    if item < 8 and features.statistics and features.row_loads == 1 and not features.column_loads:
        tiles[-1:] = [replace(tiles[-1], max_n=256 * vector - 1), Tile(128, 2, 256, 6, 0)]
    if item < 8 and features.column_loads and not elementwise:
        two = min(4, 65536 // (256 * (2 * registers - 20)))
        tiles.insert(2, Tile(32, 2, 256, two, 256 * vector - 1, persist=two))
    return tuple(tiles)


def ladder(features: Features, item: int, column_item: int, with_sums: bool) -> tuple[Tile, ...]:
    """The tiles of a kernel that reduces rows."""
    if features.sums:
        return sums_ladder(features, item)
    return row_ladder(features, item, column_item, with_sums)


def row_ladder(features: Features, item: int, column_item: int, with_sums: bool = False) -> tuple[Tile, ...]:
    """Rows in registers: few threads with many vectors in flight, and a tile that the usual widths fill.

    A block has 128 threads at least (four rows of a warp each), so that small rows still fill an SM. ``with_sums``: other
    cases of the op have column sums too, and this one shares their thread map. From a search on an
    H200 (`python -m benchmarks tune`, bf16, layer_norm, us; the copy in brackets): 8192x1536 15.2 with 64 threads of three
    vectors, persistent, 16.9 in one pass, 16.5 with 32 of six (13.6); 8192x5120 45.6 with 128 of five, 56.5 with 256 of three
    (41.4); 8192x8192 70.0 with 128 of eight, 71.3 with 256 of four (64.9); 8192x16384 136 with 256 of eight, 141 with 512 of
    four (127.8); 2048x32768 75.6 with 512 of eight and two blocks an SM, 97 with one, 111 in a cluster of two (64.9);
    1024x65536 93 with 1024 of eight, and in a cluster (65.0). softmax, which has no column operands: 78 in a cluster, and 83; odd
    rows of 50257 155 with 1024 of seven, 172 with eight, which spill (98.4). And 8192x8192 66.4 with 256 threads of four that keep
    the exponentials, 68.1 with 128 of eight; the same elsewhere, but for rows of 16384 and more, for which registers are short.
    """
    if with_sums:
        return tuple(replace(t, persist=0) for t in sums_ladder(features, item))
    vector = 16 // item
    shapes = [(8, 4), (32, 4), (64, 3), (64, 4), (128, 3), (128, 4), (128, 5)]
    if features.row_loads > 2:  # the registers of a thread do not hold eight vectors of each
        shapes += [(256, 4), (512, 4)]
    else:
        shapes += [(128, 8), (256, 6), (256, 8), (512, 8)]
    if features.row_loads == 1:
        in_cluster = features.phases > 1 and not features.column_loads
        shapes += [(1024, 7)] if item < 4 else []  # of eight vectors, rows that are shifted into place spill
        shapes += [] if in_cluster and item < 4 else [(1024, 8)]
    if features.single_pass:
        # A loop over wider rows reads them as fast. cross_entropy's forward: 8192x4096 20.6 us with 64 threads of eight, 22.5 with
        # 128 of four; 8192x16384 73.5 with 256 of eight, 80.6 in a loop; 8192x32768 146 with 512 of eight, 144.6 in a loop.
        shapes = [(8, 4), (32, 4), (64, 4)]
        shapes += [(64, 8), (128, 8), (256, 8)] if features.row_loads == 1 else [(128, 4), (256, 4), (512, 4)]
    if features.keeps and (128, 8) in shapes:
        shapes[shapes.index((128, 8))] = (256, 4)
    if item == 8:  # bound by arithmetic, and rare: one tier does, and wider rows are read again
        shapes = [(256, 4)]
    tiles = []
    for t, p in shapes:
        block = max(128, t)
        # Measured on an H200 (bf16, rms_norm): 8192x1024 11.2 us persistent, 12.2 us one pass; 8192x4096 40.1 and 37.8.
        blocks = _resident(features, p, block, item, column_item) if features.column_loads and t <= 64 else 0
        # A row held packed takes four registers a vector, and about 28 more go to addresses and values in flight.
        registers = 28 + 4 * p * features.row_loads
        if features.held < features.row_loads:
            # Nor does it pay to be persistent, nor to bound the registers: add_layer_norm, 32768x1024, 68.2 us in blocks of 64
            # threads, 74.6 persistent; 8192x2048 35.9 and 37.5. And more are needed while one is made of the other: where eight
            # vectors spilled, add_rms_norm of 8192x8192 went from 133 to 153 us.
            if t <= 64:
                tiles.append(Tile(t, p, 64, 5, t * p * vector))
                continue
            blocks = 0
            registers += 12 if p > 4 else 0
        one_pass = max(1, min(1024 // block, 65536 // (block * registers)))
        keep = features.keeps and (t, p) == (256, 4) and item < 8
        shifted = (t, p) == (1024, 7) and shapes[-1] != (t, p)
        tiles.append(
            Tile(t, p, block, blocks or one_pass, t * p * vector, blocks, keep=keep, shifted=shifted)
        )
    return tuple(tiles)


def spread(tile: Tile) -> Tile | None:
    """A thread for each vector of a tile, for calls of so few rows that all of them are under way at once.

    Nothing hides how long one thread takes there: layer_norm of one row of 4096 in bf16, on an H200, takes 3.5 us with four
    vectors a thread and 2.4 with one (a copy: 1.2). Column operands are loaded before the row, not after its reductions.
    """
    threads = tile.threads * tile.vectors
    if tile.vectors < 3 or tile.threads < 32 or threads > 1024:
        return None
    block = max(128, threads)
    blocks = 1024 // block
    return Tile(threads, 1, block, blocks, tile.max_n, persist=blocks, parts=tile.vectors, keep=tile.keep)


def _resident(features: Features, vectors: int, block: int, item: int, column_item: int) -> int:
    """Blocks of a persistent kernel without sums that an SM's 65536 registers hold; 0 if not even one.

    A packed vector takes four registers: this row's, the next row's, and the column operands' (eight where they are float32
    beside 16-bit rows). About forty more are needed for addresses and for values in flight. With fewer, layer_norm's forward
    spills: 8192x1024 on an H200 takes 10.8 us with four blocks, and 14.1 with five.
    """
    registers = 40 + 4 * vectors * (2 * features.row_loads + column_item // item * features.column_loads)
    blocks = 65536 // (block * (-(-registers // 8) * 8))
    return min(blocks, 1024 // block)


def sums_ladder(features: Features, item: int) -> tuple[Tile, ...]:
    """Rows in registers under a persistent grid, with the column sums in registers too.

    From the measurements of a hand-written LayerNorm backward on an H200 (bf16): 8192x1024 18.5 us with 128 threads a row
    and 4 rows in each of 2 blocks an SM; 8192x4096 59.9 us with 256 threads, 2 rows, 1 block; 8192x8192 112.9 us with 512.
    By search there (`python -m benchmarks tune`), two vectors a thread or a tile that the width fills: 8192x1024 17.9 us with 64
    threads, 19.2 with 128 of one vector; 8192x1536 25.1 with 64 of three, 27.3 with 128 of two; 8192x2048 31.6 with 128 of
    two, 35.3 with 256 of one; 8192x3072 45.8 and 48.5; 8192x4096 58.9 with two blocks of one row or one block of two;
    8192x5120 71.8 with 128 of five, 84.4 with 512 of two; 8192x12288 210 with 256 of six, 224 with 512 of three.
    The next row waits in registers: asynchronous copies of it to shared memory, one, two and three rows ahead, were no faster
    on the H200 (rms_norm, 8192x4096: 59 us in registers, 67 two rows ahead, 61 three; layer_norm 65, 65, 63).
    """
    vector = 16 // item
    shapes = [
        (16, 2, 128, 4),
        (32, 2, 128, 4),
        (64, 2, 128, 4),
        (64, 3, 128, 3),
        (128, 2, 256, 2),
        (128, 3, 128, 3),
        (256, 2, 256, 2),
        (128, 5, 256, 1),
        (512, 2, 512, 1),
        (256, 6, 256, 1),
    ]
    if item == 8:
        shapes = [(32, 1, 256, 3)]
    elif (
        features.most_loads > 2 and features.most_sums > 1
    ):  # the widest would spill: three rows, and the next three
        shapes.pop()
    if item >= 4:  # half as many values in a vector: four fit
        shapes.append((512, 4, 512, 1))
    return tuple(Tile(t, p, b, m, t * p * vector, persist=m) for t, p, b, m in shapes)


def cluster_ladder(features: Features, item: int, column_item: int, with_sums: bool) -> tuple[Tile, ...]:
    """Rows too wide for the registers of one block: several blocks share a row.

    layer_norm's backward in bf16 on an H200, 8192x16384: 305 us in clusters of two, 372 by a kernel for the rows and one for
    the columns; 8192x32768 1067 in clusters of four, 890 by two kernels, the first a loop; 1024x65536 316 and 232. With one sum
    and two rows more fits: rms_norm's 2048x32768 139 in clusters of two, 194 by two kernels; 1024x65536 185 in eight blocks,
    242; 512x131072 227 and 252. Forwards, 512x131072, eight vectors a thread: rms_norm 79 us with 256 threads in each of eight
    blocks, four blocks on an SM, and with 512 in four; layer_norm 93 and 97, softmax 79 and 85. Of two operands, softmax's
    backward of 2048x50257 takes 202 with two blocks on an SM, 301 with one, 230 in a loop; add_layer_norm's forward of it 371
    with seven vectors in clusters of two, 390 with four in clusters of four.
    """
    vector, persist = 16 // item, 1 if features.sums else 0
    if with_sums:
        shapes = [(2, 512, 2 if item < 4 else 4, 1)]  # blocks, threads of each, vectors, blocks on an SM
        if features.most_sums == 1 and features.most_loads <= 2:
            shapes += [(2, 256, 8, 1)] if item < 4 else []  # of float32 as wide as the one before it
            shapes += [(8, 128, 8, 2), (8, 256, 8, 1)]
    elif features.row_loads == 1:
        shapes = [(4, 256, 8, 4), (8, 256, 8, 4), (8, 512, 8, 2)]
    else:
        shapes = [(b, 512, 4, 1 if features.held > 2 else 2) for b in (2, 4, 8)]
        if features.held < features.row_loads and item < 4:
            shapes.insert(1, (2, 512, 7, 1))
    begin = cluster_begin(features, item, column_item, with_sums)
    return tuple(
        Tile(blocks * t, p, t, b, blocks * t * p * vector, persist * b, shifted=p == 7)
        for blocks, t, p, b in shapes
        if blocks * t * p * vector > begin
    )


def cluster_begin(features: Features, item: int, column_item: int, with_sums: bool) -> int:
    """The widest row that is left to one block."""
    if with_sums:
        return sums_ladder(features, item)[-1].max_n
    return row_ladder(features, item, column_item)[-1].max_n


def odd_ladder(features: Features, item: int) -> tuple[Tile, ...]:
    """Tiles for rows that are no whole number of chunks, of operators with column sums: an element at a time.

    Neighbours in a row are then neighbours in a warp, and nothing is shifted into place, which costs about twenty instructions
    an element. On an H200 (bf16), 8192x4097, against vectors: layer_norm's backward 101 us with 512 threads, 114 with 256 of
    seventeen, 149 by vectors; rms_norm's 84, 82 and 133; without the sums 75, 61 and 81; 8192x8191 264 and 347. Forwards gain
    nothing: softmax 47 and 49 us. Wider rows, and float64, are read by vectors.
    """
    shapes = [(32, 9, 128, 5), (128, 9, 128, 5), (256, 9, 256, 2), (512, 9, 512, 1), (512, 17, 512, 1)]
    return tuple(
        Tile(t, p, b, m, t * p, persist=m if features.sums else 0) for t, p, b, m in shapes if item < 8
    )


def odd_tile(tile: Tile) -> Tile:
    """The tile of a pointwise kernel or of sums over the rows for rows that do not start at chunks: as many registers.

    On an H200 (bf16), 8192x4097: bias_gelu 54 us, 69 by vectors. Nothing is gained where no operand is one of columns:
    cross_entropy's backward, 2048x50257, takes 169 and 167 us.
    """
    return replace(tile, vectors=4, max_n=tile.max_n and tile.threads * 4)


def column_tile() -> Tile:
    """Sums over the rows where no row is reduced: a warp a row, 8 rows a block, tiles of 32 vectors of columns."""
    return Tile(threads=32, vectors=1, block=256, min_blocks=4, max_n=0, persist=4)


def loop_tiles(cases: Sequence[Features]) -> dict[int, Tile]:
    """Rows wider than the registers: one block a row, which reads the row again in each phase (from L2, mostly).

    One tile for each size of an element, the same for all cases of an op, whose rows have the same threads. With one vector of
    each of 1024 threads cross_entropy's forward in bf16 on an H200, 4096x128256, takes 510 us (a copy: 248), and 262 with four of
    each of 256; layer_norm's backward, 1024x65536, 258 and 230 with four of each of 1024. add_layer_norm's, which reads three rows,
    takes 621 at 2048x50257 with one of 1024, 674 with four of 512, and 521 with two of 256.
    """
    loads = max(c.row_loads for c in cases)
    if not any(c.row_stores for c in cases):
        tile = Tile(threads=256, vectors=4 if loads == 1 else 2, block=256, min_blocks=5, max_n=0)
    elif loads <= 2:
        tile = Tile(threads=1024, vectors=4, block=1024, min_blocks=1, max_n=0)
    else:
        tile = Tile(threads=256, vectors=2, block=256, min_blocks=5, max_n=0)
    wide = Tile(threads=1024, vectors=1, block=1024, min_blocks=1, max_n=0)
    return {item: wide if item == 8 else tile for item in ITEM_SIZE.values()}


def runs_ladder(item: int) -> tuple[Tile, ...]:
    """Sums over runs of columns, which are as long as a call has positions: from one number to an image of millions.

    A run has a partial sum of its own, so a block has as many runs as keep its threads busy. Not measured yet.
    """
    vector = 16 // item
    shapes = (
        [(8, 4, 128), (256, 0, 256)] if item == 8 else [(1, 2, 128), (8, 4, 128), (32, 8, 128), (256, 0, 256)]
    )
    return tuple(Tile(t, 1, block, 1, t * p * vector) for t, p, block in shapes)


def exact_tile(tile: Tile, width: int, item: int) -> Tile:
    """The tile of a kernel for one width: the same map, with no vector more than the width needs."""
    vectors = -(-width // (tile.threads * (16 // item)))
    return replace(tile, vectors=vectors, max_n=width)
