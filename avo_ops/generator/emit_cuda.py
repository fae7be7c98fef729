"""CUDA kernels of one case: one readable template for each schedule class, and the rows of its variant table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..definitions.record import OpDef
from ..plan_file import ANY, symbol_of
from . import schedule
from .ir import C_TYPES, PRIMITIVES, REDUCTIONS, WHOLE_REDUCTIONS, Builder, Graph, Node, Span, read_whole
from .plan import Argument, Case, Op, is_incoming_gradient, signature
from .product import Family
from .render import Body, Names, formula_comment, identifier, row_level, summand
from .schedule import DTYPES, ITEM_SIZE, PAIRS, Features, Tile
from .simplify import computed_again, joined, merged_phases, online_phases, online_sums
from .trace import TraceError

Json = dict[str, Any]


_NUMBERS = tuple(op for op in REDUCTIONS if op not in WHOLE_REDUCTIONS)
# Reductions of integers: what joins two of them across threads, and in one.
_WHOLE = {
    "isum": ("WholeSum", "m_iadd"), "iprod": ("WholeProduct", "m_imul"), "iamax": ("WholeMax", "m_imax"),
    "iamin": ("WholeMin", "m_imin"),
}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass
class Emitter:
    """Emits the cases of one operator; equal graphs share a family."""

    record: OpDef
    families: dict[str, Family] = field(default_factory=dict)
    by_signature: dict[tuple[str, str], Family] = field(default_factory=dict)
    usual: set[str] = field(default_factory=set)  # names of the families of cases that are not rare
    with_sums: bool = False
    most_loads: int = 0
    most_sums: int = 0
    single_pass: bool = False
    loop: dict[int, Tile] = field(default_factory=dict)  # by the size of an element
    held: int = 0  # of runs: operands that the cases of an op hold in registers
    pairs: tuple[tuple[str, str], ...] = PAIRS

    @classmethod
    def after(cls, other: Emitter, record: OpDef) -> Emitter:
        """One that takes the families of another operator wherever the graphs are equal."""
        return cls(record, by_signature=dict(other.by_signature))

    def alternatives(self, case: Case, op: Op) -> list[Json]:
        """The ways in which this case can run, the first that applies being taken (see the plan's format)."""
        found = self._alternatives(case, op)
        if not _is_rare(case, op):
            self.usual |= {step["family"] for one in found for step in one["steps"]}
        return found

    def assign_units(self, family: Family) -> None:
        """Say of each variant that is not packaged which unit has it, to be compiled when it is first called.

        Rare dtypes, and all of rare cases. Of reductions that hold a row in registers also whatever is not of the usual dtypes, and
        rows that are not whole chunks: each of these alone, for such a call needs one of them.
        """

        def unit(dtypes: str, row: Json) -> str | None:
            name = f"{family.name}__{dtypes.replace(',', '_')}"
            if dtypes in schedule.ON_DEMAND or family.name not in self.usual or not self.record.packaged:
                # Kernels that load values of runs take long to compile: a call waits for its own alone.
                return str(row["symbol"]) if self.by_runs else name
            if not any(v["exact"] == "chunks" for v in family.variants[dtypes]):
                return None
            # A reduction with the row in registers, whose kernels are many.
            if row["exact"] in (None, "odd"):
                return str(row["symbol"])
            return (
                name if dtypes not in (schedule.CLUSTER if row["cluster"] > 1 else schedule.USUAL) else None
            )

        # Several dtypes may share a symbol: packaged for one, it is for all.
        of_symbol: dict[str, str | None] = {}
        for dtypes, rows in family.variants.items():
            for row in rows:
                found = unit(dtypes, row)
                of_symbol[row["symbol"]] = found and of_symbol.get(row["symbol"], found)
        for rows in family.variants.values():
            for row in rows:
                row["unit"] = of_symbol[row["symbol"]]

    def _alternatives(self, case: Case, op: Op) -> list[Json]:
        graph = case.graph
        if not graph.results:
            return []
        if self.by_runs:
            return self._of_groups(case, op)
        # Cases that differ in the wanted gradients alone give each row the same threads, and so the same bits.
        self.with_sums = any(_reduces_both_ways(c.graph) for c in op.cases)
        every = [Features.of(c.graph) for c in op.cases]
        self.most_loads = max(f.row_loads for f in every) if self.with_sums else 0
        self.most_sums = max(f.sums for f in every) if self.with_sums else 0
        self.loop = schedule.loop_tiles(every)
        alike = [
            f for c, f in zip(op.cases, every, strict=True) if _strings_of(c, op) == _strings_of(case, op)
        ]
        self.single_pass = not self.with_sums and all(f.single_pass for f in alike if f.reductions)
        features = self._features(graph)
        # What is hardly ever called does with one kernel a dtype: its column operands are widened before.
        self.pairs = tuple(p for p in PAIRS if p[1] in ("f32", "f64")) if _is_unusual(case, op) else PAIRS
        direction = "backward" if op.name.endswith("_backward") else "forward"
        # Several cases may share a graph (whichever of the column sums is wanted, all are computed).
        own = signature(graph)
        full = any(_is_full(c, op) and signature(c.graph) == own for c in op.cases)
        widths = self.record.widths.get(direction, ()) if full else ()
        if features.reductions and features.sums:
            rows = Graph({n: v for n, v in graph.results.items() if v.span & Span.ROWS}, graph.narrow)
            sums = Graph({n: v for n, v in graph.results.items() if not v.span & Span.ROWS}, graph.narrow)
            if Features.of(sums).reductions:
                raise TraceError(
                    f"{case.name}: a sum over the rows of a value that needs a reduction of its own row"
                )
            fused = self._steps(self._row(case.name, graph, "row", widths), case.name, graph)
            wide = self._loop(f"{case.name}_rows", rows)
            split = self._steps(self._row(f"{case.name}_sums", sums, "column", ()), f"{case.name}_sums", sums)
            cluster = self._cluster(case.name, graph)
            cluster["steps"] += [_step(self._finish(f"{case.name}_finish", graph))]
            return [
                {"when": "rows", "limit": _limit_of_sums(features), "min_arch": 0, "steps": fused},
                cluster,
                {**wide, "steps": wide["steps"] + split},
            ]
        if features.reductions:  # where other cases have sums too, each row has the same threads as in those
            row = self._of_row(case.name, graph, widths)
            if features.single_pass:
                return [row, self._loop(case.name, graph)]
            return [row, self._cluster(case.name, graph), self._loop(case.name, graph)]
        if features.sums:
            family = self._row(case.name, graph, "column", ())
            return [
                {"when": "rows", "limit": None, "min_arch": 0, "steps": self._steps(family, case.name, graph)}
            ]
        found = []
        # The parts of a packed operand do not lie densely.
        if _is_elementwise(graph) and not any(a.parts for a in op.arguments):
            family = self._row(case.name, graph, "flat", ())
            found.append({"when": "flat", "limit": None, "min_arch": 0, "steps": [_step(family)]})
        family = self._row(f"{case.name}_rows" if found else case.name, graph, "pointwise", ())
        return [*found, {"when": "rows", "limit": None, "min_arch": 0, "steps": [_step(family)]}]

    @property
    def by_runs(self) -> bool:
        """Whether columns that lie together share a value of each column operand, and of each sum."""
        return self.record.columns.rule == "groups"

    def _features(self, graph: Graph) -> Features:
        """What a schedule needs to know. Values of runs differ from row to row: such operands are no column operands.

        Those that reductions read are in registers as a row is: as many in all cases of an op, whose rows have the same threads.
        """
        features = replace(
            Features.of(graph),
            most_loads=self.most_loads,
            most_sums=self.most_sums,
            single_pass=self.single_pass,
        )
        if not self.by_runs:
            return features
        return replace(
            features, row_loads=features.row_loads + self.held, held=features.held + self.held, column_loads=0
        )

    def _of_groups(self, case: Case, op: Op) -> list[Json]:
        """Rows as elsewhere; sums over the rows by a kernel that has a row for each run of columns."""
        self.with_sums, self.most_loads, self.most_sums, self.single_pass = False, 0, 0, False
        self.held = max(_read_by_reductions(c.graph) for c in op.cases)
        self.loop = schedule.loop_tiles([Features.of(c.graph) for c in op.cases])
        self.pairs = tuple(p for p in PAIRS if p[1] in ("f32", "f64")) if _is_unusual(case, op) else PAIRS
        rows = Graph({n: v for n, v in case.graph.results.items() if v.span & Span.ROWS})
        sums = Graph({n: v for n, v in case.graph.results.items() if not v.span & Span.ROWS})
        steps = []
        if sums.results:
            name = f"{case.name}_sums" if rows.results else case.name
            of_runs = self._row(name, _sums_of_runs(case.name, sums), "runs", ())
            steps = self._steps(of_runs, name, sums)
        if not rows.results:
            return [{"when": "rows", "limit": None, "min_arch": 0, "steps": steps}]
        name = f"{case.name}_rows" if steps else case.name
        found = [self._of_row(name, rows, ()), self._cluster(name, rows), self._loop(name, rows)]
        return [{**one, "steps": [*one["steps"], *steps]} for one in found]

    def _of_row(self, name: str, graph: Graph, widths: Sequence[int]) -> Json:
        """Rows that the registers of a block hold."""
        features = self._features(graph)
        limit = {
            d: schedule.row_ladder(features, ITEM_SIZE[d], ITEM_SIZE[d], self.with_sums)[-1].max_n
            for d in DTYPES
        }
        step = _step(self._row(name, graph, "row", widths))
        return {"when": "rows", "limit": limit, "min_arch": 0, "steps": [step]}

    def _loop(self, name: str, graph: Graph) -> Json:
        """Rows of any width."""
        step = _step(self._row(f"{name}_loop", graph, "loop", ()))
        return {"when": "rows", "limit": None, "min_arch": 0, "steps": [step]}

    def _cluster(self, name: str, graph: Graph) -> Json:
        """Rows that the blocks of a cluster share."""
        features = self._features(graph)
        limit = {
            d: schedule.cluster_ladder(features, ITEM_SIZE[d], ITEM_SIZE[d], self.with_sums)[-1].max_n
            if d != "f64"
            else 0
            for d in DTYPES
        }
        family = self._row(f"{name}_cluster", graph, "cluster", ())
        # Eight vectors that are shifted into place spill: odd rows take a loop less time, in bf16 on an H200: softmax's forward of
        # 2048x50257 177 us and 201, rms_norm's backward 427 and 685. But not where there are fewer, as in softmax's backward.
        when = "chunks" if self.with_sums or features.row_loads == 1 else "rows"
        return {"when": when, "limit": limit, "min_arch": 90, "steps": [_step(family)]}

    def _steps(self, family: Family, name: str, graph: Graph) -> list[Json]:
        return [_step(family), _step(self._finish(f"{name}_finish", graph))]

    def _add(self, family: Family, graph: Graph, kind: str) -> Family:
        self.by_signature[kind, signature(graph)] = family
        if family.name in self.families:
            raise AssertionError(f"two different kernels are called {family.name}")
        self.families[family.name] = family
        return family

    def _row(self, name: str, graph: Graph, kind: str, widths: Sequence[int]) -> Family:
        shared = self.by_signature.get((kind, signature(graph)))
        if shared is not None:
            return shared
        features, sums = self._features(graph), Features.of(graph).sums
        if kind == "runs":
            sums = len(graph.results)
        if kind == "cluster":
            of_row = self.by_signature["row", signature(graph)]
            template, text, params = of_row.template, of_row.text, of_row.params
        else:
            kernel = _RowKernel(self.record, name, graph, kind)
            template, text, params = name, kernel.text(), tuple(kernel.params)
        # What is compiled when it is first called is not compiled twice for calls of few and of many rows.
        may_spread = kind == "row" and self.record.packaged and not self.with_sums and not features.sums
        variants: dict[str, list[Json]] = {}
        of_columns = any(n.op == "load" and self._is_of_columns(n) for n in graph.nodes())
        for x, w in self.pairs if of_columns else [(d, None) for d in DTYPES]:
            item, dtypes = ITEM_SIZE[x], x if w is None else f"{x},{w}"
            if kind == "flat":
                ladder: tuple[Tile, ...] = (schedule.flat_tile(item),)
            elif kind == "pointwise":
                ladder = schedule.pointwise_ladder(features, item, _is_elementwise(graph))
            elif kind == "column":
                ladder = (schedule.column_tile(),)
            elif kind == "cluster":
                ladder = schedule.cluster_ladder(features, item, ITEM_SIZE[w or x], self.with_sums)
            elif kind == "loop":
                ladder = (self.loop[item],)
            elif kind == "runs":
                ladder = schedule.runs_ladder(item)
            else:
                ladder = schedule.ladder(features, item, ITEM_SIZE[w or x], self.with_sums)
            if kind == "cluster" and (x == "f64" or (w not in (None, x) and (x, x) in self.pairs)):
                continue  # rare: the alternative after it serves them
            rows = []
            if kind == "row" and self.with_sums:
                least = 1
                for tile in schedule.odd_ladder(features, item):
                    rows.append(variant(name, kind, x, w, tile, least, tile.max_n, "odd"))
                    least = tile.max_n + 1
            least = 1
            if kind == "cluster":
                least += schedule.cluster_begin(features, item, ITEM_SIZE[w or x], self.with_sums)
            least_of_any = least
            for tile, following in itertools.zip_longest(ladder, ladder[1:]):
                # Measured in bf16, and built for it alone: each pair of dtypes adds half a minute to a build on two cores.
                own = widths if kind == "row" and x == "bf16" and w in (None, x) else ()
                rows += [
                    variant(name, kind, x, w, schedule.exact_tile(tile, width, item), width, width, width)
                    for width in own
                    if least <= width <= tile.max_n and width % (16 // item) == 0
                ]
                if kind in ("row", "cluster") and x != "f64" and not tile.shifted:
                    spread = schedule.spread(tile) if may_spread and dtypes in schedule.USUAL else None
                    if spread is not None:
                        rows.append(variant(name, kind, x, w, spread, least, tile.max_n, "few"))
                    rows.append(variant(name, kind, x, w, tile, least, tile.max_n, "chunks"))
                    least = tile.max_n + 1
                # Rows that are not whole chunks do with one tile for each number of threads, if it has not many more vectors; not
                # where rows are added up, which depends on the grid. (8192x4097, softmax: 50 us with five vectors, 72 with eight.)
                last = following is None or following.threads != tile.threads or tile.shifted
                if kind != "row" or features.sums or last or 5 * following.vectors > 7 * tile.vectors:
                    rows.append(variant(name, kind, x, w, tile, least_of_any, tile.max_n, None))
                    least_of_any = tile.max_n + 1
            if x != "f64" and (kind == "column" or (kind == "pointwise" and features.column_loads)):
                least = 1
                for tile in map(schedule.odd_tile, ladder):
                    if 0 < tile.max_n < least:
                        continue
                    rows.append(variant(name, kind, x, w, tile, least, tile.max_n, "odd"))
                    least = tile.max_n + 1
            variants[dtypes] = rows
        return self._add(
            Family(
                name,
                template,
                "row" if kind in ("pointwise", "cluster") else kind,
                text,
                sums,
                params,
                variants,
            ),
            graph,
            kind,
        )

    def _is_of_columns(self, load: Node) -> bool:
        """Whether an operand has the dtype W: one of span N, also where a kernel has a row for each of its values."""
        return load.span == Span.COLS or self.record.spans.get(load.attr) == "N"

    def _finish(self, name: str, graph: Graph) -> Family:
        results = {n: v for n, v in graph.results.items() if not v.span & Span.ROWS}
        key = Graph(results)
        shared = self.by_signature.get(("finish", signature(key)))
        if shared is not None:
            return shared
        sums = _sums_of(graph)
        text, params = _finish_text(self.record, name, results, sums)
        variants: dict[str, list[Json]] = {}
        for x, w in self.pairs:
            c = "f64" if x == "f64" else "f32"
            arguments = f"1024, 1, {c}, {w}"
            symbol = symbol_of(name, arguments)
            variants[f"{x},{w}"] = [
                {
                    "symbol": symbol, "instantiate": f"AVO_KERNEL({symbol}, {arguments})", "min_n": 1, "max_n": ANY,
                    "exact": None, "block": 1024, "rows": 0, "vec": 1, "cols": 32, "persist": 0, "cluster": 1, "smem": 0,
                }
            ]  # fmt: skip
        return self._add(Family(name, name, "finish", text, len(sums), params, variants), key, "finish")


def _is_elementwise(graph: Graph) -> bool:
    """Whether the graph knows neither rows nor columns."""
    return all(n.span in (Span.BOTH, Span.NONE) and n.op != "size" for n in graph.nodes())


def _reduces_both_ways(graph: Graph) -> bool:
    features = Features.of(graph)
    return bool(features.reductions and features.sums)


def _key_of(case: Case, op: Op) -> list[tuple[Argument, list[Any]]]:
    """The arguments that make the key of a case, and their part of it."""
    bits = iter(case.key)
    keyed = [a for a in op.arguments if a.choices or a.kind == "mask" or (a.kind == "tensor" and a.optional)]
    return [(a, [next(bits) for _ in range(a.length if a.kind == "mask" else 1)]) for a in keyed]


def _strings_of(case: Case, op: Op) -> list[list[Any]]:
    return [values for a, values in _key_of(case, op) if a.kind == "str"]


def _is_full(case: Case, op: Op) -> bool:
    """Whether all tensors are there, everything is computed and strings are what they are by default.

    It is the case that most models run, worth kernels for one width.
    """
    return all(not any(values) if a.choices else all(values) for a, values in _key_of(case, op))


def _is_unusual(case: Case, op: Op) -> bool:
    """Whether an optional column operand is given without one that stands before it: a bias alone, where a weight was due."""
    given = [all(v) for a, v in _key_of(case, op) if a.kind == "tensor" and a.span == Span.COLS]
    return given != sorted(given, reverse=True)


def _is_rare(case: Case, op: Op) -> bool:
    """Whether a case's kernels may wait for its first call: what few models run, or run in few places."""
    key = _key_of(case, op)
    mask = next((bits for a, bits in key if a.kind == "mask"), [])
    # The gradient of a tensor of the call's size is left out: that of a frozen input, or of one of two.
    partial = not all(bit for bit, r in zip(mask, op.returns, strict=False) if r.span == Span.BOTH)
    # One of several results has no gradient: in the last layer, whose residual ends there.
    unused = not all(v for a, bits in key if a.optional and a.span == Span.BOTH for v in bits)
    # Of an operator that reduces rows, whose kernels are many, a string that is not the default.
    other = bool(Features.of(case.graph).reductions) and any(
        v for a, bits in key if a.kind == "str" for v in bits
    )
    return _is_unusual(case, op) or partial or unused or other


def _step(family: Family) -> Json:
    return {"family": family.name, "params": [list(p) for p in family.params]}


def _limit_of_sums(features: Features) -> Json:
    """Of each dtype the widest row that is held in registers where column sums are made too."""
    return {d: schedule.sums_ladder(features, ITEM_SIZE[d])[-1].max_n for d in DTYPES}


def variant(
    name: str, kind: str, x: str, w: str | None, tile: Tile, least: int, most: int, exact: int | str | None
) -> Json:
    """A line of a variant table. ``exact``: for one width, or for rows of whole "chunks", or for "odd" ones, or for any.

    "few": whole chunks too, where there are so few rows that a persistent grid has all of them under way at once.

    Odd rows are those that are no whole number of chunks. Where the threads of a row do not bear on bits also those that do
    not all start at a chunk.
    """
    item = ITEM_SIZE[x]
    vector = 1 if exact == "odd" else 16 // item
    known = (
        str(exact)
        if isinstance(exact, int)
        else {"odd": "kSingly", "chunks": "kWholeChunks", "few": "kWholeChunks"}.get(exact or "", "0")
    )
    dtypes = [x, w] if w else [x]
    told = [tile.block, tile.min_blocks, *dtypes, tile.threads, tile.vectors, known, str(tile.ahead).lower()]
    if tile.parts > 1 or tile.keep:
        told.append(tile.parts)
    if tile.keep:
        told.append("true")
    arguments = ", ".join(map(str, told))
    symbol = symbol_of(name, arguments)
    return {
        "symbol": symbol,
        "instantiate": f"AVO_KERNEL({symbol}, {arguments})",
        "min_n": least,
        "max_n": most or ANY,
        "exact": exact,
        "block": tile.block,
        "rows": tile.rows,
        "vec": vector,
        "cols": tile.threads * tile.vectors * vector if kind in ("pointwise", "column") else 0,
        "persist": tile.persist,
        "cluster": max(1, tile.threads // tile.block),
        "smem": 0,
    }


def _read_by_reductions(graph: Graph) -> int:
    """How many column operands the reductions along the columns read."""
    read: set[int] = set()
    todo = [n.args[0] for n in graph.nodes() if n.is_reduction and n.attr == Span.COLS]
    while todo:
        n = todo.pop()
        if n.index not in read and not n.is_reduction:
            read.add(n.index)
            todo += n.args
    return sum(n.op == "load" and n.span == Span.COLS and n.index in read for n in graph.nodes())


def _sums_of_runs(name: str, graph: Graph) -> Graph:
    """Sums over the rows as sums along the columns, for rows of a run of columns each: a column operand has a value a row.

    Raises:
        TraceError: the sums depend on what a whole row has.
    """
    builder = Builder()
    new: dict[int, Node] = {}
    for node in graph.nodes():
        builder.source, builder.name = node.source, node.name
        args, attr = [new[a.index] for a in node.args], node.attr
        if node.op in ("size", "column") or (node.is_reduction and node.attr == Span.COLS):
            raise TraceError(f"{name}: a sum over the rows of a value that needs the whole row")
        if node.is_reduction:
            attr = Span.COLS
        span = Span.ROWS if node.op == "load" and node.span == Span.COLS else node.span
        new[node.index] = builder.make(node.op, *args, attr=attr, span=span)
    return Graph({n: new[v.index] for n, v in graph.results.items()})


def _sums_of(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes() if n.is_reduction and n.attr == Span.ROWS]


class _RowKernel:
    """Text of the kernels that walk over rows: flat, pointwise, row, column, loop and runs.

    One of class runs has a row for each run of columns that share the values of the column operands.
    """

    def __init__(self, record: OpDef, name: str, graph: Graph, kind: str) -> None:
        self.record, self.name, self.graph, self.kind = record, name, graph, kind
        self.nodes = graph.nodes()
        self.centred = online_sums(self.nodes)
        self.online = self.centred if kind == "loop" else {}
        self.phase = online_phases(self.nodes, self.online) if kind == "loop" else merged_phases(graph)
        self.last = max(self.phase.values(), default=0)
        loads = [n for n in self.nodes if n.op == "load"]
        self.row_loads = [n for n in loads if n.span == Span.BOTH]
        self.column_loads = [n for n in loads if n.span == Span.COLS]
        self.read_whole = read_whole(graph.results.values())
        self.statistics = [n for n in loads if n.span == Span.ROWS]
        self.numbers = [n for n in loads if n.span == Span.NONE]
        self.scalars = [n for n in self.nodes if n.op == "scalar"]
        self.sums = _sums_of(graph)
        if any(n.op != "sum" for n in self.sums):
            raise TraceError(f"{name}: only sums may run over the rows")
        self.stores = {n: v for n, v in graph.results.items() if v.span & Span.ROWS and v.span != Span.ROWS}
        self.row_stores = {n: v for n, v in graph.results.items() if not v.span & Span.COLS}
        # Arguments of integers that are exact, by the index of the integer, and results.
        self.integers = {n.index: n.args[0] for n in self.nodes if n.op == "whole"}
        self.whole = {n.attr for n in self.integers.values()} | {
            name for name, v in graph.results.items() if v.is_whole
        }
        self.looped = kind in ("loop", "runs")
        self.spreads = kind == "row" and not self.sums
        self.by_runs = record.columns.rule == "groups" and kind != "runs"
        # Of those of a row the ones that are column operands elsewhere.
        self.run_loads = [n for n in self.statistics if kind == "runs" and record.spans.get(n.attr) == "N"]
        self.joined = joined(graph) if kind == "row" else []
        self.kept = computed_again(graph, self.phase) if self.spreads else {}
        self.places: dict[int, str] = {}  # of those kept so far
        self.names = Names({f"{n.attr}_vec" for n in [*loads, *self.joined]})
        for n in [*loads, *self.scalars]:
            self.names.reserve(identifier(n.attr))
        for s in self.sums:
            self.names.reserve(self._sum_name(s))
        for r in graph.results:
            self.names.reserve(f"{r}_out")
        self.params: list[tuple[str, ...]] = []
        self.declared: list[str] = []
        self._declare_params()

    def _declare_params(self) -> None:
        def add(kind: str, name: str, declaration: str) -> None:
            self.params.append((kind, name) if name else (kind,))
            self.declared.append(declaration)

        strided = self.kind != "flat"
        for n in self.row_loads:
            add("ptr", n.attr, f"const {self._stored(n.attr)}* __restrict__ {n.attr}_ptr")
            if strided:
                add("stride", n.attr, f"int64_t {n.attr}_stride")
        for n in self.column_loads:
            add("ptr", n.attr, f"const W* __restrict__ {n.attr}_ptr")
        for n in self.statistics:
            number = "int64_t" if self._is_integer(n) else "W" if n in self.run_loads else "compute_t<X>"
            add("ptr", n.attr, f"const {number}* __restrict__ {n.attr}_ptr")
            if is_incoming_gradient(n.attr):
                add("step", n.attr, f"int64_t {n.attr}_step")
        for n in self.numbers:
            add("ptr", n.attr, f"const compute_t<X>* __restrict__ {n.attr}_ptr")
        for name in self.stores:
            add("ptr", name, f"{self._stored(name)}* __restrict__ {name}_ptr")
            if strided:
                add("stride", name, f"int64_t {name}_stride")
        for name in self.row_stores if self.kind != "runs" else ():
            number = "int64_t" if name in self.whole else "compute_t<X>"
            add("ptr", name, f"{number}* __restrict__ {name}_ptr")
        if self.sums or self.kind == "runs":
            add("partials", "", "compute_t<X>* __restrict__ partials")
        if self.by_runs and self.column_loads:
            add("run", "", "int64_t run")
        if self.kind == "runs" or (self.by_runs and self.column_loads):
            add("runs", "", "int64_t runs")
            add("channels", "", "int64_t channels")
        for n in self.scalars:
            add("scalar", n.attr, f"compute_t<X> {identifier(n.attr)}")
        if strided:
            add("M", "", "int64_t M")
        add("N", "", "int64_t N")

    def _stored(self, name: str) -> str:
        """The element type of an operand of the call's size."""
        stored = self.graph.narrow.get(name, "X")
        return C_TYPES[stored] if name in self.whole else stored

    # ---- pieces

    def text(self) -> str:
        of_columns = bool(self.column_loads or self.run_loads)
        typenames = "class X" + (", class W" if of_columns else "")
        names = "X" + (", W" if of_columns else "")
        head = [
            *_title(self.record, self.name, self.kind, self._headers()),
            *_parameters(self.name, names, self.declared),
            "namespace avo {",
            "",
            f"template <int kBlock, {typenames}, int T, int P, int kN, bool kAhead{self._options()}>",
            f"AVO_INLINE void {self.name}(AVO_PARAMETERS({names}, T)) {{",
        ]
        return "\n".join([*head, *self._body(), "}", "", "} // namespace avo", ""])

    def _options(self) -> str:
        """Template parameters that the kernels of some graphs have."""
        return (", int kParts = 1" if self.spreads else "") + (", bool kKeep = false" if self.kept else "")

    def _headers(self) -> list[str]:
        """What is included beside avo.cuh."""
        whole = any(n.is_whole for n in self.nodes)
        return ['#include "device/integers.cuh"'] if whole else []

    def _body(self) -> list[str]:
        out = ["  using C = compute_t<X>;"]
        if any(PRIMITIVES[n.op].approximate for n in self.nodes if n.op in PRIMITIVES):
            # A sum over rows may be a result of more bits than the rows have.
            summed = "  using A = Fine;" if self.sums or self.kind == "runs" else "  using A = accuracy_t<X>;"
            out.append("  using A = accuracy_t<X, W>;" if self.column_loads or self.run_loads else summed)
        out.append(
            f"  constexpr int V = kVector<X{', kN' if self.kind in ('row', 'pointwise', 'column') else ''}>;"
        )
        out += [f"  const C {identifier(n.attr)} = *{n.attr}_ptr;" for n in self.numbers]
        axis_rows = "y" if self.kind == "column" else "x"
        out.append("  const int thread = thread_of_row<T, kBlock>();")
        if self.kind in ("flat", "pointwise", "column"):
            index = "int64_t" if self.kind == "flat" else "int"
            block = "y" if self.kind == "pointwise" else "x"
            tests = [
                f"starts_at_chunk<V>({name}_ptr, {'0' if self.kind == 'flat' else f'{name}_stride'})"
                for name in [*(n.attr for n in self.row_loads), *self.stores]
            ]
            out += [
                f"  const {index} column = {index}(blockIdx.{block}) * (T * P * V);",
                f"  const bool whole = int64_t(column) + T * P * V <= N && {' && '.join(tests)};",
                "  const auto body = [&](const auto& tile) {",
            ]
            if self.kind == "flat":
                inner = [*self._load_rows("", self.row_loads), *self._last_pass({}, "  ")]
            else:
                inner = self._rows(axis_rows)
            out += [line if line.startswith("#") else f"  {line}" for line in inner]
            suffix = ", int64_t" if self.kind == "flat" else ""
            out += [
                "  };",
                "  if (whole)",
                f"    body(WholeTile<T, P, V{suffix}>(thread, column, N));",
                "  else",
                f"    body(RowTile<T, P, V, kN{suffix}>(thread, column, N));",
            ]
            return out
        if not self.looped:
            out.append("  const RowTile<T, P, V, kN> tile(thread, 0, N);")
        return out + self._rows(axis_rows)

    def _rows(self, axis_rows: str) -> list[str]:
        """The loop over the rows of a block."""
        out: list[str] = []
        if self.last:
            parts = ", kParts" if self.spreads else ""
            for number, ops, prefix in (("C", _NUMBERS, ""), ("int64_t", WHOLE_REDUCTIONS, "whole_")):
                most = max(self._reductions(k, op) for k in range(1, self.last + 1) for op in ops)
                if most:
                    out.append(
                        f"  __shared__ RowScratch<{number}, kBlock, T, {most}{parts}> {prefix}scratch;"
                    )
                    out.append(f"  int {prefix}turn = 0;")
        if self.sums or self.kind == "runs":
            out.append("  let_next_kernel_begin();")
        if not self.looped and not self.by_runs:
            for n in self.column_loads:
                if n.index not in self.read_whole:
                    continue
                held = self._held(n)
                out += [
                    f"  Vec<W, V> {n.attr}_vec[{'P' if held else 'kAhead ? P : 1'}];",
                    f"  {'' if held else 'if constexpr (kAhead) '}tile.load_columns({n.attr}_vec, {n.attr}_ptr);",
                ]
        for n in self.sums:
            out.append(f"  C {self._sum_name(n)}[P][V] = {{}};")
        if self.kind == "row" and self.last:
            out.append("  announce_row<T, kBlock>();")
        out.append(f"  const BlockRows<T, kBlock> rows(blockIdx.{axis_rows}, gridDim.{axis_rows});")
        if not self.looped:
            out += self._fetch()
        out += [
            "  for (int64_t base = rows.first; base < M; base += rows.step) {",
            "    const int64_t row = base + rows.own;",
            "    const bool live = row < M;",
        ]
        if self.looped:
            out += [
                f"    const {self._type(n)} {identifier(n.attr)} = live ? {self._of_row(n)} : {self._type(n)}(0);"
                for n in self.statistics
            ]
        elif self.row_loads or self.statistics:
            out += self._declared("    ", "_vec", identifier)
            now = [*(f"{n.attr}_vec" for n in self.row_loads), *(identifier(n.attr) for n in self.statistics)]
            ahead = [f"{n.attr}_next" for n in [*self.row_loads, *self.statistics]]
            out.append("    if constexpr (kAhead) {")
            out += [f"      copy({n.attr}_vec, {n.attr}_next);" for n in self.row_loads]
            out += [f"      {identifier(n.attr)} = {n.attr}_next;" for n in self.statistics]
            out += [
                f"      fetch(row + rows.step, {', '.join(ahead)});",
                "    } else {",
                f"      fetch(row, {', '.join(now)});",
                "    }",
            ]
        if self.by_runs and self.column_loads:
            out.append("    const int64_t first_run = live ? row * runs % channels : 0;")
            for n in filter(self._held, self.column_loads):
                out.append(f"    Vec<W, V> {n.attr}_vec[P];")
                out.append(f"    tile.load_runs({n.attr}_vec, {n.attr}_ptr + first_run, run);")
        if self.kind == "row" and self.last:  # while the first row is on its way
            out.append("    if (base == rows.first) await_row<T, kBlock>();")
        known = {n.index: identifier(n.attr) for n in [*self.statistics, *self.scalars, *self.numbers]}
        known |= {n.index: f"C({identifier(n.attr)})" for n in self.statistics if self._is_integer(n)}
        known |= {index: identifier(n.attr) for index, n in self.integers.items() if not n.span & Span.COLS}
        known |= {n.index: f"C({'M' if n.attr == Span.ROWS else 'N'})" for n in self.nodes if n.op == "size"}
        named = row_level(self.nodes, self.graph.results.values(), self.phase)
        out += self._row_values(named.get(0, []), known)
        out += self._join(known)
        packed = [n.attr for n in (*self.row_loads, *self.joined) if n.attr not in self.graph.narrow]
        for k in range(1, self.last + 1):
            out += self._reduce(k, known)
            if self.kind == "row" and self.last > 1 and packed:
                out.append(f"    hold_packed({', '.join(f'{name}_vec' for name in packed)});")
            out += self._row_values(named.get(k, []), known)
        for i, (name, node) in enumerate(self.row_stores.items()):
            body = Body(self.names, known, "const C", approximate="<A>", element=False)
            lines, (value,) = body.emit([node])
            out += [f"    {line}" for line in lines]
            if self.kind == "runs":
                count = len(self.row_stores)
                sample = f"(row / channels * {count} + {i})" if count > 1 else "row / channels"
                place = f"{sample} * channels + row % channels"
                out.append(f"    if (live && thread == 0) partials[{place}] = {value};")
                continue
            out.append(f"    if (live && thread == 0 && {name}_ptr) {name}_ptr[row] = {value};")
        if self.stores or self.sums:
            out += self._last_pass(known, "    ")
        out.append("  }")
        if self.sums:
            out.append("  __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];")
            for i, n in enumerate(self.sums):
                index = f"(rows.block * {len(self.sums)} + {i})" if len(self.sums) > 1 else "rows.block"
                out.append(
                    f"  write_partial<rows.kRows>(tile, {self._sum_name(n)}, shared, partials + {index} * N);"
                )
        return out

    def _is_integer(self, load: Node) -> bool:
        return load.attr in self.record.integers

    def _of_row(self, statistic: Node) -> str:
        """What a row has of an operand with one value a row."""
        if statistic in self.run_loads:
            return f"C(widen({statistic.attr}_ptr[row % channels]))"
        row = "row / runs" if self.kind == "runs" else "row"
        if is_incoming_gradient(statistic.attr):  # which may be one number for all rows
            row = f"{row} * {statistic.attr}_step"
        return f"{statistic.attr}_ptr[{row}]"

    def _type(self, statistic: Node) -> str:
        return "int64_t" if self._is_integer(statistic) else "C"

    def _spell(self, node: Node) -> str | None:
        """Random numbers come four at a time, for neighbours in a vector. Columns are compared with integers as integers."""
        if node.op == "uniform":
            return f"m_uniform<C, V>({identifier(node.args[0].attr)}, tile.column(p), j)"
        if node.op in _COMPARISONS and any(a.op == "column" for a in node.args):
            sides = ["tile.at(p, j)" if a.op == "column" else self._place(a) for a in node.args]
            return None if None in sides else f" {_COMPARISONS[node.op]} ".join(map(str, sides))
        return None

    def _place(self, value: Node) -> str | None:
        """An integer of a row as the number of a column, if it is one."""
        if value.op == "load" and value.span == Span.ROWS and self._is_integer(value):
            return f"tile.place({identifier(value.attr)})"
        return None

    def _sum_name(self, node: Node) -> str:
        for name, result in self.graph.results.items():
            if result is node:
                return f"sum_{name}"
        return f"sum{self.sums.index(node)}"

    def _reductions(self, k: int, op: str) -> int:
        return sum(n.op == op and n.attr == Span.COLS and self.phase[n.index] == k for n in self.nodes)

    def _reads(self, k: int, load: Node) -> bool:
        """Whether pass k (the reductions of phase k; last + 1: the results) reads the operand."""
        return load.index in {n.index for n in self._element_nodes(self._roots(k))}

    def _roots(self, k: int) -> list[Node]:
        if k <= self.last:
            return [
                n.args[0]
                for n in self.nodes
                if n.is_reduction and n.attr == Span.COLS and self.phase[n.index] == k
            ]
        return [*self.stores.values(), *(n.args[0] for n in self.sums)]

    @staticmethod
    def _element_nodes(roots: Sequence[Node]) -> list[Node]:
        """The nodes that vary along the columns and are computed for each element of a pass."""
        seen: dict[int, Node] = {}

        def visit(node: Node) -> None:
            if node.index in seen or not node.span & Span.COLS:
                return
            seen[node.index] = node
            for a in node.args:
                visit(a)

        for root in roots:
            visit(root)
        return list(seen.values())

    def _load_rows(self, indent: str, loads: Sequence[Node]) -> list[str]:
        """Loads at the place of use: of a flat kernel's vector, and in each pass of a loop kernel."""
        out = []
        for n in loads:
            name = n.attr
            out.append(f"{indent}  Vec<{self._stored(name)}, V> {name}_vec[P];")
            if self.kind == "flat":
                out.append(f"{indent}  tile.load({name}_vec, {name}_ptr);")
                continue
            place = f"row * {name}_stride"
            if self.kind == "runs":
                place = f"row / runs * {name}_stride + row % runs * N"
            out += [
                f"{indent}  if (live)",
                f"{indent}    tile.load({name}_vec, {name}_ptr + {place});",
                f"{indent}  else",
                f"{indent}    clear({name}_vec);",
            ]
        return out

    def _fetch(self) -> list[str]:
        """A lambda that loads what a row needs, and in a persistent kernel the loads of the first row."""
        if not self.row_loads and not self.statistics:
            return []
        into = [f"Vec<{self._stored(n.attr)}, V> (&{n.attr}_to)[P]" for n in self.row_loads] + [
            f"{self._type(n)}& {n.attr}_to" for n in self.statistics
        ]
        out = [f"  const auto fetch = [&]({', '.join(['int64_t row', *into])}) {{", "    if (row < M) {"]
        out += [
            f"      tile.load({n.attr}_to, {n.attr}_ptr + row * {n.attr}_stride);" for n in self.row_loads
        ]
        out += [f"      {n.attr}_to = {self._of_row(n)};" for n in self.statistics]
        out += ["    } else {"]
        if self.row_loads:
            out.append(f"      clear({', '.join(f'{n.attr}_to' for n in self.row_loads)});")
        out += [f"      {n.attr}_to = {self._type(n)}(0);" for n in self.statistics]
        out += ["    }", "  };"]
        out += self._declared("  ", "_next", lambda name: f"{name}_next")
        ahead = ", ".join(f"{n.attr}_next" for n in [*self.row_loads, *self.statistics])
        out.append(f"  if constexpr (kAhead) fetch(rows.first + rows.own, {ahead});")
        return out

    def _declared(self, indent: str, vectors: str, number: Callable[[str], str]) -> list[str]:
        """Declarations of what a row needs, without values."""
        out = []
        for stored in dict.fromkeys(self._stored(n.attr) for n in self.row_loads):
            names = ", ".join(
                f"{n.attr}{vectors}[P]" for n in self.row_loads if self._stored(n.attr) == stored
            )
            out.append(f"{indent}Vec<{stored}, V> {names};")
        for kind in ("C", "int64_t"):
            own = ", ".join(number(n.attr) for n in self.statistics if self._type(n) == kind)
            out += [f"{indent}{kind} {own};"] if own else []
        return out

    def _row_values(self, nodes: Sequence[Node], known: dict[int, str]) -> list[str]:
        """Declare values of one number a row. ``known`` grows."""
        out = []
        for node in nodes:
            if node.index in known:
                continue
            name = self.names.of(node)
            if node.op == "pick":
                out += self._pick(name, node, known)
                known[node.index] = name
                continue
            lines, (value,) = Body(
                self.names, known, "const C", approximate="<A>", element=False, keep={node.index}
            ).emit([node])
            out += [f"    {line}" for line in lines]
            kind = "auto" if node.is_mask or node.is_whole else "C"
            out.append(f"    const {kind} {name} = {value};")
            known[node.index] = name
        return out

    def _pick(self, name: str, node: Node, known: dict[int, str]) -> list[str]:
        """The value in the one column that an integer of the row names."""
        value, place = node.args[0], identifier(node.args[1].attr)
        spelled = dict(known)
        for n in Graph({"": value}).nodes():
            if n.op == "column":
                spelled[n.index] = f"C({place})"
            elif n.op == "load" and n.span & Span.COLS:
                row = f"row * {n.attr}_stride + " if n.span == Span.BOTH else ""
                spelled[n.index] = f"C(widen({n.attr}_ptr[{row}{place}]))"
        scope = self.names.scope()
        lines, (text,) = Body(scope, spelled, "const C", approximate="<A>", element=False).emit([value])
        return [
            f"    C {name} = C(0);",
            f"    if (live && {place} >= 0 && {place} < N) {{",
            *(f"      {line}" for line in lines),
            f"      {name} = {text};",
            "    }",
        ]

    def _join(self, known: dict[int, str]) -> list[str]:
        """What is made of several operands of the row before all else, stored and kept."""
        out = []
        for n in self.joined:
            name, unknown = n.attr, self._element(0, known)
            for other in self.joined:
                del unknown[other.index]
            body = Body(self.names.scope(), unknown, "const C", approximate="<A>", spell=self._spell)
            lines, (value,) = body.emit([n.args[0]])
            out += [
                f"    Vec<X, V> {name}_vec[P];",
                "#pragma unroll",
                "    for (int p = 0; p < P; ++p) {",
                "      if (!tile.reaches(p)) continue;",
                f"      C {name}_out[V];",
                "#pragma unroll",
                "      for (int j = 0; j < V; ++j) {",
                *(f"        {line}" for line in lines),
                f"        {name}_out[j] = {value};",
                "      }",
                f"      {name}_vec[p].pack({name}_out);",
                f"      tile.store({name}_ptr + row * {name}_stride, p, {name}_out, live);",
                "    }",
            ]
        return out

    def _columns_of_pass(self, k: int, indent: str, by_vector: bool) -> list[str]:
        """Loads of the column operands that this pass reads, unless they stay in registers."""
        out = []
        for n in self.column_loads:
            if not self._reads(k, n) or self._held(n):
                continue
            if self.looped:
                run = ("load_runs", f"{n.attr}_ptr + first_run, run") if self.by_runs else None
                load, operand = run or ("load_columns", f"{n.attr}_ptr")
                out += [
                    f"{indent}Vec<W, V> {n.attr}_vec[P];",
                    f"{indent}tile.{load}({n.attr}_vec, {operand});",
                ]
            elif self.by_runs:
                out += [
                    f"{indent}Vec<W, V> {n.attr}_vec[1];",
                    f"{indent}tile.load_runs({n.attr}_vec[0], p, {n.attr}_ptr + first_run, run);",
                ]
            else:
                assert by_vector, "an operand of a reduction is held"
                out.append(
                    f"{indent}if constexpr (!kAhead) tile.load_columns({n.attr}_vec[0], p, {n.attr}_ptr);"
                )
        return out

    def _held(self, load: Node) -> bool:
        """Whether a column operand stays in registers in every variant: one that a reduction reads, or a sum needs."""
        return not self.looped and (
            bool(self.sums) or any(self._reads(k, load) for k in range(1, self.last + 1))
        )

    def _element_body(self, k: int, known: dict[int, str], summands: Collection[int] = ()) -> Body:
        """``summands``: exponentials that are summed alone, and to 1 or more."""

        def spell(node: Node) -> str | None:
            if node.index in summands:
                return f"m_exp_summand<A{', kKeep' if node.index in self.kept else ''}>({{0}})"
            return self._spell(node)

        spelled = self._element(k, known)
        kept, again = (
            {i: f"{place}[p][j]" for i, place in self.places.items() if (self.kept[i][1] < k) == before}
            for before in (False, True)
        )
        return Body(
            self.names.scope(), spelled, "const C", approximate="<A>", spell=spell, kept=kept, again=again
        )

    def _element(self, k: int, known: dict[int, str]) -> dict[int, str]:
        """Spellings of the operands inside an element of pass k."""
        spelled = dict(known)
        for n in self.nodes:
            if n.op == "column":
                spelled[n.index] = "C(tile.column(p) + j)"
        for n in self.joined:
            spelled[n.index] = f"{n.attr}_vec[p][j]"
        for n in self.row_loads:
            text = f"{n.attr}_vec[p][j]"
            spelled[n.index] = f"C({text})" if n.attr in self.graph.narrow else text
        for index, n in self.integers.items():
            if n.span & Span.COLS:
                spelled[index] = f"{n.attr}_vec[p].whole(j)"
        for n in self.column_loads:
            whole, one = self.looped or self._held(n), "0" if self.by_runs else "kAhead ? p : 0"
            spelled[n.index] = f"{n.attr}_vec[p][j]" if whole else f"{n.attr}_vec[{one}][j]"
        return spelled

    def _pass(self, k: int, indent: str, loop: Sequence[str], *, by_vector: bool) -> list[str]:
        """One pass over the columns. ``loop`` treats one vector p of the tile, or (not ``by_vector``) the whole tile."""
        out, inside = [], self._columns_of_pass(k, indent + "  ", by_vector)
        if self.looped:
            out.append(f"{indent}for (int64_t column = 0; column < N; column += T * P * V) {{")
            out.append(f"{indent}  const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);")
            out += self._load_rows(indent, [n for n in self.row_loads if self._reads(k, n)])
            out += inside
            if by_vector:
                loop = [line if line.startswith("#") else f"  {line}" for line in loop]
                loop = ["#pragma unroll", "for (int p = 0; p < P; ++p) {", *loop, "}"]
        elif by_vector:
            out += ["#pragma unroll", f"{indent}for (int p = 0; p < P; ++p) {{", *inside]
        else:
            return [*(line.removeprefix("  ") for line in inside), *(f"{indent}{line}" for line in loop)]
        out += [line if line.startswith("#") else f"{indent}  {line}" for line in loop]
        out.append(f"{indent}}}")
        return out

    def _reduce(self, k: int, known: dict[int, str]) -> list[str]:
        """The reductions of phase k, all in one pass. ``known`` grows."""
        nodes = [n for n in self.nodes if n.is_reduction and n.attr == Span.COLS and self.phase[n.index] == k]
        start = {
            "sum": "RowSum<C, V> {0};", "prod": "C {0} = C(1);", "amax": "C {0} = lowest<C>();",
            "amin": "C {0} = highest<C>();", "isum": "int64_t {0} = 0;", "iprod": "int64_t {0} = 1;",
            "iamax": "int64_t {0} = kLeastInteger;", "iamin": "int64_t {0} = kMostInteger;",
        }  # fmt: skip
        name = {n.index: self.names.of(n) for n in nodes}
        spelled = {n.index: f"{name[n.index]}.total" if n.op == "sum" else name[n.index] for n in nodes}
        out = [f"    {start[n.op].format(name[n.index])}" for n in nodes]
        for index, (n, first) in self.kept.items():
            if first == k:
                self.places[index] = self.names.free(f"{n.name or n.op}_kept")
                out.append(f"    C {self.places[index]}[P][V] = {{}};")
        online: dict[Node, list[Node]] = {}  # by the maximum
        for n in nodes:
            if n.index in self.online:
                online.setdefault(self.online[n.index], []).append(n)
        before, here = (
            {m: self.names.free(f"{name[m.index]}_{w}") for m in online} for w in ("before", "here")
        )
        loop = [f"const C {before[m]} = {name[m.index]};" for m in online]
        loop += self._each([n for n in nodes if n.index not in self.online], name, known)
        for m, sums in online.items():
            loop.append(f"const C {here[m]} = {name[m.index]} == lowest<C>() ? C(0) : {name[m.index]};")
            loop += [f"{spelled[n.index]} *= m_exp<A>({before[m]} - {here[m]});" for n in sums]
            loop += self._each(sums, name, {**known, m.index: here[m]})
        out += self._pass(k, "    ", loop, by_vector=False)
        out += [f"    const C {here[m]} = {name[m.index]};" for m in online]
        for op, functor in (("amax", "Max"), ("amin", "Min"), ("sum", "Sum"), ("prod", "Product")):
            group = [spelled[n.index] for n in nodes if n.op == op]
            if group:
                out.append(f"    row_reduce<{functor}, T, kBlock>(scratch, turn, {', '.join(group)});")
            for m, sums in online.items() if op == "amax" else ():
                out += [f"    {spelled[n.index]} *= m_exp<A>({here[m]} - {name[m.index]});" for n in sums]
        for op, (functor, _) in _WHOLE.items():
            group = [spelled[n.index] for n in nodes if n.op == op]
            if group:
                out.append(
                    f"    row_reduce<{functor}, T, kBlock>(whole_scratch, whole_turn, {', '.join(group)});"
                )
        known.update(spelled)
        return out

    def _each(self, nodes: Sequence[Node], name: Mapping[int, str], known: dict[int, str]) -> list[str]:
        """What some reductions of one phase take of each element of the tile."""
        extremes = {"amax": "Max", "amin": "Min"}
        plain = [n for n in nodes if n.op in extremes and self._is_plain(n.args[0])]
        out = [f"extreme<{extremes[n.op]}>(tile, {n.args[0].attr}_vec, {name[n.index]});" for n in plain]
        nodes = [n for n in nodes if n not in plain]
        if not nodes:
            return out
        step = {
            "sum": "{0}.{1}({2}, j, whole);", "prod": "{0} *= {2};",
            "amax": "{0} = m_max({0}, {2});", "amin": "{0} = m_min({0}, {2});",
            **{op: f"{{0}} = {function}({{0}}, {{2}});" for op, (_, function) in _WHOLE.items()},
        }  # fmt: skip
        summands = [summand(n, known) for n in nodes]
        phase = self.phase[nodes[0].index]
        lines, values = self._element_body(phase, known, self._only_summed(phase)).emit(
            itertools.chain(*summands)
        )
        inner, value = [*lines], iter(values)
        for n, parts in zip(nodes, summands, strict=True):
            add = "add" if len(parts) == 1 else "add_product"
            of = ", ".join(itertools.islice(value, len(parts)))
            inner.append(step[n.op].format(name[n.index], add, of))
        whole = ", bool whole" if any(n.op == "sum" for n in nodes) else ", bool"
        return [*out, f"tile.each([&](int p, int j{whole}) {{", *(f"  {line}" for line in inner), "});"]

    def _is_plain(self, value: Node) -> bool:
        """Whether it is an operand of the row as it is stored, in the dtype of the row."""
        return value.op == "load" and value.span == Span.BOTH and self._stored(value.attr) == "X"

    def _only_summed(self, k: int) -> set[int]:
        """Values of which pass k takes the sum, one that is 1 at least, and nothing else."""
        roots = self._roots(k)
        inside = {a.index for n in self._element_nodes(roots) for a in n.args}
        sums = [n for n in self.nodes if n.index in self.centred and self.phase[n.index] == k]
        others = [
            n.args[0].index
            for n in self.nodes
            if n.is_reduction and n.attr == Span.COLS and self.phase[n.index] == k and n not in sums
        ]
        return {n.args[0].index for n in sums} - inside - {*others}

    def _last_pass(self, known: dict[int, str], indent: str) -> list[str]:
        """Results of the row's size and the accumulation of the column sums."""
        k = self.last + 1
        if self.kind == "flat":
            known = {n.index: identifier(n.attr) for n in [*self.scalars, *self.numbers]}
        made = {n.attr for n in self.joined}
        results = {name: value for name, value in self.stores.items() if name not in made}
        summands = [summand(n, known) for n in self.sums]
        lines, values = self._element_body(k, known).emit([*results.values(), *itertools.chain(*summands)])
        stores, value = values[: len(results)], iter(values[len(results) :])
        inner = list(lines)
        inner += [f"{name}_out[j] = {value};" for name, value in zip(results, stores, strict=True)]
        for n, parts in zip(self.sums, summands, strict=True):
            total, of = f"{self._sum_name(n)}[p][j]", list(itertools.islice(value, len(parts)))
            more = f"{total} = m_fma({', '.join(of)}, {total})" if len(of) > 1 else f"{total} += {of[0]}"
            inner.append(f"if (live) {more};")
        address = "{0}_ptr" if self.kind == "flat" else "{0}_ptr + row * {0}_stride"
        live = "true" if self.kind == "flat" else "live"
        loop = [f"{'int64_t' if v.is_whole else 'C'} {name}_out[V];" for name, v in results.items()]
        loop += ["#pragma unroll", "for (int j = 0; j < V; ++j) {", *(f"  {line}" for line in inner), "}"]
        loop += [f"tile.store({address.format(name)}, p, {name}_out, {live});" for name in results]
        if not self.looped and self.kind != "flat":
            loop.insert(0, "if (!tile.reaches(p)) continue;")
        return self._pass(k, indent, loop, by_vector=True)


def _finish_text(
    record: OpDef, name: str, results: dict[str, Node], sums: Sequence[Node]
) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The kernel that adds the partial rows and writes the column results."""
    params = [("partials",), ("groups",), ("N",), *(("ptr", n) for n in results)]
    declared = [
        "const C* __restrict__ partials", "int groups", "int64_t N", *(f"W* __restrict__ {n}_ptr" for n in results)
    ]  # fmt: skip
    plain = all(any(v is s for s in sums) for v in results.values())
    out = [
        *_title(record, name, "finish"),
        *_parameters(name, "C, W", declared),
        "namespace avo {",
        "",
        "// Adds the partial sums of the blocks.",
        "template <int kBlock, class C, class W>",
        f"AVO_INLINE void {name}(AVO_PARAMETERS(C, W, )) {{",
        "  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;",
        "  const bool exists = column < N;",
        "  wait_for_previous_kernel();",
    ]
    count = len(sums)
    if plain:
        order = [next(r for r, v in results.items() if v is s) for s in sums]
        if count > 1:
            chosen = f"{order[-1]}_ptr"
            for i in reversed(range(count - 1)):
                chosen = f"blockIdx.y == {i} ? {order[i]}_ptr : {chosen}"
            out.append(f"  W* const out = {chosen};")
        else:
            out.append(f"  W* const out = {order[0]}_ptr;")
        out += [
            "  if (!out) return;",
            f"  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, {count} * N, column, exists);",
            "  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);",
        ]
    else:
        out.append("  if (blockIdx.y) return;")
        known = {}
        for i, s in enumerate(sums):
            out.append(
                f"  const C sum{i} = finish_column<kBlock>(partials + {i} * N, groups, {count} * N, column, exists);"
            )
            known[s.index] = f"sum{i}"
        out.append("  if (!exists || threadIdx.x >= 32) return;")
        known |= {
            n.index: f"C({'N' if n.attr == Span.COLS else '0'})"
            for v in results.values()
            for n in Graph({"": v}).nodes()
            if n.op == "size"
        }
        lines, values = Body(Names(), known, "const C").emit(list(results.values()))
        out += [f"  {line}" for line in lines]
        out += [
            f"  if ({r}_ptr) {r}_ptr[column] = narrow<W>({v});" for r, v in zip(results, values, strict=True)
        ]
    out += ["}", "", "} // namespace avo", ""]
    return "\n".join(out), tuple(params)


def _title(record: OpDef, name: str, kind: str, headers: Sequence[str] = ()) -> list[str]:
    """The first lines of a source. One of an operator's says what it computes."""
    first = f"{record.name}_forward"
    line = f"// Generated, do not edit. avo::{name}: {kind} kernel"
    if name != first:
        return [f"{line}; formula: {first}.cu", '#include "device/avo.cuh"', *headers, ""]
    return [line, *formula_comment(record.formula, record.source), '#include "device/avo.cuh"', *headers, ""]


def _parameters(function: str, names: str, declared: Sequence[str]) -> list[str]:
    """The parameters of a kernel, the template that it calls, and with what, for AVO_KERNEL of avo.cuh."""
    lines, line = [], ""
    for part in declared:
        if line and len(line) + len(part) > 106:
            lines.append(line + ",")
            line = part
        else:
            line = f"{line}, {part}" if line else part
    text = " \\\n  ".join([*lines, line])
    return [
        f"#define AVO_FUNCTION {function}",
        f"#define AVO_ARGUMENTS {', '.join(d.split()[-1] for d in declared)}",
        f"#define AVO_PARAMETERS({names}, ...) \\\n  {text}",
        "",
    ]


__all__ = ["Emitter", "Family"]
